//! The guard of `tenure::guard`, on files and with real processes where it matters.

#![allow(clippy::expect_used, reason = "a test says what it expects by failing")]

#[path = "support/log.rs"]
mod log;

use log::Log;
use std::io::{BufRead, BufReader, Lines, Read, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;
use tenure::guard::{
    AcquireError, Again, Cancel, Guard, GuardState, Guards, LockManager, LockName, LockStanding,
    LostReason, Options, ReleaseError, Wait, lock_name,
};
use tenure::store::Verbs;
use tenure::store::file::{FileStore, ThreadSleeper};
#[cfg(target_os = "linux")]
use tenure::store::memory::MemoryStore;
use tenure::store::{Reading, Store};
use tenure::testing::Scene;
use tenure_core::Policy;
#[cfg(target_os = "linux")]
use tenure_core::{AgeLimit, AgeRule};
use tenure_os::clock::{Clock, SystemClock, instant};
use tenure_os::process::Identity;

/// How long anything may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(20);

/// What a child of a test is told to do; a test binary is started again for it.
const ROLE: &str = "TENURE_TEST_ROLE";
const FOLDER: &str = "TENURE_TEST_FOLDER";

fn locks_folder() -> PathBuf {
    std::env::var_os(FOLDER).expect("a folder").into()
}

/// How often each contender works.
const ROUNDS: usize = 40;

struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Self {
        Self(tempfile::tempdir().expect("a folder"))
    }

    fn locks(&self) -> LockManager {
        LockManager::new(self.0.path()).expect("a folder with a name")
    }

    fn store(&self) -> FileStore {
        let here = Identity::current().host;
        FileStore::new(self.0.path(), here, Box::new(ThreadSleeper))
    }

    fn reading(&self, name: &str) -> Reading {
        let name = LockName::new(name).expect("a name");
        self.store().read(&name, None).expect("a readable lock")
    }

    fn claims(&self, name: &str) -> usize {
        let reading = self.reading(name);
        reading.entry().expect("a whole list").claims.len()
    }

    /// Asks the holder of the lock to stop, as `tenure cancel` does.
    fn ask_to_stop(&self, name: &str) {
        let name = LockName::new(name).expect("a name");
        let host = Identity::current().host;
        let now = SystemClock::new(host.boot_id.as_deref()).now();
        let asked = self.store().cancel(&name, "somebody".into(), None, &now);
        assert_eq!(asked.expect("a lock").len(), 1, "one holder is asked");
    }

    /// Another process that holds the lock until it is told to end.
    fn held_elsewhere(&self, name: &str) -> Elsewhere {
        self.held_by("hold", name)
    }

    fn held_by(&self, role: &str, what: &str) -> Elsewhere {
        Elsewhere::that_says_when_it_holds(&mut self.child(role, what))
    }

    fn child(&self, role: &str, name: &str) -> Command {
        let mut command = Command::new(std::env::current_exe().expect("this program"));
        command
            .args(["--exact", "what_a_child_does", "--nocapture"])
            .env(ROLE, format!("{role} {name}"))
            .env(FOLDER, self.0.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        command
    }
}

struct Elsewhere {
    child: Child,
    stdin: Option<ChildStdin>,
    /// Kept open, because the child's test harness writes something at the end.
    _output: Lines<BufReader<ChildStdout>>,
}

impl Elsewhere {
    fn that_says_when_it_holds(command: &mut Command) -> Self {
        let mut child = command.spawn().expect("a process");
        let mut lines = BufReader::new(child.stdout.take().expect("its output")).lines();
        let held = lines.find(|line| line.as_ref().is_ok_and(|line| line.ends_with("held")));
        assert!(held.is_some(), "it says when it holds");
        let stdin = child.stdin.take();
        Self {
            child,
            stdin,
            _output: lines,
        }
    }

    fn release(mut self) {
        drop(self.stdin.take());
        assert!(self.child.wait().expect("its end").success());
    }

    fn kill(mut self) {
        self.child.kill().expect("it is ours");
        self.child.wait().expect("its end");
    }
}

/// Does nothing by itself: other tests start this program again for it.
#[test]
#[allow(clippy::print_stdout, reason = "its parent reads that")]
fn what_a_child_does() {
    let Ok(role) = std::env::var(ROLE) else {
        return;
    };
    let locks = LockManager::new(locks_folder()).expect("a folder with a name");
    let (role, name) = role.split_once(' ').expect("a role and a name");
    match role {
        "hold" => {
            let guard = locks.acquire(name).expect("a free lock");
            println!("\nheld");
            std::io::stdout().flush().expect("a parent");
            let mut rest = String::new();
            let _ = std::io::stdin().read_to_string(&mut rest);
            guard.release().expect("a release");
        }
        #[cfg(target_os = "linux")]
        "hold-many" => {
            let (first, end) = name.split_once(' ').expect("two numbers");
            let number = |text: &str| text.parse::<usize>().expect("a number");
            assert!(room_for_guards() >= number(end) - number(first));
            let guards = hold_many(&locks, number(first)..number(end));
            println!("\nheld");
            std::io::stdout().flush().expect("a parent");
            let mut rest = String::new();
            let _ = std::io::stdin().read_to_string(&mut rest);
            guards.release().expect("a release of all");
        }
        "under-a-run" => {
            let answer = locks.acquire(name);
            let refused = matches!(answer, Err(AcquireError::HeldByOuterRun { .. }));
            assert!(refused, "{answer:?}");
        }
        "abort" => {
            let _guard = locks.acquire(name).expect("a free lock");
            std::process::abort();
        }
        #[cfg(unix)]
        "fork" => fork_under_a_guard(&locks, name),
        "contend" => {
            let witness = std::fs::OpenOptions::new()
                .append(true)
                .create(true)
                .open(locks_folder().join("witness"))
                .expect("a file");
            for _ in 0..ROUNDS {
                let guard = locks.acquire_with(name, &forever()).expect("a turn");
                let alone = Alone::prove(&locks_folder().join("alone"));
                writeln!(&witness, "{}", guard.token()).expect("a line");
                drop(alone);
                guard.release().expect("a release");
            }
        }
        other => unreachable!("no such role: {other}"),
    }
}

/// The kernel's own proof that no other process is at work, which the kernel removes when a process is
/// killed. It is a lock of a whole file, and on Windows a file that no other process may open.
struct Alone(std::fs::File);

impl Alone {
    fn prove(path: &std::path::Path) -> Self {
        let mut options = std::fs::File::options();
        options.read(true).write(true).create(true).truncate(false);
        #[cfg(windows)]
        std::os::windows::fs::OpenOptionsExt::share_mode(&mut options, 0);
        let file = options.open(path).expect("alone");
        #[cfg(unix)]
        file.try_lock().expect("alone");
        Self(file)
    }
}

impl Drop for Alone {
    fn drop(&mut self) {
        #[cfg(unix)]
        self.0.unlock().expect("a lock");
        #[cfg(windows)]
        let _ = &self.0;
    }
}

#[track_caller]
fn eventually(is_so: impl Fn() -> bool) {
    let began = instant();
    while !is_so() {
        assert!(tenure_os::clock::since(began) < PATIENCE, "waited too long");
        thread::sleep(Duration::from_millis(1));
    }
}

fn forever() -> Options {
    Options::new().wait(Wait::Forever)
}

#[test]
fn a_guard_holds_until_it_is_dropped_and_tokens_rise() {
    let place = Place::new();
    let locks = place.locks();
    let first = locks.acquire("a").expect("a free lock");
    assert_eq!(first.state(), GuardState::Held);
    first.verify().expect("it stands");
    assert_eq!(place.claims("a"), 1);
    let token = first.token();
    drop(first);
    assert_eq!(place.claims("a"), 0, "released by the drop itself");
    let second = locks.acquire("a").expect("a free lock");
    assert!(second.token() > token);
    second.release().expect("a release");
    assert_eq!(place.claims("a"), 0);
}

#[test]
fn others_see_who_holds_it_and_what_for() {
    let place = Place::new();
    let options = Options::new().why("a nightly job").actor("robot");
    let options = options.ttl(Duration::from_secs(90));
    let guard = place.locks().acquire_with("a", &options).expect("free");
    let reading = place.reading("a");
    let claim = &reading.entry().expect("a list").claims[0];
    assert_eq!(claim.holder, *guard.holder());
    assert_eq!(claim.holder.why, "a nightly job");
    assert_eq!(claim.holder.actor, "robot");
    assert_eq!(claim.lease.ttl_ms, 90_000);
    let pid = claim.holder.process.map(|process| process.pid);
    assert_eq!(pid, Some(std::process::id()));
}

#[test]
fn a_name_that_is_none_is_refused_before_anything_is_touched() {
    let place = Place::new();
    let folder = place.0.path().join("locks");
    let locks = LockManager::new(&folder).expect("a folder with a name");
    let error = locks.acquire("../a").expect_err("no name");
    assert!(matches!(error, AcquireError::Name { .. }), "{error}");
    assert!(!folder.exists(), "nothing was made");
}

#[test]
fn the_same_process_is_answered_at_once() {
    let place = Place::new();
    let locks = place.locks();
    let held = locks.acquire("a").expect("a free lock");
    let began = instant();
    for answer in [
        locks.acquire_with("a", &forever()),
        locks.try_acquire("a"),
        // Another manager is still the same process.
        place.locks().acquire_with("a", &forever()),
    ] {
        match answer {
            Err(AcquireError::HeldByThisProcess { name, token, .. }) => {
                assert_eq!(name.as_str(), "a");
                assert_eq!(token, Some(held.token()));
            }
            other => unreachable!("{other:?}"),
        }
    }
    assert!(
        tenure_os::clock::since(began) < Duration::from_secs(5),
        "without a wait"
    );
    assert_eq!(place.claims("a"), 1, "no claim stays in the queue");
}

#[test]
fn a_task_that_is_answered_at_once_is_told_how_to_ask_otherwise() {
    let place = Place::new();
    let locks = place.locks();
    let options = Options::new();
    let held = block_on(locks.acquire_async("a", &options)).expect("a free lock");
    let error = block_on(locks.acquire_async("a", &options)).expect_err("not by a second task");
    assert!(error.is_held() && error.holder().is_none(), "{error:?}");
    assert_eq!(error.retry_after(), None, "no time is known that helps");
    let text = error.to_string();
    for word in ["a is held by this process", "Again::Wait", "Again::Reenter"] {
        assert!(text.contains(word), "{text}");
    }
    drop(held);
}

#[test]
fn one_of_no_slots_is_refused_before_anything_is_touched() {
    let place = Place::new();
    let folder = place.0.path().join("locks");
    let locks = LockManager::new(&folder).expect("a folder with a name");
    let error = locks.acquire_with("a", &Options::new().slots(0));
    let error = error.expect_err("no caller could have it");
    assert!(matches!(error, AcquireError::NoSlots { .. }), "{error}");
    assert!(!error.is_held() && error.retry_after().is_none());
    let error = locks.acquire_all(["a", "b"], &Options::new().slots(0));
    assert!(matches!(error, Err(AcquireError::NoSlots { .. })));
    assert!(!folder.exists(), "nothing was made");
}

#[test]
fn a_layer_that_re_enters_shares_the_hold_and_the_last_one_releases() {
    let place = Place::new();
    let locks = place.locks();
    let options = Options::new().again(Again::Reenter);
    let outer = locks.acquire_with("a", &options).expect("a free lock");
    let inner = locks.acquire_with("a", &options).expect("the same hold");
    assert_eq!(inner.token(), outer.token());
    outer.release().expect("only this guard goes");
    assert_eq!(place.claims("a"), 1, "the inner layer still works");
    inner.verify().expect("it stands");
    drop(inner);
    assert_eq!(place.claims("a"), 0);
    let shared = Options::new().shared().again(Again::Reenter);
    let reader = locks.acquire_with("a", &shared).expect("a free lock");
    let error = locks.acquire_with("a", &options).expect_err("not enough");
    assert!(
        matches!(error, AcquireError::HeldByThisProcess { .. }),
        "a shared hold does not cover an exclusive one: {error}"
    );
    // Two managers of one process do not share their holds.
    let other = place.locks().acquire_with("a", &options);
    for error in [error, other.expect_err("another manager's")] {
        let text = error.to_string();
        assert!(!text.contains("ask with"), "the caller did: {text}");
        assert!(text.contains("joins a hold of the same manager"), "{text}");
    }
    drop(reader);
}

/// A caller that joins a hold just as it is released gets the hold or a refusal, and never a guard of
/// nothing.
#[test]
fn joining_a_hold_that_is_just_released_gives_a_guard_that_holds() {
    let place = Place::new();
    let locks = place.locks();
    let options = Options::new().again(Again::Reenter).wait(Wait::No);
    thread::scope(|scope| {
        for by_drop in [true, true, false, false] {
            let (locks, options) = (&locks, &options);
            scope.spawn(move || {
                let mut held = 0;
                while held < 200 {
                    match locks.acquire_with("a", options) {
                        Ok(guard) => {
                            held += 1;
                            guard.verify().expect("it holds");
                            if by_drop {
                                drop(guard);
                            } else {
                                guard.release().expect("it was held");
                            }
                        }
                        Err(AcquireError::HeldByThisProcess { .. }) => {}
                        Err(error) => unreachable!("{error}"),
                    }
                }
            });
        }
    });
    assert_eq!(place.claims("a"), 0, "the last one releases");
}

#[test]
fn threads_that_take_turns_never_overlap() {
    const THREADS: u32 = 8;
    const ROUNDS: u32 = 20;
    let place = Place::new();
    let locks = place.locks();
    let (inside, last) = (AtomicU32::new(0), AtomicU64::new(0));
    let options = forever().again(Again::Wait);
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                for _ in 0..ROUNDS {
                    let guard = locks.acquire_with("a", &options).expect("a turn");
                    assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "alone");
                    let before = last.swap(guard.token(), Ordering::SeqCst);
                    assert!(guard.token() > before, "tokens rise");
                    inside.fetch_sub(1, Ordering::SeqCst);
                    guard.release().expect("a release");
                }
            });
        }
    });
    assert_eq!(place.claims("a"), 0);
}

#[test]
fn a_refusal_says_who_has_it_and_when_to_come_back() {
    let place = Place::new();
    let holder = place.held_elsewhere("a");
    let pid = holder.child.id();
    let locks = place.locks();
    let wait = Duration::from_millis(50);
    for answer in [locks.try_acquire("a"), locks.acquire_timeout("a", wait)] {
        let error = answer.expect_err("it is held");
        let AcquireError::Held(refused) = &error else {
            unreachable!("{error:?}");
        };
        let process = refused.holder().and_then(|holder| holder.process);
        assert_eq!(process.map(|process| process.pid), Some(pid));
        assert!(refused.retry_after > Duration::ZERO);
        assert!(error.to_string().contains(&format!("PID {pid}")), "{error}");
        assert!(
            error.is_held(),
            "a caller that only wants to know that need not match"
        );
        let process = error.holder().and_then(|holder| holder.process);
        assert_eq!(process.map(|process| process.pid), Some(pid));
        assert_eq!(error.retry_after(), Some(refused.retry_after));
    }
    assert_eq!(
        place.claims("a"),
        1,
        "a caller that gave up has left the queue"
    );
    let waiter = thread::spawn(move || locks.acquire_with("a", &forever()));
    eventually(|| place.claims("a") == 2);
    holder.release();
    let guard = waiter.join().expect("no panic").expect("its turn");
    assert_eq!(place.claims("a"), 1);
    drop(guard);
}

/// Contending processes, two of which are killed in the middle, with flock(2) as the independent
/// witness.
#[test]
fn processes_never_work_at_once_and_tokens_rise() {
    let place = Place::new();
    let contend = || {
        let mut command = place.child("contend", "a");
        command.stdout(Stdio::null()).spawn().expect("a process")
    };
    let mut steady: Vec<Child> = (0..4).map(|_| contend()).collect();
    let lines = || {
        let text = std::fs::read_to_string(place.0.path().join("witness")).unwrap_or_default();
        let tokens: Vec<u64> = text.lines().filter_map(|line| line.parse().ok()).collect();
        tokens
    };
    for _ in 0..2 {
        let mut victim = contend();
        let before = lines().len();
        eventually(|| lines().len() > before + 5);
        victim.kill().expect("it is ours");
        victim.wait().expect("its end");
    }
    for child in &mut steady {
        assert!(child.wait().expect("its end").success(), "always alone");
    }
    let tokens = lines();
    assert!(tokens.len() >= 4 * ROUNDS, "{} rounds", tokens.len());
    assert!(tokens.is_sorted_by(|a, b| a < b), "they only rise");
    assert_eq!(place.claims("a"), 0);
}

#[test]
fn a_killed_holder_is_followed_at_once() {
    let place = Place::new();
    let holder = place.held_elsewhere("a");
    let locks = place.locks();
    let waiter = thread::spawn(move || locks.acquire_with("a", &forever()));
    eventually(|| place.claims("a") == 2);
    holder.kill();
    drop(waiter.join().expect("no panic").expect("its turn"));
}

#[test]
fn a_process_that_aborts_leaves_a_free_lock() {
    let place = Place::new();
    let mut child = place.child("abort", "a").spawn().expect("a process");
    assert!(!child.wait().expect("its end").success(), "it aborts");
    drop(place.locks().try_acquire("a").expect("free for the next"));
}

/// Builds the program of `aborting/` with the library as it was built for this test. The system's
/// libraries are built to unwind, and a program that aborts may use them too.
#[cfg(unix)]
fn aborting_program(folder: &std::path::Path) -> PathBuf {
    let own = std::env::current_exe().expect("this program");
    let built = own.parent().expect("its folder");
    let files = std::fs::read_dir(built).expect("what was built");
    let libraries = files.filter_map(|file| {
        let path = file.ok()?.path();
        let name = path.file_stem()?.to_str()?;
        let is_ours = name.starts_with("libtenure-") && path.extension()? == "rlib";
        is_ours.then(|| {
            (
                path.metadata().and_then(|facts| facts.modified()).ok(),
                path,
            )
        })
    });
    let (_, library) = libraries.max().expect("the library");
    let program = folder.join("aborting");
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let compiled = Command::new(rustc)
        .args(["--edition=2024", "-Cpanic=abort", "--extern"])
        .arg(format!("tenure={}", library.display()))
        .arg(format!("-Ldependency={}", built.display()))
        .arg("-o")
        .arg(&program)
        .arg(concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/tests/aborting/program.rs"
        ))
        .output()
        .expect("rustc");
    let said = String::from_utf8_lossy(&compiled.stderr);
    assert!(compiled.status.success(), "{said}");
    program
}

/// No drop runs in a program that is built with `panic = "abort"`, and the next caller gets the lock.
#[cfg(unix)]
#[test]
fn a_panic_that_aborts_hands_the_lock_to_the_next_in_line() {
    use std::os::unix::process::ExitStatusExt;
    let place = Place::new();
    let folder = tempfile::tempdir().expect("a folder");
    let mut command = Command::new(aborting_program(folder.path()));
    command
        .arg(place.0.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    let mut holder = Elsewhere::that_says_when_it_holds(&mut command);
    let locks = place.locks();
    let waiter = thread::spawn(move || locks.acquire_with("a", &forever()));
    eventually(|| place.claims("a") == 2);
    drop(holder.stdin.take());
    let ended = holder.child.wait().expect("its end");
    assert_eq!(ended.signal(), Some(nix::libc::SIGABRT), "it aborts");
    drop(waiter.join().expect("no panic").expect("its turn"));
}

/// The body of a process that forks without an exec while it has a guard, and a renewer that knows it.
#[cfg(unix)]
#[allow(unsafe_code, reason = "a fork is what is tried")]
fn fork_under_a_guard(locks: &LockManager, name: &str) {
    use nix::sys::wait::{WaitStatus, waitpid};
    use nix::unistd::{ForkResult, fork};
    let guard = locks.acquire(name).expect("a free lock");
    thread::sleep(Duration::from_millis(50));
    // SAFETY: the copy calls nothing that another thread of this process could have been in the middle
    // of: it looks, drops and ends.
    match unsafe { fork() }.expect("a copy") {
        ForkResult::Child => {
            let lost = guard.is_lost() && guard.verify().is_err();
            let answer = locks.try_acquire("another");
            let refused = matches!(answer, Err(AcquireError::Forked { .. }));
            let released = guard.release();
            let kept = matches!(released, Err(ReleaseError::Forked { .. }));
            // The guard ends with it.
            drop(released);
            // SAFETY: ends this process and nothing else.
            unsafe { nix::libc::_exit(i32::from(!(lost && refused && kept))) }
        }
        ForkResult::Parent { child } => {
            let end = waitpid(child, None).expect("its end");
            assert_eq!(end, WaitStatus::Exited(child, 0), "lost, refused, kept");
            assert_eq!(guard.state(), GuardState::Held, "not by its copy");
            guard.verify().expect("it stands");
            let other = FileStore::new(
                locks_folder(),
                Identity::current().host,
                Box::new(ThreadSleeper),
            );
            let lock = LockName::new(name).expect("a name");
            let reading = other.read(&lock, None).expect("a readable lock");
            assert_eq!(reading.entry().map(|entry| entry.claims.len()), Some(1));
            guard.release().expect("a release");
        }
    }
}

#[cfg(unix)]
#[test]
fn a_fork_hands_no_lock_down_and_its_end_releases_nothing() {
    let place = Place::new();
    let status = place.child("fork", "a").status().expect("a process");
    assert!(status.success(), "the copy has nothing, its maker holds");
    assert_eq!(place.claims("a"), 0, "and releases");
}

#[test]
fn a_wait_is_cancelled_from_another_thread_and_leaves_the_queue() {
    let place = Place::new();
    let holder = place.held_elsewhere("a");
    let locks = place.locks();
    let cancel = Cancel::new();
    let options = forever().cancel(&cancel);
    let waiter = {
        let (locks, options) = (locks.clone(), options.clone());
        thread::spawn(move || locks.acquire_with("a", &options))
    };
    eventually(|| place.claims("a") == 2);
    cancel.cancel();
    let answer = waiter.join().expect("no panic");
    assert!(
        matches!(answer, Err(AcquireError::Cancelled { .. })),
        "{answer:?}"
    );
    assert_eq!(place.claims("a"), 1, "it has left the queue");
    let answer = locks.acquire_with("a", &options);
    assert!(
        matches!(answer, Err(AcquireError::Cancelled { .. })),
        "it stays cancelled: {answer:?}"
    );
    holder.release();
}

#[test]
fn a_wait_for_a_slot_is_cancelled_too() {
    let place = Place::new();
    let one = Options::new().slots(1);
    let locks = place.locks();
    let held = locks.acquire_with("a", &one).expect("a free slot");
    let cancel = Cancel::new();
    let options = one.wait(Wait::Forever).again(Again::Wait).cancel(&cancel);
    let waiter = thread::spawn(move || locks.acquire_with("a", &options));
    eventually(|| place.claims("a") == 2);
    cancel.cancel();
    let answer = waiter.join().expect("no panic");
    assert!(
        matches!(answer, Err(AcquireError::Cancelled { .. })),
        "{answer:?}"
    );
    assert_eq!(place.claims("a"), 1);
    drop(held);
}

#[test]
fn several_locks_are_taken_in_one_order_all_or_none() {
    let place = Place::new();
    let locks = place.locks();
    let options = Options::new();
    let both = locks.acquire_all(["b", "a", "b"], &options).expect("free");
    let names: Vec<_> = both.iter().map(|guard| guard.name().as_str()).collect();
    assert_eq!(names, ["a", "b"], "each once, in the order of everybody");
    assert!(both.get("b").is_some_and(|guard| guard.token() > 0));
    both.release().expect("a release");
    let holder = place.held_elsewhere("b");
    let at_once = Options::new().wait(Wait::No);
    let error = locks
        .acquire_all(["a", "b", "c"], &at_once)
        .expect_err("one of them is held");
    assert!(
        matches!(&error, AcquireError::Held(refused) if refused.name.as_str() == "b"),
        "{error}"
    );
    for name in ["a", "c"] {
        assert_eq!(place.claims(name), 0, "{name} was given back");
    }
    holder.release();
}

#[test]
fn shared_holds_and_slots_stand_beside_each_other() {
    let place = Place::new();
    let locks = place.locks();
    let shared = Options::new().shared().wait(Wait::No);
    let readers: Vec<Guard> = (0..3)
        .map(|_| locks.acquire_with("a", &shared).expect("beside the others"))
        .collect();
    assert_eq!(place.claims("a"), 3);
    assert!(
        locks.try_acquire("a").is_err(),
        "no exclusive claim meanwhile"
    );
    drop(readers);
    let slot = Options::new().slots(2).wait(Wait::No);
    let first = locks.acquire_with("b", &slot).expect("the first slot");
    let second = locks.acquire_with("b", &slot).expect("the second slot");
    locks.acquire_with("b", &slot).expect_err("no third");
    assert_eq!((first.slot(), second.slot()), (Some(0), Some(1)));
    drop(first);
    let three = Options::new().slots(3).wait(Wait::No);
    let refused = locks.acquire_with("b", &three);
    let is_own = matches!(refused, Err(AcquireError::HeldByThisProcess { .. }));
    assert!(
        is_own,
        "another number waits for the hold of this process: {refused:?}"
    );
    let again = locks.acquire_with("b", &slot).expect("one is free again");
    assert_eq!(again.slot(), Some(0), "the number that is free");
    drop((again, second));
    assert_eq!(locks.acquire("b").expect("alone").slot(), None);
}

#[test]
fn a_request_to_stop_shows_and_takes_nothing_away() {
    let place = Place::new();
    let guard = place.locks().acquire("a").expect("a free lock");
    assert!(!guard.should_stop());
    // Later than the renewer's first look, so that only a notice can tell it.
    thread::sleep(Duration::from_millis(60));
    place.ask_to_stop("a");
    eventually(|| guard.should_stop());
    assert_eq!(guard.state(), GuardState::StopRequested);
    assert_eq!(guard.asked_by(), Some("somebody"));
    guard.verify().expect("it is still held");
    guard.release().expect("and released in order");
}

#[test]
fn a_lock_whose_file_is_removed_is_lost() {
    let place = Place::new();
    let guard = place.locks().acquire("a").expect("a free lock");
    thread::sleep(Duration::from_millis(60));
    let file = place.0.path().join("a.tenure");
    std::fs::rename(&file, place.0.path().join("away")).expect("a user's mistake");
    eventually(|| guard.is_lost());
    let other = place.locks().try_acquire("a").expect("free for others");
    let error = guard.release().expect_err("it was not ours any more");
    assert!(matches!(error, ReleaseError::Lost { .. }), "{error}");
    other.verify().expect("the other's hold was left alone");
}

/// No caller that comes now finds the lock, and no kernel reports a change to a folder above.
#[cfg(unix)]
#[test]
fn a_guard_whose_folder_gets_another_name_is_lost_within_seconds() {
    let place = Place::new();
    let above = place.0.path().join("above");
    let locks = LockManager::new(above.join("locks")).expect("a folder with a name");
    let guard = locks.acquire("a").expect("a free lock");
    thread::sleep(Duration::from_millis(60));
    let began = instant();
    std::fs::rename(&above, place.0.path().join("elsewhere")).expect("another name");
    eventually(|| guard.is_lost());
    let took = tenure_os::clock::since(began);
    assert!(took < Duration::from_secs(5), "{took:?}");
    assert!(guard.verify().is_err());
    // The manager goes on where other callers do.
    let other = locks.acquire("b").expect("a free lock");
    assert!(above.join("locks/b.tenure").exists());
    other.verify().expect("it stands");
    let error = guard.release().expect_err("it was not ours any more");
    assert!(matches!(error, ReleaseError::Lost { .. }), "{error}");
}

#[test]
fn several_locks_are_released_even_if_one_is_lost() {
    let place = Place::new();
    let locks = place.locks();
    let options = Options::new();
    let guards = locks.acquire_all(["a", "b", "c"], &options).expect("free");
    let file = place.0.path().join("b.tenure");
    std::fs::rename(&file, place.0.path().join("away")).expect("a user's mistake");
    let error = guards.release().expect_err("one is lost");
    assert!(
        matches!(&error, ReleaseError::Lost { name } if name.as_str() == "b"),
        "{error}"
    );
    for name in ["a", "c"] {
        assert_eq!(place.claims(name), 0, "{name} was released");
    }
}

#[test]
fn a_panic_that_unwinds_releases() {
    let place = Place::new();
    let locks = place.locks();
    let panicked = thread::spawn(move || {
        let _guard = locks.acquire("a").expect("a free lock");
        std::panic::resume_unwind(Box::new("as the test wants it"));
    })
    .join();
    assert!(panicked.is_err(), "it panicked");
    assert_eq!(place.claims("a"), 0);
}

#[test]
fn a_guard_may_be_released_by_another_thread() {
    let place = Place::new();
    let guard = place.locks().acquire("a").expect("a free lock");
    thread::spawn(move || guard.release().expect("a release"))
        .join()
        .expect("no panic");
    assert_eq!(place.claims("a"), 0);
}

#[cfg(target_os = "linux")]
fn renewers() -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").expect("the threads of this process");
    tasks
        .filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("comm")).ok())
        .filter(|name| name.trim() == "tenure-renewer")
        .count()
}

/// How often the renewers of this process have gone to sleep.
#[cfg(target_os = "linux")]
fn renewers_naps() -> u64 {
    let tasks = std::fs::read_dir("/proc/self/task").expect("the threads of this process");
    let status = |task: std::io::Result<std::fs::DirEntry>| {
        std::fs::read_to_string(task.ok()?.path().join("status")).ok()
    };
    let naps = |status: String| {
        let value = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            line.map(|line| line.trim().to_owned())
        };
        let is_renewer = value("Name:")? == "tenure-renewer";
        let naps = value("voluntary_ctxt_switches:")?.parse::<u64>().ok()?;
        is_renewer.then_some(naps)
    };
    tasks.filter_map(status).filter_map(naps).sum()
}

/// Like the session profile, with seconds instead of its ten minutes.
#[cfg(target_os = "linux")]
#[test]
fn a_guard_whose_profile_gives_less_time_than_its_ttl_is_renewed_in_time_and_calmly() {
    let limit_ms = 1_800;
    let session = Policy::SESSION;
    let rule = session.age.expect("a limit");
    assert_eq!(
        rule.limit,
        AgeLimit::SilenceMs(600_000),
        "what is made short here"
    );
    let limit = AgeLimit::SilenceMs(limit_ms);
    let age = Some(AgeRule { limit, ..rule });
    let store = MemoryStore::new(Policy { age, ..session });
    let locks = LockManager::with_store(store.clone());
    let options = Options::new().ttl(Duration::from_secs(3_600));
    let guard = locks.acquire_with("a", &options).expect("a free lock");
    let name = LockName::new("a").expect("a name");
    let began = instant();
    while tenure_os::clock::since(began) < Duration::from_millis(2 * limit_ms) {
        assert_eq!(
            guard.state(),
            GuardState::Held,
            "after {:?}",
            tenure_os::clock::since(began)
        );
        thread::sleep(Duration::from_millis(10));
    }
    let reading = store.read(&name, None).expect("a readable lock");
    let claim = &reading.entry().expect("a list").claims[0];
    // Three renewals within a limit; on a busy machine one may come late.
    assert!(
        claim.lease.renewals >= 4,
        "{} renewals",
        claim.lease.renewals
    );
    if std::env::var_os("NEXTEST").is_some() {
        let naps = renewers_naps();
        assert!(naps < 100, "its renewer was woken {naps} times");
    }
}

/// Alone in its process with nextest; with `cargo test` others have renewers too.
#[cfg(target_os = "linux")]
#[test]
fn one_thread_keeps_any_number_of_guards_and_ends_with_them() {
    let place = Place::new();
    let before = renewers();
    let locks = place.locks();
    assert_eq!(renewers().min(before), before, "none before the first need");
    let options = Options::new().ttl(Duration::from_millis(90));
    let names: Vec<String> = (0..50).map(|number| format!("lock-{number}")).collect();
    let guards = locks.acquire_all(names.iter().map(String::as_str), &options);
    let guards = guards.expect("free locks");
    let renewals = |name: &str| {
        let reading = place.reading(name);
        reading.entry().expect("a list").claims[0].lease.renewals
    };
    eventually(|| names.iter().all(|name| renewals(name) >= 2));
    // Not earlier: a thread gives itself its name, some time after it was started.
    if std::env::var_os("NEXTEST").is_some() {
        assert_eq!(renewers(), 1);
    }
    assert!(guards.iter().all(|guard| guard.state() == GuardState::Held));
    drop(locks);
    drop(guards);
    if std::env::var_os("NEXTEST").is_some() {
        eventually(|| renewers() == 0);
    }
}

#[test]
fn a_program_under_a_run_that_holds_the_lock_is_answered_at_once() {
    let place = Place::new();
    let guard = place.locks().acquire("a").expect("a free lock");
    // As `tenure run` tells its command.
    let held = format!("{}={}/a", guard.token(), place.0.path().display());
    let mut child = place.child("under-a-run", "a");
    let status = child.env("TENURE_HELD", held).status().expect("a process");
    assert!(status.success(), "it was answered so");
}

#[test]
fn any_store_will_do_and_its_clock_may_be_moved_by_hand() {
    let scene = Scene::new();
    let ttl = Duration::from_secs(60);
    let options = Options::new().ttl(ttl);
    let guard = scene.locks().acquire_with("a", &options).expect("free");
    let other = scene.another_process();
    assert!(matches!(other.try_acquire("a"), Err(AcquireError::Held(_))));
    // Heartbeats go by that clock.
    for _ in 0..6 {
        scene.clock().advance(ttl / 3);
        thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(guard.state(), GuardState::Held);
    scene.take_away("a").expect("a name");
    scene.until(|| guard.is_lost());
    drop(other.try_acquire("a").expect("free for others"));
    assert_eq!(Policy::NATIVE.supervised_ttl_ms, 30_000, "the default ttl");
}

#[test]
fn a_loss_can_be_awaited_on_any_executor() {
    let scene = Scene::new();
    let guard = scene.locks().acquire("a").expect("a free lock");
    block_on(async {
        let early = tokio::time::timeout(Duration::from_millis(30), guard.stop_requested());
        assert!(early.await.is_err(), "nothing has happened yet");
        scene.ask_to_stop("a").expect("a name");
        let told = tokio::time::timeout(PATIENCE, guard.stop_requested()).await;
        told.expect("it is told of the request");
        let early = tokio::time::timeout(Duration::from_millis(30), guard.lost());
        assert!(early.await.is_err(), "asked is not lost");
        scene.take_away("a").expect("a name");
        let told = tokio::time::timeout(PATIENCE, guard.lost()).await;
        told.expect("it is told of the loss");
    });
}

#[test]
fn a_loss_of_one_of_several_is_told_and_the_others_are_released() {
    let scene = Scene::new();
    let names = ["a", "b", "c"];
    block_on(async {
        let locks = scene.locks();
        let options = Options::new();
        let guards = locks.acquire_all_async(names, &options).await;
        let guards = guards.expect("free locks");
        let early = tokio::time::timeout(Duration::from_millis(30), guards.stop_requested());
        assert!(early.await.is_err(), "nothing has happened yet");
        assert!(!guards.should_stop() && guards.verify().is_ok());
        scene.ask_to_stop("c").expect("a name");
        let asked = tokio::time::timeout(PATIENCE, guards.stop_requested()).await;
        assert_eq!(asked.expect("it is told").name().as_str(), "c");
        assert!(guards.should_stop() && !guards.is_lost());
        let early = tokio::time::timeout(Duration::from_millis(30), guards.lost());
        assert!(early.await.is_err(), "asked is not lost");
        scene.take_away("b").expect("a name");
        let lost = tokio::time::timeout(PATIENCE, guards.lost()).await;
        assert_eq!(lost.expect("it is told").name().as_str(), "b");
        assert!(guards.is_lost() && guards.verify().is_err());
        let error = guards.release_async().await.expect_err("one is lost");
        assert!(
            matches!(&error, ReleaseError::Lost { name } if name.as_str() == "b"),
            "{error}"
        );
        let other = scene.another_process();
        for name in names {
            drop(other.try_acquire(name).expect("all of them are free"));
        }
        let none = locks.acquire_all([""; 0], &options).expect("no locks");
        let never = tokio::time::timeout(Duration::from_millis(30), none.lost());
        assert!(never.await.is_err(), "of none, none is lost");
        none.release_async().await.expect("nothing to release");
    });
}

/// What `docs/library.md` shows: the work is a branch of a `select!`, on a runtime with threads.
#[test]
fn tasks_of_tokio_take_turns_and_a_loss_ends_the_work_of_one() {
    let place = Place::new();
    let locks = place.locks();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_time()
        .build()
        .expect("a runtime");
    let inside = std::sync::Arc::new(AtomicU32::new(0));
    let tasks: Vec<_> = (0..20)
        .map(|_| {
            let (locks, inside) = (locks.clone(), inside.clone());
            runtime.spawn(async move {
                let options = forever().again(Again::Wait);
                let guard = locks.acquire_async("a", &options).await.expect("its turn");
                let work = async {
                    let before = inside.fetch_add(1, Ordering::SeqCst);
                    tokio::time::sleep(Duration::from_millis(1)).await;
                    inside.fetch_sub(1, Ordering::SeqCst);
                    before
                };
                let alone = tokio::select! {
                    before = work => before == 0,
                    () = guard.lost() => unreachable!("no caller takes it"),
                };
                // No `await` here: when a drop returns, its effects are complete.
                drop(guard);
                alone
            })
        })
        .collect();
    for task in tasks {
        assert!(runtime.block_on(task).expect("no panic"), "two at once");
    }
    assert_eq!(place.claims("a"), 0, "a drop has released");

    let scene = Scene::new();
    let guard = scene.locks().acquire("a").expect("a free lock");
    let ended = runtime.block_on(async {
        let lost = async {
            tokio::time::sleep(Duration::from_millis(5)).await;
            scene.take_away("a").expect("a name");
            std::future::pending::<()>().await;
        };
        let work = async { tokio::join!(lost, tokio::time::sleep(PATIENCE * 3)) };
        tokio::select! {
            _ = work => false,
            () = guard.lost() => true,
        }
    });
    assert!(ended, "the work was dropped in favour of the loss");
}

fn block_on<F: Future>(future: F) -> F::Output {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build();
    runtime.expect("a runtime").block_on(future)
}

/// A guard may go wherever a future goes.
#[test]
fn guards_and_their_futures_may_be_sent() {
    fn is_send<T: Send>(value: T) -> T {
        value
    }
    fn is_sync<T: Sync>() {}
    is_sync::<Guard>();
    is_sync::<LockManager>();
    let place = Place::new();
    let locks = place.locks();
    let options = Options::new();
    let guard = block_on(is_send(locks.acquire_async("a", &options))).expect("a free lock");
    drop(is_send(guard.lost()));
    block_on(is_send(guard.release_async())).expect("a release");
    assert_eq!(place.claims("a"), 0);
    let both = block_on(is_send(locks.acquire_all_async(["b", "a"], &options)));
    let both = both.expect("free locks");
    assert_eq!(both.len(), 2);
    drop((is_send(both.lost()), is_send(both.stop_requested())));
    block_on(is_send(both.release_async())).expect("a release");
}

#[test]
fn a_future_that_nobody_polls_does_nothing() {
    let place = Place::new();
    let locks = place.locks();
    let options = Options::new();
    drop(locks.acquire_async("a", &options));
    let guard = locks.acquire("b").expect("a free lock");
    drop(guard.release_async());
    assert_eq!(place.claims("a"), 0);
    assert_eq!(
        place.claims("b"),
        0,
        "the drop of the future was the guard's"
    );
}

/// Dropped while it waits, and dropped just as its turn comes.
#[test]
fn a_dropped_future_leaves_the_queue() {
    let place = Place::new();
    let holder = place.held_elsewhere("a");
    let locks = place.locks();
    block_on(async {
        let options = forever();
        let waiting = locks.acquire_async("a", &options);
        let early = tokio::time::timeout(Duration::from_millis(50), waiting).await;
        assert!(early.is_err(), "it waits");
    });
    eventually(|| place.claims("a") == 1);
    holder.release();
    for _ in 0..50 {
        // A turn that came just at the previous drop may still have to be given back.
        let options = forever().again(Again::Wait);
        let guard = locks.acquire_with("b", &options).expect("its turn");
        block_on(async {
            let mut waiting = Box::pin(locks.acquire_async("b", &options));
            let now = std::future::poll_fn(|context| {
                std::task::Poll::Ready(waiting.as_mut().poll(context).is_pending())
            });
            assert!(now.await, "it is held");
            drop(guard);
            drop(waiting);
        });
        eventually(|| place.claims("b") == 0);
    }
}

/// Each future has one point at which it waits. It is dropped before it begins, while its thread works,
/// with a result that it has not fetched, and after it has fetched the result.
#[test]
fn a_future_may_be_dropped_wherever_it_waits() {
    let place = Place::new();
    let locks = place.locks();
    let options = forever().again(Again::Wait);
    let free = |names: &[&str]| eventually(|| names.iter().all(|name| place.claims(name) == 0));
    for upto in [Upto::Nothing, Upto::Pending, Upto::Done, Upto::Fetched] {
        drive(upto, locks.acquire_async("a", &options));
        free(&["a"]);
        drive(upto, locks.acquire_all_async(["a", "b"], &options));
        free(&["a", "b"]);
        let guard = locks.acquire("a").expect("a free lock");
        drive(upto, guard.release_async());
        free(&["a"]);
    }
    // Where it would wait long: behind another hold, and with one of two locks acquired.
    for upto in [Upto::Nothing, Upto::Pending] {
        let held = locks.acquire("b").expect("a free lock");
        drive(upto, locks.acquire_async("b", &options));
        drive(upto, locks.acquire_all_async(["a", "b"], &options));
        eventually(|| place.claims("a") == 0 && place.claims("b") == 1);
        assert_eq!(held.state(), GuardState::Held, "no caller took it");
        drive(upto, held.lost());
        drive(upto, held.stop_requested());
        assert_eq!(held.state(), GuardState::Held, "nor does a look end it");
        drop(held);
        free(&["b"]);
    }
}

/// How far a future gets before it is dropped.
#[derive(Clone, Copy, PartialEq)]
enum Upto {
    Nothing,
    Pending,
    Done,
    Fetched,
}

fn drive<T>(upto: Upto, future: impl Future<Output = T>) {
    struct Woken(AtomicBool);
    impl std::task::Wake for Woken {
        fn wake(self: std::sync::Arc<Self>) {
            self.0.store(true, Ordering::SeqCst);
        }
    }
    if upto == Upto::Nothing {
        return;
    }
    let woken = std::sync::Arc::new(Woken(AtomicBool::new(false)));
    let waker = std::task::Waker::from(std::sync::Arc::clone(&woken));
    let mut context = std::task::Context::from_waker(&waker);
    let mut future = std::pin::pin!(future);
    // A thread that was quick has been.
    if future.as_mut().poll(&mut context).is_ready() || upto == Upto::Pending {
        return;
    }
    eventually(|| woken.0.load(Ordering::SeqCst));
    if upto == Upto::Fetched {
        // Of several locks, one after the other.
        while future.as_mut().poll(&mut context).is_pending() {
            eventually(|| woken.0.swap(false, Ordering::SeqCst));
        }
    }
}

#[test]
fn an_async_wait_is_cancelled_by_its_caller_too() {
    let place = Place::new();
    let holder = place.held_elsewhere("a");
    let locks = place.locks();
    let cancel = Cancel::new();
    let options = forever().cancel(&cancel);
    let answer = block_on(async {
        let later = async {
            tokio::time::sleep(Duration::from_millis(30)).await;
            cancel.cancel();
            std::future::pending::<()>().await;
        };
        tokio::select! {
            answer = locks.acquire_async("a", &options) => answer,
            () = later => unreachable!("it never ends"),
        }
    });
    assert!(
        matches!(answer, Err(AcquireError::Cancelled { .. })),
        "{answer:?}"
    );
    holder.release();
}

/// A number of guards that counts as many.
#[cfg(target_os = "linux")]
const MANY: usize = 10_000;

/// How many of them one process may have: each keeps two files open. Raises the limit as far as the
/// system lets it, and leaves some files to everything else.
#[cfg(target_os = "linux")]
fn room_for_guards() -> usize {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut files = getrlimit(Resource::Nofile);
    files.current = files.maximum;
    setrlimit(Resource::Nofile, files).expect("as many files as there may be");
    let files = files.maximum.and_then(|files| usize::try_from(files).ok());
    files.unwrap_or(usize::MAX).saturating_sub(40) / 2
}

#[cfg(target_os = "linux")]
fn hold_many(locks: &LockManager, names: std::ops::Range<usize>) -> Guards {
    let names: Vec<String> = names.map(|number| format!("lock-{number}")).collect();
    let options = Options::new().ttl(Duration::from_secs(60));
    let guards = locks.acquire_all(names.iter().map(String::as_str), &options);
    guards.expect("free locks")
}

/// The processor time of all threads of a process, and its memory in KiB.
#[cfg(target_os = "linux")]
fn spent(pid: u32) -> (Duration, u64) {
    let process = PathBuf::from(format!("/proc/{pid}"));
    let tasks = std::fs::read_dir(process.join("task")).expect("its threads");
    let nanos = tasks.map(|task| -> u64 {
        let path = task.expect("a thread").path().join("schedstat");
        let text = std::fs::read_to_string(path).unwrap_or_default();
        let first = text.split(' ').next().and_then(|nanos| nanos.parse().ok());
        first.unwrap_or(0)
    });
    let nanos = nanos.sum();
    let status = std::fs::read_to_string(process.join("status")).expect("its status");
    let kib = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = kib.and_then(|line| line.trim().trim_end_matches(" kB").parse().ok());
    (Duration::from_nanos(nanos), kib.expect("a number"))
}

/// Figures for `docs/library.md`: `cargo test --release -p tenure --test guard -- --ignored
/// --nocapture many_guards`. Takes two minutes; with `TENURE_GUARDS=long` in the environment it is
/// a soak of half an hour.
#[cfg(target_os = "linux")]
#[test]
#[ignore = "a measurement"]
#[allow(clippy::print_stdout, reason = "it prints figures")]
fn many_guards_cost_little() {
    const MINUTE: Duration = Duration::from_secs(60);
    let long = std::env::var_os("TENURE_GUARDS").is_some_and(|length| length == "long");
    let minutes = if long { 30 } else { 1 };
    let here = MANY.min(room_for_guards());
    let place = Place::new();
    let locks = place.locks();
    drop(locks.acquire("warm").expect("a free lock"));
    let (own, (_, before)) = (std::process::id(), spent(std::process::id()));
    let began = instant();
    let guards = hold_many(&locks, 0..here);
    println!("{here} taken in {:?}", tenure_os::clock::since(began));
    // Other processes hold what exceeds the limit of files.
    let others: Vec<Elsewhere> = (here..MANY)
        .step_by(here)
        .map(|first| {
            let end = MANY.min(first + here);
            place.held_by("hold-many", &format!("{first} {end}"))
        })
        .collect();
    let pids = || others.iter().map(|other| other.child.id()).chain([own]);
    let cpu = || pids().map(|pid| spent(pid).0).sum::<Duration>();
    thread::sleep(MINUTE / 2);
    let grown = |bytes: u64| (bytes.saturating_sub(before)) * 1024 / here as u64;
    println!("{} bytes each", grown(spent(own).1));
    let renewals = |number: usize| {
        let reading = place.reading(&format!("lock-{number}"));
        reading.entry().expect("a list").claims[0].lease.renewals
    };
    for minute in 1..=minutes {
        let (before, since) = (cpu(), instant());
        thread::sleep(MINUTE);
        let (spent_on, length) = (cpu().saturating_sub(before), tenure_os::clock::since(since));
        let share = spent_on.as_secs_f64() / length.as_secs_f64() * 100.0;
        println!(
            "minute {minute}: {share:.2} % of a core, {} bytes each",
            grown(spent(own).1)
        );
        assert!(guards.iter().all(|guard| guard.state() == GuardState::Held));
        let least = (0..MANY).map(renewals).min();
        assert!(least >= Some(3 * minute), "{least:?}: three a minute");
    }
    assert!(grown(spent(own).1) < 2048, "under 2 KiB each");
    // Among so many, each guard still learns what happens to its own hold.
    let (asked, removed) = (0..20, 20..40);
    for number in asked.clone() {
        place.ask_to_stop(&format!("lock-{number}"));
    }
    for number in removed.clone() {
        let path = place.0.path().join(format!("lock-{number}.tenure"));
        std::fs::rename(&path, path.with_extension("gone")).expect("a file");
    }
    let state = |number: usize| {
        let guard = guards.get(&format!("lock-{number}"));
        guard.expect("a guard").state()
    };
    let since = instant();
    eventually(|| {
        asked
            .clone()
            .all(|number| state(number) == GuardState::StopRequested)
    });
    eventually(|| {
        removed
            .clone()
            .all(|number| state(number) == GuardState::Lost)
    });
    println!("all 40 noticed within {:?}", tenure_os::clock::since(since));
    assert!((40..here).all(|number| state(number) == GuardState::Held));
    let began = instant();
    drop(guards);
    println!("released in {:?}", tenure_os::clock::since(began));
    others.into_iter().for_each(Elsewhere::release);
    assert!((40..MANY).all(|number| place.claims(&format!("lock-{number}")) == 0));
    let began = instant();
    for _ in 0..MANY {
        drop(locks.acquire("warm").expect("a free lock"));
    }
    let each = tenure_os::clock::since(began) / u32::try_from(MANY).expect("not so many");
    println!("acquire and release: {each:?}");
}

/// A waker that does not come back.
#[cfg(target_os = "linux")]
struct Stuck;

#[cfg(target_os = "linux")]
impl std::task::Wake for Stuck {
    fn wake(self: std::sync::Arc<Self>) {
        loop {
            thread::park();
        }
    }
}

/// A person on call reads the message, and not the fields: what happened to which lock, and what follows.
#[test]
#[allow(
    clippy::disallowed_methods,
    reason = "a lock is removed by hand, behind the store's back"
)]
fn the_log_says_in_words_what_happened_table() {
    let place = Place::new();
    let locks = place.locks();
    let removed = |guard: Guard| {
        std::fs::remove_file(place.0.path().join("deploy.tenure")).expect("the lock's file");
        assert!(guard.verify().is_err(), "it is gone");
        assert_eq!(guard.lost_reason(), Some(LostReason::Gone));
    };
    let asked = |guard: Guard| {
        place.ask_to_stop("deploy");
        guard.verify().expect("it stands");
        assert_eq!(guard.lost_reason(), None);
    };
    let rows: [(&dyn Fn(Guard), &str); 3] = [
        (&drop, "DEBUG deploy was released"),
        (
            &asked,
            "INFO another caller asked for deploy: the work under it should end",
        ),
        (
            &removed,
            "WARN deploy is lost: another caller may hold it, so the work under it has to end",
        ),
    ];
    for (work, said) in rows {
        let log = Log::of(|| work(locks.acquire("deploy").expect("a free lock")));
        let lines = log.lines();
        assert_eq!(
            lines.first().map(String::as_str),
            Some("DEBUG deploy is held")
        );
        assert!(lines.iter().any(|line| line == said), "{said}: {lines:?}");
        assert!(log.targets().iter().all(|target| target == "tenure"));
    }
}

/// A log that writes to a full pipe, say.
#[cfg(target_os = "linux")]
struct StuckLog;

#[cfg(target_os = "linux")]
impl tracing::Subscriber for StuckLog {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        metadata.name() == "tenure.lock.lost"
    }

    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }

    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}

    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}

    fn event(&self, _: &tracing::Event<'_>) {
        loop {
            thread::park();
        }
    }

    fn enter(&self, _: &tracing::span::Id) {}

    fn exit(&self, _: &tracing::span::Id) {}
}

/// A guard is lost, and the code that is told of it does not return; the other guards are still
/// renewed.
#[cfg(target_os = "linux")]
#[allow(
    clippy::disallowed_methods,
    reason = "a lock is removed by hand, behind the store's back"
)]
fn the_others_are_looked_after(place: &Place, stuck: Option<&std::task::Waker>) {
    let locks = place.locks();
    let options = Options::new().ttl(Duration::from_millis(300));
    let lost = locks.acquire_with("lost", &options).expect("a free lock");
    let kept = locks.acquire_with("kept", &options).expect("a free lock");
    if let Some(waker) = stuck {
        lost.wake_on_change(waker);
    }
    let file = place.0.path().join("lost.tenure");
    std::fs::remove_file(file).expect("the lock is removed by hand");
    let until = |what: &str, is_so: &dyn Fn() -> bool| {
        let began = instant();
        while !is_so() {
            assert!(tenure_os::clock::since(began) < PATIENCE, "in vain: {what}");
            thread::sleep(Duration::from_millis(1));
        }
    };
    until("the loss shows", &|| lost.is_lost());
    let renewed = || {
        let reading = place.reading("kept");
        let claims = &reading.entry().expect("a whole list").claims;
        claims.first().expect("the claim").lease.renewed.boot_ms
    };
    let before = renewed();
    until("its heartbeats go on", &|| renewed() > before);
    place.ask_to_stop("kept");
    until("it hears requests", &|| kept.should_stop());
}

#[cfg(target_os = "linux")]
#[test]
fn a_waker_that_blocks_keeps_no_heartbeat() {
    let stuck = std::task::Waker::from(std::sync::Arc::new(Stuck));
    the_others_are_looked_after(&Place::new(), Some(&stuck));
}

#[cfg(target_os = "linux")]
#[test]
fn a_log_that_blocks_keeps_no_heartbeat() {
    tracing::subscriber::set_global_default(StuckLog).expect("the only one of this process");
    the_others_are_looked_after(&Place::new(), None);
}

/// A second request of a process is answered at once where a claim in line waits for the first one's hold: whatever else
/// holds or waits, that wait could not end.
#[test]
fn a_nested_request_behind_a_claim_that_waits_for_this_process_is_answered_at_once_table() {
    let (shared, slots) = (Options::new().shared(), Options::new().slots(2));
    let (exclusive, three) = (Options::new(), Options::new().slots(3));
    // What this process holds, whether another one holds beside it, what waits in line, what is asked; and whether that
    // is answered at once.
    let rows = [
        (
            "reader, writer waits",
            &shared,
            false,
            &exclusive,
            &shared,
            true,
        ),
        (
            "readers, writer waits",
            &shared,
            true,
            &exclusive,
            &shared,
            true,
        ),
        (
            "slots, writer waits",
            &slots,
            false,
            &exclusive,
            &slots,
            true,
        ),
        (
            "slots full, writer waits",
            &slots,
            true,
            &exclusive,
            &slots,
            true,
        ),
        (
            "slots, another number waits",
            &slots,
            false,
            &three,
            &slots,
            true,
        ),
        (
            "slots full, a slot waits",
            &slots,
            true,
            &slots,
            &slots,
            false,
        ),
    ];
    for (what, own, beside, waits, asks, at_once) in rows {
        let scene = Scene::new();
        let locks = scene.locks();
        let _own = locks.acquire_with("a", own).expect("a free lock");
        let other = scene.another_process();
        let _beside = beside.then(|| other.acquire_with("a", own).expect("beside it"));
        let waiter = scene.another_process();
        let cancel = Cancel::new();
        let waits = waits.clone().wait(Wait::Forever).cancel(&cancel);
        let waiting = thread::spawn(move || waiter.acquire_with("a", &waits).map(drop));
        let looks = scene.another_process();
        eventually(|| {
            let refused = looks.try_acquire("a").expect_err("it is held");
            matches!(refused, AcquireError::Held(refused) if refused.entry.claims.iter().any(|claim| claim.token.is_none()))
        });
        let ends = Cancel::new();
        let asks = asks.clone().wait(Wait::Forever).cancel(&ends);
        let asked = thread::spawn(move || locks.acquire_with("a", &asks).map(drop));
        if at_once {
            let end = instant() + Duration::from_secs(20);
            while !asked.is_finished() {
                assert!(instant() < end, "{what}: it waits for ever");
                thread::sleep(Duration::from_millis(5));
            }
        } else {
            thread::sleep(Duration::from_millis(200));
            assert!(
                !asked.is_finished(),
                "{what}: the other slot may become free"
            );
            ends.cancel();
        }
        let answer = asked.join().expect("no panic").expect_err("it is held");
        let is_own = matches!(answer, AcquireError::HeldByThisProcess { .. });
        assert_eq!(is_own, at_once, "{what}: {answer}");
        cancel.cancel();
        let _ = waiting.join().expect("no panic");
    }
}

/// Whoever came behind a caller is no reason why its wait could not end.
#[test]
fn a_wait_for_a_slot_that_is_over_is_refused_as_any_other() {
    let scene = Scene::new();
    let (locks, other, third) = (
        scene.locks(),
        scene.another_process(),
        scene.another_process(),
    );
    let slots = Options::new().slots(2);
    let ours = locks.acquire_with("a", &slots).expect("a free slot");
    let theirs = other.acquire_with("a", &slots).expect("a free slot");
    let cancel = Cancel::new();
    let bounded = slots.wait(Wait::For(Duration::from_secs(1)));
    let asked = {
        let locks = locks.clone();
        thread::spawn(move || locks.acquire_with("a", &bounded).map(drop))
    };
    let looks = scene.another_process();
    let waiting = || {
        let refused = looks.try_acquire("a").expect_err("it is held");
        let AcquireError::Held(refused) = refused else {
            panic!("{refused}")
        };
        refused
            .entry
            .claims
            .iter()
            .filter(|claim| claim.token.is_none())
            .count()
    };
    eventually(|| waiting() == 1);
    let behind = thread::spawn(move || {
        let exclusive = Options::new().wait(Wait::Forever).cancel(&cancel);
        third.acquire_with("a", &exclusive).map(drop)
    });
    eventually(|| waiting() == 2);
    scene.clock().advance(Duration::from_secs(2));
    let answer = asked
        .join()
        .expect("no panic")
        .expect_err("no slot was free");
    assert!(matches!(answer, AcquireError::Held(_)), "{answer}");
    drop((ours, theirs));
    let _ = behind.join().expect("no panic");
}

/// A claim of another process that waits for a lock until it is cancelled.
fn waits_elsewhere(
    scene: &Scene,
    name: &'static str,
    options: Options,
) -> (Cancel, thread::JoinHandle<()>) {
    let (cancel, waiter) = (Cancel::new(), scene.another_process());
    let options = options.wait(Wait::Forever).cancel(&cancel);
    let waiting = thread::spawn(move || drop(waiter.acquire_with(name, &options)));
    (cancel, waiting)
}

#[test]
fn a_reader_is_told_of_the_writer_before_it() {
    let scene = Scene::new();
    let reading = Options::new().shared().why("query");
    let _first = scene
        .another_process()
        .acquire_with("a", &reading)
        .expect("a free lock");
    let (cancel, writer) = waits_elsewhere(&scene, "a", Options::new().why("migrate"));
    scene.until_waiting("a", 1);
    let locks = scene.locks();
    let at_once = reading.clone().wait(Wait::No);
    let in_time = reading.clone().wait(Duration::from_secs(5));
    let late = thread::spawn({
        let locks = locks.clone();
        move || locks.acquire_with("a", &in_time).map(drop)
    });
    scene.until_waiting("a", 2);
    scene.clock().advance(Duration::from_secs(6));
    for refused in [
        locks.acquire_with("a", &at_once).map(drop),
        late.join().expect("no panic"),
    ] {
        let error = refused.expect_err("a writer waits");
        let text = error.to_string();
        let AcquireError::Held(refused) = &error else {
            panic!("{error:?}")
        };
        let ahead = refused.ahead().expect("the writer");
        assert_eq!(ahead.who.why, "migrate", "{text}");
        assert!(
            text.contains("waits before you") && text.contains("migrate"),
            "{text}"
        );
        let held = refused.holder().map(|holder| holder.why.as_str());
        assert_eq!(held, Some("query"), "the holder is the reader");
    }
    // Whoever would hold alone waits for the holder, and is told of it.
    let error = locks.try_acquire("a").expect_err("it is held");
    let AcquireError::Held(refused) = error else {
        panic!("{error:?}")
    };
    assert!(refused.ahead().is_none());
    cancel.cancel();
    writer.join().expect("no panic");
}

#[test]
fn the_hint_of_a_reader_counts_the_writer_before_it() {
    let scene = Scene::new();
    let reading = Options::new().shared().wait(Wait::No);
    let _first = scene
        .another_process()
        .acquire_with("a", &reading)
        .expect("a free lock");
    let alone = Options::new().wait(Wait::No);
    let refused = scene
        .locks()
        .acquire_with("a", &alone)
        .expect_err("it is held");
    let without = refused.retry_after().expect("a hint");
    let (cancel, writer) = waits_elsewhere(&scene, "a", Options::new());
    scene.until_waiting("a", 1);
    let refused = scene
        .locks()
        .acquire_with("a", &reading)
        .expect_err("a writer waits");
    let with = refused.retry_after().expect("a hint");
    assert!(
        with >= without + Duration::from_secs(1),
        "{with:?} and {without:?}"
    );
    cancel.cancel();
    writer.join().expect("no panic");
}

#[test]
fn check_and_list_say_who_holds_and_who_waits() {
    let place = Place::new();
    let locks = place.locks();
    assert_eq!(
        locks.check("a").expect("a place").standing,
        LockStanding::Free
    );
    assert!(locks.list().expect("a place").is_empty());
    let held = place.held_elsewhere("a");
    let cancel = Cancel::new();
    let waiting = thread::spawn({
        let (locks, options) = (locks.clone(), forever().cancel(&cancel).why("nightly"));
        move || drop(locks.acquire_with("a", &options))
    });
    eventually(|| locks.check("a").expect("a place").waiters.len() == 1);
    let status = locks.check("a").expect("a place");
    assert_eq!(
        (status.standing, status.is_available),
        (LockStanding::Held, false)
    );
    let [holder] = &status.holders[..] else {
        panic!("{status:?}")
    };
    assert!(holder.to_string().starts_with("PID ") && holder.to_string().contains(" since "));
    assert!(holder.token.is_some() && holder.since > std::time::SystemTime::UNIX_EPOCH);
    let waiter = &status.waiters[0];
    assert_eq!((waiter.position, &*waiter.who.why), (1, "nightly"));
    let text = status.to_string();
    assert!(
        text.starts_with("a is held by PID ") && text.contains("\n        1. PID "),
        "{text}"
    );
    let listed = locks.list().expect("a place");
    assert_eq!(listed.len(), 1);
    assert_eq!(listed[0].to_string().lines().count(), 2);
    assert!(locks.check("../a").is_err());
    cancel.cancel();
    waiting.join().expect("no panic");
    held.release();
}

#[test]
fn a_program_waits_for_room_and_takes_nothing() {
    let place = Place::new();
    let locks = place.locks();
    locks.wait("a", &Options::new()).expect("free");
    let held = place.held_elsewhere("a");
    let short = Options::new().wait(Duration::from_millis(30));
    for refused in [
        locks.wait("a", &short),
        locks.wait("a", &Options::new().wait(Wait::No)),
        block_on(locks.wait_async("a", &short)),
    ] {
        let error = refused.expect_err("it is held");
        assert!(matches!(error, AcquireError::Held(_)), "{error}");
    }
    let cancel = Cancel::new();
    let waiting = thread::spawn({
        let (locks, options) = (locks.clone(), forever().cancel(&cancel));
        move || locks.wait("a", &options)
    });
    thread::sleep(Duration::from_millis(20));
    cancel.cancel();
    let answer = waiting.join().expect("no panic");
    assert!(
        matches!(answer, Err(AcquireError::Cancelled { .. })),
        "{answer:?}"
    );
    let waiting = thread::spawn({
        let locks = locks.clone();
        move || locks.wait("a", &forever())
    });
    thread::sleep(Duration::from_millis(20));
    assert_eq!(place.claims("a"), 1, "it stands in no line");
    held.release();
    waiting.join().expect("no panic").expect("it is free now");
    let own = locks.acquire("a").expect("nobody has it");
    let error = locks
        .wait("a", &forever())
        .expect_err("it would wait for itself");
    assert!(
        matches!(error, AcquireError::HeldByThisProcess { .. }),
        "{error}"
    );
    let shared = Options::new().shared().wait(Wait::No);
    assert!(locks.wait("a", &shared.again(Again::Wait)).is_err());
    drop(own);
}

#[test]
fn a_program_asks_a_holder_to_stop_and_cleans_up_after_one() {
    let place = Place::new();
    let locks = place.locks();
    assert!(locks.cancel("a", "over").expect("a place").is_empty());
    let own = locks.acquire("a").expect("a free lock");
    let asked = place.locks().cancel("a", "over").expect("a place");
    assert_eq!(asked.len(), 1);
    assert_eq!(
        (asked[0].token, asked[0].is_asked_to_stop),
        (Some(own.token()), true)
    );
    eventually(|| own.state() == GuardState::StopRequested);
    own.release().expect("a hold");
    let held = place.held_elsewhere("a");
    held.kill();
    eventually(|| locks.check("a").expect("a place").standing == LockStanding::Free);
    let report = locks.clean().expect("a place");
    assert_eq!((report.claims.len(), report.files), (1, 1));
    assert_eq!(
        report.to_string(),
        "removed 1 stale claim and 1 unused lock file"
    );
    assert!(report.failed.is_empty());
}

#[test]
fn a_guard_says_that_the_holder_before_it_died() {
    let place = Place::new();
    let locks = place.locks();
    let first = locks.acquire("a").expect("a free lock");
    assert!(!first.previous_died(), "nobody was before");
    first.release().expect("a hold");
    place.held_elsewhere("a").release();
    assert!(
        !locks.acquire("a").expect("a free lock").previous_died(),
        "it was released"
    );
    let held = place.held_elsewhere("a");
    let waiting = thread::spawn({
        let locks = locks.clone();
        move || {
            locks
                .acquire_with("a", &forever())
                .map(|guard| guard.previous_died())
        }
    });
    eventually(|| place.claims("a") == 2);
    held.kill();
    assert!(
        waiting.join().expect("no panic").expect("its turn"),
        "it died inside"
    );
    assert!(
        !locks.acquire("a").expect("a free lock").previous_died(),
        "that one did not"
    );
}

#[test]
fn a_watch_lives_apart_from_its_guard() {
    fn apart<T: Clone + Send + Sync + 'static>(watch: &T) -> T {
        watch.clone()
    }
    let place = Place::new();
    let locks = place.locks();
    let guard = locks.acquire("a").expect("a free lock");
    let watch = apart(&guard.watch());
    assert_eq!((watch.name(), watch.token()), (guard.name(), guard.token()));
    assert_eq!(watch.state(), GuardState::Held);
    let asked = thread::spawn({
        let watch = watch.clone();
        move || block_on(watch.stop_requested())
    });
    place.ask_to_stop("a");
    asked.join().expect("no panic");
    assert_eq!((watch.is_lost(), watch.should_stop()), (false, true));
    assert_eq!(watch.asked_by().as_deref(), Some("somebody"));
    let lost = thread::spawn({
        let watch = watch.clone();
        move || block_on(watch.lost())
    });
    thread::sleep(Duration::from_millis(10));
    drop(guard);
    lost.join().expect("no panic");
    assert!(watch.is_lost(), "there is nothing left to watch");
    assert_eq!(place.claims("a"), 0, "it keeps nothing");
}

/// A call for a lock.
type Asks = Box<dyn Fn() + std::panic::UnwindSafe>;

#[test]
fn a_panic_in_on_wait_goes_on_in_the_caller() {
    let scene = Scene::new();
    let theirs = scene.another_process().acquire("a").expect("a free lock");
    let locks = scene.locks();
    let asks = Options::new().on_wait(|_, _| panic!("told"));
    let takes_turns = asks.clone().again(Again::Wait);
    let first = {
        let (cancel, locks) = (Cancel::new(), locks.clone());
        let options = forever().again(Again::Wait).cancel(&cancel);
        (
            cancel,
            thread::spawn(move || drop(locks.acquire_with("a", &options))),
        )
    };
    scene.until_waiting("a", 1);
    let rows: [(&str, Asks); 5] = [
        ("thread", {
            let (locks, asks) = (locks.clone(), asks.clone());
            Box::new(move || drop(locks.acquire_with("a", &asks)))
        }),
        ("thread in line", {
            let (locks, asks) = (locks.clone(), takes_turns.clone());
            Box::new(move || drop(locks.acquire_with("a", &asks)))
        }),
        ("task", {
            let (locks, asks) = (locks.clone(), asks.clone());
            Box::new(move || drop(block_on(locks.acquire_async("a", &asks))))
        }),
        ("task in line", {
            let (locks, asks) = (locks.clone(), takes_turns);
            Box::new(move || drop(block_on(locks.acquire_async("a", &asks))))
        }),
        ("task for several", {
            let (locks, asks) = (locks.clone(), asks);
            Box::new(move || drop(block_on(locks.acquire_all_async(["a", "b"], &asks))))
        }),
    ];
    for (who, asks) in rows {
        let panic = std::panic::catch_unwind(asks).expect_err("it panics");
        assert_eq!(panic.downcast_ref::<&str>(), Some(&"told"), "{who}");
    }
    first.0.cancel();
    first.1.join().expect("no panic");
    drop(theirs);
    let free = locks.acquire_timeout("a", PATIENCE);
    drop(free.expect("nothing stands in line after a panic"));
}

#[test]
fn tasks_of_one_process_wait_for_slots() {
    let place = Place::new();
    let locks = place.locks();
    let (inside, most) = (AtomicU32::new(0), AtomicU32::new(0));
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                let slot = locks
                    .acquire_with("gpu", &Options::new().slots(4))
                    .expect("its turn");
                let present = inside.fetch_add(1, Ordering::SeqCst) + 1;
                most.fetch_max(present, Ordering::SeqCst);
                thread::sleep(Duration::from_millis(5));
                inside.fetch_sub(1, Ordering::SeqCst);
                drop(slot);
            });
        }
    });
    assert!(most.load(Ordering::SeqCst) <= 4);
}

#[test]
fn a_wait_for_the_own_process_that_is_over_names_this_process() {
    let place = Place::new();
    let locks = place.locks();
    let slot = Options::new().slots(1);
    let rows = [
        ("a", Options::new(), Options::new().again(Again::Wait)),
        ("b", slot.clone(), slot),
    ];
    for (name, holds, asks) in rows {
        let _own = locks.acquire_with(name, &holds).expect("a free lock");
        let asks = asks.wait(Duration::from_millis(20));
        let error = locks.acquire_with(name, &asks).expect_err("it is held");
        let text = error.to_string();
        assert!(
            text.starts_with(&format!("{name} is held by this process")),
            "{text}"
        );
        assert!(!text.contains("PID"), "{text}");
        let failure = tenure::envelope::Failure::from(error).message;
        assert!(failure.contains("held by this process"), "{failure}");
    }
}

#[test]
fn a_name_of_a_lock_is_made_of_any_text() {
    for (text, name) in [
        ("CI-refs/heads/main", "ci-refs=2fheads=2fmain"),
        ("a b", "a=20b"),
    ] {
        assert_eq!(
            lock_name(text).expect("a text").as_str(),
            name,
            "as `--group` has it"
        );
    }
    assert!(lock_name("").is_err());
}

#[test]
fn several_guards_are_taken_apart() {
    let place = Place::new();
    let locks = place.locks();
    let names = vec!["b".to_owned(), "a".to_owned()];
    let both = locks
        .acquire_all(&names, &Options::new())
        .expect("free locks");
    assert_eq!((&both).into_iter().count(), 2);
    let mut apart = both.into_iter();
    let first = apart.next().expect("two of them");
    drop(apart);
    assert_eq!(
        (first.name().as_str(), place.claims("a"), place.claims("b")),
        ("a", 1, 0)
    );
    assert_eq!(locks.folder(), Some(place.0.path()));
}

#[test]
fn an_error_says_whether_access_is_refused() {
    let store = |doing| tenure::store::StoreError::Permission {
        place: "a".to_owned(),
        doing,
    };
    let name = || LockName::new("a").expect("a name");
    let error = AcquireError::Store {
        name: name(),
        source: store("opening it"),
    };
    assert!(error.is_permission());
    assert!(!AcquireError::Cancelled { name: name() }.is_permission());
    let unsafe_place = AcquireError::Store {
        name: name(),
        source: tenure::store::StoreError::Unsafe {
            place: "/srv".to_owned(),
            why: "name the lock folder with --dir if it is to be used".to_owned(),
        },
    };
    let open = tenure::guard::OpenError::from(tenure::guard::ConfigError::NoPlace);
    for text in [unsafe_place.to_string(), open.to_string()] {
        assert!(
            text.contains("TENURE_DIR") && !text.contains("--"),
            "{text}"
        );
    }
}

/// A program may catch panics around all of them.
#[test]
fn what_programs_keep_is_unwind_safe() {
    fn is<T: std::panic::UnwindSafe + std::panic::RefUnwindSafe>() {}
    is::<Guard>();
    is::<Guards>();
    is::<tenure::guard::Watch>();
    is::<LockManager>();
    is::<Options>();
    is::<AcquireError>();
    is::<ReleaseError>();
    is::<tenure::guard::AdminError>();
    is::<tenure::guard::OpenError>();
}

/// A spawned task has to own what it uses.
#[test]
fn futures_own_what_they_need() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .build()
        .expect("a runtime");
    // The folders stay; managers, names and options do not.
    let places = [Place::new(), Place::new()];
    let guard = {
        let locks = places[0].locks();
        runtime.spawn(locks.acquire_async("a", &Options::new().wait(Duration::from_secs(1))))
    };
    let all = {
        let names = [String::from("a")];
        runtime.spawn(places[1].locks().acquire_all_async(&names, &Options::new()))
    };
    let room = runtime.spawn(tenure::testing::locks().wait_async("a", &Options::new()));
    runtime.block_on(async {
        guard
            .await
            .expect("no panic")
            .expect("free")
            .release_async()
            .await
            .expect("a hold");
        drop(all.await.expect("no panic").expect("free"));
        room.await.expect("no panic").expect("free");
    });
}
