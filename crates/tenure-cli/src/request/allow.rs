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
    after_help = "Somebody else wrote the tenure.toml that came with a clone. Two kinds of keys in it need your consent: a store \
over a network, which would get your credentials (TENURE_ETCD_USER); and variables and commands (env, rollback, \
on_supersede, on_superseded) of runs that an agent or its hook wrote. Consent is valid for all clones and work \
trees. tenure keeps it as allow = [...] in your own tenure.toml; the machine's (/etc/tenure.toml) may have the \
key for all users. Consent to a store covers its scheme, servers, ports and path. Consent to variables and \
commands covers their present text, so a change needs new consent.

A machine remembers to which cluster each server of locks belongs, and refuses another one. After a restore, \
URL#CLUSTER accepts the new cluster; the refusal prints that line.

Examples:
  tenure allow                        the requests here, and what is allowed
  tenure allow ./tenure.toml          allows all that this file asks for now
  tenure allow etcds://locks.example  allows every path on that server
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
