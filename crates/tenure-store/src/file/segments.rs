//! The middle of a long list: segments, which stand further back in the file and which no write touches while they
//! count.
//!
//! With thousands of waiters a hand-over changes a few claims at the front of the list, and a new claim comes to its
//! end. So the page of a long list has only the header with the first claims, and the last claims. A first line of
//! its own names the segments that belong between the two:
//!
//! ```text
//! {"segments":[[SLOT,LENGTH,"CHECKSUM",CLAIMS,TICKET,KIND],…],"at":BYTES}
//! ```
//!
//! `at` says how many bytes of the page's list come before them, TICKET is that of a segment's first claim. A change
//! writes the page and the segments that it changes, and what a change costs does not grow with the list. Without
//! segments, a hold behind 2,000 waiting processes takes more than 1.4 times what flock(1) takes
//! ([Tried](../../../../../docs/internals/tried.md#many-waiting-processes)).
//!
//! # Crash safety
//! A write puts new segments into room that no segment of the page that counts takes, before it writes the page that
//! names them. Until that page is whole, the old one counts, with all of its segments. A reader under the guard finds
//! each segment as it was written. Without the guard a segment may be overwritten under the reader; its checksum tells.
//! A power failure can lose a segment and keep its page. Where no process lives in the list, it is read without the
//! waiters of a damaged segment: they ended with the machine.
//!
//! A build without segments takes that first line for a damaged header, and refuses.

use super::lines::{is_plain, number, ticket_of};
use crate::codec::json::{self, Json, object};
use memchr::arch::all::memchr::One;
use std::borrow::Cow;
use std::ops::Range;
use twox_hash::XxHash64;

/// How the line begins that names segments.
const MARK: &str = "{\"segments\":[";

/// The line that names segments.
struct Index<'a> {
    segments: Vec<SegmentFields<'a>>,
    at: usize,
}

object! {
    Index<'a>:
    segments "segments" must,
    at "at" must,
}

/// Slot, length, checksum, number of claims, first ticket, and [`Kind`] as a number.
type SegmentFields<'a> = (usize, usize, Cow<'a, str>, usize, u64, u8);

/// A list up to this length stands in its page as a whole. To write it costs some microseconds.
pub(super) const WHOLE_MAX: usize = 1 << 14;

/// Where the segments begin: behind the last pair of pages, which have 64 KiB. That is a whole number of the pages of
/// memory, and of what a file system allocates.
pub(super) const SEGMENTS_START: usize = 63 << 12;

/// The room for a segment. A line that is longer takes several of them.
const SLOT_BYTES: usize = 1 << 13;

/// The longest list that there is.
pub(super) const LIST_MAX: usize = 1 << 21;

/// How many of them a file may have, which keeps it below 8 MiB.
const SLOTS_MAX: usize = ((1 << 23) - SEGMENTS_START) / SLOT_BYTES;

/// How much of the list its page may keep before the segments. More goes into a segment.
const FRONT_MAX: usize = 10 << 10;

/// How much of that stays there then.
const FRONT_KEPT: usize = 4 << 10;

/// How much of the list its page may keep behind the segments. At more than that, only the last claim stays.
const BACK_MAX: usize = SLOT_BYTES;

/// What the lines of a segment are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    /// Claims of plain waiters.
    Plain,
    /// Claims that wait.
    Waiters,
    /// Anything.
    Any,
}

/// Lines of a list that stand further back in the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Segment {
    slot: usize,
    length: usize,
    sum: u64,
    pub(super) claims: usize,
    /// The ticket of the first claim.
    pub(super) first: u64,
    pub(super) kind: Kind,
}

impl Segment {
    /// A segment that a page may name. Whether it ends within the file, and beside the others, is what `Room` finds.
    fn named((slot, length, sum, claims, first, kind): SegmentFields<'_>) -> Option<Self> {
        let kind = match kind {
            0 => Kind::Plain,
            1 => Kind::Waiters,
            2 => Kind::Any,
            _ => return None,
        };
        let sum = u64::from_str_radix(&sum, 16).ok()?;
        let may_be = slot < SLOTS_MAX && length <= LIST_MAX && claims <= length;
        may_be.then_some(Self {
            slot,
            length,
            sum,
            claims,
            first,
            kind,
        })
    }

    fn name(&self) -> SegmentFields<'static> {
        let sum = format!("{:016x}", self.sum).into();
        let kind = self.kind as u8;
        (self.slot, self.length, sum, self.claims, self.first, kind)
    }

    /// Lines that are to be written into a place that is still to be found.
    fn of(lines: &[u8]) -> Self {
        let mut kind = Kind::Plain;
        let (mut claims, mut first) = (0, None);
        for text in lines
            .split(|byte| *byte == b'\n')
            .filter(|line| !line.is_empty())
        {
            let found =
                ticket_of(text).and_then(|(digits, granted)| Some((number(digits)?, granted)));
            kind = kind.max(match found {
                None | Some((_, true)) => Kind::Any,
                Some(_) if is_plain(text) => Kind::Plain,
                Some(_) => Kind::Waiters,
            });
            first = first.or(found.map(|(ticket, _)| ticket));
            claims += 1;
        }
        Self {
            slot: 0,
            length: lines.len(),
            sum: 0,
            claims,
            first: first.unwrap_or_default(),
            kind,
        }
    }

    /// Where it stands in the file.
    pub(super) fn range(&self) -> Range<usize> {
        let start = SEGMENTS_START + self.slot * SLOT_BYTES;
        start..start + self.length
    }

    fn slots(&self) -> Range<usize> {
        self.slot..self.slot + self.length.div_ceil(SLOT_BYTES)
    }

    /// Whether these bytes are what was written. The place is part of it: bytes of another place are other bytes.
    pub(super) fn is(&self, bytes: &[u8]) -> bool {
        bytes.len() == self.length && sum(self.slot, bytes) == self.sum
    }

    /// Whether this one and its neighbour together are no longer than one.
    pub(super) fn fits_with(&self, neighbour: &Self) -> bool {
        self.length + neighbour.length <= SLOT_BYTES
    }
}

fn sum(slot: usize, bytes: &[u8]) -> u64 {
    XxHash64::oneshot(slot as u64, bytes)
}

/// A place in a list where segments belong that were not read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Gap {
    /// How many of the bytes that were read come before it.
    pub(super) at: usize,
    /// The segments of the gap, among those that the page names.
    pub(super) segments: Range<usize>,
}

/// A list as far as it was read.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Text {
    pub bytes: Vec<u8>,
    /// What is missing in between, in the order of the list.
    pub(super) gaps: Vec<Gap>,
    /// The segments that the page names, read or not. Nothing is written over them.
    pub(super) named: Vec<Segment>,
}

impl Text {
    /// The list in the body of a page. A first line that cannot be understood is left in its place; the `codec` refuses it.
    pub(super) fn of_page(body: Vec<u8>) -> Self {
        let Some((named, at, start)) = named_in(&body) else {
            return Self {
                bytes: body,
                ..Self::default()
            };
        };
        let mut bytes = body;
        bytes.drain(..start);
        let gap = Gap {
            at,
            segments: 0..named.len(),
        };
        let gaps = Some(gap).filter(|gap| !gap.segments.is_empty());
        Self {
            bytes,
            gaps: gaps.into_iter().collect(),
            named,
        }
    }

    /// Puts segments in their place, which `read` finds in the file. Those that are there already stay.
    ///
    /// # Errors
    /// - As `read`.
    pub(super) fn fill<E>(
        &mut self,
        segments: Range<usize>,
        mut read: impl FnMut(&Segment) -> Result<Vec<u8>, E>,
    ) -> Result<(), E> {
        for number in segments {
            let found = self
                .gaps
                .iter()
                .position(|gap| gap.segments.contains(&number));
            let (Some(found), Some(segment)) = (found, self.named.get(number)) else {
                continue;
            };
            let lines = read(segment)?;
            let gap = self.gaps.remove(found);
            self.bytes.splice(gap.at..gap.at, lines.iter().copied());
            for later in self.gaps.iter_mut().skip(found) {
                later.at += lines.len();
            }
            let before = (gap.at, gap.segments.start..number);
            let behind = (gap.at + lines.len(), number + 1..gap.segments.end);
            let parts = [before, behind].into_iter();
            let parts = parts.filter(|(_, segments)| !segments.is_empty());
            let parts = parts.map(|(at, segments)| Gap { at, segments });
            self.gaps.splice(found..found, parts);
        }
        Ok(())
    }

    /// The segments that are missing in a gap.
    pub(super) fn missing(&self, gap: &Gap) -> &[Segment] {
        self.named.get(gap.segments.clone()).unwrap_or_default()
    }
}

/// The segments that a page names, where they belong in its list, and where that begins.
fn named_in(body: &[u8]) -> Option<(Vec<Segment>, usize, usize)> {
    if !body.starts_with(MARK.as_bytes()) {
        return None;
    }
    let end = One::new(b'\n').find(body)?;
    let Index { segments, at } = json::read(body.get(..end)?).ok()?;
    let named: Vec<Segment> = segments
        .into_iter()
        .map(Segment::named)
        .collect::<Option<_>>()?;
    let start = end + 1;
    // Bounded, so that no reader takes more memory than a list may have, whichever user wrote the file.
    let length: usize = named.iter().map(|segment| segment.length).sum();
    let fits = at <= body.len() - start && length <= LIST_MAX && Room::beside(&named).is_some();
    fits.then_some((named, at, start))
}

/// A part of a list that is to be written.
#[derive(Debug)]
pub(super) enum Piece<'b> {
    /// Lines that are written here.
    Lines(Cow<'b, [u8]>),
    /// Segments that stay as they are.
    Kept(&'b [Segment]),
}

/// Whether a list stands in so many small segments that it is better written anew. Each change that makes a line longer
/// may split a segment. A list of this many leaves room for all of it beside what counts.
pub(super) fn is_split_up(list: &[Piece<'_>]) -> bool {
    const SPARE: usize = 8;
    let segments = list.iter().map(|piece| match piece {
        Piece::Lines(_) => 0,
        Piece::Kept(kept) => kept.len(),
    });
    let bytes: usize = list.iter().map(Piece::bytes).sum();
    segments.sum::<usize>() > SPARE + 2 * bytes.div_ceil(SLOT_BYTES)
}

/// Whether a line names segments.
pub(super) fn is_index(line: &[u8]) -> bool {
    line.starts_with(MARK.as_bytes())
}

impl Piece<'_> {
    /// Lines of the piece itself.
    pub(super) fn lines(&self) -> &[u8] {
        match self {
            Self::Lines(lines) => lines,
            Self::Kept(_) => &[],
        }
    }

    pub(super) fn bytes(&self) -> usize {
        match self {
            Self::Lines(lines) => lines.len(),
            Self::Kept(segments) => segments.iter().map(|segment| segment.length).sum(),
        }
    }
}

/// What to write where.
#[derive(Debug)]
pub(super) struct Layout<'b> {
    /// The segments that are new, and their lines. They come first.
    pub(super) new: Vec<(Segment, Vec<u8>)>,
    /// The body of the page.
    pub(super) page: Vec<Cow<'b, [u8]>>,
    /// Whether the page names segments.
    pub(super) is_long: bool,
}

/// Decides where the parts of a list go. `before` is the list that counts: what is new goes beside its segments. `None`
/// if there is no room.
pub(super) fn lay_out<'b>(pieces: Vec<Piece<'b>>, before: &Text) -> Option<Layout<'b>> {
    let length: usize = pieces.iter().map(Piece::bytes).sum();
    let is_kept = |piece: &Piece<'_>| matches!(piece, Piece::Kept(kept) if !kept.is_empty());
    let first = pieces.iter().find_map(|piece| match piece {
        Piece::Lines(lines) if !lines.is_empty() => Some(lines.as_ref()),
        Piece::Lines(_) | Piece::Kept(_) => None,
    });
    let is_marked = first.is_some_and(|lines| lines.starts_with(MARK.as_bytes()));
    if length <= WHOLE_MAX && !is_marked && !pieces.iter().any(is_kept) {
        let lines = pieces.into_iter().filter_map(|piece| match piece {
            Piece::Lines(lines) => Some(lines),
            Piece::Kept(_) => None,
        });
        return Some(Layout {
            new: Vec::new(),
            page: lines.collect(),
            is_long: false,
        });
    }
    let Parts {
        front,
        middle,
        back,
    } = Parts::of(pieces);
    let mut room = Room::beside(&before.named)?;
    let (mut new, mut segments) = (Vec::new(), Vec::new());
    for part in middle {
        match part {
            Run::Kept(kept) => segments.extend(kept),
            Run::Lines(lines) => {
                let mut segment = Segment::of(&lines);
                segment.slot = room.take(lines.len())?;
                segment.sum = sum(segment.slot, &lines);
                segments.push(segment.clone());
                new.push((segment, lines));
            }
        }
    }
    let page = [line_of(&segments, front.len()), front, back];
    Some(Layout {
        new,
        page: page.into_iter().map(Cow::Owned).collect(),
        is_long: true,
    })
}

/// The line that names these segments, and where in the page's list they belong.
fn line_of(segments: &[Segment], at: usize) -> Vec<u8> {
    let segments = segments.iter().map(Segment::name).collect();
    let mut line = Vec::new();
    Index { segments, at }.write(&mut line);
    line.push(b'\n');
    line
}

/// Lines or segments, as many as stand side by side.
enum Run {
    Lines(Vec<u8>),
    Kept(Vec<Segment>),
}

/// The three parts of a long list.
struct Parts {
    /// What the page keeps before the segments.
    front: Vec<u8>,
    /// Each run of lines fits into a segment.
    middle: Vec<Run>,
    /// What the page keeps behind them.
    back: Vec<u8>,
}

impl Parts {
    fn of(pieces: Vec<Piece<'_>>) -> Self {
        let mut runs: Vec<Run> = vec![Run::Lines(Vec::new())];
        for piece in pieces {
            match (runs.last_mut(), piece) {
                (Some(Run::Lines(run)), Piece::Lines(lines)) => run.extend_from_slice(&lines),
                (Some(Run::Kept(run)), Piece::Kept(kept)) => run.extend_from_slice(kept),
                (_, Piece::Kept([])) => {}
                (_, Piece::Lines(lines)) => runs.push(Run::Lines(lines.into_owned())),
                (_, Piece::Kept(kept)) => runs.push(Run::Kept(kept.to_vec())),
            }
        }
        let mut between = runs.split_off(1);
        let lines_of = |run| match run {
            Some(Run::Lines(lines)) => lines,
            Some(Run::Kept(_)) | None => Vec::new(),
        };
        // The first one was made of lines.
        let mut front = lines_of(runs.pop());
        let mut back = lines_of(between.pop_if(|run| matches!(run, Run::Lines(_))));
        let mut middle = Vec::new();
        if front.len() > FRONT_MAX {
            let rest = front.split_off(whole_lines(&front, FRONT_KEPT));
            if between.is_empty() && back.is_empty() {
                back = rest;
            } else {
                middle.extend(in_segments(rest));
            }
        }
        for run in between {
            match run {
                Run::Lines(lines) => middle.extend(in_segments(lines)),
                Run::Kept(kept) => middle.push(Run::Kept(kept)),
            }
        }
        if back.len() > BACK_MAX {
            let last = back.split_off(last_line(&back));
            middle.extend(in_segments(std::mem::replace(&mut back, last)));
        }
        if back.len() > BACK_MAX {
            middle.extend(in_segments(std::mem::take(&mut back)));
        }
        Self {
            front,
            middle,
            back,
        }
    }
}

/// Lines in runs of which each fits into a segment.
fn in_segments(mut lines: Vec<u8>) -> Vec<Run> {
    let mut runs = Vec::new();
    while !lines.is_empty() {
        let end = match whole_lines(&lines, SLOT_BYTES) {
            0 => lines
                .iter()
                .position(|byte| *byte == b'\n')
                .map_or(lines.len(), |end| end + 1),
            end => end,
        };
        let rest = lines.split_off(end);
        runs.push(Run::Lines(std::mem::replace(&mut lines, rest)));
    }
    runs
}

/// Where the last whole line ends that ends within so many bytes.
fn whole_lines(lines: &[u8], most: usize) -> usize {
    if lines.len() <= most {
        return lines.len();
    }
    begun(lines.get(..most).unwrap_or(lines))
}

/// Where the last line begins.
fn last_line(lines: &[u8]) -> usize {
    begun(lines.strip_suffix(b"\n").unwrap_or(lines))
}

/// Where the line begins that a text ends in: behind its last line break.
fn begun(text: &[u8]) -> usize {
    let last = text.iter().rposition(|byte| *byte == b'\n');
    last.map_or(0, |end| end + 1)
}

/// The room for segments that none of those has that count.
struct Room {
    taken: Vec<bool>,
}

impl Room {
    /// `None` if two of them have the same room.
    fn beside(named: &[Segment]) -> Option<Self> {
        let mut taken = vec![false; SLOTS_MAX];
        for slot in named.iter().flat_map(Segment::slots) {
            let taken = taken.get_mut(slot)?;
            if std::mem::replace(taken, true) {
                return None;
            }
        }
        Some(Self { taken })
    }

    /// Finds a place for so many bytes.
    fn take(&mut self, bytes: usize) -> Option<usize> {
        let wanted = bytes.div_ceil(SLOT_BYTES);
        let places = self.taken.windows(wanted.max(1));
        let place = places
            .into_iter()
            .position(|slots| !slots.contains(&true))?;
        let slots = self.taken.get_mut(place..place + wanted)?;
        slots.fill(true);
        Some(place)
    }
}

#[cfg(test)]
mod tests;
