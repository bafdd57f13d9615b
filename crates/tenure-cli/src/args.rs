//! What may be typed: the verbs and their flags, read verb-first.
//!
//! Building the whole tree of arguments costs more than running a lock. So the verb is looked up first
//! and only its own parser is built. The whole tree (for the pages of help and for mistakes) is made of
//! the same parts, and a test holds the two equal.
//!
//! `request` decides what the words mean. `front` reads what stands where a verb should, and `refusal`
//! answers words that make no call.
//!
//! Here and elsewhere, code that a plain run never uses is marked cold. A start pays for each stretch of
//! code that it touches, and the marks keep the code of a plain run together.
#![allow(
    clippy::doc_markdown,
    clippy::struct_excessive_bools,
    reason = "the comments are the help text that people read, and the flags are what they typed"
)]

pub(crate) mod expected;
#[cfg_attr(windows, path = "args/no_flock.rs")]
pub(crate) mod flock;
mod front;
pub(crate) mod help;
mod refusal;
mod run;
pub(crate) mod value;

use self::help::{AGENTS, FLEET, GLOBAL, SESSION, SPRINT, Size};
use self::value::{Follow, Further, Moment, Owner, Queue, Ticket, Typed, WorkResult, typed};
use crate::failure::Failure;
use crate::output::Output;
use crate::supervise::OnLost;
use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand};
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;
use tenure_core::{AgentKey, LockName, RequestId};
use tenure_engine::audit::EventName;
use tenure_engine::config::{OnError, Scope};
use tenure_engine::engine::Wait;
use tenure_engine::leased_path::Across;

const AFTER_HELP: &str = "\
Examples:
  tenure run backup -- ./backup.sh  one at a time, the others wait in turn
  tenure check backup               who holds it, since when, why, who waits
  tenure VERB -h                    what people use of a verb; --help has all

Exit codes:
  0 success                   5 not found             79 superseded
  1 error                     6 not the owner         80 lock lost
  2 bad arguments             7 permission denied     81 would wait for ever
  3 partial failure           10 over --max-runtime   126 command not runnable
  4 held, stale, unreadable   12 store unusable       127 command not found
A command that runs keeps its own; 128+N: ended by signal N; `flock` has flock(1)'s.

Locks live in --dir or --scope, else where the run around the call has its own, else in $TENURE_DIR or \
$TENURE_SCOPE, else where the nearest tenure.toml, the user's or the machine's says, else in \
$XDG_STATE_HOME/tenure/locks (~/.local/state/tenure/locks). What the run around a call did not see counts before \
that run: another value of a variable, a tenure.toml of another project.";

/// The command line, as clap reads it.
#[derive(Debug, Parser)]
#[command(
    name = "tenure",
    about = "One holder at a time, for scripts, CI jobs and AI agents",
    version,
    arg_required_else_help = true,
    after_help = AFTER_HELP,
    subcommand_required = true
)]
pub(crate) struct Tree {
    #[cfg_attr(
        not(test),
        allow(
            dead_code,
            reason = "each verb is read by its own parser; tests hold this one equal"
        )
    )]
    #[command(subcommand)]
    pub(crate) verb: Verb,
}

/// The verbs.
#[derive(Debug, Subcommand)]
#[allow(
    clippy::large_enum_variant,
    reason = "there is one verb in the life of a process"
)]
pub(crate) enum Verb {
    /// Hold a lock while a command runs
    Run(RunArgs),
    /// Take a lock and return
    Acquire(AcquireArgs),
    /// Give back a lock that `acquire` took
    Release(ReleaseArgs),
    /// Ask the holder of a lock to stop
    Cancel(CancelArgs),
    /// Remove the lock of another owner, by force
    ForceRelease(ForceReleaseArgs),
    /// Renew a lock, and learn whether it is lost or asked for
    Heartbeat(HeartbeatArgs),
    /// Say who holds a lock
    Check(CheckArgs),
    /// Show every lock: standing, holder, age, queue
    List(ListArgs),
    /// Wait until a lock is free, without taking it
    Wait(WaitArgs),
    /// Ask whether a fencing token is still good
    Fence(FenceArgs),
    /// Remove what is proven stale
    Clean(CleanArgs),
    /// Say where the locks are and why, and what is wrong there
    Doctor(DoctorArgs),
    /// Show the rules of every profile
    Profiles(ProfilesArgs),
    /// Allow what the tenure.toml of a clone asks for
    Allow(AllowArgs),
    /// Show what happened to locks
    Audit(AuditArgs),
    /// Lock a file or descriptor as flock(1) does
    Flock(FlockArgs),
    /// Push to a branch that others push to as well
    Push(PushArgs),
    /// Hold locks for the program that starts this
    Serve(ServeArgs),
    /// Hold locks for an agent that speaks MCP
    Mcp(McpArgs),
    /// Put tenure's hooks into an agent's host, and look after them
    Agent(AgentArgs),
    /// Answer a coding agent before it acts
    Hook(HookArgs),
    /// Name the concurrency group of a CI event
    GroupName(GroupNameArgs),
    /// Print what completes tenure's words in a shell
    Completions(CompletionsArgs),
    /// Print the manual's page of a verb, or write all pages
    Man(ManArgs),
    /// A call whose verb stands in a document
    #[command(skip)]
    Document(DocumentArgs),
    /// A page of help
    #[command(skip)]
    Help(HelpArgs),
    /// The version
    #[command(skip)]
    Version(Output),
    /// A call without any word
    #[command(skip)]
    Bare,
}

/// A call with `--input` and without a verb.
#[derive(Debug, Clone)]
pub(crate) struct DocumentArgs {
    /// What decides about the answer's shape.
    pub(crate) common: Common,
    /// The value of `--input`.
    pub(crate) input: OsString,
    /// The whole call.
    pub(crate) words: Vec<OsString>,
}

/// A question about the flags.
#[derive(Debug, Clone)]
pub(crate) struct HelpArgs {
    /// The verb that is asked about.
    pub(crate) of: Option<String>,
    pub(crate) size: Size,
    pub(crate) common: Common,
}

/// Flags that every verb takes.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct Common {
    /// The folder of the locks
    #[arg(long, value_name = "DIR", help_heading = GLOBAL)]
    pub(crate) dir: Option<PathBuf>,
    /// The place as a URL: file:DIR, or etcd://HOST:PORT[,HOST:PORT]/PREFIX for many machines
    #[arg(
        long,
        value_name = "URL",
        hide_short_help = true,
        help_heading = GLOBAL
    )]
    pub(crate) store: Option<String>,
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
    pub(crate) scope: Option<Scope>,
    /// Rules and words of another system, as sprint or fleet.
    ///
    /// By them locks are kept and judged: native, sprint, resume, session or fleet
    /// [default: what tenure.toml says, else native; env: TENURE_PROFILE]
    #[arg(long, value_name = "NAME", help_heading = GLOBAL)]
    pub(crate) profile: Option<String>,
    /// The project of the lock
    #[arg(long, value_name = "DIR", help_heading = SPRINT, conflicts_with = "dir")]
    pub(crate) project_root: Option<PathBuf>,
    /// Name of the lock's file [default: .sprint-running]
    #[arg(long, value_name = "FILE", help_heading = SPRINT)]
    pub(crate) lock_file_name: Option<String>,
    /// When a lock no longer counts [default: 10m]
    #[arg(long, value_name = "DURATION", help_heading = SESSION, value_parser = typed(value::lease))]
    pub(crate) stale_after: Option<Typed<Duration>>,
    /// What to print: text, json or yaml [env: TENURE_OUTPUT]
    #[arg(
        long,
        value_name = "FORMAT",
        hide_possible_values = true,
        help_heading = GLOBAL
    )]
    pub(crate) output: Option<Output>,
    /// Read this tenure.toml instead of the nearest one
    #[arg(long, value_name = "FILE", help_heading = GLOBAL, hide_short_help = true)]
    pub(crate) config: Option<PathBuf>,
    /// The folder of the audit [default: `audit` in the lock folder, env: TENURE_AUDIT_DIR]
    #[arg(long, value_name = "DIR", help_heading = GLOBAL, hide_short_help = true)]
    pub(crate) audit_dir: Option<PathBuf>,
    /// Trust the locks of a network file system
    #[arg(long, help_heading = GLOBAL, hide_short_help = true)]
    pub(crate) allow_network_fs: bool,
    /// Print errors only, and nothing where a lock is held
    #[arg(short, long, help_heading = GLOBAL, conflicts_with = "verbose")]
    pub(crate) quiet: bool,
    /// Say more about what happens
    #[arg(short, long, help_heading = GLOBAL, hide_short_help = true)]
    pub(crate) verbose: bool,
}

/// How long to wait.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct Patience {
    /// How long to wait: 90s, 15m, 0 or forever
    ///
    /// [default: 10s; 0 in the profiles of other systems, forever in push and in a group of run; env: TENURE_WAIT]
    #[arg(short, long, value_name = "DURATION", value_parser = typed(value::wait))]
    pub(crate) wait: Option<Typed<Wait>>,
    /// Do not wait (as --wait 0)
    #[arg(short = 'n', long = "nonblock", conflicts_with = "wait")]
    pub(crate) nonblock: bool,
    /// The exit code instead of 4 when the lock is held
    #[arg(short = 'E', long, value_name = "CODE", value_parser = clap::value_parser!(u8), hide_short_help = true)]
    pub(crate) conflict_exit_code: Option<u8>,
}

/// In whose name a call is made.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct Calling {
    /// The agent in whose name: HOST/SESSION, or HOST/SESSION/AGENT for one agent of a session
    ///
    /// [env: TENURE_AS]; a TENURE_AS that the caller has inherited is only a label: what it takes is not that agent's
    #[arg(long = "as", value_name = "KEY", help_heading = AGENTS, hide_short_help = true, value_parser = typed(value::agent))]
    pub(crate) agent: Option<Typed<AgentKey>>,
}

/// The path whose lock a call is about, in place of a name.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct OfPath {
    /// The lock of this file or folder, in place of NAME; it need not exist yet
    #[arg(long, value_name = "PATH", help_heading = AGENTS, hide_short_help = true, conflicts_with = "name")]
    pub(crate) path: Option<PathBuf>,
    /// Whose PATH is the same: worktree (this very file) or repo (that file in all work trees)
    ///
    /// [default: as the rule of tenure.toml for the path says, else worktree]
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
    /// The lock of this group, in place of NAME; in capitals or not
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

/// How a claim is made.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct Claiming {
    #[command(flatten)]
    pub(crate) patience: Patience,
    /// How long the hold outlives its last heartbeat.
    ///
    /// Counts where the holder cannot be watched
    #[arg(long, value_name = "DURATION", value_parser = typed(value::lease))]
    pub(crate) ttl: Option<Typed<Duration>>,
    /// The id that renews and releases this hold [default: generated]
    #[arg(long, value_name = "ID", visible_aliases = ["session-id", "run-id"], value_parser = typed(value::request_id))]
    pub(crate) request_id: Option<Typed<RequestId>>,
    /// Ask a live holder to stop.
    ///
    /// A detached hold has no process to ask: it is overridden (that needs --yes)
    #[arg(long, visible_alias = "force-lock")]
    pub(crate) force: bool,
    /// Confirm --force
    #[arg(long, requires = "force", hide_short_help = true)]
    pub(crate) yes: bool,
    /// Hold it beside other shared holders.
    ///
    /// Never beside an exclusive one
    #[arg(short, long, conflicts_with = "slots")]
    pub(crate) shared: bool,
    /// Hold one of N slots, so N hold it at a time.
    ///
    /// The number of the slot is in TENURE_SLOT, 0 to N-1
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) slots: Option<u32>,
    /// Keep the place in line for a minute when the wait is over, and come back to it: auto (the
    /// place of the script or agent that calls this), or the ticket that a refusal names
    #[arg(long, value_name = "TICKET", hide_short_help = true, value_parser = typed(value::ticket))]
    pub(crate) ticket: Option<Typed<Ticket>>,
    /// On whose behalf [default: $USER; fleet: $ACTOR]
    #[arg(long, value_name = "NAME", hide_short_help = true)]
    pub(crate) actor: Option<String>,
    /// What the sprint works on
    #[arg(long, value_name = "SPEC", help_heading = SPRINT)]
    pub(crate) epic_spec: Option<String>,
    /// The intent's name, where its file says none
    #[arg(long, value_name = "NAME", help_heading = FLEET)]
    pub(crate) intent_name: Option<String>,
    /// The intent's version, where its file says none
    #[arg(long, value_name = "V", help_heading = FLEET)]
    pub(crate) intent_version: Option<String>,
    /// The intent's file: lock, mode, ttl and name
    #[arg(long, value_name = "FILE", help_heading = FLEET)]
    pub(crate) intent: Option<PathBuf>,
    /// A parameter of the intent (repeatable)
    #[arg(long, value_name = "K=V", help_heading = FLEET, value_parser = typed(value::pair))]
    pub(crate) param: Vec<Typed<(String, String)>>,
    /// A fact to be kept with the lock (repeatable)
    #[arg(long, value_name = "K=V", help_heading = FLEET, value_parser = typed(value::pair))]
    pub(crate) metadata: Vec<Typed<(String, String)>>,
    /// Force the hold to the disk before the answer, so that no power cut takes it back.
    ///
    /// Each change of the lock waits for the disk while this holds it
    #[arg(long, hide_short_help = true)]
    pub(crate) durable: bool,
    /// What it is held for; waiting callers see it
    #[arg(long, value_name = "TEXT")]
    pub(crate) why: Option<String>,
}

/// `run`.
#[derive(Debug, Clone, Args)]
#[command(
    mut_args(help::less_used(&["ttl", "request_id"])),
    override_usage = "tenure run [OPTIONS] NAME -- CMD [ARG]...\n       tenure run [OPTIONS] --group NAME [NAME] -- CMD [ARG]...",
    after_help = "Examples:
  tenure run backup -- ./backup.sh             wait up to 10 s for it, then run
  tenure run deploy --wait 15m -- make deploy  wait longer
  tenure run -n job -- ./job                   do not wait: exit 4 if it is held
  tenure run --skip job -- ./job               for cron: exit 0 if it is held
  tenure run db --output json -- ./migrate     a refusal that programs can read
  tenure run gpu --slots 2 -- ./train          two at a time, the others in turn
  tenure run -l db -l cache -- ./migrate       both, or none
  tenure run --group issue-42 --cancel-in-progress -- ./agent
                                               the newest ends the one that runs

The command gets TENURE_NAME, TENURE_TOKEN (the fencing token), TENURE_REQUEST_ID, \
TENURE_HELD, TENURE_AROUND and with --slots TENURE_SLOT. Its exit code is passed on, and if it died by a signal, so does tenure. The lock is \
released after the command has ended; if tenure itself is killed, the lock stays held until the \
command ends. A signal sent to tenure is passed on to the command; after --grace it is killed, and \
all that descends from it. What a command leaves behind when it ends by itself goes on, without \
the lock (but for --wait-all)."
)]
pub(crate) struct RunArgs {
    /// The name of the lock (a sprint has only one)
    #[arg(value_name = "NAME", value_parser = typed(value::name))]
    pub(crate) name: Option<Typed<LockName>>,
    #[command(flatten)]
    pub(crate) claiming: Claiming,
    /// An exclusive lock; this is the default, unless tenure.toml says shared = true
    #[arg(short = 'x', long, hide_short_help = true, conflicts_with_all = ["shared", "slots"])]
    pub(crate) exclusive: bool,
    /// Take this lock as well: all or none (repeatable).
    ///
    /// NAME:shared and NAME:slots=N say how
    #[arg(short, long = "lock", value_name = "NAME", value_parser = typed(value::further))]
    pub(crate) lock: Vec<Typed<Further>>,
    /// If it is held, do nothing and exit 0 (for cron).
    ///
    /// Says nothing then, and does not wait unless --wait says so
    #[arg(long, conflicts_with_all = ["conflict_exit_code", "ticket"])]
    pub(crate) skip: bool,
    /// The exit code of every failure of tenure itself, such as a lost lock; 125 for git bisect run
    #[arg(hide_short_help = true, long, value_name = "CODE", value_parser = clap::value_parser!(u8))]
    pub(crate) own_exit_code: Option<u8>,
    /// Where the run around this one holds the lock already, go on under it instead of refusing
    #[arg(hide_short_help = true, long)]
    pub(crate) reentrant: bool,
    /// How to wait: fifo (callers in turn), single (one waits, a newer one takes its place), max
    /// (up to 100 wait) or none (refuse at once) [default: fifo; with --group single]
    #[arg(
        hide_short_help = true,
        long,
        value_name = "QUEUE",
        value_enum,
        hide_possible_values = true,
        help_heading = "Groups"
    )]
    pub(crate) queue: Option<Queue>,
    /// Group of runs: one at a time, the newest waits.
    ///
    /// Beside a NAME it is taken first
    #[arg(long, value_name = "NAME", help_heading = "Groups", value_parser = typed(value::group))]
    pub(crate) group: Option<Typed<LockName>>,
    /// Ask its run to stop, and take its place
    #[arg(long, help_heading = "Groups")]
    pub(crate) cancel_in_progress: bool,
    /// What to run when a newer run takes the place of this one: by `sh -c`, after the command has
    /// ended and before the lock is released
    #[arg(
        hide_short_help = true,
        long,
        value_name = "CMD",
        help_heading = "Groups"
    )]
    pub(crate) on_superseded: Option<String>,
    /// What to run before the command when this run takes the place of others
    #[arg(
        hide_short_help = true,
        long,
        value_name = "CMD",
        help_heading = "Groups"
    )]
    pub(crate) on_supersede: Option<String>,
    /// How long the work may take to end after it was asked to; then it is killed [default: 10s]
    #[arg(hide_short_help = true, long, value_name = "DURATION", value_parser = typed(value::duration))]
    pub(crate) grace: Option<Typed<Duration>>,
    /// When SIGTERM follows whatever asked the work to end [default: three quarters of --grace]
    #[arg(hide_short_help = true, long, value_name = "DURATION", value_parser = typed(value::duration))]
    pub(crate) term_after: Option<Typed<Duration>>,
    /// What asks the work to end when another run asks for the lock, when the lock is lost or when
    /// --max-runtime is over: INT, TERM, HUP, USR1, ... [default: INT]
    #[arg(hide_short_help = true, long, value_name = "NAME", value_parser = typed(value::signal))]
    pub(crate) signal: Option<Typed<i32>>,
    /// How long the work may take before it is ended.
    ///
    /// The exit code is 10 then
    #[arg(long, value_name = "DURATION", value_parser = typed(value::limit))]
    pub(crate) max_runtime: Option<Typed<Duration>>,
    /// Keep the lock until everything has ended that the command has started, daemons too
    #[arg(hide_short_help = true, long)]
    pub(crate) wait_all: bool,
    /// End the run when the process that started it ends, however that ends (for harnesses that kill)
    #[arg(hide_short_help = true, long, conflicts_with = "die_with")]
    pub(crate) die_with_parent: bool,
    /// End the run when the process with this number ends, however it ends; auto: what an `acquire` would follow, if it can
    /// be seen
    #[arg(hide_short_help = true, long, value_name = "PID", value_parser = value::follow)]
    pub(crate) die_with: Option<Follow>,
    /// Do not let the command inherit what keeps the lock held (for commands that leave daemons
    /// behind)
    #[arg(hide_short_help = true, long)]
    pub(crate) close: bool,
    /// Run one argument by $SHELL -c, as flock -c does
    #[arg(long, hide_short_help = true)]
    pub(crate) shell: bool,
    /// Become the command instead of supervising it; the lock is free when the command has ended
    #[arg(
        hide_short_help = true,
        long,
        conflicts_with_all = [
            "grace", "term_after", "signal", "max_runtime", "wait_all", "close", "rollback",
            "failure_step", "on_lost", "on_superseded", "die_with_parent", "die_with",
        ]
    )]
    pub(crate) exec: bool,
    /// A command that undoes a failed one while the lock is still held; run by `sh -c`
    #[arg(hide_short_help = true, long, value_name = "CMD")]
    pub(crate) rollback: Option<String>,
    /// What the step is called that failed, for the audit [default: command]
    #[arg(hide_short_help = true, long, value_name = "NAME")]
    pub(crate) failure_step: Option<String>,
    /// What to do when the lock is lost while the command runs: terminate or warn [default: terminate]
    #[arg(
        hide_short_help = true,
        long,
        value_name = "ACTION",
        value_enum,
        hide_possible_values = true
    )]
    pub(crate) on_lost: Option<OnLost>,
    /// What to do where the place of the lock cannot be used: closed refuses, open runs the command without its lock and says
    /// so [default: closed]
    #[arg(hide_short_help = true, long, value_name = "ACTION", value_parser = value::on_error)]
    pub(crate) on_error: Option<OnError>,
    #[command(flatten)]
    pub(crate) path: OfPath,
    #[command(flatten)]
    pub(crate) calling: Calling,
    #[command(flatten)]
    pub(crate) common: Common,
    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "CMD")]
    pub(crate) command: Vec<OsString>,
}

/// `acquire`.
#[derive(Debug, Clone, Args)]
#[command(after_help = "Examples:
  tenure acquire deploy                        for the script that calls this
  tenure acquire deploy --owner $$             for this process, while it lives
  tenure acquire deploy --owner none --ttl 5m  no process: renew within 5 min
  tenure acquire deploy --request-id run-42    to ask again by that id is fine

Give it back with `tenure release NAME` from the owner itself, from anywhere else with the id that `acquire` prints. A lock whose owner ends is free at once.")]
pub(crate) struct AcquireArgs {
    /// The name of the lock (a sprint has only one)
    #[arg(value_name = "NAME", value_parser = typed(value::name))]
    pub(crate) name: Option<Typed<LockName>>,
    #[command(flatten)]
    pub(crate) of: OfLock,
    #[command(flatten)]
    pub(crate) claiming: Claiming,
    /// An exclusive lock; this is the default, unless tenure.toml says shared = true
    #[arg(short = 'x', long, hide_short_help = true, conflicts_with_all = ["shared", "slots"])]
    pub(crate) exclusive: bool,
    /// Whose life the lock follows: a PID, job, parent, none or auto.
    ///
    /// job: of CI; auto: what outlives this call and ends with the work
    #[arg(long, value_name = "OWNER", default_value = "auto", alias = "pid", value_parser = typed(value::owner))]
    pub(crate) owner: Typed<Owner>,
    /// `-`: read the call from stdin, as YAML or JSON
    #[arg(long, value_name = "-", help_heading = SPRINT)]
    pub(crate) input: Option<String>,
    /// The age at which the hold ends, whatever is renewed [default: 2h with --as]
    #[arg(long, value_name = "DURATION", help_heading = AGENTS, hide_short_help = true, value_parser = typed(value::lease))]
    pub(crate) max_age: Option<Typed<Duration>>,
    #[command(flatten)]
    pub(crate) calling: Calling,
    #[command(flatten)]
    pub(crate) common: Common,
}

/// `release`.
#[derive(Debug, Clone, Args)]
#[command(after_help = "Examples:
  tenure release deploy                      from the script that acquired it
  tenure release deploy --request-id run-42  from a sub-shell, or anywhere

Only the owner can release: without an id the process whose life the lock follows. Releasing a free lock succeeds with a warning.")]
pub(crate) struct ReleaseArgs {
    /// The name of the lock (a sprint has only one)
    #[arg(value_name = "NAME", value_parser = typed(value::name))]
    pub(crate) name: Option<Typed<LockName>>,
    #[command(flatten)]
    pub(crate) of: OfLock,
    /// The request id that `acquire` printed
    #[arg(long, value_name = "ID", visible_aliases = ["session-id", "run-id"], value_parser = typed(value::request_id))]
    pub(crate) request_id: Option<Typed<RequestId>>,
    /// How the work ended: success or failure
    #[arg(long, value_name = "RESULT", value_enum, hide_possible_values = true, help_heading = FLEET)]
    pub(crate) result: Option<WorkResult>,
    /// The step that failed; says that the work failed [default: command]
    #[arg(long, value_name = "NAME", help_heading = FLEET)]
    pub(crate) failure_step: Option<String>,
    /// `-`: read the call from stdin, as YAML or JSON
    #[arg(long, value_name = "-", help_heading = SPRINT)]
    pub(crate) input: Option<String>,
    #[command(flatten)]
    pub(crate) calling: Calling,
    #[command(flatten)]
    pub(crate) common: Common,
}

/// `force-release`.
#[derive(Debug, Clone, Args)]
#[command(after_help = "Examples:
  tenure force-release deploy --yes              end a detached hold, loudly
  tenure force-release deploy --yes --token 17   only the hold that you saw
  tenure --profile fleet force-release app-prod  remove a stale lock only

A supervised run is never ended from outside: `tenure cancel` asks it to stop.")]
pub(crate) struct ForceReleaseArgs {
    /// The name of the lock (a sprint has only one)
    #[arg(value_name = "NAME", value_parser = typed(value::name))]
    pub(crate) name: Option<Typed<LockName>>,
    #[command(flatten)]
    pub(crate) of: OfLock,
    /// Only the hold with this request id; if there is none, nothing happens (exit code 5)
    #[arg(long, value_name = "ID", visible_aliases = ["session-id", "run-id"], value_parser = typed(value::request_id))]
    pub(crate) request_id: Option<Typed<RequestId>>,
    /// Only the hold with this fencing token, likewise
    #[arg(long, value_name = "TOKEN", value_parser = typed(value::token))]
    pub(crate) token: Option<Typed<u64>>,
    /// Confirm, where a live hold would be ended
    #[arg(long)]
    pub(crate) yes: bool,
    #[command(flatten)]
    pub(crate) common: Common,
}

/// `cancel`.
#[derive(Debug, Clone, Args)]
#[command(after_help = "Examples:
  tenure cancel deploy            the run ends its command and exits with 79
  tenure cancel deploy --why \"the fix comes first\"
  tenure cancel --group Issue-42  the same for the run of a group
  tenure cancel deploy --request-id r3  one run, whether it waits or works
  tenure cancel deploy --grace 0s  kill what has not ended yet
  tenure cancel --orphan deploy   end the command of a tenure that was killed
  tenure cancel --force deploy    continue a stopped run, and have it end

A supervised run ends its own work: cancel itself signals no process. A waiter leaves the line at once. The holder of an `acquire` \
learns of it from `check` and `heartbeat`. Exit code: 5 if the lock is free, 4 if its holder cannot \
hear of it.

With --orphan the command, which has to be the recorded process itself, and what descends from it are \
ended as its supervisor would have done it. Exit code: 0 once they are gone, 4 if the supervisor lives \
or something else keeps the lock, 7 if they are another user's.

With --force a holder that is stopped (SIGSTOP, Ctrl-Z) is continued, so that it ends its work. It has to be the recorded \
process itself. Exit code: 0 once its hold has ended, 4 if it has not, 7 if it is another user's.")]
pub(crate) struct CancelArgs {
    /// The name of the lock (a sprint has only one)
    #[arg(value_name = "NAME", value_parser = typed(value::name))]
    pub(crate) name: Option<Typed<LockName>>,
    #[command(flatten)]
    pub(crate) of: OfLock,
    /// The one run that is meant, waiting or working [default: all that hold the lock]
    #[arg(long, value_name = "ID", visible_aliases = ["session-id", "run-id"], value_parser = typed(value::request_id))]
    pub(crate) request_id: Option<Typed<RequestId>>,
    /// The caller's own request id [default: generated]
    #[arg(long, value_name = "ID", hide_short_help = true, value_parser = typed(value::request_id))]
    pub(crate) by: Option<Typed<RequestId>>,
    /// What for; the holder is told
    #[arg(long, value_name = "TEXT", conflicts_with = "orphan")]
    pub(crate) why: Option<String>,
    /// On whose behalf; the holder is told [default: $USER; fleet: $ACTOR]
    #[arg(long, value_name = "NAME", conflicts_with = "orphan")]
    pub(crate) actor: Option<String>,
    /// End the work of a run whose supervisor is dead
    #[arg(long)]
    pub(crate) orphan: bool,
    /// Continue a holder that is stopped, so that it ends its work
    #[arg(id = "continues", long = "force", conflicts_with = "orphan")]
    pub(crate) force: bool,
    /// How long the work is given from now on before it is killed [default: as its run says]
    ///
    /// Shortens the grace of work that is ending already, and never extends one
    #[arg(long, value_name = "DURATION", value_parser = typed(value::duration))]
    pub(crate) grace: Option<Typed<Duration>>,
    /// With --orphan: the signal that asks first [default: INT]
    #[cfg_attr(
        not(target_os = "linux"),
        allow(dead_code, reason = "it is refused there before this is read")
    )]
    #[arg(
        long,
        value_name = "SIGNAL",
        requires = "orphan",
        hide_short_help = true,
        value_parser = typed(value::signal)
    )]
    pub(crate) signal: Option<Typed<i32>>,
    /// With --orphan: say which processes would be ended, and end none
    #[arg(long, requires = "orphan", hide_short_help = true)]
    pub(crate) dry_run: bool,
    /// With --orphan: do not ask at a terminal
    #[arg(long, requires = "orphan", hide_short_help = true)]
    pub(crate) yes: bool,
    #[command(flatten)]
    pub(crate) common: Common,
}

/// `heartbeat`.
#[derive(Debug, Clone, Args)]
#[command(after_help = "Examples:
  tenure heartbeat deploy --request-id run-42 || exit
  tenure heartbeat deploy --output json | jq .data.cancel_requested

Exit code: 80 if the lock is lost, 6 if it is another owner's.

With --output json the answer has cancel_requested: another caller asks the holder to stop.")]
pub(crate) struct HeartbeatArgs {
    /// The name of the lock (a sprint has only one)
    #[arg(value_name = "NAME", value_parser = typed(value::name))]
    pub(crate) name: Option<Typed<LockName>>,
    #[command(flatten)]
    pub(crate) of: OfLock,
    /// The request id that `acquire` printed
    #[arg(long, value_name = "ID", visible_aliases = ["session-id", "run-id"], value_parser = typed(value::request_id))]
    pub(crate) request_id: Option<Typed<RequestId>>,
    #[command(flatten)]
    pub(crate) calling: Calling,
    #[command(flatten)]
    pub(crate) common: Common,
}

/// `check`.
#[derive(Debug, Clone, Args)]
#[command(after_help = "Examples:
  tenure check deploy                who holds it, since when, why; who waits
  tenure check deploy --output json  the same for a program
  tenure check                       every lock; exit 4 if any is another's

Exit code: 0 free (a lock that a dead holder left behind counts as free) or mine, 4 held or \
unreadable. Reads only: it creates nothing and takes nothing.")]
pub(crate) struct CheckArgs {
    /// The name of the lock; all of them if it is left out
    #[arg(value_name = "NAME", value_parser = typed(value::name))]
    pub(crate) name: Option<Typed<LockName>>,
    #[command(flatten)]
    pub(crate) of: OfLock,
    #[command(flatten)]
    pub(crate) room: OfMode,
    /// Ask whether a living holder has it: exit code 0 if so, 4 if not
    #[arg(long, conflicts_with_all = ["shared", "slots", "request_id", "health"])]
    pub(crate) held: bool,
    /// Report a lock held under this id as mine
    #[arg(long, value_name = "ID", visible_aliases = ["session-id", "run-id"], value_parser = typed(value::request_id))]
    pub(crate) request_id: Option<Typed<RequestId>>,
    /// Answer in a health check's words: pass, warn or fail
    #[arg(long, help_heading = SPRINT)]
    pub(crate) health: bool,
    /// `-`: read the call from stdin, as YAML or JSON
    #[arg(long, value_name = "-", help_heading = SPRINT)]
    pub(crate) input: Option<String>,
    #[command(flatten)]
    pub(crate) calling: Calling,
    #[command(flatten)]
    pub(crate) common: Common,
}

/// `list`.
#[derive(Debug, Clone, Args)]
#[command(after_help = "Examples:
  tenure list
  tenure list --all                free ones too
  tenure list -q                   one line for each lock, without who waits
  tenure list --sort queue         the longest queue first
  tenure list --output json | jq '.data.locks[] | {name, standing}'

On a terminal the table is as wide as that, elsewhere as COLUMNS says; without it nothing is cut. JSON and YAML have every lock, with \
its standing.")]
pub(crate) struct ListArgs {
    /// Only this lock
    #[arg(value_name = "NAME", value_parser = typed(value::name))]
    pub(crate) name: Option<Typed<LockName>>,
    #[command(flatten)]
    pub(crate) of: OfLock,
    /// Show free locks too
    #[arg(long)]
    pub(crate) all: bool,
    /// Only locks that somebody waits for
    #[arg(long)]
    pub(crate) waiting: bool,
    /// The order: by name, or by queue, the longest first [default: name]
    ///
    /// Numbers in names are counted: svc-2 comes before svc-10
    #[arg(long, value_name = "ORDER", value_enum, hide_possible_values = true)]
    pub(crate) sort: Option<Order>,
    /// Only locks that this agent, or an agent of this session, holds or waits for
    #[arg(long = "as", value_name = "KEY", help_heading = AGENTS, hide_short_help = true, value_parser = typed(value::agent))]
    pub(crate) agent: Option<Typed<AgentKey>>,
    #[command(flatten)]
    pub(crate) common: Common,
}

/// In which order `list` shows locks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Order {
    /// As people count
    Name,
    /// Most waiters first
    Queue,
}

/// `wait`.
#[derive(Debug, Clone, Args)]
#[command(after_help = "Examples:
  tenure wait deploy --wait 5m && echo free
  tenure wait deploy -n                      do not wait: exit 4 if it is held

The lock may be taken again by the time this returns; to have it, use `run` or `acquire`.")]
pub(crate) struct WaitArgs {
    /// The name of the lock (a sprint has only one)
    #[arg(value_name = "NAME", value_parser = typed(value::name))]
    pub(crate) name: Option<Typed<LockName>>,
    #[command(flatten)]
    pub(crate) of: OfLock,
    #[command(flatten)]
    pub(crate) room: OfMode,
    #[command(flatten)]
    pub(crate) patience: Patience,
    #[command(flatten)]
    pub(crate) calling: Calling,
    #[command(flatten)]
    pub(crate) common: Common,
}

/// `fence`.
#[derive(Debug, Clone, Args)]
#[command(
    override_usage = "tenure fence check [OPTIONS] [TOKEN]",
    after_help = "Examples:
  tenure fence check || exit             under `tenure run`: do I still hold it?
  tenure fence check 17 --name deploy    does anybody hold it with token 17?
  tenure fence check 17 --guard db.mark  the resource's side: 80 if too late

Without --guard, the lock is asked: 0 if a live hold has the token, 80 if none has (any more), 12 if \
that cannot be found out. It reads only, and the answer may be old when it arrives.

With --guard, the resource answers for itself, and no lock is looked at: FILE keeps the highest \
token that was seen. An equal or higher one is recorded (0), a lower one refused (80). This is what \
stops a holder that slept through the loss of its lock; docs/fencing.md shows how."
)]
pub(crate) struct FenceArgs {
    /// What to do; there is nothing else yet
    #[arg(value_name = "check", hide_possible_values = true)]
    pub(crate) action: FenceAction,
    /// The fencing token: 1 to 9007199254740991 [default: $TENURE_TOKEN]
    #[arg(value_name = "TOKEN", value_parser = typed(value::token))]
    pub(crate) token: Option<Typed<u64>>,
    /// The lock that gave the fencing token [default: $TENURE_NAME]
    #[arg(long, value_name = "NAME", conflicts_with = "guard", value_parser = typed(value::name))]
    pub(crate) name: Option<Typed<LockName>>,
    #[command(flatten)]
    pub(crate) of: OfLock,
    /// Ask the resource in place of the lock: the file that keeps its highest token
    #[arg(long, value_name = "FILE", conflicts_with_all = ["group", "path"])]
    pub(crate) guard: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) common: Common,
}

/// What `fence` does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum FenceAction {
    /// Ask whether a fencing token is still good
    Check,
}

/// `clean`.
#[derive(Debug, Clone, Args)]
#[command(after_help = "Examples:
  tenure clean --dry-run  what would be removed
  tenure clean

Removes claims whose holder is proven dead, and the files of locks without a holder or a waiter. \
Fencing tokens go on rising afterwards.")]
pub(crate) struct CleanArgs {
    /// Only say what would be removed
    #[arg(long)]
    pub(crate) dry_run: bool,
    #[command(flatten)]
    pub(crate) common: Common,
}

/// `doctor`.
#[derive(Debug, Clone, Args)]
#[command(after_help = "Examples:
  tenure doctor                  which folder or servers, and what is wrong
  tenure doctor --output json | jq '.data // .error.context | .checks[]'

First it says which folder or servers a call made here uses, what says so, for whom they are, and what \
they are on. Then each check is ok, a note, or wrong. What is wrong has a line that says how to mend it. \
Whether locks hold is tried by two processes, with a file that has no name.

It changes nothing.

Exit code: 0 if nothing is wrong (there may be notes), 1 if something is.")]
pub(crate) struct DoctorArgs {
    /// The part of the other process in the trial of the locks; the file is on stdin.
    #[arg(long, hide = true)]
    pub(crate) in_trial: bool,
    #[command(flatten)]
    pub(crate) common: Common,
}

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

/// `audit`.
#[derive(Debug, Clone, Args)]
#[command(after_help = "Examples:
  tenure audit deploy --since 1h        what happened to it in the last hour
  tenure audit --since yesterday --waited   who waited longest, and behind whom
  tenure audit --since yesterday --held     who held a lock longest
  tenure audit --event lock_refused     who was refused; what repeats is counted
  tenure audit --request-id run-42      what one run did
  tenure audit -f --since 0s            what happens from now on
  tenure audit -f --output json | jq .  the same, one JSON object per line

Oldest first, in your time zone; with --output json in UTC. --output json prints one document (data.events); with -f it prints the events \
themselves, one JSON object per line. Reads only: without an audit there are no events.")]
pub(crate) struct AuditArgs {
    /// The name of the lock; all of them if it is left out
    #[arg(value_name = "NAME", value_parser = typed(value::name))]
    pub(crate) name: Option<Typed<LockName>>,
    #[command(flatten)]
    pub(crate) of: OfLock,
    /// Only these events (lock_refused); may be given more than once
    ///
    /// lock_acquired, lock_stolen, lock_released, lock_release_failed, heartbeat_failed,
    /// orphan_ended, lock_skipped, lock_refused, lock_lost, lock_superseded or lock_cancelled
    #[arg(long, value_name = "EVENT", value_parser = typed(value::event))]
    pub(crate) event: Vec<Typed<EventName>>,
    /// Not before this time: "2026-02-07 10:00", yesterday, 15m (ago)
    ///
    /// A time here ("2026-02-07 10:00", 2026-02-07, 10:00, today, yesterday), one with its zone
    /// (2026-02-07T10:00:00Z), or a duration, which means that long ago
    #[arg(long, value_name = "TIME", value_parser = typed(value::moment))]
    pub(crate) since: Option<Typed<Moment>>,
    /// Not after this time
    #[arg(long, value_name = "TIME", value_parser = typed(value::moment))]
    pub(crate) until: Option<Typed<Moment>>,
    /// Only what was done under this id
    #[arg(long, value_name = "ID", visible_aliases = ["session-id", "run-id"], value_parser = typed(value::request_id))]
    pub(crate) request_id: Option<Typed<RequestId>>,
    /// Only what was done in the name of this agent, or of an agent of this session
    #[arg(long = "as", value_name = "KEY", help_heading = AGENTS, hide_short_help = true, value_parser = typed(value::agent))]
    pub(crate) agent: Option<Typed<AgentKey>>,
    /// Only callers that waited or were refused, the longest wait first
    #[arg(long, conflicts_with_all = ["held", "follow"])]
    pub(crate) waited: bool,
    /// Only holds that have ended, the longest first
    #[arg(long, conflicts_with = "follow")]
    pub(crate) held: bool,
    /// Go on showing events as they happen
    #[arg(short, long)]
    pub(crate) follow: bool,
    #[command(flatten)]
    pub(crate) common: Common,
}

/// `flock`. Its words are read by rules of their own (`flock::read`).
#[derive(Debug, Clone, Args)]
#[command(
    disable_help_flag = true,
    override_usage = "tenure flock [OPTIONS] FILE|DIRECTORY COMMAND [ARGUMENT]...",
    override_help = flock::help("tenure flock")
)]
pub(crate) struct FlockArgs {
    /// The program was called `flock`
    #[cfg_attr(windows, allow(dead_code, reason = "flock is refused there"))]
    #[arg(skip)]
    pub(crate) by_name: bool,
    /// Everything behind the verb
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    pub(crate) words: Vec<OsString>,
}

/// `push`.
#[derive(Debug, Clone, Args)]
#[command(after_help = "Examples:
  tenure push                           HEAD to the branch's upstream on origin
  tenure push --dry-run                 say where to, and change nothing
  tenure push --branch main -w 5m       to main; wait 5 minutes for other pushes
  tenure push --attempts 10 --output json

Pushes HEAD:BRANCH with git. When another push came first, or the connection broke, it waits \
(--backoff, then twice, four, eight and sixteen times as long, each a quarter more or less), does \
`git pull --rebase` and tries again. Any other failure ends at once, in git's own words. A rebase \
that conflicts is aborted and leaves everything as it was. Nothing is ever forced. A branch without an \
upstream on that remote is not pushed unless --branch says where to. Your pushes on this machine to one \
branch come one after the other, by a lock in your own folder (TENURE_DIR does not move it, --dir \
does); without --wait they wait for it as long as it takes. Exit code: 0 pushed, 1 not pushed, 4 the \
lock was not free in time, 5 it is not known where to.")]
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

/// `serve`.
#[derive(Debug, Clone, Args)]
#[command(
    after_help = "For the authors of clients. A program starts this as its child, writes requests to its \
stdin and reads answers from its stdout: JSON-RPC 2.0, one message a line. The holds belong to that \
program. They end when it releases them, closes the stdin of this process, or ends; not when this process is \
killed: a new one adopts them. The page docs/clients.md has the messages, \
examples/serve a client in Python and a check for clients in any language.

Examples:
  tenure serve
  tenure serve --scope machine"
)]
pub(crate) struct ServeArgs {
    #[command(flatten)]
    pub(crate) common: Common,
}

/// `mcp`.
#[derive(Debug, Clone, Args)]
#[command(
    after_help = "An agent's host starts this as its child and speaks the Model Context Protocol with it, on stdin and \
stdout. The agent gets six tools: lock_acquire, lock_release, lock_check, lock_list, lock_wait and lock_cancel. The \
holds belong to the process that starts this. They end when the agent releases them or that process ends; \
not when this process ends: a new one knows them. The page docs/agents.md has the tools.

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

/// `hook`.
#[derive(Debug, Clone, Args)]
#[command(after_help = "Examples:
  tenure hook claude < event.json  what Claude Code is answered to this event
  tenure hook codex < event.json   the same for Codex

The host of a coding agent calls this before and after each call of a tool: one event comes on stdin as \
JSON, one answer goes to stdout. A call that no rule of tenure.toml is about gets no answer. The rules:

  [[agent.command]]
  match = [\"cargo test\"]     # these commands run under the lock
  lock = \"build\"

  [[agent.path]]
  match = [\"migrations/**\"]  # one agent at a time edits these files

The exit code is 0, also where tenure itself fails: then the rule's on_error decides, open or closed. The \
page docs/agents.md says what rules stop, and what they do not.")]
pub(crate) struct HookArgs {
    /// The program that calls it
    #[arg(value_name = "HOST")]
    pub(crate) host: AgentHost,
    /// Refused: the host has its own form.
    #[arg(long, hide = true)]
    pub(crate) output: Option<Output>,
}

/// `agent`.
#[derive(Debug, Clone, Args)]
#[command(
    override_usage = "tenure agent install|uninstall|status|probe [OPTIONS] [HOST]",
    after_help = "Examples:
  tenure agent install                   for all who work in this repository
  tenure agent install codex --user      for you, in all folders
  tenure agent install claude --dry-run  show the difference, change nothing
  tenure agent status claude             whether it is on, and what is wrong
  tenure agent uninstall claude          give back the files as they were

install puts hooks, a server and a skill into the host's own files, and keeps every other byte of them. \
uninstall gives back the old files, or takes tenure out of them if they were edited since. tenure.toml \
says which commands and files are locked; without it the hooks change nothing.

An agent runs `tenure agent probe HOST` once, as a command of its own: the answer says whether the hook \
was called and whether the host ran the command that the hook had written.

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

/// A program that runs agents.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum AgentHost {
    /// Claude Code
    Claude,
    /// Codex
    Codex,
}

#[cfg_attr(windows, allow(dead_code, reason = "agent is refused there"))]
impl AgentHost {
    /// As it is typed.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Claude => "claude",
            Self::Codex => "codex",
        }
    }
}

/// `group-name`.
#[derive(Debug, Clone, Args)]
#[command(after_help = "Examples:
  tenure run --group \"$(tenure group-name)\" --cancel-in-progress -- ./agent
  tenure group-name --prefix agent               agent-issue-42
  tenure group-name --event issues --number 42   the facts by hand

  an issue and its comments                 issue-N
  a pull request, its reviews and comments  pr-N
  a schedule                                schedule
  a dispatch                                dispatch-RUNID
  anything else                             other-RUNID

Without flags the facts come from GITHUB_EVENT_NAME, GITHUB_EVENT_PATH and GITHUB_RUN_ID, which GitHub \
Actions sets. The event's file is read only where the number is needed and not given.")]
pub(crate) struct GroupNameArgs {
    /// The name of the event [env: GITHUB_EVENT_NAME]
    #[arg(long, value_name = "NAME")]
    pub(crate) event: Option<String>,
    /// The number of the issue or pull request [default: as the event's file has it]
    #[arg(long, value_name = "N")]
    pub(crate) number: Option<u64>,
    /// The id of the run [env: GITHUB_RUN_ID]
    #[arg(long, value_name = "ID")]
    pub(crate) run_id: Option<String>,
    /// The event as a JSON file [env: GITHUB_EVENT_PATH]
    #[arg(long, value_name = "FILE", conflicts_with = "number")]
    pub(crate) event_file: Option<PathBuf>,
    /// What stands before the name, with a hyphen between them
    #[arg(long, value_name = "TEXT")]
    pub(crate) prefix: Option<String>,
    #[command(flatten)]
    pub(crate) common: Common,
}

/// `completions`.
#[derive(Debug, Clone, Args)]
#[command(after_help = "Examples:
  tenure completions bash > ~/.local/share/bash-completion/completions/tenure
  tenure completions zsh > \"${fpath[1]}/_tenure\"
  tenure completions fish > ~/.config/fish/completions/tenure.fish

The script asks the tenure on the PATH what may stand where the cursor is: verbs, flags, and the names \
of the locks, groups and profiles that there are. Such a question reads only, says nothing that is \
wrong and ends within half a second. Servers (etcd) are not asked.")]
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

/// `man`.
#[derive(Debug, Clone, Args)]
#[command(after_help = "Examples:
  tenure man run | man -l -             read the page of a verb
  tenure man > tenure.1                 the page of tenure itself
  tenure man --to ~/.local/share/man/man1
                                        all pages, where man(1) finds them")]
pub(crate) struct ManArgs {
    /// The verb of the page [default: tenure itself; with --to all of them]
    #[arg(value_name = "VERB")]
    pub(crate) verb: Option<String>,
    /// Write files into this folder, which is made if it is not there
    #[arg(long, value_name = "DIR")]
    pub(crate) to: Option<PathBuf>,
    /// Refused: there is one form only.
    #[arg(long, hide = true)]
    pub(crate) output: Option<Output>,
}

/// Global flags that take a value and may stand before the verb.
const BEFORE_VERB: [&str; 10] = [
    "--dir",
    "--store",
    "--scope",
    "--profile",
    "--output",
    "--config",
    "--project-root",
    "--lock-file-name",
    "--stale-after",
    "--audit-dir",
];
/// Global flags without one.
const BEFORE_VERB_BARE: [&str; 5] = ["-q", "--quiet", "-v", "--verbose", "--allow-network-fs"];

/// Refuses a `TENURE_OUTPUT` that names no format: a caller who asked for one must not get another.
fn check_output() -> Result<(), Failure> {
    match std::env::var("TENURE_OUTPUT") {
        Ok(word) if !word.is_empty() && Output::from_word(&word).is_none() => {
            Err(Failure::bad_arguments(format!(
                "TENURE_OUTPUT {word:?} is no format; it is one of text, json, yaml"
            )))
        }
        _ => Ok(()),
    }
}

/// Reads the words of a call.
pub(crate) fn parse(words: &[OsString]) -> Result<Verb, Failure> {
    if let Some(args) = asked_for_flock(words) {
        return Ok(Verb::Flock(args));
    }
    check_output().or_else(|failure| {
        let failure = failure.with_output(output_of(words));
        has_one_form(words).then_some(()).ok_or(failure)
    })?;
    if let Some(args) = run::plain(words) {
        return Ok(Verb::Run(args));
    }
    match parse_quick(words) {
        Some(Ok(verb)) => Ok(verb),
        Some(Err(error)) => explain(&error, words),
        None => front::read(words),
    }
}

/// Reads a call of `run` by the quick way and by the parser; `None` where it is not plain.
#[cfg(test)]
pub(crate) fn read_both(words: &[&str]) -> Option<(RunArgs, Option<RunArgs>)> {
    let as_typed: Vec<_> = words.iter().map(OsString::from).collect();
    Some((run::plain(&as_typed)?, read_run(words)))
}

/// What the parser makes of a call of `run`; `None` if it does not take it.
#[cfg(test)]
pub(crate) fn read_run(words: &[&str]) -> Option<RunArgs> {
    let words: Vec<_> = words.iter().map(OsString::from).collect();
    match parse_quick(&words) {
        Some(Ok(Verb::Run(args))) => Some(args),
        _ => None,
    }
}

/// Reads a call whose verb stands elsewhere: in the document that it gives.
pub(crate) fn parse_as(verb: &str, words: &[OsString]) -> Result<Verb, Failure> {
    let mut words = words.to_vec();
    words.insert(1.min(words.len()), verb.into());
    match parse_quick(&words) {
        Some(Ok(verb)) => Ok(verb),
        Some(Err(error)) => explain(&error, &words),
        None => Err(refusal::no_verb(verb)),
    }
}

/// What to do about a call that a verb's parser does not take.
#[cold]
#[inline(never)]
fn explain(error: &clap::Error, words: &[OsString]) -> Result<Verb, Failure> {
    let (common, verb) = hints_of(words);
    if error.kind() == clap::error::ErrorKind::DisplayHelp {
        return Ok(Verb::Help(HelpArgs {
            of: Some(verb),
            // Among letters that stand together there may be an `h`.
            size: Size::asked_for(words).unwrap_or(Size::Brief),
            common,
        }));
    }
    if let Some(joined) = refusal::with_number_joined(error, words, &verb)
        && let Some(read) = parse_quick(&joined)
    {
        return read.or_else(|error| explain(&error, &joined));
    }
    Err(refusal::of(error, words))
}

/// The name and number of this release.
pub(crate) fn version() -> String {
    concat!("tenure ", env!("CARGO_PKG_VERSION")).to_owned()
}

/// The words of a call that is flock(1)'s: by the name under which the program was called, or by the
/// verb. Our own flags and our environment do not matter there.
fn asked_for_flock(words: &[OsString]) -> Option<FlockArgs> {
    // A start pays for this: the bytes are compared, and no path is taken apart.
    let called = words.first()?.as_encoded_bytes().strip_suffix(b"flock");
    let by_name = called.is_some_and(|folder| folder.is_empty() || folder.ends_with(b"/"));
    let of_verb = words.get(1).is_some_and(|verb| verb == "flock");
    let before = match (by_name, of_verb) {
        (true, _) => 1,
        (false, true) => 2,
        (false, false) => return None,
    };
    Some(FlockArgs {
        by_name,
        words: words.get(before..)?.to_vec(),
    })
}

/// Whether a program asks (a shell for completions, an agent's host) whose answer has one form only, whatever the
/// environment says.
#[cold]
#[inline(never)]
fn has_one_form(words: &[OsString]) -> bool {
    let mut verb = words.get(1).into_iter();
    verb.any(|verb| verb == "completions" || verb == "hook")
}

/// Builds the parser of the verb alone. `None` if the words do not begin with flags that may
/// stand there and a verb.
#[cold]
#[inline(never)]
fn parse_quick(words: &[OsString]) -> Option<Result<Verb, clap::Error>> {
    let index = verb_index(words)?;
    let verb = words.get(index)?.to_str()?;
    let before = words.get(1..index)?;
    let after = words.get(index + 1..)?;
    let own = [OsString::from("tenure")];
    let words = own.iter().chain(before).chain(after);
    Some(match verb {
        "run" => one::<RunArgs>("tenure run", words).map(Verb::Run),
        "acquire" => one::<AcquireArgs>("tenure acquire", words).map(Verb::Acquire),
        "release" => one::<ReleaseArgs>("tenure release", words).map(Verb::Release),
        "force-release" => {
            one::<ForceReleaseArgs>("tenure force-release", words).map(Verb::ForceRelease)
        }
        "cancel" => one::<CancelArgs>("tenure cancel", words).map(Verb::Cancel),
        "heartbeat" => one::<HeartbeatArgs>("tenure heartbeat", words).map(Verb::Heartbeat),
        "check" => one::<CheckArgs>("tenure check", words).map(Verb::Check),
        "list" => one::<ListArgs>("tenure list", words).map(Verb::List),
        "wait" => one::<WaitArgs>("tenure wait", words).map(Verb::Wait),
        "fence" => one::<FenceArgs>("tenure fence", words).map(Verb::Fence),
        "clean" => one::<CleanArgs>("tenure clean", words).map(Verb::Clean),
        "doctor" => one::<DoctorArgs>("tenure doctor", words).map(Verb::Doctor),
        "profiles" => one::<ProfilesArgs>("tenure profiles", words).map(Verb::Profiles),
        "allow" => one::<AllowArgs>("tenure allow", words).map(Verb::Allow),
        "audit" => one::<AuditArgs>("tenure audit", words).map(Verb::Audit),
        "push" => one::<PushArgs>("tenure push", words).map(Verb::Push),
        "serve" => one::<ServeArgs>("tenure serve", words).map(Verb::Serve),
        "mcp" => one::<McpArgs>("tenure mcp", words).map(Verb::Mcp),
        "agent" => one::<AgentArgs>("tenure agent", words).map(Verb::Agent),
        "group-name" => one::<GroupNameArgs>("tenure group-name", words).map(Verb::GroupName),
        "hook" => one::<HookArgs>("tenure hook", words).map(Verb::Hook),
        "completions" => one::<CompletionsArgs>("tenure completions", words).map(Verb::Completions),
        "man" => one::<ManArgs>("tenure man", words).map(Verb::Man),
        // `flock` stands first or not at all, so the whole tree refuses it here.
        _ => return None,
    })
}

/// Where the verb stands: behind global flags, if there are any.
fn verb_index(words: &[OsString]) -> Option<usize> {
    let mut index = 1;
    loop {
        let word = words.get(index)?.to_str()?;
        let holds_value = |flag: &&str| {
            word.strip_prefix(*flag)
                .is_some_and(|rest| rest.starts_with('='))
        };
        if BEFORE_VERB.contains(&word) {
            index += 2;
        } else if BEFORE_VERB_BARE.contains(&word) || BEFORE_VERB.iter().any(holds_value) {
            index += 1;
        } else {
            return Some(index);
        }
    }
}

fn one<'a, A: Args + FromArgMatches>(
    name: &'static str,
    words: impl Iterator<Item = &'a OsString>,
) -> Result<A, clap::Error> {
    let mut command =
        A::augment_args(clap::Command::new(name).bin_name(name)).disable_help_subcommand(true);
    let mut matches = command.try_get_matches_from_mut(words)?;
    A::from_arg_matches_mut(&mut matches).map_err(|error| error.format(&mut command))
}

/// What the caller wants printed, as far as that can be known from words that do not parse.
fn output_of(words: &[OsString]) -> Output {
    let mut words = words.iter().take_while(|word| *word != "--");
    while let Some(word) = words.next() {
        let value = if word == "--output" {
            words.next().and_then(|value| value.to_str())
        } else {
            word.to_str()
                .and_then(|word| word.strip_prefix("--output="))
        };
        if let Some(output) = value.and_then(Output::from_word) {
            return output;
        }
    }
    Output::from_environment().unwrap_or(Output::Text)
}

/// The verb, and what decides about the answer's shape, as far as that can be known from words
/// that do not parse.
pub(crate) fn hints_of(words: &[OsString]) -> (Common, String) {
    let mut common = Common {
        output: Some(output_of(words)),
        ..Common::default()
    };
    let mut rest = words.iter().take_while(|word| *word != "--");
    while let Some(word) = rest.next() {
        let mut value = |flag: &str| {
            if word == flag {
                return rest.next().cloned();
            }
            let value = word.to_str()?.strip_prefix(flag)?.strip_prefix('=')?;
            Some(OsString::from(value))
        };
        if let Some(name) = value("--profile") {
            common.profile = name.into_string().ok();
        } else if let Some(file) = value("--config") {
            common.config = Some(file.into());
        }
    }
    let words = words.get(verb_index(words).unwrap_or(words.len())..);
    let words = words.unwrap_or_default().iter();
    let mut words = words.map_while(|word| word.to_str().filter(|word| *word != "--"));
    let first = words.next().unwrap_or_default();
    // A flag of the verb stands before it.
    let later = first
        .starts_with('-')
        .then(|| words.find(|word| is_verb(word)));
    (common, later.flatten().unwrap_or(first).to_owned())
}

/// Whether there is a verb of this name.
pub(crate) fn is_verb(word: &str) -> bool {
    word == "help" || Tree::command().find_subcommand(word).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<OsString> {
        line.split(' ').map(OsString::from).collect()
    }

    #[test]
    fn the_verbs_own_parsers_and_the_whole_tree_read_the_same() {
        for line in [
            "tenure run x -- true",
            "tenure run x --signal TERM --term-after 1s --max-runtime=5m --wait-all --close -- true",
            "tenure run --exec x --shell -- a",
            "tenure run x --exec --grace 1s -- true",
            "tenure run -n x --ttl 5s -E 9 -- sh -c true",
            "tenure run --force --yes --wait=3s x -q -- a --b -c",
            "tenure run -w 3 -x x --dir /d --output json -- a",
            "tenure run --group g --queue max --cancel-in-progress -- true",
            "tenure run --group g x -l y --lock=z --slots 3 --on-superseded a -- true",
            "tenure run x -s -x -- true",
            "tenure run x --slots 0 -- true",
            "tenure run x --queue lifo -- true",
            "tenure run x -s --ticket auto --reentrant -- true",
            "tenure cancel x",
            "tenure cancel --group g --request-id r",
            "tenure cancel x --group g",
            "tenure acquire x --owner 12 --request-id r --why because",
            "tenure release x --run-id r --output=yaml",
            "tenure heartbeat x --session-id r -v",
            "tenure check",
            "tenure check x --request-id r",
            "tenure list --dir d",
            "tenure wait x -w forever",
            "tenure fence check",
            "tenure fence check 5 --name x --dir d",
            "tenure fence --guard f check 5 -v",
            "tenure fence check 5 --name x --guard f",
            "tenure fence",
            "tenure fence frob",
            "tenure fence check 5 6",
            "tenure clean --dry-run",
            "tenure doctor",
            "tenure doctor --fix",
            "tenure doctor --output json",
            "tenure profiles",
            "tenure profiles --profile fleet --output json",
            "tenure audit",
            "tenure audit x --event lock_stolen --event lock_released --since 1h --until=0s -f",
            "tenure audit --request-id r --follow --audit-dir a --output json",
            "tenure audit x y",
            "tenure audit --since",
            "tenure run x --audit-dir a -- true",
            "tenure run x",
            "tenure run x true",
            "tenure run -- true",
            "tenure acquire",
            "tenure run --nonsense x -- true",
            "tenure run -E 256 x -- true",
            "tenure run -q -v x -- true",
            "tenure run --yes x -- true",
            "tenure push",
            "tenure push --remote r --branch b --attempts 7 --backoff 20ms -w 3 -E 9 --dir d",
            "tenure push -n --output json",
            "tenure push --dry-run",
            "tenure push --attempts 0",
            "tenure push x",
            "tenure agent install claude",
            "tenure agent status codex --user --output json",
            "tenure agent uninstall claude --project --dry-run",
            "tenure agent install claude --user --project",
            "tenure agent install",
            "tenure agent frob claude",
            "tenure agent install emacs",
            "tenure group-name",
            "tenure group-name --event issues --number 4 --run-id r --prefix p",
            "tenure group-name --event-file f --output yaml",
            "tenure group-name --event-file f --number 4",
            "tenure group-name --number x",
            "tenure hook claude",
            "tenure hook cursor",
            "tenure hook",
            "tenure list x",
            "tenure profiles x",
            "tenure completions bash",
            "tenure completions csh",
            "tenure completions zsh -- tenure run -",
            "tenure completions fish --output json",
            "tenure completions",
            "tenure man",
            "tenure man run --to d",
            "tenure man --to",
        ] {
            let quick = parse_quick(&words(line)).expect("a verb");
            let whole = Tree::try_parse_from(words(line)).map(|tree| tree.verb);
            if let Some(plain) = run::plain(&words(line)) {
                let quick = quick.as_ref().expect("what is plain is a good call");
                assert_eq!(format!("{:?}", Verb::Run(plain)), format!("{quick:?}"));
            }
            match (quick, whole) {
                (Ok(quick), Ok(whole)) => {
                    assert_eq!(format!("{quick:?}"), format!("{whole:?}"), "{line}");
                }
                (Err(quick), Err(whole)) => assert_eq!(quick.kind(), whole.kind(), "{line}"),
                (quick, whole) => panic!("{line}: {quick:?} and {whole:?}"),
            }
        }
    }

    #[test]
    fn global_flags_stand_before_or_after_the_verb() {
        let before = parse_quick(&words(
            "tenure --dir d --audit-dir a --output=json -q run x -- true",
        ));
        let after = parse_quick(&words(
            "tenure run x --dir d --audit-dir a --output=json -q -- true",
        ));
        let (Some(Ok(before)), Some(Ok(after))) = (before, after) else {
            panic!("both are good calls");
        };
        assert_eq!(format!("{before:?}"), format!("{after:?}"));
    }

    #[test]
    fn flock_is_asked_for_by_name_or_by_verb() {
        for (line, by_name, rest) in [
            ("flock -n f true", true, "-n f true"),
            ("/usr/bin/flock run x", true, "run x"),
            ("./flock flock x", true, "flock x"),
            ("tenure flock -n f true", false, "-n f true"),
            ("/opt/tenure flock -- f", false, "-- f"),
        ] {
            let args = asked_for_flock(&words(line)).expect(line);
            assert_eq!((args.by_name, args.words), (by_name, words(rest)), "{line}");
            assert!(matches!(parse(&words(line)), Ok(Verb::Flock(_))), "{line}");
        }
        for line in [
            "tenure run flock -- true",
            "tenure",
            "myflock run",
            "flock/tenure run",
        ] {
            assert!(asked_for_flock(&words(line)).is_none(), "{line}");
        }
        assert!(asked_for_flock(&[]).is_none());
        for line in ["tenure --dir d flock f true", "tenure -q flock 9"] {
            assert!(
                parse(&words(line)).is_err(),
                "{line}: our flags mean nothing to it"
            );
        }
    }

    #[test]
    fn what_stands_below_the_flags_fits_a_narrow_terminal() {
        let mut tree = Tree::command();
        tree.build();
        let verbs = tree
            .get_subcommands()
            .filter(|verb| verb.get_name() != "flock");
        for command in verbs.chain([&tree]) {
            let help = command.get_after_help().map(ToString::to_string);
            let help = help.unwrap_or_default();
            let (of, mut prose) = (command.get_name(), false);
            for line in help.lines() {
                if line.starts_with("  ") {
                    assert!(line.chars().count() <= 80, "{of}: too wide: {line}");
                } else {
                    // Lines that are broken here are broken once more by the terminal.
                    let is_new = !prose || line.is_empty();
                    assert!(is_new, "{of}: a paragraph is one line: {line}");
                }
                prose = !line.is_empty() && !line.starts_with("  ") && !line.ends_with(':');
            }
        }
    }

    #[test]
    fn the_whole_tree_is_consistent() {
        Tree::command().debug_assert();
    }
}
