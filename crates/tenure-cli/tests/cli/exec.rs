//! `run --exec`: the command takes the place of tenure, with the lock in its hands.

use crate::support::{
    Gate, Scene, Started, answer, eventually, is_alive, read_number, send, throughout,
};
use rustix::process::Signal;
use std::os::unix::process::ExitStatusExt;
use std::process::Stdio;
use std::time::Duration;

/// A command that became what was tenure, and waits.
fn hold(scene: &Scene, gate: &Gate, prelude: &str) -> Started {
    let mut command = scene.tenure(["run", "x", "--exec", "--", "sh", "-c"]);
    command
        .arg(gate.script(prelude))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    Started::new(&mut command)
}

#[test]
fn the_command_has_the_lock_and_the_place_of_tenure() {
    let scene = Scene::new();
    let gate = Gate::new(&scene, "x");
    let run = hold(
        &scene,
        &gate,
        "echo $TENURE_NAME; [ $TENURE_TOKEN -gt 0 ] || echo no token",
    );
    assert_eq!(gate.entered(), run.pid(), "the same process");
    let facts = scene.check("x");
    assert_eq!(facts["standing"], "held", "{facts}");
    assert_eq!(facts["holder"]["pid"], run.pid(), "{facts}");
    assert_ne!(
        facts["holder"]["orphaned"], true,
        "no process is missing: {facts}"
    );
    let _ = scene
        .run(["run", "-n", "x", "--", "true"])
        .expect(4, "no other run gets in");
    let waiting = scene
        .tenure(["run", "x", "--wait", "forever", "--", "echo", "ran"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    scene.until_queued("x", 1);
    gate.open();
    let answer = run.finish().expect(0, "it ends well");
    assert_eq!(
        (answer.stdout(), answer.stderr()),
        ("x\n".into(), String::new())
    );
    let next = waiting.wait_with_output().unwrap();
    assert!(next.status.success(), "its turn came");
    assert_eq!(next.stdout, b"ran\n");
    assert_eq!(
        String::from_utf8_lossy(&next.stderr)
            .matches("took over")
            .count(),
        0,
        "an ordinary end"
    );
}

#[test]
fn codes_and_signals_are_the_commands_own() {
    let scene = Scene::new();
    let _ = scene
        .run(["run", "x", "--exec", "--", "sh", "-c", "exit 9"])
        .expect(9, "its code");
    let died = scene.run(["run", "x", "--exec", "--", "sh", "-c", "kill -KILL $$"]);
    assert_eq!(died.status().signal(), Some(9));
    let answer = scene
        .run(["run", "-n", "x", "--", "echo", "ran"])
        .expect(0, "free after both");
    assert_eq!(answer.stderr(), "", "and no holder is said to have lost it");
    let line = "echo $0 && exit 5";
    let answer = scene
        .run(["run", "x", "--exec", "--shell", "--", line])
        .expect(5, "a shell");
    assert_eq!(answer.stdout(), "/bin/sh\n");
}

#[test]
fn a_takeover_is_not_recorded_where_there_was_none() {
    let scene = Scene::new();
    let audit = scene.path("audit");
    let audit = audit.to_str().unwrap();
    for _ in 0..2 {
        let _ = scene
            .run(["run", "x", "--exec", "--audit-dir", audit, "--", "true"])
            .expect(0, "it ran");
    }
    let _ = scene
        .run(["clean", "--audit-dir", audit])
        .expect(0, "the last one's claim is removed");
    let answer = scene
        .run(["audit", "x", "--audit-dir", audit])
        .expect(0, "the audit");
    assert_eq!(
        answer
            .stdout()
            .lines()
            .filter(|line| line.contains("  acquired  "))
            .count(),
        2,
        "{}",
        answer.said()
    );
    assert_eq!(
        answer.stdout().matches("lock_stolen").count(),
        0,
        "{}",
        answer.said()
    );
}

/// No process releases such a lock. That is its ordinary end: it is free, and not left behind.
#[test]
fn a_lock_whose_command_has_ended_is_simply_free() {
    let scene = Scene::new();
    let _ = scene
        .run(["run", "x", "--exec", "--", "true"])
        .expect(0, "it ran");
    let check = scene.run(["check", "x"]).expect(0, "it is free");
    assert_eq!(check.stdout(), "x is free\n");
    let facts = scene.check("x");
    assert_eq!(facts["standing"], "free", "{facts}");
    assert!(facts["holder"].is_null(), "without a holder: {facts}");
    let list = scene.run(["list", "--all"]).expect(0, "a list").stdout();
    let row: Vec<_> = list
        .lines()
        .nth(1)
        .expect("a line")
        .split_whitespace()
        .collect();
    assert_eq!(row, ["x", "free", "-", "-", "-", "-", "-"], "{list}");

    // A run that is killed while it supervises has left its lock behind, here as anywhere.
    let held = scene.hold("x", ["-q"]);
    held.signal(Signal::KILL);
    send(held.command, Signal::KILL);
    scene.until_free("x");
    assert_eq!(scene.standing("x"), "stale");
}

/// A slot that ended like that does not hide another one that was left behind.
#[test]
fn an_ordinary_end_does_not_hide_what_was_left_behind() {
    let scene = Scene::new();
    let slots = ["run", "x", "--slots", "2"];
    let gate = Gate::new(&scene, "exec");
    let mut command = scene.tenure(slots.iter().chain(&["--exec", "--", "sh", "-c"]));
    command.arg(gate.script("")).stdout(Stdio::null());
    let first = Started::new(&mut command);
    let _ = gate.entered();
    let second = scene.hold("x", ["--slots", "2", "-q"]);
    gate.open();
    let _ = first.finish().expect(0, "the first has ended");
    second.signal(Signal::KILL);
    send(second.command, Signal::KILL);
    scene.until_free("x");
    let facts = scene.check("x");
    assert_eq!(facts["standing"], "stale", "{facts}");
    assert_eq!(facts["holder"]["pid"], second.pid(), "{facts}");
}

/// What is ignored and blocked, as the kernel has it.
#[test]
fn signals_mean_what_they_meant_to_the_caller() {
    let scene = Scene::new();
    let look = "grep -E \"^Sig(Blk|Ign|Cgt)\" /proc/self/status";
    for ignored in [
        "",
        "trap '' PIPE",
        "trap '' CHLD",
        "trap '' HUP INT TERM QUIT TSTP ALRM PIPE CHLD",
    ] {
        let line = format!("{ignored}\n{look}\necho; exec tenure run x --exec -- {look}");
        let said = scene.shell(&line).expect(0, ignored).stdout();
        let (without, with) = said.split_once("\n\n").unwrap();
        assert_eq!(without.trim(), with.trim(), "{ignored:?}");
    }
}

#[test]
fn signals_mean_the_same_after_a_wait() {
    let scene = Scene::new();
    let holder = scene.hold("x", ["-q"]);
    let look = "grep -E \"^Sig(Blk|Ign|Cgt)\" /proc/self/status";
    let line = format!(
        "trap '' ALRM PIPE; {look}; echo; exec tenure run x -q --wait forever --exec -- {look}"
    );
    let mut command = scene.program("sh");
    command
        .args(["-c", &line])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let waiting = Started::new(&mut command);
    scene.until_queued("x", 1);
    let _ = holder.open().expect(0, "the holder");
    let said = waiting.finish().expect(0, "its turn came").stdout();
    let (without, with) = said.split_once("\n\n").unwrap();
    assert_eq!(without.trim(), with.trim());
}

#[test]
fn the_command_inherits_the_liveness_lock_and_no_other_descriptor_of_ours() {
    let scene = Scene::new();
    let look = "for fd in /proc/$$/fd/*; do readlink \"$fd\"; done";
    let without = scene.shell(look).stdout();
    let with = scene
        .run(["run", "x", "--exec", "--", "sh", "-c", look])
        .stdout();
    let lock = scene.locks().join("x.tenure");
    let ours = with.lines().filter(|target| lock.to_str() == Some(target));
    assert_eq!(ours.count(), 1, "the liveness lock: {with}");
    assert_eq!(
        with.lines().count(),
        without.lines().count() + 1,
        "{with}instead of\n{without}"
    );
}

#[test]
fn a_signal_is_the_commands_own_affair() {
    let scene = Scene::new();
    let gate = Gate::new(&scene, "x");
    let run = hold(&scene, &gate, "trap 'exit 33' TERM");
    let pid = gate.entered();
    send(pid, Signal::TERM);
    let _ = run.finish().expect(33, "it handled it");
    scene.until_free("x");
}

#[test]
fn a_signal_while_waiting_leaves_the_line_without_running_anything() {
    let scene = Scene::new();
    let holder = scene.hold("x", ["-q"]);
    let mut command = scene.tenure([
        "run", "x", "--wait", "forever", "--exec", "--", "echo", "ran",
    ]);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let waiting = Started::new(&mut command);
    scene.until_queued("x", 1);
    waiting.signal(Signal::TERM);
    let answer = waiting.finish().expect(143, "ended by SIGTERM");
    assert_eq!(answer.stdout(), "", "nothing ran");
    scene.until_queued("x", 0);
    let _ = holder.open().expect(0, "the holder");
}

/// As with flock(1): every process that has inherited the lock keeps it.
#[test]
fn what_the_command_leaves_behind_keeps_the_lock() {
    let scene = Scene::new();
    let pid = scene.path("child");
    let line = format!("sleep 600 >/dev/null 2>&1 & echo $! >{}", pid.display());
    let _ = scene
        .run(["run", "x", "--exec", "--", "sh", "-c", &line])
        .expect(0, "it ended");
    let child = read_number(&pid);
    throughout(Duration::from_millis(100), "held", || {
        scene.standing("x") == "held"
    });
    send(child, Signal::KILL);
    eventually("it to end", || !is_alive(child));
    scene.until_free("x");
}

#[test]
fn what_cannot_be_run_leaves_the_lock_free() {
    let scene = Scene::new();
    let _ = scene
        .run(["run", "x", "--exec", "--", "no-such-program"])
        .expect(127, "not there");
    assert!(!scene.locks().exists(), "nothing was touched");
    let broken = scene.script("broken", "#!/no/such/interpreter\n");
    let answer = scene.run(["run", "x", "--exec", "--", broken.to_str().unwrap()]);
    let answer = answer.expect(127, "the system does not start it");
    assert!(answer.stderr().contains("broken"), "{}", answer.said());
    let answer = scene.run(["check", "x"]).expect(0, "free");
    assert_eq!(answer.stdout(), "x is free\n", "and it is not left behind");
}

#[test]
fn a_lock_that_needs_somebody_who_stays_is_refused() {
    for (profile, name) in [
        ("session", Some("7")),
        ("fleet", Some("app-prod")),
        ("sprint", None),
        ("resume", Some("job")),
    ] {
        let scene = Scene::new();
        std::fs::create_dir_all(scene.locks()).unwrap();
        let mut command = scene.tenure(["run", "--exec", "--profile", profile]);
        command.args(name).args(["--", "echo", "ran"]);
        let answer = answer(&mut command).expect(2, profile);
        assert_ne!(answer.stdout(), "ran\n", "{}", answer.said());
        let said = answer.said();
        assert!(
            said.contains("no supervisor stays behind with --exec"),
            "{profile}: {said}"
        );
        let entries = std::fs::read_dir(scene.locks()).unwrap().count();
        assert_eq!(entries, 0, "{profile}: nothing was touched");
    }
}

/// A caller that asks for the lock gets no answer from a command that knows nothing of it.
#[test]
fn nobody_can_ask_it_to_stop() {
    let scene = Scene::new();
    let gate = Gate::new(&scene, "x");
    let run = hold(&scene, &gate, "");
    let _ = gate.entered();
    let asking =
        answer(&mut scene.tenure(["run", "x", "-q", "--force", "--wait", "300ms", "--", "true"]));
    let _ = asking.expect(4, "refused when its wait is over");
    gate.open();
    let _ = run.finish().expect(0, "it was not disturbed");
}

/// What interrupts the sleep of a waiter that was stopped may not outlive the exec, and end the command.
#[test]
fn a_waiter_that_was_stopped_leaves_no_alarm_to_its_command() {
    let scene = Scene::new();
    let acquire = ["acquire", "x", "--owner", "none", "--request-id", "r"];
    let _ = scene.run(acquire).expect(0, "a detached hold");
    let words = [
        "-q", "run", "x", "--exec", "--wait", "20s", "--", "sleep", "1.5",
    ];
    let run = Started::new(
        scene
            .tenure(words)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped()),
    );
    scene.until_queued("x", 1);
    for signal in [Signal::TSTP, Signal::CONT] {
        send(run.pid(), signal);
    }
    let _ = scene
        .run(["release", "x", "--request-id", "r"])
        .expect(0, "it is free");
    let _ = run.finish().expect(0, "the command ends by itself");
}
