//! What is kept about one lock: its claims in order, the last number that was drawn, and the past.
//!
//! Data and look-ups, and what a caller asks for. What may become of a list is decided in `claims`, `queue` and
//! `turn`; when a claim counts, in `standing`.

use crate::holder::{Holder, Process};
use crate::lease::Lease;
use crate::mode::{Mode, Queueing};
use crate::time::{Boot, Now, Stamp};
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

/// A place in the list: a holder or a waiter.
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
    /// Ttl and last renewal.
    pub lease: Lease,
    /// How much its caller insists. It counts for as long as the claim waits, because a claim in front may
    /// become stale meanwhile.
    pub force: Force,
    /// How it holds.
    pub mode: Mode,
    /// Slot of the holder, from 0, once the claim is granted. No other holder of the lock has this number.
    /// `None` in another mode, and for a hold that a version without numbers granted.
    pub slot: Option<u32>,
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
    /// Since when other claims may pass it: it did not take its turn. Its own next look takes that away.
    pub aside: Option<Stamp>,
    /// Whether its machine is this one, and was started anew since. The store finds that out at each reading, and writes
    /// it nowhere.
    pub is_of_ended_boot: bool,
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
            slot: None,
            queueing: Queueing::Fifo,
            grace_ms: 0,
            cancel: None,
            reservation: None,
            waiting_for: None,
            aside: None,
            is_of_ended_boot: false,
        }
    }

    /// The boot under which its instants were recorded.
    pub fn boot(&self) -> Boot<'_> {
        Boot {
            id: self.holder.host.boot_id.as_deref(),
            has_ended: self.is_of_ended_boot,
        }
    }

    /// `slot` is its number, and the member that goes with it.
    pub(crate) fn grant(&mut self, token: u64, slot: (Option<u32>, Option<String>), now: &Now) {
        let (number, member) = slot;
        self.token = Some(token);
        self.slot = number;
        if let Some(member) = member {
            self.holder.set_member(member);
        }
        self.since = Some(now.stamp());
        self.aside = None;
        self.lease.renewed = now.stamp();
    }

    /// What its slot stands for, if it holds one of a pool with members.
    pub fn member(&self) -> Option<&str> {
        self.holder.member(Some(self.slot?))
    }

    /// Whether it holds, or waits for its turn.
    pub fn is_in_line(&self) -> bool {
        self.token.is_some() || (self.reservation.is_none() && self.cancel.is_none())
    }

    /// Whether other claims were let past it because it did not take its turn. It stands aside until it looks.
    pub fn was_passed(&self) -> bool {
        self.token.is_none() && self.aside.is_some()
    }
}

/// A place in line that its caller has left and may come back to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reservation {
    /// When the caller left.
    pub since: Stamp,
    /// How long the place is kept, in milliseconds.
    pub grace_ms: u64,
}

impl Reservation {
    /// Whether the place is kept no longer.
    pub fn is_over<'a>(&self, recorded_boot: impl Into<Boot<'a>>, now: &Now) -> bool {
        self.since.age_ms(recorded_boot, now) > self.grace_ms
    }
}

/// What identifies a kept place, for a claim of the mode that waited there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kept {
    /// Ticket of the kept place. Where no place is kept under it, the request fails.
    Ticket(u64),
    /// The process that it is kept for. Where there is none, the request enters anew.
    Owner(Process),
    /// The agent that the request names, whichever process asks for it, and no other agent of its session. Where
    /// there is none, the request enters anew.
    Agent,
}

/// What the work under a hold waits for, on some other lock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WaitingFor {
    /// Where that lock is kept.
    pub place: String,
    /// Name of that lock.
    pub name: String,
    /// The ticket of the claim that waits there.
    pub ticket: u64,
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
    /// Kind of the caller that asked first.
    pub kind: CancelKind,
    /// The time from `at` until the work is killed, in milliseconds, where that is less than its own grace.
    pub grace_ms: Option<u64>,
}

impl Cancel {
    /// Shortens the grace to this much from now on, if that ends earlier.
    pub(crate) fn hasten(&mut self, grace_ms: u64, boot: Boot<'_>, now: &Now) {
        let grace_ms = self.at.age_ms(boot, now).saturating_add(grace_ms);
        let before = self.grace_ms.unwrap_or(u64::MAX);
        self.grace_ms = Some(grace_ms.min(before));
    }
}

/// Kind of caller that asks a run to stop.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum CancelKind {
    /// A caller that does not want the lock: a person, a script or a program that cancels the run.
    #[default]
    Operator,
    /// A newer run that wants the lock itself, or the place in line.
    NewerRun,
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
    /// Kind of the caller that asks.
    pub kind: CancelKind,
    /// How long the work is given from now on, in milliseconds; `None` for its own grace. A grace that runs already is
    /// shortened, never extended.
    pub grace_ms: Option<u64>,
}

/// A caller of which only the request id is known.
impl<'a> From<&'a str> for StopRequest<'a> {
    fn from(by: &'a str) -> Self {
        Self {
            by,
            actor: "",
            why: "",
            kind: CancelKind::Operator,
            grace_ms: None,
        }
    }
}

/// A caller that wants the lock itself.
impl<'a> From<&'a Holder> for StopRequest<'a> {
    fn from(holder: &'a Holder) -> Self {
        Self {
            by: holder.request_id.as_str(),
            actor: &holder.actor,
            why: &holder.why,
            kind: CancelKind::NewerRun,
            grace_ms: None,
        }
    }
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
    /// Queue; the engine decides for how long.
    Queue,
}

/// A claim that wants to enter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// The caller, and what it wants the lock for.
    pub holder: Holder,
    /// How it will live.
    pub kind: Kind,
    /// Ttl in milliseconds.
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
    /// What its caller saw of a claim that does not take its turn. `None` where the store itself ends the claim of a
    /// process that does not act.
    pub watched: Option<Watched>,
}

/// What a caller saw of a standstill while it ran itself. A machine that slept, or a caller that was stopped
/// together with the waiter, has seen nothing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Watched {
    /// The ticket of the claim that does not take its turn.
    pub front: u64,
    /// For how long the caller watched it, in milliseconds.
    pub ms: u64,
}

/// How many past holds support an estimate.
const TELLING_HOLDS: u64 = 3;

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

impl Entry {
    /// Whether past holds tell a person when a turn ends: enough have ended, for one or two may be of any length, and
    /// holders come one after the other.
    pub fn past_is_telling(&self) -> bool {
        let is_exclusive = |claim: &Claim| claim.mode == Mode::Exclusive;
        self.history.holds >= TELLING_HOLDS && self.claims.iter().all(is_exclusive)
    }

    /// Draws the next number, above every earlier one. As long as the clock is sane, it is also above every
    /// number that was drawn on a record that got lost.
    pub(crate) fn next_number(&mut self, now: &Now) -> u64 {
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

    /// The number that a claim of this mode gets if it is granted now: the lowest that no holder has; `None`
    /// unless it is to have one of several slots.
    ///
    /// Called once nothing blocks the claim. Every other granted claim in the list then counts: a stale one was
    /// removed, or else it blocks. So the granted claims are fewer than the claim's slots, and one of the
    /// numbers below that is free. The claims that are read are all that hold, and the grant rests on the whole
    /// list. So no number is given twice, whichever way the last holder of it ended. A killed supervisor whose
    /// command goes on is still a holder, and keeps its number.
    ///
    /// A hold that a version without numbers granted has none. Its command was told none, so none is kept for
    /// it.
    pub(crate) fn free_slot(&self, mode: Mode) -> Option<u32> {
        match mode {
            Mode::Exclusive | Mode::Shared => return None,
            Mode::Slots(_) => {}
        }
        let mut taken: Vec<u32> = self.granted().filter_map(|claim| claim.slot).collect();
        taken.sort_unstable();
        taken.dedup();
        let without_gap = taken.iter().zip(0_u32..);
        let without_gap = without_gap.take_while(|(taken, number)| *taken == number);
        u32::try_from(without_gap.count()).ok()
    }

    /// The member that a claim gets with its slot: the first in the list of its caller that no holder has. So lists may be
    /// edited, or differ in their order, while others hold. `None` without a list.
    ///
    /// Called as [`Entry::free_slot`] is, so the granted claims are fewer than the claim's slots, which are as many as its
    /// members. Each of them has at most one, so one is free.
    pub(crate) fn free_member(&self, slot: Option<u32>, holder: &Holder) -> Option<String> {
        slot?;
        // A holder whose caller knew no members may use its number as one.
        let by_number = |claim: &Claim| holder.members().nth(usize::try_from(claim.slot?).ok()?);
        let taken = self
            .granted()
            .filter_map(|claim| claim.member().or_else(|| by_number(claim)));
        let taken: Vec<&str> = taken.collect();
        let mut free = holder.members().filter(|member| !taken.contains(member));
        free.next().map(String::from)
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
}
