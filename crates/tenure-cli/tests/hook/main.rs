//! `tenure hook` as its hosts call it: events as Claude Code and Codex document them, answers that they take, commands
//! that stay what they were, and agents beside each other.
//!
//! Unix only, as the verb is.
#![cfg(unix)]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test says what it expects by failing"
)]

#[path = "../support/mod.rs"]
mod support;
#[cfg(all(feature = "etcd", feature = "mcp"))]
#[path = "../support_lines/mod.rs"]
mod support_lines;
#[cfg(all(feature = "etcd", feature = "mcp"))]
#[path = "../support_schemas/mod.rs"]
mod support_schemas;

mod agents;
mod commands;
mod events;
mod faults;
mod files;
mod folders;
mod golden;
#[cfg(feature = "etcd")]
mod servers;
mod shells;

use serde_json::{Value, json};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use support::Scene;

/// A repository with rules, in a scene.
pub(crate) struct Repository {
    pub(crate) scene: Scene,
}

/// What a host received.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Heard {
    pub(crate) text: String,
    pub(crate) code: i32,
    pub(crate) stderr: String,
}

impl Repository {
    pub(crate) fn with(rules: &str) -> Self {
        let scene = Scene::new();
        std::fs::create_dir_all(scene.path("w/.git")).expect("a folder");
        std::fs::write(scene.path("w/.git/HEAD"), "ref: refs/heads/main\n").expect("a file");
        std::fs::create_dir_all(scene.path("w/.git/objects")).expect("a folder");
        std::fs::create_dir_all(scene.path("w/.git/refs")).expect("a folder");
        let repository = Self { scene };
        repository.rules(rules);
        repository
    }

    pub(crate) fn rules(&self, rules: &str) {
        self.scene.write("w/tenure.toml", rules);
    }

    /// The person's own word that files of clones may lead to these servers.
    #[cfg(feature = "etcd")]
    pub(crate) fn allows(&self, store: &str) {
        let own = self.scene.path(".config/tenure");
        std::fs::create_dir_all(&own).expect("a folder");
        let allows = format!("allow = [{store:?}]\n");
        std::fs::write(own.join("tenure.toml"), allows).expect("the person's own file");
    }

    pub(crate) fn root(&self) -> PathBuf {
        self.scene.path("w").canonicalize().expect("a path")
    }

    /// The program as a host starts it.
    pub(crate) fn hook(&self, host: &str) -> Command {
        let mut command = self.scene.tenure(["hook", host]);
        command.current_dir(self.root());
        command
    }

    /// Sends an event, as bytes.
    pub(crate) fn send(&self, host: &str, event: &[u8]) -> Heard {
        heard(&mut self.hook(host), event)
    }

    /// Sends an event.
    pub(crate) fn ask(&self, host: &str, event: &Value) -> Heard {
        self.send(host, event.to_string().as_bytes())
    }
}

/// What a host receives that starts this command with an event.
pub(crate) fn heard(command: &mut Command, event: &[u8]) -> Heard {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("a hook");
    // A hook need not read all of it.
    let _ = child.stdin.take().expect("a stdin").write_all(event);
    let output = child.wait_with_output().expect("an end");
    Heard {
        text: String::from_utf8(output.stdout).expect("text"),
        code: output.status.code().expect("a code"),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

impl Heard {
    /// The hook had nothing to say.
    pub(crate) fn nothing(&self) -> bool {
        self.code == 0 && self.text.is_empty() && self.stderr.is_empty()
    }

    pub(crate) fn json(&self) -> Value {
        assert_eq!((self.code, self.stderr.as_str()), (0, ""), "{self:?}");
        let value =
            serde_json::from_str(&self.text).unwrap_or_else(|error| panic!("{error}: {self:?}"));
        is_taken(&value);
        value
    }

    pub(crate) fn reason(&self) -> String {
        let value = self.json();
        let specific = &value["hookSpecificOutput"];
        assert_eq!(specific["permissionDecision"], "deny", "{value}");
        by_name(&text(&specific["permissionDecisionReason"]))
    }

    pub(crate) fn message(&self) -> String {
        text(&self.json()["systemMessage"])
    }

    /// The command that the host would run instead.
    pub(crate) fn command(&self) -> String {
        let input = &self.json()["hookSpecificOutput"]["updatedInput"];
        by_name(&text(&input["command"]))
    }
}

/// A text with the program's name in place of its whole path, which is the test's own.
pub(crate) fn by_name(text: &str) -> String {
    text.replace(support::TENURE, "tenure")
}

fn text(value: &Value) -> String {
    value
        .as_str()
        .unwrap_or_else(|| panic!("{value}"))
        .to_owned()
}

/// What both hosts take. Codex takes no field that it does not know, no approval, and no refusal without a reason
/// (`codex-rs/hooks`, read on 2026-11-23).
fn is_taken(answer: &Value) {
    let fields = |value: &Value, known: &[&str]| {
        for key in value.as_object().expect("an object").keys() {
            assert!(known.contains(&key.as_str()), "{key} in {answer}");
        }
    };
    fields(answer, &["hookSpecificOutput", "systemMessage"]);
    if let Some(specific) = answer.get("hookSpecificOutput") {
        fields(
            specific,
            &[
                "hookEventName",
                "permissionDecision",
                "permissionDecisionReason",
                "updatedInput",
                "additionalContext",
            ],
        );
        match specific.get("permissionDecision").and_then(Value::as_str) {
            Some("deny") => {
                assert!(
                    !text(&specific["permissionDecisionReason"])
                        .trim()
                        .is_empty()
                );
                assert!(specific.get("updatedInput").is_none(), "{answer}");
            }
            // With `ask` Codex runs the call; no test sends it there.
            Some("allow" | "ask") => assert!(
                specific["updatedInput"].is_object(),
                "an approval: {answer}"
            ),
            Some(other) => panic!("{other}: {answer}"),
            None => assert!(
                specific.get("permissionDecisionReason").is_none(),
                "{answer}"
            ),
        }
    }
}

/// A call of Claude Code's, before or after.
#[allow(
    clippy::needless_pass_by_value,
    reason = "the callers write it down where they call"
)]
pub(crate) fn claude(name: &str, folder: &Path, id: &str, tool: &str, input: Value) -> Value {
    json!({
        "session_id": "1f3c",
        "transcript_path": "/home/u/.claude/projects/w/1f3c.jsonl",
        "cwd": folder,
        "permission_mode": "default",
        "hook_event_name": name,
        "tool_name": tool,
        "tool_input": input,
        "tool_use_id": id,
    })
}

/// A call of Codex's.
pub(crate) fn codex(name: &str, folder: &Path, id: &str, tool: &str, command: &str) -> Value {
    json!({
        "session_id": "0199a",
        "turn_id": "turn-1",
        "transcript_path": null,
        "cwd": folder,
        "hook_event_name": name,
        "model": "gpt-5.5",
        "permission_mode": "default",
        "tool_name": tool,
        "tool_input": {"command": command},
        "tool_use_id": id,
    })
}

/// A call of Claude Code's shell.
pub(crate) fn bash(repository: &Repository, id: &str, command: &str) -> Value {
    let input = json!({"command": command});
    claude("PreToolUse", &repository.root(), id, "Bash", input)
}
