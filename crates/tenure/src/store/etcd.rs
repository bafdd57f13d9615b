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
//! list is read again and decided upon anew. Repeating a change is safe: of two transactions that
//! change the same claim, the one that comes second finds its condition broken. A claim that is
//! made is a case of its own (`enter`): it must not come to be after its caller has given up.
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
mod enter;
mod keys;
mod link;
mod list;
mod session;
mod value;
mod watch;

pub use address::{Address, AddressError, Credentials, CredentialsError};

use super::file::Sleeper;
use super::{
    Advanced, Cleaned, Content, Entered, ForcedRelease, Reading, RenewedOwned, Store, StoreError,
    Wake,
};
use crate::clock::{Clock, SystemClock, instant};
use enter::Entrance;
use etcd_client::{Client, Compare, CompareOp, GetOptions, KeyValue, Txn, TxnOp, TxnOpResponse};
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
    Advance, Claim, Entry, Event, Evidence, Force, Forced, History, Host, Kind, Left, LockName,
    Now, Ownership, Policy, Predecessor, Process, Refusal, Released, Renewal, Request, Standing,
    WaitingFor,
};

/// How long a call tries before it says that etcd cannot be reached. An election takes one to two
/// seconds, and a request that a dying member swallows two more.
pub const PATIENCE: Duration = Duration::from_secs(6);

/// The least time that a renewal is given, however short the ttl.
const RENEWAL_MIN: Duration = Duration::from_millis(200);

/// The same once etcd has been out of reach for that long.
const PATIENCE_LEFT: Duration = Duration::from_secs(1);

/// How many keys are read at once: what a claim takes is below a kilobyte, and etcd's clients refuse
/// answers of four megabytes.
const PAGE: i64 = 2_000;

/// How often a claim is looked at whose process on this machine may end without etcd knowing.
const PROCESS_NAP: Duration = Duration::from_millis(500);

/// How long a sleep behind a record lasts at least, and at most.
const RECORD_NAP_MIN: Duration = Duration::from_millis(10);
const RECORD_NAP_MAX: Duration = Duration::from_secs(10);

/// For how long what a caller left behind is cleared away, while etcd is out of reach. It has long
/// run out with its lease then, unless the lease was kept alive all the time.
const CLEARING_MAX: Duration = Duration::from_secs(600);

/// How long the drop of a seat waits for etcd to hear of it: for one request that is lost, and the
/// next one. It goes on without anybody waiting.
const DROP_MAX: Duration = Duration::from_millis(2_500);

/// How often a call that was overtaken begins anew without a pause.
const OVERTAKEN_AT_ONCE: u32 = 3;

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
    /// Its caller was away from this place.
    was_away: bool,
    state: Mutex<SeatState>,
    /// Its life is not to be ended with it: it has ended, or belongs to a hold that goes on.
    settled: AtomicBool,
    /// A change that lit its life may still be carried out.
    doubtful: AtomicBool,
}

/// What a seat has seen last.
#[derive(Default)]
struct SeatState {
    /// The revision at which the list was read.
    revision: i64,
    /// The revision up to which the own claim was looked at.
    own: i64,
    /// The keys of the claims and of their lives, by ticket.
    keys: BTreeMap<u64, (String, String)>,
    /// The hold, and the header, as of the grant.
    granted: Option<(Claim, History, i64)>,
    /// The own claim as it waits, and when it was written last.
    waiting: Option<(Claim, i64)>,
    /// A sleep was ended by something that happened, and nobody has looked since.
    woken: bool,
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

    /// Everything up to this revision that concerns its own claim has been looked at.
    fn saw(&self, revision: i64) {
        let mut state = self.state();
        state.own = state.own.max(revision);
    }

    fn remember(&self, list: &List, keys: &Keys) {
        let mut state = self.state();
        state.revision = list.revision;
        state.keys = keys_of(list, keys, &self.name);
        let own = list.row(self.ticket);
        let own = own.filter(|row| row.written.claim.token.is_none());
        state.waiting = own.map(|row| (row.written.claim.clone(), row.modified));
    }
}

impl Seat {
    /// Notes that it holds now.
    fn note_grant(&self, claim: &Claim, list: &List) {
        if self.kind == Kind::Detached {
            // The hold goes on without this process.
            self.settled.store(true, Ordering::SeqCst);
        }
        let mut state = self.state();
        state.granted = Some((claim.clone(), list.entry.history, list.header_modified));
    }

    /// Whether the lease of its life runs for certain.
    fn is_certain(&self) -> bool {
        let now = self.shared.clock.now();
        let session = self.shared.sessions.present(self.ttl_ms);
        session.is_some_and(|session| {
            let age_ms = now.boot_ms.saturating_sub(session.last_sign(&now).boot_ms);
            age_ms < self.ttl_ms
        })
    }

    /// The caller whose place it is: its life hangs on that one's lease, whoever asks.
    fn store(&self) -> EtcdStore {
        EtcdStore {
            shared: Arc::clone(&self.shared),
        }
    }

    fn own(&self) -> Scope {
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
        let spawned = self.shared.link.spawn(async move {
            let ended = endpoints.until(end, |mut client: Client| {
                let gone = gone.iter().map(|key| TxnOp::delete(key.clone(), None));
                let txn = Txn::new().and_then(gone.collect::<Vec<_>>());
                async move { client.txn(txn).await }
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
    /// What happened, for the audit.
    events: Vec<Event>,
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
    events: Vec<Event>,
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

    /// When a call that begins now gives up. After etcd has been out of reach for as long as that
    /// already, nobody waits for it all over again.
    fn end(&self) -> Instant {
        let failing = self.shared.link.endpoints().failing();
        let patience = match failing {
            Some(since) if since >= self.shared.patience => PATIENCE_LEFT,
            _ => self.shared.patience,
        };
        instant() + patience.min(self.shared.patience)
    }

    /// A change that could be written down.
    fn told<T>(&self, change: Result<T, serde_json::Error>) -> Result<T, StoreError> {
        change.map_err(|error| self.unreachable("writing the lock", error.to_string()))
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
        self.shared.link.block("writing the lock", async move {
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
        })
    }

    fn session(&self, ttl_ms: u64, end: Instant) -> Result<Arc<Session>, StoreError> {
        if let Some(session) = self.shared.sessions.present(ttl_ms) {
            return Ok(session);
        }
        let shared = Arc::clone(&self.shared);
        self.shared.link.block("taking a lease", async move {
            let endpoints = Arc::clone(shared.link.endpoints());
            let sessions = &shared.sessions;
            sessions.get(&endpoints, &shared.clock, ttl_ms, end).await
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
        step: impl FnMut(&mut Draft, &List, bool) -> Result<T, StoreError>,
    ) -> Result<Made<T>, StoreError> {
        self.change_until(self.end(), name, scope, step)
    }

    /// The same with less patience.
    fn change_until<T>(
        &self,
        end: Instant,
        name: &LockName,
        scope: &Scope,
        mut step: impl FnMut(&mut Draft, &List, bool) -> Result<T, StoreError>,
    ) -> Result<Made<T>, StoreError> {
        let mut pause = Pause::default();
        let mut unsure = false;
        let mut overtaken = 0;
        let mut swept = Vec::new();
        loop {
            let before = self.load(name, scope, end)?;
            self.unreadable(&before)?;
            let mut draft = Draft {
                entry: before.entry.clone(),
                guard: Guard::None,
                lights: Vec::new(),
                events: Vec::new(),
            };
            let answer = step(&mut draft, &before, unsure)?;
            self.light_pulses(&before, &mut draft, end)?;
            let keys = &self.shared.keys;
            let change =
                self.told(before.change(keys, name, &draft.entry, draft.guard, &draft.lights))?;
            let Some(change) = change else {
                swept.append(&mut draft.events);
                return Ok(Made {
                    answer,
                    before,
                    after: draft.entry,
                    revision: None,
                    events: swept,
                });
            };
            if !change.fits() {
                swept.extend(self.sweep_some(name, &before, &draft.entry, draft.events)?);
                continue;
            }
            let why = match self.commit(change.into_txn())? {
                Commit::Done(revision) => {
                    let mut after = draft.entry;
                    settle(&before, &mut after, revision);
                    settle_events(&mut draft.events, revision);
                    swept.append(&mut draft.events);
                    return Ok(Made {
                        answer,
                        before,
                        after,
                        revision: Some(revision),
                        events: swept,
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
            if !Pause::fits(end) {
                return Err(self.unreachable("writing the lock", why));
            }
            std::thread::sleep(pause.next());
        }
    }

    /// Removes some of the claims that `after` is without, where they are more than one transaction
    /// takes. Each is removed as it was judged, so nothing else has to be as it was. Answers with
    /// what was told of them; the next look finds the rest.
    fn sweep_some(
        &self,
        name: &LockName,
        before: &List,
        after: &Entry,
        events: Vec<Event>,
    ) -> Result<Vec<Event>, StoreError> {
        let gone = before.entry.claims.iter().map(|claim| claim.ticket);
        let gone = gone.filter(|ticket| after.claim(*ticket).is_none());
        let some: Vec<u64> = gone.take(list::SWEPT_AT_ONCE).collect();
        let mut rest = before.entry.clone();
        rest.claims.retain(|claim| !some.contains(&claim.ticket));
        let keys = &self.shared.keys;
        let change = self.told(before.change(keys, name, &rest, Guard::None, &[]))?;
        let Some(change) = change.filter(list::Change::fits) else {
            return Err(self.unreachable(
                "writing the lock",
                "the change is larger than a transaction of etcd may be".to_owned(),
            ));
        };
        // Whether it was carried out or overtaken, the next look sees.
        let told = match self.commit(change.into_txn())? {
            Commit::Done(_) => events,
            Commit::Overtaken | Commit::Unsure(_) | Commit::LeaseGone => Vec::new(),
        };
        let is_of_these = |event: &Event| match event {
            Event::Stolen {
                previous: Some(claim),
                ..
            } => some.contains(&claim.ticket),
            Event::Stolen { previous: None, .. }
            | Event::Acquired { .. }
            | Event::CancelRequested { .. }
            | Event::Displaced { .. }
            | Event::Released { .. } => false,
        };
        Ok(told.into_iter().filter(is_of_these).collect())
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
                    is_new: false,
                }),
                (None, None) => {}
            }
        }
        Ok(())
    }

    /// What a seat's own change has to light: its life, if it has run out or hangs on another lease
    /// than the one that this process keeps alive now.
    fn relight(&self, seat: &Seat, list: &List, end: Instant) -> Result<Option<Light>, StoreError> {
        let Some(row) = list.row(seat.ticket) else {
            return Ok(None);
        };
        let waits = row.written.claim.token.is_none();
        if row.written.life != seat.life || !(waits || seat.kind == Kind::Kernel) {
            return Ok(None);
        }
        let session = self.session(seat.ttl_ms, end)?;
        Ok((row.lease != session.lease).then(|| Light {
            ticket: seat.ticket,
            id: None,
            life: seat.life.clone(),
            lease: session.lease,
            is_new: false,
        }))
    }

    /// Removes what cannot be understood, if force may do that here. Answers with whether anything
    /// was; what another version has written is not ours to remove.
    fn replace_unreadable(
        &self,
        list: &List,
        force: Force,
    ) -> Result<Result<bool, Refusal>, StoreError> {
        if list.unreadable.is_empty() {
            return Ok(Ok(false));
        }
        let is_newer = list.unreadable.iter().any(|unreadable| unreadable.is_newer);
        let force = if is_newer { Force::No } else { force };
        // etcd does not say when a key was written, so it counts as written just now.
        if let Err(refusal) = Entry::replace_unreadable(&self.shared.policy, force, 0) {
            return Ok(Err(refusal));
        }
        let some = list.unreadable.iter().take(list::SWEPT_AT_ONCE);
        let (compares, operations): (Vec<_>, Vec<_>) = some
            .map(|unreadable| {
                let key = unreadable.key.clone();
                let stands =
                    Compare::mod_revision(key.clone(), CompareOp::Equal, unreadable.modified);
                (stands, TxnOp::delete(key, None))
            })
            .unzip();
        // Whatever became of it, the next look says what is left.
        self.commit(Txn::new().when(compares).and_then(operations))?;
        Ok(Ok(true))
    }

    /// What cannot be understood, as an error.
    fn unreadable(&self, list: &List) -> Result<(), StoreError> {
        match list.unreadable.first() {
            None => Ok(()),
            Some(unreadable) => Err(StoreError::Unreadable {
                place: format!("{}: {}", self.shared.link.place(), unreadable.shown()),
                why: unreadable.why.clone(),
            }),
        }
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
        let rest_ms = claim.lease.remaining_ms(boot, now);
        let has_process = claim.holder.process.is_some() || claim.holder.command.is_some();
        let longest = if is_here && has_process {
            PROCESS_NAP
        } else {
            RECORD_NAP_MAX
        };
        // One that is past its ttl and counts all the same lives by something else.
        match rest_ms {
            0 => longest.min(Duration::from_secs(1)),
            rest_ms => Duration::from_millis(rest_ms + 1).clamp(RECORD_NAP_MIN, longest),
        }
    }

    /// How the sleep ended, and whether it did because something has happened.
    fn sleep_on(
        &self,
        watched: Vec<watch::Watched>,
        nap: Duration,
        until: Option<Instant>,
    ) -> Result<(Wake, bool), StoreError> {
        let news = watch::News::of(&self.shared.link, watched)?;
        let slept = self
            .shared
            .sleeper
            .poll(&[news.descriptor().as_fd()], nap, until);
        let wake = slept.map_err(|source| StoreError::Io {
            place: self.shared.link.place().to_owned(),
            doing: "waiting",
            source,
        })?;
        let rung = rustix::io::read(news.descriptor(), &mut [0; 1]);
        Ok((wake, rung.is_ok_and(|read| read > 0)))
    }
}

/// Whether etcd takes no more writes for want of room.
fn is_full(error: &StoreError) -> bool {
    matches!(error, StoreError::Unreachable { why, .. } if why.contains("space exceeded"))
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
        let answer = endpoints.until(end, |mut client: Client| {
            let (begin, page) = (begin.clone(), page.clone());
            async move { client.get(begin, Some(page)).await }
        });
        let mut answer = match answer.await {
            Err(Fault::Refused(why)) if why.contains("compacted") && revision != 0 => {
                // The first page is too old for the next one.
                found.clear();
                revision = 0;
                continue;
            }
            answer => answer?,
        };
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
    /// Looks whether a waiting claim holds now.
    ///
    /// Of a claim that was never away, only those before it matter: whoever is granted behind it has
    /// counted it, with what it tolerates, and is overtaken if it has changed since. Behind a claim
    /// that came back, somebody may hold who has not.
    fn advance_until(&self, end: Instant, seat: &Seat, now: &Now) -> Result<Advanced, StoreError> {
        if let Some(advanced) = self.advance_at_once(seat, now)? {
            return Ok(advanced);
        }
        let (scope, guard) = if !seat.was_away && seat.kind == Kind::Kernel {
            (Scope::Upto(seat.ticket), Guard::Upto(seat.ticket))
        } else {
            (Scope::All, Guard::All)
        };
        let made = self.change_until(end, &seat.name, &scope, |draft, list, _| {
            let light = self.relight(seat, list, end)?;
            let relit = light.is_some();
            draft.lights.extend(light);
            let evidence = |claim: &Claim| {
                let mut seen = list.evidence(&self.shared.here, claim);
                if relit && claim.ticket == seat.ticket {
                    seen.beacon = tenure_core::Beacon::Lit;
                }
                seen
            };
            let policy = &self.shared.policy;
            let events = &mut draft.events;
            let advance = draft
                .entry
                .advance(policy, seat.ticket, now, evidence, events);
            if let Advance::Granted { .. } = &advance {
                draft.guard = guard;
                // Whoever holds counts from the last sign of life that etcd has had of it.
                if seat.kind == Kind::Kernel
                    && let Some(session) = self.shared.sessions.present(seat.ttl_ms)
                    && let Some(claim) = draft.entry.claim_mut(seat.ticket)
                {
                    claim.lease.renewed = session.last_sign(now);
                }
            }
            Ok(advance)
        });
        let made = made.inspect_err(|_| seat.doubtful.store(true, Ordering::SeqCst))?;
        let mut advance = made.answer;
        seat.remember(&made.before, &self.shared.keys);
        if let Advance::Granted { token } = &mut advance
            && let Some(claim) = made.after.claim(seat.ticket)
        {
            *token = claim.token.unwrap_or(*token);
            seat.note_grant(claim, &made.before);
        }
        if made.revision.is_some() {
            // It was written since that list.
            seat.state().waiting = None;
        }
        seat.saw(made.revision.unwrap_or(made.before.revision));
        Ok(Advanced {
            advance,
            entry: made.after,
            events: made.events,
        })
    }

    /// Grants a claim in one transaction and without a look, if its wait was ended by something that
    /// happened: mostly that was the end of the last one before it. That there is none is the
    /// condition, and that nobody has asked it to stop, and that it lives by the lease that this
    /// process keeps alive. `None` if any of that is not so or not known, for whoever looks.
    fn advance_at_once(&self, seat: &Seat, now: &Now) -> Result<Option<Advanced>, StoreError> {
        let (woken, waiting) = {
            let mut state = seat.state();
            (std::mem::take(&mut state.woken), state.waiting.clone())
        };
        let session = self.shared.sessions.present(seat.ttl_ms);
        let (Some((claim, modified)), Some(session)) = (waiting, session) else {
            return Ok(None);
        };
        if !woken || seat.was_away || seat.kind != Kind::Kernel {
            return Ok(None);
        }
        let mut entry = Entry {
            claims: vec![claim],
            ..Entry::default()
        };
        let mut events = Vec::new();
        let lit = |_: &Claim| Evidence {
            beacon: tenure_core::Beacon::Lit,
            process: tenure_core::Liveness::NotRecorded,
            command: tenure_core::Liveness::NotRecorded,
        };
        let policy = &self.shared.policy;
        let advance = entry.advance(policy, seat.ticket, now, lit, &mut events);
        let (Advance::Granted { .. }, Some(granted)) = (advance, entry.claim_mut(seat.ticket))
        else {
            return Ok(None);
        };
        granted.lease.renewed = session.last_sign(now);
        let written = value::Written {
            claim: granted.clone(),
            life: seat.life.clone(),
            was_away: false,
        };
        let value = self.told(value::encode(&written, true))?;
        let keys = &self.shared.keys;
        let (own, life) = (
            keys.claim(&seat.name, &seat.id),
            keys.life(&seat.name, &seat.life),
        );
        let claims = keys.claims(&seat.name);
        let before = i64::try_from(seat.ticket).unwrap_or(i64::MAX) - 1;
        let first = Compare::create_revision(claims.clone(), CompareOp::Greater, before);
        let txn = Txn::new()
            .when([
                Compare::mod_revision(own.clone(), CompareOp::Equal, modified),
                Compare::lease(life, CompareOp::Equal, session.lease),
                first.with_range(end_of(&claims)),
            ])
            .and_then([
                TxnOp::put(own, value, None),
                TxnOp::get(keys.header(&seat.name), None),
            ]);
        let endpoints = Arc::clone(self.shared.link.endpoints());
        let answer = self.shared.link.block("writing the lock", async move {
            let answer = endpoints.once(|mut client: Client| async move { client.txn(txn).await });
            // Whatever else became of it, whoever looks finds out.
            Ok(answer.await.ok())
        })?;
        let Some(answer) = answer.filter(etcd_client::TxnResponse::succeeded) else {
            return Ok(None);
        };
        let revision = answer.header();
        let revision = revision.map_or(0, etcd_client::ResponseHeader::revision);
        let mut found = Vec::new();
        for response in answer.op_responses() {
            if let TxnOpResponse::Get(mut get) = response {
                found.extend(get.take_kvs());
            }
        }
        let list = List::of(keys, &seat.name, revision, &found);
        entry.history = list.entry.history;
        entry.last = number(revision);
        let token = number(revision);
        if let Some(granted) = entry.claim_mut(seat.ticket) {
            granted.token = Some(token);
            seat.note_grant(granted, &list);
        }
        settle_events(&mut events, revision);
        seat.saw(revision);
        Ok(Some(Advanced {
            advance: Advance::Granted { token },
            entry,
            events,
        }))
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
            was_away,
            state: Mutex::default(),
            settled: AtomicBool::new(false),
            doubtful: AtomicBool::new(false),
        }
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

    fn notices(&self, seat: &Seat) -> Option<OwnedFd> {
        self.news(seat).ok()
    }

    fn read(&self, name: &LockName) -> Result<Reading, StoreError> {
        let list = self.load(name, &Scope::All, self.end())?;
        let place = self.place(name);
        if let Some(unreadable) = list.unreadable.first() {
            return Ok(Reading {
                place,
                content: Content::Unreadable {
                    why: unreadable.why.clone(),
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
        Entrance::new(self, name, request, now)?.enter()
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
        let (wake, woken) = self.sleep_on(watched, nap, until)?;
        seat.state().woken = woken;
        Ok(wake)
    }

    fn advance(&self, seat: &Seat, now: &Now) -> Result<Advanced, StoreError> {
        seat.store().advance_until(self.end(), seat, now)
    }

    fn name_command(&self, seat: &Seat, command: Process) -> Result<bool, StoreError> {
        let made = self.change(&seat.name, &seat.own(), |draft, _, _| {
            Ok(draft.entry.name_command(seat.ticket, command))
        })?;
        if let Some(revision) = made.revision {
            seat.saw(revision);
        }
        Ok(made.answer)
    }

    fn renew(&self, seat: &Seat, now: &Now) -> Result<Renewal, StoreError> {
        // Whoever renews has to know in time that it did not work.
        let third = Duration::from_millis(seat.ttl_ms / 3);
        let this = seat.store();
        let end = this.end().min(instant() + third.max(RENEWAL_MIN));
        // The lease first: a claim that is written while its lease runs out is no sign of life. Its
        // life is lit anew if it hangs on any other lease than the one that is renewed here.
        if seat.kind == Kind::Kernel {
            let session = this.session(seat.ttl_ms, end)?;
            let endpoints = Arc::clone(this.shared.link.endpoints());
            let began_ms = this.shared.clock.now().boot_ms;
            this.shared.link.block("renewing the lease", async move {
                match session::renew(&endpoints, session.lease, end).await {
                    Ok(()) => {
                        session.renewed(began_ms);
                        Ok(())
                    }
                    Err(Fault::LeaseGone) => {
                        session.end();
                        Ok(())
                    }
                    other => other,
                }
            })?;
        }
        let made = this.change_until(end, &seat.name, &seat.own(), |draft, list, _| {
            let renewal = draft.entry.renew(seat.ticket, now);
            if let Renewal::Renewed { .. } = renewal {
                draft.lights.extend(this.relight(seat, list, end)?);
            }
            Ok(renewal)
        });
        let made = match made {
            // The lease is renewed, which is what counts; only the record does not say so.
            Err(error) if is_full(&error) => {
                let list = this.load(&seat.name, &seat.own(), end)?;
                let session = this.shared.sessions.present(seat.ttl_ms);
                let row = list.row(seat.ticket);
                let hangs = row
                    .is_some_and(|row| session.is_some_and(|session| session.lease == row.lease));
                return match list.entry.verify(seat.ticket) {
                    Renewal::Renewed { .. } if !hangs => Err(error),
                    renewal => Ok(renewal),
                };
            }
            made => made.inspect_err(|_| seat.doubtful.store(true, Ordering::SeqCst))?,
        };
        if let Some(revision) = made.revision {
            seat.saw(revision);
        }
        Ok(made.answer)
    }

    fn verify(&self, seat: &Seat) -> Result<Renewal, StoreError> {
        let list = self.load(&seat.name, &seat.own(), self.end())?;
        let is_dark = list.row(seat.ticket).is_some_and(|row| !row.alive());
        if is_dark && seat.kind == Kind::Kernel {
            // Nobody has taken it yet, and anybody may: that it stands is worth nothing before its
            // life is lit again.
            return self.renew(seat, &self.shared.clock.now());
        }
        Ok(list.entry.verify(seat.ticket))
    }

    fn leave(&self, seat: &Seat, now: &Now) -> Result<Left, StoreError> {
        let end = self.end();
        let granted = seat.state().granted.clone();
        // What a first try would have answered, if its own answer did not come.
        let mut earlier = None;
        if let Some((claim, history, header)) = granted {
            match self.leave_as_granted(seat, &claim, Some((history, header)), now) {
                // To remove something is allowed all the same.
                Err(error) if is_full(&error) => {
                    let (left, committed) = self.leave_as_granted(seat, &claim, None, now)?;
                    if let Commit::Done(_) = committed {
                        return Ok(left);
                    }
                }
                other => match other? {
                    (left, Commit::Done(_)) => return Ok(left),
                    (left, Commit::Unsure(_)) => earlier = Some(left),
                    (_, Commit::Overtaken | Commit::LeaseGone) => {}
                },
            }
        }
        let mut tried = earlier.is_some();
        let made = self.change_until(end, &seat.name, &seat.own(), |draft, _, unsure| {
            tried |= unsure;
            let left = draft.entry.leave(seat.ticket, now);
            Ok(match (left, &earlier) {
                // Nobody else removes a claim while its lease runs, so it was an earlier try.
                (Left::Absent, Some(earlier)) if tried && seat.is_certain() => earlier.clone(),
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
        loop {
            let made = self.change(name, &Scope::All, |draft, list, _| {
                let evidence = self.evidence(list);
                let asked = draft.entry.cancel(&self.shared.policy, by, now, evidence);
                // One transaction takes so many; whoever was asked already stays so.
                let claims = draft.entry.claims.iter_mut();
                let new = claims.filter(|claim| list.entry.claim(claim.ticket) != Some(claim));
                let mut is_more = false;
                for claim in new.skip(2 * list::SWEPT_AT_ONCE) {
                    if let Some(before) = list.entry.claim(claim.ticket) {
                        *claim = before.clone();
                        is_more = true;
                    }
                }
                Ok((asked, is_more))
            })?;
            if let (asked, false) = made.answer {
                return Ok(asked);
            }
        }
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
        let forced = match self.replace_unreadable(&list, force)? {
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
        let (wake, _) = self.sleep_on(watched, self.nap(front, now), until)?;
        Ok(wake)
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
        // What earlier tries of this call have removed, and would remove.
        let (mut gone, mut tried): (Vec<Claim>, Vec<Claim>) = (Vec::new(), Vec::new());
        let mut removes = false;
        loop {
            let list = self.load(name, &Scope::All, end)?;
            self.unreadable(&list)?;
            let before = std::mem::take(&mut tried).into_iter();
            gone.extend(before.filter(|claim| list.row(claim.ticket).is_none()));
            let exists = list.header_modified != 0 || !list.rows.is_empty();
            let mut entry = list.entry.clone();
            let swept = entry.sweep(&self.shared.policy, now, self.evidence(&list));
            let empties = exists && entry.claims.is_empty();
            let done = |mut gone: Vec<Claim>, removed| {
                gone.extend(swept.clone());
                Ok(Cleaned {
                    swept: gone,
                    removed,
                    record: Vec::new(),
                })
            };
            if dry_run || (swept.is_empty() && !empties) {
                return done(gone, if dry_run { empties } else { removes && !exists });
            }
            let keys = &self.shared.keys;
            let change = self.told(list.change(keys, name, &entry, Guard::All, &[]))?;
            let mut change = change.unwrap_or_else(|| list::Change {
                compares: vec![list.unchanged(keys, name)],
                operations: Vec::new(),
            });
            if !change.fits() {
                self.sweep_some(name, &list, &entry, Vec::new())?;
                tried = swept;
                continue;
            }
            if empties {
                let header = keys.header(name);
                let same =
                    Compare::mod_revision(header.clone(), CompareOp::Equal, list.header_modified);
                change.compares.push(same);
                change.operations.push(TxnOp::delete(header, None));
            }
            let why = match self.commit(change.into_txn())? {
                Commit::Done(_) => return done(gone, empties),
                Commit::Unsure(why) => {
                    (tried, removes) = (swept, empties);
                    why
                }
                Commit::Overtaken | Commit::LeaseGone => "it changes again and again".to_owned(),
            };
            if !Pause::fits(end) {
                return Err(self.unreachable("cleaning", why));
            }
            std::thread::sleep(pause.next());
        }
    }
}

impl EtcdStore {
    /// Ends a hold by what was known at its grant, without another look; without a header, nothing is
    /// remembered of it. With what that would have
    /// come to, for it may have been carried out without an answer.
    fn leave_as_granted(
        &self,
        seat: &Seat,
        claim: &Claim,
        header: Option<(History, i64)>,
        now: &Now,
    ) -> Result<(Left, Commit), StoreError> {
        let mut entry = Entry {
            last: 0,
            history: header.map(|(history, _)| history).unwrap_or_default(),
            claims: vec![claim.clone()],
        };
        let left = entry.leave(seat.ticket, now);
        let keys = &self.shared.keys;
        let key = keys.claim(&seat.name, &seat.id);
        let created = i64::try_from(seat.ticket).unwrap_or(0);
        let mut compares = vec![Compare::create_revision(
            key.clone(),
            CompareOp::Equal,
            created,
        )];
        let mut operations = vec![
            TxnOp::delete(key, None),
            TxnOp::delete(keys.life(&seat.name, &seat.life), None),
        ];
        if let Some((_, modified)) = header {
            let key = keys.header(&seat.name);
            let same = Compare::mod_revision(key.clone(), CompareOp::Equal, modified);
            compares.push(same);
            let value = self.told(value::encode_header(entry.history))?;
            operations.push(TxnOp::put(key, value, None));
        }
        let committed = self.commit(Txn::new().when(compares).and_then(operations))?;
        if let Commit::Done(_) = committed {
            seat.settled.store(true, Ordering::SeqCst);
        }
        Ok((left, committed))
    }
}
