//! An attempt to make a claim, and what happens when its answer is lost.
//!
//! A transaction whose answer is lost may be carried out at any time afterwards. Each attempt makes a
//! lease key of its own name, on the condition that there is none. So a caller gives an attempt up by a
//! **tombstone**: it makes that lease key without the claim. Whichever of the two comes first, the other
//! one does nothing. After that it is known for good whether the attempt was carried out. A caller that
//! cannot even learn that gets an error. The tombstone is then tried in the background, until etcd
//! answers it or the lease has run out; without that lease, etcd refuses the attempt anyway.

use super::EtcdStore;
use super::api::{Compare, CompareResult, RequestOp, TxnRequest};
use super::connection::Fault;
use super::list::List;
use super::read::Scope;
use super::session::Session;
use crate::StoreError;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tenure_core::LockName;
use tenure_os::clock::instant;

/// How long a tombstone is tried after its caller was told that the call failed.
const BURIAL_MAX: Duration = Duration::from_secs(600);

/// An attempt to make a claim, or to come back to a reserved one.
#[derive(Debug, Clone)]
pub(super) struct Attempt {
    /// The name of the lease key that it makes, and of the claim if that is new (`ids`).
    pub(super) id: String,
    /// The session that keeps the lease key alive.
    pub(super) session: Arc<Session>,
}

impl EtcdStore {
    /// An attempt under a name that no other attempt has, or that its last attempt has given back.
    pub(super) fn attempt(&self, ttl_ms: u64, end: Instant) -> Result<Attempt, StoreError> {
        let session = self.session(ttl_ms, end)?;
        let id = self.shared.ids.take(session.lease);
        Ok(Attempt { id, session })
    }

    /// The next attempt, under a name that no attempt ever had.
    pub(super) fn anew(&self, attempt: &Attempt) -> Attempt {
        let session = Arc::clone(&attempt.session);
        let id = self.shared.ids.fresh(session.lease);
        Attempt { id, session }
    }

    /// Finds out what became of an attempt. If nothing did, this makes sure that nothing will. Answers
    /// with the list, in which the attempt's claim stands if it was made. `claim` is the id of the claim
    /// that the attempt would have written.
    pub(super) fn bury(
        &self,
        name: &LockName,
        attempt: &Attempt,
        claim: &str,
        end: Instant,
    ) -> Result<List, StoreError> {
        let lease_key = self.shared.keys.lease_key(name, &attempt.id);
        let endpoints = Arc::clone(self.shared.connection.endpoints());
        let lease = attempt.session.lease;
        let given_up = self
            .shared
            .connection
            .block("writing the lock", async move {
                let txn = endpoints
                    .until(end, |client| {
                        let absent =
                            Compare::create_revision(lease_key.clone(), CompareResult::Equal, 0);
                        let put = RequestOp::leased(lease_key.clone(), "buried", lease);
                        let txn = TxnRequest::default().when([absent]).and_then([put]);
                        async move { client.txn(txn).await }
                    })
                    .await;
                match txn {
                    // Without its lease the attempt is refused. A claim that was made under it is found
                    // in the list.
                    Ok(_) | Err(Fault::LeaseGone) => Ok(()),
                    Err(fault) => Err(fault),
                }
            });
        // An answer may be lost here too. So the claim in the list shows which of the two made the lease
        // key.
        given_up
            .and_then(|()| self.load(name, &Scope::All, end))
            .inspect_err(|_| self.give_up_later(name, attempt, claim))
    }

    /// Gives up an attempt in the background, after its caller was told that the call failed. The claim
    /// is removed if it was made.
    pub(super) fn give_up_later(&self, name: &LockName, attempt: &Attempt, claim: &str) {
        let keys = &self.shared.keys;
        let (lease_key, claim) = (keys.lease_key(name, &attempt.id), keys.claim(name, claim));
        let endpoints = Arc::clone(self.shared.connection.endpoints());
        let (end, lease) = (instant() + BURIAL_MAX, attempt.session.lease);
        self.shared.connection.spawn(async move {
            let given_up = endpoints.until(end, |client| {
                // The lease key of a claim is empty. A tombstone takes its place in either case: a
                // repeated request finds the tombstone, and undoes nothing.
                let made = Compare::value(lease_key.clone(), CompareResult::Equal, "");
                let put = RequestOp::leased(lease_key.clone(), "buried", lease);
                let remove = [RequestOp::delete(claim.clone()), put.clone()];
                let txn = TxnRequest::default()
                    .when([made])
                    .and_then(remove)
                    .or_else([put]);
                async move { client.txn(txn).await }
            });
            let _ = given_up.await;
        });
    }
}
