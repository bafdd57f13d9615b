//! Concurrency groups beyond `pages/groups.txt`: signals, deadlines, hooks that fail, and many runs at once.

use crate::support::{
    Answer, Gate, Held, Scene, Started, eventually, read_lines, send, throughout, timed,
};
use rustix::process::Signal;
use serde_json::Value;
use std::fs;
use std::io::Read;
use std::process::Stdio;
use std::time::Duration;

/// A run that was started, with its outputs kept.
fn start(scene: &Scene, words: &[&str]) -> Started {
    let mut command = scene.tenure(words);
    command.current_dir(scene.root());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    Started::new(&mut command)
}

/// A run with these words before the `--`, whose command lasts until its gate is opened.
fn gated(scene: &Scene, words: &[&str], gate: &Gate, prelude: &str) -> Started {
    let script = gate.script(prelude);
    let words: Vec<&str> = words.iter().copied().chain(["--", "sh", "-c"]).collect();
    let mut command = scene.tenure(words);
    command.arg(script).current_dir(scene.root());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    Started::new(&mut command)
}

/// A run with these words before the `--`, whose command has begun.
fn running(scene: &Scene, words: &[&str], prelude: &str) -> Held {
    let gate = Gate::new(scene, "member");
    let started = gated(scene, words, &gate, prelude);
    let command = gate.entered();
    Held {
        started,
        command,
        gate,
    }
}

/// Waits until this request stands in the queue of a lock.
fn until_waits(scene: &Scene, name: &str, id: &str) {
    eventually(&format!("{id} to wait for {name}"), || {
        let facts = scene.check(name);
        let queue = facts["queue"].as_array().cloned().unwrap_or_default();
        queue.iter().any(|waiting| waiting["request_id"] == id)
    });
}

/// Waits until this request holds a lock.
fn until_holds(scene: &Scene, name: &str, id: &str) {
    eventually(&format!("{id} to hold {name}"), || {
        scene.check(name)["holder"]["request_id"] == id
    });
}

fn superseded_by(answer: Answer, by: &str, why: &str) -> Answer {
    let answer = answer.expect(79, why);
    let said = answer.stderr();
    assert!(said.contains(by), "{why}; {by} is named: {said}");
    answer
}

/// What a command that was told to, has written.
fn told(scene: &Scene, file: &str) -> String {
    read_lines(&scene.path(file))
}

/// "With 5 arrivals in quick succession and cancel-in-progress, only the last one completes, 4
/// report superseded, and no session file is corrupted."
#[test]
fn of_five_arrivals_only_the_last_completes_and_the_session_file_is_whole() {
    let scene = Scene::new();
    let state = scene.path("state");
    let state = state.to_str().unwrap();
    let record = format!("{state}/locks/42.lock");
    let ids = ["r1", "r2", "r3", "r4", "r5"];
    let mut arrivals = Vec::new();
    let mut gates = Vec::new();
    for id in ids {
        let gate = Gate::new(&scene, id);
        let words = [
            "run",
            "--profile",
            "session",
            "--dir",
            state,
            "--group",
            "issue-42",
            "--cancel-in-progress",
            "--request-id",
            id,
            "42",
        ];
        // Each run that gets its turn keeps what the file said then. A newer arrival may end the copy in its middle.
        let seen = format!("cp '{record}' 'copy.{id}' && mv 'copy.{id}' 'seen.{id}'");
        arrivals.push(gated(&scene, &words, &gate, &seen));
        gates.push(gate);
        eventually(&format!("{id} to have arrived"), || {
            let words = ["check", "issue-42", "--dir", state, "--output", "json"];
            let document = scene.run(words).stdout();
            document.contains(&format!("\"request_id\":\"{id}\""))
                || scene.path(&format!("seen.{id}")).exists()
        });
    }
    gates[4].open();
    let mut codes = Vec::new();
    for (arrival, newer) in arrivals
        .into_iter()
        .zip(ids.into_iter().skip(1).chain([""]))
    {
        let answer = arrival.finish();
        codes.push(answer.code());
        assert!(
            newer.is_empty() || answer.stderr().contains(&format!("request id {newer}")),
            "by the run that people know: {}",
            answer.said()
        );
    }
    assert_eq!(codes, [79, 79, 79, 79, 0], "the newest message wins");
    let mut seen = 0;
    for id in ids {
        let Ok(text) = fs::read_to_string(scene.path(&format!("seen.{id}"))) else {
            continue;
        };
        let record: Value = serde_json::from_str(&text).expect("a whole session file");
        assert_eq!(record["issueNumber"], 42, "{record}");
        assert_eq!(record["runId"], id, "the run at work held it: {record}");
        assert!(text.ends_with("}\n"), "with its final newline: {text:?}");
        seen += 1;
    }
    assert!(seen >= 1, "at least the last one ran");
    assert!(!fs::exists(record).unwrap(), "and gave it back");
}

/// Many arrive at once, without a known order. A single one completes, the others say that they were
/// superseded, and no two of their commands were ever at work together.
#[test]
fn under_load_exactly_one_survives_and_no_two_work_at_once() {
    let scene = Scene::new();
    let open = scene.path("open");
    let line = format!(
        // The file is created by the shell itself, which a signal does not end in the middle.
        "trap 'rm -f inside; exit 1' INT TERM; set -C\n\
         {{ echo $$ >inside; }} 2>/dev/null || echo overlap >>overlaps\n\
         while [ -d . ] && [ ! -e '{}' ]; do sleep 0.01; done\n\
         rm -f inside",
        open.display()
    );
    let words = [
        "run",
        "-q",
        "--group",
        "g",
        "--cancel-in-progress",
        "--",
        "sh",
        "-c",
        &line,
    ];
    let mut left: Vec<Option<Started>> = (0..24).map(|_| Some(start(&scene, &words))).collect();
    let mut codes = Vec::new();
    eventually("all but one to have given way", || {
        for place in &mut left {
            if place.as_mut().is_some_and(Started::has_ended) {
                codes.push(place.take().unwrap().finish().code());
            }
        }
        codes.len() == 23
    });
    fs::write(&open, "").unwrap();
    let last = left.into_iter().flatten().next().expect("one is left");
    let _ = last.finish().expect(0, "the newest completes");
    assert_eq!(codes, vec![79; 23], "and every other one says so");
    assert!(!scene.path("overlaps").exists(), "one at a time");
}

/// "`max`: up to 100 pending in arrival order, the rest refused at once."
#[test]
fn a_queue_of_max_takes_a_hundred_and_refuses_the_next_at_once() {
    let scene = Scene::new();
    let first = running(&scene, &["run", "-q", "--group", "g", "--queue", "max"], "");
    let words = ["run", "-q", "--group", "g", "--queue", "max", "--", "true"];
    let waiting: Vec<_> = (0..100).map(|_| start(&scene, &words)).collect();
    scene.until_queued("g", 100);
    let words = [
        "run", "--output", "json", "--group", "g", "--queue", "max", "--", "true",
    ];
    // A run that is not refused at once waits for ever here.
    let document = scene.run(words).expect(4, "a hundred wait").json();
    assert_eq!(document["error"]["code"], "QUEUE_FULL", "{document}");
    assert_eq!(document["error"]["retryable"], true, "{document}");
    let _ = first.open().expect(0, "the holder");
    for one in waiting {
        let _ = one.finish().expect(0, "every turn came");
    }
}

/// "`max`: … in arrival order", and "`fifo`: unbounded": no run gives way.
#[test]
fn in_max_and_fifo_everybody_waits_in_turn() {
    for queue in ["max", "fifo"] {
        let scene = Scene::new();
        let first = running(&scene, &["run", "-q", "--group", "g", "--queue", queue], "");
        let mut waiting = Vec::new();
        for number in 1..=5 {
            let line = format!("echo {number} >>order");
            let words = [
                "run", "-q", "--group", "g", "--queue", queue, "--", "sh", "-c", &line,
            ];
            waiting.push(start(&scene, &words));
            scene.until_queued("g", number);
        }
        let _ = first.open().expect(0, "the holder");
        for one in waiting {
            let _ = one.finish().expect(0, "every turn came");
        }
        let order = fs::read_to_string(scene.path("order")).unwrap();
        assert_eq!(order, "1\n2\n3\n4\n5\n", "{queue}");
    }
}

/// "Different groups run in parallel": both commands are at work at one instant.
#[test]
fn two_groups_overlap_in_time() {
    let scene = Scene::new();
    let one = running(&scene, &["run", "-q", "--group", "issue-1"], "");
    let other = running(&scene, &["run", "-q", "--group", "pr-1"], "");
    assert!(crate::support::is_alive(one.command), "both have begun");
    let _ = other.open().expect(0, "the one");
    let _ = one.open().expect(0, "and the other");
}

/// "With `--group` the default is `--wait forever`", and an explicit `--wait` ends it.
#[test]
fn a_member_waits_for_ever_unless_it_is_told_how_long() {
    let scene = Scene::new();
    let first = running(&scene, &["run", "-q", "--group", "g"], "");
    let mut forever = start(&scene, &["run", "--group", "g", "--", "true"]);
    scene.until_queued("g", 1);
    let mut said = String::new();
    while !said.contains('\n') {
        let mut byte = [0];
        forever.stderr().read_exact(&mut byte).expect("its line");
        said.push(char::from(byte[0]));
    }
    assert!(
        said.contains("next in line, waiting\n"),
        "without a limit: {said}"
    );
    let (answer, took) = timed(|| {
        let words = [
            "run", "-q", "--group", "g", "-w", "300ms", "--queue", "fifo",
        ];
        scene.run(words.iter().chain(&["--", "true"]))
    });
    let _ = answer.expect(4, "its time was up");
    assert!(took >= Duration::from_millis(300), "not before: {took:?}");
    let _ = first.open().expect(0, "the holder");
    let _ = forever.finish().expect(0, "its turn came");
}

/// "An explicit `--wait` counts from arrival, and the grace of a cancelled predecessor never
/// consumes it."
#[test]
fn the_grace_of_a_cancelled_predecessor_never_consumes_the_wait() {
    let scene = Scene::new();
    let words = ["run", "-q", "--group", "g", "--grace", "1500ms"];
    let slow = running(&scene, &words, "trap '' INT TERM");
    let words = ["run", "-q", "--group", "g", "--wait", "200ms", "--", "true"];
    let _ = scene
        .run(words)
        .expect(4, "without a cancel it is over in time");
    let words = [
        "run",
        "-q",
        "--group",
        "g",
        "--wait",
        "200ms",
        "--cancel-in-progress",
        "--request-id",
        "new",
        "--",
        "echo",
        "ran",
    ];
    let (answer, took) = timed(|| scene.run(words));
    let answer = answer.expect(0, "the clock stood still meanwhile");
    assert_eq!(answer.stdout(), "ran\n");
    assert!(
        took > Duration::from_secs(1),
        "the predecessor was given its grace: {took:?}"
    );
    let _ = slow.finish().expect(79, "superseded");
}

/// What a predecessor promised bounds how long the clock stands still: one that takes longer does
/// not hold up a bounded wait for ever.
#[test]
fn a_predecessor_that_outlasts_its_grace_does_not_stop_the_clock_for_ever() {
    let scene = Scene::new();
    let words = [
        "acquire",
        "g",
        "--owner",
        "none",
        "--ttl",
        "1h",
        "--request-id",
        "r",
    ];
    let _ = scene
        .run(words)
        .expect(0, "a holder that no other run ends");
    let words = [
        "run",
        "-q",
        "--group",
        "g",
        "--wait",
        "300ms",
        "--cancel-in-progress",
        "--",
        "true",
    ];
    let (answer, took) = timed(|| scene.run(words));
    let _ = answer.expect(4, "its time was up");
    assert!(took < Duration::from_secs(25), "not for ever: {took:?}");
}

/// Dead waiters never block the line, and no run is told that they were superseded.
#[test]
fn a_waiting_member_that_was_killed_is_passed_over() {
    let scene = Scene::new();
    let first = running(&scene, &["run", "-q", "--group", "g"], "");
    let killed = start(&scene, &["run", "-q", "--group", "g", "--", "true"]);
    scene.until_queued("g", 1);
    killed.signal(Signal::KILL);
    drop(killed);
    eventually("the dead to be shown no more", || {
        scene.check("g")["queue"].as_array().map(Vec::len) == Some(0)
    });
    let words = [
        "run",
        "-q",
        "--group",
        "g",
        "--on-supersede",
        "touch superseded",
        "--",
        "echo",
        "ran",
    ];
    let next = start(&scene, &words);
    scene.until_queued("g", 1);
    let _ = first.open().expect(0, "the holder");
    let answer = next.finish().expect(0, "its turn came");
    assert_eq!(answer.stdout(), "ran\n");
    assert!(
        !scene.path("superseded").exists(),
        "every run that gave up a place is dead"
    );
}

/// "A cancel that arrives before the command has started means that it never starts (exit 79)."
#[test]
fn a_cancel_between_grant_and_start_means_that_the_command_never_starts() {
    let scene = Scene::new();
    let first = running(&scene, &["run", "-q", "--group", "g"], "");
    let hook = Gate::new(&scene, "hook");
    let words = [
        "run",
        "--group",
        "g",
        "--cancel-in-progress",
        "--request-id",
        "second",
        "--on-supersede",
        &hook.script(""),
        "--on-superseded",
        "echo $TENURE_STARTED $TENURE_SUPERSEDED_BY >after",
        "--",
        "touch",
        "ran",
    ];
    let second = start(&scene, &words);
    let _ = superseded_by(first.finish(), "second", "the newer one asks");
    // The hook runs between the grant and the start.
    let _ = hook.entered();
    until_holds(&scene, "g", "second");
    let words = ["cancel", "--group", "g", "--by", "third"];
    let _ = scene.run(words).expect(0, "it holds");
    hook.open();
    let _ = superseded_by(second.finish(), "third", "asked in time");
    assert!(!scene.path("ran").exists(), "it never started");
    assert_eq!(told(&scene, "after"), "0 third\n", "and the hook knows");
    assert!(scene.is_free("g"), "given back");
}

/// A signal does the same, and does not wait for the hook.
#[test]
fn a_signal_between_grant_and_start_ends_the_hook_and_starts_nothing() {
    let scene = Scene::new();
    let first = running(&scene, &["run", "-q", "--group", "g"], "");
    let hook = Gate::new(&scene, "hook");
    let words = [
        "run",
        "--group",
        "g",
        "--cancel-in-progress",
        "--grace",
        "60s",
        "--on-supersede",
        &hook.script(""),
        "--",
        "touch",
        "ran",
    ];
    let second = start(&scene, &words);
    let _ = first.finish().expect(79, "the newer one asks");
    let announcing = hook.entered();
    second.signal(Signal::TERM);
    let _ = second.finish().expect(143, "ended by the signal");
    assert!(!scene.path("ran").exists(), "it never started");
    eventually("the hook to be gone", || {
        !crate::support::is_alive(announcing)
    });
    assert!(scene.is_free("g"), "given back");
}

/// "A run whose supervisor died while its command lives is an orphan … a newcomer waits for the
/// liveness lock." Its processes are left alone: a recorded PID is never signalled.
#[test]
fn an_orphaned_predecessor_is_waited_for_and_left_alone() {
    let scene = Scene::new();
    let orphan = running(
        &scene,
        &["run", "-q", "--group", "g", "--grace", "100ms"],
        "",
    );
    scene.until_named("g");
    orphan.signal(Signal::KILL);
    eventually("the orphan to be seen as one", || {
        scene.check("g")["holder"]["orphaned"] == true
    });
    let words = [
        "run",
        "-q",
        "--group",
        "g",
        "--cancel-in-progress",
        "--grace",
        "100ms",
        "--request-id",
        "new",
        "--",
        "echo",
        "ran",
    ];
    let mut new = start(&scene, &words);
    until_waits(&scene, "g", "new");
    let asked = scene.run(["cancel", "--group", "g"]);
    let asked = asked.expect(4, "no supervisor is left to hear it");
    assert!(
        asked.stderr().contains("it died") && asked.stderr().contains("--orphan"),
        "the answer promises no end: {}",
        asked.said()
    );
    throughout(
        Duration::from_millis(500),
        "its command is left alone",
        || crate::support::is_alive(orphan.command) && !new.has_ended(),
    );
    orphan.gate.open();
    let answer = new
        .finish()
        .expect(0, "its turn came when the command ended");
    assert_eq!(answer.stdout(), "ran\n");
}

/// "`--on-superseded CMD` runs … after the command has ended and before the release … with the
/// facts in environment variables."
#[test]
fn the_hook_of_a_superseded_run_runs_between_its_command_and_its_release() {
    let scene = Scene::new();
    let hook = "{ echo $TENURE_SUPERSEDED_BY $TENURE_STARTED $TENURE_GROUP $TENURE_NAME \
                $TENURE_REQUEST_ID; [ -n \"$TENURE_TOKEN\" ] && echo token; \
                cat command; tenure check g -q >checked && echo mine; } >hook";
    let words = [
        "run",
        "-q",
        "--group",
        "g",
        "--request-id",
        "old",
        "--on-superseded",
        hook,
    ];
    let old = running(&scene, &words, "trap 'echo ended >command; exit 0' INT");
    let words = [
        "run",
        "-q",
        "--group",
        "g",
        "--cancel-in-progress",
        "--request-id",
        "new",
        "--on-supersede",
        "echo $TENURE_SUPERSEDES $TENURE_REQUEST_ID >announced",
        "--",
        "sh",
        "-c",
        "cat announced hook >order",
    ];
    let new = start(&scene, &words);
    let _ = old
        .finish()
        .expect(79, "superseded, whatever its command says");
    let _ = new.finish().expect(0, "its turn came");
    assert_eq!(
        told(&scene, "order"),
        "old new\nnew 1 g g old\ntoken\nended\nmine\n",
        "the old one's clean-up is over, and the announcement made, before the new command starts"
    );
}

/// A run that may be skipped replaces no waiting run of its group, and ends none that works.
#[test]
fn run_that_is_skipped_touches_nothing_of_its_group() {
    for (flags, file) in [
        (&["--skip"][..], ""),
        (&["--skip", "--cancel-in-progress"], ""),
        (&["--skip", "--queue", "single"], ""),
        (&["--skip", "--queue", "max"], ""),
        (&[], "[lock.g]\non_held = \"skip\"\n"),
        (&["--cancel-in-progress"], "[lock.g]\non_held = \"skip\"\n"),
    ] {
        let scene = Scene::new();
        let works = running(&scene, &["run", "-q", "--group", "g"], "");
        let second = [
            "run",
            "-q",
            "--group",
            "g",
            "--request-id",
            "second",
            "--",
            "true",
        ];
        let waits = start(&scene, &second);
        until_waits(&scene, "g", "second");
        scene.write("tenure.toml", file);
        let config = scene.path("tenure.toml").display().to_string();
        let words = [
            &["run", "--config", &config, "--group", "g"],
            flags,
            &["--", "touch", "ran"],
        ];
        let skipped = scene
            .run(words.concat())
            .expect(0, &format!("{flags:?}: {file}"));
        assert_eq!(
            skipped.said(),
            scene.run(["run", "free", "--", "true"]).said(),
            "{flags:?}"
        );
        assert!(!scene.path("ran").exists(), "{flags:?}");
        let _ = works.open().expect(0, "it works to its end");
        let _ = waits.finish().expect(0, "its turn came");
    }
}

/// "Best-effort, bounded by the grace … its failure changes nothing."
#[test]
fn a_hook_that_hangs_fails_or_dies_changes_nothing() {
    let scene = Scene::new();
    for (hook, said) in [
        ("exec sleep 600", "has not ended within"),
        ("cat; exec sleep 600", "has not ended within"),
        ("exit 3", "--on-superseded failed"),
        ("kill -9 $$", "--on-superseded failed"),
        // setsid(1) forks only where it leads its group.
        ("exec setsid sh -c 'exit 3'", "--on-superseded failed"),
        ("no-such-program-anywhere", "--on-superseded failed"),
    ] {
        let words = [
            "run",
            "--group",
            "g",
            "--grace",
            "300ms",
            "--on-superseded",
            hook,
        ];
        let old = running(&scene, &words, "");
        let words = ["cancel", "--group", "g", "--by", "me"];
        let _ = scene.run(words).expect(0, "asked");
        let (answer, took) = timed(|| old.finish());
        let answer = superseded_by(answer, "me", hook);
        assert!(answer.stderr().contains(said), "{hook}: {}", answer.said());
        assert!(
            took < Duration::from_secs(25),
            "{hook} is bounded: {took:?}"
        );
        assert!(scene.is_free("g"), "{hook}: released all the same");
    }
}

/// What is held is renewed while a hook keeps the run from its end: here a lease of a second.
#[test]
fn a_lease_outlasts_a_hook_that_takes_longer() {
    let scene = Scene::new();
    let hook = Gate::new(&scene, "hook");
    let words = [
        "run",
        "--profile",
        "fleet",
        "--intent-name",
        "deploy",
        "--intent-version",
        "1",
        "--ttl",
        "4s",
        "--group",
        "g",
        "--grace",
        "30s",
        "--on-superseded",
        &hook.script(""),
        "app",
    ];
    let old = running(&scene, &words, "");
    let _ = scene.run(["cancel", "--group", "g"]).expect(0, "asked");
    let _ = hook.entered();
    let renewed = || {
        let words = ["check", "app", "--profile", "fleet", "--output", "json"];
        let document: Value =
            serde_json::from_str(&scene.run(words).stdout()).unwrap_or(Value::Null);
        document["error"]["context"]["holder"]["last_heartbeat"].clone()
    };
    let before = renewed();
    assert!(before.is_string(), "it is held: {before}");
    eventually("a renewal while the hook runs", || {
        let now = renewed();
        now.is_string() && now != before
    });
    hook.open();
    let _ = old.finish().expect(79, "superseded");
}

/// A member whose supervisor is killed while it waits leaves no trace that a later one trips over,
/// and no other run runs the killed one's hook.
#[test]
fn a_holder_that_was_killed_with_its_command_lets_the_next_one_in() {
    let scene = Scene::new();
    let first = running(&scene, &["run", "-q", "--group", "g"], "");
    let next = start(&scene, &["run", "-q", "--group", "g", "--", "echo", "ran"]);
    scene.until_queued("g", 1);
    first.signal(Signal::KILL);
    send(first.command, Signal::KILL);
    let answer = next.finish().expect(0, "its turn came");
    assert_eq!(answer.stdout(), "ran\n");
}

/// Shells let what a script starts with `&` ignore SIGINT. Such a run is asked by SIGTERM, and hears it.
#[test]
fn a_run_that_a_script_started_in_the_background_gives_way_at_once() {
    let scene = Scene::new();
    let script = "for i in 1 2 3 4 5; do \
         tenure -q run --group g --request-id run-$i --cancel-in-progress -- \
             sh -c \"sleep 3; echo $i >>done\" & \
         eval \"p$i=$!\"; \
         until tenure check g --output json | grep -q run-$i; do kill -0 $! || exit; sleep 0.05; done; done; \
         for i in 1 2 3 4 5; do eval \"wait \\$p$i\"; echo $?; done";
    let mut command = scene.program("sh");
    command.args(["-c", script]).current_dir(scene.root());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let (answer, took) = timed(|| Started::new(&mut command).finish());
    let answer = answer.expect(0, "the script");
    assert_eq!(answer.stdout(), "79\n79\n79\n79\n0\n", "{}", answer.said());
    assert_eq!(fs::read_to_string(scene.path("done")).unwrap(), "5\n");
    assert!(
        took < Duration::from_millis(7_500),
        "no run waited until a deaf one got its SIGTERM: {took:?}"
    );
    // The signal that a caller names comes first.
    let script = "tenure -q run x --signal INT --term-after 300ms -- sh -c 'sleep 5; echo deaf >>done' & \
         until tenure check x | grep -q held; do sleep 0.05; done; sleep 0.1; \
         tenure cancel x; wait $!";
    let mut command = scene.program("sh");
    command.args(["-c", script]).current_dir(scene.root());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let (answer, took) = timed(|| Started::new(&mut command).finish());
    let _ = answer.expect(79, "cancelled");
    assert!(
        took >= Duration::from_millis(300),
        "SIGTERM follows: {took:?}"
    );
}

/// The clock of a bounded wait stands still for a predecessor's grace. A predecessor whose supervisor cannot
/// hear the request has no grace.
#[test]
fn a_predecessor_that_hears_nobody_stops_no_clock() {
    let scene = Scene::new();
    let wait_for = |name: &str| {
        let words = [
            "run",
            "-q",
            "--group",
            name,
            "--cancel-in-progress",
            "-w",
            "300ms",
            "--",
            "true",
        ];
        let (answer, took) = timed(|| scene.run(words));
        let _ = answer.expect(4, "its wait is over");
        assert!(took >= Duration::from_millis(300), "{name}: {took:?}");
        assert!(took < Duration::from_millis(1_800), "{name}: {took:?}");
    };
    let words = [
        "acquire",
        "detached",
        "--owner",
        "none",
        "--request-id",
        "r",
    ];
    let _ = scene.run(words).expect(0, "acquired");
    wait_for("detached");
    let held = running(&scene, &["run", "-q", "--exec", "--group", "exec"], "");
    wait_for("exec");
    held.gate.open();
    let _ = held.started.finish().expect(0, "it ends by itself");
}

/// The run that `--request-id` names is asked, waiting or working; every other one stays as it is.
#[test]
fn cancel_names_the_run_that_is_meant() {
    let scene = Scene::new();
    let first = running(&scene, &["run", "-q", "x", "--request-id", "r1"], "");
    let gate = Gate::new(&scene, "third");
    let wait = |id| vec!["run", "-q", "x", "-w", "60s", "--request-id", id];
    let mut words = wait("r2");
    let hook = "echo $TENURE_STARTED $TENURE_SUPERSEDED_KIND $TENURE_SUPERSEDED_ACTOR \
                $TENURE_SUPERSEDED_BY $TENURE_SUPERSEDED_WHY >told";
    words.extend(["--on-superseded", hook, "--", "touch", "ran"]);
    let second = start(&scene, &words);
    until_waits(&scene, "x", "r2");
    let third = gated(&scene, &wait("r3"), &gate, "");
    until_waits(&scene, "x", "r3");

    let none = scene.run(["cancel", "x", "--request-id", "r9"]);
    let said = none.expect(5, "no such run").stderr();
    assert!(said.contains("no run with request id r9"), "{said}");
    let orphan = scene.run(["cancel", "x", "--orphan", "--request-id", "r1"]);
    let _ = orphan.expect(4, "its supervisor lives");

    let said = scene.run(["release", "x", "--request-id", "r2"]);
    let said = said.expect(6, "it waits").stderr();
    assert!(
        said.contains("`tenure cancel x --request-id r2` ends its wait"),
        "{said}"
    );
    let mut ask = scene.tenure(["cancel", "x", "--request-id", "r2", "--by", "op-1"]);
    ask.args(["--why", "not now", "--actor", "ada", "--output", "json"]);
    let (asked, took) = timed(|| crate::support::answer(&mut ask));
    let asked = asked.expect(0, "it waits").json();
    assert_eq!(asked["data"]["asked"][0]["request_id"], "r2", "{asked}");
    assert_eq!(asked["data"]["asked"][0]["waits"], true, "{asked}");
    let (ended, leaves) = timed(|| second.finish());
    let ended = superseded_by(ended, "op-1", "it was meant").stderr();
    let says = "x: ada (request id op-1) cancelled this run: not now";
    assert!(ended.contains(says), "{ended}");
    assert!(took + leaves < Duration::from_secs(5), "told at once");
    assert_eq!(told(&scene, "told"), "0 cancel ada op-1 not now\n");
    assert!(!scene.path("ran").exists(), "it never started");

    let facts = scene.check("x");
    assert_eq!(facts["holder"]["request_id"], "r1", "{facts}");
    assert_eq!(facts["holder"]["cancel_requested"], false, "{facts}");
    let _ = scene
        .run(["cancel", "x", "--request-id", "r1"])
        .expect(0, "it works");
    let _ = first.finish().expect(79, "asked");
    let _ = gate.entered();
    gate.open();
    let _ = third.finish().expect(0, "nobody asked it");
}

/// A place that is kept for a caller who is away goes at once.
#[test]
fn cancel_takes_away_the_place_of_a_run_that_is_away() {
    let scene = Scene::new();
    let _held = running(&scene, &["run", "-q", "x"], "");
    let words = [
        "acquire",
        "x",
        "--owner",
        "none",
        "--request-id",
        "away",
        "-w",
        "300ms",
    ];
    let mut acquire = scene.tenure(words);
    let _ =
        crate::support::answer(acquire.args(["--ticket", "auto"])).expect(4, "its place is kept");
    until_waits(&scene, "x", "away");
    let release = scene.run(["release", "x", "--request-id", "away"]);
    let said = release.expect(0, "given up").stdout();
    assert!(said.contains("gave up the place"), "{said}");
    assert_eq!(scene.check("x")["queue"], Value::Array(Vec::new()));
    let mut acquire = scene.tenure(words);
    let _ = crate::support::answer(acquire.args(["--ticket", "auto"])).expect(4, "kept again");
    let said = scene.run(["cancel", "x", "--request-id", "away"]);
    let said = said.expect(0, "taken away").stdout();
    assert!(said.contains("its place is no longer kept"), "{said}");
    assert_eq!(scene.check("x")["queue"], Value::Array(Vec::new()));
}

/// `cancel --grace` hurries a run that is ending, whatever began its end, and never extends a grace.
#[test]
fn cancel_shortens_a_grace_that_runs() {
    for begin in ["cancel", "signal", "at once"] {
        let scene = Scene::new();
        let words = ["run", "x", "-q", "--grace", "10m"];
        let held = running(&scene, &words, "trap '' INT TERM");
        match begin {
            "cancel" => {
                let asked = scene.run(["cancel", "x", "--grace", "1h"]);
                let said = asked.expect(0, "asked").stdout();
                assert!(said.contains("kills what is left of it at"), "{said}");
                let force = scene.run(["run", "x", "--force", "-w", "100ms", "--", "true"]);
                let hint = "`tenure cancel x --grace 0s` has its supervisor kill";
                let said = force.expect(4, "it takes its time").stderr();
                assert!(said.contains(hint), "{said}");
                for words in [
                    &["cancel", "--orphan", "x"][..],
                    &["force-release", "x", "--yes"],
                ] {
                    let said = scene.run(words).expect(4, "it lives").stderr();
                    assert!(said.contains(hint), "{said}");
                }
            }
            "signal" => {
                held.started.signal(Signal::TERM);
                throughout(Duration::from_millis(200), "it goes on", || {
                    !scene.is_free("x")
                });
            }
            _ => {}
        }
        let asked = scene.run(["cancel", "x", "--grace", "0s"]);
        let _ = asked.expect(0, begin);
        let (answer, took) = timed(|| held.started.finish());
        let code = if begin == "signal" { 143 } else { 79 };
        let _ = answer.expect(code, begin);
        assert!(took < Duration::from_secs(10), "{begin}: {took:?}");
    }
}

/// Every verb about one lock takes `--group`, in capitals or not, in place of its name.
#[test]
fn every_verb_about_one_lock_takes_a_group() {
    let branch = format!("Dependabot/npm_and_yarn/{}", "x".repeat(140));
    for group in ["Deploy", &branch] {
        let other = &*group.to_uppercase();
        let scene = Scene::new();
        let held = running(&scene, &["run", "-q", "--group", group], "");
        for (words, code) in [
            (&["check"][..], 4),
            (&["wait", "-n"], 4),
            (&["acquire", "-n"], 4),
            (&["release"], 6),
            (&["heartbeat"], 6),
            (&["force-release", "--yes"], 4),
            (&["fence", "check", "5"], 80),
            (&["cancel", "--request-id", "nobody"], 5),
            (&["audit"], 0),
            (&["cancel"], 0),
        ] {
            let words: Vec<_> = words.iter().copied().chain(["--group", other]).collect();
            let _ = scene.run(&words).expect(code, &format!("{words:?}"));
        }
        let _ = held.finish().expect(79, "it was cancelled");
        for (words, code) in [
            (&["check"][..], 0),
            (&["wait", "-n"], 0),
            (&["cancel"], 5),
            (&["acquire", "--owner", "none", "--request-id", "mine"], 0),
            (&["check", "--request-id", "mine"], 0),
            (&["heartbeat", "--request-id", "mine"], 0),
            (&["run", "-n", "--"], 2),
            (&["release", "--request-id", "mine"], 0),
        ] {
            let words: Vec<_> = words.iter().copied().chain(["--group", other]).collect();
            let _ = scene.run(&words).expect(code, &format!("{words:?}"));
        }
        for words in [
            &["check", "a", "--group", "b"][..],
            &["check", "--group", "b", "--path", "c"],
        ] {
            let _ = scene.run(words).expect(2, "two locks are named");
        }
    }
}

/// A group beside the records of a profile is found by a call that names no profile, by each verb.
#[test]
fn a_group_beside_records_is_found_by_each_verb() {
    let scene = Scene::new();
    let state = scene.path("state");
    let state = state.to_str().expect("UTF-8");
    let here = |words: &[&str]| {
        let mut command = scene.tenure(words);
        command.current_dir(scene.root()).env_remove("TENURE_DIR");
        command
    };
    let gate = Gate::new(&scene, "member");
    let words = [
        "--profile",
        "session",
        "--dir",
        state,
        "run",
        "-q",
        "7",
        "--group",
        "G",
        "--",
    ];
    let mut run = here(&words);
    run.args(["sh", "-c", &gate.script("")]);
    let held = Started::new(run.stdout(Stdio::piped()).stderr(Stdio::piped()));
    let _ = gate.entered();
    for (verb, code) in [
        ("check", 4),
        ("heartbeat", 6),
        ("release", 6),
        ("cancel", 0),
    ] {
        let mut call = here(&[verb, "--group", "g", "--dir", state]);
        let _ = crate::support::answer(&mut call).expect(code, verb);
    }
    let _ = held.finish().expect(79, "it was cancelled");
}

/// Two names that differ in case alone are two locks, and whoever may mean the other one is told.
#[test]
fn a_name_that_differs_in_case_alone_is_pointed_out() {
    let scene = Scene::new();
    let group = running(&scene, &["run", "-q", "--group", "Deploy"], "");
    let told = "deploy is in use and differs from Deploy in case alone";
    for words in [
        &["run", "Deploy", "--", "true"][..],
        &["run", "Deploy", "--", "true"],
        &["check", "Deploy"],
        &["wait", "Deploy", "-n"],
        &["cancel", "Deploy"],
        &["release", "Deploy"],
        &["acquire", "Deploy", "--owner", "none"],
    ] {
        let said = scene.run(words).stderr();
        assert_eq!(said.matches(told).count(), 1, "{words:?}: {said}");
    }
    let _ = scene.run(["cancel", "deploy"]).expect(0, "asked");
    let _ = group.finish().expect(79, "asked");
    let _plain = running(&scene, &["run", "-q", "Site"], "");
    for words in [
        &["cancel", "--group", "Site"][..],
        &["release", "site"],
        &["heartbeat", "site"],
        &["force-release", "site", "--yes"],
    ] {
        let told = "Site is in use and differs from site in case alone";
        let said = scene.run(words).stderr();
        assert_eq!(said.matches(told).count(), 1, "{words:?}: {said}");
    }
    for words in [
        &["run", "--group", "Site", "--", "true"][..],
        &["check", "site"],
    ] {
        let told = "Site is in use and differs from site in case alone";
        let said = scene.run(words).expect(0, "another lock").stderr();
        assert_eq!(
            said.matches(told).count(),
            usize::from(words[0] == "run"),
            "{words:?}: {said}"
        );
    }
}

/// A run that replaced the waiting one and then gives up says so: nobody waits now, and the replaced one knows who took its
/// place and may give up.
#[test]
fn a_run_that_replaced_another_and_gives_up_says_so() {
    let scene = Scene::new();
    let first = running(&scene, &["run", "-q", "--group", "g"], "");
    let words = [
        "run",
        "-q",
        "--group",
        "g",
        "--request-id",
        "r2",
        "--",
        "true",
    ];
    let second = start(&scene, &words);
    until_waits(&scene, "g", "r2");
    let words = ["run", "--group", "g", "--request-id", "r3", "-w", "300ms"];
    let mut third = scene.tenure(words);
    third.args(["--output", "json", "--", "true"]);
    let third = crate::support::answer(&mut third).expect(4, "it gives up");
    assert_eq!(
        third.json()["error"]["context"]["superseded"],
        serde_json::json!(["r2"])
    );
    let told = superseded_by(second.finish(), "r3", "replaced").stderr();
    let says = "g: a newer run of tester (request id r3) took its place in line, so this run has not begun";
    assert!(told.contains(says), "{told}");
    let words = [
        "run",
        "-q",
        "--group",
        "g",
        "--request-id",
        "r4",
        "--",
        "true",
    ];
    let fourth = start(&scene, &words);
    until_waits(&scene, "g", "r4");
    let words = ["run", "--group", "g", "-w", "300ms", "--", "true"];
    let said = scene.run(words).expect(4, "it gives up").stderr();
    assert!(
        said.contains("request id r4 made way for this call, and does not come back"),
        "{said}"
    );
    let _ = fourth.finish().expect(79, "replaced");
    let _ = first.open().expect(0, "it goes on");
}

/// A command calls about its own group by `$TENURE_GROUP`: that is the text of the group, and not the name of its lock.
#[test]
fn the_group_of_a_command_is_its_text() {
    let long = format!("CI/{}", "x".repeat(150));
    for group in ["ci/main", "Main...dev", &long] {
        let scene = Scene::new();
        let line = "test \"$TENURE_GROUP\" = \"$1\" && tenure check --group \"$TENURE_GROUP\" && \
                    tenure heartbeat --group \"$TENURE_GROUP\" && \
                    { tenure run --group \"$TENURE_GROUP\" -- true; test $? = 81; }";
        let text = group.to_lowercase();
        let words = ["run", "--group", group, "--", "sh", "-c", line, "sh", &text];
        let _ = scene.run(words).expect(0, group);
    }
}

/// A holder that no caller can end was asked, and its work goes on.
#[test]
fn holder_without_a_supervisor_makes_no_way_table() {
    let newer = ["run", "--group", "g", "--cancel-in-progress", "-w", "300ms"];
    let forced = ["run", "g", "--force", "-w", "300ms"];
    for (own_command, asks) in [(true, &newer[..]), (true, &forced[..]), (false, &newer[..])] {
        let scene = Scene::new();
        let held = own_command.then(|| running(&scene, &["run", "-q", "g", "--exec"], ""));
        if !own_command {
            let words = ["acquire", "-q", "g", "--owner", "none", "--request-id", "r"];
            let _ = scene.run(words).expect(0, "acquired");
        }
        let mut call = scene.tenure(asks);
        call.args(["--output", "json", "--", "true"]);
        let said = crate::support::answer(&mut call).expect(4, "it gives up");
        let said = format!("{}{}", said.stdout(), said.stderr());
        assert!(!said.contains("superseded"), "{said}");
        let mut call = scene.tenure(asks);
        let said = crate::support::answer(call.args(["--", "true"])).expect(4, "it gives up");
        let said = said.stderr();
        assert!(
            !said.contains("made way") && !said.contains("its grace"),
            "{said}"
        );
        let cancel = scene.run(["cancel", "g", "--grace", "0s"]);
        match held {
            Some(held) => {
                let said = cancel.expect(4, "nobody hears it").stderr();
                assert!(said.contains("has become its command (--exec)"), "{said}");
                let _ = held.open().expect(0, "it goes on");
            }
            None => {
                let _ = cancel.expect(0, "its caller may look");
            }
        }
    }
}

/// A newer run that has its group and gives up for another lock has replaced the older one all the same.
#[test]
fn a_run_that_gives_up_for_its_second_lock_says_whom_it_replaced() {
    let scene = Scene::new();
    let db = running(&scene, &["run", "-q", "db"], "");
    let words = [
        "run",
        "-q",
        "--group",
        "g",
        "--request-id",
        "old",
        "--",
        "sleep",
        "60",
    ];
    let old = start(&scene, &words);
    until_holds(&scene, "g", "old");
    let mut newer = scene.tenure(["run", "--group", "g", "db", "--cancel-in-progress"]);
    newer.args(["-w", "1s", "--output", "json", "--", "true"]);
    let newer = crate::support::answer(&mut newer).expect(4, "it gives up");
    let said = newer.json();
    assert_eq!(
        said["error"]["context"]["superseded"],
        serde_json::json!(["old"]),
        "{said:#}"
    );
    let _ = old.finish().expect(79, "ended");
    let _ = db.open().expect(0, "it goes on");
    // The document of another system stands as it is.
    let fleet = ["--profile", "fleet"];
    let intent = ["--intent-name", "i", "--intent-version", "1"];
    let words = [&fleet[..], &["acquire", "app", "--owner", "none"], &intent].concat();
    let _ = scene.run(words).expect(0, "held");
    let words = [
        &fleet[..],
        &["run", "--group", "h", "x"],
        &intent,
        &["--", "sleep", "60"],
    ];
    let old = start(&scene, &words.concat());
    eventually("the older run", || {
        scene.run(["check", "--group", "h"]).0.status.code() == Some(4)
    });
    let newer = [
        "run",
        "--group",
        "h",
        "app",
        "--cancel-in-progress",
        "-w",
        "1s",
    ];
    let words = [&fleet[..], &newer, &intent, &["--", "true"]].concat();
    let said = scene.run(words).expect(4, "it gives up").stdout();
    assert_eq!(said.lines().count(), 1, "one document: {said}");
    let _ = old.finish().expect(79, "ended");
}

/// The last instances of inotify stay for the user's other programs: a run does without one, and hears of a request to
/// stop all the same.
#[cfg(target_os = "linux")]
#[test]
fn a_run_leaves_the_last_instances_of_inotify_to_other_programs() {
    for (fails, has_one) in [("when=6", false), ("when=30+", true)] {
        let scene = Scene::new();
        let mut run = scene.program("strace");
        run.args(["-qq", "-o", "/dev/null", "-e", "trace=inotify_init1", "-e"]);
        run.args([
            &format!("inject=inotify_init1:error=EMFILE:{fails}"),
            crate::support::TENURE,
        ]);
        let words = "run -q x -- sleep 100";
        run.args(words.split(' ')).current_dir(scene.root());
        let run = Started::piped(&mut run);
        let holder = || scene.check("x")["holder"]["pid"].as_u64();
        eventually("it is held", || holder().is_some());
        let pid = holder().expect("a holder");
        let watches = || {
            let open = fs::read_dir(format!("/proc/{pid}/fd")).expect("its descriptors");
            open.flatten().any(|entry| {
                let target = fs::read_link(entry.path()).unwrap_or_default();
                target.to_string_lossy().contains("inotify")
            })
        };
        if has_one {
            eventually("it watches", watches);
        } else {
            // The waiter tries that once, soon after its start.
            throughout(Duration::from_millis(300), "it goes on", || true);
            throughout(Duration::from_millis(300), "it takes none", || !watches());
        }
        let (asked, took) = timed(|| {
            let _ = scene.run(["cancel", "x"]).expect(0, "asked");
            run.finish()
        });
        let _ = asked.expect(79, "it heard");
        assert!(took < Duration::from_secs(8), "{took:?}");
    }
}

/// All instances of inotify of this user are in use: a waiter that can be asked to stop looks again from time to time.
#[cfg(target_os = "linux")]
#[test]
fn waiter_of_a_group_needs_no_watch_table() {
    for replaced in [false, true] {
        let scene = Scene::new();
        let first = running(&scene, &["run", "-q", "--group", "g"], "");
        let mut waiter = scene.program("strace");
        waiter.args(["-f", "-qq", "-o", "/dev/null", "-e", "trace=inotify_init1"]);
        waiter.args([
            "-e",
            "inject=inotify_init1:error=EMFILE",
            crate::support::TENURE,
        ]);
        let words = "run -q --group g --request-id w -w 20s -- echo turn";
        waiter.args(words.split(' ')).current_dir(scene.root());
        let waiter = Started::piped(&mut waiter);
        until_waits(&scene, "g", "w");
        if replaced {
            let newer = start(&scene, &["run", "-q", "--group", "g", "--", "true"]);
            let _ = waiter.finish().expect(79, "replaced");
            let _ = first.open().expect(0, "the holder");
            let _ = newer.finish().expect(0, "the newest");
        } else {
            let _ = first.open().expect(0, "the holder");
            assert_eq!(waiter.finish().expect(0, "its turn").stdout(), "turn\n");
        }
    }
}
