//! The line: its order, places that are kept for callers that come back, and what people see of it.

use crate::support::{Gate, Held, Scene, Started, answer, eventually, has_guard, timed};
use rustix::process::Signal;
use serde_json::Value;
use std::fs;
use std::io::Read;
use std::process::Stdio;
use std::time::Duration;

fn start(scene: &Scene, words: &[&str]) -> Started {
    let mut command = scene.tenure(words);
    command.current_dir(scene.root());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    Started::new(&mut command)
}

fn holder(scene: &Scene) -> Held {
    scene.hold("x", ["-q"])
}

/// A refusal with a ticket, as a document.
fn ticketed(scene: &Scene, ticket: &str) -> Value {
    let words = [
        "run", "x", "-w", "100ms", "--ticket", ticket, "--output", "json", "--", "true",
    ];
    scene.run(words).expect(4, "held").json()
}

fn ticket_of(document: &Value) -> String {
    let ticket = &document["error"]["context"]["ticket"];
    ticket.as_u64().expect("a ticket").to_string()
}

fn queue(scene: &Scene) -> Vec<Value> {
    let facts = scene.check("x");
    facts["queue"].as_array().cloned().unwrap_or_default()
}

/// "Newcomers never overtake": 32 waiters are served in the order in which they came.
#[test]
fn thirty_two_waiters_are_served_in_order() {
    let scene = Scene::new();
    let held = holder(&scene);
    let mut waiting = Vec::new();
    for number in 1..=32 {
        let line = format!("echo {number} >>order");
        let words = ["run", "x", "-q", "-w", "forever", "--", "sh", "-c", &line];
        waiting.push(start(&scene, &words));
        scene.until_queued("x", number);
    }
    let positions: Vec<_> = queue(&scene)
        .iter()
        .map(|waiting| waiting["position"].as_u64().unwrap())
        .collect();
    assert!(
        positions.into_iter().eq(1..=32),
        "each is shown at its place"
    );
    let _ = held.open().expect(0, "the holder");
    for one in waiting {
        let _ = one.finish().expect(0, "every turn came");
    }
    let order = fs::read_to_string(scene.path("order")).unwrap();
    let order: Vec<u32> = order.lines().map(|line| line.parse().unwrap()).collect();
    assert!(order.iter().copied().eq(1..=32), "{order:?}");
}

/// How often the kernel has let a process run that had gone to sleep.
fn wakings(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("a living waiter");
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
    line.and_then(|count| count.trim().parse().ok())
        .expect("a number")
}

/// "Hand-over wakes one waiter only." Every ten seconds a waiter looks by itself, which may fall
/// into one hand-over; so most of several have to be quiet.
#[test]
fn a_hand_over_wakes_one_waiter_and_nobody_else() {
    let scene = Scene::new();
    let mut held = holder(&scene);
    let mut waiting = Vec::new();
    for number in 1..=8 {
        let gate = Gate::new(&scene, "x");
        let script = gate.script("");
        let words = ["run", "x", "-q", "-w", "forever", "--", "sh", "-c", &script];
        waiting.push((start(&scene, &words), gate));
        scene.until_queued("x", number);
    }
    let mut quiet = 0;
    for _ in 0..4 {
        let (next, gate) = waiting.remove(0);
        // All of them sleep by now, each behind the one before it.
        eventually("the waiters to sleep", || {
            let mut all = waiting.iter();
            all.all(|(one, _)| crate::support::state(one.pid()) == Some('S'))
        });
        let count = || -> Vec<u64> { waiting.iter().map(|(one, _)| wakings(one.pid())).collect() };
        let before = count();
        let _ = held.open().expect(0, "the holder");
        let command = gate.entered();
        quiet += u32::from(count() == before);
        held = Held {
            started: next,
            command,
            gate,
        };
    }
    assert!(
        quiet >= 3,
        "only {quiet} of 4 hand-overs woke no other waiter"
    );
    let _ = held.open().expect(0, "the last of them");
    for (one, gate) in waiting {
        gate.open();
        let _ = one.finish().expect(0, "every turn came");
    }
}

/// "The refused text and the document name the ticket and say how to come back."
#[test]
fn a_refusal_with_a_ticket_names_it_and_says_how_to_come_back() {
    let scene = Scene::new();
    let held = holder(&scene);
    let document = ticketed(&scene, "auto");
    let ticket = ticket_of(&document);
    let context = &document["error"]["context"];
    assert_eq!(context["ticket_kept_ms"], 60_000, "{document}");
    let retry = document["error"]["retry_after_ms"].as_u64().unwrap();
    assert!(
        retry < 60_000,
        "a caller that comes back when told finds it: {retry}"
    );
    for verb in ["run", "acquire"] {
        let mut words = vec![verb, "x", "-w", "100ms", "--ticket", &ticket];
        if verb == "run" {
            words.extend(["--", "true"]);
        }
        let answer = scene.run(&words).expect(4, "held");
        let said = answer.stderr();
        let how = format!("kept for 1m: come back with --ticket {ticket}");
        assert!(said.contains(&how), "{verb}: {said}");
    }
    let without = scene.run(["run", "x", "-w", "100ms", "--", "true"]);
    assert!(
        !without.expect(4, "held").stderr().contains("ticket"),
        "no other caller is told of tickets"
    );
    let _ = held.open().expect(0, "the holder");
}

/// "A caller whose bounded wait ended keeps its place if it comes back within a grace with its
/// ticket", in front of the callers that came later; and while it is away it delays no other waiter.
#[test]
fn a_kept_place_stands_before_later_arrivals_and_in_nobodys_way() {
    let scene = Scene::new();
    let held = holder(&scene);
    let ticket = ticket_of(&ticketed(&scene, "auto"));
    let words = |number: &'static str| {
        let line = match number {
            "later" => "echo later >>order",
            _ => "echo first >>order",
        };
        ["run", "x", "-q", "-w", "forever", "--", "sh", "-c", line]
    };
    let later = start(&scene, &words("later"));
    scene.until_queued("x", 2);
    let shown = queue(&scene);
    assert_eq!(shown[0]["away"], true, "the place is kept: {shown:?}");
    assert_eq!(
        shown[1]["away"], false,
        "behind it another caller waits: {shown:?}"
    );
    let text = scene.run(["check", "x"]).stdout();
    assert!(text.contains("away, in line for"), "{text}");
    // The caller comes back, and stands where it stood.
    let mut back = vec!["run", "x", "-q", "-w", "forever", "--ticket", &ticket];
    back.extend(["--", "sh", "-c", "echo first >>order"]);
    let back = start(&scene, &back);
    eventually("the caller to be back", || {
        queue(&scene)
            .first()
            .is_some_and(|first| first["away"] == false)
    });
    let _ = held.open().expect(0, "the holder");
    let _ = back.finish().expect(0, "its turn came first");
    let _ = later.finish().expect(0, "then the other's");
    let order = fs::read_to_string(scene.path("order")).unwrap();
    assert_eq!(order, "first\nlater\n");

    // Reservation, it is passed over.
    let held = holder(&scene);
    let ticket = ticket_of(&ticketed(&scene, "auto"));
    let later = start(&scene, &words("later"));
    scene.until_queued("x", 2);
    let _ = held.open().expect(0, "the holder");
    let _ = later
        .finish()
        .expect(0, "no waiter waits for a caller that is away");
    let words = ["run", "x", "--ticket", &ticket, "--", "echo", "ran"];
    let answer = scene.run(words).expect(0, "and it may still come back");
    assert_eq!(answer.stdout(), "ran\n");
}

/// `--ticket auto` finds the place of its caller, from one call to the next, and `acquire` has
/// it too.
#[test]
fn auto_finds_the_callers_own_place_again() {
    let scene = Scene::new();
    let held = holder(&scene);
    let first = ticket_of(&ticketed(&scene, "auto"));
    let second = ticket_of(&ticketed(&scene, "auto"));
    assert_eq!(first, second, "the same place");
    let words = [
        "acquire", "x", "-w", "100ms", "--ticket", "auto", "--output", "json",
    ];
    let document = scene.run(words).expect(4, "held").json();
    assert_eq!(ticket_of(&document), first, "for acquire as well");
    assert_eq!(queue(&scene).len(), 1, "one place and no more");
    // Another script is another caller.
    let script = scene.script(
        "other",
        "#!/bin/sh\ntenure run x -w 100ms --ticket auto --output json -- true\nexit 0\n",
    );
    let other: Value =
        serde_json::from_str(&answer(&mut scene.program(script.to_str().unwrap())).stdout())
            .unwrap();
    assert_ne!(ticket_of(&other), first, "its own place");
    let _ = held.open().expect(0, "the holder");
    let words = ["run", "x", "--ticket", "auto", "--", "true"];
    let _ = scene.run(words).expect(0, "it has its turn");
    eventually(
        "the place of a script that has ended to be shown no more",
        || queue(&scene).is_empty(),
    );
}

/// Exit 5: no place is kept under the ticket, here or any more, or another call uses it.
#[test]
fn a_ticket_under_which_nothing_is_kept_is_answered_with_5() {
    let scene = Scene::new();
    let held = holder(&scene);
    let _ = scene.hold("y", ["-q"]);
    let ticket = ticket_of(&ticketed(&scene, "auto"));
    let refused = |name: &str, ticket: &str| {
        let words = [
            "run", name, "-w", "1s", "--ticket", ticket, "--output", "json", "--", "touch", "ran",
        ];
        let document = scene.run(words).expect(5, "nothing is kept").json();
        assert_eq!(document["error"]["code"], "TICKET_NOT_FOUND", "{document}");
    };
    refused("x", "1");
    refused("z", "1");
    refused("y", &ticket);
    // Two callers with one ticket: the second is told.
    let mut words = vec!["run", "x", "-q", "-w", "forever", "--ticket", &ticket];
    words.extend(["--", "true"]);
    let back = start(&scene, &words);
    eventually("the caller to be back", || {
        queue(&scene)
            .first()
            .is_some_and(|first| first["away"] == false)
    });
    refused("x", &ticket);
    assert_eq!(queue(&scene).len(), 1, "and has taken no place");
    let _ = held.open().expect(0, "the holder");
    let _ = back.finish().expect(0, "its turn came");
    refused("x", &ticket);
    assert!(!scene.path("ran").exists(), "nothing was run");
}

/// "An agent that polls with bounded waits is not starved" by loopers that come back at once,
/// although none of its waits is long enough for one hold.
#[test]
fn whoever_polls_with_a_ticket_is_not_starved_by_loopers() {
    let scene = Scene::new();
    let root = scene.root().display();
    let looper = format!(
        "while [ -d '{root}' ] && [ ! -e '{root}/end' ]; do tenure run x -q -w forever -- sleep \
         0.15; done"
    );
    let loopers: Vec<_> = (0..3)
        .map(|_| {
            let mut command = scene.program("sh");
            command.args(["-c", &looper]);
            Started::new(&mut command)
        })
        .collect();
    scene.until_queued("x", 2);
    let words = |ticket: &'static [&'static str]| {
        let words = ["run", "x", "-q", "-w", "100ms"];
        let mut words = words.to_vec();
        words.extend(ticket);
        words.extend(["--", "true"]);
        words
    };
    let mut tries = 0;
    let ((), took) = timed(|| {
        eventually("the turn of the caller that polls", || {
            tries += 1;
            scene.run(words(&["--ticket", "auto"])).code() == 0
        });
    });
    fs::write(scene.path("end"), "").unwrap();
    for mut one in loopers {
        let _ = one.end();
    }
    assert!(tries <= 40, "{tries} tries, {took:?}");
}

/// The message of a wait counts the waiters before the caller, and not the holders.
#[test]
fn the_place_in_line_counts_who_waits_and_not_who_holds() {
    let scene = Scene::new();
    for flags in [&[][..], &["--slots", "2"], &["--shared"]] {
        // Two hold beside each other where they may.
        let mut held = vec![scene.hold("x", ["-q"].iter().chain(flags))];
        if !flags.is_empty() {
            held.push(scene.hold("x", ["-q"].iter().chain(flags)));
        }
        let mut waiting = Vec::new();
        for (number, place) in ["next in line", "place 2 in line", "place 3 in line"]
            .into_iter()
            .enumerate()
        {
            // Behind shared holders it is the exclusive one that waits.
            let own: &[&str] = if flags == ["--shared"] { &[] } else { flags };
            let words = ["run", "x", "-w", "forever"].iter().chain(own);
            let words: Vec<&str> = words.chain(&["--", "true"]).copied().collect();
            let mut one = start(&scene, &words);
            scene.until_queued("x", number + 1);
            let mut said = String::new();
            while !said.contains('\n') {
                let mut byte = [0];
                one.stderr().read_exact(&mut byte).expect("its line");
                said.push(char::from(byte[0]));
            }
            assert!(said.contains(place), "{flags:?}: {place}: {said}");
            waiting.push(one);
        }
        for one in held {
            let _ = one.open().expect(0, "a holder");
        }
        for one in waiting {
            let _ = one.finish().expect(0, "every turn came");
        }
    }
}

/// "`check`, `list` and the waiting message show who waits, since when, the position"; and the dead
/// are not shown as if they waited.
#[test]
fn check_and_list_show_the_living_who_wait() {
    let scene = Scene::new();
    let held = holder(&scene);
    let words = |why| {
        [
            "run", "x", "-q", "-w", "forever", "--why", why, "--", "true",
        ]
    };
    let dead = start(&scene, &words("the dead"));
    scene.until_queued("x", 1);
    let living = start(&scene, &words("the living"));
    scene.until_queued("x", 2);
    let pids = [dead.pid(), living.pid()];
    let shown = queue(&scene);
    for (waiting, (pid, position)) in shown.iter().zip(pids.into_iter().zip(1..)) {
        assert_eq!(waiting["pid"], pid, "{shown:?}");
        assert_eq!(waiting["position"], position, "{shown:?}");
        assert!(waiting["since"].is_string(), "{shown:?}");
        assert!(waiting["waiting_ms"].is_u64(), "{shown:?}");
    }
    dead.signal(Signal::KILL);
    drop(dead);
    eventually("the dead to be shown no more", || queue(&scene).len() == 1);
    let shown = queue(&scene);
    assert_eq!(shown[0]["pid"], living.pid(), "{shown:?}");
    assert_eq!(shown[0]["position"], 1, "{shown:?}");
    let text = scene.run(["check", "x"]).stdout();
    assert!(
        text.contains("1. PID") && text.contains("the living"),
        "{text}"
    );
    assert!(!text.contains("the dead"), "{text}");
    let list = scene.run(["list", "-q"]).stdout();
    let row: Vec<&str> = list.lines().nth(1).unwrap().split_whitespace().collect();
    assert!(row.contains(&"1"), "one waits: {list}");
    assert_eq!(list.lines().count(), 2, "one line per lock: {list}");
    let list = scene.run(["list"]).stdout();
    let line = list.lines().nth(2).unwrap_or_default();
    assert!(
        line.contains("1. PID") && line.contains("waiting for") && line.contains("the living"),
        "{list}"
    );
    let _ = held.open().expect(0, "the holder");
    let _ = living.finish().expect(0, "its turn came");
}

/// No waiter waits behind killed ones, whichever and however many were killed.
#[test]
fn dead_waiters_never_block_the_line() {
    let scene = Scene::new();
    let held = holder(&scene);
    let words = ["run", "x", "-q", "-w", "forever", "--", "true"];
    let mut waiting: Vec<Option<Started>> = Vec::new();
    for number in 1..=8 {
        waiting.push(Some(start(&scene, &words)));
        scene.until_queued("x", number);
    }
    for index in [0, 1, 3, 6] {
        let one = waiting[index].take().unwrap();
        one.signal(Signal::KILL);
        drop(one);
    }
    let _ = held.open().expect(0, "the holder");
    let ((), took) = timed(|| {
        for one in waiting.into_iter().flatten() {
            let _ = one.finish().expect(0, "every living one's turn came");
        }
    });
    // A waiter that only looks by itself does so every ten seconds.
    assert!(took < Duration::from_secs(9), "{took:?}");
}

/// A waiter that was killed has held nothing.
#[test]
fn a_dead_waiter_is_not_said_to_have_held_the_lock() {
    let scene = Scene::new();
    let held = holder(&scene);
    let waiting = start(&scene, &["run", "x", "-q", "-w", "forever", "--", "true"]);
    scene.until_queued("x", 1);
    waiting.signal(Signal::KILL);
    drop(waiting);
    let _ = held.open().expect(0, "the holder");
    let said = scene.run(["check", "x"]).expect(0, "it is free").stdout();
    assert!(said.starts_with("x is free"), "{said}");
    assert!(!said.contains("releasing it"), "{said}");
}

/// A waiter that is stopped, next in line without a holder before it: that one has ended.
fn stopped_next(scene: &Scene) -> Started {
    let held = holder(scene);
    let words = [
        "run",
        "x",
        "-q",
        "-w",
        "forever",
        "--",
        "sh",
        "-c",
        "echo old >>order",
    ];
    let waiting = start(scene, &words);
    scene.until_queued("x", 1);
    // The claim is seen before the waiter has released the guard. A waiter that is stopped with the guard is
    // another case.
    eventually("it is stopped without the guard", || {
        waiting.signal(Signal::STOP);
        eventually("it is stopped", || {
            crate::support::state(waiting.pid()) == Some('T')
        });
        let is_out = !has_guard(waiting.pid());
        if !is_out {
            waiting.signal(Signal::CONT);
        }
        is_out
    });
    let _ = held.open().expect(0, "the holder");
    waiting
}

fn goes_on(waiting: Started, code: i32) {
    waiting.signal(Signal::CONT);
    let _ = waiting.finish().expect(code, "it went on");
}

fn order(scene: &Scene) -> String {
    fs::read_to_string(scene.path("order")).unwrap_or_default()
}

#[test]
fn a_stopped_waiter_is_named_and_lets_others_pass_after_its_grace() {
    let scene = Scene::new();
    let waiting = stopped_next(&scene);
    let pid = waiting.pid();
    let facts = scene.check("x");
    assert_eq!(facts["standing"], "held", "{facts}");
    assert_eq!(facts["holder"]["pid"], pid, "{facts}");
    assert_eq!(facts["holder"]["token"], Value::Null, "{facts}");
    assert_eq!(facts["standstill"]["pid"], pid, "{facts}");
    let rest = facts["standstill"]["stands_aside_in_ms"].as_u64().unwrap();
    assert!(rest <= 10_000, "{facts}");
    let sentence = format!("not held: PID {pid}");
    for words in [&["check", "x"][..], &["run", "x", "-n", "--", "true"]] {
        let answer = scene.run(words).expect(4, "it has its turn");
        let said = answer.stdout() + &answer.stderr();
        assert!(said.contains(&sentence), "{words:?}: {said}");
        assert!(
            said.contains("next in line and stopped"),
            "{words:?}: {said}"
        );
    }

    let line = "echo new >>order";
    let words = ["run", "x", "-q", "-w", "60s", "--", "sh", "-c", line];
    let mut command = scene.tenure(words);
    command.current_dir(scene.root());
    let (passed, took) = timed(|| answer(&mut command));
    let _ = passed.expect(0, "it passes after the grace");
    assert!(took < Duration::from_secs(30), "{took:?}");

    let facts = scene.check("x");
    assert_eq!(facts["standing"], "free", "{facts}");
    assert_eq!(facts["queue"][0]["stopped"], true, "{facts}");
    let (at_once, took) = timed(|| scene.run(["run", "x", "-n", "--", "true"]));
    let _ = at_once.expect(0, "who was passed once grants no grace again");
    assert!(took < Duration::from_secs(8), "{took:?}");

    // The waiter goes on while another holds, and waits for it at its old place.
    let held = holder(&scene);
    waiting.signal(Signal::CONT);
    let newer = start(
        &scene,
        &["run", "x", "-q", "-w", "60s", "--", "sh", "-c", line],
    );
    scene.until_queued("x", 2);
    assert_eq!(order(&scene), "new\n");
    let _ = held.open().expect(0, "the holder");
    goes_on(waiting, 0);
    let _ = newer.finish().expect(0, "behind it");
    assert_eq!(order(&scene), "new\nold\nnew\n");
}

#[test]
fn cancel_reaches_a_stopped_waiter_that_is_next() {
    let scene = Scene::new();
    let waiting = stopped_next(&scene);
    let asked = scene.run(["cancel", "x", "--output", "json"]);
    let asked = asked.expect(0, "it is asked").json();
    let asked = &asked["data"]["asked"][0];
    assert_eq!(asked["pid"], waiting.pid(), "{asked}");
    assert_eq!(asked["token"], Value::Null, "{asked}");
    assert!(scene.is_free("x"));
    let _ = scene
        .run(["run", "x", "-n", "--", "true"])
        .expect(0, "it stands aside at once");
    goes_on(waiting, 79);
    assert_eq!(order(&scene), "", "it never ran");
}

#[test]
fn force_passes_a_stopped_waiter_at_once_and_it_keeps_its_place() {
    let scene = Scene::new();
    for words in [
        &["run", "x", "--force", "-n", "--", "true"][..],
        &[
            "acquire",
            "x",
            "--force",
            "-n",
            "--owner",
            "none",
            "--request-id",
            "req_1",
        ],
    ] {
        let waiting = stopped_next(&scene);
        let (forced, took) = timed(|| scene.run(words));
        let _ = forced.expect(0, "no holder is at work");
        assert!(took < Duration::from_secs(8), "{took:?}");
        if words[0] == "acquire" {
            let released = scene.run(["release", "x", "--request-id", "req_1"]);
            let _ = released.expect(0, "its own");
        }
        goes_on(waiting, 0);
    }
    let waiting = stopped_next(&scene);
    let released = scene.run(["force-release", "x", "--yes"]);
    let released = released.expect(0, "it says what it did");
    let said = released.stdout();
    assert!(said.contains(&format!("PID {}", waiting.pid())), "{said}");
    assert!(said.contains("keeps its place"), "{said}");
    let _ = scene
        .run(["run", "x", "-n", "--", "true"])
        .expect(0, "others pass from now on");
    goes_on(waiting, 0);
    assert_eq!(order(&scene), "old\nold\nold\n");
}

/// A process that is stopped while it holds is a holder.
#[test]
fn a_stopped_holder_still_holds() {
    let scene = Scene::new();
    let held = holder(&scene);
    held.signal(Signal::STOP);
    eventually("it is stopped", || {
        crate::support::state(held.pid()) == Some('T')
    });
    let facts = scene.check("x");
    assert_eq!(facts["standing"], "held", "{facts}");
    assert_eq!(facts["holder"]["stopped"], true, "{facts}");
    assert!(facts["holder"]["token"].is_u64(), "{facts}");
    assert_eq!(facts["standstill"], Value::Null, "{facts}");
    let said = scene.run(["check", "x"]).expect(4, "held").stdout();
    assert!(said.contains("stopped (`kill -CONT "), "{said}");
    held.signal(Signal::CONT);
    let _ = held.open().expect(0, "the holder");
}
