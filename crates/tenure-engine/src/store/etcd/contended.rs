//! Which locks had a claim of another caller when a new claim last came to them.
//!
//! It decides only what a transaction is prepared for (`expect`). A right answer needs none of it.

use std::sync::{Mutex, MutexGuard, PoisonError};
use tenure_core::LockName;

/// How many locks are remembered. A process rarely waits for more of them at once.
const KEPT_MAX: usize = 64;

/// The locks of a process on one etcd that were contended.
#[derive(Debug, Default)]
pub(super) struct Contended {
    /// The one that was noted last stands last.
    names: Mutex<Vec<LockName>>,
}

impl Contended {
    fn names(&self) -> MutexGuard<'_, Vec<LockName>> {
        self.names.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a new claim last found another one on the lock.
    pub(super) fn has(&self, name: &LockName) -> bool {
        self.names().contains(name)
    }

    /// Notes that a new claim has found another one, or none.
    pub(super) fn note(&self, name: &LockName, is_contended: bool) {
        let mut names = self.names();
        let known = names.iter().position(|known| known == name);
        match (known, is_contended) {
            (Some(_), true) | (None, false) => {}
            (Some(index), false) => drop(names.swap_remove(index)),
            (None, true) => {
                if names.len() == KEPT_MAX {
                    names.remove(0);
                }
                names.push(name.clone());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Contended, KEPT_MAX};
    use tenure_core::LockName;

    fn name(number: usize) -> LockName {
        LockName::new(format!("lock-{number}")).expect("an accepted name")
    }

    #[test]
    fn a_lock_is_contended_from_one_meeting_until_it_is_found_free() {
        let contended = Contended::default();
        contended.note(&name(1), true);
        contended.note(&name(1), true);
        assert!(contended.has(&name(1)) && !contended.has(&name(2)));
        contended.note(&name(2), false);
        contended.note(&name(1), false);
        assert!(!contended.has(&name(1)) && !contended.has(&name(2)));
    }

    #[test]
    fn the_oldest_lock_is_forgotten_before_there_are_too_many() {
        let contended = Contended::default();
        for number in 0..=KEPT_MAX {
            contended.note(&name(number), true);
        }
        assert!(
            !contended.has(&name(0)) && contended.has(&name(1)) && contended.has(&name(KEPT_MAX))
        );
    }
}
