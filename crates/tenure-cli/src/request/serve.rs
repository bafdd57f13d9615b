//! `serve`: its flags, and below what a request of its client means.

#[cfg(unix)]
mod params;

#[cfg(unix)]
pub(crate) use params::{AcquireParams, CheckParams, KnownLock, Usual, Where, plain};

use crate::args::Common;
use clap::Args;

/// `serve`.
#[derive(Debug, Clone, Args)]
#[command(
    after_help = "For authors of clients. A program starts serve as its child, writes requests to its stdin and reads answers from \
its stdout: JSON-RPC 2.0, one message a line. The holds belong to that program. They end when it releases them, \
closes serve's stdin, or ends. If serve is killed, they go on, and a new serve adopts them. The page \
docs/clients.md has the messages; examples/serve has a client in Python, and a check for clients in any \
language.

Examples:
  tenure serve
  tenure serve --scope machine"
)]
pub(crate) struct ServeArgs {
    #[command(flatten)]
    pub(crate) common: Common,
}
