//! The hooks of a run: what it runs when it takes the place of other runs, or another run takes its place.
//! They are best effort, bounded by the grace, and never change how the run ends.
//!
//! A hook does not get the command's stdin. It gets stdout only if no document will stand on it. The run
//! decides whether a hook runs, and what it is told.

use super::child_env::ChildEnv;
use crate::command::child_end::{ChildEnd, child_end};
use crate::failure::human;
use crate::render::Reporter;
use crate::signals;
use rustix::process::{Pid, Signal, kill_process_group};
use std::ffi::OsString;
use std::os::fd::AsFd;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// How often the run looks after its locks while a hook runs.
const LOOK: Duration = Duration::from_secs(1);

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
        let goes_on = || {
            tend();
            !(self.yields && signals::stop_asked().is_some())
        };
        let state = child_end(&mut child, self.grace, LOOK, goes_on);
        match state {
            ChildEnd::Ended => {}
            ChildEnd::TooLong => reporter.warn(format!(
                "{flag} has not ended within {} and is killed",
                human(self.grace)
            )),
            // A signal came, and the run stops before its command has started.
            ChildEnd::Stopped => reporter.warn(format!("{flag} is killed, because a signal came")),
        }
        if state != ChildEnd::Ended {
            // The leader, or the child that leads, is not collected yet. All of the group may have ended just now.
            let group = leader.as_ref().map(signals::Leader::group);
            if let Some(group) = group.or_else(|| pid_of(&child)) {
                let _ = kill_process_group(group, Signal::KILL);
            }
        }
        match child.wait() {
            Ok(status) if state != ChildEnd::Ended || status.success() => {}
            Ok(status) => reporter.warn(format!("{flag} failed: {status}")),
            Err(error) => reporter.warn(format!("how {flag} ended is not known: {error}")),
        }
    }
}

/// Where messages go.
fn stderr() -> Stdio {
    let copy = std::io::stderr().as_fd().try_clone_to_owned();
    copy.map_or_else(|_| Stdio::null(), Stdio::from)
}

fn pid_of(child: &Child) -> Option<Pid> {
    i32::try_from(child.id()).ok().and_then(Pid::from_raw)
}
