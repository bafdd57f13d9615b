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

use super::terminal::Placement;
use super::{Action, End, Event, Supervision, Verdict};
use crate::render::say;
use crate::signals::{self, Signals};
use rustix::io::{FdFlags, fcntl_setfd};
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

/// What a supervised run needs.
pub(crate) struct Driver<'a> {
    pub(crate) store: &'a FileStore,
    pub(crate) clock: &'a dyn Clock,
    pub(crate) seat: &'a Seat,
    pub(crate) signals: Signals,
    pub(crate) ttl: Duration,
    pub(crate) grace: Duration,
    pub(crate) quiet: bool,
}

/// Why a command did not start.
#[derive(Debug)]
pub(crate) struct SpawnError(pub(crate) std::io::Error);

struct Running<'a> {
    driver: &'a Driver<'a>,
    pid: Pid,
    placement: Placement,
    supervision: Supervision,
    began: Instant,
    news: Option<OwnedFd>,
    /// News was opened, or there is none to be had.
    watches: bool,
    next_renewal: Instant,
    /// The leader is gone and its group is looked at again and again.
    watching_group: bool,
}

impl Driver<'_> {
    /// Starts the command and stays with it until the work is over. The lock is still held when
    /// this returns; releasing it is the caller's next step.
    pub(crate) fn run(&self, mut command: Command) -> Result<Verdict, SpawnError> {
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
        let child = child.map_err(SpawnError)?;
        let began = instant();
        let number = child.id();
        let Some(pid) = i32::try_from(number).ok().and_then(Pid::from_raw) else {
            return Err(SpawnError(std::io::ErrorKind::InvalidData.into()));
        };
        placement.give(pid);
        // After the spawn, for each handler costs the child two system calls on its way. A child
        // that ends before this line is found by the first look.
        self.signals.pass_on(placement.own_group());
        let process = Process {
            pid: number,
            started: start_time(number),
        };
        let named = signals::unstopped(|| self.store.name_command(self.seat, process));
        let mut running = Running {
            driver: self,
            pid,
            supervision: Supervision::new(self.grace, placement.own_group()),
            placement,
            began,
            news: None,
            watches: false,
            next_renewal: began + self.interval(),
            watching_group: false,
        };
        let verdict = match named {
            Ok(true) => None,
            Ok(false) => running.handle(Event::Lost),
            // The beacon speaks for the command; the next renewal tries again.
            Err(error) => {
                self.tell(&format!("the command could not be recorded: {error}"));
                None
            }
        };
        let verdict = verdict.unwrap_or_else(|| running.watch());
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
        fcntl_setfd(self.seat.beacon(), flags).map_err(|errno| SpawnError(errno.into()))
    }

    /// Three renewals fit into a ttl.
    fn interval(&self) -> Duration {
        (self.ttl / 3).clamp(Duration::from_millis(10), Duration::from_secs(30))
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
        until = until.min(self.next_renewal);
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
        if self.drain_news()
            && let Some(verdict) = self.look_at_lock()
        {
            return Some(verdict);
        }
        let now = instant();
        if now >= self.next_renewal {
            self.next_renewal = now + self.driver.interval();
            if let Some(verdict) = self.renew() {
                return Some(verdict);
            }
        }
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

    fn open_news(&mut self) {
        // Without it a cancel is noticed at the next renewal.
        self.news = self.driver.store.news(self.driver.seat).ok();
        self.watches = true;
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
        match self.driver.store.verify(self.driver.seat) {
            Ok(renewal) => self.on_renewal(renewal),
            // Not known is not lost; the next look may know.
            Err(_) => None,
        }
    }

    fn renew(&mut self) -> Option<Verdict> {
        let driver = self.driver;
        match signals::unstopped(|| driver.store.renew(driver.seat, &driver.clock.now())) {
            Ok(renewal) => self.on_renewal(renewal),
            Err(error) => {
                driver.tell(&format!("the heartbeat failed, the work goes on: {error}"));
                None
            }
        }
    }

    fn on_renewal(&mut self, renewal: Renewal) -> Option<Verdict> {
        if self.supervision.is_ending() {
            return None;
        }
        match renewal {
            Renewal::Renewed {
                cancel_requested: false,
                ..
            } => None,
            Renewal::Renewed { .. } => {
                let by = self.who_asks();
                self.driver.tell(&format!(
                    "request {by} asks for the lock; ending the command"
                ));
                self.handle(Event::CancelRequested { by })
            }
            Renewal::Lost => {
                self.driver.tell("the lock is lost; ending the command");
                self.handle(Event::Lost)
            }
        }
    }

    fn who_asks(&self) -> String {
        let seat = self.driver.seat;
        self.driver
            .store
            .read(seat.name())
            .ok()
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
