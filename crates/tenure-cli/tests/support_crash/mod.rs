//! What the tests share that kill the program: a folder of locks, calls of the real binary, a
//! witness that knows nothing of the locks, and numbers that can be drawn again.
//!
//! Every wait in here has a bound and is a wait for something (a line, the end of a process).
//! Whatever fails is answered as a sentence, so that a test can go on and report all of it.
#![allow(
    dead_code,
    reason = "each of the tests that include this uses its own part"
)]

pub(crate) mod witness;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};
use std::fmt;
use std::io::{Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tempfile::TempDir;
use tenure_os::clock::instant;

/// The lock that all callers want.
pub(crate) const NAME: &str = "prize";

/// How long anything may take that takes milliseconds. Longer than the program's own patience
/// with a process that is in the middle of a change (5 s), so that its own answer is seen.
pub(crate) const SOON: Duration = Duration::from_secs(20);

/// Why something is not as it has to be.
pub(crate) type Fault = String;

/// Answers with a sentence unless the condition holds.
#[macro_export]
macro_rules! ensure {
    ($holds:expr, $($why:tt)+) => {
        if !$holds {
            return Err(format!($($why)+));
        }
    };
}

/// Fails with a sentence if a tool that the test stands on is not there.
pub(crate) fn need(tool: &str) {
    let found = std::env::var_os("PATH")
        .is_some_and(|path| std::env::split_paths(&path).any(|folder| folder.join(tool).is_file()));
    assert!(
        found,
        "{tool} is missing and this test is nothing without it; run scripts/test, which installs it"
    );
}

/// Whether every crash point and every failure is tried: `TENURE_CRASH_POINTS=long`.
pub(crate) fn is_long() -> bool {
    std::env::var_os("TENURE_CRASH_POINTS").is_some_and(|value| value == "long")
}

/// Tries all of these, two at once. What came of each, in their order and with its number, and what went
/// wrong.
pub(crate) fn try_each<T: Sync, R: Send>(
    all: &[T],
    try_one: impl Fn(&T) -> Result<R, Fault> + Sync,
) -> (Vec<(usize, R)>, Vec<Fault>) {
    const WORKERS: usize = 2;
    let index = AtomicUsize::new(0);
    let done = Mutex::new((Vec::new(), Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..WORKERS {
            scope.spawn(|| {
                loop {
                    let at = index.fetch_add(1, Ordering::Relaxed);
                    let Some(one) = all.get(at) else { break };
                    let tried = try_one(one);
                    let mut done = done.lock().expect("no panic");
                    match tried {
                        Ok(outcome) => done.0.push((at, outcome)),
                        Err(fault) => done.1.push(fault),
                    }
                }
            });
        }
    });
    let (mut outcomes, faults) = done.into_inner().expect("no panic");
    outcomes.sort_by_key(|(at, _)| *at);
    (outcomes, faults)
}

/// A folder of locks, and the witness beside it.
pub(crate) struct Site {
    root: TempDir,
}

impl Site {
    pub(crate) fn new() -> Self {
        Self {
            root: TempDir::new().expect("a folder for the test"),
        }
    }

    /// The folder of locks. It does not exist before the first call that makes it.
    pub(crate) fn locks(&self) -> PathBuf {
        self.root.path().join("locks")
    }

    pub(crate) fn path(&self, file: &str) -> PathBuf {
        self.root.path().join(file)
    }

    /// The file that a command at work keeps locked ([`witness`]), whatever the locks' own files say.
    pub(crate) fn witness(&self) -> PathBuf {
        self.path("witness")
    }

    /// A new site whose locks are a copy of this one's.
    pub(crate) fn copy(&self) -> Self {
        let copy = Self::new();
        if self.locks().is_dir() {
            use std::os::unix::fs::DirBuilderExt;
            std::fs::DirBuilder::new()
                .mode(0o700)
                .create(copy.locks())
                .expect("a folder of locks");
            for file in self.files() {
                std::fs::copy(self.locks().join(&file), copy.locks().join(&file))
                    .expect("a copy of a lock file");
            }
        }
        copy
    }

    /// The names of the files in the folder of locks. The audit beside them is none of them.
    pub(crate) fn files(&self) -> Vec<String> {
        let mut names: Vec<String> = std::fs::read_dir(self.locks())
            .map(|entries| {
                entries
                    .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
                    .filter(|name| name != "audit")
                    .collect()
            })
            .unwrap_or_default();
        names.sort();
        names
    }

    /// A call of the binary, undisturbed by whatever surrounds the test.
    pub(crate) fn tenure<'a>(&self, words: impl IntoIterator<Item = &'a str>) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tenure"));
        command.args(words);
        self.settle(command)
    }

    /// A call of the binary under another program, which gets the binary's path and `words` as its last ones.
    pub(crate) fn tenure_under<'a>(
        &self,
        mut outer: Command,
        words: impl IntoIterator<Item = &'a str>,
    ) -> Command {
        outer.arg(env!("CARGO_BIN_EXE_tenure")).args(words);
        self.settle(outer)
    }

    fn settle(&self, mut command: Command) -> Command {
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("TENURE_") {
                command.env_remove(name);
            }
        }
        command
            .env("TENURE_DIR", self.locks())
            // The steps of a line are the same for each event: those of takeovers and of published records are walked.
            .env("TENURE_AUDIT", "incidents")
            .current_dir(self.root.path())
            .stdin(Stdio::null());
        command
    }

    /// Calls the binary and waits for its answer.
    pub(crate) fn call<'a>(
        &self,
        words: impl IntoIterator<Item = &'a str>,
    ) -> Result<Answer, Fault> {
        Process::start(self.tenure(words)).answer()
    }

    /// The lock as `check` shows it.
    pub(crate) fn check(&self) -> Result<Standing, Fault> {
        Standing::of(&self.call(["check", NAME, "--output", "json"])?)
    }
}

/// What a call answered.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: ExitStatus,
    pub(crate) out: String,
    pub(crate) errors: String,
    pub(crate) took: Duration,
}

impl Answer {
    pub(crate) fn is(&self, code: i32) -> bool {
        self.status.code() == Some(code)
    }
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} after {:?}, stdout {:?}, stderr {:?}",
            self.status, self.took, self.out, self.errors
        )
    }
}

/// The part of `check --output json` that the tests look at.
#[derive(Debug)]
pub(crate) struct Standing {
    pub(crate) code: i32,
    /// `free`, `held`, `stale`, `unreadable` or `unknown`.
    pub(crate) word: String,
    /// The request id of the holder, dead or alive.
    pub(crate) holder: Option<String>,
    pub(crate) command_pid: Option<u64>,
    pub(crate) token: Option<u64>,
    pub(crate) queue: Vec<String>,
}

impl Standing {
    fn of(answer: &Answer) -> Result<Self, Fault> {
        let document: serde_json::Value = serde_json::from_str(&answer.out)
            .map_err(|error| format!("check printed no JSON ({error}): {answer}"))?;
        // What stands in the way is the context of the refusal.
        let view = match &document["data"] {
            serde_json::Value::Null => &document["error"]["context"],
            data => data,
        };
        let text = |value: &serde_json::Value| value.as_str().map(str::to_owned);
        Ok(Self {
            code: answer.status.code().unwrap_or(-1),
            word: text(&view["standing"]).unwrap_or_default(),
            holder: text(&view["holder"]["request_id"]),
            command_pid: view["holder"]["command_pid"].as_u64(),
            token: view["holder"]["token"].as_u64(),
            queue: view["queue"]
                .as_array()
                .map(|queue| {
                    queue
                        .iter()
                        // A kept place blocks no caller.
                        .filter(|waiting| waiting["away"] != true)
                        .filter_map(|waiting| text(&waiting["request_id"]))
                        .collect()
                })
                .unwrap_or_default(),
        })
    }

    /// No live process holds it.
    pub(crate) fn is_free(&self) -> bool {
        self.code == 0 && matches!(self.word.as_str(), "free" | "stale")
    }

    /// A live process holds it. The exit code is 4 then, or 0 for the holder itself.
    pub(crate) fn is_held(&self) -> bool {
        self.word == "held"
    }

    /// Whether this request has the lock.
    pub(crate) fn is_held_by(&self, id: &str) -> bool {
        self.is_held() && self.holder.as_deref() == Some(id)
    }
}

/// What a command that began to work said of itself.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Started {
    pub(crate) token: u64,
    pub(crate) supervisor: u32,
    pub(crate) command: u32,
}

impl Started {
    /// Reads `TOKEN SUPERVISOR COMMAND`.
    pub(crate) fn of(line: Option<String>) -> Result<Self, Fault> {
        let line = line.ok_or("the command did not start")?;
        ensure!(line != "refused", "the command started beside another one");
        let mut words = line.split(' ');
        let mut next = || words.next().unwrap_or_default();
        match (next().parse(), next().parse(), next().parse()) {
            (Ok(token), Ok(supervisor), Ok(command)) => Ok(Self {
                token,
                supervisor,
                command,
            }),
            _ => Err(format!("the command said {line:?}")),
        }
    }
}

/// A process that the test started, with both its outputs. It does not outlive this value.
pub(crate) struct Process {
    child: Child,
    began: Instant,
    status: Option<ExitStatus>,
    /// What was read of its messages.
    said: String,
}

impl Process {
    pub(crate) fn start(mut command: Command) -> Self {
        let child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("{command:?} does not start: {error}"));
        Self {
            child,
            began: instant(),
            status: None,
            said: String::new(),
        }
    }

    /// Starts a process with an input that stays open until [`Self::end_input`].
    pub(crate) fn start_with_input(mut command: Command) -> Self {
        command.stdin(Stdio::piped());
        Self::start(command)
    }

    pub(crate) fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// Takes the input out, to write to it or to keep it for longer than the process.
    pub(crate) fn take_input(&mut self) -> Option<ChildStdin> {
        self.child.stdin.take()
    }

    /// Takes the output out, to read it while others hold the process.
    pub(crate) fn take_output(&mut self) -> Option<ChildStdout> {
        self.child.stdout.take()
    }

    /// Writes one line to its input.
    pub(crate) fn tell(&mut self, words: &str) -> Result<(), Fault> {
        self.child
            .stdin
            .as_mut()
            .ok_or("its input is closed")?
            .write_all(format!("{words}\n").as_bytes())
            .map_err(|error| format!("it does not listen to {words:?}: {error}"))
    }

    /// A descriptor that can be read once it has ended.
    pub(crate) fn end(&self) -> OwnedFd {
        pidfd_open(self.pid(), PidfdFlags::empty()).expect("a child that was not collected")
    }

    pub(crate) fn end_input(&mut self) {
        drop(self.child.stdin.take());
    }

    /// The next line of its output; `None` at the end of it.
    pub(crate) fn line(&mut self) -> Result<Option<String>, Fault> {
        match self.child.stdout.as_mut() {
            Some(out) => line(out, SOON),
            None => Ok(None),
        }
    }

    /// Whether its output stays silent for so long.
    pub(crate) fn is_silent_for(&self, pause: Duration) -> bool {
        self.child
            .stdout
            .as_ref()
            .is_none_or(|out| !readable(out.as_fd(), pause))
    }

    /// Reads its messages up to the one with these words. False if they end without it.
    pub(crate) fn says(&mut self, words: &str) -> Result<bool, Fault> {
        let Some(errors) = self.child.stderr.as_mut() else {
            return Ok(false);
        };
        while let Some(said) = line(errors, SOON)? {
            self.said.push_str(&said);
            self.said.push('\n');
            if said.contains(words) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Whether it ends within `limit`. Leaves it uncollected: its number stays its own.
    pub(crate) fn ends_within(&self, limit: Duration) -> bool {
        self.status.is_some() || readable(self.end().as_fd(), limit)
    }

    /// Waits for its end.
    pub(crate) fn wait(&mut self) -> Result<ExitStatus, Fault> {
        if let Some(status) = self.status {
            return Ok(status);
        }
        ensure!(
            self.ends_within(SOON),
            "PID {} did not end within {SOON:?}",
            self.child.id()
        );
        let status = self.child.wait().map_err(|error| error.to_string())?;
        self.status = Some(status);
        Ok(status)
    }

    /// Waits for its end and reads what is left of its outputs. Only for a process of which
    /// nothing stays behind that has them open as well.
    pub(crate) fn answer(mut self) -> Result<Answer, Fault> {
        let status = self.wait()?;
        let took = instant().saturating_duration_since(self.began);
        let mut out = Vec::new();
        let mut errors = std::mem::take(&mut self.said).into_bytes();
        if let Some(pipe) = &mut self.child.stdout {
            pipe.read_to_end(&mut out)
                .map_err(|error| error.to_string())?;
        }
        if let Some(pipe) = &mut self.child.stderr {
            pipe.read_to_end(&mut errors)
                .map_err(|error| error.to_string())?;
        }
        Ok(Answer {
            status,
            out: String::from_utf8_lossy(&out).into_owned(),
            errors: String::from_utf8_lossy(&errors).into_owned(),
            took,
        })
    }

    pub(crate) fn kill(&self, signal: Signal) {
        if self.status.is_none() {
            // Not collected yet, so the number is its own.
            let _ = kill_process(self.pid(), signal);
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if self.status.is_none() {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// Whether a descriptor has changed, or its other end is gone, within `limit`.
pub(crate) fn readable(fd: BorrowedFd<'_>, limit: Duration) -> bool {
    let end = instant() + limit;
    loop {
        let rest = end.saturating_duration_since(instant());
        let rest = Timespec::try_from(rest).expect("a short time");
        let mut fds = [PollFd::from_borrowed_fd(fd, PollFlags::IN)];
        match poll(&mut fds, Some(&rest)) {
            Ok(0) => return false,
            Ok(_) => return true,
            Err(rustix::io::Errno::INTR) => {}
            Err(errno) => panic!("poll: {errno}"),
        }
    }
}

/// The next line; `None` at the end of the input.
pub(crate) fn line(
    input: &mut (impl Read + AsFd),
    limit: Duration,
) -> Result<Option<String>, Fault> {
    let mut bytes = Vec::new();
    loop {
        ensure!(
            readable(input.as_fd(), limit),
            "nothing was said for {limit:?} after {:?}",
            String::from_utf8_lossy(&bytes)
        );
        let mut byte = [0];
        match input.read(&mut byte).map_err(|error| error.to_string())? {
            0 if bytes.is_empty() => return Ok(None),
            0 => break,
            _ if byte == *b"\n" => break,
            _ => bytes.extend(byte),
        }
    }
    Ok(Some(String::from_utf8_lossy(&bytes).into_owned()))
}

/// The state letter, parent and group of a process.
pub(crate) fn stat_of(pid: u32) -> Option<(char, u32, u32)> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, rest) = stat.rsplit_once(')')?;
    let mut words = rest.split_ascii_whitespace();
    Some((
        words.next()?.chars().next()?,
        words.next()?.parse().ok()?,
        words.next()?.parse().ok()?,
    ))
}

/// The children of a process.
pub(crate) fn children_of(pid: u32) -> Vec<u32> {
    std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"))
        .map(|text| {
            text.split_ascii_whitespace()
                .filter_map(|word| word.parse().ok())
                .collect()
        })
        .unwrap_or_default()
}

/// Looks again and again until something is so, for changes that no kernel reports.
pub(crate) fn eventually(what: &str, mut is_so: impl FnMut() -> bool) -> Result<(), Fault> {
    let end = instant() + SOON;
    while !is_so() {
        ensure!(instant() < end, "{what}: not within {SOON:?}");
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}

/// Whether the process was ended by `SIGKILL`.
pub(crate) fn was_killed(status: ExitStatus) -> bool {
    status.signal() == Some(Signal::KILL.as_raw())
}

/// `path` as a word of a command line.
pub(crate) fn word(path: &Path) -> &str {
    path.to_str().expect("a path that is text")
}
