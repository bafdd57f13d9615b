//! Measures what many locks in one folder cost: `tenure list`, `check` and `clean --dry-run` beside a plain
//! loop that reads and parses the same files, and `tenure run` in a folder of many locks beside an empty one.
//! Everything is measured in one run, in turns. The output is Markdown on stdout.
//!
//! Environment: `TENURE_BENCH_INSTALL` names the binary, `TMPDIR` chooses the file system. It asserts no time,
//! and leaves judging the figures to its reader.

#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "the report is the product of a benchmark"
)]

use std::env;
use std::error::Error;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;
use tenure_os::clock::{instant, since};
use tenure_store::codec;

const USAGE: &str = "\
usage: locks [--locks N] [--many N] [--rounds N]
  --locks N    how many locks are listed; the default is 100000
  --many N     how many locks stand in the folder in which `run` is measured; the default is 1000000
  --rounds N   how often each thing is measured; the default is 7, and 50 times as often for `run`";

/// More names than a file may have on ext4.
const NAMES_OF_ONE_FILE: usize = 60_000;

type Outcome<T> = Result<T, Box<dyn Error>>;

fn main() -> ExitCode {
    // What a test runner asks of every target; this one has no tests.
    if env::args().any(|argument| argument == "--list") {
        return ExitCode::SUCCESS;
    }
    match Plan::from_arguments(env::args().skip(1)).and_then(|plan| run(&plan)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("locks: {error}");
            ExitCode::FAILURE
        }
    }
}

/// How much is measured.
struct Plan {
    locks: usize,
    many: usize,
    rounds: usize,
}

impl Plan {
    fn from_arguments(mut arguments: impl Iterator<Item = String>) -> Outcome<Self> {
        let mut plan = Self {
            locks: 100_000,
            many: 1_000_000,
            rounds: 7,
        };
        while let Some(argument) = arguments.next() {
            let field = match argument.as_str() {
                "--bench" => continue, // cargo adds it
                "--locks" => &mut plan.locks,
                "--many" => &mut plan.many,
                "--rounds" => &mut plan.rounds,
                _ => return Err(USAGE.into()),
            };
            *field = arguments.next().ok_or(USAGE)?.parse()?;
        }
        Ok(plan)
    }
}

fn run(plan: &Plan) -> Outcome<()> {
    let place = tempfile::Builder::new().prefix("tenure-bench-").tempdir()?;
    // No configuration file above the place of the call may be found and read.
    env::set_current_dir(place.path())?;
    let tenure = env::var_os("TENURE_BENCH_INSTALL")
        .unwrap_or_else(|| env!("CARGO_BIN_EXE_tenure").into())
        .into();
    let bench = Bench { place, tenure };
    bench.lists(plan)?;
    bench.runs(plan)
}

/// What is measured, and where.
struct Bench {
    place: tempfile::TempDir,
    tenure: PathBuf,
}

/// The states of the locks of a folder: what a call of `tenure` on one of them leaves there.
const STATES: [(&str, &[&str]); 2] = [
    ("free, used once", &["run", "sample", "-q", "--", "true"]),
    (
        "held by a process that lives",
        &["acquire", "sample", "-q", "--ttl", "1h", "--owner"],
    ),
];

/// What is measured of a folder with many locks.
const CALLS: [(&str, &[&str]); 5] = [
    ("`list`", &["list", "--all"]),
    ("`list --output json`", &["list", "--output", "json"]),
    ("`check`", &["check"]),
    ("`check --output json`", &["check", "--output", "json"]),
    ("`clean --dry-run`", &["clean", "--dry-run"]),
];

impl Bench {
    fn lists(&self, plan: &Plan) -> Outcome<()> {
        for (state, words) in STATES {
            let folder = self.folder_of(words, plan.locks)?;
            println!(
                "\n{} locks, {state}; median of {}:\n",
                plan.locks, plan.rounds
            );
            println!("| | ms | × the floor | peak memory (MB) |\n|---|--:|--:|--:|");
            let mut floors = Vec::new();
            let mut taken = vec![(Vec::new(), 0); CALLS.len()];
            for _ in 0..=plan.rounds {
                floors.push(timed(|| floor(&folder))?);
                for ((_, words), (times, peak)) in CALLS.iter().zip(&mut taken) {
                    let mut most = 0;
                    times.push(timed(|| {
                        most = self.peak_of(&folder, words)?;
                        Ok(())
                    })?);
                    *peak = most.max(*peak);
                }
            }
            let floor = median(floors);
            println!("| a plain loop that reads and parses them | {floor:.0} | 1.00 | |");
            for ((call, _), (times, peak)) in CALLS.iter().zip(taken) {
                let time = median(times);
                let megabytes = f64::from(peak) / 1_024.0;
                let ratio = time / floor;
                println!("| {call} | {time:.0} | {ratio:.2} | {megabytes:.1} |");
            }
            fs::remove_dir_all(&folder)?;
        }
        Ok(())
    }

    /// A folder with so many locks as a call leaves them.
    fn folder_of(&self, words: &[&str], locks: usize) -> Outcome<PathBuf> {
        let folder = self.place.path().join("locks");
        let mut command = self.command(&folder, words);
        if words.last() == Some(&"--owner") {
            command.arg(std::process::id().to_string());
        }
        if !command.stdout(Stdio::null()).status()?.success() {
            return Err(format!("tenure {} failed", words.join(" ")).into());
        }
        let sample = folder.join("sample.tenure");
        let bytes = fs::read(&sample)?;
        let path_of = |number| folder.join(format!("job-{number:07}.tenure"));
        fs::rename(sample, path_of(0))?;
        for number in 1..locks {
            fs::write(path_of(number), &bytes)?;
        }
        Ok(folder)
    }

    fn command(&self, folder: &Path, words: &[&str]) -> Command {
        let mut command = Command::new(&self.tenure);
        command
            .args(words)
            .env_clear()
            .env("HOME", self.place.path())
            .env("PATH", env::var_os("PATH").unwrap_or_default())
            .env("TENURE_DIR", folder)
            .stdin(Stdio::null());
        command
    }

    /// Runs a call to its end. The most memory that it had in KiB, looked for every millisecond.
    fn peak_of(&self, folder: &Path, words: &[&str]) -> Outcome<u32> {
        let mut command = self.command(folder, words);
        let mut call = command.stdout(File::create("/dev/null")?).spawn()?;
        let status = format!("/proc/{}/status", call.id());
        let mut peak = 0;
        while call.try_wait()?.is_none() {
            let text = fs::read_to_string(&status).unwrap_or_default();
            let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
            let number = line.and_then(|line| line.split_ascii_whitespace().next());
            peak = number
                .and_then(|number| number.parse().ok())
                .unwrap_or(peak);
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(peak)
    }

    /// `run` in a folder of many locks and in an empty one, in turns.
    fn runs(&self, plan: &Plan) -> Outcome<()> {
        let [many, empty] = ["many", "empty"].map(|name| self.place.path().join(name));
        fs::create_dir(&many)?;
        fs::create_dir(&empty)?;
        // `run` opens its own lock alone, so what the others hold does not matter, and names are enough.
        let mut file = PathBuf::new();
        for number in 0..plan.many {
            let path = many.join(format!("job-{number:07}.tenure"));
            if number % NAMES_OF_ONE_FILE == 0 {
                fs::write(&path, "")?;
                file = path;
            } else {
                fs::hard_link(&file, path)?;
            }
        }
        println!(
            "\n`run x -- true` in a folder with {} locks and in an empty one, in turns, {} rounds each:\n",
            plan.many,
            plan.rounds * 50
        );
        println!("| | median (µs) | × the empty folder |\n|---|--:|--:|");
        for (how, begins_anew) in [("used before", false), ("new in each round", true)] {
            let folders = [&empty, &many];
            let mut times = [Vec::new(), Vec::new()];
            for round in 0..plan.rounds * 50 {
                let name = if begins_anew {
                    format!("new-{round}")
                } else {
                    "x".to_owned()
                };
                for (folder, times) in folders.iter().zip(&mut times) {
                    let mut run = self.command(folder, &["run", &name, "-q", "--", "true"]);
                    times.push(timed(|| Ok(run.status().map(|_| ())?))?);
                }
            }
            let [empty, many] = times.map(median);
            println!("| empty, a lock {how} | {:.0} | 1.00 |", empty * 1e3);
            println!(
                "| many, a lock {how} | {:.0} | {:.2} |",
                many * 1e3,
                many / empty
            );
        }
        Ok(())
    }
}

/// What every program pays that looks at all locks: each file is opened, read and parsed.
fn floor(folder: &Path) -> Outcome<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        // The audit has a folder of its own there.
        if path.extension().is_none_or(|end| end != "tenure") {
            continue;
        }
        let bytes = fs::read(path)?;
        let page = newest_page(&bytes).ok_or("a file without a page")?;
        std::hint::black_box(codec::decode(page)?);
    }
    Ok(())
}

/// The body of the page that counts, by the sequences of the two frames.
fn newest_page(bytes: &[u8]) -> Option<&[u8]> {
    let pages = bytes.chunks(2_048).filter_map(|page| {
        let end = page.iter().position(|byte| *byte == b'\n')?;
        let frame = std::str::from_utf8(page.get(..end)?).ok()?;
        let mut words = frame.strip_prefix("tenure 1 ")?.split(' ');
        let sequence: u64 = words.next()?.parse().ok()?;
        let length: usize = words.next()?.parse().ok()?;
        Some((sequence, page.get(end + 1..end + 1 + length)?))
    });
    let newest = pages.max_by_key(|(sequence, _)| *sequence)?;
    Some(newest.1)
}

/// How long something takes, in milliseconds.
fn timed(action: impl FnOnce() -> Outcome<()>) -> Outcome<f64> {
    let began = instant();
    action()?;
    Ok(since(began).as_secs_f64() * 1e3)
}

/// The median; the first one warms up and does not count.
fn median(mut times: Vec<f64>) -> f64 {
    if times.len() > 1 {
        times.remove(0);
    }
    times.sort_by(f64::total_cmp);
    times.get(times.len() / 2).copied().unwrap_or_default()
}
