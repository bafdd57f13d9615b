//! `top`: what a person on call looks for stands in the first screen, whatever happens to the locks.
//!
//! A frame is text here. What keys do is seen on a real terminal (`tests/terminal.rs`).

use crate::support::{Answer, Held, Scene, Started, answer, eventually};
use rustix::process::Signal;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;

/// The frame of a screen of this size.
#[track_caller]
fn framed(scene: &Scene, words: &[&str], columns: usize, lines: usize) -> String {
    let mut command = scene.tenure(["top", "--once"].iter().chain(words));
    command
        .env("COLUMNS", columns.to_string())
        .env("LINES", lines.to_string())
        .current_dir(scene.root());
    let shown = answer(&mut command).expect(0, "a frame").stdout();
    assert!(shown.lines().count() <= lines, "{lines} lines:\n{shown}");
    for line in shown.lines() {
        let width = line.chars().count();
        assert!(width <= columns, "{width} columns: {line}\n{shown}");
    }
    shown
}

/// What stands on a usual screen.
#[track_caller]
fn frame(scene: &Scene) -> String {
    framed(scene, &[], 80, 24)
}

/// Wants these lines in a frame, in this order; of each line its words.
#[track_caller]
fn has(frame: &str, lines: &[&[&str]]) {
    let mut shown = frame.lines();
    for words in lines {
        let found = shown.any(|line| words.iter().all(|word| line.contains(word)));
        assert!(found, "no line with {words:?} (in its place):\n{frame}");
    }
}

/// The first lock of a frame.
fn first(frame: &str) -> &str {
    let mut lines = frame
        .lines()
        .skip_while(|line| !line.starts_with("  STATE"));
    lines.nth(1).unwrap_or_default()
}

fn waiter(scene: &Scene, name: &str, flags: &[&str]) -> Started {
    let words = [
        &["run", name, "-q", "-w", "100"][..],
        flags,
        &["--", "true"],
    ];
    Started::piped(&mut scene.tenure(words.concat()))
}

/// Waiters, in this order.
fn line(scene: &Scene, name: &str, whys: &[&str]) -> Vec<Started> {
    let mut line = Vec::new();
    for why in whys {
        line.push(waiter(scene, name, &["--why", why]));
        scene.until_queued(name, line.len());
    }
    line
}

/// Stops a holder, and waits until that is seen.
fn stop(scene: &Scene, name: &str, held: &Held) {
    held.signal(Signal::STOP);
    eventually("it to be stopped", || {
        scene.check(name)["holder"]["stopped"] == true
    });
}

/// Many locks, held by one run.
fn many(scene: &Scene, count: usize) -> Held {
    let flags = (1..count).flat_map(|number| ["-l".to_owned(), format!("svc-{number}")]);
    let flags: Vec<_> = std::iter::once("-q".to_owned()).chain(flags).collect();
    scene.hold("svc-0", flags)
}

#[test]
fn without_a_lock_top_says_so() {
    let scene = Scene::new();
    has(&frame(&scene), &[&["0 held"], &["no locks"]]);
    let _ = scene.run(["run", "x", "--", "true"]).expect(0, "a run");
    let shown = frame(&scene);
    has(
        &shown,
        &[&["1 free"], &["no lock is held"], &["released", "x"]],
    );
}

#[test]
fn a_stopped_holder_and_its_first_waiter_come_first() {
    let scene = Scene::new();
    let _other = scene.hold("another", ["-q"]);
    let held = scene.hold("deploy", ["-q", "--actor", "ann", "--why", "release 42"]);
    let _line = line(&scene, "deploy", &["hotfix", "docs"]);
    stop(&scene, "deploy", &held);
    let shown = frame(&scene);
    has(
        &shown,
        &[
            &["1 needs a person", "2 wait, longest 0s for deploy"],
            &["stopped", "deploy", "2, 0s", "ann (PID", "release 42"],
            &["1. waits", "hotfix"],
            &["2. waits", "docs"],
            &["held", "another"],
        ],
    );
    let narrow = framed(&scene, &[], 60, 12);
    has(&narrow, &[&["stopped", "deploy"], &["1. waits", "hotfix"]]);
    held.signal(Signal::CONT);
}

#[test]
fn an_orphan_is_shown_with_the_command_that_goes_on() {
    let scene = Scene::new();
    let held = scene.hold("backup", ["-q"]);
    scene.until_named("backup");
    held.signal(Signal::KILL);
    eventually("its supervisor to be dead", || {
        scene.check("backup")["holder"]["orphaned"] == true
    });
    let goes_on = format!("command PID {} goes on", held.command);
    has(
        &frame(&scene),
        &[&["1 needs a person"], &["orphaned", "backup", &goes_on]],
    );
}

#[test]
fn forty_locks_share_a_small_screen_by_need() {
    let scene = Scene::new();
    let _oldest = scene.hold("oldest", ["-q"]);
    let _many = many(&scene, 40);
    let shown = frame(&scene);
    assert!(first(&shown).contains("oldest"), "{shown}");
    has(
        &shown,
        &[
            &["longest hold 0s oldest", "41 held"],
            &["more locks", "below"],
        ],
    );
    let held = scene.hold("stuck", ["-q"]);
    let _line = line(&scene, "stuck", &["the first", "the second"]);
    let _other = line(&scene, "svc-7", &["for seven"]);
    stop(&scene, "stuck", &held);
    let shown = frame(&scene);
    has(
        &shown,
        &[
            &["1 needs a person", "3 wait"],
            &["stopped", "stuck"],
            &["1. waits", "the first"],
            &["held", "svc-7"],
            &["1. waits", "for seven"],
            &["held", "oldest"],
            &["more locks", "below"],
        ],
    );
    let large = framed(&scene, &[], 120, 60);
    has(&large, &[&["2. waits", "the second"], &["svc-39"]]);
    assert!(!large.contains("more locks"), "{large}");
    held.signal(Signal::CONT);
}

#[test]
fn slots_pools_and_shared_holders_are_shown_one_by_one() {
    let scene = Scene::new();
    scene.write(
        "tenure.toml",
        "dir = \"locks\"\n[lock.gpu]\nmembers = [\"cuda0\", \"cuda1\"]\n",
    );
    let config = scene.path("tenure.toml");
    let config = config.to_str().unwrap();
    let _gpu = scene.hold("gpu", ["-q", "--config", config, "--why", "training"]);
    let _build =
        ["one", "two"].map(|why| scene.hold("build", ["-q", "--slots", "3", "--why", why]));
    let _read = ["a", "b"].map(|why| scene.hold("read", ["-q", "-s", "--why", why]));
    let _line = line(&scene, "read", &["writes"]);
    has(
        &frame(&scene),
        &[
            &["held", "read", "1, 0s", "2 shared holders"],
            &["shared", "(PID"],
            &["shared", "(PID"],
            &["1. waits", "writes"],
        ],
    );
    has(
        &frame(&scene),
        &[
            &["build", "2 of 3 slots held"],
            &["slot 0", "one"],
            &["slot 1", "two"],
        ],
    );
    has(
        &frame(&scene),
        &[&["gpu", "1 of 2 slots held"], &["slot 0 cuda0", "training"]],
    );
}

#[test]
fn the_run_of_a_group_and_those_behind_it_are_shown() {
    let scene = Scene::new();
    let _held = scene.hold("unused", ["-q", "--group", "Deploy", "--actor", "ann"]);
    let mut next = scene.tenure([
        "run", "-q", "--group", "Deploy", "--actor", "bob", "--", "true",
    ]);
    let _next = Started::piped(&mut next);
    eventually("a waiter", || frame(&scene).contains("1. waits"));
    has(
        &frame(&scene),
        &[&["1, 0s", "ann (PID"], &["1. waits", "bob (PID"]],
    );
}

/// What others wrote is shown, and acts on nothing.
#[test]
fn hostile_reasons_and_actors_do_not_reach_the_terminal() {
    let scene = Scene::new();
    let why = "\u{1b}[2J\u{1b}]0;owned\u{7}\u{9b}1m\r\nheld  fake\u{202e}evil";
    let _held = scene.hold("x", ["-q", "--why", why, "--actor", "a\u{1b}[31mb"]);
    let _line = line(&scene, "x", &["\u{1b}[1;1Hfirst"]);
    let shown = frame(&scene);
    let acts = |c: char| (c.is_control() && c != '\n') || c == '\u{202e}';
    assert!(!shown.contains(acts), "{shown:?}");
    assert!(
        !shown.lines().any(|line| line.starts_with("held")),
        "{shown}"
    );
    has(&shown, &[&["held", "x", "1, 0s"], &["1. waits", "first"]]);
}

#[test]
fn an_unreadable_lock_needs_a_person() {
    let scene = Scene::new();
    fs::create_dir(scene.locks()).unwrap();
    fs::set_permissions(scene.locks(), Permissions::from_mode(0o700)).unwrap();
    fs::write(scene.locks().join("torn.tenure"), "no record\n").unwrap();
    let _held = scene.hold("fine", ["-q"]);
    let shown = frame(&scene);
    assert!(first(&shown).contains("unreadable  torn"), "{shown}");
    has(&shown, &[&["1 needs a person"], &["held", "fine"]]);
}

#[test]
fn a_hold_beyond_all_earlier_ones_is_long() {
    let scene = Scene::new();
    for _ in 0..3 {
        let _ = scene
            .run(["run", "nightly", "--", "true"])
            .expect(0, "a run");
    }
    let _young = scene.hold("young", ["-q"]);
    let _held = scene.hold("nightly", ["-q"]);
    eventually("it to be held longer than before", || {
        first(&frame(&scene)).contains("long")
    });
    has(
        &frame(&scene),
        &[&["long", "nightly", "0s"], &["held", "young"]],
    );
    // Without an audit nothing is usual, and nothing happened.
    let audit = scene.path("nothing");
    let bare = framed(&scene, &["--audit-dir", audit.to_str().unwrap()], 80, 24);
    assert!(!bare.contains("long  ") && !bare.contains("LAST"), "{bare}");
}

#[test]
fn a_holder_that_was_asked_to_stop_is_ending() {
    let scene = Scene::new();
    let gate = crate::support::Gate::new(&scene, "x");
    let held = scene.hold_with("x", ["-q", "--grace", "50s"], &gate, "trap '' INT");
    let _ = scene
        .run(["cancel", "x", "--why", "a fix"])
        .expect(0, "asked");
    let shown = frame(&scene);
    has(&shown, &[&["ending", "x"], &["cancelled", "x", "a fix"]]);
    let _ = held.open();
}

/// Servers that do not answer are an error, and no empty screen.
#[test]
#[cfg(feature = "etcd")]
fn servers_that_are_not_there_are_no_empty_frame() {
    let scene = Scene::new();
    let words = ["top", "--once", "--store", "etcd://127.0.0.1:1/x"];
    let answer = scene.run(words).expect(12, "no server");
    assert_eq!(answer.stdout(), "", "no frame");
    assert!(answer.stderr().contains("refused"), "{}", answer.said());
}

#[test]
fn top_refuses_what_it_cannot_show() {
    let scene = Scene::new();
    let says = |answer: Answer, word: &str| {
        let answer = answer.expect(2, word);
        assert_eq!(answer.stdout(), "", "{word}");
        assert!(answer.stderr().contains(word), "{}", answer.said());
    };
    says(scene.run(["top"]), "`tenure top --once` prints one frame");
    says(scene.run(["top", "--interval", "1ms"]), "at least 200ms");
    let json = scene
        .run(["top", "--once", "--output", "json"])
        .expect(2, "no picture");
    let detail = json.json()["error"]["message"].to_string();
    assert!(detail.contains("tenure list --output json"), "{detail}");
    let missing = scene.run(["top", "--once", "--dir", ""]);
    assert_eq!(missing.code(), 2, "{}", missing.said());
    assert!(!scene.locks().exists(), "nothing was made");
}
