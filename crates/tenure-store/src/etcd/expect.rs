//! Tries a change without a look, on the list that is likely there.
//!
//! The change runs on it as on any list. The result is committed on the condition that the list is what
//! was expected. Otherwise nothing was done, and the call looks.
//!
//! | who asks | expected | the condition |
//! |---|---|---|
//! | a caller with a new claim | no claim | there is no claim |
//! | a woken waiter | no claim before it | none was made before its own, and its own is unchanged |
//! | a holder that leaves | its hold as it was granted | its claim is the one that was made |
//! | a holder that renews | its hold as it was last renewed | its claim is unchanged, and lives by the lease just renewed |
//!
//! Most new claims want the lock, and otherwise wait behind the claims that are there. Their transaction says
//! both: *if there is no claim this one holds, else it stands at the end*, and it reads the list. Any other new
//! claim has to be judged by the list, which the transaction reads for it.

use super::api::{Compare, CompareResult, RangeRequest, RequestOp, TxnRequest, TxnResponse};
use super::connection::{is_full, read_by, revision_of};
use super::floor::Floor;
use super::handle::EtcdHandle;
use super::keys::end_of;
use super::list::{Attachment, Change, List, Row, Writing, number};
use super::read::Scope;
use super::transact::{Did, Transaction, TxnAnswer, committed};
use super::value::Written;
use crate::StoreError;
use crate::contract::{About, Outcome, Run};
use std::sync::atomic::Ordering;
use tenure_core::{Claim, Entry, History, Kind, Mode, RestsOn};

/// How many keys are read together with an attempt. A longer list is read by itself, so that the answer
/// to an attempt stays short.
const GUESS_PAGE: i64 = 500;

impl Transaction<'_> {
    /// Tries the change once on the expected list.
    pub(super) fn expected(&mut self) -> Result<Did, StoreError> {
        match (self.ask.about, self.handle) {
            (About::NewClaim { unseen, .. }, _) => self.on_no_claim(unseen),
            (About::Turn(_), Some(handle)) => self.as_it_waits(handle),
            (About::Own(_), Some(handle)) => self.as_granted(handle),
            (About::Renewal(_), Some(handle)) => self.as_renewed(handle),
            _ => Ok(Did::Again(None)),
        }
    }

    /// A claim that no other claim blocks.
    fn on_no_claim(&mut self, unseen: bool) -> Result<Did, StoreError> {
        let nobody = List::default();
        let mut tried = self.run(&nobody, None);
        let Some(made) = tried.makes() else {
            return Ok(Did::Again(None));
        };
        let claim = tried.entry.claim(made.ticket);
        // A detached hold needs a lease of its own first.
        if made.kind != Kind::Kernel || claim.is_none_or(|claim| claim.token.is_none()) {
            return Ok(Did::Again(None));
        }
        let attachment = self.attach(&nobody, &tried.entry, made)?;
        self.count_from_the_last_sign(&nobody, &mut tried);
        let floor = self.count_from_floor()?;
        let txn = self.on_no_claim_txn(&tried.entry, &attachment, &floor, unseen)?;
        let answer = self.store.ask(self.end, txn)?;
        self.heard_of_floor(&answer);
        match answer {
            TxnAnswer::Overtaken(answer) if unseen => {
                let list = self.listed(&answer);
                self.at_the_end(list, number(revision_of(answer.header)))
            }
            TxnAnswer::Overtaken(answer) => Ok(Did::Overtaken(self.listed(&answer))),
            answer => {
                let list = match &answer {
                    TxnAnswer::Done(answer) => self.listed(answer),
                    _ => None,
                };
                let list = list.unwrap_or_default();
                self.answered(answer, &list, tried, &[attachment])
            }
        }
    }

    /// After a claim was put at the end of a list unseen, the change runs on that list. If it would only
    /// have queued, that run counts.
    ///
    /// A list that is read by itself is newer than the claim, and may have claims that came after it. They
    /// wait behind this one, so it must not wait behind them: the end of what they all wait for would wake
    /// none of them. So the change is shown only the claims before it. What blocks the claim among those
    /// blocks it in any case. If none does, a later claim may hold that overrode a hold. Then the run would
    /// grant, so it does not count, and the claim looks at the whole list.
    ///
    /// `ticket` is that of the claim, if it was put there. A claim of the same name that is older was brought back by
    /// servers that were restored (`Transaction::remove_what_is_not_held`).
    fn at_the_end(&mut self, list: Option<List>, ticket: u64) -> Result<Did, StoreError> {
        let Some(attempt) = self.attempt.clone() else {
            return Ok(Did::Again(None));
        };
        let (store, name) = (self.store, self.ask.name);
        let list = match list {
            Some(list) => list,
            // The claim stands in the queue, and no caller would wait there.
            None => store
                .load(name, &Scope::All, self.end)
                .inspect_err(|_| store.give_up_later(name, &attempt, &attempt.id))?,
        };
        let row = list
            .rows
            .iter()
            .find(|row| row.written.lease_key == attempt.id && row.written.claim.ticket == ticket);
        let Some(row) = row else {
            // Another process has removed it again, or it was never put.
            self.begin_anew();
            store.shared.ids.forget(&attempt.id);
            return Ok(Did::Overtaken(None));
        };
        let handle = self.found(&list, row);
        if !list.unreadable.is_empty() {
            // Something in the list may block the claim for ever. So the call asks again without a guess
            // and without this claim.
            handle.doubt();
            drop(handle);
            self.begin_anew();
            return Ok(Did::Overtaken(None));
        }
        let mut before = list.clone();
        before.rows.retain(|row| row.written.claim.ticket < ticket);
        before.entry.claims.retain(|claim| claim.ticket < ticket);
        let looked = self.run(&before, None);
        let write = looked.write();
        let only_queues = looked.events.is_empty()
            && write
                .is_some_and(|write| write.makes.is_some() && write.rests_on == RestsOn::Nothing);
        self.attempt = None;
        let run = if only_queues {
            Run::Nth(looked.run)
        } else {
            Run::Unseen
        };
        let done = committed(run, list.entry, Vec::new(), Some(handle));
        Ok(Did::Known(Outcome::Done(done)))
    }

    /// If there is no claim, this one holds. Else it stands at the end if it `queues`, and the list is read.
    fn on_no_claim_txn(
        &self,
        entry: &Entry,
        attachment: &Attachment,
        floor: &Floor,
        queues: bool,
    ) -> Result<TxnRequest, StoreError> {
        let (store, name) = (self.store, self.ask.name);
        let keys = &store.shared.keys;
        let nobody = List::default();
        let writing = Writing {
            attachments: std::slice::from_ref(attachment),
            floor: Some(floor),
            ..Writing::PLAIN
        };
        let change = |entry: &Entry| -> Result<Change, StoreError> {
            let change = nobody.change(keys, name, entry, &writing);
            Ok(store.told(change)?.unwrap_or_default())
        };
        let mut holds = change(entry)?.operations;
        let claims = keys.claims(name);
        let lease_key = keys.lease_key(name, &attachment.lease_key);
        let alone = Compare::create_revision(claims.clone(), CompareResult::Equal, 0);
        // Where there is no claim at all, there is none under this id.
        let first = [
            alone.with_range(end_of(&claims)),
            Compare::create_revision(lease_key, CompareResult::Equal, 0),
            floor.stands(),
        ];
        holds.push(RequestOp::get(RangeRequest::of(keys.header(name))));
        let mut other = Vec::new();
        if queues {
            let mut waiting = entry.clone();
            for claim in &mut waiting.claims {
                (claim.token, claim.since) = (None, None);
            }
            other.push(RequestOp::txn(change(&waiting)?.into_txn()));
        }
        // Read after the claim was put, so the claim knows the one directly before its own. If it waited behind
        // an earlier one, the end of that one would wake it for nothing.
        let lock = keys.lock(name);
        let page = RangeRequest {
            limit: GUESS_PAGE,
            ..RangeRequest::of(lock.clone()).with_range(end_of(&lock))
        };
        other.push(RequestOp::get(page));
        other.push(floor.again());
        Ok(TxnRequest::default()
            .when(first)
            .and_then(holds)
            .or_else(other))
    }

    /// The list that a transaction has read; `None` if it is longer than a page.
    fn listed(&self, answer: &TxnResponse) -> Option<List> {
        let (found, is_whole) = read_by(answer);
        if !is_whole {
            return None;
        }
        let shared = &self.store.shared;
        let revision = revision_of(answer.header);
        let mut list = List::of(&shared.keys, self.ask.name, revision, &found);
        list.trust_leases(self.ask.now);
        Some(list)
    }

    /// A waiter whose sleep was ended by an event: mostly that was the end of the last claim before it.
    /// There are three conditions: there is no claim before it, no caller has asked it to stop, and it
    /// lives by the lease that this process keeps alive.
    fn as_it_waits(&mut self, handle: &EtcdHandle) -> Result<Did, StoreError> {
        let (is_woken, waiting) = {
            let seen = handle.seen();
            (
                handle.woken.swap(false, Ordering::SeqCst),
                seen.waiting.clone(),
            )
        };
        let session = self.store.shared.sessions.present(handle.ttl_ms);
        let (true, Some((claim, modified)), Some(session)) = (
            is_woken && handle.only_those_before_matter(),
            waiting,
            session,
        ) else {
            return Ok(Did::Again(None));
        };
        let list = alone(
            handle,
            claim,
            (modified, session.lease),
            History::default(),
            0,
        );
        let mut tried = self.run(&list, None);
        self.count_from_the_last_sign(&list, &mut tried);
        let granted = tried.entry.claim(handle.ticket);
        let is_granted = granted.is_some_and(|claim| claim.token.is_some());
        // Only the absence of claims before it is compared here. That is too little for a grant that
        // rests on the whole list.
        let rests_on = tried.write().map(|write| write.rests_on);
        if !is_granted || rests_on.is_none_or(|rests_on| rests_on == RestsOn::All) {
            return Ok(Did::Again(None));
        }
        let (store, keys) = (self.store, &self.store.shared.keys);
        let floor = self.count_from_floor()?;
        let writing = Writing {
            floor: Some(&floor),
            ..Writing::PLAIN
        };
        let change = list.change(keys, &handle.name, &tried.entry, &writing);
        let Some(mut change) = store.told(change)? else {
            return Ok(Did::Again(None));
        };
        let claims = keys.claims(&handle.name);
        let before = i64::try_from(handle.ticket).unwrap_or(i64::MAX) - 1;
        let first = Compare::create_revision(claims.clone(), CompareResult::Greater, before);
        let lease_key = keys.lease_key(&handle.name, &handle.lease_key);
        change.compares = vec![
            Compare::mod_revision(
                keys.claim(&handle.name, &handle.id),
                CompareResult::Equal,
                modified,
            ),
            Compare::lease(lease_key, CompareResult::Equal, session.lease),
            first.with_range(end_of(&claims)),
            List::none_ahead(keys, &handle.name),
            floor.stands(),
        ];
        change
            .operations
            .push(RequestOp::get(RangeRequest::of(keys.header(&handle.name))));
        let answer = store.ask(self.end, change.into_txn())?;
        let mut list = list;
        if let TxnAnswer::Done(answer) = &answer {
            let revision = revision_of(answer.header);
            let (found, _) = read_by(answer);
            let header = List::of(keys, &handle.name, revision, &found);
            tried.entry.history = header.entry.history;
            list.entry.history = header.entry.history;
            (list.header_modified, list.revision) = (header.header_modified, revision);
        }
        self.answered(answer, &list, tried, &[])
    }

    /// A holder that renews its hold again: one transaction, and no read. A request to stop, or a hold that is
    /// gone, has changed the claim; then the call looks.
    fn as_renewed(&mut self, handle: &EtcdHandle) -> Result<Did, StoreError> {
        let renewed = handle.seen().renewed.take();
        let session = self.store.shared.sessions.present(handle.ttl_ms);
        let (Some((claim, modified)), Some(session)) = (renewed, session) else {
            return Ok(Did::Again(None));
        };
        let history = History::default();
        let list = alone(handle, claim, (modified, session.lease), history, 0);
        let tried = self.run(&list, None);
        let (store, keys) = (self.store, &self.store.shared.keys);
        let change = list.change(keys, &handle.name, &tried.entry, &Writing::PLAIN);
        let Some(mut change) = store.told(change)? else {
            return Ok(Did::Again(None));
        };
        let lease_key = keys.lease_key(&handle.name, &handle.lease_key);
        let lives = Compare::lease(lease_key, CompareResult::Equal, session.lease);
        change.compares.push(lives);
        match store.ask(self.end, change.into_txn()) {
            // The look that follows decides what that means for the hold.
            Err(error) if is_full(&error) => Ok(Did::Again(None)),
            answer => self.answered(answer?, &list, tried, &[]),
        }
    }

    /// A holder that leaves, with what it knew at its grant.
    fn as_granted(&mut self, handle: &EtcdHandle) -> Result<Did, StoreError> {
        let Some((claim, history, header)) = handle.seen().granted.clone() else {
            return Ok(Did::Again(None));
        };
        let is_alone = claim.mode == Mode::Exclusive;
        let list = alone(handle, claim, (0, 0), history, header);
        let tried = self.run(&list, None);
        if tried.write().is_none() || tried.entry.claim(handle.ticket).is_some() {
            return Ok(Did::Again(None));
        }
        let (store, keys) = (self.store, &self.store.shared.keys);
        let key = keys.claim(&handle.name, &handle.id);
        let created = i64::try_from(handle.ticket).unwrap_or(0);
        let change = || -> Result<Change, StoreError> {
            let change = list.change(keys, &handle.name, &tried.entry, &Writing::PLAIN);
            let mut change = store.told(change)?.unwrap_or_default();
            // Later writes to the claim do not matter: it is the same hold.
            let same = Compare::create_revision(key.clone(), CompareResult::Equal, created);
            change.compares = vec![same];
            if let Some(header) = change.header.as_mut().filter(|_| is_alone) {
                // Only the end of a hold writes the header, and no other hold stands beside this one.
                header.stands = None;
            }
            Ok(change)
        };
        let answer = store.commit_or_remove(self.end, change()?, change)?;
        self.answered(answer, &list, tried, &[])
    }
}

/// The list with this claim alone.
fn alone(
    handle: &EtcdHandle,
    claim: Claim,
    (modified, lease): (i64, i64),
    history: History,
    header_modified: i64,
) -> List {
    let row = Row {
        id: handle.id.clone(),
        modified,
        written: Written {
            claim: claim.clone(),
            lease_key: handle.lease_key.clone(),
            was_reserved: handle.was_reserved,
        },
        lease,
    };
    List {
        rows: vec![row],
        entry: Entry {
            history,
            claims: vec![claim],
            ..Entry::default()
        },
        header_modified,
        ..List::default()
    }
}
