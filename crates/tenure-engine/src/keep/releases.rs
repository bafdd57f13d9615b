//! Holds on servers are given back by threads of their own, because an answer may take as long as a network does. So are
//! holds in a folder that async code drops while another process keeps the list.
//!
//! - A guard that async code drops waits for no server; in a folder for 20 ms at most.
//! - A guard that a thread drops or releases, and the last manager, wait until servers have answered: [`WAIT_MAX`] in all
//!   while they are silent, and not once for each guard.
//! - A release that fails is tried again, until other callers may have the lock anyway. The error that a caller gets is a
//!   report, and keeps nothing.
//!
//! The threads start when there is a release, and end when there is none. What is not guaranteed: a process that ends before
//! the servers have answered leaves its holds to their leases.

use crate::sync::locked;
use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tenure_core::LockName;
use tenure_os::clock::instant;
use tenure_os::offload::Logs;
use tenure_store::StoreError;

/// How long all callers together wait while the servers are silent.
pub const WAIT_MAX: Duration = Duration::from_secs(1);

/// How long one try may take.
pub const TRY_MAX: Duration = Duration::from_secs(2);

/// How many threads give holds back at once.
const THREADS_MAX: usize = 8;

/// How long a thread without work waits for some.
const IDLE_MAX: Duration = Duration::from_secs(1);

/// How many holds are remembered that were given back.
const GONE_MAX: usize = 256;

/// The pause before a release is tried again, at first and at most.
const PAUSE: [Duration; 2] = [Duration::from_millis(50), Duration::from_secs(2)];

/// What is done with the answer to the first try: whether the lock was still held. It must not block.
type Tell = Box<dyn FnOnce(Result<bool, StoreError>) + Send>;

/// A hold that is to be given back.
pub trait Leaving: Send + Sync {
    /// The lock.
    fn name(&self) -> &LockName;

    /// The fencing token.
    fn token(&self) -> u64;

    /// Tries to give the hold back.
    fn tries_to_leave(&self, is_first: bool) -> ReleaseTry;

    /// Whether other callers may have the lock by now, whatever becomes of a release.
    fn has_lapsed(&self) -> bool;

    /// Has the log tell of a try, wherever its caller's log goes.
    fn log_release(&self, logs: Logs, given: &ReleaseTry);

    /// Nothing is left to be done for it.
    fn has_gone(&self);
}

/// What became of one try to give a hold back.
pub struct ReleaseTry {
    /// Whether it was still ours.
    pub answer: Result<bool, StoreError>,
    /// How long it was held, if it was given back.
    pub held_ms: Option<u64>,
    /// Nobody knew yet that it is not ours.
    pub is_news: bool,
}

impl ReleaseTry {
    /// Whether the store has answered, be it with an error.
    fn is_an_answer(&self) -> bool {
        !matches!(self.answer, Err(StoreError::Unreachable { .. }))
    }
}

/// Who asked for a release.
struct Caller {
    tell: Tell,
    /// Where its log goes.
    logs: Logs,
}

/// A hold to be given back.
struct Job {
    hold: Arc<dyn Leaving>,
    /// Who asked for it, until the first try.
    caller: Option<Caller>,
    /// Before this instant it is not tried again.
    not_before: Instant,
    pause: Duration,
}

/// The releases of a manager that go on.
#[derive(Default)]
pub struct Releases(Arc<Inner>);

#[derive(Default)]
struct Inner {
    state: Mutex<State>,
    /// Notified when a job comes, when one has ended, and when the manager ends.
    changed: Condvar,
}

#[derive(Default)]
struct State {
    jobs: VecDeque<Job>,
    /// The lock and the token of each hold that is not given back yet, the one at work included.
    holds: Vec<(LockName, u64)>,
    /// The holds that were given back last.
    gone: VecDeque<(LockName, u64)>,
    threads: usize,
    /// How many of them have nothing to do.
    idle: usize,
    is_closed: bool,
    /// How many releases were never answered yet, not even with an error.
    first_tries: usize,
    /// Since when none of these was answered, while there are some.
    silent_since: Option<Instant>,
}

impl Releases {
    /// Has a hold given back, and its first answer told.
    pub fn add(
        &self,
        hold: Arc<dyn Leaving>,
        tell: impl FnOnce(Result<bool, StoreError>) + Send + 'static,
    ) {
        let mut state = locked(&self.0.state);
        state.holds.push((hold.name().clone(), hold.token()));
        if state.first_tries == 0 {
            // What is tried again says nothing about how long servers take by now.
            state.silent_since = Some(instant());
        }
        state.first_tries += 1;
        state.jobs.push_back(Job {
            hold,
            caller: Some(Caller {
                tell: Box::new(tell),
                logs: Logs::here(),
            }),
            not_before: instant(),
            pause: PAUSE[0],
        });
        if state.idle < state.jobs.len() && state.threads < THREADS_MAX {
            let inner = Arc::clone(&self.0);
            let thread = std::thread::Builder::new().name("tenure-release".to_owned());
            state.threads += usize::from(thread.spawn(move || inner.work()).is_ok());
        }
        if state.threads > 0 {
            self.0.changed.notify_all();
        } else {
            // The system gives no thread, so this caller tries it, once.
            let job = state.jobs.pop_back();
            drop(state);
            if let Some(again) = job.and_then(|job| self.0.tries(job)) {
                locked(&self.0.state).forget(&*again.hold);
                again.hold.has_gone();
            }
        }
    }

    /// Whether a hold of this lock with this token is still to be given back.
    pub fn goes_on(&self, name: &LockName, token: u64) -> bool {
        locked(&self.0.state).holds.iter().any(is(name, token))
    }

    /// Whether a hold of this lock with this token is being given back, or was a moment ago: a list that a caller has
    /// read may still have it.
    pub fn has(&self, name: &LockName, token: u64) -> bool {
        let state = locked(&self.0.state);
        state.holds.iter().chain(&state.gone).any(is(name, token))
    }

    /// How long callers still wait for an answer: each answer begins that time anew.
    pub fn patience(&self) -> Duration {
        locked(&self.0.state).patience()
    }

    /// Waits until every hold is given back, or every one of this lock, as long as callers wait and `until` has not come.
    /// True if they are.
    pub fn settle(&self, of: Option<&LockName>, until: Option<Instant>) -> bool {
        let is_meant = |held: &LockName| of.is_none_or(|name| name == held);
        let goes_on = |state: &State| state.holds.iter().any(|(held, _)| is_meant(held));
        let mut state = locked(&self.0.state);
        while goes_on(&state) {
            let mut rest = state.patience();
            if let Some(until) = until {
                rest = rest.min(until.saturating_duration_since(instant()));
            }
            if rest.is_zero() {
                return false;
            }
            let waited = self.0.changed.wait_timeout(state, rest);
            (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        }
        true
    }
}

/// Whether a hold is that of this lock with this token.
fn is(name: &LockName, token: u64) -> impl Fn(&(LockName, u64)) -> bool {
    move |(held, number)| held == name && *number == token
}

impl State {
    fn patience(&self) -> Duration {
        let since = self.silent_since.unwrap_or_else(instant);
        WAIT_MAX.saturating_sub(instant().saturating_duration_since(since))
    }

    /// Notes that an answer has come: nobody waits in vain.
    fn is_answered(&mut self) {
        self.silent_since = Some(instant());
    }

    fn forget(&mut self, hold: &dyn Leaving) {
        let at = self.holds.iter().position(is(hold.name(), hold.token()));
        if let Some(at) = at {
            let gone = self.holds.swap_remove(at);
            self.gone.truncate(GONE_MAX - 1);
            self.gone.push_front(gone);
        }
    }
}

impl Drop for Releases {
    fn drop(&mut self) {
        locked(&self.0.state).is_closed = true;
        self.0.changed.notify_all();
    }
}

impl Inner {
    fn work(&self) {
        while let Some(job) = self.next() {
            if let Some(again) = self.tries(job) {
                locked(&self.state).jobs.push_back(again);
            }
        }
    }

    /// The next job whose time has come, those first that were never tried; `None` for a thread without work.
    fn next(&self) -> Option<Job> {
        let mut state = locked(&self.state);
        let idle_until = instant() + IDLE_MAX;
        loop {
            let now = instant();
            let is_due = |job: &Job| job.not_before <= now;
            let fresh = (state.jobs.iter()).position(|job| job.caller.is_some() && is_due(job));
            if let Some(at) = fresh.or_else(|| state.jobs.iter().position(is_due)) {
                return state.jobs.remove(at);
            }
            let first = state.jobs.iter().map(|job| job.not_before).min();
            if first.is_none() && (state.is_closed || now >= idle_until) {
                // Under the same mutex: whoever adds a release from now on starts another thread.
                state.threads -= 1;
                return None;
            }
            let rest = first.unwrap_or(idle_until).saturating_duration_since(now);
            state.idle += 1;
            let waited = self.changed.wait_timeout(state, rest);
            (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
            state.idle -= 1;
        }
    }

    /// Tries a release once. Gives the job back if it has to be tried again.
    fn tries(&self, job: Job) -> Option<Job> {
        let Job {
            hold,
            caller,
            pause,
            ..
        } = job;
        let is_first = caller.is_some();
        let given = hold.tries_to_leave(is_first);
        let is_done = given.answer.is_ok() || hold.has_lapsed();
        let mut state = locked(&self.state);
        if is_done {
            state.forget(&*hold);
        }
        if given.is_an_answer() {
            state.is_answered();
        }
        state.first_tries -= usize::from(is_first);
        drop(state);
        self.changed.notify_all();
        if let Some(Caller { tell, logs }) = caller {
            hold.log_release(logs, &given);
            // What it wakes may panic, and this thread has others to give back.
            let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| tell(given.answer)));
        }
        if is_done {
            hold.has_gone();
            return None;
        }
        Some(Job {
            hold,
            caller: None,
            not_before: instant() + pause,
            pause: (pause * 2).min(PAUSE[1]),
        })
    }
}
