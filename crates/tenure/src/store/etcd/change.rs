//! Reads a list, lets a step decide, and commits what it changed; begins anew if it was overtaken.
//!
//! What a step decides is up to the call; what a change is conditional on, to `list`.

use super::api::{Compare, CompareOp, GetOptions, KeyValue, Txn, TxnOp, TxnResponse};
use super::keys::{Keys, end_of};
use super::link::{Endpoints, Fault, Pause, read_by, revision_of};
use super::list::{self, Guard, Light, List, number};
use super::seat::Seat;
use super::session::{self, Session};
use super::{EtcdStore, OVERTAKEN_AT_ONCE};
use crate::clock::Clock;
use crate::store::StoreError;
use std::sync::Arc;
use std::time::Instant;
use tenure_core::{Claim, Entry, Event, Evidence, Force, Kind, LockName, Refusal};

/// How many keys are read at once: what a claim takes is below a kilobyte, and etcd's clients refuse
/// answers of four megabytes.
const PAGE: i64 = 2_000;

/// What is read of a lock.
#[derive(Debug, Clone)]
pub(super) enum Scope {
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
pub(super) struct Draft {
    pub(super) entry: Entry,
    /// What the decision rests on.
    pub(super) guard: Guard,
    pub(super) lights: Vec<Light>,
    /// What happened, for the audit.
    pub(super) events: Vec<Event>,
}

/// What became of a change.
pub(super) struct Made<T> {
    pub(super) answer: T,
    /// The list that it was made to.
    pub(super) before: List,
    /// The list afterwards.
    pub(super) after: Entry,
    /// The revision of the write; `None` if nothing had to be written.
    pub(super) revision: Option<i64>,
    pub(super) events: Vec<Event>,
}

/// Why a transaction does not count as carried out, and another try may.
pub(super) enum Undone {
    /// It may have been carried out, or yet be.
    Unsure(String),
    LeaseGone,
}

/// How a commit ended.
pub(super) enum Commit {
    Done(i64),
    /// Something of what it rests on has changed.
    Overtaken,
    Unsure(String),
    LeaseGone,
}

impl EtcdStore {
    /// Reads a lock. A scope of one claim, or of those up to one, leaves out the others.
    pub(super) fn load(
        &self,
        name: &LockName,
        scope: &Scope,
        end: Instant,
    ) -> Result<List, StoreError> {
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

    pub(super) fn evidence<'a>(&'a self, list: &'a List) -> impl Fn(&Claim) -> Evidence + 'a {
        move |claim| list.evidence(&self.shared.here, claim)
    }

    /// Commits one transaction.
    pub(super) fn commit(&self, txn: Txn) -> Result<Commit, StoreError> {
        Ok(match self.ask(txn)? {
            Ok(answer) if answer.succeeded() => Commit::Done(revision_of(answer.header())),
            Ok(_) => Commit::Overtaken,
            Err(Undone::Unsure(why)) => Commit::Unsure(why),
            Err(Undone::LeaseGone) => Commit::LeaseGone,
        })
    }

    /// Asks for one transaction, once.
    pub(super) fn ask(&self, txn: Txn) -> Result<Result<TxnResponse, Undone>, StoreError> {
        let endpoints = Arc::clone(self.shared.link.endpoints());
        self.shared.link.block("writing the lock", async move {
            let answer = endpoints.once(|client| async move { client.kv_client().txn(txn).await });
            match answer.await {
                Ok(answer) => Ok(Ok(answer)),
                Err(Fault::Unsure(why)) => Ok(Err(Undone::Unsure(why))),
                Err(Fault::LeaseGone) => Ok(Err(Undone::LeaseGone)),
                Err(refused @ (Fault::Refused(_) | Fault::Denied(_))) => Err(refused),
            }
        })
    }

    pub(super) fn session(&self, ttl_ms: u64, end: Instant) -> Result<Arc<Session>, StoreError> {
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
    pub(super) fn pulse(&self, ttl_ms: u64, end: Instant) -> Result<i64, StoreError> {
        let endpoints = Arc::clone(self.shared.link.endpoints());
        self.shared.link.block("taking a lease", async move {
            session::grant(&endpoints, ttl_ms, end).await
        })
    }

    /// A change to a lock: reads, lets `step` decide, commits what it changed, and begins anew if it
    /// was overtaken. `step` is told whether an earlier try of the same call may have been carried
    /// out.
    pub(super) fn change<T>(
        &self,
        name: &LockName,
        scope: &Scope,
        step: impl FnMut(&mut Draft, &List, bool) -> Result<T, StoreError>,
    ) -> Result<Made<T>, StoreError> {
        self.change_until(self.end(), name, scope, step)
    }

    /// The same with less patience.
    pub(super) fn change_until<T>(
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
    pub(super) fn sweep_some(
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
    pub(super) fn forget_sessions(&self, lights: &[Light]) {
        for light in lights {
            self.shared.sessions.forget(light.lease);
        }
    }

    /// A detached hold lives by a lease of its own, from the grant on and anew with each renewal.
    pub(super) fn light_pulses(
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
    pub(super) fn relight(
        &self,
        seat: &Seat,
        list: &List,
        end: Instant,
    ) -> Result<Option<Light>, StoreError> {
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
    pub(super) fn replace_unreadable(
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
    pub(super) fn unreadable(&self, list: &List) -> Result<(), StoreError> {
        match list.unreadable.first() {
            None => Ok(()),
            Some(unreadable) => Err(StoreError::Unreadable {
                place: format!("{}: {}", self.shared.link.place(), unreadable.shown()),
                why: unreadable.why.clone(),
            }),
        }
    }
}

/// Puts the numbers that etcd has given out into a list that was written at `revision`: in place of
/// those that the core drew for want of them.
pub(super) fn settle(before: &List, after: &mut Entry, revision: i64) {
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
pub(super) fn settle_events(events: &mut [Event], revision: i64) {
    for event in events {
        if let Event::Acquired { token } = event {
            *token = number(revision);
        }
    }
}

pub(super) async fn read_all(
    endpoints: &Endpoints,
    keys: &Keys,
    name: &LockName,
    end: Instant,
) -> Result<List, Fault> {
    let lock = keys.lock(name);
    let (revision, found) = read_range(endpoints, &lock, GetOptions::new(), end).await?;
    Ok(List::of(keys, name, revision, &found))
}

/// Reads a range page by page, all of it as of one revision.
pub(super) async fn read_range(
    endpoints: &Endpoints,
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
        let answer = endpoints.until(end, |client| {
            let (begin, page) = (begin.clone(), page.clone());
            async move { client.kv_client().get(begin, Some(page)).await }
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
            revision = revision_of(answer.header());
        }
        let more = answer.more();
        found.extend(answer.take_kvs());
        if !more {
            return Ok((revision, found));
        }
    }
}

/// Reads some keys at once.
pub(super) async fn read_keys(
    endpoints: &Endpoints,
    keys: &[String],
    end: Instant,
) -> Result<(i64, Vec<KeyValue>), Fault> {
    let gets: Vec<TxnOp> = keys
        .iter()
        .map(|key| TxnOp::get(key.clone(), None))
        .collect();
    let answer = endpoints
        .until(end, |client| {
            let txn = Txn::new().and_then(gets.clone());
            async move { client.kv_client().txn(txn).await }
        })
        .await?;
    Ok((revision_of(answer.header()), read_by(&answer).0))
}

/// How many lives are asked for one by one.
const LIVES_MAX: usize = 16;

/// Reads the claims up to a ticket, and then their lives.
///
/// The lives are read a moment later. One that is lit again in between writes its claim too, so a
/// change that takes it for dead is overtaken; one that has run out in between is what it is.
pub(super) async fn read_upto(
    endpoints: &Endpoints,
    keys: &Keys,
    name: &LockName,
    ticket: u64,
    end: Instant,
) -> Result<List, Fault> {
    let claims = keys.claims(name);
    let upto = i64::try_from(ticket).unwrap_or(i64::MAX);
    let options = GetOptions::new().with_max_create_revision(upto);
    let (revision, found) = read_range(endpoints, &claims, options, end).await?;
    let mut list = List::of(keys, name, revision, &found);
    let lives = list.rows.iter();
    let mut wanted: Vec<String> = lives
        .map(|row| keys.life(name, &row.written.life))
        .collect();
    if wanted.len() > LIVES_MAX {
        let lives = keys.lives(name);
        let (_, found) = read_range(endpoints, &lives, GetOptions::new(), end).await?;
        list.add(keys, name, &found);
        wanted.clear();
    }
    wanted.push(keys.header(name));
    let (_, found) = read_keys(endpoints, &wanted, end).await?;
    list.add(keys, name, &found);
    Ok(list)
}
