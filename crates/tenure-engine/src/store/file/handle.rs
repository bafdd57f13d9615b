//! A claim that this process keeps alive by a byte of the coordination file.
//!
//! The *liveness lock* is the byte of the claim's ticket. A claim whose grant lets others go on
//! keeps a second byte while it waits, its *turn*. Runs that go on within a hold share a third one
//! ([`Part`]). How a waiter sleeps is `wait`'s business.

use super::bytes::{self, Byte};
use super::folder::Opened;
use super::guarded::Names;
use super::{BorrowedDescriptor, fd};
use crate::os::{self, Watch};
use crate::store::contract::{Handle, Within};
use std::sync::atomic::AtomicBool;
use std::sync::{Mutex, OnceLock};
use tenure_core::{Claim, LockName, Queueing};

/// A claim of this process. The descriptor in it carries the liveness lock: dropping it is dying.
#[derive(Debug)]
pub(super) struct FileHandle {
    pub(super) ticket: u64,
    pub(super) opened: Opened,
    /// The liveness lock's own open file. A command inherits this one, and locks belong to the open file: were
    /// the guard taken on it too, a supervisor that is killed in the middle of a change would leave the
    /// guard with its command.
    pub(super) liveness_lock: Option<Opened>,
    pub(super) names: Names,
    /// Whether it keeps the byte of its turn while it waits.
    pub(super) has_turn: bool,
    /// Where it learns that it was asked to stop while it waits, if it may be.
    pub(super) wake_up: WakeUp,
    /// Its work lasts long enough for its place to be looked after, and to be looked at once more in the
    /// end.
    pub(super) lasts: AtomicBool,
    /// The claim as it was granted, where a record of it is published.
    pub(super) granted: OnceLock<Box<Claim>>,
    /// Taken for the length of a change. The guard byte belongs to the open file, and so keeps out every
    /// other caller, but not a second thread with this same handle.
    pub(super) changing: Mutex<()>,
}

/// How a waiter that sleeps on another's byte learns that it was asked to stop.
#[derive(Debug)]
pub(super) enum WakeUp {
    /// No caller may ask it while it waits.
    Never,
    /// A watch for the touch by which it is told; opened by its first sleep.
    Watch(OnceLock<Watch>),
    /// Nothing can be watched here: it looks from time to time.
    Looks,
}

impl WakeUp {
    pub(super) fn of(queueing: Queueing) -> Self {
        match (queueing.yields(), os::WATCHES) {
            (false, _) => Self::Never,
            (true, true) => Self::Watch(OnceLock::new()),
            (true, false) => Self::Looks,
        }
    }
}

impl FileHandle {
    /// The descriptor that carries the liveness lock. A command that inherits a copy keeps it held, and gets
    /// nothing else by it.
    fn liveness_lock(&self) -> BorrowedDescriptor<'_> {
        fd(self.liveness_lock.as_ref().unwrap_or(&self.opened))
    }

    /// It waits no longer: the waiters that wait for that go on.
    pub(super) fn give_turn(&self) {
        if self.has_turn {
            // Nothing could be done about a failure that lasts; closing the file lets go.
            let _ = bytes::unlock(fd(&self.opened), Byte::of_turn(self.ticket));
        }
    }
}

impl Handle for FileHandle {
    fn name(&self) -> &LockName {
        &self.names.name
    }

    fn ticket(&self) -> u64 {
        self.ticket
    }

    fn let_go(&self) {
        self.give_turn();
        let _ = bytes::unlock(self.liveness_lock(), Byte::of_ticket(self.ticket));
    }

    #[cfg(unix)]
    fn descriptor(&self) -> Option<BorrowedDescriptor<'_>> {
        Some(self.liveness_lock())
    }

    fn is_entered(&self) -> bool {
        // A failed look is no proof that they have gone.
        bytes::is_shared(fd(&self.opened), Byte::of_within(self.ticket)) != Ok(false)
    }
}

/// A part in the hold of another process. Dropping it gives it back.
#[derive(Debug)]
pub(super) struct Part {
    /// An open file of its own, so that a command that inherits it gets nothing else by it.
    pub(super) opened: Opened,
    pub(super) ticket: u64,
}

impl Part {
    /// The first tells a release that there may be others, the second which hold they are in.
    pub(super) fn bytes(&self) -> [Byte; 2] {
        [Byte::WITHIN_ANY, Byte::of_within(self.ticket)]
    }
}

impl Within for Part {
    #[cfg(unix)]
    fn descriptor(&self) -> Option<BorrowedDescriptor<'_>> {
        Some(fd(&self.opened))
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        // Explicitly, for a daemon that the command left behind may keep a copy of the descriptor.
        for byte in self.bytes().into_iter().rev() {
            let _ = bytes::unlock(fd(&self.opened), byte);
        }
    }
}
