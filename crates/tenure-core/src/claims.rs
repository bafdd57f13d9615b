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

use crate::decision::{Caller, Decision, Reason, decide};
use crate::event::{Event, Takeover};
use crate::holder::Holder;
use crate::lease::Lease;
use crate::mode::{Mode, PENDING_MAX, Queueing};
use crate::name::RequestId;
use crate::policy::{Policy, UnreadableRule};
use crate::queue::{Kept, Place, Reservation, Standstill, WaitingFor, Weight};
use crate::standing::{Evidence, Standing, judge, unreadable};
use crate::time::{Now, Stamp};
use crate::turn::{Asking, Blocker, Live};
use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;

/// The latest wall clock that is believed, in microseconds: the year 2112. JSON readers keep
/// numbers up to 2^53 exactly; a clock that ran ahead once leaves room for as many again.
const CLOCK_MAX: u64 = (1 << 52) - 1;

/// How a claim is kept alive once it is granted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// By a process that keeps the claim's liveness lock, or whose command inherited it.
    Kernel,
    /// By its record: an owner's process, or a ttl.
    Detached,
    /// By a record that another program published, or that stands at the lock's path without a claim in our
    /// list. Only what the record says is known.
    Foreign,
    /// By a record of a newer version of its format. This version cannot tell what would make it stale, so
    /// it counts as held.
    Sealed,
}

impl Kind {
    /// Whether the hold goes on without a process of tenure that keeps it.
    pub fn is_detached(self) -> bool {
        match self {
            Self::Kernel => false,
            Self::Detached | Self::Foreign | Self::Sealed => true,
        }
    }
}

/// One place in the list.
///
/// Any release may add a field, so another crate makes a claim by [`Claim::new`]:
///
/// ```compile_fail,E0639
/// # use tenure_core::{Claim, Holder, Kind, Lease, Stamp};
/// fn renewed(claim: Claim, lease: Lease) -> Claim {
///     Claim { lease, ..claim }
/// }
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Claim {
    /// The position: smaller stands before larger. Never used twice on one lock.
    pub ticket: u64,
    /// The fencing token, once the claim is granted.
    pub token: Option<u64>,
    /// How it lives.
    pub kind: Kind,
    /// The caller that made it.
    pub holder: Holder,
    /// When it entered the list.
    pub entered: Stamp,
    /// When it was granted.
    pub since: Option<Stamp>,
    /// Its ttl and last renewal.
    pub lease: Lease,
    /// How much its caller insists. It counts for as long as the claim waits, because a claim in front may
    /// become stale meanwhile.
    pub force: Force,
    /// How it holds.
    pub mode: Mode,
    /// How it waits.
    pub queueing: Queueing,
    /// How long its work takes at most to end after a request to stop, in milliseconds; 0 if its caller did
    /// not say.
    pub grace_ms: u64,
    /// A pending request to stop.
    pub cancel: Option<Cancel>,
    /// Set while its caller is away and its place is kept.
    pub reservation: Option<Reservation>,
    /// What the work under this hold waits for, on some other lock.
    pub waiting_for: Option<WaitingFor>,
    /// Since when it stands aside: its process was stopped, and other claims were let past it.
    pub aside: Option<Stamp>,
}

/// A request to stop. It is kept in the claim that is asked, and goes with that claim.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Cancel {
    /// The request id of the caller that asks.
    pub by: String,
    /// When it asked.
    pub at: Stamp,
    /// On whose behalf, for the message to the holder; empty if the caller did not say.
    pub actor: String,
    /// What for; empty if the caller did not say.
    pub why: String,
}

/// The caller that asks a holder to stop, and its reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StopRequest<'a> {
    /// The request id of that caller.
    pub by: &'a str,
    /// On whose behalf; empty if the caller does not say.
    pub actor: &'a str,
    /// What for; empty if the caller does not say.
    pub why: &'a str,
}

/// A caller of which only the request id is known.
impl<'a> From<&'a str> for StopRequest<'a> {
    fn from(by: &'a str) -> Self {
        let (actor, why) = ("", "");
        Self { by, actor, why }
    }
}

/// A caller that wants the lock itself.
impl<'a> From<&'a Holder> for StopRequest<'a> {
    fn from(holder: &'a Holder) -> Self {
        Self {
            by: holder.request_id.as_str(),
            actor: &holder.actor,
            why: &holder.why,
        }
    }
}

/// What a lock's list remembers of past holds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct History {
    /// How many holds have ended by release.
    pub holds: u64,
    /// A moving mean of their length, in milliseconds; the last eight weigh most.
    pub mean_ms: u64,
}

impl History {
    /// Counts one hold.
    pub(crate) fn remember(&mut self, held_ms: u64) {
        let weight = self.holds.saturating_add(1).min(8);
        let mean = u128::from(self.mean_ms) * u128::from(weight - 1) + u128::from(held_ms);
        self.mean_ms = u64::try_from(mean / u128::from(weight)).unwrap_or(u64::MAX);
        self.holds = self.holds.saturating_add(1);
    }

    /// How long holds of this lock last, in milliseconds; `None` without a past.
    pub fn usual_ms(&self) -> Option<u64> {
        (self.holds > 0).then_some(self.mean_ms)
    }

    /// How much longer a hold of this age lasts if it takes as long as the mean, in milliseconds. `None`
    /// without a past, and for a hold that is as old as the mean or older.
    pub fn rest_ms(&self, age_ms: u64) -> Option<u64> {
        let rest = self.usual_ms()?.checked_sub(age_ms)?;
        (rest > 0).then_some(rest)
    }
}

/// Everything that a store keeps about one lock.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Entry {
    /// The last number drawn, for tickets and tokens alike. It only rises.
    pub last: u64,
    /// Past holds.
    pub history: History,
    /// When the last hold ended: from then on it is the turn of the next claim.
    pub ended: Option<Stamp>,
    /// The claims in order.
    pub claims: Vec<Claim>,
}

/// How much a caller insists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Force {
    /// Not at all.
    No,
    /// Force was asked for.
    Asked,
    /// Force was asked for and confirmed by a second, explicit yes.
    Confirmed,
}

/// Whether a caller waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Patience {
    /// As the profile does by default.
    Default,
    /// Never.
    AtOnce,
    /// It queues; the engine decides for how long.
    Queue,
}

/// A claim that wants to enter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// The caller, and what it wants the lock for.
    pub holder: Holder,
    /// How it will live.
    pub kind: Kind,
    /// Its ttl in milliseconds.
    pub ttl_ms: u64,
    /// How much it insists.
    pub force: Force,
    /// Whether it waits.
    pub patience: Patience,
    /// What it asks for beyond the plain exclusive lock.
    pub terms: Terms,
}

/// What a request asks for beyond the plain exclusive lock.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Terms {
    /// How it will hold.
    pub mode: Mode,
    /// How it waits.
    pub queueing: Queueing,
    /// Whether the holders are asked to stop.
    pub cancel_in_progress: bool,
    /// How long its own work takes at most to end after a request to stop, in milliseconds; 0 if the caller
    /// does not say.
    pub grace_ms: u64,
    /// A place that was kept for it.
    pub kept: Option<Kept>,
}

/// The claim that a waiter stands behind, and what to sleep on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Predecessor {
    /// Its liveness lock is held; the kernel says when it is released.
    LivenessLock {
        /// Its ticket.
        ticket: u64,
    },
    /// Only its record speaks: sleep on its process, its ttl and a change of the record.
    Record(Box<Claim>),
    /// It waits itself. Sleep until it waits no longer: its grant will do as well as its end.
    Turn {
        /// Its ticket.
        ticket: u64,
    },
    /// The end of any of these claims will do: sleep on their processes and a change of the list.
    AnyOf(Vec<Claim>),
    /// No claim holds, and the processes of the next claims are stopped. Sleep behind this one, but no
    /// longer than until they stand aside.
    Stopped {
        /// The nearest of those claims.
        behind: Box<Predecessor>,
        /// The time until they stand aside, in milliseconds.
        rest_ms: u64,
    },
}

/// Why a request was refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// The reason.
    pub reason: Reason,
    /// What the blocker amounts to.
    pub standing: Standing,
    /// The claim that blocks, where it could be read.
    pub blocker: Option<Box<Claim>>,
    /// Set if no claim holds and the process of the next claim is stopped.
    pub standstill: Option<Standstill>,
}

/// What entering did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Entering {
    /// The lock is held.
    Granted {
        /// The claim's ticket.
        ticket: u64,
        /// Its fencing token.
        token: u64,
    },
    /// The claim stands in the queue.
    Queued {
        /// Its ticket.
        ticket: u64,
        /// What it stands behind.
        behind: Predecessor,
    },
    /// The caller has the lock already, by an earlier claim of its own.
    Yours {
        /// That claim's ticket.
        ticket: u64,
        /// Its fencing token.
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
    /// It holds the lock.
    Granted {
        /// Its fencing token.
        token: u64,
    },
    /// It stands behind another one.
    Behind(Predecessor),
    /// Its owner got the lock meanwhile, by another claim under the same request id.
    Yours {
        /// That claim's ticket.
        ticket: u64,
        /// Its fencing token.
        token: u64,
    },
    /// Another caller asked it to stop before it held the lock.
    Cancelled {
        /// The request id of that caller.
        by: String,
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
    /// Draws the next number, above every earlier one. As long as the clock is sane, it is also above every
    /// number that was drawn on a record that got lost.
    fn next_number(&mut self, now: &Now) -> u64 {
        let by_clock = if now.wall_us <= CLOCK_MAX {
            now.wall_us
        } else {
            0
        };
        self.last = self.last.saturating_add(1).max(by_clock);
        self.last
    }

    /// Raises the counter to at least `floor`.
    pub fn raise(&mut self, floor: u64) {
        self.last = self.last.max(floor);
    }

    /// The claim with this ticket.
    pub fn claim(&self, ticket: u64) -> Option<&Claim> {
        self.claims.iter().find(|claim| claim.ticket == ticket)
    }

    /// The claim with this ticket, to change it.
    pub fn claim_mut(&mut self, ticket: u64) -> Option<&mut Claim> {
        self.claims.iter_mut().find(|claim| claim.ticket == ticket)
    }

    /// How many claims stand before this ticket.
    pub fn position(&self, ticket: u64) -> Option<usize> {
        self.claims.iter().position(|claim| claim.ticket == ticket)
    }

    /// Whether a pending request to stop is aimed at this ticket.
    pub fn is_cancelled(&self, ticket: u64) -> bool {
        self.claim(ticket)
            .is_some_and(|claim| claim.cancel.is_some())
    }

    /// The granted claims, in the order of their tickets.
    pub fn granted(&self) -> impl Iterator<Item = &Claim> {
        self.claims.iter().filter(|claim| claim.token.is_some())
    }

    /// The claim that others wait for: the first that holds, else the first in line.
    pub fn front(&self) -> Option<&Claim> {
        self.granted().next().or_else(|| {
            let mut waiting = self.claims.iter();
            waiting.find(|claim| claim.is_in_line())
        })
    }

    /// Takes a claim out, together with a request to stop that was aimed at it.
    pub(crate) fn remove(&mut self, ticket: u64) -> Option<Claim> {
        let index = self.position(ticket)?;
        Some(self.claims.remove(index))
    }

    /// Asks the claim with this ticket to stop. False if there is no such claim. A claim that was asked
    /// already keeps its first request.
    pub fn ask_to_stop<'a>(
        &mut self,
        ticket: u64,
        request: impl Into<StopRequest<'a>>,
        now: &Now,
    ) -> bool {
        let Some(claim) = self.claim_mut(ticket) else {
            return false;
        };
        let boot = claim.holder.host.boot_id.as_deref();
        let at = now.stamp_for(boot);
        let StopRequest { by, actor, why } = request.into();
        claim.cancel.get_or_insert_with(|| Cancel {
            by: by.into(),
            at,
            actor: actor.into(),
            why: why.into(),
        });
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
        request: Request,
        now: &Now,
        evidence: impl FnMut(&Claim) -> Evidence,
        events: &mut Vec<Event>,
    ) -> Entering {
        self.enter_seeing(policy, request, now, evidence, |_| false, events)
    }

    /// The same for a store that sees which processes are stopped. `is_stopped` says whether a process is
    /// certainly stopped; a process that cannot be seen is not. It is asked of waiting claims only, and
    /// only if no holder blocks the request.
    pub fn enter_seeing(
        &mut self,
        policy: &Policy,
        request: Request,
        now: &Now,
        mut evidence: impl FnMut(&Claim) -> Evidence,
        mut is_stopped: impl FnMut(&Claim) -> bool,
        events: &mut Vec<Event>,
    ) -> Entering {
        if request.kind == Kind::Detached
            && let Some((ticket, token)) =
                self.own_hold(policy, &request.holder.request_id, now, &mut evidence)
        {
            return Entering::Yours { ticket, token };
        }
        let own = match self.kept_place(policy, &request, now, &mut evidence) {
            Place::New => None,
            Place::Kept(ticket) => Some(ticket),
            Place::NotKept => return Entering::NotKept,
        };
        let mut asking = Asking {
            policy,
            now,
            evidence: &mut evidence,
            is_stopped: &mut is_stopped,
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
            self.past_the_stopped(own, mode, request.force, behind, &mut asking)
        };
        let (nearest, near) = match before {
            Blocker::None => return self.admit_at_once(own, request, &mut asking),
            Blocker::Stale(refusal) => return Entering::Refused(refusal),
            Blocker::Live(nearest, near) => (nearest, near),
        };
        if matches!(holder.standing, Standing::Held(_)) {
            holder.standstill = near.standstill;
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
            Decision::Override if !waits && !self.is_cleared_by(own, &request, &mut asking) => {
                Decision::Refuse(Reason::Held)
            }
            other => other,
        };
        let counts = own.is_none() && request.terms.queueing == Queueing::Max;
        match decision {
            Decision::Refuse(reason) => self.refuse(reason, &holder),
            _ if counts && self.pending(&mut asking) >= PENDING_MAX => {
                self.refuse(Reason::QueueFull, &holder)
            }
            Decision::AskToStop if !waits => {
                self.ask_holders((&request.holder).into(), &mut asking);
                self.refuse(Reason::Held, &holder)
            }
            Decision::Override | Decision::AskToStop => {
                match self.take_by_force(own, &request, decision, &mut asking) {
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
        self.override_holds(force, request.patience, asking);
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
        request: Request,
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
        request: Request,
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
                self.ask_holders(by, asking);
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
        let mut others = self.granted().filter(|claim| Some(claim.ticket) != own);
        others.all(|claim| match asking.weigh(claim) {
            Weight::Live(standing) => {
                let (force, patience) = (request.force, request.patience);
                let decision = decide(asking.policy, standing, force, patience, Caller::Other);
                decision == Decision::Override
            }
            Weight::Aside | Weight::Gone(_) | Weight::Left(_) => true,
        })
    }

    /// Ends every hold that force may end.
    fn override_holds<E: FnMut(&Claim) -> Evidence>(
        &mut self,
        force: Force,
        patience: Patience,
        asking: &mut Asking<'_, E>,
    ) {
        let tickets: Vec<u64> = self.granted().map(|claim| claim.ticket).collect();
        for ticket in tickets {
            let weight = self.claim(ticket).map(|claim| asking.weigh(claim));
            let Some(Weight::Live(standing)) = weight else {
                continue;
            };
            let decision = decide(asking.policy, standing, force, patience, Caller::Other);
            if decision == Decision::Override {
                self.evict(ticket, standing, asking.now, asking.events);
            }
        }
    }

    fn refuse(&self, reason: Reason, holder: &Live) -> Entering {
        Entering::Refused(Refusal {
            reason,
            standing: holder.standing,
            blocker: self.claim(holder.ticket).cloned().map(Box::new),
            standstill: holder.standstill,
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
        self.try_grant_seeing(policy, ticket, now, evidence, |_| false, events)
    }

    /// The same for a store that sees which processes are stopped, as [`Entry::enter_seeing`]. A waiter
    /// that looks is not stopped: if it stood aside, it no longer does.
    pub fn try_grant_seeing(
        &mut self,
        policy: &Policy,
        ticket: u64,
        now: &Now,
        mut evidence: impl FnMut(&Claim) -> Evidence,
        mut is_stopped: impl FnMut(&Claim) -> bool,
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
                by: cancel.by.clone(),
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
            events,
        };
        match self.blocker(Some(ticket), mode, force, &mut asking) {
            Blocker::Live(behind, _) => TryGrant::Behind(behind),
            Blocker::Stale(refusal) => TryGrant::Blocked(refusal),
            Blocker::None => {
                let token = self.next_number(now);
                let Some(claim) = self.claim_mut(ticket) else {
                    return TryGrant::Gone;
                };
                claim.grant(token, now);
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

    /// Sweeps every claim that the policy takes over without force, and returns them.
    pub fn sweep(
        &mut self,
        policy: &Policy,
        now: &Now,
        mut evidence: impl FnMut(&Claim) -> Evidence,
    ) -> Vec<Claim> {
        let mut swept = Vec::new();
        let mut index = 0;
        while let Some(claim) = self.claims.get(index) {
            let passed = match claim.weigh(policy, evidence(claim), now) {
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

    /// The same for a store that sees which processes are stopped. A line in which all waiters are stopped
    /// and stand aside is free.
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
                    // The next caller passes it, if all claims behind it are stopped as well.
                    let still =
                        (asking.is_stopped)(claim).then(|| self.standstill_of(claim, asking.now));
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

    /// Whether an empty list may replace a record that cannot be read and was written `silent_ms` ago.
    ///
    /// # Errors
    /// - [`Refusal`] if the policy wants force and `force` brings none, or if it wants the record to be
    ///   older than the ttl and the record is not.
    pub fn replace_unreadable(
        policy: &Policy,
        force: Force,
        silent_ms: u64,
    ) -> Result<(), Refusal> {
        let standing = unreadable(policy);
        let decision = decide(policy, standing, force, Patience::AtOnce, Caller::Other);
        let young = policy.unreadable == UnreadableRule::RefuseUntilTtl
            && silent_ms <= policy.detached_ttl_ms;
        let reason = match decision {
            Decision::Refuse(reason) => reason,
            _ if young => Reason::Unreadable,
            _ => return Ok(()),
        };
        Err(Refusal {
            reason,
            standing,
            blocker: None,
            standstill: None,
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
        request: Request,
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
            holder: request.holder,
            entered,
            since: None,
            lease: Lease {
                ttl_ms: request.ttl_ms,
                renewed: now.stamp(),
                renewals: 0,
            },
            force: request.force,
            mode: request.terms.mode,
            queueing: request.terms.queueing,
            grace_ms: request.terms.grace_ms,
            cancel: None,
            reservation: None,
            waiting_for: None,
            aside: None,
        };
        let entering = if let Some(behind) = behind {
            Entering::Queued { ticket, behind }
        } else {
            let token = self.next_number(now);
            claim.grant(token, now);
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

impl Claim {
    /// A claim that is exclusive, waits in line, and has not been granted.
    pub fn new(ticket: u64, kind: Kind, holder: Holder, entered: Stamp, lease: Lease) -> Self {
        Self {
            ticket,
            token: None,
            kind,
            holder,
            entered,
            since: None,
            lease,
            force: Force::No,
            mode: Mode::Exclusive,
            queueing: Queueing::Fifo,
            grace_ms: 0,
            cancel: None,
            reservation: None,
            waiting_for: None,
            aside: None,
        }
    }

    fn grant(&mut self, token: u64, now: &Now) {
        self.token = Some(token);
        self.since = Some(now.stamp());
        self.aside = None;
        self.lease.renewed = now.stamp();
    }
}
