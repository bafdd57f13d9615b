//! Commands that run under a lock: what the hosts are told.

use super::support::TENURE;
use super::{Repository, bash, claude, codex, heard};
use serde_json::{Value, json};

const BUILD: &str =
    "[[agent.command]]\nmatch = [\"cargo test\", \"make\"]\nlock = \"build\"\nslots = 2\n";

#[test]
fn claude_gets_the_whole_input_with_a_prefix_and_no_decision() {
    let repository = Repository::with(BUILD);
    let input = json!({
        "command": "cd x && cargo test --all 2>&1 | tail -5",
        "description": "Run the tests",
        "timeout": 120_000,
    });
    let event = claude("PreToolUse", &repository.root(), "toolu_1", "Bash", input);
    let answer = repository.ask("claude", &event).json();
    // The whole path: the shell of a host may have another PATH than its hooks.
    let prefix = format!(
        "{TENURE} run build --slots 2 --as claude/1f3c --wait 60s --die-with auto --ticket auto --on-error open"
    );
    assert_eq!(
        answer,
        json!({"hookSpecificOutput": {
            "hookEventName": "PreToolUse",
            "updatedInput": {
                "command": format!("cd x && {prefix} -- cargo test --all 2>&1 | tail -5"),
                "description": "Run the tests",
                "timeout": 180_000,
            },
        }})
    );
}

#[test]
fn codex_gets_the_allow_that_it_demands_beside_another_input() {
    let repository = Repository::with(BUILD);
    let event = codex(
        "PreToolUse",
        &repository.root(),
        "call_1",
        "Bash",
        "make all",
    );
    let answer = repository.ask("codex", &event).json();
    assert_eq!(
        answer,
        json!({"hookSpecificOutput": {
            "hookEventName": "PreToolUse",
            "permissionDecision": "allow",
            "updatedInput": {
                "command": format!(
                    "{TENURE} run build --slots 2 --as codex/0199a --wait 60s --die-with auto --ticket auto --on-error open \
                     -- make all"
                ),
            },
        }})
    );
}

#[test]
fn an_agent_of_a_session_has_a_key_of_its_own() {
    let repository = Repository::with(BUILD);
    let mut event = bash(&repository, "t", "make");
    event["agent_id"] = "a6b4".into();
    let command = repository.ask("claude", &event).command();
    assert!(command.contains(" --as claude/1f3c/a6b4 "), "{command}");
}

#[test]
fn the_wait_fits_the_time_of_the_call() {
    let repository = Repository::with(BUILD);
    for (input, wait, timeout) in [
        (
            json!({"command": "make", "timeout": 20_000}),
            "10s",
            json!(30_000),
        ),
        (
            json!({"command": "make", "timeout": 600_000}),
            "300s",
            json!(600_000),
        ),
        (json!({"command": "make; make"}), "30s", json!(180_000)),
        (
            json!({"command": "make", "run_in_background": true}),
            "60s",
            json!(null),
        ),
    ] {
        let event = claude("PreToolUse", &repository.root(), "", "Bash", input.clone());
        let answer = repository.ask("claude", &event).json();
        let new = &answer["hookSpecificOutput"]["updatedInput"];
        assert!(
            super::text(&new["command"]).contains(&format!(" --wait {wait} ")),
            "{input}: {new}"
        );
        assert_eq!(new["timeout"], timeout, "{input}");
    }
    let event = bash(&repository, "", "make");
    let mut hook = repository.hook("claude");
    hook.env("BASH_DEFAULT_TIMEOUT_MS", "30000")
        .env("BASH_MAX_TIMEOUT_MS", "40000");
    let answer = heard(&mut hook, event.to_string().as_bytes()).json();
    assert_eq!(
        answer["hookSpecificOutput"]["updatedInput"]["timeout"],
        40_000
    );
}

/// The input tells what a tool does: a list of names would miss the next one.
#[test]
fn a_command_is_one_whatever_tool_runs_it() {
    let repository = Repository::with(BUILD);
    let ask = |tool: &str, input: Value| {
        let event = claude("PreToolUse", &repository.root(), "", tool, input);
        repository.ask("claude", &event)
    };
    for (tool, input, more) in [
        (
            "Monitor",
            json!({"command": "make", "description": "d"}),
            json!({"description": "d"}),
        ),
        (
            "Monitor",
            json!({"command": "make", "timeout_ms": 20_000}),
            json!({"timeout_ms": 30_000}),
        ),
        ("Later", json!({"command": "make"}), json!({})),
    ] {
        let answer = ask(tool, input).json();
        let mut new = answer["hookSpecificOutput"]["updatedInput"].clone();
        let command = super::text(&new["command"]);
        assert!(command.contains("tenure run build "), "{tool}: {command}");
        // No argument is added that a tool may not know.
        new.as_object_mut().expect("an input").remove("command");
        assert_eq!(new, more, "{tool}");
    }
    for (tool, input) in [
        ("mcp__far__run", json!({"command": "make"})),
        ("mcp__tenure__lock_check", json!({"name": "build"})),
        ("Read", json!({"file_path": "/w/make"})),
        ("Later", json!({"command": ["make"]})),
    ] {
        assert!(ask(tool, input).nothing(), "{tool}");
    }
    // The end comes early, and proves nothing.
    let event = |name: &str| {
        let input = json!({"command": "make"});
        claude(name, &repository.root(), "toolu_1", "Monitor", input)
    };
    repository.ask("claude", &event("PreToolUse")).command();
    assert!(repository.ask("claude", &event("PostToolUse")).nothing());
}

#[test]
fn what_no_rule_is_about_gets_no_answer() {
    let repository = Repository::with(BUILD);
    for command in [
        "ls",
        "cargo build",
        "git commit -m 'make it'",
        "for i in 1 2; do echo $i; done",
        "tenure run build -- make",
        "cat <<E\nhello\nE",
        "",
    ] {
        let heard = repository.ask("claude", &bash(&repository, "t", command));
        assert!(heard.nothing(), "{command}: {heard:?}");
    }
    repository.rules("");
    assert!(
        repository
            .ask("claude", &bash(&repository, "u", "make"))
            .nothing()
    );
}

#[test]
fn where_no_prefix_can_stand_the_rule_says_what_happens() {
    let repository = Repository::with(BUILD);
    let heard = repository.ask(
        "claude",
        &bash(&repository, "1", "for i in 1 2; do make; done"),
    );
    let message = heard.message();
    assert!(
        message.contains("`make` stands in a text that contains a loop"),
        "{message}"
    );
    assert!(heard.json().get("hookSpecificOutput").is_none());

    // What can be prefixed is, and the rest is named.
    let both = repository.ask(
        "claude",
        &bash(&repository, "2", "make a; bash -c 'cargo test'"),
    );
    assert!(both.command().starts_with("tenure run build"), "{both:?}");
    assert!(both.message().contains("bash runs"), "{both:?}");

    repository.rules(&format!("{BUILD}on_error = \"closed\"\n"));
    let reason = repository
        .ask(
            "claude",
            &bash(&repository, "3", "make a; bash -c 'cargo test'"),
        )
        .reason();
    assert!(
        reason.contains("`cargo test` runs under the lock build here"),
        "{reason}"
    );
    assert!(
        reason.contains("tenure run build --slots 2 --as claude/1f3c"),
        "{reason}"
    );
}

/// What the lexer knows of these forms, its own tables say. Here the answer of a closed rule is looked at.
#[test]
fn a_closed_rule_prefixes_what_it_can_and_refuses_what_may_be_meant() {
    let rule = "[[agent.command]]\nmatch = [\"cargo test\", \"make\"]\nlock = \"build\"\non_error = \"closed\"\n";
    let repository = Repository::with(rule);
    let mut number = 0;
    let mut ask = |text: &str| {
        number += 1;
        repository.ask("claude", &bash(&repository, &format!("t{number}"), text))
    };
    for text in [
        "cargo +nightly test",
        "cargo -q test",
        "/usr/bin/time -v cargo test",
        "flock l cargo test",
        "tenure run other -- cargo test",
    ] {
        let new = ask(text).command();
        assert!(new.starts_with("tenure run build --as "), "{text}: {new}");
        assert!(new.ends_with(&format!(" -- {text}")), "{text}: {new}");
    }
    for (text, why) in [
        ("$CARGO test", "may be what an expansion gives"),
        (
            "${CARGO:-cargo} test",
            "an expansion that is not looked into",
        ),
        ("cargo $'test'", "an expansion that is not looked into"),
        ("echo \"cargo test\" | sh", "stands in what sh runs"),
        ("sudo cargo test", "stands in what sudo runs"),
        ("for i in 1; do cargo -q test; done", "contains a loop"),
    ] {
        let reason = ask(text).reason();
        assert!(reason.contains(why), "{text}: {reason}");
    }
    for text in [
        "$EDITOR f",
        "$MAKE all",
        "$x build",
        "echo $(date) make",
        "git commit -m \"$(cat <<'E'\ncargo test\nE\n)\"",
        "for i in 1; do tenure run build -- cargo test; done",
    ] {
        let heard = ask(text);
        assert!(heard.nothing(), "{text}: {heard:?}");
    }
    let reason = ask(&"make;".repeat(1_001)).reason();
    assert!(reason.contains("more than 1000 commands"), "{reason}");
}

#[test]
fn a_rule_may_refuse_and_name_the_form_that_passes() {
    let repository = Repository::with(&format!("{BUILD}how = \"refuse\"\n"));
    let reason = repository
        .ask("claude", &bash(&repository, "1", "cd x && make all"))
        .reason();
    // The form stands on a line of its own, also where a host writes more behind the reason.
    let mut lines = reason.lines();
    let form = lines.find_map(|line| line.strip_prefix("This form passes: "));
    let form = form.expect("a form");
    assert!(lines.next().is_some(), "{reason}");
    assert!(
        form.starts_with("cd x && tenure run build --slots 2 --as claude/1f3c "),
        "{reason}"
    );
    let again = repository.ask("claude", &bash(&repository, "2", form));
    assert!(again.nothing(), "the form passes: {again:?}");
}

#[test]
fn one_call_gets_one_answer_however_often_it_is_asked_about() {
    let repository = Repository::with(BUILD);
    let event = bash(&repository, "toolu_1", "make");
    let first = repository.ask("claude", &event);
    repository.rules(&format!("{BUILD}how = \"refuse\"\n"));
    assert_eq!(repository.ask("claude", &event), first);
    let other = repository.ask("claude", &bash(&repository, "toolu_2", "make"));
    assert_ne!(other, first);
}

/// Some hosts number the calls of each answer of a model anew: `call_0` comes again within seconds.
#[test]
fn a_call_with_the_name_of_an_earlier_one_gets_an_answer_of_its_own() {
    let repository = Repository::with(&format!("{BUILD}[[agent.path]]\nmatch = [\"src/**\"]\n"));
    let folder = repository.root();
    let first = repository.ask("claude", &bash(&repository, "call_0", "make one"));
    assert!(first.command().ends_with(" -- make one"), "{first:?}");
    let second = repository.ask("claude", &bash(&repository, "call_0", "make two"));
    assert!(second.command().ends_with(" -- make two"), "{second:?}");
    assert!(
        repository
            .ask("claude", &bash(&repository, "call_0", "ls"))
            .nothing()
    );
    for name in ["src/a.rs", "README.md"] {
        let input = json!({"file_path": folder.join(name), "old_string": "a", "new_string": "b"});
        let edit = claude("PreToolUse", &folder, "call_0", "Edit", input);
        let heard = repository.ask("claude", &edit);
        assert!(heard.nothing(), "no command for an edit: {heard:?}");
    }
    // A sibling's call has the sibling's key.
    let mut sibling = bash(&repository, "call_0", "make two");
    sibling["agent_id"] = "a6".into();
    let command = repository.ask("claude", &sibling).command();
    assert!(command.contains(" --as claude/1f3c/a6 "), "{command}");
}

#[test]
fn the_prefix_names_this_program_by_a_path_that_stays() {
    let repository = Repository::with(BUILD);
    let event = bash(&repository, "", "make");
    let bin = repository.scene.path("bin");
    std::fs::create_dir(&bin).expect("a folder");
    let link = bin.join("tenure");
    for (prepare, expected) in [
        // Not on the PATH at all, another program there, and a link to this one.
        (None, TENURE.to_owned()),
        (Some("/bin/true"), TENURE.to_owned()),
        (Some(TENURE), link.display().to_string()),
    ] {
        if let Some(to) = prepare {
            let _ = rustix::fs::unlink(&link);
            std::os::unix::fs::symlink(to, &link).expect("a link");
        }
        let mut hook = repository.hook("claude");
        hook.env("PATH", &bin);
        let answer = heard(&mut hook, event.to_string().as_bytes()).json();
        let command = super::text(&answer["hookSpecificOutput"]["updatedInput"]["command"]);
        assert!(
            command.starts_with(&format!("{expected} run build")),
            "{prepare:?}: {command}"
        );
    }
}

/// The settings of a person, in one of the files that Claude Code reads.
fn settings(repository: &Repository, file: &str, list: &str, rule: &str) {
    let file = repository.scene.path(file);
    std::fs::create_dir_all(file.parent().expect("a folder")).expect("folders");
    let text = json!({"permissions": {list: [rule]}}).to_string();
    std::fs::write(file, text).expect("settings");
}

/// Claude Code judges the person's rules by the command that the hook has written: a denial of `make` would be gone.
#[test]
fn what_a_rule_of_the_person_may_stop_gets_no_prefix() {
    let closed = format!("{BUILD}on_error = \"closed\"\n");
    for file in [
        ".claude/settings.json",
        "w/.claude/settings.json",
        "w/.claude/settings.local.json",
    ] {
        let repository = Repository::with(BUILD);
        settings(&repository, file, "deny", "Bash(make:*)");
        let ask = |text: &str| repository.ask("claude", &bash(&repository, "", text));
        let left = ask("make all");
        assert!(left.json().get("hookSpecificOutput").is_none(), "{left:?}");
        assert!(
            left.message().contains("the deny rule Bash(make:*) of"),
            "{left:?}"
        );
        let wrapped = ask("cd x && A=1 timeout 5 make all | tail");
        assert!(
            wrapped.json().get("hookSpecificOutput").is_none(),
            "{wrapped:?}"
        );
        // What the rule is not about is prefixed, beside it as well.
        assert!(ask("cargo test").command().starts_with("tenure run build"));
        let both = ask("cargo test && make");
        assert!(
            both.command().ends_with("-- cargo test && make"),
            "{both:?}"
        );
        repository.rules(&closed);
        let reason = ask("make all").reason();
        assert!(reason.contains("Bash(make:*)"), "{reason}");
        assert!(
            reason.contains("This form passes: tenure run build"),
            "{reason}"
        );
        assert!(!reason.contains("--on-error"), "{reason}");
    }
    // A rule that is about the new command, too, makes the prefix harmless.
    let repository = Repository::with(BUILD);
    settings(&repository, ".claude/settings.json", "deny", "Bash(*make*)");
    let heard = repository.ask("claude", &bash(&repository, "", "make"));
    assert!(heard.command().starts_with("tenure run build"), "{heard:?}");
}

#[test]
fn what_a_rule_of_the_person_wants_asked_is_asked_about() {
    let repository = Repository::with(BUILD);
    settings(
        &repository,
        "w/.claude/settings.json",
        "ask",
        "Bash(make *)",
    );
    let heard = repository.ask("claude", &bash(&repository, "", "make"));
    assert!(heard.command().starts_with("tenure run build"), "{heard:?}");
    let specific = &heard.json()["hookSpecificOutput"];
    assert_eq!(specific["permissionDecision"], "ask");
    let reason = super::text(&specific["permissionDecisionReason"]);
    assert!(reason.contains("Bash(make *)"), "{reason}");
    let allowed = repository.ask("claude", &bash(&repository, "", "cargo test"));
    assert!(
        allowed.json()["hookSpecificOutput"]
            .get("permissionDecision")
            .is_none()
    );
    // An allowance is the host's to judge.
    settings(
        &repository,
        "w/.claude/settings.json",
        "allow",
        "Bash(make *)",
    );
    let heard = repository.ask("claude", &bash(&repository, "", "make"));
    assert!(
        heard.json()["hookSpecificOutput"]
            .get("permissionDecision")
            .is_none()
    );
}

#[test]
fn codex_rules_of_the_person_count_as_well() {
    for (folder, decision) in [(".codex", "forbidden"), ("w/.codex", "prompt")] {
        let repository = Repository::with(BUILD);
        let rules = repository.scene.path(folder).join("rules");
        std::fs::create_dir_all(&rules).expect("folders");
        let rule = format!("prefix_rule(pattern=[\"make\", \"all\"], decision=\"{decision}\")\n");
        std::fs::write(rules.join("default.rules"), rule).expect("rules");
        let ask = |text: &str| {
            let event = codex("PreToolUse", &repository.root(), "", "Bash", text);
            repository.ask("codex", &event)
        };
        let left = ask("make all");
        assert!(left.json().get("hookSpecificOutput").is_none(), "{left:?}");
        assert!(left.message().contains("make all"), "{left:?}");
        assert!(ask("make other").command().starts_with("tenure run build"));
        repository.rules(&format!("{BUILD}on_error = \"closed\"\n"));
        assert!(ask("make all").reason().contains("This form passes"));
    }
}
