//! What a caller does while it waits for a lock. It shows the wait, looks after the locks that it has
//! already, and ends a wait in which it is the deadlock victim.

use super::ownership::{blocking, owners};
use super::refusal::{lost_before_the_start, superseded};

use super::session::Session;
use crate::failure::Failure;
use crate::render::waiting::Progress;
use crate::render::{Listener, Reporter};
use crate::request::Place;
use crate::signals::stop_asked;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Mutex;
use std::time::{Duration, Instant};
use tenure_core::{Cancel, Claim, Entry, Kind, LockName, Request};
use tenure_engine::audit::Behind;
use tenure_engine::circle::{Elsewhere, NestedWait, Scene};
use tenure_engine::engine::{Observer, Wait, Waiting};
use tenure_engine::inherited::{self, Hold};
use tenure_engine::readings::{self, Readings};
use tenure_os::clock::instant;
use tenure_os::sync::locked;
use tenure_store::contract::Which;
use tenure_store::file::ThreadSleeper;
use tenure_store::profile::Native;
use tenure_store::{Store, StoreError};

/// How often a waiter looks at the locks that it has, and for circles of waits.
const LOOK: Duration = Duration::from_secs(1);

/// How many locks a place may have in which a waiter looks for those that its caller took.
const SEARCHED_MAX: usize = 2_000;

/// Why a caller that has locks already stops waiting for the next one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Interruption {
    /// Another request, `by`, asks for one of them.
    WantedBack { name: LockName, by: Box<Cancel> },
    /// The caller cannot rely on one of them any longer.
    Lost { name: LockName },
}

impl Interruption {
    /// The caller's failure: its command has not started, and will not.
    pub(crate) fn failure(&self) -> Failure {
        match self {
            Self::WantedBack { name, by } => superseded(name, by),
            Self::Lost { name } => lost_before_the_start(name),
        }
    }
}

/// The locks that a caller has already while it waits for the next one.
pub(crate) trait Tend {
    /// Renews the locks that are due, and says what ends the wait.
    fn tend(&mut self) -> Option<Interruption>;

    /// The locks, as holds.
    fn holds(&self) -> Vec<Hold>;
}

/// A caller without locks.
pub(crate) struct NoLocks;

impl Tend for NoLocks {
    fn tend(&mut self) -> Option<Interruption> {
        None
    }

    fn holds(&self) -> Vec<Hold> {
        Vec::new()
    }
}

/// A wait.
pub(crate) struct Attendance<'a> {
    name: &'a LockName,
    progress: Progress<'a>,
    /// A program that is told of the wait, in place of a person.
    listener: Option<Listener>,
    deadlock: Option<NestedWait<'a, OtherPlaces<'a>>>,
    tend: &'a mut (dyn Tend + Send + Sync),
    /// Whether there are locks to look after.
    tends: bool,
    /// What happened to a lock that the caller has already.
    pub(crate) interruption: Option<Interruption>,
    /// Finds a hold that this wait can never see end.
    itself: Option<Itself<'a>>,
    /// What the slots of a pool stand for, as the claim has it.
    members: Vec<String>,
    /// When to look for what the caller took by `acquire`, for a wait without an end.
    looks_for_acquired: Option<Instant>,
    /// The hold that the wait could never see end.
    pub(crate) own: Option<Box<Claim>>,
    /// What it stood behind when the wait began.
    pub(crate) behind: Option<Behind>,
}

/// A native wait that may be for itself: for a hold of the run that the caller is inside of, for one of the agent that
/// calls, or, without an end, for one of the caller's own owner.
///
/// A script that holds a lock in its own name and asks for it once more waits for itself. Only a hold
/// from before the wait counts. Its token is lower than the waiter's ticket, because both come from one
/// rising counter. A hold that another sub-shell of the owner gets later does not count: that sub-shell
/// will also give it back.
struct Itself<'a> {
    session: &'a Session,
    request: &'a Request,
    is_endless: bool,
    inherited: Vec<Hold>,
    /// Of which holds it is known whether the caller is inside of their runs, by their tokens.
    known: Mutex<BTreeMap<u64, bool>>,
}

impl Itself<'_> {
    /// The hold that blocks this wait for ever.
    fn own(&self, waiting: &Waiting<'_>) -> Option<Claim> {
        let holds = waiting.entry.granted();
        let before = |claim: &&Claim| claim.token.is_some_and(|token| token < waiting.ticket);
        let before: Vec<&Claim> = holds.filter(before).collect();
        let is_detached = |claim: &&Claim| claim.kind == Kind::Detached;
        let owners = if self.is_endless && before.iter().any(is_detached) {
            owners(Some(self.request))
        } else {
            Vec::new()
        };
        let is_own = |claim: &&Claim| {
            if claim.kind != Kind::Detached {
                return self.is_around(claim);
            }
            self.session.is_own_detached(claim, &owners)
        };
        let mode = self.request.terms.mode;
        blocking(waiting.entry, mode, &is_own, before.into_iter()).cloned()
    }

    /// Whether the caller is inside of the run that has this claim. Once its command is recorded, the answer stays: between
    /// the end of the command and the release a daemon of the run cannot be told from a part of its work.
    fn is_around(&self, claim: &Claim) -> bool {
        let token = claim.token.unwrap_or_default();
        let known = locked(&self.known).get(&token).copied();
        known.unwrap_or_else(|| {
            let is_around = self.session.is_around(claim, &self.inherited);
            if claim.holder.command.is_some() {
                locked(&self.known).insert(token, is_around);
            }
            is_around
        })
    }

    /// The holds that this very caller took by `acquire`, in this place. What a sibling of the caller took in the name of the
    /// same owner proves no circle: the sibling gives that back. A place with very many locks is not searched.
    fn holds_of_caller(&self) -> Vec<Hold> {
        let session = self.session;
        let names = match readings::names(&*session.store, Which::Locks) {
            Ok(names) if names.len() <= SEARCHED_MAX => names,
            Ok(_) | Err(_) => return Vec::new(),
        };
        let agent = self.request.holder.agent();
        let is_own = |claim: &Claim| {
            claim.kind == Kind::Detached && claim.holder.agent() == agent && session.took(claim)
        };
        let mut holds = Vec::new();
        for read in Readings::of(&*session.store, &session.clock, names) {
            let Ok(reading) = &read.reading else { continue };
            let entry = reading.entry();
            for claim in entry.into_iter().flat_map(Entry::granted) {
                if is_own(claim) && session.is_held(reading, claim, &read.now) {
                    holds.push(Hold {
                        folder: session.place.folder.clone(),
                        name: read.name.as_str().to_owned(),
                        token: claim.token.unwrap_or_default(),
                    });
                }
            }
        }
        holds
    }
}

/// Other places than that of the call.
struct OtherPlaces<'a>(&'a Session);

impl Elsewhere for OtherPlaces<'_> {
    fn open(&self, folder: &Path) -> Option<Box<dyn Store>> {
        let Self(session) = self;
        let place = Place::noted(folder, session.place.allow_network)?;
        let here = session.identity.host.clone();
        let locks = place.open(Box::new(Native), here, Box::new(ThreadSleeper));
        Some(locks.ok()?.into_store())
    }
}

/// The wait of this caller under these holds; `None` for a lock that publishes a record, and without a hold.
fn nested_wait<'a>(
    session: &'a Session,
    name: &'a LockName,
    holds: Vec<Hold>,
) -> Option<NestedWait<'a, OtherPlaces<'a>>> {
    if session.store.profile().record().is_some() {
        return None;
    }
    let scene = Scene {
        folder: &session.place.folder,
        store: &*session.store,
        host: &session.identity.host,
        clock: &session.clock,
    };
    NestedWait::of(scene, OtherPlaces(session), name, holds)
}

impl<'a> Attendance<'a> {
    pub(crate) fn new(
        reporter: &Reporter,
        session: &'a Session,
        name: &'a LockName,
        request: &'a Request,
        wait: Wait,
        tend: &'a mut (dyn Tend + Send + Sync),
    ) -> Self {
        let own = tend.holds();
        let tends = !own.is_empty();
        let mut all = inherited::holds();
        all.extend(own);
        let is_native = session.store.profile().record().is_none();
        Self {
            name,
            listener: reporter.listener(),
            progress: Progress::new(reporter, name, &session.identity.host, wait),
            deadlock: nested_wait(session, name, all),
            tend,
            tends,
            interruption: None,
            itself: is_native.then(|| Itself {
                session,
                request,
                is_endless: wait == Wait::Forever,
                inherited: session.inherited(name),
                known: Mutex::default(),
            }),
            own: None,
            behind: None,
            members: request.holder.members().map(str::to_owned).collect(),
            looks_for_acquired: (is_native && wait == Wait::Forever)
                .then(|| instant().checked_add(LOOK))
                .flatten(),
        }
    }

    /// Takes part in the search for circles with what the caller took by `acquire` as well.
    fn look_for_acquired(&mut self) {
        let Some(itself) = self.itself.as_ref() else {
            return;
        };
        let acquired = itself.holds_of_caller();
        if acquired.is_empty() {
            return;
        }
        let mut all = inherited::holds();
        all.extend(self.tend.holds());
        all.extend(acquired);
        self.deadlock = nested_wait(itself.session, self.name, all);
    }
}

impl Observer for Attendance<'_> {
    fn waiting(&mut self, waiting: &Waiting<'_>) -> Option<Instant> {
        // A caller that will not wait has no wait to show.
        self.own = self
            .itself
            .as_ref()
            .and_then(|wait| wait.own(waiting))
            .map(Box::new);
        if self.own.is_some() {
            return None;
        }
        self.behind.get_or_insert_with(|| Behind {
            holder: waiting.front().cloned(),
            waiting: waiting.before(),
        });
        if let Some(Listener(listen)) = &self.listener {
            listen(self.name, waiting);
        }
        let next = self.progress.waiting(waiting);
        if !self.tends && self.deadlock.is_none() {
            return [next, self.looks_for_acquired].into_iter().flatten().min();
        }
        let look = instant().checked_add(LOOK);
        [next, look].into_iter().flatten().min()
    }

    fn hindered(&mut self, error: &StoreError) -> bool {
        self.progress.hindered(error) && stop_asked().is_none()
    }

    fn gives_way(&mut self, waiting: &Waiting<'_>) -> bool {
        if self.own.is_some() {
            return true;
        }
        if self.tends {
            self.interruption = self.tend.tend();
        }
        if self.looks_for_acquired.is_some_and(|at| instant() >= at) {
            self.looks_for_acquired = None;
            self.look_for_acquired();
        }
        let deadlock = self.deadlock.as_mut();
        self.interruption.is_some() || deadlock.is_some_and(|deadlock| deadlock.gives_way(waiting))
    }

    fn members(&mut self) -> Option<Vec<String>> {
        if self.members.is_empty() {
            return None;
        }
        let itself = self.itself.as_ref()?;
        let members = itself.session.place.members_now(self.name)?;
        // Another number of slots is another lock: that one is for callers to come.
        if members == self.members || members.len() != self.members.len() {
            return None;
        }
        self.members.clone_from(&members);
        Some(members)
    }
}
