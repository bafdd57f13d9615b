//! The runtime of a connection, on a thread of its own.
//!
//! The gRPC library needs a runtime, and a store's callers block. So a task runs on this thread, and a
//! caller waits for its answer. Leases are renewed there too, and watches heard, while no caller waits.
//! The thread starts with the first task, and ends with the connection.
//!
//! A forked child has no such thread, and what other threads had locked at that instant stays locked. So
//! nothing may be asked of the runtime there, and dropping it does nothing.

use std::future::Future;
use std::io;
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use tokio::runtime::{Builder, Handle};
use tokio::sync::Notify;
use tokio::task::AbortHandle;

/// A runtime that starts when it is first used. Dropping it ends its thread, and all tasks.
pub(super) struct BackgroundRuntime {
    started: Mutex<Option<Handle>>,
    ends: Arc<Notify>,
    /// The process that may use it.
    process: u32,
}

impl BackgroundRuntime {
    pub(super) fn new() -> Self {
        Self {
            started: Mutex::default(),
            ends: Arc::default(),
            process: std::process::id(),
        }
    }

    /// Whether the runtime belongs to this process.
    pub(super) fn is_ours(&self) -> bool {
        std::process::id() == self.process
    }

    /// Runs a task and waits for it. The caller may be inside another runtime.
    pub(super) fn block<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> io::Result<T> {
        let (sender, receiver) = mpsc::sync_channel(1);
        self.spawn(async move {
            let _ = sender.send(work.await);
        })?;
        receiver.recv().map_err(|_| ended())
    }

    /// Runs a task and does not wait for it.
    pub(super) fn spawn(
        &self,
        work: impl Future<Output = ()> + Send + 'static,
    ) -> io::Result<AbortHandle> {
        Ok(self.handle()?.spawn(work).abort_handle())
    }

    fn handle(&self) -> io::Result<Handle> {
        let mut started = self.started.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(handle) = &*started {
            return Ok(handle.clone());
        }
        let handle = start(Arc::clone(&self.ends))?;
        Ok(started.insert(handle).clone())
    }
}

impl Drop for BackgroundRuntime {
    fn drop(&mut self) {
        if self.is_ours() {
            self.ends.notify_one();
        }
    }
}

/// Starts the thread. It makes the runtime itself, because a runtime must not be dropped inside another
/// one.
fn start(ends: Arc<Notify>) -> io::Result<Handle> {
    let (sender, receiver) = mpsc::sync_channel(1);
    std::thread::Builder::new()
        .name("tenure-etcd".to_owned())
        .spawn(move || {
            match Builder::new_current_thread().enable_all().build() {
                Ok(runtime) => {
                    let _ = sender.send(Ok(runtime.handle().clone()));
                    runtime.block_on(ends.notified());
                    // A name that is being resolved is not waited for.
                    runtime.shutdown_background();
                }
                Err(error) => drop(sender.send(Err(error))),
            }
        })?;
    receiver.recv().map_err(|_| ended())?
}

fn ended() -> io::Error {
    io::Error::other("the connection's thread has ended")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::expect_used, reason = "a test says what it expects by failing")]

    use super::BackgroundRuntime;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
    use std::time::Duration;

    const PATIENCE: Duration = Duration::from_secs(10);

    /// Sends a number every millisecond until the receiver is dropped.
    fn ticks(runtime: &BackgroundRuntime) -> Receiver<u32> {
        let (sender, ticks) = channel();
        let spawned = runtime.spawn(async move {
            for tick in 0.. {
                tokio::time::sleep(Duration::from_millis(1)).await;
                if sender.send(tick).is_err() {
                    return;
                }
            }
        });
        spawned.expect("a thread");
        ticks
    }

    #[test]
    fn many_callers_are_answered_and_need_each_other() {
        let runtime = BackgroundRuntime::new();
        let there = Arc::new(tokio::sync::Barrier::new(4));
        let answers = AtomicU32::new(0);
        std::thread::scope(|scope| {
            for number in 0..4 {
                let (runtime, there, answers) = (&runtime, &there, &answers);
                scope.spawn(move || {
                    for _ in 0..500 {
                        let there = Arc::clone(there);
                        let answer = runtime.block(async move {
                            there.wait().await;
                            number
                        });
                        assert_eq!(answer.expect("an answer"), number);
                        answers.fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
        });
        assert_eq!(answers.into_inner(), 2_000);
    }

    #[test]
    fn a_caller_inside_a_runtime_is_answered() {
        let other = tokio::runtime::Builder::new_current_thread().build();
        let other = other.expect("a runtime");
        let runtime = BackgroundRuntime::new();
        let answer = other.block_on(async { runtime.block(async { 7 }) });
        assert_eq!(answer.expect("an answer"), 7);
        let entered = other.enter();
        assert_eq!(runtime.block(async { 8 }).expect("an answer"), 8);
        drop(runtime);
        drop(entered);
    }

    #[test]
    fn its_end_is_the_end_of_what_is_under_way() {
        let runtime = BackgroundRuntime::new();
        let ticks = ticks(&runtime);
        ticks.recv_timeout(PATIENCE).expect("a tick");
        assert_eq!(runtime.block(async { 7 }).expect("an answer"), 7);
        ticks.recv_timeout(PATIENCE).expect("one more tick");
        drop(runtime);
        let mut rest = std::iter::from_fn(|| Some(ticks.recv_timeout(PATIENCE)));
        let last = rest.find(Result::is_err);
        assert_eq!(last, Some(Err(RecvTimeoutError::Disconnected)));
    }
}
