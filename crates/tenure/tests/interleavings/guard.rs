//! A hold: how it ends, and which threads learn of it.

#[path = "../../../tenure-engine/src/keep/pending.rs"]
mod pending;
#[path = "../../src/guard/term.rs"]
mod term;

use super::{explore, finds};
use pending::{NewHolds, Ring};
use shuttle::future::block_on;
use shuttle::sync::atomic::{AtomicUsize, Ordering};
use shuttle::sync::mpsc::{Receiver, Sender, channel};
use shuttle::sync::{Arc, Condvar, Mutex, Weak};
use shuttle::thread;
use std::time::Duration;
use tenure_os::clock::instant;
use term::{GuardState, Term};

/// The lock as a store keeps it.
#[derive(Default)]
struct Row {
    taken_away: bool,
    left: bool,
    /// How often leaving was tried, and how often that fails.
    tried: usize,
    fails: usize,
}

/// A hold as `guard/hold` makes it of a [`Term`].
struct Hold {
    term: Term,
    row: Mutex<Row>,
    /// How often the notices reported its end.
    told_lost: AtomicUsize,
}

impl Hold {
    fn new(row: Row) -> Arc<Self> {
        Arc::new(Self {
            term: Term::new(GuardState::Held),
            row: Mutex::new(row),
            told_lost: AtomicUsize::new(0),
        })
    }

    fn tell(&self) {
        self.told_lost.fetch_add(1, Ordering::SeqCst);
    }

    fn take_away(&self) {
        self.row.lock().expect("a row").taken_away = true;
    }

    /// The store's answer about it.
    fn verify(&self) -> GuardState {
        let row = self.row.lock().expect("a row");
        if row.taken_away || row.left {
            GuardState::Lost
        } else {
            GuardState::Held
        }
    }

    /// As the renewer does at a heartbeat.
    fn beat(&self) {
        if let Some(state) = self.term.ask(|| self.verify()) {
            self.term.found(state, || self.tell());
        }
    }

    /// Verifies as the renewer does, without regard to an end that comes during the question.
    fn beat_wrongly(&self) {
        let state = self.verify();
        self.term.found(state, || self.tell());
    }

    fn end(&self) -> Result<bool, ()> {
        let leave = || {
            let mut row = self.row.lock().expect("a row");
            row.tried += 1;
            if row.tried <= row.fails {
                return Err(());
            }
            assert!(!row.left, "left twice");
            row.left = true;
            Ok(!row.taken_away)
        };
        let ended = self.term.end(true, leave, |wakers| {
            wakers.into_iter().for_each(std::task::Waker::wake);
            self.tell();
        });
        ended.expect("it waits").map(|ended| ended.was_ours)
    }

    fn has_ended(&self) -> bool {
        self.row.lock().expect("a row").left
    }
}

/// A guard, as `guard/hold` makes one.
struct Guard(Arc<Hold>, bool);

impl Guard {
    fn again(hold: &Arc<Hold>) -> Option<Self> {
        let joined = hold.term.join().then(|| Self(Arc::clone(hold), false))?;
        hold.term.stands().then_some(joined)
    }

    /// Joins a hold as `again` does, except that a guard alone with a lost hold leaves that hold as it is.
    fn again_wrongly(hold: &Arc<Hold>) -> Option<Self> {
        if !hold.term.join() {
            return None;
        }
        if hold.term.stands() {
            return Some(Self(Arc::clone(hold), false));
        }
        let _ = hold.term.go();
        None
    }

    fn release(mut self) -> Result<bool, ()> {
        self.1 = true;
        if self.0.term.go() {
            self.0.end()
        } else {
            Ok(true)
        }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if !self.1 && self.0.term.go() {
            let _ = self.0.end();
        }
    }
}

/// Waits like a future that looks before it leaves its waker.
async fn until_wrongly(term: &Term, is_so: impl Fn() -> bool) {
    std::future::poll_fn(|context| {
        if is_so() {
            std::task::Poll::Ready(())
        } else {
            term.wake_on_change(context.waker());
            std::task::Poll::Pending
        }
    })
    .await;
}

fn a_wait_for_a_loss(wrongly: bool) {
    let hold = Hold::new(Row::default());
    let waits = [GuardState::StopRequested, GuardState::Lost].map(|awaited| {
        let hold = Arc::clone(&hold);
        thread::spawn(move || {
            let term = &hold.term;
            let is_so = || term.known() as u8 >= awaited as u8;
            if wrongly {
                block_on(until_wrongly(term, is_so));
            } else {
                block_on(term.until(is_so));
            }
            assert!(is_so(), "it is so by then");
        })
    });
    hold.term.found(GuardState::StopRequested, || ());
    hold.term.found(GuardState::Lost, || hold.tell());
    for wait in waits {
        wait.join().expect("woken");
    }
    assert_eq!(hold.told_lost.load(Ordering::SeqCst), 1, "notices once");
}

#[test]
fn whoever_awaits_a_loss_or_a_request_is_woken() {
    explore(|| a_wait_for_a_loss(false));
    finds("deadlock", || a_wait_for_a_loss(true));
}

fn a_loss_that_two_find() {
    let hold = Hold::new(Row::default());
    hold.take_away();
    let waits = {
        let hold = Arc::clone(&hold);
        thread::spawn(move || block_on(hold.term.until(|| hold.term.known() == GuardState::Lost)))
    };
    let finder = {
        let hold = Arc::clone(&hold);
        thread::spawn(move || hold.beat())
    };
    hold.beat();
    finder.join().expect("no panic");
    waits.join().expect("woken");
    assert_eq!(hold.told_lost.load(Ordering::SeqCst), 1, "notices once");
}

#[test]
fn a_loss_is_told_once() {
    explore(a_loss_that_two_find);
}

fn a_release_beside_a_loss(beat: fn(&Hold)) {
    let hold = Hold::new(Row::default());
    let guard = Guard(Arc::clone(&hold), false);
    let renewer = {
        let hold = Arc::clone(&hold);
        thread::spawn(move || {
            beat(&hold);
            beat(&hold);
        })
    };
    let somebody = {
        let hold = Arc::clone(&hold);
        thread::spawn(move || hold.take_away())
    };
    let was_ours = guard.release().is_ok_and(|was_ours| was_ours);
    renewer.join().expect("no panic");
    somebody.join().expect("no panic");
    let is_lost = hold.term.known() == GuardState::Lost;
    assert!(was_ours != is_lost, "released or lost, and not both");
    let told = hold.told_lost.load(Ordering::SeqCst);
    assert_eq!(told, usize::from(is_lost), "and told so");
    assert!(hold.has_ended(), "ended in any case");
}

#[test]
fn a_release_and_a_loss_at_once_have_one_outcome() {
    explore(|| a_release_beside_a_loss(Hold::beat));
    finds("released or lost", || {
        a_release_beside_a_loss(Hold::beat_wrongly);
    });
}

fn a_question_beside_a_release(ask: fn(&Hold, &dyn Fn())) {
    let hold = Hold::new(Row::default());
    let guard = Guard(Arc::clone(&hold), false);
    let renewer = {
        let hold = Arc::clone(&hold);
        thread::spawn(move || {
            let question = || assert!(!hold.has_ended(), "asked of a hold that is gone");
            ask(&hold, &question);
            ask(&hold, &question);
        })
    };
    assert!(guard.release().is_ok(), "released");
    renewer.join().expect("no panic");
}

#[test]
fn the_renewer_asks_nothing_of_a_hold_that_is_gone() {
    explore(|| {
        a_question_beside_a_release(|hold, question| {
            hold.term.ask(question);
        });
    });
    finds("asked of a hold that is gone", || {
        a_question_beside_a_release(|_, question| question());
    });
}

fn guards_that_come_and_go(again: fn(&Arc<Hold>) -> Option<Guard>, fails: usize) {
    let hold = Hold::new(Row {
        fails,
        ..Row::default()
    });
    let guard = Guard(Arc::clone(&hold), false);
    let joins = {
        let hold = Arc::clone(&hold);
        thread::spawn(move || {
            if let Some(joined) = again(&hold) {
                assert!(!hold.has_ended(), "no caller joins what is gone");
                drop(joined);
            }
        })
    };
    let renewer = {
        let hold = Arc::clone(&hold);
        thread::spawn(move || {
            // By silence, for example: in the store it still stands.
            hold.term.found(GuardState::Lost, || hold.tell());
        })
    };
    let failed = guard.release().is_err();
    joins.join().expect("no panic");
    renewer.join().expect("no panic");
    let tried = hold.row.lock().expect("a row").tried;
    assert!(tried > 0, "the last guard ends the hold");
    // A failure is told, or was that of a drop, which nobody hears.
    assert!(hold.has_ended() || fails > 0, "ended: {failed}");
}

#[test]
fn the_last_of_all_guards_ends_the_hold() {
    explore(|| guards_that_come_and_go(Guard::again, 0));
    explore(|| guards_that_come_and_go(Guard::again, 1));
    finds("the last guard ends", || {
        guards_that_come_and_go(Guard::again_wrongly, 0);
    });
}

/// The bell by which the renewer is woken.
struct Wakes(Sender<()>);

impl Ring for Wakes {
    fn ring(&self) {
        let _ = self.0.send(());
    }
}

/// A manager, as far as its pending holds go.
#[derive(Default)]
struct Manager {
    pending: NewHolds<Hold, Wakes>,
    started: AtomicUsize,
    /// How many holds the renewer has taken, and how many it will take.
    kept: Mutex<usize>,
    taken: Condvar,
}

impl Manager {
    fn add(self: &Arc<Self>, hold: &Arc<Hold>) {
        let added = self.pending.add(hold, instant(), || {
            self.started.fetch_add(1, Ordering::SeqCst);
            let (wakes, hears) = channel();
            let shared = Arc::downgrade(self);
            thread::spawn(move || keep(&shared, &hears));
            Ok(Wakes(wakes))
        });
        added.expect("a thread");
    }
}

/// Like the renewer's thread: naps while a pending hold has to settle, else sleeps until it is woken,
/// and ends with the manager.
fn keep(shared: &Weak<Manager>, hears: &Receiver<()>) {
    let mut naps = true;
    loop {
        if !naps && hears.recv().is_err() {
            return;
        }
        let Some(shared) = shared.upgrade() else {
            return;
        };
        // A look that is too early, and one after the nap.
        let settle = if naps {
            Duration::ZERO
        } else {
            Duration::from_secs(3_600)
        };
        let (settled, next) = shared.pending.settled(instant(), settle);
        naps = next.is_some();
        *shared.kept.lock().expect("a number") += settled.len();
        shared.taken.notify_all();
    }
}

fn two_that_acquire_first() {
    let manager = Arc::new(Manager::default());
    let adders = [(), ()].map(|()| {
        let manager = Arc::clone(&manager);
        thread::spawn(move || {
            let hold = Hold::new(Row::default());
            manager.add(&hold);
            hold
        })
    });
    let holds = adders.map(|adder| adder.join().expect("a hold"));
    let late = Hold::new(Row::default());
    manager.add(&late);
    let kept = manager.kept.lock().expect("a number");
    let all = manager.taken.wait_while(kept, |kept| *kept < 3);
    drop(all.expect("all are looked after"));
    drop((holds, late));
    assert_eq!(manager.started.load(Ordering::SeqCst), 1, "one thread");
    // Then the thread ends; otherwise this scenario never does.
    drop(manager);
}

#[test]
fn one_thread_is_started_for_all_and_misses_nobody() {
    explore(two_that_acquire_first);
}
