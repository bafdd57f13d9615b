//! What a request of a client of `serve` means. The parameters of a request become the typed words of the verb that
//! does the same on a command line, so that both mean the same, by one code.

use crate::args::value::{self, Further, Typed};
use crate::args::{Common, OfLock, OfMode};
use crate::failure::Failure;
use crate::request::{
    Cancel, CancelArgs, Check, CheckArgs, List, ListArgs, Place, Purpose, Run, RunArgs,
    Surroundings, mode_of,
};
use serde::Deserialize;
use serde_json::Value;
use std::path::PathBuf;
use tenure_core::{LockName, Mode, RequestId};
use tenure_engine::duration;

/// How many locks one request may name. A caller with more of them wants one lock for all, or several requests: a request
/// is answered as a whole, and what it has taken is held meanwhile.
const LOCKS_MAX: usize = 256;

/// The folder or the servers of a request; without either, those of `serve` itself.
#[derive(Debug, Clone, Default)]
pub(crate) struct Where {
    pub(crate) dir: Option<PathBuf>,
    pub(crate) store: Option<String>,
}

/// How long to wait.
#[derive(Debug, Clone, Deserialize)]
#[serde(
    untagged,
    expecting = "write a whole number of milliseconds, not below 0, or \"forever\""
)]
pub(crate) enum WaitMs {
    Millis(u64),
    /// `forever`.
    Word(String),
}

/// A place in line that is kept.
#[derive(Debug, Clone, Deserialize)]
#[serde(untagged, expecting = "write the number of a ticket, or \"auto\"")]
pub(crate) enum TicketParam {
    Number(u64),
    /// `auto`.
    Word(String),
}

/// A lock that is asked for.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct LockParam {
    pub(crate) name: String,
    #[serde(default)]
    pub(crate) shared: bool,
    #[serde(default)]
    pub(crate) slots: Option<u32>,
}

/// The parameters of `acquire`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct AcquireParams {
    #[serde(default)]
    pub(crate) locks: Vec<LockParam>,
    #[serde(default)]
    pub(crate) wait_ms: Option<WaitMs>,
    #[serde(default)]
    pub(crate) group: Option<String>,
    #[serde(default)]
    pub(crate) cancel_in_progress: bool,
    #[serde(default)]
    pub(crate) ticket: Option<TicketParam>,
    #[serde(default)]
    pub(crate) why: Option<String>,
    #[serde(default)]
    pub(crate) ttl_ms: Option<u64>,
    #[serde(default)]
    pub(crate) dir: Option<PathBuf>,
    #[serde(default)]
    pub(crate) store: Option<String>,
    #[serde(default)]
    pub(crate) caller: Option<String>,
    #[serde(default)]
    pub(crate) request_id: Option<String>,
}

/// The parameters of `check`.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct CheckParams {
    #[serde(default)]
    name: Option<String>,
    #[serde(default)]
    group: Option<String>,
    #[serde(default)]
    shared: bool,
    #[serde(default)]
    slots: Option<u32>,
    #[serde(default)]
    dir: Option<PathBuf>,
    #[serde(default)]
    store: Option<String>,
}

/// A lock of a hold that is adopted, as the answer to `acquire` had it.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct KnownLock {
    pub(crate) name: String,
    /// Unknown to a client that got no answer to its `acquire`.
    #[serde(default)]
    pub(crate) token: Option<u64>,
    /// Whether the lock is that of a group.
    #[serde(default)]
    pub(crate) group: bool,
}

/// What `serve` itself was told, for requests that do not say it.
#[derive(Debug)]
pub(crate) struct Usual {
    pub(crate) common: Common,
    pub(crate) around: Surroundings,
}

impl Usual {
    /// The flags of a call that says what the request says.
    pub(crate) fn common(&self, place: &Where) -> Result<Common, Failure> {
        let mut common = self.common.clone();
        if place.dir.is_none() && place.store.is_none() {
            return Ok(common);
        }
        if place.dir.is_some() && place.store.is_some() {
            return Err(Failure::bad_arguments("dir and store: name one of them"));
        }
        if let Some(dir) = place.dir.as_ref().filter(|dir| !dir.is_absolute()) {
            let dir = tenure_engine::envelope::clean_path(dir);
            return Err(Failure::bad_arguments(format!(
                "dir: {dir:?} is not absolute; the program and serve may have different folders"
            )));
        }
        (common.dir, common.store, common.scope) = (place.dir.clone(), place.store.clone(), None);
        Ok(common)
    }

    /// What an `acquire` takes, as `run` would. `why` is for a request that gives no reason.
    pub(crate) fn acquire(&self, params: &AcquireParams, why: &str) -> Result<Run, Failure> {
        bounded(params.locks.len())?;
        let mut typed = RunArgs {
            common: self.common(&Where {
                dir: params.dir.clone(),
                store: params.store.clone(),
            })?,
            ..RunArgs::default()
        };
        // The first lock is the one that a command line names, so the group, the queue and what ends holders are its.
        if let Some((first, others)) = params.locks.split_first() {
            typed.name = Some(name(&first.name));
            first.mode()?;
            (typed.claiming.shared, typed.claiming.slots) = (first.shared, first.slots);
            let others = others.iter().map(LockParam::further);
            typed.lock = others.collect::<Result<_, _>>()?;
        }
        typed.group = (params.group.as_deref()).map(|name| Typed::of(name, value::group));
        typed.cancel_in_progress = params.cancel_in_progress;
        typed.command = vec!["serve".into()];
        let claiming = &mut typed.claiming;
        claiming.patience.wait = params.wait_ms.as_ref().map(|wait| match wait {
            // Beyond what a wait may last, the longest wait is meant.
            WaitMs::Millis(millis) => {
                let longest = u64::try_from(duration::MAX.as_millis()).unwrap_or(u64::MAX);
                Typed::of(format!("{}ms", millis.min(&longest)), value::wait)
            }
            WaitMs::Word(word) => Typed::of(word, value::wait),
        });
        // The client wants to know of a refusal, whatever a project says of its cron jobs.
        claiming.patience.conflict_exit_code = Some(4);
        claiming.ttl = (params.ttl_ms).map(|ttl| Typed::of(format!("{ttl}ms"), value::lease));
        claiming.request_id = (params.request_id.as_deref()).map(id);
        claiming.ticket = params.ticket.as_ref().map(|ticket| match ticket {
            TicketParam::Number(number) => Typed::of(number.to_string(), value::ticket),
            TicketParam::Word(word) => Typed::of(word, value::ticket),
        });
        claiming.why = Some(params.why.clone().unwrap_or_else(|| why.to_owned()));
        let run = Run::of(&typed, &self.around)?;
        if run.task.locks.is_empty() {
            return Err(Failure::bad_arguments(
                "locks: name a lock, for no lock follows from the rest of the request",
            ));
        }
        Ok(run)
    }

    /// Where the locks of a hold are, and their names.
    pub(crate) fn known(
        &self,
        place: &Where,
        locks: &[KnownLock],
    ) -> Result<(Place, Place, Vec<LockName>), Failure> {
        bounded(locks.len())?;
        let common = self.common(place)?;
        let names = locks
            .iter()
            .map(|lock| name(&lock.name).value(value::LOCK_NAME));
        Ok((
            Place::of(&common, &self.around)?.seen_by(&self.around),
            Place::of_groups(&common, &self.around, Purpose::Tend)?.seen_by(&self.around),
            names.collect::<Result<_, _>>()?,
        ))
    }

    /// The lock that a `check` looks at, and the mode for which it answers.
    pub(crate) fn check(&self, asked: &CheckParams) -> Result<Check, Failure> {
        let about = About::of(asked.name.as_deref(), asked.group.as_deref())?;
        mode(asked.shared, asked.slots)?;
        let typed = CheckArgs {
            name: about.name,
            of: about.of,
            room: OfMode {
                shared: asked.shared,
                slots: asked.slots,
            },
            common: self.common(&Where {
                dir: asked.dir.clone(),
                store: asked.store.clone(),
            })?,
            ..CheckArgs::default()
        };
        self.around(&typed.common, &typed.of, |around| Check::of(&typed, around))
    }

    /// The locks that a `list` shows.
    pub(crate) fn list(&self, place: &Where, all: bool) -> Result<List, Failure> {
        let common = self.common(place)?;
        let typed = ListArgs {
            all,
            common,
            ..ListArgs::default()
        };
        List::of(&typed, &self.around)
    }

    /// Whom a `cancel` asks to stop.
    pub(crate) fn cancel(
        &self,
        place: &Where,
        lock: Option<&str>,
        of_group: Option<&str>,
        request_id: Option<&str>,
        why: Option<String>,
    ) -> Result<Cancel, Failure> {
        let about = About::of(lock, of_group)?;
        let typed = CancelArgs {
            name: about.name,
            of: about.of,
            request_id: request_id.map(id),
            why,
            common: self.common(place)?,
            ..CancelArgs::default()
        };
        self.around(&typed.common, &typed.of, |around| {
            Cancel::of(&typed, around)
        })
    }

    /// What a request means in its own surroundings, if it is about a group; else in those of `serve`.
    fn around<M>(&self, common: &Common, of: &OfLock, meant: impl FnOnce(&Surroundings) -> M) -> M {
        match of.group {
            Some(_) => meant(&Surroundings::of(common).of_group(of)),
            None => meant(&self.around),
        }
    }
}

/// The lock that a request is about: the named one, or that of a group.
struct About {
    name: Option<Typed<LockName>>,
    of: OfLock,
}

impl About {
    fn of(lock: Option<&str>, of_group: Option<&str>) -> Result<Self, Failure> {
        if lock.is_some() && of_group.is_some() {
            return Err(Failure::bad_arguments("name and group: give one of them"));
        }
        Ok(Self {
            name: lock.map(name),
            of: OfLock {
                group: of_group.map(|name| Typed::of(name, value::group)),
                ..OfLock::default()
            },
        })
    }
}

impl LockParam {
    /// How it is held, if the request says so.
    fn mode(&self) -> Result<Option<Mode>, Failure> {
        mode(self.shared, self.slots)
    }

    fn further(&self) -> Result<Typed<Further>, Failure> {
        let mode = self.mode()?;
        Ok(name(&self.name).map(|name| Further { name, mode }))
    }
}

impl CheckParams {
    /// Plain question about a lock.
    #[cfg(feature = "mcp")]
    pub(crate) fn named(name: Option<&str>) -> Self {
        Self {
            name: name.map(str::to_owned),
            ..Self::default()
        }
    }
}

/// Refuses a request that names more locks than one may.
fn bounded(locks: usize) -> Result<(), Failure> {
    if locks <= LOCKS_MAX {
        return Ok(());
    }
    Err(Failure::bad_arguments(format!(
        "locks: {locks} of them; one request names at most {LOCKS_MAX}"
    )))
}

/// The mode that a request names, if it names one.
fn mode(shared: bool, slots: Option<u32>) -> Result<Option<Mode>, Failure> {
    match (shared, slots) {
        (true, Some(_)) => Err(Failure::bad_arguments(
            "shared and slots contradict each other",
        )),
        (false, Some(0)) => Err(Failure::bad_arguments("slots: there is at least one")),
        _ => Ok(mode_of(shared, slots)),
    }
}

/// Parameters as they are read: a member that is `null` is absent, and `10.0` is the number 10. Some languages write
/// all numbers so.
pub(crate) fn plain(value: Value) -> Value {
    match value {
        Value::Object(members) => {
            let members = members.into_iter().filter(|(_, value)| !value.is_null());
            Value::Object(members.map(|(key, value)| (key, plain(value))).collect())
        }
        Value::Array(values) => Value::Array(values.into_iter().map(plain).collect()),
        Value::Number(number) => match number.as_f64() {
            #[allow(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "it is whole and not below 0; what is too large becomes the largest number"
            )]
            Some(whole) if number.is_f64() && whole >= 0.0 && whole.fract() == 0.0 => {
                Value::from(whole as u64)
            }
            _ => Value::Number(number),
        },
        other => other,
    }
}

fn name(text: &str) -> Typed<LockName> {
    Typed::of(text, value::name)
}

fn id(text: &str) -> Typed<RequestId> {
    Typed::of(text, value::request_id)
}
