//! The sprint profile's contract: one test for each of its rules, and the status object as it was
//! published.

use crate::support::transcript::Caller;
use crate::support::{
    Answer, Scene, Started, TENURE, answer, eventually, is_alive, is_root, state, timed,
};
use serde_json::{Value, json};
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;
use tenure_engine::clock::{Clock as _, SystemClock};

/// A number that no process has.
const NOBODY: u32 = 999_999_999;

/// The fields of the status object, and those of its `lock_info`.
const FIELDS: [&str; 5] = ["status", "mode", "lock_info", "message", "errors"];
const INFO: [&str; 8] = [
    "exists",
    "pid",
    "session_id",
    "started_at",
    "epic_spec",
    "age_hours",
    "pid_alive",
    "is_zombie",
];

/// A project with at most one sprint.
struct Project {
    scene: Scene,
}

impl Project {
    fn new() -> Self {
        let scene = Scene::new();
        fs::create_dir(scene.path("project")).unwrap();
        Self { scene }
    }

    fn root(&self) -> PathBuf {
        self.scene.path("project")
    }

    fn file(&self) -> PathBuf {
        self.root().join(".sprint-running")
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = self.scene.tenure(["--profile", "sprint"]);
        command.args(words).arg("--project-root").arg(self.root());
        command
    }

    fn run(&self, words: &[&str]) -> Answer {
        answer(&mut self.command(words))
    }

    #[track_caller]
    fn follows(&self, transcript: &str) {
        let root = self.root().display().to_string();
        let first = ["--profile", "sprint", "--project-root", &root];
        Caller::new(&self.scene, &first).follows(transcript);
    }

    /// `acquire` in the name of this test's own process.
    fn acquiring(&self, session: &str, more: &[&str]) -> Command {
        let own = std::process::id().to_string();
        let words = ["acquire", "--session-id", session, "--epic-spec", "epic5"];
        self.command(&[&words[..], &["--owner", &own], more].concat())
    }

    fn acquire(&self, session: &str, more: &[&str]) -> Answer {
        answer(&mut self.acquiring(session, more))
    }

    /// The lock is acquired for a session.
    #[track_caller]
    fn acquired(&self, session: &str) {
        self.acquire_says(session, "acquired", 0);
    }

    /// Acquires with the words of a session and of flags, and expects this status and code.
    #[track_caller]
    fn acquire_says(&self, words: &str, status: &str, code: i32) -> Value {
        let words: Vec<_> = words.split(' ').collect();
        let (session, flags) = words.split_first().expect("a session");
        expect(self.acquire(session, flags), status, code)
    }

    /// Makes the call of these words, and expects this status and code.
    #[track_caller]
    fn says(&self, words: &str, status: &str, code: i32) -> Value {
        let words: Vec<_> = words.split(' ').collect();
        expect(self.run(&words), status, code)
    }

    /// The call as a document on stdin, and nothing else.
    fn input(&self, verb: &str, document: &str, flags: &[&str]) -> Answer {
        let mut command = self
            .scene
            .tenure(["--profile", "sprint", verb, "--input", "-"]);
        command.args(flags);
        self.feed(&mut command, document.as_bytes())
    }

    #[allow(clippy::unused_self, reason = "the scene has to outlive the call")]
    fn feed(&self, command: &mut Command, bytes: &[u8]) -> Answer {
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut started = Started::new(command);
        // A program that refuses what is too large does not read all of it.
        let _ = started.take_stdin().write_all(bytes);
        started.finish()
    }

    /// Puts a lock file there that another tool wrote long ago.
    fn write(&self, content: &str) -> String {
        let long_ago = std::time::SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000);
        crate::support::plant(&self.file(), content, long_ago);
        content.to_owned()
    }

    /// A lock file of the original tool.
    fn foreign(&self, pid: u32, started_at: &str) -> String {
        self.write(&record(pid, "sprint-1", started_at))
    }

    fn text(&self) -> String {
        fs::read_to_string(self.file()).unwrap()
    }

    fn names(&self) -> Vec<String> {
        let mut names: Vec<_> = fs::read_dir(self.root())
            .unwrap()
            .map(|item| item.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }
}

fn record(pid: u32, session: &str, started_at: &str) -> String {
    format!(
        "pid: {pid}\nsession_id: {session}\nstarted_at: {started_at}\nepic_spec: epic5\n\
         lock_version: 1\n"
    )
}

/// The instant this long ago, as the original tool writes it.
fn ago(span: Duration) -> String {
    let now_ms = SystemClock::new(None).now().stamp().wall_ms;
    at(now_ms - u64::try_from(span.as_millis()).unwrap())
}

fn at(wall_ms: u64) -> String {
    let wall_ms = i64::try_from(wall_ms).unwrap();
    jiff::Timestamp::from_millisecond(wall_ms)
        .unwrap()
        .to_string()
}

/// What the original tool does at its end.
#[allow(clippy::disallowed_methods, reason = "it knows nothing of our store")]
fn remove(path: &Path) {
    fs::remove_file(path).unwrap();
}

/// Says which test could not be carried out here, and why.
#[allow(clippy::print_stderr, reason = "it is for a reader of the run")]
fn skipped(why: &str) {
    eprintln!("{why}");
}

const HOUR: Duration = Duration::from_secs(3_600);

/// The status object of an answer, with exactly the fields of the contract in their order.
#[track_caller]
fn document(answer: &Answer) -> Value {
    let text = answer.stdout();
    let document: Value = serde_saphyr::from_str(&text)
        .unwrap_or_else(|error| panic!("stdout is the object ({error}): {}", answer.said()));
    for (value, expected) in [
        (&document, FIELDS.as_slice()),
        (&document["lock_info"], INFO.as_slice()),
    ] {
        let mut keys: Vec<_> = value.as_object().unwrap().keys().collect();
        let mut expected = expected.to_vec();
        keys.sort();
        expected.sort_unstable();
        assert_eq!(keys, expected, "exactly the fields: {text}");
    }
    let order: Vec<_> = text
        .lines()
        .filter_map(|line| line.split_once(':').map(|(key, _)| key))
        .filter(|key| !key.starts_with([' ', '-']))
        .collect();
    assert_eq!(order, FIELDS, "in the order of the contract");
    document
}

/// Fails the test unless the call ended with this status and code; answers with the object.
#[track_caller]
fn expect(answer: Answer, status: &str, code: i32) -> Value {
    let answer = answer.expect(code, status);
    let document = document(&answer);
    assert_eq!(document["status"], status, "{}", answer.said());
    document
}

#[track_caller]
fn message(document: &Value) -> &str {
    document["message"].as_str().expect("a sentence")
}

// acquire

#[test]
fn acquire_without_a_lock_writes_the_published_record() {
    let project = Project::new();
    let acquired = project.acquire_says("sprint-2026-02-07-001", "acquired", 0);
    assert_eq!(acquired["mode"], "acquire");
    assert_eq!(
        message(&acquired),
        "Lock acquired successfully for session sprint-2026-02-07-001"
    );
    assert_eq!(acquired["errors"], json!([]));
    let record: Value = serde_saphyr::from_str(&project.text()).unwrap();
    assert_eq!(record["pid"], std::process::id());
    assert_eq!(record["session_id"], "sprint-2026-02-07-001");
    assert_eq!(record["epic_spec"], "epic5");
    assert_eq!(record["lock_version"], 1);
    let info = &acquired["lock_info"];
    for (key, value) in [
        ("exists", json!(true)),
        ("pid", record["pid"].clone()),
        ("session_id", record["session_id"].clone()),
        ("started_at", record["started_at"].clone()),
        ("epic_spec", json!("epic5")),
        ("pid_alive", json!(true)),
        ("is_zombie", json!(false)),
    ] {
        assert_eq!(info[key], value, "{key}");
    }
    assert_eq!(project.names(), [".sprint-running", ".tenure"]);
}

#[test]
fn the_lock_needs_no_name_and_has_one() {
    let project = Project::new();
    project.acquire_says("s sprint", "acquired", 0);
    project.says("check sprint", "blocked", 4);
    for verb in ["acquire", "release", "check"] {
        let mut words = vec![verb, "other"];
        if verb == "acquire" {
            words.extend(["--session-id", "s", "--epic-spec", "e"]);
        }
        let refused = expect(project.run(&words), "failure", 2);
        assert!(message(&refused).contains("\"other\""), "{refused}");
    }
}

#[test]
fn what_is_required_is_named_before_anything_is_touched() {
    let project = Project::new();
    for (words, said) in [
        (
            ["acquire", "--epic-spec", "e"].as_slice(),
            "session_id required for acquire mode",
        ),
        (&["acquire"], "session_id required for acquire mode"),
        (
            &["acquire", "--session-id", "s"],
            "epic_spec required for acquire mode",
        ),
        (
            &["acquire", "--session-id", "s", "--epic-spec", ""],
            "epic_spec required for acquire mode",
        ),
        (
            &["acquire", "--session-id", "a b", "--epic-spec", "e"],
            "session_id \"a b\"",
        ),
        (
            &[
                "acquire",
                "--session-id",
                "s",
                "--epic-spec",
                "e",
                "--owner",
                "none",
            ],
            "--owner PID",
        ),
        (
            &[
                "acquire",
                "--session-id",
                "s",
                "--epic-spec",
                "e",
                "--owner",
                "999999999",
            ],
            "--owner 999999999",
        ),
        (
            &[
                "acquire",
                "--session-id",
                "s",
                "--epic-spec",
                "e",
                "--wait",
                "soon",
            ],
            "soon",
        ),
        (&["acquire", "--nonsense"], "--nonsense"),
        (&["release", "--session-id", "/"], "session_id \"/\""),
        (&["check", "--input", "file"], "--input"),
        (&["frobnicate"], "Invalid mode \"frobnicate\""),
    ] {
        let refused = expect(project.run(words), "failure", 2);
        assert!(message(&refused).contains(said), "{words:?}: {refused}");
        assert_eq!(refused["errors"].as_array().map(Vec::len), Some(1));
        assert_eq!(refused["lock_info"]["exists"], Value::Null, "not looked at");
    }
    let long = "e".repeat(4097);
    let words = ["acquire", "--session-id", "s", "--epic-spec", &long];
    expect(project.run(&words), "failure", 2);
    assert_eq!(project.names(), [""; 0], "nothing was made");
}

#[test]
fn a_project_root_has_to_be_named() {
    let project = Project::new();
    for verb in ["acquire", "release", "check"] {
        let mut words = vec!["--profile", "sprint", verb];
        if verb == "acquire" {
            words.extend(["--session-id", "s", "--epic-spec", "e"]);
        }
        let refused = expect(project.scene.run(&words), "failure", 2);
        assert_eq!(message(&refused), "project_root required");
    }
    assert!(!project.scene.locks().exists(), "no other folder is taken");
    let root = project.root();
    let root = root.to_str().unwrap();
    let words = ["--profile", "sprint", "check", "--dir", root];
    expect(project.scene.run(words), "clean", 0);
}

#[test]
fn a_project_root_that_is_no_folder_is_bad_input() {
    let scene = Scene::new();
    let file = scene.write("file", "");
    for root in [scene.path("missing"), file.clone(), file.join("below")] {
        for verb in ["acquire", "release", "check"] {
            let mut command = scene.tenure(["--profile", "sprint", verb]);
            if verb == "acquire" {
                command.args(["--session-id", "s", "--epic-spec", "e"]);
            }
            let refused = answer(command.arg("--project-root").arg(&root));
            let refused = expect(refused, "failure", 2);
            let said = message(&refused);
            assert!(said.starts_with("Project root not accessible: "), "{said}");
            assert!(said.contains(root.to_str().unwrap()), "{said}");
        }
        assert!(!scene.path("missing").exists(), "nothing is made");
    }
}

/// Starts the program as a user without rights; `None` where that cannot be done.
fn as_nobody(project: &Project, words: &[&str]) -> Option<Answer> {
    if !is_root() {
        return None;
    }
    let mut command = project.scene.program("setpriv");
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups", TENURE]);
    command.args(["--profile", "sprint"]).args(words);
    command.arg("--project-root").arg(project.root());
    open_to_all(project.scene.root());
    open_to_all(&project.root());
    let answer = answer(&mut command);
    // 126 and 127: there is no setpriv, or that user may not enter the program's folder.
    (!matches!(answer.0.status.code(), Some(126 | 127))).then_some(answer)
}

fn open_to_all(path: &Path) {
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn a_project_root_that_is_not_writable_is_7_and_can_still_be_checked() {
    let project = Project::new();
    let words = ["acquire", "--session-id", "s", "--epic-spec", "e"];
    let Some(refused) = as_nobody(&project, &words) else {
        skipped("skipped: needs root and setpriv");
        return;
    };
    let refused = expect(refused, "failure", 7);
    let said = message(&refused);
    assert!(said.starts_with("Project root not accessible: "), "{said}");
    assert!(said.contains(project.root().to_str().unwrap()), "{said}");
    let clean = as_nobody(&project, &["check"]).unwrap();
    expect(clean, "clean", 0);
    let released = as_nobody(&project, &["release"]).unwrap();
    expect(released, "released", 0);
    project.foreign(1, &ago(HOUR));
    let refused = as_nobody(&project, &["release"]).unwrap();
    expect(refused, "failure", 7);
    assert!(project.file().exists(), "it stands");
}

#[test]
fn a_lock_file_that_cannot_be_read_is_said_to_be() {
    let project = Project::new();
    fs::create_dir(project.file()).unwrap();
    let refused = project.says("check", "failure", 7);
    assert!(message(&refused).starts_with("Cannot read lock file: "));
    project.acquire_says("s --force --yes", "failure", 7);
    assert!(project.file().is_dir(), "it stands");
}

#[test]
fn an_active_lock_blocks_at_once() {
    let project = Project::new();
    let own = std::process::id();
    let started = ago(HOUR + HOUR / 2);
    let before = project.foreign(own, &started);
    let (blocked, took) = timed(|| project.acquire("sprint-2", &[]));
    let blocked = expect(blocked, "blocked", 4);
    assert!(took < Duration::from_secs(5), "at once");
    let info = &blocked["lock_info"];
    assert_eq!(
        message(&blocked),
        format!(
            "Sprint already running (PID: {own}, session: sprint-1, started: {})",
            info["started_at"].as_str().unwrap()
        )
    );
    assert_eq!(info["pid"], own);
    assert_eq!(info["session_id"], "sprint-1");
    assert_eq!(info["epic_spec"], "epic5");
    assert_eq!(info["pid_alive"], true);
    assert_eq!(info["is_zombie"], false);
    let age = info["age_hours"].as_f64().unwrap();
    assert!(
        (1.5..1.6).contains(&age),
        "hours as a decimal number: {age}"
    );
    assert_eq!(project.text(), before, "unchanged");
}

#[test]
fn a_session_that_has_the_lock_is_blocked_like_everybody_else() {
    let project = Project::new();
    project.acquired("s");
    project.acquire_says("s", "blocked", 4);
}

#[test]
fn the_conflict_exit_code_can_be_chosen() {
    let project = Project::new();
    project.acquired("s");
    project.acquire_says("t -E 75", "blocked", 75);
}

#[test]
fn a_wait_is_over_when_the_lock_is_released() {
    let project = Project::new();
    project.acquired("s");
    let waiting = Started::piped(&mut project.acquiring("t", &["--wait", "30s"]));
    let list = ["--profile", "sprint", "list", "--output", "json", "--dir"];
    eventually("a waiter", || {
        let mut list = project.scene.tenure(list);
        let listed = answer(list.arg(project.root())).json();
        listed["data"]["locks"][0]["queue"][0]["request_id"] == "t"
    });
    project.says("release --session-id s", "released", 0);
    expect(waiting.finish(), "acquired", 0);
    let held = project.says("check --session-id t", "acquired", 0);
    assert_eq!(held["lock_info"]["session_id"], "t");
}

#[test]
fn a_wait_that_was_in_vain_is_blocked_at_its_deadline() {
    let project = Project::new();
    project.acquired("s");
    let (blocked, took) = timed(|| project.acquire("t", &["--wait", "300ms"]));
    let blocked = expect(blocked, "blocked", 4);
    assert_eq!(blocked["lock_info"]["session_id"], "s");
    assert!(took >= Duration::from_millis(300), "it waited");
}

#[test]
fn a_zombie_is_reported_without_a_terminal_and_stays_byte_for_byte() {
    let project = Project::new();
    let before = project.foreign(NOBODY, &ago(HOUR));
    let zombie = project.acquire_says("t", "zombie-detected", 4);
    assert_eq!(zombie["lock_info"]["is_zombie"], true);
    assert_eq!(zombie["lock_info"]["pid_alive"], false);
    assert_eq!(zombie["lock_info"]["pid"], NOBODY);
    assert_eq!(project.text(), before, "unchanged");
}

#[test]
fn force_takes_a_zombie_over_without_a_question_and_says_so() {
    let project = Project::new();
    project.foreign(NOBODY, &ago(HOUR));
    let forced = project.acquire("t", &["--force"]);
    let said = forced.stderr();
    expect(forced, "acquired", 0);
    assert!(said.contains("Overriding zombie lock"), "logged: {said}");
    assert!(said.contains("sprint-1"), "whose it was: {said}");
    assert!(!said.contains("[y/N]"), "no question: {said}");
    assert!(project.text().contains("session_id: \"t\""));
}

#[test]
fn force_alone_does_not_override_an_active_lock() {
    let project = Project::new();
    let before = project.foreign(std::process::id(), &ago(HOUR));
    let blocked = project.acquire_says("t --force", "blocked", 4);
    assert!(message(&blocked).starts_with("Sprint already running (PID: "));
    assert!(blocked["errors"][0].as_str().unwrap().contains("--yes"));
    assert_eq!(project.text(), before, "unchanged");
}

#[test]
fn force_and_yes_override_an_active_lock_loudly() {
    let project = Project::new();
    project.foreign(std::process::id(), &ago(HOUR));
    let forced = project.acquire("t", &["--force", "--yes"]);
    let said = forced.stderr();
    expect(forced, "acquired", 0);
    assert!(said.contains("OVERRIDING ACTIVE LOCK"), "logged: {said}");
    assert!(project.text().contains("session_id: \"t\""));
}

#[test]
fn a_newer_lock_version_is_never_overridden_silently() {
    let project = Project::new();
    // As dead and as old as a lock can be, but for its version.
    let newer = record(NOBODY, "s", &ago(30 * HOUR)).replace("version: 1", "version: 2");
    let before = project.write(&newer);
    project.says("check", "blocked", 4);
    for flags in [[].as_slice(), &["--force"]] {
        let blocked = expect(project.acquire("t", flags), "blocked", 4);
        let errors = blocked["errors"].to_string();
        assert!(errors.contains("lock_version"), "{errors}");
        assert_eq!(project.text(), before, "unchanged");
    }
    project.acquire_says("t --force --yes", "acquired", 0);
    assert!(project.text().contains("lock_version: 1"));
}

#[test]
fn a_newer_lock_version_is_shown_as_far_as_it_can_be_read() {
    let project = Project::new();
    project.write("lock_version: 7\nholder: {id: x}\n");
    let blocked = project.says("check", "blocked", 4);
    let info = &blocked["lock_info"];
    for key in [
        "pid",
        "session_id",
        "started_at",
        "epic_spec",
        "age_hours",
        "pid_alive",
    ] {
        assert_eq!(info[key], Value::Null, "{key} is unknown");
    }
    assert_eq!(info["exists"], true);
    assert!(message(&blocked).contains("started: unknown"), "{blocked}");
}

// What is a zombie.

#[test]
fn a_lock_is_active_below_24_hours_and_a_zombie_from_then_on() {
    let project = Project::new();
    let own = std::process::id();
    project.foreign(own, &ago(23 * HOUR + Duration::from_secs(3_564)));
    let active = project.says("check", "blocked", 4);
    assert!(active["lock_info"]["age_hours"].as_f64().unwrap() < 24.0);
    project.foreign(own, &ago(24 * HOUR));
    let old = project.says("check", "zombie-detected", 4);
    let info = &old["lock_info"];
    assert!(info["age_hours"].as_f64().unwrap() >= 24.0);
    assert_eq!(info["pid_alive"], true, "its process runs");
    assert_eq!(info["is_zombie"], true, "and its time is over");
}

#[test]
fn what_is_no_record_is_a_zombie() {
    let project = Project::new();
    for content in ["", "~\n", "pid: [\n", "\u{0}\u{1}", "- 1\n", "hello\n"] {
        project.write(content);
        let zombie = project.says("check", "zombie-detected", 4);
        assert_eq!(zombie["lock_info"]["exists"], true, "{content:?}");
        assert_eq!(zombie["lock_info"]["pid"], Value::Null, "{content:?}");
        assert!(
            zombie["errors"][0]
                .as_str()
                .unwrap()
                .starts_with("Cannot read lock file: "),
            "{zombie}"
        );
        project.acquire_says("t", "zombie-detected", 4);
        assert_eq!(project.text(), content, "unchanged");
    }
    project.acquire_says("t --force", "acquired", 0);
}

/// It is the record of a holder, and nothing in it proves that the holder is gone.
#[test]
fn a_mapping_that_cannot_be_judged_is_blocked_and_needs_force_and_yes() {
    let project = Project::new();
    let now = ago(HOUR);
    let own = std::process::id();
    for content in [
        "{}\n".to_owned(),
        format!("session_id: s\nstarted_at: {now}\n"),
        format!("pid: {own}\nsession_id: s\n"),
        format!("pid: -1\nstarted_at: {now}\n"),
        format!("pid: {own}\nstarted_at: yesterday\n"),
        format!("pid: {own}\nstarted_at: 5\n"),
        format!("pid: {own}\nPID: {NOBODY}\nstarted_at: {now}\n"),
        format!("pid: {own}\npid: {NOBODY}\nstarted_at: {now}\n"),
    ] {
        project.write(&content);
        let blocked = project.says("check", "blocked", 4);
        let info = &blocked["lock_info"];
        assert_eq!(info["exists"], true, "{content:?}");
        assert_eq!(info["is_zombie"], Value::Null, "unknown: {content:?}");
        let warned = blocked["errors"][0].as_str().unwrap();
        assert!(warned.contains("cannot be judged"), "{blocked}");
        for words in [[].as_slice(), &["--force"]] {
            expect(project.acquire("t", words), "blocked", 4);
            assert_eq!(project.text(), content, "unchanged");
        }
    }
    let taken = project.acquire("t", &["--force", "--yes"]);
    expect(taken, "acquired", 0);
    project.write("session_id: s\n");
    let released = project.says("release", "released", 0);
    let warned = released["errors"][0].as_str().unwrap();
    assert!(warned.contains("could not be judged"), "{released}");
    assert!(!project.file().exists(), "as the contract says");
}

#[test]
fn near_misses_are_read_as_what_they_mean() {
    let project = Project::new();
    let now = ago(HOUR);
    let seconds = now.parse::<jiff::Timestamp>().unwrap().as_second();
    let written = |pid: &str, at: &str, version: &str| {
        format!("{pid}\nsession_id: s\n{at}\nepic_spec: e\n{version}\n")
    };
    let plain = format!("started_at: {now}");
    let own = std::process::id();
    for (pid, at, version) in [
        (format!("pid: \"{own}\""), plain.clone(), "lock_version: 1"),
        (format!("PID: {own}"), plain.clone(), "lock_version: 1.0"),
        (format!("pid: {own}"), format!("timestamp: {now}"), ""),
        (
            format!("pid: {own}"),
            format!("started_at: {seconds}"),
            "lock_version: \"1.0\"",
        ),
        (
            format!("PID: \"{own}\""),
            format!("timestamp: \"{seconds}\""),
            "lock_version: \"1\"",
        ),
        (
            format!("pid: {own}"),
            format!("started_at: {seconds}000"),
            "",
        ),
    ] {
        let content = written(&pid, &at, version);
        project.write(&content);
        let blocked = project.says("check", "blocked", 4);
        let info = &blocked["lock_info"];
        assert_eq!(info["pid"], own, "{content}");
        assert_eq!(info["pid_alive"], true, "{content}");
        assert!(info["age_hours"].as_f64().unwrap() >= 1.0, "{blocked}");
        assert_eq!(blocked["errors"], json!([]), "{content}");
        project.acquire_says("t --force", "blocked", 4);
        assert_eq!(project.text(), content, "a live lock is not stolen");
        // The same record of a process that is dead is a zombie, which force takes over.
        let dead = content.replace(&own.to_string(), &NOBODY.to_string());
        project.write(&dead);
        project.says("check", "zombie-detected", 4);
    }
    for version in ["1.0", "\"1.0\"", "\"1\""] {
        let old =
            format!("pid: {NOBODY}\nstarted_at: 2020-01-01T00:00:00Z\nlock_version: {version}\n");
        project.write(&old);
        project.acquire_says("t", "zombie-detected", 4);
        project.acquire_says("t --force", "acquired", 0);
    }
}

#[test]
fn a_process_that_only_waits_to_be_collected_is_dead() {
    let project = Project::new();
    let child = project.scene.program("true").spawn().unwrap();
    let pid = child.id();
    eventually("the child to end", || state(pid) == Some('Z'));
    project.foreign(pid, &ago(HOUR));
    let zombie = project.says("check", "zombie-detected", 4);
    assert_eq!(zombie["lock_info"]["pid_alive"], false);
    let mut child = child;
    child.wait().unwrap();
}

#[test]
fn a_process_of_another_user_is_alive() {
    let project = Project::new();
    project.foreign(std::process::id(), &ago(HOUR));
    open_to_all(&project.root());
    fs::set_permissions(
        project.file(),
        std::os::unix::fs::PermissionsExt::from_mode(0o644),
    )
    .unwrap();
    let Some(blocked) = as_nobody(&project, &["check"]) else {
        skipped("skipped: needs root and setpriv");
        return;
    };
    let blocked = expect(blocked, "blocked", 4);
    assert_eq!(blocked["lock_info"]["pid_alive"], true, "EPERM is alive");
}

#[test]
fn a_process_that_cannot_be_checked_is_a_zombie() {
    let project = Project::new();
    project.acquired("s");
    // Recorded in another PID namespace, where its number means another process.
    let mut elsewhere = String::new();
    for line in project.text().lines() {
        let line = match line.strip_prefix("  pid_namespace: ") {
            Some(_) => "  pid_namespace: 1",
            None => line,
        };
        elsewhere.push_str(line);
        elsewhere.push('\n');
    }
    // Our own list would know better.
    fs::remove_dir_all(project.root().join(".tenure")).unwrap();
    project.write(&elsewhere);
    let zombie = project.says("check", "zombie-detected", 4);
    assert_eq!(zombie["lock_info"]["pid_alive"], Value::Null, "unknown");
    project.acquire_says("t", "zombie-detected", 4);
    project.acquire_says("t --force", "acquired", 0);
}

#[test]
fn a_start_in_the_future_is_age_0_with_a_warning() {
    let project = Project::new();
    let now_ms = SystemClock::new(None).now().stamp().wall_ms;
    project.foreign(std::process::id(), &at(now_ms + 48 * 3_600_000));
    for answer in [project.run(&["check"]), project.acquire("t", &[])] {
        let blocked = expect(answer, "blocked", 4);
        assert_eq!(blocked["lock_info"]["age_hours"], 0.0);
        let warning = blocked["errors"][0].as_str().unwrap();
        assert!(warning.contains("future"), "{warning}");
    }
}

#[test]
fn a_lock_dies_with_its_owner_and_the_default_owner_lasts() {
    let project = Project::new();
    let root = project.root();
    let line = format!(
        "tenure --profile sprint acquire --session-id s --epic-spec e --project-root '{}'",
        root.display()
    );
    // The shell has ended when this returns.
    let acquired = project.scene.shell(&line);
    assert!(
        acquired.stderr().contains("PID"),
        "whose life it follows is told: {}",
        acquired.said()
    );
    let acquired = expect(acquired, "acquired", 0);
    assert_eq!(acquired["lock_info"]["pid"], std::process::id());
    project.says("check", "blocked", 4);
    project.says("release", "released", 0);

    let line = format!("{line} --pid $$");
    expect(project.scene.shell(&line), "acquired", 0);
    let zombie = project.says("check", "zombie-detected", 4);
    assert_eq!(
        zombie["lock_info"]["pid_alive"], false,
        "that shell is gone"
    );
}

#[test]
fn without_a_lasting_ancestor_an_owner_is_asked_for() {
    let project = Project::new();
    let line = format!(
        "tenure --profile sprint acquire --session-id s --epic-spec e --project-root '{}'; exit $?",
        project.root().display()
    );
    let mut command = project.scene.program("unshare");
    command.args(["--pid", "--fork", "--mount-proc", "sh", "-c", &line]);
    let answer = answer(&mut command);
    if !answer.stdout().contains("status:") {
        skipped(&format!(
            "skipped: a PID namespace cannot be made: {}",
            answer.said()
        ));
        return;
    }
    let refused = expect(answer, "failure", 2);
    assert!(message(&refused).contains("--owner PID"), "{refused}");
    assert_eq!(project.names(), [""; 0], "nothing was made");
}

/// Another tool writes the file in two steps. What is there in between is read again.
#[test]
fn a_file_that_is_being_written_this_instant_is_waited_for() {
    let project = Project::new();
    let whole = record(std::process::id(), "slow", &ago(HOUR));
    for acquiring in [true, false] {
        fs::write(project.file(), &whole[..20]).unwrap();
        let mut command = if acquiring {
            project.acquiring("t", &[])
        } else {
            project.command(&["check"])
        };
        let reading = Started::piped(&mut command);
        std::thread::sleep(Duration::from_millis(300));
        fs::write(project.file(), &whole).unwrap();
        let blocked = expect(reading.finish(), "blocked", 4);
        assert_eq!(blocked["lock_info"]["session_id"], "slow");
        assert_eq!(project.text(), whole, "unchanged");
    }
}

#[test]
fn a_wait_outlives_a_file_that_is_rewritten_in_two_steps() {
    let project = Project::new();
    let whole = project.foreign(std::process::id(), &ago(HOUR));
    let mut waiting = Started::piped(&mut project.acquiring("t", &["--wait", "30s"]));
    std::thread::sleep(Duration::from_millis(300));
    fs::write(project.file(), &whole[..20]).unwrap();
    std::thread::sleep(Duration::from_millis(200));
    fs::write(project.file(), &whole).unwrap();
    std::thread::sleep(Duration::from_millis(300));
    assert!(!waiting.has_ended(), "it goes on waiting");
    remove(&project.file());
    expect(waiting.finish(), "acquired", 0);
}

#[test]
fn of_many_at_once_exactly_one_acquires() {
    for _ in 0..5 {
        let project = Project::new();
        let contenders: Vec<_> = (0..6)
            .map(|number| Started::piped(&mut project.acquiring(&format!("s-{number}"), &[])))
            .collect();
        let statuses: Vec<_> = contenders
            .into_iter()
            .map(|contender| document(&contender.finish())["status"].clone())
            .collect();
        let count = |status: &str| statuses.iter().filter(|it| **it == status).count();
        assert_eq!(
            (count("acquired"), count("blocked")),
            (1, 5),
            "{statuses:?}"
        );
    }
}

// release

#[test]
fn releasing_what_is_not_there_succeeds_and_creates_nothing() {
    let project = Project::new();
    for words in [["release"].as_slice(), &["release", "--session-id", "s"]] {
        let released = expect(project.run(words), "released", 0);
        assert_eq!(message(&released), "Lock released successfully");
        assert_eq!(released["errors"], json!([]));
        assert_eq!(released["lock_info"]["exists"], false);
    }
    assert_eq!(project.names(), [""; 0], "nothing was made");
}

#[test]
fn the_session_that_has_the_lock_releases_it() {
    let project = Project::new();
    project.acquired("s");
    let released = project.says("release --session-id s", "released", 0);
    assert_eq!(released["errors"], json!([]));
    assert_eq!(project.names(), [".tenure"], "the file is gone");
    project.acquired("t");
}

/// Another tool names its sessions as it likes, and what the lock file has is what is shown.
#[test]
fn a_session_shows_whatever_the_lock_file_names() {
    let project = Project::new();
    for session in ["my session", "sprint/7", "é"] {
        let text = record(std::process::id(), session, &ago(HOUR));
        project.write(&text);
        expect(
            project.run(&["check", "--session-id", session]),
            "acquired",
            0,
        );
        let refused = project.run(&["release", "--session-id", "no session"]);
        let refused = expect(refused, "failure", 2);
        assert!(message(&refused).contains("\"no session\""), "{refused}");
        assert!(project.file().exists(), "nothing was touched");
        let document = format!("mode: release\nsession_id: {session}\n");
        let released = expect(
            project.input(
                "release",
                &document,
                &["--project-root", &project.root().display().to_string()],
            ),
            "released",
            0,
        );
        assert_eq!(released["errors"], json!([]), "it is the lock's own");
        assert!(!project.file().exists());
    }
    let found = project.run(&["audit", "--output", "json"]).json();
    let events = found["data"]["events"].as_array().expect("events");
    assert!(
        events
            .iter()
            .any(|event| event["request_id"] == "my session"),
        "{found}"
    );
}

#[test]
fn without_a_session_id_nothing_is_compared() {
    let project = Project::new();
    project.foreign(std::process::id(), &ago(HOUR));
    let released = project.says("release", "released", 0);
    assert_eq!(released["errors"], json!([]));
    assert!(!project.file().exists());
}

#[test]
fn a_session_mismatch_is_a_warning_and_the_lock_is_removed() {
    let project = Project::new();
    project.foreign(std::process::id(), &ago(HOUR));
    let answer = project.run(&["release", "--session-id", "sprint-2"]);
    let warning = "Lock session mismatch (expected: sprint-2, actual: sprint-1)";
    assert!(answer.stderr().contains(warning), "{}", answer.said());
    let released = expect(answer, "released", 0);
    assert_eq!(message(&released), "Lock released successfully");
    assert_eq!(released["errors"], json!([warning]));
    assert!(!project.file().exists());
}

#[test]
fn a_corrupt_lock_is_removed_with_a_warning() {
    let project = Project::new();
    for words in [["release"].as_slice(), &["release", "--session-id", "s"]] {
        project.write("pid: [");
        let released = expect(project.run(words), "released", 0);
        let errors = released["errors"].as_array().unwrap();
        assert_eq!(errors.len(), 1, "{released}");
        assert!(!project.file().exists());
    }
}

#[test]
fn a_release_removes_what_the_original_tool_left_behind() {
    let project = Project::new();
    let leftover = project.root().join(".sprint-running.tmp");
    fs::write(&leftover, "pid: 1").unwrap();
    project.says("release", "released", 0);
    assert!(!leftover.exists());
    fs::write(&leftover, "pid: 1").unwrap();
    project.acquired("s");
    project.says("release", "released", 0);
    assert!(!leftover.exists());
}

#[test]
fn releasing_a_supervised_run_ends_it_as_lost() {
    let project = Project::new();
    let root = project.root();
    let flags = [
        "--profile",
        "sprint",
        "--project-root",
        root.to_str().unwrap(),
    ];
    let held = project.scene.hold("sprint", flags);
    let command = held.command;
    let released = project.says("release --session-id s", "released", 0);
    assert!(
        released["errors"][0]
            .as_str()
            .unwrap()
            .starts_with("Lock session mismatch")
    );
    let _ = held.finish().expect(80, "its lock is lost");
    assert!(!is_alive(command), "and its command ended");
}

// check

#[test]
fn check_reads_and_creates_nothing() {
    let project = Project::new();
    let clean = project.says("check", "clean", 0);
    assert_eq!(clean["lock_info"]["exists"], false);
    assert_eq!(project.names(), [""; 0], "nothing was made");
    for (pid, status) in [(std::process::id(), "blocked"), (NOBODY, "zombie-detected")] {
        let before = project.foreign(pid, &ago(HOUR));
        expect(project.run(&["check"]), status, 4);
        assert_eq!(project.text(), before, "unchanged");
        assert_eq!(project.names(), [".sprint-running"], "nothing was made");
    }
}

#[test]
fn a_session_finds_its_own_lock() {
    let project = Project::new();
    project.acquired("s");
    let own = project.says("check --session-id s", "acquired", 0);
    assert!(message(&own).contains("held by this session"), "{own}");
    project.says("check --session-id t", "blocked", 4);
    project.says("check", "blocked", 4);
    // Also a lock that the original tool wrote, and not one that has ended.
    project.foreign(std::process::id(), &ago(HOUR));
    let words = ["check", "--session-id", "sprint-1"];
    expect(project.run(&words), "acquired", 0);
    project.foreign(NOBODY, &ago(HOUR));
    expect(project.run(&words), "zombie-detected", 4);
}

#[test]
fn health_speaks_in_pass_fail_and_warn() {
    let project = Project::new();
    project.says("check --health", "pass", 0);
    project.acquired("s");
    project.says("check --health --session-id s", "pass", 0);
    project.says("check --health", "fail", 4);
    project.foreign(NOBODY, &ago(HOUR));
    project.says("check --health", "warn", 4);
    let nowhere = ["--profile", "sprint", "check", "--health"];
    expect(project.scene.run(nowhere), "failure", 2);
}

// The document on stdin.

#[test]
fn the_call_may_be_a_document_of_yaml_or_json() {
    let project = Project::new();
    let root = project.root();
    let root = root.to_str().unwrap();
    let own = std::process::id();
    let yaml = format!(
        "mode: acquire\nproject_root: {root}\nsession_id: sprint-1\nepic_spec: epic5\npid: {own}\n"
    );
    let acquired = expect(project.input("acquire", &yaml, &[]), "acquired", 0);
    assert_eq!(acquired["lock_info"]["pid"], own);
    let call = |fields: Value| {
        let mut call = json!({ "project_root": root });
        let fields = fields.as_object().unwrap().clone();
        call.as_object_mut().unwrap().extend(fields);
        serde_json::to_string_pretty(&call).unwrap()
    };
    let check = call(json!({ "mode": "check", "session_id": "sprint-1" }));
    expect(project.input("check", &check, &[]), "acquired", 0);
    let forced = call(json!({
        "mode": "acquire", "session_id": "sprint-2", "epic_spec": "epic6", "force": true,
        "owner": own,
    }));
    expect(project.input("acquire", &forced, &[]), "blocked", 4);
    let confirmed = call(json!({
        "mode": "acquire", "session_id": "sprint-2", "epic_spec": "epic6", "force": true,
        "yes": true, "owner": own.to_string(), "lock_file_name": null,
    }));
    expect(project.input("acquire", &confirmed, &[]), "acquired", 0);
    let release = call(json!({ "mode": "release", "session_id": "sprint-2", "epic_spec": "e" }));
    let released = expect(project.input("release", &release, &[]), "released", 0);
    assert_eq!(released["errors"], json!([]));
    assert!(!project.file().exists());
}

#[test]
fn a_flag_counts_for_more_than_the_document() {
    let project = Project::new();
    let own = std::process::id().to_string();
    let call = "project_root: /nowhere\nsession_id: a\nepic_spec: a\nlock_file_name: a\n";
    let root = project.root();
    let flags = [
        "--project-root",
        root.to_str().unwrap(),
        "--session-id",
        "b",
        "--epic-spec",
        "b",
        "--lock-file-name",
        "b",
        "--owner",
        &own,
    ];
    let acquired = expect(project.input("acquire", call, &flags), "acquired", 0);
    assert_eq!(acquired["lock_info"]["session_id"], "b");
    assert_eq!(acquired["lock_info"]["epic_spec"], "b");
    assert_eq!(project.names(), [".tenure", "b"]);
}

#[test]
fn a_mode_that_there_is_not_or_that_differs_is_invalid() {
    let project = Project::new();
    let root = project.root();
    for (verb, mode) in [
        ("acquire", "release"),
        ("check", "acquire"),
        ("release", "\"\""),
        ("check", "Check"),
        ("check", "\"\\e[31m\""),
    ] {
        let call = format!("mode: {mode}\nproject_root: {}\n", root.display());
        let refused = expect(project.input(verb, &call, &[]), "failure", 2);
        assert!(message(&refused).starts_with("Invalid mode"), "{refused}");
    }
    assert_eq!(project.names(), [""; 0], "nothing was made");
}

#[test]
fn the_mode_of_a_document_is_verb_enough() {
    let project = Project::new();
    let root = project.root();
    let call = |document: &str, flags: &[&str]| {
        let document = format!("{document}\nproject_root: {}\n", root.display());
        let mut command = project.scene.tenure(["--profile", "sprint"]);
        command.args(flags);
        project.feed(&mut command, document.as_bytes())
    };
    let own = std::process::id();
    let input = ["--input", "-"];
    assert_eq!(
        expect(call("mode: check", &input), "clean", 0)["mode"],
        "check"
    );
    assert_eq!(project.names(), [""; 0], "check made nothing");
    let acquire = format!("mode: acquire\nsession_id: s-1\nepic_spec: e\nowner: {own}");
    expect(call(&acquire, &input), "acquired", 0);
    let blocked = expect(call("mode: check", &["--input=-"]), "blocked", 4);
    assert_eq!(blocked["lock_info"]["session_id"], "s-1", "{blocked}");
    // The flags are those of the verb that the document names.
    let mine = ["--input", "-", "--session-id", "s-1", "--health"];
    expect(call("mode: check", &mine), "pass", 0);
    let json = call("mode: check", &["--output", "json", "--input", "-"]).expect(4, "blocked");
    let json: Value = serde_json::from_str(&json.stdout()).unwrap();
    assert_eq!(json["meta"]["command"], "check", "{json}");
    assert_eq!(json["error"]["context"]["status"], "blocked", "{json}");
    expect(
        call("mode: release\nsession_id: s-1", &input),
        "released",
        0,
    );
    assert!(!project.file().exists(), "it is released");

    for (document, flags, sentence) in [
        ("session_id: s-1", &input[..], "mode required"),
        ("mode: status", &input, "Invalid mode"),
        ("mode: run", &input, "Invalid mode"),
        ("mode: [", &input, "--input -"),
        ("mode: check", &["--input", "call.yaml"], "stdin only"),
        ("mode: release", &["--input", "-", "--health"], "--health"),
        ("mode: check", &["--input"], "--input"),
    ] {
        let refused = expect(call(document, flags), "failure", 2);
        assert!(
            message(&refused).contains(sentence),
            "{document} {flags:?}: {refused}"
        );
    }
    let mut native = project.scene.tenure(["--input", "-"]);
    let refused = project
        .feed(&mut native, b"mode: check\n")
        .expect(2, "sprint's alone");
    assert!(
        refused.stderr().contains("sprint profile"),
        "{}",
        refused.said()
    );
    assert!(!project.file().exists(), "nothing was made");
}

#[test]
fn a_document_that_cannot_be_read_is_bad_input() {
    let project = Project::new();
    for call in [
        "",
        "mode",
        "mode: [",
        "- a",
        "mode: check\nforse: true\n",
        "force: maybe\n",
    ] {
        let refused = expect(project.input("check", call, &[]), "failure", 2);
        assert!(
            message(&refused).contains("--input -"),
            "{call:?}: {refused}"
        );
        assert_eq!(refused["mode"], "check");
    }
    let large = vec![b' '; (1 << 20) + 1];
    let mut command = project
        .scene
        .tenure(["--profile", "sprint", "check", "--input", "-"]);
    let refused = project.feed(&mut command, &large);
    let refused = expect(refused, "failure", 2);
    assert!(message(&refused).contains("larger"), "{refused}");
}

// The lock file's name.

#[test]
fn the_lock_file_may_have_another_bare_name() {
    let project = Project::new();
    let name = ["--lock-file-name", "my lock.yaml"];
    expect(project.acquire("s", &name), "acquired", 0);
    assert_eq!(project.names(), [".tenure", "my lock.yaml"]);
    project.says("check", "clean", 0);
    expect(project.run(&["check", name[0], name[1]]), "blocked", 4);
    expect(project.run(&["release", name[0], name[1]]), "released", 0);
    assert_eq!(project.names(), [".tenure"]);
}

#[test]
fn a_lock_file_name_that_is_not_bare_is_bad_input() {
    let project = Project::new();
    for bad in [".", "..", "a/b", "/a", "../a", ".tenure", "a\nb"] {
        for verb in ["check", "release"] {
            let refused = project.run(&[verb, "--lock-file-name", bad]);
            expect(refused, "failure", 2);
        }
        let refused = project.acquire("s", &["--lock-file-name", bad]);
        expect(refused, "failure", 2);
    }
    let call = format!(
        "project_root: {}\nlock_file_name: ''\n",
        project.root().display()
    );
    expect(project.input("check", &call, &[]), "failure", 2);
    assert_eq!(project.names(), [""; 0], "nothing was made");
}

// How it is said.

#[test]
fn nothing_from_a_record_reaches_a_terminal_raw() {
    let project = Project::new();
    let own = std::process::id();
    project.write(&format!(
        "pid: {own}\nsession_id: \"a\\e[31m\\u009b\\u202eb\"\nstarted_at: {}\nepic_spec: \"\\a\\r\"\n",
        ago(HOUR)
    ));
    for answer in [
        project.run(&["check"]),
        project.acquire("t", &["-v"]),
        project.acquire("t", &["--force"]),
        project.run(&["release", "--session-id", "t"]),
    ] {
        for said in [answer.stdout(), answer.stderr()] {
            let raw = |c: char| c != '\n' && (c.is_control() || c == '\u{202e}');
            assert!(!said.contains(raw), "{said:?}");
        }
        document(&answer);
    }
}

#[test]
fn json_puts_the_object_into_the_envelope() {
    let project = Project::new();
    let acquired = project.acquire("s", &["--output", "json"]);
    let envelope = acquired.expect(0, "acquired").json();
    assert_eq!(envelope["data"]["status"], "acquired");
    assert_eq!(envelope["error"], Value::Null);
    assert_eq!(envelope["meta"]["request_id"], "s");
    let blocked = project.acquire("t", &["--output", "json"]);
    let envelope = blocked.expect(4, "blocked").json();
    assert_eq!(envelope["ok"], false);
    assert_eq!(envelope["data"], Value::Null);
    let error = &envelope["error"];
    assert_eq!(error["context"]["status"], "blocked");
    assert_eq!(error["code"], "LOCK_HELD");
    assert!(error["retry_after_ms"].as_u64().unwrap() > 0);
    assert_eq!(error["message"], error["context"]["message"]);
    let failed = project.run(&["frobnicate", "--output", "json"]);
    let envelope = failed.expect(2, "a failure").json();
    assert_eq!(envelope["error"]["context"]["status"], "failure");
    let mut asked = project.command(&["check"]);
    let envelope = answer(asked.env("TENURE_OUTPUT", "json")).json();
    assert_eq!(envelope["error"]["context"]["status"], "blocked");
    // YAML is what the object is written in, and needs no envelope.
    project.says("check --output yaml", "blocked", 4);
    project.says("check --nonsense --output yaml", "failure", 2);
}

/// The object of every status, in both formats, with what differs from call to call replaced.
#[test]
fn the_object_of_every_status_is_as_published() {
    let project = Project::new();
    let own = std::process::id();
    let root = project.root();
    let settle = |text: &str| {
        let mut settled = String::new();
        for line in text.replace(root.to_str().unwrap(), "[ROOT]").lines() {
            let line = line.replace(&own.to_string(), "[PID]");
            let line = match line.split_once("age_hours: ") {
                Some((before, age)) if age != "null" => format!("{before}age_hours: [AGE]"),
                _ => line,
            };
            settled.push_str(&line);
            settled.push('\n');
        }
        settled
    };
    let published = |words: &[&str], code: i32| {
        let yaml = project.run(words).expect(code, "a status");
        let document = document(&yaml);
        let started = document["lock_info"]["started_at"].as_str();
        let started = started.unwrap_or("[STARTED]").to_owned();
        settle(&yaml.stdout().replace(&started, "[STARTED]"))
    };
    let own = own.to_string();
    let acquire = |session| {
        [
            "acquire",
            "--session-id",
            session,
            "--epic-spec",
            "epic5",
            "--owner",
            &own,
        ]
    };
    let mut all = vec![
        published(&["check"], 0),
        published(&acquire("sprint-1"), 0),
        published(&acquire("sprint-2"), 4),
        published(&["check", "--session-id", "sprint-1"], 0),
        published(&["check", "--health"], 4),
        published(&["release", "--session-id", "sprint-2"], 0),
        published(&["acquire", "--session-id", "sprint-1"], 2),
    ];
    project.foreign(NOBODY, "2026-02-07T10:00:00Z");
    all.push(published(&acquire("sprint-2"), 4));
    project.write("pid: [");
    all.push(published(&["check"], 4));
    snapbox::assert_data_eq!(
        all.join("---\n"),
        snapbox::file!["golden/sprint.yaml"].raw()
    );

    let mut envelopes = String::new();
    let mut envelope = |words: &[&str]| {
        let words = [words, &["--output", "json"]].concat();
        let mut envelope = project.run(&words).json();
        envelope["meta"] = json!("[META]");
        for part in ["/data/lock_info", "/error/context/lock_info"] {
            let Some(info) = envelope.pointer_mut(part) else {
                continue;
            };
            for key in ["pid", "age_hours", "started_at"] {
                if !info[key].is_null() {
                    info[key] = json!("[KNOWN]");
                }
            }
        }
        for part in [
            "/error/detail",
            "/error/message",
            "/error/context/message",
            "/error/retry_after_ms",
        ] {
            if let Some(said) = envelope.pointer_mut(part) {
                *said = json!("[SAID]");
            }
        }
        envelopes.push_str(&serde_json::to_string_pretty(&envelope).unwrap());
        envelopes.push('\n');
    };
    remove(&project.file());
    envelope(&["check"]);
    envelope(&acquire("sprint-1"));
    envelope(&acquire("sprint-2"));
    envelope(&["release"]);
    project.foreign(NOBODY, "2026-02-07T10:00:00Z");
    envelope(&["check"]);
    envelope(&["acquire"]);
    snapbox::assert_data_eq!(envelopes, snapbox::file!["golden/sprint.json.txt"].raw());
}

// The other verbs.

#[test]
fn the_other_verbs_need_no_name_either() {
    let project = Project::new();
    project.follows(
        r#"
        $ tenure run --session-id r --epic-spec epic7 -- cat project/.sprint-running
        pid: [N]
        session_id: "r"
        started_at: "[TIME]"
        epic_spec: "epic7"
        lock_version: 1
        tenure:
        ...
        "#,
    );
    project.acquired("s");
    project.follows(
        r#"
        $ tenure heartbeat --session-id s
        renewed sprint, fencing token [N], ttl 1d
        $ tenure list --output json
        {"ok":true,"data":{"locks":[{"name":"sprint",[..]}
        $ tenure wait -n
        ? 4
        ! Sprint already running (PID: [N], session: s, started: [TIME])
        $ tenure force-release --yes
        removed the lock sprint of request s after [..]
        ! sprint: ended the live hold of request s; it may be at work until it notices
        $ tenure wait -n
        sprint is free
        $ tenure clean
        removed 0 stale claims and 1 unused lock file
        "#,
    );
}

#[test]
fn a_run_that_is_refused_says_it_in_known_words() {
    let project = Project::new();
    project.acquired("s");
    let root = project.root();
    let refused = project.scene.run([
        "--profile",
        "sprint",
        "--project-root",
        root.to_str().unwrap(),
        "run",
        "--",
        "true",
    ]);
    let refused = refused.expect(4, "held");
    let said = refused.stderr();
    assert!(said.contains("Sprint already running (PID: "), "{said}");
}
