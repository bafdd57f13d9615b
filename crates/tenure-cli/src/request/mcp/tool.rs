//! What a call of an agent's tool means. The arguments of a tool become the typed words of the verb that does the
//! same on a command line, so that both mean the same, by one code.
//!
//! What the tools are called, and what an agent is told of them, stands in `command/mcp/catalog`.

use crate::args::value::{self, Typed};
use crate::args::{Calling, Claiming, Common, OfPath, Patience};
use crate::failure::Failure;
use crate::request::serve::{self, CheckParams, Usual, Where};
use crate::request::{
    Acquire, AcquireArgs, Acquiring, Cancel, Check, List, Surroundings, Wait, WaitArgs, said_wait,
};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use std::time::Duration;
use tenure_core::{AgentKey, LockName, SILENCE_MS};
use tenure_engine::engine;
use tenure_store::printed::short;

/// How long one call waits at most. Some hosts give a call a minute.
pub(crate) const WAIT_MAX: Duration = Duration::from_secs(50);

/// How long servers may be silent until a call gives up. With the sign of life before it, the call is answered within
/// five seconds. An election takes less.
const SERVERS: Duration = Duration::from_millis(4_200);

/// The arguments of `lock_acquire`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct AcquireParams {
    name: Option<String>,
    #[serde(rename = "path")]
    _path: Option<String>,
    why: Option<String>,
    wait_ms: Option<u64>,
    slots: Option<u32>,
    ttl_ms: Option<u64>,
    pub(crate) ticket: Option<u64>,
}

/// The arguments of `lock_release`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ReleaseParams {
    pub(crate) handle: String,
}

/// The arguments of `lock_check` and `lock_cancel`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct NameParams {
    name: Option<String>,
    #[serde(rename = "path")]
    _path: Option<String>,
}

/// The arguments of `lock_list`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct NoParams {}

/// The arguments of `lock_wait`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct WaitParams {
    name: Option<String>,
    #[serde(rename = "path")]
    _path: Option<String>,
    wait_ms: Option<u64>,
}

/// Reads the arguments of a tool.
pub(crate) fn read<T: DeserializeOwned>(arguments: Map<String, Value>) -> Result<T, Failure> {
    let arguments = serve::plain(Value::Object(arguments));
    serde_json::from_value(arguments).map_err(|error| {
        Failure::bad_arguments(format!("the arguments make no sense: {}", short(&error)))
    })
}

/// A call of a tool, and what it may know beside its arguments.
#[derive(Debug)]
pub(crate) struct Asked {
    usual: Usual,
}

impl Asked {
    /// A call now, in the name of this agent. The configuration of a server that lives for days may have changed.
    pub(crate) fn now(common: &Common, agent: Option<&AgentKey>) -> Self {
        Self::at(common, agent, &OfPath::default())
    }

    /// Reads what a call about one lock asks for. The lock is meant by its name or by the path of a file.
    pub(crate) fn about(
        common: &Common,
        agent: Option<&AgentKey>,
        (name, path): (Option<&str>, Option<&str>),
    ) -> Result<Self, Failure> {
        let path = match (name, path) {
            (Some(_), None) => None,
            (None, Some(path)) if !path.is_empty() => Some(path.into()),
            (Some(_), Some(_)) => {
                return Err(Failure::bad_arguments("name and path: give one of them"));
            }
            (None, _) => {
                return Err(Failure::bad_arguments(
                    "name: name a lock, or give the path of a file",
                ));
            }
        };
        let across = None;
        Ok(Self::at(common, agent, &OfPath { path, across }))
    }

    fn at(common: &Common, agent: Option<&AgentKey>, path: &OfPath) -> Self {
        let calling = Calling {
            agent: agent.map(|agent| Typed::of(agent.to_string(), value::agent)),
        };
        Self {
            usual: Usual {
                around: Surroundings::of_agents_server(common, &calling, path),
                common: common.clone(),
            },
        }
    }

    /// The lock that is taken, for whom and how. `id` is that of the new hold, and `why` is for a call that gives
    /// no reason.
    pub(crate) fn acquire(
        &self,
        params: &AcquireParams,
        id: Option<&str>,
        why: &str,
    ) -> Result<Acquire, Failure> {
        // A caller that comes back to its place waits, also where the profile's callers usually do not.
        let comes_back = params.ticket.map(|_| value::millis(WAIT_MAX));
        let patience = patience(params.wait_ms.or(comes_back));
        let ticket = params.ticket.map(|ticket| ticket.to_string());
        if params.slots == Some(0) {
            return Err(Failure::bad_arguments("slots: there is at least one"));
        }
        if ticket.is_some() && params.wait_ms == Some(0) {
            return Err(Failure::bad_arguments(
                "ticket: a call that does not wait does not come back to a place in line; give it a little \
                 wait_ms",
            ));
        }
        let typed = AcquireArgs {
            name: named(params.name.as_deref()),
            claiming: Claiming {
                patience,
                ttl: (params.ttl_ms).map(|ttl| Typed::of(format!("{ttl}ms"), value::lease)),
                request_id: id.map(|id| Typed::of(id, value::request_id)),
                slots: params.slots,
                ticket: ticket.map(|ticket| Typed::of(ticket, value::ticket)),
                why: Some(params.why.clone().unwrap_or_else(|| why.to_owned())),
                ..Claiming::default()
            },
            common: self.usual.common.clone(),
            ..AcquireArgs::default()
        };
        let around = &self.usual.around;
        let meant = Acquiring::of(&typed, around).map_err(in_words_of_tools)?;
        let Acquiring::Lock(mut acquire) = meant else {
            return Err(Failure::bad_arguments("name: this takes no lock"));
        };
        // What the caller or the project says counts; without either, this has another default than a command line.
        // An agent's hold ends when the agent is silent for its ttl, and a build is silent for long. A ttl that was
        // meant for callers in containers would hand the lock on under a worker.
        if acquire.place.agent.is_some() {
            acquire.ttl_ms = acquire.ttl_ms.map(|ttl_ms| ttl_ms.max(SILENCE_MS));
        }
        let said = said_wait(&typed.claiming.patience, around)?;
        let said = said.or(acquire.place.defaults(&acquire.name)?.wait());
        acquire.wait = bounded(said);
        acquire.place.patience = Some(SERVERS);
        Ok(acquire)
    }

    /// Until when a lock is waited for.
    pub(crate) fn wait(&self, params: &WaitParams) -> Result<Wait, Failure> {
        let typed = WaitArgs {
            name: named(params.name.as_deref()),
            patience: patience(params.wait_ms),
            common: self.usual.common.clone(),
            ..WaitArgs::default()
        };
        let around = &self.usual.around;
        let mut wait = Wait::of(&typed, around)?;
        let said = said_wait(&typed.patience, around)?;
        wait.limit = bounded(said.or(wait.place.defaults(&wait.name)?.wait()));
        wait.place.patience = Some(SERVERS);
        Ok(wait)
    }

    /// The lock that is looked at.
    pub(crate) fn check(&self, params: &NameParams) -> Result<Check, Failure> {
        let asked = CheckParams::named(params.name.as_deref());
        let mut check = self.usual.check(&asked)?;
        check.place.patience = Some(SERVERS);
        Ok(check)
    }

    /// Where the locks are.
    pub(crate) fn list(&self) -> Result<List, Failure> {
        let mut list = self.usual.list(&Where::default(), false)?;
        list.place.patience = Some(SERVERS);
        Ok(list)
    }

    /// Whose holder is asked to stop.
    pub(crate) fn cancel(&self, params: &NameParams, why: String) -> Result<Cancel, Failure> {
        let name = params.name.as_deref();
        let mut cancel = (self.usual).cancel(&Where::default(), name, None, None, Some(why))?;
        cancel.place.patience = Some(SERVERS);
        Ok(cancel)
    }
}

fn named(name: Option<&str>) -> Option<Typed<LockName>> {
    name.map(|name| Typed::of(name, value::name))
}

fn patience(wait_ms: Option<u64>) -> Patience {
    Patience {
        wait: wait_ms.map(|millis| {
            let longest = value::millis(WAIT_MAX);
            Typed::of(format!("{}ms", millis.min(longest)), value::wait)
        }),
        ..Patience::default()
    }
}

fn bounded(said: Option<engine::Wait>) -> engine::Wait {
    match said {
        Some(engine::Wait::No) => engine::Wait::No,
        said => {
            let limit = said.and_then(engine::Wait::limit);
            engine::Wait::For(limit.map_or(WAIT_MAX, |limit| limit.min(WAIT_MAX)))
        }
    }
}

/// An agent has arguments, and no flags.
fn in_words_of_tools(mut failure: Failure) -> Failure {
    for (flag, argument) in [
        ("--ttl", "ttl_ms"),
        ("--wait", "wait_ms"),
        ("--slots", "slots"),
        ("--ticket", "ticket"),
    ] {
        failure.message = failure.message.replace(flag, argument);
    }
    failure
}
