//! The only yes or no in the product: it takes a standing and a request, and says what may be done.
//!
//! The whole table (profile × standing × force × caller) is printed by
//! `tests/decision_table.rs` and kept as a reviewed snapshot.

use crate::claim::{Force, Patience};
use crate::policy::{ForceOnHeld, HeldUnforced, OwnAgain, Policy, StaleUnforced, UnreadableRule};
use crate::standing::{Life, Standing};

/// The caller, as seen from the claim that blocks it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Caller {
    /// The owner of the claim, known by the request id.
    Owner,
    /// Any other caller.
    Other,
}

/// Why a request is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// A live claim blocks the request.
    Held,
    /// A stale claim blocks it, and this profile wants force for that.
    StaleNeedsForce,
    /// An override was asked for and lacks its second, explicit yes.
    NeedsConfirmation,
    /// As many claims wait already as the caller's queue holds.
    QueueFull,
    /// The record cannot be read.
    Unreadable,
    /// The state could not be found out.
    Unknown,
}

/// What may be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// Take it: no claim has it.
    Grant,
    /// Take it over from a claim that no longer counts.
    TakeOver,
    /// Take it over from a live claim, because force and the profile say so. This is never silent.
    Override,
    /// Queue behind the claims that are there.
    Wait,
    /// Ask the live holder to stop, and queue.
    AskToStop,
    /// Nothing to do: the caller has it already.
    Yours,
    /// No.
    Refuse(Reason),
}

/// Decides one request against one standing.
pub fn decide(
    policy: &Policy,
    standing: Standing,
    force: Force,
    patience: Patience,
    caller: Caller,
) -> Decision {
    match standing {
        Standing::Free => Decision::Grant,
        Standing::Unknown => Decision::Refuse(Reason::Unknown),
        Standing::Held(_) if caller == Caller::Owner && policy.own_again == OwnAgain::Yours => {
            Decision::Yours
        }
        Standing::Held(life) => match (force, policy.force_on_held) {
            (Force::No, _) | (_, ForceOnHeld::Never) => held(policy, patience),
            (_, ForceOnHeld::Override) | (Force::Confirmed, ForceOnHeld::OverrideConfirmed) => {
                Decision::Override
            }
            (Force::Asked, ForceOnHeld::OverrideConfirmed) => {
                Decision::Refuse(Reason::NeedsConfirmation)
            }
            (force, ForceOnHeld::AskToStop) => match (life, force) {
                // An orphan has no supervisor that could be asked, so only time can end it.
                (Life::Orphaned, _) => held(policy, patience),
                (Life::Supervised, _) => Decision::AskToStop,
                (Life::Detached, Force::Confirmed) => Decision::Override,
                (Life::Detached, _) => Decision::Refuse(Reason::NeedsConfirmation),
            },
        },
        Standing::Stale(_) => match (force, policy.stale_unforced) {
            (Force::No, StaleUnforced::Refuse) => Decision::Refuse(Reason::StaleNeedsForce),
            (Force::No, StaleUnforced::TakeOver) | (Force::Asked | Force::Confirmed, _) => {
                Decision::TakeOver
            }
        },
        Standing::Unreadable => match (force, policy.unreadable) {
            (Force::No, UnreadableRule::RefuseUnlessForced | UnreadableRule::RefuseUntilTtl) => {
                Decision::Refuse(Reason::Unreadable)
            }
            (Force::Asked | Force::Confirmed, _) | (_, UnreadableRule::Stale) => Decision::TakeOver,
        },
    }
}

fn held(policy: &Policy, patience: Patience) -> Decision {
    match (patience, policy.held_unforced) {
        (Patience::Queue, _) | (Patience::Default, HeldUnforced::WaitMs(_)) => Decision::Wait,
        (Patience::AtOnce, _) | (Patience::Default, HeldUnforced::Refuse) => {
            Decision::Refuse(Reason::Held)
        }
    }
}
