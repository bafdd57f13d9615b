//! Measures what a lock costs as something around it grows: processes that wait, locks in the folder, guards
//! that one process holds, and the audit. Each curve has a peer or a floor beside it, measured in turns.
//!
//! Output: one line for each point, `curve TAB size TAB who TAB microseconds`, the median of its rounds.
//! `scripts/growth` draws them. Environment: `TENURE_BENCH_INSTALL` names the binary, `TMPDIR` chooses the file
//! system. It asserts no time, and leaves judging the figures to its reader.

#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "the report is the product of a benchmark"
)]

#[cfg(target_os = "linux")]
mod measured {
    use rustix::fs::{FlockOperation, flock};
    use rustix::process::{Resource, getrlimit, setrlimit};
    use std::env;
    use std::error::Error;
    use std::fs::{self, File, OpenOptions};
    use std::io::{BufRead as _, BufReader, Seek as _, SeekFrom, Write as _};
    use std::path::{Path, PathBuf};
    use std::process::{Child, Command, Stdio};
    use std::thread;
    use std::time::Duration;
    use tenure::guard::LockManager;
    use tenure_os::clock::{instant, since};

    pub(super) type Outcome<T> = Result<T, Box<dyn Error>>;

    /// What was measured of one size: of whom, and its microseconds.
    type Points = Vec<(&'static str, f64)>;

    const USAGE: &str = "\
usage: growth [--curve NAME] [--least N] [--most N] [--rounds N]
  --curve NAME  measures only this curve: waiters, locks, guards or audit
  --least N     leaves out sizes below N
  --most N      leaves out sizes above N (waiters, locks and guards in number, the audit in bytes)
  --rounds N    how often each call is measured; the default is 60, and a twentieth of it for crowds and lists";

    const WAITERS: [usize; 7] = [2, 10, 50, 200, 500, 1_000, 2_000];
    const LOCKS: [usize; 5] = [1, 100, 1_000, 10_000, 100_000];
    const GUARDS: [usize; 5] = [1, 10, 100, 1_000, 10_000];
    /// Bytes of the audit.
    const AUDITS: [usize; 5] = [0, 1 << 20, 100 << 20, 1 << 30, 10 << 30];

    /// How long a crowd may take until all of it waits.
    const PATIENCE: Duration = Duration::from_secs(180);

    /// What is measured, how often, and where.
    struct Bench {
        curve: Option<String>,
        least: usize,
        most: usize,
        rounds: usize,
        tenure: PathBuf,
        place: tempfile::TempDir,
    }

    pub(super) fn run() -> Outcome<()> {
        let mut bench = Bench {
            curve: None,
            least: 0,
            most: usize::MAX,
            rounds: 60,
            tenure: env::var_os("TENURE_BENCH_INSTALL")
                .ok_or("TENURE_BENCH_INSTALL has to name the binary")?
                .into(),
            place: tempfile::Builder::new().prefix("tenure-bench-").tempdir()?,
        };
        let mut arguments = env::args().skip(1);
        while let Some(argument) = arguments.next() {
            let mut value = || arguments.next().ok_or(USAGE);
            match argument.as_str() {
                "--bench" => {} // cargo adds it
                "--curve" => bench.curve = Some(value()?),
                "--least" => bench.least = value()?.parse()?,
                "--most" => bench.most = value()?.parse()?,
                "--rounds" => bench.rounds = value()?.parse()?,
                _ => return Err(USAGE.into()),
            }
        }
        // No configuration file above the place of the call may be found and read.
        env::set_current_dir(bench.place.path())?;
        bench.curve("waiters", &WAITERS, Bench::waiters)?;
        bench.curve("locks", &LOCKS, Bench::locks)?;
        bench.curve("guards", &GUARDS, Bench::guards)?;
        bench.curve("audit", &AUDITS, Bench::audit)
    }

    impl Bench {
        fn curve(
            &self,
            name: &str,
            sizes: &[usize],
            point: fn(&Self, &Path, usize) -> Outcome<Points>,
        ) -> Outcome<()> {
            if self.curve.as_deref().is_some_and(|wanted| wanted != name) {
                return Ok(());
            }
            let sizes = sizes.iter().copied();
            for size in sizes.filter(|size| (self.least..=self.most).contains(size)) {
                let folder = self.place.path().join(format!("{name}-{size}"));
                fs::create_dir(&folder)?;
                for (who, micros) in point(self, &folder, size)? {
                    println!("{name}\t{size}\t{who}\t{micros:.2}");
                }
                fs::remove_dir_all(&folder)?;
            }
            Ok(())
        }

        fn command(&self, folder: &Path, words: &[&str]) -> Command {
            let mut command = Command::new(&self.tenure);
            command.args(words).env("TENURE_DIR", folder);
            bare(command, folder)
        }

        /// Lets so many processes wait for one lock, each of which holds it for as long as `true` takes.
        /// What a hold costs, from the release by the first holder to the end of the last process.
        fn waiters(&self, folder: &Path, size: usize) -> Outcome<Points> {
            let peer = folder.join("peer");
            let peer = peer.to_str().ok_or("a folder without a name")?;
            let ours: &dyn Fn(&[&str]) -> Command = &|work| {
                self.command(
                    folder,
                    &[&["run", "x", "--wait", "10m", "--"], work].concat(),
                )
            };
            let theirs: &dyn Fn(&[&str]) -> Command = &|work| {
                let mut command = Command::new("flock");
                command.arg(peer).args(work);
                bare(command, folder)
            };
            let rounds = (self.rounds / 20).max(1);
            let mut times = [Vec::new(), Vec::new()];
            for _ in 0..rounds {
                for (call, times) in [ours, theirs].into_iter().zip(&mut times) {
                    times.push(crowd(call, size)?);
                }
            }
            let [ours, theirs] = times.map(median);
            Ok(vec![("tenure run", ours), ("flock(1)", theirs)])
        }

        /// `run` and `list` in a folder with so many locks.
        fn locks(&self, folder: &Path, size: usize) -> Outcome<Points> {
            silently(&mut self.command(folder, &["run", "job-0", "--", "true"]))?;
            let bytes = fs::read(folder.join("job-0.tenure"))?;
            for number in 1..size {
                fs::write(folder.join(format!("job-{number}.tenure")), &bytes)?;
            }
            let peer = folder.join("peer");
            let mut times = [Vec::new(), Vec::new()];
            for _ in 0..self.rounds {
                times[0].push(timed(|| {
                    silently(&mut self.command(folder, &["run", "job-0", "--", "true"]))
                })?);
                times[1].push(timed(|| {
                    let mut command = Command::new("flock");
                    command.arg(&peer).arg("true");
                    silently(&mut bare(command, folder))
                })?);
            }
            let mut lists = [Vec::new(), Vec::new()];
            for _ in 0..(self.rounds / 20).max(1) {
                lists[0].push(timed(|| {
                    silently(&mut self.command(folder, &["list", "--all"]))
                })?);
                lists[1].push(timed(|| read_all(folder))?);
            }
            let [run, flock] = times.map(median);
            let [list, loop_] = lists.map(median);
            Ok(vec![
                ("tenure run", run),
                ("flock(1)", flock),
                ("tenure list --all", list),
                ("a loop that reads the files", loop_),
            ])
        }

        /// What it costs to take and release one more guard, while a process holds so many.
        fn guards(&self, folder: &Path, size: usize) -> Outcome<Points> {
            let mut files = getrlimit(Resource::Nofile);
            files.current = files.maximum;
            setrlimit(Resource::Nofile, files)?;
            let rounds = self.rounds * 10;
            let manager = LockManager::new(folder)?;
            let held = (0..size)
                .map(|number| manager.acquire(&format!("held-{number}")))
                .collect::<Result<Vec<_>, _>>()?;
            let mut ours = Vec::new();
            for _ in 0..rounds {
                ours.push(timed(|| Ok(manager.acquire("one-more")?.release()?))?);
            }
            for guard in held {
                guard.release()?;
            }
            let locked = |number: usize| -> Outcome<File> {
                let file = OpenOptions::new()
                    .create(true)
                    .truncate(false)
                    .write(true)
                    .open(folder.join(format!("peer-{number}")))?;
                flock(&file, FlockOperation::LockExclusive)?;
                Ok(file)
            };
            let held = (0..size).map(locked).collect::<Outcome<Vec<_>>>()?;
            let mut theirs = Vec::new();
            for _ in 0..rounds {
                theirs.push(timed(|| locked(size).map(drop))?);
            }
            drop(held);
            Ok(vec![
                ("acquire and release", median(ours)),
                ("open, flock(2), close", median(theirs)),
            ])
        }

        /// `run` that appends to an audit of so many bytes. All but its last line is a hole of the file: who
        /// appends reads none of it.
        fn audit(&self, folder: &Path, size: usize) -> Outcome<Points> {
            let audit = folder.join("audit");
            let call = |words: &[&str]| {
                let mut command = self.command(folder, words);
                command.env("TENURE_AUDIT_DIR", &audit);
                command
            };
            let run = ["run", "x", "--", "true"];
            silently(&mut call(&run))?;
            let mut file = OpenOptions::new()
                .read(true)
                .write(true)
                .open(audit.join("audit.jsonl"))?;
            let line = BufReader::new(&file)
                .lines()
                .next()
                .ok_or("an audit without a line")??;
            if size > 0 {
                file.seek(SeekFrom::Start(u64::try_from(size)?))?;
                writeln!(file, "\n{line}")?;
            }
            let peer = folder.join("peer");
            let plain = File::create(&peer)?;
            plain.set_len(u64::try_from(size)?)?;
            let mut times = [Vec::new(), Vec::new(), Vec::new()];
            for _ in 0..self.rounds {
                times[0].push(timed(|| silently(&mut call(&run)))?);
                times[1].push(timed(|| silently(&mut self.command(folder, &run)))?);
                times[2].push(timed(|| {
                    let mut shell = Command::new("sh");
                    shell
                        .args(["-c", "echo \"$1\" >>\"$2\"", "sh", &line])
                        .arg(&peer);
                    silently(&mut bare(shell, folder))
                })?);
            }
            let [audited, plain, shell] = times.map(median);
            Ok(vec![
                ("tenure run with an audit", audited),
                ("tenure run without one", plain),
                ("sh appends one line", shell),
            ])
        }
    }

    /// With nothing of the caller's surroundings but the path.
    fn bare(mut command: Command, home: &Path) -> Command {
        command
            .env("HOME", home)
            .env("LANG", "C")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        command
    }

    fn silently(command: &mut Command) -> Outcome<()> {
        let status = command.status()?;
        if status.success() {
            return Ok(());
        }
        Err(format!("{command:?} ended with {status}").into())
    }

    /// Microseconds of one hold in a crowd of so many that wait behind one holder.
    fn crowd(call: &dyn Fn(&[&str]) -> Command, size: usize) -> Outcome<f64> {
        let mut holder = call(&["sh", "-c", "echo held; read -r end"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let told = holder.stdout.take().ok_or("a holder without an output")?;
        BufReader::new(told).read_line(&mut String::new())?;
        let mut waiting = (0..size)
            .map(|_| call(&["true"]).spawn())
            .collect::<Result<Vec<_>, _>>()?;
        let began = instant();
        while !waiting.iter().all(sleeps_for_a_lock) {
            if since(began) > PATIENCE {
                return Err("not all processes came to wait".into());
            }
            thread::sleep(Duration::from_millis(50));
        }
        let began = instant();
        drop(holder.stdin.take());
        for process in &mut waiting {
            let status = process.wait()?;
            if !status.success() {
                return Err(format!("a process that waited ended with {status}").into());
            }
        }
        let took = since(began);
        holder.wait()?;
        let holds = u32::try_from(size)?;
        Ok((took / holds).as_secs_f64() * 1e6)
    }

    /// If a process sleeps in one of the kernel's calls for locks of files.
    fn sleeps_for_a_lock(process: &Child) -> bool {
        fs::read_to_string(format!("/proc/{}/wchan", process.id()))
            .is_ok_and(|place| place.contains("lock") || place.contains("setlk"))
    }

    fn read_all(folder: &Path) -> Outcome<()> {
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            if entry.file_type()?.is_file() {
                std::hint::black_box(fs::read(entry.path())?);
            }
        }
        Ok(())
    }

    /// How long something takes, in microseconds.
    fn timed(action: impl FnOnce() -> Outcome<()>) -> Outcome<f64> {
        let began = instant();
        action()?;
        Ok(since(began).as_secs_f64() * 1e6)
    }

    /// The median; the first one warms up and does not count.
    fn median(mut times: Vec<f64>) -> f64 {
        if times.len() > 1 {
            times.remove(0);
        }
        times.sort_by(f64::total_cmp);
        times.get(times.len() / 2).copied().unwrap_or_default()
    }
}

fn main() -> std::process::ExitCode {
    // What a test runner asks of every target; this one has no tests.
    if std::env::args().any(|argument| argument == "--list") {
        return std::process::ExitCode::SUCCESS;
    }
    #[cfg(target_os = "linux")]
    if let Err(error) = measured::run() {
        eprintln!("growth: {error}");
        return std::process::ExitCode::FAILURE;
    }
    std::process::ExitCode::SUCCESS
}
