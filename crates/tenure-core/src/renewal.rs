//! Renewing a hold: possible only for its owner, and it never creates one.

use crate::claim::Entry;
use crate::time::Now;

/// What a heartbeat found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Renewal {
    /// The hold is renewed.
    Renewed {
        /// Fencing token of the hold.
        token: u64,
        /// Another caller asked the holder to stop.
        cancel_requested: bool,
    },
    /// The hold is no longer in the list.
    Lost,
}

impl Entry {
    /// Renews the granted claim with this ticket.
    ///
    /// A claim that is not there is lost: the caller must not rely on the lock any longer, and
    /// nothing is written.
    pub fn renew(&mut self, ticket: u64, now: &Now) -> Renewal {
        let renewal = self.verify(ticket);
        if let (Renewal::Renewed { .. }, Some(claim)) = (renewal, self.claim_mut(ticket)) {
            let at = now.stamp_for(claim.boot());
            claim.lease.renew(at);
        }
        renewal
    }

    /// What a renewal would find, without renewing.
    pub fn verify(&self, ticket: u64) -> Renewal {
        match self.claim(ticket).and_then(|claim| claim.token) {
            Some(token) => Renewal::Renewed {
                token,
                cancel_requested: self.is_cancelled(ticket),
            },
            None => Renewal::Lost,
        }
    }
}
