//! `hook`: its flags, and below what an event meets in the configuration.

#[cfg(unix)]
mod rules;

#[cfg(unix)]
pub(crate) use rules::{About, Misread};

use crate::args::value::AgentHost;
use crate::output::Output;
use clap::Args;

/// `hook`.
#[derive(Debug, Clone, Args)]
#[command(after_help = "Examples:
  tenure hook claude < event.json  the answer to this event of Claude Code
  tenure hook codex < event.json   the same for Codex

The host of a coding agent calls the hook before and after each tool call: one event as JSON on stdin, one \
answer on stdout. A call that matches no rule of tenure.toml gets no answer. The rules:

  [[agent.command]]
  match = [\"cargo test\"]     # these commands run under the lock
  lock = \"build\"

  [[agent.path]]
  match = [\"migrations/**\"]  # one agent at a time edits these files

The exit code is always 0. If tenure itself fails, the rule's on_error decides: open or closed. The page \
docs/agents.md says what rules stop, and what they do not.")]
pub(crate) struct HookArgs {
    /// The program that calls it
    #[arg(value_name = "HOST")]
    pub(crate) host: AgentHost,
    /// Refused: the host has its own form.
    #[arg(long, hide = true)]
    pub(crate) output: Option<Output>,
}
