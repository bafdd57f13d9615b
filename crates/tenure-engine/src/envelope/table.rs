//! The exit code and the word of every error that a command can end with: the only table of these. The
//! library's `guard/failure` has the guard's own errors, and asks this table for all that lies below.
//!
//! A contract that uses other words changes them where its own words are.

use super::{Exit, Failure};
use crate::audit::AuditError;
use crate::caller::OwnerError;
use crate::config::ConfigError;
use crate::fence::GuardError;
use crate::formats::ProfileError;
use serde_json::Value;
use std::io::ErrorKind;
use tenure_store::StoreError;

/// How a process ends, and the word for programs.
type FailureRow = (Exit, &'static str);

const PERMISSION: FailureRow = (Exit::Permission, "PERMISSION_DENIED");
const UNSAFE: FailureRow = (Exit::Permission, "UNSAFE_PLACE");

fn of_store(error: &StoreError) -> FailureRow {
    match error {
        StoreError::Permission { .. } | StoreError::Denied { .. } | StoreError::Missing { .. } => {
            PERMISSION
        }
        StoreError::Unsafe { .. } => UNSAFE,
        StoreError::FileSystem { .. } => (Exit::StoreUnavailable, "FILE_SYSTEM_UNSUITABLE"),
        StoreError::Unreadable { .. } => (Exit::Precondition, "LOCK_UNREADABLE"),
        StoreError::Full { .. } => (Exit::Precondition, "QUEUE_FULL"),
        StoreError::Stuck { .. } | StoreError::Crowded { .. } => {
            (Exit::StoreUnavailable, "STORE_STUCK")
        }
        StoreError::Unreachable { .. } | StoreError::Misused { .. } => {
            (Exit::StoreUnavailable, "STORE_UNREACHABLE")
        }
        // `Format`, `Record`, `Contended` and `Io`. In another crate the enum may grow: a new reason counts as these.
        _ => (Exit::StoreUnavailable, "STORE_UNAVAILABLE"),
    }
}

fn of_audit(error: &AuditError) -> FailureRow {
    match error {
        AuditError::Io { source, .. } if source.kind() == ErrorKind::PermissionDenied => PERMISSION,
        AuditError::Io { .. } => (Exit::StoreUnavailable, "AUDIT_UNAVAILABLE"),
        AuditError::Unsafe { .. } => UNSAFE,
    }
}

fn of_guard(error: &GuardError) -> FailureRow {
    match error {
        GuardError::Permission { .. } => PERMISSION,
        GuardError::Unsafe { .. } => UNSAFE,
        GuardError::FileSystem { .. } => (Exit::StoreUnavailable, "FILE_SYSTEM_UNSUITABLE"),
        GuardError::Unreadable { .. } => (Exit::StoreUnavailable, "GUARD_UNREADABLE"),
        GuardError::Stuck { .. } | GuardError::Io { .. } => {
            (Exit::StoreUnavailable, "GUARD_UNAVAILABLE")
        }
    }
}

fn of_config(error: &ConfigError) -> FailureRow {
    match error {
        ConfigError::Read { source, .. } if source.kind() == ErrorKind::PermissionDenied => {
            PERMISSION
        }
        ConfigError::Untrusted { .. }
        | ConfigError::Unsafe { .. }
        | ConfigError::Unallowed { .. } => UNSAFE,
        ConfigError::Read { .. }
        | ConfigError::Syntax { .. }
        | ConfigError::NoPlace
        | ConfigError::Place { .. } => (Exit::BadArguments, "BAD_CONFIGURATION"),
    }
}

fn of_profile(error: &ProfileError) -> FailureRow {
    match error {
        ProfileError::Unknown { .. } | ProfileError::Setting(_) => {
            (Exit::BadArguments, "BAD_ARGUMENTS")
        }
    }
}

fn of_owner(_: &OwnerError) -> FailureRow {
    (Exit::BadArguments, "NO_OWNER")
}

impl Failure {
    /// The error's own sentence, with its entry.
    fn of((exit, code): FailureRow, error: &dyn std::error::Error) -> Self {
        Self::new(exit, code, error.to_string())
    }
}

/// The errors whose entry says everything.
macro_rules! told_by_their_entry {
    ($($error:ty: $entry:ident),+) => {
        $(impl From<$error> for Failure {
            fn from(error: $error) -> Self {
                Self::of($entry(&error), &error)
            }
        })+
    };
}

told_by_their_entry!(
    AuditError: of_audit,
    GuardError: of_guard,
    ConfigError: of_config,
    ProfileError: of_profile,
    OwnerError: of_owner
);

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        let mut failure = Self::of(of_store(&error), &error);
        if let StoreError::Unreadable { place, .. } = error {
            failure.detail = Some(format!(
                "lock_file={} holder_pid=unknown holder_age_ms=unknown",
                tenure_store::advice::word(&place)
            ));
            failure.context.insert("lock_file".into(), place.into());
            failure.context.insert("holder".into(), Value::Null);
        }
        failure
    }
}
