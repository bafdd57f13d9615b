//! Threads that wait for the end of a claim of their own process, and one that ends it.

use super::cancel::Cancel;
use super::files::{Begun, Ends};
use super::{explore, finds};
use shuttle::sync::atomic::{AtomicBool, Ordering};
use shuttle::sync::mpsc::channel;
use shuttle::sync::{Arc, Mutex};
use shuttle::thread;
use std::ops::ControlFlow;

const KEY: u64 = 7;

/// A claim whose byte is held until it is released.
struct Held {
    byte: Arc<AtomicBool>,
    begun: Begun<u64>,
}

fn held(ends: &Arc<Ends<u64>>) -> Held {
    Held {
        byte: Arc::new(AtomicBool::new(true)),
        begun: Ends::begin(ends, KEY),
    }
}

/// A waiter never sleeps for ever, and never finds the byte held after the end.
fn a_waiter_and_an_end(end: fn(Held)) {
    let ends = Arc::new(Ends::new());
    let held = held(&ends);
    let byte = Arc::clone(&held.byte);
    let waits = thread::spawn(move || {
        // The waiter may come after the end; then it asks the kernel.
        if let Some(awaited) = ends.of(&KEY) {
            assert!(awaited.wait(|| ControlFlow::Continue(None)), "no deadline");
            assert!(!byte.load(Ordering::SeqCst), "woken before the release");
            assert!(ends.of(&KEY).is_none(), "an end is found once");
        }
    });
    end(held);
    waits.join().expect("no panic");
}

#[test]
fn no_waiter_misses_an_end() {
    explore(|| {
        a_waiter_and_an_end(|held| {
            held.byte.store(false, Ordering::SeqCst);
            held.begun.end();
        });
    });
    explore(|| {
        a_waiter_and_an_end(|held| {
            held.byte.store(false, Ordering::SeqCst);
            drop(held.begun);
        });
    });
}

#[test]
fn an_end_before_the_release_is_found() {
    finds("woken before the release", || {
        a_waiter_and_an_end(|held| {
            held.begun.end();
            held.byte.store(false, Ordering::SeqCst);
        });
    });
}

/// A waiter without a thread is called once the claim has ended, and not before.
#[test]
fn no_waiter_without_a_thread_misses_an_end() {
    explore(|| {
        let ends = Arc::new(Ends::new());
        let held = held(&ends);
        let byte = Arc::clone(&held.byte);
        let (rings, rung) = channel();
        let waits = thread::spawn(move || {
            // The waiter may come after the end; then it asks the kernel.
            let awaited = ends.of(&KEY)?;
            let rings = Mutex::new(rings);
            let listens = awaited.rings(move || {
                assert!(!byte.load(Ordering::SeqCst), "called before the release");
                let _ = rings.lock().expect("a sender").send(());
            });
            rung.recv().expect("it is called");
            drop(listens);
            Some(())
        });
        held.byte.store(false, Ordering::SeqCst);
        held.begun.end();
        waits.join().expect("no panic");
    });
}

/// A wait that is cancelled while its claim goes on.
fn a_cancelled_wait(rings: bool) {
    let ends = Arc::new(Ends::new());
    let held = held(&ends);
    let cancel = Cancel::new();
    let waits = {
        let cancel = cancel.clone();
        thread::spawn(move || {
            let awaited = ends.of(&KEY).expect("it goes on");
            let _bell = rings.then(|| cancel.ring(awaited.bell()));
            let has_ended = awaited.wait(|| {
                if cancel.is_cancelled() {
                    ControlFlow::Break(())
                } else {
                    ControlFlow::Continue(None)
                }
            });
            assert!(!has_ended, "it goes on");
        })
    };
    cancel.cancel();
    waits.join().expect("no panic");
    drop(held);
}

#[test]
fn a_cancel_ends_the_wait_whenever_it_comes() {
    explore(|| a_cancelled_wait(true));
}

#[test]
fn a_cancel_without_its_bell_is_found() {
    finds("deadlock", || a_cancelled_wait(false));
}

/// The claim of a reserved place ends, and begins again under the same key.
#[test]
fn an_earlier_claim_does_not_end_the_one_that_has_its_key_now() {
    explore(|| {
        let ends = Arc::new(Ends::new());
        let earlier = held(&ends);
        let later = held(&ends);
        let ends_late = thread::spawn(move || drop(earlier));
        let awaited = ends.of(&KEY).expect("the later one goes on");
        ends_late.join().expect("no panic");
        assert!(ends.of(&KEY).is_some(), "it still does");
        drop(later);
        assert!(awaited.wait(|| ControlFlow::Break(())), "it has ended");
    });
}
