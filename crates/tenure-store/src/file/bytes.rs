//! Kernel locks on single bytes far beyond the data of a file.
//!
//! The locks belong to an open file, not to the process. Closing another descriptor of the same file
//! releases nothing (the trap of the older POSIX locks). The kernel releases the locks when the open
//! file is closed, however that happens. On Unix they are open-file-description locks, which copies of
//! the descriptor share: a command that inherits one keeps its supervisor's liveness lock held. On
//! Windows (`LockFileEx`) they end with the process that took them, even if another process has inherited the handle.
//!
//! An owner locks a byte exclusively; a waiter locks it *shared*, so waiters never look like owners to
//! each other. Looking ([`probe`]) takes nothing at all on Unix; on Windows it takes the byte *shared*
//! for an instant. An owner cannot meet that: it takes its byte before its claim stands in the list, and
//! callers look at a byte only after that. Only the byte of a reserved place is taken again, and there
//! the owner tries again.

use tenure_os::os::{self, BorrowedDescriptor, Errno};

/// Where the lock bytes begin: beyond any data, and low enough that a 53-bit number added to it is still
/// a file offset.
const BASE: i64 = 1 << 60;

/// The distance from the bytes of the tickets to those of the turns: twice the highest ticket.
const TURNS: i64 = 1 << 54;

/// The distance from the bytes of the tickets to those of the runs within a hold, which lie behind those
/// of the turns.
const WITHIN: i64 = 1 << 55;

/// How often a failed unlock is tried again.
const UNLOCK_RETRIES: u32 = 3;

/// A byte that can be locked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Byte(i64);

impl Byte {
    /// The byte that a caller holds during one transition.
    pub const GUARD: Self = Self(BASE);

    /// The byte beside the guard. All runs that work within any hold of the lock share it.
    pub(super) const WITHIN_ANY: Self = Self(BASE - 1);

    /// Bytes of no lock, for a trial.
    #[cfg(unix)]
    pub(super) const TRIED: Self = Self(BASE - 3);
    #[cfg(unix)]
    pub(super) const KEPT: Self = Self(BASE - 2);

    /// The byte that the runs within the hold of this ticket share.
    pub(super) fn of_within(ticket: u64) -> Self {
        let Self(ticket) = Self::of_ticket(ticket);
        Self(ticket.saturating_add(WITHIN))
    }

    /// The byte of one ticket. Tickets begin at 1, so none of them is the guard.
    pub fn of_ticket(ticket: u64) -> Self {
        Self(BASE.saturating_add(i64::try_from(ticket).unwrap_or(i64::MAX - BASE)))
    }

    /// The byte that a claim keeps while it waits, if its grant lets other waiters go on.
    pub fn of_turn(ticket: u64) -> Self {
        let Self(ticket) = Self::of_ticket(ticket);
        Self(ticket.saturating_add(TURNS))
    }
}

/// Whether a process keeps the byte of a ticket locked, in the list that is open as `list`, through a descriptor of its own. The kernel
/// says so, and no file: it shows the locks of each descriptor (`/proc/PID/fdinfo`) and the file behind it
/// (`/proc/PID/fd`). The device that it prints beside a lock is another one on btrfs and overlay, so the file itself is compared.
///
/// # Errors
/// - The system's, if it does not show the descriptors: of another user's process, or to root without
///   `CAP_SYS_PTRACE`.
#[cfg(target_os = "linux")]
pub fn is_kept_by(pid: u32, list: &std::path::Path, ticket: u64) -> std::io::Result<bool> {
    keeps(
        pid,
        &std::fs::symlink_metadata(list)?,
        Byte::of_ticket(ticket),
    )
}

/// The process that keeps a byte of an open file locked, where the system shows it: for a report, and no proof. A process
/// of another user is not shown, and neither is one outside of this PID namespace.
#[cfg(target_os = "linux")]
pub(super) fn keeper_of(file: BorrowedDescriptor<'_>, byte: Byte) -> Option<u32> {
    use std::os::fd::AsRawFd;
    let own = std::process::id();
    let file = std::fs::metadata(format!("/proc/self/fd/{}", file.as_raw_fd())).ok()?;
    let processes = std::fs::read_dir("/proc").ok()?;
    let pids = processes.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    pids.filter(|pid| *pid != own)
        .find(|pid| keeps(*pid, &file, byte).unwrap_or(false))
}

#[cfg(not(target_os = "linux"))]
pub(super) fn keeper_of(_: BorrowedDescriptor<'_>, _: Byte) -> Option<u32> {
    None
}

#[cfg(target_os = "linux")]
fn keeps(pid: u32, wanted: &std::fs::Metadata, Byte(byte): Byte) -> std::io::Result<bool> {
    use std::os::unix::fs::MetadataExt;
    for descriptor in std::fs::read_dir(format!("/proc/{pid}/fd"))? {
        let name = descriptor?.file_name();
        let name = name.to_string_lossy();
        let Ok(file) = std::fs::metadata(format!("/proc/{pid}/fd/{name}")) else {
            // The descriptor was closed meanwhile.
            continue;
        };
        if (file.dev(), file.ino()) != (wanted.dev(), wanted.ino()) {
            continue;
        }
        let shown = std::fs::read_to_string(format!("/proc/{pid}/fdinfo/{name}"));
        if shown
            .unwrap_or_default()
            .lines()
            .any(|line| locks(line, byte))
        {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Whether a line of fdinfo (`lock: 1: OFDLCK ADVISORY WRITE -1 fe:01:7 100 100`) locks a byte exclusively.
#[cfg(target_os = "linux")]
fn locks(line: &str, byte: i64) -> bool {
    let mut words = line.split_ascii_whitespace();
    let is_lock = words.next() == Some("lock:") && words.next().is_some();
    let kinds = [words.next(), words.next(), words.next()];
    let range = words.skip(2).map(|word| match word {
        "EOF" => Some(i64::MAX),
        word => word.parse().ok(),
    });
    let range: Vec<_> = range.collect();
    is_lock
        && kinds == [Some("OFDLCK"), Some("ADVISORY"), Some("WRITE")]
        && matches!(*range, [Some(from), Some(to)] if (from..=to).contains(&byte))
}

/// How a byte is locked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Mode {
    /// By its owner.
    Exclusive,
    /// By a waiter behind the owner, or by a run within a hold.
    Shared,
}

impl Mode {
    fn is_exclusive(self) -> bool {
        self == Self::Exclusive
    }
}

/// Takes a byte if that is possible at once. False if another open file has it.
pub(super) fn try_lock(
    file: BorrowedDescriptor<'_>,
    byte: Byte,
    mode: Mode,
) -> Result<bool, Errno> {
    os::try_lock_byte(file, byte.0, mode.is_exclusive())
}

/// Takes the guard and the byte beside it, if that is possible at once: then no run works within any
/// hold of the lock. It is one call, because two would cost every release another system call.
pub(super) fn try_guard_alone(file: BorrowedDescriptor<'_>) -> Result<bool, Errno> {
    os::try_lock_both(file, Byte::GUARD.0)
}

/// Releases the guard, and the byte beside it if that was taken too. Repeats a failed call as [`unlock`]
/// does.
pub(super) fn unguard(file: BorrowedDescriptor<'_>) -> Result<(), Errno> {
    persistently(|| os::unlock_both(file, Byte::GUARD.0))
}

/// Releases every byte that this open file has: the guard, and those of a claim.
pub(super) fn unlock_all(file: BorrowedDescriptor<'_>) -> Result<(), Errno> {
    persistently(|| os::unlock_from(file, Byte::WITHIN_ANY.0))
}

/// Whether another open file has the byte, exclusively or shared. Takes nothing on Unix.
pub(super) fn is_shared(file: BorrowedDescriptor<'_>, byte: Byte) -> Result<bool, Errno> {
    os::is_byte_shared(file, byte.0)
}

/// Takes a byte, sleeping in the kernel for as long as another open file has it.
///
/// # Errors
/// - `INTR` when a signal handler ran; nothing is taken then.
pub(super) fn lock(file: BorrowedDescriptor<'_>, byte: Byte, mode: Mode) -> Result<(), Errno> {
    os::lock_byte(file, byte.0, mode.is_exclusive())
}

/// Releases a byte. Releasing a byte that is not held is no error.
///
/// A failed call is repeated. Closing the file would release the byte as well, but a caller that waits
/// or works keeps the file open. Meanwhile the byte would exclude the very callers that it waits for.
pub(super) fn unlock(file: BorrowedDescriptor<'_>, byte: Byte) -> Result<(), Errno> {
    persistently(|| os::unlock_byte(file, byte.0))
}

fn persistently(mut unlock: impl FnMut() -> Result<(), Errno>) -> Result<(), Errno> {
    let mut tried = unlock();
    for _ in 0..UNLOCK_RETRIES {
        if tried.is_ok() {
            break;
        }
        tried = unlock();
    }
    tried
}

/// Whether an owner has the byte. Takes nothing that an owner could meet; an open file never sees its
/// own locks.
pub(super) fn probe(file: BorrowedDescriptor<'_>, byte: Byte) -> Result<bool, Errno> {
    os::is_byte_locked(file, byte.0)
}

/// Whether any ticket's byte has an owner, for a list that cannot be read. Called under the guard.
pub(super) fn probe_tickets(file: BorrowedDescriptor<'_>) -> Result<bool, Errno> {
    os::is_any_locked_from(file, Byte::of_ticket(1).0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tenure_os::os::borrow;

    #[test]
    fn an_owner_excludes_everybody_and_is_seen_and_who_waits_is_not() {
        let file = tempfile::NamedTempFile::new().expect("a temporary file");
        let opened = [(); 3].map(|()| file.reopen().expect("an open file of its own"));
        let [one, two, three] = opened.each_ref().map(borrow);
        let (byte, next) = (Byte::of_ticket(7), Byte::of_ticket(8));
        let takes = |who, mode| try_lock(who, byte, mode).expect("an answer");
        let is_seen = |byte| probe(three, byte).expect("an answer");
        let any_is_seen = || probe_tickets(three).expect("an answer");
        let lets_go = |who| unlock(who, byte).expect("it is let go");

        assert!(takes(one, Mode::Exclusive));
        assert!(!takes(two, Mode::Exclusive) && !takes(two, Mode::Shared));
        assert!(is_seen(byte) && any_is_seen() && !is_seen(next));
        lets_go(one);
        assert!(!is_seen(byte) && !any_is_seen());

        assert!(
            takes(one, Mode::Shared) && takes(two, Mode::Shared),
            "both wait"
        );
        assert!(!is_seen(byte), "and no open file owns it");
        assert!(!takes(three, Mode::Exclusive));
        lets_go(one);
        lets_go(two);

        lock(one, Byte::GUARD, Mode::Exclusive).expect("it is free");
        assert!(
            is_seen(Byte::GUARD) && !any_is_seen(),
            "the guard is no ticket"
        );
    }

    #[test]
    fn who_works_within_a_hold_keeps_the_guard_from_being_taken_alone_and_nobody_else() {
        let file = tempfile::NamedTempFile::new().expect("a temporary file");
        let opened = [(); 3].map(|()| file.reopen().expect("an open file of its own"));
        let [one, two, three] = opened.each_ref().map(borrow);
        let within = Byte::of_within(7);
        let is_shared = |byte| is_shared(three, byte).expect("an answer");
        let alone = |who| try_guard_alone(who).expect("an answer");
        let has_it = alone(one);
        assert_eq!(has_it, cfg!(unix));
        assert!(!alone(two), "the first one has it");
        if has_it {
            unguard(one).expect("it is let go");
        }
        for who in [one, two] {
            for byte in [Byte::WITHIN_ANY, within] {
                assert!(try_lock(who, byte, Mode::Shared).expect("an answer"));
            }
        }
        assert!(is_shared(within) && !is_shared(Byte::of_within(8)));
        assert!(
            !probe(three, within).expect("an answer"),
            "no open file owns it"
        );
        assert_eq!(probe_tickets(three), Ok(false), "nor is it a place in line");
        assert!(!alone(three));
        assert!(try_lock(three, Byte::GUARD, Mode::Exclusive).expect("an answer"));
        unguard(three).expect("it is let go");
        for who in [one, two] {
            assert!(is_shared(within), "the other one is left");
            unlock(who, within).expect("it is let go");
            unlock(who, Byte::WITHIN_ANY).expect("it is let go");
        }
        assert!(!is_shared(within));
        assert_eq!(alone(three), cfg!(unix));
    }

    /// On Windows an open file has no byte but the guard.
    #[cfg(unix)]
    #[test]
    fn an_open_file_lets_go_of_all_its_bytes_at_once() {
        let file = tempfile::NamedTempFile::new().expect("a temporary file");
        let opened = [(); 2].map(|()| file.reopen().expect("an open file of its own"));
        let [one, two] = opened.each_ref().map(borrow);
        let (ticket, turn) = (Byte::of_ticket(7), Byte::of_turn(7));
        let bytes = [
            Byte::WITHIN_ANY,
            Byte::GUARD,
            ticket,
            turn,
            Byte::of_within(7),
        ];
        let all_are = |is_held| bytes.iter().all(|byte| probe(two, *byte) == Ok(is_held));
        for byte in bytes {
            assert_eq!(try_lock(one, byte, Mode::Exclusive), Ok(true));
        }
        assert!(all_are(true));
        unlock_all(one).expect("they are let go");
        assert!(all_are(false));
    }

    #[cfg(unix)]
    #[test]
    fn what_a_trial_locks_stands_directly_before_the_bytes_of_locks() {
        let bytes = [Byte::TRIED, Byte::KEPT, Byte::WITHIN_ANY, Byte::GUARD];
        assert_eq!(bytes.map(|byte| byte.0 - BASE), [-3, -2, -1, 0]);
    }

    #[test]
    fn no_two_bytes_meet_and_none_meets_the_data() {
        let data = Byte(1 << 20);
        let highest = 1 << 53;
        let order = [
            data,
            Byte::WITHIN_ANY,
            Byte::GUARD,
            Byte::of_ticket(1),
            Byte::of_ticket(2),
            Byte::of_ticket(highest),
            Byte::of_turn(1),
            Byte::of_turn(2),
            Byte::of_turn(highest),
            Byte::of_within(1),
            Byte::of_within(2),
            Byte::of_within(highest),
            Byte(i64::MAX),
        ];
        let order = order.map(|byte| byte.0);
        assert!(order.is_sorted_by(|a, b| a < b), "{order:?}");
        // No list has such a ticket; it must not become the byte of another one.
        assert_eq!(Byte::of_ticket(u64::MAX), Byte(i64::MAX));
        assert_eq!(Byte::of_turn(u64::MAX), Byte(i64::MAX));
        assert_eq!(Byte::of_within(u64::MAX), Byte(i64::MAX));
    }
}
