//! Reads many locks in the order of their names, a few at once, for a verb that shows each as it comes. Nothing
//! decides by what was read here.

use crate::store::Locks;
use std::vec;
use tenure_engine::store::contract::Which;
use tenure_engine::store::{Reading, StoreError};
use tenure_engine::tenure_core::LockName;

/// How many are read at once: so many share what was seen of a process.
pub(super) const READ_AT_ONCE: usize = 512;

/// A lock as it was read.
type Read = (LockName, Result<Reading, StoreError>);

/// The names of all locks, sorted.
pub(super) fn names(locks: &Locks, which: Which) -> Result<Vec<LockName>, StoreError> {
    let mut names = Vec::new();
    locks.names(which, &mut |name| names.push(name))?;
    names.sort_unstable();
    Ok(names)
}

/// Locks, of which only the next few are read already.
pub(super) struct Readings<'a> {
    locks: &'a Locks,
    names: vec::IntoIter<LockName>,
    read: vec::IntoIter<Read>,
}

impl<'a> Readings<'a> {
    pub(super) fn of(locks: &'a Locks, names: Vec<LockName>) -> Self {
        Self {
            locks,
            names: names.into_iter(),
            read: Vec::new().into_iter(),
        }
    }
}

impl Iterator for Readings<'_> {
    type Item = Read;

    fn next(&mut self) -> Option<Read> {
        let next = self.read.next();
        if next.is_some() {
            return next;
        }
        let names: Vec<_> = self.names.by_ref().take(READ_AT_ONCE).collect();
        let readings = self.locks.read_several(&names);
        let read: Vec<_> = names.into_iter().zip(readings).collect();
        self.read = read.into_iter();
        self.read.next()
    }
}
