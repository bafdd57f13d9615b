//! One lock's files under the guard: the list as it is read together with the published record,
//! and written back together with it.
//!
//! # The record is the truth about the holder
//! Where a profile publishes, whoever's record stands at the path holds, whatever our list says:
//! that is what other programs go by. So the two are brought together each time they are read:
//! - the record carries the token of a granted claim in the list: that claim holds, and what the
//!   record says of it (times, process) counts;
//! - the record is somebody else's: it stands before all claims as one of the kind `Foreign`, and
//!   a granted claim in the list has lost its hold;
//! - there is no record: nobody holds, and a granted claim in the list has lost its hold.
//!
//! # Crash safety
//! A grant writes the list first and publishes then; a release takes the record away first and
//! writes the list then; a renewal replaces the record first. Death in between leaves a list with
//! a granted claim that no record confirms, which by the rules above holds nothing, or a record
//! that the list does not know, which is judged by what it says, as everybody else's is.

use super::excerpt::{self, Rest, Want};
use super::folder::{Folder, Opened, fault, io_fault};
use super::publication::{Change, Publication, Published};
use super::record::{self, ReadError, Snapshot, UNKNOWN};
use super::{FileStore, beat, list, release, somebody_is_lit};
use crate::profile::Record;
use crate::profile::document::FUTURE;
use crate::store::StoreError;
use std::cell::Cell;
use tenure_core::{Claim, Entry, Event, Evidence, Host, Kind, LockName, Now, Renewal, Stamp};

/// The highest token that a record is believed to carry: half of what JSON readers keep exactly,
/// and in microseconds the year 2112.
const TOKEN_BELIEVED_MAX: u64 = 1 << 52;

/// What is wrong with an empty coordination file while a beacon is lit.
pub(super) const EMPTY_BUT_LIT: &str = "it is empty, but somebody alive has a place in it";

/// The names of one lock's files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Names {
    /// The lock.
    pub(super) name: LockName,
    /// Its coordination file.
    pub(super) list: String,
    /// Its record, where the profile publishes.
    pub(super) record: String,
}

/// The guard of one lock, held. What happens to its files happens through this, and every way out
/// lets go of it: [`release`] where all went well or an error is reported, the closing of the
/// descriptor otherwise.
pub(super) struct Guarded<'a> {
    pub(super) store: &'a FileStore,
    /// Where the coordination file is.
    pub(super) folder: &'a Folder,
    pub(super) names: &'a Names,
    /// Nobody works within any hold of the lock: the byte that they share was taken with the guard.
    pub(super) is_alone: bool,
    /// How long the coordination file is, if that is known ([`record::read`]).
    pub(super) length: Cell<u64>,
}

/// A lock as it was read under the guard.
#[derive(Debug, Clone)]
pub(super) struct Loaded {
    /// The list, brought together with the record.
    pub(super) entry: Entry,
    /// The state that the next write follows.
    pub(super) snapshot: Snapshot,
    /// What stands at the record's path.
    pub(super) published: Option<Published>,
    /// The claims that were not read.
    pub(super) rest: Option<Rest>,
}

/// Why a lock could not be read.
#[derive(Debug)]
pub(super) enum LoadError {
    /// The system failed.
    Store(StoreError),
    /// The coordination file cannot be understood.
    List {
        /// What is wrong.
        why: String,
        /// The state that a replacement follows.
        snapshot: Snapshot,
    },
    /// The published record cannot be understood.
    Record(Box<BadRecord>),
}

/// A record that cannot be understood, and the list beside it.
#[derive(Debug)]
pub(super) struct BadRecord {
    /// What is wrong.
    pub(super) why: String,
    /// What stands there.
    pub(super) published: Published,
    /// The list without a holder.
    pub(super) entry: Entry,
    /// The state that the next write follows.
    pub(super) snapshot: Snapshot,
}

impl LoadError {
    /// The error for a caller who cannot do anything about it.
    pub(super) fn into_store(self, guarded: &Guarded<'_>) -> StoreError {
        match self {
            Self::Store(error) => error,
            Self::List { why, .. } => StoreError::Unreadable {
                place: guarded
                    .folder
                    .path_of(&guarded.names.list)
                    .display()
                    .to_string(),
                why,
            },
            Self::Record(found) => StoreError::Unreadable {
                place: guarded
                    .store
                    .record_path(guarded.names)
                    .display()
                    .to_string(),
                why: found.why,
            },
        }
    }
}

impl<'a> Guarded<'a> {
    /// Whether the name still leads to the opened file; if not, the guard is let go.
    pub(super) fn still_leads_to(&self, opened: &Opened) -> Result<bool, StoreError> {
        let length = self.folder.length_of(&self.names.list, opened);
        match length {
            Ok(Some(length)) => self.length.set(length),
            Ok(None) | Err(_) => release(opened),
        }
        length.map(|length| length.is_some())
    }

    /// The record's path, where the profile publishes.
    pub(super) fn publication(&self) -> Option<(Publication<'a>, &'a dyn Record)> {
        let format = self.store.profile.record()?;
        let publication = Publication {
            // The folder that was found good as the guard was taken: a change ends where it began.
            records: self.store.records.get()?,
            private: self.folder,
            file: &self.names.record,
        };
        Some((publication, format))
    }

    /// Reads the list, or as much of it as is wanted, and the record.
    pub(super) fn load(&self, opened: &Opened, want: Want, now: &Now) -> Result<Loaded, LoadError> {
        let path = || self.folder.path_of(&self.names.list);
        let snapshot = match record::read(super::fd(opened), self.length.get()) {
            Ok(snapshot) => snapshot,
            Err(ReadError::Torn(why)) => {
                return Err(LoadError::List {
                    why,
                    snapshot: Snapshot::replacing_torn(),
                });
            }
            Err(ReadError::Io(errno)) => {
                return Err(LoadError::Store(fault(&path(), "reading the lock", errno)));
            }
        };
        // A record changes whom the list says to hold, so there all of it is read.
        if self.store.profile.record().is_none()
            && let Some((entry, rest)) = excerpt::decode(&snapshot.body, want)
        {
            return Ok(Loaded {
                entry,
                snapshot,
                published: None,
                rest: Some(rest),
            });
        }
        let entry = match list::decode(&snapshot.body) {
            Ok(entry) => entry,
            Err(why) => return Err(LoadError::List { why, snapshot }),
        };
        if snapshot.sequence == 0 && somebody_is_lit(opened) {
            return Err(LoadError::List {
                why: EMPTY_BUT_LIT.to_owned(),
                snapshot,
            });
        }
        self.join(entry, snapshot, now)
    }

    /// Brings a list together with the record that stands beside it.
    pub(super) fn join(
        &self,
        mut entry: Entry,
        snapshot: Snapshot,
        now: &Now,
    ) -> Result<Loaded, LoadError> {
        let Some((publication, format)) = self.publication() else {
            return Ok(Loaded {
                entry,
                snapshot,
                published: None,
                rest: None,
            });
        };
        let published = publication.read().map_err(LoadError::Store)?;
        let here = &self.store.here;
        match join(
            &mut entry,
            published.as_ref(),
            &self.names.name,
            format,
            now,
            here,
        ) {
            Ok(()) => Ok(Loaded {
                entry,
                snapshot,
                published,
                rest: None,
            }),
            Err(why) => match published {
                Some(published) => Err(LoadError::Record(Box::new(BadRecord {
                    why,
                    published,
                    entry,
                    snapshot,
                }))),
                // Only a record that is there can be unreadable.
                None => Ok(Loaded {
                    entry,
                    snapshot,
                    published: None,
                    rest: None,
                }),
            },
        }
    }

    /// Writes the list back, and the record with it. `before` is what the change began with.
    ///
    /// [`Change::Overtaken`] says that another program changed the record first: nothing counts as
    /// done, and the caller has to look again.
    pub(super) fn commit(
        &self,
        opened: &Opened,
        before: &Loaded,
        after: &Entry,
    ) -> Result<Change, StoreError> {
        let change = match self.publication() {
            None => {
                let body = match &before.rest {
                    Some(rest) => rest.encode(&before.snapshot.body, after),
                    None => list::encode(after),
                };
                let claims = || after.claims.len() + before.rest.as_ref().map_or(0, Rest::len);
                body.map_err(|error| self.not_encoded(error))
                    .and_then(|body| self.write_body(opened, &before.snapshot, &body, claims))
                    .map(|()| Change::Done)
            }
            Some((publication, format)) => {
                self.commit_both(opened, before, after, publication, format)
            }
        };
        if change.is_err() {
            release(opened);
        }
        change
    }

    /// Renews a claim in the text of the list. `None` if the list has to be read for that, or
    /// cannot be.
    pub(super) fn beat(
        &self,
        opened: &Opened,
        ticket: u64,
        at: Stamp,
    ) -> Result<Option<Renewal>, StoreError> {
        let Ok(before) = record::read(super::fd(opened), self.length.get()) else {
            return Ok(None);
        };
        let renewed = beat::renew(&before.body, ticket, at);
        let Some((renewal, body)) = renewed else {
            return Ok(None);
        };
        let lines = || before.body.split(|byte| *byte == b'\n').count();
        self.write_body(opened, &before, &body, || lines().saturating_sub(2))?;
        Ok(Some(renewal))
    }

    fn commit_both(
        &self,
        opened: &Opened,
        before: &Loaded,
        after: &Entry,
        publication: Publication<'_>,
        format: &dyn Record,
    ) -> Result<Change, StoreError> {
        let holder = after.claims.iter().find(|claim| claim.token.is_some());
        let held_before = |claim: &Claim| {
            let same = before.entry.claim(claim.ticket);
            same.is_some_and(|same| same.token.is_some())
        };
        let encode = |claim: &Claim, previous: Option<&Published>| {
            let previous = previous.map(|published| published.bytes.as_slice());
            format
                .encode(&self.names.name, claim, previous)
                .map_err(|why| StoreError::Record {
                    place: self.store.record_path(self.names).display().to_string(),
                    why,
                })
        };
        match (holder, &before.published) {
            // A record stays as it is, byte for byte, unless its own hold changed: it was renewed.
            (Some(claim), Some(published)) if held_before(claim) => {
                if before.entry.claim(claim.ticket) != Some(claim) {
                    let bytes = encode(claim, Some(published))?;
                    if bytes != published.bytes
                        && publication.replace(published, &bytes)? == Change::Overtaken
                    {
                        return Ok(Change::Overtaken);
                    }
                }
                self.write_list(opened, &before.snapshot, after)?;
                Ok(Change::Done)
            }
            // A grant: the list first.
            (Some(claim), published) => {
                let bytes = encode(claim, None)?;
                self.write_list(opened, &before.snapshot, after)?;
                let change = match published {
                    None => publication.create(&bytes),
                    Some(published) => publication.replace(published, &bytes),
                };
                if !matches!(change, Ok(Change::Done)) {
                    // Nothing was granted. Should this write fail as well, the list has a granted
                    // claim that no record confirms.
                    self.write_list_back(opened, before)?;
                }
                change
            }
            (None, Some(published)) => {
                if publication.remove(published)? == Change::Overtaken {
                    return Ok(Change::Overtaken);
                }
                // With the record the hold is gone, and whoever reads the list next finds it so. A
                // list that cannot be written, on a full disk, makes no release a failure.
                let _ = self.write_list(opened, &before.snapshot, after);
                Ok(Change::Done)
            }
            (None, None) => {
                self.write_list(opened, &before.snapshot, after)?;
                Ok(Change::Done)
            }
        }
    }

    /// Undoes the writing of a list. The counter stays where it was raised to.
    fn write_list_back(&self, opened: &Opened, before: &Loaded) -> Result<(), StoreError> {
        let current = record::read(super::fd(opened), self.length.get())
            .map_err(|error| error.into_store(&self.folder.path_of(&self.names.list)))?;
        let mut entry = before.entry.clone();
        if let Ok(written) = list::decode(&current.body) {
            entry.raise(written.last);
        }
        self.write_list(opened, &current, &entry)
    }

    pub(super) fn write_list(
        &self,
        opened: &Opened,
        current: &Snapshot,
        entry: &Entry,
    ) -> Result<(), StoreError> {
        let body = list::encode(entry).map_err(|error| self.not_encoded(error))?;
        self.write_body(opened, current, &body, || entry.claims.len())
    }

    fn not_encoded(&self, error: serde_json::Error) -> StoreError {
        let path = self.folder.path_of(&self.names.list);
        io_fault(&path, "writing the lock", error.into())
    }

    fn write_body(
        &self,
        opened: &Opened,
        current: &Snapshot,
        body: &[u8],
        claims: impl FnOnce() -> usize,
    ) -> Result<(), StoreError> {
        let place = || self.folder.path_of(&self.names.list);
        // It may be longer from here on, also if the write fails in the middle.
        self.length.set(UNKNOWN);
        let written = record::write(super::fd(opened), current, body)
            .map_err(|errno| fault(&place(), "writing the lock", errno))?;
        if written {
            return Ok(());
        }
        Err(StoreError::Full {
            place: place().display().to_string(),
            claims: claims(),
        })
    }

    pub(super) fn evidence(&self, opened: &Opened, claim: &Claim) -> Evidence {
        self.store
            .quick_evidence(self.folder, super::fd(opened), claim)
    }

    /// The same, or all that can be found out.
    pub(super) fn evidence_for(
        &self,
        looks_closer: bool,
        opened: &Opened,
        claim: &Claim,
    ) -> Evidence {
        if looks_closer {
            self.store.evidence(self.folder, super::fd(opened), claim)
        } else {
            self.evidence(opened, claim)
        }
    }
}

/// Brings a list together with what stands at the record's path. See the module's documentation.
///
/// # Errors
/// - What is wrong with the record. The list has no holder then.
pub(super) fn join(
    entry: &mut Entry,
    published: Option<&Published>,
    name: &LockName,
    format: &dyn Record,
    now: &Now,
    here: &Host,
) -> Result<(), String> {
    let held = entry
        .claims
        .iter()
        .find(|claim| claim.token.is_some())
        .cloned();
    entry.claims.retain(|claim| claim.token.is_none());
    let Some(published) = published else {
        return Ok(());
    };
    if published.is_too_long {
        return Err("it is too long to be a record".to_owned());
    }
    let shown = format.decode(name, &published.bytes, now, here)?;
    let token = shown.token.unwrap_or(0);
    // A number that no clock of ours gives would use up the room for those to come.
    if token <= TOKEN_BELIEVED_MAX {
        entry.raise(token);
    }
    let claim = match held {
        Some(held) if is_of(&shown, &held) => merged(held, shown),
        _ => shown,
    };
    // A claim of ours keeps its place, behind those whose callers are away; what others published
    // has no ticket, and stands before all.
    let place = entry
        .claims
        .partition_point(|other| other.ticket < claim.ticket);
    entry.claims.insert(place, claim);
    Ok(())
}

/// Whether a record is the one that was published for a claim. Its token says so. Without one, as
/// after another program of its system rewrote it and kept only what it knows, the same owner,
/// process and instant of the grant do: an owner that comes twice is not the same holder.
pub(super) fn is_of(shown: &Claim, held: &Claim) -> bool {
    match shown.token {
        // The token alone may have been copied with the rest of a record that another owner made
        // of ours.
        Some(token) if token != 0 => {
            held.token == Some(token) && shown.holder.request_id == held.holder.request_id
        }
        _ => {
            let second = |claim: &Claim| claim.since.map(|since| since.wall_ms / 1_000);
            let pids = [shown, held].map(|claim| claim.holder.process.map(|process| process.pid));
            shown.holder.request_id == held.holder.request_id
                && second(shown) == second(held)
                && (pids[0].is_none() || pids[0] == pids[1])
        }
    }
}

/// A claim of ours as its record shows it: what the record says counts, what it has no place for
/// comes from the list.
///
/// An instant that the record has not changed keeps its boot clock, so that a stepped wall clock
/// changes no age; one that was written by somebody else has a wall clock only.
fn merged(held: Claim, shown: Claim) -> Claim {
    let process = match (held.holder.process, shown.holder.process) {
        // Formats that do not judge by it may leave it out.
        (held, None) => held,
        (Some(held), Some(shown)) if held.pid == shown.pid => Some(held),
        (_, shown) => shown,
    };
    let renewed = same_instant(held.lease.renewed, shown.lease.renewed);
    // By a clock that was set back since: what the boot clock knows the age of lies in no future.
    let is_known = renewed == held.lease.renewed
        || (held.since.zip(shown.since))
            .is_some_and(|(held, shown)| same_instant(held, shown) == held);
    let mut lease = held.lease;
    lease.renewed = renewed;
    // 0 stands for a format without a ttl.
    if shown.lease.ttl_ms > 0 {
        lease.ttl_ms = shown.lease.ttl_ms;
    }
    let mut holder = held.holder;
    holder.process = process;
    holder.facts.retain(|(key, _)| key != FUTURE);
    let facts = shown.holder.facts.into_iter();
    for (key, value) in facts.filter(|(key, _)| !(is_known && key == FUTURE)) {
        match holder.facts.iter_mut().find(|(known, _)| *known == key) {
            Some((_, known)) => *known = value,
            None => holder.facts.push((key, value)),
        }
    }
    Claim {
        kind: match shown.kind {
            Kind::Sealed => Kind::Sealed,
            _ => held.kind,
        },
        since: match (held.since, shown.since) {
            (Some(held), Some(shown)) if !held_is_first(held, shown, &lease) => {
                Some(same_instant(held, shown))
            }
            (held, _) => held,
        },
        lease,
        holder,
        ..held
    }
}

/// Whether the record's only time is that of the last renewal, so that the list alone knows when
/// the hold began: also where the clock was set back in between, if that renewal was ours.
fn held_is_first(held: Stamp, shown: Stamp, lease: &tenure_core::Lease) -> bool {
    let is_later = held.wall_ms < shown.wall_ms || lease.renewed.boot_ms != Stamp::OTHER_BOOT;
    lease.renewals > 0 && shown.wall_ms == lease.renewed.wall_ms && is_later
}

/// The instant of a record: our own, exactly, if it is the same but for what the format cuts off.
fn same_instant(ours: Stamp, shown: Stamp) -> Stamp {
    match ours.wall_ms.checked_sub(shown.wall_ms) {
        Some(cut) if cut < 1_000 => ours,
        _ => shown,
    }
}

/// Puts the bytes of the replaced record into the events that tell of it.
pub(super) fn note_bytes(events: &mut [Event], published: Option<&Published>) {
    let Some(published) = published else {
        return;
    };
    for event in events {
        if let Event::Stolen { record, .. } = event {
            record.clone_from(&published.bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tenure_core::{
        Force, Holder, Lease, Mode, Process, Queueing, RequestId, StaleReason, Takeover,
    };

    const PROCESS: Process = Process {
        pid: 7,
        started: Some(70),
    };

    fn stamp(wall_ms: u64) -> Stamp {
        Stamp {
            wall_ms,
            boot_ms: 500,
        }
    }

    /// An instant as a record shows it.
    fn theirs(wall_ms: u64) -> Stamp {
        Stamp {
            wall_ms,
            boot_ms: Stamp::OTHER_BOOT,
        }
    }

    /// A claim of our list. It came, was granted and gave its last sign of life at 10.5 seconds.
    fn listed(ticket: u64, token: Option<u64>) -> Claim {
        Claim {
            ticket,
            token,
            kind: Kind::Kernel,
            holder: Holder {
                request_id: RequestId::new("a").expect("an id"),
                actor: "somebody".into(),
                process: Some(PROCESS),
                command: None,
                host: Host::default(),
                why: String::new(),
                facts: vec![("intent".into(), "deploy".into())],
            },
            entered: stamp(10_500),
            since: token.map(|_| stamp(10_500)),
            lease: Lease {
                ttl_ms: 30_000,
                renewed: stamp(10_500),
                renewals: 0,
            },
            force: Force::No,
            mode: Mode::Exclusive,
            queueing: Queueing::Fifo,
            grace_ms: 0,
            cancel: None,
            away: None,
            waiting_for: None,
            aside: None,
        }
    }

    /// What a record that was published for it shows: whole seconds, a number without its start,
    /// and no ttl.
    fn shown(token: Option<u64>) -> Claim {
        let mut claim = listed(0, Some(1));
        let second = theirs(10_000);
        claim.token = token;
        claim.kind = Kind::Foreign;
        claim.holder.process = Some(Process {
            started: None,
            ..PROCESS
        });
        claim.since = Some(second);
        (claim.lease.renewed, claim.lease.ttl_ms) = (second, 0);
        claim
    }

    /// A format in which every record shows this claim.
    #[derive(Debug)]
    struct Shows(Result<Claim, String>);

    impl Record for Shows {
        fn encode(&self, _: &LockName, _: &Claim, _: Option<&[u8]>) -> Result<Vec<u8>, String> {
            Err("nothing is written".into())
        }

        fn decode(&self, _: &LockName, _: &[u8], _: &Now, _: &Host) -> Result<Claim, String> {
            self.0.clone()
        }
    }

    fn joined(entry: &mut Entry, record: Option<Result<Claim, String>>) -> Result<(), String> {
        let published = record.as_ref().map(|_| Published::of_bytes(b"a record"));
        let format = Shows(record.unwrap_or(Err("there is none".into())));
        let name = LockName::new("a").expect("a name");
        let (now, here) = (Now::default(), Host::default());
        join(entry, published.as_ref(), &name, &format, &now, &here)
    }

    /// Two who wait, and between them, where a kept place let it by, one who holds.
    fn list() -> Entry {
        Entry {
            last: 20,
            claims: vec![listed(1, None), listed(2, Some(9)), listed(3, None)],
            ..Entry::default()
        }
    }

    fn tickets(entry: &Entry) -> Vec<(u64, bool)> {
        let claims = entry.claims.iter();
        claims
            .map(|claim| (claim.ticket, claim.token.is_some()))
            .collect()
    }

    #[test]
    fn the_record_says_who_holds_and_the_list_who_waits() {
        let mut entry = list();
        assert_eq!(joined(&mut entry, None), Ok(()));
        assert_eq!(tickets(&entry), [(1, false), (3, false)], "no record");

        let mut entry = list();
        assert_eq!(joined(&mut entry, Some(Ok(shown(Some(9))))), Ok(()));
        assert_eq!(tickets(&entry), [(1, false), (2, true), (3, false)], "ours");
        assert_eq!(entry.claims[1].kind, Kind::Kernel);

        let mut entry = list();
        assert_eq!(joined(&mut entry, Some(Ok(shown(Some(8))))), Ok(()));
        assert_eq!(
            tickets(&entry),
            [(0, true), (1, false), (3, false)],
            "another one's"
        );
        assert_eq!(entry.claims[0].kind, Kind::Foreign);

        let mut entry = list();
        let garbage = joined(&mut entry, Some(Err("it is garbage".into())));
        assert_eq!(garbage, Err("it is garbage".into()));
        assert_eq!(tickets(&entry), [(1, false), (3, false)], "nobody's");
    }

    #[test]
    fn what_is_too_long_is_no_record_whatever_it_begins_with() {
        let mut entry = list();
        let mut published = Published::of_bytes(b"a record");
        published.is_too_long = true;
        let name = LockName::new("a").expect("a name");
        let format = Shows(Ok(shown(Some(9))));
        let (now, here) = (Now::default(), Host::default());
        assert!(join(&mut entry, Some(&published), &name, &format, &now, &here).is_err());
        assert_eq!(entry.granted().count(), 0);
    }

    #[test]
    fn the_counter_follows_a_record_s_token_as_far_as_a_clock_of_ours_could_have_given_it() {
        let last = |token| {
            let mut entry = list();
            assert_eq!(joined(&mut entry, Some(Ok(shown(token)))), Ok(()));
            entry.last
        };
        let highest = 4_503_599_627_370_496;
        assert_eq!(last(None), 20);
        assert_eq!(last(Some(19)), 20);
        assert_eq!(last(Some(21)), 21);
        assert_eq!(last(Some(highest)), highest);
        assert_eq!(last(Some(highest + 1)), 20, "it would use up the room");
    }

    #[test]
    fn a_record_is_ours_by_its_token_and_owner() {
        let held = listed(2, Some(9));
        assert!(is_of(&shown(Some(9)), &held));
        assert!(!is_of(&shown(Some(8)), &held), "another token");
        let mut copied = shown(Some(9));
        copied.holder.request_id = RequestId::new("b").expect("an id");
        assert!(!is_of(&copied, &held), "copied by another owner");
    }

    #[test]
    fn without_a_token_a_record_is_ours_by_owner_process_and_second() {
        let held = listed(2, Some(9));
        for none in [None, Some(0)] {
            let is_ours = |change: fn(&mut Claim)| {
                let mut shown = shown(none);
                change(&mut shown);
                is_of(&shown, &held)
            };
            assert!(is_ours(|_| {}), "{none:?}");
            assert!(is_ours(|shown| shown.holder.process = None), "not named");
            assert!(
                !is_ours(|shown| shown.holder.request_id = RequestId::new("b").expect("an id")),
                "another owner"
            );
            assert!(
                !is_ours(|shown| shown.holder.process = Some(Process {
                    pid: 8,
                    started: None
                })),
                "another process"
            );
            assert!(!is_ours(|shown| shown.since = Some(stamp(11_000))), "later");
            assert!(
                !is_ours(|shown| shown.since = Some(stamp(9_999))),
                "earlier"
            );
        }
    }

    #[test]
    fn of_a_process_the_record_says_the_number_and_the_list_when_it_started() {
        let process = |held: Option<Process>, shown_as: Option<Process>| {
            let (mut held_by, mut record) = (listed(2, Some(9)), shown(Some(9)));
            (held_by.holder.process, record.holder.process) = (held, shown_as);
            merged(held_by, record).holder.process
        };
        let number = |pid| Process { pid, started: None };
        assert_eq!(process(Some(PROCESS), None), Some(PROCESS));
        assert_eq!(process(Some(PROCESS), Some(number(7))), Some(PROCESS));
        assert_eq!(process(Some(PROCESS), Some(number(8))), Some(number(8)));
        assert_eq!(process(None, Some(number(7))), Some(number(7)));
    }

    #[test]
    fn what_a_record_says_counts_and_what_it_has_no_place_for_stays() {
        let held = listed(2, Some(9));
        let plain = merged(held.clone(), shown(Some(9)));
        assert_eq!(plain, held, "it says what was written");

        let mut record = shown(Some(9));
        record.lease.ttl_ms = 1;
        let fact = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        record.holder.facts = vec![fact("intent", "test"), fact("branch", "main")];
        record.kind = Kind::Sealed;
        let claim = merged(held, record);
        assert_eq!(claim.lease.ttl_ms, 1);
        assert_eq!(
            claim.holder.facts,
            [fact("intent", "test"), fact("branch", "main")]
        );
        assert_eq!(claim.kind, Kind::Sealed, "a newer version's");
    }

    #[test]
    fn an_instant_that_the_record_only_cut_keeps_its_boot_clock() {
        for (wall_ms, is_ours) in [
            (10_500, true),
            (10_000, true),
            (9_501, true),
            (9_500, false),
            (10_501, false),
            (60_000, false),
        ] {
            let expected = if is_ours {
                stamp(10_500)
            } else {
                theirs(wall_ms)
            };
            let found = same_instant(stamp(10_500), theirs(wall_ms));
            assert_eq!(found, expected, "{wall_ms}");
            let mut record = shown(Some(9));
            (record.since, record.lease.renewed) = (Some(theirs(wall_ms)), theirs(wall_ms));
            let claim = merged(listed(2, Some(9)), record);
            assert_eq!(claim.since, Some(expected), "granted at {wall_ms}");
            assert_eq!(claim.lease.renewed, expected, "renewed at {wall_ms}");
        }
    }

    #[test]
    fn a_record_with_one_time_says_when_it_was_renewed_and_the_list_when_it_began() {
        let since = |renewals, shown_at, renewed_at| {
            let (mut held, mut record) = (listed(2, Some(9)), shown(Some(9)));
            held.lease.renewals = renewals;
            record.since = Some(theirs(shown_at));
            record.lease.renewed = theirs(renewed_at);
            merged(held, record).since.map(|since| since.wall_ms)
        };
        assert_eq!(since(1, 40_000, 40_000), Some(10_500), "its only time");
        assert_eq!(since(0, 40_000, 40_000), Some(40_000), "never renewed");
        assert_eq!(since(1, 40_000, 41_000), Some(40_000), "it has two");
        assert_eq!(since(1, 2_000, 2_000), Some(2_000), "earlier than ours");
        // Our own renewal, by a clock that was set back since the grant.
        let (mut held, mut record) = (listed(2, Some(9)), shown(Some(9)));
        (held.lease.renewals, held.lease.renewed) = (1, stamp(2_000));
        (record.since, record.lease.renewed) = (Some(theirs(2_000)), theirs(2_000));
        assert_eq!(merged(held, record).since, Some(stamp(10_500)));
    }

    /// What another program does to a record between our look and our write.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    enum Meanwhile {
        Nothing,
        /// It renames a record of its own over the path.
        Replaces,
        Removes,
    }
    use Meanwhile::{Nothing, Removes, Replaces};

    /// A fleet lock on which another program acts in the middle of a change of ours.
    fn changed_meanwhile(
        held: bool,
        meanwhile: Meanwhile,
        change: impl Fn(&mut Entry),
    ) -> (Change, Option<String>, Vec<(u64, bool)>) {
        let scratch = tempfile::tempdir().expect("a folder");
        let here = Host {
            name: "host-1".into(),
            ..Host::default()
        };
        let store = FileStore::with_profile(
            Box::new(crate::profile::Fleet),
            scratch.path(),
            here,
            Box::new(super::super::ThreadSleeper),
        );
        let names = store.names_of(&LockName::new("app-prod").expect("a name"));
        let create = super::super::folder::Access::Create;
        let taken = store.guarded(&names, create).expect("its guard");
        let (guarded, opened) = taken.expect("its file");
        let now = Now {
            wall_us: 1_700_000_000_000_000,
            ..Now::default()
        };
        let load = || {
            let loaded = guarded.load(&opened, Want::All, &now);
            loaded
                .map_err(|error| format!("{error:?}"))
                .expect("a state")
        };
        let write = |change: &dyn Fn(&mut Entry), meanwhile: Meanwhile| {
            let before = load();
            let mut after = before.entry.clone();
            change(&mut after);
            let record = store.record_path(&names);
            match meanwhile {
                Nothing => {}
                Replaces => {
                    let new = scratch.path().join("theirs.new");
                    std::fs::write(&new, "theirs").expect("a private file");
                    std::fs::rename(&new, record).expect("theirs stands");
                }
                #[expect(clippy::disallowed_methods, reason = "another program does")]
                Removes => std::fs::remove_file(record).expect("it is gone"),
            }
            guarded.commit(&opened, &before, &after).expect("an answer")
        };
        let enters = |entry: &mut Entry| {
            entry.last = 2;
            entry.claims.push(fleet_claim(None));
        };
        assert_eq!(write(&enters, Nothing), Change::Done);
        if held {
            assert_eq!(write(&grant, Nothing), Change::Done);
        }
        let answer = write(&change, meanwhile);
        let text = std::fs::read_to_string(store.record_path(&names)).ok();
        let snapshot = record::read(super::super::fd(&opened), UNKNOWN).expect("a state");
        let list = list::decode(&snapshot.body).expect("a list");
        (answer, text, tickets(&list))
    }

    fn fleet_claim(token: Option<u64>) -> Claim {
        let mut claim = listed(1, token);
        claim.holder.host.name = "host-1".into();
        claim
            .holder
            .facts
            .push(("intent_version".into(), "1.0.0".into()));
        claim
    }

    fn grant(entry: &mut Entry) {
        entry.claims = vec![fleet_claim(Some(2))];
    }

    fn renew(entry: &mut Entry) {
        for claim in &mut entry.claims {
            claim.lease.renewed = stamp(60_000);
            claim.lease.renewals += 1;
        }
    }

    #[test]
    fn a_change_is_made_to_the_record_that_was_looked_at_and_to_no_other() {
        let (done, text, list) = changed_meanwhile(false, Nothing, grant);
        assert_eq!((done, list), (Change::Done, vec![(1, true)]));
        let granted = text.expect("a record");
        let (done, text, list) = changed_meanwhile(true, Nothing, renew);
        assert_eq!((done, list), (Change::Done, vec![(1, true)]));
        assert_ne!(text, Some(granted), "it says that it was renewed");
        let (done, text, list) = changed_meanwhile(true, Nothing, |entry| entry.claims.clear());
        assert_eq!((done, text, list), (Change::Done, None, vec![]));
    }

    #[test]
    fn a_change_that_another_program_overtook_did_not_happen() {
        let theirs = Some("theirs".to_owned());
        let (answer, text, list) = changed_meanwhile(false, Replaces, grant);
        assert_eq!((answer, &text), (Change::Overtaken, &theirs));
        assert_eq!(list, [(1, false)], "it waits, as before");
        let (answer, text, list) = changed_meanwhile(true, Replaces, renew);
        assert_eq!((answer, &text), (Change::Overtaken, &theirs));
        assert_eq!(list, [(1, true)], "the list is not written");
        let (answer, text, list) = changed_meanwhile(true, Removes, renew);
        assert_eq!((answer, text), (Change::Overtaken, None), "it stays away");
        assert_eq!(list, [(1, true)], "the list is not written");
        let release = |entry: &mut Entry| entry.claims.clear();
        let (answer, text, list) = changed_meanwhile(true, Replaces, release);
        assert_eq!((answer, &text), (Change::Overtaken, &theirs));
        assert_eq!(list, [(1, true)], "the list is not written");
    }

    #[test]
    fn the_bytes_of_a_record_that_was_taken_over_go_with_the_news() {
        let stolen = || Event::Stolen {
            why: Takeover::Stale(StaleReason::Aged),
            previous: None,
            record: Vec::new(),
        };
        let bytes = |published: Option<Published>| {
            let mut events = [Event::Acquired { token: 1 }, stolen()];
            note_bytes(&mut events, published.as_ref());
            let [_, Event::Stolen { record, .. }] = events else {
                return None;
            };
            Some(record)
        };
        assert_eq!(bytes(None), Some(Vec::new()));
        let published = Published::of_bytes(b"theirs");
        assert_eq!(bytes(Some(published)), Some(b"theirs".to_vec()));
    }
}
