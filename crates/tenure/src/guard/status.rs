//! The standing of a lock as a program sees it that neither holds it nor waits: holders, waiters, and what an acquire would get.
//!
//! The facts and the words are those of `tenure check`.

use crate::store::Reading;
use crate::view::{HolderView, LockView, QueueView};
use std::fmt;
use std::time::{Duration, SystemTime};
use tenure_core::{Claim, Entry, Holder, LockName, Mode, Now, Policy};

/// How a lock stands. Its text is what `tenure check` says, with a line for each other holder and each waiter.
///
/// # Examples
/// ```
/// use tenure::guard::{LockStanding, Options};
/// use tenure::testing::Scene;
/// let scene = Scene::new();
/// let _theirs = scene.another_process().acquire_with("deploy", &Options::new().why("nightly"))?;
/// let status = scene.locks().check("deploy")?;
/// assert_eq!(status.standing, LockStanding::Held);
/// assert_eq!(status.holders[0].who.why, "nightly");
/// assert!(status.to_string().starts_with("deploy is held by PID "));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct LockStatus {
    /// The lock.
    pub name: LockName,
    /// Whether it is held, in one word.
    pub standing: LockStanding,
    /// Whether an exclusive request would hold at once.
    pub is_available: bool,
    /// The holders, the first one first.
    pub holders: Vec<LockHolder>,
    /// The waiters, in the order in which their turns come.
    pub waiters: Vec<LockWaiter>,
    /// When a retry is likely to succeed, if the lock is held; a hint.
    pub retry_after: Option<Duration>,
    view: Box<LockView>,
}

/// Whether a lock is held, in one word, which is also its text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum LockStanding {
    /// No claim holds it that counts.
    Free,
    /// A live claim holds it.
    Held,
    /// The holder is gone, and the policy has nobody take the lock over unasked.
    Stale,
    /// The record cannot be read.
    Unreadable,
    /// The lock could not be looked at.
    Unknown,
}

impl fmt::Display for LockStanding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Free => "free",
            Self::Held => "held",
            Self::Stale => "stale",
            Self::Unreadable => "unreadable",
            Self::Unknown => "unknown",
        })
    }
}

/// A holder of a lock. Its text names it, since when it holds and what for: `PID 4711 (ada@host) since … (3s ago): deploy`.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct LockHolder {
    /// Process and host of the holder, on whose behalf it holds and what for.
    pub who: Holder,
    /// Fencing token; `None` while the lock is being handed over.
    pub token: Option<u64>,
    /// How it holds.
    pub mode: Mode,
    /// The number of its slot, if it has one.
    pub slot: Option<u32>,
    /// Since when; the epoch, if its record has an instant that no clock shows.
    pub since: SystemTime,
    /// For how long.
    pub age: Duration,
    /// Another caller asked it to stop.
    pub is_asked_to_stop: bool,
    /// Whether the holder's process is seen to be stopped, by SIGSTOP or Ctrl-Z say.
    pub is_stopped: bool,
    text: String,
}

/// A waiter for a lock. Its text names it and says for how long it has waited.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct LockWaiter {
    /// Process and host of the waiter, on whose behalf it waits and what for.
    pub who: Holder,
    /// Place in line: 1 is next.
    pub position: usize,
    /// How it would hold.
    pub mode: Mode,
    /// For how long it has waited.
    pub age: Duration,
    /// Whether the waiter's process is seen to be stopped.
    pub is_stopped: bool,
    text: String,
}

impl LockHolder {
    /// The holder of a claim, as of `now`: of a blocker, or of what [`Options::on_wait`](super::Options::on_wait) shows.
    pub fn of(claim: &Claim, now: &Now) -> Self {
        Self::seen(claim, &LockView::holder_of(claim, now))
    }

    pub(super) fn seen(claim: &Claim, view: &HolderView) -> Self {
        Self {
            who: claim.holder.clone(),
            token: view.token,
            mode: claim.mode,
            slot: view.slot,
            // A record of another program may have any number.
            since: (SystemTime::UNIX_EPOCH.checked_add(Duration::from_millis(view.since_ms)))
                .unwrap_or(SystemTime::UNIX_EPOCH),
            age: Duration::from_millis(view.age_ms),
            is_asked_to_stop: view.cancel_requested,
            is_stopped: view.stopped,
            text: view.sentence(),
        }
    }
}

impl LockWaiter {
    pub(super) fn seen(claim: &Claim, view: &QueueView) -> Self {
        Self {
            who: claim.holder.clone(),
            position: view.position,
            mode: claim.mode,
            age: Duration::from_millis(view.waiting_ms),
            is_stopped: view.stopped,
            text: view.sentence(),
        }
    }
}

impl fmt::Display for LockHolder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl fmt::Display for LockWaiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl LockStatus {
    /// From a look at the lock.
    pub(super) fn of(name: LockName, reading: &Reading, policy: &Policy, now: &Now) -> Self {
        let view = LockView::of(&name, reading, policy, now, |_| false);
        let view = view.for_mode(Mode::Exclusive, reading, policy, now);
        Self::seen(name, view, reading.entry())
    }

    /// Of a lock that could not be looked at.
    pub(super) fn unknown(name: LockName, policy: &Policy, place: String) -> Self {
        let view = LockView::unknown(&name, policy, place);
        Self::seen(name, view, None)
    }

    pub(super) fn seen(name: LockName, view: LockView, entry: Option<&Entry>) -> Self {
        let claim = |ticket| entry.and_then(|entry| entry.claim(ticket));
        let standing = match view.word() {
            "free" => LockStanding::Free,
            "held" => LockStanding::Held,
            "stale" => LockStanding::Stale,
            "unreadable" => LockStanding::Unreadable,
            _ => LockStanding::Unknown,
        };
        // A holder that no longer counts holds nothing, and neither does the next in line.
        let holders = view.holder.iter().chain(&view.other_holders);
        let holders =
            holders.filter(|_| standing == LockStanding::Held && view.standstill.is_none());
        let holders = holders.filter_map(|seen| Some(LockHolder::seen(claim(seen.ticket)?, seen)));
        let waiters = view.queue.iter();
        let waiters = waiters.filter_map(|seen| Some(LockWaiter::seen(claim(seen.ticket)?, seen)));
        Self {
            holders: holders.collect(),
            waiters: waiters.collect(),
            name,
            standing,
            is_available: view.available,
            retry_after: view.retry_after_ms.map(Duration::from_millis),
            view: Box::new(view),
        }
    }
}

impl fmt::Display for LockStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.view.text())
    }
}
