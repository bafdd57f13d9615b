//! `tenure mcp` as an agent's host meets it: the official client of the protocol in both of its eras, and a client that
//! writes what the test says. The holds belong to the process of the test, which starts the servers. Where the program
//! has to be another one, or has to die, it is a script of its own.
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

use rustix::fs::{FlockOperation, fcntl_lock, flock};
use rustix::process::Signal;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;
use support::{Answer, Scene, TENURE, eventually, send, throughout, timed};
use support_lines::host::{Era, Host};
use support_lines::is_refused;

/// A server of another program: the script in between stays. Its locks are the scene's.
fn of_another(scene: &Scene) -> Host {
    let script = scene.script("another", "#!/bin/sh\ntenure mcp\ntrue\n");
    Host::start(scene.program("sh").arg(script), Era::Inline)
}

/// Where scripts/install-tools puts the official client.
fn official_client() -> PathBuf {
    let own = Path::new(TENURE).ancestors();
    let found = own
        .map(|folder| folder.join("tools/mcp/bin/python"))
        .find(|python| python.exists());
    found.expect("the client of the protocol; scripts/install-tools gets it")
}

#[test]
fn the_official_client_in_each_era_of_the_protocol() {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/mcp/official.py");
    let eras = ["legacy", "2026-07-28", "auto"];
    let started = eras.map(|era| {
        let scene = Scene::new();
        let mut command = scene.program(official_client().to_str().unwrap());
        command.arg(&script).arg(era).env("TENURE_BIN", TENURE);
        let process = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn();
        (scene, process.expect("the client starts"))
    });
    for (era, (_scene, process)) in eras.iter().zip(started) {
        let said = Answer(process.wait_with_output().expect("the client ends"));
        said.expect(0, era);
    }
}

#[test]
fn the_end_of_a_server_frees_nothing_and_the_next_one_knows_the_holds() {
    let scene = Scene::new();
    for era in [Era::Handshake, Era::Inline] {
        let mut host = Host::start(&mut scene.tenure(["mcp"]), era);
        let first = host.acquire("first");
        let second = host.acquire("second");
        host.kill();
        assert!(is_refused(&scene, "first"), "the program lives");
        let mut host = Host::start(&mut scene.tenure(["mcp"]), era);
        let seen = host.data("lock_check", &json!({ "name": "first" }));
        assert_eq!(seen["mine"], true, "{seen:#}");
        assert_eq!(seen["handle"], first.as_str());
        host.data("lock_release", &json!({ "handle": first }));
        assert!(scene.is_free("first"));
        assert_eq!(host.end(), 0, "the end of stdin is an orderly one");
        assert!(is_refused(&scene, "second"), "and frees nothing either");
        // A command line with the handle for an id, as an agent's shell may have it.
        let words = ["release", "second", "--request-id", second.as_str()];
        scene.run(words).expect(0, "the same hold");
    }
}

#[test]
fn a_handle_is_of_use_to_its_own_program_alone_and_as_often_as_it_likes() {
    let scene = Scene::new();
    let mut host = Host::new(&scene);
    let handle = host.acquire("deploy");
    let mut other = of_another(&scene);
    let (error, is_error) = other.refused("lock_release", &json!({ "handle": handle }));
    assert_eq!(
        (error["code"].as_str(), is_error),
        (Some("NOT_OWNER"), true),
        "{error:#}"
    );
    assert!(is_refused(&scene, "deploy"));
    let seen = other.data("lock_check", &json!({ "name": "deploy" }));
    assert_eq!(seen["standing"], "held");
    let released = host.data("lock_release", &json!({ "handle": handle }));
    assert_eq!(released["name"], "deploy");
    assert!(scene.is_free("deploy"));
    for _ in 0..2 {
        let released = host.data("lock_release", &json!({ "handle": handle }));
        assert_eq!(released["name"], Value::Null, "{released:#}");
    }
    let (error, is_error) = host.refused("lock_release", &json!({ "handle": "no such form!" }));
    assert_eq!(
        (error["code"].as_str(), is_error),
        (Some("BAD_ARGUMENTS"), true)
    );
    // What a command holds is the command's.
    let held = scene.hold("work", ["--request-id", "of-a-run"]);
    let (error, _) = host.refused("lock_release", &json!({ "handle": "of-a-run" }));
    assert_eq!(error["code"], "NOT_OWNER", "{error:#}");
    held.open();
    assert_eq!(host.end(), 0);
    assert_eq!(other.end(), 0);
}

/// Who asks for the end of a hold needs no handle of it: an unnamed sibling could give the hold back by it.
#[test]
fn the_answer_to_a_request_to_stop_shows_no_handle() {
    let scene = Scene::new();
    let mut host = Host::new(&scene);
    let handle = host.acquire("deploy");
    let id = host.begin("lock_cancel", &json!({ "name": "deploy" }));
    let said = host.answer(id)["result"].clone();
    assert!(!said.to_string().contains(&handle), "{said:#}");
    let asked = &said["structuredContent"];
    assert_eq!(asked["status"], "asked", "{said:#}");
    assert!(
        said.to_string()
            .contains(&format!("PID {}", std::process::id())),
        "{said:#}"
    );
    host.data("lock_release", &json!({ "handle": handle }));
    assert_eq!(host.end(), 0);
}

#[test]
fn a_lock_that_is_held_is_a_result_with_all_that_an_agent_acts_by() {
    let scene = Scene::new();
    let held = scene.hold("deploy", ["--why", "release 4.2"]);
    let mut host = Host::new(&scene);
    let at_once = json!({ "name": "deploy", "wait_ms": 0 });
    let (error, is_error) = host.refused("lock_acquire", &at_once);
    assert!(!is_error, "{error:#}");
    assert_eq!(error["code"], "LOCK_HELD");
    assert_eq!(error["ticket"], Value::Null, "it has not waited");
    let id = host.begin("lock_acquire", &json!({ "name": "deploy", "wait_ms": 100 }));
    let answer = host.answer(id);
    let text = answer["result"]["content"][0]["text"].as_str().unwrap();
    let error = &answer["result"]["structuredContent"];
    let (ticket, retry) = (&error["ticket"], &error["retry_after_ms"]);
    for fact in [
        format!("deploy is held by PID {}", held.pid()),
        "release 4.2".to_owned(),
        "waited 100ms".to_owned(),
        format!("(retry_after_ms {retry})"),
        format!("lock_acquire with ticket {ticket} comes back to it"),
    ] {
        assert!(text.contains(&fact), "{fact:?} in {text:?}");
    }
    assert!(!text.contains("--"), "an agent has no flags: {text}");
    // A caller that comes now stands behind the place that is kept.
    let mut newcomer = scene.tenure(["run", "-w", "20s", "deploy", "--", "echo", "newcomer"]);
    let newcomer = newcomer.stdout(Stdio::piped()).spawn().unwrap();
    scene.until_queued("deploy", 2);
    let back = host.begin(
        "lock_acquire",
        &json!({ "name": "deploy", "ticket": ticket }),
    );
    eventually("it is back at its place", || {
        scene.check("deploy")["queue"][0]["away"] == false
    });
    held.open();
    let (granted, _) = host.result(back);
    assert_eq!(
        granted["status"], "acquired",
        "the first in line: {granted:#}"
    );
    let seen = scene.check("deploy");
    assert_eq!(seen["holder"]["request_id"], granted["handle"]);
    host.data("lock_release", &json!({ "handle": granted["handle"] }));
    let said = newcomer.wait_with_output().unwrap();
    assert_eq!(String::from_utf8_lossy(&said.stdout), "newcomer\n");
    // A place that has lapsed is no error: the call begins anew, and says so.
    let gone = json!({ "name": "deploy", "wait_ms": 1000, "ticket": 7 });
    let (granted, is_error) = host.call("lock_acquire", &gone);
    assert!(!is_error && granted["status"] == "acquired", "{granted:#}");
    let warned = granted["text"].as_str().unwrap();
    assert!(
        warned.contains("warning: the place in line under ticket 7"),
        "{warned}"
    );
    assert_eq!(host.end(), 0);
}

#[test]
fn a_program_waits_for_itself_no_longer_than_it_says_and_is_told_so() {
    let scene = Scene::new();
    let mut host = Host::new(&scene);
    let handle = host.acquire("deploy");
    let again = json!({ "name": "deploy", "wait_ms": 100 });
    // Agents that the host does not name look the same, so the refusal has no handle: it may be the other's.
    let id = host.begin("lock_acquire", &json!({ "name": "deploy", "wait_ms": 0 }));
    let said = host.answer(id)["result"].to_string();
    assert!(
        said.contains("it may be another agent of this program"),
        "{said}"
    );
    assert!(!said.contains(&handle), "{said}");
    assert!(!said.contains("lock_release"), "{said}");
    let (error, is_error) = host.refused("lock_acquire", &again);
    assert!(!is_error);
    assert_eq!(error["code"], "LOCK_HELD", "{error:#}");
    host.data("lock_release", &json!({ "handle": handle }));
    // The place that the call above has left is the program's own, so it does not wait behind itself.
    let (granted, took) = timed(|| host.acquire("deploy"));
    assert!(took < Duration::from_secs(3), "{took:?}");
    host.data("lock_release", &json!({ "handle": granted }));
    assert_eq!(host.end(), 0);
}

#[test]
fn slots_are_numbered_and_arguments_are_read_with_care() {
    let scene = Scene::new();
    let mut host = Host::new(&scene);
    // Some languages write all numbers with a point, and what they do not say as null.
    let slots = json!({ "name": "gpu", "slots": 2.0, "wait_ms": 0, "why": null, "ttl_ms": 60_000 });
    let first = host.data("lock_acquire", &slots);
    let second = host.data("lock_acquire", &slots);
    assert_eq!((&first["slot"], &second["slot"]), (&json!(0), &json!(1)));
    let (error, _) = host.refused("lock_acquire", &slots);
    assert_eq!(error["code"], "LOCK_HELD");
    for (tool, wrong) in [
        ("lock_acquire", json!({})),
        ("lock_acquire", json!({ "name": "" })),
        ("lock_acquire", json!({ "name": 7 })),
        ("lock_acquire", json!({ "name": "a", "slots": 0 })),
        ("lock_acquire", json!({ "name": "a", "wait_ms": -1 })),
        ("lock_acquire", json!({ "name": "a", "wait_ms": "5s" })),
        ("lock_acquire", json!({ "name": "a", "force": true })),
        ("lock_acquire", json!({ "name": "a", "ttl_ms": 0 })),
        (
            "lock_acquire",
            json!({ "name": "a", "wait_ms": 0, "ticket": 7 }),
        ),
        ("lock_release", json!({ "name": "a" })),
        ("lock_check", json!({ "name": "a/b" })),
        ("lock_list", json!({ "all": true })),
        ("lock_wait", json!({ "name": "..", "wait_ms": 0 })),
        ("lock_cancel", json!({})),
    ] {
        let (error, is_error) = host.refused(tool, &wrong);
        assert_eq!(
            (error["code"].as_str(), is_error),
            (Some("BAD_ARGUMENTS"), true),
            "{tool} {wrong}: {error:#}"
        );
    }
    assert!(
        !scene.locks().join("a.tenure").exists(),
        "nothing was touched"
    );
    let unknown = host.begin("lock_steal", &json!({}));
    let answer = host.answer(unknown);
    assert_eq!(answer["error"]["code"], -32602, "{answer}");
    assert_eq!(host.end(), 0);
}

#[test]
fn a_cancelled_call_leaves_no_waiter_and_no_hold() {
    let scene = Scene::new();
    let held = scene.hold("deploy", ["-q"]);
    let mut host = Host::start(&mut scene.tenure(["mcp"]), Era::Handshake);
    let id = host.begin(
        "lock_acquire",
        &json!({ "name": "deploy", "wait_ms": 40_000 }),
    );
    scene.until_queued("deploy", 1);
    host.notify("notifications/cancelled", &json!({ "requestId": id }));
    scene.until_queued("deploy", 0);
    held.open();
    assert!(scene.is_free("deploy"));
    // The grant and the cancellation cross, at all instants: the call is answered, or nothing is held.
    let mut answered = 0;
    for round in 0..300_u64 {
        let id = host.begin(
            "lock_acquire",
            &json!({ "name": "crossing", "wait_ms": 2_000 }),
        );
        let pause = Duration::from_micros(round * 17 % 4_000);
        std::thread::sleep(pause);
        host.notify("notifications/cancelled", &json!({ "requestId": id }));
        // The answer to the next request comes behind that of the last, if there is one.
        let next = host.begin("lock_check", &json!({ "name": "other" }));
        loop {
            let line = host.line().expect("an answer");
            if line["id"] == id {
                let handle = line["result"]["structuredContent"]["handle"].clone();
                assert!(handle.is_string(), "{line}");
                host.data("lock_release", &json!({ "handle": handle }));
                answered += 1;
                break;
            }
            if line["id"] == next {
                break;
            }
        }
    }
    eventually("what was cancelled is given back", || {
        scene.is_free("crossing")
    });
    throughout(Duration::from_millis(300), "and stays so", || {
        scene.is_free("crossing")
    });
    assert!(answered < 300, "some were cancelled");
    assert_eq!(host.end(), 0);
}

#[test]
fn what_is_no_message_is_answered_and_a_half_line_does_nothing() {
    let scene = Scene::new();
    let mut host = Host::new(&scene);
    let mut answers = |line: &[u8], id: Value, code: i64, said: &str| {
        host.say(line);
        let answer = host.line().expect("an answer");
        assert_eq!(answer["id"], id, "{answer}");
        assert_eq!(answer["error"]["code"], code, "{answer}");
        let message = answer["error"]["message"].as_str().expect("a message");
        assert!(message.contains(said), "{answer}");
    };
    for line in ["garbage\n", "\n{\"jsonrpc\":\n"] {
        answers(line.as_bytes(), Value::Null, -32700, "no JSON");
    }
    answers(b"\0\xff\xfe\n", Value::Null, -32700, "no JSON");
    for line in ["[1,2]\n", "{}\n", "\"text\"\n"] {
        answers(line.as_bytes(), Value::Null, -32600, "a message");
    }
    let long = "x".repeat(3 << 20);
    answers(
        format!("{long}\n").as_bytes(),
        Value::Null,
        -32600,
        "at most 1 MiB",
    );
    let long =
        format!("{{\"params\":{{\"id\":1,\"a\":\"{long}\"}},\"jsonrpc\":\"2.0\",\"id\":\"l\"}}\n");
    answers(long.as_bytes(), "l".into(), -32600, "at most 1 MiB");
    let call = r#"{"jsonrpc":"2.0","id":"a","method":"tools/call""#;
    answers(
        format!("{call}}}\n").as_bytes(),
        "a".into(),
        -32602,
        "params are missing",
    );
    answers(
        format!("{call},\"params\":{{}}}}\n").as_bytes(),
        "a".into(),
        -32602,
        "the name of the tool",
    );
    answers(
        format!("{call},\"params\":7}}\n").as_bytes(),
        "a".into(),
        -32602,
        "no object",
    );
    let handle = host.acquire("deploy");
    let id = host.ask("no/such", json!({}));
    assert_eq!(host.answer(id)["error"]["code"], -32601);
    let id = host.ask("tools/call", json!({ "name": "lock_steal" }));
    let answer = host.answer(id);
    assert_eq!(answer["error"]["code"], -32602, "{answer}");
    assert!(answer.to_string().contains("lock_steal"), "{answer}");
    let mut half = json!({ "jsonrpc": "2.0", "id": 99, "method": "tools/call" });
    half["params"] = json!({ "name": "lock_release", "arguments": { "handle": handle } });
    host.say(half.to_string().as_bytes());
    assert_eq!(host.end(), 0);
    assert!(
        is_refused(&scene, "deploy"),
        "the half line was not carried out"
    );
    // A client of something else.
    let mut other = scene.tenure(["mcp"]);
    let mut other = other
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = other.stdin.take().unwrap();
    stdin
        .write_all(b"{\"jsonrpc\":\"2.0\",\"method\":\"hello\"}\n")
        .unwrap();
    let said = Answer(other.wait_with_output().unwrap()).expect(2, "no request of the protocol");
    assert_eq!(
        said.stderr().lines().count(),
        1,
        "one sentence: {}",
        said.stderr()
    );
}

#[test]
fn the_end_of_stdin_ends_the_waits_and_a_request_to_end_does_too() {
    let scene = Scene::new();
    let held = scene.hold("deploy", ["-q"]);
    let wait = json!({ "name": "deploy", "wait_ms": 50_000 });
    let mut host = Host::new(&scene);
    host.begin("lock_acquire", &wait);
    host.begin("lock_wait", &wait);
    scene.until_queued("deploy", 1);
    let (code, took) = timed(|| host.end());
    assert_eq!(code, 0);
    assert!(took < Duration::from_secs(4), "{took:?}");
    scene.until_queued("deploy", 0);

    let mut host = Host::new(&scene);
    host.begin("lock_acquire", &wait);
    scene.until_queued("deploy", 1);
    // Ctrl-C and the end of a terminal are the host's to decide about.
    for ignored in [Signal::INT, Signal::HUP, Signal::QUIT] {
        send(host.process.id(), ignored);
    }
    throughout(Duration::from_millis(200), "it goes on", || {
        matches!(host.process.try_wait(), Ok(None))
    });
    send(host.process.id(), Signal::TERM);
    assert_eq!(host.code(), 0);
    scene.until_queued("deploy", 0);
    held.open();
}

#[test]
fn a_host_that_does_not_read_keeps_no_other_caller_and_does_not_keep_the_server() {
    let scene = Scene::new();
    for end in [Signal::TERM, Signal::KILL] {
        let mut host = Host::new(&scene);
        // More than a pipe takes.
        for _ in 0..400 {
            host.ask("tools/list", json!({}));
        }
        let id = host.begin("lock_acquire", &json!({ "name": "deploy" }));
        eventually("it goes on meanwhile", || {
            scene.check("deploy")["standing"] == "held"
        });
        if end == Signal::KILL {
            // The host reads at last: nothing was lost.
            let (granted, _) = host.result(id);
            let handle = granted["handle"].clone();
            host.data("lock_release", &json!({ "handle": handle }));
            assert_eq!(host.end(), 0);
        } else {
            send(host.process.id(), end);
            let (code, took) = timed(|| host.code());
            assert_eq!(code, 0);
            assert!(took < Duration::from_secs(8), "{took:?}");
            // Whether the host would have read of it is not known, so the hold stays; the next server gives it back.
            let mut host = Host::new(&scene);
            let seen = host.data("lock_check", &json!({ "name": "deploy" }));
            if seen["standing"] == "held" {
                let handle = seen["handle"].clone();
                host.data("lock_release", &json!({ "handle": handle }));
            }
            assert!(scene.is_free("deploy"));
            assert_eq!(host.end(), 0);
        }
    }
}

#[test]
fn the_death_of_the_program_frees_its_holds_though_a_child_keeps_the_pipe() {
    let scene = Scene::new();
    let program = scene.write(
        "host.py",
        r#"
import json, os, subprocess, sys, time
server = subprocess.Popen(["tenure", "mcp"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
meta = {"io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {}}
call = {"name": "lock_acquire", "arguments": {"name": "deploy"}, "_meta": meta}
server.stdin.write(json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call}).encode() + b"\n")
server.stdin.flush()
server.stdout.readline()
if os.fork() == 0:
    os.close(1)
    os.close(2)
    time.sleep(3)
    os._exit(0)
print(server.pid, flush=True)
os.kill(os.getpid(), 9)
"#,
    );
    let mut command = scene.program("python3");
    let mut host = command.arg(program).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(host.stdout.take().unwrap())
        .read_line(&mut line)
        .unwrap();
    host.wait().unwrap();
    let server: u32 = line.trim().parse().expect("its server");
    assert!(scene.is_free("deploy"), "at once");
    eventually("and the server ends", || !support::is_alive(server));
}

#[test]
fn holds_are_renewed_also_those_of_an_earlier_server() {
    let scene = Scene::new();
    let mut host = Host::new(&scene);
    let short = json!({ "name": "deploy", "ttl_ms": 900 });
    let handle = host.data("lock_acquire", &short)["handle"].clone();
    let renewed = |scene: &Scene| {
        // The instant of a renewal is shown by the second; the file has it whole.
        let file = std::fs::read(scene.locks().join("deploy.tenure")).unwrap();
        String::from_utf8_lossy(&file).into_owned()
    };
    let before = renewed(&scene);
    eventually("it is renewed", || renewed(&scene) != before);
    host.kill();
    let left = renewed(&scene);
    throughout(Duration::from_millis(500), "no server renews", || {
        renewed(&scene) == left
    });
    assert!(
        is_refused(&scene, "deploy"),
        "the program lives, and is seen"
    );
    let mut host = Host::new(&scene);
    eventually("the next server renews", || renewed(&scene) != left);
    host.data("lock_release", &json!({ "handle": handle }));
    assert!(scene.is_free("deploy"));
    assert_eq!(host.end(), 0);
}

#[test]
fn the_locks_are_those_of_the_flags_and_the_configuration_as_of_a_run() {
    let scene = Scene::new();
    let project = scene.path("project");
    std::fs::create_dir_all(&project).unwrap();
    std::fs::write(
        project.join("tenure.toml"),
        "dir = \"here\"\n[lock.gpu]\nmembers = [\"left\", \"right\"]\n",
    )
    .unwrap();
    let server = |words: &[&str]| {
        let mut command = scene.tenure(words);
        command.current_dir(&project).env_remove("TENURE_DIR");
        Host::start(&mut command, Era::Inline)
    };
    let mut host = server(&["mcp"]);
    let gpu = host.data("lock_acquire", &json!({ "name": "gpu" }));
    assert_eq!(gpu["member"], "left", "{gpu:#}");
    assert!(project.join("here/gpu.tenure").exists());
    // What the file says now counts for the next call.
    std::fs::write(project.join("tenure.toml"), "dir = \"there\"\n").unwrap();
    host.acquire("other");
    assert!(project.join("there/other.tenure").exists());
    std::fs::write(project.join("tenure.toml"), "dri = 1\n").unwrap();
    let (error, is_error) = host.refused("lock_check", &json!({ "name": "gpu" }));
    assert!(
        is_error && error["text"].as_str().unwrap().contains("dri"),
        "{error:#}"
    );
    assert_eq!(host.end(), 0);
    std::fs::write(project.join("tenure.toml"), "").unwrap();

    let flags = scene.path("flags");
    let mut host = server(&["--dir", flags.to_str().unwrap(), "mcp"]);
    host.acquire("a");
    assert!(flags.join("a.tenure").exists());
    assert_eq!(host.end(), 0);
    let words = [
        "mcp",
        "--dir",
        flags.to_str().unwrap(),
        "--profile",
        "session",
    ];
    let mut host = server(&words);
    let held = host.data("lock_acquire", &json!({ "name": "7" }));
    let handle = held["handle"].as_str().unwrap();
    let words = [
        "check",
        "7",
        "--dir",
        flags.to_str().unwrap(),
        "--profile",
        "session",
    ];
    let seen = scene
        .run([&words[..], &["--output", "json"]].concat())
        .json();
    let file = seen["data"]["lock_file"].as_str().expect("a record");
    let record = std::fs::read_to_string(file).unwrap();
    let record: Value = serde_json::from_str(&record).expect("a record that others read");
    assert_eq!(record["runId"], handle, "{record:#}");
    host.data("lock_release", &json!({ "handle": handle }));
    assert_eq!(host.end(), 0);

    for words in [
        &["mcp", "--profile", "sprint"][..],
        &["mcp", "--profile", "none-such"],
        &["mcp", "x"],
    ] {
        let said = scene.run(words).expect(2, &format!("{words:?}"));
        assert_eq!(said.stdout(), "");
        assert!(!said.stderr().is_empty());
    }
}

/// A one-shot shell between the two ends with the server, so it is not the program that holds.
#[test]
fn a_shell_that_only_starts_the_server_is_passed_over() {
    let scene = Scene::new();
    let mut shell = scene.program("sh");
    shell.args(["-c", "tenure mcp; true"]);
    let mut host = Host::start(&mut shell, Era::Inline);
    host.acquire("deploy");
    assert_eq!(scene.check("deploy")["holder"]["pid"], std::process::id());
    assert_eq!(host.end(), 0);
    assert!(is_refused(&scene, "deploy"));
}

#[test]
fn a_storm_of_servers_and_programs_that_are_killed_contention() {
    let is_long = std::env::var("TENURE_CONTENTION").is_ok_and(|how| how == "long");
    let scene = Scene::new();
    let mut command = scene.program("python3");
    command.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/mcp/storm.py"));
    command.args(if is_long { ["180", "16"] } else { ["8", "8"] });
    command
        .env("TENURE_BIN", TENURE)
        .env("TMPDIR", scene.root());
    let said = Answer(command.output().expect("it starts"));
    said.expect(0, "no second holder, no disorder, nothing stuck");
}

/// Codex names the thread of each call. Two threads of one host share the program and the server.
#[test]
fn agents_of_one_host_are_told_apart_where_the_host_names_them() {
    let scene = Scene::new();
    let mut host = Host::new(&scene);
    let of_thread = |host: &mut Host, thread: &str, tool: &str, arguments: Value| {
        let call = json!({ "name": tool, "arguments": arguments, "_meta": { "threadId": thread } });
        let id = host.ask("tools/call", call);
        host.result(id).0
    };
    let mine = of_thread(
        &mut host,
        "t-1",
        "lock_acquire",
        json!({ "name": "deploy" }),
    );
    let handle = mine["handle"].clone();
    assert_eq!(scene.check("deploy")["holder"]["agent"]["key"], "codex/t-1");
    // Nothing tempts an agent to give back what its sibling holds: neither a refusal nor a look.
    let call = json!({ "name": "lock_acquire", "arguments": { "name": "deploy", "wait_ms": 0 },
        "_meta": { "threadId": "t-2" } });
    let id = host.ask("tools/call", call);
    let said = host.answer(id)["result"].to_string();
    assert!(!said.contains(handle.as_str().unwrap()), "{said}");
    assert!(!said.contains("lock_release"), "{said}");
    for (thread, sees) in [("t-1", true), ("t-2", false)] {
        let seen = of_thread(&mut host, thread, "lock_check", json!({ "name": "deploy" }));
        let listed = of_thread(&mut host, thread, "lock_list", json!({}));
        for said in [seen, listed] {
            let shows = said.to_string().contains(handle.as_str().unwrap());
            assert_eq!(shows, sees, "{thread}: {said:#}");
        }
    }
    // The place in line that one has left is not the other's.
    let wait = json!({ "name": "deploy", "wait_ms": 50 });
    let first = of_thread(&mut host, "t-2", "lock_acquire", wait.clone());
    let second = of_thread(&mut host, "t-3", "lock_acquire", wait);
    let ticket = |refused: &Value| refused["ticket"].clone();
    assert_ne!(ticket(&first), ticket(&second), "{second:#}");
    let release = json!({ "handle": handle });
    let refused = of_thread(&mut host, "t-2", "lock_release", release.clone());
    assert_eq!(refused["code"], "NOT_OWNER", "{refused:#}");
    let released = of_thread(&mut host, "t-1", "lock_release", release);
    assert_eq!(released["name"], "deploy");
    let next = json!({ "name": "deploy", "ticket": ticket(&first), "wait_ms": 5000 });
    assert_eq!(
        of_thread(&mut host, "t-2", "lock_acquire", next)["status"],
        "acquired"
    );
    assert_eq!(host.end(), 0);
}

/// What hooks and this server take for an agent has one key, whichever host says it and however.
#[test]
fn hooks_and_the_server_call_an_agent_by_one_key() {
    let scene = Scene::new();
    let mut host = Host::new(&scene);
    // A hook of Claude Code is told call and agent, the server the call alone.
    let noted = |event: &str, call: &str, agent: Option<&str>| {
        let mut event = json!({
            "session_id": "1f3c", "cwd": scene.root(), "hook_event_name": event, "tool_use_id": call,
            "tool_name": "mcp__tenure__lock_acquire", "tool_input": { "name": "x" },
        });
        if let Some(agent) = agent {
            event["agent_id"] = agent.into();
        }
        let mut hook = scene.tenure(["hook", "claude"]);
        let hook = hook.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut hook = hook.expect("a hook");
        let mut stdin = hook.stdin.take().expect("its stdin");
        stdin.write_all(event.to_string().as_bytes()).unwrap();
        drop(stdin);
        let said = Answer(hook.wait_with_output().unwrap()).expect(0, "no decision");
        assert_eq!(said.stdout(), "");
    };
    noted("PreToolUse", "toolu_1", None);
    noted("PreToolUse", "toolu_2", Some("a6b4"));
    noted("PreToolUse", "toolu_3", None);
    noted("PostToolUse", "toolu_3", None);
    let claude = |call: &str| json!({ "claudecode/toolUseId": call });
    for (name, meta, key) in [
        ("a", claude("toolu_1"), json!("claude/1f3c")),
        ("b", claude("toolu_2"), json!("claude/1f3c/a6b4")),
        ("c", claude("toolu_3"), Value::Null),
        ("d", claude("toolu_none"), Value::Null),
        ("e", claude("../toolu"), Value::Null),
        ("f", json!({ "threadId": "t" }), json!("codex/t")),
        (
            "g",
            json!({ "threadId": "t", "sessionId": "t" }),
            json!("codex/t"),
        ),
        (
            "h",
            json!({ "threadId": "u", "sessionId": "t" }),
            json!("codex/t/u"),
        ),
        ("i", json!({}), Value::Null),
    ] {
        let arguments = json!({ "name": name });
        let taken = host.said_of(&meta, "lock_acquire", &arguments);
        let holder = &scene.check(name)["holder"];
        assert_eq!(holder["agent"]["key"], key, "{meta}");
        // Only the agent that has it is shown its handle. A host that names calls alone has several agents.
        let seen = host.said_of(&meta, "lock_check", &arguments);
        let is_shown = key.is_string() || name == "i";
        assert_eq!(seen["handle"].is_string(), is_shown, "{meta}: {seen:#}");
        let other = host.said_of(&claude("toolu_1"), "lock_check", &arguments);
        assert_eq!(
            other["handle"].is_string(),
            name == "a",
            "{meta}: {other:#}"
        );
        // A second call waits for nobody: the hold is the agent's own.
        let again = json!({ "name": name, "wait_ms": 0 });
        let again = host.said_of(&meta, "lock_acquire", &again);
        let code = if key.is_string() {
            "ALREADY_HELD"
        } else {
            "LOCK_HELD"
        };
        assert_eq!(again["code"], code, "{again:#}");
        let shown = if key.is_string() {
            &taken["handle"]
        } else {
            &Value::Null
        };
        assert_eq!(again["handle"], *shown, "{again:#}");
    }
    assert_eq!(host.end(), 0);
}

/// A model is shown the result as it is, and pays for each word.
#[test]
fn results_are_short_and_no_other_id_looks_like_a_handle() {
    let scene = Scene::new();
    let mut host = Host::new(&scene);
    let handle = host.acquire("deploy");
    let held = scene.hold("build", ["--why", "release 4.2"]);
    for (tool, arguments) in [
        ("lock_acquire", json!({ "name": "other" })),
        ("lock_acquire", json!({ "name": "build", "wait_ms": 0 })),
        ("lock_check", json!({ "name": "build" })),
        ("lock_check", json!({ "name": "deploy" })),
        ("lock_list", json!({})),
        ("lock_wait", json!({ "name": "build", "wait_ms": 0 })),
        ("lock_release", json!({ "handle": handle })),
        ("lock_acquire", json!({ "name": "" })),
    ] {
        let (shown, _) = host.call(tool, &arguments);
        let text = shown.to_string();
        assert!(text.len() < 700, "{tool} {arguments}: {text}");
        assert!(!text.contains("req_"), "{tool} {arguments}: {text}");
        assert!(!text.contains("request id"), "{tool} {arguments}: {text}");
    }
    held.open();
    assert_eq!(host.end(), 0);
}

/// An agent that edits a file by a tool has a lease of it. One that writes it by a command can take the same lease.
#[test]
fn the_lease_of_a_file_is_taken_and_found_by_its_path() {
    let scene = Scene::new();
    let mut host = Host::new(&scene);
    let file = scene.path("src/api.rs").display().to_string();
    let path = json!({ "path": file });
    let taken = host.data("lock_acquire", &path);
    scene
        .run(["acquire", "--path", &file, "-n"])
        .expect(4, "the same lock");
    let seen = host.data("lock_check", &path);
    assert_eq!(seen["handle"], taken["handle"], "{seen:#}");
    for (tool, wrong) in [
        ("lock_acquire", json!({ "path": file, "name": "x" })),
        ("lock_acquire", json!({ "path": "" })),
        ("lock_wait", json!({})),
        ("lock_check", json!({ "path": 7 })),
    ] {
        let (error, is_error) = host.refused(tool, &wrong);
        assert!(is_error && error["code"] == "BAD_ARGUMENTS", "{error:#}");
    }
    let (error, _) = host.refused("lock_wait", &json!({ "path": file, "wait_ms": 0 }));
    assert_eq!(error["code"], "LOCK_HELD", "{error:#}");
    host.data("lock_cancel", &path);
    host.data("lock_release", &json!({ "handle": taken["handle"] }));
    scene
        .run(["acquire", "--path", &file, "-n"])
        .expect(0, "it was given back");
    assert_eq!(host.end(), 0);
}

/// An agent's hold ends by its silence, though the host lives; each call of the agent is a sign of life.
#[test]
fn a_silent_agent_loses_its_hold_and_a_call_is_a_sign_of_life() {
    let scene = Scene::new();
    let acquire = |name: &str| {
        let words = ["acquire", name, "--as", "codex/t-1", "--ttl", "2s"];
        scene.run(words).expect(0, "a hold of the agent");
    };
    // The host names the agent of each call, or the server was told one.
    for is_named in [true, false] {
        let name = if is_named { "named" } else { "told" };
        acquire(name);
        let mut command = scene.tenure(["mcp"]);
        if !is_named {
            command.env("TENURE_AS", "codex/t-1");
        }
        let mut host = Host::start(&mut command, Era::Inline);
        for tool in [
            "lock_list",
            "lock_check",
            "lock_wait",
            "lock_acquire",
            "lock_list",
            "lock_list",
        ] {
            std::thread::sleep(Duration::from_millis(500));
            let arguments = match tool {
                "lock_list" => json!({}),
                "lock_check" => json!({ "name": name }),
                _ => json!({ "name": name, "wait_ms": 0 }),
            };
            let mut call = json!({ "name": tool, "arguments": arguments });
            if is_named {
                call["_meta"]["threadId"] = "t-1".into();
            }
            let id = host.ask("tools/call", call);
            host.result(id);
        }
        assert!(is_refused(&scene, name), "it was heard of");
        eventually("silence ends it", || scene.is_free(name));
        assert_eq!(host.end(), 0);
    }
}

/// An agent that runs a build is silent for minutes. A short ttl is meant for callers in containers.
#[test]
fn a_short_ttl_does_not_hand_the_lock_on_under_a_working_agent() {
    let scene = Scene::new();
    let mut host = Host::new(&scene);
    let call = json!({ "name": "lock_acquire", "arguments": { "name": "deploy", "ttl_ms": 300 },
        "_meta": { "threadId": "t-1" } });
    let id = host.ask("tools/call", call);
    let result = host.answer(id)["result"].clone();
    let text = result["content"][0]["text"].as_str().unwrap();
    for fact in ["no sign of life for 15m", "at the age of 2h"] {
        assert!(text.contains(fact), "{fact:?} in {text:?}");
    }
    throughout(Duration::from_secs(1), "it is held", || {
        is_refused(&scene, "deploy")
    });
    // A hold that names no agent is renewed, and says nothing of silence.
    let id = host.begin(
        "lock_acquire",
        &json!({ "name": "other", "ttl_ms": 60_000 }),
    );
    let result = host.answer(id)["result"].clone();
    assert!(!result.to_string().contains("sign of life"), "{result:#}");
    assert_eq!(host.end(), 0);
}

/// A request to end comes while a call stands before its grant. The protocol's library waits for two seconds; by then the
/// grant is written, and its thread has not come back with it, because another process keeps the audit. The end of
/// the server waits for it, and gives back what no agent knows.
#[cfg(target_os = "linux")]
#[test]
fn the_end_of_a_server_in_the_middle_of_a_grant_leaves_no_hold() {
    let scene = Scene::new();
    let audit = scene.path("audit");
    let words = ["--audit-dir", audit.to_str().unwrap()];
    let run = [&words[..], &["run", "deploy", "--", "true"]].concat();
    scene.run(run).expect(0, "its file");
    scene
        .run([&words[..], &["acquire", "other"]].concat())
        .expect(0, "the audit's file");
    let mcp = [&words[..], &["mcp"]].concat();
    let mut host = Host::start(&mut scene.tenure(mcp), Era::Inline);

    let file = scene.locks().join("deploy.tenure");
    let guard = std::fs::File::options().read(true).write(true).open(file);
    let guard = guard.unwrap();
    fcntl_lock(&guard, FlockOperation::LockExclusive).unwrap();
    let log = std::fs::File::open(audit.join("audit.jsonl")).unwrap();
    flock(&log, FlockOperation::LockExclusive).unwrap();
    host.begin(
        "lock_acquire",
        &json!({ "name": "deploy", "wait_ms": 20_000 }),
    );
    let threads = PathBuf::from(format!("/proc/{}/task", host.process.id()));
    eventually("the call has begun", || {
        let threads = std::fs::read_dir(&threads).unwrap().flatten();
        let mut names = threads.map(|thread| std::fs::read_to_string(thread.path().join("comm")));
        names.any(|name| name.is_ok_and(|name| name == "lock_acquire\n"))
    });
    send(host.process.id(), Signal::TERM);
    // A writer of the audit waits for a second. So the grant comes before the library's two seconds are over, and
    // what follows it behind them.
    throughout(
        Duration::from_millis(1_500),
        "it waits for the call",
        || matches!(host.process.try_wait(), Ok(None)),
    );
    fcntl_lock(&guard, FlockOperation::Unlock).unwrap();
    assert_eq!(host.code(), 0);
    flock(&log, FlockOperation::Unlock).unwrap();
    let mut said = String::new();
    std::io::Read::read_to_string(&mut host.stdout, &mut said).unwrap();
    assert!(scene.is_free("deploy"), "no hold is left");
    let log = std::fs::read_to_string(audit.join("audit.jsonl")).unwrap();
    let granted = |line: &str| line.contains("\"lock_acquired\"") && line.contains("\"mcp_");
    assert!(log.lines().any(granted), "the lock was granted: {log}");
    assert!(!said.contains("\"handle\""), "no agent is told: {said}");
}
