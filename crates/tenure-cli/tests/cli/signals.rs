//! Signals to tenure while it waits and while its command runs, and the death of the supervisor.

use crate::support::{
    Gate, Scene, Started, answer, eventually, has_stopped, is_alive, says_overlap, state,
    throughout, timed,
};
use rustix::process::Signal;
use std::fs;
use std::process::Stdio;
use std::time::Duration;

const ENDING: [(Signal, i32, &str); 3] = [
    (Signal::TERM, 143, "TERM"),
    (Signal::INT, 130, "INT"),
    (Signal::HUP, 129, "HUP"),
];

/// The command is asked and takes its time; the lock is held until it has ended.
#[test]
fn a_signal_reaches_the_command_and_the_lock_waits_for_its_end() {
    for (signal, code, name) in ENDING {
        let scene = Scene::new();
        let gate = Gate::new(&scene, "x");
        let said = scene.path("said");
        let prelude = format!(
            "trap 'echo {name} >{said}.new; mv {said}.new {said}; sleep 0.3; echo over >>{said}; exit 5' {name}",
            said = said.display()
        );
        let holder = scene.hold_with("x", ["-q"], &gate, &prelude);
        let command = holder.command;
        holder.signal(signal);
        eventually("the command to get the signal", || said.exists());
        assert!(is_alive(command), "it takes its time");
        assert_eq!(scene.standing("x"), "held", "and the lock waits for it");
        let _ = holder
            .finish()
            .expect(code, "our own code wins over the command's");
        let text = fs::read_to_string(&said).unwrap();
        assert_eq!(
            text,
            format!("{name}\nover\n"),
            "the command finished what it had to do"
        );
        assert!(!is_alive(command), "the command is gone");
        assert!(scene.is_free("x"), "the lock is free");
    }
}

#[test]
fn a_command_that_ignores_the_signal_is_killed_after_the_grace() {
    let scene = Scene::new();
    let gate = Gate::new(&scene, "x");
    let holder = scene.hold_with("x", ["-q", "--grace", "500ms"], &gate, "trap '' TERM");
    let command = holder.command;
    let ((), took) = timed(|| {
        holder.signal(Signal::TERM);
        let _ = holder.finish().expect(143, "ended by SIGTERM");
    });
    assert!(
        took >= Duration::from_millis(500),
        "it had its grace: {took:?}"
    );
    assert!(took < Duration::from_secs(10), "and no more: {took:?}");
    assert!(!is_alive(command), "the command is gone");
    assert!(scene.is_free("x"), "the lock is free");
}

#[test]
fn a_second_sigterm_changes_nothing() {
    let scene = Scene::new();
    let gate = Gate::new(&scene, "x");
    let said = scene.path("said");
    let prelude = format!("trap 'echo term >>{}' TERM", said.display());
    let holder = scene.hold_with("x", ["-q", "--grace", "30s"], &gate, &prelude);
    holder.signal(Signal::TERM);
    eventually("the command to get it", || said.exists());
    for _ in 0..3 {
        holder.signal(Signal::TERM);
    }
    let supervisor = holder.pid();
    throughout(Duration::from_millis(200), "tenure goes on waiting", || {
        is_alive(supervisor)
    });
    let _ = holder.open().expect(143, "ended by SIGTERM");
    let text = fs::read_to_string(said).unwrap();
    assert_eq!(text, "term\n", "the command was asked once");
}

/// The lock stays held: the kernel frees it when the work is gone.
#[test]
fn a_second_sigint_ends_tenure_at_once_and_releases_nothing() {
    let scene = Scene::new();
    let gate = Gate::new(&scene, "x");
    let said = scene.path("said");
    let prelude = format!("trap 'echo int >>{}' INT", said.display());
    let mut holder = scene.hold_with("x", ["-q", "--grace", "30s"], &gate, &prelude);
    let command = holder.command;
    holder.signal(Signal::INT);
    eventually("the command to get it", || said.exists());
    holder.signal(Signal::INT);
    assert_eq!(holder.started.end().code(), Some(130), "at once");
    assert!(is_alive(command), "the command goes on");
    let facts = scene.check("x");
    assert_eq!(facts["standing"], "held", "and so does the hold: {facts}");
    assert_eq!(
        facts["holder"]["orphaned"], true,
        "without a supervisor: {facts}"
    );
    let _ = scene
        .run(["run", "-n", "x", "--", "true"])
        .expect(4, "nobody gets in");
    gate.open();
    scene.until_free("x");
}

#[test]
fn the_first_signal_is_the_one_that_is_told() {
    let scene = Scene::new();
    let gate = Gate::new(&scene, "x");
    let said = scene.path("said");
    let prelude = format!("trap 'echo term >{}' TERM; trap '' INT HUP", said.display());
    let flags = ["--output", "json", "--grace", "30s"];
    let holder = scene.hold_with("x", flags, &gate, &prelude);
    holder.signal(Signal::TERM);
    eventually("the command to get it", || said.exists());
    holder.signal(Signal::INT);
    holder.signal(Signal::HUP);
    let supervisor = holder.pid();
    throughout(Duration::from_millis(100), "tenure goes on waiting", || {
        is_alive(supervisor)
    });
    let answer = holder.open().expect(143, "the first one counts");
    let document = answer.json();
    assert_eq!(
        document["error"]["signal"], "SIGTERM",
        "also in the document: {document}"
    );
}

#[test]
fn a_signal_while_waiting_leaves_the_line() {
    for (signal, code, name) in ENDING {
        let scene = Scene::new();
        let holder = scene.hold("x", ["-q"]);
        for verb in ["run", "acquire", "wait"] {
            let mut command = scene.tenure([verb, "x", "--wait", "forever"]);
            if verb == "run" {
                command.args(["--", "echo", "ran"]);
            }
            command.stdout(Stdio::piped()).stderr(Stdio::piped());
            let mut waiting = Started::new(&mut command);
            if verb == "wait" {
                // It stands in no queue; its line on stderr says that it waits.
                use std::io::Read;
                let mut first = [0; 8];
                waiting.stderr().read_exact(&mut first).expect("a line");
            } else {
                scene.until_queued("x", 1);
            }
            waiting.signal(signal);
            let answer = waiting
                .finish()
                .expect(code, &format!("{verb} and SIG{name}"));
            assert_eq!(answer.stdout(), "", "nothing was done");
            scene.until_queued("x", 0);
        }
        let _ = holder.open().expect(0, "the holder was not disturbed");
    }
}

#[test]
fn other_signals_are_passed_on_and_end_nothing() {
    for (signal, name) in [
        (Signal::USR1, "USR1"),
        (Signal::USR2, "USR2"),
        (Signal::WINCH, "WINCH"),
    ] {
        let scene = Scene::new();
        let gate = Gate::new(&scene, "x");
        let said = scene.path("said");
        let prelude = format!("trap 'echo got >>{}' {name}", said.display());
        let holder = scene.hold_with("x", ["-q"], &gate, &prelude);
        for times in 1..=2 {
            holder.signal(signal);
            eventually(&format!("SIG{name} to arrive"), || {
                fs::read_to_string(&said).is_ok_and(|text| text.lines().count() == times)
            });
        }
        let _ = holder.open().expect(0, "the command ended by itself");
    }
}

#[test]
fn a_stop_and_a_continue_reach_the_command() {
    let scene = Scene::new();
    let holder = scene.hold("x", ["-q"]);
    let command = holder.command;
    holder.signal(Signal::TSTP);
    eventually("the command to stop", || has_stopped(command));
    holder.signal(Signal::CONT);
    eventually("the command to go on", || !has_stopped(command));
    let _ = holder.open().expect(0, "it ends well");
    assert!(scene.is_free("x"), "the lock is free");
}

/// A stopped command cannot hear that it is asked to end.
#[test]
fn a_stopped_command_is_asked_all_the_same() {
    let scene = Scene::new();
    let gate = Gate::new(&scene, "x");
    let said = scene.path("said");
    let prelude = format!("trap 'echo term >{}; exit 0' TERM", said.display());
    let holder = scene.hold_with("x", ["-q", "--grace", "20s"], &gate, &prelude);
    crate::support::send(holder.command, Signal::STOP);
    eventually("the command to stop", || state(holder.command) == Some('T'));
    holder.signal(Signal::TERM);
    // Whoever manages jobs continues what it ends.
    holder.signal(Signal::CONT);
    let _ = holder.finish().expect(143, "ended by SIGTERM");
    assert_eq!(
        fs::read_to_string(said).unwrap(),
        "term\n",
        "it could answer"
    );
    assert!(scene.is_free("x"), "the lock is free");
}

/// Children of the command that outlive it are ended with it, before anybody else gets in.
#[test]
fn the_whole_group_is_gone_before_the_next_one_starts() {
    let scene = Scene::new();
    let gate = Gate::new(&scene, "x");
    let pid_file = scene.path("grandchild.pid");
    // It ignores SIGTERM, and its parent does not wait for it.
    let prelude = format!(
        "(trap '' TERM; sh -c 'echo $$ >\"$0.new\"; mv \"$0.new\" \"$0\"; exec sleep 600' {}) &",
        pid_file.display()
    );
    let holder = scene.hold_with("x", ["-q", "--grace", "700ms"], &gate, &prelude);
    let grandchild = crate::support::read_number(&pid_file);
    let line = format!("{}; echo ran", says_overlap(grandchild));
    let mut command = scene.tenure([
        "run", "x", "-q", "--wait", "forever", "--", "sh", "-c", &line,
    ]);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let next = Started::new(&mut command);
    scene.until_queued("x", 1);
    holder.signal(Signal::TERM);
    let command = holder.command;
    eventually("the command itself to end", || !is_alive(command));
    assert!(is_alive(grandchild), "its child has not heard it");
    assert_eq!(scene.standing("x"), "held", "so the lock is held");
    let _ = holder.finish().expect(143, "ended by SIGTERM");
    let answer = next.finish().expect(0, "its turn came");
    assert_eq!(answer.stdout(), "ran\n", "with nobody else at work");
    assert!(!is_alive(grandchild), "all of it is gone");
}

#[test]
fn the_supervisors_death_leaves_the_lock_to_its_command() {
    let scene = Scene::new();
    let holder = scene.hold("x", ["-q"]);
    let (command, gate) = (holder.command, holder.gate.clone());
    scene.until_named("x");
    holder.signal(Signal::KILL);
    eventually("the supervisor to be seen dead", || {
        scene.check("x")["holder"]["orphaned"] == true
    });
    let answer = scene.run(["check", "x"]).expect(4, "held");
    assert!(
        answer.stdout().contains(&command.to_string()),
        "whoever looks is told which process goes on: {}",
        answer.said()
    );
    let _ = scene
        .run(["run", "-n", "x", "--", "echo", "ran"])
        .expect(4, "nobody gets in");
    let mut next = scene.tenure(["run", "x", "--wait", "forever", "--", "echo", "ran"]);
    next.stdout(Stdio::piped()).stderr(Stdio::piped());
    let next = Started::new(&mut next);
    scene.until_queued("x", 1);
    gate.open();
    let answer = next.finish().expect(0, "the end of the command frees it");
    assert!(
        answer.stderr().contains("took over"),
        "and is told: {}",
        answer.said()
    );
    drop(holder);
}

#[test]
fn both_dead_means_free_at_once() {
    let scene = Scene::new();
    let holder = scene.hold("x", ["-q"]);
    holder.signal(Signal::KILL);
    crate::support::send(holder.command, Signal::KILL);
    scene.until_free("x");
    let answer = scene
        .run(["run", "-n", "x", "--", "echo", "ran"])
        .expect(0, "free");
    assert!(
        answer.stderr().contains(&holder.pid().to_string()),
        "{}",
        answer.said()
    );
}

/// Under nohup, and for a job that a shell put into the background, signals stay ignored.
#[test]
fn what_was_ignored_stays_ignored() {
    for (signal, name) in [
        (Signal::HUP, "HUP"),
        (Signal::INT, "INT"),
        (Signal::QUIT, "QUIT"),
    ] {
        let scene = Scene::new();
        let gate = Gate::new(&scene, "x");
        let script = scene.script("work", &format!("#!/bin/sh\n{}\n", gate.script("")));
        let line = format!(
            "trap '' {name}; exec tenure run x -q -- {}",
            script.display()
        );
        let mut command = scene.program("sh");
        command
            .args(["-c", &line])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let run = Started::new(&mut command);
        let worker = gate.entered();
        run.signal(signal);
        crate::support::send(worker, signal);
        let supervisor = run.pid();
        throughout(Duration::from_millis(200), "both go on", || {
            is_alive(supervisor) && is_alive(worker)
        });
        gate.open();
        let _ = run.finish().expect(0, "it ends well");
    }
}

#[test]
fn nohup_works_as_ever() {
    let scene = Scene::new();
    let gate = Gate::new(&scene, "x");
    let script = scene.script("work", &format!("#!/bin/sh\n{}\n", gate.script("")));
    let mut command = scene.program("nohup");
    command
        .args(["tenure", "run", "x", "-q", "--"])
        .arg(script)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let run = Started::new(&mut command);
    let _ = gate.entered();
    run.signal(Signal::HUP);
    gate.open();
    let _ = run.finish().expect(0, "the hang-up was ignored");
}

/// An owner of a session that is asked to end while it waits for the guard or answers must not
/// end halfway: either it holds, or it does not.
#[test]
fn a_signal_at_any_moment_leaves_no_half_taken_lock() {
    let scene = Scene::new();
    for step in 0..60_u32 {
        let mut command = scene.tenure(["run", "x", "-q", "--", "true"]);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let run = Started::new(&mut command);
        // Spread over the few milliseconds that a run takes.
        std::thread::sleep(Duration::from_micros(u64::from(step) * 100));
        run.signal(Signal::TERM);
        let _ = run.finish();
        let answer = scene.run(["check", "x"]).expect(0, "free");
        assert_eq!(
            answer.stdout(),
            "x is free\n",
            "after a signal at step {step}"
        );
    }
}

#[test]
fn a_signal_between_two_runs_of_a_script_is_not_lost() {
    let scene = Scene::new();
    let script = "trap 'exit 9' TERM; tenure run x -- kill -TERM $$; tenure run x -- echo ran";
    let answer = answer(scene.program("bash").args(["-c", script])).expect(9, "the script's trap");
    assert_eq!(answer.stdout(), "", "what stands behind was not run");
}
