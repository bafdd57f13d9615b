//! What the audit gets of what a verb did.

use super::result::RunResult;
use super::session::Session;
use crate::audit_writer;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::render::Reporter;
use std::time::Duration;
use tenure_core::{Claim, Force, Holder, LockName, Now, Ownership, Released, Request, RequestId};
use tenure_engine::audit::{Behind, Grant, Occasion, Party, Releaser};
use tenure_engine::engine::Acquired;
use tenure_os::clock::Clock;
use tenure_store::profile::{ends_without_release, known_as};
use tenure_store::{Cleaned, StoreError, Verbs};

impl Session {
    /// An occasion for the audit. A holder of this call acts, or the caller itself.
    pub(crate) fn occasion<'a>(
        &'a self,
        name: &'a LockName,
        id: &'a RequestId,
        holder: Option<&'a Holder>,
        now: &Now,
    ) -> Occasion<'a> {
        let caller = || Party {
            actor: self.place.actor.as_ref().unwrap_or(&self.identity.actor),
            host: &self.identity.host.name,
            pid: Some(self.identity.process.pid),
            why: None,
            command: None,
        };
        let party = holder.map_or_else(caller, |holder| self.audit_writer.party(holder));
        Occasion::new(name, id, now.wall_us / 1_000).by(party)
    }

    /// Reports a grant and what happened on the way to it, here and in the audit.
    pub(crate) fn record_grant(
        &self,
        reporter: &mut Reporter,
        name: &LockName,
        acquired: &Acquired,
        force: Force,
        behind: Option<&Behind>,
    ) {
        self.report_events(reporter, name, &acquired.events);
        let (claim, now) = (&acquired.claim, self.clock.now());
        let id = RequestId::as_recorded(known_as(&claim.holder));
        self.audit_writer.acquired(
            reporter,
            self.occasion(name, &id, Some(&claim.holder), &now),
            &Grant {
                claim,
                lock_path: self.store.place(name).as_ref(),
                events: &acquired.events,
                forced: force != Force::No,
                waited: acquired.waited,
                behind,
            },
        );
    }

    /// Records that a call did not get a lock. A store that failed gave no answer, and would keep no line.
    #[cold]
    #[inline(never)]
    pub(crate) fn record_refusal(
        &self,
        reporter: &mut Reporter,
        name: &LockName,
        request: &Request,
        failure: &Failure,
        waited: Duration,
    ) {
        let is_answer = matches!(
            failure.exit,
            Exit::Precondition
                | Exit::Timeout
                | Exit::Superseded
                | Exit::LockLost
                | Exit::Deadlock
                | Exit::Signalled(_)
        );
        if !is_answer {
            return;
        }
        let (holder, now) = (&request.holder, self.clock.now());
        let id = RequestId::as_recorded(known_as(holder));
        let skips = self.audit_writer.skips();
        let skips = skips.filter(|_| failure.is_of_a_held_lock());
        let occasion = self.occasion(skips.unwrap_or(name), &id, Some(holder), &now);
        self.audit_writer
            .refused(reporter, occasion, failure, waited, skips.is_some());
    }

    /// Releases by name what the caller owns, and records the outcome: under the holder's id, or under the
    /// caller's if that is not the holder. `failed` words an error of the store.
    pub(crate) fn release_owned(
        &self,
        reporter: &mut Reporter,
        name: &LockName,
        shown: Option<&str>,
        result: &RunResult,
        owns: &dyn Fn(&Claim) -> Ownership,
        failed: impl FnOnce(StoreError) -> Failure,
    ) -> Result<Released, Failure> {
        let released = self.store.release_owned(name, &owns, &self.clock.now());
        let now = self.clock.now();
        match &released {
            Ok(Released::Done {
                claim,
                held_ms,
                by_other,
            }) => {
                let id = if *by_other {
                    audit_writer::acting(shown)?
                } else {
                    RequestId::as_recorded(known_as(&claim.holder))
                };
                let holder = (!by_other).then_some(&claim.holder);
                let occasion = self.occasion(name, &id, holder, &now);
                let ending = result.ending();
                let releaser = if *by_other {
                    Releaser::Other(Some(claim))
                } else {
                    Releaser::Owner
                };
                self.audit_writer
                    .released(reporter, occasion, *held_ms, ending, releaser);
            }
            Ok(Released::Unreadable { record }) => {
                let acting = audit_writer::acting(shown)?;
                self.audit_writer.removed(
                    reporter,
                    self.occasion(name, &acting, None, &now),
                    None,
                    record,
                );
            }
            Ok(Released::Absent | Released::NotOwner { .. } | Released::Ignored { .. }) => {}
            Err(error) => {
                let (acting, place) = (audit_writer::acting(shown)?, self.store.place(name));
                self.audit_writer.release_failed(
                    reporter,
                    self.occasion(name, &acting, None, &now),
                    &place,
                    error,
                );
            }
        }
        released.map_err(failed)
    }

    /// Records the stale holds that a cleaning removed.
    pub(crate) fn record_cleaned(
        &self,
        reporter: &mut Reporter,
        name: &LockName,
        cleaned: &Cleaned,
    ) -> Result<(), Failure> {
        let (acting, now) = (audit_writer::acting(None)?, self.clock.now());
        let occasion = self.occasion(name, &acting, None, &now);
        let holds = cleaned
            .swept
            .iter()
            .filter(|claim| claim.token.is_some() && !ends_without_release(claim));
        for claim in holds {
            self.audit_writer
                .removed(reporter, occasion, Some(claim), &cleaned.record);
        }
        if cleaned.swept.is_empty() && !cleaned.record.is_empty() {
            self.audit_writer
                .removed(reporter, occasion, None, &cleaned.record);
        }
        Ok(())
    }
}
