//! The timeline for programs: the document of `--output json`. Instants are RFC 3339, in UTC.

use super::{Chart, HoldBar, LockRow, Summary, WaitBar, instant};
use serde::Serialize;
use serde_json::Value;
use tenure_engine::audit::{HoldBegin, Incident, Participant, WaitOutcome};

#[derive(Serialize)]
struct Document<'a> {
    since: String,
    until: String,
    summary: &'a Summary,
    locks: Vec<RowFacts<'a>>,
}

#[derive(Serialize)]
struct RowFacts<'a> {
    name: &'a str,
    path: Option<&'a str>,
    holds: Vec<HoldFacts<'a>>,
    waits: Vec<WaitFacts<'a>>,
    incidents: Vec<IncidentFacts<'a>>,
}

#[derive(Serialize)]
struct CallerFacts<'a> {
    request_id: Option<&'a str>,
    actor: Option<&'a str>,
    host: Option<&'a str>,
    pid: Option<u64>,
    agent: Option<&'a str>,
}

#[derive(Serialize)]
struct HoldFacts<'a> {
    #[serde(flatten)]
    by: CallerFacts<'a>,
    why: Option<&'a str>,
    command: Option<&'a str>,
    token: Option<u64>,
    mode: Option<&'a str>,
    slot: Option<u64>,
    since: Option<String>,
    begin: &'static str,
    until: Option<String>,
    held_ms: Option<u64>,
    waited_ms: Option<u64>,
    outcome: &'static str,
    blocked_ms: u64,
    blocked: usize,
}

#[derive(Serialize)]
struct WaitFacts<'a> {
    #[serde(flatten)]
    by: CallerFacts<'a>,
    why: Option<&'a str>,
    since: String,
    until: String,
    waited_ms: u64,
    behind: Option<CallerFacts<'a>>,
    ahead: Option<u64>,
    outcome: &'static str,
    code: Option<&'a str>,
}

#[derive(Serialize)]
struct IncidentFacts<'a> {
    event: &'static str,
    at: String,
    #[serde(flatten)]
    by: CallerFacts<'a>,
    whom: Vec<CallerFacts<'a>>,
    reason: &'a str,
}

impl Chart {
    /// The document's data.
    pub(crate) fn document(&self) -> Value {
        let document = Document {
            since: instant(self.since_ms),
            until: instant(self.until_ms),
            summary: &self.summary,
            locks: self.locks.iter().map(RowFacts::of).collect(),
        };
        serde_json::to_value(document).unwrap_or_default()
    }
}

impl<'a> RowFacts<'a> {
    fn of(row: &'a LockRow) -> Self {
        Self {
            name: &row.lock,
            path: row.path.as_deref(),
            holds: row.holds.iter().map(HoldFacts::of).collect(),
            waits: row.waits.iter().map(WaitFacts::of).collect(),
            incidents: row.incidents.iter().map(IncidentFacts::of).collect(),
        }
    }
}

impl<'a> CallerFacts<'a> {
    fn of(by: &'a Participant) -> Self {
        let known = |text: &'a String| Some(text.as_str()).filter(|text| !text.is_empty());
        Self {
            request_id: known(&by.request_id),
            actor: known(&by.actor),
            host: known(&by.host),
            pid: by.pid,
            agent: known(&by.agent),
        }
    }
}

impl<'a> HoldFacts<'a> {
    fn of(bar: &'a HoldBar) -> Self {
        let hold = &bar.hold;
        Self {
            by: CallerFacts::of(&hold.by),
            why: hold.why.as_deref(),
            command: hold.command.as_deref(),
            token: hold.token,
            mode: hold.mode.as_deref(),
            slot: hold.slot,
            since: hold.since_ms().map(instant),
            begin: match hold.begin {
                HoldBegin::Recorded(_) => "recorded",
                HoldBegin::Inferred(_) => "inferred",
                HoldBegin::Unknown => "unknown",
            },
            until: hold.until_ms.map(instant),
            held_ms: hold.held_ms(),
            waited_ms: hold.waited_ms,
            outcome: hold.outcome.as_str(),
            blocked_ms: bar.blocked_ms,
            blocked: bar.blocked,
        }
    }
}

impl<'a> WaitFacts<'a> {
    fn of(bar: &'a WaitBar) -> Self {
        let wait = &bar.wait;
        Self {
            by: CallerFacts::of(&wait.by),
            why: wait.why.as_deref(),
            since: instant(wait.since_ms),
            until: instant(wait.until_ms),
            waited_ms: wait.waited_ms(),
            behind: wait.behind.as_ref().map(CallerFacts::of),
            ahead: wait.ahead,
            outcome: wait.outcome.as_str(),
            code: match &wait.outcome {
                WaitOutcome::Refused(code) => Some(code),
                WaitOutcome::Granted | WaitOutcome::Skipped | WaitOutcome::Superseded => None,
            },
        }
    }
}

impl<'a> IncidentFacts<'a> {
    fn of(incident: &'a Incident) -> Self {
        Self {
            event: incident.event.as_str(),
            at: instant(incident.at_ms),
            by: CallerFacts::of(&incident.by),
            whom: incident.whom.iter().map(CallerFacts::of).collect(),
            reason: &incident.reason,
        }
    }
}
