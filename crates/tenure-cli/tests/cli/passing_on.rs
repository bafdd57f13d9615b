//! `run` ends as its command does, and says so when there was nothing to run.

use crate::support::{Scene, answer, eventually};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;

#[test]
fn the_commands_code_is_passed_on() {
    let scene = Scene::new();
    for code in [0, 1, 2, 4, 17, 79, 80, 81, 126, 127, 130, 143, 255] {
        let line = format!("exit {code}");
        let answer = scene.run(["run", "x", "--", "sh", "-c", &line]);
        let answer = answer.expect(code, "the command's own code");
        assert_eq!(answer.stderr(), "", "and nothing is said about it");
    }
    assert!(scene.is_free("x"), "the lock is free after all of them");
}

#[test]
fn a_death_by_signal_is_passed_on_as_one() {
    let scene = Scene::new();
    for number in [
        libc::SIGHUP,
        libc::SIGINT,
        libc::SIGQUIT,
        libc::SIGKILL,
        libc::SIGTERM,
        libc::SIGSEGV,
        libc::SIGUSR1,
        libc::SIGPIPE,
        libc::SIGALRM,
        libc::SIGRTMIN(),
    ] {
        let line = format!("kill -{number} $$");
        let answer = scene.run(["run", "x", "--", "sh", "-c", &line]);
        assert_eq!(
            answer.status().signal(),
            Some(number),
            "tenure died by the signal that its command died by: {}",
            answer.said()
        );
    }
    assert!(scene.is_free("x"), "the lock is free after all of them");
}

#[test]
fn a_shell_sees_128_and_the_number() {
    let scene = Scene::new();
    let answer = scene.shell("tenure run x -- sh -c 'kill -9 $$'; echo $?");
    assert_eq!(answer.stdout(), "137\n", "as if tenure had not been there");
}

#[test]
fn a_code_is_passed_on_where_the_caller_ignores_the_end_of_its_children() {
    let scene = Scene::new();
    for _ in 0..20 {
        let answer = scene.shell("trap '' CHLD; exec tenure run x -- sh -c 'exit 7'");
        let _ = answer.expect(7, "the command's code did not get lost");
    }
}

#[test]
fn a_command_that_does_not_exist_is_answered_with_127_and_takes_no_lock() {
    let scene = Scene::new();
    let missing = scene.path("missing");
    let script = scene.script("script", "#!/no/such/interpreter\n");
    for program in [
        "no-such-program-anywhere",
        "",
        "./missing",
        missing.to_str().unwrap(),
        script.to_str().unwrap(),
    ] {
        let answer = scene.run(["run", "x", "--", program]);
        let answer = answer.expect(127, "there is no such command");
        assert!(
            answer.stderr().starts_with("tenure: "),
            "and it is said: {}",
            answer.said()
        );
    }
}

#[test]
fn a_command_that_cannot_be_run_is_answered_with_126() {
    let scene = Scene::new();
    let folder = scene.path("folder");
    fs::create_dir(&folder).unwrap();
    let file = scene.write("file", "#!/bin/sh\n");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
    for program in [folder.as_path(), file.as_path()] {
        let answer = answer(scene.tenure(["run", "x", "--"]).arg(program));
        let answer = answer.expect(126, "it is there and cannot be run");
        assert!(answer.stderr().starts_with("tenure: "), "and it is said");
    }
}

/// As execvp(3), and so env, nohup, timeout and flock(1) do it: in each way of starting a command.
#[test]
fn a_script_without_an_interpreter_is_run_by_the_shell_table() {
    let scene = Scene::new();
    scene.script("script", "echo \"$0 $# $2\"; exit 9\n");
    let file = scene.path("file");
    let file = file.to_str().unwrap();
    let path = scene.path("script");
    let path = path.to_str().unwrap();
    for before in [
        &["run", "x", "--"][..],
        &["run", "x", "--close", "--"],
        &["run", "x", "--exec", "--"],
        &["run", "x", "--wait-all", "--"],
        &["run", "--profile", "resume", "x", "--"],
        &["flock", file],
    ] {
        let words = [before, &[path, "one", "two words"]].concat();
        let answer = scene.run(words).expect(9, "the script's own code");
        assert_eq!(
            answer.stdout(),
            format!("{path} 2 two words\n"),
            "{before:?}"
        );
    }
}

/// The script is there. Its interpreter, which is not there, is named.
#[test]
fn a_script_whose_interpreter_is_missing_names_it_table() {
    let scene = Scene::new();
    for (text, said) in [
        (
            "#!/bin/sh\r\ntrue\r\n",
            "its interpreter /bin/sh is not there, for its lines end in CR LF",
        ),
        (
            "#! /no/such/thing -e\n",
            "its interpreter /no/such/thing -e is not there",
        ),
    ] {
        scene.script("script", text);
        let path = scene.path("script");
        let path = path.to_str().unwrap();
        for how in [&[][..], &["--close"], &["--exec"]] {
            let words = [&["run", "x"], how, &["--", path]].concat();
            let answer = scene.run(words).expect(127, "as env(1) and timeout(1)");
            assert!(answer.stderr().contains(said), "{}", answer.said());
            let _ = scene
                .run(["run", "x", "--wait", "0", "--", "true"])
                .expect(0, "free");
        }
    }
}

#[test]
fn a_file_on_the_path_that_may_not_be_run_is_126_and_a_later_one_that_may_is_run() {
    let scene = Scene::new();
    let (first, second) = (scene.path("first"), scene.path("second"));
    for folder in [&first, &second] {
        fs::create_dir(folder).unwrap();
    }
    fs::write(first.join("thing"), "").unwrap();
    fs::set_permissions(first.join("thing"), fs::Permissions::from_mode(0o644)).unwrap();
    let path = |folders: &str| format!("{folders}:/usr/bin:/bin");
    let only = path(first.to_str().unwrap());
    let mut command = scene.tenure(["run", "x", "--", "thing"]);
    let _ = answer(command.env("PATH", only)).expect(126, "found and not to be run");

    scene.script("second/thing", "#!/bin/sh\nexit 9\n");
    let both = path(&format!("{}:{}", first.display(), second.display()));
    let mut command = scene.tenure(["run", "x", "--", "thing"]);
    let _ = answer(command.env("PATH", both)).expect(9, "the one that can be run");
}

/// Whether a command can be run is found out before its turn is waited for.
#[test]
fn what_cannot_be_run_is_not_waited_for() {
    let scene = Scene::new();
    let plain = scene.write("plain", "");
    let plain = plain.to_str().unwrap();
    let holder = scene.hold("x", ["-q"]);
    for (program, code) in [
        ("no-such-program-anywhere", 127),
        ("./missing", 127),
        ("/", 126),
        (plain, 126),
    ] {
        let answer = scene.run(["run", "x", "--wait", "20s", "--", program]);
        let answer = answer.expect(code, "what is wrong does not depend on the lock");
        assert!(
            !answer.stderr().contains("held by"),
            "the call did not wait: {}",
            answer.said()
        );
    }
    let _ = holder.open().expect(0, "the holder was not disturbed");
}

#[test]
fn what_cannot_be_run_creates_nothing() {
    let scene = Scene::new();
    for program in ["no-such-program-anywhere", "./missing", "/"] {
        let _ = scene.run(["run", "x", "--", program]);
    }
    assert!(!scene.locks().exists(), "not even the lock folder");
}

#[test]
fn the_command_is_called_as_it_was_typed() {
    let scene = Scene::new();
    let line =
        "exec tenure run x -- sh -c 'tr \"\\0\" \" \" </proc/$$/cmdline' first '' 'a  b' --wait";
    let answer = scene.shell(line).expect(0, "a command");
    assert!(
        answer.stdout().starts_with("sh -c tr") && answer.stdout().ends_with("first  a  b --wait "),
        "the words are its own, empty ones and ones that look like our flags too: {}",
        answer.said()
    );
}

#[test]
fn a_command_without_many_descriptors_to_spare_is_run_too() {
    let scene = Scene::new();
    let answer = scene.shell("ulimit -n 32; exec tenure run x -- echo ran");
    let answer = answer.expect(0, "a low limit of open files is no reason to fail");
    assert_eq!(answer.stdout(), "ran\n");
}

/// Work is the command itself; what it left running in the background does not keep the lock.
#[test]
fn a_daemon_that_the_command_left_behind_does_not_keep_the_lock() {
    let scene = Scene::new();
    let gate = crate::support::Gate::new(&scene, "daemon");
    let script = scene.script("daemon", &format!("#!/bin/sh\n{}\n", gate.script("")));
    let line = format!(
        "tenure run x -- sh -c '{} </dev/null >/dev/null 2>&1 &'",
        script.display()
    );
    let _ = scene.shell(&line).expect(0, "the command itself is over");
    let daemon = gate.entered();
    assert!(crate::support::is_alive(daemon), "the daemon goes on");
    assert!(scene.is_free("x"), "and the lock is free");
    let _ = scene
        .run(["run", "-n", "x", "--", "true"])
        .expect(0, "for the next one");
    gate.open();
    eventually("the daemon to end", || !crate::support::is_alive(daemon));
}

/// A stopped supervisor could not see that its command goes on and ends.
#[test]
fn a_command_that_was_stopped_and_continued_is_still_seen_to_end() {
    let scene = Scene::new();
    let held = scene.hold("x", ["-q"]);
    let command = held.command;
    crate::support::send(command, rustix::process::Signal::STOP);
    eventually("the command to stop", || {
        crate::support::has_stopped(command)
    });
    assert_eq!(scene.standing("x"), "held", "a stopped holder still holds");
    crate::support::send(command, rustix::process::Signal::CONT);
    let _ = held.open().expect(0, "and its end is seen");
    assert!(scene.is_free("x"), "the lock is free");
}
