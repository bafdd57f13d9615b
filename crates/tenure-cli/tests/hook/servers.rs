//! An agent's day with its locks on servers: an etcd that the test starts, hooks, and the server of the protocol.

#[path = "../../../tenure/tests/etcd/server.rs"]
#[allow(dead_code, reason = "the library's tests use the rest of it")]
mod server;

use super::support::{Gate, Started, answer, eventually, throughout};
use super::{Heard, Repository, bash, claude, heard};
use serde_json::{Value, json};
use server::Server;
use std::process::Command;
use std::time::Duration;

/// A repository whose locks are on a server.
struct Day {
    repository: Repository,
    /// Serves until the day is dropped.
    #[cfg_attr(
        not(feature = "mcp"),
        allow(dead_code, reason = "only the tests of mcp stop it")
    )]
    server: Server,
}

impl Day {
    fn with(rules: &str) -> Self {
        let server = Server::start();
        let store = format!("store = \"etcd://{}/day\"\n", server.endpoint());
        let repository = Repository::with(&format!("{store}{rules}"));
        repository.allows(&format!("etcd://{}", server.endpoint()));
        Self { repository, server }
    }

    /// A program as an agent's shell starts it: the configuration alone says where the locks are.
    fn program(&self, program: &str) -> Command {
        let mut command = self.repository.scene.program(program);
        command
            .current_dir(self.repository.root())
            .env_remove("TENURE_DIR");
        command
    }

    fn ask(&self, event: &Value) -> Heard {
        let mut hook = self.program("tenure");
        hook.args(["hook", "claude"]);
        heard(&mut hook, event.to_string().as_bytes())
    }

    /// An agent of the session is about to edit a file.
    fn edit(&self, agent: Option<&str>, file: &str) -> Heard {
        let root = self.repository.root();
        let input = json!({"file_path": root.join(file), "old_string": "a", "new_string": "b"});
        self.ask(&by(agent, claude("PreToolUse", &root, "", "Edit", input)))
    }

    /// Something else is seen of an agent.
    fn sees(&self, name: &str, agent: Option<&str>) {
        let event = json!({
            "session_id": "1f3c", "cwd": self.repository.root(), "hook_event_name": name, "reason": "other",
        });
        let heard = self.ask(&by(agent, event));
        assert!(heard.nothing(), "{name}: {heard:?}");
    }

    /// The paths that are leased, each with the agent that holds it.
    fn leases(&self) -> Vec<(String, String)> {
        let list = answer(self.program("tenure").args(["list", "--output", "json"])).json();
        let locks = list["data"]["locks"].as_array().expect("locks").clone();
        let held = locks.iter().filter(|lock| lock["standing"] == "held");
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        held.filter(|lock| lock["path"].is_string())
            .map(|lock| (text(&lock["path"]), text(&lock["holder"]["agent"]["key"])))
            .collect()
    }

    fn check(&self, name: &str) -> Value {
        let mut check = self.program("tenure");
        let said = answer(check.args(["check", name, "--output", "json"])).json();
        let facts = [&said["data"], &said["error"]["context"]];
        let known = facts.into_iter().find(|facts| facts.is_object());
        known.unwrap_or_else(|| panic!("{said:#}")).clone()
    }

    fn is_free(&self, name: &str) -> bool {
        self.check(name)["available"] == true
    }
}

fn by(agent: Option<&str>, mut event: Value) -> Value {
    if let Some(agent) = agent {
        event["agent_id"] = agent.into();
    }
    event
}

fn lease(path: &str, agent: &str) -> (String, String) {
    (path.to_owned(), agent.to_owned())
}

#[test]
fn commands_that_a_hook_rewrites_run_one_at_a_time_on_servers() {
    let day = Day::with("[[agent.command]]\nmatch = [\"make\"]\nlock = \"build\"\n");
    let gate = Gate::new(&day.repository.scene, "make");
    let bin = day.repository.scene.path("bin");
    std::fs::create_dir_all(&bin).expect("a folder");
    let work = format!("#!/bin/sh\necho \"$1 $TENURE_AS\"\n{}\n", gate.script(""));
    day.repository.scene.script("bin/make", &work);
    let start = |agent: &str, target: &str| {
        let event = bash(&day.repository, target, &format!("make {target}"));
        let line = day.ask(&by(Some(agent), event)).command();
        let rewritten = format!("tenure run build --as claude/1f3c/{agent} ");
        assert!(line.starts_with(&rewritten), "{line}");
        let mut shell = day.program("sh");
        let path = format!("{}:$PATH", bin.display());
        shell.args(["-c", &format!("PATH={path}; {line}")]);
        Started::piped(&mut shell)
    };
    let first = start("a", "one");
    gate.entered();
    let held = day.check("build");
    assert_eq!(held["holder"]["agent"]["key"], "claude/1f3c/a", "{held:#}");
    let second = start("b", "two");
    eventually("the second command waits", || {
        let seen = day.check("build");
        seen["queue"][0]["agent"]["key"] == "claude/1f3c/b"
    });
    gate.open();
    let said = |run: Started| run.finish().expect(0, "a rewritten command").stdout();
    assert_eq!(said(first), "one claude/1f3c/a\n");
    assert_eq!(said(second), "two claude/1f3c/b\n");
    assert!(day.is_free("build"));
}

#[test]
fn a_lease_on_servers_outlives_its_hook_and_ends_with_its_agent_alone() {
    let day = Day::with("[[agent.path]]\nmatch = [\"src/**\"]\n");
    let (a, b) = ("claude/1f3c/a", "claude/1f3c/b");
    assert!(day.edit(Some("a"), "src/api.rs").nothing());
    assert!(day.edit(Some("b"), "src/own.rs").nothing());
    assert!(day.edit(None, "src/main.rs").nothing());
    let mut all = day.leases();
    all.sort();
    let expected = [
        lease("src/api.rs", a),
        lease("src/main.rs", "claude/1f3c"),
        lease("src/own.rs", b),
    ];
    assert_eq!(all, expected, "the processes of the hooks have ended");
    assert!(day.edit(Some("a"), "src/api.rs").nothing(), "it is its own");
    let reason = day.edit(Some("b"), "src/api.rs").reason();
    for fact in [
        "src/api.rs is leased by claude 1f3c/a",
        "your place 1 is kept",
    ] {
        assert!(reason.contains(fact), "{fact:?} in {reason:?}");
    }

    day.sees("SubagentStop", Some("b"));
    let mut left = day.leases();
    left.sort();
    assert_eq!(left, expected[..2], "a sibling's end frees its own");
    day.sees("SubagentStop", Some("a"));
    assert_eq!(day.leases(), [lease("src/main.rs", "claude/1f3c")]);
    assert!(day.edit(Some("b"), "src/api.rs").nothing());
    day.sees("SessionEnd", None);
    assert_eq!(day.leases(), [], "the session speaks for all its agents");
}

#[test]
fn a_lease_on_servers_ends_by_silence_and_every_sign_puts_it_off() {
    let day = Day::with("[[agent.path]]\nmatch = [\"src/**\"]\nsilence = \"4s\"\n");
    assert!(day.edit(Some("a"), "src/api.rs").nothing());
    let root = day.repository.root();
    // Twice as long as the silence that ends it.
    throughout(
        Duration::from_secs(8),
        "an agent that is seen keeps its lease",
        || {
            let input = json!({"command": "ls"});
            let event = by(Some("a"), claude("PostToolUse", &root, "t", "Bash", input));
            assert!(day.ask(&event).nothing());
            day.leases() == [lease("src/api.rs", "claude/1f3c/a")]
        },
    );
    eventually("the sibling gets it, for the agent is silent", || {
        day.edit(Some("b"), "src/api.rs").nothing()
    });
    assert_eq!(day.leases(), [lease("src/api.rs", "claude/1f3c/b")]);
}

/// The host is a process of its own, which starts the hook and dies. Over a network that proves nothing.
#[test]
fn a_lease_on_servers_outlasts_its_host_until_it_is_silent() {
    // Longer than two calls that wait two seconds each, on a busy machine, too.
    let day = Day::with("[[agent.path]]\nmatch = [\"src/**\"]\nsilence = \"9s\"\n");
    let root = day.repository.root();
    let input = json!({"file_path": root.join("src/api.rs")});
    let event = claude("PreToolUse", &root, "", "Edit", input);
    let script = "import subprocess, sys\n\
         said = subprocess.run(['tenure', 'hook', 'claude'], input=sys.argv[1], text=True, stdout=subprocess.PIPE)\n\
         print(said.returncode, said.stdout, flush=True)\n\
         sys.stdin.read()\n";
    let mut host = day.program("python3");
    host.args(["-c", script, &event.to_string()])
        .stdin(std::process::Stdio::piped());
    let host = Started::piped(&mut host);
    eventually("the lease is taken", || day.leases().len() == 1);
    assert!(
        !day.edit(Some("b"), "src/api.rs").nothing(),
        "the host lives"
    );
    host.signal(rustix::process::Signal::KILL);
    drop(host);
    assert!(
        !day.edit(Some("b"), "src/api.rs").nothing(),
        "its lease runs"
    );
    eventually("the lease ends by silence", || {
        day.edit(Some("b"), "src/api.rs").nothing()
    });
    assert_eq!(day.leases(), [lease("src/api.rs", "claude/1f3c/b")]);
}

#[cfg(feature = "mcp")]
mod protocol {
    use super::Day;
    use crate::support::timed;
    use crate::support_lines::host::{Era, Host};
    use serde_json::{Value, json};
    use std::time::Duration;

    fn start(day: &Day) -> Host {
        let mut command = day.program("tenure");
        Host::start(command.arg("mcp"), Era::Inline)
    }

    /// A call that names a thread of the host, as Codex does.
    fn of_thread(host: &mut Host, thread: &str, tool: &str, arguments: &Value) -> Value {
        let call = json!({ "name": tool, "arguments": arguments, "_meta": { "threadId": thread } });
        let id = host.ask("tools/call", call);
        host.result(id).0
    }

    #[test]
    fn a_hold_on_servers_survives_its_killed_server_and_is_released_by_its_own_agent() {
        let day = Day::with("");
        let mut host = start(&day);
        let deploy = json!({ "name": "deploy" });
        let taken = of_thread(&mut host, "t-1", "lock_acquire", &deploy);
        let handle = taken["handle"].clone();
        let unnamed = host.acquire("other");
        host.kill();
        assert!(!day.is_free("deploy"), "the program lives");
        assert!(!day.is_free("other"));

        let mut host = start(&day);
        let seen = of_thread(&mut host, "t-1", "lock_check", &deploy);
        assert_eq!(seen["mine"], true, "{seen:#}");
        assert_eq!(seen["handle"], handle);
        let release = json!({ "handle": handle });
        let refused = of_thread(&mut host, "t-2", "lock_release", &release);
        assert_eq!(refused["code"], "NOT_OWNER", "{refused:#}");
        assert!(!day.is_free("deploy"), "a sibling has released nothing");
        let released = of_thread(&mut host, "t-1", "lock_release", &release);
        assert_eq!(released["name"], "deploy", "{released:#}");
        host.data("lock_release", &json!({ "handle": unnamed }));
        assert!(day.is_free("deploy") && day.is_free("other"));
        assert_eq!(host.end(), 0);
    }

    /// The sign of life before a call asks the servers as well, and the two share the time.
    #[test]
    fn servers_that_are_stopped_keep_no_call_longer_than_five_seconds() {
        let day = Day::with("");
        let mut host = start(&day);
        let handle = host.acquire("kept");
        day.server.stop();
        let name = json!({ "name": "deploy", "wait_ms": 0 });
        let mut calls = Vec::new();
        for thread in [None, Some("t-1")] {
            for (tool, arguments) in [
                ("lock_acquire", name.clone()),
                ("lock_release", json!({ "handle": handle })),
                ("lock_check", json!({ "name": "deploy" })),
                ("lock_list", json!({})),
                ("lock_wait", name.clone()),
                ("lock_cancel", json!({ "name": "deploy" })),
            ] {
                let mut call = json!({ "name": tool, "arguments": arguments });
                if let Some(thread) = thread {
                    call["_meta"]["threadId"] = thread.into();
                }
                calls.push(host.ask("tools/call", call));
            }
        }
        // All at once: each has a thread of its own.
        let ((), took) = timed(|| {
            for _ in 0..calls.len() {
                let answer = host.line().expect("an answer");
                let said = &answer["result"]["structuredContent"];
                assert_eq!(said["code"], "STORE_UNREACHABLE", "{answer:#}");
            }
        });
        assert!(took < Duration::from_millis(5_500), "{took:?}");
        day.server.go_on();
        host.data("lock_release", &json!({ "handle": handle }));
        assert!(day.is_free("kept"));
        assert_eq!(host.end(), 0);
    }
}
