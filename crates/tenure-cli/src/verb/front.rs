//! What may stand where a verb should: questions about tenure itself (`help`, `--help`, `--version`) with
//! global flags before them, and `--input`. The document of `--input` has the verb (its `mode`).

use super::help::Size;
use super::refusal;
use super::{DocumentArgs, HelpArgs, Verb, hints_of, is_verb, output_of, verb_index};
use crate::args::Common;
use crate::failure::Failure;
use crate::output::Output;
use clap::{Args, FromArgMatches as _};
use std::ffi::OsString;

/// What may be typed there.
#[derive(Debug, Args)]
struct Front {
    #[command(flatten)]
    common: Common,
    #[arg(short = 'V', long)]
    version: bool,
    #[arg(short = 'h')]
    brief: bool,
    #[arg(long)]
    help: bool,
    /// Verbs that are asked about.
    words: Vec<OsString>,
}

/// Reads a call that does not begin with global flags and a verb.
pub(super) fn read(words: &[OsString]) -> Result<Verb, Failure> {
    let index = verb_index(words);
    let word = index
        .and_then(|index| words.get(index))
        .and_then(|word| word.to_str());
    let output = output_of(words);
    let asks_for_help = word == Some("help");
    match word {
        _ if words.len() <= 1 && output == Output::Text => return Ok(Verb::Bare),
        Some(flag) if flag.starts_with('-') => {
            if let Some(input) = input_of(words) {
                if let Some(size) = Size::asked_for(words) {
                    return Ok(Verb::Help(HelpArgs {
                        of: None,
                        size,
                        common: hints_of(words).0,
                    }));
                }
                return Ok(Verb::Document(DocumentArgs {
                    common: hints_of(words).0,
                    input,
                    words: words.to_vec(),
                }));
            }
        }
        Some("help") | None => {}
        Some("flock") => {
            let first = words.get(1).map(|word| word.to_string_lossy());
            return Err(Failure::bad_arguments(format!(
                "unexpected argument {:?}; in front of `flock` nothing of ours may stand, for all of its \
                 words are flock(1)'s",
                first.unwrap_or_default()
            ))
            .with_output(output));
        }
        Some(verb) => return Err(refusal::no_verb(verb).with_output(output)),
    }
    // `help` itself may stand among global flags, as every verb may.
    let rest = words
        .iter()
        .enumerate()
        .filter(|(at, _)| !asks_for_help || Some(*at) != index)
        .map(|(_, word)| word);
    // Behind a verb that is asked about, its own flags may stand.
    let command = clap::Command::new("tenure")
        .disable_help_flag(true)
        .disable_version_flag(true);
    let mut command = Front::augment_args(command)
        .mut_arg("words", |words| words.trailing_var_arg(!asks_for_help));
    let front = command
        .try_get_matches_from_mut(rest)
        .and_then(|mut matches| Front::from_arg_matches_mut(&mut matches))
        .map_err(|error| refusal::of(&error, words))?;
    if front.version {
        return Ok(Verb::Version(output));
    }
    if !(asks_for_help || front.help || front.brief) {
        return Err(
            Failure::bad_arguments("a verb is missing; `tenure -h` shows them").with_output(output),
        );
    }
    let asked = front.words.iter().map(|word| word.to_string_lossy());
    let asked = asked.collect::<Vec<_>>();
    let of = match asked.iter().map(AsRef::as_ref).collect::<Vec<_>>()[..] {
        [] | ["help"] => None,
        ["fence", "check"] => Some("fence"),
        [verb, ..] if !is_verb(verb) => return Err(refusal::no_verb(verb).with_output(output)),
        [_, other, ..] if asks_for_help => {
            return Err(Failure::bad_arguments(format!(
                "unexpected argument {other:?}; help is about one verb: tenure help {}",
                asked.first().map_or("VERB", AsRef::as_ref)
            ))
            .with_output(output));
        }
        [verb, ..] => Some(verb),
    };
    Ok(Verb::Help(HelpArgs {
        of: of.map(str::to_owned),
        size: if front.brief && !front.help {
            Size::Brief
        } else {
            Size::Full
        },
        common: front.common,
    }))
}

/// The value of `--input`, where it stands in place of a verb.
fn input_of(words: &[OsString]) -> Option<OsString> {
    let mut words = words.iter().take_while(|word| *word != "--");
    while let Some(word) = words.next() {
        if word == "--input" {
            return Some(words.next().cloned().unwrap_or_default());
        }
        if let Some(value) = word.to_str().and_then(|word| word.strip_prefix("--input=")) {
            return Some(value.into());
        }
    }
    None
}
