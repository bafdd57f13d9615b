//! `force-release`: removes another owner's hold, if the profile lets force do that. It is for an
//! operator who wants the lock to be free, and not to hold it.

use super::{Session, near};
use crate::dialect::Done;
use crate::failure::Failure;
use crate::render::Reporter;
use crate::render::lock::{age, failure_of, orphan_hint, stop_hint};
use crate::request::ForceRelease;
use serde_json::{Value, json};
use tenure_core::{Entry, Force, ForceOnHeld, Forced, LockName, Reason, Refusal, Standing};
use tenure_engine::audit::{Ending, Releaser};
use tenure_engine::clock::Clock;
use tenure_engine::store::Verbs;

#[cold]
#[inline(never)]
pub(crate) fn force_release(
    force_release: ForceRelease,
    reporter: &mut Reporter,
) -> Result<(String, Value), Failure> {
    let ForceRelease { place, name, force } = force_release;
    let session = Session::open(place)?;
    session.tell_place(reporter);
    let before = session.view(&name, None)?;
    let now = session.clock.now();
    let forced = session
        .store
        .force_release(&name, force, &now)
        .map_err(|error| session.store_failed(&name, error))?;
    match forced.released {
        Forced::Done {
            claim,
            standing,
            held_ms,
        } => {
            let whose = claim.as_ref().map_or_else(
                || "an unreadable record".to_owned(),
                |claim| format!("request {}", claim.holder.request_id),
            );
            if matches!(standing, Standing::Held(_)) {
                reporter.warn(format!(
                    "{name}: ended the live hold of {whose}; it may be at work until it notices"
                ));
            }
            if !before.other_holders.is_empty() {
                reporter.warn(format!(
                    "{name}: only that one was ended; `tenure check {name}` shows who else \
                     holds it"
                ));
            }
            let acting = session.format.request_id(None)?;
            if claim.is_none() {
                session.audit_writer.removed(
                    reporter,
                    session.occasion(&name, &acting, None, &now),
                    None,
                    &forced.record,
                );
            }
            session.audit_writer.released(
                reporter,
                session.occasion(&name, &acting, None, &now),
                held_ms,
                Ending::Forced,
                Releaser::Other(claim.as_deref()),
            );
            let request_id = claim.as_ref().map(|claim| claim.holder.request_id.as_str());
            let data = json!({
                "name": name.as_str(),
                "status": "released",
                "request_id": request_id,
                "token": claim
                    .as_ref()
                    .and_then(|claim| claim.token)
                    .filter(|token| *token > 0),
                "held_ms": held_ms,
                "was_live": matches!(standing, Standing::Held(_)),
            });
            let done = Done::ForceReleased {
                name: &name,
                request_id,
                held_ms,
            };
            let text = session.text_of(&done, || {
                format!("removed the lock {name} of {whose} after {}", age(held_ms))
            });
            Ok((text, data))
        }
        Forced::SetAside { claim } => {
            let whose = match claim.holder.process {
                Some(process) => format!("PID {}", process.pid),
                None => format!("request {}", claim.holder.request_id),
            };
            let text = format!(
                "{name} is not held; {whose}, which is next in line and does not act, lets \
                 others pass from now on, and keeps its place"
            );
            let data = json!({
                "name": name.as_str(),
                "status": "released",
                "held_ms": null,
                "set_aside": {
                    "pid": claim.holder.process.map(|process| process.pid),
                    "request_id": claim.holder.request_id.as_str(),
                    "ticket": claim.ticket,
                },
            });
            Ok((text, data))
        }
        Forced::Absent => {
            near::point_out_absent(&session, reporter, &name);
            reporter.warn(format!("{name} is not held; nothing to remove"));
            let data = json!({ "name": name.as_str(), "status": "released", "held_ms": null });
            let done = Done::Absent { name: &name };
            Ok((session.text_of(&done, String::new), data))
        }
        Forced::Refused(refusal) => Err(refused(reporter, &session, &name, &refusal)?),
    }
}

/// The answer if the profile does not let force do that, or wants a second yes.
fn refused(
    reporter: &mut Reporter,
    session: &Session,
    name: &LockName,
    refusal: &Refusal,
) -> Result<Failure, Failure> {
    let entry = match session.reading(name)?.content {
        tenure_engine::store::Content::Whole { entry, .. } => entry,
        tenure_engine::store::Content::Unreadable { .. } => Entry::default(),
    };
    let view = session.refused(name, refusal, &entry);
    let retry_after_ms = view.retry_after_ms.unwrap_or(1_000);
    let mut failure = failure_of(view.clone(), refusal.reason, None, retry_after_ms);
    // This verb has no phases.
    failure.phase = None;
    let failure = session.blocked(failure, &view, refusal.reason);
    let orphaned = view.holder.as_ref().filter(|holder| holder.orphaned);
    let orphaned = orphaned.map(|holder| orphan_hint(name, holder.command_pid));
    let policy = session.store.policy();
    let asks = policy.force_on_held == ForceOnHeld::AskToStop;
    let never = policy.force_on_held == ForceOnHeld::Never;
    Ok(match refusal.reason {
        // By the clock of its file system it is no more stale than this.
        Reason::NeedsConfirmation if view.standing == "stale" => failure,
        Reason::NeedsConfirmation => {
            failure.with_text(format!("{}; confirm with --yes", view.headline()))
        }
        Reason::Held if asks => failure.with_text(match orphaned {
            Some(hint) => format!("{}; {hint}", view.headline()),
            None => format!(
                "{}; it is released when its command ends; {}",
                view.headline(),
                stop_hint(name, view.holder.as_ref())
            ),
        }),
        Reason::Held if never => {
            session.say_unheeded(reporter, Force::Asked);
            failure
        }
        Reason::Unreadable => session.after_force(failure, name, Force::Asked),
        Reason::Held | Reason::StaleNeedsForce | Reason::QueueFull | Reason::Unknown => failure,
    })
}
