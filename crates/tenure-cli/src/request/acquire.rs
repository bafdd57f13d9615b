//! `acquire`: its flags, and what they mean: which lock it takes, in whose name, for how long, and whose life it
//! follows.

use super::{
    ClaimWords, Defaults, Place, Pool, Surroundings, Takes, Who, force, millis, mode, named,
    named_by, refuse_input, said_wait, ticket, ttl_ms, typed_mode, usual_wait,
};
use crate::args::value::{self, Owner, Ticket, Typed, typed};
use crate::args::{AGENTS, Calling, Claiming, Common, OfLock, SPRINT};
use crate::failure::Failure;
use clap::Args;
use std::time::Duration;
use tenure_core::{AGENT_AGE_MAX_MS, AGENT_AGE_MS, Force, LockName, Mode, RequestId, UnknownLife};
use tenure_engine::engine::Wait;
use tenure_engine::intent;

/// `acquire`.
#[derive(Debug, Clone, Default, Args)]
#[command(after_help = "Examples:
  tenure acquire deploy                        for the script that calls this
  tenure acquire deploy --owner $$             for this process, while it lives
  tenure acquire deploy --owner none --ttl 5m  no process: renew within 5 min
  tenure acquire deploy --request-id run-42    to ask again by that id is fine

Release it with `tenure release NAME` from the same caller, or from anywhere with the id that `acquire` prints. \
If the owner ends, the lock is free at once.")]
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
    /// Process whose life the lock follows: a PID, job, parent, none or auto.
    ///
    /// job: the CI job; auto: a process that outlives this call and ends with the work
    #[arg(long, value_name = "OWNER", default_value = value::OWNER, alias = "pid", value_parser = typed(value::owner))]
    pub(crate) owner: Typed<Owner>,
    /// `-`: read the call from stdin, as YAML or JSON
    #[arg(long, value_name = "-", help_heading = SPRINT)]
    pub(crate) input: Option<String>,
    /// Maximum age of the hold, in spite of renewals [default: 2h with --as]
    #[arg(long, value_name = "DURATION", help_heading = AGENTS, hide_short_help = true, value_parser = typed(value::lease))]
    pub(crate) max_age: Option<Typed<Duration>>,
    #[command(flatten)]
    pub(crate) calling: Calling,
    #[command(flatten)]
    pub(crate) common: Common,
}

/// Takes a lock and returns.
#[derive(Debug)]
pub(crate) struct Acquire {
    pub(crate) place: Place,
    pub(crate) name: LockName,
    pub(crate) mode: Mode,
    /// What its slots stand for.
    pub(crate) pool: Pool,
    /// `None` for the usual ttl of its profile.
    pub(crate) ttl_ms: Option<u64>,
    /// The age at which the hold ends.
    pub(crate) max_age_ms: Option<u64>,
    pub(crate) wait: Wait,
    pub(crate) force: Force,
    pub(crate) ticket: Option<Ticket>,
    pub(crate) owner: Owner,
    pub(crate) who: Who,
}

/// What a call of `acquire` is to do.
#[derive(Debug)]
#[allow(
    clippy::large_enum_variant,
    reason = "there is one in the life of a process"
)]
pub(crate) enum Acquiring {
    Lock(Acquire),
    /// The intent says that it needs none.
    Nothing {
        place: Place,
        /// The id that the caller gives; without one, the answer has a fresh one.
        id: Option<RequestId>,
        mode: intent::Mode,
        warning: Option<&'static str>,
    },
}

impl Acquiring {
    /// The meaning of the typed line in these surroundings.
    pub(crate) fn of(typed: &AcquireArgs, around: &Surroundings) -> Result<Self, Failure> {
        refuse_input(typed.input.as_deref())?;
        let claiming = &typed.claiming;
        let place = Place::of_taker(&typed.common, around)?;
        let name = named_by(&place, typed.name.as_ref());
        let asked = ClaimWords {
            name: name.as_ref(),
            locks: false,
            group: false,
            claiming,
        };
        let intends = place.format().intends(&asked, around)?;
        let who = Who::of(claiming, &place, intends.facts, around)?;
        if let Takes::Nothing { mode, warning } = intends.takes {
            ttl_ms(intends.ttl, &Defaults::default(), place.format())?;
            return Ok(Self::Nothing {
                place,
                id: who.id,
                mode,
                warning,
            });
        }
        let name = named(&place, intends.name)?;
        let defaults = place.defaults(&name)?;
        let wait = said_wait(&claiming.patience, around)?.or(defaults.wait());
        let wait = wait.unwrap_or_else(|| usual_wait(&place));
        Ok(Self::Lock(Acquire {
            mode: mode(
                typed_mode(claiming, typed.exclusive),
                &defaults,
                &name,
                &place,
            )?,
            ttl_ms: ttl_ms(intends.ttl, &defaults, place.format())?,
            max_age_ms: max_age_ms(typed, &defaults, &place)?,
            wait,
            force: force(claiming),
            ticket: ticket(claiming, wait)?,
            owner: typed.owner.value("--owner")?,
            who,
            pool: defaults.pool(),
            name,
            place,
        }))
    }
}

/// The age at which the hold ends. An agent's has one in any case, because its host is seldom told that it has ended.
fn max_age_ms(
    typed: &AcquireArgs,
    defaults: &Defaults,
    place: &Place,
) -> Result<Option<u64>, Failure> {
    let flag = value::given("--max-age", typed.max_age.as_ref())?;
    let source = if flag.is_some() {
        "--max-age"
    } else {
        "max_age"
    };
    let said = flag.or(defaults.max_age).map(millis);
    let policy = place.profile().policy();
    if policy.unknown_life != UnknownLife::AliveUntilTtl {
        return match said {
            Some(_) => Err(Failure::bad_arguments(format!(
                "{source}: the {} profile has a rule of its own for the age of a hold",
                policy.name
            ))),
            None => Ok(None),
        };
    }
    match said {
        Some(said) if place.is_agents && said > AGENT_AGE_MAX_MS => Err(Failure::bad_arguments(
            format!("{source}: a hold of an agent ends within a day; write 24h or less"),
        )),
        Some(said) => Ok(Some(said.max(1))),
        None => Ok(place.is_agents.then_some(AGENT_AGE_MS)),
    }
}
