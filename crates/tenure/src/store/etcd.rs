//! The etcd store: one list of claims for many machines.
//!
//! One key per claim. Its creation revision is the ticket, so the order of the queue is the order in
//! which etcd wrote the claims; the revision of the write that grants is the fencing token. Beside
//! it stands the claim's *life*, an empty key that hangs on a lease which the claimant's process
//! keeps alive: what a kernel lock on a byte is to the file store. A waiter watches the claim and
//! the life before its own, and nobody else's.
//!
//! Each call of [`Store`] reads the list, has the core decide, and commits what changed in one
//! transaction that names everything the decision rests on (`list`). If anything of that was
//! changed meanwhile the transaction does nothing, and the call begins anew. There is no write
//! without a condition.
//!
//! # Unknown outcomes
//! A transaction whose answer never came may have been carried out, or be carried out later. The
//! list is read again and looked through for the caller's own claim, whose key nobody else ever
//! uses. Repeating it is safe: of two transactions that make, grant or remove the same claim, the
//! one that comes second finds its condition broken. Making a claim is the exception, for once it
//! has come and gone the condition holds again: so before a claim is made anew, and when the call has
//! to give up, the id of the one whose fate is unknown is marked as *spent*, for as long as its lease
//! runs. What arrives after that makes nothing, however late it is.
//!
//! # Crash safety
//! Every change is one transaction, so there is nothing between two steps. A process that dies
//! leaves its claims as they are; their lives end with its lease, and whoever asks next sweeps them.
//!
//! # What a lease proves
//! A life that is there proves that its process was alive within its ttl, by etcd's clock. One that
//! has run out lets others pass; the holder has to know **before** that, which [`Store::lapses`]
//! tells whoever renews. A machine that was suspended finds out with its first renewal: it succeeds
//! only if nobody has taken the claim out of the list, and then the hold was never interrupted.
//!
//! What it leaves to others: which etcd (`Address`), when to renew, and what to do about a loss.

mod address;
mod keys;
mod link;
mod list;
mod session;
mod value;
mod watch;

pub use address::{Address, AddressError, Credentials, CredentialsError};

use super::file::Sleeper;
use super::{
    Advanced, Cleaned, Content, Entered, ForcedRelease, NewPlace, Reading, RenewedOwned, Store,
    StoreError, Wake,
};
use crate::clock::{Clock, SystemClock, instant};
use etcd_client::{
    Client, Compare, CompareOp, GetOptions, KeyValue, PutOptions, Txn, TxnOp, TxnOpResponse,
};
use keys::{Keys, end_of};
use link::{Fault, Link, Pause};
use list::{Guard, Light, List, number};
use session::{Session, Sessions};
use std::collections::BTreeMap;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::time::{Duration, Instant};
use tenure_core::{
    Advance, Claim, Entering, Entry, Event, Evidence, Force, Forced, History, Host, Kind, Left,
    LockName, Mode, Now, Ownership, Patience, Policy, Predecessor, Process, Queueing, Released,
    Renewal, Request, StaleUnforced, Standing, WaitingFor,
};

/// How long a call tries before it says that etcd cannot be reached. An election takes one to two
/// seconds, and a request that a dying member swallows two more.
pub const PATIENCE: Duration = Duration::from_secs(6);

/// How many keys are read at once: what a claim takes is below a kilobyte, and etcd's clients refuse
/// answers of four megabytes.
const PAGE: i64 = 2_000;

/// How often a claim is looked at whose process on this machine may end without etcd knowing.
const PROCESS_NAP: Duration = Duration::from_millis(500);

/// How long a sleep behind a record lasts at most.
const RECORD_NAP_MAX: Duration = Duration::from_secs(10);

/// How often a call that was overtaken begins anew without a pause.
const OVERTAKEN_AT_ONCE: u32 = 3;

/// How long the drop of a seat waits for etcd to hear of it. It goes on without anybody waiting.
const DROP_MAX: Duration = Duration::from_millis(2_500);

/// The longest pause between two tries of what nobody waits for.
const LATER_PAUSE_MAX: Duration = Duration::from_secs(10);

/// By how much such a pause is longer than the one before.
const LATER_PAUSE_STEP: Duration = Duration::from_millis(100);

/// How many dead claims one change removes beside what else it does: etcd takes 128 operations in a
/// transaction, and each removal is two.
const SWEEP_MAX: usize = 20;

/// What a claim stands behind that has yet to look. No claim has this ticket, so a sleep behind it
/// ends at once.
const NOBODY: Predecessor = Predecessor::Beacon { ticket: 0 };

/// Locks kept in etcd. A clone is the same caller.
#[derive(Clone)]
pub struct EtcdStore {
    shared: Arc<Shared>,
}

struct Shared {
    link: Link,
    sessions: Sessions,
    keys: Keys,
    policy: Policy,
    here: Host,
    clock: SystemClock,
    sleeper: Box<dyn Sleeper>,
    patience: Duration,
    /// How many claims were made.
    made: AtomicU64,
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.sessions.give_back(&self.link);
    }
}

/// A claim's place. Dropping it is dying.
pub struct Seat {
    shared: Arc<Shared>,
    name: LockName,
    ticket: u64,
    id: String,
    life: String,
    ttl_ms: u64,
    kind: Kind,
    mode: Mode,
    /// Its caller was away from this place.
    was_away: bool,
    state: Mutex<SeatState>,
    /// Its life is not to be ended with it: it has ended, or belongs to a hold that goes on.
    settled: AtomicBool,
}

/// What a seat has seen last.
#[derive(Default)]
struct SeatState {
    /// The revision at which the list was read.
    revision: i64,
    /// The revision of the last write of our own to the claim.
    own: i64,
    /// The keys of the claims and of their lives, by ticket.
    keys: BTreeMap<u64, (String, String)>,
    /// The hold, and the header, as of the grant.
    granted: Option<(Claim, History, i64)>,
    /// What its life hangs on.
    session: Option<Arc<Session>>,
}

impl Seat {
    /// The ticket of the claim.
    pub fn ticket(&self) -> u64 {
        self.ticket
    }

    /// The lock.
    pub fn name(&self) -> &LockName {
        &self.name
    }

    fn state(&self) -> MutexGuard<'_, SeatState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn remember(&self, list: &List, keys: &Keys) {
        let mut state = self.state();
        state.revision = list.revision;
        state.keys = keys_of(list, keys, &self.name);
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

impl std::fmt::Debug for EtcdStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EtcdStore")
            .field("place", &self.shared.link.place())
            .finish_non_exhaustive()
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        if self.settled.load(Ordering::SeqCst) {
            return;
        }
        // The life's key is this seat's own, so no condition is needed: nobody else's life ends.
        let key = self.shared.keys.life(&self.name, &self.life);
        let txn = Txn::new().and_then([TxnOp::delete(key, None)]);
        if let Some(done) = self.shared.later(txn) {
            let _ = done.recv_timeout(DROP_MAX);
        }
    }
}

impl Shared {
    /// Has something written that nobody waits for, however long it takes to reach etcd. It may be
    /// carried out any number of times. What comes back ends when it is done.
    fn later(&self, txn: Txn) -> Option<mpsc::Receiver<()>> {
        let endpoints = Arc::clone(self.link.endpoints());
        let (sender, receiver) = mpsc::channel();
        let spawned = self.link.spawn(async move {
            let mut pause = Pause::default();
            let mut more = Duration::ZERO;
            loop {
                let txn = txn.clone();
                let answer =
                    endpoints.once(|mut client: Client| async move { client.txn(txn).await });
                match answer.await {
                    Err(Fault::Unsure(_)) => {}
                    // Done, or a lease is gone, and with it what was to be forbidden under it.
                    Ok(_) | Err(Fault::LeaseGone | Fault::Refused(_)) => break,
                }
                tokio::time::sleep(pause.next() + more).await;
                more = (more + LATER_PAUSE_STEP).min(LATER_PAUSE_MAX);
            }
            drop(sender);
        });
        spawned.map(|_| receiver)
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

/// What is read of a lock.
#[derive(Debug, Clone)]
enum Scope {
    /// Everything.
    All,
    /// The claims up to this one, and the header.
    Upto(u64),
    /// This claim, and the header.
    One {
        /// Its id.
        id: String,
        /// The id of its life.
        life: String,
    },
}

/// A change in the making.
struct Draft {
    entry: Entry,
    /// What the decision rests on.
    guard: Guard,
    lights: Vec<Light>,
}

/// What became of a change.
struct Made<T> {
    answer: T,
    /// The list that it was made to.
    before: List,
    /// The list afterwards.
    after: Entry,
    /// The revision of the write; `None` if nothing had to be written.
    revision: Option<i64>,
}

/// A claim in the making.
#[derive(Clone)]
struct Making {
    /// Nobody else ever uses it, and it is never used again.
    id: String,
    lease: i64,
    events: Vec<Event>,
}

impl Making {
    /// Says that it is not to be made any more. The lease that it would hang on is what is needed
    /// for as long as it could be made.
    fn spent(&self, keys: &Keys) -> TxnOp {
        let lease = PutOptions::new().with_lease(self.lease);
        TxnOp::put(keys.spent(&self.id), Vec::new(), Some(lease))
    }
}

/// How a first try ended. A list of several pages is read by itself.
enum FirstTry {
    Granted(i64, List),
    Queued(Option<List>),
    Taken(Option<List>),
    Unsure(String),
    LeaseGone,
}

/// How a commit ended.
enum Commit {
    Done(i64),
    /// Something of what it rests on has changed.
    Overtaken,
    Unsure(String),
    LeaseGone,
}

impl EtcdStore {
    /// The locks below an address, by the native row. No server is asked yet.
    ///
    /// # Errors
    /// - [`StoreError::Unreachable`] if an encrypted connection has no authority to trust, or the
    ///   system gives no thread.
    pub fn new(
        address: &Address,
        credentials: &Credentials,
        here: Host,
        sleeper: Box<dyn Sleeper>,
    ) -> Result<Self, StoreError> {
        Self::with_policy(Policy::NATIVE, address, credentials, here, sleeper)
    }

    /// The same, by another row.
    ///
    /// # Errors
    /// - As [`EtcdStore::new`].
    pub fn with_policy(
        policy: Policy,
        address: &Address,
        credentials: &Credentials,
        here: Host,
        sleeper: Box<dyn Sleeper>,
    ) -> Result<Self, StoreError> {
        Ok(Self {
            shared: Arc::new(Shared {
                link: Link::start(address, credentials)?,
                sessions: Sessions::default(),
                keys: Keys::new(address.prefix().to_owned()),
                policy,
                clock: SystemClock::new(here.boot_id.as_deref()),
                here,
                sleeper,
                patience: PATIENCE,
                made: AtomicU64::new(1),
            }),
        })
    }

    /// The same store, whose calls give up after this long. A call that was given up says so; it
    /// never says that a lock is free.
    #[must_use]
    pub fn patience(mut self, patience: Duration) -> Self {
        if let Some(shared) = Arc::get_mut(&mut self.shared) {
            shared.patience = patience;
        }
        self
    }

    /// A descriptor that can be read each time that somebody has touched the claim of a seat, or its
    /// life has ended. Read what is in it.
    ///
    /// # Errors
    /// - [`StoreError::Io`] if the system gives no more descriptors.
    pub fn news(&self, seat: &Seat) -> Result<OwnedFd, StoreError> {
        let keys = &self.shared.keys;
        let from = seat.state().own + 1;
        let watched = vec![
            watch::Watched::changes(keys.claim(&seat.name, &seat.id), from),
            watch::Watched::end(keys.life(&seat.name, &seat.life), from),
        ];
        watch::lasting(&self.shared.link, watched)
    }

    fn end(&self) -> Instant {
        instant() + self.shared.patience
    }

    fn unreachable(&self, doing: &'static str, why: String) -> StoreError {
        self.shared.link.fault(doing, &Fault::Unsure(why))
    }

    /// Reads a lock. A scope of one claim, or of those up to one, leaves out the others.
    fn load(&self, name: &LockName, scope: &Scope, end: Instant) -> Result<List, StoreError> {
        let keys = self.shared.keys.clone();
        let endpoints = Arc::clone(self.shared.link.endpoints());
        let (scope, name_owned) = (scope.clone(), name.clone());
        let read = async move {
            match scope {
                Scope::All => read_all(&endpoints, &keys, &name_owned, end).await,
                Scope::Upto(ticket) => read_upto(&endpoints, &keys, &name_owned, ticket, end).await,
                Scope::One { id, life } => {
                    let wanted = [
                        keys.header(&name_owned),
                        keys.claim(&name_owned, &id),
                        keys.life(&name_owned, &life),
                    ];
                    read_keys(&endpoints, &wanted, end)
                        .await
                        .map(|(revision, found)| List::of(&keys, &name_owned, revision, &found))
                }
            }
        };
        let mut list = self.shared.link.block("reading the lock", read)?;
        list.trust_leases(&self.shared.here, &self.shared.clock.now());
        Ok(list)
    }

    fn evidence<'a>(&'a self, list: &'a List) -> impl Fn(&Claim) -> Evidence + 'a {
        move |claim| list.evidence(&self.shared.here, claim)
    }

    /// Commits one transaction.
    fn commit(&self, txn: Txn) -> Result<Commit, StoreError> {
        let endpoints = Arc::clone(self.shared.link.endpoints());
        let committed = self.shared.link.block("writing the lock", async move {
            let answer = endpoints.once(|mut client: Client| async move { client.txn(txn).await });
            match answer.await {
                Ok(answer) if answer.succeeded() => {
                    let header = answer.header();
                    Ok(Commit::Done(
                        header.map_or(0, etcd_client::ResponseHeader::revision),
                    ))
                }
                Ok(_) => Ok(Commit::Overtaken),
                Err(Fault::Unsure(why)) => Ok(Commit::Unsure(why)),
                Err(Fault::LeaseGone) => Ok(Commit::LeaseGone),
                Err(refused) => Err(refused),
            }
        });
        committed
    }

    /// The session for claims of this ttl; its lease runs for the whole of it from now on.
    fn session(&self, ttl_ms: u64, end: Instant) -> Result<Arc<Session>, StoreError> {
        if let Some(session) = self.shared.sessions.present(ttl_ms)
            && session.lasts(ttl_ms)
        {
            return Ok(session);
        }
        let shared = Arc::clone(&self.shared);
        self.shared.link.block("taking a lease", async move {
            let endpoints = Arc::clone(shared.link.endpoints());
            shared.sessions.get(&endpoints, ttl_ms, end).await
        })
    }

    /// Renews the lease that a seat's life hangs on, if there is any left of it.
    fn renew_lease(&self, seat: &Seat, end: Instant) -> Result<(), StoreError> {
        let session = seat.state().session.clone();
        let Some(session) = session.filter(|session| !session.is_over()) else {
            return Ok(());
        };
        let endpoints = Arc::clone(self.shared.link.endpoints());
        self.shared.link.block("renewing the lease", async move {
            match session::renew(&endpoints, &session, end).await {
                // What that means for the claim, the list tells.
                Err(Fault::LeaseGone) => Ok(()),
                other => other,
            }
        })
    }

    /// A lease that nobody keeps alive but its owner's heartbeats.
    fn pulse(&self, ttl_ms: u64, end: Instant) -> Result<i64, StoreError> {
        let endpoints = Arc::clone(self.shared.link.endpoints());
        self.shared.link.block("taking a lease", async move {
            session::grant(&endpoints, ttl_ms, end).await
        })
    }

    /// A change to a lock: reads, lets `step` decide, commits what it changed, and begins anew if it
    /// was overtaken. `step` is told whether an earlier try of the same call may have been carried
    /// out.
    fn change<T>(
        &self,
        name: &LockName,
        scope: &Scope,
        mut step: impl FnMut(&mut Draft, &List, bool) -> Result<T, StoreError>,
    ) -> Result<Made<T>, StoreError> {
        let end = self.end();
        let mut pause = Pause::default();
        let mut unsure = false;
        let mut overtaken = 0;
        loop {
            let before = self.load(name, scope, end)?;
            if let Some((key, _, why)) = before.unreadable.first() {
                return Err(StoreError::Unreadable {
                    place: format!("{}{key}", self.shared.link.place()),
                    why: why.clone(),
                });
            }
            if self.sweep_many(name, &before)? {
                continue;
            }
            let mut draft = Draft {
                entry: before.entry.clone(),
                guard: Guard::None,
                lights: Vec::new(),
            };
            let answer = step(&mut draft, &before, unsure)?;
            self.light_pulses(&before, &mut draft, end)?;
            let keys = &self.shared.keys;
            let change = before
                .change(keys, name, &draft.entry, draft.guard, &draft.lights)
                .map_err(|error| self.unreachable("writing the lock", error.to_string()))?;
            let Some(change) = change else {
                return Ok(Made {
                    answer,
                    before,
                    after: draft.entry,
                    revision: None,
                });
            };
            let why = match self.commit(change.into_txn())? {
                Commit::Done(revision) => {
                    let mut after = draft.entry;
                    settle(&before, &mut after, revision);
                    return Ok(Made {
                        answer,
                        before,
                        after,
                        revision: Some(revision),
                    });
                }
                // Whoever was quicker is done; the next look sees what it did.
                Commit::Overtaken if overtaken < OVERTAKEN_AT_ONCE => {
                    overtaken += 1;
                    continue;
                }
                Commit::Overtaken => "it changes again and again".to_owned(),
                Commit::Unsure(why) => {
                    unsure = true;
                    why
                }
                Commit::LeaseGone => {
                    self.forget_sessions(&draft.lights);
                    "the lease has run out".to_owned()
                }
            };
            if !pause.fits(end) {
                return Err(self.unreachable("writing the lock", why));
            }
            std::thread::sleep(pause.next());
        }
    }

    /// Marks the sessions as over whose leases a transaction did not find.
    fn forget_sessions(&self, lights: &[Light]) {
        for light in lights {
            self.shared.sessions.forget(light.lease);
        }
    }

    /// A detached hold lives by a lease of its own, from the grant on and anew with each renewal.
    fn light_pulses(
        &self,
        before: &List,
        draft: &mut Draft,
        end: Instant,
    ) -> Result<(), StoreError> {
        for claim in draft.entry.granted() {
            let seen = before.entry.claim(claim.ticket);
            let renewed = seen.is_none_or(|seen| {
                seen.token.is_none() || seen.lease.renewals != claim.lease.renewals
            });
            let lit = draft
                .lights
                .iter()
                .position(|light| light.ticket == claim.ticket);
            if claim.kind != Kind::Detached || !renewed {
                continue;
            }
            let lease = self.pulse(claim.lease.ttl_ms, end)?;
            match (
                lit.and_then(|index| draft.lights.get_mut(index)),
                before.row(claim.ticket),
            ) {
                (Some(light), _) => light.lease = lease,
                (None, Some(row)) => draft.lights.push(Light {
                    ticket: claim.ticket,
                    id: None,
                    life: row.written.life.clone(),
                    lease,
                }),
                (None, None) => {}
            }
        }
        Ok(())
    }

    /// What a seat's own change has to light: its life, if it has run out meanwhile.
    fn relight(&self, seat: &Seat, list: &List, end: Instant) -> Result<Option<Light>, StoreError> {
        let Some(row) = list.row(seat.ticket) else {
            return Ok(None);
        };
        let waits = row.written.claim.token.is_none();
        if row.alive || row.written.life != seat.life || !(waits || seat.kind == Kind::Kernel) {
            return Ok(None);
        }
        let session = self.session(seat.ttl_ms, end)?;
        let lease = session.lease;
        seat.state().session = Some(session);
        Ok(Some(Light {
            ticket: seat.ticket,
            id: None,
            life: seat.life.clone(),
            lease,
        }))
    }

    /// The first try of a request that comes new: if nobody is there it is granted, and otherwise, if
    /// it `queues` whatever it finds, it is put at the end; in one transaction and without a look
    /// before.
    fn try_first(
        &self,
        name: &LockName,
        entry: &Entry,
        light: &Light,
        queues: bool,
    ) -> Result<FirstTry, StoreError> {
        let keys = self.shared.keys.clone();
        let failed =
            |error: serde_json::Error| self.unreachable("writing the lock", error.to_string());
        let nobody = List::default();
        let lights = std::slice::from_ref(light);
        let granted = nobody.change(&keys, name, entry, Guard::None, lights);
        let mut waiting = entry.clone();
        for claim in &mut waiting.claims {
            (claim.token, claim.since) = (None, None);
        }
        let waits = nobody.change(&keys, name, &waiting, Guard::None, lights);
        let (Some(granted), Some(waits)) = (granted.map_err(failed)?, waits.map_err(failed)?)
        else {
            return Ok(FirstTry::Taken(None));
        };
        let claims = keys.claims(name);
        let alone = Compare::create_revision(claims.clone(), CompareOp::Equal, 0);
        let mut hold = granted.operations;
        hold.push(TxnOp::get(keys.header(name), None));
        let mut queue = Vec::new();
        if queues {
            // Also somebody who comes second must not make what was given up meanwhile.
            let making = Txn::new().when(waits.compares).and_then(waits.operations);
            queue.push(TxnOp::txn(making));
        }
        let lock = keys.lock(name);
        let page = GetOptions::new().with_range(end_of(&lock)).with_limit(PAGE);
        queue.push(TxnOp::get(lock, Some(page)));
        let mut conditions = granted.compares;
        conditions.push(alone.with_range(end_of(&claims)));
        let txn = Txn::new().when(conditions).and_then(hold).or_else(queue);
        let endpoints = Arc::clone(self.shared.link.endpoints());
        let name = name.clone();
        let (here, clock) = (self.shared.here.clone(), self.shared.clock.clone());
        self.shared.link.block("writing the lock", async move {
            let answer = endpoints.once(|mut client: Client| async move { client.txn(txn).await });
            let answer = match answer.await {
                Ok(answer) => answer,
                Err(Fault::Unsure(why)) => return Ok(FirstTry::Unsure(why)),
                Err(Fault::LeaseGone) => return Ok(FirstTry::LeaseGone),
                Err(refused) => return Err(refused),
            };
            let header = answer.header();
            let revision = header.map_or(0, etcd_client::ResponseHeader::revision);
            let mut is_whole = true;
            let mut found = Vec::new();
            for response in answer.op_responses() {
                if let TxnOpResponse::Get(mut get) = response {
                    is_whole &= !get.more();
                    found.extend(get.take_kvs());
                }
            }
            let mut list = List::of(&keys, &name, revision, &found);
            list.trust_leases(&here, &clock.now());
            Ok(match (answer.succeeded(), queues) {
                (true, _) => FirstTry::Granted(revision, list),
                (false, true) => FirstTry::Queued(is_whole.then_some(list)),
                (false, false) => FirstTry::Taken(is_whole.then_some(list)),
            })
        })
    }

    /// Forbids a claim whose making has an unknown outcome, unless it is there already.
    fn spend(&self, name: &LockName, making: &Making) -> Result<Commit, StoreError> {
        let keys = &self.shared.keys;
        let claim = keys.claim(name, &making.id);
        let absent = Compare::create_revision(claim, CompareOp::Equal, 0);
        let txn = Txn::new().when([absent]).and_then([making.spent(keys)]);
        self.commit(txn)
    }

    /// Forbids it and removes it, without anybody waiting for that.
    fn spend_later(&self, name: &LockName, making: &Making) {
        let keys = &self.shared.keys;
        let txn = Txn::new().and_then([
            making.spent(keys),
            TxnOp::delete(keys.claim(name, &making.id), None),
            TxnOp::delete(keys.life(name, &making.id), None),
        ]);
        let _ = self.shared.later(txn);
    }

    /// Removes dead claims that wait, if there are more of them than one change can take with it.
    /// True if the list is to be read again.
    fn sweep_many(&self, name: &LockName, list: &List) -> Result<bool, StoreError> {
        if list.rows.len() <= SWEEP_MAX {
            return Ok(false);
        }
        let now = self.shared.clock.now();
        let mut entry = list.entry.clone();
        let dead = entry.sweep(&self.shared.policy, &now, self.evidence(list));
        let some = dead.get(SWEEP_MAX..).unwrap_or_default();
        let some = some.iter().take(2 * SWEEP_MAX).map(|claim| claim.ticket);
        let some: Vec<u64> = some.collect();
        if some.is_empty() {
            return Ok(false);
        }
        let change = list.removal(&self.shared.keys, name, &some);
        // Whatever became of it shows when the list is read again.
        self.commit(change.into_txn())?;
        Ok(true)
    }

    /// Removes what cannot be understood, if force may do that here. Answers with whether anything
    /// was.
    fn replace_unreadable(
        &self,
        name: &LockName,
        list: &List,
        force: Force,
    ) -> Result<Result<bool, tenure_core::Refusal>, StoreError> {
        if list.unreadable.is_empty() {
            return Ok(Ok(false));
        }
        // etcd does not say when a key was written, so it counts as written just now.
        if let Err(refusal) = Entry::replace_unreadable(&self.shared.policy, force, 0) {
            return Ok(Err(refusal));
        }
        let _ = name;
        let unreadable = list.unreadable.iter();
        let (compares, operations): (Vec<_>, Vec<_>) = unreadable
            .map(|(key, modified, _)| {
                let stands = Compare::mod_revision(key.clone(), CompareOp::Equal, *modified);
                (stands, TxnOp::delete(key.clone(), None))
            })
            .unzip();
        self.commit(Txn::new().when(compares).and_then(operations))?;
        Ok(Ok(true))
    }

    /// What to watch for whoever sleeps behind a claim, and how long to sleep at most.
    fn watched_claim(
        &self,
        state: &SeatState,
        claim: &Claim,
        now: &Now,
    ) -> (Option<[watch::Watched; 2]>, Duration) {
        let keys = state.keys.get(&claim.ticket).cloned();
        let watched = keys.map(|(claim, life)| {
            [
                watch::Watched::changes(claim, state.revision + 1),
                watch::Watched::end(life, state.revision + 1),
            ]
        });
        (watched, self.nap(claim, now))
    }

    /// How long a record can be relied on without a look at its process and its age.
    fn nap(&self, claim: &Claim, now: &Now) -> Duration {
        let boot = claim.holder.host.boot_id.as_deref();
        let is_here = boot.is_some() && boot == self.shared.here.boot_id.as_deref();
        let rest = Duration::from_millis(claim.lease.remaining_ms(boot, now).saturating_add(1));
        let has_process = claim.holder.process.is_some() || claim.holder.command.is_some();
        match is_here && has_process {
            true => PROCESS_NAP.min(rest.max(Duration::from_millis(10))),
            false => rest.clamp(Duration::from_millis(10), RECORD_NAP_MAX),
        }
    }

    fn sleep_on(
        &self,
        watched: Vec<watch::Watched>,
        nap: Duration,
        until: Option<Instant>,
    ) -> Result<Wake, StoreError> {
        let news = watch::News::of(&self.shared.link, watched)?;
        let slept = self
            .shared
            .sleeper
            .poll(&[news.descriptor().as_fd()], nap, until);
        slept.map_err(|source| StoreError::Io {
            place: self.shared.link.place().to_owned(),
            doing: "waiting",
            source,
        })
    }
}

/// Puts the numbers that etcd has given out into a list that was written at `revision`: in place of
/// those that the core drew for want of them.
fn settle(before: &List, after: &mut Entry, revision: i64) {
    after.last = number(revision);
    for claim in &mut after.claims {
        let seen = before.entry.claim(claim.ticket);
        if seen.is_none() {
            claim.ticket = number(revision);
        }
        if claim.token.is_some() && seen.is_none_or(|seen| seen.token.is_none()) {
            claim.token = Some(number(revision));
        }
    }
}

/// The same for what is told of the change.
fn settle_events(events: &mut [Event], revision: i64) {
    for event in events {
        if let Event::Acquired { token } = event {
            *token = number(revision);
        }
    }
}

async fn read_all(
    endpoints: &link::Endpoints,
    keys: &Keys,
    name: &LockName,
    end: Instant,
) -> Result<List, Fault> {
    let lock = keys.lock(name);
    let (revision, found) = read_range(endpoints, &lock, GetOptions::new(), end).await?;
    Ok(List::of(keys, name, revision, &found))
}

/// Reads a range page by page, all of it as of one revision.
async fn read_range(
    endpoints: &link::Endpoints,
    prefix: &str,
    options: GetOptions,
    end: Instant,
) -> Result<(i64, Vec<KeyValue>), Fault> {
    let mut found: Vec<KeyValue> = Vec::new();
    let mut revision = 0;
    loop {
        // The next key after one is the same with a zero byte behind it.
        let begin = match found.last() {
            Some(last) => [last.key(), &[0]].concat(),
            None => prefix.as_bytes().to_vec(),
        };
        let mut page = options.clone().with_range(end_of(prefix)).with_limit(PAGE);
        if revision != 0 {
            page = page.with_revision(revision);
        }
        let mut answer = endpoints
            .until(end, |mut client: Client| {
                let (begin, page) = (begin.clone(), page.clone());
                async move { client.get(begin, Some(page)).await }
            })
            .await?;
        if revision == 0 {
            let header = answer.header();
            revision = header.map_or(0, etcd_client::ResponseHeader::revision);
        }
        let more = answer.more();
        found.extend(answer.take_kvs());
        if !more {
            return Ok((revision, found));
        }
    }
}

/// Reads some keys at once.
async fn read_keys(
    endpoints: &link::Endpoints,
    keys: &[String],
    end: Instant,
) -> Result<(i64, Vec<KeyValue>), Fault> {
    let gets: Vec<TxnOp> = keys
        .iter()
        .map(|key| TxnOp::get(key.clone(), None))
        .collect();
    let answer = endpoints
        .until(end, |mut client: Client| {
            let txn = Txn::new().and_then(gets.clone());
            async move { client.txn(txn).await }
        })
        .await?;
    let header = answer.header();
    let revision = header.map_or(0, etcd_client::ResponseHeader::revision);
    let mut found = Vec::new();
    for response in answer.op_responses() {
        if let TxnOpResponse::Get(mut get) = response {
            found.extend(get.take_kvs());
        }
    }
    Ok((revision, found))
}

/// How many lives are asked for one by one.
const LIVES_MAX: usize = 16;

/// Reads the claims up to a ticket, and then their lives.
///
/// The lives are read a moment later. One that is lit again in between writes its claim too, so a
/// change that takes it for dead is overtaken; one that has run out in between is what it is.
async fn read_upto(
    endpoints: &link::Endpoints,
    keys: &Keys,
    name: &LockName,
    ticket: u64,
    end: Instant,
) -> Result<List, Fault> {
    let claims = keys.claims(name);
    let upto = i64::try_from(ticket).unwrap_or(i64::MAX);
    let options = GetOptions::new().with_max_create_revision(upto);
    let (revision, mut found) = read_range(endpoints, &claims, options, end).await?;
    let seen = List::of(keys, name, revision, &found);
    let lives = seen.rows.iter();
    let mut wanted: Vec<String> = lives
        .map(|row| keys.life(name, &row.written.life))
        .collect();
    if wanted.len() > LIVES_MAX {
        let lives = keys.lives(name);
        let (_, more) = read_range(endpoints, &lives, GetOptions::new(), end).await?;
        found.extend(more);
        wanted.clear();
    }
    wanted.push(keys.header(name));
    let (_, more) = read_keys(endpoints, &wanted, end).await?;
    found.extend(more);
    Ok(List::of(keys, name, revision, &found))
}

impl EtcdStore {
    /// An id for a claim that nobody ever used.
    fn new_id(&self, session: &Session) -> String {
        let number = self.shared.made.fetch_add(1, Ordering::Relaxed);
        format!("{:x}-{number:x}", session.lease)
    }

    /// Enters a claim. What is left in `unsure` may have been made, or be made later.
    fn enter_claim(
        &self,
        name: &LockName,
        request: &Request,
        now: &Now,
        unsure: &mut Option<Making>,
    ) -> Result<Entered<Seat>, StoreError> {
        let end = self.end();
        let mut session = self.session(request.ttl_ms, end)?;
        let mut id = self.new_id(&session);
        let (kind, mode) = (request.kind, request.terms.mode);
        let mut pulse = None;
        // What is known of the list without a look: perhaps there is nobody.
        let mut known = (request.terms.kept.is_none() && kind == Kind::Kernel).then(List::default);
        let mut guess = known.is_some();
        // What the core would answer a request that finds others, in every case: it waits.
        let is_plain = request.terms.queueing == Queueing::Fifo
            && !request.terms.cancel_in_progress
            && request.force == Force::No;
        let queues = is_plain
            && request.patience == Patience::Queue
            && self.shared.policy.stale_unforced == StaleUnforced::TakeOver;
        let mut pause = Pause::default();
        loop {
            let list = match known.take() {
                Some(list) => list,
                None => self.load(name, &Scope::All, end)?,
            };
            match self.replace_unreadable(name, &list, request.force)? {
                Ok(false) => {}
                Ok(true) => continue,
                Err(refusal) => {
                    return Ok(Entered {
                        entering: Entering::Refused(refusal),
                        entry: Entry::default(),
                        unread: 0,
                        events: Vec::new(),
                        seat: None,
                    });
                }
            }
            if let Some(making) = unsure.clone() {
                let made = (list.rows.iter()).find(|row| row.written.life == making.id);
                if let Some(row) = made {
                    let entered =
                        self.found(name, request, &session, &list, row, making.events, now);
                    return self.looked(entered, now);
                }
                let why = match self.spend(name, &making)? {
                    Commit::Done(_) => {
                        *unsure = None;
                        id = self.new_id(&session);
                        continue;
                    }
                    Commit::LeaseGone => {
                        self.shared.sessions.forget(making.lease);
                        *unsure = None;
                        pulse = None;
                        session = self.session(request.ttl_ms, end)?;
                        id = self.new_id(&session);
                        continue;
                    }
                    // It was made between the look and this.
                    Commit::Overtaken => "it changes again and again".to_owned(),
                    Commit::Unsure(why) => why,
                };
                if !pause.fits(end) {
                    return Err(self.unreachable("writing the lock", why));
                }
                std::thread::sleep(pause.next());
                continue;
            }
            if self.sweep_many(name, &list)? {
                continue;
            }
            let mut entry = list.entry.clone();
            let mut events = Vec::new();
            let evidence = self.evidence(&list);
            let mut entering = entry.enter(
                &self.shared.policy,
                request.clone(),
                now,
                evidence,
                &mut events,
            );
            let made = NewPlace::of(&entering, kind, mode);
            let mut lights = Vec::new();
            let mut was_away = false;
            if let Some(made) = &made {
                let own = list.row(made.ticket);
                was_away = own.is_some();
                let detached = kind == Kind::Detached && !made.beacon;
                let lease = if detached {
                    match pulse {
                        Some(lease) => lease,
                        None => *pulse.insert(self.pulse(request.ttl_ms, end)?),
                    }
                } else {
                    session.lease
                };
                lights.push(Light {
                    ticket: made.ticket,
                    id: own.is_none().then(|| id.clone()),
                    life: id.clone(),
                    lease,
                });
            }
            let only_queues = matches!(entering, Entering::Queued { .. })
                && events.is_empty()
                && !was_away
                && is_plain;
            let committed = if let (true, Some(light)) = (guess, lights.first()) {
                guess = false;
                match self.try_first(name, &entry, light, queues)? {
                    FirstTry::Granted(revision, seen) => Commit::Done(revision).with(Some(seen)),
                    FirstTry::Queued(seen) => {
                        let seen = match seen {
                            Some(seen) => seen,
                            None => self.load(name, &Scope::All, end)?,
                        };
                        match seen.rows.iter().find(|row| row.written.life == id) {
                            Some(row) if seen.unreadable.is_empty() => {
                                let entered = self.found(
                                    name,
                                    request,
                                    &session,
                                    &seen,
                                    row,
                                    Vec::new(),
                                    now,
                                );
                                return self.looked(entered, now);
                            }
                            // Somebody has taken it out again, or there is something in the list
                            // that may block it for ever: asked as everybody is who does not guess.
                            Some(row) => {
                                let entered = self.found(
                                    name,
                                    request,
                                    &session,
                                    &seen,
                                    row,
                                    Vec::new(),
                                    now,
                                );
                                if let Some(seat) = entered.seat {
                                    self.leave(&seat, now)?;
                                }
                                known = Some(seen);
                            }
                            None => {}
                        }
                        continue;
                    }
                    FirstTry::Taken(seen) => {
                        known = seen;
                        continue;
                    }
                    FirstTry::Unsure(why) => Commit::Unsure(why).with(None),
                    FirstTry::LeaseGone => Commit::LeaseGone.with(None),
                }
            } else {
                let guard = if only_queues { Guard::None } else { Guard::All };
                let change = list
                    .change(&self.shared.keys, name, &entry, guard, &lights)
                    .map_err(|error| self.unreachable("writing the lock", error.to_string()))?;
                match change {
                    None => {
                        return Ok(Entered {
                            entering,
                            entry,
                            unread: 0,
                            events,
                            seat: None,
                        });
                    }
                    Some(change) => self.commit(change.into_txn())?.with(None),
                }
            };
            let why = match committed {
                (Commit::Done(revision), seen) => {
                    settle(&list, &mut entry, revision);
                    settle_events(&mut events, revision);
                    let own = made.map(|made| match list.row(made.ticket) {
                        Some(row) => (made.ticket, row.id.clone()),
                        None => (number(revision), id.clone()),
                    });
                    match &mut entering {
                        Entering::Granted { ticket, token } => {
                            if let Some((own, _)) = &own {
                                *ticket = *own;
                            }
                            *token = number(revision);
                        }
                        Entering::Queued { ticket, .. } => {
                            if let Some((own, _)) = &own {
                                *ticket = *own;
                            }
                        }
                        Entering::Yours { .. } | Entering::Refused(_) | Entering::NotKept => {}
                    }
                    let seat = own.map(|(ticket, own_id)| {
                        let seat =
                            self.seat(name, ticket, own_id.clone(), id.clone(), request, was_away);
                        let list = seen.as_ref().unwrap_or(&list);
                        seat.remember(list, &self.shared.keys);
                        let keys = &self.shared.keys;
                        let own = (keys.claim(name, &own_id), keys.life(name, &id));
                        seat.state().keys.insert(ticket, own);
                        {
                            let mut state = seat.state();
                            state.own = revision;
                            state.session = Some(Arc::clone(&session));
                        }
                        if let (Entering::Granted { .. }, Some(claim)) =
                            (&entering, entry.claim(ticket))
                        {
                            self.note_grant(&seat, claim, list);
                        }
                        seat
                    });
                    return Ok(Entered {
                        entering,
                        entry,
                        unread: 0,
                        events,
                        seat,
                    });
                }
                (Commit::Overtaken, _) => "it changes again and again".to_owned(),
                (Commit::Unsure(why), _) => {
                    let lease = lights.first().map_or(session.lease, |light| light.lease);
                    *unsure = made.is_some().then(|| Making {
                        id: id.clone(),
                        lease,
                        events,
                    });
                    why
                }
                (Commit::LeaseGone, _) => {
                    self.shared.sessions.forget(session.lease);
                    pulse = None;
                    session = self.session(request.ttl_ms, end)?;
                    id = self.new_id(&session);
                    "the lease has run out".to_owned()
                }
            };
            if !pause.fits(end) {
                return Err(self.unreachable("writing the lock", why));
            }
            std::thread::sleep(pause.next());
        }
    }

    /// What a new seat is told of the list, and its life.
    fn seat(
        &self,
        name: &LockName,
        ticket: u64,
        id: String,
        life: String,
        request: &Request,
        was_away: bool,
    ) -> Seat {
        Seat {
            shared: Arc::clone(&self.shared),
            name: name.clone(),
            ticket,
            id,
            life,
            ttl_ms: request.ttl_ms,
            kind: request.kind,
            mode: request.terms.mode,
            was_away,
            state: Mutex::default(),
            settled: AtomicBool::new(false),
        }
    }

    /// Notes that a seat holds now.
    fn note_grant(&self, seat: &Seat, claim: &Claim, list: &List) {
        if seat.kind == Kind::Detached {
            // The hold goes on without this process.
            seat.settled.store(true, Ordering::SeqCst);
        }
        let mut state = seat.state();
        state.granted = Some((claim.clone(), list.entry.history, list.header_modified));
    }
}

impl Store for EtcdStore {
    type Seat = Seat;

    fn policy(&self) -> &Policy {
        &self.shared.policy
    }

    fn place(&self, name: &LockName) -> String {
        format!("{}/locks/{name}", self.shared.link.place())
    }

    fn lapses(&self, ttl: Duration) -> Option<Duration> {
        Some(ttl)
    }

    fn read(&self, name: &LockName) -> Result<Reading, StoreError> {
        let list = self.load(name, &Scope::All, self.end())?;
        let place = self.place(name);
        if let Some((_, _, why)) = list.unreadable.first() {
            return Ok(Reading {
                place,
                content: Content::Unreadable {
                    why: why.clone(),
                    modified_ms: None,
                },
            });
        }
        let evidence = list.entry.claims.iter().map(self.evidence(&list)).collect();
        Ok(Reading {
            place,
            content: Content::Whole {
                entry: list.entry,
                evidence,
            },
        })
    }

    fn enter(
        &self,
        name: &LockName,
        request: Request,
        now: &Now,
    ) -> Result<Entered<Seat>, StoreError> {
        let mut unsure = None;
        let entered = self.enter_claim(name, &request, now, &mut unsure);
        if let (Err(_), Some(making)) = (&entered, &unsure) {
            self.spend_later(name, making);
        }
        entered
    }

    fn sleep(
        &self,
        seat: &Seat,
        behind: &Predecessor,
        now: &Now,
        until: Option<Instant>,
    ) -> Result<Wake, StoreError> {
        let (watched, nap) = {
            let state = seat.state();
            let from = state.revision + 1;
            let own = self.shared.keys.claim(&seat.name, &seat.id);
            let mut watched = vec![watch::Watched::changes(own, state.own + 1)];
            let mut nap = RECORD_NAP_MAX;
            match behind {
                Predecessor::Beacon { ticket } => {
                    let Some((claim, life)) = state.keys.get(ticket).cloned() else {
                        return Ok(Wake::Ready);
                    };
                    watched.push(watch::Watched::end(claim, from));
                    watched.push(watch::Watched::end(life, from));
                }
                Predecessor::Turn { ticket } => {
                    let Some((claim, life)) = state.keys.get(ticket).cloned() else {
                        return Ok(Wake::Ready);
                    };
                    watched.push(watch::Watched::changes(claim, from));
                    watched.push(watch::Watched::end(life, from));
                }
                Predecessor::Record(claim) => {
                    let (keys, longest) = self.watched_claim(&state, claim, now);
                    let Some(keys) = keys else {
                        return Ok(Wake::Ready);
                    };
                    watched.extend(keys);
                    nap = longest;
                }
                Predecessor::AnyOf(claims) => {
                    for claim in claims {
                        let (keys, longest) = self.watched_claim(&state, claim, now);
                        let Some(keys) = keys else {
                            return Ok(Wake::Ready);
                        };
                        watched.extend(keys);
                        nap = nap.min(longest);
                    }
                }
            }
            (watched, nap)
        };
        self.sleep_on(watched, nap, until)
    }

    fn advance(&self, seat: &Seat, now: &Now) -> Result<Advanced, StoreError> {
        let end = self.end();
        // It may be granted, and then it has a whole ttl from here on.
        let session = seat.state().session.clone();
        if session.is_some_and(|session| !session.lasts(seat.ttl_ms)) {
            self.renew_lease(seat, end)?;
        }
        // Behind a claim that was never away, nobody holds whom it would have to mind: whoever is
        // granted behind it has looked at it.
        let alone = seat.mode == Mode::Exclusive && !seat.was_away;
        let (scope, guard) = if alone && seat.kind == Kind::Kernel {
            (Scope::Upto(seat.ticket), Guard::Upto(seat.ticket))
        } else {
            (Scope::All, Guard::All)
        };
        let mut events = Vec::new();
        let made = self.change(&seat.name, &scope, |draft, list, _| {
            events.clear();
            let light = self.relight(seat, list, end)?;
            let relit = light.is_some();
            draft.lights.extend(light);
            draft.guard = guard;
            Ok(draft.entry.advance(
                &self.shared.policy,
                seat.ticket,
                now,
                |claim| {
                    let mut seen = list.evidence(&self.shared.here, claim);
                    if relit && claim.ticket == seat.ticket {
                        seen.beacon = tenure_core::Beacon::Lit;
                    }
                    seen
                },
                &mut events,
            ))
        })?;
        let mut advance = made.answer;
        if let Some(revision) = made.revision {
            settle_events(&mut events, revision);
        }
        seat.remember(&made.before, &self.shared.keys);
        if let Advance::Granted { token } = &mut advance
            && let Some(claim) = made.after.claim(seat.ticket)
        {
            *token = claim.token.unwrap_or(*token);
            self.note_grant(seat, claim, &made.before);
        }
        if let Some(revision) = made.revision {
            seat.state().own = revision;
        }
        Ok(Advanced {
            advance,
            entry: made.after,
            events,
        })
    }

    fn name_command(&self, seat: &Seat, command: Process) -> Result<bool, StoreError> {
        let made = self.change(&seat.name, &seat.own(), |draft, _, _| {
            Ok(draft.entry.name_command(seat.ticket, command))
        })?;
        if let Some(revision) = made.revision {
            let mut state = seat.state();
            state.own = state.own.max(revision);
        }
        Ok(made.answer)
    }

    fn renew(&self, seat: &Seat, now: &Now) -> Result<Renewal, StoreError> {
        let end = self.end();
        // The lease first: a claim that is written while its lease runs out is no sign of life.
        if seat.kind == Kind::Kernel {
            self.renew_lease(seat, end)?;
        }
        let made = self.change(&seat.name, &seat.own(), |draft, list, _| {
            let renewal = draft.entry.renew(seat.ticket, now);
            if let Renewal::Renewed { .. } = renewal {
                draft.lights.extend(self.relight(seat, list, end)?);
            }
            Ok(renewal)
        })?;
        if let Some(revision) = made.revision {
            let mut state = seat.state();
            state.own = state.own.max(revision);
        }
        Ok(made.answer)
    }

    fn verify(&self, seat: &Seat) -> Result<Renewal, StoreError> {
        let list = self.load(&seat.name, &seat.own(), self.end())?;
        Ok(list.entry.verify(seat.ticket))
    }

    fn leave(&self, seat: &Seat, now: &Now) -> Result<Left, StoreError> {
        let granted = seat.state().granted.clone();
        // What a first try would have answered, if its own answer did not come.
        let mut earlier = None;
        if let Some((claim, history, header)) = granted {
            match self.leave_as_granted(seat, &claim, history, header, now)? {
                (left, Commit::Done(_)) => return Ok(left),
                (left, Commit::Unsure(_)) => earlier = Some(left),
                (_, Commit::Overtaken | Commit::LeaseGone) => {}
            }
        }
        let mut tried = earlier.is_some();
        let made = self.change(&seat.name, &seat.own(), |draft, _, unsure| {
            tried |= unsure;
            let left = draft.entry.leave(seat.ticket, now);
            Ok(match (left, &earlier) {
                // Nobody else removes a claim that is alive, so it was an earlier try.
                (Left::Absent, Some(earlier)) if tried => earlier.clone(),
                (left, _) => {
                    earlier = Some(left.clone());
                    left
                }
            })
        })?;
        seat.settled.store(true, Ordering::SeqCst);
        Ok(made.answer)
    }

    fn park(
        &self,
        seat: &Seat,
        owner: Option<Process>,
        grace_ms: u64,
        now: &Now,
    ) -> Result<bool, StoreError> {
        let made = self.change(&seat.name, &seat.own(), |draft, _, _| {
            Ok(draft.entry.park(seat.ticket, owner, grace_ms, now))
        })?;
        if made.answer {
            seat.settled.store(true, Ordering::SeqCst);
        }
        Ok(made.answer)
    }

    fn cancel(&self, name: &LockName, by: &str, now: &Now) -> Result<Vec<Claim>, StoreError> {
        let made = self.change(name, &Scope::All, |draft, list, _| {
            let evidence = self.evidence(list);
            Ok(draft.entry.cancel(&self.shared.policy, by, now, evidence))
        })?;
        Ok(made.answer)
    }

    fn note_waiting(
        &self,
        name: &LockName,
        token: u64,
        waiting_for: Option<&WaitingFor>,
    ) -> Result<bool, StoreError> {
        let made = self.change(name, &Scope::All, |draft, _, _| {
            Ok(draft.entry.note_waiting(token, waiting_for))
        })?;
        Ok(made.answer)
    }

    fn renew_owned(
        &self,
        name: &LockName,
        owns: &dyn Fn(&Claim) -> Ownership,
        now: &Now,
    ) -> Result<RenewedOwned, StoreError> {
        let made = self.change(name, &Scope::All, |draft, _, _| {
            Ok(super::renew_owned(&mut draft.entry, owns, now).0)
        })?;
        Ok(made.answer)
    }

    fn release_owned(
        &self,
        name: &LockName,
        owns: &dyn Fn(&Claim) -> Ownership,
        now: &Now,
    ) -> Result<Released, StoreError> {
        let mut earlier: Option<(u64, Released)> = None;
        let made = self.change(name, &Scope::All, |draft, list, unsure| {
            if unsure
                && let Some((ticket, released)) = &earlier
                && list.row(*ticket).is_none()
            {
                return Ok(released.clone());
            }
            let (released, _) =
                super::release_owned(&mut draft.entry, &self.shared.policy, owns, now);
            if let Released::Done { claim, .. } = &released {
                earlier = Some((claim.ticket, released.clone()));
            }
            Ok(released)
        })?;
        Ok(made.answer)
    }

    fn force_release(
        &self,
        name: &LockName,
        force: Force,
        now: &Now,
    ) -> Result<ForcedRelease, StoreError> {
        let list = self.load(name, &Scope::All, self.end())?;
        let forced = match self.replace_unreadable(name, &list, force)? {
            Ok(true) => Forced::Done {
                claim: None,
                standing: Standing::Unreadable,
                held_ms: 0,
            },
            Err(refusal) => Forced::Refused(refusal),
            Ok(false) => {
                let mut earlier: Option<(u64, Forced)> = None;
                let made = self.change(name, &Scope::All, |draft, list, unsure| {
                    if unsure
                        && let Some((ticket, forced)) = &earlier
                        && list.row(*ticket).is_none()
                    {
                        return Ok(forced.clone());
                    }
                    let evidence = self.evidence(list);
                    let forced =
                        (draft.entry).force_release(&self.shared.policy, force, now, evidence);
                    if let Forced::Done {
                        claim: Some(claim), ..
                    } = &forced
                    {
                        earlier = Some((claim.ticket, forced.clone()));
                    }
                    Ok(forced)
                })?;
                made.answer
            }
        };
        Ok(ForcedRelease {
            released: forced,
            record: Vec::new(),
        })
    }

    fn watch(
        &self,
        name: &LockName,
        seen: &Entry,
        now: &Now,
        until: Option<Instant>,
    ) -> Result<Wake, StoreError> {
        let Some(front) = seen.front() else {
            return Ok(Wake::Ready);
        };
        let keys = &self.shared.keys;
        let from = i64::try_from(seen.last).unwrap_or(0) + 1;
        let range = |prefix: String, only_end| watch::Watched {
            end: Some(end_of(&prefix)),
            key: prefix,
            only_end,
            from,
        };
        let watched = vec![
            range(keys.claims(name), false),
            range(keys.lives(name), true),
        ];
        self.sleep_on(watched, self.nap(front, now), until)
    }

    fn names(&self, each: &mut dyn FnMut(LockName)) -> Result<(), StoreError> {
        let keys = self.shared.keys.clone();
        let endpoints = Arc::clone(self.shared.link.endpoints());
        let end = self.end();
        let names = self.shared.link.block("listing the locks", async move {
            let options = GetOptions::new().with_keys_only();
            let (_, found) = read_range(&endpoints, &keys.locks(), options, end).await?;
            let mut names: Vec<LockName> = found
                .iter()
                .filter_map(|pair| keys.name_of(pair.key()))
                .collect();
            // Keys come in their order, so those of one lock stand beside each other.
            names.dedup();
            Ok(names)
        })?;
        names.into_iter().for_each(each);
        Ok(())
    }

    fn clean(&self, name: &LockName, now: &Now, dry_run: bool) -> Result<Cleaned, StoreError> {
        let end = self.end();
        let mut pause = Pause::default();
        let mut earlier: Option<Cleaned> = None;
        let mut done = Vec::new();
        loop {
            let list = self.load(name, &Scope::All, end)?;
            if let Some((key, _, why)) = list.unreadable.first() {
                return Err(StoreError::Unreadable {
                    place: format!("{}{key}", self.shared.link.place()),
                    why: why.clone(),
                });
            }
            let exists = list.header_modified != 0 || !list.rows.is_empty();
            // It did all or nothing, and what it was to remove is gone.
            if let Some(earlier) = earlier.take()
                && earlier
                    .swept
                    .iter()
                    .all(|claim| list.row(claim.ticket).is_none())
                && !(earlier.removed && exists)
            {
                done.extend(earlier.swept);
                if earlier.removed {
                    return Ok(cleaned(done, true));
                }
            }
            let mut entry = list.entry.clone();
            let mut swept = entry.sweep(&self.shared.policy, now, self.evidence(&list));
            let is_more = swept.len() > 2 * SWEEP_MAX && !dry_run;
            swept.truncate(if is_more { 2 * SWEEP_MAX } else { swept.len() });
            let removed = exists && !is_more && entry.claims.is_empty();
            if dry_run || (swept.is_empty() && !removed) {
                done.extend(swept);
                return Ok(cleaned(done, removed));
            }
            let keys = &self.shared.keys;
            let mut change = if is_more {
                let tickets: Vec<u64> = swept.iter().map(|claim| claim.ticket).collect();
                list.removal(keys, name, &tickets)
            } else {
                let change = list.change(keys, name, &entry, Guard::All, &[]);
                change
                    .map_err(|error| self.unreachable("writing the lock", error.to_string()))?
                    .unwrap_or(list::Change {
                        compares: vec![list.unchanged(keys, name)],
                        operations: Vec::new(),
                    })
            };
            if removed {
                // The guard says that no claim came since, so no life belongs to anybody.
                let header = keys.header(name);
                let same =
                    Compare::mod_revision(header.clone(), CompareOp::Equal, list.header_modified);
                change.compares.push(same);
                change.operations.push(TxnOp::delete(header, None));
            }
            let why = match self.commit(change.into_txn())? {
                Commit::Done(_) => {
                    done.extend(swept);
                    if is_more {
                        continue;
                    }
                    return Ok(cleaned(done, removed));
                }
                Commit::Unsure(why) => {
                    earlier = Some(cleaned(swept, removed));
                    why
                }
                Commit::Overtaken | Commit::LeaseGone => "it changes again and again".to_owned(),
            };
            if !pause.fits(end) {
                return Err(self.unreachable("cleaning", why));
            }
            std::thread::sleep(pause.next());
        }
    }
}

/// What cleaning did; no other program sees records here.
fn cleaned(swept: Vec<Claim>, removed: bool) -> Cleaned {
    Cleaned {
        swept,
        removed,
        record: Vec::new(),
    }
}

impl Commit {
    fn with(self, list: Option<List>) -> (Self, Option<List>) {
        (self, list)
    }
}

impl Seat {
    fn own(&self) -> Scope {
        Scope::One {
            id: self.id.clone(),
            life: self.life.clone(),
        }
    }
}

impl EtcdStore {
    /// The answer for a claim whose making was found to have been carried out.
    #[allow(
        clippy::too_many_arguments,
        reason = "the end of `enter_claim`, which has them all"
    )]
    fn found(
        &self,
        name: &LockName,
        request: &Request,
        session: &Arc<Session>,
        list: &List,
        row: &list::Row,
        events: Vec<Event>,
        now: &Now,
    ) -> Entered<Seat> {
        let claim = &row.written.claim;
        let was_away = row.written.was_away;
        let seat = self.seat(
            name,
            claim.ticket,
            row.id.clone(),
            row.written.life.clone(),
            request,
            was_away,
        );
        seat.remember(list, &self.shared.keys);
        {
            let mut state = seat.state();
            state.own = list.revision;
            state.session = Some(Arc::clone(session));
        }
        let entering = match claim.token {
            Some(token) => {
                self.note_grant(&seat, claim, list);
                Entering::Granted {
                    ticket: claim.ticket,
                    token,
                }
            }
            None => {
                let mut looked = list.entry.clone();
                let evidence = self.evidence(list);
                let advance = looked.advance(
                    &self.shared.policy,
                    claim.ticket,
                    now,
                    evidence,
                    &mut Vec::new(),
                );
                let behind = match advance {
                    Advance::Behind(behind) => behind,
                    // Whatever it is: a sleep behind nobody ends at once, and the next look tells.
                    _ => NOBODY,
                };
                Entering::Queued {
                    ticket: claim.ticket,
                    behind,
                }
            }
        };
        Entered {
            entering,
            entry: list.entry.clone(),
            unread: 0,
            events,
            seat: Some(seat),
        }
    }

    /// A claim that was put at the end may have nobody before it who counts: then it holds at once.
    fn looked(&self, mut entered: Entered<Seat>, now: &Now) -> Result<Entered<Seat>, StoreError> {
        let (Entering::Queued { ticket, behind }, Some(seat)) =
            (&mut entered.entering, &entered.seat)
        else {
            return Ok(entered);
        };
        if *behind != NOBODY {
            return Ok(entered);
        }
        let ticket = *ticket;
        let advanced = self.advance(seat, now)?;
        match advanced.advance {
            Advance::Granted { token } => entered.entering = Entering::Granted { ticket, token },
            Advance::Behind(now_behind) => *behind = now_behind,
            Advance::Blocked(refusal) => {
                self.leave(seat, now)?;
                entered.entering = Entering::Refused(refusal);
                entered.seat = None;
            }
            // What it was asked meanwhile it hears at its next look.
            Advance::Yours { .. } | Advance::Cancelled { .. } | Advance::Gone => {}
        }
        entered.entry = advanced.entry;
        entered.events.extend(advanced.events);
        Ok(entered)
    }

    /// Ends a hold by what was known at its grant, without another look. With what that would have
    /// come to, for it may have been carried out without an answer.
    fn leave_as_granted(
        &self,
        seat: &Seat,
        claim: &Claim,
        history: History,
        header_modified: i64,
        now: &Now,
    ) -> Result<(Left, Commit), StoreError> {
        let mut entry = Entry {
            last: 0,
            history,
            claims: vec![claim.clone()],
        };
        let left = entry.leave(seat.ticket, now);
        let keys = &self.shared.keys;
        let (key, header) = (keys.claim(&seat.name, &seat.id), keys.header(&seat.name));
        let created = i64::try_from(seat.ticket).unwrap_or(0);
        let compares = [
            Compare::create_revision(key.clone(), CompareOp::Equal, created),
            Compare::mod_revision(header.clone(), CompareOp::Equal, header_modified),
        ];
        let value = value::encode_header(entry.history)
            .map_err(|error| self.unreachable("writing the lock", error.to_string()))?;
        let operations = [
            TxnOp::delete(key, None),
            TxnOp::delete(keys.life(&seat.name, &seat.life), None),
            TxnOp::put(header, value, None),
        ];
        let committed = self.commit(Txn::new().when(compares).and_then(operations))?;
        if let Commit::Done(_) = committed {
            seat.settled.store(true, Ordering::SeqCst);
        }
        Ok((left, committed))
    }
}
