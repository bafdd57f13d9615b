//! The answer for programs: one JSON document of five keys, with stable codes and exit codes.
//!
//! [`Failure`] is what can go wrong as the caller of a command sees it. Which exit code and which word an
//! error has stands in one table, the conversions to it. The shape is that of
//! `schemas/envelope.schema.json`; `docs/answers.md` has the table of codes.
//!
//! The caller decides where a document is printed, and what a person is told beside it.

mod lock;
mod table;

pub use crate::view::{
    HolderView, LockView, QueueView, RoomView, SlotsView, StandstillView, age, asks_for_the_lock,
    free_in, human, is_retryable, kind, leased, stale_reason, timestamp, utc,
};

pub use crate::agent_view::AgentView;
pub use crate::document::{json_line, write_json};
pub use crate::gathered::Gathered;
pub use tenure_store::printed::{clean, clean_path, turns_text};

use serde::{Serialize, Serializer};
use serde_json::{Map, Value};
use std::fmt;
use std::time::Duration;
use tenure_core::{Cancel, LockName};
use tenure_os::process::actor_name;

/// The version of the document's shape.
pub const SCHEMA_VERSION: &str = "1";

/// Every exit code, with its meaning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Exit {
    /// 0: done.
    Success,
    /// 1: something failed that has no code of its own.
    General,
    /// 2: the arguments make no sense; nothing was touched.
    BadArguments,
    /// 3: some of it was done, and some could not be.
    Partial,
    /// 4: a precondition does not hold: the lock is held, or stale and not taken, or unreadable.
    Precondition,
    /// 5: something that the call names is not there.
    NotFound,
    /// 6: the caller is not the owner.
    Conflict,
    /// 7: the system refuses, or the place is not safe.
    Permission,
    /// 10: the work took longer than it may.
    Timeout,
    /// 12: the store cannot be used.
    StoreUnavailable,
    /// 79: superseded by another request.
    Superseded,
    /// 80: the lock was lost while the work went on.
    LockLost,
    /// 81: waiting would never end.
    Deadlock,
    /// 126: the command exists and cannot be run.
    CannotRun,
    /// 127: the command does not exist.
    CommandNotFound,
    /// 128 and the number of the signal that asked this process to end.
    Signalled(u8),
    /// A code of the command's own.
    Own(u8),
}

impl Exit {
    /// The number that the caller sees.
    pub fn code(self) -> u8 {
        match self {
            Self::Success => 0,
            Self::General => 1,
            Self::BadArguments => 2,
            Self::Partial => 3,
            Self::Precondition => 4,
            Self::NotFound => 5,
            Self::Conflict => 6,
            Self::Permission => 7,
            Self::Timeout => 10,
            Self::StoreUnavailable => 12,
            Self::Superseded => 79,
            Self::LockLost => 80,
            Self::Deadlock => 81,
            Self::CannotRun => 126,
            Self::CommandNotFound => 127,
            Self::Signalled(number) => number.saturating_add(128),
            Self::Own(code) => code,
        }
    }
}

impl From<Exit> for std::process::ExitCode {
    fn from(exit: Exit) -> Self {
        exit.code().into()
    }
}

/// How a retry is best done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Retry {
    /// When it is likely to succeed, in milliseconds; a hint.
    pub after_ms: u64,
    /// `immediate`, `linear_backoff` or `exponential_backoff`.
    pub strategy: &'static str,
}

impl Retry {
    /// In so many milliseconds, and after each failure that much later.
    pub fn linear(after_ms: u64) -> Self {
        Self {
            after_ms,
            strategy: "linear_backoff",
        }
    }

    /// In so many milliseconds, and after each failure twice as late.
    pub fn exponential(after_ms: u64) -> Self {
        Self {
            after_ms,
            strategy: "exponential_backoff",
        }
    }
}

/// Why a call failed, ready to be shown.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Failure {
    /// How the process ends.
    pub exit: Exit,
    /// Stable, for programs: capitals, digits and `_`.
    pub code: String,
    /// A full sentence.
    pub message: String,
    /// Set if the same call may succeed later.
    pub retry: Option<Retry>,
    /// More, in one line.
    pub detail: Option<String>,
    /// A command that repairs it, to be run as it stands.
    pub fix_command: Option<String>,
    /// `acquire`, `run` or `wait`: where it was cut short.
    pub phase: Option<&'static str>,
    /// Whether something may have been done before.
    pub partial: bool,
    /// The signal that ended it.
    pub signal: Option<&'static str>,
    /// The facts behind the message, typed.
    pub context: Map<String, Value>,
}

impl Failure {
    /// A failure with a code of capitals, digits and `_`.
    ///
    /// # Examples
    /// ```
    /// # use tenure_engine as tenure;
    /// use tenure::envelope::{Exit, Failure};
    /// let failure = Failure::new(Exit::NotFound, "NO_SUCH_ENV", "There is no environment prod");
    /// assert_eq!(failure.to_json()["retryable"], false);
    /// ```
    pub fn new(exit: Exit, code: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            exit,
            code: code.into(),
            message: message.into(),
            retry: None,
            detail: None,
            fix_command: None,
            phase: None,
            partial: false,
            signal: None,
            context: Map::new(),
        }
    }

    /// A call that makes no sense.
    pub fn bad_arguments(message: impl Into<String>) -> Self {
        Self::new(Exit::BadArguments, "BAD_ARGUMENTS", message)
    }

    /// A call that a signal ended.
    pub fn cancelled(signal: StopSignal, phase: &'static str) -> Self {
        Self {
            partial: true,
            signal: Some(signal.name()),
            phase: Some(phase),
            ..Self::new(
                Exit::Signalled(signal.number()),
                "CANCELLED",
                format!("Cancelled by {}", signal.name()),
            )
        }
    }

    /// A lock that was lost while the work went on.
    pub fn lock_lost(name: &LockName) -> Self {
        let message = format!("{name} was lost while the work went on");
        Self::new(Exit::LockLost, "LOCK_LOST", message).about(name)
    }

    /// Work that ended because a request asked the holder to stop; `None` if that request is not known.
    pub fn superseded(name: &LockName, by: Option<&str>) -> Self {
        let by = by.unwrap_or("unknown");
        let message = format!(
            "{name}: another caller (request id {by}) asked for the lock, so this run has ended"
        );
        let mut failure = Self::new(Exit::Superseded, "SUPERSEDED", message).about(name);
        failure.context.insert("superseded_by".into(), by.into());
        failure
    }

    /// Work that ended because this request asked it to stop. `has_begun` says that the run had the lock.
    pub fn cancelled_for(name: &LockName, cancel: &Cancel, has_begun: bool) -> Self {
        let message = format!("{name}: {}", crate::view::ended_by(cancel, has_begun));
        let mut failure = Self::new(Exit::Superseded, "SUPERSEDED", message).about(name);
        let (kind, actor) = (kind(cancel.kind), actor_name(&cancel.actor));
        for (key, value) in [
            ("superseded_by", &*cancel.by),
            ("superseded_kind", kind),
            ("superseded_actor", &actor),
            ("superseded_why", &cancel.why),
        ] {
            if !value.is_empty() {
                failure.context.insert(key.into(), value.into());
            }
        }
        failure
    }

    fn about(mut self, name: &LockName) -> Self {
        self.context.insert("name".into(), name.as_str().into());
        self
    }

    /// The document's `error`.
    pub fn to_json(&self) -> Value {
        let mut error = Map::new();
        error.insert("code".into(), self.code.as_str().into());
        error.insert("message".into(), self.message.as_str().into());
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
        put("detail", self.detail.as_deref().map(Value::from));
        put("fix_command", self.fix_command.as_deref().map(Value::from));
        put("phase", self.phase.map(Value::from));
        put("partial", self.partial.then_some(Value::Bool(true)));
        put("signal", self.signal.map(Value::from));
        let context = (!self.context.is_empty()).then(|| self.context.clone());
        put("context", context.map(Value::Object));
        Value::Object(error)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Failure {}

/// A signal that asks a command to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StopSignal {
    /// SIGHUP.
    Hangup,
    /// SIGINT.
    Interrupt,
    /// SIGTERM.
    Terminate,
}

impl StopSignal {
    /// The signal's number.
    pub fn number(self) -> u8 {
        match self {
            Self::Hangup => 1,
            Self::Interrupt => 2,
            Self::Terminate => 15,
        }
    }

    /// The signal's name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Hangup => "SIGHUP",
            Self::Interrupt => "SIGINT",
            Self::Terminate => "SIGTERM",
        }
    }
}

/// What the document says of the call itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Meta {
    /// The request id of the call, or an id made for it.
    pub request_id: String,
    /// The verb, as it was typed; empty where there was none.
    pub command: String,
    /// [`SCHEMA_VERSION`].
    pub schema_version: &'static str,
    /// How long the call took, in milliseconds.
    pub duration_ms: u64,
    /// When it answered, RFC 3339 in UTC.
    pub timestamp: String,
}

impl Meta {
    /// The facts of a call that took so long and answers now.
    pub fn now(request_id: String, command: String, took: Duration) -> Self {
        Self {
            request_id,
            command,
            schema_version: SCHEMA_VERSION,
            duration_ms: u64::try_from(took.as_millis()).unwrap_or(u64::MAX),
            timestamp: tenure_os::clock::timestamp(),
        }
    }
}

/// The document: exactly these five keys, in this order.
#[derive(Serialize)]
struct Keys<D, E, W, M> {
    ok: bool,
    data: D,
    error: E,
    warnings: W,
    meta: M,
}

/// A document whose parts may be made as they are written, in their order: the data of a success or the
/// error of a failure, the warnings, and what is said of the call.
pub fn document<D: Serialize, E: Serialize>(
    answer: Result<D, E>,
    warnings: impl Serialize,
    meta: impl Serialize,
) -> impl Serialize {
    let ok = answer.is_ok();
    let (data, error) = match answer {
        Ok(data) => (Some(data), None),
        Err(error) => (None, Some(error)),
    };
    Keys {
        ok,
        data,
        error,
        warnings,
        meta,
    }
}

/// The document of a call whose answer is known.
#[derive(Debug, Clone)]
pub struct Envelope {
    ok: bool,
    data: Option<Value>,
    error: Option<Value>,
    warnings: Vec<String>,
    meta: Meta,
}

impl Serialize for Envelope {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let keys = Keys {
            ok: self.ok,
            data: &self.data,
            error: &self.error,
            warnings: &self.warnings,
            meta: &self.meta,
        };
        keys.serialize(serializer)
    }
}

impl Envelope {
    /// The answer of a call: its data, or why it failed. Data that is neither an object nor an array
    /// stands in an object under `value`; none at all is an empty object.
    pub fn of(answer: Result<Value, &Failure>, warnings: Vec<String>, meta: Meta) -> Self {
        let (data, error) = match answer {
            Ok(Value::Null) => (Some(Value::Object(Map::new())), None),
            Ok(data @ (Value::Object(_) | Value::Array(_))) => (Some(data), None),
            Ok(value) => {
                let object: Map<_, _> = [("value".to_owned(), value)].into_iter().collect();
                (Some(Value::Object(object)), None)
            }
            Err(failure) => (None, Some(failure.to_json())),
        };
        Self {
            ok: error.is_none(),
            data,
            error,
            warnings,
            meta,
        }
    }

    /// The document as one line, without its end, as [`json_line`] writes it.
    pub fn to_line(&self) -> String {
        // Nothing in it can fail to be written: all keys are texts.
        json_line(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_read_as_they_are_written() {
        for (millis, text, measured) in [
            (0, "0ms", "0ms"),
            (999, "999ms", "999ms"),
            (1_000, "1s", "1s"),
            (1_500, "1.5s", "1s"),
            (2_000, "2s", "2s"),
            (12_345, "12.345s", "12s"),
            (12_040, "12.04s", "12s"),
            (90_000, "1m30s", "1m30s"),
            (60_500, "1m0.5s", "1m"),
            (5_400_000, "1h30m", "1h30m"),
            (86_400_000, "1d", "1d"),
        ] {
            let duration = Duration::from_millis(millis);
            assert_eq!(human(duration), text);
            assert_eq!(crate::duration::parse(text), Ok(duration), "{text}");
            assert_eq!(age(millis), measured, "{text}");
        }
    }

    #[test]
    fn the_table_is_the_documented_one() {
        for (exit, code) in [
            (Exit::Success, 0),
            (Exit::General, 1),
            (Exit::BadArguments, 2),
            (Exit::Partial, 3),
            (Exit::Precondition, 4),
            (Exit::NotFound, 5),
            (Exit::Conflict, 6),
            (Exit::Permission, 7),
            (Exit::Timeout, 10),
            (Exit::StoreUnavailable, 12),
            (Exit::Superseded, 79),
            (Exit::LockLost, 80),
            (Exit::Deadlock, 81),
            (Exit::CannotRun, 126),
            (Exit::CommandNotFound, 127),
            (Exit::Signalled(StopSignal::Hangup.number()), 129),
            (Exit::Signalled(StopSignal::Interrupt.number()), 130),
            (Exit::Signalled(StopSignal::Terminate.number()), 143),
            (Exit::Own(17), 17),
        ] {
            assert_eq!(exit.code(), code, "{exit:?}");
        }
    }

    #[test]
    fn data_is_always_an_object_or_an_array() {
        for (data, shown) in [
            (Value::Null, "{}"),
            (Value::from(7), r#"{"value":7}"#),
            (Value::from(vec![1, 2]), "[1,2]"),
        ] {
            let meta = Meta::now("req_1".into(), String::new(), Duration::ZERO);
            let envelope = Envelope::of(Ok(data), Vec::new(), meta);
            assert_eq!(envelope.data.expect("data").to_string(), shown);
        }
    }
}
