//! The person's own rules for commands, as hosts keep them.
//!
//! A host judges them by the command that a hook has written. That one begins with tenure, so a rule about the command is not
//! about it any more. So the hook looks for what **may** fit the command as it was: such a command gets no prefix, or the
//! person is asked. What is missed would be allowed by tenure; what is found needlessly takes no lock, and is said.
//!
//! A rule that **certainly** fits the new command as well makes the prefix harmless.
//!
//! | host | files | a rule |
//! |---|---|---|
//! | Claude Code | `settings.json` and `settings.local.json` of the user, the project and the main checkout; the managed ones | `Bash(make *)` in the lists `deny`, `ask`, `allow` |
//! | Codex | `rules/*.rules` of the user, the system, the project and the main checkout | `prefix_rule(pattern=["make"], decision="forbidden")` |
//!
//! What a flag of the host says, or a person within a session, no file tells.

use super::files::text_of;
use crate::args::value::AgentHost;
use crate::host::{Pattern, Roots, Ruling};
use crate::render::clean_path;
use std::path::{Path, PathBuf};
use tenure_engine::shell::{self, Line};

/// A rule of the person.
#[derive(Debug)]
pub(in crate::command) struct Permission {
    pub(in crate::command) ruling: Ruling,
    /// As it is written; of Codex its decision and pattern.
    text: String,
    file: PathBuf,
    pattern: Pattern,
}

/// A simple command, and what it runs behind programs that only run another one.
pub(in crate::command) struct CommandText {
    text: String,
    /// The words of each, its own first.
    views: Vec<Vec<String>>,
}

impl CommandText {
    /// A text that a host may compare as a whole, whatever stands in it.
    pub(in crate::command) fn whole(text: &str) -> Self {
        Self {
            text: text.trim().to_owned(),
            views: Vec::new(),
        }
    }

    pub(in crate::command) fn of(text: &str) -> Self {
        let mut views = Vec::new();
        if let Line::Plain(commands) = shell::read(text) {
            for command in commands {
                let words = command.words.iter().map(|word| word.shown.as_str());
                let words: Vec<&str> = words.collect();
                views.push(owned(&words));
                shell::each(&words, &Vec::new, &mut |seen| views.push(owned(seen.words)));
            }
        }
        Self {
            views,
            ..Self::whole(text)
        }
    }
}

fn owned(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

impl Permission {
    /// The rule in a sentence.
    pub(in crate::command) fn told(&self) -> String {
        format!(
            "the {} rule {} of {}",
            self.ruling.word(),
            self.text,
            clean_path(&self.file)
        )
    }

    /// Whether the host may take the rule for one about this command.
    pub(in crate::command) fn may_fit(&self, command: &CommandText) -> bool {
        match &self.pattern {
            Pattern::Text(pattern) => {
                let views = command.views.iter().map(|view| view.join(" "));
                let mut texts = std::iter::once(command.text.clone()).chain(views);
                texts.any(|text| may_be(pattern, &text))
            }
            Pattern::Words(None) => !command.views.is_empty(),
            Pattern::Words(Some(words)) => {
                command.views.iter().any(|view| begins_with(view, words))
            }
        }
    }

    /// Whether the rule is about this command, whatever the host makes of it.
    pub(in crate::command) fn fits(&self, command: &CommandText) -> bool {
        match &self.pattern {
            Pattern::Text(pattern) => is_like(&with_stars(pattern), &command.text),
            Pattern::Words(words) => {
                let own = command.views.first();
                let both = own.zip(words.as_ref());
                both.is_some_and(|(own, words)| begins_with(own, words))
            }
        }
    }

    /// Whether the rule is about some commands that begin with these words.
    pub(in crate::command) fn is_about(&self, words: &[String]) -> bool {
        match &self.pattern {
            Pattern::Text(pattern) => {
                let begin = pattern.strip_suffix(":*").or(pattern.strip_suffix('*'));
                let pattern = begin.unwrap_or(pattern);
                let mut both = pattern.split_whitespace().zip(words).peekable();
                both.peek().is_some() && both.all(|(one, other)| one == other)
            }
            Pattern::Words(None) => true,
            Pattern::Words(Some(pattern)) => {
                let mut both = pattern.iter().zip(words);
                both.all(|(one, other)| one.contains(other))
            }
        }
    }
}

/// The strictest rule that a command would escape by its new form. `may_fit` says of the rule with a number whether it may be
/// about the command as it was.
pub(in crate::command) fn escaped<'a>(
    rules: &'a [Permission],
    may_fit: impl Fn(usize, &Permission) -> bool,
    new: &CommandText,
) -> Option<&'a Permission> {
    let stops = |rule: &&Permission| rule.ruling != Ruling::Allow;
    let found = rules
        .iter()
        .enumerate()
        .filter(|(at, rule)| stops(rule) && may_fit(*at, rule));
    let (_, first) = found.min_by_key(|(_, rule)| rule.ruling != Ruling::Deny)?;
    let as_strict = |rule: &&Permission| rule.ruling == Ruling::Deny || rule.ruling == first.ruling;
    let mut kept = rules.iter().filter(stops).filter(as_strict);
    (!kept.any(|rule| rule.fits(new))).then_some(first)
}

/// `Bash(make:*)` is about what begins with `make`.
fn with_stars(pattern: &str) -> String {
    match pattern.strip_suffix(":*") {
        Some(begin) => format!("{begin} *"),
        None => pattern.to_owned(),
    }
}

fn may_be(pattern: &str, text: &str) -> bool {
    if let Some(begin) = pattern.strip_suffix(":*") {
        return text.starts_with(begin) || is_like(&format!("{begin}*"), text);
    }
    let without = pattern.strip_suffix(" *");
    is_like(pattern, text) || without.is_some_and(|without| is_like(without, text))
}

/// Whether a text is like a pattern in which `*` stands for any text.
fn is_like(pattern: &str, text: &str) -> bool {
    wildmatch::WildMatchPattern::<'*', '\0'>::new(pattern).matches(text)
}

/// Whether a command begins with the words of a rule. Its program may be named by a path.
fn begins_with(command: &[String], words: &[Vec<String>]) -> bool {
    let fits = |(at, ways): (usize, &Vec<String>)| {
        command.get(at).is_some_and(|word| {
            let name = if at == 0 { shell::program(word) } else { word };
            ways.iter().any(|way| way == word || way == name)
        })
    };
    words.iter().enumerate().all(fits)
}

/// The rules that may count for a call in this folder. What a file says that cannot be read, its host does not know either.
pub(in crate::command) fn of(host: AgentHost, folder: &Path) -> Vec<Permission> {
    let Some(roots) = Roots::around(folder) else {
        return Vec::new();
    };
    let mut projects = vec![roots.project.clone(), roots.main.clone()];
    projects.dedup();
    let own = host.table().rules;
    let files = (own.files)(&roots, &projects).into_iter();
    let texts = files.filter_map(|file| Some((text_of(&file).ok()??, file)));
    let rules = texts.flat_map(|(text, file)| {
        let rules = (own.read)(text.trim_start_matches('\u{feff}')).into_iter();
        rules.map(move |(ruling, text, pattern)| Permission {
            ruling,
            text,
            file: file.clone(),
            pattern,
        })
    });
    rules.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::Written;

    fn of_claude(text: &str) -> Vec<Written> {
        (AgentHost::Claude.table().rules.read)(text)
    }

    fn of_codex(text: &str) -> Vec<Written> {
        (AgentHost::Codex.table().rules.read)(text)
    }

    fn rules(found: Vec<Written>) -> Vec<Permission> {
        let rules = found.into_iter().map(|(ruling, text, pattern)| Permission {
            ruling,
            text,
            file: "/f".into(),
            pattern,
        });
        rules.collect()
    }

    /// The list of the rule that the command would escape.
    fn judged(rules: &[Permission], command: &str) -> Option<Ruling> {
        let new = CommandText::of(&format!("/x/tenure run b --as k -- {command}"));
        let old = CommandText::of(command);
        escaped(rules, |_, rule| rule.may_fit(&old), &new).map(|rule| rule.ruling)
    }

    #[test]
    fn a_rule_of_claude_that_may_fit_is_found() {
        for (rule, command, expected) in [
            ("Bash(make quick)", "make quick", true),
            ("Bash(make quick)", "make quick -j2", false),
            ("Bash(make:*)", "make quick", true),
            ("Bash(make:*)", "timeout 5 make quick", true),
            ("Bash(make *)", "make", true),
            ("Bash(make *)", "env A=1 nice make x", true),
            ("Bash(* quick -j2)", "make quick", false),
            ("Bash(make *ck)", "make quick", true),
            ("Bash(make 'a b')", "make 'a b'", true),
            ("Bash(git * main)", "make quick", false),
            ("Bash(maker:*)", "make quick", false),
            ("Read(make)", "make", false),
            ("Bash", "make", false),
            ("Bash(*)", "make", false),
            ("Bash(*make*)", "make", false),
            // The rule is about the new command as well.
            ("Bash(* quick)", "make quick", false),
            ("Bash(/x/tenure run b *)", "make", false),
        ] {
            let text = serde_json::json!({"permissions": {"deny": [rule]}}).to_string();
            let rules = rules(of_claude(&text));
            assert_eq!(
                judged(&rules, command).is_some(),
                expected,
                "{rule} {command}"
            );
        }
        let both = "{\"permissions\": {\"deny\": [\"Bash(make quick)\", \"Bash(/x/tenure run b * -- make quick)\"],
                     \"ask\": [\"Bash(make:*)\"], \"allow\": [\"Bash(ls)\"]}}";
        let rules = rules(of_claude(both));
        assert_eq!(
            judged(&rules, "make quick"),
            None,
            "a rule for the new form"
        );
        assert_eq!(judged(&rules, "make slow"), Some(Ruling::Ask));
        assert_eq!(
            judged(&rules, "ls"),
            None,
            "what is allowed is the host's to ask about"
        );
        assert_eq!(of_claude("{"), []);
    }

    #[test]
    fn a_rule_of_codex_is_read_as_far_as_it_is_written_out() {
        let text = "# prefix_rule(pattern=[\"no\"], decision=\"forbidden\")\n\
            prefix_rule(\n    pattern = [\"make\", [\"quick\", 'slow']], # why\n    decision = \"forbidden\",\n\
            \x20   match = [[\"make\", \"quick\"]],\n)\n\
            prefix_rule(pattern=[\"cargo\"], decision='prompt', justification=\"\"\"a ) \"b\" \"\"\")\n\
            prefix_rule([\"ls\"],)\nprefix_rule(pattern=[\"rm\"], decision=\"forbidden\", match=[\"rm #)\"],)\n";
        let rules_of = |text: &str| rules(of_codex(text));
        let rules = rules_of(text);
        assert_eq!(rules.len(), 4, "{rules:?}");
        for (command, expected) in [
            ("make quick", Some(Ruling::Deny)),
            ("/usr/bin/make slow -j2", Some(Ruling::Deny)),
            ("make", None),
            ("make other", None),
            ("cargo test", Some(Ruling::Ask)),
            ("timeout 5 cargo test", Some(Ruling::Ask)),
            ("ls", None),
            ("rm x", Some(Ruling::Deny)),
            ("no", None),
        ] {
            assert_eq!(judged(&rules, command), expected, "{command}");
        }
        // What is put together when the rules are read may be about anything.
        for text in [
            "prefix_rule(pattern=[name], decision=\"forbidden\")",
            "prefix_rule(pattern=words, decision=how)",
            "[prefix_rule(pattern=[\"a\" + b], decision=\"prompt\") for b in c]",
        ] {
            assert!(judged(&rules_of(text), "make").is_some(), "{text}");
        }
        let kept = "prefix_rule(pattern=[\"make\"], decision=\"prompt\")\n\
                    prefix_rule(pattern=[\"/x/tenure\", \"run\", \"b\"], decision=\"prompt\")";
        assert_eq!(judged(&rules_of(kept), "make"), None);
    }

    #[test]
    fn a_rule_is_about_a_command_if_one_begins_with_the_other() {
        let words = ["cargo".to_owned(), "test".to_owned()];
        for (rule, expected) in [
            ("Bash(cargo *)", true),
            ("Bash(cargo:*)", true),
            ("Bash(cargo test)", true),
            ("Bash(cargo test --doc *)", true),
            ("Bash(cargo build *)", false),
            ("Bash(tenure run b -- cargo test)", false),
            ("Bash", false),
            ("Bash(*)", false),
        ] {
            let text = serde_json::json!({"permissions": {"deny": [rule]}}).to_string();
            let rules = rules(of_claude(&text));
            assert_eq!(
                rules.iter().any(|rule| rule.is_about(&words)),
                expected,
                "{rule}"
            );
        }
    }
}
