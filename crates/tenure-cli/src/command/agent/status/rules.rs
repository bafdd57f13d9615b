//! Rules of permission that a rewritten command escapes.
//!
//! Claude Code judges its rules by the command that a hook has written. That begins with `tenure run`, so a rule
//! about `cargo test` is not about it any more: what was denied is not, and what was allowed is asked about.
//!
//! A rule that allows the rewritten command names all of it but the agent's key and the time. It is printed and
//! never written: what is allowed is the user's to say.

use super::{Layer, Report};
use crate::request::Agent;
use serde_json::Value;
use tenure_engine::config::{CommandRule, How};

/// The lists of rules, and whether a call goes on where a rule of the list is missed.
const LISTS: [(&str, bool); 3] = [("deny", true), ("ask", true), ("allow", false)];

pub(super) fn look(call: &Agent, layers: &[Layer], report: &mut Report) {
    let config = match &call.config {
        Ok(config) => config,
        Err(failure) => {
            report.wrong(
                "rules",
                format!("tenure.toml cannot be used: {}", failure.message),
                "mend it: until then hooks take no lock",
            );
            return;
        }
    };
    if config.agent.is_empty() {
        report.note(
            "rules",
            "no tenure.toml has a rule for agents here, so the hooks change nothing",
            "add [[agent.command]] or [[agent.path]] to tenure.toml",
        );
        return;
    }
    let rewritten = config.agent.commands.iter();
    for rule in rewritten.filter(|rule| rule.how == How::Rewrite) {
        for words in &rule.matches {
            of_command(rule, words.words(), layers, report);
        }
    }
}

/// The rules about the commands that begin with these words.
fn of_command(rule: &CommandRule, words: &[String], layers: &[Layer], report: &mut Report) {
    let (lock, command) = (rule.lock.as_str(), words.join(" "));
    let slots = rule
        .slots
        .map_or_else(String::new, |slots| format!(" --slots {slots}"));
    let allowing =
        format!("Bash(tenure run {lock}{slots} --as * --wait * --ticket auto -- {command} *)");
    let stopping = format!("Bash(tenure run {lock} * -- {command} *)");
    for (list, is_missed) in LISTS {
        let needed = if is_missed { &stopping } else { &allowing };
        for layer in layers {
            let rules = rules_of(&layer.document, list);
            let Some(hidden) = rules.iter().find(|rule| is_about(rule, words)) else {
                continue;
            };
            if layers
                .iter()
                .any(|layer| rules_of(&layer.document, list).contains(&needed.as_str()))
            {
                continue;
            }
            let said = format!(
                "{}: the {list} rule {hidden} is not about `{command}` as the hook writes it",
                layer.shown
            );
            let fix = format!("add to permissions.{list}: \"{needed}\"");
            if is_missed {
                report.wrong("rules", said, fix);
            } else {
                report.note("rules", format!("{said}, so Claude Code asks"), fix);
            }
        }
    }
    report.ok(
        "rules",
        format!(
            "`{command}` runs under {lock}; a rule that allows it (each * fits any words, so an agent could put \
             another command there): {allowing}"
        ),
    );
}

fn rules_of<'a>(document: &'a Value, list: &str) -> Vec<&'a str> {
    let rules = document
        .get("permissions")
        .and_then(|all| all.get(list)?.as_array());
    let rules = rules.into_iter().flatten();
    rules.filter_map(Value::as_str).collect()
}

/// Whether a rule is about commands that begin with these words, or about some of them.
fn is_about(rule: &str, words: &[String]) -> bool {
    let pattern = rule
        .strip_prefix("Bash(")
        .and_then(|rest| rest.strip_suffix(')'));
    let Some(pattern) = pattern else {
        return false;
    };
    let pattern = pattern
        .strip_suffix(":*")
        .or_else(|| pattern.strip_suffix('*'))
        .unwrap_or(pattern);
    let mut both = pattern.split_whitespace().zip(words).peekable();
    both.peek().is_some() && both.all(|(one, other)| one == other)
}

#[cfg(test)]
mod tests {
    use super::is_about;

    #[test]
    fn a_rule_is_about_a_command_if_one_begins_with_the_other() {
        let words = ["cargo".to_owned(), "test".to_owned()];
        for rule in [
            "Bash(cargo *)",
            "Bash(cargo:*)",
            "Bash(cargo test)",
            "Bash(cargo test --doc *)",
        ] {
            assert!(is_about(rule, &words), "{rule}");
        }
        for rule in [
            "Bash(cargo build *)",
            "Bash(tenure run b -- cargo test)",
            "Bash",
            "Read(cargo test)",
            "Bash(*)",
        ] {
            assert!(!is_about(rule, &words), "{rule}");
        }
    }
}
