//! One piece of blocking work on a thread of its own, as a future for any executor.
//!
//! What the work gives is dropped by whoever has it last. A guard that is acquired for a caller
//! who has gone home is thus released by the thread that acquired it.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use tracing::{Span, dispatcher};

/// Does `work` on a thread of this name, as tools show it. It starts at the first poll. Logs go
/// where the caller's would.
///
/// # Errors
/// - The system's answer, if it gives no thread.
pub(crate) async fn on_thread<T: Send + 'static>(
    thread: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<T> {
    let dispatch = dispatcher::get_default(Clone::clone);
    let span = Span::current();
    let promise = Promise(Arc::new(Mutex::new(State::Working(None))));
    let pending = Pending(Arc::clone(&promise.0));
    std::thread::Builder::new()
        .name(thread.to_owned())
        .spawn(move || {
            dispatcher::with_default(&dispatch, || span.in_scope(|| promise.keep(work())));
        })?;
    pending.await
}

/// Where the work stands.
enum State<T> {
    /// It goes on; this is to be woken.
    Working(Option<Waker>),
    /// It has ended, and nobody has fetched what it gave.
    Done(T),
    /// The thread ended without a result.
    Broken,
    /// It was fetched, or nobody wants it any more.
    Closed,
}

type Shared<T> = Arc<Mutex<State<T>>>;

fn locked<T>(shared: &Shared<T>) -> MutexGuard<'_, State<T>> {
    // Nothing that can panic runs under this lock.
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The thread's side. Dropped without [`Promise::keep`] it is broken, and its future ends.
struct Promise<T>(Shared<T>);

impl<T> Promise<T> {
    fn keep(self, value: T) {
        self.settle(State::Done(value));
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
            State::Done(_) | State::Broken | State::Closed => {
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

/// The caller's side.
struct Pending<T>(Shared<T>);

impl<T> Future for Pending<T> {
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
            State::Working(_) | State::Broken | State::Closed => {
                Poll::Ready(Err(io::Error::other("the thread ended early")))
            }
        }
    }
}

impl<T> Drop for Pending<T> {
    fn drop(&mut self) {
        let unwanted = std::mem::replace(&mut *locked(&self.0), State::Closed);
        // Outside the lock: this may release a guard.
        drop(unwanted);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;
    use std::task::Wake;
    use std::thread::{self, Thread};

    struct Unpark(Thread);

    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }

    /// The smallest executor there is.
    fn block_on<F: Future>(future: F) -> F::Output {
        let waker = Waker::from(Arc::new(Unpark(thread::current())));
        let mut future = Box::pin(future);
        loop {
            match future.as_mut().poll(&mut Context::from_waker(&waker)) {
                Poll::Ready(output) => return output,
                Poll::Pending => thread::park(),
            }
        }
    }

    struct Tells(mpsc::Sender<&'static str>);

    impl Drop for Tells {
        fn drop(&mut self) {
            let _ = self.0.send("dropped");
        }
    }

    #[test]
    fn any_executor_gets_the_result() {
        assert_eq!(block_on(on_thread("test", || 7)).ok(), Some(7));
    }

    #[test]
    fn nothing_is_done_before_the_first_poll() {
        let (sender, receiver) = mpsc::channel::<()>();
        drop(on_thread("test", move || sender.send(())));
        assert!(receiver.recv().is_err(), "the work was dropped undone");
    }

    #[test]
    fn what_a_dropped_future_would_have_got_is_dropped() {
        let (go, wait) = mpsc::channel::<()>();
        let (sender, receiver) = mpsc::channel();
        let mut future = Box::pin(on_thread("test", move || {
            let _ = wait.recv();
            Tells(sender)
        }));
        let mut context = Context::from_waker(Waker::noop());
        assert!(future.as_mut().poll(&mut context).is_pending());
        drop(future);
        go.send(()).expect("the thread still works");
        assert_eq!(receiver.recv(), Ok("dropped"), "by the thread itself");
    }

    #[test]
    fn a_result_that_nobody_fetches_is_dropped_with_the_future() {
        let (sender, receiver) = mpsc::channel();
        let promise = Promise(Arc::new(Mutex::new(State::Working(None))));
        let pending = Pending(Arc::clone(&promise.0));
        promise.keep(Tells(sender));
        assert!(receiver.try_recv().is_err(), "kept for the future");
        drop(pending);
        assert_eq!(receiver.try_recv(), Ok("dropped"));
    }

    #[test]
    fn work_that_panics_is_an_error_and_no_endless_wait() {
        let outcome = block_on(on_thread("test", || -> u8 {
            panic!("as the test wants it")
        }));
        assert!(outcome.is_err(), "the future ends");
    }
}
