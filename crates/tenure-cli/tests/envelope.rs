//! `--output json`: every answer of every verb, success and failure, against the published
//! schemas, and what else programs rely on.
//!
//! Unix only: it works with shells, signals, links and rights. `windows.rs` has what Windows has.
#![cfg(unix)]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test says what it expects by failing"
)]

mod support;
mod support_schemas;

use rustix::process::Signal;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::process::Stdio;
use support::{Answer, Gate, Scene, Started, answer, eventually};
use support_schemas::{satisfies, schemas};

const VERBS: [&str; 18] = [
    "run",
    "acquire",
    "release",
    "force-release",
    "cancel",
    "heartbeat",
    "check",
    "list",
    "wait",
    "fence",
    "clean",
    "doctor",
    "profiles",
    "audit",
    "timeline",
    "push",
    "agent",
    "group-name",
];

/// Runs a verb in JSON mode; answers with its document, which satisfies the verb's schema and
/// agrees with the exit code.
#[track_caller]
fn document(scene: &Scene, words: &[&str], code: i32) -> Value {
    let answer = scene.run(words.iter().copied().chain(after_name(words)));
    judged(words[0], answer, code)
}

/// `--output json` before the command's own words begin.
fn after_name<'a>(words: &[&str]) -> impl Iterator<Item = &'a str> {
    assert!(!words.contains(&"--"), "use `run_document` for a command");
    ["--output", "json"].into_iter()
}

/// The answer of a `run` with `--output json`.
#[track_caller]
fn run_document(scene: &Scene, flags: &[&str], command: &[&str], code: i32) -> Value {
    let words = ["run", "--output", "json"].iter().chain(flags);
    let answer = scene.run(words.chain(&["--"]).chain(command));
    judged("run", answer, code)
}

#[track_caller]
fn judged(verb: &str, answer: Answer, code: i32) -> Value {
    let answer = answer.expect(code, verb);
    let document = answer.json();
    satisfies("envelope", &document);
    satisfies(verb, &document);
    assert_eq!(
        document["ok"],
        code == 0,
        "ok is true only with exit 0: {document}"
    );
    let keys: BTreeSet<_> = document
        .as_object()
        .unwrap()
        .keys()
        .map(String::as_str)
        .collect();
    let expected = ["data", "error", "meta", "ok", "warnings"];
    assert!(
        keys.iter().copied().eq(expected),
        "exactly five keys: {keys:?}"
    );
    document
}

#[track_caller]
fn has_code(document: &Value, code: &str) {
    assert_eq!(document["error"]["code"], code, "{document:#}");
}

fn acquire(scene: &Scene, words: &[&str]) -> Value {
    let all: Vec<_> = ["acquire"].iter().chain(words).copied().collect();
    document(scene, &all, 0)
}

#[test]
fn the_schemas_are_schemas_and_every_verb_has_one() {
    let names: BTreeSet<_> = schemas().into_iter().map(|(name, _)| name).collect();
    for verb in VERBS.iter().chain(&["envelope", "lock"]) {
        assert!(
            names.contains(&format!("{verb}.schema.json")),
            "{verb} has a schema"
        );
    }
    for (name, schema) in schemas() {
        assert!(
            jsonschema::meta::is_valid(&schema),
            "{name} is a schema of its draft"
        );
        assert_eq!(
            schema["$schema"], "https://json-schema.org/draft/2020-12/schema",
            "{name} names its draft"
        );
    }
}

/// A schema that accepts everything would pass every other test here.
#[test]
fn the_schema_refuses_what_the_contract_refuses() {
    let scene = Scene::new();
    let good = document(&scene, &["list"], 0);
    let broken = |change: &dyn Fn(&mut Value)| {
        let mut document = good.clone();
        change(&mut document);
        std::panic::catch_unwind(|| satisfies("envelope", &document)).is_err()
    };
    let failure = |error: Value| {
        broken(&|document| {
            document["ok"] = json!(false);
            document["data"] = Value::Null;
            document["error"] = error.clone();
        })
    };
    assert!(broken(&|d| d["more"] = json!(1)), "a sixth key");
    assert!(
        broken(&|d| d["warnings"] = Value::Null),
        "warnings that are no list"
    );
    assert!(broken(&|d| d["data"] = Value::Null), "success without data");
    assert!(broken(&|d| d["data"] = json!("text")), "data that is text");
    assert!(broken(&|d| d["error"] = json!({})), "success with an error");
    assert!(broken(&|d| d["ok"] = json!(false)), "failure with data");
    assert!(
        broken(&|d| d["meta"]["more"] = json!(1)),
        "a further key in meta"
    );
    assert!(
        broken(&|d| d["meta"]["duration_ms"] = json!(1.5)),
        "half a millisecond"
    );
    for missing in ["duration_ms", "request_id"] {
        let without = broken(&|d| {
            d["meta"].as_object_mut().unwrap().remove(missing);
        });
        assert!(without, "meta without {missing}");
    }
    let error = json!({"code": "SOME_CODE", "message": "It failed.", "retryable": false});
    assert!(!failure(error.clone()), "a plain failure is good");
    for (key, value) in [
        ("more", json!(1)),
        ("code", json!("lower_case")),
        ("message", json!("")),
        ("retryable", json!("no")),
        ("retry_after_ms", json!(5)),
        ("partial", json!("yes")),
        ("context", json!([])),
        ("detail", json!({})),
        ("retry_strategy", json!("never")),
    ] {
        let mut bad = error.clone();
        bad[key] = value.clone();
        assert!(failure(bad), "an error with {key}: {value}");
    }
}

#[test]
fn success_of_every_verb() {
    let scene = Scene::new();
    let free = document(&scene, &["check", "x"], 0);
    assert_eq!(free["data"]["standing"], "free", "{free}");
    let _ = document(&scene, &["check"], 0);
    let _ = document(&scene, &["list"], 0);
    let _ = document(&scene, &["clean", "--dry-run"], 0);
    let profiles = document(&scene, &["profiles"], 0);
    assert_eq!(
        profiles["data"]["profiles"][0]["name"], "native",
        "{profiles}"
    );
    let doctor = document(&scene, &["doctor"], 0);
    assert_eq!(doctor["data"]["place"]["because"], "TENURE_DIR", "{doctor}");
    let audit = document(&scene, &["audit", "x"], 0);
    assert_eq!(audit["data"], serde_json::json!({ "events": [] }));
    let timeline = document(&scene, &["timeline", "x"], 0);
    assert_eq!(timeline["data"]["locks"], serde_json::json!([]));
    let waited = document(&scene, &["wait", "x"], 0);
    assert_eq!(waited["data"]["standing"], "free", "{waited}");

    let words = [
        "x",
        "--owner",
        "none",
        "--ttl",
        "1h",
        "--request-id",
        "r",
        "--why",
        "\"a\"\n\u{1b}é",
    ];
    let held = acquire(&scene, &words);
    assert_eq!(held["meta"]["request_id"], "r", "{held}");
    assert_eq!(held["data"]["already_held"], false, "{held}");
    assert_eq!(acquire(&scene, &words)["data"]["already_held"], true);
    let token = held["data"]["token"].clone();

    let mine = document(&scene, &["check", "x", "--request-id", "r"], 0);
    assert_eq!(mine["data"]["mine"], true, "{mine}");
    assert_eq!(mine["data"]["holder"]["token"], token, "{mine}");
    let list = document(&scene, &["list"], 0);
    assert_eq!(list["data"]["locks"][0]["standing"], "held", "{list}");
    let renewed = document(&scene, &["heartbeat", "x", "--request-id", "r"], 0);
    assert_eq!(renewed["data"]["token"], token, "{renewed}");
    assert_eq!(renewed["data"]["cancel_requested"], false, "{renewed}");
    let released = document(&scene, &["release", "x", "--request-id", "r"], 0);
    assert_eq!(released["data"]["token"], token, "{released}");
    let absent = document(&scene, &["release", "x", "--request-id", "r"], 0);
    assert_eq!(absent["warnings"].as_array().unwrap().len(), 1, "{absent}");
    let cleaned = document(&scene, &["clean"], 0);
    assert_eq!(cleaned["data"]["files_removed"], 1, "{cleaned}");
    let owned = acquire(&scene, &["y"]);
    assert_eq!(owned["data"]["owner_pid"], std::process::id(), "{owned}");
}

#[test]
fn every_answer_about_a_token() {
    let scene = Scene::new();
    let held = acquire(&scene, &["x", "--owner", "none"]);
    let token = held["data"]["token"].to_string();
    let words = ["fence", "check", &token, "--name", "x"];
    let good = document(&scene, &words, 0);
    assert_eq!(good["data"]["token"], held["data"]["token"], "{good}");
    let lost = document(&scene, &["fence", "check", "5", "--name", "x"], 80);
    has_code(&lost, "LOCK_LOST");
    assert_eq!(lost["error"]["context"]["token"], 5, "{lost}");
    let holder = &lost["error"]["context"]["holder"];
    assert_eq!(holder["token"], held["data"]["token"], "who has it: {lost}");
    std::fs::write(scene.locks().join("torn.tenure"), "no record\n").unwrap();
    has_code(
        &document(&scene, &["fence", "check", "5", "--name", "torn"], 12),
        "STORE_UNAVAILABLE",
    );

    let mark = scene.path("mark");
    let mark = mark.to_str().unwrap();
    let ask =
        |token: &str, code| document(&scene, &["fence", "check", token, "--guard", mark], code);
    assert_eq!(
        ask("5", 0)["data"],
        json!({"guard": mark, "token": 5, "before": null, "recorded": true})
    );
    assert_eq!(ask("5", 0)["data"]["recorded"], false);
    assert_eq!(ask("7", 0)["data"]["before"], 5);
    let fenced = ask("5", 80);
    has_code(&fenced, "FENCED");
    assert_eq!(
        fenced["error"]["context"],
        json!({"guard": mark, "token": 5, "mark": 7})
    );
    std::fs::write(mark, "").unwrap();
    has_code(&ask("9", 12), "GUARD_UNREADABLE");
    let nowhere = scene.path("nowhere/mark");
    let words = ["fence", "check", "5", "--guard", nowhere.to_str().unwrap()];
    has_code(&document(&scene, &words, 12), "GUARD_UNAVAILABLE");
}

#[test]
fn every_standing_of_a_lock() {
    let scene = Scene::new();
    let _ = scene
        .run(["run", "free", "--", "true"])
        .expect(0, "a lock that was used");
    let _ = acquire(&scene, &["stale", "--owner", "none", "--ttl", "1ms"]);
    let _ = acquire(&scene, &["detached", "--owner", "none"]);
    let orphan = scene.hold("orphaned", ["-q"]);
    orphan.signal(Signal::KILL);
    eventually("the supervisor to be seen dead", || {
        scene.check("orphaned")["holder"]["orphaned"] == true
    });
    let holder = scene.hold("held", ["-q"]);
    let mut waiting = scene.tenure(["run", "held", "--wait", "forever", "--", "true"]);
    let waiting = Started::new(waiting.stdout(Stdio::null()).stderr(Stdio::null()));
    scene.until_queued("held", 1);
    eventually("the ttl to run out", || scene.standing("stale") == "stale");
    std::fs::write(scene.locks().join("torn.tenure"), "no record\n").unwrap();

    let list = document(&scene, &["list"], 0);
    let locks = list["data"]["locks"].as_array().unwrap();
    let standings: Vec<_> = locks
        .iter()
        .map(|lock| {
            (
                lock["name"].as_str().unwrap(),
                lock["standing"].as_str().unwrap(),
            )
        })
        .collect();
    assert_eq!(
        standings,
        [
            ("detached", "held"),
            ("free", "free"),
            ("held", "held"),
            ("orphaned", "held"),
            ("stale", "stale"),
            ("torn", "unreadable"),
        ]
    );
    assert_eq!(locks[2]["queue"][0]["pid"], waiting.pid(), "{list:#}");
    for lock in locks {
        let name = lock["name"].as_str().unwrap();
        let code = if lock["available"] == true { 0 } else { 4 };
        let alone = document(&scene, &["check", name], code);
        let facts = if code == 0 {
            &alone["data"]
        } else {
            &alone["error"]["context"]
        };
        for fact in ["name", "standing", "mine", "available", "lock_file"] {
            assert_eq!(
                facts[fact], lock[fact],
                "check and list agree on {fact} of {name}"
            );
        }
    }
    // All together are refused by one answer, which has the facts of every one.
    let all = document(&scene, &["check"], 4);
    has_code(&all, "LOCKS_NOT_FREE");
    let error = &all["error"];
    assert_eq!(error["retryable"], false, "one of them is unreadable");
    assert_eq!(
        error["message"],
        "4 of 6 locks are not free: detached (held), held (held), orphaned (held), torn \
         (unreadable)"
    );
    let names = |locks: &Value| {
        let locks = locks.as_array().unwrap().iter();
        locks.map(|lock| lock["name"].clone()).collect::<Vec<_>>()
    };
    assert_eq!(
        names(&error["context"]["locks"]),
        names(&list["data"]["locks"]),
        "{all:#}"
    );
    orphan.gate.open();
    let _ = holder.open().expect(0, "the holder");
    let _ = waiting.finish().expect(0, "the waiter");
}

#[test]
fn a_held_lock_is_answered_with_who_and_when_to_come_back() {
    let scene = Scene::new();
    let holder = scene.hold("x", ["--why", "moving the data"]);
    let pid = holder.pid();
    let waited = [
        run_document(&scene, &["x", "-w", "1"], &["true"], 4),
        document(&scene, &["acquire", "x", "-w", "1"], 4),
        document(&scene, &["wait", "x", "-w", "1"], 4),
    ];
    for document in &waited {
        has_code(document, "LOCK_HELD");
        let error = &document["error"];
        let age = error["context"]["holder"]["age_ms"].as_u64().unwrap();
        let message = error["message"].as_str().unwrap();
        let seconds = age / 1_000;
        assert_eq!(
            message,
            format!(
                "Resource lock held by PID {pid} (age: {seconds}s) — acquisition timed out after 1s"
            ),
            "{document:#}"
        );
        let file = scene.locks().join("x.tenure");
        assert_eq!(
            error["detail"].as_str().unwrap(),
            format!(
                "lock_file={} holder_pid={pid} holder_age_ms={age}",
                file.display()
            )
        );
        assert_eq!(error["retryable"], true);
        assert!(
            error["retry_after_ms"].as_u64().unwrap() > 0,
            "{document:#}"
        );
        let context = &error["context"];
        assert_eq!(context["holder"]["pid"], pid);
        assert_eq!(context["holder"]["why"], "moving the data");
        assert!(
            context["waited_ms"].as_u64().unwrap() >= 1_000,
            "{document:#}"
        );
    }
    for (document, called, phase) in [
        (
            run_document(&scene, &["x", "-n"], &["true"], 4),
            "lock",
            "acquire",
        ),
        (
            document(&scene, &["acquire", "x", "-n"], 4),
            "lock",
            "acquire",
        ),
        (document(&scene, &["check", "x"], 4), "lock x", "check"),
        (
            document(&scene, &["wait", "x", "--wait", "0"], 4),
            "lock",
            "wait",
        ),
    ] {
        has_code(&document, "LOCK_HELD");
        assert_eq!(document["error"]["phase"], phase, "{document:#}");
        assert_eq!(document["error"]["context"]["name"], "x", "{document:#}");
        let message = document["error"]["message"].as_str().unwrap();
        assert!(
            message.starts_with(&format!("Resource {called} held by PID {pid} (age: ")),
            "{message}"
        );
        assert!(
            !message.contains("timed out"),
            "the call did not wait: {message}"
        );
        assert_eq!(document["error"]["context"]["waited_ms"], Value::Null);
    }
    let _ = holder.open().expect(0, "the holder");
}

#[test]
fn a_hold_of_nobody_is_named_by_its_request_id() {
    let scene = Scene::new();
    let _ = acquire(&scene, &["x", "--owner", "none", "--request-id", "r"]);
    let document = run_document(&scene, &["x", "-n"], &["true"], 4);
    has_code(&document, "LOCK_HELD");
    assert_eq!(
        document["error"]["context"]["holder"]["pid"],
        Value::Null,
        "{document}"
    );
    let message = document["error"]["message"].as_str().unwrap();
    assert!(message.contains("request r"), "{message}");
}

/// A mean of past holds is kept with the lock, and the hint follows it.
#[test]
fn the_hint_follows_what_is_known_of_the_lock() {
    let scene = Scene::new();
    for _ in 0..3 {
        let _ = scene
            .run(["run", "short", "--", "true"])
            .expect(0, "a short hold");
        let _ = scene
            .run(["run", "long", "--", "sleep", "0.7"])
            .expect(0, "a long hold");
    }
    let hint = |name: &str| {
        let holder = scene.hold(name, ["-q"]);
        let document = run_document(&scene, &[name, "-n"], &["true"], 4);
        let _ = holder.open().expect(0, "the holder");
        document["error"]["retry_after_ms"].as_u64().unwrap()
    };
    let long = hint("long");
    assert!(
        (50..=1_000).contains(&long),
        "about what is left of 700 ms, not {long}"
    );
    let queued = {
        let holder = scene.hold("long", ["-q"]);
        let mut waiting = scene.tenure(["run", "long", "--wait", "forever", "--", "true"]);
        let waiting = Started::new(waiting.stdout(Stdio::null()).stderr(Stdio::null()));
        scene.until_queued("long", 1);
        let document = run_document(&scene, &["long", "-n"], &["true"], 4);
        let _ = holder.open().expect(0, "the holder");
        let _ = waiting.finish().expect(0, "the waiter");
        document["error"]["retry_after_ms"].as_u64().unwrap()
    };
    assert!(queued > 100, "earlier waiters come first: {queued}");
}

#[test]
fn other_refusals() {
    let scene = Scene::new();
    let _ = acquire(&scene, &["x", "--owner", "none", "--request-id", "r"]);
    for force in [
        document(&scene, &["acquire", "x", "--force"], 4),
        run_document(&scene, &["x", "--force"], &["true"], 4),
    ] {
        has_code(&force, "CONFIRMATION_REQUIRED");
        assert_eq!(
            force["error"]["retryable"], false,
            "the same call cannot succeed: {force}"
        );
    }
    for verb in ["release", "heartbeat"] {
        let document = document(&scene, &[verb, "x", "--request-id", "other"], 6);
        has_code(&document, "NOT_OWNER");
        assert_eq!(
            document["error"]["context"]["holder"]["request_id"], "r",
            "{document}"
        );
    }
    let lost = document(&scene, &["heartbeat", "y", "--request-id", "r"], 80);
    has_code(&lost, "LOCK_LOST");
    assert_eq!(lost["error"]["context"]["lost"], true, "{lost}");

    let words = [
        "--output", "json", "acquire", "x", "--force", "--yes", "--owner", "none",
    ];
    let overridden = judged("acquire", scene.run(words), 0);
    let warnings = overridden["warnings"].as_array().unwrap();
    assert!(
        warnings[0].as_str().unwrap().contains("OVERRODE"),
        "{overridden}"
    );

    std::fs::write(scene.locks().join("torn.tenure"), "no record\n").unwrap();
    for document in [
        document(&scene, &["check", "torn"], 4),
        document(&scene, &["acquire", "torn"], 4),
        document(&scene, &["wait", "torn"], 4),
        document(&scene, &["release", "torn"], 4),
        document(&scene, &["heartbeat", "torn"], 4),
        document(&scene, &["cancel", "torn"], 4),
        run_document(&scene, &["torn"], &["true"], 4),
    ] {
        has_code(&document, "LOCK_UNREADABLE");
        let context = &document["error"]["context"];
        assert!(
            context["lock_file"]
                .as_str()
                .unwrap()
                .ends_with("torn.tenure"),
            "{document}"
        );
    }
}

#[test]
fn every_event_of_the_audit() {
    use tenure_core::{LockName, RequestId, Takeover};
    use tenure_engine::audit::{AuditLog, Ending, Layout, Occasion, Record, Releaser};
    let scene = Scene::new();
    let (lock, id) = (LockName::new("x").unwrap(), RequestId::new("r").unwrap());
    let occasion = Occasion::new(&lock, &id, 0);
    let second = std::time::Duration::from_millis(1_500);
    let failure = Ending::Failure { step: "command" };
    let log = AuditLog::new(scene.locks().join("audit"), Layout::OneFile);
    for record in [
        Record::lock_acquired(occasion, "/l".as_ref(), second, 1),
        Record::of_steal(occasion, Takeover::Corrupt, None, b"{", true),
        Record::lock_released(occasion, second, failure, Releaser::Other(None)),
        Record::lock_release_failed(occasion, "/l".as_ref(), "EACCES: permission denied"),
        Record::heartbeat_failed(occasion, 3, "EIO: input/output error"),
    ] {
        log.append(&record).unwrap();
    }
    let audit = document(&scene, &["audit"], 0);
    assert_eq!(audit["data"]["events"].as_array().map(Vec::len), Some(5));
    let timeline = document(&scene, &["timeline"], 0);
    let incidents = timeline["data"]["locks"][0]["incidents"].as_array();
    assert_eq!(incidents.map(Vec::len), Some(3), "{timeline}");
    let dir = scene.write("file", "");
    let refused = document(&scene, &["audit", "--audit-dir", dir.to_str().unwrap()], 7);
    has_code(&refused, "UNSAFE_PLACE");
}

#[test]
fn what_is_installed_for_agents() {
    let scene = Scene::new();
    let agent = |action: &str, flags: &[&str], code| {
        let words = ["agent", action, "claude", "--output", "json"];
        let mut command = scene.tenure(words.iter().chain(flags));
        judged("agent", answer(command.current_dir(scene.root())), code)
    };
    let refused = agent("status", &["--user"], 2);
    has_code(&refused, "BAD_ARGUMENTS");
    let shown = agent("install", &["--user", "--dry-run"], 0);
    assert!(shown["data"]["difference"].is_string());
    let made = agent("install", &["--user"], 0);
    assert_eq!(made["data"]["files"][0]["change"], "made");
    agent("status", &[], 0);
    let removed = agent("uninstall", &["--user"], 0);
    assert_eq!(removed["data"]["files"][0]["change"], "removed");
    has_code(&agent("status", &[], 1), "SOMETHING_WRONG");
    has_code(&agent("probe", &[], 1), "NOT_ARRIVED");
}

#[test]
fn a_group_and_a_push() {
    let scene = Scene::new();
    let group = ["group-name", "--event", "issues", "--number", "7"];
    let named = document(&scene, &group, 0);
    assert_eq!(named["data"], json!({ "group": "issue-7" }));
    let nameless = document(&scene, &["group-name"], 2);
    has_code(&nameless, "BAD_ARGUMENTS");

    let repositories = scene.shell(&format!(
        "cd '{}' && git init -q --bare -b main b && git clone -q b c && cd c && \
         git config user.name t && git config user.email t@localhost && \
         git commit -q --allow-empty -m 1",
        scene.root().display()
    ));
    assert_eq!(repositories.code(), 0, "{}", repositories.said());
    let push = |words: &[&str], code| {
        let words = ["push", "--backoff", "5ms", "--output", "json"]
            .iter()
            .chain(words);
        let mut command = scene.tenure(words);
        judged("push", answer(command.current_dir(scene.path("c"))), code)
    };
    has_code(&push(&[], 5), "NO_DEFAULT_BRANCH");
    let pushed = push(&["--branch", "main"], 0);
    assert_eq!(pushed["data"]["already"], false, "{pushed:#}");
    assert_eq!(push(&[], 0)["data"]["already"], true);
    has_code(&push(&["--remote", "nope"], 1), "PUSH_FAILED");
    has_code(&push(&["--attempts", "0"], 2), "BAD_ARGUMENTS");
    let foretold = push(&["--dry-run", "--branch", "more"], 0);
    assert_eq!(foretold["data"]["makes_branch"], true, "{foretold:#}");
    assert_eq!(push(&["--dry-run"], 0)["data"]["already"], true);
    let mut git = scene.program("git");
    let branched = git.args(["checkout", "-q", "-b", "side"]);
    answer(branched.current_dir(scene.path("c"))).expect(0, "a branch");
    has_code(&push(&[], 5), "NO_UPSTREAM");
    let mut git = scene.program("git");
    let back = git.args(["checkout", "-q", "main"]);
    answer(back.current_dir(scene.path("c"))).expect(0, "back");
    std::fs::write(scene.path("b/refs/heads/new.lock"), "").unwrap();
    let exhausted = push(&["--branch", "new", "--attempts", "2"], 1);
    has_code(&exhausted, "PUSH_EXHAUSTED");
    assert_eq!(exhausted["error"]["retryable"], true, "{exhausted:#}");
    assert_eq!(
        exhausted["error"]["message"],
        "Failed to push after 2 attempts"
    );
    assert_eq!(
        exhausted["warnings"].as_array().map(Vec::len),
        Some(1),
        "the attempt before the last one: {exhausted:#}"
    );
}

#[test]
fn pages_and_the_version_keep_to_their_schemas() {
    let scene = Scene::new();
    assert_eq!(document(&scene, &["help"], 0)["data"]["verb"], Value::Null);
    assert_eq!(document(&scene, &["help", "run"], 0)["data"]["verb"], "run");
    has_code(
        &document(&scene, &["help", "--profile", "none"], 2),
        "BAD_ARGUMENTS",
    );
    let _ = judged("version", scene.run(["--version", "--output", "json"]), 0);
}

/// A single document is answered with exit 2, whatever is wrong and wherever the format was asked for.
#[test]
fn bad_arguments_are_answered_with_one_document() {
    let scene = Scene::new();
    for words in [
        &["run"][..],
        &["run", "x"],
        &["run", "x", "true"],
        &["run", "x", "--wait", "soon", "--", "true"],
        &["run", "a/b", "--", "true"],
        &["run", "\u{1b}[31m", "--", "true"],
        &["run", "x", "--nonsense", "--", "true"],
        &["run", "x", "-E", "256", "--", "true"],
        &["acquire"],
        &["acquire", "x", "--owner", "nobody"],
        &["release", "x", "--request-id", "a b"],
        &["heartbeat"],
        &["cancel"],
        &["cancel", "x", "--group", "g"],
        &["cancel", "--group", ""],
        &["run", "--group", "g", "--queue", "none", "--", "true"],
        &[
            "run",
            "--group",
            "g",
            "--queue",
            "max",
            "--cancel-in-progress",
            "--",
            "true",
        ],
        &["run", "x", "--slots", "0", "--", "true"],
        &["run", "x", "-l", "x", "--", "true"],
        &["run", "x", "-n", "--ticket", "auto", "--", "true"],
        &["acquire", "x", "--shared", "--slots", "2"],
        &["acquire", "x", "--ticket", "soon"],
        &["check", "x", "y"],
        &["list", "x", "y"],
        &["wait", ".."],
        &["fence"],
        &["fence", "frobnicate"],
        &["fence", "check"],
        &["fence", "check", "5"],
        &["fence", "check", "5", "--name", "x", "--guard", "x"],
        &["fence", "check", "0", "--name", "x"],
        &["fence", "check", "9007199254740992", "--guard", "x"],
        &["fence", "check", "+5", "--guard", "x"],
        &["clean", "--nonsense"],
        &["profiles", "x"],
        &["profiles", "--profile", "nightly"],
        &["audit", "--event", "lock_dreamt"],
        &["timeline", "--since", "tomorrow"],
    ] {
        let verb = words[0];
        let before = scene.run(["--output", "json"].iter().chain(words));
        let equals = scene.run(["--output=json"].iter().chain(words));
        let environment = answer(scene.tenure(words).env("TENURE_OUTPUT", "json"));
        for (answer, how) in [
            (before, "before"),
            (equals, "with ="),
            (environment, "variable"),
        ] {
            assert_eq!(
                answer.stderr(),
                "",
                "{words:?} {how}: prose has no place here"
            );
            let document = judged(verb, answer, 2);
            has_code(&document, "BAD_ARGUMENTS");
        }
    }
    for words in [&["frobnicate"][..], &[]] {
        let mut command = scene.tenure(words);
        let answer = answer(command.env("TENURE_OUTPUT", "json")).expect(2, "no verb");
        let document = answer.json();
        satisfies("envelope", &document);
        has_code(&document, "BAD_ARGUMENTS");
    }
    assert!(!scene.locks().exists(), "nothing was created");
}

/// Each check is there with its code, and what is wrong has a line that mends it.
#[test]
fn a_doctor_that_finds_something_wrong_says_all_that_it_found() {
    let scene = Scene::new();
    let status = |document: &Value, check: &str| {
        let report = [&document["data"], &document["error"]["context"]];
        let report = report.into_iter().find(|it| !it.is_null()).unwrap();
        let checks = report["checks"].as_array().unwrap();
        let found = checks.iter().find(|it| it["check"] == check);
        found.map(|it| it["status"].as_str().unwrap().to_owned())
    };
    scene.write("tenure.toml", "dri = 1\n");
    let from = |dir: Option<&str>, code: i32| {
        let mut call = scene.tenure(["doctor", "--output", "json"]);
        call.current_dir(scene.root()).env_remove("TENURE_DIR");
        if let Some(dir) = dir {
            call.env("TENURE_DIR", dir);
        }
        judged("doctor", answer(&mut call), code)
    };
    let relative = from(Some("locks"), 1);
    has_code(&relative, "SOMETHING_WRONG");
    assert_eq!(status(&relative, "folder"), None, "it is not known");
    let broken = from(None, 1);
    assert_eq!(status(&broken, "configuration").unwrap(), "wrong");
    let named = from(Some(scene.locks().to_str().unwrap()), 1);
    assert_eq!(status(&named, "configuration").unwrap(), "wrong");
    scene.write("tenure.toml", "");
    std::fs::create_dir(scene.locks()).unwrap();
    std::os::unix::fs::symlink("elsewhere", scene.locks().join("x.tenure")).unwrap();
    let link = document(&scene, &["doctor"], 1);
    assert_eq!(status(&link, "lock_files").unwrap(), "wrong");
}

#[test]
fn a_command_that_ran_owns_stdout_and_gets_no_document() {
    let scene = Scene::new();
    for (line, code) in [("exit 0", 0), ("exit 1", 1), ("exit 4", 4), ("exit 79", 79)] {
        let words = ["run", "x", "--output", "json", "--", "sh", "-c", line];
        let answer = scene.run(words).expect(code, "its own code");
        assert_eq!(
            (answer.stdout(), answer.stderr()),
            (String::new(), String::new()),
            "{line}"
        );
    }
    let words = [
        "run",
        "x",
        "--output",
        "json",
        "--",
        "sh",
        "-c",
        "kill -9 $$",
    ];
    let answer = scene.run(words);
    assert_eq!(answer.stdout(), "", "not for a death by signal either");
    let words = ["run", "x", "--output", "json", "-v", "--", "echo", "mine"];
    assert_eq!(
        scene.run(words).stdout(),
        "mine\n",
        "and prose goes to stderr"
    );
}

/// What a command wrote may end anywhere in a line, and no later reader of a pipe sees where. An empty line is the price.
#[test]
fn a_document_after_the_commands_own_output_is_the_last_line() {
    let scene = Scene::new();
    let outputs: [(&str, &[u8]); 7] = [
        (":", b""),
        ("echo one; echo two", b"one\ntwo\n"),
        ("printf 'progress 50%%'", b"progress 50%"),
        ("printf 'progress 50%%\\r'", b"progress 50%\r"),
        ("printf 'half \\303'", b"half \xc3"),
        ("printf 'ok: maybe'; printf more >&2", b"ok: maybemore"),
        ("trap '' INT TERM; printf 'to be killed'", b"to be killed"),
    ];
    for format in ["json", "yaml"] {
        for (line, own) in outputs {
            // tenure gets the signal once all is written, and passes it on.
            let line = format!("{line}; kill -TERM $PPID; sleep 60");
            let words = ["run", "x", "--output", format, "--grace", "0s", "--"];
            let mut command = scene.program("sh");
            // Both streams are one pipe.
            command.args(["-c", "exec 2>&1; exec tenure \"$@\"", "sh"]);
            let said = answer(command.args(words).args(["sh", "-c", &line]));
            let said = said.expect(143, &format!("ended by SIGTERM: {line}"));
            let text = said.0.stdout.strip_prefix(own);
            let text = text.and_then(|rest| rest.strip_prefix(b"\n"));
            let text = text.unwrap_or_else(|| panic!("{line}: {}", said.said()));
            let text = std::str::from_utf8(text).expect("no byte of the command's");
            let document: Value = match format {
                "json" => {
                    assert_eq!(text.lines().count(), 1, "{text}");
                    serde_json::from_str(text).expect(text)
                }
                _ => serde_saphyr::from_str(text).expect(text),
            };
            satisfies("run", &document);
            has_code(&document, "CANCELLED");
        }
    }
}

const ENDING: [(Signal, &str, i32); 3] = [
    (Signal::TERM, "SIGTERM", 143),
    (Signal::INT, "SIGINT", 130),
    (Signal::HUP, "SIGHUP", 129),
];

#[track_caller]
fn is_cancelled(document: &Value, signal: &str, phase: &str) {
    has_code(document, "CANCELLED");
    let error = &document["error"];
    assert_eq!(error["partial"], true, "{document}");
    assert_eq!(error["signal"], signal, "{document}");
    assert_eq!(error["phase"], phase, "{document}");
    assert_eq!(error["retryable"], false, "{document}");
    assert!(
        error["message"].as_str().unwrap().contains(signal),
        "{document}"
    );
}

/// What the command makes of the signal does not make the run a success, and is not lost either.
#[test]
fn a_code_that_the_command_ends_with_after_a_signal_is_told_beside_it() {
    for (signal, name, code) in ENDING {
        let short = name.trim_start_matches("SIG");
        for own in [0, 3] {
            let scene = Scene::new();
            let trap = format!("trap 'exit {own}' {short}");
            let stopped = |flags: &[&str]| {
                let gate = Gate::new(&scene, "x");
                let holder = scene.hold_with("x", flags, &gate, &trap);
                holder.signal(signal);
                holder.finish()
            };
            let document = judged("run", stopped(&["--output", "json"]), code);
            is_cancelled(&document, name, "run");
            let context = &document["error"]["context"];
            assert_eq!(context["command_exit_code"], own, "{document}");
            let said = stopped(&[]).expect(code, name).stderr();
            let expected = format!("Cancelled by {name}; the command ended with exit code {own}\n");
            assert!(said.ends_with(&expected), "{said}");
        }
    }
    // A command that dies of the signal has no code of its own.
    let scene = Scene::new();
    let holder = scene.hold("x", ["--output", "json"]);
    holder.signal(Signal::TERM);
    let document = judged("run", holder.finish(), 143);
    assert_eq!(document["error"]["context"], Value::Null, "{document}");
    assert_eq!(document["error"]["message"], "Cancelled by SIGTERM");
    // What undoes the work is not the command.
    let gate = Gate::new(&scene, "y");
    let undo = gate.script("trap 'exit 5' TERM");
    let words = [
        "run",
        "y",
        "--output",
        "json",
        "--rollback",
        &undo,
        "--",
        "sh",
        "-c",
        "exit 7",
    ];
    let mut run = scene.tenure(words);
    run.stdout(Stdio::piped()).stderr(Stdio::piped());
    let run = Started::new(&mut run);
    let _ = gate.entered();
    run.signal(Signal::TERM);
    let document = judged("run", run.finish(), 143);
    assert_eq!(
        document["error"]["context"]["command_exit_code"], 7,
        "{document}"
    );
}

#[test]
fn a_signal_while_the_command_runs_is_answered_with_cancelled() {
    for (signal, name, code) in ENDING {
        let scene = Scene::new();
        let holder = scene.hold("x", ["--output", "json"]);
        holder.signal(signal);
        let document = judged("run", holder.finish(), code);
        is_cancelled(&document, name, "run");
        assert!(scene.is_free("x"), "the lock is free");
    }
}

#[test]
fn a_signal_while_waiting_is_answered_with_cancelled() {
    for (signal, name, code) in ENDING {
        let scene = Scene::new();
        let holder = scene.hold("x", ["-q"]);
        for verb in ["run", "acquire", "wait"] {
            let mut command = scene.tenure([verb, "x", "--output", "json", "--wait", "forever"]);
            if verb == "run" {
                command.args(["--", "true"]);
            }
            command.stdout(Stdio::piped()).stderr(Stdio::piped());
            let mut waiting = Started::new(&mut command);
            if verb == "wait" {
                use std::io::Read;
                let mut first = [0; 8];
                waiting.stderr().read_exact(&mut first).expect("its line");
            } else {
                scene.until_queued("x", 1);
            }
            waiting.signal(signal);
            let document = judged(verb, waiting.finish(), code);
            let phase = if verb == "wait" { "wait" } else { "acquire" };
            is_cancelled(&document, name, phase);
        }
        let _ = holder.open().expect(0, "the holder");
    }
}

#[test]
fn a_run_that_was_displaced_or_lost_its_lock_says_so() {
    let scene = Scene::new();
    let holder = scene.hold("x", ["--output", "json"]);
    let words = [
        "run",
        "x",
        "--force",
        "--request-id",
        "new",
        "--wait",
        "20s",
        "--",
        "true",
    ];
    let _ = scene.run(words).expect(0, "the forcing caller");
    let document = judged("run", holder.finish(), 79);
    has_code(&document, "SUPERSEDED");
    assert!(
        document["error"]["message"]
            .as_str()
            .unwrap()
            .contains("new"),
        "{document}"
    );

    let holder = scene.hold("x", ["--output", "json"]);
    std::fs::rename(scene.locks().join("x.tenure"), scene.path("gone")).unwrap();
    has_code(&judged("run", holder.finish(), 80), "LOCK_LOST");
}

/// `cancel` for every kind of holder, and for none.
#[test]
fn whoever_is_asked_to_stop_is_named() {
    let scene = Scene::new();
    has_code(&document(&scene, &["cancel", "x"], 5), "NO_HOLDER");
    let _ = acquire(
        &scene,
        &["x", "--shared", "--owner", "none", "--request-id", "r"],
    );
    let holder = scene.hold("x", ["--shared", "--output", "json", "--request-id", "s"]);
    let both = document(&scene, &["cancel", "x", "--by", "me"], 0);
    assert_eq!(both["meta"]["request_id"], "me", "{both}");
    let asked = both["data"]["asked"].as_array().unwrap();
    let facts: Vec<_> = asked
        .iter()
        .map(|one| (one["request_id"].as_str().unwrap(), &one["supervised"]))
        .collect();
    assert_eq!(facts, [("r", &json!(false)), ("s", &json!(true))], "{both}");
    assert!(asked.iter().all(|one| one["asked_by"] == "me"), "{both}");
    let ended = judged("run", holder.finish(), 79);
    has_code(&ended, "SUPERSEDED");
    assert_eq!(ended["error"]["context"]["superseded_by"], "me", "{ended}");
    assert_eq!(ended["error"]["context"]["name"], "x", "{ended}");
    let again = document(&scene, &["cancel", "x", "--by", "late"], 0);
    assert_eq!(again["data"]["asked"][0]["asked_by"], "me", "who was first");
}

/// No supervisor hears a request to an orphan, and its work can be ended.
#[test]
fn an_orphan_is_refused_as_one_and_ended_as_one() {
    let scene = Scene::new();
    let held = scene.hold("x", ["-q"]);
    scene.until_named("x");
    let refused = document(&scene, &["cancel", "--orphan", "x"], 4);
    has_code(&refused, "NOT_ORPHANED");
    held.signal(Signal::KILL);
    eventually("an orphan", || {
        scene.check("x")["holder"]["orphaned"] == true
    });
    has_code(&document(&scene, &["cancel", "x"], 4), "CANNOT_ASK");
    let words = ["cancel", "--orphan", "x", "--signal", "KILL"];
    let ended = document(&scene, &words, 0);
    assert_eq!(ended["data"]["ended"][0]["command_pid"], held.command);
    has_code(
        &document(&scene, &["cancel", "--orphan", "x"], 5),
        "NO_HOLDER",
    );
    let audit = document(&scene, &["audit", "x"], 0);
    let events = audit["data"]["events"].as_array().cloned();
    let is_ended = |event: &Value| event["event"] == "orphan_ended";
    assert!(
        events.is_some_and(|events| events.iter().any(is_ended)),
        "{audit}"
    );
}

/// A member of a group that gives up its place while it waits.
#[test]
fn a_waiting_run_that_was_superseded_says_by_whom() {
    let scene = Scene::new();
    let _ = acquire(&scene, &["g", "--owner", "none"]);
    let start = |id: &str| {
        let words = [
            "run",
            "--output",
            "json",
            "--group",
            "G",
            "--request-id",
            id,
        ];
        let mut command = scene.tenure(words.iter().chain(&["--", "true"]));
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        Started::new(&mut command)
    };
    let old = start("old");
    scene.until_queued("g", 1);
    let new = start("new");
    let document = judged("run", old.finish(), 79);
    has_code(&document, "SUPERSEDED");
    assert_eq!(document["error"]["context"]["superseded_by"], "new");
    assert_eq!(document["error"]["context"]["name"], "g", "the group");
    new.signal(Signal::TERM);
    is_cancelled(&judged("run", new.finish(), 143), "SIGTERM", "acquire");
}

/// Tickets, slots, shared holders and waiting claims in what `check` and `list` answer.
#[test]
fn several_holders_and_kept_places_keep_to_the_schema() {
    let scene = Scene::new();
    for (name, flags) in [
        ("shared", ["--shared", "-q"]),
        ("slots", ["--slots=2", "-q"]),
    ] {
        for id in ["a", "b"] {
            let words = [
                name,
                flags[0],
                flags[1],
                "--owner",
                "none",
                "--request-id",
                id,
            ];
            let _ = acquire(&scene, &words);
        }
        let words = [name, "-w", "100ms", "--ticket", "auto"];
        let refused = run_document(&scene, &words, &["true"], 4);
        has_code(&refused, "LOCK_HELD");
        let ticket = refused["error"]["context"]["ticket"].as_u64().unwrap();
        let facts = document(&scene, &["check", name], 4);
        let facts = &facts["error"]["context"];
        assert_eq!(facts["queue"][0]["ticket"], ticket, "{facts}");
        assert_eq!(facts["queue"][0]["away"], true, "{facts}");
        assert_eq!(facts["other_holders"][0]["request_id"], "b", "{facts}");
        let slots = if name == "slots" {
            json!(2)
        } else {
            Value::Null
        };
        assert_eq!(facts["holder"]["slots"], slots, "{facts}");
    }
    let _ = document(&scene, &["list"], 0);
    let words = ["shared", "-w", "100ms", "--ticket", "1"];
    has_code(
        &run_document(&scene, &words, &["true"], 5),
        "TICKET_NOT_FOUND",
    );
    let words = ["acquire", "shared", "-w", "100ms", "--ticket", "1"];
    has_code(&document(&scene, &words, 5), "TICKET_NOT_FOUND");
}

/// A circle of waits, and a reentrant run whose hold is gone.
#[test]
fn waits_that_would_never_end_say_so() {
    let scene = Scene::new();
    for (verb, wants_a) in [
        ("run", "run a -w 25s --output json -- true"),
        ("acquire", "acquire a -w 25s --output json"),
    ] {
        // The first run has a and wants b, which the second one has. The second wants a, and is the younger of the two.
        let file = |name: &str| scene.path(&format!("{name}.{verb}"));
        let (a, b) = (file("a"), file("b"));
        let (a, b) = (a.display(), b.display());
        let wants_b = format!(
            "touch '{a}'; until [ -e '{b}' ]; do sleep 0.02; done; exec tenure run b -w 25s -- true"
        );
        let mut outer = scene.tenure(["run", "a", "-q", "--", "sh", "-c", &wants_b]);
        let outer = Started::new(outer.stdout(Stdio::null()).stderr(Stdio::null()));
        eventually("a to be held", || file("a").exists());
        let inner = format!(
            "touch '{b}'; until tenure check b --output json | grep -q 'queue.:.{{'; do sleep 0.02; done; \
             sleep 0.05; exec tenure {wants_a}"
        );
        let answer = scene.run(["run", "b", "-q", "--", "sh", "-c", &inner]);
        has_code(&judged(verb, answer, 81), "DEADLOCK");
        let _ = outer.finish().expect(0, "a's holder, who got b");
    }
    let words = ["run", "c", "--reentrant", "--output", "json", "--", "true"];
    let gone = format!("7={}/c", scene.locks().display());
    let answer = answer(scene.tenure(words).env("TENURE_HELD", gone));
    has_code(&judged("run", answer, 80), "LOCK_LOST");
}

#[test]
fn a_run_that_took_too_long_says_so() {
    let scene = Scene::new();
    let flags = ["--output", "json", "--max-runtime", "1s"];
    let holder = scene.hold("x", flags);
    let document = judged("run", holder.finish(), 10);
    has_code(&document, "MAX_RUNTIME");
    let error = &document["error"];
    assert_eq!(error["partial"], true, "{document}");
    assert_eq!(error["phase"], "run", "{document}");
    assert_eq!(error["context"]["max_runtime_ms"], 1_000, "{document}");
    assert!(scene.is_free("x"), "the lock is free");
}

#[test]
fn a_request_to_stop_shows_in_heartbeat_and_check() {
    let scene = Scene::new();
    let gate = Gate::new(&scene, "x");
    let flags = ["-q", "--request-id", "old", "--grace", "30s"];
    let holder = scene.hold_with("x", flags, &gate, "trap '' INT TERM");
    let words = [
        "run",
        "x",
        "--force",
        "--request-id",
        "new",
        "-w",
        "200ms",
        "--",
        "true",
    ];
    let _ = scene.run(words).expect(4, "its time was up");
    let document = document(&scene, &["heartbeat", "x", "--request-id", "old"], 0);
    assert_eq!(document["data"]["cancel_requested"], true, "{document}");
    assert_eq!(document["data"]["cancel_requested_by"], "new", "{document}");
    let facts = scene.check("x");
    assert_eq!(facts["holder"]["cancel_requested"], true, "{facts}");
    let _ = holder.open().expect(79, "it ends as one that was asked");
}

#[test]
fn yaml_carries_the_same_document() {
    let scene = Scene::new();
    let nasty = "key: [a, b] # no comment\n- \"x\" 'y' %{é}  \\ !tag &a *b | > ~ ";
    for (name, why) in [
        ("x", nasty),
        ("y", "yes"),
        ("z", "1e3"),
        ("null", "null"),
        ("123", "0x1f"),
        ("1e3", "2026-01-01"),
        ("true", ""),
        ("_", " leading"),
        ("a", "\u{2028}\u{feff}\u{85}"),
        ("b", "---"),
    ] {
        let why = format!("--why={why}");
        let words = [
            "acquire",
            name,
            "--owner",
            "none",
            "--request-id",
            "1e3",
            &why,
        ];
        let _ = scene.run(words).expect(0, "acquired");
    }
    for words in [
        &["list"][..],
        &["check", "x", "--request-id", "1e3"],
        &["check", "x"],
        &["check", "123"],
        &["check", "nobody"],
        &["heartbeat", "null", "--request-id", "1e3"],
        &["release", "nobody"],
        &["clean", "--dry-run"],
        &["acquire", "x", "-n"],
        &["wait", "x", "-n"],
        &["profiles"],
        &["fence", "check", "5", "--name", "x"],
        &["fence", "check", "5", "--name", "123"],
        &["acquire", "x", "--wait", "soon"],
    ] {
        let call = |format: &str| scene.run(words.iter().chain(&["--output", format]));
        let (json, yaml) = (call("json"), call("yaml"));
        assert_eq!(json.code(), yaml.code(), "{words:?} ends the same way");
        let text = yaml.stdout();
        let mut read: Value = serde_saphyr::from_str(&text)
            .unwrap_or_else(|error| panic!("{words:?} is no YAML ({error}):\n{text}"));
        let mut written = json.json();
        satisfies(words[0], &read);
        for document in [&mut read, &mut written] {
            forget_times(document);
        }
        assert_eq!(read, written, "{words:?} says the same:\n{text}");
    }
}

/// What differs from call to call.
fn forget_times(value: &mut Value) {
    match value {
        Value::Object(map) => {
            for (key, value) in map {
                match key.as_str() {
                    "timestamp" | "duration_ms" | "age_ms" | "retry_after_ms" | "detail"
                    | "message" | "last_heartbeat" => *value = Value::Null,
                    // Made for calls that show none.
                    "request_id" if value.as_str().is_some_and(|id| id.starts_with("req_")) => {
                        *value = Value::Null;
                    }
                    _ => forget_times(value),
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(forget_times),
        _ => {}
    }
}

#[test]
fn stdout_holds_the_document_and_prose_goes_to_stderr() {
    let scene = Scene::new();
    let holder = scene.hold("x", ["-q"]);
    for format in ["json", "yaml"] {
        let words = [
            "run", "x", "-w", "300ms", "-v", "--output", format, "--", "true",
        ];
        let answer = scene.run(words).expect(4, "held");
        assert!(
            answer.stderr().contains("is held by"),
            "the wait is told: {}",
            answer.said()
        );
        let read: Value = serde_saphyr::from_str(&answer.stdout()).expect("one document");
        satisfies("run", &read);
    }
    holder.signal(Signal::KILL);
    support::send(holder.command, Signal::KILL);
    scene.until_free("x");
    let words = ["acquire", "x", "--owner", "none", "--output", "json"];
    let taken = judged("acquire", scene.run(words), 0);
    let warnings = taken["warnings"].as_array().unwrap();
    assert_eq!(
        warnings.len(),
        1,
        "a takeover is told in the document too: {taken}"
    );
}

#[test]
fn every_call_can_be_told_from_every_other_one() {
    let scene = Scene::new();
    let first = document(&scene, &["list"], 0);
    let second = document(&scene, &["list"], 0);
    assert_ne!(
        first["meta"]["request_id"], second["meta"]["request_id"],
        "an id for a log"
    );
    for verb in ["check", "release", "heartbeat"] {
        let words = [verb, "x", "--request-id", "run-42", "--output", "json"];
        let document = scene.run(words).json();
        assert_eq!(
            document["meta"]["request_id"], "run-42",
            "{verb} repeats the id it was shown"
        );
    }
}

/// What the fleet profile has beyond the other profiles' answers.
#[test]
fn intents_of_a_fleet_and_what_is_refused_there() {
    let scene = Scene::new();
    let observing = scene.write("observe.yaml", "{mode: observe, controls: {lock: x}}");
    let locking = scene.write("lock.yaml", "controls: {lock: x}");
    let (observing, locking) = (observing.to_str().unwrap(), locking.to_str().unwrap());
    let fleet = |words: &[&'static str], more: &[&str], code: i32| {
        let profile = ["--profile", "fleet", "--output", "json"];
        let all: Vec<_> = [words, more, &profile].concat();
        judged(words[0], scene.run(all), code)
    };
    let answer = fleet(&["acquire", "--intent"], &[observing], 0);
    assert_eq!(answer["data"]["status"], "unlocked");
    has_code(
        &fleet(&["acquire", "--intent"], &["nowhere.yaml"], 5),
        "NOT_FOUND",
    );
    has_code(
        &fleet(&["acquire", "--intent"], &[locking], 2),
        "BAD_ARGUMENTS",
    );
    has_code(&fleet(&["acquire"], &[], 2), "BAD_ARGUMENTS");
    let identity = [locking, "--intent-name", "i", "--intent-version", "1"];
    let none = [&identity[..], &["--owner", "none", "--request-id", "r"]].concat();
    let answer = fleet(&["acquire", "--intent"], &none, 0);
    assert_eq!(answer["data"]["name"], "x");
    has_code(&fleet(&["release", "x"], &[], 6), "NOT_OWNER");
    has_code(
        &fleet(&["heartbeat", "x"], &["--request-id", "s"], 6),
        "NOT_OWNER",
    );
    has_code(
        &fleet(&["heartbeat", "y"], &["--request-id", "s"], 80),
        "LOCK_LOST",
    );
    let step = ["--request-id", "r", "--failure-step", "migrate"];
    let both = [&step[..], &["--result", "success"]].concat();
    has_code(&fleet(&["release", "x"], &both, 2), "BAD_ARGUMENTS");
    let answer = fleet(&["release", "x"], &step, 0);
    assert_eq!(answer["data"]["result"], "failure");
    assert_eq!(answer["data"]["failure_step"], "migrate");
}
