//! Whose a claim is: the one answer to whether it is the caller's, whether the caller may release it, and whether the caller
//! would wait for itself.

use super::session::{Descends, Session};
use crate::exit::Exit;
use crate::failure::Failure;
use serde_json::json;
use std::time::Duration;
use tenure_core::{Claim, Entry, LockName, Mode, Process, Reason, Refusal, Request};
use tenure_engine::caller::{choose_owner, is_caller, job_of_caller};
use tenure_engine::inherited::{self, Hold};
use tenure_os::clock::{Clock, instant, nap};
use tenure_os::process::{Kin, is_descendant_of, shares_processes};
use tenure_store::advice::Advice;
use tenure_store::profile::known_as;
use tenure_store::{Reading, StoreError};

/// Where a call looks for the hold of a run around it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Looks {
    /// In the variables that it has inherited: this costs nothing.
    Inherited,
    /// In the lock, too.
    Everywhere,
    /// In the lock, too; and what was inherited counts whoever the caller is: it asks to go on under that hold.
    Within,
}

/// How the caller is related to the owner of a hold.
#[derive(Clone, Copy)]
enum Kinship<'a> {
    /// The caller descends from it, however far.
    Descends(&'a Descends<'a>),
    /// The owner itself makes this call.
    Calls,
    /// A hold of this caller would follow one of these.
    Follows(&'a [Process]),
}

/// How long a call waits until the command of the run around it is recorded, and how often it looks.
const NAMED_SOON: Duration = Duration::from_millis(500);
const NAMED_LOOK: Duration = Duration::from_millis(10);

impl Session {
    /// Whether a claim is the caller's: the caller shows its id, has inherited the hold, or descends from
    /// the claim's owner.
    pub(crate) fn is_mine(&self, claim: &Claim, shown: Option<&str>, inherited: &[Hold]) -> bool {
        self.is_mine_by(claim, shown, inherited, &is_descendant_of)
    }

    /// [`Session::is_mine`] for a caller that asks about many claims: `descends` says whether it descends from an owner.
    pub(super) fn is_mine_by(
        &self,
        claim: &Claim,
        shown: Option<&str>,
        inherited: &[Hold],
        descends: &Descends<'_>,
    ) -> bool {
        if let Some(id) = shown {
            return self.format.shows(claim, id) && self.may_speak_for(claim);
        }
        inherited::have(inherited, claim) || self.is_owned(claim, Kinship::Descends(descends))
    }

    /// Whether the caller may release a claim: it shows the id, or it is the claim's owner. Descent
    /// from the owner is not enough. An agent's sub-shells all follow the same process, so a sub-shell
    /// that was refused would release the hold of another one.
    pub(crate) fn may_release(&self, claim: &Claim, shown: Option<&str>) -> bool {
        if shown.is_some() || self.format.lets_descendants_release() {
            return self.is_mine(claim, shown, &[]);
        }
        self.is_owned(claim, Kinship::Calls)
    }

    /// Whether the caller may be the agent that a claim names. A caller that names no agent may be: the shell of
    /// an agent does not know which one it works for. It shows the id of the hold instead.
    pub(super) fn may_speak_for(&self, claim: &Claim) -> bool {
        match (&self.place.agent, claim.holder.agent()) {
            (Some(caller), Some(agent)) => caller.covers(&agent),
            (None, _) | (_, None) => true,
        }
    }

    /// Whether this very caller took a claim: the one that is recorded makes this call.
    pub(crate) fn took(&self, claim: &Claim) -> bool {
        let holder = &claim.holder;
        let caller = holder.caller();
        caller.is_some_and(|caller| is_caller(&caller, &holder.host, &self.identity.host))
    }

    /// Whether the caller names the agent that a claim names. That is no right to end the hold.
    pub(super) fn is_agent_of(&self, claim: &Claim) -> bool {
        let named = self.place.agent.as_ref().zip(claim.holder.agent());
        named.is_some_and(|(caller, agent)| caller.covers(&agent))
    }

    /// Whether the agent that calls keeps a claim by itself. It need not wait for that claim: what it calls goes on under it.
    pub(crate) fn is_agents_own(&self, claim: &Claim) -> bool {
        self.place.is_agents
            && claim.kind.is_detached()
            && claim
                .holder
                .agent()
                .is_some_and(|agent| self.place.agent.as_ref() == Some(&agent))
    }

    /// The live hold of this lock that the agent which calls took by itself, for the time between its calls.
    pub(crate) fn agents_hold(&self, name: &LockName) -> Result<Option<Claim>, Failure> {
        if !self.place.is_agents {
            return Ok(None);
        }
        let reading = self.store.read(name)?;
        let now = self.clock.now();
        let mut granted = reading.entry().into_iter().flat_map(Entry::granted);
        let own =
            granted.find(|claim| self.is_agents_own(claim) && self.is_held(&reading, claim, &now));
        Ok(own.cloned())
    }

    /// Whether a detached hold belongs to a process of that kinship with the caller. The owner of an agent's hold is the
    /// host of all agents of a session, so kinship with it says nothing about one of them; each gives back its own.
    fn is_owned(&self, claim: &Claim, kinship: Kinship<'_>) -> bool {
        let (theirs, here) = (&claim.holder.host, &self.identity.host);
        let Some(owner) = claim.holder.process.filter(|_| claim.kind.is_detached()) else {
            return false;
        };
        let agent = claim.holder.agent();
        let by_process = agent.is_none() && self.format.knows_owners_by_process();
        match kinship {
            Kinship::Descends(descends) => by_process && descends(&owner, theirs, here),
            Kinship::Calls => by_process && is_caller(&owner, theirs, here),
            Kinship::Follows(owners) => {
                agent == self.place.agent
                    && owners.contains(&owner)
                    && shares_processes(theirs, here)
            }
        }
    }

    /// Whether the caller would have to end before a detached hold does: the agent that calls took it, or it belongs to
    /// one of these owners of the caller.
    pub(super) fn is_own_detached(&self, claim: &Claim, owners: &[Process]) -> bool {
        self.is_agents_own(claim) || self.is_owned(claim, Kinship::Follows(owners))
    }

    /// The hold of the caller's own owner that keeps a lock from having room for this mode, for a caller that takes
    /// nothing. A hold whose token is greater than `before` was taken after the wait began: another sub-shell of the
    /// owner did so, and will give it back.
    pub(super) fn own_hold(&self, reading: &Reading, mode: Mode, before: u64) -> Option<Claim> {
        let entry = reading.entry()?;
        if self.store.profile().record().is_some()
            || !entry.granted().any(|claim| claim.kind.is_detached())
        {
            return None;
        }
        let owners = owners(None);
        let is_own = |claim: &&Claim| {
            self.is_own_detached(claim, &owners) && claim.token.is_some_and(|token| token <= before)
        };
        blocking(entry, mode, &is_own, entry.granted()).cloned()
    }

    /// The live hold of this lock by a run that the caller is inside of. `looks` says where to look for one whose
    /// variables the caller did not inherit (`env -i`, sudo).
    pub(crate) fn outer_hold(
        &self,
        name: &LockName,
        looks: Looks,
    ) -> Result<Option<Claim>, Failure> {
        let inherited = self.inherited(name);
        if inherited.is_empty() && looks == Looks::Inherited {
            return Ok(None);
        }
        let reading = self.reading_of_named(name, &inherited, looks)?;
        let now = self.clock.now();
        let mut granted = reading.entry().into_iter().flat_map(Entry::granted);
        let is_outer = |claim: &Claim| {
            self.is_around(claim, &inherited)
                || looks == Looks::Within && inherited::have(&inherited, claim)
        };
        let outer = granted.find(|claim| is_outer(claim) && self.is_held(&reading, claim, &now));
        Ok(outer.cloned())
    }

    /// A lock in which a run around this call has its command recorded, which takes some milliseconds from its start. Before
    /// that, nobody can tell a daemon that the command has left behind from the command itself.
    pub(super) fn reading_of_named(
        &self,
        name: &LockName,
        inherited: &[Hold],
        looks: Looks,
    ) -> Result<Reading, StoreError> {
        let until = instant() + NAMED_SOON;
        loop {
            let reading = self.store.read(name)?;
            let is_unclear = |claim: &Claim| {
                inherited::is_unnamed_run(claim)
                    && inherited::have(inherited, claim)
                    && inherited::kin_of(claim, &self.identity.host) == Kin::Unknown
            };
            let is_unclear = looks != Looks::Within && {
                let mut granted = reading.entry().into_iter().flat_map(Entry::granted);
                granted.any(is_unclear)
            };
            if !is_unclear || instant() >= until {
                return Ok(reading);
            }
            nap(NAMED_LOOK);
        }
    }

    /// Whether this call is a part of the work of a claim. Ancestry decides. Where ancestry cannot be seen, the holds
    /// that the caller has inherited do: they outlive the run, and whoever got them is not always inside.
    pub(crate) fn is_around(&self, claim: &Claim, inherited: &[Hold]) -> bool {
        match inherited::kin_of(claim, &self.identity.host) {
            Kin::Inside => true,
            Kin::Outside => false,
            Kin::Unknown => inherited::have(inherited, claim),
        }
    }

    /// The hold that blocks a native claim, if the caller's own script may have taken it.
    pub(super) fn own_blocker<'a>(&self, refusal: &'a Refusal) -> Option<&'a Claim> {
        let claim = refusal.blocker.as_deref()?;
        let is_native = self.store.profile().record().is_none();
        let is_held = refusal.reason == Reason::Held && claim.token.is_some();
        (is_native && is_held && self.is_mine(claim, None, &[])).then_some(claim)
    }

    /// The answer to a caller that would wait without end for a hold of its own owner.
    pub(super) fn waits_for_itself(&self, name: &LockName, claim: &Claim) -> Failure {
        let owner = claim.holder.process.map(|process| process.pid);
        let owner = owner.map_or_else(String::new, |pid| format!(", PID {pid}"));
        let is_agents = self.is_agents_own(claim);
        let message = match claim.holder.agent().filter(|_| is_agents) {
            Some(agent) => format!(
                "{name} is held by this agent itself, {agent}; its commands go on under that hold"
            ),
            None => format!(
                "{name} is held in the name of the caller's own owner{owner}; the caller may wait for \
                 itself, without end"
            ),
        };
        let failure = Failure::new(Exit::Deadlock, "ALREADY_HELD", message);
        let bounded = if is_agents {
            ""
        } else {
            "; with a bounded --wait it waits all the same"
        };
        let text = format!(
            "{}\n{:8}{}{bounded}",
            failure.message,
            "",
            give_back(&self.advice(name), claim)
        );
        failure.with_text(text).with_context(json!({
            "name": name.as_str(),
            "token": claim.token,
            "mine": true,
            "request_id": known_as(&claim.holder),
        }))
    }

    /// Refuses to wait, inside a run, for a lock that this run itself holds: the wait would never end.
    pub(crate) fn refuse_own_hold(&self, name: &LockName) -> Result<(), Failure> {
        match self.outer_hold(name, Looks::Everywhere)? {
            None => Ok(()),
            Some(claim) => Err(already_held(name, &claim)),
        }
    }
}

/// Whether a hold in one mode has all that the wanted mode would give.
pub(crate) fn covers(held: Mode, wanted: Mode) -> bool {
    held == Mode::Exclusive || held == wanted
}

/// The answer to a caller that wants a lock which its own run holds.
pub(super) fn already_held(name: &LockName, claim: &Claim) -> Failure {
    let because = match claim.mode {
        Mode::Exclusive => "; waiting for it would never end",
        Mode::Shared | Mode::Slots(_) => ", and a run holds a lock once",
    };
    Failure::new(
        Exit::Deadlock,
        "ALREADY_HELD",
        format!("{name} is held by this run itself{because} (`run --reentrant` goes on under it)"),
    )
    .with_context(json!({ "name": name.as_str(), "token": claim.token }))
}

/// What to do about a hold that may be the caller's own.
pub(super) fn give_back(advice: &Advice, claim: &Claim) -> String {
    let line = advice.line(&["release"], &["--request-id", known_as(&claim.holder)]);
    format!("if the caller itself took it, `{line}` gives it back")
}

/// The processes whose lives a hold of this caller would follow: the one that a detached request names, or that
/// `acquire` would choose, and the one that would own it without the shells for one line. What is above those
/// waits for them.
pub(super) fn owners(request: Option<&Request>) -> Vec<Process> {
    let owner = match request.filter(|request| request.kind.is_detached()) {
        Some(request) => request.holder.process,
        None => job_of_caller().ok().map(|chosen| chosen.process),
    };
    let lasting = owner.and_then(|_| choose_owner(None).ok());
    let owners = owner
        .into_iter()
        .chain(lasting.map(|chosen| chosen.process));
    owners.filter(|owner| owner.started.is_some()).collect()
}

/// The own hold, of `own` those for which `is_own`, that keeps a claim of this mode from holding whatever others do.
pub(super) fn blocking<'a>(
    entry: &'a Entry,
    mode: Mode,
    is_own: &impl Fn(&&Claim) -> bool,
    own: impl Iterator<Item = &'a Claim>,
) -> Option<&'a Claim> {
    let mut own = own.filter(|claim| is_own(claim));
    match mode {
        Mode::Exclusive | Mode::Shared => own.next(),
        // A single slot of another owner is enough, because it can become free. But it does not help
        // while an own hold stays that no slot is free beside.
        Mode::Slots(_) if entry.granted().all(|claim| is_own(&claim)) => own.next(),
        Mode::Slots(_) => own.find(|claim| !mode.holds_beside(claim.mode)),
    }
}
