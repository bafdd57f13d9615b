//! `actions/hold` and `actions/install`, run as GitHub's runner runs them: inputs in variables, files for outputs, state,
//! summary and paths, the last part after the steps of the job, the signals of a cancelled job to the process that the
//! runner has started. The runner's process of a job is a shell of the name that the runner's has.

#![allow(
    clippy::disallowed_methods,
    reason = "the test removes files of its own, which no store has"
)]

use crate::github_action::{BASH_OF_STEP, action_at, inputs_of, on_runner};
use crate::support::{Answer, Gate, Scene, Started, answer, eventually};
use crate::whose::named;
use rustix::process::Signal;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

fn actions() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../actions")
}

/// A program with what the runner gives an action: each input in a variable, and the files.
fn with_inputs(scene: &Scene, program: &str, of: &str, inputs: &[(&str, &str)]) -> Command {
    let mut command = on_runner(scene, program);
    let action = action_at(&format!("actions/{of}/action.yml"));
    for (name, value) in inputs_of(&action, inputs) {
        command.env(format!("INPUT_{}", name.to_uppercase()), value);
    }
    command.env("GITHUB_ACTIONS", "true");
    for file in ["STATE", "STEP_SUMMARY", "PATH"] {
        command.env(format!("GITHUB_{file}"), scene.path(&file.to_lowercase()));
    }
    command
}

/// A script as the process of a job runs it.
fn of_worker(scene: &Scene, inputs: &[(&str, &str)], script: &str) -> Command {
    let worker = named(scene, "Runner.Worker");
    let mut command = with_inputs(scene, &worker, "hold", inputs);
    command.arg(scene.write("job", script));
    command
}

/// What a file of the runner says: each name with its value, in the form with a delimiter.
fn values(file: &Path) -> Vec<(String, String)> {
    let text = fs::read_to_string(file).unwrap_or_default();
    let mut lines = text.lines();
    let mut found = Vec::new();
    while let Some(line) = lines.next() {
        let (name, end) = line.split_once("<<").expect("a name and a delimiter");
        let value: Vec<_> = lines.by_ref().take_while(|line| *line != end).collect();
        found.push((name.to_owned(), value.join("\n")));
    }
    found
}

fn value(file: &Path, name: &str) -> String {
    let found = values(file).into_iter().find(|(known, _)| known == name);
    found.map(|(_, value)| value).unwrap_or_default()
}

/// A job that holds a lock: its first step has run, and its process lives until the gate is opened.
struct Job<'a> {
    scene: &'a Scene,
    process: Started,
    gate: Gate,
}

impl<'a> Job<'a> {
    /// The step alone, as the process of a job runs it.
    fn step(scene: &Scene, inputs: &[(&str, &str)], after: &str) -> Command {
        let main = actions().join("hold/main.js");
        of_worker(
            scene,
            inputs,
            &format!("node '{}' || exit\n{after}", main.display()),
        )
    }

    fn start(scene: &'a Scene, inputs: &[(&str, &str)]) -> Self {
        let gate = Gate::new(scene, "job");
        let post = actions().join("hold/post.js");
        let after = format!("{}\n. ./kept\nnode '{}'\n", gate.script(""), post.display());
        let process = Started::piped(&mut Self::step(scene, inputs, &after));
        gate.entered();
        Self {
            scene,
            process,
            gate,
        }
    }

    /// The job ends: the last part of the action runs with what the first one kept.
    fn ends(self) -> Answer {
        let kept = values(&self.scene.path("state"));
        let kept = kept.into_iter().map(|(name, value)| {
            assert!(!value.contains('\''), "{value}");
            format!("export STATE_{name}='{value}'\n")
        });
        self.scene.write("kept", &kept.collect::<String>());
        self.gate.open();
        self.process.finish()
    }

    fn summary(scene: &Scene) -> String {
        fs::read_to_string(scene.path("step_summary")).unwrap_or_default()
    }
}

#[test]
fn a_job_has_the_lock_to_its_end_and_its_summary_says_so() {
    let scene = Scene::new();
    let other = scene.hold("production", ["-q", "--why", "<b>release</b> 4.2"]);
    let gate = Gate::new(&scene, "waits");
    let inputs = [("name", "production"), ("wait", "30s")];
    let mut step = Job::step(&scene, &inputs, &gate.script(""));
    let waits = Started::piped(&mut step);
    scene.until_queued("production", 1);
    // Long enough that the summary says whom the job waited for.
    std::thread::sleep(std::time::Duration::from_millis(1_100));
    let _ = other.open().expect(0, "the holder ends");
    gate.entered();
    let facts = scene.check("production");
    let why = "https://github.example/a/b/actions/runs/777";
    assert_eq!(facts["holder"]["why"], why, "{facts}");
    assert_eq!(facts["holder"]["pid"], waits.pid(), "the job owns it");
    let token = facts["holder"]["token"].to_string();
    assert_eq!(value(&scene.path("output"), "token"), token);
    let summary = Job::summary(&scene);
    assert!(summary.contains(&token), "{summary}");
    assert!(summary.contains("behind tester"), "{summary}");
    assert!(!summary.contains("<b>"), "no markup of others: {summary}");
    gate.open();
    let _ = waits.finish().expect(0, "the job ends");

    // Without its last part the hold ends with the job; with it the summary has the end, too.
    assert!(scene.is_free("production"));
    fs::remove_file(scene.path("state")).expect("the state of the job before");
    let job = Job::start(&scene, &[("name", "production"), ("shared", "true")]);
    assert_eq!(scene.check("production")["holder"]["mode"], "shared");
    let _ = job.ends().expect(0, "it gave the lock back");
    assert!(scene.is_free("production"));
    let summary = Job::summary(&scene);
    assert!(summary.contains("was given back after"), "{summary}");
}

#[test]
fn a_job_that_is_killed_frees_its_lock_at_once() {
    let scene = Scene::new();
    let job = Job::start(&scene, &[("name", "a")]);
    assert!(!scene.is_free("a"));
    job.process.kill_with_children();
    scene.until_free("a");
}

#[test]
fn a_job_whose_lock_is_lost_fails_at_its_end() {
    let scene = Scene::new();
    for end in [
        "tenure force-release a --yes -q",
        "rm \"$TENURE_DIR/a.tenure\"",
    ] {
        let _ = fs::remove_file(scene.path("state"));
        let job = Job::start(&scene, &[("name", "a")]);
        let _ = scene.shell(end).expect(0, end);
        let ended = job.ends();
        assert!(!ended.status().success(), "{end}: {}", ended.said());
        assert!(ended.stdout().contains("::error"), "{}", ended.said());
        let summary = Job::summary(&scene);
        assert!(summary.contains("was lost before"), "{summary}");
    }
}

#[test]
fn a_job_that_gets_no_lock_fails_and_leaves_the_holder_alone() {
    let scene = Scene::new();
    let other = scene.hold("a", ["-q"]);
    let inputs = [("name", "a"), ("wait", "0")];
    let ended = answer(&mut Job::step(&scene, &inputs, "echo on")).expect(4, "it is held");
    assert!(ended.stdout().starts_with("::error"), "{}", ended.said());
    assert!(!ended.stdout().contains("\non"), "{}", ended.said());
    assert_eq!(
        value(&scene.path("state"), "id"),
        "",
        "nothing to give back"
    );
    assert!(Job::summary(&scene).contains("was not taken"));
    let _ = other.open().expect(0, "the holder was left alone");
}

/// The runner signals the process that it has started, and no other.
#[test]
fn a_job_that_is_cancelled_while_it_waits_leaves_the_line() {
    let scene = Scene::new();
    let other = scene.hold("a", ["-q"]);
    for signal in [Signal::INT, Signal::TERM] {
        let script = format!(
            "node '{}' & echo $! >step\nwait\n",
            actions().join("hold/main.js").display()
        );
        let inputs = [("name", "a"), ("wait", "1h")];
        let job = Started::piped(&mut of_worker(&scene, &inputs, &script));
        scene.until_queued("a", 1);
        let step = crate::support::read_number(&scene.path("step"));
        crate::support::send(step, signal);
        eventually("the end of the step", || !crate::support::is_alive(step));
        scene.until_queued("a", 0);
        let _ = job.finish();
        fs::remove_file(scene.path("step")).expect("the number of the step");
    }
    let _ = other.open().expect(0, "the holder was left alone");
    assert!(scene.is_free("a"));
}

#[test]
fn what_no_job_can_mean_is_refused_before_anything_is_taken_table() {
    let scene = Scene::new();
    let two = [
        ("name", "a"),
        ("store", "etcd://127.0.0.1:1/x"),
        ("dir", "/x"),
    ];
    for (inputs, why) in [
        (&[("name", "")][..], "The input name is empty"),
        (&two, "name two places"),
        (&[("name", "a"), ("shared", "yes")], "true or false"),
        (&[("name", "a"), ("wait", "--force")], "--force"),
        (&[("name", "--force")], "--force"),
        (&[("name", "a\n::set-env")], "name"),
    ] {
        let ended = answer(&mut Job::step(&scene, inputs, "echo on")).expect(2, why);
        let said = ended.stdout();
        assert!(said.starts_with("::error") && said.contains(why), "{said}");
        assert_eq!(said.lines().count(), 1, "no second command: {said}");
    }
    let mut hosted = Job::step(&scene, &[("name", "a")], "");
    let ended = answer(hosted.env("RUNNER_ENVIRONMENT", "github-hosted")).expect(2, "hosted");
    assert!(
        ended.stdout().contains("share no folder"),
        "{}",
        ended.said()
    );
    // Servers are let through, over TLS too, and servers that cannot be asked are named.
    let bin = scene.path("bin");
    fs::create_dir(&bin).expect("a folder");
    let path = std::env::var("PATH").unwrap_or_default();
    for (answered, code, why) in [
        (
            r#"{"data":{"lock_file":"etcds://locks.example:2379/ci/locks/a"},"error":{"message":"none left"}}"#,
            33,
            "none left",
        ),
        (
            r#"{"error":{"code":"STORE_UNREACHABLE","message":"no route"}}"#,
            12,
            "no route",
        ),
    ] {
        let stub =
            format!("#!/bin/sh\necho '{answered}'\n[ \"$1\" = check ] && exit 12\nexit 33\n");
        scene.script("bin/tenure", &stub);
        let mut hosted = Job::step(&scene, &[("name", "a")], "");
        hosted.env("PATH", format!("{}:{path}", bin.display()));
        let ended = answer(hosted.env("RUNNER_ENVIRONMENT", "github-hosted")).expect(code, why);
        assert!(ended.stdout().contains(why), "{}", ended.said());
    }
    let mut missing = Job::step(&scene, &[("name", "a")], "");
    let node = scene.shell("dirname $(command -v node)").stdout();
    let ended = answer(missing.env("PATH", node.trim())).expect(127, "no tenure");
    assert!(
        ended.stdout().contains("actions/install"),
        "{}",
        ended.said()
    );
    assert!(scene.is_free("a"));
}

/// An archive of a release, as far as the action looks at it: a script in place of the program.
fn release(scene: &Scene, version: &str) -> PathBuf {
    let name = format!("tenure-{version}-x86_64-unknown-linux-musl");
    let folder = scene.path("release");
    fs::create_dir_all(folder.join(&name)).expect("a folder");
    let program = format!("#!/bin/sh\necho tenure {version}\n");
    fs::write(folder.join(&name).join("tenure"), program).expect("a program");
    let made = scene.shell(&format!(
        "cd '{}' && chmod 755 {name}/tenure && tar -czf {name}.tar.gz {name} && sha256sum {name}.tar.gz >SHA256SUMS",
        folder.display()
    ));
    let _ = made.expect(0, "a release");
    folder
}

fn install(scene: &Scene, inputs: &[(&str, &str)]) -> Answer {
    let step = action_at("actions/install/action.yml")["runs"]["steps"][0].clone();
    let script = step["run"].as_str().expect("a script");
    assert!(!script.contains("${{"), "no expression in the script");
    let script = scene.write("install.sh", script);
    let mut command = with_inputs(scene, "bash", "install", inputs);
    command
        .args(BASH_OF_STEP)
        .arg(script)
        .env("RUNNER_TOOL_CACHE", scene.path("cache"));
    answer(&mut command)
}

#[test]
#[cfg(target_arch = "x86_64")]
fn an_offline_runner_gets_the_release_from_a_folder_and_nothing_else() {
    let scene = Scene::new();
    let folder = release(&scene, "0.1.0");
    let from = folder.display().to_string();
    let archive = folder.join("tenure-0.1.0-x86_64-unknown-linux-musl.tar.gz");
    let archive = archive.display().to_string();
    let zeros = "0".repeat(64);
    for (inputs, why) in [
        (&[("from", "/nowhere")][..], "leads to no archive"),
        (
            &[("from", &from), ("version", "0.2.0")],
            "leads to no archive",
        ),
        (&[("from", &from), ("version", "0.1.0; id")], "is a version"),
        (&[("from", &archive)], "No checksum"),
        (
            &[("from", &archive), ("sha256", &zeros)],
            "another checksum",
        ),
        (&[("from", &from), ("sha256", "x")], "64 hexadecimal"),
        (
            &[("from", &from), ("attestation", "maybe")],
            "true or false",
        ),
        (&[], "belongs to no repository"),
    ] {
        let refused = install(&scene, inputs).expect(2, why);
        assert!(refused.stdout().contains(why), "{why}: {}", refused.said());
        assert!(!scene.path("path").exists(), "{why}: nothing was installed");
    }
    for _ in 0..2 {
        let _ = install(&scene, &[("from", &from)]).expect(0, "it is the release");
    }
    let path = fs::read_to_string(scene.path("path")).expect("a path");
    let installed = path.lines().next().expect("a folder");
    let said = answer(&mut scene.program(&format!("{installed}/tenure")));
    assert_eq!(said.stdout(), "tenure 0.1.0\n");
    let left: Vec<_> = fs::read_dir(scene.path("temp")).expect("it").collect();
    assert!(left.is_empty(), "nothing is left: {left:?}");
}
