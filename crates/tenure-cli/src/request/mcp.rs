//! `mcp`: its flags, and below what a call of an agent's tool means.

#[cfg(all(feature = "mcp", unix))]
mod tool;

#[cfg(all(feature = "mcp", unix))]
pub(crate) use tool::{
    AcquireParams, Asked, NameParams, NoParams, ReleaseParams, WaitParams, read,
};

use crate::args::Common;
use clap::Args;

/// `mcp`.
#[derive(Debug, Clone, Args)]
#[command(
    after_help = "An agent's host starts this server as its child, and speaks the Model Context Protocol with it on stdin and \
stdout. The agent gets six tools: lock_acquire, lock_release, lock_check, lock_list, lock_wait and lock_cancel. The holds \
belong to the host. They end when the agent releases them or the host ends. If the server ends, they go on, \
and a new server knows them. The page docs/agents.md has the tools.

Examples:
  tenure mcp                 as the command of a host's MCP server
  tenure mcp --scope repo    the same locks for all work trees of a clone"
)]
pub(crate) struct McpArgs {
    #[command(flatten)]
    #[cfg_attr(
        not(all(feature = "mcp", unix)),
        allow(dead_code, reason = "a build without MCP refuses the verb")
    )]
    pub(crate) common: Common,
}
