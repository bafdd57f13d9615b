//! The system calls that rustix lacks: locks on ranges of bytes that belong to an open file, and the session and group of a
//! process outside of this PID namespace. An answer of -1 is the error of the call, and nothing is decided here.

use super::{BorrowedDescriptor, Errno};
use std::io;
use std::os::fd::AsRawFd;
use std::ptr;

/// Takes or gives back a range, if that is possible at once.
pub(super) fn set(file: BorrowedDescriptor<'_>, range: &libc::flock) -> Result<(), Errno> {
    call(file, libc::F_OFD_SETLK, &mut range.clone())
}

/// Takes a range, sleeping until it can be had.
pub(super) fn wait(file: BorrowedDescriptor<'_>, range: &libc::flock) -> Result<(), Errno> {
    call(file, libc::F_OFD_SETLKW, &mut range.clone())
}

/// Writes into the range which process has a part of it.
pub(super) fn look(file: BorrowedDescriptor<'_>, range: &mut libc::flock) -> Result<(), Errno> {
    call(file, libc::F_OFD_GETLK, range)
}

fn call(file: BorrowedDescriptor<'_>, command: i32, range: &mut libc::flock) -> Result<(), Errno> {
    // SAFETY: the descriptor is open for the length of the call, and all three commands read and write one
    // `struct flock`, which `range` points at and borrows exclusively.
    answer(unsafe { libc::fcntl(file.as_raw_fd(), command, ptr::from_mut(range)) }).map(drop)
}

/// The number of a process's session; 0 if its leader is outside of this PID namespace.
///
/// rustix does not know this 0: its `getsid`, `getpgid` and `getpgrp` make a `Pid` of it without a look, which is
/// undefined for a number that cannot be 0.
pub fn session_of(pid: i32) -> Result<i32, Errno> {
    // SAFETY: takes a number and touches no memory.
    answer(unsafe { libc::getsid(pid) })
}

/// The number of a process's group, as [`session_of`].
pub fn group_of(pid: i32) -> Result<i32, Errno> {
    // SAFETY: takes a number and touches no memory.
    answer(unsafe { libc::getpgid(pid) })
}

fn answer(answer: i32) -> Result<i32, Errno> {
    if answer == -1 {
        let error = io::Error::last_os_error();
        return Err(Errno::from_io_error(&error).unwrap_or(Errno::IO));
    }
    Ok(answer)
}
