//! The witness: kernel locks on files that have nothing to do with the locks under test, and the
//! roster of who works for a lock.
//!
//! The descriptors are inherited by all that a command starts, as the liveness lock is. They have high
//! numbers: when a process ends, Linux closes the highest first, and the witness has to be gone before
//! the liveness lock is. That holds within one process. A supervisor whose command is killed releases
//! when the command has ended. Other processes that were killed with it may still be in the kernel, which
//! has not closed their copies of the witness. So a witness that is taken counts only if a process that
//! still runs has it open. A process that was sent SIGKILL executes nothing more.

use rustix::fs::{FlockOperation, flock};
use rustix::io::{FdFlags, fcntl_dupfd_cloexec, fcntl_setfd};
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::path::{Path, PathBuf};

/// No liveness lock has a number like this.
const DESCRIPTOR_MIN: i32 = 200;

/// How a lock is held, so how its witness is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Mode {
    Exclusive,
    Shared,
    /// A slot of so many.
    Slot(u32),
    /// All of so many: an exclusive hold of a lock that others hold by slots.
    AllSlots(u32),
}

impl Mode {
    pub(crate) fn is_alone(self) -> bool {
        match self {
            Self::Exclusive | Self::AllSlots(_) => true,
            Self::Shared | Self::Slot(_) => false,
        }
    }
}

/// A lock that is worked under.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Resource {
    pub(crate) name: String,
    pub(crate) mode: Mode,
}

impl Resource {
    pub(crate) fn new(name: &str, mode: Mode) -> Self {
        let name = name.to_owned();
        Self { name, mode }
    }
}

fn take(path: &Path, operation: FlockOperation) -> std::io::Result<Option<File>> {
    let file = File::options().create(true).append(true).open(path)?;
    match flock(&file, operation) {
        Ok(()) => {
            let high = fcntl_dupfd_cloexec(&file, DESCRIPTOR_MIN)?;
            fcntl_setfd(&high, FdFlags::empty())?;
            Ok(Some(File::from(high)))
        }
        Err(rustix::io::Errno::WOULDBLOCK) => Ok(None),
        Err(errno) => Err(errno.into()),
    }
}

/// The number that this command was told, of so many slots. No other command may work under it.
fn number_of_slot(all: u32) -> std::io::Result<u32> {
    let told = std::env::var("TENURE_SLOT").unwrap_or_default();
    let number = told.parse().ok().filter(|number| *number < all);
    number.ok_or_else(|| std::io::Error::other(format!("TENURE_SLOT={told:?} of {all}")))
}

/// Takes the witness of a resource without waiting. `None`: another process works.
pub(crate) fn witness(root: &Path, resource: &Resource) -> std::io::Result<Option<Vec<File>>> {
    let file = |suffix: String| root.join(format!("witness/{}{suffix}", resource.name));
    let slot = |number: u32| {
        let path = file(format!(".{number}"));
        take(&path, FlockOperation::NonBlockingLockExclusive)
    };
    Ok(match resource.mode {
        Mode::Exclusive => take(
            &file(String::new()),
            FlockOperation::NonBlockingLockExclusive,
        )?
        .map(|file| vec![file]),
        Mode::Shared => take(&file(String::new()), FlockOperation::NonBlockingLockShared)?
            .map(|file| vec![file]),
        Mode::Slot(all) => {
            let number = number_of_slot(all)?;
            slot(number)?.map(|file| vec![file])
        }
        Mode::AllSlots(all) => (0..all)
            .map(slot)
            .collect::<std::io::Result<Option<Vec<_>>>>()?,
    })
}

/// A process that has the witness of a resource open, and runs. A killed process that the kernel has not
/// quite taken apart does not count.
pub(crate) fn at_work(root: &Path, resource: &Resource) -> Option<u32> {
    let file = root.join("witness").join(&resource.name);
    let file = file.to_string_lossy().into_owned();
    // A slot has a number behind the name.
    let own_slot = match resource.mode {
        Mode::Slot(all) => number_of_slot(all).ok().map(|number| format!(".{number}")),
        Mode::Exclusive | Mode::Shared | Mode::AllSlots(_) => None,
    };
    let is_of_it = |link: &Path| {
        let link = link.to_string_lossy();
        let rest = link.strip_prefix(&file);
        rest.is_some_and(|rest| match &own_slot {
            Some(own_slot) => rest == own_slot,
            None => rest.is_empty() || rest.starts_with('.'),
        })
    };
    let own = std::process::id();
    let processes = std::fs::read_dir("/proc").ok()?.flatten();
    processes
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter(|pid| *pid != own)
        .find(|pid| {
            let open = std::fs::read_dir(format!("/proc/{pid}/fd"));
            let mut open = open.into_iter().flatten().flatten();
            open.any(|fd| std::fs::read_link(fd.path()).is_ok_and(|link| is_of_it(&link)))
                && !is_killed(*pid)
        })
}

/// Whether a process was sent SIGKILL, or is ending.
fn is_killed(pid: u32) -> bool {
    /// `PF_EXITING` among the flags of a process.
    const EXITING: u64 = 0x4;
    /// SIGKILL in a set of signals.
    const KILL: u64 = 1 << 8;
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The ninth field; behind the name comes the third.
    let flags = stat.rsplit_once(')').and_then(|(_, rest)| {
        let flags = rest.split_ascii_whitespace().nth(6)?;
        flags.parse::<u64>().ok()
    });
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let is_pending = status.lines().any(|line| {
        let set = line
            .strip_prefix("ShdPnd:")
            .or(line.strip_prefix("SigPnd:"));
        set.and_then(|set| u64::from_str_radix(set.trim(), 16).ok())
            .is_some_and(|set| set & KILL != 0)
    });
    // Without either it has ended altogether.
    is_pending || flags.is_none_or(|flags| flags & EXITING != 0)
}

/// Lets go although others may have inherited it.
pub(crate) fn let_go(files: &[File]) {
    for file in files {
        let _ = flock(file, FlockOperation::Unlock);
    }
}

/// When a process started, in the kernel's ticks; `None` if it does not run (any more).
pub(crate) fn start_of(pid: u32) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, rest) = stat.rsplit_once(')')?;
    let mut words = rest.split_ascii_whitespace();
    let state = words.next()?;
    if matches!(state, "Z" | "X") {
        return None;
    }
    // The 22nd field; the state was the third.
    words.nth(18)?.parse().ok()
}

/// Who works for a lock alone: `CALL PID START`, one each. Written by its holder under the witness.
pub(crate) fn roster(root: &Path, name: &str) -> PathBuf {
    root.join("roster").join(name)
}

/// Whether the supervisor of a call was killed, so that no process could end what it had started.
pub(crate) fn is_excused(root: &Path, call: &str) -> bool {
    root.join("excused").join(call).exists()
}

/// Processes on the roster that live although their supervisor has let the next one in.
pub(crate) fn survivors(root: &Path, name: &str) -> Vec<(String, u32)> {
    let text = std::fs::read_to_string(roster(root, name)).unwrap_or_default();
    text.lines()
        .filter_map(|line| {
            let mut words = line.split(' ');
            let call = words.next()?;
            let pid: u32 = words.next()?.parse().ok()?;
            let start: u64 = words.next()?.parse().ok()?;
            (start_of(pid) == Some(start) && !is_excused(root, call))
                .then(|| (call.to_owned(), pid))
        })
        .collect()
}
