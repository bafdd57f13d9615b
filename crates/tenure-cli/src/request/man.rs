//! `man`: its flags.

use crate::output::Output;
use clap::{Args, ValueHint};
use std::path::PathBuf;

/// `man`.
#[derive(Debug, Clone, Args)]
#[command(after_help = "Examples:
  tenure man run | man -l -             read the page of a verb
  tenure man > tenure.1                 the page of tenure itself
  tenure man --to ~/.local/share/man/man1
                                        all pages, where man(1) finds them")]
pub(crate) struct ManArgs {
    /// The verb of the page [default: tenure itself; with --to all of them]
    #[arg(value_name = "VERB")]
    pub(crate) verb: Option<String>,
    /// Write files into this folder; creates it if necessary
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) to: Option<PathBuf>,
    /// Refused: there is one form only.
    #[arg(long, hide = true)]
    pub(crate) output: Option<Output>,
}
