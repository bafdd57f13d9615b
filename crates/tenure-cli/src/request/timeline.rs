//! `timeline`: its flags, and what they mean.

use super::audit::Sought;
use super::{Place, Surroundings};
use crate::args::Common;
use crate::failure::Failure;
use crate::output::Output;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{Arg, ArgMatches, Args, Command, FromArgMatches};
use tenure_engine::audit::Filter;

/// `timeline`.
#[derive(Debug, Clone, Args)]
#[command(
    mut_arg("output", of_pictures),
    after_help = "Examples:
  tenure timeline --since yesterday     what happened last night
  tenure timeline --since yesterday --output html > night.html
                                        the same as a page to zoom into
  tenure timeline deploy --since 2h     one lock
  tenure timeline --output svg > night.svg   a picture for a report
  tenure timeline --output json | jq .data.summary

The summary comes first: the longest waits and holds, who blocked others most, who was refused. A hold is shown \
if a part of it lies between --since and --until. A page needs no network and no other file. timeline only \
reads: without an audit there is nothing to show."
)]
pub(crate) struct TimelineArgs {
    #[command(flatten)]
    pub(crate) sought: Sought,
    #[command(flatten)]
    pub(crate) drawn: Drawn,
    #[command(flatten)]
    pub(crate) common: Common,
}

/// A form in which a timeline is drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Picture {
    /// A page that a browser shows.
    Html,
    /// A picture that needs no script.
    Svg,
}

impl Picture {
    const ALL: [(Self, &'static str, &'static str); 2] = [
        (Self::Html, "html", "A page to zoom into, in one file"),
        (Self::Svg, "svg", "A picture for a report"),
    ];
}

/// The picture that `--output` asks for. Of another format the flag of all verbs knows.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Drawn(pub(crate) Option<Picture>);

impl FromArgMatches for Drawn {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let word = matches.get_raw("output").and_then(|mut words| words.next());
        let picture = word.and_then(|word| {
            let mut all = Picture::ALL.into_iter();
            all.find(|(_, name, _)| word == *name)
        });
        Ok(Self(picture.map(|(picture, _, _)| picture)))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl Args for Drawn {
    fn augment_args(command: Command) -> Command {
        command
    }

    fn augment_args_for_update(command: Command) -> Command {
        command
    }
}

/// The flag of all verbs, which here knows pictures as well. What goes to a person beside a picture is text.
fn of_pictures(flag: Arg) -> Arg {
    use clap::ValueEnum;
    let words = Output::value_variants().iter();
    let words = words.filter_map(ValueEnum::to_possible_value);
    let pictures = Picture::ALL.map(|(_, word, about)| PossibleValue::new(word).help(about));
    let words = PossibleValuesParser::new(words.chain(pictures));
    flag.help("What to print: text, json, yaml, html or svg [env: TENURE_OUTPUT, but for pictures]")
        .value_parser(words.map(|word| Output::from_word(&word).unwrap_or(Output::Text)))
}

/// Draws what happened to locks.
#[derive(Debug)]
pub(crate) struct Timeline {
    pub(crate) place: Place,
    pub(crate) filter: Filter,
    pub(crate) picture: Option<Picture>,
    pub(crate) now_ms: u64,
}

impl Timeline {
    pub(crate) fn of(
        typed: &TimelineArgs,
        around: &Surroundings,
        now_ms: u64,
    ) -> Result<Self, Failure> {
        let (place, filter) = typed.sought.filter(&typed.common, around, now_ms)?;
        Ok(Self {
            place,
            filter,
            picture: typed.drawn.0,
            now_ms,
        })
    }
}
