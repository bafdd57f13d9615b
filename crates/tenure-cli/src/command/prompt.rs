//! Asks the person at the terminal.
//!
//! Input from before the question is no answer to it.

use crate::signals::{SignalSleeper, Signals, Stream, stop_asked, write_unless_stopped};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::termios::{QueueSelector, isatty, tcflush};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;
use tenure_os::clock::instant;
use tenure_store::Wake;
use tenure_store::file::Sleeper;

/// How long the call waits for an answer.
const PATIENCE: Duration = Duration::from_secs(30);

/// More than any answer has.
const ANSWER_BYTES_MAX: usize = 4096;

/// The person's reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reply {
    /// A clear yes.
    Yes,
    /// Anything else, silence included.
    No,
    /// A signal that asks this process to end.
    Interrupted,
}

/// Whether a person can be asked.
pub(crate) fn can_ask() -> bool {
    isatty(std::io::stdin()) && isatty(std::io::stderr())
}

/// Asks on stderr and reads a line from stdin.
pub(crate) fn ask(question: &str, signals: Signals) -> Reply {
    let stdin = std::io::stdin();
    let stdin = stdin.as_fd();
    let _ = tcflush(stdin, QueueSelector::IFlush);
    write(&format!("{question} [y/N] "));
    let until = instant().checked_add(PATIENCE);
    let sleeper = SignalSleeper(signals);
    let mut typed = Vec::new();
    loop {
        // Longer than the whole patience, so that only `until` ends the wait.
        let woken = sleeper.poll(&[stdin], PATIENCE * 2, until);
        if stop_asked().is_some() || matches!(woken, Ok(Wake::Interrupted)) {
            write("\n");
            return Reply::Interrupted;
        }
        match woken {
            Ok(Wake::Expired) => {
                write(&format!(
                    "\nno answer within {} s, which is a no\n",
                    PATIENCE.as_secs()
                ));
                return Reply::No;
            }
            Ok(_) if !has_input(stdin) => continue,
            Ok(_) => {}
            Err(_) => return Reply::No,
        }
        let mut bytes = [0; 256];
        match rustix::io::read(stdin, &mut bytes) {
            Ok(0) => {
                write("\n");
                return Reply::No;
            }
            Ok(read) => typed.extend_from_slice(bytes.get(..read).unwrap_or_default()),
            Err(rustix::io::Errno::INTR | rustix::io::Errno::AGAIN) => continue,
            Err(_) => return Reply::No,
        }
        if let Some(end) = typed.iter().position(|byte| matches!(byte, b'\n' | b'\r')) {
            return reply(typed.get(..end).unwrap_or_default());
        }
        if typed.len() > ANSWER_BYTES_MAX {
            return Reply::No;
        }
    }
}

fn reply(line: &[u8]) -> Reply {
    let line = line.trim_ascii();
    if line.eq_ignore_ascii_case(b"y") || line.eq_ignore_ascii_case(b"yes") {
        Reply::Yes
    } else {
        Reply::No
    }
}

/// Whether there is input. The wake-up may have had another reason.
fn has_input(stdin: BorrowedFd<'_>) -> bool {
    let mut polled = [PollFd::from_borrowed_fd(stdin, PollFlags::IN)];
    let at_once = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    poll(&mut polled, Some(&at_once)).is_ok_and(|ready| ready > 0)
}

/// Writes to stderr. On a stopped terminal it waits until the output goes on, or a signal comes.
fn write(text: &str) {
    let _ = write_unless_stopped(Stream::Err, text.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_clear_yes_is_one() {
        for yes in ["y", "Y", "yes", "YES", " y "] {
            assert_eq!(reply(yes.as_bytes()), Reply::Yes, "{yes:?}");
        }
        for no in ["", "n", "no", "yy", "yess", "1", "true", "y n", "\u{1b}y"] {
            assert_eq!(reply(no.as_bytes()), Reply::No, "{no:?}");
        }
    }
}
