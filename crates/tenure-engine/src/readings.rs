//! Reads many locks in the order of their names, a few at once, for a verb that shows each as it comes. Nothing
//! is taken, released or removed by what was read here.
//!
//! A reader of the answer may be slow, so a lock may be shown long after it was read. It is judged by the time
//! before it was read: a holder that has sent its heartbeats is then never taken for a silent one.

use crate::clock::Clock;
use crate::store::contract::Which;
use crate::store::{Reading, Store, StoreError};
use std::rc::Rc;
use std::vec;
use tenure_core::{LockName, Now};

/// How many are read at once: so many share what was seen of a process.
pub const READ_AT_ONCE: usize = 512;

/// A lock as it was read, and the time by which it is to be judged.
pub struct Read {
    /// Its name.
    pub name: LockName,
    /// What was read.
    pub reading: Result<Reading, StoreError>,
    /// The instant before it was read.
    pub now: Rc<Now>,
}

/// The names of all locks, sorted.
///
/// # Errors
/// - [`StoreError`] if the place cannot be listed.
pub fn names(locks: &dyn Store, which: Which) -> Result<Vec<LockName>, StoreError> {
    let mut names = Vec::new();
    locks.names(which, &mut |name| names.push(name))?;
    names.sort_unstable();
    Ok(names)
}

/// Locks, of which only the next few are read already.
pub struct Readings<'a> {
    locks: &'a dyn Store,
    clock: &'a dyn Clock,
    names: vec::IntoIter<LockName>,
    read: vec::IntoIter<Read>,
}

impl<'a> Readings<'a> {
    /// Those of these names.
    pub fn of(locks: &'a dyn Store, clock: &'a dyn Clock, names: Vec<LockName>) -> Self {
        Self {
            locks,
            clock,
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
        let now = Rc::new(self.clock.now());
        let readings = self.locks.read_several(&names);
        let read = names.into_iter().zip(readings);
        let read: Vec<_> = read
            .map(|(name, reading)| Read {
                name,
                reading,
                now: Rc::clone(&now),
            })
            .collect();
        self.read = read.into_iter();
        self.read.next()
    }
}
