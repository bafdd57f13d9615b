//! What guards tell the audit, where the program asked for that ([`LockManager::record_in`](super::LockManager::record_in)).

use super::error::AcquireError;
use super::{LockManager, Options, Shared};
pub(super) use crate::audit::Behind;
use crate::audit::{AuditLog, Ending, Grant, Layout, Occasion, Record, Releaser, holder_facts};
use crate::engine::Acquired;
use serde_json::{Map, Value};
use std::path::PathBuf;
use std::sync::OnceLock;
use std::time::Duration;
use tenure_core::{Holder, LockName, Mode};

/// The audit of a manager, once its program asked for one.
#[derive(Default)]
pub(super) struct Audit(OnceLock<AuditLog>);

impl Audit {
    pub(super) fn is_on(&self) -> bool {
        self.0.get().is_some()
    }
}

impl LockManager {
    /// From now on records what happens to the locks of this manager in the audit in a folder: grants, takeovers, losses,
    /// releases, and calls that got nothing. `tenure audit --audit-dir FOLDER` shows them; `audit` in the lock folder is
    /// where `tenure audit` looks without that. The first folder counts.
    ///
    /// Without this call nothing is recorded. A line takes tens of microseconds, on the thread that acquires or releases. If a line
    /// cannot be written, `tracing` gets `tenure.audit.failed`, and the program goes on.
    ///
    /// # Examples
    /// ```
    /// # let folder = tempfile::tempdir()?;
    /// use tenure::guard::LockManager;
    ///
    /// let locks = LockManager::new(folder.path().join("locks"))?;
    /// locks.record_in(folder.path().join("locks/audit"));
    /// drop(locks.acquire("deploy")?);
    /// assert!(folder.path().join("locks/audit/audit.jsonl").exists());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn record_in(&self, folder: impl Into<PathBuf>) {
        let _ = self
            .shared
            .audit
            .0
            .set(AuditLog::new(folder.into(), Layout::OneFile));
    }
}

/// A line to come about a hold.
#[derive(Debug, Clone)]
pub(super) struct Line {
    log: AuditLog,
    name: LockName,
    holder: Holder,
    at_ms: u64,
}

impl Line {
    /// `None` where nothing is recorded.
    pub(super) fn of(shared: &Shared, name: &LockName, holder: &Holder) -> Option<Self> {
        Some(Self {
            log: shared.audit.0.get()?.clone(),
            name: name.clone(),
            holder: holder.clone(),
            at_ms: shared.clock.now().wall_us / 1_000,
        })
    }

    /// Records that the hold was released.
    pub(super) fn released(&self, held: Duration) {
        self.write(|occasion| {
            Record::lock_released(occasion, held, Ending::Success, Releaser::Owner)
        });
    }

    /// Records that the hold was lost.
    pub(super) fn lost(&self, token: u64) {
        self.write(|occasion| Record::lock_lost(occasion, Some(token)));
    }

    /// Writes it. An audit that cannot be written stops no program: the log says so.
    fn write(&self, make: impl FnOnce(Occasion<'_>) -> Record) {
        self.write_all(|occasion| vec![make(occasion)]);
    }

    fn write_all(&self, make: impl FnOnce(Occasion<'_>) -> Vec<Record>) {
        let name = &self.name;
        for record in make(Occasion::of(name, &self.holder, self.at_ms)) {
            if let Err(error) = self.log.append(&record) {
                tracing::warn!(
                    name: "tenure.audit.failed", target: "tenure", lock = %name, %error,
                    "the audit of {name} could not be written: {error}",
                );
            }
        }
    }
}

/// Records a grant and what happened on the way to it.
pub(super) fn acquired(
    shared: &Shared,
    name: &LockName,
    acquired: &Acquired,
    waited: Duration,
    behind: Option<&Behind>,
) {
    let claim = &acquired.claim;
    let Some(line) = Line::of(shared, name, &claim.holder) else {
        return;
    };
    let place = shared.store.location(name).shown;
    let grant = Grant {
        claim,
        lock_path: place.as_ref(),
        events: &acquired.events,
        forced: false,
        waited,
        behind,
    };
    line.write_all(|occasion| grant.records(occasion).collect());
}

/// Records a call that did not get the lock. A store that failed gave no answer.
pub(super) fn refused(
    shared: &Shared,
    name: &LockName,
    (options, mode): (&Options, Mode),
    error: &AcquireError,
    waited: Duration,
) {
    if !shared.audit.is_on() {
        return;
    }
    let mut facts = Map::new();
    let code = match error {
        AcquireError::Held(refused) | AcquireError::Refused(refused) => {
            if let Some(claim) = refused.blocker() {
                facts.insert("holder".to_owned(), holder_facts(claim));
            }
            "LOCK_HELD"
        }
        AcquireError::HeldByThisProcess { .. }
        | AcquireError::HeldByOuterRun { .. }
        | AcquireError::HeldFromBefore { .. } => "ALREADY_HELD",
        AcquireError::Deadlock { .. } => "DEADLOCK",
        AcquireError::Cancelled { .. } => "CANCELLED",
        AcquireError::Superseded { by, .. } => {
            facts.insert("superseded_by".to_owned(), Value::from(by.as_str()));
            "SUPERSEDED"
        }
        _ => return,
    };
    let Ok(request) = shared.request(options, mode) else {
        return;
    };
    if let Some(line) = Line::of(shared, name, &request.holder) {
        line.write(|occasion| match error {
            AcquireError::Superseded { .. } => {
                Record::lock_superseded(occasion, &facts, None).waited(waited, None)
            }
            _ => Record::lock_refused(occasion, code, &facts, waited),
        });
    }
}
