//! Spans: what lets a reader pass over a part of `audit.jsonl` that has no event of a wanted time.
//!
//! The order of the lines does not say where the events of a day are: a clock may have been set back, a writer may
//! have waited, another program may have written. So a search by time over the lines would miss events. Spans are
//! exact instead. The line that reaches the end of a mebibyte has the field `span`: where the first line of that
//! mebibyte begins, where this one begins, and the earliest and the latest instant in all of them. The writer reads
//! these lines before it says that.
//!
//! **Why a reader may believe a span.** The writer holds the lock of the file. What it has read never changes, because
//! all writers append. Two things can still make a span wrong, and the reader notices both, because the line then
//! stands elsewhere than the span says:
//! - *A program that does not heed the lock wrote between the look and the write.* The line stands behind its line.
//! - *The beginning of the file was cut off, or lines were taken out of a copy.* All that follows stands elsewhere.
//!
//! Where there is no span that fits, the reader reads: files of earlier versions, the end of a file, a line that a
//! crash tore. A span moves with its bytes, so renaming and copying the file keep it.

use super::LINE_BYTES_MAX;
use super::entry::{Entry, Facts};
use super::text::{at_ms, to_the_millisecond};
use serde_json::{Map, Value, json};
use tenure_os::os::{self, AsDescriptor, Errno, uninterrupted};

/// The field of the line that ends a span.
pub(super) const FIELD: &str = "span";

/// How many bytes a span covers. To find it, a reader reads a few thousand; to make it, a writer reads all of them.
const BYTES: u64 = 1 << 20;

/// How far around the end of a span its line is looked for first. Most lines have a few hundred bytes.
const WINDOW: u64 = 2 << 10;

/// Some whole lines of a file, and when their events happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Span {
    /// Where the first line begins.
    from: u64,
    /// Where the last line begins: the one that says all this.
    to: u64,
    /// The instants of the earliest and the latest event, in milliseconds since the Unix epoch.
    earliest_ms: u64,
    latest_ms: u64,
}

/// The end of the mebibyte in which a line begins that begins here.
pub(super) fn boundary_after(at: u64) -> u64 {
    (at / BYTES).saturating_add(1).saturating_mul(BYTES)
}

impl Span {
    /// The span that a line ends which is to be written at `at`. `None` if it ends none, or if the lines before it
    /// cannot be read. Called with the lock of the file held.
    pub(super) fn ending_with(fd: impl AsDescriptor, at: u64, line: &str) -> Option<Self> {
        let boundary = boundary_after(at);
        if at.saturating_add(u64::try_from(line.len()).ok()?) < boundary {
            return None;
        }
        let Facts { at_ms, .. } = Facts::of(line.as_bytes())?;
        // The byte before the mebibyte shows whether a line begins with its first byte.
        let begin = (boundary - BYTES).saturating_sub(1);
        let bytes = read(&fd, begin, at).ok()?;
        if u64::try_from(bytes.len()).ok()? < at - begin {
            return None;
        }
        let mut lines = bytes.as_slice();
        if boundary > BYTES {
            let end = lines.iter().position(|byte| *byte == b'\n')?;
            lines = lines.get(end + 1..)?;
        }
        let from = at - u64::try_from(lines.len()).ok()?;
        let mut span = Self {
            from,
            to: at,
            earliest_ms: at_ms,
            latest_ms: at_ms,
        };
        for line in lines.split(|byte| *byte == b'\n') {
            if let Some(facts) = Facts::of(line) {
                span.earliest_ms = span.earliest_ms.min(facts.at_ms);
                span.latest_ms = span.latest_ms.max(facts.at_ms);
            }
        }
        Some(span)
    }

    /// As it stands in its line.
    pub(super) fn to_value(self) -> Value {
        json!({
            "from": self.from,
            "to": self.to,
            "earliest": to_the_millisecond(self.earliest_ms),
            "latest": to_the_millisecond(self.latest_ms),
        })
    }

    /// The span that ends at this boundary, and where its line ends. `None` if there is none that fits.
    fn ending_at(fd: impl AsDescriptor, boundary: u64) -> Option<(Self, u64)> {
        let line_max = u64::try_from(LINE_BYTES_MAX).ok()?;
        for window in [WINDOW, line_max] {
            let begin = boundary.saturating_sub(window);
            let bytes = read(&fd, begin, boundary.saturating_add(window)).ok()?;
            // The line that has the last byte before the boundary.
            let last = usize::try_from(boundary - begin).ok()?.checked_sub(1)?;
            let before = bytes.get(..last)?.iter().rposition(|byte| *byte == b'\n');
            let rest = bytes.get(last..)?.iter().position(|byte| *byte == b'\n');
            let (Some(before), Some(rest)) = (before, rest) else {
                continue;
            };
            let line = bytes.get(before + 1..last + rest)?;
            let at = begin + u64::try_from(before + 1).ok()?;
            let end = at + u64::try_from(line.len()).ok()? + 1;
            let span = Self::parse(Entry::parse(line)?.fields())?;
            return (span.to == at).then_some((span, end));
        }
        None
    }

    fn parse(line: &Map<String, Value>) -> Option<Self> {
        let span = line.get(FIELD)?.as_object()?;
        let number = |key: &str| span.get(key)?.as_u64();
        let instant = |key: &str| at_ms(span.get(key)?.as_str()?);
        Some(Self {
            from: number("from")?,
            to: number("to")?,
            earliest_ms: instant("earliest")?,
            latest_ms: instant("latest")?,
        })
    }
}

/// Where a reader may go on that would otherwise go on with the line that begins at `at`: behind the line at this
/// boundary, if no line until then has an event of these times. `None` if it has to read.
pub(super) fn pass(
    fd: impl AsDescriptor,
    at: u64,
    boundary: u64,
    (since_ms, until_ms): (Option<u64>, Option<u64>),
) -> Option<u64> {
    let (span, end) = Span::ending_at(fd, boundary)?;
    let is_before = since_ms.is_some_and(|since| span.latest_ms < since);
    let is_after = until_ms.is_some_and(|until| span.earliest_ms > until);
    (span.from <= at && (is_before || is_after)).then_some(end)
}

/// The bytes from here to there, as far as they exist.
pub(super) fn read(fd: impl AsDescriptor, from: u64, to: u64) -> Result<Vec<u8>, Errno> {
    let length = usize::try_from(to.saturating_sub(from)).map_err(|_| Errno::INVAL)?;
    let mut bytes = vec![0; length];
    let mut filled = 0;
    while let Some(rest) = bytes.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        let at = from + u64::try_from(filled).map_err(|_| Errno::INVAL)?;
        match uninterrupted(|| os::read_at(&fd, &mut *rest, at))? {
            0 => break,
            length => filled += length,
        }
    }
    bytes.truncate(filled);
    Ok(bytes)
}
