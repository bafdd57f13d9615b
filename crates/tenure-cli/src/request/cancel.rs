//! `cancel`: its flags, and what they mean.

use super::{Place, Surroundings, known_as, lock};
use crate::args::value::{self, Typed, typed};
use crate::args::{Common, OfLock};
use crate::failure::Failure;
use clap::Args;
use std::time::Duration;
use tenure_core::{LockName, RequestId};

/// `cancel`.
#[derive(Debug, Clone, Default, Args)]
#[command(after_help = "Examples:
  tenure cancel deploy            the run ends its command and exits with 79
  tenure cancel deploy --why \"the fix comes first\"
  tenure cancel --group Issue-42  the same for the run of a group
  tenure cancel deploy --request-id r3  one run, whether it waits or works
  tenure cancel deploy --grace 0s  kill what has not ended yet
  tenure cancel --orphan deploy   end the command of a tenure that was killed
  tenure cancel --force deploy    continue a stopped run, and have it end

A supervised run ends its own work: cancel itself signals no process. A waiter leaves the line at once. The \
holder of an `acquire` sees the request in `check` and `heartbeat`. Exit code: 5 if the lock is free, 4 if its \
holder cannot be asked.

--orphan ends the recorded command and its descendants, as their supervisor would. Exit code: 0 when they are \
gone, 4 if the supervisor lives or another process keeps the lock, 7 if they are another user's.

--force continues the recorded holder if it is stopped (SIGSTOP, Ctrl-Z), so that it ends its work. Exit code: 0 \
when its hold has ended, 4 if it has not, 7 if it is another user's.")]
pub(crate) struct CancelArgs {
    /// The name of the lock (a sprint has only one)
    #[arg(value_name = "NAME", value_parser = typed(value::name))]
    pub(crate) name: Option<Typed<LockName>>,
    #[command(flatten)]
    pub(crate) of: OfLock,
    /// Only this run, waiting or working [default: all that hold the lock]
    #[arg(long, value_name = "ID", visible_aliases = ["session-id", "run-id"], value_parser = typed(value::request_id))]
    pub(crate) request_id: Option<Typed<RequestId>>,
    /// The caller's own request id [default: generated]
    #[arg(long, value_name = "ID", hide_short_help = true, value_parser = typed(value::request_id))]
    pub(crate) by: Option<Typed<RequestId>>,
    /// The reason; the holder sees it
    #[arg(long, value_name = "TEXT", conflicts_with = "orphan")]
    pub(crate) why: Option<String>,
    /// On whose behalf; the holder sees it [default: $USER; fleet: $ACTOR]
    #[arg(long, value_name = "NAME", conflicts_with = "orphan")]
    pub(crate) actor: Option<String>,
    /// End the work of a run whose supervisor is dead
    #[arg(long)]
    pub(crate) orphan: bool,
    /// Continue a holder that is stopped, so that it ends its work
    #[arg(id = "continues", long = "force", conflicts_with = "orphan")]
    pub(crate) force: bool,
    /// Time from now until the work is killed [default: as its run says]
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

/// Asks a holder to stop.
#[derive(Debug)]
pub(crate) struct Cancel {
    pub(crate) place: Place,
    pub(crate) name: LockName,
    /// The one run that is meant, waiting or working; `None` for all that hold the lock.
    pub(crate) meant: Option<RequestId>,
    /// The id of the caller that asks; without one, it gets a fresh id.
    pub(crate) by: Option<RequestId>,
    pub(crate) whom: Whom,
}

/// The process that the call is about, and what the call does.
#[derive(Debug)]
pub(crate) enum Whom {
    /// Asks the holders to stop, on behalf of `actor`, and tells them why.
    Holder {
        actor: Option<String>,
        why: String,
        /// How long their work is given from now on; `None` for its own grace.
        grace: Option<Duration>,
        /// Stopped holders are continued.
        force: bool,
    },
    /// Ends what is left of a run whose supervisor is dead.
    Orphan(
        #[cfg_attr(
            not(target_os = "linux"),
            allow(dead_code, reason = "it is refused there before this is read")
        )]
        EndOrphan,
    ),
}

/// How to end what is left of a run.
#[derive(Debug, Clone, Copy)]
#[cfg_attr(
    not(target_os = "linux"),
    allow(dead_code, reason = "it is refused there before this is read")
)]
pub(crate) struct EndOrphan {
    /// The grace of the processes; without one, the run's own.
    pub(crate) grace: Option<Duration>,
    /// The signal that asks them first.
    pub(crate) signal: Option<i32>,
    /// Says what would be ended, and ends nothing.
    pub(crate) dry_run: bool,
    /// A person at a terminal is not asked.
    pub(crate) yes: bool,
}

impl Cancel {
    pub(crate) fn of(typed: &CancelArgs, around: &Surroundings) -> Result<Self, Failure> {
        let place = Place::of(&typed.common, around)?;
        let meant = value::given("--request-id", typed.request_id.as_ref())?;
        let by = match value::given("--by", typed.by.as_ref())? {
            Some(by) => Some(by),
            None => known_as(None, place.format(), around)?,
        };
        let grace = value::given("--grace", typed.grace.as_ref())?;
        let whom = if typed.orphan {
            Whom::Orphan(EndOrphan {
                grace,
                signal: value::given("--signal", typed.signal.as_ref())?,
                dry_run: typed.dry_run,
                yes: typed.yes,
            })
        } else {
            Whom::Holder {
                actor: typed.actor.as_deref().map(tenure_store::profile::why),
                why: tenure_store::profile::why(typed.why.as_deref().unwrap_or_default()),
                grace,
                force: typed.force,
            }
        };
        Ok(Self {
            name: lock(&place, typed.name.as_ref(), around)?,
            meant,
            by,
            whom,
            place,
        })
    }
}
