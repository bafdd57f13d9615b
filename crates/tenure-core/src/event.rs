//! What happened to a lock, in the words that an audit keeps.

use crate::claim::Claim;
use crate::standing::StaleReason;
use alloc::boxed::Box;
use alloc::vec::Vec;

/// Why a lock was taken over without a release by its holder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Takeover {
    /// The claim no longer counted.
    Stale(StaleReason),
    /// The record could not be read and force was used.
    Corrupt,
    /// The claim was alive and force was used.
    Active,
}

/// A change of the list, as the store reports it to the caller that asked for it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// A claim was granted.
    Acquired {
        /// Fencing token of the grant.
        token: u64,
    },
    /// A claim was removed in favour of another.
    Stolen {
        /// Why.
        why: Takeover,
        /// The claim as it stood; `None` where it could not be read.
        previous: Option<Box<Claim>>,
        /// The bytes that stood at the path which other programs read; empty where the format
        /// has none. The store fills them in.
        record: Vec<u8>,
    },
    /// The live holder was asked to stop.
    CancelRequested {
        /// The ticket of the claim that was asked.
        ticket: u64,
    },
    /// A claim that waited has to give up its place to a newer one.
    Displaced {
        /// The claim.
        claim: Box<Claim>,
    },
    /// A hold ended by release.
    Released {
        /// How long it was held, in milliseconds.
        held_ms: u64,
        /// Whether a caller other than the owner did it.
        by_other: bool,
    },
}
