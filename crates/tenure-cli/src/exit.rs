//! The ways to end the process. The table of exit codes is the library's.

use crate::{signals, speech};
pub(crate) use tenure_engine::envelope::Exit;

/// How the process ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ending {
    /// With a code of ours.
    Exit(Exit),
    /// With the code of the command, which has 32 bits on Windows.
    Command(i32),
    /// The command died by this signal, and so do we.
    DieBy(i32),
}

impl Ending {
    /// The ending with this code for each failure of tenure itself. A code of the command, a signal and what the caller
    /// has chosen for a held lock (`-E`) stay.
    pub(crate) fn own(self, code: Option<u8>) -> Self {
        let is_chosen = matches!(
            self,
            Self::Exit(Exit::Success | Exit::Signalled(_) | Exit::Own(_))
                | Self::Command(_)
                | Self::DieBy(_)
        );
        let code = code.filter(|_| !is_chosen);
        code.map_or(self, |code| Self::Exit(Exit::Own(code)))
    }

    /// The number that the caller sees.
    pub(crate) fn code(self) -> i32 {
        match self {
            Self::Exit(exit) => exit.code().into(),
            Self::Command(code) => code,
            Self::DieBy(signal) => 128 + signal,
        }
    }
}

impl From<Exit> for Ending {
    fn from(exit: Exit) -> Self {
        Self::Exit(exit)
    }
}

/// The end of a process that this signal asked to end.
pub(crate) fn signalled(number: i32) -> Exit {
    Exit::Signalled(u8::try_from(number).unwrap_or(u8::MAX))
}

/// The codes of sysexits.h, with which `flock` answers as flock(1) does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(windows, allow(dead_code, reason = "flock is refused there"))]
pub(crate) enum SysExit {
    /// The words are no valid call.
    Usage,
    /// The descriptor or file cannot be locked.
    Data,
    /// The file cannot be opened.
    NoInput,
    /// The command cannot be run.
    Unavailable,
    /// The system has run out of something.
    System,
    /// The file cannot be created where it should be.
    CannotCreate,
}

#[cfg_attr(windows, allow(dead_code, reason = "flock is refused there"))]
impl SysExit {
    pub(crate) fn exit(self) -> Exit {
        Exit::Own(match self {
            Self::Usage => 64,
            Self::Data => 65,
            Self::NoInput => 66,
            Self::Unavailable => 69,
            Self::System => 71,
            Self::CannotCreate => 73,
        })
    }
}

/// Where this process says that it ends in order, with all its work done.
#[cfg(target_os = "linux")]
static LAST_WORD: std::sync::OnceLock<std::os::fd::OwnedFd> = std::sync::OnceLock::new();

#[cfg(target_os = "linux")]
pub(crate) fn speak_last_word_to(descriptor: std::os::fd::OwnedFd) {
    let _ = LAST_WORD.set(descriptor);
}

/// Ends the process, once all messages are written or their write has timed out.
pub(crate) fn leave(ending: impl Into<Ending>) -> ! {
    let _ = speech::finish();
    #[cfg(target_os = "linux")]
    if let Some(descriptor) = LAST_WORD.get() {
        let _ = rustix::io::write(descriptor, &[1]);
    }
    leave_at_once(ending)
}

/// Ends the process without waiting for messages: for a caller who insists.
pub(crate) fn leave_at_once(ending: impl Into<Ending>) -> ! {
    let ending = ending.into();
    if let Ending::DieBy(signal) = ending {
        // A shell sees 128 + signal either way; a parent that reads the status sees the signal.
        signals::die_by(signal);
    }
    std::process::exit(ending.code())
}

#[cfg(test)]
mod tests {
    use super::{Ending, Exit, SysExit, signalled};

    #[test]
    fn own_code_stands_for_failures_of_tenure_alone() {
        let own = |ending: Ending| ending.own(Some(125)).code();
        for exit in [
            Exit::LockLost,
            Exit::Precondition,
            Exit::BadArguments,
            Exit::General,
        ] {
            assert_eq!(own(exit.into()), 125, "{exit:?}");
            assert_eq!(Ending::from(exit).own(None).code(), i32::from(exit.code()));
        }
        for (ending, code) in [
            (Exit::Success.into(), 0),
            (Exit::Own(75).into(), 75),
            (signalled(2).into(), 130),
            (Ending::DieBy(9), 137),
            (Ending::Command(1), 1),
            (Ending::Command(80), 80),
        ] {
            assert_eq!(own(ending), code, "{ending:?}");
        }
    }

    #[test]
    fn every_ending_has_its_documented_code() {
        for (ending, code) in [
            (Exit::LockLost.into(), 80),
            (signalled(1).into(), 129),
            (signalled(2).into(), 130),
            (signalled(15).into(), 143),
            (Ending::DieBy(9), 137),
            (Ending::Command(17), 17),
            (Ending::Command(-1), -1),
            (SysExit::Usage.exit().into(), 64),
            (SysExit::Data.exit().into(), 65),
            (SysExit::NoInput.exit().into(), 66),
            (SysExit::Unavailable.exit().into(), 69),
            (SysExit::System.exit().into(), 71),
            (SysExit::CannotCreate.exit().into(), 73),
        ] {
            assert_eq!(ending.code(), code, "{ending:?}");
        }
    }
}
