//! The timeline as a page: one file, without any other, and without a network.
//!
//! Data stands in the page as JSON, in which no character ends the script around it. The page's own script draws it, and
//! a policy of the page lets no other script run.

use super::super::width::cut;
use super::text::happened;
use super::{Chart, HoldBar, LockRow, Summary, WaitBar, clean, who};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac_sha256::Hash as Sha256;
use serde::Serialize;
use std::collections::HashMap;
use tenure_engine::audit::{HoldOutcome, Incident, Participant, WaitOutcome};
use tenure_engine::document::json_line;

const FRAME: &str = include_str!("page.html");
const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");

/// How many columns of a text the page has. A line of the audit may have 64 KiB.
const TEXT_COLUMNS: usize = 500;

/// The whole page.
pub(crate) fn of(chart: &Chart) -> String {
    let policy = format!(
        "default-src 'none'; script-src '{}'; style-src '{}'; base-uri 'none'; form-action 'none'",
        source(SCRIPT),
        source(STYLE)
    );
    let data = in_script(&json_line(&PageData::of(chart)));
    let mut page = String::with_capacity(FRAME.len() + STYLE.len() + SCRIPT.len() + data.len());
    let mut rest = FRAME;
    // Each mark is looked for behind the one before it, so no name that looks like a mark is taken for one.
    for (mark, text) in [
        ("{policy}", policy.as_str()),
        ("{style}", STYLE),
        ("{data}", data.as_str()),
        ("{script}", SCRIPT),
    ] {
        let (before, behind) = rest.split_once(mark).unwrap_or((rest, ""));
        page.push_str(before);
        page.push_str(text);
        rest = behind;
    }
    page.push_str(rest.trim_end());
    page
}

/// A text as a policy knows it.
fn source(text: &str) -> String {
    format!("sha256-{}", STANDARD.encode(Sha256::hash(text.as_bytes())))
}

/// JSON that may stand inside of a script: `<` stands in strings alone, and there it may be written like this.
fn in_script(json: &str) -> String {
    json.replace('<', "\\u003c")
}

/// What the page draws. Instants are milliseconds behind its beginning, texts and callers are numbers in a list.
#[derive(Serialize)]
struct PageData<'a> {
    since: u64,
    until: u64,
    /// The time that was asked for.
    asked: (u64, u64),
    summary: &'a Summary,
    /// Words for how holds and waits ended.
    outcomes: Vec<&'static str>,
    texts: Vec<String>,
    callers: Vec<CallerItem>,
    locks: Vec<PageRow<'a>>,
}

/// Name, request, host, and process.
type CallerItem = (usize, usize, usize, Option<u64>);

/// Begin (null if unknown), end (null while open), lane, holder, outcome, what for, token, slot, how long it took and its holder had waited,
/// how long others waited and how many.
type HoldItem = (
    Option<i64>,
    Option<i64>,
    usize,
    usize,
    usize,
    usize,
    Option<u64>,
    Option<u64>,
    Option<u64>,
    Option<u64>,
    u64,
    usize,
);

/// Begin, end, lane, waiter, outcome, code, holder, how many were before it, and what for.
type WaitItem = (
    i64,
    i64,
    usize,
    usize,
    usize,
    usize,
    Option<usize>,
    Option<u64>,
    usize,
);

/// When, what, by whom, to whom, and why.
type IncidentItem = (i64, usize, usize, Vec<usize>, usize);

#[derive(Serialize)]
struct PageRow<'a> {
    name: &'a str,
    hold_lanes: usize,
    wait_lanes: usize,
    holds: Vec<HoldItem>,
    waits: Vec<WaitItem>,
    incidents: Vec<IncidentItem>,
}

impl<'a> PageData<'a> {
    fn of(chart: &'a Chart) -> Self {
        let mut lists = Lists {
            since_ms: chart.axis_ms.0,
            outcomes: HoldOutcome::ALL.map(HoldOutcome::as_str).to_vec(),
            texts: vec![String::new()],
            numbers: HashMap::from([(String::new(), 0)]),
            callers: Vec::new(),
        };
        let locks = chart.locks.iter().map(|row| lists.row(row)).collect();
        Self {
            since: chart.axis_ms.0,
            until: chart.axis_ms.1,
            asked: (chart.since_ms, chart.until_ms),
            summary: &chart.summary,
            outcomes: lists.outcomes,
            texts: lists.texts,
            callers: lists.callers,
            locks,
        }
    }
}

/// Texts, words and callers, each once.
struct Lists {
    since_ms: u64,
    outcomes: Vec<&'static str>,
    texts: Vec<String>,
    numbers: HashMap<String, usize>,
    callers: Vec<CallerItem>,
}

impl Lists {
    fn text(&mut self, text: &str) -> usize {
        let text = clean(text);
        let text = cut(&text, TEXT_COLUMNS);
        if let Some(number) = self.numbers.get(&*text) {
            return *number;
        }
        let number = self.texts.len();
        self.numbers.insert(text.clone().into_owned(), number);
        self.texts.push(text.into_owned());
        number
    }

    fn outcome(&mut self, word: &'static str) -> usize {
        let known = self.outcomes.iter().position(|known| *known == word);
        known.unwrap_or_else(|| {
            self.outcomes.push(word);
            self.outcomes.len() - 1
        })
    }

    fn caller(&mut self, by: &Participant) -> usize {
        let name = self.text(&who(by));
        let (request, host) = (self.text(&by.request_id), self.text(&by.host));
        self.callers.push((name, request, host, by.pid));
        self.callers.len() - 1
    }

    fn at(&self, ms: u64) -> i64 {
        let at = i64::try_from(ms).unwrap_or(i64::MAX);
        at.saturating_sub(i64::try_from(self.since_ms).unwrap_or(i64::MAX))
    }

    fn row<'a>(&mut self, row: &'a LockRow) -> PageRow<'a> {
        PageRow {
            name: &row.name,
            hold_lanes: row.hold_lanes,
            wait_lanes: row.wait_lanes,
            holds: row.holds.iter().map(|bar| self.hold(bar)).collect(),
            waits: row.waits.iter().map(|bar| self.wait(bar)).collect(),
            incidents: row
                .incidents
                .iter()
                .map(|incident| self.incident(incident))
                .collect(),
        }
    }

    fn hold(&mut self, bar: &HoldBar) -> HoldItem {
        let hold = &bar.hold;
        let why = hold.why.as_deref().or(hold.command.as_deref());
        (
            hold.since_ms().map(|since| self.at(since)),
            hold.until_ms.map(|until| self.at(until)),
            bar.lane,
            self.caller(&hold.by),
            self.outcome(hold.outcome.as_str()),
            self.text(why.unwrap_or_default()),
            hold.token,
            hold.slot,
            hold.held_ms(),
            hold.waited_ms,
            bar.blocked_ms,
            bar.blocked,
        )
    }

    fn wait(&mut self, bar: &WaitBar) -> WaitItem {
        let wait = &bar.wait;
        let code = match &wait.outcome {
            WaitOutcome::Refused(code) => code,
            WaitOutcome::Granted | WaitOutcome::Skipped | WaitOutcome::Superseded => "",
        };
        (
            self.at(wait.since_ms),
            self.at(wait.until_ms),
            bar.lane,
            self.caller(&wait.by),
            self.outcome(wait.outcome.as_str()),
            self.text(code),
            wait.behind.as_ref().map(|behind| self.caller(behind)),
            wait.ahead,
            self.text(wait.why.as_deref().unwrap_or_default()),
        )
    }

    fn incident(&mut self, incident: &Incident) -> IncidentItem {
        (
            self.at(incident.at_ms),
            self.text(happened(incident)),
            self.caller(&incident.by),
            incident.whom.iter().map(|whom| self.caller(whom)).collect(),
            self.text(&incident.reason),
        )
    }
}
