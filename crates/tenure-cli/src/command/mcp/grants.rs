//! Holds of which an agent has not been told yet, and what becomes of them.
//!
//! A hold is in here from its grant until its answer is written. It is given back if the call was cancelled meanwhile,
//! if the conversation ended before the answer was begun, or if the answer could not be written. It is kept if the
//! answer was begun and its end is not known: then the agent may know of it, and a hold that is given back under a
//! worker is worse than one that stays until its program ends.
//!
//! The protocol's library drops the answer of a cancelled call without a word. It cancels the call's token in either
//! case, and hands an answer that it does send to `line` in the same step. So when the token is cancelled and `line`
//! has not seen the answer, no agent will ([`Grants::settle`]). At the end of the conversation it cancels all tokens,
//! and sends answers after that. What is left then is settled once nothing more is sent ([`Grants::finish`]). A call
//! whose thread is in the middle of a grant by then is waited for: it adds its hold before it counts as over.
//!
//! Nothing that the library does ensures that no agent is told of a hold that was given back: `line` asks here before
//! it sends such an answer ([`Grants::begin`]).

use super::tools::Granted;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;
use tenure_os::cancel::Cancel;
use tenure_os::clock::{instant, nap};

#[derive(Clone, Default)]
pub(super) struct Grants(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    /// By their handles.
    untold: BTreeMap<String, Untold>,
    /// The threads that give holds back.
    giving: Vec<JoinHandle<()>>,
    /// The calls that are being carried out, by their numbers, and what ends the wait of each.
    running: BTreeMap<u64, Cancel>,
    /// The number of the last call.
    number: u64,
}

/// A call that is being carried out, until it is dropped.
pub(super) struct Running {
    grants: Grants,
    number: u64,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.grants.state().running.remove(&self.number);
    }
}

struct Untold {
    granted: Granted,
    /// Whether the answer is being written.
    is_begun: bool,
}

/// A hold that is given back when this is dropped.
struct GivenBack(Option<Granted>);

impl Drop for GivenBack {
    fn drop(&mut self) {
        if let Some(granted) = self.0.take() {
            granted.give_back();
        }
    }
}

impl Grants {
    /// A call that is to be carried out; `None` if so many are already.
    pub(super) fn begin_call(&self, cancel: &Cancel, most: usize) -> Option<Running> {
        let mut state = self.state();
        if state.running.len() >= most {
            return None;
        }
        state.number += 1;
        let number = state.number;
        state.running.insert(number, cancel.clone());
        Some(Running {
            grants: self.clone(),
            number,
        })
    }

    /// A hold that was granted just now.
    pub(super) fn add(&self, handle: &str, granted: Granted) {
        let untold = Untold {
            granted,
            is_begun: false,
        };
        self.state().untold.insert(handle.to_owned(), untold);
    }

    /// Notes that the answer is about to be written. False if the hold was given back: then the answer
    /// may not be written.
    pub(super) fn begin(&self, handle: &str) -> bool {
        let mut state = self.state();
        let untold = state.untold.get_mut(handle);
        untold.map(|untold| untold.is_begun = true).is_some()
    }

    /// Notes that the answer was written, or could not be.
    pub(super) fn written(&self, handle: &str, is_written: bool) {
        let untold = self.state().untold.remove(handle);
        if let Some(untold) = untold.filter(|_| !is_written) {
            self.give_back(untold.granted);
        }
    }

    /// Notes that the call is over, one way or the other.
    pub(super) fn settle(&self, handle: &str) {
        let mut state = self.state();
        let is_begun = |untold: &Untold| untold.is_begun;
        if state.untold.get(handle).is_none_or(is_begun) {
            return;
        }
        let untold = state.untold.remove(handle);
        drop(state);
        if let Some(untold) = untold {
            self.give_back(untold.granted);
        }
    }

    /// Gives a hold back, on a thread of its own.
    pub(super) fn give_back(&self, granted: Granted) {
        let granted = GivenBack(Some(granted));
        let thread = thread::Builder::new().name("give back".to_owned());
        // Where no thread can be started, it is given back here, with the closure: rather late than not at all.
        if let Ok(thread) = thread.spawn(move || drop(granted)) {
            let mut state = self.state();
            state.giving.retain(|thread| !thread.is_finished());
            state.giving.push(thread);
        }
    }

    /// The conversation is over: no call and no answer begins any more.
    pub(super) fn finish(&self, patience: Duration) {
        let begun = instant();
        // The tasks that would have ended their waits may be gone.
        let waits: Vec<_> = self.state().running.values().cloned().collect();
        waits.iter().for_each(Cancel::cancel);
        loop {
            // In this order: a call that is over has added its hold before, so this look finds it.
            let is_quiet = self.state().running.is_empty();
            let handles: Vec<_> = self.state().untold.keys().cloned().collect();
            for handle in handles {
                self.settle(&handle);
            }
            let mut state = self.state();
            state.giving.retain(|thread| !thread.is_finished());
            let is_done = is_quiet && state.giving.is_empty();
            drop(state);
            if is_done || instant().saturating_duration_since(begun) >= patience {
                return;
            }
            nap(Duration::from_millis(5));
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test says what it expects by failing")]

    use super::*;

    #[test]
    fn the_end_waits_for_running_calls_and_not_for_ever() {
        let (grants, cancel) = (Grants::default(), Cancel::new());
        let running = grants.begin_call(&cancel, 1).unwrap();
        assert!(grants.begin_call(&cancel, 1).is_none(), "one at a time");
        let begun = instant();
        grants.finish(Duration::from_millis(50));
        assert!(cancel.is_cancelled(), "its wait is ended");
        let slow = thread::spawn(move || {
            nap(Duration::from_millis(200));
            drop(running);
        });
        grants.finish(Duration::from_secs(60));
        let took = instant().saturating_duration_since(begun);
        assert!(took >= Duration::from_millis(200), "{took:?}");
        assert!(took < Duration::from_secs(30), "{took:?}");
        slow.join().unwrap();
    }
}
