//! The whole decision table, printed so that a person can review it: one block for each profile,
//! one row for each standing, one column for each way of asking (equal columns only once).
//!
//! The snapshot is the review. `SNAPSHOTS=overwrite cargo test -p tenure-core --test
//! decision_table` writes it anew; the difference is what has to be read.
#![allow(missing_docs)]

use snapbox::assert_data_eq;
use std::fmt::Write as _;
use tenure_core::{
    Caller, Death, Decision, Force, Life, Patience, Policy, Reason, StaleReason, Standing,
    UnreadableRule, decide,
};

const STANDINGS: [(&str, Standing); 8] = [
    ("free", Standing::Free),
    ("held, supervised", Standing::Held(Life::Supervised)),
    ("held, orphaned", Standing::Held(Life::Orphaned)),
    ("held, detached", Standing::Held(Life::Detached)),
    ("stale", Standing::Stale(StaleReason::LivenessLockReleased)),
    (
        "stale as unreadable",
        Standing::Stale(StaleReason::Unreadable),
    ),
    ("unreadable", Standing::Unreadable),
    ("unknown", Standing::Unknown),
];

const CALLERS: [(&str, Caller); 2] = [("another", Caller::Other), ("the owner", Caller::Owner)];

const FORCES: [(&str, Force); 3] = [
    ("no force", Force::No),
    ("--force", Force::Asked),
    ("--force --yes", Force::Confirmed),
];

const PATIENCES: [(&str, Patience); 3] = [
    ("default wait", Patience::Default),
    ("never waits", Patience::AtOnce),
    ("queues", Patience::Queue),
];

/// A way of asking.
#[derive(Clone, Copy, PartialEq)]
struct Way {
    caller: usize,
    force: usize,
    patience: usize,
}

/// Ways of asking that are answered alike in every row.
struct Column {
    ways: Vec<Way>,
    cells: Vec<&'static str>,
}

fn cell(decision: Decision) -> &'static str {
    match decision {
        Decision::Grant => "grant",
        Decision::TakeOver => "take over",
        Decision::Override => "OVERRIDE",
        Decision::Wait => "wait",
        Decision::AskToStop => "ask to stop",
        Decision::Yours => "yours",
        Decision::Refuse(Reason::Held) => "refuse: held",
        Decision::Refuse(Reason::StaleNeedsForce) => "refuse: stale",
        Decision::Refuse(Reason::NeedsConfirmation) => "refuse: wants yes",
        Decision::Refuse(Reason::Unreadable) => "refuse: unreadable",
        Decision::Refuse(Reason::Unknown) => "refuse: unknown",
        Decision::Refuse(Reason::QueueFull) => "refuse: queue full",
    }
}

fn columns(policy: &Policy) -> Vec<Column> {
    let mut columns: Vec<Column> = Vec::new();
    for (caller, (_, asks)) in CALLERS.into_iter().enumerate() {
        for (force, (_, insists)) in FORCES.into_iter().enumerate() {
            for (patience, (_, waits)) in PATIENCES.into_iter().enumerate() {
                let way = Way {
                    caller,
                    force,
                    patience,
                };
                let answer = |(_, standing): &(&str, Standing)| {
                    cell(decide(policy, *standing, insists, waits, asks))
                };
                let cells: Vec<&'static str> = STANDINGS.iter().map(answer).collect();
                match columns.iter_mut().find(|column| column.cells == cells) {
                    Some(column) => column.ways.push(way),
                    None => columns.push(Column {
                        ways: vec![way],
                        cells,
                    }),
                }
            }
        }
    }
    columns
}

/// The ways of one column in words, one line for each caller and set of patiences.
fn legend(column: &Column) -> Vec<String> {
    let mut lines: Vec<(usize, String, Vec<&str>)> = Vec::new();
    for caller in 0..CALLERS.len() {
        for (force, (name, _)) in FORCES.iter().enumerate() {
            let asks = |patience| Way {
                caller,
                force,
                patience,
            };
            let patiences: Vec<usize> = (0..PATIENCES.len())
                .filter(|patience| column.ways.contains(&asks(*patience)))
                .collect();
            if patiences.is_empty() {
                continue;
            }
            let patience = if patiences.len() == PATIENCES.len() {
                "any patience".to_owned()
            } else {
                let names: Vec<&str> = patiences.iter().map(|p| PATIENCES[*p].0).collect();
                names.join(" or ")
            };
            match lines.last_mut() {
                Some((last, same, forces)) if *last == caller && *same == patience => {
                    forces.push(name);
                }
                _ => lines.push((caller, patience, vec![name])),
            }
        }
    }
    lines
        .into_iter()
        .map(|(caller, patience, forces)| {
            let forces = if forces.len() == FORCES.len() {
                "with or without force".to_owned()
            } else {
                forces.join(" or ")
            };
            format!("{}, {forces}, {patience}", CALLERS[caller].0)
        })
        .collect()
}

fn block(policy: &Policy) -> String {
    let columns = columns(policy);
    let mut out = format!("== {} ==\n\n", policy.name);
    let letters = || 'A'..='Z';
    for (letter, column) in letters().zip(&columns) {
        for (number, line) in legend(column).into_iter().enumerate() {
            let letter = if number == 0 { letter } else { ' ' };
            let _ = writeln!(out, "{letter}  {line}");
        }
    }
    let widths: Vec<usize> = columns
        .iter()
        .map(|column| {
            column
                .cells
                .iter()
                .map(|cell| cell.len())
                .max()
                .unwrap_or(0)
        })
        .collect();
    let mut row = |name: &str, cells: &mut dyn Iterator<Item = String>| {
        let mut line = format!("{name:<21}");
        for (cell, width) in cells.zip(&widths) {
            let _ = write!(line, " | {cell:<width$}");
        }
        let _ = writeln!(out, "{}", line.trim_end());
    };
    row("", &mut std::iter::empty());
    row("", &mut letters().map(String::from));
    for (index, (name, standing)) in STANDINGS.iter().enumerate() {
        // A profile knows one of the two ways to take an unreadable record.
        let foreign = match policy.unreadable {
            UnreadableRule::Stale => Standing::Unreadable,
            UnreadableRule::RefuseUnlessForced | UnreadableRule::RefuseUntilTtl => {
                Standing::Stale(StaleReason::Unreadable)
            }
        };
        let mark = if *standing == foreign { " *" } else { "" };
        row(
            &format!("{name}{mark}"),
            &mut columns.iter().map(|column| column.cells[index].to_owned()),
        );
    }
    out
}

const HEAD: &str = "\
What `decide` answers: each standing of a lock, asked for in each way. Columns that are equal stand
only once. A row with * does not occur in its profile, which takes unreadable records the other way.
";

#[test]
fn the_table_is_the_one_that_was_reviewed() {
    let blocks: Vec<String> = Policy::ALL.iter().map(block).collect();
    assert_data_eq!(
        format!("{HEAD}\n{}", blocks.join("\n")),
        snapbox::file!["snapshots/decision_table.txt"]
    );
}

/// The table shows one reason for staleness; the others are answered alike.
#[test]
fn every_reason_for_staleness_is_answered_like_the_one_that_is_shown() {
    let shown = Standing::Stale(StaleReason::LivenessLockReleased);
    let reasons = [
        StaleReason::ProcessDead(Death::Gone),
        StaleReason::ProcessDead(Death::Zombie),
        StaleReason::ProcessDead(Death::Replaced),
        StaleReason::ProcessDead(Death::Rebooted),
        StaleReason::ProcessUnknown,
        StaleReason::Silent,
        StaleReason::Aged,
        StaleReason::Unreadable,
    ];
    for policy in Policy::ALL {
        for (_, caller) in CALLERS {
            for (_, force) in FORCES {
                for (_, patience) in PATIENCES {
                    let expected = decide(&policy, shown, force, patience, caller);
                    for reason in reasons {
                        let stale = Standing::Stale(reason);
                        assert_eq!(
                            decide(&policy, stale, force, patience, caller),
                            expected,
                            "{}: {reason:?}, {force:?}, {patience:?}, {caller:?}",
                            policy.name
                        );
                    }
                }
            }
        }
    }
}

/// A reader's shorthand for the whole table, from the invariants of the product.
#[test]
fn what_no_profile_does() {
    for policy in Policy::ALL {
        for (_, caller) in CALLERS {
            for (_, force) in FORCES {
                for (_, patience) in PATIENCES {
                    let answer = |standing| decide(&policy, standing, force, patience, caller);
                    let way = format!("{}: {force:?}, {patience:?}, {caller:?}", policy.name);
                    assert_eq!(
                        answer(Standing::Unknown),
                        Decision::Refuse(Reason::Unknown),
                        "{way}: unknown is never free"
                    );
                    assert_eq!(
                        answer(Standing::Free),
                        Decision::Grant,
                        "{way}: free is free for every caller"
                    );
                    for life in [Life::Supervised, Life::Orphaned, Life::Detached] {
                        let held = answer(Standing::Held(life));
                        assert!(
                            !matches!(held, Decision::Grant | Decision::TakeOver),
                            "{way}: what is held is never given away quietly"
                        );
                        assert!(
                            held != Decision::Override || force != Force::No,
                            "{way}: nothing is overridden without force"
                        );
                        assert!(
                            held != Decision::Wait || patience != Patience::AtOnce,
                            "{way}: a caller that never waits is never queued"
                        );
                        assert!(
                            held != Decision::Override
                                || policy != Policy::NATIVE
                                || life == Life::Detached,
                            "{way}: not even force breaks a run"
                        );
                        assert!(
                            held != Decision::Override
                                || !(policy == Policy::FLEET || policy == Policy::SESSION),
                            "{way}: an active lock is never stolen"
                        );
                    }
                }
            }
        }
    }
}
