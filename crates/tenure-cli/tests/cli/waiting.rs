//! Waiting: bounded, in order, ended by a release, and told about.

use crate::support::{Held, Scene, Started, answer, eventually, throughout, timed};
use rustix::process::Signal;
use std::io::Read;
use std::process::Stdio;
use std::time::Duration;

fn waiter(scene: &Scene, words: &[&str]) -> Started {
    let mut command = scene.tenure(words);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    Started::new(&mut command)
}

fn pid(held: &Held) -> String {
    format!("PID {}", held.pid())
}

/// The promise is less than 50 ms; a busy machine is given ten times that.
#[test]
#[allow(clippy::print_stderr, reason = "the measured time is worth a look")]
fn a_bounded_wait_ends_in_time() {
    let scene = Scene::new();
    let holder = scene.hold("x", ["-q"]);
    for (words, asked) in [
        (&["run", "x", "-w", "1", "--", "echo", "ran"][..], 1_000),
        (&["run", "x", "--wait", "300ms", "--", "echo", "ran"], 300),
        (&["acquire", "x", "--wait", "0.5"], 500),
        (&["wait", "x", "--wait", "400ms"], 400),
    ] {
        let (answer, took) = timed(|| scene.run(words));
        let answer = answer.expect(4, "held all the time");
        assert_eq!(answer.stdout(), "", "nothing was done");
        let asked = Duration::from_millis(asked);
        assert!(took >= asked, "{words:?} gave up early, after {took:?}");
        let over = took.saturating_sub(asked);
        eprintln!("{words:?} ended {over:?} after its time");
        assert!(
            over < Duration::from_millis(500),
            "{words:?} ended {over:?} late"
        );
    }
    let _ = holder.open().expect(0, "the holder");
}

/// A wait reads the list alone, and looks at the holder's process beside it.
#[test]
fn wait_says_that_its_holder_is_stopped_and_so_does_a_release_by_another() {
    let scene = Scene::new();
    let holder = scene.hold("x", ["-q"]);
    holder.signal(Signal::STOP);
    eventually("it to be stopped", || {
        scene.check("x")["holder"]["stopped"] == true
    });
    let continues = format!("kill -CONT {}", holder.pid());
    let stopped = format!("stopped (`{continues}` continues it)");
    for words in [
        &["run", "x", "-w", "300ms", "--", "true"][..],
        &["acquire", "x", "-w", "300ms"],
        &["wait", "x", "-w", "300ms"],
    ] {
        let said = scene.run(words).expect(4, "held").stderr();
        let first = said.lines().next().unwrap_or_default();
        assert!(first.contains("waiting"), "{words:?}: {said}");
        assert!(first.contains(&stopped), "{words:?}: {said}");
    }
    let release = [
        "release",
        "x",
        "--request-id",
        "another",
        "--output",
        "json",
    ];
    let said = scene.run(release).expect(6, "of another").json();
    assert_eq!(said["error"]["fix_command"], continues, "{said}");
    holder.signal(Signal::CONT);
    let _ = holder.open().expect(0, "the holder");
}

#[test]
fn a_refusal_says_who_since_when_why_and_what_to_do() {
    let scene = Scene::new();
    let holder = scene.hold("x", ["--why", "moving the data"]);
    // No hold of it has ended yet, so nothing tells when it is free.
    for (words, wait) in [
        (
            &["run", "x", "-n", "--", "true"][..],
            "wait for it with --wait 1m, or look with `tenure check x`",
        ),
        (
            &["run", "x", "-w", "200ms", "--", "true"],
            "wait longer with --wait, or look",
        ),
        (
            &["acquire", "x", "-w", "200ms"],
            "wait longer with --wait, or look",
        ),
        (
            &["wait", "x", "-w", "200ms"],
            "wait longer with --wait, or look",
        ),
    ] {
        let answer = scene.run(words).expect(4, "held");
        let said = answer.stderr();
        let facts = [
            pid(&holder),
            "tester@".into(),
            "since 20".into(),
            " ago".into(),
        ];
        for fact in facts
            .iter()
            .map(String::as_str)
            .chain(["moving the data", wait])
        {
            assert!(said.contains(fact), "{words:?} says `{fact}`: {said}");
        }
        let last: Vec<_> = said.lines().rev().take(2).collect();
        let last = last.concat();
        assert!(
            last.contains(wait) && !last.contains("try again in about"),
            "what to do stands at the end: {said}"
        );
    }
    let _ = holder.open().expect(0, "the holder");
}

/// Whatever the clock shows when the time is up, and however much of it went by before the lock in the way was asked for.
#[test]
fn what_the_caller_said_is_how_long_it_waited() {
    let scene = Scene::new();
    let holder = scene.hold("x", ["-q"]);
    for (words, wait) in [
        (&["run", "x", "--wait", "1.05s", "--", "true"][..], "1.05s"),
        (
            &["run", "a", "--lock", "x", "--wait", "40ms", "--", "true"],
            "40ms",
        ),
        (&["acquire", "x", "--wait", "0.04"], "40ms"),
        (&["wait", "x", "--wait", "40ms"], "40ms"),
    ] {
        let said = scene.run(words).expect(4, "held all the time").stderr();
        let waited = format!("        waited {wait}; wait longer with --wait, ");
        assert!(said.contains(&waited), "{words:?}: {said}");
        let end = words.iter().position(|word| *word == "--");
        let (before, after) = words.split_at(end.unwrap_or(words.len()));
        let as_json = [before, &["--output", "json"], after].concat();
        let answer = scene.run(as_json).expect(4, "held all the time");
        let document = if answer.stdout().is_empty() {
            answer.stderr()
        } else {
            answer.stdout()
        };
        let sentence = format!("timed out after {wait}\"");
        assert!(document.contains(&sentence), "{words:?}: {document}");
    }
    let _ = holder.open().expect(0, "the holder");
}

#[test]
fn a_wait_off_a_terminal_is_told_at_once_in_one_line() {
    let scene = Scene::new();
    let holder = scene.hold("x", ["--why", "moving the data"]);
    let mut waiting = waiter(&scene, &["run", "x", "--", "echo", "ran"]);
    scene.until_queued("x", 1);
    let mut first = [0; 8];
    waiting
        .stderr()
        .read_exact(&mut first)
        .expect("a line while it waits");
    let _ = holder.open().expect(0, "the holder");
    let answer = waiting.finish().expect(0, "its turn came");
    assert_eq!(answer.stdout(), "ran\n");
    let said = answer.stderr();
    assert_eq!(said.lines().count(), 1, "one line and no more: {said}");
    for fact in ["moving the data", "next in line", "waiting up to 10s"] {
        assert!(said.contains(fact), "`{fact}` is said: {said}");
    }
    assert!(
        !said.contains('\u{1b}'),
        "and nothing for a terminal: {said:?}"
    );
}

#[test]
fn a_release_ends_a_wait_without_limit() {
    let scene = Scene::new();
    let holder = scene.hold("x", ["-q"]);
    let mut waiting = waiter(
        &scene,
        &["run", "x", "-q", "--wait", "forever", "--", "echo", "ran"],
    );
    scene.until_queued("x", 1);
    assert!(!waiting.has_ended(), "it waits");
    let _ = holder.open().expect(0, "the holder");
    let answer = waiting.finish().expect(0, "its turn came");
    assert_eq!(answer.stdout(), "ran\n");
}

#[test]
fn the_line_is_served_in_order() {
    let scene = Scene::new();
    let holder = scene.hold("x", ["-q"]);
    let mut waiting = Vec::new();
    for number in 1..=5 {
        let line = format!("echo {number} >>order");
        let mut command = scene.tenure(["run", "x", "-q", "--wait", "forever", "--", "sh", "-c"]);
        command.arg(line).current_dir(scene.root());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        waiting.push(Started::new(&mut command));
        scene.until_queued("x", number);
    }
    let queue = scene.check("x")["queue"].clone();
    let positions: Vec<_> = queue
        .as_array()
        .unwrap()
        .iter()
        .map(|w| w["position"].as_u64())
        .collect();
    assert_eq!(
        positions,
        [1, 2, 3, 4, 5].map(Some),
        "the queue is shown in order"
    );
    let _ = holder.open().expect(0, "the holder");
    for one in waiting {
        let _ = one.finish().expect(0, "every turn came");
    }
    let order = std::fs::read_to_string(scene.path("order")).unwrap();
    assert_eq!(order, "1\n2\n3\n4\n5\n", "first come, first served");
}

/// No caller waits behind a waiter that has gone.
#[test]
fn whoever_gives_up_or_dies_leaves_the_line() {
    let scene = Scene::new();
    let holder = scene.hold("x", ["-q"]);
    let killed = waiter(&scene, &["run", "x", "-w", "forever", "--", "true"]);
    scene.until_queued("x", 1);
    let short = waiter(&scene, &["run", "x", "-w", "200ms", "--", "true"]);
    let last = waiter(
        &scene,
        &["run", "x", "-q", "-w", "forever", "--", "echo", "ran"],
    );
    let _ = short.finish().expect(4, "its time was up");
    killed.signal(Signal::KILL);
    drop(killed);
    let _ = holder.open().expect(0, "the holder");
    let answer = last.finish().expect(0, "its turn came");
    assert_eq!(answer.stdout(), "ran\n");
    assert_eq!(
        answer.stderr(),
        "",
        "a dead waiter is passed over without a word"
    );
}

#[test]
fn the_wait_comes_from_the_flag_the_environment_or_the_default() {
    let scene = Scene::new();
    let holder = scene.hold("x", ["-q"]);
    let with =
        |words: &[&str], wait: &str| timed(|| answer(scene.tenure(words).env("TENURE_WAIT", wait)));
    let (answer, took) = with(&["run", "x", "--", "true"], "0");
    let _ = answer.expect(4, "held");
    assert!(
        took < Duration::from_secs(5),
        "the environment says not to wait; it took {took:?}"
    );
    let (answer, took) = with(&["run", "x", "--wait", "0", "--", "true"], "forever");
    let _ = answer.expect(4, "held");
    assert!(
        took < Duration::from_secs(5),
        "the flag wins; it took {took:?}"
    );
    let (answer, took) = with(&["run", "x", "-n", "--", "true"], "forever");
    let _ = answer.expect(4, "held");
    assert!(
        took < Duration::from_secs(5),
        "and so does -n; it took {took:?}"
    );
    let _ = holder.open().expect(0, "the holder");
}

#[test]
fn wait_returns_when_the_lock_is_free_and_takes_nothing() {
    let scene = Scene::new();
    let answer = scene.run(["wait", "x"]).expect(0, "it has no holder");
    assert_eq!(answer.stdout(), "x is free\n");
    assert!(!scene.locks().exists(), "and nothing was created");

    let holder = scene.hold("x", ["-q"]);
    let mut waiting = waiter(&scene, &["wait", "x", "--wait", "forever"]);
    throughout(Duration::from_millis(200), "it waits", || {
        !waiting.has_ended()
    });
    assert_eq!(
        scene.check("x")["queue"].as_array().map(Vec::len),
        Some(0),
        "a caller that only looks blocks no other"
    );
    let _ = holder.open().expect(0, "the holder");
    let answer = waiting.finish().expect(0, "it is free");
    assert_eq!(answer.stdout(), "x is free\n");
    assert!(scene.is_free("x"), "nothing was taken");
}

#[test]
fn wait_waits_for_a_detached_hold_and_for_its_owners_death() {
    let scene = Scene::new();
    for freed_by in ["release", "death", "ttl"] {
        let mut owner = Started::new(scene.program("sleep").arg("600"));
        let by = owner.pid().to_string();
        let (by, ttl) = if freed_by == "ttl" {
            ("none", "700ms")
        } else {
            (by.as_str(), "1h")
        };
        let words = [
            "acquire",
            "x",
            "--owner",
            by,
            "--ttl",
            ttl,
            "--request-id",
            "r",
        ];
        let _ = scene.run(words).expect(0, "acquired");
        let mut waiting = waiter(&scene, &["wait", "x", "--wait", "forever"]);
        // On a slow machine the time of the hold may be over by now.
        if freed_by != "ttl" {
            throughout(Duration::from_millis(200), "it waits", || {
                !waiting.has_ended()
            });
        }
        match freed_by {
            "release" => {
                let _ = scene
                    .run(["release", "x", "--request-id", "r"])
                    .expect(0, "released");
            }
            "death" => owner.signal(Signal::KILL),
            _ => {}
        }
        // A child that has died and was not collected yet is dead all the same.
        let _ = waiting.finish().expect(0, freed_by);
        assert!(
            !owner.has_ended() || freed_by == "death",
            "the owner is not ours to end"
        );
        let _ = scene.run(["release", "x", "--request-id", "r"]);
    }
}

#[test]
fn a_lock_file_that_is_deleted_while_somebody_waits_does_not_leave_it_waiting() {
    let scene = Scene::new();
    let holder = scene.hold("x", ["-q", "--grace", "100ms"]);
    let waiting = waiter(
        &scene,
        &["run", "x", "-q", "--wait", "forever", "--", "echo", "ran"],
    );
    scene.until_queued("x", 1);
    std::fs::rename(scene.locks().join("x.tenure"), scene.path("gone")).unwrap();
    let _ = holder
        .finish()
        .expect(80, "its holder lost it, and its command was ended");
    let answer = waiting
        .finish()
        .expect(0, "the waiter queued again and got it");
    assert_eq!(answer.stdout(), "ran\n");
}

#[test]
fn the_loss_of_a_lock_ends_the_work_and_is_told() {
    let scene = Scene::new();
    let holder = scene.hold("x", [] as [&str; 0]);
    let command = holder.command;
    std::fs::rename(scene.locks().join("x.tenure"), scene.path("gone")).unwrap();
    let answer = holder.finish().expect(80, "lost");
    eventually("the command to be gone", || {
        !crate::support::is_alive(command)
    });
    assert!(
        answer.stderr().contains("lost"),
        "it is said: {}",
        answer.said()
    );
}

#[test]
fn many_callers_get_their_turn_one_after_the_other() {
    let scene = Scene::new();
    scene.write("count", "0\n");
    // Without a lock this loses counts: read, pause, write.
    let line = "read n <count; sleep 0.002; echo $((n + 1)) >count";
    let callers: Vec<_> = (0..20)
        .map(|_| {
            let mut command = scene.tenure(["run", "x", "-q", "-w", "60", "--", "sh", "-c", line]);
            command.current_dir(scene.root());
            command.stdout(Stdio::null()).stderr(Stdio::piped());
            Started::new(&mut command)
        })
        .collect();
    for caller in callers {
        let _ = caller.finish().expect(0, "every turn came");
    }
    let count = std::fs::read_to_string(scene.path("count")).unwrap();
    assert_eq!(count, "20\n", "no two were inside together");
}
