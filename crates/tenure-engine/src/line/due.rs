//! What happens at some instant: waits end of callers that have no thread, and those wake that sleep without one. One thread
//! sees to it, while there is anything.
//!
//! What that is in each case, and what follows from it, is the business of those who have the deadlines.

use super::pool;
use crate::engine::Lot;
use crate::sync::locked;
use std::any::Any;
use std::collections::BTreeMap;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, PoisonError, Weak};
use std::task::Waker;
use std::time::{Duration, Instant};
use tenure_os::clock::instant;

/// How long the thread waits for something that is due.
const IDLE_MAX: Duration = Duration::from_secs(1);

/// What happens when its time has come, unless it is forgotten before.
pub struct Deadlines<D>(Arc<Schedule<D>>);

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
    /// Whether those who had the deadlines are gone.
    has_ended: bool,
}

/// What is due; a waker is woken.
pub trait Duty<H>: From<Waker> + Send + 'static {
    /// Does it. It gets the number of its deadline.
    fn see_to(self, number: u64, home: &H);
}

/// Who has deadlines. The thread that sees to them ends with it.
pub trait Timed: Send + Sync + Sized + 'static {
    /// What is due.
    type Due: Duty<Self>;

    /// The deadlines of this home.
    fn deadlines(&self) -> &Deadlines<Self::Due>;

    /// A number that no deadline has.
    fn number(&self) -> u64;

    /// The present instant.
    fn now(&self) -> Instant {
        instant()
    }

    /// How long a sleep lasts at most, where the instants are those of a clock that is moved by hand.
    fn nap(&self) -> Option<Duration> {
        None
    }
}

/// The instant, and a number of its own: that of the place.
pub type Deadline = (Instant, u64);

impl<D> Deadlines<D> {
    /// Has it done at that instant.
    ///
    /// # Errors
    /// - The system's answer, if it gives no thread for that.
    pub fn add<H: Timed<Due = D>>(
        &self,
        home: &Arc<H>,
        deadline: Deadline,
        due: D,
    ) -> io::Result<Deadline>
    where
        D: Duty<H>,
    {
        let (at, _) = deadline;
        let mut state = locked(&self.0.state);
        match state.sleeps_until {
            // The thread looks before that by itself.
            Some(until) if until <= at => {}
            Some(_) => self.0.changed.notify_all(),
            None => {
                let (schedule, home) = (Arc::clone(&self.0), Arc::downgrade(home));
                let builder = std::thread::Builder::new().name("tenure-line".to_owned());
                builder.spawn(move || schedule.keep(&home))?;
                state.sleeps_until = Some(at);
            }
        }
        state.due.insert(deadline, due);
        Ok(deadline)
    }

    /// Forgets what has not been done yet.
    pub fn forget(&self, deadline: Deadline) {
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

impl<D> Schedule<D> {
    /// Sees to what is due, for as long as there is anything.
    fn keep<H: Timed<Due = D>>(&self, home: &Weak<H>)
    where
        D: Duty<H>,
    {
        let mut idle_until = None;
        loop {
            let Some((now, nap)) = home.upgrade().map(|home| (home.now(), home.nap())) else {
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
                let Some(home) = home.upgrade() else {
                    return;
                };
                for ((_, number), due) in over {
                    // A log or a waker may panic, and others rely on this thread.
                    let sees_to = AssertUnwindSafe(|| due.see_to(number, &home));
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

/// Where waits sleep that have no thread: until a deadline of their own.
pub struct Parking<'a, H>(pub &'a Arc<H>);

impl<H: Timed> Lot for Parking<'_, H> {
    fn wakes_at(&self, at: Instant, waker: &Waker) -> io::Result<Box<dyn Any + Send>> {
        let Self(home) = self;
        let due = H::Due::from(waker.clone());
        let deadline = home.deadlines().add(home, (at, home.number()), due)?;
        let home = Arc::clone(home);
        Ok(Box::new(Alarm { home, deadline }))
    }

    fn sleeps(&self) -> Box<dyn Any> {
        Box::new(pool::asleep())
    }
}

/// Dropping it forgets an alarm.
struct Alarm<H: Timed> {
    home: Arc<H>,
    deadline: Deadline,
}

impl<H: Timed> Drop for Alarm<H> {
    fn drop(&mut self) {
        self.home.deadlines().forget(self.deadline);
    }
}
