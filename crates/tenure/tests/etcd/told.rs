//! Guards of async code behind a network that is cut: who loses its lock is told before another machine has it, no drop
//! keeps the executor, and what could not be given back is given back later.

use super::proxy::{Proxy, Weather};
use super::server::Server;
use super::{caller, is_long, until};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tenure::guard::{AcquireError, Again, Guard, LockManager, Options, ReleaseError, Wait};
use tenure_os::clock::{instant, since};

const SOON: Duration = Duration::from_millis(250);

/// What a witness outside of the programs saw, in the order of this machine's clock.
#[derive(Debug, Default)]
struct Witness {
    /// The task, and when it wrote under its lock.
    wrote: Vec<(usize, Instant)>,
    /// When a task was told that its lock is lost.
    told: Vec<(usize, Instant)>,
    /// When another machine had the lock of a task.
    taken: Vec<(usize, Instant)>,
}

/// How the other machine asks. It is played by a manager of this process.
fn patiently(wait: Duration) -> Options {
    Options::new().wait(Wait::For(wait)).again(Again::Wait)
}

/// An executor of one thread.
fn runtime() -> tokio::runtime::Runtime {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build();
    runtime.expect("a runtime")
}

fn name_of(task: usize) -> String {
    format!("lock-{task}")
}

/// Works until the lock is lost, as the page of the library has it, and drops the guard at its end.
async fn works(task: usize, guard: Guard, witness: Arc<Mutex<Witness>>) {
    let writes = async {
        loop {
            witness
                .lock()
                .expect("no panic")
                .wrote
                .push((task, instant()));
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::select! {
        () = writes => {}
        () = guard.lost() => {}
    }
    witness
        .lock()
        .expect("no panic")
        .told
        .push((task, instant()));
    drop(guard);
}

/// Six tasks hold a lock each, the network of their program is cut, and another machine takes over.
fn six_tasks(threads: usize, ttl: Duration) {
    const TASKS: usize = 6;
    let server = Server::start();
    let proxy = Proxy::to(server.port());
    let locks = LockManager::with_store(caller(&proxy.address("told")));
    let others = LockManager::with_store(caller(&server.address("told")));
    let witness = Arc::new(Mutex::new(Witness::default()));
    let options = Options::new().ttl(ttl);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(threads)
        .enable_time()
        .build()
        .expect("a runtime");
    let tasks: Vec<_> = (0..TASKS)
        .map(|task| {
            let name = name_of(task);
            let acquired = locks.acquire_async(&name, &options);
            let guard = runtime.block_on(acquired).expect("a free lock");
            runtime.spawn(works(task, guard, Arc::clone(&witness)))
        })
        .collect();
    std::thread::sleep(ttl / 3);
    proxy.weather(Weather::Parted);
    std::thread::scope(|scope| {
        for task in 0..TASKS {
            let (others, witness) = (&others, &witness);
            scope.spawn(move || {
                let patient = patiently(ttl * 3 + Duration::from_secs(20));
                let theirs = others.acquire_with(&name_of(task), &patient);
                let at = instant();
                let theirs = theirs.expect("the lease runs out");
                witness.lock().expect("no panic").taken.push((task, at));
                theirs.release().expect("etcd answers");
            });
        }
    });
    for task in tasks {
        let ends = async { tokio::time::timeout(Duration::from_secs(20), task).await };
        let ended = runtime.block_on(ends);
        ended.expect("it was told").expect("no panic");
    }
    let seen = witness.lock().expect("no panic");
    for task in 0..TASKS {
        let at = |events: &[(usize, Instant)]| {
            let own = events.iter().filter(|(of, _)| *of == task);
            own.map(|(_, at)| *at).max().expect("it happened")
        };
        let taken = at(&seen.taken);
        let what = format!("task {task} of {threads} threads, ttl {ttl:?}");
        assert!(at(&seen.wrote) < taken, "{what}: wrote after the takeover");
        assert!(at(&seen.told) < taken, "{what}: told after the takeover");
    }
    drop(seen);
    let began = instant();
    drop(locks);
    assert!(
        since(began) < Duration::from_secs(2),
        "nothing is waited for that is lost"
    );
    proxy.weather(Weather::Fair);
}

#[test]
fn each_loss_is_told_before_another_machine_has_the_lock() {
    let ttls: &[u64] = if is_long() { &[2, 6, 30] } else { &[2] };
    for ttl in ttls {
        for threads in [1, 2] {
            six_tasks(threads, Duration::from_secs(*ttl));
        }
    }
}

/// What is done with guards.
type Act = fn(Vec<Guard>);

/// A drop in async code, a drop in a thread, a release and the end of the manager, while the servers are silent.
#[test]
fn no_release_keeps_its_caller_for_long_table() {
    let server = Server::start();
    let runtime = runtime();
    let options = Options::new().ttl(Duration::from_secs(60));
    let acts: [(&str, bool, Duration, Act); 4] = [
        ("async drops", true, SOON, drop),
        ("drops", false, Duration::from_millis(1_600), drop),
        ("releases", false, Duration::from_millis(1_600), |guards| {
            for guard in guards {
                let error = guard.release().expect_err("no answer");
                assert!(matches!(error, ReleaseError::Store { .. }), "{error}");
            }
        }),
        ("async releases, given up", true, SOON, |guards| {
            for guard in guards {
                let mut release = std::pin::pin!(guard.release_async());
                let mut context = std::task::Context::from_waker(std::task::Waker::noop());
                assert!(
                    release.as_mut().poll(&mut context).is_pending(),
                    "no answer"
                );
            }
        }),
    ];
    for (what, is_async, bound, act) in acts {
        let proxy = Proxy::to(server.port());
        let prefix = what.replace([' ', ','], "");
        let locks = LockManager::with_store(caller(&proxy.address(&prefix)));
        let others = caller(&server.address(&prefix));
        let others = LockManager::with_store(others);
        let guards = (0..4).map(|number| {
            let name = name_of(number);
            if is_async {
                runtime
                    .block_on(locks.acquire_async(&name, &options))
                    .expect("a free lock")
            } else {
                locks.acquire_with(&name, &options).expect("a free lock")
            }
        });
        let guards: Vec<Guard> = guards.collect();
        proxy.weather(Weather::Parted);
        let began = instant();
        act(guards);
        assert!(since(began) < bound, "{what}: {:?}", since(began));
        let began = instant();
        drop(locks);
        let end = Duration::from_millis(1_600);
        assert!(
            since(began) < end,
            "{what}, the manager: {:?}",
            since(began)
        );
        proxy.weather(Weather::Fair);
        // Long before the lease runs out.
        let patient = patiently(Duration::from_secs(25));
        for number in 0..4 {
            let theirs = others.acquire_with(&name_of(number), &patient);
            drop(theirs.unwrap_or_else(|error| panic!("{what}: {error}")));
        }
    }
}

/// An error of a release keeps nothing: the same process is not refused because of it, and has the lock once the servers
/// answer.
#[test]
fn a_failed_release_is_tried_again_and_its_error_keeps_nothing() {
    let server = Server::start();
    let proxy = Proxy::to(server.port());
    let locks = LockManager::with_store(caller(&proxy.address("again")));
    let options = Options::new().ttl(Duration::from_secs(60));
    let guard = locks.acquire_with("a", &options).expect("a free lock");
    proxy.weather(Weather::Refusing);
    let error = guard.release().expect_err("nobody answers");
    proxy.weather(Weather::Fair);
    let own = locks.acquire_with(
        "a",
        &Options::new().wait(Wait::For(Duration::from_secs(20))),
    );
    assert!(own.is_ok(), "{own:?}, after {error}");
    // A drop in async code and the next try of the same program.
    runtime().block_on(async {
        for _ in 0..20 {
            drop(
                locks
                    .acquire_async("b", &options)
                    .await
                    .expect("free again"),
            );
            let at_once = Options::new().wait(Wait::No);
            let again = locks.acquire_async("b", &at_once).await;
            drop(again.expect("free at once"));
        }
    });
    drop(own);
}

/// A program that ends right after its drop, or by `process::exit` after `release_all`, leaves a free lock.
#[test]
fn what_a_program_gives_back_at_its_end_is_free() {
    let server = Server::start();
    let locks = LockManager::with_store(caller(&server.address("end")));
    let others = LockManager::with_store(caller(&server.address("end")));
    let options = Options::new().ttl(Duration::from_secs(60));
    let runtime = runtime();
    let guard = runtime
        .block_on(locks.acquire_async("a", &options))
        .expect("a free lock");
    drop(guard);
    let _kept = locks
        .acquire_with("b", &options.clone().shared())
        .expect("a free lock");
    let kept = locks.acquire_with("b", &options.clone().shared().again(Again::Wait));
    let kept = kept.expect("beside the other one");
    locks.release_all().expect("etcd answers");
    assert!(
        kept.is_lost() && kept.verify().is_err(),
        "no work goes on under it"
    );
    for name in ["a", "b"] {
        let free = others.try_acquire(name);
        assert!(free.is_ok(), "{name}: {free:?}");
    }
    drop(locks);
}

/// A bounded wait is bounded while the servers are silent.
#[test]
fn a_bounded_wait_ends_beside_servers_that_are_silent() {
    let server = Server::start();
    let proxy = Proxy::to(server.port());
    let locks = LockManager::with_store(caller(&proxy.address("bounded")));
    locks
        .acquire("a")
        .expect("a free lock")
        .release()
        .expect("etcd answers");
    proxy.weather(Weather::Parted);
    let began = instant();
    let error = locks.acquire_timeout("a", Duration::from_millis(500));
    let took = since(began);
    assert!(
        matches!(error, Err(AcquireError::Store { .. })),
        "{error:?}"
    );
    assert!(took < Duration::from_millis(1_500), "{took:?}");
    proxy.weather(Weather::Fair);
    until("it is free again", Duration::from_secs(20), || {
        locks.try_acquire("a").is_ok()
    });
    // A caller that stands in line already is bounded as well.
    let others = LockManager::with_store(caller(&server.address("bounded")));
    let theirs = others.acquire("b").expect("a free lock");
    let wait = Duration::from_secs(1);
    let began = instant();
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| locks.acquire_with("b", &patiently(wait)));
        std::thread::sleep(wait / 3);
        proxy.weather(Weather::Parted);
        let answer = waits.join().expect("no panic");
        assert!(answer.is_err(), "{answer:?}");
    });
    let took = since(began);
    assert!(took < 2 * wait + wait / 2, "{took:?}");
    proxy.weather(Weather::Fair);
    theirs.release().expect("etcd answers");
}

/// Bounded waits of many callers of one program, threads and tasks in one line, end as well.
#[test]
fn bounded_waits_in_line_end_beside_silent_servers() {
    let server = Server::start();
    let proxy = Proxy::to(server.port());
    let locks = LockManager::with_store(caller(&proxy.address("line")));
    let others = LockManager::with_store(caller(&server.address("line")));
    let theirs = others.acquire("b").expect("a free lock");
    drop(locks.acquire("a").expect("a free lock"));
    let wait = Duration::from_secs(1);
    // The other manager is of the same process.
    let options = patiently(wait);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .build()
        .expect("a runtime");
    let began = instant();
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4)
            .map(|_| scope.spawn(|| locks.acquire_with("b", &options)))
            .collect();
        let tasks: Vec<_> = (0..12)
            .map(|_| {
                let (locks, options) = (locks.clone(), options.clone());
                runtime.spawn(async move { locks.acquire_async("b", &options).await })
            })
            .collect();
        std::thread::sleep(wait / 3);
        proxy.weather(Weather::Parted);
        for thread in threads {
            let answer = thread.join().expect("no panic");
            assert!(answer.is_err(), "{answer:?}");
        }
        for task in tasks {
            let answer = runtime.block_on(task).expect("no panic");
            assert!(answer.is_err(), "{answer:?}");
        }
    });
    let took = since(began);
    assert!(took < 2 * wait + wait / 2, "{took:?}");
    // Each for a lock of its own, while the servers are still silent.
    let began = instant();
    let tasks: Vec<_> = (0..48)
        .map(|number| {
            let (locks, options) = (locks.clone(), options.clone());
            let name = format!("free-{number}");
            runtime.spawn(async move { locks.acquire_async(&name, &options).await })
        })
        .collect();
    for task in tasks {
        let answer = runtime.block_on(task).expect("no panic");
        assert!(answer.is_err(), "{answer:?}");
    }
    let took = since(began);
    assert!(took < 2 * wait + wait / 2, "{took:?}");
    proxy.weather(Weather::Fair);
    theirs.release().expect("etcd answers");
}

/// Servers that were silent once are asked in time again, however long ago that was.
#[test]
fn an_outage_that_is_over_hurts_no_later_release() {
    let server = Server::start();
    let proxy = Proxy::to(server.port());
    let locks = LockManager::with_store(caller(&proxy.address("later")));
    let short = Options::new().ttl(Duration::from_secs(2));
    let guard = locks.acquire_with("a", &short).expect("a free lock");
    proxy.weather(Weather::Parted);
    let error = guard.release().expect_err("nobody answers");
    assert!(matches!(error, ReleaseError::Store { .. }), "{error}");
    let kept = locks.release_all();
    assert!(kept.is_err(), "that one is not given back yet: {kept:?}");
    // The lease runs out, and the release is given up.
    std::thread::sleep(Duration::from_secs(5));
    proxy.weather(Weather::Fair);
    for _ in 0..20 {
        let guard = locks.acquire_with("b", &patiently(Duration::from_secs(20)));
        guard.expect("a free lock").release().expect("etcd answers");
    }
    let guard = locks.acquire("b").expect("a free lock");
    proxy.weather(Weather::Parted);
    let error = locks.release_all().expect_err("nobody answers");
    assert!(matches!(error, ReleaseError::Store { .. }), "{error}");
    assert!(guard.is_lost());
    proxy.weather(Weather::Fair);
}

/// Threads and tasks of one program give back at once, and not one after the other.
#[test]
fn many_releases_at_once_are_many_requests_at_once() {
    let server = Server::on_slower_disk(Duration::from_millis(60));
    let locks = LockManager::with_store(caller(&server.address("many")));
    let guards: Vec<Guard> = (0..40)
        .map(|number| locks.acquire(&name_of(number)).expect("a free lock"))
        .collect();
    let began = instant();
    std::thread::scope(|scope| {
        for guard in guards {
            scope.spawn(|| guard.release().expect("etcd answers"));
        }
    });
    let took = since(began);
    // Forty of them, one after the other, would take 2.4 s.
    assert!(took < Duration::from_secs(2), "{took:?}");
}

/// A hold that no holder could keep is none: the ttl is raised to the shortest lease.
#[test]
fn a_ttl_below_the_shortest_lease_is_raised() {
    let server = Server::start();
    let locks = LockManager::with_store(caller(&server.address("short")));
    for ttl_ms in [0, 10, 50, 1_000] {
        let options = Options::new().ttl(Duration::from_millis(ttl_ms));
        let guard = locks.acquire_with("a", &options).expect("a free lock");
        std::thread::sleep(Duration::from_millis(ttl_ms + 200));
        assert!(!guard.is_lost(), "{ttl_ms} ms");
        guard.verify().expect("it stands");
        guard.release().expect("etcd answers");
    }
}

/// What a program asks about locks has the same answers on servers as in a folder.
#[test]
fn locks_on_servers_are_checked_listed_awaited_cancelled_and_cleaned() {
    let server = Server::start();
    let locks = || LockManager::with_store(caller(&server.address("asked")));
    let (ours, theirs) = (locks(), locks());
    let guard = theirs.acquire("a").expect("a free lock");
    let status = ours.check("a").expect("etcd answers");
    assert_eq!(status.holders[0].token, Some(guard.token()));
    assert_eq!(ours.list().expect("etcd answers").len(), 1);
    let short = Options::new().again(Again::Wait);
    let short = short.wait(Duration::from_millis(100));
    let error = ours.wait("a", &short).expect_err("it is held");
    assert!(error.is_held(), "{error}");
    let asked = ours.cancel("a", "over").expect("etcd answers");
    assert_eq!(asked.len(), 1);
    std::thread::scope(|scope| {
        let long = Options::new().again(Again::Wait).wait(Wait::Forever);
        let ours = &ours;
        let waits = scope.spawn(move || ours.wait("a", &long));
        let end = instant() + Duration::from_secs(20);
        while !guard.should_stop() {
            assert!(instant() < end, "it is told of the request");
            std::thread::sleep(Duration::from_millis(10));
        }
        guard.release().expect("etcd answers");
        waits.join().expect("no panic").expect("it is free now");
    });
    assert!(ours.check("a").expect("etcd answers").holders.is_empty());
    assert!(ours.clean().expect("etcd answers").failed.is_empty());
}
