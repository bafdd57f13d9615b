//! What a lock looked like when this process let go of it, for its next caller here.
//!
//! Mostly a lock is taken again by whoever had it last, and nothing has happened in between. Then
//! the header, as that release has written it, is the only key of the lock. *Every key below this
//! lock has this value* is one condition, which no key at all does not meet: it says that there is
//! no claim and no life, and what the header says. So nothing has to be read, and nothing to be
//! said about what is to become of the claim if somebody is there (`enter`). By revisions the same
//! could not be said as shortly: an etcd that was restored from a backup counts them again, and one
//! without a header may have a claim of just that number.
//!
//! Where that is not so, an attempt that relies on it does nothing, and has cost a transaction. So
//! it is made only after a hold that had found the lock as the one before had left it. Of programs
//! that take turns none ever makes it, and whoever used a lock alone finds out once that it no
//! longer does.

use std::sync::{Mutex, PoisonError};
use tenure_core::{History, LockName};

/// How many locks are kept in mind; whoever uses more in turns takes each as one that it does not
/// know.
const KEPT_MAX: usize = 64;

/// What was left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Remains {
    /// What the header says.
    pub(super) history: History,
    /// When it was written.
    pub(super) revision: i64,
    /// The hold that ended with it had found the lock as the one before had left it.
    is_again: bool,
}

/// The locks that this process has let go of, the last one at the end.
#[derive(Debug, Default)]
pub(super) struct Leavings {
    locks: Mutex<Vec<(LockName, Remains)>>,
}

impl Leavings {
    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<(LockName, Remains)>> {
        self.locks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the lock looks like, if that is likely enough to be relied on.
    pub(super) fn expected(&self, name: &LockName) -> Option<Remains> {
        let locks = self.lock();
        let (_, left) = locks.iter().rfind(|(known, _)| known == name)?;
        left.is_again.then_some(*left)
    }

    /// It was not so.
    pub(super) fn forget(&self, name: &LockName) {
        self.lock().retain(|(known, _)| known != name);
    }

    /// Notes what a release has written, of a hold that had found the header as of `found`.
    pub(super) fn note(&self, name: &LockName, found: i64, history: History, revision: i64) {
        let mut locks = self.lock();
        let known = locks.iter().rposition(|(known, _)| known == name);
        let (name, is_again) = match known.map(|index| locks.remove(index)) {
            Some((name, before)) => (name, before.revision == found),
            None => (name.clone(), false),
        };
        if locks.len() == KEPT_MAX {
            locks.remove(0);
        }
        let left = Remains {
            history,
            revision,
            is_again,
        };
        locks.push((name, left));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> LockName {
        LockName::new(text).expect("a name")
    }

    fn expected(leavings: &Leavings, lock: &str) -> Option<i64> {
        leavings.expected(&name(lock)).map(|left| left.revision)
    }

    #[test]
    fn a_lock_is_expected_as_it_was_left_after_two_holds_with_nothing_in_between() {
        let leavings = Leavings::default();
        let note = |found, revision| {
            leavings.note(&name("a"), found, History::default(), revision);
        };
        assert_eq!(expected(&leavings, "a"), None);
        note(0, 10);
        assert_eq!(expected(&leavings, "a"), None, "it was used once");
        note(10, 20);
        assert_eq!(expected(&leavings, "a"), Some(20));
        assert_eq!(expected(&leavings, "b"), None, "another lock");
        note(25, 30);
        assert_eq!(expected(&leavings, "a"), None, "somebody had it meanwhile");
        note(30, 40);
        assert_eq!(expected(&leavings, "a"), Some(40));
        leavings.forget(&name("a"));
        assert_eq!(expected(&leavings, "a"), None);
        note(40, 50);
        assert_eq!(expected(&leavings, "a"), None, "it begins anew");
    }

    #[test]
    fn the_lock_that_was_used_longest_ago_makes_room() {
        let leavings = Leavings::default();
        for round in 1..=2 {
            for lock in 0..KEPT_MAX {
                let lock = name(&format!("l{lock}"));
                leavings.note(&lock, round - 1, History::default(), round);
            }
        }
        assert_eq!(expected(&leavings, "l0"), Some(2));
        leavings.note(&name("new"), 0, History::default(), 3);
        assert_eq!(expected(&leavings, "l0"), None);
        assert_eq!(expected(&leavings, "l1"), Some(2));
        assert_eq!(leavings.lock().len(), KEPT_MAX);
    }
}
