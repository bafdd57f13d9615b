//! A watcher of a hold that lives apart from its guards: for another task, another thread, or a log.

use super::hold::{Guard, Hold};
use super::term::GuardState;
use std::fmt;
use std::future::poll_fn;
use std::sync::Weak;
use std::task::{Poll, Waker};
use tenure_core::LockName;

/// A watcher of a lock that is held. It keeps nothing: the lock ends with its guards, and from then on the watcher shows
/// [`GuardState::Lost`], whether the lock was given back or lost.
///
/// # Examples
/// ```
/// # let locks = tenure::testing::locks();
/// # let runtime = tokio::runtime::Builder::new_current_thread().build()?;
/// # runtime.block_on(async {
/// let guard = locks.acquire("deploy")?;
/// let watch = guard.watch();
/// let beside = tokio::spawn(async move { watch.lost().await });
/// drop(guard);
/// beside.await?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Watch {
    hold: Weak<Hold>,
    name: LockName,
    token: u64,
}

impl Guard {
    /// A watcher of the hold that lives apart from the guard, and does not keep the lock.
    pub fn watch(&self) -> Watch {
        Watch {
            hold: self.of_hold(),
            name: self.name().clone(),
            token: self.token(),
        }
    }
}

impl Watch {
    /// The lock.
    pub fn name(&self) -> &LockName {
        &self.name
    }

    /// The fencing token of the hold.
    pub fn token(&self) -> u64 {
        self.token
    }

    /// The hold's state as far as this process knows it; does not ask the store.
    pub fn state(&self) -> GuardState {
        self.hold
            .upgrade()
            .map_or(GuardState::Lost, |hold| hold.watched())
    }

    /// Whether the lock is known not to be held any more.
    pub fn is_lost(&self) -> bool {
        self.state() == GuardState::Lost
    }

    /// Whether the work should end: the lock is not held any more, or another caller asked for it.
    pub fn should_stop(&self) -> bool {
        self.state() != GuardState::Held
    }

    /// The request id of the caller that asked for the lock, once that is known.
    pub fn asked_by(&self) -> Option<String> {
        self.hold.upgrade()?.asked_by().map(str::to_owned)
    }

    /// Is ready once the lock is lost or given back. Runs on any executor.
    pub async fn lost(&self) {
        self.until(|state| state == GuardState::Lost).await;
    }

    /// Is ready once the work should end: another caller asked for the lock, or it is not held any more.
    pub async fn stop_requested(&self) {
        self.until(|state| state != GuardState::Held).await;
    }

    async fn until(&self, is_so: fn(GuardState) -> bool) {
        poll_fn(|context| {
            self.wake_on_change(context.waker());
            // Checked after the waker is in place: an earlier change does not wake it.
            if is_so(self.state()) {
                Poll::Ready(())
            } else {
                Poll::Pending
            }
        })
        .await;
    }

    /// Wakes `waker` at every change of the state from now on, as [`Guard::wake_on_change`](super::Guard::wake_on_change).
    pub fn wake_on_change(&self, waker: &Waker) {
        if let Some(hold) = self.hold.upgrade() {
            hold.wake_on_change(waker);
        }
    }
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watch")
            .field("name", &self.name)
            .field("token", &self.token)
            .field("state", &self.state())
            .finish_non_exhaustive()
    }
}
