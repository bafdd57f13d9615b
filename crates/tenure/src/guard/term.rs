//! The part of a hold that threads share: its known state, the wakers for changes of it, and its end.
//!
//! - What is known only gets worse: held, asked to stop, lost.
//! - It ends once, with the last of its guards, and never under a question to the store. So no heartbeat
//!   finds a hold lost that was released under it.
//!
//! `hold` has the questions to the store, and the log.

use crate::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};
use crate::sync::{Mutex, locked};
use std::fmt;
use std::task::{Poll, Waker};

/// How a hold stands, as far as is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum GuardState {
    /// The lock is held.
    Held,
    /// The lock is held, and another caller asked the holder to stop (`tenure cancel`, a forced acquire).
    StopRequested,
    /// The lock is no longer held: taken over, removed by hand, or given back with an error.
    Lost,
}

/// Why a hold is lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum LostReason {
    /// The claim is no longer there: taken over, or removed by hand.
    Gone = 1,
    /// No renewal has succeeded in time, so other callers may have the lock.
    Expired = 2,
    /// The program gave it back under the guard, or could not give it back.
    Released = 3,
    /// The calling process is a copy, made by a fork, of the one that holds the lock.
    Forked = 4,
}

impl fmt::Display for LostReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Gone => "its claim was taken over or removed",
            Self::Expired => "no renewal has succeeded in time",
            Self::Released => "the program gave it back",
            Self::Forked => "this process is a copy of the one that holds it",
        })
    }
}

/// The part of a hold that threads share.
pub(super) struct Term {
    state: AtomicU8,
    /// Why it is lost, once it is; else 0.
    reason: AtomicU8,
    wakers: Mutex<Vec<Waker>>,
    /// How many guards there are.
    guards: AtomicUsize,
    /// Set once there is nothing left to release: whether the hold was still ours then. Locked during
    /// every call to the store.
    ended: Mutex<Option<bool>>,
    /// Set once the release of the hold has begun: nothing is asked about the hold any more.
    is_leaving: AtomicBool,
}

/// The end of a hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct HoldEnd {
    /// Whether it was still ours.
    pub(super) was_ours: bool,
    /// Whether this call ended it, and not an earlier one.
    pub(super) just_now: bool,
}

impl Term {
    /// The shared part of a hold with one guard.
    pub(super) fn new(state: GuardState) -> Self {
        Self {
            state: AtomicU8::new(state as u8),
            reason: AtomicU8::new(0),
            wakers: Mutex::new(Vec::new()),
            guards: AtomicUsize::new(1),
            ended: Mutex::new(None),
            is_leaving: AtomicBool::new(false),
        }
    }

    /// How it stands, as far as is known.
    pub(super) fn known(&self) -> GuardState {
        let known = self.state.load(Ordering::Acquire);
        if known == GuardState::Lost as u8 {
            GuardState::Lost
        } else if known == GuardState::StopRequested as u8 {
            GuardState::StopRequested
        } else {
            GuardState::Held
        }
    }

    /// Notes why it is lost, before the loss itself. The first reason stays.
    pub(super) fn is_lost_by(&self, reason: LostReason) {
        let reason = reason as u8;
        let _ = (self.reason).compare_exchange(0, reason, Ordering::AcqRel, Ordering::Acquire);
    }

    /// Why it is lost, if it is known to be.
    pub(super) fn lost_reason(&self) -> Option<LostReason> {
        if self.known() != GuardState::Lost {
            return None;
        }
        let reason = self.reason.load(Ordering::Acquire);
        [LostReason::Expired, LostReason::Released]
            .into_iter()
            .find(|known| *known as u8 == reason)
            .or(Some(LostReason::Gone))
    }

    /// Notes a state that was found. If that is a change, it wakes the waiters for a change first, and
    /// then calls `tell`. A lost lock stays lost, and a request to stop stands.
    pub(super) fn found(&self, state: GuardState, tell: impl FnOnce()) -> GuardState {
        self.found_for(state, |wakers| {
            wakers.into_iter().for_each(Waker::wake);
            tell();
        })
    }

    /// Notes a state for a thread that must not wake the waiters itself: `tell` gets their wakers.
    pub(super) fn found_for(&self, state: GuardState, tell: impl FnOnce(Vec<Waker>)) -> GuardState {
        let before = self.state.fetch_max(state as u8, Ordering::AcqRel);
        if before < state as u8 {
            // Used outside of the mutex: a waker may well ask again.
            let wakers = match state {
                GuardState::Held | GuardState::StopRequested => locked(&self.wakers).clone(),
                GuardState::Lost => std::mem::take(&mut *locked(&self.wakers)),
            };
            tell(wakers);
        }
        self.known()
    }

    /// Wakes `waker` at every change from now on.
    pub(super) fn wake_on_change(&self, waker: &Waker) {
        let mut wakers = locked(&self.wakers);
        wakers.retain(|known| !known.will_wake(waker));
        wakers.push(waker.clone());
    }

    /// Is ready once `is_so` holds; checks again at every change.
    pub(super) async fn until(&self, is_so: impl Fn() -> bool) {
        std::future::poll_fn(|context| {
            self.wake_on_change(context.waker());
            // Checked after the waker is in place: an earlier change does not wake it.
            if is_so() {
                Poll::Ready(())
            } else {
                Poll::Pending
            }
        })
        .await;
    }

    /// Counts another guard, unless none is left or the only one is about to release. Check only
    /// after this whether the hold still [stands](Term::stands): no other guard ends a hold that has this one.
    #[must_use]
    pub(super) fn join(&self) -> bool {
        let more = |guards| (guards > 0).then_some(guards + 1);
        self.guards
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, more)
            .is_ok()
    }

    /// Notes that its release has begun. What is asked of it from now on has no answer.
    pub(super) fn leaves(&self) {
        self.is_leaving.store(true, Ordering::Release);
    }

    /// Whether its release has begun.
    pub(super) fn is_leaving(&self) -> bool {
        self.is_leaving.load(Ordering::Acquire)
    }

    /// Whether there is something to share with one more guard.
    pub(super) fn stands(&self) -> bool {
        locked(&self.ended).is_none() && !self.is_leaving() && self.known() != GuardState::Lost
    }

    /// Counts a guard less. True if it was the last one, which has to end the hold. Then whoever watches the
    /// hold is woken.
    #[must_use]
    pub(super) fn go(&self) -> bool {
        let is_last = self.guards.fetch_sub(1, Ordering::AcqRel) == 1;
        if is_last {
            // Used outside of the mutex: a waker may well ask again.
            let wakers = std::mem::take(&mut *locked(&self.wakers));
            wakers.into_iter().for_each(Waker::wake);
        }
        is_last
    }

    /// Whether it has a guard.
    pub(super) fn has_guards(&self) -> bool {
        self.guards.load(Ordering::Acquire) > 0
    }

    /// Asks the store. `None` once the hold has ended, or its release has begun.
    pub(super) fn ask<T>(&self, question: impl FnOnce() -> T) -> Option<T> {
        // Before the mutex, which a release may have for as long as a server is silent.
        if self.is_leaving() {
            return None;
        }
        let ended = locked(&self.ended);
        (ended.is_none() && !self.is_leaving()).then(question)
    }

    /// Ends the hold by `leave`, unless it has ended. `leave` says whether it was still ours. If it was
    /// not, or after an error, the hold counts as lost; `tell` gets the wakers if that is a change. `None` if the store is
    /// asked about it right now, for a caller that does not wait for that.
    ///
    /// # Errors
    /// - The errors of `leave`. The hold has not ended then.
    pub(super) fn end<E>(
        &self,
        waits: bool,
        leave: impl FnOnce() -> Result<bool, E>,
        tell: impl FnOnce(Vec<Waker>),
    ) -> Option<Result<HoldEnd, E>> {
        let left = {
            let mut ended = match self.ended.try_lock() {
                Ok(ended) => ended,
                Err(_) if !waits => return None,
                Err(_) => locked(&self.ended),
            };
            if let Some(was_ours) = *ended {
                let just_now = false;
                return Some(Ok(HoldEnd { was_ours, just_now }));
            }
            let left = leave();
            *ended = left.as_ref().ok().copied();
            left
        };
        if !matches!(left, Ok(true)) {
            self.is_lost_by(match left {
                Ok(_) => LostReason::Gone,
                Err(_) => LostReason::Released,
            });
            self.found_for(GuardState::Lost, tell);
        }
        Some(left.map(|was_ours| HoldEnd {
            was_ours,
            just_now: true,
        }))
    }
}
