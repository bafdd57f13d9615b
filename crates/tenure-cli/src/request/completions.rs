//! `completions`: its flags.

use crate::output::Output;
use clap::Args;
use std::ffi::OsString;

/// `completions`.
#[derive(Debug, Clone, Args)]
#[command(after_help = "Examples:
  tenure completions bash > ~/.local/share/bash-completion/completions/tenure
  tenure completions zsh > \"${fpath[1]}/_tenure\"
  tenure completions fish > ~/.config/fish/completions/tenure.fish

The script asks the tenure on the PATH for completions: verbs, flags, and names of locks, groups and profiles. \
That only reads, prints no error and takes at most half a second. It asks no servers (etcd).")]
pub(crate) struct CompletionsArgs {
    /// The shell that reads it
    #[arg(value_name = "SHELL")]
    pub(crate) shell: Shell,
    /// Refused: there is one form only.
    #[arg(long, hide = true)]
    pub(crate) output: Option<Output>,
    /// Asked by the scripts: the line up to the cursor (bash), or its words
    #[arg(last = true, hide = true)]
    pub(crate) line: Vec<OsString>,
}

/// The shells that there are completions for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Shell {
    /// bash 4 or newer
    Bash,
    /// zsh
    Zsh,
    /// fish 3 or newer
    Fish,
}
