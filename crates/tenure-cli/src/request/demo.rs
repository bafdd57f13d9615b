//! `demo`: its flags.

use crate::args::value::{self, Typed, typed};
use crate::output::Output;
use clap::Args;
use std::time::Duration;

/// `demo`.
#[derive(Debug, Clone, Args)]
#[command(after_help = "Examples:
  tenure demo                      twenty seconds, and nothing is left
  tenure demo | cat                the same for a reader without colours

Five scenes with real calls in a scratch folder: two workers take turns, a killed holder is followed at once, a newer run ends an \
older one, two agents want one file, and the audit has it all. Your own locks, audit and configuration are not touched.")]
pub(crate) struct DemoArgs {
    /// How long a beat of the story takes.
    #[arg(long, hide = true, value_name = "DURATION", value_parser = typed(value::duration))]
    pub(crate) beat: Option<Typed<Duration>>,
    /// Refused: there is one form only.
    #[arg(long, hide = true)]
    pub(crate) output: Option<Output>,
}
