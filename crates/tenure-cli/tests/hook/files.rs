//! Files that are leased before they are written.

use super::support::{Started, eventually};
use super::{Heard, Repository, claude, codex};
use serde_json::{Value, json};
use std::path::Path;
use std::process::{Command, Stdio};

const RULES: &str = "[[agent.path]]\nmatch = [\"migrations/**\", \"src/api.rs\"]\n";

/// An edit by an agent of a session whose host is a process of its own: the test itself would be one for all.
fn edit(repository: &Repository, session: &str, agent: Option<&str>, file: &Path) -> Heard {
    let input = json!({"file_path": file, "old_string": "a", "new_string": "b"});
    let mut event = claude("PreToolUse", &repository.root(), "", "Edit", input);
    event["session_id"] = session.into();
    if let Some(agent) = agent {
        event["agent_id"] = agent.into();
    }
    repository.ask("claude", &event)
}

fn ends(repository: &Repository, name: &str, session: &str, agent: Option<&str>) {
    let mut event = json!({
        "session_id": session, "cwd": repository.root(), "hook_event_name": name, "reason": "other",
    });
    if let Some(agent) = agent {
        event["agent_id"] = agent.into();
    }
    let heard = repository.ask("claude", &event);
    assert!(heard.nothing(), "{heard:?}");
}

/// The paths that are held.
fn held(repository: &Repository) -> Vec<String> {
    let list = repository.scene.run(["list", "--output", "json"]).json();
    let locks = list["data"]["locks"].as_array().expect("locks").clone();
    let held = locks.into_iter().filter(|lock| lock["standing"] == "held");
    held.map(|lock| lock["path"].as_str().unwrap_or_default().to_owned())
        .collect()
}

#[test]
fn one_agent_at_a_time_edits_a_file_and_the_other_learns_the_facts() {
    let repository = Repository::with(RULES);
    let file = repository.root().join("src/api.rs");
    assert!(edit(&repository, "one", None, &file).nothing());
    assert_eq!(held(&repository), ["src/api.rs"]);
    assert!(
        edit(&repository, "one", None, &file).nothing(),
        "again by the same agent"
    );
    let reason = edit(&repository, "two", Some("a6"), &file).reason();
    for word in [
        "src/api.rs",
        "is leased by claude one",
        "retry_after_ms",
        "your place 1 is kept",
    ] {
        assert!(reason.contains(word), "{word}: {reason}");
    }
    let other = repository.root().join("src/other.rs");
    assert!(
        edit(&repository, "two", Some("a6"), &other).nothing(),
        "no rule is about it"
    );

    ends(&repository, "SessionEnd", "one", None);
    assert_eq!(held(&repository), [""; 0]);
    assert!(
        edit(&repository, "two", Some("a6"), &file).nothing(),
        "its turn"
    );
    assert_eq!(held(&repository), ["src/api.rs"]);
}

/// Each hook is called by a script that ends with it: the place in line is the agent's, and nothing else's.
#[test]
fn a_refused_agent_finds_its_place_again_from_whatever_process_it_comes() {
    let repository = Repository::with(RULES);
    let file = repository.root().join("src/api.rs");
    assert!(edit(&repository, "one", None, &file).nothing());
    let by_script = |session: &str, agent: &str| {
        let input = json!({"file_path": file, "content": "x"});
        let mut event = claude("PreToolUse", &repository.root(), "", "Write", input);
        event["session_id"] = session.into();
        event["agent_id"] = agent.into();
        let script = repository
            .scene
            .script("hook.sh", "tenure hook claude\nexit $?\n");
        let mut command = repository.scene.program("sh");
        command.arg(script).current_dir(repository.root());
        super::heard(&mut command, event.to_string().as_bytes()).reason()
    };
    let place = |session: &str, agent: &str, number: u32| {
        let reason = by_script(session, agent);
        assert!(
            reason.contains(&format!("your place {number} is kept")),
            "{session}/{agent}, {number}: {reason}"
        );
    };
    place("two", "a", 1);
    place("two", "b", 2);
    place("three", "a", 3);
    place("two", "a", 1);
    place("three", "a", 3);
    place("two", "b", 2);

    // A run has its place as well, and all of them end with their agents.
    let build = repository.scene.hold("build", ["-q"]);
    let run = ["run", "build", "-w", "50ms", "--ticket", "auto", "--as"];
    for agent in ["claude/two/a", "claude/two/b", "claude/three/a"] {
        let words = run.iter().copied().chain([agent, "--", "true"]);
        repository.scene.run(words).expect(4, "held");
    }
    let queued = || -> Vec<String> {
        let list = repository.scene.run(["list", "--output", "json"]).json();
        let locks = list["data"]["locks"].as_array().expect("locks").clone();
        let queues = locks
            .iter()
            .filter_map(|lock| lock["queue"].as_array().cloned());
        let mut keys: Vec<String> = queues
            .flatten()
            .map(|waiter| {
                waiter["agent"]["key"]
                    .as_str()
                    .unwrap_or_default()
                    .to_owned()
            })
            .collect();
        keys.sort();
        keys
    };
    assert_eq!(queued().len(), 6);
    ends(&repository, "SubagentStop", "two", Some("a"));
    let rest = [
        "claude/three/a",
        "claude/three/a",
        "claude/two/b",
        "claude/two/b",
    ];
    assert_eq!(queued(), rest);
    ends(&repository, "SessionEnd", "two", None);
    assert_eq!(queued(), ["claude/three/a", "claude/three/a"]);
    ends(&repository, "SessionEnd", "three", None);
    assert_eq!(queued(), [""; 0]);
    assert_eq!(held(&repository).len(), 2);
    let _ = build.open();
}

#[test]
fn a_lease_that_is_given_back_within_two_seconds_is_waited_for() {
    let repository = Repository::with(RULES);
    let file = repository.root().join("migrations/1.sql");
    assert!(edit(&repository, "one", None, &file).nothing());
    std::thread::scope(|scope| {
        let second = scope.spawn(|| edit(&repository, "two", None, &file));
        let lock = || {
            let list = repository.scene.run(["list", "--output", "json"]).json();
            list["data"]["locks"][0]["queue"]
                .as_array()
                .map_or(0, Vec::len)
        };
        eventually("the second agent waits", || lock() > 0);
        ends(&repository, "SessionEnd", "one", None);
        assert!(second.join().expect("an answer").nothing());
    });
}

#[test]
fn the_end_of_an_agent_frees_its_leases_and_no_siblings() {
    let repository = Repository::with(RULES);
    let at = |name: &str| repository.root().join("migrations").join(name);
    assert!(edit(&repository, "s", Some("a"), &at("a")).nothing());
    assert!(edit(&repository, "s", Some("b"), &at("b")).nothing());
    assert!(edit(&repository, "s", None, &at("c")).nothing());
    assert!(edit(&repository, "t", None, &at("d")).nothing());
    let sorted = || {
        let mut held = held(&repository);
        held.sort();
        held
    };
    assert_eq!(sorted().len(), 4);
    ends(&repository, "SubagentStop", "s", Some("a"));
    assert_eq!(sorted(), ["migrations/b", "migrations/c", "migrations/d"]);
    let reason = edit(&repository, "s", Some("b"), &at("c")).reason();
    assert!(
        reason.contains("claude s"),
        "a sibling is another agent: {reason}"
    );
    ends(&repository, "SessionEnd", "s", None);
    assert_eq!(sorted(), ["migrations/d"]);
}

/// A person refuses a command that its hook let pass, and goes home. Nothing tells of the end of that call.
#[test]
fn a_call_without_an_end_keeps_a_lease_until_the_turn_ends_and_no_longer() {
    let repository = Repository::with(&format!("{RULES}silence = \"2s\"\n"));
    let at = |name: &str| repository.root().join("migrations").join(name);
    assert!(edit(&repository, "s", None, &at("main")).nothing());
    assert!(edit(&repository, "s", Some("a"), &at("helper")).nothing());
    for agent in [None, Some("a")] {
        let input = json!({"command": "sleep 1000"});
        let mut event = claude("PreToolUse", &repository.root(), "t", "Bash", input);
        event["session_id"] = "s".into();
        if let Some(agent) = agent {
            event["agent_id"] = agent.into();
        }
        assert!(repository.ask("claude", &event).nothing());
    }
    let root = repository.root();
    let patch = format!(
        "*** Begin Patch\n*** Add File: {}\n+x\n*** End Patch\n",
        at("patched").display()
    );
    for (id, tool, command) in [
        ("", "apply_patch", patch.as_str()),
        ("t", "Bash", "sleep 1000"),
    ] {
        let event = codex("PreToolUse", &root, id, tool, command);
        assert!(repository.ask("codex", &event).nothing());
    }
    std::thread::sleep(std::time::Duration::from_secs(3));
    let mut all = held(&repository);
    all.sort();
    assert_eq!(
        all,
        ["migrations/helper", "migrations/main", "migrations/patched"]
    );
    ends(&repository, "Stop", "s", None);
    // Codex says of a turn that a person ended.
    let event = json!({"session_id": "0199a", "turn_id": "turn-1", "cwd": root, "hook_event_name": "Interrupt"});
    assert!(repository.ask("codex", &event).nothing());
    eventually("the leases of the agents that rest end by silence", || {
        held(&repository) == ["migrations/helper"]
    });
    assert!(edit(&repository, "t", None, &at("main")).nothing());
    let reason = edit(&repository, "t", None, &at("helper")).reason();
    assert!(reason.contains("claude s/a"), "a sibling calls: {reason}");
}

#[test]
fn a_patch_takes_all_its_files_or_none() {
    let repository = Repository::with(RULES);
    let patch = "*** Begin Patch\n*** Update File: src/api.rs\n@@\n-a\n+b\n*** Add File: migrations/2.sql\n+x\n\
                 *** Delete File: migrations/1.sql\n*** Update File: README.md\n*** End Patch\n";
    let event = codex("PreToolUse", &repository.root(), "", "apply_patch", patch);
    assert!(
        edit(
            &repository,
            "one",
            None,
            &repository.root().join("src/api.rs")
        )
        .nothing()
    );
    let reason = repository.ask("codex", &event).reason();
    assert!(reason.contains("src/api.rs"), "{reason}");
    assert_eq!(held(&repository), ["src/api.rs"], "nothing else was kept");
    ends(&repository, "SessionEnd", "one", None);
    assert!(repository.ask("codex", &event).nothing());
    let mut all = held(&repository);
    all.sort();
    assert_eq!(all, ["migrations/1.sql", "migrations/2.sql", "src/api.rs"]);
}

#[test]
fn every_tool_that_writes_is_one_of_these() {
    let repository = Repository::with(RULES);
    let file = repository.root().join("src/api.rs");
    assert!(edit(&repository, "other", None, &file).nothing());
    for (tool, input) in [
        ("Edit", json!({"file_path": file})),
        ("Write", json!({"file_path": file, "content": "x"})),
        ("MultiEdit", json!({"file_path": file, "edits": []})),
        (
            "NotebookEdit",
            json!({"notebook_path": file, "new_source": ""}),
        ),
        ("Write", json!({"file_path": "src/api.rs", "content": "x"})),
        (
            "Write",
            json!({"file_path": repository.root().join("src/../src/api.rs"), "content": "x"}),
        ),
    ] {
        let event = claude("PreToolUse", &repository.root(), "", tool, input);
        let reason = repository.ask("claude", &event).reason();
        assert!(
            reason.contains("src/api.rs is leased by claude other"),
            "{tool}: {reason}"
        );
    }
    let read = claude(
        "PreToolUse",
        &repository.root(),
        "",
        "Read",
        json!({"file_path": file}),
    );
    assert!(repository.ask("claude", &read).nothing());
}

#[test]
fn the_path_of_the_file_decides_and_not_the_folder_of_the_agent() {
    let repository = Repository::with(RULES);
    let elsewhere = repository.scene.path("elsewhere");
    std::fs::create_dir_all(&elsewhere).expect("a folder");
    let input = json!({"file_path": repository.root().join("src/api.rs"), "content": "x"});
    let event = claude("PreToolUse", &elsewhere, "", "Write", input);
    assert!(repository.ask("claude", &event).nothing());
    assert_eq!(held(&repository), ["src/api.rs"]);
    std::os::unix::fs::symlink(repository.root(), elsewhere.join("link")).expect("a link");
    let linked = elsewhere.join("link/src/api.rs");
    let reason = edit(&repository, "two", None, &linked).reason();
    assert!(
        reason.contains("src/api.rs is leased by claude 1f3c"),
        "{reason}"
    );
}

fn git(folder: &Path, words: &[&str]) {
    let status = Command::new("git")
        .args(["-c", "user.name=t", "-c", "user.email=t@example.org"])
        .args(words)
        .current_dir(folder)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    assert!(status.expect("git").success(), "{words:?}");
}

#[test]
fn work_trees_have_files_of_their_own_unless_a_rule_says_otherwise() {
    let repository = Repository::with("");
    std::fs::remove_dir_all(repository.root().join(".git")).expect("no repository");
    repository.rules(&format!(
        "{RULES}[[agent.path]]\nmatch = [\"schema.sql\"]\nacross = \"repo\"\n"
    ));
    git(&repository.root(), &["init", "-q"]);
    git(
        &repository.root(),
        &["commit", "-q", "--allow-empty", "-m", "first"],
    );
    git(&repository.root(), &["worktree", "add", "-q", "../second"]);
    let second = repository
        .scene
        .path("second")
        .canonicalize()
        .expect("a tree");
    assert!(
        edit(
            &repository,
            "one",
            None,
            &repository.root().join("src/api.rs")
        )
        .nothing()
    );
    assert!(edit(&repository, "two", None, &second.join("src/api.rs")).nothing());
    assert!(
        edit(
            &repository,
            "one",
            None,
            &repository.root().join("schema.sql")
        )
        .nothing()
    );
    let reason = edit(&repository, "two", None, &second.join("schema.sql")).reason();
    assert!(
        reason.contains("schema.sql is leased by claude one"),
        "{reason}"
    );
}

#[test]
fn a_session_that_goes_on_learns_what_it_holds_and_what_it_lost() {
    let repository = Repository::with(RULES);
    let at = |name: &str| repository.root().join("migrations").join(name);
    // The host of this session is a process that ends.
    let event = |file: &Path| {
        let input = json!({"file_path": file, "content": "x"});
        let mut event = claude("PreToolUse", &repository.root(), "", "Write", input);
        event["session_id"] = "s".into();
        event.to_string()
    };
    let file = repository.scene.write("event.json", &event(&at("lost")));
    let lines = format!("tenure hook claude <'{}'\n:\n", file.display());
    let script = repository.scene.script("host.sh", &lines);
    let mut host = repository.scene.program("sh");
    host.arg(script).current_dir(repository.root());
    let mut host = Started::new(&mut host);
    assert!(host.end().success());
    eventually("the lease ends with its host", || {
        held(&repository).is_empty()
    });
    assert!(edit(&repository, "s", None, &at("kept")).nothing());

    let begins = |source: &str| {
        let event = json!({
            "session_id": "s", "cwd": repository.root(), "hook_event_name": "SessionStart", "source": source,
        });
        repository.ask("claude", &event)
    };
    assert!(begins("startup").nothing());
    let told = begins("resume").json();
    let context = told["hookSpecificOutput"]["additionalContext"]
        .as_str()
        .unwrap_or_default();
    assert_eq!(told["hookSpecificOutput"]["hookEventName"], "SessionStart");
    assert!(
        context.contains("this session holds migrations/kept"),
        "{context}"
    );
    assert!(
        context.contains("its leases of migrations/lost have ended"),
        "{context}"
    );
    let again = begins("resume").json();
    let context: &Value = &again["hookSpecificOutput"]["additionalContext"];
    assert!(
        !context.to_string().contains("lost"),
        "said once: {context}"
    );
}

#[test]
fn the_audit_names_the_agent_of_a_lease() {
    let repository = Repository::with(RULES);
    let file = repository.root().join("src/api.rs");
    assert!(edit(&repository, "one", Some("a6"), &file).nothing());
    ends(&repository, "SubagentStop", "one", Some("a6"));
    let audit = repository.scene.run(["audit", "--output", "json"]).json();
    let events = audit["data"]["events"].as_array().expect("events");
    for name in ["lock_acquired", "lock_released"] {
        let event = events.iter().find(|event| event["event"] == name);
        let event = event.unwrap_or_else(|| panic!("{name}: {audit}"));
        assert_eq!(event["agent"]["key"], "claude/one/a6", "{event}");
    }
}
