//! Who does what may block: a few threads. The thread that reads, writes and keeps time never does.
//!
//! A short call waits for one of [`THREADS_MAX`] threads. A wait for a lock has a thread of its own: it sleeps in the
//! kernel on one byte of one file, and no call of any system waits for several of those. The number of waits is
//! bounded by who calls this ([`super::Serve`] lets one request per lock wait in the store).

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How many threads do short calls.
const THREADS_MAX: usize = 8;

/// How many of them do anything but renewals and releases.
const OTHERS_MAX: usize = THREADS_MAX - 2;

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
    /// Renewals and releases.
    first: VecDeque<Job>,
    jobs: VecDeque<Job>,
    /// How many of the others are being done.
    doing: usize,
    idle: usize,
    threads: usize,
}

impl State {
    /// How many jobs a thread may begin now.
    fn ready(&self) -> usize {
        self.first.len() + self.jobs.len().min(OTHERS_MAX.saturating_sub(self.doing))
    }

    /// The next job, and whether it is one of the others.
    fn take(&mut self) -> Option<(Job, bool)> {
        if let Some(job) = self.first.pop_front() {
            return Some((job, false));
        }
        if self.doing >= OTHERS_MAX {
            return None;
        }
        let job = self.jobs.pop_front()?;
        self.doing += 1;
        Some((job, true))
    }
}

impl Crew {
    /// Has a thread do it, once one has the time.
    pub(super) fn run(&self, job: Job) {
        self.state().jobs.push_back(job);
        self.call();
    }

    /// Has a thread do it before the others. A slow store does not keep all threads from it.
    pub(super) fn run_first(&self, job: Job) {
        self.state().first.push_back(job);
        self.call();
    }

    /// Whether jobs wait although no thread is there: the system would start none.
    pub(super) fn is_stuck(&self) -> bool {
        let state = self.state();
        state.threads == 0 && state.ready() > 0
    }

    /// Sees to it that a thread does what waits. If none can be started, another one does it later; without any,
    /// the job stays, and the caller calls again.
    pub(super) fn call(&self) {
        let mut state = self.state();
        let ready = state.ready();
        if ready == 0 {
            return;
        }
        if state.idle >= ready {
            self.0.called.notify_one();
            return;
        }
        if state.threads >= THREADS_MAX {
            return;
        }
        state.threads += 1;
        drop(state);
        let shared = Arc::clone(&self.0);
        if spawn(Box::new(move || shared.work())).is_err() {
            self.state().threads -= 1;
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
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
            while let Some((job, is_other)) = state.take() {
                drop(state);
                job();
                state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
                state.doing -= usize::from(is_other);
            }
            state.idle += 1;
            let woken = self.called.wait_timeout(state, IDLE);
            let (after, timeout) = woken.unwrap_or_else(PoisonError::into_inner);
            state = after;
            state.idle -= 1;
            if timeout.timed_out() && state.ready() == 0 {
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
