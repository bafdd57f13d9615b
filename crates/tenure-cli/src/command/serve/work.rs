//! Who does what may block: a few threads. The thread that reads, writes and keeps time never does.
//!
//! A short call waits for one of [`THREADS_MAX`] threads. A wait for a lock has a thread of its own: it sleeps in the
//! kernel on one byte of one file, and no call of any system waits for several of those. The number of waits is
//! bounded by who calls this ([`super::Serve`] lets one request per lock wait in the store).

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

/// How many threads do short calls.
const THREADS_MAX: usize = 8;

/// How long a thread without work stays.
const IDLE: Duration = Duration::from_secs(5);

/// A thread's stack. The deepest call is a change of a long list.
const STACK: usize = 1 << 20;

pub(super) type Job = Box<dyn FnOnce() + Send>;

#[derive(Clone, Default)]
pub(super) struct Crew(Arc<Shared>);

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    called: Condvar,
}

#[derive(Default)]
struct State {
    jobs: VecDeque<Job>,
    idle: usize,
    threads: usize,
}

impl Crew {
    /// Has a thread do it, once one has the time.
    pub(super) fn run(&self, job: Job) -> std::io::Result<()> {
        let mut state = self.0.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.jobs.push_back(job);
        if state.idle >= state.jobs.len() {
            self.0.called.notify_one();
            return Ok(());
        }
        if state.threads >= THREADS_MAX {
            return Ok(());
        }
        state.threads += 1;
        drop(state);
        let shared = Arc::clone(&self.0);
        let spawned = spawn(Box::new(move || shared.work()));
        if let Err(error) = spawned {
            let mut state = self.0.state.lock().unwrap_or_else(PoisonError::into_inner);
            state.threads -= 1;
            // Another thread does it later. Without any, no thread would.
            if state.threads == 0 {
                state.jobs.pop_back();
                return Err(error);
            }
        }
        Ok(())
    }

    /// Has a thread of its own do it.
    pub(super) fn run_apart(job: Job) -> std::io::Result<()> {
        spawn(job)
    }
}

impl Shared {
    fn work(&self) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            while let Some(job) = state.jobs.pop_front() {
                drop(state);
                job();
                state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            }
            state.idle += 1;
            let woken = self.called.wait_timeout(state, IDLE);
            let (after, timeout) = woken.unwrap_or_else(PoisonError::into_inner);
            state = after;
            state.idle -= 1;
            if timeout.timed_out() && state.jobs.is_empty() {
                state.threads -= 1;
                return;
            }
        }
    }
}

fn spawn(job: Job) -> std::io::Result<()> {
    let thread = std::thread::Builder::new().stack_size(STACK);
    thread.spawn(job).map(drop)
}
