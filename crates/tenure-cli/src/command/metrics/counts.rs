//! Counts of locks: some by themselves, the others together.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;
use tenure_core::LockName;
use tenure_engine::audit::{Bookmark, Entry, EventName, Totals};

/// How long nobody has used a lock that gives its label to another one.
const UNUSED: Duration = Duration::from_secs(30 * 24 * 3_600);

/// How many locks may have a label, and the time now.
#[derive(Debug, Clone, Copy)]
pub(super) struct Room {
    pub(super) locks_max: usize,
    pub(super) now_ms: u64,
}

/// A lock with a label.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Labelled {
    pub(super) totals: Totals,
    /// When it was last used.
    used_ms: u64,
}

/// All counts, and the place in the audit up to which they count.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Counts {
    pub(super) bookmark: Bookmark,
    /// Locks with a label of their own.
    pub(super) locks: BTreeMap<String, Labelled>,
    /// All others together.
    pub(super) others: Totals,
}

impl Counts {
    /// Counts an event. `is_live` says of a lock whether it is held or waited for.
    pub(super) fn add(&mut self, entry: &Entry, room: Room, is_live: impl Fn(&str) -> bool) {
        let Some(event) = EventName::from_word(entry.event()) else {
            return;
        };
        let totals = match self.of(entry.lock_name(), room, is_live) {
            Some(lock) => {
                lock.used_ms = lock.used_ms.max(entry.at_ms().min(room.now_ms));
                &mut lock.totals
            }
            None => &mut self.others,
        };
        totals.add(event, entry);
    }

    /// Notes that a lock is in use.
    pub(super) fn uses(&mut self, name: &str, room: Room, is_live: impl Fn(&str) -> bool) {
        if let Some(lock) = self.of(name, room, is_live) {
            lock.used_ms = room.now_ms;
        }
    }

    /// The counts of a lock by itself. It gets a label if there is room, and keeps it: a label that comes and goes would
    /// let counts fall. Only a lock that nobody has used for long gives its label up, and its counts with it.
    fn of(
        &mut self,
        name: &str,
        room: Room,
        is_live: impl Fn(&str) -> bool,
    ) -> Option<&mut Labelled> {
        if !self.locks.contains_key(name) {
            // Another program may write any name.
            LockName::new(name).ok()?;
            if self.locks.len() >= room.locks_max {
                let unused = self.longest_unused(room, is_live)?;
                self.locks.remove(&unused);
            }
        }
        Some(self.locks.entry(name.to_owned()).or_default())
    }

    fn longest_unused(&self, room: Room, is_live: impl Fn(&str) -> bool) -> Option<String> {
        let unused_ms = u64::try_from(UNUSED.as_millis()).unwrap_or(u64::MAX);
        let unused = self.locks.iter().filter(|(name, lock)| {
            room.now_ms.saturating_sub(lock.used_ms) >= unused_ms && !is_live(name)
        });
        let (name, _) = unused.min_by_key(|(_, lock)| lock.used_ms)?;
        Some(name.clone())
    }
}
