//! Every exit code of the binary, and the ways to end it.

use crate::{signals, speech};

/// The documented table. `run` passes its command's own code through beside these.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    /// Done.
    Success,
    /// Something failed that has no code of its own.
    General,
    /// The arguments make no sense; nothing was touched.
    BadArguments,
    /// Some of it was done, and some could not be.
    Partial,
    /// A precondition does not hold: the lock is held, or stale and not taken, or unreadable.
    Precondition,
    /// Something that the call names is not there.
    NotFound,
    /// The caller is not the owner.
    Conflict,
    /// The system refuses, or the place is not safe.
    Permission,
    /// The work took longer than it may.
    MaxRuntime,
    /// The store cannot be used.
    StoreUnavailable,
    /// The run was superseded.
    Superseded,
    /// The lock was lost while the work went on.
    LockLost,
    /// Waiting would never end.
    Deadlock,
    /// The command exists and cannot be run.
    CannotRun,
    /// The command does not exist.
    CommandNotFound,
    /// This process was asked to end by a signal.
    Signalled(i32),
    /// The code of the command.
    Command(i32),
    /// The command died by this signal, and so do we.
    DieBy(i32),
    /// `flock` could not do what was asked.
    #[cfg_attr(windows, allow(dead_code, reason = "flock is refused there"))]
    Flock(SysExit),
}

/// The codes of sysexits.h, with which `flock` answers as flock(1) does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(windows, allow(dead_code, reason = "flock is refused there"))]
pub(crate) enum SysExit {
    /// The words make no call.
    Usage,
    /// The descriptor or file cannot be locked.
    Data,
    /// The file cannot be opened.
    NoInput,
    /// The command cannot be run.
    Unavailable,
    /// The system has none left of something.
    System,
    /// There is no place to make the file in.
    CannotCreate,
}

impl Exit {
    /// The number that the caller sees.
    pub(crate) fn code(self) -> i32 {
        match self {
            Self::Success => 0,
            Self::General => 1,
            Self::BadArguments => 2,
            Self::Partial => 3,
            Self::Precondition => 4,
            Self::NotFound => 5,
            Self::Conflict => 6,
            Self::Permission => 7,
            Self::MaxRuntime => 10,
            Self::StoreUnavailable => 12,
            Self::Superseded => 79,
            Self::LockLost => 80,
            Self::Deadlock => 81,
            Self::CannotRun => 126,
            Self::CommandNotFound => 127,
            Self::Signalled(signal) | Self::DieBy(signal) => 128 + signal,
            Self::Command(code) => code,
            Self::Flock(SysExit::Usage) => 64,
            Self::Flock(SysExit::Data) => 65,
            Self::Flock(SysExit::NoInput) => 66,
            Self::Flock(SysExit::Unavailable) => 69,
            Self::Flock(SysExit::System) => 71,
            Self::Flock(SysExit::CannotCreate) => 73,
        }
    }
}

impl From<tenure::envelope::Exit> for Exit {
    fn from(exit: tenure::envelope::Exit) -> Self {
        use tenure::envelope::Exit as Said;
        match exit {
            Said::Success => Self::Success,
            Said::BadArguments => Self::BadArguments,
            Said::Partial => Self::Partial,
            Said::Precondition => Self::Precondition,
            Said::NotFound => Self::NotFound,
            Said::Conflict => Self::Conflict,
            Said::Permission => Self::Permission,
            Said::Timeout => Self::MaxRuntime,
            Said::StoreUnavailable => Self::StoreUnavailable,
            Said::Superseded => Self::Superseded,
            Said::LockLost => Self::LockLost,
            Said::Deadlock => Self::Deadlock,
            Said::Signalled(signal) => Self::Signalled(signal.into()),
            Said::Own(code) => Self::Command(code.into()),
            // Or a code of a later version of the library.
            Said::General | _ => Self::General,
        }
    }
}

/// Ends the process, once what was said has been written or has had its time.
pub(crate) fn leave(exit: Exit) -> ! {
    let _ = speech::finish();
    leave_at_once(exit)
}

/// The same for somebody who insists.
pub(crate) fn leave_at_once(exit: Exit) -> ! {
    if let Exit::DieBy(signal) = exit {
        // A shell sees 128 + signal either way; a parent that looks closer sees the truth.
        signals::die_by(signal);
    }
    std::process::exit(exit.code())
}

#[cfg(test)]
mod tests {
    use super::{Exit, SysExit};

    #[test]
    fn the_table_is_the_documented_one() {
        for (exit, code) in [
            (Exit::Success, 0),
            (Exit::General, 1),
            (Exit::BadArguments, 2),
            (Exit::Partial, 3),
            (Exit::Precondition, 4),
            (Exit::NotFound, 5),
            (Exit::Conflict, 6),
            (Exit::Permission, 7),
            (Exit::MaxRuntime, 10),
            (Exit::StoreUnavailable, 12),
            (Exit::Superseded, 79),
            (Exit::LockLost, 80),
            (Exit::Deadlock, 81),
            (Exit::CannotRun, 126),
            (Exit::CommandNotFound, 127),
            (Exit::Signalled(1), 129),
            (Exit::Signalled(2), 130),
            (Exit::Signalled(15), 143),
            (Exit::Command(17), 17),
            (Exit::Flock(SysExit::Usage), 64),
            (Exit::Flock(SysExit::Data), 65),
            (Exit::Flock(SysExit::NoInput), 66),
            (Exit::Flock(SysExit::Unavailable), 69),
            (Exit::Flock(SysExit::System), 71),
            (Exit::Flock(SysExit::CannotCreate), 73),
        ] {
            assert_eq!(exit.code(), code, "{exit:?}");
        }
    }
}
