//! Runs a command under a lock that is held, on Windows: starts it in a job, watches over it, and releases.
//!
//! One thread and one loop over the console's events, the command's end, the next renewal, and looks at
//! the lock: nothing tells of changes to a file here.
//!
//! # Crash safety
//! A lock of a byte ends with the process that took it, whoever has inherited the handle. So the command
//! cannot keep the beacon of its supervisor lit; it ends with the supervisor instead. It is started
//! suspended, put into a job that ends when its last handle is closed, and only then let go: whatever kills
//! this process, the system closes the handle, and with it ends the command and all that it has started.
//! Death before the command was put into its job leaves a process that never ran. The claim names the
//! command, so the lock counts as held until the command itself is gone.

use super::heartbeats::Heartbeats;
use super::{Action, Before, End, Event, OnLost, Supervision, Terms, Verdict};
use crate::render::say;
use crate::signals::{self, Job, Signals, numbers};
use crate::store::{Locks, Seat};
use std::os::windows::io::{AsHandle, AsRawHandle};
use std::os::windows::process::CommandExt;
use std::process::{Child, Command};
use std::time::{Duration, Instant};
use tenure::clock::{Clock, instant};
use tenure::core::{Process, Renewal};
use tenure::process::start_time;
use tenure::store::file::poll_readable;
use tenure::store::{Store, StoreError};

/// How often the locks are looked at.
const LOCKS_LOOK: Duration = Duration::from_millis(100);

/// How often what is left of the work is looked at once its command is gone.
const REST_LOOK: Duration = Duration::from_millis(10);

/// The command and all that it starts are a group for the console's keys, so that it can be asked alone;
/// and it does not run before it is in its job.
const NEW_GROUP_SUSPENDED: u32 = 0x0000_0200 | 0x0000_0004;

/// The exit code of what is ended by force: that of a process that SIGKILL has ended.
const KILLED: u32 = 137;

/// A lock under which a command runs.
pub(crate) struct Held<'a> {
    pub(crate) store: &'a Locks,
    pub(crate) seat: &'a Seat,
    /// Told when several renewals in a row have failed: how many, and how the last one did.
    pub(crate) on_heartbeat_failed: &'a dyn Fn(u32, &str),
}

/// What a supervised run needs.
pub(crate) struct Driver<'a> {
    /// The locks, in the order in which they were taken; none for a command that runs without one.
    pub(crate) held: Vec<Held<'a>>,
    pub(crate) clock: &'a dyn Clock,
    pub(crate) signals: Signals,
    pub(crate) terms: Terms,
    /// Nothing that keeps a lock held is inherited here in any case.
    #[allow(dead_code, reason = "one surface with the driver of Unix")]
    pub(crate) close: bool,
    pub(crate) quiet: bool,
}

/// What outlasts one command: a rollback goes on from where the command has left off.
pub(crate) struct Course {
    /// One for each lock, in the order in which they were taken.
    holds: Vec<HoldCourse>,
    /// What was asked of the command; `None` until it has ended.
    asked: Option<Before>,
}

struct HoldCourse {
    heartbeats: Heartbeats,
    /// The lock is not to be relied on any more.
    lost: bool,
}

impl Course {
    /// `heartbeats` are those of the driver's locks, in the same order.
    pub(crate) fn new(heartbeats: impl IntoIterator<Item = Heartbeats>) -> Self {
        let holds = heartbeats.into_iter().map(|heartbeats| HoldCourse {
            heartbeats,
            lost: false,
        });
        Self {
            holds: holds.collect(),
            asked: None,
        }
    }

    /// Whether any of the locks is not to be relied on any more.
    pub(crate) fn is_lost(&self) -> bool {
        self.holds.iter().any(|hold| hold.lost)
    }
}

/// The clock by which leases run out, as a distance from its beginning.
pub(crate) fn lease_clock(clock: &dyn Clock) -> Duration {
    Duration::from_millis(clock.now().boot_ms)
}

/// Why a command did not start.
#[derive(Debug)]
pub(crate) enum SpawnError {
    /// The system does not start it.
    Command(std::io::Error),
    /// It could not be put where it ends with its supervisor, and was ended before it ran.
    Beacon(std::io::Error),
}

struct Running<'a> {
    driver: &'a Driver<'a>,
    course: &'a mut Course,
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
    /// returns; releasing it is the caller's next step. What is run by a second call with the same course
    /// is the rollback of the first.
    pub(crate) fn run(
        &self,
        mut command: Command,
        course: &mut Course,
    ) -> Result<Verdict, SpawnError> {
        let job = Job::new().map_err(SpawnError::Beacon)?;
        command.creation_flags(NEW_GROUP_SUSPENDED);
        let mut child = command.spawn().map_err(SpawnError::Command)?;
        let placed = job
            .take(child.as_raw_handle())
            .and_then(|()| signals::resume(child.id()));
        if let Err(error) = placed {
            // It has not run a single instruction, and must not.
            let _ = child.kill();
            let _ = child.wait();
            return Err(SpawnError::Beacon(error));
        }
        let began = instant();
        let named = self.name_command(child.id());
        let supervision = Supervision::new(self.terms);
        let mut running = Running {
            driver: self,
            child,
            job,
            supervision: match course.asked {
                Some(before) => supervision.after(before),
                None => supervision,
            },
            began,
            watching_rest: false,
            next_look: began + LOCKS_LOOK,
            course,
        };
        let verdict = match named {
            Ok(None) => None,
            Ok(Some(lost)) => running.lose(lost),
            // The beacon speaks for the command; the next renewal tries again.
            Err(error) => {
                self.tell(&format!("the command could not be recorded: {error}"));
                None
            }
        };
        let verdict = verdict.unwrap_or_else(|| running.watch());
        running.course.asked = Some(running.supervision.asked());
        // What it has left behind goes on, as everywhere. Where that cannot be arranged, it ends with us,
        // which is said.
        if running.job.running().is_ok_and(|left| left > 0)
            && let Err(error) = running.job.let_go()
        {
            say(&format!(
                "what the command has left behind is ended: {error}"
            ));
        }
        Ok(verdict)
    }

    /// Writes down which process the command is. Answers with the first lock that is lost.
    fn name_command(&self, pid: u32) -> Result<Option<usize>, StoreError> {
        let started = start_time(pid);
        for (index, held) in self.held.iter().enumerate() {
            let process = Process { pid, started };
            if !held.store.name_command(held.seat, process)? {
                return Ok(Some(index));
            }
        }
        Ok(None)
    }

    /// A command that is ended says so by its exit code; one that goes on has only this.
    fn tell_of_loss(&self, message: &str) {
        match self.terms.on_lost {
            OnLost::Terminate => self.tell(message),
            OnLost::Warn => say(message),
        }
    }

    fn tell(&self, message: &str) {
        if !self.quiet {
            say(message);
        }
    }
}

/// Who has asked the holder of a lock to stop.
pub(crate) fn who_asks(held: &Held<'_>) -> Option<String> {
    let reading = held.store.read(held.seat.name()).ok()?;
    let claim = reading.entry()?.claim(held.seat.ticket())?;
    claim.cancel.as_ref().map(|cancel| cancel.by.clone())
}

impl Running<'_> {
    /// The loop.
    fn watch(&mut self) -> Verdict {
        loop {
            let event = self
                .ended()
                .or_else(|| self.next_signal())
                .or_else(|| self.rest());
            let verdict = match event {
                Some(event) => self.handle(event),
                None => self.sleep(),
            };
            if let Some(verdict) = verdict {
                return verdict;
            }
        }
    }

    /// Sleeps until something happens, and deals with what only time or the lock tells.
    fn sleep(&mut self) -> Option<Verdict> {
        let now = instant();
        let mut until = if self.course.holds.is_empty() {
            now + Duration::from_secs(30)
        } else {
            self.next_look
        };
        let beats = self.course.holds.iter();
        if let Some(beat) = beats.filter_map(|hold| hold.heartbeats.next_time()).min() {
            until = until.min(now + beat.saturating_sub(lease_clock(self.driver.clock)));
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
        // However it ended: everything that can have happened is looked at now.
        let _ = poll_readable(&handles, Duration::from_secs(30), Some(until));
        self.after_sleep()
    }

    fn after_sleep(&mut self) -> Option<Verdict> {
        if instant() >= self.next_look {
            self.next_look = instant() + LOCKS_LOOK;
            if let Some(verdict) = self.look_at_locks() {
                return Some(verdict);
            }
        }
        for index in 0..self.course.holds.len() {
            let now = lease_clock(self.driver.clock);
            let hold = self.course.holds.get(index);
            if hold.is_some_and(|hold| hold.heartbeats.is_due(now))
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
            // Not known is not lost; the next look may know.
            if let Ok(renewal) = held.store.verify(held.seat)
                && let Some(verdict) = self.on_renewal(index, renewal)
            {
                return Some(verdict);
            }
        }
        None
    }

    fn renew(&mut self, index: usize) -> Option<Verdict> {
        let driver = self.driver;
        let held = driver.held.get(index)?;
        let now = driver.clock.now();
        match held.store.renew(held.seat, &now) {
            Ok(renewal) => {
                let hold = self.course.holds.get_mut(index)?;
                if let Renewal::Renewed { .. } = renewal {
                    hold.heartbeats
                        .succeeded(Duration::from_millis(now.boot_ms));
                    if std::mem::take(&mut hold.lost) {
                        driver.tell("the heartbeat works again; nobody has taken the lock");
                    }
                }
                self.on_renewal(index, renewal)
            }
            Err(error) => self.on_failed_renewal(index, &error.to_string()),
        }
    }

    /// A failure by itself proves nothing about the lock; that its lease runs out does.
    fn on_failed_renewal(&mut self, index: usize, error: &str) -> Option<Verdict> {
        let driver = self.driver;
        let held = driver.held.get(index)?;
        let now = lease_clock(driver.clock);
        let failed = self.course.holds.get_mut(index)?.heartbeats.failed(now);
        if failed.is_event {
            (held.on_heartbeat_failed)(failed.consecutive, error);
        }
        let Some(left) = failed.runs_out else {
            driver.tell(&format!("the heartbeat failed, the work goes on: {error}"));
            return None;
        };
        driver.tell_of_loss(&format!(
            "the heartbeat has failed until the lease was about to run out, so the lock can no \
             longer be relied on ({error}); {}",
            self.what_follows()
        ));
        self.course.holds.get_mut(index)?.lost = true;
        self.handle(Event::Lost { within: Some(left) })
    }

    /// What a lost lock leads to, in words.
    fn what_follows(&self) -> &'static str {
        match self.driver.terms.on_lost {
            _ if self.supervision.is_ending() => "the command is being ended",
            OnLost::Terminate => "ending the command",
            OnLost::Warn => "the command goes on without it",
        }
    }

    /// A lock is proven not to be ours.
    fn lose(&mut self, index: usize) -> Option<Verdict> {
        let hold = self.course.holds.get_mut(index)?;
        hold.heartbeats.stop();
        if std::mem::replace(&mut hold.lost, true) {
            return None;
        }
        let name = self.driver.held.get(index).map(|held| held.seat.name());
        let what = match (self.driver.held.len(), name) {
            (2.., Some(name)) => format!("the lock {name}"),
            _ => "the lock".to_owned(),
        };
        let message = format!("{what} is lost; {}", self.what_follows());
        self.driver.tell_of_loss(&message);
        self.handle(Event::Lost { within: None })
    }

    fn on_renewal(&mut self, index: usize, renewal: Renewal) -> Option<Verdict> {
        if self.supervision.is_ending() {
            if renewal == Renewal::Lost {
                self.course.holds.get_mut(index)?.lost = true;
            }
            return None;
        }
        match renewal {
            Renewal::Renewed {
                cancel_requested: false,
                ..
            } => None,
            // A rollback is finished first.
            Renewal::Renewed { .. } if self.course.asked.is_some() => None,
            Renewal::Renewed { .. } => {
                let by = self.driver.held.get(index).and_then(who_asks);
                let by = by.unwrap_or_else(|| "unknown".to_owned());
                self.driver.tell(&format!(
                    "request {by} asks for the lock; ending the command"
                ));
                self.handle(Event::CancelRequested { by })
            }
            Renewal::Lost => self.lose(index),
        }
    }

    fn next_signal(&self) -> Option<Event> {
        let arrived = self.driver.signals.next()?;
        Some(Event::Signal {
            number: arrived.number,
            // The command is a group of its own, which no key reaches but by us.
            shared: false,
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
    fn rest(&mut self) -> Option<Event> {
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
                // Nothing stops here and goes on.
                Action::Continue | Action::StopSelf(_) => {}
                Action::WatchRest => self.watching_rest = true,
                Action::Abandon(number) => {
                    crate::exit::leave(crate::exit::Exit::Signalled(number));
                }
                Action::Finish(verdict) => return Some(verdict),
            }
        }
        None
    }
}
