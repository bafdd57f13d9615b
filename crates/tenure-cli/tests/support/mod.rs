//! What the tests of the binary share: a folder of its own for every test, the program started
//! with a known environment, commands that last until the test lets them end, and waiting for a
//! condition instead of for a time.
#![allow(
    dead_code,
    reason = "every test binary has this module and each uses another part of it"
)]

pub(crate) mod standstill;
pub(crate) mod transcript;

use rustix::process::{Pid, Signal};
use serde_json::Value;
use std::ffi::OsStr;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{
    Child, ChildStderr, ChildStdin, ChildStdout, Command, ExitStatus, Output, Stdio,
};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant, SystemTime};
use tempfile::TempDir;
use tenure_os::clock::instant;

/// How long anything may take that has to happen at all. Generous: a machine under load is slow,
/// and a test that fails here has waited for something that never came.
pub(crate) const BOUND: Duration = Duration::from_secs(30);

/// The program under test.
pub(crate) const TENURE: &str = env!("CARGO_BIN_EXE_tenure");

/// A folder of one test's own: the locks in `locks/`, everything else beside it.
pub(crate) struct Scene {
    folder: TempDir,
}

impl Scene {
    pub(crate) fn new() -> Self {
        let folder = tempfile::Builder::new()
            .prefix("tenure-")
            .tempdir()
            .expect("a folder for the test");
        Self { folder }
    }

    /// The test's folder.
    pub(crate) fn root(&self) -> &Path {
        self.folder.path()
    }

    /// A place in the test's folder.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The folder that holds the locks; not there before the first lock is taken.
    pub(crate) fn locks(&self) -> PathBuf {
        self.path("locks")
    }

    /// The program, with a known environment and nothing on its stdin.
    pub(crate) fn tenure<I, S>(&self, words: I) -> Command
    where
        I: IntoIterator<Item = S>,
        S: AsRef<OsStr>,
    {
        let mut command = Command::new(TENURE);
        command.args(words);
        self.prepare(&mut command);
        command
    }

    /// Any other program, with the same environment; `tenure` is on its path.
    pub(crate) fn program(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        self.prepare(&mut command);
        command
    }

    fn prepare(&self, command: &mut Command) {
        let own = Path::new(TENURE).parent().expect("the program's folder");
        let path = std::env::var_os("PATH").unwrap_or_default();
        let path = std::env::join_paths(
            std::iter::once(own.to_owned()).chain(std::env::split_paths(&path)),
        )
        .expect("a path");
        command
            .env_clear()
            .env("PATH", path)
            .env("HOME", self.root())
            .env("LANG", "C.UTF-8")
            .env("USER", "tester")
            .env("TENURE_DIR", self.locks())
            .stdin(Stdio::null());
        default_signals();
    }

    /// Runs the program to its end.
    pub(crate) fn run<I, S>(&self, words: I) -> Answer
    where
        I: IntoIterator<Item = S>,
        S: AsRef<OsStr>,
    {
        answer(&mut self.tenure(words))
    }

    /// Runs a line of `sh` to its end; `tenure` is on its path.
    pub(crate) fn shell(&self, line: &str) -> Answer {
        answer(self.program("sh").args(["-c", line]))
    }

    /// Starts `tenure run` with these flags and a command that lasts until [`Held::open`].
    pub(crate) fn hold<I, S>(&self, name: &str, flags: I) -> Held
    where
        I: IntoIterator<Item = S>,
        S: AsRef<OsStr>,
    {
        self.hold_with(name, flags, &Gate::new(self, name), "")
    }

    /// Starts such a run, with a line of shell that the command begins with (a `trap`, say).
    pub(crate) fn hold_with<I, S>(&self, name: &str, flags: I, gate: &Gate, prelude: &str) -> Held
    where
        I: IntoIterator<Item = S>,
        S: AsRef<OsStr>,
    {
        let mut words = vec!["run".into(), name.into()];
        words.extend(flags.into_iter().map(|flag| flag.as_ref().to_owned()));
        words.extend(["--", "sh", "-c"].map(std::ffi::OsString::from));
        words.push(gate.script(prelude).into());
        let mut command = self.tenure(words);
        let started = Started::piped(&mut command);
        let command = gate.entered();
        Held {
            started,
            command,
            gate: gate.clone(),
        }
    }

    /// The parsed answer of `check NAME --output json`.
    pub(crate) fn check(&self, name: &str) -> Value {
        let answer = self.run(["check", name, "--output", "json"]);
        let document = answer.json();
        let facts = if answer.code() == 0 {
            &document["data"]
        } else {
            &document["error"]["context"]
        };
        facts.clone()
    }

    /// What `check` calls the standing of a lock.
    pub(crate) fn standing(&self, name: &str) -> String {
        let facts = self.check(name);
        facts["standing"].as_str().unwrap_or_default().to_owned()
    }

    /// Whether a plain request would get the lock now.
    pub(crate) fn is_free(&self, name: &str) -> bool {
        self.check(name)["available"] == true
    }

    /// Waits until a number of callers stand in the queue of a lock.
    pub(crate) fn until_queued(&self, name: &str, waiting: usize) {
        eventually(&format!("{waiting} in the queue of {name}"), || {
            self.check(name)["queue"].as_array().map(Vec::len) == Some(waiting)
        });
    }

    /// Waits until the record names the command of a run. Before that its liveness lock alone speaks for
    /// it, and no other process can learn its PID.
    pub(crate) fn until_named(&self, name: &str) {
        eventually(&format!("the command of {name} to be named"), || {
            self.check(name)["holder"]["command_pid"].is_u64()
        });
    }

    /// Waits until a lock can be had.
    pub(crate) fn until_free(&self, name: &str) {
        eventually(&format!("{name} to be free"), || self.is_free(name));
    }

    /// Writes a file into the test's folder and answers with its place.
    pub(crate) fn write(&self, name: &str, content: &str) -> PathBuf {
        let path = self.path(name);
        fs::write(&path, content).expect("a file of the test");
        path
    }

    /// Writes a script that can be run.
    pub(crate) fn script(&self, name: &str, content: &str) -> PathBuf {
        use std::os::unix::fs::PermissionsExt;
        let path = self.write(name, content);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("rights");
        path
    }
}

/// A command that says that it has begun, and lasts until the test lets it end. It ends by itself when
/// the test's folder is gone, so a test that fails leaves nothing behind.
#[derive(Debug, Clone)]
pub(crate) struct Gate {
    /// Goes with the test's folder. The folder itself may come back: a run that goes on makes it for its audit.
    file: PathBuf,
    begun: PathBuf,
    open: PathBuf,
}

impl Gate {
    pub(crate) fn new(scene: &Scene, name: &str) -> Self {
        let folder = scene.root();
        // Gates of one test must not share their files.
        let mut number = 0;
        loop {
            let begun = folder.join(format!("{name}.{number}.begun"));
            let gate = Self {
                file: folder.join(format!("{name}.{number}.gate")),
                open: folder.join(format!("{name}.{number}.open")),
                begun,
            };
            if fs::OpenOptions::new()
                .write(true)
                .create_new(true)
                .open(&gate.file)
                .is_ok()
            {
                return gate;
            }
            number += 1;
        }
    }

    /// The script: `prelude` first, then the waiting. Each pause is a process, so the first one alone is
    /// short.
    pub(crate) fn script(&self, prelude: &str) -> String {
        format!(
            "{prelude}\necho $$ >'{begun}.new' && mv '{begun}.new' '{begun}'\n\
             pause=0.01; while [ -e '{gate}' ] && [ ! -e '{open}' ]; do sleep $pause; pause=0.04; done",
            begun = self.begun.display(),
            gate = self.file.display(),
            open = self.open.display(),
        )
    }

    /// Waits until the command has begun and answers with its PID.
    pub(crate) fn entered(&self) -> u32 {
        read_number(&self.begun)
    }

    pub(crate) fn has_begun(&self) -> bool {
        self.begun.exists()
    }

    /// Lets the command end.
    pub(crate) fn open(&self) {
        fs::write(&self.open, "").expect("opening the gate");
    }
}

/// Puts a file there as another program wrote it at that time, in folders of the user alone.
pub(crate) fn plant(path: &Path, text: &str, written: SystemTime) {
    use std::os::unix::fs::DirBuilderExt;
    let folder = path.parent().expect("a folder");
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true).mode(0o700);
    builder.create(folder).expect("a folder");
    fs::write(path, text).expect("a file");
    let file = fs::File::options().write(true).open(path).expect("a file");
    file.set_modified(written).expect("a time");
}

/// Waits for a file that holds a number and answers with it.
pub(crate) fn read_number(path: &Path) -> u32 {
    let mut number = None;
    eventually(&format!("a number in {}", path.display()), || {
        number = fs::read_to_string(path)
            .ok()
            .and_then(|text| text.trim().parse().ok());
        number.is_some()
    });
    number.expect("a number was read")
}

/// Waits for a file and for its last line to be whole. A shell makes the file of `>>` before the command writes into it,
/// so a file that is there may be empty.
pub(crate) fn read_lines(path: &Path) -> String {
    let mut lines = String::new();
    eventually(&format!("lines in {}", path.display()), || {
        lines = fs::read_to_string(path).unwrap_or_default();
        lines.ends_with('\n')
    });
    lines
}

/// A `tenure run` whose command has begun.
pub(crate) struct Held {
    pub(crate) started: Started,
    /// The PID of the command.
    pub(crate) command: u32,
    pub(crate) gate: Gate,
}

impl Held {
    /// The PID of the supervisor.
    pub(crate) fn pid(&self) -> u32 {
        self.started.pid()
    }

    /// Lets the command end and waits for the answer.
    pub(crate) fn open(self) -> Answer {
        self.gate.open();
        self.started.finish()
    }

    /// Sends a signal to the supervisor.
    pub(crate) fn signal(&self, signal: Signal) {
        self.started.signal(signal);
    }

    /// Waits for the answer.
    pub(crate) fn finish(self) -> Answer {
        self.started.finish()
    }
}

/// A program that was started and not yet waited for. Killed if the test forgets it.
pub(crate) struct Started {
    child: Option<Child>,
}

impl Started {
    pub(crate) fn new(command: &mut Command) -> Self {
        let child = command.spawn().expect("starting a program");
        Self { child: Some(child) }
    }

    /// Starts a call with both its outputs to be read.
    pub(crate) fn piped(command: &mut Command) -> Self {
        Self::new(command.stdout(Stdio::piped()).stderr(Stdio::piped()))
    }

    fn child(&mut self) -> &mut Child {
        self.child.as_mut().expect("not finished yet")
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.as_ref().expect("not finished yet").id()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        send(self.pid(), signal);
    }

    /// Kills it and its children: a supervisor together with its command.
    pub(crate) fn kill_with_children(&self) {
        let children = children(self.pid());
        self.signal(Signal::KILL);
        for child in children {
            send(child, Signal::KILL);
        }
    }

    /// Whether it has ended.
    pub(crate) fn has_ended(&mut self) -> bool {
        self.child()
            .try_wait()
            .expect("looking at a child")
            .is_some()
    }

    /// The stdin of the call, to be written by another thread.
    pub(crate) fn take_stdin(&mut self) -> ChildStdin {
        self.child().stdin.take().expect("a piped stdin")
    }

    /// The stdout of the call, to be read by another thread.
    pub(crate) fn take_stdout(&mut self) -> ChildStdout {
        self.child().stdout.take().expect("a piped stdout")
    }

    /// The stdout of the call, to be read while it runs.
    pub(crate) fn stdout(&mut self) -> &mut ChildStdout {
        self.child().stdout.as_mut().expect("a piped stdout")
    }

    /// The stderr of the call, to be read while it runs.
    pub(crate) fn stderr(&mut self) -> &mut ChildStderr {
        self.child().stderr.as_mut().expect("a piped stderr")
    }

    /// Waits for its end. Another process may still have its outputs open.
    pub(crate) fn end(&mut self) -> ExitStatus {
        let until = instant() + BOUND;
        let pid = self.pid();
        loop {
            if let Some(status) = self.child().try_wait().expect("looking at a child") {
                return status;
            }
            assert!(instant() < until, "PID {pid} did not end in time");
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Waits for its end and gathers what it said.
    pub(crate) fn finish(mut self) -> Answer {
        let stdout = gather(self.child().stdout.take());
        let stderr = gather(self.child().stderr.take());
        let status = self.end();
        let said = |receiver: Receiver<Vec<u8>>| {
            receiver
                .recv_timeout(BOUND)
                .expect("its outputs are closed soon after its end")
        };
        Answer(Output {
            status,
            stdout: said(stdout),
            stderr: said(stderr),
        })
    }
}

/// Reads a pipe to its end in a thread of its own.
fn gather(pipe: Option<impl Read + Send + 'static>) -> Receiver<Vec<u8>> {
    let (done, receiver) = channel();
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut pipe) = pipe {
            let _ = pipe.read_to_end(&mut bytes);
        }
        // A test that has failed already does not wait for this.
        let _ = done.send(bytes);
    });
    receiver
}

impl Drop for Started {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// How a program ended and what it said.
pub(crate) struct Answer(pub(crate) Output);

impl Answer {
    /// The exit code; a death by signal fails the test.
    pub(crate) fn code(&self) -> i32 {
        self.0
            .status
            .code()
            .unwrap_or_else(|| panic!("it died by a signal: {:?}", self.0))
    }

    pub(crate) fn status(&self) -> ExitStatus {
        self.0.status
    }

    pub(crate) fn stdout(&self) -> String {
        String::from_utf8_lossy(&self.0.stdout).into_owned()
    }

    pub(crate) fn stderr(&self) -> String {
        String::from_utf8_lossy(&self.0.stderr).into_owned()
    }

    /// Everything it said, for a message.
    pub(crate) fn said(&self) -> String {
        format!(
            "{}\nstdout: {}\nstderr: {}",
            self.0.status,
            self.stdout(),
            self.stderr()
        )
    }

    /// The one document on stdout. Where a command had stdout before, it stands below an empty line.
    pub(crate) fn json(&self) -> Value {
        let text = self.stdout();
        let text = text.strip_prefix('\n').unwrap_or(&text);
        assert_eq!(
            text.matches('\n').count(),
            1,
            "stdout holds one line, the document: {}",
            self.said()
        );
        serde_json::from_str(text)
            .unwrap_or_else(|error| panic!("stdout is no document ({error}): {}", self.said()))
    }

    /// Fails the test unless it ended with this code.
    #[track_caller]
    pub(crate) fn expect(self, code: i32, why: &str) -> Self {
        assert_eq!(self.0.status.code(), Some(code), "{why}: {}", self.said());
        self
    }
}

/// Runs a program to its end.
pub(crate) fn answer(command: &mut Command) -> Answer {
    Started::piped(command).finish()
}

/// Waits until `condition` holds, and fails the test if it never does.
///
/// Looking often starts a process each time: what has lasted for a while is looked at less often.
#[track_caller]
pub(crate) fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let began = instant();
    while !condition() {
        let waited = tenure_os::clock::since(began);
        assert!(waited < BOUND, "waited in vain for {what}");
        let pause = (waited / 8).clamp(Duration::from_millis(5), Duration::from_millis(25));
        std::thread::sleep(pause);
    }
}

/// Fails the test if `condition` ceases to hold within `span`. For what must not happen: there is
/// no event to wait for, so the span is a judgement.
#[track_caller]
pub(crate) fn throughout(span: Duration, what: &str, mut condition: impl FnMut() -> bool) {
    let until = instant() + span;
    while instant() < until {
        assert!(condition(), "not any more: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// How long something took.
pub(crate) fn timed<T>(action: impl FnOnce() -> T) -> (T, Duration) {
    let began: Instant = instant();
    let result = action();
    (result, tenure_os::clock::since(began))
}

fn pid(number: u32) -> Pid {
    Pid::from_raw(i32::try_from(number).expect("a PID")).expect("a PID")
}

/// Sends a signal to a process that this test started.
pub(crate) fn send(number: u32, signal: Signal) {
    let _ = rustix::process::kill_process(pid(number), signal);
}

/// Whether a process runs; a zombie does not.
pub(crate) fn is_alive(number: u32) -> bool {
    !matches!(state(number), None | Some('Z' | 'X'))
}

/// The kernel's letter for the state of a process.
pub(crate) fn state(number: u32) -> Option<char> {
    stat(number, 0)?.chars().next()
}

/// Whether a process has the guard of a lock: the byte in front of those of all tickets.
pub(crate) fn has_guard(pid: u32) -> bool {
    let guard = format!(" {0} {0}", 1_u64 << 60);
    let descriptors = fs::read_dir(format!("/proc/{pid}/fdinfo")).expect("its descriptors");
    descriptors.flatten().any(|descriptor| {
        let shown = fs::read_to_string(descriptor.path()).unwrap_or_default();
        shown.lines().any(|line| line.ends_with(&guard))
    })
}

/// The process group that gets what is typed on the terminal of a process.
pub(crate) fn foreground(number: u32) -> Option<u32> {
    stat(number, 5)?.parse().ok()
}

/// A field of what the kernel says about a process. The first one is its state, behind the name of its program.
fn stat(number: u32, field: usize) -> Option<String> {
    let stat = fs::read_to_string(format!("/proc/{number}/stat")).ok()?;
    let (_, rest) = stat.rsplit_once(')')?;
    rest.split_ascii_whitespace().nth(field).map(str::to_owned)
}

/// Whether a process runs this program by now. A child that was forked a moment ago does not.
pub(crate) fn runs(number: u32, program: &str) -> bool {
    fs::read_to_string(format!("/proc/{number}/comm")).is_ok_and(|name| name.trim_end() == program)
}

/// Whether a process was stopped. A shell whose child was stopped before it became another program
/// waits for that child in the kernel (`D`), and its own stop is pending.
pub(crate) fn has_stopped(number: u32) -> bool {
    let child_has = || {
        children(number)
            .into_iter()
            .any(|it| state(it) == Some('T'))
    };
    match state(number) {
        Some('T') => true,
        Some('D') => child_has(),
        _ => false,
    }
}

/// Whether a process has a handler for a signal. A supervisor gets those that only pass a signal on once its
/// command has been started: what is sent before does what it always does.
pub(crate) fn hears(number: u32, signal: Signal) -> bool {
    let status = fs::read_to_string(format!("/proc/{number}/status")).unwrap_or_default();
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
    let caught = caught.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    caught.is_some_and(|mask| mask & 1 << (signal.as_raw() - 1) != 0)
}

/// A line of shell that says `overlap` if a process is still at work. One that has ended and was
/// not collected yet is not.
pub(crate) fn says_overlap(number: u32) -> String {
    format!(
        "case $(cut -d' ' -f3 /proc/{number}/stat 2>/dev/null) in ''|Z|X) ;; *) echo overlap ;; esac"
    )
}

/// The children of a process.
pub(crate) fn children(number: u32) -> Vec<u32> {
    fs::read_to_string(format!("/proc/{number}/task/{number}/children"))
        .unwrap_or_default()
        .split_ascii_whitespace()
        .filter_map(|child| child.parse().ok())
        .collect()
}

/// Whether the tests run as root: some of them need another user, some need a user without rights.
pub(crate) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Sees to it that programs start with no signal ignored, however the tests were started. What is ignored is
/// inherited, and nothing else: a handler ends with exec(2), and the standard library blocks no signal in a child.
///
/// Set once in the process of the test. Between fork and exec it would take a fork, which copies the page
/// tables of the test for each program that it starts: a tenth of the time of those that start the most.
fn default_signals() {
    static SET: std::sync::Once = std::sync::Once::new();
    SET.call_once(|| {
        for number in [
            libc::SIGINT,
            libc::SIGTERM,
            libc::SIGHUP,
            libc::SIGQUIT,
            libc::SIGTSTP,
            libc::SIGTTIN,
            libc::SIGTTOU,
            libc::SIGCHLD,
            libc::SIGUSR1,
        ] {
            #[allow(unsafe_code, reason = "the standard library has no call for this")]
            // SAFETY: signal(2) with the default disposition installs no code, and no test handles these signals.
            unsafe {
                libc::signal(number, libc::SIG_DFL);
            }
        }
    });
}
