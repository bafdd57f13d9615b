//! What happens in a manager at some instant: waits end of callers that have no thread, and grants are given back that no
//! task takes. One thread sees to it, while there is anything.
//!
//! What that is in each case, and what follows from it, is the business of `turns`.

use super::Shared;
use crate::clock::instant;
use crate::sync::locked;
use std::collections::BTreeMap;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

/// How long the thread waits for something that is due.
const IDLE_MAX: Duration = Duration::from_secs(1);

/// What happens when its time has come, unless it is forgotten before.
pub(super) struct Deadlines<D>(Arc<Schedule<D>>);

impl<D> Default for Deadlines<D> {
    fn default() -> Self {
        Self(Arc::new(Schedule {
            state: Mutex::new(Scheduled {
                due: BTreeMap::new(),
                sleeps_until: None,
                has_ended: false,
            }),
            changed: Condvar::new(),
        }))
    }
}

struct Schedule<D> {
    state: Mutex<Scheduled<D>>,
    changed: Condvar,
}

struct Scheduled<D> {
    due: BTreeMap<Deadline, D>,
    /// Until when the thread that sees to them sleeps; `None` without a thread.
    sleeps_until: Option<Instant>,
    /// The manager is gone.
    has_ended: bool,
}

/// What is due.
pub(super) trait Duty: Send + 'static {
    /// Does it. It gets the number of its deadline.
    fn see_to(self, number: u64, shared: &Shared);
}

/// The instant, and a number of its own: that of the place.
pub(super) type Deadline = (Instant, u64);

impl<D: Duty> Deadlines<D> {
    pub(super) fn add(
        &self,
        shared: &Arc<Shared>,
        deadline: Deadline,
        due: D,
    ) -> io::Result<Deadline> {
        let (at, _) = deadline;
        let mut state = locked(&self.0.state);
        match state.sleeps_until {
            // It looks before that by itself.
            Some(until) if until <= at => {}
            Some(_) => self.0.changed.notify_all(),
            None => {
                let (schedule, shared) = (Arc::clone(&self.0), Arc::downgrade(shared));
                let builder = std::thread::Builder::new().name("tenure-line".to_owned());
                builder.spawn(move || schedule.keep(&shared))?;
                state.sleeps_until = Some(at);
            }
        }
        state.due.insert(deadline, due);
        Ok(deadline)
    }

    pub(super) fn forget(&self, deadline: Deadline) {
        let forgotten = locked(&self.0.state).due.remove(&deadline);
        // Outside of the mutex: it may be the last to know of its caller.
        drop(forgotten);
    }
}

impl<D> Drop for Deadlines<D> {
    fn drop(&mut self) {
        locked(&self.0.state).has_ended = true;
        self.0.changed.notify_all();
    }
}

impl<D: Duty> Schedule<D> {
    /// Sees to what is due, for as long as there is anything.
    fn keep(&self, shared: &Weak<Shared>) {
        let mut idle_until = None;
        loop {
            let Some((now, nap)) = shared
                .upgrade()
                .map(|shared| (shared.clock.instant(), shared.watching.nap()))
            else {
                return;
            };
            let mut state = locked(&self.state);
            if state.has_ended {
                return;
            }
            let later = state.due.split_off(&(now, u64::MAX));
            let over = std::mem::replace(&mut state.due, later);
            if !over.is_empty() {
                drop(state);
                let Some(shared) = shared.upgrade() else {
                    return;
                };
                for ((_, number), due) in over {
                    // A log or a waker may panic, and others rely on this thread.
                    let sees_to = AssertUnwindSafe(|| due.see_to(number, &shared));
                    drop(catch_unwind(sees_to));
                }
                continue;
            }
            let until = if let Some(((first, _), _)) = state.due.first_key_value() {
                idle_until = None;
                *first
            } else {
                // By the machine's clock: one that is moved by hand may stand still.
                let until = *idle_until.get_or_insert_with(|| instant() + IDLE_MAX);
                if until <= instant() {
                    state.sleeps_until = None;
                    return;
                }
                until
            };
            state.sleeps_until = Some(until);
            let rest = until.saturating_duration_since(now);
            let rest = nap.map_or(rest, |nap| rest.min(nap));
            let woken = self.changed.wait_timeout(state, rest);
            drop(woken.unwrap_or_else(PoisonError::into_inner));
        }
    }
}
