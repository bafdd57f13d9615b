//! The file store: one coordination file per lock, kernel locks on single bytes of it.
//!
//! # How a change is made
//! 1. Open the file, lock its *guard* byte, make sure that the name still leads to this file.
//! 2. Read the list (`record`), run the core's transition on it; an ordinary heartbeat changes a few
//!    numbers in its text instead (`beat`).
//! 3. A new claim locks its own *ticket* byte, its beacon. **Then** the list is written.
//! 4. Let go of the guard.
//!
//! Where the grant of a claim lets others go on, as it does among those who hold beside each other,
//! the claim keeps a second byte for as long as it waits, its *turn*: taken together with the first,
//! and let go after the write that grants it, or with the first. Whoever stands behind it sleeps
//! on that.
//!
//! Whoever goes on under the hold of another (`run --reentrant`) shares two bytes with all who do: one of
//! that claim, and one beside the guard. A change to a seat takes that one together with the guard, in one
//! call; only where it cannot does a release ask for the claim's own. So a hold is not given back under
//! them, and a release of a hold that nobody shares pays nothing for it
//! ([decision 0022](../../../../docs/decisions/0022-runs-within-a-hold.md)).
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
//!   with us;
//! - between a grant's write and its turn: the turn goes out with us, and whoever slept on it
//!   finds us dead;
//! - between the write that keeps a place and its bytes: they go out with us, and the place is
//!   kept;
//! - between the touch that tells a waiter that it was displaced and the write that displaces it:
//!   it wakes up for nothing.
//!
//! A detached claim has no beacon once it is granted. Death between its write and its answer
//! leaves a granted hold that lives as long as its owner does; asking again under the same
//! request id answers that it is held by the asker.
//!
//! # What it leaves to others
//! Which change is right (the core), how a body looks (the profile), and how a thread of this
//! process sleeps in the kernel ([`Sleeper`]): a command may use signals for that, a library may
//! not.

mod beat;
mod bytes;
mod excerpt;
mod folder;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod guarded;
pub(in crate::store) mod list;
mod publication;
mod record;
mod sleeper;

pub use bytes::{Byte, Mode};
pub use sleeper::{ByteLock, Sleeper, ThreadSleeper, poll_readable};

use super::{
    Advanced, Cleaned, Content, Entered, ForcedRelease, NewPlace, Reading, RenewedOwned, Store,
    StoreError, Wake,
};
use crate::clock::{Clock, SystemClock, instant};
use crate::os::{self, News, Watch};
use crate::process::{self, liveness};
use crate::profile::document::{UNDATED, UNJUDGED};
use crate::profile::{Native, Profile, SUFFIX};
use crate::trust::Named;
use excerpt::{Rest, Want};
use folder::{Access, Folder, Latest, Opened, fault, io_fault};
use guarded::{Guarded, LoadError, Loaded, Names};
use publication::{Change, Published};
use record::{ReadError, UNKNOWN};
use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};
use tenure_core::{
    Advance, Beacon, Claim, Entering, Entry, Event, Evidence, Force, Forced, Host, Kind, Left,
    Liveness, LockName, Now, Ownership, Patience, Policy, Predecessor, Process, Queueing,
    ReleaseByOther, Released, Renewal, Request, StaleUnforced, Stamp, Standing, StopRequest,
    Takeover, UnreadableRule, WaitingFor, judge, unreadable,
};

/// What the system calls an open file: a file descriptor on Unix, a handle on Windows.
pub type Descriptor = os::Descriptor;

/// A borrowed one.
pub type BorrowedDescriptor<'a> = os::BorrowedDescriptor<'a>;

/// How long a guard may be taken before that is an error. A transition takes microseconds; only a
/// process that was stopped in the middle of one keeps it longer.
const GUARD_PATIENCE: Duration = Duration::from_secs(5);

/// How long a sleep behind a record lasts at most before the record is looked at again.
const RECORD_NAP_MAX: Duration = Duration::from_secs(1);

/// How long it lasts at least, so that nothing that stays as it is makes a waiter spin.
const RECORD_NAP_MIN: Duration = Duration::from_millis(100);

/// How long a waiter sleeps that can be asked to stop, where nothing can be watched.
const SUMMONS_NAP: Duration = Duration::from_millis(50);

/// How long content that cannot be understood is read again before it is judged: another program
/// may be writing it this instant.
const SETTLE: Duration = Duration::from_secs(2);

/// How long to wait between two such looks.
const SETTLE_LOOK: Duration = Duration::from_millis(20);

/// How long to wait between two looks at the bytes of a kept place: those who slept on them when its
/// claimant went away take them for an instant as they wake up.
const KEPT_LOOK: Duration = Duration::from_millis(1);

/// How often a change is begun anew because another program changed the record under it. Each time
/// that program has got on, so this bounds a spin and nobody's patience.
const OVERTAKEN_MAX: usize = 64;

/// The folder beside published records, for what their formats have no place for.
pub(crate) const LEDGER: &str = ".tenure";

/// The folder in that for native locks: those that a run takes beside a lock of another format. One
/// of its own, for the coordination file of a record may have any lock's name.
const NATIVE_BESIDE: &str = "locks";

/// The coordination file that remembers the highest number of all files that were removed. No
/// lock can have this name.
///
/// In a folder that everybody may write to, each user has one of its own: there, nobody's files
/// are opened by anybody else.
fn floor_file(folder: &Folder) -> String {
    if folder.shared {
        let user = os::user_number();
        format!(".floor.{user}{SUFFIX}")
    } else {
        format!(".floor{SUFFIX}")
    }
}

/// Locks kept as files in one folder.
pub struct FileStore {
    path: PathBuf,
    named: Named,
    allow_network: bool,
    profile: Box<dyn Profile>,
    policy: Policy,
    here: Host,
    sleeper: Box<dyn Sleeper>,
    /// Where the records are, for a profile that publishes.
    records: Latest,
    /// Where the coordination files are.
    folder: Latest,
    /// Of native locks that lie beside records: where those are.
    beside: Option<Beside>,
}

/// The place in which the records of a format lie, for the native locks beside them.
struct Beside {
    place: PathBuf,
    /// How the folder has to be, if the records lie in the place itself; else it is not made for locks
    /// alone: the contract of sessions has `sessions/` there, which is committed.
    rule: Option<crate::profile::Place>,
    must_exist: bool,
}

/// A claim's place: the descriptor that carries its beacon. Dropping it is dying.
#[derive(Debug)]
pub struct Seat {
    ticket: u64,
    opened: Opened,
    /// The beacon's own open file. A command inherits this one, and locks belong to the open
    /// file: were the guard taken on it too, a supervisor killed in the middle of a change would
    /// leave the guard with its command.
    beacon: Option<Opened>,
    names: Names,
    /// Whether it keeps the byte of its turn while it waits.
    has_turn: bool,
    /// Where it learns that it was asked to stop while it waits, if it may be.
    summons: Summons,
    /// Its work lasts long enough for its place to be looked after, and to be looked at once more in
    /// the end.
    lasts: AtomicBool,
    /// Whether its claim was made on this boot, so that a heartbeat of it needs no more than its own
    /// line.
    on_this_boot: bool,
    /// The claim as it was granted, where a record of it is published.
    granted: OnceLock<Box<Claim>>,
    /// Taken for the length of a change. The guard byte belongs to the open file, and so keeps
    /// out every other caller, but not a second thread with this same seat.
    turn: Mutex<()>,
}

/// How a waiter that sleeps on another's byte learns that it was asked to stop.
#[derive(Debug)]
enum Summons {
    /// Nobody may ask it while it waits.
    Never,
    /// A watch for the touch by which it is told; opened by its first sleep.
    Watch(OnceLock<Watch>),
    /// Nothing can be watched here: it looks from time to time.
    Looks,
}

impl Summons {
    fn of(queueing: Queueing) -> Self {
        match (queueing.yields(), os::WATCHES) {
            (false, _) => Self::Never,
            (true, true) => Self::Watch(OnceLock::new()),
            (true, false) => Self::Looks,
        }
    }
}

impl Seat {
    /// The ticket of the claim.
    pub fn ticket(&self) -> u64 {
        self.ticket
    }

    /// The lock.
    pub fn name(&self) -> &LockName {
        &self.names.name
    }

    /// The descriptor that carries the beacon. A command that inherits a copy keeps it lit, and
    /// gets nothing else by it.
    pub fn beacon(&self) -> BorrowedDescriptor<'_> {
        fd(self.beacon.as_ref().unwrap_or(&self.opened))
    }

    /// It waits no longer: whoever waits for that goes on.
    fn give_turn(&self) {
        if self.has_turn {
            // Nobody could do more about a failure that lasts; closing the file lets go.
            let _ = bytes::unlock(fd(&self.opened), Byte::of_turn(self.ticket));
        }
    }

    fn put_out(&self) {
        self.give_turn();
        let _ = bytes::unlock(self.beacon(), Byte::of_ticket(self.ticket));
    }
}

/// A part in somebody else's hold: see [`FileStore::go_within`]. Dropping it gives it back.
#[derive(Debug)]
#[must_use = "the part in the hold ends as soon as it is dropped"]
pub struct Within {
    /// An open file of its own, so that whoever inherits it gets nothing else by it.
    opened: Opened,
    ticket: u64,
}

impl Within {
    /// What a command has to inherit for its part in the hold to outlive its supervisor.
    pub fn beacon(&self) -> BorrowedDescriptor<'_> {
        fd(&self.opened)
    }

    /// The first tells a release that there may be others, the second which hold they are in.
    fn bytes(&self) -> [Byte; 2] {
        [Byte::WITHIN_ANY, Byte::of_within(self.ticket)]
    }
}

impl Drop for Within {
    fn drop(&mut self) {
        // Explicitly, for a daemon that the command left behind may keep a copy of the descriptor.
        for byte in self.bytes().into_iter().rev() {
            let _ = bytes::unlock(fd(&self.opened), byte);
        }
    }
}

fn fd(opened: &Opened) -> BorrowedDescriptor<'_> {
    os::borrow(&opened.fd)
}

impl FileStore {
    /// Native locks in `folder`, judged from `here`. Touches nothing yet: the folder is opened,
    /// and made if need be, by the first call that has to.
    pub fn new(folder: impl Into<PathBuf>, here: Host, sleeper: Box<dyn Sleeper>) -> Self {
        Self::with_profile(Box::new(Native), &folder.into(), here, sleeper)
    }

    /// Locks of any profile; `place` is the folder that its contract calls its storage.
    pub fn with_profile(
        profile: Box<dyn Profile>,
        place: &Path,
        here: Host,
        sleeper: Box<dyn Sleeper>,
    ) -> Self {
        Self {
            path: profile.folder(place),
            named: Named::ByCaller,
            allow_network: false,
            policy: profile.policy(),
            profile,
            here,
            sleeper,
            records: Latest::default(),
            folder: Latest::default(),
            beside: None,
        }
    }

    /// The native locks beside those of a profile that publishes records in `place`: in a folder of ours,
    /// `.tenure/locks`, which git leaves alone. For a profile that publishes none, the native locks of
    /// `place` itself.
    pub fn beside(
        profile: &dyn Profile,
        place: &Path,
        here: Host,
        sleeper: Box<dyn Sleeper>,
    ) -> Self {
        let folder = Self::folder_beside(profile, place);
        let rule = profile.place();
        Self {
            beside: profile.record().is_some().then(|| Beside {
                place: place.to_owned(),
                must_exist: rule.must_exist,
                rule: (profile.folder(place) == place).then_some(rule),
            }),
            ..Self::new(folder, here, sleeper)
        }
    }

    /// The folder of the locks that [`FileStore::beside`] keeps.
    pub fn folder_beside(profile: &dyn Profile, place: &Path) -> PathBuf {
        if profile.record().is_some() {
            place.join(LEDGER).join(NATIVE_BESIDE)
        } else {
            place.to_owned()
        }
    }

    /// Accepts a network file system, for people who know that its locks work.
    #[must_use]
    pub fn allow_network(mut self, allow: bool) -> Self {
        self.allow_network = allow;
        self
    }

    /// The folder was named by nobody: a search or a default led there. It is used if it belongs to
    /// the caller or to root, or if it is made for several users (setgid and writable by its group,
    /// or sticky); any other one is [`StoreError::Unsafe`].
    #[must_use]
    pub fn found(mut self) -> Self {
        self.named = Named::ByNobody;
        self
    }

    /// The folder in which other programs see the locks.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The profile by which locks are kept.
    pub fn profile(&self) -> &dyn Profile {
        &*self.profile
    }

    /// The instant at which a question is asked that comes without one.
    fn now(&self) -> Now {
        SystemClock::new(self.here.boot_id.as_deref()).now()
    }

    /// The folder of the records, as [`FileStore::folder`].
    fn records(&self, create: bool) -> Result<Option<&Folder>, StoreError> {
        if let Some(folder) = self.records.get().filter(|folder| folder.is_in_place()) {
            return Ok(Some(folder));
        }
        let rule = self.profile.place();
        let create = create && !rule.must_exist;
        let opened = Folder::open_named(
            &self.path,
            create,
            self.allow_network,
            rule.private,
            self.named,
        )?;
        match opened {
            Some(folder) => Ok(Some(self.records.put(folder))),
            None => Ok(None),
        }
    }

    /// The folder of the coordination files. Not one that was removed since it was opened, or that got
    /// another name: nobody who comes now finds it, while somebody may hold in one that was made in its
    /// place.
    fn folder(&self, create: bool) -> Result<Option<&Folder>, StoreError> {
        if let Some(folder) = self.folder.get().filter(|folder| folder.is_in_place()) {
            return Ok(Some(folder));
        }
        let opened = if self.profile.record().is_some() {
            let Some(records) = self.records(create)? else {
                return Ok(None);
            };
            if create && self.profile.place().ignored {
                records.ignore_all()?;
            }
            records.open_below(LEDGER, create)?
        } else if let Some(beside) = &self.beside {
            self.open_beside(beside, create)?
        } else {
            Folder::open_named(&self.path, create, self.allow_network, false, self.named)?
        };
        Ok(opened.map(|folder| self.folder.put(folder)))
    }

    /// Whether the coordination files lie in a folder that is ours by its name.
    fn is_ledger(&self) -> bool {
        self.profile.record().is_some() || self.beside.is_some()
    }

    /// The folder of native locks that lie beside records. Opened from the records' place on, so that
    /// no link leads out of it.
    fn open_beside(&self, beside: &Beside, create: bool) -> Result<Option<Folder>, StoreError> {
        let create_place = create && !beside.must_exist;
        let place = || {
            let private = beside.rule.is_some_and(|rule| rule.private);
            let create = create_place && beside.rule.is_some();
            let allow_network = self.allow_network;
            Folder::open_named(&beside.place, create, allow_network, private, self.named)
        };
        let opened = match place()? {
            None if create_place => {
                Folder::make_place(&beside.place)?;
                place()?
            }
            opened => opened,
        };
        let Some(opened) = opened else {
            return Ok(None);
        };
        let Some(ledger) = opened.open_below(LEDGER, create)? else {
            return Ok(None);
        };
        ledger.open_below(NATIVE_BESIDE, create)
    }

    fn names_of(&self, name: &LockName) -> Names {
        let file = self.profile.file_name(name);
        if self.profile.record().is_none() {
            return Names {
                name: name.clone(),
                list: file,
                record: String::new(),
            };
        }
        Names {
            name: name.clone(),
            list: format!("{file}{SUFFIX}"),
            record: file,
        }
    }

    fn record_path(&self, names: &Names) -> PathBuf {
        self.path.join(&names.record)
    }

    /// Whether a record stands at the path that other programs look at.
    fn record_stands(&self, names: &Names) -> Result<bool, StoreError> {
        if self.profile.record().is_none() {
            return Ok(false);
        }
        let records = self.records(false)?;
        Ok(records.is_some_and(|records| publication::stands(records, &names.record)))
    }

    /// Opens a coordination file and takes its guard. `None` if there is no file and none is made.
    fn guarded<'a>(
        &'a self,
        names: &'a Names,
        access: Access,
    ) -> Result<Option<(Guarded<'a>, Opened)>, StoreError> {
        let Some(folder) = self.folder(access == Access::Create)? else {
            return Ok(None);
        };
        loop {
            let Some(opened) = folder.open_file(&names.list, access)? else {
                return Ok(None);
            };
            let guarded = self.guard(folder, names, fd(&opened), false)?;
            if guarded.still_leads_to(&opened)? {
                if guarded.length.get() == 0 && self.is_ledger() {
                    // The process that made the folder may have died before it told git. A file in
                    // which something stands was made after git was told.
                    folder.ignore_all()?;
                }
                return Ok(Some((guarded, opened)));
            }
            // Somebody removed the file between our opening and our guard; begin again.
        }
    }

    /// The same for a change to what is there already: the file of a lock that only another
    /// program's record stands for is made.
    fn guarded_if_there<'a>(
        &'a self,
        names: &'a Names,
    ) -> Result<Option<(Guarded<'a>, Opened)>, StoreError> {
        let access = if self.record_stands(names)? {
            Access::Create
        } else {
            Access::Write
        };
        self.guarded(names, access)
    }

    /// Takes the guard of a seat's own file. `None` if the name no longer leads to that file:
    /// whatever the seat stood for is lost.
    fn guarded_seat<'a>(&'a self, seat: &'a Seat) -> Result<Option<Guarded<'a>>, StoreError> {
        let folder = match self.folder.get() {
            // A change to a hold need not ask whether it was removed: in such a one the name leads nowhere.
            // Whether it was renamed, its keeper asks from time to time ([`Store::moves`]).
            Some(opened) => Some(opened),
            None => self.folder(false)?,
        };
        let Some(folder) = folder else {
            return Ok(None);
        };
        let guarded = self.guard(folder, &seat.names, fd(&seat.opened), true)?;
        let ours = guarded.still_leads_to(&seat.opened)?;
        Ok(ours.then_some(guarded))
    }

    fn guard<'a>(
        &'a self,
        folder: &'a Folder,
        names: &'a Names,
        file: BorrowedDescriptor<'_>,
        may_be_alone: bool,
    ) -> Result<Guarded<'a>, StoreError> {
        let path = || folder.path_of(&names.list);
        let failed = |error| io_fault(&path(), "locking the guard", error);
        let lock = ByteLock {
            byte: Byte::GUARD,
            mode: Mode::Exclusive,
        };
        let errno = |errno: os::Errno| failed(errno.into());
        let is_alone = may_be_alone && bytes::try_guard_alone(file).map_err(errno)?;
        if !is_alone && !lock.try_take(file).map_err(failed)? {
            let wake = self
                .sleeper
                .lock(file, lock, GUARD_PATIENCE)
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
            names,
            is_alone,
            length: Cell::new(UNKNOWN),
        })
    }

    /// What the byte of a claim says.
    fn beacon(file: BorrowedDescriptor<'_>, claim: &Claim) -> Beacon {
        let has_beacon = claim.kind == Kind::Kernel || claim.token.is_none();
        if !has_beacon {
            return Beacon::None;
        }
        match bytes::probe(file, Byte::of_ticket(claim.ticket)) {
            Ok(true) => Beacon::Lit,
            Ok(false) => Beacon::Out,
            // A failed look is no proof of death; what else is known has to decide.
            Err(_) => Beacon::None,
        }
    }

    /// What is known of a claim, gathered from its beacon and its processes.
    fn evidence(&self, folder: &Folder, file: BorrowedDescriptor<'_>, claim: &Claim) -> Evidence {
        self.evidence_of_processes(folder.local, claim, Self::beacon(file, claim))
    }

    fn evidence_of_processes(&self, local: bool, claim: &Claim, beacon: Beacon) -> Evidence {
        let ask = |process: Option<&Process>| {
            process.map_or(Liveness::NotRecorded, |process| {
                liveness(process, &claim.holder.host, &self.here, local)
            })
        };
        Evidence {
            beacon,
            process: ask(claim.holder.process.as_ref()),
            command: ask(claim.holder.command.as_ref()),
        }
    }

    /// The same, but a lit beacon is enough and nothing else is asked: for the hot path.
    fn quick_evidence(
        &self,
        folder: &Folder,
        file: BorrowedDescriptor<'_>,
        claim: &Claim,
    ) -> Evidence {
        match Self::beacon(file, claim) {
            Beacon::Lit => Evidence {
                beacon: Beacon::Lit,
                process: Liveness::Unknown,
                command: Liveness::Unknown,
            },
            beacon @ (Beacon::Out | Beacon::Lapsed | Beacon::None) => {
                self.evidence_of_processes(folder.local, claim, beacon)
            }
        }
    }

    /// Whether the process of a claim is certainly stopped.
    fn is_stopped(&self, local: bool, claim: &Claim) -> bool {
        let host = &claim.holder.host;
        let process = claim.holder.process.as_ref();
        process.is_some_and(|process| process::is_stopped(process, host, &self.here, local))
    }

    /// The highest number of files that were removed from this folder.
    ///
    /// A floor that may not be read is an error: without it only the clock would be left, and a clock
    /// that was set back gives numbers out again. One without content says nothing, readable or not:
    /// it gets its rights before its first number (`raise_floor`), and a process that was killed in
    /// between has removed nothing. We hold the guard of a file under the name that we ask for, so no
    /// file of that name is removed any more, and what was removed before has raised the floor.
    fn floor(folder: &Folder) -> Result<u64, StoreError> {
        let file = floor_file(folder);
        let opened = match folder.open_file(&file, Access::Read) {
            Err(StoreError::Permission { .. })
                if os::facts_at(folder.fd(), &file).is_ok_and(|facts| facts.size() == 0) =>
            {
                return Ok(0);
            }
            Err(StoreError::Permission { place, .. }) => {
                let doing = "reading the highest token of removed locks; `tenure clean`, run by \
                             root or by this file's owner, gives it the right mode";
                return Err(StoreError::Permission { place, doing });
            }
            other => other?,
        };
        let Some(opened) = opened else {
            return Ok(0);
        };
        let unreadable = |why| StoreError::Unreadable {
            place: folder.path_of(&file).display().to_string(),
            why,
        };
        match record::read_unguarded(fd(&opened)) {
            Ok(snapshot) => list::decode(&snapshot.body)
                .map(|entry| entry.last)
                .map_err(unreadable),
            Err(ReadError::Torn(why)) => Err(unreadable(why)),
            Err(ReadError::Io(errno)) => Err(fault(&folder.path_of(&file), "reading", errno)),
        }
    }

    /// Raises the floor before a file is removed, so that its successor's numbers stay above. An
    /// error keeps the file that was to be removed.
    ///
    /// All who may make locks in the folder have to read it, and all who may clean there have to
    /// raise it, so it gets the folder's owner and group each time. That comes before the number: a
    /// floor with content can be read by all of them, whenever its writer is killed.
    fn raise_floor(&self, folder: &Folder, name: &LockName, last: u64) -> Result<(), StoreError> {
        let names = Names {
            name: name.clone(),
            list: floor_file(folder),
            record: String::new(),
        };
        let (guarded, opened) = match self.guarded(&names, Access::Create) {
            Ok(Some(guarded)) => guarded,
            Ok(None) => return Ok(()),
            // It only rises, so what can be read of it is enough if that is high enough.
            Err(StoreError::Permission { place, .. }) => {
                if Self::floor(folder)? >= last {
                    return Ok(());
                }
                let doing = "raising the highest token of removed locks";
                return Err(StoreError::Permission { place, doing });
            }
            Err(error) => return Err(error),
        };
        if !folder.shared {
            os::facts(folder.fd())
                .and_then(|facts| os::share_within(&facts, fd(&opened)))
                .map_err(|errno| {
                    let path = folder.path_of(&names.list);
                    fault(&path, "giving it to those who may use the folder", errno)
                })?;
        }
        let snapshot = record::read(fd(&opened), guarded.length.get())
            .map_err(|error| error.into_store(&folder.path_of(&names.list)))?;
        let mut entry = list::decode(&snapshot.body).map_err(|why| StoreError::Unreadable {
            place: folder.path_of(&names.list).display().to_string(),
            why,
        })?;
        if entry.last < last {
            entry.raise(last);
            guarded.write_list(&opened, &snapshot, &entry)?;
        }
        release(&opened);
        Ok(())
    }

    /// Whether what cannot be understood may still be being written.
    fn is_settling(published: &Published, now: &Now, since_now: Duration) -> bool {
        let millis = u64::try_from(since_now.as_millis()).unwrap_or(u64::MAX);
        let wall_ms = (now.wall_us / 1_000).saturating_add(millis);
        since_now < SETTLE
            && u128::from(wall_ms.saturating_sub(published.modified_ms)) < SETTLE.as_millis()
    }

    /// Whether a record was read that says too little, and that another program may be writing.
    fn is_half_written(loaded: &Loaded, now: &Now, began: Instant) -> bool {
        loaded.published.as_ref().is_some_and(|published| {
            is_half_said(&loaded.entry)
                && Self::is_settling(published, now, crate::clock::since(began))
        })
    }

    fn settle(&self) -> Result<(), StoreError> {
        self.pause(SETTLE_LOOK)
    }

    fn pause(&self, length: Duration) -> Result<(), StoreError> {
        self.sleeper
            .poll(&[], length, None)
            .map(|_| ())
            .map_err(|error| io_fault(&self.path, "reading the record again", error))
    }

    /// A change to an existing lock that is not tied to a seat. Content that cannot be understood
    /// is read again until it has settled.
    fn change<T>(
        &self,
        name: &LockName,
        absent: T,
        now: &Now,
        mut step: impl FnMut(&mut Entry, &Guarded<'_>, &Opened) -> (T, bool),
    ) -> Result<Changed<T>, StoreError> {
        let names = self.names_of(name);
        let began = instant();
        let mut tries = OVERTAKEN_MAX;
        loop {
            let Some((guarded, opened)) = self.guarded_if_there(&names)? else {
                return Ok(Changed::Done(absent, None));
            };
            // Every early way out closes the file, which lets go of the guard.
            let settled = self.load_settled(&guarded, opened, Want::All, now, began)?;
            let (mut loaded, opened) = match settled {
                Settled::Loaded(loaded, opened) => (loaded, opened),
                Settled::Again => continue,
                Settled::Unreadable(error, opened) => {
                    return Ok(Changed::Unreadable(Box::new(Unreadable { error, opened })));
                }
            };
            let mut entry = self.to_be_changed(&mut loaded);
            let (answer, changed) = step(&mut entry, &guarded, &opened);
            if changed && guarded.commit(&opened, &loaded, &entry)? == Change::Overtaken {
                tries = self.overtaken(tries, &names)?;
                continue;
            }
            release(&opened);
            return Ok(Changed::Done(answer, loaded.published));
        }
    }

    /// A published record has room for one holder.
    fn refuse_beside_others(&self, names: &Names, request: &Request) -> Result<(), StoreError> {
        if self.profile.record().is_none() || request.terms.mode == tenure_core::Mode::Exclusive {
            return Ok(());
        }
        Err(StoreError::Record {
            place: self.record_path(names).display().to_string(),
            why: "its format has room for one holder, and this claim would hold beside others"
                .to_owned(),
        })
    }

    /// How many tries are left to a change that another program came before.
    fn overtaken(&self, tries: usize, names: &Names) -> Result<usize, StoreError> {
        tries.checked_sub(1).ok_or_else(|| self.contended(names))
    }

    fn contended(&self, names: &Names) -> StoreError {
        StoreError::Contended {
            place: self.record_path(names).display().to_string(),
        }
    }

    fn load_settled(
        &self,
        guarded: &Guarded<'_>,
        opened: Opened,
        want: Want,
        now: &Now,
        began: Instant,
    ) -> Result<Settled, StoreError> {
        match guarded.load(&opened, want, now) {
            Ok(loaded) if Self::is_half_written(&loaded, now, began) => {
                drop(opened);
                self.settle()?;
                Ok(Settled::Again)
            }
            Ok(loaded) => Ok(Settled::Loaded(Box::new(loaded), opened)),
            Err(LoadError::Store(error)) => Err(error),
            Err(LoadError::Record(found))
                if Self::is_settling(&found.published, now, crate::clock::since(began)) =>
            {
                drop(opened);
                self.settle()?;
                Ok(Settled::Again)
            }
            Err(error) => Ok(Settled::Unreadable(error, opened)),
        }
    }

    /// A change to the list that a seat stands in. `gone` if its file is not the lock any more.
    fn change_seat<T>(
        &self,
        seat: &Seat,
        want: Want,
        now: &Now,
        gone: impl Fn() -> T,
        mut step: impl FnMut(&mut Entry, &Guarded<'_>) -> (T, bool),
    ) -> Result<(T, Entry, Option<Published>), StoreError> {
        // A thread that panicked in the middle of a change has written all of it or nothing.
        let _turn = seat.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let began = instant();
        let mut tries = OVERTAKEN_MAX;
        loop {
            let Some(guarded) = self.guarded_seat(seat)? else {
                return Ok((gone(), Entry::default(), None));
            };
            let mut loaded = match guarded.load(&seat.opened, want, now) {
                Ok(loaded) if Self::is_half_written(&loaded, now, began) => {
                    release(&seat.opened);
                    self.settle()?;
                    continue;
                }
                Ok(loaded) => loaded,
                Err(error) => {
                    release(&seat.opened);
                    match error {
                        LoadError::Record(found)
                            if Self::is_settling(
                                &found.published,
                                now,
                                crate::clock::since(began),
                            ) =>
                        {
                            self.settle()?;
                            continue;
                        }
                        error => return Err(error.into_store(&guarded)),
                    }
                }
            };
            let mut entry = self.to_be_changed(&mut loaded);
            let (answer, changed) = step(&mut entry, &guarded);
            if changed && guarded.commit(&seat.opened, &loaded, &entry)? == Change::Overtaken {
                release(&seat.opened);
                tries = self.overtaken(tries, &seat.names)?;
                continue;
            }
            release(&seat.opened);
            return Ok((answer, entry, loaded.published));
        }
    }

    fn is_of_this_boot(&self, entry: &Entry, ticket: u64) -> bool {
        let claim = entry.claim(ticket);
        claim.is_some_and(|claim| claim.holder.host.boot_id == self.here.boot_id)
    }

    /// Renews a hold without reading more of the list than its own line. `None` where that cannot
    /// be done: nothing was changed then.
    fn beat(&self, seat: &Seat, now: &Now) -> Result<Option<Renewal>, StoreError> {
        let at = now.stamp_for(self.here.boot_id.as_deref());
        let is_elsewhere = !seat.on_this_boot || at.boot_ms == Stamp::OTHER_BOOT;
        if is_elsewhere || self.profile.record().is_some() {
            return Ok(None);
        }
        let _turn = seat.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(guarded) = self.guarded_seat(seat)? else {
            return Ok(Some(Renewal::Lost));
        };
        let renewed = guarded.beat(&seat.opened, seat.ticket, at);
        release(&seat.opened);
        renewed
    }

    /// The list for a change. What it was before is needed again only where a record has to be
    /// written with it.
    fn to_be_changed(&self, loaded: &mut Loaded) -> Entry {
        if self.profile.record().is_some() {
            loaded.entry.clone()
        } else {
            std::mem::take(&mut loaded.entry)
        }
    }

    /// Reads a lock without its guard: the record, the list and the record again, until nothing
    /// changed in between.
    fn look(&self, names: &Names, now: &Now) -> Result<Look, StoreError> {
        let folder = self.folder(false)?;
        let format = self.profile.record();
        let records = match format {
            Some(_) => self.records(false)?,
            None => None,
        };
        let record = || match records {
            Some(records) => publication::read_unguarded(records, folder, &names.record),
            None => Ok(None),
        };
        let mut published = record()?;
        for _ in 0..LOOKS_MAX {
            let mut is_empty = false;
            let opened = match folder {
                Some(folder) => folder.open_file(&names.list, Access::Read)?,
                None => None,
            };
            let entry = match opened
                .as_ref()
                .map(|opened| record::read_unguarded(fd(opened)))
            {
                None => Ok(Entry::default()),
                Some(Ok(snapshot)) => {
                    is_empty = snapshot.sequence == 0;
                    list::decode(&snapshot.body)
                }
                Some(Err(ReadError::Torn(why))) => Err(why),
                Some(Err(ReadError::Io(errno))) => {
                    let path = self.path.join(&names.list);
                    return Err(fault(&path, "reading the lock", errno));
                }
            };
            let again = if format.is_some() { record()? } else { None };
            if again != published {
                published = again;
                continue;
            }
            let joined = entry.and_then(|mut entry| match format {
                Some(format) => {
                    let published = published.as_ref();
                    guarded::join(&mut entry, published, &names.name, format, now, &self.here)
                        .map(|()| entry)
                }
                None => Ok(entry),
            });
            return Ok(Look {
                joined,
                published,
                opened,
                is_empty,
            });
        }
        Err(self.contended(names))
    }

    /// The same, read again until it can be understood or has settled.
    fn look_settled(&self, names: &Names) -> Result<Look, StoreError> {
        let (now, began) = (self.now(), instant());
        loop {
            let look = self.look(names, &now)?;
            let settling = look.published.as_ref().is_some_and(|published| {
                look.joined.as_ref().map_or(true, is_half_said)
                    && Self::is_settling(published, &now, crate::clock::since(began))
            });
            // Under the guard this is damage; without it, a caller may be about to write its claim.
            let is_emptied = look.is_empty && look.opened.as_ref().is_some_and(somebody_is_lit);
            if is_emptied && crate::clock::since(began) >= SETTLE {
                return Ok(Look {
                    joined: Err(guarded::EMPTY_BUT_LIT.to_owned()),
                    ..look
                });
            }
            if !settling && !is_emptied {
                return Ok(look);
            }
            self.settle()?;
        }
    }

    fn evidence_in(&self, look: &Look, claim: &Claim) -> Evidence {
        match (self.folder.get(), &look.opened) {
            (Some(folder), Some(opened)) => self.evidence(folder, fd(opened), claim),
            _ => self.evidence_of_processes(self.is_local(), claim, Beacon::None),
        }
    }

    /// Whether only this machine can reach the locks, as far as a folder was opened.
    fn is_local(&self) -> bool {
        let opened = [&self.folder, &self.records];
        opened
            .iter()
            .find_map(|folder| folder.get())
            .is_some_and(|folder| folder.local)
    }
}

/// How often a reader looks again at a record that changes under it.
const LOOKS_MAX: usize = 64;

/// Whether a record was read that says too little to be judged: perhaps another program is writing
/// it this instant.
fn is_half_said(entry: &Entry) -> bool {
    let mut granted = entry.granted();
    granted.any(|claim| claim.holder.fact(UNJUDGED).is_some())
}

/// What a reader without the guard found.
struct Look {
    joined: Result<Entry, String>,
    published: Option<Published>,
    opened: Option<Opened>,
    /// Nothing was ever written into the coordination file, or it was emptied.
    is_empty: bool,
}

enum Settled {
    Loaded(Box<Loaded>, Opened),
    Again,
    Unreadable(LoadError, Opened),
}

/// What became of a change by name.
enum Changed<T> {
    /// It was made, or nothing had to be. With the record that stood there.
    Done(T, Option<Published>),
    /// There is something that cannot be understood.
    Unreadable(Box<Unreadable>),
}

/// A lock that cannot be understood, still under its guard.
struct Unreadable {
    error: LoadError,
    opened: Opened,
}

impl FileStore {
    /// A descriptor that can be read once something happened to the list that a seat stands in,
    /// or to its file, or to the record that is published for it, or to the folder of them. What happens
    /// to a folder above it is not told ([`Store::moves`]). Costs an inotify instance, so
    /// it is for work that lasts. A record that is replaced takes its watch with it.
    ///
    /// # Errors
    /// - [`StoreError::Io`] if the system has no more of them.
    /// - The same, always, on a system that has nothing to watch files with. Look again from time to
    ///   time there.
    pub fn news(&self, seat: &Seat) -> Result<Descriptor, StoreError> {
        seat.lasts.store(true, Ordering::Relaxed);
        self.news_of(&seat.names).map(Watch::into_descriptor)
    }

    /// Whether a renewal replaces a file that [`FileStore::news`] watches.
    pub fn renewals_end_news(&self) -> bool {
        self.profile.record().is_some()
    }

    fn news_of(&self, names: &Names) -> Result<Watch, StoreError> {
        let list = self.list_path(names);
        let failed = |errno| fault(&list, "watching the lock", errno);
        let watch = Watch::new().map_err(failed)?;
        let on_list = watch.add(&list, News::Changes);
        // Without these it is noticed later, by the look from time to time.
        for folder in [&self.folder, &self.records] {
            if let Some(folder) = folder.get() {
                let _ = watch.add(folder.path(), News::Moves);
            }
        }
        if self.profile.record().is_none() {
            return on_list.map(|()| watch).map_err(failed);
        }
        // A lock of another program has no list of ours. What is gone already is found by the
        // look that follows every watch.
        let on_record = watch.add(&self.record_path(names), News::Changes);
        on_list.or(on_record).map(|()| watch).map_err(failed)
    }

    /// A descriptor that can be read once somebody who waits is asked to stop: see [`summon`].
    fn summons_of(&self, names: &Names) -> Result<Watch, StoreError> {
        let list = self.list_path(names);
        let failed = |errno| fault(&list, "watching the lock", errno);
        let watch = Watch::new().map_err(failed)?;
        watch.add(&list, News::Touches).map_err(failed)?;
        Ok(watch)
    }

    fn list_path(&self, names: &Names) -> PathBuf {
        match self.folder.get() {
            Some(folder) => folder.path_of(&names.list),
            None => self.path.join(&names.list),
        }
    }

    /// Shows the name of every lock of which only our own file is left: for cleaning. A profile
    /// without a format of its own has none, for there that file is the lock.
    ///
    /// # Errors
    /// - As for every other call.
    pub fn leftovers(&self, each: &mut dyn FnMut(LockName)) -> Result<(), StoreError> {
        if self.profile.record().is_none() {
            return Ok(());
        }
        let (Some(folder), Some(records)) = (self.folder(false)?, self.records(false)?) else {
            return Ok(());
        };
        let failed = |errno| fault(&self.path, "listing the lock folder", errno);
        os::each_file(folder.fd(), &mut |file| {
            let record = file.strip_suffix(SUFFIX);
            let alone = record.filter(|record| !publication::stands(records, record));
            if let Some(name) = alone.and_then(|record| self.profile.name_of(record)) {
                each(name);
            }
        })
        .map_err(failed)
    }

    /// What somebody should know about the folder before relying on it.
    ///
    /// # Errors
    /// - As for every other call.
    pub fn warning(&self) -> Result<Option<String>, StoreError> {
        if !self.profile.place().private {
            return Ok(None);
        }
        let readable = self.records(false)?.is_some_and(|records| records.readable);
        Ok(readable.then(|| {
            format!(
                "{}: others can read this folder; `chmod 700` it if they should not know who \
                 holds what",
                self.path.display()
            )
        }))
    }
}

/// Whether any claim's beacon is lit. One that cannot be looked for is not taken for dead by
/// this: without working locks, no guard could have been taken either.
fn somebody_is_lit(opened: &Opened) -> bool {
    bytes::probe_tickets(fd(opened)) == Ok(true)
}

/// The lowest number that a beacon's descriptor gets, where there are so many: out of the way of
/// scripts that open 3 to 9 themselves, within the 64 descriptors that a process has without
/// growing its table, and above whatever else its process opens. The kernel closes the descriptors
/// of the dead from the highest down, and some (inotify) take it milliseconds.
const BEACON_FD_MIN: i32 = 57;

/// The bytes of a new place, taken.
struct Taken {
    /// The beacon's own open file, where it has one.
    beacon: Option<Opened>,
}

/// Takes the bytes of a new place: that of its turn on the open file that its claimant alone has,
/// and its beacon on one of its own. Called with the guard held. `None` if somebody has one of them.
fn take_bytes(
    folder: &Folder,
    file: &str,
    opened: &Opened,
    made: &NewPlace,
) -> Result<Option<Taken>, StoreError> {
    let failed = |source| StoreError::Io {
        place: folder.path_of(file).display().to_string(),
        doing: "taking the bytes of a new claim",
        source,
    };
    let take = |opened: &Opened, byte| {
        bytes::try_lock(fd(opened), byte, Mode::Exclusive).map_err(|errno| failed(errno.into()))
    };
    if made.turn && !take(opened, Byte::of_turn(made.ticket))? {
        return Ok(None);
    }
    if !made.beacon {
        return Ok(Some(Taken { beacon: None }));
    }
    let beacon = folder
        .open_file(file, Access::Write)?
        .filter(|beacon| beacon.is_same(opened))
        .ok_or_else(|| failed(std::io::ErrorKind::NotFound.into()))?;
    let beacon = beacon.moved_above(BEACON_FD_MIN);
    let taken = take(&beacon, Byte::of_ticket(made.ticket))?;
    Ok(taken.then_some(Taken {
        beacon: Some(beacon),
    }))
}

/// Whether a request depends on how those in its way live, and not only on whether they do: what force may
/// do, who can hear a request to stop, what a refusal tells.
fn looks_closer(request: &Request) -> bool {
    request.force != Force::No
        || request.terms.cancel_in_progress
        || request.patience != Patience::Queue
}

/// The bytes of a new place are somebody else's, and stay so.
fn in_use(path: &Path) -> StoreError {
    StoreError::Io {
        place: path.display().to_string(),
        doing: "taking the bytes of a new claim",
        source: std::io::ErrorKind::AddrInUse.into(),
    }
}

/// Tells those who wait and are asked to stop: by touching the file, which changes nothing in it.
/// Whoever waits for something else is not woken by that. Should it fail, they learn of it when
/// they look again.
///
/// Called with the guard held and before the write, so that death between the two wakes somebody
/// for nothing rather than nobody.
fn summon(opened: &Opened) {
    let _ = os::touch(fd(opened));
}

/// Lets go of the guard.
fn release(opened: &Opened) {
    // Nobody could do more about a failure that lasts; closing the file lets go.
    let _ = bytes::unguard(fd(opened));
}

impl Store for FileStore {
    type Seat = Seat;

    fn policy(&self) -> &Policy {
        &self.policy
    }

    fn place(&self, name: &LockName) -> String {
        let path = self.path.join(self.profile.file_name(name));
        path.display().to_string()
    }

    fn read(&self, name: &LockName) -> Result<Reading, StoreError> {
        let look = self.look_settled(&self.names_of(name))?;
        let content = match &look.joined {
            Ok(entry) => Content::Whole {
                evidence: entry
                    .claims
                    .iter()
                    .map(|claim| self.evidence_in(&look, claim))
                    .collect(),
                entry: entry.clone(),
            },
            Err(why) => Content::Unreadable {
                why: why.clone(),
                modified_ms: look.published.as_ref().map(|record| record.modified_ms),
            },
        };
        let claims = look.joined.iter().flat_map(|entry| &entry.claims);
        let stopped = claims.filter(|claim| self.is_stopped(self.is_local(), claim));
        Ok(Reading {
            place: self.place(name),
            content,
            stopped: stopped.map(|claim| claim.ticket).collect(),
        })
    }

    fn enter(
        &self,
        name: &LockName,
        request: Request,
        now: &Now,
    ) -> Result<Entered<Seat>, StoreError> {
        let names = self.names_of(name);
        self.refuse_beside_others(&names, &request)?;
        let began = instant();
        let mut tries = OVERTAKEN_MAX;
        let mut want = if is_plain(&request) {
            Want::Ends
        } else {
            Want::All
        };
        loop {
            let Some((guarded, opened)) = self.guarded(&names, Access::Create)? else {
                return Err(StoreError::Io {
                    place: self.path.display().to_string(),
                    doing: "opening the lock folder",
                    source: std::io::ErrorKind::NotFound.into(),
                });
            };
            // Every early way out closes the file, which lets go of the guard.
            let (loaded, opened, mut events) =
                match self.load_for_entering(&guarded, opened, &request, want, now, began)? {
                    Loading::Loaded(loaded, opened, events) => (loaded, opened, events),
                    Loading::Again => continue,
                    Loading::Refused(refusal) => {
                        return Ok(Entered {
                            entering: Entering::Refused(refusal),
                            entry: Entry::default(),
                            unread: 0,
                            events: Vec::new(),
                            seat: None,
                        });
                    }
                };
            let (kind, terms) = (request.kind, request.terms);
            let mut loaded = *loaded;
            let mut entry = self.to_be_changed(&mut loaded);
            let last = entry.claims.last().map(|last| last.ticket);
            let looks_closer = looks_closer(&request);
            let entering = entry.enter_seeing(
                &self.policy,
                request.clone(),
                now,
                |claim| guarded.evidence_for(looks_closer, &opened, claim),
                |claim| self.is_stopped(guarded.folder.local, claim),
                &mut events,
            );
            let unread = loaded.rest.as_ref().map_or(0, Rest::len);
            if unread > 0 && !queues_behind(&entering, last) {
                want = Want::All;
                continue;
            }
            guarded::note_bytes(&mut events, loaded.published.as_ref());
            let place_made = NewPlace::of(&entering, kind, terms.mode);
            // Before the write: from its first visible instant on, a claim's bytes are taken.
            let beacon = match &place_made {
                Some(made) => match take_bytes(guarded.folder, &names.list, &opened, made)? {
                    Some(taken) => taken.beacon,
                    None if terms.kept.is_some() && crate::clock::since(began) < GUARD_PATIENCE => {
                        drop(opened);
                        self.pause(KEPT_LOOK)?;
                        continue;
                    }
                    None => return Err(in_use(&guarded.folder.path_of(&names.list))),
                },
                None => None,
            };
            let displaces = |event: &Event| matches!(event, Event::Displaced { .. });
            if events.iter().any(displaces) {
                // Before the write as well: whoever is told looks under the guard, after it.
                summon(&opened);
            }
            if (place_made.is_some() || !events.is_empty())
                && guarded.commit(&opened, &loaded, &entry)? == Change::Overtaken
            {
                tries = self.overtaken(tries, &names)?;
                continue;
            }
            release(&opened);
            let ticket = place_made.as_ref().map_or(0, |made| made.ticket);
            let granted = self.published_claim(&entry, ticket);
            return Ok(Entered {
                entering,
                unread,
                events,
                seat: place_made.map(|made| Seat {
                    ticket: made.ticket,
                    opened,
                    beacon,
                    names,
                    has_turn: made.turn,
                    summons: Summons::of(terms.queueing),
                    lasts: AtomicBool::new(false),
                    on_this_boot: self.is_of_this_boot(&entry, made.ticket),
                    granted,
                    turn: Mutex::default(),
                }),
                entry,
            });
        }
    }

    fn sleep(
        &self,
        seat: &Seat,
        behind: &Predecessor,
        now: &Now,
        until: Option<Instant>,
    ) -> Result<Wake, StoreError> {
        let byte = match behind {
            Predecessor::Stopped { behind, rest_ms } => {
                let over = instant().checked_add(Duration::from_millis(*rest_ms));
                let first = until.into_iter().chain(over).min();
                let wake = self.sleep(seat, behind, now, first)?;
                return Ok(super::woken_early(wake, until));
            }
            Predecessor::Beacon { ticket } => Byte::of_ticket(*ticket),
            Predecessor::Turn { ticket } => Byte::of_turn(*ticket),
            Predecessor::Record(claim) => {
                let claims = std::slice::from_ref(&**claim);
                return self.sleep_on_records(&seat.names, Some(seat.ticket), claims, now, until);
            }
            Predecessor::AnyOf(claims) => {
                return self.sleep_on_records(&seat.names, Some(seat.ticket), claims, now, until);
            }
        };
        let watch = match &seat.summons {
            Summons::Never => return self.sleep_on_byte(&seat.opened, byte, until, None),
            Summons::Watch(watch) => watch,
            Summons::Looks => {
                let look = instant() + SUMMONS_NAP;
                let first = until.map_or(look, |until| until.min(look));
                let wake = self.sleep_on_byte(&seat.opened, byte, Some(first), None)?;
                return Ok(super::woken_early(wake, until));
            }
        };
        if watch.get().is_none() {
            let _ = watch.set(self.summons_of(&seat.names)?);
            // Whoever asked before the watch was there is not told of by it. Under the guard, for
            // the touch comes before the write.
            let asked = |entry: &mut Entry| (entry.is_cancelled(seat.ticket), false);
            let (asked, ..) = self.change_seat(
                seat,
                Want::Own(seat.ticket),
                now,
                || true,
                |entry, _| asked(entry),
            )?;
            if asked {
                return Ok(Wake::Ready);
            }
        }
        let summons = watch.get().map(Watch::descriptor);
        let wake = self.sleep_on_byte(&seat.opened, byte, until, summons)?;
        if let Some(watch) = watch.get() {
            watch.settle();
        }
        Ok(wake)
    }

    fn advance(&self, seat: &Seat, now: &Now) -> Result<Advanced, StoreError> {
        let mut events = Vec::new();
        // Nobody is granted anything in a folder that those who come now do not find.
        if self
            .folder
            .get()
            .is_some_and(|folder| !folder.is_in_place())
        {
            return Ok(Advanced {
                advance: Advance::Gone,
                entry: Entry::default(),
                events,
            });
        }
        let (advance, entry, published) = self.change_seat(
            seat,
            Want::UpTo(seat.ticket),
            now,
            || Advance::Gone,
            |entry, guarded| {
                events.clear();
                let was_passed = entry.claim(seat.ticket).is_some_and(Claim::was_passed);
                let advance = entry.advance_seeing(
                    &self.policy,
                    seat.ticket,
                    now,
                    |claim| guarded.evidence(&seat.opened, claim),
                    |claim| self.is_stopped(guarded.folder.local, claim),
                    &mut events,
                );
                let granted = matches!(advance, Advance::Granted { .. });
                (advance, granted || was_passed || !events.is_empty())
            },
        )?;
        if matches!(advance, Advance::Granted { .. }) {
            seat.give_turn();
            if let Some(claim) = self.published_claim(&entry, seat.ticket).into_inner() {
                let _ = seat.granted.set(claim);
            }
        }
        guarded::note_bytes(&mut events, published.as_ref());
        Ok(Advanced {
            advance,
            entry,
            events,
        })
    }

    fn name_command(&self, seat: &Seat, command: Process) -> Result<bool, StoreError> {
        let now = if self.profile.record().is_some() {
            self.now()
        } else {
            Now::default()
        };
        self.change_seat(
            seat,
            Want::Own(seat.ticket),
            &now,
            || false,
            |entry, _| {
                let named = entry.name_command(seat.ticket, command);
                (named, named)
            },
        )
        .map(|(named, ..)| named)
    }

    fn renew(&self, seat: &Seat, now: &Now) -> Result<Renewal, StoreError> {
        if let Some(renewal) = self.beat(seat, now)? {
            return Ok(renewal);
        }
        self.change_seat(
            seat,
            Want::Own(seat.ticket),
            now,
            || Renewal::Lost,
            |entry, _| {
                let renewal = entry.renew(seat.ticket, now);
                (renewal, matches!(renewal, Renewal::Renewed { .. }))
            },
        )
        .map(|(renewal, ..)| renewal)
    }

    fn verify(&self, seat: &Seat) -> Result<Renewal, StoreError> {
        let look = self.look(&seat.names, &self.now())?;
        let replaced = look
            .opened
            .as_ref()
            .is_none_or(|opened| !opened.is_same(&seat.opened));
        if replaced {
            return Ok(Renewal::Lost);
        }
        // A damaged record says nothing about the hold; that it is lost would be a guess.
        look.joined
            .map(|entry| entry.verify(seat.ticket))
            .map_err(|why| StoreError::Unreadable {
                place: self.place(seat.name()),
                why,
            })
    }

    fn leave(&self, seat: &Seat, now: &Now) -> Result<Left, StoreError> {
        let left = self.leave_heeding(seat, now, false)?;
        Ok(left.unwrap_or(Left::Absent))
    }

    fn leave_if_alone(&self, seat: &Seat, now: &Now) -> Result<Option<Left>, StoreError> {
        self.leave_heeding(seat, now, true)
    }

    fn is_entered(&self, seat: &Seat) -> bool {
        // A failed look is no proof that they have gone.
        bytes::is_shared(fd(&seat.opened), Byte::of_within(seat.ticket)) != Ok(false)
    }

    fn moves(&self) -> u64 {
        self.folder.moves()
    }

    fn park(
        &self,
        seat: &Seat,
        owner: Option<Process>,
        grace_ms: u64,
        now: &Now,
    ) -> Result<bool, StoreError> {
        let (parked, ..) = self.change_seat(
            seat,
            Want::Own(seat.ticket),
            now,
            || false,
            |entry, _| {
                let parked = entry.park(seat.ticket, owner, grace_ms, now);
                (parked, parked)
            },
        )?;
        // Killed before this line, the process takes its bytes with it; the place is kept.
        if parked {
            seat.put_out();
        }
        Ok(parked)
    }

    fn cancel(
        &self,
        name: &LockName,
        by: StopRequest<'_>,
        now: &Now,
    ) -> Result<Vec<Claim>, StoreError> {
        let changed = self.change(name, Vec::new(), now, |entry, guarded, opened| {
            let asked = entry.cancel_seeing(
                &self.policy,
                by,
                now,
                |claim| self.evidence(guarded.folder, fd(opened), claim),
                |claim| self.is_stopped(guarded.folder.local, claim),
            );
            let changed = !asked.is_empty();
            (asked, changed)
        })?;
        match changed {
            Changed::Done(asked, _) => Ok(asked),
            Changed::Unreadable(unreadable) => Err(self.unreadable(name, &unreadable.error)),
        }
    }

    fn note_waiting(
        &self,
        name: &LockName,
        token: u64,
        waiting_for: Option<&WaitingFor>,
    ) -> Result<bool, StoreError> {
        let now = self.now();
        let changed = self.change(name, false, &now, |entry, _, _| {
            let noted = entry.note_waiting(token, waiting_for);
            (noted, noted)
        })?;
        match changed {
            Changed::Done(noted, _) => Ok(noted),
            Changed::Unreadable(unreadable) => Err(self.unreadable(name, &unreadable.error)),
        }
    }

    fn renew_owned(
        &self,
        name: &LockName,
        owns: &dyn Fn(&Claim) -> Ownership,
        now: &Now,
    ) -> Result<RenewedOwned, StoreError> {
        let changed = self.change(name, RenewedOwned::Lost, now, |entry, _, _| {
            super::renew_owned(entry, owns, now)
        })?;
        match changed {
            Changed::Done(renewed, _) => Ok(renewed),
            Changed::Unreadable(unreadable) => Err(self.unreadable(name, &unreadable.error)),
        }
    }

    fn release_owned(
        &self,
        name: &LockName,
        owns: &dyn Fn(&Claim) -> Ownership,
        now: &Now,
    ) -> Result<Released, StoreError> {
        let changed = self.change(name, Released::Absent, now, |entry, _, _| {
            super::release_owned(entry, &self.policy, owns, now)
        })?;
        match changed {
            Changed::Done(released, _) => {
                self.drop_leftovers(name)?;
                Ok(released)
            }
            Changed::Unreadable(unreadable) => {
                let anybody_may = self.policy.release_by_other == ReleaseByOther::WarnAndRelease
                    && self.policy.unreadable == UnreadableRule::Stale;
                if anybody_may && self.remove_unreadable(name, &unreadable)? {
                    self.drop_leftovers(name)?;
                    let record = bytes_of(unreadable.error);
                    return Ok(Released::Unreadable { record });
                }
                Err(self.unreadable(name, &unreadable.error))
            }
        }
    }

    fn force_release(
        &self,
        name: &LockName,
        force: Force,
        now: &Now,
    ) -> Result<ForcedRelease, StoreError> {
        let changed = self.change(name, Forced::Absent, now, |entry, guarded, opened| {
            let forced = entry.force_release_seeing(
                &self.policy,
                force,
                now,
                |claim| self.evidence(guarded.folder, fd(opened), claim),
                |claim| self.is_stopped(guarded.folder.local, claim),
            );
            let done = matches!(forced, Forced::Done { .. } | Forced::SetAside { .. });
            (forced, done)
        })?;
        match changed {
            Changed::Done(released, published) => Ok(ForcedRelease {
                released,
                record: published.map_or_else(Vec::new, |published| published.bytes),
            }),
            Changed::Unreadable(found) => {
                let (silent_ms, record) = match &found.error {
                    LoadError::Record(found) => (
                        (now.wall_us / 1_000).saturating_sub(found.published.modified_ms),
                        found.published.bytes.clone(),
                    ),
                    LoadError::List { .. } | LoadError::Store(_) => (0, Vec::new()),
                };
                if let Err(refusal) = Entry::replace_unreadable(&self.policy, force, silent_ms) {
                    return Ok(ForcedRelease {
                        released: Forced::Refused(refusal),
                        record,
                    });
                }
                if !self.remove_unreadable(name, &found)? {
                    return Err(self.unreadable(name, &found.error));
                }
                Ok(ForcedRelease {
                    released: Forced::Done {
                        claim: None,
                        standing: unreadable(&self.policy),
                        held_ms: 0,
                    },
                    record,
                })
            }
        }
    }

    fn watch(
        &self,
        name: &LockName,
        seen: &Entry,
        now: &Now,
        until: Option<Instant>,
    ) -> Result<Wake, StoreError> {
        let names = self.names_of(name);
        let opened = match self.folder(false)? {
            Some(folder) => folder.open_file(&names.list, Access::Read)?,
            None => None,
        };
        // Whoever holds comes first: a waiter that stands aside may stand in the list before it.
        let waiting = seen.claims.iter().filter(|claim| claim.token.is_none());
        for claim in seen.granted().chain(waiting) {
            if let Some(opened) = &opened
                && self.policy.asks_beacon
                && Self::beacon(fd(opened), claim) == Beacon::Lit
            {
                let byte = Byte::of_ticket(claim.ticket);
                return self.sleep_on_byte(opened, byte, until, None);
            }
            if claim.token.is_some() {
                let claims = std::slice::from_ref(claim);
                return self.sleep_on_records(&names, None, claims, now, until);
            }
        }
        Ok(Wake::Ready)
    }

    fn names(&self, each: &mut dyn FnMut(LockName)) -> Result<(), StoreError> {
        let folder = if self.profile.record().is_some() {
            self.records(false)?
        } else {
            self.folder(false)?
        };
        let Some(folder) = folder else {
            return Ok(());
        };
        let failed = |errno| fault(&self.path, "listing the lock folder", errno);
        // A folder is nobody's lock, whatever it is called. A link may be one to programs that follow it.
        os::each_file(folder.fd(), &mut |file| {
            if let Some(name) = self.profile.name_of(file) {
                each(name);
            }
        })
        .map_err(failed)
    }

    fn clean(&self, name: &LockName, now: &Now, dry_run: bool) -> Result<Cleaned, StoreError> {
        let publishes = self.profile.record().is_some();
        if publishes && dry_run {
            return self.would_clean(name, now);
        }
        let names = self.names_of(name);
        let began = instant();
        let mut tries = OVERTAKEN_MAX;
        let nothing = || Cleaned {
            swept: Vec::new(),
            removed: false,
            record: Vec::new(),
        };
        loop {
            let Some((guarded, opened)) = self.guarded_if_there(&names)? else {
                return Ok(nothing());
            };
            let settled = self.load_settled(&guarded, opened, Want::All, now, began)?;
            let (loaded, opened) = match settled {
                Settled::Loaded(loaded, opened) => (loaded, opened),
                Settled::Again => continue,
                Settled::Unreadable(error, opened) => {
                    let found = Unreadable { error, opened };
                    if self.sweeps_unreadable() && self.remove_unreadable(name, &found)? {
                        return Ok(Cleaned {
                            swept: Vec::new(),
                            removed: true,
                            record: bytes_of(found.error),
                        });
                    }
                    return Err(self.unreadable(name, &found.error));
                }
            };
            let mut entry = loaded.entry.clone();
            let swept = entry.sweep(&self.policy, now, |claim| {
                self.evidence(guarded.folder, fd(&opened), claim)
            });
            let removed = entry.claims.is_empty();
            let record = match &loaded.published {
                Some(published) if !swept.is_empty() => published.bytes.clone(),
                _ => Vec::new(),
            };
            if dry_run {
                release(&opened);
                return Ok(Cleaned {
                    swept,
                    removed,
                    record,
                });
            }
            if !swept.is_empty() && guarded.commit(&opened, &loaded, &entry)? == Change::Overtaken {
                tries = self.overtaken(tries, &names)?;
                continue;
            }
            if removed {
                self.remove_list(&guarded, entry.last)?;
            }
            release(&opened);
            return Ok(Cleaned {
                swept,
                removed,
                record,
            });
        }
    }
}

/// The bytes of a record that could not be understood.
fn bytes_of(error: LoadError) -> Vec<u8> {
    match error {
        LoadError::Record(found) => found.published.bytes,
        LoadError::List { .. } | LoadError::Store(_) => Vec::new(),
    }
}

/// Whether a plain claim came to wait directly behind this one. It has nothing to do with those
/// before that then: the core looks from the end of the list, and passed over nobody.
fn queues_behind(entering: &Entering, last: Option<u64>) -> bool {
    match entering {
        Entering::Queued {
            behind: Predecessor::Beacon { ticket },
            ..
        } => Some(*ticket) == last,
        Entering::Queued { .. }
        | Entering::Granted { .. }
        | Entering::Yours { .. }
        | Entering::Refused(_)
        | Entering::NotKept => false,
    }
}

/// Whether a request is one of those of which nothing but the two ends of the list has to be known.
fn is_plain(request: &Request) -> bool {
    let terms = &request.terms;
    request.kind == Kind::Kernel
        && request.force == Force::No
        && terms.mode == tenure_core::Mode::Exclusive
        && terms.queueing == Queueing::Fifo
        && !terms.cancel_in_progress
        && terms.kept.is_none()
}

/// What a caller who wants in found.
enum Loading {
    Loaded(Box<Loaded>, Opened, Vec<Event>),
    Again,
    Refused(tenure_core::Refusal),
}

impl FileStore {
    fn unreadable(&self, name: &LockName, error: &LoadError) -> StoreError {
        let names = self.names_of(name);
        let (place, why) = match error {
            LoadError::Record(found) => (self.record_path(&names), found.why.clone()),
            LoadError::List { why, .. } => {
                let folder = self.folder.get();
                let path = folder.map_or_else(
                    || self.path.join(&names.list),
                    |folder| folder.path_of(&names.list),
                );
                (path, why.clone())
            }
            LoadError::Store(error) => (self.record_path(&names), error.to_string()),
        };
        StoreError::Unreadable {
            place: place.display().to_string(),
            why,
        }
    }

    /// Whether a plain request takes over what cannot be understood.
    fn sweeps_unreadable(&self) -> bool {
        self.policy.unreadable == UnreadableRule::Stale
            && self.policy.stale_unforced == StaleUnforced::TakeOver
    }

    /// Removes a record that cannot be understood, still under its guard. False if another program
    /// changed it meanwhile, or if it is our own list that is damaged.
    fn remove_unreadable(&self, name: &LockName, found: &Unreadable) -> Result<bool, StoreError> {
        let LoadError::Record(bad) = &found.error else {
            return Ok(false);
        };
        let names = self.names_of(name);
        let Some(folder) = self.folder(false)? else {
            return Ok(false);
        };
        let guarded = Guarded {
            store: self,
            folder,
            names: &names,
            is_alone: false,
            length: Cell::new(UNKNOWN),
        };
        let before = Loaded {
            entry: bad.entry.clone(),
            snapshot: bad.snapshot.clone(),
            published: Some(bad.published.clone()),
            rest: None,
        };
        let change = guarded.commit(&found.opened, &before, &bad.entry)?;
        release(&found.opened);
        Ok(change == Change::Done)
    }

    /// Removes what a change that was cut short has left beside the record, and what the original
    /// tool of the format may have.
    fn drop_leftovers(&self, name: &LockName) -> Result<(), StoreError> {
        let Some(temporary) = self.profile.temporary(name) else {
            return Ok(());
        };
        let Some(records) = self.records(false)? else {
            return Ok(());
        };
        match os::remove(records.fd(), &temporary) {
            Ok(()) | Err(os::Errno::NOENT) => Ok(()),
            Err(errno) => Err(fault(
                &records.path_of(&temporary),
                "removing a leftover",
                errno,
            )),
        }
    }

    /// Leaves. `None`, and nothing is changed, if those are heeded who work within the hold and there are
    /// any.
    fn leave_heeding(
        &self,
        seat: &Seat,
        now: &Now,
        heeds: bool,
    ) -> Result<Option<Left>, StoreError> {
        let is_entered = Cell::new(false);
        let left = self.change_seat(
            seat,
            Want::Own(seat.ticket),
            now,
            || Left::Absent,
            |entry, guarded| {
                is_entered.set(heeds && !guarded.is_alone && self.is_entered(seat));
                if is_entered.get() {
                    return (Left::Absent, false);
                }
                let left = entry.leave(seat.ticket, now);
                let changed = left != Left::Absent;
                (left, changed)
            },
        );
        if is_entered.get() && left.is_ok() {
            return Ok(None);
        }
        // Whose record stands, holds: so that was a release.
        let withdrawn = match (&left, seat.granted.get()) {
            (Ok((Left::Absent, ..)), Some(claim)) => self.withdraw(&seat.names, claim, now),
            _ => Ok(None),
        };
        // Explicitly, for a daemon that the command left behind may keep a copy of the
        // descriptor. Also after an error: the claim then stands in the list as a dead one, which
        // the next caller sweeps.
        seat.put_out();
        // A folder that was renamed is left tidy, but the hold in it had excluded nobody any more. Work
        // that is over in a moment does not pay for the question.
        let is_elsewhere = seat.lasts.load(Ordering::Relaxed)
            && self
                .folder
                .get()
                .is_some_and(|folder| !folder.is_in_place());
        let (left, ..) = left?;
        let left = withdrawn?.unwrap_or(left);
        Ok(Some(if is_elsewhere { Left::Absent } else { left }))
    }

    /// Goes on under a hold that stands: until what comes back is dropped, and everybody who has inherited
    /// its descriptor has ended, the hold is not given back by who respects that
    /// ([`Store::leave_if_alone`]). `None` if there is no hold with this token any more.
    ///
    /// # Crash safety
    /// The bytes are taken under the guard, and a release looks for them under it: either it finds them,
    /// or the hold is found gone here. They go out with the last who has the descriptor, however that comes
    /// about.
    ///
    /// # Errors
    /// - As for every other change.
    pub fn go_within(&self, name: &LockName, token: u64) -> Result<Option<Within>, StoreError> {
        let names = self.names_of(name);
        let (now, began) = (self.now(), instant());
        loop {
            let Some((guarded, opened)) = self.guarded(&names, Access::Write)? else {
                return Ok(None);
            };
            // Every way out but the last closes the file, which lets go of the guard.
            let settled = self.load_settled(&guarded, opened, Want::All, &now, began)?;
            let (loaded, opened) = match settled {
                Settled::Loaded(loaded, opened) => (loaded, opened),
                Settled::Again => continue,
                Settled::Unreadable(error, _) => return Err(self.unreadable(name, &error)),
            };
            let mut held = loaded.entry.granted();
            let Some(claim) = held.find(|claim| claim.token == Some(token) && claim.ticket > 0)
            else {
                return Ok(None);
            };
            let path = || guarded.folder.path_of(&names.list);
            let failed = |errno| fault(&path(), "going on under a hold", errno);
            let own = (guarded.folder.open_file(&names.list, Access::Write)?)
                .filter(|own| own.is_same(&opened))
                .ok_or_else(|| failed(os::Errno::NOENT))?;
            let within = Within {
                opened: own.moved_above(BEACON_FD_MIN),
                ticket: claim.ticket,
            };
            for byte in within.bytes() {
                if !bytes::try_lock(fd(&within.opened), byte, Mode::Shared).map_err(failed)? {
                    return Err(in_use(&path()));
                }
            }
            release(&opened);
            return Ok(Some(within));
        }
    }

    /// The claim of a seat that was granted, where a record of it is published.
    fn published_claim(&self, entry: &Entry, ticket: u64) -> OnceLock<Box<Claim>> {
        match (self.profile.record(), entry.claim(ticket)) {
            (Some(_), Some(claim)) if claim.token.is_some() => Box::new(claim.clone()).into(),
            _ => OnceLock::new(),
        }
    }

    /// Takes away the record of a hold whose coordination file was removed under it, so that it keeps
    /// nobody out when the work is over. Until then it stood, and by it everybody was kept out. `None` if
    /// it does not stand any more.
    ///
    /// The file may have been made anew since, and others may wait in it: for them the record is that of
    /// another program, and it is removed as such, under the guard of the new file, if it is the one that
    /// was published for this hold and for no other. Death before the removal leaves a record that is
    /// judged by what it says; death after it, a list without a holder.
    fn withdraw(&self, names: &Names, held: &Claim, now: &Now) -> Result<Option<Left>, StoreError> {
        let mut tries = OVERTAKEN_MAX;
        while self.record_stands(names)? {
            let Some((guarded, opened)) = self.guarded(names, Access::Create)? else {
                break;
            };
            let loaded = match guarded.load(&opened, Want::All, now) {
                Ok(loaded) => loaded,
                Err(LoadError::Store(error)) => return Err(error),
                // What cannot be understood was written by somebody else.
                Err(LoadError::List { .. } | LoadError::Record(_)) => break,
            };
            let mut entry = loaded.entry.clone();
            let is_ours = |claim: &Claim| claim.token.is_some() && guarded::is_of(claim, held);
            entry.claims.retain(|claim| !is_ours(claim));
            if entry.claims.len() == loaded.entry.claims.len() {
                break;
            }
            // The numbers of the new file go on above those of the one that is gone.
            entry.raise(held.token.unwrap_or_default());
            if guarded.commit(&opened, &loaded, &entry)? == Change::Overtaken {
                tries = self.overtaken(tries, names)?;
                continue;
            }
            release(&opened);
            let boot = held.holder.host.boot_id.as_deref();
            let held_ms = held.since.map_or(0, |since| since.age_ms(boot, now));
            return Ok(Some(Left::Released { held_ms }));
        }
        Ok(None)
    }

    /// Removes the coordination file of a lock without claims, under its guard. Killed after the
    /// floor and before the removal: the file is still there, and free.
    fn remove_list(&self, guarded: &Guarded<'_>, last: u64) -> Result<(), StoreError> {
        self.raise_floor(guarded.folder, &guarded.names.name, last)?;
        let list = &guarded.names.list;
        os::remove(guarded.folder.fd(), list).map_err(|errno| {
            fault(
                &guarded.folder.path_of(list),
                "removing an unused lock",
                errno,
            )
        })
    }

    /// What [`Store::clean`] would do, without touching anything.
    fn would_clean(&self, name: &LockName, now: &Now) -> Result<Cleaned, StoreError> {
        let names = self.names_of(name);
        let look = self.look_settled(&names)?;
        let bytes = || {
            let published = look.published.as_ref();
            published.map_or_else(Vec::new, |published| published.bytes.clone())
        };
        match &look.joined {
            Ok(entry) => {
                let mut entry = entry.clone();
                let swept = entry.sweep(&self.policy, now, |claim| self.evidence_in(&look, claim));
                let removed = entry.claims.is_empty();
                let record = if swept.is_empty() {
                    Vec::new()
                } else {
                    bytes()
                };
                Ok(Cleaned {
                    swept,
                    removed,
                    record,
                })
            }
            Err(_) if self.sweeps_unreadable() => Ok(Cleaned {
                swept: Vec::new(),
                removed: true,
                record: bytes(),
            }),
            Err(why) => Err(StoreError::Unreadable {
                place: self.place(name),
                why: why.clone(),
            }),
        }
    }

    /// Loads the list for a caller who wants in: a fresh file begins above the folder's floor,
    /// and what cannot be read is replaced or refused as the policy says, once it has settled.
    /// Replacing it is an event.
    ///
    /// Force replaces a record, never a living holder: while any beacon is lit in a coordination
    /// file, it stays as it is.
    fn load_for_entering(
        &self,
        guarded: &Guarded<'_>,
        opened: Opened,
        request: &Request,
        want: Want,
        now: &Now,
        began: Instant,
    ) -> Result<Loading, StoreError> {
        let begun_anew = |entry: &mut Entry| -> Result<(), StoreError> {
            entry.raise(Self::floor(guarded.folder)?);
            Ok(())
        };
        let (error, opened) = match self.load_settled(guarded, opened, want, now, began)? {
            Settled::Loaded(mut loaded, opened) => {
                if loaded.snapshot.sequence == 0 {
                    begun_anew(&mut loaded.entry)?;
                }
                return Ok(Loading::Loaded(loaded, opened, Vec::new()));
            }
            Settled::Again => return Ok(Loading::Again),
            Settled::Unreadable(error, opened) => (error, opened),
        };
        let silent_ms = match &error {
            LoadError::Record(found) => {
                (now.wall_us / 1_000).saturating_sub(found.published.modified_ms)
            }
            // Nobody else writes the list, so how old a damaged one is says nothing.
            LoadError::List { .. } | LoadError::Store(_) => u64::MAX,
        };
        if let Err(refusal) = Entry::replace_unreadable(&self.policy, request.force, silent_ms) {
            let plain = request.force == Force::No && refusal.standing == Standing::Unreadable;
            return if plain {
                Err(self.unreadable(&guarded.names.name, &error))
            } else {
                Ok(Loading::Refused(refusal))
            };
        }
        let replaced = |record: Vec<u8>| Event::Stolen {
            why: Takeover::Corrupt,
            previous: None,
            record,
        };
        match error {
            LoadError::Store(error) => Err(error),
            LoadError::Record(found) => {
                let guarded::BadRecord {
                    published,
                    mut entry,
                    snapshot,
                    ..
                } = *found;
                if snapshot.sequence == 0 {
                    begun_anew(&mut entry)?;
                }
                let events = vec![replaced(published.bytes.clone())];
                let loaded = Loaded {
                    entry,
                    snapshot,
                    published: Some(published),
                    rest: None,
                };
                Ok(Loading::Loaded(Box::new(loaded), opened, events))
            }
            LoadError::List { why, snapshot } => {
                if somebody_is_lit(&opened) {
                    return Err(StoreError::Unreadable {
                        place: guarded
                            .folder
                            .path_of(&guarded.names.list)
                            .display()
                            .to_string(),
                        why: format!(
                            "{why}; it is not replaced, because somebody alive has a place in it"
                        ),
                    });
                }
                let mut entry = Entry::default();
                begun_anew(&mut entry)?;
                match guarded.join(entry, snapshot, now) {
                    Ok(loaded) => {
                        let events = vec![replaced(Vec::new())];
                        Ok(Loading::Loaded(Box::new(loaded), opened, events))
                    }
                    Err(error) => Err(self.unreadable(&guarded.names.name, &error)),
                }
            }
        }
    }

    /// Sleeps until an owner lets go of its byte, and keeps nothing of it.
    fn sleep_on_byte(
        &self,
        opened: &Opened,
        byte: Byte,
        until: Option<Instant>,
        summons: Option<BorrowedDescriptor<'_>>,
    ) -> Result<Wake, StoreError> {
        let lock = ByteLock {
            byte,
            mode: Mode::Shared,
        };
        self.sleeper
            .pass(fd(opened), lock, until, summons)
            .map_err(|error| io_fault(&self.path, "waiting for the claim before", error))
    }

    /// Sleeps until a process of one of these claims ends, its lease runs out, or the file changes,
    /// as it does when the sleeper's own claim is asked to stop.
    fn sleep_on_records(
        &self,
        names: &Names,
        own: Option<u64>,
        claims: &[Claim],
        now: &Now,
        until: Option<Instant>,
    ) -> Result<Wake, StoreError> {
        let path = self.path.join(if names.record.is_empty() {
            &names.list
        } else {
            &names.record
        });
        // Where there is none to be had, as on a system that cannot watch, the pause has to do for all.
        let watch = self.news_of(names).ok();
        // The watch is in place; if a claim changed before it was, look at once.
        let look = self.look(names, now)?;
        let entry = look.joined.as_ref().ok();
        if own.is_some_and(|own| entry.is_some_and(|entry| entry.is_cancelled(own))) {
            return Ok(Wake::Ready);
        }
        let local = self.is_local();
        let mut processes_open = Vec::new();
        let mut nap = match watch {
            Some(_) => RECORD_NAP_MAX,
            None => RECORD_NAP_MIN,
        };
        for claim in claims {
            let evidence = self.evidence_in(&look, claim);
            let stands = look
                .joined
                .as_ref()
                .ok()
                .and_then(|entry| entry.claim(claim.ticket));
            let held = judge(&self.policy, claim, &evidence, now);
            // A record without a date of its own gets that of the look, so two looks date it differently;
            // and what is looked at anew after a short pause in any case may be dated differently.
            let is_same = |other: &Claim| {
                (other.ticket, other.token) == (claim.ticket, claim.token)
                    && other.holder == claim.holder
            };
            let stands = stands.is_some_and(|stands| match watch {
                Some(_) if claim.holder.fact(UNDATED).is_none() => stands == claim,
                Some(_) | None => is_same(stands),
            });
            if !stands || !matches!(held, Standing::Held(_)) {
                return Ok(Wake::Ready);
            }
            let before = processes_open.len();
            let processes = [claim.holder.process, claim.holder.command];
            let processes = processes.into_iter().flatten();
            processes_open.extend(processes.filter_map(|process| {
                process::open(&process, &claim.holder.host, &self.here, local)
            }));
            // A lease that counts is looked at again just after it can have run out. It does not
            // count while a process is seen to live, whose end shows by itself.
            if processes_open.len() == before {
                let boot = claim.holder.host.boot_id.as_deref();
                let rest = claim.lease.remaining_ms(boot, now).saturating_add(1);
                nap = nap.min(Duration::from_millis(rest).max(RECORD_NAP_MIN));
                // What is left of a run whose named processes are gone is seen by its beacon alone,
                // and is mostly about to end as well.
                if evidence.beacon == Beacon::Lit {
                    nap = nap.min(RECORD_NAP_MIN);
                }
            }
        }
        let fds: Vec<BorrowedDescriptor<'_>> = watch
            .iter()
            .map(Watch::descriptor)
            .chain(processes_open.iter().map(os::borrow))
            .collect();
        self.sleeper
            .poll(&fds, nap, until)
            .map_err(|error| io_fault(&path, "watching the lock", error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tenure_core::{Holder, RequestId, Terms};

    fn store_in(folder: &Path) -> FileStore {
        let here = process::Identity::current().host;
        FileStore::new(folder, here, Box::new(ThreadSleeper))
    }

    /// A holder and one who waits behind it and may be asked to stop meanwhile.
    fn holder_and_waiter(store: &FileStore, name: &LockName) -> (Seat, Seat, Predecessor) {
        let enter = |id: &str, queueing| {
            let request = Request {
                holder: Holder {
                    facts: Vec::new(),
                    request_id: RequestId::new(id).expect("an accepted id"),
                    actor: "test".to_owned(),
                    process: None,
                    command: None,
                    host: store.here.clone(),
                    why: "testing".to_owned(),
                },
                kind: Kind::Kernel,
                ttl_ms: 600_000,
                force: Force::No,
                patience: Patience::Queue,
                terms: Terms {
                    queueing,
                    ..Terms::default()
                },
            };
            let entered = store.enter(name, request, &store.now());
            entered.expect("an entered claim")
        };
        let holder = enter("holder", Queueing::Fifo).seat.expect("a seat");
        let entered = enter("waiter", Queueing::Single);
        let Entering::Queued { behind, .. } = entered.entering else {
            panic!("expected a place in the queue, saw {:?}", entered.entering);
        };
        (holder, entered.seat.expect("a seat"), behind)
    }

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
            // A clock that is ahead says nothing, so this one looks for as long as any.
            (700_000, 1_999, true),
            (700_000, 2_000, false),
            (700_000, 9_000, false),
        ] {
            let mut published = Published::of_bytes(b"");
            published.modified_ms = modified_ms;
            let since_now = Duration::from_millis(since_now_ms);
            let is_settling = FileStore::is_settling(&published, &now, since_now);
            assert_eq!(is_settling, expected, "{modified_ms} {since_now_ms}");
        }
    }

    #[test]
    fn locks_are_local_where_a_folder_was_opened_that_only_this_machine_reaches() {
        for is_local in [true, false] {
            let scratch = tempfile::tempdir().expect("a folder");
            let store = store_in(scratch.path());
            assert!(!store.is_local(), "nothing was opened yet");
            let folder = Folder::open(scratch.path(), false, false, false);
            let mut folder = folder.expect("a good folder").expect("it is there");
            assert!(folder.local, "as the system says");
            folder.local = is_local;
            store.records.put(folder);
            assert_eq!(store.is_local(), is_local);
        }
    }

    /// As on a system without watches.
    #[test]
    fn where_nothing_can_be_watched_a_waiter_looks_from_time_to_time() {
        let scratch = tempfile::tempdir().expect("a folder");
        let store = store_in(scratch.path());
        let name = LockName::new("lock").expect("an accepted name");
        let (holder, mut waiter, behind) = holder_and_waiter(&store, &name);
        waiter.summons = Summons::Looks;
        let sleep = |length: Option<Duration>| {
            let began = instant();
            let until = length.map(|length| began + length);
            let wake = store.sleep(&waiter, &behind, &store.now(), until);
            (wake.expect("a sleep"), crate::clock::since(began))
        };
        for length in [None, Some(GUARD_PATIENCE)] {
            let (wake, took) = sleep(length);
            assert_eq!(wake, Wake::Ready, "it has to look: {length:?}");
            assert!(took >= SUMMONS_NAP && took < GUARD_PATIENCE, "{took:?}");
        }
        assert_eq!(sleep(Some(SUMMONS_NAP / 5)).0, Wake::Expired);
        store.leave(&holder, &store.now()).expect("a release");
        assert_eq!(sleep(None).0, Wake::Ready, "nobody is before it");
    }
}
