//! Whether the run lives that has handed a place down.

use crate::clock::{Clock, SystemClock};
use crate::inherited::{AROUND, Around, At};
use crate::process::{self, Identity};
use crate::profile::{self, Settings};
use crate::store::Store;
use crate::store::file::{FileStore, ThreadSleeper};
use tenure_core::{Host, Liveness, LockName, Standing};

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
        Liveness::Unknown | Liveness::NotRecorded if matches!(around.at, At::Url(_)) => true,
        Liveness::Unknown | Liveness::NotRecorded | Liveness::Dead(_) => {
            is_held(around, here).unwrap_or(false)
        }
    }
}

/// Whether the hold of the run stands, by its lock's file.
fn is_held(around: &Around, here: Host) -> Option<bool> {
    let hold = around.hold.as_ref()?;
    let At::Folder(folder) = &around.at else {
        return None;
    };
    let name = LockName::new(&*hold.name).ok()?;
    let settings = Settings::default();
    let profile = profile::by_name(around.records.as_deref().unwrap_or("native"), &settings);
    let clock = SystemClock::new(here.boot_id.as_deref());
    let store = FileStore::with_profile(profile.ok()?, folder, here, Box::new(ThreadSleeper));
    let reading = store.read(&name, None).ok()?;
    let mut granted = reading.entry()?.granted();
    let claim = granted.find(|claim| claim.token == Some(hold.token))?;
    let standing = reading.standing_of(&store.rules().policy, claim, &clock.now());
    Some(matches!(standing, Standing::Held(_)))
}

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
