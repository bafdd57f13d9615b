//! Measures what a lock costs a program: taking and releasing one that is free, and handing one over to a
//! waiter. Beside both stands the floor, flock(2) on a file of its own. Everything is measured in one run, in
//! turns. The output is Markdown on stdout.
//!
//! Environment: `TMPDIR` chooses the file system. It asserts no time, and leaves judging the figures to its
//! reader.

#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "the report is the product of a benchmark"
)]

#[cfg(unix)]
mod measured {
    use rustix::fs::{CWD, FlockOperation, Mode, OFlags};
    use rustix::time::{ClockId, clock_gettime};
    use std::env;
    use std::error::Error;
    use std::fmt::Write as _;
    use std::fs;
    use std::os::fd::OwnedFd;
    use std::path::{Path, PathBuf};
    use std::process::{Command, Stdio};
    use std::thread;
    use std::time::Duration;
    use tenure::guard::{Again, LockManager, Options, Wait};
    use tenure::store::Verbs;
    use tenure::store::file::{FileStore, ThreadSleeper};
    use tenure_core::{Force, Holder, Kind, LockName, Now, Patience, Request, RequestId, Terms};
    use tenure_engine::formats::{Fleet, Resume, Session, Sprint};
    use tenure_os::clock::{Clock, SystemClock, nap};
    use tenure_os::process::{Identity, new_request_id};
    use tenure_store::profile::{Native, Profile};

    const USAGE: &str = "\
usage: guard [--rounds N] [--holds N] [--hold-us N] [--only TEXT]
  --rounds N    how often each lock is taken and released; the default is 5000
  --holds N     how often each of two contenders holds a lock; the default is 1000
  --hold-us N   how long it holds, asleep; the default is 1000
  --only TEXT   measures only what has TEXT in its name";

    pub(super) type Outcome<T> = Result<T, Box<dyn Error>>;

    /// How much is measured.
    struct Plan {
        rounds: usize,
        holds: usize,
        hold_us: usize,
        only: String,
    }

    impl Plan {
        fn from_arguments(mut arguments: impl Iterator<Item = String>) -> Outcome<Self> {
            let mut plan = Self {
                rounds: 5_000,
                holds: 1_000,
                hold_us: 1_000,
                only: String::new(),
            };
            while let Some(argument) = arguments.next() {
                let field = match argument.as_str() {
                    "--bench" => continue, // cargo adds it
                    "--only" => {
                        plan.only = arguments.next().ok_or(USAGE)?;
                        continue;
                    }
                    "--rounds" => &mut plan.rounds,
                    "--holds" => &mut plan.holds,
                    "--hold-us" => &mut plan.hold_us,
                    _ => return Err(USAGE.into()),
                };
                *field = arguments.next().ok_or(USAGE)?.parse()?;
            }
            Ok(plan)
        }

        fn has(&self, name: &str) -> bool {
            name.contains(&self.only)
        }
    }

    pub(super) fn run() -> Outcome<()> {
        let arguments: Vec<String> = env::args().skip(1).collect();
        if let [contend, kind, folder, holds, hold_us] = arguments.as_slice()
            && contend == "contend"
        {
            let holds = contender(kind, Path::new(folder))?.loops(holds.parse()?, hold_us.parse()?);
            for (taken, released) in holds? {
                println!("{taken} {released}");
            }
            return Ok(());
        }
        let plan = Plan::from_arguments(arguments.into_iter())?;
        let place = tempfile::Builder::new().prefix("tenure-bench-").tempdir()?;
        let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
        println!("Load before the run: {}\n", load.trim());
        uncontended(&plan, place.path())?;
        handed_over(&plan, place.path())
    }

    /// Nanoseconds by a clock that all processes share.
    fn now_ns() -> i64 {
        let now = clock_gettime(ClockId::Monotonic);
        now.tv_sec * 1_000_000_000 + now.tv_nsec
    }

    fn micros(sorted: &[i64], part: f64) -> f64 {
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_precision_loss,
            clippy::cast_sign_loss,
            reason = "an index, and a time for people"
        )]
        let at = |part: f64| sorted.get((sorted.len() as f64 * part) as usize);
        #[allow(clippy::cast_precision_loss, reason = "a time for people")]
        at(part).map_or(f64::NAN, |ns| *ns as f64 / 1_000.0)
    }

    fn row(name: &str, mut took: Vec<i64>) {
        took.sort_unstable();
        let mut row = format!("| {name} |");
        for part in [0.1, 0.5, 0.9, 0.99] {
            let _ = write!(row, " {:.1} |", micros(&took, part));
        }
        println!("{row} {} |", took.len());
    }

    /// How often one thing is measured before the next one has its turn: as in a program that does it again and again. The
    /// first one of each turn finds what the others left in the caches of the processor.
    const AT_A_TIME: usize = 20;

    /// A thing that is measured, again and again.
    type Once = Box<dyn FnMut() -> Outcome<()>>;

    fn uncontended(plan: &Plan, place: &Path) -> Outcome<()> {
        let floor = place.join("floor");
        let floor: Once = Box::new(move || {
            let file = open(&floor)?;
            rustix::fs::flock(&file, FlockOperation::LockExclusive)?;
            Ok(())
        });
        let same = place.join("same");
        fs::create_dir(&same)?;
        let same = calls::of_an_acquire_and_a_release(same)?;
        let locks = LockManager::new(place.join("guard"))?;
        let guard: Once = Box::new(move || Ok(locks.acquire("lock")?.release()?));
        let mut all = vec![
            ("open, flock and close of a file", floor, Vec::new()),
            ("the file's system calls of a guard alone", same, Vec::new()),
            ("guard, native", guard, Vec::new()),
        ];
        for (name, profile, lock) in profiles() {
            let folder = place.join(name);
            all.push((name, stored(profile, &folder, lock)?, Vec::new()));
        }
        all.retain(|(name, ..)| plan.has(name));
        let turns = plan.rounds.div_ceil(AT_A_TIME);
        for turn in 0..turns {
            for (_, once, took) in &mut all {
                for _ in 0..AT_A_TIME {
                    let began = now_ns();
                    once()?;
                    // The first turns make folders and start threads.
                    if turn >= turns / 20 {
                        took.push(now_ns() - began);
                    }
                }
            }
        }
        println!("Taken and released, in µs:\n");
        println!("| what | p10 | median | p90 | p99 | rounds |\n|---|--:|--:|--:|--:|--:|");
        for (name, _, took) in all {
            row(name, took);
        }
        println!();
        Ok(())
    }

    /// The system calls that an acquire and a release of a guard make, without anything between them: what is
    /// left if the program itself takes no time.
    #[cfg(target_os = "linux")]
    mod calls {
        use super::{Once, Outcome};
        use nix::fcntl::{FcntlArg, fcntl};
        use nix::libc;
        use rustix::fs::{AtFlags, CWD, Mode, OFlags, StatxFlags, openat, statx};
        use std::os::fd::BorrowedFd;
        use std::path::PathBuf;

        const GUARD: i64 = 1 << 60;
        const PAGE_BYTES: usize = 2048;

        fn lock(file: BorrowedFd<'_>, kind: i32, first: i64, length: i64) -> Outcome<()> {
            let range = libc::flock {
                l_type: i16::try_from(kind)?,
                l_whence: 0,
                l_start: first,
                l_len: length,
                l_pid: 0,
            };
            fcntl(file, FcntlArg::F_OFD_SETLK(&range))?;
            Ok(())
        }

        pub(super) fn of_an_acquire_and_a_release(place: PathBuf) -> Outcome<Once> {
            let look = StatxFlags::TYPE | StatxFlags::MODE | StatxFlags::NLINK | StatxFlags::INO;
            let asked = look | StatxFlags::UID | StatxFlags::GID | StatxFlags::SIZE;
            let folder = openat(CWD, &place, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
            let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW;
            let flags = flags | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::NOATIME;
            let mut ticket = 0;
            let (mut pages, page) = (vec![0; 2 * PAGE_BYTES], vec![b'x'; PAGE_BYTES]);
            Ok(Box::new(move || {
                ticket += 1;
                statx(CWD, &place, AtFlags::empty(), asked)?;
                let file = openat(&folder, "lock", flags, Mode::RUSR | Mode::WUSR)?;
                let fd = std::os::fd::AsFd::as_fd(&file);
                lock(fd, libc::F_WRLCK, GUARD, 1)?;
                statx(&file, "", AtFlags::EMPTY_PATH, asked)?;
                rustix::io::pread(fd, &mut pages[..], 0)?;
                lock(fd, libc::F_WRLCK, GUARD + ticket, 1)?;
                rustix::io::pwrite(fd, &page, 0)?;
                lock(fd, libc::F_UNLCK, GUARD - 1, 2)?;
                lock(fd, libc::F_WRLCK, GUARD - 1, 2)?;
                statx(&folder, "lock", AtFlags::SYMLINK_NOFOLLOW, asked)?;
                rustix::io::pread(fd, &mut pages[..], 0)?;
                rustix::io::pwrite(fd, &page, PAGE_BYTES as u64)?;
                lock(fd, libc::F_UNLCK, GUARD - 1, 0)
            }))
        }
    }

    /// On other systems they are others.
    #[cfg(not(target_os = "linux"))]
    mod calls {
        use super::{Once, Outcome};
        use std::path::PathBuf;

        pub(super) fn of_an_acquire_and_a_release(_: PathBuf) -> Outcome<Once> {
            Ok(Box::new(|| Ok(())))
        }
    }

    fn open(path: &Path) -> Outcome<OwnedFd> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC;
        Ok(rustix::fs::openat(
            CWD,
            path,
            flags,
            Mode::RUSR | Mode::WUSR,
        )?)
    }

    fn profiles() -> [(&'static str, Box<dyn Profile>, &'static str); 5] {
        [
            ("store, native", Box::new(Native), "lock"),
            ("store, sprint", Box::new(Sprint::default()), "sprint"),
            ("store, resume", Box::new(Resume), "job-1"),
            ("store, session", Box::new(Session::default()), "42"),
            ("store, fleet", Box::new(Fleet), "app-prod"),
        ]
    }

    /// Takes and releases a lock by the store, as the command does.
    fn stored(profile: Box<dyn Profile>, folder: &Path, lock: &str) -> Outcome<Once> {
        fs::create_dir(folder)?;
        let here = Identity::current();
        let host = here.host.clone();
        let clock = SystemClock::new(host.boot_id.as_deref());
        let store = FileStore::with_profile(profile, folder, host, Box::new(ThreadSleeper));
        let name = LockName::new(lock)?;
        Ok(Box::new(move || {
            let now: Now = clock.now();
            let entered = store.enter(&name, request(&here, new_request_id()?), &now)?;
            let handle = entered.handle.ok_or("no claim")?;
            store.release(&*handle, &clock.now())?;
            Ok(())
        }))
    }

    fn request(here: &Identity, id: RequestId) -> Request {
        let fact = |key: &str, value: &str| (key.into(), value.into());
        Request {
            holder: Holder {
                request_id: id,
                actor: here.actor.clone(),
                process: Some(here.process),
                command: None,
                host: here.host.clone().into(),
                why: "measuring".to_owned(),
                facts: vec![
                    fact("intent", "measuring"),
                    fact("intent_version", "1.0.0"),
                    fact("owner", "bench"),
                ],
            },
            kind: Kind::Kernel,
            ttl_ms: 600_000,
            force: Force::No,
            patience: Patience::Queue,
            terms: Terms::default(),
        }
    }

    /// A party of two that contend for a lock.
    enum Contender {
        Flock(PathBuf),
        Guard(LockManager),
    }

    fn contender(kind: &str, folder: &Path) -> Outcome<Contender> {
        Ok(match kind {
            "flock" => Contender::Flock(folder.join("floor")),
            _ => Contender::Guard(LockManager::new(folder)?),
        })
    }

    impl Contender {
        /// When it took the lock, and when it began to release it, in nanoseconds.
        fn loops(&self, holds: usize, hold_us: u64) -> Outcome<Vec<(i64, i64)>> {
            let hold = Duration::from_micros(hold_us);
            let mut times = Vec::with_capacity(holds);
            let options = Options::new()
                .again(Again::Wait)
                .wait(Wait::For(Duration::from_secs(60)));
            for _ in 0..holds {
                match self {
                    Self::Flock(path) => {
                        let file = open(path)?;
                        rustix::fs::flock(&file, FlockOperation::LockExclusive)?;
                        let taken = now_ns();
                        nap(hold);
                        times.push((taken, now_ns()));
                    }
                    Self::Guard(locks) => {
                        let guard = locks.acquire_with("lock", &options)?;
                        let taken = now_ns();
                        nap(hold);
                        times.push((taken, now_ns()));
                        guard.release()?;
                    }
                }
                // The other one has the lock by then, and this one waits for it again.
                nap(hold / 2);
            }
            Ok(times)
        }
    }

    fn handed_over(plan: &Plan, place: &Path) -> Outcome<()> {
        println!(
            "From the call that releases to the waiter's return, a hold of {} µs asleep, in µs:\n",
            plan.hold_us
        );
        println!("| what | p10 | median | p90 | p99 | hand-overs |\n|---|--:|--:|--:|--:|--:|");
        for (name, kind, processes) in [
            ("flock, two threads", "flock", false),
            ("guards of one manager, two threads", "guard", false),
            ("flock, two processes", "flock", true),
            ("guards, two processes", "guard", true),
        ] {
            if !plan.has(name) {
                continue;
            }
            let folder = place.join(name);
            fs::create_dir(&folder)?;
            let times = if processes {
                in_processes(plan, kind, &folder)?
            } else {
                in_threads(plan, kind, &folder)?
            };
            row(name, between(times));
        }
        println!();
        Ok(())
    }

    /// The holds of both contenders.
    type Holds = [Vec<(i64, i64)>; 2];

    fn in_threads(plan: &Plan, kind: &str, folder: &Path) -> Outcome<Holds> {
        let contender = contender(kind, folder)?;
        let loops = || {
            let times = contender.loops(plan.holds, u64::try_from(plan.hold_us).unwrap_or(0));
            times.map_err(|error| error.to_string())
        };
        let both = thread::scope(|scope| {
            let threads = [(); 2].map(|()| scope.spawn(loops));
            threads.map(|thread| {
                thread
                    .join()
                    .unwrap_or_else(|_| Err("it panicked".to_owned()))
            })
        });
        let [one, other] = both;
        Ok([one?, other?])
    }

    fn in_processes(plan: &Plan, kind: &str, folder: &Path) -> Outcome<Holds> {
        let start = || {
            Command::new(env::current_exe()?)
                .args(["contend", kind])
                .arg(folder)
                .args([plan.holds.to_string(), plan.hold_us.to_string()])
                .stdout(Stdio::piped())
                .spawn()
        };
        let [one, other] = [start()?, start()?];
        let read = |child: std::process::Child| -> Outcome<Vec<(i64, i64)>> {
            let output = child.wait_with_output()?;
            let text = String::from_utf8(output.stdout)?;
            let times = text.lines().map(|line| {
                let (taken, released) = line.split_once(' ').ok_or("no time")?;
                Ok((taken.parse()?, released.parse()?))
            });
            times.collect()
        };
        Ok([read(one)?, read(other)?])
    }

    /// The time of each hand-over from one contender to the other.
    fn between(times: Holds) -> Vec<i64> {
        let mut all: Vec<(i64, i64, usize)> = Vec::new();
        for (who, times) in times.into_iter().enumerate() {
            all.extend(
                times
                    .into_iter()
                    .map(|(taken, released)| (taken, released, who)),
            );
        }
        all.sort_unstable();
        let handed = all.windows(2).filter_map(|pair| match pair {
            [(_, released, one), (taken, _, other)] if one != other => Some(taken - released),
            _ => None,
        });
        // The last holds of one contender have no other that waits.
        handed.collect()
    }
}

fn main() -> std::process::ExitCode {
    // What a test runner asks of every target; this one has no tests.
    if std::env::args().any(|argument| argument == "--list") {
        return std::process::ExitCode::SUCCESS;
    }
    #[cfg(unix)]
    if let Err(error) = measured::run() {
        eprintln!("guard: {error}");
        return std::process::ExitCode::FAILURE;
    }
    std::process::ExitCode::SUCCESS
}
