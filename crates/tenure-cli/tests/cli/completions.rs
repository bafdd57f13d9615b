//! What the completion scripts ask, without a shell: `terminal.rs` has the real ones.

use crate::support::{Answer, Scene, answer};
use std::fs;
use std::time::Duration;
use tenure_os::clock::instant;

/// Every file and folder below the scene.
fn everything(scene: &Scene) -> Vec<String> {
    let listed = answer(scene.program("find").arg(scene.root()));
    listed.stdout().lines().map(str::to_owned).collect()
}

fn asked(scene: &Scene, words: &[&str]) -> Answer {
    let answer = scene.run(["completions", "zsh", "--"].iter().chain(words));
    let answer = answer.expect(0, "a question at a prompt");
    assert_eq!(answer.stderr(), "", "a prompt is disturbed by {words:?}");
    answer
}

/// What is offered, without the meanings.
fn offered(scene: &Scene, words: &[&str]) -> Vec<String> {
    let answer = asked(scene, words);
    let text = answer.stdout();
    let mut lines = text.lines();
    assert_eq!(lines.next(), Some("words"), "{text}");
    lines
        .map(|line| line.split('\t').next().unwrap_or_default().to_owned())
        .collect()
}

#[test]
fn names_are_offered_of_locks_and_groups_and_profiles_that_there_are() {
    let scene = Scene::new();
    let before = everything(&scene);
    assert!(offered(&scene, &["tenure", "check", ""]).is_empty());
    assert_eq!(everything(&scene), before, "nothing is made for a question");

    let _db = scene.hold("db-1", ["-n"]);
    let _group = scene.hold("x", ["--group", "CI $(rm -rf ~) 'a'"]);
    let locks = offered(&scene, &["tenure", "check", ""]);
    assert!(locks.contains(&"db-1".to_owned()), "{locks:?}");
    let groups = offered(&scene, &["tenure", "cancel", "--group", ""]);
    assert!(
        groups.contains(&"ci $(rm -rf ~) 'a'".to_owned()),
        "{groups:?}"
    );

    let elsewhere = scene.path("elsewhere");
    scene
        .tenure(["acquire", "other", "--owner", "none", "--dir"])
        .arg(&elsewhere)
        .output()
        .expect("a lock");
    let dir = format!("--dir={}", elsewhere.display());
    assert_eq!(offered(&scene, &["tenure", &dir, "check", ""]), ["other"]);

    let profiles = offered(&scene, &["tenure", "check", "--profile="]);
    assert_eq!(
        profiles.first().map(String::as_str),
        Some("--profile=fleet")
    );
}

#[test]
fn records_of_other_systems_are_offered_by_their_names() {
    let scene = Scene::new();
    let state = scene.path("state");
    fs::create_dir_all(&state).expect("a folder");
    let state = state.to_str().expect("a path");
    let flags = ["--profile", "resume", "--dir", state];
    let own = ["acquire", "job-7", "--owner", "1"];
    scene
        .run(own.iter().chain(&flags))
        .expect(0, "a lock of resume");
    let words = ["tenure", "--profile", "resume", "--dir", state, "check", ""];
    assert_eq!(offered(&scene, &words), ["job-7"]);
}

#[test]
fn whatever_is_wrong_a_prompt_is_not_disturbed() {
    let scene = Scene::new();
    let file = scene.write("file", "no folder");
    let bad = scene.write("bad.toml", "no = toml = at all");
    let (file, bad) = (file.to_str().unwrap(), bad.to_str().unwrap());
    for words in [
        &["tenure", "--dir", file, "check", ""][..],
        &["tenure", "--dir", "", "check", ""],
        &["tenure", "--dir=/nowhere/at/all", "check", ""],
        &["tenure", "--config", bad, "check", ""],
        &["tenure", "--profile", "frob", "check", ""],
        &["tenure", "--store", "etcd://192.0.2.1:1/x", "check", ""],
        &["tenure", "--store=frob:", "run", "--group", ""],
    ] {
        assert!(offered(&scene, words).is_empty(), "{words:?}");
    }
    for words in [&["tenure", "frob", ""][..], &[""], &["tenure", "-w", "--"]] {
        asked(&scene, words);
    }
    let mut odd = scene.tenure(["completions", "zsh", "--", "tenure", "check", ""]);
    let odd = answer(odd.env("TENURE_OUTPUT", "nonsense").env("TENURE_DIR", file));
    assert_eq!((odd.code(), odd.stderr().as_str()), (0, ""));
    assert_eq!(odd.stdout(), "words\n");
}

/// No process ever writes into the pipe that is to be read as a configuration.
#[test]
fn a_pipe_for_a_configuration_keeps_no_prompt() {
    let scene = Scene::new();
    let pipe = scene.path("pipe");
    let made = answer(scene.program("mkfifo").arg(&pipe));
    assert_eq!(made.code(), 0, "a pipe");
    let began = instant();
    let config = format!("--config={}", pipe.display());
    assert!(offered(&scene, &["tenure", &config, "check", ""]).is_empty());
    let took = instant().saturating_duration_since(began);
    assert!(took < Duration::from_secs(20), "it took {took:?}");
}

#[test]
fn a_script_has_one_form() {
    let scene = Scene::new();
    for shell in ["bash", "zsh", "fish"] {
        let script = scene.run(["completions", shell]).expect(0, shell).stdout();
        assert!(script.contains("command tenure completions"), "{script}");
        let mut again = scene.tenure(["completions", shell]);
        let again = answer(again.env("TENURE_OUTPUT", "json"));
        assert_eq!(
            again.stdout(),
            script,
            "a file for a shell, whatever answers are"
        );
    }
    let refused = scene.run(["completions", "bash", "--output", "json"]);
    let document = refused.expect(2, "there is no JSON of a script").json();
    assert_eq!(document["error"]["code"], "BAD_ARGUMENTS");
    assert_eq!(document["meta"]["command"], "completions");
    let refused = scene.run(["--output=yaml", "completions", "bash"]);
    assert!(
        refused
            .expect(2, "nor YAML")
            .stdout()
            .starts_with("ok: false")
    );
    let refused = scene.run(["completions", "csh"]).expect(2, "no such shell");
    assert!(
        refused.stderr().contains("bash, zsh, fish"),
        "{}",
        refused.stderr()
    );
    assert_eq!(everything(&scene).len(), 1, "and nothing was made");
}
