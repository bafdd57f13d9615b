//! Whether the run lives that has handed a place down.

use crate::formats::{self, Settings};
use crate::inherited::{AROUND, Around, At};
use tenure_core::{Host, Liveness, LockName, Now, Standing};
use tenure_os::clock::{Clock, SystemClock};
use tenure_os::process::{self, Identity};
use tenure_store::Store;
use tenure_store::file::{FileStore, ThreadSleeper};

/// The place that a run around this process hands down, if that run lives. Whoever has the variable is inside, with or
/// without being a descendant.
pub(super) fn around() -> Option<Around> {
    let value = std::env::var(AROUND).ok()?;
    let around = Around::parse(&value)?;
    is_alive(&around).then_some(around)
}

/// Whether the run lives: its process, or else what holds its lock. A process of another PID namespace cannot be
/// seen, and a command may outlive its supervisor.
fn is_alive(around: &Around) -> bool {
    let here = Identity::current().host;
    match process::liveness(&around.process, &around.host, &here, true) {
        Liveness::Alive => true,
        Liveness::Unknown | Liveness::NotRecorded | Liveness::Dead(_) => is_held(around, here),
    }
}

/// Whether the hold of the run stands. Where its servers do not answer, it does: the call asks them next, and must not
/// go elsewhere because they are silent.
fn is_held(around: &Around, here: Host) -> bool {
    let Some(hold) = &around.hold else {
        return false;
    };
    let Ok(name) = LockName::new(&*hold.name) else {
        return false;
    };
    let now = SystemClock::new(here.boot_id.as_deref()).now();
    match &around.at {
        At::Folder(folder) => {
            let settings = Settings::default();
            let records = around.records.as_deref().unwrap_or("native");
            let Ok(profile) = formats::by_name(records, &settings) else {
                return false;
            };
            let store = FileStore::with_profile(profile, folder, here, Box::new(ThreadSleeper));
            has(&store, &name, hold.token, &now).unwrap_or(false)
        }
        At::Url(url) => has_there(url, here, &name, hold.token, &now).unwrap_or(true),
    }
}

/// Whether the store has this hold of a lock; `None` if the store cannot be read.
fn has(store: &impl Store, name: &LockName, token: u64, now: &Now) -> Option<bool> {
    let reading = store.read(name, None).ok()?;
    let claims = || {
        reading
            .entry()?
            .granted()
            .find(|claim| claim.token == Some(token))
    };
    Some(claims().is_some_and(|claim| {
        let standing = reading.standing_of(&store.rules().policy, claim, now);
        // The command of a run that has lost its lease stays where its locks are.
        matches!(standing, Standing::Held(_)) || reading.is_seen_alive(claim)
    }))
}

/// Asks servers whether they have this hold of a lock; `None` if they do not answer.
#[cfg(all(feature = "etcd", unix))]
fn has_there(url: &str, here: Host, name: &LockName, token: u64, now: &Now) -> Option<bool> {
    use tenure_store::etcd::{Address, Credentials, EtcdStore};
    let address = Address::parse(url).ok()?;
    let credentials = Credentials::from_environment().ok()?;
    let store = EtcdStore::new(&address, &credentials, here, Box::new(ThreadSleeper)).ok()?;
    has(&store.patience(PATIENCE), name, token, now)
}

/// A build without etcd asks none.
#[cfg(not(all(feature = "etcd", unix)))]
fn has_there(_: &str, _: Host, _: &LockName, _: u64, _: &Now) -> Option<bool> {
    None
}

/// How long servers may be silent before the hold counts: then the call itself asks them.
#[cfg(all(feature = "etcd", unix))]
const PATIENCE: std::time::Duration = std::time::Duration::from_secs(2);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inherited::Saw;

    #[test]
    fn place_of_a_run_that_has_ended_does_not_count() {
        let identity = Identity::current();
        let mut around = Around {
            at: At::Folder("/nowhere".into()),
            is_machines: false,
            records: None,
            groups: None,
            config: None,
            saw: Saw::default(),
            process: identity.process,
            host: identity.host,
            hold: None,
        };
        assert!(is_alive(&around));
        // The number of this process, and another start.
        around.process.started = around.process.started.map(|started| started + 1);
        assert!(!is_alive(&around));
    }
}
