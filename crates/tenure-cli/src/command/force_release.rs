//! `force-release`: removes another owner's hold, if the profile lets force do that. It is for an
//! operator who wants the lock to be free, and not to hold it.

use super::near;

use super::session::Session;
use crate::dialect::CallResult;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::render::lock::{age, failure_of, stop_hint};
use crate::render::{Reporter, clean};
use crate::request::{ForceRelease, Meant};
use serde_json::{Value, json};
use tenure_core::{Claim, Entry, Force, ForceOnHeld, Forced, LockName, Reason, Refusal, Standing};
use tenure_engine::audit::{Ending, Releaser};
use tenure_os::clock::Clock;
use tenure_store::Verbs;

#[cold]
#[inline(never)]
pub(crate) fn force_release(
    force_release: ForceRelease,
    reporter: &mut Reporter,
) -> Result<(String, Value), Failure> {
    let ForceRelease {
        place,
        name,
        meant,
        force,
    } = force_release;
    let session = Session::open(place)?;
    session.tell_place(reporter);
    let before = session.view(&name, None)?;
    let now = session.clock.now();
    let is_meant = |claim: &Claim| meant.is(claim);
    let is_meant = (!meant.is_any()).then_some(&is_meant as &dyn Fn(&Claim) -> bool);
    let forced = session
        .store
        .force_release_of(&name, is_meant, force, &now)
        .map_err(|error| {
            session.after_force(session.store_failed(&name, error), &name, Force::Asked)
        })?;
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
                    "{name}: only that one was ended; `{}` shows who else holds it",
                    session.advice(&name).line(&["check"], &[])
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
            let done = CallResult::ForceReleased {
                name: &name,
                request_id,
                held_ms,
            };
            let text = session.text_of(&done, || {
                format!("removed the lock {name} of {whose} after {}", age(held_ms))
            });
            Ok((text, data))
        }
        Forced::SetAside { claim } => Ok(set_aside(&name, &claim)),
        Forced::Absent if is_meant.is_some() => Err(no_such_hold(&name, &meant)),
        Forced::Absent => {
            near::point_out_absent(&session, reporter, &name);
            reporter.warn(format!("{name} is not held; nothing to remove"));
            let data = json!({ "name": name.as_str(), "status": "released", "held_ms": null });
            let done = CallResult::Absent { name: &name };
            Ok((session.text_of(&done, String::new), data))
        }
        Forced::Refused(refusal) => Err(refused(reporter, &session, &name, &refusal)?),
    }
}

/// The answer if there is no hold, and the next claim lets others pass from now on.
fn set_aside(name: &LockName, claim: &Claim) -> (String, Value) {
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
    (text, data)
}

/// The refusal if no hold is the one that is meant.
fn no_such_hold(name: &LockName, meant: &Meant) -> Failure {
    let id = (meant.request_id.as_ref()).map(|id| format!("request id {}", clean(id)));
    let token = meant.token.map(|token| format!("fencing token {token}"));
    let shown: Vec<_> = id.into_iter().chain(token).collect();
    Failure::new(
        Exit::NotFound,
        "NO_HOLDER",
        format!(
            "no hold of {name} that can be read has {}, so nothing was released",
            shown.join(" and ")
        ),
    )
    .with_context(json!({
        "name": name.as_str(),
        "request_id": meant.request_id,
        "token": meant.token,
    }))
}

/// The answer if the profile does not let force do that, or wants a second yes.
fn refused(
    reporter: &mut Reporter,
    session: &Session,
    name: &LockName,
    refusal: &Refusal,
) -> Result<Failure, Failure> {
    let entry = match session.reading(name)?.content {
        tenure_store::Content::Whole { entry, .. } => entry,
        tenure_store::Content::Unreadable { .. } => Entry::default(),
    };
    let view = session.refused(name, refusal, &entry);
    let retry_after_ms = view.retry_after_ms.unwrap_or(1_000);
    let mut failure = failure_of(view.clone(), refusal.reason, None, retry_after_ms);
    // The verb has no phases.
    failure.phase = None;
    let mut failure = session.blocked(failure, &view, refusal.reason);
    let policy = session.store.policy();
    let asks = policy.force_on_held == ForceOnHeld::AskToStop;
    let never = policy.force_on_held == ForceOnHeld::Never;
    Ok(match refusal.reason {
        // By the clock of its file system it is no more stale than this.
        Reason::NeedsConfirmation if view.standing == "stale" => failure,
        Reason::NeedsConfirmation => {
            let holder = view.holder.as_ref();
            let token = holder
                .and_then(|holder| holder.token)
                .map(|it| it.to_string());
            // A yes to this hold, and to none that comes after it.
            let exact = token.as_deref().map(|token| ["--token", token]);
            let mut words = vec!["force-release", "--yes"];
            words.extend(exact.into_iter().flatten());
            let line = view.advice.line(&words, &[]);
            let text = format!("{}; `{line}` confirms it", view.headline());
            failure.fix_command = Some(line);
            failure.with_text(text)
        }
        Reason::Held if asks => {
            let is_orphaned = view.holder.as_ref().is_some_and(|holder| holder.orphaned);
            let when = if is_orphaned {
                ""
            } else {
                "; it is released when its command ends"
            };
            failure.with_text(format!("{}{when}; {}", view.headline(), stop_hint(&view)))
        }
        Reason::Held if never => {
            session.say_unheeded(reporter, Force::Asked);
            failure
        }
        Reason::Unreadable => session.after_force(failure, name, Force::Asked),
        Reason::Held | Reason::StaleNeedsForce | Reason::QueueFull | Reason::Unknown => failure,
    })
}
