//! `demo`: its flags.

use crate::args::value::{self, Typed, typed};
use crate::output::Output;
use clap::Args;
use std::time::Duration;

/// `demo`.
#[derive(Debug, Clone, Args)]
#[command(after_help = "Examples:
  tenure demo                      twenty seconds; leaves nothing behind
  tenure demo | cat                the same for a reader without colours

Five scenes with real calls in a scratch folder: two workers take turns, the next caller follows a killed \
holder at once, a newer run ends an older one, two agents want one file, and the audit shows it all. The demo \
does not use your own locks, audit and configuration.")]
pub(crate) struct DemoArgs {
    /// How long a beat of the story takes.
    #[arg(long, hide = true, value_name = "DURATION", value_parser = typed(value::duration))]
    pub(crate) beat: Option<Typed<Duration>>,
    /// Refused: there is one form only.
    #[arg(long, hide = true)]
    pub(crate) output: Option<Output>,
}
