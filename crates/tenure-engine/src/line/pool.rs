//! The threads that enter the store for callers who brought none.
//!
//! What they do is a task: a future that blocks its thread while the store makes a change, and waits without one. At most
//! [`AT_WORK_MAX`] threads are at work (more over servers), and what comes meanwhile queues. A thread that sleeps because its store knows no
//! other way is not at work ([`asleep`]): what queues behind it may be what it waits for. So no free lock waits for one
//! that is held.
//!
//! Work of moments may begin on the thread that brings it ([`Room::begin_here`]), which saves two wake-ups.
//!
//! A task begins only where there is a thread for it ([`Pool::reserve`]), and the last thread stays while there are tasks.
//! So where the system gives no more threads, tasks queue for those that are there. The other threads end some time after
//! their work.

use crate::sync::locked;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError, Weak};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;
use tenure_os::brief::briefly;
use tenure_os::clock::{instant, since};

/// How many threads are at work at once. In a folder more only wait for each other. Servers that are silent keep a thread
/// for half a second and more, so bounded waits would queue behind each other there.
const AT_WORK_MAX: usize = 16;
const AT_WORK_MAX_OVER_SERVERS: usize = 64;

/// How long a thread without work waits for some.
const IDLE_MAX: Duration = Duration::from_secs(1);

/// The threads of a manager, or of a serve.
pub struct Pool(Arc<Inner>);

struct Inner {
    at_work_max: usize,
    state: Mutex<State>,
    /// Notified when work comes, and when the manager ends.
    changed: Condvar,
    is_closed: AtomicBool,
}

#[derive(Default)]
struct State {
    queue: VecDeque<Arc<Task>>,
    /// How many tasks have begun, or are to begin.
    tasks: usize,
    threads: usize,
    /// How many of them have nothing to do.
    idle: usize,
    /// How many of them sleep in the store.
    asleep: usize,
}

impl Pool {
    /// The threads for a store, perhaps on servers.
    pub fn new(over_servers: bool) -> Self {
        Self(Arc::new(Inner {
            at_work_max: if over_servers {
                AT_WORK_MAX_OVER_SERVERS
            } else {
                AT_WORK_MAX
            },
            state: Mutex::default(),
            changed: Condvar::new(),
            is_closed: AtomicBool::new(false),
        }))
    }

    /// Sees to it that there is a thread for one more task.
    ///
    /// # Errors
    /// - The system's answer, if it gives no thread, and none is there.
    pub fn reserve(&self) -> io::Result<Room> {
        let mut state = locked(&self.0.state);
        if state.threads == state.asleep {
            self.0.begin(&mut state)?;
        }
        state.tasks += 1;
        Ok(Room(Arc::clone(&self.0)))
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        // Without the mutex: in a copy made by a fork, another thread may have had it for ever. A thread that misses this ends
        // a little later by itself.
        self.0.is_closed.store(true, Ordering::Release);
        self.0.changed.notify_all();
    }
}

/// Room for one task.
pub struct Room(Arc<Inner>);

impl Room {
    /// Begins a task.
    pub fn spawn(self, work: impl Future<Output = ()> + Send + 'static) {
        let pool = Arc::clone(&self.0);
        pool.push(self.task(work));
    }

    /// Begins a task on this thread, [`briefly`]. If the task is not done then, a thread of the pool goes on with it.
    pub fn begin_here(self, work: impl Future<Output = ()> + Send + 'static) {
        let pool = Arc::clone(&self.0);
        let task = self.task(work);
        if briefly(|| Arc::clone(&task).run()) {
            pool.push(task);
        }
    }

    fn task(self, work: impl Future<Output = ()> + Send + 'static) -> Arc<Task> {
        Arc::new(Task {
            state: Mutex::new(TaskState::Queued(Box::pin(work))),
            room: self,
        })
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        locked(&self.0.state).tasks -= 1;
    }
}

struct Task {
    state: Mutex<TaskState>,
    room: Room,
}

type TaskFuture = Pin<Box<dyn Future<Output = ()> + Send>>;

enum TaskState {
    /// The task waits to be woken.
    Parked(TaskFuture),
    Queued(TaskFuture),
    Running {
        /// Whether the task was woken meanwhile, so that it may not have seen why.
        is_woken: bool,
    },
    Done,
}

impl Task {
    /// Does a part of the work. Whether the task was woken meanwhile: then it stands to be queued again.
    fn run(self: Arc<Self>) -> bool {
        let running = TaskState::Running { is_woken: false };
        let queued = std::mem::replace(&mut *locked(&self.state), running);
        let TaskState::Queued(mut work) = queued else {
            return false;
        };
        let waker = Waker::from(Arc::clone(&self));
        let mut context = Context::from_waker(&waker);
        // What it calls may panic, and others need this thread.
        let polled = catch_unwind(AssertUnwindSafe(|| work.as_mut().poll(&mut context)));
        let mut state = locked(&self.state);
        let is_woken = matches!(*state, TaskState::Running { is_woken: true });
        match polled {
            Ok(Poll::Pending) if is_woken => {
                *state = TaskState::Queued(work);
                return true;
            }
            Ok(Poll::Pending) => *state = TaskState::Parked(work),
            Ok(Poll::Ready(())) | Err(_) => {
                *state = TaskState::Done;
                drop(state);
                // Outside of the mutex: what it leaves may wake others.
                drop(catch_unwind(AssertUnwindSafe(|| drop(work))));
            }
        }
        false
    }
}

impl Wake for Task {
    fn wake(self: Arc<Self>) {
        let mut state = locked(&self.state);
        match std::mem::replace(&mut *state, TaskState::Done) {
            TaskState::Parked(work) => {
                *state = TaskState::Queued(work);
                drop(state);
                Arc::clone(&self.room.0).push(self);
            }
            TaskState::Running { .. } => *state = TaskState::Running { is_woken: true },
            other => *state = other,
        }
    }
}

impl Inner {
    fn push(self: Arc<Self>, task: Arc<Task>) {
        let mut state = locked(&self.state);
        state.queue.push_back(task);
        self.call(&mut state);
    }

    /// Wakes or starts a thread for what queues, unless enough are at work.
    fn call(self: &Arc<Self>, state: &mut State) {
        if state.queue.len() <= state.idle {
            self.changed.notify_one();
        } else if !state.queue.is_empty() && state.threads - state.asleep < self.at_work_max {
            // Without one more, it waits for one that is there.
            drop(self.begin(state));
        }
    }

    fn begin(self: &Arc<Self>, state: &mut State) -> io::Result<()> {
        let inner = Arc::clone(self);
        let builder = std::thread::Builder::new().name("tenure-acquire".to_owned());
        builder.spawn(move || inner.work())?;
        state.threads += 1;
        Ok(())
    }

    fn work(self: &Arc<Self>) {
        LENDER.set(Some(Arc::downgrade(self)));
        while let Some(task) = self.next() {
            if Arc::clone(&task).run() {
                // Behind the others, and for this thread: nobody else is called.
                locked(&self.state).queue.push_back(task);
            }
        }
    }

    fn next(&self) -> Option<Arc<Task>> {
        let mut state = locked(&self.state);
        let began = instant();
        loop {
            if let Some(task) = state.queue.pop_front() {
                return Some(task);
            }
            let rest = IDLE_MAX.saturating_sub(since(began));
            let is_last = state.threads - state.asleep == 1 && state.tasks > 0;
            if self.is_closed.load(Ordering::Acquire) || (rest.is_zero() && !is_last) {
                // Under the same mutex: whoever adds work from now on starts another thread.
                state.threads -= 1;
                return None;
            }
            let rest = if is_last { IDLE_MAX } else { rest };
            state.idle += 1;
            let waited = self.changed.wait_timeout(state, rest);
            (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
            state.idle -= 1;
        }
    }
}

thread_local! {
    /// The pool that this thread belongs to.
    static LENDER: RefCell<Option<Weak<Inner>>> = const { RefCell::new(None) };
}

/// Says that this thread is not at work, for as long as the answer is kept. A thread of no pool says nothing.
pub fn asleep() -> Asleep {
    let lender = LENDER.with_borrow(|lender| lender.as_ref().and_then(Weak::upgrade));
    if let Some(lender) = &lender {
        let mut state = locked(&lender.state);
        state.asleep += 1;
        lender.call(&mut state);
    }
    Asleep(lender)
}

/// A thread that sleeps in the store.
pub struct Asleep(Option<Arc<Inner>>);

impl Drop for Asleep {
    fn drop(&mut self) {
        if let Some(lender) = &self.0 {
            locked(&lender.state).asleep -= 1;
        }
    }
}
