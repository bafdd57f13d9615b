//! `flock`. Its words are read by rules of their own (`args/flock`).

use crate::args::flock;
use clap::Args;
use std::ffi::OsString;

/// `flock`. Its words are read by rules of their own (`flock::read`).
#[derive(Debug, Clone, Args)]
#[command(
    disable_help_flag = true,
    override_usage = "tenure flock [OPTIONS] FILE|DIRECTORY COMMAND [ARGUMENT]...",
    override_help = flock::help("tenure flock")
)]
pub(crate) struct FlockArgs {
    /// The program was called `flock`
    #[cfg_attr(windows, allow(dead_code, reason = "flock is refused there"))]
    #[arg(skip)]
    pub(crate) by_name: bool,
    /// Everything behind the verb
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    pub(crate) words: Vec<OsString>,
}
