//! The errors of guards as programs see them: exit code and the document's `error`.

use super::{AcquireError, OpenError};
use crate::advice::by_variables;
use crate::envelope::{Exit, Failure};
use tenure_core::{LockName, Reason};

impl From<AcquireError> for Failure {
    fn from(error: AcquireError) -> Self {
        match error {
            AcquireError::Held(refused) | AcquireError::Refused(refused) => {
                let reason = refused.refusal.reason;
                let retry_after_ms = u64::try_from(refused.retry_after.as_millis());
                let mut failure = refused.view().into_failure(
                    reason,
                    refused.waited,
                    retry_after_ms.unwrap_or(u64::MAX),
                );
                // The contract words the sentence of a held lock. The others name flags that no program has.
                if reason != Reason::Held {
                    failure.message = refused.to_string();
                }
                failure
            }
            AcquireError::Store { source, .. } => in_words_of_programs(source),
            AcquireError::Name { .. } | AcquireError::NoSlots { .. } => {
                Self::bad_arguments(error.to_string())
            }
            AcquireError::HeldByThisProcess {
                ref name, token, ..
            }
            | AcquireError::HeldFromBefore { ref name, token } => already_held(name, token, &error),
            AcquireError::HeldByOuterRun { ref name, token } => {
                already_held(name, Some(token), &error)
            }
            AcquireError::Deadlock { .. } => {
                Self::new(Exit::Deadlock, "DEADLOCK", error.to_string())
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

/// The failure of what was said for a command line. A program has none of its flags.
fn in_words_of_programs(error: impl Into<Failure>) -> Failure {
    let mut failure = error.into();
    failure.message = by_variables(&failure.message);
    failure
}

fn already_held(name: &LockName, token: Option<u64>, error: &AcquireError) -> Failure {
    let mut failure = Failure::new(Exit::Deadlock, "ALREADY_HELD", error.to_string());
    failure.context.insert("name".into(), name.as_str().into());
    failure.context.insert("token".into(), token.into());
    failure
}

impl From<OpenError> for Failure {
    fn from(error: OpenError) -> Self {
        let (exit, code) = match error {
            OpenError::Config(source) => return in_words_of_programs(source),
            OpenError::Elsewhere { .. } => (Exit::BadArguments, "BAD_CONFIGURATION"),
            OpenError::Servers { .. } => (Exit::StoreUnavailable, "STORE_UNREACHABLE"),
            OpenError::Folder { .. } => (Exit::General, "NO_CURRENT_FOLDER"),
        };
        in_words_of_programs(Self::new(exit, code, error.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::guard::Refused;
    use crate::store::StoreError;
    use std::io::ErrorKind;
    use std::time::Duration;
    use tenure_core::{Entry, Life, Now, Policy, Refusal, StaleReason, Standing};
    use tenure_engine::config::ConfigError;

    fn denied() -> ConfigError {
        ConfigError::Read {
            path: "tenure.toml".to_owned(),
            source: ErrorKind::PermissionDenied.into(),
        }
    }

    /// A refusal for a reason, as a document has it and as a line for people.
    fn refused_for(reason: Reason) -> (Failure, String) {
        let standing = match reason {
            Reason::Unreadable => Standing::Unreadable,
            Reason::Unknown => Standing::Unknown,
            Reason::StaleNeedsForce | Reason::NeedsConfirmation => {
                Standing::Stale(StaleReason::Silent)
            }
            Reason::Held | Reason::QueueFull => Standing::Held(Life::Supervised),
        };
        let refused = Box::new(Refused {
            name: LockName::new("j").expect("a name"),
            place: "/srv/locks/j.tenure".to_owned(),
            policy: Policy::FLEET,
            refusal: Refusal::new(reason, standing, None),
            entry: Entry::default(),
            seen: Now::default(),
            unreadable_because: (reason == Reason::Unreadable).then(|| "damaged".to_owned()),
            stopped: Vec::new(),
            is_own: false,
            waited: None,
            retry_after: Duration::from_secs(1),
            before_restart: None,
        });
        let error = AcquireError::Refused(refused);
        let told = error.to_string();
        (error.into(), told)
    }

    #[test]
    fn no_program_is_told_of_a_flag_that_it_has_not() {
        let why = "others may write there; name the lock folder with --dir if it is to be used";
        let unsafe_place = || StoreError::Unsafe {
            place: "/srv/locks".to_owned(),
            why: why.to_owned(),
        };
        let name = LockName::new("j").expect("a name");
        let of_store = AcquireError::Store {
            name,
            source: unsafe_place(),
        };
        let of_servers = OpenError::Servers {
            source: unsafe_place(),
        };
        for reason in [
            Reason::Held,
            Reason::StaleNeedsForce,
            Reason::NeedsConfirmation,
            Reason::QueueFull,
            Reason::Unreadable,
            Reason::Unknown,
        ] {
            let (failure, refused) = refused_for(reason);
            assert!(!failure.message.contains("--"), "{}", failure.message);
            assert!(!refused.contains("--"), "{refused}");
        }
        for failure in [
            Failure::from(of_store),
            Failure::from(of_servers),
            Failure::from(OpenError::Config(ConfigError::NoPlace)),
        ] {
            let message = &failure.message;
            assert!(!message.contains("--"), "{message}");
            assert!(message.contains("TENURE_DIR"), "{message}");
        }
    }

    #[test]
    fn a_configuration_that_may_not_be_read_has_one_entry_wherever_it_comes_from() {
        let direct = Failure::from(denied());
        assert_eq!(
            (direct.exit, &*direct.code),
            (Exit::Permission, "PERMISSION_DENIED")
        );
        let opened = Failure::from(OpenError::Config(denied()));
        assert_eq!((opened.exit, &opened.code), (direct.exit, &direct.code));
        assert_eq!(opened.message, direct.message);
    }
}
