//! A lease: how long a claim counts after its last sign of life, where life cannot be seen.

use crate::{Now, Stamp};

/// The time limit of a claim and its last renewal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lease {
    /// How long after a renewal the claim still counts, in milliseconds.
    pub ttl_ms: u64,
    /// The last renewal; the grant itself counts as the first.
    pub renewed: Stamp,
    /// How often it was renewed after the grant.
    pub renewals: u64,
}

impl Lease {
    /// One more sign of life.
    pub fn renew(&mut self, at: Stamp) {
        self.renewed = at;
        self.renewals = self.renewals.saturating_add(1);
    }

    /// Milliseconds since the last renewal.
    pub fn silent_ms(&self, recorded_boot: Option<&str>, now: &Now) -> u64 {
        self.renewed.age_ms(recorded_boot, now)
    }

    /// Whether the heartbeat has been silent for longer than the ttl (strictly).
    pub fn is_silent(&self, recorded_boot: Option<&str>, now: &Now) -> bool {
        self.silent_ms(recorded_boot, now) > self.ttl_ms
    }

    /// Milliseconds until the lease counts as silent; 0 when it does already.
    pub fn remaining_ms(&self, recorded_boot: Option<&str>, now: &Now) -> u64 {
        self.ttl_ms
            .saturating_sub(self.silent_ms(recorded_boot, now))
    }
}
