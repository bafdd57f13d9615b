//! The thread beside the command. It receives signals, a lost lock and a request to stop; it asks the
//! command to end, and ends the process when its grace is over.
//!
//! `arrivals` says how signals arrive.
//!
//! # Crash safety
//! A process that is ended here has not released its lock. The kernel frees it as the last thread
//! ends, and never while the command can still do something.

use super::Failure;
use super::answer::Surface;
use super::arrivals::{Arrivals, end_process};
use crate::cancel::Cancel;
use crate::clock::{instant, since};
use crate::envelope::{Exit, StopSignal};
use crate::guard::{Guard, GuardState};
use crate::os::{self, Bell, Ringer};
use crate::store::file::poll_readable;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Wake, Waker};
use std::time::{Duration, Instant};
use tenure_core::LockName;

/// How long the thread sleeps at most. Nothing depends on it; a sleep has to have an end.
const NAP_MAX: Duration = Duration::from_secs(3_600);

/// How long a call may take at least to give its locks back and to answer.
const ANSWERING: Duration = Duration::from_secs(5);

/// How a call goes on: whether and why it was asked to end, and which thread answers.
#[derive(Debug)]
pub(super) struct RunState {
    state: Mutex<State>,
    changed: Condvar,
    cancel: Cancel,
    grace: Duration,
}

#[derive(Debug, Default)]
struct State {
    /// The first signal. It counts for more than everything else.
    signal: Option<StopSignal>,
    /// The lock that is lost.
    lost: Option<LockName>,
    /// The lock that another caller asked for, and that caller.
    wanted: Option<(LockName, Option<String>)>,
    asked_at: Option<Instant>,
    interrupts: u32,
    /// When the command ended. From then on the main thread answers.
    settled: Option<Instant>,
}

impl RunState {
    pub(super) fn new(grace: Duration) -> Self {
        Self {
            state: Mutex::default(),
            changed: Condvar::new(),
            cancel: Cancel::new(),
            grace,
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // A poisoned mutex may be used: every change below is one assignment.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What ends the wait for a lock.
    pub(super) fn cancel(&self) -> &Cancel {
        &self.cancel
    }

    pub(super) fn is_asked(&self) -> bool {
        self.state().asked_at.is_some()
    }

    pub(super) fn signal(&self) -> Option<StopSignal> {
        self.state().signal
    }

    /// The lock that another caller asked for, and that caller.
    pub(super) fn wanted(&self) -> Option<(LockName, Option<String>)> {
        self.state().wanted.clone()
    }

    /// The command has ended. Does not return if the monitor is ending the process.
    pub(super) fn settle(&self) {
        self.state().settled.get_or_insert_with(instant);
    }

    pub(super) fn sleep(&self, time: Duration) {
        let began = instant();
        let mut state = self.state();
        while state.asked_at.is_none() {
            let rest = time.saturating_sub(since(began));
            if rest.is_zero() {
                return;
            }
            let woken = self.changed.wait_timeout(state, rest);
            state = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn ask(&self, note: impl FnOnce(&mut State)) {
        let mut state = self.state();
        note(&mut state);
        state.asked_at.get_or_insert_with(instant);
        self.changed.notify_all();
    }

    /// The failure of a command that does not end by itself.
    fn overdue(state: &State) -> Option<Failure> {
        let mut failure = match (&state.signal, &state.lost, &state.wanted) {
            (Some(signal), ..) => Failure::cancelled(*signal, "run"),
            (None, Some(name), _) => Failure::lock_lost(name),
            (None, None, Some((name, by))) => Failure::superseded(name, by.as_deref()),
            (None, None, None) => return None,
        };
        failure.partial = true;
        failure.detail =
            Some("the command did not end within its grace, and was cut short".to_owned());
        Some(failure)
    }
}

/// The monitor's thread goes on until the process ends.
pub(super) struct Monitor {
    knock: Arc<Knock>,
}

/// Wakes the thread for a change of a guard.
struct Knock {
    door: Ringer,
    guards: Mutex<Vec<GuardView>>,
}

/// Reads a guard's state without keeping the guard.
struct GuardView {
    name: LockName,
    state: Box<dyn Fn() -> (GuardState, Option<String>) + Send>,
}

impl Wake for Knock {
    fn wake(self: Arc<Self>) {
        self.door.ring();
    }
}

impl Monitor {
    /// Receives signals from now on.
    pub(super) fn start(run_state: &Arc<RunState>, surface: &Surface) -> io::Result<Self> {
        let arrivals = Arrivals::receive()?;
        let (listens, door) = os::bell()?;
        let knock = Arc::new(Knock {
            door,
            guards: Mutex::default(),
        });
        let watch = Watch {
            run_state: Arc::clone(run_state),
            surface: surface.clone(),
            arrivals,
            listens,
            knock: Arc::clone(&knock),
        };
        std::thread::Builder::new()
            .name("tenure-monitor".to_owned())
            .spawn(move || watch.run())?;
        Ok(Self { knock })
    }

    /// Follows these guards.
    pub(super) fn watch(&self, guards: &[Guard]) {
        let mut watched = self
            .knock
            .guards
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        watched.extend(guards.iter().map(|guard| GuardView {
            name: guard.name().clone(),
            state: Box::new(guard.observer()),
        }));
        drop(watched);
        let waker = Waker::from(Arc::clone(&self.knock));
        for guard in guards {
            guard.wake_on_change(&waker);
        }
        waker.wake();
    }
}

/// What the thread owns.
struct Watch {
    run_state: Arc<RunState>,
    surface: Surface,
    arrivals: Arrivals,
    listens: Bell,
    knock: Arc<Knock>,
}

impl Watch {
    fn run(self) {
        loop {
            let nap = self.until_overdue().unwrap_or(NAP_MAX);
            let mut fds = self.arrivals.descriptors();
            fds.push(self.listens.descriptor());
            if poll_readable(&fds, nap, None).is_err() {
                tenure_os::clock::nap(Duration::from_millis(100));
            }
            self.receive();
            self.look_at_guards();
            if self.until_overdue() == Some(Duration::ZERO) {
                self.cut_short();
            }
        }
    }

    /// How long the monitor lets the call go on; `None` if it does not end it. A command that has ended
    /// still has its answer to write. After a signal, a reader who does not read must not keep the call
    /// from ending.
    fn until_overdue(&self) -> Option<Duration> {
        let state = self.run_state.state();
        let asked_at = state.asked_at?;
        let left = self.run_state.grace.saturating_sub(since(asked_at));
        match state.settled {
            None => Some(left),
            Some(settled) => {
                state.signal?;
                Some(left.max(ANSWERING.saturating_sub(since(settled))))
            }
        }
    }

    fn receive(&self) {
        for (signal, count) in self.arrivals.take() {
            let interrupts = if signal == StopSignal::Interrupt {
                count
            } else {
                0
            };
            self.run_state.ask(|state| {
                state.signal.get_or_insert(signal);
                state.interrupts = state.interrupts.saturating_add(interrupts);
            });
            // A second SIGINT wants no answer.
            if self.run_state.state().interrupts > 1 {
                end(Exit::Signalled(StopSignal::Interrupt.number()));
            }
            self.run_state.cancel.cancel();
        }
    }

    fn look_at_guards(&self) {
        self.listens.hear();
        let guards = &self.knock.guards;
        let guards = guards.lock().unwrap_or_else(PoisonError::into_inner);
        for guard in guards.iter() {
            let (state, by) = (guard.state)();
            match state {
                GuardState::Held => {}
                GuardState::StopRequested => self.run_state.ask(|state| {
                    let wanted = || (guard.name.clone(), by);
                    state.wanted.get_or_insert_with(wanted);
                }),
                GuardState::Lost => self.run_state.ask(|state| {
                    state.lost.get_or_insert_with(|| guard.name.clone());
                }),
            }
        }
    }

    /// Answers for a command that does not end, and ends the process under it.
    fn cut_short(&self) {
        // Held to the end: if the main thread comes back now, it must not answer too.
        let state = self.run_state.state();
        if state.settled.is_some() {
            if let Some(signal) = state.signal {
                end(Exit::Signalled(signal.number()));
            }
            return;
        }
        if let Some(failure) = RunState::overdue(&state) {
            end(self.surface.answer_beside(&failure));
        }
    }
}

/// Ends the process at once. The kernel frees its locks.
fn end(exit: Exit) -> ! {
    end_process(exit.code())
}
