//! The one call of Linux that no crate wraps.

use nix::libc;
use std::mem::MaybeUninit;

/// The state of a clock that no service keeps in step (`TIME_ERROR`).
const OUT_OF_STEP: libc::c_int = 5;

/// Whether the kernel believes that a service keeps its wall clock in step with others (NTP). `None` where it does
/// not tell.
pub(crate) fn clock_is_in_step() -> Option<bool> {
    // SAFETY: a zeroed timex asks for no change, and the kernel fills it.
    let state = unsafe {
        let mut asked: libc::timex = MaybeUninit::zeroed().assume_init();
        libc::adjtimex(&raw mut asked)
    };
    (state >= 0).then_some(state != OUT_OF_STEP)
}
