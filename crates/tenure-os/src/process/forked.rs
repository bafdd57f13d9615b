//! When a child of this process started, without a look at `/proc`.
//!
//! The kernel notes the start of a process from its boot clock, and shows it in ticks of ten milliseconds. Where this
//! process has read the same clock before the fork and after it, and both readings lie in one tick, the start lies in it
//! too. So a run that names its command needs no file of `/proc`, which takes as long as ten other calls: the kernel
//! makes it while it is opened.
//!
//! Whether a tick ends in between is chance. The builds with a clock for tests look each time: those tests kill a run at each
//! of its calls, and count them.

use super::start_time;

/// The moment before a fork.
#[derive(Debug, Clone, Copy)]
pub struct BeforeFork {
    #[cfg(target_os = "linux")]
    boot_ns: Option<u64>,
}

impl BeforeFork {
    /// To be called before the fork.
    #[must_use]
    pub fn now() -> Self {
        Self {
            #[cfg(target_os = "linux")]
            boot_ns: if cfg!(feature = "testing-clock") {
                None
            } else {
                crate::clock::boot_ns()
            },
        }
    }

    /// When the child started that was forked since, as [`start_time`] gives it. To be called before it is collected.
    pub fn start_time(self, child: u32) -> Option<u64> {
        #[cfg(target_os = "linux")]
        if let (Some(before), Some(after)) = (self.boot_ns, crate::clock::boot_ns())
            && let Some(tick) = one_tick(before, after)
        {
            return Some(tick);
        }
        start_time(child)
    }
}

/// A tick of the start times that the kernel shows.
#[cfg(target_os = "linux")]
const TICK_NS: u64 = crate::clock::TICK_NANOS.unsigned_abs();

/// How near to a tick's end a reading may not be: another processor's reading of the clock may be some nanoseconds off.
#[cfg(target_os = "linux")]
const MARGIN_NS: u64 = 10_000;

/// The tick in which both readings lie, and all between them.
#[cfg(target_os = "linux")]
fn one_tick(before: u64, after: u64) -> Option<u64> {
    let first = before.checked_sub(MARGIN_NS)? / TICK_NS;
    let last = after.checked_add(MARGIN_NS)? / TICK_NS;
    (first == last).then_some(first)
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn a_child_started_when_the_kernel_says_so() {
        let mut without_a_look = 0;
        for _ in 0..200 {
            let before = BeforeFork {
                boot_ns: crate::clock::boot_ns(),
            };
            let mut child = Command::new("true").spawn().expect("a child");
            let after = crate::clock::boot_ns();
            let known = one_tick(before.boot_ns.expect("a clock"), after.expect("a clock"));
            without_a_look += usize::from(known.is_some());
            let shown = start_time(child.id());
            assert_eq!(before.start_time(child.id()), shown);
            assert!(known.is_none() || known == shown, "{known:?}, {shown:?}");
            child.wait().expect("its end");
        }
        assert!(without_a_look > 20, "{without_a_look}: mostly it is known");
    }

    #[test]
    fn two_readings_are_in_one_tick_where_neither_is_near_its_end() {
        let tick = one_tick;
        assert_eq!(tick(30_010_000, 39_989_999), Some(3));
        assert_eq!(tick(30_009_999, 39_989_999), None);
        assert_eq!(tick(30_010_000, 39_990_000), None);
        assert_eq!(tick(39_000_000, 41_000_000), None);
        assert_eq!(tick(9_999, 20_000), None, "the machine's first moment");
    }
}
