//! The session profile: one lock per issue, which a live run renews and which is stale after ten minutes.
#![allow(
    clippy::disallowed_methods,
    reason = "the dates in its records are of the machine's own clock"
)]

use crate::support::transcript::Caller;
use crate::support::{Answer, Scene, eventually};
use serde_json::Value;
use std::fs;
use std::os::unix::fs::PermissionsExt;
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

    #[track_caller]
    fn follows(&self, transcript: &str) {
        Caller::new(&self.scene, &["--profile", "session"]).follows(transcript);
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

    /// The same so long ago that no reader takes the file for one that is being written.
    fn plant_settled(&self, issue: &str, text: &str) {
        crate::support::plant(&self.file(issue), text, SystemTime::UNIX_EPOCH);
    }

    /// What the audit tells of these words.
    fn events(&self, words: &[&str]) -> Vec<Value> {
        let audit = self.run(&[&["audit"], words, &["--output", "json"]].concat());
        let events = audit.expect(0, "events").json()["data"]["events"].take();
        events.as_array().expect("events").clone()
    }
}

#[test]
fn the_record_has_the_formats_four_fields_and_a_final_newline() {
    let state = State::new();
    let said = state.acquire("42", "run-1").expect(0, "free").stderr();
    assert!(said.contains("Acquired lock for issue #42"), "{said}");
    let text = state.text("42");
    assert!(
        text.starts_with("{\n  \"issueNumber\": 42,\n  \"runId\": \"run-1\",\n"),
        "{text}"
    );
    assert!(text.ends_with("}\n"), "{text}");
    let record = state.record("42");
    let at = record["acquiredAt"].as_str().expect("a time");
    assert_eq!(
        at.len(),
        "2026-02-07T10:00:00.000Z".len(),
        "milliseconds: {at}"
    );
    assert!(record["pid"].is_u64(), "{record}");
    let owner = record["tenure"]["request_id"]
        .as_str()
        .expect("a request id");
    assert_ne!(
        owner, "run-1",
        "the run id is not unique, so the request id is another"
    );
    let mode = fs::metadata(state.file("42"))
        .expect("a record")
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[test]
fn the_folder_of_the_locks_is_never_committed() {
    let state = State::new();
    let _ = state.acquire("42", "run-1").expect(0, "free");
    let ignored = fs::read_to_string(state.scene.locks().join("locks/.gitignore"));
    assert_eq!(ignored.expect("a .gitignore"), "*\n");
    let audit = fs::read_to_string(state.scene.locks().join("audit/.gitignore"));
    assert_eq!(audit.expect("a .gitignore"), "*\n");
}

#[test]
fn a_second_run_is_refused_with_4_and_told_who_holds() {
    State::new().follows(
        "
        $ tenure acquire 42 --owner none --request-id run-1
        acquired 42: ttl 10m, fencing token [N], request id run-1
        ! Acquired lock for issue #42
        $ tenure acquire 42 --owner none --request-id run-2
        ? 4
        ! Issue #42 is locked by run run-1 (0s ago)
        # The original's code, for a caller that asks for it.
        $ tenure acquire 42 --owner none --request-id run-2 --conflict-exit-code 0
        ! Issue #42 is locked by run run-1 ([N]s ago)
        # A run id is no owner.
        $ tenure acquire 42 --owner none --request-id run-1
        ? 4
        ! Issue #42 is locked by run run-1 ([N]s ago)
        $ tenure acquire 43 --owner none --request-id run-2
        acquired 43: ttl 10m, fencing token [N], request id run-2
        ! Acquired lock for issue #43
        ",
    );
}

#[test]
fn only_the_owner_releases_and_an_absent_lock_is_silent_success() {
    State::new().follows(
        "
        $ tenure acquire 42 --owner none --request-id run-1
        acquired 42: ttl 10m, fencing token [N], request id run-1
        ! Acquired lock for issue #42
        $ cp locks/locks/42.lock before
        $ tenure release 42 --request-id run-2
        ! Lock for issue #42 owned by different run, not releasing
        $ cmp before locks/locks/42.lock
        $ tenure release 42 --request-id run-1
        released 42 after [..]
        ! Released lock for issue #42
        $ test -e locks/locks/42.lock
        ? 1
        $ tenure release 42 --request-id run-1
        ",
    );
}

#[test]
fn a_lock_is_stale_from_ten_minutes_on_whatever_its_process_does() {
    let state = State::new();
    let fresh = state.plant("1", "old", 590);
    state.follows(
        "
        $ tenure acquire 1 --owner none --request-id new
        ? 4
        ! Issue #1 is locked by run old (59[N]s ago)
        ",
    );
    assert_eq!(state.text("1"), fresh, "a dead process does not matter");
    let _ = state.plant("2", "old", 600);
    state.follows(
        "
        $ tenure acquire 2 --owner none --request-id new
        acquired 2: ttl 10m, fencing token [N], request id new
        ! Cleaning stale lock for issue #2 (run old, 60[N]s old)
        ! Acquired lock for issue #2
        ",
    );
    assert_eq!(state.record("2")["runId"], "new");
    let _ = state.plant("3", "old", 30);
    let short = state.run(&["--stale-after", "20s", "acquire", "3", "--owner", "none"]);
    let _ = short.expect(0, "the age can be set");
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
fn a_corrupt_lock_is_cleaned_and_one_from_the_future_is_fresh() {
    let state = State::new();
    for (issue, text) in [
        ("1", "not json"),
        ("2", "{\"issueNumber\": 2}"),
        (
            "3",
            "{\"issueNumber\": 3, \"runId\": \"r\", \"acquiredAt\": \"yesterday\", \"pid\": 1}",
        ),
        ("4", ""),
    ] {
        state.plant_settled(issue, text);
        let taken = state.acquire(issue, "new").expect(0, "corrupt is stale");
        assert!(
            taken.stderr().contains(&format!("issue #{issue}")),
            "{}",
            taken.said()
        );
        assert_eq!(state.record(issue)["runId"], "new");
    }
    let _ = state.plant("5", "ahead", -3_600);
    let refused = state.acquire("5", "new").expect(4, "age 0");
    assert!(refused.stderr().contains("(0s ago)"), "{}", refused.said());
}

/// The original program looks at `acquiredAt` alone, so nothing else makes a lock corrupt.
#[test]
fn a_young_record_is_held_whatever_else_it_lacks_or_misspells() {
    let state = State::new();
    let at = |seconds: i64| {
        let at = jiff::Timestamp::now() - jiff::SignedDuration::from_secs(seconds);
        format!("{at:.3}")
    };
    let young = at(60);
    for (issue, text, run) in [
        (
            "1",
            format!(
                r#"{{"issueNumber": 1, "runId": 1234567890, "acquiredAt": "{young}", "pid": 7}}"#
            ),
            "1234567890",
        ),
        (
            "2",
            format!(r#"{{"issueNumber": 2, "runId": "r", "acquiredAt": "{young}", "pid": "7"}}"#),
            "r",
        ),
        (
            "3",
            format!(r#"{{"issueNumber": 3, "runId": "r", "acquiredAt": "{young}"}}"#),
            "r",
        ),
        (
            "4",
            format!(r#"{{"runId": "r", "acquiredAt": "{young}", "pid": null}}"#),
            "r",
        ),
        (
            "5",
            format!(r#"{{"issueNumber": "6", "acquiredAt": "{young}", "pid": 7}}"#),
            "unknown",
        ),
    ] {
        state.plant_settled(issue, &text);
        let refused = state.acquire(issue, "new").expect(4, "a live lock");
        let line = format!("Issue #{issue} is locked by run {run} (6");
        assert!(refused.stderr().contains(&line), "{}", refused.said());
        let _ = state.run(&["clean"]).expect(0, "nothing is stale");
        let kept = state.text(issue);
        assert_eq!(kept, text, "nothing was touched");
    }
    let other = state.run(&["release", "1", "--request-id", "123456789"]);
    let other = other.expect(0, "another run's");
    assert!(other.stderr().contains("owned by different run"));
    assert!(state.file("1").exists(), "left alone");
    let own = state.run(&["release", "1", "--request-id", "1234567890"]);
    let _ = own.expect(0, "a number is known by its digits");
    assert!(!state.file("1").exists(), "released");
    let old = format!(r#"{{"runId": 7, "acquiredAt": "{}"}}"#, at(600));
    state.plant_text("3", &old);
    let taken = state.acquire("3", "new").expect(0, "its time is over");
    let line = "Cleaning stale lock for issue #3 (run 7, 600s old)";
    assert!(taken.stderr().contains(line), "{}", taken.said());
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
fn clean_removes_stale_and_corrupt_locks_and_says_how_many() {
    let state = State::new();
    let _ = state.plant("1", "old", 900);
    let fresh = state.plant("2", "young", 10);
    state.plant_settled("3", "{");
    let folder = state.scene.locks().join("locks");
    fs::write(folder.join("notes.txt"), "x").expect("a file");
    fs::write(folder.join("abc.lock"), "x").expect("a file");
    let dry = state.run(&["clean", "--dry-run", "--output", "json"]);
    assert_eq!(
        dry.json()["data"]["locks"].as_array().map(Vec::len),
        Some(2)
    );
    assert!(
        state.file("1").exists() && state.file("3").exists(),
        "nothing was touched"
    );
    assert!(!folder.join(".tenure").exists(), "nothing was made");
    let cleaned = state.run(&["clean"]).expect(0, "cleaned");
    assert!(
        cleaned.stdout().contains("Cleaned 2 stale locks"),
        "{}",
        cleaned.said()
    );
    assert!(!state.file("1").exists() && !state.file("3").exists());
    assert_eq!(state.text("2"), fresh);
    let stolen = state.events(&["--event", "lock_stolen"]);
    let reasons: Vec<_> = stolen.iter().map(|event| &event["reason"]).collect();
    assert_eq!(reasons, ["stale_lock", "corrupt_lock"]);
    let ours: Vec<_> = fs::read_dir(folder.join(".tenure"))
        .expect("our folder")
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter(|name| name.starts_with(['1', '3']))
        .collect();
    assert_eq!(ours, [] as [String; 0], "nothing of theirs is left");
    assert!(folder.join("notes.txt").exists() && folder.join("abc.lock").exists());
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
fn the_run_id_comes_from_the_runner_and_the_number_is_a_decimal() {
    let state = State::new();
    let mut command =
        state
            .scene
            .tenure(["--profile", "session", "acquire", "42", "--owner", "none"]);
    let _ = crate::support::answer(command.env("GITHUB_RUN_ID", "77001")).expect(0, "free");
    assert_eq!(state.record("42")["runId"], "77001");
    for bad in ["x", "4x", "-1", "+4", "4.5", "042"] {
        let _ = state.acquire(bad, "r").expect(2, bad);
    }
    let _ = State::new()
        .acquire("nine", "r")
        .expect(2, "before any side effect");
}

#[test]
fn other_tools_that_create_the_same_file_are_excluded_and_exclude_us() {
    let state = State::new();
    let _ = state.acquire("42", "run-1").expect(0, "free");
    let foreign = fs::File::options()
        .write(true)
        .create_new(true)
        .open(state.file("42"));
    assert!(foreign.is_err(), "O_EXCL fails while we hold");
    let planted = state.plant("43", "theirs", 5);
    let _ = state.acquire("43", "ours").expect(4, "theirs");
    assert_eq!(state.text("43"), planted);
}

#[test]
fn a_run_of_tenure_releases_on_every_exit() {
    let state = State::new();
    let _ = state.run(&["run", "1", "--", "true"]).expect(0, "success");
    let _ = state
        .run(&["run", "1", "--", "sh", "-c", "exit 7"])
        .expect(7, "failure");
    let killed = state.run(&["run", "1", "--", "sh", "-c", "kill -9 $$"]);
    assert!(killed.status().code().is_none(), "died like its command");
    eventually("the record is gone", || !state.file("1").exists());
}

#[test]
fn every_acquisition_and_release_is_in_the_audit() {
    let state = State::new();
    let _ = state.plant("1", "old", 900);
    let _ = state.acquire("1", "new").expect(0, "stale");
    let _ = state
        .run(&["release", "1", "--request-id", "new"])
        .expect(0, "own");
    let events = state.events(&["1"]);
    let names: Vec<_> = events.iter().map(|event| &event["event"]).collect();
    assert_eq!(names, ["lock_stolen", "lock_acquired", "lock_released"]);
    assert_eq!(events[0]["reason"], "stale_lock");
    assert_eq!(events[0]["previous_lock"]["request_id"], "old");
}

#[test]
fn clean_removes_what_is_kept_beside_locks_that_are_gone() {
    State::new().follows(
        "
        $ tenure run 5 -- true
        ! Acquired lock for issue #5
        ! Released lock for issue #5
        # Past holds are remembered until a caller cleans.
        $ test -e locks/locks/.tenure/5.lock.tenure
        $ tenure clean
        Cleaned 0 stale locks
        $ test -e locks/locks/.tenure/5.lock.tenure
        ? 1
        ",
    );
}

#[test]
fn the_runner_names_the_run_wherever_nobody_does() {
    let state = State::new();
    let as_run = |run: &str, words: &[&str]| {
        let mut command = state
            .scene
            .tenure(["--profile", "session"].iter().chain(words));
        crate::support::answer(command.env("GITHUB_RUN_ID", run))
    };
    let _ = as_run("1", &["acquire", "42"]).expect(0, "free");
    let other = as_run("2", &["release", "42"]).expect(0, "another's");
    assert!(other.stderr().contains("different run"), "{}", other.said());
    let _ = as_run("2", &["heartbeat", "42"]).expect(6, "another's");
    let _ = as_run("1", &["heartbeat", "42"]).expect(0, "its own");
    let _ = as_run("1", &["release", "42"]).expect(0, "its own");
    assert!(!state.file("42").exists(), "released");
}

#[test]
fn a_date_in_the_future_is_flagged() {
    let state = State::new();
    let _ = state.plant("5", "ahead", -3_600);
    state.follows(
        "
        $ tenure acquire 5 --owner none --request-id new
        ? 4
        ! Issue #5 is locked by run ahead (0s ago)
        ! Its acquiredAt lies in the future, so its age counts as 0
        $ tenure check 5
        ? 4
        5 is held by PID 999999 (request ahead) since [TIME] ([..] ago, dated in the future)
        ",
    );
}

#[test]
fn a_document_on_stdin_is_the_sprint_profiles_alone() {
    let state = State::new();
    for verb in ["acquire", "release", "check"] {
        let _ = state.run(&[verb, "42", "--input", "-"]).expect(2, verb);
    }
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

/// Whatever the umask would allow or take away.
#[test]
fn folders_are_0700_and_files_0600_under_any_umask() {
    for umask in ["000", "777"] {
        let state = State::new();
        let line = format!(
            "umask {umask}; {t} --profile session --dir {d}/state acquire 1 --owner none && \
             {t} --profile session --dir {d}/state --audit-dir {d}/far/away acquire 2 --owner none",
            t = env!("CARGO_BIN_EXE_tenure"),
            d = state.scene.root().join("deep").display()
        );
        let _ = state.scene.shell(&line).expect(0, umask);
        let top = state.scene.root().join("deep");
        for (path, mode) in [
            ("", 0o700),
            ("state", 0o700),
            ("state/locks", 0o700),
            ("state/locks/.tenure", 0o700),
            ("state/locks/.gitignore", 0o600),
            ("state/locks/.tenure/.gitignore", 0o600),
            ("state/locks/1.lock", 0o600),
            ("state/audit", 0o700),
            ("state/audit/.gitignore", 0o600),
            ("far", 0o700),
            ("far/away", 0o700),
            ("far/away/audit.jsonl", 0o600),
        ] {
            let found = fs::metadata(top.join(path))
                .expect(path)
                .permissions()
                .mode();
            assert_eq!(found & 0o777, mode, "{path} under umask {umask}");
        }
    }
}

#[test]
fn whoever_acts_is_known_by_the_run_in_answers_and_in_the_audit() {
    let state = State::new();
    let words = ["acquire", "42", "--owner", "none", "--run-id", "run-1"];
    let acquired = state.run(&[&words[..], &["--output", "json"]].concat());
    let acquired = acquired.expect(0, "free").json();
    assert_eq!(acquired["meta"]["request_id"], "run-1", "{acquired}");
    assert_eq!(acquired["data"]["request_id"], "run-1", "{acquired}");
    let check = state.run(&["check", "42", "--output", "json"]).json();
    let holder = &check["error"]["context"]["holder"];
    assert_eq!(holder["request_id"], "run-1", "{check}");
    let _ = state.run(&["release", "42", "--run-id", "run-1"]);
    let events = state.events(&["--run-id", "run-1"]);
    assert_eq!(events.len(), 2, "{events:?}");
}

/// Another program names its runs as it likes. A caller that shows what stands in the record is its owner.
#[test]
fn a_run_is_released_under_whatever_id_its_record_has() {
    let state = State::new();
    let long = "r".repeat(200);
    for id in ["my run", "run/7", "é", long.as_str()] {
        state.plant("7", id, 5);
        let said = state.run(&["release", "7", "--request-id", id]);
        let said = said.expect(0, id).stderr();
        assert!(said.contains("Released lock for issue #7"), "{said}");
        assert!(!state.file("7").exists(), "{id}");
    }
    let planted = state.plant("7", "my run", 5);
    let refused = state.run(&["release", "7", "--request-id", "your run"]);
    let said = refused
        .expect(2, "no id of ours, nor of the record")
        .stderr();
    assert!(said.contains("\"your run\""), "{said}");
    let text = state.text("7");
    assert_eq!(text, planted, "nothing was touched");
    let renewed = state.run(&["check", "7", "--request-id", "my run", "--output", "json"]);
    let renewed = renewed.expect(0, "its own").json();
    assert_eq!(renewed["data"]["mine"], true, "{renewed}");
    let id = renewed["meta"]["request_id"].as_str().expect("an id");
    assert!(id.starts_with("req_"), "of the documented form: {id}");
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
    // One that waits behind it has all of them.
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

/// No program that keeps locks makes a folder there, and it does not keep `clean` from its work.
#[test]
fn a_folder_with_the_name_of_a_lock_is_no_lock() {
    let state = State::new();
    state.plant("8", "run-8", 3_600);
    fs::create_dir(state.file("7")).expect("a folder");
    let cleaned = state.run(&["clean"]).expect(0, "the other one");
    assert!(
        cleaned.stdout().contains("Cleaned 1 stale lock"),
        "{}",
        cleaned.said()
    );
    let _ = state.run(&["clean"]).expect(0, "nothing is left");
    let listed = state.run(&["list"]).expect(0, "a list").stdout();
    assert_eq!(listed.trim(), "no locks");
    assert!(state.file("7").is_dir(), "it was left alone");
    let refused = state.acquire("7", "run-7").expect(7, "in the way").stderr();
    assert!(refused.contains("7.lock"), "{refused}");
    // Of native locks, the same.
    let scene = Scene::new();
    let _ = scene.run(["run", "a", "--", "true"]).expect(0, "a lock");
    fs::create_dir(scene.locks().join("x.tenure")).expect("a folder");
    let cleaned = scene.run(["clean"]).expect(0, "the other one").stdout();
    assert!(cleaned.contains("1 unused lock file"), "{cleaned}");
    let _ = scene.run(["check"]).expect(0, "nothing is in the way");
}
