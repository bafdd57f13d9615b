//! More than one: shared holders, slots, several locks at once, runs inside runs, and circles of
//! waits between them.

use crate::support::{Gate, Scene, Started, eventually, read_lines, send, throughout, timed};
use rustix::process::Signal;
use serde_json::Value;
use std::fs;
use std::process::Stdio;
use std::time::Duration;
use tenure_os::clock::instant;

fn start(scene: &Scene, words: &[&str]) -> Started {
    let mut command = scene.tenure(words);
    command.current_dir(scene.root());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    Started::new(&mut command)
}

/// How many hold a lock, as `check` shows it.
fn holders(facts: &Value) -> usize {
    let others = facts["other_holders"].as_array().map_or(0, Vec::len);
    others + usize::from(facts["holder"].is_object() && facts["standing"] == "held")
}

/// Reads a file that a command writes.
fn written(scene: &Scene, file: &str) -> String {
    read_lines(&scene.path(file))
}

/// Readers go together, and none of them overtakes a writer that waits.
#[test]
fn shared_holders_go_together_and_a_writer_is_not_starved() {
    let scene = Scene::new();
    let one = scene.hold("x", ["-q", "--shared"]);
    let two = scene.hold("x", ["-q", "-s"]);
    let facts = scene.check("x");
    assert_eq!(holders(&facts), 2, "{facts}");
    assert_eq!(facts["holder"]["mode"], "shared", "{facts}");
    let line = "echo writer >>order";
    let words = ["run", "-q", "-w", "forever", "x", "--", "sh", "-c", line];
    let writer = start(&scene, &words);
    scene.until_queued("x", 1);
    let line = "echo reader >>order";
    let words = [
        "run", "-q", "-w", "forever", "-s", "x", "--", "sh", "-c", line,
    ];
    let readers = [start(&scene, &words), start(&scene, &words)];
    scene.until_queued("x", 3);
    let _ = scene
        .run(["run", "x", "-n", "--shared", "--", "true"])
        .expect(4, "a caller that would overtake the writer is refused");
    let _ = one.open().expect(0, "the first");
    scene.until_queued("x", 3);
    let _ = two.open().expect(0, "the last of the readers before it");
    let _ = writer.finish().expect(0, "its turn came");
    for reader in readers {
        let _ = reader.finish().expect(0, "and theirs");
    }
    assert_eq!(written(&scene, "order"), "writer\nreader\nreader\n");
}

/// The hold of another reader is not in the way of a reader.
#[test]
fn a_reader_is_told_of_the_writer_before_it() {
    let scene = Scene::new();
    let one = scene.hold("x", ["-q", "--shared"]);
    let words = ["run", "-q", "-w", "forever", "x", "--", "true"];
    let writer = start(&scene, &words);
    scene.until_queued("x", 1);
    let pid = scene.check("x")["queue"][0]["pid"].clone();
    for words in [
        &["run", "x", "-n", "-s", "--output", "json", "--", "true"][..],
        &[
            "run", "x", "-w", "100ms", "-s", "--output", "json", "--", "true",
        ],
        &["check", "x", "-s", "--output", "json"],
        &["wait", "x", "-n", "-s", "--output", "json"],
    ] {
        let said = scene.run(words);
        let error = said.json()["error"].take();
        let context = &error["context"];
        assert_eq!(context["ahead"]["pid"], pid, "{words:?}: {error}");
        assert_eq!(context["holder"]["mode"], "shared", "{words:?}: {error}");
        let message = error["message"].as_str().expect("a message");
        let ahead = format!(", and PID {pid} waits before this call");
        assert!(message.contains(&ahead), "{words:?}: {message}");
    }
    let said = scene.run(["run", "x", "-n", "-s", "--", "true"]);
    assert!(
        said.stderr().contains("waits before you"),
        "{}",
        said.stderr()
    );
    // Whoever would hold alone waits for the holder.
    let said = scene.run(["run", "x", "-n", "--output", "json", "--", "true"]);
    assert!(said.json()["error"]["context"]["ahead"].is_null());
    let _ = one.open().expect(0, "the reader");
    let _ = writer.finish().expect(0, "its turn came");
}

/// A caller that is one of several holders is told about its own hold.
#[test]
fn each_of_several_detached_holders_finds_beats_and_releases_its_own() {
    let scene = Scene::new();
    for id in ["a", "b"] {
        let words = [
            "acquire",
            "x",
            "--shared",
            "--owner",
            "none",
            "--request-id",
            id,
        ];
        let _ = scene.run(words).expect(0, "shared");
    }
    for id in ["a", "b"] {
        let words = ["check", "x", "--request-id", id, "--output", "json"];
        let document = scene.run(words).expect(0, "mine").json();
        assert_eq!(document["data"]["mine"], true, "{document}");
        assert_eq!(document["data"]["holder"]["request_id"], id, "{document}");
        assert_eq!(holders(&document["data"]), 2, "{document}");
        let words = ["heartbeat", "x", "--request-id", id];
        let _ = scene.run(words).expect(0, "its own");
    }
    let _ = scene
        .run(["release", "x", "--request-id", "a"])
        .expect(0, "its own");
    let facts = scene.check("x");
    assert_eq!(
        facts["holder"]["request_id"], "b",
        "the other stays: {facts}"
    );
    let _ = scene
        .run(["release", "x", "--request-id", "b"])
        .expect(0, "its own");
    assert!(scene.is_free("x"));
}

/// N at a time and never more, however many want it.
#[test]
fn slots_let_so_many_in_and_no_more() {
    let scene = Scene::new();
    let line = "mkdir in.$$; ls -d in.* | wc -l >>counts; sleep 0.05; rmdir in.$$";
    let words = [
        "run", "-q", "-w", "forever", "x", "--slots", "3", "--", "sh", "-c", line,
    ];
    let callers: Vec<_> = (0..15).map(|_| start(&scene, &words)).collect();
    for caller in callers {
        let _ = caller.finish().expect(0, "every turn came");
    }
    let counts: Vec<u32> = written(&scene, "counts")
        .lines()
        .map(|line| line.trim().parse().unwrap())
        .collect();
    assert_eq!(counts.len(), 15);
    assert!(counts.iter().all(|count| *count <= 3), "{counts:?}");
    let most = counts.iter().max().unwrap();
    assert!(*most > 1, "and they do go beside each other: {counts:?}");
}

/// "Dead holders free their slot at once": the best of a few tries counts, for a busy machine may
/// be slow.
#[test]
fn a_killed_holder_of_a_slot_frees_it_within_a_second() {
    let mut best = Duration::MAX;
    for _ in 0..4 {
        let scene = Scene::new();
        let killed = scene.hold("x", ["-q", "--slots", "2"]);
        let other = scene.hold("x", ["-q", "--slots", "2"]);
        let words = [
            "run", "-q", "-w", "forever", "x", "--slots", "2", "--", "echo", "ran",
        ];
        let next = start(&scene, &words);
        scene.until_queued("x", 1);
        killed.signal(Signal::KILL);
        send(killed.command, Signal::KILL);
        let (answer, took) = timed(|| next.finish());
        let answer = answer.expect(0, "a slot is free");
        assert_eq!(answer.stdout(), "ran\n");
        assert_eq!(holders(&scene.check("x")), 1, "the other one holds on");
        let _ = other.open().expect(0, "the other");
        best = best.min(took);
        if best < Duration::from_secs(1) {
            return;
        }
    }
    panic!("not after {best:?}");
}

/// A killed supervisor's slot stays taken while its command works.
#[test]
fn the_slot_of_an_orphan_is_taken_until_its_command_ends() {
    let scene = Scene::new();
    let orphan = scene.hold("x", ["-q", "--slots", "1"]);
    scene.until_named("x");
    orphan.signal(Signal::KILL);
    let words = [
        "run", "-q", "-w", "forever", "x", "--slots", "1", "--", "true",
    ];
    let mut next = start(&scene, &words);
    scene.until_queued("x", 1);
    throughout(Duration::from_millis(300), "the slot is taken", || {
        !next.has_ended()
    });
    orphan.gate.open();
    let _ = next.finish().expect(0, "free when the command has ended");
}

/// A caller that names another number than the holders waits until all of them have ended, and callers that
/// agree with the holders do not go past it.
#[test]
fn another_number_of_slots_waits_for_those_inside() {
    let scene = Scene::new();
    let two = scene.hold("x", ["-q", "--slots", "2"]);
    for flags in [&["--slots", "3"][..], &["--slots", "1"], &[]] {
        let words = ["run", "x", "-n"].iter().chain(flags);
        let words = words.chain(&["--", "true"]);
        let _ = scene.run(words).expect(4, &format!("{flags:?}: it waits"));
    }
    let words = ["run", "x", "-n", "--shared", "--", "true"];
    let _ = scene.run(words).expect(0, "a shared holder names none");
    let three = [
        "run",
        "-q",
        "-w",
        "forever",
        "x",
        "--slots",
        "3",
        "--",
        "sh",
        "-c",
        "echo $TENURE_SLOT",
    ];
    let three = start(&scene, &three);
    scene.until_queued("x", 1);
    let words = ["run", "x", "-n", "--slots", "2", "--", "true"];
    let _ = scene
        .run(words)
        .expect(4, "it would go past the one that waits");
    let _ = two.open().expect(0, "the holder");
    let three = three.finish().expect(0, "its turn came");
    assert_eq!(three.stdout(), "0\n", "no other holder is left");
}

/// A run that holds one of 2 slots and asks for one of 3 inside waits for itself.
#[test]
fn runs_that_wait_for_another_number_of_slots_notice_a_circle() {
    let scene = Scene::new();
    let inner = "sleep .3; tenure run b --slots 3 -w 20s -- true";
    let outer = ["run", "a", "--slots", "2", "-q", "--", "sh", "-c", inner];
    let one = start(&scene, &outer);
    let inner = "sleep .3; tenure run a --slots 3 -w 20s -- true";
    let outer = ["run", "b", "--slots", "2", "-q", "--", "sh", "-c", inner];
    let other = start(&scene, &outer);
    let mut codes = [one.finish().code(), other.finish().code()];
    codes.sort_unstable();
    assert_eq!(codes, [0, 81], "the younger one gives way");
}

/// The number of the slot that a holder has, and of the slots, by what `check` says.
fn slot_of(scene: &Scene, pid: u32) -> (u64, u64) {
    let data = scene.check("x");
    let others = data["other_holders"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    let mut all = std::iter::once(data["holder"].clone()).chain(others);
    let holder = all.find(|holder| holder["pid"] == pid).expect("a holder");
    (
        holder["slot"].as_u64().expect("a number"),
        holder["slots"].as_u64().expect("how many"),
    )
}

/// A hold has a number that no other has, from its grant to its end. The lowest free one is given, also that of
/// a holder that was killed; not that of an orphan.
#[test]
fn each_slot_has_a_number_of_its_own() {
    let scene = Scene::new();
    let tell = [
        "run",
        "x",
        "--slots",
        "4",
        "-n",
        "--",
        "sh",
        "-c",
        "echo $TENURE_SLOT",
    ];
    let told = |scene: &Scene| scene.run(tell).expect(0, "one is free").stdout();
    assert_eq!(told(&scene), "0\n");
    let [first, second, third] = [(); 3].map(|()| scene.hold("x", ["-q", "--slots", "4"]));
    for (number, hold) in [&first, &second, &third].into_iter().enumerate() {
        assert_eq!(slot_of(&scene, hold.pid()), (number as u64, 4));
    }
    assert_eq!(told(&scene), "3\n");
    let pid = second.pid();
    let text = scene.run(["check", "x"]).expect(4, "held").stdout();
    assert!(
        text.contains(&format!("PID {pid} ")) && text.contains(", slot 1 of 4, since"),
        "{text}"
    );
    let text = scene.run(["list"]).expect(0, "all").stdout();
    assert!(text.contains(", slot 0 of 4: "), "{text}");
    let said = scene.run(["run", "x", "-w", "100ms", "--", "true"]);
    let said = said.expect(4, "it waits for all of them").stderr();
    let waiting = said.lines().find(|line| line.contains("next in line"));
    assert!(
        waiting.is_some_and(|line| line.contains(", slot 0 of 4, since")),
        "{said}"
    );
    second.signal(Signal::KILL);
    send(second.command, Signal::KILL);
    eventually("the number of the dead is free", || told(&scene) == "1\n");
    // The supervisor is dead, and its command works on under its number.
    scene.until_named("x");
    first.signal(Signal::KILL);
    let again = scene.hold("x", ["-q", "--slots", "4"]);
    assert_eq!(slot_of(&scene, again.pid()), (1, 4));
    assert_eq!(slot_of(&scene, third.pid()), (2, 4), "it keeps its number");
    first.gate.open();
    eventually("the orphan's number is free", || told(&scene) == "0\n");
    for hold in [again, third] {
        let _ = hold.open().expect(0, "a holder");
    }
}

/// `acquire` answers with the number, which stands in the list until the release. A hold that is exclusive has
/// none, and neither has a command under it, whatever it inherits.
#[test]
fn a_detached_hold_has_a_number_and_another_lock_hides_it() {
    let scene = Scene::new();
    let words = [
        "acquire", "x", "--slots", "2", "--owner", "none", "--output", "json",
    ];
    let first = scene.run(words).expect(0, "the first").json();
    let second = scene.run(words).expect(0, "the second").json();
    assert_eq!(
        (&first["data"]["slot"], &second["data"]["slot"]),
        (&0.into(), &1.into())
    );
    let id = first["data"]["request_id"]
        .as_str()
        .expect("an id")
        .to_owned();
    let _ = scene
        .run(["release", "x", "--request-id", &id])
        .expect(0, "its own");
    let words = ["acquire", "x", "--slots", "2", "--owner", "none"];
    let said = scene.run(words).expect(0, "again").stdout();
    assert!(said.starts_with("acquired x: slot 0 of 2, ttl "), "{said}");
    let alone = scene.run(["acquire", "y", "--owner", "none", "--output", "json"]);
    assert_eq!(
        alone.expect(0, "exclusive").json()["data"]["slot"],
        Value::Null
    );
    let inner = "echo ${TENURE_SLOT-none}; tenure run z -- sh -c 'echo ${TENURE_SLOT-none}'";
    let words = ["run", "w", "--slots", "2", "--", "sh", "-c", inner];
    let told = start(&scene, &words).finish().expect(0, "both");
    assert_eq!(told.stdout(), "0\nnone\n");
}

/// "Several `-l` taken in one global order, all or nothing."
#[test]
fn several_locks_are_taken_by_name_and_given_back_together() {
    let scene = Scene::new();
    let other = scene.hold("b", ["-q"]);
    let words = ["run", "-q", "-w", "forever", "c", "-l", "b", "-l", "a"];
    let line = "echo $TENURE_NAME >told; for n in a b c; do tenure check $n -q >/dev/null || \
                echo $n is not mine >>told; done";
    let words: Vec<&str> = words.into_iter().chain(["--", "sh", "-c", line]).collect();
    let all = start(&scene, &words);
    scene.until_queued("b", 1);
    assert_eq!(scene.standing("a"), "held", "a before b");
    assert!(
        scene.is_free("c"),
        "c after b, in whatever order they were named"
    );
    let _ = other.open().expect(0, "the holder");
    let _ = all.finish().expect(0, "all of them");
    assert_eq!(written(&scene, "told"), "c\n", "the NAME gives its name");
    for name in ["a", "b", "c"] {
        assert!(scene.is_free(name), "{name} is given back");
    }
}

/// A run that becomes its command has all of them in its hands, and they end with it.
#[test]
fn several_locks_are_held_by_a_command_that_replaced_the_run() {
    let scene = Scene::new();
    let gate = Gate::new(&scene, "exec");
    let script = gate.script("");
    let words = [
        "run", "--exec", "-l", "a", "-l", "b", "--", "sh", "-c", &script,
    ];
    let both = start(&scene, &words);
    let _ = gate.entered();
    for name in ["a", "b"] {
        let _ = scene
            .run(["run", name, "-n", "--", "true"])
            .expect(4, &format!("{name} is held"));
    }
    gate.open();
    let _ = both.finish().expect(0, "it ended by itself");
    for name in ["a", "b"] {
        let _ = scene
            .run(["run", name, "-n", "--", "true"])
            .expect(0, &format!("{name} is free"));
    }
}

/// The loss of any of several locks ends the work, and the others are given back.
#[test]
fn the_loss_of_one_of_several_locks_ends_the_work() {
    let scene = Scene::new();
    let gate = Gate::new(&scene, "several");
    let script = gate.script("");
    let words = ["run", "-l", "a", "-l", "b", "--", "sh", "-c", &script];
    let both = start(&scene, &words);
    let command = gate.entered();
    fs::rename(scene.locks().join("b.tenure"), scene.path("gone")).unwrap();
    let answer = both.finish().expect(80, "one of them is lost");
    assert!(
        answer.stderr().contains("the lock b is lost")
            && answer.stderr().contains("b was lost while"),
        "{}",
        answer.said()
    );
    assert!(!crate::support::is_alive(command), "its command was ended");
    assert!(scene.is_free("a"), "the other is given back");
}

#[test]
fn what_was_taken_is_given_back_when_a_later_lock_is_refused() {
    let scene = Scene::new();
    let other = scene.hold("b", ["-q"]);
    for wait in ["0", "300ms"] {
        let words = [
            "run", "-w", wait, "-l", "b", "-l", "a", "--", "touch", "ran",
        ];
        let answer = scene.run(words).expect(4, "b is held");
        assert!(
            answer.stderr().contains("b is held by"),
            "the lock is named that was refused: {}",
            answer.said()
        );
        assert!(scene.is_free("a"), "a is given back");
    }
    let _ = scene.run(["acquire", "c", "--owner", "none", "--request-id", "r"]);
    let words = [
        "run", "-w", "forever", "-l", "a", "-l", "b", "--", "touch", "ran",
    ];
    let waiting = start(&scene, &words);
    scene.until_queued("b", 1);
    waiting.signal(Signal::TERM);
    let _ = waiting.finish().expect(143, "ended while it waited");
    assert!(scene.is_free("a"), "a is given back");
    let _ = other.open().expect(0, "the holder");
    assert!(!scene.path("ran").exists(), "nothing was run");
}

/// The wait is one for all of them: what the first has used up, the second does not get.
#[test]
fn several_locks_are_waited_for_within_one_wait() {
    let scene = Scene::new();
    let a = scene.hold("a", ["-q"]);
    let b = scene.hold("b", ["-q"]);
    let words = ["run", "-w", "2s", "-l", "a", "-l", "b", "--output", "json"];
    let words: Vec<&str> = words.into_iter().chain(["--", "true"]).collect();
    let began = instant();
    let waiting = start(&scene, &words);
    scene.until_queued("a", 1);
    std::thread::sleep(Duration::from_millis(1_500));
    let _ = a.open().expect(0, "the first");
    let document = waiting.finish().expect(4, "b is held all the time").json();
    let context = &document["error"]["context"];
    assert_eq!(context["name"], "b", "{document}");
    assert_eq!(context["waited_ms"], 2_000, "what was said: {document}");
    let took = instant().saturating_duration_since(began);
    assert!(took < Duration::from_millis(3_400), "the rest: {took:?}");
    let _ = b.open().expect(0, "the second");
}

/// All runs take them in one order, so none waits in a circle.
#[test]
fn runs_that_name_their_locks_in_opposite_orders_never_wait_for_each_other() {
    let scene = Scene::new();
    let orders = [["-l", "a", "-l", "b"], ["-l", "b", "-l", "a"]];
    let callers: Vec<_> = (0..20)
        .map(|number: usize| {
            let mut words = vec!["run", "-q", "-w", "forever"];
            words.extend(orders[number % 2]);
            words.extend(["--", "sleep", "0.005"]);
            start(&scene, &words)
        })
        .collect();
    for caller in callers {
        let _ = caller
            .finish()
            .expect(0, "no run gave way, for none had to");
    }
}

/// "A nested run of one of them is refused at once", with a clear sentence.
#[test]
fn a_nested_run_of_a_lock_that_is_held_already_is_refused_with_81() {
    let scene = Scene::new();
    for (outer, inner) in [
        (&["x"][..], &["x"][..]),
        (&["x"], &["-l", "y", "-l", "x"]),
        (&["-l", "w", "-l", "x"], &["x"]),
        (&["--group", "X"], &["--group", "x"]),
        (&["x", "--shared"], &["x", "--shared"]),
        (&["x", "--slots", "2"], &["x", "--slots", "2"]),
    ] {
        let mut words = vec!["run", "-q"];
        words.extend(outer);
        words.extend(["--", "tenure", "run"]);
        words.extend(inner);
        words.extend(["--", "touch", "ran"]);
        let answer = scene.run(&words).expect(81, &format!("{words:?}"));
        let said = answer.stderr();
        assert!(said.contains("x is held by this run itself"), "{said}");
        assert!(said.contains("--reentrant"), "and what helps: {said}");
        assert!(scene.is_free("y"), "nothing was taken");
    }
    assert!(!scene.path("ran").exists(), "nothing was run");
}

/// "Or passed through with `--reentrant` after verifying that the hold is live": the outer's token,
/// the inner's exit code, and the outer's lock as before.
#[test]
fn a_reentrant_run_goes_on_under_the_hold_around_it() {
    let scene = Scene::new();
    let inner = "echo $TENURE_NAME $TENURE_TOKEN $TENURE_SLOT >inner; exit 7";
    let outer = format!(
        "echo $TENURE_NAME $TENURE_TOKEN $TENURE_SLOT >outer; \
         tenure run --reentrant x -- sh -c '{inner}'; echo $? >code; \
         tenure check x --output json >after"
    );
    for (flags, again) in [
        (&["x"][..], "x"),
        (&["x", "--slots", "2"], "x --slots 2"),
        (&["x", "--shared"], "x --shared"),
        // A holder that has it alone has what a shared hold would give.
        (&["x"], "x --shared"),
        (&["--group", "x"], "--group X"),
    ] {
        let outer = outer.replace("--reentrant x", &format!("--reentrant {again}"));
        let mut words = vec!["run", "-q"];
        words.extend(flags);
        words.extend(["--", "sh", "-c", &outer]);
        let _ = start(&scene, &words).finish().expect(0, again);
        assert_eq!(
            written(&scene, "inner"),
            written(&scene, "outer"),
            "{again}"
        );
        assert_eq!(written(&scene, "code"), "7\n", "{again}: its exit code");
        let after: Value = serde_json::from_str(&written(&scene, "after")).unwrap();
        assert_eq!(after["data"]["mine"], true, "{again}: still held: {after}");
        assert!(scene.is_free("x"), "{again}: given back once");
    }
}

/// What the run around it does not hold, a reentrant run takes, and only that.
#[test]
fn a_reentrant_run_takes_what_is_missing_and_gives_only_that_back() {
    let scene = Scene::new();
    let inner =
        "echo $TENURE_NAME $TENURE_TOKEN >inner; tenure check y -q >/dev/null && echo y >>inner";
    let outer = format!(
        "echo $TENURE_NAME $TENURE_TOKEN >outer; echo y >>outer; \
         tenure run --reentrant x -l y -- sh -c '{inner}'; \
         tenure check y -q >/dev/null && echo y is free >>outer; \
         tenure check x -q >/dev/null && echo x is mine >>outer; echo y is free >>inner; \
         echo x is mine >>inner"
    );
    let words = ["run", "-q", "x", "--", "sh", "-c", &outer];
    let _ = start(&scene, &words).finish().expect(0, "both");
    assert_eq!(written(&scene, "inner"), written(&scene, "outer"));
}

/// A hold in another mode is not the one that was asked for.
#[test]
fn a_reentrant_run_is_refused_where_it_would_get_more_than_is_held() {
    let scene = Scene::new();
    for (outer, inner) in [
        (&["--shared"][..], &[][..]),
        (&["--slots", "2"], &["--slots", "3"]),
    ] {
        let mut words = vec!["run", "-q", "x"];
        words.extend(outer);
        words.extend(["--", "tenure", "run", "--reentrant", "x"]);
        words.extend(inner);
        words.extend(["--", "touch", "ran"]);
        let answer = scene.run(&words).expect(81, &format!("{words:?}"));
        assert!(
            answer.stderr().contains("another mode"),
            "{}",
            answer.said()
        );
    }
    assert!(!scene.path("ran").exists());
}

/// "Verified against the live hold": a hold that is lost or over lets no run through.
#[test]
fn a_reentrant_run_does_not_go_on_under_a_hold_that_is_gone() {
    let scene = Scene::new();
    // The file is deleted by hand: the hold is lost.
    let lost = format!(
        "rm '{}'; tenure run --reentrant x -- touch ran; echo $? >code",
        scene.locks().join("x.tenure").display()
    );
    let words = [
        "run",
        "-q",
        "--on-lost",
        "warn",
        "x",
        "--",
        "sh",
        "-c",
        &lost,
    ];
    let _ = start(&scene, &words).finish();
    assert_eq!(written(&scene, "code"), "80\n", "the hold is lost");
    assert!(!scene.path("ran").exists(), "nothing was run");
    // Released while a process that inherited it goes on.
    let left = "(while tenure check x --output json | grep -q '\"mine\":true'; do :; done; \
                tenure run --reentrant x -- touch ran; echo $? >later) >/dev/null 2>&1 &";
    let words = ["run", "-q", "x", "--", "sh", "-c", left];
    let _ = start(&scene, &words).finish().expect(0, "it has ended");
    assert_eq!(written(&scene, "later").trim(), "80", "the hold is over");
    assert!(!scene.path("ran").exists(), "nothing was run");
}

/// Starts a run that takes one lock, says so, waits for a sign, and wants another one inside.
/// The inner run's exit code is the outer's.
fn link(scene: &Scene, has: &str, wants: &str) -> Started {
    let root = scene.root().display();
    let line = format!(
        "touch '{root}/has.{has}'; while [ -d '{root}' ] && [ ! -e '{root}/go.{has}' ]; do sleep \
         0.01; done; tenure run -w 25s {wants} -- sh -c 'echo {has} >>\"{root}/done\"'"
    );
    let started = start(scene, &["run", has, "-w", "25s", "--", "sh", "-c", &line]);
    eventually(&format!("{has} to be held"), || {
        scene.path(&format!("has.{has}")).exists()
    });
    started
}

fn go(scene: &Scene, has: &str) {
    fs::write(scene.path(&format!("go.{has}")), "").unwrap();
}

/// "Cycles of waits across runs detected, exit 81, the youngest gives way", and the others finish.
#[test]
fn in_a_circle_of_waits_the_youngest_gives_way_and_the_others_finish() {
    for names in [&["a", "b"][..], &["a", "b", "c"], &["c", "a", "b"]] {
        let scene = Scene::new();
        let mut links = Vec::new();
        for (index, has) in names.iter().enumerate() {
            let wants = names[(index + 1) % names.len()];
            links.push(link(&scene, has, wants));
        }
        for (index, has) in names.iter().enumerate() {
            go(&scene, has);
            let wants = names[(index + 1) % names.len()];
            if index + 1 < names.len() {
                scene.until_queued(wants, 1);
            }
        }
        // The last one to wait is the youngest.
        let (answer, took) = timed(|| links.pop().unwrap().finish());
        let answer = answer.expect(81, &format!("{names:?}: the youngest"));
        assert!(
            answer.stderr().contains("deadlock: "),
            "with a sentence: {}",
            answer.said()
        );
        assert!(took < Duration::from_secs(20), "soon: {took:?}");
        for started in links {
            let _ = started
                .finish()
                .expect(0, &format!("{names:?}: the others"));
        }
        let done = written(&scene, "done");
        assert_eq!(done.lines().count(), names.len() - 1, "{done}");
    }
}

/// A circle without an order: all begin to wait at once, and exactly one is the deadlock victim.
#[test]
fn in_a_circle_that_closes_at_once_exactly_one_gives_way() {
    for round in 0..3 {
        let scene = Scene::new();
        let names = ["a", "b", "c"];
        let links: Vec<_> = (0..3)
            .map(|index| link(&scene, names[index], names[(index + 1) % 3]))
            .collect();
        for has in names {
            go(&scene, has);
        }
        let mut codes: Vec<_> = links.into_iter().map(|link| link.finish().code()).collect();
        codes.sort_unstable();
        assert_eq!(codes, [0, 0, 81], "round {round}");
    }
}

/// A chain is no circle: a run that only has to be patient is no deadlock victim.
#[test]
fn a_chain_of_waits_is_left_alone() {
    let scene = Scene::new();
    let end = scene.hold("c", ["-q"]);
    let b = link(&scene, "b", "c");
    let a = link(&scene, "a", "b");
    go(&scene, "b");
    scene.until_queued("c", 1);
    go(&scene, "a");
    scene.until_queued("b", 1);
    throughout(Duration::from_millis(1_500), "both wait", || {
        scene.check("b")["queue"].as_array().map(Vec::len) == Some(1)
    });
    let _ = end.open().expect(0, "the end of the chain");
    let _ = b.finish().expect(0, "the middle");
    let _ = a.finish().expect(0, "and the beginning");
}

/// Through locks that one run takes together, a circle closes as well.
#[test]
fn a_circle_through_a_run_with_several_locks_is_found() {
    let scene = Scene::new();
    let b = link(&scene, "b", "a");
    let several = start(
        &scene,
        &["run", "-q", "-w", "25s", "-l", "a", "-l", "b", "--", "true"],
    );
    scene.until_queued("b", 1);
    go(&scene, "b");
    let answer = b.finish().expect(81, "its inner run is the youngest");
    assert!(answer.stderr().contains("deadlock: "), "{}", answer.said());
    let _ = several.finish().expect(0, "the other goes on");
}

/// Of two waits at once under one hold, the end of one does not make the other's circle invisible.
#[test]
fn a_circle_is_found_although_another_wait_of_the_same_hold_has_come_and_gone() {
    let scene = Scene::new();
    let other = scene.hold("c", ["-q"]);
    let root = scene.root().display().to_string();
    // The run has a; beside each other it waits for c, which it gets soon, and for b.
    let line = format!(
        "tenure run -q -w 25s c -- true & \
         while [ -d '{root}' ] && [ ! -e '{root}/go.a' ]; do sleep 0.01; done; \
         tenure run -q -w 25s b -- true; code=$?; wait; exit $code"
    );
    let b = link(&scene, "b", "a");
    let a = start(&scene, &["run", "-q", "a", "--", "sh", "-c", &line]);
    scene.until_queued("c", 1);
    go(&scene, "a");
    scene.until_queued("b", 1);
    let _ = other.open().expect(0, "c's holder");
    scene.until_queued("c", 0);
    // The other end of the circle is the youngest, and has to see the older one's note.
    go(&scene, "b");
    let (answer, took) = timed(|| b.finish());
    let _ = answer.expect(81, "the youngest");
    assert!(took < Duration::from_secs(20), "soon: {took:?}");
    let _ = a.finish().expect(0, "and the older one goes on");
}

/// "A note names the ticket that waits, and counts only while that claim does": what a killed
/// waiter has left behind deceives no other run.
#[test]
fn the_note_of_a_killed_waiter_deceives_nobody() {
    let scene = Scene::new();
    let root = scene.root().display().to_string();
    // The run has a, waits for b inside, is killed there, and works on under a.
    let line = format!(
        "tenure run -w 25s b -- true & echo $! >'{root}/inner.new'; mv '{root}/inner.new' \
         '{root}/inner'; wait; while [ -d '{root}' ] && [ ! -e '{root}/end' ]; do sleep 0.01; done"
    );
    let b = link(&scene, "b", "a");
    let a = start(&scene, &["run", "a", "--", "sh", "-c", &line]);
    scene.until_queued("b", 1);
    let inner = crate::support::read_number(&scene.path("inner"));
    send(inner, Signal::KILL);
    eventually("the waiter to be gone", || {
        scene.check("b")["queue"].as_array().map(Vec::len) == Some(0)
    });
    // With the note believed, this would be a circle of two, and this wait its youngest.
    go(&scene, "b");
    scene.until_queued("a", 1);
    throughout(Duration::from_millis(2_500), "it waits", || {
        scene.check("a")["queue"].as_array().map(Vec::len) == Some(1)
    });
    fs::write(scene.path("end"), "").unwrap();
    let _ = a.finish().expect(0, "the holder of a");
    let _ = b.finish().expect(0, "and the run that waited for it");
}

/// Each answer about a lock that others have is one sentence about them, and says what to do next.
#[test]
fn a_refusal_is_one_line_however_many_hold_and_wait() {
    let scene = Scene::new();
    let one = scene.hold("x", ["-q", "--shared"]);
    let two = scene.hold("x", ["-q", "--shared"]);
    for (words, code, next) in [
        (&["release", "x"][..], 6, "`tenure cancel x`"),
        (&["force-release", "x"], 4, "`tenure cancel x`"),
        (&["force-release", "x", "--yes"], 4, "`tenure cancel x`"),
        (&["heartbeat", "x"], 6, "not renewed"),
    ] {
        let answer = scene.run(words).expect(code, "held by others");
        let said = answer.stderr();
        assert_eq!(said.lines().count(), 1, "{words:?}: {said}");
        assert!(said.contains(next), "{words:?}: {said}");
    }
    for held in [one, two] {
        held.gate.open();
        let _ = held.started.finish().expect(0, "it ends by itself");
    }
}

/// The others keep holding the lock, and the caller that forced one of them is told so.
#[test]
fn a_forced_release_ends_one_of_several_holds_and_says_so() {
    let scene = Scene::new();
    for id in ["a", "b"] {
        let words = [
            "acquire",
            "x",
            "--shared",
            "--owner",
            "none",
            "--request-id",
            id,
        ];
        let _ = scene.run(words).expect(0, "shared");
    }
    let answer = scene.run(["force-release", "x", "--yes"]).expect(0, "one");
    assert!(
        answer.stderr().contains("only that one"),
        "{}",
        answer.said()
    );
    assert_eq!(scene.check("x")["holder"]["request_id"], "b");
    let answer = scene.run(["force-release", "x", "--yes"]).expect(0, "two");
    assert!(
        !answer.stderr().contains("only that one"),
        "{}",
        answer.said()
    );
    assert!(scene.is_free("x"));
}

/// Between two grants a lock is renewed as it will be while the command runs: by the silence after which
/// others may take it, not by a ttl that is longer.
#[test]
fn a_lock_stays_fresh_while_the_next_one_is_waited_for() {
    let scene = Scene::new();
    let session = ["--profile", "session", "--stale-after", "3s"];
    let quick = |words: &[&str]| start(&scene, &[&session, words].concat());
    let gate = Gate::new(&scene, "2");
    let holder = quick(&["run", "2", "-q", "--", "sh", "-c", &gate.script("")]);
    gate.entered();
    let both = quick(&[
        "run", "-q", "-w", "60s", "--ttl", "1h", "-l", "1", "-l", "2", "--", "true",
    ]);
    let other = || quick(&["run", "1", "-n", "-q", "--", "true"]).finish();
    eventually("the first lock to be taken", || {
        other().status().code() == Some(4)
    });
    std::thread::sleep(Duration::from_secs(5));
    let _ = other().expect(4, "no caller takes it over");
    gate.open();
    let _ = holder.finish().expect(0, "the holder");
    let _ = both.finish().expect(0, "both");
}

/// A lock that is lost while the next one is waited for ends the wait: the command does not start.
#[test]
fn a_lock_that_is_lost_during_the_wait_for_the_next_one_starts_no_command() {
    let scene = Scene::new();
    let holder = scene.hold("b", ["-q"]);
    let line = "echo >started";
    let words = [
        "run", "-q", "-w", "60s", "-l", "a", "-l", "b", "--", "sh", "-c", line,
    ];
    let both = start(&scene, &words);
    scene.until_queued("b", 1);
    fs::rename(scene.path("locks/a.tenure"), scene.path("away")).unwrap();
    let other = scene.hold("a", ["-q"]);
    let answer = both.finish().expect(80, "its first lock is gone");
    assert!(
        answer
            .stderr()
            .contains("a was lost before the command started"),
        "{}",
        answer.said()
    );
    assert!(!scene.path("started").exists(), "nothing has run");
    let _ = other.open().expect(0, "the run that has it now");
    let _ = holder.open().expect(0, "the holder of the second");
}

/// A flag about a lock is about NAME; a further lock says for itself how it is held.
#[test]
fn flags_of_a_run_reach_one_lock_table() {
    let scene = Scene::new();
    for (first, second, is_free) in [
        (
            &["gpu", "--slots", "2", "-l", "db"][..],
            &["gpu", "--slots", "2", "-l", "db"][..],
            false,
        ),
        (&["a", "-s", "-l", "db"], &["b", "-s", "-l", "db"], false),
        (&["a", "-l", "db:shared"], &["b", "-l", "db:shared"], true),
        (&["a", "-l", "db:shared"], &["b", "-l", "db"], false),
        (&["a", "-l", "db:slots=2"], &["b", "-l", "db:slots=2"], true),
        (&["-l", "db", "--shared"], &["-l", "db", "--shared"], true),
        (&["db"], &["site", "-l", "db", "--force"], false),
        (
            &["db"],
            &[
                "site",
                "--queue",
                "single",
                "--cancel-in-progress",
                "-l",
                "db",
                "-w",
                "300ms",
            ],
            false,
        ),
    ] {
        let mut held = vec!["run"];
        held.extend(first);
        held.extend(["--", "sleep", "60"]);
        let holder = start(&scene, &held);
        eventually("db to be held", || scene.check("db")["standing"] == "held");
        let mut wanted = vec!["run"];
        wanted.extend(second);
        if !second.contains(&"-w") {
            wanted.push("-n");
        }
        wanted.extend(["--", "true"]);
        let expected = if is_free { 0 } else { 4 };
        let _ = scene
            .run(wanted)
            .expect(expected, &format!("{second:?} beside {first:?}"));
        send(holder.pid(), Signal::TERM);
        let _ = holder.finish().expect(143, "nothing else has ended it");
    }
    for words in [
        &["run", "-l", "a", "-l", "b", "--shared", "--", "true"][..],
        &["run", "-l", "a", "-l", "b", "--force", "--", "true"],
        &["run", "x", "-l", "a:slots=0", "--", "true"],
        &["run", "x", "-l", "a:other", "--", "true"],
    ] {
        let _ = scene
            .run(words.iter().copied())
            .expect(2, "which lock is meant?");
    }
}
