//! How many claims may hold a lock beside each other, and how a queue treats those that wait in it.
//!
//! The modes alone say which claims block each other, for exclusive, shared and counted holds alike. A
//! claim may hold as long as the claims that could block it are fewer than its capacity and than the
//! capacity of each of them, and none of them names another number of slots. What becomes of a claim that may
//! not hold is decided in `claims` and `queue`.

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

    /// Whether two claims may hold at once, as far as their modes alone decide that.
    ///
    /// Two numbers of slots are two opinions about what there is to share. If a claim of 3 slots held beside
    /// one of 2, it could get the number 2, which the other caller has no member for. So it waits until all
    /// those holders have ended.
    pub fn holds_beside(self, other: Self) -> bool {
        match (self, other) {
            (Self::Exclusive, _) | (_, Self::Exclusive) => false,
            (Self::Slots(own), Self::Slots(others)) => own == others,
            (Self::Shared, _) | (_, Self::Shared) => true,
        }
    }
}

/// How a queue treats a claim that enters it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Queueing {
    /// Every claim waits for its turn, without a limit.
    #[default]
    Fifo,
    /// A single claim waits; a newer one takes its place.
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
    fn who_holds_beside_another_names_the_same_number() {
        let [two, three] = [1, 2].map(|more| Mode::Slots(NonZeroU32::MIN.saturating_add(more)));
        for (one, other, expected) in [
            (Mode::Exclusive, Mode::Exclusive, false),
            (Mode::Exclusive, Mode::Shared, false),
            (Mode::Exclusive, two, false),
            (Mode::Shared, Mode::Shared, true),
            (Mode::Shared, two, true),
            (two, two, true),
            (two, three, false),
        ] {
            assert_eq!(one.holds_beside(other), expected, "{one:?} {other:?}");
            assert_eq!(other.holds_beside(one), expected, "{other:?} {one:?}");
        }
    }

    #[test]
    fn only_who_waits_for_a_turn_keeps_its_place() {
        let yields = [Queueing::Fifo, Queueing::Single, Queueing::Max].map(Queueing::yields);
        assert_eq!(yields, [false, true, true]);
    }
}
