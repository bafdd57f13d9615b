//! `heartbeat`: renews a hold, and tells its holder whether it still has it.

use super::near;

use super::session::Session;
use crate::dialect::{CallRefusal, CallResult};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::render::Reporter;
use crate::render::lock::{age, asks_for_the_lock, stale_reason};
use crate::request::Heartbeat;
use serde_json::{Value, json};
use tenure_core::{Claim, Entry, LivenessLock, LockName, Ownership, StaleReason, Standing, judge};
use tenure_engine::inherited::Hold;
use tenure_os::clock::Clock;
use tenure_store::profile::known_as;
use tenure_store::{Content, RenewedOwned, Verbs};

#[cold]
#[inline(never)]
pub(super) fn heartbeat(
    heartbeat: Heartbeat,
    reporter: &mut Reporter,
) -> Result<(String, Value), Failure> {
    let Heartbeat { place, name, shown } = heartbeat;
    let (session, id) = Session::of_caller(place, &name, &shown, reporter)?;
    let inherited = session.inherited(&name);
    if let Some(reason) = ended(&session, &name, id, &inherited)? {
        return Err(lost(&name).with_text(format!(
            "{name} is not held any more ({}); do not rely on it",
            stale_reason(reason)
        )));
    }
    let renewed = session.store.renew_owned(
        &name,
        &|claim| {
            if session.is_mine(claim, id, &inherited) {
                Ownership::Shown
            } else {
                Ownership::Missing
            }
        },
        &session.clock.now(),
    );
    let renewed = renewed.map_err(|error| session.store_failed(&name, error))?;
    match renewed {
        RenewedOwned::Renewed { claim } => {
            if id.is_none() {
                renew_others(&session, &name, &claim, &inherited)?;
            }
            let cancel = claim.cancel.clone();
            let request_id = known_as(&claim.holder);
            reporter.set_request_id(request_id);
            let asked = match &cancel {
                Some(cancel) => format!("; {}", asks_for_the_lock(cancel)),
                None => String::new(),
            };
            // A record of another program has no token.
            let token = claim.token.filter(|token| *token > 0);
            let shown = token.map_or_else(String::new, |token| format!("fencing token {token}, "));
            let text = format!(
                "renewed {name}, {shown}ttl {}{asked}",
                age(claim.lease.ttl_ms)
            );
            let mut data = json!({
                "name": name.as_str(),
                "status": session.format.renewed(),
                "lost": false,
                "request_id": request_id,
                "token": token,
                "ttl_ms": claim.lease.ttl_ms,
                "cancel_requested": cancel.is_some(),
                "cancel_requested_by": cancel.as_ref().map(|cancel| &cancel.by),
            });
            for (key, said) in [
                (
                    "cancel_requested_actor",
                    cancel.as_ref().map(|cancel| &*cancel.actor),
                ),
                (
                    "cancel_requested_why",
                    cancel.as_ref().map(|cancel| &*cancel.why),
                ),
                (
                    "cancel_requested_kind",
                    cancel
                        .as_ref()
                        .map(|cancel| tenure_engine::envelope::kind(cancel.kind)),
                ),
            ] {
                if let Some(said) = said.filter(|said| !said.is_empty()) {
                    data[key] = said.into();
                }
            }
            let done = CallResult::Renewed {
                name: &name,
                claim: &claim,
                now: &session.clock.now(),
            };
            Ok((session.text_of(&done, || text), data))
        }
        RenewedOwned::NotOwner { .. } => {
            let view = session.view(&name, id)?;
            if view.available {
                near::point_out_absent(&session, reporter, &name);
                return Err(lost(&name));
            }
            let text = format!("{}; it was not renewed", view.headline());
            let mut context = view.json();
            context.insert("lost".into(), true.into());
            let failure = Failure::new(
                Exit::Conflict,
                "NOT_OWNER",
                format!("{name} is held by another owner and was not renewed"),
            )
            .with_text(text)
            .with_context(context);
            let why = CallRefusal::NotOwner(&view);
            Err(session.dialect.refusal(failure, &why))
        }
        RenewedOwned::Lost => {
            near::point_out_absent(&session, reporter, &name);
            Err(lost(&name))
        }
    }
}

/// Renews the other holds of the caller's owner, which may have several slots.
fn renew_others(
    session: &Session,
    name: &LockName,
    renewed: &Claim,
    inherited: &[Hold],
) -> Result<(), Failure> {
    let reading = session.reading(name)?;
    let mut others = reading.entry().into_iter().flat_map(Entry::granted);
    let is_other =
        |claim: &&Claim| claim.ticket != renewed.ticket && session.is_mine(claim, None, inherited);
    while let Some(other) = others.find(is_other) {
        let is_it = |claim: &Claim| {
            if claim.ticket == other.ticket {
                Ownership::Shown
            } else {
                Ownership::Missing
            }
        };
        let renewed = session
            .store
            .renew_owned(name, &is_it, &session.clock.now());
        renewed.map_err(|error| session.store_failed(name, error))?;
    }
    Ok(())
}

/// Why the caller's hold is over, if the process that it follows is gone. The next caller takes the lock
/// over, so a renewal would be a promise that no process keeps.
fn ended(
    session: &Session,
    name: &LockName,
    id: Option<&str>,
    inherited: &[Hold],
) -> Result<Option<StaleReason>, Failure> {
    let reading = session.reading(name)?;
    let Content::Whole { entry, evidence } = &reading.content else {
        return Ok(None);
    };
    let mut claims = entry.claims.iter().zip(evidence);
    let own =
        claims.find(|(claim, _)| claim.token.is_some() && session.is_mine(claim, id, inherited));
    let Some((claim, seen)) = own else {
        return Ok(None);
    };
    let standing = judge(session.store.policy(), claim, seen, &session.clock.now());
    Ok(match standing {
        Standing::Stale(
            reason @ (StaleReason::LivenessLockReleased | StaleReason::ProcessDead(_)),
        ) => Some(reason),
        Standing::Stale(reason) if seen.liveness_lock == LivenessLock::Lapsed => Some(reason),
        // No renewal makes it younger.
        Standing::Stale(reason @ StaleReason::Aged) if claim.holder.max_age_ms().is_some() => {
            Some(reason)
        }
        _ => None,
    })
}

fn lost(name: &LockName) -> Failure {
    Failure::new(
        Exit::LockLost,
        "LOCK_LOST",
        format!("{name} is not held any more; do not rely on it"),
    )
    .with_context(json!({ "name": name.as_str(), "lost": true }))
}
