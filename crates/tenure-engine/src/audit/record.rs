//! An event and its line.
//!
//! A line is one JSON object with sorted keys. Nothing that a field contains can end the line, begin
//! another one, or control a terminal. Control characters (C1 too), line separators, marks that turn the
//! reading direction and characters that are not seen are written as `\uXXXX`.

use super::span::{self, Span};
use super::text::{instant, render, to_the_millisecond};
use super::{EventName, SUFFIX, Stream};
use crate::agent_view::AgentView;
use crate::trace::Trace;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hmac_sha256::Hash as Sha256;
use serde_json::{Map, Value, json};
use std::io;
use std::path::Path;
use std::time::Duration;
use tenure_core::{
    AgentKey, Claim, Event, Holder, LockName, Mode, RequestId, StaleReason, Stamp, Takeover,
};
use tenure_store::printed::{self, acts, hex};

/// The longest line, its newline included.
pub const LINE_BYTES_MAX: usize = 64 << 10;

/// How many bytes of an unreadable record are kept.
pub const RAW_BYTES_MAX: usize = 4 << 10;

/// Marks the end of a hold that another caller than its owner gave back.
const BY_OTHER: &str = "by_other";

/// What is recorded of a holder that another caller met.
const HOLDER: [&str; 5] = ["request_id", "actor", "host", "pid", "since"];

/// The end of a string that was cut.
const CUT: &str = "…[cut]";

/// The lock, the request that acts on it, who makes the request, and the time.
#[derive(Debug, Clone, Copy)]
pub struct Occasion<'a> {
    /// The lock.
    pub lock: &'a LockName,
    /// The request that acts.
    pub request_id: &'a RequestId,
    /// When, in milliseconds since the Unix epoch.
    pub at_ms: u64,
    /// Who acts; `None` if that is not known.
    pub by: Option<Party<'a>>,
}

impl<'a> Occasion<'a> {
    /// An occasion on which nobody knows who acts.
    pub fn new(lock: &'a LockName, request_id: &'a RequestId, at_ms: u64) -> Self {
        Self {
            lock,
            request_id,
            at_ms,
            by: None,
        }
    }

    /// An occasion on which a holder acts.
    pub fn of(lock: &'a LockName, holder: &'a Holder, at_ms: u64) -> Self {
        Self::new(lock, &holder.request_id, at_ms).by(Party {
            why: Some(&holder.why),
            ..Party::of(holder)
        })
    }

    /// Says which party acts on the occasion.
    #[must_use]
    pub fn by(mut self, party: Party<'a>) -> Self {
        self.by = Some(party);
        self
    }
}

/// Who acts: the holder or the caller.
///
/// A command line may have passwords in its arguments, and stands in an audit for long. So a line names the program, and
/// has a `why` only where that is not a command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Party<'a> {
    /// On whose behalf.
    pub actor: &'a str,
    /// The host.
    pub host: &'a str,
    /// The process, where one is known.
    pub pid: Option<u32>,
    /// What for, as far as that is recorded.
    pub why: Option<&'a str>,
    /// The name of the program that works under the lock.
    pub command: Option<&'a str>,
}

impl<'a> Party<'a> {
    /// A holder, without what it holds the lock for.
    pub fn of(holder: &'a Holder) -> Self {
        Self {
            actor: &holder.actor,
            host: &holder.host.name,
            pid: holder.process.map(|process| process.pid),
            why: None,
            command: None,
        }
    }
}

/// Why a lock was taken over without a release by its holder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StealReason {
    /// The lock was stale, and force was used.
    StaleLockForced,
    /// The lock was stale.
    StaleLock,
    /// The lock's record could not be read.
    CorruptLock,
    /// The lock was alive, and force was used.
    ActiveLockForced,
}

impl StealReason {
    /// The reason for a takeover; `forced` says whether force was used.
    pub fn of(why: Takeover, forced: bool) -> Self {
        match why {
            // Some profiles count an unreadable record as stale. An auditor wants to know that it could not
            // be read.
            Takeover::Corrupt | Takeover::Stale(StaleReason::Unreadable) => Self::CorruptLock,
            Takeover::Stale(_) if forced => Self::StaleLockForced,
            Takeover::Stale(_) => Self::StaleLock,
            Takeover::Active => Self::ActiveLockForced,
        }
    }

    /// The word in the log.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::StaleLockForced => "stale_lock_forced",
            Self::StaleLock => "stale_lock",
            Self::CorruptLock => "corrupt_lock",
            Self::ActiveLockForced => "active_lock_forced",
        }
    }
}

/// What a caller stood behind when its wait began.
#[derive(Debug, Clone, PartialEq)]
pub struct Behind {
    /// The claim at the front of the line, which has the lock; `None` where it is not known.
    pub holder: Option<Claim>,
    /// How many callers waited before it.
    pub waiting: usize,
}

/// How a lock was granted: what the lines about that are made of.
#[derive(Debug, Clone, Copy)]
pub struct Grant<'a> {
    /// The claim as granted.
    pub claim: &'a Claim,
    /// Where the lock is kept.
    pub lock_path: &'a Path,
    /// What happened on the way.
    pub events: &'a [Event],
    /// Whether force was used.
    pub forced: bool,
    /// How long the holder waited.
    pub waited: Duration,
    /// What it stood behind; `None` if it did not wait.
    pub behind: Option<&'a Behind>,
}

impl Grant<'_> {
    /// The takeovers, and the grant.
    pub fn records(&self, occasion: Occasion<'_>) -> impl Iterator<Item = Record> {
        self.events.iter().filter_map(move |event| match event {
            Event::Stolen {
                why,
                previous,
                record,
            } => Some(Record::of_steal(
                occasion,
                *why,
                previous.as_deref(),
                record,
                self.forced,
            )),
            Event::Acquired { token } => {
                let ttl = Duration::from_millis(self.claim.lease.ttl_ms);
                let record = Record::lock_acquired(occasion, self.lock_path, ttl, *token);
                let record = record.waited(self.waited, self.behind);
                let record = record.of_mode(self.claim.mode, self.claim.slot);
                Some(record.of_path(self.claim.holder.path()))
            }
            _ => None,
        })
    }
}

/// How a hold ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending<'a> {
    /// `result: "success"`.
    Success,
    /// `result: "failure"`.
    Failure {
        /// The step that failed.
        step: &'a str,
    },
    /// `result: "forced"`: another caller ended it by force.
    Forced,
}

/// Who gave a hold back.
#[derive(Debug, Clone, Copy)]
pub enum Releaser<'a> {
    /// The owner.
    Owner,
    /// Another caller than the owner of this claim; `None` where it could not be read.
    Other(Option<&'a Claim>),
}

/// An event, ready to be written.
///
/// Every record has `event`, `lock_name`, `request_id` and `timestamp` (RFC 3339, UTC, with
/// milliseconds); if it is known who acts, also `actor`, `host`, `pid`, `why` and `command`, each null where it is not known.
/// Each constructor lists what else its event has.
#[derive(Debug, Clone, PartialEq)]
pub struct Record {
    event: EventName,
    lock_name: String,
    request_id: String,
    timestamp: String,
    fields: Map<String, Value>,
}

impl Record {
    fn new(event: EventName, occasion: Occasion<'_>, fields: Value) -> Self {
        let mut fields = match fields {
            Value::Object(fields) => fields,
            _ => Map::new(),
        };
        if let Some(by) = occasion.by {
            let known = |text: Option<&str>| text.filter(|text| !text.is_empty()).map(Value::from);
            for (key, value) in [
                ("actor", known(Some(by.actor))),
                ("command", known(by.command)),
                ("host", known(Some(by.host))),
                ("pid", by.pid.map(Value::from)),
                ("why", known(by.why)),
            ] {
                fields.insert(key.to_owned(), value.unwrap_or_default());
            }
        }
        Self {
            event,
            lock_name: occasion.lock.as_str().to_owned(),
            request_id: occasion.request_id.as_str().to_owned(),
            timestamp: to_the_millisecond(occasion.at_ms),
            fields,
        }
    }

    /// `lock_acquired`: `lock_path`, `ttl_seconds` (a whole number where it is one), `token` (the
    /// fencing token).
    pub fn lock_acquired(
        occasion: Occasion<'_>,
        lock_path: &Path,
        ttl: Duration,
        token: u64,
    ) -> Self {
        Self::new(
            EventName::LockAcquired,
            occasion,
            json!({
                "lock_path": lock_path.to_string_lossy(),
                "ttl_seconds": seconds(ttl),
                "token": token,
            }),
        )
    }

    /// Says how long the holder waited for the lock, and behind whom it stood when it came: `waited_ms`, and `behind`
    /// (`request_id`, `actor`, `host`, `pid`, `since` of that holder, null where it is not known; `waiting`, how many stood
    /// in line before this one), if it did wait.
    #[must_use]
    pub fn waited(mut self, waited: Duration, behind: Option<&Behind>) -> Self {
        self.set("waited_ms", millis(waited));
        if let Some(behind) = behind {
            let mut found = behind
                .holder
                .as_ref()
                .map_or_else(|| json!({}), holder_facts);
            found["waiting"] = behind.waiting.into();
            self.set("behind", found);
        }
        self
    }

    /// `lock_stolen`, from what a store reports as `Event::Stolen` and whether force was used:
    /// the reason is [`StealReason::of`] both.
    pub fn of_steal(
        occasion: Occasion<'_>,
        why: Takeover,
        previous: Option<&Claim>,
        record: &[u8],
        forced: bool,
    ) -> Self {
        Self::lock_stolen(occasion, previous, record, StealReason::of(why, forced))
    }

    /// `lock_stolen`: `previous_lock` (`request_id`, `actor`, `intent`, `created_at`,
    /// `last_heartbeat_at`, `host_id`, `pid`; null where it could not be read; as the replaced record has
    /// them, where its format has such fields),
    /// `previous_lock_hash` (`sha256:` and hex digits over the bytes that were replaced; null if
    /// there were none), `reason`. Of a record that could not be read also
    /// `previous_lock_raw_base64` (its first [`RAW_BYTES_MAX`] bytes) and `previous_lock_bytes`
    /// (its whole length).
    pub fn lock_stolen(
        occasion: Occasion<'_>,
        previous: Option<&Claim>,
        record: &[u8],
        reason: StealReason,
    ) -> Self {
        let hash = (!record.is_empty()).then(|| hash(record));
        let mut new = Self::new(
            EventName::LockStolen,
            occasion,
            json!({
                "previous_lock": previous.map(|claim| as_recorded(claim, record)),
                "previous_lock_hash": hash,
                "reason": reason.as_str(),
            }),
        );
        if previous.is_none() || reason == StealReason::CorruptLock {
            let kept = record.get(..RAW_BYTES_MAX).unwrap_or(record);
            let raw = STANDARD.encode(kept);
            new.set("previous_lock_raw_base64", raw);
            new.set("previous_lock_bytes", record.len());
        }
        new
    }

    /// `lock_released`: `held_duration_seconds` (whole ones, as the contract of the fleet has them), `held_ms`, `result`;
    /// `failure_step` only if the work failed; `by_other: true` and `previous_lock` (as in [`Record::lock_stolen`]) only if a
    /// caller other than the owner released it.
    pub fn lock_released(
        occasion: Occasion<'_>,
        held: Duration,
        ending: Ending<'_>,
        releaser: Releaser<'_>,
    ) -> Self {
        let result = match ending {
            Ending::Success => "success",
            Ending::Failure { .. } => "failure",
            Ending::Forced => "forced",
        };
        let mut new = Self::new(
            EventName::LockReleased,
            occasion,
            json!({
                "held_duration_seconds": held.as_secs(),
                "held_ms": millis(held),
                "result": result,
            }),
        );
        if let Ending::Failure { step } = ending {
            new.set("failure_step", step);
        }
        if let Releaser::Other(claim) = releaser {
            new.set(BY_OTHER, true);
            if let Some(claim) = claim {
                new.set("previous_lock", previous_lock(claim));
            }
        }
        new
    }

    /// `lock_release_failed`: `lock_path`, `error` (see [`error_text`]),
    /// `action: "manual_cleanup_required"`.
    pub fn lock_release_failed(occasion: Occasion<'_>, lock_path: &Path, error: &str) -> Self {
        Self::new(
            EventName::LockReleaseFailed,
            occasion,
            json!({
                "lock_path": lock_path.to_string_lossy(),
                "error": error,
                "action": "manual_cleanup_required",
            }),
        )
    }

    /// `heartbeat_failed`: `consecutive_failures`, `error` (see [`error_text`]).
    pub fn heartbeat_failed(
        occasion: Occasion<'_>,
        consecutive_failures: u32,
        error: &str,
    ) -> Self {
        Self::new(
            EventName::HeartbeatFailed,
            occasion,
            json!({ "consecutive_failures": consecutive_failures, "error": error }),
        )
    }

    /// `lock_skipped`: `held_lock` (of several locks of a call, the one that was held), `held_by` (`request_id`,
    /// `actor`, `host`, `pid`, `since` of its holder; null where it is not known), `waited_ms`. `refusal` is the
    /// `context` of the answer that another call would have got.
    pub fn lock_skipped(
        occasion: Occasion<'_>,
        refusal: &Map<String, Value>,
        waited: Duration,
    ) -> Self {
        let mut new = Self::not_granted(EventName::LockSkipped, occasion, refusal, waited);
        let held = refusal.get("name").cloned();
        new.set("held_lock", held.unwrap_or_default());
        new
    }

    /// `lock_refused`: `code` (the code of the answer), `held_by` as in [`Record::lock_skipped`], `waited_ms`. `refusal` is the
    /// `context` of the answer.
    pub fn lock_refused(
        occasion: Occasion<'_>,
        code: &str,
        refusal: &Map<String, Value>,
        waited: Duration,
    ) -> Self {
        let mut new = Self::not_granted(EventName::LockRefused, occasion, refusal, waited);
        new.set("code", code);
        new
    }

    fn not_granted(
        event: EventName,
        occasion: Occasion<'_>,
        refusal: &Map<String, Value>,
        waited: Duration,
    ) -> Self {
        let holder = refusal.get("holder").and_then(Value::as_object);
        let held_by = holder.map(|holder| {
            let fact = |key: &str| holder.get(key).cloned().unwrap_or_default();
            HOLDER
                .map(|key| (key.to_owned(), fact(key)))
                .into_iter()
                .collect::<Map<_, _>>()
        });
        let fields = json!({ "held_by": held_by, "waited_ms": millis(waited) });
        Self::new(event, occasion, fields)
    }

    /// `lock_lost`: `token` of the hold that is lost.
    pub fn lock_lost(occasion: Occasion<'_>, token: Option<u64>) -> Self {
        let fields = json!({ "token": token });
        Self::new(EventName::LockLost, occasion, fields)
    }

    /// `lock_superseded`: `superseded_by` (`request_id`, `actor` of the caller that asked for the place; null where it did not
    /// say), `kind` (`cancel` or `newer_run`), `token` of the hold, null for a place in line. `answer` is the `context` of the
    /// answer to the one that gave up its place.
    pub fn lock_superseded(
        occasion: Occasion<'_>,
        answer: &Map<String, Value>,
        token: Option<u64>,
    ) -> Self {
        let said = |key: &str| answer.get(key).cloned().unwrap_or_default();
        let fields = json!({
            "superseded_by": {
                "request_id": said("superseded_by"),
                "actor": said("superseded_actor"),
            },
            "kind": said("superseded_kind"),
            "token": token,
        });
        Self::new(EventName::LockSuperseded, occasion, fields)
    }

    /// `lock_cancelled`: `asked` (`request_id`, `actor`, `host`, `pid`, `since` of each holder or waiter that was asked to stop).
    pub fn lock_cancelled<'a>(
        occasion: Occasion<'_>,
        asked: impl IntoIterator<Item = &'a Claim>,
    ) -> Self {
        let asked: Vec<Value> = asked.into_iter().map(holder_facts).collect();
        Self::new(
            EventName::LockCancelled,
            occasion,
            json!({ "asked": asked }),
        )
    }

    /// `orphan_ended`: `holder` (as `previous_lock` of `lock_stolen`), `command_pid`, `ended_pids` (all
    /// that were ended, the command among them; empty where none was).
    pub fn orphan_ended(occasion: Occasion<'_>, holder: &Claim, ended_pids: &[u32]) -> Self {
        Self::new(
            EventName::OrphanEnded,
            occasion,
            json!({
                "holder": previous_lock(holder),
                "command_pid": holder.holder.command.map(|command| command.pid),
                "ended_pids": ended_pids,
            }),
        )
    }

    /// Says in which agent's name the request acts: `agent` (`key`, `host`, `session`, `agent`; the last is null for a
    /// whole session).
    #[must_use]
    pub fn by_agent(mut self, agent: Option<&AgentKey>) -> Self {
        if let Some(agent) = agent
            && let Ok(agent) = serde_json::to_value(AgentView::from(agent))
        {
            self.set("agent", agent);
        }
        self
    }

    /// Says how the holder holds beside others: `mode` (`shared` or `slots`), and the number of its `slot`. An exclusive hold
    /// has neither.
    #[must_use]
    fn of_mode(mut self, mode: Mode, slot: Option<u32>) -> Self {
        match mode {
            Mode::Exclusive => return self,
            Mode::Shared => self.set("mode", "shared"),
            Mode::Slots(_) => self.set("mode", "slots"),
        }
        if let Some(slot) = slot {
            self.set("slot", slot);
        }
        self
    }

    /// Says of which trace the request is a part: `trace` (`trace_id`, the request's own `span_id`, and `parent_id`, the span
    /// of its caller).
    #[must_use]
    pub fn in_trace(mut self, trace: Option<&Trace>) -> Self {
        if let Some(trace) = trace {
            self.set("trace", trace.json());
        }
        self
    }

    /// Says which path the lock stands for: `path`.
    #[must_use]
    pub fn of_path(mut self, path: Option<&str>) -> Self {
        if let Some(path) = path {
            self.set("path", path);
        }
        self
    }

    /// The event's name.
    pub fn event(&self) -> EventName {
        self.event
    }

    /// Where its line stands.
    pub fn stream(&self) -> Stream {
        match self.event {
            EventName::LockStolen
            | EventName::OrphanEnded
            | EventName::LockLost
            | EventName::LockSuperseded
            | EventName::LockCancelled => Stream::Incidents,
            EventName::LockReleased if self.fields.contains_key(BY_OTHER) => Stream::Incidents,
            EventName::LockSkipped | EventName::LockRefused => Stream::Refusals,
            EventName::LockAcquired
            | EventName::LockReleased
            | EventName::LockReleaseFailed
            | EventName::HeartbeatFailed => Stream::Ordinary,
        }
    }

    fn set(&mut self, key: &str, value: impl Into<Value>) {
        self.fields.insert(key.to_owned(), value.into());
    }

    /// `YYYY-MM-DD`, in UTC.
    pub(super) fn date(&self) -> &str {
        self.timestamp.split_once('T').map_or("", |(date, _)| date)
    }

    /// The file of its request. An id of tenure's form is a file name: it has no separator and does not begin with a
    /// dot. Another program's id may be any text, so its file has the beginning of the text, as far as it is plain,
    /// `=` and a hash of all of it. No id of tenure's form has an `=`.
    pub(super) fn file_name(&self) -> String {
        if RequestId::new(&self.request_id).is_ok() {
            return format!("{}{SUFFIX}", self.request_id);
        }
        let plain = |c: char| match c {
            c if c.is_ascii_alphanumeric() => c,
            _ => '_',
        };
        let beginning: String = self.request_id.chars().take(40).map(plain).collect();
        format!("{beginning}={}{SUFFIX}", printed::hash(&self.request_id))
    }

    /// A copy of the record whose line ends a span.
    pub(super) fn ending(&self, span: Span) -> Self {
        let mut record = self.clone();
        record.set(span::FIELD, span.to_value());
        record
    }

    /// The line, newline included, of at most [`LINE_BYTES_MAX`] bytes. If it would be longer, the longest
    /// strings are cut and marked.
    pub fn line(&self) -> String {
        let mut fields = Value::Object(self.fields.clone());
        let mut line = self.render(&fields);
        while line.len() > LINE_BYTES_MAX {
            let excess = line.len() - LINE_BYTES_MAX;
            match longest(&mut fields) {
                Some(text) => cut(text, excess),
                // Many short fields: no constructor makes these.
                None => fields = json!({ "fields": CUT }),
            }
            line = self.render(&fields);
        }
        line
    }

    fn render(&self, fields: &Value) -> String {
        let mut whole = fields.as_object().cloned().unwrap_or_default();
        for (key, value) in [
            ("event", self.event.as_str()),
            ("lock_name", &self.lock_name),
            ("request_id", &self.request_id),
            ("timestamp", &self.timestamp),
        ] {
            whole.insert(key.to_owned(), value.into());
        }
        let mut line = render(&whole);
        line.push('\n');
        line
    }
}

/// The string that takes the most room and can be cut; short ones are left alone.
fn longest(value: &mut Value) -> Option<&mut String> {
    match value {
        Value::String(text) if text.len() > 8 * CUT.len() => Some(text),
        Value::Array(items) => items
            .iter_mut()
            .filter_map(longest)
            .max_by_key(|text| room(text)),
        Value::Object(map) => map
            .values_mut()
            .filter_map(longest)
            .max_by_key(|text| room(text)),
        _ => None,
    }
}

/// The bytes that a string takes in a line, roughly: what is escaped takes six.
fn room(text: &str) -> usize {
    text.chars()
        .map(|c| match c {
            '"' | '\\' => 2,
            c if c.is_control() || acts(c) => 6 * c.len_utf16(),
            c => c.len_utf8(),
        })
        .sum()
}

/// Cuts a string so that it takes `excess` bytes less, but leaves it half its length.
fn cut(text: &mut String, excess: usize) {
    text.truncate(text.strip_suffix(CUT).unwrap_or(text).len());
    let wanted = text.len().saturating_sub(excess + CUT.len());
    let mut end = wanted.max(text.len() / 2).min(LINE_BYTES_MAX);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.truncate(end);
    text.push_str(CUT);
}

/// The holder as the record that was replaced names it: an auditor compares the two. The store's own list
/// is finer than a record, and leaves empty what a record has a word for.
fn as_recorded(claim: &Claim, record: &[u8]) -> Value {
    let mut known = previous_lock(claim);
    let Ok(record) = serde_json::from_slice::<Map<String, Value>>(record) else {
        return known;
    };
    // The fields are those of one format, whose records name their owner by this very key.
    let is_of_owner = |id: &Value| id.as_str() == Some(claim.holder.request_id.as_str());
    if !record.get("request_id").is_some_and(is_of_owner) {
        return known;
    }
    for (key, value) in known.as_object_mut().into_iter().flatten() {
        let written = record.get(key);
        if let Some(written) = written.filter(|value| value.is_string() || value.is_u64()) {
            written.clone_into(value);
        }
    }
    known
}

/// What is recorded of a holder, or a waiter, that another caller met: `request_id`, `actor`, `host`, `pid`, `since`.
pub fn holder_facts(claim: &Claim) -> Value {
    let who = &claim.holder;
    json!({
        "request_id": who.request_id.as_str(),
        "actor": who.actor,
        "host": who.host.name,
        "pid": who.process.map(|process| process.pid),
        "since": stamp(claim.since.unwrap_or(claim.entered)),
    })
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

fn previous_lock(claim: &Claim) -> Value {
    let holder = &claim.holder;
    let mut previous = json!({
        "request_id": holder.request_id.as_str(),
        "actor": holder.actor,
        "intent": holder.fact("intent"),
        "created_at": stamp(claim.since.unwrap_or(claim.entered)),
        "last_heartbeat_at": stamp(claim.lease.renewed),
        "host_id": holder.fact("host_id").unwrap_or(&holder.host.name),
        "pid": holder.process.map(|process| process.pid),
    });
    if let Some(agent) = AgentView::of(claim).and_then(|agent| serde_json::to_value(agent).ok()) {
        previous["agent"] = agent;
    }
    previous
}

/// As records write it: without a fraction where there is none.
fn stamp(stamp: Stamp) -> String {
    let at = instant(stamp.wall_ms);
    if stamp.wall_ms.is_multiple_of(1_000) {
        at.to_string()
    } else {
        format!("{at:.3}")
    }
}

/// A duration in seconds: a whole number where it is one, milliseconds otherwise.
fn seconds(duration: Duration) -> Value {
    match u64::try_from(duration.as_millis()) {
        Ok(millis) if millis % 1_000 == 0 => (millis / 1_000).into(),
        // Milliseconds below 2^53 are exact.
        #[allow(clippy::cast_precision_loss, reason = "285,000 years")]
        Ok(millis) => (millis as f64 / 1_000.0).into(),
        Err(_) => duration.as_secs().into(),
    }
}

/// `sha256:` and 64 hex digits, as `sha256sum` has them.
fn hash(bytes: &[u8]) -> String {
    format!("sha256:{}", hex(&Sha256::hash(bytes)))
}

/// A system error as the audit names it: `EACCES: permission denied`; where errors have no such names,
/// in the system's own words.
pub fn error_text(error: &io::Error) -> String {
    tenure_os::os::error_text(error)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use tenure_core::{Death, Holder, Host, Kind, Lease, Process};

    fn recorded(make: impl FnOnce(Occasion<'_>) -> Record) -> (String, Value) {
        let lock = LockName::new("deploy").expect("a name");
        let request_id = RequestId::new("req_1").expect("an id");
        let line = make(Occasion::new(&lock, &request_id, 1_770_458_400_007)).line();
        let value = serde_json::from_str(&line).expect("a line is JSON");
        (line, value)
    }

    fn claim(actor: &str) -> Claim {
        let stamp = |wall_ms| Stamp {
            wall_ms,
            boot_ms: 0,
        };
        let mut claim = Claim::new(
            1,
            Kind::Foreign,
            Holder {
                request_id: RequestId::new("req_0").expect("an id"),
                actor: actor.to_owned(),
                process: Some(Process {
                    pid: 42,
                    started: None,
                }),
                command: None,
                host: Arc::new(Host {
                    name: "box".into(),
                    ..Host::default()
                }),
                why: String::new(),
                facts: vec![("intent".into(), "deploy-app".into())],
            },
            stamp(1_770_458_000_000),
            Lease {
                ttl_ms: 1,
                renewed: stamp(1_770_458_100_500),
                renewals: 0,
            },
        );
        claim.token = Some(1);
        claim.since = Some(stamp(1_770_458_000_000));
        claim
    }

    const GONE: Takeover = Takeover::Stale(StaleReason::ProcessDead(Death::Gone));

    /// System 5: the fields of `lock_acquired`, keys sorted.
    #[test]
    fn keys_are_sorted_and_a_line_ends_once() {
        let (line, _) = recorded(|occasion| {
            Record::lock_acquired(occasion, "/l/a.lock".as_ref(), Duration::from_secs(900), 7)
        });
        assert_eq!(
            line,
            "{\"event\":\"lock_acquired\",\"lock_name\":\"deploy\",\"lock_path\":\"/l/a.lock\",\
             \"request_id\":\"req_1\",\"timestamp\":\"2026-02-07T10:00:00.007Z\",\"token\":7,\
             \"ttl_seconds\":900}\n"
        );
        let (line, value) =
            recorded(|occasion| Record::of_steal(occasion, GONE, Some(&claim("ci")), b"x", true));
        let at = |key: &str| line.find(&format!("\"{key}\":")).expect(key);
        assert!(
            at("actor") < at("created_at")
                && at("host_id") < at("intent")
                && at("intent") < at("pid"),
            "nested keys too: {line}"
        );
        assert_eq!(
            value["previous_lock"],
            json!({
                "request_id": "req_0", "actor": "ci", "intent": "deploy-app",
                "created_at": "2026-02-07T09:53:20Z",
                "last_heartbeat_at": "2026-02-07T09:55:00.500Z",
                "host_id": "box", "pid": 42,
            })
        );
    }

    #[test]
    fn a_steal_gives_its_reason_and_the_hash_of_the_replaced_bytes() {
        for (why, forced, reason) in [
            (GONE, true, "stale_lock_forced"),
            (GONE, false, "stale_lock"),
            (Takeover::Corrupt, true, "corrupt_lock"),
            (Takeover::Active, true, "active_lock_forced"),
        ] {
            let (_, value) = recorded(|occasion| {
                Record::of_steal(occasion, why, Some(&claim("ci")), b"abc", forced)
            });
            assert_eq!(value["reason"], reason);
            assert_eq!(
                value["previous_lock_hash"],
                "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
                "as sha256sum has it"
            );
        }
        let (_, value) =
            recorded(|occasion| Record::of_steal(occasion, GONE, Some(&claim("ci")), b"", false));
        assert!(value["previous_lock_hash"].is_null(), "there were no bytes");
        assert!(value.get("previous_lock_raw_base64").is_none());
    }

    /// The list has instants to the millisecond and no process; the record has its own words.
    #[test]
    fn a_stolen_lock_is_told_in_the_words_of_the_record_that_was_replaced() {
        let mut known = claim("ci");
        known.holder.process = None;
        let record = r#"{"request_id":"req_0","actor":"ci bot","intent":"deploy-app","created_at":
            "2026-02-07T09:53:20Z","last_heartbeat_at":"2026-02-07T09:55:00Z","host_id":"fleet-3",
            "pid":0,"more":[1]}"#;
        let previous = |record: &str| {
            let told = recorded(|occasion| {
                Record::of_steal(occasion, GONE, Some(&known), record.as_bytes(), true)
            });
            told.1["previous_lock"].clone()
        };
        let mut expected: Value = serde_json::from_str(record).expect("a document");
        expected.as_object_mut().map(|fields| fields.remove("more"));
        assert_eq!(previous(record), expected, "field by field, nothing else");
        let ours = previous("");
        assert_eq!(ours["pid"], Value::Null);
        assert_eq!(ours["last_heartbeat_at"], "2026-02-07T09:55:00.500Z");
        assert_eq!(
            previous(&record.replace("req_0", "req_1")),
            ours,
            "a record of another holder says nothing about this one"
        );
        let odd = previous(&record.replace("\"ci bot\"", "{\"a\":1}"));
        assert_eq!(odd["actor"], "ci", "only texts and numbers are copied");
    }

    #[test]
    fn a_corrupt_records_bytes_are_kept_in_base64_and_bounded() {
        let raw: Vec<u8> = (0..=255).cycle().take(1 << 20).collect();
        let (line, value) =
            recorded(|occasion| Record::of_steal(occasion, Takeover::Corrupt, None, &raw, true));
        let kept = value["previous_lock_raw_base64"].as_str().expect("base64");
        assert_eq!(
            STANDARD.decode(kept).expect("whole base64"),
            raw.get(..RAW_BYTES_MAX).expect("the first bytes")
        );
        assert_eq!(value["previous_lock_bytes"], 1 << 20);
        assert_eq!(value["previous_lock"], Value::Null);
        assert!(line.len() < 8 << 10, "not the whole megabyte");
    }

    #[test]
    fn a_release_says_how_it_ended_and_no_more() {
        let released = |held, ending, releaser| {
            recorded(|occasion| Record::lock_released(occasion, held, ending, releaser)).1
        };
        let value = released(
            Duration::from_millis(12_345),
            Ending::Success,
            Releaser::Owner,
        );
        assert_eq!(value["held_duration_seconds"], json!(12));
        assert_eq!(value["held_ms"], json!(12_345));
        assert_eq!(value["result"], "success");
        assert_eq!(value.as_object().map(Map::len), Some(7), "{value}");
        let value = released(
            Duration::from_secs(2),
            Ending::Failure { step: "migrate" },
            Releaser::Owner,
        );
        assert_eq!(value["held_duration_seconds"], json!(2));
        assert_eq!(
            (&value["result"], &value["failure_step"]),
            (&json!("failure"), &json!("migrate"))
        );
        let ended = claim("ci");
        let value = released(
            Duration::ZERO,
            Ending::Forced,
            Releaser::Other(Some(&ended)),
        );
        assert_eq!(
            (&value["result"], &value["by_other"]),
            (&json!("forced"), &json!(true))
        );
        assert_eq!(value["previous_lock"]["request_id"], "req_0");
        let value = released(Duration::ZERO, Ending::Forced, Releaser::Other(None));
        assert_eq!(value.get("previous_lock"), None, "nobody knows");
    }

    #[test]
    fn system_errors_are_named() {
        // EACCES; on Windows ERROR_ACCESS_DENIED, which has words but no such name.
        let number = if cfg!(windows) { 5 } else { 13 };
        let refused = io::Error::from_raw_os_error(number);
        if cfg!(unix) {
            assert_eq!(error_text(&refused), "EACCES: permission denied");
        } else {
            assert!(error_text(&refused).contains("(os error 5)"));
        }
        let (_, value) = recorded(|occasion| {
            Record::lock_release_failed(occasion, "/l".as_ref(), &error_text(&refused))
        });
        assert_eq!(value["action"], "manual_cleanup_required");
        let (_, value) =
            recorded(|occasion| Record::heartbeat_failed(occasion, 3, &error_text(&refused)));
        assert_eq!(value["consecutive_failures"], 3);
    }

    #[test]
    fn no_content_can_forge_a_line_or_speak_to_a_terminal() {
        let evil = "x\n{\"event\":\"lock_released\"}\r\u{1b}[2J\u{7f}\u{9b}1m\u{2028}\u{2029}\u{202e}\
                    \u{2066}\u{200f}\u{61c}\"\\";
        let (line, value) =
            recorded(|occasion| Record::of_steal(occasion, GONE, Some(&claim(evil)), b"x", true));
        assert_eq!(line.matches('\n').count(), 1, "one line: {line:?}");
        assert!(line.ends_with("}\n"));
        let body = line.trim_end_matches('\n');
        assert!(
            body.chars().all(|c| !c.is_control() && !acts(c)),
            "nothing that a terminal heeds: {body:?}"
        );
        assert_eq!(
            value["previous_lock"]["actor"], evil,
            "and everything is there when it is parsed"
        );
    }

    #[test]
    fn a_line_is_bounded_and_what_was_cut_is_marked() {
        for letter in ["a", "\n", "\u{202e}", "🔒"] {
            let evil = letter.repeat(1 << 20);
            let (line, value) = recorded(|occasion| {
                Record::of_steal(occasion, GONE, Some(&claim(&evil)), b"x", true)
            });
            assert!(line.len() <= LINE_BYTES_MAX, "{} bytes", line.len());
            assert!(line.len() > 1 << 10, "and not more is cut than has to be");
            let actor = value["previous_lock"]["actor"].as_str().expect("an actor");
            assert!(actor.ends_with(CUT), "it says so");
            assert_eq!(value["previous_lock"]["pid"], 42, "the rest is whole");
        }
    }

    #[test]
    fn an_instant_beyond_all_calendars_is_still_a_date() {
        let lock = LockName::new("deploy").expect("a name");
        let request_id = RequestId::new("req_1").expect("an id");
        let record = Record::heartbeat_failed(Occasion::new(&lock, &request_id, u64::MAX), 3, "");
        assert_eq!(record.date(), "9999-12-30");
    }
}
