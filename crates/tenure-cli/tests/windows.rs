//! The binary on Windows, driven as a process: what is kept there as everywhere, what is kept in another
//! way, and what is refused. Commands are `cmd` and the binary itself, which every Windows has, and Wine.
#![cfg(windows)]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test says what it expects by failing"
)]

use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// How long anything may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);

#[allow(
    clippy::disallowed_methods,
    reason = "a test measures its own patience"
)]
fn now() -> Instant {
    Instant::now()
}

#[track_caller]
fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let began = now();
    while !is_so() {
        assert!(
            tenure_os::clock::since(began) < PATIENCE,
            "waited too long until {what}"
        );
        thread::sleep(Duration::from_millis(10));
    }
}

struct Scene(tempfile::TempDir);

impl Scene {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn locks(&self) -> PathBuf {
        self.path("locks")
    }

    fn tenure(&self, words: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tenure"));
        command
            .args(words)
            .env("TENURE_DIR", self.locks())
            .env_remove("TENURE_HELD")
            .current_dir(self.0.path())
            .stdin(Stdio::null());
        command
    }

    #[track_caller]
    fn answers(&self, code: i32, words: &[&str]) -> Output {
        let output = self.tenure(words).output().unwrap();
        assert_eq!(
            output.status.code(),
            Some(code),
            "{words:?}\n{}\n{}",
            text(&output.stdout),
            text(&output.stderr)
        );
        output
    }

    /// The document of `check`, whatever its exit code.
    fn check(&self, name: &str) -> Value {
        let mut check = self.tenure(&["check", name, "--output", "json"]);
        let output = check.output().unwrap();
        serde_json::from_slice(&output.stdout).expect("a document")
    }

    fn is_free(&self, name: &str) -> bool {
        let check = self.tenure(&["check", name]).output().unwrap();
        check.status.success()
    }

    /// A run whose command says that it works, and goes on until its stdin is closed or it is ended.
    fn at_work(&self, words: &[&str]) -> Working {
        let script = "echo working& pause";
        let words = [&["run"], words, &["--", "cmd", "/d", "/c", script]].concat();
        let mut command = self.tenure(&words);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        out.read_line(&mut line).unwrap();
        assert_eq!(line.trim(), "working");
        Working {
            stdin: child.stdin.take(),
            child,
            _out: out,
        }
    }
}

struct Working {
    child: Child,
    /// What its command waits for.
    stdin: Option<ChildStdin>,
    /// Kept open, for its end is still going to say something.
    _out: BufReader<std::process::ChildStdout>,
}

impl Working {
    /// Lets the command end by itself.
    fn finish(mut self) -> i32 {
        drop(self.stdin.take());
        self.code()
    }

    /// The code with which it ends because of something else.
    fn code(&mut self) -> i32 {
        self.child.wait().unwrap().code().unwrap()
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn size(path: &Path) -> u64 {
    std::fs::metadata(path).map_or(0, |found| found.len())
}

#[test]
fn a_run_passes_the_exit_code_on_and_leaves_a_free_lock() {
    let scene = Scene::new();
    for code in [0, 1, 7, 126, 255] {
        scene.answers(
            code,
            &["run", "a", "--", "cmd", "/c", &format!("exit {code}")],
        );
        assert!(scene.is_free("a"), "after exit {code}");
    }
}

#[test]
fn a_command_learns_its_token_and_its_request() {
    let scene = Scene::new();
    let output = scene.answers(0, &["run", "a", "--", "cmd", "/d", "/c", "set TENURE_"]);
    let out = text(&output.stdout);
    for variable in ["TENURE_NAME=a", "TENURE_TOKEN=1", "TENURE_REQUEST_ID=req_"] {
        assert!(out.contains(variable), "{variable}: {out}");
    }
}

#[test]
fn a_shell_s_line_is_taken_apart_by_cmd() {
    let scene = Scene::new();
    let line = "echo one two&& exit 3";
    let output = scene.answers(3, &["run", "--shell", "a", "--", line]);
    assert_eq!(text(&output.stdout).trim(), "one two");
}

#[test]
fn one_holds_and_the_other_is_refused_or_waits_its_turn() {
    let scene = Scene::new();
    let holder = scene.at_work(&["a"]);
    let refused = scene.answers(
        4,
        &["run", "a", "--wait", "100ms", "--", "cmd", "/c", "exit 9"],
    );
    assert!(text(&refused.stderr).contains("a is held"), "{refused:?}");
    let held = &scene.check("a")["error"]["context"];
    assert_eq!(held["standing"], "held", "{held}");
    let mut waiter = scene.tenure(&["run", "a", "--wait", "30s", "--", "cmd", "/c", "exit 5"]);
    let mut waiter = waiter.spawn().unwrap();
    eventually("it waits", || {
        let queue = &scene.check("a")["error"]["context"]["queue"];
        queue.as_array().is_some_and(|queue| queue.len() == 1)
    });
    assert_eq!(holder.finish(), 0);
    assert_eq!(
        waiter.wait().unwrap().code(),
        Some(5),
        "its own command's code"
    );
}

#[test]
fn tokens_rise_over_runs() {
    let scene = Scene::new();
    let token = || -> u64 {
        let run = ["run", "a", "--", "cmd", "/d", "/c", "echo %TENURE_TOKEN%"];
        let output = scene.answers(0, &run);
        text(&output.stdout).trim().parse().unwrap()
    };
    let tokens: Vec<_> = (0..4).map(|_| token()).collect();
    assert!(tokens.is_sorted_by(|a, b| a < b), "{tokens:?}");
}

#[test]
fn a_killed_supervisor_takes_its_command_with_it_and_the_lock_is_free() {
    let scene = Scene::new();
    // A command whose own child goes on writing: both have to end.
    let beat = scene.path("beat.cmd");
    std::fs::write(&beat, "@echo off\r\n:on\r\necho x>>beats\r\ngoto on\r\n").unwrap();
    let mut run = scene.tenure(&["run", "a", "--", "cmd", "/d", "/c", "cmd /d /c beat.cmd"]);
    let mut run = run.stdout(Stdio::null()).spawn().unwrap();
    let beats = scene.path("beats");
    eventually("it works", || size(&beats) > 0);
    assert!(!scene.is_free("a"));
    run.kill().unwrap();
    run.wait().unwrap();
    eventually("the lock is free", || scene.is_free("a"));
    // Free means gone: nothing is written any more.
    let before = size(&beats);
    thread::sleep(Duration::from_millis(500));
    assert_eq!(size(&beats), before, "the command and its child are gone");
    scene.answers(6, &["run", "a", "--", "cmd", "/c", "exit 6"]);
}

#[test]
fn a_run_that_takes_too_long_is_ended_with_all_that_it_started() {
    let scene = Scene::new();
    let beat = scene.path("beat.cmd");
    std::fs::write(&beat, "@echo off\r\n:on\r\necho x>>beats\r\ngoto on\r\n").unwrap();
    let words = [
        "run",
        "a",
        "--max-runtime",
        "500ms",
        "--grace",
        "500ms",
        "--",
        "cmd",
        "/d",
        "/c",
        "cmd /d /c beat.cmd",
    ];
    let output = scene.answers(10, &words);
    assert!(text(&output.stderr).contains("--max-runtime"), "{output:?}");
    let before = size(&scene.path("beats"));
    assert!(before > 0, "it worked");
    thread::sleep(Duration::from_millis(300));
    assert_eq!(size(&scene.path("beats")), before, "nothing of it is left");
    assert!(scene.is_free("a"));
}

#[test]
fn whoever_asks_for_the_lock_gets_it_once_the_command_has_ended() {
    let scene = Scene::new();
    let mut holder = scene.at_work(&["a", "--grace", "500ms"]);
    let words = [
        "run", "a", "--force", "--wait", "30s", "--", "cmd", "/c", "exit 5",
    ];
    scene.answers(5, &words);
    assert_eq!(holder.code(), 79, "the holder was superseded");
}

#[test]
fn cancel_ends_a_run() {
    let scene = Scene::new();
    let mut holder = scene.at_work(&["a", "--grace", "500ms"]);
    scene.answers(0, &["cancel", "a"]);
    assert_eq!(holder.code(), 79);
    assert!(scene.is_free("a"));
}

#[test]
fn a_rollback_runs_under_the_lock() {
    let scene = Scene::new();
    let undo = format!("\"{}\" check a>checked", env!("CARGO_BIN_EXE_tenure"));
    let words = ["run", "a", "--rollback", &undo, "--", "cmd", "/c", "exit 3"];
    scene.answers(3, &words);
    let checked = std::fs::read_to_string(scene.path("checked")).unwrap();
    assert!(checked.contains("a is held"), "{checked}");
    assert!(scene.is_free("a"));
}

#[test]
fn what_a_run_holds_its_command_is_refused_at_once_or_passed_through() {
    let scene = Scene::new();
    let tenure = env!("CARGO_BIN_EXE_tenure");
    let began = now();
    scene.answers(
        81,
        &[
            "run", "a", "--", tenure, "run", "a", "--", "cmd", "/c", "exit 5",
        ],
    );
    assert!(
        tenure_os::clock::since(began) < Duration::from_secs(9),
        "it does not wait"
    );
    let nested = [
        "run",
        "a",
        "--",
        tenure,
        "run",
        "--reentrant",
        "a",
        "--",
        "cmd",
        "/c",
        "exit 5",
    ];
    scene.answers(5, &nested);
}

#[test]
fn a_lock_without_an_owner_lives_by_its_ttl_and_its_token() {
    let scene = Scene::new();
    let id = "job-1";
    let acquire = [
        "acquire",
        "a",
        "--owner",
        "none",
        "--ttl",
        "1m",
        "--request-id",
        id,
    ];
    scene.answers(0, &acquire);
    assert!(!scene.is_free("a"));
    scene.answers(0, &["heartbeat", "a", "--request-id", id]);
    scene.answers(6, &["release", "a", "--request-id", "somebody-else"]);
    scene.answers(0, &["release", "a", "--request-id", id]);
    assert!(scene.is_free("a"));
    scene.answers(0, &["clean"]);
    let left: Vec<_> = std::fs::read_dir(scene.locks())
        .unwrap()
        .flatten()
        .collect();
    let names = left
        .iter()
        .map(|item| item.file_name().into_string().unwrap());
    let names: Vec<_> = names.filter(|name| !name.contains(".gone")).collect();
    assert!(!names.contains(&"a.tenure".to_owned()), "{names:?}");
}

#[test]
fn a_lock_with_an_owner_ends_with_the_owner() {
    let scene = Scene::new();
    let mut owner = Command::new("cmd")
        .args(["/d", "/c", "pause"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let pid = owner.id().to_string();
    scene.answers(0, &["acquire", "a", "--owner", &pid]);
    assert!(!scene.is_free("a"));
    owner.kill().unwrap();
    owner.wait().unwrap();
    assert!(scene.is_free("a"), "its process is gone");
    let gone = scene.answers(2, &["acquire", "a", "--owner", &pid]);
    assert!(text(&gone.stderr).contains("no such process"), "{gone:?}");
}

#[test]
fn the_owner_is_the_nearest_ancestor_that_lasts_and_its_descendants_may_release() {
    let scene = Scene::new();
    let tenure = env!("CARGO_BIN_EXE_tenure");
    let output = Command::new("cmd")
        .args(["/d", "/c", tenure, "acquire", "a"])
        .env("TENURE_DIR", scene.locks())
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let said = text(&output.stdout) + &text(&output.stderr);
    let owner = format!("PID {})", std::process::id());
    assert!(
        said.contains(&owner),
        "the shell of one line is passed over: {said}"
    );
    let check = scene.check("a");
    assert_eq!(check["data"]["mine"], true, "{check}");
    scene.answers(0, &["release", "a"]);
    let check = scene.check("a");
    assert_eq!(check["data"]["standing"], "free", "{check}");
}

#[test]
fn a_waiter_behind_an_owner_is_woken_by_its_end() {
    let scene = Scene::new();
    let mut owner = Command::new("cmd")
        .args(["/d", "/c", "pause"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    scene.answers(0, &["acquire", "a", "--owner", &owner.id().to_string()]);
    let mut waiter = scene.tenure(&["run", "a", "--wait", "30s", "--", "cmd", "/c", "exit 5"]);
    let mut waiter = waiter.spawn().unwrap();
    thread::sleep(Duration::from_millis(300));
    assert!(waiter.try_wait().unwrap().is_none(), "it waits");
    owner.kill().unwrap();
    owner.wait().unwrap();
    assert_eq!(waiter.wait().unwrap().code(), Some(5));
}

#[test]
fn records_that_other_programs_read_are_published_and_withdrawn() {
    let scene = Scene::new();
    let folder = scene.path("storage");
    std::fs::create_dir(&folder).unwrap();
    let folder = folder.to_str().unwrap();
    for profile in ["resume", "session"] {
        let on = |words: &[&str]| -> Vec<String> {
            let all = [words, &["--profile", profile, "--dir", folder]].concat();
            all.into_iter().map(str::to_owned).collect()
        };
        let go = |code: i32, words: &[&str]| {
            let words = on(words);
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            scene.answers(code, &words)
        };
        let own = std::process::id().to_string();
        let pid: &[&str] = if profile == "resume" {
            &["--owner", &own]
        } else {
            &[]
        };
        let acquire = |id| [&["acquire", "41", "--request-id", id][..], pid].concat();
        let record = match profile {
            "resume" => scene.path("storage/resume_locks/41.lock"),
            _ => scene.path("storage/locks/41.lock"),
        };
        go(0, &acquire("one"));
        assert!(record.is_file(), "{profile}: {}", record.display());
        let refused = scene
            .tenure(&[])
            .args(on(&acquire("two")))
            .output()
            .unwrap();
        assert!(!refused.status.success(), "{profile}: {refused:?}");
        go(0, &["release", "41", "--request-id", "one"]);
        go(0, &acquire("two"));
        go(0, &["release", "41", "--request-id", "two"]);
        assert!(!record.exists(), "{profile}: withdrawn");
    }
}

#[test]
fn the_audit_tells_what_happened() {
    let scene = Scene::new();
    scene.answers(
        0,
        &["acquire", "a", "--owner", "none", "--request-id", "one"],
    );
    scene.answers(0, &["release", "a", "--request-id", "one"]);
    let told = text(&scene.answers(0, &["audit"]).stdout);
    for event in ["lock_acquired", "lock_released"] {
        assert!(told.contains(event), "{event}: {told}");
    }
}

#[test]
fn a_fence_refuses_an_older_token() {
    let scene = Scene::new();
    let guard = scene.path("store.guard");
    let guard = guard.to_str().unwrap();
    let check = |token: &str, code: i32| {
        scene.answers(code, &["fence", "check", token, "--guard", guard]);
    };
    check("7", 0);
    check("9", 0);
    check("7", 80);
    check("9", 0);
}

/// Hosts take the code 2 for a refusal, and at the end of a turn for "go on".
#[test]
fn an_event_of_a_host_is_never_refused() {
    use std::io::Write;
    let scene = Scene::new();
    for words in [&[][..], &["hook", "--wrong"]] {
        let mut command = scene.tenure(words);
        let mut child = command.stdin(Stdio::piped()).spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        let _ = stdin.write_all(b"{\"hook_event_name\": \"Stop\"}");
        drop(stdin);
        assert_eq!(child.wait().unwrap().code(), Some(0), "{words:?}");
    }
    scene.answers(2, &[]);
}

#[test]
fn what_cannot_be_is_refused_in_one_sentence_before_anything_is_touched() {
    let scene = Scene::new();
    let cmd = ["--", "cmd", "/c", "exit 0"];
    for words in [
        [&["run", "a", "--exec"][..], &cmd].concat(),
        [&["run", "a", "--signal", "TERM"][..], &cmd].concat(),
        [
            &[
                "run",
                "a",
                "--group",
                "g",
                "--supersede",
                "--on-supersede",
                "x",
            ][..],
            &cmd,
        ]
        .concat(),
        [&["run", "a", "--on-superseded", "x"][..], &cmd].concat(),
        vec!["flock", "file", "cmd"],
        vec!["push"],
        vec!["demo"],
        vec!["top"],
    ] {
        let output = scene.tenure(&words).output().unwrap();
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{words:?}: {said}");
        if words.first() != Some(&"run") || words.contains(&"--exec") || words.contains(&"--signal")
        {
            assert!(
                said.contains("is not there on Windows"),
                "{words:?}: {said}"
            );
        }
        assert_eq!(said.trim().lines().count(), 1, "{words:?}: {said}");
        assert!(!scene.locks().exists(), "{words:?}: nothing was made");
    }
}

#[test]
fn what_is_not_found_is_said_before_the_lock_is_touched() {
    let scene = Scene::new();
    scene.answers(127, &["run", "a", "--", "no-such-program"]);
    assert!(!scene.locks().exists());
}
