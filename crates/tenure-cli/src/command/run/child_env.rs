//! The variables that a command gets, beside those that it inherits.

use super::super::session::Session;
use super::acquire_all::Hold;
use super::plan::Plan;
use crate::request::{self, At, Task};
use crate::trace::{self, TRACEPARENT};
use std::ffi::OsString;
use std::process::Command;
use tenure_core::{LockName, RequestId};
use tenure_engine::inherited::{self, AROUND};
use tenure_os::process::Identity;

/// The number of the slot that the main lock is held by. It goes with the lock's name and token: a command
/// under another lock does not inherit the number of the run around it.
const SLOT: &str = "TENURE_SLOT";

/// The agent in whose name the run was called. What its command calls is called in that name, too.
fn agent_of(place: &request::Place) -> Option<(&'static str, OsString)> {
    let agent = place.agent.as_ref()?;
    Some((request::AGENT, agent.to_string().into()))
}

/// The place of the locks, with a hold of the run.
fn around(session: &Session, name: &LockName, token: u64) -> (&'static str, OsString) {
    let hold = Some((name, token));
    let around = session.place.handed_down(&session.identity, hold);
    (AROUND, around.value().into())
}

/// The place of a run that holds no lock.
fn no_hold(place: &request::Place) -> OsString {
    place.handed_down(&Identity::current(), None).value().into()
}

/// Variables to set and to take away.
pub(crate) struct ChildEnv {
    set: Vec<(&'static str, OsString)>,
    removed: Vec<&'static str>,
    /// What the project's file sets, of every lock that the command works under.
    of_project: Vec<(String, String)>,
}

impl ChildEnv {
    /// For a command under locks. `main` gives name and token: it is one of `holds`, or `outer`, a hold of
    /// the run around this one. The group has a variable of its own.
    pub(super) fn of_holds(holds: &[Hold<'_>], plan: &Plan<'_>, task: &Task) -> Self {
        let (main, outer, group) = (&plan.main, plan.outer.as_ref(), task.group_text.as_deref());
        let mut set: Vec<(&'static str, OsString)> = Vec::with_capacity(7);
        let mut slot = None;
        let mut held = inherited::held().to_owned();
        for hold in holds {
            let token = hold.claim.token.unwrap_or_default();
            let folder = &hold.session.place.folder;
            inherited::extend(&mut held, token, folder, hold.name());
        }
        // The hold of an agent comes by no run around this one.
        for outer in &plan.around {
            let folder = &outer.session.place.folder;
            let known = inherited::of(folder, &outer.name);
            if !known.iter().any(|hold| hold.token == outer.token) {
                inherited::extend(&mut held, outer.token, folder, &outer.name);
            }
        }
        // A group may have the name of a lock that is taken after it.
        let own = holds.iter().rfind(|hold| hold.name() == main);
        if let Some(outer) = outer {
            set.extend([
                ("TENURE_NAME", main.as_str().into()),
                ("TENURE_TOKEN", outer.token.to_string().into()),
                ("TENURE_REQUEST_ID", outer.id.as_str().into()),
                around(outer.session, main, outer.token),
            ]);
            slot = outer.slot;
        } else if let Some(last) = own.or(holds.last()) {
            let claim = &last.claim;
            let token = claim.token.unwrap_or_default();
            set.extend([
                ("TENURE_NAME", last.name().as_str().into()),
                ("TENURE_TOKEN", token.to_string().into()),
                ("TENURE_REQUEST_ID", claim.holder.request_id.as_str().into()),
                around(last.session, last.name(), token),
            ]);
            slot = claim.slot;
        }
        if let Some(group) = group {
            set.push(("TENURE_GROUP", group.into()));
        }
        set.push((inherited::HELD, held.into()));
        let session = holds.first().map(|hold| hold.session);
        let session = session.or(outer.map(|outer| outer.session));
        set.extend(session.and_then(|session| agent_of(&session.place)));
        let mut removed = Vec::new();
        match slot {
            Some(slot) => set.push((SLOT, slot.to_string().into())),
            None => removed.push(SLOT),
        }
        let mut of_project = Vec::new();
        for wanted in task.locks.iter().filter(|wanted| wanted.at == At::Place) {
            let own = holds.iter().rfind(|hold| *hold.name() == wanted.name);
            let around = || plan.around.iter().find(|outer| outer.name == wanted.name);
            let (slot, member) = match own {
                Some(own) => (own.claim.slot, own.claim.member()),
                None => {
                    around().map_or((None, None), |outer| (outer.slot, outer.member.as_deref()))
                }
            };
            of_project.extend(wanted.pool.env(slot, member));
        }
        Self {
            set,
            removed,
            of_project,
        }
    }

    /// For git's hooks, under the lock of their push. They are not told its place, which is the push's own:
    /// for their own locks the settings of the push's caller count.
    #[cfg(unix)]
    pub(crate) fn of_push(hold: &Hold<'_>) -> Self {
        let (name, token) = (hold.name(), hold.claim.token.unwrap_or_default());
        let mut held = inherited::held().to_owned();
        inherited::extend(&mut held, token, &hold.session.place.folder, name);
        let id = hold.claim.holder.request_id.as_str();
        Self {
            set: vec![
                ("TENURE_NAME", name.as_str().into()),
                ("TENURE_TOKEN", token.to_string().into()),
                ("TENURE_REQUEST_ID", id.into()),
                (inherited::HELD, held.into()),
            ],
            removed: vec![SLOT],
            of_project: Vec::new(),
        }
    }

    /// For the hooks of a run that never got all of its locks.
    pub(crate) fn of_waiter(
        place: &request::Place,
        main: &LockName,
        id: &str,
        group: Option<&str>,
    ) -> Self {
        let mut set: Vec<(&'static str, OsString)> = vec![
            ("TENURE_NAME", main.as_str().into()),
            ("TENURE_REQUEST_ID", id.into()),
            (AROUND, no_hold(place)),
        ];
        if let Some(group) = group {
            set.push(("TENURE_GROUP", group.into()));
        }
        set.extend(agent_of(place));
        Self {
            set,
            removed: vec!["TENURE_TOKEN", SLOT],
            of_project: Vec::new(),
        }
    }

    /// For a command without a lock. Inherited holds stay as they are.
    pub(crate) fn of_no_hold(place: &request::Place, id: &RequestId) -> Self {
        let mut set: Vec<(&'static str, OsString)> = vec![
            ("TENURE_REQUEST_ID", id.as_str().into()),
            (AROUND, no_hold(place)),
        ];
        set.extend(agent_of(place));
        Self {
            set,
            removed: vec!["TENURE_NAME", "TENURE_TOKEN", SLOT],
            of_project: Vec::new(),
        }
    }

    pub(crate) fn apply(&self, command: &mut Command) {
        for name in &self.removed {
            command.env_remove(name);
        }
        command.envs(self.of_project.iter().map(|(name, value)| (name, value)));
        command.envs(self.set.iter().map(|(name, value)| (name, value)));
        if let Some(trace) = trace::of_call() {
            command.env(TRACEPARENT, trace.traceparent());
        }
    }
}
