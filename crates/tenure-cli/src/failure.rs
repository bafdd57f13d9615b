//! What can go wrong, as the caller sees it: the only place that maps an error to an exit code,
//! to the envelope's `error`, and to the lines that a person reads.

use crate::exit::Exit;
use crate::output::Output;
use serde_json::{Map, Value};
use std::borrow::Cow;
use tenure::audit::AuditError;
use tenure::config::ConfigError;
use tenure::envelope;
pub(crate) use tenure::envelope::{Retry, human};
use tenure::fence::GuardError;
use tenure::process::OwnerError;
use tenure::profile::ProfileError;
use tenure::store::StoreError;

/// A failure, ready to be shown.
#[derive(Debug, Clone)]
pub(crate) struct Failure {
    pub(crate) exit: Exit,
    /// Stable, for programs.
    pub(crate) code: Cow<'static, str>,
    /// A full sentence.
    pub(crate) message: String,
    /// What a person reads instead of the message, where more can be said.
    pub(crate) text: Option<String>,
    pub(crate) retry: Option<Retry>,
    pub(crate) detail: Option<String>,
    pub(crate) fix_command: Option<String>,
    pub(crate) phase: Option<&'static str>,
    pub(crate) partial: bool,
    pub(crate) signal: Option<&'static str>,
    pub(crate) context: Map<String, Value>,
    /// The text is what was asked for, and belongs on stdout.
    pub(crate) is_answer: bool,
    /// The verb and the format, of a failure that happens before they are known otherwise.
    pub(crate) command: String,
    pub(crate) output: Output,
    /// It was shown already, or there is nothing to show.
    silent: bool,
}

impl Failure {
    pub(crate) fn new(
        exit: Exit,
        code: impl Into<Cow<'static, str>>,
        message: impl Into<String>,
    ) -> Self {
        Self {
            exit,
            code: code.into(),
            message: message.into(),
            text: None,
            retry: None,
            detail: None,
            fix_command: None,
            phase: None,
            partial: false,
            signal: None,
            context: Map::new(),
            is_answer: false,
            command: String::new(),
            output: Output::Text,
            silent: false,
        }
    }

    /// For what cannot be done on this system.
    #[cfg(windows)]
    pub(crate) fn not_here(what: &str, why: &str) -> Self {
        Self::bad_arguments(format!("{what} is not there on Windows: {why}"))
    }

    pub(crate) fn bad_arguments(message: impl Into<String>) -> Self {
        Self::new(Exit::BadArguments, "BAD_ARGUMENTS", message)
    }

    /// Nothing is left to say.
    pub(crate) fn already_said(exit: Exit, output: Output) -> Self {
        Self {
            silent: true,
            output,
            ..Self::new(exit, "SAID", "")
        }
    }

    #[must_use]
    pub(crate) fn for_command(mut self, verb: &str) -> Self {
        verb.clone_into(&mut self.command);
        self
    }

    #[must_use]
    pub(crate) fn with_output(mut self, output: Output) -> Self {
        self.output = output;
        self
    }

    /// For a document that is YAML of its own: only JSON puts it into an envelope.
    #[must_use]
    pub(crate) fn with_own_yaml(mut self) -> Self {
        if self.output == Output::Yaml {
            self.output = Output::Text;
        }
        self
    }

    #[must_use]
    pub(crate) fn with_text(mut self, text: impl Into<String>) -> Self {
        self.text = Some(text.into());
        self
    }

    #[must_use]
    pub(crate) fn with_context(mut self, context: Map<String, Value>) -> Self {
        self.context = context;
        self
    }

    pub(crate) fn is_silent(&self) -> bool {
        self.silent
    }

    /// The envelope's `error`.
    pub(crate) fn to_json(&self) -> Value {
        let said = envelope::Error {
            code: &self.code,
            message: &self.message,
            retry: self.retry,
            detail: self.detail.as_deref(),
            fix_command: self.fix_command.as_deref(),
            phase: self.phase,
            partial: self.partial,
            signal: self.signal,
            context: &self.context,
        };
        said.to_json()
    }
}

impl From<envelope::Failure> for Failure {
    fn from(said: envelope::Failure) -> Self {
        Self {
            retry: said.retry,
            detail: said.detail,
            fix_command: said.fix_command,
            phase: said.phase,
            partial: said.partial,
            signal: said.signal,
            context: said.context,
            ..Self::new(said.exit.into(), said.code, said.message)
        }
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        let advice = matches!(error, StoreError::Unreadable { .. });
        let mut failure = Self::from(envelope::Failure::from(error));
        if advice {
            failure.text = Some(format!(
                "{}\n{:8}look at what stands there; `acquire --force` or `run --force` replaces it",
                failure.message, ""
            ));
        }
        failure
    }
}

impl From<AuditError> for Failure {
    fn from(error: AuditError) -> Self {
        let (exit, code) = match &error {
            AuditError::Io { source, .. }
                if source.kind() == std::io::ErrorKind::PermissionDenied =>
            {
                (Exit::Permission, "PERMISSION_DENIED")
            }
            AuditError::Unsafe { .. } => (Exit::Permission, "UNSAFE_PLACE"),
            _ => (Exit::StoreUnavailable, "AUDIT_UNAVAILABLE"),
        };
        Self::new(exit, code, error.to_string())
    }
}

impl From<GuardError> for Failure {
    fn from(error: GuardError) -> Self {
        let (exit, code) = match &error {
            GuardError::Permission { .. } => (Exit::Permission, "PERMISSION_DENIED"),
            GuardError::Unsafe { .. } => (Exit::Permission, "UNSAFE_PLACE"),
            GuardError::FileSystem { .. } => (Exit::StoreUnavailable, "FILE_SYSTEM_UNSUITABLE"),
            GuardError::Unreadable { .. } => (Exit::StoreUnavailable, "GUARD_UNREADABLE"),
            _ => (Exit::StoreUnavailable, "GUARD_UNAVAILABLE"),
        };
        Self::new(exit, code, error.to_string())
    }
}

impl From<ConfigError> for Failure {
    fn from(error: ConfigError) -> Self {
        let (exit, code) = match &error {
            ConfigError::Read { source, .. }
                if source.kind() == std::io::ErrorKind::PermissionDenied =>
            {
                (Exit::Permission, "PERMISSION_DENIED")
            }
            ConfigError::Untrusted { .. } => (Exit::Permission, "UNSAFE_PLACE"),
            _ => (Exit::BadArguments, "BAD_CONFIGURATION"),
        };
        Self::new(exit, code, error.to_string())
    }
}

impl From<ProfileError> for Failure {
    fn from(error: ProfileError) -> Self {
        let code = match &error {
            ProfileError::Row { .. } => "BAD_CONFIGURATION",
            _ => "BAD_ARGUMENTS",
        };
        Self::new(Exit::BadArguments, code, error.to_string())
    }
}

impl From<OwnerError> for Failure {
    fn from(error: OwnerError) -> Self {
        Self::new(Exit::BadArguments, "NO_OWNER", error.to_string())
    }
}

/// The fields of a JSON object, for `context`.
pub(crate) fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(map) => map,
        _ => Map::new(),
    }
}
