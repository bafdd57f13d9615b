//! The memory store: the same lists of claims under one mutex, for tests and models.
//!
//! What kernel locks do for files, a set of *lit* tickets does here, and a condition variable
//! wakes whoever sleeps. The transitions are the core's, so whatever is true of a queue here is
//! true of it in a file. What the machine would say of a recorded process is told with
//! [`MemoryStore::set_process`].
//!
//! # Examples
//! ```
//! use tenure::tenure_core::{LockName, Now, Policy};
//! use tenure::store::{Store, memory::MemoryStore};
//!
//! let store = MemoryStore::new(Policy::NATIVE);
//! let reading = store.read(&LockName::new("deploy")?)?;
//! assert!(reading.entry().is_some_and(|entry| entry.claims.is_empty()));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! What it leaves to others: callers in other processes, and crashes. A process that dies takes
//! the whole store with it.

use super::{
    Advanced, Cleaned, Content, Entered, ForcedRelease, NewPlace, Reading, RenewedOwned, Store,
    StoreError, Wake,
};
use crate::clock::instant;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tenure_core::{
    Advance, Beacon, Claim, Entry, Evidence, Force, Forced, Kind, Left, Liveness, LockName, Now,
    Ownership, Policy, Predecessor, Process, Released, Renewal, Request, Standing, StopRequest,
    WaitingFor, judge,
};

/// How long a sleep behind a record lasts at most before the caller looks at its clock again: a
/// lease runs out by the caller's clock, of which this store knows nothing.
const RECORD_NAP_MAX: Duration = Duration::from_millis(100);

/// Locks kept in memory. A clone is another caller on the same locks.
#[derive(Debug, Clone)]
pub struct MemoryStore {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    policy: Policy,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    locks: BTreeMap<LockName, Lock>,
    /// The highest number of all locks that were removed.
    floor: u64,
    processes: BTreeMap<u32, Liveness>,
    stopped: BTreeSet<u32>,
    /// How many seats there were.
    seats: u64,
}

#[derive(Debug, Clone, Default)]
struct Lock {
    entry: Entry,
    /// The tickets whose beacons are lit, and the seats that keep them so: a place that was kept
    /// has one seat after another, and only its present one can put it out.
    lit: BTreeMap<u64, u64>,
}

impl State {
    fn is_lit(&self, name: &LockName, ticket: u64) -> bool {
        self.locks
            .get(name)
            .is_some_and(|lock| lock.lit.contains_key(&ticket))
    }

    fn put_out(&mut self, seat: &Seat) {
        if let Some(lock) = self.locks.get_mut(&seat.name)
            && lock.lit.get(&seat.ticket) == Some(&seat.number)
        {
            lock.lit.remove(&seat.ticket);
        }
    }

    /// Whether the process of a claim was said to be stopped.
    fn is_stopped(&self, claim: &Claim) -> bool {
        let process = claim.holder.process;
        process.is_some_and(|process| self.stopped.contains(&process.pid))
    }

    /// What is known of a claim.
    fn evidence(&self, name: &LockName, claim: &Claim) -> Evidence {
        let has_beacon = claim.kind == Kind::Kernel || claim.token.is_none();
        let beacon = match (has_beacon, self.is_lit(name, claim.ticket)) {
            (false, _) => Beacon::None,
            (true, true) => Beacon::Lit,
            (true, false) => Beacon::Out,
        };
        let ask = |process: Option<&Process>| {
            process.map_or(Liveness::NotRecorded, |process| {
                let known = self.processes.get(&process.pid).copied();
                known.unwrap_or(Liveness::Unknown)
            })
        };
        Evidence {
            beacon,
            process: ask(claim.holder.process.as_ref()),
            command: ask(claim.holder.command.as_ref()),
        }
    }
}

/// A claim's place. Dropping it is dying.
#[derive(Debug)]
pub struct Seat {
    shared: Arc<Shared>,
    name: LockName,
    ticket: u64,
    number: u64,
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
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        state.put_out(self);
        self.shared.changed.notify_all();
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // Every change below is one assignment at its end, so a caller that panicked in the
        // middle of one has left a whole state behind.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl MemoryStore {
    /// An empty store that judges and decides by `policy`.
    pub fn new(policy: Policy) -> Self {
        Self {
            shared: Arc::new(Shared {
                policy,
                state: Mutex::default(),
                changed: Condvar::new(),
            }),
        }
    }

    /// Says what is known of the process with this number from now on, and wakes whoever sleeps
    /// behind it. A process of which nothing was said is [`Liveness::Unknown`].
    pub fn set_process(&self, pid: u32, liveness: Liveness) {
        self.shared.lock().processes.insert(pid, liveness);
        self.shared.changed.notify_all();
    }

    /// Says whether the process with this number is stopped from now on. Nobody is until it is said.
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

    /// A change to an existing lock: `step` says whether the list is to be written back.
    fn change<T>(
        &self,
        name: &LockName,
        absent: T,
        step: impl FnOnce(&mut Entry, &State) -> (T, bool),
    ) -> (T, Entry) {
        let mut state = self.shared.lock();
        let Some(mut entry) = state.locks.get(name).map(|lock| lock.entry.clone()) else {
            return (absent, Entry::default());
        };
        let (answer, changed) = step(&mut entry, &state);
        if changed && let Some(lock) = state.locks.get_mut(name) {
            lock.entry = entry.clone();
            self.shared.changed.notify_all();
        }
        (answer, entry)
    }

    /// Sleeps for as long as `same` says that there is nothing to see.
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

    fn sleep_on_beacon(&self, name: &LockName, ticket: u64, until: Option<Instant>) -> Wake {
        self.sleep_while(None, until, |state| state.is_lit(name, ticket))
    }

    /// Whether a claim stands as it was seen, and counts.
    fn is_same(&self, state: &State, name: &LockName, claim: &Claim, now: &Now) -> bool {
        let entry = state.locks.get(name).map(|lock| &lock.entry);
        let held = judge(self.policy(), claim, &state.evidence(name, claim), now);
        entry.and_then(|entry| entry.claim(claim.ticket)) == Some(claim)
            && matches!(held, Standing::Held(_))
    }

    fn sleep_on_record(
        &self,
        name: &LockName,
        claim: &Claim,
        now: &Now,
        until: Option<Instant>,
    ) -> Wake {
        self.sleep_while(Some(RECORD_NAP_MAX), until, |state| {
            self.is_same(state, name, claim, now)
        })
    }
}

impl Store for MemoryStore {
    type Seat = Seat;

    fn policy(&self) -> &Policy {
        &self.shared.policy
    }

    fn place(&self, name: &LockName) -> String {
        format!("memory:{name}")
    }

    fn read(&self, name: &LockName) -> Result<Reading, StoreError> {
        let state = self.shared.lock();
        let entry = state
            .locks
            .get(name)
            .map(|lock| lock.entry.clone())
            .unwrap_or_default();
        let evidence = entry
            .claims
            .iter()
            .map(|claim| state.evidence(name, claim))
            .collect();
        let stopped = entry.claims.iter().filter(|claim| state.is_stopped(claim));
        Ok(Reading {
            stopped: stopped.map(|claim| claim.ticket).collect(),
            place: self.place(name),
            content: Content::Whole { entry, evidence },
        })
    }

    fn enter(
        &self,
        name: &LockName,
        request: Request,
        now: &Now,
    ) -> Result<Entered<Seat>, StoreError> {
        let mut state = self.shared.lock();
        let mut lock = state.locks.get(name).cloned().unwrap_or_else(|| {
            let mut fresh = Lock::default();
            fresh.entry.raise(state.floor);
            fresh
        });
        let (kind, mode) = (request.kind, request.terms.mode);
        let mut events = Vec::new();
        let entering = lock.entry.enter_seeing(
            self.policy(),
            request,
            now,
            |claim| state.evidence(name, claim),
            |claim| state.is_stopped(claim),
            &mut events,
        );
        let made = NewPlace::of(&entering, kind, mode);
        state.seats += 1;
        let number = state.seats;
        if let Some(made) = made.as_ref().filter(|made| made.beacon) {
            lock.lit.insert(made.ticket, number);
        }
        let entry = lock.entry.clone();
        if made.is_some() || !events.is_empty() {
            state.locks.insert(name.clone(), lock);
            self.shared.changed.notify_all();
        }
        Ok(Entered {
            entering,
            entry,
            unread: 0,
            events,
            seat: made.map(|made| Seat {
                shared: Arc::clone(&self.shared),
                name: name.clone(),
                ticket: made.ticket,
                number,
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
        let name = &seat.name;
        let asked = |state: &State| {
            let entry = state.locks.get(name).map(|lock| &lock.entry);
            entry.is_some_and(|entry| entry.is_cancelled(seat.ticket))
        };
        let same = |state: &State, claim: &Claim| self.is_same(state, name, claim, now);
        let nap = Some(RECORD_NAP_MAX);
        Ok(match behind {
            // The grace runs out by the caller's clock.
            Predecessor::Stopped { behind, .. } => {
                let look = instant().checked_add(RECORD_NAP_MAX);
                let first = until.into_iter().chain(look).min();
                let wake = self.sleep(seat, behind, now, first)?;
                super::woken_early(wake, until)
            }
            Predecessor::Beacon { ticket } => self.sleep_while(None, until, |state| {
                state.is_lit(name, *ticket) && !asked(state)
            }),
            Predecessor::Turn { ticket } => self.sleep_while(None, until, |state| {
                let entry = state.locks.get(name).map(|lock| &lock.entry);
                let claim = entry.and_then(|entry| entry.claim(*ticket));
                let waits = claim.is_some_and(|claim| claim.token.is_none());
                waits && state.is_lit(name, *ticket) && !asked(state)
            }),
            Predecessor::Record(claim) => {
                self.sleep_while(nap, until, |state| same(state, claim) && !asked(state))
            }
            Predecessor::AnyOf(claims) => self.sleep_while(nap, until, |state| {
                claims.iter().all(|claim| same(state, claim)) && !asked(state)
            }),
        })
    }

    fn advance(&self, seat: &Seat, now: &Now) -> Result<Advanced, StoreError> {
        let mut events = Vec::new();
        let (advance, entry) = self.change(&seat.name, Advance::Gone, |entry, state| {
            let was_passed = entry.claim(seat.ticket).is_some_and(Claim::was_passed);
            let advance = entry.advance_seeing(
                self.policy(),
                seat.ticket,
                now,
                |claim| state.evidence(&seat.name, claim),
                |claim| state.is_stopped(claim),
                &mut events,
            );
            let granted = matches!(advance, Advance::Granted { .. });
            let changed = granted || was_passed || !events.is_empty();
            (advance, changed)
        });
        Ok(Advanced {
            advance,
            entry,
            events,
        })
    }

    fn name_command(&self, seat: &Seat, command: Process) -> Result<bool, StoreError> {
        let (named, _) = self.change(&seat.name, false, |entry, _| {
            let named = entry.name_command(seat.ticket, command);
            (named, named)
        });
        Ok(named)
    }

    fn renew(&self, seat: &Seat, now: &Now) -> Result<Renewal, StoreError> {
        let (renewal, _) = self.change(&seat.name, Renewal::Lost, |entry, _| {
            let renewal = entry.renew(seat.ticket, now);
            (renewal, matches!(renewal, Renewal::Renewed { .. }))
        });
        Ok(renewal)
    }

    fn verify(&self, seat: &Seat) -> Result<Renewal, StoreError> {
        let state = self.shared.lock();
        let entry = state.locks.get(&seat.name).map(|lock| &lock.entry);
        Ok(entry.map_or(Renewal::Lost, |entry| entry.verify(seat.ticket)))
    }

    fn leave(&self, seat: &Seat, now: &Now) -> Result<Left, StoreError> {
        let (left, _) = self.change(&seat.name, Left::Absent, |entry, _| {
            let left = entry.leave(seat.ticket, now);
            let changed = left != Left::Absent;
            (left, changed)
        });
        self.shared.lock().put_out(seat);
        self.shared.changed.notify_all();
        Ok(left)
    }

    fn park(
        &self,
        seat: &Seat,
        owner: Option<Process>,
        grace_ms: u64,
        now: &Now,
    ) -> Result<bool, StoreError> {
        let (parked, _) = self.change(&seat.name, false, |entry, _| {
            let parked = entry.park(seat.ticket, owner, grace_ms, now);
            (parked, parked)
        });
        if parked {
            self.shared.lock().put_out(seat);
            self.shared.changed.notify_all();
        }
        Ok(parked)
    }

    fn cancel(
        &self,
        name: &LockName,
        by: StopRequest<'_>,
        now: &Now,
    ) -> Result<Vec<Claim>, StoreError> {
        let (asked, _) = self.change(name, Vec::new(), |entry, state| {
            let evidence = |claim: &Claim| state.evidence(name, claim);
            let is_stopped = |claim: &Claim| state.is_stopped(claim);
            let asked = entry.cancel_seeing(self.policy(), by, now, evidence, is_stopped);
            let changed = !asked.is_empty();
            (asked, changed)
        });
        Ok(asked)
    }

    fn note_waiting(
        &self,
        name: &LockName,
        token: u64,
        waiting_for: Option<&WaitingFor>,
    ) -> Result<bool, StoreError> {
        let (noted, _) = self.change(name, false, |entry, _| {
            let noted = entry.note_waiting(token, waiting_for);
            (noted, noted)
        });
        Ok(noted)
    }

    fn renew_owned(
        &self,
        name: &LockName,
        owns: &dyn Fn(&Claim) -> Ownership,
        now: &Now,
    ) -> Result<RenewedOwned, StoreError> {
        let (renewed, _) = self.change(name, RenewedOwned::Lost, |entry, _| {
            super::renew_owned(entry, owns, now)
        });
        Ok(renewed)
    }

    fn release_owned(
        &self,
        name: &LockName,
        owns: &dyn Fn(&Claim) -> Ownership,
        now: &Now,
    ) -> Result<Released, StoreError> {
        let (released, _) = self.change(name, Released::Absent, |entry, _| {
            super::release_owned(entry, self.policy(), owns, now)
        });
        Ok(released)
    }

    fn force_release(
        &self,
        name: &LockName,
        force: Force,
        now: &Now,
    ) -> Result<ForcedRelease, StoreError> {
        let (released, _) = self.change(name, Forced::Absent, |entry, state| {
            let evidence = |claim: &Claim| state.evidence(name, claim);
            let is_stopped = |claim: &Claim| state.is_stopped(claim);
            let forced =
                entry.force_release_seeing(self.policy(), force, now, evidence, is_stopped);
            let done = matches!(forced, Forced::Done { .. } | Forced::SetAside { .. });
            (forced, done)
        });
        Ok(ForcedRelease {
            released,
            record: Vec::new(),
        })
    }

    fn watch(
        &self,
        name: &LockName,
        seen: &Entry,
        now: &Now,
        until: Option<Instant>,
    ) -> Result<Wake, StoreError> {
        let waiting = seen.claims.iter().filter(|claim| claim.token.is_none());
        for claim in seen.granted().chain(waiting) {
            if self.shared.lock().evidence(name, claim).beacon == Beacon::Lit {
                return Ok(self.sleep_on_beacon(name, claim.ticket, until));
            }
            if claim.token.is_some() {
                return Ok(self.sleep_on_record(name, claim, now, until));
            }
        }
        Ok(Wake::Ready)
    }

    fn names(&self, each: &mut dyn FnMut(LockName)) -> Result<(), StoreError> {
        // Listed first and shown without the mutex: whoever is shown a name may want to read it.
        let names: Vec<LockName> = self.shared.lock().locks.keys().cloned().collect();
        names.into_iter().for_each(each);
        Ok(())
    }

    fn clean(&self, name: &LockName, now: &Now, dry_run: bool) -> Result<Cleaned, StoreError> {
        let mut state = self.shared.lock();
        let Some(mut entry) = state.locks.get(name).map(|lock| lock.entry.clone()) else {
            return Ok(Cleaned {
                swept: Vec::new(),
                removed: false,
                record: Vec::new(),
            });
        };
        let swept = entry.sweep(self.policy(), now, |claim| state.evidence(name, claim));
        let removed = entry.claims.is_empty();
        if !dry_run {
            if removed {
                state.floor = state.floor.max(entry.last);
                state.locks.remove(name);
            } else if let Some(lock) = state.locks.get_mut(name) {
                lock.entry = entry;
            }
            self.shared.changed.notify_all();
        }
        let record = Vec::new();
        Ok(Cleaned {
            swept,
            removed,
            record,
        })
    }
}
