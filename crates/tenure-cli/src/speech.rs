//! All messages to stderr go through here. **They never keep the process from what it has promised.** A
//! supervisor whose stderr is a full pipe still ends the work whose lock is lost. A waiter on a stopped
//! terminal still runs when its turn comes.
//!
//! The rules:
//! - A message is written at once if the stream takes it at once. Otherwise it is kept, and so are the
//!   messages after it. They are tried again with the next message and at the end.
//! - At the end of the process, after its locks were given back, the kept messages have a second. What
//!   is left then is dropped.
//! - Only so many messages are kept; the others are dropped and counted. The count is written as soon
//!   as writing works again, and stands among the warnings of a later document.
//! - For a reader that has gone, nothing is kept or counted.
//!
//! A caller *acts first* and speaks afterwards. That order is the caller's business: the promise does
//! not depend on this file alone.
//!
//! `render::Reporter` decides what is said, in which format and under which name. It also writes the
//! answers on stdout, which a slow reader must not lose.

use crate::signals::{Stream, Unwritten, Why, write_within};
use std::collections::VecDeque;
use std::io::ErrorKind;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tenure_os::clock::instant;

/// How many messages are kept for a reader that does not read.
const KEPT_MAX: usize = 32;

/// How long the end of the process tries to write what was kept.
const LAST_TRY: Duration = Duration::from_secs(1);

/// What is kept, and what was dropped.
#[derive(Debug)]
struct Speech {
    /// The first one may have been written in part.
    kept: VecDeque<Vec<u8>>,
    /// How many messages were dropped: in all, and since the count was written last.
    dropped: u64,
    untold: u64,
    /// The last try was made.
    is_over: bool,
}

static SPEECH: Mutex<Speech> = Mutex::new(Speech {
    kept: VecDeque::new(),
    dropped: 0,
    untold: 0,
    is_over: false,
});

fn speech() -> MutexGuard<'static, Speech> {
    SPEECH.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Says a message, with our name, in a single write so that lines of many callers do not mix.
pub(crate) fn say(message: &str) {
    say_plainly(&format!("tenure: {message}"));
}

/// Says a message without our name.
pub(crate) fn say_plainly(message: &str) {
    let mut speech = speech();
    speech.keep(format!("{message}\n").into_bytes());
    speech.write(Duration::ZERO);
}

/// Draws a picture of this instant: at once or not at all.
pub(crate) fn draw(picture: &str) {
    let mut speech = speech();
    speech.write(Duration::ZERO);
    if !speech.kept.is_empty() {
        return;
    }
    if let Err(Unwritten {
        written,
        why: Why::Late,
    }) = write_within(Stream::Err, picture.as_bytes(), Duration::ZERO)
        && written > 0
    {
        // The rest comes before all else, because the part that was written may end in the middle of a
        // command to the terminal.
        let rest = picture.as_bytes().get(written..).unwrap_or_default();
        speech.kept.push_back(rest.to_vec());
    }
}

/// Writes what has to stand before the next message (the end of a picture).
pub(crate) fn erase(sequence: &str) {
    let mut speech = speech();
    speech.kept.push_back(sequence.as_bytes().to_vec());
    speech.write(Duration::ZERO);
}

/// Tries for the last time, within a second. Returns how many messages were never written.
pub(crate) fn finish() -> u64 {
    let mut speech = speech();
    let patience = if speech.is_over {
        Duration::ZERO
    } else {
        LAST_TRY
    };
    speech.write(patience);
    if !speech.kept.is_empty() {
        speech.is_over = true;
        let left = std::mem::take(&mut speech.kept);
        speech.drop_some(left.len());
    }
    speech.dropped
}

impl Speech {
    fn keep(&mut self, message: Vec<u8>) {
        if self.kept.len() < KEPT_MAX {
            self.kept.push_back(message);
        } else {
            self.drop_some(1);
        }
    }

    fn drop_some(&mut self, count: usize) {
        let count = u64::try_from(count).unwrap_or(u64::MAX);
        self.dropped = self.dropped.saturating_add(count);
        self.untold = self.untold.saturating_add(count);
    }

    /// Writes what is kept, in its order, as far as that goes.
    fn write(&mut self, patience: Duration) {
        let until = instant() + patience;
        while let Some(message) = self.kept.front_mut() {
            let rest = until.saturating_duration_since(instant());
            match write_within(Stream::Err, message, rest) {
                Ok(()) => {
                    self.kept.pop_front();
                    self.tell_of_dropped();
                }
                Err(Unwritten { written, why }) => match why {
                    Why::Late | Why::Stopped(_) => {
                        message.drain(..written);
                        return;
                    }
                    Why::Failed(error)
                        if error.kind() == ErrorKind::BrokenPipe || is_closed(&error) =>
                    {
                        self.kept.clear();
                    }
                    Why::Failed(_) => {
                        self.kept.pop_front();
                        self.drop_some(1);
                    }
                },
            }
        }
    }

    /// Says how many messages were dropped, at their place: before all later messages.
    fn tell_of_dropped(&mut self) {
        let count = std::mem::take(&mut self.untold);
        if count > 0 {
            let line = format!("tenure: {}\n", unsaid(count));
            self.kept.push_back(line.into_bytes());
        }
    }
}

/// The message about dropped messages.
pub(crate) fn unsaid(count: u64) -> String {
    let (messages, were) = match count {
        1 => ("message", "was"),
        _ => ("messages", "were"),
    };
    format!("{count} {messages} could not be written to stderr, and {were} dropped")
}

#[cfg(unix)]
fn is_closed(error: &std::io::Error) -> bool {
    error.raw_os_error() == Some(libc::EBADF)
}

#[cfg(windows)]
fn is_closed(_: &std::io::Error) -> bool {
    false
}
