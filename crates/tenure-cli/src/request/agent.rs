//! `agent`: its flags, and below what they mean.

#[cfg(unix)]
mod meaning;

#[cfg(unix)]
pub(crate) use meaning::Agent;

use crate::args::Common;
use crate::args::value::AgentHost;
use clap::Args;

/// `agent`.
#[derive(Debug, Clone, Args)]
#[command(
    override_usage = "tenure agent install|uninstall|status|probe [OPTIONS] [HOST]",
    after_help = "Examples:
  tenure agent install                   for all who work in this repository
  tenure agent install codex --user      for you, in all folders
  tenure agent install claude --dry-run  show the difference, change nothing
  tenure agent status claude             whether it is on, and what is wrong
  tenure agent uninstall claude --user   restore the files

install adds hooks, a server and a skill to the host's own files, and keeps every other byte of them. uninstall \
restores the old files, or removes tenure's part from files that were edited since. tenure.toml says which \
commands and files are locked; without it the hooks change nothing.

An agent runs `tenure agent probe HOST` once, as a separate command. The answer says whether the host called the \
hook, and whether it ran the hook's command.

Exit code of status and probe: 0, or 1 if something is wrong."
)]
pub(crate) struct AgentArgs {
    /// What to do: install, uninstall, status or probe
    #[arg(value_name = "ACTION", hide_possible_values = true)]
    pub(crate) action: AgentAction,
    /// The host of the agents: claude (Claude Code) or codex [default: the one that is found here]
    #[arg(value_name = "HOST", hide_possible_values = true)]
    pub(crate) host: Option<AgentHost>,
    /// For this user, in all folders [default where no repository is]
    #[arg(long, conflicts_with = "project")]
    pub(crate) user: bool,
    /// For all who work in this repository; in none, for this folder [default in a repository]
    #[arg(long)]
    pub(crate) project: bool,
    /// Show the difference and write nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
    #[command(flatten)]
    pub(crate) common: Common,
}

/// What `agent` does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum AgentAction {
    /// Put tenure into the host's files
    Install,
    /// Take it out again
    Uninstall,
    /// Say what is installed, and what is wrong
    Status,
    /// Say whether hook and rewrite arrive
    Probe,
}

#[cfg(unix)]
impl AgentAction {
    /// As it is typed.
    fn word(self) -> String {
        use clap::ValueEnum;
        let word = self.to_possible_value();
        word.map_or_else(String::new, |word| word.get_name().to_owned())
    }
}
