//! stdin, stdout and stderr belong to the command, byte for byte.

use crate::support::{Scene, Started, answer};
use std::io::Read;
use std::process::Stdio;

/// Every byte, in an order that text tools would trip over, and more than a pipe holds.
fn bytes() -> Vec<u8> {
    (0..400_000_u32)
        .map(|n| u8::try_from((n * 7 + n / 256) % 256).unwrap())
        .collect()
}

#[test]
fn binary_data_passes_through_unchanged() {
    let scene = Scene::new();
    let data = bytes();
    let mut command = scene.tenure(["run", "x", "--", "cat"]);
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut started = Started::new(&mut command);
    let mut stdin = started.take_stdin();
    let sent = data.clone();
    let writer = std::thread::spawn(move || {
        use std::io::Write;
        stdin.write_all(&sent).expect("writing");
    });
    let answer = started.finish().expect(0, "cat ends well");
    writer.join().expect("the writer");
    assert!(answer.0.stdout == data, "what went in comes out");
    assert!(answer.0.stderr.is_empty(), "nothing is added");
}

#[test]
fn both_outputs_are_the_commands_own() {
    let scene = Scene::new();
    let answer = scene.run(["run", "x", "--", "sh", "-c", "echo out; echo err >&2"]);
    let answer = answer.expect(0, "a command that writes to both");
    assert_eq!(
        (answer.stdout(), answer.stderr()),
        ("out\n".into(), "err\n".into())
    );
}

/// The command has the very same files, not copies behind a pipe of ours.
#[test]
fn the_commands_descriptors_are_the_callers() {
    let scene = Scene::new();
    let look = "for fd in 0 1 2; do readlink /proc/self/fd/$fd; done >&2";
    let line = format!("{{ {look}; tenure run x -- sh -c '{look}'; }} <in >out");
    scene.write("in", "");
    let answer = answer(
        scene
            .program("sh")
            .args(["-c", &line])
            .current_dir(scene.root()),
    );
    let answer = answer.expect(0, "both looks");
    let said = answer.stderr();
    let lines: Vec<_> = said.lines().collect();
    assert_eq!(lines.len(), 6, "two looks: {said}");
    assert_eq!(lines[..3], lines[3..], "outside and inside see the same");
}

#[test]
fn the_command_inherits_one_descriptor_of_ours_and_no_more() {
    let scene = Scene::new();
    let look = "for fd in /proc/$$/fd/*; do readlink \"$fd\"; done";
    // The folder itself is listed too, and gone when it is looked at.
    let without = scene.shell(look).stdout();
    let with = scene.run(["run", "x", "--", "sh", "-c", look]).stdout();
    let lock = scene.locks().join("x.tenure");
    let ours = with.lines().filter(|target| lock.to_str() == Some(target));
    assert_eq!(ours.count(), 1, "the liveness lock: {with}");
    assert_eq!(
        with.lines().count(),
        without.lines().count() + 1,
        "and neither folder nor pipe:\n{with}instead of\n{without}"
    );
}

/// What the caller has open beside the first three is inherited, a job server's pipe for example.
#[test]
fn further_descriptors_of_the_caller_are_inherited() {
    let scene = Scene::new();
    let line = "tenure run x -- sh -c 'read a <&7; echo \"got $a\" >&8' 7<in 8>out; cat out";
    scene.write("in", "seven\n");
    let answer = answer(
        scene
            .program("sh")
            .args(["-c", line])
            .current_dir(scene.root()),
    );
    assert_eq!(
        answer.stdout(),
        "got seven\n",
        "both were there: {}",
        answer.said()
    );
}

#[test]
fn closed_standard_descriptors_do_no_harm() {
    let scene = Scene::new();
    for closed in ["<&-", ">&-", "2>&-", "<&- >&-", "<&- >&- 2>&-"] {
        let line = format!("exec tenure run x -- sh -c 'exit 3' {closed}");
        let _ = scene.shell(&line).expect(3, closed);
    }
    // Our own files may not have slipped into a closed place.
    let line = "exec tenure run x -- sh -c 'readlink /proc/self/fd/0 >&2' <&- >&-";
    let answer = scene.shell(line);
    assert!(
        !answer.stderr().contains(scene.root().to_str().unwrap()),
        "stdin is no lock file: {}",
        answer.said()
    );
    for verb in ["list", "check"] {
        let _ = scene
            .shell(&format!("exec tenure {verb} >&-"))
            .expect(0, "a closed stdout is silent");
    }
}

#[test]
fn a_reader_that_has_gone_is_silent() {
    let scene = Scene::new();
    // More than a pipe holds, so that the writer meets the closed end.
    for number in 0..400 {
        let name = format!("a-lock-with-a-long-name-that-takes-its-place-in-a-line-{number:04}");
        let path = scene.locks().join(format!("{name}.tenure"));
        std::fs::create_dir_all(scene.locks()).unwrap();
        std::fs::write(path, "").unwrap();
    }
    for output in ["text", "json", "yaml"] {
        let line = format!("{{ tenure list --output {output}; echo \"code $?\" >&2; }} | true");
        let answer = scene.shell(&line);
        assert_eq!(
            answer.stderr(),
            "code 0\n",
            "neither a message nor a failure in {output}"
        );
    }
}

#[test]
fn a_command_that_closes_everything_it_inherited_keeps_its_lock() {
    let scene = Scene::new();
    let gate = crate::support::Gate::new(&scene, "x");
    let close = "for fd in {3..255}; do eval \"exec $fd>&-\"; done";
    let mut command = scene.tenure(["run", "x", "-q", "--", "bash", "-c", &gate.script(close)]);
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let run = Started::new(&mut command);
    let worker = gate.entered();
    scene.until_named("x");
    run.signal(rustix::process::Signal::KILL);
    crate::support::eventually("the supervisor to be seen dead", || {
        scene.check("x")["holder"]["orphaned"] == true
    });
    assert!(crate::support::is_alive(worker), "the command works");
    let _ = scene
        .run(["run", "-n", "x", "--", "true"])
        .expect(4, "and no other run gets in");
    gate.open();
    scene.until_free("x");
    drop(run);
}

#[test]
fn stdin_is_not_read_by_anybody_else() {
    let scene = Scene::new();
    scene.write("in", "one\ntwo\nthree\n");
    let line = "{ tenure run x -- sh -c 'read a; echo $a'; tenure check x >/dev/null; cat; } <in";
    let answer = answer(
        scene
            .program("bash")
            .args(["-c", line])
            .current_dir(scene.root()),
    );
    assert_eq!(
        answer.stdout(),
        "one\ntwo\nthree\n",
        "what the command leaves is there for the next one"
    );
}

#[test]
fn output_comes_as_it_is_written() {
    let scene = Scene::new();
    let gate = crate::support::Gate::new(&scene, "x");
    let mut command = scene.tenure(["run", "x", "--", "sh", "-c", &gate.script("echo first")]);
    command.stdout(Stdio::piped()).stderr(Stdio::null());
    let mut started = Started::new(&mut command);
    let mut line = [0; 6];
    started
        .stdout()
        .read_exact(&mut line)
        .expect("a line while the command still runs");
    assert_eq!(&line, b"first\n", "nothing is kept back");
    gate.open();
    let _ = started.finish().expect(0, "the command ends well");
}

/// `-q`: a caller gets errors, and what it asked for. A text that only confirms a change says no more than the exit code.
#[test]
fn a_quiet_call_confirms_nothing_and_answers_what_was_asked_table() {
    let scene = Scene::new();
    let id = ["--request-id", "r"];
    let table: [(&[&str], bool); 11] = [
        (&["acquire", "a", "--owner", "none"], false),
        (&["heartbeat", "a"], false),
        (&["check", "a"], true),
        (&["list"], true),
        (&["cancel", "a"], false),
        (&["release", "a"], false),
        (&["wait", "a"], false),
        (&["acquire", "b", "--owner", "none"], false),
        (&["force-release", "b", "--yes"], false),
        (&["clean"], false),
        (&["audit"], true),
    ];
    for (words, answers) in table {
        let own = matches!(words[0], "acquire" | "heartbeat" | "release");
        let words = words.iter().chain(own.then_some(&id).into_iter().flatten());
        let words: Vec<&str> = words.copied().collect();
        let answer = scene.run(words.iter().chain(&["-q"]));
        assert_eq!(
            !answer.stdout().is_empty(),
            answers,
            "{words:?}: {:?}",
            answer.0
        );
        assert!(answer.stderr().is_empty(), "{words:?}: {:?}", answer.0);
        // What a program reads is the same.
        if !answers {
            let json = scene.run(words.iter().chain(&["-q", "--output", "json"]));
            assert!(!json.stdout().is_empty(), "{words:?}: {:?}", json.0);
        }
    }
}
