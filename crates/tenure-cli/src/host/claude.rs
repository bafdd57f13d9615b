//! Claude Code.

use super::{
    Caller, Files, Host, KEYS, Keys, Limit, Pattern, Reach, Rewritten, Roots, Rules, Ruling,
};
use super::{Tells, Tool, Written, event, files_in, name_of};
use crate::args::value::AgentHost;
use serde_json::Value;
use std::path::{Path, PathBuf};
use tenure_store::advice;

pub(super) static HOST: Host = Host {
    name: "Claude Code",
    oldest: (
        [2, 1, 139],
        "an older one drops the arguments of a hook, so its hooks work by what the event tells alone",
    ),
    events: &[
        event("PreToolUse", Tells::Before, 10),
        event("PostToolUse", Tells::After, 10),
        event("PostToolUseFailure", Tells::Failed, 10),
        event("Stop", Tells::Rests, 10),
        event("SubagentStop", Tells::AgentEnds, 10),
        event("SessionStart", Tells::Begins, 10),
        event("SessionEnd", Tells::Ends, 10),
    ],
    keys: &Keys {
        files: &["file_path", "notebook_path"],
        ..KEYS
    },
    unfinished: &[
        "/tool_response/interrupted",
        "/tool_response/backgroundTaskId",
        "/is_interrupt",
        "/tool_input/run_in_background",
    ],
    tools: &[
        ("Bash", Tool::Shell),
        ("Edit", Tool::Edit),
        ("Write", Tool::Edit),
        ("MultiEdit", Tool::Edit),
        ("NotebookEdit", Tool::Edit),
    ],
    sends: |value| {
        let session = value("session_id").filter(|session| !session.is_empty());
        let file = value("transcript_path").and_then(|path| name_of(path).strip_suffix(".jsonl"));
        session.is_some() && file == session
    },
    allows_new_input: false,
    asks: true,
    limit: Some(&Limit {
        usual: (120_000, "BASH_DEFAULT_TIMEOUT_MS"),
        most: (600_000, "BASH_MAX_TIMEOUT_MS"),
        of_shell: "timeout",
        of_others: "timeout_ms",
        background: "run_in_background",
    }),
    caller: Caller::Call("claudecode/toolUseId"),
    files: &Files {
        variable: "CLAUDE_CONFIG_DIR",
        folder: ".claude",
        hooks: "settings.json",
        beside: Some("settings.local.json"),
        server: |reach, at| (reach == Reach::Project).then(|| at.project.join(".mcp.json")),
        users_servers: Some(servers_file),
        skills: None,
        are_in_main: false,
    },
    has_shell: false,
    rules: &Rules {
        files: files_of_rules,
        read,
        mend: |list, new| {
            Some(format!(
                "add to permissions.{}: {}",
                list.word(),
                rule(list, new)
            ))
        },
    },
    next: |reach| match reach {
        Reach::Project => "start Claude Code anew and approve the server `tenure`",
        Reach::User => "start Claude Code anew",
    },
    without_plugin: "claude plugin uninstall tenure",
};

/// The file in which Claude Code keeps its user's servers. Only Claude Code writes it, and it looks at its variable alone: a
/// variable that names the usual folder leads to another file than none.
fn servers_file(roots: &Roots) -> PathBuf {
    let named = Roots::named(AgentHost::Claude);
    named.as_ref().unwrap_or(&roots.home).join(".claude.json")
}

fn files_of_rules(roots: &Roots, projects: &[PathBuf]) -> Vec<PathBuf> {
    let managed = Path::new(if cfg!(target_os = "macos") {
        "/Library/Application Support/ClaudeCode"
    } else {
        "/etc/claude-code"
    });
    let mut files = vec![managed.join("managed-settings.json")];
    files.extend(files_in(&managed.join("managed-settings.d"), "json"));
    files.push(roots.own(AgentHost::Claude).join("settings.json"));
    // The folder in which a session began, as it tells its hooks.
    let named = Roots::named_by("CLAUDE_PROJECT_DIR").filter(|named| !projects.contains(named));
    for project in projects.iter().chain(&named) {
        let own = project.join(".claude");
        files.extend(["settings.json", "settings.local.json"].map(|name| own.join(name)));
    }
    files
}

fn read(text: &str) -> Vec<Written> {
    let document: Value = serde_json::from_str(text).unwrap_or_default();
    let list = |list: Ruling| {
        let rules = document
            .get("permissions")
            .and_then(|all| all.get(list.word()));
        let rules = rules.and_then(Value::as_array).into_iter().flatten();
        rules.filter_map(move |rule| {
            let rule = rule.as_str()?;
            let within = match rule.strip_prefix("Bash")? {
                "" | "()" => "*",
                more => more.strip_prefix('(')?.strip_suffix(')')?,
            };
            Some((
                list,
                rule.to_owned(),
                Pattern::Text(within.trim().to_owned()),
            ))
        })
    };
    let lists = [Ruling::Deny, Ruling::Ask, Ruling::Allow].map(list);
    lists.into_iter().flatten().collect()
}

/// The rules about a command, and about it with more words. In a pattern with several `*` the last one stands for something.
fn rule(list: Ruling, new: &Rewritten<'_>) -> String {
    let (command, lock) = (new.command, new.lock);
    let command = if list == Ruling::Allow {
        format!("{}{command}", new.prefix)
    } else {
        format!("{} run {lock} * -- {command}", advice::word(new.program))
    };
    format!("\"Bash({command})\", \"Bash({command} *)\"")
}
