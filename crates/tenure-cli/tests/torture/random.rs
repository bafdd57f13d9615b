//! Numbers that can be drawn again.

/// A sequence that its seed decides (`SplitMix64`).
#[derive(Debug)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64, worker: u64) -> Self {
        let mut random = Self(seed.wrapping_mul(1_000_003).wrapping_add(worker));
        let _ = random.number();
        random
    }

    pub(crate) fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Draws a number of `low..high`.
    pub(crate) fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.number() % (high - low)
    }

    pub(crate) fn one_in(&mut self, chances: u64) -> bool {
        self.number().is_multiple_of(chances)
    }

    /// Draws an element of these.
    pub(crate) fn of<T: Copy>(&mut self, all: &[T]) -> T {
        let last = u64::try_from(all.len()).unwrap_or(1);
        all[usize::try_from(self.between(0, last)).unwrap_or(0)]
    }
}

/// The seed that `TENURE_SEED` names, or another one each time.
pub(crate) fn seed() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    let given = std::env::var("TENURE_SEED").ok();
    let given = given.and_then(|text| text.parse().ok());
    given.unwrap_or_else(|| RandomState::new().hash_one(std::process::id()) % 1_000_000)
}
