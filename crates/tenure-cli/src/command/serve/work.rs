//! Who does what may block: a few threads. The thread that reads, writes and keeps time never does.
//!
//! A short call waits for one of [`THREADS_MAX`] threads. A wait for a lock has a thread for itself: it sleeps in the
//! kernel on one byte of one file, and no call of any system waits for several of those. The number of waits is
//! bounded by who calls this ([`super::Serve`] lets one request per lock wait in the store).
//!
//! A thread that has nothing to do takes either. One that waits does not count among those for short calls, and comes
//! back to them when its wait is over, if there is room. So a program that takes one free lock after the other starts no
//! thread for each.

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
    /// Waits that a thread without work was called for.
    waits: VecDeque<Job>,
    /// Renewals and releases.
    first: VecDeque<Job>,
    jobs: VecDeque<Job>,
    /// How many of the others are being done.
    doing: usize,
    idle: usize,
    /// Those that do short calls or have nothing to do.
    threads: usize,
}

/// What kind of work a job is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Wait,
    First,
    Other,
}

impl State {
    /// How many jobs a thread may begin now.
    fn ready(&self) -> usize {
        let others = self.jobs.len().min(OTHERS_MAX.saturating_sub(self.doing));
        self.waits.len() + self.first.len() + others
    }

    /// The next job. The thread that takes it counts accordingly until it says [`State::did`].
    fn take(&mut self) -> Option<(Job, Kind)> {
        if let Some(job) = self.waits.pop_front() {
            self.threads -= 1;
            return Some((job, Kind::Wait));
        }
        if let Some(job) = self.first.pop_front() {
            return Some((job, Kind::First));
        }
        if self.doing >= OTHERS_MAX {
            return None;
        }
        let job = self.jobs.pop_front()?;
        self.doing += 1;
        Some((job, Kind::Other))
    }

    /// Its job is done. Whether the thread goes on to short calls.
    fn did(&mut self, kind: Kind) -> bool {
        match kind {
            Kind::Wait if self.threads >= THREADS_MAX => return false,
            Kind::Wait => self.threads += 1,
            Kind::First => {}
            Kind::Other => self.doing -= 1,
        }
        true
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
        call(&self.0);
    }

    /// Has a thread do it that does nothing else meanwhile: one without work, or a new one.
    pub(super) fn run_apart(&self, job: Job) -> std::io::Result<()> {
        let mut state = self.state();
        // Each job that is ready already has one of those without work.
        if state.idle > state.ready() {
            state.waits.push_back(job);
            drop(state);
            self.0.called.notify_one();
            return Ok(());
        }
        drop(state);
        let shared = Arc::clone(&self.0);
        spawn(Box::new(move || {
            job();
            let goes_on = shared.state().did(Kind::Wait);
            if goes_on {
                work(&shared);
            }
        }))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state()
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn call(shared: &Arc<Shared>) {
    let mut state = shared.state();
    let ready = state.ready();
    if ready == 0 {
        return;
    }
    if state.idle >= ready {
        drop(state);
        shared.called.notify_one();
        return;
    }
    if state.threads >= THREADS_MAX {
        return;
    }
    state.threads += 1;
    drop(state);
    let own = Arc::clone(shared);
    if spawn(Box::new(move || work(&own))).is_err() {
        shared.state().threads -= 1;
    }
}

/// Does what there is, until there was nothing for a while.
fn work(shared: &Arc<Shared>) {
    let mut state = shared.state();
    loop {
        while let Some((job, kind)) = state.take() {
            let is_short_of = kind == Kind::Wait && state.ready() > state.idle;
            drop(state);
            if is_short_of {
                // A short call may have relied on this thread, which does none for as long as it waits.
                call(shared);
            }
            job();
            state = shared.state();
            if !state.did(kind) {
                return;
            }
        }
        state.idle += 1;
        let woken = shared.called.wait_timeout(state, IDLE);
        let (after, timeout) = woken.unwrap_or_else(PoisonError::into_inner);
        state = after;
        state.idle -= 1;
        if timeout.timed_out() && state.ready() == 0 {
            state.threads -= 1;
            return;
        }
    }
}

fn spawn(job: Job) -> std::io::Result<()> {
    let thread = std::thread::Builder::new().stack_size(STACK);
    thread.spawn(job).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Barrier;
    use std::sync::mpsc::{Receiver, Sender, channel};
    use std::thread::ThreadId;
    use tenure_engine::clock::instant;

    /// How long a thread may take to come to its job.
    const LATE: Duration = Duration::from_secs(30);

    /// A job that says which thread does it, and does it until the other end of what it got is gone.
    fn job(said: &Sender<ThreadId>, until: Receiver<()>) -> Job {
        let said = said.clone();
        Box::new(move || {
            said.send(std::thread::current().id()).ok();
            until.recv().ok();
        })
    }

    /// A job that only says which thread does it.
    fn moment(said: &Sender<ThreadId>) -> Job {
        job(said, channel().1)
    }

    /// Waits until so many threads have nothing to do.
    fn until_idle(crew: &Crew, threads: usize) {
        let late = instant() + LATE;
        while crew.state().idle != threads {
            assert!(instant() < late, "the threads do not come to rest");
            std::thread::yield_now();
        }
    }

    #[test]
    fn waits_and_short_calls_that_follow_each_other_take_one_thread() {
        let (crew, (said, saying)) = (Crew::default(), channel());
        for _ in 0..3 {
            crew.run_apart(moment(&said)).unwrap();
            saying.recv_timeout(LATE).unwrap();
            until_idle(&crew, 1);
            crew.run_first(moment(&said));
            saying.recv_timeout(LATE).unwrap();
            until_idle(&crew, 1);
        }
        let state = crew.state();
        assert_eq!((state.threads, state.ready()), (1, 0));
    }

    #[test]
    fn no_wait_stands_behind_another() {
        let (crew, waits) = (Crew::default(), THREADS_MAX * 3);
        let (all, (said, saying)) = (Arc::new(Barrier::new(waits)), channel());
        crew.run(moment(&said));
        saying.recv_timeout(LATE).unwrap();
        until_idle(&crew, 1);
        for _ in 0..waits {
            let (all, said) = (Arc::clone(&all), said.clone());
            let wait = Box::new(move || {
                all.wait();
                said.send(std::thread::current().id()).ok();
            });
            crew.run_apart(wait).unwrap();
        }
        for _ in 0..waits {
            saying.recv_timeout(LATE).unwrap();
        }
    }

    #[test]
    fn a_release_stands_behind_no_wait_also_where_all_threads_have_work() {
        let (crew, (said, saying), mut ends) = (Crew::default(), channel(), Vec::new());
        let mut endless = || {
            let (end, until) = channel();
            ends.push(end);
            job(&said, until)
        };
        for _ in 0..THREADS_MAX {
            crew.run_first(endless());
            saying.recv_timeout(LATE).unwrap();
        }
        // The last of them has nothing to do, and is called for a wait and a release at once.
        ends.pop();
        until_idle(&crew, 1);
        let (end, until) = channel();
        crew.run_apart(job(&said, until)).unwrap();
        crew.run_first(moment(&said));
        for _ in 0..2 {
            saying.recv_timeout(LATE).unwrap();
        }
        drop(end);
    }
}
