//! Runs a command under a lock that is held: starts it, watches over it, and releases.
//!
//! A single thread has one poll loop over the signal pipe, the next renewal and, once the work has
//! lasted a little, notices of the lock. A command that is over in a few milliseconds pays for nothing
//! of that.
//!
//! # Crash safety
//! The command inherits a copy of the descriptor that carries the claim's liveness lock. If this process
//! is killed at any instant after the spawn, the liveness lock stays held, and the lock with it. Both are
//! free once the command, and every process that inherited the copy from it, is gone. Between the spawn
//! and the write that names the command, the liveness lock alone shows that it lives.
//!
//! If the command is not to inherit the liveness lock (`close`), this process alone keeps it. The
//! command's own number counts only from that write on. So there the write comes first: the command has
//! been forked and waits until it is named (`signals::spawn_known`). If this process is killed before
//! that, or the write fails, nothing of the command has run.

use super::around::Watch;
use super::descendants::Descendants;
use super::locks::{Consequence, Driver, RunLock, RunState, SpawnError, lease_clock};
use super::remote::{Asker, Question, StoreAnswer};
use super::terminal::Placement;
use super::{Action, End, Event, Supervision, Terms, Verdict};
use crate::render::say;
use crate::signals;
use rustix::io::{FdFlags, fcntl_setfd, retry_on_intr};
use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, getpid, kill_process, kill_process_group, waitid,
};
use std::os::fd::{AsFd, BorrowedFd};
use std::process::Command;
use std::time::{Duration, Instant};
use tenure_core::Renewal;
use tenure_engine::keep::{Ask, Step};
use tenure_os::clock::{instant, nap};
use tenure_os::process::{BeforeFork, group_of, session_of};
use tenure_store::contract::Notices;
use tenure_store::file::poll_readable;
use tenure_store::{StoreError, Verbs};

/// How long work has to last before its locks are watched.
const NEWS_AFTER: Duration = Duration::from_millis(20);

/// How often the supervisor looks at what is left of the work, once the command is gone and an end is
/// forced.
const REST_LOOK: Duration = Duration::from_millis(5);

/// How often the supervisor looks, during a forced end, for processes that have lost their parent.
const ORPHANS_LOOK: Duration = Duration::from_millis(20);

/// How often the supervisor looks at what is left of a group, where no signal reports its end.
const GROUP_LOOK: Duration = Duration::from_millis(100);

/// How long after SIGKILL the supervisor names the processes that have not ended.
const SURVIVORS_TOLD_AFTER: Duration = Duration::from_secs(1);

/// How often the supervisor looks, once the command has ended, whether other runs still work under its
/// locks; and after how long it says so.
const ENTERED_LOOK: Duration = Duration::from_millis(100);
const ENTERED_TOLD_AFTER: Duration = Duration::from_millis(500);

/// How soon the supervisor looks again at a lock that it could not read. Another program may be writing the
/// record at this instant, and no file reports that if there was no record to watch before.
const UNSURE_LOOK: Duration = Duration::from_millis(100);

/// Whether files can be watched. Elsewhere the supervisor looks at a lock again and again, as at one
/// that it could not read.
const WATCHES: bool = cfg!(target_os = "linux");

/// How often the supervisor checks that the locks are still where they were. No kernel reports what
/// happens to the folders above theirs.
const PLACE_LOOK: Duration = Duration::from_secs(3);

/// How often the supervisor looks at its locks in a folder where others may write, and where their files
/// cannot be watched. With the time that a doubtful state has to stay ([`super::locks`]), a loss is noticed
/// within a second.
const OPEN_LOOK: Duration = Duration::from_millis(400);

/// How often the supervisor looks whether the command is still in the group and the session that have the terminal, and how
/// soon after the start for the first time; the pauses double.
const SESSION_LOOK: Duration = Duration::from_secs(1);
const SESSION_LOOK_FIRST: Duration = Duration::from_millis(5);

/// How long a sleep lasts at most, whatever else is known.
const NAP_MAX: Duration = Duration::from_secs(30);

#[allow(
    clippy::struct_excessive_bools,
    reason = "each is a fact of its own: what was opened, what was seen, what was collected"
)]
struct Running<'a> {
    driver: &'a Driver<'a>,
    /// Asks the stores whose answers may take as long as a network does.
    asker: Option<Asker>,
    /// Watches the locks of the run around this one.
    watch: Option<Watch>,
    state: &'a mut RunState,
    pid: Pid,
    /// Keeps that group until the command has ended, also where the command leaves it for a while: a shell with job control
    /// comes back, and sudo asks who leads it.
    leader: Option<signals::Leader>,
    /// The group that was made for the command, which does not lead it.
    group: Option<Pid>,
    placement: Placement,
    supervision: Supervision,
    began: Instant,
    notices: Vec<Notices>,
    /// A renewal of our own ends some of them, so they are opened again after each notice.
    notices_end: bool,
    /// The notices were opened, or there are none.
    watches: bool,
    /// The last look could not read every lock.
    unsure: bool,
    /// How often the places of the locks had moved at the last look, and when the next look is due.
    /// `None` until the work has lasted a little.
    places: Option<(u64, Instant)>,
    descendants: Descendants,
    /// The command is gone, and what is left of it is watched.
    watching_rest: bool,
    /// The command was collected, so that its number and its group's must not be used any more.
    collected: bool,
    /// The command was collected, and other runs work under its locks: when the supervisor says so.
    stays: Option<StayNotice>,
    /// When the work was killed; `None` again once the survivors were named.
    killed: Option<Instant>,
}

/// Whether the supervisor has said why a run stays.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum StayNotice {
    /// The supervisor says so then.
    At(Instant),
    Done,
}

impl Driver<'_> {
    /// Starts the command and stays with it until the work is over. The lock is still held when
    /// this returns; releasing it is the caller's next step. A second call with the same state runs the
    /// rollback of the first command.
    pub(crate) fn run(
        &self,
        command: Command,
        state: &mut RunState,
    ) -> Result<Verdict, SpawnError> {
        self.helped(|asker, watch| self.run_asking(command, state, asker, watch))?
    }

    /// Stays after the command has ended with `end`, for as long as runs that go on under one of its
    /// locks are at work. They are work of this run, like everything that descends from it: a request
    /// to end reaches them, and its limit on time is theirs too. What else the command has left behind
    /// goes on.
    pub(crate) fn stay(&self, state: &mut RunState, end: End) -> Verdict {
        let stayed = self.helped(|asker, watch| self.stay_asking(state, end, asker, watch));
        stayed.unwrap_or_else(|_| {
            // Without threads no store can be asked meanwhile; the caller looks again.
            nap(ENTERED_LOOK);
            Verdict::Command(end)
        })
    }

    /// Does some work, beside the threads that it needs.
    fn helped<T>(
        &self,
        work: impl FnOnce(Option<Asker>, Option<Watch>) -> T,
    ) -> Result<T, SpawnError> {
        let is_remote = self.held.iter().any(|held| held.store.is_remote());
        if !is_remote && self.around.is_empty() {
            return Ok(work(None, None));
        }
        std::thread::scope(|scope| {
            let asker = is_remote.then(|| Asker::start(scope, &self.held));
            let watch = (!self.around.is_empty()).then(|| Watch::start(scope, &self.around));
            let asker = asker.transpose().map_err(SpawnError::LivenessLock)?;
            let watch = watch.transpose().map_err(SpawnError::LivenessLock)?;
            Ok(work(asker, watch))
        })
    }

    fn stay_asking(
        &self,
        state: &mut RunState,
        end: End,
        asker: Option<Asker>,
        watch: Option<Watch>,
    ) -> Verdict {
        let descendants = state.descendants.take().map(Descendants::again);
        let Some(descendants) = descendants.or_else(|| Descendants::adopt().ok()) else {
            // The kernel does not report on children; the caller looks again.
            nap(ENTERED_LOOK);
            return Verdict::Command(end);
        };
        state.forget_questions();
        let now = instant();
        let began = state.began.unwrap_or(now);
        let mut supervision = Supervision::new(Terms {
            wait_all: true,
            ..self.terms
        });
        // Work that was asked to end before is not asked again. All else is as it was while the command
        // ran.
        if let Some(before) = state.asked.take().filter(|before| before.signalled) {
            supervision = supervision.after(before);
        }
        let _ = supervision.on(Event::Ended(end), now.saturating_duration_since(began));
        let mut running = Running {
            driver: self,
            asker,
            watch,
            // Our own number, by which no process is mistaken for the command.
            pid: getpid(),
            leader: None,
            group: None,
            supervision,
            // No process but this one could answer keys.
            placement: Placement::Own,
            began,
            notices: Vec::new(),
            notices_end: false,
            watches: false,
            unsure: false,
            places: None,
            descendants,
            watching_rest: true,
            collected: true,
            stays: Some(StayNotice::At(now + ENTERED_TOLD_AFTER)),
            killed: None,
            state,
        };
        let verdict = running.watch();
        running.state.descendants = Some(running.descendants);
        std::mem::forget(std::mem::take(&mut running.notices));
        verdict
    }

    fn run_asking(
        &self,
        mut command: Command,
        state: &mut RunState,
        asker: Option<Asker>,
        watch: Option<Watch>,
    ) -> Result<Verdict, SpawnError> {
        // The asker of an earlier driver has ended.
        state.forget_questions();
        let placement = Placement::find();
        let leader = (placement.own_group())
            .then(|| signals::Leader::of(&mut command))
            .flatten();
        signals::pause_if_asked();
        let mut descendants = match state.descendants.take() {
            Some(descendants) => descendants.again(),
            None => Descendants::adopt().map_err(|errno| SpawnError::Unseen(errno.into()))?,
        };
        descendants.before_start();
        // From here to the end of the spawn the command may inherit the liveness lock.
        self.hand_down(FdFlags::empty())?;
        let forked = BeforeFork::now();
        let name = |number| {
            self.name_command(number, forked, |index, held, process| {
                match asker.as_ref().filter(|_| held.store.is_remote()) {
                    Some(asker) => {
                        asker.ask(index, Question::Name(process, self.clock.now()));
                        Ok(true)
                    }
                    None => signals::unstopped(|| {
                        (held.store).name_command(held.handle, process, &self.clock.now())
                    }),
                }
            })
        };
        // All are asked: until its exec, the child has a copy of each.
        let by_number = self.close && self.descriptors().count() > 0;
        let started = if by_number {
            match signals::spawn_known(&mut command, name) {
                Ok(Ok((child, lost))) => Ok((child, Some(Ok(lost)))),
                Ok(Err(error)) => Err(SpawnError::Unnamed(error)),
                Err(error) => Err(SpawnError::Command(error)),
            }
        } else {
            let child = signals::as_received(|| command.spawn());
            child
                .map(|child| (child, None))
                .map_err(SpawnError::Command)
        };
        let stays_in_cgroup = descendants.after_start().err();
        // If this fails, a later child of ours would inherit the liveness lock; there is none.
        let _ = self.hand_down(FdFlags::CLOEXEC);
        let (child, named) = started?;
        let began = instant();
        state.began.get_or_insert(began);
        let number = child.id();
        let Some(pid) = i32::try_from(number).ok().and_then(Pid::from_raw) else {
            return Err(SpawnError::Command(std::io::ErrorKind::InvalidData.into()));
        };
        let group = leader.as_ref().map_or(pid, signals::Leader::group);
        // Only a terminal's group must outlive its last member; elsewhere the command keeps the group, and no dead child is seen.
        let leader = leader.filter(|_| cfg!(target_os = "linux") && placement.hands_over());
        let group = placement.own_group().then_some(group);
        placement.give(group.unwrap_or(pid));
        // After the spawn, because each handler costs the child two system calls on its way. A child that
        // ends before this line is found by the first look.
        self.signals.pass_on(placement.own_group());
        if let Some(message) = stays_in_cgroup {
            say(&message);
        }
        let named = named.unwrap_or_else(|| name(number));
        let supervision = Supervision::new(self.terms);
        let mut running = Running {
            driver: self,
            asker,
            watch,
            pid,
            leader,
            group,
            supervision: match state.asked {
                Some(before) => supervision.after(before),
                None => supervision,
            },
            placement,
            began,
            notices: Vec::new(),
            notices_end: false,
            watches: self.held.is_empty(),
            unsure: false,
            places: None,
            descendants,
            watching_rest: false,
            collected: false,
            stays: None,
            killed: None,
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
        running.take_back();
        // Collected before the lock is released: the next holder finds nothing of the command.
        running.collect();
        self.take_back(&running.descendants);
        running.state.descendants = Some(running.descendants);
        // Not closed here: that takes the kernel milliseconds, and the next waiter waits for the
        // release that follows. The end of this process closes them.
        std::mem::forget(std::mem::take(&mut running.notices));
        Ok(verdict)
    }

    /// What a command inherits of the locks that are held. To ask is to lend.
    fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.held.iter().filter_map(|held| held.handle.descriptor())
    }

    /// Says of the descriptors that were handed down that no process has a copy any more, if that is known.
    fn take_back(&self, descendants: &Descendants) {
        if descendants.none_is_left() {
            for held in &self.held {
                held.handle.taken_back();
            }
        }
    }

    fn hand_down(&self, flags: FdFlags) -> Result<(), SpawnError> {
        if self.close {
            return Ok(());
        }
        let around = self
            .around
            .iter()
            .filter_map(|around| around.part.descriptor());
        for liveness_lock in self.descriptors().chain(around) {
            retry_on_intr(|| fcntl_setfd(liveness_lock, flags))
                .map_err(|errno| SpawnError::LivenessLock(errno.into()))?;
        }
        Ok(())
    }
}

impl Running<'_> {
    /// The loop.
    fn watch(&mut self) -> Verdict {
        loop {
            let event = self
                .ended_or_stopped()
                .or_else(|| self.next_signal())
                .or_else(|| self.descendants());
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

    /// Keeps the terminal with the command, where the command has left the group that has the terminal and that may be
    /// empty now. A group of its own (timeout(1), setpgid(2)) gets the terminal, as it had it if it led its job. A session of
    /// its own can have no keys of this terminal: keys come here from then on, and are passed on.
    fn keep_terminal(&self) {
        if !self.placement.hands_over() || self.watching_rest {
            return;
        }
        if self.is_in_own_session() {
            self.take_back();
        } else if self.group.is_some_and(|made| self.placement.has_it(made))
            && group_of(self.pid) == Some(self.pid)
        {
            self.give();
            // What has read from the terminal before that was stopped.
            self.send(libc::SIGCONT);
        }
    }

    /// Sleeps until something happens, and deals with what only the time or the locks show.
    fn sleep(&mut self) -> Option<Verdict> {
        self.keep_terminal();
        let now = instant();
        let since = now.saturating_duration_since(self.began);
        let mut until = now + NAP_MAX;
        if self.placement.hands_over() {
            // No signal reports that the command has left its group or its session. Most that do so begin with it.
            until = now + since.clamp(SESSION_LOOK_FIRST, SESSION_LOOK);
        }
        // A lease runs out while the machine sleeps; all else stands still with it.
        let beat = self.state.next_ms().map_or(NAP_MAX, |beat_ms| {
            let left_ms = beat_ms.saturating_sub(lease_clock(self.driver.clock));
            NAP_MAX.min(Duration::from_millis(left_ms))
        });
        if let Some(step) = self.supervision.next_time() {
            until = until.min(self.began + step);
        }
        if self.unsure {
            until = until.min(now + UNSURE_LOOK);
        }
        if let Some(look) = self.next_look() {
            until = until.min(now + look);
        }
        if let Some((_, look)) = self.places {
            until = until.min(look);
        }
        // While the work ends, a request may still shorten its grace.
        if !self.watches {
            if since >= NEWS_AFTER {
                // Looking may begin an end, with times of its own; so the loop begins anew.
                self.open_notices();
                return None;
            }
            until = until.min(self.began + NEWS_AFTER);
        }
        let mut fds: Vec<BorrowedFd<'_>> = vec![self.driver.signals.descriptor()];
        fds.extend(
            self.notices
                .iter()
                .map(|notices| notices.descriptor.as_fd()),
        );
        fds.extend(self.asker.as_ref().map(Asker::bell));
        fds.extend(self.watch.as_ref().map(Watch::bell));
        // However the sleep ended: everything that can have happened is looked at now.
        let _ = poll_readable(&fds, beat, Some(until));
        self.after_sleep()
    }

    /// When to look at what is left of the work, although no signal reports on it.
    fn next_look(&self) -> Option<Duration> {
        match (self.supervision.is_ending(), self.watching_rest) {
            (true, true) => Some(REST_LOOK),
            (true, false) => Some(ORPHANS_LOOK),
            (false, true) if self.stays.is_some() => Some(ENTERED_LOOK),
            (false, true) if !self.descendants.adopts() => Some(GROUP_LOOK),
            (false, _) => None,
        }
    }

    fn after_sleep(&mut self) -> Option<Verdict> {
        while let Some((index, answer)) = self.asker.as_ref().and_then(Asker::answered) {
            if let Some(verdict) = self.on_answer(index, answer) {
                return Some(verdict);
            }
        }
        while let Some(index) = self.watch.as_ref().and_then(Watch::lost) {
            let (driver, ending) = (self.driver, self.supervision.is_ending());
            let event = self.state.lose_around(driver, index, ending);
            if let Some(verdict) = self.act(event) {
                return Some(verdict);
            }
        }
        let unsure = std::mem::take(&mut self.unsure);
        if !WATCHES && self.watches {
            let held = &self.driver.held;
            self.unsure = !held.is_empty() && !held.iter().any(|held| held.store.is_remote());
        }
        if self.drain_notices() || unsure {
            if self.notices_end {
                self.open_notices();
            } else if let Some(verdict) = self.look_at_locks() {
                return Some(verdict);
            }
        }
        if self.look_is_due()
            && let Some(verdict) = self.look_at_locks()
        {
            return Some(verdict);
        }
        for index in 0..self.state.holds.len() {
            let verdict = match self.state.due(self.driver, index) {
                Step::Nothing => None,
                Step::Ask(_) => self.begin_to_renew(index),
                Step::Unanswered => {
                    let (driver, ending) = (self.driver, self.supervision.is_ending());
                    let failed = self.state.on_no_answer(driver, index, ending);
                    self.follow(failed)
                }
            };
            if verdict.is_some() {
                return verdict;
            }
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

    /// How often the places of the locks have moved.
    fn moves(&self) -> u64 {
        self.driver.held.iter().map(|held| held.store.moves()).sum()
    }

    /// Whether a look at the locks is due that no notice asks for: the place of one is another one than at the
    /// last look, or others may have changed something there unseen.
    fn look_is_due(&mut self) -> bool {
        let now = instant();
        let Some((before, _)) = self.places.filter(|(_, look)| *look <= now) else {
            return false;
        };
        let moves = self.moves();
        let pause = self.pause();
        self.places = Some((moves, now + pause));
        moves != before || pause == OPEN_LOOK
    }

    /// How long the supervisor does without a look that no notice asks for.
    fn pause(&self) -> Duration {
        let held = &self.driver.held;
        let mut files = held.iter().filter(|held| !held.store.is_remote());
        let is_watched = self.notices.len() == held.len();
        if files.any(|held| !is_watched || held.store.others_may_write()) {
            OPEN_LOOK
        } else {
            PLACE_LOOK
        }
    }

    /// Opens the watch, or opens it again: a file that was replaced takes its watch with it.
    fn open_notices(&mut self) {
        self.watches = true;
        // Without it a cancel is noticed at the next renewal.
        let held = self.driver.held.iter();
        self.notices = held
            .filter_map(|held| held.store.notices(held.handle))
            .collect();
        self.notices_end = self.notices.iter().any(|notices| notices.ends_with_renewal);
        // Where nothing can be watched, the locks themselves are looked at all the time.
        if WATCHES && self.places.is_none() && !self.driver.held.is_empty() {
            self.places = Some((self.moves(), instant() + self.pause()));
        }
        // Finds what came before the watch was opened. A look may begin an end; it is never an end
        // itself, so there is no verdict to miss.
        let _ = self.look_at_locks();
    }

    /// Whether there were notices. Reads them all, so that they do not wake us twice.
    fn drain_notices(&mut self) -> bool {
        let mut any = false;
        let mut buffer = [0; 1024];
        self.notices.retain(|notices| {
            loop {
                match rustix::io::read(&notices.descriptor, &mut buffer) {
                    // The sender is gone; the descriptor would wake us again and again.
                    Ok(0) => return false,
                    Ok(_) => any = true,
                    Err(_) => return true,
                }
            }
        });
        any
    }

    fn look_at_locks(&mut self) -> Option<Verdict> {
        let driver = self.driver;
        for (index, held) in driver.held.iter().enumerate() {
            if let Some(asker) = self.asker_for(held) {
                asker.ask(index, Question::Verify(driver.clock.now()));
                continue;
            }
            let Some(seen) = (held.store).look_at_own(held.handle, &driver.clock.now()) else {
                continue;
            };
            let ending = self.supervision.is_ending();
            let followed = self.state.on_look(driver, index, seen, ending);
            if let Some(verdict) = self.follow(followed) {
                return Some(verdict);
            }
        }
        None
    }

    /// The asker, for a lock whose answers may take as long as a network does.
    fn asker_for(&self, held: &RunLock<'_>) -> Option<&Asker> {
        self.asker.as_ref().filter(|_| held.store.is_remote())
    }

    /// Renews, or has the asker renew, whose answer comes later.
    fn begin_to_renew(&mut self, index: usize) -> Option<Verdict> {
        let held = self.driver.held.get(index)?;
        let Some(asker) = self.asker_for(held) else {
            return self.renew(index);
        };
        let now = self.driver.clock.now();
        asker.ask(index, Question::Renew(now.clone()));
        self.state.begin(index, &now);
        None
    }

    fn on_answer(&mut self, index: usize, answer: StoreAnswer) -> Option<Verdict> {
        match answer {
            StoreAnswer::Named(Ok(false)) => self.lose(index),
            // The next renewal says whether the lock is still there.
            StoreAnswer::Named(Err(error)) => {
                self.driver.tell_unnamed(&error);
                None
            }
            StoreAnswer::Verified(renewal) => self.on_renewal(index, Ask::Look, renewal),
            StoreAnswer::Renewed(renewal) => self.on_renewal(index, Ask::Renew, renewal),
            StoreAnswer::Named(Ok(true)) => None,
        }
    }

    fn renew(&mut self, index: usize) -> Option<Verdict> {
        let driver = self.driver;
        let held = driver.held.get(index)?;
        let now = driver.clock.now();
        self.state.begin(index, &now);
        let renewal = signals::unstopped(|| held.store.renew(held.handle, &now));
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
        self.follow(followed)
    }

    fn lose(&mut self, index: usize) -> Option<Verdict> {
        let followed = (self.state).lose(self.driver, index, self.supervision.is_ending());
        self.follow(followed)
    }

    fn follow(&mut self, followed: Consequence) -> Option<Verdict> {
        self.unsure |= followed.is_unsure;
        self.act(followed.event)
    }

    /// Acts on what was found of a lock, if anything follows from it, and then says it.
    fn act(&mut self, event: Option<Event>) -> Option<Verdict> {
        let verdict = event.and_then(|event| self.handle(event));
        self.state.speak(self.driver);
        verdict
    }

    fn next_signal(&mut self) -> Option<Event> {
        let arrived = self.driver.signals.next()?;
        if arrived.number == libc::SIGCHLD {
            let event = self.ended_or_stopped();
            if event.is_none() && (!self.watching_rest || self.stays.is_some()) {
                // An adopted process has ended. This collects it.
                let _ = self.descendants.left(self.pid);
            }
            return event;
        }
        if arrived.number == libc::SIGCONT {
            self.reassure();
        }
        Some(Event::Signal {
            number: arrived.number,
            // The kernel sends keys to the whole foreground group, and the hang-up to all of it. An alarm is for one process.
            shared: arrived.from_kernel
                && signals::is_of_terminal(arrived.number)
                && !self.placement.own_group(),
            // macOS does not tell a key from a process.
            sender: (!arrived.from_kernel && !cfg!(target_os = "macos")).then_some(arrived.sender),
        })
    }

    /// The command's group: the one that was made for it, or one that it leads (setsid, a shell with job control). As a
    /// member that was not collected the command keeps the number from other groups. A command that was collected
    /// before we stayed keeps none.
    fn own_group(&self) -> Option<Pid> {
        let made = self.group.filter(|_| self.stays.is_none())?;
        if self.collected {
            return Some(made);
        }
        let group = group_of(self.pid)?;
        (group == made || group == self.pid).then_some(group)
    }

    /// Whether the command passes a signal on to this group, so that the group would get it twice: it has made the group
    /// within our session, as timeout(1) and a shell with job control do. For many programs a second SIGINT means
    /// *at once*. A command that has gone to a session of its own need not pass anything on.
    fn passes_on(&self, group: Pid, signal: Signal) -> bool {
        let asks = [Signal::INT, Signal::TERM, Signal::HUP, Signal::QUIT];
        asks.contains(&signal) && group == self.pid && !self.is_in_own_session()
    }

    /// Whether the command has gone to another session than ours.
    fn is_in_own_session(&self) -> bool {
        session_of(self.pid) != session_of(getpid())
    }

    /// Gives the terminal to the command's group.
    fn give(&self) {
        self.placement.give(self.own_group().unwrap_or(self.pid));
    }

    /// Whether the command's group has the terminal: the one that was made for it, or one that it has made.
    fn has_terminal(&self) -> bool {
        let groups = [self.group.unwrap_or(self.pid), self.pid];
        groups.into_iter().any(|group| self.placement.has_it(group))
    }

    /// Takes the terminal back from the command's group.
    fn take_back(&self) {
        self.placement.take_back(self.group.unwrap_or(self.pid));
        self.placement.take_back(self.pid);
    }

    /// Looks at what is left of the work, where that matters.
    fn descendants(&mut self) -> Option<Event> {
        if !self.watching_rest && !self.supervision.is_ending() {
            return None;
        }
        let ending = self.supervision.is_ending();
        let left = match self.stays {
            // What else the command left behind goes on.
            Some(_) if !ending => self.is_entered(),
            Some(_) => self.descendants.look(self.pid, None) | self.is_entered(),
            None if self.collected && !self.descendants.adopts() => false,
            None => self.descendants.look(self.pid, self.own_group()),
        };
        if left || !self.watching_rest {
            self.tell_of_survivors();
            return None;
        }
        // No process is seen. Only the kernel can prove that none is left, and it can be asked only
        // now.
        self.collect();
        if (self.stays.is_none() || ending) && self.descendants.is_left(self.own_group()) {
            self.tell_of_survivors();
            return None;
        }
        self.watching_rest = false;
        Some(Event::RestEnded)
    }

    /// Whether other runs work under one of the locks.
    fn is_entered(&self) -> bool {
        let mut held = self.driver.held.iter();
        held.any(|held| held.handle.is_entered())
    }

    /// Says why the end takes longer, for people who wait for the lock or for this run.
    fn tell_of_survivors(&mut self) {
        if let Some(StayNotice::At(at)) = self.stays
            && instant() >= at
            && !self.supervision.is_ending()
        {
            self.stays = Some(StayNotice::Done);
            self.driver.tell(
                "the command has ended; the lock stays held until what goes on under it \
                 (`run --reentrant`) has ended too",
            );
        }
        let Some(killed) = self.killed else { return };
        if instant().saturating_duration_since(killed) < SURVIVORS_TOLD_AFTER {
            return;
        }
        self.killed = None;
        let mut survivors = self.descendants.survivors(self.pid);
        if !self.watching_rest {
            survivors.push(self.pid);
        }
        let numbers: Vec<_> = survivors
            .iter()
            .map(|pid| pid.as_raw_pid().to_string())
            .collect();
        let who = match numbers.as_slice() {
            [] if self.descendants.adopts() => "a process that cannot be seen from here".to_owned(),
            [] => "a part of the command's process group".to_owned(),
            [one] => format!("PID {one}"),
            several => format!("the processes {}", several.join(", ")),
        };
        say(&format!(
            "SIGKILL has not ended {who} (frozen, another user's, or in a call of the kernel that cannot be \
             interrupted); the lock stays held until it is gone"
        ));
    }

    /// Whether the command has ended or stopped since the last look.
    fn ended_or_stopped(&mut self) -> Option<Event> {
        if self.watching_rest {
            return None;
        }
        // A command that has ended is left uncollected. Until it is collected, no other process can get
        // its number, and its group can be watched and ended without hitting a stranger.
        let any = WaitIdOptions::EXITED | WaitIdOptions::STOPPED | WaitIdOptions::NOHANG;
        let status = loop {
            match waitid(WaitId::Pid(self.pid), any | WaitIdOptions::NOWAIT) {
                Ok(Some(status)) => break status,
                Ok(None) => return None,
                Err(rustix::io::Errno::INTR) => {}
                // Only this process can collect the child, and it has been collected: it has ended, and
                // how cannot be known.
                Err(rustix::io::Errno::CHILD) => return Some(Event::Ended(End::Code(1))),
                Err(errno) => self.leave_unseen(errno),
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

    /// Collects the command, if that was not done yet. From here on another process may have its
    /// number.
    fn collect(&mut self) {
        if !std::mem::replace(&mut self.collected, true) {
            let ended = WaitIdOptions::EXITED | WaitIdOptions::NOHANG;
            let _ = waitid(WaitId::Pid(self.pid), ended);
        }
    }

    /// The kernel no longer reports on the command: a release would be a guess. So the claim is left to
    /// the liveness lock, which the command has inherited, or to its number in the record (`close`). A
    /// lock that has to be renewed would run out under the command, so there the command is killed
    /// first.
    #[cold]
    #[inline(never)]
    fn leave_unseen(&self, errno: rustix::io::Errno) -> ! {
        let lives_by_us = |held: &RunLock<'_>| held.store.is_remote() || held.store.publishes();
        let what = if self.driver.held.iter().any(lives_by_us) {
            self.send(libc::SIGKILL);
            "the command is killed, and the lock is not released"
        } else {
            "the lock is not released, and is free once the command has ended"
        };
        say(&format!(
            "the kernel refuses to tell of the command (waitid: {errno}), so its end cannot be seen; {what}"
        ));
        self.take_back();
        crate::exit::leave(crate::exit::Exit::General)
    }

    /// Passes a stop on to this process only if it reached the command's own foreground group. In a group
    /// that we share, the terminal has stopped us as well. A process may stop the command alone (by
    /// SIGSTOP, or where there is no terminal). It will continue the command alone, and would leave us
    /// stopped with the lock.
    fn stopped(&mut self, number: i32) -> Option<Event> {
        let reads_or_writes = matches!(number, libc::SIGTTIN | libc::SIGTTOU);
        if !(number == libc::SIGTSTP || reads_or_writes) || !self.placement.hands_over() {
            return None;
        }
        // The command wanted the terminal before it was handed over, or after `fg` of a running job,
        // which no signal reports. Now it gets the terminal.
        if reads_or_writes {
            if self.placement.is_ours() {
                self.give();
            }
            if self.has_terminal() {
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
                Action::Ask(number) => self.ask(number),
                Action::Continue => self.go_on(),
                Action::StopSelf(number) => self.stop_self(number),
                Action::WatchRest => self.watch_rest(),
                Action::Abandon(number) => {
                    self.take_back();
                    crate::exit::leave_at_once(crate::exit::signalled(number));
                }
                Action::Finish(verdict) => return Some(verdict),
            }
        }
        None
    }

    /// Stops with the command, and goes on with it: after `fg` the lock is looked at first.
    fn stop_self(&mut self, number: i32) {
        self.take_back();
        signals::stop_self(number);
        // We were continued, or never stopped, where no process could continue us. A lost lock ends the
        // command here; the SIGCONT that follows only lets it see that.
        self.reassure();
        self.go_on();
    }

    /// Renews and looks at the locks before the work goes on: the stop may have lasted longer than a
    /// lease.
    fn reassure(&mut self) {
        // Both may begin an end; neither is one.
        for index in 0..self.state.holds.len() {
            if self.state.due(self.driver, index) != Step::Nothing {
                let _ = self.renew(index);
            }
        }
        let _ = self.look_at_locks();
    }

    /// The command itself has ended. While what is left goes on, keys are for us: there is no
    /// leader any more that could answer them.
    fn watch_rest(&mut self) {
        self.watching_rest = true;
        self.leader = None;
        if !self.supervision.is_ending() {
            self.take_back();
        }
    }

    fn go_on(&mut self) {
        if let Placement::Foreground(_) = self.placement
            && !self.watching_rest
            && self.placement.is_ours()
        {
            self.give();
        }
        self.send(libc::SIGCONT);
    }

    fn ask(&mut self, number: i32) {
        self.send(number);
        if let Some(signal) = Signal::from_named_raw(number) {
            self.descendants.ask(signal, !self.collected);
        }
        if number == libc::SIGKILL {
            self.killed = Some(instant());
        }
    }

    fn send(&self, number: i32) {
        let Some(signal) = signals::signal_of(number).filter(|_| !self.collected) else {
            return;
        };
        // The command is our own child and not collected yet, so its number is its own, and so is that of its group. A
        // command that has joined another group gets the signal alone.
        let _ = match self
            .own_group()
            .filter(|group| !self.passes_on(*group, signal))
        {
            Some(group) => kill_process_group(group, signal),
            None => kill_process(self.pid, signal),
        };
    }
}
