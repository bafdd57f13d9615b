//! The guard: what holding a lock is, and how it ends.
//!
//! Guards that share a hold (by re-entering) share one [`Hold`]; the lock ends with the last of them.
//! `renewer` sends the heartbeats.

use super::audit::Line;
use super::error::{ReleaseError, VerifyError};
use super::term::{GuardState, LostReason, Term};
use super::{Shared, log};
use crate::keep::releases::{Leaving, ReleaseTry, TRY_MAX};
use crate::keep::{Ask, KeeperHold, LeaseEnd, Life, Loss, News, RENEWAL_MAX, Watching};
use crate::offload::{self, Logs};
use crate::os::Descriptor;
use crate::store::{Handle, Reading, Store, StoreError, Verbs};
use std::cell::Cell;
use std::fmt;
use std::future::poll_fn;
use std::ops::Deref;
use std::panic::RefUnwindSafe;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak, mpsc};
use std::task::{Poll, Waker};
use std::time::Duration;
use tenure_core::{Claim, Holder, LeaseTerms, Left, LockName, Mode, Now, Renewal};

/// A lock that is held. Dropping it releases it.
///
/// The guard may be sent to and shared with other threads. The drop never panics, and releases nothing
/// but its own hold. It does so only in the process that acquired it, and logs what fails.
#[must_use = "the lock is released as soon as the guard is dropped"]
pub struct Guard {
    hold: Arc<Hold>,
    /// Whether the guard was released, so that its drop has nothing to do.
    is_gone: bool,
    /// Whether the guard is async code's own, whose executor its drop must not block.
    is_async: bool,
}

impl Guard {
    pub(super) fn first(hold: Arc<Hold>) -> Self {
        Self {
            hold,
            is_gone: false,
            is_async: false,
        }
    }

    /// Says whether the guard is for async code.
    pub(super) fn for_async(mut self, is_async: bool) -> Self {
        self.is_async = is_async;
        self
    }

    /// By what the hold is kept alive.
    pub(super) fn handle(&self) -> &dyn Handle {
        &*self.hold.handle
    }

    pub(super) fn shared(&self) -> &Shared {
        &self.hold.shared
    }

    /// Whether this is the process that acquired it, and not a copy made by a fork.
    pub(super) fn is_here(&self) -> bool {
        self.hold.is_here()
    }

    pub(super) fn is_async(&self) -> bool {
        self.is_async
    }

    /// Another guard of a hold, unless that has just ended.
    pub(super) fn again(hold: &Arc<Hold>) -> Option<Self> {
        let joined = hold.term.join().then(|| Self::first(Arc::clone(hold)))?;
        // `joined` is dropped if there is nothing to share. If the other guards have gone meanwhile,
        // that drop ends the hold.
        let stands = hold.state() != GuardState::Lost && hold.term.stands();
        stands.then_some(joined)
    }

    /// The lock.
    pub fn name(&self) -> &LockName {
        &self.hold.name
    }

    /// The fencing token: higher than that of every earlier hold of this lock. Hand it to a resource
    /// that can refuse an older one.
    pub fn token(&self) -> u64 {
        self.hold.token
    }

    /// The number of its slot, from 0 to one less than the slots: no other holder of the lock has it at the same
    /// time. `None` for a hold that is exclusive or shared.
    ///
    /// # Examples
    /// ```
    /// use tenure::guard::{Options, Wait};
    /// # let locks = tenure::testing::locks();
    /// let slots = Options::new().slots(2).wait(Wait::No);
    /// let device = ["/dev/gpu0", "/dev/gpu1"];
    /// let guard = locks.acquire_with("gpu", &slots)?;
    /// let number = guard.slot().expect("it is one of two slots");
    /// assert_eq!(device[number as usize], "/dev/gpu0");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn slot(&self) -> Option<u32> {
        self.hold.slot
    }

    /// Who holds it, as other callers see it.
    pub fn holder(&self) -> &Holder {
        &self.hold.holder
    }

    /// Whether the holder before it died inside, as a poisoned mutex tells: what the lock protects may be half done. True if
    /// this acquire took the lock over from a hold that was not released. A death that another caller has found and cleaned
    /// up meanwhile (`tenure clean`, a try that was refused) is not told, so work that must be recovered writes down itself
    /// how far it has come.
    ///
    /// # Examples
    /// ```
    /// # let locks = tenure::testing::locks();
    /// let guard = locks.acquire("index")?;
    /// if guard.previous_died() {
    ///     println!("checking the index first");
    /// }
    /// # Ok::<(), tenure::guard::AcquireError>(())
    /// ```
    pub fn previous_died(&self) -> bool {
        self.hold.previous_died
    }

    /// What it shares with others of the same hold, without keeping that.
    pub(super) fn of_hold(&self) -> Weak<Hold> {
        Arc::downgrade(&self.hold)
    }

    /// The guard's state as far as this process knows it; does not ask the store. See [`super`] for
    /// how soon a change shows.
    pub fn state(&self) -> GuardState {
        self.hold.state()
    }

    /// Whether the lock is known not to be held any more.
    pub fn is_lost(&self) -> bool {
        self.state() == GuardState::Lost
    }

    /// Why the lock is lost, once it is known to be.
    pub fn lost_reason(&self) -> Option<LostReason> {
        self.hold.lost_reason()
    }

    /// For how long the lock is surely held, if no renewal succeeds from now on: before a step that takes some time.
    /// `None` if no silence ends the hold: it lasts as long as this process does (in a folder). Zero once it is lost.
    pub fn good_for(&self) -> Option<Duration> {
        self.hold.good_for()
    }

    /// Whether the work should end: the lock is lost, or another caller asked for it.
    pub fn should_stop(&self) -> bool {
        self.state() != GuardState::Held
    }

    /// The request id of the caller that asked for the lock, once that is known.
    pub fn asked_by(&self) -> Option<&str> {
        self.hold.asked_by()
    }

    /// Asks the store whether the hold stands: before a step that must not be done twice.
    ///
    /// # Errors
    /// - [`VerifyError::Lost`] if it does not, or not in this process.
    /// - [`VerifyError::Store`] if the store failed, and cannot tell.
    pub fn verify(&self) -> Result<(), VerifyError> {
        self.hold.verify()
    }

    /// [`Guard::verify`] for async code, on any executor, which this call never blocks.
    ///
    /// # Errors
    /// - As [`Guard::verify`].
    pub async fn verify_async(&self) -> Result<(), VerifyError> {
        let hold = Arc::clone(&self.hold);
        let asked = offload::on_thread("tenure-verify", move || hold.verify()).await;
        // If the system gives no thread, it is asked here.
        asked.unwrap_or_else(|_| self.verify())
    }

    /// Releases, and returns what went wrong. Of guards that share a hold by re-entering, only the last
    /// one releases. On servers it waits for at most a second while they are silent; the release goes on after that.
    ///
    /// # Errors
    /// - [`ReleaseError::Lost`] if the lock was taken over or removed meanwhile.
    /// - [`ReleaseError::Store`] if the store failed, or has not answered in time.
    /// - [`ReleaseError::Forked`] if another process acquired it.
    ///
    /// # Crash safety
    /// The list is changed first, and the liveness lock released afterwards. Death before the change leaves
    /// a dead claim, which the next caller sweeps; death after it leaves nothing.
    pub fn release(mut self) -> Result<(), ReleaseError> {
        if !self.goes()? {
            return Ok(());
        }
        let released = self.hold.end(Waits::ForAnswer);
        self.hold.released(released)
    }

    /// [`Guard::release`] for async code, on any executor, which this call never blocks. Waits for the
    /// answer to the first try. Once polled, the release goes on even if the future is dropped. A future that is dropped
    /// before that drops the guard, which releases too.
    ///
    /// # Errors
    /// - As [`Guard::release`].
    pub async fn release_async(mut self) -> Result<(), ReleaseError> {
        if !self.hold.is_on_servers() {
            // If the system gives no thread, the guard is dropped with the work, and releases.
            return offload::on_thread("tenure-release", move || self.release())
                .await
                .unwrap_or(Ok(()));
        }
        if !self.goes()? {
            return Ok(());
        }
        let hold = Arc::clone(&self.hold);
        let (promise, pending) = offload::promise();
        let shared = Arc::clone(&hold.shared);
        // The executor's waker may block, and the thread that gives back has others to give back.
        let tell = move |answer| shared.wakes.tell(move || promise.keep(answer));
        let released = match hold.leave(tell) {
            Some(at_once) => at_once,
            None => (pending.await).unwrap_or_else(|_| Err(hold.unanswered())),
        };
        hold.released(released)
    }

    /// Leaves the hold, and has the drop do nothing more. False if other guards share the hold, which goes on then.
    fn goes(&mut self) -> Result<bool, ReleaseError> {
        if !self.hold.is_here() {
            let name = self.name().clone();
            return Err(ReleaseError::Forked { name });
        }
        self.is_gone = true;
        Ok(self.hold.term.go())
    }

    /// Is ready once the lock is lost. Runs on any executor, and may be selected on.
    ///
    /// # Examples
    /// ```
    /// # let locks = tenure::testing::locks();
    /// # let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
    /// let guard = locks.acquire("deploy")?;
    /// # runtime.block_on(async {
    /// # let work = async {};
    /// tokio::select! {
    ///     () = work => {} // with the lock to the end
    ///     () = guard.lost() => panic!("another holder may be at work"),
    /// }
    /// # });
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub async fn lost(&self) {
        self.until(|state| state == GuardState::Lost).await;
    }

    /// Is ready once the work should end: the lock is lost, or another caller asked for it.
    pub async fn stop_requested(&self) {
        self.until(|state| state != GuardState::Held).await;
    }

    async fn until(&self, is_so: impl Fn(GuardState) -> bool) {
        self.hold.term.until(|| is_so(self.state())).await;
    }

    /// Reads the state, and who asked for the lock, without keeping the lock.
    #[cfg(feature = "framework")]
    pub(crate) fn observer(&self) -> impl Fn() -> (GuardState, Option<String>) + Send + use<> {
        let hold = Arc::downgrade(&self.hold);
        // Once all guards are gone there is nothing to report.
        move || match hold.upgrade() {
            Some(hold) => (hold.state(), hold.asked_by.get().cloned()),
            None => (GuardState::Held, None),
        }
    }

    /// Wakes `waker` at every change of the state from now on: for event loops of your own. A waker
    /// that blocks delays every waker after it, and no heartbeat.
    pub fn wake_on_change(&self, waker: &Waker) {
        self.hold.term.wake_on_change(waker);
    }
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guard")
            .field("name", &self.hold.name)
            .field("token", &self.hold.token)
            .field("state", &self.state())
            .finish_non_exhaustive()
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        // First: these touch nothing that another thread may have held at the moment of a fork.
        if self.is_gone || !self.hold.is_here() || !self.hold.term.go() {
            return;
        }
        let waits = if self.is_async {
            Waits::No
        } else {
            Waits::ForAnswer
        };
        match self.hold.end(waits) {
            // What a release on another thread has to tell, that thread logs.
            Err(error) if !self.hold.term.is_leaving() => {
                log::release_failed(&self.hold.name, &error.to_string());
            }
            // A loss was logged when it was found.
            Ok(_) | Err(_) => {}
        }
    }
}

/// Several locks that are held together. Dropping them releases them, the last one first.
#[derive(Debug, Default)]
#[must_use = "the locks are released as soon as the guards are dropped"]
pub struct Guards {
    guards: Vec<Guard>,
}

impl Guards {
    pub(super) fn push(&mut self, guard: Guard) {
        self.guards.push(guard);
    }

    /// The guards in their order.
    pub(super) fn apart(mut self) -> Vec<Guard> {
        std::mem::take(&mut self.guards)
    }

    /// The guard of one of the locks.
    pub fn get(&self, name: &str) -> Option<&Guard> {
        self.guards
            .iter()
            .find(|guard| guard.name().as_str() == name)
    }

    /// Whether any of them is known not to be held any more.
    pub fn is_lost(&self) -> bool {
        self.guards.iter().any(Guard::is_lost)
    }

    /// Whether the work should end: one of them is lost, or another caller asked for it.
    pub fn should_stop(&self) -> bool {
        self.guards.iter().any(Guard::should_stop)
    }

    /// Asks the store whether all of them stand: before a step that must not be done twice.
    ///
    /// # Errors
    /// - As [`Guard::verify`], of the first that cannot be shown to stand.
    pub fn verify(&self) -> Result<(), VerifyError> {
        self.guards.iter().try_for_each(Guard::verify)
    }

    /// Is ready once one of the locks is lost, and says which. Runs on any executor, and may be
    /// selected on. Without any lock it is never ready.
    ///
    /// # Examples
    /// ```
    /// use tenure::guard::Options;
    /// # let locks = tenure::testing::locks();
    /// # let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
    /// # runtime.block_on(async {
    /// let both = locks.acquire_all_async(["schema", "data"], &Options::new()).await?;
    /// # let work = async {};
    /// tokio::select! {
    ///     () = work => {} // with both to the end
    ///     lost = both.lost() => panic!("another caller may have {}", lost.name()),
    /// }
    /// both.release_async().await?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub async fn lost(&self) -> &Guard {
        self.until(|state| state == GuardState::Lost).await
    }

    /// Is ready once the work should end, and says which lock is the reason: it is lost, or another
    /// caller asked for it. Without any lock it is never ready.
    pub async fn stop_requested(&self) -> &Guard {
        self.until(|state| state != GuardState::Held).await
    }

    async fn until(&self, is_so: fn(GuardState) -> bool) -> &Guard {
        let waits = self.guards.iter();
        let mut waits: Vec<_> = waits
            .map(|guard| (guard, Box::pin(guard.until(is_so))))
            .collect();
        poll_fn(|context| {
            let ready = waits
                .iter_mut()
                .find_map(|(guard, wait)| wait.as_mut().poll(context).is_ready().then_some(*guard));
            ready.map_or(Poll::Pending, Poll::Ready)
        })
        .await
    }

    /// [`Guard::release_async`] of all of them, the last one first. Goes on after a failure.
    ///
    /// # Errors
    /// - What went wrong first, as [`Guard::release_async`] says it; a loss before anything else.
    ///
    /// # Crash safety
    /// As [`Guard::release`], one after the other.
    pub async fn release_async(mut self) -> Result<(), ReleaseError> {
        let mut first = Ok(());
        while let Some(guard) = self.guards.pop() {
            first = worse(first, guard.release_async().await);
        }
        first
    }

    /// Releases all, the last one first, and goes on after a failure.
    ///
    /// # Errors
    /// - What went wrong first, as [`Guard::release`] says it; a loss before anything else.
    ///
    /// # Crash safety
    /// As [`Guard::release`], one after the other.
    pub fn release(mut self) -> Result<(), ReleaseError> {
        let mut first = Ok(());
        while let Some(guard) = self.guards.pop() {
            first = worse(first, guard.release());
        }
        first
    }
}

/// What to tell of two releases: a loss before a failure, for then two holders may have been at work.
pub(super) fn worse(
    one: Result<(), ReleaseError>,
    other: Result<(), ReleaseError>,
) -> Result<(), ReleaseError> {
    match (one, other) {
        (Err(lost @ ReleaseError::Lost { .. }), _) | (_, Err(lost @ ReleaseError::Lost { .. })) => {
            Err(lost)
        }
        (one, other) => one.and(other),
    }
}

/// The guards in the order in which the locks were taken, each on its own from now on.
impl IntoIterator for Guards {
    type Item = Guard;
    type IntoIter = std::vec::IntoIter<Guard>;

    fn into_iter(mut self) -> Self::IntoIter {
        std::mem::take(&mut self.guards).into_iter()
    }
}

impl<'a> IntoIterator for &'a Guards {
    type Item = &'a Guard;
    type IntoIter = std::slice::Iter<'a, Guard>;

    fn into_iter(self) -> Self::IntoIter {
        self.guards.iter()
    }
}

/// A panic under a guard leaves nothing of it half done: its state changes in single steps.
impl RefUnwindSafe for Hold {}

/// The guards in the order in which the locks were taken.
impl Deref for Guards {
    type Target = [Guard];

    fn deref(&self) -> &[Guard] {
        &self.guards
    }
}

impl Drop for Guards {
    fn drop(&mut self) {
        while let Some(guard) = self.guards.pop() {
            drop(guard);
        }
    }
}

/// A hold of this process.
pub(super) struct Hold {
    shared: Arc<Shared>,
    handle: Box<dyn Handle>,
    name: LockName,
    token: u64,
    pub(super) mode: Mode,
    slot: Option<u32>,
    ttl: Duration,
    holder: Holder,
    /// The process that acquired it.
    pid: u32,
    term: Term,
    lease: LeaseEnd,
    asked_by: OnceLock<String>,
    /// Whether the manager no longer lists the hold.
    is_forgotten: AtomicBool,
    /// The holder before it died.
    pub(super) previous_died: bool,
}

impl Hold {
    fn forget(&self) {
        self.is_forgotten.store(true, Ordering::Release);
        self.shared.forget(&self.name, self.token);
    }

    pub(super) fn new(
        shared: Arc<Shared>,
        handle: Box<dyn Handle>,
        name: LockName,
        claim: Claim,
    ) -> Self {
        let (state, asked_by) = match claim.cancel {
            Some(cancel) => (GuardState::StopRequested, cancel.by.into()),
            None => (GuardState::Held, OnceLock::new()),
        };
        let lapses = match shared.watching {
            Watching::Files | Watching::Looks(_) | Watching::Both(_) => {
                let ttl = Duration::from_millis(claim.lease.ttl_ms);
                shared.store.rules().lapse(ttl)
            }
            Watching::Always(_) => None,
        };
        let lapses_ms = lapses.map(|lapses| u64::try_from(lapses.as_millis()).unwrap_or(u64::MAX));
        Self {
            lease: LeaseEnd::new(lapses_ms, claim.lease.renewed.boot_ms),
            handle,
            name,
            token: claim.token.unwrap_or_default(),
            mode: claim.mode,
            slot: claim.slot,
            ttl: Duration::from_millis(claim.lease.ttl_ms),
            holder: claim.holder,
            // Callers in a copy of that process are refused before they come here.
            pid: shared.pid,
            shared,
            term: Term::new(state),
            asked_by,
            is_forgotten: AtomicBool::new(false),
            previous_died: false,
        }
    }

    /// How it stands for one that has no guard of it.
    pub(super) fn watched(&self) -> GuardState {
        if self.term.has_guards() {
            self.state()
        } else {
            GuardState::Lost
        }
    }

    pub(super) fn asked_by(&self) -> Option<&str> {
        self.asked_by.get().map(String::as_str)
    }

    pub(super) fn wake_on_change(&self, waker: &Waker) {
        self.term.wake_on_change(waker);
    }

    pub(super) fn name(&self) -> &LockName {
        &self.name
    }

    /// Whether this is the process that acquired it, and not a copy made by a fork.
    fn is_here(&self) -> bool {
        self.pid == std::process::id()
    }

    /// Whether its guards show that it is held, and no release has begun.
    pub(super) fn is_held(&self) -> bool {
        !self.term.is_leaving() && self.state() != GuardState::Lost
    }

    fn state(&self) -> GuardState {
        if !self.is_here() {
            return GuardState::Lost;
        }
        // A process that was stopped for longer than its lease may ask before the renewer has had its turn.
        if self.lease.lapse_ms().is_some()
            && self.term.known() != GuardState::Lost
            && self.lease.is_over(self.shared.clock.now().boot_ms)
        {
            return self.lost(LostReason::Expired, Finder::Caller);
        }
        self.term.known()
    }

    /// Notes that it is lost.
    fn lost(&self, reason: LostReason, by: Finder) -> GuardState {
        self.term.is_lost_by(reason);
        self.found(GuardState::Lost, by)
    }

    fn lost_reason(&self) -> Option<LostReason> {
        if !self.is_here() {
            return Some(LostReason::Forked);
        }
        let is_lost = self.state() == GuardState::Lost;
        is_lost.then(|| self.term.lost_reason()).flatten()
    }

    fn good_for(&self) -> Option<Duration> {
        if self.state() == GuardState::Lost {
            return Some(Duration::ZERO);
        }
        let left_ms = self.lease.left_ms(self.shared.clock.now().boot_ms)?;
        Some(Duration::from_millis(left_ms))
    }

    /// Notes the state that a thread found.
    fn found(&self, state: GuardState, by: Finder) -> GuardState {
        let (name, token) = (&self.name, self.token);
        match by {
            Finder::Caller => self.term.found(state, || {
                tell(state, name, token, self.line().as_ref());
            }),
            Finder::Renewer => self.term.found_for(state, |wakers| {
                self.wake(wakers);
                let (name, line) = (name.clone(), self.line());
                let tell = move || tell(state, &name, token, line.as_ref());
                self.shared.logs.tell(tell);
            }),
        }
    }

    /// A line of the audit about it.
    fn line(&self) -> Option<Line> {
        Line::of(&self.shared, &self.name, &self.holder)
    }

    /// Has them woken by a thread that does nothing else: a waker may block.
    fn wake(&self, wakers: Vec<Waker>) {
        if !wakers.is_empty() {
            let wake = move || wakers.into_iter().for_each(Waker::wake);
            self.shared.wakes.tell(wake);
        }
    }

    fn verified(&self, store: &dyn Store) -> Result<Renewal, StoreError> {
        store.verify(&*self.handle, &self.shared.clock.now())
    }

    /// Asks the store, and notes what it says. `None` once it was released.
    fn ask(
        &self,
        by: Finder,
        question: impl FnOnce(&dyn Store) -> Result<Renewal, StoreError>,
    ) -> Option<Result<Renewal, StoreError>> {
        let answer = self.term.ask(|| question(&*self.shared.store))?;
        // Outside of `Term::ask`: a caller that is woken here may ask again at once.
        match &answer {
            Ok(Renewal::Lost) => {
                self.lost(LostReason::Gone, by);
            }
            Ok(Renewal::Renewed {
                cancel_requested: true,
                ..
            }) => {
                self.find_out_who_asks();
                self.found(GuardState::StopRequested, by);
            }
            Ok(Renewal::Renewed { .. }) | Err(_) => {}
        }
        Some(answer)
    }

    fn find_out_who_asks(&self) {
        if self.asked_by.get().is_some() {
            return;
        }
        // If that fails, the next look tries again.
        let reading = self.shared.store.read(&self.name, None).ok();
        let entry = reading.as_ref().and_then(Reading::entry);
        let own = entry.and_then(|entry| {
            let mut claims = entry.granted();
            claims.find(|claim| claim.token == Some(self.token))
        });
        if let Some(cancel) = own.and_then(|claim| claim.cancel.as_ref()) {
            let _ = self.asked_by.set(cancel.by.clone());
        }
    }

    fn verify(&self) -> Result<(), VerifyError> {
        let name = || self.name.clone();
        let asked = || self.ask(Finder::Caller, |store| self.verified(store));
        let answer = self.is_here().then(asked).flatten();
        match answer.unwrap_or(Ok(Renewal::Lost)) {
            // A hold that is known to be lost stays lost, whatever a later renewal has found.
            Ok(_) if self.state() == GuardState::Lost => Err(VerifyError::Lost { name: name() }),
            Ok(Renewal::Lost) => Err(VerifyError::Lost { name: name() }),
            Ok(Renewal::Renewed { .. }) => Ok(()),
            Err(source) => Err(VerifyError::Store {
                name: name(),
                source,
            }),
        }
    }

    pub(super) fn token(&self) -> u64 {
        self.token
    }

    /// Whether a release waits for servers.
    fn is_on_servers(&self) -> bool {
        self.shared.store.rules().network
    }

    /// The answer to a release as its caller gets it.
    fn released(&self, answer: Result<bool, StoreError>) -> Result<(), ReleaseError> {
        let name = || self.name.clone();
        match answer {
            Ok(true) => Ok(()),
            Ok(false) => Err(ReleaseError::Lost { name: name() }),
            Err(source) => Err(ReleaseError::Store {
                name: name(),
                source,
            }),
        }
    }

    /// Gives the lock back. False if it was not held any more.
    pub(super) fn end(self: &Arc<Self>, waits: Waits) -> Result<bool, StoreError> {
        let (tells, told) = mpsc::channel();
        let tell = move |answer| drop(tells.send(answer));
        let at_once = match waits {
            _ if self.is_on_servers() => self.leave(tell),
            Waits::ForAnswer => Some(self.give_back_here(None)),
            Waits::No => match self.give_back(Some(DROP_MAX), false) {
                Some(given) if given.answer.is_ok() => {
                    ReleaseLog::of(&given).log(&self.name, self.token, self.line().as_ref());
                    Some(given.answer)
                }
                // A heartbeat may wait for the very process that keeps everybody from the list.
                Some(_) | None => self.leave(tell),
            },
        };
        match (at_once, waits) {
            (Some(answer), _) => answer,
            (None, Waits::No) => Ok(true),
            (None, Waits::ForAnswer) => loop {
                let rest = self.shared.releases.patience();
                match told.recv_timeout(rest) {
                    Ok(answer) => return answer,
                    Err(mpsc::RecvTimeoutError::Timeout)
                        if !self.shared.releases.patience().is_zero() => {}
                    Err(_) => return Err(self.unanswered()),
                }
            },
        }
    }

    fn unanswered(&self) -> StoreError {
        StoreError::Unreachable {
            place: self.shared.store.location(&self.name).shown,
            doing: "releasing the lock",
            why: "no answer yet; the release goes on".to_owned(),
        }
    }

    /// Begins to give it back on another thread. The answer, if there is nothing to ask; else it is reported later.
    fn leave(
        self: &Arc<Self>,
        tell: impl FnOnce(Result<bool, StoreError>) + Send + 'static,
    ) -> Option<Result<bool, StoreError>> {
        if self.term.is_leaving() {
            // Somebody has begun already.
            return Some(Ok(true));
        }
        let is_lost = self.is_on_servers() && self.state() == GuardState::Lost;
        self.term.leaves();
        if is_lost {
            // Of a hold that is lost nothing is asked, and nobody waits for it.
            self.handle.forsake();
            return Some(Ok(false));
        }
        let leaving: Arc<dyn Leaving> = Arc::clone(self) as _;
        self.shared.releases.add(leaving, tell);
        None
    }

    /// Gives it back on the thread of its caller, which logs that.
    fn give_back_here(&self, within: Option<Duration>) -> Result<bool, StoreError> {
        let Some(given) = self.give_back(within, true) else {
            return Err(self.unanswered());
        };
        // What fails is its caller's to tell.
        if given.answer.is_ok() {
            ReleaseLog::of(&given).log(&self.name, self.token, self.line().as_ref());
        }
        given.answer
    }

    /// Gives it back; `None` if it is asked about just now, and this caller does not wait for that.
    fn give_back(&self, within: Option<Duration>, waits: bool) -> Option<ReleaseTry> {
        let now = self.shared.clock.now();
        let (store, handle) = (&*self.shared.store, &*self.handle);
        let (held, is_news) = (Cell::new(None), Cell::new(false));
        let leave = || {
            let left = match within {
                Some(within) => store.give_up(handle, &now, within),
                None => store.release(handle, &now),
            };
            match left? {
                Left::Released { held_ms } => {
                    held.set(Some(held_ms));
                    Ok(true)
                }
                Left::Withdrawn | Left::Absent => Ok(false),
            }
        };
        // After an error it counts as lost as well: its caller works under it no longer.
        let ended = self.term.end(waits, leave, |wakers| {
            is_news.set(true);
            self.wake(wakers);
        })?;
        if ended.as_ref().is_ok_and(|ended| ended.just_now) {
            self.forget();
        }
        Some(ReleaseTry {
            answer: ended.map(|ended| ended.was_ours),
            held_ms: held.get(),
            is_news: is_news.get(),
        })
    }

    /// Gives it back although there are guards, which are notified of the loss. `None` if the answer is reported later.
    pub(super) fn end_for_all(
        self: &Arc<Self>,
        tell: impl FnOnce(Result<(), ReleaseError>) + Send + 'static,
    ) -> Option<Result<(), ReleaseError>> {
        let hold = Arc::clone(self);
        let answer = if self.is_on_servers() {
            self.leave(move |answer| tell(hold.released(answer)))
        } else {
            Some(self.give_back_here(None))
        };
        self.lost(LostReason::Released, Finder::Renewer);
        answer.map(|answer| self.released(answer))
    }

    /// What a caller is told whose hold the servers have not given back in time.
    pub(super) fn not_yet(&self) -> ReleaseError {
        ReleaseError::Store {
            name: self.name.clone(),
            source: self.unanswered(),
        }
    }
}

impl KeeperHold for Hold {
    /// The manager does not know how long the holder's work needs to end: a third of the lease is left for that.
    fn life(&self) -> Life {
        let terms = LeaseTerms {
            ttl_ms: u64::try_from(self.ttl.as_millis()).unwrap_or(u64::MAX),
            lapse_ms: self.lease.lapse_ms(),
            grace_ms: self.lease.lapse_ms().map_or(0, |lapse| lapse / 3),
            network: !matches!(self.shared.watching, Watching::Files),
        };
        Life::new(terms, self.lease.sign_ms())
    }

    fn lapses(&self) -> bool {
        self.lease.lapse_ms().is_some()
    }

    fn file(&self) -> Option<String> {
        let place = self.shared.store.location(&self.name);
        place.file.map(|_| place.shown)
    }

    fn notices(&self) -> Option<Descriptor> {
        let notices = self.shared.store.notices(&*self.handle);
        notices.map(|notices| notices.descriptor)
    }

    fn asked(&self, renews: Option<&Now>) -> Option<Result<Renewal, StoreError>> {
        let Some(asked) = renews else {
            return self.ask(Finder::Renewer, |store| self.verified(store));
        };
        let within = (!self.is_on_servers()).then_some(RENEWAL_MAX);
        let answer = self.ask(Finder::Renewer, |store| {
            store.renew_within(&*self.handle, asked, within)
        });
        if let Some(Ok(Renewal::Renewed { .. })) = &answer {
            self.lease.renewed(asked.boot_ms);
        }
        answer
    }

    fn told(&self, _: Ask, news: News, error: Option<StoreError>) -> bool {
        if let Some(error) = error {
            let name = self.name.clone();
            let told = move || log::renew_failed(&name, &error);
            self.shared.logs.tell_unless_busy(told);
        }
        // Other callers may count it as stale by its silence. Its holder has to know before they do.
        if let Some(Loss::Silence { .. }) = news.lost
            && !self.term.is_leaving()
        {
            self.lost(LostReason::Expired, Finder::Renewer);
        }
        // A guard that was lost stays lost, whatever an older answer says; nobody can work under it again.
        news.lost.is_none() && self.term.known() != GuardState::Lost
    }
}

impl Leaving for Hold {
    fn name(&self) -> &LockName {
        &self.name
    }

    fn token(&self) -> u64 {
        self.token
    }

    fn tries_to_leave(&self, is_first: bool) -> ReleaseTry {
        let within = self.is_on_servers().then_some(TRY_MAX);
        let Some(mut given) = self.give_back(within, true) else {
            return ReleaseTry {
                answer: Err(self.unanswered()),
                held_ms: None,
                is_news: false,
            };
        };
        if !is_first && matches!(given.answer, Ok(false)) {
            // An earlier try was carried out, although its answer never came.
            given.answer = Ok(true);
        }
        given
    }

    fn has_lapsed(&self) -> bool {
        let now_ms = self.shared.clock.now().boot_ms;
        self.lease
            .left_ms(now_ms)
            .is_none_or(|left_ms| left_ms == 0)
    }

    fn has_gone(&self) {
        self.handle.forsake();
    }

    fn log_release(&self, logs: Logs, given: &ReleaseTry) {
        let (name, token, told) = (self.name.clone(), self.token, ReleaseLog::of(given));
        let line = self.line();
        (self.shared.logs).tell(move || logs.within(|| told.log(&name, token, line.as_ref())));
    }
}

/// Forgets the hold, unless it ended well and is forgotten already.
impl Drop for Hold {
    fn drop(&mut self) {
        if !*self.is_forgotten.get_mut() && self.is_here() {
            self.forget();
        }
    }
}

/// What the log tells of one try to give a hold back.
enum ReleaseLog {
    Released(u64),
    Lost,
    Failed(String),
    Nothing,
}

impl ReleaseLog {
    fn of(given: &ReleaseTry) -> Self {
        match (&given.answer, given.held_ms) {
            (Ok(true), Some(held_ms)) => Self::Released(held_ms),
            (Ok(false), _) if given.is_news => Self::Lost,
            (Err(error), _) => Self::Failed(error.to_string()),
            (Ok(_), _) => Self::Nothing,
        }
    }

    fn log(&self, name: &LockName, token: u64, line: Option<&Line>) {
        if let Some(line) = line {
            match self {
                Self::Released(held_ms) => line.released(Duration::from_millis(*held_ms)),
                Self::Lost => line.lost(token),
                Self::Failed(_) | Self::Nothing => {}
            }
        }
        match self {
            Self::Released(held_ms) => log::released(name, token, *held_ms),
            Self::Lost => log::lost(name, token),
            Self::Failed(error) => log::release_failed(name, error),
            Self::Nothing => {}
        }
    }
}

/// How long async code may be kept by a drop of a guard in a folder, where another process is stopped in the middle of a
/// change to the same lock. Another thread gives it back then.
const DROP_MAX: Duration = Duration::from_millis(20);

/// Whether a caller waits until it is known what became of a release.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Waits {
    /// As long as callers wait for servers, or for the system.
    ForAnswer,
    /// Async code does not.
    No,
}

/// The thread that has found how a hold stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Finder {
    /// A thread of the application, about its own hold.
    Caller,
    /// A thread that has other holds to renew. A waker or a log that blocks must not delay it.
    Renewer,
}

fn tell(state: GuardState, name: &LockName, token: u64, line: Option<&Line>) {
    if let (GuardState::Lost, Some(line)) = (state, line) {
        line.lost(token);
    }
    match state {
        GuardState::Held => {}
        GuardState::StopRequested => log::stop_requested(name, token),
        GuardState::Lost => log::lost(name, token),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::{self, Silent, Wait};
    use crate::guard::{LockManager, Options};
    use crate::store::Wake;
    use crate::store::contract::{
        About, Ask, Draft, Location, Outcome, Rules, Step, Waiting, Which,
    };
    use crate::store::memory::MemoryStore;
    use std::sync::atomic::AtomicUsize;
    use std::time::Instant;
    use tenure_core::Policy;

    /// Locks that count how often a claim was given back.
    #[derive(Debug)]
    struct Counted {
        locks: MemoryStore,
        left: Arc<AtomicUsize>,
    }

    impl Store for Counted {
        fn rules(&self) -> &Rules {
            self.locks.rules()
        }

        fn location(&self, name: &LockName) -> Location {
            self.locks.location(name)
        }

        fn read(&self, name: &LockName, of: Option<&dyn Handle>) -> Result<Reading, StoreError> {
            self.locks.read(name, of)
        }

        fn transact(
            &self,
            ask: &Ask<'_>,
            change: &mut dyn FnMut(&mut Draft<'_>) -> Step,
        ) -> Result<Outcome, StoreError> {
            if let About::Own(_) = ask.about {
                self.left.fetch_add(1, Ordering::Relaxed);
            }
            self.locks.transact(ask, change)
        }

        fn wait(&self, waiting: &Waiting<'_>, until: Option<Instant>) -> Result<Wake, StoreError> {
            self.locks.wait(waiting, until)
        }

        fn names(&self, which: Which, each: &mut dyn FnMut(LockName)) -> Result<(), StoreError> {
            self.locks.names(which, each)
        }
    }

    fn guard(left: &Arc<AtomicUsize>, pid: u32) -> Guard {
        let locks = MemoryStore::new(Policy::NATIVE);
        let left = Arc::clone(left);
        let locks = LockManager::with_store(Counted { locks, left });
        let name = LockName::new("a").expect("an accepted name");
        let shared = &locks.shared;
        let request = shared.request(&Options::new(), Mode::Exclusive);
        let request = request.expect("random bytes");
        let (store, clock) = (&*shared.store, &*shared.clock);
        let acquired = engine::acquire(store, clock, &name, request, Wait::No, &mut Silent);
        let acquired = acquired.expect("a free lock");
        let handle = acquired.handle.expect("a handle");
        let mut hold = Hold::new(Arc::clone(shared), handle, name, acquired.claim);
        hold.pid = pid;
        Guard::first(Arc::new(hold))
    }

    #[test]
    fn a_forked_copy_of_a_guard_neither_holds_nor_releases() {
        let left = Arc::new(AtomicUsize::new(0));
        // As the copy sees it: the process that made the guard has another number.
        let copy = guard(&left, std::process::id() + 1);
        assert!(copy.is_lost(), "the copy must not work under it");
        assert!(copy.verify().is_err(), "and is told when it asks");
        let error = copy.release().expect_err("not the copy's to release");
        assert!(matches!(error, ReleaseError::Forked { .. }), "{error}");
        drop(error);
        assert_eq!(left.load(Ordering::Relaxed), 0, "the maker's lock stands");
        drop(guard(&left, std::process::id()));
        assert_eq!(left.load(Ordering::Relaxed), 1, "and the maker releases");
    }

    #[test]
    fn a_release_that_was_told_is_not_done_again_by_the_drop() {
        let left = Arc::new(AtomicUsize::new(0));
        let held = guard(&left, std::process::id());
        held.release().expect("a release");
        assert_eq!(left.load(Ordering::Relaxed), 1);
    }
}
