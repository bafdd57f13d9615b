//! Every profile, every verb, every way in which a lock can stand and a call can end: the document
//! satisfies the schema of its verb. A reader that knows a profile's own answers from its contract
//! understands it.
//!
//! A combination is made by `support_answers/stage.rs`, or `support_answers/table.rs` says why there
//! is none. One that is neither fails the test; one that is both does too. What each combination
//! answers stands in `answers/PROFILE.txt`, one line each, so a change of an answer is a line in a
//! review: `SNAPSHOTS=overwrite` writes the files anew.
//!
//! Unix only: it works with shells, signals, links and rights. `windows.rs` has what Windows has.
#![cfg(unix)]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test says what it expects by failing, and its figures are for reading"
)]
#![allow(
    clippy::disallowed_methods,
    reason = "the other programs that the test plays know nothing of the store and its clock"
)]

mod support;
mod support_answers;
mod support_schemas;

use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use support::{Answer, Scene};
use support_answers::stage::{Speech, Stage};
use support_answers::table::{PROFILES, Profile, SITUATIONS, Situation, VERBS, Verb, no_such};
use support_answers::{Unmade, naive, unmade};
use support_schemas::{breaks, schemas};

fn snapshot(profile: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/answers")
        .join(format!("{profile}.txt"))
}

/// What one combination answered, in short.
struct Told {
    code: i32,
    word: String,
}

/// Judges the envelope of one combination; what is wrong is added to `wrong`.
fn judged(verb: Verb, answer: &Answer, wrong: &mut Vec<String>) -> Told {
    let code = answer.status().code().unwrap_or(-1);
    let text = answer.stdout();
    let Some(line) = text.lines().last() else {
        // A command that ended by itself owns stdout.
        if verb != Verb::Run {
            wrong.push(format!("no document: {}", answer.said()));
        }
        let word = "no document".to_owned();
        return Told { code, word };
    };
    let document: Value = match serde_json::from_str(line) {
        Ok(document) => document,
        Err(error) => {
            wrong.push(format!("no document ({error}): {}", answer.said()));
            let word = "?".to_owned();
            return Told { code, word };
        }
    };
    if verb == Verb::Run || text.lines().count() == 1 {
        wrong.extend(breaks("envelope", &document));
        wrong.extend(breaks(verb.word(), &document));
    } else {
        wrong.push(format!("more than one document: {text}"));
    }
    if document["ok"] != (code == 0) {
        wrong.push(format!(
            "ok is true only with exit 0, not {code}: {document}"
        ));
    }
    if !wrong.is_empty() {
        wrong.push(document.to_string());
    }
    let word = match &document["error"]["code"] {
        Value::String(code) => code.clone(),
        _ => document["data"]["status"]
            .as_str()
            .unwrap_or("ok")
            .to_owned(),
    };
    Told { code, word }
}

/// Makes every combination of one profile, judges it, and compares the table of what was answered.
fn covers(name: &str) {
    let profile = PROFILES
        .iter()
        .find(|profile| profile.name == name)
        .unwrap();
    let mut table = String::new();
    let mut absent: BTreeMap<(&str, &str), Vec<&str>> = BTreeMap::new();
    let mut faults = Vec::new();
    let (mut made, mut left_out) = (0, 0);
    for verb in VERBS {
        for situation in SITUATIONS {
            let at = format!("{name} {verb:?} {situation:?}");
            if let Some(why) = no_such(profile, verb, situation) {
                left_out += 1;
                absent
                    .entry((situation.word(), why))
                    .or_default()
                    .push(verb.shown());
                continue;
            }
            let told = tell(profile, verb, situation, &at, &mut faults);
            made += 1;
            let _ = writeln!(
                table,
                "{:<13} {:<16} {:>3} {}",
                verb.shown(),
                situation.word(),
                told.code,
                told.word
            );
        }
    }
    let _ = writeln!(table, "\nThere is no such answer:");
    for ((situation, why), verbs) in absent {
        let _ = writeln!(table, "{situation}: {why}: {}", verbs.join(", "));
    }
    println!("{name}: {made} combinations made, {left_out} that do not exist");
    assert_eq!(made + left_out, VERBS.len() * SITUATIONS.len());
    assert!(
        faults.is_empty(),
        "{} of {made} answers of {name} are wrong:\n{}",
        faults.len(),
        faults.join("\n\n")
    );
    let path = snapshot(name);
    if std::env::var("SNAPSHOTS").as_deref() == Ok("overwrite") {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, &table).unwrap();
    }
    let known = std::fs::read_to_string(&path).unwrap_or_default();
    for (known, now) in known.lines().zip(table.lines()) {
        assert_eq!(now, known, "{}", path.display());
    }
    assert_eq!(table, known, "{}", path.display());
}

/// Makes one combination, in JSON and, for a profile that other programs know, in its own words.
fn tell(
    profile: &Profile,
    verb: Verb,
    situation: Situation,
    at: &str,
    faults: &mut Vec<String>,
) -> Told {
    let scene = Scene::new();
    let stage = Stage::new(&scene, profile, Speech::Json);
    let mut wrong = Vec::new();
    let answer = stage.play(verb, situation);
    let told = judged(verb, &answer, &mut wrong);
    if profile.is_published() {
        let scene = Scene::new();
        let stage = Stage::new(&scene, profile, Speech::Own);
        let own = stage.play(verb, situation);
        if own.status().code() != Some(told.code) {
            wrong.push(format!(
                "another exit code in its own words: {}",
                own.said()
            ));
        }
        wrong.extend(naive::reads(profile, verb, &own));
        if verb == Verb::Acquire && told.code == 0 {
            wrong.extend(naive::reads_record(profile, &stage.record()));
        }
    }
    if !wrong.is_empty() {
        faults.push(format!("{at}:\n  {}", wrong.join("\n  ")));
    }
    told
}

#[test]
fn native() {
    covers("native");
}

#[test]
fn sprint() {
    covers("sprint");
}

#[test]
fn resume() {
    covers("resume");
}

#[test]
fn session() {
    covers("session");
}

#[test]
fn fleet() {
    covers("fleet");
}

/// The table has every verb and every profile that there is.
#[test]
fn the_table_has_every_verb_and_profile() {
    let scene = Scene::new();
    let help = scene.run(["--help"]).stdout();
    let (_, commands) = help.split_once("\nVerbs:").expect("the verbs");
    let (commands, _) = commands.split_once("\n\n").expect("their end");
    let there: BTreeSet<&str> = commands
        .lines()
        .filter(|line| line.starts_with("  ") && !line.starts_with("   "))
        .filter_map(|line| line.split_whitespace().next())
        // Verbs that answer in another form: these print text for a shell, `man` or a person, and refuse every other form.
        // `serve` holds a conversation: `tests/serve.rs` compares each of its lines with its own schema, and so does
        // `tests/mcp.rs`. `hook` answers in its host's form: `tests/hook` compares it with that. `agent` and `allow`
        // are about other files, and look at no lock. `metrics` has one form, and no document.
        .filter(|verb| {
            !matches!(
                *verb,
                "completions"
                    | "man"
                    | "metrics"
                    | "top"
                    | "demo"
                    | "serve"
                    | "mcp"
                    | "hook"
                    | "agent"
                    | "allow"
            )
        })
        .collect();
    let known: BTreeSet<&str> = VERBS.iter().map(|verb| verb.word()).collect();
    assert_eq!(
        known, there,
        "a verb that the table does not have, or has alone"
    );
    let rows = scene.run(["profiles", "--output", "json"]).json();
    let rows = rows["data"]["profiles"].as_array().unwrap().clone();
    let there: BTreeSet<&str> = rows
        .iter()
        .map(|row| row["name"].as_str().unwrap())
        .collect();
    let known: BTreeSet<&str> = PROFILES.iter().map(|profile| profile.name).collect();
    assert_eq!(known, there, "a profile that the table does not have");
}

/// A schema that accepts everything would pass every other test here.
#[test]
fn the_schemas_of_the_profiles_refuse_what_their_contracts_refuse() {
    let refuses = |name: &str, good: &Value, changes: &[(&str, Value)]| {
        assert_eq!(breaks(name, good), Vec::<String>::new(), "good: {good}");
        for (place, value) in changes {
            let mut bad = good.clone();
            let (parent, key) = place.rsplit_once('/').unwrap();
            let parent = bad.pointer_mut(parent).unwrap().as_object_mut().unwrap();
            match value {
                // Leaves it out.
                Value::String(word) if word == "-" => drop(parent.remove(key)),
                other => drop(parent.insert(key.to_owned(), other.clone())),
            }
            assert!(!breaks(name, &bad).is_empty(), "{place} in {bad}");
        }
    };
    let info = json!({
        "exists": true, "pid": 7, "session_id": "s", "started_at": "2026-02-07T10:00:00Z",
        "epic_spec": "e", "age_hours": 0.5, "pid_alive": true, "is_zombie": false,
    });
    let sprint = json!({
        "status": "blocked", "mode": "check", "lock_info": info, "message": "m", "errors": [],
    });
    refuses(
        "sprint",
        &sprint,
        &[
            ("/status", json!("held")),
            ("/more", json!(1)),
            ("/errors", json!("text")),
            ("/lock_info/pid", json!("7")),
            ("/lock_info/is_zombie", json!("-")),
        ],
    );
    let at = "2026-02-07T10:00:00Z";
    let blocked = json!({
        "error": "lock_blocked", "lock_name": "app-prod", "suggestion": "wait", "held_by": {
            "request_id": "r", "actor": "a", "intent": "i", "created_at": at,
            "last_heartbeat_at": at, "host_id": "h", "pid": 7,
        },
    });
    refuses(
        "fleet",
        &blocked,
        &[
            ("/held_by", json!("-")),
            ("/lock_name", json!("-")),
            ("/suggestion", json!("")),
            ("/held_by/pid", json!("7")),
            ("/held_by/created_at", json!("yesterday")),
            ("/more", json!(1)),
        ],
    );
    let released = json!({
        "ok": true, "error": null, "warnings": [],
        "data": {
            "name": "x", "status": "released", "request_id": "r", "token": 7, "held_ms": 5,
            "was_live": true,
        },
        "meta": {
            "request_id": "r", "command": "force-release", "schema_version": "1", "duration_ms": 1,
            "timestamp": at,
        },
    });
    refuses(
        "force-release",
        &released,
        &[
            ("/data/was_live", json!("-")),
            ("/data/status", json!("absent")),
            ("/data/token", json!(0)),
            ("/meta/command", json!("release")),
        ],
    );
    let holder = json!({
        "kind": "foreign", "orphaned": false, "pid": null, "command_pid": null, "request_id": "",
        "token": null, "actor": "", "host": "", "why": "", "since": at, "age_ms": 1,
        "last_heartbeat": at, "ttl_ms": 1, "cancel_requested": false, "mode": "exclusive",
    });
    let lock = json!({
        "name": "x", "standing": "held", "mine": false, "available": false, "lock_file": "/l",
        "holder": holder, "queue": [],
    });
    refuses(
        "lock",
        &lock,
        &[
            // Only records of other programs name no process.
            ("/holder/kind", json!("run")),
            ("/holder/kind", json!("alien")),
            ("/holder/pid", json!(0)),
            ("/held_by", json!(null)),
            ("/standing", json!("stale")),
        ],
    );
}

/// Every code that a schema lists was answered by its verb somewhere, or it is said why not.
#[test]
fn every_code_of_the_schemas_was_answered() {
    let mut seen: BTreeSet<(String, String)> = BTreeSet::new();
    for profile in &PROFILES {
        let text = std::fs::read_to_string(snapshot(profile.name)).expect("a table");
        let (made, _) = text.split_once("\n\n").expect("what there is");
        for line in made.lines() {
            let mut words = line.split_whitespace();
            let verb = words.next().unwrap().trim_end_matches("(all)");
            let code = words.last().unwrap();
            seen.insert((verb.to_owned(), code.to_owned()));
        }
    }
    let mut faults = Vec::new();
    for (file, schema) in schemas() {
        let verb = file.trim_end_matches(".schema.json");
        let codes = &schema["properties"]["error"]["anyOf"][1]["properties"]["code"]["enum"];
        for code in codes.as_array().into_iter().flatten() {
            let code = code.as_str().unwrap();
            let was_seen = seen.contains(&(verb.to_owned(), code.to_owned()));
            match (was_seen, unmade(verb, code)) {
                (false, None) => faults.push(format!("{verb} {code}: never answered")),
                (true, Some(why)) => faults.push(format!("{verb} {code}: answered, and {why:?}")),
                (false, Some(Unmade::Elsewhere(file))) => {
                    let file = Path::new(env!("CARGO_MANIFEST_DIR"))
                        .join("tests")
                        .join(file);
                    let text = std::fs::read_to_string(&file).expect("another test");
                    if !text.contains(&format!("\"{code}\"")) {
                        faults.push(format!("{verb} {code}: not in {} either", file.display()));
                    }
                }
                (true, None) | (false, Some(Unmade::Never(_))) => {}
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}
