//! Looking at a lock without its guard, and finding out about a claim.
//!
//! A look takes nothing, creates nothing and needs no right to write. It may meet a change in progress.
//! So it reads record, list and record again until nothing changed in between. It also waits for what
//! another program may be writing at this instant.

use super::bytes::{self, Byte};
use super::folder::{Access, Folder, Opened, io_fault};
use super::guarded::{EMPTY_BUT_HELD, LoadError, Loaded, any_is_held};
use super::handle::FileHandle;
use super::joined::{Broken, JoinContext, SETTLE};
use super::names::Names;
use super::pages::{self, ReadError};
use super::publication::{self, Published};
use super::{BorrowedDescriptor, FileStore, agents, fd, joined};
use crate::codec;
use crate::contract::Depth;
use crate::profile::Record;
use crate::profile::UNJUDGED;
use crate::{Content, Reading, StoreError};
use std::cell::Cell;
use std::time::{Duration, Instant};
use tenure_core::{Claim, Death, Entry, Evidence, Kind, Liveness, LivenessLock, Now, Process};
use tenure_os::clock::{instant, since};
use tenure_os::process::{self, Sights, liveness};

/// How long to wait between two such looks.
const SETTLE_LOOK: Duration = Duration::from_millis(20);

/// How often a reader looks again at a record that changes under it.
const LOOKS_MAX: usize = 64;

/// What a reader without the guard found.
pub(super) struct UnguardedLook {
    pub(super) joined: Result<Entry, Broken>,
    pub(super) published: Option<Published>,
    pub(super) opened: Option<Opened>,
    /// Nothing was ever written into the coordination file, or it was emptied.
    is_empty: bool,
}

/// Where a look finds lists and records; `None` for what is not there.
#[derive(Clone, Copy)]
pub(super) struct Folders<'a> {
    lists: Option<&'a Folder>,
    records: Option<&'a Folder>,
}

impl Folders<'_> {
    /// Whether the lists have a folder. Without one, no lock has a list yet.
    pub(super) fn are_there(&self) -> bool {
        self.lists.is_some()
    }
}

impl FileStore {
    /// Reads a lock; with a handle, its claim alone. `sights` is what was seen of processes a moment ago, and
    /// `folders` where the locks are.
    pub(super) fn reading(
        &self,
        names: &Names,
        of: Option<&FileHandle>,
        sights: &Sights,
        folders: Folders<'_>,
    ) -> Result<Reading, StoreError> {
        let mut look = match of {
            None => self.look_settled(names, folders)?,
            Some(of) => match self.look_in(folders, names, &self.now()) {
                // What stands at the name may be nothing that this process may open. Then it is not the file of this
                // hold.
                Err(_) if self.is_led_elsewhere(of) => return Ok(self.gone(names)),
                Err(error) if is_denied(&error) && self.profile.record().is_none() => {
                    return self.read_own(of);
                }
                look => look?,
            },
        };
        let stored = match (of, &look.opened) {
            (None, opened) => opened.is_some() || look.published.is_some(),
            (Some(of), opened) => opened
                .as_ref()
                .is_some_and(|found| found.is_same(&of.opened)),
        };
        if let (Some(of), Ok(entry)) = (of, &mut look.joined) {
            entry.claims.retain(|claim| claim.ticket == of.ticket);
        }
        let claims = look.joined.iter().flat_map(|entry| &entry.claims);
        let (mut evidence, mut stopped) = (Vec::new(), Vec::new());
        for claim in claims {
            // A holder knows its own processes, so a look at its hold does not pay for them.
            if of.is_some() {
                evidence.push(self.evidence_in(&look, claim, Depth::Quick));
                continue;
            }
            let (known, is_stopped) = self.seen_in(&look, claim, sights);
            evidence.push(known);
            if is_stopped {
                stopped.push(claim.ticket);
            }
        }
        Ok(Reading {
            place: self.shown(names),
            content: match look.joined {
                Ok(entry) => Content::Whole { entry, evidence },
                Err(Broken { why, silence }) => Content::Unreadable { why, silence },
            },
            stopped,
            stored,
            record: look.published.map_or_else(Vec::new, |record| record.bytes),
        })
    }

    /// What a holder is shown whose file does not stand at its name any more.
    pub(super) fn gone(&self, names: &Names) -> Reading {
        Reading {
            place: self.shown(names),
            content: Content::Whole {
                entry: Entry::default(),
                evidence: Vec::new(),
            },
            stopped: Vec::new(),
            stored: false,
            record: Vec::new(),
        }
    }

    /// Where a look finds lists and records now. The folder beside the records is for their owner alone. The record is
    /// the truth about the holder, so a user that may read it needs no more.
    pub(super) fn folders(&self) -> Result<Folders<'_>, StoreError> {
        let lists = match self.folder(false) {
            Err(error) if self.profile.record().is_some() && is_denied(&error) => None,
            lists => lists?,
        };
        Ok(Folders {
            lists,
            records: match self.profile.record() {
                Some(_) => self.records(false)?,
                None => None,
            },
        })
    }

    /// Reads a lock without its guard: the record, the list and the record again, until nothing
    /// changed in between.
    pub(super) fn look(&self, names: &Names, now: &Now) -> Result<UnguardedLook, StoreError> {
        self.look_in(self.folders()?, names, now)
    }

    fn look_in(
        &self,
        folders: Folders<'_>,
        names: &Names,
        now: &Now,
    ) -> Result<UnguardedLook, StoreError> {
        let Folders {
            lists: folder,
            records,
        } = folders;
        let format = self.profile.record();
        let record = || match records {
            Some(records) => publication::read_unguarded(records, folder, &names.record),
            None => Ok(None),
        };
        let mut published = record()?;
        for _ in 0..LOOKS_MAX {
            let (mut is_empty, mut is_torn) = (false, false);
            let opened = match folder {
                Some(folder) => folder.open_file(&names.list, Access::Read)?,
                None => None,
            };
            let entry = match opened
                .as_ref()
                .map(|opened| pages::read_unguarded(fd(opened), opened.length))
            {
                None => Ok(Entry::default()),
                Some(Ok(snapshot)) => {
                    is_empty = snapshot.sequence == 0;
                    let entry = codec::decode(&snapshot.text.bytes);
                    entry.map_err(|error| Broken::list(error.into()))
                }
                Some(Err(ReadError::Torn(why))) => {
                    let anew = |opened| self.begun_anew(opened, any_is_held(opened));
                    let anew = opened.as_ref().and_then(anew);
                    is_torn = anew.is_some();
                    anew.ok_or_else(|| Broken::list(why))
                }
                Some(Err(error)) => return Err(error.into_store(&self.list_path(names))),
            };
            let again = if format.is_some() { record()? } else { None };
            if again != published {
                published = again;
                continue;
            }
            let joined = entry.and_then(|mut entry| {
                self.mark_ended_boots(folder.is_some_and(|folder| folder.local), &mut entry);
                if let Some(format) = format {
                    let is_kept = || is_torn || opened.as_ref().is_some_and(any_is_held);
                    let around = self.around(names, format, now, &is_kept);
                    joined::join(&mut entry, published.as_ref(), &around)?;
                } else if let Some(folder) = folder {
                    agents::refresh(folder, &mut entry, now);
                }
                Ok(entry)
            });
            return Ok(UnguardedLook {
                joined,
                published,
                opened,
                is_empty,
            });
        }
        Err(self.contended(names))
    }

    /// A torn list begun anew, if nobody in it can be alive. Where no process has a byte of it (`is_held`), its waiters have
    /// ended, and beside a record that record says who holds. A native list on a local file system has ended with its
    /// machine, if the headers that are left name hosts, all of them in boots that have ended, and no claim without a
    /// process.
    ///
    /// A header of a newer state may be lost with its page. Then no sync has forced that page, so the power cut has taken
    /// back what that state alone said, as it may take back any change. A hold that is durable was forced, and its page
    /// is whole.
    pub(super) fn begun_anew(&self, opened: &Opened, is_held: bool) -> Option<Entry> {
        if is_held {
            return None;
        }
        if self.profile.record().is_some() {
            return Some(Entry::default());
        }
        let heads = pages::heads(fd(opened)).ok()?;
        let heads = heads.iter().map(|head| codec::read_head(head).ok());
        let heads: Vec<_> = heads.collect::<Option<_>>()?;
        let mut hosts = heads.iter().flat_map(|head| &head.hosts).peekable();
        let is_over = self.is_local()
            && hosts.peek().is_some()
            && hosts.all(|host| process::is_of_an_ended_boot(host, &self.here))
            && !heads.iter().any(|head| head.marks.outlives);
        let last = heads.iter().map(|head| head.entry.last).max()?;
        is_over.then(|| Entry {
            last,
            ..Entry::default()
        })
    }

    /// By what a list of this store and the record beside it are brought together.
    pub(super) fn around<'a>(
        &'a self,
        names: &'a Names,
        format: &'a dyn Record,
        now: &'a Now,
        is_kept: &'a dyn Fn() -> bool,
    ) -> JoinContext<'a> {
        JoinContext {
            name: &names.name,
            format,
            policy: &self.rules.policy,
            now,
            here: &self.here,
            is_kept,
        }
    }

    /// Looks again until the content can be understood or has settled.
    fn look_settled<'a>(
        &'a self,
        names: &Names,
        mut folders: Folders<'a>,
    ) -> Result<UnguardedLook, StoreError> {
        let (now, began) = (self.now(), instant());
        loop {
            let look = self.look_in(folders, names, &now)?;
            let settling = look.published.as_ref().is_some_and(|published| {
                look.joined.as_ref().map_or(true, is_half_said)
                    && is_settling(published, &now, since(began))
            });
            // Under the guard this is damage; without it, a caller may be about to write its claim.
            let is_emptied = look.is_empty && look.opened.as_ref().is_some_and(any_is_held);
            if is_emptied && since(began) >= SETTLE {
                return Ok(UnguardedLook {
                    joined: Err(Broken::list(EMPTY_BUT_HELD.to_owned())),
                    ..look
                });
            }
            if !settling && !is_emptied {
                return Ok(look);
            }
            self.settle()?;
            folders = self.folders()?;
        }
    }

    /// Marks the claims that this machine made before its last start. Their times are compared with its boot clock too, for
    /// the wall clock may have started anew.
    pub(super) fn mark_ended_boots(&self, local: bool, entry: &mut Entry) {
        for claim in &mut entry.claims {
            claim.is_of_ended_boot =
                local && process::is_of_an_ended_boot(&claim.holder.host, &self.here);
        }
    }

    /// Finds out about a claim that was read without the guard.
    pub(super) fn evidence_in(
        &self,
        look: &UnguardedLook,
        claim: &Claim,
        depth: Depth,
    ) -> Evidence {
        match (self.folder.get(), &look.opened) {
            (Some(folder), Some(opened)) => {
                self.evidence(folder.local, fd(opened), None, claim, depth)
            }
            _ => self.evidence_of_processes(self.is_local(), claim, LivenessLock::None),
        }
    }

    /// What is known of a claim that was found without the guard, and whether its process is certainly
    /// stopped: both by one look at each process.
    fn seen_in(&self, look: &UnguardedLook, claim: &Claim, sights: &Sights) -> (Evidence, bool) {
        let local = self.is_local();
        let liveness_lock = look.opened.as_ref().map_or(LivenessLock::None, |opened| {
            Self::liveness_lock(fd(opened), claim)
        });
        let is_stopped = Cell::new(false);
        let see = |process: &Process| {
            let sight = sights.of(process, &claim.holder.host, &self.here, local);
            let is_holder = claim.holder.process.as_ref() == Some(process);
            is_stopped.set(is_stopped.get() || is_holder && sight.is_stopped);
            sight.liveness
        };
        let evidence = self.evidence_by(local, claim, liveness_lock, see);
        (evidence, is_stopped.get())
    }

    /// What the byte of a claim shows.
    fn liveness_lock(file: BorrowedDescriptor<'_>, claim: &Claim) -> LivenessLock {
        let has_liveness_lock = claim.kind == Kind::Kernel || claim.token.is_none();
        if !has_liveness_lock {
            return LivenessLock::None;
        }
        match bytes::probe(file, Byte::of_ticket(claim.ticket)) {
            Ok(true) => LivenessLock::Held,
            Ok(false) => LivenessLock::Released,
            // A look that fails does not prove death; the rest of the evidence has to decide.
            Err(_) => LivenessLock::None,
        }
    }

    /// Finds out about a claim from its liveness lock and its processes. On the hot path a held liveness
    /// lock is enough, and the processes are not asked. `own` is the ticket whose byte `file` itself has.
    pub(super) fn evidence(
        &self,
        local: bool,
        file: BorrowedDescriptor<'_>,
        own: Option<u64>,
        claim: &Claim,
        depth: Depth,
    ) -> Evidence {
        let liveness_lock = if own == Some(claim.ticket) {
            LivenessLock::Held
        } else {
            Self::liveness_lock(file, claim)
        };
        match (liveness_lock, depth) {
            (LivenessLock::Held, Depth::Quick) => Evidence {
                liveness_lock: LivenessLock::Held,
                process: Liveness::Unknown,
                command: Liveness::Unknown,
            },
            (liveness_lock, _) => self.evidence_of_processes(local, claim, liveness_lock),
        }
    }

    fn evidence_of_processes(
        &self,
        local: bool,
        claim: &Claim,
        liveness_lock: LivenessLock,
    ) -> Evidence {
        let see = |process: &Process| liveness(process, &claim.holder.host, &self.here, local);
        self.evidence_by(local, claim, liveness_lock, see)
    }

    /// What a look at each process of a claim shows. One whose byte was released may be gone also where its boot is not known.
    fn evidence_by(
        &self,
        local: bool,
        claim: &Claim,
        liveness_lock: LivenessLock,
        see: impl Fn(&Process) -> Liveness,
    ) -> Evidence {
        let ask = |process: Option<&Process>| {
            let Some(process) = process else {
                return Liveness::NotRecorded;
            };
            let host = &claim.holder.host;
            match see(process) {
                Liveness::Unknown
                    if liveness_lock == LivenessLock::Released
                        && process::is_absent(process, host, &self.here, local) =>
                {
                    Liveness::Dead(Death::Gone)
                }
                seen => seen,
            }
        };
        Evidence {
            liveness_lock,
            process: ask(claim.holder.process.as_ref()),
            command: ask(claim.holder.command.as_ref()),
        }
    }

    /// Whether the process of a claim is certainly stopped.
    pub(super) fn is_stopped(&self, local: bool, claim: &Claim) -> bool {
        let host = &claim.holder.host;
        let process = claim.holder.process.as_ref();
        process.is_some_and(|process| process::is_stopped(process, host, &self.here, local))
    }

    /// Whether only this machine can reach the locks, as far as the opened folders show.
    #[doc(hidden)] // For our own callers.
    pub fn is_local(&self) -> bool {
        let opened = [&self.folder, &self.records];
        opened
            .iter()
            .find_map(|folder| folder.get())
            .is_some_and(|folder| folder.local)
    }

    /// Whether another program may at this instant be writing what was read under the guard. The caller
    /// then pauses ([`FileStore::settle`]) and reads it again before it judges.
    pub(super) fn is_being_written(
        loaded: &Result<Loaded, LoadError>,
        now: &Now,
        began: impl FnOnce() -> Instant,
    ) -> bool {
        let published = match loaded {
            Ok(loaded) if is_half_said(&loaded.entry) => loaded.published.as_ref(),
            Err(LoadError::Record(found)) => Some(&found.published),
            Ok(_) | Err(LoadError::List { .. } | LoadError::Store(_)) => None,
        };
        published.is_some_and(|published| is_settling(published, now, since(began())))
    }

    /// Waits a little until another program has finished its write. Not under the guard.
    pub(super) fn settle(&self) -> Result<(), StoreError> {
        self.pause(SETTLE_LOOK)
    }

    /// Sleeps; not under the guard.
    pub(super) fn pause(&self, length: Duration) -> Result<(), StoreError> {
        self.sleeper
            .poll(&[], length, None)
            .map(|_| ())
            .map_err(|error| io_fault(&self.path, "reading the record again", error))
    }
}

/// Whether the system keeps this user from a folder.
fn is_denied(error: &StoreError) -> bool {
    matches!(
        error,
        StoreError::Permission { .. } | StoreError::Denied { .. }
    )
}

/// Whether content that cannot be understood may still be in the middle of a write.
fn is_settling(published: &Published, now: &Now, since_now: Duration) -> bool {
    let millis = u64::try_from(since_now.as_millis()).unwrap_or(u64::MAX);
    let wall_ms = (now.wall_us / 1_000).saturating_add(millis);
    since_now < SETTLE
        && u128::from(wall_ms.saturating_sub(published.modified_ms)) < SETTLE.as_millis()
}

/// Whether a record says too little to be judged: another program may be writing it at this instant.
pub(super) fn is_half_said(entry: &Entry) -> bool {
    let mut granted = entry.granted();
    granted.any(|claim| claim.holder.fact(UNJUDGED).is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_understood_may_be_being_written_for_two_seconds() {
        let now = Now {
            wall_us: 100_000_999,
            ..Now::default()
        };
        for (modified_ms, since_now_ms, expected) in [
            (100_000, 0, true),
            (100_000, 1_999, true),
            (100_000, 2_000, false),
            (99_000, 999, true),
            (99_000, 1_000, false),
            (98_001, 0, true),
            (98_000, 0, false),
            (0, 0, false),
            // A clock that is ahead says nothing, so this record is read again for the full time.
            (700_000, 1_999, true),
            (700_000, 2_000, false),
            (700_000, 9_000, false),
        ] {
            let mut published = Published::of_bytes(b"");
            published.modified_ms = modified_ms;
            let since_now = Duration::from_millis(since_now_ms);
            let is_settling = is_settling(&published, &now, since_now);
            assert_eq!(is_settling, expected, "{modified_ms} {since_now_ms}");
        }
    }
}
