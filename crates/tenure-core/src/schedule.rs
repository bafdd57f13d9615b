//! The schedule of a hold: when it is renewed, when its holder must be told that its lease runs out, and
//! when others may have the lock.
//!
//! All holders follow one rule: the supervisor of a command, a caller that waits for its next lock, a guard
//! of the library. Nothing here reads a clock or touches a lock. Every number is a time of the boot clock
//! in milliseconds. A lease runs out by that clock, which goes on while the machine sleeps.
//!
//! The rules:
//! - Three renewals fit into the lease, and no two are further apart than 30 s. The lease is the shorter of
//!   the ttl and the silence at which the lock counts as left behind.
//! - A failed renewal is tried again at the next interval. Over a network it is tried again after a fifth
//!   of it: what fails there once may well succeed a moment later.
//! - A silent lease may count as left behind although its holder lives. Then the holder is notified **before**
//!   another caller may take the lock, and not sooner than necessary. The rest of the lease is all the time
//!   that the work has: its grace, at least half an interval, at most a quarter of the lease. So a third
//!   renewal has failed by then, however short the lease is. Over a network an answer may be late. There
//!   the rest is its grace, at least an interval and at least a second, at most half of the lease.
//! - One more renewal is tried before the holder is notified, unless one is still without its answer.
//! - The third failure in a row is worth an event. Over a network, one missing answer may take all the
//!   time. There the failure with which the holder is notified is worth an event as well.
//! - Being told is not the end: a later renewal that succeeds proves that no other caller took the lock.

/// The longest interval.
const INTERVAL_MAX_MS: u64 = 30_000;

/// The shortest, so that no ttl keeps the machine busy.
const INTERVAL_MIN_MS: u64 = 10;

/// The least that is left of a lease over a network when its holder is notified.
const REMOTE_REST_MIN_MS: u64 = 1_000;

/// How many renewals have to fail in a row to be worth an event.
const FAILURES_TOLD: u32 = 3;

/// What a schedule is made from, once, at the grant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LeaseTerms {
    /// The time limit of the claim.
    pub ttl_ms: u64,
    /// The silence after which others may take the lock although its holder lives; `None` if they never
    /// may.
    pub lapse_ms: Option<u64>,
    /// How long the work needs to end once it is notified.
    pub grace_ms: u64,
    /// The store is at the far end of a network.
    pub network: bool,
}

impl LeaseTerms {
    /// How much of the lease is kept for the work to end. Records keep whole seconds, but that is no reason
    /// to keep more: their ages are compared in whole seconds too.
    fn rest_ms(&self, lapse_ms: u64, interval_ms: u64) -> u64 {
        if self.network {
            let least = interval_ms.max(REMOTE_REST_MIN_MS);
            return least.max(self.grace_ms).min(lapse_ms / 2);
        }
        // Two intervals are two thirds of the lease: with a quarter kept, a third renewal is tried.
        (interval_ms / 2).max(self.grace_ms).min(lapse_ms / 4)
    }
}

/// When [`Schedule::due`] has to be asked next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moment {
    /// At this time at the latest.
    pub at_ms: u64,
    /// How much earlier a renewal may come, for a caller that renews many holds together.
    pub early_ms: u64,
}

/// What is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Due {
    /// Nothing yet.
    Nothing,
    /// A renewal: [`Schedule::begin`].
    Renew,
    /// The renewal under way got no answer in time: [`Schedule::unanswered`].
    Tell,
}

/// What a failed or unanswered renewal amounts to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Failed {
    /// How many have failed in a row.
    pub consecutive: u32,
    /// Whether the failure is worth an event: true for the first in a row.
    pub is_event: bool,
    /// Set if the holder cannot rely on the lock any longer, and was not told yet. Others may take the lock
    /// after so many milliseconds, and that is all the time that its work has.
    pub runs_out_ms: Option<u64>,
}

/// The renewals of one hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Schedule {
    interval_ms: u64,
    retry_ms: u64,
    lapse_ms: Option<u64>,
    network: bool,
    /// The holder is notified so long after the last sign of life.
    tell_after_ms: Option<u64>,
    /// When the last renewal that succeeded was begun.
    sign_ms: u64,
    next_ms: u64,
    /// When the renewal was begun that is still without an answer.
    asked_ms: Option<u64>,
    failures: u32,
    had_event: bool,
    knows: Knows,
}

/// What the holder knows of its hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Knows {
    /// The holder can rely on the lock.
    Held,
    /// The holder was notified that it cannot rely on the lock. A renewal may still succeed.
    Told,
    /// The hold is gone.
    Gone,
}

impl Schedule {
    /// A schedule for a claim whose last sign of life was at `sign_ms`. The grant counts as the first sign.
    pub fn new(terms: LeaseTerms, sign_ms: u64) -> Self {
        let interval_ms = interval_ms(terms.ttl_ms, terms.lapse_ms);
        let retry_ms = if terms.network {
            (interval_ms / 5).max(INTERVAL_MIN_MS)
        } else {
            interval_ms
        };
        Self {
            interval_ms,
            retry_ms,
            lapse_ms: terms.lapse_ms,
            network: terms.network,
            tell_after_ms: (terms.lapse_ms).map(|lapse| lapse - terms.rest_ms(lapse, interval_ms)),
            sign_ms,
            next_ms: sign_ms.saturating_add(interval_ms),
            asked_ms: None,
            failures: 0,
            had_event: false,
            knows: Knows::Held,
        }
    }

    /// How far apart two renewals are.
    pub fn interval_ms(&self) -> u64 {
        self.interval_ms
    }

    /// The silence after which others may take the lock although its holder lives; `None` if they never may.
    pub fn lapse_ms(&self) -> Option<u64> {
        self.lapse_ms
    }

    /// The last sign of life: when the last renewal that succeeded was begun.
    pub fn sign_ms(&self) -> u64 {
        self.sign_ms
    }

    /// When [`Schedule::due`] has to be asked next. `None` once there is nothing more to do, or while a
    /// renewal is under way and the holder has nothing to be told.
    pub fn next(&self) -> Option<Moment> {
        if self.knows == Knows::Gone {
            return None;
        }
        let tell = self.tell_ms().filter(|_| self.knows == Knows::Held);
        if self.asked_ms.is_some() {
            return tell.map(|at_ms| Moment { at_ms, early_ms: 0 });
        }
        Some(match tell {
            Some(at_ms) if at_ms <= self.next_ms => Moment { at_ms, early_ms: 0 },
            Some(_) | None => Moment {
                at_ms: self.next_ms,
                early_ms: self.interval_ms / 2,
            },
        })
    }

    /// What there is to do now.
    pub fn due(&self, now_ms: u64) -> Due {
        match (self.next(), self.asked_ms) {
            (Some(moment), None) if now_ms >= moment.at_ms => Due::Renew,
            (Some(moment), Some(_)) if now_ms >= moment.at_ms => Due::Tell,
            (Some(_) | None, _) => Due::Nothing,
        }
    }

    /// Notes that a renewal begins, which may be before one is due.
    pub fn begin(&mut self, now_ms: u64) {
        self.asked_ms = Some(now_ms);
    }

    /// Notes that the renewal under way has succeeded. True if the holder had been told that it could not
    /// rely on the lock: it can again. Of a hold that is gone it says nothing: the answer is older than that.
    pub fn renewed(&mut self) -> bool {
        if self.knows == Knows::Gone {
            return false;
        }
        // The beginning of the renewal counts: the store may have recorded it that early.
        if let Some(began_ms) = self.asked_ms.take() {
            self.sign_ms = self.sign_ms.max(began_ms);
        }
        self.next_ms = self.sign_ms.saturating_add(self.interval_ms);
        self.failures = 0;
        self.had_event = false;
        core::mem::replace(&mut self.knows, Knows::Held) == Knows::Told
    }

    /// Notes that the renewal under way has failed; the state of the lock is not known.
    pub fn failed(&mut self, now_ms: u64) -> Failed {
        self.asked_ms = None;
        self.next_ms = now_ms.saturating_add(self.retry_ms);
        self.note_failure(now_ms)
    }

    /// Notes that the renewal under way has no answer, and that there is no more time to wait for one. It may
    /// still succeed.
    pub fn unanswered(&mut self, now_ms: u64) -> Failed {
        self.note_failure(now_ms)
    }

    /// Whether a renewal is under way.
    pub fn is_asking(&self) -> bool {
        self.asked_ms.is_some()
    }

    /// Notes that the answer to the renewal under way will not come: the thread that asked has ended.
    pub fn forget_question(&mut self) {
        self.asked_ms = None;
    }

    /// Notes that the hold is gone, and that nothing is renewed any more. True if the holder relied on the lock until now.
    pub fn lost(&mut self) -> bool {
        self.asked_ms = None;
        core::mem::replace(&mut self.knows, Knows::Gone) == Knows::Held
    }

    /// Whether the holder was told that it cannot rely on the lock.
    pub fn is_told(&self) -> bool {
        self.knows != Knows::Held
    }

    /// Whether the holder can rely on the lock now. A holder that was told it cannot may try once more.
    pub fn is_reliable(&self, now_ms: u64) -> bool {
        self.knows == Knows::Held && !self.has_lapsed(now_ms)
    }

    /// Whether others may have the lock by now, as far as its holder can know. A holder that was stopped
    /// asks this before it looks at anything else.
    pub fn has_lapsed(&self, now_ms: u64) -> bool {
        self.knows == Knows::Gone || self.left_ms(now_ms) == Some(0)
    }

    fn note_failure(&mut self, now_ms: u64) -> Failed {
        self.failures = self.failures.saturating_add(1);
        let is_late = self.tell_ms().is_some_and(|tell| now_ms >= tell);
        let is_told = is_late && self.knows == Knows::Held;
        if is_told {
            self.knows = Knows::Told;
        }
        let is_worth_it = self.failures >= FAILURES_TOLD || (is_told && self.network);
        let is_event = is_worth_it && !self.had_event;
        self.had_event |= is_event;
        Failed {
            consecutive: self.failures,
            is_event,
            runs_out_ms: self.left_ms(now_ms).filter(|_| is_told),
        }
    }

    /// When the holder has to be told, if no renewal succeeds before.
    fn tell_ms(&self) -> Option<u64> {
        (self.tell_after_ms).map(|after| self.sign_ms.saturating_add(after))
    }

    /// How long it is until others may have the lock, if no renewal succeeds before. `None` for a hold that no
    /// silence ends.
    pub fn left_ms(&self, now_ms: u64) -> Option<u64> {
        let end_ms = |lapse: u64| self.sign_ms.saturating_add(lapse);
        self.lapse_ms
            .map(|lapse| end_ms(lapse).saturating_sub(now_ms))
    }
}

/// How far apart two renewals are, for a claim with this ttl that counts as left behind after a silence of
/// `lapse_ms`.
pub fn interval_ms(ttl_ms: u64, lapse_ms: Option<u64>) -> u64 {
    let lease_ms = lapse_ms.map_or(ttl_ms, |lapse| lapse.min(ttl_ms));
    (lease_ms / 3).clamp(INTERVAL_MIN_MS, INTERVAL_MAX_MS)
}
