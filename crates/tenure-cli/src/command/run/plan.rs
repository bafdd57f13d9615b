//! The locks that a run takes: in which order, under which terms and within which wait.

use super::acquire_all::RunTarget;
use super::exec;
use crate::command::keeper;
use crate::command::ownership::{Looks, already_held, covers};
use crate::command::session::Session;
use crate::command::ticket;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::request::{At, How, Task, Wanted};
use serde_json::json;
use std::time::Duration;
use tenure_core::{Claim, Force, Kind, LockName, Patience, Process, Request, RequestId};
use tenure_engine::engine::Keep;
use tenure_store::profile::known_as;

/// The locks that a run is going to take.
pub(crate) struct Plan<'a> {
    /// The locks in the order in which the run takes them, without those that the run around it has.
    pub(crate) targets: Vec<RunTarget<'a>>,
    pub(crate) keep: Option<Keep>,
    /// The lock that gives the run its name.
    pub(super) main: LockName,
    /// The main lock, where the run around this one, or its agent, holds it.
    pub(super) outer: Option<Outer<'a>>,
    /// All locks that these hold, and under which this one goes on.
    pub(super) around: Vec<Outer<'a>>,
    /// The id by which the run is known.
    pub(crate) id: String,
}

/// A hold of the run around this one, or of the agent that calls it.
#[derive(Clone)]
pub(crate) struct Outer<'a> {
    pub(super) name: LockName,
    pub(super) token: u64,
    pub(super) id: RequestId,
    /// The agent that calls took it by itself.
    pub(super) is_agents: bool,
    /// Number of the slot, if the lock has several.
    pub(super) slot: Option<u32>,
    /// What that slot stands for.
    pub(super) member: Option<String>,
    pub(super) ttl: Duration,
    /// Where it is.
    pub(super) session: &'a Session,
}

/// What a plan is made from.
pub(crate) struct Planning<'t, 'a> {
    pub(crate) task: &'t Task,
    pub(crate) session: &'a Session,
    /// Where the group's lock is.
    pub(crate) group_session: &'a Session,
    pub(crate) request_id: RequestId,
    /// The process to which the holds belong, if that is another one than this.
    pub(crate) owner: Option<Process>,
}

impl<'a> Planning<'_, 'a> {
    /// Makes the plan. It looks at locks and changes nothing.
    pub(crate) fn plan(&self, main: LockName) -> Result<Plan<'a>, Failure> {
        let task = self.task;
        let ticket = ticket::of(task.ticket, self.session.place.is_agents)?;
        let mut plan = Plan {
            targets: Vec::with_capacity(task.locks.len()),
            keep: ticket.keep,
            main,
            outer: None,
            around: Vec::new(),
            id: self.request_id.as_str().to_owned(),
        };
        for wanted in &task.locks {
            self.add(&mut plan, wanted)?;
        }
        if ticket.keep.is_some() && plan.targets.len() > 1 {
            return Err(Failure::bad_arguments(
                "--ticket keeps a place in one queue, and this run waits in several",
            ));
        }
        for target in &mut plan.targets {
            target.request.terms.kept = ticket.kept;
        }
        if let Some(target) = plan.targets.last() {
            known_as(&target.request.holder).clone_into(&mut plan.id);
        }
        Ok(plan)
    }

    /// Adds one lock, unless the run around this one has it and shares it, or the agent that calls has it.
    fn add(&self, plan: &mut Plan<'a>, wanted: &Wanted) -> Result<(), Failure> {
        let (name, reentrant) = (&wanted.name, self.task.reentrant);
        let session = match wanted.at {
            At::Place => self.session,
            At::Group => self.group_session,
        };
        // What would end a holder, or go on under it, has to know before it asks. Every other caller finds out when it
        // has to wait.
        let ends_holders = wanted.terms.cancel_in_progress || wanted.force != Force::No;
        let looks = match (reentrant, ends_holders) {
            (true, _) => Looks::Within,
            (false, true) => Looks::Everywhere,
            (false, false) => Looks::Inherited,
        };
        // What an agent took between its calls is to its commands what a run is to the runs within it.
        let own = session.agents_hold(name)?;
        let goes_on = reentrant || own.is_some();
        let outer = own.map_or_else(|| session.outer_hold(name, looks), |own| Ok(Some(own)));
        match outer? {
            // Work that began under a hold that is gone must not go on under another one.
            None if reentrant && !session.inherited(name).is_empty() => {
                return Err(outer_lost(name));
            }
            None => plan.targets.push(RunTarget {
                session,
                name: name.clone(),
                request: self.request(session, wanted)?,
            }),
            Some(claim) if !goes_on => return Err(already_held(name, &claim)),
            Some(claim) if !covers(claim.mode, wanted.terms.mode) => {
                return Err(held_otherwise(name, &claim, session.is_agents_own(&claim)));
            }
            Some(claim) => {
                let outer = Outer {
                    name: name.clone(),
                    token: claim.token.unwrap_or_default(),
                    id: claim.holder.request_id.clone(),
                    is_agents: session.is_agents_own(&claim),
                    slot: claim.slot,
                    member: claim.member().map(str::to_owned),
                    ttl: Duration::from_millis(claim.lease.ttl_ms),
                    session,
                };
                if *name == plan.main {
                    plan.outer = Some(outer.clone());
                }
                plan.around.push(outer);
            }
        }
        Ok(())
    }

    /// The id of a claim. A group beside a lock of another profile has no record of that format. So
    /// its claim has the id by which people know the run.
    fn id_in(&self, session: &Session) -> RequestId {
        match &self.task.who.known_as {
            Some(id) if !std::ptr::eq(session, self.session) => id.clone(),
            _ => self.request_id.clone(),
        }
    }

    fn request(&self, session: &Session, wanted: &Wanted) -> Result<Request, Failure> {
        let (task, who) = (self.task, &self.task.who);
        let usual_ttl_ms = session.store.policy().supervised_ttl_ms;
        // The facts are for the profile's record, and not for the group's lock beside it.
        let facts = if std::ptr::eq(session, self.session) {
            who.facts.clone()
        } else {
            Vec::new()
        };
        let why = who.why.clone().unwrap_or_default();
        let process = self.owner.or(Some(session.identity.process));
        let id = self.id_in(session);
        let mut request = Request {
            holder: session.holder(id, who.actor.clone(), process, why, facts, &wanted.name),
            kind: Kind::Kernel,
            ttl_ms: wanted.ttl_ms.unwrap_or(usual_ttl_ms),
            force: session.force(wanted.force)?,
            patience: Patience::Default,
            terms: wanted.terms,
        };
        let (mode, holder) = (wanted.terms.mode, &mut request.holder);
        session.agree_on_members(&wanted.name, mode, &wanted.pool, holder)?;
        // The owner is to the hold what the command is to the hold of a run: whatever becomes of the process that
        // keeps the liveness lock, the hold lasts while its owner lives.
        request.holder.command = self.owner;
        if self.owner.is_some() && session.store.is_remote() {
            let (key, value) = keeper::mark(session.identity.process);
            request.holder.facts.push((key.to_owned(), value));
        }
        if task.how == How::Exec {
            exec::mark(&mut request.holder);
        }
        Ok(request)
    }
}

#[cold]
#[inline(never)]
fn held_otherwise(name: &LockName, claim: &Claim, by_agent: bool) -> Failure {
    let mut failure = already_held(name, claim);
    let (whose, what) = if by_agent {
        ("agent", "its command")
    } else {
        ("run", "--reentrant")
    };
    failure.message = format!(
        "{name} is held by this {whose} itself in another mode, and {what} goes on only under the \
         same; waiting for it would never end"
    );
    failure
}

#[cold]
#[inline(never)]
pub(super) fn outer_lost(name: &LockName) -> Failure {
    Failure::new(
        Exit::LockLost,
        "LOCK_LOST",
        format!(
            "{name} was held by the run around this one and is not any more; --reentrant goes on \
             only under a live hold"
        ),
    )
    .with_context(json!({ "name": name.as_str(), "lost": true }))
}
