//! The list of claims on one lock as it was read, and the writes that turn it into another one.
//!
//! # What a change is conditional on
//! Every claim that is written or removed has to stand as it was read. [`Basis`] names what else a
//! decision may rest on, as the verb has said it. A claim that is granted because no claim blocks it
//! needs those before it to be as they were. A request that asks others to stop needs the whole list
//! to be as it was. A claim that only queues needs nothing: the order in which etcd writes gives it its
//! place.
//!
//! A claim that **ends** never makes a decision wrong: it only frees what counted as held. So a removal
//! needs no further condition. A lease key that comes back can make one wrong: the claim was judged dead, and its
//! holder was only late. So a caller that attaches a lease key again also writes its claim again, and
//! that write breaks the condition.

use super::api::{Compare, CompareResult, KeyValue, RequestOp, TxnRequest};
use super::floor::Floor;
use super::keys::{Keys, end_of};
use super::value::{self, Written};
use crate::codec::CodecError;
use std::collections::{BTreeMap, BTreeSet};
use tenure_core::{Claim, Entry, Evidence, Host, Liveness, LivenessLock, LockName, Now, Stamp};
use tenure_os::process::liveness;

/// How many conditions, and how many writes, a change may have. etcd accepts a few more in one
/// transaction unless it is configured otherwise (`--max-txn-ops`); those are left for additions to a
/// change.
const TRANSACTION_MAX: usize = 120;

/// How many claims one transaction removes, if it cannot remove all.
pub(super) const SWEPT_AT_ONCE: usize = 40;

/// How far the instant at which a list is judged may lie from the one at which it was read.
const JUDGED_WITHIN_MS: u64 = 60_000;

/// How far the clocks of two machines may be apart before that is noticed.
const CLOCKS_MS: u64 = 10_000;

/// A claim with what is known of its keys.
#[derive(Debug, Clone)]
pub(super) struct Row {
    pub(super) id: String,
    pub(super) modified: i64,
    /// The claim as it was written; the list may show another last sign of life.
    pub(super) written: Written,
    /// The lease that its lease key is attached to; 0 if it has no lease key.
    pub(super) lease: i64,
}

impl Row {
    /// Whether its lease key exists.
    pub(super) fn alive(&self) -> bool {
        self.lease != 0
    }
}

/// A key among the claims that cannot be understood.
#[derive(Debug, Clone)]
pub(super) struct Unreadable {
    pub(super) key: Vec<u8>,
    pub(super) modified: i64,
    pub(super) why: String,
    /// A later version has written it, and may well understand it.
    pub(super) is_newer: bool,
}

impl Unreadable {
    /// The key, for people.
    pub(super) fn shown(&self) -> String {
        let key = String::from_utf8_lossy(&self.key);
        key.chars().filter(|c| !c.is_control()).take(400).collect()
    }
}

/// A list as it was read.
#[derive(Debug, Clone, Default)]
pub(super) struct List {
    pub(super) revision: i64,
    pub(super) rows: Vec<Row>,
    pub(super) entry: Entry,
    /// When the header was written last; 0 if there is none.
    pub(super) header_modified: i64,
    /// When the note was last written that a claim went before waiting ones; 0 if there is no note.
    pub(super) ahead_modified: i64,
    /// What cannot be understood.
    pub(super) unreadable: Vec<Unreadable>,
}

/// What a decision rests on beyond the claims that it changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Basis {
    /// Nothing.
    None,
    /// The claims before this one, and this one.
    Upto(u64),
    /// The list as a whole.
    All,
}

/// A lease key that a change attaches.
#[derive(Debug, Clone)]
pub(super) struct Attachment {
    /// The ticket of its claim; that of a new claim is provisional.
    pub(super) ticket: u64,
    /// The id of a new claim.
    pub(super) id: Option<String>,
    pub(super) lease_key: String,
    pub(super) lease: i64,
    /// The condition is that no lease key of this name exists.
    pub(super) is_new: bool,
}

/// How a list is written.
#[derive(Debug, Clone, Copy)]
pub(super) struct Writing<'a> {
    pub(super) guard: Basis,
    /// The lease keys that the change attaches.
    pub(super) attachments: &'a [Attachment],
    /// The keys that cannot be understood and are removed.
    pub(super) discards: &'a [Unreadable],
    /// The header is removed too.
    pub(super) removes: bool,
    /// With which floor a grant counts; `None` for a change that grants nothing.
    pub(super) floor: Option<&'a Floor>,
}

impl Writing<'_> {
    /// Rests on nothing but the claims that are written.
    pub(super) const PLAIN: Writing<'static> = Writing {
        guard: Basis::None,
        attachments: &[],
        discards: &[],
        removes: false,
        floor: None,
    };

    /// The floor that a claim which is granted is written with.
    fn granted(&self, grants: bool) -> Option<u64> {
        grants.then(|| self.floor.map_or(0, |floor| floor.value))
    }
}

/// A change in the form that etcd takes.
#[derive(Default)]
pub(super) struct Change {
    pub(super) compares: Vec<Compare>,
    pub(super) operations: Vec<RequestOp>,
    pub(super) header: Option<Header>,
    /// What it reads if a condition is not met.
    pub(super) otherwise: Vec<RequestOp>,
    /// Whether the change puts something besides the header.
    puts: bool,
}

/// The write of the header.
pub(super) struct Header {
    /// The condition that no other change has written it since.
    pub(super) stands: Option<Compare>,
    put: RequestOp,
}

impl List {
    /// Puts a list together from keys that were read at `revision`: the header, the claims, the lease
    /// keys.
    pub(super) fn of(keys: &Keys, name: &LockName, revision: i64, found: &[KeyValue]) -> Self {
        let mut list = Self {
            revision,
            ..Self::default()
        };
        list.add(keys, name, found);
        list
    }

    /// Adds further keys of the lock that were read.
    pub(super) fn add(&mut self, keys: &Keys, name: &LockName, found: &[KeyValue]) {
        let (claims, lease_keys) = (keys.claims(name), keys.lease_keys(name));
        let (header, ahead) = (keys.header(name), keys.ahead(name));
        let mut alive = BTreeMap::new();
        for pair in found {
            let key = String::from_utf8_lossy(&pair.key);
            if let Some(id) = key.strip_prefix(&lease_keys) {
                alive.insert(id.to_owned(), pair.lease);
            } else if let Some(id) = key.strip_prefix(&claims) {
                self.take(id, pair);
            } else if key == header {
                self.header_modified = pair.mod_revision;
                // The header is only statistics; if it cannot be read, it begins anew.
                self.entry.history = value::decode_header(&pair.value).unwrap_or_default();
            } else if key == ahead {
                self.ahead_modified = pair.mod_revision;
            }
        }
        self.rows.sort_by_key(|row| row.written.claim.ticket);
        for row in &mut self.rows {
            if let Some(lease) = alive.get(&row.written.lease_key) {
                row.lease = *lease;
            }
        }
        if self.header_modified != 0 || !self.rows.is_empty() {
            self.entry.last = number(self.revision);
        }
        let claims = self.rows.iter().map(|row| row.written.claim.clone());
        self.entry.claims = claims.collect();
    }

    fn take(&mut self, id: &str, pair: &KeyValue) {
        let (created, modified) = (pair.create_revision, pair.mod_revision);
        match value::decode(&pair.value, number(created), number(modified)) {
            Ok(written) => self.rows.push(Row {
                id: id.to_owned(),
                modified,
                written,
                lease: 0,
            }),
            Err(error) => self.unreadable.push(Unreadable {
                key: pair.key.clone(),
                modified,
                is_newer: matches!(error, value::DecodeError::Newer { .. }),
                why: error.to_string(),
            }),
        }
    }

    pub(super) fn row(&self, ticket: u64) -> Option<&Row> {
        self.rows
            .iter()
            .find(|row| row.written.claim.ticket == ticket)
    }

    /// Prefers etcd's clock to the clocks of machines. While its lease runs, a claim is not silent for longer than its
    /// ttl; once the lease has run out, the claim is. If the last sign of a live claim of another machine is older than
    /// that, or yet to come, the clock of that machine is off: its times are moved so that the sign is from now. So the
    /// ages that are shown count by its clock alone.
    pub(super) fn trust_leases(&mut self, now: &Now) {
        for (row, claim) in self.rows.iter().zip(&mut self.entry.claims) {
            let boot = claim.holder.host.boot_id.as_deref();
            if claim.token.is_none() {
                continue;
            }
            if row.alive() && !now.is_on(boot) {
                by_one_clock(claim, now.wall_us / 1_000);
            }
            let boot = claim.holder.host.boot_id.as_deref();
            let silent = claim.lease.is_silent(boot, now);
            let (now_ms, ttl_ms) = (now.wall_us / 1_000, claim.lease.ttl_ms);
            // The caller that judges the list has looked at the clock some time before or after this.
            let after_ms = ttl_ms.saturating_add(JUDGED_WITHIN_MS);
            if row.alive() && silent {
                claim.lease.renewed = value::stamp_before(now_ms, 0);
            } else if !row.alive() && claim.lease.silent_ms(boot, now) < after_ms {
                claim.lease.renewed = value::stamp_before(now_ms, after_ms);
            }
        }
    }

    /// Finds out about a claim.
    ///
    /// A lease key that exists is a held liveness lock, of a detached hold too. It alone decides. What this machine
    /// sees of the processes is only shown: clones of one memory snapshot have the same machine, boot, name and PIDs.
    pub(super) fn evidence(&self, here: &Host, claim: &Claim) -> Evidence {
        let alive = self.row(claim.ticket).is_some_and(Row::alive);
        let liveness_lock = if alive {
            LivenessLock::Held
        } else {
            LivenessLock::Lapsed
        };
        let ask = |process: Option<&tenure_core::Process>| {
            process.map_or(Liveness::NotRecorded, |process| {
                liveness(process, &claim.holder.host, here, false)
            })
        };
        Evidence {
            liveness_lock,
            process: ask(claim.holder.process.as_ref()),
            command: ask(claim.holder.command.as_ref()),
        }
    }

    /// Whether anything of the lock is kept.
    pub(super) fn exists(&self) -> bool {
        self.header_modified != 0
            || self.ahead_modified != 0
            || !self.rows.is_empty()
            || !self.unreadable.is_empty()
    }

    /// As much of `after` as one transaction takes: some of the removed claims, or if there are none,
    /// some of the changed ones. Each of them rests on itself alone.
    pub(super) fn part_of(&self, after: &Entry) -> Entry {
        let mut part = self.entry.clone();
        let tickets = self.entry.claims.iter().map(|claim| claim.ticket);
        let gone = tickets.filter(|ticket| after.claim(*ticket).is_none());
        let gone: BTreeSet<u64> = gone.take(SWEPT_AT_ONCE).collect();
        if !gone.is_empty() {
            part.claims.retain(|claim| !gone.contains(&claim.ticket));
            return part;
        }
        let changed = part.claims.iter_mut().filter_map(|claim| {
            let other = after.claim(claim.ticket).filter(|other| *other != claim);
            // A grant rests on more than itself.
            let other = other.filter(|other| other.token == claim.token);
            other.map(|other| (claim, other))
        });
        for (claim, other) in changed.take(2 * SWEPT_AT_ONCE) {
            *claim = other.clone();
        }
        part
    }

    /// The writes that turn this list into `after`, in which at most one claim is newly granted. `None`
    /// if nothing changes.
    pub(super) fn change(
        &self,
        keys: &Keys,
        name: &LockName,
        after: &Entry,
        writing: &Writing<'_>,
    ) -> Result<Option<Change>, CodecError> {
        let mut change = Change::default();
        let mut compared = BTreeSet::new();
        let attachments = writing.attachments;
        for row in &self.rows {
            self.change_row(&mut change, &mut compared, keys, name, after, row, writing)?;
        }
        for attachment in attachments {
            if let Some(id) = &attachment.id
                && let Some(claim) = after.claim(attachment.ticket)
            {
                let key = keys.claim(name, id);
                change.compares.push(Compare::create_revision(
                    key.clone(),
                    CompareResult::Equal,
                    0,
                ));
                let written = Written {
                    claim: claim.clone(),
                    lease_key: attachment.lease_key.clone(),
                    was_reserved: false,
                };
                let value = value::encode(written, writing.granted(claim.token.is_some()))?;
                change.put(key, value, 0);
            }
            let key = keys.lease_key(name, &attachment.lease_key);
            if attachment.is_new {
                let absent = Compare::create_revision(key.clone(), CompareResult::Equal, 0);
                change.compares.push(absent);
            }
            change.put(key, Vec::new(), attachment.lease);
        }
        for unreadable in writing.discards {
            let key = unreadable.key.clone();
            let stands =
                Compare::mod_revision(key.clone(), CompareResult::Equal, unreadable.modified);
            change.compares.push(stands);
            change.operations.push(RequestOp::delete(key));
        }
        let header = keys.header(name);
        let stands =
            Compare::mod_revision(header.clone(), CompareResult::Equal, self.header_modified);
        if writing.removes {
            change.compares.push(stands);
            change.operations.push(RequestOp::delete(header));
        } else if after.history != self.entry.history {
            let value = value::encode_header(after.history)?;
            change.header = Some(Header {
                stands: Some(stands),
                put: RequestOp::put(header, value),
            });
        }
        if change.operations.is_empty() && change.header.is_none() {
            return Ok(None);
        }
        let is_new = |claim: &Claim| {
            let seen = self.entry.claim(claim.ticket);
            seen.is_none_or(|seen| seen.token.is_none())
        };
        if let Some(floor) = writing.floor.filter(|_| after.granted().any(is_new)) {
            change.compares.push(floor.stands());
            change.operations.extend(floor.raise());
            change.otherwise.push(floor.again());
        }
        self.note_ahead(&mut change, keys, name, after, writing);
        match writing.guard {
            Basis::None => {}
            Basis::Upto(ticket) if self.before(ticket) > SWEPT_AT_ONCE => {
                change.compares.push(self.unchanged(keys, name));
            }
            Basis::Upto(ticket) => {
                change.compares.push(Self::none_ahead(keys, name));
                for row in &self.rows {
                    if row.written.claim.ticket <= ticket && compared.insert(row.id.clone()) {
                        change.compares.push(Self::stands(keys, name, row));
                    }
                }
            }
            Basis::All => change.compares.push(self.unchanged(keys, name)),
        }
        Ok(Some(change))
    }

    /// Notes that a claim holds before which others wait: it overrode a hold, or entered while they were
    /// away. As long as there is no note, those waiters look only at the claims before their own.
    ///
    /// The note is written with such a grant. So a look at the claims before one either finds the note
    /// or is overtaken by it ([`List::none_ahead`]). A change that knows the whole list removes the
    /// note. A note that stays makes a look more expensive, and does no other harm.
    fn note_ahead(
        &self,
        change: &mut Change,
        keys: &Keys,
        name: &LockName,
        after: &Entry,
        writing: &Writing<'_>,
    ) {
        let key = keys.ahead(name);
        let seen = |claim: &Claim| self.entry.claim(claim.ticket).and_then(|seen| seen.token);
        let goes_before = |holder: &Claim| {
            let mut claims = after.claims.iter();
            claims.any(|claim| claim.token.is_none() && claim.ticket < holder.ticket)
        };
        let mut new = after.granted().filter(|claim| seen(claim).is_none());
        if new.any(goes_before) {
            change.put(key, Vec::new(), 0);
            return;
        }
        let knows_all = matches!(writing.guard, Basis::All) || writing.removes;
        if self.ahead_modified != 0 && knows_all && !after.granted().any(goes_before) {
            let same =
                Compare::mod_revision(key.clone(), CompareResult::Equal, self.ahead_modified);
            change.compares.push(same);
            change.operations.push(RequestOp::delete(key));
        }
    }

    /// The condition that no claim holds that went before waiting ones.
    pub(super) fn none_ahead(keys: &Keys, name: &LockName) -> Compare {
        Compare::create_revision(keys.ahead(name), CompareResult::Equal, 0)
    }

    #[allow(
        clippy::too_many_arguments,
        reason = "one step of `change`, which has them all"
    )]
    fn change_row(
        &self,
        change: &mut Change,
        compared: &mut BTreeSet<String>,
        keys: &Keys,
        name: &LockName,
        after: &Entry,
        row: &Row,
        writing: &Writing<'_>,
    ) -> Result<(), CodecError> {
        let ticket = row.written.claim.ticket;
        let before = self.entry.claim(ticket);
        let attachment = (writing.attachments)
            .iter()
            .find(|attachment| attachment.ticket == ticket);
        let key = keys.claim(name, &row.id);
        let old_lease_key = keys.lease_key(name, &row.written.lease_key);
        let Some(claim) = after.claim(ticket) else {
            compared.insert(row.id.clone());
            change.compares.push(Self::stands(keys, name, row));
            change.operations.push(RequestOp::delete(key));
            change.operations.push(RequestOp::delete(old_lease_key));
            return Ok(());
        };
        if Some(claim) == before && attachment.is_none() {
            return Ok(());
        }
        let mut written = Written {
            claim: claim.clone(),
            lease_key: attachment.map_or_else(
                || row.written.lease_key.clone(),
                |attachment| attachment.lease_key.clone(),
            ),
            was_reserved: row.written.was_reserved || claim.reservation.is_some(),
        };
        // Times that only the reading has computed are not written.
        if before.is_some_and(|before| before.since == claim.since) {
            written.claim.since = row.written.claim.since;
        }
        if before.is_some_and(|before| before.entered == claim.entered) {
            written.claim.entered = row.written.claim.entered;
        }
        if before.is_some_and(|before| before.lease.renewed == claim.lease.renewed) {
            written.claim.lease.renewed = row.written.claim.lease.renewed;
        }
        let grants = row.written.claim.token.is_none() && claim.token.is_some();
        compared.insert(row.id.clone());
        change.compares.push(Self::stands(keys, name, row));
        if grants && attachment.is_none() {
            // No claim holds without a lease key.
            let attached =
                Compare::create_revision(old_lease_key.clone(), CompareResult::Greater, 0);
            change.compares.push(attached);
        }
        if written.lease_key != row.written.lease_key || claim.reservation.is_some() {
            change.operations.push(RequestOp::delete(old_lease_key));
        }
        let value = value::encode(written, writing.granted(grants))?;
        change.put(key, value, 0);
        Ok(())
    }

    /// How many claims there are up to a ticket.
    fn before(&self, ticket: u64) -> usize {
        let rows = self.rows.iter();
        rows.filter(|row| row.written.claim.ticket <= ticket)
            .count()
    }

    fn stands(keys: &Keys, name: &LockName, row: &Row) -> Compare {
        Compare::mod_revision(
            keys.claim(name, &row.id),
            CompareResult::Equal,
            row.modified,
        )
    }

    /// The condition that no claim was made or written since.
    pub(super) fn unchanged(&self, keys: &Keys, name: &LockName) -> Compare {
        let claims = keys.claims(name);
        let end = end_of(&claims);
        // For an empty range etcd compares a key of revision 0, which is right: nothing is newer.
        Compare::mod_revision(claims, CompareResult::Less, self.revision + 1).with_range(end)
    }
}

impl Change {
    fn put(&mut self, key: String, value: Vec<u8>, lease: i64) {
        self.puts = true;
        self.operations.push(RequestOp::leased(key, value, lease));
    }

    /// Whether it fits into one transaction.
    pub(super) fn fits(&self) -> bool {
        self.compares.len() < TRANSACTION_MAX && self.operations.len() < TRANSACTION_MAX
    }

    /// The change without the header, if it then puts nothing. An etcd whose disk is full accepts that.
    pub(super) fn into_bare_removal(mut self) -> Option<Self> {
        let header = self.header.take();
        (header.is_some() && !self.puts).then_some(self)
    }

    pub(super) fn into_txn(mut self) -> TxnRequest {
        if let Some(header) = self.header {
            self.compares.extend(header.stands);
            self.operations.push(header.put);
        }
        TxnRequest::default()
            .when(self.compares)
            .and_then(self.operations)
            .or_else(self.otherwise)
    }
}

/// Moves the times of a live claim if the clock of its machine is off: its last sign of life cannot be older than its ttl,
/// nor yet to come.
fn by_one_clock(claim: &mut Claim, now_ms: u64) {
    let renewed_ms = claim.lease.renewed.wall_ms;
    let latest_ms = now_ms.saturating_add(CLOCKS_MS);
    let earliest_ms = now_ms.saturating_sub(claim.lease.ttl_ms.saturating_add(CLOCKS_MS));
    if (earliest_ms..=latest_ms).contains(&renewed_ms) {
        return;
    }
    let moved = |at: Stamp| Stamp {
        wall_ms: now_ms.saturating_sub(renewed_ms.saturating_sub(at.wall_ms)),
        ..at
    };
    claim.since = claim.since.map(moved);
    claim.entered = moved(claim.entered);
    claim.lease.renewed = moved(claim.lease.renewed);
}

/// A revision as a ticket or token. Revisions are positive, and stay below 2^53 for longer than an etcd
/// lives.
pub(super) fn number(revision: i64) -> u64 {
    u64::try_from(revision).unwrap_or(0)
}
