//! The timeline as a picture for a report: readable without a script, on a light and on a dark page.
//!
//! A picture has a bound of bars and of lanes. A sentence at its end says what was left out.

use super::super::audit::{short_age, time, zone_name};
use super::super::width::width;
use super::text::{counted, happened, sections};
use super::{Chart, HoldBar, LockRow, WaitBar, clean, who, word};
use jiff::Timestamp;
use jiff::tz::TimeZone;
use std::collections::BTreeSet;
use std::fmt::Write as _;
use tenure_engine::audit::{EventName, HoldOutcome, Incident, WaitOutcome};

/// How many bars are drawn at most. A browser shows as many at once, and a report is still a few megabytes.
const BARS_MAX: usize = 5_000;

/// How many lanes of holds and of waits a row has at most.
const HOLD_LANES_MAX: usize = 32;
const WAIT_LANES_MAX: usize = 48;

/// How many lines of each sum are shown.
const SHOWN: usize = 3;

const WIDTH: f64 = 1200.0;
const LEFT: f64 = 16.0;
const RIGHT: f64 = 1184.0;
const LINE: f64 = 18.0;
const HOLD_LANE: f64 = 16.0;
const WAIT_LANE: f64 = 6.0;

/// How many characters of a line are drawn.
const CHARS_MAX: usize = 160;

const DAY_MS: u64 = 86_400_000;

/// Round distances between two times, in milliseconds.
const STEPS_MS: [u64; 18] = [
    1_000,
    2_000,
    5_000,
    10_000,
    30_000,
    60_000,
    120_000,
    300_000,
    600_000,
    1_800_000,
    3_600_000,
    7_200_000,
    10_800_000,
    21_600_000,
    43_200_000,
    DAY_MS,
    2 * DAY_MS,
    7 * DAY_MS,
];

const STYLE: &str = "\
text{font:13px system-ui,sans-serif;fill:#1c2128}.soft{fill:#57606a}.head{font-weight:600}.in{font-size:11px;fill:#fff}\
.back{fill:#fff}.line{fill:#d8dee4}.mark{fill:#b62324}.released{fill:#4078c0}.open{fill:#1a7f37}.failed{fill:#bc6c00}\
.forced,.taken_over,.lost{fill:#b62324}.superseded{fill:#7d3fb2}.unknown,.skipped,.left{fill:#8c959f}.granted{fill:#e3b341}.refused{fill:#d1462f}\
@media(prefers-color-scheme:dark){text{fill:#e6edf3}.soft{fill:#9aa4af}.back{fill:#0d1117}.line{fill:#30363d}.mark{fill:#ff7b72}\
.released{fill:#316dca}.open{fill:#238636}.failed{fill:#b35900}.forced,.taken_over,.lost{fill:#d73a35}.superseded{fill:#8957e5}\
.granted{fill:#c69026}.refused{fill:#e5534b}.in{fill:#fff}}";

/// The whole picture.
pub(crate) fn of(chart: &Chart, zone: &TimeZone) -> String {
    let mut drawing = Drawing {
        since_ms: chart.axis_ms.0,
        until_ms: chart.axis_ms.1.max(chart.axis_ms.0 + 1),
        zone,
        y: 0.0,
        bars: 0,
        locks_left: 0,
        body: String::new(),
    };
    drawing.head(chart);
    let top = drawing.y;
    drawing.y += LINE + 4.0;
    for row in &chart.locks {
        drawing.row(row);
    }
    drawing.axis(top);
    drawing.foot(chart);
    let height = drawing.y + 8.0;
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height:.0}\" width=\"{WIDTH}\" height=\"{height:.0}\" role=\"img\">\
         <title>tenure timeline</title><style>{STYLE}</style><rect class=\"back\" width=\"100%\" height=\"100%\"/>{}</svg>",
        drawing.body
    )
}

struct Drawing<'a> {
    since_ms: u64,
    until_ms: u64,
    zone: &'a TimeZone,
    /// Where the next thing is drawn.
    y: f64,
    bars: usize,
    /// Locks without a bar.
    locks_left: usize,
    body: String,
}

/// A text that may stand anywhere in the picture.
fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in clean(text).chars() {
        match c {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            // Characters that XML has no place for.
            '\u{fffe}' | '\u{ffff}' => safe.push('\u{fffd}'),
            c => safe.push(c),
        }
    }
    safe
}

/// As much of a text as fits.
fn cut(text: &str, chars: usize) -> String {
    if text.chars().count() <= chars {
        return text.to_owned();
    }
    let kept: String = text.chars().take(chars.saturating_sub(1)).collect();
    format!("{kept}…")
}

impl Drawing<'_> {
    #[allow(
        clippy::cast_precision_loss,
        reason = "a picture is a thousand pixels wide"
    )]
    fn x(&self, at_ms: u64) -> f64 {
        let at = at_ms.clamp(self.since_ms, self.until_ms) - self.since_ms;
        let part = at as f64 / (self.until_ms - self.since_ms) as f64;
        LEFT + part * (RIGHT - LEFT)
    }

    fn text(&mut self, x: f64, y: f64, class: &str, text: &str) {
        let _ = write!(
            self.body,
            "<text x=\"{x:.1}\" y=\"{y:.1}\" class=\"{class}\">{}</text>",
            escaped(text)
        );
    }

    fn line(&mut self, class: &str, text: &str) {
        self.y += LINE;
        let y = self.y;
        self.text(LEFT, y, class, &cut(text, CHARS_MAX));
    }

    fn head(&mut self, chart: &Chart) {
        self.y = 6.0;
        let (since, until) = (
            time(chart.since_ms, self.zone),
            time(chart.until_ms, self.zone),
        );
        let zone = zone_name(self.zone);
        self.line("head", &format!("{since} to {until} ({zone})"));
        self.line("", &counted(&chart.summary.counts));
        let zone = self.zone;
        for (title, lines) in sections(&chart.summary, |at| time(at, zone)) {
            for (at, (number, line)) in lines.iter().take(SHOWN).enumerate() {
                if at == 0 {
                    self.y += 4.0;
                    self.line("soft head", title);
                }
                self.line("", &format!("{number}: {line}"));
            }
        }
        self.y += 8.0;
        self.legend(chart);
        self.y += 8.0;
    }

    /// Says what the colours mean that are there.
    fn legend(&mut self, chart: &Chart) {
        let holds = chart.locks.iter().flat_map(|row| &row.holds);
        let holds: BTreeSet<_> = holds.map(|bar| bar.hold.outcome.as_str()).collect();
        let waits = chart.locks.iter().flat_map(|row| &row.waits);
        let waits: BTreeSet<_> = waits.map(|bar| bar.wait.outcome.as_str()).collect();
        self.y += LINE;
        let (mut x, y) = (LEFT, self.y);
        for (title, height, outcomes) in [("Holds", 12.0, holds), ("Waits", 5.0, waits)] {
            if outcomes.is_empty() {
                continue;
            }
            self.text(x, y, "soft head", title);
            x += 50.0;
            for outcome in outcomes {
                let top = y - 4.0 - height / 2.0;
                let _ = write!(
                    self.body,
                    "<rect class=\"{outcome}\" x=\"{x:.1}\" y=\"{top:.1}\" width=\"14\" height=\"{height}\"/>"
                );
                let name = word(outcome);
                self.text(x + 19.0, y, "", &name);
                x += 40.0 + pixels(&name);
            }
        }
    }

    fn row(&mut self, row: &LockRow) {
        if self.bars >= BARS_MAX {
            self.locks_left += 1;
            return;
        }
        self.y += LINE;
        let y = self.y;
        self.text(LEFT, y, "head", &cut(&row.name, CHARS_MAX));
        let top = self.y + 6.0;
        let of_waits = top + lanes(row.hold_lanes.min(HOLD_LANES_MAX), HOLD_LANE);
        let bottom = of_waits + lanes(row.wait_lanes.min(WAIT_LANES_MAX), WAIT_LANE);
        for bar in row.holds.iter().filter(|bar| bar.lane < HOLD_LANES_MAX) {
            self.hold(bar, &row.name, top + lanes(bar.lane, HOLD_LANE));
        }
        for bar in row.waits.iter().filter(|bar| bar.lane < WAIT_LANES_MAX) {
            self.wait(bar, &row.name, of_waits + lanes(bar.lane, WAIT_LANE));
        }
        for incident in &row.incidents {
            self.incident(incident, &row.name, top, bottom);
        }
        self.y = bottom + 6.0;
        let y = self.y;
        self.rule(LEFT, y, RIGHT - LEFT, 1.0);
    }

    fn rule(&mut self, x: f64, y: f64, width: f64, height: f64) {
        let _ = write!(
            self.body,
            "<rect class=\"line\" x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\"/>"
        );
    }

    /// A bar with what a browser tells of it where the pointer stays.
    fn bar(
        &mut self,
        class: &str,
        (since_ms, until_ms): (u64, u64),
        (y, height): (f64, f64),
        about: &str,
    ) {
        if self.bars >= BARS_MAX {
            return;
        }
        self.bars += 1;
        let x = self.x(since_ms);
        let width = (self.x(until_ms) - x).max(1.5);
        let _ = write!(
            self.body,
            "<rect class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height}\"><title>{}</title></rect>",
            escaped(about)
        );
    }

    fn hold(&mut self, bar: &HoldBar, lock: &str, y: f64) {
        let hold = &bar.hold;
        let since = hold.since_ms().unwrap_or(self.since_ms);
        let until = hold.until_ms.unwrap_or(self.until_ms);
        let (name, outcome) = (who(&hold.by), hold.outcome.as_str());
        let ended = match hold.outcome {
            HoldOutcome::Open => word(outcome),
            _ => format!("{} {}", word(outcome), time(until, self.zone)),
        };
        let about = format!("{name} had {lock} from {}, {ended}", time(since, self.zone));
        self.bar(outcome, (since, until), (y, HOLD_LANE - 2.0), &about);
        let (left, right) = (self.x(since), self.x(until));
        let label = match hold.outcome {
            HoldOutcome::Released | HoldOutcome::Open => name,
            _ => format!("{name}, {}", word(outcome)),
        };
        if pixels(&label) <= right - left - 8.0 {
            self.text(left + 4.0, y + 11.0, "in", &label);
        }
    }

    fn wait(&mut self, bar: &WaitBar, lock: &str, y: f64) {
        let wait = &bar.wait;
        let outcome = wait.outcome.as_str();
        let behind = wait.behind.as_ref().map(who);
        let behind = behind.map_or_else(String::new, |behind| format!(" behind {behind}"));
        let code = match &wait.outcome {
            WaitOutcome::Refused(code) => format!(" ({code})"),
            WaitOutcome::Granted | WaitOutcome::Skipped | WaitOutcome::Superseded => String::new(),
        };
        let about = format!(
            "{} waited {} for {lock}{behind} from {}, {outcome}{code}",
            who(&wait.by),
            short_age(wait.waited_ms()),
            time(wait.since_ms, self.zone)
        );
        let times = (wait.since_ms, wait.until_ms);
        self.bar(outcome, times, (y, WAIT_LANE - 1.0), &about);
    }

    fn incident(&mut self, incident: &Incident, lock: &str, top: f64, bottom: f64) {
        let whom: Vec<_> = incident.whom.iter().map(who).collect();
        let about = format!(
            "{} {}: {} {} {}",
            time(incident.at_ms, self.zone),
            lock,
            who(&incident.by),
            happened(incident),
            whom.join(", ")
        );
        let class = match incident.event {
            EventName::LockSuperseded => "superseded",
            EventName::LockStolen if incident.is_unforced_takeover() => "left",
            _ => "mark",
        };
        let times = (incident.at_ms, incident.at_ms);
        self.bar(
            class,
            times,
            (top - 3.0, bottom - top + 3.0),
            about.trim_end(),
        );
    }

    /// The times above the rows, and a line through the rows for each.
    fn axis(&mut self, top: f64) {
        let bottom = self.y;
        let mut lines = Drawing {
            body: String::new(),
            zone: self.zone,
            ..*self
        };
        for (at_ms, label) in self.ticks() {
            let x = self.x(at_ms);
            lines.rule(x, top + LINE, 1.0, bottom - top - LINE);
            lines.text(x + 3.0, top + LINE - 4.0, "soft", &label);
        }
        // The lines lie under the bars.
        self.body.insert_str(0, &lines.body);
    }

    /// Round instants of the viewer's clock, up to nine of them.
    fn ticks(&self) -> Vec<(u64, String)> {
        let span = self.until_ms - self.since_ms;
        let step = STEPS_MS.into_iter().find(|step| span / step <= 8);
        let step = step.unwrap_or_else(|| (span / 8 / DAY_MS + 1) * DAY_MS);
        let at = i64::try_from(self.since_ms).ok();
        let at = at.and_then(|at| Timestamp::from_millisecond(at).ok());
        let offset_ms = at.map_or(0, |at| i64::from(self.zone.to_offset(at).seconds()) * 1_000);
        let first = self
            .since_ms
            .saturating_add_signed(offset_ms)
            .div_ceil(step)
            * step;
        let first = first.saturating_add_signed(-offset_ms);
        let mut day = String::new();
        let instants = (0..).map(|index| first + index * step);
        let instants = instants.take_while(|at| *at < self.until_ms);
        let label = |at_ms| {
            let shown = time(at_ms, self.zone);
            let (of_day, clock) = shown.split_once(' ').unwrap_or((&shown, ""));
            let clock = if step < 60_000 {
                clock
            } else {
                clock.get(..5).unwrap_or(clock)
            };
            if of_day == day {
                return (at_ms, clock.to_owned());
            }
            of_day.clone_into(&mut day);
            (at_ms, format!("{of_day} {clock}"))
        };
        instants.map(label).collect()
    }

    fn foot(&mut self, chart: &Chart) {
        let left = chart.bars().saturating_sub(self.bars);
        if left == 0 {
            return;
        }
        let locks = match self.locks_left {
            0 => String::new(),
            1 => "1 lock and ".to_owned(),
            many => format!("{many} locks and "),
        };
        self.y += 4.0;
        self.line(
            "soft",
            &format!(
                "{locks}{left} of {} bars have no room here; --since, --until or the name of a lock chooses",
                chart.bars()
            ),
        );
    }
}

/// How high so many lanes are.
#[allow(clippy::cast_precision_loss, reason = "a row has a few dozen lanes")]
fn lanes(count: usize, height: f64) -> f64 {
    count as f64 * height
}

/// How wide a label is: a character takes some seven pixels.
#[allow(clippy::cast_precision_loss, reason = "a label is short")]
fn pixels(label: &str) -> f64 {
    width(label) as f64 * 7.0
}
