//! Rules of the five contracts that no other test holds: what the audit says, and some corners.
//! `docs/internals/systems-coverage.md` has all of the rules with their tests.
#![allow(
    clippy::disallowed_methods,
    reason = "the dates in its records are of the machine's own clock"
)]

use crate::support::{Answer, Scene, Started, answer, is_root};
use rustix::process::Signal;
use serde_json::{Value, json};
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

const INTENT: [&str; 4] = ["--intent-name", "deploy", "--intent-version", "1.2.0"];

/// A call with a profile, in the test's folder.
fn call(scene: &Scene, profile: &str, words: &[&str]) -> Answer {
    let mut command = scene.tenure(["--profile", profile].iter().chain(words));
    answer(command.current_dir(scene.root()))
}

fn fleet(scene: &Scene, verb: &str, words: &[&str]) -> Answer {
    let all: Vec<&str> = [verb, "x"]
        .iter()
        .chain(&INTENT)
        .chain(words)
        .copied()
        .collect();
    call(scene, "fleet", &all)
}

/// A private folder, and in it a file that was written so many seconds ago.
fn plant(path: &Path, text: &str, seconds: u64) {
    let folder = path.parent().unwrap();
    fs::create_dir_all(folder).unwrap();
    for folder in [folder, folder.parent().unwrap()] {
        fs::set_permissions(folder, Permissions::from_mode(0o700)).unwrap();
    }
    fs::write(path, text).unwrap();
    let file = fs::File::options().write(true).open(path).unwrap();
    let at = SystemTime::now() - Duration::from_secs(seconds);
    file.set_modified(at).unwrap();
}

fn ago(seconds: i64) -> String {
    let at = jiff::Timestamp::now() - jiff::SignedDuration::from_secs(seconds);
    format!("{at:.0}")
}

/// A fleet record of another program, silent for so many seconds.
fn plant_fleet(scene: &Scene, silent: i64) -> (Value, PathBuf) {
    let record = json!({
        "lock_version": "v1",
        "lock_name": "x",
        "request_id": "req_0123456789ab",
        "actor": "alice",
        "intent": "deploy",
        "intent_version": "1.0",
        "host_id": "fleet-3",
        "pid": 999_999_999,
        "created_at": ago(silent + 60),
        "last_heartbeat_at": ago(silent),
        "ttl_seconds": 900,
    });
    let path = scene.locks().join("x.lock");
    plant(&path, &record.to_string(), 0);
    (record, path)
}

/// What `sha256sum` makes of a file, as the audit writes it.
fn hash(scene: &Scene, path: &Path) -> String {
    let told = answer(scene.program("sha256sum").arg(path)).expect(0, "a hash");
    let text = told.stdout();
    format!("sha256:{}", text.split_whitespace().next().unwrap())
}

/// The lines of the one file that a request's events stand in.
fn lines_of(scene: &Scene, request_id: &str) -> Vec<Value> {
    let date = |name: &str| name.len() == "2026-02-07".len() && name.starts_with("20");
    let days: Vec<_> = fs::read_dir(scene.locks().join("audit"))
        .expect("<dir>/audit")
        .map(|item| item.unwrap().path())
        .filter(|path| date(path.file_name().unwrap().to_str().unwrap()))
        .collect();
    let files = days
        .iter()
        .map(|day| day.join(format!("{request_id}.jsonl")));
    let text: String = files
        .filter_map(|file| fs::read_to_string(file).ok())
        .collect();
    text.lines()
        .map(|line| {
            let event: Value = serde_json::from_str(line).expect("one object per line");
            let keys: Vec<_> = event.as_object().unwrap().keys().collect();
            assert!(keys.is_sorted(), "sorted keys: {line}");
            for key in ["event", "request_id", "timestamp", "lock_name"] {
                assert!(event[key].is_string(), "{key}: {line}");
            }
            event
        })
        .collect()
}

fn names(events: &[Value]) -> Vec<&str> {
    events
        .iter()
        .map(|event| event["event"].as_str().unwrap())
        .collect()
}

/// All events of a profile's audit, as `audit` shows them.
fn audit(scene: &Scene, profile: &str, words: &[&str]) -> Vec<Value> {
    let all = [words, &["audit", "--output", "json"]].concat();
    let document = call(scene, profile, &all).expect(0, "audit").json();
    document["data"]["events"].as_array().unwrap().clone()
}

// Sprint

/// A project with the flags that name it, and `acquire` in the name of this test.
fn project(scene: &Scene) -> (PathBuf, String) {
    let root = scene.path("project");
    fs::create_dir_all(&root).unwrap();
    let text = root.to_str().unwrap().to_owned();
    (root.join(".sprint-running"), text)
}

fn acquire_sprint(scene: &Scene, root: &str, session: &str, more: &[&str]) -> Answer {
    let own = std::process::id().to_string();
    let words = [
        "acquire",
        "--session-id",
        session,
        "--epic-spec",
        "e",
        "--owner",
        &own,
        "--project-root",
        root,
    ];
    call(scene, "sprint", &[words.as_slice(), more].concat())
}

#[test]
fn sprint_a_write_that_fails_is_12_and_leaves_nothing() {
    let scene = Scene::new();
    let (file, root) = project(&scene);
    let line = format!(
        "trap '' XFSZ; ulimit -f 0; exec tenure --profile sprint acquire --session-id s \
         --epic-spec e --owner {} --project-root '{root}'",
        std::process::id()
    );
    let failed = scene
        .shell(&line)
        .expect(12, "a file that cannot be written");
    assert!(
        failed.stdout().starts_with("status: failure\n"),
        "{}",
        failed.said()
    );
    assert!(!file.exists());
    let left: Vec<_> = fs::read_dir(&root)
        .unwrap()
        .map(|item| item.unwrap().file_name())
        .filter(|name| name != ".tenure")
        .collect();
    assert!(left.is_empty(), "no temporary: {left:?}");
}

#[test]
fn sprint_a_corrupt_lock_leaves_its_bytes_in_the_audit() {
    let scene = Scene::new();
    let (file, root) = project(&scene);
    let place = ["--project-root", root.as_str()];
    for forced in [true, false] {
        plant(&file, "pid: [", 60);
        let hash = hash(&scene, &file);
        let told = if forced {
            acquire_sprint(&scene, &root, "s", &["--force"])
        } else {
            let words = [&["release"], place.as_slice()].concat();
            call(&scene, "sprint", &words)
        };
        let _ = told.expect(0, "taken over, or removed");
        let stolen: Vec<_> = audit(&scene, "sprint", &place)
            .into_iter()
            .filter(|event| event["event"] == "lock_stolen")
            .collect();
        let last = stolen.last().expect("an event");
        assert_eq!(last["reason"], "corrupt_lock");
        assert_eq!(last["previous_lock_raw_base64"], "cGlkOiBb");
        assert_eq!(last["previous_lock_hash"], hash);
        assert_eq!(stolen.len(), if forced { 1 } else { 2 });
    }
}

#[test]
fn sprint_records_its_owners_start_and_boot() {
    let scene = Scene::new();
    let (file, root) = project(&scene);
    let _ = acquire_sprint(&scene, &root, "s", &[]).expect(0, "acquired");
    let text = fs::read_to_string(file).unwrap();
    let record: Value = serde_saphyr::from_str(&text).unwrap();
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    assert_eq!(record["tenure"]["boot_id"], boot.trim(), "{text}");
    assert!(record["tenure"]["started"].is_u64(), "{text}");
}

#[test]
fn sprint_a_release_by_another_session_is_audited_as_such() {
    let scene = Scene::new();
    let (_, root) = project(&scene);
    for (releasing, by_other) in [("t", true), ("s", false)] {
        let _ = acquire_sprint(&scene, &root, "s", &[]).expect(0, "acquired");
        let words = [
            "release",
            "--session-id",
            releasing,
            "--project-root",
            root.as_str(),
        ];
        let _ = call(&scene, "sprint", &words).expect(0, "released");
        let events = audit(&scene, "sprint", &["--project-root", root.as_str()]);
        let last = events.last().expect("an event");
        assert_eq!(last["event"], "lock_released");
        assert_eq!(
            last["by_other"].as_bool().unwrap_or(false),
            by_other,
            "{last}"
        );
    }
}

// Resume

#[test]
fn resume_acquire_check_list_and_release_go_together() {
    let scene = Scene::new();
    // A process that lives and is none of ours, to which the lock would be its own.
    let mut owner = scene.program("sleep").arg("60").spawn().unwrap();
    let pid = owner.id().to_string();
    let words = ["acquire", "job", "--owner", &pid, "--request-id", "r"];
    let _ = call(&scene, "resume", &words).expect(0, "acquired");
    let _ = call(&scene, "resume", &["check", "job"]).expect(4, "held");
    let listed = call(&scene, "resume", &["list", "--output", "json"]).json();
    assert_eq!(listed["data"]["locks"][0]["name"], "job");
    assert_eq!(listed["data"]["locks"][0]["holder"]["pid"], owner.id());
    let words = ["release", "job", "--request-id", "r"];
    let _ = call(&scene, "resume", &words).expect(0, "released");
    let _ = call(&scene, "resume", &["check", "job"]).expect(0, "free");
    let _ = call(&scene, "resume", &words).expect(0, "absent");
    owner.kill().unwrap();
    owner.wait().unwrap();
}

// The envelope

#[test]
fn envelope_meta_tells_the_command_the_schema_and_the_time() {
    let scene = Scene::new();
    for verb in ["list", "check", "profiles", "clean"] {
        let before = jiff::Timestamp::now().as_second();
        let meta = scene.run([verb, "--output", "json"]).json()["meta"].clone();
        assert_eq!(meta["command"], verb);
        assert!(meta["schema_version"].is_string(), "{meta}");
        assert!(meta["duration_ms"].is_u64(), "{meta}");
        let at: jiff::Timestamp = meta["timestamp"].as_str().unwrap().parse().unwrap();
        let after = jiff::Timestamp::now().as_second();
        assert!((before..=after).contains(&at.as_second()), "{meta}");
    }
}

#[test]
fn envelope_a_native_wait_is_10_seconds_unless_said() {
    let scene = Scene::new();
    let words = ["acquire", "x", "--owner", "none"];
    let _ = scene.run(words).expect(0, "acquired");
    let error = |words: &[&str]| {
        let answer = scene.run(words).expect(4, "held");
        answer.json()["error"].clone()
    };
    let waited = error(&["run", "x", "--output", "json", "--", "true"]);
    let message = waited["message"].as_str().unwrap();
    assert!(message.ends_with("timed out after 10s"), "{message}");
    let waited_ms = waited["context"]["waited_ms"].as_u64().unwrap();
    assert!((10_000..10_500).contains(&waited_ms), "{waited}");
    // A busy machine may be late once, and not every time.
    let late = (0..5).map(|_| {
        let waited = error(&["acquire", "x", "--wait", "200ms", "--output", "json"]);
        let waited_ms = waited["context"]["waited_ms"].as_u64().unwrap();
        assert!(waited_ms >= 200, "never early: {waited}");
        waited_ms - 200
    });
    let least = late.min().unwrap();
    assert!(least < 50, "{least} ms late, each time");
}

#[test]
fn envelope_age_counts_from_acquisition() {
    let scene = Scene::new();
    let words = ["acquire", "x", "--owner", "none", "--request-id", "r"];
    let _ = scene.run(words).expect(0, "acquired");
    std::thread::sleep(Duration::from_millis(1_100));
    let renewed = scene.run(["heartbeat", "x", "--request-id", "r"]);
    let _ = renewed.expect(0, "renewed");
    let refused = scene.run(["acquire", "x", "-n", "--output", "json"]);
    let error = refused.expect(4, "held").json()["error"].clone();
    let age = error["context"]["holder"]["age_ms"].as_u64().unwrap();
    assert!(age >= 1_100, "a renewal makes no lock younger: {error}");
    let detail = error["detail"].as_str().unwrap();
    assert!(detail.ends_with(&format!("holder_age_ms={age}")), "{error}");
}

#[test]
fn envelope_an_unreadable_holder_has_null_facts() {
    let scene = Scene::new();
    fs::create_dir(scene.locks()).unwrap();
    fs::set_permissions(scene.locks(), Permissions::from_mode(0o700)).unwrap();
    fs::write(scene.locks().join("torn.tenure"), "no record\n").unwrap();
    for words in [
        &["run", "torn", "--output", "json", "--", "echo", "ran"][..],
        &["acquire", "torn", "--output", "json"],
        &["check", "torn", "--output", "json"],
    ] {
        let document = scene.run(words).expect(4, "unreadable").json();
        let error = &document["error"];
        assert_eq!(error["code"], "LOCK_UNREADABLE");
        let context = error["context"].as_object().unwrap();
        assert_eq!(context.get("holder"), Some(&Value::Null), "{error}");
    }
}

#[test]
fn envelope_a_released_native_lock_is_an_empty_record() {
    let scene = Scene::new();
    let _ = scene.run(["run", "x", "--", "true"]).expect(0, "ran");
    assert!(scene.locks().join("x.tenure").exists(), "the file stays");
    let checked = scene
        .run(["check", "x", "--output", "json"])
        .expect(0, "free");
    let data = checked.json()["data"].clone();
    assert_eq!(data["standing"], "free", "and its record is empty");
    assert_eq!(data["holder"], Value::Null);
}

#[test]
fn fleet_and_native_never_meet_in_one_folder() {
    let scene = Scene::new();
    let words = ["--owner", "none", "--request-id", "r"];
    let _ = fleet(&scene, "acquire", &words).expect(0, "fleet's x");
    let native = [["acquire", "x"].as_slice(), &words].concat();
    let _ = scene.run(native).expect(0, "another x");
    let _ = scene
        .run(["release", "x", "--request-id", "r"])
        .expect(0, "the native one");
    assert!(scene.locks().join("x.lock").exists(), "fleet's stays");
    assert!(scene.is_free("x"), "the native one does not");
}

// Session

/// `>=`: in the judgement itself, where an instant is an argument.
#[test]
fn session_ten_minutes_are_reached_and_not_passed() {
    use tenure_core::{
        Claim, Evidence, Holder, Kind, Lease, Liveness, LivenessLock, Now, Policy, RequestId,
        Stamp, Standing, judge,
    };
    let at = Stamp {
        wall_ms: 0,
        boot_ms: Stamp::OTHER_BOOT,
    };
    let mut claim = Claim::new(
        1,
        Kind::Foreign,
        Holder {
            request_id: RequestId::new("r").unwrap(),
            actor: String::new(),
            process: None,
            command: None,
            host: Arc::default(),
            why: String::new(),
            facts: Vec::new(),
        },
        at,
        Lease {
            ttl_ms: 600_000,
            renewed: at,
            renewals: 0,
        },
    );
    claim.token = Some(1);
    claim.since = Some(at);
    for process in [
        Liveness::Alive,
        Liveness::Dead(tenure_core::Death::Gone),
        Liveness::Unknown,
    ] {
        for (age_ms, stale) in [(0, false), (599_999, false), (600_000, true)] {
            let evidence = Evidence {
                liveness_lock: LivenessLock::None,
                process,
                command: process,
            };
            let now = Now {
                wall_us: age_ms * 1_000,
                ..Now::default()
            };
            let standing = judge(&Policy::SESSION, &claim, &evidence, &now);
            assert_eq!(
                matches!(standing, Standing::Stale(_)),
                stale,
                "{age_ms} ms, {process:?}"
            );
        }
    }
}

// Fleet

#[test]
fn fleet_the_audit_of_a_run_event_by_event() {
    for (flags, line, result, step) in [
        (&[][..], "true", "success", None),
        (&[], "exit 7", "failure", Some("command")),
        (
            &["--failure-step", "migrate"],
            "exit 7",
            "failure",
            Some("migrate"),
        ),
    ] {
        let scene = Scene::new();
        let words = [flags, &["--request-id", "r", "--", "sh", "-c", line]].concat();
        let _ = fleet(&scene, "run", &words);
        let events = lines_of(&scene, "r");
        assert_eq!(names(&events), ["lock_acquired", "lock_released"]);
        for event in &events {
            assert_eq!(event["request_id"], "r");
            assert_eq!(event["lock_name"], "x");
            let timestamp = event["timestamp"].as_str().unwrap();
            let _: jiff::Timestamp = timestamp.parse().expect("an instant");
        }
        let path = events[0]["lock_path"].as_str().unwrap();
        assert_eq!(Path::new(path), scene.locks().join("x.lock"));
        assert_eq!(events[0]["ttl_seconds"], 900);
        assert!(events[1]["held_duration_seconds"].is_number(), "{events:?}");
        assert_eq!(events[1]["result"], result);
        let told = events[1].get("failure_step").cloned();
        assert_eq!(told, step.map(Value::from), "{line}");
    }
}

#[test]
fn fleet_a_steal_is_audited_with_whose_it_was() {
    let scene = Scene::new();
    let (record, path) = plant_fleet(&scene, 1_000);
    let hash = hash(&scene, &path);
    let words = ["--force-lock", "--owner", "none", "--request-id", "new"];
    let _ = fleet(&scene, "acquire", &words).expect(0, "taken over");
    let events = lines_of(&scene, "new");
    assert_eq!(names(&events), ["lock_stolen", "lock_acquired"]);
    assert_eq!(events[0]["reason"], "stale_lock_forced");
    assert_eq!(events[0]["previous_lock_hash"], hash);
    let previous = events[0]["previous_lock"].as_object().unwrap();
    for key in [
        "request_id",
        "actor",
        "intent",
        "created_at",
        "last_heartbeat_at",
        "host_id",
        "pid",
    ] {
        assert_eq!(previous[key], record[key], "{key}");
    }
}

/// Of a lock of our own more is known than its record says, and the audit tells what the record says.
#[test]
fn fleet_a_stolen_lock_of_ours_is_audited_in_the_words_of_its_file() {
    let scene = Scene::new();
    let words = ["--owner", "none", "--request-id", "old", "--ttl", "1"];
    let _ = fleet(&scene, "acquire", &words).expect(0, "acquired");
    let path = scene.locks().join("x.lock");
    let record: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    let words = ["--force-lock", "--owner", "none", "--request-id", "new"];
    crate::support::eventually("its ttl to be over", || {
        fleet(&scene, "acquire", &words).code() == 0
    });
    let events = lines_of(&scene, "new");
    let previous = events[0]["previous_lock"].as_object().unwrap();
    assert_eq!(previous.len(), 7);
    for (key, told) in previous {
        assert_eq!(*told, record[key], "{key}: {events:?}");
    }
    assert_eq!(previous["pid"], std::process::id(), "the caller's");
}

#[test]
fn fleet_a_corrupt_record_is_audited_with_its_hash_and_bytes() {
    let scene = Scene::new();
    let path = scene.locks().join("x.lock");
    plant(&path, "garbage", 910);
    let hash = hash(&scene, &path);
    let words = ["--force-lock", "--owner", "none", "--request-id", "new"];
    let _ = fleet(&scene, "acquire", &words).expect(0, "replaced");
    let events = lines_of(&scene, "new");
    assert_eq!(names(&events), ["lock_stolen", "lock_acquired"]);
    assert_eq!(events[0]["reason"], "corrupt_lock");
    let previous = events[0].get("previous_lock");
    assert_eq!(previous, Some(&Value::Null));
    assert_eq!(events[0]["previous_lock_hash"], hash);
    assert_eq!(events[0]["previous_lock_raw_base64"], "Z2FyYmFnZQ==");
}

#[test]
fn fleet_three_failed_heartbeats_are_audited() {
    let scene = Scene::new();
    // What cannot be read cannot be renewed.
    let line = "echo garbage >locks/x.lock; sleep 5.5";
    let words = [
        "--ttl",
        "3",
        "--on-lost",
        "warn",
        "--request-id",
        "r",
        "--",
        "sh",
        "-c",
        line,
    ];
    let _ = fleet(&scene, "run", &words);
    let events = lines_of(&scene, "r");
    let failed: Vec<_> = events
        .iter()
        .filter(|event| event["event"] == "heartbeat_failed")
        .collect();
    assert_eq!(failed.len(), 1, "once in a row: {events:?}");
    assert_eq!(failed[0]["consecutive_failures"], 3);
    assert!(!failed[0]["error"].as_str().unwrap().is_empty());
}

#[test]
fn fleet_an_aborted_run_is_released_and_audited() {
    let scene = Scene::new();
    let mut words = vec!["--profile", "fleet", "run", "x"];
    words.extend(INTENT);
    words.extend([
        "--request-id",
        "r",
        "--",
        "sh",
        "-c",
        "echo begun; exec sleep 30",
    ]);
    let mut command = scene.tenure(words);
    let mut started = Started::new(command.stdout(Stdio::piped()).stderr(Stdio::piped()));
    let mut first = [0; 6];
    std::io::Read::read_exact(started.stdout(), &mut first).unwrap();
    started.signal(Signal::TERM);
    let _ = started.finish().expect(143, "aborted");
    assert!(!scene.locks().join("x.lock").exists(), "released");
    let events = lines_of(&scene, "r");
    assert_eq!(names(&events), ["lock_acquired", "lock_released"]);
    assert_eq!(events[1]["result"], "failure");
}

#[test]
fn fleet_a_release_that_fails_is_audited_and_the_result_stays() {
    let scene = Scene::new();
    let mut command = if is_root() {
        // To root nothing is forbidden.
        let mut command = scene.program("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups", "tenure"]);
        std::os::unix::fs::chown(scene.root(), Some(65_534), Some(65_534)).unwrap();
        command
    } else {
        scene.program("tenure")
    };
    command
        .args(["--profile", "fleet", "run", "x"])
        .args(INTENT);
    command.args([
        "--request-id",
        "r",
        "--",
        "sh",
        "-c",
        "chmod 500 locks; exit 7",
    ]);
    let told = answer(command.current_dir(scene.root()));
    if matches!(told.status().code(), Some(126 | 127)) {
        return; // There is no setpriv, or the program stands where no other user may go.
    }
    let told = told.expect(7, "its own result");
    fs::set_permissions(scene.locks(), Permissions::from_mode(0o700)).unwrap();
    let events = lines_of(&scene, "r");
    let failed = events
        .iter()
        .find(|event| event["event"] == "lock_release_failed")
        .unwrap_or_else(|| panic!("{events:?}: {}", told.said()));
    assert_eq!(failed["action"], "manual_cleanup_required");
    let error = failed["error"].as_str().unwrap();
    assert!(error.starts_with("EACCES: "), "{error}");
    let path = failed["lock_path"].as_str().unwrap();
    assert_eq!(Path::new(path), scene.locks().join("x.lock"));
}

#[test]
fn fleet_a_forced_release_is_audited_as_forced_by_another() {
    let scene = Scene::new();
    let (_, path) = plant_fleet(&scene, 1_000);
    let _ = call(&scene, "fleet", &["force-release", "x"]).expect(0, "stale");
    assert!(!path.exists());
    let events = audit(&scene, "fleet", &[]);
    let last = events.last().expect("an event");
    assert_eq!(last["event"], "lock_released");
    assert_eq!(last["result"], "forced");
    assert_eq!(last["by_other"], true);
    let whose = &last["previous_lock"]["request_id"];
    assert!(whose.is_string(), "whose lock it was: {last}");
}

#[test]
fn fleet_an_audit_that_cannot_be_written_stops_no_release() {
    let scene = Scene::new();
    let file = scene.write("file", "");
    let flags = ["--audit-dir", file.to_str().unwrap(), "--request-id", "r"];
    let more = [flags.as_slice(), &["--owner", "none"]].concat();
    let acquired = fleet(&scene, "acquire", &more).expect(0, "acquired");
    let words = [&["release", "x"], flags.as_slice()].concat();
    let released = call(&scene, "fleet", &words).expect(0, "released");
    for told in [acquired, released] {
        let said = told.stderr();
        assert!(said.contains("the audit could not be written"), "{said}");
    }
    assert!(!scene.locks().join("x.lock").exists());
}
