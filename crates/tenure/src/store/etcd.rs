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
mod api;
mod change;
mod connect;
mod driver;
mod enter;
mod ids;
mod keys;
mod left;
mod link;
mod list;
mod seat;
mod session;
mod turn;
mod value;
mod watch;

pub use address::{Address, AddressError, Credentials, CredentialsError};
pub use seat::Seat;

use super::file::Sleeper;
use super::{
    Advanced, Cleaned, Content, Entered, ForcedRelease, Reading, RenewedOwned, Store, StoreError,
    Wake,
};
use crate::clock::{Clock, SystemClock, instant};
use api::{Compare, CompareOp, GetOptions, Txn, TxnOp};
use change::{Commit, Scope, read_range};
use enter::Entrance;
use ids::Ids;
use keys::{Keys, end_of};
use left::Leavings;
use link::{Fault, Link, Pause, is_full};
use list::Guard;
use seat::SeatState;
use session::Sessions;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use tenure_core::{
    Claim, Entry, Force, Forced, History, Host, Kind, Left, LockName, Mode, Now, Ownership, Policy,
    Predecessor, Process, Released, Renewal, Request, Standing, StopRequest, WaitingFor,
};

/// How long a call tries before it says that etcd cannot be reached. An election takes one to two
/// seconds, and a request that a dying member swallows two more.
pub const PATIENCE: Duration = Duration::from_secs(6);

/// The least time that a renewal is given, however short the ttl.
const RENEWAL_MIN: Duration = Duration::from_millis(200);

/// The same once etcd has been out of reach for that long.
const PATIENCE_LEFT: Duration = Duration::from_secs(1);

/// How often a claim is looked at whose process on this machine may end without etcd knowing.
const PROCESS_NAP: Duration = Duration::from_millis(500);

/// How long a sleep behind a record lasts at least, and at most.
const RECORD_NAP_MIN: Duration = Duration::from_millis(10);
const RECORD_NAP_MAX: Duration = Duration::from_secs(10);

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
    ids: Ids,
    left: Leavings,
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.sessions.give_back(&self.link);
    }
}

impl std::fmt::Debug for EtcdStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EtcdStore")
            .field("place", &self.shared.link.place())
            .finish_non_exhaustive()
    }
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
                ids: Ids::default(),
                left: Leavings::default(),
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
    /// life has ended, for as long as the seat is there. Read what is in it.
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
        let (reads, task) = watch::lasting(&self.shared.link, watched)?;
        seat.state().watches.extend(task);
        Ok(reads)
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
                stopped: Vec::new(),
            });
        }
        let evidence = list.entry.claims.iter().map(self.evidence(&list)).collect();
        Ok(Reading {
            place,
            content: Content::Whole {
                entry: list.entry,
                evidence,
            },
            // A stopped process renews nothing: its claim dies by its ttl, wherever it stands.
            stopped: Vec::new(),
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
                // Nobody is seen to be stopped here.
                Predecessor::Stopped { .. } => return Ok(Wake::Ready),
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
                    renewal => Ok(seat.told(renewal)),
                };
            }
            made => made.inspect_err(|_| seat.doubtful.store(true, Ordering::SeqCst))?,
        };
        if let Some(revision) = made.revision {
            seat.saw(revision);
        }
        Ok(seat.told(made.answer))
    }

    fn verify(&self, seat: &Seat) -> Result<Renewal, StoreError> {
        let list = self.load(&seat.name, &seat.own(), self.end())?;
        let is_dark = list.row(seat.ticket).is_some_and(|row| !row.alive());
        if is_dark && seat.kind == Kind::Kernel {
            // Nobody has taken it yet, and anybody may: that it stands is worth nothing before its
            // life is lit again.
            return self.renew(seat, &self.shared.clock.now());
        }
        Ok(seat.told(list.entry.verify(seat.ticket)))
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
        if !tried && made.revision.is_some() {
            seat.give_back_id();
        }
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

    fn cancel(
        &self,
        name: &LockName,
        by: StopRequest<'_>,
        now: &Now,
    ) -> Result<Vec<Claim>, StoreError> {
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
    /// remembered of it. With what that would have come to, for it may have been carried out without
    /// an answer.
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
            ended: None,
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
            // Only the end of a hold writes it, and there is no other hold beside one that is alone.
            if claim.mode != Mode::Exclusive {
                let same = Compare::mod_revision(key.clone(), CompareOp::Equal, modified);
                compares.push(same);
            }
            let value = self.told(value::encode_header(entry.history))?;
            operations.push(TxnOp::put(key, value, None));
        }
        let committed = self.commit(Txn::new().when(compares).and_then(operations))?;
        if let Commit::Done(revision) = committed {
            seat.settled.store(true, Ordering::SeqCst);
            seat.give_back_id();
            if let Some((_, found)) = header {
                let left = &self.shared.left;
                left.note(&seat.name, found, entry.history, revision);
            }
        }
        Ok((left, committed))
    }
}
