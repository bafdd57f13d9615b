//! How many may hold a lock beside each other, and how a queue treats those who wait in it.
//!
//! Who stands in whose way follows from the modes alone, for exclusive, shared and counted holds
//! alike: a claim may hold as long as those in its way are fewer than it and each of them
//! tolerates. What becomes of a claim that may not is `claims`' and `queue`'s business.

use core::num::NonZeroU32;

/// How a claim holds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Mode {
    /// Alone.
    #[default]
    Exclusive,
    /// Beside every other shared claim.
    Shared,
    /// Beside others, all together no more than so many.
    Slots(NonZeroU32),
}

impl Mode {
    /// How many claims may hold at once where this is one of them.
    pub fn capacity(self) -> usize {
        match self {
            Self::Exclusive => 1,
            Self::Shared => usize::MAX,
            Self::Slots(slots) => usize::try_from(slots.get()).unwrap_or(usize::MAX),
        }
    }
}

/// How a queue treats whoever enters it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Queueing {
    /// Everybody waits for a turn, without a limit.
    #[default]
    Fifo,
    /// One waits; whoever comes later takes its place.
    Single,
    /// At most [`PENDING_MAX`] wait, and whoever comes later is refused.
    Max,
}

/// How many wait at most in a queue that counts: as many as GitHub lets.
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
