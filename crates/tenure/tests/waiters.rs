//! Many waiters of one process for one lock: their order, and what they cost.
//!
//! Each test counts threads or files of this process, so no two of them run at once.

#![cfg(target_os = "linux")]
#![allow(clippy::expect_used, reason = "a test says what it expects by failing")]

use std::future::poll_fn;
use std::path::Path;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use tenure::guard::{AcquireError, Again, Guard, LockManager, Options, Wait};

/// The tests of this file take turns, for each counts what this process has.
static ALONE: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Self {
        Self(tempfile::tempdir().expect("a folder"))
    }

    fn locks(&self) -> LockManager {
        LockManager::new(self.0.path()).expect("a folder with a name")
    }
}

fn turns() -> Options {
    Options::new().wait(Wait::Forever).again(Again::Wait)
}

/// How many threads and open files this process has.
fn threads_and_files() -> (usize, usize) {
    let count = |path: &str| std::fs::read_dir(Path::new(path)).expect("a list").count();
    (count("/proc/self/task"), count("/proc/self/fd"))
}

type Acquires = Pin<Box<dyn Future<Output = Result<Guard, AcquireError>> + Send>>;

/// So many futures that wait for the lock, in this order.
async fn waiting(locks: &LockManager, name: &'static str, count: usize) -> Vec<Acquires> {
    let mut all = Vec::with_capacity(count);
    for _ in 0..count {
        let locks = locks.clone();
        let mut acquires: Acquires =
            Box::pin(async move { locks.acquire_async(name, &turns()).await });
        let first = poll_fn(|context| Poll::Ready(acquires.as_mut().poll(context))).await;
        assert!(first.is_pending(), "it is held");
        all.push(acquires);
    }
    all
}

fn runtime() -> tokio::runtime::Runtime {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_time()
        .build();
    runtime.expect("a runtime")
}

/// So many tasks take turns, in the order in which they asked, without a thread or a file each.
fn tasks_take_turns(count: usize) {
    let place = Place::new();
    let locks = place.locks();
    let order = Arc::new(Mutex::new(Vec::new()));
    runtime().block_on(async {
        let held = locks.acquire_async("a", &turns()).await.expect("free");
        let before = threads_and_files();
        let all = waiting(&locks, "a", count).await;
        let waiting = threads_and_files();
        let tasks = all.into_iter().enumerate().map(|(number, acquires)| {
            let order = Arc::clone(&order);
            tokio::spawn(async move {
                let guard = acquires.await?;
                let token = guard.token();
                order.lock().expect("a list").push((number, token));
                assert!(guard.release_async().await.is_ok(), "a release");
                Ok::<_, AcquireError>(())
            })
        });
        let tasks: Vec<_> = tasks.collect();
        held.release_async().await.expect("a release");
        for task in tasks {
            task.await.expect("no panic").expect("a turn");
        }
        assert!(waiting.0 <= before.0 + 4, "no thread each");
        assert!(waiting.1 <= before.1 + 8, "no file each");
    });
    let order = order.lock().expect("a list");
    assert_eq!(order.len(), count);
    assert!(order.is_sorted(), "in the order in which they asked");
    assert!(order.is_sorted_by_key(|(_, token)| *token), "tokens rise");
}

#[test]
fn a_thousand_tasks_take_turns_in_order_without_a_thread_or_a_file_each() {
    let _alone = alone();
    tasks_take_turns(1_000);
}
