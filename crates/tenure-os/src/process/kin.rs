//! Whether the calling process descends from another one, or is a part of a run's work.
//!
//! Only what can be seen here and now counts.

use super::system::{Stat, stat};
use tenure_core::{Host, Process};

/// How far up the search goes. Real trees are some ten deep.
const ANCESTORS_MAX: usize = 64;

/// A process and those above it, from the process on, as far as every link can be seen here and now.
pub fn upwards(pid: u32) -> impl Iterator<Item = (u32, Stat)> {
    let mut next = pid;
    let link = move || {
        let pid = next;
        let stat = stat(pid).filter(|_| pid != 0)?;
        next = stat.parent;
        Some((pid, stat))
    };
    std::iter::from_fn(link).take(ANCESTORS_MAX)
}

/// Whether the calling process descends from `owner`, which was recorded on `host`.
///
/// Only true where every link can be seen here and now; anything unknown is no proof.
pub fn is_descendant_of(owner: &Process, host: &Host, here: &Host) -> bool {
    is_reached(owner, host, here, |_| true)
}

/// Whether `owner` is the calling process or an ancestor, and every process between them `passes`.
pub fn is_reached(owner: &Process, host: &Host, here: &Host, passes: impl Fn(u32) -> bool) -> bool {
    if !is_comparable(owner, host, here) {
        return false;
    }
    for (pid, stat) in upwards(std::process::id()) {
        if pid == owner.pid {
            return stat.started() == owner.started;
        }
        if !passes(pid) {
            return false;
        }
    }
    false
}

/// Whether the calling process is a part of a run's work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kin {
    /// The process descends from the run's command, or the run's supervisor started it for the run.
    Inside,
    /// The process certainly does not descend from it. The run will end without it.
    Outside,
    /// Not every link can be seen from here.
    Unknown,
}

/// Whether the calling process is a part of the work of a run, whose supervisor and command were recorded on `host`.
///
/// A process that has lost its parent comes to the supervisor (`supervise::descendants`). If it has a session of its
/// own, it is a daemon or a terminal server, for which the command does not wait: outside. Else it is a part of a
/// pipeline, whose end the command may wait for: inside.
pub fn kin_of_run(
    supervisor: &Process,
    command: Option<&Process>,
    host: &Host,
    here: &Host,
) -> Kin {
    if !is_comparable(supervisor, host, here) {
        return Kin::Unknown;
    }
    let mut below = None;
    for (pid, link) in upwards(std::process::id()) {
        let this = process_of(pid, &link);
        if Some(&this) == command {
            return Kin::Inside;
        }
        if this == *supervisor {
            // Without a command, the process has become its command (`--exec`) and adopts none, or its command is not
            // recorded yet.
            let is_apart = below.is_some_and(|below| has_session_of_its_own(below, pid));
            if is_apart && command.is_none() {
                return Kin::Unknown;
            }
            // A run whose command has ended stays for what goes on under it: whoever inherited the hold may be that.
            let works = command.is_some_and(|command| {
                let seen = stat(command.pid).filter(|stat| !stat.has_ended());
                seen.is_some_and(|stat| stat.started() == command.started)
            });
            return match (is_apart, works) {
                (false, _) => Kin::Inside,
                (true, true) => Kin::Outside,
                (true, false) => Kin::Unknown,
            };
        }
        // No process is older than what it descends from, so the way up ends early for a caller from elsewhere.
        let is_older = this
            .started
            .zip(supervisor.started)
            .is_some_and(|(this, run)| this < run);
        if link.parent == 0 || is_older {
            return Kin::Outside;
        }
        below = Some(pid);
    }
    Kin::Unknown
}

/// Whether a process is in another session than its parent.
#[cfg(unix)]
fn has_session_of_its_own(pid: u32, parent: u32) -> bool {
    let session = |pid: u32| {
        let pid = i32::try_from(pid)
            .ok()
            .and_then(rustix::process::Pid::from_raw)?;
        super::session_of(pid)
    };
    let both = session(pid).zip(session(parent));
    both.is_some_and(|(own, parents)| own != parents)
}

#[cfg(not(unix))]
fn has_session_of_its_own(_: u32, _: u32) -> bool {
    false
}

/// Whether an owner's number and start mean here what they meant where they were recorded.
pub(super) fn is_comparable(owner: &Process, host: &Host, here: &Host) -> bool {
    super::shares_processes(host, here) && owner.started.is_some()
}

/// The calling process and its ancestors, seen at one moment: for a caller that shows who owns many locks. None
/// that decides by it may keep it, for an ancestor may end.
#[derive(Debug)]
pub struct Ancestors(Vec<Process>);

impl Ancestors {
    /// As far as every link can be seen here and now.
    pub fn of_caller() -> Self {
        let seen = upwards(std::process::id());
        Self(seen.map(|(pid, stat)| process_of(pid, &stat)).collect())
    }

    /// Whether `owner`, which was recorded on `host`, is one of them, as [`is_descendant_of`] says it.
    pub fn have(&self, owner: &Process, host: &Host, here: &Host) -> bool {
        is_comparable(owner, host, here) && self.0.contains(owner)
    }
}

/// The process of this number, with its start.
pub fn process_of(pid: u32, stat: &Stat) -> Process {
    let started = stat.started();
    Process { pid, started }
}
