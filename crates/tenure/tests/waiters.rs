//! Many callers of one process that wait for one lock: their order, what they cost, and how they give up.
//!
//! Some of these tests count threads or files of this process, so no two of them run at once.

#![cfg(target_os = "linux")]
#![allow(clippy::expect_used, reason = "a test says what it expects by failing")]

use std::future::poll_fn;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::task::Poll;
use std::thread;
use std::time::Duration;
use tenure::guard::{AcquireError, Again, Cancel, Guard, LockManager, LockName, Options, Wait};
use tenure::store::Store;
use tenure::store::file::{FileStore, ThreadSleeper};
use tenure::testing::Scene;
use tenure_os::clock::{instant, since};
use tenure_os::process::Identity;
use tokio::task::JoinHandle;

/// How long anything may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// The tests of this file take turns.
static ALONE: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What a child of a test is told to do; this test binary is started again for it.
const ROLE: &str = "TENURE_TEST_WAITERS_ROLE";
const FOLDER: &str = "TENURE_TEST_WAITERS_FOLDER";

struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Self {
        Self(tempfile::tempdir().expect("a folder"))
    }

    fn locks(&self) -> LockManager {
        LockManager::new(self.0.path()).expect("a folder with a name")
    }

    /// How many claims stand in the list of the lock.
    fn claims(&self, name: &str) -> usize {
        let here = Identity::current().host;
        let store = FileStore::new(self.0.path(), here, Box::new(ThreadSleeper));
        let name = LockName::new(name).expect("a name");
        let reading = store.read(&name, None).expect("a readable lock");
        reading.entry().expect("a whole list").claims.len()
    }

    /// Another process, told to do this.
    fn child(&self, role: &str) -> Child {
        let mut command = Command::new(std::env::current_exe().expect("this program"));
        command
            .args(["--exact", "what_a_child_does", "--nocapture"])
            .env(ROLE, role)
            .env(FOLDER, self.0.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        command.spawn().expect("a process")
    }

    /// Another process that holds the lock until its stdin is closed.
    fn held_elsewhere(&self) -> Child {
        self.held_by("hold")
    }

    fn held_by(&self, role: &str) -> Child {
        let mut child = self.child(role);
        let mut lines = BufReader::new(child.stdout.as_mut().expect("its output")).lines();
        let held = lines.find(|line| line.as_ref().is_ok_and(|line| line.ends_with("held")));
        assert!(held.is_some(), "it says when it holds");
        child
    }
}

fn ends(mut child: Child) {
    drop(child.stdin.take());
    let mut rest = String::new();
    if let Some(mut output) = child.stdout.take() {
        output.read_to_string(&mut rest).expect("its output");
    }
    assert!(child.wait().expect("its end").success(), "{rest}");
}

#[test]
#[allow(clippy::print_stdout, reason = "its parent reads that")]
fn what_a_child_does() {
    let Ok(role) = std::env::var(ROLE) else {
        return;
    };
    let folder = PathBuf::from(std::env::var_os(FOLDER).expect("a folder"));
    let locks = LockManager::new(&folder).expect("a folder with a name");
    match role.as_str() {
        "hold" | "hold a slot" => {
            let options = match role.as_str() {
                "hold" => Options::new(),
                _ => Options::new().slots(2),
            };
            let guard = locks.acquire_with("a", &options).expect("a free lock");
            println!("\nheld");
            std::io::stdout().flush().expect("a parent");
            let mut rest = String::new();
            let _ = std::io::stdin().read_to_string(&mut rest);
            guard.release().expect("a release");
        }
        "tasks" => runtime().block_on(async {
            let order = Arc::new(Mutex::new(Vec::new()));
            let tasks = take_turns(&locks, &order, 300, &folder).await;
            for task in tasks {
                task.await.expect("no panic").expect("a turn");
            }
            assert!(order.lock().expect("a list").is_sorted(), "in their order");
        }),
        "fork" => fork_with_waits(&locks),
        other => unreachable!("no such role: {other}"),
    }
}

/// The body of a process that forks without an exec while futures of it wait.
#[allow(unsafe_code, reason = "a fork is what is tried")]
fn fork_with_waits(locks: &LockManager) {
    use nix::sys::wait::{WaitStatus, waitpid};
    use nix::unistd::{ForkResult, fork};
    let held = locks.acquire("a").expect("a free lock");
    let runtime = runtime();
    let mut all: Vec<_> = (0..3)
        .map(|_| runtime.block_on(waiting(locks, &turns())))
        .collect();
    // SAFETY: the copy calls nothing that another thread of this process could have been in the middle
    // of: it drops and ends.
    match unsafe { fork() }.expect("a copy") {
        ForkResult::Child => {
            let refused = locks.try_acquire("a");
            let refused = matches!(refused, Err(AcquireError::Forked { .. }));
            drop(all);
            // SAFETY: ends this process and nothing else.
            unsafe { nix::libc::_exit(i32::from(!refused)) }
        }
        ForkResult::Parent { child } => {
            let end = waitpid(child, None).expect("its end");
            assert_eq!(end, WaitStatus::Exited(child, 0), "refused, and no end");
            held.release().expect("a release");
            for waits in all.drain(..) {
                drop(runtime.block_on(waits).expect("its turn"));
            }
        }
    }
}

#[test]
fn a_copy_made_by_a_fork_ends_no_wait_of_its_maker() {
    let _alone = alone();
    let place = Place::new();
    ends(place.child("fork"));
    assert_eq!(place.claims("a"), 0);
}

fn turns() -> Options {
    Options::new().wait(Wait::Forever).again(Again::Wait)
}

/// How many threads and open files this process has.
fn threads_and_files() -> (usize, usize) {
    let count = |path: &str| std::fs::read_dir(Path::new(path)).expect("a list").count();
    (count("/proc/self/task"), count("/proc/self/fd"))
}

/// The memory of this process that is in use, in bytes.
fn memory_bytes() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").expect("its status");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.trim().trim_end_matches(" kB").parse().ok());
    1_024 * kib.unwrap_or(0_usize)
}

fn runtime() -> tokio::runtime::Runtime {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_time()
        .build();
    runtime.expect("a runtime")
}

#[track_caller]
fn eventually(is_so: impl Fn() -> bool) {
    let began = instant();
    while !is_so() {
        assert!(since(began) < PATIENCE, "waited too long");
        thread::sleep(Duration::from_millis(1));
    }
}

type Acquires = Pin<Box<dyn Future<Output = Result<Guard, AcquireError>> + Send>>;

/// A future that has been polled once, so that it has its place in line.
async fn waiting(locks: &LockManager, options: &Options) -> Acquires {
    let (locks, options) = (locks.clone(), options.clone());
    let mut acquires: Acquires = Box::pin(async move { locks.acquire_async("a", &options).await });
    let first = poll_fn(|context| Poll::Ready(acquires.as_mut().poll(context))).await;
    assert!(first.is_pending(), "it is held");
    acquires
}

/// Tasks that take turns, in this order. Each notes its number and token, and that no other is at work, in
/// whatever process.
async fn take_turns(
    locks: &LockManager,
    order: &Arc<Mutex<Vec<(usize, u64)>>>,
    count: usize,
    folder: &Path,
) -> Vec<JoinHandle<Result<(), AcquireError>>> {
    let mut tasks = Vec::with_capacity(count);
    for number in 0..count {
        let acquires = waiting(locks, &turns()).await;
        let (order, alone) = (Arc::clone(order), folder.join("alone"));
        tasks.push(tokio::spawn(async move {
            let guard = acquires.await?;
            let file = std::fs::File::create(alone).expect("a file");
            file.try_lock().expect("alone");
            order.lock().expect("a list").push((number, guard.token()));
            drop(file);
            guard.release_async().await.expect("a release");
            Ok(())
        }));
    }
    tasks
}

/// Lets so many tasks wait without a thread or a file each, and take turns in the order in which they asked.
fn a_storm(count: usize) {
    let place = Place::new();
    let locks = place.locks();
    let order = Arc::new(Mutex::new(Vec::new()));
    runtime().block_on(async {
        let held = locks.acquire_async("a", &turns()).await.expect("free");
        drop(waiting(&locks, &turns()).await);
        let (before, used) = (threads_and_files(), memory_bytes());
        let options = turns().wait(Wait::For(PATIENCE));
        let mut all = Vec::with_capacity(count);
        for _ in 0..count {
            let mut acquires = Box::pin(locks.acquire_async("a", &options));
            let first = poll_fn(|context| Poll::Ready(acquires.as_mut().poll(context))).await;
            assert!(first.is_pending(), "it is held");
            all.push(acquires);
        }
        let (after, each) = (
            threads_and_files(),
            memory_bytes().saturating_sub(used) / count,
        );
        eventually(|| place.claims("a") == 2);
        assert!(after.0 <= before.0 + 2, "threads: {before:?}, {after:?}");
        assert!(after.1 <= before.1 + 5, "files: {before:?}, {after:?}");
        // Some 1,010 bytes each, with what the allocator rounds up (decision 0049). A page each would be a stack, a file or a
        // table of one's own.
        assert!(count < 10_000 || each <= 1_536, "{each} bytes each");
        drop(all);
        eventually(|| place.claims("a") == 1);
        let tasks = take_turns(&locks, &order, count, place.0.path()).await;
        held.release_async().await.expect("a release");
        for task in tasks {
            task.await.expect("no panic").expect("a turn");
        }
    });
    let order = order.lock().expect("a list");
    assert_eq!(order.len(), count);
    assert!(order.is_sorted(), "in the order in which they asked");
    assert!(order.is_sorted_by_key(|(_, token)| *token), "tokens rise");
}

#[test]
fn a_thousand_tasks_take_turns_in_order_without_a_thread_or_a_file_each() {
    let _alone = alone();
    a_storm(1_000);
}

#[test]
fn ten_thousand_tasks_take_turns_in_order_without_a_thread_or_a_file_each() {
    let _alone = alone();
    a_storm(10_000);
}

#[test]
fn tasks_of_two_processes_take_turns_in_their_order_and_never_overlap() {
    let _alone = alone();
    let place = Place::new();
    let locks = place.locks();
    let order = Arc::new(Mutex::new(Vec::new()));
    let other = runtime().block_on(async {
        let held = locks.acquire_async("a", &turns()).await.expect("free");
        let other = place.child("tasks");
        // The first task of the others stands in the list before ours do.
        eventually(|| place.claims("a") == 2);
        let tasks = take_turns(&locks, &order, 300, place.0.path()).await;
        held.release_async().await.expect("a release");
        for task in tasks {
            task.await.expect("no panic").expect("a turn");
        }
        other
    });
    ends(other);
    let order = order.lock().expect("a list");
    assert!(order.is_sorted(), "in the order in which they asked");
    // The two processes have taken turns: between two tokens of ours there mostly is one of theirs.
    let apart = order.windows(2).filter(|two| two[1].1 - two[0].1 > 4);
    let (apart, all) = (apart.count(), order.len());
    assert!(apart > all / 4, "{apart} of {all}");
    assert_eq!(place.claims("a"), 0);
}

#[test]
fn only_the_head_of_the_line_stands_in_the_list() {
    let _alone = alone();
    let place = Place::new();
    let locks = place.locks();
    let other = place.held_elsewhere();
    runtime().block_on(async {
        let mut all = Vec::new();
        for _ in 0..50 {
            all.push(waiting(&locks.clone(), &turns()).await);
        }
        let blocking: Vec<_> = (0..5)
            .map(|_| {
                let locks = locks.clone();
                thread::spawn(move || locks.acquire_with("a", &turns()).map(drop))
            })
            .collect();
        eventually(|| place.claims("a") == 2);
        thread::sleep(Duration::from_millis(50));
        assert_eq!(place.claims("a"), 2, "the holder, and one waiter");
        ends(other);
        for waits in all {
            waits.await.expect("a turn").release().expect("a release");
        }
        for thread in blocking {
            thread.join().expect("no panic").expect("a turn");
        }
    });
    assert_eq!(place.claims("a"), 0);
}

#[test]
fn threads_and_tasks_stand_in_one_line() {
    let _alone = alone();
    let place = Place::new();
    let locks = place.locks();
    let runtime = runtime();
    let held = locks.acquire("a").expect("a free lock");
    let (tells, told) = mpsc::channel();
    let mut threads = Vec::new();
    for number in 0..20 {
        let (locks, tells) = (locks.clone(), tells.clone());
        if number % 2 == 0 {
            let acquires = runtime.block_on(waiting(&locks, &turns()));
            runtime.spawn(async move {
                let guard = acquires.await.expect("a turn");
                tells.send(number).expect("a listener");
                guard.release_async().await.expect("a release");
            });
            // The head of the line leaves it for the list on a thread of its own. Until it stands there
            // it is in no count, and a later count would take it for the thread that comes next.
            eventually(|| place.claims("a") == 2);
        } else {
            let before = waiters(&locks);
            let options = turns();
            threads.push(thread::spawn({
                let locks = locks.clone();
                move || {
                    let guard = locks.acquire_with("a", &options).expect("a turn");
                    tells.send(number).expect("a listener");
                    guard.release().expect("a release");
                }
            }));
            eventually(|| waiters(&locks) > before);
        }
    }
    drop((held, tells));
    let order: Vec<_> = told.iter().collect();
    assert_eq!(order, (0..20).collect::<Vec<_>>(), "as they came");
    for thread in threads {
        thread.join().expect("no panic");
    }
}

/// How many callers wait for the lock, as one that came now would be told.
fn waiters(locks: &LockManager) -> usize {
    let (tells, told) = mpsc::channel();
    let options = Options::new()
        .wait(Wait::For(Duration::ZERO))
        .again(Again::Wait)
        .on_wait(move |_, waiting| {
            let _ = tells.send(waiting.before());
        });
    assert!(locks.acquire_with("a", &options).is_err(), "it is held");
    told.recv().unwrap_or(0)
}

#[test]
fn futures_that_are_dropped_at_any_moment_leave_the_line_and_keep_nothing() {
    let _alone = alone();
    let place = Place::new();
    let locks = place.locks();
    let done = Arc::new(AtomicUsize::new(0));
    runtime().block_on(async {
        // Numbers without a pattern, the same each time.
        let mut state = 1_u32;
        let mut draw = move || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            state >> 16
        };
        let held = locks.acquire_async("a", &turns()).await.expect("free");
        let mut tasks = Vec::new();
        for _ in 0..2_000 {
            let acquires = waiting(&locks, &turns()).await;
            let patience = match draw() % 4 {
                0 => Some(Duration::from_micros(u64::from(draw()) * 20)),
                1 => Some(Duration::ZERO),
                _ => None,
            };
            let done = Arc::clone(&done);
            tasks.push(tokio::spawn(async move {
                let guard = match patience {
                    None => acquires.await,
                    Some(patience) => match tokio::time::timeout(patience, acquires).await {
                        Ok(answer) => answer,
                        Err(_) => return,
                    },
                };
                drop(guard.expect("a turn"));
                done.fetch_add(1, Ordering::Relaxed);
            }));
        }
        drop(held);
        for task in tasks {
            task.await.expect("no panic");
        }
    });
    assert!(done.load(Ordering::Relaxed) >= 1_000, "all who waited on");
    eventually(|| place.claims("a") == 0);
    drop(locks.acquire_with("a", &turns()).expect("nothing is kept"));
}

#[test]
fn a_dropped_head_leaves_the_list_and_the_next_one_enters_it() {
    let _alone = alone();
    let place = Place::new();
    let locks = place.locks();
    let other = place.held_elsewhere();
    runtime().block_on(async {
        let head = waiting(&locks, &turns()).await;
        let next = waiting(&locks, &turns()).await;
        eventually(|| place.claims("a") == 2);
        drop(head);
        eventually(|| place.claims("a") == 2);
        ends(other);
        drop(next.await.expect("a turn"));
    });
    assert_eq!(place.claims("a"), 0);
}

#[test]
fn time_in_the_line_counts_as_time_of_the_wait() {
    let _alone = alone();
    let place = Place::new();
    let locks = place.locks();
    let _other = locks.acquire("a").expect("a free lock");
    let patience = Duration::from_millis(200);
    let options = turns().wait(Wait::For(patience));
    let is_told = |answer: &Result<Guard, AcquireError>| match answer {
        Err(AcquireError::Held(refused)) => {
            assert_eq!(refused.waited, Some(patience), "as long as it asked for");
            let pid = refused.holder().and_then(|holder| holder.process);
            assert_eq!(pid.map(|process| process.pid), Some(std::process::id()));
        }
        other => unreachable!("{other:?}"),
    };
    runtime().block_on(async {
        let head = waiting(&locks, &turns()).await;
        let before = threads_and_files();
        let began = instant();
        let mut all = Vec::new();
        for _ in 0..500 {
            all.push(waiting(&locks, &options).await);
        }
        for waits in all {
            is_told(&waits.await);
        }
        let took = since(began);
        assert!(patience <= took && took < PATIENCE / 4, "{took:?}");
        let after = threads_and_files();
        assert!(after.0 <= before.0 + 3, "{before:?} {after:?}");
        let began = instant();
        is_told(&locks.acquire_with("a", &options));
        assert!(since(began) >= patience);
        drop(head);
    });
}

#[test]
fn a_cancel_ends_all_waits_in_the_line() {
    let _alone = alone();
    let place = Place::new();
    let locks = place.locks();
    let held = locks.acquire("a").expect("a free lock");
    let cancel = Cancel::new();
    let options = turns().cancel(&cancel);
    runtime().block_on(async {
        let mut all = Vec::new();
        for _ in 0..500 {
            all.push(waiting(&locks, &options).await);
        }
        let thread = {
            let (locks, options) = (locks.clone(), options.clone());
            thread::spawn(move || locks.acquire_with("a", &options))
        };
        let last = waiting(&locks, &turns()).await;
        eventually(|| waiters(&locks) > 501);
        cancel.cancel();
        for waits in all {
            let answer = waits.await;
            assert!(
                matches!(answer, Err(AcquireError::Cancelled { .. })),
                "{answer:?}"
            );
        }
        let answer = thread.join().expect("no panic");
        assert!(
            matches!(answer, Err(AcquireError::Cancelled { .. })),
            "{answer:?}"
        );
        drop(held);
        drop(last.await.expect("it was not cancelled"));
    });
    assert_eq!(place.claims("a"), 0);
}

#[test]
fn siblings_of_a_holder_are_refused_although_others_wait_in_line() {
    let _alone = alone();
    let place = Place::new();
    let locks = place.locks();
    runtime().block_on(async {
        let held = locks
            .acquire_async("a", &Options::new())
            .await
            .expect("free");
        let patient = waiting(&locks, &turns()).await;
        let mut all = Vec::new();
        for _ in 0..100 {
            let locks = locks.clone();
            let asks = async move { locks.acquire_async("a", &Options::new()).await };
            all.push(tokio::spawn(asks));
        }
        for asks in all {
            let answer = asks.await.expect("no panic");
            let error = answer.expect_err("it is held by a sibling");
            let own = matches!(error, AcquireError::HeldByThisProcess { token, .. }
                if token == Some(held.token()));
            assert!(own && error.to_string().contains("Again::Wait"), "{error}");
        }
        held.release_async().await.expect("a release");
        drop(patient.await.expect("a turn"));
    });
    assert_eq!(place.claims("a"), 0);
}

/// A thread that holds the lock by one manager asks by another one, whose line has a waiter: it would wait for
/// itself.
#[test]
fn a_thread_that_would_wait_for_itself_is_refused_whatever_line_is_there() {
    let _alone = alone();
    let place = Place::new();
    let (first, second) = (place.locks(), place.locks());
    let held = first.acquire("a").expect("free");
    thread::scope(|scope| {
        let patient = scope.spawn(|| drop(second.acquire_with("a", &turns()).expect("a turn")));
        eventually(|| place.claims("a") == 2);
        let asks = second.acquire_with("a", &Options::new().wait(Wait::Forever));
        let own = matches!(&asks, Err(AcquireError::HeldByThisProcess { token, .. })
            if *token == Some(held.token()));
        assert!(own, "{asks:?}");
        drop(held);
        patient.join().expect("no panic");
    });
}

/// A line of callers that are refused: its head waits for another process beside a hold of ours, which refuses a caller
/// of another mode. Its head waits for another process beside a hold of ours, which refuses a caller of another mode.
#[test]
fn a_caller_under_a_hold_stands_behind_no_other_mode() {
    let _alone = alone();
    let place = Place::new();
    let (first, second) = (place.locks(), place.locks());
    let slot = Options::new().slots(2).wait(Wait::Forever);
    let held = first.acquire_with("a", &slot).expect("a free slot");
    let other = place.held_by("hold a slot");
    thread::scope(|scope| {
        let patient = scope.spawn(|| drop(second.acquire_with("a", &slot).expect("a slot")));
        eventually(|| place.claims("a") == 3);
        let asks = second.acquire_with("a", &Options::new().wait(Wait::Forever));
        let own = matches!(&asks, Err(AcquireError::HeldByThisProcess { .. }));
        assert!(own, "{asks:?}");
        ends(other);
        patient.join().expect("no panic");
    });
    drop(held);
}

#[test]
fn a_layer_that_asks_again_is_answered_although_others_wait_in_line() {
    let _alone = alone();
    let place = Place::new();
    let locks = place.locks();
    for shared in [false, true] {
        let mode = |options: Options| if shared { options.shared() } else { options };
        let first = locks
            .acquire_with("a", &mode(Options::new()))
            .expect("free");
        // An exclusive waiter of this process, which the shared ones would stand behind.
        let thread = {
            let locks = locks.clone();
            thread::spawn(move || locks.acquire_with("a", &turns()).map(drop))
        };
        eventually(|| place.claims("a") == 2);
        let again = mode(Options::new().wait(Wait::Forever));
        let error = locks.acquire_with("a", &again).expect_err("it has it");
        assert!(
            matches!(error, AcquireError::HeldByThisProcess { .. }),
            "{error}"
        );
        let joined = locks.acquire_with("a", &again.clone().again(Again::Reenter));
        assert_eq!(joined.expect("the same hold").token(), first.token());
        let tried = locks.try_acquire("a").expect_err("it has it");
        assert!(tried.is_held(), "{tried}");
        drop(first);
        thread.join().expect("no panic").expect("a turn");
    }
    assert_eq!(place.claims("a"), 0);
}

#[test]
fn a_caller_in_the_line_is_told_once_that_it_waits_and_behind_how_many() {
    let _alone = alone();
    let place = Place::new();
    let locks = place.locks();
    let held = locks.acquire("a").expect("a free lock");
    let (tells, told) = mpsc::channel();
    let options = turns().on_wait(move |name, waiting| {
        let process = waiting.front().and_then(|front| front.holder.process);
        let pid = process.map(|process| process.pid);
        let _ = tells.send((name.as_str().to_owned(), waiting.before(), pid));
    });
    runtime().block_on(async {
        let head = waiting(&locks, &turns()).await;
        eventually(|| place.claims("a") == 2);
        let task = waiting(&locks, &options).await;
        let pid = Some(std::process::id());
        let first = told.recv_timeout(PATIENCE).expect("it is told");
        assert_eq!(first, ("a".to_owned(), 1, pid));
        let thread = {
            let (locks, options) = (locks.clone(), options.clone());
            thread::spawn(move || locks.acquire_with("a", &options).map(drop))
        };
        let second = told.recv_timeout(PATIENCE).expect("it is told");
        assert_eq!(second, ("a".to_owned(), 2, pid));
        drop(held);
        drop(head.await.expect("a turn"));
        drop(task.await.expect("a turn"));
        thread.join().expect("no panic").expect("a turn");
    });
    assert!(told.try_recv().is_err(), "once each");
}

#[test]
fn a_panic_of_a_holder_or_of_its_callback_passes_the_turn_on() {
    let _alone = alone();
    let place = Place::new();
    let locks = place.locks();
    runtime().block_on(async {
        let held = locks.acquire_async("a", &turns()).await.expect("free");
        let panics = waiting(&locks, &turns()).await;
        let task = tokio::spawn(async move {
            let _guard = panics.await.expect("a turn");
            std::panic::panic_any("as the test wants it");
        });
        let told = turns().on_wait(|_, _| std::panic::panic_any("as the test wants it"));
        let callback = waiting(&locks, &told).await;
        let next = waiting(&locks, &turns()).await;
        drop(held);
        assert!(task.await.is_err(), "it panicked");
        // The callback was told in the line or in the list, and the panic goes on in the caller.
        assert!(tokio::spawn(callback).await.is_err(), "it panicked");
        drop(next.await.expect("a turn"));
    });
    eventually(|| place.claims("a") == 0);
}

/// How long a grant may stay untaken, and how long it takes at most until another caller has it.
const TAKEN: (Duration, Duration) = (Duration::from_secs(2), Duration::from_secs(4));

/// A future that was polled once, and whose task does nothing more with it. Whoever waits behind it gets the lock, and so
/// does that task when it goes on.
#[test]
fn a_grant_that_nobody_takes_is_given_back_table() {
    let _alone = alone();
    let forever = || Options::new().wait(Wait::Forever);
    let short = || Options::new().wait(Wait::For(Duration::from_millis(2_500)));
    for (what, options, several) in [
        ("refused to siblings", forever(), false),
        ("in turns", turns(), false),
        ("bounded", short(), false),
        ("several", forever(), true),
    ] {
        let place = Place::new();
        let locks = place.locks();
        let others = place.locks();
        let held = others.acquire("a").expect("free");
        let runtime = runtime();
        let asks = async {
            if several {
                let all = locks.acquire_all_async(["a", "b"], &options).await;
                all.map(|all| all[0].token())
            } else {
                let one = locks.acquire_async("a", &options).await;
                one.map(|one| one.token())
            }
        };
        // The holder is of another process, as the other manager's guard is not.
        drop(held);
        let held = place.held_elsewhere();
        let mut asks = Box::pin(asks);
        runtime.block_on(async {
            let first = poll_fn(|context| Poll::Ready(asks.as_mut().poll(context))).await;
            assert!(first.is_pending(), "{what}: it is held");
        });
        eventually(|| place.claims("a") == 2);
        let third = {
            let others = others.clone();
            thread::spawn(move || {
                others
                    .acquire_with("a", &turns())
                    .map(|guard| guard.token())
            })
        };
        eventually(|| place.claims("a") == 3);
        let began = instant();
        ends(held);
        let got = third.join().expect("no panic");
        let took = since(began);
        assert!(got.is_ok(), "{what}: {got:?}");
        assert!(took >= TAKEN.0 && took < TAKEN.1, "{what}: {took:?}");
        assert_eq!(place.claims("a"), 0, "{what}: nobody holds it");
        let late = runtime.block_on(asks).expect("it is free");
        assert!(
            late > got.expect("a token"),
            "{what}: it stood in line anew"
        );
        assert_eq!(place.claims("a"), 0, "{what}");
    }
}

/// Each manager has a line of its own; they meet in the list.
#[test]
fn many_managers_of_one_process_meet_in_the_list() {
    let _alone = alone();
    let place = Place::new();
    let inside = Arc::new(AtomicUsize::new(0));
    let threads: Vec<_> = (0..32)
        .map(|_| {
            let (locks, inside) = (place.locks(), Arc::clone(&inside));
            thread::spawn(move || {
                for _ in 0..5 {
                    let guard = locks.acquire_with("a", &turns()).expect("a turn");
                    assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "alone");
                    inside.fetch_sub(1, Ordering::SeqCst);
                    guard.release().expect("a release");
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().expect("no panic");
    }
    assert_eq!(place.claims("a"), 0);
}

#[test]
fn a_clock_that_is_moved_by_hand_ends_waits_in_the_line() {
    let _alone = alone();
    let scene = Scene::new();
    let theirs = scene.another_process().acquire("a").expect("free");
    let options = turns().wait(Wait::For(Duration::from_secs(10)));
    let threads: Vec<_> = (0..3)
        .map(|_| {
            let (locks, options) = (scene.locks(), options.clone());
            thread::spawn(move || locks.acquire_with("a", &options))
        })
        .collect();
    runtime().block_on(async {
        let task = waiting(&scene.locks(), &options).await;
        scene.until_waiting("a", 4);
        scene.clock().advance(Duration::from_secs(10));
        assert!(matches!(task.await, Err(AcquireError::Held(_))));
    });
    for thread in threads {
        let answer = thread.join().expect("no panic");
        assert!(matches!(answer, Err(AcquireError::Held(_))), "{answer:?}");
    }
    drop(theirs);
}

/// Leader election by polling, while another process leads: each wait is given up long before that process ends. However
/// often, the program has the same threads and files afterwards. `TENURE_TICKS=100000` is the long way.
#[test]
fn waits_that_are_given_up_leave_no_thread_and_no_file_table() {
    let _alone = alone();
    let ticks = std::env::var("TENURE_TICKS").ok();
    let ticks: usize = ticks.map_or(1_500, |ticks| ticks.parse().expect("a number"));
    let place = Place::new();
    let mut leader = place.held_elsewhere();
    let locks = place.locks();
    let runtime = runtime();
    let short = Duration::from_millis(1);
    let forever = Options::new().wait(Wait::Forever);
    let turns = forever.clone().again(Again::Wait);
    let elects = |options: &Options| {
        runtime.block_on(async {
            tokio::select! {
                led = locks.acquire_async("a", options) => drop(led.map(|_| panic!("it is held"))),
                () = tokio::time::sleep(short) => {}
            }
        });
    };
    let kinds: [(&str, &dyn Fn()); 5] = [
        ("select, refused to siblings", &|| elects(&forever)),
        ("select, in turns", &|| elects(&turns)),
        ("bounded waits", &|| {
            let answer = locks.acquire_timeout("a", 3 * short);
            assert!(answer.is_err_and(|error| error.is_held()));
        }),
        ("several, dropped", &|| {
            runtime.block_on(async {
                let all = locks.acquire_all_async(["a", "b"], &forever);
                let _ = tokio::time::timeout(short, all)
                    .await
                    .map(|_| panic!("it is held"));
            });
        }),
        ("threads that end", &|| {
            let locks = locks.clone();
            let asked = thread::spawn(move || locks.acquire_timeout("a", short).map(drop));
            assert!(asked.join().expect("no panic").is_err());
        }),
    ];
    for (what, acts) in kinds {
        let few = || {
            for _ in 0..20 {
                acts();
            }
            thread::sleep(Duration::from_millis(100));
            threads_and_files()
        };
        let (threads, files) = few();
        for _ in 0..ticks / 5 {
            acts();
        }
        let (more, opened) = few();
        // What the last waits have not given back yet.
        assert!(
            more <= threads + 8 && opened <= files + 16,
            "{what}: {threads} threads, {files} files, then {more}, {opened}"
        );
    }
    assert!(leader.kill().is_ok() && leader.wait().is_ok());
    drop(locks.acquire("a").expect("its lock is free"));
}

/// How callers wait that have a lock each, and want that of the next one.
#[derive(Clone, Copy)]
enum Crosses {
    Threads,
    Tasks,
    /// A slot of one.
    Slots,
}

/// Puts so many callers in a ring; each enters its wait after the one before. Answers what each came to, in that order.
fn in_a_ring(
    managers: &[LockManager],
    how: Crosses,
    asks: &(dyn Fn(&Guard) -> Options + Sync),
) -> Vec<Result<(), AcquireError>> {
    let options = match how {
        Crosses::Slots => Options::new().slots(1),
        Crosses::Threads | Crosses::Tasks => Options::new(),
    };
    let held: Vec<Guard> = (managers.iter().enumerate())
        .map(|(number, locks)| locks.acquire_with(&format!("l{number}"), &options))
        .map(|held| held.expect("a free lock"))
        .collect();
    thread::scope(|scope| {
        let callers = held.into_iter().enumerate().map(|(number, own)| {
            let next = (number + 1) % managers.len();
            let (locks, name) = (&managers[next], format!("l{next}"));
            let wants = asks(&own);
            let caller = scope.spawn(move || {
                let answer = match how {
                    Crosses::Threads => locks.acquire_with(&name, &wants).map(drop),
                    Crosses::Slots => locks.acquire_with(&name, &wants.slots(1)).map(drop),
                    Crosses::Tasks => runtime()
                        .block_on(async { locks.acquire_async(&name, &wants).await.map(drop) }),
                };
                drop(own);
                answer
            });
            thread::sleep(Duration::from_millis(300));
            caller
        });
        let callers: Vec<_> = callers.collect();
        callers
            .into_iter()
            .map(|caller| caller.join().expect("no panic"))
            .collect()
    })
}

#[test]
fn of_callers_that_wait_for_each_other_the_last_one_gives_way_table() {
    let _alone = alone();
    let under = |own: &Guard| turns().under(own);
    for (what, callers, folders, how) in [
        ("two threads", 2, 1, Crosses::Threads),
        ("two tasks", 2, 1, Crosses::Tasks),
        ("five threads", 5, 1, Crosses::Threads),
        ("two folders", 2, 2, Crosses::Threads),
        ("one slot each", 2, 1, Crosses::Slots),
    ] {
        let places = [Place::new(), Place::new()];
        let managers = (0..callers).map(|number| places[number % folders].locks());
        let managers: Vec<LockManager> = managers.collect();
        let began = instant();
        let mut answers = in_a_ring(&managers, how, &under);
        let last = answers.pop().expect("an answer");
        assert!(
            matches!(last, Err(AcquireError::Deadlock { .. })),
            "{what}: {last:?}"
        );
        assert!(answers.iter().all(Result::is_ok), "{what}: {answers:?}");
        assert!(since(began) < PATIENCE / 2, "{what}");
        for place in &places[..folders] {
            assert_eq!(place.claims("l0") + place.claims("l1"), 0, "{what}");
        }
    }
}

#[test]
fn several_locks_of_one_call_are_seen_in_a_circle() {
    let _alone = alone();
    let place = Place::new();
    let (locks, own) = (place.locks(), place.locks());
    let [all, last] = ["a", "z"].map(|name| locks.acquire(name).expect("a free lock"));
    thread::scope(|scope| {
        // Has `b`, and waits for `z` under `a` and `b`.
        let first = scope.spawn(|| own.acquire_all(["b", "z"], &turns().under(&all)).map(drop));
        eventually(|| place.claims("z") == 2);
        // Of two that began in one millisecond, their locks decide.
        thread::sleep(Duration::from_millis(50));
        let answer = locks.acquire_with("b", &turns().under(&last)).map(drop);
        assert!(
            matches!(answer, Err(AcquireError::Deadlock { .. })),
            "{answer:?}"
        );
        drop(last);
        first.join().expect("no panic").expect("both locks");
    });
}

#[test]
fn a_caller_that_names_no_guard_waits_as_long_as_it_says() {
    let _alone = alone();
    let short = turns().wait(Wait::For(Duration::from_millis(2_500)));
    let place = Place::new();
    let managers = [place.locks(), place.locks()];
    let answers = in_a_ring(&managers, Crosses::Threads, &|_| short.clone());
    // The first one timed out, and the second one gets its lock.
    assert!(
        matches!(answers[0], Err(AcquireError::Held(_))),
        "{answers:?}"
    );
    assert!(answers[1].is_ok(), "{answers:?}");
    // Who waits under a guard for one that waits for nothing is in no circle.
    let other = managers[1].acquire("l1").expect("a free lock");
    let own = managers[0].acquire("l0").expect("a free lock");
    let answer = managers[0].acquire_with("l1", &short.under(&own));
    assert!(matches!(answer, Err(AcquireError::Held(_))), "{answer:?}");
    drop(other);
}

/// Waits behind several holders, or behind a record, sleep without a thread each, and end at once.
#[test]
fn waits_for_one_of_several_slots_take_no_thread_each() {
    const LOCKS: usize = 100;
    let _alone = alone();
    let place = Place::new();
    let (holds, locks) = (place.locks(), place.locks());
    let slots = Options::new().slots(2);
    let name = |number: usize| format!("l{number}");
    let mut held: Vec<[Guard; 2]> = (0..LOCKS)
        .map(|number| {
            [0, 1].map(|_| {
                holds
                    .acquire_with(&name(number), &slots)
                    .expect("a free slot")
            })
        })
        .collect();
    runtime().block_on(async {
        let forever = slots.clone().wait(Wait::Forever);
        let before = threads_and_files();
        let mut all = Vec::new();
        for number in 0..LOCKS {
            let mut acquires = Box::pin(locks.acquire_async(&name(number), &forever));
            let first = poll_fn(|context| Poll::Ready(acquires.as_mut().poll(context))).await;
            assert!(first.is_pending(), "both slots are held");
            all.push(acquires);
        }
        eventually(|| (0..LOCKS).all(|number| place.claims(&name(number)) == 3));
        let settled = || threads_and_files().0 <= before.0 + 24;
        eventually(settled);
        // Whichever holder ends. A wait that nothing wakes looks again after a second, and most do not have to.
        let mut slow = 0;
        for (number, (acquires, both)) in all.drain(..).zip(held.drain(..)).enumerate() {
            let [first, second] = both;
            let (ends, goes_on) = match number % 2 {
                0 => (first, second),
                _ => (second, first),
            };
            let began = instant();
            ends.release().expect("a release");
            drop(acquires.await.expect("its turn"));
            slow += usize::from(since(began) > Duration::from_millis(900));
            drop(goes_on);
        }
        assert!(slow <= LOCKS / 20, "{slow} of {LOCKS} were not woken");
    });
}
