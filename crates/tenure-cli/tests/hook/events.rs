//! Events beside the calls of tools.

use super::{Repository, claude, codex, heard};
use serde_json::{Value, json};

const RULES: &str =
    "[[agent.command]]\nmatch = [\"make\"]\nlock = \"b\"\n[[agent.path]]\nmatch = [\"a\"]\n";

#[test]
fn events_that_ask_for_nothing_get_no_answer() {
    let repository = Repository::with(RULES);
    let folder = repository.root();
    for event in [
        json!({"hook_event_name": "UserPromptSubmit", "session_id": "s", "cwd": folder, "prompt": "make"}),
        json!({"hook_event_name": "Stop", "session_id": "s", "cwd": folder, "stop_hook_active": false}),
        json!({"hook_event_name": "Notification", "session_id": "s", "cwd": folder, "message": "m"}),
        json!({"hook_event_name": "SessionStart", "session_id": "s", "cwd": folder, "source": "startup"}),
        json!({"hook_event_name": "SessionStart", "session_id": "s", "cwd": folder, "source": "resume"}),
        json!({"hook_event_name": "SessionEnd", "session_id": "s", "cwd": folder, "reason": "clear"}),
        json!({"hook_event_name": "SubagentStop", "session_id": "s", "agent_id": "a", "cwd": folder}),
        json!({"hook_event_name": "SubagentStop", "session_id": "s", "cwd": folder}),
        json!({"hook_event_name": "SomethingNew", "x": 1}),
        claude("PreToolUse", &folder, "t", "Bash", json!({"command": "ls"})),
        claude(
            "PostToolUse",
            &folder,
            "t",
            "Bash",
            json!({"command": "make"}),
        ),
        claude(
            "PostToolUse",
            &folder,
            "t",
            "Write",
            json!({"file_path": "a"}),
        ),
        claude(
            "PostToolUseFailure",
            &folder,
            "t",
            "Bash",
            json!({"command": "make"}),
        ),
        claude("PreToolUse", &folder, "t", "WebFetch", json!({"url": "x"})),
    ] {
        let heard = repository.ask("claude", &event);
        assert!(heard.nothing(), "{event}: {heard:?}");
    }
    let event = codex("PostToolUse", &folder, "t", "Bash", "make");
    assert!(repository.ask("codex", &event).nothing());
}

#[test]
fn a_folder_that_is_gone_is_no_reason_to_fail() {
    let repository = Repository::with(RULES);
    let event = claude(
        "PreToolUse",
        &repository.scene.path("gone"),
        "t",
        "Bash",
        json!({"command": "ls"}),
    );
    assert!(repository.ask("claude", &event).nothing());
}

/// A host that drops rewrites: the command runs as it was, and leaves no mark.
#[test]
fn a_rewrite_that_does_not_arrive_is_told_once_and_then_refused() {
    let repository = Repository::with(RULES);
    let folder = repository.root();
    let before = |id: &str, command: &str| {
        repository.ask(
            "claude",
            &claude(
                "PreToolUse",
                &folder,
                id,
                "Bash",
                json!({"command": command}),
            ),
        )
    };
    let after = |id: &str, command: &str| {
        repository.ask(
            "claude",
            &claude(
                "PostToolUse",
                &folder,
                id,
                "Bash",
                json!({"command": command}),
            ),
        )
    };
    // Behind another command it may not have run, so nothing is concluded.
    assert!(
        before("t1", "true && make")
            .command()
            .contains("tenure run")
    );
    assert!(after("t1", "true && make").nothing());
    // The host says that it ran the new text.
    let new = before("t2", "make").command();
    assert!(after("t2", &new).nothing());
    // The command runs, and leaves its mark.
    repository.scene.script("make", "#!/bin/sh\n");
    let new = before("t3", "make").command();
    let path = format!(
        "{}:{}",
        repository.scene.root().display(),
        std::env::var("PATH").unwrap_or_default()
    );
    let own = std::path::Path::new(super::support::TENURE)
        .parent()
        .expect("a folder");
    let mut shell = repository.scene.program("sh");
    shell
        .args(["-c", &new])
        .env("PATH", format!("{}:{path}", own.display()))
        .current_dir(&folder);
    super::support::answer(&mut shell).expect(0, "the command under its lock");
    assert!(after("t3", "make").nothing(), "there is a mark");
    // The command goes on in the background.
    assert!(before("t4", "make").command().contains("tenure run"));
    let mut event = claude(
        "PostToolUse",
        &folder,
        "t4",
        "Bash",
        json!({"command": "make"}),
    );
    event["tool_response"] = json!({"backgroundTaskId": "b1"});
    assert!(repository.ask("claude", &event).nothing());

    std::thread::sleep(std::time::Duration::from_millis(5));
    assert!(before("t5", "make").command().contains("tenure run"));
    let message = after("t5", "make").message();
    assert!(message.contains("ran without its lock"), "{message}");
    let reason = before("t6", "make").reason();
    assert!(
        reason.contains("an earlier rewrite") && reason.contains("This form passes: tenure run b "),
        "{reason}"
    );
    assert!(after("t6", "make").nothing(), "said once");
}

/// Whatever else explains that a command left no mark is no rewrite that was dropped.
#[test]
fn a_missing_mark_that_has_another_reason_proves_nothing() {
    let rules =
        "dir = \"locks\"\n[[agent.command]]\nmatch = [\"make\"]\nlock = \"b\"\nwait = \"1s\"\n";
    let repository = Repository::with(rules);
    let folder = repository.root();
    repository.scene.script("make", "#!/bin/sh\n");
    let ask = |event: &Value| {
        let mut hook = repository.hook("claude");
        hook.env_remove("TENURE_DIR");
        heard(&mut hook, event.to_string().as_bytes())
    };
    let event = |session: &str, name: &str, command: &str| {
        let mut event = claude(name, &folder, "t", "Bash", json!({"command": command}));
        event["session_id"] = session.into();
        event
    };
    // As an agent's shell would run it, with one variable of its own.
    let shell = |line: &str, (name, value): (&str, &str)| {
        let own = std::path::Path::new(super::support::TENURE).parent();
        let path = std::env::var("PATH").unwrap_or_default();
        let own = own.expect("a folder").display();
        let mut shell = repository.scene.program("sh");
        shell
            .args(["-c", line])
            .env(
                "PATH",
                format!("{}:{own}:{path}", repository.scene.root().display()),
            )
            .env_remove("TENURE_DIR")
            .env(name, value)
            .current_dir(&folder);
        super::support::answer(&mut shell)
    };
    let nothing_yet = |session: &str| {
        let next = ask(&event(session, "PreToolUse", "make next"));
        assert!(next.command().contains("tenure run"), "{session}: {next:?}");
    };

    // Another command says how the text ends, or the call has failed: this one may not have run at all.
    for (session, command) in [
        ("pipe", "make > /nowhere/out | cat"),
        ("list", "make > /nowhere/out; true"),
        ("or", "make > /nowhere/out || true"),
    ] {
        assert!(
            ask(&event(session, "PreToolUse", command))
                .command()
                .contains("tenure run")
        );
        assert!(
            ask(&event(session, "PostToolUse", command)).nothing(),
            "{command}"
        );
        nothing_yet(session);
    }
    ask(&event("failed", "PreToolUse", "make")).command();
    assert!(ask(&event("failed", "PostToolUseFailure", "make")).nothing());
    nothing_yet("failed");
    // A person, or another hook, has made another text of it.
    ask(&event("changed", "PreToolUse", "make")).command();
    assert!(ask(&event("changed", "PostToolUse", "make all")).nothing());
    nothing_yet("changed");

    // The command waited in vain, and its host tells of no failure.
    let holder = repository.scene.path("held");
    let line = format!(
        "tenure run b -- sh -c ': >{0}; while [ -e {0} ]; do sleep 0.05; done'",
        holder.display()
    );
    std::thread::scope(|scope| {
        let held = scope.spawn(|| shell(&line, ("A", "1")).code());
        super::support::eventually("it is held", || holder.exists());
        let new = ask(&event("vain", "PreToolUse", "make")).command();
        assert_eq!(shell(&new, ("A", "1")).code(), 4);
        rustix::fs::unlink(&holder).expect("an end");
        assert_eq!(held.join().expect("a holder"), 0);
    });
    assert!(ask(&event("vain", "PostToolUse", "make")).nothing());
    nothing_yet("vain");

    // The host names the agent before the call and not behind it.
    let mut before = event("agent", "PreToolUse", "make");
    before["agent_id"] = "a6".into();
    let new = ask(&before).command();
    shell(&new, ("A", "1")).expect(0, "under its lock");
    assert!(ask(&event("agent", "PostToolUse", "make")).nothing());
    nothing_yet("agent");

    // The command's state folder is another one, so no mark comes; its lock is the one that the hook knows.
    let other = repository.scene.path("other-state");
    let new = ask(&event("sandbox", "PreToolUse", "make")).command();
    shell(&new, ("XDG_STATE_HOME", other.to_str().expect("a path"))).expect(0, "in a sandbox");
    assert!(ask(&event("sandbox", "PostToolUse", "make")).nothing());
    nothing_yet("sandbox");

    // And a rewrite that was dropped is found all the same, by a subagent too.
    std::thread::sleep(std::time::Duration::from_millis(5));
    ask(&event("dropped", "PreToolUse", "make && make")).command();
    let message = ask(&event("dropped", "PostToolUse", "make && make")).message();
    assert!(message.contains("ran without its lock"), "{message}");
}

/// An agent asks whether hook and rewrite arrive.
#[test]
fn an_agent_that_probes_is_told_that_both_arrive() {
    let repository = Repository::with("");
    let folder = repository.root();
    let event = claude(
        "PreToolUse",
        &folder,
        "t",
        "Bash",
        json!({"command": "tenure agent probe claude"}),
    );
    let new = repository.ask("claude", &event).command();
    let probe = |line: &str| {
        let mut shell = repository.scene.program("sh");
        super::support::answer(shell.args(["-c", line]).current_dir(&folder))
    };
    let told = probe(&new).expect(0, "both arrived");
    assert!(
        told.stdout().contains("the hook was called"),
        "{}",
        told.said()
    );
    repository.ask("claude", &event).command();
    let told = probe("tenure agent probe claude").expect(1, "the old command ran");
    assert!(
        told.said().contains("the hook was called"),
        "{}",
        told.said()
    );
    let told = probe("tenure agent probe claude").expect(1, "no hook was called");
    assert!(
        told.said().contains("no hook was called"),
        "{}",
        told.said()
    );
}

/// What a call on stdin may be, and how its host is told: the events as the hosts sent them, shortened.
fn of_hosts(folder: &std::path::Path, name: &str, command: &str) -> [(&'static str, Value); 2] {
    let mut claude = claude(name, folder, "t", "Bash", json!({"command": command}));
    claude["transcript_path"] = "/home/u/.claude/projects/w/1f3c.jsonl".into();
    let mut codex = codex(name, folder, "t", "Bash", command);
    codex["transcript_path"] = "/home/u/.codex/sessions/2026/11/30/rollout-0199a.jsonl".into();
    [("claude", claude), ("codex", codex)]
}

/// Codex ignores the arguments of a plugin's hook, and so did an older Claude Code: they call the program alone. Exit 2 there
/// refused each call, and at the end of a turn it meant "go on": the host asked its model again and again.
#[test]
fn a_call_without_arguments_answers_an_event_as_the_hook_of_its_host() {
    let repository = Repository::with("[[agent.command]]\nmatch = [\"make\"]\nlock = \"b\"\n");
    let bare = |event: &[u8]| {
        let mut command = repository.scene.tenure([] as [&str; 0]);
        heard(command.current_dir(repository.root()), event)
    };
    for (host, event) in of_hosts(&repository.root(), "PreToolUse", "make") {
        let told = bare(event.to_string().as_bytes()).json();
        assert_eq!(told, repository.ask(host, &event).json(), "{host}");
    }
    // A host that is not known gets no decision, and a person the help.
    let foreign = json!({"hook_event_name": "PreToolUse", "tool_name": "Bash", "tool_input": {"command": "make"}});
    assert!(bare(foreign.to_string().as_bytes()).nothing());
    for text in ["", "make\n", "{\"a\": 1}", "  \n"] {
        let heard = bare(text.as_bytes());
        assert_eq!((heard.code, heard.text.as_str()), (2, ""), "{text:?}");
        assert!(heard.stderr.contains("tenure run"), "{heard:?}");
    }
}

#[test]
fn no_answer_to_the_end_of_a_turn_ever_blocks() {
    let closed = "[[agent.command]]\nmatch = [\"make\"]\nlock = \"b\"\non_error = \"closed\"\n";
    let repository = Repository::with(closed);
    let folder = repository.root();
    let calls: [&[&str]; 9] = [
        &["hook", "claude"],
        &["hook", "codex"],
        &[],
        &["hook"],
        &["hook", "cursor"],
        &["hook", "claude", "more"],
        &["hook", "codex", "--output", "json"],
        &["--dir", "/nowhere/x", "hook", "codex"],
        &["hook", "--no-such-flag"],
    ];
    let broken = "[[agent.command]]\non_error = \"closed\"\nx = 1\n";
    for (rules, name) in [(closed, "Stop"), (broken, "SubagentStop")] {
        repository.rules(rules);
        for (host, whole) in of_hosts(&folder, name, "make") {
            let with = |key: &str, value: Value| {
                let mut event = whole.clone();
                event[key] = value;
                event.to_string()
            };
            // The event has no session or a strange one, breaks off, or is longer than what is read.
            let mut cut = whole.to_string();
            cut.truncate(cut.len() - 9);
            let events = [
                whole.to_string(),
                with("session_id", json!(null)),
                with("session_id", json!("a b/c")),
                cut,
                with("zzz", json!("y".repeat(1 << 20))),
            ];
            let calls = if host == "claude" {
                &calls[..]
            } else {
                &calls[1..5]
            };
            for (number, event) in events.iter().enumerate() {
                for words in calls {
                    let mut command = repository.scene.tenure(*words);
                    let heard = heard(command.current_dir(&folder), event.as_bytes());
                    let about = || format!("{words:?} {name} {host} {number}: {heard:?}");
                    assert_eq!((heard.code, heard.stderr.as_str()), (0, ""), "{}", about());
                    for word in ["deny", "block", "\"decision\"", "\"continue\"", "refused"] {
                        assert!(!heard.text.contains(word), "{word}: {}", about());
                    }
                }
            }
        }
    }
    // The variable that is wrong for each call is no reason, either.
    let (_, stop) = &of_hosts(&folder, "Stop", "")[0];
    let mut command = repository.hook("claude");
    let told = heard(
        command.env("TENURE_OUTPUT", "xml"),
        stop.to_string().as_bytes(),
    );
    assert_eq!(told.code, 0, "{told:?}");
    // A person is told what is wrong with the words.
    let typed = repository
        .scene
        .run(["hook", "cursor"])
        .expect(2, "no host");
    assert!(typed.stderr().contains("cursor"), "{}", typed.said());
}
