//! What an acquire reports to the log and the audit. Neither can make it fail.

use super::{Override, Place};
use crate::audit::{self, AuditLog, Occasion, Record};
use crate::engine::Acquired;
use crate::formats::Resume;
use crate::formats::resume::takeover_text;
use crate::profile::Profile;
use tenure_core::{Event, LockName};

/// Reports an acquired lock. Takeovers go to the audit too, where the users of the old holder can find
/// them: the log may belong to another program.
pub(super) fn acquired(place: &Place, name: &LockName, acquired: &Acquired, overriding: Override) {
    for event in &acquired.events {
        match event {
            Event::Acquired { .. } => tracing::info!("Acquired resume lock for {name}"),
            Event::Stolen {
                why,
                previous,
                record,
            } => {
                let pid = previous.as_ref().and_then(|claim| claim.holder.process);
                tracing::warn!("{}", takeover_text(name, *why, pid));
                let since = acquired.claim.since.unwrap_or(acquired.claim.entered);
                let occasion = Occasion::of(name, &acquired.claim.holder, since.wall_ms);
                let forced = overriding == Override::Yes;
                let line = Record::of_steal(occasion, *why, previous.as_deref(), record, forced);
                let folder = Resume.audit_folder(&place.storage);
                let folder = audit::Place::below(place.storage.clone(), folder);
                let audit = AuditLog::new(folder, Resume.audit_layout());
                if let Err(error) = audit.append(&line) {
                    tracing::warn!("the audit could not be written: {error}");
                }
            }
            _ => {}
        }
    }
}
