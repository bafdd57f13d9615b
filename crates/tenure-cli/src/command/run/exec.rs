//! `run --exec`: becomes the command, which keeps the lock.
//!
//! # Crash safety
//! The claim names this process, and `execve` changes neither its number nor its start time. So the same
//! claim is true from the grant to the command's end. The command and all processes that it starts inherit
//! the liveness lock. No supervisor is left to release. When the last of these processes is gone, the kernel
//! releases the liveness lock, and the next caller removes the claim. A death between any two steps amounts
//! to the same.
//!
//! Only a lock for which the kernel vouches can be held like this. A lock that has to be renewed, or
//! published for other programs and withdrawn, needs a supervisor. `request` has refused it before.

use super::acquire_all::Hold;
#[cfg(unix)]
use crate::signals;
use crate::signals::Signals;
use crate::store::Part;
use crate::supervise::locks::SpawnError;
use std::process::Command;
use tenure_core::{Event, Holder, Takeover};
use tenure_store::profile::{ENDS_WITHOUT_RELEASE, ends_without_release};

/// Marks a claim that will end without a release.
pub(super) fn mark(holder: &mut Holder) {
    let mark = (ENDS_WITHOUT_RELEASE.to_owned(), "true".to_owned());
    holder.facts.push(mark);
}

/// Whether an event on the way to a grant is the ordinary end of such a claim.
pub(crate) fn is_ordinary_end(event: &Event) -> bool {
    match event {
        Event::Stolen {
            why: Takeover::Stale(_),
            previous: Some(claim),
            ..
        } => ends_without_release(claim),
        _ => false,
    }
}

/// Not on Windows: `request` refuses `--exec` before anything is touched.
#[cfg(windows)]
#[allow(clippy::unnecessary_wraps, reason = "one surface with what Unix does")]
pub(super) fn replace_self(
    _: Command,
    _: Signals,
    _: &[Hold<'_>],
    _: &[Part],
) -> Option<SpawnError> {
    Some(SpawnError::Command(std::io::ErrorKind::Unsupported.into()))
}

/// Becomes the command. Comes back only if that failed; without an error, if a signal came first.
#[cfg(unix)]
#[cold]
#[inline(never)]
pub(super) fn replace_self(
    mut command: Command,
    signals: Signals,
    holds: &[Hold<'_>],
    parts: &[Part],
) -> Option<SpawnError> {
    use rustix::io::{FdFlags, fcntl_setfd, retry_on_intr};
    use std::os::unix::process::CommandExt;
    signals.give_back(&mut command);
    // A signal that came before its disposition was given back has only been noted. From here on a
    // signal acts as it does on the command.
    if signals::stop_asked().is_some() {
        return None;
    }
    signals::pause_if_asked();
    let held = holds.iter().filter_map(|hold| hold.handle.descriptor());
    for liveness_lock in held.chain(parts.iter().filter_map(|part| part.descriptor())) {
        if let Err(errno) = retry_on_intr(|| fcntl_setfd(liveness_lock, FdFlags::empty())) {
            return Some(SpawnError::LivenessLock(errno.into()));
        }
    }
    Some(SpawnError::Command(command.exec()))
}
