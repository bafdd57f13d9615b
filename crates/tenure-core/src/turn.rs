//! Whose turn it is: what a claim has to wait for, and on what it sleeps meanwhile.
//!
//! An exclusive claim waits for the nearest live claim before it, so a change costs the same with two
//! waiters and with a thousand. A claim that holds beside others counts those that could block it.
//!
//! Waiters that do not act could hold the line up for ever: their processes are stopped, frozen, or in a container that
//! is paused. Once they have had their turn for a grace, claims behind them go past them. Those waiters keep their
//! places.
//!
//! `claims` decides what is done with the answer.

use crate::claim::{Claim, Entry, Force, Patience};
use crate::decision::{Caller, Decision, Reason, decide};
use crate::mode::Mode;
use crate::policy::Policy;
use crate::queue::{Asking, STOPPED_GRACE_MS, Standstill, UNTAKEN_MS, WATCH_MS, Weight};
use crate::standing::{Evidence, LivenessLock, Standing};
use crate::time::Now;
use alloc::boxed::Box;
use alloc::vec::Vec;

/// The claim that a waiter stands behind, and what to sleep on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Predecessor {
    /// A claim with a liveness lock; the kernel says when the lock is released.
    LivenessLock {
        /// Ticket of the predecessor.
        ticket: u64,
    },
    /// Only its record speaks: sleep on its process, its ttl and a change of the record.
    Record(Box<Claim>),
    /// A claim that waits itself. Sleep until it waits no longer: a grant ends its wait as well as a release.
    Turn {
        /// Ticket of the predecessor.
        ticket: u64,
    },
    /// The end of any of these claims will do: sleep on their processes and a change of the list.
    AnyOf(Vec<Claim>),
    /// The next claim does not take its turn. Sleep behind this one, but no longer than until it stands aside.
    Still {
        /// The nearest claim.
        behind: Box<Predecessor>,
        /// The claim that does not take its turn, and the time until it stands aside.
        still: Standstill,
    },
}

/// Why a request was refused.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Refusal {
    /// The reason.
    pub reason: Reason,
    /// What the blocker amounts to.
    pub standing: Standing,
    /// The claim that blocks, where it could be read.
    pub blocker: Option<Box<Claim>>,
    /// Set if the next claim does not take its turn.
    pub standstill: Option<Standstill>,
    /// The waiter before the caller, if the holders alone would have let the caller hold beside them.
    pub ahead: Option<Box<Claim>>,
}

impl Refusal {
    /// For this reason, by this claim. No waiter is ahead, and the line moves.
    pub fn new(reason: Reason, standing: Standing, blocker: Option<Claim>) -> Self {
        Self {
            reason,
            standing,
            blocker: blocker.map(Box::new),
            standstill: None,
            ahead: None,
        }
    }
}

/// A live claim that blocks another.
pub(crate) struct Live {
    pub(crate) ticket: u64,
    pub(crate) granted: bool,
    pub(crate) standing: Standing,
    pub(crate) liveness_lock: LivenessLock,
    /// Set if only the grace of stopped waiters blocks the claim.
    pub(crate) standstill: Option<Standstill>,
}

/// What a look at one claim found that may block another.
enum Look {
    Nothing,
    Aside,
    Swept,
    Live(Live),
    Stale(Refusal),
}

/// The holders beside which a claim could hold.
#[derive(Debug, Clone)]
struct Room {
    holders: Vec<Mode>,
    /// Whether the list has a hold that no longer counts.
    has_left: bool,
}

impl Room {
    fn is_for(&self, mode: Mode) -> bool {
        let capacities = self.holders.iter().map(|other| other.capacity());
        let capacity = capacities.fold(mode.capacity(), usize::min);
        self.holders.len() < capacity && self.holders.iter().all(|other| mode.holds_beside(*other))
    }
}

/// A claim that waits behind a line that does not move, and looks again after so long.
fn still_behind(behind: Predecessor, mut near: Live, still: Standstill, rest_ms: u64) -> Blocker {
    near.standstill = Some(still);
    let behind = Predecessor::Still {
        behind: Box::new(behind),
        still: Standstill { rest_ms, ..still },
    };
    Blocker::Live(behind, near)
}

/// What blocks a claim.
pub(crate) enum Blocker {
    None,
    Live(Predecessor, Live),
    Stale(Refusal),
}

impl Entry {
    /// Whether a new claim of this mode would hold at once, without force.
    pub fn has_room(
        &self,
        policy: &Policy,
        mode: Mode,
        now: &Now,
        mut evidence: impl FnMut(&Claim) -> Evidence,
        mut is_stopped: impl FnMut(&Claim) -> bool,
    ) -> bool {
        let mut asking = Asking {
            policy,
            now,
            evidence: &mut evidence,
            is_stopped: &mut is_stopped,
            watched: None,
            notice_ms: self.notice_ms(),
            events: &mut Vec::new(),
        };
        // The look sweeps, so it gets a list of its own.
        match self.clone().blocker(None, mode, Force::No, &mut asking) {
            Blocker::None => true,
            // A caller that looks twice passes it.
            Blocker::Live(_, near) => near.standstill.is_some_and(|still| still.rest_ms == 0),
            Blocker::Stale(_) => false,
        }
    }

    /// The waiter before a new claim of this mode, if that claim could hold beside the holders but for it: a writer in
    /// line before a reader.
    pub fn ahead_of(
        &self,
        policy: &Policy,
        mode: Mode,
        now: &Now,
        mut evidence: impl FnMut(&Claim) -> Evidence,
    ) -> Option<&Claim> {
        let mut asking = Asking {
            policy,
            now,
            evidence: &mut evidence,
            is_stopped: &mut |_| false,
            watched: None,
            notice_ms: self.notice_ms(),
            events: &mut Vec::new(),
        };
        if mode == Mode::Exclusive {
            return None;
        }
        // The look sweeps, so it gets a list of its own.
        match self.clone().before(None, mode, Force::No, &mut asking) {
            Blocker::Live(_, near) => self.ahead(&near, mode, &mut asking),
            Blocker::None | Blocker::Stale(_) => None,
        }
    }

    /// The waiter before a new claim of this mode, where that waiter was found to block it: see [`Entry::ahead_of`].
    pub(crate) fn ahead<E: FnMut(&Claim) -> Evidence>(
        &self,
        near: &Live,
        mode: Mode,
        asking: &mut Asking<'_, E>,
    ) -> Option<&Claim> {
        if mode == Mode::Exclusive || near.granted || near.standstill.is_some() {
            return None;
        }
        let room = self.room_beside(None, mode, asking)?;
        // Where no claim holds, the waiter is what blocks.
        let waits = !room.holders.is_empty();
        waits.then(|| self.claim(near.ticket)).flatten()
    }

    /// Finds what a claim of this mode has to wait for, and sweeps stale claims on the way there. Stopped
    /// waiters whose grace is over are let stand aside, for the claim that is granted then.
    pub(crate) fn blocker<E: FnMut(&Claim) -> Evidence>(
        &mut self,
        own: Option<u64>,
        mode: Mode,
        force: Force,
        asking: &mut Asking<'_, E>,
    ) -> Blocker {
        match self.before(own, mode, force, asking) {
            Blocker::Live(behind, near) if !near.granted => {
                self.past_the_idle(own, mode, force, (behind, near), asking)
            }
            before => before,
        }
    }

    /// Finds the predecessor without looking which processes are stopped.
    pub(crate) fn before<E: FnMut(&Claim) -> Evidence>(
        &mut self,
        own: Option<u64>,
        mode: Mode,
        force: Force,
        asking: &mut Asking<'_, E>,
    ) -> Blocker {
        match mode {
            Mode::Exclusive => match self.nearest_before(own, force, asking) {
                Blocker::None => self.granted_behind(own, force, asking),
                before => before,
            },
            Mode::Shared | Mode::Slots(_) => self.among(own, mode, force, asking),
        }
    }

    /// Sweeps what is stale directly before a claim and finds the nearest live claim there.
    ///
    /// A dead waiter is passed over in every profile: it holds nothing that a person would have to decide
    /// about. `force` counts against stale holds only.
    fn nearest_before<E: FnMut(&Claim) -> Evidence>(
        &mut self,
        own: Option<u64>,
        force: Force,
        asking: &mut Asking<'_, E>,
    ) -> Blocker {
        let own = own.and_then(|ticket| self.position(ticket));
        let mut index = own.unwrap_or(self.claims.len());
        while let Some(before) = index.checked_sub(1) {
            match self.look_at(before, force, asking) {
                Look::Nothing => return Blocker::None,
                Look::Aside | Look::Swept => index = before,
                Look::Stale(refusal) => return Blocker::Stale(refusal),
                Look::Live(near) => {
                    let behind = self.sleep_behind(&near, asking.policy);
                    return Blocker::Live(behind, near);
                }
            }
        }
        Blocker::None
    }

    /// Looks among the claims behind. A later claim may hold there, granted while this claim's caller was away.
    fn granted_behind<E: FnMut(&Claim) -> Evidence>(
        &mut self,
        own: Option<u64>,
        force: Force,
        asking: &mut Asking<'_, E>,
    ) -> Blocker {
        let Some(mut last) = own.filter(|ticket| self.position(*ticket).is_some()) else {
            return Blocker::None;
        };
        loop {
            let mut behind = self.claims.iter().enumerate();
            let next = behind.find(|(_, claim)| claim.token.is_some() && claim.ticket > last);
            let Some((index, ticket)) = next.map(|(index, claim)| (index, claim.ticket)) else {
                return Blocker::None;
            };
            match self.look_at(index, force, asking) {
                Look::Nothing => return Blocker::None,
                Look::Aside => last = ticket,
                Look::Swept => {}
                Look::Stale(refusal) => return Blocker::Stale(refusal),
                Look::Live(near) => {
                    let behind = self.sleep_behind(&near, asking.policy);
                    return Blocker::Live(behind, near);
                }
            }
        }
    }

    /// Counts the live claims before one that holds beside others, and the granted ones behind it.
    ///
    /// The claim may hold as long as the counted claims are fewer than its capacity and than the capacity
    /// of each of them, and none of them names another number of slots. Let `H` be the claims that hold. All
    /// of `H` is counted, so `H` with this claim in it has no more members than the smallest capacity in it,
    /// and names one number of slots. What the modes promise holds for every grant.
    ///
    /// A waiter that names another number counts as well, if it stands before. So callers that agree with the
    /// holders do not go past it for ever.
    fn among<E: FnMut(&Claim) -> Evidence>(
        &mut self,
        own: Option<u64>,
        mode: Mode,
        force: Force,
        asking: &mut Asking<'_, E>,
    ) -> Blocker {
        let mut present: Vec<(Live, Mode)> = Vec::new();
        let mut index = 0;
        let mut is_before = true;
        while let Some(claim) = self.claims.get(index) {
            let (is_own, claim_mode) = (Some(claim.ticket) == own, claim.mode);
            is_before &= !is_own;
            if is_own || (!is_before && claim.token.is_none()) {
                index += 1;
                continue;
            }
            match self.look_at(index, force, asking) {
                Look::Nothing => break,
                Look::Aside => index += 1,
                Look::Swept => {}
                Look::Stale(refusal) => return Blocker::Stale(refusal),
                Look::Live(live) => {
                    present.push((live, claim_mode));
                    index += 1;
                }
            }
        }
        let capacities = present.iter().map(|(_, mode)| mode.capacity());
        let capacity = capacities.fold(mode.capacity(), usize::min);
        let count = present.len();
        // An exclusive claim, or one of another number of slots, has to end before anything else can change for
        // this one.
        let alone = present
            .iter()
            .rposition(|(_, other)| !mode.holds_beside(*other));
        if count < capacity && alone.is_none() {
            return Blocker::None;
        }
        let waiting = || present.iter().rposition(|(live, _)| !live.granted);
        if let Some(index) = alone {
            let (near, _) = present.swap_remove(index);
            return Blocker::Live(self.sleep_behind(&near, asking.policy), near);
        }
        if let Some(index) = waiting() {
            let (near, _) = present.swap_remove(index);
            let ticket = near.ticket;
            return Blocker::Live(Predecessor::Turn { ticket }, near);
        }
        // The end of a single claim can be seen better than the end of any one of several.
        if let [_] = present.as_slice()
            && let Some((near, _)) = present.pop()
        {
            return Blocker::Live(self.sleep_behind(&near, asking.policy), near);
        }
        let holders = present
            .iter()
            .filter_map(|(live, _)| self.claim(live.ticket).cloned())
            .collect();
        match present.pop() {
            Some((near, _)) => Blocker::Live(Predecessor::AnyOf(holders), near),
            None => Blocker::None,
        }
    }

    /// Goes past the waiters before a claim that do not act, if nothing else blocks it and they have had their
    /// turn for a grace. A caller that forces grants no grace: a waiter does no work that could be disturbed.
    ///
    /// # Crash safety
    /// A waiter may be passed because it is not granted, whether it runs or not. It holds only by a grant that it writes
    /// itself, under the guard that the caller has. Once it goes on, it reads the list first and finds every claim that
    /// was granted meanwhile. So a waiter that goes on between this look and the caller's write has lost nothing but its
    /// turn. The mark that it was passed goes into one write, with the grant or before it: without that write nothing has
    /// changed, and a grant past a mark rests on that mark.
    pub(crate) fn past_the_idle<E: FnMut(&Claim) -> Evidence>(
        &mut self,
        own: Option<u64>,
        mode: Mode,
        force: Force,
        (behind, near): (Predecessor, Live),
        asking: &mut Asking<'_, E>,
    ) -> Blocker {
        let Some(room) = self.room_beside(own, mode, asking) else {
            return Blocker::Live(behind, near);
        };
        let Some(stopped) = self.stopped_before(own, mode, room.clone(), asking) else {
            return self.past_the_silent(own, force, &room, (behind, near), asking);
        };
        // A holder that died blocks no claim; the turn of the claims behind it begins here.
        if let Some(refusal) = self.sweep_holds(own, force, asking) {
            return Blocker::Stale(refusal);
        }
        let front = stopped.last().and_then(|ticket| self.claim(*ticket));
        let Some(still) = front.map(|front| self.standstill_of(front, true, asking.now)) else {
            return Blocker::Live(behind, near);
        };
        if force == Force::No && still.rest_ms > 0 {
            return still_behind(behind, near, still, still.rest_ms);
        }
        for ticket in stopped {
            self.let_pass(ticket, asking.now);
        }
        Blocker::None
    }

    /// Goes past waiters of which nobody sees that they are stopped: a container that is paused, a process behind a
    /// debugger or of another machine. The caller has watched for the grace that the next claim does not take its turn.
    ///
    /// Of the claims between, none had its turn, so nobody knows whether they act. They are marked, and get the time in
    /// which a waiter that runs looks once ([`Entry::notice_ms`]). So all that do not act cost one grace together, and
    /// one that acts keeps its turn before the caller.
    fn past_the_silent<E: FnMut(&Claim) -> Evidence>(
        &mut self,
        own: Option<u64>,
        force: Force,
        room: &Room,
        (behind, near): (Predecessor, Live),
        asking: &mut Asking<'_, E>,
    ) -> Blocker {
        let Some(watched) = asking.watched else {
            return Blocker::Live(behind, near);
        };
        let Some(front) = self.silent_before(own, room, asking) else {
            return Blocker::Live(behind, near);
        };
        let has_left = room.has_left;
        let watched_ms = if watched.front == front {
            watched.ms
        } else {
            0
        };
        if has_left && watched_ms >= UNTAKEN_MS {
            // The next claim would have taken it over. Its turn begins here.
            if let Some(refusal) = self.sweep_holds(own, force, asking) {
                return Blocker::Stale(refusal);
            }
        }
        let Some(claim) = self.claim(front) else {
            return Blocker::Live(behind, near);
        };
        let mut still = self.standstill_of(claim, false, asking.now);
        if has_left {
            // When that holder died is not known.
            (still.since_ms, still.rest_ms) = (0, STOPPED_GRACE_MS);
            return still_behind(behind, near, still, UNTAKEN_MS);
        }
        if still.since_ms < UNTAKEN_MS {
            return Blocker::Live(behind, near);
        }
        let rest_ms = WATCH_MS.saturating_sub(watched_ms.min(still.since_ms));
        if force == Force::No && rest_ms > 0 {
            return still_behind(behind, near, still, rest_ms);
        }
        let between = self.silent_between(front, own, asking);
        let may_act = between.iter().any(|(_, is_stopped)| !is_stopped);
        self.set_aside(front, asking.now);
        for (ticket, _) in between {
            self.let_pass(ticket, asking.now);
        }
        if force == Force::No && may_act {
            (still.marks, still.rest_ms) = (true, asking.notice_ms);
            return still_behind(behind, near, still, asking.notice_ms);
        }
        Blocker::None
    }

    /// The first live waiter before a claim, if the holders would let it hold.
    fn silent_before<E: FnMut(&Claim) -> Evidence>(
        &self,
        own: Option<u64>,
        room: &Room,
        asking: &mut Asking<'_, E>,
    ) -> Option<u64> {
        // In most lines the turn has only just begun, and no claim is asked.
        let has_begun = self.ended_ms(asking.now).is_some_and(|ms| ms < UNTAKEN_MS);
        if has_begun && !room.has_left {
            return None;
        }
        let mut waiting = self
            .claims
            .iter()
            .filter(|claim| claim.token.is_none() && own.is_none_or(|own| claim.ticket < own));
        let front = waiting.find(|claim| matches!(asking.weigh(claim), Weight::Live(_)))?;
        room.is_for(front.mode).then_some(front.ticket)
    }

    /// The live waiters between the first one and a claim, and whether each is seen to be stopped.
    fn silent_between<E: FnMut(&Claim) -> Evidence>(
        &self,
        front: u64,
        own: Option<u64>,
        asking: &mut Asking<'_, E>,
    ) -> Vec<(u64, bool)> {
        let waiting = self.claims.iter().filter(|claim| claim.token.is_none());
        let between = waiting
            .filter(|claim| claim.ticket > front && own.is_none_or(|own| claim.ticket < own));
        between
            .filter_map(|claim| {
                let is_live = matches!(asking.weigh(claim), Weight::Live(_));
                is_live.then(|| (claim.ticket, (asking.is_stopped)(claim)))
            })
            .collect()
    }

    /// Sweeps every hold that no longer counts. Answers with a hold that may not be passed, if there is
    /// one.
    pub(crate) fn sweep_holds<E: FnMut(&Claim) -> Evidence>(
        &mut self,
        own: Option<u64>,
        force: Force,
        asking: &mut Asking<'_, E>,
    ) -> Option<Refusal> {
        let mut index = 0;
        while let Some(claim) = self.claims.get(index) {
            if claim.token.is_none() || Some(claim.ticket) == own {
                index += 1;
                continue;
            }
            match self.look_at(index, force, asking) {
                Look::Nothing => break,
                Look::Stale(refusal) => return Some(refusal),
                Look::Swept => {}
                Look::Aside | Look::Live(_) => index += 1,
            }
        }
        None
    }

    /// Whether the holders keep a claim of this mode from holding beside them. Called after the sweep of
    /// stale holds. Every hold that still stands counts, so nothing is granted beside a hold that was not
    /// removed.
    pub(crate) fn is_held_against(&self, own: Option<u64>, mode: Mode) -> bool {
        let others = self.granted().filter(|claim| Some(claim.ticket) != own);
        let room = Room {
            holders: others.map(|claim| claim.mode).collect(),
            has_left: false,
        };
        !room.is_for(mode)
    }

    /// The holders that count, as far as a claim of this mode could hold beside them; `None` if it could not.
    fn room_beside<E: FnMut(&Claim) -> Evidence>(
        &self,
        own: Option<u64>,
        mode: Mode,
        asking: &mut Asking<'_, E>,
    ) -> Option<Room> {
        let mut room = Room {
            holders: Vec::new(),
            has_left: false,
        };
        for claim in self.granted().filter(|claim| Some(claim.ticket) != own) {
            if !matches!(asking.weigh(claim), Weight::Live(_)) {
                room.has_left = true;
                continue;
            }
            room.holders.push(claim.mode);
            if !room.is_for(mode) {
                return None;
            }
        }
        Some(room)
    }

    /// The live waiters before a claim whose processes are stopped, the nearest first, if the claim could
    /// hold but for them.
    fn stopped_before<E: FnMut(&Claim) -> Evidence>(
        &self,
        own: Option<u64>,
        mode: Mode,
        mut room: Room,
        asking: &mut Asking<'_, E>,
    ) -> Option<Vec<u64>> {
        let waiting = self.claims.iter().filter(|claim| claim.token.is_none());
        let before = waiting.filter(|claim| own.is_none_or(|own| claim.ticket < own));
        let mut stopped = Vec::new();
        // From the nearest: in a long line of running waiters, one look is enough.
        for claim in before.rev() {
            if matches!(asking.weigh(claim), Weight::Live(_)) {
                if (asking.is_stopped)(claim) {
                    stopped.push(claim.ticket);
                    continue;
                }
                room.holders.push(claim.mode);
                if !room.is_for(mode) {
                    return None;
                }
            }
        }
        (!stopped.is_empty()).then_some(stopped)
    }

    /// How long this claim, which is the first in line, has had its turn, and how long it keeps it.
    pub(crate) fn standstill_of(&self, front: &Claim, is_stopped: bool, now: &Now) -> Standstill {
        let boot = front.boot();
        let waited_ms = front.entered.age_ms(boot, now);
        let since_ms = self.ended_ms(now).map_or(waited_ms, |ms| ms.min(waited_ms));
        Standstill {
            front: front.ticket,
            is_stopped,
            marks: false,
            since_ms,
            rest_ms: if front.was_passed() {
                0
            } else {
                STOPPED_GRACE_MS.saturating_sub(since_ms)
            },
        }
    }

    /// How long ago the last hold ended whose end was recorded.
    fn ended_ms(&self, now: &Now) -> Option<u64> {
        let ended = self.ended?;
        let of_this_boot = ended.boot_ms <= now.boot_ms;
        // The record does not keep the boot of this instant. A later reading of another boot's clock is
        // never believed, or it could put a turn off for days. An earlier one is wrong by a grace at most.
        let boot = of_this_boot.then_some(&*now.boot_id);
        Some(ended.age_ms(boot, now))
    }

    /// The line at a standstill: no claim holds, and the next claim does not take its turn. Where the process of
    /// that claim is not seen to be stopped, its turn begins with the last end that the list knows of. So a hold of a
    /// dead process in the list, of which no caller knows when it ended, is no standstill yet.
    pub(crate) fn standstill<E: FnMut(&Claim) -> Evidence>(
        &self,
        asking: &mut Asking<'_, E>,
    ) -> Option<(Standstill, &Claim)> {
        let (policy, now) = (asking.policy, asking.now);
        let mut is_live = |claim: &&Claim| {
            let weight = claim.weigh(policy, (asking.evidence)(claim), now);
            matches!(weight, Weight::Live(_))
        };
        if self.granted().any(|claim| is_live(&claim)) {
            return None;
        }
        let mut waiting = self.claims.iter().filter(|claim| claim.token.is_none());
        let next = waiting.find(is_live)?;
        let is_stopped = (asking.is_stopped)(next);
        let still = self.standstill_of(next, is_stopped, now);
        let is_untaken = still.since_ms >= UNTAKEN_MS && self.is_untaken();
        (is_stopped || is_untaken).then_some((still, next))
    }

    /// Whether the list says since when the turn is offered: no claim has it, and the last one that had it left.
    pub(crate) fn is_untaken(&self) -> bool {
        self.ended.is_some() && self.granted().next().is_none()
    }

    /// Looks at one claim that blocks another, and removes it if it may be passed.
    fn look_at<E: FnMut(&Claim) -> Evidence>(
        &mut self,
        index: usize,
        force: Force,
        asking: &mut Asking<'_, E>,
    ) -> Look {
        let Some(claim) = self.claims.get(index) else {
            return Look::Nothing;
        };
        let seen = (asking.evidence)(claim);
        let (ticket, granted) = (claim.ticket, claim.token.is_some());
        match asking.weigh_by(claim, seen) {
            Weight::Aside => Look::Aside,
            Weight::Live(standing) => Look::Live(Live {
                ticket,
                granted,
                standing,
                liveness_lock: seen.liveness_lock,
                standstill: None,
            }),
            Weight::Gone(standing) => {
                self.evict(ticket, standing, asking.now, asking.events);
                Look::Swept
            }
            Weight::Left(standing) => {
                let queued = Patience::Queue;
                let decision = decide(asking.policy, standing, force, queued, Caller::Other);
                if let Decision::Refuse(reason) = decision {
                    return Look::Stale(Refusal {
                        reason,
                        standing,
                        blocker: Some(Box::new(claim.clone())),
                        standstill: None,
                        ahead: None,
                    });
                }
                self.evict(ticket, standing, asking.now, asking.events);
                Look::Swept
            }
        }
    }

    /// What to sleep on behind a live claim.
    ///
    /// A held liveness lock is worth it only where it keeps a hold alive. Elsewhere a hold may end while
    /// its liveness lock is held, and no waiter would wake up.
    fn sleep_behind(&self, near: &Live, policy: &Policy) -> Predecessor {
        let ticket = near.ticket;
        match self.claim(ticket) {
            Some(claim)
                if !(policy.asks_liveness_lock && near.liveness_lock == LivenessLock::Held) =>
            {
                Predecessor::Record(Box::new(claim.clone()))
            }
            _ => Predecessor::LivenessLock { ticket },
        }
    }

    /// The first claim that counts, at which force is aimed: a claim that holds, if there is one.
    pub(crate) fn first_live<E: FnMut(&Claim) -> Evidence>(
        &self,
        asking: &mut Asking<'_, E>,
    ) -> Live {
        let (standing, claim) = self.standing_by(asking);
        Live {
            ticket: claim.map_or(0, |claim| claim.ticket),
            granted: claim.is_some_and(|claim| claim.token.is_some()),
            standing,
            liveness_lock: LivenessLock::None,
            standstill: None,
        }
    }
}
