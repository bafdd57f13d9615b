//! The hooks of a run: what it runs when it takes the place of other runs, or another run takes its place.
//! They are best effort, bounded by the grace, and never change how the run ends.
//!
//! A hook does not get the command's stdin. It gets stdout only if no document will stand on it. The run
//! decides whether a hook runs, and what it is told.

use super::child_env::ChildEnv;
use crate::failure::human;
use crate::render::Reporter;
use crate::signals;
use rustix::process::{Pid, Signal, kill_process_group};
use std::ffi::OsString;
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tenure_os::clock::instant;
use tenure_store::file::poll_readable;

/// How often the run looks after its locks while a hook runs.
const LOOK: Duration = Duration::from_secs(1);

/// Whether the system has handles by which to wait for the end of a process and for a time at once.
const HAS_HANDLES: bool = cfg!(target_os = "linux");

/// How often the run looks at the process without such a handle.
const NAP: Duration = Duration::from_millis(20);

/// How a hook ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RunState {
    Ended,
    TooLong,
    /// A signal came, and the run stops before its command has started.
    Stopped,
}

/// A hook and what bounds it.
pub(super) struct Hook<'a> {
    /// The flag that names it, for messages.
    pub(super) flag: &'static str,
    /// The line for a shell.
    pub(super) program: &'a str,
    /// How long it may take.
    pub(super) grace: Duration,
    /// Whether a signal that asks the run to stop ends it at once.
    pub(super) yields: bool,
}

impl Hook<'_> {
    /// Runs the hook; `tend` looks after the run's locks. Any failure is a warning.
    #[cold]
    #[inline(never)]
    pub(super) fn run(
        &self,
        child_env: &ChildEnv,
        facts: &[(&str, OsString)],
        tend: &mut dyn FnMut(),
        reporter: &mut Reporter,
    ) {
        let flag = self.flag;
        let mut command = Command::new("sh");
        command.args(["-c", self.program]);
        let leader = signals::Leader::of(&mut command);
        command.stdin(Stdio::null());
        if reporter.is_text() {
            reporter.command_has_run();
        } else {
            command.stdout(stderr());
        }
        child_env.apply(&mut command);
        command.envs(facts.iter().map(|(name, value)| (name, value)));
        let mut child = match signals::as_received(|| command.spawn()) {
            Ok(child) => child,
            Err(error) => {
                reporter.warn(format!("{flag} could not be run: {error}"));
                return;
            }
        };
        let state = self.wait(&mut child, tend);
        match state {
            RunState::Ended => {}
            RunState::TooLong => reporter.warn(format!(
                "{flag} has not ended within {} and is killed",
                human(self.grace)
            )),
            RunState::Stopped => reporter.warn(format!("{flag} is killed, because a signal came")),
        }
        if state != RunState::Ended {
            // The leader, or the child that leads, is not collected yet. All of the group may have ended just now.
            let group = leader.as_ref().map(signals::Leader::group);
            if let Some(group) = group.or_else(|| pid_of(&child)) {
                let _ = kill_process_group(group, Signal::KILL);
            }
        }
        match child.wait() {
            Ok(status) if state != RunState::Ended || status.success() => {}
            Ok(status) => reporter.warn(format!("{flag} failed: {status}")),
            Err(error) => reporter.warn(format!("how {flag} ended is not known: {error}")),
        }
    }

    /// Waits until the hook has ended, or has to be ended.
    fn wait(&self, child: &mut Child, tend: &mut dyn FnMut()) -> RunState {
        let end = instant().checked_add(self.grace);
        let is_over = |now: Instant| end.is_some_and(|end| now >= end);
        let handle = end_of(child);
        if HAS_HANDLES && handle.is_none() {
            return RunState::TooLong;
        }
        let handles: Vec<_> = handle.iter().map(AsFd::as_fd).collect();
        loop {
            if !matches!(child.try_wait(), Ok(None)) {
                return RunState::Ended;
            }
            let now = instant();
            if is_over(now) {
                return RunState::TooLong;
            }
            if self.yields && signals::stop_asked().is_some() {
                return RunState::Stopped;
            }
            let until = [end, now.checked_add(LOOK)].into_iter().flatten().min();
            // However the sleep ended: everything that can have happened is looked at now.
            let _ = poll_readable(&handles, if HAS_HANDLES { LOOK } else { NAP }, until);
            tend();
        }
    }
}

/// Where messages go.
fn stderr() -> Stdio {
    let copy = std::io::stderr().as_fd().try_clone_to_owned();
    copy.map_or_else(|_| Stdio::null(), Stdio::from)
}

/// A handle to poll for the child's end. The child is not collected yet, so the number is its own.
#[cfg(target_os = "linux")]
fn end_of(child: &Child) -> Option<OwnedFd> {
    use rustix::process::{PidfdFlags, pidfd_open};
    pidfd_open(pid_of(child)?, PidfdFlags::empty()).ok()
}

#[cfg(not(target_os = "linux"))]
fn end_of(_: &Child) -> Option<OwnedFd> {
    None
}

fn pid_of(child: &Child) -> Option<Pid> {
    i32::try_from(child.id()).ok().and_then(Pid::from_raw)
}
