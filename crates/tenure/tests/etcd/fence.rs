//! `examples/etcd-fence`, run as a program: many add at once and no element is lost. The fence refuses
//! one that was stopped for longer than its lease.

use super::server::Server;
use super::until;
use rustix::process::{Pid, Signal, kill_process};
use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

/// The example's program. `cargo test` and `cargo nextest` build it next to the tests.
fn program() -> PathBuf {
    let test = std::env::current_exe().expect("this program");
    let folder = test.parent().and_then(|deps| deps.parent());
    let program = folder
        .expect("the build's folder")
        .join("examples/etcd-fence");
    assert!(
        program.exists(),
        "{} was not built: cargo build -p tenure --features etcd --example etcd-fence",
        program.display()
    );
    program
}

fn spawn(server: &Server, words: &[&str]) -> Child {
    Command::new(program())
        .arg(server.address("fence").to_string())
        .args(words)
        .env("XDG_STATE_HOME", server.folder())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the example")
}

fn run(server: &Server, words: &[&str]) -> Output {
    spawn(server, words).wait_with_output().expect("its end")
}

fn shown(server: &Server) -> BTreeSet<String> {
    let output = run(server, &["show"]);
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).expect("text");
    text.split_whitespace().map(str::to_owned).collect()
}

#[test]
fn many_that_add_at_once_lose_nothing() {
    let server = Server::start();
    let elements: Vec<String> = (0..12).map(|number| format!("e{number}")).collect();
    let adding = elements.iter().map(|own| spawn(&server, &["add", own]));
    for child in adding.collect::<Vec<_>>() {
        let output = child.wait_with_output().expect("its end");
        assert!(output.status.success(), "{output:?}");
    }
    assert_eq!(shown(&server), elements.into_iter().collect());
}

#[test]
fn who_was_stopped_for_longer_than_its_lease_is_fenced_off() {
    let server = Server::start();
    let arguments = ["add", "late", "--ttl-ms", "2000", "--pause-ms", "10"];
    let mut late = spawn(&server, &arguments);
    let mut said = BufReader::new(late.stderr.take().expect("its words"));
    let mut line = String::new();
    said.read_line(&mut line).expect("a line");
    assert!(line.contains("has read the set"), "{line:?}");
    let pid = Pid::from_child(&late);
    kill_process(pid, Signal::STOP).expect("a signal to a child");
    until("another one gets in", Duration::from_secs(30), || {
        run(&server, &["add", "quick"]).status.success()
    });
    kill_process(pid, Signal::CONT).expect("a signal to a child");
    let status = late.wait().expect("its end");
    let mut rest = String::new();
    std::io::Read::read_to_string(&mut said, &mut rest).expect("its words");
    assert_eq!(status.code(), Some(3), "refused by the fence: {rest}");
    assert_eq!(shown(&server), BTreeSet::from(["quick".to_owned()]));
    assert!(
        run(&server, &["add", "late"]).status.success(),
        "it may try again"
    );
    let both = ["late", "quick"].map(str::to_owned);
    assert_eq!(shown(&server), BTreeSet::from(both));
}

#[test]
fn a_call_that_makes_no_sense_does_nothing() {
    let server = Server::start();
    for words in [
        ["add"].as_slice(),
        &["add", "a b"],
        &["add", "x", "--ttl-ms"],
        &["frobnicate"],
    ] {
        let output = run(&server, words);
        assert_eq!(output.status.code(), Some(2), "{words:?}: {output:?}");
    }
    assert_eq!(shown(&server), BTreeSet::new());
}
