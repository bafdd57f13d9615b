//! The name of a new claim: the last part of its key, and of its lease key.
//!
//! No two attempts to make a claim may have the same name while anything of the first can still be
//! carried out. The name of its lease key is what reveals an attempt and what forbids it (`attempt`). So
//! a name is made of the lease and a number, and a name whose outcome is not known is never used again.
//!
//! A name is used again after its claim was made and removed, with an answer to both. etcd keeps a
//! deleted key in its index until compaction, and *is there any claim?* walks over all of them. With a
//! new name for each hold, a lock became slower with every hold. Other requests may still be on their
//! way under the name. They are conditional on the revision at which its claim was written, and no later
//! claim has that revision.

use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// How many names are kept for use again; more are rarely needed at once.
const KEPT_MAX: usize = 64;

/// The names of a process on one etcd.
#[derive(Debug, Default)]
pub(super) struct Ids {
    made: AtomicU64,
    names: Mutex<Names>,
}

#[derive(Debug, Default)]
struct Names {
    /// The name that came back last is used first, so that few names are used at all.
    free: Vec<String>,
    /// The names of attempts and claims of this process.
    used: HashSet<String>,
}

impl Ids {
    fn names(&self) -> std::sync::MutexGuard<'_, Names> {
        self.names.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether an attempt or a claim of this process has a name.
    pub(super) fn is_used(&self, id: &str) -> bool {
        self.names().used.contains(id)
    }

    /// Notes that nothing of this process has a name any more. It is not used again.
    pub(super) fn forget(&self, id: &str) {
        self.names().used.remove(id);
    }

    /// A name that no attempt ever had.
    pub(super) fn fresh(&self, lease: i64) -> String {
        let number = self.made.fetch_add(1, Ordering::Relaxed) + 1;
        let id = format!("{lease:x}-{number:x}");
        self.names().used.insert(id.clone());
        id
    }

    /// A name of this lease that no attempt has now.
    pub(super) fn take(&self, lease: i64) -> String {
        let mine = format!("{lease:x}-");
        let mut names = self.names();
        let last = names.free.iter().rposition(|id| id.starts_with(&mine));
        let again = last.map(|index| names.free.remove(index));
        names.used.extend(again.clone());
        drop(names);
        again.unwrap_or_else(|| self.fresh(lease))
    }

    /// Takes a name back. No request that could make a claim under it may still be on its way.
    pub(super) fn give_back(&self, id: &str) {
        let mut names = self.names();
        names.used.remove(id);
        if names.free.len() == KEPT_MAX {
            // The names of a lease that has run out would otherwise stay for ever.
            names.free.remove(0);
        }
        names.free.push(id.to_owned());
    }
}

#[cfg(test)]
mod tests {
    use super::{Ids, KEPT_MAX};

    #[test]
    fn a_name_that_came_back_is_used_again_and_no_other_one_is() {
        let ids = Ids::default();
        let (first, second) = (ids.take(7), ids.take(7));
        assert_ne!(first, second);
        ids.give_back(&first);
        assert_ne!(ids.fresh(7), first);
        assert_eq!(ids.take(7), first);
        let third = ids.take(7);
        assert!(third != first && third != second, "{third}");
    }

    #[test]
    fn a_name_belongs_to_its_lease() {
        let ids = Ids::default();
        let old = ids.take(0x7);
        ids.give_back(&old);
        assert_ne!(ids.take(0x71), old);
        assert_eq!(ids.take(0x7), old);
    }

    #[test]
    fn names_of_leases_that_are_gone_make_room() {
        let ids = Ids::default();
        for _ in 0..KEPT_MAX {
            ids.give_back(&ids.fresh(1));
        }
        let new = ids.take(2);
        ids.give_back(&new);
        assert_eq!(ids.take(2), new);
    }
}
