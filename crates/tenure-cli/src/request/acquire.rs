//! What `acquire` means: which lock it takes, in whose name, for how long, and whose life it follows.

use super::{
    ClaimWords, Defaults, Place, Pool, Surroundings, Takes, Who, force, millis, mode, named,
    named_by, refuse_input, said_wait, ticket, ttl_ms, typed_mode, usual_wait,
};
use crate::args::AcquireArgs;
use crate::args::value::{self, Owner, Ticket};
use crate::failure::Failure;
use tenure_core::{AGENT_AGE_MAX_MS, AGENT_AGE_MS, Force, LockName, Mode, RequestId, UnknownLife};
use tenure_engine::engine::Wait;
use tenure_engine::intent;

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
        let wait = said_wait(&claiming.patience, around)?.or(defaults.wait);
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
