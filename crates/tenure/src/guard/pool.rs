//! The threads that enter the store for callers who brought none.
//!
//! At most [`AT_WORK_MAX`] of them are at work, and what comes meanwhile queues. A thread that sleeps in the store until
//! another process ends its hold is not at work ([`asleep`]): what queues behind it may be what that holder waits for. So
//! no free lock waits for one that is held.
//!
//! Where the system gives no thread, work waits for a thread that is there. Only without any does it fail. Threads end
//! some time after their work.

use crate::clock::{instant, since};
use crate::sync::locked;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Condvar, Mutex, PoisonError, Weak};
use std::time::Duration;

/// How many threads are at work at once. More only wait for each other: for the list's guard, or the connection.
const AT_WORK_MAX: usize = 16;

/// How long a thread without work waits for some.
const IDLE_MAX: Duration = Duration::from_secs(1);

/// Work for a thread.
pub(super) trait Work: Sized + Send + 'static {
    /// Does it. Answers with what comes of it: that queues behind what is there.
    fn run(self) -> Option<Self>;
}

/// The threads of a manager.
pub(super) struct Pool<W>(Arc<Inner<W>>);

struct Inner<W> {
    state: Mutex<State<W>>,
    /// There is work, or the manager has ended.
    changed: Condvar,
}

struct State<W> {
    queue: VecDeque<W>,
    threads: usize,
    /// How many of them have nothing to do.
    idle: usize,
    /// How many of them sleep in the store.
    asleep: usize,
    is_closed: bool,
}

impl<W> Default for Pool<W> {
    fn default() -> Self {
        Self(Arc::new(Inner {
            state: Mutex::new(State {
                queue: VecDeque::new(),
                threads: 0,
                idle: 0,
                asleep: 0,
                is_closed: false,
            }),
            changed: Condvar::new(),
        }))
    }
}

impl<W: Work> Pool<W> {
    /// Has a thread do it. What it is given comes back if there is none, and the system gives none.
    pub(super) fn add(&self, work: W) -> Result<(), (io::Error, W)> {
        let mut state = locked(&self.0.state);
        state.queue.push_back(work);
        let Err(source) = self.0.start(&mut state) else {
            return Ok(());
        };
        if state.threads > state.asleep {
            return Ok(());
        }
        let work = state.queue.pop_back();
        work.map_or(Ok(()), |work| Err((source, work)))
    }
}

impl<W> Drop for Pool<W> {
    fn drop(&mut self) {
        locked(&self.0.state).is_closed = true;
        self.0.changed.notify_all();
    }
}

impl<W: Work> Inner<W> {
    /// Wakes or starts a thread for what queues, unless enough are at work.
    fn start(self: &Arc<Self>, state: &mut State<W>) -> io::Result<()> {
        if state.queue.len() <= state.idle {
            self.changed.notify_one();
            return Ok(());
        }
        if state.queue.is_empty() || state.threads - state.asleep >= AT_WORK_MAX {
            return Ok(());
        }
        let inner = Arc::clone(self);
        let builder = std::thread::Builder::new().name("tenure-acquire".to_owned());
        builder.spawn(move || inner.work())?;
        state.threads += 1;
        Ok(())
    }

    fn work(self: &Arc<Self>) {
        let lender: Arc<dyn Lender> = Arc::clone(self) as Arc<dyn Lender>;
        let lender = Arc::downgrade(&lender);
        LENDER.set(Some(lender));
        while let Some(work) = self.next() {
            // What it calls may panic, and others need this thread.
            let run = std::panic::AssertUnwindSafe(|| work.run());
            let more = std::panic::catch_unwind(run).ok().flatten();
            locked(&self.state).queue.extend(more);
        }
    }

    fn next(&self) -> Option<W> {
        let mut state = locked(&self.state);
        let began = instant();
        loop {
            // Others that have woken up meanwhile may be enough by now; this one is there already.
            if let Some(work) = state.queue.pop_front() {
                return Some(work);
            }
            let rest = IDLE_MAX.saturating_sub(since(began));
            if state.is_closed || rest.is_zero() {
                // Under the same mutex: whoever adds work from now on starts another thread.
                state.threads -= 1;
                return None;
            }
            state.idle += 1;
            let waited = self.changed.wait_timeout(state, rest);
            (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
            state.idle -= 1;
        }
    }
}

/// A pool, as its threads lend themselves out.
trait Lender {
    fn sleeps(self: Arc<Self>);
    fn wakes(&self);
}

impl<W: Work> Lender for Inner<W> {
    fn sleeps(self: Arc<Self>) {
        let mut state = locked(&self.state);
        state.asleep += 1;
        // Without a thread, what queues waits for the next one that ends its work.
        drop(self.start(&mut state));
    }

    fn wakes(&self) {
        locked(&self.state).asleep -= 1;
    }
}

thread_local! {
    /// The pool that this thread belongs to.
    static LENDER: RefCell<Option<Weak<dyn Lender>>> = const { RefCell::new(None) };
}

/// Says that this thread is not at work, for as long as the answer is kept. A thread of no pool says nothing.
pub(super) fn asleep() -> Asleep {
    let lender = LENDER.with_borrow(|lender| lender.as_ref().and_then(Weak::upgrade));
    if let Some(lender) = &lender {
        Arc::clone(lender).sleeps();
    }
    Asleep(lender)
}

/// A thread that sleeps in the store.
pub(super) struct Asleep(Option<Arc<dyn Lender>>);

impl Drop for Asleep {
    fn drop(&mut self) {
        if let Some(lender) = &self.0 {
            lender.wakes();
        }
    }
}
