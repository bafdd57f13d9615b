//! A descriptor that this program was given by its number, from the program that it was before an exec.
//!
//! Nothing but the number says which it is, so what is open there is compared first. The only unsafe code of the
//! library on Linux.

#![allow(unsafe_code, reason = "a number becomes a descriptor")]

use super::{Descriptor, facts};
use std::os::fd::{BorrowedFd, FromRawFd};

/// The descriptor of this number, if it is this file (device and number). The caller was told that it is left for it, so
/// nothing else in this program has it.
pub fn given(number: i32, inode: (u64, u64)) -> Option<Descriptor> {
    if number < 0 {
        return None;
    }
    // SAFETY: it is not -1, and the look is over before anything else happens to it. Of a number that is not open, the look
    // is an error.
    let seen = facts(unsafe { BorrowedFd::borrow_raw(number) }).ok()?;
    if seen.inode() != inode {
        return None;
    }
    // SAFETY: it is open, and left for this caller alone.
    Some(unsafe { Descriptor::from_raw_fd(number) })
}
