//! What the other verbs mean: one value for each, made from the typed line.

use super::{
    Place, Surroundings, asked_for, known_as, lock, mode, mode_of, refuse_input, said_wait,
    usual_wait,
};
use crate::args::value::{self, Typed, WorkResult};
use crate::args::{
    AuditArgs, CancelArgs, CheckArgs, CleanArgs, FenceAction, FenceArgs, ForceReleaseArgs,
    HeartbeatArgs, ListArgs, OfMode, Order, ReleaseArgs, WaitArgs,
};
use crate::failure::Failure;
use std::path::PathBuf;
use std::time::Duration;
use tenure_core::{AgentKey, Claim, Force, LockName, Mode, RequestId};
use tenure_engine::audit::{Entry, Filter};
use tenure_engine::engine;

/// The id that a caller shows for a hold, or by which the profile knows it.
#[derive(Debug, Default)]
pub(crate) struct ShownId {
    id: Option<String>,
    /// The id does not have tenure's form, so it counts only if a record names it.
    refusal: Option<Failure>,
}

impl ShownId {
    /// The id as it was typed, whether it counts or not.
    pub(crate) fn as_typed(&self) -> Option<&str> {
        self.id.as_deref()
    }

    fn of(typed: Option<&Typed<RequestId>>, place: &Place, around: &Surroundings) -> Self {
        let Some(typed) = typed else {
            let known = place.format().default_id(&around.variables);
            return Self {
                id: known.map(str::to_owned),
                refusal: None,
            };
        };
        Self::typed("--request-id", typed)
    }

    /// A typed id; a message about a mistake names `source`.
    pub(crate) fn typed(source: &str, typed: &Typed<RequestId>) -> Self {
        Self {
            id: Some(typed.text.clone()),
            refusal: typed.value(source).err(),
        }
    }

    /// The id. If it does not have tenure's form it is refused, unless the hold is recorded under it.
    pub(crate) fn id(
        &self,
        is_recorded: impl FnOnce(&str) -> bool,
    ) -> Result<Option<&str>, Failure> {
        let id = self.id.as_deref();
        match &self.refusal {
            Some(refusal) if !id.is_some_and(is_recorded) => Err(refusal.clone()),
            _ => Ok(id),
        }
    }
}

/// Gives back what `acquire` took.
#[derive(Debug)]
pub(crate) struct Release {
    pub(crate) place: Place,
    pub(crate) name: LockName,
    pub(crate) shown: ShownId,
    /// How the work ended, if the caller said so.
    pub(crate) work: Option<Work>,
}

/// How work under a lock ended, as its holder says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Work {
    Succeeded,
    Failed {
        /// In this step, if the caller named it.
        step: Option<String>,
    },
}

impl Release {
    pub(crate) fn of(typed: &ReleaseArgs, around: &Surroundings) -> Result<Self, Failure> {
        refuse_input(typed.input.as_deref())?;
        let place = Place::of_hold(&typed.common, around, text(typed.name.as_ref()))?;
        let step = typed.failure_step.clone();
        Ok(Self {
            name: lock(&place, typed.name.as_ref(), around)?,
            shown: ShownId::of(typed.request_id.as_ref(), &place, around),
            // A caller that names a failed step says that the work failed.
            work: match (typed.result, step) {
                (Some(WorkResult::Success), Some(_)) => {
                    return Err(Failure::bad_arguments(
                        "--result success and --failure-step contradict each other",
                    ));
                }
                (Some(WorkResult::Success), None) => Some(Work::Succeeded),
                (Some(WorkResult::Failure), step) | (None, step @ Some(_)) => {
                    Some(Work::Failed { step })
                }
                (None, None) => None,
            },
            place,
        })
    }
}

/// The one hold that a call means, as its caller saw it.
#[derive(Debug, Default)]
pub(crate) struct Meant {
    /// As it was typed: another program's record may have an id of any form.
    pub(crate) request_id: Option<String>,
    pub(crate) token: Option<u64>,
}

impl Meant {
    /// Whether each hold is meant.
    pub(crate) fn is_any(&self) -> bool {
        self.request_id.is_none() && self.token.is_none()
    }

    /// Whether a hold is the one.
    pub(crate) fn is(&self, claim: &Claim) -> bool {
        let has_id = |id: &String| tenure_engine::profile::known_as(&claim.holder) == id;
        self.request_id.as_ref().is_none_or(has_id)
            && self.token.is_none_or(|token| claim.token == Some(token))
    }
}

/// Removes another's hold.
#[derive(Debug)]
pub(crate) struct ForceRelease {
    pub(crate) place: Place,
    pub(crate) name: LockName,
    pub(crate) meant: Meant,
    pub(crate) force: Force,
}

impl ForceRelease {
    pub(crate) fn of(typed: &ForceReleaseArgs, around: &Surroundings) -> Result<Self, Failure> {
        let place = Place::of(&typed.common, around)?;
        Ok(Self {
            name: lock(&place, typed.name.as_ref(), around)?,
            meant: Meant {
                request_id: typed.request_id.as_ref().map(|id| id.text.clone()),
                token: value::given("--token", typed.token.as_ref())?,
            },
            force: if typed.yes {
                Force::Confirmed
            } else {
                Force::Asked
            },
            place,
        })
    }
}

/// Renews a hold.
#[derive(Debug)]
pub(crate) struct Heartbeat {
    pub(crate) place: Place,
    pub(crate) name: LockName,
    pub(crate) shown: ShownId,
}

impl Heartbeat {
    pub(crate) fn of(typed: &HeartbeatArgs, around: &Surroundings) -> Result<Self, Failure> {
        let place = Place::of_hold(&typed.common, around, text(typed.name.as_ref()))?;
        Ok(Self {
            name: lock(&place, typed.name.as_ref(), around)?,
            shown: ShownId::of(typed.request_id.as_ref(), &place, around),
            place,
        })
    }
}

/// Says how a lock stands, or all of them.
#[derive(Debug)]
pub(crate) struct Check {
    pub(crate) place: Place,
    pub(crate) name: Option<LockName>,
    /// For which mode the lock is to have room; `None` for the one of a plain request.
    pub(crate) mode: Option<Mode>,
    /// Whether it is held by a living holder, and not whether it is free.
    pub(crate) held: bool,
    pub(crate) shown: ShownId,
    /// Other holders and waiters are left out.
    pub(crate) short: bool,
}

impl Check {
    pub(crate) fn of(typed: &CheckArgs, around: &Surroundings) -> Result<Self, Failure> {
        refuse_input(typed.input.as_deref())?;
        let place = Place::of_hold(&typed.common, around, text(typed.name.as_ref()))?;
        let place = place.asked_about(around);
        let name = asked_for(&place, typed.name.as_ref(), around)?;
        if typed.held && name.is_none() {
            return Err(Failure::bad_arguments("--held is about one lock; name it"));
        }
        let shown = typed.request_id.as_ref();
        Ok(Self {
            held: typed.held,
            shown: if name.is_none() && shown.is_none() {
                ShownId::default()
            } else {
                ShownId::of(shown, &place, around)
            },
            mode: room(&typed.room, name.as_ref(), &place)?,
            name: name.map(|name| place.checked(name)).transpose()?,
            short: typed.common.quiet,
            place,
        })
    }
}

/// Shows all locks.
#[derive(Debug)]
pub(crate) struct List {
    pub(crate) place: Place,
    /// Only locks that this agent, or an agent of this session, holds or waits for.
    pub(crate) of: Option<AgentKey>,
    /// Free ones too.
    pub(crate) all: bool,
    /// Only locks with a waiter.
    pub(crate) waiting: bool,
    pub(crate) order: Order,
    /// Only this one.
    pub(crate) name: Option<LockName>,
    /// Other holders and waiters are left out.
    pub(crate) short: bool,
}

impl List {
    pub(crate) fn of(typed: &ListArgs, around: &Surroundings) -> Result<Self, Failure> {
        let place = Place::of(&typed.common, around)?.asked_about(around);
        Ok(Self {
            name: asked_for(&place, typed.name.as_ref(), around)?,
            place,
            of: value::given("--as", typed.agent.as_ref())?,
            all: typed.all,
            waiting: typed.waiting,
            order: typed.sort.unwrap_or(Order::Name),
            short: typed.common.quiet,
        })
    }
}

/// The mode that is typed for a question about a lock, which the lock can have.
fn room(typed: &OfMode, name: Option<&LockName>, place: &Place) -> Result<Option<Mode>, Failure> {
    match (mode_of(typed.shared, typed.slots), name) {
        (None, _) => Ok(None),
        (Some(_), None) => Err(Failure::bad_arguments(
            "--shared and --slots are about one lock; name it",
        )),
        (Some(typed), Some(name)) => {
            mode(Some(typed), &place.defaults(name)?, name, place).map(Some)
        }
    }
}

/// Waits until a lock has room for a claim.
#[derive(Debug)]
pub(crate) struct Wait {
    pub(crate) place: Place,
    pub(crate) name: LockName,
    /// For which mode it is to have room.
    pub(crate) mode: Mode,
    pub(crate) limit: engine::Wait,
}

impl Wait {
    pub(crate) fn of(typed: &WaitArgs, around: &Surroundings) -> Result<Self, Failure> {
        let place = match around.group()? {
            Some(_) => Place::of(&typed.common, around)?,
            None => Place::of_taker(&typed.common, around)?,
        };
        let name = lock(&place, typed.name.as_ref(), around)?;
        let said = said_wait(&typed.patience, around)?.or(place.defaults(&name)?.wait);
        Ok(Self {
            limit: said.unwrap_or_else(|| usual_wait(&place)),
            mode: match room(&typed.room, Some(&name), &place)? {
                Some(mode) => mode,
                None => place.plain_mode(&name),
            },
            name,
            place,
        })
    }
}

/// Removes what is proven stale.
#[derive(Debug)]
pub(crate) struct Clean {
    pub(crate) place: Place,
    pub(crate) dry_run: bool,
}

impl Clean {
    pub(crate) fn of(typed: &CleanArgs, around: &Surroundings) -> Result<Self, Failure> {
        Ok(Self {
            place: Place::of(&typed.common, around)?,
            dry_run: typed.dry_run,
        })
    }
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
                actor: typed.actor.as_deref().map(tenure_engine::profile::why),
                why: tenure_engine::profile::why(typed.why.as_deref().unwrap_or_default()),
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

/// Asks whether a fencing token is still good.
#[derive(Debug)]
#[allow(
    clippy::large_enum_variant,
    reason = "there is one in the life of a process"
)]
pub(crate) enum Fence {
    /// The resource, by the file that keeps its mark.
    Resource {
        guard: PathBuf,
        token: u64,
        allow_network: bool,
    },
    /// The lock.
    Lock {
        place: Place,
        name: LockName,
        /// `None` for the token of the hold that the caller inherited.
        token: Option<u64>,
    },
}

impl Fence {
    pub(crate) fn of(typed: &FenceArgs, around: &Surroundings) -> Result<Self, Failure> {
        let FenceAction::Check = typed.action;
        let told = &around.variables.token;
        let given = value::given("TOKEN", typed.token.as_ref())?;
        let or_told = |given: Option<u64>| match given {
            Some(token) => Ok(Some(token)),
            None => value::read("TOKEN", told.as_deref(), value::token),
        };
        if let Some(guard) = &typed.guard {
            return Ok(Self::Resource {
                guard: guard.clone(),
                token: or_told(given)?.ok_or_else(no_token)?,
                allow_network: typed.common.allow_network_fs,
            });
        }
        let place = Place::of_hold(
            &typed.common,
            around,
            text(typed.name.as_ref()).or(around.variables.name.as_deref()),
        )?;
        let named = asked_for(&place, typed.name.as_ref(), around)?;
        let held = around.variables.name.as_deref();
        let name = match named {
            Some(name) => Some(name),
            None => value::read(value::LOCK_NAME, held, value::name)?,
        };
        let name = match name {
            Some(name) => Some(name),
            None => super::default_name(&place)?,
        };
        let Some(name) = name else {
            return Err(Failure::bad_arguments(
                "no lock is named: give --name, or call this under `tenure run`, which sets TENURE_NAME",
            ));
        };
        Ok(Self::Lock {
            name: place.checked(name.clone())?,
            // $TENURE_TOKEN belongs to $TENURE_NAME; the run may hold another lock under another token.
            token: if held == Some(name.as_str()) {
                Some(or_told(given)?.ok_or_else(no_token)?)
            } else {
                given
            },
            place,
        })
    }
}

/// The name of a lock as it was typed.
fn text(name: Option<&Typed<LockName>>) -> Option<&str> {
    name.map(|name| &*name.text)
}

/// The answer if no token is known.
pub(crate) fn no_token() -> Failure {
    Failure::bad_arguments("no fencing TOKEN is given, and TENURE_TOKEN has none of this lock")
}

/// Shows what happened to locks.
#[derive(Debug)]
pub(crate) struct Audit {
    pub(crate) place: Place,
    pub(crate) filter: Filter,
    pub(crate) follow: bool,
    pub(crate) sorted: Sorted,
}

/// In which order events are shown, and which of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sorted {
    /// All of them, oldest first.
    Time,
    /// Events of callers that waited, the longest wait first.
    Wait,
    /// Events that end a hold, the longest hold first.
    Hold,
}

impl Sorted {
    /// What an event is sorted by, in milliseconds.
    pub(crate) fn value(self, entry: &Entry) -> Option<u64> {
        let key = match self {
            Self::Time => return None,
            Self::Wait => "waited_ms",
            Self::Hold => "held_ms",
        };
        let value = entry.fields().get(key).and_then(serde_json::Value::as_u64);
        // A lock that was free makes no caller wait.
        value.filter(|value| self == Self::Hold || *value > 0)
    }
}

impl Audit {
    pub(crate) fn of(
        typed: &AuditArgs,
        around: &Surroundings,
        now_ms: u64,
    ) -> Result<Self, Failure> {
        let since = value::given("--since", typed.since.as_ref())?;
        let until = value::given("--until", typed.until.as_ref())?;
        let place = Place::of(&typed.common, around)?;
        let name = asked_for(&place, typed.name.as_ref(), around)?;
        let events = typed.event.iter().map(|event| event.value("--event"));
        let since_ms = since.map(|since| since.first_ms(now_ms));
        let until_ms = until.map(|until| until.last_ms(now_ms));
        if since_ms
            .zip(until_ms)
            .is_some_and(|(since, until)| since > until)
        {
            return Err(Failure::bad_arguments(
                "--since is later than --until, so no event can lie between them",
            ));
        }
        Ok(Self {
            filter: Filter {
                lock: name.map(|name| name.as_str().to_owned()),
                events: events.collect::<Result<_, _>>()?,
                since_ms,
                until_ms,
                // Whatever another program calls itself may stand in an audit.
                request_id: typed.request_id.as_ref().map(|id| id.text.clone()),
                agent: value::given("--as", typed.agent.as_ref())?,
            },
            follow: typed.follow,
            sorted: match (typed.waited, typed.held) {
                (true, _) => Sorted::Wait,
                (_, true) => Sorted::Hold,
                (false, false) => Sorted::Time,
            },
            place,
        })
    }
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
    pub(crate) fn of(
        typed: &crate::args::PushArgs,
        around: &Surroundings,
    ) -> Result<Self, Failure> {
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
