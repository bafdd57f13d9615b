//! Many real processes want one lock of a published format, and afterwards one has it: over stale
//! records of other programs, and with commands that a witness watches which knows nothing of the
//! lock, while supervisors are killed.
//!
//! 100 rounds of 8 contenders for each format, and 8 contenders with some rounds each under
//! supervision; `TENURE_CONTENTION=long` makes it more. `TENURE_SEED` repeats the random choices.
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

use crate::support_crash::witness::{self, Log};
use crate::support_crash::{
    Answer, Fault, Process, Random, Site, Started, line, seed, was_killed, word,
};
use crate::support_published::{ALL, Format, plant, seen};
use rustix::process::{Pid, Signal, kill_process_group};
use std::sync::Mutex;
use std::time::{Duration, Instant};
use tenure_engine::clock::instant;

/// How many contend.
const CONTENDERS: usize = 8;

/// Nothing in here takes longer.
const STUCK: Duration = Duration::from_secs(60);

/// Works for a moment under the witness: `WITNESS LOG SECONDS`.
const WORK: &str = concat!(
    crate::enter!(),
    r#"echo "$TENURE_TOKEN" >>"$1"; echo "$TENURE_TOKEN $PPID $$"; sleep "$2"; :"#
);

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
        // These live by a process; the test's own is there for all of them.
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

/// One round over a record that is stale.
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
    let rounds = if is_long() { 1_000 } else { 100 };
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
        tenure_engine::clock::since(began).as_secs_f64()
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

// --- Supervised --------------------------------------------------------------------------------

/// How a scenario under supervision goes.
#[derive(Debug, Clone, Copy)]
struct Supervised {
    format: Format,
    more: &'static [&'static str],
    rounds: u64,
    /// One in so many rounds ends by SIGKILL; 0 is none.
    kills_one_in: u64,
    /// Whether the command may outlive its supervisor: where a dead one's lock is not protected,
    /// it would be at work beside the next by the contract itself.
    command_may_survive: bool,
    /// How soon the next has to be at work after a death.
    recovery: Duration,
}

/// What happened.
#[derive(Debug, Default)]
struct Tally {
    starts: Mutex<Vec<Instant>>,
    deaths: Mutex<Vec<Instant>>,
    waiters: Mutex<u64>,
}

fn kill_group_of(command: u32) {
    let group = i32::try_from(command).ok().and_then(Pid::from_raw);
    let _ = kill_process_group(group.expect("a PID"), Signal::KILL);
}

impl Supervised {
    fn work(&self, site: &Site, random: &mut Random, tally: &Tally) -> Result<(), Fault> {
        let (witness, log) = (site.witness(), site.path("log"));
        let seconds = format!("0.00{}", random.between(1, 10));
        let command = [
            "--",
            "bash",
            "-c",
            WORK,
            word(&witness),
            word(&log),
            &seconds,
        ];
        let more = [&["--wait", "30s"][..], self.more, &command].concat();
        let mut process = self.format.start(site, "run", &more);
        let kills = self.kills_one_in > 0 && random.one_in(self.kills_one_in);
        if kills && random.one_in(3) {
            // On its way, in the queue, or wherever it is by now: only if nothing of it works yet.
            if process.is_silent_for(Duration::from_millis(random.between(1, 20))) {
                process.kill(Signal::KILL);
                *tally.waiters.lock().expect("no panic") += 1;
                if let Some(said) = process.line()? {
                    // It had begun after all.
                    let started = Started::of(Some(said))?;
                    kill_group_of(started.command);
                    tally.deaths.lock().expect("no panic").push(instant());
                }
                process.wait()?;
                return Ok(());
            }
        }
        let mut output = process.take_output().ok_or("no output")?;
        let said = line(&mut output, STUCK)?;
        if said.is_none() {
            let answer = process.answer()?;
            return Err(format!("it did not get to work: {answer}"));
        }
        let started = Started::of(said)?;
        tally.starts.lock().expect("no panic").push(instant());
        if kills {
            std::thread::sleep(Duration::from_micros(random.between(0, 3_000)));
            process.kill(Signal::KILL);
            if !self.command_may_survive || random.one_in(2) {
                kill_group_of(started.command);
                tally.deaths.lock().expect("no panic").push(instant());
            }
            // It may have ended just before.
            process.wait()?;
            // The end of the command, if it was left behind.
            while line(&mut output, STUCK)?.is_some() {}
            return Ok(());
        }
        let answer = process.answer()?;
        crate::ensure!(
            answer.is(0) && !was_killed(answer.status),
            "a run that was not killed went wrong: {answer}"
        );
        Ok(())
    }

    fn run(&self, seed: u64) {
        if !self.format.is_served() {
            return;
        }
        let began = instant();
        let site = Site::new();
        self.format.prepare(&site);
        let (site, tally, faults) = (&site, Tally::default(), Mutex::new(Vec::new()));
        std::thread::scope(|scope| {
            for number in 0..CONTENDERS {
                let (tally, faults) = (&tally, &faults);
                scope.spawn(move || {
                    let number = u64::try_from(number).expect("a small number");
                    let mut random = Random::new(seed.wrapping_mul(31).wrapping_add(number));
                    for round in 0..self.rounds {
                        if let Err(fault) = self.work(site, &mut random, tally) {
                            let fault = format!("{number}, round {round}: {fault}");
                            faults.lock().expect("no panic").push(fault);
                        }
                    }
                });
            }
        });
        let log = Log::read(&site.path("log"));
        let mut starts = tally.starts.into_inner().expect("no panic");
        starts.sort();
        let mut recoveries: Vec<Duration> = tally
            .deaths
            .into_inner()
            .expect("no panic")
            .into_iter()
            .filter_map(|death| starts.iter().find(|at| **at > death).map(|at| *at - death))
            .collect();
        recoveries.sort();
        println!(
            "{:?} supervised: {} worked, {} deaths at work, {} waiters killed, {} overlaps, \
             recovery median {:?} longest {:?}, {:.1} s",
            self.format,
            log.tokens.len(),
            recoveries.len(),
            tally.waiters.into_inner().expect("no panic"),
            log.overlaps,
            recoveries.get(recoveries.len() / 2),
            recoveries.last(),
            tenure_engine::clock::since(began).as_secs_f64(),
        );
        let mut faults = faults.into_inner().expect("no panic");
        faults.truncate(5);
        assert!(
            faults.is_empty(),
            "{:?}:\n{}",
            self.format,
            faults.join("\n")
        );
        log.assert_in_turn(&format!("{:?}", self.format));
        assert!(
            recoveries
                .last()
                .is_none_or(|longest| *longest < self.recovery),
            "{:?}: recovery took {recoveries:?}",
            self.format
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

    #[test]
    fn supervised_sprints_and_resumes_never_overlap() {
        witness::need();
        let seed = seed();
        println!("TENURE_SEED={seed}");
        let resume = Supervised {
            format: Format::Resume,
            more: &[],
            rounds: if is_long() { 150 } else { 12 },
            kills_one_in: 4,
            command_may_survive: true,
            recovery: Duration::from_millis(1_500),
        };
        resume.run(seed);
        let sprint = Supervised {
            format: Format::Sprint,
            // Only force takes what a dead holder left, and a caller that forces does not wait.
            kills_one_in: 0,
            ..resume
        };
        sprint.run(seed);
    }

    #[test]
    fn supervised_sessions_and_fleet_intents_never_overlap() {
        witness::need();
        let seed = seed();
        println!("TENURE_SEED={seed}");
        let session = Supervised {
            format: Format::Session,
            more: &["--stale-after", "2s"],
            rounds: if is_long() { 50 } else { 5 },
            kills_one_in: 6,
            command_may_survive: false,
            recovery: Duration::from_secs(4),
        };
        let fleet = Supervised {
            format: Format::Fleet,
            more: &["--ttl", "3s", "--force-lock"],
            recovery: Duration::from_millis(5_500),
            ..session
        };
        // They sleep most of the time.
        std::thread::scope(|scope| {
            scope.spawn(move || session.run(seed));
            scope.spawn(move || fleet.run(seed));
        });
    }
}
