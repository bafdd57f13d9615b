//! The text of Prometheus, in base units and with its rules for names and labels.

use super::lock::LockView;
use std::fmt::{self, Display, Write as _};
use tenure_engine::audit::{BOUNDS_MS, Histogram, Totals};

/// The label of the locks that have none of their own. No lock has this name.
const OTHERS: &str = "(other)";

/// How a lock stands.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Live {
    pub(crate) holders: u64,
    pub(crate) waiters: u64,
    /// The ages of the oldest hold and of the oldest waiter.
    pub(crate) held_ms: u64,
    pub(crate) waiting_ms: u64,
}

impl Live {
    pub(crate) fn of(view: &LockView) -> Self {
        let mut live = Self::default();
        if view.standing == "held" {
            // A claim that does not take its turn has no token, and waits.
            for holder in view.holder.iter().chain(&view.other_holders) {
                match holder.token {
                    Some(_) => live.holds(holder.age_ms),
                    None => live.waits(holder.age_ms),
                }
            }
        }
        for waiter in &view.queue {
            live.waits(waiter.waiting_ms);
        }
        live
    }

    fn holds(&mut self, age_ms: u64) {
        self.holders += 1;
        self.held_ms = self.held_ms.max(age_ms);
    }

    fn waits(&mut self, age_ms: u64) {
        self.waiters += 1;
        self.waiting_ms = self.waiting_ms.max(age_ms);
    }

    /// Adds another lock of the same label.
    pub(crate) fn join(&mut self, other: Self) {
        self.holders += other.holders;
        self.waiters += other.waiters;
        self.held_ms = self.held_ms.max(other.held_ms);
        self.waiting_ms = self.waiting_ms.max(other.waiting_ms);
    }
}

/// What is shown of a lock.
#[derive(Debug)]
pub(crate) struct LockMetrics<'a> {
    /// Name of the lock; `None` for those without a label of their own.
    pub(crate) name: Option<&'a str>,
    pub(crate) totals: &'a Totals,
    pub(crate) live: Live,
}

/// What is read of a lock.
type Value = (&'static str, &'static str, fn(&LockMetrics<'_>) -> u64);

const COUNTERS: [Value; 6] = [
    ("grants", "Times the lock was granted.", |lock| {
        lock.totals.grants
    }),
    (
        "refusals",
        "Callers that did not get the lock: refused, timed out or interrupted.",
        |lock| lock.totals.refusals,
    ),
    (
        "skips",
        "Runs that were skipped because the lock was held.",
        |lock| lock.totals.skips,
    ),
    (
        "takeovers",
        "Times the lock was taken over without a release by its holder.",
        |lock| lock.totals.takeovers,
    ),
    (
        "losses",
        "Holders that found the lock not their own any more.",
        |lock| lock.totals.losses,
    ),
    (
        "supersedes",
        "Holders and waiters that gave up their place because another caller asked for that.",
        |lock| lock.totals.supersedes,
    ),
];

const GAUGES: [Value; 4] = [
    ("holders", "Callers that hold the lock now.", |lock| {
        lock.live.holders
    }),
    ("waiters", "Callers that wait for the lock now.", |lock| {
        lock.live.waiters
    }),
    (
        "refusals_since_grant",
        "Callers that did not get the lock since it was last granted.",
        |lock| lock.totals.refusals_since_grant,
    ),
    (
        "skips_since_grant",
        "Runs that were skipped since the lock was last granted.",
        |lock| lock.totals.skips_since_grant,
    ),
];

const AGES: [Value; 3] = [
    (
        "oldest_hold_age_seconds",
        "Age of the oldest hold; 0 if nobody holds the lock.",
        |lock| lock.live.held_ms,
    ),
    (
        "oldest_waiter_age_seconds",
        "How long the oldest waiter has waited; 0 if nobody waits.",
        |lock| lock.live.waiting_ms,
    ),
    (
        "last_grant_timestamp_seconds",
        "When the lock was last granted; 0 if that is not known.",
        |lock| lock.totals.granted_ms,
    ),
];

/// How long something took, for each lock.
type Times = (
    &'static str,
    &'static str,
    for<'a> fn(&LockMetrics<'a>) -> &'a Histogram,
);

const HISTOGRAMS: [Times; 2] = [
    (
        "wait_seconds",
        "How long callers waited that got the lock.",
        |lock| &lock.totals.waits,
    ),
    (
        "hold_seconds",
        "How long holders held the lock that gave it back.",
        |lock| &lock.totals.holds,
    ),
];

/// A text that is being written.
#[derive(Debug)]
pub(crate) struct Exposition<'a> {
    text: String,
    locks: &'a [LockMetrics<'a>],
    /// The label of the place, which all samples have: one machine may have several.
    place: String,
}

impl<'a> Exposition<'a> {
    /// All metrics of the locks of a place.
    pub(crate) fn of(place: &str, locks: &'a [LockMetrics<'a>], unreadable: u64) -> String {
        let mut new = Self {
            text: String::new(),
            locks,
            place: format!("place=\"{}\"", escaped(place)),
        };
        for (name, help, value) in COUNTERS {
            new.family(&format!("{name}_total"), "counter", help, value);
        }
        for (name, help, histogram) in HISTOGRAMS {
            new.histogram(name, help, histogram);
        }
        for (name, help, value) in GAUGES {
            new.family(name, "gauge", help, value);
        }
        for (name, help, millis) in AGES {
            new.family(name, "gauge", help, |lock| Seconds(millis(lock)));
        }
        new.begin(
            "unreadable_locks",
            "gauge",
            "Locks that could not be read, which have no other gauge.",
        );
        let _ = writeln!(
            new.text,
            "tenure_unreadable_locks{{{}}} {unreadable}",
            new.place
        );
        new.text
    }

    fn begin(&mut self, name: &str, kind: &str, help: &str) {
        let _ = writeln!(
            self.text,
            "# HELP tenure_{name} {help}\n# TYPE tenure_{name} {kind}"
        );
    }

    /// The labels of a lock.
    fn labels(&self, lock: &LockMetrics<'_>) -> String {
        let name = escaped(lock.name.unwrap_or(OTHERS));
        format!("{},lock=\"{name}\"", self.place)
    }

    fn family<V: Display>(
        &mut self,
        name: &str,
        kind: &str,
        help: &str,
        value: impl Fn(&LockMetrics<'_>) -> V,
    ) {
        self.begin(name, kind, help);
        for lock in self.locks {
            let labels = self.labels(lock);
            let _ = writeln!(self.text, "tenure_{name}{{{labels}}} {}", value(lock));
        }
    }

    fn histogram(
        &mut self,
        name: &str,
        help: &str,
        histogram: for<'b> fn(&LockMetrics<'b>) -> &'b Histogram,
    ) {
        self.begin(name, "histogram", help);
        for lock in self.locks {
            let (labels, histogram) = (self.labels(lock), histogram(lock));
            let mut count = 0_u64;
            let text = &mut self.text;
            for (bound, more) in BOUNDS_MS.into_iter().zip(histogram.counts) {
                count = count.saturating_add(more);
                let le = Seconds(bound);
                let _ = writeln!(text, "tenure_{name}_bucket{{{labels},le=\"{le}\"}} {count}");
            }
            count = count.saturating_add(histogram.longer);
            let sum = Seconds(histogram.sum_ms);
            let _ = write!(
                text,
                "tenure_{name}_bucket{{{labels},le=\"+Inf\"}} {count}\n\
                 tenure_{name}_sum{{{labels}}} {sum}\n\
                 tenure_{name}_count{{{labels}}} {count}\n"
            );
        }
    }
}

/// Milliseconds, written in seconds.
struct Seconds(u64);

impl Display for Seconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, millis) = (self.0 / 1_000, self.0 % 1_000);
        if millis == 0 {
            return write!(f, "{whole}");
        }
        let fraction = format!("{millis:03}");
        write!(f, "{whole}.{}", fraction.trim_end_matches('0'))
    }
}

/// A value of a label, as Prometheus reads it.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\\' => escaped.push_str("\\\\"),
            '"' => escaped.push_str("\\\""),
            '\n' => escaped.push_str("\\n"),
            c => escaped.push(c),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_escaped_and_times_are_in_seconds() {
        assert_eq!(escaped("a\\b\"c\nd é"), r#"a\\b\"c\nd é"#);
        let shown = [0, 100, 1_000, 1_230, 86_400_001, u64::MAX].map(|ms| Seconds(ms).to_string());
        assert_eq!(
            shown,
            [
                "0",
                "0.1",
                "1",
                "1.23",
                "86400.001",
                "18446744073709551.615"
            ]
        );
    }

    #[test]
    fn each_sample_stands_below_its_type_and_buckets_add_up() {
        let mut totals = Totals::default();
        totals.holds.counts = [1, 0, 2, 0, 0, 0, 0, 0, 0];
        totals.holds.longer = 4;
        let lock = |name| LockMetrics {
            name,
            totals: &totals,
            live: Live::default(),
        };
        let text = Exposition::of("/l", &[lock(Some("a")), lock(None)], 3);
        let mut family = "";
        for line in text.lines() {
            if let Some(declared) = line.strip_prefix("# TYPE ") {
                family = declared.split(' ').next().unwrap_or_default();
            } else if !line.starts_with('#') {
                assert!(line.starts_with(family), "{line} below {family}");
            }
        }
        let is_of_holds =
            |line: &&str| line.starts_with("tenure_hold_") && line.contains("(other)");
        let counts = text.lines().filter(is_of_holds);
        let counts: Vec<_> = counts
            .map(|line| line.rsplit(' ').next().unwrap_or_default())
            .collect();
        assert_eq!(
            counts,
            ["1", "1", "3", "3", "3", "3", "3", "3", "3", "7", "0", "7"]
        );
    }
}
