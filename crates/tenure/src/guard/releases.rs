//! Holds on servers are given back by a thread of their own, because an answer may take as long as a network does.
//!
//! - A guard that async code drops waits for nothing.
//! - A guard that a thread drops or releases, and the last manager, wait until servers have answered: [`WAIT_MAX`] in all
//!   while they are silent, and not once for each guard.
//! - A release that fails is tried again, until other callers may have the lock anyway. The error that a caller gets is a
//!   report, and keeps nothing.
//!
//! The thread starts with the first release and ends with its manager. What is not guaranteed: a process that ends before
//! the servers have answered leaves its holds to their leases.

use super::hold::Hold;
use crate::clock::instant;
use crate::store::StoreError;
use crate::sync::locked;
use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tenure_core::LockName;

/// How long all callers together wait while the servers are silent.
pub(super) const WAIT_MAX: Duration = Duration::from_secs(1);

/// How long one try may take.
pub(super) const TRY_MAX: Duration = Duration::from_secs(2);

/// The pause before a release is tried again, at first and at most.
const PAUSE: [Duration; 2] = [Duration::from_millis(50), Duration::from_secs(2)];

/// What is done with the answer to the first try: whether the lock was still held.
type Tell = Box<dyn FnOnce(Result<bool, StoreError>) + Send>;

/// A hold to be given back.
struct Job {
    hold: Arc<Hold>,
    tell: Option<Tell>,
    /// Before this instant it is not tried again.
    not_before: Instant,
    pause: Duration,
}

/// The releases of a manager that go on.
#[derive(Default)]
pub(super) struct Releases(Arc<Inner>);

#[derive(Default)]
struct Inner {
    state: Mutex<State>,
    /// There is a job, one has ended, or the manager has.
    changed: Condvar,
}

#[derive(Default)]
struct State {
    jobs: VecDeque<Job>,
    /// The lock and the token of each hold that is not given back yet, the one at work included.
    holds: Vec<(LockName, u64)>,
    has_thread: bool,
    is_closed: bool,
    /// Since when callers wait without an answer for anybody.
    silent_since: Option<Instant>,
}

impl Releases {
    /// Has a hold given back, and its first answer told.
    pub(super) fn add(
        &self,
        hold: Arc<Hold>,
        tell: impl FnOnce(Result<bool, StoreError>) + Send + 'static,
    ) {
        let mut state = locked(&self.0.state);
        state.holds.push((hold.name().clone(), hold.token()));
        state.jobs.push_back(Job {
            hold,
            tell: Some(Box::new(tell)),
            not_before: instant(),
            pause: PAUSE[0],
        });
        if !state.has_thread {
            let inner = Arc::clone(&self.0);
            let thread = std::thread::Builder::new().name("tenure-release".to_owned());
            state.has_thread = thread.spawn(move || inner.work()).is_ok();
        }
        if state.has_thread {
            self.0.changed.notify_all();
        } else {
            // The system gives no thread, so this caller does it.
            let jobs = std::mem::take(&mut state.jobs);
            drop(state);
            for job in jobs {
                let _ = self.0.tries(job);
            }
        }
    }

    /// Whether a hold of this lock with this token is being given back.
    pub(super) fn has(&self, name: &LockName, token: u64) -> bool {
        let state = locked(&self.0.state);
        (state.holds.iter()).any(|(held, number)| held == name && *number == token)
    }

    /// Until when a caller waits for an answer.
    pub(super) fn patience(&self) -> Instant {
        let now = instant();
        let since = *locked(&self.0.state).silent_since.get_or_insert(now);
        since + WAIT_MAX
    }

    /// Waits until every hold is given back, or every one of this lock, as long as callers wait.
    pub(super) fn settle(&self, of: Option<&LockName>) {
        let is_meant = |held: &LockName| of.is_none_or(|name| name == held);
        let goes_on = |state: &State| state.holds.iter().any(|(held, _)| is_meant(held));
        if !goes_on(&locked(&self.0.state)) {
            return;
        }
        let until = self.patience();
        let mut state = locked(&self.0.state);
        while goes_on(&state) {
            let rest = until.saturating_duration_since(instant());
            if rest.is_zero() {
                return;
            }
            let waited = self.0.changed.wait_timeout(state, rest);
            (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
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

    /// The next job whose time has come; `None` once there is none and will be none.
    fn next(&self) -> Option<Job> {
        let mut state = locked(&self.state);
        loop {
            let now = instant();
            if let Some(at) = (state.jobs.iter()).position(|job| job.not_before <= now) {
                return state.jobs.remove(at);
            }
            let first = state.jobs.iter().map(|job| job.not_before).min();
            let waited = match first {
                None if state.is_closed => return None,
                None => self.changed.wait(state),
                Some(at) => {
                    let rest = at.saturating_duration_since(now);
                    let waited = self.changed.wait_timeout(state, rest);
                    waited.map(|(state, _)| state).map_err(|poisoned| {
                        let (state, _) = poisoned.into_inner();
                        PoisonError::new(state)
                    })
                }
            };
            state = waited.unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Tries a release once. Gives the job back if it has to be tried again.
    fn tries(&self, job: Job) -> Option<Job> {
        let Job {
            hold, tell, pause, ..
        } = job;
        let is_first = tell.is_some();
        let answer = hold.tries_to_leave(is_first);
        let is_done = answer.is_ok() || hold.has_lapsed();
        let mut state = locked(&self.state);
        if answer.is_ok() {
            state.silent_since = None;
        }
        if is_done {
            let (name, token) = (hold.name(), hold.token());
            let at =
                (state.holds.iter()).position(|(held, number)| held == name && *number == token);
            at.map(|at| state.holds.swap_remove(at));
        }
        drop(state);
        if let Some(tell) = tell {
            tell(answer);
        }
        if is_done {
            hold.has_gone();
            drop(hold);
            self.changed.notify_all();
            return None;
        }
        Some(Job {
            hold,
            tell: None,
            not_before: instant() + pause,
            pause: (pause * 2).min(PAUSE[1]),
        })
    }
}
