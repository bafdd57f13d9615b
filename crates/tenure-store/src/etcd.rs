//! The etcd store: one list of claims for many machines.
//!
//! Each claim has a key. The key's creation revision is the ticket, so the order of the queue is the order in which
//! etcd wrote the claims. The revision of the write that grants, above a `floor`, is the fencing token. Beside the
//! claim stands its *lease key*, an empty key attached to a lease that the claimant's process keeps alive. It does what
//! a kernel lock on a byte does for the file store. A waiter watches its own claim, and the claims and lease keys that
//! it waits behind, and no others.
//!
//! A transaction reads the list, runs the change, and commits the result in one transaction of etcd that
//! names everything the decision rests on (`list`). If any of that was changed meanwhile, etcd does
//! nothing, and the change runs again (`transact`). A change never writes without a condition. Mostly
//! the list is as expected, and need not be read (`expect`).
//!
//! # Unknown outcomes
//! A transaction whose answer never came may have been carried out, or may be carried out later. The
//! call finds out which before it answers (`transact`). A claim must not come into being after its
//! caller has given up (`attempt`).
//!
//! # Crash safety
//! Every change is one transaction of etcd, so death leaves nothing between two steps. Only a change
//! that is too large is committed in parts, each of which leaves a whole list (`transact`). A process
//! that dies leaves its claims as they are. Their lease keys end with its lease, and the next caller
//! that asks sweeps the claims.
//!
//! # The same servers
//! An address may lead to other servers than before, or to a list that was set back. Each answer is looked at (`cluster`).
//!
//! # What a lease proves
//! A lease key that exists proves that its process was alive within its ttl, by etcd's clock. Once it
//! has run out, other callers may pass. The holder has to know **before** that; [`Rules::lapse`] says
//! when. A machine that was suspended finds out with its first renewal. That succeeds only if no caller
//! has removed the claim from the list, and then the hold was never interrupted.
//!
//! What it leaves to others: the servers (`Address`), when to renew, and what to do about a loss.

mod address;
mod api;
mod attempt;
mod cluster;
mod connect;
mod connection;
mod expect;
mod floor;
mod floors;
mod handle;
mod ids;
mod keys;
mod lease_key;
mod list;
mod read;
mod runtime;
mod session;
mod transact;
mod value;
mod watch;

pub use address::{Address, AddressError, CredentialFiles, Credentials, CredentialsError};
pub use cluster::{accept_cluster, forget_cluster};

use super::contract::{
    self, Ask, Draft, Handle, Location, Notices, Outcome, Parked, Ring, Rules, Step, Store,
    Waiting, Which,
};
use super::file::Sleeper;
use super::{Content, Reading, StoreError, Wake};
use api::RangeRequest;
use connection::{Connection, Fault};
use floors::Floors;
use handle::EtcdHandle;
use ids::Ids;
use keys::{Keys, end_of};
use read::{Scope, read_range};
use session::Sessions;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use tenure_core::{Claim, Host, LockName, Now, Policy, Predecessor, Silence};
use tenure_os::clock::{SystemClock, instant};
use transact::Transaction;

/// How long a call tries before it reports that etcd cannot be reached. An election takes one to two
/// seconds, and a request that a dying member has swallowed takes two more.
pub const PATIENCE: Duration = Duration::from_secs(6);

/// The least time that a renewal is given, however short the ttl.
const RENEWAL_MIN: Duration = Duration::from_millis(200);

/// How long a call tries if etcd has been out of reach for a whole patience already.
const PATIENCE_LEFT: Duration = Duration::from_secs(1);

/// How long a sleep behind a record lasts at least, and at most.
const RECORD_NAP_MIN: Duration = Duration::from_millis(10);
const RECORD_NAP_MAX: Duration = Duration::from_secs(10);

/// How often a call that was overtaken begins anew without a pause.
const OVERTAKEN_AT_ONCE: u32 = 3;

/// The servers of a list, each with the id of its cluster or why that is not known.
pub type Clusters = Vec<(String, Result<u64, StoreError>)>;

/// Locks kept in etcd. A clone is the same caller.
#[derive(Clone)]
pub struct EtcdStore {
    shared: Arc<Shared>,
}

struct Shared {
    connection: Connection,
    sessions: Sessions,
    floors: Floors,
    keys: Keys,
    rules: Rules,
    here: Host,
    clock: SystemClock,
    sleeper: Box<dyn Sleeper>,
    patience: Duration,
    ids: Ids,
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.sessions.give_back(&self.connection);
    }
}

impl std::fmt::Debug for EtcdStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EtcdStore")
            .field("place", &self.shared.connection.place())
            .finish_non_exhaustive()
    }
}

impl EtcdStore {
    /// The locks below an address, by the native row. No server is asked yet.
    ///
    /// # Errors
    /// - [`StoreError::Unreachable`] if an encrypted connection has no authority to trust.
    pub fn new(
        address: &Address,
        credentials: &Credentials,
        here: Host,
        sleeper: Box<dyn Sleeper>,
    ) -> Result<Self, StoreError> {
        Self::with_policy(Policy::NATIVE, address, credentials, here, sleeper)
    }

    /// The locks below an address, by another row than the native one.
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
                connection: Connection::new(address, credentials)?,
                sessions: Sessions::default(),
                floors: Floors::default(),
                keys: Keys::new(address.prefix().to_owned()),
                rules: Rules {
                    leased: true,
                    network: true,
                    ..Rules::local(policy)
                },
                clock: SystemClock::new(here.boot_id.as_deref()),
                here,
                sleeper,
                patience: PATIENCE,
                ids: Ids::default(),
            }),
        })
    }

    /// Sets the patience of the store: its calls give up after this time. A call that gives up
    /// returns an error; it never says that a lock is free.
    #[must_use]
    pub fn patience(mut self, patience: Duration) -> Self {
        if let Some(shared) = Arc::get_mut(&mut self.shared) {
            shared.patience = patience;
        }
        self
    }

    /// Remembers in this folder the cluster of each server (`config::servers_folder`). Servers of another cluster are
    /// then refused until [`accept_cluster`] is called.
    #[must_use]
    pub fn remembering(mut self, folder: Option<PathBuf>) -> Self {
        if let (Some(shared), Some(folder)) = (Arc::get_mut(&mut self.shared), folder) {
            shared.connection.remember(folder);
        }
        self
    }

    /// Asks each server of the list which cluster it belongs to: the server, and its answer or what is wrong.
    ///
    /// # Errors
    /// - [`StoreError::Unreachable`] in a forked child.
    pub fn clusters(&self) -> Result<Clusters, StoreError> {
        let connection = &self.shared.connection;
        let endpoints = Arc::clone(connection.endpoints());
        let doing = "asking each server";
        let answers = connection.block(doing, async move { Ok(endpoints.each().await) })?;
        let servers = connection.endpoints().cluster().servers();
        let answers = answers.into_iter();
        let answers = answers.map(|answer| answer.map_err(|fault| connection.fault(doing, &fault)));
        Ok(servers.into_iter().zip(answers).collect())
    }

    /// A descriptor that becomes readable each time that another caller has changed the claim of a
    /// handle, or its lease key has ended. It works as long as the handle exists.
    fn notices(&self, handle: &EtcdHandle) -> Result<OwnedFd, StoreError> {
        let keys = &self.shared.keys;
        let from = handle.seen().own + 1;
        let claim = keys.claim(&handle.name, &handle.id);
        let watched = vec![
            // A renewal writes the claim too, which is no notice to its holder.
            watch::WatchTarget::changes(claim, from).known_up_to(Arc::clone(&handle.told)),
            watch::WatchTarget::end(keys.lease_key(&handle.name, &handle.lease_key), from),
        ];
        let (reads, task) = watch::lasting(&self.shared.connection, watched)?;
        handle.seen().watches.extend(task);
        Ok(reads)
    }

    /// Casts a handle to this store's own kind.
    fn own<'a>(
        &self,
        name: &LockName,
        handle: Option<&'a dyn Handle>,
    ) -> Result<Option<&'a EtcdHandle>, StoreError> {
        let own = |handle| contract::own(handle, || self.location(name).shown);
        handle.map(own).transpose()
    }

    /// When a call that begins now gives up. If etcd has been out of reach for a whole patience already,
    /// this call does not wait that long again.
    fn end(&self) -> Instant {
        let failing = self.shared.connection.endpoints().failing();
        let patience = match failing {
            Some(since) if since >= self.shared.patience => PATIENCE_LEFT,
            _ => self.shared.patience,
        };
        instant() + patience.min(self.shared.patience)
    }

    /// Maps a change that could not be encoded to the store's own error.
    fn told<T>(&self, change: Result<T, super::codec::CodecError>) -> Result<T, StoreError> {
        change.map_err(|error| self.unreachable("writing the lock", error.to_string()))
    }

    fn unreachable(&self, doing: &'static str, why: String) -> StoreError {
        self.shared.connection.fault(doing, &Fault::Unsure(why))
    }

    /// Sleeps until the waiter's predecessor has ended, or another caller has changed the waiter's own
    /// claim.
    fn wait_in_line(
        &self,
        handle: &EtcdHandle,
        waiting: &Waiting<'_>,
        until: Option<Instant>,
    ) -> Result<Wake, StoreError> {
        let Some(watched) = self.watched(handle, waiting) else {
            return Ok(Wake::Ready);
        };
        let nap = self.nap_behind(waiting.behind, waiting.now);
        let (wake, woken) = self.sleep_on(watched, nap, until)?;
        handle.woken.store(woken, Ordering::SeqCst);
        Ok(wake)
    }

    /// What a waiter watches: its own claim, and those before it. `None` if it has to look at once.
    fn watched(
        &self,
        handle: &EtcdHandle,
        waiting: &Waiting<'_>,
    ) -> Option<Vec<watch::WatchTarget>> {
        let behind: Vec<(u64, bool)> = match waiting.behind {
            Predecessor::LivenessLock { ticket } => vec![(*ticket, true)],
            Predecessor::Turn { ticket } => vec![(*ticket, false)],
            Predecessor::Record(claim) => vec![(claim.ticket, false)],
            Predecessor::AnyOf(claims) => {
                let tickets = claims.iter().map(|claim| (claim.ticket, false));
                tickets.collect()
            }
            // The etcd store leaves a waiter that does not act to its lease.
            Predecessor::Still { .. } => return None,
        };
        let own = self.shared.keys.claim(&handle.name, &handle.id);
        let mut watched = Vec::new();
        {
            let seen = handle.seen();
            watched.push(watch::WatchTarget::changes(own, seen.own + 1));
            let from = seen.revision + 1;
            for (ticket, only_end) in behind {
                let (claim, lease_key) = seen.keys.get(&ticket).cloned()?;
                watched.push(if only_end {
                    watch::WatchTarget::end(claim, from)
                } else {
                    watch::WatchTarget::changes(claim, from)
                });
                watched.push(watch::WatchTarget::end(lease_key, from));
            }
        }
        Some(watched)
    }

    /// Sleeps until something has happened to any claim of a lock.
    fn wait_outside(
        &self,
        waiting: &Waiting<'_>,
        until: Option<Instant>,
    ) -> Result<Wake, StoreError> {
        let Some(since) = waiting.since else {
            return Ok(Wake::Ready);
        };
        let keys = &self.shared.keys;
        let from = i64::try_from(since).unwrap_or(0) + 1;
        let range = |prefix: String, only_end| watch::WatchTarget {
            end: Some(end_of(&prefix)),
            key: prefix,
            only_end,
            from,
            known: None,
        };
        let watched = vec![
            range(keys.claims(waiting.name), false),
            range(keys.lease_keys(waiting.name), true),
        ];
        let nap = self.nap_behind(waiting.behind, waiting.now);
        let (wake, _) = self.sleep_on(watched, nap, until)?;
        Ok(wake)
    }

    /// How long to sleep at most behind this predecessor.
    fn nap_behind(&self, behind: &Predecessor, now: &Now) -> Duration {
        let claims = match behind {
            Predecessor::Record(claim) => std::slice::from_ref(&**claim),
            Predecessor::AnyOf(claims) => claims,
            Predecessor::LivenessLock { .. }
            | Predecessor::Turn { .. }
            | Predecessor::Still { .. } => &[],
        };
        let naps = claims.iter().map(|claim| self.nap(claim, now));
        naps.min().unwrap_or(RECORD_NAP_MAX)
    }

    /// How long a record can be relied on without a look at its age.
    fn nap(&self, claim: &Claim, now: &Now) -> Duration {
        let boot = claim.boot();
        let rest_ms = claim.lease.remaining_ms(boot, now);
        let limited_ms = claim.limited_ms(&self.shared.rules.policy, now);
        let rest_ms = rest_ms.min(limited_ms.unwrap_or(u64::MAX));
        // A claim that is past its ttl and still counts lives by something else.
        match rest_ms {
            0 => Duration::from_secs(1),
            rest_ms => Duration::from_millis(rest_ms + 1).clamp(RECORD_NAP_MIN, RECORD_NAP_MAX),
        }
    }

    /// Sleeps. Answers how the sleep ended, and whether an event ended it.
    fn sleep_on(
        &self,
        watched: Vec<watch::WatchTarget>,
        nap: Duration,
        until: Option<Instant>,
    ) -> Result<(Wake, bool), StoreError> {
        let notices = watch::Notices::of(&self.shared.connection, watched)?;
        let slept = self
            .shared
            .sleeper
            .poll(&[notices.descriptor().as_fd()], nap, until);
        let wake = slept.map_err(|source| StoreError::Io {
            place: self.shared.connection.place().to_owned(),
            doing: "waiting",
            source,
        })?;
        let rung = rustix::io::read(notices.descriptor(), &mut [0; 1]);
        Ok((wake, rung.is_ok_and(|read| read > 0)))
    }
}

impl Store for EtcdStore {
    fn rules(&self) -> &Rules {
        &self.shared.rules
    }

    fn location(&self, name: &LockName) -> Location {
        Location {
            shown: format!("{}/locks/{name}", self.shared.connection.place()),
            file: None,
        }
    }

    fn read(&self, name: &LockName, of: Option<&dyn Handle>) -> Result<Reading, StoreError> {
        let handle = self.own(name, of)?;
        let scope = handle.map_or(Scope::All, EtcdHandle::own);
        let list = self.load(name, &scope, self.end())?;
        // A hold of an earlier epoch is lost, even if servers that were set back still have it.
        let is_lost =
            |handle: &EtcdHandle| handle.is_of_earlier_epoch() && handle.seen().granted.is_some();
        let stored = list.exists() && !handle.is_some_and(is_lost);
        let content = if let Some(unreadable) = list.unreadable.first() {
            Content::Unreadable {
                why: unreadable.why.clone(),
                silence: Silence::BROKEN,
            }
        } else {
            if let Some(handle) = handle.filter(|handle| list.row(handle.ticket).is_none()) {
                handle.note_claim(None, &list);
            }
            let here = &self.shared.here;
            let claims = list.entry.claims.iter();
            Content::Whole {
                evidence: claims.map(|claim| list.evidence(here, claim)).collect(),
                entry: list.entry,
            }
        };
        Ok(Reading {
            place: self.location(name).shown,
            content,
            // A stopped process renews nothing, so its claim dies by its ttl, wherever it stands.
            stopped: Vec::new(),
            stored,
            record: Vec::new(),
        })
    }

    fn transact(
        &self,
        ask: &Ask<'_>,
        change: &mut dyn FnMut(&mut Draft<'_>) -> Step,
    ) -> Result<Outcome, StoreError> {
        let handle = self.own(ask.name, ask.about.handle())?;
        // The lease key of a claim is attached to the lease of the caller that made it, even if another
        // caller asks.
        let store = handle.map_or_else(|| self.clone(), EtcdHandle::store);
        Transaction::new(&store, ask, handle, change).commit()
    }

    fn wait(&self, waiting: &Waiting<'_>, until: Option<Instant>) -> Result<Wake, StoreError> {
        match self.own(waiting.name, waiting.by)? {
            Some(handle) => self.wait_in_line(handle, waiting, until),
            None => self.wait_outside(waiting, until),
        }
    }

    fn park(&self, waiting: &Waiting<'_>, ring: &Ring) -> Result<Option<Parked>, StoreError> {
        let Some(handle) = self.own(waiting.name, waiting.by)? else {
            return Ok(None);
        };
        let Some(watched) = self.watched(handle, waiting) else {
            ring();
            return Ok(Some(Parked {
                until: None,
                listens: Box::new(()),
            }));
        };
        let (woken, ring) = (Arc::clone(&handle.woken), Arc::clone(ring));
        woken.store(false, Ordering::SeqCst);
        let rings = move || {
            woken.store(true, Ordering::SeqCst);
            ring();
        };
        let listens = watch::Task::new(&self.shared.connection, watched, rings);
        Ok(Some(Parked {
            until: instant().checked_add(self.nap_behind(waiting.behind, waiting.now)),
            listens: Box::new(listens),
        }))
    }

    fn names(&self, which: Which, each: &mut dyn FnMut(LockName)) -> Result<(), StoreError> {
        if which == Which::Leftovers {
            return Ok(());
        }
        let keys = self.shared.keys.clone();
        let endpoints = Arc::clone(self.shared.connection.endpoints());
        let end = self.end();
        let names = self
            .shared
            .connection
            .block("listing the locks", async move {
                let options = RangeRequest {
                    keys_only: true,
                    ..RangeRequest::default()
                };
                let (_, found) = read_range(&endpoints, &keys.locks(), options, end).await?;
                let mut names: Vec<LockName> = found
                    .iter()
                    .filter_map(|pair| keys.name_of(&pair.key))
                    .collect();
                // The keys come in order, so the keys of one lock stand beside each other.
                names.dedup();
                Ok(names)
            })?;
        names.into_iter().for_each(each);
        Ok(())
    }

    fn notices(&self, of: &dyn Handle) -> Option<Notices> {
        let handle = self.own(of.name(), Some(of)).ok()??;
        Some(Notices {
            descriptor: self.notices(handle).ok()?,
            ends_with_renewal: false,
        })
    }
}
