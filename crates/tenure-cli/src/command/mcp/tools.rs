//! What the tools do: plain functions that may block, and know nothing of the protocol.
//!
//! Each of them does what the verb of its name does, by the same code, and answers with a text that has all an agent acts
//! by. A lock that is held is a result. An error is what an agent cannot wait out.

use super::catalog::Tool;
use crate::args::Common;
use crate::args::value::{self, Typed};
use crate::command::acquire::{self, NewHold};
use crate::command::session::Session;
use crate::command::{cancel, check, release, wait};
use crate::exit::Exit;
use crate::failure::{Failure, Retry, human};
use crate::ids::fresh_id;
use crate::output::Output;
use crate::render::lock::{HolderView, LockView};
use crate::render::{Listener, Reporter, clean_path};
use crate::request::mcp::{
    AcquireParams, Asked, NameParams, NoParams, ReleaseParams, WaitParams, read,
};
use crate::request::{Acquire, Format, Place, Release, ShownId, Surroundings};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tenure_core::{AgentKey, Claim, Entry, LockName, RequestId};
use tenure_engine::agent::Agent;
use tenure_engine::caller::Chosen;
use tenure_engine::envelope::free_in;
use tenure_engine::readings;
use tenure_os::cancel::{Cancel, listening};
use tenure_os::clock::{Clock, nap};
use tenure_os::process;
use tenure_store::contract::{AgentSign, Which};
use tenure_store::profile::known_as;
use tokio::sync::Notify;

/// How the ids begin by which the next server of a program knows the holds of an earlier one.
pub(super) const OWN: &str = "mcp_";

/// How many locks one answer lists.
const LISTED_MAX: usize = 200;

/// How often a hold that cannot be given back is tried again, a second apart.
const TRIES: u32 = 30;

/// How long servers may be silent until the sign of life before a call is left out. The call itself comes behind it.
const SERVERS_OF_SIGNS: Duration = Duration::from_millis(700);

/// What all calls of one server have in common.
pub(super) struct Tools {
    common: Common,
    /// The program whose holds they are.
    client: Chosen,
    /// The holds that this server took, by their handles, and their locks.
    known: Mutex<BTreeMap<String, LockName>>,
    /// Rung when a hold was taken: it has to be renewed.
    pub(super) taken: Notify,
}

/// A call.
pub(super) struct Call {
    /// What the client calls itself; empty if it does not say.
    pub(super) client: String,
    /// The agent that calls, where the client says it.
    pub(super) agent: Option<AgentKey>,
    /// The call, where the client names that and not the agent.
    pub(super) named: Option<String>,
    /// Ends its wait.
    pub(super) cancel: Cancel,
    /// Is told of its wait.
    pub(super) listener: Listener,
}

impl Call {
    /// Finds the agent of a call that the client names alone: the client's hook was told both.
    fn find_agent(&mut self) {
        let named = self.named.as_deref();
        let found = named.and_then(crate::command::hook::agent_of_call);
        self.agent = self.agent.take().or(found);
    }

    /// Whether the agent that calls has a hold. The agents of a client that names none look the same, and those of one that
    /// names calls alone are known to be several.
    fn has(&self, session: &Session, view: &LockView) -> bool {
        let holder = view.holder.as_ref().filter(|_| view.mine);
        let by = |holder: &HolderView| holder.agent.as_ref().map(|agent| agent.key.clone());
        let caller = session.place.agent.as_ref().map(AgentKey::to_string);
        let is_known = caller.is_some() || self.named.is_none();
        is_known && holder.is_some_and(|holder| holder.kind == "detached" && by(holder) == caller)
    }
}

/// What a call answers. Hosts show their model the structured result or the text, and not both. So both have the same
/// text, and the structured one has the few values that an agent sends back.
pub(super) struct Answer {
    /// For programs, and for the agent of most hosts.
    pub(super) structured: Value,
    /// For the agent of the others.
    pub(super) text: String,
    /// Whether this is an error that no agent can wait out.
    pub(super) is_error: bool,
    /// What it has taken, and under which handle.
    pub(super) granted: Option<(String, Granted)>,
}

/// A hold that was taken just now.
pub(super) struct Granted {
    session: Session,
    name: LockName,
    claim: Claim,
}

impl Granted {
    /// Gives it back. Its claim would count for as long as the client lives, so a store that fails is asked again.
    pub(super) fn give_back(self) {
        let Self {
            session,
            name,
            claim,
        } = self;
        for _ in 0..TRIES {
            let mut reporter = reporter("release");
            if acquire::give_back(&mut reporter, &session, &name, &claim).is_ok() {
                return;
            }
            nap(Duration::from_secs(1));
        }
        crate::render::say(&format!(
            "{name} could not be given back and stays held by request id {}",
            known_as(&claim.holder)
        ));
    }
}

/// What is said: a text, and values for programs beside it.
type Told = (String, Value);
type Said = Result<Told, Failure>;

impl Tools {
    pub(super) fn new(common: Common, client: Chosen) -> Self {
        Self {
            common,
            client,
            known: Mutex::default(),
            taken: Notify::new(),
        }
    }

    /// Carries a call out.
    pub(super) fn carry_out(
        &self,
        tool: Tool,
        arguments: Map<String, Value>,
        mut call: Call,
    ) -> Answer {
        call.find_agent();
        let call = &call;
        let mut reporter = reporter(tool.verb()).listened(call.listener.clone());
        self.note(call);
        let mut granted = None;
        let said = listening(Some(&call.cancel), || match tool {
            Tool::Acquire => self
                .acquire(arguments, call, &mut reporter)
                .map(|(said, taken)| {
                    granted = Some(taken);
                    said
                }),
            Tool::Release => self.release(arguments, call, &mut reporter),
            Tool::Check => self.check(arguments, call),
            Tool::List => self.list(arguments, call, &mut reporter),
            Tool::Wait => self.wait(arguments, call, &mut reporter),
            Tool::Cancel => self.cancel(arguments, call, &mut reporter),
        });
        // What ended a wait was the call's own end, whatever signal a verb would name.
        let said = said.map_err(|failure| match failure.code.as_str() {
            "CANCELLED" if call.cancel.is_cancelled() => cancelled(tool),
            _ => failure,
        });
        let mut answer = Answer::of(&reporter, said);
        answer.granted = granted;
        answer
    }

    /// What the next call may know: its surroundings may have changed.
    pub(super) fn asked(&self, agent: Option<&AgentKey>) -> Asked {
        Asked::now(&self.common, agent)
    }

    /// Reads the arguments of a call about one lock, and what it may know of that lock.
    fn read<T: DeserializeOwned>(
        &self,
        call: &Call,
        arguments: Map<String, Value>,
    ) -> Result<(T, Asked), Failure> {
        let text = |key: &str| arguments.get(key)?.as_str().map(str::to_owned);
        let (name, path) = (text("name"), text("path"));
        let params = read(arguments)?;
        let lock = (name.as_deref(), path.as_deref());
        let asked = Asked::about(&self.common, call.agent.as_ref(), lock)?;
        Ok((params, asked))
    }

    /// Where the locks are, as a sentence. A host may start this server with other variables than the commands beside it.
    pub(super) fn place(&self) -> String {
        match Place::of(&self.common, &Surroundings::of(&self.common)) {
            Ok(place) => format!("Here {}.", place.told()),
            Err(failure) => format!("Where the locks are is not known: {}.", failure.message),
        }
    }

    /// A call is a sign of life of its agent, which keeps what it holds.
    fn note(&self, call: &Call) {
        let seen = || {
            let mut place = self.asked(call.agent.as_ref()).list()?.place;
            place.patience = Some(SERVERS_OF_SIGNS);
            let session = Session::open(place)?;
            // Named by the call, or for all calls of this server (TENURE_AS).
            let Some(key) = &session.place.agent else {
                return Ok(());
            };
            let agent = Agent {
                store: &*session.store,
                clock: &session.clock,
                key,
            };
            agent.seen(AgentSign::Seen).map_err(Failure::from)
        };
        // A sign that cannot be written shortens what the agent holds, and fails no call.
        let _: Result<(), Failure> = seen();
    }

    fn acquire(
        &self,
        arguments: Map<String, Value>,
        call: &Call,
        reporter: &mut Reporter,
    ) -> Result<(Told, (String, Granted)), Failure> {
        let (mut params, asked): (AcquireParams, _) = self.read(call, arguments)?;
        let taken = match self.take(&asked, &params, call, reporter) {
            // The place has lapsed: the call gets a new one.
            Err(failure) if failure.code == "TICKET_NOT_FOUND" => {
                let ticket = params.ticket.take().unwrap_or_default();
                reporter.warn(format!(
                    "the place in line under ticket {ticket} was not there any more; this call began at the \
                     end of the line"
                ));
                self.take(&asked, &params, call, reporter)
            }
            taken => taken,
        };
        let NewHold {
            text,
            data,
            session,
            name,
            claim,
            ..
        } = taken?;
        let handle = known_as(&claim.holder).to_owned();
        let mut shown = json!({ "status": "acquired", "handle": handle });
        for key in ["name", "path", "token", "slot", "member"] {
            if let Some(value) = data.get(key).filter(|value| !value.is_null()) {
                shown[key] = value.clone();
            }
        }
        let mut text = format!("{text}\nhandle: {handle} (for lock_release)");
        if let Some(ends) = end_of_an_agents(&session, &claim) {
            let _ = write!(text, "\n{ends}");
        }
        self.known().insert(handle.clone(), name.clone());
        self.taken.notify_one();
        let granted = Granted {
            session,
            name,
            claim,
        };
        Ok(((text, shown), (handle, granted)))
    }

    fn take(
        &self,
        asked: &Asked,
        params: &AcquireParams,
        call: &Call,
        reporter: &mut Reporter,
    ) -> Result<NewHold, Failure> {
        let why = match call.client.as_str() {
            "" => "asked for through MCP".to_owned(),
            client => format!("asked for by {client}, through MCP"),
        };
        let acquire = |id: Option<&RequestId>| {
            let id = id.map(RequestId::as_str);
            let acquire = asked.acquire(params, id, &why)?;
            refuse_sprint(acquire.place.format())?;
            Ok::<Acquire, Failure>(acquire)
        };
        let mut meant = acquire(None)?;
        if meant.place.leased.is_some() {
            // A server looks after the holds of a single place.
            let own = self.asked(None).list()?.place;
            if meant.place.folder != own.folder {
                return Err(Failure::bad_arguments(format!(
                    "path: the locks of this file are in {}, and this server keeps those in {}",
                    clean_path(&meant.place.folder),
                    clean_path(&own.folder)
                )));
            }
        }
        if meant.place.format() == Format::Native {
            meant = acquire(Some(&fresh_handle()?))?;
        }
        acquire::take_for(meant, Some(&self.client), reporter)
    }

    fn release(&self, arguments: Map<String, Value>, call: &Call, reporter: &mut Reporter) -> Said {
        let ReleaseParams { handle } = read(arguments)?;
        let place = self.asked(call.agent.as_ref()).list()?.place;
        refuse_sprint(place.format())?;
        let shown = ShownId::typed("handle", &Typed::of(handle.as_str(), value::request_id));
        let session = Session::open(place)?;
        let Some((name, claim)) = self.find(&session, &handle)? else {
            shown.id(|_| false)?;
            self.known().remove(&handle);
            reporter.warn("no hold has this handle: it was given back, or is over");
            return Ok((
                "released: no hold has this handle any more".to_owned(),
                json!({ "status": "released" }),
            ));
        };
        let by_another = match (&session.place.agent, claim.holder.agent()) {
            (Some(caller), Some(agent)) => !caller.covers(&agent),
            (None, _) | (_, None) => false,
        };
        if by_another || self.is_of_another(&session, &claim) {
            let whose = if by_another { "agent" } else { "program" };
            let message = format!("{name} is held under this handle for another {whose}");
            let context = session.view(&name, None)?.json();
            return Err(Failure::new(Exit::Conflict, "NOT_OWNER", message).with_context(context));
        }
        let place = self.asked(call.agent.as_ref()).list()?.place;
        let release = Release::plain(place, name, shown);
        let shown = json!({ "status": "released", "name": release.name.as_str() });
        let (text, _) = release::release(release, reporter)?;
        self.known().remove(&handle);
        Ok((text, shown))
    }

    /// The hold of a handle. The lock that this server knows for it is looked at first.
    fn find(&self, session: &Session, handle: &str) -> Result<Option<(LockName, Claim)>, Failure> {
        let mut failed = None;
        for of_known in [true, false] {
            let names = if of_known {
                self.known().get(handle).cloned().into_iter().collect()
            } else {
                readings::names(&*session.store, Which::Locks)?
            };
            for read in readings::Readings::of(&*session.store, &session.clock, names) {
                match read.reading {
                    Ok(reading) => {
                        let mut granted = reading.entry().into_iter().flat_map(Entry::granted);
                        let shown = |claim: &&Claim| session.format.shows(claim, handle);
                        if let Some(claim) = granted.find(shown) {
                            return Ok(Some((read.name, claim.clone())));
                        }
                    }
                    // Servers that do not answer would keep the call once more.
                    Err(error) if of_known => return Err(session.store_failed(&read.name, error)),
                    Err(error) => failed = Some(session.store_failed(&read.name, error)),
                }
            }
        }
        // The hold may be in the lock that could not be read.
        failed.map_or(Ok(None), Err)
    }

    /// Whether a hold is proven to be another program's. In some formats a record names no process: there the handle
    /// itself shows whose the hold is.
    pub(super) fn is_of_another(&self, session: &Session, claim: &Claim) -> bool {
        if !session.format.knows_owners_by_process() {
            return false;
        }
        let here = &session.identity.host;
        match claim.holder.process {
            Some(_) => !process::names(&claim.holder, self.client.process, here),
            None => session.format == Format::Native,
        }
    }

    /// Whether this server renews a hold: it took it, or an earlier server of the same program did.
    pub(super) fn renews(&self, session: &Session, claim: &Claim) -> bool {
        let id = known_as(&claim.holder);
        let is_own = id.starts_with(OWN) || self.known().contains_key(id);
        // An agent's hold ends when the agent is silent, whatever this server does.
        let is_an_agents = claim.holder.agent().is_some();
        is_own && !is_an_agents && claim.kind.is_detached() && !self.is_of_another(session, claim)
    }

    fn check(&self, arguments: Map<String, Value>, call: &Call) -> Said {
        let (params, asked): (NameParams, _) = self.read(call, arguments)?;
        let check = asked.check(&params)?;
        let name = check
            .name
            .ok_or_else(|| Failure::bad_arguments("name: name a lock"))?;
        let session = Session::open(check.place)?;
        let reading = session.reading(&name)?;
        let view = session.view_of(&name, &reading, None);
        let view = session.in_mode(view, None, (&name, &reading), &session.clock.now());
        let mut shown = json!({
            "name": name.as_str(),
            "standing": view.standing,
            "available": view.available,
            "mine": view.mine,
            "waiting": view.queue.len(),
        });
        if let Some(holder) = view.holder.as_ref().filter(|_| call.has(&session, &view)) {
            shown["handle"] = holder.request_id.as_str().into();
        }
        Ok((with_handle(&view, call.has(&session, &view)), shown))
    }

    fn list(&self, arguments: Map<String, Value>, call: &Call, reporter: &mut Reporter) -> Said {
        let NoParams {} = read(arguments)?;
        let session = Session::open(self.asked(call.agent.as_ref()).list()?.place)?;
        let (mut texts, mut more) = (Vec::new(), 0_usize);
        check::each(&session, reporter, |view| {
            if view.standing == "free" && view.queue.is_empty() {
                return;
            }
            if texts.len() < LISTED_MAX {
                texts.push(with_handle(&view, call.has(&session, &view)));
            } else {
                more += 1;
            }
        })?;
        if more > 0 {
            texts.push(format!("and {more} more"));
        }
        let text = if texts.is_empty() {
            "no lock is held".to_owned()
        } else {
            texts.join("\n")
        };
        Ok((text, json!({})))
    }

    fn wait(&self, arguments: Map<String, Value>, call: &Call, reporter: &mut Reporter) -> Said {
        let (params, asked): (WaitParams, _) = self.read(call, arguments)?;
        let meant = asked.wait(&params)?;
        let session = Session::open(meant.place)?;
        let (text, data) =
            wait::until_free(&session, &meant.name, meant.mode, meant.limit, reporter)?;
        Ok((
            text,
            json!({ "name": data["name"], "standing": data["standing"] }),
        ))
    }

    fn cancel(&self, arguments: Map<String, Value>, call: &Call, reporter: &mut Reporter) -> Said {
        let (params, asked): (NameParams, _) = self.read(call, arguments)?;
        let why = match call.client.as_str() {
            "" => "an agent asks for it".to_owned(),
            client => format!("an agent asks for it, by {client}"),
        };
        let asked = asked.cancel(&params, why)?;
        let (text, data) = cancel::cancel(asked, reporter)?;
        Ok((text, json!({ "status": "asked", "name": data["name"] })))
    }

    pub(super) fn handles(&self) -> BTreeSet<String> {
        self.known().keys().cloned().collect()
    }

    pub(super) fn forget(&self, handle: &str) {
        self.known().remove(handle);
    }

    fn known(&self) -> MutexGuard<'_, BTreeMap<String, LockName>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Answer {
    fn of(reporter: &Reporter, said: Said) -> Self {
        let (mut text, is_error, mut structured) = match said {
            Ok((text, shown)) => (text, false, shown),
            Err(failure) => (
                text_of(&failure),
                !is_a_result(&failure),
                facts_of(&failure),
            ),
        };
        for warning in reporter.warnings() {
            text.push_str("\nwarning: ");
            text.push_str(warning);
        }
        structured["text"] = text.as_str().into();
        Self {
            structured,
            text,
            is_error,
            granted: None,
        }
    }

    /// The answer of a call that this server could not carry out.
    pub(super) fn failed(tool: Tool, failure: Failure) -> Self {
        Self::of(&reporter(tool.verb()), Err(failure))
    }
}

/// Too many calls at a time.
pub(super) fn too_many(why: &str) -> Failure {
    let mut failure = Failure::new(Exit::General, "TOO_MANY_REQUESTS", why);
    failure.retry = Some(Retry::exponential(1_000));
    failure
}

fn cancelled(tool: Tool) -> Failure {
    Failure::new(
        Exit::General,
        "ABANDONED",
        match tool {
            Tool::Acquire => "the call was cancelled, and nothing is held for it",
            _ => "the call was cancelled",
        },
    )
}

/// Speaks to no person: stdout is the client's, and stderr is for faults.
pub(super) fn reporter(verb: &str) -> Reporter {
    Reporter::new(Output::Json, true, false, verb.to_owned())
}

/// A fresh request id that says whose it is, with 128 bits of randomness.
fn fresh_handle() -> Result<RequestId, Failure> {
    let id = fresh_id::<16>()?;
    let digits = id.as_str().trim_start_matches("req_");
    Ok(RequestId::as_recorded(&format!("{OWN}{digits}")))
}

fn refuse_sprint(format: Format) -> Result<(), Failure> {
    if format == Format::Sprint {
        return Err(Failure::bad_arguments(
            "a sprint has its own calls (`tenure acquire --profile sprint`), which are no tools",
        ));
    }
    Ok(())
}

/// Whether an agent can go on by it: the lock is held, and another time it may be free.
fn is_a_result(failure: &Failure) -> bool {
    failure.is_of_a_held_lock() || failure.code == "ALREADY_HELD"
}

/// What ends the hold of an agent beside the end of its program.
fn end_of_an_agents(session: &Session, claim: &Claim) -> Option<String> {
    if !claim.ends_by_silence(session.store.policy()) {
        return None;
    }
    let span = |millis| human(Duration::from_millis(millis));
    let silence = span(claim.lease.ttl_ms);
    let age = claim.holder.max_age_ms();
    let age = age.map_or_else(String::new, |age| {
        format!(", and at the age of {}", span(age))
    });
    Some(format!(
        "it also ends when this agent shows no sign of life for {silence}{age}; each call to this server is one"
    ))
}

/// A lock as it stands; of a hold of the caller's also the handle, for an agent that has lost it.
fn with_handle(view: &LockView, is_callers: bool) -> String {
    let mut text = view.text();
    if let Some(holder) = view.holder.as_ref().filter(|_| is_callers) {
        let _ = write!(text, "\n{:8}handle: {}", "", holder.request_id);
    }
    text
}

/// What an agent acts by of a refusal. It shows no handle but that of the agent's own hold: one that wants a lock and reads
/// a handle beside it might give back what another agent of its program holds.
fn facts_of(failure: &Failure) -> Value {
    let mut facts = json!({ "code": failure.code.as_str() });
    if let Some(retry) = failure.retry {
        facts["retry_after_ms"] = retry.after_ms.into();
    }
    for (key, name) in [("ticket", "ticket"), ("request_id", "handle")] {
        let fact = failure.context.get(key).filter(|fact| !fact.is_null());
        let is_shown = key == "ticket" || is_agents_own(failure);
        if let Some(fact) = fact.filter(|_| is_shown) {
            facts[name] = fact.clone();
        }
    }
    facts
}

/// Whether the lock is held by the very agent that asks for it.
fn is_agents_own(failure: &Failure) -> bool {
    failure.code == "ALREADY_HELD"
}

/// Facts, and no orders: an agent decides what follows.
fn text_of(failure: &Failure) -> String {
    let said = failure.text.as_deref().unwrap_or(&failure.message);
    if !is_a_result(failure) {
        return said.to_owned();
    }
    // The further lines name flags of a command line.
    let mut text = said.lines().next().unwrap_or_default().to_owned();
    let fact = |key: &str| failure.context.get(key);
    let millis = |key: &str| fact(key).and_then(Value::as_u64).map(Duration::from_millis);
    text.push_str(&failure.waited());
    if let Some(retry) = failure.retry {
        let _ = write!(
            text,
            "; {} (retry_after_ms {})",
            free_in(failure.free_in_ms),
            retry.after_ms
        );
    }
    if let Some(ticket) = fact("ticket").and_then(Value::as_u64) {
        let kept = millis("ticket_kept_ms")
            .map_or_else(String::new, |kept| format!(" for {}", human(kept)));
        let _ = write!(
            text,
            "; its place in line is kept{kept}: lock_acquire with ticket {ticket} comes back to it"
        );
    }
    if is_agents_own(failure) {
        if let Some(handle) = fact("request_id").and_then(Value::as_str) {
            let _ = write!(text, "\nhandle: {handle} (for lock_release)");
        }
    } else if fact("mine").and_then(Value::as_bool) == Some(true) {
        text.push_str("; the holder is this same program: it may be another agent of this program");
    }
    text
}
