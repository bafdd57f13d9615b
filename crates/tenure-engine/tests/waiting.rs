//! The loop of an acquisition over the file store, when a person interferes with the files.

#![allow(clippy::expect_used, reason = "a test says what it expects by failing")]
#![allow(clippy::print_stdout, reason = "a test that is skipped says why")]

use std::thread;
use std::time::{Duration, Instant};
use tenure_core::{
    Force, Holder, Kind, LockName, Now, Patience, Renewal, Request, RequestId, Terms,
};
use tenure_engine::engine::{self, Observer, Wait, Waiting};
use tenure_os::clock::{Clock, SystemClock, instant};
use tenure_os::process::Identity;
use tenure_store::file::{FileStore, ThreadSleeper};
use tenure_store::{Store, Verbs};

/// Asks for the whole queue again and again.
struct Restless;

impl Observer for Restless {
    fn waiting(&mut self, _: &Waiting<'_>) -> Option<Instant> {
        instant().checked_add(Duration::from_millis(20))
    }
}

#[test]
fn a_waiter_whose_file_was_removed_queues_again() {
    if std::env::var_os("TENURE_TESTS_UNDER_WINE").is_some() {
        println!("skipped: Wine does not remove files that are open");
        return;
    }
    let scratch = tempfile::tempdir().expect("a folder");
    let here = Identity::current().host;
    let name = LockName::new("lock").expect("an accepted name");
    let clock = SystemClock::new(here.boot_id.as_deref());
    let store = || FileStore::new(scratch.path(), here.clone(), Box::new(ThreadSleeper));
    let now = || -> Now { clock.now() };
    let request = |id: &str| Request {
        holder: Holder {
            facts: Vec::new(),
            request_id: RequestId::new(id).expect("an accepted id"),
            actor: "test".to_owned(),
            process: None,
            command: None,
            host: here.clone().into(),
            why: "testing".to_owned(),
        },
        kind: Kind::Kernel,
        ttl_ms: 600_000,
        force: Force::No,
        patience: Patience::Queue,
        terms: Terms::default(),
    };
    let tickets = || -> Vec<u64> {
        let reading = store().read(&name, None).expect("a reading");
        let entry = reading.entry().expect("a list");
        entry.claims.iter().map(|claim| claim.ticket).collect()
    };
    let held = store().enter(&name, request("holder"), &now());
    let holder = held.expect("a claim").handle.expect("a handle");
    thread::scope(|threads| {
        let waiter = threads.spawn(|| {
            let wait = Wait::For(Duration::from_secs(30));
            let acquired = engine::acquire(
                &store(),
                &clock,
                &name,
                request("waiter"),
                wait,
                &mut Restless,
            );
            acquired.map(|acquired| (acquired.claim.ticket, acquired.handle))
        });
        while tickets().len() < 2 {
            thread::yield_now();
        }
        #[expect(clippy::disallowed_methods, reason = "by hand")]
        std::fs::remove_file(scratch.path().join("lock.tenure")).expect("a removal");
        let (ticket, handle) = waiter.join().expect("a waiter").expect("the lock");
        assert_eq!(tickets(), [ticket], "it holds the new lock");
        drop(handle);
    });
    let renewed = store().renew(&*holder, &now());
    assert_eq!(renewed.expect("an answer"), Renewal::Lost);
}
