//! The memory store: the same lists of claims under one mutex, for tests and models.
//!
//! A set of *held* tickets stands for kernel locks, and a condition variable wakes sleeping callers. The
//! transitions are the core's, so what is true of a queue here is true of it in a file. A test sets what
//! the machine would say of a recorded process with [`MemoryStore::set_process`].
//!
//! # Examples
//! ```
//! # mod tenure { pub use tenure_core as model; pub use tenure_store as store; }
//! use tenure::model::{LockName, Now, Policy};
//! use tenure::store::{Store, memory::MemoryStore};
//!
//! let store = MemoryStore::new(Policy::NATIVE);
//! let reading = store.read(&LockName::new("deploy")?, None)?;
//! assert!(reading.entry().is_some_and(|entry| entry.claims.is_empty()));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! What it leaves to others: callers in other processes, and crashes. The whole store dies with its
//! process.

use super::contract::{
    About, Ask, Committed, Depth, Draft, Handle, Location, Outcome, Rules, Step, Store, Waiting,
    Which, Write, own,
};
use super::{Content, Reading, StoreError, Wake};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tenure_core::{
    Claim, Entry, Evidence, Kind, Liveness, LivenessLock, LockName, Now, Policy, Predecessor,
    Process, Standing, judge,
};
use tenure_os::clock::instant;

/// How long a sleep behind a record lasts at most before the caller looks at its clock again. A lease
/// ends by the caller's clock, which this store does not know.
const RECORD_NAP_MAX: Duration = Duration::from_millis(100);

/// Locks kept in memory. A clone is another caller of the same locks.
#[derive(Debug, Clone)]
pub struct MemoryStore {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    rules: Rules,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    locks: BTreeMap<LockName, Lock>,
    /// The highest number of all removed locks.
    floor: u64,
    processes: BTreeMap<u32, Liveness>,
    stopped: BTreeSet<u32>,
    /// How many handles there were.
    handles: u64,
}

#[derive(Debug, Clone, Default)]
struct Lock {
    entry: Entry,
    /// The tickets whose liveness locks are held, and the number of the handle that holds each. A
    /// reserved place has one handle after another, and only the present one can release it.
    held: BTreeMap<u64, u64>,
}

impl State {
    fn is_held(&self, name: &LockName, ticket: u64) -> bool {
        self.locks
            .get(name)
            .is_some_and(|lock| lock.held.contains_key(&ticket))
    }

    fn release(&mut self, claim: &MemoryHandle) {
        if let Some(lock) = self.locks.get_mut(&claim.name)
            && lock.held.get(&claim.ticket) == Some(&claim.number)
        {
            lock.held.remove(&claim.ticket);
        }
    }

    /// Whether a test said that the process of a claim is stopped.
    fn is_stopped(&self, claim: &Claim) -> bool {
        let process = claim.holder.process;
        process.is_some_and(|process| self.stopped.contains(&process.pid))
    }

    /// What is known of a claim.
    fn evidence(&self, name: &LockName, claim: &Claim) -> Evidence {
        let has_liveness_lock = claim.kind == Kind::Kernel || claim.token.is_none();
        let liveness_lock = match (has_liveness_lock, self.is_held(name, claim.ticket)) {
            (false, _) => LivenessLock::None,
            (true, true) => LivenessLock::Held,
            (true, false) => LivenessLock::Released,
        };
        let ask = |process: Option<&Process>| {
            process.map_or(Liveness::NotRecorded, |process| {
                let known = self.processes.get(&process.pid).copied();
                known.unwrap_or(Liveness::Unknown)
            })
        };
        Evidence {
            liveness_lock,
            process: ask(claim.holder.process.as_ref()),
            command: ask(claim.holder.command.as_ref()),
        }
    }
}

/// A claim. Dropping it is dying.
#[derive(Debug)]
struct MemoryHandle {
    shared: Arc<Shared>,
    name: LockName,
    ticket: u64,
    number: u64,
}

impl Handle for MemoryHandle {
    fn name(&self) -> &LockName {
        &self.name
    }

    fn ticket(&self) -> u64 {
        self.ticket
    }

    fn let_go(&self) {
        self.shared.lock().release(self);
        self.shared.changed.notify_all();
    }
}

impl Drop for MemoryHandle {
    fn drop(&mut self) {
        self.let_go();
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // Every change below is one assignment at its end. So a caller that panicked before it has left
        // a whole state behind.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl MemoryStore {
    /// An empty store that judges and decides by `policy`.
    pub fn new(policy: Policy) -> Self {
        Self {
            shared: Arc::new(Shared {
                rules: Rules::local(policy),
                state: Mutex::default(),
                changed: Condvar::new(),
            }),
        }
    }

    /// Sets what is known of the process with this number from now on, and wakes every sleeper. A
    /// process that was never set is [`Liveness::Unknown`].
    pub fn set_process(&self, pid: u32, liveness: Liveness) {
        self.shared.lock().processes.insert(pid, liveness);
        self.shared.changed.notify_all();
    }

    /// Sets whether the process with this number is stopped from now on. Unless it is set, no process is
    /// stopped.
    pub fn set_stopped(&self, pid: u32, stopped: bool) {
        let mut state = self.shared.lock();
        if stopped {
            state.stopped.insert(pid);
        } else {
            state.stopped.remove(&pid);
        }
        drop(state);
        self.shared.changed.notify_all();
    }

    /// Sleeps while `same` is true, at most for `nap` and until `until`.
    fn sleep_while(
        &self,
        nap: Option<Duration>,
        until: Option<Instant>,
        mut same: impl FnMut(&State) -> bool,
    ) -> Wake {
        let nap_ends = nap.and_then(|nap| instant().checked_add(nap));
        let mut state = self.shared.lock();
        while same(&state) {
            let present = instant();
            if until.is_some_and(|until| until <= present) {
                return Wake::Expired;
            }
            if nap_ends.is_some_and(|ends| ends <= present) {
                return Wake::Ready;
            }
            let changed = &self.shared.changed;
            state = match [until, nap_ends].into_iter().flatten().min() {
                None => changed.wait(state).unwrap_or_else(PoisonError::into_inner),
                Some(end) => {
                    let rest = end.saturating_duration_since(present);
                    let woken = changed.wait_timeout(state, rest);
                    woken.unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
        Wake::Ready
    }

    /// Whether a claim stands as it was seen, and counts.
    fn is_same(&self, state: &State, name: &LockName, claim: &Claim, now: &Now) -> bool {
        let entry = state.locks.get(name).map(|lock| &lock.entry);
        let held = judge(
            &self.shared.rules.policy,
            claim,
            &state.evidence(name, claim),
            now,
        );
        entry.and_then(|entry| entry.claim(claim.ticket)) == Some(claim)
            && matches!(held, Standing::Held(_))
    }

    /// Whether the waiter's predecessor still stands.
    fn stands(&self, state: &State, waiting: &Waiting<'_>) -> bool {
        let Waiting { name, now, .. } = *waiting;
        let is_same = |claim: &Claim| self.is_same(state, name, claim, now);
        match waiting.behind {
            Predecessor::LivenessLock { ticket } => state.is_held(name, *ticket),
            Predecessor::Turn { ticket } => {
                let entry = state.locks.get(name).map(|lock| &lock.entry);
                let claim = entry.and_then(|entry| entry.claim(*ticket));
                claim.is_some_and(|claim| claim.token.is_none()) && state.is_held(name, *ticket)
            }
            Predecessor::Record(claim) => is_same(claim),
            Predecessor::AnyOf(claims) => claims.iter().all(is_same),
            Predecessor::Still { behind, .. } => {
                self.stands(state, &Waiting { behind, ..*waiting })
            }
        }
    }
}

impl Store for MemoryStore {
    fn rules(&self) -> &Rules {
        &self.shared.rules
    }

    fn location(&self, name: &LockName) -> Location {
        Location {
            shown: format!("memory:{name}"),
            file: None,
        }
    }

    fn read(&self, name: &LockName, _of: Option<&dyn Handle>) -> Result<Reading, StoreError> {
        let state = self.shared.lock();
        let lock = state.locks.get(name);
        let entry = lock.map(|lock| lock.entry.clone()).unwrap_or_default();
        let evidence = entry.claims.iter();
        let evidence = evidence.map(|claim| state.evidence(name, claim)).collect();
        let stopped = entry.claims.iter().filter(|claim| state.is_stopped(claim));
        Ok(Reading {
            place: self.location(name).shown,
            stopped: stopped.map(|claim| claim.ticket).collect(),
            stored: lock.is_some(),
            record: Vec::new(),
            content: Content::Whole { entry, evidence },
        })
    }

    fn transact(
        &self,
        ask: &Ask<'_>,
        change: &mut dyn FnMut(&mut Draft<'_>) -> Step,
    ) -> Result<Outcome, StoreError> {
        if let Some(handle) = ask.about.handle() {
            own::<MemoryHandle>(handle, || self.location(ask.name).shown)?;
        }
        let mut state = self.shared.lock();
        let mut lock = match (state.locks.get(ask.name), ask.about) {
            (Some(lock), _) => lock.clone(),
            (None, About::NewClaim { .. }) => {
                let mut fresh = Lock::default();
                fresh.entry.raise(state.floor);
                fresh
            }
            (None, _) => return Ok(Outcome::Absent),
        };
        let evidence = |claim: &Claim, _: Depth| state.evidence(ask.name, claim);
        let mut draft = Draft {
            stopped: &|claim: &Claim| state.is_stopped(claim),
            ..Draft::whole(lock.entry.clone(), &evidence)
        };
        let step = change(&mut draft);
        let mut done = Committed::first(draft);
        let Step::Write(Write { makes, removes, .. }) = step else {
            return Ok(Outcome::Done(done));
        };
        if removes {
            state.floor = state.floor.max(done.entry.last);
            state.locks.remove(ask.name);
            self.shared.changed.notify_all();
            return Ok(Outcome::Done(done));
        }
        if let Some(made) = makes {
            state.handles += 1;
            let number = state.handles;
            if made.liveness {
                lock.held.insert(made.ticket, number);
            }
            done.own = Some(made.ticket);
            done.handle = Some(Box::new(MemoryHandle {
                shared: Arc::clone(&self.shared),
                name: ask.name.clone(),
                ticket: made.ticket,
                number,
            }));
        }
        lock.entry = done.entry.clone();
        state.locks.insert(ask.name.clone(), lock);
        self.shared.changed.notify_all();
        Ok(Outcome::Done(done))
    }

    fn wait(&self, waiting: &Waiting<'_>, until: Option<Instant>) -> Result<Wake, StoreError> {
        let is_asked = |state: &State| {
            let entry = state.locks.get(waiting.name).map(|lock| &lock.entry);
            waiting
                .by
                .is_some_and(|by| entry.is_some_and(|entry| entry.is_cancelled(by.ticket())))
        };
        // A grace and a lease end by the caller's clock.
        let nap = match waiting.behind {
            Predecessor::LivenessLock { .. } | Predecessor::Turn { .. } => None,
            Predecessor::Record(_) | Predecessor::AnyOf(_) | Predecessor::Still { .. } => {
                Some(RECORD_NAP_MAX)
            }
        };
        Ok(self.sleep_while(nap, until, |state| {
            self.stands(state, waiting) && !is_asked(state)
        }))
    }

    fn names(&self, which: Which, each: &mut dyn FnMut(LockName)) -> Result<(), StoreError> {
        if which == Which::Leftovers {
            return Ok(());
        }
        // Collects the names first and shows them without the mutex: the caller may want to read a lock
        // whose name it is shown.
        let names: Vec<LockName> = self.shared.lock().locks.keys().cloned().collect();
        names.into_iter().for_each(each);
        Ok(())
    }
}
