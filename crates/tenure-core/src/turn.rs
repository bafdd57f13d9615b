//! Whose turn it is: what a claim has to wait for, and on what it sleeps meanwhile.
//!
//! An exclusive claim waits for the nearest live claim before it, so a change costs the same with
//! two waiters and with a thousand. One that holds beside others counts those in its way.
//!
//! What is done with the answer is `claims`' business.

use crate::claims::{Claim, Entry, Force, Patience, Predecessor, Refusal};
use crate::decision::{Asker, Decision, decide};
use crate::event::Event;
use crate::mode::Mode;
use crate::policy::Policy;
use crate::queue::Weight;
use crate::standing::{Beacon, Evidence, Standing};
use crate::time::Now;
use alloc::boxed::Box;
use alloc::vec::Vec;

/// What a question about the list is answered with.
pub(crate) struct Asking<'a, E> {
    pub(crate) policy: &'a Policy,
    pub(crate) now: &'a Now,
    pub(crate) evidence: &'a mut E,
    pub(crate) events: &'a mut Vec<Event>,
}

impl<E: FnMut(&Claim) -> Evidence> Asking<'_, E> {
    pub(crate) fn weigh(&mut self, claim: &Claim) -> Weight {
        claim.weigh(self.policy, (self.evidence)(claim), self.now)
    }
}

/// A live claim in somebody's way.
pub(crate) struct Live {
    pub(crate) ticket: u64,
    pub(crate) granted: bool,
    pub(crate) standing: Standing,
    pub(crate) beacon: Beacon,
}

/// One claim that stands in somebody's way.
enum Look {
    Nothing,
    Aside,
    Swept,
    Live(Live),
    Stale(Refusal),
}

/// What stands in somebody's way.
pub(crate) enum Before {
    Nobody,
    Live(Predecessor, Live),
    Stale(Refusal),
}

impl Entry {
    /// Finds what a claim of this mode has to wait for, and sweeps what is stale on the way there.
    pub(crate) fn in_the_way<E: FnMut(&Claim) -> Evidence>(
        &mut self,
        own: Option<u64>,
        mode: Mode,
        force: Force,
        asking: &mut Asking<'_, E>,
    ) -> Before {
        match mode {
            Mode::Exclusive => match self.nearest_before(own, force, asking) {
                Before::Nobody => self.granted_behind(own, force, asking),
                before => before,
            },
            Mode::Shared | Mode::Slots(_) => self.among(own, mode, force, asking),
        }
    }

    /// Sweeps what is stale directly before a claim and finds the nearest live claim there.
    ///
    /// A dead waiter is passed over in every profile: it holds nothing that anybody would have
    /// to decide about. `force` counts against stale holds only.
    fn nearest_before<E: FnMut(&Claim) -> Evidence>(
        &mut self,
        own: Option<u64>,
        force: Force,
        asking: &mut Asking<'_, E>,
    ) -> Before {
        let own = own.and_then(|ticket| self.position(ticket));
        let mut index = own.unwrap_or(self.claims.len());
        while let Some(before) = index.checked_sub(1) {
            match self.look_at(before, force, asking) {
                Look::Nothing => return Before::Nobody,
                Look::Aside | Look::Swept => index = before,
                Look::Stale(refusal) => return Before::Stale(refusal),
                Look::Live(near) => {
                    let behind = self.sleep_behind(&near, asking.policy);
                    return Before::Live(behind, near);
                }
            }
        }
        Before::Nobody
    }

    /// The same among the claims behind: one may hold there that came later, while this one's
    /// caller was away.
    fn granted_behind<E: FnMut(&Claim) -> Evidence>(
        &mut self,
        own: Option<u64>,
        force: Force,
        asking: &mut Asking<'_, E>,
    ) -> Before {
        let Some(own) = own.and_then(|ticket| self.position(ticket)) else {
            return Before::Nobody;
        };
        let mut index = own + 1;
        while let Some(claim) = self.claims.get(index) {
            if claim.token.is_none() {
                index += 1;
                continue;
            }
            match self.look_at(index, force, asking) {
                Look::Nothing => return Before::Nobody,
                Look::Aside => index += 1,
                Look::Swept => {}
                Look::Stale(refusal) => return Before::Stale(refusal),
                Look::Live(near) => {
                    let behind = self.sleep_behind(&near, asking.policy);
                    return Before::Live(behind, near);
                }
            }
        }
        Before::Nobody
    }

    /// Counts the live claims before one that holds beside others, and the granted ones behind it.
    ///
    /// It may hold as long as they are fewer than it and each of them tolerates. With `H` for those
    /// who hold, all of `H` is counted, so `H` with this one in it has no more members than the
    /// smallest capacity in it: what the modes promise holds for every grant.
    fn among<E: FnMut(&Claim) -> Evidence>(
        &mut self,
        own: Option<u64>,
        mode: Mode,
        force: Force,
        asking: &mut Asking<'_, E>,
    ) -> Before {
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
                Look::Stale(refusal) => return Before::Stale(refusal),
                Look::Live(live) => {
                    present.push((live, claim_mode));
                    index += 1;
                }
            }
        }
        let capacities = present.iter().map(|(_, mode)| mode.capacity());
        let capacity = capacities.fold(mode.capacity(), usize::min);
        let count = present.len();
        if count < capacity {
            return Before::Nobody;
        }
        // An exclusive claim has to end before anything else can change for this one.
        let alone = present
            .iter()
            .rposition(|(_, mode)| *mode == Mode::Exclusive);
        let waiting = || present.iter().rposition(|(live, _)| !live.granted);
        if let Some(index) = alone {
            let (near, _) = present.swap_remove(index);
            return Before::Live(self.sleep_behind(&near, asking.policy), near);
        }
        if let Some(index) = waiting() {
            let (near, _) = present.swap_remove(index);
            let ticket = near.ticket;
            return Before::Live(Predecessor::Turn { ticket }, near);
        }
        // The end of the only one is seen better than that of any one of several.
        if let [_] = present.as_slice()
            && let Some((near, _)) = present.pop()
        {
            return Before::Live(self.sleep_behind(&near, asking.policy), near);
        }
        let holders = present
            .iter()
            .filter_map(|(live, _)| self.claim(live.ticket).cloned())
            .collect();
        match present.pop() {
            Some((near, _)) => Before::Live(Predecessor::AnyOf(holders), near),
            None => Before::Nobody,
        }
    }

    /// Looks at one claim that stands in somebody's way, and removes it if it may be passed.
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
        match claim.weigh(asking.policy, seen, asking.now) {
            Weight::Aside => Look::Aside,
            Weight::Live(standing) => Look::Live(Live {
                ticket,
                granted,
                standing,
                beacon: seen.beacon,
            }),
            Weight::Gone(standing) => {
                self.oust(ticket, standing, asking.events);
                Look::Swept
            }
            Weight::Left(standing) => {
                let queued = Patience::Queue;
                let decision = decide(asking.policy, standing, force, queued, Asker::Other);
                if let Decision::Refuse(reason) = decision {
                    return Look::Stale(Refusal {
                        reason,
                        standing,
                        blocker: Some(Box::new(claim.clone())),
                    });
                }
                self.oust(ticket, standing, asking.events);
                Look::Swept
            }
        }
    }

    /// What to sleep on behind a live claim.
    ///
    /// A lit beacon is worth it only where it is what keeps a hold alive; elsewhere a hold may end
    /// while its beacon is lit, and nobody would wake up.
    fn sleep_behind(&self, near: &Live, policy: &Policy) -> Predecessor {
        let ticket = near.ticket;
        match self.claim(ticket) {
            Some(claim) if !(policy.asks_beacon && near.beacon == Beacon::Lit) => {
                Predecessor::Record(Box::new(claim.clone()))
            }
            _ => Predecessor::Beacon { ticket },
        }
    }

    /// The first claim that counts, which is the one that force is aimed at: one that holds, if
    /// any does.
    pub(crate) fn first_live<E: FnMut(&Claim) -> Evidence>(
        &self,
        asking: &mut Asking<'_, E>,
    ) -> Live {
        let (policy, now) = (asking.policy, asking.now);
        let (standing, claim) = self.standing(policy, now, &mut *asking.evidence);
        Live {
            ticket: claim.map_or(0, |claim| claim.ticket),
            granted: claim.is_some_and(|claim| claim.token.is_some()),
            standing,
            beacon: Beacon::None,
        }
    }
}
