//! Runs a command under a lock that is held, on Windows: starts it in a job, watches over it, and releases.
//!
//! A single thread has one loop over the console's events, the command's end, the next renewal, and
//! looks at the lock: nothing reports changes to a file here.
//!
//! # Crash safety
//! A lock of a byte ends with the process that took it, whichever process has inherited the handle. So
//! the command cannot keep the liveness lock of its supervisor held; it ends with the supervisor
//! instead. It is started suspended, put into a job that ends when its last handle is closed, and only
//! then let go. Whatever kills this process, the system closes the handle, and with it ends the command
//! and all that it has started. Death before the command was put into its job leaves a process that
//! never ran. The claim names the command, so the lock counts as held until the command itself is gone.

use super::around::Watch;
use super::locks::{Driver, RunState, SpawnError, lease_clock};
use super::{Action, End, Event, Supervision, Verdict};
use crate::render::say;
use crate::signals::{self, Job, numbers};
use std::os::windows::io::{AsHandle, AsRawHandle};
use std::os::windows::process::CommandExt;
use std::process::{Child, Command};
use std::time::{Duration, Instant};
use tenure_core::Renewal;
use tenure_engine::keep::{Ask, Step};
use tenure_os::clock::{instant, nap};
use tenure_os::process::BeforeFork;
use tenure_store::file::poll_readable;
use tenure_store::{StoreError, Verbs};

/// How often the supervisor looks at the locks.
const LOCKS_LOOK: Duration = Duration::from_millis(100);

/// How often the supervisor looks at what is left of the work, once its command is gone.
const REST_LOOK: Duration = Duration::from_millis(10);

/// The command and all that it starts are a group for the console's keys, so that it can be asked alone.
/// The command does not run before it is in its job.
const NEW_GROUP_SUSPENDED: u32 = 0x0000_0200 | 0x0000_0004;

/// The exit code of what is ended by force: that of a process that SIGKILL has ended.
const KILLED: u32 = 137;

struct Running<'a> {
    driver: &'a Driver<'a>,
    /// Watches the locks of the run around this one.
    watch: Option<Watch>,
    state: &'a mut RunState,
    child: Child,
    job: Job,
    supervision: Supervision,
    began: Instant,
    /// The command is gone, and what is left of it is watched.
    watching_rest: bool,
    next_look: Instant,
}

impl Driver<'_> {
    /// Starts the command and stays with it until the work is over. The lock is still held when this
    /// returns; releasing it is the caller's next step. A second call with the same state runs the
    /// rollback of the first command.
    pub(crate) fn run(
        &self,
        command: Command,
        state: &mut RunState,
    ) -> Result<Verdict, SpawnError> {
        if self.around.is_empty() {
            return self.run_watching(command, state, None);
        }
        std::thread::scope(|scope| {
            let watch = Watch::start(scope, &self.around).map_err(SpawnError::LivenessLock)?;
            self.run_watching(command, state, Some(watch))
        })
    }

    /// Stays after the command has ended with `end`, for as long as runs that go on under one of its
    /// locks are at work. No process descends from us any more that could be asked; a signal is
    /// answered when they have ended.
    pub(crate) fn stay(&self, state: &mut RunState, end: End) -> Verdict {
        let mut verdict = Verdict::Command(end);
        while (self.held.iter()).any(|held| held.handle.is_entered()) {
            if let Some(arrived) = self.signals.next() {
                verdict = Verdict::Signalled {
                    number: arrived.number,
                    end: Some(end),
                };
            }
            for (index, held) in self.held.iter().enumerate() {
                if state.due(self, index) != Step::Nothing {
                    let now = self.clock.now();
                    state.begin(index, &now);
                    let renewal = held.store.renew(held.handle, &now);
                    let _ = state.on_answer(self, index, (Ask::Renew, renewal), true);
                }
            }
            nap(LOCKS_LOOK);
        }
        verdict
    }

    fn run_watching(
        &self,
        mut command: Command,
        state: &mut RunState,
        watch: Option<Watch>,
    ) -> Result<Verdict, SpawnError> {
        let job = Job::new().map_err(SpawnError::LivenessLock)?;
        command.creation_flags(NEW_GROUP_SUSPENDED);
        let forked = BeforeFork::now();
        let mut child = command.spawn().map_err(SpawnError::Command)?;
        let placed = job
            .take(child.as_raw_handle())
            .and_then(|()| signals::resume(child.id()));
        if let Err(error) = placed {
            // The child has not run a single instruction, and must not.
            let _ = child.kill();
            let _ = child.wait();
            return Err(SpawnError::LivenessLock(error));
        }
        let began = instant();
        let named = self.name_command(child.id(), forked, |_, held, process| {
            held.store
                .name_command(held.handle, process, &self.clock.now())
        });
        let supervision = Supervision::new(self.terms);
        let mut running = Running {
            driver: self,
            watch,
            child,
            job,
            supervision: match state.asked {
                Some(before) => supervision.after(before),
                None => supervision,
            },
            began,
            watching_rest: false,
            next_look: began + LOCKS_LOOK,
            state,
        };
        let verdict = match named {
            Ok(None) => None,
            Ok(Some(lost)) => running.lose(lost),
            // The liveness lock shows that the command lives; the next renewal tries again.
            Err(error) => {
                self.tell_unnamed(&error);
                None
            }
        };
        (self.on_started)();
        let verdict = verdict.unwrap_or_else(|| running.watch());
        running.state.asked = Some(running.supervision.asked());
        // What the command has left behind goes on, as everywhere. Where that cannot be arranged, it
        // ends with us, and we say so.
        if running.job.running().is_ok_and(|left| left > 0)
            && let Err(error) = running.job.let_go()
        {
            say(&format!(
                "what the command has left behind is ended: {error}"
            ));
        }
        Ok(verdict)
    }
}

impl Running<'_> {
    /// The loop.
    fn watch(&mut self) -> Verdict {
        loop {
            let event = self
                .ended()
                .or_else(|| self.next_signal())
                .or_else(|| self.descendants());
            let verdict = match event {
                Some(event) => self.handle(event),
                None => self.sleep(),
            };
            if let Some(verdict) = verdict {
                return verdict;
            }
        }
    }

    /// Sleeps until something happens, and deals with what only the time or the lock shows.
    fn sleep(&mut self) -> Option<Verdict> {
        let now = instant();
        let mut until = if self.state.holds.is_empty() && self.watch.is_none() {
            now + Duration::from_secs(30)
        } else {
            self.next_look
        };
        if let Some(beat_ms) = self.state.next_ms() {
            let left_ms = beat_ms.saturating_sub(lease_clock(self.driver.clock));
            until = until.min(now + Duration::from_millis(left_ms));
        }
        if let Some(step) = self.supervision.next_time() {
            until = until.min(self.began + step);
        }
        if self.watching_rest {
            until = until.min(now + REST_LOOK);
        }
        let mut handles = self.driver.signals.descriptors();
        // A process that has ended stays signalled, and would keep us from sleeping.
        let command = self.child.as_handle();
        if !self.watching_rest {
            handles.push(command);
        }
        // However the sleep ended: everything that can have happened is looked at now.
        let _ = poll_readable(&handles, Duration::from_secs(30), Some(until));
        self.after_sleep()
    }

    fn after_sleep(&mut self) -> Option<Verdict> {
        if instant() >= self.next_look {
            self.next_look = instant() + LOCKS_LOOK;
            while let Some(index) = self.watch.as_ref().and_then(Watch::lost) {
                let (driver, ending) = (self.driver, self.supervision.is_ending());
                let event = self.state.lose_around(driver, index, ending);
                if let Some(verdict) = self.act(event) {
                    return Some(verdict);
                }
            }
            if let Some(verdict) = self.look_at_locks() {
                return Some(verdict);
            }
        }
        for index in 0..self.state.holds.len() {
            if self.state.due(self.driver, index) != Step::Nothing
                && let Some(verdict) = self.renew(index)
            {
                return Some(verdict);
            }
        }
        let since = instant().saturating_duration_since(self.began);
        let is_due = |step| since >= step;
        if self.supervision.next_time().is_some_and(is_due) {
            return self.handle(Event::Time);
        }
        None
    }

    fn look_at_locks(&mut self) -> Option<Verdict> {
        let driver = self.driver;
        for (index, held) in driver.held.iter().enumerate() {
            let seen = held.store.verify(held.handle, &driver.clock.now());
            if let Some(verdict) = self.on_renewal(index, Ask::Look, seen) {
                return Some(verdict);
            }
        }
        None
    }

    fn renew(&mut self, index: usize) -> Option<Verdict> {
        let driver = self.driver;
        let held = driver.held.get(index)?;
        let now = driver.clock.now();
        self.state.begin(index, &now);
        let renewal = held.store.renew(held.handle, &now);
        self.on_renewal(index, Ask::Renew, renewal)
    }

    fn on_renewal(
        &mut self,
        index: usize,
        ask: Ask,
        renewal: Result<Renewal, StoreError>,
    ) -> Option<Verdict> {
        let (driver, ending) = (self.driver, self.supervision.is_ending());
        let followed = self.state.on_answer(driver, index, (ask, renewal), ending);
        self.act(followed.event)
    }

    fn lose(&mut self, index: usize) -> Option<Verdict> {
        let followed = (self.state).lose(self.driver, index, self.supervision.is_ending());
        self.act(followed.event)
    }

    /// Acts on what was found of a lock, if anything follows from it, and then says it.
    fn act(&mut self, event: Option<Event>) -> Option<Verdict> {
        let verdict = event.and_then(|event| self.handle(event));
        self.state.speak(self.driver);
        verdict
    }

    fn next_signal(&self) -> Option<Event> {
        let arrived = self.driver.signals.next()?;
        Some(Event::Signal {
            number: arrived.number,
            // The command is a group of its own, which keys reach only through us.
            shared: false,
            sender: None,
        })
    }

    /// Whether the command has ended.
    fn ended(&mut self) -> Option<Event> {
        if self.watching_rest {
            return None;
        }
        match self.child.try_wait() {
            Ok(None) => None,
            Ok(Some(status)) => Some(Event::Ended(End::Code(status.code().unwrap_or(1)))),
            // How it ended cannot be known.
            Err(_) => Some(Event::Ended(End::Code(1))),
        }
    }

    /// Looks at what is left of the work, where that matters.
    fn descendants(&mut self) -> Option<Event> {
        if !self.watching_rest {
            return None;
        }
        // Not known is not gone.
        let is_over = self.job.running().is_ok_and(|left| left == 0);
        if !is_over {
            return None;
        }
        self.watching_rest = false;
        Some(Event::RestEnded)
    }

    /// Carries out what the event leads to.
    fn handle(&mut self, event: Event) -> Option<Verdict> {
        let since = instant().saturating_duration_since(self.began);
        for action in self.supervision.on(event, since) {
            match action {
                Action::Ask(numbers::SIGKILL) => {
                    if let Err(error) = self.job.end(KILLED) {
                        say(&format!(
                            "the command cannot be ended ({error}); the lock stays held until it is gone"
                        ));
                    }
                }
                Action::Ask(_) | Action::Send(_) => {
                    // A command without a console hears nothing, and is ended when its grace is over.
                    let _ = signals::ask(self.child.id());
                }
                // No process stops here and goes on.
                Action::Continue | Action::StopSelf(_) => {}
                Action::WatchRest => self.watching_rest = true,
                Action::Abandon(number) => {
                    crate::exit::leave_at_once(crate::exit::signalled(number));
                }
                Action::Finish(verdict) => return Some(verdict),
            }
        }
        None
    }
}
