//! The leases of an agent: taken before a file is written, and given back when the agent or its session ends.
//!
//! The leases are detached holds in the agent's name (`tenure_engine::agent`), each at the place that is found
//! from its file. The files of one call are leased all or none, also where they lie at several places.

use crate::args::value;
use crate::command::acquire::owner;
use crate::command::session::Session;
use crate::failure::Failure;
use crate::output::Output;
use crate::render::Reporter;
use crate::request::{Misread, Owner, Place, Purpose, Surroundings};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tenure_core::{AGENT_AGE_MAX_MS, AGENT_AGE_MS, AgentKey, LockName, Ownership, SILENCE_MS};
use tenure_engine::agent::{Agent, Lease, LeaseTerms, Wanted};
use tenure_engine::audit::Grant;
use tenure_engine::config::{Config, OnError, PathRule};
use tenure_engine::engine::AcquireError;
use tenure_engine::leased_path::{self, Across, PathLock};
use tenure_os::clock::Clock;
use tenure_store::Verbs;
use tenure_store::contract::AgentSign;

/// How long servers may be silent until the answer names them as the reason. It leaves time for that answer.
const SERVERS: Duration = Duration::from_millis(1_500);

/// How long servers may be silent at a sign of life. The host waits for the end of the hook at each call of a tool.
const SERVERS_OF_SIGNS: Duration = Duration::from_millis(700);

/// A file that needs a lease.
#[derive(Debug)]
pub(super) struct Needed {
    rule: PathRule,
    lock: PathLock,
}

impl Needed {
    pub(super) fn is_closed(&self) -> bool {
        self.rule.on_error == OnError::Closed
    }
}

/// Why no leases were taken.
#[derive(Debug)]
pub(super) enum Refused {
    /// Another holder has one of the locks. The facts, for the model.
    Held(String),
    /// tenure itself failed.
    Fault(String),
}

/// Why it cannot be told which leases a call needs.
#[derive(Debug)]
pub(super) enum Untold {
    Misread(Misread),
    Path(String),
}

/// A lease as it is remembered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Leased {
    pub(super) lock: String,
    pub(super) path: String,
    pub(super) place: String,
}

/// The files that need a lease, by the rules that are found from each of them.
pub(super) fn needed(files: &[PathBuf], here: &Path) -> Result<Vec<Needed>, Untold> {
    needed_by(files, here, |around| {
        around.rules().map_err(Untold::Misread)
    })
}

/// Finds them by the rules that `read` finds. Of those that fit a file the first counts, and of those in several files
/// the strictest says what a fault does.
pub(super) fn needed_by(
    files: &[PathBuf],
    here: &Path,
    read: impl Fn(&Surroundings) -> Result<Option<Arc<Config>>, Untold>,
) -> Result<Vec<Needed>, Untold> {
    let mut needed: Vec<Needed> = Vec::new();
    let mut seen: Option<(PathBuf, Surroundings)> = None;
    for file in files {
        let lock_of = |across| {
            let lock = leased_path::lock_of(file, across, here);
            lock.map_err(|error| Untold::Path(error.to_string()))
        };
        let lock = lock_of(Across::Worktree)?;
        if seen
            .as_ref()
            .is_none_or(|(folder, _)| *folder != lock.folder)
        {
            seen = Some((lock.folder.clone(), Surroundings::at(lock.folder.clone())));
        }
        let Some((_, around)) = &seen else { continue };
        let Some(config) = read(around)? else {
            continue;
        };
        let mut rules = config.path_rules(&lock).into_iter();
        let Some(mut rule) = rules.next().cloned() else {
            continue;
        };
        if rules.any(|other| other.on_error == OnError::Closed) {
            rule.on_error = OnError::Closed;
        }
        let lock = match rule.across {
            Across::Worktree => lock,
            Across::Repo => lock_of(Across::Repo)?,
        };
        needed.push(Needed { rule, lock });
    }
    Ok(needed)
}

/// Takes the leases of a call, all or none.
pub(super) fn take(
    key: &AgentKey,
    needed: &[Needed],
    wait: Duration,
    what: &str,
) -> Result<Vec<Leased>, Refused> {
    let fault = |failure: Failure| Refused::Fault(failure.message.clone());
    let mut groups: Vec<(Place, Vec<&Needed>)> = Vec::new();
    for file in needed {
        let around = Surroundings::at(file.lock.folder.clone());
        let place = place_of(&around, Purpose::Take).map_err(fault)?;
        match groups
            .iter_mut()
            .find(|(known, _)| known.folder == place.folder)
        {
            Some((_, files)) => files.push(file),
            None => groups.push((place, vec![file])),
        }
    }
    // Two calls with the same places take them in the same order.
    groups.sort_by(|one, other| one.0.folder.cmp(&other.0.folder));
    let mut taken: Vec<(Session, Vec<Lease>, String)> = Vec::new();
    let until = tenure_os::clock::instant() + wait;
    for (place, files) in groups {
        let folder = place.folder.display().to_string();
        let rest = until.saturating_duration_since(tenure_os::clock::instant());
        let at = open(place, key, SERVERS).map_err(fault);
        let leases = at.and_then(|session| {
            let leases = take_at(&session, key, &files, rest, what);
            leases.map(|leases| (session, leases))
        });
        match leases {
            Ok((session, leases)) => taken.push((session, leases, folder)),
            Err(refused) => {
                for (session, leases, _) in taken.iter().rev() {
                    give_back(session, leases);
                }
                return Err(refused);
            }
        }
    }
    let mut leased = Vec::new();
    for (session, leases, place) in &taken {
        for lease in leases {
            record(session, lease);
            if lease.acquired.is_some() {
                let path = lease.claim.holder.path().unwrap_or_default();
                leased.push(Leased {
                    lock: lease.name.to_string(),
                    path: path.to_owned(),
                    place: place.clone(),
                });
            }
        }
    }
    Ok(leased)
}

fn take_at(
    session: &Session,
    key: &AgentKey,
    files: &[&Needed],
    wait: Duration,
    what: &str,
) -> Result<Vec<Lease>, Refused> {
    let wanted: Vec<Wanted> = files
        .iter()
        .map(|file| Wanted {
            name: file.lock.name.clone(),
            path: Some(file.lock.shown.clone()),
        })
        .collect();
    // Of several rules, the shortest limits count for all files of the call.
    let shortest = |limit: fn(&PathRule) -> Option<Duration>| {
        let limits = files.iter().filter_map(|file| limit(&file.rule));
        limits.map(value::millis).min()
    };
    let silence = shortest(|rule| rule.silence);
    let max_age = shortest(|rule| rule.max_age);
    let host = owner(Owner::Auto).ok().flatten();
    let terms = LeaseTerms {
        owner: host.map(|host| host.process),
        here: session.identity.host.clone(),
        actor: session.actor(None),
        why: what.to_owned(),
        silence_ms: silence.unwrap_or(SILENCE_MS).max(1),
        max_age_ms: max_age.unwrap_or(AGENT_AGE_MS).clamp(1, AGENT_AGE_MAX_MS),
        wait,
    };
    agent(session, key)
        .take(&wanted, &terms)
        .map_err(|refused| match &refused.error {
            AcquireError::Refused { .. } | AcquireError::Deadlock | AcquireError::NotKept => {
                Refused::Held(refused.facts())
            }
            error @ (AcquireError::Store(_)
            | AcquireError::Interrupted
            | AcquireError::Superseded { .. }) => Refused::Fault(error.to_string()),
        })
}

/// Opens a place, with an own limit for servers that do not answer. The audit names the agent, as it does for each other call
/// in an agent's name.
fn open(mut place: Place, key: &AgentKey, limit: Duration) -> Result<Session, Failure> {
    place.agent = Some(key.clone());
    place.patience = Some(limit);
    Session::open(place)
}

fn agent<'a>(session: &'a Session, key: &'a AgentKey) -> Agent<'a> {
    Agent {
        store: &*session.store,
        clock: &session.clock,
        key,
    }
}

/// The place of an agent's locks: native ones, whatever records the project publishes.
fn place_of(around: &Surroundings, purpose: Purpose) -> Result<Place, Failure> {
    Place::of_groups(&crate::args::Common::default(), around, purpose)
}

/// Gives back what this call has taken. What cannot be given back ends with the agent.
fn give_back(session: &Session, leases: &[Lease]) {
    for lease in leases.iter().filter(|lease| lease.acquired.is_some()) {
        let owns = |other: &tenure_core::Claim| {
            if (other.ticket, other.token) == (lease.claim.ticket, lease.claim.token) {
                Ownership::Shown
            } else {
                Ownership::Missing
            }
        };
        let now = session.clock.now();
        let _ = session.store.release_owned(&lease.name, &owns, &now);
    }
}

/// Writes a new lease into the audit.
fn record(session: &Session, lease: &Lease) {
    let Some(acquired) = &lease.acquired else {
        return;
    };
    session.audit_writer.acquired(
        &mut silent(),
        session.occasion(
            &lease.name,
            &lease.claim.holder.request_id,
            Some(&lease.claim.holder),
            &session.clock.now(),
        ),
        &Grant {
            claim: &lease.claim,
            lock_path: session.store.place(&lease.name).as_ref(),
            events: &acquired.events,
            forced: false,
            waited: acquired.waited,
            behind: None,
        },
    );
}

fn silent() -> Reporter {
    Reporter::new(Output::Text, true, false, "hook".to_owned())
}

/// The places of an agent: that of the folder in which it works, and those of its leases.
fn places(folder: &Path, leased: &[Leased]) -> Vec<Place> {
    let mut places: Vec<Place> = Vec::new();
    places.extend(place_of(&Surroundings::at(folder.to_owned()), Purpose::Tend).ok());
    for lease in leased {
        let path = Path::new(&lease.place);
        if !places.iter().any(|place| place.folder == path) {
            places.extend(Place::noted(path, false));
        }
    }
    places
}

/// Notes a sign of life of an agent. A sign that cannot be noted only makes its holds shorter.
pub(super) fn seen(
    key: &AgentKey,
    folder: &Path,
    leased: &[Leased],
    sign: AgentSign<'_>,
    on_servers: bool,
) {
    let mut places = places(folder, leased);
    places.retain(|place| on_servers || place.is_folder());
    for place in places {
        if let Ok(session) = open(place, key, SERVERS_OF_SIGNS) {
            let _ = agent(&session, key).seen(sign);
        }
    }
}

/// Ends all holds of an agent, or of a session. Returns why one could not be ended.
pub(super) fn free(key: &AgentKey, folder: &Path, leased: &[Leased]) -> Option<String> {
    let mut failed = None;
    for place in places(folder, leased) {
        let freed = open(place, key, SERVERS)
            .map_err(|failure| failure.message.clone())
            .and_then(|session| {
                let freed = agent(&session, key)
                    .free()
                    .map_err(|error| error.to_string())?;
                for end in freed {
                    let id = &end.claim.holder.request_id;
                    session.audit_writer.released(
                        &mut silent(),
                        session.occasion(
                            &end.name,
                            id,
                            Some(&end.claim.holder),
                            &session.clock.now(),
                        ),
                        end.held_ms,
                        tenure_engine::audit::Ending::Success,
                        tenure_engine::audit::Releaser::Owner,
                    );
                }
                Ok(())
            });
        failed = failed.or(freed.err());
    }
    failed
}

/// Whether a claim may have been made on a lock since an instant, by any caller. Servers number claims otherwise: there
/// it is not known, and counts as no.
pub(super) fn may_have_moved(
    key: &AgentKey,
    lock: &LockName,
    folder: &Path,
    since_ms: u64,
) -> bool {
    let place = place_of(&Surroundings::at(folder.to_owned()), Purpose::Tend);
    let Ok(session) = place.and_then(|place| open(place, key, SERVERS)) else {
        return true;
    };
    // The number of a claim is not below the time, in microseconds, at which it was made.
    let reading = session.store.read(lock);
    let last = reading.ok().and_then(|reading| Some(reading.entry()?.last));
    last.is_none_or(|last| last / 1_000 >= since_ms)
}

/// The locks that the agents of a session hold, as people call them, with their names.
pub(super) fn held(key: &AgentKey, folder: &Path, leased: &[Leased]) -> Vec<(LockName, String)> {
    let mut held = Vec::new();
    for place in places(folder, leased) {
        let Ok(session) = open(place, key, SERVERS) else {
            continue;
        };
        let holds = agent(&session, key).holds().unwrap_or_default();
        held.extend(holds.into_iter().map(|(name, claim)| {
            let called = claim.holder.path().unwrap_or(name.as_str()).to_owned();
            (name, called)
        }));
    }
    held
}
