//! Has a keeper renew the holds of the client, for callers that cannot see it: in another container, on another machine.
//!
//! The holds are read from the folder when one is taken, so those of an earlier server are renewed too. Renewing keeps
//! alive what lives anyway: the client is alive, for this process ends with it.

use super::tools::Tools;
use crate::command::run::acquire_all::life_of;
use crate::command::session::Session;
use crate::failure::Failure;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;
use tenure_core::{Claim, Entry, LockName, Now, Ownership, Renewal};
use tenure_engine::keep::{self, Ask, Home, KeeperHold, Life, NewHolds, News, Watching};
use tenure_engine::readings;
use tenure_os::clock::Clock;
use tenure_os::os::{Descriptor, Ringer};
use tenure_store::contract::Which;
use tenure_store::profile::known_as;
use tenure_store::{Content, RenewedOwned, StoreError, Verbs};
use tokio::sync::oneshot;

/// The time to the next look for holds after one that failed.
const AGAIN: Duration = Duration::from_secs(10);

/// How often a hold is looked at beside its renewals, where nothing tells of it: nobody here waits for what is found.
const LOOK: Duration = Duration::from_secs(60);

/// Has what there is renewed, until it is dropped.
pub(super) async fn renew(tools: Arc<Tools>) {
    let mut holds = None;
    loop {
        let (sender, receiver) = oneshot::channel();
        let (looking, before) = (Arc::clone(&tools), holds.clone());
        let thread = std::thread::Builder::new().name("renew".to_owned());
        let started = thread.spawn(move || {
            // A place that cannot be looked at has nothing to find.
            let _ = sender.send(look(&looking, before).ok());
        });
        let found = match started {
            Ok(_) => receiver.await.unwrap_or(None),
            Err(_) => None,
        };
        // A place that could not be looked at may be there again by then, with holds of an earlier server that this one
        // does not know yet.
        let is_whole = found.as_ref().is_some_and(|found| found.is_whole);
        holds = found.map(|found| found.holds).or(holds);
        tokio::select! {
            () = tools.taken.notified() => {}
            () = tokio::time::sleep(AGAIN), if !is_whole => {}
        }
    }
}

/// What a look for the holds of the client has found.
struct Found {
    holds: Arc<Holds>,
    /// Each lock could be looked at.
    is_whole: bool,
}

/// Has the holds of the client looked after.
fn look(tools: &Arc<Tools>, before: Option<Arc<Holds>>) -> Result<Found, Failure> {
    // Holds that were taken before the look and are not there are over.
    let known = tools.handles();
    let place = tools.asked(None).list()?.place;
    let holds = match before.filter(|before| before.session.place.folder == place.folder) {
        Some(before) => before,
        None => Arc::new(Holds::new(Session::open(place)?, tools)),
    };
    let session = &holds.session;
    let mut is_whole = true;
    for name in readings::names(&*session.store, Which::Locks)? {
        let Ok(reading) = session.reading(&name) else {
            is_whole = false;
            continue;
        };
        let granted = reading.entry().into_iter().flat_map(Entry::granted);
        for claim in granted.filter(|claim| tools.renews(session, claim)) {
            is_whole &= Holds::keep(&holds, &name, claim);
        }
    }
    if is_whole {
        let there = holds.kept();
        for handle in known.iter().filter(|handle| !there.contains_key(*handle)) {
            tools.forget(handle);
        }
    }
    Ok(Found { holds, is_whole })
}

/// The holds of the client in its place.
struct Holds {
    session: Session,
    tools: Weak<Tools>,
    /// By their handles.
    kept: Mutex<BTreeMap<String, Arc<Renewed>>>,
    watching: Watching,
    pending: NewHolds<Renewed, Ringer>,
}

impl Holds {
    fn new(session: Session, tools: &Arc<Tools>) -> Self {
        let is_kept_in_one_file = !session.store.is_remote() && !session.store.publishes();
        let is_watched = cfg!(target_os = "linux") && is_kept_in_one_file;
        Self {
            session,
            tools: Arc::downgrade(tools),
            kept: Mutex::default(),
            watching: if is_watched {
                Watching::Files
            } else {
                Watching::Looks(LOOK)
            },
            pending: NewHolds::default(),
        }
    }

    /// Has a hold looked after, if it is not yet. False if the system gives no thread.
    fn keep(holds: &Arc<Self>, name: &LockName, claim: &Claim) -> bool {
        let handle = known_as(&claim.holder).to_owned();
        let mark = (claim.ticket, claim.token);
        let hold = {
            let mut kept = holds.kept();
            if kept.get(&handle).is_some_and(|kept| kept.mark == mark) {
                return true;
            }
            let hold = Arc::new(Renewed {
                holds: Arc::downgrade(holds),
                name: name.clone(),
                handle: handle.clone(),
                mark,
                life: life_of(&holds.session, claim),
            });
            kept.insert(handle.clone(), Arc::clone(&hold));
            hold
        };
        let is_kept = keep::keep(holds, &hold).is_ok();
        if !is_kept {
            holds.kept().remove(&handle);
        }
        is_kept
    }

    fn kept(&self) -> MutexGuard<'_, BTreeMap<String, Arc<Renewed>>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Home for Holds {
    type Hold = Renewed;

    fn clock(&self) -> &dyn Clock {
        &self.session.clock
    }

    fn watching(&self) -> &Watching {
        &self.watching
    }

    fn moves(&self) -> u64 {
        self.session.store.moves()
    }

    fn pending(&self) -> &NewHolds<Renewed, Ringer> {
        &self.pending
    }
}

/// A hold of the client.
struct Renewed {
    holds: Weak<Holds>,
    name: LockName,
    handle: String,
    /// The ticket and the token of its claim.
    mark: (u64, Option<u64>),
    life: Life,
}

impl Renewed {
    fn is_it(&self, claim: &Claim) -> bool {
        (claim.ticket, claim.token) == self.mark
    }
}

impl KeeperHold for Renewed {
    fn life(&self) -> Life {
        self.life.clone()
    }

    fn lapses(&self) -> bool {
        let holds = self.holds.upgrade();
        holds.is_some_and(|holds| holds.session.store.is_remote())
    }

    fn file(&self) -> Option<String> {
        let holds = self.holds.upgrade()?;
        Some(holds.session.store.location(&self.name).shown)
    }

    fn notices(&self) -> Option<Descriptor> {
        None
    }

    fn asked(&self, renews: Option<&Now>) -> Option<Result<Renewal, StoreError>> {
        let holds = self.holds.upgrade()?;
        let stands = |claim: &Claim| Renewal::Renewed {
            token: claim.token.unwrap_or_default(),
            cancel_requested: claim.cancel.is_some(),
        };
        let Some(now) = renews else {
            let reading = holds.session.store.read(&self.name);
            return Some(reading.and_then(|reading| {
                // A list that cannot be understood says nothing about the hold.
                if let Content::Unreadable { why, .. } = reading.content {
                    let place = holds.session.store.place(&self.name);
                    return Err(StoreError::Unreadable { place, why });
                }
                let mut granted = reading.entry().into_iter().flat_map(Entry::granted);
                let own = granted.find(|claim| self.is_it(claim));
                Ok(own.map_or(Renewal::Lost, stands))
            }));
        };
        let owns = |claim: &Claim| {
            if self.is_it(claim) {
                Ownership::Shown
            } else {
                Ownership::Missing
            }
        };
        let renewed = holds.session.store.renew_owned(&self.name, &owns, now);
        Some(renewed.map(|renewed| match renewed {
            RenewedOwned::Renewed { claim } => stands(&claim),
            RenewedOwned::NotOwner { .. } | RenewedOwned::Lost => Renewal::Lost,
        }))
    }

    /// No call of the protocol tells a client of its holds, so it learns of a loss when it asks.
    fn told(&self, _: Ask, news: News, _: Option<StoreError>) -> bool {
        if !news.is_gone() {
            return true;
        }
        if let Some(holds) = self.holds.upgrade() {
            let mut kept = holds.kept();
            if kept
                .get(&self.handle)
                .is_some_and(|kept| kept.mark == self.mark)
            {
                kept.remove(&self.handle);
                if let Some(tools) = holds.tools.upgrade() {
                    tools.forget(&self.handle);
                }
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test says what it expects by failing")]

    use super::*;
    use crate::args::Common;
    use tenure_engine::caller::choose_owner;

    /// A server that has taken nothing yet may have holds of an earlier one to renew.
    #[test]
    fn a_look_that_fails_is_not_the_last_one() {
        let folder = tempfile::tempdir().unwrap();
        let no_folder = folder.path().join("file");
        std::fs::write(&no_folder, "").unwrap();
        let common = Common {
            dir: Some(no_folder),
            ..Common::default()
        };
        let client = choose_owner(Some(std::process::id())).unwrap();
        let tools = Arc::new(Tools::new(common, client));
        assert!(look(&tools, None).is_err());
    }
}
