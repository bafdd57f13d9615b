//! Finds, asks and ends what descends from a command, wherever it went.
//!
//! The process makes itself the *subreaper* of its descendants: a descendant that loses its parent
//! becomes our child, in whatever session and group it has hidden itself. So an end goes from the top
//! down. The command and its group are ended. What they leave behind comes to us and is ended, and so on,
//! until the kernel says that none is left.
//!
//! **The kernel's word** is waitid(2): it knows all children, and ECHILD means none. `/proc` only helps
//! to find the children to ask. It may show none (it is not mounted, or is that of another PID
//! namespace). Then we ask waitid about one number after the other; it answers for children of ours
//! alone. The lock stays held until it says ECHILD.
//!
//! **No other process is ever hit.** A signal goes only to a process that the kernel has just called a
//! child of ours. Only this process can collect such a child, and until then no other process has its
//! number. No number from a record is used, and none that could be out of date by now.
//!
//! **No process is asked twice.** A process that still has its parent is left to it: `timeout`, a shell
//! or a nested `tenure run` pass on what they get. A process that has lost its parent is asked by us.
//!
//! A process that had children before its command (a shell that has become tenure by `exec`) could not
//! tell them from the command's, and adopts none. Then a control group (`cgroup`) keeps together what
//! the command starts. Where no control group can be made, only the command's process group is watched.
//! That is always so on macOS, which has neither subreapers nor control groups.
//!
//! `supervise` decides when to ask and by which signal; `driver` says it here.

use super::cgroup::Cgroup;
use rustix::io::{Errno, retry_on_intr};
use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, getpid, kill_process, test_kill_process_group, waitid,
};
use std::time::Duration;
use tenure_os::clock::{instant, nap, since};
use tenure_os::process::{children, group_is_alive, group_of, start_time};

/// No process has a higher number (the kernel's `PID_MAX_LIMIT`).
const NUMBER_MAX: i32 = 4_194_304;

/// How many numbers are asked about at a time; some milliseconds.
const NUMBERS_AT_ONCE: i32 = 32_768;

/// How what descends from a command is found.
#[derive(Debug)]
enum Reach {
    /// A descendant that loses its parent comes to us.
    Adoption,
    /// All of it is in a control group.
    Cgroup(Cgroup),
    /// What has left the command's process group is not found.
    Group,
}

/// What is left of a run beside its command.
#[derive(Debug)]
pub(super) struct Descendants {
    reach: Reach,
    /// The signal by which the work is being asked to end.
    asking: Option<Signal>,
    /// The command's group got it all together.
    asked_group: bool,
    /// The processes that got it from us.
    asked: Vec<Pid>,
    /// Whether there are children that `/proc` does not show.
    hidden: bool,
    /// The hidden children that were found, and the number to go on with.
    found: Vec<Pid>,
    next_number: i32,
}

/// Whether processes can be seen at all.
fn are_visible() -> bool {
    start_time(std::process::id()).is_some()
}

/// Asks about children and collects none.
fn looked(at: &WaitId<'_>) -> Result<(), Errno> {
    let any = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    retry_on_intr(|| waitid(at.clone(), any)).map(|_| ())
}

/// Whether it is a child of ours that was not collected yet.
fn is_child(pid: Pid) -> bool {
    looked(&WaitId::Pid(pid)).is_ok()
}

/// Whether this process has no child, not even one that was not collected yet.
fn is_childless() -> Result<bool, Errno> {
    match looked(&WaitId::All) {
        Ok(()) => Ok(false),
        Err(Errno::CHILD) => Ok(true),
        Err(errno) => Err(errno),
    }
}

#[cfg(target_os = "linux")]
fn become_subreaper() -> bool {
    // Any number but zero switches it on.
    rustix::process::set_child_subreaper(Some(Pid::INIT)).is_ok()
}

/// Elsewhere a process that loses its parent goes to the system's first process.
#[cfg(not(target_os = "linux"))]
fn become_subreaper() -> bool {
    false
}

/// How long after SIGKILL the processes are waited for that belong to another user, or that the kernel keeps.
const AFTER_KILL: Duration = Duration::from_secs(2);

/// How often they are looked at.
const LOOK: Duration = Duration::from_millis(5);

/// Ends all children of this process, which is their subreaper: asks them by SIGTERM, and kills them after the grace, or as
/// soon as it `hurries`. Returns those that no signal ends.
pub(crate) fn end_all_children(grace: Duration, mut hurries: impl FnMut() -> bool) -> Vec<Pid> {
    let mut descendants = Descendants::within(Reach::Adoption);
    let began = instant();
    let mut killed = None;
    descendants.ask(Signal::TERM, false);
    loop {
        if killed.is_none() && (since(began) >= grace || hurries()) {
            killed = Some(instant());
            descendants.ask(Signal::KILL, false);
        }
        // No process is mistaken for the command: this one has our own number.
        let is_seen = descendants.look(getpid(), None);
        // What is not seen the kernel knows.
        if !is_seen && !descendants.is_left(None) {
            return Vec::new();
        }
        if killed.is_some_and(|killed| since(killed) >= AFTER_KILL) {
            return descendants.left(getpid());
        }
        nap(LOOK);
    }
}

impl Descendants {
    /// Has to be called before the command starts: processes that were orphaned before are not adopted
    /// afterwards.
    ///
    /// # Errors
    /// - The kernel does not report on children (a seccomp filter refuses waitid), so that the end of a
    ///   command could not be seen.
    pub(super) fn adopt() -> Result<Self, Errno> {
        let is_childless = is_childless()?;
        Ok(Self::within(if is_childless && become_subreaper() {
            Reach::Adoption
        } else {
            Cgroup::make().map_or(Reach::Group, Reach::Cgroup)
        }))
    }

    /// No process has been found or asked yet.
    fn within(reach: Reach) -> Self {
        Self {
            reach,
            asking: None,
            asked_group: false,
            asked: Vec::new(),
            hidden: false,
            found: Vec::new(),
            next_number: 1,
        }
    }

    /// For the next command. No process has been asked to end for its sake.
    pub(super) fn again(self) -> Self {
        Self {
            asking: None,
            asked_group: false,
            asked: Vec::new(),
            hidden: false,
            found: Vec::new(),
            ..self
        }
    }

    /// Has to be called right before a command is started, and [`Descendants::after_start`] right
    /// after.
    pub(super) fn before_start(&mut self) {
        if let Reach::Cgroup(cgroup) = &self.reach
            && !cgroup.enter()
        {
            self.reach = Reach::Group;
        }
    }

    /// An error says in words what is not as it was before the start.
    pub(super) fn after_start(&self) -> Result<(), String> {
        match &self.reach {
            Reach::Cgroup(cgroup) => cgroup.leave(),
            Reach::Adoption | Reach::Group => Ok(()),
        }
    }

    /// Whether SIGCHLD reports the end of what is left.
    pub(super) fn adopts(&self) -> bool {
        match self.reach {
            Reach::Adoption => true,
            Reach::Cgroup(_) | Reach::Group => false,
        }
    }

    /// From now on, every process that is left is asked by this signal, also one that is left later.
    /// `group` says that the command's group has got it.
    pub(super) fn ask(&mut self, signal: Signal, group: bool) {
        self.asking = Some(signal);
        self.asked_group = group;
        self.asked.clear();
    }

    /// Collects the processes that have ended, and asks those that were not asked yet. Returns whether
    /// any process is seen to be left, so that the command has to stay uncollected. If not,
    /// [`Descendants::is_left`] has the last word. `group` is the command's own group, whose members
    /// are asked all together.
    pub(super) fn look(&mut self, command: Pid, group: Option<Pid>) -> bool {
        // Unseen members count as there until they are killed. A group can be signalled by its number
        // only until the command is collected, and asked about only afterwards.
        let unseen = matches!(self.asking, Some(signal) if signal != Signal::KILL);
        let group_is_left = || {
            let number = |group: Pid| group.as_raw_nonzero().get().unsigned_abs();
            group.is_some_and(|group| {
                group_is_alive(number(group)) || (unseen && self.asked_group && !are_visible())
            })
        };
        match &self.reach {
            Reach::Adoption => {}
            Reach::Cgroup(cgroup) => {
                let left = cgroup.is_populated();
                match self.asking {
                    Some(Signal::KILL) if left => cgroup.kill(),
                    Some(signal) if left => cgroup.ask(signal, command, group, &mut self.asked),
                    Some(_) | None => {}
                }
                // Some of it may have been moved to another control group.
                return left || group_is_left();
            }
            Reach::Group => return group_is_left(),
        }
        if self.hidden && self.asking.is_some() {
            self.search(command);
        }
        let left = self.left(command);
        if let Some(signal) = self.asking {
            for &child in &left {
                let together = signal != Signal::KILL
                    && self.asked_group
                    && group.is_some()
                    && group_of(child) == group;
                if together || self.asked.contains(&child) {
                    continue;
                }
                self.asked.push(child);
                // Refused where it belongs to another user; then we can only wait for it.
                let _ = kill_process(child, signal);
                // A stopped process cannot answer.
                let _ = kill_process(child, Signal::CONT);
            }
        }
        !left.is_empty()
    }

    /// The kernel's word on whether any process is left, once the command has been collected: before
    /// that the answer would be about the command. Collects the processes that have ended.
    pub(super) fn is_left(&mut self, group: Option<Pid>) -> bool {
        if !self.adopts() {
            // If another group has got the number of an ended one by now, we wait too long.
            let exists = |group| test_kill_process_group(group) != Err(Errno::SRCH);
            return !cfg!(target_os = "macos") && !are_visible() && group.is_some_and(exists);
        }
        let ended = WaitIdOptions::EXITED | WaitIdOptions::NOHANG;
        let mut collected = false;
        let left = loop {
            // An adopted process reports its end like any other child, so no flag for clones is needed.
            match retry_on_intr(|| waitid(WaitId::All, ended)) {
                Ok(Some(_)) => collected = true,
                Err(Errno::CHILD) => break false,
                // No answer is no proof that none is left.
                Ok(None) | Err(_) => break true,
            }
        };
        if collected {
            // Other processes may have their numbers soon.
            self.asked.retain(|pid| is_child(*pid));
            self.found.retain(|pid| is_child(*pid));
        }
        self.hidden |= left;
        left
    }

    /// Whether no process that came from a command is left: each would be a child of ours, unless it has entered another PID
    /// namespace. Collects none.
    pub(super) fn none_is_left(&self) -> bool {
        self.adopts() && is_childless() == Ok(true)
    }

    /// Asks the kernel about one number after the other whether it is a child of ours, from the
    /// command's number on, and around again.
    #[cold]
    #[inline(never)]
    fn search(&mut self, command: Pid) {
        if self.next_number == 1 {
            self.next_number = command.as_raw_pid();
        }
        for _ in 0..NUMBERS_AT_ONCE {
            self.next_number = if self.next_number < NUMBER_MAX {
                self.next_number + 1
            } else {
                2
            };
            if let Some(pid) = Pid::from_raw(self.next_number)
                && !self.found.contains(&pid)
                && is_child(pid)
            {
                self.found.push(pid);
            }
        }
    }

    /// The processes that live, as far as they can be told apart from others.
    pub(super) fn survivors(&mut self, command: Pid) -> Vec<Pid> {
        match &self.reach {
            Reach::Adoption => self.left(command),
            Reach::Cgroup(cgroup) => {
                let members = cgroup.members().into_iter();
                members.filter(|pid| *pid != command).collect()
            }
            Reach::Group => Vec::new(),
        }
    }

    /// The adopted processes that live. Those that have ended are collected, so that long runs do not
    /// gather what the daemons of their commands leave behind.
    pub(super) fn left(&mut self, command: Pid) -> Vec<Pid> {
        if !self.adopts() {
            return Vec::new();
        }
        let ended = WaitIdOptions::EXITED | WaitIdOptions::NOHANG;
        loop {
            let mut left = Vec::new();
            let mut collected = false;
            let shown = children().into_iter();
            let shown = shown.filter_map(|child| i32::try_from(child).ok().and_then(Pid::from_raw));
            let mut known: Vec<Pid> = shown.collect();
            known.extend(&self.found);
            known.sort_by_key(|pid| pid.as_raw_pid());
            known.dedup();
            for child in known.into_iter().filter(|child| *child != command) {
                match retry_on_intr(|| waitid(WaitId::Pid(child), ended)) {
                    Ok(Some(_)) => {
                        collected = true;
                        self.asked.retain(|asked| *asked != child);
                        self.found.retain(|found| *found != child);
                    }
                    Ok(None) => left.push(child),
                    // No child of ours, whatever the list said.
                    Err(_) => self.found.retain(|found| *found != child),
                }
            }
            // The children of a process that has ended have come to us, perhaps after the list was
            // read.
            if !collected {
                return left;
            }
        }
    }
}
