//! The first line of a long list's page, which names the segments.
//!
//! With two thousand waiters a change reads and writes some fifty names, three times a hold. So the form that is written
//! here is read here as well, in one way over its bytes. Any other form is left to the parser for all of JSON. The tests
//! compare the two, on lines that are not quite in that form as well.

use super::super::backwards::{Backwards, DIGITS_MAX, SUM_DIGITS};
use super::{Kind, LIST_MAX, SLOTS_MAX, Segment};
use crate::store::codec::{Cursor, push_number};
use serde::Deserialize;
use std::borrow::Cow;
use std::ops::Range;

/// How the line begins.
pub(super) const MARK: &str = "{\"segments\":[";

/// No name of a segment is longer: five numbers, a sum and what stands between them.
const NAME_MAX: usize = 5 * DIGITS_MAX + SUM_DIGITS + 9;

/// What most names have, for the room that is taken before.
const NAME_LENGTH: usize = 56;

/// What the line says.
#[derive(Debug, PartialEq)]
pub(super) struct Index {
    pub(super) segments: Vec<Segment>,
    /// How many bytes of the page's list come before them.
    pub(super) at: usize,
}

/// The same for the parser.
#[derive(Deserialize)]
struct Parsed<'a> {
    #[serde(borrow)]
    segments: Vec<Named<'a>>,
    at: usize,
}

type Named<'a> = (usize, usize, Cow<'a, str>, usize, u64, u8);

impl Index {
    pub(super) fn of(line: &[u8]) -> Option<Self> {
        Self::as_written(line).or_else(|| Self::parsed(line))
    }

    pub(super) fn parsed(line: &[u8]) -> Option<Self> {
        let Parsed { segments, at } = serde_json::from_slice(line).ok()?;
        let segments = segments.into_iter();
        let segments = segments.map(|(slot, length, sum, claims, first, kind)| {
            let sum = u64::from_str_radix(&sum, 16).ok()?;
            segment(slot, length, sum, claims, first, kind.into())
        });
        Some(Self {
            segments: segments.collect::<Option<_>>()?,
            at,
        })
    }

    /// Reads the form that [`line_of`] writes.
    pub(super) fn as_written(line: &[u8]) -> Option<Self> {
        let mut from = Cursor::new(line);
        from.passes(MARK)?;
        let mut segments = Vec::with_capacity(line.len() / NAME_LENGTH + 1);
        if !from.skip("]") {
            loop {
                let start = line.len() - from.left();
                let mut segment = name(&mut from)?;
                segment.name = start..line.len() - from.left();
                segments.push(segment);
                match from.byte()? {
                    b',' => {}
                    b']' => break,
                    _ => return None,
                }
            }
        }
        let at = from.numbered(",\"at\":")?;
        from.passes("}")?;
        from.end()?;
        Some(Self { segments, at })
    }
}

/// One segment, as it is named in the list of them.
fn name(from: &mut Cursor<'_>) -> Option<Segment> {
    from.is_byte(b'[')?;
    let slot = from.number_before(b',')?;
    let length = from.number_before(b',')?;
    from.is_byte(b'"')?;
    let sum = from.sum::<SUM_DIGITS>()?;
    from.is_byte(b'"')?;
    from.is_byte(b',')?;
    let claims = from.number_before(b',')?;
    let first = from.number_before(b',')?;
    let kind = from.number_before(b']')?;
    let number = |number| usize::try_from(number).ok();
    segment(
        number(slot)?,
        number(length)?,
        sum,
        number(claims)?,
        first,
        kind,
    )
}

/// A segment that a page may name. Whether it ends within the file, and beside the others, is what `Room` finds.
fn segment(
    slot: usize,
    length: usize,
    sum: u64,
    claims: usize,
    first: u64,
    kind: u64,
) -> Option<Segment> {
    let kind = match kind {
        0 => Kind::Plain,
        1 => Kind::Waiters,
        2 => Kind::Any,
        _ => return None,
    };
    let may_be = slot < SLOTS_MAX && length <= LIST_MAX && claims <= length;
    may_be.then_some(Segment {
        slot,
        length,
        sum,
        claims,
        first,
        kind,
        name: 0..0,
    })
}

/// The line that names these segments, and where in the page's list they belong. `before` is the line from which those
/// were read that have a name there.
pub(super) fn line_of(segments: &[Segment], at: usize, before: &[u8]) -> Vec<u8> {
    let mut line = Vec::with_capacity(MARK.len() + NAME_LENGTH * (segments.len() + 1));
    line.extend_from_slice(MARK.as_bytes());
    let mut rest = segments;
    while let Some((segment, behind)) = rest.split_first() {
        rest = behind;
        if line.len() > MARK.len() {
            line.push(b',');
        }
        let Range { start, mut end } = segment.name;
        // As many as stand side by side there, at once.
        while let Some((next, behind)) = rest.split_first()
            && next.name.start == end + 1
            && !segment.name.is_empty()
        {
            (end, rest) = (next.name.end, behind);
        }
        match before.get(start..end).filter(|names| !names.is_empty()) {
            Some(names) => {
                debug_assert!(
                    names.starts_with(name_of(segment).as_bytes()),
                    "it is of that line"
                );
                line.extend_from_slice(names);
            }
            None => line.extend_from_slice(name_of(segment).as_bytes()),
        }
    }
    line.extend_from_slice(b"],\"at\":");
    push_number(&mut line, at as u64);
    line.extend_from_slice(b"}\n");
    line
}

fn name_of(segment: &Segment) -> Backwards<NAME_MAX> {
    let mut name = Backwards::new();
    name.byte(b']');
    name.number(segment.kind as u64);
    name.byte(b',');
    name.number(segment.first);
    name.byte(b',');
    name.number(segment.claims as u64);
    name.text(b"\",");
    name.sum(segment.sum);
    name.text(b",\"");
    name.number(segment.length as u64);
    name.byte(b',');
    name.number(segment.slot as u64);
    name.byte(b'[');
    name
}
