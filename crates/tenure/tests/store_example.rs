//! `examples/store` keeps every promise of a store, with what every author of a store has: the contract,
//! the codec of the list, the suite. And it stays short.

#![allow(clippy::expect_used, reason = "a test says what it expects by failing")]
#![cfg(target_os = "linux")]

#[path = "../examples/store/folder.rs"]
#[allow(clippy::pedantic, reason = "an example says what it does, and no more")]
mod folder;

use folder::FolderStore;
use std::process::{Child, Command};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use tenure::model::{Host, LockName, Process};
use tenure::store::conformance::{self, Harness};

struct Folder {
    place: tempfile::TempDir,
    numbers: AtomicU32,
    children: Mutex<Vec<Child>>,
}

impl Harness for Folder {
    type Store = FolderStore;

    fn store(&self) -> FolderStore {
        FolderStore::open(self.place.path(), self.host()).expect("a folder")
    }

    fn name(&self) -> LockName {
        let number = self.numbers.fetch_add(1, Ordering::Relaxed);
        LockName::new(format!("lock-{number}")).expect("an accepted name")
    }

    fn host(&self) -> Host {
        Host {
            boot_id: Some("this boot".to_owned()),
            ..Host::default()
        }
    }

    fn start_process(&self) -> Process {
        let child = Command::new("sleep").arg("600").spawn().expect("a process");
        let pid = child.id();
        self.children.lock().expect("no panic").push(child);
        Process { pid, started: None }
    }

    fn end_process(&self, process: Process) {
        let mut children = self.children.lock().expect("no panic");
        let child = children.iter_mut().find(|child| child.id() == process.pid);
        let child = child.expect("a process that was started here");
        child.kill().expect("it ends");
        child.wait().expect("it has ended");
    }

    fn stranger(&self) -> (Host, Process) {
        (
            Host::default(),
            Process {
                pid: 1,
                started: None,
            },
        )
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        for child in self.children.get_mut().expect("no panic") {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

#[test]
fn the_example_of_a_store_keeps_every_promise() {
    let folder = Folder {
        place: tempfile::tempdir().expect("a folder"),
        numbers: AtomicU32::new(1),
        children: Mutex::default(),
    };
    if let Err(broken) = conformance::all(&folder) {
        panic!("{broken}");
    }
}

#[test]
fn the_example_of_a_store_stays_under_300_lines() {
    let lines = include_str!("../examples/store/folder.rs").lines().count();
    assert!(lines < 300, "{lines} lines");
}
