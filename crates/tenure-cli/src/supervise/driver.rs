//! Runs a command under a lock that is held: starts it, watches over it, and releases.
//!
//! One thread and one poll loop over the signal pipe, the next renewal and, once the work has
//! lasted a little, news of the lock. A command that is over in a few milliseconds pays for
//! nothing of that.
//!
//! # Crash safety
//! The command inherits a copy of the descriptor that carries the claim's beacon. If this process
//! is killed at any instant after the spawn, the beacon stays lit until the command (and whatever
//! inherited the copy from it) is gone, and the lock with it. Between the spawn and the write that
//! names the command, the beacon alone speaks for it.

use super::heartbeats::Heartbeats;
use super::terminal::Placement;
use super::{Action, Before, End, Event, OnLost, Supervision, Verdict};
use crate::render::say;
use crate::signals::{self, Signals};
use rustix::io::{FdFlags, fcntl_setfd, retry_on_intr};
use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, getpgrp, kill_process, kill_process_group, waitid,
};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::{Duration, Instant};
use tenure::clock::{Clock, instant};
use tenure::core::{Process, Renewal};
use tenure::process::{group_is_alive, start_time};
use tenure::store::Store;
use tenure::store::file::{FileStore, Seat, poll_readable};

/// How long work lasts before news of the lock is watched for.
const NEWS_AFTER: Duration = Duration::from_millis(20);

/// How often a group that was asked to end is looked at once its leader is gone.
const GROUP_LOOK: Duration = Duration::from_millis(5);

/// How long a sleep lasts at most, whatever else is known.
const NAP_MAX: Duration = Duration::from_secs(30);

/// The lock under which a command runs.
pub(crate) struct Held<'a> {
    pub(crate) store: &'a FileStore,
    pub(crate) seat: &'a Seat,
}

/// What a supervised run needs.
pub(crate) struct Driver<'a> {
    /// `None` for a command that runs without a lock.
    pub(crate) held: Option<Held<'a>>,
    pub(crate) clock: &'a dyn Clock,
    pub(crate) signals: Signals,
    pub(crate) grace: Duration,
    pub(crate) quiet: bool,
    pub(crate) on_lost: OnLost,
    /// Told when several renewals in a row have failed: how many, and how the last one did.
    pub(crate) on_heartbeat_failed: &'a dyn Fn(u32, &str),
}

/// What outlasts one command: a rollback goes on from where the command has left off.
pub(crate) struct Course {
    pub(crate) heartbeats: Heartbeats,
    /// The lock is not to be relied on any more.
    pub(crate) lost: bool,
    /// How long the command is left alone before it is asked to end.
    patience: Duration,
    /// What was asked of the command; `None` until it has ended.
    asked: Option<Before>,
}

impl Course {
    pub(crate) fn new(heartbeats: Heartbeats) -> Self {
        Self {
            heartbeats,
            lost: false,
            patience: Duration::ZERO,
            asked: None,
        }
    }

    /// The same for a command that may well be over by itself within this time.
    #[must_use]
    pub(crate) fn patient(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
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
    /// What keeps the lock held for as long as it lives could not be handed to it.
    Beacon(std::io::Error),
}

struct Running<'a> {
    driver: &'a Driver<'a>,
    course: &'a mut Course,
    pid: Pid,
    placement: Placement,
    supervision: Supervision,
    began: Instant,
    news: Option<OwnedFd>,
    /// News was opened, or there is none to be had.
    watches: bool,
    /// The leader is gone and its group is looked at again and again.
    watching_group: bool,
}

impl Driver<'_> {
    /// Starts the command and stays with it until the work is over. The lock is still held when
    /// this returns; releasing it is the caller's next step. What is run by a second call with the
    /// same course is the rollback of the first.
    pub(crate) fn run(
        &self,
        mut command: Command,
        course: &mut Course,
    ) -> Result<Verdict, SpawnError> {
        let placement = Placement::find();
        if placement.own_group() {
            command.process_group(0);
        }
        signals::pause_if_asked();
        // From here to the end of the spawn the command may inherit the beacon.
        self.hand_down(FdFlags::empty())?;
        let child = command.spawn();
        // Should this fail, a later child of ours would inherit the beacon; there is none.
        let _ = self.hand_down(FdFlags::CLOEXEC);
        let child = child.map_err(SpawnError::Command)?;
        let began = instant();
        let number = child.id();
        let Some(pid) = i32::try_from(number).ok().and_then(Pid::from_raw) else {
            return Err(SpawnError::Command(std::io::ErrorKind::InvalidData.into()));
        };
        placement.give(pid);
        // After the spawn, for each handler costs the child two system calls on its way. A child
        // that ends before this line is found by the first look.
        self.signals.pass_on(placement.own_group());
        let named = match &self.held {
            Some(held) => {
                let process = Process {
                    pid: number,
                    started: start_time(number),
                };
                signals::unstopped(|| held.store.name_command(held.seat, process))
            }
            None => Ok(true),
        };
        let supervision = Supervision::new(self.grace, placement.own_group(), self.on_lost)
            .patient(course.patience);
        let mut running = Running {
            driver: self,
            pid,
            supervision: match course.asked {
                Some(before) => supervision.after(before),
                None => supervision,
            },
            placement,
            began,
            news: None,
            watches: self.held.is_none(),
            watching_group: false,
            course,
        };
        let verdict = match named {
            Ok(true) => None,
            Ok(false) => running.lose(),
            // The beacon speaks for the command; the next renewal tries again.
            Err(error) => {
                self.tell(&format!("the command could not be recorded: {error}"));
                None
            }
        };
        let verdict = verdict.unwrap_or_else(|| running.watch());
        running.course.asked = Some(running.supervision.asked());
        running.placement.take_back(running.pid);
        // Collected before the lock is released: who comes next finds nothing of the command.
        let ended = WaitIdOptions::EXITED | WaitIdOptions::NOHANG;
        let _ = waitid(WaitId::Pid(running.pid), ended);
        // Closing it takes the kernel milliseconds, and the next one in line waits for what comes
        // after this. The process is about to end, and it with it.
        std::mem::forget(running.news.take());
        Ok(verdict)
    }

    fn hand_down(&self, flags: FdFlags) -> Result<(), SpawnError> {
        match &self.held {
            Some(held) => retry_on_intr(|| fcntl_setfd(held.seat.beacon(), flags))
                .map_err(|errno| SpawnError::Beacon(errno.into())),
            None => Ok(()),
        }
    }

    /// A command that is ended says so by its exit code; one that goes on has only this.
    fn tell_of_loss(&self, message: &str) {
        match self.on_lost {
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

impl Running<'_> {
    /// The loop.
    fn watch(&mut self) -> Verdict {
        loop {
            let event = self
                .ended_or_stopped()
                .or_else(|| self.next_signal())
                .or_else(|| self.group());
            if let Some(event) = event {
                if let Some(verdict) = self.handle(event) {
                    return verdict;
                }
                continue;
            }
            if let Some(verdict) = self.sleep() {
                return verdict;
            }
        }
    }

    /// Sleeps until something happens, and deals with what only time or the lock tells.
    fn sleep(&mut self) -> Option<Verdict> {
        let now = instant();
        let since = now.saturating_duration_since(self.began);
        let mut until = now + NAP_MAX;
        if let Some(beat) = self.course.heartbeats.next_time() {
            until = until.min(now + beat.saturating_sub(lease_clock(self.driver.clock)));
        }
        if let Some(step) = self.supervision.next_time() {
            until = until.min(self.began + step);
        }
        if self.watching_group {
            until = until.min(now + GROUP_LOOK);
        }
        if !self.watches && !self.supervision.is_ending() {
            if since >= NEWS_AFTER {
                // Looking may begin an end, with times of its own; so the loop begins anew.
                self.open_news();
                return None;
            }
            until = until.min(self.began + NEWS_AFTER);
        }
        let mut fds: Vec<BorrowedFd<'_>> = vec![self.driver.signals.descriptor()];
        fds.extend(self.news.as_ref().map(AsFd::as_fd));
        // However it ended: everything that can have happened is looked at now.
        let _ = poll_readable(&fds, NAP_MAX, Some(until));
        self.after_sleep()
    }

    fn after_sleep(&mut self) -> Option<Verdict> {
        if self.drain_news() {
            let replaced = self.driver.held.as_ref();
            if replaced.is_some_and(|held| held.store.renewals_end_news()) {
                self.open_news();
            } else if let Some(verdict) = self.look_at_lock() {
                return Some(verdict);
            }
        }
        let due = |heartbeats: &Heartbeats| heartbeats.is_due(lease_clock(self.driver.clock));
        if due(&self.course.heartbeats)
            && let Some(verdict) = self.renew()
        {
            return Some(verdict);
        }
        let now = instant();
        let since = now.saturating_duration_since(self.began);
        if self
            .supervision
            .next_time()
            .is_some_and(|step| since >= step)
        {
            return self.handle(Event::Time);
        }
        None
    }

    /// Opens news, or opens it again: a file that was replaced takes its watch with it.
    fn open_news(&mut self) {
        self.watches = true;
        let Some(held) = &self.driver.held else {
            return;
        };
        // Without it a cancel is noticed at the next renewal.
        self.news = held.store.news(held.seat).ok();
        // What came before it was opened is looked at now. A look may begin an end; it is never
        // an end itself, so there is no verdict to miss.
        let _ = self.look_at_lock();
    }

    /// Whether there was news. Reads it all, so that it does not wake us twice.
    fn drain_news(&self) -> bool {
        let Some(news) = &self.news else {
            return false;
        };
        let mut any = false;
        let mut buffer = [0; 1024];
        while rustix::io::read(news, &mut buffer).is_ok_and(|read| read > 0) {
            any = true;
        }
        any
    }

    fn look_at_lock(&mut self) -> Option<Verdict> {
        let held = self.driver.held.as_ref()?;
        match held.store.verify(held.seat) {
            Ok(renewal) => self.on_renewal(renewal),
            // Not known is not lost; the next look may know.
            Err(_) => None,
        }
    }

    fn renew(&mut self) -> Option<Verdict> {
        let driver = self.driver;
        let held = driver.held.as_ref()?;
        let now = driver.clock.now();
        match signals::unstopped(|| held.store.renew(held.seat, &now)) {
            Ok(renewal) => {
                if let Renewal::Renewed { .. } = renewal {
                    let at = Duration::from_millis(now.boot_ms);
                    self.course.heartbeats.succeeded(at);
                    if std::mem::take(&mut self.course.lost) {
                        driver.tell("the heartbeat works again; nobody has taken the lock");
                    }
                }
                self.on_renewal(renewal)
            }
            Err(error) => self.on_failed_renewal(&error.to_string()),
        }
    }

    /// A failure by itself proves nothing about the lock; that its lease runs out does.
    fn on_failed_renewal(&mut self, error: &str) -> Option<Verdict> {
        let driver = self.driver;
        let now = lease_clock(driver.clock);
        let failed = self.course.heartbeats.failed(now);
        if failed.is_event {
            (driver.on_heartbeat_failed)(failed.consecutive, error);
        }
        if !failed.runs_out {
            driver.tell(&format!("the heartbeat failed, the work goes on: {error}"));
            return None;
        }
        driver.tell_of_loss(&format!(
            "the heartbeat has failed until the lease was about to run out, so the lock can no \
             longer be relied on ({error}); {}",
            self.what_follows()
        ));
        self.course.lost = true;
        self.handle(Event::Lost)
    }

    /// What a lost lock leads to, in words.
    fn what_follows(&self) -> &'static str {
        match self.driver.on_lost {
            _ if self.supervision.is_ending() => "the command is being ended",
            OnLost::Terminate => "ending the command",
            OnLost::Warn => "the command goes on without it",
        }
    }

    /// The lock is proven not to be ours.
    fn lose(&mut self) -> Option<Verdict> {
        self.course.lost = true;
        self.course.heartbeats.stop();
        self.news = None;
        let message = format!("the lock is lost; {}", self.what_follows());
        self.driver.tell_of_loss(&message);
        self.handle(Event::Lost)
    }

    fn on_renewal(&mut self, renewal: Renewal) -> Option<Verdict> {
        if self.supervision.is_ending() {
            self.course.lost |= renewal == Renewal::Lost;
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
                let by = self.who_asks();
                self.driver.tell(&format!(
                    "request {by} asks for the lock; ending the command"
                ));
                self.handle(Event::CancelRequested { by })
            }
            Renewal::Lost => self.lose(),
        }
    }

    fn who_asks(&self) -> String {
        let held = self.driver.held.as_ref();
        held.and_then(|held| held.store.read(held.seat.name()).ok())
            .and_then(|reading| reading.entry()?.cancel.clone())
            .map_or_else(|| "unknown".to_owned(), |cancel| cancel.by)
    }

    fn next_signal(&mut self) -> Option<Event> {
        let arrived = self.driver.signals.next()?;
        if arrived.number == libc::SIGCHLD {
            return self.ended_or_stopped();
        }
        Some(Event::Signal {
            number: arrived.number,
            // The kernel sends keys to the whole foreground group, and the hang-up to all of it.
            shared: arrived.from_kernel && !self.placement.own_group(),
        })
    }

    fn group(&mut self) -> Option<Event> {
        if !self.watching_group {
            return None;
        }
        let group = self.pid.as_raw_nonzero().get().unsigned_abs();
        if group_is_alive(group) {
            return None;
        }
        self.watching_group = false;
        Some(Event::Group { alive: false })
    }

    /// Whether the command has ended or stopped since the last look.
    fn ended_or_stopped(&mut self) -> Option<Event> {
        if self.watching_group {
            return None;
        }
        // A command that has ended is left uncollected: as long as it is, nobody else can get its
        // number, and its group can be watched and ended without hitting a stranger.
        let any = WaitIdOptions::EXITED | WaitIdOptions::STOPPED | WaitIdOptions::NOHANG;
        let status = loop {
            match waitid(WaitId::Pid(self.pid), any | WaitIdOptions::NOWAIT) {
                Ok(Some(status)) => break status,
                Ok(None) => return None,
                Err(rustix::io::Errno::INTR) => {}
                // There is no such child any more; how it ended cannot be known.
                Err(_) => return Some(Event::Ended(End::Code(1))),
            }
        };
        if let Some(number) = status.stopping_signal() {
            let stops = WaitIdOptions::STOPPED | WaitIdOptions::NOHANG;
            let _ = waitid(WaitId::Pid(self.pid), stops);
            return self.stopped(number);
        }
        if let Some(code) = status.exit_status() {
            return Some(Event::Ended(End::Code(code)));
        }
        status
            .terminating_signal()
            .map(|number| Event::Ended(End::Signal(number)))
    }

    /// Only a stop that reached the command's own foreground group is passed on to us. In a group
    /// that we share, the terminal has stopped us as well; and whoever stops the command alone, by
    /// SIGSTOP or where there is no terminal, will go on with it alone, and would leave us stopped
    /// with the lock.
    fn stopped(&mut self, number: i32) -> Option<Event> {
        let reads_or_writes = matches!(number, libc::SIGTTIN | libc::SIGTTOU);
        if !(number == libc::SIGTSTP || reads_or_writes) || !self.placement.hands_over() {
            return None;
        }
        // It wanted the terminal before it was handed over, or after `fg` of a job that was
        // running, of which nobody tells us: now it has it.
        if reads_or_writes {
            if self.placement.has_it(getpgrp()) {
                self.placement.give(self.pid);
            }
            if self.placement.has_it(self.pid) {
                self.send(libc::SIGCONT);
                return None;
            }
        }
        Some(Event::Stopped(number))
    }

    /// Carries out what the event leads to.
    fn handle(&mut self, event: Event) -> Option<Verdict> {
        let since = instant().saturating_duration_since(self.began);
        for action in self.supervision.on(event, since) {
            match action {
                Action::Send(number) => self.send(number),
                Action::Continue => self.go_on(),
                Action::StopSelf(number) => self.stop_self(number),
                Action::WatchGroup => self.watching_group = true,
                Action::Abandon(number) => {
                    self.placement.take_back(self.pid);
                    crate::exit::leave(crate::exit::Exit::Signalled(number));
                }
                Action::Finish(verdict) => return Some(verdict),
            }
        }
        None
    }

    /// Stops with the command, and goes on with it: after `fg` the lock is looked at first.
    fn stop_self(&mut self, number: i32) {
        self.placement.take_back(self.pid);
        signals::stop_self(number);
        // We were continued, or, where nobody is there to continue us, never stopped. A lost lock
        // ends the command here; what is sent afterwards only lets it hear of that.
        let _ = self.look_at_lock();
        self.go_on();
    }

    fn go_on(&mut self) {
        if let Placement::Foreground(_) = self.placement
            && self.placement.has_it(getpgrp())
        {
            self.placement.give(self.pid);
        }
        self.send(libc::SIGCONT);
    }

    fn send(&self, number: i32) {
        let Some(signal) = Signal::from_named_raw(number) else {
            return;
        };
        // The command is our own child and not collected yet, so its number is its own.
        let _ = if self.placement.own_group() {
            kill_process_group(self.pid, signal)
        } else {
            kill_process(self.pid, signal)
        };
    }
}
