//! The program that starts `serve` or `mcp`, to which the holds belong: how its end is noticed, and what is said where it
//! is not known.
//!
//! A pidfd tells of the end at once, and means this very process, whatever gets its number later. Where there is none, a
//! server looks from time to time whether it has another parent. The end of stdin alone does not do: a child that the
//! program has forked keeps the other end of the pipe open after the program was killed. `PR_SET_PDEATHSIG` does not do
//! either: it tells of the end of a thread.
//!
//! `serve/parent` and `mcp/client` decide which process it is: a one-shot shell in between counts for the one alone.

use crate::exit::Exit;
use crate::failure::Failure;
use std::os::fd::OwnedFd;

/// A server does not know for which program it holds. `verb` is the server's own.
pub(super) fn unknown(verb: &str, why: &str) -> Failure {
    Failure::new(
        Exit::Precondition,
        "NO_PARENT",
        format!("holds belong to the program that starts {verb}, and it is not known: {why}"),
    )
}

/// What becomes readable at the end of a process, where the system tells of that.
#[cfg(target_os = "linux")]
pub(super) fn handle(pid: u32) -> Option<OwnedFd> {
    use rustix::process::{Pid, PidfdFlags, pidfd_open};
    let pid = Pid::from_raw(i32::try_from(pid).ok()?)?;
    pidfd_open(pid, PidfdFlags::empty()).ok()
}

#[cfg(not(target_os = "linux"))]
pub(super) fn handle(_: u32) -> Option<OwnedFd> {
    None
}
