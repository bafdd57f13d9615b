//! Codex.

use super::{
    Caller, Files, Host, KEYS, Keys, Pattern, Reach, Rewritten, Roots, Rules, Ruling, Tells, Tool,
};
use super::{Written, event, files_in, name_of};
use crate::args::value::AgentHost;
use serde_json::Value;
use std::path::PathBuf;

pub(super) static HOST: Host = Host {
    name: "Codex",
    oldest: (
        [0, 160, 1],
        "an older one may drop what a hook writes, and its commands run without their locks",
    ),
    events: &[
        event("PreToolUse", Tells::Before, 10),
        event("PostToolUse", Tells::After, 10),
        event("Stop", Tells::Rests, 10),
        event("Interrupt", Tells::Rests, 3),
        event("SubagentStop", Tells::AgentEnds, 10),
        event("SessionStart", Tells::Begins, 10),
        // Codex gives this event 3 s at most, and warns at each start of a hook that asks for more.
        event("SessionEnd", Tells::Ends, 3),
    ],
    keys: &Keys {
        patches: &["command", "input", "patch"],
        ..KEYS
    },
    unfinished: &[],
    tools: &[("Bash", Tool::Shell), ("apply_patch", Tool::Patch)],
    // Only Codex numbers turns.
    sends: |value| {
        let is_its = |path: &str| name_of(path).starts_with("rollout-");
        value("turn_id").is_some() || value("transcript_path").is_some_and(is_its)
    },
    allows_new_input: true,
    asks: false,
    limit: None,
    caller: Caller::Agent {
        session: "sessionId",
        thread: "threadId",
    },
    files: &Files {
        variable: "CODEX_HOME",
        folder: ".codex",
        hooks: "hooks.json",
        beside: None,
        server: |reach, at| Some(AgentHost::Codex.folder(reach, at).join("config.toml")),
        users_servers: None,
        skills: Some(".agents"),
        are_in_main: true,
    },
    has_shell: true,
    rules: &Rules {
        files: files_of_rules,
        read,
        mend,
    },
    next: |reach| match reach {
        Reach::Project => {
            "start Codex in this project, trust the project, and trust the hooks with /hooks: until then none runs"
        }
        Reach::User => "start Codex and trust the hooks with /hooks: until then none runs",
    },
    without_plugin: "codex plugin remove tenure@tenure",
};

/// The variables that Codex gives each server (`codex-rs/rmcp-client`, read on 2026-11-30).
pub(crate) const GIVEN: [&str; 10] = [
    "HOME", "LOGNAME", "PATH", "SHELL", "USER", "LANG", "LC_ALL", "TERM", "TMPDIR", "TZ",
];

fn files_of_rules(roots: &Roots, projects: &[PathBuf]) -> Vec<PathBuf> {
    let mut folders = vec![PathBuf::from("/etc/codex"), roots.own(AgentHost::Codex)];
    folders.extend(projects.iter().map(|project| project.join(".codex")));
    let files = folders
        .iter()
        .flat_map(|folder| files_in(&folder.join("rules"), "rules"));
    files.collect()
}

/// What is allowed without a question stays so: Codex asks about nothing that a hook has written.
fn mend(list: Ruling, new: &Rewritten<'_>) -> Option<String> {
    let decision = match list {
        Ruling::Deny => "forbidden",
        Ruling::Ask => "prompt",
        Ruling::Allow => return None,
    };
    let words = [new.program, "run", new.lock].map(|word| Value::from(word).to_string());
    let words = words.join(", ");
    Some(format!(
        "add to a file of rules: prefix_rule(pattern=[{words}], decision=\"{decision}\")"
    ))
}

/// The calls of `prefix_rule` in a text of Starlark. Nothing of it is run: what is not written out may be anything.
fn read(text: &str) -> Vec<Written> {
    const CALL: &str = "prefix_rule(";
    let plain = on_one_line(text);
    let calls = plain.match_indices(CALL).map(|(at, _)| {
        let given = plain.get(at + CALL.len()..).unwrap_or_default();
        let mut depth = 0_i32;
        let end = outside_of_strings(given).find(|(_, c)| {
            depth += i32::from(matches!(c, '(')) - i32::from(matches!(c, ')'));
            depth < 0
        });
        let given = given.get(..end.map_or(given.len(), |(at, _)| at));
        let given = given.unwrap_or_default().trim().trim_end_matches(',');
        // Names and values that are written out are TOML as well. The first value may stand without its name.
        let first = if given.starts_with('[') {
            "pattern = "
        } else {
            ""
        };
        let given: Option<toml::Table> = format!("call = {{ {first}{given} }}").parse().ok();
        let value = |name: &str| given.as_ref()?.get("call")?.get(name);
        let ruling = match value("decision").map(|word| word.as_str()) {
            None if given.is_some() => Ruling::Allow,
            Some(Some("allow")) => Ruling::Allow,
            Some(Some("prompt")) => Ruling::Ask,
            None | Some(_) => Ruling::Deny,
        };
        let words = value("pattern").and_then(words_of);
        let shown = words.iter().flatten().map(|ways| ways.join("|"));
        let shown = shown.collect::<Vec<_>>().join(" ");
        (
            ruling,
            format!("prefix_rule({shown})"),
            Pattern::Words(words),
        )
    });
    calls.collect()
}

/// The words of a pattern; a list stands for each of its words.
fn words_of(pattern: &toml::Value) -> Option<Vec<Vec<String>>> {
    let text = |word: &toml::Value| word.as_str().map(str::to_owned);
    let ways = |word: &toml::Value| match word.as_array() {
        Some(ways) => ways.iter().map(text).collect(),
        None => text(word).map(|word| vec![word]),
    };
    pattern.as_array()?.iter().map(ways).collect()
}

/// The text without its comments, and with blanks for the ends of lines.
fn on_one_line(text: &str) -> String {
    let mut plain = text.to_owned();
    let comments = outside_of_strings(text).filter(|(_, c)| matches!(c, '#' | '\n'));
    let mut comments: Vec<(usize, char)> = comments.collect();
    comments.reverse();
    for (at, c) in comments {
        let rest = text.get(at..).unwrap_or_default();
        let length = if c == '#' {
            rest.find('\n').unwrap_or(rest.len())
        } else {
            1
        };
        plain.replace_range(at..at + length, " ");
    }
    plain
}

/// The characters of a text of Starlark that stand in no string and in no comment, but for the sign that begins one.
fn outside_of_strings(text: &str) -> impl Iterator<Item = (usize, char)> {
    let (mut within, mut from) = (None::<&str>, 0);
    text.char_indices().filter(move |&(at, c)| {
        let rest = text.get(at..).unwrap_or_default();
        if at < from {
            return false;
        }
        match within {
            Some(end) if rest.starts_with(end) => {
                from = at + end.len();
                within = None;
            }
            Some("\n") => {}
            Some(_) if c == '\\' => from = at + 1 + rest.chars().nth(1).map_or(0, char::len_utf8),
            Some(_) => {}
            None if c == '#' => {
                within = Some("\n");
                return true;
            }
            None => {
                let begins = ["\"\"\"", "'''", "\"", "'"].into_iter();
                within = begins.clone().find(|begin| rest.starts_with(begin));
                from = at + within.map_or(0, str::len);
                return within.is_none();
            }
        }
        // The end of a comment is an end of a line, too.
        c == '\n' && within.is_none()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_read_as_one_line_without_its_comments() {
        let plain = on_one_line("a # b 'c\nd '#\\'e' \"\"\"x\n#\"\"\" # f");
        assert_eq!(plain, "a   d '#\\'e' \"\"\"x\n#\"\"\"  ");
    }
}
