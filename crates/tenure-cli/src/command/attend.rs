//! What a caller does while it waits for a lock: shows the wait, looks after the locks that it has
//! already, and gives way where the wait would never end.

use super::Session;
use crate::holds::{self, Hold};
use crate::nesting::Nesting;
use crate::render::Surface;
use crate::render::waiting::Progress;
use std::time::{Duration, Instant};
use tenure::clock::instant;
use tenure::core::LockName;
use tenure::engine::{Observer, Wait, Waiting};

/// How often locks that are held already, and circles of waits, are looked at.
const LOOK: Duration = Duration::from_secs(1);

/// A lock that the caller is asked for, and the request that asks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct WantedBack {
    pub(crate) name: LockName,
    pub(crate) by: String,
}

/// The locks that a caller has already while it waits for the next one.
pub(crate) trait Tend {
    /// Renews them, and says which of them is wanted back, and by whom.
    fn tend(&mut self) -> Option<WantedBack>;

    /// What they are.
    fn holds(&self) -> Vec<Hold>;
}

/// None.
pub(crate) struct NoLocks;

impl Tend for NoLocks {
    fn tend(&mut self) -> Option<WantedBack> {
        None
    }

    fn holds(&self) -> Vec<Hold> {
        Vec::new()
    }
}

/// One wait.
pub(crate) struct Attendance<'a> {
    progress: Progress<'a>,
    nesting: Option<Nesting<'a>>,
    tend: &'a mut dyn Tend,
    /// There are locks to look after.
    tends: bool,
    /// A lock that the caller has already and is asked for.
    pub(crate) wanted_back: Option<WantedBack>,
}

impl<'a> Attendance<'a> {
    pub(crate) fn new(
        surface: &Surface,
        session: &'a Session,
        name: &'a LockName,
        wait: Wait,
        tend: &'a mut dyn Tend,
    ) -> Self {
        let own = tend.holds();
        let tends = !own.is_empty();
        let mut all = holds::inherited();
        all.extend(own);
        Self {
            progress: Progress::new(surface, name, wait),
            nesting: Nesting::of(session, name, all),
            tend,
            tends,
            wanted_back: None,
        }
    }
}

impl Observer for Attendance<'_> {
    fn waiting(&mut self, waiting: &Waiting<'_>) -> Option<Instant> {
        let next = self.progress.waiting(waiting);
        if !self.tends && self.nesting.is_none() {
            return next;
        }
        let look = instant().checked_add(LOOK);
        [next, look].into_iter().flatten().min()
    }

    fn gives_way(&mut self, waiting: &Waiting<'_>) -> bool {
        if self.tends {
            self.wanted_back = self.tend.tend();
        }
        let nesting = self.nesting.as_mut();
        self.wanted_back.is_some() || nesting.is_some_and(|nesting| nesting.gives_way(waiting))
    }
}
