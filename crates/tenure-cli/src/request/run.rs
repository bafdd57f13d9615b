//! `run`: its flags, and what they mean: which locks it takes in which order and in whose name, how it waits for
//! them, what it runs and how it supervises that.
//!
//! A group works like a concurrency group in GitHub Actions: one run has it at a time. Of the runs that wait,
//! only the newest stays (`single`), or up to a hundred wait in turn (`max`), or any number (`fifo`).

use super::{
    ClaimWords, Defaults, Intends, OnHeld, Place, Pool, Purpose, Surroundings, Takes, Who,
    default_name, force, mode, named_by, no_name, said_wait, ticket, ttl_ms, typed_mode,
    usual_wait,
};
use crate::args::flags::flags;
use crate::args::value::{self, Follow, Further, Queue, Ticket, Typed};
use crate::args::{Calling, Claiming, Common, OfPath, less_used};
use crate::audit_writer::line;
use crate::failure::Failure;
use crate::supervise::OnLost;
use std::ffi::OsString;
use std::time::Duration;
use tenure_core::{Force, LockName, Mode, Queueing, Terms};
use tenure_engine::config::OnError;
use tenure_engine::engine::Wait;
use tenure_engine::group::folded;

const AFTER_HELP: &str = "Examples:
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
TENURE_HELD, TENURE_AROUND and with --slots TENURE_SLOT. tenure exits with the command's exit code, or dies by the same \
signal. The lock is released after the command has ended; if tenure itself is killed, the lock stays \
held until the command ends. tenure passes a signal on to the command, and kills it with all its descendants after --grace. If the command ends by itself, processes that \
it left behind go on without the lock (unless --wait-all is given).";

flags! {
    /// `run`.
    #[command(
        mut_args(less_used(&["ttl", "request_id"])),
        override_usage = "tenure run [OPTIONS] NAME -- CMD [ARG]...\n       tenure run [OPTIONS] --group NAME [NAME] -- CMD [ARG]...",
        after_help = AFTER_HELP
    )]
    pub(crate) struct RunArgs {
        /// The name of the lock (a sprint has only one)
        #[arg(value_name = "NAME")]
        name: Option<Typed<LockName>>, read value::name;
        #[command(flatten)]
        claiming: Claiming;
        /// An exclusive lock; this is the default, unless tenure.toml says shared = true
        #[arg(short = 'x', long, hide_short_help = true, conflicts_with_all = ["shared", "slots"])]
        exclusive: bool, plain "-x";
        /// Take this lock as well: all or none (repeatable).
        ///
        /// NAME:shared and NAME:slots=N say how
        #[arg(short, long = "lock", value_name = "NAME")]
        lock: Vec<Typed<Further>>, read value::further;
        /// If held, do nothing and exit 0 (for cron).
        ///
        /// Prints no message then, and waits only with --wait
        #[arg(long, conflicts_with_all = ["conflict_exit_code", "ticket"])]
        skip: bool;
        /// The exit code of every failure of tenure itself, such as a lost lock; 125 for git bisect run
        #[arg(hide_short_help = true, long, value_name = "CODE", value_parser = clap::value_parser!(u8))]
        own_exit_code: Option<u8>;
        /// If the run around this one holds the lock, go on under its hold instead of refusing
        #[arg(hide_short_help = true, long)]
        reentrant: bool, key reentrant;
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
        queue: Option<Queue>, key queue;
        /// Group of runs: one at a time, the newest waits.
        ///
        /// With a NAME too, the group is taken first
        #[arg(long, value_name = "NAME", help_heading = "Groups")]
        group: Option<Typed<LockName>>, read value::group, key group;
        /// Ask the group's run to stop; take its place
        #[arg(long, help_heading = "Groups")]
        cancel_in_progress: bool, key cancel_in_progress;
        /// What to run when a newer run takes the place of this one: by `sh -c`, after the command has
        /// ended and before the lock is released
        #[arg(
            hide_short_help = true,
            long,
            value_name = "CMD",
            help_heading = "Groups"
        )]
        on_superseded: Option<String>, key on_superseded;
        /// What to run before the command when this run takes the place of others
        #[arg(
            hide_short_help = true,
            long,
            value_name = "CMD",
            help_heading = "Groups"
        )]
        on_supersede: Option<String>, key on_supersede;
        /// Time for the work to end after the first signal; then it is killed [default: 10s]
        #[arg(hide_short_help = true, long, value_name = "DURATION")]
        grace: Option<Typed<Duration>>, read value::duration, key grace;
        /// Time after which SIGTERM follows the first signal [default: three quarters of --grace]
        #[arg(hide_short_help = true, long, value_name = "DURATION")]
        term_after: Option<Typed<Duration>>, read value::duration, key term_after;
        /// First signal to the work if another run asks for the lock, the lock is lost or --max-runtime
        /// has passed: INT, TERM, HUP, USR1, ... [default: INT]
        #[arg(hide_short_help = true, long, value_name = "NAME")]
        signal: Option<Typed<i32>>, read value::signal, key signal;
        /// Maximum time for the work.
        ///
        /// Then the work is ended, and the exit code is 10
        #[arg(long, value_name = "DURATION")]
        max_runtime: Option<Typed<Duration>>, read value::limit, key max_runtime;
        /// Keep the lock until all descendants of the command have ended, daemons too
        #[arg(hide_short_help = true, long)]
        wait_all: bool, key wait_all;
        /// End the run when the process that started it ends, even if it is killed
        #[arg(hide_short_help = true, long, conflicts_with = "die_with")]
        die_with_parent: bool;
        /// End the run when the process with this PID ends; auto: the process that an `acquire` would
        /// follow, if it can be seen
        #[arg(hide_short_help = true, long, value_name = "PID", value_parser = value::follow)]
        die_with: Option<Follow>;
        /// Do not let the command inherit the liveness lock (for commands that leave daemons behind)
        #[arg(hide_short_help = true, long)]
        close: bool, key close;
        /// Run one argument by $SHELL -c, as flock -c does
        #[arg(long, hide_short_help = true)]
        shell: bool;
        /// Become the command instead of supervising it; the lock is free when the command has ended
        #[arg(
            hide_short_help = true,
            long,
            conflicts_with_all = [
                "grace", "term_after", "signal", "max_runtime", "wait_all", "close", "rollback",
                "failure_step", "on_lost", "on_superseded", "die_with_parent", "die_with",
            ]
        )]
        exec: bool, plain "--exec";
        /// Command to run (by `sh -c`) under the lock after the work has failed
        #[arg(hide_short_help = true, long, value_name = "CMD")]
        rollback: Option<String>, key rollback;
        /// Name of the step that failed, for the audit [default: command]
        #[arg(hide_short_help = true, long, value_name = "NAME")]
        failure_step: Option<String>;
        /// What to do when the lock is lost while the command runs: terminate or warn [default: terminate]
        #[arg(
            hide_short_help = true,
            long,
            value_name = "ACTION",
            value_enum,
            hide_possible_values = true
        )]
        on_lost: Option<OnLost>, key on_lost;
        /// What to do if the place of the lock cannot be used: closed refuses, open runs the command
        /// without its lock, with a warning [default: closed]
        #[arg(hide_short_help = true, long, value_name = "ACTION", value_parser = value::on_error)]
        on_error: Option<OnError>;
        #[command(flatten)]
        path: OfPath;
        #[command(flatten)]
        calling: Calling;
        #[command(flatten)]
        common: Common;
        /// The command and its arguments
        #[arg(last = true, required = true, value_name = "CMD")]
        command: Vec<OsString>;
    }
}

/// Holds locks while a command runs.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) place: Place,
    /// Where the group's lock is, if that is another place than the others'.
    pub(crate) group_place: Option<Place>,
    pub(crate) task: Task,
}

/// The locks that the run holds, and what it runs meanwhile.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Task {
    /// The lock that NAME, the intent or the profile names.
    pub(crate) name: Option<LockName>,
    /// In the one order in which every run takes them: the group, then by name. Empty if an intent takes none.
    pub(crate) locks: Vec<Wanted>,
    /// The group as the call or the file names it, in lower case.
    pub(crate) group_text: Option<String>,
    pub(crate) wait: Wait,
    pub(crate) on_held: OnHeld,
    pub(crate) ticket: Option<Ticket>,
    pub(crate) reentrant: bool,
    pub(crate) who: Who,
    /// The command runs also where the place of the lock cannot be used.
    pub(crate) is_open: bool,
    /// The warning about an intent that takes no lock.
    pub(crate) warning: Option<&'static str>,
    pub(crate) program: Program,
    /// How long the work may take to end, and how long a hook may run.
    pub(crate) grace: Duration,
    pub(crate) hooks: Hooks,
    pub(crate) how: How,
}

/// A lock that a run wants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Wanted {
    pub(crate) at: At,
    pub(crate) name: LockName,
    pub(crate) terms: Terms,
    /// Whether a live holder of it is ended. Only what the call names, or its group, is taken by force.
    pub(crate) force: Force,
    /// `None` for the usual ttl of its profile.
    pub(crate) ttl_ms: Option<u64>,
    /// What its slots stand for, and the variables of its command.
    pub(crate) pool: Pool,
}

/// In which of the two places a lock is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum At {
    Place,
    /// Groups are native locks, whatever the profile of the others is.
    Group,
}

/// What is run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Program {
    /// At least one.
    pub(crate) words: Vec<OsString>,
    /// Whether the words are a shell, its flag and a line for it.
    pub(crate) by_shell: bool,
    /// Variables by which a service manager speaks to this process. In the command they name the command.
    pub(crate) of_service: Vec<&'static str>,
}

/// What runs when this run takes the place of others, or another run takes its place: lines for a shell.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Hooks {
    pub(crate) on_supersede: Option<String>,
    pub(crate) on_superseded: Option<String>,
}

/// Whether a process supervises the command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum How {
    /// Unsupervised: this process becomes the command.
    Exec,
    Supervised(Supervised),
}

/// How the command is supervised.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Supervised {
    /// The signal that asks it to end; `None` for the usual one.
    pub(crate) signal: Option<i32>,
    pub(crate) term_after: Duration,
    /// With its text, for the answer of a run that takes longer.
    pub(crate) max_runtime: Option<(Duration, String)>,
    pub(crate) wait_all: bool,
    pub(crate) follow: Option<Follow>,
    /// The command does not inherit the liveness lock.
    pub(crate) close: bool,
    pub(crate) on_lost: OnLost,
    /// A line for a shell.
    pub(crate) rollback: Option<String>,
    pub(crate) failure_step: Option<String>,
}

impl Run {
    /// The meaning of the typed line in these surroundings.
    pub(crate) fn of(typed: &RunArgs, around: &Surroundings) -> Result<Self, Failure> {
        #[cfg(windows)]
        refuse_what_is_not_here(typed)?;
        let claiming = &typed.claiming;
        let place = Place::of_run(&typed.common, around, typed.group.is_some())?.seen_by(around);
        if typed.exec {
            refuse_exec(&place)?;
        }
        let name = named_by(&place, typed.name.as_ref());
        let asked = ClaimWords {
            name: name.as_ref(),
            locks: !typed.lock.is_empty(),
            group: typed.group.is_some(),
            claiming,
        };
        let intends = place.format().intends(&asked, around)?;
        let (warning, takes) = match intends.takes {
            Takes::Locks => (None, Some(taking(typed, &intends, &place, around)?)),
            Takes::Nothing { warning, .. } => {
                ttl_ms(intends.ttl, &Defaults::default(), place.format())?;
                (warning, None)
            }
        };
        let Taking {
            group_place,
            name,
            locks,
            group_text,
            wait,
            on_held,
            ticket,
            defaults,
        } = takes.unwrap_or_default();
        let file = defaults.flags();
        let grace = grace(typed, file)?;
        #[cfg(windows)]
        refuse_hooks(&defaults)?;
        let how = if typed.exec {
            defaults.refuse_exec()?;
            How::Exec
        } else {
            How::Supervised(supervised(typed, file, &grace)?)
        };
        let grace = grace.value("--grace")?;
        let program = program(typed, around)?;
        let mut who = Who::of(claiming, &place, intends.facts, around)?;
        if who.why.is_none() {
            who.why = Some(line(&typed.command));
        }
        Ok(Self {
            place: place.with_groups(group_place.as_ref()),
            group_place,
            task: Task {
                name,
                locks,
                group_text,
                wait,
                on_held,
                ticket,
                reentrant: says(typed, file, |it| it.reentrant),
                who,
                is_open: typed.on_error == Some(OnError::Open),
                warning,
                program,
                grace,
                hooks: Hooks {
                    on_supersede: either(typed, file, |it| it.on_supersede.as_ref()).cloned(),
                    on_superseded: either(typed, file, |it| it.on_superseded.as_ref()).cloned(),
                },
                how,
            },
        })
    }
}

impl Task {
    /// The lock of the group, if there is one.
    pub(crate) fn group(&self) -> Option<&LockName> {
        let first = self.locks.first().filter(|wanted| wanted.at == At::Group);
        first.map(|wanted| &wanted.name)
    }

    /// The lock that gives the run its name: `name`, else the first of the others, else the group.
    pub(crate) fn main(&self) -> Option<&LockName> {
        let mut locks = self.locks.iter();
        let first = locks.find(|wanted| wanted.at == At::Place);
        let first = first.map(|wanted| &wanted.name);
        self.name.as_ref().or(first).or(self.group())
    }

    /// The name of the step that fails, if the caller gave one.
    pub(crate) fn failure_step(&self) -> Option<&str> {
        self.supervised()?.failure_step.as_deref()
    }

    /// How the command is supervised, if it is.
    pub(crate) fn supervised(&self) -> Option<&Supervised> {
        match &self.how {
            How::Supervised(supervised) => Some(supervised),
            How::Exec => None,
        }
    }
}

/// What a run takes.
struct Taking {
    group_place: Option<Place>,
    name: Option<LockName>,
    locks: Vec<Wanted>,
    group_text: Option<String>,
    wait: Wait,
    on_held: OnHeld,
    ticket: Option<Ticket>,
    /// Of the lock that gives the run its name.
    defaults: Defaults,
}

impl Default for Taking {
    /// Nothing.
    fn default() -> Self {
        Self {
            group_place: None,
            name: None,
            locks: Vec::new(),
            group_text: None,
            wait: Wait::No,
            on_held: OnHeld::Refuse,
            ticket: None,
            defaults: Defaults::default(),
        }
    }
}

fn taking(
    typed: &RunArgs,
    intends: &Intends,
    place: &Place,
    around: &Surroundings,
) -> Result<Taking, Failure> {
    let claiming = &typed.claiming;
    let name = match &intends.name {
        Some(name) => Some(name.clone()),
        None => default_name(place)?,
    };
    let locks = named_locks(typed, name.as_ref(), place)?;
    let group = value::given(value::GROUP_NAME, typed.group.as_ref())?;
    let first = locks.first().map(|lock| &lock.name);
    let Some(main) = name.as_ref().or(first).or(group.as_ref()).cloned() else {
        return Err(no_name());
    };
    place.refuse_untyped(&main)?;
    let defaults = place.defaults(&main)?;
    let of_file = || {
        let group = defaults.flags().and_then(|file| file.group.as_ref());
        group.filter(|_| !locks.is_empty())
    };
    let group_text = typed.group.as_ref().or_else(of_file);
    let group_text = group_text.map(|group| folded(&group.text));
    let group = match group {
        Some(group) => Some(group),
        None => value::given("group", of_file())?,
    };
    let said_wait = said_wait(&claiming.patience, around)?;
    let mut line = in_line(typed, &defaults, group.is_some(), said_wait.is_some())?;
    refuse_flags_of_no_lock(typed, name.as_ref(), locks.len(), group.is_some())?;
    let group_place = match group {
        Some(_) if place.profile().record().is_some() => {
            Some(Place::of_groups(&typed.common, around, Purpose::Take)?.seen_by(around))
        }
        _ => None,
    };
    if let Some(group) = &group
        && group_place.is_none()
        && locks.iter().any(|lock| lock.name == *group)
    {
        return Err(same_name(group, typed.group.is_some()));
    }
    let on_held = on_held(typed, &defaults);
    // A run that is skipped where the lock is held replaces no waiter there, and ends no holder.
    if on_held == OnHeld::Skip {
        line.terms.queueing = Queueing::Fifo;
        line.terms.cancel_in_progress = false;
    }
    let wait = match line.queue {
        Queue::None => Wait::No,
        Queue::Line(_) => {
            let said = said_wait.or(defaults.wait());
            said.unwrap_or_else(|| match (&group, on_held) {
                (_, OnHeld::Skip) => Wait::No,
                (Some(_), OnHeld::Refuse) => Wait::Forever,
                (None, OnHeld::Refuse) => usual_wait(place),
            })
        }
    };
    let mut wanted = Vec::with_capacity(usize::from(group.is_some()) + locks.len());
    let further = Terms {
        grace_ms: line.terms.grace_ms,
        ..Terms::default()
    };
    // The group's claim waits as the group wants, and the run that has its turn takes the rest.
    let terms = if group.is_some() { further } else { line.terms };
    let of_main = (terms, force(claiming));
    if let Some(group) = group {
        let place = group_place.as_ref().unwrap_or(place);
        let defaults = place.defaults(&group)?;
        wanted.push(Wanted {
            at: At::Group,
            ttl_ms: ttl_ms(intends.ttl, &defaults, place.format())?,
            name: group,
            terms: line.terms,
            force: force(claiming),
            // A single run has a group at a time, whatever is said about locks of such names.
            pool: Pool::default(),
        });
    }
    for Further { name, mode: said } in locks {
        place.refuse_untyped(&name)?;
        let defaults = place.defaults(&name)?;
        // The queue, and what ends holders, are of the lock that the call is named by, and of no further one.
        let further = (further, Force::No);
        let (terms, force) = if name == main { of_main } else { further };
        let mode = mode(said, &defaults, &name, place)?;
        wanted.push(Wanted {
            at: At::Place,
            ttl_ms: ttl_ms(intends.ttl, &defaults, place.format())?,
            name,
            terms: Terms { mode, ..terms },
            force,
            pool: defaults.pool(),
        });
    }
    Ok(Taking {
        group_place,
        name,
        locks: wanted,
        group_text,
        wait,
        on_held,
        ticket: ticket(claiming, wait)?,
        defaults,
    })
}

/// The refusal of a group that is kept as one of the run's own locks.
fn same_name(group: &LockName, is_typed: bool) -> Failure {
    Failure::bad_arguments(if is_typed {
        format!(
            "the group {group} is kept as a lock of this very name; leave NAME out, the group \
                 holds it"
        )
    } else {
        format!(
            "group = {:?} in tenure.toml is kept as a lock of the name {group}, which this run \
                 takes as well; give the group another name",
            group.as_str()
        )
    })
}

/// The locks of a run, in the one order in which every run takes them. The flags about a lock are of NAME; where only one
/// `--lock` names any, they are of that one.
fn named_locks(
    typed: &RunArgs,
    first: Option<&LockName>,
    place: &Place,
) -> Result<Vec<Further>, Failure> {
    let flags = typed_mode(&typed.claiming, typed.exclusive);
    let is_alone = first.is_none() && typed.lock.len() == 1;
    let mut locks = Vec::with_capacity(1 + typed.lock.len());
    locks.extend(first.map(|name| Further {
        name: name.clone(),
        mode: flags,
    }));
    for further in &typed.lock {
        let Further { name, mode } = further.value(value::LOCK_NAME)?;
        let mode = mode.or(flags.filter(|_| is_alone));
        locks.push(Further { name, mode });
    }
    for lock in &mut locks {
        lock.name = place.checked(lock.name.clone())?;
    }
    locks.sort_by(|one, other| one.name.cmp(&other.name));
    let mut pairs = locks.iter().zip(locks.iter().skip(1));
    if pairs.any(|(one, next)| one.name == next.name) {
        return Err(Failure::bad_arguments(
            "--lock: the same lock is named twice; each is taken once",
        ));
    }
    Ok(locks)
}

/// Refuses flags about a lock where the call has no NAME, and so does not say which lock they are about.
fn refuse_flags_of_no_lock(
    typed: &RunArgs,
    name: Option<&LockName>,
    locks: usize,
    in_group: bool,
) -> Result<(), Failure> {
    let claiming = &typed.claiming;
    if name.is_some() || locks == 1 {
        return Ok(());
    }
    if typed_mode(claiming, typed.exclusive).is_some() && (locks > 0 || !typed.exclusive) {
        return Err(if locks == 0 {
            super::no_mode_of_group()
        } else {
            Failure::bad_arguments(
                "--shared, --slots and --exclusive are about NAME; for a lock of --lock write -l NAME:shared or \
                 -l NAME:slots=N",
            )
        });
    }
    let of_one = [
        (typed.queue.is_some(), "--queue"),
        (typed.cancel_in_progress, "--cancel-in-progress"),
        (claiming.force, "--force"),
    ];
    match of_one.into_iter().find(|(is_typed, _)| *is_typed) {
        Some((_, flag)) if !in_group => Err(Failure::bad_arguments(format!(
            "{flag} is about NAME, and several locks are named by --lock; write the one that is meant as NAME"
        ))),
        _ => Ok(()),
    }
}

/// How a run stands in line.
struct QueueTerms {
    queue: Queue,
    /// The terms of the group's claim, or else of the lock's own.
    terms: Terms,
}

fn on_held(typed: &RunArgs, defaults: &Defaults) -> OnHeld {
    let wants_to_know =
        typed.claiming.patience.conflict_exit_code.is_some() || typed.claiming.ticket.is_some();
    if typed.skip {
        OnHeld::Skip
    } else if wants_to_know {
        OnHeld::Refuse
    } else {
        defaults.on_held.unwrap_or_default()
    }
}

/// Reads what is said about the line. Flags may contradict each other.
fn in_line(
    typed: &RunArgs,
    defaults: &Defaults,
    in_group: bool,
    says_wait: bool,
) -> Result<QueueTerms, Failure> {
    let (queue, cancels) = defaults.line(typed, in_group, says_wait);
    let contradiction = match queue {
        Queue::None if cancels => Some(
            "--queue none and --cancel-in-progress contradict each other: the one does not wait, and \
            a run that is asked to stop takes a while"
                .to_owned(),
        ),
        Queue::None if in_group => Some(
            "--queue none and --group contradict each other: in a group, the newest run waits"
                .to_owned(),
        ),
        Queue::None if typed.claiming.patience.wait.is_some() => {
            Some("--queue none and --wait contradict each other".to_owned())
        }
        Queue::Line(queueing @ (Queueing::Fifo | Queueing::Max)) if cancels => Some(format!(
            "--queue {} and --cancel-in-progress contradict each other: the one lets others wait for \
             the run, the other ends it for the newest",
            if queueing == Queueing::Max { "max" } else { "fifo" }
        )),
        Queue::None | Queue::Line(_) => None,
    };
    if let Some(contradiction) = contradiction {
        return Err(Failure::bad_arguments(contradiction));
    }
    // A run that becomes its command hears no request to stop, and so needs no time to end.
    let grace_ms = if typed.exec {
        0
    } else {
        value::millis(grace(typed, defaults.flags())?.value("--grace")?)
    };
    Ok(QueueTerms {
        queue,
        terms: Terms {
            mode: Mode::Exclusive,
            queueing: match queue {
                Queue::Line(queueing) => queueing,
                Queue::None => Queueing::Fifo,
            },
            cancel_in_progress: cancels,
            grace_ms,
            kept: None,
            watched: None,
        },
    })
}

/// The time that work is given to end if no one says another.
pub(super) fn usual_grace() -> Typed<Duration> {
    Typed::of("10s", value::duration)
}

/// What the flag says, or else the key.
fn either<'a, T>(
    typed: &'a RunArgs,
    file: Option<&'a RunArgs>,
    flag: impl Fn(&'a RunArgs) -> Option<&'a T>,
) -> Option<&'a T> {
    flag(typed).or_else(|| file.and_then(flag))
}

/// Whether the flag or the key says so.
fn says(typed: &RunArgs, file: Option<&RunArgs>, flag: impl Fn(&RunArgs) -> bool) -> bool {
    flag(typed) || file.is_some_and(flag)
}

/// How long the work may take to end, with its text.
fn grace(typed: &RunArgs, file: Option<&RunArgs>) -> Result<Typed<Duration>, Failure> {
    let said = either(typed, file, |it| it.grace.as_ref()).cloned();
    let grace = said.unwrap_or_else(usual_grace);
    grace.value("--grace")?;
    Ok(grace)
}

/// When SIGTERM follows; what the file says of it counts as far as it is within the grace that was typed.
fn term_after(
    typed: &RunArgs,
    file: Option<&RunArgs>,
    grace: &Typed<Duration>,
) -> Result<Duration, Failure> {
    let time = grace.value("--grace")?;
    if let Some(after) = &typed.term_after {
        let value = after.value("--term-after")?;
        if value > time {
            return Err(Failure::bad_arguments(format!(
                "--term-after {}: SIGTERM would come after the end of --grace {}",
                after.text, grace.text
            )));
        }
        return Ok(value);
    }
    let said = file.and_then(|file| file.term_after.as_ref());
    let said = value::given("term_after", said)?;
    Ok(said.filter(|said| *said <= time).unwrap_or(time * 3 / 4))
}

fn supervised(
    typed: &RunArgs,
    file: Option<&RunArgs>,
    grace: &Typed<Duration>,
) -> Result<Supervised, Failure> {
    let signal = either(typed, file, |it| it.signal.as_ref());
    let limit = either(typed, file, |it| it.max_runtime.as_ref());
    let max_runtime = value::given("--max-runtime", limit)?;
    Ok(Supervised {
        signal: value::given("--signal", signal)?,
        term_after: term_after(typed, file, grace)?,
        max_runtime: max_runtime.zip(limit.map(|limit| limit.text.clone())),
        wait_all: says(typed, file, |it| it.wait_all),
        follow: typed
            .die_with
            .or(typed.die_with_parent.then_some(Follow::Parent)),
        close: says(typed, file, |it| it.close),
        on_lost: either(typed, file, |it| it.on_lost.as_ref())
            .copied()
            .unwrap_or(OnLost::Terminate),
        rollback: either(typed, file, |it| it.rollback.as_ref()).cloned(),
        failure_step: typed.failure_step.clone(),
    })
}

/// Refuses `--exec` for a lock that a supervisor has to renew, withdraw or release.
fn refuse_exec(place: &Place) -> Result<(), Failure> {
    if !place.is_folder() {
        return Err(Failure::bad_arguments(
            "no supervisor stays behind with --exec, and a lock in etcd lives by a lease that one has to \
             renew; leave --exec out",
        ));
    }
    let profile = place.profile();
    if profile.record().is_none() {
        return Ok(());
    }
    Err(Failure::bad_arguments(format!(
        "no supervisor stays behind with --exec, and a lock of the {} profile has to be renewed and \
         withdrawn; leave --exec out",
        profile.policy().name
    )))
}

fn program(typed: &RunArgs, around: &Surroundings) -> Result<Program, Failure> {
    let of_service = if typed.exec {
        // The command has our own number.
        Vec::new()
    } else {
        around.variables.of_service.clone()
    };
    if !typed.shell {
        return Ok(Program {
            words: typed.command.clone(),
            by_shell: false,
            of_service,
        });
    }
    let [text] = typed.command.as_slice() else {
        return Err(Failure::bad_arguments(
            "--shell runs one argument; quote the whole line: tenure run --shell NAME -- 'a && b'",
        ));
    };
    let (usual, flag) = if cfg!(windows) {
        ("cmd.exe", "/c")
    } else {
        ("/bin/sh", "-c")
    };
    let shell = around.variables.shell.clone();
    Ok(Program {
        words: vec![
            shell.unwrap_or_else(|| usual.into()),
            flag.into(),
            text.clone(),
        ],
        by_shell: true,
        of_service,
    })
}

/// Refuses what Windows cannot do, before anything is touched.
#[cfg(windows)]
fn refuse_what_is_not_here(typed: &RunArgs) -> Result<(), Failure> {
    let why = [
        (
            typed.exec,
            "--exec",
            "no process becomes another one; leave it out, and the command is watched over",
        ),
        (
            typed.signal.is_some(),
            "--signal",
            "there are no signals; a command is asked to end by Ctrl-Break",
        ),
        (
            typed.on_supersede.is_some(),
            "--on-supersede",
            "it has not been ported",
        ),
        (
            typed.on_superseded.is_some(),
            "--on-superseded",
            "it has not been ported",
        ),
    ];
    match why.into_iter().find(|(asked, ..)| *asked) {
        Some((_, what, why)) => Err(Failure::not_here(what, why)),
        None => Ok(()),
    }
}

/// Refuses hooks that a file names, where Windows cannot run them.
#[cfg(windows)]
fn refuse_hooks(defaults: &Defaults) -> Result<(), Failure> {
    if !defaults.says_hooks() {
        return Ok(());
    }
    Err(Failure::not_here(
        "on_supersede and on_superseded in tenure.toml",
        "they have not been ported",
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verb::read_both;
    use std::fmt::Debug;
    use std::path::Path;
    use tenure_engine::config::Config;

    /// What may stand between `run` and the command. Most of it is plain, and some makes no sense.
    const WORDS: [&str; 28] = [
        "a",
        "b",
        "a/b",
        "",
        "-n",
        "-x",
        "--exec",
        "-q",
        "-v",
        "-w",
        "--wait",
        "5s",
        "0",
        "forever",
        "soon",
        "--wait=1",
        "--ttl",
        "1h30m",
        "--request-id",
        "req_1",
        "--dir",
        "/d",
        "d",
        "--output",
        "json",
        "xml",
        "--grace=3s",
        "--group=g",
    ];

    /// A sequence that is the same in every run.
    struct Sequence(u64);

    impl Sequence {
        fn below(&mut self, bound: usize) -> usize {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            usize::try_from(self.0 % bound as u64).expect("a small number")
        }
    }

    fn shown(said: &impl Debug) -> String {
        format!("{said:?}")
    }

    #[test]
    fn the_quick_path_and_the_parser_mean_the_same() {
        let around = Surroundings::bare("/here");
        let mut sequence = Sequence(39);
        let (mut plain_calls, mut good_calls, mut lines) = (0, 0, 0);
        // Each plain line costs a parser.
        while plain_calls < 1_000 {
            lines += 1;
            let mut words = vec!["tenure", "run"];
            for _ in 0..sequence.below(8) {
                words.push(WORDS[sequence.below(WORDS.len())]);
            }
            words.extend(["--", "cmd", "-n", "--"]);
            let Some((plain, parsed)) = read_both(&words) else {
                continue;
            };
            plain_calls += 1;
            let parsed = parsed.expect("what is plain is a good call");
            let (plain, parsed) = (Run::of(&plain, &around), Run::of(&parsed, &around));
            good_calls += usize::from(plain.is_ok());
            assert_eq!(shown(&plain), shown(&parsed), "{words:?}");
        }
        assert!(
            lines > 5_000,
            "of {lines} lines, most are left to the parser"
        );
        assert!(good_calls > 300, "{good_calls} of them make sense");
    }

    fn read(line: &str, around: &Surroundings) -> Result<Run, Failure> {
        let words: Vec<_> = line.split(' ').collect();
        Run::of(&crate::verb::read_run(&words).expect(line), around)
    }

    #[test]
    fn a_run_takes_its_group_first_and_then_its_locks_by_name() {
        let around = Surroundings::bare("/here");
        let line = "tenure run --dir /d m -l z -l a --group G --ttl 5s --grace 2s -- cmd x";
        let run = read(line, &around).expect("it makes sense");
        let task = &run.task;
        let locks: Vec<_> = task
            .locks
            .iter()
            .map(|it| (it.at, it.name.as_str()))
            .collect();
        let expected = [
            (At::Group, "g"),
            (At::Place, "a"),
            (At::Place, "m"),
            (At::Place, "z"),
        ];
        assert_eq!(locks, expected);
        assert!(task.locks.iter().all(|it| it.ttl_ms == Some(5_000)));
        assert!(task.locks.iter().all(|it| it.terms.grace_ms == 2_000));
        let queueing: Vec<_> = task.locks.iter().map(|it| it.terms.queueing).collect();
        assert_eq!(queueing.first(), Some(&Queueing::Single), "the group's own");
        assert!(queueing.iter().skip(1).all(|it| *it == Queueing::Fifo));
        assert_eq!(task.main().map(LockName::as_str), Some("m"));
        assert_eq!(task.wait, Wait::Forever, "as groups do");
        assert_eq!(task.who.why.as_deref(), Some("cmd x"));
        assert!(run.group_place.is_none(), "native locks are in one place");
    }

    /// What the file says about the lock `a`.
    fn of_file(says: &str, flags: &str) -> Result<Task, Failure> {
        let text = format!("[lock.a]\n{says}\n");
        let config = Config::parse(&text, Path::new("/here/tenure.toml")).expect(says);
        let around = Surroundings::saying(config);
        let line = format!("tenure run a {flags} -- cmd").replace("  ", " ");
        read(&line, &around).map(|run| run.task)
    }

    #[test]
    fn what_the_file_says_is_as_good_as_a_flag_and_a_flag_counts_for_more() {
        let both = |says, flags, typed| {
            let of_file = of_file(says, "").expect(says);
            let as_typed = of_file_text("", flags);
            assert_eq!(shown_task(&of_file), as_typed, "{says}");
            let over = of_file_text(says, typed);
            assert_eq!(over, of_file_text("", typed), "{says} and {typed}");
        };
        both("wait = \"7s\"", "-w 7s", "-w 1s");
        both("wait = \"7s\"", "-w 7s", "-n");
        both("ttl = \"7s\"", "--ttl 7s", "--ttl 1s");
        both("grace = \"7s\"", "--grace 7s", "--grace 1s");
        both(
            "max_runtime = \"7s\"",
            "--max-runtime 7s",
            "--max-runtime 1s",
        );
        both(
            "on_lost = \"warn\"",
            "--on-lost warn",
            "--on-lost terminate",
        );
        both("term_after = \"2s\"", "--term-after 2s", "--term-after 1s");
        both("term_after = \"2s\"", "--term-after 2s", "--grace 1s");
        both("shared = true", "--shared", "-x");
        both("shared = true", "--shared", "--slots 2");
        both("shared = false", "", "--shared");
        both("wait_all = true", "--wait-all", "--wait-all");
        both("close = true", "--close", "--close");
        both("reentrant = true", "--reentrant", "--reentrant");
        both("rollback = \"undo\"", "--rollback undo", "--rollback other");
        #[cfg(unix)] // Windows has no signals, and no work that is told of another run
        for (says, flags, typed) in [
            ("signal = \"TERM\"", "--signal TERM", "--signal HUP"),
            (
                "on_supersede = \"a\"",
                "--on-supersede a",
                "--on-supersede b",
            ),
            (
                "on_superseded = \"a\"",
                "--on-superseded a",
                "--on-superseded b",
            ),
        ] {
            both(says, flags, typed);
        }
        both("group = \"G\"", "--group G", "--group H");
        both("queue = \"max\"", "--queue max", "--queue fifo");
        both("queue = \"none\"", "--queue none", "--queue fifo");
        both("on_held = \"skip\"", "--skip", "-E 4");
        both(
            "cancel_in_progress = true",
            "--cancel-in-progress",
            "--queue fifo",
        );
        // A flag about the line silences a file that contradicts it.
        both("queue = \"none\"", "--queue none", "-w 1s");
        both("queue = \"none\"", "--queue none", "--group G");
        both("queue = \"fifo\"", "--queue fifo", "--cancel-in-progress");
    }

    /// A task as text, without what only the file can say.
    fn shown_task(task: &Task) -> String {
        let locks = task.locks.iter().map(|wanted| Wanted {
            pool: Pool::default(),
            ..wanted.clone()
        });
        let locks: Vec<_> = locks.collect();
        let Task {
            name,
            wait,
            on_held,
            grace,
            how,
            hooks,
            reentrant,
            ..
        } = task;
        format!("{name:?} {locks:?} {wait:?} {on_held:?} {grace:?} {how:?} {hooks:?} {reentrant}")
    }

    fn of_file_text(says: &str, flags: &str) -> String {
        shown_task(&of_file(says, flags).expect(flags))
    }

    #[test]
    fn what_a_lock_is_for_all_callers_is_no_flags_to_say() {
        for says in ["slots = 2", "members = [\"x\", \"y\"]"] {
            assert_eq!(
                of_file_text(says, ""),
                of_file_text("", "--slots 2"),
                "{says}"
            );
            assert_eq!(
                of_file_text(says, "--slots 2"),
                of_file_text("", "--slots 2")
            );
            for flags in ["--slots 3", "--slots 1", "--shared", "-x"] {
                let refused = of_file(says, flags).expect_err(flags);
                assert!(
                    refused.message.contains("a has 2 slots for all callers"),
                    "{flags}"
                );
            }
        }
        let refused = of_file("term_after = \"11s\"", "").expect_err("after the end");
        assert!(
            refused.message.contains("term_after"),
            "{}",
            refused.message
        );
        let refused = of_file("group = \"a\"", "").expect_err("one name, two locks");
        assert!(
            refused.message.contains("another name"),
            "{}",
            refused.message
        );
    }

    /// On Windows no process becomes another one.
    #[cfg(unix)]
    #[test]
    fn without_a_supervisor_nothing_can_be_asked_of_it() {
        for says in [
            "max_runtime = \"7s\"",
            "rollback = \"undo\"",
            "on_superseded = \"tell\"",
            "wait_all = true",
            "close = true",
        ] {
            let refused = of_file(says, "--exec").expect_err("no supervisor");
            assert!(refused.message.contains(says), "{}", refused.message);
        }
    }

    /// With paths of Unix.
    #[cfg(unix)]
    #[test]
    fn what_is_typed_counts_for_more_than_the_environment() {
        let mut around = Surroundings::bare("/here");
        around.variables.wait = Some("7s".to_owned());
        around.variables.place.dir = Some("/of/the/environment".into());
        let run = read("tenure run a -- cmd", &around).expect("it makes sense");
        assert_eq!(run.task.wait, Wait::For(Duration::from_secs(7)));
        assert_eq!(run.place.folder.to_str(), Some("/of/the/environment"));
        let run = read("tenure run a -n --dir d -- cmd", &around).expect("it makes sense");
        assert_eq!(run.task.wait, Wait::No);
        assert_eq!(run.place.folder.to_str(), Some("/here/d"));
        around.variables.wait = Some("soon".to_owned());
        let refused = read("tenure run a -- cmd", &around).expect_err("no duration");
        assert!(
            refused.message.starts_with("TENURE_WAIT \"soon\""),
            "{}",
            refused.message
        );
        assert!(
            read("tenure run a -w 1s -- cmd", &around).is_ok(),
            "it is not looked at"
        );
    }
}
