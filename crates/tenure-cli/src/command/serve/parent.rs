//! The program that started `serve`, to which the holds belong, and how its end is noticed.
//!
//! A pidfd tells of the end at once, and means this very process, whatever gets its number later. Where there is
//! none, `serve` looks from time to time whether it has another parent. The end of stdin alone does not do: a child
//! that the program has forked keeps the other end of the pipe open after the program was killed.
//! `PR_SET_PDEATHSIG` does not do either: it tells of the end of a thread.

use crate::exit::Exit;
use crate::failure::Failure;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use tenure_core::Process;
use tenure_engine::process;

#[derive(Debug)]
pub(super) struct Parent {
    pub(super) process: Process,
    /// Its command line, else its name.
    pub(super) command: String,
    handle: Option<OwnedFd>,
}

impl Parent {
    pub(super) fn find() -> Result<Self, Failure> {
        let pid = process::parent().ok_or_else(|| unknown("it is in another PID namespace"))?;
        let handle = open(pid);
        let chosen =
            process::choose_owner(Some(pid)).map_err(|error| unknown(&error.to_string()))?;
        if chosen.process.started.is_none() {
            return Err(unknown("its start time cannot be seen"));
        }
        let parent = Self {
            process: chosen.process,
            command: command_line(pid).unwrap_or(chosen.name),
            handle,
        };
        // What was opened and read is the parent's only if the parent has not ended since.
        if parent.is_gone() {
            return Err(unknown("it has ended"));
        }
        Ok(parent)
    }

    /// What becomes readable at its end, where the system tells of that.
    pub(super) fn handle(&self) -> Option<BorrowedFd<'_>> {
        self.handle.as_ref().map(AsFd::as_fd)
    }

    /// Whether it has ended. A process whose parent has ended has another one.
    pub(super) fn is_gone(&self) -> bool {
        process::parent() != Some(self.process.pid)
    }
}

fn unknown(why: &str) -> Failure {
    Failure::new(
        Exit::Precondition,
        "NO_PARENT",
        format!("holds belong to the program that starts serve, and it is not known: {why}"),
    )
}

#[cfg(target_os = "linux")]
fn open(pid: u32) -> Option<OwnedFd> {
    use rustix::process::{Pid, PidfdFlags, pidfd_open};
    let pid = Pid::from_raw(i32::try_from(pid).ok()?)?;
    pidfd_open(pid, PidfdFlags::empty()).ok()
}

#[cfg(not(target_os = "linux"))]
fn open(_: u32) -> Option<OwnedFd> {
    None
}

/// What it was started as, where the system shows that.
fn command_line(pid: u32) -> Option<String> {
    let words = std::fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    let text = String::from_utf8_lossy(&words);
    let text = text.trim_end_matches('\0').replace('\0', " ");
    (!text.is_empty()).then(|| tenure_engine::profile::why(&text))
}
