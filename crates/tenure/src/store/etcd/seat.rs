//! A claim's place: what it has seen, and that dropping it is dying.
//!
//! What is done with it is the business of `change`, `turn` and the store itself.

use super::api::{Txn, TxnOp};
use super::change::Scope;
use super::keys::Keys;
use super::list::List;
use super::{EtcdStore, Shared};
use crate::clock::{Clock, instant};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::time::Duration;
use tenure_core::{Claim, History, Kind, LockName, Renewal, Request};
use tokio::task::AbortHandle;

/// For how long what a caller left behind is cleared away, while etcd is out of reach. It has long
/// run out with its lease then, unless the lease was kept alive all the time.
const CLEARING_MAX: Duration = Duration::from_secs(600);

/// How long the drop of a seat waits for etcd to hear of it: for one request that is lost, and the
/// next one. It goes on without anybody waiting.
const DROP_MAX: Duration = Duration::from_millis(2_500);

/// A claim's place. Dropping it is dying.
pub struct Seat {
    pub(super) shared: Arc<Shared>,
    pub(super) name: LockName,
    pub(super) ticket: u64,
    pub(super) id: String,
    pub(super) life: String,
    pub(super) ttl_ms: u64,
    pub(super) kind: Kind,
    /// Its caller was away from this place.
    pub(super) was_away: bool,
    pub(super) state: Mutex<SeatState>,
    /// Its life is not to be ended with it: it has ended, or belongs to a hold that goes on.
    pub(super) settled: AtomicBool,
    /// A change that lit its life may still be carried out.
    pub(super) doubtful: AtomicBool,
}

/// What a seat has seen last.
#[derive(Default)]
pub(super) struct SeatState {
    /// The revision at which the list was read.
    pub(super) revision: i64,
    /// The revision up to which the own claim was looked at.
    pub(super) own: i64,
    /// The keys of the claims and of their lives, by ticket.
    pub(super) keys: BTreeMap<u64, (String, String)>,
    /// The hold, and the header, as of the grant.
    pub(super) granted: Option<(Claim, History, i64)>,
    /// The own claim as it waits, and when it was written last.
    pub(super) waiting: Option<(Claim, i64)>,
    /// A sleep was ended by something that happened, and nobody has looked since.
    pub(super) woken: bool,
    /// What watches its keys for whoever holds.
    pub(super) watches: Vec<AbortHandle>,
}

impl Seat {
    /// The place of a claim that this request made, or came back to.
    pub(super) fn new(
        shared: &Arc<Shared>,
        name: &LockName,
        request: &Request,
        (ticket, id, life): (u64, String, String),
        was_away: bool,
    ) -> Self {
        Self {
            shared: Arc::clone(shared),
            name: name.clone(),
            ticket,
            id,
            life,
            ttl_ms: request.ttl_ms,
            kind: request.kind,
            was_away,
            state: Mutex::default(),
            settled: AtomicBool::new(false),
            doubtful: AtomicBool::new(false),
        }
    }

    /// The ticket of the claim.
    pub fn ticket(&self) -> u64 {
        self.ticket
    }

    /// The lock.
    pub fn name(&self) -> &LockName {
        &self.name
    }

    pub(super) fn state(&self) -> MutexGuard<'_, SeatState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Everything up to this revision that concerns its own claim has been looked at.
    pub(super) fn saw(&self, revision: i64) {
        let mut state = self.state();
        state.own = state.own.max(revision);
    }

    pub(super) fn remember(&self, list: &List, keys: &Keys) {
        let mut state = self.state();
        state.revision = list.revision;
        state.keys = keys_of(list, keys, &self.name);
        let own = list.row(self.ticket);
        let own = own.filter(|row| row.written.claim.token.is_none());
        state.waiting = own.map(|row| (row.written.claim.clone(), row.modified));
    }

    /// Notes that it holds now.
    pub(super) fn note_grant(&self, claim: &Claim, list: &List) {
        if self.kind == Kind::Detached {
            // The hold goes on without this process.
            self.settled.store(true, Ordering::SeqCst);
        }
        let mut state = self.state();
        state.granted = Some((claim.clone(), list.entry.history, list.header_modified));
    }

    /// Notes what its caller is told of the hold. One that is lost is not ended by what was known at
    /// its grant: should the answer to that be lost, nobody could tell that it had done nothing.
    pub(super) fn told(&self, renewal: Renewal) -> Renewal {
        if renewal == Renewal::Lost {
            self.state().granted = None;
        }
        renewal
    }

    /// Whether the lease of its life runs for certain.
    pub(super) fn is_certain(&self) -> bool {
        let now = self.shared.clock.now();
        let session = self.shared.sessions.present(self.ttl_ms);
        session.is_some_and(|session| {
            let age_ms = now.boot_ms.saturating_sub(session.last_sign(&now).boot_ms);
            age_ms < self.ttl_ms
        })
    }

    /// The caller whose place it is: its life hangs on that one's lease, whoever asks.
    pub(super) fn store(&self) -> EtcdStore {
        EtcdStore {
            shared: Arc::clone(&self.shared),
        }
    }

    /// Its id may be the next claim's: the removal of its keys was answered, and so was all that may
    /// have written them without a condition on what stood there.
    pub(super) fn give_back_id(&self) {
        if self.id == self.life && !self.doubtful.load(Ordering::SeqCst) {
            self.shared.ids.give_back(&self.id);
        }
    }

    pub(super) fn own(&self) -> Scope {
        Scope::One {
            id: self.id.clone(),
            life: self.life.clone(),
        }
    }
}

impl std::fmt::Debug for Seat {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Seat")
            .field("name", &self.name)
            .field("ticket", &self.ticket)
            .finish_non_exhaustive()
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        if self.shared.link.is_ours() {
            let watches = std::mem::take(&mut self.state().watches);
            watches.iter().for_each(AbortHandle::abort);
        }
        if self.settled.load(Ordering::SeqCst) {
            return;
        }
        // Both keys are this seat's own, so no condition is needed. The claim stays, for whoever
        // comes next to say from whom it has the lock; unless something that is still on its way
        // could light its life again.
        let mut gone = vec![self.shared.keys.life(&self.name, &self.life)];
        if self.doubtful.load(Ordering::SeqCst) {
            gone.push(self.shared.keys.claim(&self.name, &self.id));
        }
        let endpoints = Arc::clone(self.shared.link.endpoints());
        let end = instant() + CLEARING_MAX;
        let (sender, done) = mpsc::channel::<()>();
        let _waits = self.shared.link.sleeping();
        let spawned = self.shared.link.spawn(async move {
            let ended = endpoints.until(end, |client| {
                let gone = gone.iter().map(|key| TxnOp::delete(key.clone(), None));
                let txn = Txn::new().and_then(gone.collect::<Vec<_>>());
                async move { client.kv_client().txn(txn).await }
            });
            let _ = ended.await;
            drop(sender);
        });
        if spawned.is_some() {
            // So that whoever looks next sees it, as with a process that has died.
            let _ = done.recv_timeout(DROP_MAX);
        }
    }
}

fn keys_of(list: &List, keys: &Keys, name: &LockName) -> BTreeMap<u64, (String, String)> {
    let rows = list.rows.iter();
    rows.map(|row| {
        let claim = keys.claim(name, &row.id);
        let life = keys.life(name, &row.written.life);
        (row.written.claim.ticket, (claim, life))
    })
    .collect()
}
