//! Reads a tool's command line, and the `--wait` that every tool has.
//!
//! Clap's message about a bad command line becomes one sentence.

use super::answer::Surface;
use super::{Exit, Failure, Tool};
use crate::duration::{self, DurationError};
use crate::engine::Wait;
use clap::error::ErrorKind;
use clap::{Arg, ArgMatches, Args, Command, FromArgMatches};
use std::ffi::OsString;

/// The variable that says how long to wait where no flag does.
const VARIABLE: &str = "TENURE_WAIT";

/// The id of the flag among a command's arguments.
const FLAG: &str = "tenure-wait";

/// The flag `--wait`. [`super::main`] adds it to every tool; a program that parses for itself can
/// flatten it into its own arguments. The program's own description stays as it is.
///
/// # Examples
/// ```
/// use clap::{CommandFactory, Parser};
/// use tenure::framework::WaitArgs;
///
/// /// Brings an environment up to date
/// #[derive(Parser)]
/// struct Deploy {
///     #[command(flatten)]
///     wait: WaitArgs,
/// }
///
/// let help = Deploy::command().render_help().to_string();
/// assert!(help.starts_with("Brings an environment up to date"));
/// assert!(help.contains("--wait <DURATION>"));
/// let deploy = Deploy::try_parse_from(["deploy", "--wait", "0"])?;
/// assert_eq!(deploy.wait.wait()?, Some(tenure_engine::engine::Wait::No));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WaitArgs {
    given: Option<String>,
}

// Not derived: clap would make the text above the description of the program that the flag is added to.
impl Args for WaitArgs {
    fn augment_args(command: Command) -> Command {
        command.arg(
            Arg::new(FLAG)
                .long("wait")
                .value_name("DURATION")
                .help("How long to wait for a lock: 90s, 15m, 1h30m, a number of seconds, 0, or forever")
                .global(true)
                .allow_hyphen_values(true),
        )
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for WaitArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let mut args = Self::default();
        args.update_from_arg_matches(matches)?;
        Ok(args)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        if let Some(given) = matches.get_one::<String>(FLAG) {
            self.given = Some(given.clone());
        }
        Ok(())
    }
}

impl WaitArgs {
    /// How long to wait: what was typed, else what `$TENURE_WAIT` says; `None` if neither does.
    ///
    /// # Errors
    /// - [`Failure`] with exit 2 if it is not a duration.
    pub fn wait(&self) -> Result<Option<Wait>, Failure> {
        let told = || {
            let told = std::env::var(VARIABLE).ok();
            told.filter(|text| !text.is_empty())
        };
        let typed = self.given.clone().map(|text| ("--wait", text));
        let Some((source, text)) = typed.or_else(|| told().map(|text| (VARIABLE, text))) else {
            return Ok(None);
        };
        if text == "forever" {
            return Ok(Some(Wait::Forever));
        }
        let duration = duration::parse(&text).map_err(|error| {
            let hint = match error {
                DurationError::TooLong { .. } => "; write `forever` to wait without a limit",
                DurationError::Form { .. } => " (a wait may also be `forever`)",
            };
            Failure::bad_arguments(format!("{source} {error}{hint}"))
        })?;
        Ok(Some(if duration.is_zero() {
            Wait::No
        } else {
            Wait::For(duration)
        }))
    }
}

/// A call that was understood.
pub(super) struct Call<T> {
    pub(super) tool: T,
    pub(super) wait: Option<Wait>,
}

/// Reads a command line. `None` if clap has answered it with its help or version.
pub(super) fn parse<T: Tool>(
    words: impl IntoIterator<Item = OsString>,
    surface: &mut Surface,
) -> Result<Option<Call<T>>, Failure> {
    let words: Vec<_> = words.into_iter().collect();
    let command = WaitArgs::augment_args(T::command());
    // Found without clap: the answer names the command also of a call that clap cannot parse.
    let mut typed = words.iter().skip(1).filter_map(|word| word.to_str());
    let known = typed.find_map(|word| command.find_subcommand(word));
    surface.called(command.get_name(), known.map_or("", Command::get_name));
    let matches = match command.try_get_matches_from(words) {
        Ok(matches) => matches,
        Err(error) => return refuse(&error, surface),
    };
    let understood = T::from_arg_matches(&matches)
        .and_then(|tool| Ok((tool, WaitArgs::from_arg_matches(&matches)?)));
    match understood {
        Ok((tool, wait)) => {
            let wait = wait.wait()?;
            Ok(Some(Call { tool, wait }))
        }
        Err(error) => refuse(&error, surface),
    }
}

fn refuse<T>(error: &clap::Error, surface: &Surface) -> Result<Option<T>, Failure> {
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            return match surface.written(error.print(), Exit::Success) {
                Exit::Success => Ok(None),
                exit => Err(Failure::new(
                    exit,
                    "ANSWER_LOST",
                    "the help could not be written",
                )),
            };
        }
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            surface.say(&error.to_string());
            return Err(Failure::bad_arguments(
                "a subcommand is missing; --help shows them all",
            ));
        }
        _ => {}
    }
    let text = error.to_string();
    // What follows these words is advice, and the usage.
    let advice = ["Usage:", "tip:", "For more information"];
    let mut lines = text
        .lines()
        .map(str::trim)
        .take_while(|line| !advice.iter().any(|begins| line.starts_with(begins)));
    let first = lines.next().unwrap_or_default();
    let first = first.strip_prefix("error: ").unwrap_or(first).to_owned();
    // The missing arguments themselves stand on lines of their own.
    let message = lines.filter(|line| !line.is_empty());
    let message = message.fold(first, |message, line| message + " " + line);
    Err(Failure::bad_arguments(message))
}
