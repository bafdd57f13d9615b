//! Decides when a hold is renewed, and when its holder can no longer rely on it.
//!
//! Times are measured from one beginning by a clock that goes on while the machine sleeps: a lease
//! runs out by that clock. Nothing here reads a clock or touches a lock; `driver` does.
//!
//! The rules:
//! - Three renewals fit into a ttl, and no two are further apart than 30 s.
//! - A failed renewal is tried again at the next interval. A third one in a row is worth an event.
//! - Where a silent lease counts as left behind even though its holder lives, the holder is told
//!   **before** anybody else may take it: one interval, and at least a second (records keep whole
//!   seconds), before the last success is as old as that. One more renewal is tried first.
//! - Being told so is no end: a later renewal that succeeds proves that nobody has taken it.

use std::time::Duration;

/// The longest interval.
const INTERVAL_MAX: Duration = Duration::from_secs(30);

/// The shortest, so that no ttl keeps the machine busy.
const INTERVAL_MIN: Duration = Duration::from_millis(10);

/// What a record may cut off an instant.
const CUT: Duration = Duration::from_secs(1);

/// How many renewals have to fail in a row to be worth an event.
const FAILURES_TOLD: u32 = 3;

/// What a failed renewal amounts to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Failed {
    /// How many have failed in a row.
    pub(crate) consecutive: u32,
    /// That is worth an event, and the first time in this row that it is.
    pub(crate) is_event: bool,
    /// The holder can no longer rely on the lock, and has not been told yet.
    pub(crate) runs_out: bool,
}

/// The renewals of one hold.
#[derive(Debug, Clone)]
pub(crate) struct Heartbeats {
    interval: Duration,
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
            limit,
            renewed,
            next: renewed + interval,
            failures: 0,
            told: false,
            stopped: false,
        }
    }

    /// When [`Heartbeats::is_due`] has to be asked next.
    pub(crate) fn next_time(&self) -> Option<Duration> {
        if self.stopped {
            return None;
        }
        let end = self.end().filter(|_| !self.told);
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
        self.next = now + self.interval;
        self.failures = self.failures.saturating_add(1);
        let runs_out = !self.told && self.end().is_some_and(|end| now >= end);
        self.told |= runs_out;
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
        self.limit.map(|limit| {
            let margin = self.interval.max(CUT).min(limit / 2);
            self.renewed + limit.saturating_sub(margin)
        })
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
                assert!(!failed.runs_out, "far from its end");
                failed.is_event
            })
            .collect();
        assert_eq!(told, [false, false, true, false, false]);
        heartbeats.succeeded(seconds(1_180));
        assert_eq!(heartbeats.failed(seconds(1_210)).consecutive, 1, "anew");
    }

    #[test]
    fn the_holder_is_told_one_interval_before_the_lease_runs_out() {
        let mut heartbeats = lease();
        for beat in 1..29 {
            let failed = heartbeats.failed(seconds(1_000 + 30 * beat));
            assert!(!failed.runs_out, "beat {beat}");
        }
        assert!(heartbeats.is_due(seconds(1_870)), "a last try");
        assert!(heartbeats.failed(seconds(1_870)).runs_out);
        assert!(
            !heartbeats.failed(seconds(1_900)).runs_out,
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

    #[test]
    fn short_leases_leave_room_for_what_a_record_cuts_off() {
        for (limit, end) in [(3, 2_000), (2, 1_000), (1, 500)] {
            let lease = seconds(limit);
            let mut heartbeats = Heartbeats::new(lease, Some(lease), Duration::ZERO);
            let just_before = Duration::from_millis(end - 1);
            assert!(!heartbeats.failed(just_before).runs_out, "limit {limit}");
            let failed = heartbeats.failed(Duration::from_millis(end));
            assert!(failed.runs_out, "limit {limit}");
        }
    }

    #[test]
    fn a_hold_that_the_kernel_vouches_for_never_runs_out() {
        let mut heartbeats = Heartbeats::new(seconds(30), None, Duration::ZERO);
        assert!(!heartbeats.failed(seconds(100_000)).runs_out);
    }

    #[test]
    fn what_is_gone_is_not_renewed() {
        let mut heartbeats = lease();
        heartbeats.stop();
        assert!(!heartbeats.is_due(seconds(100_000)));
        assert_eq!(heartbeats.next_time(), None);
    }
}
