//! How a manager uses its lines: a caller that wants a lock takes its turn, and enters the store with it.
//!
//! Only callers that take turns with others of their process ([`Again::Wait`]) stand in a line. Any other caller
//! is refused if its process holds the lock, now or when it has waited for another process. So it stands in the
//! list itself, where each look decides that anew, and enters the store on a thread of its own.
//!
//! A blocking caller waits on its own thread. An async caller leaves an [`Errand`]; one thread runs those of
//! a line, one after the other, while there are any. One more thread of the manager ends the waits of errands
//! whose time is up ([`Deadlines`]). The answers to these, and notices to callers that they wait, have a line of
//! their own, so that one thread gives them.
//!
//! What happens in the store is the [`engine`]'s business, and how a line works that of `line`.

use super::line::{self, Joined, Standing};
use super::{AcquireError, Again, Guard, LockManager, OnWait, Options, Refused, Shared, Wait};
use crate::cancel::{self, Cancel};
use crate::engine::{self, Waiting};
use crate::offload::{self, Logs, Promise};
use crate::sync::{locked, thread};
use std::any::Any;
use std::collections::BTreeMap;
use std::io;
use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError, Weak};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};
use tenure_core::{LockName, Mode};

/// What callers stand in a line for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum For {
    /// A place in the store's queue.
    Waiting,
    /// An answer of the store, at once.
    Asking,
}

/// Which line, shared by all that remember a place in it.
type Key = Arc<(LockName, For)>;

fn key(name: &LockName, line: For) -> Key {
    Arc::new((name.clone(), line))
}

pub(super) type Lines = line::Lines<Key, Errand>;
pub(super) type Turn = line::Turn<Key, Errand>;

/// One call for a lock.
#[derive(Debug, Clone, Copy)]
pub(super) struct Call {
    pub(super) mode: Mode,
    /// How long the caller is willing to wait, from here on.
    wait: Wait,
    began: Instant,
    /// Whether it stood behind others in the line.
    stood: bool,
}

impl Call {
    fn new(shared: &Shared, mode: Mode, wait: Wait) -> Self {
        Self {
            mode,
            wait,
            began: shared.clock.instant(),
            stood: false,
        }
    }

    fn deadline(&self) -> Option<Instant> {
        self.wait.deadline(self.began)
    }

    /// How long it stood in the line. The store counts from there on.
    pub(super) fn stood(&self, shared: &Shared) -> Duration {
        if !self.stood {
            return Duration::ZERO;
        }
        let now = shared.clock.instant();
        now.saturating_duration_since(self.began)
    }

    /// What is left of the wait for the store.
    pub(super) fn rest(&self, stood: Duration) -> Wait {
        self.wait.after(stood)
    }

    /// The error of a wait that is over, as the caller counts its time.
    pub(super) fn told(&self, error: AcquireError) -> AcquireError {
        match (error, self.wait) {
            (AcquireError::Held(refused), Wait::For(all)) if refused.waited.is_some() => {
                AcquireError::Held(Box::new(Refused {
                    waited: Some(all),
                    ..*refused
                }))
            }
            (error, _) => error,
        }
    }
}

impl LockManager {
    /// Acquires a lock on the caller's own thread.
    pub(super) fn take(
        &self,
        name: LockName,
        options: &Options,
        wait: Wait,
    ) -> Result<Guard, AcquireError> {
        let shared = &self.shared;
        let mode = shared.may_ask(&name, options)?;
        let mut call = Call::new(shared, mode, wait);
        if !takes_turns(options, wait) {
            return self.enter(&name, options, &call);
        }
        let mut options = std::borrow::Cow::Borrowed(options);
        let turn = match shared.lines.join(&key(&name, For::Waiting)) {
            Joined::Head(turn) => turn,
            Joined::Behind(standing) => {
                call.stood = true;
                if let Some(once) = options.on_wait.once() {
                    options.to_mut().on_wait = once;
                    shared.tell(&name, &options, standing.number);
                }
                match self.stand(standing, options.cancel.as_ref(), call.deadline()) {
                    Some(turn) => turn,
                    None if options.cancel.as_ref().is_some_and(Cancel::is_cancelled) => {
                        return Err(AcquireError::Cancelled { name });
                    }
                    None => return Err(shared.timed_out(&name, &options, &call)),
                }
            }
        };
        let answer = self.enter(&name, &options, &call);
        drop(turn);
        answer
    }

    /// Waits on this thread for a turn. `None` if the wait was cancelled, or its time is up.
    fn stand(
        &self,
        standing: Standing<Key, Errand>,
        cancel: Option<&Cancel>,
        deadline: Option<Instant>,
    ) -> Option<Turn> {
        let _bell = cancel.map(|cancel| cancel::rings(cancel, standing.bell()));
        standing.wait(|| {
            if cancel.is_some_and(Cancel::is_cancelled) {
                return ControlFlow::Break(());
            }
            let Some(deadline) = deadline else {
                return ControlFlow::Continue(None);
            };
            let now = self.shared.clock.instant();
            if deadline <= now {
                return ControlFlow::Break(());
            }
            let rest = deadline.saturating_duration_since(now);
            ControlFlow::Continue(Some(self.shared.nap(rest)))
        })
    }

    /// Enters the store on a thread of its own, for as long as the future lives.
    async fn enter_async(
        self,
        name: LockName,
        options: Options,
        call: Call,
    ) -> Result<Guard, AcquireError> {
        let failed = name.clone();
        let done = self.offloaded(&options, move |locks, options| {
            locks.enter(&name, options, &call)
        });
        done.await.map_err(|source| AcquireError::Thread {
            name: failed,
            source,
        })?
    }

    /// Leaves an errand in the line that it is for.
    fn send(&self, name: &LockName, options: &Options, call: Call) -> Sent {
        let shared = &self.shared;
        let (promise, pending) = offload::promise();
        let own = Cancel::new();
        let given = options.cancel.clone();
        let mut options = options.clone().cancel(&own);
        if let Some(once) = options.on_wait.once() {
            options.on_wait = once;
        }
        let key = key(name, For::Waiting);
        let panicked = Panicked::of(&options);
        let word = options.on_wait.is_some().then(|| options.clone());
        let errand = Errand {
            locks: self.clone(),
            key: Arc::clone(&key),
            call,
            what: What::Wait,
            options,
            logs: Logs::here(),
            promise: Some(promise),
            panicked: panicked.clone(),
        };
        let number = shared.lines.leave(&key, errand);
        let lines = Arc::downgrade(&shared.lines);
        let mut sent = Sent {
            pending,
            shared: Arc::clone(shared),
            _bell: given.map(|given| ends_with(&given, &own, lines, key.clone(), number)),
            key,
            number,
            own,
            deadline: None,
        };
        let Some(number) = number else {
            return sent;
        };
        if let Some(deadline) = call.deadline() {
            match shared.deadlines.add(shared, (deadline, number), &sent.key) {
                Ok(()) => sent.deadline = Some(deadline),
                Err(source) => {
                    let errand = shared.lines.take_back(&sent.key, number);
                    if let Some(errand) = errand {
                        errand.fail(source);
                    }
                }
            }
        }
        if let Some(options) = word {
            self.send_word(name, options, call, (number, panicked));
        }
        sent
    }

    /// Has the caller told that it waits in a line.
    fn send_word(
        &self,
        name: &LockName,
        options: Options,
        call: Call,
        (number, panicked): (u64, Panicked),
    ) {
        let key = key(name, For::Asking);
        let errand = Errand {
            locks: self.clone(),
            key: Arc::clone(&key),
            call,
            what: What::Tell { number },
            options,
            logs: Logs::here(),
            promise: None,
            panicked,
        };
        self.shared.lines.leave(&key, errand);
    }

    /// How many callers of this manager stand in line behind the one that is in the store.
    pub(crate) fn in_line(&self, name: &LockName) -> usize {
        self.shared.lines.len(&key(name, For::Waiting))
    }
}

/// Whether a call stands in the line of its process.
fn takes_turns(options: &Options, wait: Wait) -> bool {
    options.again == Again::Wait && wait != Wait::No
}

impl OnWait {
    fn is_some(&self) -> bool {
        self.0.is_some()
    }

    /// The same, for one call: told once, in the line or in the store.
    fn once(&self) -> Option<Self> {
        let tell = self.0.clone()?;
        let is_told = AtomicBool::new(false);
        Some(Self(Some(Arc::new(move |name, waiting| {
            if !is_told.swap(true, Ordering::AcqRel) {
                tell(name, waiting);
            }
        }))))
    }
}

impl Shared {
    /// How long a sleep lasts at most, so that it ends when the clock of this manager says.
    fn nap(&self, rest: Duration) -> Duration {
        self.watching.nap().map_or(rest, |nap| rest.min(nap))
    }

    /// Tells a caller that it waits in a line, and for whom.
    fn tell(&self, name: &LockName, options: &Options, number: u64) {
        let OnWait(Some(tell)) = &options.on_wait else {
            return;
        };
        // A caller that has left, or has entered the store, hears of this from there or not at all.
        if !self.lines.has(&key(name, For::Waiting), number) {
            return;
        }
        // A list that cannot be read now is looked at again in the store.
        let Ok(reading) = self.store.read(name, None) else {
            return;
        };
        if let Some(entry) = reading.entry() {
            let before = self.lines.before(&key(name, For::Waiting), number);
            let now = self.clock.now();
            tell(name, &Waiting::in_line(entry, before, &now));
        }
    }

    /// The answer to a caller whose time was up in the line.
    fn timed_out(&self, name: &LockName, options: &Options, call: &Call) -> AcquireError {
        let waited = call.stood(self);
        let error = engine::timed_out(&*self.store, &*self.clock, name, call.mode, waited);
        call.told(self.explain(name.clone(), options.again, (call.mode, None), error))
    }
}

/// What an errand is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum What {
    /// The lock.
    Wait,
    /// The answer to a wait whose time is up.
    TimedOut,
    /// To tell the caller of that place that it waits.
    Tell { number: u64 },
}

/// What an async caller wants, and where it gets its answer.
pub(super) struct Errand {
    locks: LockManager,
    key: Key,
    options: Options,
    call: Call,
    what: What,
    logs: Logs,
    promise: Option<Promise<Result<Guard, AcquireError>>>,
    panicked: Panicked,
}

/// A panic of `on_wait` that is still to go on in its caller.
#[derive(Clone, Default)]
struct Panicked(Option<Arc<Mutex<Option<Panic>>>>);

type Panic = Box<dyn Any + Send>;

impl Panicked {
    /// For a caller that has `on_wait`.
    fn of(options: &Options) -> Self {
        Self(options.on_wait.is_some().then(Arc::default))
    }

    fn keep(&self, panic: Panic) {
        if let Some(kept) = &self.0 {
            *locked(kept) = Some(panic);
        }
    }

    fn goes_on(&self) {
        let panic = self.0.as_ref().and_then(|kept| locked(kept).take());
        if let Some(panic) = panic {
            resume_unwind(panic);
        }
    }
}

impl Errand {
    fn run(self) {
        let Self {
            locks,
            key,
            options,
            call,
            what,
            logs,
            promise,
            panicked,
        } = self;
        let (name, shared) = (&key.0, &locks.shared);
        logs.within(|| match (what, promise) {
            (What::Wait, Some(promise)) => promise.work(|| {
                let answer = locks.enter(name, &options, &call);
                panicked.goes_on();
                answer
            }),
            (What::TimedOut, Some(promise)) => promise.work(|| {
                panicked.goes_on();
                Err(shared.timed_out(name, &options, &call))
            }),
            (What::Tell { number }, _) => {
                let tell = AssertUnwindSafe(|| shared.tell(name, &options, number));
                // The panic is the caller's that waits, in line or in the store by now.
                if let Err(panic) = catch_unwind(tell) {
                    panicked.keep(panic);
                    let key = self::key(name, For::Waiting);
                    match shared.lines.take_back(&key, number) {
                        Some(Self {
                            promise: Some(promise),
                            ..
                        }) => promise.work(|| {
                            panicked.goes_on();
                            Err(AcquireError::Cancelled { name: name.clone() })
                        }),
                        _ => options.cancel.iter().for_each(Cancel::cancel),
                    }
                }
            }
            // A caller gets its answer by a promise.
            (What::Wait | What::TimedOut, None) => {}
        });
    }

    fn answer(self, answer: impl FnOnce(LockName) -> Result<Guard, AcquireError>) {
        if let Some(promise) = self.promise {
            promise.keep(answer(self.key.0.clone()));
        }
    }

    fn name(&self) -> &LockName {
        &self.key.0
    }

    fn fail(self, source: io::Error) {
        self.answer(|name| Err(AcquireError::Thread { name, source }));
    }

    /// Its time is up while it waits for its turn.
    fn expire(mut self) {
        match self.what {
            What::Wait => {
                self.what = What::TimedOut;
                let lines = Arc::clone(&self.locks.shared.lines);
                let key = key(self.name(), For::Asking);
                lines.leave(&key, self);
            }
            What::TimedOut | What::Tell { .. } => {}
        }
    }
}

impl line::Errand<Key> for Errand {
    fn start(self, turn: Turn) {
        let mut next = Some((turn, self));
        while let Some(work) = next {
            next = match on_thread(work, run_all) {
                Ok(()) => None,
                Err((source, (turn, errand))) => {
                    errand.fail(source);
                    turn.next()
                }
            };
        }
    }

    fn stands(&mut self) {
        self.call.stood = true;
    }
}

/// Runs an errand, and those behind it, for as long as the turn comes to errands.
fn run_all(work: (Turn, Errand)) {
    let mut next = Some(work);
    while let Some((turn, errand)) = next {
        errand.run();
        next = turn.next();
    }
}

/// Does work on a thread of its own. What it is given comes back if the system gives no thread.
fn on_thread<T: Send + 'static>(
    given: T,
    work: impl FnOnce(T) + Send + 'static,
) -> Result<(), (io::Error, T)> {
    let given = Arc::new(Mutex::new(Some(given)));
    let started = {
        let given = Arc::clone(&given);
        let builder = thread::Builder::new().name("tenure-acquire".to_owned());
        builder.spawn(move || {
            let given = locked(&given).take();
            if let Some(given) = given {
                work(given);
            }
        })
    };
    let Err(source) = started else {
        return Ok(());
    };
    let given = locked(&given).take();
    given.map_or(Ok(()), |given| Err((source, given)))
}

/// What an async caller asks for. It is let go of before the wait: ten thousand may wait.
pub(super) struct Asked {
    pub(super) locks: LockManager,
    pub(super) name: String,
    pub(super) options: Options,
}

impl Asked {
    /// Acquires the lock without a thread of the caller's.
    pub(super) async fn take(self: Box<Self>) -> Result<Guard, AcquireError> {
        self.begin()?.await
    }

    #[expect(
        clippy::boxed_local,
        reason = "out of the box, the future would have room for it as long as it waits"
    )]
    fn begin(self: Box<Self>) -> Result<Taking, AcquireError> {
        let Self {
            locks,
            name,
            options,
        } = *self;
        let (name, wait) = (super::named(&name)?, locks.patience(&options));
        let mode = locks.shared.may_ask(&name, &options)?;
        let call = Call::new(&locks.shared, mode, wait);
        Ok(if takes_turns(&options, wait) {
            Taking::Turn(locks.send(&name, &options, call))
        } else {
            Taking::Alone(Box::pin(locks.enter_async(name, options, call)))
        })
    }
}

/// How an async caller waits.
enum Taking {
    /// In the line of its process.
    Turn(Sent),
    /// In the store, by a thread of its own.
    Alone(Pin<Box<dyn Future<Output = Result<Guard, AcquireError>> + Send>>),
}

impl Future for Taking {
    type Output = Result<Guard, AcquireError>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match self.get_mut() {
            Self::Turn(sent) => Pin::new(sent).poll(context),
            Self::Alone(alone) => alone.as_mut().poll(context),
        }
    }
}

/// An errand, as its caller sees it. Dropping it takes the errand back, or ends it if it was begun.
struct Sent {
    pending: offload::Pending<Result<Guard, AcquireError>>,
    shared: Arc<Shared>,
    key: Key,
    /// The number of the place; `None` if the errand was begun at once.
    number: Option<u64>,
    /// Ends the errand.
    own: Cancel,
    deadline: Option<Instant>,
    _bell: Option<cancel::Bell>,
}

/// Lets a caller's [`Cancel`] end its errand, also while that waits in line.
fn ends_with(
    given: &Cancel,
    own: &Cancel,
    lines: Weak<Lines>,
    key: Key,
    number: Option<u64>,
) -> cancel::Bell {
    let own = own.clone();
    let end = move || {
        own.cancel();
        let waits = number.and_then(|number| lines.upgrade()?.take_back(&key, number));
        if let Some(errand) = waits {
            errand.answer(|name| Err(AcquireError::Cancelled { name }));
        }
    };
    let end = Arc::new(end);
    let bell = {
        let end = Arc::clone(&end);
        cancel::rings(given, move || end())
    };
    // A caller that cancelled before the bell was there does not ring it.
    if given.is_cancelled() {
        end();
    }
    bell
}

impl Future for Sent {
    type Output = Result<Guard, AcquireError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let answer = ready!(Pin::new(&mut self.pending).poll(context));
        Poll::Ready(answer.unwrap_or_else(|source| {
            let name = self.key.0.clone();
            Err(AcquireError::Thread { name, source })
        }))
    }
}

impl Drop for Sent {
    fn drop(&mut self) {
        // In a copy made by a fork, another thread may have had any of this for ever.
        if !self.shared.is_here() {
            return;
        }
        self.own.cancel();
        if let Some(number) = self.number {
            if let Some(deadline) = self.deadline {
                self.shared.deadlines.forget((deadline, number));
            }
            drop(self.shared.lines.take_back(&self.key, number));
        }
    }
}

/// When waits end of callers that have no thread to see to it.
#[derive(Default)]
pub(super) struct Deadlines(Arc<Schedule>);

#[derive(Default)]
struct Schedule {
    due: Mutex<Due>,
    changed: Condvar,
}

#[derive(Default)]
struct Due {
    places: BTreeMap<Deadline, Key>,
    /// Whether there is a thread that sees to them.
    runs: bool,
    /// The manager is gone.
    has_ended: bool,
}

/// The instant, and the number of the place.
type Deadline = (Instant, u64);

impl Deadlines {
    fn add(&self, shared: &Arc<Shared>, deadline: Deadline, key: &Key) -> io::Result<()> {
        let mut due = locked(&self.0.due);
        if !due.runs {
            let (schedule, shared) = (Arc::clone(&self.0), Arc::downgrade(shared));
            let builder = thread::Builder::new().name("tenure-line".to_owned());
            builder.spawn(move || schedule.keep(&shared))?;
            due.runs = true;
        }
        due.places.insert(deadline, Arc::clone(key));
        if due
            .places
            .first_key_value()
            .is_some_and(|(first, _)| *first == deadline)
        {
            self.0.changed.notify_all();
        }
        Ok(())
    }

    fn forget(&self, deadline: Deadline) {
        locked(&self.0.due).places.remove(&deadline);
    }
}

impl Drop for Deadlines {
    fn drop(&mut self) {
        locked(&self.0.due).has_ended = true;
        self.0.changed.notify_all();
    }
}

impl Schedule {
    /// Ends what is due, for as long as there is anything.
    fn keep(&self, shared: &Weak<Shared>) {
        loop {
            let Some((now, nap)) = shared
                .upgrade()
                .map(|shared| (shared.clock.instant(), shared.watching.nap()))
            else {
                return;
            };
            let mut due = locked(&self.due);
            if due.has_ended {
                return;
            }
            let later = due.places.split_off(&(now, u64::MAX));
            let over = std::mem::replace(&mut due.places, later);
            if !over.is_empty() {
                drop(due);
                let Some(lines) = shared.upgrade().map(|shared| Arc::clone(&shared.lines)) else {
                    return;
                };
                for ((_, number), key) in over {
                    if let Some(errand) = lines.take_back(&key, number) {
                        errand.expire();
                    }
                }
                continue;
            }
            let Some((first, _)) = due.places.first_key_value() else {
                due.runs = false;
                return;
            };
            let rest = first.0.saturating_duration_since(now);
            let rest = nap.map_or(rest, |nap| rest.min(nap));
            let woken = self.changed.wait_timeout(due, rest);
            drop(woken.unwrap_or_else(PoisonError::into_inner));
        }
    }
}
