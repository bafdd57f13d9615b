//! `action.yml`: its script, run as GitHub runs the script of a step, with the inputs in variables.

use crate::support::{Answer, Gate, Held, Scene, Started, TENURE, answer, eventually};
use rustix::process::Signal;
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

/// The action at a path of the repository.
pub(crate) fn action_at(path: &str) -> Value {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let text = fs::read_to_string(root.join(path)).expect("the action");
    serde_saphyr::from_str(&text).expect("the action is YAML")
}

/// Each input of an action with its value, as the runner fills it in: what is given, else the default.
pub(crate) fn inputs_of(action: &Value, given: &[(&str, &str)]) -> Vec<(String, String)> {
    for (name, _) in given {
        assert!(!action["inputs"][name].is_null(), "there is no {name}");
    }
    let inputs = action["inputs"].as_object().expect("inputs").iter();
    let values = inputs.map(|(name, input)| {
        let default = input["default"].as_str().unwrap_or_default();
        // GitHub fills in what it knows itself: the address of the run.
        let default = if default.contains("${{") {
            "https://github.example/a/b/actions/runs/777"
        } else {
            default
        };
        let given = given.iter().find(|(given, _)| given == name);
        (
            name.clone(),
            given.map_or(default, |(_, value)| value).to_owned(),
        )
    });
    values.collect()
}

/// A program that the runner of a machine of one's own starts for an action.
pub(crate) fn on_runner(scene: &Scene, program: &str) -> Command {
    let _ = fs::create_dir(scene.path("temp"));
    let mut command = scene.program(program);
    command
        .current_dir(scene.root())
        .env("RUNNER_ENVIRONMENT", "self-hosted")
        .env("RUNNER_OS", "Linux")
        .env("RUNNER_TEMP", scene.path("temp"))
        .env("GITHUB_OUTPUT", scene.path("output"));
    command
}

/// The arguments with which GitHub starts `bash` for a step.
pub(crate) const BASH_OF_STEP: [&str; 4] = ["--noprofile", "--norc", "-eo", "pipefail"];

fn action() -> Value {
    action_at("action.yml")
}

/// The only step of the action.
fn step() -> Value {
    let steps = action()["runs"]["steps"].clone();
    assert_eq!(steps.as_array().map(Vec::len), Some(1), "one step: {steps}");
    steps[0].clone()
}

/// The step with these inputs, as a self-hosted runner starts it: `bash` with a file and GitHub's options. What is not
/// given has its default.
fn step_with(scene: &Scene, inputs: &[(&str, &str)]) -> Command {
    let (action, step) = (action(), step());
    let script = scene.write("step.sh", step["run"].as_str().expect("a script"));
    let mut command = on_runner(scene, "bash");
    command.args(BASH_OF_STEP).arg(script);
    for (name, value) in inputs_of(&action, inputs) {
        if let Some(variable) = variable(&step, &name) {
            command.env(variable, value);
        }
    }
    command
}

/// The variable in which an input reaches the script.
fn variable(step: &Value, input: &str) -> Option<String> {
    let wanted = format!("${{{{ inputs.{input} }}}}");
    let env = step["env"].as_object().expect("variables");
    let found = env.iter().find(|(_, value)| **value == wanted);
    found.map(|(variable, _)| variable.clone())
}

fn run(scene: &Scene, inputs: &[(&str, &str)]) -> Answer {
    answer(&mut step_with(scene, inputs))
}

/// A step whose script lasts until its gate is opened.
fn working(scene: &Scene, inputs: &[(&str, &str)], prelude: &str) -> Held {
    let gate = Gate::new(scene, "step");
    // Without a trap a shell goes on where SIGINT comes in the instant in which a program of it has just ended.
    let script = format!("trap 'exit 1' INT TERM\n{}", gate.script(prelude));
    let mut inputs = inputs.to_vec();
    inputs.push(("run", &script));
    let started = Started::piped(&mut step_with(scene, &inputs));
    Held {
        started,
        command: gate.entered(),
        gate,
    }
}

/// Text of a caller that stood in the script would be run by it.
#[test]
fn inputs_reach_the_script_as_variables_only() {
    let (action, step) = (action(), step());
    let script = step["run"].as_str().expect("a script");
    assert!(!script.contains("${{"), "no expression in the script");
    let inputs = action["inputs"].as_object().expect("inputs");
    let passed: BTreeSet<_> = inputs
        .keys()
        .filter(|input| variable(&step, input).is_some())
        .map(String::as_str)
        .collect();
    let mut wanted: BTreeSet<_> = inputs.keys().map(String::as_str).collect();
    // The runner itself goes there.
    wanted.remove("working-directory");
    assert_eq!(passed, wanted);
    assert_eq!(
        step["env"].as_object().map(serde_json::Map::len),
        Some(passed.len()),
        "each variable is one input"
    );
}

#[test]
fn a_step_has_the_lock_while_it_works_and_not_afterwards() {
    let scene = Scene::new();
    let inputs = [
        ("name", "production"),
        ("group", "pr-7"),
        ("wait", "5s"),
        ("slots", "2"),
        ("max-runtime", "1m"),
        ("cancel-in-progress", "true"),
    ];
    let step = working(&scene, &inputs, "echo \"$TENURE_NAME ${INPUT_RUN-unset}\"");
    let facts = scene.check("production");
    assert_eq!(
        facts["holder"]["why"], "https://github.example/a/b/actions/runs/777",
        "{facts}"
    );
    assert!(!scene.is_free("pr-7"), "the group is held, too");
    let answer = step.open().expect(0, "the script succeeds");
    assert_eq!(answer.stdout(), "production unset\n");
    assert!(scene.is_free("production") && scene.is_free("pr-7"));
    assert!(!scene.path("output").exists(), "there is nothing to tell");
}

/// As in a step without the action: the first failure ends the script, in a pipe as well.
#[test]
fn a_script_fails_as_in_any_other_step() {
    let scene = Scene::new();
    for (shell, script, code) in [
        ("bash", "false\necho on", 1),
        ("bash", "sh -c 'exit 7' | cat\necho on", 7),
        ("sh", "sh -c 'exit 9'\necho on", 9),
        ("bash", "exit 80", 80),
    ] {
        let answer =
            run(&scene, &[("name", "a"), ("shell", shell), ("run", script)]).expect(code, script);
        assert_eq!(answer.stdout(), "", "{script}");
        assert!(scene.is_free("a"), "{script}");
    }
    let answer = run(
        &scene,
        &[("name", "a"), ("run", "set -- 'a b'\necho \"$1\"")],
    );
    assert_eq!(answer.expect(0, "quotes").stdout(), "a b\n");
}

#[test]
fn the_lock_of_another_is_neither_taken_nor_given_back() {
    let scene = Scene::new();
    let other = scene.hold("a", ["-q"]);
    let token = || scene.check("a")["holder"]["token"].clone();
    let before = token();
    let answer = run(
        &scene,
        &[("name", "a"), ("wait", "0"), ("run", "echo worked")],
    )
    .expect(4, "it is held");
    assert_eq!(answer.stdout(), "", "the script did not run");
    assert_eq!(token(), before);
    let _ = other.open().expect(0, "the holder was left alone");
}

#[test]
fn a_step_whose_lock_is_lost_fails() {
    let scene = Scene::new();
    let mut step = working(&scene, &[("name", "a")], "");
    let _ = scene
        .shell("rm \"$TENURE_DIR/a.tenure\"")
        .expect(0, "removed");
    eventually("the end of the step", || step.started.has_ended());
    let _ = step.finish().expect(80, "the lock was lost");
}

#[test]
fn a_newer_run_of_the_group_takes_the_place_of_a_step() {
    let scene = Scene::new();
    let inputs = [("group", "pr-7"), ("cancel-in-progress", "true")];
    let older = working(&scene, &inputs, "");
    let newer = working(&scene, &inputs, "");
    let _ = older.finish().expect(79, "it gave way");
    let output = fs::read_to_string(scene.path("output")).expect("an output");
    assert_eq!(output, "superseded=true\n");
    assert!(!scene.is_free("pr-7"), "the newer one has it");
    let _ = newer.open().expect(0, "the newer one works to its end");
}

/// The runner asks the process to stop that it has started. That has to be the one that ends the work.
#[test]
fn a_cancelled_job_ends_its_work_and_then_gives_the_lock_back() {
    let scene = Scene::new();
    for signal in [Signal::INT, Signal::TERM] {
        let step = working(&scene, &[("name", "a")], "");
        let command = step.command;
        step.signal(signal);
        let answer = step.finish();
        assert!(!answer.status().success(), "{}", answer.said());
        assert!(scene.is_free("a"));
        assert!(
            !Path::new(&format!("/proc/{command}")).exists(),
            "the script is gone"
        );
    }
}

/// Whatever an input says, it is one value of one flag.
#[test]
fn no_input_is_read_as_a_flag_or_as_shell() {
    let scene = Scene::new();
    let hostile = [
        "--force",
        "$(touch hacked)",
        "`touch hacked`",
        "a'; touch hacked; '",
        "-",
        "a\n--yes",
    ];
    for input in [
        "name",
        "wait",
        "slots",
        "max-runtime",
        "store",
        "cancel-in-progress",
        "shell",
    ] {
        for text in hostile {
            let mut inputs = vec![("run", "touch ran"), (input, text)];
            // What is still needed is there, so nothing but the text itself is refused.
            inputs.push(if input == "name" {
                ("group", "g")
            } else {
                ("name", "a")
            });
            let answer = run(&scene, &inputs).expect(2, &format!("{input}: {text}"));
            assert_eq!(
                answer.stdout().matches("ran").count(),
                0,
                "{}",
                answer.said()
            );
        }
    }
    assert!(!scene.path("ran").exists() && !scene.path("hacked").exists());
    // A reason may say anything, and any text names a group.
    for text in hostile {
        let inputs = [("group", text), ("why", text), ("run", "true")];
        let _ = run(&scene, &inputs).expect(0, text);
    }
    assert!(!scene.path("hacked").exists());
}

#[test]
fn what_makes_no_sense_is_refused_before_anything_is_taken() {
    let scene = Scene::new();
    for (inputs, said) in [
        (vec![("run", "true")], "needs a name or a group"),
        (vec![("name", "a")], "run is empty"),
        (
            vec![("name", "a"), ("run", "true"), ("shell", "pwsh")],
            "bash, sh or python",
        ),
        (
            vec![
                ("name", "a"),
                ("run", "true"),
                ("store", "etcd://h/p"),
                ("dir", "/l"),
            ],
            "two places",
        ),
    ] {
        let answer = run(&scene, &inputs).expect(2, said);
        assert!(
            answer.stdout().starts_with("::error title=tenure::"),
            "{}",
            answer.said()
        );
        assert!(answer.stdout().contains(said), "{}", answer.said());
    }
    let mut windows = step_with(&scene, &[("name", "a"), ("run", "true")]);
    let _ = answer(windows.env("RUNNER_OS", "Windows")).expect(2, "Windows");
    let mut without = step_with(&scene, &[("name", "a"), ("run", "true")]);
    let said = answer(without.env("PATH", "/usr/bin:/bin")).expect(127, "no tenure");
    assert!(
        said.stdout().contains("no tenure on the PATH"),
        "{}",
        said.said()
    );
    assert!(!scene.locks().exists());
}

/// A lock in a folder of such a runner keeps no other job out: a step that goes on would believe to be alone.
#[test]
fn on_a_runner_of_githubs_a_step_needs_a_store() {
    let scene = Scene::new();
    let hosted = |inputs: &[(&str, &str)]| {
        let mut all = vec![("name", "a"), ("run", "touch ran"), ("wait", "0")];
        all.extend(inputs);
        let mut command = step_with(&scene, &all);
        command.env("RUNNER_ENVIRONMENT", "github-hosted");
        command
    };
    let folder = scene.path("shared");
    let folder = folder.to_str().expect("a path");
    for inputs in [vec![], vec![("dir", folder)]] {
        let said = answer(&mut hosted(&inputs)).expect(2, "no store").stdout();
        assert!(said.contains("share no folder"), "{said}");
    }
    // No server answers there, so the step is let through to a lock that it cannot get. To wait for that once more
    // shows nothing: here the last call says only that it was made.
    let store = "etcd://127.0.0.1:1/ci";
    scene.write("tenure.toml", &format!("store = \"{store}\"\n"));
    fs::create_dir(scene.path("bin")).expect("a folder");
    let stub = format!("#!/bin/sh\n[ \"$1\" != run ] || exit 33\nexec '{TENURE}' \"$@\"\n");
    scene.script("bin/tenure", &stub);
    let path = format!("{}:/usr/bin:/bin", scene.path("bin").display());
    let through = |mut command: Command| Started::piped(command.env("PATH", &path));
    let input = hosted(&[("store", store)]);
    let mut variable = hosted(&[]);
    variable.env_remove("TENURE_DIR").env("TENURE_STORE", store);
    let mut configuration = hosted(&[]);
    configuration.env_remove("TENURE_DIR");
    configuration.env("TENURE_CONFIG", scene.path("tenure.toml"));
    // Over TLS, as the real program names such a place.
    let tls = "tenure: the locks are in etcds://locks.example:2379/ci (TENURE_STORE)";
    let stub = format!("#!/bin/sh\n[ \"$1\" = run ] && exit 33\necho '{tls}' >&2; exit 12\n");
    fs::create_dir(scene.path("tls")).expect("a folder");
    scene.script("tls/tenure", &stub);
    let mut over_tls = hosted(&[]);
    over_tls.env(
        "PATH",
        format!("{}:/usr/bin:/bin", scene.path("tls").display()),
    );
    for (why, step) in [
        ("TLS", Started::piped(&mut over_tls)),
        ("the input", through(input)),
        ("the variable", through(variable)),
        ("the configuration", through(configuration)),
    ] {
        let _ = step.finish().expect(33, why);
    }
    let found = answer(hosted(&[]).env_remove("TENURE_DIR")).expect(2, "who named it?");
    assert!(found.stderr().contains("tenure allow"), "{}", found.said());
    scene.write("tenure.toml", "store = \n");
    let said = answer(hosted(&[]).env_remove("TENURE_DIR")).expect(2, "a mistake in it");
    assert!(
        said.stdout().contains("cannot say where"),
        "{}",
        said.said()
    );
    assert!(!scene.path("ran").exists());
}
