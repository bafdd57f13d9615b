//! How a profile tells what has happened: in the words and documents that its users and their scripts know.
//! A profile defines only those that differ from tenure's own. One file per profile.
//!
//! A dialect is a function from a view to text. It asks nothing, decides nothing and prints nothing. What a
//! profile *means* stands in `request`; a contract whose *flow* differs is a command of its own.

mod fleet;
mod resume;
mod session;
pub(crate) mod sprint;

pub(crate) use fleet::Fleet;
pub(crate) use resume::Resume;
pub(crate) use session::Session;
pub(crate) use sprint::Sprint;

use crate::failure::Failure;
use crate::render::FailureDocument;
use crate::render::lock::{HolderView, LockView};
use serde_json::Value;
use tenure_core::{Claim, Death, Kind, LockName, Now, Reason, RequestId, StaleReason, Takeover};
use tenure_engine::intent::Mode;

/// What a call has done, or found.
pub(crate) enum CallResult<'a> {
    Acquired {
        name: &'a LockName,
        claim: &'a Claim,
        lock_file: &'a str,
    },
    /// An intent takes no lock.
    Unlocked {
        id: &'a RequestId,
        mode: Mode,
    },
    Released {
        name: &'a LockName,
        request_id: &'a str,
        held_ms: u64,
        /// How the work ended, and the step that failed, if the answer has that.
        result: Option<&'a str>,
        failure_step: Option<&'a str>,
    },
    ForceReleased {
        name: &'a LockName,
        /// `None` for a record that could not be read.
        request_id: Option<&'a str>,
        held_ms: u64,
    },
    /// Nothing was there to release.
    Absent {
        name: &'a LockName,
    },
    Renewed {
        name: &'a LockName,
        claim: &'a Claim,
        now: &'a Now,
    },
    /// A wait has ended, because the lock is free.
    Free {
        name: &'a LockName,
    },
    /// `locks` is how many were stale or corrupt.
    Cleaned {
        locks: usize,
        dry_run: bool,
    },
    Checked(&'a LockView),
}

/// What a line for people is about.
pub(crate) enum PersonLine<'a> {
    Acquired {
        name: &'a LockName,
    },
    Released {
        name: &'a LockName,
    },
    TookOver {
        name: &'a LockName,
        why: Takeover,
        /// The claim that stood there; `None` if it could not be read.
        previous: Option<&'a Claim>,
        now: &'a Now,
    },
    /// A release did nothing, because another holder has the lock.
    Ignored {
        name: &'a LockName,
        claim: &'a Claim,
    },
    /// A release did nothing, because the record says nothing of a holder.
    Unreadable {
        name: &'a LockName,
    },
}

/// Why a call was refused.
pub(crate) enum CallRefusal<'a> {
    /// Another holder blocks the call.
    Blocked {
        view: &'a LockView,
        reason: Reason,
    },
    NotOwner(&'a LockView),
    /// A record that cannot be read blocks the call.
    Unreadable {
        name: &'a LockName,
        why: &'a str,
    },
    /// A check found a lock that is not free.
    Checked(&'a LockView),
}

impl CallRefusal<'_> {
    /// The lock and the holder that blocks the call. A waiter that is next in line and stopped holds nothing
    /// yet, so no sentence about a hold fits it.
    fn holder(&self) -> Option<(&LockView, &HolderView)> {
        match self {
            Self::Blocked {
                view,
                reason: Reason::Held,
                ..
            } if view.standstill.is_none() => Some((view, view.holder.as_ref()?)),
            _ => None,
        }
    }
}

/// How one profile speaks. The methods that it does not override are tenure's own way.
pub(crate) trait Dialect: Sync {
    /// The text for stdout on success; `None` for tenure's own.
    fn answer(&self, done: &CallResult<'_>) -> Option<String> {
        let _ = done;
        None
    }

    /// What makes the part of one lock in a document about all of them, where stdout has one of the profile's
    /// own; `None` for a table.
    fn standing(&self) -> Option<fn(&LockView) -> Value> {
        None
    }

    /// The line, if there is one.
    fn line(&self, about: &PersonLine<'_>) -> Option<String> {
        own_line(about)
    }

    /// Gives a refusal the words of the profile.
    fn refusal(&self, failure: Failure, why: &CallRefusal<'_>) -> Failure {
        let _ = why;
        failure
    }

    /// The function that makes a document of every other failure of a verb, if the profile wants one. It is given the verb
    /// and the name of the lock.
    fn document(&self, verb: &str) -> Option<FailureDocument> {
        let _ = verb;
        None
    }
}

/// The product's own way.
pub(crate) struct Native;

impl Dialect for Native {}

/// The product's own line.
fn own_line(about: &PersonLine<'_>) -> Option<String> {
    match about {
        PersonLine::Acquired { .. } | PersonLine::Released { .. } => None,
        PersonLine::TookOver {
            name,
            why,
            previous,
            ..
        } => Some(took_over(name, *why, *previous)),
        PersonLine::Ignored { name, claim } => Some(format!(
            "{name} is held by request {} and was not released",
            claim.holder.request_id
        )),
        PersonLine::Unreadable { name } => {
            Some(format!("{name} cannot be read and was not released"))
        }
    }
}

fn took_over(name: &LockName, why: Takeover, previous: Option<&Claim>) -> String {
    let whose = match previous.and_then(|claim| claim.holder.process) {
        Some(process) => format!("PID {}", process.pid),
        None => previous.map_or_else(
            || "an unreadable record".to_owned(),
            |claim| format!("request {}", claim.holder.request_id),
        ),
    };
    // A hold of a script or a job ends with it: nothing went wrong.
    let is_detached = previous.is_some_and(|claim| claim.kind == Kind::Detached);
    match why {
        Takeover::Stale(StaleReason::ProcessDead(
            Death::Gone | Death::Zombie | Death::Replaced,
        )) if is_detached => format!("{name}: its last holder, {whose}, had ended"),
        Takeover::Stale(reason) => {
            format!("{name}: took over from {whose}, {}", left_how(reason))
        }
        Takeover::Corrupt => format!("{name}: replaced {whose}"),
        Takeover::Active => format!(
            "{name}: OVERRODE the live hold of {whose}; two holders may be at work until it \
             notices"
        ),
    }
}

/// How a holder left its lock to the next one, as a part of a sentence about it.
fn left_how(reason: StaleReason) -> &'static str {
    match reason {
        StaleReason::LivenessLockReleased
        | StaleReason::ProcessDead(Death::Gone | Death::Zombie | Death::Replaced) => {
            "which ended without releasing"
        }
        StaleReason::ProcessDead(Death::Rebooted) => "whose machine has restarted since",
        StaleReason::Silent => {
            "whose lease ran out (no heartbeat for longer than its ttl; it may be stopped or cut off, \
             and must not rely on the lock any more)"
        }
        StaleReason::Aged => "whose lock was older than its profile allows",
        StaleReason::ProcessUnknown => "whose process cannot be checked",
        StaleReason::Unreadable => "whose record could not be read",
    }
}

/// An age in whole seconds, as the systems' own messages have it.
fn seconds(millis: u64) -> u64 {
    millis / 1_000
}
