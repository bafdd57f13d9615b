//! A lock of a hold of the program, as the keeper of its place looks after it.
//!
//! The keeper's thread asks and finds; what the program is told of it is decided elsewhere (`holds`).

use super::calls::{self, HoldPart, LockLook};
use super::{Event, Teller};
use crate::command::session::Session;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;
use tenure_core::{Now, Renewal};
use tenure_engine::keep::{Ask, Home, KeeperHold, LeaseEnd, Life, NewHolds, News, Watching};
use tenure_os::clock::{Clock, SystemClock};
use tenure_os::os::{Descriptor, Ringer};
use tenure_store::StoreError;

/// How often a hold is looked at that nothing tells of.
const LOOK: Duration = Duration::from_secs(1);

/// Holds of the program: all those in folders, or those of one cluster.
pub(super) struct PlaceOfHolds {
    sessions: Mutex<Vec<&'static Session>>,
    clock: SystemClock,
    watching: Watching,
    pending: NewHolds<KeptPart, Ringer>,
}

impl PlaceOfHolds {
    /// The home of holds in folders. What the kernel reports comes at once, and a look finds what it does not report.
    pub(super) fn of_folders() -> Self {
        Self::watched(Watching::Both(LOOK))
    }

    /// The home of holds in a cluster, whose answers may keep each other waiting.
    pub(super) fn of_cluster() -> Self {
        Self::watched(Watching::Looks(LOOK))
    }

    fn watched(watching: Watching) -> Self {
        Self {
            sessions: Mutex::default(),
            clock: SystemClock::new(None),
            watching,
            pending: NewHolds::default(),
        }
    }

    pub(super) fn add(&self, session: &'static Session) {
        self.sessions().push(session);
    }

    fn sessions(&self) -> MutexGuard<'_, Vec<&'static Session>> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Home for PlaceOfHolds {
    type Hold = KeptPart;

    fn clock(&self) -> &dyn Clock {
        &self.clock
    }

    fn watching(&self) -> &Watching {
        &self.watching
    }

    fn moves(&self) -> u64 {
        let sessions = self.sessions();
        sessions.iter().map(|session| session.store.moves()).sum()
    }

    fn pending(&self) -> &NewHolds<KeptPart, Ringer> {
        &self.pending
    }
}

/// A lock of a hold.
pub(super) struct KeptPart {
    pub(super) part: Arc<HoldPart>,
    /// The number of the hold.
    hold: u64,
    life: Life,
    pub(super) lease: LeaseEnd,
    /// The request that asks the program to stop.
    asked_by: OnceLock<String>,
    /// Set once the release of the hold has begun: nothing is asked about the hold any more.
    is_leaving: AtomicBool,
    teller: Teller,
}

impl KeptPart {
    pub(super) fn new(hold: u64, part: Arc<HoldPart>, life: Life, teller: Teller) -> Self {
        Self {
            lease: life.lease_end(),
            part,
            hold,
            life,
            asked_by: OnceLock::new(),
            is_leaving: AtomicBool::new(false),
            teller,
        }
    }

    /// Whether it is this lock of the hold.
    pub(super) fn is(&self, part: &Arc<HoldPart>) -> bool {
        Arc::ptr_eq(&self.part, part)
    }

    pub(super) fn leaves(&self) {
        self.is_leaving.store(true, Ordering::Release);
    }

    /// How long others leave the lock alone, if no renewal succeeds before.
    pub(super) fn left_ms(&self) -> Option<u64> {
        self.lease.left_ms(self.part.session.clock.now().boot_ms)
    }
}

impl KeeperHold for KeptPart {
    fn life(&self) -> Life {
        self.life.clone()
    }

    fn lapses(&self) -> bool {
        self.lease.lapse_ms().is_some()
    }

    fn file(&self) -> Option<String> {
        let store = &self.part.session.store;
        // A record that is renewed is another file, so it is looked at from time to time instead.
        (!store.is_remote() && !store.publishes()).then(|| store.location(self.part.name()).shown)
    }

    fn notices(&self) -> Option<Descriptor> {
        let store = &self.part.session.store;
        // Elsewhere files are watched, or looked at.
        let notices = store
            .is_remote()
            .then(|| store.notices(&*self.part.handle))
            .flatten();
        notices.map(|notices| notices.descriptor)
    }

    fn asked(&self, renews: Option<&Now>) -> Option<Result<Renewal, StoreError>> {
        if self.is_leaving.load(Ordering::Acquire) {
            return None;
        }
        let LockLook { renewal, asked_by } = calls::look(&self.part, renews);
        if let (Ok(Renewal::Renewed { .. }), Some(began)) = (&renewal, renews) {
            self.lease.renewed(began.boot_ms);
        }
        if let Some(by) = asked_by {
            let _ = self.asked_by.set(by);
        }
        Some(renewal)
    }

    fn told(&self, ask: Ask, news: News, error: Option<StoreError>) -> bool {
        // The claim stays until the client gives it back: while its work goes on, a renewal keeps others out.
        let goes_on = !news.is_gone();
        self.teller.tell(Event::Kept {
            hold: self.hold,
            part: Arc::clone(&self.part),
            by: (self.asked_by.get().cloned()).filter(|_| news.stop_requested),
            is_renewed: ask == Ask::Renew && error.is_none() && news.lost.is_none(),
            error: error.map(|error| error.to_string()),
            news,
        });
        goes_on
    }
}
