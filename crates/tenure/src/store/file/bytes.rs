//! Kernel locks on single bytes far beyond the data of a file.
//!
//! They are open-file-description locks: they belong to the descriptor and its copies, not to the
//! process, so a command that inherits the descriptor keeps its supervisor's beacon lit, and
//! closing some other descriptor of the same file gives nothing away (the trap of the older POSIX
//! locks). The kernel lets go of them when the last copy is closed, however that comes about.
//!
//! Owners lock a byte exclusively; whoever waits or looks does so *shared*. Waiters thus never
//! look like owners to each other, and looking ([`probe`]) takes nothing at all.

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, fcntl};
use nix::libc;
use std::os::fd::BorrowedFd;

/// Where the lock bytes begin: beyond any data, and low enough that a number of 53 bits added to
/// it still is a file offset.
const BASE: i64 = 1 << 60;

/// How far behind the bytes of the tickets those of the turns begin: twice the highest ticket.
const TURNS: i64 = 1 << 54;

/// One byte that can be locked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Byte(i64);

impl Byte {
    /// The byte that is held for the length of one transition.
    pub const GUARD: Self = Self(BASE);

    /// The byte of one ticket. Tickets begin at 1, so none is the guard.
    pub fn of_ticket(ticket: u64) -> Self {
        Self(BASE.saturating_add(i64::try_from(ticket).unwrap_or(i64::MAX - BASE)))
    }

    /// The byte that a claim keeps for as long as it waits, where its grant lets others go on.
    pub fn of_turn(ticket: u64) -> Self {
        let Self(ticket) = Self::of_ticket(ticket);
        Self(ticket.saturating_add(TURNS))
    }
}

/// How a byte is locked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// By its owner.
    Exclusive,
    /// By whoever waits for the owner.
    Shared,
}

fn range(byte: Byte, kind: i32) -> libc::flock {
    libc::flock {
        l_type: i16::try_from(kind).unwrap_or(0),
        l_whence: 0, // SEEK_SET
        l_start: byte.0,
        l_len: 1,
        l_pid: 0,
    }
}

fn kind(mode: Mode) -> i32 {
    match mode {
        Mode::Exclusive => libc::F_WRLCK,
        Mode::Shared => libc::F_RDLCK,
    }
}

/// Takes a byte if that is possible at once. False if another descriptor has it.
pub(super) fn try_lock(file: BorrowedFd<'_>, byte: Byte, mode: Mode) -> Result<bool, Errno> {
    match fcntl(file, FcntlArg::F_OFD_SETLK(&range(byte, kind(mode)))) {
        Ok(_) => Ok(true),
        Err(Errno::EAGAIN | Errno::EACCES) => Ok(false),
        Err(errno) => Err(errno),
    }
}

/// Takes a byte, sleeping in the kernel for as long as another descriptor has it.
///
/// # Errors
/// - `EINTR` when a signal handler ran; nothing is taken then.
pub(super) fn lock(file: BorrowedFd<'_>, byte: Byte, mode: Mode) -> Result<(), Errno> {
    fcntl(file, FcntlArg::F_OFD_SETLKW(&range(byte, kind(mode)))).map(|_| ())
}

/// Lets go of a byte. Letting go of one that is not held is no error.
pub(super) fn unlock(file: BorrowedFd<'_>, byte: Byte) -> Result<(), Errno> {
    fcntl(file, FcntlArg::F_OFD_SETLK(&range(byte, libc::F_UNLCK))).map(|_| ())
}

/// Whether an owner has the byte. Takes nothing; a descriptor never sees its own locks.
pub(super) fn probe(file: BorrowedFd<'_>, byte: Byte) -> Result<bool, Errno> {
    probe_range(file, range(byte, libc::F_RDLCK))
}

/// Whether any ticket's byte has an owner, for a list that cannot be read.
pub(super) fn probe_tickets(file: BorrowedFd<'_>) -> Result<bool, Errno> {
    let tickets = libc::flock {
        l_len: 0, // to the end of all offsets
        ..range(Byte::of_ticket(1), libc::F_RDLCK)
    };
    probe_range(file, tickets)
}

fn probe_range(file: BorrowedFd<'_>, mut range: libc::flock) -> Result<bool, Errno> {
    fcntl(file, FcntlArg::F_OFD_GETLK(&mut range))?;
    Ok(i32::from(range.l_type) != libc::F_UNLCK)
}
