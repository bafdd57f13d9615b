//! Releasing: who may, what happens to the list, and what is remembered of the hold.

use crate::claims::{Claim, Entry};
use crate::policy::{Policy, ReleaseByOther};
use crate::time::Now;
use alloc::boxed::Box;

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
    /// There was no such claim.
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
        /// Whether somebody else than the owner did it.
        by_other: bool,
    },
    /// Nobody holds it.
    Absent,
    /// Somebody else holds it, and this profile refuses.
    NotOwner {
        /// The claim that stands.
        claim: Box<Claim>,
    },
    /// Somebody else holds it, and this profile takes that as nothing to do.
    Ignored {
        /// The claim that stands.
        claim: Box<Claim>,
    },
}

impl Entry {
    /// Takes the claim with this ticket out of the list.
    pub fn leave(&mut self, ticket: u64, now: &Now) -> Left {
        let Some(claim) = self.remove(ticket) else {
            return Left::Absent;
        };
        match claim.since {
            Some(since) if claim.token.is_some() => {
                let held_ms = since.age_ms(claim.holder.host.boot_id.as_deref(), now);
                self.history.remember(held_ms);
                Left::Released { held_ms }
            }
            _ => Left::Withdrawn,
        }
    }

    /// Releases whatever is held, for a caller who shows ownership or does not.
    ///
    /// `owns` says of a granted claim whether the caller can show ownership of it.
    pub fn release(
        &mut self,
        policy: &Policy,
        owns: impl Fn(&Claim) -> Ownership,
        now: &Now,
    ) -> Released {
        // Among several holds, the caller's own is meant, and only without one somebody else's.
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
