//! Signals to tenure while it waits and while its command runs, those that its caller has blocked, and the
//! death of the supervisor.

use crate::support::{
    Gate, Scene, Started, answer, children, eventually, has_stopped, hears, is_alive, read_lines,
    read_number, says_overlap, throughout, timed,
};
use rustix::process::Signal;
use std::fs;
use std::os::unix::process::ExitStatusExt;
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
        let (said, go) = (scene.path("said"), scene.path("go"));
        let prelude = format!(
            "trap 'echo {name} >>{said}; while [ ! -e {go} ]; do sleep 0.02; done; echo over >>{said}; exit 5' {name}",
            said = said.display(),
            go = go.display()
        );
        let holder = scene.hold_with("x", ["-q"], &gate, &prelude);
        let command = holder.command;
        holder.signal(signal);
        let _ = read_lines(&said);
        assert!(is_alive(command), "it takes its time");
        assert_eq!(scene.standing("x"), "held", "and the lock waits for it");
        fs::write(go, "").unwrap();
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
    let _ = read_lines(&said);
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
    let _ = read_lines(&said);
    // Within a second both of one process would be one.
    std::thread::sleep(Duration::from_millis(1_100));
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
        .expect(4, "no other run gets in");
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
    let _ = read_lines(&said);
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
                // A `wait` stands in no queue; its line on stderr says that it waits.
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
        let count = || fs::read_to_string(&said).map_or(0, |text| text.lines().count());
        eventually("the supervisor to hear", || hears(holder.pid(), signal));
        for _ in 0..2 {
            // The whole group gets it, and a shell's child may still have its trap for an instant.
            let before = count();
            holder.signal(signal);
            eventually(&format!("SIG{name} to arrive"), || count() > before);
        }
        let _ = holder.open().expect(0, "the command ended by itself");
    }
}

/// What tenure does not need itself is for the command: a watchdog's SIGABRT, the STOPSIGNAL of an image, an alarm. Without
/// a handler in tenure, most of them would end it, and the command would go on with the lock.
#[test]
#[cfg(target_os = "linux")]
fn whatever_tenure_does_not_need_is_for_the_command_table() {
    let rows = [
        "ABRT", "ALRM", "VTALRM", "PROF", "XCPU", "URG", "IO", "PWR", "STKFLT", "RTMIN+3", "RTMAX",
    ];
    for name in rows {
        let scene = Scene::new();
        let number = answer(
            scene
                .program("bash")
                .args(["-c", &format!("kill -l {name}")]),
        );
        let number = number.stdout().trim().to_owned();
        let send = |pid: u32| {
            let line = format!("kill -{number} {pid}");
            answer(scene.program("bash").args(["-c", &line])).expect(0, name);
        };
        let said = scene.path("said");
        let program = format!(
            "import os, signal, sys, time
def heard(number, frame):
    open({said:?}, 'w').write(str(number))
signal.signal({number}, heard)
open({begun:?}, 'w').write(str(os.getppid()))
while not os.path.exists({said:?}): time.sleep(0.01)
sys.exit(7)",
            said = said.display().to_string(),
            begun = scene.path("begun").display().to_string(),
        );
        let run = Started::new(&mut scene.tenure(["run", "x", "--", "python3", "-c", &program]));
        read_number(&scene.path("begun"));
        let hears_all = || hears(run.pid(), Signal::USR1);
        eventually("the supervisor to hear", hears_all);
        send(run.pid());
        run.finish()
            .expect(7, &format!("SIG{name}: the command has heard it"));
        assert_eq!(
            fs::read_to_string(&said).expect("a file"),
            number,
            "SIG{name}"
        );
        // A command that does not expect the signal ends by it, and the lock is free.
        if name != "URG" {
            let gate = Gate::new(&scene, "plain");
            let run = scene.hold_with("x", ["-q"], &gate, "");
            eventually("the supervisor to hear", || hears(run.pid(), Signal::USR1));
            send(run.pid());
            let number: i32 = number.parse().expect("a number");
            let answer = run.finish();
            let told = answer.status().signal() == Some(number);
            assert!(told, "SIG{name} ends the command: {}", answer.said());
        }
        scene.until_free("x");
    }
}

/// A program that has set an alarm and then becomes `tenure run` has set it for the command.
#[test]
#[cfg(target_os = "linux")]
fn an_alarm_from_before_reaches_the_command() {
    let scene = Scene::new();
    let program = "import os, signal
signal.setitimer(signal.ITIMER_REAL, 0.7)
os.execvp('tenure', ['tenure', 'run', '-q', 'x', '--', 'sleep', '60'])";
    let alarmed = answer(scene.program("python3").args(["-c", program]));
    assert_eq!(alarmed.status().signal(), Some(14), "{}", alarmed.said());
    assert!(scene.is_free("x"), "the command has ended by it");
}

/// Where a process may have no signal in a queue, waits end as ever.
#[test]
#[cfg(target_os = "linux")]
fn a_wait_needs_no_queue_of_signals() {
    let scene = Scene::new();
    let holder = scene.hold("x", ["-q"]);
    let waits = |wait: &str| {
        let mut limited = scene.program("prlimit");
        limited.args([
            "--sigpending=0",
            "tenure",
            "run",
            "x",
            "--wait",
            wait,
            "--",
            "true",
        ]);
        limited
    };
    let (answer, took) = timed(|| answer(&mut waits("0.5s")));
    answer.expect(4, "it is held");
    assert!(took >= Duration::from_millis(500), "{took:?}");
    let waiter = Started::new(&mut waits("60s"));
    scene.until_queued("x", 1);
    let _ = holder.open().expect(0, "the holder");
    waiter.finish().expect(0, "its turn");
    let holder = scene.hold("x", ["-q"]);
    let waiter = Started::new(&mut waits("60s"));
    scene.until_queued("x", 1);
    waiter.signal(Signal::TERM);
    waiter.finish().expect(143, "it hears");
    let _ = holder.open().expect(0, "the holder");
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
    eventually("the command to stop", || has_stopped(holder.command));
    holder.signal(Signal::TERM);
    // A job manager continues the processes that it ends.
    holder.signal(Signal::CONT);
    let _ = holder.finish().expect(143, "ended by SIGTERM");
    assert_eq!(
        fs::read_to_string(said).unwrap(),
        "term\n",
        "it could answer"
    );
    assert!(scene.is_free("x"), "the lock is free");
}

/// Children of the command that outlive it are ended with it, before another run gets in.
#[test]
fn the_whole_group_is_gone_before_the_next_one_starts() {
    let scene = Scene::new();
    let gate = Gate::new(&scene, "x");
    let pid_file = scene.path("grandchild.pid");
    // The grandchild ignores SIGTERM, and its parent does not wait for it.
    let prelude = format!(
        "(trap '' TERM; sh -c 'echo $$ >\"$0.new\"; mv \"$0.new\" \"$0\"; exec sleep 600' {}) &",
        pid_file.display()
    );
    let holder = scene.hold_with("x", ["-q", "--grace", "700ms"], &gate, &prelude);
    let grandchild = read_number(&pid_file);
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
    let standing = scene.standing("x");
    assert!(
        standing == "held" || !is_alive(grandchild),
        "its child has not heard it, so the lock is held: {standing}"
    );
    let _ = holder.finish().expect(143, "ended by SIGTERM");
    let answer = next.finish().expect(0, "its turn came");
    assert_eq!(answer.stdout(), "ran\n", "with no other process at work");
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
        "a caller that looks is told which process goes on: {}",
        answer.said()
    );
    let _ = scene
        .run(["run", "-n", "x", "--", "echo", "ran"])
        .expect(4, "no other run gets in");
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
        let said = answer.stdout();
        assert!(
            said.starts_with("x is free"),
            "after a signal at step {step}: {said}"
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

/// Starts `tenure` with these signals blocked (`env` says them by their names, with commas).
fn with_blocked(scene: &Scene, signals: &str, words: &[&str]) -> Started {
    let mut command = scene.program("env");
    command
        .arg(format!("--block-signal={signals}"))
        .arg("tenure")
        .args(words)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    Started::new(&mut command)
}

const ALL_THAT_IS_HEARD: &str = "INT,TERM,HUP,QUIT,TSTP,CHLD,ALRM,IO,URG,USR1,USR2,WINCH,CONT";

#[test]
fn the_end_of_a_command_is_noticed_whatever_is_blocked() {
    let scene = Scene::new();
    for signals in ["CHLD", ALL_THAT_IS_HEARD] {
        let words = ["run", "x", "--", "sleep", "0.3"];
        let run = || with_blocked(&scene, signals, &words).finish();
        let (_, took) = timed(|| run().expect(0, signals));
        assert!(took < Duration::from_secs(4), "{signals}: {took:?}");
    }
}

#[test]
fn a_signal_is_heard_though_the_caller_has_blocked_it() {
    for (signal, code, name) in ENDING {
        for signals in [name, ALL_THAT_IS_HEARD] {
            let scene = Scene::new();
            let gate = Gate::new(&scene, "x");
            // The command has it blocked as well, so only SIGKILL ends it.
            let line = gate.script("");
            let words = ["run", "x", "-q", "--grace", "0.2s", "--", "sh", "-c", &line];
            let run = with_blocked(&scene, signals, &words);
            let worker = gate.entered();
            run.signal(signal);
            let (_, took) = timed(|| run.finish().expect(code, signals));
            assert!(took < Duration::from_secs(4), "{signals}: {took:?}");
            assert!(!is_alive(worker), "{signals}: it has ended before that");
        }
    }
}

#[test]
fn a_waiter_is_called_and_interrupted_though_that_is_blocked() {
    let scene = Scene::new();
    let holder = scene.hold("g", ["-q"]);
    let words = ["run", "--group", "g", "-q", "--", "true"];
    let waiter = with_blocked(&scene, ALL_THAT_IS_HEARD, &words);
    scene.until_queued("g", 1);
    let newer = with_blocked(&scene, ALL_THAT_IS_HEARD, &words);
    let (_, took) = timed(|| waiter.finish().expect(79, "the newer one displaces it"));
    assert!(took < Duration::from_secs(2), "called after {took:?}");
    newer.signal(Signal::TERM);
    let (_, took) = timed(|| newer.finish().expect(143, "it was asked to end"));
    assert!(took < Duration::from_secs(2), "interrupted after {took:?}");
    let words = ["run", "g", "-q", "--wait", "0.3s", "--", "true"];
    let bounded = || with_blocked(&scene, ALL_THAT_IS_HEARD, &words).finish();
    let (_, took) = timed(|| bounded().expect(4, "its patience is over"));
    assert!(took < Duration::from_secs(2), "patient for {took:?}");
    let _ = holder.open().expect(0, "the holder");
}

#[test]
fn whatever_tenure_starts_gets_the_mask_that_its_caller_has_given() {
    // No shell of the system: some clear the mask.
    let look = "exec grep SigBlk /proc/self/status";
    for signals in [
        "TERM",
        "USR1,CHLD,ALRM,WINCH",
        ALL_THAT_IS_HEARD,
        "PIPE,TTOU",
    ] {
        let scene = Scene::new();
        let mut command = scene.program("env");
        command.arg(format!("--block-signal={signals}"));
        let plain = answer(command.args(look.split(' ').skip(1))).stdout();
        assert!(plain.starts_with("SigBlk"), "{plain}");
        let words = |more: &[&'static str]| [&["run", "x", "-q"], more].concat();
        for (words, code) in [
            (words(&["--", "grep", "SigBlk", "/proc/self/status"]), 0),
            (
                words(&["--exec", "--", "grep", "SigBlk", "/proc/self/status"]),
                0,
            ),
            (words(&["--rollback", look, "--", "false"]), 1),
            (
                ["flock", "file", "grep", "SigBlk", "/proc/self/status"].into(),
                0,
            ),
            (
                [
                    "flock",
                    "-w",
                    "9",
                    "file",
                    "grep",
                    "SigBlk",
                    "/proc/self/status",
                ]
                .into(),
                0,
            ),
        ] {
            let mut command = scene.program("env");
            command
                .arg(format!("--block-signal={signals}"))
                .arg("tenure")
                .args(&words)
                .current_dir(scene.root());
            let answer = answer(&mut command).expect(code, signals);
            assert_eq!(answer.stdout(), plain, "{signals} blocked: {words:?}");
        }
    }
}

#[test]
fn a_blocked_signal_is_passed_on_and_waits_for_the_command_to_let_it_through() {
    let scene = Scene::new();
    // No shell: some clear the mask.
    let words = ["run", "x", "-q", "--", "sleep", "1000"];
    let run = with_blocked(&scene, "USR1", &words);
    scene.until_named("x");
    let [command] = children(run.pid())[..] else {
        panic!("one command");
    };
    eventually("the supervisor to hear", || hears(run.pid(), Signal::USR1));
    run.signal(Signal::USR1);
    eventually("the command's own pending signal", || {
        let status = fs::read_to_string(format!("/proc/{command}/status")).unwrap_or_default();
        let pending = status.lines().find_map(|line| line.strip_prefix("ShdPnd:"));
        pending.is_some_and(|pending| pending.trim().ends_with("200"))
    });
    run.signal(Signal::TERM);
    let _ = run.finish().expect(143, "it is ended");
}

/// A limit on the size of files makes each write beyond it a SIGXFSZ, which would end tenure.
#[test]
fn a_limit_on_the_size_of_files_neither_ends_tenure_nor_loses_an_answer() {
    let scene = Scene::new();
    let bash = |line: String| answer(scene.program("bash").args(["-c", &line]));
    for kibibytes in [0, 1, 2, 3, 8] {
        let (name, audit) = (
            format!("x-{kibibytes}"),
            scene.path(&format!("a-{kibibytes}")),
        );
        let line = format!(
            "ulimit -f {kibibytes}; tenure run {name} --audit-dir {} -- sh -c 'echo ran; exit 7' | cat; \
             exit ${{PIPESTATUS[0]}}",
            audit.display()
        );
        for round in 0..3 {
            let answer = bash(line.clone());
            let (code, ran) = (answer.code(), answer.stdout() == "ran\n");
            assert!(
                (code, ran) == (7, true) || (code, ran) == (12, false),
                "{kibibytes} KiB, round {round}: {}",
                answer.said()
            );
            assert!(scene.is_free(&name), "{kibibytes} KiB: it is free at once");
            if code == 12 {
                let said = answer.stderr();
                assert!(said.contains("File too large"), "{kibibytes} KiB: {said}");
            }
        }
        // What is answered is what the next caller finds. Whoever got a hold can give it back.
        let line = format!(
            "ulimit -f {kibibytes}; tenure acquire d-{name} --owner none --request-id r-{name} | cat; \
             exit ${{PIPESTATUS[0]}}"
        );
        let held = match bash(line).code() {
            0 => "held",
            12 => "free",
            code => panic!("{kibibytes} KiB: {code}"),
        };
        assert_eq!(
            scene.standing(&format!("d-{name}")),
            held,
            "{kibibytes} KiB"
        );
        if held == "held" {
            let line = format!(
                "ulimit -f {kibibytes}; tenure heartbeat d-{name} --request-id r-{name} && \
                 tenure release d-{name} --request-id r-{name}"
            );
            let _ = bash(line).expect(0, "it is renewed and released");
            assert!(scene.is_free(&format!("d-{name}")), "{kibibytes} KiB");
        }
    }
}

/// The limit is the command's own affair: it gets the signal as ever.
#[test]
fn a_limit_on_the_size_of_files_ends_a_command_as_ever() {
    let scene = Scene::new();
    let big = scene.path("big");
    for exec in ["", "--exec"] {
        let line = format!(
            "ulimit -f 4; exec tenure run x -q {exec} -- sh -c 'head -c 9000 /dev/zero >{}; exit $?'",
            big.display()
        );
        let answer = answer(scene.program("bash").args(["-c", &line]));
        assert_eq!(answer.code(), 153, "{exec}: {}", answer.said());
    }
    let line = "trap '' XFSZ; exec tenure run x -q -- grep SigIgn /proc/self/status";
    let said = answer(scene.program("bash").args(["-c", line])).stdout();
    let ignored = u64::from_str_radix(said.trim_start_matches("SigIgn:").trim(), 16);
    assert_eq!(ignored.map(|mask| mask >> 24 & 1), Ok(1), "{said}");
}

/// An audit that cannot be written any more is told, and costs nothing else.
#[test]
fn an_audit_that_may_not_grow_is_a_warning() {
    let scene = Scene::new();
    let audit = scene.path("audit");
    let run = format!(
        "tenure run x --audit-dir {} -- sh -c 'exit 7'",
        audit.display()
    );
    let _ = scene.shell(&run).expect(7, "as ever");
    let file = audit.join("audit.jsonl");
    let padding = "{}\n".repeat(3_000);
    let before = fs::read_to_string(&file).expect("an audit");
    fs::write(&file, before + &padding).expect("longer");
    let line = format!("ulimit -f 5; exec {run}");
    let answer = answer(scene.program("bash").args(["-c", &line])).expect(7, "the command's own");
    assert!(
        answer.stderr().contains("the audit could not be written"),
        "{}",
        answer.stderr()
    );
    assert!(scene.is_free("x"));
}
