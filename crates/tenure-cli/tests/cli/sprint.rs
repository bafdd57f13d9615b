//! The sprint profile's contract beyond `pages/sprint.txt`: waits, races, ages, other users, and the status object
//! as it was published.

use crate::support::{
    Answer, Scene, Started, TENURE, answer, eventually, is_alive, is_root, state, timed,
};
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use tenure_os::clock::{Clock as _, SystemClock};

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
        "tenure --profile sprint acquire --session-id s --epic-spec e --project-root '{}'",
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

/// A process that is dead is a zombie's whatever the date. A date that cannot be judged protects one that lives.
#[test]
fn a_date_that_cannot_be_judged_protects_the_living_alone_table() {
    let project = Project::new();
    let own = std::process::id();
    for date in ["yesterday", "[now]", "~", "20260207", "2026-13-77", "\"\""] {
        project.foreign(NOBODY, date);
        project.says("check", "zombie-detected", 4);
        project.acquire_says("sprint-2", "zombie-detected", 4);
        project.acquire_says("sprint-2 --force", "acquired", 0);
        project.says("release", "released", 0);
        let record = project.foreign(own, date);
        project.says("check", "blocked", 4);
        project.acquire_says("sprint-2 --force", "blocked", 4);
        assert_eq!(project.text(), record, "{date}: nothing was changed");
        project.acquire_says("sprint-2 --force --yes", "acquired", 0);
        project.says("release", "released", 0);
    }
    // What `date` and people write can be judged: such a lock is as old as it says.
    for date in [
        "Sat Feb  7 10:00:00 UTC 2026",
        "Sat, 07 Feb 2026 10:00:00 +0000",
        "2026/02/07 10:00:00",
        "1770458400",
    ] {
        project.foreign(own, date);
        project.says("check", "zombie-detected", 4);
        project.says("release", "released", 0);
    }
}

/// The contract's own file says `version: 1.0.0`. A word is no version: the process decides.
#[test]
fn a_version_in_any_spelling_table() {
    let project = Project::new();
    let date = ago(Duration::from_secs(60));
    let with = |pid: u32, version: &str| {
        let text = record(pid, "sprint-1", &date);
        project.write(&text.replace("lock_version: 1", &format!("lock_version: {version}")))
    };
    for version in [
        "1",
        "1.0",
        "1.0.0",
        "\"1.0.0\"",
        "v1",
        "v1.0",
        "one",
        "latest",
        "~",
        "true",
    ] {
        with(NOBODY, version);
        project.acquire_says("sprint-2", "zombie-detected", 4);
        project.acquire_says("sprint-2 --force", "acquired", 0);
        project.says("release", "released", 0);
        with(std::process::id(), version);
        project.acquire_says("sprint-2", "blocked", 4);
        project.says("release", "released", 0);
    }
    for version in ["2", "1.1", "1.1.0", "v2", "2.0.0", "[1]"] {
        with(NOBODY, version);
        project.acquire_says("sprint-2 --force", "blocked", 4);
        project.says("release", "released", 0);
    }
}

/// A record that cannot be replaced leaves nothing beside it.
#[test]
fn a_forced_write_that_fails_leaves_nothing_behind() {
    let project = Project::new();
    project.foreign(NOBODY, "2026-02-07T10:00:00Z");
    let chattr = |flag: &str| {
        let mut chattr = project.scene.program("chattr");
        answer(chattr.arg(flag).arg(project.file()))
            .status()
            .success()
    };
    if !chattr("+i") {
        skipped("skipped: no file here can be made immutable");
        return;
    }
    let refused = project.acquire("sprint-2", &["--force"]);
    assert!(chattr("-i"), "it can be changed again");
    assert_ne!(refused.code(), 0, "{}", refused.said());
    let left = fs::read_dir(project.root().join(".tenure")).map_or_else(
        |_| Vec::new(),
        |left| {
            left.map(|file| file.unwrap().file_name().into_string().unwrap())
                .collect()
        },
    );
    assert!(left.iter().all(|name| !name.contains(".new")), "{left:?}");
    project.acquire_says("sprint-2 --force", "acquired", 0);
}

/// Force does not reach a live session without `--yes`, so a call that may wait waits for that session.
#[test]
fn a_forced_call_that_may_wait_waits_for_a_live_session() {
    let project = Project::new();
    project.acquired("sprint-1");
    let (_, took) = timed(|| project.acquire_says("sprint-2 --force --wait 0.6s", "blocked", 4));
    assert!(took >= Duration::from_millis(600), "{took:?}");
    let mut waiter = project.acquiring("sprint-2", &["--force", "--wait", "20s"]);
    let waiter = Started::piped(&mut waiter);
    std::thread::sleep(Duration::from_millis(300));
    project.says("release --session-id sprint-1", "released", 0);
    expect(waiter.finish(), "acquired", 0);
    project.says("release", "released", 0);
    // A session whose process ends meanwhile is a zombie, and force takes it over.
    let mut process = project.scene.program("sleep");
    let mut process = process.arg("600").spawn().expect("a process");
    project.foreign(process.id(), &ago(Duration::from_secs(60)));
    let mut waiter = project.acquiring("sprint-2", &["--force", "--wait", "20s"]);
    let waiter = Started::piped(&mut waiter);
    std::thread::sleep(Duration::from_millis(300));
    process
        .kill()
        .and_then(|()| process.wait())
        .expect("its end");
    expect(waiter.finish(), "acquired", 0);
}
