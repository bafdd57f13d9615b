//! What happens where tenure itself cannot do its part: the rule says it, and the host always gets an answer.

use super::support::timed;
use super::{Heard, Repository, bash, claude, codex, heard};
use serde_json::json;
use std::process::Stdio;
use std::time::Duration;

const PATHS: &str = "[[agent.path]]\nmatch = [\"a/**\"]\n";
const COMMANDS: &str = "[[agent.command]]\nmatch = [\"make\"]\nlock = \"b\"\n";

fn edit(repository: &Repository, file: &str) -> Heard {
    let input = json!({"file_path": repository.root().join(file), "content": "x"});
    repository.ask(
        "claude",
        &claude("PreToolUse", &repository.root(), "", "Write", input),
    )
}

#[test]
fn a_broken_configuration_is_named_by_its_line() {
    let repository = Repository::with(&format!("{COMMANDS}slot = 2\n"));
    let message = repository
        .ask("claude", &bash(&repository, "1", "make"))
        .message();
    assert!(message.contains("line 4, slot"), "{message}");
    assert!(message.contains("goes on without its lock"), "{message}");

    repository.rules(&format!("{COMMANDS}on_error = \"closed\"\nslot = 2\n"));
    let reason = repository
        .ask("claude", &bash(&repository, "2", "make"))
        .reason();
    assert!(reason.contains("line 5, slot"), "{reason}");

    repository.rules(&format!("{PATHS}acros = \"repo\"\n"));
    let reason = edit(&repository, "a/b").reason();
    assert!(reason.contains("line 3, acros"), "{reason}");
    let mending = edit(&repository, "tenure.toml");
    assert!(mending.message().contains("line 3, acros"), "{mending:?}");
    repository.rules(&format!("{PATHS}on_error = \"open\"\nacros = \"repo\"\n"));
    assert!(edit(&repository, "a/b").message().contains("line 4, acros"));
}

/// Someone breaks `tenure.toml` while agents work. No edit goes on unseen, and an agent can mend the file.
#[test]
fn while_the_rules_cannot_be_read_no_file_is_edited_but_theirs() {
    let broken = format!("{COMMANDS}[lock.x\n");
    let repository = Repository::with(&broken);
    let reason = edit(&repository, "a/b").reason();
    for word in ["w/tenure.toml", "line 4", "An edit of ", " alone passes"] {
        assert!(reason.contains(word), "{word}: {reason}");
    }
    let message = repository
        .ask("claude", &bash(&repository, "", "make"))
        .message();
    assert!(message.contains("goes on without its lock"), "{message}");

    let mending = edit(&repository, "tenure.toml").message();
    assert!(mending.contains("line 4"), "{mending}");
    std::os::unix::fs::symlink("tenure.toml", repository.root().join("link")).expect("a link");
    assert!(edit(&repository, "link").message().contains("line 4"));
    // A patch of that file passes, and none that takes others with it, in whatever order.
    let patch = |files: &[&str]| {
        let parts: Vec<String> = files
            .iter()
            .map(|file| format!("*** Update File: {file}\n@@\n-a\n+b\n"))
            .collect();
        let patch = format!("*** Begin Patch\n{}*** End Patch\n", parts.concat());
        let event = codex("PreToolUse", &repository.root(), "", "apply_patch", &patch);
        repository.ask("codex", &event)
    };
    assert!(patch(&["tenure.toml"]).message().contains("line 4"));
    for files in [["tenure.toml", "a/b"], ["a/b", "tenure.toml"]] {
        let reason = patch(&files).reason();
        assert!(reason.contains("line 4"), "{files:?}: {reason}");
    }

    // The rules all say that a fault opens them.
    repository.rules(&format!("{PATHS}on_error = \"open\"\n[lock.x\n"));
    assert!(edit(&repository, "a/b").message().contains("goes on"));
    // The file is mended.
    repository.rules("");
    assert!(edit(&repository, "a/b").nothing());
}

/// What cannot be read at all says nothing either.
#[test]
fn a_configuration_that_cannot_be_read_closes_files_and_opens_commands() {
    let repository = Repository::with("");
    let file = repository.root().join("tenure.toml");
    std::fs::write(&file, b"\xff\xfe\n").expect("no text");
    let reason = edit(&repository, "a/b").reason();
    assert!(reason.contains("w/tenure.toml"), "{reason}");
    assert!(!edit(&repository, "tenure.toml").message().is_empty());
    std::fs::write(&file, "#".repeat(2 << 20)).expect("a long file");
    let reason = edit(&repository, "a/b").reason();
    assert!(reason.contains("w/tenure.toml: it is larger"), "{reason}");
    let message = repository
        .ask("claude", &bash(&repository, "", "make"))
        .message();
    assert!(message.contains("w/tenure.toml"), "{message}");

    // A variable names a file that is not there: writing it is what mends that.
    rustix::fs::unlink(&file).expect("nothing");
    let missing = repository.root().join("missing.toml");
    let ask = |file: &std::path::Path| {
        let input = json!({"file_path": file, "content": "x"});
        let event = claude("PreToolUse", &repository.root(), "", "Write", input);
        let mut hook = repository.hook("claude");
        hook.env("TENURE_CONFIG", &missing);
        heard(&mut hook, event.to_string().as_bytes())
    };
    assert!(ask(&file).reason().contains("missing.toml"));
    assert!(ask(&missing).message().contains("missing.toml"));
}

/// A hostile neighbour plants a file above the project: it stops no edit, and closes nothing.
#[test]
fn another_users_configuration_closes_no_file() {
    if !super::support::is_root() {
        return;
    }
    let repository = Repository::with("");
    rustix::fs::unlink(repository.root().join("tenure.toml")).expect("no rules");
    let planted = repository
        .scene
        .write("tenure.toml", &format!("{PATHS}[lock.x\n"));
    std::os::unix::fs::chown(&planted, Some(12_345), None).expect("another user's");
    let input = json!({"file_path": repository.root().join("a/b"), "content": "x"});
    let event = claude("PreToolUse", &repository.root(), "", "Write", input);
    let mut hook = repository.hook("claude");
    hook.env_remove("TENURE_DIR");
    let heard = heard(&mut hook, event.to_string().as_bytes());
    assert!(heard.nothing() || !heard.message().is_empty(), "{heard:?}");
}

/// The host calls the hook in one folder, and the agent works in another.
#[test]
fn an_event_that_cannot_be_read_meets_the_rules_of_its_own_folder() {
    let repository = Repository::with(PATHS);
    let elsewhere = repository.scene.path("elsewhere");
    std::fs::create_dir_all(&elsewhere).expect("a folder");
    let send = |at: &std::path::Path, event: &str| {
        let mut hook = repository.hook("claude");
        hook.current_dir(at);
        heard(&mut hook, event.as_bytes())
    };
    let root = repository.root();
    let long = "x".repeat(2 << 20);
    let events = |cwd: &std::path::Path| {
        let input = json!({"content": long});
        let too_long = claude("PreToolUse", cwd, "", "Write", input).to_string();
        let mut no_session = claude("PreToolUse", cwd, "", "Write", json!({"file_path": "a/b"}));
        no_session["session_id"] = "".into();
        let mut bad_key = no_session.clone();
        bad_key["session_id"] = "a b".into();
        let no_file = claude("PreToolUse", cwd, "", "Write", json!({}));
        let cut = too_long.get(..2_000).unwrap_or_default().to_owned();
        [
            too_long,
            cut,
            no_session.to_string(),
            bad_key.to_string(),
            no_file.to_string(),
        ]
    };
    for event in events(&root) {
        let heard = send(&elsewhere, &event);
        let shown = event.get(..300).unwrap_or(&event);
        assert!(!heard.reason().is_empty(), "{shown}");
    }
    for event in events(&elsewhere) {
        let heard = send(&root, &event);
        let shown = event.get(..300).unwrap_or(&event);
        assert!(!heard.message().is_empty(), "{shown}");
    }
}

#[test]
fn an_event_that_cannot_be_read_meets_the_strictest_rule() {
    let repository = Repository::with(COMMANDS);
    let long = json!({"hook_event_name": "PreToolUse", "tool_name": "Write", "session_id": "s",
        "tool_input": {"file_path": "/x", "content": "x".repeat(2 << 20)}})
    .to_string();
    let cases: [(&[u8], &str); 5] = [
        (b"", "no JSON"),
        (b"\xff\xfe{", "no JSON"),
        (b"{\"hook_event_name\":", "no JSON"),
        (b"{\"session_id\":\"s\"}", "no hook_event_name"),
        (long.as_bytes(), "longer than 1048576 bytes"),
    ];
    for (bytes, word) in cases {
        let message = repository.send("claude", bytes).message();
        assert!(message.contains(word), "{message}");
    }
    repository.rules(PATHS);
    for (bytes, word) in cases {
        let reason = repository.send("claude", bytes).reason();
        assert!(reason.contains(word), "{reason}");
    }
    let after = json!({"hook_event_name": "PostToolUse", "tool_name": "Bash", "session_id": "s",
        "tool_response": "x".repeat(2 << 20)});
    assert!(
        repository.ask("claude", &after).nothing(),
        "it asks for nothing"
    );
}

#[test]
fn a_session_that_makes_no_key_is_a_fault_too() {
    let repository = Repository::with(PATHS);
    let input = json!({"file_path": repository.root().join("a/b"), "content": "x"});
    let mut event = claude("PreToolUse", &repository.root(), "", "Write", input);
    event["session_id"] = "a; rm -rf /".into();
    let reason = repository.ask("claude", &event).reason();
    assert!(reason.contains("session_id"), "{reason}");
}

#[test]
fn a_place_that_cannot_be_used_is_the_rules_business() {
    let repository = Repository::with(PATHS);
    // A file where the folder of the locks should be.
    std::fs::write(repository.scene.locks(), "x").expect("a file");
    let reason = edit(&repository, "a/b").reason();
    assert!(reason.contains("on_error = \"closed\""), "{reason}");
    repository.rules(&format!("{PATHS}on_error = \"open\"\n"));
    let message = edit(&repository, "a/b").message();
    assert!(message.contains("goes on without its lock"), "{message}");
}

#[test]
fn the_answer_comes_within_three_seconds_whatever_hangs() {
    let repository = Repository::with(PATHS);
    // A host that never closes the stdin of its hook.
    let mut hook = repository.hook("claude");
    hook.stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = hook.spawn().expect("a hook");
    let stdin = child.stdin.take();
    let (output, took) = timed(|| child.wait_with_output().expect("an end"));
    drop(stdin);
    assert!(took < Duration::from_secs(4), "it took {took:?}");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        text.contains("systemMessage") && text.contains("3 seconds"),
        "{text}"
    );

    // A lock whose guard another process keeps: the file is locked as a whole.
    assert!(edit(&repository, "a/b").nothing());
    let lock = std::fs::read_dir(repository.scene.locks()).expect("locks");
    let mut names = lock.flatten().map(|entry| entry.path());
    let file = names
        .find(|path| path.to_string_lossy().contains("path="))
        .expect("a lock");
    let stuck = std::fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open(file)
        .expect("the lock");
    rustix::fs::fcntl_lock(&stuck, rustix::fs::FlockOperation::LockExclusive).expect("all of it");
    let input = json!({"file_path": repository.root().join("a/b"), "content": "x"});
    let mut event = claude("PreToolUse", &repository.root(), "", "Write", input);
    event["session_id"] = "other".into();
    let bytes = event.to_string();
    let (late, took) = timed(|| heard(&mut repository.hook("claude"), bytes.as_bytes()));
    assert!(took < Duration::from_secs(4), "it took {took:?}");
    assert!(!late.reason().is_empty(), "{late:?}");
}

/// Each file that a hook reads or writes, with a pipe in its place that nobody uses.
#[test]
fn no_pipe_in_place_of_a_file_keeps_the_hook() {
    let repository = Repository::with(&format!("{COMMANDS}{PATHS}"));
    let pipe = |path: &std::path::Path| {
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        rustix::fs::mkfifoat(rustix::fs::CWD, path, rustix::fs::Mode::RWXU).expect("a pipe");
    };
    let files = [
        ".local/state/tenure/agents/claude-1f3c.jsonl",
        ".local/state/tenure/agents/probe-claude",
        "w/.git/commondir",
        "w/.git/config",
        ".config/tenure/tenure.toml",
        ".claude/settings.json",
        "w/.claude/settings.local.json",
    ];
    for file in files {
        pipe(&repository.scene.path(file));
    }
    let event = bash(&repository, "t", "make");
    let (heard_one, took) = timed(|| repository.ask("claude", &event));
    assert!(
        heard_one.command().contains("tenure run b "),
        "{heard_one:?}"
    );
    assert!(took < Duration::from_secs(2), "{took:?}");
    assert!(edit(&repository, "a/b").nothing());
    let probed = repository.ask(
        "claude",
        &bash(&repository, "p", "tenure agent probe claude"),
    );
    assert!(probed.command().starts_with("TENURE_AGENT_PROBE="));
    // A configuration that a variable names.
    let named = repository.scene.path("named.toml");
    pipe(&named);
    let mut hook = repository.hook("claude");
    let (said, took) = timed(|| {
        let event = bash(&repository, "u", "make").to_string();
        heard(hook.env("TENURE_CONFIG", &named), event.as_bytes())
    });
    assert!(said.message().contains("no regular file"), "{said:?}");
    assert!(took < Duration::from_secs(2), "{took:?}");
}

#[test]
fn a_host_that_reads_no_answer_keeps_nothing_waiting() {
    let repository = Repository::with(COMMANDS);
    let mut hook = repository.hook("claude");
    hook.stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = hook.spawn().expect("a hook");
    drop(child.stdout.take());
    let event = bash(&repository, "t", "make").to_string();
    std::io::Write::write_all(&mut child.stdin.take().expect("a stdin"), event.as_bytes())
        .expect("read");
    let (status, took) = timed(|| child.wait().expect("an end"));
    assert!(
        status.success() && took < Duration::from_secs(4),
        "{status} after {took:?}"
    );
}

#[test]
fn an_unknown_host_is_refused_in_one_sentence() {
    let repository = Repository::with("");
    let heard = heard(&mut repository.hook("cursor"), b"{}");
    assert_eq!((heard.code, heard.text.as_str()), (2, ""));
    assert!(heard.stderr.contains("cursor"), "{heard:?}");
    let format = repository
        .hook("claude")
        .env("TENURE_OUTPUT", "xml")
        .status();
    assert!(
        format.expect("a hook").success(),
        "the environment's format is not the hosts'"
    );
}

/// Servers that are away: an edit is refused and a command goes on, each with what is known; the end of an agent says
/// what becomes of its holds.
#[cfg(feature = "etcd")]
#[test]
fn etcd_that_is_away_refuses_edits_and_names_itself() {
    // Takes no connection: the port is bound, and nothing listens.
    let socket = std::net::UdpSocket::bind("127.0.0.1:0").expect("a port");
    let port = socket.local_addr().expect("its number").port();
    let store = format!("etcd://127.0.0.1:{port}/day");
    let repository = Repository::with(&format!(
        "store = \"{store}\"\n[[agent.command]]\nmatch = [\"make\"]\nlock = \"build\"\n\
         [[agent.path]]\nmatch = [\"src/**\"]\n"
    ));
    repository.allows(&store);
    let ask = |event: &serde_json::Value| {
        let mut hook = repository.hook("claude");
        hook.env_remove("TENURE_DIR");
        heard(&mut hook, event.to_string().as_bytes())
    };
    let root = repository.root();
    let input = json!({"file_path": root.join("src/a.rs")});
    let refused = ask(&claude("PreToolUse", &root, "t1", "Edit", input)).reason();
    assert!(refused.contains(&store), "{refused}");
    assert!(refused.contains("on_error"), "{refused}");
    let command = ask(&bash(&repository, "t2", "make all")).command();
    assert!(command.starts_with("tenure run build "), "{command}");
    let mut end = claude("SubagentStop", &root, "", "", json!({}));
    end["agent_id"] = "a1".into();
    let said = ask(&end).message();
    assert!(!said.contains("the call goes on"), "{said}");
}
