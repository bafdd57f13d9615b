//! What happened, one line each: `NANOSECONDS WORD…`, appended in one write, so that the order of the
//! lines is the order of the events, across all processes that write.
//!
//! What the lines mean is for `verdict` to say.

use rustix::time::{ClockId, clock_gettime};
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;

/// The journal, open for appending.
#[derive(Debug)]
pub(crate) struct Journal(File);

impl Journal {
    pub(crate) fn open(root: &Path) -> std::io::Result<Self> {
        let path = root.join("journal");
        let file = OpenOptions::new().append(true).create(true).open(path)?;
        Ok(Self(file))
    }

    pub(crate) fn write(&self, words: std::fmt::Arguments<'_>) {
        let line = format!("{} {words}\n", now_ns());
        // A journal that cannot be written is noticed at the end: its lines are counted.
        let _ = (&self.0).write_all(line.as_bytes());
    }
}

/// Nanoseconds of a clock that all processes share.
pub(crate) fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    u64::try_from(now.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(now.tv_nsec).unwrap_or(0)
}
