//! The lines of a process in front of its store: the callers that want one lock stand in one line, and only
//! the caller at its head stands in the store's queue.
//!
//! The right to be there is a [`Turn`]. A caller that waits on its own thread sleeps until it has the turn
//! ([`Standing`]). Another caller leaves an [`Errand`], which needs no thread while it waits: the thread that
//! passes the turn on has it run. Each place is left at once by a caller that gives up.
//!
//! - Turns are given in the order in which the callers came.
//! - A line has one turn, and it is never lost: what has it passes it on, by a panic too.
//!
//! What a turn is used for, and how long a caller waits, is the affair of those who have the lines.

use crate::sync::{Arc, Condvar, Mutex, locked};
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::PoisonError;
use std::time::Duration;

/// Work that waits in a line in place of a thread.
pub trait Errand<N: Clone + Ord>: Sized {
    /// Has a thread run it, and the errands that come next ([`Turn::next`]).
    fn start(self, turn: Turn<N, Self>);

    /// Notes that it stands behind others.
    fn stands(&mut self);
}

/// The lines of a process or of one manager, by name. One that is not there is empty, and its turn is free.
pub struct Lines<N, E> {
    state: Mutex<State<N, E>>,
}

struct State<N, E> {
    lines: BTreeMap<N, TakenLine<E>>,
    /// The number of the next place, in whatever line: none has the number of an earlier one.
    next: u64,
}

impl<N, E> State<N, E> {
    fn number(&mut self) -> u64 {
        let number = self.next;
        self.next += 1;
        number
    }
}

impl<N: Clone + Ord, E> State<N, E> {
    /// The number of a new place, and its line. `None` if the turn was free; it is taken now.
    fn place(&mut self, name: &N) -> Option<(u64, &mut TakenLine<E>)> {
        if !self.lines.contains_key(name) {
            self.lines.insert(name.clone(), TakenLine::new());
            return None;
        }
        let number = self.number();
        let line = self.lines.get_mut(name)?;
        Some((number, line))
    }
}

/// A line whose turn is taken: its places by their numbers.
type TakenLine<E> = BTreeMap<u64, TurnPlace<E>>;

enum TurnPlace<E> {
    Thread(Arc<Call>),
    /// Apart from its place, for the places of a long line stand in half-filled tables.
    Errand(Box<E>),
}

/// How a thread is told that it has the turn.
struct Call {
    called: Mutex<bool>,
    changed: Condvar,
}

impl Call {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            called: Mutex::new(false),
            changed: Condvar::new(),
        })
    }

    fn give(&self) {
        *locked(&self.called) = true;
        self.changed.notify_all();
    }

    /// Has the thread look whether it still wants to wait.
    fn look(&self) {
        // Under the lock, or it would miss a thread that has just looked and is about to sleep.
        let _called = locked(&self.called);
        self.changed.notify_all();
    }
}

impl<N, E> Default for Lines<N, E> {
    fn default() -> Self {
        Self {
            state: Mutex::new(State {
                lines: BTreeMap::new(),
                next: 0,
            }),
        }
    }
}

/// Where a thread is that has come to a line.
pub enum Joined<N: Clone + Ord, E: Errand<N>> {
    /// At the head: the turn was free.
    Head(Turn<N, E>),
    /// Behind others.
    Behind(Standing<N, E>),
}

impl<N: Clone + Ord, E: Errand<N>> Lines<N, E> {
    /// A thread comes to a line.
    pub fn join(self: &Arc<Self>, name: &N) -> Joined<N, E> {
        let mut state = locked(&self.state);
        let Some((number, line)) = state.place(name) else {
            drop(state);
            return Joined::Head(Turn::of(self, name.clone()));
        };
        let call = Call::new();
        line.insert(number, TurnPlace::Thread(Arc::clone(&call)));
        Joined::Behind(Standing {
            lines: Arc::clone(self),
            name: name.clone(),
            number,
            call,
            has_left: false,
        })
    }

    /// Leaves an errand in a line. `None` if the turn was free, and the errand was started; else the number
    /// of its place.
    pub fn leave(self: &Arc<Self>, name: &N, mut errand: E) -> Option<u64> {
        let mut state = locked(&self.state);
        let Some((number, line)) = state.place(name) else {
            drop(state);
            errand.start(Turn::of(self, name.clone()));
            return None;
        };
        errand.stands();
        line.insert(number, TurnPlace::Errand(Box::new(errand)));
        Some(number)
    }

    /// Takes back an errand that still waits. `None` if it was started.
    pub fn take_back(&self, name: &N, number: u64) -> Option<E> {
        match self.remove(name, number)? {
            TurnPlace::Errand(errand) => Some(*errand),
            TurnPlace::Thread(_) => None,
        }
    }

    fn remove(&self, name: &N, number: u64) -> Option<TurnPlace<E>> {
        let mut state = locked(&self.state);
        state.lines.get_mut(name)?.remove(&number)
    }

    /// A number that no place has.
    pub fn number(&self) -> u64 {
        locked(&self.state).number()
    }

    /// Whether nobody stands in a line behind the caller that has its turn.
    pub fn is_empty(&self, name: &N) -> bool {
        let state = locked(&self.state);
        state.lines.get(name).is_none_or(BTreeMap::is_empty)
    }

    /// Shows the errands of a line, in their order.
    pub fn each(&self, name: &N, mut show: impl FnMut(&E)) {
        let state = locked(&self.state);
        let line = state.lines.get(name);
        for place in line.into_iter().flat_map(BTreeMap::values) {
            if let TurnPlace::Errand(errand) = place {
                show(errand);
            }
        }
    }

    /// How many stand in these lines, without the callers that have their turns.
    pub fn count(&self, is_meant: impl Fn(&N) -> bool) -> usize {
        let state = locked(&self.state);
        let meant = state.lines.iter().filter(|(name, _)| is_meant(name));
        meant.map(|(_, line)| line.len()).sum()
    }

    /// Whether a place is still in its line.
    pub fn has(&self, name: &N, number: u64) -> bool {
        let state = locked(&self.state);
        let line = state.lines.get(name);
        line.is_some_and(|line| line.contains_key(&number))
    }

    /// How many of them came before this place.
    pub fn before(&self, name: &N, number: u64) -> usize {
        let state = locked(&self.state);
        let line = state.lines.get(name);
        line.map_or(0, |line| line.range(..number).count())
    }
}

/// The turn of a line. Dropping it passes it on.
pub struct Turn<N: Clone + Ord, E: Errand<N>> {
    lines: Arc<Lines<N, E>>,
    name: N,
    is_passed: bool,
}

impl<N: Clone + Ord, E: Errand<N>> Turn<N, E> {
    fn of(lines: &Arc<Lines<N, E>>, name: N) -> Self {
        Self {
            lines: Arc::clone(lines),
            name,
            is_passed: false,
        }
    }

    /// Passes the turn on. An errand that comes next is given to this thread.
    pub fn next(mut self) -> Option<(Self, E)> {
        let errand = self.pass();
        self.is_passed = errand.is_none();
        Some((self, errand?))
    }

    /// The errand that has the turn now; `None` if the turn was given to a thread, or nothing wants it.
    fn pass(&self) -> Option<E> {
        let mut state = locked(&self.lines.state);
        let line = state.lines.get_mut(&self.name)?;
        match line.pop_first() {
            Some((_, TurnPlace::Errand(errand))) => Some(*errand),
            // The thread may give up at this very moment. Its place is gone then, so it passes the turn on.
            Some((_, TurnPlace::Thread(call))) => {
                drop(state);
                call.give();
                None
            }
            None => {
                state.lines.remove(&self.name);
                None
            }
        }
    }
}

impl<N: Clone + Ord, E: Errand<N>> Drop for Turn<N, E> {
    fn drop(&mut self) {
        if self.is_passed {
            return;
        }
        if let Some(errand) = self.pass() {
            errand.start(Self::of(&self.lines, self.name.clone()));
        }
    }
}

/// The place of a thread behind others. Dropping it leaves the line.
pub struct Standing<N: Clone + Ord, E: Errand<N>> {
    lines: Arc<Lines<N, E>>,
    name: N,
    /// The number of the place.
    pub number: u64,
    call: Arc<Call>,
    has_left: bool,
}

impl<N: Clone + Ord, E: Errand<N>> Standing<N, E> {
    /// What has the thread ask again how long it sleeps.
    pub fn bell(&self) -> impl Fn() + Send + Sync + 'static {
        let call = Arc::downgrade(&self.call);
        move || {
            if let Some(call) = call.upgrade() {
                call.look();
            }
        }
    }

    /// Sleeps until it has the turn. Before each sleep `nap` says how long that lasts at most, or that the
    /// wait is over: `None` then.
    pub fn wait(
        mut self,
        mut nap: impl FnMut() -> ControlFlow<(), Option<Duration>>,
    ) -> Option<Turn<N, E>> {
        let mut called = locked(&self.call.called);
        while !*called {
            let changed = &self.call.changed;
            called = match nap() {
                ControlFlow::Break(()) => return None,
                ControlFlow::Continue(None) => {
                    changed.wait(called).unwrap_or_else(PoisonError::into_inner)
                }
                ControlFlow::Continue(Some(rest)) => {
                    let woken = changed.wait_timeout(called, rest);
                    woken.unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
        drop(called);
        self.has_left = true;
        Some(Turn::of(&self.lines, self.name.clone()))
    }
}

impl<N: Clone + Ord, E: Errand<N>> Drop for Standing<N, E> {
    fn drop(&mut self) {
        if !self.has_left && self.lines.remove(&self.name, self.number).is_none() {
            // The waiter has been given the turn.
            drop(Turn::of(&self.lines, self.name.clone()));
        }
    }
}
