//! The fleet profile, lock/v1, as scripts meet it: what `pages/fleet.txt` does not show, because it is a matter of
//! time, of signals or of values that are computed. Rules about the record alone are tested beside the format.
#![allow(
    clippy::disallowed_methods,
    reason = "the dates in its records are of the machine's own clock"
)]

use crate::support::{
    Answer, Gate, Held, Scene, Started, answer, eventually, is_alive, throughout, timed,
};
use jiff::{SignedDuration, Timestamp};
use rustix::process::Signal;
use serde_json::{Value, json};
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

const FLEET: [&str; 2] = ["--profile", "fleet"];
const INTENT: [&str; 4] = ["--intent-name", "deploy", "--intent-version", "1.2.0"];
const WAIT: &str = "Wait for completion or use --force-lock if stale";
const FORCE: &str = "Use --force-lock to acquire (stale lock will be logged)";

/// A call with the fleet profile.
fn fleet(scene: &Scene, words: &[&str]) -> Command {
    let mut command = scene.tenure(FLEET.iter().chain(words));
    command.current_dir(scene.root());
    command
}

fn call(scene: &Scene, words: &[&str]) -> Answer {
    answer(&mut fleet(scene, words))
}

/// `acquire` in the name of a script, under an intent.
fn acquire(scene: &Scene, name: &str, words: &[&str]) -> Answer {
    let mut all = vec!["acquire", name, "--owner", "none"];
    all.extend(INTENT);
    all.extend(words);
    call(scene, &all)
}

/// Holds a lock in the name of a script, with this request id.
#[track_caller]
fn acquired(scene: &Scene, name: &str, id: &str) {
    let _ = acquire(scene, name, &["--request-id", id]).expect(0, "acquired");
}

/// The words of a `run` under an intent.
fn running<'a>(name: &'a str, flags: &[&'a str], command: &[&'a str]) -> Vec<&'a str> {
    [&["run", name], &INTENT[..], flags, &["--"], command].concat()
}

fn run(scene: &Scene, name: &str, flags: &[&str], command: &[&str]) -> Answer {
    call(scene, &running(name, flags, command))
}

/// A run whose command has begun.
fn hold(scene: &Scene, name: &str, words: &[&str]) -> Held {
    hold_after(scene, name, words, "")
}

fn hold_after(scene: &Scene, name: &str, words: &[&str], prelude: &str) -> Held {
    let flags: Vec<&str> = FLEET.iter().chain(&INTENT).chain(words).copied().collect();
    scene.hold_with(name, flags, &Gate::new(scene, name), prelude)
}

fn file(scene: &Scene, name: &str) -> PathBuf {
    scene.locks().join(format!("{name}.lock"))
}

fn record(scene: &Scene, name: &str) -> Value {
    let text = fs::read_to_string(file(scene, name)).expect("a record");
    serde_json::from_str(&text).expect("a document")
}

/// Another program takes a record away.
fn take_away(scene: &Scene, name: &str) {
    fs::rename(file(scene, name), scene.path("away")).expect("a record");
}

/// Waits for the next heartbeat of a lock.
fn until_renewed(scene: &Scene, name: &str) {
    let renewed = || record(scene, name)["last_heartbeat_at"].clone();
    let before = renewed();
    eventually("a heartbeat", || renewed() != before);
}

/// All events of the audit.
fn events(scene: &Scene) -> Vec<Value> {
    let audit = call(scene, &["audit", "--output", "json"]);
    let events = audit.expect(0, "events").json()["data"]["events"].take();
    events.as_array().expect("events").clone()
}

/// An instant so many seconds ago, as records have it.
fn ago(seconds: i64) -> String {
    let at = Timestamp::now() - SignedDuration::from_secs(seconds);
    format!("{at:.0}")
}

/// A record of the original program, silent for so many seconds.
fn foreign(name: &str, silent: i64) -> Value {
    json!({
        "lock_version": "v1",
        "lock_name": name,
        "request_id": "req_0123456789ab",
        "actor": "alice",
        "intent": "deploy",
        "intent_version": "1.0",
        "host_id": "fleet-3",
        "pid": 999_999_999,
        "created_at": ago(silent + 60),
        "last_heartbeat_at": ago(silent),
        "ttl_seconds": 900,
    })
}

/// Puts bytes at a lock's path that were written so many seconds ago.
fn plant(scene: &Scene, name: &str, bytes: &str, written_ago: u64) {
    let written = SystemTime::now() - Duration::from_secs(written_ago);
    crate::support::plant(&file(scene, name), bytes, written);
}

fn plant_foreign(scene: &Scene, name: &str, silent: i64) -> Value {
    let record = foreign(name, silent);
    let age = u64::try_from(silent).unwrap_or(0);
    plant(scene, name, &record.to_string(), age);
    record
}

/// What stands in `held_by` for a record.
fn held_by(record: &Value) -> Value {
    let mut held_by = json!({});
    for key in [
        "request_id",
        "actor",
        "intent",
        "created_at",
        "last_heartbeat_at",
        "host_id",
        "pid",
    ] {
        held_by[key] = record[key].clone();
    }
    held_by
}

fn keys(value: &Value) -> Vec<&str> {
    let object = value.as_object().expect("an object");
    object.keys().map(String::as_str).collect()
}

/// Replaces the number of an age that went on while the test ran.
fn with_age(mut document: Value, expected: i64) -> Value {
    let age = document["age_seconds"].as_i64().expect("whole seconds");
    assert!((expected..expected + 30).contains(&age), "{document}");
    document["age_seconds"] = json!("AGE");
    document
}

// Identity

#[test]
fn a_lost_lock_and_a_signal_are_answered_with_documents_too() {
    let scene = Scene::new();
    let held = hold(&scene, "x", &["-q"]);
    take_away(&scene, "x");
    let answer = held.finish().expect(80, "lost");
    let text = answer.stdout();
    let last: Value = serde_json::from_str(text.lines().last().unwrap()).expect("a document");
    assert_eq!(
        (&last["error"], &last["lock_name"]),
        (&json!("lock_lost"), &json!("x"))
    );
    let held = hold(&scene, "y", &[]);
    held.signal(Signal::TERM);
    let text = held.finish().expect(143, "signalled").stdout();
    let last: Value = serde_json::from_str(text.lines().last().unwrap()).expect("a document");
    assert_eq!(
        (&last["error"], &last["lock_name"]),
        (&json!("cancelled"), &json!("y"))
    );
}

// Record

/// Field by field, in its order; what differs from call to call is replaced.
#[test]
fn the_record_of_acquire_field_by_field() {
    let scene = Scene::new();
    let words = [
        "--request-id",
        "req_abcdef012345",
        "--actor",
        "alice",
        "--metadata",
        "ticket=OPS-1",
        "--metadata",
        "note=a=b",
        "--why",
        "a release",
    ];
    let before = Timestamp::now().as_second();
    let answer = acquire(&scene, "money-tracker-production", &words).expect(0, "acquired");
    let after = Timestamp::now().as_second();
    let mut record = record(&scene, "money-tracker-production");
    for key in ["created_at", "last_heartbeat_at"] {
        let text = record[key].as_str().unwrap();
        assert_eq!(text.len(), "YYYY-MM-DDTHH:MM:SSZ".len(), "{text}");
        assert!(text.ends_with('Z'), "{text}");
        let at: Timestamp = text.parse().unwrap();
        assert!((before..=after).contains(&at.as_second()), "{text}");
        record[key] = json!("TIME");
    }
    let own = record["metadata"]["tenure"].take();
    let token = own["token"].as_u64().expect("a token");
    assert!(own["boot_id"].is_string(), "our own identity: {own}");
    assert_eq!(own["why"], "a release");
    record["host_id"] = json!("HOST");
    // Without an owner the caller's is recorded, as the original script records its own.
    assert_eq!(record["pid"], json!(std::process::id()));
    record["pid"] = json!("PID");
    let expected = json!({
        "lock_version": "v1",
        "lock_name": "money-tracker-production",
        "request_id": "req_abcdef012345",
        "actor": "alice",
        "intent": "deploy",
        "intent_version": "1.2.0",
        "host_id": "HOST",
        "pid": "PID",
        "created_at": "TIME",
        "last_heartbeat_at": "TIME",
        "ttl_seconds": 900,
        "metadata": { "note": "a=b", "ticket": "OPS-1", "tenure": null },
    });
    assert_eq!(record, expected);
    assert_eq!(keys(&record), keys(&expected), "in the contract's order");
    assert_eq!(
        answer.json(),
        json!({
            "status": "acquired",
            "lock_name": "money-tracker-production",
            "request_id": "req_abcdef012345",
            "lock_path": file(&scene, "money-tracker-production"),
            "ttl_seconds": 900,
            "token": token,
        }),
        "the answer"
    );
}

#[test]
fn the_record_of_a_run_names_its_supervisor_and_its_ttl() {
    let scene = Scene::new();
    let held = hold(&scene, "x", &["--ttl", "5m", "--request-id", "r"]);
    let seen = record(&scene, "x");
    assert_eq!(seen["pid"], held.pid());
    assert_eq!(seen["ttl_seconds"], 300);
    assert_eq!(seen["request_id"], "r");
    let _ = held.open().expect(0, "done");
    assert!(!file(&scene, "x").exists(), "removed by the release");
}

// Acquire

#[test]
fn the_blocked_answer_field_by_field() {
    let scene = Scene::new();
    let planted = plant_foreign(&scene, "x", 100);
    let expected = json!({
        "error": "lock_blocked",
        "lock_name": "x",
        "held_by": held_by(&planted),
        "suggestion": WAIT,
    });
    let answer = acquire(&scene, "x", &[]).expect(4, "blocked");
    assert_eq!(answer.stderr(), "", "the document is all");
    let document = answer.json();
    assert_eq!(document, expected);
    assert_eq!(keys(&document), keys(&expected));
    assert_eq!(keys(&document["held_by"]), keys(&expected["held_by"]));

    let words = ["--output", "json", "--conflict-exit-code", "75"];
    let envelope = acquire(&scene, "x", &words).expect(75, "blocked").json();
    assert_eq!(envelope["error"]["code"], "LOCK_HELD");
    let context = &envelope["error"]["context"];
    for key in keys(&expected) {
        assert_eq!(context[key], expected[key], "{key} in the context");
    }
}

#[test]
fn the_stale_answer_field_by_field() {
    let scene = Scene::new();
    let planted = plant_foreign(&scene, "x", 1_000);
    let expected = json!({
        "error": "lock_stale",
        "lock_name": "x",
        "stale_since": planted["last_heartbeat_at"],
        "age_seconds": "AGE",
        "ttl_seconds": 900,
        "held_by": held_by(&planted),
        "suggestion": FORCE,
    });
    let answer = acquire(&scene, "x", &[]).expect(4, "stale");
    assert_eq!(answer.stderr(), "", "the document is all");
    let document = with_age(answer.json(), 1_000);
    assert_eq!(document, expected);
    assert_eq!(keys(&document), keys(&expected));
    assert_eq!(record(&scene, "x"), planted, "untouched");

    let envelope = acquire(&scene, "x", &["--output", "json"]).expect(4, "stale");
    let envelope = envelope.json();
    assert_eq!(envelope["error"]["code"], "LOCK_STALE");
    let context = with_age(envelope["error"]["context"].clone(), 1_000);
    for key in keys(&expected) {
        assert_eq!(context[key], expected[key], "{key} in the context");
    }
    let answer = call(&scene, &["wait", "x"]).expect(4, "waiting does not end it");
    assert_eq!(with_age(answer.json(), 1_000), expected);
}

/// `now − last_heartbeat_at > ttl_seconds`, strictly: in the judgement itself, where an instant is
/// an argument.
#[test]
fn a_lock_as_old_as_its_ttl_is_not_stale_yet() {
    use tenure_core::{
        Claim, Evidence, Holder, Kind, Lease, Liveness, LivenessLock, Now, Policy, RequestId,
        Stamp, Standing, judge,
    };
    let at = |wall_ms| Stamp {
        wall_ms,
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
        at(0),
        Lease {
            ttl_ms: 900_000,
            renewed: at(0),
            renewals: 0,
        },
    );
    claim.token = Some(1);
    claim.since = Some(at(0));
    // Only the age of the heartbeat decides, in both directions.
    for liveness_lock in [
        LivenessLock::Held,
        LivenessLock::Released,
        LivenessLock::None,
    ] {
        for process in [
            Liveness::Alive,
            Liveness::Dead(tenure_core::Death::Gone),
            Liveness::Dead(tenure_core::Death::Rebooted),
            Liveness::Unknown,
        ] {
            let evidence = Evidence {
                liveness_lock,
                process,
                command: process,
            };
            // Ages count in the whole seconds that the format writes.
            let ages = [
                (0, false),
                (900_000, false),
                (900_999, false),
                (901_000, true),
            ];
            for (age_ms, stale) in ages {
                let now = Now {
                    wall_us: age_ms * 1_000,
                    ..Now::default()
                };
                for kind in [Kind::Foreign, Kind::Kernel, Kind::Detached] {
                    let mut claim = claim.clone();
                    claim.kind = kind;
                    let standing = judge(&Policy::FLEET, &claim, &evidence, &now);
                    assert_eq!(
                        matches!(standing, Standing::Stale(_)),
                        stale,
                        "{age_ms} ms, {kind:?}, {evidence:?}"
                    );
                }
            }
        }
    }
}

#[test]
fn a_dead_holder_does_not_make_a_fresh_lock_stale() {
    let scene = Scene::new();
    let held = hold(&scene, "x", &["--request-id", "r"]);
    let command = held.command;
    held.signal(Signal::KILL);
    held.gate.open();
    eventually("all of it to be gone", || !is_alive(command));
    let document = acquire(&scene, "x", &["--force-lock"])
        .expect(4, "fresh")
        .json();
    assert_eq!(document["error"], "lock_blocked", "{document}");
    let _ = call(&scene, &["release", "x", "--request-id", "r"]);
    drop(held);
}

// Heartbeat

#[test]
fn a_heartbeat_changes_its_time_and_no_other_byte() {
    let scene = Scene::new();
    let heartbeat = ago(100);
    let text = format!(
        "{{ \"lock_version\":\"v1\", \"new\": 1.50,\n\t\"lock_name\" : \"x\",\
         \"request_id\":\"r\",\"actor\":\"a\\u0041\",\"intent\":\"i\",\"intent_version\":\"1\",\
         \"host_id\":\"h\",\"pid\":7,\"created_at\":\"{}\",\"last_heartbeat_at\":\"{heartbeat}\",\
         \"ttl_seconds\":900,\"metadata\":{{\"z\":[ ],\"last_heartbeat_at\":1.50}}}}\r\n",
        ago(200)
    );
    plant(&scene, "x", &text, 100);
    let answer =
        call(&scene, &["heartbeat", "x", "--request-id", "other"]).expect(6, "not its own");
    assert_eq!(answer.json()["error"], "not_owner");
    assert_eq!(fs::read_to_string(file(&scene, "x")).unwrap(), text);
    let answer = call(&scene, &["heartbeat", "x", "--request-id", "r"]);
    let document = answer.expect(0, "its own").json();
    let later = document["last_heartbeat_at"].as_str().unwrap();
    assert_ne!(later, heartbeat);
    assert_eq!(
        fs::read_to_string(file(&scene, "x")).unwrap(),
        text.replace(&heartbeat, later),
        "also where the original program has written it"
    );
    let _ = call(&scene, &["release", "x", "--request-id", "r"]).expect(0, "its own");

    // A record of ours to which another program has added.
    acquired(&scene, "y", "r");
    let path = file(&scene, "y");
    let seen = fs::read_to_string(&path).unwrap();
    let now = record(&scene, "y")["last_heartbeat_at"]
        .as_str()
        .unwrap()
        .to_owned();
    let added = seen.replacen('{', "{\"x\": [1.50,\t1e9 ],", 1);
    let quoted = |at: &str| format!("\"last_heartbeat_at\": \"{at}\"");
    let added = added.replace(&quoted(&now), &quoted(&heartbeat));
    fs::write(&path, &added).unwrap();
    let answer = call(&scene, &["heartbeat", "y", "--request-id", "r"]).expect(0, "renewed");
    let document = answer.json();
    assert_eq!(
        keys(&document),
        [
            "status",
            "lock_name",
            "request_id",
            "last_heartbeat_at",
            "ttl_seconds",
            "token"
        ]
    );
    assert_eq!(document["status"], "renewed");
    let later = document["last_heartbeat_at"].as_str().unwrap();
    assert_ne!(later, heartbeat);
    assert_eq!(
        fs::read_to_string(&path).unwrap(),
        added.replace(&quoted(&heartbeat), &quoted(later)),
        "every other byte stays"
    );
}

#[test]
fn a_run_renews_its_record_every_third_of_the_ttl() {
    let scene = Scene::new();
    let held = hold(&scene, "x", &["--ttl", "3"]);
    until_renewed(&scene, "x");
    let _ = held.open().expect(0, "done");
}

/// The record is replaced at each renewal, so a watch on it has to be opened anew.
#[test]
fn a_loss_after_a_renewal_is_noticed_at_once() {
    let scene = Scene::new();
    let held = hold(&scene, "x", &["--ttl", "21"]);
    until_renewed(&scene, "x");
    take_away(&scene, "x");
    let (answer, took) = timed(|| held.finish());
    let _ = answer.expect(80, "lost");
    assert!(
        took < Duration::from_secs(5),
        "the next renewal was 7 s away, and this took {took:?}"
    );
}

#[test]
fn a_lost_lock_ends_the_command_or_is_warned_of() {
    let scene = Scene::new();
    let held = hold(&scene, "x", &[]);
    let command = held.command;
    take_away(&scene, "x");
    let planted = plant_foreign(&scene, "x", 5);
    let _ = held.finish().expect(80, "ended");
    assert!(!is_alive(command));
    assert_eq!(record(&scene, "x"), planted, "the other's lock stays");

    let scene = Scene::new();
    let said = scene.path("rolled-back");
    let rollback = format!("echo >{}", said.display());
    let flags = ["--on-lost", "warn", "-q", "--rollback", &rollback];
    let held = hold_after(&scene, "x", &flags, "trap 'exit 9' INT TERM");
    take_away(&scene, "x");
    let planted = plant_foreign(&scene, "x", 5);
    let command = held.command;
    throughout(Duration::from_millis(300), "the command goes on", || {
        is_alive(command)
    });
    let answer = held.open().expect(0, "its own result");
    let told = answer.stderr();
    assert!(told.contains("the lock is lost"), "even when quiet: {told}");
    assert_eq!(record(&scene, "x"), planted, "the other's lock stays");
}

#[test]
fn failed_renewals_are_warned_of_until_the_ttl_is_about_to_run_out() {
    for (on_lost, code, beats) in [("terminate", 80, 600), ("warn", 7, 70)] {
        let scene = Scene::new();
        let rolled_back = scene.path("rolled-back");
        let rollback = format!("echo >{}", rolled_back.display());
        let flags = ["--ttl", "6", "--on-lost", on_lost, "--rollback", &rollback];
        // What cannot be read cannot be renewed, and proves no loss.
        let line = format!(
            "echo garbage >locks/x.lock; i=0; while [ $i -lt {beats} ]; do sleep 0.1; \
             i=$((i+1)); done; exit 7"
        );
        let (answer, took) = timed(|| run(&scene, "x", &flags, &["sh", "-c", &line]));
        let answer = answer.expect(code, on_lost);
        let said = answer.stderr();
        assert!(
            said.contains("the heartbeat failed, the work goes on"),
            "{said}"
        );
        assert!(said.contains("about to run out"), "and then why: {said}");
        assert!(!rolled_back.exists(), "no rollback without the lock");
        if on_lost == "terminate" {
            let told = Duration::from_millis(4_500);
            assert!(took >= told, "a quarter of the ttl is left: {took:?}");
            assert!(took < Duration::from_secs(20), "in time: {took:?}");
        }
        let mut failed = events(&scene);
        failed.retain(|event| event["event"] == "heartbeat_failed");
        assert_eq!(
            failed.len(),
            1,
            "before the end, however short the ttl: {failed:?}"
        );
        assert_eq!(failed[0]["consecutive_failures"], 3);
        let left = fs::read_to_string(file(&scene, "x")).unwrap();
        assert_eq!(left, "garbage\n", "what is not ours is not removed");
    }
}

// Rollback

#[test]
fn the_lock_is_renewed_while_the_rollback_runs() {
    let scene = Scene::new();
    let at = "grep last_heartbeat_at locks/x.lock";
    let line = format!("{at}; sleep 2.2; {at}");
    let flags = ["--ttl", "3", "--rollback", &line];
    let answer = run(&scene, "x", &flags, &["false"]);
    let text = answer.expect(1, "failed").stdout();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 2, "{text}");
    assert_ne!(lines[0], lines[1], "a heartbeat came in between");
}

#[test]
fn a_signal_rolls_back_too_and_a_second_sigterm_does_not_stop_that() {
    for (profile, name) in [("fleet", "x"), ("native", "x")] {
        let scene = Scene::new();
        let gate = Gate::new(&scene, "rollback");
        let rollback = format!("{}\necho over >done", gate.script(""));
        let mut flags = vec!["--profile", profile, "--rollback", &rollback, "-q"];
        if profile == "fleet" {
            flags.extend(INTENT);
        }
        let mut words = vec!["run", name];
        words.extend(flags);
        let begin = Gate::new(&scene, "command");
        let script = begin.script("");
        words.extend(["--", "sh", "-c", &script]);
        let mut command = scene.tenure(words);
        let started = Started::piped(command.current_dir(scene.root()));
        let _ = begin.entered();
        started.signal(Signal::TERM);
        let pid = gate.entered();
        for _ in 0..3 {
            started.signal(Signal::TERM);
        }
        throughout(Duration::from_millis(200), "the rollback goes on", || {
            is_alive(pid)
        });
        let held = scene.run(["--profile", profile, "check", name]);
        let _ = held.expect(4, "the lock is still held");
        gate.open();
        let _ = started.finish().expect(143, "the signal is what is told");
        assert!(scene.path("done").exists(), "it came to its end");
        let free = scene.run(["--profile", profile, "check", name]);
        let _ = free.expect(0, "and is released afterwards");
    }
}

#[test]
fn a_first_signal_during_the_rollback_ends_it_and_the_lock_is_released() {
    let scene = Scene::new();
    let gate = Gate::new(&scene, "rollback");
    let script = gate.script("");
    let flags = ["--rollback", &script, "--grace", "5s"];
    let started = Started::piped(&mut fleet(&scene, &running("x", &flags, &["false"])));
    let pid = gate.entered();
    started.signal(Signal::TERM);
    let _ = started.finish().expect(143, "the signal is what is told");
    assert!(!is_alive(pid));
    assert!(!file(&scene, "x").exists(), "released");
}

// Modes

/// An intent with a lock of this name.
fn intent_named(scene: &Scene, mode: &str, lock: &str) -> String {
    let text =
        format!("{{intent: i, intent_version: 1, mode: {mode}, controls: {{lock: {lock}}}}}");
    let path = scene.write(&format!("{mode}.yaml"), &text);
    path.to_str().unwrap().to_owned()
}

#[test]
fn an_observing_run_passes_signals_on_as_any_run_does() {
    let scene = Scene::new();
    let file = intent_named(&scene, "observe", "x");
    let gate = Gate::new(&scene, "observe");
    let script = gate.script("");
    let words = ["run", "--intent", &file, "--", "sh", "-c", &script];
    let started = Started::piped(&mut fleet(&scene, &words));
    let pid = gate.entered();
    started.signal(Signal::TERM);
    let _ = started.finish().expect(143, "signalled");
    assert!(!is_alive(pid));
}

// Operations

#[test]
fn check_and_list_tell_the_standing_of_every_lock() {
    let scene = Scene::new();
    let active = plant_foreign(&scene, "active", 100);
    let stale = plant_foreign(&scene, "stale", 1_000);
    plant(&scene, "torn", "{\"lock_version\": ", 60);
    let expected = [
        (
            json!({
                "lock_name": "active",
                "status": "active",
                "held_by": held_by(&active),
                "age_seconds": "AGE",
                "ttl_seconds": 900,
                "suggestion": WAIT,
            }),
            100,
            4,
        ),
        (
            json!({
                "lock_name": "stale",
                "status": "stale",
                "held_by": held_by(&stale),
                "age_seconds": "AGE",
                "ttl_seconds": 900,
                "suggestion": FORCE,
            }),
            1_000,
            4,
        ),
    ];
    let list = call(&scene, &["list"]).expect(0, "all of them").json();
    assert_eq!(keys(&list), ["locks"]);
    let listed = list["locks"].as_array().unwrap();
    assert_eq!(listed.len(), 3);
    for (index, (expected, age, code)) in expected.iter().enumerate() {
        let name = expected["lock_name"].as_str().unwrap();
        let checked = call(&scene, &["check", name]).expect(*code, name).json();
        assert_eq!(with_age(checked, *age), *expected);
        assert_eq!(with_age(listed[index].clone(), *age), *expected);
    }
    let torn = call(&scene, &["check", "torn"]).expect(4, "corrupt").json();
    assert_eq!(torn, listed[2]);
    assert_eq!(torn["status"], "corrupt");
    assert_eq!(torn["held_by"], Value::Null);
    let free = call(&scene, &["check", "free"]).expect(0, "free").json();
    assert_eq!(
        free,
        json!({
            "lock_name": "free",
            "status": "free",
            "held_by": null,
            "age_seconds": null,
            "ttl_seconds": null,
        })
    );
    let envelope = call(&scene, &["check", "stale", "--output", "json"]);
    let envelope = envelope.expect(4, "stale").json();
    assert_eq!(envelope["error"]["code"], "LOCK_STALE");
    assert_eq!(envelope["error"]["context"]["status"], "stale");
}

// Traps that the original script falls into

/// The original creates by `ln`, `set -C` or `mv -n`. The program that publishes first holds the lock.
#[test]
fn the_original_script_and_tenure_keep_each_other_out() {
    let scene = Scene::new();
    let held = hold(&scene, "x", &[]);
    let ours = fs::read_to_string(file(&scene, "x")).unwrap();
    scene.write("theirs", &foreign("x", 0).to_string());
    for line in [
        "ln theirs locks/x.lock",
        "set -C; cat theirs >locks/x.lock",
        "cp theirs t; mv -n t locks/x.lock; [ ! -e t ]",
    ] {
        let mut shell = scene.program("sh");
        shell.args(["-c", line]).current_dir(scene.root());
        let answer = answer(&mut shell);
        assert_ne!(answer.code(), 0, "{line} fails: {}", answer.said());
        let left = fs::read_to_string(file(&scene, "x")).unwrap();
        assert_eq!(left, ours, "{line}");
    }
    let _ = held.open().expect(0, "nothing was lost");

    for line in ["ln theirs locks/x.lock", "set -C; cat theirs >locks/x.lock"] {
        let mut shell = scene.program("sh");
        shell.args(["-c", line]).current_dir(scene.root());
        let _ = answer(&mut shell).expect(0, "theirs comes first");
        let document = acquire(&scene, "x", &["--force-lock"])
            .expect(4, "theirs")
            .json();
        assert_eq!(document["held_by"]["request_id"], "req_0123456789ab");
        let kept: Value =
            serde_json::from_str(&fs::read_to_string(scene.path("theirs")).unwrap()).unwrap();
        assert_eq!(record(&scene, "x"), kept, "not overwritten");
        fs::rename(file(&scene, "x"), scene.path("released")).unwrap();
    }
}

#[test]
fn of_many_racers_one_gets_in_also_over_a_stale_lock() {
    let scene = Scene::new();
    for round in 0..3 {
        let _ = plant_foreign(&scene, "x", 1_000);
        let racers: Vec<_> = (0..6)
            .map(|number| {
                let id = format!("racer-{round}-{number}");
                let mut words = vec!["acquire", "x", "--owner", "none", "--force-lock"];
                words.extend(INTENT);
                words.extend(["--request-id", &id]);
                Started::piped(&mut fleet(&scene, &words))
            })
            .collect();
        let won: Vec<_> = racers
            .into_iter()
            .map(Started::finish)
            .filter(|answer| answer.code() == 0)
            .collect();
        assert_eq!(won.len(), 1, "one of them");
        let winner = won[0].json()["request_id"].clone();
        assert_eq!(record(&scene, "x")["request_id"], winner);
    }
}

#[test]
fn a_released_lock_is_not_created_again_by_its_heartbeat() {
    let scene = Scene::new();
    let held = hold(&scene, "x", &["--ttl", "1", "--on-lost", "warn"]);
    take_away(&scene, "x");
    let path = file(&scene, "x");
    throughout(Duration::from_millis(1_500), "it stays released", || {
        !path.exists()
    });
    let _ = held.open().expect(0, "its own result");
}

/// The contract lets force replace a record that breaks a rule once its file is older than the ttl. A tool that writes
/// such a record still holds the lock for as long as its own ttl says.
#[allow(clippy::too_many_lines, reason = "it is a table")]
#[test]
fn record_that_breaks_a_rule_is_judged_by_what_can_be_read_table() {
    const OWN: u64 = 3_600;
    for (what, change, beat_ago, written_ago, forced) in [
        (
            "a version",
            ("lock_version", json!("v2")),
            1_000,
            1_000,
            false,
        ),
        ("a name", ("lock_name", json!("other")), 1_000, 1_000, false),
        ("a process", ("pid", json!("one")), 1_000, 1_000, false),
        ("an actor", ("actor", Value::Null), 1_000, 1_000, false),
        ("an id", ("request_id", json!("")), 1_000, 1_000, false),
        ("facts", ("metadata", json!([])), 1_000, 1_000, false),
        (
            "its ttl as a text",
            ("ttl_seconds", json!("3600")),
            1_000,
            1_000,
            false,
        ),
        (
            "a fraction",
            ("ttl_seconds", json!(3_600.5)),
            3_500,
            3_500,
            false,
        ),
        ("it, silent", ("pid", json!("one")), 3_700, 3_700, true),
        ("its file, young", ("pid", json!("one")), 3_700, 800, false),
        (
            "its heartbeat, young",
            ("pid", json!("one")),
            800,
            3_700,
            false,
        ),
        ("a short ttl", ("ttl_seconds", json!("1")), 800, 800, false),
        (
            "a short ttl, silent",
            ("ttl_seconds", json!("1")),
            1_000,
            1_000,
            true,
        ),
        ("no ttl", ("ttl_seconds", Value::Null), 800, 1_000, false),
        (
            "no ttl, silent",
            ("ttl_seconds", Value::Null),
            1_000,
            1_000,
            true,
        ),
        (
            "a ttl beyond belief",
            ("ttl_seconds", json!(1e18)),
            1_000,
            1_000,
            true,
        ),
        (
            "a heartbeat ahead",
            ("pid", json!("one")),
            -3_000,
            3_700,
            false,
        ),
        (
            "one beyond its ttl",
            ("pid", json!("one")),
            -3_700,
            3_700,
            true,
        ),
        (
            "no heartbeat",
            ("last_heartbeat_at", Value::Null),
            0,
            1_000,
            false,
        ),
        (
            "no heartbeat, silent",
            ("last_heartbeat_at", Value::Null),
            0,
            3_700,
            true,
        ),
    ] {
        let scene = Scene::new();
        let mut record = foreign("x", beat_ago);
        record["ttl_seconds"] = OWN.into();
        let (key, value) = change;
        record[key] = value;
        plant(&scene, "x", &record.to_string(), written_ago);
        let said = call(&scene, &["check", "x"]).expect(4, what).json();
        assert_eq!(said["status"], "corrupt", "{what}: {said:#}");
        let code = if forced { 0 } else { 4 };
        let _ = call(&scene, &["force-release", "x", "--yes"]).expect(code, what);
        plant(&scene, "x", &record.to_string(), written_ago);
        let _ = acquire(&scene, "x", &["--force-lock", "--yes"]).expect(code, what);
    }
}

/// Where nothing of a record can be read, the hold that it was published for counts for as long as its ttl.
#[test]
fn record_without_a_readable_word_counts_as_its_hold() {
    let scene = Scene::new();
    let _ = acquire(&scene, "x", &["--ttl", "3600"]).expect(0, "ours");
    plant(&scene, "x", "garbage", 910);
    let _ = acquire(&scene, "x", &["--force-lock", "--yes"]).expect(4, "held for an hour");
    let _ = call(&scene, &["force-release", "x", "--yes"]).expect(4, "held for an hour");
    plant(&scene, "y", "garbage", 910);
    let _ = acquire(&scene, "y", &["--force-lock"]).expect(0, "of no hold");
}

/// The contract sets no alphabet for the id of another program.
#[test]
fn owner_of_any_id_renews_and_releases_table() {
    for id in [
        "deploy:1",
        "a b",
        "../../etc/x",
        ".hidden",
        "ä/ö",
        &"x".repeat(256),
    ] {
        let scene = Scene::new();
        let mut record = foreign("x", 1_000);
        record["ttl_seconds"] = 3_600.into();
        record["request_id"] = id.into();
        plant(&scene, "x", &record.to_string(), 1_000);
        let said = call(&scene, &["check", "x"]).expect(4, id).json();
        assert_eq!(said["held_by"], held_by(&record), "{said:#}");
        let _ = acquire(&scene, "x", &["--force-lock", "--yes"]).expect(4, "it is active");
        let other = format!("-{id}");
        let _ = call(&scene, &["release", "x", "--request-id", &other]).expect(2, "no such id");
        let _ = call(&scene, &["heartbeat", "x", "--request-id", id]).expect(0, id);
        let _ = call(&scene, &["release", "x", "--request-id", id]).expect(0, id);
        let audit = ["audit", "--request-id", id, "--output", "json"];
        let said = call(&scene, &audit).expect(0, id).json();
        let events = said["data"]["events"].as_array().expect("events").clone();
        assert_eq!(events.len(), 1, "{id}: {said:#}");
        assert_eq!(events[0]["request_id"], id);
        let day = fs::read_dir(scene.locks().join("audit")).expect("a day");
        let days = day.map(|day| day.expect("a day").path());
        let days = days.filter(|day| !day.ends_with("refusals.jsonl"));
        let files = days.flat_map(|day| fs::read_dir(day).expect("files"));
        assert_eq!(files.count(), 1, "{id}: below its day");
        let _ = acquire(&scene, "y", &["--request-id", id]).expect(2, "only plain ids are made");
    }
}
