//! A yes is a yes to one hold. Between the question and the takeover another session may have got the
//! lock, and the person was not asked about that one.
//!
//! The store reads and replaces the record under one guard, so this check stands inside, as a profile in
//! front of the store's own. Once the store has read a record that is not the one the person was asked
//! about, it writes no claim. The answer is [`StoreError::Record`], and nothing was changed.
//!
//! [`StoreError::Record`]: tenure_store::StoreError::Record

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tenure_core::{Claim, Host, LockName, Now, Policy};
use tenure_store::profile::{FolderRules, Profile, Record};

/// The parts of a record that tell one hold from every other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Hold {
    request_id: String,
    pid: Option<u32>,
    since_ms: Option<u64>,
}

impl Hold {
    pub(super) fn of(claim: &Claim) -> Self {
        Self {
            request_id: claim.holder.request_id.to_string(),
            pid: claim.holder.process.map(|process| process.pid),
            since_ms: claim.since.map(|since| since.wall_ms),
        }
    }
}

/// A profile that overrides one hold and no other.
#[derive(Debug)]
pub(super) struct Only {
    profile: Box<dyn Profile>,
    hold: Hold,
    met_another: Arc<AtomicBool>,
}

impl Only {
    /// The profile, and a flag that says afterwards whether another hold stood there.
    pub(super) fn over(profile: Box<dyn Profile>, hold: Hold) -> (Self, Arc<AtomicBool>) {
        let met_another = Arc::new(AtomicBool::new(false));
        let only = Self {
            profile,
            hold,
            met_another: Arc::clone(&met_another),
        };
        (only, met_another)
    }
}

impl Profile for Only {
    fn policy(&self) -> Policy {
        self.profile.policy()
    }

    fn folder(&self, place: &Path) -> PathBuf {
        self.profile.folder(place)
    }

    fn place(&self) -> FolderRules {
        self.profile.place()
    }

    fn check_name(&self, name: &LockName) -> Result<(), String> {
        self.profile.check_name(name)
    }

    fn file_name(&self, name: &LockName) -> String {
        self.profile.file_name(name)
    }

    fn name_of(&self, file: &str) -> Option<LockName> {
        self.profile.name_of(file)
    }

    fn temporary(&self, name: &LockName) -> Option<String> {
        self.profile.temporary(name)
    }

    fn record(&self) -> Option<&dyn Record> {
        self.profile.record().map(|_| self as &dyn Record)
    }
}

impl Record for Only {
    fn encode(
        &self,
        name: &LockName,
        claim: &Claim,
        previous: Option<&[u8]>,
    ) -> Result<Vec<u8>, String> {
        if self.met_another.load(Ordering::SeqCst) {
            return Err("another session took the lock meanwhile".to_owned());
        }
        let record = self.profile.record().ok_or("there is no format")?;
        record.encode(name, claim, previous)
    }

    fn decode(
        &self,
        name: &LockName,
        bytes: &[u8],
        now: &Now,
        here: &Host,
    ) -> Result<Claim, String> {
        let record = self.profile.record().ok_or("there is no format")?;
        let read = record.decode(name, bytes, now, here);
        if !read
            .as_ref()
            .is_ok_and(|claim| Hold::of(claim) == self.hold)
        {
            self.met_another.store(true, Ordering::SeqCst);
        }
        read
    }
}
