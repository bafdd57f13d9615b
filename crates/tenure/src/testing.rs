//! For tests of programs that use locks: locks in memory, simulated other processes, and a clock
//! that the test moves.
//!
//! ```
//! use std::time::Duration;
//! use tenure::guard::{AcquireError, GuardState};
//! use tenure::testing::Scene;
//!
//! let scene = Scene::new();
//! let theirs = scene.another_process().acquire("deploy")?;
//! let refused = scene.locks().try_acquire("deploy").expect_err("it is held");
//! assert!(matches!(refused, AcquireError::Held(_)));
//!
//! // A wait of ten seconds ends when the test moves the clock.
//! let waiter = std::thread::spawn({
//!     let locks = scene.locks();
//!     move || locks.acquire_timeout("deploy", Duration::from_secs(10))
//! });
//! scene.until_waiting("deploy", 1);
//! scene.clock().advance(Duration::from_secs(10));
//! assert!(matches!(waiter.join().expect("it ends"), Err(AcquireError::Held(_))));
//!
//! // The work is asked to end, or loses its lock.
//! scene.ask_to_stop("deploy")?;
//! scene.until(|| theirs.state() == GuardState::StopRequested);
//! scene.take_away("deploy")?;
//! scene.until(|| theirs.is_lost());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Locks in memory cannot show the death of a process, nor other programs. For these, use
//! [`LockManager::new`] with a folder that the test makes, and processes that it kills.

use crate::clock::{Clock, instant, since};
use crate::guard::LockManager;
use crate::process::Identity;
use crate::store::contract::{
    Ask, Draft, Handle, Location, Outcome, Rules, Step, Store, Waiting, Which,
};
use crate::store::memory::MemoryStore;
use crate::store::verbs::Verbs;
use crate::store::{Reading, StoreError, Wake};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};
use tenure_core::{Entry, LockName, NameError, Now, Ownership, Policy, Process};

/// How often a sleep by the manual clock checks whether the test has moved that clock.
const NAP: Duration = Duration::from_millis(2);

/// A manager of locks in memory, by the machine's clock. Each call makes locks of its own.
pub fn locks() -> LockManager {
    LockManager::with_store(MemoryStore::new(Policy::NATIVE))
}

/// A clock that stands still until the test moves it. Clones share one time.
#[derive(Debug, Clone)]
pub struct ManualClock {
    began: Instant,
    passed: Arc<Mutex<Duration>>,
}

/// What the manual clock shows in the beginning: 2026-01-01, in microseconds since the epoch.
const BEGINNING_US: u64 = 1_767_225_600_000_000;

impl ManualClock {
    /// A clock that shows the beginning of 2026.
    pub fn new() -> Self {
        Self {
            began: instant(),
            passed: Arc::default(),
        }
    }

    /// Lets time pass.
    pub fn advance(&self, time: Duration) {
        let mut passed = self.passed.lock().unwrap_or_else(PoisonError::into_inner);
        *passed = passed.saturating_add(time);
    }

    /// How much has passed.
    pub fn passed(&self) -> Duration {
        *self.passed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for ManualClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Now {
        let passed = self.passed();
        let micros = u64::try_from(passed.as_micros()).unwrap_or(u64::MAX);
        Now {
            wall_us: BEGINNING_US.saturating_add(micros),
            boot_ms: micros / 1_000,
            boot_id: "a-boot-of-the-manual-clock".into(),
        }
    }

    fn instant(&self) -> Instant {
        self.began + self.passed()
    }
}

/// Locks in memory, shared by processes that the scene simulates.
#[derive(Debug)]
pub struct Scene {
    clock: ManualClock,
    store: MemoryStore,
    processes: AtomicU32,
    own: OnceLock<LockManager>,
    /// All of them: some of their callers wait in no list, but in line before it.
    managers: Mutex<Vec<LockManager>>,
}

impl Default for Scene {
    fn default() -> Self {
        Self::new()
    }
}

impl Scene {
    /// A scene in which nothing is held.
    pub fn new() -> Self {
        Self {
            clock: ManualClock::new(),
            store: MemoryStore::new(Policy::NATIVE),
            processes: AtomicU32::new(1),
            own: OnceLock::new(),
            managers: Mutex::default(),
        }
    }

    /// The clock of all its processes.
    pub fn clock(&self) -> &ManualClock {
        &self.clock
    }

    /// The locks as this process sees them.
    pub fn locks(&self) -> LockManager {
        self.own
            .get_or_init(|| self.manager(Identity::current()))
            .clone()
    }

    /// The locks as a new process sees them.
    pub fn another_process(&self) -> LockManager {
        let number = self.processes.fetch_add(1, Ordering::Relaxed);
        let mut identity = Identity::current();
        // Above every process number that a system gives.
        identity.process = Process {
            pid: (1 << 30) + number,
            started: Some(u64::from(number)),
        };
        self.manager(identity)
    }

    fn manager(&self, mut identity: Identity) -> LockManager {
        identity.host.boot_id = Some(self.clock.now().boot_id.to_string());
        let store = Patient {
            store: self.store.clone(),
            clock: self.clock.clone(),
        };
        let manager = LockManager::with_clock(store, self.clock.clone(), identity, NAP);
        let mut managers = self.managers.lock().unwrap_or_else(PoisonError::into_inner);
        managers.push(manager.clone());
        manager
    }

    /// Asks the holder of a lock to stop, as `tenure cancel` does.
    ///
    /// # Errors
    /// - [`NameError`] if the name cannot be the name of a lock.
    pub fn ask_to_stop(&self, name: &str) -> Result<(), NameError> {
        let name = LockName::new(name)?;
        // Locks in memory do not fail.
        let _ = self
            .store
            .cancel(&name, "somebody".into(), None, &self.clock.now());
        Ok(())
    }

    /// Takes a lock away from its holder, as the removal of its file does.
    ///
    /// # Errors
    /// - [`NameError`] if the name cannot be the name of a lock.
    pub fn take_away(&self, name: &str) -> Result<(), NameError> {
        let name = LockName::new(name)?;
        let now = self.clock.now();
        let _ = self.store.release_owned(&name, &|_| Ownership::Shown, &now);
        Ok(())
    }

    /// Waits, by the machine's clock, until this many callers wait for a lock.
    ///
    /// # Panics
    /// - After ten seconds.
    pub fn until_waiting(&self, name: &str, waiters: usize) {
        self.until(|| {
            let Ok(name) = LockName::new(name) else {
                return false;
            };
            let managers = self.managers.lock().unwrap_or_else(PoisonError::into_inner);
            let in_line: usize = managers.iter().map(|locks| locks.in_line(&name)).sum();
            let reading = self.store.read(&name, None).ok();
            let entry = reading.as_ref().and_then(Reading::entry);
            let in_list = |entry: &Entry| entry.claims.len() - entry.granted().count();
            entry.is_some_and(|entry| in_list(entry) + in_line == waiters)
        });
    }

    /// Waits, by the machine's clock, until `is_so` holds.
    ///
    /// # Panics
    /// - After ten seconds.
    #[track_caller]
    pub fn until(&self, is_so: impl Fn() -> bool) {
        let began = instant();
        while !is_so() {
            assert!(
                since(began) < Duration::from_secs(10),
                "it was not so within ten seconds"
            );
            tenure_os::clock::nap(NAP);
        }
    }
}

/// Locks in memory whose waiters sleep by the manual clock.
struct Patient {
    store: MemoryStore,
    clock: ManualClock,
}

impl Patient {
    /// Sleeps a short time by the machine's clock, and answers what that means by the manual one.
    fn by_clock(
        &self,
        until: Option<Instant>,
        sleep: impl FnOnce(Instant) -> Result<Wake, StoreError>,
    ) -> Result<Wake, StoreError> {
        let is_over = || until.is_some_and(|until| until <= self.clock.instant());
        if is_over() {
            return Ok(Wake::Expired);
        }
        Ok(match sleep(instant() + NAP)? {
            Wake::Expired if is_over() => Wake::Expired,
            // The caller should look again: time may have passed.
            Wake::Expired | Wake::Ready => Wake::Ready,
            Wake::Interrupted => Wake::Interrupted,
        })
    }
}

impl Store for Patient {
    fn rules(&self) -> &Rules {
        self.store.rules()
    }

    fn location(&self, name: &LockName) -> Location {
        self.store.location(name)
    }

    fn read(&self, name: &LockName, of: Option<&dyn Handle>) -> Result<Reading, StoreError> {
        self.store.read(name, of)
    }

    fn transact(
        &self,
        ask: &Ask<'_>,
        change: &mut dyn FnMut(&mut Draft<'_>) -> Step,
    ) -> Result<Outcome, StoreError> {
        self.store.transact(ask, change)
    }

    fn wait(&self, waiting: &Waiting<'_>, until: Option<Instant>) -> Result<Wake, StoreError> {
        self.by_clock(until, |nap| self.store.wait(waiting, Some(nap)))
    }

    fn names(&self, which: Which, each: &mut dyn FnMut(LockName)) -> Result<(), StoreError> {
        self.store.names(which, each)
    }
}
