//! The pages of help, in two sizes: `-h` fits one screen and has what people use most, `--help` has
//! everything.
//!
//! Both are made of the parser's own parts, so nothing can stand there that is not read. What `-h`
//! leaves out is marked where the flag is declared (`hide_short_help`); its two examples are the first
//! two of the whole page. A flag that belongs to a profile stands in `-h` only where that profile is
//! chosen, and not at all where another one is.
//!
//! `flock` has a page of its own (`flock::help`), as it has a parser of its own.

use super::{Common, Tree, flock};
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
    pub(super) fn asked_for(words: &[OsString]) -> Option<Self> {
        let words = || words.iter().take_while(|word| *word != "--");
        if words().any(|word| word == "--help") {
            return Some(Self::Full);
        }
        words().any(|word| word == "-h").then_some(Self::Brief)
    }
}

/// The heading of flags that every verb takes.
pub(super) const GLOBAL: &str = "Global";
/// The heading of flags for agents, and for programs that call on their behalf.
pub(super) const AGENTS: &str = "Agents";
/// The headings of flags that mean something in one profile only.
pub(super) const SPRINT: &str = "Sprint profile";
pub(super) const SESSION: &str = "Session profile";
pub(super) const FLEET: &str = "Fleet profile";

/// What only native locks can have: a record of another format names one holder.
const NATIVE_ONLY: [&str; 2] = ["shared", "slots"];

/// The widest line of a brief page, however wide the terminal is.
const BRIEF_COLUMNS: usize = 80;

/// How many examples a brief page has.
const BRIEF_EXAMPLES: usize = 2;

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
        return flock::help("tenure flock");
    }
    let mut command = command(of, size, profile);
    command.render_help().to_string()
}

/// Leaves flags that are in daily use elsewhere to the whole page of one verb.
pub(super) fn less_used(ids: &'static [&'static str]) -> impl FnMut(Arg) -> Arg {
    move |arg| {
        let is_one = ids.contains(&arg.get_id().as_str());
        if is_one {
            arg.hide_short_help(true)
        } else {
            arg
        }
    }
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
    let command = command
        .disable_help_flag(true)
        .arg(question(
            "help",
            'h',
            "Show help: -h in short, --help in full",
        ))
        .mut_args(|arg| shown(arg, size, profile));
    match size {
        Size::Full => command,
        Size::Brief => command.max_term_width(BRIEF_COLUMNS).after_help(brief(
            &below,
            of,
            profile,
            takes_profiles,
        )),
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
/// profile or, on a brief page, with the others of its verb.
fn shown(arg: Arg, size: Size, chosen: Option<&str>) -> Arg {
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
    // A caller who has chosen a profile knows the flag for that.
    let is_chosen_already = chosen.is_some() && arg.get_id() == "profile";
    let is_refused = chosen.is_some_and(|chosen| chosen != Policy::NATIVE.name)
        && NATIVE_ONLY.contains(&arg.get_id().as_str());
    let is_left_out =
        size == Size::Brief && (arg.is_hide_short_help_set() || is_chosen_already || is_refused);
    match (profile_of(&arg), chosen) {
        (None, _) => arg.hide_short_help(is_left_out),
        (Some(_), None) => arg.hide_short_help(size == Size::Brief),
        (Some(own), Some(chosen)) => {
            let is_chosen = own == chosen;
            let is_hidden = arg.is_hide_set() || !is_chosen;
            arg.hide(is_hidden).hide_short_help(is_left_out)
        }
    }
}

/// What stands at the end of a brief page: the first examples, and where there is more.
fn brief(below: &str, of: Option<&str>, profile: Option<&str>, takes_profiles: bool) -> String {
    let mut text = String::new();
    for line in examples(below) {
        text.push_str(line);
        text.push('\n');
    }
    text.push('\n');
    let Some(verb) = of else {
        let others = Tree::command();
        let others = others
            .get_subcommands()
            .map(Command::get_name)
            .filter(|verb| !BRIEF_VERBS.contains(verb))
            .collect::<Vec<_>>();
        // Writing to a `String` cannot fail.
        let _ = write!(
            text,
            "More verbs: {}\n`tenure VERB -h` is about one verb, `tenure --help` about everything.",
            others.join(", ")
        );
        return text;
    };
    let chosen = profile.map_or_else(String::new, |profile| format!("--profile {profile} "));
    let _ = write!(text, "Everything: tenure {chosen}{verb} --help");
    if takes_profiles && profile.is_none() {
        let _ = write!(text, "\nA profile's flags: tenure --profile NAME {verb} -h");
    }
    text
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
    use tenure_engine::tenure_core::Policy;

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
