//! The framework for authors of command-line tools, driven as a process: the tool of
//! `examples/deploy`, two commands, one of which needs a lock.
//!
//! Signals are Unix's own, and so are the tests that send them.

#![allow(clippy::expect_used, reason = "a test says what it expects by failing")]

use jsonschema::Registry;
#[cfg(unix)]
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::io::{BufRead, BufReader, Lines, Read};
#[cfg(unix)]
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, ExitStatus, Stdio};
use std::thread;
use std::time::Duration;
#[cfg(unix)]
use tenure::guard::AcquireError;
use tenure::guard::{Guard, LockManager};
use tenure::store::Store;
use tenure::store::Verbs;
use tenure::store::file::{FileStore, ThreadSleeper};
use tenure_core::LockName;
use tenure_os::clock::instant;
use tenure_os::process::Identity;

/// How long anything may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(20);

/// The example's program. Cargo builds it next to the tests.
fn program() -> PathBuf {
    let test = std::env::current_exe().expect("this program");
    let folder = test.parent().and_then(|deps| deps.parent());
    let program = folder
        .expect("the build's folder")
        .join("examples")
        .join(format!("deploy{}", std::env::consts::EXE_SUFFIX));
    assert!(
        program.exists(),
        "{} was not built: cargo build -p tenure --features framework --example deploy",
        program.display()
    );
    program
}

/// A folder of locks, and the tool in it.
struct Scene(tempfile::TempDir);

struct Answer {
    status: ExitStatus,
    out: String,
    err: String,
}

impl Answer {
    /// The one document, which satisfies the schema and agrees with the exit code.
    #[track_caller]
    fn document(&self, code: i32) -> Value {
        let shown = format!("{:?}\n{}\n{}", self.status, self.out, self.err);
        assert_eq!(self.status.code(), Some(code), "{shown}");
        assert_eq!(
            self.out.lines().count(),
            1,
            "stdout has the document alone: {shown}"
        );
        let document: Value = serde_json::from_str(&self.out).expect("one JSON document");
        satisfies_the_schema(&document);
        assert_eq!(document["ok"], code == 0, "ok is true only with exit 0");
        let keys = document.as_object().expect("an object").keys();
        assert!(
            keys.eq(["ok", "data", "error", "warnings", "meta"]),
            "exactly five keys"
        );
        document
    }

    #[track_caller]
    fn error(&self, exit: i32, code: &str) -> Value {
        let document = self.document(exit);
        let error = document["error"].clone();
        assert_eq!(error["code"], code, "{error:#}");
        error
    }
}

#[track_caller]
fn satisfies_the_schema(document: &Value) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../schemas");
    let read = |file: &str| -> Value {
        let text = std::fs::read_to_string(folder.join(file)).expect("a schema");
        serde_json::from_str(&text).expect("JSON")
    };
    let mut registry = Registry::new();
    // The envelope and what it refers to.
    for file in [
        "envelope.schema.json",
        "lock.schema.json",
        "sprint.schema.json",
        "fleet.schema.json",
    ] {
        registry = registry
            .add(format!("json-schema:///{file}"), read(file))
            .expect("a schema's place");
    }
    let registry = registry.prepare().expect("schemas that fit together");
    let validator = jsonschema::options()
        .with_registry(&registry)
        .build(&read("envelope.schema.json"))
        .expect("a schema");
    let errors: Vec<_> = validator
        .iter_errors(document)
        .map(|error| format!("{}: {error}", error.instance_path()))
        .collect();
    assert!(errors.is_empty(), "{}\n{document:#}", errors.join("\n"));
}

impl Scene {
    fn new() -> Self {
        Self(tempfile::tempdir().expect("a folder"))
    }

    fn locks(&self) -> LockManager {
        LockManager::new(self.0.path()).expect("a folder with a name")
    }

    fn hold(&self, name: &str) -> Guard {
        self.locks().try_acquire(name).expect("a free lock")
    }

    /// Whether no claim holds the lock or waits for it.
    #[cfg(unix)]
    fn is_free(&self, name: &str) -> bool {
        match self.locks().try_acquire(name) {
            Ok(_guard) => true,
            Err(AcquireError::Held(_)) => false,
            Err(error) => unreachable!("{error}"),
        }
    }

    fn store(&self) -> FileStore {
        let here = Identity::current().host;
        FileStore::new(self.0.path(), here, Box::new(ThreadSleeper))
    }

    fn claims(&self, name: &str) -> usize {
        let name = LockName::new(name).expect("a name");
        let reading = self.store().read(&name, None).expect("a readable lock");
        reading.entry().expect("a whole list").claims.len()
    }

    fn tool(&self, words: &[&str]) -> Command {
        let mut command = Command::new(program());
        command
            .args(words)
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", self.0.path())
            .env("USER", "tester")
            .env("USERNAME", "tester")
            .env("TENURE_DIR", self.0.path())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        // Without it, programs of Windows do not find their libraries.
        if let Some(root) = std::env::var_os("SystemRoot") {
            command.env("SystemRoot", root);
        }
        command
    }

    fn run(&self, words: &[&str]) -> Answer {
        answer(&mut self.tool(words))
    }

    /// The tool, which works until it is told to end.
    fn at_work(&self, words: &[&str]) -> Working {
        let words = [&["deploy", "--env", "prod", "--step-ms", "600000"], words].concat();
        Working::start(&mut self.tool(&words))
    }
}

fn answer(command: &mut Command) -> Answer {
    let output = command.output().expect("the tool");
    Answer {
        status: output.status,
        out: String::from_utf8(output.stdout).expect("text"),
        err: String::from_utf8(output.stderr).expect("text"),
    }
}

/// A tool that has begun its work.
struct Working {
    child: Child,
    err: Lines<BufReader<ChildStderr>>,
}

impl Working {
    fn start(command: &mut Command) -> Self {
        let mut child = command.spawn().expect("the tool");
        let mut err = BufReader::new(child.stderr.take().expect("its stderr")).lines();
        let begun = err.find(|line| line.as_ref().is_ok_and(|line| line.starts_with("step 1")));
        assert!(begun.is_some(), "it begins its work");
        Self { child, err }
    }

    /// Sends a signal, and waits until it has arrived: a second one would be lost in one that still waits.
    #[cfg(unix)]
    fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        kill_process(pid.expect("its number"), signal).expect("it is ours, and not collected");
        eventually(|| !is_in(self.child.id(), "ShdPnd:", signal));
    }

    fn end(mut self) -> Answer {
        let mut out = String::new();
        let stdout = self.child.stdout.as_mut().expect("its stdout");
        stdout.read_to_string(&mut out).expect("text");
        let err: Vec<_> = self.err.map_while(Result::ok).collect();
        Answer {
            status: self.child.wait().expect("its end"),
            out,
            err: err.join("\n"),
        }
    }
}

/// Whether a signal is in this set of a process, as the kernel shows it.
#[cfg(unix)]
fn is_in(pid: u32, set: &str, signal: Signal) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix(set));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask >> (signal.as_raw() - 1) & 1 == 1)
}

#[track_caller]
fn eventually(is_so: impl Fn() -> bool) {
    let began = instant();
    while !is_so() {
        assert!(tenure_os::clock::since(began) < PATIENCE, "waited too long");
        thread::sleep(Duration::from_millis(1));
    }
}

/// The first of the four acceptance cases.
#[test]
fn a_waiter_exits_4_with_lock_held_after_its_time() {
    let scene = Scene::new();
    let held = scene.hold("deploy-prod");
    let began = instant();
    let answer = scene.run(&["deploy", "--env", "prod", "--wait", "300ms"]);
    let took = tenure_os::clock::since(began);
    let error = answer.error(4, "LOCK_HELD");
    assert!(
        took >= Duration::from_millis(300),
        "it waits its time: {took:?}"
    );
    let pid = std::process::id();
    let message = error["message"].as_str().expect("a sentence");
    assert!(
        message.starts_with(&format!("Resource lock held by PID {pid} (age: ")),
        "{message}"
    );
    assert!(
        message.ends_with(" — acquisition timed out after 300ms"),
        "{message}"
    );
    let detail = error["detail"].as_str().expect("a detail");
    let file = scene.0.path().join("deploy-prod.tenure");
    let begins = format!(
        "lock_file={} holder_pid={pid} holder_age_ms=",
        file.display()
    );
    assert!(detail.starts_with(&begins), "{detail}");
    let context = &error["context"];
    assert_eq!(context["holder"]["pid"], pid);
    assert_eq!(context["holder"]["token"], held.token());
    assert_eq!(context["name"], "deploy-prod");
    assert_eq!(error["phase"], "acquire");
    assert_eq!(scene.claims("deploy-prod"), 1, "it has left the queue");
    assert!(
        answer
            .err
            .contains(&format!("waiting for deploy-prod, held by PID {pid}")),
        "a person is told meanwhile: {}",
        answer.err
    );
    held.verify().expect("and nothing was taken");
}

/// The second.
#[test]
fn a_refusal_says_when_to_come_back() {
    let scene = Scene::new();
    let _held = scene.hold("deploy-prod");
    let answer = scene.run(&["--wait", "0", "deploy", "--env", "prod"]);
    let error = answer.error(4, "LOCK_HELD");
    assert_eq!(error["retryable"], true);
    assert!(error["retry_after_ms"].as_u64().expect("a number") > 0);
    assert_eq!(error["retry_strategy"], "linear_backoff");
    assert!(
        !error["message"]
            .as_str()
            .expect("a sentence")
            .contains("timed out"),
        "no claim waited"
    );
}

#[cfg(target_os = "linux")]
#[test]
fn a_refusal_names_what_continues_a_stopped_holder() {
    let scene = Scene::new();
    let holder = scene.at_work(&[]);
    let pid = holder.child.id();
    holder.signal(Signal::STOP);
    eventually(|| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        stat.contains(") T ")
    });
    let line = format!("kill -CONT {pid}");
    let refused = scene.locks().try_acquire("deploy-prod").expect_err("held");
    assert!(
        refused
            .to_string()
            .contains(&format!("`{line}` continues it")),
        "{refused}"
    );
    assert!(refused.held_by().expect("a holder").is_stopped);
    let answer = scene.run(&["--wait", "0", "deploy", "--env", "prod"]);
    assert_eq!(answer.error(4, "LOCK_HELD")["fix_command"], line);
    let waited = scene.run(&["--wait", "300ms", "deploy", "--env", "prod"]);
    let first = waited.err.lines().next().unwrap_or_default();
    assert!(first.starts_with("waiting for"), "{}", waited.err);
    assert!(first.contains(&format!("`{line}` continues it")), "{first}");
    holder.signal(Signal::CONT);
    holder.signal(Signal::TERM);
    holder.end().error(143, "CANCELLED");
}

/// The third.
#[test]
fn the_lock_is_free_after_a_normal_exit() {
    let scene = Scene::new();
    let document = scene.run(&["deploy", "--env", "prod"]).document(0);
    assert_eq!(document["data"]["env"], "prod");
    assert_eq!(document["data"]["steps"], 3);
    assert!(document["data"]["token"].as_u64().expect("a token") > 0);
    assert_eq!(document["meta"]["command"], "deploy");
    assert_eq!(
        scene.claims("deploy-prod"),
        0,
        "released, and not just dead"
    );
}

/// The fourth.
#[cfg(unix)]
#[test]
fn the_lock_is_free_after_sigterm() {
    stops_by(Signal::TERM, "SIGTERM", 143);
}

#[cfg(unix)]
#[test]
fn sigint_and_sighup_are_answered_alike() {
    stops_by(Signal::INT, "SIGINT", 130);
    stops_by(Signal::HUP, "SIGHUP", 129);
}

#[cfg(unix)]
#[track_caller]
fn stops_by(signal: Signal, name: &str, code: i32) {
    let scene = Scene::new();
    let working = scene.at_work(&[]);
    assert!(!scene.is_free("deploy-prod"), "it holds the lock");
    working.signal(signal);
    let error = working.end().error(code, "CANCELLED");
    assert_eq!(error["partial"], true);
    assert_eq!(error["signal"], name);
    assert_eq!(error["phase"], "run");
    assert_eq!(
        scene.claims("deploy-prod"),
        0,
        "released, and not just dead"
    );
}

#[test]
fn a_command_without_a_lock_waits_for_nobody() {
    let scene = Scene::new();
    let _held = scene.hold("deploy-prod");
    let document = scene.run(&["status"]).document(0);
    assert_eq!(document["data"]["token"], Value::Null);
    assert_eq!(document["meta"]["command"], "status");
    let other = scene.run(&["deploy", "--env", "staging"]).document(0);
    assert_eq!(
        other["data"]["env"], "staging",
        "another name, another lock"
    );
}

#[test]
fn a_waiter_gets_its_turn() {
    let scene = Scene::new();
    let held = scene.hold("deploy-prod");
    let token = held.token();
    let child = scene
        .tool(&["deploy", "--env", "prod", "--wait", "forever"])
        .spawn()
        .expect("the tool");
    eventually(|| scene.claims("deploy-prod") == 2);
    held.release().expect("a release");
    let output = child.wait_with_output().expect("its end");
    let document: Value = serde_json::from_slice(&output.stdout).expect("a document");
    assert!(document["data"]["token"].as_u64().expect("a token") > token);
}

#[cfg(unix)]
#[test]
fn a_signal_while_waiting_leaves_the_line() {
    let scene = Scene::new();
    let held = scene.hold("deploy-prod");
    let mut tool = scene.tool(&["deploy", "--env", "prod", "--wait", "forever"]);
    let child = tool.spawn().expect("the tool");
    eventually(|| scene.claims("deploy-prod") == 2);
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    kill_process(pid.expect("its number"), Signal::TERM).expect("it is ours");
    let output = child.wait_with_output().expect("its end");
    assert_eq!(output.status.code(), Some(143));
    let document: Value = serde_json::from_slice(&output.stdout).expect("a document");
    satisfies_the_schema(&document);
    assert_eq!(document["error"]["code"], "CANCELLED");
    assert_eq!(document["error"]["phase"], "acquire");
    assert_eq!(scene.claims("deploy-prod"), 1, "it has left the queue");
    held.verify().expect("the holder is left alone");
}

#[test]
fn the_wait_comes_from_the_flag_the_environment_or_the_declaration() {
    let scene = Scene::new();
    let _held = scene.hold("deploy-prod");
    let deploy = ["deploy", "--env", "prod"];
    let told = answer(scene.tool(&deploy).env("TENURE_WAIT", "20ms")).error(4, "LOCK_HELD");
    let message = told["message"].as_str().expect("a sentence");
    assert!(message.ends_with("after 20ms"), "{message}");
    let mut typed = scene.tool(&[deploy.as_slice(), &["--wait", "30ms"]].concat());
    let typed = answer(typed.env("TENURE_WAIT", "1h")).error(4, "LOCK_HELD");
    let message = typed["message"].as_str().expect("a sentence");
    assert!(message.ends_with("after 30ms"), "{message}");
    let bad = answer(scene.tool(&deploy).env("TENURE_WAIT", "soon"));
    let message = bad.error(2, "BAD_ARGUMENTS")["message"].to_string();
    assert!(message.contains("TENURE_WAIT"), "{message}");
}

/// A wait of ten seconds, for the default. The test asserts only that it is neither much shorter nor
/// endless.
#[test]
fn without_a_word_it_waits_ten_seconds() {
    let scene = Scene::new();
    let _held = scene.hold("deploy-prod");
    let error = scene
        .run(&["deploy", "--env", "prod"])
        .error(4, "LOCK_HELD");
    let message = error["message"].as_str().expect("a sentence");
    assert!(message.ends_with("after 10s"), "{message}");
}

#[test]
fn a_failing_command_releases_and_keeps_its_own_code() {
    let scene = Scene::new();
    let answer = scene.run(&["deploy", "--env", "moon"]);
    let error = answer.error(5, "NO_SUCH_ENVIRONMENT");
    assert_eq!(error["retryable"], false);
    assert_eq!(scene.claims("deploy-moon"), 0);
}

#[test]
fn a_panic_releases_and_is_answered() {
    let scene = Scene::new();
    let answer = scene.run(&["deploy", "--env", "prod", "--panic"]);
    answer.error(1, "PANICKED");
    assert!(answer.err.contains("as --panic wants it"), "{}", answer.err);
    assert_eq!(scene.claims("deploy-prod"), 0);
}

#[test]
fn bad_arguments_are_answered_before_anything_is_touched() {
    let scene = Scene::new();
    let empty = |scene: &Scene| std::fs::read_dir(scene.0.path()).expect("a folder").count() == 0;
    for (words, said) in [
        (&["deploy"][..], "--env"),
        (&["deploy", "--env", "prod", "--wait", "soon"], "--wait"),
        (&["deploy", "--env", "../etc"], "deploy-../etc"),
        (&["undeploy"], "undeploy"),
        (&[], "subcommand"),
    ] {
        let error = scene.run(words).error(2, "BAD_ARGUMENTS");
        let message = error["message"].as_str().expect("a sentence");
        assert!(message.contains(said), "{words:?}: {message}");
        assert!(!message.contains("For more"), "one sentence: {message}");
        assert!(empty(&scene), "{words:?} touched nothing");
    }
}

#[test]
fn help_is_for_people_and_shows_the_wait() {
    let scene = Scene::new();
    let answer = scene.run(&["deploy", "--help"]);
    assert_eq!(answer.status.code(), Some(0));
    assert!(answer.out.contains("--wait <DURATION>"), "{}", answer.out);
}

#[test]
fn help_describes_the_tool_in_its_own_words() {
    let scene = Scene::new();
    for (words, description) in [
        (&["--help"][..], "Brings environments up to date"),
        (&["-h"], "Brings environments up to date"),
        (&["help"], "Brings environments up to date"),
        (&["deploy", "--help"], "Brings one environment up to date"),
    ] {
        let answer = scene.run(words);
        assert_eq!(answer.status.code(), Some(0), "{words:?}");
        let first = answer.out.lines().next().unwrap_or_default();
        assert!(first.starts_with(description), "{words:?}: {}", answer.out);
        assert!(
            !answer.out.contains("framework") && !answer.out.contains("flatten"),
            "{words:?}: nothing that is meant for its author: {}",
            answer.out
        );
    }
}

/// `LockManager::open`, as a tool calls it.
#[test]
fn the_place_that_tenure_store_names_is_used_and_servers_are_never_passed_over() {
    let scene = Scene::new();
    let folder = scene.0.path().join("named by a URL");
    let answer_fn = answer;
    let with_store = |url: &str| {
        let mut tool = scene.tool(&["deploy", "--env", "prod", "--step-ms", "0"]);
        answer(tool.env("TENURE_STORE", url))
    };
    let answer = with_store(&format!("file:{}", folder.display()));
    answer.document(0);
    assert!(
        folder.join("deploy-prod.tenure").exists(),
        "it was kept there"
    );
    let in_dir = scene.0.path().join("deploy-prod.tenure");
    assert!(!in_dir.exists(), "and not in TENURE_DIR");
    // A file that a variable names says where, too, as for `tenure`.
    let file = scene.0.path().join("named.toml");
    std::fs::write(&file, "dir = \"of the file\"\n").expect("a file");
    let with_file = |file: &Path| {
        let mut tool = scene.tool(&["deploy", "--env", "prod", "--step-ms", "0"]);
        tool.env_remove("TENURE_DIR").env("TENURE_CONFIG", file);
        answer_fn(&mut tool)
    };
    with_file(&file).document(0);
    let in_file = scene.0.path().join("of the file/deploy-prod.tenure");
    assert!(in_file.exists(), "where the named file says");
    with_file("".as_ref()).error(2, "BAD_CONFIGURATION");
    #[cfg(unix)]
    {
        use std::os::unix::ffi::OsStrExt;
        let mut tool = scene.tool(&["deploy", "--env", "prod", "--step-ms", "0"]);
        tool.env("TENURE_STORE", std::ffi::OsStr::from_bytes(b"file:/l\xff"));
        answer_fn(&mut tool).error(2, "BAD_CONFIGURATION");
    }
    for url in ["etcd://127.0.0.1:1/ci", "redis://x"] {
        let error = with_store(url).error(2, "BAD_CONFIGURATION");
        let message = error["message"].as_str().expect("a sentence");
        assert!(message.contains(url), "{message}");
        assert!(!in_dir.exists(), "no folder in the place of {url}");
    }
}

#[cfg(unix)]
#[test]
fn a_second_sigterm_changes_nothing_and_a_second_sigint_ends_it_at_once() {
    let scene = Scene::new();
    let working = scene.at_work(&["--deaf"]);
    working.signal(Signal::TERM);
    working.signal(Signal::TERM);
    let error = working.end().error(143, "CANCELLED");
    assert_eq!(error["signal"], "SIGTERM");
    let working = scene.at_work(&["--deaf"]);
    working.signal(Signal::INT);
    working.signal(Signal::INT);
    let answer = working.end();
    assert_eq!(answer.status.code(), Some(130));
    assert_eq!(answer.out, "", "a caller that insists gets no answer");
    assert!(scene.is_free("deploy-prod"), "the kernel freed the lock");
}

/// The work never looks whether it should stop. So it is ended while it works, and not before its grace
/// is over.
#[cfg(unix)]
#[test]
fn a_deaf_command_is_cut_short_after_its_grace_and_the_lock_is_free() {
    let scene = Scene::new();
    let working = scene.at_work(&["--deaf"]);
    let began = instant();
    working.signal(Signal::TERM);
    let grace_is_over = || tenure_os::clock::since(began) >= Duration::from_secs(1);
    let is_free = scene.is_free("deploy-prod");
    assert!(!is_free || grace_is_over(), "not released under its work");
    let error = working.end().error(143, "CANCELLED");
    assert!(grace_is_over(), "it has its grace");
    assert_eq!(error["partial"], true);
    assert!(
        error["detail"]
            .as_str()
            .expect("a detail")
            .contains("grace")
    );
    assert!(scene.is_free("deploy-prod"), "the kernel freed the lock");
}

#[test]
fn who_is_asked_for_its_lock_ends_as_superseded() {
    use tenure_os::clock::{Clock, SystemClock};
    let scene = Scene::new();
    let working = scene.at_work(&[]);
    let name = LockName::new("deploy-prod").expect("a name");
    let host = Identity::current().host;
    let now = SystemClock::new(host.boot_id.as_deref()).now();
    scene
        .store()
        .cancel(&name, "req_other".into(), None, &now)
        .expect("a lock");
    let error = working.end().error(79, "SUPERSEDED");
    assert_eq!(error["context"]["superseded_by"], "req_other");
    assert_eq!(scene.claims("deploy-prod"), 0);
}

#[test]
fn a_lost_lock_ends_the_command_with_80() {
    let scene = Scene::new();
    let working = scene.at_work(&[]);
    let file = scene.0.path().join("deploy-prod.tenure");
    std::fs::rename(file, scene.0.path().join("away")).expect("a user's mistake");
    let error = working.end().error(80, "LOCK_LOST");
    assert_eq!(error["context"]["name"], "deploy-prod");
}

#[cfg(unix)]
#[test]
fn a_closed_reader_is_silent() {
    let scene = Scene::new();
    let mut child = scene
        .tool(&["deploy", "--env", "prod", "--step-ms", "50"])
        .spawn()
        .expect("the tool");
    drop(child.stdout.take());
    let output = child.wait_with_output().expect("its end");
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let said = String::from_utf8(output.stderr).expect("text");
    assert!(!said.contains("panicked"), "{said}");
    assert_eq!(scene.claims("deploy-prod"), 0);
}

/// A full pipe, whose reader does not read.
#[cfg(unix)]
fn full_pipe() -> (std::os::fd::OwnedFd, Stdio) {
    let (reader, writer) = rustix::pipe::pipe().expect("a pipe");
    rustix::io::ioctl_fionbio(&writer, true).expect("a flag");
    while rustix::io::write(&writer, &[b'.'; 4096]).is_ok() {}
    rustix::io::ioctl_fionbio(&writer, false).expect("a flag");
    (reader, writer.into())
}

/// Ends it by SIGTERM, and returns how it ended.
#[cfg(unix)]
fn terminated(child: &mut Child) -> ExitStatus {
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    kill_process(pid.expect("its number"), Signal::TERM).expect("it is ours");
    let began = instant();
    loop {
        if let Some(status) = child.try_wait().expect("a child") {
            return status;
        }
        if tenure_os::clock::since(began) > PATIENCE {
            child.kill().expect("it is ours");
            unreachable!("SIGTERM was not heard");
        }
        thread::sleep(Duration::from_millis(1));
    }
}

#[cfg(unix)]
#[test]
fn a_waiter_whose_stderr_nobody_reads_leaves_the_line_at_once() {
    let scene = Scene::new();
    let _held = scene.hold("deploy-prod");
    let (_reader, full) = full_pipe();
    let mut tool = scene.tool(&["deploy", "--env", "prod", "--wait", "forever"]);
    let mut child = tool.stderr(full).spawn().expect("the tool");
    eventually(|| scene.claims("deploy-prod") == 2);
    thread::sleep(Duration::from_millis(200));
    let began = instant();
    assert_eq!(terminated(&mut child).code(), Some(143));
    assert!(
        tenure_os::clock::since(began) < Duration::from_secs(6),
        "long before a grace is over"
    );
    assert_eq!(scene.claims("deploy-prod"), 1, "it has left the queue");
}

#[cfg(unix)]
#[test]
fn a_call_whose_document_nobody_reads_is_ended_by_a_signal() {
    let scene = Scene::new();
    let (_reader, full) = full_pipe();
    let mut tool = scene.tool(&["status"]);
    let mut child = tool.stdout(full).spawn().expect("the tool");
    eventually(|| is_in(child.id(), "SigCgt:", Signal::TERM));
    thread::sleep(Duration::from_millis(500));
    assert!(
        child.try_wait().expect("a child").is_none(),
        "it waits for its reader"
    );
    assert_eq!(terminated(&mut child).code(), Some(143));
}

#[cfg(target_os = "linux")]
#[test]
fn a_document_that_cannot_be_written_is_no_success() {
    let scene = Scene::new();
    for words in [&["status"][..], &["--help"]] {
        let full = std::fs::File::options().write(true).open("/dev/full");
        let mut tool = scene.tool(words);
        let answer = answer(tool.stdout(full.expect("/dev/full")));
        assert_eq!(answer.status.code(), Some(1), "{words:?}: {}", answer.err);
        assert!(
            answer.err.contains("the answer could not be written"),
            "{words:?}: {}",
            answer.err
        );
    }
}

#[cfg(unix)]
#[test]
fn a_signal_that_was_ignored_stays_ignored() {
    let scene = Scene::new();
    let words = [
        "-c",
        "trap '' HUP; exec \"$0\" deploy --env prod --step-ms 600000",
    ];
    let mut command = scene.tool(&[]);
    let mut shell = Command::new("sh");
    shell.args(words).arg(program()).envs(
        command
            .get_envs()
            .filter_map(|(name, value)| Some((name, value?))),
    );
    shell.stdout(Stdio::piped()).stderr(Stdio::piped());
    command.arg0("unused");
    let working = Working::start(&mut shell);
    working.signal(Signal::HUP);
    assert!(!scene.is_free("deploy-prod"), "it goes on");
    working.signal(Signal::TERM);
    let answer = working.end();
    assert_eq!(answer.status.signal(), None);
    answer.error(143, "CANCELLED");
}

#[cfg(unix)]
#[test]
fn every_call_has_an_id_which_is_that_of_its_hold() {
    let scene = Scene::new();
    let working = scene.at_work(&[]);
    let name = LockName::new("deploy-prod").expect("a name");
    let reading = scene.store().read(&name, None).expect("a readable lock");
    let claim = &reading.entry().expect("a list").claims[0];
    assert_eq!(claim.holder.why, "deploy deploy", "without its arguments");
    working.signal(Signal::TERM);
    let document = working.end().document(143);
    assert_eq!(
        document["meta"]["request_id"],
        claim.holder.request_id.as_str()
    );
    let first = scene.run(&["status"]).document(0);
    let second = scene.run(&["status"]).document(0);
    assert_ne!(first["meta"]["request_id"], second["meta"]["request_id"]);
}
