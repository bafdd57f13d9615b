//! Measures what a lock around a command costs, as whole processes: `tenure run` beside flock(1)
//! and other wrappers that are installed, all of them interleaved in one run.
//!
//! `scripts/bench` builds the released form and starts this; `cargo bench --bench startup` alone
//! measures only the form that `cargo install` gives. The output is Markdown on stdout. Times
//! depend on the machine and on its day, so that the ratios within one run are what to compare.
//!
//! Environment: `TENURE_BENCH_DIST` and `TENURE_BENCH_INSTALL` name the two binaries, `TMPDIR`
//! chooses the file system. It asserts no time, and leaves judging the figures to its reader.

#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "the report is the product of a benchmark"
)]

#[path = "startup/crowd.rs"]
mod crowd;

use std::env;
use std::error::Error;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::thread;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// The clock that nobody adjusts, where there is one. The helper program reads the same.
#[cfg(target_os = "linux")]
const CLOCK: ClockId = ClockId::MonotonicRaw;
#[cfg(not(target_os = "linux"))]
const CLOCK: ClockId = ClockId::Monotonic;

const USAGE: &str = "\
usage: startup [--quick] [--rounds N]
  --quick      60 rounds after 10 warm-ups, for a look; the default is 500 after 30
  --rounds N   that many rounds";

/// What names the caller's language.
const LANGUAGE: [&str; 3] = ["LANG", "LC_ALL", "LC_CTYPE"];

/// A probe that takes longer hangs; measuring it would hang too.
const PROBE_TIMEOUT: Duration = Duration::from_secs(10);

/// Long enough for the other contender to stand in the queue before the hold ends, so that the
/// hand-over is measured and not the start of the next process.
const HOLD: Duration = Duration::from_millis(3);

/// What is run where the helper cannot be built, and beside it.
const DYNAMIC_TRUE: &str = "/bin/true";
const DYNAMIC_TRUE_LABEL: &str = "`/bin/true`, dynamic";

/// The command that runs under every lock, without libc and dynamic loader so that it weighs
/// next to nothing: with no arguments it is `true(1)`, with `FILE ID HOLD_NS` it appends its id and
/// the times of its first and last instruction to FILE.
const HELPER_SOURCE: &str = r#"
typedef long word;

#if defined(__x86_64__)
enum { OPENAT = 257, WRITE = 1, NANOSLEEP = 35, CLOCK_GETTIME = 228, EXIT_GROUP = 231 };
static word call(word number, word a, word b, word c) {
    word result;
    register word fourth __asm__("r10") = 0;
    __asm__ volatile("syscall" : "=a"(result)
        : "a"(number), "D"(a), "S"(b), "d"(c), "r"(fourth) : "rcx", "r11", "memory");
    return result;
}
__asm__(".globl _start\n_start:\nxor %ebp, %ebp\nmov %rsp, %rdi\nand $-16, %rsp\ncall begin\n");
#elif defined(__aarch64__)
enum { OPENAT = 56, WRITE = 64, NANOSLEEP = 101, CLOCK_GETTIME = 113, EXIT_GROUP = 94 };
static word call(word number, word a, word b, word c) {
    register word x8 __asm__("x8") = number;
    register word x0 __asm__("x0") = a;
    register word x1 __asm__("x1") = b;
    register word x2 __asm__("x2") = c;
    register word x3 __asm__("x3") = 0;
    __asm__ volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3) : "memory");
    return x0;
}
__asm__(".globl _start\n_start:\nmov x29, #0\nmov x0, sp\nbl begin\n");
#else
#error "no system calls known for this processor"
#endif

enum { CLOCK_MONOTONIC_RAW = 4, AT_FDCWD = -100, O_WRONLY = 1, O_APPEND = 1024 };
static const word second = 1000000000;

static word now(void) {
    word time[2] = { 0, 0 };
    call(CLOCK_GETTIME, CLOCK_MONOTONIC_RAW, (word)time, 0);
    return time[0] * second + time[1];
}

static word number(const char *text) {
    word value = 0;
    while (*text >= '0' && *text <= '9') value = value * 10 + (*text++ - '0');
    return value;
}

void begin(word *stack) {
    word code = 0;
    if (stack[0] == 4) {
        word record[3];
        record[1] = now();
        word file = call(OPENAT, AT_FDCWD, stack[2], O_WRONLY | O_APPEND);
        word hold = number((const char *)stack[4]);
        word pause[2] = { hold / second, hold % second };
        record[0] = number((const char *)stack[3]);
        if (hold > 0) call(NANOSLEEP, (word)pause, 0, 0);
        record[2] = now();
        if (call(WRITE, file, (word)record, sizeof record) != sizeof record) code = 1;
    }
    call(EXIT_GROUP, code, 0, 0);
    for (;;) { }
}
"#;

type Outcome<T> = Result<T, Box<dyn Error>>;

fn main() -> ExitCode {
    // What a test runner asks of every target; this one has no tests.
    if env::args().any(|argument| argument == "--list") {
        return ExitCode::SUCCESS;
    }
    if env::args().any(|argument| argument == "--help") {
        println!("{USAGE}");
        return ExitCode::SUCCESS;
    }
    match Plan::from_arguments(env::args().skip(1)).and_then(|plan| run(&plan)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("startup: {error}");
            ExitCode::FAILURE
        }
    }
}

/// How much is measured.
struct Plan {
    warm_ups: usize,
    rounds: usize,
    /// Hand-overs are measured in blocks that alternate between the tools.
    blocks: usize,
    /// How often each of the two contenders takes the lock in one block.
    turns: usize,
    /// How long a crowd contends in one block, and how many blocks there are.
    crowd_lasts: Duration,
    crowd_blocks: usize,
}

impl Plan {
    fn from_arguments(mut arguments: impl Iterator<Item = String>) -> Outcome<Self> {
        let mut plan = Self {
            warm_ups: 30,
            rounds: 500,
            blocks: 12,
            turns: 20,
            crowd_lasts: Duration::from_secs(2),
            crowd_blocks: 2,
        };
        while let Some(argument) = arguments.next() {
            match argument.as_str() {
                "--bench" => {} // cargo adds it
                "--quick" => {
                    plan = Self {
                        warm_ups: 10,
                        rounds: 60,
                        blocks: 3,
                        turns: 12,
                        crowd_lasts: Duration::from_millis(500),
                        crowd_blocks: 1,
                    }
                }
                "--rounds" => {
                    let value = arguments.next().unwrap_or_default();
                    plan.rounds =
                        value
                            .parse()
                            .ok()
                            .filter(|rounds| *rounds > 0)
                            .ok_or_else(|| {
                                format!("--rounds takes a number above 0, not '{value}'\n{USAGE}")
                            })?;
                }
                _ => return Err(USAGE.into()),
            }
        }
        Ok(plan)
    }
}

fn run(plan: &Plan) -> Outcome<()> {
    // With a terminal as stdin `tenure run` hands it over, which the other tools do not do; and
    // opening /dev/null for every process would be measured with it.
    rustix::stdio::dup2_stdin(File::open("/dev/null")?)?;
    let bench = Bench::prepare()?;
    // No configuration file above the place of the call may be found and read.
    env::set_current_dir(bench.place.path())?;
    print_machine(&bench);
    let (startup, mut notes) = bench.startup_contestants(&bench.helper);
    let hand_over = bench.hand_over_contestants(&startup, &mut notes);
    print_startup(bench.helper_label(), &measure_startup(plan, startup)?);
    if bench.helper_stamps {
        // The lock's own cost shows best around a command that costs nothing; what a script feels is
        // its cost around an ordinary one.
        let (startup, _) = bench.startup_contestants(Path::new(DYNAMIC_TRUE));
        print_startup(DYNAMIC_TRUE_LABEL, &measure_startup(plan, startup)?);
        print_hand_over(&measure_hand_over(plan, &bench, &hand_over)?);
        crowd::print(&crowd::measure(
            &bench,
            &hand_over,
            plan.crowd_lasts,
            plan.crowd_blocks,
        )?);
    }
    if !notes.is_empty() || !bench.notes.is_empty() {
        println!();
    }
    for note in bench.notes.iter().chain(&notes) {
        println!("- {note}");
    }
    Ok(())
}

/// What is compared, and where.
struct Bench {
    place: tempfile::TempDir,
    /// The command under every lock.
    helper: PathBuf,
    /// Whether the helper can write time stamps; `/bin/true` cannot.
    helper_stamps: bool,
    flock: Option<PathBuf>,
    setlock: Option<PathBuf>,
    chpst: Option<PathBuf>,
    tenure_dist: Option<PathBuf>,
    tenure_install: PathBuf,
    notes: Vec<String>,
}

impl Bench {
    fn prepare() -> Outcome<Self> {
        let place = tempfile::Builder::new().prefix("tenure-bench-").tempdir()?;
        let mut notes = Vec::new();
        let (helper, helper_stamps) = match build_helper(place.path()) {
            Ok(helper) => (helper, true),
            Err(why) => {
                notes.push(format!(
                    "No static command to run under the locks, and no hand-overs: {why}."
                ));
                (PathBuf::from(DYNAMIC_TRUE), false)
            }
        };
        let tenure_dist = env::var_os("TENURE_BENCH_DIST").map(PathBuf::from);
        if tenure_dist.is_none() {
            notes.push(
                "The released, static form is not in the table: `scripts/bench` builds it."
                    .to_owned(),
            );
        }
        let tenure_install = env::var_os("TENURE_BENCH_INSTALL")
            .unwrap_or_else(|| env!("CARGO_BIN_EXE_tenure").into())
            .into();
        let flock = find_program("flock");
        if flock.is_none() {
            notes
                .push("flock(1) is not installed, so there is nothing to compare with.".to_owned());
        }
        Ok(Self {
            place,
            helper,
            helper_stamps,
            flock,
            setlock: find_program("setlock"),
            chpst: find_program("chpst"),
            tenure_dist,
            tenure_install,
            notes,
        })
    }

    fn helper_label(&self) -> &'static str {
        if self.helper_stamps {
            "a static `true`"
        } else {
            DYNAMIC_TRUE_LABEL
        }
    }

    /// A command whose environment is the same for all: what cargo sets for a benchmark
    /// (`LD_LIBRARY_PATH` above all) slows the start of dynamic programs and only of those. The
    /// language is the caller's own, for users have one, and some programs pay for it.
    fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command
            .env_clear()
            .env("PATH", env::var_os("PATH").unwrap_or_default())
            .env("HOME", self.place.path())
            .env("TENURE_DIR", self.place.path().join("locks"));
        for name in LANGUAGE {
            if let Some(value) = env::var_os(name) {
                command.env(name, value);
            }
        }
        command
    }

    fn wrapped(&self, program: &Path, arguments: &[&OsStr], work: &[OsString]) -> Command {
        let mut command = self.command(program);
        command.args(arguments).args(work);
        command
    }

    /// Every form of "run `work` under a lock" that is installed, as label and command.
    fn wrappers(&self, work: &[OsString]) -> Vec<(String, Command)> {
        let lock_file = self.place.path().join("peer.lock");
        let lock_file = lock_file.as_os_str();
        let word = OsStr::new;
        let mut wrappers = Vec::new();
        if let Some(flock) = &self.flock {
            wrappers.push((FLOCK.to_owned(), self.wrapped(flock, &[lock_file], work)));
            wrappers.push((
                "flock -F".to_owned(),
                self.wrapped(flock, &[word("-F"), lock_file], work),
            ));
        }
        if let Some(setlock) = &self.setlock {
            wrappers.push((
                "setlock".to_owned(),
                self.wrapped(setlock, &[lock_file], work),
            ));
        }
        if let Some(chpst) = &self.chpst {
            wrappers.push((
                "chpst -l".to_owned(),
                self.wrapped(chpst, &[word("-l"), lock_file], work),
            ));
        }
        let run = [word("run"), word("bench"), word("--")];
        let exec = [word("run"), word("--exec"), word("bench"), word("--")];
        if let Some(tenure) = &self.tenure_dist {
            wrappers.push((
                "tenure run, released".to_owned(),
                self.wrapped(tenure, &run, work),
            ));
            wrappers.push((
                "tenure run --exec, released".to_owned(),
                self.wrapped(tenure, &exec, work),
            ));
        }
        wrappers.push((
            "tenure run, cargo install".to_owned(),
            self.wrapped(&self.tenure_install, &run, work),
        ));
        wrappers
    }

    fn startup_contestants(&self, work: &Path) -> (Vec<Contestant>, Vec<String>) {
        let mut candidates = vec![(FLOOR.to_owned(), self.command(work))];
        let work = [work.into()];
        candidates.extend(self.wrappers(&work));
        // The state folder is the bench's own, so that the user's stays as it is; how it is found is
        // what differs from the rows above.
        let tenure = self.tenure_dist.as_deref().unwrap_or(&self.tenure_install);
        let mut default_place =
            self.wrapped(tenure, &["run", "bench", "--"].map(OsStr::new), &work);
        default_place
            .env_remove("TENURE_DIR")
            .env("XDG_STATE_HOME", self.place.path().join("state"));
        let form = if self.tenure_dist.is_some() {
            "released"
        } else {
            "cargo install"
        };
        candidates.push((
            format!("tenure run, {form}, default place (no TENURE_DIR)"),
            default_place,
        ));

        let mut notes = Vec::new();
        let mut contestants = Vec::new();
        for (label, mut command) in candidates {
            match self.probe(&mut command) {
                Ok(()) => contestants.push(Contestant {
                    label,
                    command,
                    samples: Vec::new(),
                }),
                Err(why) => notes.push(format!("Left out: {label}: {why}.")),
            }
        }
        (contestants, notes)
    }

    /// The helper as a command that leaves its times in the log.
    fn stamping(&self, log: &Path, contender: u64, hold: Duration) -> [OsString; 4] {
        [
            self.helper.clone().into(),
            log.into(),
            contender.to_string().into(),
            hold.as_nanos().to_string().into(),
        ]
    }

    /// Labels of the wrappers that pass the stamping helper's arguments on.
    fn hand_over_contestants(
        &self,
        startup: &[Contestant],
        notes: &mut Vec<String>,
    ) -> Vec<String> {
        if !self.helper_stamps {
            return Vec::new();
        }
        let log = self.place.path().join("probe.log");
        let mut labels = Vec::new();
        for (label, mut command) in self.wrappers(&self.stamping(&log, 0, Duration::ZERO)) {
            if startup.iter().all(|contestant| contestant.label != label) {
                continue; // its note is there already
            }
            let probed = File::create(&log)
                .map_err(Into::into)
                .and_then(|_| self.probe(&mut command));
            match probed.and_then(|()| read_holds(&log)) {
                Ok(holds) if holds.len() == 1 => labels.push(label),
                Ok(_) => notes.push(format!(
                    "No hand-over: {label}: its command left no time stamp."
                )),
                Err(why) => notes.push(format!("No hand-over: {label}: {why}.")),
            }
        }
        labels
    }

    /// Runs it once, so that what does not work here is left out with a reason instead of measured.
    fn probe(&self, command: &mut Command) -> Outcome<()> {
        let messages = self.place.path().join("probe.messages");
        let mut child = command
            .stdout(Stdio::null())
            .stderr(File::create(&messages)?)
            .spawn()?;
        command.stdout(Stdio::inherit()).stderr(Stdio::inherit());
        let step = Duration::from_millis(5);
        let mut waited = Duration::ZERO;
        let status = loop {
            if let Some(status) = child.try_wait()? {
                break status;
            }
            if waited >= PROBE_TIMEOUT {
                child.kill()?;
                child.wait()?;
                return Err(format!("it did not end within {} s", PROBE_TIMEOUT.as_secs()).into());
            }
            thread::sleep(step);
            waited += step;
        };
        if status.success() {
            return Ok(());
        }
        let said = String::from_utf8_lossy(&fs::read(&messages)?)
            .lines()
            .next()
            .unwrap_or_default()
            .to_owned();
        Err(format!("{status}: {said}").into())
    }
}

/// The two rows that everything is compared with.
const FLOOR: &str = "spawn of the command alone";
const FLOCK: &str = "flock";

/// A row of the start-up table.
struct Contestant {
    label: String,
    command: Command,
    samples: Vec<Duration>,
}

fn measure_startup(plan: &Plan, mut contestants: Vec<Contestant>) -> Outcome<Vec<Contestant>> {
    let mut order: Vec<usize> = (0..contestants.len()).collect();
    let mut shuffle = Shuffle::new();
    for round in 0..plan.warm_ups + plan.rounds {
        // Another order each time, so that nobody always runs after the same neighbour.
        shuffle.apply(&mut order);
        for &index in &order {
            let contestant = &mut contestants[index];
            let begun = now();
            let status = contestant.command.spawn()?.wait()?;
            let taken = now().saturating_sub(begun);
            if !status.success() {
                return Err(
                    format!("{} failed in round {round}: {status}", contestant.label).into(),
                );
            }
            if round >= plan.warm_ups {
                contestant.samples.push(taken);
            }
        }
    }
    Ok(contestants)
}

/// What one wrapper showed with two contenders that take the lock in turns.
struct HandOver {
    label: String,
    hold: Duration,
    /// From the end of one contender's command to the start of the other's.
    gaps: Vec<Duration>,
    /// Holds that could have been followed by either contender.
    contested: usize,
}

fn measure_hand_over(plan: &Plan, bench: &Bench, labels: &[String]) -> Outcome<Vec<HandOver>> {
    let mut results = Vec::new();
    for hold in [HOLD, Duration::ZERO] {
        let mut of_hold: Vec<HandOver> = labels
            .iter()
            .map(|label| HandOver {
                label: label.clone(),
                hold,
                gaps: Vec::new(),
                contested: 0,
            })
            .collect();
        for _ in 0..plan.blocks {
            for result in &mut of_hold {
                let holds = contend(plan, bench, &result.label, hold)?;
                collect_gaps(&holds, result);
            }
        }
        results.append(&mut of_hold);
    }
    Ok(results)
}

/// Two contenders loop without thinking; gives the holds in their order.
fn contend(plan: &Plan, bench: &Bench, label: &str, hold: Duration) -> Outcome<Vec<Hold>> {
    let log = bench.place.path().join("holds.log");
    File::create(&log)?;
    let silent = OpenOptions::new().write(true).open("/dev/null")?;
    let mut contenders = Vec::new();
    for contender in 0..2 {
        let mut command = bench
            .wrappers(&bench.stamping(&log, contender, hold))
            .into_iter()
            .find_map(|(candidate, command)| (candidate == label).then_some(command))
            .ok_or("a contestant disappeared")?;
        // A waiter says whom it waits for; that belongs to nobody's table.
        command.stderr(silent.try_clone()?);
        contenders.push(command);
    }
    thread::scope(|scope| -> Outcome<()> {
        let running: Vec<_> = contenders
            .into_iter()
            .map(|mut command| {
                scope.spawn(move || -> Result<(), String> {
                    for _ in 0..plan.turns {
                        let ended = command.spawn().and_then(|mut child| child.wait());
                        match ended {
                            Ok(status) if status.success() => {}
                            Ok(status) => return Err(status.to_string()),
                            Err(error) => return Err(error.to_string()),
                        }
                    }
                    Ok(())
                })
            })
            .collect();
        for thread in running {
            let ended = thread.join().map_err(|_| "a contender's thread failed")?;
            ended.map_err(|why| format!("{label} failed under contention: {why}"))?;
        }
        Ok(())
    })?;
    read_holds(&log)
}

fn collect_gaps(holds: &[Hold], result: &mut HandOver) {
    for (at, pair) in holds.windows(2).enumerate() {
        // Once one contender is through with its turns there is nobody to hand over to.
        let both_remain = (0..2).all(|contender| {
            holds[at + 1..]
                .iter()
                .any(|hold| hold.contender == contender)
        });
        if !both_remain {
            break;
        }
        result.contested += 1;
        if pair[0].contender != pair[1].contender {
            result.gaps.push(pair[1].start.saturating_sub(pair[0].end));
        }
    }
}

/// A line of the helper's log.
struct Hold {
    contender: u64,
    start: Duration,
    end: Duration,
}

fn read_holds(log: &Path) -> Outcome<Vec<Hold>> {
    let bytes = fs::read(log)?;
    let (records, rest) = bytes.as_chunks::<24>();
    if !rest.is_empty() {
        return Err("a time stamp is incomplete".into());
    }
    Ok(records
        .iter()
        .map(|record| {
            let (words, _) = record.as_chunks::<8>();
            Hold {
                contender: u64::from_ne_bytes(words[0]),
                start: Duration::from_nanos(u64::from_ne_bytes(words[1])),
                end: Duration::from_nanos(u64::from_ne_bytes(words[2])),
            }
        })
        .collect())
}

fn build_helper(place: &Path) -> Outcome<PathBuf> {
    if cfg!(not(target_os = "linux")) {
        return Err("the helper speaks to Linux only".into());
    }
    let compiler = find_program("cc").ok_or("no C compiler (cc) is installed")?;
    let source = place.join("helper.c");
    let helper = place.join("true");
    fs::write(&source, HELPER_SOURCE)?;
    let output = Command::new(compiler)
        .args([
            "-Os",
            "-static",
            "-nostdlib",
            "-ffreestanding",
            "-fno-pie",
            "-no-pie",
            "-fno-stack-protector",
        ])
        .args([
            "-fno-asynchronous-unwind-tables",
            "-Wl,--build-id=none",
            "-o",
        ])
        .args([&helper, &source])
        .output()?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(format!("cc: {}", said.lines().next().unwrap_or("no message")).into());
    }
    if !Command::new(&helper).status()?.success() {
        return Err("the compiled helper does not run".into());
    }
    Ok(helper)
}

fn find_program(name: &str) -> Option<PathBuf> {
    env::split_paths(&env::var_os("PATH")?)
        .map(|folder| folder.join(name))
        .find(|path| path.is_absolute() && path.is_file())
}

fn now() -> Duration {
    Duration::try_from(clock_gettime(CLOCK)).unwrap_or_default()
}

/// A fixed sequence of orders: two runs compare the same things in the same order.
struct Shuffle(u64);

impl Shuffle {
    fn new() -> Self {
        Self(0x9E37_79B9_7F4A_7C15)
    }

    fn apply(&mut self, items: &mut [usize]) {
        for last in (1..items.len()).rev() {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            let upper = u64::try_from(last).map_or(u64::MAX, |last| last + 1);
            items.swap(last, usize::try_from(self.0 % upper).unwrap_or(last));
        }
    }
}

/// Median and tenths of some samples, shown in microseconds.
struct Summary {
    low: Duration,
    median: Duration,
    high: Duration,
}

impl Summary {
    fn of(samples: &[Duration]) -> Option<Self> {
        let mut sorted = samples.to_vec();
        sorted.sort_unstable();
        let last = sorted.len().checked_sub(1)?;
        let at = |percent: usize| sorted[(last * percent + 50) / 100];
        Some(Self {
            low: at(10),
            median: at(50),
            high: at(90),
        })
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [low, median, high] =
            [self.low, self.median, self.high].map(|time| time.as_secs_f64() * 1e6);
        write!(f, "{low:.0} | {median:.0} | {high:.0}")
    }
}

fn ratio(one: &Summary, other: Option<&Summary>) -> String {
    match other {
        Some(other) if !other.median.is_zero() => {
            format!(
                "{:.2}",
                one.median.as_secs_f64() / other.median.as_secs_f64()
            )
        }
        _ => "–".to_owned(),
    }
}

fn print_startup(work: &str, contestants: &[Contestant]) {
    let summary = |wanted: &str| {
        contestants
            .iter()
            .find(|one| one.label == wanted)
            .and_then(|one| Summary::of(&one.samples))
    };
    let (floor, flock) = (summary(FLOOR), summary(FLOCK));
    let rounds = contestants.first().map_or(0, |one| one.samples.len());
    println!("\nThe command is {work}; {rounds} rounds, interleaved; from spawn to wait, in µs:\n");
    println!(
        "| run a command under a lock | p10 | median | p90 | × the command alone | × flock(1) |"
    );
    println!("|---|--:|--:|--:|--:|--:|");
    for contestant in contestants {
        if let Some(own) = Summary::of(&contestant.samples) {
            let (by_floor, by_flock) = (ratio(&own, floor.as_ref()), ratio(&own, flock.as_ref()));
            println!("| {} | {own} | {by_floor} | {by_flock} |", contestant.label);
        }
    }
}

fn print_hand_over(results: &[HandOver]) {
    println!(
        "\nTwo contenders loop; from the end of one's command to the start of the other's, in µs."
    );
    println!(
        "*Passed on* counts how often the waiting contender came next and not the one that just held it:\n"
    );
    println!("| hand-over | command takes | p10 | median | p90 | × flock(1) | passed on |");
    println!("|---|--:|--:|--:|--:|--:|--:|");
    for result in results {
        let peer = results
            .iter()
            .find(|other| other.label == FLOCK && other.hold == result.hold);
        let peer = peer.and_then(|peer| Summary::of(&peer.gaps));
        let passed = format!("{} of {}", result.gaps.len(), result.contested);
        let hold = format!("{} ms", result.hold.as_millis());
        match Summary::of(&result.gaps) {
            Some(own) => {
                println!(
                    "| {} | {hold} | {own} | {} | {passed} |",
                    result.label,
                    ratio(&own, peer.as_ref())
                );
            }
            None => println!("| {} | {hold} | – | – | – | – | {passed} |", result.label),
        }
    }
}

fn print_machine(bench: &Bench) {
    let first_line = |program: &Path| {
        let output = bench.command(program).arg("--version").output().ok()?;
        Some(
            String::from_utf8_lossy(&output.stdout)
                .lines()
                .next()?
                .trim()
                .to_owned(),
        )
    };
    let version = |program: Option<&Path>| {
        program.map_or_else(
            || "not installed".to_owned(),
            |program| first_line(program).unwrap_or_else(|| "version unknown".to_owned()),
        )
    };
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let cores = thread::available_parallelism().map_or(0, usize::from);
    println!(
        "- processor: {}, {cores} cores in use",
        processor().unwrap_or_else(|| "unknown".to_owned())
    );
    println!("- kernel: {}", kernel.trim());
    let language: Vec<String> = LANGUAGE
        .iter()
        .filter_map(|name| Some(format!("{name}={}", env::var(name).ok()?)))
        .collect();
    println!(
        "- language: {}",
        if language.is_empty() {
            "none set".to_owned()
        } else {
            language.join(" ")
        }
    );
    println!(
        "- file system of the locks: {}",
        file_system(bench.place.path()).unwrap_or_else(|| "unknown".to_owned())
    );
    println!(
        "- load before the run: {}",
        load.split(' ').next().unwrap_or_default()
    );
    println!("- flock: {}", version(bench.flock.as_deref()));
    println!(
        "- tenure, released: {}",
        version(bench.tenure_dist.as_deref())
    );
    println!(
        "- tenure, cargo install: {}",
        version(Some(&bench.tenure_install))
    );
}

fn processor() -> Option<String> {
    let text = fs::read_to_string("/proc/cpuinfo").ok()?;
    let line = text.lines().find(|line| line.starts_with("model name"))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

/// The type of the innermost mount above the path.
fn file_system(path: &Path) -> Option<String> {
    let path = path.canonicalize().ok()?;
    let mounts = fs::read_to_string("/proc/self/mounts").ok()?;
    mounts
        .lines()
        .filter_map(|line| {
            let mut fields = line.split(' ').skip(1);
            Some((Path::new(fields.next()?), fields.next()?))
        })
        .filter(|(folder, _)| path.starts_with(folder))
        .max_by_key(|(folder, _)| folder.components().count())
        .map(|(_, kind)| kind.to_owned())
}
