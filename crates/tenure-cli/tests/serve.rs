//! `tenure serve` as its parent meets it: a test for each rule of the protocol, the schema of every line, the example
//! client under the check that strangers' clients get, and a storm.
//!
//! The holds belong to the process of the test, which starts serve. Where a parent has to die, it is a program of its
//! own.
#![cfg(unix)]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test says what it expects by failing"
)]

mod support;
mod support_lines;
mod support_schemas;

use rustix::fs::FlockOperation;
use rustix::process::Signal;
use serde_json::{Value, json};
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::ops::{Deref, DerefMut};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;
use support::{Answer, Scene, TENURE, answer, eventually, send};
use support_lines::{Lines, is_refused};
use support_schemas::satisfies;
use tenure_os::clock::{instant, since};

/// A client that writes what the test says, and holds every line to the schema.
struct Client {
    lines: Lines,
    /// What came while another message was waited for.
    unread: Vec<Value>,
}

impl Deref for Client {
    type Target = Lines;

    fn deref(&self) -> &Lines {
        &self.lines
    }
}

impl DerefMut for Client {
    fn deref_mut(&mut self) -> &mut Lines {
        &mut self.lines
    }
}

impl Client {
    fn new(scene: &Scene) -> Self {
        let mut client = Self::start(&mut scene.tenure(["serve"]));
        let pid = std::process::id();
        client.call(
            "hello",
            &json!({ "protocol": 1, "client": "test", "pid": pid }),
        );
        client
    }

    fn start(command: &mut Command) -> Self {
        Self {
            lines: Lines::start(command, |message| satisfies("serve", message)),
            unread: Vec::new(),
        }
    }

    /// The first message that is meant.
    fn first(&mut self, what: &str, is_meant: impl Fn(&Value) -> bool) -> Value {
        if let Some(index) = self.unread.iter().position(&is_meant) {
            return self.unread.remove(index);
        }
        loop {
            let message = self.line();
            let message = message.unwrap_or_else(|| panic!("serve ended without {what}"));
            if is_meant(&message) {
                return message;
            }
            self.unread.push(message);
        }
    }

    fn answer(&mut self, id: u64) -> Value {
        self.first("an answer", |message| message["id"] == id)
    }

    fn notification(&mut self, method: &str) -> Value {
        let message = self.first(method, |message| message["method"] == method);
        message["params"].clone()
    }

    #[track_caller]
    fn call(&mut self, method: &str, params: &Value) -> Value {
        let id = self.request(method, params);
        let answer = self.answer(id);
        assert!(answer["error"].is_null(), "{method} {params}: {answer:#}");
        answer["result"].clone()
    }

    /// The word of the refusal.
    #[track_caller]
    fn refused(&mut self, method: &str, params: &Value) -> String {
        let id = self.request(method, params);
        code(&self.answer(id))
    }

    /// Takes a lock, and answers with its hold.
    #[track_caller]
    fn acquire(&mut self, name: &str) -> Value {
        self.call("acquire", &json!({ "locks": [{ "name": name }] }))
    }
}

#[track_caller]
fn code(answer: &Value) -> String {
    let code = answer["error"]["data"]["code"].as_str();
    code.unwrap_or_else(|| panic!("no refusal: {answer:#}"))
        .to_owned()
}

fn adopting(hold: &Value) -> Value {
    json!({ "request_id": hold["request_id"], "locks": hold["locks"] })
}

fn of_hold(hold: &Value) -> Value {
    json!({ "hold": hold["hold"] })
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The answer of a program that takes its time.
fn patient_answer(command: &mut Command) -> Answer {
    Answer(command.output().expect("it starts"))
}

/// A program in Python, with tenure on its path and the example's client at hand.
fn python(scene: &Scene, program: &str) -> Answer {
    let mut command = scene.program("python3");
    command.env("PYTHONPATH", root().join("examples/serve"));
    answer(command.args(["-c", program]))
}

#[test]
fn a_wait_that_ran_out_names_the_lock_its_holder_and_the_wait_that_was_said() {
    let scene = Scene::new();
    let holder = scene.hold("deploy", ["-q"]);
    let mut client = Client::new(&scene);
    for (wait_ms, waited) in [(0, ""), (50, "; waited 50ms")] {
        let asked = json!({ "locks": [{ "name": "deploy" }], "wait_ms": wait_ms });
        let id = client.request("acquire", &asked);
        let refused = client.answer(id);
        assert_eq!(code(&refused), "LOCK_HELD");
        let said = refused["error"]["message"].as_str().expect("a sentence");
        let begin = format!("deploy is held by PID {} (", holder.pid());
        assert!(said.starts_with(&begin) && said.ends_with(waited), "{said}");
    }
    assert_eq!(client.end(), 0);
    let _ = holder.open().expect(0, "the holder");
}

/// What a program holds and gives back stands in the audit, with the name of the program and without its arguments.
#[test]
fn the_audit_names_the_program_and_not_its_command_line() {
    let scene = Scene::new();
    let mut client = Client::new(&scene);
    let hold = client.acquire("x");
    client.call("release", &of_hold(&hold));
    // Lines of the audit may come after the answer, and come before the end.
    assert_eq!(client.end(), 0);
    let events = scene.run(["audit", "x", "--output", "json"]).json();
    let events = events["data"]["events"].as_array().unwrap().clone();
    assert_eq!(events.len(), 2, "{events:?}");
    let program = std::env::current_exe().unwrap();
    for event in &events {
        assert_eq!(
            event["command"].as_str(),
            program.file_name().unwrap().to_str()
        );
        assert_eq!(
            (&event["why"], &event["pid"]),
            (&Value::Null, &std::process::id().into())
        );
    }
}

/// Keeps the guard of a list, as a process that was stopped in the middle of a change.
const KEEPS_THE_GUARD: &str = r#"
import fcntl, struct, sys, time
file = open(sys.argv[1], "r+b")
fcntl.fcntl(file, 37, struct.pack("hhqqi4x", fcntl.F_WRLCK, 0, 1 << 60, 1, 0))
print("kept", flush=True)
time.sleep(60)
"#;

/// Another process keeps the audit, or the list of one lock: requests that need neither go on at once, and no line is missing.
#[test]
fn what_another_process_keeps_delays_no_other_request() {
    let scene = Scene::new();
    let mut client = Client::new(&scene);
    for name in ["x", "kept"] {
        let first = client.acquire(name);
        client.call("release", &of_hold(&first));
    }
    let audit = File::open(scene.path("locks/audit/audit.jsonl")).expect("the audit");
    rustix::fs::flock(&audit, FlockOperation::LockExclusive).expect("its lock");
    let mut keeper = scene.program("python3");
    keeper
        .args(["-c", KEEPS_THE_GUARD])
        .arg(scene.path("locks/kept.tenure"));
    let mut keeper = keeper.stdout(Stdio::piped()).spawn().expect("a process");
    let mut line = String::new();
    let said = keeper.stdout.as_mut().expect("its output");
    BufReader::new(said).read_line(&mut line).expect("a line");
    let waits = client.request("acquire", &json!({ "locks": [{ "name": "kept" }] }));
    let began = instant();
    for _ in 0..20 {
        let hold = client.acquire("x");
        client.call("release", &of_hold(&hold));
    }
    let took = since(began);
    assert!(took < Duration::from_secs(2), "{took:?} for 20 locks");
    keeper.kill().expect("it ends");
    keeper.wait().expect("it has ended");
    let kept = client.answer(waits)["result"].clone();
    client.call("release", &of_hold(&kept));
    let began = instant();
    assert_eq!(client.end(), 0);
    let took = since(began);
    assert!(took < Duration::from_secs(10), "{took:?} for all lines");
    drop(audit);
    let events = scene.run(["audit", "x", "--output", "json"]).json();
    let events = events["data"]["events"].as_array().unwrap().clone();
    let told: Vec<_> = events.iter().map(|event| event["event"].as_str()).collect();
    assert_eq!(told.len(), 42, "{told:?}");
    for pair in told.chunks(2) {
        assert_eq!(
            pair,
            [Some("lock_acquired"), Some("lock_released")],
            "{told:?}"
        );
    }
}

/// Another program renames the folder. What `serve` tidies up in there is no release, and the audit says so.
#[test]
fn a_hold_in_a_folder_that_was_renamed_is_lost_and_not_released() {
    let scene = Scene::new();
    let mut client = Client::new(&scene);
    let hold = client.acquire("deploy");
    std::fs::rename(scene.locks(), scene.path("elsewhere")).expect("another name");
    client.notification("lost");
    assert_eq!(client.refused("release", &of_hold(&hold)), "LOCK_LOST");
    assert_eq!(client.end(), 0);
    let events = scene.run(["audit", "--output", "json"]).json();
    let events = events["data"]["events"].as_array().unwrap().clone();
    let told = |word: &str| events.iter().any(|event| event["event"] == word);
    assert!(told("lock_lost") && !told("lock_released"), "{events:?}");
}

#[test]
fn an_audit_that_cannot_be_written_is_told_of_once() {
    let scene = Scene::new();
    std::fs::create_dir_all(scene.path("locks/audit/audit.jsonl")).expect("no file");
    let told = scene.path("told");
    let stderr = File::create(&told).expect("a file");
    let mut client = Client::start(scene.tenure(["serve"]).stderr(stderr));
    client.call("hello", &json!({ "protocol": 1 }));
    for _ in 0..2 {
        let hold = client.acquire("x");
        client.call("release", &of_hold(&hold));
    }
    assert_eq!(client.end(), 0);
    let told = std::fs::read_to_string(told).expect("what was told");
    let lines = told.lines().collect::<Vec<_>>();
    assert!(
        matches!(lines[..], [line] if line.contains("the audit could not be written")),
        "{told:?}"
    );
}

#[test]
fn the_parent_owns_the_hold_and_the_death_of_serve_frees_nothing() {
    let scene = Scene::new();
    let mut client = Client::new(&scene);
    let hold = client.acquire("deploy");
    let held = scene.check("deploy");
    let holder = &held["holder"];
    assert_eq!(holder["pid"], std::process::id(), "{held:#}");
    assert_eq!(holder["orphaned"], false);
    client.kill();
    assert!(is_refused(&scene, "deploy"), "the program lives");
    let seen = scene.check("deploy");
    assert_eq!(seen["holder"]["orphaned"], true, "{seen:#}");

    let mut client = Client::new(&scene);
    let adopted = client.call("adopt", &adopting(&hold));
    assert_eq!(adopted["locks"], hold["locks"], "the same tokens");
    assert!(is_refused(&scene, "deploy"));
    client.call("verify", &of_hold(&adopted));
    client.call("release", &of_hold(&adopted));
    assert!(scene.is_free("deploy"));
    assert_eq!(
        client.refused("adopt", &adopting(&hold)),
        "LOCK_LOST",
        "it is over"
    );
    assert_eq!(client.end(), 0);
}

#[test]
fn a_hold_is_adopted_once_and_by_its_own_program() {
    let scene = Scene::new();
    let mut first = Client::new(&scene);
    let hold = first.acquire("deploy");
    let known = first.call("adopt", &adopting(&hold));
    assert_eq!(known, hold, "this serve keeps it already");
    let mut second = Client::new(&scene);
    assert_eq!(
        second.refused("adopt", &adopting(&hold)),
        "HOLD_KEPT",
        "its serve lives"
    );
    // A serve of another program: the shell in between stays.
    let mut other = scene.program("sh");
    other.args(["-c", "tenure serve; true"]);
    let mut other = Client::start(&mut other);
    other.call("hello", &json!({ "protocol": 1 }));
    assert_eq!(other.refused("adopt", &adopting(&hold)), "NOT_OWNER");
    first.kill();
    assert_eq!(other.refused("adopt", &adopting(&hold)), "NOT_OWNER");
    // A client that got no answer to its acquire knows no token.
    let names = json!({ "request_id": hold["request_id"], "locks": [{ "name": "deploy" }] });
    let wrong =
        json!({ "request_id": hold["request_id"], "locks": [{ "name": "deploy", "token": 1 }] });
    assert_eq!(second.refused("adopt", &wrong), "NOT_OWNER");
    let adopted = second.call("adopt", &names);
    assert_eq!(adopted["locks"], hold["locks"]);
    let mut third = Client::new(&scene);
    assert_eq!(third.refused("adopt", &names), "HOLD_KEPT");
    assert_eq!(second.end(), 0);
    assert!(scene.is_free("deploy"));
}

#[test]
fn a_hold_is_adopted_by_its_request_id_its_token_and_its_place() {
    let scene = Scene::new();
    let mut client = Client::new(&scene);
    let both = json!({ "locks": [{ "name": "a" }, { "name": "b" }], "request_id": "both" });
    let both = client.call("acquire", &both);
    let one = client.call(
        "acquire",
        &json!({ "locks": [{ "name": "c" }], "request_id": "one" }),
    );
    client.kill();
    let mut client = Client::new(&scene);
    let token = &one["locks"][0]["token"];
    let of = |request_id: &str, token: &Value| json!({ "request_id": request_id, "token": token, "dir": scene.locks() });
    for wrong in [of("one", &json!(1)), of("other", token), of("both", token)] {
        assert_eq!(client.refused("adopt", &wrong), "LOCK_LOST", "{wrong}");
    }
    let named = json!({ "request_id": "one", "token": 1, "locks": [{ "name": "c" }] });
    assert_eq!(client.refused("adopt", &named), "NOT_OWNER", "that token");
    let adopted = client.call("adopt", &of("one", token));
    assert_eq!(adopted["locks"], one["locks"]);
    // Asked twice at once, and once more: it is one hold.
    let without = json!({ "request_id": "both" });
    let (first, second) = (
        client.request("adopt", &without),
        client.request("adopt", &without),
    );
    let first = client.answer(first)["result"].clone();
    assert_eq!(first["locks"], both["locks"]);
    assert_eq!(client.answer(second)["result"], first);
    assert_eq!(client.call("adopt", &without), first);
    client.call("release", &of_hold(&first));
    assert!(scene.is_free("a") && scene.is_free("b"));
    assert_eq!(client.end(), 0);
}

#[test]
fn the_number_of_a_hold_of_an_earlier_serve_is_no_hold() {
    let scene = Scene::new();
    let mut client = Client::new(&scene);
    let old = client.acquire("a");
    client.kill();
    let mut client = Client::new(&scene);
    let new = client.acquire("b");
    assert_eq!(client.refused("release", &of_hold(&old)), "NO_SUCH_HOLD");
    assert_eq!(client.refused("verify", &of_hold(&old)), "NO_SUCH_HOLD");
    assert!(new["hold"].as_u64() < Some(1 << 53), "{new:#}");
    client.call("verify", &of_hold(&new));
    assert_eq!(client.end(), 0);
}

#[test]
fn the_end_of_stdin_gives_back_what_is_being_adopted() {
    let scene = Scene::new();
    for _ in 0..5 {
        let mut client = Client::new(&scene);
        let hold = client.acquire("a");
        client.kill();
        let mut client = Client::new(&scene);
        client.request("adopt", &adopting(&hold));
        client.request("adopt", &adopting(&hold));
        assert_eq!(client.end(), 0);
        assert!(scene.is_free("a"));
    }
}

#[test]
fn the_end_of_stdin_gives_all_back_and_a_half_line_is_no_request() {
    let scene = Scene::new();
    let mut client = Client::new(&scene);
    client.acquire("one");
    client.call(
        "acquire",
        &json!({ "locks": [{ "name": "two" }, { "name": "three" }] }),
    );
    let half = json!({ "jsonrpc": "2.0", "id": 9, "method": "acquire", "params": { "locks": [{ "name": "four" }] } });
    client.say(half.to_string().as_bytes());
    assert_eq!(client.end(), 0);
    for name in ["one", "two", "three", "four"] {
        assert!(scene.is_free(name), "{name}");
    }
    assert!(
        !scene.locks().join("four.tenure").exists(),
        "the half line was not carried out"
    );
}

#[test]
fn the_death_of_the_parent_ends_serve_though_a_child_keeps_the_pipe() {
    let scene = Scene::new();
    let program = "
import ctypes, os, signal, tenure_client
hold = tenure_client.lock('deploy')
if ctypes.PyDLL(None).fork() == 0:  # without the client's hooks
    os.read(0, 1)  # until the test has ended
    os._exit(0)
print(tenure_client._serve.process.pid, flush=True)
os.close(1)
os.kill(os.getpid(), signal.SIGKILL)
";
    let mut command = scene.program("python3");
    command.env("PYTHONPATH", root().join("examples/serve"));
    command.args(["-c", program]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut parent = command.spawn().expect("python");
    let _of_the_child = parent.stdin.take();
    let mut line = String::new();
    let stdout = parent.stdout.take().expect("its stdout");
    BufReader::new(stdout).read_line(&mut line).expect("a line");
    let serve: u32 = line.trim().parse().expect("a number");
    parent.wait().expect("it has ended");
    eventually("the lock of the program that was killed is free", || {
        scene.is_free("deploy")
    });
    eventually("its serve has ended", || !support::is_alive(serve));
}

/// The pipes are close-on-exec, so serve's stdin ends with the program, though its process goes on.
#[test]
fn a_program_that_becomes_another_one_holds_nothing() {
    let scene = Scene::new();
    let mut command = scene.program("python3");
    command.env("PYTHONPATH", root().join("examples/serve"));
    command.args([
        "-c",
        "
import os, sys, one_thread
hold = one_thread.lock('deploy')
print('held', flush=True)
sys.stdin.readline()
os.execvp('cat', ['cat'])
",
    ]);
    let mut program = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("python");
    let mut stdin = program.stdin.take().expect("its stdin");
    let mut stdout = BufReader::new(program.stdout.take().expect("its stdout"));
    let mut line = String::new();
    stdout.read_line(&mut line).expect("a line");
    assert!(is_refused(&scene, "deploy"), "the program holds it");
    writeln!(stdin, "go on").expect("it reads");
    eventually("the other program holds no lock", || {
        scene.is_free("deploy")
    });
    writeln!(stdin, "still here").expect("it is the same process");
    line.clear();
    stdout.read_line(&mut line).expect("a line");
    assert_eq!(line, "still here\n", "cat answers");
    drop(stdin);
    assert!(program.wait().expect("it has ended").success());
}

/// A later process that got the number of the program which held is another one: it adopts nothing.
#[test]
fn a_process_with_the_number_of_a_dead_holder_adopts_nothing() {
    if !rustix::process::geteuid().is_root() {
        #[allow(
            clippy::print_stdout,
            reason = "a reader of the tests' output has to know"
        )]
        {
            println!(
                "skipped: numbers of processes are given out again only in a namespace, by root"
            );
        }
        return;
    }
    let scene = Scene::new();
    let first = scene.write(
        "first.py",
        "
import json, one_thread, os, signal
hold = one_thread.lock('deploy')
with open('hold.tmp', 'w') as file:
    json.dump({'request_id': hold.whose['request_id'], 'locks': [{'name': 'deploy', 'token': hold.token}]}, file)
os.rename('hold.tmp', 'hold')
one_thread._serve.process.kill()
os.kill(os.getpid(), signal.SIGKILL)
",
    );
    let second = scene.write(
        "second.py",
        "
import json, one_thread, os
adopting = json.load(open('hold'))
try:
    one_thread._start().call('adopt', **adopting)
    print('adopted')
except one_thread.TenureError as error:
    print(os.getpid(), error.code)
",
    );
    let line = format!(
        "
        python3 {first} & number=$!
        wait $number || :
        # The clock ticks of its start have to differ from those of the next one of this number.
        tick=$(cut -d' ' -f1 /proc/uptime); while [ \"$(cut -d' ' -f1 /proc/uptime)\" = \"$tick\" ]; do :; done
        echo $((number - 1)) >/proc/sys/kernel/ns_last_pid
        python3 {second} >said & again=$!
        wait $again || :
        echo $number $again $(cat said)
        tenure run -n deploy -- echo free
        ",
        first = first.display(),
        second = second.display(),
    );
    let mut command = scene.program("unshare");
    command.env("PYTHONPATH", root().join("examples/serve"));
    command
        .args(["--pid", "--fork", "--mount-proc", "sh", "-ec", &line])
        .current_dir(scene.root());
    let said = answer(&mut command).expect(0, "the shell").stdout();
    let words: Vec<&str> = said.split_whitespace().collect();
    let [first, second, asks, code, free] = words[..] else {
        panic!("{said}");
    };
    assert!(
        first == second && second == asks,
        "the number is given out again: {said}"
    );
    assert_eq!((code, free), ("NOT_OWNER", "free"), "{said}");
}

#[test]
fn signals_of_the_terminal_and_of_a_service_do_not_end_it() {
    let scene = Scene::new();
    let mut client = Client::new(&scene);
    let hold = client.acquire("deploy");
    let pid = client.process.id();
    for signal in [
        Signal::INT,
        Signal::TERM,
        Signal::HUP,
        Signal::QUIT,
        Signal::TSTP,
    ] {
        send(pid, signal);
    }
    client.call("verify", &of_hold(&hold));
    let pid = i32::try_from(pid)
        .ok()
        .and_then(rustix::process::Pid::from_raw);
    assert_eq!(
        pid.and_then(tenure_os::process::session_of),
        pid.map(rustix::process::Pid::as_raw_pid),
        "a session of its own"
    );
    assert_eq!(client.end(), 0);
}

#[test]
fn an_abandoned_wait_holds_nothing_whichever_comes_first() {
    let scene = Scene::new();
    let mut client = Client::new(&scene);
    let held = client.acquire("deploy");
    let wait = json!({ "locks": [{ "name": "deploy" }], "wait_ms": "forever" });
    // In the store, and in the line behind it.
    let (first, second) = (
        client.request("acquire", &wait),
        client.request("acquire", &wait),
    );
    let seen = client.notification("waiting");
    assert_eq!(seen["holder"]["pid"], std::process::id(), "{seen:#}");
    for waiting in [second, first] {
        let abandon = client.request("abandon", &json!({ "id": waiting }));
        assert_eq!(code(&client.answer(waiting)), "ABANDONED");
        assert_eq!(
            client.answer(abandon)["result"],
            json!({ "abandoned": true })
        );
    }
    client.call("release", &of_hold(&held));
    // What was answered is the client's. Where both cross, the answers agree on who won.
    let mut granted = 0;
    for _ in 0..40 {
        // In one piece, or a grant would mostly be done before the second line is there.
        let (asked, line) = client.written("acquire", &wait);
        let (abandon, also) = client.written("abandon", &json!({ "id": asked }));
        client.say((line + &also).as_bytes());
        let (asked, abandon) = (client.answer(asked), client.answer(abandon));
        let was_abandoned = abandon["result"]["abandoned"].as_bool().expect("yes or no");
        assert_eq!(asked["error"].is_null(), !was_abandoned, "{asked:#}");
        if was_abandoned {
            assert!(scene.is_free("deploy"), "nothing is held at the answer");
        } else {
            granted += 1;
            client.call("release", &of_hold(&asked["result"]));
        }
    }
    assert!(granted < 40, "some were abandoned in time");
    assert_eq!(client.end(), 0);
}

#[test]
fn a_profile_of_the_users_own_takes_nothing_and_still_looks() {
    let scene = Scene::new();
    let config = scene.write("tenure.toml", "[profile.mine]\n");
    let mut command = scene.tenure(["serve", "--profile", "mine", "--config"]);
    let mut client = Client::start(command.arg(config));
    let pid = std::process::id();
    client.call(
        "hello",
        &json!({ "protocol": 1, "client": "test", "pid": pid }),
    );
    let locks = json!({ "locks": [{ "name": "x" }] });
    assert_eq!(client.refused("acquire", &locks), "BAD_CONFIGURATION");
    assert_eq!(
        client.call("check", &json!({ "name": "x" }))["standing"],
        "free"
    );
}

#[test]
fn hello_comes_first_and_names_both_versions() {
    let scene = Scene::new();
    let mut client = Client::start(&mut scene.tenure(["serve"]));
    assert_eq!(
        client.refused("list", &json!({})),
        "BAD_ARGUMENTS",
        "before hello"
    );
    let id = client.request("hello", &json!({ "protocol": 7, "client": "later" }));
    let refused = client.answer(id);
    assert_eq!(code(&refused), "PROTOCOL_UNKNOWN");
    let said = refused["error"]["message"].as_str().expect("a message");
    assert!(
        said.contains("protocol 7") && said.contains("protocol 1"),
        "{said}"
    );
    let stranger = json!({ "protocol": 1, "pid": 1 });
    assert_eq!(client.refused("hello", &stranger), "NOT_THE_PARENT");
    let greeted = client.call("hello", &json!({ "protocol": 1 }));
    assert_eq!(greeted["parent"]["pid"], std::process::id());
    assert_eq!(client.end(), 0);
}

#[test]
fn what_is_no_message_ends_the_connection_and_leaves_holds_to_their_program() {
    let long = vec![b'x'; (1 << 20) + 1];
    let garbage: [&[u8]; 4] = [b"garbage\n", b"\xff\0\n", b"{\"jsonrpc\":\n", &long];
    for garbage in garbage {
        let scene = Scene::new();
        let mut command = scene.tenure(["serve"]);
        let mut client = Client::start(command.stderr(Stdio::null()));
        client.call("hello", &json!({ "protocol": 1 }));
        let hold = client.acquire("deploy");
        client.say(garbage);
        let last = client.first("a word about it", |message| message["id"].is_null());
        assert_eq!(last["error"]["code"], -32_700, "{last:#}");
        assert_eq!(client.line(), None, "and the end");
        assert_eq!(client.process.wait().expect("it has ended").code(), Some(2));
        assert!(
            is_refused(&scene, "deploy"),
            "the program did not say that it is done"
        );
        let mut client = Client::new(&scene);
        client.call("adopt", &adopting(&hold));
        assert_eq!(client.end(), 0);
        assert!(scene.is_free("deploy"));
    }
}

#[test]
fn what_is_no_request_is_refused_and_the_connection_stays() {
    let scene = Scene::new();
    let mut client = Client::new(&scene);
    for (line, code) in [
        (
            "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"nothing\"}\n",
            -32_601,
        ),
        (
            "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"acquire\",\"params\":{\"name\":\"x\"}}\n",
            -32_602,
        ),
        (
            "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"release\"}\n",
            -32_602,
        ),
        ("{\"id\":1,\"method\":\"list\"}\n", -32_600),
        (
            "{\"jsonrpc\":\"2.0\",\"id\":[1],\"method\":\"list\"}\n",
            -32_600,
        ),
        ("[1]\n", -32_600),
    ] {
        client.say(line.as_bytes());
        let refused = client.first("a refusal", |message| !message["error"].is_null());
        assert_eq!(refused["error"]["code"], code, "{line}");
    }
    // Without an id there is no answer.
    client.say(b"{\"jsonrpc\":\"2.0\",\"method\":\"list\"}\n");
    for (method, params, code) in [
        ("acquire", json!({}), "BAD_ARGUMENTS"),
        (
            "acquire",
            json!({ "locks": [{ "name": "a b" }] }),
            "BAD_ARGUMENTS",
        ),
        (
            "acquire",
            json!({ "locks": [{ "name": "a" }], "dir": "here" }),
            "BAD_ARGUMENTS",
        ),
        (
            "acquire",
            json!({ "locks": [{ "name": "a", "slots": 0 }] }),
            "BAD_ARGUMENTS",
        ),
        ("release", json!({ "hold": 7 }), "NO_SUCH_HOLD"),
        ("verify", json!({ "hold": 7 }), "NO_SUCH_HOLD"),
        ("cancel", json!({ "name": "a" }), "NO_HOLDER"),
        (
            "adopt",
            json!({ "request_id": "a", "locks": [{ "name": "a" }] }),
            "LOCK_LOST",
        ),
    ] {
        assert_eq!(client.refused(method, &params), code, "{method} {params}");
    }
    let nothing = json!({ "id": "who" });
    assert_eq!(
        client.call("abandon", &nothing),
        json!({ "abandoned": false })
    );
    assert_eq!(client.end(), 0);
}

#[test]
fn absent_members_and_numbers_are_read_as_clients_write_them() {
    let scene = Scene::new();
    let mut client = Client::start(&mut scene.tenure(["serve"]));
    for protocol in [json!("2"), json!(2.5), json!("1")] {
        let hello = json!({ "protocol": protocol });
        assert_eq!(client.refused("hello", &hello), "PROTOCOL_UNKNOWN");
    }
    let hello = json!({ "protocol": 1.0, "pid": null, "client": null });
    client.call("hello", &hello);
    client.call("list", &Value::Null);
    client.call("list", &json!({ "all": null, "dir": null }));
    let nulls = json!({
        "locks": [{ "name": "a", "shared": null, "slots": null }], "wait_ms": 10.0, "group": null,
        "cancel_in_progress": null, "ticket": null, "why": null, "ttl_ms": 5000.0, "dir": null, "store": null,
        "caller": null, "request_id": null,
    });
    let hold = client.call("acquire", &nulls);
    let adopt = json!({
        "request_id": hold["request_id"], "locks": null, "dir": null, "caller": null,
        "token": hold["locks"][0]["token"].as_f64(),
    });
    assert_eq!(client.call("adopt", &adopt), hold);
    client.call("release", &json!({ "hold": hold["hold"].as_f64() }));
    for wait in [json!(1e300), json!(u64::MAX), json!("forever")] {
        let asked = json!({ "locks": [{ "name": "a" }], "wait_ms": wait });
        let hold = client.call("acquire", &asked);
        client.call("release", &of_hold(&hold));
    }
    for (params, said) in [
        (
            json!({ "locks": [{ "name": "a" }], "wait_ms": -1 }),
            "acquire: wait_ms: write a whole number",
        ),
        (
            json!({ "locks": [{ "name": "a" }], "wait_ms": 0.5 }),
            "acquire: wait_ms: write a whole number",
        ),
        (
            json!({ "locks": [{ "name": "a" }], "ttl_ms": "5s" }),
            "acquire: ttl_ms: invalid type",
        ),
        (json!({ "locks": "a" }), "acquire: locks: invalid type"),
        (json!([]), "acquire: params: write an object"),
    ] {
        let id = client.request("acquire", &params);
        let refused = client.answer(id);
        assert_eq!(refused["error"]["code"], -32_602, "{refused:#}");
        let message = refused["error"]["message"].as_str().expect("a message");
        assert!(message.starts_with(said), "{message}");
    }
    // Half a character is a mistake in one request.
    client.say(b"{\"jsonrpc\":\"2.0\",\"id\":\"half\",\"method\":\"check\",\"params\":{\"name\":\"\\ud83d\"}}\n");
    let refused = client.first("a refusal", |message| message["id"] == "half");
    assert_eq!(refused["error"]["code"], -32_602, "{refused:#}");
    // A line of 1 MiB is as long as one may be.
    let mut line = json!({ "jsonrpc": "2.0", "id": "long", "method": "list" }).to_string();
    line.push_str(&" ".repeat((1 << 20) - line.len()));
    client.say(format!("{line}\n").as_bytes());
    client.first("an answer", |message| message["id"] == "long");
    assert_eq!(client.end(), 0);
}

#[test]
fn a_message_without_an_id_is_carried_out_without_an_answer() {
    let scene = Scene::new();
    let mut client = Client::new(&scene);
    let hold = client.acquire("a");
    let wait = client.request(
        "acquire",
        &json!({ "locks": [{ "name": "a" }], "wait_ms": "forever" }),
    );
    for (method, params) in [
        ("abandon", json!({ "id": wait })),
        ("cancel", json!({ "name": "a" })),
        ("release", json!({ "hold": 7 })),
    ] {
        let message = json!({ "jsonrpc": "2.0", "method": method, "params": params });
        satisfies("serve", &message);
        client.say(format!("{message}\n").as_bytes());
    }
    assert_eq!(code(&client.answer(wait)), "ABANDONED");
    client.notification("stop_requested");
    let message = json!({ "jsonrpc": "2.0", "method": "release", "params": of_hold(&hold) });
    client.say(format!("{message}\n").as_bytes());
    eventually("the lock is free", || scene.is_free("a"));
    client.call("list", &json!({}));
    assert!(
        client
            .unread
            .iter()
            .all(|message| message["method"] == "waiting")
    );
    assert_eq!(client.end(), 0);
}

#[test]
fn a_parent_that_closes_stdout_keeps_its_holds() {
    let scene = Scene::new();
    let mut command = scene.tenure(["serve"]);
    let mut client = Client::start(command.stderr(Stdio::null()));
    client.call("hello", &json!({ "protocol": 1 }));
    let hold = client.acquire("a");
    let Lines {
        mut process,
        stdin,
        stdout,
        ..
    } = client.lines;
    drop(stdout);
    assert_eq!(process.wait().expect("it has ended").code(), Some(2));
    drop(stdin);
    assert!(
        is_refused(&scene, "a"),
        "the program did not say that it is done"
    );
    let mut client = Client::new(&scene);
    client.call("adopt", &adopting(&hold));
    // With stdin as well, it is done.
    let Lines {
        mut process,
        stdin,
        stdout,
        ..
    } = client.lines;
    drop(stdout);
    std::thread::sleep(Duration::from_millis(50));
    drop(stdin);
    assert_eq!(process.wait().expect("it has ended").code(), Some(0));
    assert!(scene.is_free("a"));
}

#[test]
fn a_parent_that_does_not_read_blocks_itself_alone() {
    const REQUESTS: u64 = 10_000;
    let scene = Scene::new();
    let mut client = Client::new(&scene);
    client.acquire("deploy");
    let mut stdin = client.stdin.take().expect("an open stdin");
    let first = client.number + 1;
    let writer = std::thread::spawn(move || {
        for id in first..first + REQUESTS {
            let request = json!({ "jsonrpc": "2.0", "id": id, "method": "check", "params": { "name": "deploy" } });
            stdin
                .write_all(format!("{request}\n").as_bytes())
                .expect("serve reads in the end");
        }
        stdin
    });
    // The server has answered until nothing more fits, and reads no further; no other program waits for it.
    std::thread::sleep(Duration::from_millis(500));
    assert!(is_refused(&scene, "deploy"));
    let asked = scene.run(["cancel", "deploy"]);
    asked.expect(0, "the holder can be asked");
    let (mut answers, mut asked) = (0, 0);
    while answers < REQUESTS || asked == 0 {
        let message = client.line().expect("all answers come");
        answers += u64::from(!message["result"].is_null());
        asked += u64::from(message["method"] == "stop_requested");
    }
    client.stdin = Some(writer.join().expect("all was written"));
    assert_eq!(client.end(), 0);
    assert!(scene.is_free("deploy"));
}

#[test]
fn the_same_caller_is_refused_and_others_take_turns_in_order() {
    let scene = Scene::new();
    let mut client = Client::new(&scene);
    let of = |caller: &str, wait: Value| json!({ "locks": [{ "name": "a" }], "caller": caller, "wait_ms": wait });
    let mut hold = client.call("acquire", &of("main", json!(0)));
    assert_eq!(
        client.refused("acquire", &of("main", json!("forever"))),
        "ALREADY_HELD"
    );
    assert_eq!(
        client.refused("acquire", &of("other", json!(0))),
        "LOCK_HELD"
    );
    let late = client.request("acquire", &of("late", json!(300)));
    let waiting: Vec<u64> = (0..5)
        .map(|number| client.request("acquire", &of(&format!("task {number}"), json!("forever"))))
        .collect();
    let refused = client.answer(late);
    assert_eq!(code(&refused), "LOCK_HELD", "its time is over");
    let holder = &refused["error"]["data"]["context"]["holder"];
    assert_eq!(holder["pid"], std::process::id());
    for id in waiting {
        client.call("release", &of_hold(&hold));
        let next = client.answer(id)["result"].clone();
        assert!(next["locks"][0]["token"].as_u64() > hold["locks"][0]["token"].as_u64());
        hold = next;
    }
    assert_eq!(client.end(), 0);
}

#[test]
fn a_long_line_is_told_from_time_to_time() {
    const TASKS: usize = 60;
    let scene = Scene::new();
    let mut client = Client::new(&scene);
    let mut hold = client.acquire("a");
    let wait = json!({ "locks": [{ "name": "a" }], "wait_ms": "forever" });
    let waiting: Vec<u64> = (0..TASKS)
        .map(|_| client.request("acquire", &wait))
        .collect();
    let ((), took) = support::timed(|| {
        for id in waiting {
            client.call("release", &of_hold(&hold));
            hold = client.answer(id)["result"].clone();
        }
    });
    let told = client.unread.iter();
    let told = told
        .filter(|message| message["method"] == "waiting")
        .count();
    // Each when it comes and when its turn is next, and all of them every 5 s; not at every turn.
    let rounds = 3 + usize::try_from(took.as_secs()).expect("a number") / 5;
    assert!(told >= 1 && told <= TASKS * rounds, "{told}");
    assert_eq!(client.end(), 0);
}

#[test]
fn a_wait_in_the_line_of_the_program_ends_in_time() {
    let scene = Scene::new();
    let mut client = Client::new(&scene);
    client.acquire("a");
    let forever = json!({ "locks": [{ "name": "a" }], "wait_ms": "forever" });
    client.request("acquire", &forever);
    let (refused, took) = support::timed(|| {
        client.refused(
            "acquire",
            &json!({ "locks": [{ "name": "a" }], "wait_ms": 300 }),
        )
    });
    assert_eq!(refused, "LOCK_HELD");
    assert!(took >= Duration::from_millis(300), "{took:?}");
    assert_eq!(client.end(), 0);
}

#[test]
fn waits_that_are_over_leave_no_thread_and_no_open_file_behind() {
    let scene = Scene::new();
    let (mut other, mut client) = (Client::new(&scene), Client::new(&scene));
    let names = ["a", "b", "c"];
    let hold = names.map(|name| other.acquire(name));
    let of = |name: &str, wait: Value| json!({ "locks": [{ "name": name }], "wait_ms": wait });
    for _ in 0..20 {
        for name in names {
            assert_eq!(client.refused("acquire", &of(name, json!(1))), "LOCK_HELD");
            let wait = client.request("acquire", &of(name, json!("forever")));
            client.call("abandon", &json!({ "id": wait }));
            assert_eq!(code(&client.answer(wait)), "ABANDONED");
        }
    }
    let pid = client.process.id();
    let count = |of: &str| {
        let entries = std::fs::read_dir(format!("/proc/{pid}/{of}")).expect("serve lives");
        entries.count()
    };
    // Threads: the server's own, eight for calls, and one for each lock that it has waited for. A file for each
    // of these, and ten.
    let (threads, files) = (count("task"), count("fd"));
    assert!(threads <= 1 + 8 + names.len(), "{threads} threads");
    assert!(files <= 10 + names.len(), "{files} open files");
    // The end of what was waited for ends a wait that came later.
    let wait = client.request("acquire", &of("b", json!("forever")));
    other.call("release", &of_hold(&hold[1]));
    assert!(client.answer(wait)["error"].is_null());
    assert_eq!(client.end(), 0);
    assert_eq!(other.end(), 0);
}

#[test]
fn waits_for_many_locks_take_no_thread_each() {
    const LOCKS: usize = 300;
    let scene = Scene::new();
    let (mut other, mut client) = (Client::new(&scene), Client::new(&scene));
    let of = |number: usize, wait: Value| json!({ "locks": [{ "name": format!("l{number}") }], "wait_ms": wait });
    for number in 0..LOCKS {
        other.call("acquire", &of(number, json!(0)));
    }
    let waits: Vec<_> = (0..LOCKS)
        .map(|number| client.request("acquire", &of(number, json!("forever"))))
        .collect();
    eventually("all to stand in line", || {
        scene.check(&format!("l{}", LOCKS - 1))["queue"]
            .as_array()
            .map(Vec::len)
            == Some(1)
    });
    let tasks = format!("/proc/{}/task", client.process.id());
    let threads = || std::fs::read_dir(&tasks).expect("serve lives").count();
    // 64 that sleep and one for the other locks, 16 that enter the store, and what each serve has.
    eventually("few threads", || threads() <= 64 + 1 + 16 + 8);
    assert_eq!(other.end(), 0);
    for wait in waits {
        assert!(client.answer(wait)["error"].is_null());
    }
    assert_eq!(client.end(), 0);
}

#[test]
fn several_locks_are_taken_all_or_none() {
    let scene = Scene::new();
    let mut client = Client::new(&scene);
    let held = client.acquire("b");
    let both =
        json!({ "locks": [{ "name": "c" }, { "name": "a" }, { "name": "b" }], "wait_ms": 100 });
    assert_eq!(client.refused("acquire", &both), "LOCK_HELD");
    assert!(scene.is_free("a") && scene.is_free("c"), "none is kept");
    client.call("release", &of_hold(&held));
    let all = client.call("acquire", &both);
    let names: Vec<_> = all["locks"]
        .as_array()
        .expect("locks")
        .iter()
        .map(|lock| &lock["name"])
        .collect();
    assert_eq!(names, ["c", "a", "b"], "in the order of the request");
    let value = all["env"]["TENURE_HELD"].as_str().expect("a text");
    assert_eq!(value.split(';').count(), 3, "{value}");
    client.call("release", &of_hold(&all));
    assert!(scene.is_free("a") && scene.is_free("b") && scene.is_free("c"));
    assert_eq!(client.end(), 0);
}

#[test]
fn modes_groups_and_the_defaults_of_a_project_are_those_of_the_command_line() {
    let scene = Scene::new();
    scene.write(
        "tenure.toml",
        "dir = \"locks\"\n[lock.gpu]\nmembers = [\"left\", \"right\"]\n",
    );
    let mut command = scene.tenure(["serve"]);
    command.env_remove("TENURE_DIR").current_dir(scene.root());
    let mut client = Client::start(&mut command);
    client.call("hello", &json!({ "protocol": 1 }));
    let slots: Vec<_> = ["left", "right"].map(|_| client.acquire("gpu")).into();
    for (index, (hold, member)) in slots.iter().zip(["left", "right"]).enumerate() {
        assert_eq!(hold["locks"][0]["slot"], index, "{hold:#}");
        assert_eq!(hold["locks"][0]["member"], member);
    }
    let shared = json!({ "locks": [{ "name": "db", "shared": true }], "wait_ms": 0 });
    client.call("acquire", &shared);
    client.call("acquire", &shared);
    assert_eq!(
        client.refused(
            "acquire",
            &json!({ "locks": [{ "name": "db" }], "wait_ms": 0 })
        ),
        "LOCK_HELD"
    );
    let group = client.call("acquire", &json!({ "group": "PR 7", "wait_ms": 0 }));
    assert_eq!(group["locks"][0]["group"], true, "{group:#}");
    let newer = client.request(
        "acquire",
        &json!({ "group": "PR 7", "cancel_in_progress": true }),
    );
    let asked = client.notification("stop_requested");
    assert_eq!(asked["hold"], group["hold"]);
    client.call("release", &of_hold(&group));
    assert!(client.answer(newer)["error"].is_null());
    let list = client.call("list", &json!({}));
    assert_eq!(list["locks"].as_array().map(Vec::len), Some(3), "{list:#}");
    let gpu = client.call("check", &json!({ "name": "gpu" }));
    assert_eq!(gpu["mine"], true, "{gpu:#}");
    assert_eq!(client.end(), 0);
}

#[test]
fn check_takes_a_group_and_a_mode_as_on_a_command_line() {
    let scene = Scene::new();
    let mut client = Client::new(&scene);
    client.call("acquire", &json!({ "group": "Ref/Main", "wait_ms": 0 }));
    client.call(
        "acquire",
        &json!({ "locks": [{ "name": "gpu", "slots": 2 }, { "name": "db", "shared": true }] }),
    );
    for (asked, name, would_get) in [
        (json!({ "group": "ref/main" }), "ref=2fmain", false),
        (json!({ "group": "other" }), "other", true),
        (json!({ "name": "gpu" }), "gpu", false),
        (json!({ "name": "gpu", "slots": 2 }), "gpu", true),
        (json!({ "name": "gpu", "slots": 1 }), "gpu", false),
        (json!({ "name": "db" }), "db", false),
        (json!({ "name": "db", "shared": true }), "db", true),
    ] {
        let said = client.call("check", &asked);
        assert_eq!(said["name"], name, "{asked}: {said:#}");
        assert_eq!(said["available"], would_get, "{asked}: {said:#}");
    }
    for asked in [
        json!({}),
        json!({ "name": "x", "group": "x" }),
        json!({ "group": "x", "slots": 2 }),
        json!({ "name": "x", "slots": 0 }),
        json!({ "name": "x", "slots": 2, "shared": true }),
    ] {
        assert_eq!(client.refused("check", &asked), "BAD_ARGUMENTS", "{asked}");
    }
    let both = json!({ "name": "x", "group": "x" });
    assert_eq!(client.refused("cancel", &both), "BAD_ARGUMENTS");
    assert_eq!(client.end(), 0);
}

#[test]
fn check_and_list_say_which_holds_are_the_programs_own_also_behind_another_holder() {
    let scene = Scene::new();
    let (mut other, mut client) = (Client::new(&scene), Client::new(&scene));
    let slots = json!({ "locks": [{ "name": "gpu", "slots": 2 }] });
    other.call("acquire", &slots);
    other.acquire("theirs");
    let own = client.call("acquire", &slots);
    client.acquire("own");
    let listed = client.call("list", &json!({}))["locks"].clone();
    let listed = listed.as_array().expect("locks");
    assert_eq!(listed.len(), 3);
    for lock in listed {
        let name = &lock["name"];
        let checked = client.call("check", &json!({ "name": name }));
        for said in [lock, &checked] {
            assert_eq!(said["mine"], name != "theirs", "{said:#}");
        }
    }
    let gpu = client.call("check", &json!({ "name": "gpu" }));
    assert_eq!(gpu["holder"]["token"], own["locks"][0]["token"]);
    assert_eq!(client.end(), 0);
    assert_eq!(other.end(), 0);
}

#[test]
fn a_holder_is_told_of_requests_to_stop_and_of_loss() {
    let scene = Scene::new();
    let mut client = Client::new(&scene);
    let hold = client.acquire("deploy");
    scene
        .run(["cancel", "deploy", "--by", "me"])
        .expect(0, "it is asked");
    let asked = client.notification("stop_requested");
    assert_eq!(
        (&asked["hold"], &asked["by"]),
        (&hold["hold"], &json!("me"))
    );
    let file = scene.locks().join("deploy.tenure");
    std::fs::rename(&file, scene.path("elsewhere")).expect("the lock's file");
    let lost = client.notification("lost");
    assert_eq!(lost["hold"], hold["hold"]);
    assert_eq!(client.refused("verify", &of_hold(&hold)), "LOCK_LOST");
    assert_eq!(client.refused("release", &of_hold(&hold)), "LOCK_LOST");
    assert_eq!(client.refused("release", &of_hold(&hold)), "NO_SUCH_HOLD");
    assert_eq!(client.end(), 0);
}

#[test]
fn what_a_hold_is_good_for_is_renewed() {
    let scene = Scene::new();
    let mut client = Client::new(&scene);
    let short = json!({ "locks": [{ "name": "a" }], "ttl_ms": 300 });
    let hold = client.call("acquire", &short);
    let renewed = client.notification("renewed");
    assert_eq!(renewed["hold"], hold["hold"]);
    assert_eq!(
        renewed["good_for_ms"],
        Value::Null,
        "its program is proof enough here"
    );
    // A session's lease ends by silence, also while program and serve live.
    let mut command = scene.tenure(["--profile", "session", "--stale-after", "2s", "serve"]);
    let mut client = Client::start(&mut command);
    client.call("hello", &json!({ "protocol": 1 }));
    let hold = client.acquire("42");
    let good_for_ms = hold["good_for_ms"].as_u64().expect("a number");
    assert!((1_000..=2_000).contains(&good_for_ms), "{hold:#}");
    assert!(client.notification("renewed")["good_for_ms"].as_u64() > Some(1_000));
    // A serve that was stopped for longer says so before anything else.
    send(client.process.id(), Signal::STOP);
    std::thread::sleep(Duration::from_millis(2_500));
    send(client.process.id(), Signal::CONT);
    let lost = client.notification("lost");
    assert_eq!(lost["hold"], hold["hold"]);
    assert_eq!(client.end(), 0);
}

#[test]
fn a_run_around_the_program_is_not_waited_for() {
    let scene = Scene::new();
    let program = "
import tenure_client
try:
    tenure_client.lock('deploy', timeout=None)
except tenure_client.TenureError as error:
    print(error.code)
";
    let mut command = scene.tenure(["run", "deploy", "--", "python3", "-c", program]);
    let said = answer(command.env("PYTHONPATH", root().join("examples/serve")));
    assert_eq!(said.stdout().trim(), "ALREADY_HELD", "{}", said.stderr());
}

/// Holds a client of the examples to what every client has to do.
fn passes(client: &str) {
    let scene = Scene::new();
    let example = |name: &str| root().join("examples/serve").join(name);
    let mut command = scene.program("python3");
    command.args([
        example("conformance.py"),
        "python3".into(),
        example("under_test.py"),
        client.into(),
    ]);
    let checked = patient_answer(command.env("TENURE", TENURE)).expect(0, client);
    let passed = checked
        .stdout()
        .lines()
        .filter(|line| line.starts_with("ok "))
        .count();
    assert!(passed >= 12, "{}", checked.stdout());
}

#[test]
fn the_client_for_threads_passes_what_every_client_has_to_pass() {
    passes("tenure_client");
}

#[test]
fn the_client_in_one_file_passes_it_too_and_is_short() {
    passes("one_thread");
    let whole = std::fs::read_to_string(root().join("examples/serve/one_thread.py"));
    let whole = whole.expect("the client");
    let lines = whole.lines().count();
    assert!(lines <= 150, "the client has {lines} lines");
    assert!(!whole.contains("import tenure"), "and needs no other file");
}

/// Ctrl-C cuts waits, grants and releases of the client in one file: what it was not told of, it has given back.
#[test]
fn an_interrupted_call_of_the_small_client_leaves_no_lock() {
    let scene = Scene::new();
    let said = python(
        &scene,
        "
import one_thread, random, signal, time

def interrupt(*_):
    raise KeyboardInterrupt

signal.signal(signal.SIGALRM, interrupt)
kept, cut, end = one_thread.lock('kept'), 0, time.monotonic() + 3
while time.monotonic() < end or cut < 5:
    try:
        try:
            signal.setitimer(signal.ITIMER_REAL, 0.0005 + random.random() * 0.01)
            one_thread.lock('deploy').release()
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
    except KeyboardInterrupt:
        cut += 1
        for hold in one_thread._holds - {kept}:  # cut between the answer and the next line of this program
            hold.release()
    with one_thread.lock('deploy', timeout=0):
        pass
kept.verify()
kept.release()
print('all is given back')
",
    );
    assert_eq!(said.stdout().trim(), "all is given back", "{}", said.said());
    assert!(scene.is_free("deploy") && scene.is_free("kept"));
}

#[test]
fn the_check_of_clients_finds_a_client_that_is_wrong() {
    let scene = Scene::new();
    let mut command = scene.program("python3");
    let liar = "import sys\nfor line in sys.stdin: print('held 1' if line[0] == 'l' else 'released', flush=True)";
    let conformance = root().join("examples/serve/conformance.py");
    command.arg(conformance).args(["python3", "-c", liar]);
    let checked = patient_answer(command.env("TENURE", TENURE)).expect(1, "it fails");
    let failed = checked
        .stdout()
        .lines()
        .filter(|line| line.starts_with("FAILED"))
        .count();
    assert!(failed >= 11, "{}", checked.stdout());
}

/// The long form: `TENURE_CONTENTION=long`, as of the other storms.
#[test]
fn contention_of_programs_and_serves_that_are_killed_and_stopped() {
    let is_long = std::env::var("TENURE_CONTENTION").as_deref() == Ok("long");
    let scene = Scene::new();
    let mut command = scene.program("python3");
    command.arg(root().join("examples/serve/storm.py"));
    command.args(if is_long { ["180", "32"] } else { ["8", "4"] });
    command
        .env("TENURE_BIN", TENURE)
        .env("TMPDIR", scene.root());
    let said = patient_answer(&mut command);
    said.expect(0, "no second holder, no disorder, nothing stuck");
}

#[test]
fn what_the_client_says_of_a_holder() {
    let scene = Scene::new();
    let held = scene.hold("deploy", ["--why", "release 4.2"]);
    let said = python(
        &scene,
        "
import tenure_client
try:
    tenure_client.lock('deploy', timeout=0)
except tenure_client.Held as error:
    print(error.holder['pid'], error.holder['why'])
",
    );
    assert_eq!(
        said.stdout().trim(),
        format!("{} release 4.2", held.pid()),
        "{}",
        said.stderr()
    );
    held.open();
}

/// The number of a hold on the page.
const HOLD_SHOWN: &str = "8162534";

/// Whether a line is what the page shows; `[..]` is any text.
fn is_shown(line: &str, shown: &str) -> bool {
    let Some((first, shown)) = shown.split_once("[..]") else {
        return line == shown;
    };
    let Some(mut rest) = line.strip_prefix(first) else {
        return false;
    };
    let (middle, last) = shown.rsplit_once("[..]").unwrap_or(("", shown));
    for piece in middle.split("[..]") {
        let Some(at) = rest.find(piece) else {
            return false;
        };
        rest = rest.get(at + piece.len()..).unwrap_or_default();
    }
    rest.ends_with(last)
}

#[test]
fn the_conversation_of_the_page_happens_as_it_stands_there() {
    let page = std::fs::read_to_string(root().join("docs/clients.md")).expect("the page");
    let scene = Scene::new();
    let mut client = Client::start(&mut scene.tenure(["serve"]));
    let mut said = 0;
    // The number of a hold is another one each time.
    let mut hold = HOLD_SHOWN.to_owned();
    for line in page.lines() {
        if let Some(request) = line.strip_prefix("> ") {
            let request = request.replace(HOLD_SHOWN, &hold);
            let message = serde_json::from_str(&request).expect("a request is JSON");
            satisfies("serve", &message);
            client.say(format!("{request}\n").as_bytes());
        } else if let Some(shown) = line.strip_prefix("< ") {
            let answer = client.line().expect("an answer");
            if let Some(number) = answer["result"]["hold"].as_u64() {
                hold = number.to_string();
            }
            let (answer, shown) = (answer.to_string(), shown.replace(HOLD_SHOWN, &hold));
            assert!(
                is_shown(&answer, &shown),
                "the page shows\n{shown}\nand serve says\n{answer}"
            );
            said += 1;
        }
    }
    assert!(said >= 6, "the page has a conversation");
    assert_eq!(client.end(), 0);
}

/// What one request may ask for is bounded, so an end of stdin is not kept waiting.
#[test]
fn request_for_too_many_locks_is_refused_at_once() {
    let scene = Scene::new();
    let mut client = Client::new(&scene);
    let named = |count: usize| {
        let locks = (0..count).map(|number| json!({ "name": format!("l{number}") }));
        json!({ "locks": locks.collect::<Vec<_>>(), "wait_ms": 0 })
    };
    assert_eq!(client.refused("acquire", &named(10_000)), "BAD_ARGUMENTS");
    assert_eq!(client.refused("acquire", &named(257)), "BAD_ARGUMENTS");
    let mut adopt = named(257);
    adopt["request_id"] = json!("r");
    adopt.as_object_mut().expect("an object").remove("wait_ms");
    assert_eq!(client.refused("adopt", &adopt), "BAD_ARGUMENTS");
    let held = client.call("acquire", &named(256));
    assert_eq!(held["locks"].as_array().map(Vec::len), Some(256));
    assert_eq!(client.end(), 0);
}
