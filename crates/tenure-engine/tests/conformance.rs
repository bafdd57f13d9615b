//! The stores of this crate keep what [`tenure_engine::store`] promises; and the suite that says so is
//! itself put to the test: a store with a defect must not pass it.

#![allow(clippy::expect_used, reason = "a test says what it expects by failing")]
#![allow(clippy::print_stdout, reason = "a slow promise is named")]

#[path = "conformance/defects.rs"]
mod defects;
#[path = "conformance/overtaken.rs"]
mod overtaken;
mod processes;

use std::process::Child;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use tenure_core::{Death, Host, Liveness, LockName, Policy, Process};
use tenure_engine::clock::instant;
use tenure_engine::conformance::{self, Harness};
use tenure_engine::process::{Identity, start_time};
use tenure_engine::store::Store;
use tenure_engine::store::file::{FileStore, ThreadSleeper};
use tenure_engine::store::memory::MemoryStore;

fn fresh_name(number: &AtomicU32) -> LockName {
    let number = number.fetch_add(1, Ordering::Relaxed);
    LockName::new(format!("lock-{number}")).expect("an accepted name")
}

/// Runs every promise, tells how long each took, and names all that are broken.
fn keeps_every_promise<H: Harness>(harness: &H) {
    let mut broken = Vec::new();
    for (name, promise) in conformance::promises::<H>() {
        let began = instant();
        let kept = promise(harness);
        println!(
            "{:>7.1?}  {name}",
            instant().saturating_duration_since(began)
        );
        broken.extend(kept.err().map(|broken| broken.to_string()));
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

/// Callers on one folder, each with descriptors of its own; processes are real ones.
struct Files {
    folder: tempfile::TempDir,
    host: Host,
    /// Whether each caller is a program whose threads hold locks.
    programs: bool,
    numbers: AtomicU32,
    children: Mutex<Vec<Child>>,
}

impl Files {
    fn new(programs: bool) -> Self {
        Self {
            programs,
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
        let store = FileStore::new(path, self.host.clone(), Box::new(ThreadSleeper));
        if self.programs {
            store.within_program()
        } else {
            store
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
    keeps_every_promise(&Files::new(false));
}

#[test]
fn the_file_store_of_a_program_keeps_every_promise() {
    keeps_every_promise(&Files::new(true));
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
