//! The program that started `serve`, to which the holds belong, and how its end is noticed.
//!
//! The program is the parent itself, a shell too. What tells of its end stands in `command/starter`.

use crate::command::starter;
use crate::failure::Failure;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use tenure_core::Process;
use tenure_engine::caller;
use tenure_os::process;

#[derive(Debug)]
pub(super) struct Parent {
    pub(super) process: Process,
    /// The parent's command line, else its name.
    pub(super) command: String,
    handle: Option<OwnedFd>,
}

impl Parent {
    pub(super) fn find() -> Result<Self, Failure> {
        let pid = process::parent()
            .ok_or_else(|| starter::unknown("serve", "it is in another PID namespace"))?;
        let handle = starter::handle(pid);
        let chosen = caller::choose_owner(Some(pid))
            .map_err(|error| starter::unknown("serve", &error.to_string()))?;
        if chosen.process.started.is_none() {
            return Err(starter::unknown("serve", "its start time cannot be seen"));
        }
        let parent = Self {
            process: chosen.process,
            command: command_line(pid).unwrap_or(chosen.name),
            handle,
        };
        // What was opened and read is the parent's only if the parent has not ended since.
        if parent.is_gone() {
            return Err(starter::unknown("serve", "it has ended"));
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

/// What it was started as, where the system shows that.
fn command_line(pid: u32) -> Option<String> {
    let words = std::fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    let text = String::from_utf8_lossy(&words);
    let text = text.trim_end_matches('\0').replace('\0', " ");
    (!text.is_empty()).then(|| tenure_store::profile::why(&text))
}
