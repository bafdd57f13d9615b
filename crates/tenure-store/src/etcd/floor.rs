//! The floor of tokens: what is added to the revision of a grant to make its token.
//!
//! Revisions alone do not do: a cluster that was restored from a snapshot counts from a lower one, and a fence that has
//! seen a holder would refuse its successor. So tokens follow the wall clock, as over files: one key has a floor, and
//! a token is *floor plus revision*. Whoever grants, and finds that this is more than ten seconds behind its clock, raises
//! the floor in the transaction that grants. A grant is conditional on the floor that it counts with. So a token is
//! higher than each earlier one:
//!
//! - revisions rise, and the floor never falls, as long as the servers keep their state;
//! - servers that were set back are at least that far behind the clock, because to make a snapshot and to restore it
//!   takes longer. So the first grant after that raises the floor above every earlier token.
//!
//! What it leaves open: a clock that is set back together with the servers. `floors` has what a process knows of the floor.

use super::api::{Compare, CompareResult, RangeRequest, RequestOp};

/// The floor as the key has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stood {
    /// The epoch in which it was read.
    pub(super) epoch: u64,
    pub(super) value: u64,
    /// When the key was written last; 0 if there is none.
    pub(super) modified: i64,
}

/// The floor that a grant counts with.
#[derive(Debug, Clone)]
pub(super) struct Floor {
    pub(super) key: String,
    pub(super) stood: Stood,
    /// What the grant raises it to.
    pub(super) value: u64,
}

impl Floor {
    /// The condition that it stands.
    pub(super) fn stands(&self) -> Compare {
        Compare::mod_revision(self.key.clone(), CompareResult::Equal, self.stood.modified)
    }

    /// The write that raises it, if it is too low.
    pub(super) fn raise(&self) -> Option<RequestOp> {
        let raises = self.value != self.stood.value;
        raises.then(|| RequestOp::put(self.key.clone(), self.value.to_string()))
    }

    /// Reads the floor, for a grant that does nothing.
    pub(super) fn again(&self) -> RequestOp {
        RequestOp::get(RangeRequest::of(self.key.clone()))
    }

    /// The token of a grant at this revision.
    pub(super) fn token(&self, revision: i64) -> u64 {
        self.value
            .saturating_add(u64::try_from(revision).unwrap_or(0))
    }
}
