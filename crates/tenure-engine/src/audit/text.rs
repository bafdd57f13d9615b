//! How an event is written: its object on one line, and its instants, there and back.

use crate::document::json_line;
use jiff::Timestamp;
use serde_json::{Map, Value};

/// A JSON object with sorted keys on one line, safe to be shown by a terminal; no newline.
pub(super) fn render(object: &Map<String, Value>) -> String {
    let mut whole = Value::Object(object.clone());
    whole.sort_all_objects();
    json_line(&whole)
}

/// An instant as each event has it.
pub(super) fn to_the_millisecond(at_ms: u64) -> String {
    format!("{:.3}", instant(at_ms))
}

/// An instant; what lies beyond the year 9999 is the last one before.
pub(super) fn instant(at_ms: u64) -> Timestamp {
    i64::try_from(at_ms)
        .ok()
        .and_then(|at_ms| Timestamp::from_millisecond(at_ms).ok())
        .unwrap_or(Timestamp::MAX)
}

/// When, in milliseconds since the Unix epoch; what lies before is the epoch itself.
pub(super) fn at_ms(timestamp: &str) -> Option<u64> {
    let at: Timestamp = timestamp.parse().ok()?;
    Some(u64::try_from(at.as_millisecond()).unwrap_or(0))
}
