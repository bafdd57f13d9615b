//! Tests of modules that `tests/interleavings` compiles a second time. They stand in a file of their own,
//! because only what that test explores may run there.

mod cancel {
    use crate::cancel::*;
    use std::sync::mpsc;

    #[test]
    fn a_bell_rings_once_and_only_while_it_is_kept() {
        let cancel = Cancel::new();
        let (sender, receiver) = mpsc::channel();
        let kept = cancel.ring({
            let sender = sender.clone();
            move || sender.send("kept").unwrap_or_default()
        });
        drop(cancel.ring(move || sender.send("dropped").unwrap_or_default()));
        cancel.cancel();
        cancel.cancel();
        drop(kept);
        assert_eq!(receiver.iter().collect::<Vec<_>>(), ["kept"]);
    }

    #[test]
    fn what_is_heard_ends_with_the_work_even_if_it_panics() {
        let cancel = Cancel::new();
        let panicked = std::panic::catch_unwind(|| {
            listening(Some(&cancel), || {
                assert!(heard().is_some(), "heard inside");
                panic!("as the test wants it");
            });
        });
        assert!(panicked.is_err(), "it panicked");
        assert!(heard().is_none(), "and not after it");
    }
}

mod offload {
    use crate::offload::*;
    use std::sync::{Arc, mpsc};
    use std::task::{Context, Poll, Wake, Waker};
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
        let (promise, pending) = promise();
        promise.keep(Tells(sender));
        assert!(receiver.try_recv().is_err(), "kept for the future");
        drop(pending);
        assert_eq!(receiver.try_recv(), Ok("dropped"));
    }

    #[test]
    fn a_panic_of_the_work_goes_on_in_the_caller() {
        let outcome = std::panic::catch_unwind(|| {
            block_on(on_thread("test", || -> u8 {
                panic!("as the test wants it")
            }))
        });
        let panic = outcome.expect_err("the future ends");
        assert_eq!(panic.downcast_ref(), Some(&"as the test wants it"));
    }
}
