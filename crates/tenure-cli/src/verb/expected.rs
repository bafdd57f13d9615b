//! What may stand at the cursor of a line that is being typed. It comes from the same parsers that will
//! read the finished line, so that no shell has to keep a list of its own.
//!
//! Nothing is refused here. A line makes no sense yet while its user types it; where tenure can say nothing,
//! it says nothing.
//!
//! `command/completions` says which locks, groups and profiles there are, and how a shell is told.

use super::{BEFORE_VERB, BEFORE_VERB_BARE, Tree};
use crate::args::value::{Further, Owner, Ticket, Typed, short_event};
use crate::args::{Common, flock};
use clap::{Arg, ArgAction, Args, Command, CommandFactory, FromArgMatches, ValueHint};
use std::any::TypeId;
use tenure_core::LockName;
use tenure_engine::audit::EventName;
use tenure_engine::config::OnError;
use tenure_engine::engine::Wait;

/// What a value is, as far as a shell can help with it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Expected {
    /// A word of a list.
    Words(Vec<Word>),
    Locks,
    Groups,
    Profiles,
    Folders,
    Files,
    /// A command of its own, which begins with the word of this index.
    Command(usize),
    /// Something that only the caller knows.
    Nothing,
}

/// A word that may stand there, and what it means.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Word {
    pub(crate) word: String,
    pub(crate) about: String,
}

impl Word {
    fn new(word: impl Into<String>, about: &str) -> Self {
        Self {
            word: word.into(),
            about: gist(about),
        }
    }
}

/// What is known about the end of a line.
#[derive(Debug)]
pub(crate) struct Cursor {
    pub(crate) expected: Expected,
    /// The beginning of the word at the cursor that is not part of the value: `--dir=`.
    pub(crate) prefix: String,
    /// The flags of the line that say where its locks are.
    pub(crate) common: Common,
}

/// The most of a description that is shown, in characters.
const GIST_CHARS_MAX: usize = 60;

/// Reads the words of a line, from the program's name to the cursor; the last one is being typed.
pub(crate) fn at_cursor(words: &[String]) -> Cursor {
    let tree = Tree::command();
    let (typed, before) = match words.split_last() {
        Some((typed, before)) => (typed.as_str(), before),
        None => ("", words),
    };
    let mut line = CompletionState::new(&tree);
    for (index, word) in before.iter().enumerate().skip(1) {
        line.pass(index, word);
    }
    let (expected, prefix) = line.what_follows(typed, before.len());
    Cursor {
        expected,
        prefix,
        common: common_of(&line.said),
    }
}

/// What the words before the cursor have settled.
struct CompletionState<'a> {
    tree: &'a Command,
    verb: Option<&'a Command>,
    /// The flag whose value comes next.
    open: Option<&'a Arg>,
    /// The flags that were typed.
    given: Vec<&'a str>,
    /// How many words were neither flags nor their values.
    positions: usize,
    /// The place of a command of its own, once it has begun.
    command: Option<usize>,
    /// `--` was typed where no command follows it.
    no_more_flags: bool,
    /// The next word is the value of an option of `flock`.
    flock_value: bool,
    /// No word has a meaning any more.
    is_lost: bool,
    /// The flags that say where the locks are, as words.
    said: Vec<String>,
}

impl<'a> CompletionState<'a> {
    fn new(tree: &'a Command) -> Self {
        Self {
            tree,
            verb: None,
            open: None,
            given: Vec::new(),
            positions: 0,
            command: None,
            no_more_flags: false,
            flock_value: false,
            is_lost: false,
            said: Vec::new(),
        }
    }

    /// The command whose flags may stand here. Before the verb these are the global ones, which
    /// every verb has, so one of them stands for all.
    fn flags(&self) -> impl Iterator<Item = &'a Arg> + use<'a> {
        let before_verb = self.verb.is_none();
        let of = match self.verb {
            Some(verb) => Some(verb),
            None => self.tree.find_subcommand("check"),
        };
        let arguments = of.into_iter().flat_map(Command::get_arguments);
        arguments.filter(move |arg| {
            let is_global = || {
                arg.get_long().is_some_and(|long| {
                    let mut global = BEFORE_VERB.iter().chain(&BEFORE_VERB_BARE);
                    global.any(|flag| flag.strip_prefix("--") == Some(long))
                })
            };
            !arg.is_positional() && !arg.is_hide_set() && (!before_verb || is_global())
        })
    }

    fn long(&self, name: &str) -> Option<&'a Arg> {
        self.flags().find(|arg| {
            let aliases = arg.get_all_aliases().unwrap_or_default();
            arg.get_long() == Some(name) || aliases.contains(&name)
        })
    }

    fn short(&self, letter: char) -> Option<&'a Arg> {
        self.flags().find(|arg| arg.get_short() == Some(letter))
    }

    fn is_flock(&self) -> bool {
        self.verb.is_some_and(|verb| verb.get_name() == "flock")
    }

    /// Takes a finished word in.
    fn pass(&mut self, index: usize, word: &str) {
        if self.command.is_some() || self.is_lost {
            return;
        }
        if let Some(arg) = self.open.take() {
            self.give(arg, word);
            return;
        }
        if self.is_flock() {
            self.pass_of_flock(index, word);
            return;
        }
        match word {
            "--" if self.takes_command() => self.command = Some(index + 1),
            "--" => self.no_more_flags = true,
            _ if self.no_more_flags || !word.starts_with('-') || word == "-" => self.place(word),
            _ => self.pass_flag(word),
        }
    }

    /// A word that is no flag: the verb, or one of its arguments.
    fn place(&mut self, word: &str) {
        if self.verb.is_some() {
            self.positions += 1;
            return;
        }
        self.verb = match word {
            "help" => Some(self.tree),
            verb => self.tree.find_subcommand(verb),
        };
        self.is_lost = self.verb.is_none();
    }

    fn pass_flag(&mut self, word: &str) {
        if let Some(long) = word.strip_prefix("--") {
            let (name, value) = match long.split_once('=') {
                Some((name, value)) => (name, Some(value)),
                None => (long, None),
            };
            if let Some(arg) = self.long(name) {
                self.begin(arg, value);
            }
            return;
        }
        let mut letters = word.strip_prefix('-').unwrap_or(word).chars();
        while let Some(letter) = letters.next() {
            let Some(arg) = self.short(letter) else {
                return;
            };
            let rest = letters.as_str();
            if takes_value(arg) {
                self.begin(arg, Some(rest).filter(|rest| !rest.is_empty()));
                return;
            }
            self.begin(arg, None);
        }
    }

    /// Notes a flag, and its value or that it comes next.
    fn begin(&mut self, arg: &'a Arg, value: Option<&str>) {
        self.given.push(arg.get_id().as_str());
        match value {
            _ if !takes_value(arg) => {}
            Some(value) => self.give(arg, value),
            None => self.open = Some(arg),
        }
    }

    fn give(&mut self, arg: &Arg, value: &str) {
        if let Some(long) = arg.get_long()
            && BEFORE_VERB.contains(&format!("--{long}").as_str())
        {
            self.said.push(format!("--{long}={}", at_home(value)));
        }
    }

    /// Passes a word of `flock`, whose options end at the first word that is not an option: its file,
    /// which the command follows.
    fn pass_of_flock(&mut self, index: usize, word: &str) {
        if std::mem::take(&mut self.flock_value) {
            return;
        }
        let is_option = !self.no_more_flags && word.starts_with('-') && word != "-";
        match word {
            _ if self.positions == 1 => self.command = Some(index),
            "--" if is_option => self.no_more_flags = true,
            _ if is_option => self.flock_value = flock::takes_next_word(word),
            _ => self.positions = 1,
        }
    }

    fn takes_command(&self) -> bool {
        let mut arguments = self.verb.into_iter().flat_map(Command::get_arguments);
        arguments.any(|arg| arg.is_last_set() && !arg.is_hide_set())
    }

    /// What may stand at the cursor, and the beginning of the word there that is not part of it.
    fn what_follows(&self, typed: &str, index: usize) -> (Expected, String) {
        let all = |expected| (expected, String::new());
        if self.is_lost {
            return all(Expected::Nothing);
        }
        if let Some(begins) = self.command {
            return all(Expected::Command(begins));
        }
        if let Some(arg) = self.open {
            return all(value_of(arg));
        }
        if self.is_flock() {
            return all(self.expect_of_flock(typed, index));
        }
        if typed.starts_with('-') && !self.no_more_flags {
            return match typed.split_once('=') {
                Some((flag, _)) if flag.starts_with("--") => {
                    let arg = flag.strip_prefix("--").and_then(|name| self.long(name));
                    let arg = arg.filter(|arg| takes_value(arg));
                    let expected = arg.map_or(Expected::Nothing, value_of);
                    (expected, format!("{flag}="))
                }
                _ => all(Expected::Words(self.flag_words())),
            };
        }
        all(match self.verb {
            None => Expected::Words(verbs(self.tree, true)),
            Some(verb) if std::ptr::eq(verb, self.tree) => match self.positions {
                0 => Expected::Words(verbs(self.tree, false)),
                _ => Expected::Nothing,
            },
            Some(verb) => self.expect_argument(verb),
        })
    }

    /// The argument that comes next.
    fn expect_argument(&self, verb: &Command) -> Expected {
        let mut positionals = verb
            .get_positionals()
            .filter(|arg| !arg.is_last_set() && !arg.is_hide_set());
        match positionals.nth(self.positions) {
            Some(arg) => value_of(arg),
            None if self.takes_command() && !self.no_more_flags => {
                Expected::Words(vec![Word::new("--", "the command follows")])
            }
            None => Expected::Nothing,
        }
    }

    /// The flags that may still be typed.
    fn flag_words(&self) -> Vec<Word> {
        let mut words = Vec::new();
        for arg in self.flags() {
            let is_repeatable = matches!(arg.get_action(), ArgAction::Append | ArgAction::Count);
            if self.given.contains(&arg.get_id().as_str()) && !is_repeatable {
                continue;
            }
            let about = arg.get_help().map(ToString::to_string).unwrap_or_default();
            for long in arg.get_long_and_visible_aliases().unwrap_or_default() {
                words.push(Word::new(format!("--{long}"), &about));
            }
        }
        words.push(Word::new("--help", "Print help"));
        if self.verb.is_none() {
            words.push(Word::new("--version", "Print version"));
        }
        if self.takes_command() {
            words.push(Word::new("--", "the command follows"));
        }
        words
    }

    fn expect_of_flock(&self, typed: &str, index: usize) -> Expected {
        let words = |behind_file| {
            let options = flock::OPTIONS.iter();
            let options = options.filter(move |option| option.behind_file == behind_file);
            options.flat_map(|option| {
                let long = option.words.iter().filter(|word| word.starts_with("--"));
                long.map(|word| Word::new(*word, option.about))
            })
        };
        let is_option = typed.starts_with('-') && !self.no_more_flags;
        match self.positions {
            _ if self.flock_value => Expected::Nothing,
            0 if is_option => Expected::Words(words(false).collect()),
            0 => Expected::Files,
            _ if typed.starts_with('-') => Expected::Words(words(true).collect()),
            _ => Expected::Command(index),
        }
    }
}

/// The verbs, and `help` where it is one.
fn verbs(tree: &Command, with_help: bool) -> Vec<Word> {
    let about = |verb: &Command| verb.get_about().map(ToString::to_string);
    let help = with_help.then(|| Word::new("help", "Print help, of a verb too"));
    tree.get_subcommands()
        .filter(|verb| !verb.is_hide_set())
        .map(|verb| Word::new(verb.get_name(), &about(verb).unwrap_or_default()))
        .chain(help)
        .collect()
}

fn takes_value(arg: &Arg) -> bool {
    arg.get_action().takes_values()
}

/// What the value of an argument is.
fn value_of(arg: &Arg) -> Expected {
    known_value(arg).unwrap_or(Expected::Nothing)
}

/// What the value of an argument is, as its type or its hint says. `None` for a path of which nobody has said whether it
/// leads to a file or a folder.
fn known_value(arg: &Arg) -> Option<Expected> {
    let possible = arg.get_possible_values();
    if !possible.is_empty() {
        let words = possible.iter().filter(|value| !value.is_hide_set());
        let about =
            |value: &clap::builder::PossibleValue| value.get_help().map(ToString::to_string);
        return Some(Expected::Words(
            words
                .map(|value| Word::new(value.get_name(), &about(value).unwrap_or_default()))
                .collect(),
        ));
    }
    let words = |words: &[(&str, &str)]| {
        let words = words.iter().map(|(word, about)| Word::new(*word, about));
        Some(Expected::Words(words.collect()))
    };
    match arg.get_value_hint() {
        ValueHint::DirPath => return Some(Expected::Folders),
        ValueHint::FilePath => return Some(Expected::Files),
        ValueHint::AnyPath => return None,
        _ => {}
    }
    let value = arg.get_value_parser().type_id();
    match arg.get_id().as_str() {
        // Names and words that have no type of their own.
        "group" => Some(Expected::Groups),
        "profile" => Some(Expected::Profiles),
        "verb" => Some(Expected::Words(verbs(&Tree::command(), false))),
        "input" => words(&[("-", "stdin")]),
        _ if value == TypeId::of::<Typed<LockName>>()
            || value == TypeId::of::<Typed<Further>>() =>
        {
            Some(Expected::Locks)
        }
        _ if value == TypeId::of::<Typed<Wait>>() => words(&[("forever", "as long as it takes")]),
        _ if value == TypeId::of::<Typed<Ticket>>() => {
            words(&[("auto", "the place of the caller")])
        }
        _ if value == TypeId::of::<OnError>() => words(&[
            ("open", "run the command without its lock"),
            ("closed", "refuse it"),
        ]),
        _ if value == TypeId::of::<Typed<Owner>>() => words(&[
            ("auto", "what outlives this call and ends with the work"),
            (
                "job",
                "the process of the CI job, the notebook or the playbook",
            ),
            ("parent", "the process that calls this"),
            ("none", "no process: the caller renews it by heartbeats"),
        ]),
        _ if value == TypeId::of::<Typed<EventName>>() => {
            words(&EventName::ALL.map(|event| (short_event(event), "")))
        }
        _ => Some(Expected::Nothing),
    }
}

/// The beginning of a description, on one line.
fn gist(about: &str) -> String {
    let about = about.split(" [").next().unwrap_or_default();
    let mut gist = String::new();
    for word in about.split_whitespace() {
        if gist.chars().count() + 1 + word.chars().count() > GIST_CHARS_MAX {
            gist.push_str(" ...");
            break;
        }
        if !gist.is_empty() {
            gist.push(' ');
        }
        gist.push_str(word);
    }
    gist
}

/// A path that a shell will still expand.
fn at_home(value: &str) -> String {
    match (value.strip_prefix("~/"), std::env::var("HOME")) {
        (Some(rest), Ok(home)) => format!("{home}/{rest}"),
        _ => value.to_owned(),
    }
}

/// The flags that say where the locks are. If any of them makes no sense, none counts.
fn common_of(said: &[String]) -> Common {
    let words = std::iter::once("tenure").chain(said.iter().map(String::as_str));
    Common::augment_args(Command::new("tenure"))
        .try_get_matches_from(words)
        .ok()
        .and_then(|mut matches| Common::from_arg_matches_mut(&mut matches).ok())
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expected(line: &str) -> (Expected, String) {
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        let cursor = at_cursor(&words);
        (cursor.expected, cursor.prefix)
    }

    /// The words that may stand at the end of a line.
    fn words(line: &str) -> Vec<String> {
        match expected(line) {
            (Expected::Words(words), _) => words.into_iter().map(|word| word.word).collect(),
            other => panic!("{line}: {other:?}"),
        }
    }

    #[test]
    fn the_end_of_a_line_decides_what_may_stand_there() {
        let all = |expected| (expected, String::new());
        for (line, found) in [
            ("tenure check ", all(Expected::Locks)),
            ("tenure check ba", all(Expected::Locks)),
            ("tenure -q --dir d check x", all(Expected::Locks)),
            ("tenure check x ", all(Expected::Nothing)),
            ("tenure check --request-id ", all(Expected::Nothing)),
            ("tenure run -l ", all(Expected::Locks)),
            ("tenure run x --group ", all(Expected::Groups)),
            ("tenure run --profile ", all(Expected::Profiles)),
            ("tenure --profile ", all(Expected::Profiles)),
            (
                "tenure --profile=f",
                (Expected::Profiles, "--profile=".into()),
            ),
            (
                "tenure run --group=g",
                (Expected::Groups, "--group=".into()),
            ),
            ("tenure --dir ", all(Expected::Folders)),
            ("tenure list --dir=", (Expected::Folders, "--dir=".into())),
            ("tenure run --intent ", all(Expected::Files)),
            ("tenure run -n x -- ", all(Expected::Command(5))),
            ("tenure run x -- make -j", all(Expected::Command(4))),
            ("tenure run x -nw ", words_of(&["forever"])),
            ("tenure frob ", all(Expected::Nothing)),
            ("tenure help run ", all(Expected::Nothing)),
            (
                "tenure --nonsense=",
                (Expected::Nothing, "--nonsense=".into()),
            ),
        ] {
            assert_eq!(expected(line), found, "{line}");
        }
    }

    /// Windows has no such verb.
    #[cfg(unix)]
    #[test]
    fn flock_has_its_own_order_of_words() {
        let all = |expected| (expected, String::new());
        for (line, found) in [
            ("tenure flock ", all(Expected::Files)),
            ("tenure flock -w ", all(Expected::Nothing)),
            ("tenure flock -xw 5 ", all(Expected::Files)),
            ("tenure flock -n f ", all(Expected::Command(4))),
            ("tenure flock -E 3 -- -f make ", all(Expected::Command(6))),
            (
                "tenure flock --timeout=5 f make -",
                all(Expected::Command(4)),
            ),
        ] {
            assert_eq!(expected(line), found, "{line}");
        }
    }

    fn words_of(words: &[&str]) -> (Expected, String) {
        let words = words
            .iter()
            .map(|word| Word::new(*word, "as long as it takes"));
        (Expected::Words(words.collect()), String::new())
    }

    #[test]
    fn verbs_and_flags_are_those_of_the_parsers() {
        let verbs = words("tenure ");
        for verb in Tree::command().get_subcommands() {
            assert!(verbs.contains(&verb.get_name().to_owned()), "{verbs:?}");
        }
        assert!(verbs.contains(&"help".to_owned()));
        assert!(!words("tenure help ").contains(&"help".to_owned()));
        let flags = words("tenure run -q --ttl 5s --lock a --lock b -");
        for flag in ["--slots", "--session-id", "--dir", "--lock", "--help", "--"] {
            assert!(flags.contains(&flag.to_owned()), "{flag}: {flags:?}");
        }
        for flag in ["--ttl", "--quiet", "--pid"] {
            assert!(!flags.contains(&flag.to_owned()), "{flag}: {flags:?}");
        }
        let before = words("tenure -");
        assert!(before.contains(&"--profile".to_owned()), "{before:?}");
        assert!(!before.contains(&"--request-id".to_owned()), "{before:?}");
        assert_eq!(words("tenure completions "), ["bash", "zsh", "fish"]);
        assert_eq!(words("tenure run x "), ["--"]);
        assert_eq!(words("tenure --output="), ["text", "json", "yaml"]);
    }

    #[cfg(unix)]
    #[test]
    fn the_options_of_flock_are_offered_where_they_are_read() {
        let options = words("tenure flock -x -");
        assert!(options.contains(&"--conflict-exit-code".to_owned()));
        assert!(!options.contains(&"--command".to_owned()), "{options:?}");
        assert_eq!(words("tenure flock f -"), ["--command"]);
        assert_eq!(expected("tenure flock -- -").0, Expected::Files);
    }

    /// Fails for a new flag that is a path until its `value_hint` says of what.
    #[test]
    fn it_is_known_of_every_path_what_it_leads_to() {
        for verb in Tree::command().get_subcommands() {
            let known = verb
                .get_arguments()
                .filter(|arg| takes_value(arg) && !arg.is_hide_set() && !arg.is_last_set())
                .filter(|_| verb.get_name() != "flock");
            for arg in known {
                assert!(known_value(arg).is_some(), "{}: {}", verb, arg.get_id());
            }
        }
    }

    #[test]
    fn the_line_says_where_the_locks_are() {
        let of = |line: &str| {
            let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
            at_cursor(&words).common
        };
        let common = of("tenure --dir d --profile=fleet check --config c ");
        assert_eq!(common.dir.as_deref(), Some("d".as_ref()));
        assert_eq!(common.profile.as_deref(), Some("fleet"));
        assert_eq!(common.config.as_deref(), Some("c".as_ref()));
        let both = of("tenure --profile session --dir d --store file:d cancel --group ");
        assert!(both.dir.is_some() && both.store.is_some());
        assert!(of("tenure run x -- --dir d ").dir.is_none());
        if let Ok(home) = std::env::var("HOME") {
            let dir = of("tenure --dir=~/d check ").dir;
            assert_eq!(dir, Some(format!("{home}/d").into()));
        }
    }
}
