//! Which thread turns the runtime: a caller that waits for an answer, or else its own thread.
//!
//! If a caller's request is handed to another thread, that costs two wake-ups, there and back. On a
//! quick disk this is as much as etcd's own work. So a caller turns the runtime itself while it waits,
//! and everything else on the connection goes on beside its request. The thread turns the runtime when
//! no caller waits, so that leases are renewed and watches heard. It leaves the runtime as soon as a
//! caller comes, and comes back when none has come for [`LINGER`]: a caller that locks mostly unlocks
//! soon. While a caller sleeps until a watch reports something, the thread does not linger at all. It
//! lingers again after the wake-up, because the caller is expected to ask.
//!
//! A right answer needs none of this. If another thread turns the runtime, that thread carries out a
//! caller's request. The same goes for a caller that is itself inside some runtime, where it must not
//! turn another one.
//!
//! In a forked child there is no such thread, and what other threads had locked at that instant stays
//! locked. So nothing may be asked of the runtime there, and dropping it does nothing.

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

/// For how long the thread expects the next caller after one has gone. Until then, notices that no
/// caller sleeps for (a lasting watch, the answer to a renewal) are not heard.
const LINGER: Duration = Duration::from_millis(100);

/// The runtime, as its callers see it. Dropping it ends the thread, and all tasks.
pub(super) struct SharedRuntime {
    /// The thread owns it, so that no caller ever has to shut it down.
    runtime: Weak<Runtime>,
    handle: Handle,
    shared: Arc<Shared>,
    /// Not its join handle: in a forked child that may be another thread's by now.
    thread: Thread,
    /// The process that has the thread.
    process: u32,
}

struct Shared {
    /// How many callers turn the runtime, or are about to.
    callers: AtomicUsize,
    /// How many callers wait for a task that was spawned, mostly for a notice of a watch.
    sleepers: AtomicUsize,
    /// There is a task that no caller waits for.
    is_left: AtomicBool,
    /// The thread turns the runtime.
    is_turned: AtomicBool,
    ends: AtomicBool,
    /// Asks the thread to leave the runtime.
    called: Notify,
    /// When a caller was there last.
    seen: Mutex<Instant>,
}

/// A caller that sleeps and does not turn the runtime. Meanwhile the thread turns it without lingering.
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
                    shared.turn_when_no_caller_does(&runtime);
                    // A caller has the runtime only for the length of a call, and there is no caller any
                    // more.
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

    /// Runs a task and waits for it; `None` if there is no runtime any more.
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

    /// Runs a task and does not wait for it.
    pub(super) fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) -> AbortHandle {
        let task = self.handle.spawn(work);
        self.shared.is_left.store(true, Ordering::SeqCst);
        self.thread.unpark();
        task.abort_handle()
    }

    /// From now on a caller sleeps until a task that was spawned has an answer, or a notice.
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
    /// There is a notice: the sleeper wakes, and will ask.
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

/// Ends a runtime if no other thread has it. A plain drop would wait, and may be inside another runtime.
fn end(runtime: Arc<Runtime>) {
    if let Some(runtime) = Arc::into_inner(runtime) {
        runtime.shutdown_background();
    }
}

/// Whether the calling thread may turn a runtime. Inside a runtime, also another one, it may only wait.
/// The same holds while the thread ends and its data of the runtime library is gone.
fn may_turn() -> bool {
    Handle::try_current().is_err_and(|error| error.is_missing_context())
}

/// A caller that turns the runtime.
struct Turn<'a> {
    shared: &'a Shared,
    thread: &'a Thread,
}

impl<'a> Turn<'a> {
    /// Announces a caller before it turns the runtime. Either the caller sees that the thread has the
    /// runtime, and asks the thread to leave it. Or the thread sees the caller when it takes the
    /// runtime.
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

    /// Whether a task or a sleeping caller needs the runtime without turning it.
    fn is_needed(&self) -> bool {
        self.is_left.load(Ordering::SeqCst) || self.sleepers.load(Ordering::SeqCst) > 0
    }

    /// How long the thread leaves the runtime alone from now on; `None` if it has to turn it.
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

    /// The loop of the thread.
    fn turn_when_no_caller_does(&self, runtime: &Runtime) {
        while !self.ends.load(Ordering::SeqCst) {
            if let Some(rest) = self.rest() {
                // If woken early, the thread looks again. A wake-up before the sleep has the same
                // effect.
                std::thread::park_timeout(rest);
                continue;
            }
            self.is_turned.store(true, Ordering::SeqCst);
            let mut called = pin!(self.called.notified());
            if called.as_mut().enable() {
                // An earlier call, whose caller is counted by now or has gone again.
                called.set(self.called.notified());
                called.as_mut().enable();
            }
            // Not before this point. An earlier caller is seen here. A later one sees that the runtime
            // is turned, and calls.
            let is_wanted = self.callers.load(Ordering::SeqCst) > 0;
            if !is_wanted && !self.ends.load(Ordering::SeqCst) {
                // A task that is spawned from now on sets it again.
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

    /// Sends a number every millisecond until the receiver is dropped.
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
