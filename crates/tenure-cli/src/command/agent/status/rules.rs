//! What the person's own rules make of a rewritten command.
//!
//! A host judges its rules by the command that a hook has written, which begins with `tenure run`. So what was allowed is asked
//! about, and what a rule may stop gets no prefix (`permissions`).
//!
//! A rule for the rewritten command names all of it but the agent's key and the time, as the hook itself writes it. It is
//! printed and never written: what is allowed is the user's to say.

use crate::args::value::AgentHost;
use crate::command::agent::form::prefix;
use crate::command::agent::permissions::{self, CommandText, Permission};
use crate::host::{Rewritten, Ruling};
use crate::render::clean;
use crate::render::findings::Findings;
use crate::request::Agent;
use tenure_engine::config::{CommandRule, How, OnError};
use tenure_store::advice;

pub(super) fn look(call: &Agent, report: &mut Findings) {
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
    let persons = permissions::of(call.host, &call.roots.project);
    let rewritten = config.agent.commands.iter();
    for rule in rewritten.filter(|rule| rule.how == How::Rewrite) {
        for words in &rule.matches {
            of_command(call.host, rule, words.words(), &persons, report);
        }
    }
}

/// For which commands and files there are rules, as people read it.
pub(super) fn all(call: &Agent) -> String {
    let files = call.config.iter().flat_map(|config| config.files());
    let (mut commands, mut paths) = (Vec::new(), Vec::new());
    for file in files {
        for rule in &file.agent.commands {
            let words = rule.matches.iter().map(|words| words.words().join(" "));
            let words: Vec<String> = words.collect();
            commands.push(format!("{} (lock {})", words.join(", "), rule.lock));
        }
        let globs = file.agent.paths.iter().flat_map(|rule| &rule.matches);
        paths.extend(globs.map(|glob| glob.as_str().to_owned()));
    }
    let all = [("commands", commands), ("files", paths)].into_iter();
    let all = all.filter(|(_, all)| !all.is_empty());
    let all: Vec<String> = all
        .map(|(what, all)| format!("{what} {}", clean(&all.join("; "))))
        .collect();
    if all.is_empty() {
        return "nothing: no tenure.toml has a rule for agents here".to_owned();
    }
    all.join("; ")
}

/// The rules about the commands that begin with these words.
fn of_command(
    host: AgentHost,
    rule: &CommandRule,
    words: &[String],
    persons: &[Permission],
    report: &mut Findings,
) {
    let (lock, command) = (rule.lock.as_str(), words.join(" "));
    let (table, name) = (host.table(), host.table().name);
    let program = advice::path();
    let closed = rule.on_error == OnError::Closed;
    let any = prefix(&advice::word(&program), rule, closed, "*", "*");
    let mend = |list| {
        let rewritten = Rewritten {
            program: &program,
            lock,
            prefix: &any,
            command: &command,
        };
        (table.rules.mend)(list, &rewritten)
    };
    // As the hook writes it, alone and with more words.
    let new = prefix(&advice::word(&program), rule, closed, "k", "1s");
    let new = ["", " x"].map(|more| CommandText::of(&format!("{new}{command}{more}")));
    for list in [Ruling::Deny, Ruling::Ask, Ruling::Allow] {
        let is_about = |person: &&Permission| person.ruling == list && person.is_about(words);
        let Some(person) = persons.iter().find(is_about) else {
            continue;
        };
        let Some(fix) = mend(list) else { continue };
        let is_there = |new: &CommandText| {
            let mut as_strict = persons.iter().filter(|person| person.ruling == list);
            as_strict.any(|person| person.fits(new))
        };
        if new.iter().all(is_there) {
            continue;
        }
        let then = match list {
            Ruling::Allow => {
                format!("is not about `{command}` as the hook writes it, so {name} asks")
            }
            Ruling::Ask if table.asks => format!(
                "may be about `{command}`, so the hook has {name} ask before it runs under {lock}"
            ),
            Ruling::Deny | Ruling::Ask => {
                let then = if closed {
                    "is refused"
                } else {
                    "runs without its lock where that rule lets it run"
                };
                format!("may be about `{command}`: such a command gets no prefix, and {then}")
            }
        };
        report.note("rules", format!("{} {then}", person.told()), fix);
    }
    let allowing = mend(Ruling::Allow).map_or_else(String::new, |line| {
        format!(
            "; to have it allowed, though each * fits any words, and so another command: {line}"
        )
    });
    report.ok("rules", format!("`{command}` runs under {lock}{allowing}"));
}
