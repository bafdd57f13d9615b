//! When a refused caller should come back: a guess from this lock's own past, and only a hint.

use crate::claim::Entry;
use crate::policy::{Policy, UnknownLife};
use crate::time::Now;

/// The shortest hint. Below it a retry costs more than it gains.
pub const RETRY_FLOOR_MS: u64 = 50;
/// The longest hint. Whatever the past says, looking again within five minutes is cheap.
pub const RETRY_CEILING_MS: u64 = 300_000;

/// Milliseconds after which a retry is likely to succeed; always within
/// [`RETRY_FLOOR_MS`]..=[`RETRY_CEILING_MS`].
///
/// The rest of the present hold is guessed as the mean of past holds less its age. A hold that has outlived
/// the mean, or a lock without a past, is guessed to last a quarter of its age longer, at least a second. A
/// detached hold cannot outlast its remaining ttl if its owner cannot be watched, or if the profile never
/// asks for the owner. Each claim in the queue adds one mean hold (without a past: one second).
pub fn retry_after_ms(entry: &Entry, policy: &Policy, now: &Now) -> u64 {
    guess(entry, policy, now).0
}

/// A guess for a person, where something supports it: at least three past holds of a lock whose holders come one
/// after the other, or a limit at which the present hold ends.
pub fn free_in_ms(entry: &Entry, policy: &Policy, now: &Now) -> Option<u64> {
    let (guess, is_supported) = guess(entry, policy, now);
    is_supported.then_some(guess)
}

/// The guess, and whether something supports it.
fn guess(entry: &Entry, policy: &Policy, now: &Now) -> (u64, bool) {
    let each = entry.history.usual_ms().unwrap_or(1_000);
    let in_line = entry.claims.iter().filter(|claim| claim.is_in_line());
    let queued = in_line.count().saturating_sub(1) as u64;
    let is_telling = entry.past_is_telling();
    let (rest, is_supported) = entry.front().map_or((0, false), |claim| {
        let boot = claim.boot();
        let age = claim.since.unwrap_or(claim.entered).age_ms(boot, now);
        let by_past = entry.history.rest_ms(age);
        let guess = by_past.unwrap_or_else(|| (age / 4).max(1_000));
        let lives_by_ttl = claim.holder.process.is_none()
            || (policy.unknown_life == UnknownLife::NotAsked && claim.lease.ttl_ms > 0);
        let by_ttl =
            (claim.kind.is_detached() && lives_by_ttl).then(|| claim.lease.remaining_ms(boot, now));
        let limits = [claim.limited_ms(policy, now), by_ttl];
        let limit = limits.into_iter().flatten().min();
        match limit {
            // A line behind it takes its time as well.
            Some(limit) if limit <= guess => (limit, queued == 0 || is_telling),
            _ => (guess, by_past.is_some() && is_telling),
        }
    });
    let guess = rest.saturating_add(queued.saturating_mul(each));
    (
        guess.clamp(RETRY_FLOOR_MS, RETRY_CEILING_MS),
        is_supported && guess <= RETRY_CEILING_MS,
    )
}
