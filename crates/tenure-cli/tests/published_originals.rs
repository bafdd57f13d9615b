//! The programs that the four published formats come from contend with ours on one directory. They
//! are small scripts in `originals/`, written from what is known of their algorithms.
//!
//! Where an original creates its record atomically, the two exclude each other: one of all wins.
//! Where the original looks and then overwrites, no other program can keep it out. Then tenure has to notice
//! that it has lost, has to end its work, and must not touch what the other has put there.
//!
//! Unix only: it works with shells, signals, links and rights. `windows.rs` has what Windows has.
#![cfg(unix)]
#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test says what it expects by failing, and its figures are for reading"
)]
#![allow(
    clippy::disallowed_methods,
    reason = "the other programs that the test plays know nothing of the store and its clock"
)]

mod support_crash;
mod support_published;

use crate::support_crash::{Process, Site, eventually, need, word};
use crate::support_published::{Format, dead_pid, plant, seen};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use tenure_os::clock::instant;

/// How soon a run has to end whose record was written over. It is told by the kernel.
const AT_ONCE: Duration = Duration::from_secs(1);

fn script(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/originals")
        .join(name)
}

/// An original, to be started.
fn original(name: &str, words: &[&str]) -> Process {
    let program = if Path::new(name).extension().is_some_and(|end| end == "py") {
        "python3"
    } else {
        "sh"
    };
    let mut command = Command::new(program);
    command.arg(script(name)).args(words);
    Process::start_with_input(command)
}

fn rounds() -> usize {
    if std::env::var("TENURE_CONTENTION").as_deref() == Ok("long") {
        500
    } else {
        20
    }
}

/// The owner of ours.
fn owner(format: Format) -> String {
    match format {
        Format::Sprint | Format::Resume => std::process::id().to_string(),
        Format::Session | Format::Fleet => "none".to_owned(),
    }
}

fn acquire(format: Format, site: &Site, id: &str) -> Process {
    let owner = owner(format);
    let own = ["--owner", &owner, "--request-id", id, "--output", "json"];
    format.start(site, "acquire", &own)
}

/// Starts three originals and three of ours. When the originals begin differs from round to round.
fn together(
    round: usize,
    theirs: impl Fn(&str) -> Process,
    ours: impl Fn(&str) -> Process,
) -> Vec<(bool, Process, String)> {
    let mut callers = Vec::new();
    for number in 0..3 {
        let id = format!("theirs-{round}-{number}");
        callers.push((false, theirs(&id), id));
    }
    for (_, process, _) in &mut callers {
        let said = process.line().expect("a line");
        assert_eq!(said.as_deref(), Some("ready"), "an original");
    }
    for number in 0..4 {
        if number == round % 4 {
            let pause = u64::try_from(round / 4 % 8).unwrap_or(0) * 400;
            std::thread::sleep(Duration::from_micros(pause));
            for (_, process, _) in callers.iter_mut().take(3) {
                process.tell("go").expect("a listener");
            }
        }
        if number < 3 {
            let id = format!("ours-{round}-{number}");
            callers.push((true, ours(&id), id));
        }
    }
    callers
}

/// Three originals and three of ours begin together, again and again: a single one gets the empty path.
fn one_of_all(format: Format, theirs: impl Fn(&str, &str) -> Process) {
    if !format.is_served() {
        return;
    }
    let began = instant();
    let site = Site::new();
    format.prepare(&site);
    let record = format.record(&site);
    let (mut ours_won, mut theirs_won) = (0, 0);
    for round in 0..rounds() {
        let callers = together(
            round,
            |id| theirs(word(&record), id),
            |id| acquire(format, &site, id),
        );
        let answers: Vec<_> = callers
            .into_iter()
            .map(|(ours, process, id)| (ours, process.answer().expect("an answer"), id))
            .collect();
        let winners: Vec<_> = answers
            .iter()
            .filter(|(_, answer, _)| answer.is(0))
            .collect();
        assert_eq!(
            winners.len(),
            1,
            "{format:?}, round {round}: one has to win: {answers:?}"
        );
        let (ours, _, id) = winners[0];
        let text = std::fs::read_to_string(&record).expect("a record");
        if *ours {
            ours_won += 1;
            assert!(text.contains(id), "{format:?}: the record of {id}: {text}");
            let released = format.start(&site, "release", &["--request-id", id]);
            let released = released.answer().expect("an answer");
            assert!(released.is(0), "{format:?}: {released}");
        } else {
            theirs_won += 1;
            assert!(!text.contains("tenure"), "{format:?}: theirs: {text}");
            std::fs::remove_file(&record).expect("their release");
        }
        for (ours, answer, _) in answers.iter().filter(|(_, answer, _)| !answer.is(0)) {
            assert!(
                answer.is(if *ours { 4 } else { 1 }) || (!ours && answer.is(2)),
                "{format:?}, round {round}: a loser's answer: {answer}"
            );
        }
        assert!(!record.exists(), "{format:?}: released");
    }
    println!(
        "{format:?}: {} rounds, ours won {ours_won}, theirs {theirs_won}, {:.1} s",
        rounds(),
        tenure_os::clock::since(began).as_secs_f64()
    );
}

/// What an original does to a path on which ours holds a lock.
struct Overwriting<'a> {
    format: Format,
    /// What stands there first.
    before: Option<String>,
    /// Starts the original, which says `looked` and waits for the gate.
    start: &'a dyn Fn(&str, &str) -> Process,
}

impl Overwriting<'_> {
    fn ours_gives_way(&self) {
        if !self.format.is_served() {
            return;
        }
        let site = Site::new();
        self.format.prepare(&site);
        if let Some(text) = &self.before {
            plant(self.format, &site, text);
        }
        let record = self.format.record(&site);
        let gate = site.path("gate");
        let mut theirs = (self.start)(word(&record), word(&gate));
        theirs.end_input();
        let said = theirs.line().expect("a line");
        assert_eq!(said.as_deref(), Some("ready"), "{:?}", self.format);
        let said = theirs.line().expect("a line");
        assert_eq!(said.as_deref(), Some("looked"), "{:?}", self.format);
        let ended = site.path("ended");
        let script = format!(
            "trap 'echo >{}; kill $!; exit 1' INT TERM; sleep 20 & echo in; wait",
            word(&ended)
        );
        let words = ["--grace", "5s", "--", "sh", "-c", &script];
        let mut ours = self.format.start(&site, "run", &words);
        let said = ours.line().expect("a line");
        assert_eq!(said.as_deref(), Some("in"), "{:?}: ours works", self.format);
        let id = "nobody's";
        // Long enough for the supervisor to be on its watch.
        std::thread::sleep(Duration::from_millis(60));
        let began = instant();
        std::fs::write(&gate, id).expect("a gate");
        let answer = theirs.answer().expect("an answer");
        assert!(answer.is(0), "{:?}: theirs: {answer}", self.format);
        let theirs = seen(&record).expect("their record");
        let answer = ours.answer().expect("an answer");
        let took = tenure_os::clock::since(began);
        assert!(
            answer.is(80),
            "{:?}: ours has to say that the lock is lost: {answer}",
            self.format
        );
        assert!(ended.exists(), "{:?}: its command was ended", self.format);
        assert!(took < AT_ONCE, "{:?}: only after {took:?}", self.format);
        assert_eq!(
            Some(theirs),
            seen(&record),
            "{:?}: their record was touched",
            self.format
        );
        let next = acquire(self.format, &site, "ours-2");
        let next = next.answer().expect("an answer");
        assert!(next.is(4), "{:?}: it is theirs: {next}", self.format);
    }
}

/// Three originals that overwrite and three of ours at once: whatever comes of it, at most one of
/// ours believes that it holds, and only if the record is its own.
fn no_false_belief(format: Format, theirs: impl Fn(&str, &str) -> Process) {
    if !format.is_served() {
        return;
    }
    let site = Site::new();
    format.prepare(&site);
    let record = format.record(&site);
    let (mut kept, mut lost, mut theirs_won) = (0, 0, 0);
    for round in 0..rounds() {
        let callers = together(
            round,
            |id| theirs(word(&record), id),
            |id| acquire(format, &site, id),
        );
        let answers: Vec<_> = callers
            .into_iter()
            .map(|(ours, process, id)| (ours, id, process.answer().expect("an answer")))
            .collect();
        theirs_won += answers
            .iter()
            .filter(|(ours, _, answer)| !ours && answer.is(0))
            .count();
        let ours = answers.iter().filter(|(ours, ..)| *ours);
        let ours: Vec<_> = ours.map(|(_, id, answer)| (id, answer)).collect();
        let text = std::fs::read_to_string(&record).expect("another program's record");
        let mut believing = Vec::new();
        for (id, answer) in ours.iter().filter(|(_, answer)| answer.is(0)) {
            let document: serde_json::Value = serde_json::from_str(&answer.out).unwrap_or_default();
            let given = document["data"]["request_id"].as_str().unwrap_or(id);
            let beat = format.start(&site, "heartbeat", &["--request-id", given]);
            let beat = beat.answer().expect("an answer");
            if beat.is(0) {
                believing.push(id);
            } else {
                assert!(beat.is(6) || beat.is(80), "{format:?}: {beat}");
                lost += 1;
            }
        }
        assert!(believing.len() <= 1, "{format:?}: {ours:?}");
        for id in believing {
            kept += 1;
            assert!(
                text.contains(id.as_str()),
                "{format:?}, round {round}: {id} believes that it holds: {text}"
            );
        }
        std::fs::remove_file(&record).expect("a record");
    }
    println!(
        "{format:?}: {} rounds, ours kept it {kept} times and lost it {lost} times, \
         {theirs_won} of theirs said yes",
        rounds()
    );
}

mod contention {
    use super::*;

    fn me() -> String {
        std::process::id().to_string()
    }

    #[test]
    fn with_a_fleet_script_that_links() {
        one_of_all(Format::Fleet, |record, id| {
            original("fleet.sh", &["ln", record, id])
        });
    }

    #[test]
    fn with_a_fleet_script_that_moves_without_replacing() {
        one_of_all(Format::Fleet, |record, id| {
            original("fleet.sh", &["mv", record, id])
        });
    }

    #[test]
    fn with_a_resume_program_that_creates_exclusively() {
        need("python3");
        one_of_all(Format::Resume, |record, _| {
            original("resume.py", &[record, &me()])
        });
    }

    #[test]
    fn with_a_session_program_that_looked_before() {
        need("python3");
        Overwriting {
            format: Format::Session,
            before: None,
            start: &|record, gate| original("session.py", &[record, "theirs-1", gate]),
        }
        .ours_gives_way();
    }

    #[test]
    fn with_a_sprint_step_that_looked_before() {
        Overwriting {
            format: Format::Sprint,
            before: None,
            start: &|record, gate| original("sprint.sh", &[record, "theirs-1", &me(), gate]),
        }
        .ours_gives_way();
    }

    #[test]
    fn with_a_resume_program_that_cleans_what_it_judged_before() {
        need("python3");
        let dead = support_published::Foreign {
            id: String::new(),
            pid: dead_pid(),
            ago: Duration::ZERO,
        };
        Overwriting {
            format: Format::Resume,
            before: Some(Format::Resume.text(&dead)),
            start: &|record, gate| original("resume.py", &[record, &me(), gate]),
        }
        .ours_gives_way();
    }

    #[test]
    fn with_a_fleet_heartbeat_that_creates() {
        if !Format::Fleet.is_served() {
            return;
        }
        let site = Site::new();
        Format::Fleet.prepare(&site);
        let record = Format::Fleet.record(&site);
        let mut ours = Format::Fleet.start(&site, "run", &["--", "sh", "-c", "echo in; sleep 20"]);
        let said = ours.line().expect("a line");
        assert_eq!(said.as_deref(), Some("in"), "ours works");
        let beat = original("fleet_heartbeat.sh", &[word(&record), "theirs-1"]);
        assert!(beat.answer().expect("an answer").is(0), "their heartbeat");
        let theirs = seen(&record);
        let answer = ours.answer().expect("an answer");
        assert!(answer.is(80), "the lock is lost: {answer}");
        assert_eq!(theirs, seen(&record), "their record was touched");
    }

    #[test]
    fn with_session_programs_at_random() {
        need("python3");
        no_false_belief(Format::Session, |record, id| {
            original("session.py", &[record, id])
        });
    }

    #[test]
    fn with_sprint_steps_at_random() {
        no_false_belief(Format::Sprint, |record, id| {
            original("sprint.sh", &[record, id, &me()])
        });
    }

    /// The holder's own renewal puts another file to the path; what happens to that one has to be
    /// seen as soon as what happened to the first.
    #[test]
    fn an_overwriting_after_a_renewal_is_noticed_at_once() {
        let site = Site::new();
        let format = Format::Session;
        format.prepare(&site);
        let record = format.record(&site);
        let words = ["--stale-after", "9s", "--", "sh", "-c", "echo in; sleep 20"];
        let mut ours = format.start(&site, "run", &words);
        let said = ours.line().expect("a line");
        assert_eq!(said.as_deref(), Some("in"), "ours works");
        let first = std::fs::read(&record).expect("a record");
        eventually("a renewal", || {
            std::fs::read(&record).is_ok_and(|now| now != first)
        })
        .expect("a renewal");
        // The loop has to get back to its sleep.
        std::thread::sleep(Duration::from_millis(100));
        let began = instant();
        plant(format, &site, &format.live());
        let theirs = seen(&record);
        let answer = ours.answer().expect("an answer");
        let took = tenure_os::clock::since(began);
        assert!(answer.is(80), "the lock is lost: {answer}");
        assert_eq!(theirs, seen(&record), "their record was touched");
        assert!(took < AT_ONCE, "noticed only after {took:?}");
    }

    /// A holder that renews as often as its ttl asks for is active, and an active lock is never
    /// stolen.
    #[test]
    fn an_intent_that_renews_in_time_is_never_stolen() {
        let format = Format::Fleet;
        if !format.is_served() {
            return;
        }
        let site = Site::new();
        format.prepare(&site);
        let words = ["--ttl", "1s", "--", "sh", "-c", "echo in; sleep 4"];
        let mut ours = format.start(&site, "run", &words);
        let said = ours.line().expect("a line");
        assert_eq!(said.as_deref(), Some("in"), "ours works");
        let began = instant();
        while tenure_os::clock::since(began) < Duration::from_millis(3_500) {
            let thief = ["--owner", "none", "--force-lock", "--request-id", "thief-1"];
            let answer = format.start(&site, "acquire", &thief).answer();
            let answer = answer.expect("an answer");
            assert!(
                answer.is(4),
                "stolen {:?} after the start: {answer}",
                tenure_os::clock::since(began)
            );
            std::thread::sleep(Duration::from_millis(20));
        }
        let answer = ours.answer().expect("an answer");
        assert!(answer.is(0), "{answer}");
    }
}
