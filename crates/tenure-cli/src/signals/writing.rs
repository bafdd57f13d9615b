//! Writes to stdout and stderr in such a way that a reader who does not read cannot make this process
//! deaf to signals.
//!
//! - **Within a bound** ([`write_within`]): for messages while something is promised. First it looks
//!   whether the stream takes anything; then the timer interrupts the write itself. Both are needed:
//!   the command shares the stream, and may fill it between the look and the write.
//! - **Until a signal comes** ([`write_unless_stopped`]): for an answer, which a slow reader must not
//!   lose. The signal interrupts the write; one that arrives just before the write begins is followed
//!   by a beat, as for any other sleep.
//!
//! The stream is never switched to non-blocking: it is shared with other processes, which would be
//! switched with it.
//!
//! `speech` and `render` decide what is said, and what follows when it cannot be.

use super::{SLEEPING, pause_if_asked, prepare_timer, set_timer, stop_asked, timer, without_ttou};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use tenure_os::clock::instant;

/// What a stream that can be written to takes at once: `PIPE_BUF`.
const PIECE_BYTES: usize = 4 << 10;

/// How long a write may last that should return at once.
const GUARD: Duration = Duration::from_millis(50);

/// How long an answer is tried after a signal has asked us to end.
const LAST_TRY: Duration = Duration::from_secs(1);

/// How long one wait lasts for a stream that another process has switched to non-blocking.
const NAP: Duration = Duration::from_millis(100);

/// Where something is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stream {
    Out,
    Err,
}

/// Not all of it was written.
#[derive(Debug)]
pub(crate) struct Unwritten {
    /// How many bytes were.
    pub(crate) written: usize,
    pub(crate) why: Why,
}

/// What kept the rest.
#[derive(Debug)]
pub(crate) enum Why {
    /// The reader did not read in time.
    Late,
    /// A signal asked us to end.
    Stopped(i32),
    /// The system refused.
    Failed(io::Error),
}

/// Writes what can be written within `patience`. Zero is allowed: then only what is taken at once.
///
/// However slow the reader is, this returns soon after `patience`.
pub(crate) fn write_within(
    stream: Stream,
    bytes: &[u8],
    patience: Duration,
) -> Result<(), Unwritten> {
    // Without a timer the look alone has to do.
    let _ = prepare_timer();
    let until = instant() + patience;
    let write = |fd: BorrowedFd<'_>| {
        let mut written = 0;
        while let Some(rest) = bytes.get(written..).filter(|rest| !rest.is_empty()) {
            let piece = rest.get(..PIECE_BYTES).unwrap_or(rest);
            let attempt = if takes_some(fd, until) {
                guarded(|| rustix::io::write(fd, piece))
            } else {
                Err(Errno::AGAIN)
            };
            let why = match attempt {
                // A reader that takes byte after byte is too slow as well.
                Ok(more) if written + more == bytes.len() || instant() < until + GUARD => {
                    written += more;
                    continue;
                }
                Ok(more) => {
                    written += more;
                    Why::Late
                }
                Err(Errno::INTR | Errno::AGAIN) if instant() < until => continue,
                Err(Errno::INTR | Errno::AGAIN) => Why::Late,
                Err(errno) => Why::Failed(errno.into()),
            };
            return Err(Unwritten { written, why });
        }
        Ok(())
    };
    // A terminal may stop the processes that write from the background. This process would be stopped
    // with its lock.
    without_ttou(|| on(stream, write))
}

/// Writes all of it, however long the reader takes. Only a signal that asks this process to end stops
/// the write too. After an earlier such signal the write still has a moment.
pub(crate) fn write_unless_stopped(stream: Stream, bytes: &[u8]) -> Result<(), Unwritten> {
    if let Some(number) = stop_asked() {
        return write_within(stream, bytes, LAST_TRY).map_err(|unwritten| match unwritten.why {
            Why::Late => Unwritten {
                why: Why::Stopped(number),
                ..unwritten
            },
            Why::Stopped(_) | Why::Failed(_) => unwritten,
        });
    }
    SLEEPING.store(true, Ordering::SeqCst);
    let result = on(stream, |fd| {
        let mut written = 0;
        while let Some(rest) = bytes.get(written..).filter(|rest| !rest.is_empty()) {
            pause_if_asked();
            if let Some(number) = stop_asked() {
                let why = Why::Stopped(number);
                return Err(Unwritten { written, why });
            }
            match rustix::io::write(fd, rest) {
                Ok(more) => written += more,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => {
                    takes_some(fd, instant() + NAP);
                }
                Err(errno) => {
                    let why = Why::Failed(errno.into());
                    return Err(Unwritten { written, why });
                }
            }
        }
        Ok(())
    });
    SLEEPING.store(false, Ordering::SeqCst);
    if timer::is_made() {
        set_timer(Duration::ZERO);
    }
    result
}

fn on<T>(stream: Stream, action: impl FnOnce(BorrowedFd<'_>) -> T) -> T {
    match stream {
        Stream::Out => action(io::stdout().as_fd()),
        Stream::Err => action(io::stderr().as_fd()),
    }
}

/// Whether the stream takes something before `until`.
fn takes_some(fd: BorrowedFd<'_>, until: Instant) -> bool {
    let mut fds = [PollFd::from_borrowed_fd(fd, PollFlags::OUT)];
    let rest = until.saturating_duration_since(instant());
    let rest = Timespec::try_from(rest).ok();
    let mut looked = poll(&mut fds, rest.as_ref());
    if looked == Err(Errno::INTR) {
        // The signal is for the caller. What it says need not come later because of that.
        looked = poll(&mut fds, Some(&Timespec::default()));
    }
    // An error is ready too: the write tells what it is.
    looked.is_ok_and(|ready| ready > 0)
}

/// Does a write that the timer interrupts.
fn guarded(write: impl FnOnce() -> Result<usize, Errno>) -> Result<usize, Errno> {
    set_timer(GUARD);
    let written = write();
    set_timer(Duration::ZERO);
    written
}
