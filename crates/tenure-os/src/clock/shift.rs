//! By how much this process's boot clock is shifted, so that records never show it.
//!
//! A process in a time namespace (`unshare --time`, some containers) sees a boot clock that is ahead of or
//! behind the machine's own. The start times of all processes are shifted with it. Two processes that
//! compare such numbers across namespaces would take a live owner for a reused number, and a young lease
//! for one that ran out. So every number is brought back to the machine's own boot clock before it is
//! written down or compared. No record shows anything of the namespace.
//!
//! A process that shares the machine's own clock, as nearly all do, pays one system call to know that.

use std::sync::OnceLock;

/// The shift of this process's boot clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shift {
    /// The process's boot clock shows this many nanoseconds more than the machine's own.
    Nanos(i64),
    /// The process is in a namespace that does not say. Its numbers mean nothing to other processes.
    Unknown,
}

impl Shift {
    /// The machine's own reading, in nanoseconds, for one of this process.
    pub(super) fn unshifted(self, nanos: u64) -> u64 {
        match self {
            Self::Nanos(shift) if shift >= 0 => nanos.saturating_sub(shift.unsigned_abs()),
            Self::Nanos(shift) => nanos.saturating_add(shift.unsigned_abs()),
            Self::Unknown => nanos,
        }
    }

    /// The machine's own start time, in clock ticks, for one that this process reads. `None` if it cannot
    /// be told exactly: one tick more or less would be another process.
    pub(crate) fn unshifted_ticks(self, ticks: u64) -> Option<u64> {
        match self {
            Self::Nanos(0) => Some(ticks),
            Self::Nanos(shift) if shift % TICK_NANOS == 0 => {
                ticks.checked_add_signed((shift / TICK_NANOS).checked_neg()?)
            }
            Self::Nanos(_) | Self::Unknown => None,
        }
    }
}

/// A clock tick of `/proc/PID/stat`, which is the same on all known systems (`USER_HZ`).
pub(crate) const TICK_NANOS: i64 = 10_000_000;

/// The time namespace that the machine starts with; the kernel gives it this number for good
/// (`TIME_NS_INIT_INO`).
const INITIAL: u64 = 0xEFFF_FFFA;

/// The shift of this process. It is read once: a process changes its time namespace only by becoming
/// another program.
pub(crate) fn shift() -> Shift {
    static SHIFT: OnceLock<Shift> = OnceLock::new();
    *SHIFT.get_or_init(find)
}

fn find() -> Shift {
    let namespace = |file: &str| rustix::fs::stat(file).ok().map(|stat| stat.st_ino);
    match namespace("/proc/self/ns/time") {
        // A kernel without such namespaces, or no `/proc`. Then no process tells its PID namespace or boot, and all that it
        // records of times and starts is unknown to others.
        None | Some(INITIAL) => Shift::Nanos(0),
        Some(own) => in_another(own, namespace("/proc/self/ns/time_for_children")),
    }
}

#[cold]
fn in_another(own: u64, of_children: Option<u64>) -> Shift {
    // The file below is about the namespace of this process's future children.
    if of_children != Some(own) {
        return Shift::Unknown;
    }
    let offsets = std::fs::read_to_string("/proc/self/timens_offsets").ok();
    offsets
        .as_deref()
        .and_then(boot_offset)
        .map_or(Shift::Unknown, Shift::Nanos)
}

/// The boot clock's line: its name (older kernels: its number), seconds, nanoseconds.
fn boot_offset(offsets: &str) -> Option<i64> {
    let mut lines = offsets.lines().map(str::split_ascii_whitespace);
    lines.find_map(|mut words| {
        words
            .next()
            .filter(|clock| ["boottime", "7"].contains(clock))?;
        let seconds: i64 = words.next()?.parse().ok()?;
        let nanos: i64 = words.next()?.parse().ok()?;
        seconds.checked_mul(1_000_000_000)?.checked_add(nanos)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_offset_of_the_boot_clock_is_read_in_both_of_its_spellings() {
        let newer = "monotonic           1         0\nboottime      1000000       500\n";
        assert_eq!(boot_offset(newer), Some(1_000_000_000_000_500));
        assert_eq!(boot_offset("1 5 0\n7 -5 0\n"), Some(-5_000_000_000));
        for text in [
            "",
            "monotonic 1 0\n",
            "boottime\n",
            "boottime x 0\n",
            "boottime 9223372036854775807 0",
        ] {
            assert_eq!(boot_offset(text), None, "{text:?}");
        }
    }

    #[test]
    fn what_was_shifted_is_brought_back_or_not_told() {
        let hour = 3_600_000_000_000;
        assert_eq!(Shift::Nanos(hour).unshifted(3_600_000_000_007), 7);
        assert_eq!(Shift::Nanos(-7).unshifted(1), 8);
        assert_eq!(Shift::Nanos(0).unshifted_ticks(9), Some(9));
        assert_eq!(Shift::Nanos(hour).unshifted_ticks(360_009), Some(9));
        assert_eq!(Shift::Nanos(-hour).unshifted_ticks(9), Some(360_009));
        assert_eq!(
            Shift::Nanos(hour).unshifted_ticks(9),
            None,
            "before the boot"
        );
        assert_eq!(Shift::Nanos(1).unshifted_ticks(9), None, "a part of a tick");
        assert_eq!(Shift::Unknown.unshifted_ticks(9), None);
    }
}
