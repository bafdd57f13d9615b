//! The resume lock: only one process at a time resumes a given session or job.
//!
//! ```text
//! <storage_dir>/resume_locks/<id>.lock
//! ```
//!
//! These are thin names over the [`engine`] with the profile
//! [`Resume`], so a program that uses this module and
//! `tenure --profile resume` exclude each other, and both respect the records that the original
//! program of this format has written.
//!
//! # The guard
//! [`ResumeLockManager::acquire_lock`] gives a [`ResumeLock`]. While it lives the lock is held;
//! dropping it releases. The drop never panics, it happens on every way out (`return`, `?`, a
//! panic that unwinds, a dropped future), and it takes away nothing but the lock's own record: a
//! holder that was overridden meanwhile leaves its successor's lock alone. What goes wrong in it
//! is logged; [`ResumeLock::release`] tells it to the caller instead.
//!
//! A second acquire in the same process is refused at once with
//! [`ResumeLockError::HeldByThisProcess`]. A layer that is called under the lock is handed
//! [`ResumeLock::again`], which shares the hold.
//!
//! # How a dead holder is recognised
//! Nobody renews a resume lock: it holds for as long as its process runs. A record of a process
//! that is gone is removed by the next acquire, with a warning, in one step that exactly one of
//! all who try can make.
//!
//! | platform | a process is looked at by |
//! |---|---|
//! | Linux | signal 0 as a system call (it is never delivered): *no such process* is dead, *not permitted* is alive. `/proc` tells a zombie (dead), and the start time, which together with the boot id tells a number that was used again from its first owner |
//! | other Unix | signal 0 in the same way. A zombie counts as running there, and a number that was used again as the process that had it first |
//! | Windows | a process handle that may only look: *no such process* is dead, *not permitted* is alive. A handle whose process has ended tells it from one that runs, and the time of its creation a number that was used again from its first owner |
//! | where processes cannot be looked at | every process counts as running |
//!
//! 0 is no process anywhere, and on Unix neither are numbers above `i32::MAX`.
//!
//! # Limitations
//! - No drop runs with `panic = "abort"`, after [`std::process::exit`] or under SIGKILL. What is
//!   promised then is **recovery, not release**: the record stays, and the next acquire finds its
//!   process dead and succeeds at once.
//! - A number says nothing about a process of another machine or container. Such a lock is held
//!   until somebody overrides it, and the error names the host and the command that does
//!   ([`ResumeLockManager::judge_other_hosts`] is for programs that cannot do with that). A record with the host name `unknown` is such a one too, unless its boot id is ours.
//! - [`Override::Yes`] takes the lock from a process that may be at work, this one included: a guard of
//!   another task or of a layer above then holds nothing. Who had it is told when it asks
//!   ([`ResumeLock::verify`]), not before. Like every takeover, it leaves a line in
//!   the [`audit`](crate::audit), `<storage_dir>/audit/audit.jsonl`.
//! - A process that forks without starting another program hands no lock down: a guard releases
//!   only in the process that made it. While such a copy runs, its parent's lock counts as held.
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
//!     // From here to the end of `lock` nobody else resumes this id: load the checkpoint, work.
//!     assert_eq!(lock.data().process_id, std::process::id());
//!     lock.release()
//! }
//! # let scratch = tempfile::tempdir().expect("a folder");
//! # resume(scratch.path().into(), "session-42").expect("a free lock");
//! ```
//!
//! From async code, on any runtime. The work is done by a short-lived thread, so the executor is
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
//! Whether a lock may be had, and what is stale, is decided in the core; how a record looks, in
//! the profile.

mod data;
mod error;
mod instant;
mod lock;
mod report;

pub use data::ResumeLockData;
pub use error::ResumeLockError;
pub use instant::AcquiredAt;
pub use lock::ResumeLock;

use crate::clock::SystemClock;
use crate::engine::{self, AcquireError, Silent, Wait};
use crate::offload;
use crate::process::{self, Identity};
use crate::profile::{OneMachine, Profile, Resume, why};
use crate::store::file::{FileStore, ThreadSleeper};
use crate::store::{Store, StoreError};
use error::Refused;
use lock::Hold;
use std::borrow::Cow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tenure_core::{
    Force, Holder, Kind, Liveness, LockName, Patience, Policy, Process, Request, RequestId,
};

/// The name of the threads that do what async callers want.
const THREAD: &str = "tenure-resume";

/// Whether a process with this number runs, as far as this one can tell.
///
/// A process of another user runs; a zombie does not; 0, and on Unix numbers above `i32::MAX`, are no
/// processes. Where it cannot be found out the answer is yes. A number is reused sooner or later:
/// that the process is still the one that was meant, only its start time says, which a lock's
/// record keeps and an acquire compares.
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

/// What cannot be found out is taken to run.
fn may_run(seen: Liveness) -> bool {
    match seen {
        Liveness::Dead(_) => false,
        Liveness::Alive | Liveness::Unknown | Liveness::NotRecorded => true,
    }
}

/// Whether an acquire takes the lock from a holder that is alive.
///
/// # Examples
/// What is overridden may be a hold **of this very process**, of another task or thread, or of a layer above: it is
/// not asked, and learns it when it asks. So only the outermost layer passes a `--force` on, and hands
/// [`ResumeLock::again`] down.
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
    /// It is refused.
    #[default]
    No,
    /// It takes it: from a process that runs, be it another one or **this one**, from one that cannot be
    /// judged, and in place of a record that cannot be read. For a program's `--force`.
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

/// The folder, and who looks at it. A store is made for each call, as one thread's own.
#[derive(Debug)]
struct Place {
    storage: PathBuf,
    identity: Identity,
    others: OtherHosts,
}

/// What is made of a record that names another host and shows no more of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OtherHosts {
    /// Nobody here can tell whether its process lives.
    Unknown,
    /// It is this machine by another name.
    Here,
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
            make(&Resume.folder(&storage))?;
            Ok(storage)
        });
        match made {
            Ok(storage) => Ok(Self {
                place: Arc::new(Place {
                    storage,
                    identity: Identity::current(),
                    others: OtherHosts::Unknown,
                }),
            }),
            Err(source) => Err(ResumeLockError::CreateFolder {
                path: Resume.folder(&storage_dir),
                source,
            }),
        }
    }

    /// Judges a record of the original program by its process number alone, whatever host it names, as that
    /// program does: if no process has this number **here**, its lock is removed. Not the default. For a program,
    /// and its tests, that were written against the original and have to go on as they are.
    ///
    /// # Danger
    /// A number says nothing about a process of another machine or container. Where the storage folder is used from
    /// there as well, a resume that is **at work** there is taken for dead as soon as no process here has its
    /// number, and the job is resumed a second time beside it. The other way round, a process here that happens to
    /// have the number keeps the lock of a dead one. So this is only for a folder that nobody but the processes of
    /// this machine, in one container or none, ever uses.
    ///
    /// It makes no difference to a record that says more of its process than the original's do, as ours do: a boot
    /// and a PID namespace that are not those here are believed.
    ///
    /// # Examples
    /// ```
    /// use tenure::resume::ResumeLockManager;
    /// # let scratch = tempfile::tempdir().expect("a folder");
    /// # let storage = scratch.path();
    /// let locks = ResumeLockManager::new(storage.into())?;
    /// // A process that is gone, of a machine that was called otherwise then.
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
    /// As every takeover of a stale lock: exactly one of all who try gets it.
    #[must_use = "it is the manager that is returned which judges them"]
    pub fn judge_other_hosts(self) -> Self {
        Self {
            place: Arc::new(Place {
                storage: self.place.storage.clone(),
                identity: self.place.identity.clone(),
                others: OtherHosts::Here,
            }),
        }
    }

    /// Takes the lock of a session or a job, or says at once who has it.
    ///
    /// Nothing happens before the future is polled, and its result is ready some 100 µs later; it
    /// takes up to two seconds where a record stands that somebody may still be writing. Runs on
    /// any executor. If the future is dropped before it is ready, whatever it would have acquired
    /// is released.
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

    /// The same, with a say about a holder that is alive.
    ///
    /// # Errors
    /// - As [`ResumeLockManager::acquire_lock`]. With [`Override::Yes`] the lock is still refused
    ///   while somebody waits for it in a queue (`tenure --profile resume run --wait`).
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

    /// The same, with a say about a holder that is alive.
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
        let store = place.store();
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
        let acquired = engine::acquire(&store, &clock, &name, &request, Wait::No, &mut Silent)
            .map_err(|error| refusal(&place, &store, &name, error))?;
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
    /// This place as the calling process has to see it: a copy that was made by a fork is another
    /// process than the one that made the manager.
    fn of_this_process(self: &Arc<Self>) -> Cow<'_, Arc<Self>> {
        if self.identity.process.pid == std::process::id() {
            return Cow::Borrowed(self);
        }
        Cow::Owned(Arc::new(Self {
            storage: self.storage.clone(),
            identity: Identity::current(),
            others: self.others,
        }))
    }

    fn store(&self) -> FileStore {
        let here = self.identity.host.clone();
        let profile: Box<dyn Profile> = match self.others {
            OtherHosts::Unknown => Box::new(Resume),
            OtherHosts::Here => Box::new(OneMachine),
        };
        FileStore::with_profile(profile, &self.storage, here, Box::new(ThreadSleeper))
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
            host: self.identity.host.clone(),
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

/// Makes the folder of the locks and its parents, for this user alone.
fn make(folder: &Path) -> std::io::Result<()> {
    let mut builder = std::fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(folder)
}

/// Why a lock was not acquired, in this system's words.
fn refusal(
    place: &Place,
    store: &FileStore,
    name: &LockName,
    error: AcquireError,
) -> ResumeLockError {
    let job_id = name.as_str().to_owned();
    match error {
        AcquireError::Store(source) => ResumeLockError::from_store(name, source),
        AcquireError::Refused { refusal, .. } => match refusal.blocker {
            Some(blocker) => Refused {
                name,
                blocker: &blocker,
                here: &place.identity,
                storage: &place.storage,
            }
            .into_error(),
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
            place: Arc::new(Place {
                storage: scratch.path().into(),
                identity: parent,
                others: OtherHosts::Unknown,
            }),
        };
        let lock = locks.acquire_lock_blocking("a").expect("a free lock");
        assert_eq!(lock.data().process_id, std::process::id());
    }
}
