//! The ordered list of claims on one lock, and every change that may be made to it.
//!
//! An exclusive claim holds once no live claim stands before it. Each method here is one transition. It
//! takes the list as the caller read it under the store's guard, and says what happened. It leaves the list
//! to write back in **one** conditional write. A process that dies before that write has changed nothing. A
//! process that dies after it leaves a whole list. Its claim is recognised as dead by its evidence, and the
//! next caller sweeps it.
//!
//! A caller sweeps dead claims only where they stand directly before its own. A claim further in front is
//! left to the claim behind it, so a change costs the same with two waiters and with a thousand.

use crate::claim::{Cancel, Claim, Entry, Force, Kind, Patience, Request, StopRequest, Watched};
use crate::decision::{Caller, Decision, Reason, decide};
use crate::event::{Event, Takeover};
use crate::holder::Holder;
use crate::lease::{Lease, Silence};
use crate::mode::{Mode, PENDING_MAX, Queueing};
use crate::name::RequestId;
use crate::policy::Policy;
use crate::queue::{Asking, Place, STOPPED_GRACE_MS, Standstill, Weight};
use crate::standing::{Evidence, Standing, is_orphan, judge, unreadable};
use crate::time::{Boot, Now};
use crate::turn::{Blocker, Live, Predecessor, Refusal};
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::borrow::Borrow;

/// What entering did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Entering {
    /// The lock is held.
    Granted {
        /// The claim's ticket.
        ticket: u64,
        /// Fencing token of the grant.
        token: u64,
    },
    /// The claim stands in the queue.
    Queued {
        /// Ticket of the waiter.
        ticket: u64,
        /// What it stands behind.
        behind: Predecessor,
    },
    /// The caller has the lock already, by an earlier claim of its own.
    Yours {
        /// Ticket of the earlier claim.
        ticket: u64,
        /// Fencing token of the earlier claim.
        token: u64,
    },
    /// No claim was made.
    Refused(Refusal),
    /// The place that the caller wanted back is not kept (any more), and no claim was made.
    NotKept,
}

/// What a waiter found after waking up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TryGrant {
    /// The claim holds the lock.
    Granted {
        /// Fencing token of the grant.
        token: u64,
    },
    /// The claim stands behind another one.
    Behind(Predecessor),
    /// The claim's owner got the lock meanwhile, by another claim under the same request id.
    Yours {
        /// Ticket of the other claim.
        ticket: u64,
        /// Fencing token of the other claim.
        token: u64,
    },
    /// Another caller asked it to stop before it held the lock.
    Cancelled {
        /// The request of that caller.
        by: Box<Cancel>,
    },
    /// A claim in front is stale, and this profile does not take it over without force.
    Blocked(Refusal),
    /// The claim is not in the list.
    Gone,
}

/// Whether a claim that queues asks the holders to stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AsksHolders {
    No,
    Yes,
}

impl Entry {
    /// Asks the claim with this ticket to stop. False if there is no such claim. A claim that was asked
    /// already keeps its first request; a later one can only shorten the grace.
    pub fn ask_to_stop<'a>(
        &mut self,
        ticket: u64,
        request: impl Into<StopRequest<'a>>,
        now: &Now,
    ) -> bool {
        let Some(claim) = self.claim_mut(ticket) else {
            return false;
        };
        let boot = Boot::from(claim.holder.host.boot_id.as_deref());
        let at = now.stamp_for(boot);
        let request = request.into();
        let cancel = claim.cancel.get_or_insert_with(|| Cancel {
            by: request.by.into(),
            at,
            actor: request.actor.into(),
            why: request.why.into(),
            kind: request.kind,
            grace_ms: None,
        });
        if let Some(grace_ms) = request.grace_ms {
            cancel.hasten(grace_ms, boot, now);
        }
        true
    }

    /// Enters a new claim at the end of the list, lets a caller come back to its kept place, or refuses. A
    /// refusal leaves the list as it was, except for dead claims swept on the way and for requests to stop.
    ///
    /// `evidence` is asked about one claim after the other. For an exclusive claim it is asked from the
    /// end, up to the first live claim. If there is one, it is asked again from the front, up to the first
    /// live one. `events` receives what happened.
    pub fn enter(
        &mut self,
        policy: &Policy,
        request: impl Borrow<Request>,
        now: &Now,
        evidence: impl FnMut(&Claim) -> Evidence,
        events: &mut Vec<Event>,
    ) -> Entering {
        self.enter_seeing(policy, request, now, evidence, |_| false, events)
    }

    /// Enters the claim, for a store that sees which processes are stopped. `is_stopped` says whether a
    /// process is certainly stopped; a process that cannot be seen is not. It is asked of waiting claims
    /// only, and only if no holder blocks the request.
    pub fn enter_seeing(
        &mut self,
        policy: &Policy,
        request: impl Borrow<Request>,
        now: &Now,
        mut evidence: impl FnMut(&Claim) -> Evidence,
        mut is_stopped: impl FnMut(&Claim) -> bool,
        events: &mut Vec<Event>,
    ) -> Entering {
        let request = request.borrow();
        if request.kind == Kind::Detached
            && let Some((ticket, token)) =
                self.own_hold(policy, &request.holder.request_id, now, &mut evidence)
        {
            return Entering::Yours { ticket, token };
        }
        let own = match self.kept_place(policy, request, now, &mut evidence) {
            Place::New => None,
            Place::Kept(ticket) => Some(ticket),
            Place::NotKept => return Entering::NotKept,
        };
        let mut asking = Asking {
            policy,
            now,
            evidence: &mut evidence,
            is_stopped: &mut is_stopped,
            watched: request.terms.watched,
            notice_ms: self.notice_ms(),
            events,
        };
        let mode = request.terms.mode;
        let (nearest, near) = match self.before(own, mode, request.force, &mut asking) {
            Blocker::None => return self.admit_at_once(own, request, &mut asking),
            Blocker::Stale(refusal) => return Entering::Refused(refusal),
            Blocker::Live(nearest, near) => (nearest, near),
        };
        let mut holder = self.first_live(&mut asking);
        // An exclusive request waits for a holder anyway, so no waiter is asked whether it is stopped.
        let is_held = matches!(holder.standing, Standing::Held(_)) && holder.granted;
        let holds_alone = is_held && mode == Mode::Exclusive;
        let before = if near.granted || holds_alone {
            Blocker::Live(nearest, near)
        } else {
            let behind = (nearest, near);
            self.past_the_idle(own, mode, request.force, behind, &mut asking)
        };
        let (nearest, near) = match before {
            Blocker::None => return self.admit_at_once(own, request, &mut asking),
            Blocker::Stale(refusal) => return Entering::Refused(refusal),
            Blocker::Live(nearest, near) => (nearest, near),
        };
        let mut ahead = None;
        if matches!(holder.standing, Standing::Held(_)) {
            holder.standstill = near.standstill;
            ahead = Some(near);
        } else {
            // The holder ended between the two looks. The decision rests on what the first look saw; the
            // kernel wakes a waiter when a hold ends.
            holder = near;
        }
        let decided = |force| {
            decide(
                policy,
                holder.standing,
                force,
                request.patience,
                Caller::Other,
            )
        };
        // Force is aimed at a hold. A waiter holds nothing that could be taken from it.
        let waits = decided(Force::No) == Decision::Wait;
        let decision = match decided(if holder.granted {
            request.force
        } else {
            Force::No
        }) {
            // Force may be unable to end another hold. A caller that would not wait for that hold must not
            // end any hold either.
            Decision::Override if !waits && !self.is_cleared_by(own, request, &mut asking) => {
                Decision::Refuse(Reason::Held)
            }
            other => other,
        };
        let counts = own.is_none() && request.terms.queueing == Queueing::Max;
        match decision {
            Decision::Refuse(reason) => {
                let ahead = ahead.and_then(|near| self.ahead(&near, mode, &mut asking));
                self.refuse_behind(reason, &holder, ahead)
            }
            _ if counts && self.pending(&mut asking) >= PENDING_MAX => {
                self.refuse(Reason::QueueFull, &holder)
            }
            Decision::AskToStop if !waits => {
                self.ask_those_in_the_way(own, mode, (&request.holder).into(), &mut asking);
                self.refuse(Reason::Held, &holder)
            }
            Decision::Override | Decision::AskToStop => {
                match self.take_by_force(own, request, decision, &mut asking) {
                    Blocker::None => self.admit(own, request, None, &mut asking),
                    Blocker::Stale(refusal) => Entering::Refused(refusal),
                    Blocker::Live(..) if !waits => self.refuse(Reason::Held, &holder),
                    Blocker::Live(behind, _) => {
                        self.line_up(own, request, behind, AsksHolders::Yes, &mut asking)
                    }
                }
            }
            // No other decision comes out for a live claim of another owner; waiting is always safe.
            Decision::Wait | Decision::Grant | Decision::TakeOver | Decision::Yours => {
                let asks = if request.terms.cancel_in_progress {
                    AsksHolders::Yes
                } else {
                    AsksHolders::No
                };
                self.line_up(own, request, nearest, asks, &mut asking)
            }
        }
    }

    /// Ends the holds that force may end, and says what still blocks the caller. The caller that forces
    /// gets the hold that it overrode. Waiters keep their places, and find the caller before them when they
    /// look.
    fn take_by_force<E: FnMut(&Claim) -> Evidence>(
        &mut self,
        own: Option<u64>,
        request: &Request,
        decision: Decision,
        asking: &mut Asking<'_, E>,
    ) -> Blocker {
        let (mode, force) = (request.terms.mode, request.force);
        self.override_holds(own, request, asking);
        if let Some(refusal) = self.sweep_holds(own, force, asking) {
            return Blocker::Stale(refusal);
        }
        if decision != Decision::Override || self.is_held_against(own, mode) {
            return self.blocker(own, mode, force, asking);
        }
        if request.terms.queueing == Queueing::Single {
            self.displace(own, (&request.holder).into(), asking);
        }
        Blocker::None
    }

    /// Grants a request that nothing blocks. A waiter in a queue of one that is not there to take its turn
    /// loses its place to a newer claim.
    fn admit_at_once<E: FnMut(&Claim) -> Evidence>(
        &mut self,
        own: Option<u64>,
        request: &Request,
        asking: &mut Asking<'_, E>,
    ) -> Entering {
        if request.terms.queueing == Queueing::Single {
            let by = (&request.holder).into();
            self.take_idle_places(own, by, asking);
        }
        self.admit(own, request, None, asking)
    }

    /// Queues a claim by its terms. It holds at once if nothing blocked it but waiters whose places it takes.
    fn line_up<E: FnMut(&Claim) -> Evidence>(
        &mut self,
        own: Option<u64>,
        request: &Request,
        mut behind: Predecessor,
        asks: AsksHolders,
        asking: &mut Asking<'_, E>,
    ) -> Entering {
        let (mode, force) = (request.terms.mode, request.force);
        let by = StopRequest::from(&request.holder);
        let takes_place = match request.terms.queueing {
            Queueing::Fifo | Queueing::Max => false,
            Queueing::Single => true,
        };
        if takes_place {
            self.displace(own, by, asking);
            match self.blocker(own, mode, force, asking) {
                Blocker::None => return self.admit(own, request, None, asking),
                Blocker::Stale(refusal) => return Entering::Refused(refusal),
                Blocker::Live(now_behind, _) => behind = now_behind,
            }
        }
        match asks {
            AsksHolders::No => {}
            AsksHolders::Yes => {
                self.ask_those_in_the_way(own, mode, by, asking);
                // A store recognises the claims to sleep behind by what their records say now.
                match self.blocker(own, mode, force, asking) {
                    Blocker::None => return self.admit(own, request, None, asking),
                    Blocker::Stale(refusal) => return Entering::Refused(refusal),
                    Blocker::Live(now_behind, _) => behind = now_behind,
                }
            }
        }
        self.admit(own, request, Some(behind), asking)
    }

    /// Whether force ends every hold that blocks a claim. Waiters do not block a caller that overrides a
    /// hold.
    fn is_cleared_by<E: FnMut(&Claim) -> Evidence>(
        &self,
        own: Option<u64>,
        request: &Request,
        asking: &mut Asking<'_, E>,
    ) -> bool {
        let overrides = Self::what_force_does(request, asking.policy);
        let ends = self.in_the_way(own, request.terms.mode, |_| false, |_| true, asking);
        let mut ends = ends.iter().filter_map(|ticket| self.claim(*ticket));
        ends.all(|claim| match asking.weigh(claim) {
            Weight::Live(standing) => overrides(standing) == Decision::Override,
            Weight::Aside | Weight::Gone(_) | Weight::Left(_) => true,
        })
    }

    /// Ends those holds in the way of a claim that force may end.
    fn override_holds<E: FnMut(&Claim) -> Evidence>(
        &mut self,
        own: Option<u64>,
        request: &Request,
        asking: &mut Asking<'_, E>,
    ) {
        let decides = Self::what_force_does(request, asking.policy);
        let may_end = |standing| {
            let decision = decides(standing);
            decision == Decision::Override || decision == Decision::AskToStop
        };
        for ticket in self.in_the_way(own, request.terms.mode, |_| false, may_end, asking) {
            let weight = self.claim(ticket).map(|claim| asking.weigh(claim));
            if let Some(Weight::Live(standing)) = weight
                && decides(standing) == Decision::Override
            {
                self.evict(ticket, standing, asking.now, asking.events);
            }
        }
    }

    /// What is decided about each live hold in the way of a request.
    fn what_force_does<'a>(
        request: &'a Request,
        policy: &'a Policy,
    ) -> impl Fn(Standing) -> Decision + use<'a> {
        let (force, patience) = (request.force, request.patience);
        move |standing| decide(policy, standing, force, patience, Caller::Other)
    }

    fn refuse(&self, reason: Reason, holder: &Live) -> Entering {
        self.refuse_behind(reason, holder, None)
    }

    fn refuse_behind(&self, reason: Reason, holder: &Live, ahead: Option<&Claim>) -> Entering {
        Entering::Refused(Refusal {
            reason,
            standing: holder.standing,
            blocker: self.claim(holder.ticket).cloned().map(Box::new),
            standstill: holder.standstill,
            ahead: ahead.cloned().map(Box::new),
        })
    }

    /// A waiter that has woken up looks whether it holds.
    pub fn try_grant(
        &mut self,
        policy: &Policy,
        ticket: u64,
        now: &Now,
        evidence: impl FnMut(&Claim) -> Evidence,
        events: &mut Vec<Event>,
    ) -> TryGrant {
        self.try_grant_seeing(policy, ticket, now, evidence, |_| false, None, events)
    }

    /// Looks for a store that sees which processes are stopped, as [`Entry::enter_seeing`], and a waiter that has
    /// watched the line. A waiter that looks acts: if it stood aside, it no longer does.
    #[allow(
        clippy::too_many_arguments,
        reason = "what a look sees, by who says it"
    )]
    pub fn try_grant_seeing(
        &mut self,
        policy: &Policy,
        ticket: u64,
        now: &Now,
        mut evidence: impl FnMut(&Claim) -> Evidence,
        mut is_stopped: impl FnMut(&Claim) -> bool,
        watched: Option<Watched>,
        events: &mut Vec<Event>,
    ) -> TryGrant {
        let Some(own) = self.claim_mut(ticket) else {
            return TryGrant::Gone;
        };
        if let Some(token) = own.token {
            return TryGrant::Granted { token };
        }
        own.aside = None;
        let (kind, force, id) = (own.kind, own.force, own.holder.request_id.clone());
        let mode = own.mode;
        if let Some(cancel) = &own.cancel {
            return TryGrant::Cancelled {
                by: Box::new(cancel.clone()),
            };
        }
        if kind == Kind::Detached
            && let Some((ticket, token)) = self.own_hold(policy, &id, now, &mut evidence)
        {
            return TryGrant::Yours { ticket, token };
        }
        let mut asking = Asking {
            policy,
            now,
            evidence: &mut evidence,
            is_stopped: &mut is_stopped,
            watched,
            notice_ms: self.notice_ms(),
            events,
        };
        match self.blocker(Some(ticket), mode, force, &mut asking) {
            Blocker::Live(behind, _) => TryGrant::Behind(behind),
            Blocker::Stale(refusal) => TryGrant::Blocked(refusal),
            Blocker::None => {
                let (token, slot) = (self.next_number(now), self.free_slot(mode));
                let Some(claim) = self.claim(ticket) else {
                    return TryGrant::Gone;
                };
                let slot = (slot, self.free_member(slot, &claim.holder));
                let Some(claim) = self.claim_mut(ticket) else {
                    return TryGrant::Gone;
                };
                claim.grant(token, slot, now);
                asking.events.push(Event::Acquired { token });
                TryGrant::Granted { token }
            }
        }
    }

    /// Names the command of a supervised claim once it runs. False if the claim is not there.
    pub fn name_command(&mut self, ticket: u64, command: crate::Process) -> bool {
        match self.claim_mut(ticket) {
            Some(claim) => {
                claim.holder.command = Some(command);
                true
            }
            None => false,
        }
    }

    /// Hands a hold over to another process of its owner: a copy by fork, or the program that it becomes. The hold goes on as
    /// a new claim at the end of the list, with what the old one was asked and with a new token, so that a resource can
    /// refuse the earlier process. Gives ticket and token; `None` if no process keeps such a hold.
    ///
    /// For all others this is what force does that overrides a hold: waiters keep their places, and find the new claim
    /// when they look ([`RestsOn::All`](crate::RestsOn::All)).
    pub fn hand_over(&mut self, ticket: u64, to: &Holder, now: &Now) -> Option<(u64, u64)> {
        let is_kept = |claim: &&Claim| claim.token.is_some() && claim.kind == Kind::Kernel;
        let mut claim = self.claim(ticket).filter(is_kept)?.clone();
        let before = claim.ticket;
        let (ticket, token) = (self.next_number(now), self.next_number(now));
        (claim.ticket, claim.token) = (ticket, Some(token));
        claim.lease.renewed = now.stamp();
        let holder = &mut claim.holder;
        holder.request_id = to.request_id.clone();
        holder.process = to.process;
        holder.command = to.command;
        holder.host = to.host.clone();
        self.remove(before);
        self.claims.push(claim);
        Some((ticket, token))
    }

    /// Sweeps every claim that the policy takes over without force, and returns them. Work that goes on without its
    /// supervisor keeps its claim, by which an operator finds and ends it.
    pub fn sweep(
        &mut self,
        policy: &Policy,
        now: &Now,
        mut evidence: impl FnMut(&Claim) -> Evidence,
    ) -> Vec<Claim> {
        let mut swept = Vec::new();
        let mut index = 0;
        while let Some(claim) = self.claims.get(index) {
            let seen = evidence(claim);
            let passed = match claim.weigh(policy, seen, now) {
                Weight::Left(_) if is_orphan(claim, &seen) => false,
                Weight::Live(_) | Weight::Aside => false,
                Weight::Gone(_) => true,
                Weight::Left(standing) => {
                    let asked = Patience::AtOnce;
                    let decision = decide(policy, standing, Force::No, asked, Caller::Other);
                    matches!(standing, Standing::Stale(_)) && decision == Decision::TakeOver
                }
            };
            if passed {
                let (ticket, granted) = (claim.ticket, claim.token.is_some());
                swept.extend(self.remove(ticket));
                if granted {
                    self.ended = Some(now.stamp());
                }
            } else {
                index += 1;
            }
        }
        swept
    }

    /// What the lock as a whole amounts to: the first live claim that holds, else the first live claim in
    /// line, else a stale one, else free.
    pub fn standing(
        &self,
        policy: &Policy,
        now: &Now,
        evidence: impl FnMut(&Claim) -> Evidence,
    ) -> (Standing, Option<&Claim>) {
        self.standing_seeing(policy, now, evidence, |_| false)
    }

    /// Reports the standing, for a store that sees which processes are stopped. A line in which all
    /// waiters are stopped and stand aside is free.
    pub fn standing_seeing(
        &self,
        policy: &Policy,
        now: &Now,
        mut evidence: impl FnMut(&Claim) -> Evidence,
        mut is_stopped: impl FnMut(&Claim) -> bool,
    ) -> (Standing, Option<&Claim>) {
        self.standing_by(&mut Asking {
            policy,
            now,
            evidence: &mut evidence,
            is_stopped: &mut is_stopped,
            watched: None,
            notice_ms: self.notice_ms(),
            events: &mut Vec::new(),
        })
    }

    /// Whether no claim holds and the process of the next claim is stopped.
    pub fn standstill_seeing(
        &self,
        policy: &Policy,
        now: &Now,
        mut evidence: impl FnMut(&Claim) -> Evidence,
        mut is_stopped: impl FnMut(&Claim) -> bool,
    ) -> Option<(Standstill, &Claim)> {
        self.standstill(&mut Asking {
            policy,
            now,
            evidence: &mut evidence,
            is_stopped: &mut is_stopped,
            watched: None,
            notice_ms: self.notice_ms(),
            events: &mut Vec::new(),
        })
    }

    pub(crate) fn standing_by<E: FnMut(&Claim) -> Evidence>(
        &self,
        asking: &mut Asking<'_, E>,
    ) -> (Standing, Option<&Claim>) {
        let mut stale = (Standing::Free, None);
        let mut first = None;
        let waiting = self.claims.iter().filter(|claim| claim.token.is_none());
        for claim in self.granted().chain(waiting) {
            match asking.weigh(claim) {
                Weight::Live(held) if claim.token.is_some() => return (held, Some(claim)),
                Weight::Live(held) => {
                    // The next caller passes it, if no claim behind it acts either.
                    let is_stopped = (asking.is_stopped)(claim);
                    let may_pass = is_stopped || self.is_untaken();
                    let mut still =
                        may_pass.then(|| self.standstill_of(claim, is_stopped, asking.now));
                    if let Some(still) = still.as_mut().filter(|_| !is_stopped && first.is_some()) {
                        // The waiter had its turn later. By then, a claim that acts has passed those before it.
                        still.rest_ms = STOPPED_GRACE_MS
                            .saturating_add(asking.notice_ms)
                            .saturating_sub(still.since_ms);
                    }
                    let first = *first.get_or_insert((held, Some(claim)));
                    if still.is_none_or(|still| still.rest_ms > 0) {
                        return first;
                    }
                }
                Weight::Gone(left) | Weight::Left(left) if stale.1.is_none() => {
                    stale = (left, Some(claim));
                }
                Weight::Aside | Weight::Gone(_) | Weight::Left(_) => {}
            }
        }
        stale
    }

    /// Whether an empty list may replace a record that cannot be read, whose holder has been silent for so long.
    ///
    /// # Errors
    /// - [`Refusal`] if the policy wants force and `force` brings none, or if it wants the holder to have been silent for
    ///   longer than its ttl, and that has not passed.
    pub fn replace_unreadable(
        policy: &Policy,
        force: Force,
        silence: Silence,
    ) -> Result<(), Refusal> {
        let standing = unreadable(policy);
        let decision = decide(policy, standing, force, Patience::AtOnce, Caller::Other);
        let reason = match decision {
            Decision::Refuse(reason) => reason,
            _ if silence.rest_ms(policy) > 0 => Reason::Unreadable,
            _ => return Ok(()),
        };
        Err(Refusal {
            reason,
            standing,
            blocker: None,
            standstill: None,
            ahead: None,
        })
    }

    /// The live detached hold under this request id.
    fn own_hold(
        &self,
        policy: &Policy,
        id: &RequestId,
        now: &Now,
        evidence: &mut impl FnMut(&Claim) -> Evidence,
    ) -> Option<(u64, u64)> {
        let own = self.claims.iter().find(|claim| {
            claim.kind == Kind::Detached && claim.token.is_some() && claim.holder.request_id == *id
        })?;
        let standing = judge(policy, own, &evidence(own), now);
        let decision = decide(policy, standing, Force::No, Patience::AtOnce, Caller::Owner);
        own.token
            .filter(|_| decision == Decision::Yours)
            .map(|token| (own.ticket, token))
    }

    /// Removes a claim in favour of another caller's. The removal of a dead waiter is no event; a hold that
    /// ends this way is one.
    pub(crate) fn evict(
        &mut self,
        ticket: u64,
        standing: Standing,
        now: &Now,
        events: &mut Vec<Event>,
    ) {
        let Some(claim) = self.remove(ticket) else {
            return;
        };
        if claim.token.is_none() {
            return;
        }
        self.ended = Some(now.stamp());
        let why = match standing {
            Standing::Stale(reason) => Takeover::Stale(reason),
            Standing::Unreadable => Takeover::Corrupt,
            Standing::Held(_) | Standing::Free | Standing::Unknown => Takeover::Active,
        };
        events.push(Event::Stolen {
            why,
            previous: Some(Box::new(claim)),
            record: Vec::new(),
        });
    }

    /// Gives a request its place: a new one at the end, or the place that was kept for it.
    fn admit<E: FnMut(&Claim) -> Evidence>(
        &mut self,
        own: Option<u64>,
        request: &Request,
        behind: Option<Predecessor>,
        asking: &mut Asking<'_, E>,
    ) -> Entering {
        let now = asking.now;
        let kept = own.and_then(|ticket| self.claim(ticket).map(|claim| (ticket, claim.entered)));
        let (ticket, entered) = kept.unwrap_or_else(|| (self.next_number(now), now.stamp()));
        let mut claim = Claim {
            ticket,
            token: None,
            kind: request.kind,
            holder: request.holder.clone(),
            entered,
            since: None,
            lease: Lease {
                ttl_ms: request.ttl_ms,
                renewed: now.stamp(),
                renewals: 0,
            },
            force: request.force,
            mode: request.terms.mode,
            slot: None,
            queueing: request.terms.queueing,
            grace_ms: request.terms.grace_ms,
            cancel: None,
            reservation: None,
            waiting_for: None,
            aside: None,
            is_of_ended_boot: false,
        };
        let entering = if let Some(behind) = behind {
            Entering::Queued { ticket, behind }
        } else {
            let (token, slot) = (self.next_number(now), self.free_slot(claim.mode));
            let slot = (slot, self.free_member(slot, &claim.holder));
            claim.grant(token, slot, now);
            asking.events.push(Event::Acquired { token });
            Entering::Granted { ticket, token }
        };
        match self.claim_mut(ticket) {
            Some(place) => *place = claim,
            None => self.claims.push(claim),
        }
        entering
    }
}
