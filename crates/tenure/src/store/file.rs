//! The file store: one coordination file per lock, kernel locks on single bytes of it.
//!
//! # How a change is made
//! 1. Open the file, lock its *guard* byte, make sure that the name still leads to this file.
//! 2. Read the list (`record`), run the core's transition on it.
//! 3. A new claim locks its own *ticket* byte, its beacon. **Then** the list is written.
//! 4. Let go of the guard.
//!
//! A release changes the list first and puts its beacon out afterwards. So whoever stands in the
//! list has a lit beacon, from before its claim can be seen until after it is gone, and a claim
//! whose beacon is out belongs to somebody who died.
//!
//! # Crash safety
//! The kernel lets go of the guard and of a beacon when the last descriptor is closed, whatever
//! ended the process. Death between any two steps leaves this behind:
//! - before 3: nothing; possibly an empty file, which is a free lock;
//! - after the ticket byte, before the write: nothing, for the byte went out with us;
//! - in the write: the state before, because the slot that counts is never written to;
//! - after the write: a whole list with our claim in it and its beacon out. Whoever asks next
//!   sweeps it; whoever already waits behind it is woken by the kernel as the byte goes out;
//! - in a release, between the write and the byte: the claim is gone, and the byte goes out
//!   with us.
//!
//! A detached claim has no beacon once it is granted. Death between its write and its answer
//! leaves a granted hold that lives as long as its owner does; asking again under the same
//! request id answers that it is held by the asker.
//!
//! # What it leaves to others
//! Which change is right (the core), how a body looks (the profile), and how a thread of this
//! process sleeps in the kernel ([`Sleeper`]): a command may use signals for that, a library may
//! not.

mod bytes;
mod folder;
mod list;
mod record;
mod sleeper;

pub use bytes::{Byte, Mode};
pub use sleeper::{ByteLock, Sleeper, ThreadSleeper, poll_readable};

use super::{
    Advanced, Cleaned, Content, Entered, NewPlace, Reading, RenewedOwned, Store, StoreError, Wake,
};
use crate::process::{self, liveness};
use crate::profile::{Native, Profile, SUFFIX};
use folder::{Access, Folder, Opened, fault, io_fault};
use record::{ReadError, Snapshot};
use std::cell::OnceCell;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use tenure_core::{
    Advance, Beacon, Claim, Entering, Entry, Event, Evidence, Force, Host, Kind, Left, Liveness,
    LockName, Now, Ownership, Policy, Predecessor, Process, Released, Renewal, Request, Standing,
    Takeover, judge,
};

/// How long a guard may be taken before that is an error. A transition takes microseconds; only a
/// process that was stopped in the middle of one keeps it longer.
const GUARD_PATIENCE: Duration = Duration::from_secs(5);

/// How long a sleep behind a record lasts at most before the record is looked at again.
const RECORD_NAP_MAX: Duration = Duration::from_secs(1);

/// How long it lasts at least, so that nothing that stays as it is makes a waiter spin.
const RECORD_NAP_MIN: Duration = Duration::from_millis(100);

/// The coordination file that remembers the highest number of all files that were removed. No
/// lock can have this name.
///
/// In a folder that everybody may write to, each user has one of its own: there, nobody's files
/// are opened by anybody else.
fn floor_file(folder: &Folder) -> String {
    if folder.shared {
        let user = rustix::process::geteuid().as_raw();
        format!(".floor.{user}{}", SUFFIX)
    } else {
        format!(".floor{}", SUFFIX)
    }
}

/// Locks kept as files in one folder.
pub struct FileStore {
    path: PathBuf,
    allow_network: bool,
    policy: Policy,
    here: Host,
    sleeper: Box<dyn Sleeper>,
    folder: OnceCell<Folder>,
}

/// A claim's place: the descriptor that carries its beacon. Dropping it is dying.
#[derive(Debug)]
pub struct Seat {
    name: LockName,
    ticket: u64,
    opened: Opened,
    /// The beacon's own open file. A command inherits this one, and locks belong to the open
    /// file: were the guard taken on it too, a supervisor killed in the middle of a change would
    /// leave the guard with its command.
    beacon: Option<Opened>,
    file: String,
    /// Taken for the length of a change. The guard byte belongs to the open file, and so keeps
    /// out every other caller, but not a second thread with this same seat.
    turn: Mutex<()>,
}

impl Seat {
    /// The ticket of the claim.
    pub fn ticket(&self) -> u64 {
        self.ticket
    }

    /// The lock.
    pub fn name(&self) -> &LockName {
        &self.name
    }

    /// The descriptor that carries the beacon. A command that inherits a copy keeps it lit, and
    /// gets nothing else by it.
    pub fn beacon(&self) -> BorrowedFd<'_> {
        self.beacon.as_ref().unwrap_or(&self.opened).fd.as_fd()
    }
}

impl FileStore {
    /// Locks in `folder`, judged from `here`. Touches nothing yet: the folder is opened, and made
    /// if need be, by the first call that has to.
    pub fn new(folder: impl Into<PathBuf>, here: Host, sleeper: Box<dyn Sleeper>) -> Self {
        Self {
            path: folder.into(),
            allow_network: false,
            policy: Native.policy(),
            here,
            sleeper,
            folder: OnceCell::new(),
        }
    }

    /// Accepts a network file system, for people who know that its locks work.
    #[must_use]
    pub fn allow_network(mut self, allow: bool) -> Self {
        self.allow_network = allow;
        self
    }

    /// The folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn folder(&self, create: bool) -> Result<Option<&Folder>, StoreError> {
        if let Some(folder) = self.folder.get() {
            return Ok(Some(folder));
        }
        match Folder::open(&self.path, create, self.allow_network)? {
            Some(folder) => Ok(Some(self.folder.get_or_init(|| folder))),
            None => Ok(None),
        }
    }

    fn file_name(name: &LockName) -> String {
        let mut file = String::with_capacity(name.as_str().len() + SUFFIX.len());
        file.push_str(name.as_str());
        file.push_str(SUFFIX);
        file
    }

    /// Opens a lock file and takes its guard. `None` if there is no file and none is made.
    fn guarded<'a>(
        &'a self,
        file: &str,
        access: Access,
    ) -> Result<Option<(Guarded<'a>, Opened)>, StoreError> {
        let Some(folder) = self.folder(access == Access::Create)? else {
            return Ok(None);
        };
        loop {
            let Some(opened) = folder.open_file(file, access)? else {
                return Ok(None);
            };
            let guarded = self.guard(folder, file, opened.fd.as_fd())?;
            if guarded.still_leads_to(file, &opened)? {
                return Ok(Some((guarded, opened)));
            }
            // Somebody removed the file between our opening and our guard; begin again.
        }
    }

    /// Takes the guard of a seat's own file. `None` if the name no longer leads to that file:
    /// whatever the seat stood for is lost.
    fn guarded_seat<'a>(&'a self, seat: &Seat) -> Result<Option<Guarded<'a>>, StoreError> {
        let Some(folder) = self.folder(false)? else {
            return Ok(None);
        };
        let guarded = self.guard(folder, &seat.file, seat.opened.fd.as_fd())?;
        let ours = guarded.still_leads_to(&seat.file, &seat.opened)?;
        Ok(ours.then_some(guarded))
    }

    fn guard<'a>(
        &'a self,
        folder: &'a Folder,
        file: &str,
        fd: BorrowedFd<'_>,
    ) -> Result<Guarded<'a>, StoreError> {
        let path = || folder.path_of(file);
        let failed = |error| io_fault(&path(), "locking the guard", error);
        let lock = ByteLock {
            byte: Byte::GUARD,
            mode: Mode::Exclusive,
        };
        if !lock.try_take(fd).map_err(failed)? {
            let wake = self
                .sleeper
                .lock(fd, lock, GUARD_PATIENCE)
                .map_err(failed)?;
            if wake != Wake::Ready {
                return Err(StoreError::Stuck {
                    place: path().display().to_string(),
                    waited_ms: u64::try_from(GUARD_PATIENCE.as_millis()).unwrap_or(u64::MAX),
                });
            }
        }
        Ok(Guarded {
            store: self,
            folder,
        })
    }

    /// What is known of a claim, gathered from its beacon and its processes.
    fn evidence(&self, folder: &Folder, file: BorrowedFd<'_>, claim: &Claim) -> Evidence {
        let lit = match bytes::probe(file, Byte::of_ticket(claim.ticket)) {
            Ok(true) => Beacon::Lit,
            Ok(false) => Beacon::Out,
            // A failed look is no proof of death; what else is known has to decide.
            Err(_) => Beacon::None,
        };
        let has_beacon = claim.kind == Kind::Kernel || claim.token.is_none();
        let ask = |process: Option<&Process>| {
            process.map_or(Liveness::NotRecorded, |process| {
                liveness(process, &claim.holder.host, &self.here, folder.local)
            })
        };
        Evidence {
            beacon: if has_beacon { lit } else { Beacon::None },
            process: ask(claim.holder.process.as_ref()),
            command: ask(claim.holder.command.as_ref()),
        }
    }

    /// The same, but a lit beacon is enough and nothing else is asked: for the hot path.
    fn quick_evidence(&self, folder: &Folder, file: BorrowedFd<'_>, claim: &Claim) -> Evidence {
        let has_beacon = claim.kind == Kind::Kernel || claim.token.is_none();
        if has_beacon && bytes::probe(file, Byte::of_ticket(claim.ticket)) == Ok(true) {
            return Evidence {
                beacon: Beacon::Lit,
                process: Liveness::Unknown,
                command: Liveness::Unknown,
            };
        }
        self.evidence(folder, file, claim)
    }

    /// The highest number of files that were removed from this folder.
    fn floor(folder: &Folder) -> Result<u64, StoreError> {
        let file = floor_file(folder);
        let Some(opened) = folder.open_file(&file, Access::Read)? else {
            return Ok(0);
        };
        let unreadable = |why| StoreError::Unreadable {
            place: folder.path_of(&file).display().to_string(),
            why,
        };
        match record::read_unguarded(opened.fd.as_fd()) {
            Ok(snapshot) => list::decode(&snapshot.body)
                .map(|entry| entry.last)
                .map_err(unreadable),
            Err(ReadError::Torn(why)) => Err(unreadable(why)),
            Err(ReadError::Io(errno)) => Err(fault(&folder.path_of(&file), "reading", errno)),
        }
    }

    /// Raises the floor before a file is removed, so that its successor's numbers stay above.
    fn raise_floor(&self, folder: &Folder, last: u64) -> Result<(), StoreError> {
        let file = floor_file(folder);
        let Some((guarded, opened)) = self.guarded(&file, Access::Create)? else {
            return Ok(());
        };
        let (mut entry, snapshot) = guarded.load(&file, &opened)?;
        if entry.last < last {
            entry.raise(last);
            guarded.commit(&file, &opened, &snapshot, &entry)?;
        }
        release(&opened);
        Ok(())
    }

    /// A change to an existing lock that is not tied to a seat.
    fn change<T>(
        &self,
        name: &LockName,
        absent: T,
        step: impl FnOnce(&mut Entry) -> (T, bool),
    ) -> Result<T, StoreError> {
        let file = Self::file_name(name);
        let Some((guarded, opened)) = self.guarded(&file, Access::Write)? else {
            return Ok(absent);
        };
        let (mut entry, snapshot) = guarded.load(&file, &opened)?;
        let (answer, changed) = step(&mut entry);
        if changed {
            guarded.commit(&file, &opened, &snapshot, &entry)?;
        }
        release(&opened);
        Ok(answer)
    }

    /// A change to the list that a seat stands in. `gone` if its file is not the lock any more.
    fn change_seat<T>(
        &self,
        seat: &Seat,
        gone: T,
        step: impl FnOnce(&mut Entry, &Guarded<'_>) -> (T, bool),
    ) -> Result<(T, Entry), StoreError> {
        // A thread that panicked in the middle of a change has written all of it or nothing.
        let _turn = seat.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(guarded) = self.guarded_seat(seat)? else {
            return Ok((gone, Entry::default()));
        };
        let (mut entry, snapshot) = guarded.load(&seat.file, &seat.opened)?;
        let (answer, changed) = step(&mut entry, &guarded);
        if changed {
            guarded.commit(&seat.file, &seat.opened, &snapshot, &entry)?;
        }
        release(&seat.opened);
        Ok((answer, entry))
    }
}

impl FileStore {
    /// A descriptor that can be read once something happened to the list that a seat stands in,
    /// or to its file. Costs an inotify instance, so it is for work that lasts.
    ///
    /// # Errors
    /// - [`StoreError::Io`] if the system has no more of them.
    pub fn news(&self, seat: &Seat) -> Result<std::os::fd::OwnedFd, StoreError> {
        Self::news_of(&self.path.join(&seat.file))
    }

    fn news_of(path: &Path) -> Result<std::os::fd::OwnedFd, StoreError> {
        use rustix::fs::inotify;

        let failed = |errno| fault(path, "watching the lock", errno);
        let watch = inotify::init(inotify::CreateFlags::CLOEXEC | inotify::CreateFlags::NONBLOCK)
            .map_err(failed)?;
        inotify::add_watch(
            &watch,
            path,
            inotify::WatchFlags::MODIFY
                | inotify::WatchFlags::ATTRIB
                | inotify::WatchFlags::DELETE_SELF
                | inotify::WatchFlags::MOVE_SELF,
        )
        .map_err(failed)?;
        Ok(watch)
    }
}

/// The guard of one file, held. What happens to the file happens through this, and every way out
/// lets go of it: [`release`] where all went well or an error is reported, the closing of
/// the descriptor otherwise.
struct Guarded<'a> {
    store: &'a FileStore,
    folder: &'a Folder,
}

impl Guarded<'_> {
    /// Whether the name still leads to the opened file; if not, the guard is let go.
    fn still_leads_to(&self, file: &str, opened: &Opened) -> Result<bool, StoreError> {
        let answer = self.folder.still_leads_to(file, opened);
        if !matches!(answer, Ok(true)) {
            release(opened);
        }
        answer
    }

    fn read(&self, file: &str, opened: &Opened) -> Result<Snapshot, StoreError> {
        record::read(opened.fd.as_fd()).map_err(|error| match error {
            ReadError::Io(errno) => fault(&self.folder.path_of(file), "reading the lock", errno),
            ReadError::Torn(why) => StoreError::Unreadable {
                place: self.folder.path_of(file).display().to_string(),
                why,
            },
        })
    }

    fn load(&self, file: &str, opened: &Opened) -> Result<(Entry, Snapshot), StoreError> {
        let loaded = self.read(file, opened).and_then(|snapshot| {
            let decoded = list::decode(&snapshot.body);
            let sound = decoded.and_then(|entry| match emptied(opened, &snapshot) {
                Some(why) => Err(why.to_owned()),
                None => Ok(entry),
            });
            let entry = sound.map_err(|why| StoreError::Unreadable {
                place: self.folder.path_of(file).display().to_string(),
                why,
            })?;
            Ok((entry, snapshot))
        });
        if loaded.is_err() {
            release(opened);
        }
        loaded
    }

    fn commit(
        &self,
        file: &str,
        opened: &Opened,
        current: &Snapshot,
        entry: &Entry,
    ) -> Result<(), StoreError> {
        let place = || self.folder.path_of(file);
        let written = list::encode(entry)
            .map_err(|error| StoreError::Io {
                place: place().display().to_string(),
                doing: "writing the lock",
                source: error.into(),
            })
            .and_then(|body| {
                record::write(opened.fd.as_fd(), current, &body)
                    .map_err(|errno| fault(&place(), "writing the lock", errno))
            });
        match written {
            Ok(true) => Ok(()),
            Ok(false) => {
                release(opened);
                Err(StoreError::Full {
                    place: place().display().to_string(),
                    claims: entry.claims.len(),
                })
            }
            Err(error) => {
                release(opened);
                Err(error)
            }
        }
    }

    fn evidence(&self, opened: &Opened, claim: &Claim) -> Evidence {
        self.store
            .quick_evidence(self.folder, opened.fd.as_fd(), claim)
    }
}

/// Why a file without any state, found so under the guard, is not a free lock: beacons are lit in
/// it, so somebody has emptied it by hand under the feet of those who still live.
fn emptied(opened: &Opened, snapshot: &Snapshot) -> Option<&'static str> {
    let lit = snapshot.sequence == 0 && somebody_is_lit(opened);
    lit.then_some("it is empty, but somebody alive has a place in it")
}

/// Whether any claim's beacon is lit. One that cannot be looked for is not taken for dead by
/// this: without working locks, no guard could have been taken either.
fn somebody_is_lit(opened: &Opened) -> bool {
    bytes::probe_tickets(opened.fd.as_fd()) == Ok(true)
}

/// The lowest number that a beacon's descriptor gets, where there are so many: out of the way of
/// scripts that open 3 to 9 themselves, within the 64 descriptors that a process has without
/// growing its table, and above whatever else its process opens. The kernel closes the descriptors
/// of the dead from the highest down, and some (inotify) take it milliseconds.
const BEACON_FD_MIN: i32 = 57;

/// Lights the beacon of a new ticket, on an open file of its own. Called with the guard held.
fn light(folder: &Folder, file: &str, opened: &Opened, ticket: u64) -> Result<Opened, StoreError> {
    let failed = |source| StoreError::Io {
        place: folder.path_of(file).display().to_string(),
        doing: "lighting the beacon of a new claim",
        source,
    };
    let beacon = folder
        .open_file(file, Access::Write)?
        .filter(|beacon| beacon.is_same(opened))
        .ok_or_else(|| failed(std::io::ErrorKind::NotFound.into()))?;
    let byte = Byte::of_ticket(ticket);
    let beacon = beacon.moved_above(BEACON_FD_MIN);
    match bytes::try_lock(beacon.fd.as_fd(), byte, Mode::Exclusive) {
        Ok(true) => Ok(beacon),
        Ok(false) => Err(failed(std::io::ErrorKind::AddrInUse.into())),
        Err(errno) => Err(failed(errno.into())),
    }
}

/// Lets go of the guard.
fn release(opened: &Opened) {
    // Letting go of a byte of an open file cannot fail, and if it did, closing would do it.
    let _ = bytes::unlock(opened.fd.as_fd(), Byte::GUARD);
}

impl Store for FileStore {
    type Seat = Seat;

    fn policy(&self) -> &Policy {
        &self.policy
    }

    fn place(&self, name: &LockName) -> String {
        self.path.join(Self::file_name(name)).display().to_string()
    }

    fn read(&self, name: &LockName) -> Result<Reading, StoreError> {
        let place = self.place(name);
        let file = Self::file_name(name);
        let absent = |place| Reading {
            place,
            content: Content::Whole {
                entry: Entry::default(),
                evidence: Vec::new(),
            },
        };
        let Some(folder) = self.folder(false)? else {
            return Ok(absent(place));
        };
        let Some(opened) = folder.open_file(&file, Access::Read)? else {
            return Ok(absent(place));
        };
        let fd = opened.fd.as_fd();
        let snapshot = match record::read_unguarded(fd) {
            Ok(snapshot) => snapshot,
            Err(ReadError::Torn(why)) => {
                return Ok(Reading {
                    place,
                    content: Content::Unreadable { why },
                });
            }
            Err(ReadError::Io(errno)) => {
                return Err(fault(&folder.path_of(&file), "reading the lock", errno));
            }
        };
        let content = match list::decode(&snapshot.body) {
            Ok(entry) => Content::Whole {
                evidence: entry
                    .claims
                    .iter()
                    .map(|claim| self.evidence(folder, fd, claim))
                    .collect(),
                entry,
            },
            Err(why) => Content::Unreadable { why },
        };
        Ok(Reading { place, content })
    }

    fn enter(
        &self,
        name: &LockName,
        request: Request,
        now: &Now,
    ) -> Result<Entered<Seat>, StoreError> {
        let file = Self::file_name(name);
        let place = || self.place(name);
        let Some((guarded, opened)) = self.guarded(&file, Access::Create)? else {
            return Err(StoreError::Io {
                place: place(),
                doing: "making the lock folder",
                source: std::io::ErrorKind::NotFound.into(),
            });
        };
        let loaded = self.load_for_entering(&guarded, &file, &opened, &request);
        let (mut entry, snapshot, mut events) = match loaded {
            Ok(loaded) => loaded,
            Err(Refused::Store(error)) => {
                release(&opened);
                return Err(error);
            }
            Err(Refused::Policy(refusal)) => {
                release(&opened);
                return Ok(Entered {
                    entering: Entering::Refused(refusal),
                    entry: Entry::default(),
                    events: Vec::new(),
                    seat: None,
                });
            }
        };
        let kind = request.kind;
        let force = request.force;
        let entering = entry.enter(
            &self.policy,
            request,
            now,
            |claim| match force {
                Force::No => guarded.evidence(&opened, claim),
                // What force may do depends on more than whether the claim is alive.
                Force::Asked | Force::Confirmed => {
                    self.evidence(guarded.folder, opened.fd.as_fd(), claim)
                }
            },
            &mut events,
        );
        let place_made = NewPlace::of(&entering, kind);
        let beacon = match place_made.as_ref().filter(|made| made.beacon) {
            // Before the write: from its first visible instant on, a claim's beacon is lit.
            Some(made) => match light(guarded.folder, &file, &opened, made.ticket) {
                Ok(beacon) => Some(beacon),
                Err(error) => {
                    release(&opened);
                    return Err(error);
                }
            },
            None => None,
        };
        if place_made.is_some() || !events.is_empty() {
            guarded.commit(&file, &opened, &snapshot, &entry)?;
        }
        release(&opened);
        Ok(Entered {
            entering,
            entry,
            events,
            seat: place_made.map(|made| Seat {
                name: name.clone(),
                ticket: made.ticket,
                opened,
                beacon,
                file,
                turn: Mutex::default(),
            }),
        })
    }

    fn sleep(
        &self,
        seat: &Seat,
        behind: &Predecessor,
        now: &Now,
        until: Option<Instant>,
    ) -> Result<Wake, StoreError> {
        match behind {
            Predecessor::Beacon { ticket } => self.sleep_on_byte(&seat.opened, *ticket, until),
            Predecessor::Record(claim) => self.sleep_on_record(&seat.file, claim, now, until),
        }
    }

    fn advance(&self, seat: &Seat, now: &Now) -> Result<Advanced, StoreError> {
        let mut events = Vec::new();
        let (advance, entry) = self.change_seat(seat, Advance::Gone, |entry, guarded| {
            let advance = entry.advance(
                &self.policy,
                seat.ticket,
                now,
                |claim| guarded.evidence(&seat.opened, claim),
                &mut events,
            );
            let changed = matches!(advance, Advance::Granted { .. }) || !events.is_empty();
            (advance, changed)
        })?;
        Ok(Advanced {
            advance,
            entry,
            events,
        })
    }

    fn name_command(&self, seat: &Seat, command: Process) -> Result<bool, StoreError> {
        self.change_seat(seat, false, |entry, _| {
            let named = entry.name_command(seat.ticket, command);
            (named, named)
        })
        .map(|(named, _)| named)
    }

    fn renew(&self, seat: &Seat, now: &Now) -> Result<Renewal, StoreError> {
        self.change_seat(seat, Renewal::Lost, |entry, _| {
            let renewal = entry.renew(seat.ticket, now);
            (renewal, matches!(renewal, Renewal::Renewed { .. }))
        })
        .map(|(renewal, _)| renewal)
    }

    fn verify(&self, seat: &Seat) -> Result<Renewal, StoreError> {
        let Some(folder) = self.folder(false)? else {
            return Ok(Renewal::Lost);
        };
        if !folder.still_leads_to(&seat.file, &seat.opened)? {
            return Ok(Renewal::Lost);
        }
        let path = || folder.path_of(&seat.file);
        let read = match record::read_unguarded(seat.opened.fd.as_fd()) {
            Ok(snapshot) => list::decode(&snapshot.body),
            Err(ReadError::Torn(why)) => Err(why),
            Err(ReadError::Io(errno)) => return Err(fault(&path(), "reading the lock", errno)),
        };
        // A damaged record says nothing about the hold; that it is lost would be a guess.
        read.map(|entry| entry.verify(seat.ticket))
            .map_err(|why| StoreError::Unreadable {
                place: path().display().to_string(),
                why,
            })
    }

    fn leave(&self, seat: &Seat, now: &Now) -> Result<Left, StoreError> {
        let left = self.change_seat(seat, Left::Absent, |entry, _| {
            let left = entry.leave(seat.ticket, now);
            let changed = left != Left::Absent;
            (left, changed)
        });
        // Explicitly, for a daemon that the command left behind may keep a copy of the
        // descriptor. Also after an error: the claim then stands in the list as a dead one, which
        // the next caller sweeps.
        let _ = bytes::unlock(seat.beacon(), Byte::of_ticket(seat.ticket));
        left.map(|(left, _)| left)
    }

    fn renew_owned(
        &self,
        name: &LockName,
        owns: &dyn Fn(&Claim) -> Ownership,
        now: &Now,
    ) -> Result<RenewedOwned, StoreError> {
        self.change(name, RenewedOwned::Lost, |entry| {
            super::renew_owned(entry, owns, now)
        })
    }

    fn release_owned(
        &self,
        name: &LockName,
        owns: &dyn Fn(&Claim) -> Ownership,
        now: &Now,
    ) -> Result<Released, StoreError> {
        self.change(name, Released::Absent, |entry| {
            super::release_owned(entry, &self.policy, owns, now)
        })
    }

    fn watch(
        &self,
        name: &LockName,
        seen: &Entry,
        now: &Now,
        until: Option<Instant>,
    ) -> Result<Wake, StoreError> {
        let file = Self::file_name(name);
        let Some(folder) = self.folder(false)? else {
            return Ok(Wake::Ready);
        };
        let Some(opened) = folder.open_file(&file, Access::Read)? else {
            return Ok(Wake::Ready);
        };
        for claim in &seen.claims {
            let evidence = self.quick_evidence(folder, opened.fd.as_fd(), claim);
            if evidence.beacon == Beacon::Lit {
                return self.sleep_on_byte(&opened, claim.ticket, until);
            }
            if claim.token.is_some() {
                return self.sleep_on_record(&file, claim, now, until);
            }
        }
        Ok(Wake::Ready)
    }

    fn names(&self, each: &mut dyn FnMut(LockName)) -> Result<(), StoreError> {
        let Some(folder) = self.folder(false)? else {
            return Ok(());
        };
        let failed = |errno| fault(&self.path, "listing the lock folder", errno);
        for item in rustix::fs::Dir::read_from(folder.fd()).map_err(failed)? {
            let item = item.map_err(failed)?;
            let name = item
                .file_name()
                .to_str()
                .ok()
                .and_then(|file| file.strip_suffix(SUFFIX))
                .and_then(|name| LockName::new(name).ok());
            if let Some(name) = name {
                each(name);
            }
        }
        Ok(())
    }

    fn clean(&self, name: &LockName, now: &Now, dry_run: bool) -> Result<Cleaned, StoreError> {
        let file = Self::file_name(name);
        let nothing = Cleaned {
            swept: Vec::new(),
            removed: false,
        };
        let Some((guarded, opened)) = self.guarded(&file, Access::Write)? else {
            return Ok(nothing);
        };
        let (mut entry, snapshot) = guarded.load(&file, &opened)?;
        let swept = entry.sweep(&self.policy, now, |claim| {
            self.evidence(guarded.folder, opened.fd.as_fd(), claim)
        });
        let removed = entry.claims.is_empty();
        if dry_run {
            release(&opened);
            return Ok(Cleaned { swept, removed });
        }
        if removed {
            // Killed after the floor and before the removal: the file is still there, and free.
            let raised = self.raise_floor(guarded.folder, entry.last);
            let unlinked = raised.and_then(|()| {
                rustix::fs::unlinkat(guarded.folder.fd(), &file, rustix::fs::AtFlags::empty())
                    .map_err(|errno| {
                        fault(
                            &guarded.folder.path_of(&file),
                            "removing an unused lock",
                            errno,
                        )
                    })
            });
            release(&opened);
            unlinked?;
        } else {
            if !swept.is_empty() {
                guarded.commit(&file, &opened, &snapshot, &entry)?;
            }
            release(&opened);
        }
        Ok(Cleaned { swept, removed })
    }
}

enum Refused {
    Store(StoreError),
    Policy(tenure_core::Refusal),
}

impl FileStore {
    /// Loads the list for a caller who wants in: a fresh file begins above the folder's floor,
    /// and one that cannot be read is replaced or refused as the policy says. Replacing it is an
    /// event.
    ///
    /// Force replaces a record, never a living holder: while any beacon is lit in the file, it
    /// stays as it is.
    fn load_for_entering(
        &self,
        guarded: &Guarded<'_>,
        file: &str,
        opened: &Opened,
        request: &Request,
    ) -> Result<(Entry, Snapshot, Vec<Event>), Refused> {
        let unreadable = |why: String| {
            let place = guarded.folder.path_of(file).display().to_string();
            Refused::Store(StoreError::Unreadable { place, why })
        };
        let (torn, snapshot) = match record::read(opened.fd.as_fd()) {
            Ok(snapshot) => (None, snapshot),
            Err(ReadError::Torn(why)) => (Some(why), Snapshot::replacing_torn()),
            Err(ReadError::Io(errno)) => {
                let path = guarded.folder.path_of(file);
                return Err(Refused::Store(fault(&path, "reading the lock", errno)));
            }
        };
        let why = match torn {
            Some(why) => why,
            None => match list::decode(&snapshot.body) {
                Ok(mut entry) => {
                    if let Some(why) = emptied(opened, &snapshot) {
                        return Err(unreadable(why.to_owned()));
                    }
                    if snapshot.sequence == 0 {
                        entry.raise(Self::floor(guarded.folder).map_err(Refused::Store)?);
                    }
                    return Ok((entry, snapshot, Vec::new()));
                }
                Err(why) => why,
            },
        };
        match Entry::replace_unreadable(&self.policy, request.force, 0) {
            Ok(()) if somebody_is_lit(opened) => Err(unreadable(format!(
                "{why}; it is not replaced, because somebody alive has a place in it"
            ))),
            Ok(()) => {
                let mut entry = Entry::default();
                entry.raise(Self::floor(guarded.folder).map_err(Refused::Store)?);
                let replaced = Event::Stolen {
                    why: Takeover::Corrupt,
                    previous: None,
                    record: Vec::new(),
                };
                Ok((entry, snapshot, vec![replaced]))
            }
            Err(_) if request.force == Force::No => Err(unreadable(why)),
            Err(refusal) => Err(Refused::Policy(refusal)),
        }
    }

    /// Sleeps until an owner lets go of its byte, and keeps nothing of it.
    fn sleep_on_byte(
        &self,
        opened: &Opened,
        ticket: u64,
        until: Option<Instant>,
    ) -> Result<Wake, StoreError> {
        let lock = ByteLock {
            byte: Byte::of_ticket(ticket),
            mode: Mode::Shared,
        };
        self.sleeper
            .pass(opened.fd.as_fd(), lock, until)
            .map_err(|error| io_fault(&self.path, "waiting for the claim before", error))
    }

    /// Sleeps until a recorded process ends, the lease runs out, or the file changes.
    fn sleep_on_record(
        &self,
        file: &str,
        claim: &Claim,
        now: &Now,
        until: Option<Instant>,
    ) -> Result<Wake, StoreError> {
        let Some(folder) = self.folder(false)? else {
            return Ok(Wake::Ready);
        };
        let path = folder.path_of(file);
        // Removed meanwhile, or no watch to be had: looking again is always right, after a pause
        // that keeps a system without watches from spinning.
        let Ok(watch) = Self::news_of(&path) else {
            return self
                .sleeper
                .poll(&[], RECORD_NAP_MIN, until)
                .map_err(|error| io_fault(&path, "watching the lock", error));
        };
        let pidfds: Vec<_> = [claim.holder.process, claim.holder.command]
            .into_iter()
            .flatten()
            .filter_map(|process| self.open_pidfd(folder, &process, &claim.holder.host))
            .collect();
        // The watch is in place; if the claim changed before it was, look at once.
        let unchanged = folder.open_file(file, Access::Read)?.is_some_and(|opened| {
            let fd = opened.fd.as_fd();
            let entry = record::read_unguarded(fd)
                .ok()
                .and_then(|snapshot| list::decode(&snapshot.body).ok());
            let evidence = self.evidence(folder, fd, claim);
            entry.is_some_and(|entry| entry.claim(claim.ticket) == Some(claim))
                && matches!(
                    judge(&self.policy, claim, &evidence, now),
                    Standing::Held(_)
                )
        });
        if !unchanged {
            return Ok(Wake::Ready);
        }
        // A lease that counts is looked at again just after it can have run out. It does not
        // count while a process is seen to live, whose end shows by itself.
        let nap = if pidfds.is_empty() {
            let boot = claim.holder.host.boot_id.as_deref();
            let rest = Duration::from_millis(claim.lease.remaining_ms(boot, now).saturating_add(1));
            RECORD_NAP_MAX.min(rest.max(RECORD_NAP_MIN))
        } else {
            RECORD_NAP_MAX
        };
        let fds: Vec<BorrowedFd<'_>> = [watch.as_fd()]
            .into_iter()
            .chain(pidfds.iter().map(AsFd::as_fd))
            .collect();
        self.sleeper
            .poll(&fds, nap, until)
            .map_err(|error| io_fault(&path, "watching the lock", error))
    }

    /// A handle on a recorded process, if it is that process: opened first, compared afterwards,
    /// so the number cannot change hands in between.
    fn open_pidfd(
        &self,
        folder: &Folder,
        process: &Process,
        host: &Host,
    ) -> Option<std::os::fd::OwnedFd> {
        let pid = i32::try_from(process.pid)
            .ok()
            .and_then(rustix::process::Pid::from_raw)?;
        if liveness(process, host, &self.here, folder.local) != Liveness::Alive {
            return None;
        }
        let fd = rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty()).ok()?;
        (process::start_time(process.pid) == process.started).then_some(fd)
    }
}
