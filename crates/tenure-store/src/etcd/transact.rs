//! A call of [`Store::transact`](crate::contract::Store::transact): shows the list to a change,
//! commits what the change made of it, and begins anew if it was overtaken.
//!
//! `list` says what a transaction is conditional on, and `expect` says which list is tried without a
//! look.
//!
//! # Answers that never come
//! The call first finds out what became of such a transaction. If it was to make a claim, the attempt is
//! given up by a tombstone (`attempt`). Any other transaction is looked for by its [`Footprint`]: what
//! it would have left in the list. If that is there, and no other process can have left it, the
//! transaction was carried out. Otherwise the change runs again. That is safe: of two transactions that
//! change the same claim, the second one finds its condition broken.
//!
//! # Changes that are too large
//! A transaction of etcd has a limited size. A larger change is committed in parts, and each part
//! rests only on the claims that it writes. Claims that a part has removed are shown to the next run
//! once more, as they were judged. So the run that counts reports all of them.

use super::api::{TxnRequest, TxnResponse};
use super::attempt::Attempt;
use super::connection::{Fault, Pause, is_full, read_by, revision_of};
use super::floor::Floor;
use super::handle::EtcdHandle;
use super::list::{Attachment, Basis, Change, List, Row, SWEPT_AT_ONCE, Writing, number};
use super::read::Scope;
use super::{EtcdStore, OVERTAKEN_AT_ONCE, RENEWAL_MIN};
use crate::StoreError;
use crate::contract::{
    About, Ask, Committed, Corrupt, Depth, Draft, Handle, NewClaim, Outcome, Run, Step, Write,
};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;
use tenure_core::{Claim, Entry, Event, Evidence, Host, Kind, LivenessLock, RestsOn, Silence};
use tenure_os::clock::{instant, nap};

/// A call of `transact`.
pub(super) struct Transaction<'a> {
    pub(super) store: &'a EtcdStore,
    pub(super) ask: &'a Ask<'a>,
    pub(super) handle: Option<&'a EtcdHandle>,
    change: &'a mut dyn FnMut(&mut Draft<'_>) -> Step,
    /// The epoch in which the call began.
    epoch: u64,
    /// When the call gives up.
    pub(super) end: Instant,
    /// How much of the lock is read.
    scope: Scope,
    /// How often the change has run.
    runs: usize,
    /// The attempt to make its claim.
    pub(super) attempt: Option<Attempt>,
    /// The lease of a detached hold, kept from one try to the next, and its ttl.
    pub(super) pulse: Option<(u64, i64)>,
    /// The floor that its last grant counts with.
    pub(super) floor: Option<Floor>,
    /// The runs that may have been carried out, or may yet be.
    unsure: Vec<(Footprint, ChangeRun)>,
    /// The claims that an earlier part has removed, or may have removed.
    swept: Vec<Swept>,
}

/// A claim that an earlier part of a change has removed, as it was judged.
#[derive(Clone)]
struct Swept {
    claim: Claim,
    evidence: Evidence,
}

impl Swept {
    /// The claims of `before` that `after` lacks.
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

/// A run of the change, not committed yet.
pub(super) struct ChangeRun {
    pub(super) run: usize,
    pub(super) step: Step,
    pub(super) entry: Entry,
    pub(super) events: Vec<Event>,
}

impl ChangeRun {
    pub(super) fn write(&self) -> Option<Write> {
        match self.step {
            Step::Write(write) => Some(write),
            Step::Keep | Step::ShowAll => None,
        }
    }

    /// The claim that the run makes.
    pub(super) fn makes(&self) -> Option<NewClaim> {
        self.write()?.makes
    }
}

/// What a run would leave in the list; a later look recognises the run by it.
struct Footprint {
    gone: Vec<Swept>,
    wrote: Vec<Claim>,
    removes: bool,
    discards: bool,
}

impl Footprint {
    /// `None` if the run would leave nothing by which to recognise it.
    fn of(before: &List, tried: &ChangeRun, here: &Host) -> Option<Self> {
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

/// A claim with its token's number taken out, because etcd assigns the number. Only whether it has a
/// token counts.
fn without_token(claim: &Claim) -> Claim {
    let mut claim = claim.clone();
    claim.token = claim.token.map(|_| 0);
    claim
}

/// How a try ended.
pub(super) enum Did {
    Known(Outcome),
    /// The call has to look again at once, at this list if there is one.
    Again(Option<List>),
    /// Another process was faster. The list has changed by now, perhaps to this one.
    Overtaken(Option<List>),
    /// Nothing is known to have been done.
    Nothing(String),
}

/// How etcd answered a transaction.
pub(super) enum TxnAnswer {
    Done(TxnResponse),
    /// Something that it rests on has changed.
    Overtaken(TxnResponse),
    /// No answer came: it may have been carried out, or may yet be.
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
            // For a claim that was never reserved, only the claims before it matter, as long as no claim
            // went before waiting ones. A claim granted behind it has counted it, and is overtaken if it
            // has changed since. Behind a claim that came back, a claim may hold that has not counted
            // it.
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
            epoch: store.shared.connection.endpoints().cluster().epoch(),
            end,
            scope,
            runs: 0,
            attempt: None,
            pulse: None,
            floor: None,
            unsure: Vec::new(),
            swept: Vec::new(),
        }
    }

    /// Tries until it is known what became of the change.
    pub(super) fn commit(mut self) -> Result<Outcome, StoreError> {
        self.freshen()?;
        let mut known = match (self.ask.about, self.handle) {
            (About::Renewal(_), Some(handle)) => {
                let renewed = self.renew_lease(handle);
                renewed.and_then(|()| self.until_known())
            }
            _ => self.until_known(),
        };
        if let (About::Renewal(_), Some(handle), Err(_)) = (self.ask.about, self.handle, &known)
            && handle.is_of_earlier_epoch()
        {
            known = Ok(Outcome::Absent);
        }
        if let (About::Turn(_) | About::Renewal(_), Some(handle), Err(_)) =
            (self.ask.about, self.handle, &known)
        {
            handle.doubt();
        }
        known
    }

    fn until_known(&mut self) -> Result<Outcome, StoreError> {
        let mut expects = true;
        let mut known = None;
        let mut overtaken = 0;
        let mut pause = Pause::default();
        loop {
            if let (About::Renewal(_), Some(handle)) = (self.ask.about, self.handle)
                && handle.is_of_earlier_epoch()
            {
                // The servers may have granted it again, and know nothing of this hold.
                handle.note_claim(None, &List::default());
                return Ok(Outcome::Absent);
            }
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
                    // Every attempt by this name was answered, and none made anything.
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
                    // Or an unknown leftover has the attempt's name, so the next attempt gets another
                    // name.
                    self.begin_anew();
                    "it changes again and again".to_owned()
                }
                Did::Nothing(why) => why,
            };
            if !Pause::fits(self.end) {
                return Err(self.store.unreachable("writing the lock", why));
            }
            nap(pause.next());
        }
    }

    /// Gives the next attempt a name that no attempt ever had.
    pub(super) fn begin_anew(&mut self) {
        let counts = self
            .attempt
            .take()
            .filter(|attempt| !attempt.session.is_over());
        self.attempt = counts.map(|attempt| self.store.anew(&attempt));
    }

    /// Runs the change on a list. `attached` is the ticket of a claim whose lease key the same
    /// transaction attaches.
    pub(super) fn run(&mut self, list: &List, attached: Option<u64>) -> ChangeRun {
        let (here, swept) = (&self.store.shared.here, &self.swept);
        let removed = |claim: &Claim| swept.iter().find(|seen| seen.claim.ticket == claim.ticket);
        let evidence = |claim: &Claim, _: Depth| match removed(claim) {
            Some(seen) => seen.evidence,
            None if attached == Some(claim.ticket) => Evidence {
                liveness_lock: LivenessLock::Held,
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
            // A stopped process renews nothing, so its claim dies by its ttl, wherever it stands.
            stopped: &|_| false,
            entered: &|| false,
            written_ago_ms: &|| None,
        };
        let step = (self.change)(&mut draft);
        let Draft {
            mut entry, events, ..
        } = draft;
        entry.claims.retain(|claim| removed(claim).is_none());
        self.runs += 1;
        ChangeRun {
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
            place: format!(
                "{}: {}",
                self.store.shared.connection.place(),
                first.shown()
            ),
            // etcd does not say when a key was written, so it counts as written just now.
            silence: Silence::BROKEN,
            record: Vec::new(),
            is_record: true,
            refuses: true,
            sealed: is_newer.then_some("a newer version wrote it"),
        })
    }

    /// Removes claims that live by a lease of this process, and that nothing here holds: servers that were restored may
    /// have kept them. They would count for as long as this process lives. Each removal rests on its claim.
    fn remove_what_is_not_held(&self, list: &List) -> Result<bool, StoreError> {
        let (shared, name) = (&self.store.shared, self.ask.name);
        let rows = list.rows.iter().filter(|row| {
            shared.sessions.keeps(row.lease) && !shared.ids.is_used(&row.written.lease_key)
        });
        let tickets: BTreeSet<u64> = rows.map(|row| row.written.claim.ticket).collect();
        if tickets.is_empty() {
            return Ok(false);
        }
        let mut after = list.entry.clone();
        after
            .claims
            .retain(|claim| !tickets.contains(&claim.ticket));
        let part = list.part_of(&after);
        let change = list.change(&shared.keys, name, &part, &Writing::PLAIN);
        if let Some(change) = self.store.told(change)? {
            self.store.ask(self.end, change.into_txn())?;
        }
        Ok(true)
    }

    /// Tries the change on a list that was read.
    fn looked(&mut self, list: &List) -> Result<Did, StoreError> {
        if self.remove_what_is_not_held(list)? {
            return Ok(Did::Overtaken(None));
        }
        if list.ahead_modified != 0 && matches!(self.scope, Scope::Upto(_)) {
            // A claim that holds stands behind this one.
            self.scope = Scope::All;
            return Ok(Did::Again(None));
        }
        if let Some(known) = self.carried_out(list) {
            return Ok(Did::Known(Outcome::Done(known)));
        }
        // The caller still has to be told what an earlier part has removed.
        let is_there = list.exists() || !self.swept.is_empty();
        if !is_there && !matches!(self.ask.about, About::NewClaim { .. }) {
            if let Some(handle) = self.handle {
                handle.note_claim(None, list);
            }
            return Ok(Did::Known(Outcome::Absent));
        }
        let attachment = self.own_attachment(list)?;
        let mut tried = self.run(
            list,
            attachment.as_ref().map(|attachment| attachment.ticket),
        );
        if tried.step == Step::ShowAll && !matches!(self.scope, Scope::All) {
            self.scope = Scope::All;
            return Ok(Did::Again(None));
        }
        let mut attachments: Vec<Attachment> = attachment.into_iter().collect();
        let Some(write) = tried.write() else {
            // A lease key that has run out is attached again in any case, except by a renewal that
            // renews nothing.
            if !matches!(self.ask.about, About::Turn(_)) {
                attachments.clear();
            }
            let kept = std::mem::replace(&mut tried.entry, list.entry.clone());
            let did = self.write(list, tried, Write::PLAIN, &attachments)?;
            return Ok(match did {
                Did::Known(Outcome::Done(done)) => Did::Known(Outcome::Done(Committed {
                    entry: kept,
                    ..done
                })),
                did => did,
            });
        };
        if let Some(made) = write.makes {
            attachments.push(self.attach(list, &tried.entry, made)?);
        }
        self.count_from_the_last_sign(list, &mut tried);
        match self.attach_pulses(list, &tried.entry, &mut attachments) {
            // An etcd without room gives no lease and takes no write, and renews the leases that it has.
            Err(error) if is_full(&error) && self.beats(list, &tried.entry)? => {
                Ok(Did::Known(Outcome::Done(self.done(list, tried, None))))
            }
            attached => {
                attached?;
                self.write(list, tried, write, &attachments)
            }
        }
    }

    /// Writes what a run has made of a list.
    fn write(
        &mut self,
        list: &List,
        tried: ChangeRun,
        write: Write,
        attachments: &[Attachment],
    ) -> Result<Did, StoreError> {
        let (store, name) = (self.store, self.ask.name);
        self.floor = None;
        let floor = if grants(list, &tried.entry) {
            Some(self.count_from_floor()?)
        } else {
            None
        };
        let writing = Writing {
            floor: floor.as_ref(),
            guard: self.guard(list, &tried.entry, write.rests_on),
            attachments,
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
        match store.commit_or_remove(self.end, first, || Ok(change()?.unwrap_or_default())) {
            // The lease is renewed, and that is what counts; only the record does not show it.
            Err(error) if is_full(&error) && self.is_renewed(list) => {
                Ok(Did::Known(Outcome::Done(self.done(list, tried, None))))
            }
            answer => self.answered(answer?, list, tried, attachments),
        }
    }

    /// Decides what follows from etcd's answer to a run on a list.
    pub(super) fn answered(
        &mut self,
        answer: TxnAnswer,
        list: &List,
        tried: ChangeRun,
        attachments: &[Attachment],
    ) -> Result<Did, StoreError> {
        self.heard_of_floor(&answer);
        Ok(match answer {
            TxnAnswer::Done(answer) => {
                let revision = revision_of(answer.header);
                Did::Known(Outcome::Done(self.done(list, tried, Some(revision))))
            }
            TxnAnswer::Overtaken(_) => Did::Overtaken(None),
            TxnAnswer::Unsure(why) => return self.lost(list, tried, why),
            TxnAnswer::LeaseGone => {
                for attachment in attachments {
                    self.store.shared.sessions.forget(attachment.lease);
                }
                (self.attempt, self.pulse) = (None, None);
                Did::Nothing("the lease has run out".to_owned())
            }
        })
    }

    /// The floor for a grant of this call.
    pub(super) fn count_from_floor(&mut self) -> Result<Floor, StoreError> {
        let floor = self.store.floor(self.ask.now, self.end)?;
        Ok(self.floor.insert(floor).clone())
    }

    /// Notes what the answer to a grant says of the floor.
    pub(super) fn heard_of_floor(&self, answer: &TxnAnswer) {
        let Some(floor) = &self.floor else {
            return;
        };
        match answer {
            TxnAnswer::Done(answer) => {
                self.store
                    .note_floor(floor, Some(Ok(revision_of(answer.header))));
            }
            TxnAnswer::Overtaken(answer) => {
                let (found, _) = read_by(answer);
                self.store.note_floor(floor, Some(Err(&found)));
            }
            TxnAnswer::Unsure(_) | TxnAnswer::LeaseGone => self.store.note_floor(floor, None),
        }
    }

    /// What a change rests on, beyond the claims that it writes. A removal needs no more (`list`).
    fn guard(&self, list: &List, after: &Entry, rests_on: RestsOn) -> Basis {
        match (rests_on, &self.scope) {
            (RestsOn::Nothing, _) => Basis::None,
            (RestsOn::Before, _) if !grants(list, after) => Basis::None,
            (RestsOn::Before, Scope::Upto(ticket)) => Basis::Upto(*ticket),
            (RestsOn::Before | RestsOn::All, _) => Basis::All,
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
        let did = match store.ask(self.end, change.into_txn())? {
            TxnAnswer::Done(_) => Did::Again(None),
            TxnAnswer::Unsure(why) => Did::Nothing(why),
            TxnAnswer::Overtaken(_) | TxnAnswer::LeaseGone => return Ok(Did::Overtaken(None)),
        };
        // If the part was not carried out, the next look finds them still there.
        let swept = Swept::by(list, &part, &store.shared.here);
        self.swept.extend(swept);
        Ok(did)
    }

    /// Finds out what became of a transaction whose answer was lost, if that is possible at once.
    pub(super) fn lost(
        &mut self,
        list: &List,
        tried: ChangeRun,
        why: String,
    ) -> Result<Did, StoreError> {
        let (Some(made), Some(attempt)) = (tried.makes(), self.attempt.clone()) else {
            let footprint = Footprint::of(list, &tried, &self.store.shared.here);
            self.unsure
                .extend(footprint.map(|footprint| (footprint, tried)));
            return Ok(Did::Nothing(why));
        };
        let claim = list.row(made.ticket).map_or(&attempt.id, |row| &row.id);
        let found = self.store.bury(self.ask.name, &attempt, claim, self.end)?;
        let row = found
            .rows
            .iter()
            .find(|row| row.written.lease_key == attempt.id);
        let Some(row) = row else {
            self.begin_anew();
            return Ok(Did::Nothing(why));
        };
        // Servers that were restored bring back an earlier claim of that name (`ids`), with its token. It is not this one.
        let wanted = tried.entry.claim(made.ticket);
        if !wanted.is_some_and(|wanted| is_same(wanted, &row.written.claim)) {
            // The request may still be on its way, so the name gets a tombstone.
            self.store.give_up_later(self.ask.name, &attempt, &row.id);
            self.store.shared.ids.forget(&attempt.id);
            self.begin_anew();
            return Ok(Did::Nothing(why));
        }
        let token = row.written.claim.token;
        let handle = self.found(&found, row);
        // A tombstone that was not answered may still come, and make a lease key.
        handle.doubt();
        self.attempt = None;
        // The transaction may have put a claim at the end that was to hold at once.
        let is_it = tried.entry.claim(made.ticket);
        let is_it = is_it.is_some_and(|claim| claim.token.is_some() == token.is_some());
        let mut events = if is_it { tried.events } else { Vec::new() };
        settle_events(&mut events, token);
        let run = if is_it {
            Run::Nth(tried.run)
        } else {
            Run::Unseen
        };
        let done = committed(run, found.entry, events, Some(handle));
        Ok(Did::Known(Outcome::Done(done)))
    }

    /// The run that was carried out although its answer was lost, if the list shows one.
    fn carried_out(&mut self, list: &List) -> Option<Committed> {
        // A claim that is still there was not removed after all.
        self.swept.retain(|swept| swept.is_gone(list));
        // While its lease runs, no other process removes a claim, or writes it in this way.
        let is_certain = self.handle.is_none_or(EtcdHandle::is_certain);
        let mut unsure = self.unsure.iter();
        let stands = unsure.rposition(|(footprint, _)| is_certain && footprint.is_in(list));
        let Some(stands) = stands else {
            if self.handle.is_none() {
                // Other processes have changed the rest meanwhile, after these claims were removed.
                for gone in self
                    .unsure
                    .iter()
                    .flat_map(|(footprint, _)| &footprint.gone)
                {
                    let is_known = self.swept.iter().any(|swept| swept.claim == gone.claim);
                    if gone.is_gone(list) && !is_known {
                        self.swept.push(gone.clone());
                    }
                }
            }
            return None;
        };
        self.noted(list, &list.entry, Some(list.revision));
        let (_, mut tried) = self.unsure.swap_remove(stands);
        let own = self
            .handle
            .and_then(|handle| list.entry.claim(handle.ticket));
        settle_events(&mut tried.events, own.and_then(|claim| claim.token));
        Some(committed(
            Run::Nth(tried.run),
            list.entry.clone(),
            tried.events,
            None,
        ))
    }

    /// The result of a commit at `revision`, with the numbers that etcd assigned; or of what was found,
    /// if there was nothing to write.
    pub(super) fn done(
        &mut self,
        before: &List,
        tried: ChangeRun,
        revision: Option<i64>,
    ) -> Committed {
        let made = tried.makes();
        let ChangeRun {
            run,
            mut entry,
            mut events,
            ..
        } = tried;
        if let Some(revision) = revision {
            let floor = self.floor.as_ref();
            let token = floor.map_or_else(|| number(revision), |floor| floor.token(revision));
            settle(before, &mut entry, revision, token);
            settle_events(&mut events, Some(token));
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
                let handle =
                    EtcdHandle::new(shared, name, claim, keys, row.is_some(), (before, revision));
                handle.enter_epoch(self.epoch);
                handle
            });
        }
        committed(Run::Nth(run), entry, events, handle)
    }

    /// The handle of a claim that was found in the list.
    pub(super) fn found(&self, list: &List, row: &Row) -> EtcdHandle {
        let keys = (row.id.clone(), row.written.lease_key.clone());
        let (shared, name) = (&self.store.shared, self.ask.name);
        let was_reserved = row.written.was_reserved;
        let claim = &row.written.claim;
        let handle = EtcdHandle::new(
            shared,
            name,
            claim,
            keys,
            was_reserved,
            (list, list.revision),
        );
        handle.enter_epoch(self.epoch);
        handle
    }

    /// Notes in the handle what this change has seen.
    fn noted(&self, before: &List, after: &Entry, revision: Option<i64>) {
        let Some(handle) = self.handle else {
            return;
        };
        if let About::Turn(_) = self.ask.about {
            handle.remember(before);
            handle.saw(before.revision);
            // A place in a line that the servers still have is the same place.
            handle.enter_epoch(self.epoch);
        }
        let claim = after.claim(handle.ticket);
        if let Some(revision) = revision {
            // The claim was written after that list was read.
            handle.seen().waiting = None;
            handle.saw(revision);
        }
        if claim.is_some() || before.unreadable.is_empty() {
            handle.note_claim(claim, before);
        }
        if let (About::Renewal(_), Kind::Kernel) = (self.ask.about, handle.kind) {
            // A renewal that wrote anything wrote the claim. If its answer was lost, the revision is that of
            // the look which found it; then the next renewal looks too.
            handle.seen().renewed = claim.cloned().zip(revision);
            // The answer to a renewal says whether the holder was asked to stop. The answer to another change does not.
            (handle.told).fetch_max(revision.unwrap_or(0), Ordering::SeqCst);
        }
        if claim.is_none() && revision.is_some() && self.unsure.is_empty() {
            handle.give_back_id();
        }
    }
}

impl EtcdStore {
    /// Commits a change. An etcd whose disk is full accepts only removals. Then the hold ends, and the
    /// history does not count it.
    pub(super) fn commit_or_remove(
        &self,
        end: Instant,
        change: Change,
        again: impl FnOnce() -> Result<Change, StoreError>,
    ) -> Result<TxnAnswer, StoreError> {
        match self.ask(end, change.into_txn()) {
            Err(error) if is_full(&error) => match again()?.into_bare_removal() {
                Some(bare) => self.ask(end, bare.into_txn()),
                None => Err(error),
            },
            answer => answer,
        }
    }

    /// Sends one transaction, once, and waits for its answer no longer than this.
    pub(super) fn ask(&self, end: Instant, txn: TxnRequest) -> Result<TxnAnswer, StoreError> {
        let endpoints = Arc::clone(self.shared.connection.endpoints());
        self.shared
            .connection
            .block("writing the lock", async move {
                let rest = end.saturating_duration_since(instant());
                let answer =
                    endpoints.once_within(rest, |client| async move { client.txn(txn).await });
                match answer.await {
                    Ok(answer) if answer.succeeded => Ok(TxnAnswer::Done(answer)),
                    Ok(answer) => Ok(TxnAnswer::Overtaken(answer)),
                    Err(Fault::Unsure(why)) => Ok(TxnAnswer::Unsure(why)),
                    Err(Fault::LeaseGone) => Ok(TxnAnswer::LeaseGone),
                    Err(refused @ (Fault::Refused(_) | Fault::Denied(_) | Fault::Stranger(_))) => {
                        Err(refused)
                    }
                }
            })
    }
}

/// The result of a change that counts, with the handle of the claim that it made.
pub(super) fn committed(
    run: Run,
    entry: Entry,
    events: Vec<Event>,
    handle: Option<EtcdHandle>,
) -> Committed {
    Committed {
        run,
        entry,
        events,
        unread: 0,
        record: Vec::new(),
        own: handle.as_ref().map(|handle| handle.ticket),
        handle: handle.map(|handle| -> Box<dyn Handle> { Box::new(handle) }),
    }
}

/// Whether a change grants a claim.
fn grants(list: &List, after: &Entry) -> bool {
    let mut granted = after.granted();
    granted.any(|claim| {
        let seen = list.entry.claim(claim.ticket);
        seen.is_none_or(|seen| seen.token.is_none())
    })
}

/// Puts the numbers that etcd assigned at `revision` into a list, in place of those that the core drew
/// provisionally.
fn settle(before: &List, after: &mut Entry, revision: i64, token: u64) {
    after.last = number(revision);
    for claim in &mut after.claims {
        let seen = before.entry.claim(claim.ticket);
        if seen.is_none() {
            claim.ticket = number(revision);
        }
        if claim.token.is_some() && seen.is_none_or(|seen| seen.token.is_none()) {
            claim.token = Some(token);
        }
    }
}

/// Whether a claim that was found is the one that was to be made, or comes back. A name is used for many claims, one after
/// the other, and each enters at an instant of its own.
fn is_same(wanted: &Claim, found: &Claim) -> bool {
    let known = |claim: &Claim| (claim.entered, claim.holder.request_id.clone());
    known(wanted) == known(found)
}

/// Puts the fencing token into the events of the change.
fn settle_events(events: &mut [Event], token: Option<u64>) {
    for event in events {
        if let (Event::Acquired { token: drawn }, Some(token)) = (event, token) {
            *drawn = token;
        }
    }
}
