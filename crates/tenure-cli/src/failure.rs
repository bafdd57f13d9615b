//! What can go wrong, as the caller sees it: the only place that maps an error to an exit code,
//! to the envelope's `error`, and to the lines that a person reads.

use crate::exit::Exit;
use crate::render::{self, Output};
use serde_json::{Map, Value, json};
use std::time::Duration;
use tenure::audit::AuditError;
use tenure::config::ConfigError;
use tenure::fence::GuardError;
use tenure::process::OwnerError;
use tenure::profile::ProfileError;
use tenure::store::StoreError;

/// How a retry is best done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Retry {
    pub(crate) after_ms: u64,
    pub(crate) strategy: &'static str,
}

/// A failure, ready to be shown.
#[derive(Debug, Clone)]
pub(crate) struct Failure {
    pub(crate) exit: Exit,
    /// Stable, for programs.
    pub(crate) code: &'static str,
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
    command: String,
    output: Output,
    /// It was shown already, or there is nothing to show.
    silent: bool,
}

impl Failure {
    pub(crate) fn new(exit: Exit, code: &'static str, message: impl Into<String>) -> Self {
        Self {
            exit,
            code,
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

    /// Shows a failure that happened before anybody knew how to show it.
    pub(crate) fn report(self) -> Exit {
        let (command, output) = (self.command.clone(), self.output);
        render::Surface::new(output, false, false, command, None).fail(&self)
    }

    pub(crate) fn is_silent(&self) -> bool {
        self.silent
    }

    /// The envelope's `error`.
    pub(crate) fn to_json(&self) -> Value {
        let mut error = Map::new();
        error.insert("code".into(), self.code.into());
        error.insert("message".into(), self.message.clone().into());
        error.insert("retryable".into(), self.retry.is_some().into());
        if let Some(retry) = self.retry {
            error.insert("retry_after_ms".into(), retry.after_ms.into());
            error.insert("retry_strategy".into(), retry.strategy.into());
        }
        let mut put = |key: &str, value: Option<Value>| {
            if let Some(value) = value {
                error.insert(key.into(), value);
            }
        };
        put("detail", self.detail.clone().map(Value::from));
        put("fix_command", self.fix_command.clone().map(Value::from));
        put("phase", self.phase.map(Value::from));
        put("partial", self.partial.then_some(Value::Bool(true)));
        put("signal", self.signal.map(Value::from));
        put(
            "context",
            (!self.context.is_empty()).then(|| Value::Object(self.context.clone())),
        );
        Value::Object(error)
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        let (exit, code) = match &error {
            StoreError::Permission { .. } => (Exit::Permission, "PERMISSION_DENIED"),
            StoreError::Unsafe { .. } => (Exit::Permission, "UNSAFE_PLACE"),
            StoreError::FileSystem { .. } => (Exit::StoreUnavailable, "FILE_SYSTEM_UNSUITABLE"),
            StoreError::Unreadable { .. } => (Exit::Precondition, "LOCK_UNREADABLE"),
            StoreError::Full { .. } => (Exit::Precondition, "QUEUE_FULL"),
            StoreError::Stuck { .. } => (Exit::StoreUnavailable, "STORE_STUCK"),
            _ => (Exit::StoreUnavailable, "STORE_UNAVAILABLE"),
        };
        let mut failure = Self::new(exit, code, error.to_string());
        if let StoreError::Unreadable { place, .. } = &error {
            failure.text = Some(format!(
                "{error}\n{:8}look at it with `cat`; --force replaces it",
                ""
            ));
            failure.detail = Some(format!(
                "lock_file={place} holder_pid=unknown holder_age_ms=unknown"
            ));
            failure.context = object(json!({ "lock_file": place, "holder": null }));
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

/// A duration as people write it.
pub(crate) fn human(duration: Duration) -> String {
    let millis = duration.as_millis();
    if millis < 1_000 {
        return format!("{millis}ms");
    }
    let seconds = duration.as_secs();
    let (days, hours, minutes, rest) = (
        seconds / 86_400,
        seconds / 3_600 % 24,
        seconds / 60 % 60,
        seconds % 60,
    );
    let mut text = String::new();
    for (number, unit) in [(days, 'd'), (hours, 'h'), (minutes, 'm'), (rest, 's')] {
        if number > 0 {
            text.push_str(&number.to_string());
            text.push(unit);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_read_as_they_are_written() {
        for (millis, text) in [
            (0, "0ms"),
            (999, "999ms"),
            (1_000, "1s"),
            (12_345, "12s"),
            (90_000, "1m30s"),
            (5_400_000, "1h30m"),
            (86_400_000, "1d"),
        ] {
            assert_eq!(human(Duration::from_millis(millis)), text);
        }
    }
}
