//! Processes as the kernel of macOS shows them. Written from its sources, and never run.
//!
//! - A process began at an instant in microseconds, which no later process with its number shares. That
//!   instant is not shown of another user's process. It then cannot be told from an older process with its
//!   number, and counts as that one.
//! - **The boot** is known by the id of its session, **the machine** by the id of its hardware.

use super::block::arguments_in;
use crate::os::darwin::{self, Listed};
use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process_group};

/// The id of this machine.
pub(super) fn machine_id() -> Option<String> {
    let number = u128::from_be_bytes(darwin::machine()?);
    (number != 0).then(|| format!("{number:032x}"))
}

/// The id of this boot.
pub(super) fn boot_id() -> Option<String> {
    darwin::text(c"kern.bootsessionuuid").filter(|id| !id.is_empty())
}

/// All processes share one namespace.
#[allow(clippy::unnecessary_wraps, reason = "one surface")]
pub(super) fn pid_namespace() -> Option<u64> {
    Some(0)
}

/// What the kernel shows of one process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stat {
    /// Number of its parent.
    pub parent: u32,
    started: u64,
    is_copy: bool,
    has_ended: bool,
}

impl Stat {
    /// When it started.
    #[allow(clippy::unnecessary_wraps, reason = "one surface")]
    pub fn started(&self) -> Option<u64> {
        Some(self.started)
    }

    /// Whether it is a copy of its parent that has not become a program of its own.
    pub fn is_copy(&self) -> bool {
        self.is_copy
    }

    /// Whether a signal has stopped it. This is not asked here yet, so no process counts as stopped.
    #[allow(clippy::unused_self, reason = "one surface")]
    pub fn is_stopped(&self) -> bool {
        false
    }

    /// Whether it has ended and waits to be collected.
    pub fn has_ended(&self) -> bool {
        self.has_ended
    }
}

/// What the kernel shows of one process. Nothing if there is none, or if it is another user's.
pub fn stat(pid: u32) -> Option<Stat> {
    let shown = darwin::process(pid).ok()?;
    Some(Stat {
        parent: shown.parent,
        started: shown.started?,
        is_copy: shown.has_executed == Some(false),
        has_ended: shown.is_zombie,
    })
}

/// Whether any process of this group still runs (zombies do not count).
///
/// Signal 0 reaches every process that runs and may be signalled. If it reaches none, there may be zombies
/// and other users' processes, and the list tells the two apart. What cannot be found out counts as alive.
pub fn group_is_alive(group: u32) -> bool {
    let Some(pid) = i32::try_from(group).ok().and_then(Pid::from_raw) else {
        return false;
    };
    match test_kill_process_group(pid) {
        Ok(()) => true,
        Err(Errno::SRCH) => false,
        Err(_) => darwin::list(Listed::OfGroup(group)).map_or(true, |members| {
            members
                .into_iter()
                .any(|member| match darwin::process(member) {
                    Ok(shown) => !shown.is_zombie,
                    Err(errno) => errno != Errno::SRCH,
                })
        }),
    }
}

/// The children of this process that have not been collected yet.
///
/// A list of numbers from the kernel, to be confirmed before anything is done with one of them.
pub fn children() -> Vec<u32> {
    darwin::list(Listed::ChildrenOf(std::process::id())).unwrap_or_default()
}

/// What a process was started with, its own name first; nothing of another user's.
pub fn arguments(pid: u32) -> Vec<String> {
    let block = darwin::arguments(pid).unwrap_or_default();
    arguments_in(&block).unwrap_or_default()
}

/// What a process calls itself, for people.
pub fn name_of(pid: u32) -> String {
    let arguments = arguments(pid);
    let program = arguments.first().map(String::as_str).unwrap_or_default();
    program.rsplit('/').next().unwrap_or(program).to_owned()
}
