//! What `serve` writes, and what it keeps for a parent that does not read.
//!
//! **Serve never waits for its parent.** It writes no more at once than a pipe takes that says it has room, and
//! keeps the rest. Of the messages that say how something stands, it keeps the last alone: one `waiting` for each
//! request, one `renewed` for each hold. It keeps every answer, every `lost` and every `stop_requested`. Those are
//! bounded: each follows from a request or a hold, and beyond [`FULL`] no further request is read.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::collections::{BTreeMap, VecDeque};
use std::os::fd::BorrowedFd;

/// With so many bytes that the parent has not read, no further request is read.
pub(super) const FULL: usize = 1 << 20;

/// How much is written at once. A pipe that can be polled as writable takes so much without blocking (POSIX, as
/// `PIPE_BUF`); a socket takes more.
const PIECE: usize = 4_096;

/// What the last word is about.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum About {
    Request(String),
    Hold(u64),
}

#[derive(Debug, Default)]
pub(super) struct Output {
    bytes: VecDeque<u8>,
    latest: BTreeMap<About, String>,
    /// The parent has closed its end.
    is_closed: bool,
}

impl Output {
    /// Something to be read in any case.
    pub(super) fn say(&mut self, frame: &str) {
        if !self.is_closed {
            self.bytes.extend(frame.as_bytes());
            self.flush();
        }
    }

    /// How something stands now.
    pub(super) fn update(&mut self, about: About, frame: String) {
        if !self.is_closed {
            self.latest.insert(about, frame);
            self.flush();
        }
    }

    /// How it stood is of no interest any more.
    pub(super) fn forget(&mut self, about: &About) {
        self.latest.remove(about);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.bytes.is_empty() && self.latest.is_empty()
    }

    pub(super) fn is_closed(&self) -> bool {
        self.is_closed
    }

    pub(super) fn is_full(&self) -> bool {
        self.bytes.len() >= FULL
    }

    /// Writes what the parent takes now.
    pub(super) fn flush(&mut self) {
        loop {
            if self.bytes.is_empty() {
                let Some((_, frame)) = self.latest.pop_first() else {
                    return;
                };
                self.bytes.extend(frame.as_bytes());
            }
            if !has_room() {
                return;
            }
            let (first, _) = self.bytes.as_slices();
            let piece = first.get(..PIECE).unwrap_or(first);
            match rustix::io::write(rustix::stdio::stdout(), piece) {
                Ok(written) => drop(self.bytes.drain(..written)),
                Err(rustix::io::Errno::INTR) => {}
                Err(rustix::io::Errno::AGAIN) => return,
                Err(_) => {
                    self.is_closed = true;
                    self.bytes.clear();
                    self.latest.clear();
                    return;
                }
            }
        }
    }
}

/// Whether a write would not block. An end that is closed answers at once, too.
fn has_room() -> bool {
    let stdout: BorrowedFd<'_> = rustix::stdio::stdout();
    let mut polled = [PollFd::new(&stdout, PollFlags::OUT)];
    let none = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    poll(&mut polled, Some(&none)).is_ok_and(|ready| ready > 0)
}
