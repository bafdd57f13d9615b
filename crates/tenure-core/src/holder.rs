//! The holder or waiter: the names by which its process is recognised again. Nothing is judged here.

use crate::RequestId;
use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

/// The fact that keeps which process called for a detached hold: its number and its start, joined by a colon.
const CALLER: &str = "tenure:caller";

/// The fact that keeps what the slots of the lock stand for, as the caller's configuration says it: a line for each member.
const MEMBERS: &str = "tenure:members";

/// The fact that keeps for which of them a hold stands, from its grant on.
const MEMBER: &str = "tenure:member";

/// A process as a record names it. A number alone is reused sooner or later, so the start time goes with
/// it. Both mean something only on the host and boot that the claim names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Process {
    /// The process id in the recording PID namespace.
    pub pid: u32,
    /// When it started, in the platform's own unit (Linux: clock ticks since boot).
    pub started: Option<u64>,
}

/// The machine, boot and PID namespace in which a record was written.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Host {
    /// The host name, for people; never compared.
    pub name: String,
    /// The machine id; `None` where there is none or it is empty.
    pub machine_id: Option<String>,
    /// The id of the boot.
    pub boot_id: Option<String>,
    /// The PID namespace, by its inode.
    pub pid_namespace: Option<u64>,
}

/// Everything a claim says about its caller and its purpose.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holder {
    /// The request id.
    pub request_id: RequestId,
    /// The user or agent on whose behalf the caller acts.
    pub actor: String,
    /// The process whose life the claim follows: the supervisor of a `run`, the owner of an `acquire`.
    /// `None` if no process is watched and only the ttl counts.
    pub process: Option<Process>,
    /// The command that a supervisor started, once it runs.
    pub command: Option<Process>,
    /// Where all of the above was recorded.
    pub host: Arc<Host>,
    /// What the lock is held for: the command line, or the reason that was given.
    pub why: String,
    /// What a profile's own record says beyond this, by the names of its keys. Never judged.
    pub facts: Vec<(String, String)>,
}

impl Holder {
    /// A fact by the name of its key.
    pub fn fact(&self, key: &str) -> Option<&str> {
        let found = self.facts.iter().find(|(name, _)| name == key);
        found.map(|(_, value)| value.as_str())
    }

    pub(crate) fn set_fact(&mut self, key: &str, value: String) {
        match self.facts.iter_mut().find(|(known, _)| known == key) {
            Some((_, known)) => *known = value,
            None => self.facts.push((key.to_owned(), value)),
        }
    }

    /// Says what the slots of the lock stand for. No member has more than one line.
    pub fn set_members(&mut self, members: &[String]) {
        let lines = members.iter().flat_map(|member| [member.as_str(), "\n"]);
        self.set_fact(MEMBERS, lines.collect());
    }

    /// What the slots of the lock stand for; none if its caller did not know.
    pub fn members(&self) -> impl Iterator<Item = &str> {
        let members = self.fact(MEMBERS).unwrap_or_default();
        // An earlier build wrote them in one line without an end.
        let (members, between) = match members.strip_suffix('\n') {
            Some(lines) => (lines, "\n"),
            None => (members, ", "),
        };
        members.split(between).filter(|member| !member.is_empty())
    }

    /// The member for which a hold stands, once it is granted. `slot` is its number.
    pub(crate) fn member(&self, slot: Option<u32>) -> Option<&str> {
        // A version that recorded no member gave the one that the number names.
        let by_number = || self.members().nth(usize::try_from(slot?).ok()?);
        self.fact(MEMBER).or_else(by_number)
    }

    pub(crate) fn set_member(&mut self, member: String) {
        self.set_fact(MEMBER, member);
    }

    /// Says which process called for a detached hold. A process whose start is not known is not recorded: another one may
    /// get its number.
    pub fn set_caller(&mut self, caller: Process) {
        if let Some(started) = caller.started {
            self.set_fact(CALLER, format!("{}:{started}", caller.pid));
        }
    }

    /// The process that called for a detached hold; `None` if that is not recorded. Its number means something on the
    /// host of this holder.
    pub fn caller(&self) -> Option<Process> {
        let (pid, started) = self.fact(CALLER)?.split_once(':')?;
        Some(Process {
            pid: pid.parse().ok()?,
            started: Some(started.parse().ok()?),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::borrow::ToOwned;
    use alloc::vec;

    #[test]
    fn a_fact_is_found_by_its_own_key() {
        let fact = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        let holder = Holder {
            request_id: RequestId::as_recorded("a"),
            actor: String::new(),
            process: None,
            command: None,
            host: Arc::default(),
            why: String::new(),
            facts: vec![fact("branch", "main"), fact("mode", "write")],
        };
        assert_eq!(holder.fact("mode"), Some("write"));
        assert_eq!(holder.fact("branch"), Some("main"));
        assert_eq!(holder.fact("owner"), None);
    }
}
