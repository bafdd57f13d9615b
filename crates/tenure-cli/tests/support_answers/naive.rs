//! Readers who know no more than the contracts: what a workflow's script does with a sprint's lines,
//! what an executor does with lock/v1, and what the original programs do with a record.

use super::table::{Profile, Verb};
use crate::support::Answer;
use crate::support_schemas::breaks;
use serde_json::Value;
use std::path::Path;

/// What a reader of a profile's own answer stumbles over.
pub(crate) fn reads(profile: &Profile, verb: Verb, answer: &Answer) -> Vec<String> {
    let code = answer.status().code().unwrap_or(-1);
    let said = match profile.name {
        "sprint" => sprint(verb, code, answer),
        "fleet" => fleet(verb, code, answer),
        "resume" | "session" => sentence(profile.name, verb, code, answer),
        _ => Ok(()),
    };
    said.err()
        .into_iter()
        .map(|why| format!("{why}: {}", answer.said()))
        .collect()
}

fn ensure(holds: bool, why: &str) -> Result<(), String> {
    if holds { Ok(()) } else { Err(why.to_owned()) }
}

/// A line `key: value` of a sprint's object, as `sed` and `grep` take it.
fn line<'a>(text: &'a str, key: &str) -> Result<&'a str, String> {
    text.lines()
        .find_map(|line| line.strip_prefix(key)?.strip_prefix(':'))
        .map(str::trim)
        .ok_or_else(|| format!("no line {key}"))
}

/// The status object: its keys in their order, and the exit code that goes with the status.
fn sprint(verb: Verb, code: i32, answer: &Answer) -> Result<(), String> {
    if !matches!(
        verb,
        Verb::Acquire | Verb::Release | Verb::Check | Verb::CheckAll
    ) {
        return Ok(());
    }
    let text = answer.stdout();
    let status = line(&text, "status")?;
    let codes: &[i32] = match status {
        "acquired" | "released" | "clean" => &[0],
        "blocked" | "zombie-detected" => &[4],
        "failure" => &[1, 2, 6, 7, 12, 80, 81, 129, 130, 143],
        other => return Err(format!("no status: {other}")),
    };
    ensure(
        codes.contains(&code),
        "another exit code than its status says",
    )?;
    ensure(line(&text, "mode")? == verb.word(), "another mode")?;
    for key in [
        "exists",
        "pid",
        "session_id",
        "started_at",
        "epic_spec",
        "age_hours",
        "pid_alive",
        "is_zombie",
    ] {
        let value = line(&text, &format!("  {key}"))?;
        let good = match key {
            "exists" | "pid_alive" | "is_zombie" => matches!(value, "true" | "false" | "null"),
            "pid" => value == "null" || value.parse::<u32>().is_ok(),
            "age_hours" => value == "null" || (value.contains('.') && value.parse::<f64>().is_ok()),
            _ => value == "null" || (value.starts_with('"') && value.ends_with('"')),
        };
        ensure(good, &format!("{key} is {value}"))?;
    }
    ensure(line(&text, "message")?.len() > 2, "a sentence")?;
    let errors = line(&text, "errors")?;
    ensure(errors == "[]" || errors.is_empty(), "a list of errors")?;
    // A reader of YAML sees the object of the published schema.
    let object: Value = serde_saphyr::from_str(&text).map_err(|error| error.to_string())?;
    let wrong = breaks("sprint", &object);
    ensure(wrong.is_empty(), &wrong.join("; "))
}

/// Reads a document of lock/v1, with the fields that the page promises.
fn fleet(verb: Verb, code: i32, answer: &Answer) -> Result<(), String> {
    if !matches!(
        verb,
        Verb::Acquire
            | Verb::Release
            | Verb::ForceRelease
            | Verb::Heartbeat
            | Verb::Check
            | Verb::CheckAll
            | Verb::List
            | Verb::Wait
            | Verb::Run
    ) {
        return Ok(());
    }
    let text = answer.stdout();
    if text.is_empty() {
        let by_itself = verb == Verb::Run && matches!(code, 0 | 10 | 79 | 126 | 127);
        return ensure(by_itself, "no document of lock/v1");
    }
    // An empty line keeps the document of a run apart from what its command has written.
    let text = match (verb, text.strip_prefix('\n')) {
        (Verb::Run, Some(text)) => text.to_owned(),
        _ => text,
    };
    ensure(text.lines().count() == 1, "one line")?;
    let document: Value = serde_json::from_str(&text).map_err(|error| error.to_string())?;
    let lists = matches!(verb, Verb::List | Verb::CheckAll);
    if lists && document.get("error").is_none() {
        ensure(document["locks"].is_array(), "no locks")?;
    } else if !matches!(code, 0 | 4) {
        // A call that could not be read names no lock.
        let name = document.get("lock_name");
        let name = name.is_some_and(|name| name.is_string() || name.is_null());
        ensure(name, "no lock_name")?;
        ensure(document["error"].is_string(), "no error")?;
        ensure(document["message"].is_string(), "no message")?;
    } else {
        ensure(document["lock_name"].is_string(), "no lock_name")?;
        let (status, error) = (&document["status"], &document["error"]);
        let good = match (code, verb) {
            (0, Verb::Acquire) => status == "acquired",
            (0, Verb::Heartbeat) => status == "renewed",
            (0, Verb::Release | Verb::ForceRelease) => status == "released" || status == "absent",
            (0, Verb::Wait) => status == "free",
            (_, Verb::Check) => status.is_string() && error.is_null(),
            (4, _) => error == "lock_blocked" || error == "lock_stale",
            _ => error.is_string(),
        };
        ensure(good, "neither the status nor the error of the contract")?;
    }
    let wrong = breaks("fleet", &document);
    ensure(wrong.is_empty(), &wrong.join("; "))
}

/// What users of resume and session know by heart.
fn sentence(like: &str, verb: Verb, code: i32, answer: &Answer) -> Result<(), String> {
    let said = answer.stderr();
    if verb != Verb::Acquire {
        return Ok(());
    }
    match (like, code) {
        ("resume", 0) => ensure(said.contains("Acquired resume lock for job-1"), "its line"),
        ("session", 0) => ensure(said.contains("Acquired lock for issue #42"), "its line"),
        _ => Ok(()),
    }
}

/// What the original program stumbles over in a record of ours.
pub(crate) fn reads_record(profile: &Profile, record: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(record).unwrap_or_default();
    let read = match profile.name {
        "sprint" => sprint_record(&text),
        like => json_record(like, &text),
    };
    read.err()
        .into_iter()
        .map(|why| format!("the record: {why}: {text}"))
        .collect()
}

fn sprint_record(text: &str) -> Result<(), String> {
    line(text, "pid")?.parse::<u32>().map_err(|_| "no pid")?;
    line(text, "session_id")?;
    line(text, "started_at")?;
    line(text, "epic_spec")?;
    ensure(line(text, "lock_version")? == "1", "another version")
}

fn json_record(like: &str, text: &str) -> Result<(), String> {
    let record: Value = serde_json::from_str(text).map_err(|error| error.to_string())?;
    let object = record.as_object().ok_or("no object")?;
    let (texts, numbers, own): (&[&str], &[&str], &str) = match like {
        "resume" => (
            &["job_id", "hostname", "acquired_at"],
            &["process_id"],
            "tenure",
        ),
        "session" => (&["runId", "acquiredAt"], &["issueNumber", "pid"], "tenure"),
        _ => (
            &[
                "lock_version",
                "lock_name",
                "request_id",
                "actor",
                "intent",
                "intent_version",
                "host_id",
                "created_at",
                "last_heartbeat_at",
            ],
            &["pid", "ttl_seconds"],
            "metadata",
        ),
    };
    for key in texts {
        ensure(object.get(*key).is_some_and(Value::is_string), key)?;
    }
    for key in numbers {
        ensure(object.get(*key).is_some_and(Value::is_u64), key)?;
    }
    for key in object.keys() {
        let known = texts.contains(&key.as_str()) || numbers.contains(&key.as_str());
        ensure(known || key == own, &format!("an unknown key, {key}"))?;
    }
    Ok(())
}
