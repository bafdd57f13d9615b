//! What the flags of verbs are made of: those that several verbs share, their values, and how a flag is declared.
//!
//! The flags of one verb, and what they mean, stand in its file of `request`; `verb` reads a line by them.
#![allow(
    clippy::doc_markdown,
    clippy::struct_excessive_bools,
    reason = "the comments are the help text that people read, and the flags are what they typed"
)]

pub(crate) mod flags;
#[cfg_attr(windows, path = "args/no_flock.rs")]
pub(crate) mod flock;
pub(crate) mod value;

use self::flags::flags;
use self::value::{Ticket, Typed, typed};
use crate::output::Output;
use clap::{Arg, Args, ValueHint};
use std::path::PathBuf;
use std::time::Duration;
use tenure_core::{AgentKey, LockName, RequestId};
use tenure_engine::config::Scope;
use tenure_engine::engine::Wait;
use tenure_engine::leased_path::Across;

/// The heading of flags that every verb takes.
pub(crate) const GLOBAL: &str = "Global";
/// The heading of flags for agents, and for programs that call on their behalf.
pub(crate) const AGENTS: &str = "Agents";
/// The headings of flags that mean something in one profile only.
pub(crate) const SPRINT: &str = "Sprint profile";
pub(crate) const SESSION: &str = "Session profile";
pub(crate) const FLEET: &str = "Fleet profile";

/// Leaves flags that are in daily use elsewhere to the whole page of one verb.
pub(crate) fn less_used(ids: &'static [&'static str]) -> impl FnMut(Arg) -> Arg {
    move |arg| {
        let is_one = ids.contains(&arg.get_id().as_str());
        if is_one {
            arg.hide_short_help(true)
        } else {
            arg
        }
    }
}

flags! {
    /// Flags that every verb takes.
    pub(crate) struct Common {
        /// The folder of the locks
        #[arg(long, value_name = "DIR", help_heading = GLOBAL, value_hint = ValueHint::DirPath)]
        dir: Option<PathBuf>, plain "--dir";
        /// The place as a URL: file:DIR, or etcd://HOST:PORT[,HOST:PORT]/PREFIX for many machines
        #[arg(
            long,
            value_name = "URL",
            hide_short_help = true,
            help_heading = GLOBAL
        )]
        store: Option<String>;
        /// The callers that see the same locks: user, repo or machine
        ///
        /// [env: TENURE_SCOPE]; user: your own processes; repo: all work trees of this git clone; machine: all users whom the
        /// administrator lets in (/var/lib/tenure/locks, or the `dir` of /etc/tenure.toml)
        #[arg(
            long,
            value_name = "SCOPE",
            hide_possible_values = true,
            help_heading = GLOBAL,
            value_parser = value::scope(),
            conflicts_with = "store"
        )]
        scope: Option<Scope>;
        /// Rules and file formats of the locks: native, sprint, resume, session or fleet
        ///
        /// [default: what tenure.toml says, else native; env: TENURE_PROFILE]
        #[arg(long, value_name = "NAME", help_heading = GLOBAL)]
        profile: Option<String>;
        /// The project of the lock
        #[arg(long, value_name = "DIR", help_heading = SPRINT, conflicts_with = "dir", value_hint = ValueHint::DirPath)]
        project_root: Option<PathBuf>;
        /// Name of the lock's file [default: .sprint-running]
        #[arg(long, value_name = "FILE", help_heading = SPRINT)]
        lock_file_name: Option<String>;
        /// Age at which a lock is stale [default: 10m]
        #[arg(long, value_name = "DURATION", help_heading = SESSION)]
        stale_after: Option<Typed<Duration>>, read value::lease;
        /// What to print: text, json or yaml [env: TENURE_OUTPUT]
        #[arg(
            long,
            value_name = "FORMAT",
            hide_possible_values = true,
            help_heading = GLOBAL
        )]
        output: Option<Output>, plain "--output";
        /// Read this tenure.toml instead of the nearest one
        #[arg(long, value_name = "FILE", help_heading = GLOBAL, hide_short_help = true, value_hint = ValueHint::FilePath)]
        config: Option<PathBuf>;
        /// The folder of the audit [default: `audit` in the lock folder, env: TENURE_AUDIT_DIR]
        #[arg(long, value_name = "DIR", help_heading = GLOBAL, hide_short_help = true, value_hint = ValueHint::DirPath)]
        audit_dir: Option<PathBuf>;
        /// Trust the locks of a network file system
        #[arg(long, help_heading = GLOBAL, hide_short_help = true)]
        allow_network_fs: bool;
        /// Print errors only, and nothing if a lock is held
        #[arg(short, long, help_heading = GLOBAL, conflicts_with = "verbose")]
        quiet: bool, plain "-q";
        /// Say more about what happens
        #[arg(short, long, help_heading = GLOBAL, hide_short_help = true)]
        verbose: bool, plain "-v";
    }
}

flags! {
    /// How long to wait.
    pub(crate) struct Patience {
        /// How long to wait: 90s, 15m, 0 or forever
        ///
        /// [default: 10s; 0 in the profiles of other systems, forever in push and in a group of run; env: TENURE_WAIT]
        #[arg(short, long, value_name = "DURATION")]
        wait: Option<Typed<Wait>>, read value::wait, plain "-w" | "--wait", key wait;
        /// Do not wait (as --wait 0)
        #[arg(short = 'n', long = "nonblock", conflicts_with = "wait")]
        nonblock: bool, plain "-n";
        /// The exit code instead of 4 when the lock is held
        #[arg(short = 'E', long, value_name = "CODE", value_parser = clap::value_parser!(u8), hide_short_help = true)]
        conflict_exit_code: Option<u8>;
    }
}

/// In whose name a call is made.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct Calling {
    /// The agent that the caller acts for: HOST/SESSION, or HOST/SESSION/AGENT for one agent of a session
    ///
    /// [env: TENURE_AS]; an inherited TENURE_AS is only a label: the hold is not the agent's
    #[arg(long = "as", value_name = "KEY", help_heading = AGENTS, hide_short_help = true, value_parser = typed(value::agent))]
    pub(crate) agent: Option<Typed<AgentKey>>,
}

/// The path whose lock a call is about, in place of a name.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct OfPath {
    /// The lock of this file or folder, in place of NAME; it need not exist yet
    #[arg(long, value_name = "PATH", help_heading = AGENTS, hide_short_help = true, conflicts_with = "name", value_hint = ValueHint::FilePath)]
    pub(crate) path: Option<PathBuf>,
    /// Work trees that share the lock of PATH: worktree (only this one) or repo (all of the repository)
    ///
    /// [default: by the path's rule in tenure.toml, else worktree]
    #[arg(
        long,
        value_name = "RANGE",
        help_heading = AGENTS,
        hide_short_help = true,
        hide_possible_values = true,
        requires = "path",
        conflicts_with = "name",
        value_parser = value::across()
    )]
    pub(crate) across: Option<Across>,
}

/// What a call is about in place of a name.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct OfLock {
    #[command(flatten)]
    pub(crate) path: OfPath,
    /// The lock of this group, in place of NAME; upper and lower case are the same
    #[arg(long, value_name = "NAME", hide_short_help = true, conflicts_with = "name", value_parser = typed(value::group))]
    pub(crate) group: Option<Typed<LockName>>,
}

/// For what a lock has to have room.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct OfMode {
    /// Whether it has room for another shared holder
    #[arg(short, long, conflicts_with = "slots", hide_short_help = true)]
    pub(crate) shared: bool,
    /// Whether it has room for one of N slots
    ///
    /// [default: as tenure.toml says of the lock, else exclusive]
    #[arg(long, value_name = "N", hide_short_help = true, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) slots: Option<u32>,
}

flags! {
    /// How a claim is made.
    pub(crate) struct Claiming {
        #[command(flatten)]
        patience: Patience;
        /// How long the hold lasts after its last heartbeat.
        ///
        /// Counts only if the holder cannot be seen
        #[arg(long, value_name = "DURATION")]
        ttl: Option<Typed<Duration>>, read value::lease, plain "--ttl", key ttl;
        /// The id that renews and releases this hold [default: generated]
        #[arg(long, value_name = "ID", visible_aliases = ["session-id", "run-id"])]
        request_id: Option<Typed<RequestId>>, read value::request_id, plain "--request-id";
        /// Ask a live holder to stop.
        ///
        /// Overrides a detached hold, which needs --yes
        #[arg(long, visible_alias = "force-lock")]
        force: bool;
        /// Confirm --force
        #[arg(long, requires = "force", hide_short_help = true)]
        yes: bool;
        /// Share the lock with other shared holders.
        ///
        /// An exclusive holder has it alone
        #[arg(short, long, conflicts_with = "slots")]
        shared: bool;
        /// Take one of N slots: N holders at a time.
        ///
        /// TENURE_SLOT is the number of the slot, 0 to N-1
        #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
        slots: Option<u32>;
        /// Keep the place in line for a minute after the wait has timed out, and come back to it: auto
        /// (the place of the calling script or agent), or the ticket of a refusal
        #[arg(long, value_name = "TICKET", hide_short_help = true)]
        ticket: Option<Typed<Ticket>>, read value::ticket;
        /// On whose behalf [default: $USER; fleet: $ACTOR]
        #[arg(long, value_name = "NAME", hide_short_help = true)]
        actor: Option<String>;
        /// What the sprint works on
        #[arg(long, value_name = "SPEC", help_heading = SPRINT)]
        epic_spec: Option<String>;
        /// The intent's name, if its file has none
        #[arg(long, value_name = "NAME", help_heading = FLEET)]
        intent_name: Option<String>;
        /// The intent's version, if its file has none
        #[arg(long, value_name = "V", help_heading = FLEET)]
        intent_version: Option<String>;
        /// The intent's file: lock, mode, ttl and name
        #[arg(long, value_name = "FILE", help_heading = FLEET, value_hint = ValueHint::FilePath)]
        intent: Option<PathBuf>;
        /// A parameter of the intent (repeatable)
        #[arg(long, value_name = "K=V", help_heading = FLEET)]
        param: Vec<Typed<(String, String)>>, read value::pair;
        /// A fact to keep with the lock (repeatable)
        #[arg(long, value_name = "K=V", help_heading = FLEET)]
        metadata: Vec<Typed<(String, String)>>, read value::pair;
        /// Write the hold to the disk before the answer, so that it survives a power cut.
        ///
        /// Each change of the lock waits for the disk while the hold lasts
        #[arg(long, hide_short_help = true)]
        durable: bool;
        /// The reason of the hold; waiting callers see it
        #[arg(long, value_name = "TEXT")]
        why: Option<String>;
    }
}
