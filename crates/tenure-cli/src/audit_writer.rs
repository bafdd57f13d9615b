//! What a call writes into the audit. If that fails, the call says so on stderr and goes on: the holder
//! of a lock must not depend on a log.
//!
//! A native `run` should cost little, so its ordinary events are recorded only where the caller named a
//! folder for the audit. What breaks a promise to another holder (a takeover, an override, a forced
//! release) is always recorded.

use crate::failure::Failure;
use crate::render::{Reporter, say};
use std::time::Duration;
use tenure_core::{AgentKey, Claim, Event, Force, LockName, Now, RequestId};
use tenure_engine::audit::{
    self, AuditError, AuditLog, Ending, Occasion, Record, Releaser, StealReason, error_text,
};
use tenure_engine::profile::Profile;
use tenure_engine::store::StoreError;

/// How long the audit may take while work has to be watched.
const HURRY: Duration = Duration::from_millis(20);

/// Where a call records what it does.
#[derive(Debug)]
pub(crate) struct AuditWriter {
    log: AuditLog,
    /// Ordinary events are recorded too.
    everything: bool,
    /// The folder stands inside a work tree.
    ignored: bool,
    /// The agent in whose name the call is made.
    agent: Option<AgentKey>,
}

impl AuditWriter {
    pub(crate) fn new(
        folder: audit::Place,
        is_named: bool,
        profile: &dyn Profile,
        agent: Option<AgentKey>,
    ) -> Self {
        Self {
            log: AuditLog::new(folder, profile.audit_layout()),
            everything: is_named || profile.record().is_some(),
            ignored: profile.place().ignored && !is_named,
            agent,
        }
    }

    /// Where it records, and whether ordinary events too.
    #[cfg(unix)]
    pub(crate) fn kept(&self) -> (&AuditLog, bool) {
        (&self.log, self.everything)
    }

    /// From now on records ordinary events too, whatever the profile: for a hold without a supervisor.
    pub(crate) fn everything(&mut self) {
        self.everything = true;
    }

    /// What happened on the way to a grant.
    pub(crate) fn acquired(
        &self,
        reporter: &mut Reporter,
        occasion: Occasion<'_>,
        claim: &Claim,
        lock_path: &str,
        events: &[Event],
        force: Force,
    ) {
        for event in events {
            let record = match event {
                Event::Stolen {
                    why,
                    previous,
                    record,
                } => Record::of_steal(
                    occasion,
                    *why,
                    previous.as_deref(),
                    record,
                    force != Force::No,
                ),
                Event::Acquired { token } if self.everything => Record::lock_acquired(
                    occasion,
                    lock_path.as_ref(),
                    Duration::from_millis(claim.lease.ttl_ms),
                    *token,
                )
                .of_path(claim.holder.path()),
                _ => continue,
            };
            self.write(reporter, record);
        }
    }

    /// The end of a hold by release.
    pub(crate) fn released(
        &self,
        reporter: &mut Reporter,
        occasion: Occasion<'_>,
        held_ms: u64,
        ending: Ending<'_>,
        releaser: Releaser<'_>,
    ) {
        if self.everything || matches!(releaser, Releaser::Other(_)) {
            let held = Duration::from_millis(held_ms);
            let record = Record::lock_released(occasion, held, ending, releaser);
            self.write(reporter, record);
        }
    }

    /// A release that the system refused.
    pub(crate) fn release_failed(
        &self,
        reporter: &mut Reporter,
        occasion: Occasion<'_>,
        lock_path: &str,
        error: &StoreError,
    ) {
        let error = match error {
            StoreError::Permission { .. } | StoreError::Denied { .. } => format!("EACCES: {error}"),
            StoreError::Io { source, .. } => error_text(source),
            // The store tried nothing.
            _ => return,
        };
        let record = Record::lock_release_failed(occasion, lock_path.as_ref(), &error);
        self.write(reporter, record);
    }

    /// Several heartbeats in a row that failed. The supervisor writes this between two steps of an end
    /// that may be under way. So it hardly waits for a file that another process has locked.
    pub(crate) fn heartbeat_failed(&self, occasion: Occasion<'_>, consecutive: u32, error: &str) {
        let record = Record::heartbeat_failed(occasion, consecutive, error);
        let record = record.by_agent(self.agent.as_ref());
        let log = self.log.clone().waiting_at_most(HURRY);
        if let Err(error) = log.append(&record) {
            say(&unwritten(&error));
        }
    }

    /// A run that its caller lets be skipped where the lock is held. Nothing else tells of it, so it is recorded
    /// in any case.
    #[cold]
    #[inline(never)]
    pub(crate) fn skipped(
        &self,
        reporter: &mut Reporter,
        occasion: Occasion<'_>,
        refusal: &serde_json::Map<String, serde_json::Value>,
    ) {
        self.write(reporter, Record::lock_skipped(occasion, refusal));
    }

    /// Work whose supervisor was dead, ended because an operator asked for that.
    #[cfg(target_os = "linux")]
    pub(crate) fn orphan_ended(
        &self,
        reporter: &mut Reporter,
        occasion: Occasion<'_>,
        holder: &Claim,
        ended: &[u32],
    ) {
        self.write(reporter, Record::orphan_ended(occasion, holder, ended));
    }

    /// A hold that its holder left behind and that was removed, or a record that could not be read.
    pub(crate) fn removed(
        &self,
        reporter: &mut Reporter,
        occasion: Occasion<'_>,
        previous: Option<&Claim>,
        bytes: &[u8],
    ) {
        let reason = match previous {
            Some(_) => StealReason::StaleLock,
            None => StealReason::CorruptLock,
        };
        let record = Record::lock_stolen(occasion, previous, bytes, reason);
        self.write(reporter, record);
    }

    fn write(&self, reporter: &mut Reporter, record: Record) {
        let record = record.by_agent(self.agent.as_ref());
        if let Err(error) = self.log.append(&record) {
            reporter.warn(unwritten(&error));
            return;
        }
        if self.ignored
            && let Err(error) = self.log.keep_out_of_git()
        {
            reporter.warn(error.to_string());
        }
    }
}

fn unwritten(error: &AuditError) -> String {
    format!("the audit could not be written: {error}")
}

/// Who acted, on which lock, and when.
pub(crate) fn occasion<'a>(
    lock: &'a LockName,
    request_id: &'a RequestId,
    now: &Now,
) -> Occasion<'a> {
    Occasion {
        lock,
        request_id,
        at_ms: now.wall_us / 1_000,
    }
}

/// The id under which the caller acts: the one that it has shown, in whatever form another program's
/// record has it. Else a new one, because the audit needs an id in any case.
pub(crate) fn acting(shown: Option<&str>) -> Result<RequestId, Failure> {
    shown.map_or_else(
        || crate::ids::request_id_or_new(None),
        |id| Ok(RequestId::as_recorded(id)),
    )
}
