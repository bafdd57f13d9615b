//! `profiles`: its flags.

use crate::args::Common;
use clap::Args;

/// `profiles`.
#[derive(Debug, Clone, Args)]
#[command(after_help = "Examples:
  tenure profiles                  all of them
  tenure profiles --profile fleet  one of them
  tenure profiles --output json | jq '.data.profiles[] | {name, ttl_ms}'

What the rows of the table say:
  judged by       what is looked at to find out whether a holder is alive
  if unseen       what a process on another machine (or container) counts as
  too old         the age, or silence since a heartbeat, that makes it stale
  unreadable      what is done about a record that cannot be read
  left behind     what is done about a stale lock
  held            what is done about a lock that another caller holds
  held by you     the answer to asking again under a hold's own request id
  force           what --force does to a lock that is held
  another's       the answer to releasing a lock of another owner
  already free    the answer to releasing a free lock
  ttl             how long a run, and a detached hold, last without a heartbeat

Reads only: it looks at no lock.")]
pub(crate) struct ProfilesArgs {
    #[command(flatten)]
    pub(crate) common: Common,
}
