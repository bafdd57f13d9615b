//! What a run is asked to do when it takes the place of others, or others take its: best effort,
//! bounded by the grace, and never a reason for another end than the run's own.

use super::told::Told;
use crate::failure::human;
use crate::render::Surface;
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open};
use std::ffi::OsString;
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};
use std::time::Duration;
use tenure::clock::instant;
use tenure::store::Wake;
use tenure::store::file::poll_readable;

/// A hook and what bounds it.
pub(super) struct Hook<'a> {
    /// The flag that names it, for messages.
    pub(super) flag: &'static str,
    /// The program of a shell.
    pub(super) program: &'a str,
    /// How long it may take.
    pub(super) grace: Duration,
}

impl Hook<'_> {
    /// Runs it. Whatever goes wrong is a warning.
    #[cold]
    #[inline(never)]
    pub(super) fn run(&self, told: &Told, facts: &[(&str, OsString)], surface: &mut Surface) {
        let flag = self.flag;
        let mut command = Command::new("sh");
        command.args(["-c", self.program]).process_group(0);
        told.tell(&mut command);
        command.envs(facts.iter().map(|(name, value)| (name, value)));
        let mut child = match command.spawn() {
            Ok(child) => child,
            Err(error) => {
                surface.warn(format!("{flag} could not be run: {error}"));
                return;
            }
        };
        let ended = self.wait(&child);
        if !ended {
            surface.warn(format!(
                "{flag} has not ended within {} and is killed",
                human(self.grace)
            ));
            kill_group(&child);
        }
        match child.wait() {
            Ok(status) if !ended || status.success() => {}
            Ok(status) => surface.warn(format!("{flag} failed: {status}")),
            Err(error) => surface.warn(format!("how {flag} ended is not known: {error}")),
        }
    }

    /// Whether it has ended in time.
    fn wait(&self, child: &Child) -> bool {
        let end = instant() + self.grace;
        let Some(pid) = pid_of(child) else {
            return false;
        };
        // It is our child and not collected yet, so the number is its own.
        let Ok(handle) = pidfd_open(pid, PidfdFlags::empty()) else {
            return false;
        };
        loop {
            match poll_readable(&[handle.as_fd()], self.grace, Some(end)) {
                Ok(Wake::Expired) | Err(_) => return false,
                Ok(Wake::Ready | Wake::Interrupted) => {}
            }
            // A signal ends the poll as well.
            let now = Some(instant());
            match poll_readable(&[handle.as_fd()], Duration::ZERO, now) {
                Ok(Wake::Ready) => return true,
                Ok(Wake::Expired | Wake::Interrupted) if instant() < end => {}
                _ => return false,
            }
        }
    }
}

fn pid_of(child: &Child) -> Option<Pid> {
    i32::try_from(child.id()).ok().and_then(Pid::from_raw)
}

fn kill_group(child: &Child) {
    if let Some(pid) = pid_of(child) {
        // It leads the group and is not collected yet. One that has just ended is fine.
        let _ = kill_process_group(pid, Signal::KILL);
    }
}
