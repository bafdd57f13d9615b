//! What `run` does with all processes that descend from its command: which it asks, kills, waits
//! for and leaves alone; and the limits that a caller sets.

use crate::support::{
    Answer, Gate, Held, Scene, Started, answer, children, eventually, has_stopped, hears, is_alive,
    read_lines, read_number, says_overlap, send, throughout, timed,
};
use rustix::process::{Pid, Signal, kill_process_group};
use std::fs;
use std::process::Stdio;
use std::time::Duration;
use tenure_os::process::group_of;

/// A process that has left the command's group and session and has lost its parent, as daemons do;
/// killed if the test forgets it.
struct Daemon(u32);

impl Drop for Daemon {
    fn drop(&mut self) {
        if is_alive(self.0) {
            send(self.0, Signal::KILL);
        }
    }
}

/// A line of shell that leaves a daemon behind, which begins with `prelude`, and the file that
/// will hold its PID.
fn leaves_daemon(scene: &Scene, prelude: &str) -> (String, std::path::PathBuf) {
    let pid = scene.path("daemon.pid");
    let body = format!(
        "#!/bin/sh\n{prelude}\necho $$ >'{pid}.new' && mv '{pid}.new' '{pid}'\n\
         while [ -d '{root}' ]; do sleep 0.02; done\n",
        pid = pid.display(),
        root = scene.root().display(),
    );
    let body = scene.script("daemon", &body);
    // The parent is a subshell that ends at once.
    let line = format!("(setsid '{}' </dev/null >/dev/null 2>&1 &)", body.display());
    (line, pid)
}

const DEAF: &str = "trap '' INT TERM HUP QUIT USR1";

/// A run that leaves such a daemon behind and goes on.
fn holds_with_daemon(scene: &Scene, flags: &[&str], daemon: &str, prelude: &str) -> (Held, Daemon) {
    let (line, pid) = leaves_daemon(scene, daemon);
    let gate = Gate::new(scene, "x");
    let holder = scene.hold_with("x", flags, &gate, &format!("{prelude}\n{line}"));
    let daemon = Daemon(read_number(&pid));
    assert_ne!(
        Pid::from_raw(daemon.0.try_into().unwrap()).map(group_of),
        Pid::from_raw(holder.command.try_into().unwrap()).map(group_of),
        "it has left the group"
    );
    (holder, daemon)
}

/// A run that waits for the lock, and says `overlap` if `other` is at work when its turn comes.
fn next(scene: &Scene, flags: &[&str], other: u32) -> Started {
    let line = format!("{}; echo ran", says_overlap(other));
    let mut command = scene.tenure(["run", "x", "-q", "--wait", "forever"]);
    command.args(flags).args(["--", "sh", "-c", &line]);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    Started::new(&mut command)
}

#[test]
fn a_daemon_of_a_run_that_a_signal_ended_is_gone_before_the_next_command_starts() {
    for (signal, code) in [(Signal::TERM, 143), (Signal::INT, 130), (Signal::HUP, 129)] {
        let scene = Scene::new();
        let (holder, daemon) = holds_with_daemon(&scene, &["-q", "--grace", "400ms"], DEAF, "");
        let next = next(&scene, &[], daemon.0);
        scene.until_queued("x", 1);
        holder.signal(signal);
        let _ = holder.finish().expect(code, "ended by a signal");
        assert!(!is_alive(daemon.0), "gone when the answer comes");
        let answer = next.finish().expect(0, "its turn came");
        assert_eq!(answer.stdout(), "ran\n", "with no other process at work");
    }
}

#[test]
fn a_daemon_of_a_run_that_was_cancelled_is_gone_before_the_next_command_starts() {
    let scene = Scene::new();
    let (holder, daemon) = holds_with_daemon(&scene, &["-q", "--grace", "400ms"], DEAF, "");
    let next = next(&scene, &["--force"], daemon.0);
    let _ = holder.finish().expect(79, "superseded");
    let answer = next.finish().expect(0, "its turn came");
    assert_eq!(answer.stdout(), "ran\n", "with no other process at work");
}

#[test]
fn a_daemon_of_a_run_that_took_too_long_is_gone_before_the_next_command_starts() {
    let scene = Scene::new();
    let flags = ["-q", "--grace", "300ms", "--max-runtime", "1s"];
    let (holder, daemon) = holds_with_daemon(&scene, &flags, DEAF, "");
    let next = next(&scene, &[], daemon.0);
    let _ = holder.finish().expect(10, "it took too long");
    let answer = next.finish().expect(0, "its turn came");
    assert_eq!(answer.stdout(), "ran\n", "with no other process at work");
}

#[test]
fn a_daemon_of_a_run_that_lost_its_lock_is_ended_with_it() {
    let scene = Scene::new();
    let (holder, daemon) = holds_with_daemon(&scene, &["-q", "--grace", "300ms"], DEAF, "");
    scene.until_named("x");
    fs::rename(scene.locks().join("x.tenure"), scene.path("gone")).unwrap();
    let _ = holder.finish().expect(80, "the lock was lost");
    assert!(!is_alive(daemon.0), "no process works on without the lock");
}

/// Daemons of daemons, several deep, come out one by one and are ended all the same.
#[test]
fn a_whole_tree_that_ignores_everything_is_ended_from_the_top_down() {
    let scene = Scene::new();
    let pids = scene.path("pids");
    let tree = scene.script(
        "tree",
        &format!(
            "#!/bin/sh\n{DEAF}\necho $$ >>'{pids}'\n[ $1 -gt 0 ] && setsid \"$0\" $(($1 - 1)) & \
             [ $1 -gt 0 ] && \"$0\" $(($1 - 1)) &\n\
             while [ -d '{root}' ]; do sleep 0.05; done\n",
            pids = pids.display(),
            root = scene.root().display(),
        ),
    );
    let gate = Gate::new(&scene, "x");
    let prelude = format!("(setsid '{}' 3 >/dev/null 2>&1 &)", tree.display());
    let holder = scene.hold_with("x", ["-q", "--grace", "200ms"], &gate, &prelude);
    let listed = || -> Vec<Daemon> {
        let text = fs::read_to_string(&pids).unwrap_or_default();
        text.lines()
            .map(|line| Daemon(line.parse().unwrap()))
            .collect()
    };
    eventually("all fifteen of the tree", || {
        fs::read_to_string(&pids).is_ok_and(|text| text.lines().count() == 15)
    });
    let tree = listed();
    holder.signal(Signal::TERM);
    let _ = holder.finish().expect(143, "ended by SIGTERM");
    let left: Vec<_> = tree
        .iter()
        .map(|one| one.0)
        .filter(|pid| is_alive(*pid))
        .collect();
    assert_eq!(left, [] as [u32; 0], "none is left");
}

/// The inner supervisor adopts what its command leaves; killed with the rest of the outer run, it
/// leaves that to the outer one.
#[test]
fn a_nested_run_is_ended_with_all_that_descends_from_it() {
    let scene = Scene::new();
    let (line, pid) = leaves_daemon(&scene, DEAF);
    let gate = Gate::new(&scene, "x");
    let inner = scene.script(
        "inner",
        &format!("#!/bin/sh\n{DEAF}\n{line}\n{}\n", gate.script("")),
    );
    let mut command = scene.tenure(["run", "outer", "-q", "--grace", "300ms", "--"]);
    command.args(["tenure", "run", "inner", "-q", "--grace", "60s", "--"]);
    command
        .arg(inner)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let run = Started::new(&mut command);
    let (daemon, worker) = (Daemon(read_number(&pid)), gate.entered());
    let supervisor = children(run.pid())[0];
    run.signal(Signal::TERM);
    let _ = run.finish().expect(143, "ended by SIGTERM");
    for pid in [supervisor, worker, daemon.0] {
        assert!(!is_alive(pid), "PID {pid} is gone");
    }
    assert!(
        scene.is_free("outer") && scene.is_free("inner"),
        "both are free"
    );
}

#[test]
fn a_daemon_is_asked_before_it_is_killed() {
    let scene = Scene::new();
    let said = scene.path("said");
    let polite = format!("trap 'echo asked >>{}; exit' TERM", said.display());
    let (holder, daemon) = holds_with_daemon(&scene, &["-q", "--grace", "60s"], &polite, "");
    let ((), took) = timed(|| {
        holder.signal(Signal::TERM);
        let _ = holder.finish().expect(143, "ended by SIGTERM");
    });
    assert!(
        took < Duration::from_secs(20),
        "the call did not wait for the grace: {took:?}"
    );
    assert_eq!(fs::read_to_string(said).unwrap(), "asked\n", "once");
    assert!(!is_alive(daemon.0), "it ended by itself");
}

/// A child in the command's group got the signal with the group. That its parent ends before it
/// must not make it hear of it again: for many programs a second one means "at once".
#[test]
fn who_was_asked_with_the_group_is_not_asked_again_as_an_orphan() {
    let scene = Scene::new();
    let (said, ready) = (scene.path("said"), scene.path("ready"));
    let go = scene.path("go");
    let child = scene.script(
        "child",
        &format!(
            "#!/bin/sh\ntrap 'echo asked >>{said}' TERM\n: >{ready}\n\
             while [ -d '{root}' ] && [ ! -e {go} ]; do sleep 0.02; done\n",
            said = said.display(),
            ready = ready.display(),
            root = scene.root().display(),
            go = go.display(),
        ),
    );
    let gate = Gate::new(&scene, "x");
    let holder = scene.hold_with(
        "x",
        ["-q", "--grace", "60s"],
        &gate,
        &format!("'{}' &", child.display()),
    );
    eventually("the child to be ready", || ready.exists());
    let (command, supervisor) = (holder.command, holder.pid());
    holder.signal(Signal::TERM);
    eventually("the command to end", || !is_alive(command));
    eventually("the child to come to the supervisor", || {
        children(supervisor).len() == 2
    });
    let _ = read_lines(&said);
    throughout(Duration::from_millis(200), "asked once", || {
        fs::read_to_string(&said).is_ok_and(|text| text == "asked\n")
    });
    assert_eq!(scene.standing("x"), "held", "it is still at work");
    fs::write(go, "").unwrap();
    let _ = holder.finish().expect(143, "ended by SIGTERM");
}

#[test]
fn a_daemon_outlives_a_run_that_ends_by_itself() {
    let scene = Scene::new();
    let (holder, daemon) = holds_with_daemon(&scene, &["-q"], "", "");
    let _ = holder.open().expect(0, "the command ended by itself");
    assert!(is_alive(daemon.0), "the daemon goes on");
    assert!(scene.is_free("x"), "and the lock is free");
}

#[test]
fn what_ends_behind_a_long_command_is_collected() {
    let scene = Scene::new();
    let gate = Gate::new(&scene, "x");
    let prelude = "for n in 1 2 3 4 5 6 7 8 9 10; do (sleep 0.05 &); done";
    let holder = scene.hold_with("x", ["-q"], &gate, prelude);
    let (supervisor, command) = (holder.pid(), holder.command);
    eventually("only the command to be left", || {
        children(supervisor) == [command]
    });
    let _ = holder.open().expect(0, "the command was not disturbed");
}

/// A shell that becomes tenure keeps its children, and they are none of the command's.
#[test]
fn children_from_before_the_run_are_left_alone() {
    let scene = Scene::new();
    let gate = Gate::new(&scene, "x");
    let script = scene.script("work", &format!("#!/bin/sh\n{}\n", gate.script("")));
    let older = scene.path("older");
    let line = format!(
        "sleep 600 >/dev/null 2>&1 & echo $! >{}; exec tenure run x -q --grace 300ms -- {}",
        older.display(),
        script.display()
    );
    let mut command = scene.program("sh");
    command
        .args(["-c", &line])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let run = Started::new(&mut command);
    let worker = gate.entered();
    let older = Daemon(read_number(&older));
    run.signal(Signal::TERM);
    let _ = run.finish().expect(143, "ended by SIGTERM");
    assert!(!is_alive(worker), "the command is gone");
    assert!(is_alive(older.0), "and no other process");
}

/// Asks a live run to stop, and does not get in.
fn cancel(scene: &Scene) -> Answer {
    scene.run(["run", "x", "-q", "--force", "--wait", "30s", "--", "true"])
}

#[test]
fn whoever_is_asked_to_stop_is_told_by_whom_and_what_for() {
    let scene = Scene::new();
    let holder = scene.hold("x", ["--actor", "ada"]);
    let ask = ["cancel", "x", "--by", "op-1", "--actor", "bob"];
    let mut cancel = scene.tenure(ask);
    cancel.args(["--why", "the fix comes first"]);
    let _ = answer(&mut cancel).expect(0, "asked");
    let told = holder.finish().expect(79, "superseded").stderr();
    let asks =
        "bob (request id op-1) asks this run to stop: the fix comes first; ending the command";
    assert!(told.contains(asks), "{told}");

    // A run that wants the lock says so as well, with its own words.
    let holder = scene.hold("x", ["--actor", "ada"]);
    let words = [
        "run", "x", "-q", "--force", "--wait", "30s", "--actor", "eve",
    ];
    let mut forcing = scene.tenure(words);
    forcing.args(["--request-id", "run-2", "--why", "release 2", "--", "true"]);
    let _ = answer(&mut forcing).expect(0, "it got the lock");
    let told = holder.finish().expect(79, "superseded").stderr();
    let asks =
        "a newer run of eve (request id run-2) asks for the lock: release 2; ending the command";
    assert!(told.contains(asks), "{told}");
}

#[test]
fn what_somebody_says_who_asks_is_bounded_and_harmless() {
    let scene = Scene::new();
    let holder = scene.hold("x", ["--actor", "ada"]);
    let hostile = format!(
        "\u{1b}[2J\u{202e}\nover{}the-end",
        " and over".repeat(2_000)
    );
    let words = ["cancel", "x", "--actor", &hostile, "--why", &hostile];
    let _ = scene.run(words).expect(0, "asked");
    let told = holder.finish().expect(79, "superseded").stderr();
    let line = told
        .lines()
        .find(|line| line.contains("asks this run to stop"));
    let line = line.expect("a line");
    assert!(!line.contains(['\u{1b}', '\u{202e}']), "{line:?}");
    assert!(
        line.contains("over and over") && line.ends_with("…; ending the command"),
        "{line}"
    );
    assert!(line.chars().count() < 600, "{line}");
}

#[test]
fn a_hold_without_a_supervisor_shows_who_asks_it_to_stop() {
    let scene = Scene::new();
    let words = ["acquire", "x", "--owner", "none", "--request-id", "mine"];
    let _ = scene.run(words).expect(0, "acquired");
    let words = ["cancel", "x", "--by", "op-1", "--actor", "bob"];
    let mut cancel = scene.tenure(words);
    let _ = answer(cancel.args(["--why", "the fix comes first"])).expect(0, "asked");
    let check = scene.run(["check", "x"]).stdout();
    assert!(
        check.contains(", asked to stop by bob: the fix comes first)"),
        "{check}"
    );
    let holder = &scene.check("x")["holder"];
    let words = ["heartbeat", "x", "--request-id", "mine"];
    let beat = scene.run(words).expect(0, "renewed").stdout();
    let asks = "; bob (request id op-1) asks this run to stop: the fix comes first";
    assert!(beat.contains(asks), "{beat}");
    let mut json = scene.tenure(words);
    let beat = &answer(json.args(["--output", "json"])).json()["data"];
    for said in [holder, beat] {
        assert_eq!(said["cancel_requested_by"], "op-1", "{said}");
        assert_eq!(said["cancel_requested_actor"], "bob", "{said}");
        assert_eq!(
            said["cancel_requested_why"], "the fix comes first",
            "{said}"
        );
        assert_eq!(said["cancel_requested_kind"], "cancel", "{said}");
    }
    // A caller that says nothing more is the user.
    let _ = scene
        .run(["release", "x", "--request-id", "mine"])
        .expect(0, "released");
    let words = ["acquire", "x", "--owner", "none", "--request-id", "mine"];
    let _ = scene.run(words).expect(0, "acquired");
    let _ = scene
        .run(["cancel", "x", "--by", "op-2"])
        .expect(0, "asked");
    let check = scene.run(["check", "x"]).stdout();
    assert!(check.contains(", asked to stop by tester)"), "{check}");
    // A number has its name here as everywhere.
    let words = ["acquire", "y", "--owner", "none", "--request-id", "mine"];
    let _ = scene.run(words).expect(0, "acquired");
    let words = ["cancel", "y", "--by", "op-3", "--actor", "uid 0"];
    let _ = scene.run(words).expect(0, "asked");
    let check = scene.run(["check", "y"]).stdout();
    assert!(check.contains(", asked to stop by root)"), "{check}");
    assert!(
        scene.check("x")["holder"]
            .get("cancel_requested_why")
            .is_none()
    );
}

#[test]
fn nobody_is_asked_where_an_orphan_is_ended() {
    let scene = Scene::new();
    for flag in ["--why", "--actor"] {
        let said = scene
            .run(["cancel", "--orphan", "x", flag, "text"])
            .expect(2, "there is no supervisor to tell")
            .stderr();
        assert!(said.contains(flag) && said.contains("--orphan"), "{said}");
    }
}

#[test]
fn the_first_signal_of_a_cancel_can_be_chosen() {
    for (name, heard) in [
        ("TERM", "TERM"),
        ("SIGTERM", "TERM"),
        ("15", "TERM"),
        ("usr1", "USR1"),
        ("INT", "INT"),
    ] {
        let scene = Scene::new();
        let gate = Gate::new(&scene, "x");
        let said = scene.path("said");
        let prelude = ["INT", "TERM", "USR1"]
            .map(|name| format!("trap 'echo {name} >>{}; exit' {name}", said.display()))
            .join("\n");
        let holder = scene.hold_with("x", ["-q", "--signal", name], &gate, &prelude);
        let _ = cancel(&scene).expect(0, "it got the lock");
        let _ = holder.finish().expect(79, "superseded");
        assert_eq!(
            fs::read_to_string(said).unwrap(),
            format!("{heard}\n"),
            "--signal {name}"
        );
    }
}

#[test]
fn sigterm_follows_when_it_was_asked_to() {
    let scene = Scene::new();
    let gate = Gate::new(&scene, "x");
    let flags = ["-q", "--grace", "60s", "--term-after", "200ms"];
    let holder = scene.hold_with("x", flags, &gate, "trap '' INT; trap 'exit 0' TERM");
    let (_, took) = timed(|| cancel(&scene).expect(0, "it got the lock"));
    let _ = holder.finish().expect(79, "superseded");
    assert!(took >= Duration::from_millis(200), "not before: {took:?}");
    assert!(
        took < Duration::from_secs(20),
        "and not much later: {took:?}"
    );
}

#[test]
fn a_cancel_may_kill_at_once() {
    let scene = Scene::new();
    let gate = Gate::new(&scene, "x");
    let flags = ["-q", "--grace", "60s", "--signal", "KILL"];
    let holder = scene.hold_with("x", flags, &gate, "trap '' INT TERM");
    let (_, took) = timed(|| cancel(&scene).expect(0, "it got the lock"));
    let _ = holder.finish().expect(79, "superseded");
    assert!(
        took < Duration::from_secs(20),
        "the call did not wait for the grace: {took:?}"
    );
}

#[test]
fn flags_that_make_no_sense_are_refused_before_anything_is_touched() {
    let scene = Scene::new();
    for (flags, told) in [
        (&["--signal", "STOP"][..], "--signal \"STOP\""),
        (&["--signal", "0"], "--signal \"0\""),
        (&["--signal", "NONSENSE"], "HUP, INT, QUIT"),
        (&["--signal", ""], "--signal"),
        (&["--term-after", "11s"], "--term-after 11s"),
        (&["--grace", "2s", "--term-after", "3s"], "--grace 2s"),
        (&["--term-after", "soon"], "--term-after"),
        (&["--max-runtime", "0"], "--max-runtime 0"),
        (&["--max-runtime=-1"], "--max-runtime"),
        (&["--max-runtime", "soon"], "--max-runtime"),
        (&["--shell"], "--shell runs one argument"),
        (&["--exec", "--rollback", "true"], "--rollback"),
        (&["--exec", "--max-runtime", "1s"], "--max-runtime"),
        (&["--exec", "--grace", "1s"], "--grace"),
        (&["--exec", "--term-after", "1s"], "--term-after"),
        (&["--exec", "--signal", "TERM"], "--signal"),
        (&["--exec", "--wait-all"], "--wait-all"),
        (&["--exec", "--close"], "--close"),
        (&["--exec", "--on-lost", "warn"], "--on-lost"),
        (&["--exec", "--failure-step", "a"], "--failure-step"),
    ] {
        let mut words = vec!["run", "x"];
        words.extend(flags);
        words.extend(["--", "echo", "ran"]);
        let answer = scene.run(&words).expect(2, &format!("{flags:?}"));
        assert_eq!(answer.stdout(), "", "nothing ran: {flags:?}");
        assert!(
            answer.stderr().contains(told),
            "{flags:?}: {}",
            answer.said()
        );
        assert_eq!(
            answer.stderr().lines().count(),
            1,
            "one sentence: {}",
            answer.said()
        );
    }
    assert!(!scene.locks().exists(), "nothing was touched");
}

#[test]
fn a_limit_ends_the_work_and_not_the_wait() {
    let scene = Scene::new();
    let limit = ["run", "x", "--max-runtime", "300ms", "--"];
    let (answer, took) = timed(|| scene.run(limit.iter().chain(&["sleep", "600"])));
    let answer = answer.expect(10, "it took too long");
    assert!(took >= Duration::from_millis(300), "not before: {took:?}");
    assert!(
        answer.stderr().contains("--max-runtime 300ms"),
        "{}",
        answer.said()
    );
    assert!(scene.is_free("x"), "the lock is free");
    let _ = scene
        .run(limit.iter().chain(&["sh", "-c", "exit 3"]))
        .expect(3, "it was quick enough");

    let holder = scene.hold("x", ["-q"]);
    let mut waiting = scene.tenure([
        "run",
        "x",
        "-q",
        "--wait",
        "forever",
        "--max-runtime",
        "300ms",
    ]);
    waiting
        .args(["--", "true"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let waiting = Started::new(&mut waiting);
    scene.until_queued("x", 1);
    throughout(Duration::from_millis(500), "it waits", || {
        is_alive(waiting.pid())
    });
    let _ = holder.open().expect(0, "the holder");
    let _ = waiting.finish().expect(0, "a wait is no work");
}

#[test]
fn a_limit_is_answered_with_a_document_and_the_work_can_clean_up() {
    let scene = Scene::new();
    let answer = scene.run([
        "run",
        "x",
        "--output",
        "json",
        "--max-runtime",
        "300ms",
        "--",
        "sh",
        "-c",
        "trap 'echo cleaned; exit 0' INT; while :; do sleep 0.02; done",
    ]);
    let answer = answer.expect(10, "it took too long");
    let stdout = answer.stdout();
    let (said, document) = stdout.split_once('\n').unwrap();
    assert_eq!(said, "cleaned", "it was asked first");
    let document: serde_json::Value = serde_json::from_str(document).unwrap();
    assert_eq!(document["error"]["code"], "MAX_RUNTIME", "{document}");
    assert_eq!(document["error"]["retryable"], false, "{document}");
    assert_eq!(
        document["error"]["context"]["max_runtime_ms"], 300,
        "{document}"
    );
}

#[test]
fn what_undoes_work_that_took_too_long_is_run_and_has_no_limit() {
    let scene = Scene::new();
    let undone = scene.path("undone");
    let rollback = format!("sleep 0.5; echo $TENURE_EXIT_CODE >{}", undone.display());
    let _ = scene
        .run([
            "run",
            "x",
            "-q",
            "--max-runtime",
            "200ms",
            "--rollback",
            &rollback,
            "--",
            "sleep",
            "600",
        ])
        .expect(10, "it took too long");
    assert_eq!(fs::read_to_string(undone).unwrap(), "10\n");
}

/// What was asked of the command is not asked of what undoes it.
#[test]
fn what_undoes_a_killed_command_is_waited_for_with_all_that_it_starts() {
    let scene = Scene::new();
    let undone = scene.path("undone");
    let rollback = format!(
        "(setsid sh -c 'sleep 0.4; echo undone >{}' </dev/null >/dev/null 2>&1 &)",
        undone.display()
    );
    let mut command = scene.tenure(["run", "x", "-q", "--wait-all", "--max-runtime", "100ms"]);
    command.args(["--signal", "KILL", "--rollback", &rollback]);
    command.args(["--", "sleep", "600"]);
    let _ = answer(&mut command).expect(10, "it took too long");
    assert_eq!(fs::read_to_string(undone).unwrap(), "undone\n");
}

#[test]
fn a_limit_needs_no_open_outputs() {
    let scene = Scene::new();
    for closed in ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"] {
        for output in ["text", "json"] {
            let line = format!(
                "exec tenure run x --output {output} --max-runtime 100ms -- sleep 600 {closed}"
            );
            let _ = scene.shell(&line).expect(10, closed);
        }
    }
    assert!(scene.is_free("x"), "the lock is free after all of them");
}

#[test]
fn all_of_the_work_can_be_waited_for() {
    let scene = Scene::new();
    let (line, pid) = leaves_daemon(&scene, "");
    let mut command = scene.tenure(["run", "x", "-q", "--wait-all", "--", "sh", "-c"]);
    command
        .arg(format!("{line}; exit 7"))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let run = Started::new(&mut command);
    let daemon = Daemon(read_number(&pid));
    eventually("the command itself to end", || {
        children(run.pid()).contains(&daemon.0)
    });
    throughout(Duration::from_millis(200), "the lock is held", || {
        scene.standing("x") == "held"
    });
    send(daemon.0, Signal::TERM);
    let _ = run.finish().expect(7, "the code is the command's own");
    assert!(scene.is_free("x"), "the lock is free");
}

#[test]
fn work_that_is_waited_for_can_be_ended_and_limited() {
    for (limit, code) in [(None, 143), (Some("600ms"), 10)] {
        let scene = Scene::new();
        let (line, pid) = leaves_daemon(&scene, DEAF);
        let mut command = scene.tenure(["run", "x", "-q", "--wait-all", "--grace", "200ms"]);
        if let Some(limit) = limit {
            command.args(["--max-runtime", limit]);
        }
        command
            .args(["--", "sh", "-c", &line])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let run = Started::new(&mut command);
        let daemon = Daemon(read_number(&pid));
        if limit.is_none() {
            eventually("the command itself to end", || {
                children(run.pid()).contains(&daemon.0)
            });
            run.signal(Signal::TERM);
        }
        let _ = run.finish().expect(code, "ended");
        assert!(!is_alive(daemon.0), "all of it is gone");
        assert!(scene.is_free("x"), "the lock is free");
    }
}

#[test]
fn without_anything_left_there_is_nothing_to_wait_for() {
    let scene = Scene::new();
    let _ = scene
        .run(["run", "x", "--wait-all", "--", "sh", "-c", "exit 4"])
        .expect(4, "its code");
    assert!(scene.is_free("x"), "the lock is free");
}

#[test]
fn a_line_can_be_run_by_a_shell() {
    let scene = Scene::new();
    let answer = scene
        .run(["run", "x", "--shell", "--", "echo $0 && exit 6"])
        .expect(6, "its code");
    assert_eq!(answer.stdout(), "/bin/sh\n", "without $SHELL");
    let shell = scene.script("shell", "#!/bin/sh\necho \"$1|$2\"\n");
    let mut command = scene.tenure(["run", "--shell", "x", "--", "a && b"]);
    let answer = crate::support::answer(command.env("SHELL", shell)).expect(0, "by $SHELL");
    assert_eq!(answer.stdout(), "-c|a && b\n");
    let mut command = scene.tenure(["run", "--shell", "x", "--", "true"]);
    let _ =
        crate::support::answer(command.env("SHELL", "/no/such/shell")).expect(127, "there is none");
}

/// A caller that looks sees the line that was typed.
#[test]
fn a_line_for_a_shell_is_what_the_lock_is_held_for() {
    let scene = Scene::new();
    let gate = Gate::new(&scene, "x");
    let line = gate.script(": a-mark");
    let mut command = scene.tenure(["run", "x", "-q", "--shell", "--", &line]);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let run = Started::new(&mut command);
    let _ = gate.entered();
    let why = scene.check("x")["holder"]["why"]
        .as_str()
        .unwrap()
        .to_owned();
    assert!(why.starts_with(": a-mark"), "{why}");
    gate.open();
    let _ = run.finish().expect(0, "it ends well");
}

/// The paths of what a process has open.
fn open_files(pid: u32) -> Vec<std::path::PathBuf> {
    let entries = fs::read_dir(format!("/proc/{pid}/fd")).unwrap();
    entries
        .filter_map(|entry| fs::read_link(entry.ok()?.path()).ok())
        .collect()
}

/// The supervisor is killed and the command ends: what keeps the lock held then is what daemons
/// have inherited, and that is what the flag is for.
#[test]
fn a_daemon_keeps_an_orphaned_lock_unless_it_was_closed_to_it() {
    for (flags, held) in [(&["-q"][..], true), (&["-q", "--close"], false)] {
        let scene = Scene::new();
        let (holder, daemon) = holds_with_daemon(&scene, flags, "", "");
        scene.until_named("x");
        let lock = scene.locks().join("x.tenure");
        assert_eq!(
            open_files(holder.command).contains(&lock),
            held,
            "{flags:?}"
        );
        let (command, gate) = (holder.command, holder.gate.clone());
        holder.signal(Signal::KILL);
        eventually("the supervisor to be seen dead", || {
            scene.check("x")["holder"]["orphaned"] == true
        });
        let _ = scene
            .run(["run", "-n", "x", "--", "true"])
            .expect(4, "its command is at work");
        gate.open();
        eventually("the command to end", || !is_alive(command));
        assert!(is_alive(daemon.0), "the daemon goes on");
        assert_eq!(scene.is_free("x"), !held, "{flags:?}");
        drop(holder);
    }
}

#[test]
fn a_command_that_the_lock_is_closed_to_is_supervised_as_ever() {
    let scene = Scene::new();
    let _ = scene
        .run(["run", "x", "--close", "--", "sh", "-c", "exit 3"])
        .expect(3, "its code");
    let gate = Gate::new(&scene, "x");
    let holder = scene.hold_with("x", ["-q", "--close"], &gate, "");
    assert_eq!(scene.standing("x"), "held");
    holder.signal(Signal::TERM);
    let _ = holder.finish().expect(143, "ended by SIGTERM");
    assert!(scene.is_free("x"), "the lock is free");
}

/// Nothing but its number speaks for such a command, so it does nothing before that is written down: killed at
/// any of its writes, the supervisor leaves a command that has the lock, or none.
#[cfg(target_os = "linux")]
#[test]
fn a_command_that_the_lock_is_closed_to_does_nothing_before_it_is_recorded() {
    let mut ran = 0;
    for write in 1..=4 {
        let scene = Scene::new();
        let work = "touch ran; while [ ! -e go ]; do sleep 0.02; done";
        let mut command = scene.program("strace");
        command
            .args(["-qq", "-o", "/dev/null", "-e", "trace=pwrite64", "-e"])
            .arg(format!("inject=pwrite64:signal=KILL:when={write}"))
            .args(["tenure", "run", "x", "-q", "--close", "--", "sh", "-c"])
            .arg(format!("exec >/dev/null 2>&1; {work}"))
            .current_dir(scene.root())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let mut run = Started::new(&mut command);
        eventually("the supervisor to be killed, or its command to run", || {
            run.has_ended() || scene.path("ran").exists()
        });
        // A command that was let go runs within this time.
        std::thread::sleep(Duration::from_millis(300));
        if scene.path("ran").exists() {
            ran += 1;
            let _ = scene.run(["run", "-n", "x", "--", "true"]).expect(
                4,
                &format!("killed at write {write}: the command has the lock"),
            );
        }
        scene.write("go", "");
        let _ = run.end();
        let _ = scene
            .run(["run", "x", "-q", "--", "true"])
            .expect(0, "then it is free");
    }
    assert!(ran > 0, "some were killed after that");
}

#[test]
fn a_command_that_the_lock_is_closed_to_starts_as_any_other() {
    let scene = Scene::new();
    let look = "ls -l /proc/self/fd | grep -o '[0-9]* ->.*' | grep -v ' -> /proc' ; grep ^Sig /proc/self/status";
    let plain = scene.run(["run", "x", "-q", "--", "sh", "-c", look]);
    let closed = scene.run(["run", "x", "-q", "--close", "--", "sh", "-c", look]);
    let lock = scene.locks().join("x.tenure").display().to_string();
    let without = |answer: &Answer| -> Vec<String> {
        let said = answer.stdout();
        // Numbers of pipes differ, two signals of the C library are ignored by one way to start a program, and
        // how many signals are queued is counted for all processes of the user.
        let lines = said
            .lines()
            .filter(|line| !line.contains(&lock) && !line.contains("pipe:"));
        lines
            .filter(|line| !line.starts_with("SigIgn") && !line.starts_with("SigQ"))
            .map(str::to_owned)
            .collect()
    };
    assert_eq!(without(&plain), without(&closed));
    assert!(
        !closed.stdout().contains(&lock),
        "it has no copy of the liveness lock"
    );
    for (program, code) in [("/", 126), ("no-such-program", 127)] {
        let _ = scene
            .run(["run", "x", "--close", "--", program])
            .expect(code, program);
    }
    scene.script("bad", "#!/no-such-interpreter\n");
    let bad = scene.path("bad");
    let bad = bad.to_str().expect("text");
    let _ = scene
        .run(["run", "x", "--close", "--", bad])
        .expect(127, "found out by the child");
    assert!(scene.is_free("x"));
}

/// Lets a supervisor and all of its command's group stand still.
fn stop(supervisor: u32, command: u32) {
    let group = group_of(Pid::from_raw(command.try_into().unwrap()).unwrap()).unwrap();
    // What continues it later has to reach the command.
    eventually("the supervisor to hear", || hears(supervisor, Signal::CONT));
    send(supervisor, Signal::STOP);
    kill_process_group(group, Signal::STOP).unwrap();
    for pid in [supervisor, command] {
        eventually("all of them to stand still", || has_stopped(pid));
    }
}

/// A run stood still for longer than its lease, and its lock went to another caller. It is ended before it
/// does another step, and what the other one has written stays.
#[test]
fn a_run_that_slept_through_its_lease_does_no_harm() {
    for (profile, name, lease, force) in [
        ("session", "7", &["--stale-after", "2s"][..], None),
        (
            "fleet",
            "app-prod",
            &[
                "--ttl",
                "1s",
                "--intent-name",
                "a",
                "--intent-version",
                "1.0.0",
            ],
            Some("--force-lock"),
        ),
    ] {
        let scene = Scene::new();
        let (steps, pid) = (scene.path("steps"), scene.path("pid"));
        let work = format!(
            "while :; do echo step >>'{}'; [ -e '{pid}' ] || echo $$ >'{pid}'; sleep 0.01; done",
            steps.display(),
            pid = pid.display()
        );
        let mut command = scene.tenure(["run", name, "-q", "--profile", profile]);
        command.args(lease).args(["--", "sh", "-c", &work]);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let run = Started::new(&mut command);
        let worker = read_number(&pid);
        // Stopped in the middle of that change, it would keep the others from theirs.
        eventually("its claim to name the command", || {
            let words = ["check", name, "--profile", profile, "--output", "json"];
            let answer = scene.run(words).expect(4, "it is held").json();
            answer["error"]["context"]["holder"]["command_pid"].is_u64()
        });
        stop(run.pid(), worker);
        let before = fs::read_to_string(&steps).unwrap();

        let gate = Gate::new(&scene, "other");
        let mut other = None;
        eventually("another caller to take it over", || {
            let started = other.get_or_insert_with(|| {
                let mut command = scene.tenure(["run", name, "--profile", profile]);
                command.args(lease).args(force);
                command.args(["--", "sh", "-c", &gate.script("")]);
                command.stdout(Stdio::piped()).stderr(Stdio::piped());
                Started::new(&mut command)
            });
            // Refused until the lease has run out.
            if started.has_ended() {
                other = None;
            }
            gate.has_begun()
        });
        let check = || {
            let words = ["check", name, "--profile", profile, "--output", "json"];
            let answer = scene
                .run(words)
                .expect(4, &format!("{profile}: it is held"));
            answer.json()["error"]["context"]["holder"]["request_id"].clone()
        };
        let owner = check();
        assert!(owner.is_string(), "{profile}: {owner}");

        // Only the supervisor is let go on; it decides about the rest.
        run.signal(Signal::CONT);
        let _ = run
            .finish()
            .expect(80, &format!("{profile}: the lock was lost"));
        let after = fs::read_to_string(&steps).unwrap();
        assert_eq!(after.len(), before.len(), "{profile}: not one step more");
        assert_eq!(check(), owner, "{profile}: the other's record stands");
        assert!(is_alive(gate.entered()), "{profile}: and it is at work");
        gate.open();
        let _ = other
            .unwrap()
            .finish()
            .expect(0, "the other was not disturbed");
    }
}

/// No other caller took the lock: the run goes on where it was.
#[test]
fn a_run_that_slept_through_its_lease_goes_on_if_nobody_took_it() {
    let scene = Scene::new();
    let gate = Gate::new(&scene, "x");
    let flags = ["-q", "--profile", "session", "--stale-after", "1s"];
    let holder = scene.hold_with("7", flags, &gate, "");
    stop(holder.pid(), holder.command);
    let stale = || {
        let words = ["check", "7", "--profile", "session", "--stale-after", "1s"];
        scene.run(words).code() == 0
    };
    eventually("the lease to run out", stale);
    holder.signal(Signal::CONT);
    eventually("a renewal", || !stale());
    let _ = holder.open().expect(0, "it ends well");
}

/// timeout(1) and a shell with job control make a group within the session, and pass on what they get. So each signal has
/// one sender, the parent. timeout sends it to its child and to its group; all other senders send it once.
#[test]
fn command_that_passes_signals_on_gets_them_alone() {
    let scene = Scene::new();
    scene.write(
        "counts.py",
        "import os, signal, time\n\
         asked = {signal.SIGINT, signal.SIGTERM}\n\
         signal.pthread_sigmask(signal.SIG_BLOCK, asked)\n\
         open('ready', 'w').close()\n\
         got, end = [], time.time() + 1.2\n\
         while time.time() < end:\n\
         \x20   seen = signal.sigtimedwait(asked, 0.02)\n\
         \x20   if seen: got.append((seen.si_signo, 'parent' if seen.si_pid == os.getppid() else seen.si_pid))\n\
         open('got', 'w').write(f'{len(got)} {sorted(set(got))}')\n",
    );
    for before in ["", "timeout 20", "setsid -w", "tenure -q run inner --"] {
        for (signal, number) in [("INT", 2), ("TERM", 15)] {
            let line = format!(
                "set -m; rm -f ready got; tenure -q run x --grace 10s -- {before} python3 counts.py & p=$!\n\
                 until [ -e ready ]; do sleep 0.02; done; kill -{signal} $p; wait $p; cat got"
            );
            let mut bash = scene.program("bash");
            let said = answer(bash.args(["-c", &line]).current_dir(scene.root()));
            let got = said.stdout();
            let (times, senders) = got.split_once(' ').unwrap_or_default();
            let once = before.starts_with("timeout") || times == "1";
            assert!(
                once && senders == format!("[({number}, 'parent')]"),
                "{before} {signal}: {got} {}",
                said.stderr()
            );
        }
    }
}
