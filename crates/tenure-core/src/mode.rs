//! How many claims may hold a lock beside each other, and how a queue treats those that wait in it.
//!
//! The modes alone say which claims block each other, for exclusive, shared and counted holds alike. A
//! claim may hold as long as the claims that could block it are fewer than its capacity and than the
//! capacity of each of them. What becomes of a claim that may not hold is decided in `claims` and `queue`.

use core::num::NonZeroU32;

/// How a claim holds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Mode {
    /// Alone.
    #[default]
    Exclusive,
    /// Beside every other shared claim.
    Shared,
    /// Beside others, at most so many together.
    Slots(NonZeroU32),
}

impl Mode {
    /// How many claims may hold at once if this is one of them.
    pub fn capacity(self) -> usize {
        match self {
            Self::Exclusive => 1,
            Self::Shared => usize::MAX,
            Self::Slots(slots) => usize::try_from(slots.get()).unwrap_or(usize::MAX),
        }
    }
}

/// How a queue treats a claim that enters it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Queueing {
    /// Every claim waits for its turn, without a limit.
    #[default]
    Fifo,
    /// One claim waits; a newer one takes its place.
    Single,
    /// At most [`PENDING_MAX`] claims wait; a further one is refused.
    Max,
}

/// How many claims wait at most in a queue that counts: GitHub has the same limit.
pub const PENDING_MAX: usize = 100;

impl Queueing {
    /// Whether a claim that waits this way gives up its place to a newer one.
    pub fn yields(self) -> bool {
        match self {
            Self::Fifo => false,
            Self::Single | Self::Max => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mode_tolerates_as_many_as_it_says() {
        assert_eq!(Mode::Exclusive.capacity(), 1);
        assert_eq!(Mode::Shared.capacity(), usize::MAX);
        let three = NonZeroU32::MIN.saturating_add(2);
        assert_eq!(Mode::Slots(three).capacity(), 3);
    }

    #[test]
    fn only_who_waits_for_a_turn_keeps_its_place() {
        let yields = [Queueing::Fifo, Queueing::Single, Queueing::Max].map(Queueing::yields);
        assert_eq!(yields, [false, true, true]);
    }
}
