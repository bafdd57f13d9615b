//! A lease: how long a claim counts after its last sign of life, where life cannot be seen.

use crate::policy::{Policy, UnreadableRule};
use crate::{Boot, Now, Stamp};

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

/// How long the holder of a record that cannot be read has been silent, as far as anything says so.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Silence {
    /// How long ago anything spoke for the holder, in milliseconds. `u64::MAX` where nothing tells.
    pub silent_ms: u64,
    /// The ttl of the hold, in milliseconds; 0 where none is known.
    pub ttl_ms: u64,
}

impl Silence {
    /// Spoke just now, as it counts where a store does not know when.
    pub const BROKEN: Self = Self {
        silent_ms: 0,
        ttl_ms: 0,
    };

    /// Nothing tells how long it has been.
    pub const UNTOLD: Self = Self {
        silent_ms: u64::MAX,
        ttl_ms: 0,
    };

    /// Milliseconds until force may replace the record. A policy that waits for silence waits for the ttl of the hold, or for
    /// its own where none is known, and a moment more: the hold counts until its ttl has passed (strictly).
    pub fn rest_ms(self, policy: &Policy) -> u64 {
        match policy.unreadable {
            UnreadableRule::Stale | UnreadableRule::RefuseUnlessForced => 0,
            UnreadableRule::RefuseUntilTtl => {
                let ttl_ms = match self.ttl_ms {
                    0 => policy.detached_ttl_ms,
                    known => known,
                };
                ttl_ms.saturating_add(1).saturating_sub(self.silent_ms)
            }
        }
    }
}

impl Lease {
    /// Records a sign of life.
    pub fn renew(&mut self, at: Stamp) {
        self.renewed = at;
        self.renewals = self.renewals.saturating_add(1);
    }

    /// Milliseconds since the last renewal.
    pub fn silent_ms<'a>(&self, recorded_boot: impl Into<Boot<'a>>, now: &Now) -> u64 {
        self.renewed.age_ms(recorded_boot, now)
    }

    /// Whether the heartbeat has been silent for longer than the ttl (strictly).
    pub fn is_silent<'a>(&self, recorded_boot: impl Into<Boot<'a>>, now: &Now) -> bool {
        self.silent_ms(recorded_boot, now) > self.ttl_ms
    }

    /// Milliseconds until the lease counts as silent; 0 when it does already.
    pub fn remaining_ms<'a>(&self, recorded_boot: impl Into<Boot<'a>>, now: &Now) -> u64 {
        self.ttl_ms
            .saturating_sub(self.silent_ms(recorded_boot, now))
    }
}
