//! Removes claims that are proven stale, and the files of unused locks, in a whole place: `tenure clean`, and a program's.

use crate::readings::{LockReading, Readings, names};
use tenure_core::LockName;
use tenure_os::clock::Clock;
use tenure_store::contract::Which;
use tenure_store::verbs::would_clean;
use tenure_store::{Cleaned, Store, StoreError, Verbs};

/// A step of cleaning, and what came of it. A step that fails does not keep the others from being done.
#[derive(Debug)]
pub enum Step {
    /// A lock.
    Lock(LockName, Result<Cleaned, StoreError>),
    /// What is left beside a record that is gone.
    Leftover(Result<Cleaned, StoreError>),
    /// Old signs of life of agents: how many.
    Signs(Result<usize, StoreError>),
}

/// Cleans the locks of these names, and what lies beside locks. With `dry_run` it only looks. `each` is told of each step.
///
/// # Errors
/// - The first error of `each`, which ends the cleaning.
/// - [`StoreError`] if the place cannot be listed.
pub fn clean<E: From<StoreError>>(
    store: &dyn Store,
    clock: &dyn Clock,
    locks: Vec<LockName>,
    dry_run: bool,
    mut each: impl FnMut(Step) -> Result<(), E>,
) -> Result<(), E> {
    if dry_run {
        let policy = &store.rules().policy;
        for LockReading { name, reading, now } in Readings::of(store, clock, locks) {
            let cleaned = reading.and_then(|reading| would_clean(policy, reading, &now));
            each(Step::Lock(name, cleaned))?;
        }
    } else {
        for name in locks {
            let cleaned = store.clean(&name, &clock.now(), false);
            each(Step::Lock(name, cleaned))?;
        }
    }
    // Where a lock is a record of its own, what we keep beside it outlasts it.
    for name in names(store, Which::Leftovers)? {
        let cleaned = store.clean(&name, &clock.now(), dry_run);
        each(Step::Leftover(cleaned))?;
    }
    if let Some(agents) = store.agents() {
        each(Step::Signs(agents.forget_old(&clock.now(), dry_run)))?;
    }
    Ok(())
}

/// What was removed, in words.
pub fn removed(dry_run: bool, claims: usize, files: usize) -> String {
    format!(
        "{} {claims} stale claim{} and {files} unused lock file{}",
        if dry_run { "would remove" } else { "removed" },
        if claims == 1 { "" } else { "s" },
        if files == 1 { "" } else { "s" },
    )
}
