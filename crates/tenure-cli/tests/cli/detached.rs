//! `acquire`, `release` and `heartbeat`: a lock that outlives the call which took it.

use crate::support::{Gate, Scene, Started, answer, eventually, read_number, timed};
use rustix::process::Signal;
use serde_json::Value;
use std::process::Stdio;
use std::time::Duration;

fn acquired(scene: &Scene, words: &[&str]) -> Value {
    let mut all = vec!["acquire", "--output", "json"];
    all.extend(words);
    scene.run(all).expect(0, "acquired").json()["data"].clone()
}

fn owner_of(scene: &Scene, name: &str) -> Option<u64> {
    scene.check(name)["holder"]["pid"].as_u64()
}

/// A process that does nothing but own something.
fn owner(scene: &Scene) -> Started {
    Started::new(scene.program("sleep").arg("600").stdout(Stdio::null()))
}

/// `sh -c` with nothing left to do ends with the call; the lock follows the process that started it.
#[test]
fn the_owner_is_not_a_shell_that_lives_for_one_line() {
    let scene = Scene::new();
    let me = u64::from(std::process::id());
    for (name, shell, words) in [
        ("a", "sh", &["-c", "true; tenure acquire a"][..]),
        ("b", "sh", &["-ec", "true; tenure acquire b"]),
        ("c", "bash", &["-c", "true; tenure acquire c"]),
        (
            "d",
            "bash",
            &["-o", "pipefail", "-c", "true; tenure acquire d"],
        ),
        (
            "e",
            "bash",
            &["-euo", "pipefail", "-c", "true; tenure acquire e"],
        ),
        (
            "f",
            "bash",
            &["--norc", "--noprofile", "-lc", "true; tenure acquire f"],
        ),
        ("g", "sh", &["-c", "sh -c 'true; tenure acquire g'"]),
        ("h", "bash", &["-c", "true; (true; tenure acquire h)"]),
        ("i", "bash", &["-c", "echo $(true; tenure acquire i 2>&1)"]),
    ] {
        let _ = answer(scene.program(shell).args(words)).expect(0, &format!("{words:?}"));
        assert_eq!(
            owner_of(&scene, name),
            Some(me),
            "{shell} {words:?}: the caller owns it"
        );
        assert_eq!(scene.standing(name), "held", "and it lasts");
    }
}

/// Runs a script that takes `x` somehow, and then stays; answers with the owner of the lock, and the
/// script's PID.
fn owner_within(scene: &Scene, shell: &str, how: &str) -> (Option<u64>, u64) {
    let gate = Gate::new(scene, "script");
    let script = scene.script(
        "script",
        &format!("#!/usr/bin/env {shell}\n{how}\n{}\n", gate.script("")),
    );
    let mut command = scene.program(script.to_str().unwrap());
    command.stdout(Stdio::null()).stderr(Stdio::piped());
    let started = Started::new(&mut command);
    let pid = u64::from(gate.entered());
    let owner = owner_of(scene, "x");
    gate.open();
    let _ = started.finish().expect(0, how);
    scene.until_free("x");
    (owner, pid)
}

#[test]
fn the_owner_is_the_script_that_calls() {
    let scene = Scene::new();
    for shell in ["sh", "bash"] {
        let (owner, script) = owner_within(&scene, shell, "tenure acquire x");
        assert_eq!(owner, Some(script), "the {shell} script owns it");
    }
}

/// How a script gets hold of the request id. What runs inside `$(…)` is a copy of the shell that
/// is gone before the next line; a lock in its name would be dead on arrival.
#[test]
fn the_owner_is_the_script_also_from_a_substitution_a_pipe_or_a_subshell() {
    let scene = Scene::new();
    for shell in ["sh", "bash"] {
        for how in [
            "id=$(tenure acquire x)",
            "id=$(tenure acquire x 2>&1)",
            "id=$(tenure acquire x --output json | cat)",
            "if id=$(tenure acquire x && echo yes); then :; fi",
            "tenure acquire x | cat",
            "(tenure acquire x; true)",
            "{ tenure acquire x; true; } | cat",
        ] {
            let (owner, script) = owner_within(&scene, shell, how);
            assert_eq!(owner, Some(script), "{shell}: `{how}`: the script owns it");
        }
    }
}

/// A wrapper starts its command and waits for it, and ends with it.
#[test]
fn the_owner_is_not_a_wrapper_that_ends_with_the_call() {
    let scene = Scene::new();
    for how in [
        "timeout 20 tenure acquire x",
        "env -i PATH=\"$PATH\" TENURE_DIR=\"$TENURE_DIR\" tenure acquire x",
        "nice tenure acquire x",
        "nohup tenure acquire x",
        "echo x | xargs tenure acquire",
    ] {
        let (owner, script) = owner_within(&scene, "bash", how);
        assert_eq!(owner, Some(script), "`{how}`: the script owns it");
    }
}

#[test]
fn the_owner_can_be_named() {
    let scene = Scene::new();
    let other = owner(&scene);
    let pid = other.pid().to_string();
    let data = acquired(&scene, &["a", "--owner", &pid]);
    assert_eq!(data["owner_pid"], u64::from(other.pid()), "{data}");
    assert_eq!(data["owner_name"], "sleep", "{data}");
    let data = acquired(&scene, &["b", "--owner", "parent"]);
    assert_eq!(data["owner_pid"], u64::from(std::process::id()), "{data}");
    let data = acquired(&scene, &["c", "--owner", "none", "--ttl", "90s"]);
    assert_eq!(data["owner_pid"], Value::Null, "{data}");
    assert_eq!(data["ttl_ms"], 90_000, "{data}");
    let answer = scene.run(["acquire", "d"]).expect(0, "acquired");
    let me = std::process::id().to_string();
    assert!(
        answer.stdout().contains(&me),
        "whom it chose is told: {}",
        answer.said()
    );
}

#[test]
fn an_owners_death_frees_the_lock_at_once() {
    let scene = Scene::new();
    let owner = owner(&scene);
    let pid = owner.pid().to_string();
    let _ = acquired(&scene, &["x", "--owner", &pid, "--ttl", "1h"]);
    let mut command = scene.tenure(["run", "x", "--wait", "forever", "--", "echo", "ran"]);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let waiting = Started::new(&mut command);
    scene.until_queued("x", 1);
    let (answer, took) = timed(|| {
        owner.signal(Signal::KILL);
        waiting.finish()
    });
    let answer = answer.expect(0, "the next one gets it");
    assert!(took < Duration::from_secs(5), "it took {took:?}");
    assert!(
        answer.stderr().contains("x: its last holder, PID ")
            && answer.stderr().contains(", had ended"),
        "and is told: {}",
        answer.said()
    );
    drop(owner);
}

#[test]
fn a_lock_of_nobody_lasts_for_its_ttl_and_heartbeats_prolong_it() {
    let scene = Scene::new();
    let ttl = Duration::from_millis(1_500);
    let words = [
        "x",
        "--owner",
        "none",
        "--ttl",
        "1500ms",
        "--request-id",
        "r",
    ];
    let (data, _) = timed(|| acquired(&scene, &words));
    let token = data["token"].clone();
    let ((), lasted) = timed(|| {
        for _ in 0..4 {
            std::thread::sleep(ttl / 3);
            let answer = scene.run(["heartbeat", "x", "--request-id", "r", "--output", "json"]);
            let document = answer.expect(0, "renewed").json();
            assert_eq!(document["data"]["token"], token, "the same hold");
        }
        scene.until_free("x");
    });
    assert!(
        lasted > ttl + ttl / 3,
        "heartbeats prolonged it; it lasted {lasted:?}"
    );
    assert_eq!(scene.standing("x"), "stale", "then it ran out");
    let answer = scene
        .run(["run", "-n", "x", "--", "true"])
        .expect(0, "the next one");
    assert!(answer.stderr().contains("took over"), "{}", answer.said());
    let _ = scene
        .run(["heartbeat", "x", "--request-id", "r"])
        .expect(80, "a heartbeat after the loss says so");
}

#[test]
fn asking_again_under_the_same_id_is_answered_with_yes_and_another_id_with_no() {
    let scene = Scene::new();
    let first = acquired(&scene, &["x", "--owner", "none", "--request-id", "r"]);
    assert_eq!(first["already_held"], false);
    let again = acquired(&scene, &["x", "--owner", "none", "--request-id", "r"]);
    assert_eq!(again["already_held"], true);
    assert_eq!(again["token"], first["token"], "the same hold");
    let words = [
        "acquire",
        "x",
        "-n",
        "--owner",
        "none",
        "--request-id",
        "other",
    ];
    let answer = scene.run(words).expect(4, "another owner's");
    assert!(
        answer.stderr().contains("request r"),
        "who holds it: {}",
        answer.said()
    );
}

#[test]
fn asking_again_tells_of_the_hold_as_it_is() {
    let scene = Scene::new();
    let (first, second) = (owner(&scene), owner(&scene));
    let (one, two) = (first.pid().to_string(), second.pid().to_string());
    let _ = acquired(&scene, &["x", "--owner", &one, "--request-id", "r"]);
    let answer = scene.run(["acquire", "x", "--owner", &two, "--request-id", "r"]);
    let answer = answer.expect(0, "already held");
    assert!(
        answer.stdout().contains(&one) && !answer.stdout().contains(&two),
        "the owner is the one whose life the lock follows: {}",
        answer.said()
    );
}

#[test]
fn only_the_owner_releases() {
    let scene = Scene::new();
    let _ = acquired(&scene, &["x", "--owner", "none", "--request-id", "r"]);
    for words in [
        &["release", "x"][..],
        &["release", "x", "--request-id", "other"],
    ] {
        let answer = scene.run(words).expect(6, "not the owner");
        assert!(
            answer.stderr().contains("request r"),
            "who is: {}",
            answer.said()
        );
        assert_eq!(scene.standing("x"), "held", "and it stays");
    }
    let _ = scene
        .run(["release", "x", "--request-id", "r"])
        .expect(0, "the owner");
    assert!(scene.is_free("x"), "the lock is free");
}

#[test]
fn releasing_what_nobody_holds_succeeds_with_a_warning() {
    let scene = Scene::new();
    let answer = scene.run(["release", "x"]).expect(0, "absent");
    assert!(
        answer.stderr().contains("not held"),
        "a warning: {}",
        answer.said()
    );
    assert!(!scene.locks().exists(), "nothing was created");
    let _ = acquired(&scene, &["x", "--owner", "none", "--request-id", "r"]);
    let _ = scene
        .run(["release", "x", "--request-id", "r"])
        .expect(0, "released");
    let answer = scene
        .run(["release", "x", "--request-id", "r"])
        .expect(0, "again");
    assert!(
        answer.stderr().contains("not held"),
        "a warning: {}",
        answer.said()
    );
    let document = scene.run(["release", "x", "--output", "json"]).json();
    assert_eq!(
        document["warnings"].as_array().map(Vec::len),
        Some(1),
        "{document}"
    );
}

/// A hold that a dead holder left has no owner, to `release` and `heartbeat` as it is to `check`.
#[test]
fn what_a_dead_holder_left_is_held_by_nobody() {
    let scene = Scene::new();
    let owner = owner(&scene);
    let pid = owner.pid().to_string();
    let _ = acquired(&scene, &["x", "--owner", &pid, "--request-id", "r"]);
    drop(owner);
    assert_eq!(scene.standing("x"), "stale");
    let answer = scene.run(["release", "x", "--request-id", "other"]);
    let _ = answer.expect(0, "it has no holder, so there is nothing to release");
    let answer = scene.run(["heartbeat", "x", "--request-id", "other"]);
    let _ = answer.expect(80, "neither the caller nor another process holds it");
}

#[test]
fn heartbeat_and_check_know_whoever_descends_from_the_owner() {
    let scene = Scene::new();
    let me = std::process::id().to_string();
    let _ = acquired(&scene, &["x", "--owner", &me]);
    let _ = scene
        .shell("sh -c 'tenure heartbeat x; exit $?'")
        .expect(0, "a grandchild");
    let _ = scene.shell("tenure check x").expect(0, "mine");
    let _ = scene.run(["release", "x"]).expect(0, "the owner's child");
    let other = owner(&scene);
    let pid = other.pid().to_string();
    // By a shell that has ended: what we take ourselves we give back, whoever owns it.
    let line = format!("tenure acquire x --owner {pid}; true");
    let _ = scene.shell(&line).expect(0, "another caller");
    let _ = scene
        .run(["release", "x"])
        .expect(6, "we do not descend from that one");
    let _ = scene
        .run(["heartbeat", "x"])
        .expect(6, "we do not descend from that one");
}

/// All sub-shells of an agent follow the agent's process, so descent from it shows nothing about
/// which of them holds.
#[test]
fn the_trap_of_a_refused_sub_shell_releases_nothing() {
    let scene = Scene::new();
    let first = acquired(&scene, &["x"]);
    let id = first["request_id"].as_str().expect("an id");
    let second = scene.shell(
        "trap 'tenure release x; echo \"trap $?\"' EXIT\n\
         tenure acquire x --wait 0 || exit 9\n",
    );
    let second = second.expect(9, "refused");
    assert!(second.stdout().contains("trap 6"), "{}", second.said());
    let command = format!("`tenure release x --request-id {id}`");
    assert!(
        second.stderr().contains(&command),
        "what its own release needs is said: {}",
        second.said()
    );
    assert_eq!(scene.standing("x"), "held", "by the first");
    let answer = scene.shell("tenure release x --output json; exit $?");
    let document = answer.expect(6, "a sub-shell").json();
    assert_eq!(document["error"]["code"], "NOT_OWNER", "{document}");
    assert_eq!(document["error"]["context"]["mine"], false, "{document}");
    let with_id = format!("tenure release x --request-id {id}; exit $?");
    let _ = scene.shell(&with_id).expect(0, "the id is enough anywhere");
}

/// Runs a script and answers with its exit code and what it said.
fn script(scene: &Scene, shell: &str, lines: &str) -> crate::support::Answer {
    let file = scene.script("script", &format!("#!/usr/bin/env {shell}\n{lines}\n"));
    answer(&mut scene.program(file.to_str().expect("a path")))
}

#[test]
fn a_script_releases_what_it_took_without_an_id() {
    let scene = Scene::new();
    for shell in ["sh", "bash"] {
        for how in [
            "tenure acquire x; tenure release x",
            "work() { tenure acquire x; }; finish() { tenure release x; }; work; finish",
            "trap 'tenure release x' EXIT; tenure acquire x",
            "id=$(tenure acquire x); tenure release x",
            "tenure acquire x; timeout 20 tenure release x",
            "tenure acquire x; timeout 20 nice env tenure release x",
            "tenure acquire x; echo x | xargs tenure release",
            "tenure acquire x --owner $$; tenure release x",
        ] {
            let _ = script(&scene, shell, &format!("set -e; {how}")).expect(0, how);
            assert_eq!(scene.standing("x"), "free", "{shell}: `{how}`");
        }
        for how in [
            "(tenure release x; exit $?)",
            "sh -c 'tenure release x; exit $?'",
            "timeout 20 sh -c 'tenure release x; exit $?'",
        ] {
            let lines = format!("tenure acquire x; {how}");
            let refused = script(&scene, shell, &lines).expect(6, how);
            assert!(refused.stderr().contains("--request-id"), "{how}");
        }
        for how in [
            "id=req-1; tenure acquire x --request-id $id; (tenure release x --request-id $id; exit $?)",
            "tenure --profile resume acquire j; (tenure --profile resume release j; exit $?)",
        ] {
            let _ = script(&scene, shell, how).expect(0, how);
        }
    }
}

#[test]
fn a_script_that_would_wait_for_itself_without_end_is_told() {
    let scene = Scene::new();
    for again in [
        "tenure acquire x --wait forever",
        "tenure acquire x --wait forever --owner $$",
        "tenure run x --wait forever -- true",
        "tenure run --group x -- true",
        "tenure run -l a -l x --wait forever -- true",
        "sh -c 'tenure acquire x --wait forever; exit $?'",
    ] {
        let lines = format!("tenure acquire x; timeout 20 {again}");
        let refused = script(&scene, "sh", &lines).expect(81, again);
        let said = refused.stderr();
        assert!(said.contains("may wait for itself"), "{again}: {said}");
        assert!(said.contains("tenure release x --request-id"), "{said}");
        scene.until_free("x");
        assert_eq!(scene.standing("a"), "free", "nothing is left");
    }
    let lines = "tenure acquire x; tenure run x --wait forever --output json -- true";
    let document = script(&scene, "sh", &format!("{{ {lines}; }} | tail -n 1; exit 0"));
    let document = document.stdout();
    assert!(document.contains("ALREADY_HELD"), "{document}");
}

#[test]
fn a_bounded_wait_for_ones_own_hold_says_so_when_it_is_over() {
    let scene = Scene::new();
    let _ = acquired(&scene, &["x"]);
    for words in [
        &["acquire", "x", "--wait", "300ms"][..],
        &["acquire", "x", "-n"],
        &["run", "x", "--wait", "300ms", "--", "true"],
    ] {
        let refused = scene.run(words).expect(4, "its own hold");
        let said = refused.stderr();
        assert!(said.contains("may be waiting for itself"), "{said}");
        assert!(said.contains("tenure release x --request-id"), "{said}");
        let as_json = ["--output", "json"];
        let words = [&words[..2], &as_json, &words[2..]].concat();
        let document = scene.run(words).expect(4, "the same").json();
        assert_eq!(document["error"]["code"], "LOCK_HELD", "{document}");
        assert_eq!(document["error"]["context"]["mine"], true, "{document}");
    }
    let other = owner(&scene);
    let pid = other.pid().to_string();
    let _ = acquired(&scene, &["y", "--owner", &pid]);
    let document = scene.run(["acquire", "y", "-n", "--output", "json"]);
    let document = document.expect(4, "another one's").json();
    assert_eq!(document["error"]["context"]["mine"], false, "{document}");
}

/// What another part of the owner got meanwhile, it will also give back.
#[test]
fn a_hold_that_the_owner_got_after_the_wait_began_is_waited_for() {
    let scene = Scene::new();
    let holder = scene.hold("x", ["-q"]);
    let start = |id: &str| {
        let words = ["acquire", "x", "--wait", "forever", "--request-id", id];
        let mut command = scene.tenure(words);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        Started::new(&mut command)
    };
    let first = start("first");
    scene.until_queued("x", 1);
    let second = start("second");
    scene.until_queued("x", 2);
    let _ = holder.open().expect(0, "the holder");
    let _ = first.finish().expect(0, "its turn");
    let _ = scene
        .run(["release", "x", "--request-id", "first"])
        .expect(0, "released");
    let _ = second.finish().expect(0, "its turn");
}

/// A published format answers every caller that the lock is held.
#[test]
fn a_profile_says_of_ones_own_hold_that_it_is_held() {
    let scene = Scene::new();
    let words = ["--profile", "resume", "acquire", "j"];
    let _ = scene.run(words).expect(0, "acquired");
    let again = [&words[..], &["--output", "json"]].concat();
    let document = scene.run(again).expect(4, "held").json();
    assert_eq!(document["error"]["context"]["mine"], false, "{document}");
}

#[test]
fn a_heartbeat_never_creates_a_hold() {
    let scene = Scene::new();
    let _ = scene
        .run(["heartbeat", "x", "--request-id", "r"])
        .expect(80, "nothing there");
    assert!(!scene.locks().exists(), "nothing was created");
    let _ = scene
        .run(["run", "x", "--", "true"])
        .expect(0, "a lock that was used");
    let _ = scene
        .run(["heartbeat", "x", "--request-id", "r"])
        .expect(80, "it has no holder");
    let holder = scene.hold("x", ["-q"]);
    let answer = scene
        .run(["heartbeat", "x", "--request-id", "r"])
        .expect(6, "another one's");
    let pid = holder.pid().to_string();
    assert!(
        answer.stderr().contains(&pid),
        "who holds it: {}",
        answer.said()
    );
    let _ = holder.open().expect(0, "the holder");
}

/// Taking the lock away from under a run would let the next one in while it works.
#[test]
fn a_run_is_not_released_from_outside() {
    let scene = Scene::new();
    let holder = scene.hold("x", ["-q", "--request-id", "r"]);
    for words in [
        &["release", "x"][..],
        &["release", "x", "--request-id", "r"],
    ] {
        let _ = scene.run(words).expect(6, "not even under its own id");
        assert_eq!(scene.standing("x"), "held");
    }
    let _ = scene
        .run(["heartbeat", "x", "--request-id", "r"])
        .expect(0, "renewing is harmless");
    let _ = holder.open().expect(0, "the holder");
}

#[test]
fn acquire_waits_its_turn_like_everybody_else() {
    let scene = Scene::new();
    let holder = scene.hold("x", ["-q"]);
    let mut command = scene.tenure(["acquire", "x", "--owner", "none", "--wait", "forever"]);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let waiting = Started::new(&mut command);
    scene.until_queued("x", 1);
    let _ = holder.open().expect(0, "the holder");
    let answer = waiting.finish().expect(0, "its turn came");
    assert!(answer.stdout().contains("acquired x"), "{}", answer.said());
    assert_eq!(scene.standing("x"), "held", "and it lasts");
}

#[test]
fn a_lock_can_span_many_calls_of_a_script() {
    let scene = Scene::new();
    let script = scene.script(
        "session",
        "#!/bin/sh\nset -e\ntenure acquire x --why session >/dev/null\n\
         tenure heartbeat x >/dev/null\ntenure check x >/dev/null\n\
         echo $$ >session.pid\nwhile [ ! -e go ]; do sleep 0.01; done\n\
         tenure release x\n",
    );
    let mut command = scene.program(script.to_str().unwrap());
    command.current_dir(scene.root());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let session = Started::new(&mut command);
    let pid = read_number(&scene.path("session.pid"));
    assert_eq!(
        owner_of(&scene, "x"),
        Some(u64::from(pid)),
        "the script's shell owns it"
    );
    let _ = scene
        .run(["run", "-n", "x", "--", "true"])
        .expect(4, "held meanwhile");
    scene.write("go", "");
    let answer = session.finish().expect(0, "the script");
    assert!(
        answer.stdout().starts_with("released x after "),
        "{}",
        answer.said()
    );
    eventually("the lock to be free", || scene.standing("x") == "free");
}

/// A holder that shares the lock and asks for it alone gets no yes: that would promise what it does not have.
#[test]
fn asking_again_for_more_than_is_held_is_refused() {
    let scene = Scene::new();
    let own = ["x", "--owner", "none", "--request-id", "r"];
    for (first, then) in [
        (&["--shared"][..], &[][..]),
        (&["--shared"], &["--slots", "2"]),
        (&["--slots", "2"], &["--slots", "3"]),
    ] {
        let _ = acquired(&scene, &[&own[..], first].concat());
        let again = [&["acquire", "--output", "json"][..], &own, then].concat();
        let document = scene.run(&again).expect(81, "more").json();
        assert_eq!(document["error"]["code"], "ALREADY_HELD", "{document}");
        let same = acquired(&scene, &[&own[..], first].concat());
        assert_eq!(same["already_held"], true, "the hold is as it was: {same}");
        let _ = scene
            .run(["release", "x", "--request-id", "r"])
            .expect(0, "its own");
    }
    let _ = acquired(&scene, &own);
    let less = acquired(&scene, &[&own[..], &["--shared"]].concat());
    assert_eq!(
        less["already_held"], true,
        "a holder that has it alone has it"
    );
}
