//! A store by somebody who has the contract, the codec of the list and the conformance suite: a folder of
//! files, with the locks of the standard library and nothing else.
//!
//! `FOLDER/guard` is locked during a change, of whichever lock. `NAME.list` has the claims. `NAME.TICKET.alive`
//! is a claim's liveness lock: its process keeps that file locked, and the kernel releases it when the
//! process ends. A waiter looks again every few milliseconds, which is all that the standard library offers.
//!
//! # Crash safety
//! A change locks the liveness file of the claim that it makes, then writes the list beside the old one, then
//! renames it. A process that dies before the rename has changed nothing: the liveness file that it leaves
//! belongs to no claim, and the next claim of that number locks it. One that dies after the rename leaves a
//! claim whose liveness lock is released, which the next caller sweeps. The guard is released in either case.

#![allow(
    clippy::disallowed_methods,
    reason = "it stands for code outside of this project"
)]

use std::fs::{self, File, TryLockError};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};
use tenure::model::{
    Claim, Death, Entry, Evidence, Holder, Host, Kind, Liveness, LivenessLock, LockName, Now,
    Policy, Predecessor, Process, Standing, judge,
};
use tenure::store::contract::{
    About, Ask, Committed, Depth, Draft, Location, Outcome, Rules, Step, Waiting, Which, Write,
};
use tenure::store::{Content, Handle, Reading, Store, StoreError, Wake, codec};

type Done<T> = Result<T, StoreError>;

/// Locks in a folder.
pub(crate) struct FolderStore {
    folder: PathBuf,
    host: Host,
    rules: Rules,
}

/// A claim: its liveness file, locked. Dropping it closes the file.
#[derive(Debug)]
struct Alive {
    name: LockName,
    ticket: u64,
    file: File,
}

impl Handle for Alive {
    fn name(&self) -> &LockName {
        &self.name
    }

    fn ticket(&self) -> u64 {
        self.ticket
    }

    fn let_go(&self) {
        // The call fails where nothing is locked any more.
        let _ = self.file.unlock();
    }
}

impl FolderStore {
    /// Locks in this folder, made if it is not there, for callers on this host.
    pub(crate) fn open(folder: &Path, host: Host) -> Done<Self> {
        let store = Self {
            folder: folder.to_owned(),
            host,
            rules: Rules::local(Policy::NATIVE),
        };
        fs::create_dir_all(folder).map_err(store.failed("making the folder"))?;
        Ok(store)
    }

    fn failed(&self, doing: &'static str) -> impl Fn(io::Error) -> StoreError {
        let place = self.folder.display().to_string();
        move |source| StoreError::Io {
            place: place.clone(),
            doing,
            source,
        }
    }

    fn list(&self, name: &LockName) -> PathBuf {
        self.folder.join(format!("{name}.list"))
    }

    fn alive(&self, name: &LockName, ticket: u64) -> PathBuf {
        self.folder.join(format!("{name}.{ticket}.alive"))
    }

    /// The list in a file; `None` if there is no such file.
    fn entry(&self, path: &Path) -> Done<Option<Entry>> {
        let bytes = match fs::read(path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            read => read.map_err(self.failed("reading"))?,
        };
        let read = codec::decode(&bytes).map_err(io::Error::other);
        read.map(Some).map_err(self.failed("reading"))
    }

    /// Puts a list where a reader finds the old one or the new one, and nothing between.
    fn replace(&self, path: &Path, entry: &Entry) -> Done<()> {
        let beside = self.folder.join("new");
        let bytes = codec::encode(entry).map_err(io::Error::other);
        let written = bytes.and_then(|bytes| fs::write(&beside, bytes));
        let renamed = written.and_then(|()| fs::rename(&beside, path));
        renamed.map_err(self.failed("writing"))
    }

    /// A list without claims that has the highest number of all locks that were removed.
    fn floor(&self) -> Done<Entry> {
        Ok(self.entry(&self.folder.join("floor"))?.unwrap_or_default())
    }

    /// Whether a process keeps a claim's liveness lock. A look takes the lock beside other looks for an
    /// instant; the claimant waits for that ([`File::lock`]). What cannot be looked at counts as held.
    fn is_held(&self, name: &LockName, ticket: u64) -> bool {
        match File::open(self.alive(name, ticket)) {
            Ok(file) => !matches!(file.try_lock_shared(), Ok(()) | Err(TryLockError::Error(_))),
            Err(error) => error.kind() != ErrorKind::NotFound,
        }
    }

    /// What `/proc` says of a recorded process of this boot. A number that the system gave to another
    /// process since then counts as the same one: that keeps a lock for too long, and gives it to no caller.
    fn process(&self, host: &Host, process: Option<&Process>) -> Liveness {
        let is_here = host.boot_id.is_some() && *host == self.host;
        match process.map(|process| {
            Path::new("/proc")
                .join(process.pid.to_string())
                .try_exists()
        }) {
            None => Liveness::NotRecorded,
            Some(Ok(true)) if is_here => Liveness::Alive,
            Some(Ok(false)) if is_here => Liveness::Dead(Death::Gone),
            Some(_) => Liveness::Unknown,
        }
    }

    fn evidence(&self, name: &LockName, claim: &Claim) -> Evidence {
        let has_lock = claim.kind == Kind::Kernel || claim.token.is_none();
        let liveness_lock = match has_lock.then(|| self.is_held(name, claim.ticket)) {
            None => LivenessLock::None,
            Some(true) => LivenessLock::Held,
            Some(false) => LivenessLock::Released,
        };
        let Holder {
            host,
            process,
            command,
            ..
        } = &claim.holder;
        Evidence {
            liveness_lock,
            process: self.process(host, process.as_ref()),
            command: self.process(host, command.as_ref()),
        }
    }

    /// Whether what a waiter stands behind stands as it was seen.
    fn stands(&self, entry: &Entry, name: &LockName, behind: &Predecessor, now: &Now) -> bool {
        let is_same = |claim: &Claim| {
            let standing = judge(&self.rules.policy, claim, &self.evidence(name, claim), now);
            entry.claim(claim.ticket) == Some(claim) && matches!(standing, Standing::Held(_))
        };
        match behind {
            Predecessor::LivenessLock { ticket } => self.is_held(name, *ticket),
            Predecessor::Turn { ticket } => {
                let waits = entry
                    .claim(*ticket)
                    .is_some_and(|claim| claim.token.is_none());
                waits && self.is_held(name, *ticket)
            }
            Predecessor::Record(claim) => is_same(claim),
            Predecessor::AnyOf(claims) => claims.iter().all(is_same),
            Predecessor::Still { behind, .. } => self.stands(entry, name, behind, now),
        }
    }

    /// Writes what a change made of a list, under the guard.
    fn commit(&self, name: &LockName, old: &Entry, write: Write, done: &mut Committed) -> Done<()> {
        if write.removes {
            let mut floor = self.floor()?;
            floor.raise(done.entry.last);
            self.replace(&self.folder.join("floor"), &floor)?;
            return fs::remove_file(self.list(name)).map_err(self.failed("removing the list"));
        }
        if let Some(made) = write.makes {
            let path = self.alive(name, made.ticket);
            let file = File::create(path).map_err(self.failed("making a liveness lock"))?;
            if made.liveness {
                file.lock().map_err(self.failed("taking a liveness lock"))?;
            }
            done.own = Some(made.ticket);
            done.handle = Some(Box::new(Alive {
                name: name.clone(),
                ticket: made.ticket,
                file,
            }));
        }
        self.replace(&self.list(name), &done.entry)?;
        let is_gone = |claim: &&Claim| done.entry.claim(claim.ticket).is_none();
        for gone in old.claims.iter().filter(is_gone) {
            // No caller asks for it any more. One that stays takes room and nothing else.
            let _ = fs::remove_file(self.alive(name, gone.ticket));
        }
        Ok(())
    }
}

impl Store for FolderStore {
    fn rules(&self) -> &Rules {
        &self.rules
    }

    fn location(&self, name: &LockName) -> Location {
        let file = self.list(name);
        Location {
            shown: file.display().to_string(),
            file: Some(file),
        }
    }

    fn read(&self, name: &LockName, _: Option<&dyn Handle>) -> Done<Reading> {
        let entry = self.entry(&self.list(name))?;
        let stored = entry.is_some();
        let entry = entry.unwrap_or_default();
        let evidence = entry
            .claims
            .iter()
            .map(|claim| self.evidence(name, claim))
            .collect();
        Ok(Reading {
            place: self.location(name).shown,
            content: Content::Whole { entry, evidence },
            stopped: Vec::new(),
            stored,
            record: Vec::new(),
        })
    }

    fn transact(
        &self,
        ask: &Ask<'_>,
        change: &mut dyn FnMut(&mut Draft<'_>) -> Step,
    ) -> Done<Outcome> {
        let guard =
            File::create(self.folder.join("guard")).map_err(self.failed("opening the guard"))?;
        guard.lock().map_err(self.failed("locking the guard"))?;
        let before = match (self.entry(&self.list(ask.name))?, ask.about) {
            (Some(entry), _) => entry,
            (None, About::NewClaim { .. }) => self.floor()?,
            (None, _) => return Ok(Outcome::Absent),
        };
        let evidence = |claim: &Claim, _: Depth| self.evidence(ask.name, claim);
        let mut draft = Draft::whole(before.clone(), &evidence);
        let step = change(&mut draft);
        let mut done = Committed::first(draft);
        if let Step::Write(write) = step {
            self.commit(ask.name, &before, write, &mut done)?;
        }
        Ok(Outcome::Done(done))
    }

    fn wait(&self, waiting: &Waiting<'_>, until: Option<Instant>) -> Done<Wake> {
        loop {
            let entry = self.entry(&self.list(waiting.name))?.unwrap_or_default();
            let is_asked = waiting.by.is_some_and(|by| entry.is_cancelled(by.ticket()));
            if is_asked || !self.stands(&entry, waiting.name, waiting.behind, waiting.now) {
                return Ok(Wake::Ready);
            }
            if until.is_some_and(|until| until <= Instant::now()) {
                return Ok(Wake::Expired);
            }
            sleep(Duration::from_millis(5));
            // Anything else ends by the caller's clock as well, so the caller looks at it again.
            if !matches!(
                waiting.behind,
                Predecessor::LivenessLock { .. } | Predecessor::Turn { .. }
            ) {
                return Ok(Wake::Ready);
            }
        }
    }

    fn names(&self, which: Which, each: &mut dyn FnMut(LockName)) -> Done<()> {
        let files = fs::read_dir(&self.folder).map_err(self.failed("listing"))?;
        for file in files.flatten().map(|file| file.file_name()) {
            let name = file.to_str().and_then(|file| file.strip_suffix(".list"));
            if let (Which::Locks, Some(Ok(name))) = (which, name.map(LockName::new)) {
                each(name);
            }
        }
        Ok(())
    }
}
