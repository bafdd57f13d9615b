//! Renewing a hold: possible only for its owner, and it never creates one.

use crate::claims::Entry;
use crate::time::Now;

/// What a heartbeat found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Renewal {
    /// The hold is renewed.
    Renewed {
        /// Its fencing token.
        token: u64,
        /// Somebody asked the holder to stop.
        cancel_requested: bool,
    },
    /// There is no such hold any more.
    Lost,
}

impl Entry {
    /// Renews the granted claim with this ticket.
    ///
    /// A claim that is not there is lost: the caller must not rely on the lock any longer, and
    /// nothing is written.
    pub fn renew(&mut self, ticket: u64, now: &Now) -> Renewal {
        let cancel_requested = self.is_cancelled(ticket);
        match self.claim_mut(ticket) {
            Some(claim) => match claim.token {
                Some(token) => {
                    claim.lease.renewed = now.stamp();
                    Renewal::Renewed {
                        token,
                        cancel_requested,
                    }
                }
                None => Renewal::Lost,
            },
            None => Renewal::Lost,
        }
    }
}
