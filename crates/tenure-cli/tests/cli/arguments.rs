//! What may be typed, and how a mistake is answered: exit 2, one clear sentence, nothing touched.

use crate::support::{Scene, answer, timed};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

/// Fails unless the call was refused with one sentence and left no trace.
#[track_caller]
fn refused(scene: &Scene, words: &[&str]) -> String {
    let answer = scene
        .run(words)
        .expect(2, &format!("{words:?} makes no sense"));
    let said = answer.stderr();
    assert_eq!(answer.stdout(), "", "nothing on stdout: {}", answer.said());
    assert!(said.starts_with("tenure: "), "it says who speaks: {said:?}");
    assert_eq!(said.lines().count(), 1, "one sentence: {said}");
    assert!(
        !said.contains("error: ") && !said.contains("Usage:"),
        "a sentence and no page: {said}"
    );
    assert!(!scene.locks().exists(), "nothing was created by {words:?}");
    said
}

#[test]
fn flags_stand_before_or_after_the_name_and_the_verb() {
    let scene = Scene::new();
    let place = scene.locks();
    let place = place.to_str().unwrap();
    for words in [
        vec!["run", "-q", "--wait", "1s", "x", "--", "echo", "ran"],
        vec!["run", "x", "-q", "--wait", "1s", "--", "echo", "ran"],
        vec!["run", "-w1s", "x", "--dir", place, "--", "echo", "ran"],
        vec!["--dir", place, "run", "x", "--wait=1s", "--", "echo", "ran"],
        vec!["-q", "--output", "text", "run", "x", "--", "echo", "ran"],
        vec!["--output=text", "-v", "run", "-x", "x", "--", "echo", "ran"],
        vec!["--profile", "native", "run", "x", "--", "echo", "ran"],
        vec!["run", "--profile=native", "x", "--", "echo", "ran"],
    ] {
        let mut command = scene.tenure(&words);
        command
            .env_remove("TENURE_DIR")
            .env("TENURE_STORE", format!("file:{place}"));
        let answer = answer(&mut command).expect(0, &format!("{words:?}"));
        assert_eq!(answer.stdout(), "ran\n", "{words:?}");
    }
    let store = format!("--store=file:{place}");
    for words in [
        vec![store.as_str(), "check", "x"],
        vec!["check", "x", store.as_str()],
        vec!["check", store.as_str(), "x"],
    ] {
        let _ = scene.run(&words).expect(0, &format!("{words:?}"));
    }
}

#[test]
fn durations_as_people_write_them_are_understood() {
    let scene = Scene::new();
    for good in [
        "0", "1", "0.5", "90s", "15m", "1h30m", "250ms", "1h 30m", "2 hours", "1d", "forever",
    ] {
        let _ = scene
            .run(["run", "x", "--wait", good, "--", "true"])
            .expect(0, good);
    }
}

#[test]
fn what_is_no_duration_is_refused_and_says_what_would_be() {
    let scene = Scene::new();
    for bad in [
        "",
        " ",
        "x",
        "5 potatoes",
        "1e3",
        "inf",
        "nan",
        "99999d",
        ".",
        "--",
        "1h-30m",
        "-5s",
        "\u{1b}[31m",
        "never",
    ] {
        let given = format!("--wait={bad}");
        let said = refused(&scene, &["run", "x", &given, "--", "true"]);
        assert!(said.contains("--wait"), "the flag is named: {said}");
        assert!(!said.contains('\u{1b}'), "and quoted safely: {said:?}");
    }
    for flag in ["--ttl", "--grace"] {
        let said = refused(&scene, &["run", "x", flag, "soon", "--", "true"]);
        assert!(said.contains(flag), "the flag is named: {said}");
    }
    let said = refused(&scene, &["run", "x", "--ttl", "0", "--", "true"]);
    assert!(said.contains("--ttl"), "a lease of no length: {said}");
    refused(&scene, &["run", "x", "--wait", "-5", "--", "true"]);
}

#[test]
fn a_wait_in_the_environment_is_read_and_checked_too() {
    let scene = Scene::new();
    let mut command = scene.tenure(["run", "x", "--", "true"]);
    let answer = answer(command.env("TENURE_WAIT", "soon")).expect(2, "no duration");
    assert!(
        answer.stderr().contains("TENURE_WAIT"),
        "it is named: {}",
        answer.said()
    );
    assert!(!scene.locks().exists(), "nothing was created");
}

#[test]
fn an_output_format_that_does_not_exist_is_refused_wherever_it_comes_from() {
    let scene = Scene::new();
    let said = refused(&scene, &["list", "--output", "xml"]);
    assert!(said.contains("xml") && said.contains("json"), "{said}");
    let mut command = scene.tenure(["list"]);
    let answer = answer(command.env("TENURE_OUTPUT", "xml"));
    let answer = answer.expect(
        2,
        "a caller who asked for a format must not get another one",
    );
    assert!(
        answer.stderr().contains("TENURE_OUTPUT"),
        "{}",
        answer.said()
    );
}

#[test]
fn names_that_are_no_names_are_refused_before_anything_is_touched() {
    let scene = Scene::new();
    let long = "a".repeat(129);
    for bad in [
        "",
        ".",
        "..",
        "a/b",
        "../x",
        "/etc/passwd",
        "a\\b",
        "a b",
        "a..b",
        ".hidden",
        "a\nb",
        "a\tb",
        "\u{1b}[31mred",
        "é",
        "a:b",
        "a*",
        "$(id)",
        "a\u{202e}b",
        &long,
    ] {
        for words in [
            vec!["run", bad, "--", "true"],
            vec!["acquire", bad],
            vec!["release", bad],
            vec!["heartbeat", bad],
            vec!["check", bad],
            vec!["wait", bad],
        ] {
            let said = refused(&scene, &words);
            assert!(
                !said.trim_end().chars().any(char::is_control),
                "what was typed is quoted safely: {said:?}"
            );
        }
    }
    // A name that begins with a dash is a flag to the parser.
    refused(&scene, &["run", "-x-", "--", "true"]);
    let longest = "a".repeat(128);
    let _ = scene
        .run(["run", &longest, "--", "true"])
        .expect(0, "128 bytes are a name");
}

#[test]
fn a_name_that_is_not_text_is_refused() {
    let scene = Scene::new();
    let mut command = scene.tenure(["check"]);
    command.arg(OsStr::from_bytes(b"a\xff"));
    let answer = answer(&mut command).expect(2, "no UTF-8");
    assert_eq!(answer.stderr().lines().count(), 1, "{}", answer.said());
}

#[test]
fn request_ids_are_checked() {
    let scene = Scene::new();
    let long = "a".repeat(129);
    for bad in ["", "a b", "-x", "_x", "a/b", "a@b", "\u{1b}", &long] {
        let given = format!("--request-id={bad}");
        for words in [
            vec!["run", "x", &given, "--", "true"],
            vec!["acquire", "x", &given],
            vec!["release", "x", &given],
            vec!["heartbeat", "x", &given],
            vec!["check", "x", &given],
        ] {
            refused(&scene, &words);
        }
    }
    for alias in ["--session-id", "--run-id"] {
        let line = "echo $TENURE_REQUEST_ID";
        let answer = scene.run(["run", "x", alias, "A.9_b-c", "--", "sh", "-c", line]);
        assert_eq!(answer.stdout(), "A.9_b-c\n", "{alias} is the same flag");
    }
}

#[test]
fn calls_that_make_no_sense_are_refused_with_one_sentence() {
    let scene = Scene::new();
    for words in [
        &["frobnicate"][..],
        &["run"],
        &["run", "x"],
        &["run", "x", "true"],
        &["run", "--", "true"],
        &["run", "x", "y", "--", "true"],
        &["run", "x", "--nonsense", "--", "true"],
        &["run", "x", "--wait"],
        &["run", "x", "-n", "--wait", "1s", "--", "true"],
        &["run", "x", "-q", "-v", "--", "true"],
        &["run", "x", "--yes", "--", "true"],
        &["run", "x", "-E", "256", "--", "true"],
        &["run", "x", "-E", "x", "--", "true"],
        &["run", "x", "--dir", "a", "--store", "file:b", "--", "true"],
        &["run", "x", "--store", "b", "--", "true"],
        &["run", "x", "--store", "file:", "--", "true"],
        &[
            "run",
            "x",
            "--store",
            "etcd://user:password@localhost/x",
            "--",
            "true",
        ],
        &["run", "x", "--dir", "", "--", "true"],
        &["run", "x", "--profile", "sprinter", "--", "true"],
        &["run", "x", "--config", "no-such-file.toml", "--", "true"],
        &["acquire"],
        &["acquire", "x", "--owner", "nobody"],
        &["acquire", "x", "--owner", "0"],
        &["acquire", "x", "--owner", "-1"],
        &["acquire", "x", "--owner", "999999999"],
        &["acquire", "x", "--owner", "99999999999999999999"],
        &["list", "x"],
        &["check", "x", "y"],
        &["clean", "--nonsense"],
        &["audit", "x", "y"],
        &["audit", "a/b"],
        &["audit", "--event", "lock_dreamt"],
        &["audit", "--since", "yesterday"],
        &["audit", "--until", "2026-02-07"],
        &["audit", "--request-id", "a/b"],
        &["audit", "--audit-dir", ""],
        &["--nonsense", "list"],
    ] {
        refused(&scene, words);
    }
}

/// A mistake that every user makes once.
#[test]
fn a_command_without_the_dashes_is_answered_with_how_to_write_it() {
    let scene = Scene::new();
    for words in [
        &["run", "x", "true"][..],
        &["run", "x"],
        &["--output", "text", "run", "x"],
    ] {
        let said = refused(&scene, words);
        assert!(said.contains("-- CMD"), "{said}");
    }
}

#[test]
fn a_misspelt_verb_is_named_wherever_it_stands() {
    let scene = Scene::new();
    for words in [
        &["rnu", "x"][..],
        &["--output", "text", "rnu", "x"],
        &["--dir", "d", "rnu"],
    ] {
        let said = refused(&scene, words);
        assert!(said.contains("rnu"), "the verb is what is wrong: {said}");
    }
}

#[test]
fn a_verb_that_is_not_there_is_answered_with_what_was_meant() {
    let scene = Scene::new();
    for (typed, meant) in [
        ("runn", &["`tenure run`"][..]),
        ("rnu", &["`tenure run`"]),
        ("aquire", &["`tenure acquire`"]),
        ("rel", &["`tenure release`"]),
        ("status", &["`tenure check NAME`", "`tenure list`"]),
        ("unlock", &["`tenure release NAME`"]),
        (
            "lock",
            &["`tenure acquire NAME`", "`tenure run NAME -- CMD`"],
        ),
        ("exec", &["`tenure run NAME -- CMD`"]),
        ("ls", &["`tenure list`"]),
        ("rm", &["`tenure force-release NAME`"]),
        ("steal", &["`tenure force-release NAME`"]),
        ("keep-alive", &["`tenure heartbeat NAME`"]),
        ("satus", &["`tenure check NAME`"]),
        ("version", &["`tenure --version`"]),
    ] {
        for words in [&[typed, "x"][..], &["help", typed], &["-q", typed]] {
            let said = refused(&scene, words);
            assert!(said.contains(&format!("{typed:?}")), "{said}");
            for meant in meant {
                assert!(
                    said.contains("did you mean") && said.contains(meant),
                    "{said}"
                );
            }
        }
    }
    for typed in ["frobnicate", "x", "42"] {
        let said = refused(&scene, &[typed]);
        assert!(!said.contains("did you mean"), "nothing is near: {said}");
    }
}

#[test]
fn a_flag_that_is_not_there_is_answered_with_what_was_meant() {
    let scene = Scene::new();
    let dashes = "the command stands after";
    for (words, meant) in [
        (&["run", "x", "--wiat", "5s", "--", "true"][..], "`--wait`"),
        (&["run", "x", "--wiat", "5s"], "`--wait`"),
        (
            &["run", "x", "--session", "s", "--", "true"],
            "`--session-id`",
        ),
        (&["run", "x", "--timeout", "5", "--", "true"], "`--wait`"),
        (&["run", "x", "--nb", "--", "true"], "`--nonblock`"),
        (&["run", "-c", "--", "true"], "`--shell`"),
        (&["run", "x", "-o", "--", "true"], "`--close`"),
        (&["list", "-o", "json"], "`--output`"),
        (&["list", "--json"], "`--output json`"),
        (
            &["check", "x", "--wait", "5s"],
            "`tenure run` has that flag",
        ),
        (&["--wait", "5s", "run", "x"], "behind the verb"),
        (&["--outputs", "json", "list"], "`--output`"),
    ] {
        let said = refused(&scene, words);
        assert!(said.contains(meant), "{words:?}: {said}");
        assert!(!said.contains(dashes), "{words:?}: {said}");
    }
    // A letter in front of no `--` may be the command's.
    let said = refused(&scene, &["run", "x", "-c", "a b"]);
    assert!(
        said.contains("`--shell`") && said.contains(dashes),
        "{said}"
    );
    let said = refused(&scene, &["run", "make", "-j4"]);
    assert!(said.contains(dashes), "{said}");
}

#[test]
fn a_value_that_is_missing_empty_or_negative_is_said_to_be() {
    let scene = Scene::new();
    for (words, sentence) in [
        (
            &["run", "x", "--wait", "-5s", "--", "true"][..],
            "--wait \"-5s\" is not a duration",
        ),
        (
            &["run", "x", "-w", "-5s", "--", "true"],
            "--wait \"-5s\" is not a duration",
        ),
        (
            &["acquire", "x", "--ttl", "-1m"],
            "--ttl \"-1m\" is not a duration",
        ),
        (
            &["run", "x", "--dir", "", "--", "true"],
            "--dir: the folder's name is empty",
        ),
        (&["--dir", "", "list"], "--dir: the folder's name is empty"),
        (&["list", "--dir="], "--dir: the folder's name is empty"),
        (
            &["list", "--config", ""],
            "--config: the file's name is empty",
        ),
        (&["run", "x", "--wait"], "--wait needs a value"),
        (&["run", "x", "-w", "--", "true"], "-w needs a value"),
        (
            &["run", "x", "--why", "--wait", "1s", "--", "true"],
            "--why needs a value, and \"--wait\" is a flag",
        ),
        (&["run", "x", "--slots", "-1", "--", "true"], "-1 is not in"),
        (
            &["run", "x", "--yes", "--", "true"],
            "not provided: --force",
        ),
    ] {
        let said = refused(&scene, words);
        assert!(said.contains(sentence), "{words:?}: {said}");
        assert!(
            !said.contains("the command stands after"),
            "{words:?}: {said}"
        );
    }
}

#[test]
fn a_command_that_is_a_line_for_the_shell_is_pointed_at_the_flag() {
    let scene = Scene::new();
    for (command, hint) in [
        (&["echo hi"][..], "tenure run --shell x -- 'echo hi'"),
        (&["FOO=1", "env"], "tenure run --shell x -- 'FOO=1 env'"),
        (&["a|b"], "tenure run --shell x -- 'a|b'"),
        (
            &["nosuch-cd&&pwd"],
            "tenure run --shell x -- 'nosuch-cd&&pwd'",
        ),
        (
            &["FOO=a b", "env"],
            "tenure run --shell x -- ''\\''FOO=a b'\\'' env'",
        ),
    ] {
        let words = [&["run", "x", "--"], command].concat();
        let answer = scene.run(&words).expect(127, "no such command");
        assert!(
            answer.stderr().contains("command not found; "),
            "{}",
            answer.said()
        );
        assert!(answer.stderr().contains(hint), "{}", answer.said());
        let words = [&["run", "x", "--output", "json", "--"], command].concat();
        let document = scene.run(&words).expect(127, "no such command").stdout();
        assert!(document.contains("needs --shell"), "{document}");
        let document: serde_json::Value = serde_json::from_str(&document).unwrap();
        assert_eq!(document["error"]["fix_command"], hint, "{document}");
    }
    for command in ["no-such-program", "./no/such=program", "9=1"] {
        let answer = scene
            .run(["run", "x", "--", command])
            .expect(127, "no such command");
        assert!(!answer.stderr().contains("--shell"), "{}", answer.said());
    }
    // What is advised is a call that works.
    let advised = scene.run(["run", "--shell", "x", "--", "FOO=1 env"]);
    assert!(advised.expect(0, "as advised").stdout().contains("FOO=1"));
}

#[test]
fn help_is_an_answer_and_not_a_failure() {
    let scene = Scene::new();
    for words in [
        &["--help"][..],
        &["-h"],
        &["help"],
        &["help", "run"],
        &["run", "--help"],
        &["run", "x", "-h"],
        &["--output", "text", "check", "--help"],
        &["--version"],
        &["-V"],
    ] {
        let answer = scene.run(words).expect(0, &format!("{words:?}"));
        assert_ne!(answer.stdout(), "", "{words:?} on stdout");
        assert_eq!(answer.stderr(), "", "{words:?} and nothing else");
    }
    for verb in [
        "run",
        "acquire",
        "release",
        "heartbeat",
        "check",
        "list",
        "wait",
        "fence",
        "clean",
        "profiles",
        "audit",
        "push",
        "agent",
        "group-name",
        "serve",
        "mcp",
        "hook",
    ] {
        let help = scene.run([verb, "--help"]).stdout();
        let first = help.lines().next().unwrap_or_default();
        assert!(
            !first.is_empty() && !first.starts_with("Usage"),
            "{verb} says what it does: {first}"
        );
        assert!(help.contains("Examples:"), "{verb} shows how it is used");
        let same = scene.run(["help", verb]).stdout();
        assert_eq!(help, same, "both ways to ask about {verb} answer the same");
    }
    let alone = scene.run([] as [&str; 0]).expect(2, "no verb at all");
    assert!(
        alone.stderr().contains("Usage:"),
        "the page of help: {}",
        alone.said()
    );
    assert!(!scene.locks().exists(), "nothing was created");
}

#[test]
fn nonblock_and_conflict_exit_code_are_flocks() {
    let scene = Scene::new();
    let holder = scene.hold("x", ["-q"]);
    let (answer, took) = timed(|| scene.run(["run", "-n", "x", "--", "echo", "ran"]));
    let answer = answer.expect(4, "held, and the call does not wait");
    assert_eq!(answer.stdout(), "", "the command did not run");
    assert!(took < Duration::from_secs(5), "at once, not after {took:?}");
    for (words, code) in [
        (&["run", "-n", "-E", "9", "x", "--", "true"][..], 9),
        (&["run", "-E", "0", "-n", "x", "--", "true"], 0),
        (
            &[
                "run",
                "--conflict-exit-code",
                "255",
                "-w",
                "0",
                "x",
                "--",
                "true",
            ],
            255,
        ),
        (&["run", "x", "-nE1", "--", "true"], 1),
        (&["acquire", "-n", "-E", "9", "x"], 9),
        (&["wait", "-n", "-E", "9", "x"], 9),
    ] {
        let _ = scene.run(words).expect(code, &format!("{words:?}"));
    }
    let _ = holder.open().expect(0, "the holder");
    let answer = scene.run(["run", "-n", "-E", "9", "x", "--", "sh", "-c", "exit 4"]);
    let _ = answer.expect(4, "the code of the command is not ours to change");
    let answer = scene.run(["run", "-E", "9", "x", "--", "no-such-program-anywhere"]);
    let _ = answer.expect(127, "only a lock that stands in the way is a conflict");
}

#[test]
fn output_comes_from_the_flag_or_the_environment() {
    let scene = Scene::new();
    let with = |words: &[&str], format: &str| {
        answer(scene.tenure(words).env("TENURE_OUTPUT", format)).expect(0, format)
    };
    assert!(
        with(&["list"], "json").stdout().starts_with('{'),
        "as the environment says"
    );
    assert!(
        with(&["list"], "yaml").stdout().starts_with("ok: true"),
        "as the environment says"
    );
    let text = with(&["list", "--output", "text"], "json").stdout();
    assert_eq!(text, "no locks\n", "the flag wins");
    let text = with(&["list"], "").stdout();
    assert_eq!(text, "no locks\n", "an empty one says nothing");
}

#[test]
fn quiet_and_verbose_change_the_talk_and_not_the_work() {
    let scene = Scene::new();
    let quiet = scene
        .run(["run", "-q", "x", "--", "echo", "ran"])
        .expect(0, "quiet");
    assert_eq!(
        (quiet.stdout(), quiet.stderr()),
        ("ran\n".into(), String::new())
    );
    let verbose = scene
        .run(["run", "-v", "x", "--", "echo", "ran"])
        .expect(0, "verbose");
    assert_eq!(verbose.stdout(), "ran\n");
    assert!(
        verbose.stderr().contains("token"),
        "the token is told: {}",
        verbose.said()
    );
    let holder = scene.hold("x", ["-q"]);
    let refused = scene
        .run(["run", "-q", "-n", "x", "--", "true"])
        .expect(4, "held");
    assert_eq!(
        (refused.stdout(), refused.stderr()),
        (String::new(), String::new()),
        "the exit code says that it is held"
    );
    let _ = holder.open().expect(0, "the holder");
    let failed = scene
        .run(["run", "-q", "y", "--", "/no/such/program"])
        .expect(127, "no program");
    assert!(
        failed.stderr().contains("/no/such/program"),
        "why a call failed is not talk"
    );
}
