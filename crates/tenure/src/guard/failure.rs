//! What can go wrong with a guard as programs are told it: exit code and the document's `error`.

use super::{AcquireError, OpenError, Refused};
use crate::config::ConfigError;
use crate::envelope::{Exit, Failure, LockView};
use tenure_core::LockName;

impl From<AcquireError> for Failure {
    fn from(error: AcquireError) -> Self {
        match error {
            AcquireError::Held(refused) | AcquireError::Refused(refused) => {
                let retry_after_ms = u64::try_from(refused.retry_after.as_millis());
                refused.view().into_failure(
                    refused.refusal.reason,
                    refused.waited,
                    retry_after_ms.unwrap_or(u64::MAX),
                )
            }
            AcquireError::Store { source, .. } => source.into(),
            AcquireError::Name { .. } | AcquireError::NoSlots { .. } => {
                Self::bad_arguments(error.to_string())
            }
            AcquireError::HeldByThisProcess { ref name, token } => {
                already_held(&error, name, token)
            }
            AcquireError::HeldByOuterRun { ref name, token } => {
                already_held(&error, name, Some(token))
            }
            AcquireError::Superseded { ref name, ref by } => Self::superseded(name, Some(by)),
            AcquireError::Cancelled { .. }
            | AcquireError::Forked { .. }
            | AcquireError::Thread { .. } => {
                Self::new(Exit::General, "ACQUIRE_FAILED", error.to_string())
            }
        }
    }
}

fn already_held(error: &AcquireError, name: &LockName, token: Option<u64>) -> Failure {
    let mut failure = Failure::new(Exit::Deadlock, "ALREADY_HELD", error.to_string());
    failure.context.insert("name".into(), name.as_str().into());
    failure.context.insert("token".into(), token.into());
    failure
}

impl From<OpenError> for Failure {
    fn from(error: OpenError) -> Self {
        match &error {
            OpenError::Config(ConfigError::Untrusted { .. }) => {
                Self::new(Exit::Permission, "UNSAFE_PLACE", error.to_string())
            }
            OpenError::Config(_) | OpenError::Elsewhere { .. } => {
                Self::new(Exit::BadArguments, "BAD_CONFIGURATION", error.to_string())
            }
            OpenError::Servers { .. } => Self::new(
                Exit::StoreUnavailable,
                "STORE_UNREACHABLE",
                error.to_string(),
            ),
            OpenError::Folder { .. } => {
                Self::new(Exit::General, "NO_CURRENT_FOLDER", error.to_string())
            }
        }
    }
}

impl Refused {
    /// Its facts, as a document has them.
    pub(crate) fn view(&self) -> LockView {
        let mut view = LockView::refused(
            &self.name,
            self.place.clone(),
            &self.refusal,
            &self.entry,
            &self.policy,
            &self.seen,
        );
        view.unreadable_because.clone_from(&self.unreadable_because);
        view
    }
}
