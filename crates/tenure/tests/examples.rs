//! The programs of `examples` that a reader of `docs/library.md` would write: a service, a tool with readers and a writer, a
//! daemon. The job runner over etcd is tested with the servers (`tests/etcd/jobs.rs`).

#![cfg(target_os = "linux")]
#![allow(clippy::expect_used, reason = "a test says what it expects by failing")]

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;
use tenure::guard::{LockManager, Options};
use tenure_os::clock::instant;

/// How long anything may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);

/// A program of `examples`. `cargo test` and `cargo nextest` build it next to the tests.
fn program(name: &str) -> Command {
    let test = std::env::current_exe().expect("this program");
    let folder = test.parent().and_then(Path::parent);
    let program = folder
        .expect("the build's folder")
        .join("examples")
        .join(name);
    assert!(
        program.exists(),
        "{} was not built: cargo build -p tenure --example {name}",
        program.display()
    );
    Command::new(program)
}

fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let began = instant();
    while !condition() {
        assert!(
            instant().saturating_duration_since(began) < PATIENCE,
            "{what}"
        );
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn said(output: &Output) -> String {
    format!(
        "{:?} {} {}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}

fn pid(child: &Child) -> Pid {
    Pid::from_raw(child.id().try_into().expect("a number"))
}

/// PIDs and tokens, in the order in which they were written.
fn written(file: &Path) -> Vec<(u32, u64)> {
    let text = std::fs::read_to_string(file).unwrap_or_default();
    let lines = text.lines().filter_map(|line| line.split_once(' '));
    let numbers = lines.map(|(pid, token)| Some((pid.parse().ok()?, token.parse().ok()?)));
    numbers.map(|line| line.expect("two numbers")).collect()
}

#[test]
fn service_works_in_one_process_at_a_time_and_goes_on_after_a_death() {
    let scratch = tempfile::tempdir().expect("a folder");
    let file = scratch.path().join("written");
    let start = || {
        let mut command = program("service");
        command.arg(&file).args(["--tick-ms", "5"]);
        command.env("TENURE_DIR", scratch.path().join("locks"));
        command.stderr(Stdio::null()).spawn().expect("the service")
    };
    let mut services = vec![start(), start(), start()];
    let mut dead = BTreeSet::new();
    for _ in 0..2 {
        let is_new = |pid: &u32| !dead.contains(pid);
        let worker = || written(&file).last().map(|(pid, _)| *pid).filter(is_new);
        eventually("one of them works", || worker().is_some());
        let worker = worker().expect("one works");
        let at = services.iter().position(|service| service.id() == worker);
        let mut service = services.swap_remove(at.expect("one of them"));
        service.kill().expect("ours");
        service.wait().expect("its end");
        dead.insert(worker);
    }
    let last = services.pop().expect("the last one");
    eventually("the last one works", || {
        written(&file)
            .last()
            .is_some_and(|(pid, _)| *pid == last.id())
    });
    kill(pid(&last), Signal::SIGTERM).expect("ours");
    let ended = last.wait_with_output().expect("its end");
    assert!(ended.status.success(), "{}", said(&ended));
    let lines = written(&file);
    assert!(lines.is_sorted_by_key(|(_, token)| *token), "{lines:?}");
    let holds: BTreeSet<_> = lines.iter().collect();
    assert_eq!(holds.len(), 3, "one token for each of them: {holds:?}");
    let locks = LockManager::new(scratch.path().join("locks")).expect("a folder");
    let free = locks.try_acquire("nightly").expect("it was given back");
    drop(free);
}

#[test]
fn tool_reads_beside_readers_and_writes_alone() {
    let scratch = tempfile::tempdir().expect("a folder");
    let file = scratch.path().join("figures.txt");
    let path = file.to_str().expect("a plain name");
    let call = |words: &[&str]| program("figures").args(words).output().expect("the tool");
    let code = |output: &Output| output.status.code();
    // Many at once lose no line.
    let adding = (0..8).map(|number| {
        let mut command = program("figures");
        command.args(["add", path, &number.to_string()]);
        command.spawn().expect("the tool")
    });
    for mut child in adding.collect::<Vec<_>>() {
        assert!(child.wait().expect("its end").success());
    }
    let shown = call(&["show", path]);
    let lines: BTreeSet<_> = std::str::from_utf8(&shown.stdout)
        .expect("text")
        .lines()
        .collect();
    assert_eq!(lines.len(), 8, "{}", said(&shown));

    let locks = LockManager::new(scratch.path().join("figures.locks")).expect("a folder");
    let reading = Options::new().shared().why("the audit");
    let reader = locks.acquire_with("figures", &reading).expect("a reader");
    let shown = call(&["show", path, "--wait-ms", "0"]);
    assert_eq!(code(&shown), Some(0), "{}", said(&shown));
    let refused = call(&["add", path, "x", "--wait-ms", "50"]);
    assert_eq!(code(&refused), Some(75), "{}", said(&refused));
    let told = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(told.contains(&std::process::id().to_string()), "{told}");
    drop(reader);
    assert_eq!(code(&call(&["add", path, "x"])), Some(0));
    assert_eq!(code(&call(&["frobnicate"])), Some(2));
}

#[test]
fn daemon_is_one_and_the_terminal_is_told() {
    let scratch = tempfile::tempdir().expect("a folder");
    let folder: PathBuf = scratch.path().join("locks");
    let call = |verb: &str| {
        let mut command = program("daemon");
        // The daemon keeps what it inherits open; a pipe would keep this test waiting.
        let (out, err) = (scratch.path().join("out"), scratch.path().join("err"));
        command.arg(verb).arg(&folder).stdin(Stdio::null());
        command.stdout(std::fs::File::create(&out).expect("a file"));
        command.stderr(std::fs::File::create(&err).expect("a file"));
        let status = command.status().expect("the daemon");
        let read = |path| std::fs::read_to_string(path).expect("what it said");
        (status.success(), format!("{}{}", read(out), read(err)))
    };
    for _ in 0..2 {
        let (is_started, said) = call("start");
        assert!(is_started, "{said}");
        let (is_second, said) = call("start");
        assert!(!is_second && said.contains("the daemon"), "{said}");
        let (is_stopped, said) = call("stop");
        assert!(is_stopped, "{said}");
    }
}
