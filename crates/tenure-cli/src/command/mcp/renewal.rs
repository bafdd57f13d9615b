//! Renews the holds of the client, for callers that cannot see it: in another container, on another machine.
//!
//! Which holds there are is read from the folder, so those of an earlier server are renewed too. Without any, nothing
//! is looked at until one is taken. Renewing keeps alive what lives anyway: the client is alive, for this process ends
//! with it.

use super::tools::Tools;
use crate::command::Session;
use crate::failure::Failure;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use tenure_core::{Claim, Entry, LockName, Ownership};
use tenure_engine::clock::Clock;
use tenure_engine::profile::known_as;
use tenure_engine::readings;
use tenure_engine::store::Verbs;
use tenure_engine::store::contract::Which;
use tokio::sync::oneshot;

/// The bounds of the time between two looks.
const NAP_MIN: Duration = Duration::from_millis(200);
const NAP_MAX: Duration = Duration::from_secs(60);

/// The time to the next look after one that failed.
const AGAIN: Duration = Duration::from_secs(10);

/// Renews what is due, until it is dropped.
pub(super) async fn renew(tools: Arc<Tools>) {
    loop {
        let (sender, receiver) = oneshot::channel();
        let looking = Arc::clone(&tools);
        let thread = std::thread::Builder::new().name("renew".to_owned());
        let started = thread.spawn(move || {
            let _ = sender.send(look(&looking));
        });
        let next = match started {
            Ok(_) => receiver.await.unwrap_or(Some(AGAIN)),
            Err(_) => Some(AGAIN),
        };
        match next {
            None => tools.taken.notified().await,
            Some(next) => tokio::select! {
                () = tools.taken.notified() => {}
                () = tokio::time::sleep(next.clamp(NAP_MIN, NAP_MAX)) => {}
            },
        }
    }
}

/// Renews what is due. The time until the next renewal is; `None` without a hold.
fn look(tools: &Tools) -> Option<Duration> {
    match renew_all(tools) {
        Ok(next) => next,
        // The place may be there again by then, with holds of an earlier server that this one does not know yet.
        Err(_) => Some(AGAIN),
    }
}

fn renew_all(tools: &Tools) -> Result<Option<Duration>, Failure> {
    // Those that were taken before the look and are not there are over.
    let known = tools.handles();
    let mut there = BTreeSet::new();
    let session = Session::open(tools.asked(None).list()?.place)?;
    let mut next: Option<Duration> = None;
    let mut is_whole = true;
    for name in readings::names(&*session.store, Which::Locks)? {
        let Ok(reading) = session.reading(&name) else {
            is_whole = false;
            continue;
        };
        let granted = reading.entry().into_iter().flat_map(Entry::granted);
        for claim in granted.filter(|claim| tools.renews(&session, claim)) {
            there.insert(known_as(&claim.holder).to_owned());
            let due = renew_if_due(&session, &name, claim);
            next = Some(next.map_or(due, |next| next.min(due)));
        }
    }
    if is_whole {
        for handle in known.difference(&there) {
            tools.forget(handle);
        }
        return Ok(next);
    }
    Ok(Some(next.map_or(AGAIN, |next| next.min(AGAIN))))
}

/// Renews a hold of which a third of the ttl is over. The time until that is so again.
fn renew_if_due(session: &Session, name: &LockName, claim: &Claim) -> Duration {
    let now = session.clock.now();
    let boot = claim.holder.host.boot_id.as_deref();
    let third = claim.lease.ttl_ms / 3;
    let silent = claim.lease.silent_ms(boot, &now);
    if silent < third {
        return Duration::from_millis(third - silent);
    }
    let is_it = |other: &Claim| {
        if (other.ticket, other.token) == (claim.ticket, claim.token) {
            Ownership::Shown
        } else {
            Ownership::Missing
        }
    };
    match session.store.renew_owned(name, &is_it, &now) {
        Ok(_) => Duration::from_millis(third),
        Err(_) => Duration::from_millis(third).min(AGAIN),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test says what it expects by failing")]

    use super::*;
    use crate::args::Common;
    use tenure_engine::process::choose_owner;

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
        assert_eq!(look(&Tools::new(common, client)), Some(AGAIN));
    }
}
