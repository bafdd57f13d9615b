//! What a guard tells the programs that it starts, so that they know whose work they are.
//!
//! What it leaves to others: how a hold and a place are written down (`inherited`), and what a program makes of them.

use super::{Guard, Guards};
use crate::inherited::{self, AROUND, Around, At, HELD, Saw};
use crate::search;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// Where other programs find the locks of a manager.
#[derive(Debug, Clone)]
pub(super) struct PlaceForOthers {
    pub(super) at: At,
    pub(super) is_machines: bool,
    /// The configuration that led there.
    pub(super) config: Option<PathBuf>,
    /// What the run around this program saw, if its place is that of the run.
    pub(super) saw: Option<Saw>,
}

impl PlaceForOthers {
    pub(super) fn at(at: At) -> Self {
        Self {
            at,
            is_machines: false,
            config: None,
            saw: None,
        }
    }

    /// The folder, or the URL of the servers.
    pub(super) fn folder(&self) -> &Path {
        match &self.at {
            At::Folder(folder) => folder,
            At::Url(url) => Path::new(url),
        }
    }
}

impl Guard {
    /// The variables by which a program that this one starts knows that it works under the lock: for
    /// [`Command::envs`](std::process::Command::envs). They are those that `tenure run` sets for its command.
    ///
    /// - `tenure run` and programs with this library keep their locks where this one does.
    /// - A request for **this lock** is refused at once in there, and does not wait for ever (exit 81,
    ///   [`AcquireError::HeldByOuterRun`](super::AcquireError::HeldByOuterRun)); `tenure run --reentrant` goes on under the hold.
    /// - `TENURE_NAME`, `TENURE_TOKEN`, `TENURE_REQUEST_ID` and `TENURE_SLOT` (empty unless the guard has a slot) say which
    ///   lock it is, and the fencing token.
    ///
    /// The started program does not keep the lock: it may outlive the guard. Locks of a store of your own
    /// ([`LockManager::with_store`](super::LockManager::with_store)) have no place that another program could find.
    ///
    /// # Examples
    /// ```
    /// # let scratch = tempfile::tempdir()?;
    /// # let locks = tenure::guard::LockManager::new(scratch.path())?;
    /// let guard = locks.acquire("build")?;
    /// let mut command = std::process::Command::new("sh");
    /// command.args(["-c", "test -n \"$TENURE_TOKEN\""]).envs(guard.envs());
    /// # #[cfg(unix)]
    /// assert!(command.status()?.success());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn envs(&self) -> Vec<(&'static str, OsString)> {
        envs(std::slice::from_ref(self))
    }
}

impl Guards {
    /// [`Guard::envs`] of all of them; name and token are those of the last one.
    pub fn envs(&self) -> Vec<(&'static str, OsString)> {
        envs(self)
    }
}

fn envs(guards: &[Guard]) -> Vec<(&'static str, OsString)> {
    let Some(last) = guards.last() else {
        return Vec::new();
    };
    let request_id = last.holder().request_id.as_str();
    let mut set: Vec<(&'static str, OsString)> = vec![
        ("TENURE_NAME", last.name().as_str().into()),
        ("TENURE_TOKEN", last.token().to_string().into()),
        ("TENURE_REQUEST_ID", request_id.into()),
    ];
    // Empty, and not that of a run around this program.
    let slot = last.slot().map(|slot| slot.to_string());
    set.push(("TENURE_SLOT", slot.unwrap_or_default().into()));
    let shared = last.shared();
    let Some(told) = &shared.told else {
        return set;
    };
    let folder = told.folder().to_owned();
    let mut held = inherited::held().to_owned();
    for guard in guards {
        inherited::extend(&mut held, guard.token(), &folder, guard.name());
    }
    let here = std::env::current_dir().ok();
    let project = here.as_deref().and_then(search::project);
    let saw = told.saw.clone().unwrap_or_default();
    let around = Around {
        is_machines: told.is_machines,
        config: told.config.clone(),
        saw: saw.with_callers(here.as_deref(), project.as_deref()),
        ..Around::of(told.at.clone(), &shared.identity)
    };
    let hold = inherited::Hold {
        token: last.token(),
        folder,
        name: last.name().as_str().to_owned(),
    };
    let around = Around {
        hold: Some(hold),
        ..around
    };
    set.extend([(HELD, held.into()), (AROUND, around.value().into())]);
    set
}
