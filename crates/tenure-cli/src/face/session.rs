//! How the session profile speaks: one line on stderr for whatever happens to an issue's lock.

use super::{Face, TakenOver, seconds};
use crate::failure::Failure;
use crate::render::lock::LockView;
use crate::render::{Surface, clean};
use crate::request::{self, Asked, Intends, Surroundings, Variables};
use tenure::profile::known_as;
use tenure_core::{Claim, Holder, LockName, Reason, RequestId, Takeover};

pub(super) struct Session;

/// The key under which the format names the run.
const RUN: &str = "runId";

/// The run of a claim, as its record names it.
fn run(claim: &Claim) -> String {
    named(known_as(&claim.holder))
}

/// A run's id for people; the record of another program may name none.
fn named(run: &str) -> String {
    if run.is_empty() {
        "unknown".to_owned()
    } else {
        clean(run)
    }
}

impl Face for Session {
    /// A run id is shared by all jobs of a run and by its re-runs, so it owns nothing by itself;
    /// every hold has a token of its own beside it.
    fn request_id(&self, _: Option<RequestId>) -> Result<RequestId, Failure> {
        request::request_id_or_new(None)
    }

    fn intends(&self, asked: &Asked<'_>, around: &Surroundings) -> Result<Intends, Failure> {
        let mut intends = Intends::as_typed(asked)?;
        let named = request::known_as(asked.claiming.request_id.as_ref(), self, around)?;
        let run = named.map(|id| (RUN.to_owned(), id.to_string()));
        intends.facts.extend(run);
        Ok(intends)
    }

    /// A run that names none is known by the hold's own id.
    fn complete(&self, holder: &mut Holder) {
        if holder.fact(RUN).is_none() {
            let id = holder.request_id.to_string();
            holder.facts.push((RUN.to_owned(), id));
        }
    }

    fn default_id<'a>(&self, variables: &'a Variables) -> Option<&'a str> {
        variables.run_id.as_deref()
    }

    fn shows(&self, claim: &Claim, id: &str) -> bool {
        claim.holder.request_id == RequestId::as_recorded(id) || claim.holder.fact(RUN) == Some(id)
    }

    fn on_acquired(&self, surface: &mut Surface, name: &LockName, _: &Claim) {
        surface.inform(&format!("Acquired lock for issue #{name}"));
    }

    fn on_released(&self, surface: &mut Surface, name: &LockName) {
        surface.inform(&format!("Released lock for issue #{name}"));
    }

    fn took_over(&self, taken: &TakenOver<'_>) -> String {
        let name = taken.name;
        let Some(claim) = taken.previous else {
            return format!("Cleaning corrupt lock for issue #{name}");
        };
        let boot = claim.holder.host.boot_id.as_deref();
        let old = seconds(claim.lease.silent_ms(boot, taken.now));
        match taken.why {
            Takeover::Stale(_) | Takeover::Corrupt => format!(
                "Cleaning stale lock for issue #{name} (run {}, {old}s old)",
                run(claim)
            ),
            Takeover::Active => format!(
                "Overriding the lock for issue #{name} of run {} ({old}s old)",
                run(claim)
            ),
        }
    }

    fn refused(&self, mut failure: Failure, view: &LockView, reason: Reason) -> Failure {
        // Whoever is next and stopped holds nothing yet, and this sentence speaks of a hold.
        let is_held = reason == Reason::Held && view.standstill.is_none();
        let Some(holder) = view.holder.as_ref().filter(|_| is_held) else {
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
        failure
    }

    fn cleaned_text(&self, locks: usize, dry_run: bool, _: String) -> String {
        let did = if dry_run { "Would clean" } else { "Cleaned" };
        let s = if locks == 1 { "" } else { "s" };
        format!("{did} {locks} stale lock{s}")
    }

    fn ignored_text(&self, name: &LockName, _: &Claim) -> String {
        format!("Lock for issue #{name} owned by different run, not releasing")
    }
}
