//! The timer that interrupts a sleep, by SIGALRM: the one that each process has on macOS, where there are no
//! POSIX timers. Written for that system, and never run.
//!
//! setitimer(2) is not on POSIX's list of what a handler may call, for no reason that is known. It is a
//! system call and nothing around it. On macOS alarm(3), which is on the list, is made of it.
//!
//! A program that set this timer and then became us by `exec` loses it with the first contended wait.

use std::io;
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Set with the first contended wait.
static WANTED: AtomicBool = AtomicBool::new(false);

/// Whether there is one.
pub(super) fn is_made() -> bool {
    WANTED.load(Ordering::SeqCst)
}

/// Whether a signal with this code is one of its beats: nothing tells an alarm of another process from them.
pub(super) fn is_beat(_: i32) -> bool {
    is_made()
}

/// Always succeeds. The timer does not beat yet.
#[allow(clippy::unnecessary_wraps, reason = "one surface")]
pub(super) fn make() -> io::Result<()> {
    WANTED.store(true, Ordering::SeqCst);
    Ok(())
}

/// Lets it beat after `first`, and again after each `interval`; not at all for a zero.
pub(super) fn set(first: Duration, interval: Duration) {
    if !is_made() {
        return;
    }
    // No wait is longer than a year. A time shorter than a microsecond must not become zero.
    let spec = |duration: Duration| libc::timeval {
        tv_sec: duration.as_secs().try_into().unwrap_or(i32::MAX.into()),
        tv_usec: duration
            .subsec_nanos()
            .div_ceil(1_000)
            .min(999_999)
            .try_into()
            .unwrap_or(0),
    };
    let value = libc::itimerval {
        it_interval: spec(interval),
        it_value: spec(first),
    };
    // SAFETY: a plain system call, and the value lives until it returns.
    unsafe {
        libc::setitimer(libc::ITIMER_REAL, &raw const value, ptr::null_mut());
    }
}
