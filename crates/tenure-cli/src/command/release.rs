//! `release`: gives back a hold that `acquire` took; only for its owner.

use super::near;
use super::ownership::give_back;
use super::result::RunResult;
use super::session::Session;
use crate::dialect::{CallRefusal, CallResult, PersonLine};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::render::lock::{HolderView, age, stop_hint, trouble};
use crate::render::{Reporter, clean};
use crate::request::Release;
use serde_json::{Value, json};
use std::fmt::Write;
use tenure_core::{
    AbsentRelease, Claim, Entry, Evidence, ForceOnHeld, Kind, Liveness, LivenessLock, LockName,
    Ownership, ReleaseByOther, Released, StaleReason, Standing,
};
use tenure_engine::audit::{Entry as Recorded, EventName, Events, Filter};
use tenure_engine::envelope::{stale_reason, utc};
use tenure_os::clock::Clock;
use tenure_os::process::liveness;
use tenure_store::profile::known_as;
use tenure_store::{Content, Verbs};

#[cold]
#[inline(never)]
pub(crate) fn release(
    release: Release,
    reporter: &mut Reporter,
) -> Result<(String, Value), Failure> {
    let Release {
        place,
        name,
        shown,
        work,
    } = release;
    let result = RunResult::of_work(work.as_ref());
    let (session, id) = Session::of_caller(place, &name, &shown, reporter)?;
    if let Some(answer) = waiting(&session, &name, id)? {
        return Ok(answer);
    }
    // The supervisor of a run releases its lock, after the work has ended. Taking the lock away
    // earlier would let the next holder in while the run still works. A run that is gone may have
    // left a record that only its owner can remove.
    let gone = gone(&session, &name)?;
    // What a record of another profile says of a release, its contract says.
    let meant = match session.store.profile().record() {
        None => meant(&session, &name, id)?,
        Some(_) => HoldToRelease::WhatTheIdShows,
    };
    if let HoldToRelease::TakenOver(lost) = meant {
        return Err(*lost);
    }
    let owns = |claim: &Claim| {
        let may = claim.kind.is_detached() || gone.contains(&claim.ticket);
        let is_own = match &meant {
            HoldToRelease::Hold(ticket) => *ticket == claim.ticket,
            HoldToRelease::Ended(own) => own.claim.ticket == claim.ticket,
            HoldToRelease::Others(_) | HoldToRelease::TakenOver(_) => false,
            HoldToRelease::WhatTheIdShows => session.may_release(claim, id),
        };
        if may && is_own {
            Ownership::Shown
        } else {
            Ownership::Missing
        }
    };
    let failed = |error| session.store_failed(&name, error);
    let released = match session.release_owned(reporter, &name, id, &result, &owns, failed) {
        // Where a release of another's lock does nothing, so does one of a record that names nobody.
        Err(failure)
            if failure.code == "LOCK_UNREADABLE"
                && session.store.policy().release_by_other == ReleaseByOther::Ignore =>
        {
            session.tell(reporter, &PersonLine::Unreadable { name: &name });
            return Ok((String::new(), without_hold(&name, "ignored")));
        }
        released => released?,
    };
    match &meant {
        HoldToRelease::Ended(own) => return Err(own.lost(&name)),
        // Nobody has had the lock since, or the claim would have been replaced.
        HoldToRelease::Others(Some(other)) if session.view(&name, None)?.available => {
            reporter.warn(format!(
                "{name} is not held; its last hold, {}",
                other.told()
            ));
            return Ok((String::new(), without_hold(&name, "released")));
        }
        _ => {}
    }
    match released {
        Released::Done {
            claim,
            held_ms,
            by_other,
        } => {
            if by_other {
                warn_of_other(reporter, &name, &claim);
            }
            let is_told = work.is_some() || session.format.tells_results();
            let result = Some(&result).filter(|_| is_told);
            Ok(done(reporter, &session, &name, &claim, held_ms, result))
        }
        Released::Absent => Ok(absent(reporter, &session, &name)),
        Released::Unreadable { .. } => {
            reporter.warn(format!(
                "{name}: what stood there could not be read; it was removed"
            ));
            Ok((format!("released {name}"), without_hold(&name, "released")))
        }
        Released::Ignored { claim } => {
            let (name, claim) = (&name, &claim);
            if !claim.kind.is_detached() && session.may_release(claim, id) {
                // The supervisor gives it back.
                let pid = claim.holder.process.map(|process| process.pid);
                let pid = pid.map_or_else(String::new, |pid| format!(" (PID {pid})"));
                let run = clean(known_as(&claim.holder));
                reporter.inform(&format!(
                    "{name} is held by a run of {run} that is at work{pid}, and is released when that run ends"
                ));
                return Ok((String::new(), without_hold(name, "ignored")));
            }
            session.tell(reporter, &PersonLine::Ignored { name, claim });
            if let Some(trouble) = session.view(name, id).ok().as_ref().and_then(trouble) {
                reporter.inform(&trouble);
            }
            if id.is_none() && session.is_mine(claim, None, &[]) {
                reporter.inform(&needs_id(&session, name, claim));
            }
            Ok((String::new(), without_hold(name, "ignored")))
        }
        Released::NotOwner { claim } => {
            let claim = standing(&session, &name)?.unwrap_or(*claim);
            not_owner(reporter, &session, &claim, &name, id)
        }
    }
}

/// The answer if the id is that of a waiter, and of no hold. A place that is kept for a caller who is away is given up.
fn waiting(
    session: &Session,
    name: &LockName,
    id: Option<&str>,
) -> Result<Option<(String, Value)>, Failure> {
    let Some(id) = id.filter(|_| session.store.profile().record().is_none()) else {
        return Ok(None);
    };
    let is_shown = |claim: &Claim| session.is_mine(claim, Some(id), &[]);
    let reading = session.reading(name)?;
    let claims = reading.entry().map_or(&[][..], |entry| &entry.claims);
    let shown = || claims.iter().filter(|claim| is_shown(claim));
    let Some(claim) = shown()
        .next()
        .filter(|_| shown().all(|claim| claim.token.is_none()))
    else {
        return Ok(None);
    };
    if claim.reservation.is_none() {
        let message =
            format!("request id {id} waits for {name} and holds nothing that could be released");
        let line = (session.advice(name)).line(&["cancel"], &["--request-id", id]);
        let text = format!("{message}; `{line}` ends its wait");
        let failure = Failure::new(Exit::Conflict, "NOT_OWNER", message).with_text(text);
        return Err(failure.with_context(session.view(name, None)?.json()));
    }
    let is_place =
        |claim: &Claim| claim.token.is_none() && claim.reservation.is_some() && is_shown(claim);
    let asked = (session.store).cancel(name, id.into(), Some(&is_place), &session.clock.now());
    asked.map_err(|error| session.store_failed(name, error))?;
    let text = format!("gave up the place of request id {id} in the line for {name}");
    Ok(Some((text, without_hold(name, "released"))))
}

/// The first hold that stands: one that has ended is nobody's to show.
fn standing(session: &Session, name: &LockName) -> Result<Option<Claim>, Failure> {
    let (reading, now) = (session.reading(name)?, session.clock.now());
    let mut granted = reading.entry().into_iter().flat_map(Entry::granted);
    Ok(granted
        .find(|claim| session.is_held(&reading, claim, &now))
        .cloned())
}

/// What a release of a native lock means.
enum HoldToRelease {
    /// The hold with this ticket.
    Hold(u64),
    /// A hold that ended without a release, and that nobody has replaced yet.
    Ended(LapsedHold),
    /// Holds of others alone, of which the last may have ended without a release.
    Others(Option<LapsedHold>),
    /// A hold that another holder has replaced, with the answer that says so.
    TakenOver(Box<Failure>),
    /// The one that the id shows, or none.
    WhatTheIdShows,
}

/// A hold that ended without a release.
struct LapsedHold {
    claim: Claim,
    reason: StaleReason,
}

impl LapsedHold {
    /// What became of it, and since when the work has had no lock.
    fn told(&self) -> String {
        let (holder, lease) = (&self.claim.holder, &self.claim.lease);
        let since = match self.reason {
            StaleReason::Silent => {
                let end = lease.renewed.wall_ms.saturating_add(lease.ttl_ms);
                format!("since {}", utc(end))
            }
            _ => format!("since some time after {}", utc(lease.renewed.wall_ms)),
        };
        format!(
            "{} (request id {}), ended without a release {since}: {}",
            clean(&holder.why),
            clean(known_as(holder)),
            stale_reason(self.reason)
        )
    }

    fn lost(&self, name: &LockName) -> Failure {
        let Claim { holder, token, .. } = &self.claim;
        let shown = holder.path().map_or(name.as_str().into(), clean);
        lost(name, &shown, &self.told(), known_as(holder), *token)
    }
}

/// The answer to the release of a hold that had ended before.
fn lost(name: &LockName, shown: &str, told: &str, id: &str, token: Option<u64>) -> Failure {
    let message =
        format!("{shown} was lost before this release, and the work went on without it: {told}");
    let context = json!({
        "name": name.as_str(),
        "lost": true,
        "request_id": id,
        "token": token,
    });
    Failure::new(Exit::LockLost, "LOCK_LOST", message).with_context(context)
}

/// The answer if the last that the audit knows of the hold with this id is that another caller ended it. A lock has no trace of a hold
/// that another one has replaced; an audit that cannot be read, or a program that keeps none, leaves that unknown.
fn taken_over(session: &Session, name: &LockName, id: &str) -> Option<Failure> {
    let (folder, _) = session.place.audit_folder(session.store.profile()).ok()?;
    let wanted = Filter {
        lock: Some(name.as_str().to_owned()),
        events: vec![
            EventName::LockAcquired,
            EventName::LockStolen,
            EventName::LockReleased,
        ],
        ..Filter::default()
    };
    let (mut token, mut stolen) = (None, None);
    for event in Events::open(folder, wanted).ok()? {
        if event.request_id() == id {
            token = event.number("token");
            stolen = None;
        } else if previous(&event) == Some(id) {
            stolen = Some(event);
        }
    }
    let event = stolen?;
    let (id_shown, at) = (clean(id), utc(event.at_ms()));
    let told = if event.event() == EventName::LockReleased.as_str() {
        format!("request id {id_shown} was ended by another caller at {at}")
    } else {
        let by = clean(event.request_id());
        format!("request id {id_shown} was taken over at {at} by request id {by}")
    };
    Some(lost(name, &clean(name.as_str()), &told, id, token))
}

/// Whose hold a takeover replaced.
fn previous(event: &Recorded) -> Option<&str> {
    let previous = event.fields().get("previous_lock")?;
    previous.get("request_id")?.as_str()
}

/// What a release means. With an id, the hold of that id. Without one, the hold which this very caller took. While the
/// caller of a hold lives, no other process releases it without the id: jobs of one engine have one owner, and each gives
/// back its own. Of a hold whose caller has ended, the owner may give it back.
///
/// What stands counts before what has ended.
fn meant(session: &Session, name: &LockName, id: Option<&str>) -> Result<HoldToRelease, Failure> {
    let (reading, now) = (session.reading(name)?, session.clock.now());
    let here = &session.identity.host;
    let is_taken_here = |claim: &Claim| claim.holder.agent().is_none() && session.took(claim);
    let is_left = |claim: &Claim| {
        let holder = &claim.holder;
        let lives = |caller| {
            let seen = liveness(&caller, &holder.host, here, true);
            !matches!(seen, Liveness::Dead(_))
        };
        session.may_release(claim, None) && !holder.caller().is_some_and(lives)
    };
    let is_shown = |claim: &Claim| session.may_release(claim, id);
    let granted = reading.entry().into_iter().flat_map(Entry::granted);
    let detached: Vec<&Claim> = granted.filter(|claim| claim.kind.is_detached()).collect();
    let held = |is_own: &dyn Fn(&Claim) -> bool| {
        let all = detached.iter().copied();
        let own = all.filter(|claim| is_own(claim) && session.is_held(&reading, claim, &now));
        own.collect::<Vec<_>>()
    };
    let ended = |is_own: &dyn Fn(&Claim) -> bool| {
        let all = detached.iter().rev();
        all.filter(|claim| is_own(claim)).find_map(|claim| {
            match reading.standing_of(session.store.policy(), claim, &now) {
                // A process that cannot be seen from here has not ended for those who see it.
                Standing::Stale(StaleReason::Silent | StaleReason::ProcessUnknown)
                    if claim.holder.process.is_some() =>
                {
                    None
                }
                Standing::Stale(reason) => Some(LapsedHold {
                    claim: Claim::clone(claim),
                    reason,
                }),
                _ => None,
            }
        })
    };
    if let Some(id) = id {
        let is_known = reading
            .entry()
            .is_some_and(|entry| entry.claims.iter().any(is_shown));
        return Ok(match ended(&is_shown) {
            Some(ended) if held(&is_shown).is_empty() => HoldToRelease::Ended(ended),
            None if !is_known => match taken_over(session, name, id) {
                Some(lost) => HoldToRelease::TakenOver(Box::new(lost)),
                None => HoldToRelease::WhatTheIdShows,
            },
            _ => HoldToRelease::WhatTheIdShows,
        });
    }
    // A hold that follows no process is given back by its id, which its caller has chosen or been told.
    let mut own = held(&|claim| claim.holder.process.is_some() && is_taken_here(claim));
    if own.is_empty() {
        own = held(&is_left);
    }
    match *own {
        [one] => return Ok(HoldToRelease::Hold(one.ticket)),
        [] => {}
        _ => return Err(several(session, name, &own)?),
    }
    let own = ended(&is_taken_here).or_else(|| ended(&is_left));
    Ok(own.map_or_else(
        || HoldToRelease::Others(ended(&|_| true)),
        HoldToRelease::Ended,
    ))
}

/// The answer to a caller that may mean each of several holds.
fn several(session: &Session, name: &LockName, own: &[&Claim]) -> Result<Failure, Failure> {
    let mut view = session.view(name, None)?;
    view.mine = false;
    let message = format!(
        "{} holds of {name} may be meant; show the request id of the one with --request-id",
        own.len()
    );
    let mut text = message.clone();
    for claim in own {
        let holder = &claim.holder;
        let slot = claim.slot.map(|slot| format!(", slot {slot}"));
        let since = claim.since.as_ref().map(|since| utc(since.wall_ms));
        let _ = write!(
            text,
            "\n{:8}{}{}: {}, since {}",
            "",
            clean(known_as(holder)),
            slot.unwrap_or_default(),
            clean(&holder.why),
            since.unwrap_or_default()
        );
    }
    let failure = Failure::new(Exit::Conflict, "NOT_OWNER", message);
    Ok(failure.with_text(text).with_context(view.json()))
}

/// The tickets of supervised holds whose supervisor and command are both gone. None, if the profile itself
/// goes by the liveness lock.
fn gone(session: &Session, name: &LockName) -> Result<Vec<u64>, Failure> {
    if session.store.policy().asks_liveness_lock {
        return Ok(Vec::new());
    }
    let reading = session.reading(name)?;
    let Content::Whole { entry, evidence } = reading.content else {
        return Ok(Vec::new());
    };
    let is_gone = |seen: &Evidence| {
        let dead =
            |process| matches!(process, Liveness::Dead(_)) || process == Liveness::NotRecorded;
        seen.liveness_lock == LivenessLock::Released && dead(seen.process) && dead(seen.command)
    };
    let claims = entry.claims.iter().zip(&evidence);
    let gone = claims.filter(|(claim, seen)| claim.kind == Kind::Kernel && is_gone(seen));
    Ok(gone.map(|(claim, _)| claim.ticket).collect())
}

fn warn_of_other(reporter: &mut Reporter, name: &LockName, claim: &Claim) {
    let whose = match (known_as(&claim.holder), claim.holder.process) {
        ("", Some(process)) => format!("PID {}", process.pid),
        ("", None) => "an unknown holder".to_owned(),
        (id, _) => format!("request {id}"),
    };
    reporter.warn(format!(
        "{name} was held by {whose}, not by the caller; released all the same"
    ));
}

/// The answer after a release; `result` is how the work ended, if the answer has that.
fn done(
    reporter: &mut Reporter,
    session: &Session,
    name: &LockName,
    claim: &Claim,
    held_ms: u64,
    result: Option<&RunResult>,
) -> (String, Value) {
    let request_id = known_as(&claim.holder);
    session.tell(reporter, &PersonLine::Released { name });
    reporter.set_request_id(request_id);
    let mut data = json!({
        "name": name.as_str(),
        "status": "released",
        "request_id": request_id,
        "token": claim.token.filter(|token| *token > 0),
        "held_ms": held_ms,
    });
    if let (Some(result), Some(data)) = (result, data.as_object_mut()) {
        result.add_to(data);
    }
    let done = CallResult::Released {
        name,
        request_id,
        held_ms,
        result: result.map(|result| result.result),
        failure_step: result.and_then(|result| result.failure_step.as_deref()),
    };
    let text = session.text_of(&done, || format!("released {name} after {}", age(held_ms)));
    (text, data)
}

fn not_owner(
    reporter: &mut Reporter,
    session: &Session,
    claim: &Claim,
    name: &LockName,
    id: Option<&str>,
) -> Result<(String, Value), Failure> {
    let mut view = session.view(name, id)?;
    // A hold that a dead holder left behind counts as absent.
    if view.available {
        return Ok(absent(reporter, session, name));
    }
    // The caller descends from the owner and is not the owner, so its own hold cannot be told from another's.
    let may_be_own = id.is_none() && view.mine && claim.kind.is_detached();
    view.mine = false;
    if may_be_own {
        return Err(Failure::new(
            Exit::Conflict,
            "NOT_OWNER",
            format!(
                "{name} is held in the name of a process from which this call descends; only that \
                 process itself releases it without --request-id"
            ),
        )
        .with_text(format!(
            "{}\n{:8}{}",
            view.headline(),
            "",
            needs_id(session, name, claim)
        ))
        .with_context(view.json()));
    }
    let by_id = "show its request id with --request-id";
    let next = match (session.store.policy().force_on_held, claim.kind) {
        // No agent is told how to end another one's hold.
        (_, Kind::Detached) if claim.holder.agent().is_some() => {
            "its own agent gives it back, by its request id; it ends with that agent, too"
                .to_owned()
        }
        (ForceOnHeld::Never, _) => by_id.to_owned(),
        (ForceOnHeld::AskToStop, Kind::Kernel) => {
            format!("it is released when its command ends; {}", stop_hint(&view))
        }
        (_, Kind::Kernel) => {
            "it is released when its command ends; --force overrides it".to_owned()
        }
        (ForceOnHeld::Override, _) => format!("{by_id}, or override it with --force"),
        (ForceOnHeld::AskToStop | ForceOnHeld::OverrideConfirmed, _) => {
            let line = session
                .advice(name)
                .line(&["acquire", "--force", "--yes"], &[]);
            format!("{by_id}, or take it with `{line}`")
        }
    };
    let mut failure = Failure::new(
        Exit::Conflict,
        "NOT_OWNER",
        format!("{name} is held by another owner and was not released"),
    )
    .with_text(format!("{}; {next}", view.headline()))
    .with_context(view.json());
    failure.fix_command = view.holder.as_ref().and_then(HolderView::continuing);
    Err(session
        .dialect
        .refusal(failure, &CallRefusal::NotOwner(&view)))
}

/// The message to a caller that descends from the owner and shows no id.
fn needs_id(session: &Session, name: &LockName, claim: &Claim) -> String {
    format!(
        "not released: {name} may be held by another sub-shell or script of the same owner; {}",
        give_back(&session.advice(name), claim)
    )
}

fn absent(reporter: &mut Reporter, session: &Session, name: &LockName) -> (String, Value) {
    near::point_out_absent(session, reporter, name);
    if session.store.policy().absent_release == AbsentRelease::SuccessWithWarning {
        reporter.warn(format!("{name} is not held; nothing to release"));
    }
    let text = session.text_of(&CallResult::Absent { name }, String::new);
    (text, without_hold(name, "released"))
}

/// The answer if no hold was ended.
fn without_hold(name: &LockName, status: &str) -> Value {
    json!({ "name": name.as_str(), "status": status, "held_ms": null })
}
