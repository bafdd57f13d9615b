//! A piece of blocking work on a thread of its own, as a future for any executor.
//!
//! The last owner drops the result of the work. So if the caller has gone, the thread that acquired a guard
//! for it releases that guard.

use crate::cancel::Cancel;
pub use crate::logs::Logs;
use crate::sync::{Arc, Mutex, Weak, locked, thread};
use std::any::Any;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

/// Does `work` on a thread of this name, as tools show it. It starts at the first poll. Logs go
/// where the caller's would. A panic in `work` goes on in the caller.
///
/// # Errors
/// - The system's answer, if it gives no thread.
pub async fn on_thread<T: Send + 'static>(
    name: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<T> {
    let logs = Logs::here();
    let (promise, pending) = promise();
    thread::Builder::new()
        .name(name.to_owned())
        .spawn(move || {
            logs.within(|| promise.work(work));
        })?;
    pending.await
}

/// Does work on a thread that can be cancelled: by dropping the future, or by cancelling `given`.
///
/// # Errors
/// - As [`on_thread`].
pub async fn cancellable<T: Send + 'static>(
    name: &str,
    given: Option<Cancel>,
    work: impl FnOnce(&Cancel) -> T + Send + 'static,
) -> io::Result<T> {
    struct Unwanted(Cancel);
    impl Drop for Unwanted {
        fn drop(&mut self) {
            self.0.cancel();
        }
    }
    let unwanted = Unwanted(Cancel::new());
    let own = unwanted.0.clone();
    let done = on_thread(name, move || {
        // The caller's own `given` still cancels the work.
        let _bell = given.as_ref().map(|given| {
            let own = own.clone();
            given.ring(move || own.cancel())
        });
        if given.as_ref().is_some_and(Cancel::is_cancelled) {
            own.cancel();
        }
        work(&own)
    });
    done.await
}

/// The result of a future that only blocks, and never waits.
pub fn at_once<T>(work: impl Future<Output = T>) -> T {
    let mut work = std::pin::pin!(work);
    loop {
        if let Poll::Ready(done) = work.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            return done;
        }
    }
}

/// Where the work stands.
enum State<T> {
    /// The work goes on; the waker is called at its end.
    Working(Option<Waker>),
    /// The work has ended, and its result was not fetched yet.
    Done(T),
    /// The work panicked with this.
    Panicked(Box<dyn Any + Send>),
    /// The thread ended without a result.
    Broken,
    /// The result was fetched, or is not wanted any more.
    Closed,
}

type Shared<T> = Arc<Mutex<State<T>>>;

/// Two sides of one piece of work.
pub fn promise<T>() -> (Promise<T>, PromisedValue<T>) {
    let shared = Arc::new(Mutex::new(State::Working(None)));
    (Promise(Arc::clone(&shared)), PromisedValue(shared))
}

/// The thread's side. Dropped without [`Promise::keep`] it is broken, and its future ends.
pub struct Promise<T>(Shared<T>);

impl<T> Promise<T> {
    /// Keeps it.
    pub fn keep(self, value: T) {
        self.settle(State::Done(value));
    }

    /// Keeps it with what `work` returns. A panic in it goes on in the caller that awaits.
    pub fn work(self, work: impl FnOnce() -> T) {
        // Nothing of the work is seen after a panic but by the caller, in whom the panic goes on.
        match catch_unwind(AssertUnwindSafe(work)) {
            Ok(value) => self.keep(value),
            Err(panic) => self.panic(panic),
        }
    }

    /// Has a panic go on in the caller that awaits.
    pub fn panic(self, panic: Box<dyn Any + Send>) {
        self.settle(State::Panicked(panic));
    }

    /// The value, as the thread's side sees it once the promise is kept.
    pub fn kept(&self) -> UnclaimedValue<T> {
        UnclaimedValue(Arc::downgrade(&self.0))
    }

    fn settle(&self, state: State<T>) {
        let mut current = locked(&self.0);
        let unwanted = match &mut *current {
            State::Working(waker) => {
                let waker = waker.take();
                *current = state;
                drop(current);
                if let Some(waker) = waker {
                    waker.wake();
                }
                None
            }
            State::Done(_) | State::Panicked(_) | State::Broken | State::Closed => {
                drop(current);
                Some(state)
            }
        };
        // Outside the lock: this may release a guard.
        drop(unwanted);
    }
}

impl<T> Drop for Promise<T> {
    fn drop(&mut self) {
        self.settle(State::Broken);
    }
}

/// A value that waits for its caller.
pub struct UnclaimedValue<T>(Weak<Mutex<State<T>>>);

impl<T> UnclaimedValue<T> {
    /// Takes the value back if nobody has fetched it, with a promise of another one. The caller takes it under the same
    /// mutex, so one of both gets it. `None` if there is nothing to take back (yet), or the caller has gone.
    pub fn take_back(&self) -> Option<(T, Promise<T>)> {
        let shared = self.0.upgrade()?;
        let mut current = locked(&shared);
        match std::mem::replace(&mut *current, State::Working(None)) {
            State::Done(value) => {
                drop(current);
                Some((value, Promise(shared)))
            }
            other => {
                *current = other;
                None
            }
        }
    }
}

/// The caller's side.
pub struct PromisedValue<T>(Shared<T>);

impl<T> Future for PromisedValue<T> {
    type Output = io::Result<T>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut current = locked(&self.0);
        if let State::Working(waker) = &mut *current {
            match waker {
                Some(known) => known.clone_from(context.waker()),
                None => *waker = Some(context.waker().clone()),
            }
            return Poll::Pending;
        }
        match std::mem::replace(&mut *current, State::Closed) {
            State::Done(value) => Poll::Ready(Ok(value)),
            State::Panicked(panic) => {
                drop(current);
                resume_unwind(panic)
            }
            State::Working(_) | State::Broken | State::Closed => {
                Poll::Ready(Err(io::Error::other("the thread ended early")))
            }
        }
    }
}

impl<T> Drop for PromisedValue<T> {
    fn drop(&mut self) {
        let unwanted = std::mem::replace(&mut *locked(&self.0), State::Closed);
        // Outside the lock: this may release a guard.
        drop(unwanted);
    }
}
