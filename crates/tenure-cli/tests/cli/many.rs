//! Many locks in one folder: an answer about all of them is written as they are read, and is the same as if it
//! had been made first.

use super::support::{Scene, Started, answer};
use serde_json::Value;
use std::fs;
use std::io::Read;
use std::time::Duration;

/// Makes `many` locks like one that is held without a process.
fn plant(scene: &Scene, many: usize) {
    plant_with(scene, many, "9h");
}

fn plant_with(scene: &Scene, many: usize, ttl: &str) {
    let sample = scene.locks().join("sample.tenure");
    if !sample.exists() {
        let words = ["acquire", "sample", "--owner", "none", "--ttl", ttl];
        let _ = scene.run(words).expect(0, "a sample");
    }
    let bytes = fs::read(sample).expect("its file");
    for number in 0..many {
        let path = scene.locks().join(format!("job-{number:05}.tenure"));
        fs::write(path, &bytes).expect("a lock");
    }
}

/// Without what another look at the same locks shows otherwise.
fn timeless(locks: &Value) -> Vec<Value> {
    let mut locks = locks.as_array().expect("locks").clone();
    for lock in &mut locks {
        for (key, facts) in [("retry_after_ms", ""), ("age_ms", "holder")] {
            let facts = if facts.is_empty() {
                &mut *lock
            } else {
                &mut lock[facts]
            };
            facts.as_object_mut().expect("facts").remove(key);
        }
    }
    locks
}

/// Whether a call answers in so many MiB of address space.
fn answers(scene: &Scene, words: &str, mebibytes: u64) -> bool {
    let limit = mebibytes << 10;
    // What dies for want of memory dies by a signal, of which the outer shell makes a code.
    let line = format!("(ulimit -v {limit} && exec tenure {words} >out); exit $?");
    let line = format!("cd {}; {line}", scene.root().display());
    matches!(scene.shell(&line).code(), 0 | 4)
}

/// The least in which it does.
fn least(scene: &Scene, words: &str) -> u64 {
    let (mut too_little, mut enough) = (0, 4 << 10);
    while enough - too_little > 1 {
        let middle = u64::midpoint(too_little, enough);
        if answers(scene, words, middle) {
            enough = middle;
        } else {
            too_little = middle;
        }
    }
    enough
}

#[test]
fn an_answer_about_many_locks_keeps_none_of_them() {
    const CALLS: [&str; 5] = [
        "list",
        "list --output json",
        "check",
        "check --output json",
        "clean --dry-run",
    ];
    let scene = Scene::new();
    plant(&scene, 0);
    let before = CALLS.map(|words| least(&scene, words));
    plant(&scene, 3_000);
    for (words, before) in CALLS.into_iter().zip(before) {
        // The views alone took 25 MiB.
        assert!(
            answers(&scene, words, before + 12),
            "{words}: one lock needs {before} MiB, and 3,001 need 12 more"
        );
    }
}

/// A pager that its user leaves open, a command that was stopped and goes on.
#[test]
fn a_slow_reader_is_shown_holds_as_they_were_when_they_were_read() {
    let scene = Scene::new();
    plant_with(&scene, 400, "4s");
    for words in [["check", "--output", "json"], ["list", "--output", "json"]] {
        let mut call = Started::piped(&mut scene.tenure(words));
        // More than a pipe takes is under way, so the call stands still, and each ttl runs out meanwhile.
        let mut output = call.take_stdout();
        if words[0] == "list" {
            std::thread::sleep(Duration::from_secs(5));
        }
        let mut text = String::new();
        output.read_to_string(&mut text).expect("an answer");
        let document: Value = serde_json::from_str(&text).expect("a document");
        let place = if words[0] == "list" {
            &document["data"]
        } else {
            &document["error"]["context"]
        };
        let locks = place["locks"].as_array().expect("locks");
        assert_eq!(locks.len(), 401);
        let held = locks.iter().filter(|lock| lock["standing"] == "held");
        assert_eq!(held.count(), 401, "{words:?}");
        let _ = call.end();
    }
}

#[test]
fn a_document_of_many_locks_is_whole_however_it_was_kept() {
    const MANY: usize = 2_400;
    let scene = Scene::new();
    plant(&scene, MANY);
    let listed = scene.run(["list", "--output", "json"]).expect(0, "a list");
    let listed = timeless(&listed.json()["data"]["locks"]);
    let names: Vec<_> = listed.iter().map(|lock| lock["name"].as_str()).collect();
    assert_eq!(names.len(), MANY + 1);
    assert!(names.is_sorted(), "by name");
    for temporary in ["", "no-such-folder"] {
        let mut check = scene.tenure(["check", "--output", "json"]);
        check.env("TMPDIR", scene.path(temporary));
        let checked = answer(&mut check).expect(4, "all are held").json();
        assert_eq!(checked["ok"], false);
        assert_eq!(checked["error"]["code"], "LOCKS_NOT_FREE");
        let message = checked["error"]["message"].as_str().expect("a sentence");
        assert!(
            message.starts_with("2401 of 2401 locks are not free: job-00000 (held), job-00001"),
            "{message:.90}"
        );
        let checked = timeless(&checked["error"]["context"]["locks"]);
        assert!(
            checked == listed,
            "the facts that `list` has, kept in {temporary:?}"
        );
    }
    let yaml = scene.run(["list", "--output", "yaml"]).expect(0, "a list");
    let yaml: Value = serde_saphyr::from_str(&yaml.stdout()).expect("YAML");
    assert!(
        timeless(&yaml["data"]["locks"]) == listed,
        "the same as YAML"
    );
}

#[test]
fn a_table_is_sized_by_its_first_rows() {
    let scene = Scene::new();
    plant(&scene, 199);
    let long = "zz-a-name-that-is-longer-than-all-others-by-far";
    let path = |name: &str| scene.locks().join(format!("{name}.tenure"));
    fs::copy(path("sample"), path(long)).expect("a lock");
    let column = |text: &str| text.find("STANDING").expect("a header");
    let text = scene.run(["list"]).expect(0, "a list").stdout();
    let narrow = column(&text);
    assert_eq!(
        narrow,
        "job-00000".len() + 2,
        "200 rows come before the long one"
    );
    let last = text.lines().last().expect("a line");
    assert!(
        last.starts_with(&format!("{long}  held  ")),
        "whole: {last}"
    );
    fs::rename(path("job-00000"), path("job")).expect("another name");
    fs::rename(path("job-00001"), scene.path("gone")).expect("one less");
    let text = scene.run(["list"]).expect(0, "a list").stdout();
    assert_eq!(column(&text), long.len() + 2, "it is one of the first 200");
}

#[test]
fn a_check_whose_reader_has_gone_answers_by_its_code() {
    let scene = Scene::new();
    plant(&scene, 1_000);
    for output in ["text", "json"] {
        let line = format!("{{ tenure check --output {output}; echo \"code $?\" >&2; }} | true");
        assert_eq!(scene.shell(&line).stderr(), "code 4\n", "{output}");
    }
}

/// A lock that ends in the middle of a list is free, or not there.
#[test]
fn a_list_does_not_mind_locks_that_come_and_go() {
    let scene = Scene::new();
    plant(&scene, 2_000);
    let line = "(cd locks && rm job-01*) & tenure list --output json; code=$?; wait; exit $code";
    let line = format!("cd {}; {line}", scene.root().display());
    let listed = scene.shell(&line).expect(0, "a list").json();
    let locks = listed["data"]["locks"].as_array().expect("locks").clone();
    let held = locks.iter().filter(|lock| lock["standing"] == "held");
    assert!(held.count() >= 1_001, "those that stay are all there");
    assert_eq!(listed["warnings"], Value::Array(Vec::new()));
}
