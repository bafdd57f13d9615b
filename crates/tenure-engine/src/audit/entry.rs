//! An event as it was read: the whole of it, or only what a filter asks.
//!
//! `read` decides which lines are read, and in what order.

use super::text::{self, at_ms};
use serde::Deserialize;
use serde_json::{Map, Value};
use std::borrow::Cow;

/// An event as it was read. Fields of later versions and other writers are kept.
#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    at_ms: u64,
    fields: Map<String, Value>,
}

impl Entry {
    /// Reads one line. `None` if it is no event: not a JSON object, or without a name or an
    /// instant.
    pub fn parse(line: &[u8]) -> Option<Self> {
        let fields: Map<String, Value> = serde_json::from_slice(line).ok()?;
        fields.get("event")?.as_str()?;
        let at_ms = at_ms(fields.get("timestamp")?.as_str()?)?;
        Some(Self { at_ms, fields })
    }

    /// When, in milliseconds since the Unix epoch.
    pub fn at_ms(&self) -> u64 {
        self.at_ms
    }

    /// What happened.
    pub fn event(&self) -> &str {
        self.text("event")
    }

    /// The lock; empty if the line does not name one.
    pub fn lock_name(&self) -> &str {
        self.text("lock_name")
    }

    /// The request id of the caller that acted; empty if the line does not say.
    pub fn request_id(&self) -> &str {
        self.text("request_id")
    }

    /// The key of the agent in whose name that caller acted; empty if the line does not say.
    pub fn agent(&self) -> &str {
        let agent = self.fields.get("agent").and_then(|agent| agent.get("key"));
        agent.and_then(Value::as_str).unwrap_or_default()
    }

    /// The timestamp, as it was written.
    pub fn timestamp(&self) -> &str {
        self.text("timestamp")
    }

    fn text(&self, key: &str) -> &str {
        self.fields
            .get(key)
            .and_then(Value::as_str)
            .unwrap_or_default()
    }

    /// The number of a field; `None` if the line has none there.
    pub fn number(&self, key: &str) -> Option<u64> {
        self.fields.get(key).and_then(Value::as_u64)
    }

    /// All fields.
    pub fn fields(&self) -> &Map<String, Value> {
        &self.fields
    }

    /// All fields, taken out.
    pub fn into_fields(self) -> Map<String, Value> {
        self.fields
    }

    /// The event as one line with sorted keys, safe to be shown by a terminal; no newline.
    pub fn line(&self) -> String {
        text::render(&self.fields)
    }
}

/// What a filter asks of a line. To read that alone takes a fraction of the time, and most lines of a large audit are
/// not wanted.
#[derive(Debug)]
pub(super) struct Facts<'a> {
    pub(super) at_ms: u64,
    pub(super) event: Cow<'a, str>,
    pub(super) lock_name: Cow<'a, str>,
    pub(super) request_id: Cow<'a, str>,
    /// The whole key.
    pub(super) agent: Cow<'a, str>,
}

impl<'a> Facts<'a> {
    /// Reads one line. `None` if it is no event, as [`Entry::parse`] sees it.
    ///
    /// What is not asked is read only as far as it takes to find its end. So a line may have facts here that is found to
    /// be no event when all of it is read.
    pub(super) fn of(line: &'a [u8]) -> Option<Self> {
        match serde_json::from_slice::<FactKeys<'_>>(line) {
            Ok(asked) => Some(Self {
                at_ms: at_ms(&asked.timestamp)?,
                event: asked.event,
                lock_name: asked.lock_name.unwrap_or_default(),
                request_id: asked.request_id.unwrap_or_default(),
                agent: asked.agent.map(|agent| agent.key).unwrap_or_default(),
            }),
            // Among these are lines that are events all the same: with a key twice, or a lock's name that is no text.
            Err(_) => Entry::parse(line).map(|entry| Self {
                at_ms: entry.at_ms(),
                event: entry.event().to_owned().into(),
                lock_name: entry.lock_name().to_owned().into(),
                request_id: entry.request_id().to_owned().into(),
                agent: entry.agent().to_owned().into(),
            }),
        }
    }
}

/// The keys of a line that [`Facts`] are made of.
#[derive(Deserialize)]
struct FactKeys<'a> {
    #[serde(borrow)]
    event: Cow<'a, str>,
    #[serde(borrow)]
    timestamp: Cow<'a, str>,
    #[serde(borrow, default)]
    lock_name: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    request_id: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    agent: Option<AskedAgent<'a>>,
}

#[derive(Deserialize)]
struct AskedAgent<'a> {
    #[serde(borrow)]
    key: Cow<'a, str>,
}
