//! The etcd store keeps what [`tenure::store`] promises, on a real etcd that the tests start by
//! themselves; also when answers get lost, connections break and servers die.

#![allow(
    clippy::expect_used,
    clippy::panic,
    reason = "a test says what it expects by failing"
)]
#![allow(clippy::print_stdout, reason = "a slow promise is named")]

#[path = "../../../tenure-store/src/etcd/api.rs"]
#[allow(dead_code, unused_imports, reason = "the store uses the rest of it")]
mod api;
mod cluster;
mod faults;
mod fence;
mod figures;
mod jobs;
mod known;
mod many;
mod net;
#[path = "../../../tenure-conformance/tests/conformance/overtaken.rs"]
mod overtaken;
mod proxy;
mod restart;
mod server;
mod store;
mod told;
mod waits;

use overtaken::AlwaysOvertaken;
use server::Server;
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use tenure::store::Handle;
use tenure::store::Verbs;
use tenure::store::conformance::{self, Harness};
use tenure::store::etcd::{Address, Credentials, EtcdStore};
use tenure::store::file::ThreadSleeper;
use tenure::store::{Store, Wake};
use tenure_core::{
    Claim, Entering, Force, Holder, Host, Kind, Left, LockName, Now, Patience, Predecessor,
    Process, Request, RequestId, Terms, TryGrant,
};
use tenure_os::clock::{Clock, SystemClock, instant};
use tenure_os::process::{Identity, start_time};
use tonic::transport::Endpoint;

/// A claim's place.
pub(crate) type ClaimHandle = Box<dyn Handle>;

/// Callers on one prefix; each process is a real one.
pub(crate) struct Callers {
    address: Address,
    host: Host,
    numbers: AtomicU32,
    children: Mutex<Vec<Child>>,
    patience: Duration,
}

impl Callers {
    pub(crate) fn at(address: Address) -> Self {
        Self {
            address,
            host: Identity::current().host,
            numbers: AtomicU32::new(1),
            children: Mutex::default(),
            patience: Duration::from_secs(20),
        }
    }

    /// Callers whose waiters may take this long to be woken.
    pub(crate) fn patient(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }
}

/// Whether to run more than every build runs.
pub(crate) fn is_long() -> bool {
    std::env::var_os("TENURE_ETCD").is_some_and(|wish| wish == "long")
}

/// A client of the tests' own.
pub(crate) async fn client(url: String) -> api::Client {
    let endpoint = Endpoint::from_shared(url).expect("a URL");
    let channel = endpoint.connect().await.expect("a connection");
    let client = api::Client::new(channel, None, false, None).await;
    client.expect("it asks for nothing")
}

/// The end of the range of all keys that begin with this, which ends with a `/`.
pub(crate) fn end_of(prefix: &str) -> String {
    format!("{}0", prefix.trim_end_matches('/'))
}

pub(crate) fn now() -> Now {
    SystemClock::new(Identity::current().host.boot_id.as_deref()).now()
}

pub(crate) fn name(text: &str) -> LockName {
    LockName::new(text).expect("an accepted name")
}

/// An exclusive claim of this machine that queues.
pub(crate) fn request(id: &str, ttl: Duration) -> Request {
    Request {
        holder: Holder {
            facts: Vec::new(),
            request_id: RequestId::new(id).expect("an accepted id"),
            actor: "a test".to_owned(),
            process: None,
            command: None,
            host: Identity::current().host.into(),
            why: "to see".to_owned(),
        },
        kind: Kind::Kernel,
        ttl_ms: u64::try_from(ttl.as_millis()).expect("a short ttl"),
        force: Force::No,
        patience: Patience::Queue,
        terms: Terms::default(),
    }
}

/// Enters and expects a grant.
#[track_caller]
pub(crate) fn take(
    store: &EtcdStore,
    name: &LockName,
    id: &str,
    ttl: Duration,
) -> (ClaimHandle, u64) {
    let entered = store.enter(name, request(id, ttl), &now());
    let entered = entered.expect("an etcd that answers");
    match entered.entering {
        Entering::Granted { token, .. } => (entered.handle.expect("a handle"), token),
        other => panic!("expected a grant, saw {other:?}"),
    }
}

/// Holds it twice: from then on the names of its claims are used again.
pub(crate) fn hold_twice(store: &EtcdStore, name: &LockName) {
    for _ in 0..2 {
        let (handle, _) = take(store, name, "before", Duration::from_secs(600));
        let left = store.release(&*handle, &now()).expect("an answer");
        assert!(matches!(left, Left::Released { .. }), "{left:?}");
    }
}

/// Enters and expects a place in the queue.
#[track_caller]
pub(crate) fn line_up(
    store: &EtcdStore,
    name: &LockName,
    id: &str,
    ttl: Duration,
) -> (ClaimHandle, Predecessor) {
    let entered = store.enter(name, request(id, ttl), &now());
    let entered = entered.expect("an etcd that answers");
    match entered.entering {
        Entering::Queued { behind, .. } => (entered.handle.expect("a handle"), behind),
        other => panic!("expected a place in the queue, saw {other:?}"),
    }
}

/// Sleeps and looks until a waiting claim holds; returns its token.
#[track_caller]
pub(crate) fn wait(
    store: &EtcdStore,
    handle: &ClaimHandle,
    mut behind: Predecessor,
    patience: Duration,
) -> u64 {
    let end = instant() + patience;
    loop {
        let wake = store
            .sleep(&**handle, &behind, &now(), Some(end))
            .expect("a sleep");
        assert_eq!(
            wake,
            Wake::Ready,
            "a waiter was not woken within {patience:?}"
        );
        let advanced = store
            .try_grant(&**handle, &now())
            .expect("an etcd that answers");
        match advanced.grant {
            TryGrant::Granted { token } => return token,
            TryGrant::Behind(now_behind) => behind = now_behind,
            other => panic!("expected a grant, saw {other:?}"),
        }
    }
}

/// The claims on a lock.
#[track_caller]
pub(crate) fn claims(store: &EtcdStore, name: &LockName) -> Vec<Claim> {
    let reading = store.read(name, None).expect("an etcd that answers");
    reading.entry().expect("a list").claims.clone()
}

/// Looks until a condition holds, and fails if it does not hold within this time.
#[track_caller]
pub(crate) fn until(what: &str, patience: Duration, mut is_so: impl FnMut() -> bool) {
    let end = instant() + patience;
    while !is_so() {
        assert!(instant() < end, "not within {patience:?}: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// A caller at an address.
pub(crate) fn caller(address: &Address) -> EtcdStore {
    caller_as(address, &Credentials::default())
}

/// A caller at an address, with a user and a password.
pub(crate) fn caller_as(address: &Address, credentials: &Credentials) -> EtcdStore {
    let here = Identity::current().host;
    EtcdStore::new(address, credentials, here, Box::new(ThreadSleeper)).expect("a store")
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

    fn patience(&self) -> Duration {
        self.patience
    }

    /// In a container on this machine: the clock is the same, and its processes cannot be seen. The fate
    /// of processes on other machines depends on their leases, not on the clock that this suite hands in
    /// (`store`).
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

/// Runs every promise, prints how long each took, and names all that are broken.
pub(crate) fn keeps_every_promise<H: Harness>(callers: &H) {
    keeps_every_promise_but(callers, |_| false);
}

/// Runs every promise but those that are excused there.
pub(crate) fn keeps_every_promise_but<H: Harness>(
    callers: &H,
    is_excused: impl Fn(&conformance::Broken) -> bool,
) {
    let mut broken = Vec::new();
    for (name, promise) in conformance::promises::<H>() {
        let began = instant();
        let kept = promise(callers);
        let took = instant().saturating_duration_since(began);
        println!("{took:>7.1?}  {name}");
        let told = kept.err().filter(|broken| {
            let excused = is_excused(broken);
            if excused {
                println!("         excused: {broken}");
            }
            !excused
        });
        broken.extend(told.map(|broken| broken.to_string()));
    }
    assert!(broken.is_empty(), "broken promises:\n{}", broken.join("\n"));
}

#[test]
fn the_etcd_store_keeps_every_promise() {
    let server = Server::start();
    keeps_every_promise(&Callers::at(server.address("conformance")));
}

#[test]
fn the_etcd_store_keeps_every_promise_where_each_change_runs_twice() {
    let server = Server::start();
    keeps_every_promise(&AlwaysOvertaken(Callers::at(server.address("overtaken"))));
}
