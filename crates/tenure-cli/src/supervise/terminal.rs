//! The process group in which the command runs, and the one that has the terminal.
//!
//! - stdin, stdout and stderr are one terminal and we lead its foreground group. The command gets a group
//!   of its own and the terminal with it, as a shell does for a job (it does not lead the group: `signals::Leader`). Ctrl-C and Ctrl-Z then reach the
//!   command and all of its children, and not us.
//! - Any other terminal (a pipeline, a script, a job in the background). The command stays in our group,
//!   where the shell has put us both, and keys reach us together.
//! - No terminal: a group of its own, so that all of it can be ended together.

use crate::signals;
use rustix::fs::{Mode, OFlags};
use rustix::process::{Pid, getpid};
use rustix::termios::{isatty, tcgetpgrp, tcsetpgrp};
use std::io::{stderr, stdin, stdout};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use tenure_os::process::group_of;

/// Where the command runs.
#[derive(Debug)]
pub(super) enum Placement {
    /// In a group of its own that gets this terminal.
    Foreground(OwnedFd),
    /// In our group, on a terminal.
    Shared,
    /// In a group of its own, without a terminal.
    Own,
}

impl Placement {
    /// Looks at the surroundings.
    pub(super) fn find() -> Self {
        let (input, output, errors) = (stdin(), stdout(), stderr());
        let all = [input.as_fd(), output.as_fd(), errors.as_fd()];
        let terminals: Vec<BorrowedFd<'_>> = all.into_iter().filter(|fd| isatty(fd)).collect();
        // A terminal that is not our session's own cannot send us anything.
        let Some(foreground) = terminals.iter().find_map(|fd| tcgetpgrp(fd).ok()) else {
            return Self::without_descriptors();
        };
        let same = terminals.len() == all.len() && same_terminal(&all);
        let leads = group_of(getpid()) == Some(getpid()) && foreground == getpid();
        match input.as_fd().try_clone_to_owned() {
            Ok(terminal) if same && leads => Self::Foreground(terminal),
            _ => Self::Shared,
        }
    }

    /// Decides without a descriptor of our terminal. A terminal may be there all the same, and the
    /// command may open it by name. The kernel would stop it for that in a group of its own.
    fn without_descriptors() -> Self {
        let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
        match rustix::fs::open("/dev/tty", flags, Mode::empty()) {
            Ok(_) => Self::Shared,
            Err(_) => Self::Own,
        }
    }

    /// Whether a group is made for the command.
    pub(super) fn own_group(&self) -> bool {
        !matches!(self, Self::Shared)
    }

    /// Whether the terminal is handed to the command.
    pub(super) fn hands_over(&self) -> bool {
        matches!(self, Self::Foreground(_))
    }

    /// Gives the terminal to the command's group.
    pub(super) fn give(&self, group: Pid) {
        if let Self::Foreground(terminal) = self {
            // A command that has ended already has no group any more; then nothing is given.
            let _ = signals::without_ttou(|| tcsetpgrp(terminal, group));
        }
    }

    /// Takes the terminal back, if the command's group has it.
    pub(super) fn take_back(&self, group: Pid) {
        if let Self::Foreground(terminal) = self
            && self.has_it(group)
        {
            // Our process leads its group, or the terminal would not have been handed over.
            let _ = signals::without_ttou(|| tcsetpgrp(terminal, getpid()));
        }
    }

    /// Whether the group of this process, which leads it, has the terminal.
    pub(super) fn is_ours(&self) -> bool {
        self.has_it(getpid())
    }

    /// Whether this group has the terminal.
    pub(super) fn has_it(&self, group: Pid) -> bool {
        match self {
            Self::Foreground(terminal) => tcgetpgrp(terminal).is_ok_and(|now| now == group),
            Self::Shared | Self::Own => false,
        }
    }
}

fn same_terminal(fds: &[BorrowedFd<'_>]) -> bool {
    let mut devices = fds
        .iter()
        .map(|fd| rustix::fs::fstat(fd).map(|stat| stat.st_rdev));
    match devices.next() {
        Some(Ok(first)) => devices.all(|device| device == Ok(first)),
        _ => false,
    }
}
