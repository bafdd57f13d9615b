//! Lines: callers that take turns, and that give up at any moment.

#[path = "../../../tenure-engine/src/line/turns.rs"]
mod line;

use super::{explore, finds};
use line::{Joined, Lines, Standing, Turn};
use shuttle::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use shuttle::sync::mpsc::{Sender, channel};
use shuttle::sync::{Arc, Mutex};
use shuttle::thread;
use std::ops::ControlFlow;
use std::time::Duration;

const NAME: &str = "a";

/// What the callers of a line do with their turns.
#[derive(Default)]
struct Work {
    /// How many have the turn.
    inside: AtomicUsize,
    /// The callers that had the work, in this order.
    order: Mutex<Vec<usize>>,
}

impl Work {
    fn does(&self, number: usize) {
        assert_eq!(self.inside.fetch_add(1, Ordering::SeqCst), 0, "one turn");
        self.order.lock().expect("a list").push(number);
        thread::yield_now();
        self.inside.fetch_sub(1, Ordering::SeqCst);
    }

    fn order(&self) -> Vec<usize> {
        self.order.lock().expect("a list").clone()
    }
}

/// An errand as `guard/turns` has it.
struct Errand {
    work: Arc<Work>,
    number: usize,
    done: Sender<usize>,
}

impl line::Errand<&'static str> for Errand {
    fn start(self, turn: Turn<&'static str, Self>) {
        thread::spawn(move || {
            let mut next = Some((turn, self));
            while let Some((turn, errand)) = next {
                errand.run();
                next = turn.next();
            }
        });
    }

    fn stands(&mut self) {}
}

impl Errand {
    fn run(self) {
        self.work.does(self.number);
        let _ = self.done.send(self.number);
    }
}

type Place = Standing<&'static str, Errand>;

/// Waits without a limit.
fn forever() -> ControlFlow<(), Option<Duration>> {
    ControlFlow::Continue(None)
}

/// Waits for as long as the caller wants to.
fn while_wanted(wanted: &AtomicBool) -> ControlFlow<(), Option<Duration>> {
    if wanted.load(Ordering::SeqCst) {
        ControlFlow::Continue(None)
    } else {
        ControlFlow::Break(())
    }
}

/// A line whose turn is taken.
fn taken() -> (Arc<Lines<&'static str, Errand>>, Turn<&'static str, Errand>) {
    let lines = Arc::new(Lines::default());
    match lines.join(&NAME) {
        Joined::Head(turn) => (lines, turn),
        Joined::Behind(_) => unreachable!("nothing stands there"),
    }
}

fn behind(lines: &Arc<Lines<&'static str, Errand>>) -> Place {
    match lines.join(&NAME) {
        Joined::Behind(standing) => standing,
        Joined::Head(_) => unreachable!("the turn is taken"),
    }
}

/// The turn is free in the end: a caller that waits for one that was lost never ends.
fn is_free(lines: &Arc<Lines<&'static str, Errand>>) {
    match lines.join(&NAME) {
        Joined::Head(turn) => drop(turn),
        // The thread that ran the last errand may still have it.
        Joined::Behind(standing) => drop(standing.wait(forever)),
    }
    assert_eq!(lines.count(|name| *name == NAME), 0);
}

/// Threads and errands in one line, in the order in which they came.
fn threads_and_errands() {
    let work = Arc::new(Work::default());
    let (lines, turn) = taken();
    let (done, ended) = channel();
    let mut threads = Vec::new();
    for number in 0..4 {
        if number % 2 == 0 {
            let standing = behind(&lines);
            let work = Arc::clone(&work);
            threads.push(thread::spawn(move || {
                let turn = standing.wait(forever).expect("a turn");
                work.does(number);
                drop(turn);
            }));
        } else {
            let errand = Errand {
                work: Arc::clone(&work),
                number,
                done: done.clone(),
            };
            assert!(lines.leave(&NAME, errand).is_some(), "it waits");
        }
    }
    drop(turn);
    assert_eq!((ended.recv(), ended.recv()), (Ok(1), Ok(3)));
    for thread in threads {
        thread.join().expect("no panic");
    }
    assert_eq!(work.order(), [0, 1, 2, 3], "as they came");
    is_free(&lines);
}

/// Callers that come and go at once, with a turn that is free now and then.
fn callers_that_come_and_go() {
    let work = Arc::new(Work::default());
    let lines = Arc::new(Lines::default());
    let (done, ended) = channel();
    let threads = [0, 1].map(|number| {
        let (lines, work) = (Arc::clone(&lines), Arc::clone(&work));
        thread::spawn(move || {
            let turn = match lines.join(&NAME) {
                Joined::Head(turn) => Some(turn),
                Joined::Behind(standing) => standing.wait(forever),
            };
            assert!(turn.is_some(), "a turn");
            work.does(number);
        })
    });
    let errand = Errand {
        work: Arc::clone(&work),
        number: 2,
        done,
    };
    lines.leave(&NAME, errand);
    assert_eq!(ended.recv(), Ok(2));
    for thread in threads {
        thread.join().expect("no panic");
    }
    assert_eq!(work.order().len(), 3);
    is_free(&lines);
}

#[test]
fn callers_of_a_line_take_turns_in_the_order_in_which_they_came() {
    explore(threads_and_errands);
    explore(callers_that_come_and_go);
}

/// A thread that gives up as its turn comes. One behind it gets the turn.
fn a_thread_that_gives_up(wrongly: bool) {
    let work = Arc::new(Work::default());
    let (lines, turn) = taken();
    let (first, second) = (behind(&lines), behind(&lines));
    let wanted = Arc::new(AtomicBool::new(true));
    let bell = first.bell();
    let gives_up = {
        let wanted = Arc::clone(&wanted);
        thread::spawn(move || {
            let turn = first.wait(|| while_wanted(&wanted));
            if wrongly {
                std::mem::forget(turn);
            }
        })
    };
    let goes_on = {
        let work = Arc::clone(&work);
        thread::spawn(move || {
            let turn = second.wait(forever);
            work.does(1);
            drop(turn);
        })
    };
    let cancels = thread::spawn(move || {
        wanted.store(false, Ordering::SeqCst);
        bell();
    });
    drop(turn);
    for thread in [gives_up, goes_on, cancels] {
        thread.join().expect("no panic");
    }
    assert_eq!(work.order(), [1]);
    is_free(&lines);
}

/// A thread that gives up while the turn stays where it is.
fn a_thread_that_gives_up_behind_a_turn() {
    let (lines, turn) = taken();
    let standing = behind(&lines);
    let wanted = Arc::new(AtomicBool::new(true));
    let bell = standing.bell();
    let gives_up = {
        let wanted = Arc::clone(&wanted);
        thread::spawn(move || {
            let turn = standing.wait(|| while_wanted(&wanted));
            assert!(turn.is_none(), "nothing was passed on");
        })
    };
    wanted.store(false, Ordering::SeqCst);
    bell();
    gives_up.join().expect("no panic");
    assert_eq!(lines.count(|name| *name == NAME), 0, "it has left at once");
    drop(turn);
    is_free(&lines);
}

/// An errand that is taken back as its turn comes: it was run, or it comes back.
fn an_errand_that_is_taken_back() {
    let work = Arc::new(Work::default());
    let (lines, turn) = taken();
    let (done, ended) = channel();
    let errand = |number| Errand {
        work: Arc::clone(&work),
        number,
        done: done.clone(),
    };
    let place = lines.leave(&NAME, errand(0)).expect("it waits");
    assert!(lines.leave(&NAME, errand(1)).is_some(), "it waits");
    let takes_back = {
        let lines = Arc::clone(&lines);
        thread::spawn(move || lines.take_back(&NAME, place).is_some())
    };
    drop(turn);
    let was_taken_back = takes_back.join().expect("no panic");
    let first = ended.recv().expect("an end");
    if was_taken_back {
        assert_eq!(first, 1, "it was not run");
    } else {
        assert_eq!((first, ended.recv()), (0, Ok(1)));
    }
    is_free(&lines);
}

#[test]
fn a_caller_that_gives_up_leaves_at_once_and_the_turn_goes_on() {
    explore(|| a_thread_that_gives_up(false));
    finds("deadlock", || a_thread_that_gives_up(true));
    explore(a_thread_that_gives_up_behind_a_turn);
    explore(an_errand_that_is_taken_back);
}
