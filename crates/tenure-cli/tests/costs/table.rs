//! The table: what it looks like, and what differs from it.

use super::{EVENTS_OFF, INSTRUCTIONS_OFF, INSTRUCTIONS_OFF_ELSEWHERE, ROUND_OFF};
use std::fmt::Write;

const PATH: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../docs/internals/costs.txt"
);

/// The kind of calls that chance decides about.
pub(crate) const EVENTS: &str = "events";

/// The count of instructions.
pub(crate) const INSTRUCTIONS: &str = "instructions";

const BUILD: &str = "Build: ";

const HEAD: &str = "\
What calls cost: instructions, and system calls by kind. The events are read, write, poll and what waits for a
process. Of the library: one round more, by the thread that makes it. crates/tenure-cli/tests/costs says what is counted and how
far a count may differ. `scripts/costs` compares, `scripts/costs --renew` writes this file anew.
";

/// What one call costs.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Row {
    pub(crate) call: String,
    /// A round of the library.
    pub(crate) is_round: bool,
    /// Kind and number, in the order of their kinds.
    pub(crate) counts: Vec<(String, f64)>,
}

/// What all calls cost, and the Rust that built them with what it linked.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Costs {
    pub(crate) build: String,
    pub(crate) rows: Vec<Row>,
}

const ROUND_MARK: &str = "library: ";

pub(crate) fn write(costs: &Costs) -> Result<(), String> {
    let mut text = format!("{HEAD}\n{BUILD}{}\n", costs.build);
    for row in &costs.rows {
        let mark = if row.is_round { ROUND_MARK } else { "" };
        let _ = write!(text, "\n{mark}{}\n", row.call);
        for (kind, count) in &row.counts {
            let count = if row.is_round && kind != INSTRUCTIONS {
                format!("{count:.1}")
            } else {
                format!("{count:.0}")
            };
            let _ = writeln!(text, "  {kind:<13}{count:>9}");
        }
    }
    std::fs::write(PATH, text).map_err(|error| format!("{PATH}: {error}"))
}

pub(crate) fn read() -> Result<Costs, String> {
    let text = std::fs::read_to_string(PATH).map_err(|error| format!("{PATH}: {error}"))?;
    parse(&text).ok_or_else(|| format!("{PATH} is not as `scripts/costs --renew` writes it"))
}

fn parse(text: &str) -> Option<Costs> {
    let mut lines = text.strip_prefix(HEAD)?.lines();
    lines.next()?;
    let build = lines.next()?.strip_prefix(BUILD)?.to_owned();
    let mut rows: Vec<Row> = Vec::new();
    for line in lines.filter(|line| !line.is_empty()) {
        if let Some(count) = line.strip_prefix("  ") {
            let (kind, number) = count.split_once(' ')?;
            let number = number.trim().parse().ok()?;
            rows.last_mut()?.counts.push((kind.to_owned(), number));
        } else {
            let round = line.strip_prefix(ROUND_MARK);
            rows.push(Row {
                call: round.unwrap_or(line).to_owned(),
                is_round: round.is_some(),
                counts: Vec::new(),
            });
        }
    }
    Some(Costs { build, rows })
}

/// What differs by more than it may, a sentence each.
pub(crate) fn differences(table: &Costs, measured: &Costs) -> Vec<String> {
    let mut differences = Vec::new();
    let is_same_build = table.build == measured.build;
    if !is_same_build {
        println!(
            "The table is of {}, this build of {}: instructions are compared within {:.0} %.",
            table.build,
            measured.build,
            INSTRUCTIONS_OFF_ELSEWHERE * 100.0
        );
    }
    for row in &table.rows {
        if !measured.rows.iter().any(|other| other.call == row.call) {
            differences.push(format!("{}: it is not measured any more", row.call));
        }
    }
    for row in &measured.rows {
        let Some(wanted) = table.rows.iter().find(|other| other.call == row.call) else {
            differences.push(format!("{}: it is not in the table", row.call));
            continue;
        };
        let of = |row: &Row, kind: &str| {
            let found = row.counts.iter().find(|(other, _)| other == kind);
            found.map_or(0.0, |(_, count)| *count)
        };
        let mut kinds: Vec<&String> = [wanted, row]
            .iter()
            .flat_map(|row| row.counts.iter().map(|(kind, _)| kind))
            .collect();
        kinds.sort();
        kinds.dedup();
        for kind in kinds {
            let (was, is) = (of(wanted, kind), of(row, kind));
            let off = match kind.as_str() {
                INSTRUCTIONS if !is_same_build => was * INSTRUCTIONS_OFF_ELSEWHERE,
                INSTRUCTIONS => was * INSTRUCTIONS_OFF,
                // Of the library too: how often its watching thread wakes within the rounds is chance.
                EVENTS => EVENTS_OFF,
                _ if row.is_round => ROUND_OFF,
                _ => 0.0,
            };
            if (is - was).abs() > off {
                differences.push(format!(
                    "{}: {kind}: {is} instead of {was} (may differ by {off})",
                    row.call
                ));
            }
        }
    }
    differences
}
