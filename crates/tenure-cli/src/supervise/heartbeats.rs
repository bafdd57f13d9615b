//! Decides when a hold is renewed, and when its holder can no longer rely on it.
//!
//! Times are measured from one beginning by a clock that goes on while the machine sleeps: a lease
//! runs out by that clock. Nothing here reads a clock or touches a lock; `driver` does.
//!
//! The rules:
//! - Three renewals fit into a ttl, and no two are further apart than 30 s.
//! - A failed renewal is tried again at the next interval, or sooner where the holder has no other
//!   sign of life than its lease. A third one in a row is worth an event.
//! - Where a silent lease counts as left behind even though its holder lives, the holder is told
//!   **before** anybody else may take it, and not sooner than it has to be. One more renewal is tried
//!   first. How much of the lease is left then is all the time that the work has: its grace, at least
//!   half an interval, at most a quarter of the lease. So a third renewal has failed by then, and the
//!   event of that comes before the end of the work, however short the lease is. (Records keep whole
//!   seconds; that is no reason to be told sooner, for their ages are compared in whole seconds too.)
//! - Over a network the answer to a renewal may be late, and renewals are tried again soon. There the
//!   work keeps its grace as far as half of the lease allows, and at least an interval.
//! - Being told so is no end: a later renewal that succeeds proves that nobody has taken it.

use std::time::Duration;

/// The longest interval.
const INTERVAL_MAX: Duration = Duration::from_secs(30);

/// The shortest, so that no ttl keeps the machine busy.
const INTERVAL_MIN: Duration = Duration::from_millis(10);

/// The least that is left of a lease over a network when its holder is told.
const REMOTE_REST_MIN: Duration = Duration::from_secs(1);

/// How many renewals have to fail in a row to be worth an event.
const FAILURES_TOLD: u32 = 3;

/// What a failed renewal amounts to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Failed {
    /// How many have failed in a row.
    pub(crate) consecutive: u32,
    /// That is worth an event, and the first time in this row that it is.
    pub(crate) is_event: bool,
    /// The holder can no longer rely on the lock, and has not been told yet. Others may take it
    /// after this much more.
    pub(crate) runs_out: Option<Duration>,
}

/// The renewals of one hold.
#[derive(Debug, Clone)]
pub(crate) struct Heartbeats {
    interval: Duration,
    /// After how long a failed renewal is tried again.
    retry: Duration,
    /// The lease is at the far end of a network.
    is_remote: bool,
    /// How long the work may take to end once it is told to.
    grace: Duration,
    /// The silence at which the lease counts as left behind; `None` where it never does while its
    /// holder lives.
    limit: Option<Duration>,
    renewed: Duration,
    next: Duration,
    failures: u32,
    told: bool,
    stopped: bool,
}

impl Heartbeats {
    /// For a hold whose last renewal (or grant) was at `renewed`.
    pub(crate) fn new(ttl: Duration, limit: Option<Duration>, renewed: Duration) -> Self {
        let shorter = limit.map_or(ttl, |limit| limit.min(ttl));
        let interval = (shorter / 3).clamp(INTERVAL_MIN, INTERVAL_MAX);
        Self {
            interval,
            retry: interval,
            is_remote: false,
            grace: Duration::ZERO,
            limit,
            renewed,
            next: renewed + interval,
            failures: 0,
            told: false,
            stopped: false,
        }
    }

    /// The same for a holder whose work may take this long to end.
    #[must_use]
    pub(crate) fn leaving(mut self, grace: Duration) -> Self {
        self.grace = grace;
        self
    }

    /// The same for a lease that is the only sign of life, at the far end of a network: what fails
    /// once may well succeed a moment later.
    #[must_use]
    pub(crate) fn over_a_network(mut self) -> Self {
        self.retry = (self.interval / 5).max(INTERVAL_MIN);
        self.is_remote = true;
        self
    }

    /// When the holder has to be told, whatever is under way; `None` once it has been.
    pub(crate) fn end_time(&self) -> Option<Duration> {
        self.end().filter(|_| !self.told && !self.stopped)
    }

    /// When [`Heartbeats::is_due`] has to be asked next.
    pub(crate) fn next_time(&self) -> Option<Duration> {
        if self.stopped {
            return None;
        }
        let end = self.end_time();
        Some(end.map_or(self.next, |end| end.min(self.next)))
    }

    /// Whether it is time to renew.
    pub(crate) fn is_due(&self, now: Duration) -> bool {
        self.next_time().is_some_and(|next| now >= next)
    }

    /// A renewal that was begun at `now` has succeeded.
    pub(crate) fn succeeded(&mut self, now: Duration) {
        self.renewed = now;
        self.next = now + self.interval;
        self.failures = 0;
        self.told = false;
    }

    /// A renewal has failed; it is `now`.
    pub(crate) fn failed(&mut self, now: Duration) -> Failed {
        self.next = now + self.retry;
        self.failures = self.failures.saturating_add(1);
        let is_over = !self.told && self.end().is_some_and(|end| now >= end);
        self.told |= is_over;
        let limit = self.limit.filter(|_| is_over);
        let runs_out = limit.map(|limit| (self.renewed + limit).saturating_sub(now));
        Failed {
            consecutive: self.failures,
            is_event: self.failures == FAILURES_TOLD,
            runs_out,
        }
    }

    /// The hold is gone, and nothing is renewed any more.
    pub(crate) fn stop(&mut self) {
        self.stopped = true;
    }

    /// When the holder has to be told, if nothing succeeds before.
    fn end(&self) -> Option<Duration> {
        let limit = self.limit?;
        Some(self.renewed + limit.saturating_sub(self.rest(limit)))
    }

    /// How much of the lease is kept for the work to end in.
    fn rest(&self, limit: Duration) -> Duration {
        if self.is_remote {
            let least = self.interval.max(REMOTE_REST_MIN);
            return least.max(self.grace).min(limit / 2);
        }
        // Two intervals are two thirds of the lease, so with a quarter kept a third renewal is tried.
        (self.interval / 2).max(self.grace).min(limit / 4)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(number: u64) -> Duration {
        Duration::from_secs(number)
    }

    /// A lease of fifteen minutes that was renewed at 1000.
    fn lease() -> Heartbeats {
        Heartbeats::new(seconds(900), Some(seconds(900)), seconds(1_000))
    }

    #[test]
    fn the_interval_is_a_third_of_the_ttl_and_no_more_than_30_seconds() {
        for (ttl, interval) in [(1, 333), (15, 5_000), (90, 30_000), (900, 30_000)] {
            let heartbeats = Heartbeats::new(seconds(ttl), None, Duration::ZERO);
            let next = heartbeats.next_time().expect("one comes");
            assert_eq!(next.as_millis(), interval, "ttl {ttl}");
        }
        let short = Heartbeats::new(seconds(900), Some(seconds(6)), Duration::ZERO);
        assert_eq!(
            short.next_time(),
            Some(seconds(2)),
            "what counts is when it is left behind"
        );
    }

    #[test]
    fn a_failure_is_tried_again_at_the_next_interval_and_the_third_is_told_once() {
        let mut heartbeats = lease();
        let told: Vec<_> = (1..=5)
            .map(|beat| {
                let now = seconds(1_000 + 30 * beat);
                assert!(heartbeats.is_due(now), "beat {beat}");
                let failed = heartbeats.failed(now);
                assert!(!heartbeats.is_due(now), "not at once");
                assert_eq!(u64::from(failed.consecutive), beat);
                assert!(failed.runs_out.is_none(), "far from its end");
                failed.is_event
            })
            .collect();
        assert_eq!(told, [false, false, true, false, false]);
        heartbeats.succeeded(seconds(1_180));
        assert_eq!(heartbeats.failed(seconds(1_210)).consecutive, 1, "anew");
    }

    #[test]
    fn the_holder_is_told_half_an_interval_before_the_lease_runs_out() {
        let mut heartbeats = lease();
        for beat in 1..=29 {
            let failed = heartbeats.failed(seconds(1_000 + 30 * beat));
            assert!(failed.runs_out.is_none(), "beat {beat}");
        }
        assert!(!heartbeats.is_due(seconds(1_884)));
        assert!(heartbeats.is_due(seconds(1_885)), "a last try");
        assert_eq!(
            heartbeats.failed(seconds(1_885)).runs_out,
            Some(seconds(15)),
            "what is left of it"
        );
        assert!(
            heartbeats.failed(seconds(1_900)).runs_out.is_none(),
            "he is told once"
        );
        heartbeats.succeeded(seconds(1_930));
        assert_eq!(
            heartbeats.next_time(),
            Some(seconds(1_960)),
            "a success proves that nobody took it"
        );
    }

    #[test]
    fn a_lease_that_ran_out_in_its_sleep_is_tried_before_it_is_given_up() {
        let mut heartbeats = lease();
        let woken = seconds(9_000);
        assert!(heartbeats.is_due(woken));
        heartbeats.succeeded(woken);
        assert!(!heartbeats.is_due(seconds(9_029)));
    }

    /// Lets every renewal fail until the holder is told; when that is, and what has failed by then.
    fn told_of(heartbeats: &mut Heartbeats) -> (Duration, Failed, bool) {
        let mut has_event = false;
        loop {
            let now = heartbeats.next_time().expect("it goes on");
            let failed = heartbeats.failed(now);
            has_event |= failed.is_event;
            if failed.runs_out.is_some() {
                return (now, failed, has_event);
            }
        }
    }

    #[test]
    fn however_short_a_lease_is_three_renewals_have_failed_before_its_holder_is_told() {
        for grace in [0, 1, 10, 600] {
            for ttl in (1..=120).chain([300, 900, 86_400]) {
                let lease = seconds(ttl);
                let mut heartbeats =
                    Heartbeats::new(lease, Some(lease), Duration::ZERO).leaving(seconds(grace));
                let (told, failed, has_event) = told_of(&mut heartbeats);
                let what = format!("a ttl of {ttl} s, a grace of {grace} s");
                assert!(failed.consecutive >= 3, "{what}: {failed:?}");
                assert!(has_event, "{what}");
                assert!(told >= lease.mul_f64(0.75), "{what}: {told:?} is too soon");
                assert!(told < lease, "{what}: {told:?} is too late");
                assert_eq!(failed.runs_out, lease.checked_sub(told), "{what}");
            }
        }
    }

    #[test]
    fn the_work_has_its_grace_before_others_may_take_the_lock() {
        for (ttl, grace, told) in [
            (900, 10, 885),
            (900, 60, 840),
            (900, 3_600, 675),
            (90, 10, 75),
            (60, 12, 48),
            (40, 10, 30),
            (12, 10, 9),
            (12, 0, 10),
        ] {
            let lease = seconds(ttl);
            let mut heartbeats =
                Heartbeats::new(lease, Some(lease), Duration::ZERO).leaving(seconds(grace));
            let end = heartbeats.end_time();
            assert_eq!(end, Some(seconds(told)), "{ttl} s, a grace of {grace} s");
            let failed = heartbeats.failed(seconds(told));
            assert_eq!(failed.runs_out, Some(seconds(ttl - told)), "what is left");
            assert_eq!(heartbeats.end_time(), None, "told once");
        }
    }

    #[test]
    fn over_a_network_the_work_has_its_grace_as_far_as_half_of_the_lease_allows() {
        for (ttl, grace, told) in [(30, 10, 20), (30, 12, 18), (30, 60, 15), (30, 1, 20)] {
            let lease = seconds(ttl);
            let heartbeats = Heartbeats::new(lease, Some(lease), Duration::ZERO)
                .leaving(seconds(grace))
                .over_a_network();
            let end = heartbeats.end_time();
            assert_eq!(end, Some(seconds(told)), "a grace of {grace} s");
        }
    }

    #[test]
    fn over_a_network_a_failed_renewal_is_tried_again_soon() {
        let lease = seconds(30);
        let mut heartbeats = Heartbeats::new(lease, Some(lease), Duration::ZERO).over_a_network();
        assert_eq!(heartbeats.next_time(), Some(seconds(10)));
        let _ = heartbeats.failed(seconds(10));
        assert_eq!(heartbeats.next_time(), Some(seconds(12)));
        heartbeats.succeeded(seconds(12));
        assert_eq!(heartbeats.next_time(), Some(seconds(22)));
    }

    #[test]
    fn a_hold_that_the_kernel_vouches_for_never_runs_out() {
        let mut heartbeats = Heartbeats::new(seconds(30), None, Duration::ZERO);
        assert!(heartbeats.failed(seconds(100_000)).runs_out.is_none());
    }

    #[test]
    fn what_is_gone_is_not_renewed() {
        let mut heartbeats = lease();
        heartbeats.stop();
        assert!(!heartbeats.is_due(seconds(100_000)));
        assert_eq!(heartbeats.next_time(), None);
    }
}
