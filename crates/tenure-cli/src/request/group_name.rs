//! `group-name`: its flags.

use crate::args::Common;
use clap::{Args, ValueHint};
use std::path::PathBuf;

/// `group-name`.
#[derive(Debug, Clone, Args)]
#[command(after_help = "Examples:
  tenure run --group \"$(tenure group-name)\" --cancel-in-progress -- ./agent
  tenure group-name --prefix agent               agent-issue-42
  tenure group-name --event issues --number 42   without the event's file

  an issue and its comments                 issue-N
  a pull request, its reviews and comments  pr-N
  a schedule                                schedule
  a dispatch                                dispatch-RUNID
  anything else                             other-RUNID

Without flags tenure reads GITHUB_EVENT_NAME, GITHUB_EVENT_PATH and GITHUB_RUN_ID, which GitHub Actions sets. It \
reads the event's file only if it needs the number.")]
pub(crate) struct GroupNameArgs {
    /// The name of the event [env: GITHUB_EVENT_NAME]
    #[arg(long, value_name = "NAME")]
    pub(crate) event: Option<String>,
    /// The number of the issue or pull request [default: as the event's file has it]
    #[arg(long, value_name = "N")]
    pub(crate) number: Option<u64>,
    /// The id of the run [env: GITHUB_RUN_ID]
    #[arg(long, value_name = "ID")]
    pub(crate) run_id: Option<String>,
    /// The event as a JSON file [env: GITHUB_EVENT_PATH]
    #[arg(long, value_name = "FILE", conflicts_with = "number", value_hint = ValueHint::FilePath)]
    pub(crate) event_file: Option<PathBuf>,
    /// Prefix of the name, followed by a hyphen
    #[arg(long, value_name = "TEXT")]
    pub(crate) prefix: Option<String>,
    #[command(flatten)]
    pub(crate) common: Common,
}
