//! The files of a single lock under the guard: list and published record are read together and written back together.
//!
//! # Crash safety
//! A grant writes the list first and publishes the record then. A release removes the record first and
//! writes the list then. A renewal replaces the record first. Death in between leaves one of two things:
//! a granted claim in the list that no record confirms, which holds nothing (`joined`), or a record that
//! the list does not know, which is judged by what it says, as every foreign record is.
//!
//! A power cut may take back any of these writes, or tear it. While a hold stands that no cut may end
//! ([`crate::profile::DURABLE`]), each change waits for the disk: for the list before the record, for the bytes of a record
//! before its name, and for that name. The mark stands in the list's header, so that a caller that reads a part of the
//! list sees it too. Without that, two changes of other callers would write over both pages, and a cut would tear them.

use super::folder::{Access, Folder, Opened, fault, io_fault};
use super::handle::{FileHandle, PublishedClaim};
use super::joined::{Broken, join};
use super::names::Names;
use super::pages::{self, ReadError, Room, Snapshot, UNKNOWN};
use super::partial::{self, Rest, Want};
use super::publication::{Change, Publication, Published};
use super::segments::{Piece, Text};
use super::sleeper::ByteLock;
use super::{Byte, FileStore, Mode, agents, bytes, fd};
use crate::codec;
use crate::profile::{Record, is_durable};
use crate::{StoreError, Wake};
use std::borrow::Cow;
use std::cell::Cell;
use std::time::Duration;
use tenure_core::{Claim, Entry, Now, Silence};
use tenure_os::brief;
use tenure_os::clock::{instant, since};
use tenure_os::os;

/// How long a caller waits for a guard before that is an error. A transition takes microseconds; only a
/// process that was stopped in the middle of one keeps the guard longer.
pub(super) const GUARD_PATIENCE: Duration = Duration::from_secs(5);

/// How long a caller that waits in line goes on where the guard changes hands all the time. With thousands of waiters each of
/// them gets its turn long before that.
const CROWD_PATIENCE: Duration = Duration::from_secs(300);

/// How long one sleep for the guard lasts. A process that is stopped meanwhile, or on a machine that sleeps, counts no more
/// than this for the whole time. Each sleep begins at the end of the kernel's line, so there are few of them.
const GUARD_SLEEP: Duration = Duration::from_millis(2_500);

/// How long a caller asks for the guard.
#[derive(Debug, Clone, Copy)]
pub(super) struct GuardPatience {
    /// While nobody changes the lock, in time in which the caller itself runs.
    pub(super) within: Duration,
    /// In all, while others change the lock in turns.
    pub(super) crowd: Duration,
}

impl GuardPatience {
    /// Of a caller that waits in line, and for no longer than this, if it says how long.
    pub(super) fn in_line(within: Option<Duration>) -> Self {
        let bounded = |most: Duration| within.map_or(most, |within| within.min(most));
        Self {
            within: bounded(GUARD_PATIENCE),
            crowd: bounded(CROWD_PATIENCE),
        }
    }
}

impl From<Duration> for GuardPatience {
    fn from(within: Duration) -> Self {
        Self {
            within,
            crowd: within,
        }
    }
}

const LOCKING: &str = "locking the guard";

/// What is wrong with an empty coordination file while a liveness lock is held.
pub(super) const EMPTY_BUT_HELD: &str = "it is empty, but a live process has a place in it";

/// Whether any claim's liveness lock is held. If that cannot be asked, the answer is no. That takes no
/// live claim for dead: without working locks, the guard could not have been taken either.
pub(super) fn any_is_held(opened: &Opened) -> bool {
    bytes::probe_tickets(fd(opened)) == Ok(true)
}

/// The held guard of one lock. All changes to the lock's files go through it; dropping it releases the
/// guard.
pub(super) struct Guarded<'a> {
    pub(super) store: &'a FileStore,
    /// Where the coordination file is.
    pub(super) folder: &'a Folder,
    pub(super) names: &'a Names,
    /// The open file that has the guard.
    pub(super) opened: &'a Opened,
    /// No run works within any hold of the lock: this caller took the byte that such runs share,
    /// together with the guard.
    pub(super) is_alone: bool,
    /// The handle of which it is an open file, if it is a claim's.
    by: Option<&'a FileHandle>,
    /// The claim of this open file is not in the list, or no longer: its bytes are released together with
    /// the guard. If a new claim's bytes were released later, the next caller would draw the same ticket,
    /// and find them taken.
    pub(super) leaves: Cell<bool>,
    /// The record that a grant has published.
    pub(super) granted: Cell<Option<Vec<u8>>>,
    /// What the claim that changes was granted with, for a change to it alone.
    pub(super) knows: Option<&'a PublishedClaim>,
    /// How long the coordination file is, if that is known ([`pages::read`]).
    length: Cell<u64>,
}

impl Drop for Guarded<'_> {
    fn drop(&mut self) {
        match (self.by, self.leaves.get()) {
            (Some(handle), true) => {
                debug_assert!(
                    std::ptr::eq(self.opened, &raw const handle.opened),
                    "a claim leaves by the file that has the guard"
                );
                handle.unguard_and_let_go();
            }
            // Against a failure that lasts we can do nothing; closing the file releases the guard.
            (None, true) => drop(bytes::unlock_all(fd(self.opened))),
            (_, false) => drop(bytes::unguard(fd(self.opened))),
        }
    }
}

impl FileStore {
    /// Opens a lock's coordination file and takes its guard. `None` if there is no file and none may be
    /// made. Puts the file into `opened`.
    pub(super) fn guard_name<'a>(
        &'a self,
        names: &'a Names,
        access: Access,
        patience: impl Into<GuardPatience>,
        opened: &'a mut Option<Opened>,
    ) -> Result<Option<Guarded<'a>>, StoreError> {
        let patience = patience.into();
        let Some(folder) = self.folder(access == Access::Create)? else {
            return Ok(None);
        };
        let (file, length) = loop {
            let Some(opened) = folder.open_unseen(&names.list, access)? else {
                return Ok(None);
            };
            // Until the end of the loop, closing the file releases the guard.
            let tried = bytes::try_lock(os::borrow(&opened), Byte::GUARD, Mode::Exclusive);
            let (file, facts) = folder.seen(&names.list, access, opened)?;
            let path = || folder.path_of(&names.list);
            let is_taken = tried.map_err(|errno| fault(&path(), LOCKING, errno))?;
            if is_taken && folder.local && os::COUNTS_NAMES {
                // The look was under the guard. A file that was removed or replaced since it was opened has no name
                // any more. A file that another program renamed in these microseconds has one, as it has if that
                // program does it after this look: either way the holder finds out.
                if facts.names() > 0 {
                    break (file, facts.size());
                }
                continue;
            }
            if !is_taken {
                self.take_guard(folder, names, &file, false, patience)?;
            }
            if let Some(length) = folder.length_of(&names.list, &file)? {
                break (file, length);
            }
            // Another process removed the file after we opened it and before we had its guard; begin
            // again.
        };
        let guarded = Guarded {
            store: self,
            folder,
            names,
            opened: opened.insert(file),
            is_alone: false,
            by: None,
            leaves: Cell::new(false),
            granted: Cell::new(None),
            knows: None,
            length: Cell::new(length),
        };
        if length == 0 && self.is_ledger() {
            // The process that made the folder may have died before it told git to ignore it. A file
            // with content was made after that.
            folder.ignore_all()?;
        }
        Ok(Some(guarded))
    }

    /// Takes the guard by one of a handle's own open files. `None` if the name no longer leads to that file:
    /// the handle's claim is lost.
    pub(super) fn guard_handle<'a>(
        &'a self,
        handle: &'a FileHandle,
        opened: &'a Opened,
        patience: GuardPatience,
    ) -> Result<Option<Guarded<'a>>, StoreError> {
        let folder = match self.folder.get() {
            // A change to a hold need not ask whether the folder was removed: in a removed folder the
            // name leads nowhere. Whether it was renamed, the hold's renewer asks from time to time
            // (`moves`).
            Some(opened) => Some(opened),
            None => self.folder(false)?,
        };
        let Some(folder) = folder else {
            return Ok(None);
        };
        let names = &*handle.names;
        let guarded = Guarded {
            is_alone: self.take_guard(folder, names, opened, true, patience)?,
            store: self,
            folder,
            names,
            opened,
            by: Some(handle),
            leaves: Cell::new(false),
            granted: Cell::new(None),
            knows: None,
            length: Cell::new(UNKNOWN),
        };
        let length = folder.length_of(&names.list, opened)?;
        guarded.length.set(length.unwrap_or(UNKNOWN));
        Ok(length.map(|_| guarded))
    }

    /// Takes the guard, and for a caller that has a claim already, the byte beside it in the same call.
    /// True if it got that byte too.
    fn take_guard(
        &self,
        folder: &Folder,
        names: &Names,
        opened: &Opened,
        may_be_alone: bool,
        patience: GuardPatience,
    ) -> Result<bool, StoreError> {
        let file = fd(opened);
        let path = || folder.path_of(&names.list);
        let failed = |error| io_fault(&path(), LOCKING, error);
        let lock = ByteLock {
            byte: Byte::GUARD,
            mode: Mode::Exclusive,
        };
        let errno = |errno: os::Errno| failed(errno.into());
        let is_alone = may_be_alone && bytes::try_guard_alone(file).map_err(errno)?;
        if !is_alone && !lock.try_take(file).map_err(failed)? {
            if !brief::may_sleep() {
                let place = path().display().to_string();
                return Err(StoreError::Crowded {
                    place,
                    waited_ms: 0,
                });
            }
            let modified_ms = || os::facts_and_time(file).map(|(_, modified_ms)| modified_ms);
            let first_ms = modified_ms().map_err(errno)?;
            let (mut changed_ms, mut waited, mut quiet) =
                (first_ms, Duration::ZERO, Duration::ZERO);
            loop {
                let sleep = GUARD_SLEEP.min(patience.crowd.saturating_sub(waited));
                let began = instant();
                if self.sleeper.lock(file, lock, sleep).map_err(failed)? == Wake::Ready {
                    break;
                }
                // A sleeper that woke late, because this process was stopped, may not have tried once more.
                if lock.try_take(file).map_err(failed)? {
                    break;
                }
                let ran = since(began).min(sleep);
                let now_ms = modified_ms().map_err(errno)?;
                waited += ran;
                quiet = if now_ms == changed_ms {
                    quiet + ran
                } else {
                    Duration::ZERO
                };
                changed_ms = now_ms;
                if quiet < patience.within && waited < patience.crowd {
                    continue;
                }
                let place = path().display().to_string();
                let waited_ms = u64::try_from(waited.as_millis()).unwrap_or(u64::MAX);
                return Err(if changed_ms == first_ms {
                    let keeper = bytes::keeper_of(file, Byte::GUARD);
                    StoreError::Stuck {
                        place,
                        waited_ms,
                        keeper,
                    }
                } else {
                    // The guard changes hands, so no process is stuck with it: others change the lock in turns.
                    StoreError::Crowded { place, waited_ms }
                });
            }
        }
        Ok(is_alone)
    }
}

/// A lock as it was read under the guard.
#[derive(Debug, Clone)]
pub(super) struct Loaded {
    /// The list, brought together with the record.
    pub(super) entry: Entry,
    /// The state that the next write follows.
    pub(super) snapshot: Snapshot,
    /// The bytes at the record's path.
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
        snapshot: Box<Snapshot>,
    },
    /// The published record cannot be understood.
    Record(Box<BadRecord>),
}

/// A record that cannot be understood, and the list without it.
#[derive(Debug)]
pub(super) struct BadRecord {
    /// What is wrong.
    pub(super) why: String,
    /// How long its holder has been silent.
    pub(super) silence: Silence,
    /// The bytes that stand there.
    pub(super) published: Published,
    /// The list without a holder.
    pub(super) entry: Entry,
    /// The state that the next write follows.
    pub(super) snapshot: Snapshot,
}

impl LoadError {
    /// The error for a caller that cannot repair it.
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
    /// The record's path, where the profile publishes.
    pub(super) fn publication(&self) -> Option<(Publication<'a>, &'a dyn Record)> {
        let format = self.store.profile.record()?;
        let publication = Publication {
            durable: false,
            // The folder that was checked when the guard was taken: a change ends where it began.
            records: self.store.records.get()?,
            private: self.folder,
            file: &self.names.record,
        };
        Some((publication, format))
    }

    /// The ticket whose byte the open file with the guard has itself, and cannot see.
    pub(super) fn own_ticket(&self) -> Option<u64> {
        self.by.and_then(|handle| handle.ticket_on(self.opened))
    }

    /// Whether any claim's liveness lock is held.
    pub(super) fn any_is_held(&self) -> bool {
        self.own_ticket().is_some() || any_is_held(self.opened)
    }

    /// The state that stands in the coordination file.
    pub(super) fn snapshot(&self) -> Result<Snapshot, ReadError> {
        pages::read(fd(self.opened), self.length.get())
    }

    /// Reads the list, or as much of it as is wanted, and the record.
    pub(super) fn load(&self, want: Want, now: &Now) -> Result<Loaded, LoadError> {
        let path = || self.folder.path_of(&self.names.list);
        let mut snapshot = match self.snapshot() {
            Ok(snapshot) => snapshot,
            Err(ReadError::Torn(why)) => {
                let snapshot = Snapshot::replacing_torn();
                let anew = self.store.begun_anew(self.opened, self.any_is_held());
                if let Some(entry) = anew {
                    return self.join(entry, snapshot, now);
                }
                return Err(LoadError::List {
                    why,
                    snapshot: snapshot.into(),
                });
            }
            Err(error) => return Err(LoadError::Store(error.into_store(&path()))),
        };
        match self.read_part(&mut snapshot.text, want) {
            Ok(None) => {}
            Ok(Some((mut entry, rest))) => {
                self.store.mark_ended_boots(self.folder.local, &mut entry);
                agents::refresh(self.folder, &mut entry, now);
                return Ok(Loaded {
                    entry,
                    snapshot,
                    published: None,
                    rest: Some(rest),
                });
            }
            Err(ReadError::Torn(why)) => {
                // While a process lives in the list, another program did the damage, and no caller can tell which
                // claim it hit.
                let file = fd(self.opened);
                let is_dead = !self.any_is_held();
                if !is_dead || pages::fill_without_damage(file, &mut snapshot.text).is_err() {
                    if let Some(entry) = self.store.begun_anew(self.opened, !is_dead) {
                        return self.join(entry, snapshot, now);
                    }
                    let snapshot = snapshot.into();
                    return Err(LoadError::List { why, snapshot });
                }
            }
            Err(error) => return Err(LoadError::Store(error.into_store(&path()))),
        }
        let known = self.store.wrote.take(&snapshot.text.bytes);
        let entry = match known.map_or_else(|| codec::decode(&snapshot.text.bytes), Ok) {
            Ok(entry) => entry,
            Err(error) => {
                return Err(LoadError::List {
                    why: error.into(),
                    snapshot: snapshot.into(),
                });
            }
        };
        if snapshot.sequence == 0 && self.any_is_held() {
            return Err(LoadError::List {
                why: EMPTY_BUT_HELD.to_owned(),
                snapshot: snapshot.into(),
            });
        }
        self.join(entry, snapshot, now)
    }

    /// Reads the wanted claims of a list. `None` where all of it has to be read; then all of it is there.
    fn read_part(&self, text: &mut Text, want: Want) -> Result<Option<(Entry, Rest)>, ReadError> {
        // A record decides which claim of the list holds, so with records the whole list is read.
        let is_partial = want != Want::All && self.store.profile.record().is_none();
        if is_partial {
            for segments in partial::segments_for(text, want) {
                pages::fill(fd(self.opened), text, segments)?;
            }
            let part = partial::decode(text, want);
            if part.is_some() || text.gaps.is_empty() {
                return Ok(part);
            }
        }
        pages::fill_all(fd(self.opened), text)?;
        Ok(is_partial.then(|| partial::decode(text, want)).flatten())
    }

    /// Brings a list together with the record that stands beside it.
    pub(super) fn join(
        &self,
        mut entry: Entry,
        snapshot: Snapshot,
        now: &Now,
    ) -> Result<Loaded, LoadError> {
        self.store.mark_ended_boots(self.folder.local, &mut entry);
        let Some((publication, format)) = self.publication() else {
            agents::refresh(self.folder, &mut entry, now);
            return Ok(Loaded {
                entry,
                snapshot,
                published: None,
                rest: None,
            });
        };
        let published = publication.read().map_err(LoadError::Store)?;
        if let Some(granted) = self.knows
            && published.as_ref().is_some_and(|it| granted.is(it, &entry))
        {
            return Ok(Loaded {
                entry,
                snapshot,
                published,
                rest: None,
            });
        }
        // What a torn list would have said is not known.
        let is_torn = snapshot.replaces_torn();
        let is_kept = || is_torn || self.any_is_held();
        let around = self.store.around(self.names, format, now, &is_kept);
        match join(&mut entry, published.as_ref(), &around) {
            Ok(()) => Ok(Loaded {
                entry,
                snapshot,
                published,
                rest: None,
            }),
            Err(Broken { why, silence }) => match published {
                Some(published) => Err(LoadError::Record(Box::new(BadRecord {
                    why,
                    silence,
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

    /// Writes the list back, and the record with it. `before` is the state that the change started from.
    ///
    /// [`Change::Overtaken`] means that another program changed the record first. Nothing counts as done
    /// then, and the caller has to look again.
    pub(super) fn commit(
        &self,
        before: &Loaded,
        after: &Entry,
        room: Room,
    ) -> Result<Change, StoreError> {
        if let Some((mut publication, format)) = self.publication() {
            let mut claims = before.entry.claims.iter().chain(&after.claims);
            publication.durable = claims.any(is_durable);
            return self.commit_both(before, after, room, publication, format);
        }
        let Some(rest) = &before.rest else {
            self.write_list(&before.snapshot, after, room)?;
            return Ok(Change::Done);
        };
        let list = rest.encode(&before.snapshot.text, after);
        let list = list.map_err(|error| self.not_encoded(error))?;
        let claims = after.claims.len() + rest.len();
        self.write_lines(&before.snapshot, list, room, claims)?;
        Ok(Change::Done)
    }

    fn commit_both(
        &self,
        before: &Loaded,
        after: &Entry,
        room: Room,
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
            // A record stays as it is, byte for byte, unless its own hold changed, as by a renewal.
            (Some(claim), Some(published)) if held_before(claim) => {
                if before.entry.claim(claim.ticket) != Some(claim) {
                    let bytes = encode(claim, Some(published))?;
                    if bytes != published.bytes
                        && publication.replace(published, &bytes)? == Change::Overtaken
                    {
                        return Ok(Change::Overtaken);
                    }
                }
                self.write_list(&before.snapshot, after, room)?;
                Ok(Change::Done)
            }
            // A grant: the list first.
            (Some(claim), published) => {
                let bytes = encode(claim, None)?;
                self.write_list(&before.snapshot, after, room)?;
                let change = match published {
                    None => publication.create(&bytes),
                    Some(published) => publication.replace(published, &bytes),
                };
                if matches!(change, Ok(Change::Done)) {
                    self.granted.set(Some(bytes));
                } else {
                    // Nothing was granted. If this write fails as well, the list has a granted claim
                    // that no record confirms.
                    self.write_list_back(before)?;
                }
                change
            }
            (None, Some(published)) => {
                if publication.remove(published)? == Change::Overtaken {
                    return Ok(Change::Overtaken);
                }
                // With the record the hold is gone, and the next reader of the list finds it so. The
                // release therefore succeeds even if the list cannot be written, as on a full disk.
                let _ = self.write_list(&before.snapshot, after, room);
                Ok(Change::Done)
            }
            (None, None) => {
                self.write_list(&before.snapshot, after, room)?;
                Ok(Change::Done)
            }
        }
    }

    /// Undoes the writing of a list. The counter stays where the write raised it to.
    fn write_list_back(&self, before: &Loaded) -> Result<(), StoreError> {
        let path = || self.folder.path_of(&self.names.list);
        let mut current = self.snapshot().map_err(|error| error.into_store(&path()))?;
        let filled = pages::fill_all(fd(self.opened), &mut current.text);
        filled.map_err(|error| error.into_store(&path()))?;
        let mut entry = before.entry.clone();
        if let Ok(written) = codec::decode(&current.text.bytes) {
            entry.raise(written.last);
        }
        self.write_list(&current, &entry, Room::All)
    }

    pub(super) fn write_list(
        &self,
        current: &Snapshot,
        entry: &Entry,
        room: Room,
    ) -> Result<(), StoreError> {
        let body = codec::encode(entry).map_err(|error| self.not_encoded(error))?;
        let list = vec![Piece::Lines(Cow::Borrowed(&body))];
        self.write_lines(current, list, room, entry.claims.len())?;
        if self.store.profile.record().is_none() {
            self.store.wrote.keep(body, entry);
        }
        Ok(())
    }

    fn not_encoded(&self, error: codec::CodecError) -> StoreError {
        let path = self.folder.path_of(&self.names.list);
        io_fault(&path, "writing the lock", std::io::Error::other(error))
    }

    fn write_lines(
        &self,
        current: &Snapshot,
        list: Vec<Piece<'_>>,
        room: Room,
        claims: usize,
    ) -> Result<(), StoreError> {
        let place = || self.folder.path_of(&self.names.list);
        // The change that ends such a hold is one of those that have to last.
        let is_durable = codec::has_durable(&current.text.bytes) || {
            let head = list
                .iter()
                .map(Piece::lines)
                .find(|lines| !lines.is_empty());
            head.is_some_and(codec::has_durable)
        };
        // The file may be longer from here on, also if the write fails in the middle.
        self.length.set(UNKNOWN);
        let written = pages::write(fd(self.opened), current, list, room)
            .map_err(|errno| fault(&place(), "writing the lock", errno))?;
        if written && is_durable {
            let synced = os::sync(fd(self.opened)).and_then(|()| self.folder.sync());
            synced.map_err(|errno| fault(&place(), "making the lock last", errno))?;
        }
        if written {
            return Ok(());
        }
        Err(StoreError::Full {
            place: place().display().to_string(),
            claims,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::joined::tests::{listed, stamp, theirs, tickets};
    use super::*;
    use crate::profile::{Profile, Record};
    use tenure_core::{Host, Kind, LockName, Policy};

    /// A format that publishes: of its holder it says the token, and when it was renewed.
    #[derive(Debug)]
    struct Published;

    impl Profile for Published {
        fn policy(&self) -> Policy {
            Policy::FLEET
        }

        fn file_name(&self, name: &LockName) -> String {
            format!("{name}.lock")
        }

        fn name_of(&self, file: &str) -> Option<LockName> {
            LockName::new(file.strip_suffix(".lock")?).ok()
        }

        fn record(&self) -> Option<&dyn Record> {
            Some(self)
        }
    }

    impl Record for Published {
        fn encode(&self, _: &LockName, claim: &Claim, _: Option<&[u8]>) -> Result<Vec<u8>, String> {
            let token = claim.token.ok_or("it has no token")?;
            Ok(format!("{token} {}", claim.lease.renewed.wall_ms).into_bytes())
        }

        fn decode(&self, _: &LockName, bytes: &[u8], _: &Now, _: &Host) -> Result<Claim, String> {
            let text = String::from_utf8_lossy(bytes);
            let words = text.split_once(' ').ok_or("it has one word")?;
            let number = |word: &str| word.parse().map_err(|_| "it has no numbers");
            let (token, renewed) = (number(words.0)?, number(words.1)?);
            let mut claim = listed(0, Some(token));
            claim.kind = Kind::Foreign;
            claim.since = Some(theirs(10_500));
            claim.lease.renewed = theirs(renewed);
            Ok(claim)
        }
    }

    /// What another program does to a record between our read and our write.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    enum Meanwhile {
        Nothing,
        /// The other program renames a record of its own over the path.
        Replaces,
        Removes,
    }
    use Meanwhile::{Nothing, Removes, Replaces};

    /// A lock with a record, on which another program acts in the middle of a change of ours.
    fn changed_meanwhile(
        held: bool,
        meanwhile: Meanwhile,
        change: impl Fn(&mut Entry),
    ) -> (Change, Option<String>, Vec<(u64, bool)>) {
        let scratch = tempfile::tempdir().expect("a folder");
        let here = Host::default();
        let store = FileStore::with_profile(
            Box::new(Published),
            scratch.path(),
            here,
            Box::new(super::super::ThreadSleeper),
        );
        let names = store.names_of(&LockName::new("app-prod").expect("a name"));
        let mut opened = None;
        let taken = store.guard_name(&names, Access::Create, GUARD_PATIENCE, &mut opened);
        let guarded = taken.expect("its guard").expect("its file");
        let now = Now {
            wall_us: 1_700_000_000_000_000,
            ..Now::default()
        };
        let load = || {
            let loaded = guarded.load(Want::All, &now);
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
            guarded
                .commit(&before, &after, Room::All)
                .expect("an answer")
        };
        let enters = |entry: &mut Entry| {
            entry.last = 2;
            entry.claims.push(listed(1, None));
        };
        assert_eq!(write(&enters, Nothing), Change::Done);
        if held {
            assert_eq!(write(&grant, Nothing), Change::Done);
        }
        let answer = write(&change, meanwhile);
        let text = std::fs::read_to_string(store.record_path(&names)).ok();
        let snapshot = pages::read(fd(guarded.opened), UNKNOWN).expect("a state");
        let list = codec::decode(&snapshot.text.bytes).expect("a list");
        (answer, text, tickets(&list))
    }

    fn grant(entry: &mut Entry) {
        entry.claims = vec![listed(1, Some(2))];
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
}
