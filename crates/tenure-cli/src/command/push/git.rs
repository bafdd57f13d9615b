//! Runs git. A call that may take long or changes the work tree runs under the supervisor: a signal then
//! ends git and all of its children. Short questions run without it.
//!
//! git writes its output into files without a name, in memory if the system has such files. They are read
//! when git has ended. A pipe would have to be read all the while, and a process that git leaves behind (a
//! shared ssh connection) would keep it open.
//!
//! `judge` says what an answer means.

use super::judge::GitAnswer;
use crate::command::refusal::{cancelled, cancelled_by, superseded};
use crate::command::run::{ChildEnv, acquire_all, not_started, terms};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::request::Place;
use crate::signals::{self, Signals};
use crate::supervise::locks::{Driver, RunState};
use crate::supervise::{End, Terms, Verdict};
use std::ffi::{CStr, OsStr, OsString};
use std::fs::File;
use std::io::{Read, Seek};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;
use tenure_engine::keep::Life;
use tenure_os::clock::Clock;

/// How much of each output is read.
const OUTPUT_MAX: u64 = 1 << 20;

/// How long git may take to end after it was asked to.
const GRACE: Duration = Duration::from_secs(10);

/// How long git may go on after a signal before it is asked to end. Nearly all of its changes are
/// over in less.
const PATIENCE: Duration = Duration::from_secs(1);

/// The phase that the envelope names for an end by a signal.
pub(super) const PHASE: &str = "push";

/// How git is run.
pub(super) struct Git<'a> {
    pub(super) program: PathBuf,
    pub(super) clock: &'a dyn Clock,
    pub(super) signals: Signals,
    pub(super) quiet: bool,
    /// The place of the locks, which a line that an answer advises repeats.
    pub(super) place: &'a Place,
}

/// The lock under which it runs.
pub(super) struct Hold<'a> {
    pub(super) lock: &'a acquire_all::Hold<'a>,
    pub(super) child_env: ChildEnv,
    pub(super) life: Life,
    pub(super) on_heartbeat_failed: &'a dyn Fn(u32, &str),
}

/// Where both outputs go.
struct Outputs {
    stdout: File,
    stderr: File,
}

impl Git<'_> {
    /// Asks about the repository, or aborts a rebase: calls that wait for no other process. git runs in a
    /// process group of its own, so that no key interrupts it.
    pub(super) fn ask(&self, words: &[&str]) -> Result<GitAnswer, Failure> {
        let (mut command, outputs) = self.command(words)?;
        command.process_group(0);
        let child = signals::as_received(|| command.spawn());
        let status = child.and_then(|mut child| child.wait());
        let status = status.map_err(|error| self.not_run(&error))?;
        let end = status
            .signal()
            .map_or_else(|| End::Code(status.code().unwrap_or(1)), End::Signal);
        outputs.answer(end)
    }

    /// The first line of the answer to such a call, which has to succeed.
    pub(super) fn tell(&self, words: &[&str]) -> Result<String, Failure> {
        let answer = self.ask(words)?;
        if answer.succeeded() {
            Ok(answer.first_line().to_owned())
        } else {
            Err(super::failed(&answer))
        }
    }

    /// Runs a call that talks to the remote or changes the work tree. If a signal ends git in the wrong instant,
    /// git leaves its lock files of references and index behind: here, or in a remote that is a folder. So
    /// git gets a moment to finish before it is asked to end.
    pub(super) fn run(
        &self,
        words: &[impl AsRef<OsStr>],
        hold: Option<&mut Hold<'_>>,
    ) -> Result<GitAnswer, Failure> {
        if signals::stop_asked().is_some() {
            return Err(cancelled(PHASE));
        }
        let (mut command, outputs) = self.command(words)?;
        if let Some(hold) = &hold {
            hold.child_env.apply(&mut command);
        }
        let driver = Driver {
            around: Vec::new(),
            held: hold
                .iter()
                .map(|hold| hold.lock.held(hold.on_heartbeat_failed))
                .collect(),
            clock: self.clock,
            signals: self.signals,
            terms: Terms {
                patience: PATIENCE,
                ..terms::usual(GRACE, self.signals)
            },
            close: false,
            quiet: self.quiet,
            on_started: &|| {},
        };
        let lives = hold.iter().map(|hold| hold.life.clone());
        let mut state = RunState::new(lives);
        let verdict = driver
            .run(command, &mut state)
            .map_err(|error| not_started(&[OsString::from("git")], error))?;
        let name = hold.as_ref().map(|hold| hold.lock.name().clone());
        if let (Some(hold), Some(life)) = (hold, state.into_lives().into_iter().next()) {
            hold.life = life;
        }
        match (verdict, name) {
            // A key on the terminal reaches git and not this process.
            (Verdict::Command(End::Signal(number)), _) if asks_to_end(number) => {
                Err(cancelled_by(number, PHASE))
            }
            (Verdict::Command(end), _) => match signals::stop_asked() {
                Some(_) => Err(cancelled(PHASE)),
                None => outputs.answer(end),
            },
            (Verdict::Signalled { number, .. }, _) => Err(cancelled_by(number, PHASE)),
            (Verdict::Superseded { by }, Some(name)) => Err(superseded(&name, &by)),
            (Verdict::Lost, Some(name)) => Err(Failure::new(
                Exit::LockLost,
                "LOCK_LOST",
                format!("{name} was lost while git ran; git was ended"),
            )),
            // A call without a lock loses none.
            (Verdict::Superseded { .. } | Verdict::Lost, None) | (Verdict::MaxRuntime, _) => {
                Err(cancelled(PHASE))
            }
        }
    }

    /// A git command that answers in the language that `judge` reads.
    fn command(&self, words: &[impl AsRef<OsStr>]) -> Result<(Command, Outputs), Failure> {
        let outputs = Outputs::new().map_err(|error| self.not_run(&error))?;
        let copy = |file: &File| file.try_clone().map(Stdio::from);
        let stdout = copy(&outputs.stdout).map_err(|error| self.not_run(&error))?;
        let stderr = copy(&outputs.stderr).map_err(|error| self.not_run(&error))?;
        let mut command = Command::new(&self.program);
        command
            .arg0("git")
            .args(words)
            .env("LC_ALL", "C")
            .stdin(Stdio::null())
            .stdout(stdout)
            .stderr(stderr);
        Ok((command, outputs))
    }

    fn not_run(&self, error: &std::io::Error) -> Failure {
        Failure::new(
            Exit::General,
            "GIT_NOT_RUN",
            format!("{} could not be run: {error}", self.program.display()),
        )
    }
}

fn asks_to_end(number: i32) -> bool {
    matches!(
        number,
        libc::SIGINT | libc::SIGTERM | libc::SIGHUP | libc::SIGQUIT
    )
}

/// A file without a name, in memory.
#[cfg(target_os = "linux")]
fn nameless(name: &CStr) -> std::io::Result<File> {
    use rustix::fs::{MemfdFlags, memfd_create};
    Ok(File::from(memfd_create(name, MemfdFlags::CLOEXEC)?))
}

/// A file on the disk, whose name is removed at once.
#[cfg(not(target_os = "linux"))]
fn nameless(name: &CStr) -> std::io::Result<File> {
    use rustix::fs::{CWD, Mode, OFlags, openat, unlink};
    let own = tenure_os::process::new_request_id()?;
    let place = std::env::temp_dir().join(format!("tenure-{}-{own}", name.to_string_lossy()));
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let file = openat(CWD, &place, flags, Mode::RUSR | Mode::WUSR)?;
    unlink(&place)?;
    Ok(File::from(file))
}

impl Outputs {
    fn new() -> std::io::Result<Self> {
        Ok(Self {
            stdout: nameless(c"git-stdout")?,
            stderr: nameless(c"git-stderr")?,
        })
    }

    fn answer(self, end: End) -> Result<GitAnswer, Failure> {
        let read = |mut file: File| -> std::io::Result<String> {
            let mut bytes = Vec::new();
            file.rewind()?;
            file.take(OUTPUT_MAX).read_to_end(&mut bytes)?;
            Ok(String::from_utf8_lossy(&bytes).into_owned())
        };
        let both = read(self.stdout).and_then(|stdout| Ok((stdout, read(self.stderr)?)));
        let (stdout, stderr) = both.map_err(|error| {
            Failure::new(
                Exit::General,
                "GIT_NOT_RUN",
                format!("what git said could not be read: {error}"),
            )
        })?;
        Ok(GitAnswer {
            end,
            stdout,
            stderr,
        })
    }
}
