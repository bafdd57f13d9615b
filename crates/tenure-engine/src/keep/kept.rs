//! What a keeper knows of the holds that it looks after, and of the place where they are kept.

use super::pending::NewHolds;
use super::{Ask, Life, News};
use std::time::Duration;
use tenure_core::{Now, Renewal};
use tenure_os::clock::Clock;
use tenure_os::os::{Descriptor, Ringer};
use tenure_store::StoreError;

/// How the thread learns what other processes do to its holds.
#[derive(Debug, Clone)]
pub enum Watching {
    /// The kernel reports changes to the files in which the store keeps its locks.
    Files,
    /// The thread looks at each hold this often, or less often where there are many.
    Looks(Duration),
    /// Both: a look this often, also where the kernel reports changes.
    Both(Duration),
    /// Looks at all holds this often, for a clock that stands still while the test sleeps.
    Always(Duration),
}

impl Watching {
    /// How long a sleep of the thread lasts at most, by the machine's clock.
    pub fn nap(&self) -> Option<Duration> {
        match self {
            Self::Files | Self::Looks(_) | Self::Both(_) => None,
            Self::Always(nap) => Some(*nap),
        }
    }
}

/// A hold as its thread sees it.
pub trait KeeperHold: Send + Sync + 'static {
    /// Takes the hold's life, which is the thread's from now on.
    fn life(&self) -> Life;

    /// Whether other callers may take the lock after some silence although it is held.
    fn lapses(&self) -> bool;

    /// The file that changes whenever another process does something to it; `None` if there is no such file.
    fn file(&self) -> Option<String>;

    /// A descriptor that becomes readable once something has happened to it.
    fn notices(&self) -> Option<Descriptor>;

    /// Asks its store: to renew it as of an instant, or how it stands. `None` once its release has begun.
    fn asked(&self, renews: Option<&Now>) -> Option<Result<Renewal, StoreError>>;

    /// Tells it what follows from an answer, and how an answer failed. The call must not block. False if there is nothing
    /// more to be done for it.
    fn told(&self, ask: Ask, news: News, error: Option<StoreError>) -> bool;
}

/// Where holds of one kind are kept.
pub trait Home: Send + Sync + 'static {
    /// The holds.
    type Hold: KeeperHold;

    /// The clock of their leases.
    fn clock(&self) -> &dyn Clock;

    /// How they are watched.
    fn watching(&self) -> &Watching;

    /// How often the place of their locks has moved.
    fn moves(&self) -> u64;

    /// The new ones.
    fn pending(&self) -> &NewHolds<Self::Hold, Ringer>;
}
