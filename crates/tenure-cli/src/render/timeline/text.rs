//! The timeline on a terminal: the sums, then a table for each lock, oldest first.
//!
//! All text comes from files, so all of it is cleaned.

use super::super::audit::{short_age, time, with_process, zone_name};
use super::super::clean;
use super::super::table::{Cells, Columns, Giving};
use super::super::width::room_on_stdout;
use super::{Chart, Counts, HoldBar, LockRow, Summary, WaitBar, who, word};
use jiff::tz::TimeZone;
use std::fmt::Write as _;
use tenure_engine::audit::{EventName, HoldOutcome, Incident, Participant, WaitOutcome};

/// How many of the longest, and of those that did something most often, are shown.
const SHOWN: usize = 5;

/// What a table gives up on a narrow terminal.
const GIVING: Giving<'static> = Giving {
    spare: &[],
    long: (5, 20),
    last: (4, 12),
};

/// The whole of it.
pub(crate) fn of(chart: &Chart, zone: &TimeZone, here: &str) -> String {
    if chart.locks.is_empty() {
        return "no holds and no waits".to_owned();
    }
    let viewer = Viewer { zone, here };
    let mut text = format!(
        "{} to {} ({}): {}\n",
        time(chart.since_ms, zone),
        viewer.later(chart.since_ms, chart.until_ms),
        zone_name(zone),
        counted(&chart.summary.counts)
    );
    viewer.add_summary(&chart.summary, &mut text);
    for row in &chart.locks {
        let _ = write!(text, "\n{}\n", row.name);
        viewer.add_row(row, &mut text);
    }
    text.truncate(text.trim_end().len());
    text
}

/// The counts in a line.
pub(super) fn counted(counts: &Counts) -> String {
    let several = |count: usize, noun: &str| match count {
        0 => None,
        1 => Some(format!("1 {noun}")),
        many => Some(format!("{many} {noun}s")),
    };
    let times = |count: usize, what: &str| (count > 0).then(|| format!("{count} {what}"));
    let waited =
        (counts.waited_ms > 0).then(|| format!(" ({} in all)", short_age(counts.waited_ms)));
    let waits = several(counts.waits, "wait").map(|waits| waits + &waited.unwrap_or_default());
    [
        several(counts.locks, "lock"),
        several(counts.holds, "hold"),
        waits,
        times(counts.refused, "refused"),
        times(counts.skipped, "skipped"),
        times(counts.superseded, "superseded"),
        times(counts.left, "ended without release"),
        times(counts.taken_over, "taken over"),
        times(counts.lost, "lost"),
        times(counts.open, "without an end"),
    ]
    .into_iter()
    .flatten()
    .collect::<Vec<_>>()
    .join(", ")
}

/// The sums, each in a section with its lines.
/// Each line has the number that it stands there for, and the rest of it.
pub(super) fn sections(
    summary: &Summary,
    at: impl Fn(u64) -> String,
) -> [(&'static str, Vec<(String, String)>); 4] {
    let others = |blocked_ms: u64| match blocked_ms {
        0 => String::new(),
        ms => format!("; others waited {}", short_age(ms)),
    };
    let waits = summary.longest_waits.iter().map(|wait| {
        let behind = wait.behind.as_ref();
        let behind = behind.map_or_else(String::new, |behind| format!(" behind {behind}"));
        let line = format!(
            "{} for {}{behind}, from {}, {}",
            wait.who,
            wait.lock,
            at(wait.since_ms),
            word(wait.outcome)
        );
        (short_age(wait.waited_ms), line)
    });
    let holds = summary.longest_holds.iter().map(|hold| {
        let since = hold
            .since_ms
            .map_or_else(|| "an unknown time".to_owned(), &at);
        let line = format!(
            "{} had {} from {since}, {}{}",
            hold.who,
            hold.lock,
            word(hold.outcome),
            others(hold.blocked_ms)
        );
        (hold.held_ms.map_or_else(|| "-".to_owned(), short_age), line)
    });
    let blockers = summary.blocked_most.iter().map(|blocker| {
        let holds = if blocker.holds == 1 { "hold" } else { "holds" };
        let line = format!(
            "{} by {} {holds}, most of it of {}",
            blocker.who, blocker.holds, blocker.lock
        );
        (short_age(blocker.blocked_ms), line)
    });
    let refusals = summary.refusals.iter().map(|of_caller| {
        let counts = [
            (of_caller.refused, "refused"),
            (of_caller.skipped, "skipped"),
        ];
        let counts = counts.into_iter().filter(|(count, _)| *count > 0);
        let counts: Vec<_> = counts
            .map(|(count, what)| format!("{count} {what}"))
            .collect();
        let line = format!("{}, most often {}", of_caller.who, of_caller.lock);
        (counts.join(", "), line)
    });
    [
        ("Longest waits", waits.collect()),
        ("Longest holds", holds.collect()),
        ("Blocked others most", blockers.collect()),
        ("Refused most", refusals.collect()),
    ]
}

/// Where and when the reader is.
struct Viewer<'a> {
    zone: &'a TimeZone,
    here: &'a str,
}

impl Viewer<'_> {
    /// A time behind another one; of the same day without that.
    fn later(&self, first: u64, second: u64) -> String {
        let (first, second) = (time(first, self.zone), time(second, self.zone));
        match (first.split_once(' '), second.split_once(' ')) {
            (Some((day, _)), Some((same, time))) if day == same => time.to_owned(),
            _ => second,
        }
    }

    fn add_summary(&self, summary: &Summary, text: &mut String) {
        for (title, lines) in sections(summary, |at| time(at, self.zone)) {
            if lines.is_empty() {
                continue;
            }
            let _ = write!(text, "\n{title}\n");
            for (number, line) in lines.iter().take(SHOWN) {
                let _ = writeln!(text, "  {number}  {line}");
            }
        }
    }

    fn add_row(&self, row: &LockRow, text: &mut String) {
        let header = ["FROM", "TO", "WHAT", "HOW LONG", "WHO", "HOW"].map(Into::into);
        let mut cells: Vec<(u64, Cells<6>)> = Vec::with_capacity(row.bars());
        // Of one instant: what happened, who waited, who had the lock then.
        cells.extend(row.incidents.iter().map(|incident| self.incident(incident)));
        cells.extend(row.waits.iter().map(|bar| self.wait(bar)));
        cells.extend(row.holds.iter().map(|bar| self.hold(bar)));
        cells.sort_by_key(|(at, _)| *at);
        let room = room_on_stdout().map(|room| room.saturating_sub(2));
        let rows = std::iter::once(&header).chain(cells.iter().map(|(_, cells)| cells));
        let columns = Columns::of(rows.clone(), room, GIVING);
        for cells in rows {
            text.push_str("  ");
            columns.lay(cells, |_, _| None, text);
            text.push('\n');
        }
    }

    fn hold(&self, bar: &HoldBar) -> (u64, Cells<6>) {
        let hold = &bar.hold;
        let since = hold.since_ms();
        let from = since.map_or_else(|| "before".to_owned(), |since| time(since, self.zone));
        let until = hold
            .until_ms
            .map_or_else(String::new, |until| self.later(since.unwrap_or(0), until));
        let held = match (hold.outcome, hold.held_ms()) {
            (HoldOutcome::Open, _) | (_, None) => "-".to_owned(),
            (_, Some(held)) => short_age(held),
        };
        let slot = hold.slot.map(|slot| format!("slot {slot}"));
        let blocked =
            (bar.blocked_ms > 0).then(|| format!("others waited {}", short_age(bar.blocked_ms)));
        let how = [
            Some(word(hold.outcome.as_str())),
            hold.why.clone().or_else(|| hold.command.clone()),
            hold.token.map(|token| format!("token {token}")),
            slot.or_else(|| hold.mode.clone()),
            blocked,
        ];
        let cells = [
            from,
            until,
            "held".to_owned(),
            held,
            self.who(&hold.by),
            joined(how),
        ];
        (since.or(hold.until_ms).unwrap_or(0), cleaned(cells))
    }

    fn wait(&self, bar: &WaitBar) -> (u64, Cells<6>) {
        let wait = &bar.wait;
        let (what, code) = match &wait.outcome {
            WaitOutcome::Granted => ("waited", None),
            WaitOutcome::Refused(code) => ("refused", Some(code.clone())),
            WaitOutcome::Skipped => ("skipped", None),
            WaitOutcome::Superseded => ("superseded", None),
        };
        let waited = wait.waited_ms();
        let until = match waited {
            0 => String::new(),
            _ => self.later(wait.since_ms, wait.until_ms),
        };
        let behind = wait.behind.as_ref();
        let behind = behind.map(|behind| match wait.outcome {
            WaitOutcome::Superseded => format!("by {}", self.who(behind)),
            _ => format!("behind {}", self.who(behind)),
        });
        let ahead = wait.ahead.filter(|ahead| *ahead > 0);
        let ahead = ahead.map(|ahead| format!("{ahead} more before it"));
        let cells = [
            time(wait.since_ms, self.zone),
            until,
            what.to_owned(),
            short_age(waited),
            self.who(&wait.by),
            joined([code, behind, ahead, wait.why.clone()]),
        ];
        (wait.since_ms, cleaned(cells))
    }

    fn incident(&self, incident: &Incident) -> (u64, Cells<6>) {
        let whom: Vec<_> = incident.whom.iter().map(|whom| self.who(whom)).collect();
        let whom = (!whom.is_empty()).then(|| {
            let of = match incident.event {
                EventName::LockSuperseded => "for",
                EventName::LockCancelled => "asked",
                EventName::LockStolen if incident.is_unforced_takeover() => "after",
                _ => "from",
            };
            format!("{of} {}", whom.join(", "))
        });
        let says_more = !incident.reason.is_empty() && !incident.is_unforced_takeover();
        let reason = says_more.then(|| incident.reason.clone());
        let cells = [
            time(incident.at_ms, self.zone),
            String::new(),
            happened(incident).to_owned(),
            "-".to_owned(),
            self.who(&incident.by),
            joined([whom, reason]),
        ];
        (incident.at_ms, cleaned(cells))
    }

    fn who(&self, by: &Participant) -> String {
        with_process(who(by), by.pid, &by.host, self.here)
    }
}

/// What an incident is called.
pub(super) fn happened(incident: &Incident) -> &'static str {
    match incident.event {
        EventName::LockStolen if incident.is_unforced_takeover() => "came after",
        EventName::LockAcquired => "acquired",
        EventName::LockStolen => "took over",
        EventName::LockReleased => "released",
        EventName::LockReleaseFailed => "release failed",
        EventName::HeartbeatFailed => "heartbeat failed",
        EventName::OrphanEnded => "ended an orphan",
        EventName::LockSkipped => "skipped",
        EventName::LockRefused => "refused",
        EventName::LockLost => "lost it",
        EventName::LockSuperseded => "gave it up",
        EventName::LockCancelled => "asked to stop",
    }
}

fn joined(parts: impl IntoIterator<Item = Option<String>>) -> String {
    parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

fn cleaned(cells: [String; 6]) -> Cells<6> {
    cells.map(|cell| clean(cell.trim_end()).into_owned().into())
}
