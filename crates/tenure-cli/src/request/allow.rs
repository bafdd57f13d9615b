//! `allow`: its flags, and below what they mean.

#[cfg(unix)]
mod meaning;

#[cfg(unix)]
pub(crate) use meaning::{Allow, Consent};

use crate::args::Common;
use clap::Args;

/// `allow`.
#[derive(Debug, Clone, Args)]
#[command(
    after_help = "A tenure.toml that came with a clone is somebody else's word. Two things in it need your \
consent: a store over a network, which would get your credentials (TENURE_ETCD_USER), and the variables and \
commands (env, rollback, on_supersede, on_superseded) that a run gets which an agent wrote, or its hook. \
Consent holds for all clones and work trees, and stands as allow = [...] in your own tenure.toml; the machine's \
(/etc/tenure.toml) may say it for all users. A store is allowed by scheme, servers, ports and whole parts of its \
path; variables and commands by a hash, so a change asks anew.

A machine remembers to which cluster each server of locks belongs, and refuses another one. After a restore, \
URL#CLUSTER accepts the new cluster; the refusal prints that line.

Examples:
  tenure allow                        what is asked for here, and allowed
  tenure allow ./tenure.toml          all that this file asks for now
  tenure allow etcds://locks.example  every path on that server
  tenure allow --revoke ./tenure.toml"
)]
pub(crate) struct AllowArgs {
    /// The URL of a store, a tenure.toml, a hash that `tenure allow` shows, or URL#CLUSTER
    #[arg(value_name = "WHAT")]
    pub(crate) what: Vec<String>,
    /// Take the consent back
    #[arg(long, requires = "what")]
    pub(crate) revoke: bool,
    #[command(flatten)]
    pub(crate) common: Common,
}
