//! The stores of this crate keep what [`tenure_store`] promises; and the suite that says so is
//! itself put to the test: a store with a defect must not pass it.

#![allow(clippy::expect_used, reason = "a test says what it expects by failing")]
#![allow(clippy::print_stdout, reason = "a slow promise is named")]

#[path = "conformance/defects.rs"]
mod defects;
#[path = "conformance/overtaken.rs"]
mod overtaken;
#[path = "../../tenure-engine/tests/processes/mod.rs"]
mod processes;

use std::path::{Path, PathBuf};
use std::process::Child;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use tenure_conformance::{self as conformance, Harness};
use tenure_core::{Claim, Death, Host, Liveness, LockName, Now, Policy, Process};
use tenure_engine::formats::{Resume, Session};
use tenure_os::clock::instant;
use tenure_os::process::{Identity, start_time};
use tenure_store::Store;
use tenure_store::file::{FileStore, ThreadSleeper};
use tenure_store::memory::MemoryStore;
use tenure_store::profile::{Profile, Record};

fn fresh_name(number: &AtomicU32) -> LockName {
    let number = number.fetch_add(1, Ordering::Relaxed);
    LockName::new(format!("lock-{number}")).expect("an accepted name")
}

/// What a record with room for one holder is no place for.
const OF_SEVERAL_HOLDERS: [&str; 5] = [
    "shared_claims_hold_beside_each_other_and_an_exclusive_one_alone",
    "readers_that_come_later_wait_for_the_writer",
    "a_free_slot_wakes_the_first_waiter_and_nobody_else",
    "a_slot_has_a_number_that_no_other_has",
    "asking_to_stop_reaches_every_holder_and_nobody_else",
];

fn keeps_every_promise<H: Harness>(harness: &H) {
    keeps_every_promise_but(harness, &[]);
}

/// Runs every promise, tells how long each took, and names all that are broken: of `refused`, those that are
/// kept, or broken for another reason.
fn keeps_every_promise_but<H: Harness>(harness: &H, refused: &[&str]) {
    let mut broken = Vec::new();
    for (name, promise) in conformance::promises::<H>() {
        let began = instant();
        let kept = promise(harness);
        println!(
            "{:>7.1?}  {name}",
            instant().saturating_duration_since(began)
        );
        let why = kept.err().map(|broken| broken.to_string());
        if refused.contains(&name) {
            let is_refused = |why: &String| why.contains("room for one holder");
            broken.extend(
                (!why.as_ref().is_some_and(is_refused)).then(|| format!("{name}: {why:?}")),
            );
        } else {
            broken.extend(why);
        }
    }
    assert!(broken.is_empty(), "broken promises:\n{}", broken.join("\n"));
}

struct Memory {
    store: MemoryStore,
    numbers: AtomicU32,
}

impl Memory {
    fn new() -> Self {
        Self {
            store: MemoryStore::new(Policy::NATIVE),
            numbers: AtomicU32::new(1),
        }
    }
}

impl Harness for Memory {
    type Store = MemoryStore;

    fn store(&self) -> MemoryStore {
        self.store.clone()
    }

    fn name(&self) -> LockName {
        fresh_name(&self.numbers)
    }

    fn host(&self) -> Host {
        Host {
            boot_id: Some("boot".to_owned()),
            ..Host::default()
        }
    }

    fn start_process(&self) -> Process {
        let pid = self.numbers.fetch_add(1, Ordering::Relaxed);
        self.store.set_process(pid, Liveness::Alive);
        Process { pid, started: None }
    }

    fn end_process(&self, process: Process) {
        self.store
            .set_process(process.pid, Liveness::Dead(Death::Gone));
    }

    fn stranger(&self) -> (Host, Process) {
        let pid = self.numbers.fetch_add(1, Ordering::Relaxed);
        (Host::default(), Process { pid, started: None })
    }
}

/// Locks by our own rules, with a record that other programs read.
#[derive(Debug)]
struct Shown;

impl Profile for Shown {
    fn policy(&self) -> Policy {
        Policy::NATIVE
    }

    fn folder(&self, place: &Path) -> PathBuf {
        Resume.folder(place)
    }

    fn file_name(&self, name: &LockName) -> String {
        Resume.file_name(name)
    }

    fn name_of(&self, file: &str) -> Option<LockName> {
        Resume.name_of(file)
    }

    fn record(&self) -> Option<&dyn Record> {
        Some(self)
    }
}

/// A session's record, whatever the lock is called: it wants neither a process nor facts.
impl Record for Shown {
    fn encode(
        &self,
        _: &LockName,
        claim: &Claim,
        previous: Option<&[u8]>,
    ) -> Result<Vec<u8>, String> {
        let issue = LockName::new("42").expect("an accepted name");
        Session::default().encode(&issue, claim, previous)
    }

    fn decode(&self, _: &LockName, bytes: &[u8], now: &Now, here: &Host) -> Result<Claim, String> {
        let issue = LockName::new("42").expect("an accepted name");
        Session::default().decode(&issue, bytes, now, here)
    }
}

/// Who the callers on a folder are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Callers {
    /// Processes.
    Native,
    /// Programs whose threads hold locks.
    Programs,
    /// Processes whose holds other programs see.
    Published,
}

/// Callers on one folder, each with descriptors of its own; processes are real ones.
struct Files {
    folder: tempfile::TempDir,
    host: Host,
    kind: Callers,
    numbers: AtomicU32,
    children: Mutex<Vec<Child>>,
}

impl Files {
    fn new(kind: Callers) -> Self {
        Self {
            kind,
            folder: tempfile::tempdir().expect("a folder"),
            host: Identity::current().host,
            numbers: AtomicU32::new(1),
            children: Mutex::default(),
        }
    }
}

impl Harness for Files {
    type Store = FileStore;

    fn store(&self) -> FileStore {
        let path = self.folder.path().join("locks");
        let (host, sleeper) = (self.host.clone(), Box::new(ThreadSleeper));
        match self.kind {
            Callers::Native => FileStore::new(path, host, sleeper),
            Callers::Programs => FileStore::new(path, host, sleeper).within_program(),
            Callers::Published => {
                let store = FileStore::with_profile(Box::new(Shown), &path, host, sleeper);
                // A caller has looked at its place before it sleeps there.
                let looked = store.read(&fresh_name(&self.numbers), None);
                looked.expect("a reading");
                store
            }
        }
    }

    fn name(&self) -> LockName {
        fresh_name(&self.numbers)
    }

    fn host(&self) -> Host {
        self.host.clone()
    }

    fn start_process(&self) -> Process {
        let child = processes::lasting();
        let pid = child.id();
        self.children.lock().expect("no panic").push(child);
        Process {
            pid,
            started: start_time(pid),
        }
    }

    fn end_process(&self, process: Process) {
        let mut children = self.children.lock().expect("no panic");
        let child = children.iter_mut().find(|child| child.id() == process.pid);
        let child = child.expect("a process that was started here");
        child.kill().expect("a signal to a child");
        child.wait().expect("the child's end");
    }

    fn stranger(&self) -> (Host, Process) {
        let host = Host {
            name: "elsewhere".to_owned(),
            machine_id: Some("another machine".to_owned()),
            boot_id: Some("another boot".to_owned()),
            pid_namespace: self.host.pid_namespace,
        };
        let process = Process {
            pid: 1,
            started: Some(1),
        };
        (host, process)
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        for child in self.children.lock().expect("no panic").iter_mut() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

#[test]
fn the_memory_store_keeps_every_promise() {
    keeps_every_promise(&Memory::new());
}

#[test]
fn the_file_store_keeps_every_promise() {
    keeps_every_promise(&Files::new(Callers::Native));
}

#[test]
fn the_file_store_of_a_program_keeps_every_promise() {
    keeps_every_promise(&Files::new(Callers::Programs));
}

#[test]
fn a_published_format_keeps_every_promise() {
    keeps_every_promise_but(&Files::new(Callers::Published), &OF_SEVERAL_HOLDERS);
}

#[test]
fn a_hold_lapses_only_where_silence_alone_makes_it_stale() {
    let ttl = Duration::from_secs(60);
    for (policy, limit) in [
        (Policy::NATIVE, None),
        (Policy::SPRINT, None),
        (Policy::RESUME, None),
        (Policy::SESSION, Some(Duration::from_secs(600))),
        (Policy::FLEET, Some(ttl)),
    ] {
        let store = MemoryStore::new(policy);
        assert_eq!(store.rules().lapse(ttl), limit, "{}", policy.name);
    }
}
