//! Reads many locks in the order of their names, a few at once, for a verb that shows each as it comes. Nothing
//! is taken, released or removed by what was read here.
//!
//! A reader of the answer may be slow, so a lock may be shown long after it was read. It is judged by the time
//! before it was read: a holder that has sent its heartbeats is then never taken for a silent one.

use std::cmp::Ordering;
use std::rc::Rc;
use std::vec;
use tenure_core::{LockName, Now};
use tenure_os::clock::Clock;
use tenure_store::contract::Which;
use tenure_store::{Reading, Store, StoreError};

/// How many are read at once: so many share what was seen of a process.
pub const READ_AT_ONCE: usize = 512;

/// A lock as it was read, and the time by which it is to be judged.
pub struct LockReading {
    /// Name of the lock.
    pub name: LockName,
    /// What was read.
    pub reading: Result<Reading, StoreError>,
    /// The instant before it was read.
    pub now: Rc<Now>,
}

/// The names of all locks, in the order in which people count: `svc-2` before `svc-10`.
///
/// # Errors
/// - [`StoreError`] if the place cannot be listed.
pub fn names(locks: &dyn Store, which: Which) -> Result<Vec<LockName>, StoreError> {
    let mut names = Vec::new();
    locks.names(which, &mut |name| names.push(name))?;
    names.sort_unstable_by(|one, other| in_count(one.as_str(), other.as_str()));
    Ok(names)
}

/// The order of two names, if a run of digits counts as a number. Two names are never equal.
fn in_count(one: &str, other: &str) -> Ordering {
    let is_digit = |byte: u8| byte.is_ascii_digit();
    let (mut left, mut right) = (one.as_bytes(), other.as_bytes());
    while let (Some(a), Some(b)) = (left.first(), right.first()) {
        let order = if is_digit(*a) && is_digit(*b) {
            // Without its zeros in front, a longer number is the larger one.
            let (first, second) = (number(&mut left), number(&mut right));
            first.len().cmp(&second.len()).then(first.cmp(second))
        } else {
            let order = a.cmp(b);
            left = left.get(1..).unwrap_or_default();
            right = right.get(1..).unwrap_or_default();
            order
        };
        if order.is_ne() {
            return order;
        }
    }
    left.len().cmp(&right.len()).then_with(|| one.cmp(other))
}

/// Takes the number at the beginning, without zeros in front.
fn number<'a>(text: &mut &'a [u8]) -> &'a [u8] {
    let digits = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let (number, rest) = text.split_at(digits);
    *text = rest;
    let zeros = number.iter().take_while(|digit| **digit == b'0').count();
    number.get(zeros..).unwrap_or_default()
}

/// Locks, of which only the next few are read already.
pub struct Readings<'a> {
    locks: &'a dyn Store,
    clock: &'a dyn Clock,
    names: vec::IntoIter<LockName>,
    read: vec::IntoIter<LockReading>,
}

impl<'a> Readings<'a> {
    /// Readings of these names.
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
    type Item = LockReading;

    fn next(&mut self) -> Option<LockReading> {
        let next = self.read.next();
        if next.is_some() {
            return next;
        }
        let names: Vec<_> = self.names.by_ref().take(READ_AT_ONCE).collect();
        let now = Rc::new(self.clock.now());
        let readings = self.locks.read_several(&names);
        let read = names.into_iter().zip(readings);
        let read: Vec<_> = read
            .map(|(name, reading)| LockReading {
                name,
                reading,
                now: Rc::clone(&now),
            })
            .collect();
        self.read = read.into_iter();
        self.read.next()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stand_in_the_order_in_which_people_count() {
        let sorted = [
            "a", "a-1", "a-01", "a-2", "a-2b", "a-10", "a-10-2", "a-10-10", "a2", "a10", "b", "b0",
        ];
        for (place, one) in sorted.iter().enumerate() {
            for (other_place, other) in sorted.iter().enumerate() {
                let order = place.cmp(&other_place);
                if (*one, *other) != ("a-1", "a-01") && (*one, *other) != ("a-01", "a-1") {
                    assert_eq!(in_count(one, other), order, "{one} and {other}");
                }
            }
        }
        assert_ne!(
            in_count("a-1", "a-01"),
            Ordering::Equal,
            "they are two locks"
        );
    }
}
