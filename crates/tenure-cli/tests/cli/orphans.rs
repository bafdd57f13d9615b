//! A run whose supervisor was killed while its command goes on: every verb says so, and `cancel --orphan`
//! ends that command and no other process.

use super::support::{
    Gate, Held, Scene, Started, answer, eventually, is_alive, read_number, send, timed,
};
use rustix::process::Signal;
use std::time::Duration;
use tenure::resume::{ResumeLockError, ResumeLockManager};
use tenure_store::file::{Byte, ByteLock, Mode};

/// A run with its command on record, whose supervisor is dead.
fn orphan(scene: &Scene, name: &str, flags: &[&str], prelude: &str) -> Held {
    let gate = Gate::new(scene, name);
    let held = scene.hold_with(name, [&["-q"], flags].concat(), &gate, prelude);
    scene.until_named(name);
    held.signal(Signal::KILL);
    eventually("its supervisor to be dead", || {
        scene.check(name)["holder"]["orphaned"] == true
    });
    held
}

/// A line of shell that starts a process which has left the group, and says its number.
fn daemon(pid: &std::path::Path, what: &str) -> String {
    format!(
        "setsid sh -c 'echo $$ >{pid}.new; mv {pid}.new {pid}; {what} sleep 600; :' </dev/null >/dev/null 2>&1 &",
        pid = pid.display()
    )
}

#[test]
fn a_refusal_says_of_an_orphan_what_check_says() {
    let scene = Scene::new();
    let held = orphan(&scene, "j", &["--slots", "2"], "");
    let other = orphan(&scene, "j", &["--slots", "2"], "");
    eventually("the other supervisor to be dead", || {
        scene.check("j")["other_holders"][0]["orphaned"] == true
    });
    for wait in ["0", "100ms"] {
        for flags in [&["--slots", "2"][..], &[]] {
            let words = [
                &["run", "j", "--wait", wait],
                flags,
                &["--output", "json", "--", "true"],
            ];
            let refused = scene.run(words.concat()).expect(4, "its command goes on");
            let said = refused.json();
            let (context, checked) = (&said["error"]["context"], scene.check("j"));
            for key in ["orphaned", "pid", "command_pid", "token"] {
                assert_eq!(
                    context["holder"][key].is_null(),
                    checked["holder"][key].is_null()
                );
            }
            assert_eq!(
                context["holder"]["orphaned"], true,
                "{wait} {flags:?}: {said}"
            );
            assert_eq!(context["other_holders"][0]["orphaned"], true, "{said}");
            let message = said["error"]["message"].as_str().unwrap_or_default();
            let at_work = format!("held by PID {} (", context["holder"]["command_pid"]);
            assert!(message.contains(&at_work), "{message}");
        }
    }
    let refused = scene
        .run(["run", "j", "-n", "--", "true"])
        .expect(4, "held");
    let text = refused.stderr();
    assert!(
        text.contains("it died; its command, PID") && text.contains("tenure cancel --orphan j"),
        "{text}"
    );
    for held in [held, other] {
        held.gate.open();
    }
    scene.until_free("j");
}

#[test]
fn the_bound_of_a_wait_holds_against_an_orphan_that_was_asked_to_stop() {
    let scene = Scene::new();
    let held = orphan(&scene, "j", &[], "");
    for flags in [
        &["--cancel-in-progress"][..],
        &["--force"],
        &["--force", "--yes"],
    ] {
        let words = [&["run", "j", "--wait", "1s"], flags, &["--", "true"]].concat();
        let (refused, took) = timed(|| scene.run(words));
        let refused = refused.expect(4, "no supervisor is left that could end it");
        assert!(took < Duration::from_secs(4), "{flags:?}: {took:?}");
        let text = refused.stderr();
        assert!(
            text.contains("whose supervisor is dead"),
            "while it waits: {text}"
        );
        assert!(text.contains("tenure cancel --orphan j"), "{text}");
    }
    assert!(is_alive(held.command), "it was not ended");
    held.gate.open();
}

/// The holder was asked while it could hear, and died before it did anything.
#[test]
fn a_holder_that_dies_in_its_grace_stops_no_clock() {
    let scene = Scene::new();
    let gate = Gate::new(&scene, "j");
    let held = scene.hold_with("j", ["-q", "--grace", "30s"], &gate, "trap '' INT TERM");
    scene.until_named("j");
    let words = [
        "run",
        "j",
        "--wait",
        "2s",
        "--cancel-in-progress",
        "--",
        "true",
    ];
    let waiter = Started::new(
        scene
            .tenure(words)
            .stdout(std::process::Stdio::piped())
            .stderr(std::process::Stdio::piped()),
    );
    eventually("it is asked", || {
        scene.check("j")["holder"]["cancel_requested"] == true
    });
    held.signal(Signal::KILL);
    let (refused, took) = timed(|| waiter.finish());
    refused.expect(4, "its wait is over");
    assert!(took < Duration::from_secs(8), "{took:?}");
    held.gate.open();
}

/// The age of a record lets a hold count for a while after all of its processes have ended.
#[test]
fn cancel_says_that_nothing_of_an_ended_hold_hears_it_table() {
    let intent = ["--intent-name", "i", "--intent-version", "1"];
    for (profile, name, more) in [("session", "42", &[][..]), ("fleet", "web", &intent[..])] {
        let scene = Scene::new();
        let lock = [&["--profile", profile, "run", name], more].concat();
        let run = [&lock[..], &["--", "sleep", "600"]].concat();
        let holder = Started::new(&mut scene.tenure(run));
        let command = || {
            let list = ["--profile", profile, "list", "--output", "json"];
            let listed = scene.run(list).json();
            listed["data"]["locks"][0]["holder"]["command_pid"].as_u64()
        };
        eventually("its command to be named", || command().is_some());
        let command = u32::try_from(command().unwrap()).unwrap();
        for pid in [holder.pid(), command] {
            send(pid, Signal::KILL);
            eventually("both to be dead", || !is_alive(pid));
        }
        let said = scene.run(["--profile", profile, "cancel", name]);
        let said = said.expect(4, "its record counts").said();
        assert!(
            said.contains("nothing of it runs any more"),
            "{profile}: {said}"
        );
        assert!(!said.contains("ends its command"), "{profile}: {said}");
    }
}

#[test]
fn asking_an_orphan_to_stop_is_refused_with_the_way_to_end_it() {
    let scene = Scene::new();
    let held = orphan(&scene, "j", &[], "");
    for words in [&["cancel", "j"][..], &["force-release", "j", "--yes"]] {
        let refused = scene.run(words).expect(4, "no supervisor acts on it");
        let text = refused.stderr();
        assert!(
            text.contains("it died") && text.contains("tenure cancel --orphan j"),
            "{text}"
        );
    }
    let refused = scene
        .run(["cancel", "j", "--output", "json"])
        .expect(4, "the same");
    let said = refused.json();
    assert_eq!(said["error"]["code"], "CANNOT_ASK", "{said}");
    assert_eq!(said["error"]["context"]["orphaned"], true, "{said}");
    assert_eq!(
        said["error"]["context"]["command_pid"], held.command,
        "{said}"
    );
    held.gate.open();
}

#[test]
fn an_orphan_is_ended_with_all_that_descends_from_it_and_the_next_one_starts() {
    let scene = Scene::new();
    let (child, told) = (scene.path("child"), scene.path("told"));
    let prelude = format!(
        "trap 'echo asked >{told}; exit 0' INT\n{}\n(trap '' INT TERM; sleep 600) &",
        daemon(&child, "trap \"\" INT TERM;"),
        told = told.display()
    );
    let held = orphan(&scene, "j", &["--grace", "2s"], &prelude);
    let child = read_number(&child);
    let words = ["cancel", "--orphan", "j", "--by", "op", "--output", "json"];
    let ended = scene.run(words).expect(0, "it is gone").json();
    assert!(told.exists(), "it was asked before");
    assert!(
        !is_alive(child) && !is_alive(held.command),
        "nothing is left: {ended}"
    );
    let data = &ended["data"]["ended"][0];
    assert_eq!(data["command_pid"], held.command, "{ended}");
    assert_eq!(data["is_free"], true, "{ended}");
    let pids = data["ended_pids"].as_array().cloned().unwrap_or_default();
    assert!(
        pids.contains(&held.command.into()) && pids.contains(&child.into()),
        "{ended}"
    );
    scene
        .run(["run", "j", "-n", "--", "true"])
        .expect(0, "free");
    let audit = scene.run(["audit", "j"]).expect(0, "an audit").stdout();
    assert!(audit.contains("orphan ended"), "{audit}");
    scene
        .run(["cancel", "--orphan", "j"])
        .expect(5, "it has no holder");
}

#[test]
fn an_orphan_that_is_deaf_is_killed_when_its_grace_is_over() {
    let scene = Scene::new();
    for (name, flags, signal) in [
        ("own", &["--grace", "1s"][..], &[][..]),
        ("given", &[], &["--grace", "1s"]),
        ("kill", &[], &["--signal", "KILL"]),
    ] {
        let held = orphan(&scene, name, flags, "trap '' INT TERM");
        let words = [&["cancel", "--orphan", name], signal].concat();
        let (ended, took) = timed(|| scene.run(words));
        ended.expect(0, "it is gone");
        assert!(took < Duration::from_secs(6), "{name}: {took:?}");
        assert!(!is_alive(held.command) && scene.is_free(name), "{name}");
    }
}

#[test]
fn who_is_no_orphan_is_left_alone() {
    let scene = Scene::new();
    let held = scene.hold("run", ["-q"]);
    scene.until_named("run");
    held.signal(Signal::STOP);
    let refused = scene.run(["cancel", "--orphan", "run", "--output", "json"]);
    let refused = refused.expect(4, "stopped is not dead").json();
    assert_eq!(refused["error"]["code"], "NOT_ORPHANED", "{refused}");
    held.signal(Signal::CONT);
    held.open().expect(0, "it was left alone");
    let words = [
        "acquire",
        "detached",
        "--owner",
        "none",
        "--request-id",
        "r",
    ];
    scene.run(words).expect(0, "a hold without a supervisor");
    let refused = scene.run(["cancel", "--orphan", "detached"]);
    refused.expect(4, "there is no process of it");
    let refused = scene.run(["cancel", "--orphan", "nobody"]);
    refused.expect(5, "it has no holder");
    scene
        .run(["cancel", "x", "--signal", "TERM"])
        .expect(2, "a run has its own");
}

/// Nothing proves whose child it was.
#[test]
fn what_has_lost_its_parent_is_named_and_not_ended() {
    let scene = Scene::new();
    let pid = scene.path("daemon");
    // Started by a process that ends at once, and of another group and session.
    let prelude = format!("({})", daemon(&pid, "exec").trim_end());
    let held = orphan(&scene, "j", &["--grace", "1s"], &prelude);
    let daemon = read_number(&pid);
    let refused = scene.run(["cancel", "--orphan", "j", "--output", "json"]);
    let refused = refused.expect(4, "the lock is still held").json();
    assert_eq!(refused["error"]["code"], "ORPHAN_REMAINS", "{refused}");
    assert_eq!(refused["error"]["partial"], true, "{refused}");
    assert!(!is_alive(held.command), "that one was proven");
    assert!(is_alive(daemon), "that one was not");
    let refused = scene.run(["cancel", "--orphan", "j", "--output", "json"]);
    let refused = refused.expect(4, "now its command is gone").json();
    assert_eq!(refused["error"]["code"], "ORPHAN_UNPROVEN", "{refused}");
    assert!(is_alive(daemon), "tenure does not guess");
    send(daemon, Signal::KILL);
    scene.until_free("j");
}

/// The work may not end itself by this: it would leave the rest undone.
#[test]
fn a_call_from_within_the_orphan_is_refused() {
    let scene = Scene::new();
    let (go, said) = (scene.path("go"), scene.path("said"));
    let prelude = format!(
        "while [ ! -e {go} ]; do sleep .02; done; tenure cancel --orphan j 2>{said}.new; \
         mv {said}.new {said}",
        go = go.display(),
        said = said.display()
    );
    let gate = Gate::new(&scene, "j");
    let script = gate.script(&prelude);
    let mut command = scene.tenure(["run", "-q", "j", "--", "sh", "-c", &script]);
    let run = Started::new(
        command
            .stdout(std::process::Stdio::null())
            .stderr(std::process::Stdio::null()),
    );
    scene.until_named("j");
    run.signal(Signal::KILL);
    eventually("an orphan", || {
        scene.check("j")["holder"]["orphaned"] == true
    });
    scene.write("go", "");
    eventually("its answer", || said.exists());
    let text = std::fs::read_to_string(&said).expect("its answer");
    assert!(text.contains("part of its work"), "{text}");
    gate.entered();
    gate.open();
    scene.until_free("j");
}

/// A profile that goes by age calls the lock stale while the work of a dead supervisor goes on. That is said, and it can be
/// ended, until it has ended.
#[test]
fn orphan_whose_lock_is_too_old_stays_one_table() {
    let session = ["--profile", "session", "--stale-after", "2s"];
    let fleet = ["--profile", "fleet"];
    let intent = ["--intent-name", "i", "--intent-version", "1"];
    for (of, begins, forces) in [
        (&session[..], &[][..], &[][..]),
        (
            &fleet[..],
            &[&intent[..], &["--ttl", "2"]].concat()[..],
            &["--force-lock"][..],
        ),
    ] {
        for takes_over in [false, true] {
            let scene = Scene::new();
            let call = |verb: &[&str]| scene.run([of, verb].concat());
            let begun = "echo $$ >pid.new; mv pid.new pid; exec sleep 600";
            let words = [of, &["run", "42"], begins, &["--", "sh", "-c", begun]].concat();
            let mut run = scene.tenure(words);
            let run = Started::piped(run.current_dir(scene.root()));
            let command = read_number(&scene.path("pid"));
            // A command writes its number a moment before its supervisor records it.
            eventually("its command is on record", || {
                let said = call(&["check", "42", "--output", "json"]).stdout();
                said.contains(&format!("\"command_pid\":{command}"))
            });
            run.signal(Signal::KILL);
            let check = || {
                let said = call(&["check", "42", "--output", "json"]).stdout();
                let said: serde_json::Value = serde_json::from_str(&said).unwrap_or_default();
                [&said["data"], &said["error"]["context"]]
                    .into_iter()
                    .find(|lock| lock["standing"] == "stale")
                    .cloned()
            };
            eventually("it to be too old", || check().is_some());
            let lock = check().expect("it stands");
            assert_eq!(lock["holder"]["orphaned"], true, "{of:?}: {lock:#}");
            let _ = call(&["clean"]).expect(0, "it leaves the claim of living work");
            if takes_over {
                let words = [&["run", "42"], begins, forces, &["--", "true"]].concat();
                let said = call(&words).expect(0, "too old").stderr();
                let warned = format!("PID {command} (sh -c ");
                assert!(
                    said.contains(&warned) && said.contains("still at work"),
                    "{said}"
                );
                assert!(is_alive(command), "no takeover ends it");
                let process = rustix::process::Pid::from_raw(command.cast_signed());
                rustix::process::kill_process(process.expect("a number"), Signal::KILL).ok();
            } else {
                let said = call(&["cancel", "--orphan", "42"])
                    .expect(0, "it is found")
                    .stdout();
                assert!(said.contains(&format!("(PID {command})")), "{said}");
                assert!(!is_alive(command), "ended");
            }
            let _ = run.finish();
        }
    }
}

/// What a lock file says of a process proves nothing. The kernel has to show that it keeps the lock on this very file, and
/// its environment that it is under this hold.
#[test]
fn orphan_is_ended_only_with_proof_table() {
    let closes = "import os; os.closerange(3, 65536); os.execvp('sleep', ['sleep', '600'])";
    for (what, command, told) in [
        (
            "closes its descriptors",
            &["python3", "-c", closes][..],
            "does not keep its lock on the file",
        ),
        (
            "forgets its environment",
            &["env", "-i", "sleep", "600"],
            "does not name this hold",
        ),
        (
            "is under another hold of that name",
            &["env", "TENURE_HELD=1=/tmp/x", "sleep", "600"],
            "does not name this hold",
        ),
    ] {
        let scene = Scene::new();
        let words = [&["run", "-q", "x", "--"], command].concat();
        let run = Started::piped(&mut scene.tenure(words));
        let pid = || scene.check("x")["holder"]["command_pid"].as_u64();
        eventually("a command", || pid().is_some());
        let pid = u32::try_from(pid().expect("a command")).expect("a number");
        let name = || std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        eventually("sleep", || name().trim() == "sleep");
        run.signal(Signal::KILL);
        eventually("its supervisor to be dead", || {
            scene.check("x")["holder"]["orphaned"] == true
        });
        // The lock is free a moment before the system counts the holder as dead.
        let cancel = || {
            scene
                .run(["cancel", "--orphan", "x"])
                .expect(4, what)
                .stderr()
        };
        eventually("a dead supervisor", || {
            !cancel().contains("not known to be dead")
        });
        let said = cancel();
        assert!(said.contains(told), "{what}: {said}");
        assert!(said.contains(&format!("`kill {pid}`")), "{what}: {said}");
        assert!(
            said.contains(&format!("PID {pid} (sleep)")),
            "{what}: {said}"
        );
        assert!(is_alive(pid), "{what}");
        let process = rustix::process::Pid::from_raw(pid.cast_signed()).expect("a number");
        rustix::process::kill_process(process, Signal::KILL).expect("it is ours");
        let _ = run.finish();
    }
}

/// A member of a shared folder writes a lock file of which the claim names a stranger's process, all of it true.
#[test]
fn lock_file_that_names_a_strangers_process_ends_nothing() {
    let scene = Scene::new();
    let held = orphan(&scene, "j", &[], "");
    let planted = scene.path("planted");
    std::fs::create_dir(&planted).expect("a folder");
    std::fs::copy(scene.locks().join("j.tenure"), planted.join("j.tenure")).expect("a copy");
    let words = [
        "--dir",
        planted.to_str().expect("a path"),
        "cancel",
        "--orphan",
        "j",
    ];
    let said = scene.run(words).expect(4, "no proof").stderr();
    assert!(
        said.contains("does not keep its lock on the file"),
        "{said}"
    );
    assert!(is_alive(held.command), "no process was ended");
    let _ = scene
        .run(["cancel", "--orphan", "j"])
        .expect(0, "its own lock");
    assert!(!is_alive(held.command), "ended");
}

/// Whether a process is stopped.
fn is_stopped(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat.rsplit_once(')').map(|(_, rest)| rest.trim_start());
    state.is_some_and(|state| state.starts_with('T'))
}

/// A run that is stopped with its command on record.
fn stopped(scene: &Scene, name: &str) -> Held {
    let held = scene.hold(name, ["-q"]);
    scene.until_named(name);
    held.signal(Signal::STOP);
    eventually("it to be stopped", || is_stopped(held.pid()));
    held
}

#[test]
fn every_answer_says_that_a_holder_is_stopped_and_what_continues_it() {
    let scene = Scene::new();
    let held = stopped(&scene, "j");
    let continues = format!("`kill -CONT {}` continues it", held.pid());
    for (words, code) in [
        (&["check", "j"][..], 4),
        (&["list"], 0),
        (&["run", "-n", "j", "--", "true"], 4),
        (&["wait", "-n", "j"], 4),
        (&["release", "j"], 6),
        (&["force-release", "--yes", "j"], 4),
        (&["cancel", "--orphan", "j"], 4),
        (&["cancel", "j"], 0),
    ] {
        let said = scene.run(words).expect(code, "it is stopped");
        let said = said.stdout() + &said.stderr();
        assert!(said.contains(&continues), "{words:?}: {said}");
        let is_advised = said.contains("`tenure cancel --force j`");
        assert!(
            is_advised || words[0] == "check" || words[0] == "list",
            "{words:?}: {said}"
        );
        assert!(!said.contains("`tenure cancel j`"), "{words:?}: {said}");
    }
    let asked = scene.run(["cancel", "j", "--output", "json"]).json();
    let asked = &asked["data"]["asked"][0];
    assert_eq!(
        (&asked["stopped"], &asked["supervised"]),
        (&true.into(), &false.into())
    );
    assert!(is_stopped(held.pid()), "no answer continues it");
    held.signal(Signal::CONT);
    held.finish()
        .expect(79, "it hears of the request when it goes on");
}

#[test]
fn every_profile_says_in_its_own_words_that_a_holder_is_stopped() {
    let profiles: [(&str, &[&str]); 4] = [
        ("native", &[]),
        ("resume", &[]),
        ("fleet", &["--intent-name", "i", "--intent-version", "1"]),
        ("session", &["--run-id"]),
    ];
    for (profile, begins) in profiles {
        let scene = Scene::new();
        let gate = Gate::new(&scene, "held");
        let call = |id: &[&str], verb: &[&str], more: &[&str]| {
            let id = if profile == "session" { id } else { &[] };
            let words = [&["--profile", profile], verb, &["42"], begins, id, more];
            scene.tenure(words.concat())
        };
        let script = gate.script("");
        let held = Started::new(&mut call(&["one"], &["run"], &["--", "sh", "-c", &script]));
        gate.entered();
        held.signal(Signal::STOP);
        eventually("it to be stopped", || is_stopped(held.pid()));
        let line = format!("kill -CONT {}", held.pid());
        let refused = answer(&mut call(&["two"], &["run", "-n"], &["--", "true"]));
        let said = refused.stdout() + &refused.stderr();
        assert!(
            said.contains(&format!("`{line}` continues it")),
            "{profile}: {said}"
        );
        if profile != "session" {
            let words = ["--profile", profile, "release", "42"];
            let said = scene.run(words).expect(6, profile);
            let said = said.stdout() + &said.stderr();
            assert!(
                said.contains(&format!("`{line}` continues it")),
                "{profile}: {said}"
            );
        }
        let asked = ["run", "-n", "--output", "json"];
        let refused = answer(&mut call(&["two"], &asked, &["--", "true"]));
        assert_eq!(refused.json()["error"]["fix_command"], *line, "{profile}");
        held.signal(Signal::CONT);
        gate.open();
        held.finish().expect(0, "it goes on");
    }
}

#[test]
fn force_continues_a_stopped_holder_and_no_other_process() {
    let scene = Scene::new();
    let held = stopped(&scene, "j");
    // A list that names it, whose byte another process keeps.
    let planted = scene.path("planted");
    std::fs::create_dir(&planted).expect("a folder");
    let list = planted.join("j.tenure");
    std::fs::copy(scene.locks().join("j.tenure"), &list).expect("a copy");
    let text = String::from_utf8_lossy(&std::fs::read(&list).expect("the list")).into_owned();
    let ticket = text.split("\"ticket\":").nth(1).expect("a ticket");
    let digits = ticket.split(|c: char| !c.is_ascii_digit()).next();
    let byte = ByteLock {
        byte: Byte::of_ticket(digits.and_then(|it| it.parse().ok()).expect("a ticket")),
        mode: Mode::Exclusive,
    };
    let file = std::fs::File::options()
        .read(true)
        .write(true)
        .open(&list)
        .expect("the list");
    assert!(
        byte.try_take(std::os::fd::AsFd::as_fd(&file))
            .expect("an answer")
    );
    let words = [
        "--dir",
        planted.to_str().expect("a path"),
        "cancel",
        "--force",
        "j",
    ];
    let said = scene.run(words).expect(4, "no proof").stderr();
    assert!(
        said.contains("does not keep the lock on the file"),
        "{said}"
    );
    assert!(is_stopped(held.pid()), "it was not continued");
    // The command is stopped, too, as by Ctrl-Z.
    send(held.command, Signal::STOP);
    let done = scene.run(["cancel", "--force", "j", "--output", "json"]);
    let done = done.expect(0, "it is continued").json();
    assert_eq!(done["data"]["asked"][0]["ended"], true, "{done}");
    assert!(!is_alive(held.command), "its command has ended");
    held.finish().expect(79, "it was cancelled");
    assert!(scene.is_free("j"));
    let words = ["cancel", "--force", "j"];
    scene.run(words).expect(5, "there is no holder");
}

#[test]
fn a_sprint_says_what_goes_on_and_what_is_not_judged() {
    let scene = Scene::new();
    let sprint = ["--profile", "sprint", "--project-root", "."];
    let call = |words: &[&str]| {
        let mut call = scene.tenure([&sprint[..], words].concat());
        call.env_remove("TENURE_DIR").current_dir(scene.root());
        answer(&mut call)
    };
    let begins = ["--session-id", "s1", "--epic-spec", "e"];
    let acquire = [&["acquire"][..], &begins, &["--owner", "1"]].concat();
    let record = scene.root().join(".sprint-running");
    let planted = "pid: 4194304\nsession_id: s0\nstarted_at: \"2026-02-07T10:00:00Z\"\nepic_spec: e\nlock_version: 2\n";
    std::fs::write(&record, planted).expect("a record");
    for words in [&["check"][..], &acquire] {
        let said = call(words).expect(4, "it is not judged").stdout();
        assert!(said.contains("although its process is dead"), "{said}");
    }
    answer(scene.program("rm").arg(&record)).expect(0, "it is gone");
    let gate = Gate::new(&scene, "s");
    let script = gate.script("");
    let words = [&["run", "-q"][..], &begins, &["--", "sh", "-c", &script]].concat();
    let mut run = scene.tenure([&sprint[..], &words].concat());
    run.env_remove("TENURE_DIR").current_dir(scene.root());
    let run = Started::new(&mut run);
    let command = gate.entered();
    eventually("its command to be named", || {
        let listed = call(&["list", "--output", "json"]).json();
        listed["data"]["locks"][0]["holder"]["command_pid"] == command
    });
    run.signal(Signal::KILL);
    let goes_on = format!("its command, PID {command}, goes on");
    let ends = "`tenure --profile sprint --project-root . cancel --orphan sprint` ends it";
    eventually("its supervisor to be dead", || {
        call(&["check"]).stdout().contains(&goes_on)
    });
    for words in [&["check"][..], &acquire] {
        let said = call(words).expect(4, "its command goes on").stdout();
        assert!(said.contains(&goes_on) && said.contains(ends), "{said}");
    }
    let facts = call(&["check", "--output", "json"]).json();
    assert!(
        facts["error"]["context"]["errors"][0].is_string(),
        "{facts}"
    );
    gate.open();
}

/// The library refuses with the process that is at work, and with the line that ends it.
#[test]
fn a_refusal_of_the_library_names_the_command_of_an_orphan_and_what_ends_it() {
    let scene = Scene::new();
    let storage = scene.path("it's here");
    let gate = Gate::new(&scene, "j");
    let mut run = scene.tenure(["--profile", "resume", "-q", "run", "j", "--dir"]);
    let script = gate.script("");
    run.arg(&storage).args(["--", "sh", "-c", &script]);
    let run = Started::new(&mut run);
    let command = gate.entered();
    eventually("its command to be named", || {
        let mut list = scene.tenure(["--profile", "resume", "list", "--output", "json", "--dir"]);
        let listed = answer(list.arg(&storage)).json();
        listed["data"]["locks"][0]["holder"]["command_pid"] == command
    });
    run.signal(Signal::KILL);
    eventually("it to be dead", || !is_alive(run.pid()));
    let locks = ResumeLockManager::new(storage).expect("a folder");
    let refused = locks
        .acquire_lock_blocking("j")
        .expect_err("its command goes on");
    let text = refused.to_string();
    let ResumeLockError::InProgress {
        process_id,
        override_command: Some(line),
        is_orphaned: true,
        ..
    } = refused
    else {
        panic!("{text}");
    };
    assert_eq!(process_id, command);
    assert!(text.ends_with(&format!("This does: {line}")), "{text}");
    let _ = scene.shell(&format!("cd / && {line}")).expect(0, &line);
    assert!(!is_alive(command), "ended");
    drop(locks.acquire_lock_blocking("j").expect("it is free"));
}
