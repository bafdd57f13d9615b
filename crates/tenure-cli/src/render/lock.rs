//! What a person sees of a lock, as the library gathers and words it, and what a refusal at a command line
//! says beyond that.

use crate::failure::Failure;
use std::time::Duration;
use tenure_core::Reason;
use tenure_engine::envelope::human;
pub(crate) use tenure_engine::envelope::{
    HolderView, LockView, age, asks_for_the_lock, stale_reason, timestamp, utc,
};

/// The failure of a caller that wanted this lock.
pub(crate) fn failure_of(
    view: LockView,
    reason: Reason,
    waited: Option<Duration>,
    retry_after_ms: u64,
) -> Failure {
    let (line, name) = (view.headline(), view.name.clone());
    let is_orphaned = view.holder.as_ref().is_some_and(|holder| holder.orphaned);
    let mut failure = Failure::from(view.into_failure(reason, waited, retry_after_ms));
    if failure.retry.is_some() {
        let waited = waited
            .map(|waited| format!("waited {}; ", human(waited)))
            .unwrap_or_default();
        failure.text = Some(format!(
            "{line}\n{:8}{waited}try again in about {}, wait longer with --wait, or look with \
             `tenure check {name}`",
            "",
            human(Duration::from_millis(retry_after_ms)),
        ));
    }
    if is_orphaned && let Some(text) = &mut failure.text {
        text.push_str("\n        ");
        text.push_str(&orphan_hint(&name));
    }
    failure
}

/// What an operator can do about a holder whose supervisor is dead.
pub(crate) fn orphan_hint(name: impl std::fmt::Display) -> String {
    format!(
        "no supervisor is left to be asked to stop; the lock is free once that command has ended, and \
         `tenure cancel --orphan {name}` ends it"
    )
}
