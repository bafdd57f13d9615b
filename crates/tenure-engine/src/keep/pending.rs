//! The hand-over from the threads that acquire to the renewer. New holds wait here until they have
//! lasted long enough to be looked after. The first hold that is added starts the renewer's thread.
//!
//! `thread` says what the thread does with them.

use crate::sync::{Arc, Mutex, Weak, locked};
use std::collections::VecDeque;
use std::io;
use std::time::{Duration, Instant};

/// Wakes the thread. The thread also notices when this is dropped, and ends.
pub trait Ring {
    /// Wakes it, or keeps it from falling asleep.
    fn ring(&self);
}

/// New holds.
pub struct NewHolds<H, R> {
    state: Mutex<State<H, R>>,
}

struct State<H, R> {
    holds: VecDeque<(Instant, Weak<H>)>,
    /// Set once the thread was started.
    wake: Option<R>,
    /// Whether the thread will look at the pending holds by itself.
    awake: bool,
}

impl<H, R> Default for NewHolds<H, R> {
    fn default() -> Self {
        Self {
            state: Mutex::new(State {
                holds: VecDeque::new(),
                wake: None,
                awake: false,
            }),
        }
    }
}

impl<H, R: Ring> NewHolds<H, R> {
    /// Hands a hold to the renewer, and starts its thread if there is none.
    ///
    /// # Errors
    /// - The errors of `start`.
    pub fn add(
        &self,
        hold: &Arc<H>,
        now: Instant,
        start: impl FnOnce() -> io::Result<R>,
    ) -> io::Result<()> {
        let mut state = locked(&self.state);
        state.holds.push_back((now, Arc::downgrade(hold)));
        if let (false, Some(wake)) = (state.awake, &state.wake) {
            wake.ring();
        } else if state.wake.is_none() {
            state.wake = Some(start()?);
        }
        state.awake = true;
        Ok(())
    }

    /// The holds that have lasted for `settle` or are gone, and the time until the next of the others
    /// has. With none left, the thread looks once more after `settle`, and waits to be woken if it finds none then: a
    /// program that takes one lock after the other does not wake it each time.
    pub fn settled(&self, now: Instant, settle: Duration) -> (Vec<Weak<H>>, Option<Duration>) {
        let mut state = locked(&self.state);
        let mut settled = Vec::new();
        while let Some((since, hold)) = state.holds.front() {
            let age = now.saturating_duration_since(*since);
            if hold.strong_count() > 0 && age < settle {
                return (settled, Some(settle.saturating_sub(age)));
            }
            settled.extend(state.holds.pop_front().map(|(_, hold)| hold));
        }
        state.awake = !settled.is_empty();
        let rest = state.awake.then_some(settle);
        (settled, rest)
    }
}
