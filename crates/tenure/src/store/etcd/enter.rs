//! Enters a claim: at best in one transaction, and never twice.
//!
//! Most requests are plain: they want the lock, and wait behind whoever is there. For them the whole
//! decision can be told to etcd: *if there is no claim, this one holds; else it stands at the end*.
//! A lock that this process has had twice in a row is asked for more shortly: *if it is as it was
//! left, this one holds* (`left`); where it is not, the rest is said after all. Everybody else looks
//! first and commits what the core decides on that.
//!
//! # Answers that never come
//! A transaction whose answer is lost may be carried out at any time afterwards. Each attempt makes
//! a life of its own name and is conditional on there being none. So an attempt is **buried** by
//! making that life without it: whichever of the two comes first, the other one does nothing. After
//! that it is known whether the attempt was carried out, for good. A caller who cannot even learn
//! that gets an error, and the burial goes on behind its back until it is answered, or until the
//! lease has run out without which the attempt is refused anyway.

use super::api::{Compare, CompareOp, GetOptions, PutOptions, Txn, TxnOp, TxnResponse};
use super::change::{Commit, Scope, Undone, settle, settle_events};
use super::keys::end_of;
use super::left::Remains;
use super::link::{Fault, Pause, read_by, revision_of};
use super::list::{Guard, Light, List, Row, number};
use super::seat::Seat;
use super::session::Session;
use super::{EtcdStore, NOBODY, OVERTAKEN_AT_ONCE, value};
use crate::clock::instant;
use crate::store::{Entered, NewPlace, Store, StoreError};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use tenure_core::{
    Advance, Claim, Entering, Entry, Event, Force, Kind, LockName, Now, Patience, Queueing,
    Request, StaleUnforced,
};

/// How many keys are read together with an attempt. A longer list is read by itself: an answer that
/// is too long for the client would be as good as lost.
const GUESS_PAGE: i64 = 500;

/// How long a burial is tried after its caller was told that the call has failed.
const BURIAL_MAX: Duration = Duration::from_secs(600);

/// A claim on its way into a list.
pub(super) struct Entrance<'a> {
    store: &'a EtcdStore,
    name: &'a LockName,
    request: Request,
    now: &'a Now,
    end: Instant,
    session: Arc<Session>,
    /// The name of this attempt: of its life, and of the claim if that is a new one (`ids`).
    id: String,
    /// The lease of a detached hold.
    pulse: Option<i64>,
    /// What was told of claims that were removed on the way.
    swept: Vec<Event>,
}

/// What became of an attempt.
enum Tried {
    Entered(Box<Entered<Seat>>),
    /// Some of the dead are removed, and the rest is yet to be.
    Swept,
    /// The list is another one by now, perhaps this one.
    Overtaken(Option<List>),
    /// It is not known.
    Unsure {
        why: String,
        /// The key of the claim that it would have written.
        claim: String,
        events: Vec<Event>,
    },
    LeaseGone,
}

impl<'a> Entrance<'a> {
    pub(super) fn new(
        store: &'a EtcdStore,
        name: &'a LockName,
        request: Request,
        now: &'a Now,
    ) -> Result<Self, StoreError> {
        let end = store.end();
        let session = store.session(request.ttl_ms, end)?;
        let mut entrance = Self {
            store,
            name,
            request,
            now,
            end,
            session,
            id: String::new(),
            pulse: None,
            swept: Vec::new(),
        };
        entrance.id = store.shared.ids.take(entrance.session.lease);
        Ok(entrance)
    }

    /// Gives the next attempt a name that no other one has.
    fn begin_anew(&mut self) {
        self.id = self.store.shared.ids.fresh(self.session.lease);
    }

    /// Tries until it is known what became of the claim.
    pub(super) fn enter(mut self) -> Result<Entered<Seat>, StoreError> {
        let is_new = self.request.terms.kept.is_none();
        let mut guesses = is_new && self.request.kind == Kind::Kernel;
        let mut known = None;
        let mut overtaken = 0;
        let mut pause = Pause::default();
        loop {
            let tried = if std::mem::take(&mut guesses) {
                self.guess()?
            } else {
                let list = match known.take() {
                    Some(list) => list,
                    None => self.store.load(self.name, &Scope::All, self.end)?,
                };
                let replaced = (self.store).replace_unreadable(&list, self.request.force)?;
                match replaced {
                    Ok(false) => self.attempt(&list)?,
                    Ok(true) => Tried::Overtaken(None),
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
            };
            let why = match tried {
                Tried::Entered(entered) => {
                    let mut entered = self.looked(*entered)?;
                    entered.events.splice(0..0, std::mem::take(&mut self.swept));
                    if entered.seat.is_none() {
                        // Every attempt by this name was answered, and made nothing.
                        self.store.shared.ids.give_back(&self.id);
                    }
                    return Ok(entered);
                }
                Tried::Swept => continue,
                Tried::Overtaken(list) if overtaken < OVERTAKEN_AT_ONCE => {
                    known = list;
                    overtaken += 1;
                    continue;
                }
                Tried::Overtaken(_) => {
                    // Or its name is taken by something that nobody made out.
                    self.begin_anew();
                    "it changes again and again".to_owned()
                }
                Tried::Unsure { why, claim, events } => {
                    if let Some(entered) = self.bury(&claim, events)? {
                        return self.looked(entered);
                    }
                    self.begin_anew();
                    why
                }
                Tried::LeaseGone => {
                    // The lease of a detached hold is the only one that was in it.
                    if self.pulse.take().is_none() {
                        self.store.shared.sessions.forget(self.session.lease);
                    }
                    self.session = self.store.session(self.request.ttl_ms, self.end)?;
                    self.begin_anew();
                    "the lease has run out".to_owned()
                }
            };
            if !Pause::fits(self.end) {
                return Err(self.store.unreachable("writing the lock", why));
            }
            std::thread::sleep(pause.next());
        }
    }

    /// Whether the request asks nothing of whoever is there.
    fn is_plain(&self) -> bool {
        self.request.terms.queueing == Queueing::Fifo
            && !self.request.terms.cancel_in_progress
            && self.request.force == Force::No
    }

    /// The core's decision on a list, and what it lights.
    fn attempt(&mut self, list: &List) -> Result<Tried, StoreError> {
        let (kind, mode) = (self.request.kind, self.request.terms.mode);
        let mut entry = list.entry.clone();
        let mut events = Vec::new();
        let entering = entry.enter(
            self.store.policy(),
            self.request.clone(),
            self.now,
            self.store.evidence(list),
            &mut events,
        );
        let made = NewPlace::of(&entering, kind, mode);
        let own = made.as_ref().and_then(|made| list.row(made.ticket));
        let light = match &made {
            Some(made) => Some(self.light(made, own)?),
            None => None,
        };
        if let (Some(made), Kind::Kernel) = (&made, kind) {
            self.count_from_the_last_sign(&mut entry, made.ticket);
        }
        // Its place is given by the order of writing, so it need not mind who else comes.
        let only_queues = matches!(entering, Entering::Queued { .. })
            && events.is_empty()
            && own.is_none()
            && self.is_plain();
        let guard = if only_queues { Guard::None } else { Guard::All };
        let keys = &self.store.shared.keys;
        let change =
            self.store
                .told(list.change(keys, self.name, &entry, guard, light.as_slice()))?;
        let Some(change) = change else {
            return Ok(Tried::Entered(Box::new(Entered {
                entering,
                entry,
                unread: 0,
                events,
                seat: None,
            })));
        };
        if !change.fits() {
            let told = self.store.sweep_some(self.name, list, &entry, events)?;
            self.swept.extend(told);
            return Ok(Tried::Swept);
        }
        let claim_id = own.map_or(self.id.as_str(), |row| row.id.as_str());
        Ok(match self.store.commit(change.into_txn())? {
            Commit::Done(revision) => {
                let before = (list, own.map(|row| row.id.clone()));
                let made = made.map(|made| made.ticket);
                Tried::Entered(Box::new(
                    self.entered(entering, entry, events, made, before, revision),
                ))
            }
            Commit::Overtaken => Tried::Overtaken(None),
            Commit::Unsure(why) => Tried::Unsure {
                why,
                claim: keys.claim(self.name, claim_id),
                events,
            },
            Commit::LeaseGone => Tried::LeaseGone,
        })
    }

    fn light(&mut self, made: &NewPlace, own: Option<&Row>) -> Result<Light, StoreError> {
        let holds_by_record = self.request.kind == Kind::Detached && !made.beacon;
        let lease = match (holds_by_record, self.pulse) {
            (false, _) => self.session.lease,
            (true, Some(lease)) => lease,
            (true, None) => *self
                .pulse
                .insert(self.store.pulse(self.request.ttl_ms, self.end)?),
        };
        Ok(Light {
            ticket: made.ticket,
            id: own.is_none().then(|| self.id.clone()),
            life: self.id.clone(),
            lease,
            is_new: true,
        })
    }

    /// Whoever holds counts from the last sign of life that etcd has had of it.
    fn count_from_the_last_sign(&self, entry: &mut Entry, ticket: u64) {
        if let Some(claim) = entry.claim_mut(ticket) {
            claim.lease.renewed = self.session.last_sign(self.now);
        }
    }

    /// The answer for a claim that was written at `revision`, after the list that was there before;
    /// with the id of its place, if that was kept.
    fn entered(
        &self,
        mut entering: Entering,
        mut entry: Entry,
        mut events: Vec<Event>,
        made: Option<u64>,
        (before, kept): (&List, Option<String>),
        revision: i64,
    ) -> Entered<Seat> {
        settle(before, &mut entry, revision);
        settle_events(&mut events, revision);
        let own = made.map(|ticket| match &kept {
            Some(_) => ticket,
            None => number(revision),
        });
        match (&mut entering, own) {
            (Entering::Granted { ticket, token }, Some(own)) => {
                (*ticket, *token) = (own, number(revision));
            }
            (Entering::Queued { ticket, .. }, Some(own)) => *ticket = own,
            (
                Entering::Granted { .. }
                | Entering::Queued { .. }
                | Entering::Yours { .. }
                | Entering::Refused(_)
                | Entering::NotKept,
                _,
            ) => {}
        }
        let seat = own.map(|ticket| {
            let id = kept.clone().unwrap_or_else(|| self.id.clone());
            let seat = self.seat(ticket, id, kept.is_some(), before, revision);
            if let (Entering::Granted { .. }, Some(claim)) = (&entering, entry.claim(ticket)) {
                seat.note_grant(claim, before);
            }
            seat
        });
        Entered {
            entering,
            entry,
            unread: 0,
            events,
            seat,
        }
    }

    fn seat(&self, ticket: u64, id: String, was_away: bool, list: &List, revision: i64) -> Seat {
        let shared = &self.store.shared;
        let own = (ticket, id, self.id.clone());
        let seat = Seat::new(shared, self.name, &self.request, own, was_away);
        let keys = &self.store.shared.keys;
        seat.remember(list, keys);
        let own = (
            keys.claim(self.name, &seat.id),
            keys.life(self.name, &seat.life),
        );
        let mut state = seat.state();
        state.keys.insert(ticket, own);
        state.own = revision;
        drop(state);
        seat
    }

    /// The first attempt of a request that comes new, without a look before.
    fn guess(&mut self) -> Result<Tried, StoreError> {
        let nobody = List::default();
        let mut entry = Entry::default();
        let mut events = Vec::new();
        let entering = entry.enter(
            self.store.policy(),
            self.request.clone(),
            self.now,
            self.store.evidence(&nobody),
            &mut events,
        );
        let Some(made) = NewPlace::of(&entering, self.request.kind, self.request.terms.mode) else {
            return Ok(Tried::Overtaken(None));
        };
        self.count_from_the_last_sign(&mut entry, made.ticket);
        let light = self.light(&made, None)?;
        let queues = self.is_plain()
            && self.request.patience == Patience::Queue
            && self.store.policy().stale_unforced == StaleUnforced::TakeOver;
        let holds = |entry, list: &List, revision| {
            let ticket = Some(made.ticket);
            let entered = self.entered(entering, entry, events, ticket, (list, None), revision);
            Ok(Tried::Entered(Box::new(entered)))
        };
        if let Some(left) = self.store.shared.left.expected(self.name) {
            match self.ask(self.guessing_undisturbed(&entry, &light, left)?)? {
                Err(tried) => return Ok(tried),
                Ok(answer) if answer.succeeded() => {
                    let revision = revision_of(answer.header());
                    return holds(entry, &List::undisturbed(left, revision), revision);
                }
                // It has done nothing, so what it is called is still free.
                Ok(_) => self.store.shared.left.forget(self.name),
            }
        }
        let answer = match self.ask(self.guessing(&entry, &light, queues)?)? {
            Ok(answer) => answer,
            Err(tried) => return Ok(tried),
        };
        let list = self.listed(&answer);
        if answer.succeeded() {
            let revision = revision_of(answer.header());
            return holds(entry, &list.unwrap_or_default(), revision);
        }
        if !queues {
            return Ok(Tried::Overtaken(list));
        }
        let list = if let Some(list) = list {
            list
        } else {
            let list = self.store.load(self.name, &Scope::All, self.end);
            // It stands in the line, and nobody would wait there.
            list.inspect_err(|_| {
                self.bury_later(&self.store.shared.keys.claim(self.name, &self.id));
            })?
        };
        let Some(row) = list.rows.iter().find(|row| row.written.life == self.id) else {
            // Somebody has taken it out again.
            self.begin_anew();
            return Ok(Tried::Overtaken(None));
        };
        let entered = self.found(&list, row, Vec::new());
        if list.unreadable.is_empty() {
            return Ok(Tried::Entered(Box::new(entered)));
        }
        // There is something in the list that may block it for ever: asked as everybody is who does
        // not guess.
        if let Some(seat) = &entered.seat {
            self.store.leave(seat, self.now)?;
        }
        self.begin_anew();
        Ok(Tried::Overtaken(None))
    }

    /// Asks for an attempt to be carried out. Inside, what became of it if that was not answered.
    fn ask(&self, txn: Txn) -> Result<Result<TxnResponse, Tried>, StoreError> {
        let answer = self.store.ask(txn)?;
        Ok(answer.map_err(|none| match none {
            Undone::LeaseGone => Tried::LeaseGone,
            Undone::Unsure(why) => Tried::Unsure {
                why,
                claim: self.store.shared.keys.claim(self.name, &self.id),
                events: Vec::new(),
            },
        }))
    }

    /// If there is nothing below the lock but what this process has left there, the claim holds. That
    /// says that there is no life either, so it is an attempt like any other.
    fn guessing_undisturbed(
        &self,
        entry: &Entry,
        light: &Light,
        left: Remains,
    ) -> Result<Txn, StoreError> {
        let (store, keys) = (self.store, &self.store.shared.keys);
        let lights = std::slice::from_ref(light);
        let change = List::default().change(keys, self.name, entry, Guard::None, lights);
        let holds = store.told(change)?.unwrap_or_default().operations;
        let lock = keys.lock(self.name);
        let end = end_of(&lock);
        // No claim has such a value, nor has a life, be it a buried one.
        let header = store.told(value::encode_header(left.history))?;
        let same = Compare::value(lock, CompareOp::Equal, header).with_range(end);
        Ok(Txn::new().when([same]).and_then(holds))
    }

    /// If nobody is there, the claim holds; else, if it `queues` whatever it finds, it is put at the
    /// end. Either way the list is told.
    fn guessing(&self, entry: &Entry, light: &Light, queues: bool) -> Result<Txn, StoreError> {
        let (store, keys) = (self.store, &self.store.shared.keys);
        let nobody = List::default();
        let lights = std::slice::from_ref(light);
        let mut waiting = entry.clone();
        for claim in &mut waiting.claims {
            (claim.token, claim.since) = (None, None);
        }
        let change = |entry: &Entry| {
            let change = nobody.change(keys, self.name, entry, Guard::None, lights);
            Ok::<_, StoreError>(store.told(change)?.unwrap_or_default())
        };
        let (hold, wait) = (change(entry)?, change(&waiting)?);
        let claims = keys.claims(self.name);
        let alone = Compare::create_revision(claims.clone(), CompareOp::Equal, 0);
        let mut first = hold.compares;
        first.push(alone.with_range(end_of(&claims)));
        let mut holds = hold.operations;
        holds.push(TxnOp::get(keys.header(self.name), None));
        let lock = keys.lock(self.name);
        let page = GetOptions::new()
            .with_range(end_of(&lock))
            .with_limit(GUESS_PAGE);
        let listed = TxnOp::get(lock, Some(page));
        let otherwise = if queues {
            let queue = Txn::new().when(wait.compares).and_then(wait.operations);
            vec![TxnOp::txn(queue), listed]
        } else {
            vec![listed]
        };
        Ok(Txn::new().when(first).and_then(holds).or_else(otherwise))
    }

    /// The list that a transaction has read; `None` if it is longer than a page.
    fn listed(&self, answer: &TxnResponse) -> Option<List> {
        let (found, is_whole) = read_by(answer);
        if !is_whole {
            return None;
        }
        let shared = &self.store.shared;
        let mut list = List::of(
            &shared.keys,
            self.name,
            revision_of(answer.header()),
            &found,
        );
        list.trust_leases(&shared.here, self.now);
        Some(list)
    }

    /// Finds out what became of an attempt, and sees to it that nothing becomes of it any more if
    /// nothing has. Answers with its claim, if it was made.
    fn bury(&self, claim: &str, events: Vec<Event>) -> Result<Option<Entered<Seat>>, StoreError> {
        let life = self.store.shared.keys.life(self.name, &self.id);
        let endpoints = Arc::clone(self.store.shared.link.endpoints());
        let (end, lease) = (self.end, self.session.lease);
        let buried = self
            .store
            .shared
            .link
            .block("writing the lock", async move {
                let txn = endpoints
                    .until(end, |client| {
                        let absent = Compare::create_revision(life.clone(), CompareOp::Equal, 0);
                        let leased = PutOptions::new().with_lease(lease);
                        let put = TxnOp::put(life.clone(), "buried", Some(leased));
                        let txn = Txn::new().when([absent]).and_then([put]);
                        async move { client.kv_client().txn(txn).await }
                    })
                    .await;
                match txn {
                    // Without its lease it is refused. What was made under it is found like any other.
                    Ok(_) | Err(Fault::LeaseGone) => Ok(()),
                    Err(fault) => Err(fault),
                }
            });
        if let Err(error) = buried {
            self.bury_later(claim);
            return Err(error);
        }
        // One of the answers may have been lost here too: who made the life is seen by the claim.
        let list = self.store.load(self.name, &Scope::All, self.end);
        let list = list.inspect_err(|_| self.bury_later(claim))?;
        let row = list.rows.iter().find(|row| row.written.life == self.id);
        Ok(row.map(|row| {
            let found = self.found(&list, row, events);
            if let Some(seat) = &found.seat {
                // Of the burials that were not answered one may still come, and make a life.
                seat.doubtful.store(true, Ordering::SeqCst);
            }
            found
        }))
    }

    /// The same behind the back of a caller who has been told that the call failed: the claim is
    /// removed if it was made.
    fn bury_later(&self, claim: &str) {
        let life = self.store.shared.keys.life(self.name, &self.id);
        let claim = claim.to_owned();
        let endpoints = Arc::clone(self.store.shared.link.endpoints());
        let (end, lease) = (instant() + BURIAL_MAX, self.session.lease);
        self.store.shared.link.spawn(async move {
            let buried = endpoints.until(end, |client| {
                // The life of a claim is empty. It is buried in either case: a request that comes
                // again finds that, and undoes nothing.
                let made = Compare::value(life.clone(), CompareOp::Equal, "");
                let leased = PutOptions::new().with_lease(lease);
                let put = TxnOp::put(life.clone(), "buried", Some(leased));
                let remove = [TxnOp::delete(claim.clone(), None), put.clone()];
                let txn = Txn::new().when([made]).and_then(remove).or_else([put]);
                async move { client.kv_client().txn(txn).await }
            });
            let _ = buried.await;
        });
    }

    /// The answer for a claim that was found in the list.
    fn found(&self, list: &List, row: &Row, mut events: Vec<Event>) -> Entered<Seat> {
        let claim: &Claim = &row.written.claim;
        if let Some(token) = claim.token {
            settle_events(&mut events, i64::try_from(token).unwrap_or(i64::MAX));
        }
        let ticket = claim.ticket;
        let seat = self.seat(
            ticket,
            row.id.clone(),
            row.written.was_away,
            list,
            list.revision,
        );
        let entering = if let Some(token) = claim.token {
            seat.note_grant(claim, list);
            Entering::Granted { ticket, token }
        } else {
            let advance = list.entry.clone().advance(
                self.store.policy(),
                ticket,
                self.now,
                self.store.evidence(list),
                &mut Vec::new(),
            );
            let behind = match advance {
                Advance::Behind(behind) => behind,
                // Whatever it is: the next look tells.
                _ => NOBODY,
            };
            Entering::Queued { ticket, behind }
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
    fn looked(&self, mut entered: Entered<Seat>) -> Result<Entered<Seat>, StoreError> {
        let (Entering::Queued { ticket, behind }, Some(seat)) =
            (&mut entered.entering, &entered.seat)
        else {
            return Ok(entered);
        };
        if *behind != NOBODY {
            return Ok(entered);
        }
        let ticket = *ticket;
        let advanced = self.store.advance_until(self.end, seat, self.now)?;
        match advanced.advance {
            Advance::Granted { token } => entered.entering = Entering::Granted { ticket, token },
            Advance::Behind(now_behind) => *behind = now_behind,
            Advance::Blocked(refusal) => {
                self.store.leave(seat, self.now)?;
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
}
