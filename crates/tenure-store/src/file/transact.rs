//! The frame of every change: what is done to the files of a lock, step by step.
//!
//! 1. Open the file, lock its *guard* byte, make sure that the name still leads to this file.
//! 2. Read the list, or as much of it as the change is about (`partial`), and the record (`guarded`).
//!    Show both to the change.
//! 3. A new claim locks its own *ticket* byte, its liveness lock. **Then** the list is written.
//! 4. Release the guard.
//!
//! A run within the hold of another run (`run --reentrant`) shares two bytes with all other such runs:
//! one belongs to that claim, one lies beside the guard. A change through a handle takes the byte beside
//! the guard together with the guard, in one call. Only if it does not get that byte does a release ask
//! for the claim's own one. So no holder gives back a hold while other runs work within it. The release
//! of a hold that no other run shares costs no extra call ([decision
//! 0085](../../../../../docs/internals/decisions/0085-who-is-inside-of-a-run.md)).
//!
//! A release changes the list first and releases its liveness lock afterwards. So a live claimant holds
//! its liveness lock from before its claim can be seen until after the claim is gone. A claim whose
//! liveness lock is released belongs to a process that died.
//!
//! # Crash safety
//! The kernel releases the guard and a liveness lock when their last descriptor is closed, whatever
//! ended the process. Death between any two steps leaves this behind:
//! - before 3: nothing; possibly an empty file, which is a free lock;
//! - after the ticket byte, before the write: nothing, because the byte is released with us;
//! - in the write: the state before, because the page that counts is never written to;
//! - after the write: a whole list with our claim in it, and its liveness lock released. The next caller
//!   sweeps it. The kernel wakes a waiter that already sleeps behind it, as the byte is released;
//! - in a release, between the write and the byte: the claim is gone, and the byte is released with us;
//! - between a grant's write and its turn: the turn is released with us, and each waiter that slept on
//!   it finds us dead;
//! - between the write that reserves a place and its bytes: they are released with us, and the place is
//!   reserved;
//! - between the touch that tells a waiter that it was displaced and the write that displaces it: the
//!   waiter wakes up for nothing;
//! - between the write that sweeps the last claim and the removal of the file: a free lock
//!   ([`Guarded::remove_list`]).
//!
//! A detached claim has no liveness lock once it is granted. Death between its write and its answer
//! leaves a granted hold that lives as long as its owner does. If the owner asks again under the same
//! request id, the answer is that the owner holds it already.
//!
//! `guarded` says how the write keeps list and record together.

use super::bytes::{self, Byte, Mode};
use super::ends::{Begun, Ends};
use super::folder::{Access, Opened, fault};
use super::guarded::{BadRecord, GUARD_PATIENCE, GuardPatience, Guarded, LoadError, Loaded};
use super::handle::{FileHandle, HoldPart, PublishedClaim, WakeUp};
use super::joined::{is_of, note_bytes};
use super::names::Names;
use super::pages::{Room, Snapshot};
use super::partial::{Rest, Want};
use super::publication::Change;
use super::{ClaimKey, FileStore, agents, fd, floor};
use crate::StoreError;
use crate::contract::{
    About, Ask, Committed, Corrupt, Draft, Handle, NewClaim, Outcome, Run, Step, Store as _, Write,
    own,
};
use std::cell::OnceCell;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};
use tenure_core::{Claim, Entry, Event, Kind, Left, LockName, Now, Silence, UnreadableRule};
use tenure_os::clock::{instant, rest_until};
use tenure_os::os;

/// How long a caller that comes back pauses between two tries for the bytes of its reserved place. The
/// waiters that slept on them when it went away take them for an instant as they wake up.
const KEPT_LOOK: Duration = Duration::from_millis(1);

/// Why a damaged list or record stays.
const KEPT: &str = "it is not replaced, because a live process has a place in it";

/// How often a change is begun anew because another program changed the record under it. Each time that
/// program has made progress, so this bounds a spin and not a caller's patience.
const OVERTAKEN_MAX: usize = 64;

/// The lowest number that a liveness lock's descriptor gets. There it is out of the way of scripts that
/// open 3 to 9 themselves. It is within the 64 descriptors that a process has without growing its table,
/// and above the others that its process opens. When a process dies, the kernel closes that process's
/// descriptors from the highest down, and some of them (inotify) take it milliseconds. Between two
/// processes that die there is no such order.
const LIVENESS_FD_MIN: i32 = 57;

/// What became of one run through the frame.
enum Round {
    Over(Outcome),
    Again,
}

/// A change, over as many rounds as it takes.
struct Frame<'a> {
    store: &'a FileStore,
    ask: &'a Ask<'a>,
    handle: Option<&'a FileHandle>,
    names: &'a Arc<Names>,
    /// How much of the list is read.
    want: Want,
    /// When its first round ended without a result. Mostly the first is the last, and asks no clock.
    began: OnceCell<Instant>,
    /// How often another program may still come first.
    tries: usize,
    /// How often the change was run.
    runs: usize,
}

/// What a change is shown, and what its write starts from.
struct DraftSource {
    loaded: Loaded,
    corrupt: Option<Corrupt>,
}

impl FileStore {
    /// Runs one change in the frame.
    pub(super) fn run_change(
        &self,
        ask: &Ask<'_>,
        change: &mut dyn FnMut(&mut Draft<'_>) -> Step,
    ) -> Result<Outcome, StoreError> {
        let handle = match ask.about.handle() {
            Some(handle) => Some(self.own_handle(handle)?),
            None => None,
        };
        // A thread that panicked during a change has written all of it or nothing.
        let _changing = handle.map(|handle| {
            let changing = &handle.changing;
            changing.lock().unwrap_or_else(PoisonError::into_inner)
        });
        // No claim is granted in a folder that callers who come now do not find.
        if matches!(ask.about, About::Turn(_)) && self.is_elsewhere() {
            return Ok(Outcome::Absent);
        }
        let names = match handle {
            Some(handle) => Arc::clone(&handle.names),
            None => Arc::new(self.names_of(ask.name)),
        };
        let mut frame = Frame {
            store: self,
            ask,
            handle,
            names: &names,
            want: wanted(&ask.about),
            began: OnceCell::new(),
            tries: OVERTAKEN_MAX,
            runs: 0,
        };
        loop {
            if let Round::Over(outcome) = frame.round(change)? {
                return Ok(outcome);
            }
        }
    }

    /// A handle as one of this store's.
    pub(super) fn own_handle<'a>(
        &self,
        handle: &'a dyn Handle,
    ) -> Result<&'a FileHandle, StoreError> {
        own(handle, || self.shown(&self.names_of(handle.name())))
    }

    /// The open file by which a claim is changed.
    ///
    /// Where the second one cannot be opened, it is the one of which the command may have a copy. Then a supervisor that is
    /// killed in the middle of this very change would leave the guard with its command. A change that fails instead
    /// would leave a hold that has ended in the list, and that surely.
    fn for_a_change<'a>(&self, handle: &'a FileHandle) -> &'a Opened {
        let again = || {
            let folder = self.folder.get()?;
            // A name that leads elsewhere is found by the change, by whichever file it goes.
            let again = folder.open_again(&handle.names.list, &handle.opened);
            again.ok()?
        };
        if let Some(opened) = handle.for_a_change() {
            return opened;
        }
        match again() {
            Some(opened) => handle.beside.get_or_init(|| opened),
            None => &handle.opened,
        }
    }

    /// Whether the folder of the coordination files was removed or renamed since it was opened.
    fn is_elsewhere(&self) -> bool {
        let folder = self.folder.get();
        folder.is_some_and(|folder| !folder.is_in_place())
    }
}

/// How much of a list to show to a change.
fn wanted(about: &About<'_>) -> Want {
    match about {
        About::NewClaim { ends: true, .. } => Want::Ends,
        About::NewClaim { .. } | About::All => Want::All,
        About::Turn(handle) => Want::UpTo(handle.ticket()),
        About::Own(handle) | About::Renewal(handle) => Want::Own(handle.ticket()),
    }
}

impl<'f> Frame<'f> {
    fn began(&self) -> Instant {
        *self.began.get_or_init(instant)
    }

    /// How long this caller waits for what others have for moments only.
    fn patience(&self) -> Duration {
        let within = self.ask.within.unwrap_or(GUARD_PATIENCE);
        within.min(GUARD_PATIENCE)
    }

    fn is_new_claim(&self) -> bool {
        matches!(self.ask.about, About::NewClaim { .. })
    }

    /// Goes through all steps a single time.
    fn round(
        &mut self,
        change: &mut dyn FnMut(&mut Draft<'_>) -> Step,
    ) -> Result<Round, StoreError> {
        let (store, now) = (self.store, self.ask.now);
        let mut opened = None;
        let Some(guarded) = self.guard(&mut opened)? else {
            return self.absent();
        };
        let loaded = guarded.load(self.want, now);
        if FileStore::is_being_written(&loaded, now, || self.began()) {
            drop(guarded);
            store.settle()?;
            return Ok(Round::Again);
        }
        let DraftSource {
            mut loaded,
            corrupt,
        } = self.found(&guarded, loaded)?;
        let last = loaded.entry.last;
        let unread = loaded.rest.as_ref().map_or(0, Rest::before);
        let claims = loaded.entry.claims.len();
        let (step, entry, mut events) = self.run(change, &guarded, &mut loaded, corrupt.as_ref());
        if unread > 0 && matches!(self.ask.about, About::Turn(_)) {
            // A waiter that finds the claim directly before its own alive writes nothing and sweeps nothing. Any other
            // finding may be wrong for the whole list ([`Rest::before`]).
            let is_behind = matches!(step, Step::Keep);
            if !is_behind || entry.claims.len() != claims {
                self.want = Want::All;
                return Ok(Round::Again);
            }
        }
        let published = loaded.published.as_ref();
        note_bytes(&mut events, published);
        let record = || published.map_or_else(Vec::new, |published| published.bytes.clone());
        let done = Committed {
            run: Run::Nth(self.runs - 1),
            entry,
            events,
            unread,
            record: record(),
            own: None,
            handle: None,
        };
        let write = match step {
            Step::ShowAll => {
                self.want = Want::All;
                return Ok(Round::Again);
            }
            Step::Keep => {
                drop(guarded);
                if corrupt.is_none() {
                    self.tidy()?;
                }
                return Ok(Round::Over(Outcome::Done(done)));
            }
            Step::Write(write) => write,
        };
        self.check(&write, corrupt.as_ref())?;
        self.note_agent(&guarded, &write, &done.entry)?;
        // Before the write: when a claim can first be seen, it has its bytes already.
        let taken = match &write.makes {
            Some(made) => match take_bytes(&guarded, made)? {
                Some(taken) => Some((*made, taken)),
                // Waiters may still have the bytes of a reserved place to which its claimant comes back.
                None if made.ticket <= last
                    && rest_until(self.began() + self.patience()).is_some() =>
                {
                    drop(guarded);
                    store.pause(KEPT_LOOK)?;
                    return Ok(Round::Again);
                }
                None => return Err(in_use(&guarded)),
            },
            None => None,
        };
        // Until the list is written with it, a claim that is new to this open file is in no list.
        let is_new = taken.is_some();
        guarded.leaves.set(is_new);
        let displaces = |event: &Event| matches!(event, Event::Displaced { .. });
        if done.events.iter().any(displaces) {
            // Before the write as well: a waiter that is told looks under the guard, so after the write.
            summon(guarded.opened);
        }
        let room = room_for(write.makes.as_ref(), last);
        debug_assert!(!write.removes || claims == 0, "a removal finds no claims");
        if write.removes {
            // The list has no claim, so it stands there as it is to be.
            guarded.remove_list(done.entry.last)?;
        } else if guarded.commit(&loaded, &done.entry, room)? == Change::Overtaken {
            drop(guarded);
            self.tries = store.overtaken(self.tries, self.names)?;
            return Ok(Round::Again);
        }
        if is_new {
            guarded.leaves.set(false);
        }
        self.note_grant(&guarded, &write, &done.entry);
        // The list is written without the claim, so its liveness lock says nothing any more.
        if matches!(self.ask.about, About::Own(_))
            && let Some(own) = guarded.own_ticket()
        {
            guarded.leaves.set(done.entry.claim(own).is_none());
        }
        let record = guarded.granted.take();
        drop(guarded);
        self.written(taken, opened, record, done)
    }

    /// Notes that an agent is at work before its detached claim can first be seen: from then on, its signs count.
    fn note_agent(
        &self,
        guarded: &Guarded<'_>,
        write: &Write,
        entry: &Entry,
    ) -> Result<(), StoreError> {
        let made = write.makes.and_then(|made| entry.claim(made.ticket));
        self.begin_agent(guarded, made)
    }

    /// Writes the sign of the agent by whose signs a claim is judged, if it is such a claim.
    fn begin_agent(&self, guarded: &Guarded<'_>, claim: Option<&Claim>) -> Result<(), StoreError> {
        let is_judged = self.store.agents().is_some();
        let detached = claim.filter(|claim| is_judged && claim.kind == Kind::Detached);
        match detached.and_then(|claim| claim.holder.agent()) {
            Some(agent) => agents::begin(guarded.folder, &agent, self.ask.now),
            None => Ok(()),
        }
    }

    /// Notes it again behind the write that grants the caller's claim. Between the two, another call may have ended the
    /// agent and forgotten its signs: it did not see this hold. A sign that cannot be written makes the hold shorter.
    fn note_grant(&self, guarded: &Guarded<'_>, write: &Write, entry: &Entry) {
        let turn = self
            .handle
            .filter(|_| matches!(self.ask.about, About::Turn(_)));
        let own = write.makes.map(|made| made.ticket);
        let own = own.or(turn.map(|handle| handle.ticket));
        let claim = own.and_then(|ticket| entry.claim(ticket));
        let _ = self.begin_agent(guarded, claim.filter(|claim| claim.token.is_some()));
    }

    /// Opens the file, takes the guard and makes sure that the name still leads to the file. `None` if
    /// there is no such lock.
    fn guard<'g>(&self, opened: &'g mut Option<Opened>) -> Result<Option<Guarded<'g>>, StoreError>
    where
        'f: 'g,
    {
        let within = self.ask.within;
        let patience = if self.ask.waits || matches!(self.ask.about, About::Turn(_)) {
            GuardPatience::in_line(within)
        } else {
            self.patience().into()
        };
        if let Some(handle) = self.handle {
            let opened = self.store.for_a_change(handle);
            let mut guarded = self.store.guard_handle(handle, opened, patience)?;
            if let (Some(guarded), About::Own(_)) = (&mut guarded, self.ask.about) {
                guarded.knows = handle.granted.get().map(AsRef::as_ref);
            }
            return Ok(guarded);
        }
        // A lock for which only another program's record stands has no coordination file yet. A change
        // to it makes the file.
        let access = if self.is_new_claim() || self.store.record_stands(self.names)? {
            Access::Create
        } else {
            Access::Write
        };
        self.store.guard_name(self.names, access, patience, opened)
    }

    fn absent(&self) -> Result<Round, StoreError> {
        if self.is_new_claim() {
            return Err(StoreError::Io {
                place: self.store.path.display().to_string(),
                doing: "opening the lock folder",
                source: std::io::ErrorKind::NotFound.into(),
            });
        }
        self.tidy()?;
        Ok(Round::Over(Outcome::Absent))
    }

    /// What the change is shown of what was read. A fresh file begins above the folder's floor. Of
    /// content that cannot be understood, the change is shown what remains without it.
    ///
    /// Only a call that makes a claim replaces a damaged list, and never while any liveness lock is held in its file:
    /// force replaces a record, never a living holder.
    fn found(
        &self,
        guarded: &Guarded<'_>,
        loaded: Result<Loaded, LoadError>,
    ) -> Result<DraftSource, StoreError> {
        let place = |path: &Path| path.display().to_string();
        let (mut loaded, corrupt) = match loaded {
            Ok(loaded) => {
                // Every record that can be read is a holder's.
                if self.is_new_claim()
                    && loaded.published.is_some()
                    && loaded.entry.granted().next().is_none()
                {
                    let record = self.store.record_path(self.names);
                    let _ = self.store.set_aside.set(format!(
                        "{}: it was empty, as a power cut leaves a record, and nobody holds it",
                        record.display()
                    ));
                }
                if self.is_new_claim() && loaded.snapshot.replaces_torn() {
                    let list = guarded.folder.path_of(&self.names.list);
                    let _ = self.store.set_aside.set(format!(
                        "{}: it was torn, as a power cut leaves a list, and no process has a place in it",
                        list.display()
                    ));
                }
                (loaded, None)
            }
            Err(LoadError::Store(error)) => return Err(error),
            Err(LoadError::Record(found)) => {
                let BadRecord {
                    why,
                    silence,
                    published,
                    entry,
                    snapshot,
                } = *found;
                // Where force is all that it takes, it takes no lock from a process that lives.
                let refuses =
                    self.store.rules.policy.unreadable == UnreadableRule::RefuseUnlessForced;
                let is_kept = refuses && self.is_new_claim() && guarded.any_is_held();
                let corrupt = Corrupt {
                    why,
                    place: place(&self.store.record_path(self.names)),
                    silence,
                    record: published.bytes.clone(),
                    is_record: true,
                    refuses: false,
                    sealed: is_kept.then_some(KEPT),
                };
                let loaded = Loaded {
                    entry,
                    snapshot,
                    published: Some(published),
                    rest: None,
                };
                (loaded, Some(corrupt))
            }
            Err(LoadError::List { why, snapshot }) => {
                let (loaded, sealed) = self.without_list(guarded, *snapshot)?;
                let corrupt = Corrupt {
                    why,
                    place: place(&guarded.folder.path_of(&self.names.list)),
                    // Only this program writes the list, so the age of a damaged one says nothing.
                    silence: Silence::UNTOLD,
                    record: Vec::new(),
                    is_record: false,
                    refuses: false,
                    sealed,
                };
                (loaded, Some(corrupt))
            }
        };
        let begins_anew = loaded.snapshot.sequence == 0
            || corrupt.as_ref().is_some_and(|corrupt| !corrupt.is_record);
        if self.is_new_claim() && begins_anew {
            let floor = floor::read(guarded.folder);
            loaded.entry.raise(floor.last);
            if let Some(why) = floor.set_aside {
                let _ = self.store.set_aside.set(why);
            }
        }
        Ok(DraftSource { loaded, corrupt })
    }

    /// A lock without its damaged list, and the reason why that list must stay, if there is one.
    fn without_list(
        &self,
        guarded: &Guarded<'_>,
        snapshot: Snapshot,
    ) -> Result<(Loaded, Option<&'static str>), StoreError> {
        let nothing = |snapshot| Loaded {
            entry: Entry::default(),
            snapshot,
            published: None,
            rest: None,
        };
        if !self.is_new_claim() {
            return Ok((nothing(snapshot), None));
        }
        if guarded.any_is_held() {
            return Ok((nothing(snapshot), Some(KEPT)));
        }
        match guarded.join(Entry::default(), snapshot.clone(), self.ask.now) {
            Ok(loaded) => Ok((loaded, None)),
            Err(LoadError::Store(error)) => Err(error),
            Err(LoadError::List { .. } | LoadError::Record(_)) => {
                let reason = "it is not replaced, because its record cannot be understood either";
                Ok((nothing(snapshot), Some(reason)))
            }
        }
    }

    /// Shows the draft to the change. Only where the write includes a record is the list needed as it
    /// was before.
    fn run(
        &mut self,
        change: &mut dyn FnMut(&mut Draft<'_>) -> Step,
        guarded: &Guarded<'_>,
        loaded: &mut Loaded,
        corrupt: Option<&Corrupt>,
    ) -> (Step, Entry, Vec<Event>) {
        let (store, handle, local) = (self.store, self.handle, guarded.folder.local);
        let (file, own) = (fd(guarded.opened), guarded.own_ticket());
        let published = &loaded.published;
        let mut draft = Draft {
            entry: if store.profile.record().is_some() {
                loaded.entry.clone()
            } else {
                std::mem::take(&mut loaded.entry)
            },
            events: Vec::new(),
            unread: loaded.rest.as_ref().map_or(0, Rest::before),
            corrupt: corrupt.cloned(),
            evidence: &|claim, depth| store.evidence(local, file, own, claim, depth),
            stopped: &|claim| store.is_stopped(local, claim),
            entered: &|| !guarded.is_alone && handle.is_some_and(Handle::is_entered),
            written_ago_ms: &|| {
                let (publication, _) = guarded.publication().filter(|_| !local)?;
                publication.written_ago_ms(published.as_ref()?)
            },
        };
        let step = change(&mut draft);
        let Draft { entry, events, .. } = draft;
        self.runs += 1;
        (step, entry, events)
    }

    /// Only a change that says so replaces what cannot be understood.
    fn check(&self, write: &Write, corrupt: Option<&Corrupt>) -> Result<(), StoreError> {
        if corrupt.is_some() && !write.discards {
            return Err(StoreError::Misused {
                place: self.store.shown(self.names),
                why: "a change wrote over what it did not understand",
            });
        }
        Ok(())
    }

    /// What follows a write, once the guard is released.
    fn written(
        &self,
        taken: Option<(NewClaim, ClaimBytes)>,
        opened: Option<Opened>,
        mut record: Option<Vec<u8>>,
        mut done: Committed,
    ) -> Result<Round, StoreError> {
        let mut published = |ticket| {
            let claim = done.entry.claim(ticket)?;
            let is_published = claim.token.is_some() && self.store.profile.record().is_some();
            is_published.then(|| {
                Box::new(PublishedClaim {
                    claim: claim.clone(),
                    record: record.take(),
                })
            })
        };
        let is_granted = |ticket| {
            let claim = done.entry.claim(ticket);
            claim.is_some_and(|claim| claim.token.is_some())
        };
        match (self.handle, self.ask.about) {
            (Some(handle), About::Turn(_)) if is_granted(handle.ticket) => {
                handle.give_turn();
                if let Some(claim) = published(handle.ticket) {
                    let _ = handle.granted.set(claim);
                }
            }
            // In a renamed folder the list is left tidy, but the hold in it no longer excluded new callers.
            // Only long work pays for the question whether the folder was renamed.
            (Some(handle), About::Own(_))
                if handle.lasts.load(Ordering::Relaxed) && self.store.is_elsewhere() =>
            {
                return Ok(Round::Over(Outcome::Absent));
            }
            _ => {}
        }
        if let (Some((made, taken)), Some(opened)) = (taken, opened) {
            let queueing = done.entry.claim(made.ticket).map(|claim| claim.queueing);
            let begun = self.begin(&opened, made);
            let is_for_commands = made.liveness && self.store.ends.is_none();
            let moved = |opened: Opened| {
                if is_for_commands {
                    opened.moved_above(LIVENESS_FD_MIN)
                } else {
                    opened
                }
            };
            let (opened, apart) = match taken.apart {
                None => (moved(opened), None),
                Some(apart) => (opened, Some(moved(apart))),
            };
            let handle = FileHandle {
                ticket: made.ticket,
                opened,
                is_alive: AtomicBool::new(made.liveness),
                begun,
                apart,
                lent: is_for_commands.then(AtomicBool::default),
                is_handed: AtomicBool::new(false),
                beside: OnceLock::new(),
                names: Arc::clone(self.names),
                has_turn: made.turn,
                wake_up: WakeUp::of(queueing.unwrap_or_default()),
                lasts: AtomicBool::new(false),
                granted: published(made.ticket).map_or_else(OnceLock::new, OnceLock::from),
                changing: Mutex::default(),
            };
            done.own = Some(made.ticket);
            done.handle = Some(Box::new(handle));
        }
        self.tidy()?;
        Ok(Round::Over(Outcome::Done(done)))
    }

    /// Lets the threads of this process wait for the end of a claim that it has made.
    fn begin(&self, opened: &Opened, made: NewClaim) -> Option<Begun<ClaimKey>> {
        let ends = self.store.ends.as_ref().filter(|_| made.liveness)?;
        Some(Ends::begin(ends, (opened.inode(), made.ticket)))
    }

    /// If the caller asks for it, removes the temporary file that a crash of the format's original tool
    /// left beside the record.
    fn tidy(&self) -> Result<(), StoreError> {
        let store = self.store;
        if !self.ask.tidies {
            return Ok(());
        }
        let Some(temporary) = store.profile.temporary(&self.names.name) else {
            return Ok(());
        };
        let Some(records) = store.records(false)? else {
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
}

/// The bytes of a new claim are taken.
struct ClaimBytes {
    /// The open file of its liveness lock, where that is not the one with the guard.
    apart: Option<Opened>,
}

/// Takes the bytes of a new claim, on the open file that becomes its own. `None` if another process has one of them.
fn take_bytes(guarded: &Guarded<'_>, made: &NewClaim) -> Result<Option<ClaimBytes>, StoreError> {
    let take = |opened: &Opened, byte| {
        let taken = bytes::try_lock(fd(opened), byte, Mode::Exclusive);
        taken.map_err(|errno| guarded.failed(TAKING, errno))
    };
    if made.turn && !take(guarded.opened, Byte::of_turn(made.ticket))? {
        return Ok(None);
    }
    let apart = if made.liveness && cfg!(windows) {
        Some(guarded.opened_again(TAKING)?)
    } else {
        None
    };
    let is_taken = !made.liveness
        || take(
            apart.as_ref().unwrap_or(guarded.opened),
            Byte::of_ticket(made.ticket),
        )?;
    Ok(is_taken.then_some(ClaimBytes { apart }))
}

const TAKING: &str = "taking the bytes of a new claim";

/// The error for a new claim whose bytes another process has and keeps.
fn in_use(guarded: &Guarded<'_>) -> StoreError {
    StoreError::Io {
        place: guarded.path().display().to_string(),
        doing: TAKING,
        source: std::io::ErrorKind::AddrInUse.into(),
    }
}

impl Guarded<'_> {
    fn path(&self) -> PathBuf {
        self.folder.path_of(&self.names.list)
    }

    fn failed(&self, doing: &'static str, errno: os::Errno) -> StoreError {
        fault(&self.path(), doing, errno)
    }

    /// Opens the same file once more.
    fn opened_again(&self, doing: &'static str) -> Result<Opened, StoreError> {
        let opened = self.folder.open_again(&self.names.list, self.opened)?;
        opened.ok_or_else(|| self.failed(doing, os::Errno::NOENT))
    }
}

/// Wakes the waiters that may be asked to stop, by touching the file; that changes nothing in it. A
/// waiter that sleeps for another reason is not woken. If the touch fails, those waiters learn of it at
/// their next look.
///
/// Called with the guard held and before the write: death between the two wakes a waiter for nothing,
/// instead of not waking it.
fn summon(opened: &Opened) {
    let _ = os::touch(fd(opened));
}

impl FileStore {
    /// Takes part in a hold that stands. A holder that asks ([`Handle::is_entered`]) does not give the
    /// hold back until the part is dropped and every process that inherited its descriptor has ended.
    /// `None` if no hold has this token any more.
    ///
    /// # Crash safety
    /// The bytes are taken under the guard, and a release looks for them under it. So either the release
    /// finds them, or this call finds the hold gone. The kernel releases them with the last process that
    /// has the descriptor, however it ends.
    pub(super) fn take_part(
        &self,
        name: &LockName,
        token: u64,
    ) -> Result<Option<HoldPart>, StoreError> {
        let names = self.names_of(name);
        let (now, began) = (self.now(), instant());
        loop {
            let mut opened = None;
            let guarded = self.guard_name(&names, Access::Write, GUARD_PATIENCE, &mut opened)?;
            let Some(guarded) = guarded else {
                return Ok(None);
            };
            let loaded = guarded.load(Want::All, &now);
            if Self::is_being_written(&loaded, &now, || began) {
                drop(guarded);
                self.settle()?;
                continue;
            }
            let loaded = loaded.map_err(|error| error.into_store(&guarded))?;
            let mut held = loaded.entry.granted();
            let Some(claim) = held.find(|claim| claim.token == Some(token) && claim.ticket > 0)
            else {
                return Ok(None);
            };
            let doing = "going on under a hold";
            let part = HoldPart {
                opened: guarded.opened_again(doing)?.moved_above(LIVENESS_FD_MIN),
                ticket: claim.ticket,
            };
            for byte in part.bytes() {
                let taken = bytes::try_lock(fd(&part.opened), byte, Mode::Shared);
                if !taken.map_err(|errno| guarded.failed(doing, errno))? {
                    return Err(in_use(&guarded));
                }
            }
            return Ok(Some(part));
        }
    }

    /// Removes the record of a hold whose coordination file was removed under it, so that the record
    /// excludes no caller after the work. Until then it stands, and excludes every other caller. `None` if
    /// it stands no longer.
    ///
    /// The file may have been made anew since, and other claims may wait in it. For them the record is
    /// another program's, and it is removed as such, under the guard of the new file. Only the record
    /// that was published for this hold is removed. A record that cannot be understood was written by
    /// another program. Death before the removal leaves a record that is judged by what it says; death
    /// after it, a list without a holder.
    pub(super) fn withdraw_record(
        &self,
        handle: &FileHandle,
        now: &Now,
    ) -> Result<Option<Left>, StoreError> {
        // A claim whose record stands holds, so removing the record is a release.
        let Some(PublishedClaim { claim: held, .. }) = handle.granted.get().map(AsRef::as_ref)
        else {
            return Ok(None);
        };
        if !self.record_stands(&handle.names)? {
            return Ok(None);
        }
        let mut is_removed = false;
        let is_ours = |claim: &Claim| claim.token.is_some() && is_of(claim, held);
        let ask = Ask::new(&handle.names.name, About::All, now);
        self.run_change(&ask, &mut |draft| {
            let claims = &mut draft.entry.claims;
            is_removed = draft.corrupt.is_none() && claims.iter().any(is_ours);
            claims.retain(|claim| !is_ours(claim));
            // The numbers of the new file go on above those of the removed one.
            draft.entry.raise(held.token.unwrap_or_default());
            Step::write_if(is_removed)
        })?;
        let has_lapsed = handle.lasts.load(Ordering::Relaxed) && self.is_elsewhere();
        let boot = held.boot();
        let held_ms = held.since.map_or(0, |since| since.age_ms(boot, now));
        Ok((is_removed && !has_lapsed).then_some(Left::Released { held_ms }))
    }

    /// How many tries a change has left after another program changed the record first.
    fn overtaken(&self, tries: usize, names: &Names) -> Result<usize, StoreError> {
        tries.checked_sub(1).ok_or_else(|| self.contended(names))
    }
}

/// The room for a list with this new claim. `last` is the last number that was drawn before.
fn room_for(made: Option<&NewClaim>, last: u64) -> Room {
    match made {
        Some(made) if made.kind == Kind::Detached && !made.liveness => Room::Keeping,
        Some(made) if made.ticket > last => Room::Joining,
        // A claimant that comes back to its reserved place adds no claim.
        _ => Room::All,
    }
}
