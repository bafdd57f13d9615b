//! What waiting costs over servers: bounded waits get their share of grants, a hand-over takes no pause, and no wait
//! takes a thread of its own for longer than it needs one.

use super::server::Server;
use super::{caller, claims, is_long, line_up, name, now, take};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tenure::guard::{AcquireError, Again, LockManager, Options, Wait};
use tenure::store::etcd::Credentials;
use tenure::store::{Verbs, Wake};
use tenure_os::clock::{instant, since};

fn locks(server: &Server, prefix: &str) -> LockManager {
    let address = server.address(prefix);
    LockManager::etcd(&address, &Credentials::default()).expect("a manager")
}

fn runtime() -> tokio::runtime::Runtime {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_time()
        .build();
    runtime.expect("a runtime")
}

/// How many threads this process has.
fn threads() -> usize {
    std::fs::read_dir("/proc/self/task").map_or(0, Iterator::count)
}

/// The most threads that this process has while `work` runs.
fn most_threads<T>(work: impl FnOnce() -> T) -> (T, usize) {
    let most = Arc::new(AtomicUsize::new(0));
    let looks = {
        let most = Arc::downgrade(&most);
        std::thread::spawn(move || {
            while let Some(most) = most.upgrade() {
                most.fetch_max(threads(), Ordering::SeqCst);
                drop(most);
                std::thread::sleep(Duration::from_millis(2));
            }
        })
    };
    let done = work();
    let seen = most.load(Ordering::SeqCst);
    drop(most);
    looks.join().expect("no panic");
    (done, seen)
}

/// Tasks that ask again and again with a timeout, and work for a moment under the lock.
#[test]
fn tasks_with_short_timeouts_get_their_grants_table() {
    let server = Server::start();
    let runtime = runtime();
    // Tasks, what each of them waits, how it asks, and how many grants a second there are at least.
    for (row, tasks, wait_ms, again, least) in [
        ("few", 12_usize, 20_u64, Again::Refuse, 20_usize),
        ("many", 100, 200, Again::Refuse, 20),
        ("many in turns", 100, 200, Again::Wait, 20),
    ] {
        let locks = locks(&server, "timeouts");
        let length = Duration::from_secs(3);
        let (granted, tried) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let before = threads();
        let ((), most) = most_threads(|| {
            runtime.block_on(async {
                let all: Vec<_> = (0..tasks)
                    .map(|_| {
                        let (locks, granted, tried) =
                            (locks.clone(), Arc::clone(&granted), Arc::clone(&tried));
                        tokio::spawn(async move {
                            let wait = Wait::For(Duration::from_millis(wait_ms));
                            let options = Options::new().wait(wait).again(again);
                            let began = instant();
                            while since(began) < length {
                                tried.fetch_add(1, Ordering::Relaxed);
                                if let Ok(guard) = locks.acquire_async("a", &options).await {
                                    granted.fetch_add(1, Ordering::Relaxed);
                                    tokio::time::sleep(Duration::from_millis(2)).await;
                                    drop(guard);
                                } else {
                                    tokio::time::sleep(Duration::from_millis(2)).await;
                                }
                            }
                        })
                    })
                    .collect();
                for task in all {
                    task.await.expect("no panic");
                }
            });
        });
        let began = instant();
        drop(locks.acquire("a").expect("the line has drained"));
        let (granted, drained) = (granted.load(Ordering::SeqCst), since(began));
        println!(
            "{row}: {granted} grants of {} tries, {before} threads before, at most {most}, drained in {drained:?}",
            tried.load(Ordering::SeqCst)
        );
        let enough = least * usize::try_from(length.as_secs()).expect("seconds");
        assert!(granted >= enough, "{row}: {granted} grants");
        assert!(
            most <= before + 80,
            "{row}: {most} threads, {before} before"
        );
        assert!(drained < Duration::from_secs(1), "{row}: {drained:?}");
    }
}

/// A claim that ends between a waiter's look and its sleep. Other keys are written meanwhile, so the watch begins in the
/// past, which etcd tells of every 100 ms.
#[test]
fn what_ends_right_before_a_sleep_ends_the_sleep_at_once() {
    let server = Server::start();
    let store = caller(&server.address("sleeps"));
    let ttl = Duration::from_secs(30);
    let mut slept = Vec::new();
    for number in 0..20 {
        let name = name(&format!("sleeps-{number}"));
        let (first, _) = take(&store, &name, "first", ttl);
        let (second, behind) = line_up(&store, &name, "second", ttl);
        store.release(&*first, &now()).expect("an answer");
        let began = instant();
        let wake = store.sleep(&*second, &behind, &now(), Some(began + ttl));
        assert_eq!(wake.expect("a sleep"), Wake::Ready);
        slept.push(since(began));
    }
    slept.sort();
    // Other programs may keep the processors for some time.
    assert!(slept[10] < Duration::from_millis(20), "{slept:?}");
}

/// Tasks of one program that take turns: each gap from one grant to the next.
#[test]
fn a_hand_over_between_tasks_of_one_program_takes_no_pause_of_servers() {
    let server = Server::start();
    let runtime = runtime();
    let locks = locks(&server, "hand-over");
    let grants = Arc::new(Mutex::new(Vec::new()));
    runtime.block_on(async {
        let options = Options::new().wait(Wait::Forever).again(Again::Wait);
        let all: Vec<_> = (0..500)
            .map(|_| {
                let (locks, options) = (locks.clone(), options.clone());
                let grants = Arc::clone(&grants);
                tokio::spawn(async move {
                    let guard = locks.acquire_async("a", &options).await.expect("a turn");
                    grants.lock().expect("a list").push(instant());
                    guard.release_async().await.expect("a release");
                })
            })
            .collect();
        for task in all {
            task.await.expect("no panic");
        }
    });
    let mut grants = grants.lock().expect("a list").clone();
    grants.sort();
    let mut gaps: Vec<_> = (grants.windows(2))
        .map(|two| two[1].saturating_duration_since(two[0]))
        .collect();
    gaps.sort();
    let at = |share: usize| gaps[(gaps.len() - 1) * share / 100];
    println!(
        "{:?}, 90 %: {:?}, 99 %: {:?}, at most {:?}",
        at(50),
        at(90),
        at(99),
        at(100)
    );
    // A busy machine makes all of them slower. The pause of a watch of the past was 100 ms, and 11 to 23 of them had one.
    let paused = gaps.iter().filter(|gap| **gap > Duration::from_millis(80));
    assert!(
        at(50) < Duration::from_millis(20) && paused.count() <= 3,
        "{gaps:?}"
    );
}

/// Many free locks at once: there are some threads for them, and not one for each.
#[test]
fn many_free_locks_at_once_are_taken_by_some_threads() {
    let server = Server::start();
    let runtime = runtime();
    let locks = locks(&server, "free");
    drop(locks.acquire("warm").expect("a free lock"));
    let before = threads();
    let began = instant();
    let (guards, most) = most_threads(|| {
        runtime.block_on(async {
            let all: Vec<_> = (0..1_000)
                .map(|number| {
                    let locks = locks.clone();
                    tokio::spawn(async move {
                        let name = format!("free-{number}");
                        locks.acquire_async(&name, &Options::new()).await
                    })
                })
                .collect();
            let mut guards = Vec::new();
            for task in all {
                guards.push(task.await.expect("no panic").expect("a free lock"));
            }
            guards
        })
    });
    println!(
        "{} locks in {:?}: {before} threads before, at most {most}",
        guards.len(),
        since(began)
    );
    assert!(most <= before + 80, "{most} threads, {before} before");
}

/// Waits for many locks that others hold: `TENURE_ETCD=long` takes 3,000 of them. None has a thread or an open file.
#[test]
fn waits_for_many_locks_take_no_thread_each() {
    let count = if is_long() { 3_000 } else { 300 };
    let server = Server::start();
    let runtime = runtime();
    let (theirs, ours) = (locks(&server, "waits"), locks(&server, "waits"));
    let names: Vec<_> = (0..count).map(|number| format!("waits-{number}")).collect();
    let files = || std::fs::read_dir("/proc/self/fd").map_or(0, Iterator::count);
    let first = files();
    let held: Vec<_> = (names.iter())
        .map(|name| theirs.acquire(name).expect("a free lock"))
        .collect();
    drop(ours.acquire("warm").expect("a free lock"));
    let (before, opened, began) = (threads(), files(), instant());
    println!("{count} holds: {} files", opened.saturating_sub(first));
    let (granted, most) = most_threads(|| {
        runtime.block_on(async {
            let all: Vec<_> = (names.iter().cloned())
                .map(|name| {
                    let ours = ours.clone();
                    tokio::spawn(async move {
                        let options = Options::new().wait(Wait::Forever).again(Again::Wait);
                        ours.acquire_async(&name, &options).await.map(drop)
                    })
                })
                .collect();
            let last = name(names.last().expect("a name"));
            let store = caller(&server.address("waits"));
            while claims(&store, &last).len() < 2 {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            println!(
                "{count} waits after {:?}: {} threads and {} files more",
                since(began),
                threads().saturating_sub(before),
                files().saturating_sub(opened)
            );
            assert!(files() < opened + 40, "{opened} files before, {}", files());
            drop(held);
            let mut granted = 0;
            for task in all {
                granted += usize::from(task.await.expect("no panic").is_ok());
            }
            granted
        })
    });
    assert_eq!(granted, count, "each of them had its turn");
    assert!(most <= before + 100, "{most} threads, {before} before");
}

#[test]
fn of_programs_that_wait_for_each_other_the_last_one_gives_way() {
    let server = Server::start();
    let managers = [locks(&server, "circle"), locks(&server, "circle")];
    let [own, other] = [0, 1].map(|number: usize| {
        let name = ["a", "b"][number];
        managers[number].acquire(name).expect("a free lock")
    });
    let forever = Options::new().wait(Wait::Forever).again(Again::Wait);
    std::thread::scope(|scope| {
        let first = scope.spawn(|| managers[0].acquire_with("b", &forever.clone().under(&own)));
        let waits = || {
            managers[0]
                .check("b")
                .is_ok_and(|lock| lock.waiters.len() == 1)
        };
        while !waits() {
            std::thread::sleep(Duration::from_millis(10));
        }
        let last = managers[1].acquire_with("a", &forever.clone().under(&other));
        assert!(
            matches!(last, Err(AcquireError::Deadlock { .. })),
            "{last:?}"
        );
        drop(other);
        drop(first.join().expect("no panic").expect("both locks"));
    });
}
