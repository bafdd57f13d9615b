//! Releasing: which caller may, what happens to the list, and what is remembered of the hold.

use crate::claim::{Claim, Entry, Force, Patience};
use crate::decision::{Caller, Decision, Reason, decide};
use crate::policy::{Policy, ReleaseByOther};
use crate::standing::{Evidence, Standing, judge};
use crate::time::Now;
use crate::turn::Refusal;
use alloc::boxed::Box;
use alloc::vec::Vec;

/// What leaving the list did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Left {
    /// A hold ended after this many milliseconds.
    Released {
        /// How long it was held.
        held_ms: u64,
    },
    /// A waiting claim was withdrawn.
    Withdrawn,
    /// No such claim was in the list.
    Absent,
}

/// What the caller of a release can show.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ownership {
    /// The request id of the hold, or descent from its owner's process.
    Shown,
    /// Neither.
    Missing,
}

/// What a release by name did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Released {
    /// The hold ended.
    Done {
        /// The claim as it stood.
        claim: Box<Claim>,
        /// How long it was held.
        held_ms: u64,
        /// Whether a caller other than the owner did it.
        by_other: bool,
    },
    /// No claim holds it.
    Absent,
    /// The caller is not the owner, and this profile refuses.
    NotOwner {
        /// The claim that stands.
        claim: Box<Claim>,
    },
    /// The caller is not the owner, and under this profile there is nothing to do.
    Ignored {
        /// The claim that stands.
        claim: Box<Claim>,
    },
    /// The record could not be read, and was removed as this profile wants it.
    Unreadable {
        /// Bytes of the record.
        record: Vec<u8>,
    },
}

/// What a forced release did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Forced {
    /// The hold is gone.
    Done {
        /// The claim as it stood; `None` where it could not be read.
        claim: Option<Box<Claim>>,
        /// What it amounted to.
        standing: Standing,
        /// How long it was held.
        held_ms: u64,
    },
    /// No claim holds it, and the process of the next claim is stopped. From now on that claim stands
    /// aside, and keeps its place.
    SetAside {
        /// The claim that was set aside.
        claim: Box<Claim>,
    },
    /// No claim holds it, or none of those that were meant.
    Absent,
    /// Refused: this profile does not let force end the hold, or wants a second yes.
    Refused(Refusal),
}

impl Entry {
    /// Takes the claim with this ticket out of the list.
    pub fn leave(&mut self, ticket: u64, now: &Now) -> Left {
        let Some(claim) = self.remove(ticket) else {
            return Left::Absent;
        };
        match claim.since {
            Some(since) if claim.token.is_some() => {
                self.ended = Some(now.stamp());
                let held_ms = since.age_ms(claim.boot(), now);
                self.history.remember(held_ms);
                Left::Released { held_ms }
            }
            _ => Left::Withdrawn,
        }
    }

    /// Ends the first hold of the list, for an operator with `force`.
    pub fn force_release(
        &mut self,
        policy: &Policy,
        force: Force,
        now: &Now,
        evidence: impl FnMut(&Claim) -> Evidence,
    ) -> Forced {
        self.force_release_seeing(policy, None, force, now, evidence, |_| false)
    }

    /// Does so for a store that sees which processes are stopped. With `meant`, nothing happens unless a hold is the one
    /// that is meant.
    pub fn force_release_seeing(
        &mut self,
        policy: &Policy,
        meant: Option<&dyn Fn(&Claim) -> bool>,
        force: Force,
        now: &Now,
        mut evidence: impl FnMut(&Claim) -> Evidence,
        mut is_stopped: impl FnMut(&Claim) -> bool,
    ) -> Forced {
        let is_meant = |claim: &Claim| meant.is_none_or(|meant| meant(claim));
        let mut held = self.claims.iter().filter(|claim| claim.token.is_some());
        let Some(claim) = held.find(|claim| is_meant(claim)) else {
            if meant.is_some() {
                return Forced::Absent;
            }
            let next = self.standstill_seeing(policy, now, evidence, &mut is_stopped);
            let Some((_, next)) = next else {
                return Forced::Absent;
            };
            let claim = Box::new(next.clone());
            self.set_aside(claim.ticket, now);
            return Forced::SetAside { claim };
        };
        let (claim, standing) = (claim.clone(), judge(policy, claim, &evidence(claim), now));
        let decision = decide(policy, standing, force, Patience::AtOnce, Caller::Other);
        let reason = match decision {
            Decision::TakeOver | Decision::Override => {
                let held_ms = match self.leave(claim.ticket, now) {
                    Left::Released { held_ms } => held_ms,
                    Left::Withdrawn | Left::Absent => 0,
                };
                return Forced::Done {
                    claim: Some(Box::new(claim)),
                    standing,
                    held_ms,
                };
            }
            Decision::Refuse(reason) => reason,
            // A supervised run ends its own work first; its lock is not taken while it works.
            Decision::AskToStop | Decision::Grant | Decision::Wait | Decision::Yours => {
                Reason::Held
            }
        };
        Forced::Refused(Refusal {
            reason,
            standing,
            blocker: Some(Box::new(claim)),
            standstill: None,
            ahead: None,
        })
    }

    /// Releases a hold, for a caller that shows ownership or does not.
    ///
    /// `owns` says of a granted claim whether the caller can show ownership of it.
    pub fn release(
        &mut self,
        policy: &Policy,
        owns: impl Fn(&Claim) -> Ownership,
        now: &Now,
    ) -> Released {
        // Among several holds, the caller's own is released. Another owner's is meant only if there is no
        // own one.
        let granted = || self.claims.iter().filter(|claim| claim.token.is_some());
        let own = granted().find(|claim| owns(claim) == Ownership::Shown);
        let Some(claim) = own.or_else(|| granted().next()).cloned() else {
            return Released::Absent;
        };
        let by_other = owns(&claim) == Ownership::Missing;
        if by_other {
            match policy.release_by_other {
                ReleaseByOther::Refuse => {
                    return Released::NotOwner {
                        claim: Box::new(claim),
                    };
                }
                ReleaseByOther::Ignore => {
                    return Released::Ignored {
                        claim: Box::new(claim),
                    };
                }
                ReleaseByOther::WarnAndRelease => {}
            }
        }
        let held_ms = match self.leave(claim.ticket, now) {
            Left::Released { held_ms } => held_ms,
            Left::Withdrawn | Left::Absent => 0,
        };
        Released::Done {
            claim: Box::new(claim),
            held_ms,
            by_other,
        }
    }
}
