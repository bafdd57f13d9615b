//! Work of moments on a thread that others wait for, such as the only one that reads requests.
//!
//! Nothing sleeps on a thread while it works [`briefly`]. Code that would have to sleep asks [`may_sleep`] first, and answers at once
//! that it could not go on. Async code goes on [`elsewhere`], where a thread has time for it.

use std::cell::Cell;
use std::future::poll_fn;
use std::task::Poll;

thread_local! {
    static IS_BRIEF: Cell<bool> = const { Cell::new(false) };
}

/// Does this work on a thread that may not sleep meanwhile.
pub fn briefly<T>(work: impl FnOnce() -> T) -> T {
    struct Before(bool);
    impl Drop for Before {
        fn drop(&mut self) {
            IS_BRIEF.set(self.0);
        }
    }
    let _before = Before(IS_BRIEF.replace(true));
    work()
}

/// Whether this thread may sleep.
pub fn may_sleep() -> bool {
    !IS_BRIEF.get()
}

/// Ready on a thread that may sleep. On another one it has whoever polls it go on later, and elsewhere.
pub async fn elsewhere() {
    poll_fn(|context| {
        if may_sleep() {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::pin::pin;
    use std::task::{Context, Waker};

    #[test]
    fn brief_work_ends_with_its_closure_however_it_ends() {
        assert!(may_sleep());
        assert!(!briefly(|| briefly(may_sleep) || may_sleep()));
        assert!(may_sleep());
        let panics = std::panic::catch_unwind(|| briefly(|| panic!("on purpose")));
        assert!(panics.is_err() && may_sleep());
        let other = briefly(|| std::thread::spawn(may_sleep).join());
        assert!(other.expect("a thread"), "another thread may sleep");
    }

    #[test]
    fn async_work_goes_on_where_it_may_sleep() {
        let mut task = pin!(elsewhere());
        let mut context = Context::from_waker(Waker::noop());
        for _ in 0..3 {
            assert!(briefly(|| task.as_mut().poll(&mut context)).is_pending());
        }
        assert!(task.as_mut().poll(&mut context).is_ready());
    }
}
