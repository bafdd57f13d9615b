//! Golden events: what the hosts themselves sent in `scripts/try-hosts --record`, each with what the hook answers.
//!
//! A folder of `events` is a host, with a word behind its name for another way in which it works. What differs from run to
//! run is written as `ID`, `AGENT` or `TIME`; `/REPO` is the repository.

use super::{Repository, by_name, heard};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;

const RULES: &str = "dir = \"locks\"\n[[agent.command]]\nmatch = [\"make slow\", \"make quick\"]\nlock = \"build\"\nwait = \"40s\"\n\
    [[agent.path]]\nmatch = [\"leased/**\"]\n";

/// The life of a session. The events of each kind come together, those of subagents last.
const ORDER: [&str; 12] = [
    "SessionStart-startup",
    "UserPromptSubmit",
    "PreToolUse",
    "PostToolUse",
    "PostToolUseFailure",
    "PostToolBatch",
    "Interrupt",
    "SubagentStart",
    "SubagentStop",
    "Stop",
    "SessionEnd",
    "SessionStart-resume",
];

/// What comes out where something does: the folder, the event, and the answer. All other events get none.
const ANSWERS: [(&str, &str, &str); 6] = [
    (
        "claude",
        "PreToolUse-Bash",
        r#"{"hookEventName":"PreToolUse","updatedInput":{"command":"tenure run build --as claude/ID --wait 40s --die-with auto --ticket auto --on-error open -- make quick","description":"a move","timeout":160000}}"#,
    ),
    (
        "claude",
        "PreToolUse-Bash-sub",
        r#"{"hookEventName":"PreToolUse","updatedInput":{"command":"tenure run build --as claude/ID/AGENT --wait 40s --die-with auto --ticket auto --on-error open -- make quick","description":"a move","timeout":160000}}"#,
    ),
    (
        "codex",
        "PreToolUse-Bash",
        r#"{"hookEventName":"PreToolUse","permissionDecision":"allow","updatedInput":{"command":"tenure run build --as codex/ID --wait 40s --die-with auto --ticket auto --on-error open -- make quick"}}"#,
    ),
    (
        "codex",
        "PreToolUse-Bash-sub",
        r#"{"hookEventName":"PreToolUse","permissionDecision":"allow","updatedInput":{"command":"tenure run build --as codex/ID/ID --wait 40s --die-with auto --ticket auto --on-error open -- make quick"}}"#,
    ),
    (
        "codex-code",
        "PreToolUse-Bash",
        r#"{"hookEventName":"PreToolUse","permissionDecision":"allow","updatedInput":{"command":"tenure run build --as codex/ID --wait 40s --die-with auto --ticket auto --on-error open -- make quick"}}"#,
    ),
    (
        "codex-code",
        "PreToolUse-Bash-sub",
        r#"{"hookEventName":"PreToolUse","permissionDecision":"allow","updatedInput":{"command":"tenure run build --as codex/ID/ID --wait 40s --die-with auto --ticket auto --on-error open -- make quick"}}"#,
    ),
];

/// The events of a folder, in the order of a session.
fn events(folder: &Path) -> Vec<(String, String)> {
    let files = std::fs::read_dir(folder).expect("the events of a host");
    let events = files.map(|file| {
        let path = file.expect("a file").path();
        let label = path.file_stem().expect("a name").to_string_lossy();
        let mut kinds = ORDER.iter().enumerate();
        let fits = |(_, kind): &(usize, &&str)| {
            let rest = label.strip_prefix(**kind);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
        };
        let (place, _) = kinds.rfind(fits).expect(&label);
        let text = std::fs::read_to_string(&path).expect("an event");
        ((place, label.into_owned()), text)
    });
    let events: BTreeMap<_, _> = events.collect();
    let named = events.into_iter().map(|((_, label), text)| (label, text));
    named.collect()
}

fn leases(repository: &Repository) -> BTreeMap<String, String> {
    let list = repository.scene.run(["list", "--output", "json"]).json();
    let locks = list["data"]["locks"].as_array().expect("locks").iter();
    let held = locks.filter(|lock| lock["standing"] == "held");
    let path = |lock: &Value| lock["path"].as_str().unwrap_or_default().to_owned();
    held.map(|lock| {
        let key = &lock["holder"]["agent"]["key"];
        (path(lock), key.as_str().unwrap_or_default().to_owned())
    })
    .collect()
}

#[test]
fn what_hosts_were_seen_to_send_gets_the_answer_that_stands_beside_it() {
    let all = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/hook/events");
    let mut seen = 0;
    for folder in std::fs::read_dir(all).expect("the golden events") {
        let folder = folder.expect("a folder").path();
        let name = folder.file_name().expect("a name").to_string_lossy();
        let host = name.split('-').next().expect("a host");
        let repository = Repository::with(RULES);
        std::fs::create_dir(repository.root().join("leased")).expect("a folder");
        let root = repository.root().display().to_string();
        for (label, text) in events(&folder) {
            let event = text.replace("/REPO", &root);
            let expected = ANSWERS
                .iter()
                .find(|(of, event, _)| *of == name && *event == label);
            let expected = expected.map_or(String::new(), |(.., answer)| {
                format!("{{\"hookSpecificOutput\":{answer}}}\n")
            });
            let answer = repository.send(host, event.as_bytes());
            assert_eq!(
                (answer.code, by_name(&answer.text), answer.stderr.as_str()),
                (0, expected, ""),
                "{name} {label}"
            );
            // A host that ignores the words of a hook: the event tells what it is.
            let mut bare = repository.scene.tenure([""; 0]);
            bare.current_dir(repository.root());
            assert_eq!(heard(&mut bare, event.as_bytes()), answer, "{name} {label}");
            seen += 1;
            let agent = if host == "claude" { "AGENT" } else { "ID" };
            let (session, agent) = (format!("{host}/ID"), format!("{host}/ID/{agent}"));
            // Who has the file of the session, and that of its subagent.
            let expected = match label.as_str() {
                "PreToolUse-Write" | "PreToolUse-apply_patch" | "SubagentStop-sub" => {
                    (Some(session), None)
                }
                "PreToolUse-Write-sub" | "PreToolUse-apply_patch-sub" => {
                    (Some(session), Some(agent))
                }
                "SessionEnd" => (None, None),
                _ => continue,
            };
            let held = leases(&repository);
            let of = |file: &str| held.get(file).cloned();
            assert_eq!((of("leased/x"), of("leased/s")), expected, "{name} {label}");
        }
    }
    assert!(seen > 50, "{seen} events");
}
