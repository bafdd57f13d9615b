//! Reads published records within bounds, field by field, and changes one field in place.
//!
//! Each format says itself which fields there are, and what they mean.

use super::{instant, own::Own};
use serde::{Serialize, Serializer};
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use tenure_core::{Claim, Holder, Stamp};
use tenure_store::printed::short;
pub(super) use tenure_store::profile::FUTURE;
#[cfg(feature = "yaml")]
pub(super) use tenure_store::profile::{UNDATED, UNJUDGED};

/// The largest record that is read: a thousand times what any of the formats needs.
pub(super) const BYTES_MAX: usize = 1 << 20;

/// The mark with which some programs begin a text, PowerShell's say. It belongs to no record.
const MARK: &[u8] = "\u{feff}".as_bytes();

/// The bytes as text, without a mark at the beginning, if they are few enough.
pub(super) fn text(bytes: &[u8]) -> Result<&str, String> {
    if bytes.len() > BYTES_MAX {
        return Err(format!("it is larger than {BYTES_MAX} bytes"));
    }
    let bytes = bytes.strip_prefix(MARK).unwrap_or(bytes);
    std::str::from_utf8(bytes).map_err(|_| "it is not UTF-8".to_owned())
}

/// The bytes as a JSON object.
pub(super) fn object(bytes: &[u8]) -> Result<Map<String, Value>, String> {
    match serde_json::from_str(text(bytes)?) {
        Ok(Value::Object(object)) => Ok(object),
        Ok(_) => Err("it is not a JSON object".to_owned()),
        Err(error) => Err(format!("it is not JSON: {}", short(&error))),
    }
}

/// A record to be written: fields in the order of its format. A map of the parser keeps that order only where a feature of
/// `serde_json` says so, which a program that uses the library need not have.
#[derive(Default)]
pub(super) struct Fields(Vec<(String, Field)>);

/// The value of a field.
pub(super) enum Field {
    Value(Value),
    Own(Own),
    Fields(Fields),
}

impl Fields {
    /// Adds a field, or replaces its value.
    pub(super) fn put(&mut self, key: &str, value: impl Into<Value>) {
        self.put_object(key, Field::Value(value.into()));
    }

    /// Adds an object of fields, or tenure's own.
    pub(super) fn put_object(&mut self, key: &str, object: Field) {
        match self.0.iter_mut().find(|(other, _)| other == key) {
            Some((_, value)) => *value = object,
            None => self.0.push((key.to_owned(), object)),
        }
    }

    /// Whether there is such a field.
    pub(super) fn has(&self, key: &str) -> bool {
        self.0.iter().any(|(other, _)| other == key)
    }
}

impl Serialize for Fields {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_map(self.0.iter().map(|(key, value)| (key, value)))
    }
}

impl Serialize for Field {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Value(value) => value.serialize(to),
            Self::Own(own) => own.serialize(to),
            Self::Fields(fields) => fields.serialize(to),
        }
    }
}

/// The record as pretty JSON, without a final newline.
pub(super) fn pretty(fields: &Fields) -> Result<Vec<u8>, String> {
    serde_json::to_vec_pretty(fields)
        .map_err(|error| format!("it cannot be written: {}", short(&error)))
}

/// The document with another text as the value of one key, and every other byte as it was. An unknown field
/// keeps its place, and a number keeps digits that no parser here could hold.
pub(super) fn with_text(previous: &[u8], key: &str, value: &str) -> Result<Vec<u8>, String> {
    let document = text(previous)?;
    let fields: BTreeMap<String, &RawValue> = serde_json::from_str(document)
        .map_err(|error| format!("the previous one is not a JSON object: {}", short(&error)))?;
    let old = fields
        .get(key)
        .ok_or_else(|| format!("the previous one has no {key}"))?
        .get();
    // A raw value is a slice of the document that it was read from.
    let start = old.as_ptr().addr() - document.as_ptr().addr();
    let (Some(before), Some(after)) = (
        document.get(..start),
        document.get(start.saturating_add(old.len())..),
    ) else {
        return Err(format!("the previous one hides its {key}"));
    };
    let mark = previous.get(..previous.len() - document.len());
    let changed = format!("{before}{}{after}", Value::from(value));
    Ok([mark.unwrap_or_default(), changed.as_bytes()].concat())
}

/// A required field of text.
pub(super) fn string<'a>(object: &'a Map<String, Value>, key: &str) -> Result<&'a str, String> {
    match object.get(key) {
        None => Err(format!("it has no {key}")),
        Some(Value::String(text)) => Ok(text),
        Some(_) => Err(format!("its {key} is not a text")),
    }
}

/// A required field that is a whole number, not below 0.
pub(super) fn whole(object: &Map<String, Value>, key: &str) -> Result<u64, String> {
    let value = object.get(key).ok_or_else(|| format!("it has no {key}"))?;
    value
        .as_u64()
        .ok_or_else(|| format!("its {key} is not a whole number"))
}

/// A required field that is a process id, or could be one: liveness judges whether it is.
pub(super) fn pid(object: &Map<String, Value>, key: &str) -> Result<u32, String> {
    let pid = whole(object, key)?;
    u32::try_from(pid).map_err(|_| format!("its {key} is not a process id"))
}

/// A required field that is an instant, in milliseconds since the Unix epoch.
pub(super) fn time(object: &Map<String, Value>, key: &str) -> Result<u64, String> {
    instant::parse(string(object, key)?).ok_or_else(|| format!("its {key} is not a time"))
}

/// The extra key's object. A value of another shape is not tenure's, and is left alone.
pub(super) fn own(value: Option<Value>) -> Option<Own> {
    let value = value.filter(Value::is_object)?;
    serde_json::from_value(value).ok()
}

/// The extra key's object, as a value.
#[cfg(feature = "yaml")]
pub(super) fn extra(own: &Own) -> Result<Value, String> {
    serde_json::to_value(own).map_err(|error| format!("it cannot be written: {}", short(&error)))
}

/// The process id to write if a format requires one and never asks about it: the process, else the one that
/// the fact `pid` names, else 0, which is no process.
pub(super) fn pid_of(holder: &Holder) -> Result<u32, String> {
    match (holder.process, holder.fact("pid")) {
        (Some(process), _) => Ok(process.pid),
        (None, Some(pid)) => pid
            .parse()
            .map_err(|_| "its pid is not a process id".to_owned()),
        (None, None) => Ok(0),
    }
}

/// The fact [`FUTURE`], as a record says it.
pub(super) fn future() -> (String, String) {
    (FUTURE.to_owned(), "true".to_owned())
}

/// When the claim was granted: only granted claims are published.
pub(super) fn since(claim: &Claim) -> Result<Stamp, String> {
    claim
        .since
        .ok_or_else(|| "a claim that waits has no record".to_owned())
}

/// The text, unless there is none.
pub(super) fn some(text: &str) -> Option<String> {
    (!text.is_empty()).then(|| text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replaced_value_leaves_every_other_byte_as_it_was() {
        let previous =
            "{ \"a\" : 1e999,\n\t\"b\":\"x\\u0041\" , \"n\":{\"b\":\"inner\"},\"z\":0.10}\r\n";
        let changed = with_text(previous.as_bytes(), "b", "new \"one\"");
        assert_eq!(
            changed.as_deref().map(String::from_utf8_lossy),
            Ok(
                "{ \"a\" : 1e999,\n\t\"b\":\"new \\\"one\\\"\" , \"n\":{\"b\":\"inner\"},\"z\":0.10}\r\n"
                    .into()
            ),
            "number spelling, white space, order and nested namesakes stay"
        );
    }

    #[test]
    fn a_mark_at_the_beginning_stays_and_is_no_part_of_the_text() {
        let changed = with_text("\u{feff}{\"b\":1}".as_bytes(), "b", "2");
        let changed = changed.as_deref().map(String::from_utf8_lossy);
        assert_eq!(changed, Ok("\u{feff}{\"b\":\"2\"}".into()));
    }

    #[test]
    fn of_a_key_that_stands_twice_the_last_is_replaced_as_the_last_is_read() {
        let changed = with_text(br#"{"b":"1","b":"2"}"#, "b", "3");
        assert_eq!(changed.as_deref(), Ok(br#"{"b":"1","b":"3"}"#.as_slice()));
    }

    #[test]
    fn a_previous_record_that_is_none_is_an_error() {
        for previous in ["", "[]", "{", "null", "{\"a\":1}", "{\"b\":1} x"] {
            assert!(
                with_text(previous.as_bytes(), "b", "x").is_err(),
                "{previous:?} cannot be renewed"
            );
        }
    }

    #[test]
    fn more_than_a_mebibyte_is_not_read() {
        let large = vec![b' '; BYTES_MAX + 1];
        assert_eq!(
            object(&large),
            Err("it is larger than 1048576 bytes".to_owned())
        );
    }
}
