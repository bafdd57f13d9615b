//! Open-file-description locks on macOS, whose kernel has them and for which `nix` does not offer
//! them. The only unsafe code of the library on this system.

use super::{BorrowedDescriptor, Errno};
use nix::libc;
use std::os::fd::AsRawFd;

/// Takes or gives back a range, if that is possible at once.
pub(super) fn set(file: BorrowedDescriptor<'_>, range: &libc::flock) -> Result<(), Errno> {
    call(file, libc::F_OFD_SETLK, &mut range.clone())
}

/// Takes a range, sleeping until it can be had.
pub(super) fn wait(file: BorrowedDescriptor<'_>, range: &libc::flock) -> Result<(), Errno> {
    call(file, libc::F_OFD_SETLKW, &mut range.clone())
}

/// Writes into the range who has a part of it.
pub(super) fn look(file: BorrowedDescriptor<'_>, range: &mut libc::flock) -> Result<(), Errno> {
    call(file, libc::F_OFD_GETLK, range)
}

fn call(file: BorrowedDescriptor<'_>, command: i32, range: &mut libc::flock) -> Result<(), Errno> {
    // SAFETY: the descriptor is open for the length of the call, and all three commands read and
    // write one `struct flock`, which `range` points at and nobody else has.
    let answer = unsafe { libc::fcntl(file.as_raw_fd(), command, std::ptr::from_mut(range)) };
    if answer == -1 {
        // SAFETY: the address is this thread's own errno, which is always readable.
        return Err(Errno::from_raw_os_error(unsafe { *libc::__error() }));
    }
    Ok(())
}
