//! How a manager uses its lines: a caller that wants a lock takes its turn, and enters the store with it.
//!
//! Each caller that waits stands in a line ([`For`]). Those that take turns with others of their process
//! ([`Again::Wait`]) have one. The others are refused once their process holds the lock, whatever manager has it, and have
//! one for each mode: all of such a line are refused for the same hold. So none stands behind a caller that waits for a hold
//! under which it was called itself. A caller whose manager holds the lock already enters the store at once, and so does one
//! that does not wait, or that works under a guard.
//!
//! A blocking caller waits on its own thread. An async caller leaves an [`Errand`], which a thread of the manager runs, and
//! which waits in the store without one. One more thread of the manager sees to what is due: errands
//! that timed out, and grants that no task has taken. The answers to the former, and notices to callers that they wait, have
//! a line of their own, so that one thread gives them; over servers, which may be silent, the answers have none.
//!
//! # Grants that nobody takes
//! A future that nobody polls, or whose executor is blocked, is granted the lock all the same. After [`TAKEN_MAX`] the
//! grant is given back, and the caller stands in line anew when it is polled next. Its task never saw the grant, so no work
//! was done under it: task and that thread take it under one mutex, and one of them gets it (`offload::UnclaimedValue`).
//!
//! What happens in the store is the [`engine`]'s business, and how lines, threads and deadlines work that of the engine's [`line`].

use super::circle;
use super::{
    AcquireError, Again, Guard, Guards, LockManager, OnWait, Options, Refused, Shared, Wait,
};
use crate::cancel::{self, Cancel};
use crate::engine::{self, Waiting};
use crate::line::{self, Deadline, Deadlines, Duty, Joined, Parking, Pool, Standing, Timed, Work};
use crate::offload::{self, Logs, Promise};
use crate::sync::locked;
use std::any::Any;
use std::borrow::Cow;
use std::future::poll_fn;
use std::io;
use std::num::NonZeroU32;
use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::task::{Context, Poll, Waker, ready};
use std::time::{Duration, Instant};
use tenure_core::{LockName, Mode};

/// How long a task may leave a grant untaken. An executor that is blocked for longer loses its turn, and nothing else.
const TAKEN_MAX: Duration = Duration::from_secs(2);

/// What callers stand in a line for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum For {
    /// A place in the store's queue, also behind holds of their process.
    Turns,
    /// A place in the store's queue, unless their process holds the lock: an exclusive hold.
    Exclusive,
    /// A shared one.
    Shared,
    /// A slot of so many.
    Slots(NonZeroU32),
    /// An answer of the store, at once.
    Asking,
}

impl From<Mode> for For {
    fn from(mode: Mode) -> Self {
        match mode {
            Mode::Exclusive => Self::Exclusive,
            Mode::Shared => Self::Shared,
            Mode::Slots(slots) => Self::Slots(slots),
        }
    }
}

/// The line, shared by all that remember a place in it.
pub(super) type Key = Arc<(LockName, For)>;

fn key(name: &LockName, line: For) -> Key {
    Arc::new((name.clone(), line))
}

pub(super) type Lines = line::Lines<Key, Errand>;
pub(super) type Turn = line::Turn<Key, Errand>;

/// A call for a lock.
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
        told(self.wait, error)
    }
}

/// The error of a wait that is over: it shows the whole time, and not the rest of it.
pub(super) fn told(wait: Wait, error: AcquireError) -> AcquireError {
    match (error, wait) {
        (AcquireError::Held(refused), Wait::For(all)) if refused.waited.is_some() => {
            AcquireError::Held(Box::new(Refused {
                waited: Some(all),
                ..*refused
            }))
        }
        (error, _) => error,
    }
}

/// The order in which every caller takes several locks, each once.
pub(super) fn in_order(mut names: Vec<LockName>) -> Vec<LockName> {
    names.sort();
    names.dedup();
    names
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
        let Some(line) = shared.line(&name, options, &call) else {
            return self.enter(&name, options, &call);
        };
        let key = key(&name, line);
        let mut options = Cow::Borrowed(options);
        let turn = match shared.lines.join(&key) {
            Joined::Head(turn) => turn,
            Joined::Behind(standing) => {
                call.stood = true;
                if let Some(once) = options.on_wait.once() {
                    options.to_mut().on_wait = once;
                    shared.tell(&key, &options, standing.number, &Telling::default());
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

    /// Waits on this thread for a turn. `None` if the wait was cancelled, or timed out.
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
            ControlFlow::Continue(Some(self.shared.nap_of(rest)))
        })
    }

    /// Acquires several locks without a thread of the caller's, one after the other.
    pub(super) async fn take_all_async(
        &self,
        names: Vec<LockName>,
        options: &Options,
    ) -> Result<Guards, AcquireError> {
        let (wait, began) = (self.patience(options), self.shared.clock.instant());
        let mut guards = Guards::default();
        let mut options = Cow::Borrowed(options);
        for name in in_order(names) {
            let taken = async {
                let mode = self.shared.may_ask(&name, &options)?;
                let call = Call::new(&self.shared, mode, self.shared.rest(wait, began));
                self.send(name, options.for_async(), call).await
            };
            match taken.await {
                Ok(guard) => {
                    circle::goes_on_under(&mut options, &guard);
                    guards.push(guard);
                }
                Err(error) => {
                    // What fails is tried again by itself, and the log says so.
                    drop(guards.release_async().await);
                    return Err(told(wait, error));
                }
            }
        }
        Ok(guards)
    }

    /// Leaves an errand in the line that it is for; or has it begun at once, if it is for none.
    fn send(&self, name: LockName, mut options: Options, call: Call) -> Sent {
        let shared = &self.shared;
        let (promise, pending) = offload::promise();
        let own = Cancel::new();
        let given = options.cancel.clone();
        if let Some(once) = options.on_wait.once() {
            options.on_wait = once;
        }
        let telling = Telling::of(&options);
        let line = shared.line(&name, &options, &call);
        let key = Arc::new((name, line.unwrap_or(For::Asking)));
        let word = options.on_wait.is_some().then(|| options.clone());
        let errand = Errand {
            locks: self.clone(),
            wish: Wish {
                key: Arc::clone(&key),
                what: What::Lock,
                options,
                call,
            },
            own: own.clone(),
            logs: Logs::here(),
            promise: Some(promise),
            telling: telling.clone(),
        };
        let number = if line.is_some() {
            shared.lines.leave(&key, errand)
        } else {
            line::begin(None, errand);
            None
        };
        let lines = Arc::downgrade(&shared.lines);
        let mut sent = Sent {
            pending,
            locks: self.clone(),
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
            let due = Due::Place(Arc::clone(&sent.key));
            match shared.deadlines.add(shared, (deadline, number), due) {
                Ok(deadline) => sent.deadline = Some(deadline),
                Err(source) => {
                    let errand = shared.lines.take_back(&sent.key, number);
                    if let Some(errand) = errand {
                        errand.fail(source);
                    }
                }
            }
        }
        if let Some(options) = word {
            let own = sent.own.clone();
            self.send_word(Arc::clone(&sent.key), options, call, (number, own, telling));
        }
        sent
    }

    /// Has the caller told that it waits in a line.
    fn send_word(
        &self,
        line: Key,
        options: Options,
        call: Call,
        (number, own, telling): (u64, Cancel, Telling),
    ) {
        let key = key(&line.0, For::Asking);
        let errand = Errand {
            locks: self.clone(),
            wish: Wish {
                key: Arc::clone(&key),
                what: What::Tell { line, number },
                options,
                call,
            },
            own,
            logs: Logs::here(),
            promise: None,
            telling,
        };
        self.shared.lines.leave(&key, errand);
    }

    /// How many callers of this manager stand in line behind the ones that are in the store.
    pub(crate) fn in_line(&self, name: &LockName) -> usize {
        let waits = |key: &Key| key.0 == *name && key.1 != For::Asking;
        self.shared.lines.count(waits)
    }
}

impl OnWait {
    fn is_some(&self) -> bool {
        self.0.is_some()
    }

    /// For a single call: told once, in the line or in the store.
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
    /// What is left of a wait that began then.
    pub(super) fn rest(&self, wait: Wait, began: Instant) -> Wait {
        wait.after(self.clock.instant().saturating_duration_since(began))
    }

    /// In which line a call stands; `None` for one that enters the store at once.
    fn line(&self, name: &LockName, options: &Options, call: &Call) -> Option<For> {
        match options.again {
            _ if call.wait == Wait::No => None,
            // Others see what it waits for by its claim, so it has one from the beginning on.
            _ if !options.under.is_empty() => None,
            Again::Wait => Some(For::Turns),
            // Mostly it is refused, or joins that hold.
            Again::Refuse | Again::Reenter => (!self.holds(name)).then(|| call.mode.into()),
        }
    }

    /// How long a sleep lasts at most, so that it ends when the clock of this manager says.
    fn nap_of(&self, rest: Duration) -> Duration {
        self.watching.nap().map_or(rest, |nap| rest.min(nap))
    }

    /// Tells a caller that it waits in a line, and for whom.
    fn tell(&self, line: &Key, options: &Options, number: u64, telling: &Telling) {
        let OnWait(Some(tell)) = &options.on_wait else {
            return;
        };
        // A caller that has left, or has entered the store, hears of this from there or not at all.
        if !self.lines.has(line, number) {
            return;
        }
        let name = &line.0;
        // A list that cannot be read now is looked at again in the store.
        let Ok(reading) = self.store.read(name, None) else {
            return;
        };
        if let Some(entry) = reading.entry() {
            let before = self.lines.before(line, number);
            let now = self.clock.now();
            telling.tells(|| tell(name, &Waiting::in_line(entry, before, &now)));
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
enum What {
    /// The lock.
    Lock,
    /// The answer to a wait for the lock that timed out.
    TimedOut,
    /// To tell the caller of that place that it waits.
    Tell { line: Key, number: u64 },
}

/// What an async caller asks for, so that it can be asked for once more.
struct Wish {
    /// The lock, and its line.
    key: Key,
    what: What,
    options: Options,
    call: Call,
}

/// What an async caller gets.
enum Answer {
    /// The answer, and when a grant is given back.
    Given(Result<Guard, AcquireError>, Option<Deadline>),
    /// The lock was granted and given back, because nobody took it. The caller asks anew.
    Late(Box<Wish>),
}

/// What an async caller wants, and where it gets its answer.
pub(super) struct Errand {
    locks: LockManager,
    wish: Wish,
    /// Ends it.
    own: Cancel,
    logs: Logs,
    promise: Option<Promise<Answer>>,
    telling: Telling,
}

/// How a wait is told of beside the wait itself: while it stands in line, another thread calls `on_wait`.
#[derive(Clone, Default)]
struct Telling(Option<Arc<Mutex<NoticeState>>>);

#[derive(Default)]
struct NoticeState {
    /// The wait is over, and nothing is told any more.
    is_over: bool,
    /// A panic of `on_wait` that is still to go on in its caller.
    panic: Option<Panic>,
}

type Panic = Box<dyn Any + Send>;

impl Telling {
    /// For a caller that has `on_wait`.
    fn of(options: &Options) -> Self {
        Self(options.on_wait.is_some().then(Arc::default))
    }

    /// Tells, unless the wait is over. The end of the wait waits for what is being told, or its panic would come too late.
    fn tells(&self, tell: impl FnOnce()) {
        let Some(told) = &self.0 else {
            return tell();
        };
        let mut told = locked(told);
        if !told.is_over {
            told.panic = catch_unwind(AssertUnwindSafe(tell)).err();
        }
    }

    fn has_panicked(&self) -> bool {
        let panics = |told: &Arc<Mutex<NoticeState>>| locked(told).panic.is_some();
        self.0.as_ref().is_some_and(panics)
    }

    /// Leaves a panic to the wait.
    fn keep(&self, panic: Panic) {
        if let Some(told) = &self.0 {
            locked(told).panic = Some(panic);
        }
    }

    /// Ends the wait.
    fn ends(&self) -> Option<Panic> {
        let mut told = locked(self.0.as_ref()?);
        told.is_over = true;
        told.panic.take()
    }
}

impl Work<Key> for Errand {
    fn pool(&self) -> &Pool {
        &self.locks.shared.pool
    }

    async fn work(self) {
        let Self {
            locks,
            wish,
            own,
            logs,
            promise,
            telling,
        } = self;
        let (shared, call, name) = (&locks.shared, &wish.call, &wish.key.0);
        let options = wish.options.clone().cancel(&own);
        let answer = {
            let runs = async {
                match &wish.what {
                    What::Lock => {
                        let lot = Parking(shared);
                        Some(locks.enter_in(Some(&lot), name, &options, call).await)
                    }
                    What::TimedOut => Some(Err(shared.timed_out(name, &options, call))),
                    What::Tell { line, number } => {
                        shared.tell(line, &options, *number, &telling);
                        None
                    }
                }
            };
            let mut runs = std::pin::pin!(runs);
            let listens = |context: &mut Context<'_>| {
                cancel::listening(Some(&own), || runs.as_mut().poll(context))
            };
            let mut listens = listens;
            poll_fn(|context| {
                let polled = AssertUnwindSafe(|| logs.within(|| listens(context)));
                // Nothing of the work is seen after a panic but by the caller, in whom the panic goes on.
                match catch_unwind(polled) {
                    Ok(polled) => polled.map(Ok),
                    Err(panic) => Poll::Ready(Err(panic)),
                }
            })
            .await
        };
        if let What::Tell { line, number } = &wish.what {
            if let Err(panic) = answer {
                telling.keep(panic);
            }
            if telling.has_panicked() {
                // The panic is the caller's that waits, in line or in the store by now.
                let waits = shared.lines.take_back(line, *number);
                match waits.and_then(|errand| errand.promise) {
                    Some(promise) => {
                        if let Some(panic) = telling.ends() {
                            promise.panic(panic);
                        }
                    }
                    None => own.cancel(),
                }
            }
            return;
        }
        let panic = match answer {
            Err(panic) => Err(panic),
            Ok(answer) => match telling.ends() {
                Some(panic) => Err(panic),
                None => Ok(answer),
            },
        };
        let Some(promise) = promise else {
            return;
        };
        let answer = match panic {
            Err(panic) => return promise.panic(panic),
            Ok(Some(answer)) => answer,
            Ok(None) => return,
        };
        let due = match &answer {
            Ok(_) => shared.give_back_untaken(promise.kept(), wish),
            Err(_) => None,
        };
        promise.keep(Answer::Given(answer, due));
    }

    fn fail(self, source: io::Error) {
        self.answer(|name| AcquireError::Thread { name, source });
    }
}

impl Errand {
    fn answer(self, answer: impl FnOnce(LockName) -> AcquireError) {
        if let Some(promise) = self.promise {
            let error = answer(self.wish.key.0.clone());
            promise.keep(Answer::Given(Err(error), None));
        }
    }

    /// Ends the call that timed out while it waits for its turn.
    fn expire(mut self) {
        if let What::Lock = self.wish.what {
            let lines = Arc::clone(&self.locks.shared.lines);
            self.wish.what = What::TimedOut;
            self.wish.key = key(&self.wish.key.0, For::Asking);
            if self.locks.shared.store.rules().network {
                // Servers may be silent: not one after the other.
                line::begin(None, self);
            } else {
                let key = Arc::clone(&self.wish.key);
                lines.leave(&key, self);
            }
        }
    }
}

/// A grant that its task has not taken yet.
pub(super) struct Untaken {
    kept: offload::UnclaimedValue<Answer>,
    wish: Wish,
}

impl Untaken {
    /// Gives it back if it is there and nobody has taken it.
    fn give_back(self) {
        if let Some((grant, again)) = self.kept.take_back() {
            // The caller stands in line behind the end of this hold, not before.
            drop(grant);
            again.keep(Answer::Late(Box::new(self.wish)));
        }
    }
}

/// What is due at some instant.
pub(super) enum Due {
    /// The wait of the errand in that place is over.
    Place(Key),
    /// A grant is given back that nobody has taken.
    Grant(Box<Untaken>),
    /// A wait ends that has no thread.
    Wake(Box<Waker>),
}

impl From<Waker> for Due {
    fn from(waker: Waker) -> Self {
        Self::Wake(Box::new(waker))
    }
}

impl Timed for Shared {
    type Due = Due;

    fn deadlines(&self) -> &Deadlines<Due> {
        &self.deadlines
    }

    fn number(&self) -> u64 {
        self.lines.number()
    }

    fn now(&self) -> Instant {
        self.clock.instant()
    }

    fn nap(&self) -> Option<Duration> {
        self.watching.nap()
    }
}

impl Duty<Shared> for Due {
    fn see_to(self, number: u64, shared: &Shared) {
        match self {
            Self::Place(key) => {
                if let Some(errand) = shared.lines.take_back(&key, number) {
                    errand.expire();
                }
            }
            Self::Grant(untaken) => untaken.give_back(),
            Self::Wake(waker) => waker.wake(),
        }
    }
}

impl Shared {
    /// Sees to it that a grant is given back which its task does not take.
    fn give_back_untaken(
        self: &Arc<Self>,
        kept: offload::UnclaimedValue<Answer>,
        mut wish: Wish,
    ) -> Option<Deadline> {
        // The whole time counts, from the call on.
        wish.call.stood = true;
        let end = self.clock.instant().checked_add(TAKEN_MAX)?;
        let due = Due::Grant(Box::new(Untaken { kept, wish }));
        // Without a thread nobody gives it back but its task.
        self.deadlines
            .add(self, (end, self.lines.number()), due)
            .ok()
    }
}

impl line::Errand<Key> for Errand {
    fn start(self, turn: Turn) {
        line::begin(Some(turn), self);
    }

    fn stands(&mut self) {
        self.wish.call.stood = true;
    }
}

/// What an async caller asks for. It is let go of before the wait: ten thousand may wait.
pub(super) struct AsyncCall {
    pub(super) locks: LockManager,
    pub(super) name: String,
    pub(super) options: Options,
}

impl AsyncCall {
    /// Acquires the lock without a thread of the caller's.
    pub(super) async fn take(self: Box<Self>) -> Result<Guard, AcquireError> {
        self.begin()?.await
    }

    #[expect(
        clippy::boxed_local,
        reason = "out of the box, the future would have room for it as long as it waits"
    )]
    fn begin(self: Box<Self>) -> Result<Sent, AcquireError> {
        let Self {
            locks,
            name,
            options,
        } = *self;
        let (name, wait) = (super::named(&name)?, locks.patience(&options));
        let mode = locks.shared.may_ask(&name, &options)?;
        let call = Call::new(&locks.shared, mode, wait);
        Ok(locks.send(name, options, call))
    }
}

/// An errand, as its caller sees it. Dropping it takes the errand back, or ends it if it was begun.
struct Sent {
    pending: offload::PromisedValue<Answer>,
    locks: LockManager,
    key: Key,
    /// The number of the place; `None` if the errand was begun at once.
    number: Option<u64>,
    /// Ends the errand.
    own: Cancel,
    deadline: Option<Deadline>,
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
            errand.answer(|name| AcquireError::Cancelled { name });
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
        loop {
            let answer = match ready!(Pin::new(&mut self.pending).poll(context)) {
                Ok(answer) => answer,
                Err(source) => {
                    let name = self.key.0.clone();
                    return Poll::Ready(Err(AcquireError::Thread { name, source }));
                }
            };
            match answer {
                Answer::Given(given, due) => {
                    if let Some(due) = due {
                        self.locks.shared.deadlines.forget(due);
                    }
                    return Poll::Ready(given);
                }
                Answer::Late(late) => {
                    let Wish {
                        key, options, call, ..
                    } = *late;
                    *self = self.locks.send(key.0.clone(), options, call);
                }
            }
        }
    }
}

impl Drop for Sent {
    fn drop(&mut self) {
        // In a copy made by a fork, another thread may have had any of this for ever.
        if !self.locks.shared.is_here() {
            return;
        }
        self.own.cancel();
        if let Some(number) = self.number {
            if let Some(deadline) = self.deadline {
                self.locks.shared.deadlines.forget(deadline);
            }
            drop(self.locks.shared.lines.take_back(&self.key, number));
        }
    }
}
