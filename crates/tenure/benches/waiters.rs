//! Measures what holders and waiters cost a program: threads, descriptors, memory, and the processor while nothing happens.
//! Another process holds each lock in a folder that this one waits for.
//!
//! Output: a Markdown table. `cargo bench -p tenure --bench waiters -- COUNT` takes another number than 10,000 of waiters and of
//! locks; 10,000 locks need some 20,010 descriptors. It asserts no time, and leaves judging the figures to its reader. Over servers, `tests/etcd/waits.rs` measures the same.

#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "the report is the product of a benchmark"
)]

#[cfg(target_os = "linux")]
mod measured {
    use rustix::process::{Resource, getrlimit, setrlimit};
    use std::error::Error;
    use std::io::{BufRead as _, BufReader, Read as _, Write as _};
    use std::path::Path;
    use std::process::{Child, Command, Stdio};
    use std::time::Duration;
    use tenure::guard::{Again, LockManager, Options, Wait};
    use tenure_os::clock::{instant, since};

    pub(super) type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

    /// Has a copy of this program hold so many locks.
    const HOLDS: &str = "--holds";

    /// What this process uses.
    struct Used {
        threads: usize,
        files: usize,
        kib: usize,
        ticks: usize,
    }

    impl Used {
        fn now() -> Outcome<Self> {
            let count = |path: &str| std::fs::read_dir(path).map(Iterator::count);
            let status = std::fs::read_to_string("/proc/self/status")?;
            let kib = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
            let kib = kib.and_then(|line| line.split_whitespace().next());
            let stat = std::fs::read_to_string("/proc/self/stat")?;
            // User and system time, the 14th and 15th field; the name in brackets is the second.
            let fields = stat.rsplit(')').next().unwrap_or_default();
            let fields = fields.split_whitespace().skip(11).take(2);
            Ok(Self {
                threads: count("/proc/self/task")?,
                files: count("/proc/self/fd")?,
                kib: kib.unwrap_or_default().parse()?,
                ticks: fields.filter_map(|field| field.parse::<usize>().ok()).sum(),
            })
        }

        fn row(&self, what: &str, count: usize, before: &Self, idle: &str) {
            let more = |now: usize, before: usize| now.saturating_sub(before);
            println!(
                "| {what} | {} | {} | {} | {idle} |",
                more(self.threads, before.threads),
                more(self.files, before.files),
                more(self.kib, before.kib) * 1_024 / count.max(1)
            );
        }
    }

    /// How much of a processor this process takes while it rests, in percent.
    fn idle() -> Outcome<String> {
        let (began, before) = (instant(), Used::now()?.ticks);
        std::thread::sleep(Duration::from_secs(5));
        let ticks = u32::try_from(Used::now()?.ticks - before)?;
        // A tick is a hundredth of a second.
        Ok(format!(
            "{:.1} %",
            f64::from(ticks) / since(began).as_secs_f64()
        ))
    }

    fn holder(folder: &Path, locks: usize) -> Outcome<Child> {
        let mut child = Command::new(std::env::current_exe()?)
            .args([HOLDS, &locks.to_string()])
            .arg(folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let output = child.stdout.as_mut().ok_or("no output")?;
        let held = BufReader::new(output).lines().next();
        held.ok_or("the holder has ended")??;
        Ok(child)
    }

    fn holds(folder: &str, locks: usize) -> Outcome<()> {
        let manager = LockManager::new(folder)?;
        let guards = (0..locks).map(|number| manager.acquire(&format!("lock-{number}")));
        let guards = guards.collect::<Result<Vec<_>, _>>()?;
        println!("held");
        std::io::stdout().flush()?;
        std::io::stdin().read_to_end(&mut Vec::new())?;
        drop(guards);
        Ok(())
    }

    /// Lets so many tasks wait, in turns for so many locks.
    fn waits(runtime: &tokio::runtime::Runtime, waiters: usize, locks: usize) -> Outcome<()> {
        let place = tempfile::tempdir()?;
        let mut holder = holder(place.path(), locks)?;
        let manager = LockManager::new(place.path())?;
        let before = Used::now()?;
        let tasks: Vec<_> = (0..waiters)
            .map(|number| {
                let manager = manager.clone();
                runtime.spawn(async move {
                    let options = Options::new().wait(Wait::Forever).again(Again::Wait);
                    let name = format!("lock-{}", number % locks);
                    drop(manager.acquire_async(&name, &options).await?);
                    Outcome::Ok(())
                })
            })
            .collect();
        // All of them have come to rest once a second passes without more.
        let mut used = Used::now()?;
        loop {
            std::thread::sleep(Duration::from_secs(3));
            let now = Used::now()?;
            let rests = now.files == used.files && now.threads == used.threads;
            used = now;
            if rests {
                break;
            }
        }
        used.row(
            &format!("{waiters} waiters, {locks} locks"),
            waiters,
            &before,
            &idle()?,
        );
        drop(holder.stdin.take());
        let began = instant();
        runtime.block_on(async {
            for task in tasks {
                task.await??;
            }
            Outcome::Ok(())
        })?;
        eprintln!(
            "{waiters} waiters, {locks} locks: all had their turn after {:.1?}",
            since(began)
        );
        holder.wait()?;
        Ok(())
    }

    fn held(locks: usize) -> Outcome<()> {
        let place = tempfile::tempdir()?;
        let manager = LockManager::new(place.path())?;
        drop(manager.acquire("before")?);
        let before = Used::now()?;
        let guards = (0..locks).map(|number| manager.acquire(&format!("lock-{number}")));
        let guards = guards.collect::<Result<Vec<_>, _>>()?;
        Used::now()?.row(&format!("{locks} holders"), locks, &before, &idle()?);
        drop(guards);
        Ok(())
    }

    pub(super) fn run() -> Outcome<()> {
        let mut limit = getrlimit(Resource::Nofile);
        limit.current = limit.maximum;
        setrlimit(Resource::Nofile, limit)?;
        let arguments: Vec<String> = std::env::args().skip(1).collect();
        if let [holds_them, locks, folder] = &arguments[..]
            && holds_them == HOLDS
        {
            return holds(folder, locks.parse()?);
        }
        let count = arguments.iter().find_map(|count| count.parse().ok());
        let count: usize = count.unwrap_or(10_000);
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .build()?;
        println!(
            "| | threads | descriptors | bytes each | processor at rest |\n|---|--:|--:|--:|--:|"
        );
        held(count)?;
        waits(&runtime, count, 1)?;
        waits(&runtime, count, count)
    }
}

#[cfg(target_os = "linux")]
fn main() -> measured::Outcome<()> {
    measured::run()
}

#[cfg(not(target_os = "linux"))]
fn main() {
    eprintln!("this benchmark needs Linux");
}
