//! A wait on a thread of its own, its future, and a caller that ends it early.

use super::cancel::{self, Cancel};
use super::{explore, finds, offload};
use shuttle::future::block_on;
use shuttle::sync::mpsc::channel;
use shuttle::sync::{Arc, Condvar, Mutex};
use shuttle::thread;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

/// A lock that can be waited for.
#[derive(Default)]
struct Lock {
    held: Mutex<bool>,
    changed: Condvar,
}

/// Shows that the lock is held.
struct Grant(Arc<Lock>);

impl Drop for Grant {
    fn drop(&mut self) {
        *self.0.held.lock().expect("a lock") = false;
        self.0.changed.notify_all();
    }
}

impl Lock {
    fn taken() -> (Arc<Self>, Grant) {
        let lock = Arc::new(Self::default());
        let grant = lock.acquire(&Cancel::new()).expect("a free lock");
        (lock, grant)
    }

    /// Like a store: listens to the bell first and looks then.
    fn acquire(self: &Arc<Self>, cancel: &Cancel) -> Option<Grant> {
        let bell = {
            let lock = Arc::clone(self);
            cancel.ring(move || {
                let _held = lock.held.lock().expect("a lock");
                lock.changed.notify_all();
            })
        };
        let held = self.held.lock().expect("a lock");
        let waits = |held: &mut bool| *held && !cancel.is_cancelled();
        let mut held = self.changed.wait_while(held, waits).expect("a lock");
        drop(bell);
        if cancel.is_cancelled() {
            return None;
        }
        *held = true;
        Some(Grant(Arc::clone(self)))
    }

    /// Waits until no caller has it: for ever, if it was forgotten.
    fn until_free(&self) {
        let held = self.held.lock().expect("a lock");
        drop(self.changed.wait_while(held, |held| *held));
    }
}

fn polled_once<F: Future>(future: Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

/// A wait that its future ends when it is dropped, and `given` when it is cancelled, as `guard/turns` makes one.
struct Sent<T> {
    pending: offload::PromisedValue<T>,
    own: Cancel,
    _bell: Option<cancel::Bell>,
}

impl<T: Send + 'static> Sent<T> {
    fn new(given: Option<&Cancel>, work: impl FnOnce(&Cancel) -> T + Send + 'static) -> Self {
        let (promise, pending) = offload::promise();
        let own = Cancel::new();
        let bell = given.map(|given| {
            let own = own.clone();
            given.ring(move || own.cancel())
        });
        if given.is_some_and(Cancel::is_cancelled) {
            own.cancel();
        }
        let listens = own.clone();
        thread::spawn(move || promise.keep(work(&listens)));
        Self {
            pending,
            own,
            _bell: bell,
        }
    }
}

impl<T> Future for Sent<T> {
    type Output = std::io::Result<T>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.pending).poll(context)
    }
}

impl<T> Drop for Sent<T> {
    fn drop(&mut self) {
        self.own.cancel();
    }
}

/// A future that is dropped while its turn comes.
fn a_dropped_wait(given: Option<&Cancel>) {
    let (lock, first) = Lock::taken();
    let acquires = {
        let lock = Arc::clone(&lock);
        move |cancel: &Cancel| lock.acquire(cancel)
    };
    let mut waiting = Box::pin(Sent::new(given, acquires));
    let early = polled_once(waiting.as_mut());
    assert!(early.is_pending(), "it is held");
    let releases = thread::spawn(move || drop(first));
    drop(waiting);
    releases.join().expect("no panic");
    lock.until_free();
    // Nor does anything come of it later.
    let next = lock.acquire(&Cancel::new());
    assert!(next.is_some(), "free for the next");
}

/// A future that is dropped while another caller goes on holding.
fn a_dropped_wait_behind_a_hold() {
    let (lock, first) = Lock::taken();
    let (tells, ended) = channel();
    let acquires = {
        let lock = Arc::clone(&lock);
        move |cancel: &Cancel| {
            let nothing = lock.acquire(cancel).is_none();
            tells.send(nothing).expect("a receiver is there");
        }
    };
    let mut waiting = Box::pin(Sent::new(None, acquires));
    let _ = polled_once(waiting.as_mut());
    drop(waiting);
    assert_eq!(ended.recv(), Ok(true), "the wait ends, with nothing");
    drop(first);
}

/// A caller that forgets what it was given.
fn a_forgotten_grant() {
    let (lock, first) = Lock::taken();
    let acquires = {
        let lock = Arc::clone(&lock);
        move || lock.acquire(&Cancel::new()).map(std::mem::forget)
    };
    let mut waiting = Box::pin(offload::on_thread("test", acquires));
    let _ = polled_once(waiting.as_mut());
    drop((waiting, first));
    lock.until_free();
    assert!(lock.acquire(&Cancel::new()).is_some(), "free for the next");
}

#[test]
fn a_dropped_future_leaves_no_hold_behind() {
    explore(|| a_dropped_wait(None));
    explore(|| a_dropped_wait(Some(&Cancel::new())));
    explore(a_dropped_wait_behind_a_hold);
    finds("deadlock", a_forgotten_grant);
}

/// A wait that is cancelled while its turn comes: it ends, one way or the other.
fn a_cancelled_wait() {
    let (lock, first) = Lock::taken();
    let given = Cancel::new();
    let acquires = {
        let lock = Arc::clone(&lock);
        move |cancel: &Cancel| lock.acquire(cancel)
    };
    let waiting = Sent::new(Some(&given), acquires);
    let cancels = thread::spawn(move || given.cancel());
    let answer = block_on(waiting).expect("an answer");
    assert!(answer.is_none(), "it was never free");
    cancels.join().expect("no panic");
    drop(first);
    lock.until_free();
}

#[test]
fn a_wait_ends_when_its_caller_cancels_it() {
    explore(a_cancelled_wait);
}

/// A wait that looks before the bell can ring for it.
fn a_sleeper(wrongly: bool) {
    let cancel = Cancel::new();
    let sleeper = {
        let cancel = cancel.clone();
        thread::spawn(move || {
            let pair = Arc::new((Mutex::new(false), Condvar::new()));
            let early = wrongly && cancel.is_cancelled();
            let bell = {
                let pair = Arc::clone(&pair);
                cancel.ring(move || {
                    *pair.0.lock().expect("a flag") = true;
                    pair.1.notify_all();
                })
            };
            if early || (!wrongly && cancel.is_cancelled()) {
                return;
            }
            let rung = pair.0.lock().expect("a flag");
            drop(pair.1.wait_while(rung, |rung| !*rung));
            drop(bell);
        })
    };
    let other = {
        let cancel = cancel.clone();
        thread::spawn(move || cancel.cancel())
    };
    cancel.cancel();
    sleeper.join().expect("woken");
    other.join().expect("no panic");
}

#[test]
fn who_sleeps_while_it_is_cancelled_is_woken() {
    explore(|| a_sleeper(false));
    finds("deadlock", || a_sleeper(true));
}

/// A grant that is taken back in the moment in which its task takes it.
fn a_late_grant(wrongly: bool) {
    let (lock, grant) = Lock::taken();
    let (promise, pending) = offload::promise();
    let kept = promise.kept();
    promise.keep(Some(grant));
    let takes_back = thread::spawn(move || {
        let Some((grant, again)) = kept.take_back() else {
            return false;
        };
        if wrongly {
            // The caller goes on before its hold has ended.
            again.keep(None);
            drop(grant);
        } else {
            drop(grant);
            again.keep(None);
        }
        true
    });
    let taken = block_on(pending).expect("an answer");
    let is_held = *lock.held.lock().expect("a lock");
    // The caller or the lock has it, and the caller is told nothing before the lock is free again.
    assert_eq!(taken.is_some(), is_held, "one holder");
    drop(taken);
    let is_late = takes_back.join().expect("no panic");
    assert!(is_late || !*lock.held.lock().expect("a lock"), "no more");
    lock.until_free();
}

/// A future that is dropped in that moment.
fn a_late_grant_of_a_dropped_future() {
    let (lock, grant) = Lock::taken();
    let (promise, pending) = offload::promise();
    let kept = promise.kept();
    let keeps = thread::spawn(move || promise.keep(Some(grant)));
    let takes_back = thread::spawn(move || {
        if let Some((grant, again)) = kept.take_back() {
            drop(grant);
            again.keep(None);
        }
    });
    drop(pending);
    keeps.join().expect("no panic");
    takes_back.join().expect("no panic");
    lock.until_free();
}

#[test]
fn a_grant_is_taken_by_its_task_or_taken_back() {
    explore(|| a_late_grant(false));
    finds("one holder", || a_late_grant(true));
    explore(a_late_grant_of_a_dropped_future);
}

fn a_result() {
    let seven = block_on(offload::on_thread("test", || 7));
    assert_eq!(seven.ok(), Some(7));
}

/// A thread that ends without a result.
fn no_result() {
    let (promise, pending) = offload::promise::<u8>();
    let thread = thread::spawn(move || drop(promise));
    assert!(block_on(pending).is_err(), "told, and not left waiting");
    thread.join().expect("no panic");
}

#[test]
fn whoever_awaits_a_thread_is_woken_by_its_result_and_by_its_end() {
    explore(a_result);
    explore(no_result);
}
