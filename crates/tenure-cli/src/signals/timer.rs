//! The timer that interrupts a sleep, by SIGALRM: a POSIX timer on the clock that never steps. Where this process may have no
//! signal in a queue (`RLIMIT_SIGPENDING`), which such a timer needs, the timer that each process has.
//!
//! POSIX lets a handler set it. `signals` says what the beats are for.

use std::io;
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::time::Duration;

/// Null until the first contended wait.
static TIMER: AtomicPtr<libc::c_void> = AtomicPtr::new(ptr::null_mut());

/// Whether there is one.
pub(super) fn is_made() -> bool {
    !TIMER.load(Ordering::SeqCst).is_null()
}

/// Whether a signal with this code is one of its beats, and none that another process or an alarm sent.
pub(super) fn is_beat(code: i32) -> bool {
    let is_of_process = TIMER.load(Ordering::SeqCst) == of_process();
    code == libc::SI_TIMER || (is_of_process && code > 0)
}

/// Stands for the timer that each process has; no id has this value.
fn of_process() -> *mut libc::c_void {
    ptr::without_provenance_mut(usize::MAX)
}

/// Makes it. It does not beat yet, and lives as long as we do.
///
/// # Errors
/// - The system has no more timers.
pub(super) fn make() -> io::Result<()> {
    // SAFETY: the event and the id are valid for the call.
    unsafe {
        let mut event: libc::sigevent = MaybeUninit::zeroed().assume_init();
        event.sigev_notify = libc::SIGEV_SIGNAL;
        event.sigev_signo = libc::SIGALRM;
        let mut id: libc::timer_t = ptr::null_mut();
        if libc::timer_create(libc::CLOCK_MONOTONIC, &raw mut event, &raw mut id) != 0 {
            let error = io::Error::last_os_error();
            if error.raw_os_error() != Some(libc::EAGAIN) {
                return Err(error);
            }
            TIMER.store(of_process(), Ordering::SeqCst);
            return Ok(());
        }
        // The first timer of a process may have the id 0; one more than the id is never null.
        TIMER.store(id.wrapping_byte_add(1), Ordering::SeqCst);
    }
    Ok(())
}

/// Lets it beat after `first`, and again after each `interval`; not at all for a zero.
pub(super) fn set(first: Duration, interval: Duration) {
    let id = TIMER.load(Ordering::SeqCst);
    if id.is_null() {
        return;
    }
    // No wait is longer than a year, so every field takes its number on every platform.
    let spec = |duration: Duration| libc::timespec {
        tv_sec: duration.as_secs().try_into().unwrap_or(i32::MAX.into()),
        tv_nsec: duration.subsec_nanos().into(),
    };
    if id == of_process() {
        set_of_process(first, interval);
        return;
    }
    let value = libc::itimerspec {
        it_interval: spec(interval),
        it_value: spec(first),
    };
    // SAFETY: timer_settime is async-signal-safe; the id came from timer_create.
    unsafe {
        libc::timer_settime(
            id.wrapping_byte_sub(1),
            0,
            &raw const value,
            ptr::null_mut(),
        );
    }
}

/// setitimer(2) is a system call and nothing around it, so a handler may call it here.
fn set_of_process(first: Duration, interval: Duration) {
    // A time shorter than a microsecond must not become zero.
    let spec = |duration: Duration| libc::timeval {
        tv_sec: duration.as_secs().try_into().unwrap_or(i32::MAX.into()),
        tv_usec: duration.subsec_nanos().div_ceil(1_000).min(999_999).into(),
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
