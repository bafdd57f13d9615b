//! Hides which store a manager works on, so that a guard is one type whatever keeps its lock.
//!
//! Nothing is decided here: each call is one call of the engine or of the store.

use crate::clock::Clock;
use crate::engine::{self, Acquired, Observer, Wait};
use crate::store::{Notices, Reading, Store, StoreError};
use std::sync::Arc;
use std::time::Duration;
use tenure_core::{Left, LockName, Now, Policy, Renewal, Request};

/// A store that can be shared by threads, as a guard and its heartbeat share it. Every such store
/// is one by itself.
pub trait SharedStore: Store<Seat: Send + Sync + 'static> + Send + Sync + 'static {}

impl<S> SharedStore for S where S: Store<Seat: Send + Sync + 'static> + Send + Sync + 'static {}

/// A store, as a manager sees it.
pub(super) trait Backing: Send + Sync {
    fn policy(&self) -> Policy;
    fn place(&self, name: &LockName) -> String;
    fn lapses(&self, ttl: Duration) -> Option<Duration>;
    fn moves(&self) -> u64;
    fn read(&self, name: &LockName) -> Result<Reading, StoreError>;
    fn acquire(
        self: Arc<Self>,
        clock: &dyn Clock,
        name: &LockName,
        request: &Request,
        wait: Wait,
        observer: &mut dyn Observer,
    ) -> Result<Acquired<Box<dyn Place>>, engine::AcquireError>;
}

/// A place in it, as a guard sees it.
pub(super) trait Place: Send + Sync {
    fn renew(&self, now: &Now) -> Result<Renewal, StoreError>;
    fn verify(&self, now: &Now) -> Result<Renewal, StoreError>;
    fn leave(&self, now: &Now) -> Result<Left, StoreError>;
    /// Can be read once something has happened to it; `None` where the store does not tell.
    fn news(&self) -> Option<Notices>;
}

pub(super) struct Backed<S>(pub(super) S);

struct Taken<S: Store> {
    store: Arc<Backed<S>>,
    seat: S::Seat,
}

impl<S: SharedStore> Backing for Backed<S> {
    fn policy(&self) -> Policy {
        *self.0.policy()
    }

    fn place(&self, name: &LockName) -> String {
        self.0.place(name)
    }

    fn lapses(&self, ttl: Duration) -> Option<Duration> {
        self.0.lapses(ttl)
    }

    fn moves(&self) -> u64 {
        self.0.moves()
    }

    fn read(&self, name: &LockName) -> Result<Reading, StoreError> {
        self.0.read(name)
    }

    fn acquire(
        self: Arc<Self>,
        clock: &dyn Clock,
        name: &LockName,
        request: &Request,
        wait: Wait,
        observer: &mut dyn Observer,
    ) -> Result<Acquired<Box<dyn Place>>, engine::AcquireError> {
        let acquired = engine::acquire(&self.0, clock, name, request, wait, observer)?;
        let place = |seat| -> Box<dyn Place> { Box::new(Taken { store: self, seat }) };
        Ok(Acquired {
            seat: acquired.seat.map(place),
            claim: acquired.claim,
            events: acquired.events,
            already: acquired.already,
            waited: acquired.waited,
            displaced: acquired.displaced,
        })
    }
}

impl<S: SharedStore> Place for Taken<S> {
    fn renew(&self, now: &Now) -> Result<Renewal, StoreError> {
        self.store.0.renew(&self.seat, now)
    }

    fn verify(&self, now: &Now) -> Result<Renewal, StoreError> {
        self.store.0.verify(&self.seat, now)
    }

    fn leave(&self, now: &Now) -> Result<Left, StoreError> {
        self.store.0.leave(&self.seat, now)
    }

    fn news(&self) -> Option<Notices> {
        self.store.0.notices(&self.seat)
    }
}
