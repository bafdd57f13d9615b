//! Readers of stderr and stdout that do not read: what is said never keeps the program from what it has
//! promised, and an answer that was lost is no success.
#![allow(
    clippy::disallowed_methods,
    reason = "a lock is removed by hand, behind the store's back"
)]

use crate::support::{BOUND, Gate, Scene, Started, eventually, is_alive, throughout, timed};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::Signal;
use std::fs::File;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::process::{Command, Stdio};
use std::time::Duration;

/// How long what is bounded may take here: the last try of a message is a second, and the machine may be
/// slow.
const SOON: Duration = Duration::from_secs(8);

/// A pipe that takes nothing any more, with a reader that does not read.
struct Full {
    reader: OwnedFd,
    writer: OwnedFd,
}

impl Full {
    fn new() -> Self {
        let (reader, writer) = pipe_with(PipeFlags::CLOEXEC).expect("a pipe");
        // The flag belongs to the open file, which the program gets as well: it is taken back.
        rustix::io::ioctl_fionbio(&writer, true).expect("a flag");
        while rustix::io::write(&writer, &[b'.'; 4096]).is_ok() {}
        while rustix::io::write(&writer, b".").is_ok() {}
        rustix::io::ioctl_fionbio(&writer, false).expect("a flag");
        Self { reader, writer }
    }

    /// For the program.
    fn end(&self) -> Stdio {
        self.writer.try_clone().expect("a descriptor").into()
    }

    /// Reads all that was and will be written; what filled the pipe is left out.
    fn read(self) -> String {
        let Self { reader, writer } = self;
        drop(writer);
        let mut text = String::new();
        File::from(reader)
            .read_to_string(&mut text)
            .expect("what was written");
        text.trim_start_matches('.').to_owned()
    }
}

/// A stdout whose reader has gone.
fn gone() -> Stdio {
    let (reader, writer) = pipe_with(PipeFlags::CLOEXEC).expect("a pipe");
    drop(reader);
    writer.into()
}

/// A stdout without any room.
fn no_room() -> Stdio {
    let file = File::options().write(true).open("/dev/full");
    file.expect("/dev/full").into()
}

/// Starts a program. It is taken by value, for it has copies of what its outputs lead to.
fn start(mut command: Command, stdout: Stdio, stderr: Stdio) -> Started {
    Started::new(command.stdout(stdout).stderr(stderr))
}

/// A run whose stderr is a pipe without a reader; answers with it and with the PID of its command.
fn deaf(scene: &Scene, full: &Full, gate: &Gate, words: &[&str]) -> (Started, u32) {
    let script = gate.script("");
    let words = [words, &["--", "sh", "-c", &script]].concat();
    let command = scene.tenure(words);
    let started = start(command, Stdio::piped(), full.end());
    let command = gate.entered();
    (started, command)
}

#[test]
fn work_whose_lock_is_lost_ends_however_slow_its_stderr_is() {
    let scene = Scene::new();
    let (full, gate) = (Full::new(), Gate::new(&scene, "x"));
    let (run, command) = deaf(&scene, &full, &gate, &["run", "x"]);
    let ((), took) = timed(|| {
        std::fs::remove_file(scene.locks().join("x.tenure")).expect("the lock is removed by hand");
        eventually("its work to end", || !is_alive(command));
    });
    assert!(took < Duration::from_secs(3), "in time: {took:?}");
    let (answer, took) = timed(|| run.finish());
    let _ = answer.expect(80, "and it says so by its code");
    assert!(took < SOON, "nor does its end wait for long: {took:?}");
}

#[test]
fn a_run_with_a_slow_stderr_gives_way_to_force_and_to_the_next_of_its_group() {
    for (own, other) in [
        (
            &["run", "x"][..],
            &["run", "x", "--force", "--wait", "20s"][..],
        ),
        (
            &["run", "--group", "x", "--cancel-in-progress"],
            &[
                "run",
                "--group",
                "x",
                "--cancel-in-progress",
                "--wait",
                "20s",
            ],
        ),
    ] {
        let scene = Scene::new();
        let (full, gate) = (Full::new(), Gate::new(&scene, "x"));
        let (run, command) = deaf(&scene, &full, &gate, own);
        let next = [other, &["--", "true"]].concat();
        let (answer, took) = timed(|| scene.run(next));
        let _ = answer.expect(0, "the next one has the lock");
        assert!(took < SOON, "soon: {took:?}");
        assert!(!is_alive(command), "and the old work is gone");
        let _ = run.finish().expect(79, "the old run says so");
    }
}

#[test]
fn a_waiter_with_a_slow_stderr_keeps_its_bound_hears_signals_and_takes_its_turn() {
    for output in ["text", "json"] {
        let scene = Scene::new();
        let holder = scene.hold("x", ["-q"]);
        let full = Full::new();
        let waiter = |wait: &str, command: &[&str]| {
            let words = ["run", "x", "--wait", wait, "--output", output, "--"];
            let waiter = scene.tenure([&words[..], command].concat());
            start(waiter, Stdio::piped(), full.end())
        };
        let (answer, took) = timed(|| waiter("500ms", &["true"]).finish());
        let answer = answer.expect(4, "its bounded wait is over");
        assert!(took < SOON, "{output}: {took:?}");
        if output == "json" {
            let said = answer.json();
            let warnings = said["warnings"].to_string();
            assert!(
                warnings.contains("1 message could not be written to stderr"),
                "what was dropped is counted: {said}"
            );
        }

        let stopped = waiter("forever", &["true"]);
        scene.until_queued("x", 1);
        std::thread::sleep(Duration::from_millis(200));
        let ((), took) = timed(|| {
            stopped.signal(Signal::TERM);
            let _ = stopped.finish().expect(143, "SIGTERM is heard");
        });
        assert!(took < SOON, "{output}: {took:?}");

        let done = scene.path("done");
        let next = waiter("forever", &["touch", done.to_str().unwrap()]);
        scene.until_queued("x", 1);
        let _ = holder.open().expect(0, "the holder");
        eventually("the waiter to run in its turn", || done.exists());
        let _ = next.finish().expect(0, "and to end well");
    }
}

#[test]
fn what_could_not_be_said_at_once_is_said_later() {
    let scene = Scene::new();
    let holder = scene.hold("x", ["-q"]);
    let full = Full::new();
    let waiter = scene.tenure(["run", "x", "--wait", "forever", "--", "true"]);
    let waiter = start(waiter, Stdio::piped(), full.end());
    scene.until_queued("x", 1);
    std::thread::sleep(Duration::from_millis(300));
    let said = std::thread::spawn(move || full.read());
    let _ = holder.open().expect(0, "the holder");
    let _ = waiter.finish().expect(0, "the waiter");
    let said = said.join().expect("the reader");
    assert!(
        said.starts_with("tenure: x is held by PID"),
        "the message of the wait: {said:?}"
    );
    assert_eq!(said.lines().count(), 1, "once: {said:?}");
}

/// The command floods the pipe that it shares with its supervisor. A slow reader takes a little of it now
/// and then, so that there is room whenever the supervisor looks, and none when it writes.
#[test]
fn a_command_that_floods_the_shared_stderr_does_not_keep_its_supervisor() {
    let scene = Scene::new();
    let full = Full::new();
    let begun = scene.path("begun");
    let script = format!("touch {}; exec yes flood >&2", begun.display());
    let run = scene.tenure(["run", "x", "--", "sh", "-c", &script]);
    let run = start(run, Stdio::null(), full.end());
    let Full { reader, writer } = full;
    drop(writer);
    let reader = std::thread::spawn(move || {
        let mut bytes = [0; 512];
        while rustix::io::read(&reader, &mut bytes).is_ok_and(|read| read > 0) {
            std::thread::sleep(Duration::from_millis(1));
        }
    });
    eventually("the command to begin", || begun.exists());
    let (answer, took) =
        timed(|| scene.run(["run", "x", "--force", "--wait", "20s", "--", "true"]));
    let _ = answer.expect(0, "the next one has the lock");
    assert!(took < SOON, "soon: {took:?}");
    let _ = run.finish().expect(79, "the old run gave way");
    reader.join().expect("the reader");
}

#[test]
fn a_hook_with_a_slow_stderr_has_its_grace_and_no_more() {
    let scene = Scene::new();
    let (full, gate) = (Full::new(), Gate::new(&scene, "x"));
    let words = [
        "run",
        "--group",
        "x",
        "--grace",
        "1s",
        "--on-superseded",
        "echo moving over >&2",
    ];
    let (run, _) = deaf(&scene, &full, &gate, &words);
    let next = [
        "run",
        "--group",
        "x",
        "--cancel-in-progress",
        "--wait",
        "20s",
    ];
    let (answer, took) = timed(|| scene.run([&next[..], &["--", "true"]].concat()));
    let _ = answer.expect(0, "the next one has the lock");
    assert!(took < SOON, "soon: {took:?}");
    let _ = run.finish().expect(79, "the old run says so");
}

/// A reader on a terminal may stop for a while: the answer waits, and loses nothing.
#[test]
fn an_answer_waits_for_a_slow_reader() {
    let scene = Scene::new();
    let full = Full::new();
    let acquire = scene.tenure(["acquire", "x", "--owner", "none", "--output", "json"]);
    let mut acquire = start(acquire, full.end(), Stdio::piped());
    eventually("the lock to be held", || scene.standing("x") == "held");
    throughout(Duration::from_millis(500), "it waits", || {
        !acquire.has_ended()
    });
    let said = std::thread::spawn(move || full.read());
    let _ = acquire.finish().expect(0, "it was heard");
    let said = said.join().expect("the reader");
    let said: serde_json::Value = serde_json::from_str(&said).expect("a whole document");
    assert_eq!(said["data"]["status"], "acquired", "{said}");
    assert_eq!(scene.standing("x"), "held", "and it is held");
}

#[test]
fn a_signal_ends_a_call_that_nobody_reads() {
    let ending = [(Signal::TERM, 143), (Signal::INT, 130), (Signal::HUP, 129)];
    for (signal, code) in ending {
        let scene = Scene::new();
        let full = Full::new();
        let acquire = scene.tenure(["acquire", "x", "--owner", "none"]);
        let acquire = start(acquire, full.end(), Stdio::piped());
        eventually("the lock to be held", || scene.standing("x") == "held");
        std::thread::sleep(Duration::from_millis(100));
        let (answer, took) = timed(|| {
            acquire.signal(signal);
            acquire.finish()
        });
        let answer = answer.expect(code, "the signal is heard");
        assert!(took < SOON, "at once: {took:?}");
        assert!(
            answer.stderr().contains("so x was given back"),
            "and says what became of the lock: {}",
            answer.said()
        );
        assert!(scene.is_free("x"), "the lock is free");
    }
    // Neither is a call kept that was asked to end before it had anything to say.
    let scene = Scene::new();
    let (full, gate) = (Full::new(), Gate::new(&scene, "x"));
    let script = gate.script("");
    let run = scene.tenure(["run", "x", "--output", "json", "--", "sh", "-c", &script]);
    let run = start(run, full.end(), Stdio::null());
    gate.entered();
    run.signal(Signal::TERM);
    let (answer, took) = timed(|| run.finish());
    let _ = answer.expect(143, "it ends");
    assert!(took < SOON, "{took:?}");
    assert!(scene.is_free("x"), "and its lock was given back before");
}

fn to(scene: &Scene, stdout: Stdio, words: &[&str]) -> crate::support::Answer {
    let mut command = scene.tenure(words);
    command.stdout(stdout).stderr(Stdio::piped());
    Started::new(&mut command).finish()
}

#[test]
fn an_acquire_whose_answer_is_lost_gives_the_lock_back_and_fails() {
    let profiles: [&[&str]; 5] = [
        &["acquire", "x", "--owner", "none"],
        &[
            "--profile",
            "resume",
            "--dir",
            "r",
            "acquire",
            "x",
            "--owner",
            "parent",
        ],
        &["--profile", "session", "--dir", "s", "acquire", "42"],
        &[
            "--profile",
            "fleet",
            "--dir",
            "f",
            "acquire",
            "x",
            "--intent-name",
            "deploy",
            "--intent-version",
            "1",
        ],
        &[
            "--profile",
            "sprint",
            "acquire",
            "--project-root",
            ".",
            "--session-id",
            "s-1",
            "--epic-spec",
            "e",
            "--owner",
            "parent",
        ],
    ];
    for words in profiles {
        for output in ["text", "json", "yaml"] {
            for (stdout, why) in [
                (no_room as fn() -> Stdio, "no space left on device"),
                (gone, "its reader has gone"),
            ] {
                let scene = Scene::new();
                std::fs::create_dir(scene.path("f")).expect("a folder");
                let run = |stdout: Stdio| {
                    let mut command = scene.tenure([words, &["--output", output]].concat());
                    command.current_dir(scene.root());
                    rights(&scene);
                    command.stdout(stdout).stderr(Stdio::piped());
                    Started::new(&mut command).finish()
                };
                let answer = run(stdout()).expect(1, "the answer is lost");
                let said = answer.stderr();
                assert!(
                    said.contains(why) && said.contains("was given back"),
                    "{words:?} {output}: {said}"
                );
                let _ = run(Stdio::null()).expect(0, "the lock is free for the next one");
            }
        }
    }
}

/// A fleet wants its folder to itself.
fn rights(scene: &Scene) {
    use std::os::unix::fs::PermissionsExt;
    let rights = std::fs::Permissions::from_mode(0o700);
    std::fs::set_permissions(scene.path("f"), rights).expect("rights");
}

#[test]
fn a_hold_that_was_there_before_survives_a_lost_answer() {
    let scene = Scene::new();
    let words = ["acquire", "x", "--owner", "none", "--request-id", "mine"];
    let _ = scene.run(words).expect(0, "the first");
    let token = scene.check("x")["holder"]["token"].as_u64();
    let again = to(&scene, no_room(), &words).expect(1, "the answer is lost");
    assert!(again.stderr().contains("x stays held"), "{}", again.said());
    assert_eq!(
        scene.check("x")["holder"]["token"].as_u64(),
        token,
        "the same hold"
    );
}

#[test]
fn every_other_verb_fails_when_its_answer_is_lost() {
    let scene = Scene::new();
    let acquire = || {
        scene.run([
            "acquire",
            "x",
            "--owner",
            "none",
            "--ttl",
            "1h",
            "--request-id",
            "me",
        ])
    };
    let audit = scene.path("audit");
    let audit = audit.to_str().unwrap();
    let _ = scene
        .run(["--audit-dir", audit, "run", "y", "--", "true"])
        .expect(0, "an event for the audit");
    let calls: [&[&str]; 14] = [
        &["list"],
        &["check", "y"],
        &["check"],
        &["audit", "--audit-dir", audit],
        &["profiles"],
        &["group-name", "--event", "issues", "--number", "4"],
        &["clean", "--dry-run"],
        &["wait", "y"],
        &["heartbeat", "x", "--request-id", "me"],
        &["release", "x", "--request-id", "me"],
        &["fence", "check", "5", "--guard", "mark"],
        &["--version"],
        &["--help"],
        &["run", "--help"],
    ];
    for words in calls {
        for output in ["text", "json", "yaml"] {
            // Some have nothing to say to people when all is well.
            if output == "text" && matches!(words.first(), Some(&"fence" | &"check")) {
                continue;
            }
            let _ = acquire().expect(0, "a hold");
            let words = [words, &["--output", output]].concat();
            let mut command = scene.tenure(&words);
            command.current_dir(scene.root());
            let lost = Started::new(command.stdout(no_room()).stderr(Stdio::piped())).finish();
            let code = if words.first() == Some(&"check") && words.len() == 3 {
                4 // a lock is held, whether the answer is read or not
            } else {
                1
            };
            let lost = lost.expect(code, &words.join(" "));
            let said = lost.stderr();
            assert!(
                said.contains("the answer could not be written: ENOSPC: no space left on device"),
                "{words:?}: {said}"
            );
            if words.first() == Some(&"release") {
                assert!(said.contains("what was done stands"), "{said}");
                assert!(scene.is_free("x"), "it stays released");
            }
        }
    }
    let follow = scene.tenure(["audit", "--follow", "--audit-dir", audit]);
    let follow = start(follow, no_room(), Stdio::piped()).finish();
    let _ = follow.expect(1, "a caller that follows is told too");
}

#[test]
fn a_signal_ends_a_list_that_nobody_reads() {
    let scene = Scene::new();
    let full = Full::new();
    let list = scene.tenure(["list", "--output", "json"]);
    let mut list = start(list, full.end(), Stdio::null());
    throughout(Duration::from_millis(300), "it waits", || !list.has_ended());
    list.signal(Signal::TERM);
    let (status, took) = timed(|| list.end());
    assert!(!status.success() && took < BOUND, "{status}");
}
