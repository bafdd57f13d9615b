//! What the audit tells `top`: how long a lock is usually held, and what happened lately.
//!
//! The caller reads the audit, and says how far back.

use std::collections::{HashMap, VecDeque};
use tenure_engine::audit::Entry;

/// How many of the last holds of a lock say what is usual.
const HOLDS_KEPT: usize = 50;

/// Fewer holds say nothing about what is usual.
const HOLDS_MIN: usize = 3;

/// How many events are kept, for the screen and the page of a lock.
const EVENTS_KEPT: usize = 1_000;

/// The past of the locks.
#[derive(Debug, Default)]
pub(crate) struct History {
    holds: HashMap<String, Holds>,
    events: VecDeque<Entry>,
}

/// The last holds of a lock.
#[derive(Debug, Default)]
struct Holds {
    last_ms: VecDeque<u64>,
    usual: Option<Usual>,
}

/// How long a lock is usually held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Usual {
    /// How many holds say so.
    pub(crate) holds: usize,
    pub(crate) median_ms: u64,
    pub(crate) longest_ms: u64,
}

impl History {
    /// Takes in an event, later than those before.
    pub(crate) fn add(&mut self, entry: Entry) {
        if let Some(held_ms) = entry.number("held_ms") {
            let holds = self.holds.entry(entry.lock_name().to_owned()).or_default();
            holds.add(held_ms);
        }
        if self.events.len() == EVENTS_KEPT {
            self.events.pop_front();
        }
        self.events.push_back(entry);
    }

    /// How long this lock is usually held; `None` if too few holds are known.
    pub(super) fn usual(&self, lock: &str) -> Option<Usual> {
        self.holds.get(lock)?.usual
    }

    /// The last events since an instant, oldest first.
    pub(super) fn since(&self, at_ms: u64) -> impl DoubleEndedIterator<Item = &Entry> {
        let events = self.events.iter();
        events.filter(move |entry| entry.at_ms() >= at_ms)
    }
}

impl Holds {
    fn add(&mut self, held_ms: u64) {
        if self.last_ms.len() == HOLDS_KEPT {
            self.last_ms.pop_front();
        }
        self.last_ms.push_back(held_ms);
        let mut sorted: Vec<u64> = self.last_ms.iter().copied().collect();
        sorted.sort_unstable();
        let holds = sorted.len();
        let (median, longest) = (sorted.get(holds / 2), sorted.last());
        self.usual = median
            .zip(longest)
            .filter(|_| holds >= HOLDS_MIN)
            .map(|(median, longest)| Usual {
                holds,
                median_ms: *median,
                longest_ms: *longest,
            });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn released(lock: &str, held_ms: u64) -> Entry {
        let line = format!(
            "{{\"event\":\"lock_released\",\"lock_name\":\"{lock}\",\"held_ms\":{held_ms},\
             \"timestamp\":\"2026-02-07T10:00:00Z\"}}"
        );
        Entry::parse(line.as_bytes()).expect("an event")
    }

    #[test]
    fn the_middle_of_the_last_holds_is_usual() {
        let mut history = History::default();
        history.add(released("x", 9_000));
        history.add(released("x", 1_000));
        assert_eq!(history.usual("x"), None, "two holds say nothing");
        history.add(released("x", 2_000));
        let usual = |holds, median_ms, longest_ms| {
            Some(Usual {
                holds,
                median_ms,
                longest_ms,
            })
        };
        assert_eq!(history.usual("x"), usual(3, 2_000, 9_000));
        assert_eq!(history.usual("y"), None);
        for _ in 0..HOLDS_KEPT {
            history.add(released("x", 3_000));
        }
        assert_eq!(history.usual("x"), usual(HOLDS_KEPT, 3_000, 3_000));
        assert_eq!(history.since(0).count(), HOLDS_KEPT + 3);
    }
}
