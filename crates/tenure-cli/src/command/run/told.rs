//! What a command learns from its environment, beside everything that it inherits.

use super::taking::Hold;
use crate::command::Session;
use crate::holds;
use crate::request;
use std::ffi::OsString;
use std::process::Command;
use tenure::core::{LockName, RequestId};

/// Variables to set and to take away.
pub(crate) struct Told {
    set: Vec<(&'static str, OsString)>,
    removed: &'static [&'static str],
}

impl Told {
    /// Under locks, of which `main` gives its name and token. The group is named beside it.
    pub(crate) fn of_holds(holds: &[Hold<'_>], main: &LockName, group: Option<&LockName>) -> Self {
        let mut set: Vec<(&'static str, OsString)> = Vec::with_capacity(7);
        let mut held = holds::inherited_value();
        for hold in holds {
            let token = hold.claim.token.unwrap_or_default();
            let folder = &hold.session.place.folder;
            holds::extend(&mut held, token, folder, hold.name());
        }
        // A group may have the name of a lock that is taken after it.
        let main = holds.iter().rfind(|hold| hold.name() == main);
        if let Some(last) = main.or(holds.last()) {
            let claim = &last.claim;
            let token = claim.token.unwrap_or_default();
            set.extend([
                ("TENURE_NAME", last.name().as_str().into()),
                ("TENURE_TOKEN", token.to_string().into()),
                ("TENURE_REQUEST_ID", claim.holder.request_id.as_str().into()),
                ("TENURE_DIR", (&last.session.place.folder).into()),
            ]);
            if let Some(file) = last.session.place.config_file() {
                set.push((request::CONFIG, file.into()));
            }
        }
        if let Some(group) = group {
            set.push(("TENURE_GROUP", group.as_str().into()));
        }
        set.push((holds::VARIABLE, held.into()));
        Self {
            set,
            // The folder is what this run uses, whatever named it.
            removed: &["TENURE_STORE"],
        }
    }

    /// Of a run that has not got all that it wanted: what its hooks may know.
    pub(crate) fn of_waiter(holds: &[Hold<'_>], group: Option<&LockName>) -> Self {
        let mut set: Vec<(&'static str, OsString)> = Vec::new();
        if let Some(group) = group {
            set.push(("TENURE_GROUP", group.as_str().into()));
        }
        if let Some(hold) = holds.last() {
            let id = hold.claim.holder.request_id.as_str();
            set.push(("TENURE_REQUEST_ID", id.into()));
        }
        Self {
            set,
            removed: &["TENURE_NAME", "TENURE_TOKEN"],
        }
    }

    /// Under a hold of the run around it, which has told all that there is to tell.
    pub(crate) fn of_outer_hold(session: &Session, name: &LockName, token: u64) -> Self {
        Self {
            set: vec![
                ("TENURE_NAME", name.as_str().into()),
                ("TENURE_TOKEN", token.to_string().into()),
                ("TENURE_DIR", (&session.place.folder).into()),
            ],
            removed: &["TENURE_STORE"],
        }
    }

    /// Without one. Holds that are inherited stay what they are.
    pub(crate) fn of_no_hold(place: &request::Place, id: &RequestId) -> Self {
        let mut set: Vec<(&'static str, OsString)> = vec![
            ("TENURE_REQUEST_ID", id.as_str().into()),
            ("TENURE_DIR", place.folder.clone().into()),
        ];
        if let Some(file) = place.config_file() {
            set.push((request::CONFIG, file.into()));
        }
        Self {
            set,
            removed: &["TENURE_STORE", "TENURE_NAME", "TENURE_TOKEN"],
        }
    }

    pub(crate) fn tell(&self, command: &mut Command) {
        for name in self.removed {
            command.env_remove(name);
        }
        command.envs(self.set.iter().map(|(name, value)| (name, value)));
    }
}
