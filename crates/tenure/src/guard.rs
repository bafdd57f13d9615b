//! A lock as a guard, for any Rust program.
//!
//! ```
//! use tenure::guard::LockManager;
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let scratch = tempfile::tempdir()?;
//! # let folder = scratch.path();
//! let locks = LockManager::new(folder)?; // `LockManager::open()` for where `tenure run` has them
//! let guard = locks.acquire("deploy-prod")?;
//! println!("token {}", guard.token()); // for the resource: refuse smaller ones
//! guard.release()?; // or let it drop
//! # Ok(())
//! # }
//! ```
//!
//! # The model
//! A lock is an ordered list of claims. An acquire adds a claim, and sleeps in the kernel until its
//! turn comes. The guard holds the claim's *liveness lock*, a kernel lock. By it other processes see
//! that the guard's process lives, and the kernel wakes them when it ends, however it ends. Programs
//! that use this module and the command `tenure run` take turns with each other, in one queue.
//!
//! Async code has the same on any executor: [`LockManager::acquire_async`], [`Guard::lost`],
//! [`Guard::release_async`].
//!
//! # Many callers of one process
//! The callers of one manager (and of its clones) that take turns for one lock ([`Again::Wait`]) stand in a line
//! of their own, threads and tasks in the order in which they asked. Only the caller at its head stands in the
//! queue of the lock.
//! So `tenure check` shows one waiter for all of them, and the process takes its turn among the processes once
//! per hold.
//!
//! - A task in the line has no thread and no open file, and takes less than a KiB. A thread brings its own.
//! - A caller that gives up leaves the line at once. If it was the head, its claim leaves the queue, or what it
//!   was granted is given back, and the next caller enters the queue at its end.
//! - The wait counts from the call, the place in the line included.
//! - Any other caller, and a try ([`Wait::No`]), asks the queue itself, on a thread of its own.
//! - Several managers for one folder have a line each, as several processes have. Share one.
//!
//! # What a guard notices
//! One thread of the manager looks after all its guards. It renews each lease three times within
//! its ttl, and learns from the kernel when a lock's file is touched, so [`Guard::state`] shows
//! within milliseconds
//! - that another caller asked the holder to stop: `tenure cancel`, `tenure acquire --force`. No caller
//!   takes the lock from under a guard; the work has to check and end;
//! - that the lock is lost: its file was removed or replaced by hand.
//!
//! The thread does not look at a hold in its first 20 ms. Where the system has no more watches
//! (inotify), a change shows within a second, or later with thousands of guards. [`Guard::verify`] asks
//! at once.
//!
//! # Limitations
//! - It excludes processes on **one machine** that see the same folder, as every file store.
//! - **The same process is answered at once** ([`AcquireError::HeldByThisProcess`]) when it asks for a
//!   lock that it holds, in whatever thread or async task. A wait under the lock could never end.
//!   [`Again`] has the other answers: threads and tasks that take turns, and layers that share a hold.
//! - **A fork without an exec hands no lock down.** The copy's guards are of no use to it: they show
//!   [`GuardState::Lost`], and their drop leaves the parent's lock alone. The copy does inherit the
//!   open file that carries the liveness lock, until it becomes another program. If the parent is
//!   killed while such a copy runs, the lock counts as held until the copy ends or execs. A release by
//!   the parent is not delayed. A copy that wants locks makes a [`LockManager`] of its own, before the
//!   parent had threads or after an exec.
//! - **No drop runs** with `panic = "abort"`, after [`std::process::exit`], under SIGKILL. The kernel
//!   then frees the lock as the process ends. The next waiter wakes at once, sweeps the dead claim, and
//!   logs that. On servers the lock is free when its lease has run out: call [`LockManager::release_all`] first.
//! - **On servers a thread of the manager gives locks back**, and tries again what fails. A drop in async code waits for
//!   nothing; a drop in a thread, a release and the end of the last manager wait for at most a second in all while no
//!   server answers.
//! - A child process that the work has started and left behind does not keep the lock (the liveness lock is
//!   not inherited over an exec). `tenure run` is for that.
//! - Guards leave no lines in the [`audit`](crate::audit); `tracing` has the same facts.
//! - Each guard keeps a file open (two on Windows).
//!
//! # What is logged
//! `tracing` events under the target `tenure`, all with the field `lock`. The message says what happened and what follows.
//! Names stay: `tenure.lock.acquired` and `.released` (debug), `.taken_over` (info after a death, else warn),
//! `.stop_requested` (info), `.lost`, `.renew_failed` and `.release_failed` (warn). Nothing is printed, no signal handler is
//! installed, and nothing is global but the threads that sleep for callers.
//!
//! The manager's thread changes the state of a guard first. **Two threads of their own** then call the
//! wakers and write to the log. A subscriber or a waker that blocks delays the later ones, and never a
//! heartbeat. A log that blocks for long loses `.renew_failed` events. A thread of the application logs
//! its own acts itself (acquire, verify, release).
//!
//! The core decides who gets the lock; the store decides where it is kept.

mod error;
mod failure;
mod hold;
mod line;
mod log;
mod pending;
mod releases;
mod renewer;
mod term;
mod turns;
mod watching;
mod worker;

pub use error::{AcquireError, OpenError, Refused, ReleaseError, VerifyError};
pub use hold::{Guard, Guards};
pub use tenure_core::{Holder, LockName, NameError};
/// # Examples
/// ```
/// use tenure::guard::{AcquireError, Cancel, Options};
/// # let locks = tenure::testing::locks();
/// let held = locks.acquire("deploy")?;
/// let cancel = Cancel::new();
/// let waiter = std::thread::spawn({
///     let (locks, cancel) = (locks.clone(), cancel.clone());
///     let options = Options::new().again(tenure::guard::Again::Wait).cancel(&cancel);
///     move || locks.acquire_with("deploy", &options)
/// });
/// cancel.cancel();
/// let answer = waiter.join().expect("the waiter");
/// assert!(matches!(answer, Err(AcquireError::Cancelled { .. })));
/// held.release()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub use tenure_engine::cancel::Cancel;
pub use tenure_engine::config::ConfigError;
pub use tenure_engine::engine::{Wait, Waiting};
pub use term::GuardState;

use crate::cancel;
use crate::clock::{Clock, SystemClock, instant, since};
use crate::config::{self, Config};
use crate::engine::{self, Observer};
use crate::herald::Herald;
use crate::inherited::{self, Saw};
use crate::offload;
use crate::os::Ringer;
use crate::place::{self, At};
use crate::process::{self, Identity, RequestIds};
use crate::profile::why;
use crate::store::file::{FileStore, ThreadSleeper};
use crate::store::{Content, Store, StoreError};
use crate::sync::locked;
use crate::trust::Named;
use hold::Hold;
use pending::Pending;
use releases::Releases;
use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, Weak, mpsc};
use std::time::{Duration, Instant};
use tenure_core::{
    Claim, Entry, Force, HeldUnforced, Kind, Mode, Patience, Policy, Reason, Request, RequestId,
    Terms,
};
use turns::{Call, Deadlines, Lines};
use watching::Watching;

/// How often a wait checks whether it was cancelled, in a store that knows nothing of [`Cancel`].
const CANCEL_LOOK: Duration = Duration::from_millis(10);

/// How often the manager looks at a hold in a store whose files cannot be watched.
const LOOK: Duration = Duration::from_millis(250);

/// What happens to an acquire of a lock that this process holds already, in whatever thread or task.
///
/// # Examples
/// Two tasks that take turns, and a layer that is called under the lock:
/// ```
/// use tenure::guard::{AcquireError, Again, Options};
/// # let locks = tenure::testing::locks();
/// # let runtime = tokio::runtime::Builder::new_current_thread().build()?;
/// # runtime.block_on(async {
/// let taking_turns = Options::new().again(Again::Wait);
/// let work = async || {
///     let guard = locks.acquire_async("figures", &taking_turns).await?;
///     tokio::task::yield_now().await; // the other task runs here, and waits
///     guard.release_async().await.map_err(|error| panic!("{error}"))
/// };
/// let (one, other) = tokio::join!(work(), work());
/// one.and(other)?;
///
/// let outer = locks.acquire_async("figures", &Options::new()).await?;
/// let layer = Options::new().again(Again::Reenter);
/// let inner = locks.acquire_async("figures", &layer).await?;
/// assert_eq!(outer.token(), inner.token());
/// # Ok::<(), AcquireError>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Again {
    /// The acquire is refused at once, with [`AcquireError::HeldByThisProcess`].
    #[default]
    Refuse,
    /// It joins the hold of the same manager, if that covers what is asked for. The new guard is of the
    /// same lock with the same token; the lock ends with the last guard.
    Reenter,
    /// It waits like any other caller: for programs whose threads take turns. A thread that holds the
    /// lock itself waits in vain, and so does a task that awaits the lock while it has it.
    Wait,
}

/// How a lock is acquired. A value to be kept and used again.
///
/// # Examples
/// ```
/// use std::time::Duration;
/// use tenure::guard::{Options, Wait};
/// # let locks = tenure::testing::locks();
/// let reading = Options::new().shared().why("nightly report");
/// let patient = reading.clone().wait(Wait::For(Duration::from_secs(60)));
/// let one = locks.acquire_with("figures", &reading)?;
/// let other = locks.acquire_with("figures", &patient)?;
/// assert!(one.token() < other.token());
/// # Ok::<(), tenure::guard::AcquireError>(())
/// ```
#[derive(Debug, Clone, Default)]
#[must_use]
pub struct Options {
    holding: Holding,
    wait: Option<Wait>,
    ttl: Option<Duration>,
    why: Option<String>,
    actor: Option<String>,
    cancel: Option<Cancel>,
    again: Again,
    on_wait: OnWait,
    /// The guard is for async code.
    is_async: bool,
}

/// How a caller wants to hold: in a mode, or (`None`) in one of 0 slots, which is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Holding(Option<Mode>);

impl Holding {
    pub(crate) const SHARED: Self = Self(Some(Mode::Shared));

    pub(crate) fn slots(slots: u32) -> Self {
        Self(NonZeroU32::new(slots).map(Mode::Slots))
    }
}

impl Default for Holding {
    fn default() -> Self {
        Self(Some(Mode::default()))
    }
}

/// What is called when a wait begins.
#[derive(Clone, Default)]
struct OnWait(Option<Arc<Tell>>);

type Tell = dyn Fn(&LockName, &Waiting<'_>) + Send + Sync;

impl std::fmt::Debug for OnWait {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if self.0.is_some() { "Some(_)" } else { "None" })
    }
}

impl Options {
    /// Exclusive, for as long as the store's policy waits by default (10 s).
    pub fn new() -> Self {
        Self::default()
    }

    /// Holds beside other shared holds.
    pub fn shared(self) -> Self {
        self.holding(Holding::SHARED)
    }

    /// Holds one of `slots` slots, at least one. A caller that names another number than the holders waits until
    /// all of them have ended. [`Guard::slot`] is the number of the slot.
    /// With 0 the acquire is refused ([`AcquireError::NoSlots`]).
    ///
    /// # Examples
    /// ```
    /// use tenure::guard::{AcquireError, Options, Wait};
    /// # let locks = tenure::testing::locks();
    /// let slot = Options::new().slots(2).wait(Wait::No);
    /// let (_one, _other) = (locks.acquire_with("gpu", &slot)?, locks.acquire_with("gpu", &slot)?);
    /// assert!(locks.acquire_with("gpu", &slot).is_err_and(|error| error.is_held()));
    /// # Ok::<(), AcquireError>(())
    /// ```
    pub fn slots(self, slots: u32) -> Self {
        self.holding(Holding::slots(slots))
    }

    fn for_async(&self) -> Self {
        Self {
            is_async: true,
            ..self.clone()
        }
    }

    /// How it holds, as one value.
    pub(crate) fn holding(mut self, holding: Holding) -> Self {
        self.holding = holding;
        self
    }

    /// How long to wait. [`Wait::Forever`] has to be asked for.
    pub fn wait(mut self, wait: Wait) -> Self {
        self.wait = Some(wait);
        self
    }

    /// How long the hold counts after its last heartbeat, for a caller that sees no stronger sign of
    /// its life: from another container, say. The times of the heartbeats follow from it. At least a
    /// millisecond.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = Some(ttl);
        self
    }

    /// What the lock is held for, as other callers see it; else the name of the program.
    pub fn why(mut self, text: &str) -> Self {
        self.why = Some(why(text));
        self
    }

    /// On whose behalf it is held, as other callers see it; else the user.
    pub fn actor(mut self, name: &str) -> Self {
        self.actor = Some(why(name));
        self
    }

    /// Lets another thread end the wait.
    pub fn cancel(mut self, cancel: &Cancel) -> Self {
        self.cancel = Some(cancel.clone());
        self
    }

    /// Has `tell` called, once for each lock that the acquire has to wait for; [`Waiting`] says for which
    /// holder. The waiting thread calls it. That thread keeps its place in line meanwhile, and takes no
    /// turn: `tell` must not block. For an async
    /// caller, a thread of the manager calls it, and other waiters of this process wait for that thread.
    pub fn on_wait(
        mut self,
        tell: impl Fn(&LockName, &Waiting<'_>) + Send + Sync + 'static,
    ) -> Self {
        self.on_wait = OnWait(Some(Arc::new(tell)));
        self
    }

    /// What to do if this process holds the lock already.
    pub fn again(mut self, again: Again) -> Self {
        self.again = again;
        self
    }
}

/// Where locks are acquired. Cheap to clone, and to be shared by threads; a lock does not end with
/// the manager that it came from.
#[derive(Clone)]
pub struct LockManager {
    shared: Arc<Shared>,
    /// The clones share it, and the last one drops it.
    _last: Arc<Last>,
}

/// The end of the last clone of a manager waits for what is still to be given back.
struct Last(Arc<Shared>);

impl Drop for Last {
    fn drop(&mut self) {
        if self.0.is_here() {
            self.0.releases.settle(None, None);
        }
    }
}

/// What all clones and all guards share.
struct Shared {
    store: Arc<dyn Store>,
    policy: Policy,
    clock: Box<dyn Clock + Send + Sync>,
    identity: Identity,
    /// The host of that identity, shared by all its claims.
    here: Arc<tenure_core::Host>,
    /// The process that made the manager.
    pid: u32,
    /// Only the process that made the manager draws from them ([`Shared::is_here`]).
    ids: Mutex<RequestIds>,
    /// The name of the program, for holds without another reason. It stays what it was at the start.
    program: OnceLock<String>,
    watching: Watching,
    /// Whether a [`Cancel`] ends the store's own sleep.
    hears_cancel: bool,
    pending: Pending<Hold, Ringer>,
    /// The holds, by lock and token.
    held: Mutex<BTreeMap<(LockName, u64), Weak<Hold>>>,
    /// The releases that go on by themselves.
    releases: Releases,
    /// The lines in which callers stand before they enter the store.
    lines: Arc<Lines>,
    deadlines: Deadlines,
    /// Two threads for wakers and for the log, on behalf of threads that have heartbeats to send.
    wakes: Herald,
    logs: Herald,
}

impl LockManager {
    /// The locks in a folder, which the first acquire makes.
    ///
    /// # Errors
    /// - [`OpenError::Folder`] if its path cannot be made absolute.
    pub fn new(folder: impl AsRef<Path>) -> Result<Self, OpenError> {
        Self::in_folder(folder.as_ref(), Named::ByCaller, false)
    }

    fn in_folder(folder: &Path, named: Named, is_machines: bool) -> Result<Self, OpenError> {
        // A later change of the working folder makes no difference.
        let folder = std::path::absolute(folder);
        let folder = folder.map_err(|source| OpenError::Folder { source })?;
        let identity = Identity::current();
        let store = FileStore::new(folder, identity.host.clone(), Box::new(ThreadSleeper));
        let store = store.within_program();
        let store = match named {
            Named::ByCaller => store,
            Named::ByNobody => store.found(),
        };
        let store = if is_machines {
            store.of_machine()
        } else {
            store
        };
        let clock = SystemClock::new(identity.host.boot_id.as_deref());
        Ok(Self::made(Made {
            store: Arc::new(store),
            clock: Box::new(clock),
            identity,
            watching: Watching::Files,
            hears_cancel: true,
        }))
    }

    /// The locks in the default place of `tenure run`. The first of these that names a place counts:
    /// - `$TENURE_STORE`, a URL: `file:DIR` is a folder;
    /// - `$TENURE_DIR`, a folder;
    /// - `$TENURE_SCOPE`: `user`, `repo` or `machine`;
    /// - `dir`, `store` or `scope` of a `tenure.toml`: the one that `$TENURE_CONFIG` names, else the nearest
    ///   one from the working folder up; the user's (`~/.config/tenure/tenure.toml`), the machine's
    ///   (`/etc/tenure.toml`);
    /// - the user's own folder, `~/.local/state/tenure/locks`.
    ///
    /// The files are asked for the place alone: no key of `[lock."…"]` changes what a guard asks for.
    ///
    /// A folder that no variable names is used as [`FileStore::found`] says.
    ///
    /// **A URL of servers** (`etcd://…`, `etcds://…`) is never passed over for a folder, which would
    /// let two callers in: it is [`OpenError::Elsewhere`], with the URL. `LockManager::etcd` opens it
    /// (feature `etcd`). Its caller says which servers to trust and which password to send; a file that
    /// is merely found must not decide that.
    ///
    /// # Errors
    /// - [`OpenError::Config`] if a `tenure.toml` cannot be used or belongs to another user, a variable
    ///   cannot be a place, or no place is known.
    /// - [`OpenError::Elsewhere`] if the locks are kept on servers, or the URL is of no kind that is known.
    /// - [`OpenError::Folder`] if the working folder cannot be named.
    ///
    /// # Examples
    /// A program that also works where `TENURE_STORE` names servers:
    /// ```no_run
    /// use tenure::guard::{LockManager, OpenError};
    ///
    /// fn locks() -> Result<LockManager, Box<dyn std::error::Error>> {
    ///     match LockManager::open() {
    ///         # #[cfg(feature = "etcd")]
    ///         Err(OpenError::Elsewhere { url }) => {
    ///             use tenure::store::etcd::{Address, Credentials};
    ///             Ok(LockManager::etcd(&Address::parse(&url)?, &Credentials::from_environment()?)?)
    ///         }
    ///         other => Ok(other?),
    ///     }
    /// }
    /// # locks().expect("a place");
    /// ```
    pub fn open() -> Result<Self, OpenError> {
        let here = std::env::current_dir().map_err(|source| OpenError::Folder { source })?;
        let (flags, variables) = (
            place::Flags::default(),
            place::Variables::read(|| Some(&here)),
        );
        // A guard is native. Beside the records of a run around the program it is elsewhere.
        let variables = match &variables.around {
            Some(around) if around.records.is_some() => place::Variables::all(),
            _ => variables,
        };
        if variables.is_troubled {
            place::refuse_outside(&here)?;
        }
        let files = Files {
            here,
            config: variables.config()?,
            saw: variables.around.as_ref().map(|around| around.saw.clone()),
        };
        let (found, _) = place::find(&flags, &variables, &files)?;
        let folder = match found.at {
            At::Folder(folder) => folder,
            At::Url(url) => folder_of(&url)?,
        };
        Self::in_folder(&folder, found.named, found.is_machines)
    }

    /// The locks in an etcd, for many machines. Asks no server yet.
    ///
    /// # Errors
    /// - [`OpenError::Servers`] if an encrypted connection has no authority to trust, or the system
    ///   gives no thread.
    #[cfg(feature = "etcd")]
    pub fn etcd(
        address: &crate::store::etcd::Address,
        credentials: &crate::store::etcd::Credentials,
    ) -> Result<Self, OpenError> {
        let identity = Identity::current();
        let here = identity.host.clone();
        let sleeper = Box::new(ThreadSleeper);
        let store = crate::store::etcd::EtcdStore::new(address, credentials, here, sleeper)
            .map_err(|source| OpenError::Servers { source })?
            .remembering(config::servers_folder());
        let clock = SystemClock::new(identity.host.boot_id.as_deref());
        Ok(Self::made(Made {
            store: Arc::new(store),
            clock: Box::new(clock),
            identity,
            watching: Watching::Looks(LOOK),
            hears_cancel: true,
        }))
    }

    /// The locks of any other store, by its own policy. The manager polls for a cancelled wait and for
    /// a request to stop, so they take some moments longer than with [`LockManager::new`].
    pub fn with_store(store: impl Store + 'static) -> Self {
        let identity = Identity::current();
        let clock = SystemClock::new(identity.host.boot_id.as_deref());
        Self::made(Made {
            store: Arc::new(store),
            clock: Box::new(clock),
            identity,
            watching: Watching::Looks(LOOK),
            hears_cancel: false,
        })
    }

    /// [`LockManager::with_store`] by another clock, for tests.
    pub(crate) fn with_clock(
        store: impl Store + 'static,
        clock: impl Clock + Send + Sync + 'static,
        identity: Identity,
        look: Duration,
    ) -> Self {
        Self::made(Made {
            store: Arc::new(store),
            clock: Box::new(clock),
            identity,
            watching: Watching::Always(look),
            hears_cancel: false,
        })
    }

    fn made(made: Made) -> Self {
        let shared = Arc::new(Shared {
            policy: made.store.rules().policy,
            store: made.store,
            clock: made.clock,
            here: Arc::new(made.identity.host.clone()),
            identity: made.identity,
            pid: std::process::id(),
            ids: Mutex::default(),
            program: OnceLock::new(),
            watching: made.watching,
            hears_cancel: made.hears_cancel,
            pending: Pending::default(),
            held: Mutex::default(),
            releases: Releases::default(),
            lines: Arc::default(),
            deadlines: Deadlines::default(),
            wakes: Herald::new("tenure-wakes"),
            logs: Herald::new("tenure-logs"),
        });
        let last = Arc::new(Last(Arc::clone(&shared)));
        Self {
            shared,
            _last: last,
        }
    }

    /// Acquires a lock, and waits for it as long as the policy does by default (10 s).
    ///
    /// # Errors
    /// - As [`LockManager::acquire_with`].
    ///
    /// # Crash safety
    /// As [`LockManager::acquire_with`].
    pub fn acquire(&self, name: &str) -> Result<Guard, AcquireError> {
        self.acquire_with(name, &Options::new())
    }

    /// Acquires a lock, or says at once who has it.
    ///
    /// # Errors
    /// - As [`LockManager::acquire_with`].
    pub fn try_acquire(&self, name: &str) -> Result<Guard, AcquireError> {
        self.acquire_with(name, &Options::new().wait(Wait::No))
    }

    /// Acquires a lock, and waits at most this long.
    ///
    /// # Errors
    /// - As [`LockManager::acquire_with`].
    pub fn acquire_timeout(&self, name: &str, wait: Duration) -> Result<Guard, AcquireError> {
        self.acquire_with(name, &Options::new().wait(Wait::For(wait)))
    }

    /// Acquires a lock in the way that `options` say.
    ///
    /// # Errors
    /// - [`AcquireError::Held`] if another caller has it, and the wait is over or was not wanted.
    /// - [`AcquireError::HeldByThisProcess`] if this process has it, in whatever thread or task:
    ///   [`Again`] says what to ask with then.
    /// - [`AcquireError::HeldByOuterRun`] if the `tenure run` around this process has it.
    /// - [`AcquireError::Cancelled`] if the wait was cancelled.
    /// - [`AcquireError::Superseded`] if another claim asked this one to stop.
    /// - [`AcquireError::Refused`] if a record stands there that this policy does not replace.
    /// - [`AcquireError::Name`] if the name cannot be the name of a lock.
    /// - [`AcquireError::NoSlots`] if `options` ask for one of 0 slots.
    /// - [`AcquireError::Forked`] in a copy of the process that made this manager.
    /// - [`AcquireError::Thread`] if the system gives no thread.
    /// - [`AcquireError::Store`] if the store failed.
    ///
    /// # Crash safety
    /// The claim's liveness lock is held before the claim can be seen, and is released with the process. Death
    /// before the write leaves nothing; death after it leaves a dead claim, which the next caller
    /// sweeps.
    pub fn acquire_with(&self, name: &str, options: &Options) -> Result<Guard, AcquireError> {
        let name = named(name)?;
        let wait = self.wait(options);
        self.take(name, options, wait)
    }

    /// Acquires several locks, all of them or none, in the one order in which every caller takes them.
    /// A name that is given twice is taken once. The wait is for all of them together.
    ///
    /// # Errors
    /// - As [`LockManager::acquire_with`], of the lock that could not be had. The others have been
    ///   given back.
    ///
    /// # Examples
    /// ```
    /// use tenure::guard::Options;
    /// # let locks = tenure::testing::locks();
    /// let both = locks.acquire_all(["schema", "data"], &Options::new())?;
    /// assert_eq!(both[0].name().as_str(), "data", "in the order of their names");
    /// both.release()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn acquire_all<'a>(
        &self,
        names: impl IntoIterator<Item = &'a str>,
        options: &Options,
    ) -> Result<Guards, AcquireError> {
        let names = names.into_iter().map(named);
        self.take_all(names.collect::<Result<_, _>>()?, options)
    }

    fn take_all(
        &self,
        mut names: Vec<LockName>,
        options: &Options,
    ) -> Result<Guards, AcquireError> {
        names.sort();
        names.dedup();
        let wait = self.wait(options);
        let began = self.shared.clock.instant();
        let mut guards = Guards::default();
        for name in names {
            let rest = match wait {
                Wait::For(all) if !guards.is_empty() => {
                    let now = self.shared.clock.instant();
                    Wait::For(all.saturating_sub(now.saturating_duration_since(began)))
                }
                Wait::No | Wait::For(_) | Wait::Forever => wait,
            };
            guards.push(self.take(name, options, rest).map_err(|error| {
                match (error, wait) {
                    // The error shows the wait for all locks, not the rest of it that was left for this
                    // one.
                    (AcquireError::Held(refused), Wait::For(all)) => {
                        AcquireError::Held(Box::new(Refused {
                            waited: Some(all),
                            ..*refused
                        }))
                    }
                    (error, _) => error,
                }
            })?);
        }
        Ok(guards)
    }

    /// [`LockManager::acquire_with`] for async code, on any executor.
    ///
    /// Nothing happens before the future is polled. A thread enters the store for it, so the executor is never
    /// blocked. Futures that take turns for one lock share that thread ([in their
    /// line](self#many-callers-of-one-process)). A future that is dropped early leaves the line and the queue,
    /// and releases what it would have acquired.
    ///
    /// **Tasks of one program are one process**: while one has the lock, another is refused at once, and does
    /// not wait. Tasks that are to take turns ask with [`Again::Wait`], and a layer under the lock with
    /// [`Again::Reenter`].
    ///
    /// # Errors
    /// - As [`LockManager::acquire_with`].
    ///
    /// # Examples
    /// ```
    /// use tenure::guard::{AcquireError, LockManager, Options};
    ///
    /// async fn deploy(locks: &LockManager) -> Result<(), AcquireError> {
    ///     let guard = locks.acquire_async("deploy", &Options::new()).await?;
    ///     tokio::select! {
    ///         () = work() => {}
    ///         () = guard.stop_requested() => {} // asked for, or lost
    ///     }
    ///     guard.release_async().await.unwrap_or_else(|error| eprintln!("{error}"));
    ///     Ok(())
    /// }
    /// # async fn work() {}
    /// # let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    /// # runtime.block_on(deploy(&tenure::testing::locks())).expect("a free lock");
    /// ```
    pub async fn acquire_async(
        &self,
        name: &str,
        options: &Options,
    ) -> Result<Guard, AcquireError> {
        self.take_async(name, options).await
    }

    /// [`LockManager::acquire_all`] for async code; see [`LockManager::acquire_async`]. A thread waits in its
    /// place.
    ///
    /// # Errors
    /// - As [`LockManager::acquire_all`].
    pub async fn acquire_all_async(
        &self,
        names: impl IntoIterator<Item = &str>,
        options: &Options,
    ) -> Result<Guards, AcquireError> {
        let names = names.into_iter().map(named);
        let names = names.collect::<Result<Vec<_>, _>>()?;
        let Some(first) = names.first().cloned() else {
            return Ok(Guards::default());
        };
        let options = options.for_async();
        let done = self.offloaded(&options, move |locks, options| {
            locks.take_all(names, options)
        });
        let thread = |source| AcquireError::Thread {
            name: first,
            source,
        };
        done.await.map_err(thread)?
    }

    /// Gives back every hold of this manager and its clones, whoever has its guards: for the way out of a program, before
    /// [`std::process::exit`], or in the thread that hears its signals (not in a handler itself). Every guard shows
    /// [`GuardState::Lost`] from now on, so no work may go on under one. In a folder the end of the process does the same; on servers a hold without a release
    /// stands until its lease has run out. Waits for at most a second while servers are silent.
    ///
    /// # Errors
    /// - What went wrong first, as [`Guard::release`] says it. The others have been given back, or are still tried.
    ///
    /// # Crash safety
    /// As [`Guard::release`], one after the other.
    ///
    /// # Examples
    /// ```
    /// # let locks = tenure::testing::locks();
    /// let guard = locks.acquire("deploy")?;
    /// locks.release_all()?;
    /// assert!(guard.is_lost());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn release_all(&self) -> Result<(), ReleaseError> {
        if !self.shared.is_here() {
            return Ok(());
        }
        let held: Vec<_> = locked(&self.shared.held).values().cloned().collect();
        let held: Vec<_> = held.iter().filter_map(Weak::upgrade).collect();
        let mut first = Ok(());
        let (tells, told) = mpsc::channel();
        for hold in &held {
            let tells = tells.clone();
            let later = hold.end_for_all(move |answer| drop(tells.send(answer)));
            first = hold::worse(first, later.unwrap_or(Ok(())));
        }
        let is_all = self.shared.releases.settle(None, None);
        first = told.try_iter().fold(first, hold::worse);
        let left =
            (held.iter()).find(|hold| self.shared.releases.goes_on(hold.name(), hold.token()));
        match left {
            Some(left) if !is_all => hold::worse(first, Err(left.not_yet())),
            _ => first,
        }
    }

    /// Waits on a thread, for as long as the future lives.
    async fn offloaded<T: Send + 'static>(
        &self,
        options: &Options,
        work: impl FnOnce(&Self, &Options) -> T + Send + 'static,
    ) -> std::io::Result<T> {
        let (locks, options) = (self.clone(), options.clone());
        let given = options.cancel.clone();
        offload::cancellable("tenure-acquire", given, move |cancel| {
            work(&locks, &options.cancel(cancel))
        })
        .await
    }

    fn wait(&self, options: &Options) -> Wait {
        options
            .wait
            .unwrap_or(match self.shared.policy.held_unforced {
                HeldUnforced::WaitMs(millis) => Wait::For(Duration::from_millis(millis)),
                HeldUnforced::Refuse => Wait::No,
            })
    }

    /// Enters the store, and waits there: for a caller whose turn it is.
    fn enter(
        &self,
        name: &LockName,
        options: &Options,
        call: &Call,
    ) -> Result<Guard, AcquireError> {
        let (shared, mode) = (&self.shared, call.mode);
        let name = name.clone();
        if options.cancel.as_ref().is_some_and(Cancel::is_cancelled) {
            return Err(AcquireError::Cancelled { name });
        }
        if options.again == Again::Reenter
            && let Some(guard) = shared.again(&name, mode)
        {
            return Ok(guard.for_async(options.is_async));
        }
        let request = match shared.request(options, mode) {
            Ok(request) => request,
            Err(source) => return Err(AcquireError::Store { name, source }),
        };
        // What this process gives back by itself is no reason to refuse it.
        let began = instant();
        let most = match call.rest(call.stood(shared)) {
            Wait::For(rest) => rest.min(releases::WAIT_MAX),
            Wait::No | Wait::Forever => releases::WAIT_MAX,
        };
        shared.releases.settle(Some(&name), began.checked_add(most));
        let settled = since(began);
        let mut attendance = Attendance {
            shared,
            name: &name,
            options,
            call,
            told: false,
            ticket: None,
            gave_way: None,
        };
        let (cancel, stood) = (options.cancel.as_ref(), call.stood(shared) + settled);
        let acquired = cancel::listening(cancel, || {
            let (store, clock) = (&*shared.store, &*shared.clock);
            let wait = call.rest(stood);
            engine::acquire(store, clock, &name, request, wait, &mut attendance)
        });
        let (gave_way, ticket) = (attendance.gave_way.take(), attendance.ticket);
        let acquired = match acquired {
            Ok(acquired) => acquired,
            Err(error) => {
                return Err(gave_way.unwrap_or_else(|| {
                    call.told(shared.explain(name, options.again, (mode, ticket), error))
                }));
            }
        };
        let waited = stood + acquired.waited;
        log::acquired(&name, &acquired.claim, &acquired.events, waited);
        // A handle comes with every grant that is not an earlier hold of the same request id, and
        // this one is new.
        let Some(handle) = acquired.handle else {
            return Err(AcquireError::HeldByThisProcess {
                name,
                token: acquired.claim.token,
            });
        };
        let hold = Arc::new(Hold::new(
            Arc::clone(shared),
            handle,
            name.clone(),
            acquired.claim,
        ));
        let guard = Guard::first(Arc::clone(&hold)).for_async(options.is_async);
        let key = (name.clone(), hold.token());
        locked(&shared.held).insert(key, Arc::downgrade(&hold));
        let keeps = || renewer::start(Arc::downgrade(shared));
        match shared.pending.add(&hold, instant(), keeps) {
            Ok(()) => Ok(guard),
            Err(source) => Err(AcquireError::Thread { name, source }),
        }
    }
}

impl std::fmt::Debug for LockManager {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LockManager")
            .field("policy", &self.shared.policy.name)
            .finish_non_exhaustive()
    }
}

/// What a manager is made of.
struct Made {
    store: Arc<dyn Store>,
    clock: Box<dyn Clock + Send + Sync>,
    identity: Identity,
    watching: Watching,
    hears_cancel: bool,
}

/// The files of a program that calls from its working folder.
struct Files {
    here: PathBuf,
    /// The one that `TENURE_CONFIG` names.
    config: Option<Arc<Config>>,
    /// What the run around the program saw.
    saw: Option<Saw>,
}

impl place::Files for Files {
    type Error = OpenError;

    fn here(&self) -> Result<&Path, OpenError> {
        Ok(&self.here)
    }

    fn named(&self) -> Result<Option<(Arc<Config>, bool)>, OpenError> {
        // Inside a run the variable counts only if that run did not see it. Then it is a word of the call.
        let is_typed = self.saw.is_some();
        Ok(self.config.clone().map(|config| (config, is_typed)))
    }

    fn found(&self) -> Result<Option<Arc<Config>>, OpenError> {
        Ok(Config::search(Some(&self.here))?.all()?.map(Arc::new))
    }

    fn unseen(&self) -> Result<Option<Arc<Config>>, OpenError> {
        let (Some(saw), None) = (&self.saw, &self.config) else {
            return Ok(None);
        };
        let (unseen, _) = Config::unseen(Some(&self.here), saw)?.beside();
        Ok(unseen.map(Arc::new))
    }
}

/// The folder that the URL of a store names.
fn folder_of(url: &str) -> Result<PathBuf, OpenError> {
    config::folder_of_url(url).ok_or_else(|| OpenError::Elsewhere {
        url: url.to_owned(),
    })
}

fn named(name: &str) -> Result<LockName, AcquireError> {
    LockName::new(name).map_err(|source| AcquireError::Name {
        name: name.to_owned(),
        source,
    })
}

impl Shared {
    /// Whether this is the process that made the manager, and not a copy made by a fork.
    fn is_here(&self) -> bool {
        self.pid == std::process::id()
    }

    /// What is wrong with a call before anything is touched; else the mode of the hold.
    fn may_ask(&self, name: &LockName, options: &Options) -> Result<Mode, AcquireError> {
        let name = || name.clone();
        if !self.is_here() {
            return Err(AcquireError::Forked { name: name() });
        }
        let Holding(Some(mode)) = options.holding else {
            return Err(AcquireError::NoSlots { name: name() });
        };
        if options.cancel.as_ref().is_some_and(Cancel::is_cancelled) {
            return Err(AcquireError::Cancelled { name: name() });
        }
        Ok(mode)
    }

    fn request(&self, options: &Options, mode: Mode) -> Result<Request, StoreError> {
        let request_id = locked(&self.ids).draw().map_err(|source| StoreError::Io {
            place: "the system".to_owned(),
            doing: "drawing random bytes for a request id",
            source,
        })?;
        let ttl_ms = options.ttl.map_or(self.policy.supervised_ttl_ms, |ttl| {
            u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX).max(1)
        });
        Ok(Request {
            holder: self.holder(options, request_id),
            kind: Kind::Kernel,
            ttl_ms,
            force: Force::No,
            patience: Patience::Default,
            terms: Terms {
                mode,
                ..Terms::default()
            },
        })
    }

    fn holder(&self, options: &Options, request_id: RequestId) -> Holder {
        let actor = options.actor.as_ref().unwrap_or(&self.identity.actor);
        let why = options.why.as_ref().unwrap_or_else(|| {
            self.program.get_or_init(|| {
                let program = std::env::args_os().next();
                let program = program.as_deref().map(Path::new).and_then(Path::file_name);
                program.map_or_else(String::new, |name| why(&name.to_string_lossy()))
            })
        });
        Holder {
            request_id,
            actor: actor.clone(),
            process: Some(self.identity.process),
            command: None,
            host: Arc::clone(&self.here),
            why: why.clone(),
            facts: Vec::new(),
        }
    }

    /// One more guard of this manager's hold, if that covers `mode`.
    fn again(&self, name: &LockName, mode: Mode) -> Option<Guard> {
        let held = locked(&self.held);
        let own = held.range((name.clone(), 0)..=(name.clone(), u64::MAX));
        let own: Vec<_> = own.filter_map(|(_, hold)| hold.upgrade()).collect();
        drop(held);
        let covers = |hold: &&Arc<Hold>| hold.mode == Mode::Exclusive || hold.mode == mode;
        own.iter().filter(covers).find_map(Guard::again)
    }

    /// Removes a hold that has ended.
    fn forget(&self, name: &LockName, token: u64) {
        locked(&self.held).remove(&(name.clone(), token));
    }

    /// The hold of this process that blocks another acquire of it, if the wait could not end before
    /// that hold does. `ticket` is that of the caller's own claim, if it has one.
    fn own_blocker<'a>(
        &self,
        name: &LockName,
        entry: &'a Entry,
        mode: Mode,
        ticket: Option<u64>,
    ) -> Option<&'a Claim> {
        let (process, host) = (self.identity.process, &self.identity.host);
        let is_ours = |claim: &&Claim| {
            let theirs = &claim.holder;
            theirs.process == Some(process)
                && theirs.host.boot_id == host.boot_id
                && theirs.host.pid_namespace == host.pid_namespace
                && !claim
                    .token
                    .is_some_and(|token| self.releases.has(name, token))
        };
        match mode {
            Mode::Exclusive => entry.granted().find(is_ours),
            // The end of another process's hold would do, unless one of ours is exclusive or of another number of
            // slots.
            Mode::Shared | Mode::Slots(_) => {
                let blocks = |claim: &&Claim| is_ours(claim) && !mode.holds_beside(claim.mode);
                let all_ours = || {
                    let first = entry.granted().next();
                    first.filter(|_| entry.granted().all(|claim| is_ours(&claim)))
                };
                // A claim in line before this caller that waits for a hold of ours, as a writer between two readers does.
                let before = ticket.unwrap_or(u64::MAX);
                let in_line = |claim: &&Claim| {
                    claim.token.is_none() && claim.is_in_line() && claim.ticket < before
                };
                let is_awaited = |own: &&Claim| {
                    let mut waiting = entry.claims.iter().filter(in_line);
                    is_ours(own) && waiting.any(|claim| !claim.mode.holds_beside(own.mode))
                };
                let held = entry.granted().find(blocks).or_else(all_ours);
                held.or_else(|| entry.granted().find(is_awaited))
            }
        }
    }

    fn what_is_wrong(&self, name: &LockName) -> Option<String> {
        match self.store.read(name, None).ok()?.content {
            Content::Unreadable { why, .. } => Some(why),
            Content::Whole { .. } => None,
        }
    }

    /// The error of an attempt that did not succeed.
    fn explain(
        &self,
        name: LockName,
        again: Again,
        (mode, ticket): (Mode, Option<u64>),
        error: engine::AcquireError,
    ) -> AcquireError {
        match error {
            engine::AcquireError::Refused {
                refusal,
                entry,
                waited,
                retry_after_ms,
                kept: _,
                displaced: _,
            } => {
                if again != Again::Wait
                    && let Some(own) = self.own_blocker(&name, &entry, mode, ticket)
                {
                    let token = own.token;
                    return AcquireError::HeldByThisProcess { name, token };
                }
                let reason = refusal.reason;
                let unreadable_because = match reason {
                    Reason::Unreadable => self.what_is_wrong(&name),
                    Reason::Held
                    | Reason::StaleNeedsForce
                    | Reason::NeedsConfirmation
                    | Reason::QueueFull
                    | Reason::Unknown => None,
                };
                let refused = Box::new(Refused {
                    place: self.store.location(&name).shown,
                    name,
                    policy: self.policy,
                    refusal,
                    entry: *entry,
                    seen: self.clock.now(),
                    unreadable_because,
                    waited,
                    retry_after: Duration::from_millis(retry_after_ms),
                });
                match reason {
                    Reason::Held => AcquireError::Held(refused),
                    Reason::StaleNeedsForce
                    | Reason::NeedsConfirmation
                    | Reason::QueueFull
                    | Reason::Unreadable
                    | Reason::Unknown => AcquireError::Refused(refused),
                }
            }
            engine::AcquireError::Superseded { by } => AcquireError::Superseded { name, by: by.by },
            engine::AcquireError::Store(source) => AcquireError::Store { name, source },
            // A guard asks for no reserved place, and an observer that gives way has kept its own
            // error.
            engine::AcquireError::Interrupted
            | engine::AcquireError::NotKept
            | engine::AcquireError::Deadlock => AcquireError::Cancelled { name },
        }
    }
}

/// Looks at the list while a caller waits.
struct Attendance<'a> {
    shared: &'a Shared,
    name: &'a LockName,
    options: &'a Options,
    call: &'a Call,
    told: bool,
    /// That of the caller's claim, once it has one.
    ticket: Option<u64>,
    gave_way: Option<AcquireError>,
}

impl Observer for Attendance<'_> {
    fn waiting(&mut self, waiting: &Waiting<'_>) -> Option<Instant> {
        self.ticket = Some(waiting.ticket);
        let looks = self.options.cancel.is_some() && !self.shared.hears_cancel;
        looks.then(|| instant() + CANCEL_LOOK)
    }

    fn hindered(&mut self, _: &StoreError) -> bool {
        let cancel = self.options.cancel.as_ref();
        !cancel.is_some_and(Cancel::is_cancelled)
    }

    fn gives_way(&mut self, waiting: &Waiting<'_>) -> bool {
        let name = || self.name.clone();
        let options = self.options;
        if options.cancel.as_ref().is_some_and(Cancel::is_cancelled) {
            self.gave_way = Some(AcquireError::Cancelled { name: name() });
        } else if options.again != Again::Wait
            && let Some(own) = self.shared.own_blocker(
                self.name,
                waiting.entry,
                self.call.mode,
                Some(waiting.ticket),
            )
        {
            self.gave_way = Some(AcquireError::HeldByThisProcess {
                name: name(),
                token: own.token,
            });
        } else if let Some(token) = outer_run(self.shared, self.name, waiting.entry) {
            self.gave_way = Some(AcquireError::HeldByOuterRun {
                name: name(),
                token,
            });
        }
        if self.gave_way.is_none()
            && !std::mem::replace(&mut self.told, true)
            && let OnWait(Some(tell)) = &options.on_wait
        {
            tell(self.name, waiting);
        }
        self.gave_way.is_some()
    }
}

/// The token of a hold of this lock that this process inherited from the run around it.
///
/// A lock gives each token once, whatever path leads to its folder. In etcd a token is a revision, and
/// each cluster counts its own; a cluster may also have several names. So there the variable has to
/// name one of the same servers, or the claim a process above this one.
fn outer_run(shared: &Shared, name: &LockName, entry: &Entry) -> Option<u64> {
    let place = shared.store.location(name).shown;
    let here = &shared.identity.host;
    let is_below = |claim: &Claim| {
        let above = claim
            .holder
            .process
            .filter(|above| *above != shared.identity.process);
        above.is_some_and(|above| process::is_descendant_of(&above, &claim.holder.host, here))
    };
    let inherited = std::env::var(inherited::HELD).ok()?;
    let holds = inherited::parse(&inherited).into_iter();
    let mut holds = holds.filter(|hold| hold.name == name.as_str());
    holds.find_map(|hold| {
        let mut granted = entry.granted();
        let held = granted.find(|claim| claim.token == Some(hold.token))?;
        let is_told = is_told(&place, &hold.folder.to_string_lossy());
        (is_told || is_below(held)).then_some(hold.token)
    })
}

/// Whether the place that `TENURE_HELD` names may be the place of this lock.
fn is_told(place: &str, told: &str) -> bool {
    // Both say which servers, and below which prefix.
    let servers = |text: &str| -> Option<(String, String)> {
        let (scheme, rest) = text.split_once("://")?;
        let (hosts, prefix) = rest.split_once('/')?;
        let known = matches!(scheme, "etcd" | "etcds");
        known.then(|| (hosts.to_owned(), prefix.to_owned()))
    };
    match (servers(place), servers(told)) {
        (None, None) => true,
        (Some((here, key)), Some((there, prefix))) => {
            let is_below = key
                .strip_prefix(&*prefix)
                .and_then(|key| key.strip_prefix("/locks/"));
            is_below.is_some_and(|name| !name.contains('/'))
                && here
                    .split(',')
                    .any(|host| there.split(',').any(|other| other == host))
        }
        (Some(_), None) | (None, Some(_)) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::is_told;

    #[test]
    fn a_hold_in_etcd_is_told_from_one_of_other_servers() {
        let lock = "etcd://10.0.0.1:2379,10.0.0.2:2379/ci/locks/deploy";
        for same in [
            "etcd://10.0.0.1:2379,10.0.0.2:2379/ci",
            "etcd://10.0.0.2:2379,10.0.0.3:2379/ci",
        ] {
            assert!(is_told(lock, same), "{same}");
        }
        for other in [
            "etcd://10.0.0.3:2379/ci",
            "etcd://10.0.0.1:2379/other",
            "etcd://10.0.0.1:2379/c",
            "/srv/locks",
        ] {
            assert!(!is_told(lock, other), "{other}");
        }
        assert!(is_told("/srv/locks/deploy.tenure", "/srv/locks"));
        assert!(is_told("/srv/locks/deploy.tenure", "/another/path/to/it"));
        assert!(!is_told(
            "/srv/locks/deploy.tenure",
            "etcd://10.0.0.1:2379/ci"
        ));
    }
}
