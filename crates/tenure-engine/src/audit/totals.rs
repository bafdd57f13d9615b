//! Counts of what happened to a lock, made of its events.
//!
//! Each count comes from events of one kind, so an event whose counterpart was lost with an old file is counted all the
//! same: how long a hold took stands in the line of its end.

use super::{Entry, EventName};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// The upper bounds of the buckets of a histogram, in milliseconds.
pub const BOUNDS_MS: [u64; 9] = [
    100, 1_000, 10_000, 60_000, 300_000, 900_000, 3_600_000, 14_400_000, 86_400_000,
];

/// How long callers waited or held.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Histogram {
    /// How many took at most as long as the bound of the same place, and longer than the one before.
    pub counts: [u64; BOUNDS_MS.len()],
    /// How many took longer than all bounds.
    pub longer: u64,
    /// All of them together.
    pub sum_ms: u64,
}

impl Histogram {
    fn add(&mut self, took_ms: u64) {
        let bucket = BOUNDS_MS.iter().position(|bound| took_ms <= *bound);
        let bucket = bucket.and_then(|at| self.counts.get_mut(at));
        count(bucket.unwrap_or(&mut self.longer));
        self.sum_ms = self.sum_ms.saturating_add(took_ms);
    }
}

/// What happened to a lock.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Totals {
    /// Grants.
    pub grants: u64,
    /// Callers that did not get it.
    pub refusals: u64,
    /// Runs that were skipped.
    pub skips: u64,
    /// Takeovers without a release.
    pub takeovers: u64,
    /// Holders that found it not their own any more.
    pub losses: u64,
    /// Holders and waiters that gave up their place.
    pub supersedes: u64,
    /// How long those waited who got the lock.
    pub waits: Histogram,
    /// How long those held it who gave it back.
    pub holds: Histogram,
    /// When it was last granted; 0 if that is not known.
    pub granted_ms: u64,
    /// Refusals since the last grant.
    pub refusals_since_grant: u64,
    /// Skipped runs since the last grant.
    pub skips_since_grant: u64,
}

impl Totals {
    /// Counts an event of this lock. The order in which events are read counts, and not their instants: a clock may be set
    /// back.
    pub fn add(&mut self, event: EventName, entry: &Entry) {
        match event {
            EventName::LockAcquired => {
                count(&mut self.grants);
                if let Some(waited_ms) = entry.number("waited_ms") {
                    self.waits.add(waited_ms);
                }
                self.granted_ms = entry.at_ms();
                self.refusals_since_grant = 0;
                self.skips_since_grant = 0;
            }
            EventName::LockReleased => {
                if let Some(held_ms) = entry.number("held_ms").or_else(|| held_seconds_ms(entry)) {
                    self.holds.add(held_ms);
                }
            }
            EventName::LockRefused => {
                count(&mut self.refusals);
                count(&mut self.refusals_since_grant);
            }
            EventName::LockSkipped => {
                count(&mut self.skips);
                count(&mut self.skips_since_grant);
            }
            EventName::LockStolen => count(&mut self.takeovers),
            EventName::LockLost => count(&mut self.losses),
            EventName::LockSuperseded => count(&mut self.supersedes),
            EventName::LockReleaseFailed
            | EventName::HeartbeatFailed
            | EventName::OrphanEnded
            | EventName::LockCancelled => {}
        }
    }
}

/// Counts one more. Totals are kept in files, which a disk or a person may have damaged.
fn count(total: &mut u64) {
    *total = total.saturating_add(1);
}

/// How long a hold was held, by a line of an earlier version or of another program.
fn held_seconds_ms(entry: &Entry) -> Option<u64> {
    let seconds = entry.fields().get("held_duration_seconds")?.as_f64()?;
    let held = Duration::try_from_secs_f64(seconds).ok()?;
    u64::try_from(held.as_millis()).ok()
}
