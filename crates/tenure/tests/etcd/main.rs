//! The etcd store keeps what [`tenure::store`] promises, on a real etcd that the tests start by
//! themselves; also when answers get lost, connections break and servers die.

#![allow(
    clippy::expect_used,
    clippy::panic,
    reason = "a test says what it expects by failing"
)]
#![allow(clippy::print_stdout, reason = "a slow promise is named")]

mod proxy;
mod server;
mod store;

use server::Server;
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use tenure::core::{Host, LockName, Process};
use tenure::process::{Identity, start_time};
use tenure::store::conformance::{self, Harness};
use tenure::store::etcd::{Address, Credentials, EtcdStore};
use tenure::store::file::ThreadSleeper;

/// Callers on one prefix; processes are real ones.
pub(crate) struct Callers {
    address: Address,
    host: Host,
    numbers: AtomicU32,
    children: Mutex<Vec<Child>>,
}

impl Callers {
    pub(crate) fn at(address: Address) -> Self {
        Self {
            address,
            host: Identity::current().host,
            numbers: AtomicU32::new(1),
            children: Mutex::default(),
        }
    }
}

/// A caller at an address.
pub(crate) fn caller(address: &Address) -> EtcdStore {
    let here = Identity::current().host;
    EtcdStore::new(
        address,
        &Credentials::default(),
        here,
        Box::new(ThreadSleeper),
    )
    .expect("a store")
}

impl Harness for Callers {
    type Store = EtcdStore;

    fn store(&self) -> EtcdStore {
        caller(&self.address)
    }

    fn name(&self) -> LockName {
        let number = self.numbers.fetch_add(1, Ordering::Relaxed);
        LockName::new(format!("lock-{number}")).expect("an accepted name")
    }

    fn host(&self) -> Host {
        self.host.clone()
    }

    fn start_process(&self) -> Process {
        let child = Command::new("sleep")
            .arg("600")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("a process");
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

    /// In a container on this machine: the clock is the same, its processes cannot be seen. What
    /// becomes of those on other machines is up to their leases, not to the clock that this suite
    /// hands in (`store`).
    fn stranger(&self) -> (Host, Process) {
        let host = Host {
            pid_namespace: Some(1),
            ..self.host.clone()
        };
        let process = Process {
            pid: 1,
            started: Some(1),
        };
        (host, process)
    }
}

impl Drop for Callers {
    fn drop(&mut self) {
        for child in self.children.lock().expect("no panic").iter_mut() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Runs every promise, tells how long each took, and names all that are broken.
pub(crate) fn keeps_every_promise(callers: &Callers) {
    let mut broken = Vec::new();
    for (name, promise) in conformance::promises::<Callers>() {
        let began = tenure::clock::instant();
        let kept = promise(callers);
        let took = tenure::clock::instant().saturating_duration_since(began);
        println!("{took:>7.1?}  {name}");
        broken.extend(kept.err().map(|broken| broken.to_string()));
    }
    assert!(broken.is_empty(), "broken promises:\n{}", broken.join("\n"));
}

#[test]
fn the_etcd_store_keeps_every_promise() {
    let server = Server::start();
    keeps_every_promise(&Callers::at(server.address("conformance")));
}
