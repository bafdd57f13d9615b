//! A lock as it was read, and what follows from it: its standing, who is ahead, which claims are seen alive.
//!
//! The rules are the core's. Here they meet the evidence that a store has found for each claim.

use crate::profile::ends_without_release;
use tenure_core::{
    Claim, Entry, Evidence, Liveness, LivenessLock, Mode, Now, Policy, Silence, StaleReason,
    StaleUnforced, Standing, Standstill, is_orphan, judge,
};

/// A lock as it was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reading {
    /// Where the lock is kept, for people.
    pub place: String,
    /// What is kept, with the evidence for each claim in the same order.
    pub content: Content,
    /// The tickets of the claims whose processes are certainly stopped. Empty where the store does not
    /// ask that.
    pub stopped: Vec<u64>,
    /// Whether anything is kept. In a reading through a handle: whether this is still the lock in which
    /// its claim was made.
    pub stored: bool,
    /// The bytes that other programs see; empty where there are none.
    pub record: Vec<u8>,
}

/// What a reading found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Content {
    /// A whole list; an absent lock is an empty one.
    Whole {
        /// The list.
        entry: Entry,
        /// What is known of each claim.
        evidence: Vec<Evidence>,
    },
    /// Something that cannot be understood.
    Unreadable {
        /// What is wrong with it.
        why: String,
        /// How long its holder has been silent.
        silence: Silence,
    },
}

impl Reading {
    /// The standing of the lock under `policy`, and the claim that decides it.
    pub fn standing(&self, policy: &Policy, now: &Now) -> (Standing, Option<&Claim>) {
        match &self.content {
            Content::Whole { entry, evidence } => {
                let known = known_of(entry, evidence);
                let stopped = |claim: &Claim| self.is_stopped(claim);
                match entry.standing_seeing(policy, now, known, stopped) {
                    // The holder of this claim could not release it, so it did not leave the lock
                    // behind. The next caller may take it over.
                    (Standing::Stale(_), Some(claim))
                        if policy.stale_unforced == StaleUnforced::TakeOver
                            && ends_without_release(claim) =>
                    {
                        self.left_by_another(entry, policy, now)
                    }
                    standing => standing,
                }
            }
            Content::Unreadable { .. } => (tenure_core::unreadable(policy), None),
        }
    }

    /// The first claim that is stale although its holder could have released it; a free lock if there is
    /// none.
    fn left_by_another<'a>(
        &self,
        entry: &'a Entry,
        policy: &Policy,
        now: &Now,
    ) -> (Standing, Option<&'a Claim>) {
        let mut left = entry
            .granted()
            .filter(|claim| !ends_without_release(claim))
            .map(|claim| (self.standing_of(policy, claim, now), Some(claim)))
            .filter(|(standing, _)| matches!(standing, Standing::Stale(_)));
        left.next().unwrap_or((Standing::Free, None))
    }

    /// Whether the process of one of its claims is certainly stopped.
    pub fn is_stopped(&self, claim: &Claim) -> bool {
        self.stopped.contains(&claim.ticket)
    }

    /// Whether no claim holds, and the next claim does not take its turn.
    pub fn standstill(&self, policy: &Policy, now: &Now) -> Option<(Standstill, &Claim)> {
        let Content::Whole { entry, evidence } = &self.content else {
            return None;
        };
        let known = known_of(entry, evidence);
        entry.standstill_seeing(policy, now, known, |claim| self.is_stopped(claim))
    }

    /// The waiter before a new claim of this mode, if that claim could hold beside the holders but for it.
    pub fn ahead_of(&self, policy: &Policy, mode: Mode, now: &Now) -> Option<&Claim> {
        match &self.content {
            Content::Whole { entry, evidence } => {
                entry.ahead_of(policy, mode, now, known_of(entry, evidence))
            }
            Content::Unreadable { .. } => None,
        }
    }

    /// Whether a new claim of this mode would hold at once, without force.
    pub fn has_room(&self, policy: &Policy, mode: Mode, now: &Now) -> bool {
        match &self.content {
            Content::Whole { entry, evidence } => {
                let known = known_of(entry, evidence);
                entry.has_room(policy, mode, now, known, |claim| self.is_stopped(claim))
            }
            Content::Unreadable { .. } => false,
        }
    }

    /// The standing of one of its claims under `policy`.
    pub fn standing_of(&self, policy: &Policy, claim: &Claim, now: &Now) -> Standing {
        match self.evidence_of(claim) {
            Some(evidence) => judge(policy, claim, &evidence, now),
            None => Standing::Unknown,
        }
    }

    /// Whether a sign of life of one of its claims is seen from here: a byte that is kept, or a process that runs.
    pub fn is_seen_alive(&self, claim: &Claim) -> bool {
        self.evidence_of(claim).is_some_and(|evidence| {
            evidence.liveness_lock == LivenessLock::Held
                || evidence.process == Liveness::Alive
                || evidence.command == Liveness::Alive
        })
    }

    /// Whether one of its claims is a run whose supervisor is dead while its work goes on, however the lock stands.
    pub fn is_orphan(&self, claim: &Claim) -> bool {
        let evidence = self.evidence_of(claim);
        evidence.is_some_and(|evidence| is_orphan(claim, &evidence))
    }

    /// Milliseconds until one of its claims, which counts now, ends by silence; `None` if silence does not end it.
    pub fn ends_in_ms(&self, policy: &Policy, claim: &Claim, now: &Now) -> Option<u64> {
        let boot = claim.boot();
        let rest_ms = claim.lease.remaining_ms(boot, now).saturating_add(1);
        let later = Now {
            wall_us: now.wall_us.saturating_add(rest_ms.saturating_mul(1_000)),
            boot_ms: now.boot_ms.saturating_add(rest_ms),
            ..now.clone()
        };
        let ends = self.standing_of(policy, claim, &later) == Standing::Stale(StaleReason::Silent);
        ends.then_some(rest_ms)
    }

    /// Whether one of its claims waits in vain, because its caller has died or its place has
    /// lapsed.
    pub fn is_gone(&self, policy: &Policy, claim: &Claim, now: &Now) -> bool {
        let evidence = self.evidence_of(claim);
        evidence.is_some_and(|evidence| claim.is_gone(policy, evidence, now))
    }

    /// What is known of one of its claims.
    pub fn evidence_of(&self, claim: &Claim) -> Option<Evidence> {
        let Content::Whole { entry, evidence } = &self.content else {
            return None;
        };
        let index = entry.position(claim.ticket)?;
        evidence.get(index).copied()
    }

    /// The claims, if they could be read.
    pub fn entry(&self) -> Option<&Entry> {
        match &self.content {
            Content::Whole { entry, .. } => Some(entry),
            Content::Unreadable { .. } => None,
        }
    }
}

/// The evidence that was found for each claim of the list; for any other claim, none.
fn known_of<'a>(entry: &'a Entry, evidence: &'a [Evidence]) -> impl Fn(&Claim) -> Evidence + 'a {
    |claim| {
        let known = entry.position(claim.ticket);
        let known = known.and_then(|index| evidence.get(index).copied());
        known.unwrap_or(Evidence {
            liveness_lock: LivenessLock::None,
            process: Liveness::Unknown,
            command: Liveness::Unknown,
        })
    }
}
