//! What guards tell the log: a message for a person on call, with what happened and what follows, under the target `tenure`.
//! Names and fields stay: filters and tests may rely on them.
//!
//! Everything goes through `tracing`, so nothing is printed unless the application subscribes.

use crate::profile::ends_without_release;
use crate::store::StoreError;
use std::time::Duration;
use tenure_core::{Claim, Event, LockName, Takeover};

/// What filters name.
const TARGET: &str = "tenure";

pub(super) fn acquired(name: &LockName, claim: &Claim, events: &[Event], waited: Duration) {
    for event in events {
        if let Event::Stolen { why, previous, .. } = event {
            let pid = previous.as_ref().and_then(|claim| claim.holder.process);
            let pid = pid.map(|process| process.pid);
            match why {
                // The claim ended as it had to, and no holder lost anything.
                Takeover::Stale(_) if previous.as_deref().is_some_and(ends_without_release) => {}
                // The holder ended without a release, which does no harm.
                Takeover::Stale(_) => {
                    tracing::info!(
                        name: "tenure.lock.taken_over", target: TARGET, lock = %name, ?why, pid,
                        "{name} was taken over: its holder ended without a release",
                    );
                }
                Takeover::Corrupt => {
                    tracing::warn!(
                        name: "tenure.lock.taken_over", target: TARGET, lock = %name, ?why, pid,
                        "{name} was taken over: its record could not be read, so nobody knows whether a holder is at work",
                    );
                }
                Takeover::Active => {
                    tracing::warn!(
                        name: "tenure.lock.taken_over", target: TARGET, lock = %name, ?why, pid,
                        "{name} was taken over by force: its holder may still be at work",
                    );
                }
            }
        }
    }
    let waited_ms = u64::try_from(waited.as_millis()).unwrap_or(u64::MAX);
    tracing::debug!(
        name: "tenure.lock.acquired",
        target: TARGET,
        lock = %name,
        token = claim.token,
        request_id = %claim.holder.request_id,
        waited_ms,
        "{name} is held",
    );
}

pub(super) fn released(name: &LockName, token: u64, held_ms: u64) {
    tracing::debug!(
        name: "tenure.lock.released", target: TARGET, lock = %name, token, held_ms,
        "{name} was released",
    );
}

pub(super) fn release_failed(name: &LockName, error: &str) {
    tracing::warn!(
        name: "tenure.lock.release_failed", target: TARGET, lock = %name, error,
        "{name} was not released: in a folder the next caller sweeps it, on servers it is tried again until its lease is over: {error}",
    );
}

pub(super) fn renew_failed(name: &LockName, error: &StoreError) {
    tracing::warn!(
        name: "tenure.lock.renew_failed", target: TARGET, lock = %name, %error,
        "a heartbeat of {name} failed and is tried again; if none succeeds, the lock is lost: {error}",
    );
}

pub(super) fn stop_requested(name: &LockName, token: u64) {
    tracing::info!(
        name: "tenure.lock.stop_requested", target: TARGET, lock = %name, token,
        "another caller asked for {name}: the work under it should end",
    );
}

pub(super) fn lost(name: &LockName, token: u64) {
    tracing::warn!(
        name: "tenure.lock.lost", target: TARGET, lock = %name, token,
        "{name} is lost: another caller may hold it, so the work under it has to end",
    );
}
