//! What a thread does for a request that may block: it takes, looks after, gives back and takes over locks.
//!
//! `waits` decides when that is done, `holds` what a client is told of it.

use crate::command::keeper;
use crate::command::run::acquire_all::{self, Hold, life_of};
use crate::command::run::plan::Planning;
use crate::command::session::Session;
use crate::exit::Exit;
use crate::failure::{Failure, Retry};
use crate::output::Output;
use crate::render::{Listener, Reporter};
use crate::request::serve::KnownLock;
use crate::request::{At, Task};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tenure_core::Left;
use tenure_core::{Claim, Entry, LockName, Mode, Now, Ownership, Process, Renewal, RequestId};
use tenure_engine::audit::{Ending, Occasion, Releaser};
use tenure_engine::engine::{Limits, Lot, Wait};
use tenure_engine::envelope::LockView;
use tenure_engine::keep::releases::{Leaving, ReleaseTry};
use tenure_engine::keep::{Life, RENEWAL_MAX};
use tenure_engine::readings;
use tenure_os::brief::may_sleep;
use tenure_os::cancel::{Cancel, listened};
use tenure_os::clock::{Clock, instant, nap};
use tenure_os::offload::Logs;
use tenure_os::process;
use tenure_os::sync::locked;
use tenure_store::contract::Which;
use tenure_store::profile::known_as;
use tenure_store::verbs::{Adopted, Adopter};
use tenure_store::{Handle, Reading, StoreError, Verbs};

/// A lock of a hold.
pub(super) struct HoldPart {
    pub(super) session: &'static Session,
    pub(super) handle: Box<dyn Handle>,
    pub(super) claim: Claim,
    /// The id under which the audit knows it.
    id: RequestId,
    pub(super) is_group: bool,
    /// A look has found it lost.
    pub(super) is_lost: AtomicBool,
    /// The variables that the project gives to work under it. Unknown of a hold that was adopted.
    pub(super) env_of_project: Vec<(String, String)>,
}

impl HoldPart {
    /// An occasion for the audit on which its holder acts.
    fn occasion(&self, now: &Now) -> Occasion<'_> {
        let holder = Some(&self.claim.holder);
        self.session.occasion(self.name(), &self.id, holder, now)
    }

    fn of(hold: Hold<'static>, group: &'static Session, task: &Task) -> (Self, Life) {
        let Hold {
            session,
            claim,
            handle,
            id,
            life,
            ..
        } = hold;
        let is_group =
            task.group().is_some_and(|name| name == handle.name()) && std::ptr::eq(session, group);
        let wanted = task
            .locks
            .iter()
            .find(|wanted| wanted.at == At::Place && !is_group && wanted.name == *handle.name());
        let env_of_project = wanted.map_or_else(Vec::new, |wanted| {
            wanted.pool.env(claim.slot, claim.member())
        });
        let part = Self {
            session,
            handle,
            claim,
            id,
            is_group,
            is_lost: AtomicBool::new(false),
            env_of_project,
        };
        (part, life)
    }

    pub(super) fn name(&self) -> &LockName {
        self.handle.name()
    }

    /// What a client is told of it.
    pub(super) fn json(&self) -> Value {
        json!({
            "name": self.name().as_str(),
            "token": self.claim.token,
            "slot": self.claim.slot,
            "member": self.claim.member(),
            "group": self.is_group,
        })
    }
}

/// What an `acquire` takes, and where.
pub(super) struct AcquireTask {
    pub(super) task: Task,
    pub(super) session: &'static Session,
    pub(super) group_session: &'static Session,
    pub(super) owner: Process,
    pub(super) wait: Wait,
    /// The names of its locks as the request has them.
    pub(super) order: Vec<String>,
}

/// What an `acquire` came to: its locks, or why it has none, with the locks that it had taken before it failed.
pub(super) type AcquireOutcome = Result<Vec<(HoldPart, Life)>, (Failure, Vec<HoldPart>)>;

/// How long a hold that is to be adopted may look as if another process kept it, and how often that is looked at.
const KEPT_PATIENCE: Duration = Duration::from_secs(3);
const KEPT_LOOK: Duration = Duration::from_millis(5);

/// Speaks to no person: stdout is the client's, and stderr is for faults.
fn reporter() -> Reporter {
    Reporter::new(Output::Json, true, false, "serve".to_owned())
}

/// Takes all locks or none, as `run` does. It sleeps in the lot.
pub(super) async fn take(
    lot: &dyn Lot,
    asked: &AcquireTask,
    cancel: &Cancel,
    listener: Listener,
) -> AcquireOutcome {
    let task = &asked.task;
    let mut reporter = reporter().listened(listener);
    let none = |failure| (failure, Vec::new());
    let plan = || {
        let planning = Planning {
            task,
            session: asked.session,
            group_session: asked.group_session,
            request_id: asked.session.format.request_id(task.who.id.clone())?,
            owner: Some(asked.owner),
        };
        let main = task.main().cloned();
        let main = main.ok_or_else(|| Failure::bad_arguments("locks: name a lock"))?;
        planning.plan(main)
    };
    let plan = plan().map_err(none)?;
    let limits = Limits {
        wait: asked.wait,
        said: task.wait.limit(),
        keep: plan.keep,
    };
    let taken = acquire_all::acquire_all_in(Some(lot), plan.targets, limits, &mut reporter);
    let taken = listened(cancel, taken).await;
    let parts = |holds: Vec<Hold<'static>>| {
        let holds = holds.into_iter();
        holds.map(|hold| HoldPart::of(hold, asked.group_session, task))
    };
    match taken {
        Ok(holds) => {
            let mut parts: Vec<_> = parts(holds).collect();
            // Locks are taken in the order of their names; the client reads them in its own order.
            let place = |part: &HoldPart| {
                let mut asked = asked.order.iter();
                let place = asked.position(|name| name == part.name().as_str());
                place.filter(|_| !part.is_group).unwrap_or(usize::MAX)
            };
            parts.sort_by_key(|(part, _)| place(part));
            Ok(parts)
        }
        Err((holds, failure)) => {
            let parts = parts(holds).map(|(part, _)| part);
            Err((failure, parts.collect()))
        }
    }
}

/// Locks that are given back, the last one first. After an error a claim stands in the list without a liveness lock, and
/// counts for as long as the program lives. So it is tried again until the store has answered for all of them.
pub(super) struct Leaves {
    name: LockName,
    token: u64,
    /// The locks that are still there.
    left: Mutex<Vec<Arc<HoldPart>>>,
    were_ours: AtomicBool,
}

impl Leaves {
    /// `None` without any lock.
    pub(super) fn of(parts: Vec<Arc<HoldPart>>) -> Option<Self> {
        let first = parts.first()?;
        Some(Self {
            name: first.name().clone(),
            token: first.claim.token.unwrap_or_default(),
            left: Mutex::new(parts),
            were_ours: AtomicBool::new(true),
        })
    }

    /// The names of those that are still there.
    pub(super) fn names(&self) -> Vec<String> {
        let left = locked(&self.left);
        left.iter().map(|part| part.name().to_string()).collect()
    }

    /// Whether giving them back takes moments where no other caller is in the way.
    pub(super) fn is_prompt(&self) -> bool {
        let left = locked(&self.left);
        left.iter().all(|part| part.session.store.is_prompt())
    }

    /// How a client is told of an error.
    pub(super) fn failure(&self, error: StoreError) -> Failure {
        let left = locked(&self.left);
        match left.last() {
            Some(part) => part.session.store_failed(part.name(), error),
            None => Failure::new(Exit::General, "RELEASE_FAILED", error.to_string()),
        }
    }
}

impl Leaving for Leaves {
    fn name(&self) -> &LockName {
        &self.name
    }

    fn token(&self) -> u64 {
        self.token
    }

    fn tries_to_leave(&self, is_first: bool) -> ReleaseTry {
        let (mut left, mut failed) = (locked(&self.left), None);
        let mut parts = std::mem::take(&mut *left);
        while let Some(part) = parts.pop() {
            match give_back(&part, is_first) {
                Ok(true) => {}
                Ok(false) => self.were_ours.store(false, Ordering::Relaxed),
                Err(error) => {
                    failed.get_or_insert(error);
                    left.push(part);
                }
            }
        }
        left.reverse();
        let were_ours = self.were_ours.load(Ordering::Relaxed);
        ReleaseTry {
            answer: failed.map_or(Ok(were_ours), Err),
            held_ms: None,
            is_news: false,
        }
    }

    /// The store says it.
    fn has_lapsed(&self) -> bool {
        false
    }

    /// The audit has it.
    fn log_release(&self, _: Logs, _: &ReleaseTry) {}

    fn has_gone(&self) {}
}

/// Gives a lock back. False if it was not the program's any more.
fn give_back(part: &HoldPart, is_first: bool) -> Result<bool, StoreError> {
    let (session, mut reporter) = (part.session, reporter());
    let left = session.store.release(&*part.handle, &session.clock.now());
    let now = session.clock.now();
    let occasion = part.occasion(&now);
    let writer = &session.audit_writer;
    match left {
        Ok(Left::Released { held_ms }) if !part.is_lost.load(Ordering::Relaxed) => {
            writer.released(
                &mut reporter,
                occasion,
                held_ms,
                Ending::Success,
                Releaser::Owner,
            );
            Ok(true)
        }
        Ok(Left::Withdrawn) => Ok(true),
        // What is tidied up in a folder that was renamed has excluded nobody any more.
        Ok(Left::Released { .. } | Left::Absent) => {
            writer.lost(&mut reporter, occasion, part.claim.token);
            Ok(false)
        }
        Err(error) => {
            // After a brief try, a thread tries it as the first.
            if is_first && may_sleep() {
                let place = session.store.place(part.name());
                writer.release_failed(&mut reporter, occasion, &place, &error);
            }
            Err(error)
        }
    }
}

/// What a look at a lock showed.
#[derive(Debug)]
pub(super) struct LockLook {
    pub(super) renewal: Result<Renewal, StoreError>,
    /// The request that asks the program to stop.
    pub(super) asked_by: Option<String>,
}

/// Asks whether a lock is still the program's; renews it, if it is to, as of that instant.
pub(super) fn look(part: &HoldPart, renews: Option<&Now>) -> LockLook {
    let store = &part.session.store;
    let renewal = match renews {
        Some(now) => {
            let within = (!store.is_remote()).then_some(RENEWAL_MAX);
            store.renew_within(&*part.handle, now, within)
        }
        None => store.verify(&*part.handle, &part.session.clock.now()),
    };
    let asked_by = match &renewal {
        Ok(Renewal::Renewed {
            cancel_requested: true,
            ..
        }) => {
            let reading = store.read(part.name()).ok();
            let entry = reading.as_ref().and_then(|reading| reading.entry());
            let claim = entry.and_then(|entry| entry.claim(part.handle.ticket()));
            let by = claim.and_then(|claim| claim.cancel.as_ref().map(|cancel| cancel.by.clone()));
            Some(by.unwrap_or_else(|| "unknown".to_owned()))
        }
        Ok(_) | Err(_) => None,
    };
    LockLook { renewal, asked_by }
}

/// Notes in the audit that several renewals in a row have failed.
pub(super) fn note_failure(part: &HoldPart, consecutive: u32, error: &str) {
    let now = part.session.clock.now();
    let occasion = part.occasion(&now);
    (part.session.audit_writer).heartbeat_failed(occasion, consecutive, error);
}

/// What is adopted.
pub(super) struct Adopting {
    pub(super) request_id: String,
    pub(super) token: Option<u64>,
    /// Without any, they are looked for.
    pub(super) locks: Vec<(KnownLock, LockName)>,
    pub(super) session: &'static Session,
    pub(super) group_session: &'static Session,
    pub(super) owner: Process,
}

impl Adopting {
    /// The token that a lock has to have.
    pub(super) fn token_of(&self, known: &KnownLock) -> Option<u64> {
        let only = self.token.filter(|_| self.locks.len() == 1);
        known.token.or(only)
    }

    /// Whether a claim was made for the request of the hold.
    fn names(&self, session: &Session, claim: &Claim) -> bool {
        session.format.shows(claim, &self.request_id)
    }

    /// Whether a claim is this very program's, for that request.
    fn owns(&self, session: &Session, claim: &Claim) -> bool {
        // A number alone, or a number of another boot or namespace, may be another process.
        process::names(&claim.holder, self.owner, &session.identity.host)
            && claim.holder.command == Some(self.owner)
            && self.owner.started.is_some()
            && self.names(session, claim)
    }

    /// Looks for the locks of a hold whose client knows its request id, and maybe one of its tokens.
    fn find(&self) -> Result<Vec<(KnownLock, LockName)>, Failure> {
        let (mut found, mut another) = (Vec::new(), None);
        let groups = Some(self.group_session)
            .filter(|groups| groups.place.folder != self.session.place.folder);
        let places = [(self.session, false)].into_iter();
        for (session, group) in places.chain(groups.map(|session| (session, true))) {
            let names = readings::names(&*session.store, Which::Locks)?;
            for read in readings::Readings::of(&*session.store, &session.clock, names) {
                let reading = read.reading?;
                let granted = reading.entry().into_iter().flat_map(Entry::granted);
                for claim in granted {
                    if self.owns(session, claim) {
                        let known = KnownLock {
                            name: read.name.as_str().to_owned(),
                            token: claim.token,
                            group,
                        };
                        found.push((known, read.name.clone()));
                    } else if self.names(session, claim) {
                        another = Some((session, read.name.clone()));
                    }
                }
            }
        }
        let mut tokens = found.iter().map(|(known, _)| known.token);
        if self.token.is_some() && !tokens.any(|token| token == self.token) {
            found.clear();
        }
        if !found.is_empty() {
            return Ok(found);
        }
        match another {
            Some((session, name)) => Err(not_owner(session, &name)?),
            None => Err(Failure::new(
                Exit::LockLost,
                "LOCK_LOST",
                "no lock is held under that request id and token any more",
            )),
        }
    }
}

fn not_owner(session: &Session, name: &LockName) -> Result<Failure, Failure> {
    let message = format!("{name} is held under that request id for another program");
    let view = session.view(name, None)?;
    Ok(Failure::new(Exit::Conflict, "NOT_OWNER", message).with_context(view.json()))
}

/// Takes over the locks of a hold of this very program whose `serve` has died. If one of them cannot be taken over,
/// the others stay as they were: closed for as long as the program lives.
pub(super) fn adopt(adopting: &Adopting) -> Result<Vec<(HoldPart, Life)>, Failure> {
    let found = if adopting.locks.is_empty() {
        adopting.find()?
    } else {
        Vec::new()
    };
    let locks = adopting.locks.iter().chain(&found);
    locks
        .map(|(known, name)| {
            let session = if known.group {
                adopting.group_session
            } else {
                adopting.session
            };
            let (claim, handle) = take_over(adopting, known, name, session)?;
            let life = life_of(session, &claim);
            let part = HoldPart {
                session,
                handle,
                id: RequestId::as_recorded(known_as(&claim.holder)),
                is_group: known.group,
                is_lost: AtomicBool::new(false),
                env_of_project: Vec::new(),
                claim,
            };
            Ok((part, life))
        })
        .collect()
}

fn take_over(
    adopting: &Adopting,
    known: &KnownLock,
    name: &LockName,
    session: &'static Session,
) -> Result<(Claim, Box<dyn Handle>), Failure> {
    let token = adopting.token_of(known);
    let owns = |claim: &Claim| {
        let is_meant = token.is_none_or(|token| claim.token == Some(token));
        if is_meant && adopting.owns(session, claim) {
            Ownership::Shown
        } else {
            Ownership::Missing
        }
    };
    // A waiter that sleeps on the liveness lock has it for a moment once its keeper is dead, and for longer if it is
    // stopped right then.
    let patience = instant() + KEPT_PATIENCE;
    let is_remote = session.store.is_remote();
    let here = &session.identity.host;
    let adopter = Adopter {
        owns: &owns,
        is_orphan: &|claim| is_remote && keeper::is_dead(claim, here),
        mark: is_remote.then(|| keeper::mark(session.identity.process)),
    };
    let adopted = loop {
        let adopted = session.store.adopt(name, &adopter, &session.clock.now());
        if !matches!(adopted, Ok(Adopted::Kept)) || instant() >= patience {
            break adopted;
        }
        nap(KEPT_LOOK);
    };
    match adopted.map_err(|error| session.store_failed(name, error))? {
        Adopted::Done { claim, handle } => Ok((*claim, handle)),
        Adopted::Kept => {
            let mut failure = Failure::new(
                Exit::Conflict,
                "HOLD_KEPT",
                format!("another serve keeps {name} for this program; end that one first"),
            )
            .with_context(json!({ "name": name.as_str() }));
            failure.retry = Some(Retry::linear(100));
            Err(failure)
        }
        Adopted::Absent => {
            let reading = session.reading(name).ok();
            let entry = reading.as_ref().and_then(|reading| reading.entry());
            let is_named = |claim: &Claim| adopting.names(session, claim);
            if entry.is_some_and(|entry| entry.granted().any(is_named)) {
                return Err(not_owner(session, name)?);
            }
            let message = format!("{name} is not held under that request id and token any more");
            Err(Failure::new(Exit::LockLost, "LOCK_LOST", message)
                .with_context(json!({ "name": name.as_str() })))
        }
    }
}

/// The program's own holds: their locks and tokens.
pub(super) type Own = BTreeSet<(LockName, u64)>;

fn view(
    session: &Session,
    (name, reading): (&LockName, &Reading),
    mode: Option<Mode>,
    own: &Own,
) -> LockView {
    let view = session.view_of_keeper(name, reading, |claim| {
        let own_token = |token| own.contains(&(name.clone(), token));
        claim.token.is_some_and(own_token)
    });
    session.in_mode(view, mode, (name, reading), &session.clock.now())
}

/// How one lock stands, and whether a request of this mode would get it.
pub(super) fn check(
    session: &Session,
    name: &LockName,
    mode: Mode,
    own: &Own,
) -> Result<Value, Failure> {
    let reading = session.reading(name)?;
    Ok(view(session, (name, &reading), Some(mode), own)
        .json()
        .into())
}

/// How all locks stand.
pub(super) fn list(session: &Session, all: bool, own: &Own) -> Result<Value, Failure> {
    let names = readings::names(&*session.store, Which::Locks)?;
    let readings = readings::Readings::of(&*session.store, &session.clock, names);
    let mut locks = Vec::new();
    for read in readings {
        let view = view(session, (&read.name, &read.reading?), None, own);
        if all || view.standing != "free" || !view.queue.is_empty() {
            locks.push(Value::from(view.json()));
        }
    }
    Ok(json!({ "locks": locks }))
}

/// Asks a holder to stop.
pub(super) fn cancel(cancel: crate::request::Cancel) -> Result<Value, Failure> {
    let (_, asked) = crate::command::cancel::cancel(cancel, &mut reporter())?;
    Ok(asked)
}

/// What is left of a wait.
pub(super) fn rest(wait: Wait, waited: Duration) -> Wait {
    match wait.after(waited) {
        Wait::For(Duration::ZERO) => Wait::No,
        rest => rest,
    }
}
