//! Ends the work of a run whose supervisor is dead, or continues a holder that is stopped, for an operator who asks for
//! exactly that.
//!
//! No other place acts on a number which was read from a record. **No other process is ever hit**. Whoever may write a
//! lock file may write any number into it, with the right start time, boot and PID namespace. So what a file says
//! proves nothing, and a number alone is never signalled:
//! - The command keeps the byte of the claim locked through a descriptor of its own, as the kernel shows it, and its initial
//!   environment names this hold (`TENURE_HELD`): a descriptor can be sent to a stranger, and an environment cannot. Locks on servers have no bytes;
//!   there the environment alone proves it. What cannot be read, or is not so, is left alone and named.
//! - A handle (pidfd) is opened first. Then the process that has this number is compared with the
//!   record, by its start time. Then the handle is asked whether its process still lives. While it
//!   lives no other process can have its number, so the compared process was that of the handle. From
//!   then on only the handle is used.
//! - A holder that is continued ([`Holder`]) made that environment for others and has it not itself. So there the locked byte
//!   alone proves it, and SIGCONT alone is sent.
//! - A descendant is opened first as well. Then its parent's number is read, then both handles are
//!   asked whether they live. If they do, that number was the parent's own, and the parent is proven
//!   already.
//! - A member of the command's process group is proven in the same way, by another proven member. While a
//!   group has a member, no other group has its number. The group may be one that the command shares with strangers
//!   (a pipeline in a terminal), unless the command leads it. There a member also has to name the hold in its
//!   environment (`TENURE_HELD`).
//!
//! A process that lost its parent before it was looked at, and has left the group, cannot be proven. It
//! is left alone, and the liveness lock tells whether it still keeps the lock.
//!
//! `supervise` decides when to ask and by which signal, as for a run that has its supervisor. A process
//! that still has its parent is left to it, as in `descendants`; SIGKILL is for all.

use super::{Action, Event, Supervision, Terms};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use std::fs;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::time::{Duration, Instant};
use tenure_core::Process;
use tenure_engine::inherited;
use tenure_engine::inherited::Folder;
use tenure_os::clock::{self, instant};
use tenure_os::process::start_time;
use tenure_store::file::{is_kept_by, poll_readable};

/// How often new descendants are looked for.
const LOOK: Duration = Duration::from_millis(20);

/// How long SIGKILL may take. A process in a call of the kernel may take longer.
const KILL_TAKES: Duration = Duration::from_secs(5);

/// How many processes are kept open at a time; each costs a descriptor.
const PROVEN_MAX: usize = 512;

/// Why no process was signalled.
#[derive(Debug)]
pub(crate) enum Unproven {
    /// The recorded command has ended.
    Gone,
    /// The caller is a part of the work.
    Own,
    /// The system does not show enough.
    Unseen(Errno),
    /// Process that does not keep the byte of the claim.
    KeepsNothing,
    /// Process whose environment does not name the hold.
    NamesNothing,
}

/// How the work ended.
#[derive(Debug)]
pub(crate) struct OrphanEnd {
    /// The processes that have ended, by the numbers that they had.
    pub(crate) gone: Vec<u32>,
    /// The processes that have not ended.
    pub(crate) left: Vec<u32>,
    /// Whether this user may not signal the command.
    pub(crate) refused: bool,
}

struct Proven {
    pid: Pid,
    handle: OwnedFd,
    of_group: bool,
    asked: bool,
}

impl Proven {
    /// Whether it runs, as its handle says. Not knowing it counts as no: nothing is proven by it then.
    fn lives(&self) -> bool {
        lives(&self.handle)
    }
}

fn lives(handle: &OwnedFd) -> bool {
    let mut fds = [PollFd::new(handle, PollFlags::IN)];
    let at_once = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    loop {
        match poll(&mut fds, Some(&at_once)) {
            Err(Errno::INTR) => {}
            answered => return answered == Ok(0),
        }
    }
}

fn number(pid: Pid) -> u32 {
    pid.as_raw_nonzero().get().unsigned_abs()
}

/// The hold of an orphan, as the environment of its processes names it.
#[derive(Debug, Clone)]
pub(crate) struct HoldOf {
    /// The fencing token.
    pub(crate) token: u64,
    /// The folder of the lock.
    pub(crate) folder: PathBuf,
    /// The lock.
    pub(crate) name: String,
    /// The file in which the claim keeps the byte of its ticket; `None` for locks on servers.
    pub(crate) byte: Option<(PathBuf, u64)>,
}

impl HoldOf {
    /// Whether a process has inherited this hold, as far as its environment is shown.
    fn is_named_by(&self, pid: Pid) -> bool {
        let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        let mut variables = environment.split(|byte| *byte == 0);
        let held = variables.find_map(|variable| {
            let (name, value) = std::str::from_utf8(variable).ok()?.split_once('=')?;
            (name == inherited::HELD).then_some(value)
        });
        let holds = held.map(inherited::parse).unwrap_or_default();
        let is_it = |hold: &inherited::Hold| {
            hold.token == self.token
                && hold.name == self.name
                && Folder::is_same(&hold.folder, &self.folder)
        };
        holds.iter().any(is_it)
    }

    /// Proves that a process keeps the byte of the claim.
    fn is_kept_by(&self, pid: Pid) -> Result<(), Unproven> {
        let (list, ticket) = self.byte.as_ref().ok_or(Unproven::KeepsNothing)?;
        match is_kept_by(number(pid), list, *ticket) {
            Ok(true) => Ok(()),
            Ok(false) => Err(Unproven::KeepsNothing),
            Err(error) => {
                let errno = Errno::from_io_error(&error).unwrap_or(Errno::ACCESS);
                Err(Unproven::Unseen(errno))
            }
        }
    }

    /// Proves that a process is the work of this hold. Its handle is asked afterwards whether it lives.
    fn prove(&self, pid: Pid) -> Result<(), Unproven> {
        if self.byte.is_some() {
            self.is_kept_by(pid)?;
        }
        if self.is_named_by(pid) {
            Ok(())
        } else {
            Err(Unproven::NamesNothing)
        }
    }
}

/// Opens the process of a record and proves by `proof` that it is the one. The caller has found that the record was made on this
/// boot and in this PID namespace.
fn open(
    process: &Process,
    proof: impl FnOnce(Pid) -> Result<(), Unproven>,
) -> Result<(Pid, OwnedFd), Unproven> {
    let pid = i32::try_from(process.pid).ok().and_then(Pid::from_raw);
    let pid = pid.ok_or(Unproven::Gone)?;
    let handle = match pidfd_open(pid, PidfdFlags::empty()) {
        Ok(handle) => handle,
        Err(Errno::SRCH) => return Err(Unproven::Gone),
        Err(errno) => return Err(Unproven::Unseen(errno)),
    };
    let started = start_time(process.pid);
    let proof = proof(pid);
    if !lives(&handle) {
        return Err(Unproven::Gone);
    }
    match (process.started, started) {
        (Some(recorded), Some(started)) if recorded == started => {}
        (Some(_), Some(_)) => return Err(Unproven::Gone),
        _ => return Err(Unproven::Unseen(Errno::ACCESS)),
    }
    proof?;
    Ok((pid, handle))
}

/// The process of a holder, proven to keep the byte of its claim.
pub(crate) struct Holder(OwnedFd);

impl Holder {
    /// Opens it, and sends it nothing.
    pub(crate) fn open(process: &Process, hold: &HoldOf) -> Result<Self, Unproven> {
        let (_, handle) = open(process, |pid| hold.is_kept_by(pid))?;
        Ok(Self(handle))
    }

    /// Continues it.
    pub(crate) fn goes_on(&self) -> Result<(), Errno> {
        match pidfd_send_signal(&self.0, Signal::CONT) {
            // The process has ended, as it was to.
            Ok(()) | Err(Errno::SRCH) => Ok(()),
            Err(errno) => Err(errno),
        }
    }
}

/// The work of one orphan, as far as it is proven.
pub(crate) struct Orphan {
    command: Pid,
    hold: HoldOf,
    proven: Vec<Proven>,
    group: Option<Pid>,
    gone: Vec<u32>,
    /// What is being sent.
    asking: Option<Signal>,
    refused: bool,
    /// Whether this process is a part of the work.
    has_caller: bool,
}

impl Orphan {
    /// Opens the recorded command and all that descends from it. Signals no process.
    pub(crate) fn open(command: &Process, hold: HoldOf) -> Result<Self, Unproven> {
        let mut group = None;
        let (pid, handle) = open(command, |pid| {
            group = relations(pid).and_then(|seen| seen.group);
            hold.prove(pid)
        })?;
        let mut orphan = Self {
            command: pid,
            hold,
            proven: vec![Proven {
                pid,
                handle,
                of_group: group.is_some(),
                asked: false,
            }],
            group,
            gone: Vec::new(),
            asking: None,
            refused: false,
            has_caller: false,
        };
        orphan.find();
        if orphan.has_caller {
            return Err(Unproven::Own);
        }
        Ok(orphan)
    }

    /// The processes that are proven now, by their numbers.
    pub(crate) fn numbers(&self) -> Vec<u32> {
        self.proven.iter().map(|one| number(one.pid)).collect()
    }

    /// Asks, insists, kills, as the terms say, until nothing is left of what could be proven.
    pub(crate) fn end(mut self, terms: Terms) -> OrphanEnd {
        let began = instant();
        let mut supervision = Supervision::new(terms);
        let mut killed = None;
        let (by, within) = (Box::default(), None);
        let actions = supervision.on(Event::CancelRequested { by, within }, Duration::ZERO);
        self.follow(&actions, &mut killed);
        loop {
            self.find();
            self.send();
            if self.proven.is_empty() || self.refused {
                break;
            }
            if killed.is_some_and(|at: Instant| clock::since(at) > KILL_TAKES) {
                break;
            }
            let since = instant().saturating_duration_since(began);
            if supervision.next_time().is_some_and(|step| since >= step) {
                let actions = supervision.on(Event::Time, since);
                self.follow(&actions, &mut killed);
                continue;
            }
            let handles: Vec<_> = self.proven.iter().map(|one| one.handle.as_fd()).collect();
            let _ = poll_readable(&handles, LOOK, None);
        }
        OrphanEnd {
            gone: self.gone,
            left: self.proven.iter().map(|one| number(one.pid)).collect(),
            refused: self.refused,
        }
    }

    fn follow(&mut self, actions: &[Action], killed: &mut Option<Instant>) {
        for action in actions {
            let Action::Ask(signal) = action else {
                continue;
            };
            self.asking = Signal::from_named_raw(*signal);
            if self.asking == Some(Signal::KILL) {
                killed.get_or_insert_with(instant);
            }
            for one in &mut self.proven {
                one.asked = false;
            }
        }
    }

    /// Forgets the processes that have ended, and opens the new ones.
    fn find(&mut self) {
        loop {
            let gone = &mut self.gone;
            self.proven.retain(|one| {
                let lives = one.lives();
                if !lives {
                    gone.push(number(one.pid));
                }
                lives
            });
            if self.proven.is_empty() || !self.find_once() {
                return;
            }
        }
    }

    /// Looks through all processes once. Returns whether any was found.
    fn find_once(&mut self) -> bool {
        let before = self.proven.len();
        let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
        let numbers = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        for pid in numbers.filter_map(Pid::from_raw) {
            let known = self.proven.iter().any(|one| one.pid == pid);
            if known || self.proven.len() >= PROVEN_MAX || self.place_of(pid).is_none() {
                continue;
            }
            let Ok(handle) = pidfd_open(pid, PidfdFlags::empty()) else {
                continue;
            };
            // Look once more, at the very process of the handle.
            let Some(place) = self.place_of(pid).filter(|_| lives(&handle)) else {
                continue;
            };
            if pid == rustix::process::getpid() {
                self.has_caller = true;
                continue;
            }
            self.proven.push(Proven {
                pid,
                handle,
                of_group: place.of_group,
                // The whole group was asked together; the parent of a process that is born later was
                // asked.
                asked: place.of_group && self.asking.is_some_and(|signal| signal != Signal::KILL),
            });
        }
        self.proven.len() > before
    }

    /// What binds the process of this number to the work; `None` if nothing does.
    fn place_of(&self, pid: Pid) -> Option<WorkTie> {
        let seen = relations(pid)?;
        let of_group = self.group.is_some()
            && seen.group == self.group
            && (self.group == Some(self.command) || self.hold.is_named_by(pid));
        // Read first: the processes that prove it are asked afterwards whether they live.
        let has_parent = seen.parent.is_some_and(|parent| self.is_proven(parent));
        let in_group = of_group && self.group_is_ours();
        (has_parent || in_group).then_some(WorkTie { of_group: in_group })
    }

    /// Whether a number is that of a proven process, which lives.
    fn is_proven(&self, wanted: Pid) -> bool {
        let mut proven = self.proven.iter();
        proven.any(|one| one.pid == wanted && one.lives())
    }

    /// Whether a proven process is in the group. As long as it is, the group's number is that group's.
    fn group_is_ours(&self) -> bool {
        let mut members = self.proven.iter().filter(|one| one.of_group);
        members.any(|one| {
            relations(one.pid).is_some_and(|seen| seen.group == self.group) && one.lives()
        })
    }

    /// Signals each process that has to be signalled and was not yet.
    fn send(&mut self) {
        let Some(signal) = self.asking else {
            return;
        };
        let due: Vec<bool> = self
            .proven
            .iter()
            .map(|one| {
                let is_left_to_parent = || {
                    let parent = relations(one.pid).and_then(|seen| seen.parent);
                    parent.is_some_and(|parent| self.is_proven(parent))
                };
                let is_due = signal == Signal::KILL
                    || one.pid == self.command
                    || one.of_group
                    || !is_left_to_parent();
                is_due && !one.asked
            })
            .collect();
        for (one, is_due) in self.proven.iter_mut().zip(due) {
            if !is_due {
                continue;
            }
            one.asked = true;
            match pidfd_send_signal(&one.handle, signal) {
                // A process that this user may not signal is named when the rest has ended.
                Err(Errno::PERM) => self.refused |= one.pid == self.command,
                // A stopped process cannot answer.
                _ => drop(pidfd_send_signal(&one.handle, Signal::CONT)),
            }
        }
    }
}

/// The parent and the group of a process, by numbers; `None` for processes that cannot be seen from
/// here.
struct Relations {
    parent: Option<Pid>,
    group: Option<Pid>,
}

/// Read at one go from `/proc/PID/stat`.
fn relations(pid: Pid) -> Option<Relations> {
    relations_in(&fs::read(format!("/proc/{pid}/stat")).ok()?)
}

/// The name in it may contain anything, so fields are counted from the last closing parenthesis. A process
/// that is just being collected has left its group already, and -1 is shown for that.
fn relations_in(stat: &[u8]) -> Option<Relations> {
    let end = stat.iter().rposition(|byte| *byte == b')')?;
    let rest = std::str::from_utf8(stat.get(end + 1..)?).ok()?;
    let mut fields = rest.split_ascii_whitespace().skip(1);
    let mut next = || fields.next()?.parse().ok();
    let (parent, group): (i32, i32) = (next()?, next()?);
    let seen = |number: i32| Pid::from_raw(number.max(0));
    Some(Relations {
        parent: seen(parent),
        group: seen(group),
    })
}

/// What binds a process to the work.
struct WorkTie {
    of_group: bool,
}

/// Whether a process ignores a signal, as far as that is shown. Only what is sent depends on it.
pub(crate) fn ignores(pid: u32, signal: i32) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    let bit = u32::try_from(signal - 1)
        .ok()
        .and_then(|bit| 1_u64.checked_shl(bit));
    mask.zip(bit).is_some_and(|(mask, bit)| mask & bit != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_is_being_collected_is_in_no_group() {
        let seen = relations_in(b"7 (a) b) Z 5 -1 -1 0 -1 0").map(|it| (it.parent, it.group));
        assert_eq!(seen, Some((Pid::from_raw(5), None)));
        let seen = relations_in(b"7 (sh) S 5 6 6 0 -1 0").map(|it| (it.parent, it.group));
        assert_eq!(seen, Some((Pid::from_raw(5), Pid::from_raw(6))));
    }
}
