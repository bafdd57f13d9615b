//! The fleet profile, lock/v1, as scripts meet it: every rule of the contract is a test here or,
//! where it is about the record alone, beside the format.
#![allow(
    clippy::disallowed_methods,
    reason = "the dates in its records are of the machine's own clock"
)]

use crate::support::transcript::Caller;
use crate::support::{
    Answer, Gate, Held, Scene, Started, answer, eventually, is_alive, throughout, timed,
};
use jiff::{SignedDuration, Timestamp};
use rustix::process::Signal;
use serde_json::{Value, json};
use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
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

/// Makes the calls of transcripts, in which `[INTENT]` is the intent that every other call names too.
fn caller(scene: &Scene) -> Caller<'_> {
    Caller::new(scene, &FLEET).knowing("[INTENT]", INTENT.join(" "))
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

/// The sentence in the document of a failure for which the contract has no words.
#[track_caller]
fn message(answer: &Answer, error: &str) -> String {
    assert_eq!(answer.stderr(), "", "the document is all");
    let document = answer.json();
    assert_eq!(keys(&document), ["error", "lock_name", "message"]);
    assert_eq!(document["error"], error, "{document}");
    document["message"].as_str().expect("a text").to_owned()
}

/// The sentence by which a call is refused for its words.
#[track_caller]
fn bad_arguments(scene: &Scene, words: &[&str]) -> String {
    let answer = call(scene, words).expect(2, &words.join(" "));
    message(&answer, "bad_arguments")
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
fn names_are_lower_case_letters_digits_underscore_and_hyphen() {
    let scene = Scene::new();
    let longest = "a".repeat(128);
    for name in ["a", "7", "a_b-c", longest.as_str()] {
        let _ = acquire(&scene, name, &[]).expect(0, name);
        assert!(file(&scene, name).exists(), "<locks>/<name>.lock");
    }
    let too_long = "a".repeat(129);
    for name in [
        "A", "a b", "a/b", "a.b", "-a", "a-", "_a", "a_", "ä", "..", &too_long,
    ] {
        let scene = Scene::new();
        let name = if name.starts_with('-') { "a-" } else { name };
        let answer = acquire(&scene, name, &[]).expect(2, name);
        assert!(message(&answer, "bad_arguments").contains("name"));
        assert_eq!(answer.json()["lock_name"], name);
        assert!(!scene.locks().exists(), "{name:?}: nothing was touched");
    }
}

#[test]
fn a_folder_that_is_made_is_0700_and_files_are_0600() {
    let scene = Scene::new();
    acquired(&scene, "x", "r");
    let mode = |path: PathBuf| fs::metadata(path).expect("there").mode() & 0o7777;
    assert_eq!(mode(scene.locks()), 0o700);
    assert_eq!(mode(file(&scene, "x")), 0o600);
    let _ = call(&scene, &["heartbeat", "x", "--request-id", "r"]).expect(0, "renewed");
    assert_eq!(mode(file(&scene, "x")), 0o600, "after a heartbeat too");
}

#[test]
fn a_folder_that_others_may_write_is_refused_and_one_that_they_can_read_is_warned_of() {
    for (mode, refused) in [
        (0o770, true),
        (0o707, true),
        (0o1777, true),
        (0o750, false),
        (0o705, false),
    ] {
        let scene = Scene::new();
        fs::create_dir(scene.locks()).unwrap();
        fs::set_permissions(scene.locks(), Permissions::from_mode(mode)).unwrap();
        let answers = [acquire(&scene, "x", &[]), run(&scene, "y", &[], &["true"])];
        for answer in answers {
            if refused {
                let _ = answer.expect(7, &format!("{mode:o}"));
                assert!(!file(&scene, "x").exists(), "{mode:o}");
            } else {
                let answer = answer.expect(0, &format!("{mode:o}"));
                let said = answer.stderr();
                assert_eq!(said.matches("chmod 700").count(), 1, "{mode:o}: {said}");
            }
        }
    }
}

#[test]
fn the_actor_is_given_or_of_the_environment_or_unknown() {
    for (flags, variable, expected) in [
        (&["--actor", "bob"][..], Some("carol"), "bob"),
        (&[], Some("carol"), "carol"),
        (&[], Some(""), "unknown"),
        (&[], None, "unknown"),
    ] {
        let scene = Scene::new();
        let words = ["acquire", "x", "--owner", "none"];
        let words: Vec<&str> = words.iter().chain(&INTENT).chain(flags).copied().collect();
        let mut command = fleet(&scene, &words);
        if let Some(actor) = variable {
            command.env("ACTOR", actor);
        }
        let _ = answer(&mut command).expect(0, "acquired");
        assert_eq!(
            record(&scene, "x")["actor"],
            expected,
            "{flags:?} {variable:?}"
        );
    }
}

#[test]
fn a_request_id_is_given_or_made_of_12_hex_digits() {
    let scene = Scene::new();
    acquired(&scene, "x", "run.42");
    assert_eq!(record(&scene, "x")["request_id"], "run.42");
    let _ = acquire(&scene, "y", &[]).expect(0, "acquired");
    let record = record(&scene, "y");
    let id = record["request_id"].as_str().unwrap();
    let digits = id.strip_prefix("req_").expect("its prefix");
    assert_eq!(digits.len(), 12, "{id}");
    assert!(digits.bytes().all(|byte| byte.is_ascii_hexdigit()), "{id}");
}

#[test]
fn the_host_id_is_of_the_configuration_else_the_host_name() {
    let scene = Scene::new();
    let _ = acquire(&scene, "x", &[]).expect(0, "acquired");
    let name = rustix::system::uname()
        .nodename()
        .to_string_lossy()
        .into_owned();
    assert_eq!(record(&scene, "x")["host_id"], name);
    scene.write("tenure.toml", "host_id = \"fleet-7\"\n");
    let _ = acquire(&scene, "y", &[]).expect(0, "acquired");
    assert_eq!(record(&scene, "y")["host_id"], "fleet-7");
}

#[test]
fn intent_name_and_version_are_required_before_anything_is_touched() {
    for (missing, words) in [
        ("--intent-name", &["--intent-version", "1"][..]),
        ("--intent-version", &["--intent-name", "i"]),
        (
            "--intent-name",
            &["--intent-name", " ", "--intent-version", "1"],
        ),
        ("--intent-name", &[]),
    ] {
        for verb in ["acquire", "run"] {
            let scene = Scene::new();
            let mut all = vec![verb, "x"];
            all.extend(words);
            if verb == "run" {
                all.extend(["--", "echo", "ran"]);
            }
            let said = bad_arguments(&scene, &all);
            assert!(said.contains(missing), "{said}");
            assert!(!scene.locks().exists(), "nothing was touched");
        }
    }
}

#[test]
fn metadata_and_ttl_of_a_bad_form_are_refused_before_anything_is_touched() {
    for words in [
        ["--metadata", "novalue"],
        ["--metadata", "=v"],
        ["--metadata", "tenure=x"],
        ["--ttl", "0"],
        ["--ttl", "0.5"],
        ["--ttl", "1.5"],
        ["--ttl", "1500ms"],
        ["--ttl", "soon"],
    ] {
        let scene = Scene::new();
        let answer = acquire(&scene, "x", &words).expect(2, &words.join(" "));
        let said = message(&answer, "bad_arguments");
        assert!(said.contains(words[0]), "{said}");
        assert!(!scene.locks().exists(), "nothing was touched");
    }
}

#[test]
fn all_that_is_missing_is_told_in_one_sentence() {
    let scene = Scene::new();
    for (words, missing) in [
        (
            &["acquire"][..],
            "NAME, --intent-name and --intent-version are missing: ",
        ),
        (
            &["run", "--", "true"],
            "NAME, --intent-name and --intent-version are missing: ",
        ),
        (
            &["acquire", "x"],
            "--intent-name and --intent-version are missing: ",
        ),
        (
            &["run", "-l", "x", "--", "true"],
            "--intent-name and --intent-version are missing: ",
        ),
        (
            &["acquire", "--intent-name", "i", "--intent-version", "1"],
            "NAME is missing: ",
        ),
    ] {
        let said = bad_arguments(&scene, words);
        assert!(said.starts_with(missing), "{said}");
    }
    let file = intent(&scene, "controls: {lock: '${params.app}-${params.env}'}\n");
    for (flags, missing) in [
        (
            &[][..],
            "add --param app=VALUE --param env=VALUE --intent-name NAME --intent-version VERSION",
        ),
        (
            &["--param", "app=a", "--intent-name", "i"],
            "add --param env=VALUE --intent-version VERSION",
        ),
    ] {
        for (verb, rest) in [("run", &["--", "true"][..]), ("acquire", &[])] {
            let words = [&[verb, "--intent", &file], flags, rest].concat();
            let said = bad_arguments(&scene, &words);
            assert!(said.ends_with(missing), "{said}");
        }
    }
    assert!(!scene.locks().exists(), "nothing was touched");
}

/// Whatever a verb of the contract is refused for, stdout has one document and stderr nothing; in JSON
/// mode the envelope has the same word as its code.
#[test]
fn every_failure_is_a_document() {
    let scene = Scene::new();
    let planted = plant_foreign(&scene, "theirs", 5);
    scene.write("mine.yaml", "intent: [\n");
    for (words, code, error, lock) in [
        (&["release", "theirs"][..], 6, "not_owner", Some("theirs")),
        (
            &["heartbeat", "theirs", "--request-id", "r"],
            6,
            "not_owner",
            Some("theirs"),
        ),
        (
            &["heartbeat", "gone", "--request-id", "r"],
            80,
            "lock_lost",
            Some("gone"),
        ),
        (&["release", "A"], 2, "bad_arguments", Some("A")),
        (&["release"], 2, "bad_arguments", None),
        (
            &["release", "x", "--no-such-flag"],
            2,
            "bad_arguments",
            None,
        ),
        (&["force-release", "x", "-E"], 2, "bad_arguments", None),
        (&["check", "A"], 2, "bad_arguments", Some("A")),
        (&["list", "--dir", ""], 2, "bad_arguments", None),
        (
            &["wait", "x", "--wait", "soon"],
            2,
            "bad_arguments",
            Some("x"),
        ),
        (
            &["acquire", "--intent", "mine.yaml"],
            2,
            "bad_arguments",
            None,
        ),
        (&["acquire", "--intent", "none.yaml"], 5, "not_found", None),
    ] {
        let answer = call(&scene, words).expect(code, error);
        assert_eq!(answer.stderr(), "", "{words:?}");
        let document = answer.json();
        assert_eq!(document["error"], error, "{words:?}: {document}");
        assert_eq!(
            document["lock_name"].as_str(),
            lock,
            "{words:?}: {document}"
        );
        let said = document["message"].as_str().expect("a sentence");
        assert!(!said.is_empty());
        if error == "not_owner" {
            assert_eq!(document["held_by"], held_by(&planted), "{words:?}");
        }
        let json = [words, &["--output", "json"]].concat();
        let envelope = call(&scene, &json).expect(code, error).json();
        assert_eq!(envelope["error"]["code"], error.to_uppercase(), "{words:?}");
        assert_eq!(envelope["error"]["message"], said, "{words:?}");
    }
    let answer = run(&scene, "x", &[], &["/no/such/program"]).expect(127, "no program");
    assert!(message(&answer, "command_not_found").contains("/no/such/program"));
    fs::set_permissions(scene.locks(), Permissions::from_mode(0o777)).unwrap();
    for verb in [
        "release",
        "heartbeat",
        "force-release",
        "check",
        "wait",
        "list",
    ] {
        let words = if verb == "list" {
            vec![verb]
        } else {
            vec![verb, "x"]
        };
        let answer = call(&scene, &words).expect(7, verb);
        let _ = message(&answer, "unsafe_place");
    }
    // What the contract does not know speaks as it does everywhere.
    let answer = call(&scene, &["clean"]).expect(7, "clean");
    assert_eq!(answer.stdout(), "");
    fs::set_permissions(scene.locks(), Permissions::from_mode(0o700)).unwrap();
    let answer = call(&scene, &["wait", "x"]).expect(0, "free");
    assert_eq!(answer.json(), json!({ "lock_name": "x", "status": "free" }));
    assert_eq!(record(&scene, "theirs"), planted, "untouched");
}

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
    let expected = json!({
        "lock_version": "v1",
        "lock_name": "money-tracker-production",
        "request_id": "req_abcdef012345",
        "actor": "alice",
        "intent": "deploy",
        "intent_version": "1.2.0",
        "host_id": "HOST",
        "pid": 0,
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

#[test]
fn whatever_is_wrong_with_a_record_blocks_and_never_reads_as_stale() {
    let long_ago = ago(5_000);
    let future = ago(-5_000);
    let changed = |key: &str, value: Value| {
        let mut record = foreign("x", 5_000);
        record[key] = value;
        record.to_string()
    };
    let without = |key: &str| {
        let mut record = foreign("x", 5_000);
        record.as_object_mut().unwrap().remove(key);
        record.to_string()
    };
    let mut cases = vec![
        ("garbage".to_owned(), "not JSON"),
        (String::new(), "not JSON"),
        ("[]".to_owned(), "not a JSON object"),
        (changed("lock_version", json!("v2")), "lock_version"),
        (changed("lock_name", json!("y")), "lock_name"),
        (changed("request_id", json!("no id!")), "request_id"),
        (changed("request_id", json!("")), "request_id"),
        (changed("ttl_seconds", json!("900")), "ttl_seconds"),
        (changed("ttl_seconds", json!(0)), "ttl_seconds"),
        (changed("ttl_seconds", json!(1.5)), "ttl_seconds"),
        (changed("pid", json!("12")), "pid"),
        (changed("created_at", json!("yesterday")), "created_at"),
        (
            changed("last_heartbeat_at", json!(long_ago.trim_end_matches('Z'))),
            "last_heartbeat_at",
        ),
        (
            changed("last_heartbeat_at", json!(future)),
            "last_heartbeat_at",
        ),
        (changed("metadata", json!([])), "metadata"),
    ];
    let required = foreign("x", 0);
    let missing: Vec<_> = keys(&required)
        .into_iter()
        .map(|key| (without(key), key.to_owned()))
        .collect();
    cases.extend(
        missing
            .iter()
            .map(|(text, key)| (text.clone(), key.as_str())),
    );
    for (text, why) in cases {
        let scene = Scene::new();
        plant(&scene, "x", &text, 60);
        for flags in [&[][..], &["--force-lock"], &["--force-lock", "--yes"]] {
            let answer = acquire(&scene, "x", flags).expect(4, &text);
            let document = answer.json();
            assert_eq!(
                keys(&document),
                ["error", "lock_name", "held_by", "suggestion"]
            );
            assert_eq!(document["error"], "lock_blocked", "{text}");
            assert_eq!(document["lock_name"], "x");
            assert_eq!(document["held_by"], Value::Null, "{text}");
            let reason = document["suggestion"].as_str().unwrap();
            assert!(reason.contains(why), "{why} in {reason}");
        }
        let left = fs::read_to_string(file(&scene, "x")).unwrap();
        assert_eq!(left, text, "untouched");
    }
}

#[test]
fn force_replaces_a_corrupt_record_only_once_it_is_older_than_the_ttl() {
    let scene = Scene::new();
    plant(&scene, "x", "garbage", 890);
    let _ = acquire(&scene, "x", &["--force-lock"]).expect(4, "too young");
    plant(&scene, "x", "garbage", 910);
    let _ = acquire(&scene, "x", &[]).expect(4, "never unasked");
    let answer = acquire(&scene, "x", &["--force-lock"]).expect(0, "replaced");
    assert!(answer.stderr().contains("corrupt"), "{}", answer.said());
    assert_eq!(record(&scene, "x")["lock_version"], "v1");
}

// Acquire

#[test]
fn an_active_lock_is_never_taken_whatever_flags_are_given() {
    let scene = Scene::new();
    let planted = plant_foreign(&scene, "x", 899 - 30);
    for flags in [
        &[][..],
        &["--force"],
        &["--force-lock"],
        &["--force-lock", "--yes"],
        &["--force-lock", "--yes", "--wait", "200ms"],
        &["--request-id", "req_0123456789ab"],
        &["--request-id", "req_0123456789ab", "--force-lock", "--yes"],
    ] {
        let document = acquire(&scene, "x", flags).expect(4, "active").json();
        assert_eq!(document["error"], "lock_blocked", "{flags:?}");
        let answer = run(&scene, "x", flags, &["echo", "ran"]).expect(4, "active");
        assert_eq!(answer.json(), document, "the same, and nothing ran");
    }
    assert_eq!(record(&scene, "x"), planted, "untouched");
}

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

#[test]
fn a_stale_lock_is_replaced_in_one_step_when_it_is_forced() {
    let scene = Scene::new();
    let _ = plant_foreign(&scene, "x", 901);
    caller(&scene).follows(
        r#"
        # The log tells whose it was.
        $ tenure acquire x --owner none [INTENT] --force-lock --request-id new
        {"status":"acquired","lock_name":"x","request_id":"new","lock_path":"[ROOT]/locks/x.lock","ttl_seconds":900,"token":[N]}
        ! Replaced the stale lock for x of request req_0123456789ab (no heartbeat for [N]s, ttl 900s)
        $ grep -c '"request_id": "new"' locks/x.lock
        1
        # The old holder learns of it.
        $ tenure heartbeat x --request-id req_0123456789ab
        ? 6
        {"error":"not_owner","lock_name":"x","held_by":{"request_id":"new",[..]
        "#,
    );
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
fn a_heartbeat_never_creates_a_lock_again() {
    let scene = Scene::new();
    let _ = call(&scene, &["heartbeat", "x", "--request-id", "r"]).expect(80, "absent");
    assert!(!scene.locks().exists());
    acquired(&scene, "x", "r");
    take_away(&scene, "x");
    let _ = call(&scene, &["heartbeat", "x", "--request-id", "r"]).expect(80, "absent");
    assert!(!file(&scene, "x").exists(), "not again");
    let planted = plant_foreign(&scene, "x", 10);
    let _ = call(&scene, &["heartbeat", "x", "--request-id", "r"]).expect(6, "foreign");
    assert_eq!(record(&scene, "x"), planted);
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

// Release

#[test]
fn only_the_owner_releases_and_it_is_known_by_its_request_id() {
    let scene = Scene::new();
    acquired(&scene, "x", "r");
    for words in [
        &["release", "x"][..],
        &["release", "x", "--request-id", "other"],
    ] {
        let answer = call(&scene, words).expect(6, "not shown");
        assert!(!answer.said().contains("--force"), "{}", answer.said());
        assert_eq!(answer.json()["held_by"], held_by(&record(&scene, "x")));
        assert!(file(&scene, "x").exists(), "nothing was removed");
    }
    caller(&scene).follows(
        r#"
        $ tenure release x --request-id r
        {"status":"released","lock_name":"x","request_id":"r","held_duration_seconds":[N],"result":"success"}
        $ test -e locks/x.lock
        ? 1
        $ tenure release x --request-id r
        {"status":"absent","lock_name":"x"}
        ! x is not held; nothing to release
        "#,
    );
}

/// A script is the ancestor of whatever it calls; that shows nothing.
#[test]
fn descent_from_the_owner_does_not_show_ownership() {
    let scene = Scene::new();
    let line = "tenure --profile fleet acquire x --owner $$ --intent-name i --intent-version 1 \
                >/dev/null && tenure --profile fleet release x >/dev/null; echo $?";
    let answer = scene.shell(line).expect(0, "the shell");
    assert_eq!(answer.stdout(), "6\n", "{}", answer.said());
}

#[test]
fn a_stale_lock_of_its_own_can_be_released() {
    let scene = Scene::new();
    let _ = plant_foreign(&scene, "x", 5_000);
    let _ = call(&scene, &["release", "x", "--request-id", "no"]).expect(6, "another's");
    let words = ["release", "x", "--request-id", "req_0123456789ab"];
    let _ = call(&scene, &words).expect(0, "its own");
    assert!(!file(&scene, "x").exists());
}

#[test]
fn a_result_and_the_step_that_failed_appear_in_the_answer() {
    for (words, result, step) in [
        (&["--result", "success"][..], "success", None),
        (&["--result", "failure"], "failure", Some("command")),
        (
            &["--result", "failure", "--failure-step", "migrate"],
            "failure",
            Some("migrate"),
        ),
        (&["--failure-step", "migrate"], "failure", Some("migrate")),
        (&[], "success", None),
    ] {
        let scene = Scene::new();
        acquired(&scene, "x", "r");
        let mut all = vec!["release", "x", "--request-id", "r"];
        all.extend(words);
        let document = call(&scene, &all).expect(0, "released").json();
        assert_eq!(document["result"], result, "{words:?}");
        assert_eq!(document.get("failure_step"), step.map(Value::from).as_ref());
        let events = events(&scene);
        let last = events.last().expect("an event");
        assert_eq!(last["result"], result, "{words:?}: {last}");
        assert_eq!(last.get("failure_step"), step.map(Value::from).as_ref());
    }
    let scene = Scene::new();
    let _ = call(&scene, &["release", "x", "--result", "maybe"]).expect(2, "no result");
    acquired(&scene, "x", "r");
    let words = ["release", "x", "--request-id", "r", "--result", "success"];
    let words = [&words[..], &["--failure-step", "migrate"]].concat();
    assert!(bad_arguments(&scene, &words).contains("contradict"));
    assert!(file(&scene, "x").exists(), "nothing was touched");
}

// Rollback

#[test]
fn a_rollback_runs_after_a_failure_and_still_under_the_lock() {
    let scene = Scene::new();
    let line = "tenure --profile fleet check x; echo $TENURE_EXIT_CODE $TENURE_FAILURE_STEP \
                $TENURE_NAME $TENURE_TOKEN";
    for (command, code, seen) in [("exit 7", Some(7), 7), ("kill -9 $$", None, 137)] {
        let flags = ["--rollback", line, "--failure-step", "migrate"];
        let answer = run(&scene, "x", &flags, &["sh", "-c", command]);
        assert_eq!(
            answer.status().code(),
            code,
            "its own result: {}",
            answer.said()
        );
        let text = answer.stdout();
        let mut lines = text.lines();
        let check: Value = serde_json::from_str(lines.next().unwrap()).unwrap();
        assert_eq!(check["status"], "active", "{check}");
        let rest = lines.next().unwrap();
        assert!(rest.starts_with(&format!("{seen} migrate x 1")), "{rest}");
        assert!(!file(&scene, "x").exists(), "released afterwards");
    }
    let answer = run(&scene, "x", &["--rollback", "echo rolled back"], &["true"]);
    let answer = answer.expect(0, "a success");
    assert_eq!(answer.stdout(), "", "there is nothing to undo");
}

#[test]
fn what_a_rollback_returns_changes_nothing() {
    let scene = Scene::new();
    for rollback in ["exit 3", "kill -9 $$", "/nowhere/at/all"] {
        let flags = ["--rollback", rollback];
        let answer = run(&scene, "x", &flags, &["sh", "-c", "exit 7"]);
        let answer = answer.expect(7, "the command's own");
        assert!(
            answer.stderr().contains("the rollback"),
            "{}",
            answer.said()
        );
        assert!(!file(&scene, "x").exists(), "released whatever it returned");
    }
}

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

fn intent(scene: &Scene, text: &str) -> String {
    let path = scene.write("intent.yaml", text);
    path.to_str().unwrap().to_owned()
}

const BOTH: &str = "env | grep ^TENURE_ | cut -d= -f1 | sort | tr '\\n' ' '; \
                    cat locks/*.lock 2>/dev/null";

#[test]
fn an_intent_names_the_lock_the_version_and_the_ttl() {
    for text in [
        "metadata: {name: deploy, version: '2.0'}\nspec:\n  mode: mutate\n  controls:\n    \
         lock: '${params.app}-${params.environment}'\n  timeouts: {lock_ttl: 10m}\n",
        "intent: deploy\nintent_version: 2.0\ncontrols: {lock: '${params.app}-\
         ${params.environment}'}\ntimeouts: {lock_ttl: 600}\n",
    ] {
        for (flags, ttl) in [(&[][..], 600), (&["--ttl", "30"], 30)] {
            let scene = Scene::new();
            let file = intent(&scene, text);
            let mut words = vec!["run", "--intent", &file];
            words.extend([
                "--param",
                "app=money-tracker",
                "--param",
                "environment=production",
            ]);
            words.extend(flags);
            words.extend(["--", "cat", "locks/money-tracker-production.lock"]);
            let text = call(&scene, &words).expect(0, "ran").stdout();
            let record: Value = serde_json::from_str(&text).expect("the record");
            assert_eq!(record["lock_name"], "money-tracker-production");
            assert_eq!(record["intent"], "deploy");
            assert_eq!(record["intent_version"], "2.0");
            assert_eq!(record["ttl_seconds"], ttl);
        }
    }
}

#[test]
fn an_observing_intent_takes_no_lock_and_is_never_blocked() {
    let scene = Scene::new();
    let file = intent(
        &scene,
        "intent: look\nintent_version: 1\nmode: observe\ncontrols: {lock: 'x-${params.missing}'}\n",
    );
    let named = intent_named(&scene, "observe", "x");
    let planted = plant_foreign(&scene, "x", 5);
    for file in [&file, &named] {
        let words = ["run", "--intent", file, "--", "sh", "-c", BOTH];
        let answer = call(&scene, &words).expect(0, "not blocked");
        let text = answer.stdout();
        let (variables, left) = text.split_once('{').expect("the other's record");
        assert_eq!(variables, "TENURE_DIR TENURE_REQUEST_ID ", "no token");
        assert!(left.contains("req_0123456789ab"), "{text}");
        assert_eq!(answer.stderr(), "", "no warning");
    }
    assert_eq!(record(&scene, "x"), planted);
    assert!(
        !scene.locks().join(".tenure").exists(),
        "nothing was entered"
    );
    let words = ["run", "--intent", &named, "--", "sh", "-c", "exit 9"];
    let _ = call(&scene, &words).expect(9, "its own code");
    let words = ["run", "--intent", &named, "--", "sh", "-c", "kill -9 $$"];
    assert_eq!(call(&scene, &words).status().code(), None, "and death");
    let words = ["run", "--intent", &named, "--", "/nowhere"];
    let _ = call(&scene, &words).expect(127, "as under a lock");
    fs::set_permissions(scene.locks(), Permissions::from_mode(0o777)).unwrap();
    let words = ["run", "--intent", &named, "--", "true"];
    let _ = call(&scene, &words).expect(0, "the folder is none of its business");
}

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

#[test]
fn a_changing_intent_without_a_lock_warns_and_runs() {
    for (mode, word) in [
        ("mutate", "Mutate"),
        ("reconcile", "Reconcile"),
        ("", "Mutate"),
    ] {
        let scene = Scene::new();
        let mode = if mode.is_empty() {
            String::new()
        } else {
            format!("mode: {mode}\n")
        };
        let file = intent(&scene, &format!("intent: i\nintent_version: 1\n{mode}"));
        let words = ["run", "--intent", &file, "--", "echo", "ran"];
        let answer = call(&scene, &words).expect(0, "goes on");
        assert_eq!(answer.stdout(), "ran\n");
        let said = answer.stderr();
        let warning = format!("{word} intent without lock - concurrent execution possible\n");
        assert_eq!(said, warning);
        assert!(!scene.locks().exists());
    }
}

#[test]
fn a_changing_intent_with_a_lock_is_blocked_like_every_other_caller() {
    for mode in ["mutate", "reconcile"] {
        let scene = Scene::new();
        let file = intent_named(&scene, mode, "x");
        let _ = plant_foreign(&scene, "x", 5);
        let words = [
            "run",
            "--intent",
            &file,
            "--force-lock",
            "--",
            "echo",
            "ran",
        ];
        let document = call(&scene, &words).expect(4, "active").json();
        assert_eq!(document["error"], "lock_blocked");
        let _ = plant_foreign(&scene, "x", 5_000);
        let answer = call(&scene, &words).expect(0, "stale and forced");
        assert_eq!(answer.stdout(), "ran\n");
    }
}

#[test]
fn a_template_that_does_not_resolve_is_an_error_and_never_bent_into_a_name() {
    for (template, params) in [
        ("${params.app}", &[][..]),
        ("${params.app}", &["app="]),
        ("${params.app}", &["app=My App"]),
        ("${params.app}", &["app=a/b"]),
        ("${params.app}", &["app=${params.app}"]),
        ("${env.HOME}", &["app=a"]),
        ("${params.app", &["app=a"]),
        ("-${params.app}", &["app=a"]),
        ("${params.app}", &["app"]),
        ("${params.app}", &["app=a", "app=b"]),
    ] {
        let scene = Scene::new();
        let text = format!("intent: i\nintent_version: 1\ncontrols: {{lock: '{template}'}}\n");
        let file = intent(&scene, &text);
        let mut words = vec!["run", "--intent", &file];
        for param in params {
            words.extend(["--param", param]);
        }
        words.extend(["--", "echo", "ran"]);
        let _ = bad_arguments(&scene, &words);
        assert!(!scene.locks().exists(), "nothing was touched");
    }
}

#[test]
fn an_intent_that_is_not_there_is_exit_5_and_one_that_says_nothing_exit_2() {
    let scene = Scene::new();
    caller(&scene).follows(
        r#"
        $ tenure run --intent nowhere.yaml -- true
        ? 5
        {"error":"not_found","lock_name":null,"message":"--intent nowhere.yaml: No such file or directory (os error 2)"}
        $ tenure run --intent nowhere.yaml --output json -- true
        ? 5
        {"ok":false,"data":null,"error":{"code":"NOT_FOUND",[..]}
        "#,
    );
    for text in [
        "",
        "[",
        "intent: i\n",
        "intent: i\nintent_version: 1\nmode: guess\n",
    ] {
        let file = intent(&scene, text);
        let _ = call(&scene, &["run", "--intent", &file, "--", "true"]).expect(2, text);
    }
    assert!(!scene.locks().exists());
}

#[test]
fn what_an_intent_leaves_out_is_typed_and_what_it_says_may_be_repeated() {
    let identity = ["--intent-name", "i", "--intent-version", "1"];
    let params = ["--param", "app=a", "--param", "env=p"];
    for (text, flags) in [
        (
            "controls: {lock: '${params.app}-${params.env}'}\n",
            &identity[..],
        ),
        (
            "spec: {controls: {lock: '${params.app}-${params.env}'}}\n",
            &identity,
        ),
        (
            "intent: i\ncontrols: {lock: '${params.app}-${params.env}'}\n",
            &identity[2..],
        ),
        ("intent: i\nintent_version: 1\ncontrols: {lock: a-p}\n", &[]),
        (
            "intent: i\nintent_version: 1\ncontrols: {lock: a-p}\n",
            &identity,
        ),
        (
            "{intent: i, intent_version: 1, controls: {lock: a-p}}",
            &["a-p"],
        ),
        ("intent: i\nintent_version: 1\n", &["a-p"]),
        (
            "intent: i\nintent_version: 1\n",
            &["a-p", "--intent-name", "i"],
        ),
    ] {
        let scene = Scene::new();
        let file = intent(&scene, text);
        let params = if text.contains("params") {
            &params[..]
        } else {
            &[]
        };
        let common = [&["--intent", &file], flags, params].concat();
        let words = [&["run"], &common[..], &["--", "cat", "locks/a-p.lock"]].concat();
        let shown = call(&scene, &words).expect(0, text).stdout();
        let ran: Value = serde_json::from_str(&shown).expect("the record");
        assert_eq!(ran["intent"], "i", "{text}");
        assert_eq!(ran["intent_version"], "1", "{text}");
        assert_eq!(ran["lock_name"], "a-p", "{text}");
        let words = [&["acquire", "--owner", "none"], &common[..]].concat();
        let acquired = call(&scene, &words).expect(0, text).json();
        assert_eq!(acquired["lock_name"], "a-p", "{text}");
        assert_eq!(record(&scene, "a-p")["intent"], "i", "{text}");
    }
}

#[test]
fn an_acquire_takes_ttl_mode_and_name_of_an_intent_as_a_run_does() {
    let scene = Scene::new();
    let text = "intent: i\nintent_version: 1\ncontrols: {lock: x}\ntimeouts: {lock_ttl: 10m}\n";
    let file = intent(&scene, text);
    for (flags, ttl) in [
        (&["--request-id", "a"][..], 600),
        (&["--ttl", "30", "--request-id", "b"], 30),
    ] {
        let words = [&["acquire", "--owner", "none", "--intent", &file], flags].concat();
        let acquired = call(&scene, &words).expect(0, "acquired").json();
        assert_eq!(acquired["ttl_seconds"], ttl);
        assert_eq!(record(&scene, "x")["ttl_seconds"], ttl);
        let id = acquired["request_id"].as_str().unwrap();
        let _ = call(&scene, &["release", "x", "--request-id", id]).expect(0, "released");
    }
    for (mode, warning) in [
        ("observe", ""),
        (
            "mutate",
            "Mutate intent without lock - concurrent execution possible\n",
        ),
        (
            "reconcile",
            "Reconcile intent without lock - concurrent execution possible\n",
        ),
    ] {
        let scene = Scene::new();
        let text = format!("{{intent: i, intent_version: 1, mode: {mode}}}");
        let file = intent(&scene, &text);
        let words = ["acquire", "--intent", &file, "--request-id", "r"];
        let answer = call(&scene, &words).expect(0, "never blocked");
        assert_eq!(answer.stderr(), warning);
        assert_eq!(
            answer.json(),
            json!({
                "status": "unlocked",
                "mode": mode,
                "lock_name": null,
                "request_id": "r",
                "lock_path": null,
                "ttl_seconds": null,
                "token": null,
            })
        );
        assert!(!scene.locks().exists(), "nothing was touched");
    }
    let planted = plant_foreign(&scene, "x", 5);
    let observing = intent_named(&scene, "observe", "x");
    let words = ["acquire", "--intent", &observing];
    let _ = call(&scene, &words).expect(0, "not blocked");
    assert_eq!(record(&scene, "x"), planted);
}

#[test]
fn an_intent_and_a_call_that_contradict_each_other_are_refused() {
    let scene = Scene::new();
    let file = intent_named(&scene, "mutate", "x");
    let observing = intent_named(&scene, "observe", "x");
    for (verb, flags, said) in [
        (
            "run",
            &["y", "--intent", &file][..],
            "the lock is \"x\" there and \"y\" here",
        ),
        (
            "acquire",
            &["y", "--intent", &file],
            "the lock is \"x\" there and \"y\" here",
        ),
        (
            "run",
            &[
                "--intent",
                &file,
                "--intent-name",
                "j",
                "--intent-version",
                "2",
            ],
            "name is \"i\" there and \"j\" here, its version is \"1\" there and \"2\" here",
        ),
        (
            "run",
            &["x", "--intent", &observing],
            "it only observes and takes no lock",
        ),
        (
            "run",
            &["-l", "x", "--intent", &observing],
            "it only observes and takes no lock",
        ),
        (
            "acquire",
            &["x", "--intent", &observing],
            "it only observes and takes no lock",
        ),
        ("run", &["y", "--param", "a=b"], "--intent is missing"),
        ("acquire", &["y", "--param", "a=b"], "--intent is missing"),
    ] {
        let rest: &[&str] = if verb == "run" {
            &["--", "echo", "ran"]
        } else {
            &[]
        };
        let words = [&[verb], flags, rest].concat();
        let told = bad_arguments(&scene, &words);
        assert!(told.contains(said), "{told}");
    }
    assert!(!scene.locks().exists());
}

#[test]
fn an_intent_goes_with_no_other_profile() {
    let scene = Scene::new();
    let file = intent_named(&scene, "mutate", "x");
    for words in [
        &["run", "--intent", &file, "--", "echo", "ran"][..],
        &["run", "y", "--intent", &file, "--", "echo", "ran"],
        &["run", "y", "--param", "a=b", "--", "echo", "ran"],
        &[
            "--profile",
            "resume",
            "run",
            "y",
            "--intent",
            &file,
            "--",
            "echo",
        ],
        &["acquire", "--intent", &file],
        &["acquire", "y", "--intent", &file],
        &["--profile", "resume", "acquire", "y", "--param", "a=b"],
    ] {
        let answer = scene.run(words).expect(2, &words.join(" "));
        assert_eq!(answer.stdout(), "", "{words:?}");
    }
    let root = scene.root().to_str().unwrap();
    let words = ["--profile", "sprint", "acquire", "--project-root", root];
    let more = ["--session-id", "s", "--epic-spec", "e", "--intent", &file];
    let words = [&words[..], &more].concat();
    let answer = scene.run(words).expect(2, "nor with a sprint");
    assert!(
        answer.stdout().contains("fleet profile"),
        "{}",
        answer.said()
    );
    assert!(!scene.locks().exists());
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

#[test]
fn force_release_removes_what_is_stale_and_refuses_what_is_active() {
    let scene = Scene::new();
    let planted = plant_foreign(&scene, "x", 100);
    for flags in [&[][..], &["--yes"]] {
        let mut words = vec!["force-release", "x"];
        words.extend(flags);
        let document = call(&scene, &words).expect(4, "active").json();
        assert_eq!(document["error"], "lock_blocked");
        assert_eq!(document["held_by"], held_by(&planted));
    }
    assert_eq!(record(&scene, "x"), planted);

    let _ = plant_foreign(&scene, "x", 1_000);
    caller(&scene).follows(
        r#"
        $ tenure force-release x
        {"status":"released","lock_name":"x","request_id":"req_0123456789ab","held_duration_seconds":[N],"result":"forced"}
        $ test -e locks/x.lock
        ? 1
        $ tenure force-release x
        {"status":"absent","lock_name":"x"}
        ! x is not held; nothing to remove
        "#,
    );

    plant(&scene, "x", "garbage", 890);
    caller(&scene).follows(
        r#"
        # It is too young.
        $ tenure force-release x
        ? 4
        {"error":"lock_blocked","lock_name":"x","held_by":null,"suggestion":"The lock file is corrupt: it is not JSON: [..]"}
        "#,
    );
    plant(&scene, "x", "garbage", 910);
    caller(&scene).follows(
        r#"
        $ tenure force-release x
        {"status":"released","lock_name":"x","request_id":null,"held_duration_seconds":null,"result":"forced"}
        $ test -e locks/x.lock
        ? 1
        "#,
    );
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
