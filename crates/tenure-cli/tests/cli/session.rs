//! The session profile beyond `pages/session.txt`: renewals, and records that change while others look at them.
#![allow(
    clippy::disallowed_methods,
    reason = "the dates in its records are of the machine's own clock"
)]

use crate::support::{Answer, Scene, answer, eventually};
use serde_json::{Value, json};
use std::fs;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

struct State {
    scene: Scene,
}

impl State {
    fn new() -> Self {
        Self {
            scene: Scene::new(),
        }
    }

    fn run(&self, words: &[&str]) -> Answer {
        self.scene.run(["--profile", "session"].iter().chain(words))
    }

    fn acquire(&self, issue: &str, run: &str) -> Answer {
        self.run(&["acquire", issue, "--owner", "none", "--request-id", run])
    }

    fn file(&self, issue: &str) -> PathBuf {
        self.scene.locks().join(format!("locks/{issue}.lock"))
    }

    fn text(&self, issue: &str) -> String {
        fs::read_to_string(self.file(issue)).expect("a record")
    }

    fn record(&self, issue: &str) -> Value {
        serde_json::from_str(&self.text(issue)).expect("JSON")
    }

    /// Another program's record, so many seconds old.
    fn plant(&self, issue: &str, run: &str, seconds: i64) -> String {
        let at = jiff::Timestamp::now() - jiff::SignedDuration::from_secs(seconds);
        let text = format!(
            "{{\n  \"issueNumber\": {issue},\n  \"runId\": \"{run}\",\n  \"acquiredAt\": \
             \"{at:.3}\",\n  \"pid\": 999999\n}}\n"
        );
        self.plant_text(issue, &text);
        text
    }

    fn plant_text(&self, issue: &str, text: &str) {
        crate::support::plant(&self.file(issue), text, SystemTime::now());
    }
}

#[test]
fn a_held_liveness_lock_does_not_protect_an_expired_lock() {
    let state = State::new();
    let script = format!(
        "sed -i 's/\"acquiredAt\": .*/\"acquiredAt\": \"2026-01-01T00:00:00.000Z\",/' {f}; \
         env -u TENURE_HELD {t} --profile session --dir {d} acquire 7 --owner none --request-id next; \
         echo $?; sleep 5",
        f = state.file("7").display(),
        t = env!("CARGO_BIN_EXE_tenure"),
        d = state.scene.locks().display()
    );
    let answer = state.run(&["run", "7", "--", "sh", "-c", &script]);
    let answer = answer.expect(80, "the holder learns that it lost the lock");
    assert!(answer.stdout().contains("acquired 7"), "{}", answer.said());
    assert_eq!(
        state.record("7")["runId"],
        "next",
        "the successor's record stays"
    );
}

#[test]
fn a_lock_that_is_being_written_is_waited_out() {
    let state = State::new();
    state.plant_text("9", "");
    let file = state.file("9");
    let writer = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(600));
        let at = jiff::Timestamp::now();
        let text = format!(
            "{{\"issueNumber\": 9, \"runId\": \"slow\", \"acquiredAt\": \"{at}\", \"pid\": 1}}"
        );
        fs::write(file, text).expect("a record");
    });
    let refused = state
        .acquire("9", "new")
        .expect(4, "the slow writer holds it");
    assert!(refused.stderr().contains("run slow"), "{}", refused.said());
    writer.join().expect("a writer");
}

#[test]
fn a_run_renews_and_a_bare_hold_is_renewed_by_heartbeat() {
    let state = State::new();
    let _ = state.acquire("42", "run-1").expect(0, "free");
    let before = state.record("42");
    std::thread::sleep(Duration::from_millis(5));
    let beat = state.run(&["heartbeat", "42", "--request-id", "run-1"]);
    let _ = beat.expect(0, "the owner");
    let after = state.record("42");
    assert!(
        after["acquiredAt"].as_str() > before["acquiredAt"].as_str(),
        "{after}"
    );
    assert_eq!(after["tenure"], before["tenure"], "nothing else changed");
    let view = state.run(&["check", "42", "--output", "json"]).json();
    let holder = &view["error"]["context"]["holder"];
    assert_eq!(
        holder["since"].as_str().map(|at| &at[..19]),
        before["acquiredAt"].as_str().map(|at| &at[..19]),
        "people are shown the first acquisition: {view}"
    );
    let other = state.run(&["heartbeat", "42", "--request-id", "run-2"]);
    let _ = other.expect(6, "not the owner");
    let absent = state.run(&["heartbeat", "41", "--request-id", "run-1"]);
    let _ = absent.expect(80, "a heartbeat never creates");
    assert!(!state.file("41").exists());
    let script = format!("cat {f}; sleep 1.2; cat {f}", f = state.file("8").display());
    let run = state.run(&[
        "--stale-after",
        "600ms",
        "run",
        "8",
        "--",
        "sh",
        "-c",
        &script,
    ]);
    let run = run.expect(0, "a run outlives the age by renewing");
    let times: Vec<String> = run
        .stdout()
        .lines()
        .filter(|line| line.contains("acquiredAt"))
        .map(str::to_owned)
        .collect();
    assert_eq!(times.len(), 2, "{}", run.said());
    assert_ne!(times[0], times[1], "renewed");
    assert!(!state.file("8").exists(), "and gone");
}

#[test]
fn what_a_killed_run_left_behind_is_released_by_its_id() {
    let state = State::new();
    let mut command = state.scene.tenure([
        "--profile",
        "session",
        "run",
        "42",
        "--request-id",
        "r",
        "--",
        "sleep",
        "60",
    ]);
    let started = crate::support::Started::new(&mut command);
    eventually("it holds", || state.file("42").exists());
    let live = state.run(&["release", "42", "--request-id", "r"]);
    let _ = live.expect(0, "a run is not released from outside");
    assert!(state.file("42").exists(), "it still works");
    started.kill_with_children();
    eventually("its owner can remove it", || {
        let _ = state.run(&["release", "42", "--request-id", "r"]);
        !state.file("42").exists()
    });
}

/// A record that names neither user nor machine nor purpose is shown without empty places for them.
#[test]
fn only_the_facts_of_a_record_are_printed() {
    let state = State::new();
    state.plant("7", "run-9", 5);
    let waited = state.run(&["acquire", "7", "--owner", "none", "--wait", "100ms"]);
    let said = waited.expect(4, "held").stderr();
    let line = said.lines().next().unwrap_or_default();
    assert!(
        line.starts_with("tenure: 7 is held by PID 999999 (request run-9) since 20"),
        "{line}"
    );
    assert!(
        line.contains(" ago); next in line, waiting up to "),
        "{line}"
    );
    let listed = state.run(&["list"]).expect(0, "a list").stdout();
    let row = listed.lines().last().unwrap_or_default();
    assert!(row.ends_with("PID 999999 (request run-9)"), "{row:?}");
    // A waiter behind the holder has all of them.
    let mut command = state.scene.tenure(["--profile", "session"]);
    command.args([
        "acquire", "7", "--owner", "none", "--wait", "30s", "--why", "its turn",
    ]);
    let waiter = crate::support::Started::new(&mut command);
    eventually("a waiter", || {
        let shown = state.run(&["check", "7"]).stdout();
        shown.contains("\n        1. ") && shown.trim_end().ends_with(": its turn")
    });
    drop(waiter);
}

/// The original's tools read what JavaScript prints of a date, so such a record is no garbage.
#[test]
fn young_record_with_a_date_that_javascript_reads_is_respected_table() {
    for print in [
        "%a, %d %b %Y %H:%M:%S GMT",
        "%a %b %d %Y %H:%M:%S GMT+0000 (Coordinated Universal Time)",
        "%m/%d/%Y, %I:%M:%S %p",
        "%F %T",
    ] {
        for (ago, code) in [("1 minute ago", 4), ("11 minutes ago", 0)] {
            let scene = Scene::new();
            let date = answer(
                scene
                    .program("date")
                    .args(["-u", "-d", ago, &format!("+{print}")]),
            );
            let date = date.expect(0, "a date").stdout();
            let record =
                json!({ "issueNumber": 42, "runId": "r", "acquiredAt": date.trim(), "pid": 1 });
            fs::create_dir_all(scene.path("state/locks")).expect("a folder");
            scene.write("state/locks/42.lock", &record.to_string());
            let words = [
                "--profile",
                "session",
                "--dir",
                "state",
                "run",
                "42",
                "--",
                "true",
            ];
            let mut run = scene.tenure(words);
            let _ = answer(run.current_dir(scene.root())).expect(code, &format!("{date} {ago}"));
        }
    }
}
