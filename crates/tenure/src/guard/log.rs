//! What guards tell the log, under names that stay: filters and tests may rely on them.
//!
//! Everything goes through `tracing`, so nothing is printed unless the application subscribes.

use crate::profile::ends_without_release;
use crate::store::StoreError;
use std::time::Duration;
use tenure_core::{Claim, Event, LockName, Takeover};

pub(super) fn acquired(name: &LockName, claim: &Claim, events: &[Event], waited: Duration) {
    for event in events {
        if let Event::Stolen { why, previous, .. } = event {
            let pid = previous.as_ref().and_then(|claim| claim.holder.process);
            let pid = pid.map(|process| process.pid);
            match why {
                // The claim ended as it had to, and no holder lost anything.
                Takeover::Stale(_) if previous.as_deref().is_some_and(ends_without_release) => {}
                // Its holder ended without a release, which does no harm.
                Takeover::Stale(_) => {
                    tracing::info!(name: "tenure.lock.taken_over", lock = %name, ?why, pid);
                }
                Takeover::Corrupt | Takeover::Active => {
                    tracing::warn!(name: "tenure.lock.taken_over", lock = %name, ?why, pid);
                }
            }
        }
    }
    let waited_ms = u64::try_from(waited.as_millis()).unwrap_or(u64::MAX);
    tracing::debug!(
        name: "tenure.lock.acquired",
        lock = %name,
        token = claim.token,
        request_id = %claim.holder.request_id,
        waited_ms,
    );
}

pub(super) fn released(name: &LockName, token: u64, held_ms: u64) {
    tracing::debug!(name: "tenure.lock.released", lock = %name, token, held_ms);
}

pub(super) fn release_failed(name: &LockName, error: &StoreError) {
    tracing::warn!(name: "tenure.lock.release_failed", lock = %name, %error);
}

pub(super) fn renew_failed(name: &LockName, error: &StoreError) {
    tracing::warn!(name: "tenure.lock.renew_failed", lock = %name, %error);
}

pub(super) fn stop_requested(name: &LockName, token: u64) {
    tracing::info!(name: "tenure.lock.stop_requested", lock = %name, token);
}

pub(super) fn lost(name: &LockName, token: u64) {
    tracing::warn!(name: "tenure.lock.lost", lock = %name, token);
}
