//! Drives one acquisition against a store, and nothing more: the core says what to do next, the store does
//! it, and the caller learns how it ended.

use std::any::Any;
use std::future::poll_fn;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Poll, Waker};
use std::time::{Duration, Instant};
use tenure_core::{
    Attempt, Cancel, Claim, Effect, Entering, Entry, Event, Input, Kind, LOOK_AGAIN_MS,
    LOOK_AGAIN_SHORT_MS, Life, LockName, Mode, Now, Outcome, Patience, Policy, Predecessor,
    Process, RETRY_FLOOR_MS, Reason, Refusal, Request, RequestId, SHORT_LINE, STOPPED_GRACE_MS,
    Standing, Standstill, WATCH_MS, Watched, retry_after_ms,
};
use tenure_os::brief;
use tenure_os::cancel::{self, Cancel as CallersCancel};
use tenure_os::clock::{Clock, nap};
use tenure_os::offload::at_once;
use tenure_store::contract::{About, Ask, Depth, Outcome as StoreOutcome, Ring, Step};
use tenure_store::profile::ends_without_release;
use tenure_store::{Content, Handle, Reading, Store, StoreError, Verbs, Wake};

/// How long a sleep lasts at most before the list is looked at again. The kernel wakes a waiter when it is
/// its turn. This is for what no kernel tells: a lock file that was deleted by hand, and a waiter before this one that
/// does not act.
const LOOK_AGAIN: Duration = Duration::from_millis(LOOK_AGAIN_MS);

/// How long a sleep lasts at most in a short line. A waiter that `cancel` asked to stop leaves the line at once, and
/// ends at this look: a watch of the file would wake it at once, and would cost each waiter one of the 128 that a user
/// may have.
const LOOK_AGAIN_SHORT: Duration = Duration::from_millis(LOOK_AGAIN_SHORT_MS);

/// How long a caller that has just come watches a claim that, by the list, has not taken its turn for a grace.
const SECOND_LOOK: Duration = Duration::from_secs(1);

/// How long one change may take at least, also in a wait that has less time left. Only where another process keeps the guard,
/// or servers are silent, does a wait last longer than its caller said, and by no more than this for each change: the last
/// try, and the claim that leaves the line.
const LEAST_TRY: Duration = Duration::from_millis(500);

/// How long after an error of servers a waiter asks them again at the earliest.
const REACHED_AGAIN: Duration = Duration::from_millis(200);

/// How long a sleep lasts at most while the clock of a wait stands still, so that a holder that has died
/// meanwhile does not stop the clock for long.
const PAUSE_LOOK: Duration = Duration::from_secs(1);

/// How long a holder may take, beyond its grace, to be gone after it was killed.
const PAUSE_SLACK: Duration = Duration::from_secs(2);

/// How long a caller is willing to wait. A [`Duration`] is a wait of at most that long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Wait {
    /// Not at all.
    No,
    /// At most this long.
    For(Duration),
    /// Without a limit.
    Forever,
}

impl Wait {
    /// The limit of the wait; `None` without a wait or without a limit.
    pub fn limit(self) -> Option<Duration> {
        match self {
            Self::For(limit) => Some(limit),
            Self::No | Self::Forever => None,
        }
    }

    /// The end of a wait with a limit that began at `began`.
    pub fn deadline(self, began: Instant) -> Option<Instant> {
        began.checked_add(self.limit()?)
    }

    /// What is left of it after so long.
    #[must_use]
    pub fn after(self, passed: Duration) -> Self {
        match self {
            Self::For(limit) => Self::For(limit.saturating_sub(passed)),
            Self::No | Self::Forever => self,
        }
    }
}

impl From<Duration> for Wait {
    fn from(limit: Duration) -> Self {
        Self::For(limit)
    }
}

/// For which process a place is kept when the wait is over, and how long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Keep {
    /// The process whose life the place follows; `None` for none.
    pub owner: Option<Process>,
    /// How long it is kept.
    pub grace: Duration,
}

/// How long a caller waits, and what becomes of its place then.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// How long it waits.
    pub wait: Wait,
    /// The wait that the caller said, where `wait` is only what is left of it. The answer of a wait that ran out names this.
    pub said: Option<Duration>,
    /// `None` for a claim that leaves the queue.
    pub keep: Option<Keep>,
}

impl Limits {
    /// Limits of a caller that has just said how long it waits.
    pub fn new(wait: Wait, keep: Option<Keep>) -> Self {
        Self {
            wait,
            said: wait.limit(),
            keep,
        }
    }
}

impl From<Wait> for Limits {
    fn from(wait: Wait) -> Self {
        Self::new(wait, None)
    }
}

/// What a caller sees while it waits.
#[derive(Debug)]
#[non_exhaustive]
pub struct Waiting<'a> {
    /// The list; of a long one, perhaps not all.
    pub entry: &'a Entry,
    /// How many waiting claims before the caller's were left out of it.
    pub unread: usize,
    /// The caller's own ticket.
    pub ticket: u64,
    /// The instant at which this was seen.
    pub now: &'a Now,
    /// The claim that does not take its turn, and when it stands aside.
    pub standstill: Option<Standstill>,
}

impl<'a> Waiting<'a> {
    /// What a caller sees that stands in a line of its process, behind every claim of the list and behind so many callers.
    pub fn in_line(entry: &'a Entry, before: usize, now: &'a Now) -> Self {
        Self {
            entry,
            unread: before,
            ticket: u64::MAX,
            now,
            standstill: None,
        }
    }

    /// How many claims wait before the caller's. Holders are not counted, and neither are claims that stand
    /// in line for nothing.
    pub fn before(&self) -> usize {
        let waiting = self.entry.claims.iter();
        let waiting = waiting.filter(|claim| claim.token.is_none() && claim.is_in_line());
        waiting.filter(|claim| claim.ticket < self.ticket).count() + self.unread
    }

    /// The claim at the front.
    pub fn front(&self) -> Option<&Claim> {
        self.entry.front()
    }
}

/// An observer is notified of a wait as it goes on.
pub trait Observer {
    /// Called when the wait begins, whenever the list was looked at, and at the instant that the
    /// previous call asked for. Answers when to be called again.
    fn waiting(&mut self, waiting: &Waiting<'_>) -> Option<Instant>;

    /// Whether the caller gives up because it waits for a holder that waits for the caller. Asked right
    /// before each sleep.
    fn gives_way(&mut self, _: &Waiting<'_>) -> bool {
        false
    }

    /// Called while another process keeps every caller from the list, in the middle of a change. Answers whether the
    /// caller waits on: no sleep hears that it does not.
    fn hindered(&mut self, _: &StoreError) -> bool {
        true
    }

    /// What the slots of the lock stand for by now, if that is another list than the claim has. Asked before the claim looks
    /// whether it is its turn: a list may be edited while it waits.
    fn members(&mut self) -> Option<Vec<String>> {
        None
    }
}

/// Shows nothing.
#[derive(Debug, Clone, Copy, Default)]
pub struct Silent;

impl Observer for Silent {
    fn waiting(&mut self, _: &Waiting<'_>) -> Option<Instant> {
        None
    }
}

/// A lock that is held.
#[derive(Debug)]
pub struct Acquired {
    /// The claim in the store; `None` for a hold that the owner had already.
    pub handle: Option<Box<dyn Handle>>,
    /// The claim as granted.
    pub claim: Claim,
    /// What an audit would record.
    pub events: Vec<Event>,
    /// Whether it was held already, by an earlier claim of the same owner.
    pub already: bool,
    /// How much of the caller's time the wait has used up.
    pub waited: Duration,
    /// The request ids of claims, waiting or holding, that were asked to give up their place to this claim.
    pub displaced: Vec<RequestId>,
    /// Whether no hold of this lock has ended by a release yet, as for a name that is used for the first time.
    pub is_first: bool,
}

/// Why a lock was not acquired.
#[derive(Debug)]
pub enum AcquireError {
    /// A live claim has it, or a stale one that this profile leaves alone.
    Refused {
        /// Why.
        refusal: Box<Refusal>,
        /// The list as it was seen last.
        entry: Box<Entry>,
        /// How long the caller waited; `None` if it did not want to wait.
        waited: Option<Duration>,
        /// When a retry is likely to succeed.
        retry_after_ms: u64,
        /// The ticket under which the caller's place is kept, if it is.
        kept: Option<u64>,
        /// The request ids of claims, waiting or holding, that were asked to give up their place to this claim. They do
        /// not come back.
        displaced: Vec<RequestId>,
    },
    /// The caller interrupted the wait. Its claim has left the queue.
    Interrupted,
    /// Another caller asked this claim to stop before it held the lock.
    Superseded {
        /// The request of that caller.
        by: Box<Cancel>,
    },
    /// The place that the caller wanted back is not kept (any more).
    NotKept,
    /// The holder of the lock waits for the caller itself, and the observer gave way.
    Deadlock,
    /// The store failed.
    Store(StoreError),
}

impl std::fmt::Display for AcquireError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Refused { .. } => f.write_str("the lock was not acquired"),
            Self::Interrupted => f.write_str("the wait was interrupted"),
            Self::Superseded { by } => write!(f, "superseded by {}", by.by),
            Self::NotKept => f.write_str("no place is kept under this ticket"),
            Self::Deadlock => f.write_str("waiting would never end"),
            Self::Store(error) => error.fmt(f),
        }
    }
}

impl From<StoreError> for AcquireError {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl std::error::Error for AcquireError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Store(error) => error.source(),
            _ => None,
        }
    }
}

/// Acquires a lock: enters, waits, and answers. A claim that gives up has left the queue before
/// the answer.
///
/// # Errors
/// - [`AcquireError::Refused`] if it is held and the wait was over or not wanted.
/// - [`AcquireError::Interrupted`] if the store's sleeper was interrupted.
/// - [`AcquireError::Superseded`] if another claim asked this one to stop.
/// - [`AcquireError::NotKept`] if the request names a ticket under which nothing is kept.
/// - [`AcquireError::Deadlock`] if the observer gave way.
/// - [`AcquireError::Store`] if the store failed.
pub fn acquire(
    store: &dyn Store,
    clock: &dyn Clock,
    name: &LockName,
    request: Request,
    limits: impl Into<Limits>,
    observer: &mut dyn Observer,
) -> Result<Acquired, AcquireError> {
    // Without a lot it sleeps on this thread.
    let limits = limits.into();
    at_once(acquire_in(
        None, store, clock, name, request, limits, observer,
    ))
}

/// Where waits sleep that have no thread of their own.
pub trait Lot: Sync {
    /// Has a waker woken at that instant, for as long as the answer is kept.
    ///
    /// # Errors
    /// - The system's answer, if it gives no thread for that.
    fn wakes_at(&self, at: Instant, waker: &Waker) -> io::Result<Box<dyn Any + Send>>;

    /// Says that the present thread sleeps, for as long as the answer is kept: the store knows no other sleep.
    fn sleeps(&self) -> Box<dyn Any>;
}

/// [`acquire`] for a caller without a thread: it sleeps in the lot. The store's changes block the thread that polls it, as
/// long as they take. The [`Cancel`](tenure_os::cancel::Cancel) that the thread listens to has to be the same at each poll.
///
/// # Errors
/// - As [`acquire`].
pub async fn acquire_in<C: Clock + ?Sized, O: Observer + ?Sized>(
    lot: Option<&dyn Lot>,
    store: &dyn Store,
    clock: &C,
    name: &LockName,
    request: Request,
    limits: Limits,
    observer: &mut O,
) -> Result<Acquired, AcquireError> {
    let Limits { wait, said, keep } = limits;
    let began = clock.instant();
    let deadline = wait.deadline(began);
    let mut run = AcquireRun {
        lot,
        store,
        clock,
        name,
        mode: request.terms.mode,
        deadline,
        keep,
        kept: None,
        gave_way: false,
        paused: Duration::ZERO,
        observer,
        waits: wait != Wait::No,
        in_line: false,
        watched: Watched::default(),
        displaced: Vec::new(),
        kept_away: None,
        handle: None,
        entry: Entry::default(),
        unread: 0,
        events: Vec::new(),
    };
    let request = Request {
        patience: match wait {
            Wait::No => Patience::AtOnce,
            Wait::For(_) | Wait::Forever => Patience::Queue,
        },
        ..request
    };
    let outcome = match run.drive(request).await {
        Err(error) if is_kept_away(&error) && run.is_over() => {
            // By dying, the claim of this caller is out of its own way, and the next caller sweeps it.
            run.handle = None;
            run.kept_away = Some(error);
            Outcome::TimedOut
        }
        Err(error) => {
            if let Some(handle) = run.handle.as_ref().filter(|_| run.is_over()) {
                handle.forsake();
            }
            return Err(error.into());
        }
        Ok(outcome) => outcome,
    };
    let elapsed = clock.instant().saturating_duration_since(began);
    let counted = elapsed.saturating_sub(run.paused);
    let waited = match wait {
        // Nothing may be left of a wait.
        Wait::No => said.filter(|said| !said.is_zero()),
        // What the caller said is what is said, whatever the clock shows when the wait has run out.
        Wait::For(asked) if matches!(outcome, Outcome::TimedOut) => Some(said.unwrap_or(asked)),
        Wait::For(asked) => Some(counted.min(asked)),
        Wait::Forever => Some(counted),
    };
    run.answer(outcome, waited, counted)
}

struct AcquireRun<'a, C: ?Sized, O: ?Sized> {
    lot: Option<&'a dyn Lot>,
    store: &'a dyn Store,
    clock: &'a C,
    name: &'a LockName,
    mode: Mode,
    deadline: Option<Instant>,
    keep: Option<Keep>,
    /// The ticket under which the place is kept.
    kept: Option<u64>,
    gave_way: bool,
    /// How long the clock of the wait has stood still.
    paused: Duration,
    observer: &'a mut O,
    waits: bool,
    /// Whether the caller has stood in line: what keeps the caller from the list from now on passes.
    in_line: bool,
    watched: Watched,
    displaced: Vec<RequestId>,
    /// Why the last change failed when the wait was over.
    kept_away: Option<StoreError>,
    handle: Option<Box<dyn Handle>>,
    entry: Entry,
    unread: usize,
    events: Vec<Event>,
}

impl<C: Clock + ?Sized, O: Observer + ?Sized> AcquireRun<'_, C, O> {
    async fn drive(&mut self, mut request: Request) -> Result<Outcome, StoreError> {
        let (mut attempt, mut effect) = Attempt::start();
        if self.keep.is_some() {
            attempt = attempt.keeping_place();
        }
        let mut ticket = 0;
        loop {
            // A grant of a free lock takes moments. Whatever else there is to do may sleep.
            if !matches!(effect, Effect::Enter | Effect::Finish(_)) {
                brief::elsewhere().await;
            }
            let input = match effect {
                Effect::Finish(outcome) => return Ok(outcome),
                Effect::Enter => match self.enter(&mut request, &mut ticket).await? {
                    Some(entering) => Input::Entered(entering),
                    None => Input::Interrupted,
                },
                Effect::Sleep { behind } => match &self.handle {
                    Some(handle) => {
                        let now = self.clock.now();
                        let waiting = Waiting {
                            entry: &self.entry,
                            unread: self.unread,
                            ticket,
                            now: &now,
                            standstill: standstill(&behind),
                        };
                        let next = self.observer.waiting(&waiting);
                        if self.observer.gives_way(&waiting) {
                            self.gave_way = true;
                            Input::Interrupted
                        } else {
                            let began = self.clock.instant();
                            let pause = pause(&self.entry, &request, &now);
                            let pause = pause.and_then(|_| self.pause_heard(&request, &now));
                            let end = match pause {
                                Some(rest) => began.checked_add(rest.min(PAUSE_LOOK)),
                                None => self.deadline,
                            };
                            // Servers tell of a request by themselves.
                            let is_short = self.entry.claims.len() + self.unread <= SHORT_LINE
                                && !self.store.rules().network;
                            let watches = watches(&mut self.watched, &behind);
                            let look = if is_short || watches {
                                LOOK_AGAIN_SHORT
                            } else {
                                LOOK_AGAIN
                            };
                            let planned = look;
                            let look = began.checked_add(look);
                            let until = [next, look, end].into_iter().flatten().min();
                            let wake = self.sleep(&**handle, &behind, &now, until).await?;
                            let slept = self.clock.instant().saturating_duration_since(began);
                            if watches {
                                self.watched.ms += whole_ms(slept.min(planned));
                            }
                            if pause.is_some() {
                                self.paused = self.paused.saturating_add(slept);
                                self.deadline =
                                    self.deadline.and_then(|end| end.checked_add(slept));
                            }
                            match wake {
                                Wake::Interrupted => Input::Interrupted,
                                Wake::Expired if self.is_over() => Input::Expired,
                                Wake::Expired | Wake::Ready => Input::Woken,
                            }
                        }
                    }
                    None => Input::Interrupted,
                },
                Effect::Look => self.look()?,
                Effect::Leave => {
                    if let Some(handle) = self.handle.take() {
                        self.leave(&*handle)?;
                    }
                    Input::Left
                }
                Effect::Reserve => match (&self.handle, self.keep) {
                    (Some(handle), Some(keep)) => {
                        let grace = keep.grace.as_millis();
                        let grace_ms = u64::try_from(grace).unwrap_or(u64::MAX);
                        let now = self.clock.now();
                        let within = self.rest();
                        if (self.store).reserve(&**handle, keep.owner, grace_ms, &now, within)? {
                            self.kept = Some(ticket);
                            self.handle = None;
                            Input::Left
                        } else {
                            Input::Woken
                        }
                    }
                    _ => Input::Interrupted,
                },
            };
            // A deadline that passed during the look ends the wait as well.
            let over =
                matches!(input, Input::Tried(tenure_core::TryGrant::Behind(_))) && self.is_over();
            effect = attempt.on(if over { Input::Expired } else { input });
        }
    }

    /// Sleeps on this thread, or in the lot. An alarm goes by the clock of the wait, which stands still while the machine
    /// sleeps: a look at a lease comes late by a nap then, 10 s at most. A bell ends the sleep in any case.
    async fn sleep(
        &self,
        handle: &dyn Handle,
        behind: &Predecessor,
        now: &Now,
        until: Option<Instant>,
    ) -> Result<Wake, StoreError> {
        let Some(lot) = self.lot else {
            return self.store.sleep(handle, behind, now, until);
        };
        let waker = poll_fn(|context| Poll::Ready(context.waker().clone())).await;
        let has_rung = Arc::new(AtomicBool::new(false));
        let ring: Ring = {
            let (has_rung, waker) = (Arc::clone(&has_rung), waker.clone());
            Arc::new(move || {
                has_rung.store(true, Ordering::SeqCst);
                waker.wake_by_ref();
            })
        };
        let cancel = cancel::heard();
        let is_cancelled = || cancel.as_ref().is_some_and(CallersCancel::is_cancelled);
        let _hears = cancel.as_ref().map(|cancel| {
            let waker = waker.clone();
            cancel::rings(cancel, move || waker.wake_by_ref())
        });
        let parked = self.store.park_behind(handle, behind, now, &ring)?;
        let end = parked.as_ref().and_then(|parked| parked.until);
        let end = until.into_iter().chain(end).min();
        let alarm = end.map(|end| lot.wakes_at(end, &waker)).transpose();
        let (Some(_parked), Ok(_alarm)) = (parked, alarm) else {
            let _sleeps = lot.sleeps();
            return self.store.sleep(handle, behind, now, until);
        };
        poll_fn(|_| {
            let is_over = end.is_some_and(|end| end <= self.clock.instant());
            if is_cancelled() {
                Poll::Ready(Ok(Wake::Interrupted))
            } else if has_rung.load(Ordering::SeqCst) {
                Poll::Ready(Ok(Wake::Ready))
            } else if is_over {
                Poll::Ready(Ok(Wake::Expired))
            } else {
                Poll::Pending
            }
        })
        .await
    }

    /// Enters the list; `None` if the caller interrupted before.
    async fn enter(
        &mut self,
        request: &mut Request,
        ticket: &mut u64,
    ) -> Result<Option<Entering>, StoreError> {
        loop {
            let now = self.clock.now();
            if !self.store.rules().network {
                request.terms.watched = Some(self.watched);
            }
            let within = self.rest();
            let entered = match (self.store).enter_within(self.name, &*request, &now, within) {
                // Nothing was changed. A thread that may wait for the list does this again.
                Err(error) if is_kept_away(&error) && !brief::may_sleep() => {
                    brief::elsewhere().await;
                    continue;
                }
                Err(error) if self.outlasts(&error) => {
                    if !self.is_hindered(&error) {
                        return Ok(None);
                    }
                    continue;
                }
                entered => entered?,
            };
            // A place that was kept is found once.
            request.terms.kept = None;
            self.handle = entered.handle;
            self.entry = entered.entry;
            self.unread = entered.unread;
            self.note_displaced(&entered.events);
            self.events.extend(entered.events);
            if let Entering::Queued { ticket: own, .. } = &entered.entering {
                *ticket = *own;
                self.in_line = true;
            }
            if !matches!(entered.entering, Entering::Granted { .. }) {
                brief::elsewhere().await;
            }
            if !self.looks_twice(&entered.entering)? {
                return Ok(Some(entered.entering));
            }
        }
    }

    /// Whether a wait goes on after an error: another process keeps the guard, others change the list all the time, or the
    /// servers of a claim that stands in line are out of reach. A caller that waits waits for them as long as it said.
    fn outlasts(&self, error: &StoreError) -> bool {
        let passes = is_kept_away(error) || (is_out_of_reach(error) && self.in_line);
        passes && self.waits && !self.is_over()
    }

    /// Tells the observer what keeps the wait, and gives it a moment. Answers whether the caller waits on.
    fn is_hindered(&mut self, error: &StoreError) -> bool {
        if is_out_of_reach(error) {
            // Servers that refuse answer at once.
            nap(REACHED_AGAIN);
        }
        self.observer.hindered(error)
    }

    /// How long the next change may take; `None` for as long as the store takes by itself.
    fn rest(&self) -> Option<Duration> {
        let deadline = self.deadline?;
        let rest = deadline.saturating_duration_since(self.clock.instant());
        Some(rest.max(LEAST_TRY))
    }

    /// Gives up a claim that waits. Where another process keeps the guard, the claim dies with its handle instead, and the
    /// next caller sweeps it.
    fn leave(&self, handle: &dyn Handle) -> Result<(), StoreError> {
        let now = self.clock.now();
        let left = match self.rest() {
            Some(rest) => self.store.give_up(handle, &now, rest),
            None => self.store.release(handle, &now),
        };
        match left {
            Err(error) if !is_kept_away(&error) => {
                // Nobody waits for what servers say of a claim that has given up.
                handle.forsake();
                Err(error)
            }
            _ => Ok(()),
        }
    }

    /// Whether a caller that has just come enters once more. The list says that a claim has not taken its turn for a
    /// grace, and no caller has seen it. This one looks twice, and so does a caller that does not wait.
    fn looks_twice(&mut self, entering: &Entering) -> Result<bool, StoreError> {
        let still = match entering {
            Entering::Queued { behind, .. } => standstill(behind),
            Entering::Refused(refusal) => refusal.standstill,
            Entering::Granted { .. } | Entering::Yours { .. } | Entering::NotKept => None,
        };
        let has_seen = self.watched.front != 0;
        let untaken = still.filter(|still| !still.is_stopped && !has_seen);
        let Some(still) = untaken.filter(|still| still.since_ms >= STOPPED_GRACE_MS) else {
            return Ok(false);
        };
        let second = whole_ms(SECOND_LOOK);
        self.watched = Watched {
            front: still.front,
            ms: WATCH_MS - second,
        };
        if !matches!(entering, Entering::Refused(_)) {
            return Ok(false);
        }
        let reading = self.store.read(self.name, None)?;
        let began = self.clock.instant();
        let until = began.checked_add(SECOND_LOOK);
        let wake = (self.store).watch(self.name, &reading, &self.clock.now(), until)?;
        let slept = self.clock.instant().saturating_duration_since(began);
        self.watched.ms += whole_ms(slept.min(SECOND_LOOK));
        Ok(wake != Wake::Interrupted)
    }

    /// Looks whether the claim holds now.
    fn look(&mut self) -> Result<Input, StoreError> {
        let Some(handle) = &self.handle else {
            return Ok(Input::Interrupted);
        };
        if let Some(members) = self.observer.members() {
            let now = self.clock.now();
            // Where that fails because others keep everybody from the list, so does the look that follows.
            match (self.store).set_members(&**handle, &members, &now, self.rest()) {
                Err(error) if !self.outlasts(&error) => return Err(error),
                Ok(_) | Err(_) => {}
            }
        }
        let watched = self.watched;
        let (now, within) = (self.clock.now(), self.rest());
        let tried = match (self.store).try_grant_having(&**handle, watched, &now, within) {
            Err(error) if self.outlasts(&error) => {
                return Ok(if self.is_hindered(&error) {
                    Input::Woken
                } else {
                    Input::Interrupted
                });
            }
            tried => tried?,
        };
        self.entry = tried.entry;
        self.unread = tried.unread;
        self.events.extend(tried.events);
        Ok(Input::Tried(tried.grant))
    }

    /// How long the clock stands still for holders that can hear a request to stop. A holder whose
    /// supervisor is dead cannot hear it, so it stops no clock.
    fn pause_heard(&self, request: &Request, now: &Now) -> Option<Duration> {
        let mut heard = self.entry.clone();
        if let Ok(reading) = self.store.read(self.name, None) {
            let policy = &self.store.rules().policy;
            let orphaned = Standing::Held(Life::Orphaned);
            (heard.claims).retain(|claim| reading.standing_of(policy, claim, now) != orphaned);
        }
        pause(&heard, request, now)
    }

    fn note_displaced(&mut self, events: &[Event]) {
        for event in events {
            let claim = match event {
                Event::Displaced { claim } => Some(&**claim),
                Event::CancelRequested { ticket } => self.entry.claim(*ticket),
                _ => None,
            };
            let id = claim.map(|claim| claim.holder.request_id.clone());
            self.displaced.extend(id);
        }
    }

    fn is_over(&self) -> bool {
        self.deadline
            .is_some_and(|deadline| self.clock.instant() >= deadline)
    }

    fn answer(
        mut self,
        outcome: Outcome,
        waited: Option<Duration>,
        counted: Duration,
    ) -> Result<Acquired, AcquireError> {
        let policy = self.store.rules().policy;
        let (kept, keep) = (self.kept, self.keep);
        let refused = |refusal: Refusal, entry: Entry, now: &Now| {
            // A holder without a supervisor was asked, and its work goes on.
            let goes_on = |id: &RequestId| {
                entry.granted().any(|claim| {
                    claim.holder.request_id == *id
                        && (claim.kind != Kind::Kernel || ends_without_release(claim))
                })
            };
            let asked = self.displaced.iter();
            let displaced = asked.filter(|id| !goes_on(id)).cloned().collect();
            let mut retry_after_ms = comes_back_ms(&refusal, &entry, &policy, now);
            if let (Some(_), Some(keep)) = (kept, keep) {
                // A caller that comes back when told to must find its place.
                let grace_ms = u64::try_from(keep.grace.as_millis()).unwrap_or(u64::MAX);
                retry_after_ms = retry_after_ms.min(grace_ms / 2).max(RETRY_FLOOR_MS);
            }
            AcquireError::Refused {
                refusal: Box::new(refusal),
                entry: Box::new(entry),
                waited,
                retry_after_ms,
                kept,
                displaced,
            }
        };
        match outcome {
            Outcome::Granted { ticket, .. } | Outcome::Yours { ticket, .. } => {
                // The rest of the list is of no use to a caller that has the lock.
                let claims = std::mem::take(&mut self.entry.claims);
                match claims.into_iter().find(|claim| claim.ticket == ticket) {
                    Some(claim) => Ok(Acquired {
                        already: self.handle.is_none(),
                        handle: self.handle,
                        claim,
                        events: self.events,
                        waited: counted,
                        displaced: self.displaced,
                        is_first: self.entry.history.holds == 0,
                    }),
                    None => Err(AcquireError::Interrupted),
                }
            }
            Outcome::Refused(refusal) => Err(refused(refusal, self.entry, &self.clock.now())),
            Outcome::TimedOut => {
                // The blocker is looked at once more, without a claim of this caller's.
                let (refusal, entry) = still_held(self.store, self.clock, self.name, self.mode)?;
                match self.kept_away {
                    // Nobody is seen to hold it, so that process alone is what this caller waited for.
                    Some(error) if refusal.blocker.is_none() => Err(error.into()),
                    _ => Err(refused(refusal, entry, &self.clock.now())),
                }
            }
            Outcome::Interrupted if self.gave_way => Err(AcquireError::Deadlock),
            Outcome::Interrupted => Err(AcquireError::Interrupted),
            Outcome::NotKept => Err(AcquireError::NotKept),
            Outcome::Superseded { by } => Err(AcquireError::Superseded { by }),
        }
    }
}

/// Whether a change failed because others keep every caller from the list.
fn is_kept_away(error: &StoreError) -> bool {
    matches!(error, StoreError::Stuck { .. } | StoreError::Crowded { .. })
}

/// Whether servers are out of reach.
fn is_out_of_reach(error: &StoreError) -> bool {
    matches!(error, StoreError::Unreachable { .. })
}

/// What blocks a caller that timed out: the lock, looked at once more without a claim of this caller's.
fn still_held<C: Clock + ?Sized>(
    store: &dyn Store,
    clock: &C,
    name: &LockName,
    mode: Mode,
) -> Result<(Refusal, Entry), StoreError> {
    let policy = store.rules().policy;
    let reading = if store.rules().network {
        read_soon(store, name, &clock.now())?
    } else {
        store.read(name, None)?
    };
    let now = clock.now();
    let refusal = refusal_of(&reading, &policy, mode, Reason::Held, &now);
    let entry = reading.entry().cloned().unwrap_or_default();
    Ok((refusal, entry))
}

/// The refusal of a claim of this mode, from a look at the lock.
pub(crate) fn refusal_of(
    reading: &Reading,
    policy: &Policy,
    mode: Mode,
    reason: Reason,
    now: &Now,
) -> Refusal {
    let (standing, blocker) = reading.standing(policy, now);
    let standstill = reading.standstill(policy, now);
    let mut refusal = Refusal::new(reason, standing, blocker.cloned());
    refusal.standstill = standstill.map(|(still, _)| still);
    refusal.ahead = reading.ahead_of(policy, mode, now).cloned().map(Box::new);
    refusal
}

/// Reads a lock, for a caller that timed out: servers that are silent are waited for no longer than by its last try. A
/// change that keeps the list has that bound, and a reading has none.
fn read_soon(store: &dyn Store, name: &LockName, now: &Now) -> Result<Reading, StoreError> {
    let mut content = Content::Whole {
        entry: Entry::default(),
        evidence: Vec::new(),
    };
    let ask = Ask::new(name, About::All, now).within(Some(LEAST_TRY));
    let outcome = store.transact(&ask, &mut |draft| {
        content = match &draft.corrupt {
            Some(corrupt) => Content::Unreadable {
                why: corrupt.why.clone(),
                silence: corrupt.silence,
            },
            None => Content::Whole {
                evidence: (draft.entry.claims.iter())
                    .map(|claim| (draft.evidence)(claim, Depth::Thorough))
                    .collect(),
                entry: draft.entry.clone(),
            },
        };
        Step::Keep
    })?;
    Ok(Reading {
        place: store.location(name).shown,
        content,
        stopped: Vec::new(),
        stored: matches!(outcome, StoreOutcome::Done(_)),
        record: Vec::new(),
    })
}

/// When a caller that was refused should come back.
fn comes_back_ms(refusal: &Refusal, entry: &Entry, policy: &Policy, now: &Now) -> u64 {
    match refusal.standstill {
        // No claim holds: the next claims stand aside then.
        Some(still) => still.rest_ms.max(RETRY_FLOOR_MS),
        None => retry_after_ms(entry, policy, now),
    }
}

/// The answer to a caller whose time was up before it came to the list.
pub fn timed_out(
    store: &dyn Store,
    clock: &dyn Clock,
    name: &LockName,
    mode: Mode,
    waited: Duration,
) -> AcquireError {
    match still_held(store, clock, name, mode) {
        Ok((refusal, entry)) => AcquireError::Refused {
            retry_after_ms: comes_back_ms(&refusal, &entry, &store.rules().policy, &clock.now()),
            refusal: Box::new(refusal),
            entry: Box::new(entry),
            waited: Some(waited),
            kept: None,
            displaced: Vec::new(),
        },
        Err(error) => AcquireError::Store(error),
    }
}

/// Whether the next claim does not take its turn, without being seen to be stopped: from now on the caller counts for
/// how long it sees that itself. A sleep that lasts longer than planned counts as planned: the machine slept, or
/// this process was stopped, perhaps together with the other one.
fn watches(watched: &mut Watched, behind: &Predecessor) -> bool {
    let Some(still) = standstill(behind).filter(|still| !still.is_stopped) else {
        *watched = Watched::default();
        return false;
    };
    if watched.front != still.front {
        *watched = Watched {
            front: still.front,
            ms: 0,
        };
    }
    true
}

fn whole_ms(length: Duration) -> u64 {
    u64::try_from(length.as_millis()).unwrap_or(u64::MAX)
}

/// The claim that does not take its turn.
fn standstill(behind: &Predecessor) -> Option<Standstill> {
    match behind {
        Predecessor::Still { still, .. } => Some(*still),
        Predecessor::LivenessLock { .. }
        | Predecessor::Record(_)
        | Predecessor::Turn { .. }
        | Predecessor::AnyOf(_) => None,
    }
}

/// How long the clock of a wait stands still from now on, while a holder that this caller asked to stop
/// takes its time to end. The bound is twice the holder's grace (its way out may run work as well) and
/// [`PAUSE_SLACK`]. A hold without a grace has no supervisor that could be asked, so it stops no clock.
fn pause(entry: &Entry, request: &Request, now: &Now) -> Option<Duration> {
    if !request.terms.cancel_in_progress {
        return None;
    }
    let hearing = entry.granted().filter(|claim| claim.grace_ms > 0);
    let rests = hearing.filter_map(|claim| {
        let cancel = claim.cancel.as_ref()?;
        let boot = claim.boot();
        let asked = Duration::from_millis(cancel.at.age_ms(boot, now));
        let grace = Duration::from_millis(claim.grace_ms);
        (grace * 2 + PAUSE_SLACK).checked_sub(asked)
    });
    rests.max().filter(|rest| !rest.is_zero())
}
