//! A failure in the binary: the library's failure, the text for a person, and how it is shown.
//!
//! A single table, in `tenure_engine::envelope`, gives each error its exit code and its word.

use crate::output::Output;
use serde_json::{Map, Value};
use std::ops::{Deref, DerefMut};
use std::time::Duration;
use tenure_engine::audit::AuditError;
use tenure_engine::caller::OwnerError;
use tenure_engine::config::ConfigError;
use tenure_engine::envelope::{self, Exit};
pub(crate) use tenure_engine::envelope::{Retry, human};
use tenure_engine::fence::GuardError;
use tenure_engine::formats::ProfileError;
use tenure_store::StoreError;

/// A failure, ready to be shown.
#[derive(Debug, Clone)]
pub(crate) struct Failure {
    said: envelope::Failure,
    /// What a person reads instead of the message, where more can be said.
    pub(crate) text: Option<String>,
    /// When the lock is free, for a person: set where something supports the hint of `retry`.
    pub(crate) free_in_ms: Option<u64>,
    /// The text is the answer that the caller asked for, and belongs on stdout.
    pub(crate) is_answer: bool,
    /// The verb and the format, of a failure that happens before they are known otherwise.
    pub(crate) command: String,
    pub(crate) output: Output,
    /// Whether the failure was shown already, or has nothing to show.
    is_silent: bool,
}

impl Failure {
    pub(crate) fn new(exit: Exit, code: impl Into<String>, message: impl Into<String>) -> Self {
        envelope::Failure::new(exit, code, message).into()
    }

    /// For what cannot be done on this system.
    #[cfg(windows)]
    pub(crate) fn not_here(what: &str, why: &str) -> Self {
        Self::bad_arguments(format!("{what} is not there on Windows: {why}"))
    }

    pub(crate) fn bad_arguments(message: impl Into<String>) -> Self {
        envelope::Failure::bad_arguments(message).into()
    }

    /// Nothing is left to say.
    pub(crate) fn already_said(exit: Exit, output: Output) -> Self {
        Self {
            is_silent: true,
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
    pub(crate) fn with_context(mut self, context: impl Into<Value>) -> Self {
        self.said.context = object(context.into());
        self
    }

    pub(crate) fn is_silent(&self) -> bool {
        self.is_silent
    }
}

impl Deref for Failure {
    type Target = envelope::Failure;

    fn deref(&self) -> &Self::Target {
        &self.said
    }
}

impl Failure {
    /// The refusal of a held lock in one sentence, which names the lock, its holder and the wait; another message as it is.
    #[cfg_attr(not(unix), allow(dead_code, reason = "the port has no serve"))]
    pub(crate) fn sentence(&self) -> String {
        let text = self.text.as_deref().filter(|_| self.code == "LOCK_HELD");
        match text.and_then(|text| text.lines().next()) {
            Some(line) => line.to_owned() + &self.waited(),
            None => self.message.clone(),
        }
    }

    /// How long the caller waited, as the end of a sentence; empty if it did not.
    #[cfg_attr(not(unix), allow(dead_code, reason = "the port has no serve"))]
    pub(crate) fn waited(&self) -> String {
        let waited_ms = self.context.get("waited_ms").and_then(Value::as_u64);
        waited_ms.map_or_else(String::new, |waited_ms| {
            format!("; waited {}", human(Duration::from_millis(waited_ms)))
        })
    }

    /// Whether the lock has a live holder, or a line that takes no one more: it may be free at the next try.
    pub(crate) fn is_of_a_held_lock(&self) -> bool {
        matches!(self.code.as_str(), "LOCK_HELD" | "QUEUE_FULL")
    }
}

impl DerefMut for Failure {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.said
    }
}

impl From<envelope::Failure> for Failure {
    fn from(said: envelope::Failure) -> Self {
        Self {
            said,
            text: None,
            free_in_ms: None,
            is_answer: false,
            command: String::new(),
            output: Output::Text,
            is_silent: false,
        }
    }
}

/// The errors whose message is the text for a person.
macro_rules! told_by_their_message {
    ($($error:ty),+) => {
        $(impl From<$error> for Failure {
            fn from(error: $error) -> Self {
                envelope::Failure::from(error).into()
            }
        })+
    };
}

told_by_their_message!(
    AuditError,
    GuardError,
    ConfigError,
    ProfileError,
    OwnerError,
    StoreError
);

/// The fields of a JSON object, for `context`.
pub(crate) fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(map) => map,
        _ => Map::new(),
    }
}
