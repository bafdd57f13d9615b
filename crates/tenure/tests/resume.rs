//! What users of a resume lock rely on: one test for each sentence of the contract.

#![allow(
    clippy::expect_used,
    clippy::panic,
    reason = "a test says what it expects by failing"
)]
#![allow(
    clippy::print_stdout,
    reason = "a test that was started as somebody's child answers on stdout"
)]
#![allow(
    clippy::disallowed_methods,
    reason = "here another program removes records by hand"
)]

#[path = "../../tenure-engine/tests/processes/mod.rs"]
mod processes;

use processes::dead_pid;
#[path = "support/log.rs"]
mod log;

use log::Log;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, SystemTime};
use tenure::model::{Force, Holder, Kind, LockName, Patience, Request, RequestId, Terms};
use tenure::resume::{
    AcquiredAt, Override, ResumeLock, ResumeLockData, ResumeLockError, ResumeLockManager,
    is_process_running,
};
use tenure::store::Verbs;
use tenure::store::file::{FileStore, ThreadSleeper};
use tenure_engine::formats::Resume;
use tenure_os::clock::{Clock, SystemClock, instant};
use tenure_os::process::Identity;

/// How long anything may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(20);

/// A storage folder and its locks.
struct Storage {
    scratch: tempfile::TempDir,
    locks: ResumeLockManager,
}

impl Storage {
    fn new() -> Self {
        let scratch = tempfile::tempdir().expect("a folder");
        let locks = ResumeLockManager::new(scratch.path().into()).expect("a folder for locks");
        Self { scratch, locks }
    }

    fn file(&self, id: &str) -> PathBuf {
        self.scratch.path().join(format!("resume_locks/{id}.lock"))
    }

    fn take(&self, id: &str) -> ResumeLock {
        self.locks.acquire_lock_blocking(id).expect("a free lock")
    }

    fn refused(&self, id: &str) -> ResumeLockError {
        let refused = self.locks.acquire_lock_blocking(id);
        refused.expect_err("the lock is held")
    }

    /// Another program writes a record.
    fn write(&self, id: &str, record: &str) {
        fs::write(self.file(id), record).expect("a record of another program");
    }

    /// A record as the original program writes it.
    fn four_fields(&self, id: &str, pid: u32, host: &str) {
        let record = format!(
            "{{\n  \"job_id\": \"{id}\",\n  \"process_id\": {pid},\n  \"hostname\": \"{host}\",\n  \
             \"acquired_at\": \"2026-02-07T10:00:00.123456789Z\"\n}}"
        );
        self.write(id, &record);
    }

    fn on_disk(&self, id: &str) -> ResumeLockData {
        let record = fs::read(self.file(id)).expect("a record");
        serde_json::from_slice(&record).expect("the four fields")
    }
}

fn host() -> String {
    Identity::current().host.name
}

#[allow(
    clippy::useless_conversion,
    reason = "with the feature chrono it is another type"
)]
fn instant_of(at: AcquiredAt) -> SystemTime {
    at.into()
}

fn until(what: &str, mut happened: impl FnMut() -> bool) {
    let began = instant();
    while !happened() {
        assert!(
            tenure_os::clock::since(began) < PATIENCE,
            "waited too long until {what}"
        );
        thread::sleep(Duration::from_millis(5));
    }
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .expect("a runtime")
}

// ---- another process -------------------------------------------------------------------------

const CHILD: &str = "TENURE_TEST_RESUME_CHILD";

/// The test binary itself, started anew as a process that takes locks when it is told to.
struct Other {
    child: Child,
    orders: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Other {
    fn start(storage: &Storage) -> Self {
        let mut child = Command::new(std::env::current_exe().expect("this program"))
            .args(["--exact", "another_process", "--nocapture"])
            .env(CHILD, storage.scratch.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("another process");
        Self {
            orders: child.stdin.take().expect("its stdin"),
            answers: BufReader::new(child.stdout.take().expect("its stdout")),
            child,
        }
    }

    fn tell(&mut self, order: &str) {
        writeln!(self.orders, "{order}").expect("it listens");
    }

    fn answer(&mut self) -> String {
        let mut line = String::new();
        loop {
            line.clear();
            let read = self.answers.read_line(&mut line).expect("its stdout");
            assert!(read > 0, "the other process ended");
            // The harness writes to the same stream, and not always whole lines.
            if let Some((_, answer)) = line.split_once("answer: ") {
                return answer.trim_end().to_owned();
            }
        }
    }

    fn ask(&mut self, order: &str) -> String {
        self.tell(order);
        self.answer()
    }

    fn pid(&self) -> u32 {
        self.child.id()
    }

    fn kill(mut self) {
        self.child.kill().expect("a living process");
        self.child.wait().expect("its end");
    }
}

/// The other side of [`Other`]; by itself it does nothing.
#[test]
fn another_process() {
    let Some(storage) = std::env::var_os(CHILD) else {
        return;
    };
    let locks = ResumeLockManager::new(storage.into()).expect("a folder for locks");
    let mut held = None;
    for order in std::io::stdin().lines() {
        let order = order.expect("an order");
        let answer = match order.split_once(' ') {
            Some(("take", id)) => match locks.acquire_lock_blocking(id) {
                Ok(lock) => {
                    held = Some(lock);
                    "won".to_owned()
                }
                Err(error) => error.to_string().replace('\n', "|"),
            },
            Some(("verify", _)) => held
                .as_ref()
                .map_or("nothing".to_owned(), |lock| lock.is_held().to_string()),
            // The guard is on the stack of a thread that panics.
            Some(("fail", id)) => {
                let lock = locks.acquire_lock_blocking(id).expect("a free lock");
                let failed = thread::spawn(move || {
                    let _lock = lock;
                    panic!("the work failed");
                })
                .join();
                format!("failed {}", failed.is_err())
            }
            Some(("exit", id)) => {
                let _lock = locks.acquire_lock_blocking(id).expect("a free lock");
                // No drop runs.
                std::process::exit(3);
            }
            _ => {
                drop(held.take());
                "dropped".to_owned()
            }
        };
        println!("\nanswer: {answer}");
    }
}

// ---- what is logged --------------------------------------------------------------------------

// ---- the contract ----------------------------------------------------------------------------

#[test]
fn resume_a_free_lock_is_acquired_and_its_file_says_who_has_it() {
    let storage = Storage::new();
    let before = SystemTime::now() - Duration::from_secs(1);
    let lock = storage.take("job-1");
    assert_eq!(lock.id(), "job-1");
    assert!(lock.token() > 0, "a fencing token");
    assert_eq!(*lock.data(), storage.on_disk("job-1"));
    assert_eq!(lock.data().process_id, std::process::id());
    assert_eq!(lock.data().hostname, host());
    assert!(instant_of(lock.data().acquired_at) > before, "acquired now");
    lock.verify().expect("it is held");

    let text = fs::read_to_string(storage.file("job-1")).expect("a record");
    let value: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    let keys: Vec<&String> = value.as_object().expect("an object").keys().collect();
    assert_eq!(
        keys,
        ["job_id", "process_id", "hostname", "acquired_at", "tenure"],
        "the four fields of the format and one key of ours"
    );
    assert!(text.starts_with("{\n  \"job_id\""), "pretty: {text}");
}

/// As one that the command line makes.
#[test]
fn resume_a_folder_that_is_made_in_a_work_tree_is_left_alone_by_git() {
    let scratch = tempfile::tempdir().expect("a folder");
    fs::create_dir(scratch.path().join(".git")).expect("a work tree");
    let storage = scratch.path().join("storage");
    let _ = ResumeLockManager::new(storage.clone()).expect("a manager");
    let ignore = storage.join("resume_locks/.gitignore");
    assert_eq!(fs::read_to_string(ignore).expect("a file"), "*\n");
    assert!(
        !storage.join(".gitignore").exists(),
        "not the program's own"
    );
}

#[test]
fn resume_a_folder_that_cannot_be_made_is_said_with_its_name() {
    let scratch = tempfile::tempdir().expect("a folder");
    let file = scratch.path().join("file");
    fs::write(&file, "").expect("a file in the way");
    let error = ResumeLockManager::new(file).expect_err("a file is no folder");
    let text = error.to_string();
    assert!(
        text.starts_with("Failed to create locks directory"),
        "{text}"
    );
    assert!(
        matches!(error, ResumeLockError::CreateFolder { .. }),
        "{error:?}"
    );
}

#[test]
fn resume_a_lock_held_by_another_process_is_refused_with_pid_host_and_time() {
    let storage = Storage::new();
    let mut other = Other::start(&storage);
    assert_eq!(other.ask("take job-1"), "won");
    let error = storage.refused("job-1");
    let ResumeLockError::InProgress {
        job_id,
        process_id,
        hostname,
        acquired_at,
        override_command,
        is_orphaned,
    } = &error
    else {
        panic!("refused for another reason: {error:?}");
    };
    assert_eq!(
        (job_id.as_str(), *process_id, hostname.as_str()),
        ("job-1", other.pid(), host().as_str())
    );
    assert_eq!(*acquired_at, storage.on_disk("job-1").acquired_at);
    assert_eq!(*override_command, None, "its process can be seen from here");
    assert!(!is_orphaned, "it lives");
    let text = error.to_string();
    let lines: Vec<&str> = text.lines().collect();
    let [first, second, third] = lines[..] else {
        panic!("three lines: {text}");
    };
    assert_eq!(first, "Resume already in progress for job job-1");
    let start = format!("Lock held by: PID {process_id} on {hostname} (acquired 20");
    assert!(second.starts_with(&start), "{second}");
    assert!(second.ends_with(" UTC)"), "{second}");
    assert_eq!(
        third,
        "Please wait for the other process to complete, or use --force to override."
    );
}

#[test]
fn resume_a_lock_is_released_on_drop_and_its_record_is_gone() {
    let storage = Storage::new();
    drop(storage.take("job-1"));
    assert!(!storage.file("job-1").exists(), "nothing is left to see");
    storage.take("job-1").release().expect("a release");
    assert!(!storage.file("job-1").exists(), "nothing is left to see");
}

#[test]
fn resume_a_second_resume_succeeds_after_the_first_completed() {
    let storage = Storage::new();
    let mut other = Other::start(&storage);
    let mut last = 0;
    for _ in 0..3 {
        assert_eq!(other.ask("take job-1"), "won");
        assert_eq!(other.ask("drop"), "dropped");
        let lock = storage.take("job-1");
        assert!(lock.token() > last, "tokens only rise");
        last = lock.token();
    }
}

#[test]
fn resume_a_second_resume_succeeds_after_the_first_failed() {
    let storage = Storage::new();
    let mut other = Other::start(&storage);
    assert_eq!(other.ask("fail job-1"), "failed true");
    drop(storage.take("job-1"));
    assert_eq!(other.ask("verify job-1"), "nothing", "it still runs");
}

#[test]
fn resume_a_second_resume_succeeds_at_once_after_the_first_was_killed() {
    let storage = Storage::new();
    let mut other = Other::start(&storage);
    assert_eq!(other.ask("take job-1"), "won");
    other.kill();
    assert!(storage.file("job-1").exists(), "no process released");
    drop(storage.take("job-1"));
}

#[test]
fn resume_a_second_resume_succeeds_at_once_after_an_exit_without_drops() {
    let storage = Storage::new();
    let mut other = Other::start(&storage);
    other.tell("exit job-1");
    let status = other.child.wait().expect("its end");
    assert_eq!(status.code(), Some(3));
    assert!(storage.file("job-1").exists(), "no process released");
    drop(storage.take("job-1"));
}

#[test]
fn resume_a_holder_that_is_a_zombie_is_dead() {
    let storage = Storage::new();
    let mut other = Other::start(&storage);
    assert_eq!(other.ask("take job-1"), "won");
    other.child.kill().expect("a living process");
    // Killed, and not waited for: it still has its process number.
    until("the zombie is one", || !is_process_running(other.pid()));
    drop(storage.take("job-1"));
    other.child.wait().expect("its end");
}

#[test]
fn resume_different_ids_never_block_each_other() {
    let storage = Storage::new();
    let ids = ["job-1", "job-10", "session-1", "job-1.lock", "Job-2", "a@b"];
    let held: Vec<ResumeLock> = ids.iter().map(|id| storage.take(id)).collect();
    let mut other = Other::start(&storage);
    // Where case does not count in file names, it does not count in ids.
    let another = if cfg!(windows) { "job-3" } else { "job-2" };
    assert_eq!(other.ask(&format!("take {another}")), "won");
    assert!(held.iter().all(ResumeLock::is_held));
}

#[test]
fn resume_a_lock_survives_its_manager_and_a_new_manager_respects_it() {
    let Storage { scratch, locks } = Storage::new();
    let lock = locks.acquire_lock_blocking("job-1").expect("a free lock");
    drop(locks);
    let locks = ResumeLockManager::new(scratch.path().into()).expect("a folder for locks");
    assert!(lock.is_held(), "the manager's end is not the lock's");
    locks
        .acquire_lock_blocking("job-1")
        .expect_err("it is held");
    lock.release().expect("a release");
    drop(locks.acquire_lock_blocking("job-1").expect("a free lock"));
}

#[test]
fn resume_the_same_process_is_told_at_once_that_it_holds_the_lock() {
    let storage = Storage::new();
    let lock = storage.take("job-1");
    let began = instant();
    let error = storage.refused("job-1");
    assert!(
        tenure_os::clock::since(began) < Duration::from_secs(1),
        "at once"
    );
    assert!(
        matches!(error, ResumeLockError::HeldByThisProcess { process_id, .. }
            if process_id == std::process::id()),
        "{error:?}"
    );
    let text = error.to_string();
    assert!(
        text.starts_with("Resume already in progress for job job-1\n"),
        "{text}"
    );
    assert!(text.contains("held by this process"), "{text}");
    assert!(text.contains("`again`"), "names the way: {text}");
    assert!(lock.is_held());
}

#[test]
fn resume_a_lock_that_is_shared_by_again_is_released_with_the_last() {
    let storage = Storage::new();
    let session = storage.take("job-1");
    let job = session.again();
    assert_eq!(job.token(), session.token(), "one hold");
    session.release().expect("nothing to go wrong");
    assert!(job.is_held(), "the inner layer still works");
    assert!(storage.file("job-1").exists());
    drop(job);
    assert!(!storage.file("job-1").exists(), "the last one released");
}

#[test]
fn resume_a_stale_record_of_the_original_program_is_removed_with_a_warning() {
    let storage = Storage::new();
    let pid = dead_pid();
    storage.four_fields("job-1", pid, &host());
    let lines = Log::of(|| drop(storage.take("job-1"))).lines();
    assert_eq!(
        lines,
        [
            format!("WARN Removing stale lock for job-1 (PID {pid} no longer running)"),
            "INFO Acquired resume lock for job-1".to_owned(),
            "INFO Released resume lock for job-1".to_owned(),
        ]
    );
}

#[test]
fn resume_a_record_of_the_original_program_is_respected_while_its_process_runs() {
    let storage = Storage::new();
    let other = Other::start(&storage);
    storage.four_fields("job-1", other.pid(), &host());
    let text = storage.refused("job-1").to_string();
    let second = format!(
        "Lock held by: PID {} on {} (acquired 2026-02-07 10:00:00 UTC)",
        other.pid(),
        host()
    );
    assert_eq!(text.lines().nth(1), Some(second.as_str()));
    assert_eq!(text.lines().count(), 3, "{text}");
    other.kill();
    drop(storage.take("job-1"));
}

#[test]
fn resume_a_record_with_our_number_alone_is_in_progress_and_not_called_ours() {
    let storage = Storage::new();
    storage.four_fields("job-1", std::process::id(), &host());
    let error = storage.refused("job-1");
    assert!(
        matches!(error, ResumeLockError::InProgress { .. }),
        "without a start time a number is no proof: {error:?}"
    );
}

#[test]
fn resume_the_originals_fixture_is_refused_and_its_host_named() {
    let storage = Storage::new();
    storage.four_fields("job-1", 999_999, "test-host");
    let error = storage.refused("job-1");
    let text = error.to_string();
    assert!(
        text.starts_with(
            "Resume already in progress for job job-1\n\
             Lock held by: PID 999999 on test-host (acquired 2026-02-07 10:00:00 UTC)\n\
             Please wait for the other process to complete, or use --force to override.\n"
        ),
        "{text}"
    );
    let ResumeLockError::InProgress {
        override_command: Some(command),
        ..
    } = error
    else {
        panic!("a holder out of sight comes with the command: {error:?}");
    };
    let place = storage.scratch.path().display();
    assert_eq!(
        command,
        format!("tenure --profile resume --dir {place} force-release job-1")
    );
    assert!(text.ends_with(&command), "{text}");
    assert!(storage.file("job-1").exists(), "it stands as it stood");
}

#[test]
fn resume_the_originals_fixture_is_cleaned_where_other_hosts_are_judged() {
    let storage = Storage::new();
    let pid = dead_pid();
    storage.four_fields("job-1", pid, "test-host");
    storage.refused("job-1");
    let locks = storage.locks.clone().judge_other_hosts();
    let lines = Log::of(|| {
        let lock = locks.acquire_lock_blocking("job-1");
        let lock = lock.expect("no process has that number");
        assert_eq!(storage.on_disk("job-1").process_id, std::process::id());
        lock.release().expect("a release");
    })
    .lines();
    let stale = format!("WARN Removing stale lock for job-1 (PID {pid} no longer running)");
    assert_eq!(lines[0], stale, "{lines:?}");
}

#[test]
fn resume_where_other_hosts_are_judged_a_number_that_lives_here_holds_and_keeps_its_hosts_name() {
    let storage = Storage::new();
    let locks = storage.locks.clone().judge_other_hosts();
    let other = Other::start(&storage);
    storage.four_fields("job-1", other.pid(), "test-host");
    match locks.acquire_lock_blocking("job-1") {
        Err(ResumeLockError::InProgress {
            hostname,
            override_command,
            ..
        }) => {
            assert_eq!(hostname, "test-host", "as the record says");
            assert_eq!(override_command, None, "its process is looked at here");
        }
        answer => panic!("it is held: {answer:?}"),
    }
    other.kill();
    drop(
        locks
            .acquire_lock_blocking("job-1")
            .expect("its number is gone"),
    );
}

#[test]
fn resume_where_other_hosts_are_judged_a_record_that_shows_another_machine_is_believed() {
    let storage = Storage::new();
    let locks = storage.locks.clone().judge_other_hosts();
    let host = Identity::current().host;
    let (boot, namespace) = (host.boot_id.expect("a boot id"), host.pid_namespace);
    let container = namespace.expect("a PID namespace") + 1;
    for (boot, namespace) in [(boot.as_str(), container), ("another-boot", container)] {
        let pid = dead_pid();
        storage.write(
            "job-1",
            &format!(
                r#"{{"job_id":"job-1","process_id":{pid},"hostname":"test-host","acquired_at":
               "2026-02-07T10:00:00Z","tenure":{{"boot_id":"{boot}","pid_namespace":{namespace}}}}}"#
            ),
        );
        let refused = locks.acquire_lock_blocking("job-1");
        assert!(
            matches!(refused, Err(ResumeLockError::InProgress { .. })),
            "{refused:?}"
        );
    }
}

#[test]
fn resume_an_override_takes_the_lock_from_this_process_too_and_the_guard_learns_it() {
    let storage = Storage::new();
    let session = storage.take("job-1");
    let job = storage
        .locks
        .acquire_lock_blocking_with("job-1", Override::Yes)
        .expect("an override");
    assert!(job.is_held() && !session.is_held(), "one of them holds");
    let error = session.release().expect_err("it had been taken");
    assert!(matches!(error, ResumeLockError::Lost { .. }), "{error}");
    assert!(job.is_held(), "and the loser's end leaves it alone");
}

#[test]
fn resume_a_record_whose_host_is_unknown_is_another_hosts_unless_the_boot_is_ours() {
    let storage = Storage::new();
    storage.four_fields("job-1", dead_pid(), "unknown");
    let error = storage.refused("job-1");
    assert!(error.to_string().contains(" on unknown ("), "{error}");

    let host = Identity::current().host;
    let boot = host.boot_id.expect("a boot id");
    let namespace = host.pid_namespace.expect("a PID namespace");
    let pid = dead_pid();
    storage.write(
        "job-2",
        &format!(
            r#"{{"job_id":"job-2","process_id":{pid},"hostname":"unknown","acquired_at":
               "2026-02-07T10:00:00Z","tenure":{{"boot_id":"{boot}","pid_namespace":{namespace}}}}}"#
        ),
    );
    drop(storage.take("job-2"));
}

#[test]
fn resume_a_number_that_was_used_again_is_another_process() {
    let storage = Storage::new();
    let other = Other::start(&storage);
    let host = Identity::current().host;
    let boot = host.boot_id.expect("a boot id");
    let namespace = host.pid_namespace.expect("a PID namespace");
    let started = tenure_os::process::start_time(other.pid()).expect("it runs");
    let record = |started: u64| {
        format!(
            r#"{{"job_id":"job-1","process_id":{},"hostname":"{}","acquired_at":
               "2026-02-07T10:00:00Z","tenure":{{"boot_id":"{boot}","pid_namespace":{namespace},
               "started":{started},"token":7}}}}"#,
            other.pid(),
            host.name
        )
    };
    storage.write("job-1", &record(started));
    storage.refused("job-1");
    storage.write("job-1", &record(started - 1));
    let lock = storage.take("job-1");
    assert!(lock.token() > 7, "the token rises over the record's own");
}

#[test]
fn resume_a_record_of_our_own_number_from_an_earlier_process_is_stale() {
    let storage = Storage::new();
    let lock = storage.take("job-1");
    let record = fs::read_to_string(storage.file("job-1")).expect("a record");
    drop(lock);
    let started = Identity::current().process.started.expect("a start time");
    let earlier = record.replace(
        &format!("\"started\": {started}"),
        &format!("\"started\": {}", started - 1),
    );
    assert_ne!(record, earlier, "the record keeps the start time");
    storage.write("job-1", &earlier);
    drop(storage.take("job-1"));
}

#[test]
fn resume_an_id_that_could_leave_the_folder_is_refused() {
    let storage = Storage::new();
    for id in [
        "../x",
        "a/b",
        "",
        ".",
        "..",
        "/etc/passwd",
        "a\0b",
        "a b",
        ".hidden",
    ] {
        let error = storage.refused(id);
        assert!(
            matches!(&error, ResumeLockError::BadId { job_id, .. } if job_id == id),
            "{id:?}: {error:?}"
        );
    }
    let folder = storage.scratch.path().join("resume_locks");
    let left: Vec<_> = fs::read_dir(folder).expect("the folder").collect();
    assert!(left.is_empty(), "nothing was touched: {left:?}");
}

#[test]
fn resume_force_reaches_an_active_lock_and_the_old_holder_is_told() {
    let storage = Storage::new();
    let mut other = Other::start(&storage);
    assert_eq!(other.ask("take job-1"), "won");
    let lines = Log::of(|| {
        let lock = storage
            .locks
            .acquire_lock_blocking_with("job-1", Override::Yes)
            .expect("force overrides");
        assert_eq!(other.ask("verify job-1"), "false", "it is told");
        assert_eq!(other.ask("drop"), "dropped");
        assert!(lock.is_held(), "its drop left ours alone");
    })
    .lines();
    assert!(lines[0].starts_with("WARN Overriding"), "loudly: {lines:?}");
    let audit = fs::read_to_string(storage.scratch.path().join("audit/incidents.jsonl"));
    let line = audit.expect("an audit");
    for fact in [
        "\"event\":\"lock_stolen\"",
        "\"lock_name\":\"job-1\"",
        "\"reason\":\"active_lock_forced\"",
        &format!("\"pid\":{}", other.pid()),
        // Who took it over, as in each line of an audit.
        &format!("\"pid\":{}", std::process::id()),
        "\"actor\":",
    ] {
        assert!(line.contains(fact), "{fact} is on record: {line}");
    }
}

#[test]
fn resume_force_passes_a_waiter_beside_a_holder_and_no_waiter_alone() {
    let storage = Storage::new();
    let session = storage.take("job-1");
    let here = Identity::current();
    let clock = SystemClock::new(here.host.boot_id.as_deref());
    let (folder, sleeper) = (storage.scratch.path(), Box::new(ThreadSleeper));
    let store = FileStore::with_profile(Box::new(Resume), folder, here.host.clone(), sleeper);
    let waits = Request {
        holder: Holder {
            request_id: RequestId::new("waits").expect("an id"),
            actor: "ada".to_owned(),
            process: Some(here.process),
            command: None,
            host: here.host.into(),
            why: String::new(),
            facts: Vec::new(),
        },
        kind: Kind::Kernel,
        ttl_ms: 60_000,
        force: Force::No,
        patience: Patience::Queue,
        terms: Terms::default(),
    };
    let name = LockName::new("job-1").expect("a name");
    let waiter = store.enter(&name, waits, &clock.now()).expect("a place");
    assert!(waiter.handle.is_some(), "it waits in line");
    let force = || {
        storage
            .locks
            .acquire_lock_blocking_with("job-1", Override::Yes)
    };
    let job = force().expect("the holder is overridden, past the waiter");
    assert!(!session.is_held());
    drop(session);
    job.release().expect("a hold");
    let refused = force().map(drop).expect_err("the waiter has its turn");
    assert!(
        matches!(
            refused,
            ResumeLockError::InProgress { .. } | ResumeLockError::HeldByThisProcess { .. }
        ),
        "{refused:?}"
    );
    drop(waiter);
    force().map(drop).expect("nobody waits");
}

#[test]
fn resume_an_audit_that_cannot_be_written_stops_nothing_and_is_warned_of() {
    let storage = Storage::new();
    fs::write(storage.scratch.path().join("audit"), "").expect("a file in the way");
    storage.four_fields("job-1", dead_pid(), &host());
    let lines = Log::of(|| drop(storage.take("job-1"))).lines();
    let warned = lines.iter().filter(|line| line.contains("audit"));
    assert_eq!(warned.count(), 1, "{lines:?}");
}

#[test]
fn resume_the_drop_of_an_overtaken_guard_does_not_delete_its_successors_lock() {
    let storage = Storage::new();
    let first = storage.take("job-1");
    let second = storage
        .locks
        .acquire_lock_blocking_with("job-1", Override::Yes)
        .expect("force overrides our own as well");
    assert!(second.token() > first.token());
    let lost = first.verify().expect_err("it was overtaken");
    assert!(matches!(lost, ResumeLockError::Lost { .. }), "{lost:?}");
    let record = fs::read(storage.file("job-1")).expect("the successor's record");
    let lines = Log::of(move || drop(first)).lines();
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert!(
        lines[0].starts_with("WARN Failed to release lock for job-1: "),
        "{lines:?}"
    );
    assert_eq!(fs::read(storage.file("job-1")).ok(), Some(record));
    second.release().expect("it was held to the end");
}

#[test]
fn resume_the_drop_does_not_delete_a_record_of_the_original_program() {
    let storage = Storage::new();
    let lock = storage.take("job-1");
    // By hand and with the original program: this we cannot prevent.
    fs::remove_file(storage.file("job-1")).expect("our record");
    storage.four_fields("job-1", std::process::id(), &host());
    let theirs = fs::read(storage.file("job-1")).expect("their record");
    assert!(!lock.is_held(), "the holder is told");
    let error = lock.release().expect_err("there was nothing to release");
    assert!(matches!(error, ResumeLockError::Lost { .. }), "{error:?}");
    assert_eq!(fs::read(storage.file("job-1")).ok(), Some(theirs));
}

// A folder in which a process has a file open cannot be removed on Windows.
#[cfg(unix)]
#[test]
fn resume_a_lock_whose_ledger_was_deleted_is_released_all_the_same() {
    let storage = Storage::new();
    let lock = storage.take("job-1");
    fs::remove_dir_all(storage.scratch.path().join("resume_locks/.tenure")).expect("the ledger");
    lock.release().expect("the record carries our request id");
    assert!(!storage.file("job-1").exists());
}

#[cfg(unix)]
#[test]
fn resume_the_whole_folder_may_be_deleted_and_nothing_panics() {
    let storage = Storage::new();
    let lock = storage.take("job-1");
    fs::remove_dir_all(storage.scratch.path().join("resume_locks")).expect("the folder");
    let lines = Log::of(|| drop(lock)).lines();
    assert_eq!(lines.len(), 1, "one warning: {lines:?}");
    drop(storage.take("job-1"));
}

#[test]
fn resume_an_unreadable_record_is_refused_and_only_force_replaces_it() {
    let storage = Storage::new();
    for record in [" ", "{\"job_id\": \"jo", "[]"] {
        storage.write("job-1", record);
        let error = storage.refused("job-1");
        assert!(
            matches!(error, ResumeLockError::Unreadable { .. }),
            "{record:?}: {error:?}"
        );
        let text = error.to_string();
        assert!(
            text.starts_with("Failed to check lock status for job-1: "),
            "{text}"
        );
        let kept = fs::read_to_string(storage.file("job-1"));
        assert_eq!(kept.ok().as_deref(), Some(record), "it stands as it stood");
        let lines = Log::of(|| {
            let forced = storage
                .locks
                .acquire_lock_blocking_with("job-1", Override::Yes);
            drop(forced.expect("force replaces it"));
        })
        .lines();
        assert!(lines[0].starts_with("WARN Replacing"), "{lines:?}");
    }
}

#[test]
fn resume_a_record_that_is_being_written_is_waited_for_and_not_judged() {
    let storage = Storage::new();
    // The original creates an empty file and writes it afterwards.
    storage.write("job-1", "");
    let pid = std::process::id();
    thread::scope(|scope| {
        let asking = scope.spawn(|| storage.refused("job-1"));
        thread::sleep(Duration::from_millis(100));
        storage.four_fields("job-1", pid, &host());
        let error = asking.join().expect("an answer");
        assert!(
            matches!(error, ResumeLockError::InProgress { process_id, .. } if process_id == pid),
            "{error:?}"
        );
    });
}

#[test]
fn resume_async_calls_do_not_block_their_executor() {
    let storage = Storage::new();
    storage.write("job-1", "half a rec");
    runtime().block_on(async {
        let mut asking = Box::pin(storage.locks.acquire_lock("job-1"));
        let mut ticks = 0;
        let answer = loop {
            let tick = tokio::time::timeout(Duration::from_millis(10), asking.as_mut());
            match tick.await {
                Ok(answer) => break answer,
                Err(_) => ticks += 1,
            }
        };
        let error = answer.expect_err("it cannot be read");
        assert!(
            matches!(error, ResumeLockError::Unreadable { .. }),
            "{error}"
        );
        assert!(ticks > 10, "the one thread went on meanwhile: {ticks}");
    });
}

#[test]
fn resume_two_async_resumes_at_once_have_one_winner() {
    let storage = Storage::new();
    runtime().block_on(async {
        let (first, second) = (storage.locks.clone(), storage.locks.clone());
        let one = tokio::spawn(async move { first.acquire_lock("job-1").await });
        let two = tokio::spawn(async move { second.acquire_lock("job-1").await });
        let outcomes = [one.await.expect("a task"), two.await.expect("a task")];
        let won = outcomes.iter().filter(|outcome| outcome.is_ok()).count();
        assert_eq!(won, 1, "{outcomes:?}");
        let lost = outcomes.into_iter().find_map(Result::err).expect("a loser");
        assert!(lost.to_string().contains("already in progress"), "{lost}");
    });
}

#[test]
fn resume_async_calls_log_where_their_caller_logs() {
    let storage = Storage::new();
    let lines = Log::of(|| {
        let taken = runtime().block_on(storage.locks.acquire_lock("job-1"));
        drop(taken.expect("a free lock"));
    })
    .lines();
    assert_eq!(
        lines,
        [
            "INFO Acquired resume lock for job-1",
            "INFO Released resume lock for job-1"
        ]
    );
}

#[test]
fn resume_a_future_that_is_dropped_early_leaves_no_lock_behind() {
    let storage = Storage::new();
    let log = Log::default();
    // The content of the record keeps the acquire busy until after the future is gone.
    storage.write("job-1", "half a rec");
    tracing::subscriber::with_default(log.clone(), || {
        runtime().block_on(async {
            let asking = storage.locks.acquire_lock("job-1");
            let early = tokio::time::timeout(Duration::from_millis(50), asking).await;
            assert!(early.is_err(), "still at it");
        });
    });
    fs::remove_file(storage.file("job-1")).expect("the other program's record");
    until("the abandoned acquire has released", || {
        log.lines().last().map(String::as_str) == Some("INFO Released resume lock for job-1")
    });
    assert_eq!(log.lines().len(), 2, "acquired and released, no more");
    drop(storage.take("job-1"));
}

#[test]
fn resume_a_panic_that_unwinds_releases() {
    let storage = Storage::new();
    let lock = storage.take("job-1");
    let failed = thread::spawn(move || {
        let _lock = lock;
        panic!("the work failed");
    });
    failed.join().expect_err("it panicked");
    drop(storage.take("job-1"));
}

#[test]
fn resume_a_moved_guard_is_released_by_the_thread_that_drops_it() {
    let storage = Storage::new();
    let lock = storage.take("job-1");
    let dropped = thread::spawn(move || drop(lock));
    dropped.join().expect("no panic");
    drop(storage.take("job-1"));
}

#[test]
fn resume_a_relative_folder_stays_where_it_was_made() {
    // The working directory belongs to the whole process, so a child of ours changes its own.
    let scratch = tempfile::tempdir().expect("a folder");
    let child = Command::new(std::env::current_exe().expect("this program"))
        .args(["--exact", "a_relative_folder", "--nocapture"])
        .env("TENURE_TEST_RESUME_CWD", scratch.path())
        .output()
        .expect("a child");
    assert!(child.status.success(), "{child:?}");
}

/// The child of the test above; by itself it does nothing.
#[test]
fn a_relative_folder() {
    let Some(scratch) = std::env::var_os("TENURE_TEST_RESUME_CWD") else {
        return;
    };
    std::env::set_current_dir(&scratch).expect("a folder");
    let locks = ResumeLockManager::new("here".into()).expect("a folder for locks");
    std::env::set_current_dir(std::env::temp_dir()).expect("another one");
    let lock = locks.acquire_lock_blocking("a").expect("a free lock");
    let file = PathBuf::from(scratch).join("here/resume_locks/a.lock");
    assert!(file.exists(), "where it was made");
    lock.release().expect("a release");
    assert!(!file.exists());
}

#[test]
fn resume_our_own_process_runs_and_numbers_that_are_none_do_not() {
    assert!(is_process_running(std::process::id()));
    for none in [0, u32::MAX] {
        assert!(!is_process_running(none), "{none} is no process");
    }
    assert!(!is_process_running(dead_pid()), "collected");
}

#[cfg(unix)]
#[test]
fn resume_numbers_above_those_of_processes_do_not_run_and_the_first_process_does() {
    assert!(is_process_running(1), "not ours to signal, and alive");
    assert!(!is_process_running(2_147_483_648), "no number of a process");
    let highest = fs::read_to_string("/proc/sys/kernel/pid_max").expect("the highest number");
    let highest: u32 = highest.trim().parse().expect("a number");
    if highest <= 999_999 {
        assert!(!is_process_running(999_999), "above every process");
    }
}

#[test]
fn resume_eight_threads_at_one_stale_record_have_exactly_one_winner() {
    let storage = Storage::new();
    let barrier = Barrier::new(8);
    let pid = dead_pid();
    for round in 0..50 {
        storage.four_fields("job-1", pid, &host());
        let outcomes: Vec<_> = thread::scope(|scope| {
            let asking: Vec<_> = (0..8)
                .map(|_| {
                    scope.spawn(|| {
                        let locks = storage.locks.clone();
                        barrier.wait();
                        locks.acquire_lock_blocking("job-1")
                    })
                })
                .collect();
            let answers = asking.into_iter().map(thread::ScopedJoinHandle::join);
            answers.map(|answer| answer.expect("an answer")).collect()
        });
        let won = outcomes.iter().filter(|outcome| outcome.is_ok()).count();
        assert_eq!(won, 1, "round {round}: {outcomes:?}");
        for lost in outcomes.iter().filter_map(|outcome| outcome.as_ref().err()) {
            assert!(
                matches!(lost, ResumeLockError::HeldByThisProcess { .. }),
                "round {round}: {lost:?}"
            );
        }
    }
}

#[test]
fn resume_eight_processes_at_one_stale_record_have_exactly_one_winner() {
    let storage = Storage::new();
    let mut others: Vec<Other> = (0..8).map(|_| Other::start(&storage)).collect();
    let pid = dead_pid();
    for round in 0..50 {
        let id = format!("job-{round}");
        storage.four_fields(&id, pid, &host());
        for other in &mut others {
            other.tell(&format!("take {id}"));
        }
        let answers: Vec<String> = others.iter_mut().map(Other::answer).collect();
        let winners: Vec<u32> = others
            .iter()
            .zip(&answers)
            .filter(|(_, answer)| *answer == "won")
            .map(|(other, _)| other.pid())
            .collect();
        let [winner] = winners[..] else {
            panic!("round {round}: {answers:?}");
        };
        assert_eq!(storage.on_disk(&id).process_id, winner);
        let named = format!("Lock held by: PID {winner} on ");
        let blocked = answers.iter().filter(|answer| answer.contains(&named));
        assert_eq!(blocked.count(), 7, "the losers name it: {answers:?}");
    }
}

#[test]
fn resume_an_uncontended_acquire_and_a_stale_check_keep_their_limits() {
    let storage = Storage::new();
    let took = |work: &mut dyn FnMut()| {
        // The best of several runs: a busy machine says nothing about the program.
        let times = (0..10).map(|_| {
            let began = instant();
            work();
            tenure_os::clock::since(began)
        });
        times.min().expect("some rounds")
    };
    let acquire = took(&mut || drop(storage.take("job-1")));
    assert!(acquire < Duration::from_millis(100), "{acquire:?}");
    let pid = dead_pid();
    let stale = took(&mut || {
        storage.four_fields("job-2", pid, &host());
        drop(storage.take("job-2"));
    });
    assert!(stale < Duration::from_millis(500), "{stale:?}");
}
