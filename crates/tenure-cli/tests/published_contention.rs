//! Many real processes want one lock of a published format at once, over a record of another program, and
//! afterwards one has it or none. Storms of runs that are killed are the torture's (`torture/preset.rs`).
//!
//! 100 rounds of 8 contenders for each format; `TENURE_CONTENTION=long` makes it more.
//!
//! Unix only: it works with shells, signals, links and rights. `windows.rs` has what Windows has.
#![cfg(unix)]
#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test says what it expects by failing, and its figures are for reading"
)]

mod support_crash;
mod support_published;

use crate::support_crash::{Answer, Fault, Process, Site};
use crate::support_published::{ALL, Format, plant, seen};
use tenure_os::clock::instant;

/// How many contend.
const CONTENDERS: usize = 8;

fn is_long() -> bool {
    std::env::var("TENURE_CONTENTION").as_deref() == Ok("long")
}

/// The id that a contender asks with.
fn id_of(round: usize, number: usize) -> String {
    format!("c{number}-r{round}")
}

/// All contenders ask at once.
fn contend(format: Format, site: &Site, round: usize, more: &[&str]) -> Vec<Answer> {
    let owner = match format {
        // Both live by a process; the test's own is there for all of them.
        Format::Sprint | Format::Resume => std::process::id().to_string(),
        Format::Session | Format::Fleet => "none".to_owned(),
    };
    let started: Vec<Process> = (0..CONTENDERS)
        .map(|number| {
            let id = id_of(round, number);
            let own = ["--owner", &owner, "--request-id", &id, "--output", "json"];
            format.start(site, "acquire", &[&own[..], more].concat())
        })
        .collect();
    started
        .into_iter()
        .map(|process| process.answer().expect("an answer"))
        .collect()
}

/// The names under which the winner may be known: the id that it asked with, and the one that it
/// was given.
fn names_of(winner: usize, round: usize, answer: &Answer) -> Vec<String> {
    let document: serde_json::Value = serde_json::from_str(&answer.out).unwrap_or_default();
    let given = document["data"]["request_id"].as_str().map(str::to_owned);
    given.into_iter().chain([id_of(round, winner)]).collect()
}

/// Plays a round over a record that is stale.
fn one_wins(format: Format, site: &Site, round: usize) -> Result<(), Fault> {
    let answers = contend(format, site, round, format.insisting());
    let told = || {
        let told: Vec<String> = answers.iter().map(ToString::to_string).collect();
        told.join("\n  ")
    };
    let winners: Vec<usize> = (0..answers.len()).filter(|i| answers[*i].is(0)).collect();
    let [winner] = winners[..] else {
        return Err(format!("{} winners:\n  {}", winners.len(), told()));
    };
    let names = names_of(winner, round, &answers[winner]);
    for answer in answers.iter().filter(|answer| !answer.is(0)) {
        crate::ensure!(answer.is(4), "a loser does not exit 4: {answer}");
        let says = |name: &String| answer.out.contains(name) || answer.errors.contains(name);
        crate::ensure!(
            names.iter().any(says),
            "a loser does not name the winner {names:?}: {answer}"
        );
    }
    let record = std::fs::read_to_string(format.record(site));
    let record = record.map_err(|error| format!("no record: {error}; {}", told()))?;
    crate::ensure!(
        names.iter().any(|name| record.contains(name)),
        "the record is not the winner's {names:?}: {record}"
    );
    Ok(())
}

fn takeovers(format: Format) {
    if !format.is_served() {
        return;
    }
    let rounds = if is_long() { 1_000 } else { 40 };
    let began = instant();
    let site = Site::new();
    format.prepare(&site);
    let mut faults = Vec::new();
    for round in 0..rounds {
        // Over the record of the last winner: that one has lost its hold.
        plant(format, &site, &format.stale());
        if let Err(fault) = one_wins(format, &site, round) {
            faults.push(format!("round {round}: {fault}"));
        }
    }
    println!(
        "{format:?}: {rounds} rounds of {CONTENDERS}, {} wrong, {:.1} s",
        faults.len(),
        tenure_os::clock::since(began).as_secs_f64()
    );
    faults.truncate(5);
    assert!(faults.is_empty(), "{format:?}:\n{}", faults.join("\n"));
}

/// No contender gets in, and the record stays as it is.
fn nobody_wins(format: Format, text: &str, why: &str) {
    let site = Site::new();
    format.prepare(&site);
    plant(format, &site, text);
    let before = seen(&format.record(&site));
    for round in 0..if is_long() { 100 } else { 6 } {
        for answer in contend(format, &site, round, &[]) {
            assert!(answer.is(4), "{format:?}: {why}: {answer}");
        }
        assert_eq!(
            before,
            seen(&format.record(&site)),
            "{format:?}: {why}: the record was touched"
        );
    }
}

mod contention {
    use super::*;

    #[test]
    fn one_takes_over_a_stale_sprint_by_force() {
        takeovers(Format::Sprint);
    }

    #[test]
    fn one_takes_over_a_dead_resume() {
        takeovers(Format::Resume);
    }

    #[test]
    fn one_takes_over_an_old_session() {
        takeovers(Format::Session);
    }

    #[test]
    fn one_takes_over_a_silent_fleet_lock_by_force() {
        takeovers(Format::Fleet);
    }

    #[test]
    fn without_force_nobody_takes_what_needs_it() {
        for format in [Format::Sprint, Format::Fleet] {
            nobody_wins(format, &format.stale(), "stale, and no caller forces");
        }
    }

    #[test]
    fn nobody_takes_a_live_record_of_another_program() {
        for format in ALL {
            nobody_wins(format, &format.live(), "alive");
        }
    }
}
