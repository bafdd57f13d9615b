//! A claim that this process keeps alive: what its handle has seen. Dropping the handle is dying.
//!
//! `transact` makes the changes to it.

use super::api::{RequestOp, TxnRequest};
use super::keys::Keys;
use super::list::List;
use super::read::Scope;
use super::{EtcdStore, Shared};
use crate::contract::Handle;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::time::Duration;
use tenure_core::{Claim, History, Kind, LockName};
use tenure_os::clock::{Clock, instant};
use tokio::task::AbortHandle;

/// For how long the keys of a dropped claim are cleared away while etcd is out of reach. By then they
/// have ended with their lease, unless the lease was kept alive all the time.
const CLEARING_MAX: Duration = Duration::from_secs(600);

/// How long the drop of a handle waits until etcd has heard of it: for one request that is lost, and the
/// next one. After that the clearing goes on in the background.
const DROP_MAX: Duration = Duration::from_millis(2_500);

/// A claim that this process keeps alive. Dropping it is dying.
pub(super) struct EtcdHandle {
    pub(super) shared: Arc<Shared>,
    pub(super) name: LockName,
    pub(super) ticket: u64,
    pub(super) id: String,
    pub(super) lease_key: String,
    pub(super) ttl_ms: u64,
    pub(super) kind: Kind,
    /// Whether the place was reserved while its caller was away.
    pub(super) was_reserved: bool,
    /// The revision up to which the answer to a renewal has told the holder everything about its claim.
    pub(super) told: Arc<AtomicI64>,
    /// An event ended a sleep, and no look has followed yet.
    pub(super) woken: Arc<AtomicBool>,
    /// The epoch of the servers in which its claim was made, or has taken its turn (`cluster`).
    epoch: AtomicU64,
    state: Mutex<LastLook>,
    /// The drop must not end its lease key: that has ended, or belongs to a hold that goes on.
    settled: AtomicBool,
    /// A change that attached its lease key may still be carried out.
    doubtful: AtomicBool,
    /// Whether the name may be that of another claim by now.
    is_given_back: AtomicBool,
    /// Whether the drop waits for no answer.
    forsaken: AtomicBool,
}

/// What a handle has seen last.
#[derive(Default)]
pub(super) struct LastLook {
    /// The revision at which the list was read.
    pub(super) revision: i64,
    /// The revision up to which the own claim was looked at.
    pub(super) own: i64,
    /// The keys of the claims and of their lease keys, by ticket.
    pub(super) keys: BTreeMap<u64, (String, String)>,
    /// The hold and the header as they were at the grant.
    pub(super) granted: Option<(Claim, History, i64)>,
    /// The own claim as it waits, and when it was written last.
    pub(super) waiting: Option<(Claim, i64)>,
    /// The hold as its last renewal wrote it, and when.
    pub(super) renewed: Option<(Claim, i64)>,
    /// The tasks that watch its keys for a holder.
    pub(super) watches: Vec<AbortHandle>,
}

impl Handle for EtcdHandle {
    fn name(&self) -> &LockName {
        &self.name
    }

    fn ticket(&self) -> u64 {
        self.ticket
    }

    /// The transaction that removed the claim removed its lease key too. Where that failed, the drop of
    /// this handle removes it.
    fn let_go(&self) {}

    fn forsake(&self) {
        self.forsaken.store(true, Ordering::SeqCst);
    }
}

impl EtcdHandle {
    /// The handle of a claim that was written at `revision`, after the list `before` or in it. It gets
    /// the id of the claim's key and that of its lease key.
    pub(super) fn new(
        shared: &Arc<Shared>,
        name: &LockName,
        claim: &Claim,
        (id, lease_key): (String, String),
        was_reserved: bool,
        (before, revision): (&List, i64),
    ) -> Self {
        let keys = &shared.keys;
        let own = (keys.claim(name, &id), keys.lease_key(name, &lease_key));
        let handle = Self {
            shared: Arc::clone(shared),
            name: name.clone(),
            ticket: claim.ticket,
            id,
            lease_key,
            ttl_ms: claim.lease.ttl_ms,
            kind: claim.kind,
            was_reserved,
            told: Arc::default(),
            woken: Arc::default(),
            epoch: AtomicU64::default(),
            state: Mutex::default(),
            settled: AtomicBool::new(false),
            doubtful: AtomicBool::new(false),
            is_given_back: AtomicBool::new(false),
            forsaken: AtomicBool::new(false),
        };
        handle.remember(before);
        let mut seen = handle.seen();
        seen.keys.insert(claim.ticket, own);
        seen.own = revision;
        drop(seen);
        handle.note_claim(Some(claim), before);
        handle
    }

    pub(super) fn seen(&self) -> MutexGuard<'_, LastLook> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that everything up to this revision that concerns its own claim was looked at.
    pub(super) fn saw(&self, revision: i64) {
        let mut seen = self.seen();
        seen.own = seen.own.max(revision);
    }

    /// Notes the epoch in which its claim counts.
    pub(super) fn enter_epoch(&self, epoch: u64) {
        self.epoch.store(epoch, Ordering::SeqCst);
    }

    /// Whether the servers have turned out to be others, or to be set back, since its claim was granted.
    pub(super) fn is_of_earlier_epoch(&self) -> bool {
        let cluster = self.shared.connection.endpoints().cluster();
        self.epoch.load(Ordering::SeqCst) != cluster.epoch()
    }

    /// Notes a list that was read.
    pub(super) fn remember(&self, list: &List) {
        let mut seen = self.seen();
        seen.revision = list.revision;
        seen.keys = keys_of(list, &self.shared.keys, &self.name);
        let own = list.row(self.ticket);
        let own = own.filter(|row| row.written.claim.token.is_none());
        seen.waiting = own.map(|row| (row.written.claim.clone(), row.modified));
    }

    /// Notes how its claim stands after a change to `before`.
    pub(super) fn note_claim(&self, claim: Option<&Claim>, before: &List) {
        let mut seen = self.seen();
        match claim {
            // A later release must not rely on what was known at the grant. If its answer were lost, no
            // look could tell that it had done nothing.
            None => (seen.granted, seen.waiting, seen.renewed) = (None, None, None),
            Some(claim) if claim.token.is_some() => {
                let hold = (claim.clone(), before.entry.history, before.header_modified);
                seen.granted.get_or_insert(hold);
            }
            Some(_) => {}
        }
        // A detached hold goes on without this process, and so does a reserved place.
        let goes_on = claim.is_none_or(|claim| {
            let is_detached = self.kind == Kind::Detached && claim.token.is_some();
            is_detached || claim.reservation.is_some()
        });
        if goes_on {
            self.settled.store(true, Ordering::SeqCst);
        }
    }

    /// Notes that a change which attached its lease key may still be carried out.
    pub(super) fn doubt(&self) {
        self.doubtful.store(true, Ordering::SeqCst);
    }

    /// Whether the claims behind it in the list do not matter to it, even if one of them holds.
    pub(super) fn only_those_before_matter(&self) -> bool {
        !self.was_reserved && self.kind == Kind::Kernel
    }

    /// Whether the lease of its lease key certainly runs.
    pub(super) fn is_certain(&self) -> bool {
        let now = self.shared.clock.now();
        let session = self.shared.sessions.present(self.ttl_ms);
        session.is_some_and(|session| {
            let age_ms = now.boot_ms.saturating_sub(session.last_sign(&now).boot_ms);
            age_ms < self.ttl_ms
        })
    }

    /// The store of the caller that made the claim. The lease key is attached to that caller's lease,
    /// even if another caller asks.
    pub(super) fn store(&self) -> EtcdStore {
        EtcdStore {
            shared: Arc::clone(&self.shared),
        }
    }

    /// Gives its id back for the next claim. The removal of its keys was answered, and so was everything
    /// that may have written them without a condition on their content.
    pub(super) fn give_back_id(&self) {
        let is_doubtful = self.doubtful.load(Ordering::SeqCst);
        if self.id == self.lease_key
            && !is_doubtful
            && !self.is_given_back.swap(true, Ordering::SeqCst)
        {
            self.shared.ids.give_back(&self.id);
        }
    }

    /// The scope of its own keys, for a read.
    pub(super) fn own(&self) -> Scope {
        Scope::One {
            id: self.id.clone(),
            lease_key: self.lease_key.clone(),
        }
    }
}

impl std::fmt::Debug for EtcdHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EtcdHandle")
            .field("name", &self.name)
            .field("ticket", &self.ticket)
            .finish_non_exhaustive()
    }
}

impl Drop for EtcdHandle {
    fn drop(&mut self) {
        if self.shared.connection.is_ours() {
            // Unless it came back and was given out again, nothing of this process has its name now.
            if !self.is_given_back.load(Ordering::SeqCst) {
                self.shared.ids.forget(&self.lease_key);
            }
            let watches = std::mem::take(&mut self.seen().watches);
            watches.iter().for_each(AbortHandle::abort);
        }
        if self.settled.load(Ordering::SeqCst) {
            return;
        }
        // Both keys belong to this handle alone, so no condition is needed. The claim stays, so that the
        // next caller can say whose lock it takes over. It goes too if a change on its way could attach
        // its lease key again.
        let mut gone = vec![self.shared.keys.lease_key(&self.name, &self.lease_key)];
        if self.doubtful.load(Ordering::SeqCst) {
            gone.push(self.shared.keys.claim(&self.name, &self.id));
        }
        let endpoints = Arc::clone(self.shared.connection.endpoints());
        let end = instant() + CLEARING_MAX;
        let (sender, done) = mpsc::channel::<()>();
        let spawned = self.shared.connection.spawn(async move {
            let ended = endpoints.until(end, |client| {
                let gone = gone.iter().map(|key| RequestOp::delete(key.clone()));
                let txn = TxnRequest::default().and_then(gone.collect::<Vec<_>>());
                async move { client.txn(txn).await }
            });
            let _ = ended.await;
            drop(sender);
        });
        if spawned.is_some() && !self.forsaken.load(Ordering::SeqCst) {
            // Wait for it, so that the next caller sees it, as it would after the death of a process.
            let _ = done.recv_timeout(DROP_MAX);
        }
    }
}

fn keys_of(list: &List, keys: &Keys, name: &LockName) -> BTreeMap<u64, (String, String)> {
    let rows = list.rows.iter();
    rows.map(|row| {
        let claim = keys.claim(name, &row.id);
        let lease_key = keys.lease_key(name, &row.written.lease_key);
        (row.written.claim.ticket, (claim, lease_key))
    })
    .collect()
}
