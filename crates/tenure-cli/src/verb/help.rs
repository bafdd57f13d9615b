//! The pages of help, in two sizes: `-h` fits a terminal of 24 lines and has what people use most, `--help` has
//! everything.
//!
//! Both are made of the parser's own parts, so nothing can stand there that is not read. `-h` leaves out the flags
//! that every verb takes, and what is marked where the flag is declared (`hide_short_help`). Its two examples are the
//! first two of the whole page.
//!
//! Where a profile is chosen, both speak of its locks: with its flags, its own words for flags of others, and its
//! examples, and without flags that it refuses. Where none is, `-h` has no flag of a profile.
//!
//! `flock` has a page of its own (`flock::help`), as it has a parser of its own.

use super::Tree;
use crate::args::{Common, GLOBAL, flock};
use clap::{Arg, ArgAction, Args as _, Command, CommandFactory as _};
use std::ffi::OsString;
use std::fmt::Write as _;
use tenure_core::Policy;

/// How much is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Size {
    /// `-h`.
    Brief,
    /// `--help`.
    Full,
}

impl Size {
    /// The page that these words ask for, if they ask for one: the whole one, if they ask for both.
    pub(crate) fn asked_for(words: &[OsString]) -> Option<Self> {
        let words = || words.iter().take_while(|word| *word != "--");
        if words().any(|word| word == "--help") {
            return Some(Self::Full);
        }
        words().any(|word| word == "-h").then_some(Self::Brief)
    }
}

/// Flags that only native locks can have: a record of another format names one holder, needs a supervisor, and has a
/// name and an age by its own rules.
const NATIVE_ONLY: [&str; 6] = ["shared", "slots", "exec", "max_age", "path", "across"];

/// Flags that a brief page leaves out where another profile than the native one is chosen.
const LESS_USED_BY_PROFILES: [&str; 3] = ["group", "cancel_in_progress", "why"];

/// What a profile calls flags of all profiles, and what it means by them.
const WORDS: [(&str, &str, &str, &str); 6] = [
    (
        "sprint",
        "request_id",
        "session-id",
        "The id of the session; `acquire` needs it",
    ),
    (
        "sprint",
        "force",
        "force",
        "Override the lock; a live one needs --yes too",
    ),
    (
        "sprint",
        "yes",
        "yes",
        "Confirm --force for a lock that is alive",
    ),
    (
        "resume",
        "force",
        "force",
        "Take the lock from whoever has it, alive or not",
    ),
    (
        "session",
        "request_id",
        "run-id",
        "The id of the run [default: $GITHUB_RUN_ID]",
    ),
    (
        "fleet",
        "force",
        "force-lock",
        "Replace a stale lock; a live one stays",
    ),
];

/// How the calls of a profile name their lock and its place, what its `acquire` (and `run`) needs beside that, and an id. Of
/// two words, the first is for the usage and the other for examples.
struct Spoken {
    profile: &'static str,
    lock: [&'static str; 2],
    place: &'static str,
    needs: [&'static str; 2],
    run_needs: bool,
    id: &'static str,
}

const SPOKEN: [Spoken; 4] = [
    Spoken {
        profile: "sprint",
        lock: ["--project-root DIR", "--project-root ."],
        place: " --project-root .",
        needs: [
            "--session-id ID --epic-spec SPEC",
            " --session-id s1 --epic-spec 5",
        ],
        run_needs: false,
        id: " --session-id s1",
    },
    Spoken {
        profile: "resume",
        lock: ["ID", "job-7"],
        place: "",
        needs: ["", ""],
        run_needs: false,
        id: "",
    },
    Spoken {
        profile: "session",
        lock: ["N", "42"],
        place: "",
        needs: ["", ""],
        run_needs: false,
        id: " --run-id 7",
    },
    Spoken {
        profile: "fleet",
        lock: ["NAME", "db"],
        place: "",
        needs: [
            "--intent-name NAME --intent-version V",
            " --intent-name web --intent-version 2",
        ],
        run_needs: true,
        id: " --request-id r1",
    },
];

/// Calls of the verbs that look at a profile's locks: `@` is the lock, `+` what `acquire` or `run` needs beside it, `#`
/// the id, `~` the place.
const CALLS: [(&str, &[&str]); 15] = [
    ("", &["run @+ -- ./job", "check @"]),
    ("run", &["run @+ -- ./job", "run -n @+ -- ./job"]),
    ("acquire", &["acquire @+"]),
    ("release", &["release @#"]),
    ("cancel", &["cancel @"]),
    ("force-release", &["force-release @ --yes"]),
    ("heartbeat", &["heartbeat @#"]),
    ("check", &["check @", "check @ --output json"]),
    ("list", &["list~", "list~ --all"]),
    ("wait", &["wait @ -w 5m && echo free"]),
    ("fence", &["fence check 17 --name @"]),
    ("clean", &["clean~ --dry-run", "clean~"]),
    ("doctor", &["doctor~"]),
    ("audit", &["audit~ --since 1h"]),
    ("timeline", &["timeline~ --since 1h"]),
];

/// The widest line of a brief page, however wide the terminal is.
const BRIEF_COLUMNS: usize = 80;

/// How many examples a brief page has.
const BRIEF_EXAMPLES: usize = 2;

/// How many flags a profile has at most, which stand before the others.
const OWN_FLAGS_MAX: usize = 100;

/// The verbs that a brief page explains; the others are named.
const BRIEF_VERBS: [&str; 10] = [
    "run",
    "acquire",
    "release",
    "cancel",
    "heartbeat",
    "check",
    "list",
    "wait",
    "clean",
    "audit",
];

/// The page about a verb, or about all of them; `profile` is the format of the profile that was chosen,
/// if one was.
pub(crate) fn page(of: Option<&str>, size: Size, profile: Option<&str>) -> String {
    if of == Some("flock") {
        return match size {
            Size::Brief => flock::brief("tenure flock"),
            Size::Full => flock::help("tenure flock"),
        };
    }
    let mut command = command(of, size, profile);
    command.render_help().to_string()
}

/// What a page is drawn from.
fn command(of: Option<&str>, size: Size, profile: Option<&str>) -> Command {
    let tree = Tree::command();
    let verb = of.and_then(|verb| tree.find_subcommand(verb).cloned());
    let command = match (of, verb) {
        (Some(of), Some(verb)) => verb.bin_name(format!("tenure {of}")),
        _ => whole(tree, size),
    };
    let below = command.get_after_help().map(ToString::to_string);
    let below = below.unwrap_or_default();
    let takes_profiles = command
        .get_arguments()
        .any(|arg| profile_of(arg).is_some() && arg.get_help_heading() != Some(GLOBAL));
    let spoken = SPOKEN.iter().find(|spoken| Some(spoken.profile) == profile);
    let calls = spoken.map_or_else(String::new, |spoken| spoken.examples(of));
    let usage = spoken.and_then(|spoken| spoken.usage(of?));
    let command = match usage {
        Some(usage) => command.override_usage(usage),
        None => command,
    };
    let mut place = 0;
    let command = command
        .disable_help_flag(true)
        .arg(question(
            "help",
            'h',
            "Show help: -h in short, --help in full",
        ))
        .mut_args(|arg| {
            let (arg, is_of_profile) = shown(arg, size, profile);
            place += 1;
            let after = if is_of_profile { 0 } else { OWN_FLAGS_MAX };
            let arg = arg.display_order(place + after);
            // The page of all verbs is full of verbs, and a verb that looks at no such lock has no use for these flags.
            let is_left_out = of.is_none() || (is_of_profile && calls.is_empty());
            if size == Size::Brief && is_left_out {
                arg.hide_short_help(true)
            } else {
                arg
            }
        });
    match size {
        Size::Full if calls.is_empty() => command,
        Size::Full => command.after_help(format!("{calls}\nOf native locks:\n{below}")),
        Size::Brief => {
            let examples = if calls.is_empty() {
                examples(&below).collect::<Vec<_>>().join("\n") + "\n"
            } else {
                calls
            };
            let more = more(of, profile, takes_profiles);
            command
                .max_term_width(BRIEF_COLUMNS)
                .after_help(format!("{examples}\n{more}"))
        }
    }
}

impl Spoken {
    /// The usage of a verb about one lock.
    fn usage(&self, verb: &str) -> Option<String> {
        let (_, calls) = CALLS.iter().find(|(of, _)| *of == verb)?;
        if !calls.first()?.contains(" @") || verb == "fence" {
            return None;
        }
        let [lock, _] = self.lock;
        let mut usage = format!("tenure --profile {} {verb} [OPTIONS] {lock}", self.profile);
        let [needs, _] = self.needs(verb);
        if !needs.is_empty() && ["acquire", "run"].contains(&verb) {
            let _ = write!(usage, "\n         {needs}");
        }
        if verb == "run" {
            usage.push_str(" -- CMD [ARG]...");
        }
        Some(usage)
    }

    fn needs(&self, verb: &str) -> [&'static str; 2] {
        match verb {
            "acquire" => self.needs,
            _ if self.run_needs => self.needs,
            _ => ["", ""],
        }
    }

    /// The examples of a verb, with their heading; nothing where it looks at no lock of a profile.
    fn examples(&self, of: Option<&str>) -> String {
        let verb = of.unwrap_or_default();
        let calls = CALLS.iter().filter(|(of, _)| *of == verb);
        let mut text = String::new();
        for call in calls.flat_map(|(_, calls)| *calls) {
            if text.is_empty() {
                text.push_str("Examples:\n");
            }
            let [_, lock] = self.lock;
            let [_, needs] = self.needs(verb);
            // The lock of a sprint has no name.
            let call = call.replace('@', lock).replace("--name --", "--");
            let call = call.replace('+', needs);
            let call = call.replace('#', self.id).replace('~', self.place);
            // Writing to a `String` cannot fail.
            let _ = writeln!(text, "  tenure --profile {} {call}", self.profile);
        }
        text
    }
}

/// The page of all verbs.
fn whole(tree: Command, size: Size) -> Command {
    let is_explained =
        |verb: &Command| size == Size::Full || BRIEF_VERBS.contains(&verb.get_name());
    let about = tree.get_about().cloned().unwrap_or_default();
    // Kept, because the flags bring a sentence of their own.
    Common::augment_args(tree)
        .about(about)
        .override_usage("tenure [OPTIONS] VERB [ARG]...")
        .subcommand_help_heading("Verbs")
        .disable_help_subcommand(true)
        .mut_subcommands(|verb| {
            let is_hidden = !is_explained(&verb);
            verb.hide(is_hidden)
        })
        .disable_version_flag(true)
        .arg(question("version", 'V', "Show the version"))
}

/// A flag that is a question about tenure itself.
fn question(name: &'static str, letter: char, help: &'static str) -> Arg {
    Arg::new(name)
        .short(letter)
        .long(name)
        .action(ArgAction::SetTrue)
        .help_heading(GLOBAL)
        .help(help)
}

/// The profile that a flag belongs to, as its heading says.
fn profile_of(arg: &Arg) -> Option<String> {
    let name = arg.get_help_heading()?.strip_suffix(" profile")?;
    Some(name.to_lowercase())
}

/// A flag as a page has it: with its whole text or the first sentence. It stands in the section of its
/// profile or, on a brief page, with the others of its verb. And whether the chosen profile has it, or a word for it.
fn shown(arg: Arg, size: Size, chosen: Option<&str>) -> (Arg, bool) {
    let more = arg.get_long_help().map(ToString::to_string);
    let arg = match (size, more) {
        (Size::Full, Some(more)) => arg.help(more.replace("\n\n", " ")),
        _ => arg,
    };
    let is_own = arg.get_help_heading() != Some(GLOBAL) && profile_of(&arg).is_none();
    let arg = if size == Size::Brief && is_own && !arg.is_positional() {
        arg.help_heading("Options")
    } else {
        arg
    };
    let id = arg.get_id().as_str().to_owned();
    // The usage line has the name and the command, and each example the profile.
    let is_known = ["name", "command"].contains(&id.as_str());
    let is_left_out = arg.is_hide_short_help_set()
        || (is_known && arg.is_positional())
        || arg.get_help_heading() == Some(GLOBAL)
        || (of_another(chosen).is_some() && LESS_USED_BY_PROFILES.contains(&id.as_str()));
    let own = profile_of(&arg);
    let is_foreign = chosen.is_some() && own.is_some() && own.as_deref() != chosen;
    let is_refused = is_foreign || of_another(chosen).is_some_and(|policy| refuses(policy, &id));
    let word = WORDS
        .iter()
        .find(|(profile, of, ..)| Some(*profile) == chosen && *of == id);
    let is_hidden = arg.is_hide_set() || is_refused;
    let is_of_profile = chosen.is_some() && (own.is_some() || word.is_some());
    let arg = match word {
        Some((_, _, long, about)) => arg.long(*long).help(*about),
        None => arg,
    };
    let arg = arg.hide(is_hidden);
    let arg = match size {
        Size::Full => arg.hide_short_help(false),
        Size::Brief => {
            let is_left_out = match (word, own) {
                (Some(_), _) => false,
                (None, Some(_)) => chosen.is_none(),
                (None, None) => is_left_out,
            };
            let arg = if is_of_profile {
                arg.help_heading("Options")
            } else {
                arg
            };
            let takes_values = arg.get_action().takes_values();
            let about = arg.get_help().map(ToString::to_string);
            let about = about.as_deref().and_then(|about| about.split(" [").next());
            let about = about.unwrap_or_default().to_owned();
            arg.help(about)
                .hide_default_value(takes_values)
                .visible_alias(None::<&'static str>)
                .hide_short_help(is_left_out)
        }
    };
    (arg, is_of_profile)
}

/// The rules of the profile that was chosen, if that is not the native one.
fn of_another(chosen: Option<&str>) -> Option<Policy> {
    let chosen = chosen.filter(|chosen| *chosen != Policy::NATIVE.name)?;
    Policy::ALL.into_iter().find(|policy| policy.name == chosen)
}

/// Whether the calls of such a profile are refused with this flag.
fn refuses(policy: Policy, id: &str) -> bool {
    // A project has one lock.
    let of_sprints = policy.name == "sprint" && ["lock", "name", "held"].contains(&id);
    let of_force = !policy.heeds_force() && ["force", "yes"].contains(&id);
    NATIVE_ONLY.contains(&id) || of_sprints || of_force
}

/// What stands at the end of a brief page: where there is more.
fn more(of: Option<&str>, profile: Option<&str>, takes_profiles: bool) -> String {
    let Some(verb) = of else {
        let others = Tree::command();
        let others = others
            .get_subcommands()
            .map(Command::get_name)
            .filter(|verb| !BRIEF_VERBS.contains(verb))
            .collect::<Vec<_>>();
        return format!(
            "More verbs: {}\n`tenure VERB -h` is about one verb, `tenure --help` about everything.",
            others.join(", ")
        );
    };
    let chosen = profile.map_or_else(String::new, |profile| format!("--profile {profile} "));
    let of_profiles = if takes_profiles && profile.is_none() {
        " (a profile's: --profile NAME -h)"
    } else {
        ""
    };
    format!("Everything: tenure {chosen}{verb} --help{of_profiles}")
}

/// The first examples of a page, with their heading.
fn examples(below: &str) -> impl Iterator<Item = &str> {
    let mut left = BRIEF_EXAMPLES;
    below
        .lines()
        .skip_while(|line| *line != "Examples:")
        .take_while(move |line| {
            // What is indented further goes on with the example above it.
            let begins = line.starts_with("  ") && !line.starts_with("   ");
            let room = left > 0 || !begins;
            left -= usize::from(begins && room);
            room && !line.is_empty()
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{FLEET, SESSION, SPRINT};
    use tenure_core::Policy;

    #[test]
    fn the_whole_page_has_every_flag_of_every_verb() {
        let tree = Tree::command();
        let mut seen = 0;
        for verb in tree.get_subcommands() {
            let name = verb.get_name();
            let page = page(Some(name), Size::Full, None);
            for arg in verb.get_arguments().filter(|arg| !arg.is_hide_set()) {
                let Some(long) = arg.get_long() else { continue };
                seen += 1;
                let has = |line: &str| line.trim_start().starts_with('-') && line.contains(long);
                assert!(
                    page.lines().any(has),
                    "{name}: --{long} is in --help\n{page}"
                );
            }
        }
        assert!(seen > 200, "flags were looked at: {seen}");
        let tree = page(None, Size::Full, None);
        for arg in Common::augment_args(Command::new("tenure")).get_arguments() {
            let long = arg.get_long().unwrap_or_default();
            assert!(tree.contains(&format!("--{long}")), "--{long}");
        }
    }

    #[test]
    fn a_brief_page_names_every_verb() {
        let brief = page(None, Size::Brief, None);
        let tree = Tree::command();
        for verb in tree.get_subcommands().map(Command::get_name) {
            assert!(brief.contains(verb), "{verb}: {brief}");
        }
        for verb in BRIEF_VERBS {
            assert!(tree.find_subcommand(verb).is_some(), "{verb} is a verb");
        }
    }

    #[test]
    fn the_headings_of_profiles_name_profiles() {
        for heading in [SPRINT, SESSION, FLEET] {
            let arg = Arg::new("x").help_heading(heading);
            let name = profile_of(&arg).unwrap_or_default();
            assert!(
                Policy::ALL.iter().any(|policy| policy.name == name),
                "{name}"
            );
        }
        assert_eq!(profile_of(&Arg::new("x").help_heading(GLOBAL)), None);
    }

    #[test]
    fn two_examples_are_two_with_what_goes_on_below_them() {
        let page = "Examples:\n  a  one\n  b\n      two\n  c  three\n\nAnd prose.\n  no example";
        let shown: Vec<_> = examples(page).collect();
        assert_eq!(shown, ["Examples:", "  a  one", "  b", "      two"]);
        assert_eq!(examples("Nothing here.").count(), 0);
    }
}
