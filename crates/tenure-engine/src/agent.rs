//! What is done in the name of an agent: leases of several locks at once, signs of life, and the end of all that an
//! agent holds.
//!
//! An agent's hold is a detached claim whose ttl is the silence that ends it ([`tenure_core::SILENCE_MS`]). Each event
//! of the agent's host is a sign of life. The hold ends when its agent is silent for too long, at its highest age, and
//! when the host's process is proven dead, whichever is first (`tenure_core::standing`).
//!
//! **Leases are taken all or none, and never waited for in a circle.** They are taken in the order of their names, so
//! of two agents that want the same locks the second waits at the first one that both want. What a call has taken it
//! gives back if it does not get the rest.
//!
//! What it leaves to others: which locks a path needs (the caller), the audit (the caller, from the answers here), and
//! how a sign reaches the claims (the store).

use crate::engine::{self, AcquireError, Acquired, Keep, Limits, Observer, Wait, Waiting};
use crate::envelope::{LockView, leased};
use std::time::{Duration, Instant};
use tenure_core::{
    AgentKey, Claim, Entry, Force, Holder, Host, Kept, Kind, LockName, Mode, Now, Ownership,
    Patience, Policy, Process, Reason, Released, Request, Standing, Terms,
};
use tenure_os::clock::Clock;
use tenure_os::process;
use tenure_store::contract::{AgentSign, Agents};
use tenure_store::{RenewedOwned, Store, StoreError, Verbs};

/// How long the place of an agent that was refused is kept.
const PLACE_KEPT: Duration = Duration::from_secs(60);

/// How long a lease lasts at least, as a guess, on a lock that had none before. A place is kept for longer.
const LEASE_MS: u64 = 30_000;

/// An agent, and the locks that its calls are about.
pub struct Agent<'a> {
    /// The locks.
    pub store: &'a dyn Store,
    /// The clock.
    pub clock: &'a dyn Clock,
    /// Who it is.
    pub key: &'a AgentKey,
}

/// A lock that an agent wants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    /// The lock.
    pub name: LockName,
    /// The path that it stands for, as people know it.
    pub path: Option<String>,
}

/// What the leases of one call have in common.
#[derive(Debug, Clone)]
pub struct LeaseTerms {
    /// The host process of the agent, if it is known.
    pub owner: Option<Process>,
    /// Where that process is.
    pub here: Host,
    /// The user.
    pub actor: String,
    /// What for.
    pub why: String,
    /// The silence that ends them, in milliseconds.
    pub silence_ms: u64,
    /// The age that ends them, in milliseconds.
    pub max_age_ms: u64,
    /// How long to wait for all of them together.
    pub wait: Duration,
}

/// A lease that the agent has.
#[derive(Debug)]
pub struct Lease {
    /// The lock.
    pub name: LockName,
    /// The claim.
    pub claim: Claim,
    /// How it was taken; `None` for one that the agent had before this call.
    pub acquired: Option<Acquired>,
}

/// A lease that the agent does not get, so it gets none.
#[derive(Debug)]
pub struct NotTaken {
    /// The lock.
    pub name: LockName,
    /// Why.
    pub error: AcquireError,
    /// What is known of its holder.
    pub view: Option<LockView>,
    /// The place in line that is kept for the agent, from 1.
    pub place: Option<usize>,
}

/// A hold of an agent that was ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Freed {
    /// The lock.
    pub name: LockName,
    /// The claim as it stood.
    pub claim: Claim,
    /// How long it was held.
    pub held_ms: u64,
}

impl NotTaken {
    /// The refusal as facts, in one sentence; no order to anybody.
    pub fn facts(&self) -> String {
        match &self.view {
            Some(view) => leased(view, self.place),
            None => format!("{} was not leased: {}", self.name, self.error),
        }
    }
}

impl std::fmt::Debug for Agent<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Agent")
            .field("key", &self.key)
            .finish_non_exhaustive()
    }
}

impl Agent<'_> {
    /// Notes a sign of life.
    ///
    /// # Errors
    /// - [`StoreError`] if it cannot be noted.
    pub fn seen(&self, sign: AgentSign<'_>) -> Result<(), StoreError> {
        let now = self.clock.now();
        if let Some(agents) = self.store.agents() {
            return agents.note(self.key, sign, &now);
        }
        for (name, claim) in self.holds()? {
            // Renewing again what was renewed a moment ago would cost a request and change nothing.
            let boot = claim.boot();
            let is_own = claim.holder.agent().as_ref() == Some(self.key);
            if is_own && claim.lease.silent_ms(boot, &now) > claim.lease.ttl_ms / 16 {
                let owns = |other: &Claim| shown(is_same(other, &claim));
                self.store.renew_owned(&name, &owns, &now)?;
            }
        }
        Ok(())
    }

    /// The live detached holds of all agents that the key covers.
    ///
    /// # Errors
    /// - [`StoreError`] if the place cannot be read.
    pub fn holds(&self) -> Result<Vec<(LockName, Claim)>, StoreError> {
        if let Some(agents) = self.store.agents()
            && !agents.may_hold(self.key)?
        {
            return Ok(Vec::new());
        }
        self.look_at_all(&mut Vec::new())
    }

    /// Looks for the holds in all locks, whatever signs there are; `places` gets the locks in whose line a place
    /// is kept for one of the agents.
    fn look_at_all(
        &self,
        places: &mut Vec<LockName>,
    ) -> Result<Vec<(LockName, Claim)>, StoreError> {
        let mut names = Vec::new();
        (self.store).names(tenure_store::contract::Which::Locks, &mut |name| {
            names.push(name);
        })?;
        names.sort();
        let now = self.clock.now();
        let policy = &self.store.rules().policy;
        let mut holds = Vec::new();
        for (name, reading) in names.iter().zip(self.store.read_several(&names)) {
            // A lock that cannot be read is no agent's.
            let Ok(reading) = reading else { continue };
            let Some(entry) = reading.entry() else {
                continue;
            };
            let own = entry.granted().filter(|claim| self.is_covered(claim));
            let live = own.filter(|claim| {
                matches!(reading.standing_of(policy, claim, &now), Standing::Held(_))
            });
            holds.extend(live.map(|claim| (name.clone(), claim.clone())));
            if entry.claims.iter().any(|claim| claim.is_place_of(self.key)) {
                places.push(name.clone());
            }
        }
        Ok(holds)
    }

    /// Ends the detached holds of all agents that the key covers, gives up the places that are kept for them, and
    /// forgets their signs. Runs have places without a sign, so each lock is looked at.
    ///
    /// # Crash safety
    /// The signs go last. A process that dies before that leaves holds that end by silence, and a later call finds
    /// them. What a call of these agents takes meanwhile gets its sign back: by a second look here, or by that call,
    /// which writes it again behind the grant. One of the two comes later than the other.
    ///
    /// # Errors
    /// - [`StoreError`] if one cannot be ended. The others were tried.
    pub fn free(&self) -> Result<Vec<Freed>, StoreError> {
        let (mut freed, mut failed) = (Vec::new(), None);
        let mut places = Vec::new();
        let holds = self.look_at_all(&mut places)?;
        // Nothing needs them: one that cannot be given up lapses.
        for name in places {
            let _ = self.store.forget_places(&name, self.key, &self.clock.now());
        }
        for (name, claim) in holds {
            let owns = |other: &Claim| shown(is_same(other, &claim));
            match self.store.release_owned(&name, &owns, &self.clock.now()) {
                Ok(Released::Done { claim, held_ms, .. }) => freed.push(Freed {
                    name,
                    claim: *claim,
                    held_ms,
                }),
                Ok(_) => {}
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        match (failed, self.store.agents()) {
            (Some(error), _) => Err(error),
            (None, Some(agents)) => self.forget(agents).map(|()| freed),
            (None, None) => Ok(freed),
        }
    }

    /// Forgets the signs of all agents that the key covers, except of those that hold something by now.
    fn forget(&self, agents: &dyn Agents) -> Result<(), StoreError> {
        if !agents.forget(self.key)? {
            return Ok(());
        }
        for (_, claim) in self.look_at_all(&mut Vec::new())? {
            if let Some(agent) = claim.holder.agent() {
                agents.note(&agent, AgentSign::Holds, &self.clock.now())?;
            }
        }
        Ok(())
    }

    /// Takes all of these locks, or none. What the agent has already it keeps, and renews it under the lock's guard:
    /// so a hold that another caller takes over at this instant is found to be lost.
    ///
    /// The place in line of the lock that is missing is kept for a minute, under the agent's key. Of several calls
    /// of one agent for one lock, the first waits and the others are refused.
    ///
    /// # Errors
    /// - [`NotTaken`] for the first lock that the agent does not get.
    pub fn take(&self, wanted: &[Wanted], terms: &LeaseTerms) -> Result<Vec<Lease>, Box<NotTaken>> {
        let mut wanted: Vec<&Wanted> = wanted.iter().collect();
        wanted.sort_by(|one, other| one.name.cmp(&other.name));
        wanted.dedup_by(|one, other| one.name == other.name);
        let until = self.clock.instant().checked_add(terms.wait);
        let mut taken: Vec<Lease> = Vec::with_capacity(wanted.len());
        for want in wanted {
            match self.take_one(want, terms, until) {
                Ok(lease) => taken.push(lease),
                Err(refused) => {
                    self.give_back(taken);
                    return Err(refused);
                }
            }
        }
        Ok(taken)
    }

    fn take_one(
        &self,
        want: &Wanted,
        terms: &LeaseTerms,
        until: Option<Instant>,
    ) -> Result<Lease, Box<NotTaken>> {
        let name = &want.name;
        let failed = |error: AcquireError| self.not_taken(name, error);
        let seen = |error: StoreError| failed(error.into());
        let reading = self.store.read(name, None).map_err(seen)?;
        if let Some(claim) = self.kept(name, &reading).map_err(seen)? {
            return Ok(Lease {
                name: name.clone(),
                claim,
                acquired: None,
            });
        }
        let mut request = self.request(want, terms).map_err(|error| {
            seen(StoreError::Io {
                place: self.store.location(name).shown,
                doing: "drawing a request id",
                source: error,
            })
        })?;
        request.terms.kept = Some(Kept::Agent);
        let limits = Limits {
            wait: match until.and_then(|until| until.checked_duration_since(self.clock.instant())) {
                Some(rest) if !rest.is_zero() => Wait::For(rest),
                _ => Wait::No,
            },
            said: None,
            // The place is the agent's, and each of its calls is another process.
            keep: Some(Keep {
                owner: None,
                grace: PLACE_KEPT,
            }),
        };
        let mut one = OneWaiter(self.key);
        match engine::acquire(self.store, self.clock, name, request, limits, &mut one) {
            Ok(acquired) => Ok(Lease {
                name: name.clone(),
                claim: acquired.claim.clone(),
                acquired: Some(acquired),
            }),
            // Another call of this agent has it by now, or waits for it.
            Err(AcquireError::Deadlock) => {
                let reading = self.store.read(name, None).map_err(seen)?;
                if let Some(claim) = self.kept(name, &reading).map_err(seen)? {
                    return Ok(Lease {
                        name: name.clone(),
                        claim,
                        acquired: None,
                    });
                }
                let waited = terms.wait;
                let refused =
                    engine::timed_out(self.store, self.clock, name, Mode::Exclusive, waited);
                Err(failed(refused))
            }
            Err(error) => Err(failed(error)),
        }
    }

    /// The agent's own live hold, renewed; `None` if it has none.
    fn kept(
        &self,
        name: &LockName,
        reading: &tenure_store::Reading,
    ) -> Result<Option<Claim>, StoreError> {
        let (policy, now) = (&self.store.rules().policy, self.clock.now());
        let mut granted = reading.entry().into_iter().flat_map(Entry::granted);
        let own = granted.find(|claim| {
            claim.kind == Kind::Detached
                && self.is_own(claim)
                && matches!(reading.standing_of(policy, claim, &now), Standing::Held(_))
        });
        let Some(own) = own else { return Ok(None) };
        let owns = |other: &Claim| shown(is_same(other, own));
        match self.store.renew_owned(name, &owns, &now)? {
            RenewedOwned::Renewed { claim } => Ok(Some(*claim)),
            RenewedOwned::NotOwner { .. } | RenewedOwned::Lost => Ok(None),
        }
    }

    fn request(&self, want: &Wanted, terms: &LeaseTerms) -> std::io::Result<Request> {
        let mut holder = Holder {
            request_id: process::new_request_id()?,
            actor: terms.actor.clone(),
            process: terms.owner,
            command: None,
            host: terms.here.clone().into(),
            why: terms.why.clone(),
            facts: Vec::new(),
        };
        holder.set_agent(self.key);
        holder.set_max_age_ms(terms.max_age_ms);
        if let Some(path) = &want.path {
            holder.set_path(path);
        }
        Ok(Request {
            holder,
            kind: Kind::Detached,
            ttl_ms: terms.silence_ms,
            force: Force::No,
            patience: Patience::Queue,
            terms: Terms::default(),
        })
    }

    fn not_taken(&self, name: &LockName, error: AcquireError) -> Box<NotTaken> {
        let (mut view, mut place) = (None, None);
        if let AcquireError::Refused {
            refusal,
            entry,
            retry_after_ms,
            ..
        } = &error
        {
            let policy = &self.store.rules().policy;
            let shown = self.store.location(name).shown;
            let mut seen =
                LockView::refused(name, shown, refusal, entry, policy, &self.clock.now());
            let hint = comes_back_ms(entry, policy, &self.clock.now(), *retry_after_ms);
            seen.retry_after_ms = Some(hint).filter(|_| refusal.reason == Reason::Held);
            let mut waiting = entry.claims.iter().filter(|claim| claim.token.is_none());
            place = waiting
                .position(|claim| self.is_own(claim))
                .map(|before| before + 1);
            view = Some(seen);
        }
        Box::new(NotTaken {
            name: name.clone(),
            error,
            view,
            place,
        })
    }

    /// Gives back what this call has taken. If that fails, the hold ends with the agent or by silence.
    fn give_back(&self, taken: Vec<Lease>) {
        for lease in taken
            .into_iter()
            .rev()
            .filter(|lease| lease.acquired.is_some())
        {
            let owns = |other: &Claim| shown(is_same(other, &lease.claim));
            let _ = self
                .store
                .release_owned(&lease.name, &owns, &self.clock.now());
        }
    }

    fn is_own(&self, claim: &Claim) -> bool {
        claim.holder.agent().as_ref() == Some(self.key)
    }

    fn is_covered(&self, claim: &Claim) -> bool {
        let agent = claim.holder.agent();
        claim.kind == Kind::Detached && agent.is_some_and(|agent| self.key.covers(&agent))
    }
}

/// Lets one call of an agent wait for a lock at a time.
struct OneWaiter<'a>(&'a AgentKey);

impl Observer for OneWaiter<'_> {
    fn waiting(&mut self, _: &Waiting<'_>) -> Option<Instant> {
        None
    }

    fn gives_way(&mut self, waiting: &Waiting<'_>) -> bool {
        let mut others = waiting.entry.claims.iter();
        others.any(|claim| {
            claim.ticket < waiting.ticket
                && (claim.token.is_some() || claim.is_in_line())
                && claim.holder.agent().as_ref() == Some(self.0)
        })
    }
}

/// When a call should come back that was refused a lease, where `guess` is what is said of any lock. A lease ends with its
/// agent, and not with an edit. So of one without a past, nothing says that it is free in a moment: a model that
/// is told so asks again and again.
fn comes_back_ms(entry: &Entry, policy: &Policy, now: &Now, guess: u64) -> u64 {
    let front = entry.front().filter(|claim| claim.kind == Kind::Detached);
    let Some(lease) = front.filter(|_| entry.history.usual_ms().is_none()) else {
        return guess;
    };
    let rest = lease.limited_ms(policy, now).unwrap_or(u64::MAX);
    guess.max(LEASE_MS.min(rest))
}

fn is_same(one: &Claim, other: &Claim) -> bool {
    (one.ticket, one.token) == (other.ticket, other.token)
}

fn shown(is_own: bool) -> Ownership {
    if is_own {
        Ownership::Shown
    } else {
        Ownership::Missing
    }
}
