//! The audit, as far back as `top` reads it.

use crate::failure::Failure;
use crate::request::Place;
use std::time::Duration;
use tenure_engine::audit::{self, AuditError, Events, Filter};

/// How far back the holds go that say what is usual.
const BACK: Duration = Duration::from_secs(7 * 24 * 60 * 60);

/// Where the audit of a place is.
pub(super) struct Past(audit::Place);

impl Past {
    pub(super) fn of(place: &Place) -> Result<Self, Failure> {
        let (folder, _) = place.audit_folder(place.profile())?;
        Ok(Self(folder))
    }

    /// The events until now.
    pub(super) fn events(&self, now_ms: u64) -> Result<Events, AuditError> {
        Events::open(self.0.clone(), filter(now_ms))
    }

    /// The events until now, to be followed.
    #[cfg(unix)]
    pub(super) fn to_follow(&self, now_ms: u64) -> Result<Events, AuditError> {
        Events::open_to_follow(self.0.clone(), filter(now_ms))
    }
}

fn filter(now_ms: u64) -> Filter {
    let back_ms = u64::try_from(BACK.as_millis()).unwrap_or(u64::MAX);
    Filter {
        since_ms: Some(now_ms.saturating_sub(back_ms)),
        ..Filter::default()
    }
}
