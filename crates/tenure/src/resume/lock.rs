//! The guard: what holding a resume lock is, and how it ends.
//!
//! Guards that share a hold share one [`Hold`]; the lock ends with the last of them.

use super::{Place, ResumeLockData, ResumeLockError};
use crate::clock::Clock;
use crate::store::{Handle, Verbs};
use std::fmt;
use std::sync::Arc;
use tenure_core::{Claim, Left, LockName, Ownership, Released, Renewal, RequestId};

/// Stands for a host name that could not be found out.
const UNKNOWN_HOST: &str = "unknown";

/// The host name as a record has it.
pub(super) fn hostname(name: &str) -> String {
    if name.is_empty() { UNKNOWN_HOST } else { name }.to_owned()
}

/// A resume lock that is held. Dropping it releases it.
///
/// The drop never panics, releases nothing but its own hold, and does so only in the process that
/// acquired it. It takes some 100 µs of file work; what fails in it is logged.
#[must_use = "the lock is released as soon as the guard is dropped"]
pub struct ResumeLock {
    hold: Arc<Hold>,
}

impl ResumeLock {
    pub(super) fn new(hold: Hold) -> Self {
        Self {
            hold: Arc::new(hold),
        }
    }

    /// What the lock's file says.
    pub fn data(&self) -> &ResumeLockData {
        &self.hold.data
    }

    /// The session or job.
    pub fn id(&self) -> &str {
        self.hold.name.as_str()
    }

    /// The fencing token: higher than that of every earlier hold of this lock. Hand it to a resource
    /// that can refuse an older one.
    pub fn token(&self) -> u64 {
        self.hold.token
    }

    /// Another guard of the same hold, for a layer that is called under it. The lock is released when
    /// the last of these guards is dropped.
    ///
    /// # Examples
    /// ```
    /// # use tenure::resume::ResumeLockManager;
    /// # let scratch = tempfile::tempdir().expect("a folder");
    /// # let locks = ResumeLockManager::new(scratch.path().into()).expect("a folder for locks");
    /// let session = locks.acquire_lock_blocking("job-7")?;
    /// let job = session.again();
    /// drop(session);
    /// assert!(job.is_held());
    /// # Ok::<(), tenure::resume::ResumeLockError>(())
    /// ```
    pub fn again(&self) -> Self {
        Self {
            hold: Arc::clone(&self.hold),
        }
    }

    /// Checks that the lock is still held: another process can override it, or delete its file.
    ///
    /// # Errors
    /// - [`ResumeLockError::Lost`] if it is not, or not by this process.
    /// - [`ResumeLockError::Unreadable`] if its record was damaged, so that the store cannot tell.
    /// - [`ResumeLockError::Store`] if the store failed.
    pub fn verify(&self) -> Result<(), ResumeLockError> {
        self.hold.verify()
    }

    /// Whether [`ResumeLock::verify`] succeeds.
    pub fn is_held(&self) -> bool {
        self.verify().is_ok()
    }

    /// Releases, and returns what went wrong. Of guards that share a hold ([`ResumeLock::again`]), only
    /// the last one releases.
    ///
    /// # Errors
    /// - [`ResumeLockError::Lost`] if the lock was taken over or removed meanwhile: two processes
    ///   may have been at work. The new holder keeps it.
    /// - [`ResumeLockError::Unreadable`] or [`ResumeLockError::Store`] if the record could not be
    ///   removed. It then counts until this process ends.
    pub fn release(self) -> Result<(), ResumeLockError> {
        Arc::into_inner(self.hold).map_or(Ok(()), Hold::release)
    }
}

impl fmt::Debug for ResumeLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResumeLock")
            .field("data", &self.hold.data)
            .field("token", &self.hold.token)
            .finish_non_exhaustive()
    }
}

/// A hold of a lock.
pub(super) struct Hold {
    place: Arc<Place>,
    name: LockName,
    handle: Box<dyn Handle>,
    request_id: RequestId,
    token: u64,
    data: ResumeLockData,
    /// Whether there is nothing left to release.
    ended: bool,
}

impl Hold {
    pub(super) fn new(
        place: Arc<Place>,
        name: LockName,
        handle: Box<dyn Handle>,
        claim: &Claim,
        request_id: RequestId,
    ) -> Self {
        Self {
            data: ResumeLockData::of(&name, claim),
            token: claim.token.unwrap_or_default(),
            place,
            name,
            handle,
            request_id,
            ended: false,
        }
    }

    /// Whether this is the process that acquired it, and not a copy made by a fork.
    fn is_here(&self) -> bool {
        self.place.identity.process.pid == std::process::id()
    }

    fn lost(&self, why: &'static str) -> ResumeLockError {
        ResumeLockError::Lost {
            job_id: self.name.as_str().to_owned(),
            why,
        }
    }

    fn verify(&self) -> Result<(), ResumeLockError> {
        if !self.is_here() {
            return Err(self.lost("it belongs to the process that this one is a copy of"));
        }
        let now = self.place.clock().now();
        match self.place.store.verify(&*self.handle, &now) {
            Ok(Renewal::Renewed { .. }) => Ok(()),
            Ok(Renewal::Lost) => Err(self.lost("it was taken over or removed")),
            Err(error) => Err(ResumeLockError::from_store(&self.name, error)),
        }
    }

    fn release(mut self) -> Result<(), ResumeLockError> {
        self.ended = true;
        if !self.is_here() {
            return Err(self.lost("it belongs to the process that this one is a copy of"));
        }
        self.end()
    }

    /// Gives the lock back. `release` finds the claim by its place in the list. If another process has removed
    /// that list, the record is still ours if it carries our request id.
    fn end(&self) -> Result<(), ResumeLockError> {
        let (store, now) = (&self.place.store, self.place.clock().now());
        let failed = |error| ResumeLockError::from_store(&self.name, error);
        let is_released = match store.release(&*self.handle, &now).map_err(failed)? {
            Left::Released { .. } | Left::Withdrawn => true,
            Left::Absent => {
                let owns = |claim: &Claim| {
                    if claim.holder.request_id == self.request_id {
                        Ownership::Shown
                    } else {
                        Ownership::Missing
                    }
                };
                let released = store.release_owned(&self.name, &owns, &now);
                matches!(released.map_err(failed)?, Released::Done { .. })
            }
        };
        if !is_released {
            return Err(self.lost("it was taken over or removed"));
        }
        tracing::info!("Released resume lock for {}", self.name);
        Ok(())
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        // A copy made by a fork does not have the hold. Its descriptors close with it, and the lock stays
        // its maker's.
        if self.ended || !self.is_here() {
            return;
        }
        if let Err(error) = self.end() {
            tracing::warn!("Failed to release lock for {}: {error}", self.name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Place, ResumeLockManager};
    use super::*;

    #[test]
    fn a_forked_copy_of_a_guard_neither_holds_nor_releases() {
        let scratch = tempfile::tempdir().expect("a folder");
        let locks = ResumeLockManager::new(scratch.path().into()).expect("a folder for locks");
        let file = scratch.path().join("resume_locks/a.lock");
        for ends_by_release in [false, true] {
            let mut copy = locks.acquire_lock_blocking("a").expect("a free lock");
            let hold = Arc::get_mut(&mut copy.hold).expect("the only guard");
            // As the copy sees it: the process that made the lock has another number.
            let mut maker = locks.place.identity.clone();
            maker.process.pid += 1;
            let others = super::super::OtherHosts::Unknown;
            hold.place = Arc::new(Place::new(scratch.path().into(), maker, others));
            assert!(!copy.is_held(), "the copy must not work under it");
            if ends_by_release {
                let error = copy.release().expect_err("not the copy's to release");
                assert!(matches!(error, ResumeLockError::Lost { .. }), "{error}");
            } else {
                drop(copy);
            }
            assert!(file.exists(), "the maker's lock stands");
            locks
                .acquire_lock_blocking_with("a", super::super::Override::Yes)
                .expect("an override")
                .release()
                .expect("a release");
        }
    }

    #[test]
    fn a_host_without_a_name_is_unknown() {
        assert_eq!(hostname(""), "unknown");
        assert_eq!(hostname("build-7"), "build-7");
    }
}
