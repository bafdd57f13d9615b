//! How the session profile speaks: one line on stderr for each event of an issue's lock.

use super::{CallRefusal, CallResult, Dialect, PersonLine, seconds};
use crate::failure::Failure;
use crate::render::clean;
use tenure_core::{Claim, LockName, Now, Takeover};
use tenure_store::profile::known_as;

pub(crate) struct Session;

/// A run's id for people; the record of another program may name none.
fn named(run: &str) -> String {
    if run.is_empty() {
        "unknown".to_owned()
    } else {
        clean(run).into_owned()
    }
}

impl Dialect for Session {
    fn answer(&self, done: &CallResult<'_>) -> Option<String> {
        let CallResult::Cleaned { locks, dry_run } = *done else {
            return None;
        };
        let did = if dry_run { "Would clean" } else { "Cleaned" };
        let s = if locks == 1 { "" } else { "s" };
        Some(format!("{did} {locks} stale lock{s}"))
    }

    fn line(&self, about: &PersonLine<'_>) -> Option<String> {
        match about {
            PersonLine::Acquired { name } => Some(format!("Acquired lock for issue #{name}")),
            PersonLine::Released { name } => Some(format!("Released lock for issue #{name}")),
            PersonLine::TookOver {
                name,
                why,
                previous: Some(claim),
                now,
            } => Some(took_over(name, *why, claim, now)),
            PersonLine::TookOver { name, .. } => {
                Some(format!("Cleaning corrupt lock for issue #{name}"))
            }
            PersonLine::Ignored { name, .. } => Some(format!(
                "Lock for issue #{name} owned by different run, not releasing"
            )),
            PersonLine::Unreadable { name } => Some(format!(
                "Lock for issue #{name} cannot be read, not releasing; the next acquire cleans it"
            )),
        }
    }

    fn refusal(&self, mut failure: Failure, why: &CallRefusal<'_>) -> Failure {
        let Some((view, holder)) = why.holder() else {
            return failure;
        };
        failure.text = Some(format!(
            "Issue #{} is locked by run {} ({}s ago)",
            view.name,
            named(&holder.request_id),
            seconds(holder.age_ms)
        ));
        if let (Some(text), Some(_)) = (&mut failure.text, holder.fact("future")) {
            text.push_str("\nIts acquiredAt lies in the future, so its age counts as 0");
        }
        if let (Some(text), Some(stopped)) = (&mut failure.text, holder.is_stopped_and()) {
            text.extend(["\nThat run is ", &stopped]);
        }
        failure
    }
}

fn took_over(name: &LockName, why: Takeover, claim: &Claim, now: &Now) -> String {
    let run = named(known_as(&claim.holder));
    let boot = claim.boot();
    let old = seconds(claim.lease.silent_ms(boot, now));
    match why {
        Takeover::Stale(_) | Takeover::Corrupt => {
            format!("Cleaning stale lock for issue #{name} (run {run}, {old}s old)")
        }
        Takeover::Active => {
            format!("Overriding the lock for issue #{name} of run {run} ({old}s old)")
        }
    }
}
