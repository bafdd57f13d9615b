//! `completions`: prints the completion script of a shell, and answers the questions of that script.
//!
//! The scripts know no verb and no flag, so they do not go out of date. With each key they ask the `tenure`
//! on the PATH, which reads the line as it would read the finished one (`verb/expected`).
//!
//! **A question at a prompt has no effect but its answer:**
//! - whatever is wrong, it ends with 0 and says nothing;
//! - it makes no file and no folder;
//! - it ends after [`PATIENCE`], with what was found until then;
//! - it asks no server: a folder may name one, and the person at the prompt may only be looking around in it.
//!
//! # The answer
//!
//! The first line says what is expected at the cursor. Each other line is a word and its meaning, with a tab
//! between them. For bash it is a `+` and the rest of the word at the cursor. Words with a control character are not
//! offered, so lines and tabs are safe. Other characters that are special to a shell are quoted by that shell,
//! or for bash here (`line`).
//!
//! | first line | what the script offers |
//! |---|---|
//! | `words` | the words |
//! | `files`, `folders` | files, folders; after a tab the beginning of the word that is not part of the path |
//! | `command N` | the completions of the command that begins with word N (in bash, with character N) |
//! | `nothing` | nothing |

mod line;

use self::line::ShellLine;
use super::call::one_form;
use crate::args::Common;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::render::print_lines;
use crate::request::{CompletionsArgs, Place, Purpose, Shell, Surroundings};
use crate::verb::expected::{Cursor, Expected, Word, at_cursor};
use serde_json::Value;
use std::collections::BTreeSet;
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;
use tenure_core::{LockName, Policy};
use tenure_engine::group;
use tenure_os::clock::instant;
use tenure_os::process::Identity;
use tenure_store::contract::Which;
use tenure_store::file::ThreadSleeper;

const BASH: &str = include_str!("completions/tenure.bash");
const ZSH: &str = include_str!("completions/tenure.zsh");
const FISH: &str = include_str!("completions/tenure.fish");

/// How long this call looks for names. A person notices more than this; a folder that takes longer hangs.
const PATIENCE: Duration = Duration::from_millis(400);

/// How many names are offered. More are slow in a shell, and of no help.
const NAMES_MAX: usize = 2_000;

#[cold]
#[inline(never)]
pub(super) fn completions(args: &CompletionsArgs) -> Exit {
    if !args.line.is_empty() {
        return answer(args);
    }
    let reporter = match one_form(args.output, "completions", "scripts for shells") {
        Ok(reporter) => reporter,
        Err(exit) => return exit,
    };
    let script = match args.shell {
        Shell::Bash => BASH,
        Shell::Zsh => ZSH,
        Shell::Fish => FISH,
    };
    reporter.succeed(script.trim_end(), Value::Null)
}

/// Answers a script. It reports no failure, because a person who types is not interested in it.
fn answer(args: &CompletionsArgs) -> Exit {
    let words = args.line.iter().map(|word| word.to_string_lossy());
    let (words, bash) = match args.shell {
        Shell::Bash => {
            let line = ShellLine::read(&words.collect::<Vec<_>>().join(" "));
            (line.words(), Some(line))
        }
        Shell::Zsh | Shell::Fish => (words.map(String::from).collect(), None),
    };
    let cursor = at_cursor(&words);
    let typed = words.last().map_or("", String::as_str);
    let mut text = match &cursor.expected {
        Expected::Folders => format!("folders\t{}\n", cursor.prefix),
        Expected::Files => format!("files\t{}\n", cursor.prefix),
        Expected::Nothing => "nothing\n".to_owned(),
        Expected::Command(index) => {
            let begins = bash.as_ref().map_or(*index, |line| line.begins(*index));
            format!("command {begins}\n")
        }
        Expected::Words(_) | Expected::Locks | Expected::Groups | Expected::Profiles => {
            "words\n".to_owned()
        }
    };
    for Word { word, about } in offered(cursor) {
        if word.chars().chain(about.chars()).any(char::is_control) {
            continue;
        }
        if let Some(line) = &bash {
            // Only the rest of the word at the cursor. In a word of several parts, the rest of the last part.
            let Some(rest) = word.strip_prefix(typed) else {
                continue;
            };
            text.push('+');
            text.push_str(&line.quoted(rest));
        } else {
            text.push_str(&word);
            text.push('\t');
            text.push_str(&about);
        }
        text.push('\n');
    }
    let _ = print_lines(&text);
    Exit::Success
}

/// The words that may stand at the cursor.
fn offered(cursor: Cursor) -> Vec<Word> {
    let Cursor {
        expected,
        prefix,
        common,
    } = cursor;
    let (names, about) = match expected {
        Expected::Words(words) => {
            let whole = |word: Word| Word {
                word: format!("{prefix}{}", word.word),
                ..word
            };
            return words.into_iter().map(whole).collect();
        }
        Expected::Locks => (in_time(move |found| locks(&common, found)), "lock"),
        Expected::Groups => (in_time(move |found| groups(&common, found)), "group"),
        Expected::Profiles => (in_time(profiles), "profile"),
        Expected::Folders | Expected::Files | Expected::Command(_) | Expected::Nothing => {
            return Vec::new();
        }
    };
    names
        .into_iter()
        .map(|name| Word {
            word: format!("{prefix}{name}"),
            about: about.to_owned(),
        })
        .collect()
}

/// The names found in time, in order. A thread that still looks ends with the process.
fn in_time(look: impl FnOnce(&Sender<String>) + Send + 'static) -> BTreeSet<String> {
    let (sender, found) = channel();
    let until = instant() + PATIENCE;
    let looks = std::thread::Builder::new().spawn(move || look(&sender));
    let mut names = BTreeSet::new();
    if looks.is_err() {
        return names;
    }
    while names.len() < NAMES_MAX {
        let rest = until.saturating_duration_since(instant());
        match found.recv_timeout(rest) {
            Ok(name) => names.insert(name),
            Err(_) => break,
        };
    }
    names
}

/// The names of the locks in a place, if it is a folder.
fn each_name(place: Result<Place, Failure>, each: &mut dyn FnMut(LockName)) {
    let Ok(mut place) = place else { return };
    if !place.is_folder() {
        return;
    }
    let profile = place.take_profile();
    let here = Identity::current().host;
    if let Ok(store) = place.open(profile, here, Box::new(ThreadSleeper)) {
        // Names from before a failure are good.
        let _ = store.names(Which::Locks, each);
    }
}

fn locks(common: &Common, found: &Sender<String>) {
    each_name(Place::of(common, &Surroundings::of(common)), &mut |name| {
        let _ = found.send(name.to_string());
    });
}

/// Groups are kept among the native locks, and only their names tell them apart.
fn groups(common: &Common, found: &Sender<String>) {
    let mut send = |name: LockName| {
        if let Some(group) = group::of_lock(&name) {
            let _ = found.send(group);
        }
    };
    let place = Place::of_groups(common, &Surroundings::of(common), Purpose::Tend);
    let beside = place.as_ref().ok().and_then(Place::groups_beside);
    each_name(place, &mut send);
    if let Some(beside) = beside {
        each_name(Ok(beside), &mut send);
    }
}

fn profiles(found: &Sender<String>) {
    for policy in Policy::ALL {
        let _ = found.send(policy.name.to_owned());
    }
}
