//! A lock as a guard, for any Rust program.
//!
//! ```
//! # use tenure::guard::LockManager;
//! # fn deploy(_: u64) {}
//! # let scratch = tempfile::tempdir()?;
//! # let folder = scratch.path();
//! let locks = LockManager::new(folder)?;     // `open()` for where `tenure run` has them
//! let guard = locks.acquire("deploy-prod")?; // waits up to 10 s, in the same queue as `tenure run`
//! deploy(guard.token());                     // the fencing token: let the resource refuse smaller ones
//! guard.release()?;                          // or let it drop
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Options to ask with from many threads or tasks of one program. All of them share one [`LockManager`]:
//!
//! | callers | ask with | while this program has the lock |
//! |---|---|---|
//! | never ask for a lock that the program has | [`Options::new`] | are refused at once: [`AcquireError::HeldByThisProcess`] |
//! | take turns | [`Again::Wait`] | stand in a line, in the order in which they asked |
//! | are called under the lock | [`Again::Reenter`] | share the hold; the last guard releases it |
//! | read while others read | [`Options::shared`], [`Again::Wait`] | hold beside other readers, and wait for a writer |
//! | use one of `n` things | [`Options::slots`] | hold beside `n - 1` others, and wait for a free slot |
//! | need several locks | [`LockManager::acquire_all`] | take them in one order, so none waits in a circle |
//! | have a guard and ask for one more lock | [`Options::under`] | learn of a circle: [`AcquireError::Deadlock`] |
//! | may give up | [`Options::cancel`], or drop the future of [`LockManager::acquire_async`] | leave the line and the queue |
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
//! The callers of one manager (and of its clones) that wait for one lock stand in a line
//! of their own, threads and tasks in the order in which they asked. Only the caller at its head stands in the
//! queue of the lock.
//! So `tenure check` shows one waiter for all of them, and the process takes its turn among the processes once
//! per hold. Those that take turns ([`Again::Wait`]) have one line. The others have one for each mode, and are refused as
//! soon as their process holds the lock.
//!
//! - A task in the line has no thread and no open file, and takes less than a KiB. A thread brings its own.
//! - At the head, a task waits in the store without a thread, and in a folder with two open files. At most 16 threads of the
//!   manager make the changes (64 over servers), and at most 65 of the process sleep in the kernel for all of them. Two kinds of waits have a thread
//!   each: those in a folder for one of several holders (slots, and writers behind readers), and those in a store of your own.
//! - **A grant that its task does not take within 2 s is given back.** Its future was polled once and then left, or its executor
//!   was blocked. The task never saw that grant. When it is polled next it stands in line anew, and its time counts from the call. So
//!   a future that nobody polls keeps others waiting for 2 s, once.
//! - A caller that gives up leaves the line at once. If it was the head, its claim leaves the queue, or what it
//!   was granted is given back, and the next caller enters the queue at its end.
//! - The wait counts from the call, the place in the line included.
//! - A try ([`Wait::No`]), and a caller that waits while its manager holds the lock, asks the queue itself. A hold of the manager
//!   beside which it cannot stand refuses it without a look at the store.
//! - Several managers for one folder have a line each, as several processes have. Share one.
//!
//! # What a guard notices
//! A thread of the manager looks after all its guards. It renews each lease three times within
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
//! - **Circles of waits between programs are not found**, because nobody knows which thread of a program waits for which of
//!   its holds. A wait ends with its time. [`LockManager::acquire_all`] takes several locks without a circle.
//! - **A fork hands a lock down to a copy that says so**: with a manager of its own, the copy goes on by
//!   [`LockManager::adopt`]. Without that its guards are of no use to it: they show [`GuardState::Lost`], and their drop leaves
//!   the parent's lock alone. The copy does inherit the open file that carries the liveness lock, until it becomes another
//!   program: if the parent ends meanwhile, the lock stays held, and the copy itself is told what to do when it asks for it
//!   ([`AcquireError::HeldFromBefore`]). A release by the parent is not delayed.
//! - **An exec frees the lock** in a folder, and the next in line gets it; on servers the program that asks again waits until the
//!   lease has run out. [`Guard::hand_on`] keeps it.
//! - **`chroot`, a mount namespace, `setuid`**: a hold stands. The manager goes on in the folder that it has opened, and opens none
//!   by a path that leads elsewhere for it now. Make a new manager for the folder that the path leads to.
//! - **No drop runs** with `panic = "abort"`, after [`std::process::exit`], under SIGKILL. The kernel
//!   then frees the lock as the process ends. The next waiter wakes at once, sweeps the dead claim, and
//!   logs that. On servers the lock is free when its lease has run out: call [`LockManager::release_all`] first.
//! - **On servers a thread of the manager gives locks back**, and tries again what fails. A drop in async code waits for
//!   nothing; a drop in a thread, a release and the end of the last manager wait for at most a second in all while no
//!   server answers.
//! - A child process that the work has started and left behind does not keep the lock (the liveness lock is
//!   not inherited over an exec). `tenure run` is for that. [`Guard::envs`] tells a child that it works under the lock.
//! - Guards leave lines in an audit only if the program asks for that ([`LockManager::record_in`]); `tracing` has the same facts.
//! - Each guard keeps a file open (two on Windows).
//!
//! # What is logged
//! `tracing` events under the target `tenure`, all with the field `lock`. The message says what happened and what follows.
//! Names stay: `tenure.lock.acquired` and `.released` (debug), `.taken_over` (info after a death, else warn),
//! `.stop_requested` (info), `.lost`, `.renew_failed` and `.release_failed` (warn). Nothing is printed, no signal handler is
//! installed, and nothing is global but the threads that sleep for callers, and when the program made its first manager.
//!
//! The manager's thread changes the state of a guard first. **Two threads of their own** then call the
//! wakers and write to the log. A subscriber or a waker that blocks delays the later ones, and never a
//! heartbeat. A log that blocks for long loses `.renew_failed` events. A thread of the application logs
//! its own acts itself (acquire, verify, release).
//!
//! The core decides who gets the lock; the store decides where it is kept.

mod adopt;
#[cfg(feature = "full")]
mod audit;
#[cfg(not(feature = "full"))]
#[path = "guard/unrecorded.rs"]
mod audit;
mod children;
mod circle;
mod error;
#[cfg(feature = "full")]
mod failure;
mod hold;
mod image;
#[cfg(feature = "tracing")]
mod log;
#[cfg(not(feature = "tracing"))]
#[path = "guard/no_log.rs"]
mod log;
mod look;
#[cfg(feature = "full")]
mod open;
mod status;
mod term;
mod turns;
mod watch;

#[cfg(unix)]
pub use adopt::HandedOn;
pub use error::{
    AcquireError, AdminError, AdoptError, OpenError, Refused, ReleaseError, VerifyError,
};
pub use hold::{Guard, Guards};
pub use look::CleanReport;
pub use status::{LockHolder, LockStanding, LockStatus, LockWaiter};
pub use tenure_core::{Holder, LockName, Mode, NameError};
#[cfg(feature = "full")]
pub use tenure_engine::config::ConfigError;
pub use tenure_engine::engine::{Wait, Waiting};
#[cfg(feature = "full")]
pub use tenure_engine::group::lock_name;
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
pub use tenure_os::cancel::Cancel;
pub use term::{GuardState, LostReason};
pub use watch::Watch;

use crate::cancel;
use crate::clock::{Clock, SystemClock, instant, since};
#[cfg(feature = "full")]
use crate::config;
use crate::engine::{self, Lot, Observer};
use crate::herald::Herald;
use crate::inherited::{self, At};
use crate::keep::releases::{self, Releases};
use crate::keep::{self, Home, NewHolds, Watching};
use crate::line::{Deadlines, Pool};
use crate::offload;
use crate::os::Ringer;
use crate::process::{self, Identity, RequestIds};
use crate::profile::{ends_without_release, why};
use crate::store::file::FileStore;
#[cfg(feature = "etcd")]
use crate::store::file::ThreadSleeper;
use crate::store::{Content, Handle, Store, StoreError};
use crate::sync::locked;
use crate::trust::Named;
use audit::{Audit, Behind};
use children::PlaceForOthers;
use circle::Circle;
use hold::Hold;
use image::Image;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::{Arc, Mutex, OnceLock, Weak, mpsc};
use std::time::{Duration, Instant};
use tenure_core::{
    Claim, Entry, Event, Force, HeldUnforced, Kind, Liveness, LivenessLock, Patience, Policy,
    Reason, Request, RequestId, Takeover, Terms,
};
use turns::{AsyncCall, Call, Due, Lines, in_order, told};

/// How often a wait checks whether it was cancelled, in a store that knows nothing of [`Cancel`].
const CANCEL_LOOK: Duration = Duration::from_millis(10);

/// How often a wait in a copy of a process looks whether that process has ended.
const KEPT_LOOK: Duration = Duration::from_secs(1);

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
#[non_exhaustive]
pub enum Again {
    /// The acquire is refused at once, with [`AcquireError::HeldByThisProcess`].
    #[default]
    Refuse,
    /// The caller joins the hold of the same manager, if that covers what is asked for. The new guard
    /// is of the same lock with the same token; the lock ends with the last guard.
    Reenter,
    /// The caller waits like any other: for programs whose threads take turns. A thread that holds
    /// the lock itself waits in vain, and so does a task that awaits the lock while it has it.
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
    /// The holds under which the caller works.
    under: Vec<inherited::Hold>,
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

/// What it is called on is its program's, and a panic in it is handed to the caller.
impl UnwindSafe for OnWait {}
impl RefUnwindSafe for OnWait {}

/// A panic beside a manager leaves nothing of it half done: its mutexes are used past one.
impl RefUnwindSafe for Shared {}

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
    /// Slots are a semaphore, also for the tasks of one process: a hold of one by this process is waited for as any other,
    /// whatever [`Again`] says. So a caller that has a slot and asks for one more may wait for itself, for as long as its
    /// wait lasts. At once refused ([`AcquireError::HeldByThisProcess`]) is a wait that no other end can help: for an exclusive
    /// or shared hold of this process, for one of another number of slots, and behind a claim in line that waits for these.
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

    /// How long to wait: a [`Wait`], or a [`Duration`] at most. [`Wait::Forever`] has to be asked for.
    pub fn wait(mut self, wait: impl Into<Wait>) -> Self {
        self.wait = Some(wait.into());
        self
    }

    /// How long the hold counts after its last heartbeat, for a caller that sees no stronger sign of
    /// its life: from another container, say. The times of the heartbeats follow from it. At least a
    /// millisecond, and over etcd two seconds: servers give no shorter lease. A shorter ttl is raised to that.
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
    /// caller, a thread of the manager calls it, and other waiters of this process wait for that thread. A panic in `tell`
    /// ends the wait and goes on in the caller.
    pub fn on_wait(
        mut self,
        tell: impl Fn(&LockName, &Waiting<'_>) + Send + Sync + 'static,
    ) -> Self {
        self.on_wait = OnWait(Some(Arc::new(tell)));
        self
    }

    /// Says that the caller works under this guard, and keeps it while it waits; several calls name several. Then a wait that
    /// would never end is found: of callers that wait for each other's locks, the one that came last is answered
    /// [`AcquireError::Deadlock`] within some two seconds. The others are runs of `tenure run`, programs with this library, and
    /// other threads and tasks of this one.
    ///
    /// No call knows by itself which thread or task needs which guard, so a guard that nobody names ends no wait. The holds of a
    /// `tenure run` around the program count by themselves, and so do those that [`LockManager::acquire_all`] has already, if
    /// the caller names a guard.
    ///
    /// Guards of [`LockManager::with_store`] are not seen: no other caller could find them.
    ///
    /// # Examples
    /// ```
    /// use tenure::guard::{AcquireError, Options, Wait};
    /// # let locks = tenure::testing::locks();
    /// let source = locks.acquire("accounts")?;
    /// match locks.acquire_with("ledger", &Options::new().wait(Wait::Forever).under(&source)) {
    ///     Ok(_ledger) => println!("both"),
    ///     // Another caller has the ledger and waits for the accounts. It goes on once they are free.
    ///     Err(AcquireError::Deadlock { .. }) => drop(source),
    ///     Err(error) => return Err(error),
    /// }
    /// # Ok::<(), AcquireError>(())
    /// ```
    pub fn under(mut self, guard: &Guard) -> Self {
        self.under.extend(guard.as_hold());
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
    /// The folder of the locks, if the manager was made for one.
    folder: Option<PathBuf>,
    policy: Policy,
    clock: Box<dyn Clock + Send + Sync>,
    identity: Identity,
    /// The host of that identity, shared by all its claims.
    here: Arc<tenure_core::Host>,
    /// The process that made the manager.
    pid: u32,
    image: Image,
    /// Where other programs find the locks; `None` for a store that only this program knows.
    told: Option<PlaceForOthers>,
    /// Only the process that made the manager draws from them ([`Shared::is_here`]).
    ids: Mutex<RequestIds>,
    /// The name of the program, for holds without another reason. It stays what it was at the start.
    program: OnceLock<String>,
    watching: Watching,
    /// Whether a [`Cancel`] ends the store's own sleep.
    hears_cancel: bool,
    pending: NewHolds<Hold, Ringer>,
    /// The holds, by lock and token.
    held: Mutex<BTreeMap<(LockName, u64), Weak<Hold>>>,
    /// The releases that go on by themselves.
    releases: Releases,
    /// The lines in which callers stand before they enter the store.
    lines: Arc<Lines>,
    /// The threads of those that brought none.
    pool: Pool,
    deadlines: Deadlines<Due>,
    /// Two threads for wakers and for the log, on behalf of threads that have heartbeats to send.
    wakes: Herald,
    logs: Herald,
    /// Where its events are recorded, once the program asked for that.
    audit: Audit,
}

impl LockManager {
    /// The locks in a folder, which the first acquire makes.
    ///
    /// # Errors
    /// - [`OpenError::Folder`] if its path cannot be made absolute.
    pub fn new(folder: impl AsRef<Path>) -> Result<Self, OpenError> {
        Self::in_folder(folder.as_ref(), Named::ByCaller, PlaceForOthers::at)
    }

    fn in_folder(
        folder: &Path,
        named: Named,
        told: impl FnOnce(At) -> PlaceForOthers,
    ) -> Result<Self, OpenError> {
        // A later change of the working folder makes no difference.
        let folder = std::path::absolute(folder);
        let folder = folder.map_err(|source| OpenError::Folder { source })?;
        let identity = Identity::current();
        let told = told(At::Folder(folder.clone()));
        let store = FileStore::for_program(&folder).rooted();
        #[cfg(feature = "full")]
        let store = store.asking(config::is_machines_folder);
        let store = match named {
            Named::ByCaller => store,
            Named::ByNobody => store.found(),
        };
        let store = if told.is_machines {
            store.of_machine()
        } else {
            store
        };
        let clock = SystemClock::new(identity.host.boot_id.as_deref());
        Ok(Self::made(Made {
            store: Arc::new(store),
            image: Image::present(&clock),
            folder: Some(folder),
            clock: Box::new(clock),
            identity,
            watching: Watching::Files,
            hears_cancel: true,
            told: Some(told),
        }))
    }

    /// The folder of the locks: of a manager of [`LockManager::new`], or of [`LockManager::open`], which finds it. `None` for
    /// locks on servers and in a store that the program brought.
    pub fn folder(&self) -> Option<&Path> {
        self.shared.folder.as_deref()
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
            image: Image::present(&clock),
            folder: None,
            clock: Box::new(clock),
            identity,
            watching: Watching::Looks(LOOK),
            hears_cancel: true,
            told: Some(PlaceForOthers::at(At::Url(address.to_string()))),
        }))
    }

    /// The locks of any other store, by its own policy. The manager polls for a cancelled wait and for
    /// a request to stop, so they take some moments longer than with [`LockManager::new`].
    ///
    /// # Examples
    /// A folder on a file system whose locks work between its machines, as its administrator knows and tenure does not:
    /// ```
    /// use tenure::guard::LockManager;
    /// use tenure::store::file::FileStore;
    /// # let scratch = tempfile::tempdir()?;
    /// # let folder = scratch.path();
    /// let store = FileStore::for_program(folder).allow_network(true);
    /// let locks = LockManager::with_store(store);
    /// let guard = locks.acquire("deploy")?;
    /// # guard.release()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn with_store(store: impl Store + 'static) -> Self {
        let identity = Identity::current();
        let clock = SystemClock::new(identity.host.boot_id.as_deref());
        Self::made(Made {
            store: Arc::new(store),
            image: Image::present(&clock),
            folder: None,
            clock: Box::new(clock),
            identity,
            watching: Watching::Looks(LOOK),
            hears_cancel: false,
            told: None,
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
            image: Image::always(),
            folder: None,
            clock: Box::new(clock),
            identity,
            watching: Watching::Always(look),
            hears_cancel: false,
            told: None,
        })
    }

    fn made(made: Made) -> Self {
        let shared = Arc::new(Shared {
            policy: made.store.rules().policy,
            pool: Pool::new(made.store.rules().network),
            store: made.store,
            folder: made.folder,
            clock: made.clock,
            here: Arc::new(made.identity.host.clone()),
            identity: made.identity,
            pid: std::process::id(),
            image: made.image,
            told: made.told,
            ids: Mutex::default(),
            program: OnceLock::new(),
            watching: made.watching,
            hears_cancel: made.hears_cancel,
            pending: NewHolds::default(),
            held: Mutex::default(),
            releases: Releases::default(),
            lines: Arc::default(),
            deadlines: Deadlines::default(),
            wakes: Herald::new("tenure-wakes"),
            logs: Herald::new("tenure-logs"),
            audit: Audit::default(),
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
        let wait = self.patience(options);
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
    pub fn acquire_all(
        &self,
        names: impl IntoIterator<Item: AsRef<str>>,
        options: &Options,
    ) -> Result<Guards, AcquireError> {
        self.take_all(all_named(names)?, options)
    }

    fn take_all(&self, names: Vec<LockName>, options: &Options) -> Result<Guards, AcquireError> {
        let (wait, began) = (self.patience(options), self.shared.clock.instant());
        let mut guards = Guards::default();
        let mut options = Cow::Borrowed(options);
        for name in in_order(names) {
            let rest = self.shared.rest(wait, began);
            let taken = self.take(name, &options, rest);
            let guard = taken.map_err(|error| told(wait, error))?;
            circle::goes_on_under(&mut options, &guard);
            guards.push(guard);
        }
        Ok(guards)
    }

    /// [`LockManager::acquire_with`] for async code, on any executor.
    ///
    /// The future owns what it needs, so it can be spawned. Nothing happens before it is polled. Threads of the manager enter the store for it, so the executor is never
    /// blocked ([how many](self#many-callers-of-one-process)). A future that is dropped early leaves the line and the queue,
    /// and releases what it would have acquired. One that is polled and then left gives a grant back after 2 s.
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
    pub fn acquire_async(
        &self,
        name: &str,
        options: &Options,
    ) -> impl Future<Output = Result<Guard, AcquireError>> + Send + use<> {
        // Nothing of the caller's is borrowed, so the future may be spawned.
        let asked = AsyncCall {
            locks: self.clone(),
            name: name.to_owned(),
            options: options.for_async(),
        };
        Box::new(asked).take()
    }

    /// [`LockManager::acquire_all`] for async code; see [`LockManager::acquire_async`].
    ///
    /// # Errors
    /// - As [`LockManager::acquire_all`].
    pub fn acquire_all_async(
        &self,
        names: impl IntoIterator<Item: AsRef<str>>,
        options: &Options,
    ) -> Pin<Box<dyn Future<Output = Result<Guards, AcquireError>> + Send>> {
        let (locks, options, names) = (self.clone(), options.clone(), all_named(names));
        Box::pin(async move { locks.take_all_async(names?, &options).await })
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

    fn patience(&self, options: &Options) -> Wait {
        options
            .wait
            .unwrap_or(match self.shared.policy.held_unforced {
                HeldUnforced::WaitMs(millis) => Wait::For(Duration::from_millis(millis)),
                HeldUnforced::Refuse => Wait::No,
            })
    }

    /// Enters the store, and waits there on this thread: for a caller whose turn it is.
    fn enter(
        &self,
        name: &LockName,
        options: &Options,
        call: &Call,
    ) -> Result<Guard, AcquireError> {
        let enters = self.enter_in(None, name, options, call);
        cancel::listening(options.cancel.as_ref(), || offload::at_once(enters))
    }

    /// [`LockManager::enter`] for a caller that waits in a lot. The thread that polls it listens to the caller's [`Cancel`].
    async fn enter_in(
        &self,
        lot: Option<&dyn Lot>,
        name: &LockName,
        options: &Options,
        call: &Call,
    ) -> Result<Guard, AcquireError> {
        let began = instant();
        let stood = call.stood(&self.shared);
        let entered = self.try_enter_in(lot, name, options, call).await;
        if let Err(error) = &entered {
            let waited = stood + since(began);
            audit::refused(&self.shared, name, (options, call.mode), error, waited);
        }
        entered
    }

    async fn try_enter_in(
        &self,
        lot: Option<&dyn Lot>,
        name: &LockName,
        options: &Options,
        call: &Call,
    ) -> Result<Guard, AcquireError> {
        let (shared, mode, lock) = (&self.shared, call.mode, name);
        let name = name.clone();
        if options.cancel.as_ref().is_some_and(Cancel::is_cancelled) {
            return Err(AcquireError::Cancelled { name });
        }
        if options.again == Again::Reenter
            && let Some(guard) = shared.again(&name, mode)
        {
            return Ok(guard.for_async(options.is_async));
        }
        // Without a look at the store: many that are refused would keep others from the list.
        if options.again != Again::Wait
            && let Some(own) = shared.held_against(&name, mode)
        {
            return Err(AcquireError::HeldByThisProcess {
                name,
                token: Some(own),
                again: options.again,
            });
        }
        let request = match shared.request(options, mode) {
            Ok(request) => request,
            Err(source) => return Err(AcquireError::Store { name, source }),
        };
        // What this process gives back by itself is no reason to refuse it.
        let began = instant();
        let rest = call.rest(call.stood(shared)).limit();
        let most = rest.map_or(releases::WAIT_MAX, |rest| rest.min(releases::WAIT_MAX));
        shared.releases.settle(Some(&name), began.checked_add(most));
        let settled = since(began);
        let mut attendance = Attendance {
            shared,
            name: lock,
            options,
            call,
            told: false,
            ticket: None,
            circle: None,
            gave_way: None,
            behind: None,
        };
        let stood = call.stood(shared) + settled;
        let (store, clock) = (&*shared.store, &*shared.clock);
        let limits = call.rest(stood).into();
        let acquired =
            engine::acquire_in(lot, store, clock, &name, request, limits, &mut attendance).await;
        let (gave_way, ticket) = (attendance.gave_way.take(), attendance.ticket);
        let behind = attendance.behind.take();
        let acquired = match acquired {
            Ok(acquired) => acquired,
            Err(error) => {
                // Another caller of this process was first, and its hold is the one to go on under.
                if options.again == Again::Reenter
                    && matches!(gave_way, Some(AcquireError::HeldByThisProcess { .. }))
                    && let Some(guard) = shared.again(&name, mode)
                {
                    return Ok(guard.for_async(options.is_async));
                }
                return Err(gave_way.unwrap_or_else(|| {
                    call.told(shared.explain(name, options.again, (mode, ticket), error))
                }));
            }
        };
        let waited = stood + acquired.waited;
        log::acquired(&name, &acquired.claim, &acquired.events, waited);
        audit::acquired(shared, &name, &acquired, waited, behind.as_ref());
        // A handle comes with every grant that is not an earlier hold of the same request id, and
        // this one is new.
        let Some(handle) = acquired.handle else {
            return Err(AcquireError::HeldByThisProcess {
                name,
                token: acquired.claim.token,
                again: options.again,
            });
        };
        let died = has_died(&acquired.events);
        let kept = self.keep(name.clone(), handle, acquired.claim, died);
        kept.map(|guard| guard.for_async(options.is_async))
            .map_err(|source| AcquireError::Thread { name, source })
    }

    /// The guard of a hold that this process has from now on.
    ///
    /// # Errors
    /// - The system's, if it gives no thread. The hold was given back.
    fn keep(
        &self,
        name: LockName,
        handle: Box<dyn Handle>,
        claim: Claim,
        previous_died: bool,
    ) -> std::io::Result<Guard> {
        let shared = &self.shared;
        let mut hold = Hold::new(Arc::clone(shared), handle, name.clone(), claim);
        hold.previous_died = previous_died;
        let hold = Arc::new(hold);
        let guard = Guard::first(Arc::clone(&hold));
        let key = (name, hold.token());
        locked(&shared.held).insert(key, Arc::downgrade(&hold));
        keep::keep(shared, &hold)?;
        Ok(guard)
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
    folder: Option<PathBuf>,
    clock: Box<dyn Clock + Send + Sync>,
    identity: Identity,
    watching: Watching,
    hears_cancel: bool,
    image: Image,
    told: Option<PlaceForOthers>,
}

fn all_named(names: impl IntoIterator<Item: AsRef<str>>) -> Result<Vec<LockName>, AcquireError> {
    let names = names.into_iter();
    names.map(|name| named(name.as_ref())).collect()
}

fn named(name: &str) -> Result<LockName, AcquireError> {
    LockName::new(name).map_err(|source| AcquireError::Name {
        name: name.to_owned(),
        source,
    })
}

impl Home for Shared {
    type Hold = Hold;

    fn clock(&self) -> &dyn Clock {
        &*self.clock
    }

    fn watching(&self) -> &Watching {
        &self.watching
    }

    fn moves(&self) -> u64 {
        self.store.moves()
    }

    fn pending(&self) -> &NewHolds<Hold, Ringer> {
        &self.pending
    }
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
        let request_id = self.new_request_id()?;
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

    /// The holds of a lock that this manager has.
    fn own(&self, name: &LockName) -> Vec<Arc<Hold>> {
        let held = locked(&self.held);
        let own = held.range((name.clone(), 0)..=(name.clone(), u64::MAX));
        own.filter_map(|(_, hold)| hold.upgrade()).collect()
    }

    /// Whether this manager has a hold of a lock, and no release of it has begun.
    fn holds(&self, name: &LockName) -> bool {
        self.own(name).iter().any(|hold| hold.is_held())
    }

    /// The token of a hold of this manager beside which none of `mode` can stand, whoever else holds. Its guard shows that
    /// it is held.
    fn held_against(&self, name: &LockName, mode: Mode) -> Option<u64> {
        let own = self.own(name);
        let mut blocks = own.iter().filter(|hold| !mode.holds_beside(hold.mode));
        let held = blocks.find(|hold| hold.is_held())?;
        Some(held.token())
    }

    /// Another guard of this manager's hold, if that covers `mode`.
    fn again(&self, name: &LockName, mode: Mode) -> Option<Guard> {
        let own = self.own(name);
        let covers = |hold: &&Arc<Hold>| hold.mode == Mode::Exclusive || hold.mode == mode;
        own.iter().filter(covers).find_map(Guard::again)
    }

    /// Removes a hold that has ended.
    fn forget(&self, name: &LockName, token: u64) {
        locked(&self.held).remove(&(name.clone(), token));
    }

    /// Whether a claim names this process. An earlier program may have made it, which this one has replaced by an exec.
    fn is_in_our_name(&self, claim: &Claim) -> bool {
        let own = &self.identity;
        process::names(&claim.holder, own.process, &own.host)
    }

    /// Whether a claim in the name of this process is one of this program. Where the kernel keeps claims alive, the byte of
    /// an earlier program's claim went with its exec; another copy of this library in the program has its own.
    fn is_of_this_program(&self, name: &LockName, claim: &Claim) -> bool {
        self.image.has(claim)
            || (!self.store.rules().leased
                && self.store.read(name, None).is_ok_and(|reading| {
                    let seen = reading.evidence_of(claim);
                    seen.is_some_and(|seen| seen.liveness_lock == LivenessLock::Held)
                }))
    }

    /// When a hold in the name of this process is free that an earlier program has left on servers.
    fn left_by_earlier(&self, name: &LockName, claim: &Claim) -> Option<Duration> {
        let is_left = self.is_in_our_name(claim) && !self.is_of_this_program(name, claim);
        let boot = self.identity.host.boot_id.as_deref();
        let rest = || claim.lease.remaining_ms(boot, &self.clock.now());
        (is_left && self.store.rules().leased).then(|| Duration::from_millis(rest()))
    }

    /// Whether this process may have a descriptor that keeps a hold from before: it is a copy made by a fork, or was handed a
    /// hold.
    fn may_keep_earlier(&self) -> bool {
        cfg!(target_os = "linux")
            && (self.image.pid != self.pid || !inherited::handed_on().is_empty())
            && !self.store.rules().leased
    }

    /// A hold of a process that has ended, or of the program before this one, that this process keeps by a descriptor. It
    /// ends with this process alone, so a wait for it would never end.
    fn kept_from_before<'a>(&self, name: &LockName, entry: &'a Entry) -> Option<&'a Claim> {
        if !self.may_keep_earlier() {
            return None;
        }
        let file = self.store.location(name).file?;
        let is_from_before = |claim: &Claim| {
            let (theirs, here) = (&claim.holder, &self.identity.host);
            if self.is_in_our_name(claim) {
                let is_handed = inherited::handed_on().contains(theirs.request_id.as_str());
                return is_handed && !self.image.has(claim);
            }
            let seen = (theirs.process).map(|it| process::liveness(&it, &theirs.host, here, true));
            matches!(seen, Some(Liveness::Dead(_)))
        };
        let mut held = entry.granted();
        held.find(|claim| {
            let is_kernels = claim.kind == Kind::Kernel;
            is_kernels && is_from_before(claim) && is_kept_by(self.pid, &file, claim.ticket)
        })
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
        let is_ours = |claim: &&Claim| {
            self.is_in_our_name(claim)
                && !claim
                    .token
                    .is_some_and(|token| self.releases.has(name, token))
                && self.is_of_this_program(name, claim)
        };
        match mode {
            Mode::Exclusive => entry.granted().find(is_ours),
            // The end of another hold would do, unless one of ours is exclusive or of another number of slots. Slots are what
            // tasks of one process share: one that has its slot gives it back, whatever the others wait for.
            Mode::Shared | Mode::Slots(_) => {
                let blocks = |claim: &&Claim| is_ours(claim) && !mode.holds_beside(claim.mode);
                let all_ours = || {
                    let first = entry.granted().next().filter(|_| mode == Mode::Shared);
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
                if let Some(Claim { token, .. }) = self.kept_from_before(&name, &entry) {
                    let token = *token;
                    return AcquireError::HeldFromBefore { name, token };
                }
                if again != Again::Wait
                    && let Some(own) = self.own_blocker(&name, &entry, mode, ticket)
                {
                    let token = own.token;
                    return AcquireError::HeldByThisProcess { name, token, again };
                }
                let before_restart =
                    (entry.granted()).find_map(|it| self.left_by_earlier(&name, it));
                let reason = refusal.reason;
                let unreadable_because = match reason {
                    Reason::Unreadable => self.what_is_wrong(&name),
                    Reason::Held
                    | Reason::StaleNeedsForce
                    | Reason::NeedsConfirmation
                    | Reason::QueueFull
                    | Reason::Unknown => None,
                };
                let blocker = refusal.blocker.as_deref();
                let stopped = if self.store.rules().network {
                    Vec::new()
                } else {
                    process::stopped_among(entry.granted().chain(blocker), &self.identity.host)
                };
                let refused = Box::new(Refused {
                    is_own: blocker.is_some_and(|claim| {
                        self.is_in_our_name(claim) && self.is_of_this_program(&name, claim)
                    }),
                    place: self.store.location(&name).shown,
                    name,
                    policy: self.policy,
                    refusal: *refusal,
                    entry: *entry,
                    seen: self.clock.now(),
                    unreadable_because,
                    stopped,
                    waited,
                    retry_after: before_restart.unwrap_or(Duration::from_millis(retry_after_ms)),
                    before_restart,
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
            // A guard asks for no reserved place, and an observer that is the deadlock victim has kept its own
            // error.
            engine::AcquireError::Interrupted
            | engine::AcquireError::NotKept
            | engine::AcquireError::Deadlock => AcquireError::Cancelled { name },
        }
    }
}

/// Whether a grant took the lock over from a holder that had died.
fn has_died(events: &[Event]) -> bool {
    events.iter().any(|event| {
        matches!(
            event,
            Event::Stolen { why: Takeover::Stale(_), previous: Some(claim), .. }
                if claim.token.is_some() && !ends_without_release(claim)
        )
    })
}

#[cfg(target_os = "linux")]
fn is_kept_by(pid: u32, file: &Path, ticket: u64) -> bool {
    crate::store::file::is_kept_by(pid, file, ticket).unwrap_or(false)
}

/// Here the kernel does not show who keeps a lock.
#[cfg(not(target_os = "linux"))]
fn is_kept_by(_: u32, _: &Path, _: u64) -> bool {
    false
}

/// Looks at the list while a caller waits.
struct Attendance<'a> {
    shared: &'a Shared,
    name: &'a LockName,
    options: &'a Options,
    call: &'a Call,
    told: bool,
    /// Ticket of the caller's claim, once there is one.
    ticket: Option<u64>,
    /// Finds a circle of waits, for a caller that works under a hold.
    circle: Option<Circle<'a>>,
    gave_way: Option<AcquireError>,
    /// What it stood behind when the wait began, for the audit.
    behind: Option<Behind>,
}

impl Observer for Attendance<'_> {
    fn waiting(&mut self, waiting: &Waiting<'_>) -> Option<Instant> {
        if self.shared.audit.is_on() {
            self.behind.get_or_insert_with(|| Behind {
                holder: waiting.front().cloned(),
                waiting: waiting.before(),
            });
        }
        if self.ticket.replace(waiting.ticket).is_none() {
            self.circle = circle::of(self.shared, self.name, &self.options.under);
        }
        let looks = self.options.cancel.is_some() && !self.shared.hears_cancel;
        let looks = looks.then_some(CANCEL_LOOK);
        // Nothing tells that the process has ended of which this one is a copy.
        let looks = looks.or(self.shared.may_keep_earlier().then_some(KEPT_LOOK));
        let looks = looks.or(self.circle.as_ref().map(|_| circle::LOOK));
        looks.map(|look| instant() + look)
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
        } else if let Some(kept) = self.shared.kept_from_before(self.name, waiting.entry) {
            self.gave_way = Some(AcquireError::HeldFromBefore {
                name: name(),
                token: kept.token,
            });
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
                again: options.again,
            });
        } else if let Some(token) = outer_run(self.shared, self.name, waiting.entry) {
            self.gave_way = Some(AcquireError::HeldByOuterRun {
                name: name(),
                token,
            });
        } else if let Some(circle) = &mut self.circle
            && circle.gives_way(waiting)
        {
            self.gave_way = Some(AcquireError::Deadlock { name: name() });
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
    let inherited = std::env::var(inherited::HELD).ok()?;
    let place = shared.store.location(name).shown;
    let here = &shared.identity.host;
    let is_below = |claim: &Claim| {
        let above = claim
            .holder
            .process
            .filter(|above| *above != shared.identity.process);
        above.is_some_and(|above| process::is_descendant_of(&above, &claim.holder.host, here))
    };
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
