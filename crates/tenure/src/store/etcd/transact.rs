//! One call of [`Store::transact`](crate::store::contract::Store::transact): shows the list to a change,
//! commits what the change made of it, and begins anew if it was overtaken.
//!
//! What a transaction is conditional on is the business of `list`; which list is tried without a look,
//! of `expect`.
//!
//! # Answers that never come
//! The call finds out what became of such a transaction before it does anything else. If that was to
//! make a claim, the attempt is buried (`attempt`). Any other one is looked for by its [`Footprint`]: what
//! it would have left in the list. If that is there, and no other process can have left it, it was carried
//! out. Else the change runs again, which is safe: of two transactions that change the same claim, the one
//! that comes second finds its condition broken.
//!
//! # Changes that are too large
//! One transaction of etcd takes so much. A change that is larger is committed in parts, each of which
//! rests on the claims alone that it writes. The claims that a part has removed are shown to the next run
//! once more, as they were judged: so the run that counts tells of all of them.

use super::attempt::Attempt;
use super::handle::EtcdHandle;
use super::link::{Fault, Pause, is_full, revision_of};
use super::list::{Change, Guard, Light, List, Row, SWEPT_AT_ONCE, Writing, number};
use super::read::Scope;
use super::session::{self, Session};
use super::{EtcdStore, OVERTAKEN_AT_ONCE, RENEWAL_MIN};
use crate::clock::{Clock, instant};
use crate::store::StoreError;
use crate::store::contract::{
    About, Ask, Committed, Corrupt, Depth, Draft, Handle, NewClaim, Outcome, RestsOn, Run, Step,
    Write,
};
use etcd_client::{Txn, TxnResponse};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tenure_core::{Beacon, Claim, Entry, Event, Evidence, Host, Kind};

/// One call.
pub(super) struct Transaction<'a> {
    pub(super) store: &'a EtcdStore,
    pub(super) ask: &'a Ask<'a>,
    pub(super) handle: Option<&'a EtcdHandle>,
    change: &'a mut dyn FnMut(&mut Draft<'_>) -> Step,
    pub(super) end: Instant,
    /// What is read of the lock.
    scope: Scope,
    /// How often the change has run.
    runs: usize,
    /// The claim that it makes.
    pub(super) attempt: Option<Attempt>,
    /// The lease of a detached hold, kept from one try to the next, and its ttl.
    pulse: Option<(u64, i64)>,
    /// A run that may have been carried out.
    unsure: Option<(Footprint, Tried)>,
    /// There was one.
    was_unsure: bool,
    /// What an earlier part has removed, or may have.
    swept: Vec<Swept>,
}

/// A claim that an earlier part of a change has removed, as it was judged.
struct Swept {
    claim: Claim,
    evidence: Evidence,
}

impl Swept {
    /// What `after` is without.
    fn by(before: &List, after: &Entry, here: &Host) -> Vec<Self> {
        let claims = before.entry.claims.iter();
        let gone = claims.filter(|claim| after.claim(claim.ticket).is_none());
        gone.map(|claim| Self {
            claim: claim.clone(),
            evidence: before.evidence(here, claim),
        })
        .collect()
    }

    fn is_gone(&self, list: &List) -> bool {
        list.row(self.claim.ticket).is_none()
    }
}

/// One run of the change, not committed yet.
pub(super) struct Tried {
    pub(super) run: usize,
    pub(super) step: Step,
    pub(super) entry: Entry,
    pub(super) events: Vec<Event>,
}

impl Tried {
    pub(super) fn write(&self) -> Option<Write> {
        match self.step {
            Step::Write(write) => Some(write),
            Step::Keep | Step::ShowAll => None,
        }
    }

    /// The claim that it makes.
    pub(super) fn makes(&self) -> Option<NewClaim> {
        self.write()?.makes
    }
}

/// What a run would leave in the list, by which it is known again.
struct Footprint {
    gone: Vec<Swept>,
    wrote: Vec<Claim>,
    removes: bool,
    discards: bool,
}

impl Footprint {
    /// `None` if it would not leave anything by which it could be known.
    fn of(before: &List, tried: &Tried, here: &Host) -> Option<Self> {
        let write = tried.write()?;
        let discards = write.discards && !before.unreadable.is_empty();
        let gone = Swept::by(before, &tried.entry, here);
        let (before, after) = (&before.entry, &tried.entry);
        let wrote = after.claims.iter().filter(|claim| {
            let seen = before.claim(claim.ticket);
            seen.is_some_and(|seen| seen != *claim)
        });
        let footprint = Self {
            gone,
            wrote: wrote.map(without_token).collect(),
            removes: write.removes,
            discards,
        };
        let is_seen = !footprint.gone.is_empty()
            || !footprint.wrote.is_empty()
            || footprint.removes
            || footprint.discards;
        is_seen.then_some(footprint)
    }

    fn is_in(&self, list: &List) -> bool {
        let entry = &list.entry;
        let stands = |wrote: &Claim| {
            let claim = entry.claim(wrote.ticket);
            claim.is_some_and(|claim| without_token(claim) == *wrote)
        };
        (!self.removes || !list.exists())
            && (!self.discards || list.unreadable.is_empty())
            && self.gone.iter().all(|gone| gone.is_gone(list))
            && self.wrote.iter().all(stands)
    }
}

/// A claim, of whose token it only counts whether it has one: etcd gives the number.
fn without_token(claim: &Claim) -> Claim {
    Claim {
        token: claim.token.map(|_| 0),
        ..claim.clone()
    }
}

/// What became of a try.
pub(super) enum Did {
    Known(Outcome),
    /// It is to be looked at again, at once; on this list if there is one.
    Again(Option<List>),
    /// Another process was quicker. The list is another one by now, perhaps this one.
    Overtaken(Option<List>),
    /// Nothing that is known of.
    Nothing(String),
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

impl<'a> Transaction<'a> {
    pub(super) fn new(
        store: &'a EtcdStore,
        ask: &'a Ask<'a>,
        handle: Option<&'a EtcdHandle>,
        change: &'a mut dyn FnMut(&mut Draft<'_>) -> Step,
    ) -> Self {
        let end = store.end();
        let end = ask
            .within
            .map_or(end, |within| end.min(instant() + within.max(RENEWAL_MIN)));
        let scope = match (ask.about, handle) {
            (About::Own(_) | About::Renewal(_), Some(handle)) => handle.own(),
            // Of a claim that was never away, only those before it matter: whoever is granted behind it
            // has counted it, with what it tolerates, and is overtaken if it has changed since. Behind
            // a claim that came back, somebody may hold who has not.
            (About::Turn(_), Some(handle)) if handle.only_those_before_matter() => {
                Scope::Upto(handle.ticket)
            }
            _ => Scope::All,
        };
        Self {
            store,
            ask,
            handle,
            change,
            end,
            scope,
            runs: 0,
            attempt: None,
            pulse: None,
            unsure: None,
            was_unsure: false,
            swept: Vec::new(),
        }
    }

    /// Tries until it is known what became of the change.
    pub(super) fn commit(mut self) -> Result<Outcome, StoreError> {
        if let (About::Renewal(_), Some(handle)) = (self.ask.about, self.handle) {
            self.renew_lease(handle)?;
        }
        let known = self.until_known();
        if let (About::Turn(_) | About::Renewal(_), Some(handle), Err(_)) =
            (self.ask.about, self.handle, &known)
        {
            handle.doubt();
        }
        known
    }

    /// The lease first: a claim that is written while its lease runs out is no sign of life. Its life is
    /// lit anew if it hangs on any other lease than the one that is renewed here.
    fn renew_lease(&mut self, handle: &EtcdHandle) -> Result<(), StoreError> {
        // Whoever renews has to know in time that it did not work.
        let third = Duration::from_millis(handle.ttl_ms / 3);
        self.end = self.end.min(instant() + third.max(RENEWAL_MIN));
        if handle.kind != Kind::Kernel {
            return Ok(());
        }
        let (shared, end) = (&self.store.shared, self.end);
        let session = self.store.session(handle.ttl_ms, end)?;
        let endpoints = Arc::clone(shared.link.endpoints());
        let began_ms = shared.clock.now().boot_ms;
        shared.link.block("renewing the lease", async move {
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
        })
    }

    fn until_known(&mut self) -> Result<Outcome, StoreError> {
        let mut expects = true;
        let mut known = None;
        let mut overtaken = 0;
        let mut pause = Pause::default();
        loop {
            let did = if std::mem::take(&mut expects) {
                self.expected()?
            } else {
                let list = match known.take() {
                    Some(list) => list,
                    None => self.store.load(self.ask.name, &self.scope, self.end)?,
                };
                self.looked(&list)?
            };
            let why = match did {
                Did::Known(outcome) => {
                    // Every attempt by this name was answered, and made nothing.
                    if let Some(attempt) = self.attempt.take() {
                        self.store.shared.ids.give_back(&attempt.id);
                    }
                    return Ok(outcome);
                }
                Did::Again(list) => {
                    known = list;
                    continue;
                }
                Did::Overtaken(list) if overtaken < OVERTAKEN_AT_ONCE => {
                    known = list;
                    overtaken += 1;
                    continue;
                }
                Did::Overtaken(_) => {
                    // Or its name is taken by something that nobody made out.
                    self.begin_anew();
                    "it changes again and again".to_owned()
                }
                Did::Nothing(why) => why,
            };
            if !Pause::fits(self.end) {
                return Err(self.store.unreachable("writing the lock", why));
            }
            std::thread::sleep(pause.next());
        }
    }

    /// Gives the next attempt a name that no other one has.
    pub(super) fn begin_anew(&mut self) {
        self.attempt = self.attempt.take().map(|attempt| self.store.anew(&attempt));
    }

    /// Runs the change on a list. `relit` is a claim whose life is lit by the same transaction.
    pub(super) fn run(&mut self, list: &List, relit: Option<u64>) -> Tried {
        let (here, swept) = (&self.store.shared.here, &self.swept);
        let removed = |claim: &Claim| swept.iter().find(|seen| seen.claim.ticket == claim.ticket);
        let evidence = |claim: &Claim, _: Depth| match removed(claim) {
            Some(seen) => seen.evidence,
            None if relit == Some(claim.ticket) => Evidence {
                beacon: Beacon::Lit,
                ..list.evidence(here, claim)
            },
            None => list.evidence(here, claim),
        };
        let mut entry = list.entry.clone();
        entry
            .claims
            .extend(swept.iter().map(|seen| seen.claim.clone()));
        entry.claims.sort_by_key(|claim| claim.ticket);
        let mut draft = Draft {
            entry,
            events: Vec::new(),
            unread: 0,
            corrupt: self.corrupt(list),
            evidence: &evidence,
            // A stopped process renews nothing: its claim dies by its ttl, wherever it stands.
            stopped: &|_| false,
            entered: &|| false,
        };
        let step = (self.change)(&mut draft);
        let Draft {
            mut entry, events, ..
        } = draft;
        entry.claims.retain(|claim| removed(claim).is_none());
        self.runs += 1;
        Tried {
            run: self.runs - 1,
            step,
            entry,
            events,
        }
    }

    fn corrupt(&self, list: &List) -> Option<Corrupt> {
        let first = list.unreadable.first()?;
        let is_newer = list.unreadable.iter().any(|unreadable| unreadable.is_newer);
        Some(Corrupt {
            why: first.why.clone(),
            place: format!("{}: {}", self.store.shared.link.place(), first.shown()),
            // etcd does not say when a key was written, so it counts as written just now.
            silent_ms: 0,
            record: Vec::new(),
            is_record: true,
            refuses: true,
            sealed: is_newer.then_some("a newer version wrote it"),
        })
    }

    /// One try on a list that was read.
    fn looked(&mut self, list: &List) -> Result<Did, StoreError> {
        // What is still there was not removed after all.
        self.swept.retain(|swept| swept.is_gone(list));
        if let Some(known) = self.carried_out(list) {
            return Ok(Did::Known(Outcome::Done(known)));
        }
        if !list.exists() && !matches!(self.ask.about, About::Newcomer { .. }) {
            if let Some(handle) = self.handle {
                handle.note_claim(None, list);
            }
            return Ok(Did::Known(Outcome::Absent));
        }
        let light = self.own_light(list)?;
        let mut tried = self.run(list, light.as_ref().map(|light| light.ticket));
        if tried.step == Step::ShowAll && !matches!(self.scope, Scope::All) {
            self.scope = Scope::All;
            return Ok(Did::Again(None));
        }
        let mut lights: Vec<Light> = light.into_iter().collect();
        let Some(write) = tried.write() else {
            // A life that has run out is lit again in any case, but for a renewal of nothing.
            if !matches!(self.ask.about, About::Turn(_)) {
                lights.clear();
            }
            let kept = std::mem::replace(&mut tried.entry, list.entry.clone());
            let did = self.write(list, tried, Write::PLAIN, &lights)?;
            return Ok(match did {
                Did::Known(Outcome::Done(done)) => Did::Known(Outcome::Done(Committed {
                    entry: kept,
                    ..done
                })),
                did => did,
            });
        };
        if let Some(made) = write.makes {
            lights.push(self.light(list, &tried.entry, made)?);
        }
        self.count_from_the_last_sign(list, &mut tried);
        self.light_pulses(list, &tried.entry, &mut lights)?;
        self.write(list, tried, write, &lights)
    }

    /// Writes what a run has made of a list.
    fn write(
        &mut self,
        list: &List,
        tried: Tried,
        write: Write,
        lights: &[Light],
    ) -> Result<Did, StoreError> {
        let (store, name) = (self.store, self.ask.name);
        let writing = Writing {
            guard: self.guard(list, &tried.entry, write.rests_on),
            lights,
            discards: if write.discards {
                &list.unreadable
            } else {
                &[]
            },
            removes: write.removes,
        };
        let change = || store.told(list.change(&store.shared.keys, name, &tried.entry, &writing));
        let first = match change()? {
            None => return Ok(Did::Known(Outcome::Done(self.done(list, tried, None)))),
            Some(first) if !first.fits() => return self.write_a_part(list, &tried.entry, write),
            Some(first) => first,
        };
        let committed = match store.commit_or_remove(first, || Ok(change()?.unwrap_or_default())) {
            // The lease is renewed, which is what counts; only the record does not say so.
            Err(error) if is_full(&error) && self.is_renewed(list) => {
                return Ok(Did::Known(Outcome::Done(self.done(list, tried, None))));
            }
            committed => committed?,
        };
        Ok(match committed {
            Commit::Done(revision) => {
                let done = self.done(list, tried, Some(revision));
                Did::Known(Outcome::Done(done))
            }
            Commit::Overtaken => Did::Overtaken(None),
            Commit::Unsure(why) => return self.lost(list, tried, why),
            Commit::LeaseGone => {
                for light in lights {
                    store.shared.sessions.forget(light.lease);
                }
                (self.attempt, self.pulse) = (None, None);
                Did::Nothing("the lease has run out".to_owned())
            }
        })
    }

    /// What a change rests on, beyond what it writes. Removals need no condition (`list`).
    fn guard(&self, list: &List, after: &Entry, rests_on: RestsOn) -> Guard {
        let grants = || {
            let mut granted = after.granted();
            granted.any(|claim| {
                let seen = list.entry.claim(claim.ticket);
                seen.is_none_or(|seen| seen.token.is_none())
            })
        };
        match (rests_on, &self.scope) {
            (RestsOn::Nothing, _) => Guard::None,
            (RestsOn::Before, _) if !grants() => Guard::None,
            (RestsOn::Before, Scope::Upto(ticket)) => Guard::Upto(*ticket),
            (RestsOn::Before | RestsOn::All, _) => Guard::All,
        }
    }

    /// Commits as much of a change as one transaction takes.
    fn write_a_part(
        &mut self,
        list: &List,
        after: &Entry,
        write: Write,
    ) -> Result<Did, StoreError> {
        let store = self.store;
        let junk = list.unreadable.chunks(SWEPT_AT_ONCE).next();
        let junk = junk.filter(|_| write.discards);
        let part = match junk {
            Some(_) => list.entry.clone(),
            None => list.part_of(after),
        };
        let writing = Writing {
            discards: junk.unwrap_or_default(),
            ..Writing::PLAIN
        };
        let change = list.change(&store.shared.keys, self.ask.name, &part, &writing);
        let change = store.told(change)?.filter(Change::fits);
        let Some(change) = change else {
            return Err(store.unreachable(
                "writing the lock",
                "the change is larger than a transaction of etcd may be".to_owned(),
            ));
        };
        let commit = store.commit(change.into_txn())?;
        // Whether it was carried out or overtaken, the next look sees.
        if let Commit::Done(_) | Commit::Unsure(_) = commit {
            let here = &store.shared.here;
            self.swept.extend(Swept::by(list, &part, here));
        }
        Ok(Did::Again(None))
    }

    /// Whether the life of the claim that is renewed hangs on the lease that was.
    fn is_renewed(&self, list: &List) -> bool {
        let (About::Renewal(_), Some(handle)) = (self.ask.about, self.handle) else {
            return false;
        };
        let session = self.store.shared.sessions.present(handle.ttl_ms);
        let row = list.row(handle.ticket);
        row.is_some_and(|row| session.is_some_and(|session| session.lease == row.lease))
    }

    /// Finds out what became of a transaction whose answer was lost, if that can be done at once.
    pub(super) fn lost(
        &mut self,
        list: &List,
        tried: Tried,
        why: String,
    ) -> Result<Did, StoreError> {
        let (Some(made), Some(attempt)) = (tried.makes(), self.attempt.clone()) else {
            self.was_unsure = true;
            let footprint = Footprint::of(list, &tried, &self.store.shared.here);
            self.unsure = footprint.map(|footprint| (footprint, tried));
            return Ok(Did::Nothing(why));
        };
        let claim = list.row(made.ticket).map_or(&attempt.id, |row| &row.id);
        let found = self.store.bury(self.ask.name, &attempt, claim, self.end)?;
        let row = found.rows.iter().find(|row| row.written.life == attempt.id);
        let Some(row) = row else {
            self.begin_anew();
            return Ok(Did::Nothing(why));
        };
        let (ticket, token) = (row.written.claim.ticket, row.written.claim.token);
        let handle = self.found(&found, row);
        // Of the burials that were not answered one may still come, and make a life.
        handle.doubt();
        self.attempt = None;
        // A claim that was to hold at once may have been put at the end instead.
        let is_it = tried.entry.claim(made.ticket);
        let is_it = is_it.is_some_and(|claim| claim.token.is_some() == token.is_some());
        let mut events = if is_it { tried.events } else { Vec::new() };
        settle_events(&mut events, token);
        Ok(Did::Known(Outcome::Done(Committed {
            run: if is_it {
                Run::Nth(tried.run)
            } else {
                Run::Unseen
            },
            entry: found.entry,
            events,
            unread: 0,
            record: Vec::new(),
            own: Some(ticket),
            handle: Some(Box::new(handle)),
        })))
    }

    /// The run that may have been carried out, if the list shows that it was.
    fn carried_out(&mut self, list: &List) -> Option<Committed> {
        let (footprint, mut tried) = self.unsure.take()?;
        // No other process removes a claim, or writes it so, while its lease runs.
        let is_certain = self.handle.is_none_or(EtcdHandle::is_certain);
        if !is_certain || !footprint.is_in(list) {
            if self.handle.is_none() {
                // Another process has changed the rest meanwhile, by whatever was left.
                let gone = footprint.gone.into_iter();
                self.swept.extend(gone.filter(|swept| swept.is_gone(list)));
            }
            return None;
        }
        let own = self
            .handle
            .and_then(|handle| list.entry.claim(handle.ticket));
        settle_events(&mut tried.events, own.and_then(|claim| claim.token));
        self.noted(list, &list.entry, Some(list.revision));
        Some(Committed {
            run: Run::Nth(tried.run),
            entry: list.entry.clone(),
            events: tried.events,
            unread: 0,
            record: Vec::new(),
            own: None,
            handle: None,
        })
    }

    /// What was committed at `revision`, with the numbers that etcd has given out; or what was found,
    /// where there was nothing to write.
    pub(super) fn done(&mut self, before: &List, tried: Tried, revision: Option<i64>) -> Committed {
        let made = tried.makes();
        let Tried {
            run,
            mut entry,
            mut events,
            ..
        } = tried;
        if let Some(revision) = revision {
            settle(before, &mut entry, revision);
            settle_events(&mut events, Some(number(revision)));
        }
        self.noted(before, &entry, revision);
        let mut handle = None;
        if let (Some(made), Some(revision)) = (made, revision)
            && let Some(attempt) = self.attempt.take()
        {
            let row = before.row(made.ticket);
            let ticket = row.map_or(number(revision), |_| made.ticket);
            let id = row.map_or_else(|| attempt.id.clone(), |row| row.id.clone());
            handle = entry.claim(ticket).map(|claim| {
                let (shared, name) = (&self.store.shared, self.ask.name);
                let keys = (id, attempt.id);
                EtcdHandle::new(shared, name, claim, keys, row.is_some(), (before, revision))
            });
        }
        Committed {
            run: Run::Nth(run),
            entry,
            events,
            unread: 0,
            record: Vec::new(),
            own: handle.as_ref().map(|handle| handle.ticket),
            handle: handle.map(|handle| -> Box<dyn Handle> { Box::new(handle) }),
        }
    }

    /// The handle of a claim that was found in the list.
    pub(super) fn found(&self, list: &List, row: &Row) -> EtcdHandle {
        let keys = (row.id.clone(), row.written.life.clone());
        let (shared, name) = (&self.store.shared, self.ask.name);
        let was_away = row.written.was_away;
        let claim = &row.written.claim;
        EtcdHandle::new(shared, name, claim, keys, was_away, (list, list.revision))
    }

    /// What the handle of a change has seen by it.
    fn noted(&self, before: &List, after: &Entry, revision: Option<i64>) {
        let Some(handle) = self.handle else {
            return;
        };
        if let About::Turn(_) = self.ask.about {
            handle.remember(before);
            handle.saw(before.revision);
        }
        let claim = after.claim(handle.ticket);
        if let Some(revision) = revision {
            // It was written since that list.
            handle.seen().waiting = None;
            handle.saw(revision);
        }
        if claim.is_some() || before.unreadable.is_empty() {
            handle.note_claim(claim, before);
        }
        if claim.is_none() && revision.is_some() && !self.was_unsure {
            handle.give_back_id();
        }
    }

    /// The life of a claim that is made.
    pub(super) fn light(
        &mut self,
        list: &List,
        after: &Entry,
        made: NewClaim,
    ) -> Result<Light, StoreError> {
        let ttl_ms = after
            .claim(made.ticket)
            .map_or(0, |claim| claim.lease.ttl_ms);
        let attempt = match self.attempt.take() {
            Some(attempt) => attempt,
            None => self.store.attempt(ttl_ms, self.end)?,
        };
        let light = Light {
            ticket: made.ticket,
            id: list.row(made.ticket).is_none().then(|| attempt.id.clone()),
            life: attempt.id.clone(),
            lease: attempt.session.lease,
            is_new: true,
        };
        self.attempt = Some(attempt);
        Ok(light)
    }

    /// What an own change has to light: its life, if it has run out or hangs on another lease than the
    /// one that this process keeps alive now.
    fn own_light(&self, list: &List) -> Result<Option<Light>, StoreError> {
        let (About::Turn(_) | About::Renewal(_), Some(handle)) = (self.ask.about, self.handle)
        else {
            return Ok(None);
        };
        let Some(row) = list.row(handle.ticket) else {
            return Ok(None);
        };
        let waits = row.written.claim.token.is_none();
        if row.written.life != handle.life || !(waits || handle.kind == Kind::Kernel) {
            return Ok(None);
        }
        let session = self.store.session(handle.ttl_ms, self.end)?;
        Ok((row.lease != session.lease).then(|| Light {
            ticket: handle.ticket,
            id: None,
            life: handle.life.clone(),
            lease: session.lease,
            is_new: false,
        }))
    }

    /// A detached hold lives by a lease of its own, from the grant on and anew with each renewal.
    fn light_pulses(
        &mut self,
        before: &List,
        after: &Entry,
        lights: &mut Vec<Light>,
    ) -> Result<(), StoreError> {
        for claim in after.granted().filter(|claim| claim.kind == Kind::Detached) {
            let seen = before.entry.claim(claim.ticket);
            let is_renewed = seen.is_none_or(|seen| {
                seen.token.is_none() || seen.lease.renewals != claim.lease.renewals
            });
            if !is_renewed {
                continue;
            }
            let lease = self.pulse(claim.lease.ttl_ms)?;
            let lit = lights.iter_mut().find(|light| light.ticket == claim.ticket);
            match (lit, before.row(claim.ticket)) {
                (Some(light), _) => light.lease = lease,
                (None, Some(row)) => lights.push(Light {
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

    /// A lease that nobody keeps alive but its owner's heartbeats.
    fn pulse(&mut self, ttl_ms: u64) -> Result<i64, StoreError> {
        if let Some((_, lease)) = self.pulse.filter(|(ttl, _)| *ttl == ttl_ms) {
            return Ok(lease);
        }
        let link = &self.store.shared.link;
        let (endpoints, end) = (Arc::clone(link.endpoints()), self.end);
        let lease = link.block("taking a lease", async move {
            session::grant(&endpoints, ttl_ms, end).await
        })?;
        self.pulse = Some((ttl_ms, lease));
        Ok(lease)
    }

    /// A claim of this process counts from the last sign of life that etcd has had of it: the one that is
    /// made, and the one that is granted.
    pub(super) fn count_from_the_last_sign(&self, before: &List, tried: &mut Tried) {
        let (made, attempt) = (tried.makes(), self.attempt.as_ref());
        let (ticket, session) = match (made, attempt, self.ask.about, self.handle) {
            (Some(made), Some(attempt), ..) => (made.ticket, Some(Arc::clone(&attempt.session))),
            (None, _, About::Turn(_), Some(handle)) => {
                let session = self.store.shared.sessions.present(handle.ttl_ms);
                (handle.ticket, session)
            }
            _ => return,
        };
        let seen = before.entry.claim(ticket);
        let is_ours = made.is_some() || seen.is_some_and(|seen| seen.token.is_none());
        if let (Some(claim), Some(session), true) =
            (tried.entry.claim_mut(ticket), session, is_ours)
            && claim.kind == Kind::Kernel
            && (made.is_some() || claim.token.is_some())
        {
            claim.lease.renewed = session.last_sign(self.ask.now);
        }
    }
}

impl EtcdStore {
    /// Commits one transaction.
    pub(super) fn commit(&self, txn: Txn) -> Result<Commit, StoreError> {
        Ok(match self.ask(txn)? {
            Ok(answer) if answer.succeeded() => Commit::Done(revision_of(answer.header())),
            Ok(_) => Commit::Overtaken,
            Err(Undone::Unsure(why)) => Commit::Unsure(why),
            Err(Undone::LeaseGone) => Commit::LeaseGone,
        })
    }

    /// Commits a change. An etcd whose disk is full takes what only removes; then nothing is remembered of
    /// the hold.
    pub(super) fn commit_or_remove(
        &self,
        change: Change,
        again: impl FnOnce() -> Result<Change, StoreError>,
    ) -> Result<Commit, StoreError> {
        match self.commit(change.into_txn()) {
            Err(error) if is_full(&error) => match again()?.into_bare_removal() {
                Some(bare) => self.commit(bare.into_txn()),
                None => Err(error),
            },
            committed => committed,
        }
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
fn settle_events(events: &mut [Event], token: Option<u64>) {
    for event in events {
        if let (Event::Acquired { token: drawn }, Some(token)) = (event, token) {
            *drawn = token;
        }
    }
}
