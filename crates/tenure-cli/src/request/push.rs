//! `push`: its flags, and what they mean.

use crate::args::value::{self, Typed, typed};
use crate::args::{Common, Patience};
use clap::Args;
use std::time::Duration;
#[cfg(unix)]
use {
    super::{Place, Surroundings, said_wait},
    crate::failure::Failure,
    tenure_engine::engine,
};

/// `push`.
#[derive(Debug, Clone, Args)]
#[command(after_help = "Examples:
  tenure push                           HEAD to the branch's upstream on origin
  tenure push --dry-run                 say where to, and change nothing
  tenure push --branch main -w 5m       to main; wait 5 minutes for other pushes
  tenure push --attempts 10 --output json

Pushes HEAD:BRANCH with git. If another push came first, or the connection broke, push waits (--backoff, then \
twice, four, eight and sixteen times as long, each a quarter more or less), does `git pull --rebase` and tries \
again. Any other failure ends at once, with git's message. A rebase with a conflict is aborted, and everything \
is as before. push never uses force. A branch without an upstream on that remote needs --branch. Your pushes on \
this machine to one branch take turns, by a lock in your own folder (--dir changes the folder, TENURE_DIR does \
not); without --wait the wait has no limit. Exit code: 0 pushed, 1 not pushed, 4 the wait for the lock timed \
out, 5 no branch to push to.")]
pub(crate) struct PushArgs {
    /// Where to push: a remote of this repository, or a URL
    #[arg(long, value_name = "NAME", default_value = "origin")]
    pub(crate) remote: String,
    /// The branch there [default: the upstream of the branch that is checked out; the remote's
    /// default branch on that branch itself and on a detached HEAD]
    #[arg(long, value_name = "NAME")]
    pub(crate) branch: Option<String>,
    /// Say what would be pushed where, take no lock and push nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// How often to try
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub(crate) attempts: u32,
    /// The pause after the first attempt; the later ones double, up to sixteen times as much
    #[arg(long, value_name = "DURATION", default_value = "1s", value_parser = typed(value::duration))]
    pub(crate) backoff: Typed<Duration>,
    #[command(flatten)]
    pub(crate) patience: Patience,
    #[command(flatten)]
    pub(crate) common: Common,
}

/// Pushes to a branch that others push to as well.
#[cfg(unix)]
#[derive(Debug)]
pub(crate) struct Push {
    pub(crate) place: Place,
    pub(crate) remote: String,
    /// Without `refs/heads/`; `None` if git has to tell it.
    pub(crate) branch: Option<String>,
    pub(crate) dry_run: bool,
    pub(crate) attempts: u32,
    /// The pause after the first attempt.
    pub(crate) backoff: Duration,
    /// The wait that was typed. The project's default depends on the name of the lock, which only git tells.
    pub(crate) wait: Option<engine::Wait>,
}

#[cfg(unix)]
impl Push {
    pub(crate) fn of(typed: &PushArgs, around: &Surroundings) -> Result<Self, Failure> {
        let native = tenure_core::Policy::NATIVE.name;
        let bad = |why: &str| Err(Failure::bad_arguments(why));
        if typed.common.profile.as_deref().unwrap_or(native) != native {
            return bad("--profile: the lock of a push is a native one; leave the flag out");
        }
        if typed.remote.is_empty() || typed.remote.starts_with('-') {
            return bad(
                "--remote: the name or URL of a remote is not empty and begins with no hyphen",
            );
        }
        let branch = typed.branch.as_deref();
        let branch = branch.map(|branch| branch.strip_prefix("refs/heads/").unwrap_or(branch));
        match branch {
            Some(branch) if branch.is_empty() || branch.starts_with('-') => {
                return bad(
                    "--branch: the name of a branch is not empty and begins with no hyphen",
                );
            }
            Some(branch) if branch.starts_with("refs/") => {
                return bad(
                    "--branch: a push goes to a branch (refs/heads/…), and to no other reference",
                );
            }
            Some(_) | None => {}
        }
        Ok(Self {
            remote: typed.remote.clone(),
            branch: branch.map(str::to_owned),
            dry_run: typed.dry_run,
            attempts: typed.attempts,
            backoff: typed.backoff.value("--backoff")?,
            wait: said_wait(&typed.patience, around)?,
            place: Place::of_push(&typed.common, around)?,
        })
    }
}
