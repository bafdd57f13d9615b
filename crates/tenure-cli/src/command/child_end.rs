//! The end of a child that a caller waits for within a time: of a hook, of git, of a program that is asked something.
//!
//! Whether a child that takes longer is ended, and how, its caller decides.

use std::process::Child;
use std::time::{Duration, Instant};
use tenure_os::clock::instant;

/// How often the child is looked at where the system has no handle by which to wait for it.
const NAP: Duration = Duration::from_millis(10);

/// How a wait for a child ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ChildEnd {
    /// The child has ended; its status is there to be collected.
    Ended,
    TooLong,
    /// The caller stops waiting.
    Stopped,
}

/// Waits until a child has ended, or this time is over. `goes_on` is called before each sleep, which lasts `look` at
/// most, and says whether the caller still waits.
pub(super) fn child_end(
    child: &mut Child,
    patience: Duration,
    look: Duration,
    mut goes_on: impl FnMut() -> bool,
) -> ChildEnd {
    let end = instant().checked_add(patience);
    let handle = handle_of(child);
    loop {
        if !matches!(child.try_wait(), Ok(None)) {
            return ChildEnd::Ended;
        }
        if end.is_some_and(|end| instant() >= end) {
            return ChildEnd::TooLong;
        }
        if !goes_on() {
            return ChildEnd::Stopped;
        }
        // However a sleep ends: everything that can have happened is looked at then.
        sleep(handle.as_ref(), look, end);
    }
}

/// A handle of a child's end. The child is not collected yet, so its number is its own.
#[cfg(target_os = "linux")]
fn handle_of(child: &Child) -> Option<Handle> {
    use rustix::process::{Pid, PidfdFlags, pidfd_open};
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw)?;
    pidfd_open(pid, PidfdFlags::empty()).ok()
}

#[cfg(not(target_os = "linux"))]
fn handle_of(_: &Child) -> Option<Handle> {
    None
}

#[cfg(unix)]
type Handle = std::os::fd::OwnedFd;

#[cfg(windows)]
type Handle = std::convert::Infallible;

/// Sleeps until a child has ended, if there is a handle of that, and not longer than `look` or until `end`.
#[cfg(unix)]
fn sleep(handle: Option<&Handle>, look: Duration, end: Option<Instant>) {
    use std::os::fd::AsFd as _;
    use tenure_store::file::poll_readable;
    let handles: Vec<_> = handle.iter().map(|handle| handle.as_fd()).collect();
    let nap = if handles.is_empty() { NAP } else { look };
    let until = [end, instant().checked_add(look)];
    let _ = poll_readable(&handles, nap, until.into_iter().flatten().min());
}

#[cfg(windows)]
fn sleep(_: Option<&Handle>, look: Duration, _: Option<Instant>) {
    tenure_os::clock::nap(NAP.min(look));
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn a_wait_ends_with_the_child_its_time_or_its_caller() {
        let begin = |seconds| Command::new("sleep").arg(seconds).spawn().expect("sleep");
        let long = Duration::from_secs(60);
        let mut quick = begin("0");
        assert_eq!(child_end(&mut quick, long, long, || true), ChildEnd::Ended);
        let mut slow = begin("60");
        let short = Duration::from_millis(30);
        assert_eq!(
            child_end(&mut slow, short, long, || true),
            ChildEnd::TooLong
        );
        let mut looks = 0;
        let goes_on = || {
            looks += 1;
            looks < 3
        };
        assert_eq!(
            child_end(&mut slow, long, short, goes_on),
            ChildEnd::Stopped
        );
        slow.kill().expect("a signal");
        slow.wait().expect("its end");
    }
}
