//! What becomes of a place in line: for which caller it is kept, which claim gives it up to a newer one,
//! and which claims do not count while they stand there.
//!
//! Three kinds of waiting claims block no other claim:
//! - A claim whose caller is *away*. Its place is kept for a grace, so that a caller with bounded waits
//!   does not go to the end of the line each time.
//! - A claim that was asked to stop. It has nothing to wait for any more, and leaves when its caller learns
//!   of it.
//! - A claim that does not act. Claims behind it passed it when it did not take its turn.
//!
//! `claims` decides which claim may hold; `standing` decides which claim may be taken for dead.

use crate::agent::AgentKey;
use crate::claim::{Claim, Entry, Kept, Request, Reservation, StopRequest, WaitingFor, Watched};
use crate::event::Event;
use crate::holder::Process;
use crate::mode::Mode;
use crate::policy::Policy;
use crate::standing::{Evidence, Life, Liveness, StaleReason, Standing, judge};
use crate::time::{Now, Stamp};
use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;

/// How long a waiter that does not take its turn keeps it, in milliseconds. Then it stands aside.
pub const STOPPED_GRACE_MS: u64 = 10_000;

/// After how long a turn counts as not taken, in milliseconds, where the process is not seen to be stopped. A waiter
/// that runs takes its turn within a few of them.
pub const UNTAKEN_MS: u64 = 2_000;

/// How many claims a short line has.
pub const SHORT_LINE: usize = 64;

/// How often a waiter looks at its line, in milliseconds.
pub const LOOK_AGAIN_MS: u64 = 10_000;

/// How often a waiter of a short line looks, in milliseconds.
pub const LOOK_AGAIN_SHORT_MS: u64 = 2_000;

/// How much later than planned a waiter that runs may look, in milliseconds.
const LATE_MS: u64 = 1_000;

/// A line that does not move: a claim could hold, and does not take its turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Standstill {
    /// The ticket of that claim.
    pub front: u64,
    /// For how long it has been that claim's turn, in milliseconds.
    pub since_ms: u64,
    /// The time until that claim stands aside, in milliseconds; 0 if it already does.
    pub rest_ms: u64,
    /// Whether its process is seen to be stopped. Else it is only seen that it does not act.
    pub is_stopped: bool,
    /// Whether this look marked claims as passed that stand aside only if they do not look meanwhile.
    pub marks: bool,
}

/// For how long a caller watches a claim that does not take its turn before it lets it stand aside, in milliseconds.
pub const WATCH_MS: u64 = STOPPED_GRACE_MS - UNTAKEN_MS;

/// What a claim means to the claims behind it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Weight {
    /// The claim counts.
    Live(Standing),
    /// The claim is in the list, and blocks no other.
    Aside,
    /// A waiter that is gone: it may be removed without a word.
    Gone(Standing),
    /// A hold that no longer counts; `decide` says what is done about it.
    Left(Standing),
}

impl Claim {
    /// Whether it waits in vain: its caller has died, or its place has lapsed. The next caller removes it.
    pub fn is_gone(&self, policy: &Policy, evidence: Evidence, now: &Now) -> bool {
        matches!(self.weigh(policy, evidence, now), Weight::Gone(_))
    }

    /// Whether it is a place that is kept for an agent, or for an agent of that session.
    pub fn is_place_of(&self, agent: &AgentKey) -> bool {
        self.is_agents_place()
            && self
                .holder
                .agent()
                .is_some_and(|other| agent.covers(&other))
    }

    /// A place that follows a process belongs to a script that has inherited the key, and not to the agent.
    fn is_agents_place(&self) -> bool {
        self.token.is_none() && self.reservation.is_some() && self.holder.process.is_none()
    }

    /// What it means to the claims behind it.
    pub(crate) fn weigh(&self, policy: &Policy, evidence: Evidence, now: &Now) -> Weight {
        if let (None, Some(reservation)) = (self.token, &self.reservation) {
            let boot = self.boot();
            return match evidence.process {
                Liveness::Dead(death) => {
                    Weight::Gone(Standing::Stale(StaleReason::ProcessDead(death)))
                }
                _ if reservation.is_over(boot, now) => {
                    Weight::Gone(Standing::Stale(StaleReason::Silent))
                }
                _ => Weight::Aside,
            };
        }
        match judge(policy, self, &evidence, now) {
            held @ Standing::Held(_) if self.is_in_line() => Weight::Live(held),
            Standing::Held(_) => Weight::Aside,
            standing if self.token.is_none() => Weight::Gone(standing),
            standing => Weight::Left(standing),
        }
    }
}

/// What a question about the list needs for its answer.
pub(crate) struct Asking<'a, E> {
    pub(crate) policy: &'a Policy,
    pub(crate) now: &'a Now,
    pub(crate) evidence: &'a mut E,
    /// Whether the process of a waiting claim is certainly stopped. Asked only where that decides
    /// something: when no holder blocks the claim in question.
    pub(crate) is_stopped: &'a mut dyn FnMut(&Claim) -> bool,
    /// What the caller saw of a claim that does not take its turn. `None` where the store itself ends the claim of a
    /// process that does not act.
    pub(crate) watched: Option<Watched>,
    /// How long a claim that was passed has had to look before it stands aside, in milliseconds.
    pub(crate) notice_ms: u64,
    pub(crate) events: &'a mut Vec<Event>,
}

impl<E: FnMut(&Claim) -> Evidence> Asking<'_, E> {
    pub(crate) fn weigh(&mut self, claim: &Claim) -> Weight {
        let seen = (self.evidence)(claim);
        self.weigh_by(claim, seen)
    }

    /// Weighs a claim whose evidence is known already.
    pub(crate) fn weigh_by(&mut self, claim: &Claim, seen: Evidence) -> Weight {
        match claim.weigh(self.policy, seen, self.now) {
            Weight::Live(_) if self.stands_aside(claim) => Weight::Aside,
            weight => weight,
        }
    }

    /// Whether a claim was passed and has not looked since. One whose process is stopped cannot have looked. Any other
    /// gets the time in which each waiter looks once: its look takes the mark away.
    fn stands_aside(&mut self, claim: &Claim) -> bool {
        let Some(aside) = claim.aside.filter(|_| claim.was_passed()) else {
            return false;
        };
        let boot = claim.boot();
        aside.age_ms(boot, self.now) >= self.notice_ms || (self.is_stopped)(claim)
    }
}

/// Where a request stands in the list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// Nowhere yet.
    New,
    /// At the ticket that was kept for it.
    Kept(u64),
    /// The place that it names is not there.
    NotKept,
}

impl Entry {
    /// Keeps a waiting claim's place for `grace_ms` while its caller is away. From now on its life
    /// follows `owner`. False if there is no such waiting claim.
    pub fn reserve(
        &mut self,
        ticket: u64,
        owner: Option<Process>,
        grace_ms: u64,
        now: &Now,
    ) -> bool {
        let Some(claim) = self.claim_mut(ticket) else {
            return false;
        };
        if claim.token.is_some() || claim.cancel.is_some() {
            return false;
        }
        claim.reservation = Some(Reservation {
            since: now.stamp_for(claim.boot()),
            grace_ms,
        });
        claim.holder.process = owner;
        true
    }

    /// Gives up the places that are kept for an agent, or for all agents of a session. Returns how many there were.
    pub fn forget_places(&mut self, agent: &AgentKey) -> usize {
        let before = self.claims.len();
        self.claims.retain(|claim| !claim.is_place_of(agent));
        before - self.claims.len()
    }

    /// Within what time each waiter of this line that runs looks at it once.
    pub(crate) fn notice_ms(&self) -> u64 {
        let looks = if self.claims.len() <= SHORT_LINE {
            LOOK_AGAIN_SHORT_MS
        } else {
            LOOK_AGAIN_MS
        };
        looks + LATE_MS
    }

    /// Lets other claims past a waiting claim that may not act. It keeps its place. It counts again when it
    /// looks itself, for which it has [`Entry::notice_ms`].
    pub(crate) fn let_pass(&mut self, ticket: u64, now: &Now) {
        if let Some(claim) = self.claim_mut(ticket) {
            let boot = claim.boot();
            let at = now.stamp_for(boot);
            claim.aside.get_or_insert(at);
        }
    }

    /// Sets aside a claim that has had its time: other claims pass it from now on.
    pub(crate) fn set_aside(&mut self, ticket: u64, now: &Now) {
        let notice_ms = self.notice_ms();
        if let Some(claim) = self.claim_mut(ticket) {
            let boot = claim.boot();
            let mut at = now.stamp_for(boot);
            if at.boot_ms != Stamp::OTHER_BOOT {
                at.boot_ms = at.boot_ms.saturating_sub(notice_ms);
            }
            at.wall_ms = at.wall_ms.saturating_sub(notice_ms);
            claim.aside = Some(at);
        }
    }

    /// Records for a waiting claim what the slots of the lock stand for by now. False if no such claim waits.
    pub fn set_members(&mut self, ticket: u64, members: &[String]) -> bool {
        match self.claim_mut(ticket) {
            Some(claim) if claim.token.is_none() => {
                claim.holder.set_members(members);
                true
            }
            Some(_) | None => false,
        }
    }

    /// Records what the work under a hold waits for, or that it waits no longer. False if no claim holds
    /// under this token.
    pub fn note_waiting(&mut self, token: u64, waiting_for: Option<&WaitingFor>) -> bool {
        let mut granted = self.claims.iter_mut();
        match granted.find(|claim| claim.token == Some(token)) {
            Some(claim) => {
                claim.waiting_for = waiting_for.cloned();
                true
            }
            None => false,
        }
    }

    /// Finds the place that was kept for a request. A place that has lapsed is gone. A place that was kept
    /// for a claim of another mode does not fit. Claims behind it sleep on what the mode of that claim lets
    /// end the wait.
    pub(crate) fn kept_place(
        &self,
        policy: &Policy,
        request: &Request,
        now: &Now,
        evidence: &mut impl FnMut(&Claim) -> Evidence,
    ) -> Place {
        let Some(kept) = request.terms.kept else {
            return Place::New;
        };
        let mut reserved = self.claims.iter().filter(|claim| {
            claim.reservation.is_some()
                && claim.token.is_none()
                && claim.mode == request.terms.mode
                && claim.weigh(policy, evidence(claim), now) == Weight::Aside
        });
        let agent = request.holder.agent();
        let found = reserved.find(|claim| match kept {
            // A number is no secret, so a sibling that reads it in a list gets nothing by it. A caller that names no
            // agent may be the shell of that agent, which is not told for whom it works.
            Kept::Ticket(ticket) => {
                claim.ticket == ticket
                    && match (&agent, claim.holder.agent()) {
                        (Some(agent), Some(other)) => agent.covers(&other),
                        _ => true,
                    }
            }
            Kept::Owner(owner) => {
                // All agents of one host follow one process.
                claim.holder.process == Some(owner)
                    && claim.holder.host == request.holder.host
                    && claim.holder.agent() == agent
            }
            Kept::Agent => {
                claim.is_agents_place() && agent.is_some() && claim.holder.agent() == agent
            }
        });
        match (found, kept) {
            (Some(claim), _) => Place::Kept(claim.ticket),
            (None, Kept::Ticket(_)) => Place::NotKept,
            (None, Kept::Owner(_) | Kept::Agent) => Place::New,
        }
    }

    /// The places that a claim takes in a queue of one. They belong to claims which yield to newer ones,
    /// before its own place or before the end of the list.
    fn yielding(&self, own: Option<u64>) -> Vec<u64> {
        let waiting = self.claims.iter().filter(|claim| claim.token.is_none());
        waiting
            .filter(|claim| claim.queueing.yields())
            .filter(|claim| own.is_none_or(|own| claim.ticket < own))
            .map(|claim| claim.ticket)
            .collect()
    }

    /// Asks every claim before `own` that yields to newer ones to give up its place to `by`. A claim whose
    /// caller is away loses its place at once.
    pub(crate) fn displace<E: FnMut(&Claim) -> Evidence>(
        &mut self,
        own: Option<u64>,
        by: StopRequest<'_>,
        asking: &mut Asking<'_, E>,
    ) {
        for ticket in self.yielding(own) {
            let Some(claim) = self.claim(ticket) else {
                continue;
            };
            // A claim that stands aside because its process is stopped would come back to its place.
            let counts = matches!(asking.weigh(claim), Weight::Live(_) | Weight::Aside);
            if counts && claim.is_in_line() {
                let claim = Box::new(claim.clone());
                self.ask_to_stop(ticket, by, asking.now);
                asking.events.push(Event::Displaced { claim });
            }
        }
        self.forget_away(own, asking);
    }

    /// Takes away the idle places before `own` whose claims yield to newer ones. A claim whose caller is
    /// away loses its place at once; a claim whose process is stopped loses it when that process goes on.
    pub(crate) fn take_idle_places<E: FnMut(&Claim) -> Evidence>(
        &mut self,
        own: Option<u64>,
        by: StopRequest<'_>,
        asking: &mut Asking<'_, E>,
    ) {
        for ticket in self.yielding(own) {
            let Some(claim) = self.claim(ticket).filter(|claim| claim.was_passed()) else {
                continue;
            };
            if claim.is_in_line() && asking.weigh(claim) == Weight::Aside {
                let claim = Box::new(claim.clone());
                self.ask_to_stop(ticket, by, asking.now);
                asking.events.push(Event::Displaced { claim });
            }
        }
        self.forget_away(own, asking);
    }

    /// Takes away the places that are kept before `own` for claims which yield to newer ones.
    pub(crate) fn forget_away<E: FnMut(&Claim) -> Evidence>(
        &mut self,
        own: Option<u64>,
        asking: &mut Asking<'_, E>,
    ) {
        for ticket in self.yielding(own) {
            let Some(claim) = self.claim(ticket) else {
                continue;
            };
            match asking.weigh(claim) {
                Weight::Aside if claim.reservation.is_some() => {
                    if let Some(claim) = self.remove(ticket) {
                        let claim = Box::new(claim);
                        asking.events.push(Event::Displaced { claim });
                    }
                }
                Weight::Live(_) | Weight::Aside => {}
                Weight::Gone(_) | Weight::Left(_) => {
                    self.remove(ticket);
                }
            }
        }
    }

    /// How many live claims wait.
    pub(crate) fn pending<E: FnMut(&Claim) -> Evidence>(
        &self,
        asking: &mut Asking<'_, E>,
    ) -> usize {
        let waiting = self.claims.iter().filter(|claim| claim.token.is_none());
        waiting
            .filter(|claim| matches!(asking.weigh(claim), Weight::Live(_)))
            .count()
    }

    /// The live holders that have to end before a claim of this mode may hold: as few as will do, the oldest first.
    /// `may_end` says whom the caller can end; the others stay, and so do the waiters for whom `waits` says that they
    /// come before it. Holders that were asked to stop already are chosen first.
    pub(crate) fn in_the_way<E: FnMut(&Claim) -> Evidence>(
        &self,
        own: Option<u64>,
        mode: Mode,
        waits: impl Fn(&Claim) -> bool,
        may_end: impl Fn(Standing) -> bool,
        asking: &mut Asking<'_, E>,
    ) -> Vec<u64> {
        let (mut capacity, mut count, mut has_room) = (mode.capacity(), 0, true);
        let mut may_go = Vec::new();
        for claim in self.claims.iter().filter(|claim| Some(claim.ticket) != own) {
            let is_granted = claim.token.is_some();
            if !is_granted && !waits(claim) {
                continue;
            }
            let Weight::Live(standing) = asking.weigh(claim) else {
                continue;
            };
            if is_granted && may_end(standing) {
                may_go.push((claim.cancel.is_none(), claim));
                continue;
            }
            count += 1;
            capacity = capacity.min(claim.mode.capacity());
            has_room &= mode.holds_beside(claim.mode);
        }
        // The claims stand in the order of their entry, so the newest of those that need not end is kept first.
        may_go.sort_by_key(|(is_unasked, _)| *is_unasked);
        let mut ends = Vec::new();
        for (_, claim) in may_go.into_iter().rev() {
            let with_it = capacity.min(claim.mode.capacity());
            if has_room && mode.holds_beside(claim.mode) && count + 1 < with_it {
                count += 1;
                capacity = with_it;
            } else {
                ends.push(claim.ticket);
            }
        }
        ends
    }

    /// Asks holders to stop, as many as a claim of this mode needs. One without a supervisor cannot be asked.
    pub(crate) fn ask_those_in_the_way<E: FnMut(&Claim) -> Evidence>(
        &mut self,
        own: Option<u64>,
        mode: Mode,
        by: StopRequest<'_>,
        asking: &mut Asking<'_, E>,
    ) {
        let waits = |claim: &Claim| own.is_none_or(|own| claim.ticket < own);
        let may_end = |standing| standing != Standing::Held(Life::Orphaned);
        let tickets = self.in_the_way(own, mode, waits, may_end, asking);
        self.ask(&tickets, by, asking);
    }

    /// Asks every live holder to stop.
    pub(crate) fn ask_holders<E: FnMut(&Claim) -> Evidence>(
        &mut self,
        by: StopRequest<'_>,
        asking: &mut Asking<'_, E>,
    ) {
        let live: Vec<u64> = (self.granted())
            .filter(|claim| matches!(asking.weigh(claim), Weight::Live(_)))
            .map(|claim| claim.ticket)
            .collect();
        self.ask(&live, by, asking);
    }

    fn ask<E>(&mut self, tickets: &[u64], by: StopRequest<'_>, asking: &mut Asking<'_, E>) {
        for &ticket in tickets {
            let Some(claim) = self.claim(ticket) else {
                continue;
            };
            let is_new = claim.cancel.is_none();
            self.ask_to_stop(ticket, by, asking.now);
            if is_new {
                asking.events.push(Event::CancelRequested { ticket });
            }
        }
    }

    /// Asks every live holder to stop, for a caller that does not want the lock. Returns the claims that
    /// are asked.
    pub fn cancel<'a>(
        &mut self,
        policy: &Policy,
        by: impl Into<StopRequest<'a>>,
        now: &Now,
        evidence: impl FnMut(&Claim) -> Evidence,
    ) -> Vec<Claim> {
        self.cancel_seeing(policy, by, None, now, evidence, |_| false)
    }

    /// Cancels claims, for a store that sees which processes are stopped. If no claim holds and the next claim does
    /// not take its turn, that claim is asked. It stands aside at once, and leaves when its process goes on.
    ///
    /// With `whom`, the live claims of which that says yes are asked, waiting or holding, and no others. A place that is kept
    /// for a caller who is away is taken away at once.
    pub fn cancel_seeing<'a>(
        &mut self,
        policy: &Policy,
        by: impl Into<StopRequest<'a>>,
        whom: Option<&dyn Fn(&Claim) -> bool>,
        now: &Now,
        mut evidence: impl FnMut(&Claim) -> Evidence,
        mut is_stopped: impl FnMut(&Claim) -> bool,
    ) -> Vec<Claim> {
        let mut asking = Asking {
            policy,
            now,
            evidence: &mut evidence,
            is_stopped: &mut is_stopped,
            watched: None,
            notice_ms: self.notice_ms(),
            events: &mut Vec::new(),
        };
        let by = by.into();
        if let Some(is_meant) = whom {
            return self.ask_meant(by, is_meant, &mut asking);
        }
        if let Some((_, next)) = self.standstill(&mut asking) {
            let ticket = next.ticket;
            self.ask_to_stop(ticket, by, now);
            return self.claim(ticket).cloned().into_iter().collect();
        }
        self.ask_holders(by, &mut asking);
        (self.granted())
            .filter(|claim| claim.cancel.is_some())
            .filter(|claim| matches!(asking.weigh(claim), Weight::Live(_)))
            .cloned()
            .collect()
    }

    fn ask_meant<E: FnMut(&Claim) -> Evidence>(
        &mut self,
        by: StopRequest<'_>,
        is_meant: &dyn Fn(&Claim) -> bool,
        asking: &mut Asking<'_, E>,
    ) -> Vec<Claim> {
        let meant: Vec<u64> = (self.claims.iter())
            .filter(|claim| is_meant(claim))
            .filter(|claim| matches!(asking.weigh(claim), Weight::Live(_) | Weight::Aside))
            .map(|claim| claim.ticket)
            .collect();
        self.ask(&meant, by, asking);
        let mut asked = Vec::with_capacity(meant.len());
        for ticket in meant {
            asked.extend(self.claim(ticket).cloned());
            let is_away = |claim: &Claim| claim.token.is_none() && claim.reservation.is_some();
            if self.claim(ticket).is_some_and(is_away) {
                self.remove(ticket);
            }
        }
        asked
    }
}
