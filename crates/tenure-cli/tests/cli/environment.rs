//! What a command is told through its environment, and what nested calls make of it.

use crate::support::{Gate, Scene, answer, timed};
use std::collections::BTreeMap;
use std::time::Duration;

fn variables(text: &str) -> BTreeMap<String, String> {
    text.lines()
        .filter_map(|line| line.split_once('='))
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect()
}

#[test]
fn the_command_is_told_what_it_holds() {
    let scene = Scene::new();
    let answer = scene.run(["run", "x", "--request-id", "run-42", "--", "env"]);
    let answer = answer.expect(0, "env");
    let told = variables(&answer.stdout());
    let token = told.get("TENURE_TOKEN").expect("a token");
    assert!(token.parse::<u64>().expect("a number") > 0, "{token}");
    let folder = scene.locks();
    let folder = folder.to_str().unwrap();
    for (name, value) in [
        ("TENURE_NAME", "x"),
        ("TENURE_REQUEST_ID", "run-42"),
        ("TENURE_HELD", &format!("{token}={folder}/x")),
        ("USER", "tester"),
    ] {
        assert_eq!(told.get(name).map(String::as_str), Some(value), "{name}");
    }
}

#[test]
fn the_token_is_that_of_the_record_and_rises_from_hold_to_hold() {
    let scene = Scene::new();
    let mut last = 0;
    for _ in 0..5 {
        let line = "tenure check x --output json; echo; echo $TENURE_TOKEN";
        let answer = scene.run(["run", "x", "--", "sh", "-c", line]);
        let text = answer.stdout();
        let token: u64 = text.lines().last().unwrap().parse().expect("a token");
        assert!(
            text.contains(&format!("\"token\":{token}")),
            "check shows it: {text}"
        );
        assert!(token > last, "{token} comes after {last}");
        assert!(
            token < 1 << 53,
            "{token} fits into a number of any language"
        );
        last = token;
    }
}

/// What we tell stands after what was inherited: a caller cannot forge it by setting it before.
#[test]
fn inherited_variables_do_not_win_over_ours() {
    let scene = Scene::new();
    let mut command = scene.tenure(["run", "x", "--", "env"]);
    for name in [
        "TENURE_NAME",
        "TENURE_TOKEN",
        "TENURE_REQUEST_ID",
        "TENURE_AROUND",
    ] {
        command.env(name, "forged");
    }
    let text = answer(&mut command).stdout();
    assert!(!text.contains("forged"), "nothing forged is left: {text}");
    for name in [
        "TENURE_NAME",
        "TENURE_TOKEN",
        "TENURE_REQUEST_ID",
        "TENURE_AROUND",
    ] {
        let times = text
            .lines()
            .filter(|line| line.starts_with(&format!("{name}=")))
            .count();
        assert_eq!(times, 1, "{name} stands there once: {text}");
    }
}

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const CALLER: &str = "00f067aa0ba902b7";

/// The `trace` of each event of a lock.
fn traces_of(scene: &Scene, lock: &str) -> Vec<serde_json::Value> {
    let audit = scene.run(["audit", lock, "--output", "json"]).json();
    let events = audit["data"]["events"].as_array().unwrap();
    events.iter().map(|event| event["trace"].clone()).collect()
}

#[test]
fn a_run_in_a_trace_is_the_parent_of_its_command() {
    let scene = Scene::new();
    let mut outer = scene.tenure(["run", "outer", "--", "sh", "-c"]);
    outer.arg("echo $TRACEPARENT; tenure run inner -- sh -c 'echo $TRACEPARENT; echo $TRACESTATE'");
    outer.env("TRACEPARENT", format!("00-{TRACE}-{CALLER}-01"));
    outer.env("TRACESTATE", "vendor=a-b_c");
    let said = answer(&mut outer).expect(0, "both").stdout();
    let lines: Vec<_> = said.lines().collect();
    assert_eq!(lines[2], "vendor=a-b_c");
    let mut parent = CALLER.to_owned();
    for (lock, line) in [("outer", lines[0]), ("inner", lines[1])] {
        let rest = line.strip_prefix(&format!("00-{TRACE}-")).unwrap();
        let span = rest.strip_suffix("-01").unwrap();
        let traces = traces_of(&scene, lock);
        assert_eq!(traces.len(), 2, "a grant and a release");
        for trace in traces {
            let wanted = serde_json::json!({
                "trace_id": TRACE, "span_id": span, "parent_id": parent,
            });
            assert_eq!(trace, wanted, "{lock}");
        }
        span.clone_into(&mut parent);
    }
}

#[test]
fn a_run_in_no_trace_begins_none() {
    let scene = Scene::new();
    let line = "echo ${TRACEPARENT-none} ${TRACESTATE-none}";
    for (parent, said) in [(None, "none"), (Some("00-forged"), "00-forged")] {
        let mut run = scene.tenure(["run", "x", "--", "sh", "-c", line]);
        if let Some(parent) = parent {
            run.env("TRACEPARENT", parent).env("TRACESTATE", "vendor=1");
        }
        let state = parent.map_or("none", |_| "vendor=1");
        let told = answer(&mut run).expect(0, said).stdout();
        assert_eq!(told, format!("{said} {state}\n"));
    }
    let traces = traces_of(&scene, "x");
    assert!(traces.iter().all(serde_json::Value::is_null), "{traces:?}");
}

/// A store in the environment would otherwise win over the folder that the command is told.
#[test]
fn a_nested_call_works_on_the_locks_of_the_outer_one() {
    let scene = Scene::new();
    let other = scene.path("other");
    let mut command = scene.tenure(["--dir", other.to_str().unwrap(), "run", "x", "--"]);
    command.args(["tenure", "check", "x", "--output", "json"]);
    command.env(
        "TENURE_STORE",
        format!("file:{}", scene.path("third").display()),
    );
    let answer = answer(&mut command).expect(0, "the caller's own hold");
    let document = answer.json();
    assert_eq!(
        document["data"]["lock_file"].as_str(),
        other.join("x.tenure").to_str(),
        "the same lock, whatever the environment said before"
    );
    assert_eq!(document["data"]["mine"], true, "and it is the caller's");
}

#[test]
fn nested_runs_of_two_locks_hold_both_and_say_so() {
    let scene = Scene::new();
    let answer = scene.run(["run", "a", "--", "tenure", "run", "b", "--", "env"]);
    let told = variables(&answer.expect(0, "two locks").stdout());
    let folder = scene.locks().display().to_string();
    let held = told.get("TENURE_HELD").expect("the holds");
    let names: Vec<_> = held
        .split(';')
        .map(|hold| hold.split_once('=').expect("token=folder/name").1)
        .collect();
    assert_eq!(
        names,
        [format!("{folder}/a"), format!("{folder}/b")],
        "outer first"
    );
    assert_eq!(
        told.get("TENURE_NAME").map(String::as_str),
        Some("b"),
        "the inner one"
    );
    for lock in ["a", "b"] {
        assert!(scene.is_free(lock), "{lock} is free afterwards");
    }
}

#[test]
fn holds_in_folders_with_odd_names_are_known_again() {
    let scene = Scene::new();
    for folder in ["a;b", "50%3B", "with space", "eq=ual", "deep/er"] {
        let place = scene.path(folder);
        let place = place.to_str().unwrap();
        let line = "tenure run -n x -- true";
        let answer = scene.run(["run", "--dir", place, "x", "--", "sh", "-c", line]);
        let _ = answer.expect(81, folder);
    }
}

/// The inner call would wait for its own caller.
#[test]
fn a_nested_run_of_the_same_lock_is_refused_at_once() {
    let scene = Scene::new();
    for wait in ["10s", "forever", "0"] {
        let words = [
            "run", "x", "--", "tenure", "run", "x", "--wait", wait, "--", "echo", "ran",
        ];
        let (answer, took) = timed(|| scene.run(words));
        let answer = answer.expect(81, "waiting would never end");
        assert!(
            took < Duration::from_secs(5),
            "it was refused at once, not after {took:?}"
        );
        assert_eq!(answer.stdout(), "", "and the command did not run");
        assert!(
            answer.stderr().contains('x'),
            "the lock is named: {}",
            answer.said()
        );
    }
}

#[test]
fn a_nested_run_below_another_lock_is_refused_too() {
    let scene = Scene::new();
    let inner = "tenure run y -- tenure run x --wait forever -- true";
    let answer = scene.run(["run", "x", "--", "sh", "-c", inner]);
    let _ = answer.expect(81, "x is held two levels above");
}

#[test]
fn the_same_folder_by_another_spelling_is_the_same_lock() {
    let scene = Scene::new();
    let place = scene.locks();
    std::fs::create_dir_all(&place).unwrap();
    std::os::unix::fs::symlink(&place, scene.path("link")).unwrap();
    for spelling in [
        format!("{}/", place.display()),
        format!("{}/.", place.display()),
        format!("{}/../locks", place.display()),
        scene.path("link").display().to_string(),
        "locks".to_owned(),
    ] {
        let mut command = scene.tenure(["run", "x", "--", "tenure", "run", "x"]);
        command.current_dir(scene.root());
        command.args(["--wait", "2s", "--dir", &spelling, "--", "true"]);
        let _ = answer(&mut command).expect(81, &spelling);
    }
}

#[test]
fn the_other_verbs_that_wait_do_not_wait_for_their_own_run_either() {
    let scene = Scene::new();
    for verb in ["acquire", "wait"] {
        let words = ["run", "x", "--", "tenure", verb, "x", "--wait", "2s"];
        let _ = scene.run(words).expect(81, verb);
    }
}

/// A process that outlives the run which started it still carries its `TENURE_HELD`.
#[test]
fn a_hold_that_is_over_refuses_nothing_and_hides_no_later_one() {
    let scene = Scene::new();
    let outer = scene.run(["run", "x", "--", "env"]).expect(0, "env");
    let told = variables(&outer.stdout());
    let stale = told.get("TENURE_HELD").expect("the holds");
    let with = |words: &[&str]| answer(scene.tenure(words).env("TENURE_HELD", stale));
    let _ = with(&["run", "-n", "x", "--", "true"]).expect(0, "it is free, so it can be had");
    let _ = with(&[
        "run", "x", "--", "tenure", "run", "x", "--wait", "2s", "--", "true",
    ])
    .expect(81, "the later hold counts");
}

#[test]
fn what_is_not_a_hold_is_skipped() {
    let scene = Scene::new();
    for odd in ["nonsense", ";;;", "=", "1=", "99=/nowhere/x", "x=/a/x"] {
        let mut command = scene.tenure(["run", "-n", "x", "--", "true"]);
        let _ = answer(command.env("TENURE_HELD", odd)).expect(0, odd);
    }
}

#[test]
fn inside_a_run_its_lock_is_mine() {
    let scene = Scene::new();
    let line = "tenure check x && tenure list";
    let answer = scene.run(["run", "x", "--", "sh", "-c", line]);
    let answer = answer.expect(0, "mine is no obstacle");
    assert!(answer.stdout().contains("held by you"), "{}", answer.said());
    let gate = Gate::new(&scene, "x");
    let held = scene.hold_with("x", ["-q"], &gate, "");
    let _ = scene
        .run(["check", "x"])
        .expect(4, "for every other caller it is held");
    let _ = held.open().expect(0, "the holder");
}

/// A project's waits count for the runs inside a run as well.
#[test]
fn a_nested_run_finds_the_projects_configuration() {
    let scene = Scene::new();
    scene.write(
        "tenure.toml",
        "dir = \"locks\"\n[lock.inner]\nwait = \"0\"\n",
    );
    let holder = scene.hold("inner", ["-q"]);
    let mut command = scene.tenure(["run", "outer", "--", "tenure", "run", "inner", "--", "true"]);
    command.env_remove("TENURE_DIR").current_dir(scene.root());
    let (answer, took) = timed(|| answer(&mut command));
    let _ = answer.expect(4, "the inner lock is held");
    assert!(
        took < Duration::from_secs(5),
        "it was not waited for, as the project says; it took {took:?}"
    );
    let _ = holder.open().expect(0, "the holder");
}
