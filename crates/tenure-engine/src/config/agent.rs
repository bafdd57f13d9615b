//! What `tenure.toml` says about AI agents: commands that run under a lock, and paths that need a lease.
//!
//! ```toml
//! [[agent.command]]
//! match = ["cargo test", "cargo build"]
//! lock = "build"
//!
//! [[agent.path]]
//! match = ["migrations/**"]
//! ```
//!
//! Each value is read here, as the file is read: a rule that could not be obeyed is a mistake of the file, and its
//! line is named. Which rule a call meets is decided by `tenure hook`.

use super::{Config, is_for_all_folders};
use crate::duration;
use crate::leased_path::{self, Across, PathLock};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use std::num::NonZeroU32;
use std::time::Duration;
use tenure_core::LockName;
use wildmatch::WildMatch;

/// The most slots that a rule may give a lock.
const SLOTS_MAX: u32 = 10_000;

/// The longest pattern, in bytes. Both kinds are matched in time that grows with it.
const PATTERN_BYTES_MAX: usize = 1_024;

/// The rules of one file.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AgentRules {
    /// Commands that run under a lock.
    #[serde(default, rename = "command")]
    pub commands: Vec<CommandRule>,
    /// Paths that need a lease.
    #[serde(default, rename = "path")]
    pub paths: Vec<PathRule>,
}

impl AgentRules {
    /// Whether there is no rule.
    pub fn is_empty(&self) -> bool {
        self.commands.is_empty() && self.paths.is_empty()
    }
}

impl Config {
    /// The rules about the file of a path: of each file that counts the first one that fits. The first of all counts.
    pub fn path_rules(&self, lock: &PathLock) -> Vec<&PathRule> {
        let root = leased_path::root_of(&lock.folder);
        let rules = self.files().filter_map(|file| {
            // Without a work tree, a project's paths begin beside its file.
            let is_projects = !is_for_all_folders(&file.file);
            let beside = file.file.parent().filter(|_| is_projects);
            let names = leased_path::below(root.or(beside)?, &lock.target)?;
            let mut rules = file.agent.paths.iter();
            rules.find(|rule| rule.matches.iter().any(|glob| glob.fits(&names)))
        });
        rules.collect()
    }
}

/// Commands that run under a lock.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CommandRule {
    /// The first words of the commands.
    #[serde(rename = "match", deserialize_with = "some")]
    pub matches: Vec<Words>,
    /// The lock.
    #[serde(deserialize_with = "lock")]
    pub lock: LockName,
    /// How many may hold it at a time.
    #[serde(default, deserialize_with = "slots")]
    pub slots: Option<NonZeroU32>,
    /// What is done with such a command.
    #[serde(default)]
    pub how: How,
    /// What is done if tenure itself fails, or cannot tell whether a command is one of these.
    #[serde(default = "OnError::open")]
    pub on_error: OnError,
    /// How long the command waits for the lock, in place of half the time that its call has.
    #[serde(default, deserialize_with = "wait")]
    pub wait: Option<Duration>,
    /// The file that says it, among those that count: the nearest one is 0.
    #[serde(skip)]
    pub file: usize,
}

/// Paths that need a lease.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PathRule {
    /// The paths, from the root of the work tree on.
    #[serde(rename = "match", deserialize_with = "some")]
    pub matches: Vec<Glob>,
    /// How far files of one path count as the same.
    #[serde(default, deserialize_with = "across")]
    pub across: Across,
    /// What is done if tenure itself fails.
    #[serde(default = "OnError::closed")]
    pub on_error: OnError,
    /// How long a lease lasts at most.
    #[serde(default, deserialize_with = "wait")]
    pub max_age: Option<Duration>,
    /// How long its agent may be silent.
    #[serde(default, deserialize_with = "wait")]
    pub silence: Option<Duration>,
}

/// What is done with a command that needs a lock.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum How {
    /// `tenure run` is put in front of it.
    #[default]
    Rewrite,
    /// The command is refused, and the right form is named.
    Refuse,
}

/// What is done where tenure itself fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OnError {
    /// The call goes on, with a message.
    Open,
    /// The call is refused.
    Closed,
}

impl OnError {
    fn open() -> Self {
        Self::Open
    }

    fn closed() -> Self {
        Self::Closed
    }
}

/// The first words of a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Words(Vec<String>);

impl Words {
    /// Reads words with blanks between them.
    ///
    /// # Errors
    /// - What is wrong, as the end of a sentence.
    pub fn read(text: &str) -> Result<Self, String> {
        if text.len() > PATTERN_BYTES_MAX {
            return Err(format!("it is longer than {PATTERN_BYTES_MAX} bytes"));
        }
        let words: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
        let Some(first) = words.first() else {
            return Err(
                "it is empty; write the first words of a command, as \"cargo test\"".into(),
            );
        };
        let is_special = |c: char| c.is_control() || "\"'\\`$&|;()<>{}*?[]#~!".contains(c);
        if let Some(bad) = text.chars().find(|c| is_special(*c)) {
            return Err(format!(
                "{text:?}: {bad:?} means something to a shell; write the plain first words of a command"
            ));
        }
        if first.contains('=') || first.starts_with('-') {
            return Err(format!(
                "{text:?} begins with {first:?}, which is no command"
            ));
        }
        Ok(Self(words))
    }

    /// The words.
    pub fn words(&self) -> &[String] {
        &self.0
    }
}

impl std::fmt::Display for Words {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0.join(" "))
    }
}

impl<'de> Deserialize<'de> for Words {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::read(&String::deserialize(deserializer)?).map_err(D::Error::custom)
    }
}

/// A pattern of paths. `*` and `?` stand for characters of one name, `**` for any number of folders.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Glob {
    text: String,
    parts: Vec<GlobPart>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum GlobPart {
    /// Any folders, or none; as the last part: everything below.
    Any,
    Name(String),
}

impl Glob {
    /// The pattern as it is written.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Reads one.
    ///
    /// # Errors
    /// - What is wrong, as the end of a sentence.
    pub fn read(text: &str) -> Result<Self, String> {
        if text.len() > PATTERN_BYTES_MAX {
            return Err(format!("it is longer than {PATTERN_BYTES_MAX} bytes"));
        }
        if text.trim().is_empty() {
            return Err("it is empty; write a path from the root of the work tree on".into());
        }
        if text.starts_with('/') || text.starts_with('~') {
            return Err(format!(
                "{text:?}: write it from the root of the work tree on, without /"
            ));
        }
        if text.ends_with('/') {
            return Err(format!(
                "{text:?} names a folder; write \"{text}**\" for all that is below it"
            ));
        }
        if let Some(bad) = text
            .chars()
            .find(|c| c.is_control() || "[]{}\\!".contains(*c))
        {
            return Err(format!(
                "{text:?}: {bad:?} means nothing here; there are *, ? and **"
            ));
        }
        let mut parts = Vec::new();
        for name in text.split('/') {
            match name {
                "." => {}
                "" => return Err(format!("{text:?} has a name that is empty")),
                ".." => return Err(format!("{text:?}: .. leads out of the work tree")),
                // Two in a row say what one says.
                "**" if parts.last() == Some(&GlobPart::Any) => {}
                "**" => parts.push(GlobPart::Any),
                _ if name.contains("**") => {
                    return Err(format!(
                        "{text:?}: ** is a name of its own, as in src/**/*.rs"
                    ));
                }
                _ => parts.push(GlobPart::Name(name.to_owned())),
            }
        }
        if parts.is_empty() {
            return Err(format!("{text:?} names no file"));
        }
        Ok(Self {
            text: text.to_owned(),
            parts,
        })
    }

    /// Whether a path fits: its names, from the root of the work tree on.
    ///
    /// Looks at each part with each name at most once, so no pattern keeps it busy.
    pub fn fits(&self, names: &[&str]) -> bool {
        // The numbers of names that the parts so far may have used up.
        let mut reached = vec![false; names.len() + 1];
        if let Some(first) = reached.first_mut() {
            *first = true;
        }
        let last = self.parts.len().saturating_sub(1);
        for (number, part) in self.parts.iter().enumerate() {
            let mut next = vec![false; names.len() + 1];
            match part {
                GlobPart::Any => {
                    let mut is_reached = false;
                    for (was, next) in reached.iter().zip(next.iter_mut()) {
                        // As the last part it stands for at least one name: the folder itself is none of its files.
                        *next = is_reached || (*was && number != last);
                        is_reached |= was;
                    }
                }
                GlobPart::Name(pattern) => {
                    let pattern = WildMatch::new(pattern);
                    let steps = reached.iter().zip(names).zip(next.iter_mut().skip(1));
                    for ((was, name), next) in steps {
                        *next = *was && pattern.matches(name);
                    }
                }
            }
            reached = next;
        }
        reached.last().copied().unwrap_or(false)
    }
}

impl std::fmt::Display for Glob {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.text)
    }
}

impl<'de> Deserialize<'de> for Glob {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::read(&String::deserialize(deserializer)?).map_err(D::Error::custom)
    }
}

/// A list in which something is.
fn some<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    deserializer: D,
) -> Result<Vec<T>, D::Error> {
    let list = Vec::deserialize(deserializer)?;
    if list.is_empty() {
        return Err(D::Error::custom(
            "it is empty, so the rule is about nothing",
        ));
    }
    Ok(list)
}

fn lock<'de, D: Deserializer<'de>>(deserializer: D) -> Result<LockName, D::Error> {
    let name = String::deserialize(deserializer)?;
    LockName::new(name.as_str())
        .map_err(|why| D::Error::custom(format!("{name:?} cannot be used: {why}")))
}

fn across<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Across, D::Error> {
    let word = String::deserialize(deserializer)?;
    Across::from_word(&word)
        .ok_or_else(|| D::Error::custom(format!("{word:?} is neither \"worktree\" nor \"repo\"")))
}

fn slots<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<NonZeroU32>, D::Error> {
    let slots = NonZeroU32::deserialize(deserializer)?;
    if slots.get() > SLOTS_MAX {
        return Err(D::Error::custom(format!("{SLOTS_MAX} is the most")));
    }
    Ok(Some(slots))
}

fn wait<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Duration>, D::Error> {
    let text = String::deserialize(deserializer)?;
    let read = duration::parse(&text).map_err(D::Error::custom)?;
    if read.is_zero() {
        return Err(D::Error::custom(format!(
            "{text}: it has to be longer than nothing"
        )));
    }
    Ok(Some(read))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use std::path::Path;

    fn read(text: &str) -> Result<AgentRules, String> {
        let config = Config::parse(text, Path::new("/w/tenure.toml"));
        config
            .map(|config| config.agent)
            .map_err(|error| error.to_string())
    }

    #[test]
    fn what_a_rule_leaves_out_has_its_default() {
        let rules = read(
            "[[agent.command]]\nmatch = [\"cargo  test\"]\nlock = \"build\"\n\
             [[agent.path]]\nmatch = [\"migrations/**\"]\n",
        )
        .expect("rules");
        let command = rules.commands.first().expect("a rule");
        assert_eq!(command.lock.as_str(), "build");
        assert_eq!(
            command.matches.first().map(ToString::to_string).as_deref(),
            Some("cargo test")
        );
        assert_eq!((command.slots, command.wait), (None, None));
        assert_eq!(
            (command.how, command.on_error),
            (How::Rewrite, OnError::Open)
        );
        let path = rules.paths.first().expect("a rule");
        assert_eq!(
            (path.across, path.on_error),
            (Across::Worktree, OnError::Closed)
        );
        assert_eq!((path.max_age, path.silence), (None, None));
    }

    #[test]
    fn every_key_is_read() {
        let rules = read(
            "[[agent.command]]\nmatch = [\"make\", \"npm run build\"]\nlock = \"build\"\nslots = 2\n\
             how = \"refuse\"\non_error = \"closed\"\nwait = \"90s\"\n\
             [[agent.path]]\nmatch = [\"a/*.sql\"]\nacross = \"repo\"\non_error = \"open\"\n\
             max_age = \"1h\"\nsilence = \"5m\"\n",
        )
        .expect("rules");
        let command = rules.commands.first().expect("a rule");
        assert_eq!(command.slots.map(NonZeroU32::get), Some(2));
        assert_eq!(
            (command.how, command.on_error),
            (How::Refuse, OnError::Closed)
        );
        assert_eq!(command.wait, Some(Duration::from_secs(90)));
        let path = rules.paths.first().expect("a rule");
        assert_eq!((path.across, path.on_error), (Across::Repo, OnError::Open));
        assert_eq!(path.max_age, Some(Duration::from_secs(3_600)));
        assert_eq!(path.silence, Some(Duration::from_secs(300)));
    }

    #[test]
    fn a_rule_that_cannot_be_obeyed_is_named_by_its_line() {
        let command = "[[agent.command]]\nmatch = [\"make\"]\nlock = \"b\"\n";
        let path = "[[agent.path]]\nmatch = [\"a\"]\n";
        for (text, words) in [
            (
                format!("{command}slot = 2\n"),
                ["line 4, slot", "unknown field"],
            ),
            (
                format!("{command}how = \"rewrte\"\n"),
                ["line 4, how", "rewrte"],
            ),
            (
                format!("{command}on_error = \"maybe\"\n"),
                ["line 4, on_error", "maybe"],
            ),
            (
                format!("{command}slots = 0\n"),
                ["line 4, slots", "a whole number from 1"],
            ),
            (
                format!("{command}slots = 1000000\n"),
                ["line 4, slots", "the most"],
            ),
            (
                format!("{command}wait = \"soon\"\n"),
                ["line 4, wait", "not a duration"],
            ),
            (
                format!("{command}wait = \"0s\"\n"),
                ["line 4, wait", "longer than nothing"],
            ),
            (
                format!("{path}across = \"tree\"\n"),
                ["line 3, across", "tree"],
            ),
            (
                format!("{path}lock = \"x\"\n"),
                ["line 3, lock", "unknown field"],
            ),
            (
                "[[agent.command]]\nmatch = []\nlock = \"b\"\n".into(),
                ["line 2, match", "empty"],
            ),
            (
                "[[agent.command]]\nmatch = [\"\"]\nlock = \"b\"\n".into(),
                ["line 2, match", "empty"],
            ),
            (
                "[[agent.command]]\nmatch = [\"a;b\"]\nlock = \"b\"\n".into(),
                ["line 2, match", "shell"],
            ),
            (
                "[[agent.command]]\nmatch = [\"A=1 b\"]\nlock = \"b\"\n".into(),
                ["line 2, match", "no command"],
            ),
            (
                "[[agent.command]]\nmatch = [\"a\"]\nlock = \"../b\"\n".into(),
                ["line 3, lock", "cannot be used"],
            ),
            (
                "[[agent.command]]\nmatch = [\"a\"]\n".into(),
                ["line 1", "missing field `lock`"],
            ),
            (
                "[[agent.path]]\nmatch = [\"/etc\"]\n".into(),
                ["line 2, match", "root of the work tree"],
            ),
            (
                "[[agent.path]]\nmatch = [\"a/\"]\n".into(),
                ["line 2, match", "a/**"],
            ),
            (
                "[[agent.path]]\nmatch = [\"../a\"]\n".into(),
                ["line 2, match", ".."],
            ),
            (
                "[[agent.path]]\nmatch = [\"a**\"]\n".into(),
                ["line 2, match", "name of its own"],
            ),
            (
                "[[agent.path]]\nmatch = [\"a.[ch]\"]\n".into(),
                ["line 2, match", "means nothing"],
            ),
            (
                "[agent]\nhost = \"x\"\n".into(),
                ["line 2, host", "unknown field"],
            ),
        ] {
            let said = read(&text).expect_err(&text);
            for word in words {
                assert!(said.contains(word), "{text}: {said}");
            }
        }
    }

    #[test]
    fn globs_fit_whole_paths() {
        for (glob, path, expected) in [
            ("a", "a", true),
            ("a", "a/b", false),
            ("a", "b/a", false),
            ("*.rs", "x.rs", true),
            ("*.rs", "src/x.rs", false),
            ("**/*.rs", "x.rs", true),
            ("**/*.rs", "src/deep/x.rs", true),
            ("src/**/*.rs", "src/x.rs", true),
            ("src/**/x/*.rs", "src/a/b/x/y.rs", true),
            ("src/**/x/*.rs", "src/a/b/y.rs", false),
            ("migrations/**", "migrations/1.sql", true),
            ("migrations/**", "migrations/a/1.sql", true),
            ("migrations/**", "migrations", false),
            ("migrations/**", "db/migrations/1.sql", false),
            ("**/migrations/**", "db/migrations/1.sql", true),
            ("**", "a", true),
            ("a/?.sql", "a/1.sql", true),
            ("a/?.sql", "a/12.sql", false),
            ("a/*b*c", "a/xbybc", true),
            ("a/*b*c", "a/xbyb", false),
            ("./a", "a", true),
            ("*", ".hidden", true),
            ("é?", "éü", true),
        ] {
            let names: Vec<&str> = path.split('/').collect();
            let read = Glob::read(glob).expect(glob);
            assert_eq!(read.fits(&names), expected, "{glob} on {path}");
        }
    }

    #[test]
    fn no_glob_keeps_its_reader_busy() {
        let began = tenure_os::clock::instant();
        let names = vec!["a".repeat(200); 200];
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let glob = Glob::read(&format!("{}x", "**/*a*a*a*a*a*b/".repeat(60))).expect("a glob");
        assert!(!glob.fits(&names));
        let took = tenure_os::clock::instant().saturating_duration_since(began);
        assert!(took < Duration::from_secs(2), "it took {took:?}");
    }
}
