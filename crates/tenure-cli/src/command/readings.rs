//! Reads many locks, one after the other in the order of their names, for a verb that shows each as it comes.
//!
//! Another thread reads the next ones while these are shown. Nothing here decides by what was read.

use crate::store::Locks;
use std::sync::{Mutex, PoisonError, mpsc};
use std::{thread, vec};
use tenure_engine::store::contract::Which;
use tenure_engine::store::{Reading, Store, StoreError};
use tenure_engine::tenure_core::LockName;

/// How many are read at once: so many share what was seen of a process.
pub(super) const READ_AT_ONCE: usize = 256;

/// A lock as it was read.
pub(super) type Read = (LockName, Result<Reading, StoreError>);

/// The names of all locks, sorted.
pub(super) fn names(locks: &Locks, which: Which) -> Result<Vec<LockName>, StoreError> {
    let mut names = Vec::new();
    locks.names(which, &mut |name| names.push(name))?;
    names.sort_unstable();
    Ok(names)
}

/// Has them shown as they are read.
pub(super) fn show_each<T>(
    locks: &Locks,
    names: Vec<LockName>,
    show: impl FnOnce(&mut dyn Iterator<Item = Read>) -> T,
) -> T {
    let is_short = names.len() <= READ_AT_ONCE;
    let batches = Mutex::new(Batches {
        store: &**locks,
        names: names.into_iter(),
    });
    let next = || {
        let mut batches = batches.lock().unwrap_or_else(PoisonError::into_inner);
        batches.next()
    };
    if is_short {
        return show(&mut std::iter::from_fn(next).flatten());
    }
    thread::scope(|scope| {
        // One batch is shown, one waits for that, and one is being read.
        let (sender, receiver) = mpsc::sync_channel(1);
        let reader = thread::Builder::new().spawn_scoped(scope, move || {
            while let Some(batch) = next()
                && sender.send(batch).is_ok()
            {}
        });
        match reader {
            Ok(_) => show(&mut receiver.into_iter().flatten()),
            // Without another thread they are read between those that are shown.
            Err(_) => show(&mut std::iter::from_fn(next).flatten()),
        }
    })
}

/// Reads the next ones at once.
struct Batches<'a> {
    store: &'a dyn Store,
    names: vec::IntoIter<LockName>,
}

impl Iterator for Batches<'_> {
    type Item = Vec<Read>;

    fn next(&mut self) -> Option<Vec<Read>> {
        let names: Vec<_> = self.names.by_ref().take(READ_AT_ONCE).collect();
        let readings = self.store.read_several(&names);
        (!names.is_empty()).then(|| names.into_iter().zip(readings).collect())
    }
}
