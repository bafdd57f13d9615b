//! The list that this store wrote last.
//!
//! A holder that nothing happened to finds the list as it left it. Reading a claim's line is the largest part of what
//! a release does outside of the kernel. So the store keeps the last list that it wrote, as bytes and as claims: where
//! the same bytes stand in the file, the claims are those that were written.
//!
//! The store keeps a single list and not one for each hold, so that ten thousand holds take no more memory. What is
//! kept decides nothing. Other bytes are read, and so are these if another thread has taken them.
//!
//! # What it leaves to others
//! `pages` decides which bytes count, and `joined` what a record beside the list says. Lists that stand beside records
//! are not kept here, as they leave out the claims that only a record shows.

use std::sync::Mutex;
use tenure_core::Entry;

/// A longer list has waiters, so another process changes it before its holder comes back.
const KEPT_BYTES_MAX: usize = 1024;

/// A list as bytes and as claims.
#[derive(Debug)]
struct List {
    body: Vec<u8>,
    entry: Entry,
}

/// The list that was written last.
#[derive(Debug, Default)]
pub(super) struct Wrote(Mutex<Option<List>>);

impl Wrote {
    /// Keeps a list that was written. Without a claim there is nothing in it whose reading takes long.
    pub(super) fn keep(&self, body: Vec<u8>, entry: &Entry) {
        if body.len() > KEPT_BYTES_MAX || entry.claims.is_empty() {
            return;
        }
        // While another thread looks, or in the copy that a fork made in the middle of a look, it keeps nothing.
        if let Ok(mut last) = self.0.try_lock() {
            let entry = entry.clone();
            *last = Some(List { body, entry });
        }
    }

    /// The claims of this list, if it is the one that was written last. Each list is given once: its reader changes it.
    pub(super) fn take(&self, body: &[u8]) -> Option<Entry> {
        let mut last = self.0.try_lock().ok()?;
        let list = last.take_if(|list| list.body == body)?;
        Some(list.entry)
    }
}

#[cfg(test)]
mod tests {
    use super::super::joined::tests::listed;
    use super::*;
    use crate::codec;

    fn list(tickets: std::ops::Range<u64>) -> (Vec<u8>, Entry) {
        let entry = Entry {
            last: tickets.end,
            claims: tickets
                .map(|ticket| listed(ticket, Some(ticket + 1)))
                .collect(),
            ..Entry::default()
        };
        (codec::encode(&entry).expect("a list"), entry)
    }

    #[test]
    fn the_last_list_is_given_once_and_for_its_own_bytes_alone() {
        let wrote = Wrote::default();
        let [(first, one), (second, two)] = [list(1..2), list(2..3)];
        assert_eq!(wrote.take(&first), None, "nothing was written");
        wrote.keep(first.clone(), &one);
        assert_eq!(wrote.take(&second), None);
        assert_eq!(wrote.take(&first), Some(one.clone()), "it is still there");
        assert_eq!(wrote.take(&first), None);
        wrote.keep(first.clone(), &one);
        wrote.keep(second.clone(), &two);
        assert_eq!(wrote.take(&first), None, "it was not the last one");
        assert_eq!(wrote.take(&second), Some(two));
    }

    #[test]
    fn a_list_without_a_claim_and_a_long_one_are_not_kept() {
        let wrote = Wrote::default();
        let [empty, long] = [list(1..1), list(1..9)];
        assert!(long.0.len() > KEPT_BYTES_MAX);
        for (body, entry) in [empty, long] {
            wrote.keep(body.clone(), &entry);
            assert_eq!(wrote.take(&body), None);
        }
    }
}
