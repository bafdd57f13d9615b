//! `acquire`: takes a lock in the name of a process, or for a ttl, and returns.
//!
//! **Exit 0 says that the lock is held and that the answer was written.** If this call cannot write the answer,
//! it gives the lock back first: on a full disk, after its reader has gone, or by a signal while the reader
//! does not read. A kill in between leaves what a kill right after the grant leaves: a hold that ends with its
//! owner or with its ttl.

use super::attend::NoLocks;
use super::ownership::covers;
use super::result::RunResult;
use super::session::{Session, collect_signals, dialect_of};
use super::ticket;
use crate::dialect::CallResult;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::render::lock::age;
use crate::render::{Reporter, clean};
use crate::request::{Acquire, Acquiring, Owner};
use serde_json::{Value, json};
use tenure_core::{
    Claim, Kind, LockName, Mode, Ownership, Patience, Request, RequestId, Terms, UnknownLife,
};
use tenure_engine::caller::{Chosen, choose_owner, is_job, job_of_caller, process_of_job};
use tenure_engine::engine::Limits;
use tenure_engine::envelope::AgentView;
use tenure_engine::intent;
use tenure_engine::shell::is_shell;
use tenure_os::process::{actor_name, is_in_container};
use tenure_store::profile::known_as;

#[cold]
#[inline(never)]
pub(crate) fn acquire(
    acquiring: Acquiring,
    reporter: &mut Reporter,
) -> Result<(String, Value), Failure> {
    match acquiring {
        Acquiring::Lock(acquire) => take(acquire, reporter),
        Acquiring::Nothing {
            place,
            id,
            mode,
            warning,
        } => {
            let format = place.format();
            let id = format.request_id(id)?;
            reporter.set_request_id(id.as_str());
            if let Some(warning) = warning {
                reporter.warn(warning);
            }
            let answer = dialect_of(format).answer(&CallResult::Unlocked { id: &id, mode });
            Ok((answer.unwrap_or_default(), unlocked(&id, mode)))
        }
    }
}

fn take(acquire: Acquire, reporter: &mut Reporter) -> Result<(String, Value), Failure> {
    let taken = take_for(acquire, None, reporter)?;
    unless_heard(
        reporter,
        taken.session,
        taken.name,
        taken.claim,
        taken.already,
    );
    Ok((taken.text, taken.data))
}

/// A hold of which its caller has not been told yet.
pub(super) struct NewHold {
    /// What people and programs are told of it.
    pub(super) text: String,
    pub(super) data: Value,
    pub(super) session: Session,
    pub(super) name: LockName,
    pub(super) claim: Claim,
    /// Whether the hold is older than the call.
    pub(super) already: bool,
}

/// Takes a lock. `client` is the program for which another process of this program's asks: it owns the hold, and
/// a signal does not end the wait.
pub(super) fn take_for(
    acquire: Acquire,
    client: Option<&Chosen>,
    reporter: &mut Reporter,
) -> Result<NewHold, Failure> {
    let Acquire {
        place,
        name,
        mode,
        pool,
        ttl_ms,
        max_age_ms,
        wait,
        force,
        ticket,
        owner: whose,
        who,
    } = acquire;
    reporter.set_lock(&name);
    let mut session = match client {
        None => Session::waiting(place, collect_signals()?)?,
        Some(_) => Session::open(place)?,
    };
    session.tell_place(reporter);
    // The audit has its label already. The hold itself follows its owner, as any script's.
    if !session.place.is_agents {
        session.place.agent = None;
    }
    let request_id = session.format.request_id(who.id)?;
    let policy = *session.store.policy();
    let ticket = match client {
        None => ticket::of(ticket, session.place.is_agents)?,
        Some(client) => ticket::of_client(ticket, client.process, wait),
    };
    let caller = || choose_owner(tenure_os::process::parent()).ok();
    let owner = match client.map_or_else(|| owner(whose), |client| Ok(Some(client.clone()))) {
        // A profile that never asks whether the process lives needs no lasting one. The claim
        // names the caller, for people.
        Err(_) if whose == Owner::Auto && policy.unknown_life == UnknownLife::NotAsked => caller(),
        other => other?,
    };
    session.refuse_own_hold(&name)?;
    let why = who.why.unwrap_or_else(|| {
        tenure_store::profile::why(owner.as_ref().map_or("acquired", |owner| &owner.name))
    });
    // Where a process is information only, the record names the caller, as the original program does.
    let recorded = match &owner {
        None if !session.format.knows_owners_by_process() => caller(),
        owner => owner.clone(),
    };
    let process = recorded.map(|owner| owner.process);
    let mut holder = session.holder(request_id, who.actor, process, why, who.facts, &name);
    // The hold may outlast the account of its user, and another user may get that number.
    holder.actor = actor_name(&holder.actor);
    if let Some(max_age_ms) = max_age_ms {
        holder.set_max_age_ms(max_age_ms);
    }
    if ttl_ms.is_some() && policy.unknown_life == UnknownLife::Alive {
        holder.set_ttl_chosen();
    }
    session.agree_on_members(&name, mode, &pool, &mut holder)?;
    // The formats of the other profiles have no place for it, and a program or an agent shows the id.
    if client.is_none()
        && holder.agent().is_none()
        && session.store.profile().record().is_none()
        && let Some(caller) = tenure_engine::caller::caller()
    {
        holder.set_caller(caller);
    }
    let request = Request {
        holder,
        kind: Kind::Detached,
        ttl_ms: ttl_ms.unwrap_or(policy.detached_ttl_ms),
        force: session.force(force)?,
        patience: Patience::Default,
        terms: Terms {
            mode,
            kept: ticket.kept,
            ..Terms::default()
        },
    };
    reporter.set_request_id(known_as(&request.holder));
    let limits = Limits::new(wait, ticket.keep);
    let acquired = session.acquire(reporter, &name, &request, limits, &mut NoLocks)?;
    let claim = &acquired.claim;
    if acquired.already && !covers(claim.mode, mode) {
        return Err(held_otherwise(&name, claim));
    }
    let member = claim.member();
    // A client calls that id by another word.
    let id = client.is_none().then(|| known_as(&claim.holder));
    let (text, data) = told(
        &session,
        &name,
        claim,
        acquired.already,
        (owner, member, id),
    );
    Ok(NewHold {
        text,
        data,
        session,
        name,
        claim: acquired.claim,
        already: acquired.already,
    })
}

/// What people and programs are told of a hold: a text and data. `owner` is the process that this call chose, `member`
/// what its slot stands for, and `id` the request id for people.
fn told(
    session: &Session,
    name: &LockName,
    claim: &Claim,
    already: bool,
    (owner, member, id): (Option<Chosen>, Option<&str>, Option<&str>),
) -> (String, Value) {
    let token = claim.token.unwrap_or_default();
    // A hold from before this call has its own owner.
    let owner = owner.filter(|owner| Some(owner.process) == claim.holder.process);
    let is_asked = session.store.policy().unknown_life != UnknownLife::NotAsked;
    let process = claim.holder.process.filter(|_| is_asked);
    let owned = process.or(owner.as_ref().map(|owner| owner.process));
    let lasts = match (&owner, process) {
        (Some(owner), Some(_)) => {
            let what = if is_job(owner.process.pid) {
                "the job"
            } else if is_shell(&owner.name) {
                "this shell"
            } else {
                "its owner"
            };
            format!(
                "held until {what} ends ({}, PID {})",
                clean(&owner.name),
                owner.process.pid
            )
        }
        (None, Some(process)) => format!("held until its owner ends (PID {})", process.pid),
        (_, None) => format!("ttl {}", age(claim.lease.ttl_ms)),
    };
    // Who shares the folder from outside of this container cannot see the owner.
    let lasts = match process {
        Some(_) if is_in_container(&session.identity.host) => format!(
            "{lasts}; outside of this container for {} after the last heartbeat",
            age(claim.lease.ttl_ms)
        ),
        _ => lasts,
    };
    let lock_file = session.store.place(name);
    let mut data = json!({
        "name": name.as_str(),
        "status": "acquired",
        "already_held": already,
        "request_id": known_as(&claim.holder),
        "token": token,
        "slot": claim.slot,
        "member": member,
        "owner_pid": owned.map(|process| process.pid),
        "owner_name": owner.as_ref().map(|owner| owner.name.clone()),
        "ttl_ms": claim.lease.ttl_ms,
        "lock_file": lock_file,
    });
    add_facts(&mut data, claim);
    let done = CallResult::Acquired {
        name,
        claim,
        lock_file: &lock_file,
    };
    let text = session.text_of(&done, || {
        sentence(name, claim, already, (member, id), &lasts)
    });
    (text, data)
}

/// The answer for people.
fn sentence(
    name: &LockName,
    claim: &Claim,
    already: bool,
    (member, id): (Option<&str>, Option<&str>),
    lasts: &str,
) -> String {
    let slot = match (claim.slot, claim.mode, member) {
        (Some(slot), Mode::Slots(slots), None) => format!("slot {slot} of {slots}, "),
        (Some(slot), Mode::Slots(slots), Some(member)) => {
            format!("slot {slot} of {slots} ({}), ", clean(member))
        }
        _ => String::new(),
    };
    let agent = claim.holder.agent();
    let agent = agent.map_or_else(String::new, |agent| format!("agent {agent}, "));
    let called = claim.holder.path().map_or(name.as_str().into(), clean);
    let id = id.map_or_else(String::new, |id| format!(", request id {id}"));
    format!(
        "{} {called}: {slot}{agent}{lasts}, fencing token {}{id}",
        if already { "already held" } else { "acquired" },
        claim.token.unwrap_or_default(),
    )
}

/// Adds what only some holds have.
fn add_facts(data: &mut Value, claim: &Claim) {
    let agent = AgentView::of(claim);
    for (key, fact) in [
        (
            "agent",
            agent.and_then(|agent| serde_json::to_value(agent).ok()),
        ),
        ("path", claim.holder.path().map(Value::from)),
        ("max_age_ms", claim.holder.max_age_ms().map(Value::from)),
    ] {
        if let Some(fact) = fact {
            data[key] = fact;
        }
    }
}

/// The answer for programs if an intent takes no lock.
fn unlocked(id: &RequestId, mode: intent::Mode) -> Value {
    json!({
        "name": null,
        "status": "unlocked",
        "mode": mode.word(),
        "already_held": false,
        "request_id": id.as_str(),
        "token": null,
        "slot": null,
        "member": null,
        "owner_pid": null,
        "owner_name": null,
        "ttl_ms": null,
        "lock_file": null,
    })
}

/// If the answer reaches no reader, no caller knows the hold's id and could give it back. So this call gives
/// it back, unless the hold is older than the call: then its owner knows the id.
pub(crate) fn unless_heard(
    reporter: &mut Reporter,
    session: Session,
    name: LockName,
    claim: Claim,
    already: bool,
) {
    reporter.unless_heard(move |reporter| {
        if already {
            return format!("{name} stays held, as it was before");
        }
        match give_back(reporter, &session, &name, &claim) {
            Ok(()) => format!("so {name} was given back"),
            Err(failure) => format!(
                "{name} could not be given back and stays held by request id {}: {}",
                known_as(&claim.holder),
                failure.message
            ),
        }
    });
}

/// Gives back what was granted just now, and nothing else.
#[cold]
#[inline(never)]
pub(super) fn give_back(
    reporter: &mut Reporter,
    session: &Session,
    name: &LockName,
    granted: &Claim,
) -> Result<(), Failure> {
    let owns = |claim: &Claim| {
        if claim.kind.is_detached()
            && (claim.ticket, claim.token) == (granted.ticket, granted.token)
        {
            Ownership::Shown
        } else {
            Ownership::Missing
        }
    };
    let shown = Some(known_as(&granted.holder));
    let result = RunResult::of(false, Some("answer"));
    let failed = |error| session.store_failed(name, error);
    session.release_owned(reporter, name, shown, &result, &owns, failed)?;
    Ok(())
}

/// The answer to a caller that asks again under its id, but for more than it has. A yes would promise what
/// it does not have, and to wait for itself would never end.
#[cold]
#[inline(never)]
fn held_otherwise(name: &LockName, claim: &Claim) -> Failure {
    let request_id = known_as(&claim.holder);
    Failure::new(
        Exit::Deadlock,
        "ALREADY_HELD",
        format!(
            "{name} is held under request id {request_id} in another mode; release it first, as waiting \
             for it would never end"
        ),
    )
    .with_context(json!({ "name": name.as_str(), "token": claim.token }))
}

/// The process whose life the lock follows; `None` if it follows none.
pub(crate) fn owner(owner: Owner) -> Result<Option<Chosen>, Failure> {
    Ok(match owner {
        Owner::None => None,
        Owner::Auto => Some(job_of_caller()?),
        Owner::Job => Some(process_of_job()?),
        Owner::Parent => Some(choose_owner(tenure_os::process::parent())?),
        Owner::Process(pid) => Some(choose_owner(Some(pid))?),
    })
}
