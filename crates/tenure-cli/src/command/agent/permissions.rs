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
use crate::args::AgentHost as Host;
use crate::render::clean_path;
use crate::request::Roots;
use serde_json::Value;
use std::path::{Path, PathBuf};
use tenure_engine::repository;
use tenure_engine::shell::{self, Line};

/// What a rule does with a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::command) enum Ruling {
    Deny,
    Ask,
    Allow,
}

impl Ruling {
    /// As Claude Code calls it.
    pub(in crate::command) fn word(self) -> &'static str {
        match self {
            Self::Deny => "deny",
            Self::Ask => "ask",
            Self::Allow => "allow",
        }
    }
}

/// A rule of the person.
#[derive(Debug)]
pub(in crate::command) struct Permission {
    pub(in crate::command) ruling: Ruling,
    /// As it is written; of Codex its decision and pattern.
    text: String,
    file: PathBuf,
    pattern: Pattern,
}

#[derive(Debug, PartialEq, Eq)]
enum Pattern {
    /// A text in which `*` stands for any.
    Text(String),
    /// The first words, for each of them several. `None` where they are not written out.
    Words(Option<Vec<Vec<String>>>),
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

/// The rules that may count for a call in this folder.
pub(in crate::command) fn of(host: Host, folder: &Path) -> Vec<Permission> {
    let Some(roots) = Roots::around(folder) else {
        return Vec::new();
    };
    let main = repository::common_folder(folder).ok();
    let main = main.as_deref().and_then(Path::parent).map(Path::to_owned);
    let named = Roots::project_of_claude().filter(|_| host == Host::Claude);
    let mut projects = vec![roots.project.clone()];
    for project in main.into_iter().chain(named) {
        if !projects.contains(&project) {
            projects.push(project);
        }
    }
    match host {
        Host::Claude => {
            let managed = Path::new(if cfg!(target_os = "macos") {
                "/Library/Application Support/ClaudeCode"
            } else {
                "/etc/claude-code"
            });
            let mut files = vec![managed.join("managed-settings.json")];
            files.extend(files_in(&managed.join("managed-settings.d"), "json"));
            files.push(roots.claude.join("settings.json"));
            for project in projects {
                let own = project.join(".claude");
                files.extend(["settings.json", "settings.local.json"].map(|name| own.join(name)));
            }
            rules_in(&files, of_claude)
        }
        Host::Codex => {
            let mut folders = vec![PathBuf::from("/etc/codex"), roots.codex];
            folders.extend(projects.iter().map(|project| project.join(".codex")));
            let folders = folders.iter().map(|folder| folder.join("rules"));
            let files: Vec<_> = folders
                .flat_map(|folder| files_in(&folder, "rules"))
                .collect();
            rules_in(&files, of_codex)
        }
    }
}

fn files_in(folder: &Path, ending: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    files.retain(|file| file.extension().is_some_and(|is| is == ending));
    files.sort();
    files
}

/// What a file says that cannot be read, its host does not know either.
fn rules_in(
    files: &[PathBuf],
    read: fn(&str) -> Vec<(Ruling, String, Pattern)>,
) -> Vec<Permission> {
    let texts = files
        .iter()
        .filter_map(|file| Some((file, text_of(file).ok()??)));
    let rules = texts.flat_map(|(file, text)| {
        let rules = read(text.trim_start_matches('\u{feff}')).into_iter();
        rules.map(|(ruling, text, pattern)| Permission {
            ruling,
            text,
            file: file.clone(),
            pattern,
        })
    });
    rules.collect()
}

fn of_claude(text: &str) -> Vec<(Ruling, String, Pattern)> {
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

/// The calls of `prefix_rule` in a text of Starlark. Nothing of it is run: what is not written out may be anything.
fn of_codex(text: &str) -> Vec<(Ruling, String, Pattern)> {
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

    fn rules(found: Vec<(Ruling, String, Pattern)>) -> Vec<Permission> {
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
        let plain = on_one_line("a # b 'c\nd '#\\'e' \"\"\"x\n#\"\"\" # f");
        assert_eq!(plain, "a   d '#\\'e' \"\"\"x\n#\"\"\"  ");
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
