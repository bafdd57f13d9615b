//! The verbs over etcd: `tenure --store etcd://…`, against a server that the test starts.
#![cfg(feature = "etcd")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test says what it expects by failing"
)]

#[path = "../../tenure/tests/etcd/proxy.rs"]
#[allow(dead_code, reason = "the library's tests use the rest of it")]
mod proxy;
#[path = "../../tenure/tests/etcd/server.rs"]
#[allow(dead_code, reason = "the library's tests use the rest of it")]
mod server;
mod support;
mod support_told;

use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::Value;
use server::Server;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;
use support::{BOUND, Gate, Scene, Started, answer, eventually, is_alive, timed};
use tenure_os::clock::instant;

/// A machine of the test's own, and the etcd that it keeps its locks in.
struct Site {
    scene: Scene,
    url: String,
}

impl Site {
    fn on(server: &Server) -> Self {
        Self {
            scene: Scene::new(),
            url: format!("etcd://{}/site", server.endpoint()),
        }
    }

    fn words<'a>(&'a self, words: &[&'a str]) -> Vec<&'a str> {
        [&["--store", &self.url], words].concat()
    }

    fn run(&self, words: &[&str]) -> support::Answer {
        self.scene.run(self.words(words))
    }

    fn check(&self, name: &str) -> Value {
        let answer = self.run(&["check", name, "--output", "json"]);
        let said: Value =
            serde_json::from_str(&answer.stdout()).unwrap_or_else(|_| panic!("{}", answer.said()));
        // A lock of another holder is a refusal, with the same facts.
        let facts = [&said["data"], &said["error"]["context"]];
        let known = facts.into_iter().find(|facts| facts.is_object());
        known.unwrap_or_else(|| panic!("{said}")).clone()
    }

    fn standing(&self, name: &str) -> String {
        let said = self.check(name);
        let standing = said["standing"].as_str();
        standing.unwrap_or_else(|| panic!("{said}")).to_owned()
    }

    /// A run whose command lasts until its gate is opened.
    fn hold(&self, name: &str, gate: &Gate, flags: &[&str], prelude: &str) -> Started {
        let script = gate.script(prelude);
        let words = [&["run", name], flags, &["--", "sh", "-c", &script]].concat();
        let started = self.start(&words);
        gate.entered();
        started
    }

    fn until_one_waits(&self, name: &str) {
        eventually("it waits", || {
            let queue = self.check(name)["queue"].as_array().map(Vec::len);
            queue == Some(1)
        });
    }

    /// Starts a call, and does not wait for its end.
    fn start(&self, words: &[&str]) -> Started {
        let mut command = self.scene.tenure(self.words(words));
        Started::new(command.stdout(Stdio::piped()).stderr(Stdio::piped()))
    }
}

#[test]
fn a_run_has_the_lock_to_itself_and_tells_its_command_where_it_is() {
    let server = Server::start();
    let site = Site::on(&server);
    let gate = Gate::new(&site.scene, "deploy");
    let holder = site.hold("deploy", &gate, &[], "");

    let refused = site.run(&["run", "deploy", "-n", "--output", "json", "--", "true"]);
    let refused = refused.expect(4, "another holder has it").json();
    assert_eq!(refused["error"]["code"], "LOCK_HELD", "{refused}");
    let place = refused["error"]["context"]["lock_file"].as_str();
    assert!(
        place.is_some_and(|place| place.starts_with("etcd://")),
        "where it is: {refused}"
    );
    assert_eq!(site.standing("deploy"), "held");
    let waiter = site.start(&["run", "deploy", "--wait", "20s", "--", "true"]);
    site.until_one_waits("deploy");
    let first = site.check("deploy")["holder"]["token"].as_u64();

    gate.open();
    holder.finish().expect(0, "the holder");
    waiter.finish().expect(0, "the waiter");
    site.run(&["check", "deploy"]).expect(0, "it is free");
    let told = site.run(&["run", "deploy", "--", "env"]);
    let told = told.expect(0, "a third").stdout();
    let value = |name: &str| {
        let line = told.lines().find_map(|line| line.strip_prefix(name));
        line.and_then(|line| line.strip_prefix('='))
            .map(str::to_owned)
    };
    let around = value("TENURE_AROUND").unwrap_or_default();
    assert!(around.contains(&format!("store={};", site.url)), "{around}");
    let token = value("TENURE_TOKEN").and_then(|token| token.parse::<u64>().ok());
    assert!(
        token > first && first.is_some(),
        "tokens rise: {first:?}, {token:?}"
    );
    assert!(
        value("TENURE_HELD").is_some_and(|held| held.ends_with(&format!("{}/deploy", site.url))),
        "the hold is told: {told}"
    );
}

#[test]
fn a_command_finds_its_own_hold_and_does_not_wait_for_it() {
    let server = Server::start();
    let site = Site::on(&server);
    let inner = "tenure check outer && tenure fence check && ! tenure run outer -- true";
    let nested = site.run(&["run", "outer", "--", "sh", "-c", inner]);
    let nested = nested.expect(0, "mine is free for me");
    assert!(
        nested.stderr().contains("would never end"),
        "{}",
        nested.said()
    );
    let passed = "tenure run outer --reentrant -- echo through";
    let passed = site.run(&["run", "outer", "--", "sh", "-c", passed]);
    assert_eq!(passed.expect(0, "passed through").stdout(), "through\n");
}

/// On servers the outer run does not wait for it. It learns that the hold is over, and does not go on beside the next one.
#[test]
fn an_inner_run_that_outlasts_its_outer_hold_ends_its_work() {
    let server = Server::start();
    let site = Site::on(&server);
    let gate = Gate::new(&site.scene, "inner");
    site.scene
        .script("work", &format!("#!/bin/sh\n{}\n", gate.script("")));
    let line = format!(
        "cd '{}'; (tenure run x --reentrant -- ./work; echo $? >code.new; mv code.new code) \
         >/dev/null 2>&1 & while [ ! -e '{}/inner.0.begun' ]; do sleep .01; done",
        site.scene.root().display(),
        site.scene.root().display()
    );
    let outer = site.run(&["run", "x", "--", "sh", "-c", &line]);
    outer.expect(0, "its command has ended");
    let command = gate.entered();
    let (code, took) = timed(|| support::read_number(&site.scene.path("code")));
    assert_eq!(code, 80, "it is told");
    assert!(took < Duration::from_secs(5), "{took:?}");
    assert!(!is_alive(command));
}

#[test]
fn detached_holds_live_by_heartbeats_and_end_by_release() {
    let server = Server::start();
    let site = Site::on(&server);
    let acquire = [
        "acquire",
        "train",
        "--request-id",
        "me",
        "--owner",
        "none",
        "--ttl",
        "4s",
    ];
    site.run(&acquire).expect(0, "it is free");
    site.run(&acquire).expect(0, "it is mine");
    site.run(&["acquire", "train", "--request-id", "other", "-n"])
        .expect(4, "it is not theirs");
    for _ in 0..3 {
        std::thread::sleep(Duration::from_secs(2));
        site.run(&["heartbeat", "train", "--request-id", "me"])
            .expect(0, "a heartbeat keeps it");
    }
    site.run(&["release", "train", "--request-id", "other"])
        .expect(6, "not theirs to release");
    site.run(&["release", "train", "--request-id", "me"])
        .expect(0, "mine to release");
    site.run(&["check", "train"]).expect(0, "free");

    site.run(&acquire).expect(0, "once more");
    let (taken, took) = timed(|| {
        site.run(&[
            "acquire",
            "train",
            "--request-id",
            "next",
            "--owner",
            "none",
            "--wait",
            "20s",
        ])
    });
    taken.expect(0, "the ttl is over");
    assert!(took > Duration::from_secs(2), "not before: {took:?}");
    site.run(&["heartbeat", "train", "--request-id", "me"])
        .expect(6, "it is another owner's, and the answer says so");
}

/// The host process lives here and is unseen elsewhere: silence and the agent count on every machine.
#[test]
fn an_agents_hold_is_its_own_and_ends_by_silence_though_its_host_lives() {
    let server = Server::start();
    let site = Site::on(&server);
    let (first, sibling) = ("claude/1f3c/a", "claude/1f3c/b");
    let taken = site.run(&[
        "acquire", "x", "--as", first, "--ttl", "3s", "--output", "json",
    ]);
    let id = taken.expect(0, "acquired").json()["data"]["request_id"].clone();
    let id = id.as_str().expect("a request id");
    assert_eq!(site.check("x")["holder"]["agent"]["key"], first);
    for verb in ["release", "heartbeat"] {
        let by_sibling = site.run(&[verb, "x", "--as", sibling, "--request-id", id]);
        let _ = by_sibling.expect(6, verb);
        let _ = site.run(&[verb, "x"]).expect(6, "descent from the owner");
    }
    let beat = site.run(&["heartbeat", "x", "--as", first, "--request-id", id]);
    let _ = beat.expect(0, "its own");
    let (next, took) = timed(|| site.run(&["acquire", "x", "--as", sibling, "-w", "25s"]));
    let _ = next.expect(0, "the agent is silent");
    assert!(took > Duration::from_secs(1), "{took:?}");
    let late = site.run(&["heartbeat", "x", "--as", first, "--request-id", id]);
    assert_ne!(late.code(), 0, "it is the sibling's");
}

#[test]
fn groups_slots_and_shared_holds_are_what_they_are_in_files() {
    let server = Server::start();
    let site = Site::on(&server);
    let gate = Gate::new(&site.scene, "old");
    let old = site.hold("agent", &gate, &["--group", "g", "--grace", "2s"], "");
    site.run(&[
        "run",
        "agent",
        "--group",
        "g",
        "--cancel-in-progress",
        "--",
        "true",
    ])
    .expect(0, "the newest wins");
    old.finish().expect(79, "the old one is superseded");

    let gates = [1, 2].map(|n| Gate::new(&site.scene, &format!("slot-{n}")));
    let holders = gates
        .each_ref()
        .map(|gate| site.hold("gpu", gate, &["--slots", "2"], ""));
    site.run(&["run", "gpu", "--slots", "2", "-n", "--", "true"])
        .expect(4, "both are taken");
    gates[0].open();
    site.run(&["run", "gpu", "--slots", "2", "--", "true"])
        .expect(0, "one is free");
    gates[1].open();
    for holder in holders {
        holder.finish().expect(0, "a holder of a slot");
    }

    let gate = Gate::new(&site.scene, "reader");
    let reader = site.hold("table", &gate, &["--shared"], "");
    site.run(&["run", "table", "--shared", "-n", "--", "true"])
        .expect(0, "readers together");
    site.run(&["run", "table", "-n", "--", "true"])
        .expect(4, "no writer among them");
    gate.open();
    reader.finish().expect(0, "the reader");

    let kept = site.hold("line", &Gate::new(&site.scene, "line"), &[], "");
    let asked = [
        "run", "line", "--wait", "100ms", "--ticket", "auto", "--output", "json", "--", "true",
    ];
    let refused = site.run(&asked).expect(4, "it waits no longer").json();
    assert!(
        refused["error"]["context"]["ticket"].is_u64(),
        "its place is kept: {refused}"
    );
    site.run(&["cancel", "line"]).expect(0, "it is held");
    kept.finish().expect(79, "it was asked to stop");
}

/// What other machines may have is only had once the work here has ended: the holder loses its etcd,
/// and its work is over before the lease is.
/// As in files: no two live holds of a lock have one number, all numbers are used, and the number of a holder that was
/// killed is given again once its lease is over and its command gone.
#[test]
fn numbers_of_slots_are_never_shared_and_are_taken_over() {
    let server = Server::start();
    let site = Site::on(&server);
    let work = "cd ..; mkdir in.$TENURE_SLOT || echo shared; echo $TENURE_SLOT; sleep 0.05; rmdir in.$TENURE_SLOT";
    let work = work.replace("cd ..", &format!("cd {}", site.scene.root().display()));
    let words = [
        "run", "gpu", "-q", "--slots", "3", "-w", "forever", "--", "sh", "-c", &work,
    ];
    let callers: Vec<_> = (0..9).map(|_| site.start(&words)).collect();
    let mut used = [0; 3];
    for caller in callers {
        let said = caller.finish().expect(0, "its turn").stdout();
        let number: usize = said.trim().parse().unwrap_or_else(|_| panic!("{said}"));
        used[number] += 1;
    }
    assert!(
        used.iter().all(|times| *times > 0),
        "each is used: {used:?}"
    );

    let number_of = |file: &str| {
        let text = std::fs::read_to_string(site.scene.path(file)).unwrap();
        text.trim().to_owned()
    };
    let prelude = |file: &str| {
        let file = site.scene.path(file);
        format!("echo $TENURE_SLOT >{}", file.display())
    };
    let gates = ["a", "b"].map(|name| Gate::new(&site.scene, name));
    let flags = ["--slots", "2", "--ttl", "2s"];
    let killed = site.hold("gpu", &gates[0], &flags, &prelude("of-a"));
    let other = site.hold("gpu", &gates[1], &flags, &prelude("of-b"));
    assert_eq!(
        (number_of("of-a"), number_of("of-b")),
        ("0".into(), "1".into())
    );
    eventually("its command is on record", || {
        site.check("gpu")["holder"]["command_pid"].is_u64()
    });
    killed.signal(Signal::KILL);
    // The lease decides, and not what this machine sees of its command.
    let ask = ["run", "gpu", "-q", "--slots", "2"];
    let tell = ["--", "sh", "-c", "echo $TENURE_SLOT"];
    let words = [&ask[..], &["-n"], &tell].concat();
    site.run(&words).expect(4, "its lease runs");
    let words = [&ask[..], &["-w", "20s"], &tell].concat();
    let said = site.run(&words).expect(0, "its lease is over");
    assert_eq!(said.stdout(), "0\n", "the other holder keeps 1");
    gates[0].open();
    gates[1].open();
    other.finish().expect(0, "undisturbed");
}

#[test]
fn without_etcd_the_work_ends_before_the_lease_and_nothing_is_called_free() {
    let mut server = Server::start();
    let site = Site::on(&server);
    let gate = Gate::new(&site.scene, "work");
    let flags = ["--ttl", "6s", "--grace", "1s"];
    let ended = site.scene.path("ended");
    let ends = format!("trap 'touch {}; exit 0' TERM INT", ended.display());
    let holder = site.hold("work", &gate, &flags, &ends);
    let deaf = Gate::new(&site.scene, "deaf");
    let stubborn = site.hold(
        "deaf",
        &deaf,
        &["--ttl", "6s", "--grace", "60s"],
        "trap '' TERM INT",
    );
    let pid = deaf.entered();
    // A renewal has succeeded meanwhile.
    std::thread::sleep(Duration::from_millis(2_500));
    server.kill();
    let down = instant();
    eventually("the work has ended", || ended.exists());
    eventually("and what ignores every signal", || !is_alive(pid));
    let over = instant().saturating_duration_since(down);
    assert!(
        over < Duration::from_secs(6),
        "before another caller may have it: {over:?}"
    );

    let (checked, took) = timed(|| site.run(&["check", "work", "--output", "json"]));
    let checked = checked.expect(12, "it cannot be known").json();
    assert_eq!(checked["error"]["code"], "STORE_UNREACHABLE", "{checked}");
    assert!(took < Duration::from_secs(9), "a bounded wait: {took:?}");
    let ran = site.scene.path("ran");
    let ran_text = ran.to_str().expect("text");
    let (refused, took) = timed(|| site.run(&["run", "other", "--", "touch", ran_text]));
    refused.expect(12, "no lock without etcd");
    assert!(took < Duration::from_secs(9), "a bounded wait: {took:?}");
    assert!(!ran.exists(), "the command never started");

    let said = holder.finish().expect(80, "the lock was lost");
    assert!(
        said.stderr().contains("about to run out"),
        "{}",
        said.said()
    );
    stubborn.finish().expect(80, "so was the other");

    server.again();
    site.run(&["run", "work", "--wait", "20s", "--", "true"])
        .expect(0, "its lease has run out");
}

/// A program in another language whose locks are in etcd: they outlast its serve, and end with the program.
#[test]
fn a_program_holds_by_serve_what_other_machines_see() {
    let server = Server::start();
    let site = Site::on(&server);
    let program = "
import one_thread, os, signal, subprocess, sys
def takes():
    return subprocess.run(['tenure', '--store', sys.argv[1], 'run', '-q', '-n', 'deploy', '--', 'true']).returncode
hold = one_thread.lock('deploy', store=sys.argv[1])
token = hold.token
print('held', takes())
one_thread._serve.process.kill()
hold.verify()
print('adopted', takes(), hold.token == token)
hold.release()
print('released', takes())
hold = one_thread.lock('deploy', store=sys.argv[1])
print('again', takes(), hold.token > token, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
";
    let mut command = site.scene.program("python3");
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/serve");
    command.env("PYTHONPATH", examples);
    let said = answer(command.args(["-c", program, &site.url]));
    assert_eq!(
        said.stdout(),
        "held 4\nadopted 4 True\nreleased 0\nagain 4 True\n",
        "{}",
        said.said()
    );
    let (freed, took) = timed(|| site.run(&["run", "-w", "20s", "deploy", "--", "true"]));
    freed.expect(0, "the program has ended");
    assert!(
        took < Duration::from_secs(5),
        "its serve gives the lease back, and no caller waits for its end: {took:?}"
    );
}

/// A program whose etcd is gone is told that its lock is lost before another caller may have it.
#[test]
fn a_program_without_etcd_is_told_in_time_that_its_lock_is_lost() {
    let mut server = Server::start();
    let site = Site::on(&server);
    let program = "
import one_thread, sys, time
hold = one_thread.lock('deploy', store=sys.argv[1], ttl_ms=6000)
print('held', flush=True)
sys.stdin.readline()
begun = time.monotonic()
serve = one_thread._serve
while not hold.lost:
    message = serve.read(begun + 20)
    one_thread._told.add((message.get('method'), message.get('params', {}).get('hold')))
print('lost', time.monotonic() - begun < 6)
";
    let mut command = site.scene.program("python3");
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/serve");
    command
        .env("PYTHONPATH", examples)
        .args(["-c", program, &site.url])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    let mut program = command.spawn().expect("python");
    let mut stdout = BufReader::new(program.stdout.take().expect("its stdout"));
    let mut line = String::new();
    stdout.read_line(&mut line).expect("a line");
    assert_eq!(line, "held\n");
    server.kill();
    writeln!(program.stdin.take().expect("its stdin"), "etcd is gone").expect("it reads");
    line.clear();
    stdout.read_line(&mut line).expect("a line");
    assert_eq!(line, "lost True\n", "before the lease is over");
    program.wait().expect("it ends");
}

#[test]
fn a_holder_outlasts_an_etcd_that_comes_back_in_time() {
    let mut server = Server::start();
    let site = Site::on(&server);
    let gate = Gate::new(&site.scene, "work");
    let holder = site.hold("work", &gate, &["--ttl", "15s"], "");
    let waiter = site.start(&["run", "work", "--wait", "60s", "--", "true"]);
    site.until_one_waits("work");
    let token = site.check("work")["holder"]["token"].as_u64();
    server.kill();
    std::thread::sleep(Duration::from_secs(1));
    server.again();
    assert_eq!(
        site.check("work")["holder"]["token"].as_u64(),
        token,
        "the same hold"
    );
    gate.open();
    holder.finish().expect(0, "the holder has noticed nothing");
    waiter.finish().expect(0, "the waiter has kept its place");
}

/// No process reads what the supervisor says, and its etcd is away for longer than its lease lasts.
#[test]
fn a_run_that_nobody_reads_ends_its_work_in_time() {
    let mut server = Server::start();
    let site = Site::on(&server);
    let gate = Gate::new(&site.scene, "work");
    let (_reader, full) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).unwrap();
    rustix::io::ioctl_fionbio(&full, true).unwrap();
    while rustix::io::write(&full, &[b'.'; 4096]).is_ok() {}
    rustix::io::ioctl_fionbio(&full, false).unwrap();
    let script = gate.script("");
    let words = ["run", "work", "--ttl", "4s", "--", "sh", "-c", &script];
    let mut holder = site.scene.tenure(site.words(&words));
    let holder = Started::new(holder.stdout(Stdio::piped()).stderr(full));
    let command = gate.entered();
    // A renewal has succeeded meanwhile.
    std::thread::sleep(Duration::from_secs(2));
    server.kill();
    let ((), took) = timed(|| eventually("its work has ended", || !is_alive(command)));
    assert!(
        took < Duration::from_secs(4),
        "before another caller may have the lock: {took:?}"
    );
    std::thread::sleep(Duration::from_secs(2));
    server.again();
    site.run(&["run", "work", "--wait", "20s", "--", "true"])
        .expect(0, "the next one has it, alone");
    holder.finish().expect(80, "the lock was lost");
}

/// A whole run is stopped for longer than its lease, as a suspended machine is, and goes on.
/// The first lock is granted long before the second, and renewed all the while: what counts is its last
/// renewal, not its grant.
#[test]
fn what_was_renewed_while_the_next_lock_was_waited_for_counts() {
    let server = Server::start();
    let site = Site::on(&server);
    let gate = Gate::new(&site.scene, "b");
    let holder = site.hold("b", &gate, &["--ttl", "30s"], "");
    let both = [
        "run", "-l", "a", "-l", "b", "--ttl", "4s", "--wait", "60s", "--", "sleep", "1",
    ];
    let both = site.start(&both);
    site.until_one_waits("b");
    std::thread::sleep(Duration::from_secs(7));
    assert_eq!(site.standing("a"), "held");
    gate.open();
    holder.finish().expect(0, "the holder of the second lock");
    both.finish().expect(0, "nothing was lost");
}

#[test]
fn a_run_that_slept_beyond_its_lease_finds_that_it_is_lost() {
    let server = Server::start();
    let site = Site::on(&server);
    let gate = Gate::new(&site.scene, "sleeper");
    let sleeper = site.hold("shared-disk", &gate, &["--ttl", "2s"], "");
    let (run, command) = (sleeper.pid(), gate.entered());
    let group = |number: u32| {
        let pid = Pid::from_raw(i32::try_from(number).unwrap()).unwrap();
        tenure_os::process::group_of(pid).unwrap()
    };
    sleeper.signal(Signal::STOP);
    kill_process_group(group(command), Signal::STOP).unwrap();

    // From another PID namespace, as from another machine, no process can see that it is only stopped.
    let mut next = site.scene.program("unshare");
    next.args(["--pid", "--fork", "--kill-child", "--mount-proc", "tenure"]);
    let words = ["run", "shared-disk", "--wait", "20s", "--", "true"];
    let next = answer(next.args(site.words(&words)));
    let next = next.expect(0, "its lease has run out");
    assert!(
        next.stderr().contains("whose lease ran out") && next.stderr().contains("may be stopped"),
        "and says what is known, which is no death: {}",
        next.said()
    );
    kill_process_group(group(command), Signal::CONT).unwrap();
    sleeper.signal(Signal::CONT);
    let said = sleeper.finish().expect(80, "it is lost");
    assert!(said.stderr().contains("lost"), "{}", said.said());
    eventually("its work is gone", || !is_alive(command) && !is_alive(run));
}

/// No caller has taken it: then the hold was never interrupted, and the work goes on.
#[test]
fn a_run_that_slept_beyond_its_lease_goes_on_if_nobody_came() {
    let server = Server::start();
    let site = Site::on(&server);
    let gate = Gate::new(&site.scene, "sleeper");
    let sleeper = site.hold("alone", &gate, &["--ttl", "2s"], "");
    let token = site.check("alone")["holder"]["token"].as_u64();
    sleeper.signal(Signal::STOP);
    let lease_keys =
        || server.etcdctl(&["get", "/site/locks/alone/lives/", "--prefix", "--keys-only"]);
    eventually("its lease has run out", || lease_keys().trim().is_empty());
    assert_eq!(
        site.standing("alone"),
        "stale",
        "the lease decides, and not what is seen from here"
    );
    assert_eq!(
        site.check("alone")["holder"]["orphaned"],
        false,
        "its supervisor is stopped and not dead"
    );
    let mut outside = site.scene.program("unshare");
    outside.args(["--pid", "--fork", "--kill-child", "--mount-proc", "tenure"]);
    let seen = answer(outside.args(site.words(&["check", "alone"])));
    let seen = seen.expect(0, "by the meaning of a lease").stdout();
    assert!(
        seen.contains("ran out") && !seen.contains("ended without releasing"),
        "{seen}"
    );
    sleeper.signal(Signal::CONT);
    eventually("it lives again", || !lease_keys().trim().is_empty());
    assert_eq!(
        site.check("alone")["holder"]["token"].as_u64(),
        token,
        "the same hold"
    );
    gate.open();
    sleeper.finish().expect(0, "it has lost nothing");
}

#[test]
fn a_killed_supervisor_is_followed_once_its_lease_is_over() {
    let server = Server::start();
    let site = Site::on(&server);
    let gate = Gate::new(&site.scene, "orphan");
    let holder = site.hold("job", &gate, &["--ttl", "2s"], "");
    eventually("its command is on record", || {
        site.check("job")["holder"]["command_pid"].is_u64()
    });
    holder.signal(Signal::KILL);
    // The present machine sees that the supervisor is dead and that the command lives, and neither decides: another
    // machine with the same memory would see the same of processes that are not its own.
    site.run(&["run", "job", "-n", "--", "true"])
        .expect(4, "its lease runs");
    site.run(&["run", "job", "--wait", "20s", "--", "true"])
        .expect(0, "its lease is over");
    gate.open();
}

/// The command is on this machine, so it is ended as one of a file is. The lease has to run out by itself.
#[test]
fn the_command_of_a_killed_supervisor_can_be_ended() {
    let server = Server::start();
    let site = Site::on(&server);
    let gate = Gate::new(&site.scene, "orphan");
    let holder = site.hold("job", &gate, &["--ttl", "3s"], "");
    let command = gate.entered();
    eventually("its command is on record", || {
        site.check("job")["holder"]["command_pid"].is_u64()
    });
    holder.signal(Signal::KILL);
    eventually("an orphan", || {
        site.check("job")["holder"]["orphaned"] == true
    });
    let ended = site.run(&["cancel", "--orphan", "job", "--output", "json"]);
    let ended = ended.expect(0, "it is gone").json();
    assert!(!is_alive(command), "{ended}");
    assert_eq!(ended["data"]["ended"][0]["is_free"], true, "{ended}");
    site.run(&["run", "job", "-n", "--", "true"])
        .expect(0, "it is free");
}

#[test]
fn lists_cleans_and_waits() {
    let server = Server::start();
    let site = Site::on(&server);
    for name in ["a", "b"] {
        site.run(&["run", name, "--", "true"]).expect(0, "a run");
    }
    let gate = Gate::new(&site.scene, "c");
    let holder = site.hold("c", &gate, &[], "");
    let listed = site.run(&["list", "--all"]).expect(0, "a list").stdout();
    for name in ["a ", "b ", "c "] {
        assert!(
            listed.lines().any(|line| line.starts_with(name)),
            "{name}: {listed}"
        );
    }
    site.run(&["clean"]).expect(0, "a cleaning");
    let listed = site.run(&["list", "--all"]).expect(0, "a list").stdout();
    assert!(!listed.contains("a ") && listed.contains("c "), "{listed}");
    let waiter = site.start(&["wait", "c", "--wait", "30s"]);
    gate.open();
    holder.finish().expect(0, "the holder");
    waiter.finish().expect(0, "it is free");
    let keys = server.etcdctl(&["get", "", "--prefix", "--keys-only"]);
    for key in keys.lines().filter(|key| !key.is_empty() && *key != "/up") {
        assert!(
            key.starts_with("/site/locks/"),
            "a key outside of the prefix: {key}"
        );
    }
    let audited = answer(&mut site.scene.tenure(site.words(&["audit"])));
    audited.expect(0, "each machine has its own audit");
}

#[test]
fn every_profile_follows_its_row_over_etcd() {
    let server = Server::start();
    let site = Site::on(&server);
    let profile = |profile: &str, words: &[&str]| {
        site.run(&[&["--profile", profile, "--output", "json"], words].concat())
    };
    let fleet = |id: &str, more: &[&str]| {
        let intent = ["--intent-name", "deploy", "--intent-version", "1"];
        let words = [&["acquire", "web", "--request-id", id], &intent[..], more].concat();
        profile("fleet", &words)
    };
    fleet("r1", &["--ttl", "2s"]).expect(0, "fleet: free");
    fleet("r2", &[]).expect(4, "fleet: held at once");
    eventually("its heartbeat is silent", || {
        let said = fleet("r2", &[]);
        said.code() == 4 && said.stdout().contains("LOCK_STALE")
    });
    fleet("r2", &["--force-lock"]).expect(0, "fleet: stale, and forced");
    profile("session", &["acquire", "42", "--request-id", "s1"]).expect(0, "session: free");
    profile("session", &["acquire", "42", "--request-id", "s2"]).expect(4, "session: held");
    profile("session", &["release", "42", "--request-id", "s1"]).expect(0, "session: released");
    let resume = ["run", "job-7", "--", "true"];
    profile("resume", &resume).expect(0, "resume: a run");
}

/// As where a folder may not be written: 7, and not the 12 of a server that cannot be reached.
#[test]
fn a_user_whom_the_server_refuses_is_told_that_permission_is_denied() {
    let server = Server::start();
    for arguments in [
        ["user", "add", "root:secret"].as_slice(),
        &["user", "grant-role", "root", "root"],
        &["user", "add", "ann:word"],
        &["auth", "enable"],
    ] {
        server.etcdctl(arguments);
    }
    let site = Site::on(&server);
    let ran = site.scene.path("ran");
    for (user, why) in [
        (Some("ann:word"), "etcdserver: permission denied"),
        (Some("ann:guessed"), "authentication failed"),
        (None, "user name is empty"),
    ] {
        for words in [
            &["run", "x", "--output", "json", "--", "touch"][..],
            &["acquire", "x", "--owner", "none", "--output", "json"],
            &["check", "x", "--output", "json"],
            &["list", "--output", "json"],
            &["force-release", "x", "--yes", "--output", "json"],
        ] {
            let mut command = site.scene.tenure(site.words(words));
            if words[0] == "run" {
                command.arg(&ran);
            }
            if let Some(user) = user {
                command.env("TENURE_ETCD_USER", user);
            }
            let said = answer(&mut command).expect(7, &format!("{user:?}: {words:?}"));
            let error = &said.json()["error"];
            assert_eq!(error["code"], "PERMISSION_DENIED", "{words:?}: {error}");
            let message = error["message"].as_str().unwrap_or_default();
            assert!(message.contains(why), "{words:?}: {message}");
            assert!(!said.said().contains("guessed"), "no password is repeated");
        }
        let sprint = ["--profile", "sprint", "check"];
        let mut command = site.scene.tenure(site.words(&sprint));
        command.envs(user.map(|user| ("TENURE_ETCD_USER", user)));
        let _ = answer(&mut command).expect(7, "the same through a profile's own documents");
    }
    assert!(!ran.exists(), "nothing ran");
}

/// Root reads the file of the user who called sudo, and keeps its own secrets from its servers.
#[test]
fn a_password_is_not_sent_where_only_a_found_file_of_another_user_leads() {
    if !support::is_root() {
        return;
    }
    let server = Server::start();
    for arguments in [
        ["user", "add", "root:secret"].as_slice(),
        &["user", "grant-role", "root", "root"],
        &["auth", "enable"],
    ] {
        server.etcdctl(arguments);
    }
    let site = Site::on(&server);
    let file = site
        .scene
        .write("tenure.toml", &format!("store = {:?}\n", site.url));
    std::os::unix::fs::chown(&file, Some(64_001), None).expect("another owner");
    // Consent to the servers is none to give them root's password: root can name them.
    let own = site.scene.path(".config/tenure");
    std::fs::create_dir_all(&own).expect("a folder");
    let allows = format!("allow = [{:?}]\n", site.url);
    std::fs::write(own.join("tenure.toml"), allows).expect("root's own file");
    let call = |secret: Option<&str>, more: &[&str]| {
        let words = [&["check", "x"], more].concat();
        let mut command = site.scene.tenure(words);
        command
            .env_remove("TENURE_DIR")
            .env("SUDO_UID", "64001")
            .current_dir(site.scene.root());
        command.envs(secret.map(|secret| ("TENURE_ETCD_USER", secret)));
        answer(&mut command)
    };
    let said = call(Some("root:secret"), &[]).expect(7, "who named the servers?");
    assert!(said.stderr().contains("--config FILE"), "{}", said.said());
    assert!(!said.said().contains("secret"), "it is not repeated");
    let said = call(None, &[]).expect(7, "the server wants a user");
    assert!(said.stderr().contains("user name is empty"), "it was asked");
    let named = ["--config", file.to_str().expect("text")];
    call(Some("root:secret"), &named).expect(0, "named");
    call(Some("root:secret"), &["--store", &site.url]).expect(0, "named");
}

#[test]
fn a_bad_address_is_refused_before_anything_is_touched() {
    let scene = Scene::new();
    for (url, why) in [
        ("etcd://", "no host"),
        ("etcd://me:hunter2@host/x", "TENURE_ETCD_USER"),
        ("etcd://host:port/x", "HOST:PORT"),
        ("etcdx://host/x", "file:DIR"),
    ] {
        let ran = scene.path("ran");
        let words = [
            "--store",
            url,
            "run",
            "x",
            "--",
            "touch",
            ran.to_str().expect("text"),
        ];
        let said = scene.run(words);
        let said = said.expect(2, url);
        assert!(said.stderr().contains(why), "{url}: {}", said.said());
        assert!(
            !said.said().contains("hunter2"),
            "a password is not repeated"
        );
        assert!(!ran.exists(), "nothing ran");
    }
    let said = scene.run(["--store", "etcds://127.0.0.1:1/x", "run", "x", "--", "true"]);
    let said = said.expect(12, "no certificate to trust");
    assert!(
        said.stderr().contains("TENURE_ETCD_CACERT"),
        "{}",
        said.said()
    );
    let said = scene.run([
        "--store",
        "etcd://127.0.0.1:1/x",
        "run",
        "--exec",
        "x",
        "--",
        "true",
    ]);
    said.expect(2, "no process would renew the lease");
    let (said, took) = timed(|| scene.run(["--store", "etcd://127.0.0.1:1/x", "check", "x"]));
    said.expect(12, "no server is there, which is not the same as free");
    assert!(took < BOUND, "a bounded wait");
}

/// What a run over servers hands down counts while it lives, also for a caller that cannot see its processes: the servers are
/// asked. A killed supervisor's place counts for as long as its command is seen to work.
#[test]
fn place_of_a_run_over_servers_counts_while_it_lives_table() {
    let server = Server::start();
    let site = Site::on(&server);
    let script = r#"
        where_is() { echo "$1 $("$@" tenure check inner --output json)" >>places; }
        asks() { where_is env; unshare --pid --fork --mount-proc true 2>/dev/null && where_is unshare --pid --fork --mount-proc; }
        asks; touch ready
        until [ -e killed ]; do sleep 0.05; done
        asks
        sleep 7
        asks; touch asked
    "#;
    let words = [
        "run", "outer", "-q", "--ttl", "3s", "--", "sh", "-c", script,
    ];
    let mut command = site.scene.tenure(site.words(&words));
    command.current_dir(site.scene.root());
    let run = Started::new(command.stdout(Stdio::null()).stderr(Stdio::null()));
    eventually("it has asked", || site.scene.path("ready").exists());
    run.signal(Signal::KILL);
    std::fs::write(site.scene.path("killed"), "").expect("a file");
    eventually("it has asked again", || site.scene.path("asked").exists());
    let said = std::fs::read_to_string(site.scene.path("places")).expect("what it saw");
    let of = |way: &str| -> Vec<bool> {
        let lines = said.lines().filter(|line| line.starts_with(way));
        lines
            .map(|line| line.contains("\"lock_file\":\"etcd://"))
            .collect()
    };
    assert_eq!(of("env"), [true, true, true], "{said}");
    let apart = of("unshare");
    assert!(
        apart.is_empty() || apart == [true, true, false],
        "it sees only the lease, which is over at last: {said}"
    );
}

/// The ttl is so long that no renewal is due for a while.
#[test]
fn a_run_whose_hold_a_restore_forgot_ends_at_once() {
    let mut server = Server::start();
    let site = Site::on(&server);
    let snapshot = server.snapshot();
    // Revisions fall by more than the restore itself takes: a watch from a later one hears nothing.
    for _ in 0..5 {
        site.run(&["run", "other", "--", "true"]).expect(0, "a run");
    }
    let gate = Gate::new(&site.scene, "restored");
    let holder = site.hold("job", &gate, &["--ttl", "5m"], "");
    let token = site.check("job")["holder"]["token"].as_u64();
    server.restore(&snapshot);
    let (said, took) = timed(|| holder.finish());
    said.expect(80, "its hold is lost");
    assert!(took < Duration::from_secs(4), "{took:?}");
    let gate = Gate::new(&site.scene, "next");
    let next = site.hold("job", &gate, &[], "");
    assert!(site.check("job")["holder"]["token"].as_u64() > token);
    gate.open();
    next.finish().expect(0, "the next holder");
}

#[test]
fn a_waiting_run_outlasts_an_outage() {
    let server = Server::start();
    let site = Site::on(&server);
    let gate = Gate::new(&site.scene, "holder");
    let holder = site.hold("job", &gate, &["--ttl", "2m"], "");
    let waiters: Vec<_> = (1..=3)
        .map(|number| {
            let waiter = site.start(&["run", "job", "-w", "10m", "--", "true"]);
            eventually("it waits", || {
                let queue = site.check("job")["queue"].as_array().map(Vec::len);
                queue == Some(number)
            });
            waiter
        })
        .collect();
    server.stop();
    std::thread::sleep(Duration::from_secs(18));
    server.go_on();
    std::thread::sleep(Duration::from_secs(2));
    gate.open();
    holder.finish().expect(0, "the holder goes on");
    for waiter in waiters {
        waiter.finish().expect(0, "its turn");
    }
}

/// While its lease runs, a waiter that was killed is no holder whose command goes on.
#[test]
fn a_killed_waiter_is_no_orphan() {
    let server = Server::start();
    let site = Site::on(&server);
    let gate = Gate::new(&site.scene, "holder");
    let holder = site.hold("job", &gate, &[], "");
    let waiter = site.start(&["run", "job", "-w", "10m", "--ttl", "4s", "--", "true"]);
    site.until_one_waits("job");
    waiter.signal(Signal::KILL);
    gate.open();
    holder.finish().expect(0, "the holder");
    let said = site.run(&["check", "job", "--output", "json"]);
    assert!(
        !said.stdout().contains("\"orphaned\":true"),
        "{}",
        said.said()
    );
    let said = site.run(&["check", "job"]).said();
    assert!(!said.contains("its command goes on"), "{said}");
}

#[test]
fn a_list_of_two_clusters_is_refused_and_doctor_names_them() {
    let servers = [Server::start(), Server::start()];
    let scene = Scene::new();
    let [one, two] = servers.each_ref().map(Server::endpoint);
    for list in [[&one, &two], [&two, &one]] {
        let url = format!("etcd://{},{}/x", list[0], list[1]);
        let refused = scene.run(["--store", &url, "run", "x", "-n", "--", "true"]);
        let said = refused.expect(7, "two clusters").stderr();
        assert!(said.contains(&format!("tenure allow '{url}#")), "{said}");
        let told = scene.run(["--store", &url, "doctor"]).stdout();
        assert!(told.contains("several clusters"), "{told}");
    }
}

#[test]
fn a_cluster_that_took_the_place_of_another_has_to_be_allowed() {
    let mut servers = [Server::start(), Server::start()];
    let scene = Scene::new();
    let [one, two] = servers.each_ref().map(Server::endpoint);
    let run = |list: &str| {
        let url = format!("etcd://{list}/x");
        scene.run(["--store", &url, "run", "x", "-n", "--", "true"])
    };
    run(&one).expect(0, "the first cluster");
    servers[0].kill();
    let both = format!("{one},{two}");
    let said = run(&both).expect(7, "the second cluster").stderr();
    let line = said.split_once("tenure allow '").expect("a line").1;
    let word = line.split_once('\'').expect("its end").0;
    scene.run(["allow", word]).expect(0, "the user's word");
    run(&both).expect(0, "the second cluster counts");
    servers[0].again();
    run(&one).expect(7, "the first one came back");
    scene
        .run(["allow", "--revoke", word])
        .expect(0, "the user's word");
    run(&one).expect(0, "nothing is remembered");
}
