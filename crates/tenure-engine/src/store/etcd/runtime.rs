//! Who turns the runtime: whoever waits for an answer, or else a thread of its own.
//!
//! A request of a caller that is handed to another thread costs two wake-ups, there and back, which
//! on a quick disk is as much as etcd's own work. A caller therefore turns the runtime itself for as
//! long as it waits, and everything else that is under way on the connection goes on beside its
//! request. The thread turns it when nobody waits, so that leases are renewed and watches heard. It
//! leaves it to the callers as soon as one comes, and until none has come for [`LINGER`]: whoever
//! locks mostly unlocks soon. While somebody sleeps until a watch tells something, it lingers not at all, and
//! whoever was woken is expected to ask.
//!
//! None of this is needed for a right answer. A caller that finds the runtime turned by another
//! thread has its request carried out there, and so has one that is itself inside some runtime,
//! where turning another one is not allowed.
//!
//! In a forked child there is no such thread, and whatever the others had locked at that instant
//! stays locked: nothing is to be asked of a driver there, and dropping it does nothing.

use crate::clock::instant;
use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak, mpsc};
use std::thread::Thread;
use std::time::{Duration, Instant};
use tokio::runtime::{Handle, Runtime};
use tokio::sync::Notify;
use tokio::task::AbortHandle;

/// For how long after a caller has gone the thread expects the next one. Notices for nobody who sleeps
/// (a lasting watch, the answer to a renewal) are heard that much later then.
const LINGER: Duration = Duration::from_millis(5);

/// The runtime, as its callers see it. Dropping it ends the thread, and what is under way.
pub(super) struct SharedRuntime {
    /// The thread owns it, so that no caller ever has to shut it down.
    runtime: Weak<Runtime>,
    handle: Handle,
    shared: Arc<Shared>,
    /// Not what it could be joined by: in a forked child that may be another thread's by now.
    thread: Thread,
    /// The process that has the thread.
    process: u32,
}

struct Shared {
    /// How many callers turn it, or are about to.
    callers: AtomicUsize,
    /// How many wait for something that was spawned, mostly for a notice of a watch.
    sleepers: AtomicUsize,
    /// There is work which nobody waits for.
    is_left: AtomicBool,
    /// The thread turns it.
    is_turned: AtomicBool,
    ends: AtomicBool,
    /// Asks the thread to leave it.
    called: Notify,
    /// When a caller was there last.
    seen: Mutex<Instant>,
}

/// Somebody who sleeps and does not turn it: what it waits for goes on at once meanwhile.
pub(super) struct Sleeping {
    shared: Arc<Shared>,
    is_over: AtomicBool,
}

impl SharedRuntime {
    /// Starts the thread.
    pub(super) fn start() -> std::io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let handle = runtime.handle().clone();
        let runtime = Arc::new(runtime);
        let shared = Arc::new(Shared {
            callers: AtomicUsize::new(0),
            sleepers: AtomicUsize::new(0),
            is_left: AtomicBool::new(false),
            is_turned: AtomicBool::new(false),
            ends: AtomicBool::new(false),
            called: Notify::new(),
            seen: Mutex::new(instant()),
        });
        let weak = Arc::downgrade(&runtime);
        let started = std::thread::Builder::new()
            .name("tenure-etcd".to_owned())
            .spawn({
                let (shared, runtime) = (Arc::clone(&shared), Arc::clone(&runtime));
                move || {
                    shared.turn_when_nobody_does(&runtime);
                    // Nobody else has it for longer than a call, and there is none any more.
                    end(runtime);
                }
            });
        match started {
            Ok(thread) => Ok(Self {
                runtime: weak,
                handle,
                shared,
                thread: thread.thread().clone(),
                process: std::process::id(),
            }),
            Err(error) => {
                end(runtime);
                Err(error)
            }
        }
    }

    /// Whether the thread is this process's own.
    pub(super) fn is_ours(&self) -> bool {
        std::process::id() == self.process
    }

    /// Has something done and waits for it; `None` if there is no runtime any more.
    pub(super) fn block<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Option<T> {
        if !may_turn() {
            let _waits = self.sleeping();
            let (sender, receiver) = mpsc::sync_channel(1);
            self.spawn(async move {
                let _ = sender.send(work.await);
            });
            return receiver.recv().ok();
        }
        let runtime = self.runtime.upgrade()?;
        let _turn = Turn::take(&self.shared, &self.thread);
        Some(runtime.block_on(work))
    }

    /// Has something done and does not wait for it.
    pub(super) fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) -> AbortHandle {
        let task = self.handle.spawn(work);
        self.shared.is_left.store(true, Ordering::SeqCst);
        self.thread.unpark();
        task.abort_handle()
    }

    /// From now on somebody sleeps until something that was spawned has an answer, or a notice.
    pub(super) fn sleeping(&self) -> Arc<Sleeping> {
        self.shared.sleepers.fetch_add(1, Ordering::SeqCst);
        self.thread.unpark();
        Arc::new(Sleeping {
            shared: Arc::clone(&self.shared),
            is_over: AtomicBool::new(false),
        })
    }
}

impl Drop for SharedRuntime {
    fn drop(&mut self) {
        if !self.is_ours() {
            return;
        }
        self.shared.ends.store(true, Ordering::SeqCst);
        self.shared.called.notify_one();
        self.thread.unpark();
    }
}

impl Sleeping {
    /// There are notices: the sleeper wakes, and is going to ask.
    pub(super) fn wakes(&self) {
        if self.is_over.swap(true, Ordering::SeqCst) {
            return;
        }
        self.shared.see();
        if self.shared.sleepers.fetch_sub(1, Ordering::SeqCst) == 1 {
            self.shared.called.notify_one();
        }
    }
}

impl Drop for Sleeping {
    fn drop(&mut self) {
        if !self.is_over.swap(true, Ordering::SeqCst) {
            self.shared.sleepers.fetch_sub(1, Ordering::SeqCst);
        }
    }
}

/// Ends a runtime if nobody else has it. Not by a drop, which waits and may be inside another one.
fn end(runtime: Arc<Runtime>) {
    if let Some(runtime) = Arc::into_inner(runtime) {
        runtime.shutdown_background();
    }
}

/// Whether the thread that asks may turn a runtime. Inside one, be it another's, waiting is all that
/// is allowed; and so it is while the thread ends and what a runtime keeps of it is gone.
fn may_turn() -> bool {
    Handle::try_current().is_err_and(|error| error.is_missing_context())
}

/// A caller that turns the runtime.
struct Turn<'a> {
    shared: &'a Shared,
    thread: &'a Thread,
}

impl<'a> Turn<'a> {
    /// Before a caller turns it. Either the thread is seen to have it here and is asked to leave it,
    /// or the thread sees the caller when it takes it.
    fn take(shared: &'a Shared, thread: &'a Thread) -> Self {
        shared.callers.fetch_add(1, Ordering::SeqCst);
        if shared.is_turned.load(Ordering::SeqCst) {
            shared.called.notify_one();
        }
        Self { shared, thread }
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.shared.see();
        let others = self.shared.callers.fetch_sub(1, Ordering::SeqCst) - 1;
        if others == 0 && self.shared.is_needed() {
            self.thread.unpark();
        }
    }
}

impl Shared {
    fn seen(&self) -> std::sync::MutexGuard<'_, Instant> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn see(&self) {
        *self.seen() = instant();
    }

    /// Whether somebody counts on the runtime who does not turn it.
    fn is_needed(&self) -> bool {
        self.is_left.load(Ordering::SeqCst) || self.sleepers.load(Ordering::SeqCst) > 0
    }

    /// How long the thread leaves the runtime alone from now on; `None` if it is to turn it.
    fn rest(&self) -> Option<Duration> {
        if self.callers.load(Ordering::SeqCst) > 0 {
            return Some(LINGER);
        }
        if self.is_needed() {
            return None;
        }
        let since = instant().saturating_duration_since(*self.seen());
        LINGER.checked_sub(since).filter(|rest| !rest.is_zero())
    }

    /// What the thread does.
    fn turn_when_nobody_does(&self, runtime: &Runtime) {
        while !self.ends.load(Ordering::SeqCst) {
            if let Some(rest) = self.rest() {
                // Woken early it looks again, and so it does if it was woken before it slept.
                std::thread::park_timeout(rest);
                continue;
            }
            self.is_turned.store(true, Ordering::SeqCst);
            let mut called = pin!(self.called.notified());
            if called.as_mut().enable() {
                // A call of the past, whose caller is counted by now or has gone again.
                called.set(self.called.notified());
                called.as_mut().enable();
            }
            // Only now: a caller that came before this is seen here, and a later one sees that it is
            // turned, and calls.
            let is_wanted = self.callers.load(Ordering::SeqCst) > 0;
            if !is_wanted && !self.ends.load(Ordering::SeqCst) {
                // What is left to do from now on says so again.
                self.is_left.store(false, Ordering::SeqCst);
                runtime.block_on(called);
            }
            self.is_turned.store(false, Ordering::SeqCst);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::expect_used, reason = "a test says what it expects by failing")]

    use super::{LINGER, SharedRuntime};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
    use std::time::Duration;

    const PATIENCE: Duration = Duration::from_secs(10);

    /// Sends something every millisecond for as long as it is let.
    fn ticks(driver: &SharedRuntime) -> Receiver<u32> {
        let (sender, ticks) = channel();
        driver.spawn(async move {
            for tick in 0.. {
                tokio::time::sleep(Duration::from_millis(1)).await;
                if sender.send(tick).is_err() {
                    return;
                }
            }
        });
        ticks
    }

    #[test]
    fn what_nobody_waits_for_goes_on_with_callers_and_without() {
        let driver = SharedRuntime::start().expect("a thread");
        let ticks = ticks(&driver);
        for _ in 0..3 {
            // Longer than the thread lingers, shorter, and not at all.
            for pause in [3 * LINGER, LINGER / 5, Duration::ZERO] {
                let answer = driver.block(async move {
                    tokio::time::sleep(pause).await;
                    7
                });
                assert_eq!(answer, Some(7));
                ticks.recv_timeout(PATIENCE).expect("a tick");
                while ticks.try_recv().is_ok() {}
                ticks.recv_timeout(PATIENCE).expect("one more tick");
            }
        }
    }

    #[test]
    fn many_callers_are_answered_and_need_each_other() {
        let driver = SharedRuntime::start().expect("a thread");
        let there = Arc::new(tokio::sync::Barrier::new(4));
        let answers = AtomicU32::new(0);
        std::thread::scope(|scope| {
            for number in 0..4 {
                let (driver, there, answers) = (&driver, &there, &answers);
                scope.spawn(move || {
                    for _ in 0..500 {
                        let there = Arc::clone(there);
                        let answer = driver.block(async move {
                            there.wait().await;
                            number
                        });
                        assert_eq!(answer, Some(number));
                        answers.fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
        });
        assert_eq!(answers.into_inner(), 2_000);
    }

    #[test]
    fn a_caller_inside_a_runtime_is_answered() {
        let driver = SharedRuntime::start().expect("a thread");
        let runtime = tokio::runtime::Builder::new_current_thread().build();
        let runtime = runtime.expect("a runtime");
        let answer = runtime.block_on(async { driver.block(async { 7 }) });
        assert_eq!(answer, Some(7));
        let entered = runtime.enter();
        assert_eq!(driver.block(async { 8 }), Some(8));
        drop(entered);
    }

    #[test]
    fn who_sleeps_is_woken_whoever_turns_it() {
        let driver = SharedRuntime::start().expect("a thread");
        for round in 0..200 {
            let sleeping = driver.sleeping();
            let (sender, notices) = channel();
            let sleeper = Arc::clone(&sleeping);
            driver.spawn(async move {
                tokio::time::sleep(Duration::from_micros(round * 10)).await;
                sleeper.wakes();
                let _ = sender.send(());
            });
            if round % 2 == 0 {
                assert_eq!(driver.block(async { 7 }), Some(7));
            }
            notices.recv_timeout(PATIENCE).expect("it was woken");
        }
        assert_eq!(driver.shared.sleepers.load(Ordering::SeqCst), 0);
    }

    #[test]
    fn its_end_is_the_end_of_what_is_under_way() {
        let driver = SharedRuntime::start().expect("a thread");
        let ticks = ticks(&driver);
        ticks.recv_timeout(PATIENCE).expect("a tick");
        drop(driver);
        let mut rest = std::iter::from_fn(|| Some(ticks.recv_timeout(PATIENCE)));
        let last = rest.find(Result::is_err);
        assert_eq!(last, Some(Err(RecvTimeoutError::Disconnected)));
    }
}
