//! What a call means: a file for each verb, with its flags and what they mean. This step finds everything that can be
//! wrong with a call, before anything is touched.
//!
//! The typed flags and the surroundings of the call become one value: [`Run`], [`Acquire`] and so on, one for each
//! verb. That is one step. All later code sees those values, and neither flags nor text that is still to be read.
//!
//! Flags that several verbs share, and their values, stand in `args`. What verbs share in what they mean stands here.
#![allow(
    clippy::doc_markdown,
    clippy::struct_excessive_bools,
    reason = "the comments are the help text that people read, and the flags are what they typed"
)]

mod acquire;
mod agent;
mod allow;
mod audit;
mod cancel;
mod check;
mod clean;
mod completions;
mod defaults;
mod demo;
mod doctor;
mod fence;
mod flock;
mod force_release;
mod format;
mod group_name;
mod heartbeat;
mod hook;
mod intended;
mod list;
mod man;
pub(crate) mod mcp;
mod meant;
mod metrics;
mod place;
mod profiles;
mod push;
mod release;
mod run;
pub(crate) mod serve;
pub(crate) mod sprint;
mod surroundings;
mod timeline;
mod top;
mod wait;

pub(crate) use crate::args::value::{Owner, Ticket, millis};
pub(crate) use acquire::{Acquire, AcquireArgs, Acquiring};
pub(crate) use agent::AgentArgs;
#[cfg(unix)]
pub(crate) use agent::{Agent, AgentAction};
pub(crate) use allow::AllowArgs;
#[cfg(unix)]
pub(crate) use allow::{Allow, Consent};
pub(crate) use audit::{Audit, AuditArgs, Sorted};
#[cfg(target_os = "linux")]
pub(crate) use cancel::EndOrphan;
pub(crate) use cancel::{Cancel, CancelArgs, Whom};
pub(crate) use check::{Check, CheckArgs};
pub(crate) use clean::{Clean, CleanArgs};
pub(crate) use completions::{CompletionsArgs, Shell};
pub(crate) use defaults::{Defaults, OnHeld, Pool};
pub(crate) use demo::DemoArgs;
#[cfg(unix)]
pub(crate) use doctor::Doctor;
pub(crate) use doctor::DoctorArgs;
pub(crate) use fence::{Fence, FenceArgs, no_token};
pub(crate) use flock::FlockArgs;
pub(crate) use force_release::{ForceRelease, ForceReleaseArgs};
pub(crate) use format::Format;
pub(crate) use group_name::GroupNameArgs;
pub(crate) use heartbeat::{Heartbeat, HeartbeatArgs};
pub(crate) use hook::HookArgs;
#[cfg(unix)]
pub(crate) use hook::{About, Misread};
pub(crate) use list::{List, ListArgs, Order};
pub(crate) use man::ManArgs;
pub(crate) use mcp::McpArgs;
pub(crate) use meant::{Meant, ShownId};
pub(crate) use metrics::{FileName, Metrics, MetricsArgs};
pub(crate) use place::{Place, Purpose, shown_profiles};
pub(crate) use profiles::ProfilesArgs;
#[cfg(unix)]
pub(crate) use push::Push;
pub(crate) use push::PushArgs;
pub(crate) use release::{Release, ReleaseArgs, Work};
pub(crate) use run::{At, How, Program, Run, RunArgs, Supervised, Task, Wanted};
pub(crate) use serve::ServeArgs;
pub(crate) use surroundings::{AGENT, Surroundings, Variables};
pub(crate) use timeline::{Picture, Timeline, TimelineArgs};
pub(crate) use top::{Top, TopArgs};
pub(crate) use wait::{Wait, WaitArgs};

use crate::args::value::{self, Typed};
use crate::args::{Claiming, OfMode, Patience};
use crate::failure::Failure;
use crate::ids::{fresh_id, request_id_or_new};
use std::num::NonZeroU32;
use std::time::Duration;
use tenure_core::{Force, HeldUnforced, LockName, Mode, RequestId};
use tenure_engine::engine;
use tenure_engine::leased_path;
use tenure_store::profile::DURABLE;

/// The caller as a claim names it, and what the claim is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Who {
    /// The id that the caller gives; without one, the hold gets a fresh one.
    pub(crate) id: Option<RequestId>,
    /// The given id, or else the id by which the profile knows the caller.
    pub(crate) known_as: Option<RequestId>,
    pub(crate) actor: Option<String>,
    /// What the lock is held for, if the caller has said so.
    pub(crate) why: Option<String>,
    /// The facts for the profile's record.
    pub(crate) facts: Vec<(String, String)>,
}

/// The typed words about a claim, from which a profile makes [`Intends`].
pub(crate) struct ClaimWords<'a> {
    pub(crate) name: Option<&'a Typed<LockName>>,
    /// Whether other flags name locks of the profile (`--lock`).
    pub(crate) locks: bool,
    /// Whether a group is named, which is no lock of the profile.
    pub(crate) group: bool,
    pub(crate) claiming: &'a Claiming,
}

/// What a profile makes of [`ClaimWords`].
#[derive(Debug)]
pub(crate) struct Intends {
    /// `None` only if other flags name the locks.
    pub(crate) name: Option<LockName>,
    pub(crate) ttl: Option<Duration>,
    /// The facts for the profile's record.
    pub(crate) facts: Vec<(String, String)>,
    pub(crate) takes: Takes,
}

/// Whether a call takes a lock at all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Takes {
    Locks,
    /// The intent says that it needs none.
    Nothing {
        mode: tenure_engine::intent::Mode,
        warning: Option<&'static str>,
    },
}

impl Intends {
    /// The typed words, and nothing else.
    pub(crate) fn as_typed(asked: &ClaimWords<'_>) -> Result<Self, Failure> {
        let claiming = asked.claiming;
        if claiming.intent.is_some() || !claiming.param.is_empty() {
            return Err(no_intent());
        }
        Ok(Self {
            name: value::given(value::LOCK_NAME, asked.name)?,
            ttl: value::given("--ttl", claiming.ttl.as_ref())?,
            facts: Vec::new(),
            takes: Takes::Locks,
        })
    }
}

/// The refusal of an intent: the profile carries none out.
#[cold]
#[inline(never)]
fn no_intent() -> Failure {
    Failure::bad_arguments("--intent and --param belong to the fleet profile; name the lock itself")
}

impl Who {
    fn of(
        claiming: &Claiming,
        place: &Place,
        mut facts: Vec<(String, String)>,
        around: &Surroundings,
    ) -> Result<Self, Failure> {
        if claiming.durable {
            facts.push((DURABLE.to_owned(), "true".to_owned()));
        }
        let id = claiming.request_id.as_ref();
        Ok(Self {
            id: value::given("--request-id", id)?,
            known_as: known_as(id, place.format(), around)?,
            actor: claiming.actor.as_deref().map(tenure_store::profile::why),
            why: claiming.why.as_deref().map(tenure_store::profile::why),
            facts,
        })
    }
}

/// The id that a caller gives, or else the id by which the profile knows it.
pub(crate) fn known_as(
    typed: Option<&Typed<RequestId>>,
    format: Format,
    around: &Surroundings,
) -> Result<Option<RequestId>, Failure> {
    if let Some(typed) = typed {
        return typed.value("--request-id").map(Some);
    }
    let known = format.default_id(&around.variables);
    value::read("--request-id", known, value::request_id)
}

/// The name of the one lock that a call is about, by the rules of its profile.
fn lock(
    place: &Place,
    typed: Option<&Typed<LockName>>,
    around: &Surroundings,
) -> Result<LockName, Failure> {
    match place.named_otherwise() {
        Some(name) => Ok(name.clone()),
        None => named(place, looked_up(place, typed, around)?),
    }
}

/// What names the lock that a call takes: a typed name, or the path or the group that stands in its place.
fn named_by(place: &Place, typed: Option<&Typed<LockName>>) -> Option<Typed<LockName>> {
    match place.named_otherwise() {
        Some(name) => Some(Typed::of(name.as_str(), value::name)),
        None => typed.cloned(),
    }
}

/// The lock that a call asks about, if it names one.
fn asked_for(
    place: &Place,
    typed: Option<&Typed<LockName>>,
    around: &Surroundings,
) -> Result<Option<LockName>, Failure> {
    match place.named_otherwise() {
        Some(name) => Ok(Some(name.clone())),
        None => looked_up(place, typed, around),
    }
}

/// A typed name, for a call that takes nothing: the lock of a path is known to people by that path.
fn looked_up(
    place: &Place,
    typed: Option<&Typed<LockName>>,
    around: &Surroundings,
) -> Result<Option<LockName>, Failure> {
    let Some(typed) = typed else {
        return Ok(None);
    };
    let read = typed.value(value::LOCK_NAME);
    let is_path = leased_path::is_path(&typed.text) && place.profile().record().is_none();
    if read.is_err()
        && is_path
        && let Some(name) = place.lock_shown_as(&typed.text, around)?
    {
        return Ok(Some(name));
    }
    read.map(Some)
}

/// The name of the lock of a call, for one that was read before.
fn named(place: &Place, name: Option<LockName>) -> Result<LockName, Failure> {
    let name = match name {
        Some(name) => Some(name),
        None => default_name(place)?,
    };
    place.checked(name.ok_or_else(no_name)?)
}

/// The name of the lock if the caller gives none.
fn default_name(place: &Place) -> Result<Option<LockName>, Failure> {
    value::read(value::LOCK_NAME, place.format().default_name(), value::name)
}

/// The name of a lock as it was typed.
fn text(name: Option<&Typed<LockName>>) -> Option<&str> {
    name.map(|name| &*name.text)
}

fn no_name() -> Failure {
    Failure::bad_arguments("the following required arguments were not provided: <NAME>")
}

/// The mode that the flags of a call name. `exclusive` says that `-x` was typed.
fn typed_mode(claiming: &Claiming, exclusive: bool) -> Option<Mode> {
    mode_of(claiming.shared, claiming.slots).or(exclusive.then_some(Mode::Exclusive))
}

/// The mode that `--shared` and `--slots` name.
fn mode_of(shared: bool, slots: Option<u32>) -> Option<Mode> {
    match (shared, slots.and_then(NonZeroU32::new)) {
        (true, _) => Some(Mode::Shared),
        (false, slots) => slots.map(Mode::Slots),
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

/// The refusal of a mode for the lock of a group.
fn no_mode_of_group() -> Failure {
    Failure::bad_arguments(
        "--shared and --slots are about a lock, and a group runs one at a time; name a lock",
    )
}

/// The mode of a claim: what the project says for all callers, else what was typed for this lock. Only a native lock
/// can have another one than exclusive.
fn mode(
    typed: Option<Mode>,
    defaults: &Defaults,
    name: &LockName,
    place: &Place,
) -> Result<Mode, Failure> {
    if place.group.is_some() && typed.is_some_and(|typed| typed != Mode::Exclusive) {
        return Err(no_mode_of_group());
    }
    let (mode, said) = defaults.mode(typed, name)?;
    let profile = place.profile();
    match said {
        Some(said) if profile.record().is_some() => Err(Failure::bad_arguments(format!(
            "{said}: a lock of the {} profile has one record and so one holder; only native locks \
             can have several",
            profile.policy().name
        ))),
        _ => Ok(mode),
    }
}

/// How long to wait by the profile's rules, if the caller says nothing about it.
fn usual_wait(place: &Place) -> engine::Wait {
    match place.profile().policy().held_unforced {
        HeldUnforced::WaitMs(millis) => engine::Wait::For(Duration::from_millis(millis)),
        HeldUnforced::Refuse => engine::Wait::No,
    }
}

/// How long to wait, if a flag or the environment says so.
fn said_wait(patience: &Patience, around: &Surroundings) -> Result<Option<engine::Wait>, Failure> {
    if patience.nonblock {
        return Ok(Some(engine::Wait::No));
    }
    match &patience.wait {
        Some(typed) => typed.value("--wait").map(Some),
        None => value::read("TENURE_WAIT", around.variables.wait.as_deref(), value::wait),
    }
}

/// A ttl, if one was given, by the rules of the profile.
fn ttl_ms(
    typed: Option<Duration>,
    defaults: &Defaults,
    format: Format,
) -> Result<Option<u64>, Failure> {
    let Some(ttl) = typed.or(defaults.ttl()) else {
        return Ok(None);
    };
    let ttl_ms = millis(ttl).max(1);
    format.check_ttl(ttl_ms)?;
    Ok(Some(ttl_ms))
}

/// How much the caller insists.
fn force(claiming: &Claiming) -> Force {
    match (claiming.force, claiming.yes) {
        (false, _) => Force::No,
        (true, false) => Force::Asked,
        (true, true) => Force::Confirmed,
    }
}

/// How a place in line is found again. Refused for a call that does not wait: only a caller that has waited
/// has a place to keep.
fn ticket(claiming: &Claiming, wait: engine::Wait) -> Result<Option<Ticket>, Failure> {
    let ticket = value::given("--ticket", claiming.ticket.as_ref())?;
    match wait {
        engine::Wait::No if ticket.is_some() => Err(Failure::bad_arguments(
            "--ticket keeps the place of a caller who has waited, and this call does not wait; \
             give it a little, as with --wait 1s",
        )),
        _ => Ok(ticket),
    }
}

/// Refuses a document on stdin, for a profile that reads none.
fn refuse_input(input: Option<&str>) -> Result<(), Failure> {
    match input {
        None => Ok(()),
        Some(_) => Err(no_input()),
    }
}

/// The answer to a document if the profile reads none.
pub(crate) fn no_input() -> Failure {
    Failure::bad_arguments("--input belongs to the sprint profile")
}
