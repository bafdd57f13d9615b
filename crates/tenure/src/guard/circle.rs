//! Under which holds a caller of this program waits, so that circles of waits are found (`engine::circle`).
//!
//! A thread or a task does not say which of the program's guards it needs to go on, and a guess would end waits that are in
//! no circle. So two things count: the guards that the caller names, and the holds of a run around the whole program.

use super::{Guard, Options, Shared};
use crate::circle::{Elsewhere, NestedWait, Scene};
use crate::inherited::{self, Hold};
use crate::profile::Native;
use crate::store::Store;
use crate::store::file::{FileStore, ThreadSleeper};
use std::borrow::Cow;
use std::path::Path;
use std::time::Duration;
use tenure_core::{Host, LockName};

/// How often a caller that works under a hold looks for a circle.
pub(super) const LOOK: Duration = Duration::from_secs(1);

/// A wait of this program under holds.
pub(super) type Circle<'a> = Box<NestedWait<'a, OtherFolders<'a>>>;

/// The wait of a caller that names these holds; `None` for one that works under none.
pub(super) fn of<'a>(shared: &'a Shared, name: &'a LockName, under: &[Hold]) -> Option<Circle<'a>> {
    let told = shared.told.as_ref()?;
    let mut holds = inherited::holds();
    holds.extend_from_slice(under);
    let host = &shared.identity.host;
    let scene = Scene {
        folder: told.folder(),
        store: &*shared.store,
        host,
        clock: &*shared.clock,
    };
    NestedWait::of(scene, OtherFolders(host), name, holds).map(Box::new)
}

/// Other folders, which others have written down. No password is sent to servers that a note names.
pub(super) struct OtherFolders<'a>(&'a Host);

impl Elsewhere for OtherFolders<'_> {
    fn open(&self, folder: &Path) -> Option<Box<dyn Store>> {
        if !folder.is_absolute() {
            return None;
        }
        let Self(here) = self;
        let (profile, sleeper) = (Box::new(Native), Box::new(ThreadSleeper));
        let store = FileStore::with_profile(profile, folder, (*here).clone(), sleeper);
        Some(Box::new(store))
    }
}

impl Guard {
    /// The hold as other callers find it.
    pub(super) fn as_hold(&self) -> Option<Hold> {
        Some(Hold {
            token: self.token(),
            folder: self.shared().told.as_ref()?.folder().to_owned(),
            name: self.name().as_str().to_owned(),
        })
    }
}

/// Adds a guard to what a caller works under, if that caller names guards.
pub(super) fn goes_on_under(options: &mut Cow<'_, Options>, guard: &Guard) {
    if !options.under.is_empty() {
        options.to_mut().under.extend(guard.as_hold());
    }
}
