//! Runs that go on under the hold of another one (`--reentrant`) in the background, after the command of
//! that one has ended: which run waits for which, and what reaches them.

use crate::support::{
    Answer, Gate, Held, Scene, Started, eventually, is_alive, read_number, send, throughout, timed,
};
use rustix::process::Signal;
use std::process::Stdio;
use std::time::Duration;

/// Long enough for a run that does not wait to be gone.
const A_WHILE: Duration = Duration::from_millis(700);

/// Within this time an inner run is told that the hold it went on under is over.
const TOLD: Duration = Duration::from_secs(5);

/// A run whose command has ended, and below it one that goes on in the background.
struct Nested {
    outer: Started,
    /// The PID of the inner command.
    command: u32,
    gate: Gate,
    /// Has the exit code of the inner run, once there is one.
    code: std::path::PathBuf,
}

/// Starts both. `outer` are the words before the outer command, `inner` those of the inner run.
fn nested(scene: &Scene, outer: &[&str], inner: &str) -> Nested {
    let gate = Gate::new(scene, "inner");
    scene.script("work", &format!("#!/bin/sh\n{}\n", gate.script("")));
    let code = scene.path("code");
    // The outer run ends once the inner run is at work; a run that had not begun would be refused.
    let line = format!(
        "(tenure {inner} -- ./work; echo $? >code.new; mv code.new code) >/dev/null 2>&1 & \
         while [ -d . ] && [ ! -e inner.0.begun ]; do sleep .01; done"
    );
    let mut command = scene.tenure(outer);
    command
        .args(["--", "sh", "-c", &line])
        .current_dir(scene.root());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let outer = Started::new(&mut command);
    Nested {
        outer,
        command: gate.entered(),
        gate,
        code,
    }
}

impl Nested {
    fn open(self) -> Answer {
        self.gate.open();
        self.outer.finish()
    }

    /// The inner supervisor.
    fn supervisor(&self) -> u32 {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.command)).unwrap();
        let (_, rest) = stat.rsplit_once(')').unwrap();
        rest.split_ascii_whitespace()
            .nth(1)
            .unwrap()
            .parse()
            .unwrap()
    }
}

/// "The lock stays held."
#[test]
fn a_run_stays_until_what_goes_on_under_its_lock_has_ended() {
    for (outer, inner) in [
        (&["run", "x"][..], "run --reentrant x"),
        (&["run", "x", "--close"], "run --reentrant x"),
        (&["run", "x"], "run --reentrant x --close"),
        (&["run", "x"], "run --reentrant x --exec"),
        (&["run", "--group", "x"], "run --reentrant --group x"),
        (&["run", "-l", "x", "-l", "y"], "run --reentrant x"),
        (&["run", "x", "--shared"], "run --reentrant x --shared"),
        // A run that has come to an end itself, and left another behind.
        (
            &["run", "x"],
            "run --reentrant x -- sh -c 'tenure run --reentrant x \"$@\" & sleep .1' sh",
        ),
        (
            &["--profile", "session", "run", "7"],
            "--profile session run --reentrant 7",
        ),
    ] {
        let why = format!("{outer:?}, {inner}");
        let scene = Scene::new();
        let mut nested = nested(&scene, outer, inner);
        let command = nested.command;
        throughout(A_WHILE, &format!("{why}: the outer run is there"), || {
            !nested.outer.has_ended()
        });
        let name = if inner.contains('7') { "7" } else { "x" };
        let profile = if name == "7" { "session" } else { "native" };
        let words = ["--profile", profile, "run", "-n", name, "--", "true"];
        let _ = scene.run(words).expect(4, &format!("{why}: it is held"));
        let answer = nested.open().expect(0, &why);
        assert!(!is_alive(command), "{why}: the work has ended before");
        let told = "the command has ended; the lock stays held";
        assert!(answer.stderr().contains(told), "{why}: {}", answer.said());
        let _ = scene.run(words).expect(0, &format!("{why}: it is free"));
    }
}

/// The line goes on as soon as the last of them has ended.
#[test]
fn whoever_waits_for_the_lock_starts_when_the_last_inner_run_has_ended() {
    let scene = Scene::new();
    let nested = nested(&scene, &["run", "x"], "run --reentrant x");
    let command = nested.command;
    let gate = Gate::new(&scene, "second");
    let second = scene.script("second", &format!("#!/bin/sh\n{}\n", gate.script("")));
    // A second one, by a descendant that inherited the hold from the first.
    let held = std::fs::read(format!("/proc/{command}/environ")).unwrap();
    let held = String::from_utf8_lossy(&held).into_owned();
    let held = held
        .split('\0')
        .find_map(|line| line.strip_prefix("TENURE_HELD="));
    let mut another = scene.tenure(["run", "--reentrant", "x", "--"]);
    another.arg(second).env("TENURE_HELD", held.unwrap());
    let another = Started::new(&mut another);
    let second = gate.entered();
    let overlap = crate::support::says_overlap(second);
    let mut waiter = scene.tenure(["run", "-q", "x", "-w", "25s", "--", "sh", "-c", &overlap]);
    waiter.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut waiter = Started::new(&mut waiter);
    scene.until_queued("x", 1);
    let mut outer = nested;
    outer.gate.open();
    eventually("the first inner run to end", || outer.code.exists());
    throughout(
        A_WHILE,
        "one works under it, which is no child of the outer run",
        || !outer.outer.has_ended() && !waiter.has_ended(),
    );
    gate.open();
    let _ = outer.outer.finish().expect(0, "the outer run");
    let _ = another.finish().expect(0, "the second inner run");
    let answer = waiter.finish().expect(0, "the next one");
    assert_eq!(answer.stdout(), "", "and no other run worked beside it");
}

/// Runs that hold beside each other each wait for their own inner runs.
#[test]
fn a_shared_hold_is_given_back_while_others_work_within_another() {
    let scene = Scene::new();
    let nested = nested(
        &scene,
        &["run", "x", "--shared"],
        "run --reentrant x --shared",
    );
    let (answer, took) = timed(|| scene.run(["run", "x", "--shared", "--", "true"]));
    let _ = answer.expect(0, "beside it");
    assert!(took < TOLD, "{took:?}");
    let _ = nested.open().expect(0, "and the other one's");
}

#[test]
fn what_asks_the_outer_run_to_end_reaches_what_goes_on_under_its_lock() {
    for (how, code) in [("SIGTERM", 143), ("cancel", 79), ("max-runtime", 10)] {
        let scene = Scene::new();
        // A run that a script starts with `&` is deaf to SIGINT.
        let mut words = vec!["run", "x", "--term-after", "300ms"];
        if how == "max-runtime" {
            words.extend(["--max-runtime", "2s"]);
        }
        let mut nested = nested(&scene, &words, "run --reentrant x");
        let command = nested.command;
        throughout(Duration::from_millis(300), how, || {
            !nested.outer.has_ended()
        });
        match how {
            "SIGTERM" => nested.outer.signal(Signal::TERM),
            "cancel" => {
                let _ = scene.run(["cancel", "x"]).expect(0, "it can be asked");
            }
            _ => {}
        }
        let _ = nested.outer.finish().expect(code, how);
        assert!(!is_alive(command), "{how}: the inner work has ended");
        assert!(scene.is_free("x"), "{how}");
    }
}

/// Whichever of them is killed, the lock is free when the work is gone and not before.
#[test]
fn the_lock_stays_held_whoever_of_them_is_killed() {
    for who in ["the inner supervisor", "the outer one", "both"] {
        for outer in [&["run", "x"][..], &["run", "x", "--wait-all"]] {
            let scene = Scene::new();
            let mut nested = nested(&scene, outer, "run --reentrant x");
            let inner = nested.supervisor();
            if who != "the outer one" {
                send(inner, Signal::KILL);
                eventually("the inner supervisor to be gone", || !is_alive(inner));
            }
            if who != "the inner supervisor" {
                nested.outer.signal(Signal::KILL);
                nested.outer.end();
            }
            throughout(A_WHILE, who, || !scene.is_free("x"));
            nested.gate.open();
            eventually("the work to end", || !is_alive(nested.command));
            scene.until_free("x");
        }
    }
}

/// What was acquired has no supervisor that could wait: the inner run ends its work.
#[test]
fn a_run_whose_outer_hold_is_released_ends_its_work() {
    let scene = Scene::new();
    let words = ["acquire", "x", "--owner", "none", "--request-id", "r"];
    let acquired = scene.run(words.iter().chain(&["--output", "json"])).json();
    let token = acquired["data"]["token"].to_string();
    let hold = format!("{token}={}/x", scene.locks().display());
    let gate = Gate::new(&scene, "x");
    let script = gate.script("");
    let mut command = scene.tenure(["run", "--reentrant", "x", "--", "sh", "-c", &script]);
    command
        .env("TENURE_HELD", &hold)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let started = Started::new(&mut command);
    let held = Held {
        started,
        command: gate.entered(),
        gate,
    };
    let _ = scene
        .run(["release", "x", "--request-id", "r"])
        .expect(0, "its own");
    let command = held.command;
    let (answer, took) = timed(|| held.finish());
    let answer = answer.expect(80, "the hold is over");
    assert!(took < TOLD, "{took:?}");
    assert!(!is_alive(command));
    assert!(
        answer
            .stderr()
            .contains("the hold of x, under which this run went on, is over")
            && answer.stderr().contains("x was lost while"),
        "{}",
        answer.said()
    );
}

/// With `--close` nothing of the outer run is left in what it started, and it was killed.
#[test]
fn an_inner_run_whose_outer_hold_passed_on_ends_its_work() {
    let scene = Scene::new();
    let mut nested = nested(&scene, &["run", "x", "--close"], "run --reentrant x");
    nested.outer.signal(Signal::KILL);
    nested.outer.end();
    let _ = scene
        .run(["run", "x", "-w", "20s", "--", "true"])
        .expect(0, "it is free");
    let (code, took) = timed(|| read_number(&nested.code));
    assert_eq!(code, 80, "it is told");
    assert!(took < TOLD, "{took:?}");
    assert!(!is_alive(nested.command));
}
