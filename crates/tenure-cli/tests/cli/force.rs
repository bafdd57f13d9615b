//! `--force`: a live run is asked to stop and waited for; a detached hold is overridden, loudly.

use crate::support::{Gate, Scene, Started, eventually, is_alive, says_overlap, timed};
use rustix::process::Signal;
use std::fs;
use std::process::Stdio;
use std::time::Duration;

fn forcing(scene: &Scene, words: &[&str]) -> Started {
    let mut command = scene.tenure(["run", "x", "--force", "--wait", "20s"]);
    command.args(words);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    Started::new(&mut command)
}

#[test]
fn a_live_run_is_interrupted_and_the_forcing_caller_follows_it() {
    let scene = Scene::new();
    let gate = Gate::new(&scene, "x");
    let prelude = format!(
        "trap 'echo interrupted >{}; exit 0' INT",
        scene.path("said").display()
    );
    let holder = scene.hold_with("x", ["--request-id", "old"], &gate, &prelude);
    let command = holder.command;
    let line = format!("{}; tenure check x", says_overlap(command));
    let next = forcing(&scene, &["--request-id", "new", "--", "sh", "-c", &line]);
    let old = holder.finish().expect(79, "superseded");
    assert!(
        old.stderr().contains("new"),
        "by whom is told: {}",
        old.said()
    );
    assert_eq!(
        fs::read_to_string(scene.path("said")).unwrap(),
        "interrupted\n",
        "by SIGINT"
    );
    let next = next.finish().expect(0, "the forcing caller holds it");
    let overlap = next.stdout().lines().any(|line| line == "overlap");
    assert!(!overlap, "after the work has ended: {}", next.said());
    assert!(next.stdout().contains("held by you"), "{}", next.said());
    assert!(!is_alive(command), "the old command is gone");
}

/// The work is asked, then asked again, then killed; and no other run gets in before its end.
#[test]
fn a_run_that_does_not_answer_is_killed_after_its_own_grace() {
    let scene = Scene::new();
    let gate = Gate::new(&scene, "x");
    let said = scene.path("said");
    let prelude = format!("trap 'echo term >{}' TERM; trap '' INT", said.display());
    let holder = scene.hold_with("x", ["-q", "--grace", "800ms"], &gate, &prelude);
    let command = holder.command;
    let line = format!("{}; echo ran", says_overlap(command));
    let next = forcing(&scene, &["-q", "--", "sh", "-c", &line]);
    let _ = holder.finish().expect(79, "superseded");
    let next = next.finish().expect(0, "the forcing caller holds it");
    assert_eq!(
        next.stdout(),
        "ran\n",
        "after the work was killed: {}",
        next.said()
    );
    assert_eq!(
        fs::read_to_string(said).unwrap(),
        "term\n",
        "SIGTERM came in between"
    );
}

/// A short command has no watch on its lock yet; the grace counts from the moment at which the
/// request is noticed all the same.
#[test]
fn a_run_that_was_asked_right_at_its_start_is_killed_in_time_too() {
    let scene = Scene::new();
    let gate = Gate::new(&scene, "x");
    let flags = ["-q", "--grace", "200ms"];
    let holder = scene.hold_with("x", flags, &gate, "trap '' INT TERM");
    // Nothing is noticed while the supervisor is stopped.
    holder.signal(Signal::STOP);
    let next = forcing(&scene, &["-q", "--", "echo", "ran"]);
    scene.until_queued("x", 1);
    let (answer, took) = timed(|| {
        holder.signal(Signal::CONT);
        holder.finish()
    });
    let _ = answer.expect(79, "superseded");
    assert!(
        took < Duration::from_secs(5),
        "a grace of 200 ms took {took:?}"
    );
    let _ = next.finish().expect(0, "the forcing caller holds it");
}

#[test]
fn a_forcing_caller_whose_time_is_up_is_refused_like_any_other() {
    let scene = Scene::new();
    let gate = Gate::new(&scene, "x");
    let holder = scene.hold_with("x", ["-q", "--grace", "20s"], &gate, "trap '' INT TERM");
    let words = [
        "run", "x", "--force", "-q", "-w", "300ms", "--", "echo", "ran",
    ];
    let answer = scene.run(words).expect(4, "the work has not ended");
    assert_eq!(answer.stdout(), "", "no other run is at work beside it");
    assert!(is_alive(holder.command), "it is still being asked");
    let facts = scene.check("x");
    assert_eq!(
        facts["holder"]["cancel_requested"], true,
        "and that is seen: {facts}"
    );
    let _ = holder.open().expect(79, "it ends as one that was asked");
}

#[test]
fn several_forcing_callers_do_not_end_up_inside_together() {
    let scene = Scene::new();
    let holder = scene.hold("x", ["-q"]);
    scene.write("inside", "");
    // A caller that comes late asks one of the others to stop in the middle of its work, which then
    // leaves its number behind; so whether that process still runs is what counts.
    let line = "p=$(cat inside); [ -n \"$p\" ] && kill -0 \"$p\" 2>/dev/null && echo overlap; \
                echo $$ >inside; sleep 0.05; : >inside";
    let callers: Vec<_> = (0..4)
        .map(|_| {
            let mut command = scene.tenure(["run", "x", "-q", "--force", "--wait", "20s", "--"]);
            command.args(["sh", "-c", line]).current_dir(scene.root());
            command.stdout(Stdio::piped()).stderr(Stdio::piped());
            Started::new(&mut command)
        })
        .collect();
    let _ = holder.finish().expect(79, "superseded");
    for caller in callers {
        let answer = caller.finish();
        let code = answer.code();
        assert!(
            matches!(code, 0 | 79 | 130),
            "either it ran or a later one displaced it: {}",
            answer.said()
        );
        assert!(!answer.stdout().contains("overlap"), "{}", answer.said());
    }
    assert!(scene.is_free("x"), "the lock is free in the end");
}

#[test]
fn a_detached_hold_is_overridden_only_with_a_second_yes() {
    let scene = Scene::new();
    let words = ["acquire", "x", "--owner", "none", "--request-id", "old"];
    let _ = scene.run(words).expect(0, "acquired");
    for verb in ["run", "acquire"] {
        let mut words = vec![verb, "x", "--force", "--output", "json"];
        if verb == "run" {
            words.extend(["--", "true"]);
        }
        let answer = scene.run(words).expect(4, "not confirmed");
        let document = answer.json();
        assert_eq!(
            document["error"]["code"], "CONFIRMATION_REQUIRED",
            "{document}"
        );
        assert_eq!(
            scene.check("x")["holder"]["request_id"],
            "old",
            "nothing changed"
        );
    }
    let words = [
        "acquire",
        "x",
        "--force",
        "--yes",
        "--owner",
        "none",
        "--request-id",
        "new",
    ];
    let answer = scene.run(words).expect(0, "overridden");
    assert!(
        answer.stderr().contains("OVERRODE"),
        "loudly: {}",
        answer.said()
    );
    assert_eq!(scene.check("x")["holder"]["request_id"], "new");
    let answer = scene.run(["heartbeat", "x", "--request-id", "old"]);
    let _ = answer.expect(6, "the old holder learns of it");
    let answer = scene.run(["release", "x", "--request-id", "old"]);
    let _ = answer.expect(80, "and cannot release what it has lost");
    let _ = scene
        .run(["release", "x", "--request-id", "new"])
        .expect(0, "the new one can");
}

#[test]
fn force_on_what_is_free_is_an_ordinary_call() {
    let scene = Scene::new();
    let answer = scene.run(["run", "x", "--force", "--", "echo", "ran"]);
    let answer = answer.expect(0, "free");
    assert_eq!(
        (answer.stdout(), answer.stderr()),
        ("ran\n".into(), String::new())
    );
}

/// No supervisor is left to ask, so the call waits for the work.
#[test]
fn force_waits_for_an_orphan() {
    let scene = Scene::new();
    let holder = scene.hold("x", ["-q"]);
    let (command, gate) = (holder.command, holder.gate.clone());
    holder.signal(Signal::KILL);
    eventually("the supervisor to be seen dead", || {
        scene.check("x")["holder"]["orphaned"] == true
    });
    let words = [
        "run", "x", "--force", "--yes", "-q", "-w", "300ms", "--", "echo", "ran",
    ];
    let _ = scene
        .run(words)
        .expect(4, "the command of the dead one still works");
    assert!(is_alive(command), "and is left alone");
    let next = forcing(&scene, &["-q", "--", "echo", "ran"]);
    gate.open();
    let next = next.finish().expect(0, "afterwards it is free");
    assert_eq!(next.stdout(), "ran\n");
    drop(holder);
}

#[test]
fn a_record_that_cannot_be_read_is_replaced_by_force_only() {
    let scene = Scene::new();
    fs::create_dir_all(scene.locks()).unwrap();
    let file = scene.locks().join("x.tenure");
    fs::write(&file, "something else altogether\n").unwrap();
    let answer = scene
        .run(["run", "x", "--", "echo", "ran"])
        .expect(4, "unreadable");
    assert_eq!(answer.stdout(), "", "nothing ran");
    assert!(
        answer
            .stderr()
            .contains("`tenure force-release x` removes it"),
        "what to do is said: {}",
        answer.said()
    );
    assert_eq!(
        fs::read_to_string(&file).unwrap(),
        "something else altogether\n",
        "untouched"
    );
    let answer = scene.run(["run", "x", "--force", "--yes", "--", "echo", "ran"]);
    assert_eq!(answer.expect(0, "replaced").stdout(), "ran\n");
    assert!(scene.is_free("x"), "a lock like any other again");
}

/// What `check` calls free, `acquire` gets. A run that is stopped cannot say that it lost its file.
#[test]
fn a_file_that_was_emptied_under_a_live_run_is_not_free() {
    let scene = Scene::new();
    let holder = scene.hold("x", ["-q"]);
    holder.signal(Signal::STOP);
    fs::write(scene.locks().join("x.tenure"), "").expect("a file");
    assert_eq!(scene.standing("x"), "unreadable");
    let _ = scene.run(["check", "x"]).expect(4, "another holder has it");
    for words in [&["-n"][..], &["-n", "--force", "--yes"]] {
        let refused = scene.run([&["acquire", "x"], words].concat());
        let refused = refused.expect(4, "the same");
        let said = refused.stderr();
        assert!(said.contains("a live process has a place in it"), "{said}");
        let advised = said.contains("removes it");
        assert_eq!(advised, words.len() == 1, "{said}");
    }
    holder.signal(Signal::CONT);
    let _ = holder.finish().expect(80, "its hold is lost");
}

/// A caller that forced in vain is not advised to force, but told why it did not help.
#[test]
fn after_a_force_that_was_refused_force_is_not_advised() {
    let scene = Scene::new();
    let locks = scene.locks();
    fs::create_dir_all(&locks).expect("a folder");
    let private = std::os::unix::fs::PermissionsExt::from_mode(0o700);
    fs::set_permissions(&locks, private).expect("a mode");
    fs::write(locks.join("x.lock"), "junk").expect("a file");
    let intent = ["--intent-name", "a", "--intent-version", "1"];
    let acquire = [
        "--profile",
        "fleet",
        "acquire",
        "x",
        "-n",
        "--output",
        "json",
    ];
    let plain = scene.run([&acquire[..], &intent].concat());
    let plain = plain.expect(4, "unreadable").json();
    let advice = plain["error"]["context"]["suggestion"].as_str();
    let advice = advice.expect("an advice");
    assert!(advice.contains("once it has been silent"), "{advice}");
    let forced = scene.run([&acquire[..], &intent, &["--force"]].concat());
    let forced = forced.expect(4, "too young").json();
    let message = forced["error"]["message"].as_str().expect("a message");
    assert!(!message.contains("--force replaces it"), "{message}");
    assert!(message.contains("counts for 14m"), "{message}");
}

/// A person looks at a hold and removes it, and another one has taken its place meanwhile.
#[test]
fn a_forced_release_that_names_its_hold_ends_no_other() {
    let scene = Scene::new();
    let acquire = |id: &str, slots: &[&str]| {
        let words = [
            "acquire",
            "j",
            "--owner",
            "none",
            "--ttl",
            "5m",
            "--request-id",
            id,
        ];
        let answer = scene.run([&words[..], slots, &["--output", "json"]].concat());
        answer.expect(0, id).json()["data"]["token"].to_string()
    };
    let seen = acquire("r1", &[]);
    scene
        .run(["release", "j", "--request-id", "r1"])
        .expect(0, "it has ended");
    let other = acquire("r2", &[]);
    for meant in [
        &["--request-id", "r1"][..],
        &["--token", &seen],
        &["--request-id", "r2", "--token", &seen],
        &["--request-id", "r1", "--token", &other],
        &["--run-id", "no id of ours"],
    ] {
        let words = [&["force-release", "j", "--yes", "--output", "json"], meant].concat();
        let refused = scene.run(words).expect(5, "that hold is not there").json();
        assert_eq!(
            refused["error"]["code"], "NO_HOLDER",
            "{meant:?}: {refused}"
        );
        assert_eq!(scene.check("j")["holder"]["request_id"], "r2", "{meant:?}");
    }
    scene
        .run(["force-release", "j", "--token", &other])
        .expect(4, "it wants a yes, as ever");
    let words = [
        "force-release",
        "j",
        "--yes",
        "--request-id",
        "r2",
        "--token",
        &other,
    ];
    scene.run(words).expect(0, "that very hold");
    assert!(scene.is_free("j"));
    // Of several holders the one that is meant, wherever it stands.
    let slots = &["--slots", "3"][..];
    acquire("s1", slots);
    let second = acquire("s2", slots);
    acquire("s3", slots);
    scene
        .run(["force-release", "j", "--yes", "--token", &second])
        .expect(0, "the second one");
    let left = scene.check("j");
    let ids = [
        &left["holder"]["request_id"],
        &left["other_holders"][0]["request_id"],
    ];
    assert_eq!(ids, ["s1", "s3"], "{left}");
    for bad in [&["--token", "0"][..], &["--token", "x"]] {
        scene
            .run([&["force-release", "j", "--yes"], bad].concat())
            .expect(2, "no token");
    }
    // What cannot be read shows no hold to be the one.
    fs::write(scene.locks().join("j.tenure"), "damaged").expect("damage");
    let words = ["force-release", "j", "--yes", "--token", &second];
    scene.run(words).expect(5, "it cannot be read");
}
