//! The resume lock: only one process at a time resumes a given session or job.
//!
//! ```text
//! <storage_dir>/resume_locks/<id>.lock
//! ```
//!
//! Thin names over the [`engine`] with the profile [`Resume`]. A program that uses this module and
//! `tenure --profile resume` exclude each other. Both respect the records that the original program of
//! this format has written.
//!
//! # The guard
//! [`ResumeLockManager::acquire_lock`] gives a [`ResumeLock`]. While it lives the lock is held;
//! dropping it releases the lock. The drop never panics, and it happens on every way out (`return`, `?`,
//! a panic that unwinds, a dropped future). It removes only the lock's own record: a holder that was
//! overridden meanwhile leaves its successor's lock alone. The drop logs its errors;
//! [`ResumeLock::release`] returns them to the caller.
//!
//! A second acquire in the same process is refused at once with
//! [`ResumeLockError::HeldByThisProcess`]. A layer that is called under the lock is handed
//! [`ResumeLock::again`], which shares the hold.
//!
//! # How a dead holder is recognised
//! A resume lock is never renewed: it holds for as long as its process runs. The next acquire removes
//! the record of a process that is gone, and logs a warning. The removal is one step, and exactly one
//! of all callers that try it succeeds.
//!
//! | platform | a process is looked at by |
//! |---|---|
//! | Linux | signal 0 as a system call (it is never delivered): *no such process* is dead, *not permitted* is alive. `/proc` shows a zombie (dead). The start time and the boot id show whether the number was used again |
//! | other Unix | signal 0 in the same way. A zombie counts as running there, and a number that was used again counts as its first owner |
//! | Windows | a process handle that may only look: *no such process* is dead, *not permitted* is alive. The handle shows whether its process has ended, and the time of its creation whether the number was used again |
//! | where processes cannot be looked at | every process counts as running |
//!
//! 0 is no process anywhere, and on Unix neither are numbers above `i32::MAX`.
//!
//! # Limitations
//! - No drop runs with `panic = "abort"`, after [`std::process::exit`] or under SIGKILL. What is
//!   promised then is **recovery, not release**: the record stays, and the next acquire finds its
//!   process dead and succeeds at once.
//! - A number says nothing about a process of another machine or container. Such a lock is held
//!   until a caller overrides it; the error names the host and the command that does. For programs that
//!   cannot accept this there is [`ResumeLockManager::judge_other_hosts`]. A record with the host name
//!   `unknown` is such a one too, unless its boot id is ours.
//! - [`Override::Yes`] takes the lock from a process that may be at work, this one included: a guard of
//!   another task or of a layer above then holds nothing. Such a guard learns it when it asks
//!   ([`ResumeLock::verify`]), not before. Like every takeover, an override writes a line to
//!   the audit, `<storage_dir>/audit/audit.jsonl`.
//! - A process that forks without starting another program hands no lock down: a guard releases
//!   only in the process that made it. While such a copy runs, its parent's lock counts as held.
//! - A program that replaces itself (exec) hands no lock on. It gets the locks that it had at once when it asks again, and so
//!   does nobody else as long as its process lives.
//! - In another root (`chroot`, a mount namespace) a manager goes on in the folder that it has opened, and opens none by
//!   its path. After a `setuid` a lock can only be released with the right to write in the folder.
//! - Locks exclude the processes of one machine. Folders on network file systems are refused.
//! - Unix and Windows are supported; `docs/windows.md` says what differs there.
//!
//! # Examples
//! ```
//! use tenure::resume::{ResumeLockError, ResumeLockManager};
//!
//! fn resume(storage: std::path::PathBuf, id: &str) -> Result<(), ResumeLockError> {
//!     let locks = ResumeLockManager::new(storage)?;
//!     let lock = locks.acquire_lock_blocking(id)?;
//!     // From here to the end of `lock` no other process resumes this id: load the checkpoint, work.
//!     assert_eq!(lock.data().process_id, std::process::id());
//!     lock.release()
//! }
//! # let scratch = tempfile::tempdir().expect("a folder");
//! # resume(scratch.path().into(), "session-42").expect("a free lock");
//! ```
//!
//! From async code, on any runtime. A short-lived thread does the work, so the executor is
//! never blocked; a future that is dropped early leaves no lock behind.
//!
//! ```
//! use tenure::resume::{ResumeLock, ResumeLockError, ResumeLockManager};
//!
//! async fn session(locks: &ResumeLockManager, id: &str) -> Result<(), ResumeLockError> {
//!     let lock = locks.acquire_lock(id).await?;
//!     job(lock.again()).await // the same hold in the layer below
//! }
//!
//! async fn job(lock: ResumeLock) -> Result<(), ResumeLockError> {
//!     println!("at work on {}", lock.id());
//!     lock.verify() // before a step that must not be done twice
//! }
//! # let scratch = tempfile::tempdir().expect("a folder");
//! # let locks = ResumeLockManager::new(scratch.path().into()).expect("a folder for locks");
//! # let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
//! # runtime.block_on(session(&locks, "session-42")).expect("a free lock");
//! ```
//!
//! The core decides whether a caller gets a lock, and what is stale; the profile decides how a record
//! looks.

mod data;
mod error;
mod instant;
mod lock;
mod report;

pub use data::ResumeLockData;
pub use error::ResumeLockError;
pub use instant::AcquiredAt;
pub use lock::ResumeLock;

use crate::clock::{Clock, SystemClock};
use crate::engine::{self, AcquireError, Silent, Wait};
use crate::formats::{OneMachine, Resume};
use crate::offload;
use crate::process::{self, Identity};
use crate::profile::{Profile, why};
use crate::store::file::{FileStore, ThreadSleeper};
use crate::store::{Reading, Store, StoreError, Verbs};
use error::ResumeRefusal;
use lock::Hold;
use std::borrow::Cow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tenure_core::{
    Claim, Entry, Force, Holder, Kind, Liveness, LivenessLock, LockName, Ownership, Patience,
    Policy, Process, Released, Request, RequestId,
};

/// The name of the threads that work for async callers.
const THREAD: &str = "tenure-resume";

/// Whether a process with this number runs, as far as this one can tell.
///
/// A process of another user runs; a zombie does not; 0, and on Unix numbers above `i32::MAX`, are no
/// processes. Where the system cannot tell, the answer is yes. Systems reuse numbers: only the start
/// time shows that a process is still the one that was meant. A lock's record keeps that time, and an
/// acquire compares it.
///
/// # Examples
/// ```
/// use tenure::resume::is_process_running;
/// assert!(is_process_running(std::process::id()));
/// assert!(!is_process_running(0));
/// assert!(!is_process_running(u32::MAX));
/// ```
pub fn is_process_running(pid: u32) -> bool {
    may_run(process::probe(&Process { pid, started: None }))
}

/// A process that cannot be looked at counts as running.
fn may_run(seen: Liveness) -> bool {
    match seen {
        Liveness::Dead(_) => false,
        Liveness::Alive | Liveness::Unknown | Liveness::NotRecorded => true,
    }
}

/// Whether an acquire takes the lock from a holder that is alive.
///
/// # Examples
/// An override may take a hold **of this very process**: of another task or thread, or of a layer above. That
/// holder is not asked, and learns it at its next [`ResumeLock::verify`]. So only the outermost layer passes a
/// `--force` on, and hands [`ResumeLock::again`] down.
/// ```
/// use tenure::resume::{Override, ResumeLockManager};
/// # let scratch = tempfile::tempdir().expect("a folder");
/// # let locks = ResumeLockManager::new(scratch.path().into())?;
/// let session = locks.acquire_lock_blocking("job-7")?;
/// let job = locks.acquire_lock_blocking_with("job-7", Override::Yes)?;
/// assert!(job.is_held());
/// assert!(!session.is_held(), "both are at work, and only one may be");
/// # Ok::<(), tenure::resume::ResumeLockError>(())
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Override {
    /// The acquire is refused.
    #[default]
    No,
    /// The acquire takes the lock from a process that runs, be it another one or **this one**, and from a
    /// process that cannot be judged. It also replaces a record that cannot be read. For a program's `--force`.
    Yes,
}

impl Override {
    fn force(self) -> Force {
        match self {
            Self::No => Force::No,
            Self::Yes => Force::Asked,
        }
    }
}

/// Where the locks of one storage folder are taken. Cheap to clone, and to be shared by threads;
/// a lock does not end with the manager that it came from.
#[derive(Debug, Clone)]
pub struct ResumeLockManager {
    place: Arc<Place>,
}

/// The folder, and the process that takes locks there.
struct Place {
    storage: PathBuf,
    identity: Identity,
    others: OtherHosts,
    /// The store of all calls: this process may get another root (`chroot`), and goes on in the folder that is open.
    store: FileStore,
}

impl std::fmt::Debug for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Place")
            .field("storage", &self.storage)
            .field("others", &self.others)
            .finish_non_exhaustive()
    }
}

/// How to judge a record that names another host, and says nothing more about that host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OtherHosts {
    /// The machine cannot tell whether the record's process lives.
    Unknown,
    /// The host is this machine by another name.
    Here,
}

impl OtherHosts {
    fn store(self, storage: &Path, identity: &Identity) -> FileStore {
        let profile: Box<dyn Profile> = match self {
            Self::Unknown => Box::new(Resume),
            Self::Here => Box::new(OneMachine),
        };
        let here = identity.host.clone();
        FileStore::with_profile(profile, storage, here, Box::new(ThreadSleeper))
            .asking(crate::config::is_machines_folder)
    }
}

impl ResumeLockManager {
    /// Makes `<storage_dir>/resume_locks` unless it is there. Later changes of the working
    /// directory make no difference.
    ///
    /// # Errors
    /// - [`ResumeLockError::CreateFolder`] if the folder cannot be made.
    #[allow(
        clippy::needless_pass_by_value,
        reason = "the signature that users of resume locks know"
    )]
    pub fn new(storage_dir: PathBuf) -> Result<Self, ResumeLockError> {
        let made = std::path::absolute(&storage_dir).and_then(|storage| {
            tenure_store::file::make_folder(&Resume.folder(&storage))?;
            Ok(storage)
        });
        match made {
            Ok(storage) => Ok(Self {
                place: Arc::new(Place::new(
                    storage,
                    Identity::current(),
                    OtherHosts::Unknown,
                )),
            }),
            Err(source) => Err(ResumeLockError::CreateFolder {
                path: Resume.folder(&storage_dir),
                source,
            }),
        }
    }

    /// Judges a record of the original program by its process number alone, whatever host it names, as that
    /// program does. If no process has this number **here**, its lock is removed. Not the default. For
    /// programs, and their tests, that were written against the original and have to go on as they are.
    ///
    /// # Danger
    /// A number says nothing about a process of another machine or container. Where these use the storage
    /// folder as well, a resume **at work** there counts as dead as soon as no process here has its number.
    /// The job is then resumed a second time beside it. The other way round, a process here that happens to
    /// have the number keeps the lock of a dead one. So use this only for a folder that only processes of
    /// this machine use, in one container or none.
    ///
    /// A record that says more of its process than the original's do, as ours do, is judged as before. A
    /// boot and a PID namespace other than those here are believed.
    ///
    /// # Examples
    /// ```
    /// use tenure::resume::ResumeLockManager;
    /// # let scratch = tempfile::tempdir().expect("a folder");
    /// # let storage = scratch.path();
    /// let locks = ResumeLockManager::new(storage.into())?;
    /// // A process that is gone, of this machine when it had another name.
    /// std::fs::write(
    ///     storage.join("resume_locks/job-7.lock"),
    ///     r#"{ "job_id": "job-7", "process_id": 4294967295, "hostname": "before-the-move",
    ///          "acquired_at": "2026-02-07T10:00:00Z" }"#,
    /// )
    /// .expect("a record");
    /// assert!(locks.acquire_lock_blocking("job-7").is_err(), "it may run there");
    /// let lock = locks.judge_other_hosts().acquire_lock_blocking("job-7")?;
    /// # lock.release()?;
    /// # Ok::<(), tenure::resume::ResumeLockError>(())
    /// ```
    ///
    /// # Crash safety
    /// As every takeover of a stale lock: exactly one of all callers that try gets it.
    #[must_use = "it is the manager that is returned which judges them"]
    pub fn judge_other_hosts(self) -> Self {
        let identity = self.place.identity.clone();
        Self {
            place: Arc::new(self.place.again(identity, OtherHosts::Here)),
        }
    }

    /// Takes the lock of a session or a job, or says at once who has it.
    ///
    /// Nothing happens before the future is polled, and its result is ready some 100 µs later. It takes
    /// up to two seconds if another process may still be writing the record there. Runs on
    /// any executor. A future that is dropped before it is ready releases what it would have acquired.
    ///
    /// # Errors
    /// - [`ResumeLockError::InProgress`] if another process holds it.
    /// - [`ResumeLockError::HeldByThisProcess`] if this one does.
    /// - [`ResumeLockError::Unreadable`] if a record stands there that cannot be understood.
    /// - [`ResumeLockError::BadId`] if the id cannot be the name of a lock.
    /// - [`ResumeLockError::Store`] if the store failed.
    /// - [`ResumeLockError::Thread`] if the system gives no thread.
    pub async fn acquire_lock(&self, id: &str) -> Result<ResumeLock, ResumeLockError> {
        self.acquire_lock_with(id, Override::No).await
    }

    /// Takes the lock of a session or a job; `overriding` says what happens to a holder that is alive.
    ///
    /// # Errors
    /// - As [`ResumeLockManager::acquire_lock`]. [`Override::Yes`] takes a lock that is held past the waiters in its
    ///   queue (`tenure --profile resume run --wait`), which keep their places. A lock that nobody holds, because the next
    ///   waiter is about to take it, is refused.
    pub async fn acquire_lock_with(
        &self,
        id: &str,
        overriding: Override,
    ) -> Result<ResumeLock, ResumeLockError> {
        let (manager, job) = (self.clone(), id.to_owned());
        offload::on_thread(THREAD, move || {
            manager.acquire_lock_blocking_with(&job, overriding)
        })
        .await
        .unwrap_or_else(|source| {
            Err(ResumeLockError::Thread {
                job_id: id.to_owned(),
                source,
            })
        })
    }

    /// [`ResumeLockManager::acquire_lock`] for code that is not async.
    ///
    /// # Errors
    /// - As [`ResumeLockManager::acquire_lock`], without [`ResumeLockError::Thread`].
    pub fn acquire_lock_blocking(&self, id: &str) -> Result<ResumeLock, ResumeLockError> {
        self.acquire_lock_blocking_with(id, Override::No)
    }

    /// [`ResumeLockManager::acquire_lock_with`] for code that is not async; `overriding` says what
    /// happens to a holder that is alive.
    ///
    /// # Errors
    /// - As [`ResumeLockManager::acquire_lock_with`], without [`ResumeLockError::Thread`].
    ///
    /// # Crash safety
    /// The record gets its name only once it is whole. Death before that leaves nothing that
    /// counts; death after it leaves a record of a dead process, which the next acquire removes.
    pub fn acquire_lock_blocking_with(
        &self,
        id: &str,
        overriding: Override,
    ) -> Result<ResumeLock, ResumeLockError> {
        let name = LockName::new(id).map_err(|source| ResumeLockError::BadId {
            job_id: id.to_owned(),
            source,
        })?;
        let place = self.place.of_this_process();
        let store = &place.store;
        let request_id = place.new_request_id(&name)?;
        let request = Request {
            holder: place.holder(request_id.clone()),
            kind: Kind::Kernel,
            ttl_ms: Policy::RESUME.supervised_ttl_ms,
            force: overriding.force(),
            patience: Patience::AtOnce,
            terms: tenure_core::Terms::default(),
        };
        let clock = place.clock();
        let acquire = || {
            let request = request.clone();
            engine::acquire(store, &clock, &name, request, Wait::No, &mut Silent)
        };
        let acquired = match acquire() {
            Err(error) if place.ends_earlier(&name, &error) => acquire(),
            acquired => acquired,
        };
        let acquired = acquired.map_err(|error| refusal(&place, &name, error))?;
        report::acquired(&place, &name, &acquired, overriding);
        // A handle comes with every grant that is not an earlier hold of the same request id, and
        // this one is new.
        let handle = acquired.handle.ok_or_else(|| ResumeLockError::Lost {
            job_id: id.to_owned(),
            why: "another process took it over as it was granted",
        })?;
        Ok(ResumeLock::new(Hold::new(
            place.into_owned(),
            name,
            handle,
            &acquired.claim,
            request_id,
        )))
    }
}

impl Place {
    /// The place for the calling process. A copy that was made by a fork is another process than the
    /// maker of the manager.
    fn of_this_process(self: &Arc<Self>) -> Cow<'_, Arc<Self>> {
        if self.identity.process.pid == std::process::id() {
            return Cow::Borrowed(self);
        }
        Cow::Owned(Arc::new(self.again(Identity::current(), self.others)))
    }

    fn new(storage: PathBuf, identity: Identity, others: OtherHosts) -> Self {
        let store = others.store(&storage, &identity).rooted();
        Self {
            storage,
            identity,
            others,
            store,
        }
    }

    /// A place of the same folder, whatever root this process has by now. Nothing of the other store is used that a
    /// thread may have been in the middle of at a fork.
    fn again(&self, identity: Identity, others: OtherHosts) -> Self {
        let store = others.store(&self.storage, &identity);
        Self {
            storage: self.storage.clone(),
            identity,
            others,
            store: store.rooted_as(&self.store),
        }
    }

    /// Whether a claim names this very process.
    ///
    /// A number alone is no proof. A record that keeps no start time may be of a process that had our
    /// number before us, as the first process of a container always has.
    fn is_named(&self, claim: &Claim) -> bool {
        let own = &self.identity;
        process::names(&claim.holder, own.process, &own.host)
    }

    /// Ends the hold that stands in the way, if this process has it from before it replaced its program (exec). Its process
    /// lives, so nobody else would. A hold of this program, or of another copy of this library in it, keeps its byte locked.
    ///
    /// # Crash safety
    /// A byte that was let go is never locked again for the same request id, so what is ended is what was seen. Death after
    /// that leaves a free lock.
    fn ends_earlier(&self, name: &LockName, error: &AcquireError) -> bool {
        let AcquireError::Refused { refusal, .. } = error else {
            return false;
        };
        let blocker = refusal.blocker.as_deref();
        let Some(earlier) = blocker.filter(|claim| self.is_named(claim)) else {
            return false;
        };
        let is_it = |claim: &Claim| claim.holder.request_id == earlier.holder.request_id;
        let is_let_go = self.store.read(name, None).is_ok_and(|reading| {
            let mut held = reading.entry().into_iter().flat_map(Entry::granted);
            let seen = held.find(|claim| is_it(claim));
            let seen = seen.and_then(|claim| reading.evidence_of(claim));
            seen.is_some_and(|seen| seen.liveness_lock == LivenessLock::Released)
        });
        let owns = |claim: &Claim| {
            if is_it(claim) {
                Ownership::Shown
            } else {
                Ownership::Missing
            }
        };
        let ended = || self.store.release_owned(name, &owns, &self.clock().now());
        let has_ended = is_let_go && matches!(ended(), Ok(Released::Done { .. }));
        if has_ended {
            tracing::warn!(
                "Removed the resume lock for {name} that this process had before it restarted"
            );
        }
        has_ended
    }

    fn clock(&self) -> SystemClock {
        SystemClock::new(self.identity.host.boot_id.as_deref())
    }

    fn holder(&self, request_id: RequestId) -> Holder {
        let program = std::env::args_os().next();
        let program = program.as_deref().map(Path::new).and_then(Path::file_name);
        Holder {
            request_id,
            actor: self.identity.actor.clone(),
            process: Some(self.identity.process),
            command: None,
            host: self.identity.host.clone().into(),
            why: program.map_or_else(String::new, |name| why(&name.to_string_lossy())),
            facts: Vec::new(),
        }
    }

    fn new_request_id(&self, name: &LockName) -> Result<RequestId, ResumeLockError> {
        process::new_request_id().map_err(|source| ResumeLockError::Store {
            job_id: name.as_str().to_owned(),
            source: StoreError::Io {
                place: self.storage.display().to_string(),
                doing: "drawing random bytes for a request id",
                source,
            },
        })
    }
}

/// Why a lock was not acquired, in the words of resume locks.
fn refusal(place: &Place, name: &LockName, error: AcquireError) -> ResumeLockError {
    let store = &place.store;
    let job_id = name.as_str().to_owned();
    match error {
        AcquireError::Store(source) => ResumeLockError::from_store(name, source),
        AcquireError::Refused { refusal, .. } => match refusal.blocker {
            Some(blocker) => {
                let reading = store.read(name, None).ok();
                let is_so = |it: fn(&Reading, &Claim) -> bool| {
                    reading
                        .as_ref()
                        .is_some_and(|reading| it(reading, &blocker))
                };
                ResumeRefusal {
                    name,
                    blocker: &blocker,
                    is_alive: is_so(Reading::is_seen_alive),
                    orphan: blocker.holder.command.filter(|_| is_so(Reading::is_orphan)),
                    is_ours: place.is_named(&blocker),
                    here: &place.identity,
                    storage: &place.storage,
                }
                .into_error()
            }
            None => ResumeLockError::Unreadable {
                job_id,
                place: store.location(name).shown,
                why: "who holds it could not be found out".to_owned(),
            },
        },
        AcquireError::Interrupted
        | AcquireError::Superseded { .. }
        | AcquireError::NotKept
        | AcquireError::Deadlock => ResumeLockError::Lost {
            job_id,
            why: "another process took it over as it was granted",
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_no_process_can_be_looked_at_every_one_is_assumed_to_run() {
        let nobody = 999_999_999;
        assert!(
            !is_process_running(nobody),
            "this system sees that it is none"
        );
        // The engine's test says that this is what another system answers.
        assert!(may_run(Liveness::Unknown), "another system does not");
    }

    #[test]
    fn a_manager_is_clone_send_and_sync_and_so_are_its_locks_and_errors() {
        fn everywhere<T: Send + Sync + 'static>() {}
        fn cloned<T: Clone>() {}
        fn sent<T: Send>(_: &T) {}
        everywhere::<ResumeLockManager>();
        cloned::<ResumeLockManager>();
        everywhere::<ResumeLock>();
        everywhere::<ResumeLockError>();
        let scratch = tempfile::tempdir().expect("a folder");
        let locks = ResumeLockManager::new(scratch.path().into()).expect("a folder for locks");
        sent(&locks.acquire_lock("a"));
    }

    #[test]
    fn a_manager_in_a_forked_copy_takes_locks_in_the_name_of_the_copy() {
        let scratch = tempfile::tempdir().expect("a folder");
        let mut parent = Identity::current();
        parent.process.pid += 1;
        let locks = ResumeLockManager {
            place: Arc::new(Place::new(
                scratch.path().into(),
                parent,
                OtherHosts::Unknown,
            )),
        };
        let lock = locks.acquire_lock_blocking("a").expect("a free lock");
        assert_eq!(lock.data().process_id, std::process::id());
    }
}
