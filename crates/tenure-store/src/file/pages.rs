//! What stands in a coordination file: two pages, of which the newer whole one counts.
//!
//! A page is one line of frame (`tenure 1 SEQUENCE LENGTH CHECKSUM`) and a body of JSON lines. `cat`
//! shows both pages; the one with the higher sequence counts. A change is written into the page that
//! does **not** count.
//!
//! # Crash safety
//! Death before the write: the old page counts. Death or a power failure during it: the checksum of the
//! torn page is wrong, and the old page counts. Death after it: the new page counts. A page counts at
//! every instant, because the page that counts is never written to.
//!
//! Where a hold without a process begins a pair, and where a list outgrows one, the other page of the pair is written first,
//! with nothing in it. So a disk that is full by then, or a limit, takes the next change, which may be the release. That page
//! does not count before or after.
//!
//! A body that outgrows its page goes to a larger pair further back in the file; each pair is twice the
//! size of the one before. So growing is an ordinary write too. Of a long list a page keeps the two ends, and
//! names the `segments` behind the last pair that hold the rest. Once the list is short again and its page in the
//! first pair counts, what is behind that is cut off.
//!
//! # Other formats
//! The number behind `tenure` is that of the format. A frame with another number, on whichever page, makes the file
//! one that this build neither reads nor writes: from the other page a reader would take an older list for the newest.
//! Every later format keeps two things: its frame line begins with `tenure` and its number, and ends with the version
//! that wrote the page.
//!
//! The store's `codec` defines the format of the body.

use super::folder::fault;
use super::segments::{self, Kind, LIST_MAX, Piece, SEGMENTS_START, Segment, Text};
use crate::StoreError;
use std::borrow::Cow;
use std::hash::Hasher;
use std::io::IoSlice;
use std::ops::Range;
use std::path::Path;
use tenure_os::os::{self, BorrowedDescriptor, Errno};
use twox_hash::XxHash64;

/// The size of a page in the first pair. Two of them are one page of memory.
const PAGE_BYTES: usize = 2048;

/// What a look reads first. One byte more than the first pair tells whether there is a second.
const NEAR_BYTES: usize = 2 * PAGE_BYTES + 1;

/// How many pairs there may be: the last page has 64 KiB. A build that knows fewer takes an older page for the
/// newest, once the list is in a later pair (decision 0001).
const PAIRS_MAX: u32 = 6;

const _: () = assert!(
    SEGMENTS_START == 2 * PAGE_BYTES * ((1 << PAIRS_MAX) - 1),
    "the segments begin where the last pair ends"
);

/// The largest file that is read.
const FILE_BYTES_MAX: usize = 1 << 23;

/// How long a list may become by a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Room {
    /// 1 MiB, for a change that adds a claim. So a list that is full for new claims has as much room again for
    /// what is still written about its claims: grants, commands, requests to stop.
    Joining,
    /// 1 MiB as well, for a hold that no process keeps: it ends by a release alone. So what its release will write is
    /// allocated before.
    Keeping,
    /// 2 MiB. Written beside as much that counts, it keeps the file below 8 MiB.
    All,
}

impl Room {
    fn bytes(self) -> usize {
        match self {
            Self::Joining | Self::Keeping => 1 << 20,
            Self::All => LIST_MAX,
        }
    }
}

/// How often a reader without the guard looks again at a file that changes under it.
const READS_MAX: usize = 64;

/// The place of one page in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Page {
    pair: u32,
    second: bool,
}

impl Page {
    fn bytes(self) -> usize {
        PAGE_BYTES << self.pair
    }

    fn offset(self) -> usize {
        // Pairs 0..pair take 2 × PAGE × (2^pair − 1) bytes.
        let before = 2 * PAGE_BYTES * ((1 << self.pair) - 1);
        before + if self.second { self.bytes() } else { 0 }
    }
}

/// The state that a file holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Snapshot {
    /// Counts the writes; 0 = never written.
    pub sequence: u64,
    page: Option<Page>,
    /// Whether the file reaches beyond the first pair.
    long: bool,
    /// The list in the page that counts.
    pub text: Text,
}

/// Why there is no state.
#[derive(Debug)]
pub(crate) enum ReadError {
    /// The system failed.
    Io(Errno),
    /// The file has content, and no page of it is whole.
    Torn(String),
    /// A page has the frame of another format.
    Format(Format),
}

/// Another format of a coordination file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Format {
    /// Number of the format, as it stands in the frame line.
    number: String,
    /// The version that wrote the page.
    by: Option<String>,
}

impl From<Errno> for ReadError {
    fn from(errno: Errno) -> Self {
        Self::Io(errno)
    }
}

impl ReadError {
    /// The error for a caller that cannot repair it.
    pub(crate) fn into_store(self, path: &Path) -> StoreError {
        match self {
            Self::Io(errno) => fault(path, "reading the lock", errno),
            Self::Torn(why) => StoreError::Unreadable {
                place: path.display().to_string(),
                why,
            },
            Self::Format(Format { number, by }) => StoreError::Format {
                place: path.display().to_string(),
                found: number,
                known: FORMAT,
                by: by.unwrap_or_else(|| "an unknown version".to_owned()),
            },
        }
    }
}

/// The length of a file that has to be asked for it.
pub(crate) const UNKNOWN: u64 = u64::MAX;

/// Reads the state under the guard, where nothing changes meanwhile. So of a long file only the frames
/// are read, and the body of the page that counts. What that leaves to segments is read with [`fill`].
///
/// `length` is the file's length, asked under the guard as well, with no write since; or [`UNKNOWN`].
pub(crate) fn read(file: BorrowedDescriptor<'_>, length: u64) -> Result<Snapshot, ReadError> {
    if let Some(snapshot) = look_at_short(file, length, newest)? {
        return snapshot;
    }
    if let Some(snapshot) = read_by_frames(file)? {
        return Ok(snapshot);
    }
    newest(&read_all(file)?)
}

/// A list with the lines of all its segments. `None` if one of them cannot be read; then it stays where it is.
fn in_one_piece<'b>(file: BorrowedDescriptor<'_>, list: &[Piece<'_>]) -> Option<Vec<Piece<'b>>> {
    let mut lines = Vec::new();
    for piece in list {
        match piece {
            Piece::Lines(own) => lines.extend_from_slice(own),
            Piece::Kept(kept) => {
                for segment in *kept {
                    lines.extend(lines_of(file, segment).ok()?);
                }
            }
        }
    }
    Some(vec![Piece::Lines(Cow::Owned(lines))])
}

/// Shows all of a file by one call, if it is no longer than the first pair. `None` also where it has another length by
/// now than `length` says, or a signal cut the answer short.
fn look_at_short<R>(
    file: BorrowedDescriptor<'_>,
    length: u64,
    look: impl FnOnce(&[u8]) -> R,
) -> Result<Option<R>, ReadError> {
    let length = match length {
        UNKNOWN => os::facts(file)?.size(),
        known => known,
    };
    if length >= NEAR_BYTES as u64 {
        return Ok(None);
    }
    // On the stack, and not cleared before: an allocation of this size takes longer than the look.
    Ok(os::with_start::<NEAR_BYTES, _>(file, |near| {
        (near.len() as u64 == length).then(|| look(near))
    })?)
}

/// Finds the whole page with the highest sequence by the frames. `None` if no page is whole.
fn read_by_frames(file: BorrowedDescriptor<'_>) -> Result<Option<Snapshot>, ReadError> {
    let mut pages: Vec<(Frame, Page)> = Vec::new();
    let mut long = false;
    'pairs: for pair in 0..PAIRS_MAX {
        for second in [false, true] {
            let page = Page { pair, second };
            let mut start = [0; FRAME_BYTES_MAX];
            let filled = read_at(file, &mut start, page.offset())?;
            if filled == 0 {
                break 'pairs;
            }
            long = pair > 0;
            let start = start.get(..filled).unwrap_or_default();
            match Frame::of(start) {
                Ok(frame) if frame.start + frame.length <= page.bytes() => {
                    pages.push((frame, page));
                }
                Ok(_) => {}
                Err(_) => refuse_other_format(start)?,
            }
        }
    }
    pages.sort_by_key(|(frame, _)| std::cmp::Reverse(frame.sequence));
    for (frame, page) in pages {
        let mut body = vec![0; frame.length];
        let filled = read_at(file, &mut body, page.offset() + frame.start)?;
        if filled == frame.length && frame.is_of(&body) {
            return Ok(Some(Snapshot {
                sequence: frame.sequence,
                page: Some(page),
                long,
                text: Text::of_page(body),
            }));
        }
    }
    Ok(None)
}

/// Reads all segments of a state, under the guard.
pub(super) fn fill_all(file: BorrowedDescriptor<'_>, text: &mut Text) -> Result<(), ReadError> {
    fill(file, text, 0..text.named.len())
}

/// Reads segments of a state, under the guard.
pub(super) fn fill(
    file: BorrowedDescriptor<'_>,
    text: &mut Text,
    segments: Range<usize>,
) -> Result<(), ReadError> {
    text.fill(segments, |segment| lines_of(file, segment))
}

fn lines_of(file: BorrowedDescriptor<'_>, segment: &Segment) -> Result<Vec<u8>, ReadError> {
    let place = segment.range();
    let mut lines = vec![0; place.len()];
    let filled = read_at(file, &mut lines, place.start)?;
    lines.truncate(filled);
    whole(segment, lines)
}

/// Reads all of a list in which no process lives, without the waiters of a damaged segment: a power failure may keep a
/// page and lose a segment that it names. The waiters in it have ended, and a waiter holds nothing.
pub(super) fn fill_without_damage(
    file: BorrowedDescriptor<'_>,
    text: &mut Text,
) -> Result<(), ReadError> {
    text.fill(0..text.named.len(), |segment| {
        match lines_of(file, segment) {
            Err(ReadError::Torn(_)) if segment.kind <= Kind::Waiters => Ok(Vec::new()),
            lines => lines,
        }
    })
}

/// Fills a list from bytes of the file, with all of its segments.
fn filled(mut snapshot: Snapshot, file: &[u8]) -> Result<Snapshot, ReadError> {
    let text = &mut snapshot.text;
    text.fill(0..text.named.len(), |segment| {
        let lines = file.get(segment.range()).unwrap_or_default();
        whole(segment, lines.to_vec())
    })?;
    Ok(snapshot)
}

/// The bytes of a segment, if they are its bytes.
fn whole(segment: &Segment, lines: Vec<u8>) -> Result<Vec<u8>, ReadError> {
    if segment.is(&lines) {
        Ok(lines)
    } else {
        let why = "a segment of it does not fit its checksum";
        Err(ReadError::Torn(why.to_owned()))
    }
}

/// Fills a buffer from an offset on, as far as the file reaches.
fn read_at(file: BorrowedDescriptor<'_>, buffer: &mut [u8], offset: usize) -> Result<usize, Errno> {
    let mut filled = 0;
    while let Some(rest) = buffer.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        let at = (offset + filled) as u64;
        match os::uninterrupted(|| os::read_at(file, &mut *rest, at))? {
            0 => break,
            // A short read ends at the end of the file, or at a signal; ask again.
            read => filled += read,
        }
    }
    Ok(filled)
}

/// Reads the state without the guard, while writes may be under way.
///
/// `length` is the file's length a moment ago, or [`UNKNOWN`]. Of a short file one look is mostly enough ([`at_rest`]).
pub(crate) fn read_unguarded(
    file: BorrowedDescriptor<'_>,
    length: u64,
) -> Result<Snapshot, ReadError> {
    if let Some(snapshot) = look_at_short(file, length, at_rest)?.flatten() {
        return Ok(snapshot);
    }
    settle(|| read_all(file))
}

/// The state of a first pair that one look without the guard has read, if it was surely the file's state during that
/// look: both frames are there, the sequence of one is that of the other and one more, and that one is whole. `None`
/// needs another look.
///
/// The next write goes to the older page. Its frame still had the older sequence when the look came to it, so that
/// write was not done by then. Before or after that, the look found the newer page whole. The newer one counted from
/// the end of its own write to the end of the next, and one of these instants lies in the look:
/// - The older frame was read last: the newer page was whole before, and the next write was not done.
/// - The newer page was read last: when the older frame was read, either state counted; if the older one did, the
///   newer one came to count before the look had read it.
///
/// A pair further back may count only in a longer file. If the file has grown since its length was asked for, the
/// state is the last one before that.
fn at_rest(bytes: &[u8]) -> Option<Snapshot> {
    let (first, second) = bytes.split_at_checked(PAGE_BYTES)?;
    // `None` for a page that was never written.
    let frame_of = |page: &[u8]| match Frame::of(page) {
        Ok(frame) => Some(Some(frame)),
        Err(_) => page.iter().all(|byte| *byte == 0).then_some(None),
    };
    let sequence_of = |frame: Option<Frame>| frame.map_or(0, |frame| frame.sequence);
    let frames = [frame_of(first)?, frame_of(second)?];
    let [before, after] = frames.map(sequence_of);
    let is_second = after == before + 1;
    if !is_second && before != after + 1 {
        return None;
    }
    let [in_first, in_second] = frames;
    let (frame, page) = if is_second {
        (in_second?, second)
    } else {
        (in_first?, first)
    };
    let text = Text::of_page(frame.body(page).ok()?.to_vec());
    // The segments stand further back, where this look has not been.
    text.named.is_empty().then_some(Snapshot {
        sequence: frame.sequence,
        page: Some(Page {
            pair: 0,
            second: is_second,
        }),
        long: false,
        text,
    })
}

/// Looks until two looks in a row show the same bytes. Then nothing was written in between, apart from
/// at most one page that does not count yet. It would not be enough to compare the decoded states. While
/// both pages of a pair are being written, the newest whole page may be a forgotten one of another pair.
/// Two looks may both see that one. Each look asks for the length before it reads, so the second one would show what
/// came behind the end of the first.
///
/// If the file never rests, the answer is the newest state that was seen.
fn settle(mut look: impl FnMut() -> Result<Vec<u8>, Errno>) -> Result<Snapshot, ReadError> {
    let mut before = look()?;
    let mut best: Option<Snapshot> = None;
    for _ in 0..READS_MAX {
        let bytes = look()?;
        let seen = newest(&bytes).and_then(|seen| filled(seen, &bytes));
        if bytes == before || matches!(seen, Err(ReadError::Format(_))) {
            return seen;
        }
        let states = best.into_iter().chain(seen.ok());
        best = states.max_by_key(|state| state.sequence);
        before = bytes;
    }
    let last = || newest(&before).and_then(|seen| filled(seen, &before));
    best.map_or_else(last, Ok)
}

/// Writes the next state into a page that does not count, and before it the segments that are new. Called with the
/// guard held. The list comes in parts, so that a caller need not copy what it leaves as it is.
///
/// False if the list is longer than there is room for. Then nothing was written.
pub(super) fn write(
    file: BorrowedDescriptor<'_>,
    current: &Snapshot,
    list: Vec<Piece<'_>>,
    room: Room,
) -> Result<bool, Errno> {
    let length: usize = list.iter().map(Piece::bytes).sum();
    if length + FRAME_BYTES_MAX > room.bytes() {
        return Ok(false);
    }
    let list = if segments::is_split_up(&list) {
        in_one_piece(file, &list).unwrap_or(list)
    } else {
        list
    };
    let Some(layout) = segments::lay_out(list, &current.text) else {
        return Ok(false);
    };
    let body = layout.page.iter().map(AsRef::as_ref);
    let frame = frame(current.sequence + 1, body.clone());
    let frame = frame.as_bytes();
    let length = body.clone().fold(frame.len(), |sum, part| sum + part.len());
    let Some(pair) = (0..PAIRS_MAX).find(|pair| length <= PAGE_BYTES << pair) else {
        return Ok(false);
    };
    let to_file = |parts: &[IoSlice<'_>], offset| os::write_parts_at(file, parts, offset);
    for (segment, lines) in &layout.new {
        let (mut parts, place) = ([IoSlice::new(lines)], segment.range());
        write_slot(to_file, &mut parts, place.start, place.len())?;
    }
    let page = Page {
        pair,
        // In the same pair the other page; in another pair no page counts, so either.
        second: current
            .page
            .is_some_and(|page| page.pair == pair && !page.second),
    };
    let begins_pair = current.page.is_none_or(|known| known.pair != pair);
    let outgrows = pair > 0 && current.page.is_some();
    if begins_pair && (room == Room::Keeping || outgrows) {
        let other = Page { pair, second: true };
        let nothing = vec![0; other.bytes()];
        let mut parts = [IoSlice::new(&nothing)];
        write_slot(to_file, &mut parts, other.offset(), length)?;
    }
    let parts = [frame].into_iter().chain(body);
    if pair == 0 {
        // The padding overwrites all of an older, longer body, which would confuse a reader of `cat`; a
        // terminal shows nothing for a NUL.
        let mut bytes = [0; PAGE_BYTES];
        let mut rest = bytes.as_mut_slice();
        for part in parts {
            // All of them fit: the pair was chosen by their length.
            if let Some((room, after)) = std::mem::take(&mut rest).split_at_mut_checked(part.len())
            {
                room.copy_from_slice(part);
                rest = after;
            }
        }
        write_slot(to_file, &mut [IoSlice::new(&bytes)], page.offset(), length)?;
    } else {
        let mut parts: Vec<IoSlice<'_>> = parts.map(IoSlice::new).collect();
        write_slot(to_file, &mut parts, page.offset(), length)?;
    }
    if pair == 0 && current.long && !layout.is_long {
        // The cut takes off only what no longer counts; if it fails, the file is merely longer.
        let _ = os::cut(file, (2 * PAGE_BYTES) as u64);
    }
    Ok(true)
}

/// Writes all of `parts`, of which the first `needed` bytes count. The system may take these and no more: the
/// disk is full, or a file may not be that long. Then the page is whole and counts, so this is no
/// failure: the answer has to be what the next reader finds.
///
/// `write` is the system's call: it writes from an offset on, and says how many bytes it took.
fn write_slot(
    write: impl Fn(&[IoSlice<'_>], u64) -> Result<usize, Errno>,
    mut parts: &mut [IoSlice<'_>],
    offset: usize,
    needed: usize,
) -> Result<(), Errno> {
    let end_needed = (offset + needed) as u64;
    let mut offset = offset as u64;
    // Leaves out the empty parts at the beginning, so that parts that are left have bytes that are left.
    IoSlice::advance_slices(&mut parts, 0);
    while !parts.is_empty() {
        match os::uninterrupted(|| write(parts, offset)) {
            Ok(0) | Err(_) if offset >= end_needed => return Ok(()),
            Ok(0) => return Err(Errno::NOSPC),
            Err(errno) => return Err(errno),
            Ok(written) => {
                IoSlice::advance_slices(&mut parts, written);
                offset += written as u64;
            }
        }
    }
    Ok(())
}

/// Reads the file to its end.
fn read_all(file: BorrowedDescriptor<'_>) -> Result<Vec<u8>, Errno> {
    let length = usize::try_from(os::facts(file)?.size()).unwrap_or(usize::MAX);
    let mut bytes = vec![0; length.min(FILE_BYTES_MAX)];
    let filled = read_at(file, &mut bytes, 0)?;
    bytes.truncate(filled);
    Ok(bytes)
}

/// How much of a page [`heads`] reads: a header with more hosts than that is not found.
const HEAD_BYTES: usize = PAGE_BYTES;

/// The first lines of the lists in all pages whose frame can be read: what is left of a file of which no page is whole.
pub(super) fn heads(file: BorrowedDescriptor<'_>) -> Result<Vec<Vec<u8>>, Errno> {
    let mut heads = Vec::new();
    for pair in 0..PAIRS_MAX {
        for second in [false, true] {
            let mut start = [0; HEAD_BYTES];
            let filled = read_at(file, &mut start, Page { pair, second }.offset())?;
            let start = start.get(..filled).unwrap_or_default();
            let body = Frame::of(start).ok();
            let body = body.and_then(|frame| start.get(frame.start..));
            let mut lines = body
                .into_iter()
                .flat_map(|body| body.split(|byte| *byte == b'\n'));
            heads.extend(
                lines
                    .find(|line| !segments::is_index(line))
                    .map(<[u8]>::to_vec),
            );
        }
    }
    Ok(heads)
}

/// The pages of a file, as far as it reaches.
fn pages_of(bytes: &[u8]) -> impl Iterator<Item = (Page, &[u8])> {
    let pairs = 0..PAIRS_MAX;
    let pages = pairs.flat_map(|pair| [false, true].map(|second| Page { pair, second }));
    pages.map_while(|page| {
        let end = (page.offset() + page.bytes()).min(bytes.len());
        Some((page, bytes.get(page.offset()..end)?))
    })
}

/// Finds the whole page with the highest sequence.
fn newest(bytes: &[u8]) -> Result<Snapshot, ReadError> {
    let state = |frame: Frame, page, body: &[u8]| Snapshot {
        sequence: frame.sequence,
        page: Some(page),
        long: bytes.len() > 2 * PAGE_BYTES,
        text: Text::of_page(body.to_vec()),
    };
    // Mostly the newest page is whole, and then the bodies of the others are not looked at. Of two alike the first one
    // counts.
    let mut newest: Option<(Frame, Page, &[u8])> = None;
    for (page, content) in pages_of(bytes) {
        match Frame::of(content) {
            Ok(frame) if newest.is_none_or(|(known, ..)| known.sequence < frame.sequence) => {
                newest = Some((frame, page, content));
            }
            Ok(_) => {}
            Err(_) => refuse_other_format(content)?,
        }
    }
    if let Some((frame, page, content)) = newest
        && let Ok(body) = frame.body(content)
    {
        return Ok(state(frame, page, body));
    }
    let (mut framed, mut torn) = (Vec::new(), Vec::new());
    for (page, content) in pages_of(bytes) {
        match Frame::of(content) {
            Ok(frame) => framed.push((frame, page, content)),
            Err(_) if content.iter().all(|byte| *byte == 0) => {}
            Err(why) => torn.push((page, looks_like_ours(content), why)),
        }
    }
    framed.sort_by_key(|(frame, ..)| std::cmp::Reverse(frame.sequence));
    for (frame, page, content) in framed {
        match frame.body(content) {
            Ok(body) => return Ok(state(frame, page, body)),
            Err(why) => torn.push((page, true, why)),
        }
    }
    // While no page is whole, a write goes to the first page of some pair: the very first write, and
    // each later one as long as all are torn. Then no caller was ever told that a write succeeded, and
    // the file begins anew. Any other torn content was a state, or is not ours.
    let strange = |(page, is_ours, _): &(Page, bool, &str)| page.second || !is_ours;
    match torn.into_iter().find(strange) {
        None => Ok(Snapshot::fresh()),
        Some((_, _, why)) => Err(ReadError::Torn(why.to_owned())),
    }
}

impl Snapshot {
    /// The state of a file that was never written.
    pub(crate) fn fresh() -> Self {
        Self {
            sequence: 0,
            page: None,
            long: false,
            text: Text::default(),
        }
    }

    /// The state that replaces an unreadable one: nothing in the file counts any more.
    pub(crate) fn replacing_torn() -> Self {
        Self {
            // Nothing in the file has a valid sequence.
            sequence: 0,
            page: None,
            long: true,
            text: Text::default(),
        }
    }

    /// Whether this is the state that replaces an unreadable one.
    pub(super) fn replaces_torn(&self) -> bool {
        self.sequence == 0 && self.long
    }
}

/// The number of the format that this build reads and writes.
const FORMAT: u32 = 1;

const MAGIC: &str = "tenure 1 ";

/// Fails if a page has the frame of another format.
fn refuse_other_format(content: &[u8]) -> Result<(), ReadError> {
    let line = content.get(..FRAME_BYTES_MAX).unwrap_or(content);
    let end = line.iter().position(|byte| matches!(byte, b'\n' | 0));
    let line = String::from_utf8_lossy(line.get(..end.unwrap_or(line.len())).unwrap_or_default());
    let mut words = line.split(' ');
    let (magic, number) = (words.next(), words.next().unwrap_or_default());
    let is_number = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    if magic != Some("tenure") || !is_number || number == FORMAT.to_string() {
        return Ok(());
    }
    let is_version = |word: &&str| {
        let is_of_one = |byte: u8| byte.is_ascii_alphanumeric() || b".-+".contains(&byte);
        word.contains('.') && word.bytes().all(is_of_one)
    };
    Err(ReadError::Format(Format {
        number: number.to_owned(),
        by: words
            .next_back()
            .filter(is_version)
            .map(|word| format!("tenure {word}")),
    }))
}

/// Whether a page begins as our writes do, as far as the write got.
pub(super) fn looks_like_ours(bytes: &[u8]) -> bool {
    let head = bytes.get(..bytes.len().min(MAGIC.len())).unwrap_or(bytes);
    // A write further back lengthens the file and leaves NULs in between.
    let written = head.iter().position(|byte| *byte == 0);
    let (written, nothing) = head.split_at(written.unwrap_or(head.len()));
    !written.is_empty()
        && MAGIC.as_bytes().starts_with(written)
        && nothing.iter().all(|byte| *byte == 0)
}

/// The frame line of a page whose body has these parts.
pub(super) fn frame<'b>(sequence: u64, body: impl Iterator<Item = &'b [u8]>) -> String {
    let (mut hasher, mut length) = (XxHash64::with_seed(sequence), 0);
    for part in body {
        hasher.write(part);
        length += part.len();
    }
    format!("{MAGIC}{sequence} {length} {:016x}\n", hasher.finish())
}

/// The longest frame line that a reader looks for.
const FRAME_BYTES_MAX: usize = 96;

/// What a frame line says of its page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Frame {
    sequence: u64,
    length: usize,
    sum: u64,
    /// Where the body begins in the page.
    start: usize,
}

impl Frame {
    fn of(content: &[u8]) -> Result<Self, &'static str> {
        let start = content.get(..FRAME_BYTES_MAX).unwrap_or(content);
        let line = start.iter().position(|byte| *byte == b'\n');
        let line = line
            .and_then(|end| start.get(..end))
            .ok_or("it has no frame line")?;
        let numbers = std::str::from_utf8(line)
            .ok()
            .and_then(|line| line.strip_prefix(MAGIC));
        let mut numbers = numbers
            .ok_or("it does not begin with `tenure 1`")?
            .split(' ');
        // What stands behind the numbers is passed over.
        let mut next = |base| u64::from_str_radix(numbers.next()?, base).ok();
        // No write could follow the last number, and 0 stands for a file without any state.
        let sequence = next(10)
            .filter(|sequence| (1..u64::MAX).contains(sequence))
            .ok_or("its sequence is no number that a write can have")?;
        let length = next(10)
            .and_then(|length| usize::try_from(length).ok())
            .filter(|length| *length <= FILE_BYTES_MAX)
            .ok_or("its length is not a number")?;
        let sum = next(16).ok_or("its checksum is not a number")?;
        Ok(Self {
            sequence,
            length,
            sum,
            start: line.len() + 1,
        })
    }

    /// The body that the page has, if it is whole.
    fn body(self, page: &[u8]) -> Result<&[u8], &'static str> {
        let body = page.get(self.start..);
        let body = body.and_then(|rest| rest.get(..self.length));
        let body = body.ok_or("it ends before its length")?;
        if self.is_of(body) {
            Ok(body)
        } else {
            Err("its checksum does not fit")
        }
    }

    /// Whether it was written with this body.
    fn is_of(self, body: &[u8]) -> bool {
        XxHash64::oneshot(self.sequence, body) == self.sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::{Cell, RefCell};
    use tenure_os::os::{borrow, facts};

    fn write_all(file: BorrowedDescriptor<'_>, bytes: &[u8], offset: usize) -> Result<(), Errno> {
        let to_file = |parts: &[IoSlice<'_>], offset| os::write_parts_at(file, parts, offset);
        write_slot(to_file, &mut [IoSlice::new(bytes)], offset, bytes.len())
    }

    fn scratch() -> std::fs::File {
        tempfile::tempfile().expect("a temporary file")
    }

    /// [`super::read`], with the length that its caller would know.
    fn read(file: BorrowedDescriptor<'_>) -> Result<Snapshot, ReadError> {
        let length = facts(file).expect("a file").size();
        let mut snapshot = super::read(file, length)?;
        fill_all(file, &mut snapshot.text)?;
        Ok(snapshot)
    }

    /// [`super::write`] of a whole body.
    fn write(file: BorrowedDescriptor<'_>, current: &Snapshot, body: &[u8]) -> Result<bool, Errno> {
        super::write(file, current, list(&[body]), Room::All)
    }

    fn list<'b>(parts: &[&'b [u8]]) -> Vec<Piece<'b>> {
        let parts = parts.iter();
        parts
            .map(|part| Piece::Lines(Cow::Borrowed(part)))
            .collect()
    }

    fn frame(sequence: u64, body: &[u8]) -> String {
        super::frame(sequence, [body].into_iter())
    }

    #[test]
    fn a_frame_is_a_line_of_numbers_and_comes_back() {
        for (sequence, body) in [
            (1, b"".as_slice()),
            (u64::MAX - 1, b"one"),
            (10, &[b'x'; 2000]),
        ] {
            let sum = XxHash64::oneshot(sequence, body);
            let line = frame(sequence, body);
            let length = body.len();
            assert_eq!(line, format!("{MAGIC}{sequence} {length} {sum:016x}\n"));
            let start = line.len();
            let expected = Frame {
                sequence,
                length,
                sum,
                start,
            };
            assert_eq!(Frame::of(line.as_bytes()), Ok(expected));
            // What stands behind the numbers is passed over.
            let more = line.replace('\n', " and more\n");
            let start = more.len();
            assert_eq!(Frame::of(more.as_bytes()), Ok(Frame { start, ..expected }));
        }
        for line in [
            "", "x 1 ", "1  0", "1 1 ", "1 1 1g", "1x 1 0", "0 1 0", "1a 1 0", "1 1a 0",
        ] {
            let line = format!("{MAGIC}{line}\n");
            assert!(Frame::of(line.as_bytes()).is_err(), "{line:?}");
        }
        let beyond = format!("{MAGIC}1 1 10000000000000000\n");
        assert!(Frame::of(beyond.as_bytes()).is_err(), "more than 64 bits");
    }

    fn put(file: &std::fs::File, body: &[u8]) -> Snapshot {
        let current = read(borrow(file)).expect("a whole state");
        assert!(write(borrow(file), &current, body).expect("a write"));
        read(borrow(file)).expect("a whole state")
    }

    #[test]
    fn the_last_write_counts_and_the_one_before_survives_a_torn_one() {
        let file = scratch();
        assert_eq!(put(&file, b"one").text.bytes, b"one");
        let two = put(&file, b"two");
        assert_eq!(two.text.bytes, b"two");
        // Tear the page that the next write goes to, at every length.
        let three = {
            let mut bytes = frame(3, b"three").into_bytes();
            bytes.extend_from_slice(b"three");
            bytes
        };
        for cut in 0..three.len() {
            write_all(borrow(&file), &vec![0xff; PAGE_BYTES], 0).expect("a write");
            write_all(borrow(&file), three.get(..cut).expect("a prefix"), 0).expect("a write");
            let seen = read(borrow(&file)).expect("the page before still counts");
            assert_eq!(seen.text.bytes, b"two", "torn after {cut} bytes");
        }
    }

    #[test]
    fn a_torn_first_write_is_no_state_and_foreign_content_is_not_ours_to_overwrite() {
        let file = scratch();
        write_all(borrow(&file), b"tenure 1 1 300 00", 0).expect("a write");
        assert_eq!(read(borrow(&file)).expect("nothing yet").sequence, 0);
        let foreign = scratch();
        write_all(borrow(&foreign), b"12345\n", 0).expect("a write");
        assert!(
            matches!(read(borrow(&foreign)), Err(ReadError::Torn(_))),
            "another program's PID file is not an empty lock"
        );
    }

    #[test]
    fn a_first_write_that_was_too_long_for_the_first_pair_and_torn_is_no_state_either() {
        let long = vec![b'x'; 6_000];
        let file = scratch();
        let fresh = read(borrow(&file)).expect("nothing yet");
        assert!(write(borrow(&file), &fresh, &long).expect("a write"));
        let whole = read_all(borrow(&file)).expect("the file");
        let page = whole.len() - frame(1, &long).len() - long.len();
        for cut in [page + 1, page + 5, page + 40, whole.len() - 1] {
            os::cut(&file, cut as u64).expect("a torn file");
            let seen = read(borrow(&file)).expect("no write ever succeeded");
            assert_eq!(seen.sequence, 0, "torn after {cut} bytes");
            write_all(borrow(&file), &whole, 0).expect("a write");
        }
        put(&file, &long);
        let bytes = read_all(borrow(&file)).expect("the file");
        let mut damaged = bytes.clone();
        for page in [page, page + 8192] {
            *damaged.get_mut(page + 100).expect("a byte") = b'y';
        }
        assert!(newest(&damaged).is_err(), "two torn pages were a state");
    }

    #[test]
    fn a_first_write_that_is_torn_twice_at_different_lengths_is_no_state_either() {
        let file = scratch();
        write_all(borrow(&file), b"tenure 1 1 300 00", 0).expect("a write");
        let fresh = read(borrow(&file)).expect("nothing yet");
        assert!(write(borrow(&file), &fresh, &vec![b'x'; 6_000]).expect("a write"));
        let whole = read_all(borrow(&file)).expect("the file");
        file.set_len(whole.len() as u64 - 1).expect("a torn file");
        for (cut, written) in [
            (0, &b""[..]),
            (1, b"t"),
            (9, b"tenure 1 "),
            (12, b"tenure 1 1 5"),
        ] {
            write_all(borrow(&file), &[0; PAGE_BYTES], 0).expect("a write");
            write_all(borrow(&file), written, 0).expect("a write");
            let seen = read(borrow(&file)).expect("still no write ever succeeded");
            assert_eq!(seen.sequence, 0, "torn after {cut} bytes");
        }
        assert_eq!(put(&file, b"one").text.bytes, b"one", "and it can be begun");
    }

    #[test]
    fn a_sequence_that_cannot_be_counted_on_is_no_state() {
        for sequence in [0, u64::MAX] {
            let file = scratch();
            let mut bytes = frame(sequence, b"x").into_bytes();
            bytes.push(b'x');
            bytes.resize(2 * PAGE_BYTES, b'\n');
            write_all(borrow(&file), &bytes, 0).expect("a write");
            assert!(
                matches!(read(borrow(&file)), Err(ReadError::Torn(_))),
                "sequence {sequence}"
            );
        }
    }

    /// A file's bytes with one state in each of these pages; a body of `None` is torn.
    fn image(pages: &[(Page, u64, Option<&str>)]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for (page, sequence, body) in pages {
            let mut content = frame(*sequence, body.unwrap_or("whole").as_bytes()).into_bytes();
            content.extend_from_slice(body.unwrap_or("torn!").as_bytes());
            bytes.resize(bytes.len().max(page.offset() + page.bytes()), 0);
            let to = page.offset()..page.offset() + content.len();
            bytes.splice(to, content);
        }
        bytes
    }

    /// The bytes of a first pair at each instant while three writes go on, and the state that counts then: a write
    /// shows in pieces, and counts with its last one.
    fn instants() -> Vec<(Vec<u8>, u64)> {
        const PIECE: usize = 24;
        let mut bytes = vec![0; 2 * PAGE_BYTES];
        let mut all = vec![(bytes.clone(), 0)];
        for sequence in 1..=4 {
            let body = [b'a' + u8::try_from(sequence).expect("few"); 40];
            let mut page = frame(sequence, &body).into_bytes();
            page.extend_from_slice(&body);
            let offset = if sequence % 2 == 0 { PAGE_BYTES } else { 0 };
            let pieces = page.len().div_ceil(PIECE);
            for (number, piece) in page.chunks(PIECE).enumerate() {
                let at = offset + number * PIECE;
                let to = bytes.get_mut(at..at + piece.len()).expect("a piece of it");
                to.copy_from_slice(piece);
                let counts = sequence - u64::from(number + 1 < pieces);
                all.push((bytes.clone(), counts));
            }
        }
        all
    }

    /// The bytes of a page in two parts, each as it was at an instant of its own; a look reads them in any order.
    #[test]
    fn one_look_without_the_guard_shows_a_state_that_counted_during_it_or_asks_for_another() {
        const PARTS: [Range<usize>; 4] = [
            0..30,
            30..PAGE_BYTES,
            PAGE_BYTES..PAGE_BYTES + 30,
            PAGE_BYTES + 30..2 * PAGE_BYTES,
        ];
        const ORDERS: [[usize; 4]; 4] = [[0, 1, 2, 3], [2, 3, 0, 1], [1, 0, 3, 2], [3, 0, 2, 1]];
        let all = instants();
        let mut shown = 0;
        for begins in 0..all.len() {
            for second in begins..all.len() {
                for third in second..all.len() {
                    for ends in third..all.len() {
                        for order in ORDERS {
                            let mut look = vec![0; 2 * PAGE_BYTES];
                            for (part, at) in order.into_iter().zip([begins, second, third, ends]) {
                                let range = PARTS[part].clone();
                                look[range.clone()].copy_from_slice(&all[at].0[range]);
                            }
                            let Some(state) = at_rest(&look) else {
                                continue;
                            };
                            shown += 1;
                            let counted = all[begins..=ends].iter().map(|(_, counts)| *counts);
                            assert!(
                                counted.clone().any(|counts| counts == state.sequence),
                                "{} in a look at {:?}",
                                state.sequence,
                                counted.collect::<Vec<_>>()
                            );
                        }
                    }
                }
            }
        }
        assert!(shown > 1_000, "mostly one look is enough: {shown}");
        assert!(at_rest(&[]).is_none(), "an empty file is looked at again");
    }

    #[test]
    fn a_reader_without_the_guard_is_not_led_back_to_a_forgotten_slot() {
        let page = |pair, second| Page { pair, second };
        let old = (page(0, true), 5, Some("old"));
        // A write overtook both pages of the larger pair while they were being read.
        let overtaken = |sequence| {
            image(&[
                old,
                (page(1, false), sequence, None),
                (page(1, true), sequence + 1, None),
            ])
        };
        let rest = image(&[
            old,
            (page(1, false), 106, Some("new")),
            (page(1, true), 105, Some("before")),
        ]);
        let mut looks = vec![
            overtaken(100),
            overtaken(102),
            overtaken(104),
            rest.clone(),
            rest,
        ]
        .into_iter();
        let seen = settle(|| Ok(looks.next().expect("no further look")));
        assert_eq!(seen.expect("a state").text.bytes, b"new");

        let torn = image(&[(page(0, false), 7, None), (page(0, true), 8, None)]);
        let other = image(&[(page(0, false), 9, None), (page(0, true), 10, None)]);
        let rest = image(&[
            (page(0, false), 11, Some("new")),
            (page(0, true), 10, Some("before")),
        ]);
        let mut looks = vec![torn, other, rest.clone(), rest].into_iter();
        let seen = settle(|| Ok(looks.next().expect("no further look")));
        assert_eq!(
            seen.expect("a state").text.bytes,
            b"new",
            "torn twice is no verdict"
        );
    }

    #[test]
    fn a_file_that_never_rests_answers_with_the_newest_state_seen() {
        let mut sequence = 100;
        let seen = settle(|| {
            sequence += 1;
            let page = Page {
                pair: 0,
                second: false,
            };
            // Every third look is overtaken and shows nothing but an older page.
            let shown = if sequence % 3 == 0 { 5 } else { sequence };
            Ok(image(&[(page, shown, Some(&sequence.to_string()))]))
        });
        let seen = seen.expect("a state").sequence;
        assert!(seen >= 100 + READS_MAX as u64 - 1, "it was {seen}");
    }

    #[test]
    fn growing_and_shrinking_go_through_whole_states() {
        let file = scratch();
        for size in [10, 3_000, 100, 200_000, 5_000, 20, 1_990, 2_048] {
            let body = vec![b'x'; size];
            assert_eq!(put(&file, &body).text.bytes, body, "size {size}");
        }
        put(&file, b"short");
        let length = || file.metadata().expect("metadata").len();
        assert_eq!(length(), 4096, "a short list needs one page");
        assert_eq!(
            put(&file, b"short again").text.bytes,
            b"short again",
            "after the cut"
        );
        assert_eq!(length(), 4096);
        let page = read(borrow(&file)).expect("a whole state");
        assert!(!page.long, "nothing is left to be cut off");
    }

    /// What this work gives, and how many calls of this thread read meanwhile.
    #[cfg(target_os = "linux")]
    fn counted<T>(work: impl FnOnce() -> T) -> (T, u64) {
        let reads = || {
            let told =
                std::fs::read_to_string("/proc/thread-self/io").expect("the kernel's counts");
            let reads = told.lines().find_map(|line| line.strip_prefix("syscr: "));
            reads
                .and_then(|reads| reads.parse::<u64>().ok())
                .expect("a number")
        };
        // A look at the count reads as well.
        let (first, second) = (reads(), reads());
        let given = work();
        (given, reads() - second - (second - first))
    }

    #[cfg(target_os = "linux")]
    #[test]
    #[allow(clippy::print_stdout, reason = "a skipped test says so")]
    fn a_short_file_is_read_by_one_call_and_a_long_one_by_its_frames() {
        if !Path::new("/proc/thread-self/io").exists() {
            println!("skipped: this kernel counts no calls");
            return;
        }
        let file = scratch();
        put(&file, b"before");
        let short = put(&file, b"short");
        for length in [2 * PAGE_BYTES as u64, UNKNOWN] {
            let (seen, reads) = counted(|| super::read(borrow(&file), length));
            assert_eq!((seen.expect("a state"), reads), (short.clone(), 1));
            let (seen, reads) = counted(|| read_unguarded(borrow(&file), length));
            assert_eq!((seen.expect("a state"), reads), (short.clone(), 1));
        }
        let other = super::read(borrow(&file), 2 * PAGE_BYTES as u64 - 1);
        assert_eq!(other.expect("a state"), short, "it was shorter before");
        let long = put(&file, &[b'x'; 3_000]);
        for length in [facts(&file).expect("a file").size(), UNKNOWN] {
            let (seen, reads) = counted(|| super::read(borrow(&file), length));
            // The frames of two pairs (a pair that is begun has both its pages), the end of the file, and the body.
            assert_eq!((seen.expect("a state"), reads), (long.clone(), 6));
            let (seen, reads) = counted(|| read_unguarded(borrow(&file), length));
            assert_eq!((seen.expect("a state"), reads), (long.clone(), 2));
        }
    }

    #[test]
    fn a_frame_of_another_format_is_refused_wherever_it_stands_and_however_it_is_read() {
        let (first, second) = (
            Page {
                pair: 0,
                second: false,
            },
            Page {
                pair: 0,
                second: true,
            },
        );
        let further = Page {
            pair: 2,
            second: true,
        };
        for (line, number, by) in [
            (
                "tenure 2 9 3 0123456789abcdef 0.9.0\n",
                "2",
                Some("tenure 0.9.0"),
            ),
            (
                "tenure 10 whatever it says 1.0.0-rc.1\n",
                "10",
                Some("tenure 1.0.0-rc.1"),
            ),
            ("tenure 2 9 3 0123456789abcdef\n", "2", None),
            ("tenure 2 torn", "2", None),
            ("tenure 0 \n", "0", None),
            ("tenure 2\n", "2", None),
            ("tenure 2 9 3 0 \u{1b}[31m.0\n", "2", None),
        ] {
            let expected = Format {
                number: number.to_owned(),
                by: by.map(str::to_owned),
            };
            for (at, known) in [(first, second), (second, first), (further, second)] {
                let mut bytes = image(&[(known, 3, Some("an older list"))]);
                bytes.resize(bytes.len().max(at.offset() + at.bytes()), 0);
                bytes.splice(at.offset()..at.offset() + line.len(), line.bytes());
                let file = scratch();
                write_all(borrow(&file), &bytes, 0).expect("a written file");
                let looks = [
                    read(borrow(&file)),
                    super::read(borrow(&file), UNKNOWN),
                    read_unguarded(borrow(&file), bytes.len() as u64),
                    newest(&bytes),
                ];
                for look in looks {
                    let Err(ReadError::Format(found)) = look else {
                        panic!("{line:?} in {at:?}: {look:?}");
                    };
                    assert_eq!(found, expected, "{line:?} in {at:?}");
                }
            }
        }
        for line in [
            "tenure 1 torn",
            "tenure x 2\n",
            "tenure  2\n",
            "tenures 2 1 1 0\n",
        ] {
            let mut bytes = image(&[(second, 3, Some("the list"))]);
            bytes.splice(0..line.len(), line.bytes());
            assert_eq!(
                newest(&bytes).expect("a state").text.bytes,
                b"the list",
                "{line:?}"
            );
        }
    }

    #[test]
    fn a_read_ends_where_its_file_ends() {
        let file = scratch();
        write_all(borrow(&file), b"0123456789", 0).expect("a written file");
        let mut buffer = *b"......";
        assert_eq!(read_at(borrow(&file), &mut buffer, 6), Ok(4));
        assert_eq!(&buffer, b"6789..");
    }

    #[test]
    fn slots_lie_side_by_side_and_all_of_them_are_read() {
        let mut end = 0;
        for pair in 0..PAIRS_MAX {
            for second in [false, true] {
                let page = Page { pair, second };
                assert_eq!(
                    page.offset(),
                    end,
                    "{page:?} begins where the last one ends"
                );
                assert_eq!(page.bytes(), 2_048 << pair, "{page:?}");
                end += page.bytes();
            }
        }
        assert_eq!(end, SEGMENTS_START, "there the segments begin");
    }

    /// Death during a write leaves the state before it, whatever the sizes.
    #[test]
    fn the_slot_that_counts_is_never_written_to() {
        let sizes = [10, 10, 10, 3_000, 3_000, 3_000, 9_000, 3_000, 3_000];
        let file = scratch();
        for (round, size) in sizes.into_iter().enumerate() {
            let before = read(borrow(&file)).expect("a whole state");
            let counts = |bytes: &[u8]| {
                let page = before.page?;
                bytes
                    .get(page.offset()..page.offset() + page.bytes())
                    .or_else(|| bytes.get(page.offset()..))
                    .map(|found| found.get(..before.text.bytes.len()).map(<[u8]>::to_vec))
            };
            let was = counts(&read_all(borrow(&file)).expect("the file"));
            assert_eq!(was.is_some(), round > 0, "round {round}");
            assert!(write(borrow(&file), &before, &vec![b'x'; size]).expect("a write"));
            let is = counts(&read_all(borrow(&file)).expect("the file"));
            assert_eq!(is, was, "round {round}, {size} bytes");
        }
    }

    /// What another program wrote there is torn as well, whichever way it is read.
    #[test]
    fn a_body_ends_with_its_slot_and_of_two_equal_states_the_first_counts() {
        let page = |pair, second| Page { pair, second };
        let file = scratch();
        let both_ways = |bytes: &[u8]| {
            file.set_len(0).expect("an empty file");
            write_all(borrow(&file), bytes, 0).expect("a written file");
            let seen = read(borrow(&file)).expect("a state");
            assert_eq!(seen, newest(bytes).expect("a state"));
            seen
        };
        let beyond = "x".repeat(4_096);
        let old = (page(0, true), 3, Some("old"));
        let next = (page(1, true), 1, None);
        let seen = both_ways(&image(&[old, next, (page(1, false), 9, Some(&beyond))]));
        assert_eq!(seen.text.bytes, b"old", "it reaches into the next page");
        let twice = image(&[
            (page(1, false), 9, Some("first")),
            (page(1, true), 9, Some("second")),
        ]);
        assert_eq!(both_ways(&twice).text.bytes, b"first");
    }

    /// Two states and an older one can stand in three pages in many ways, whole or torn, with the file
    /// cut anywhere. In each of them, reading the frames finds what reading everything finds.
    #[test]
    fn reading_the_frames_finds_what_reading_everything_finds() {
        let file = scratch();
        let pages: Vec<Page> = (0..3)
            .flat_map(|pair| [false, true].map(|second| Page { pair, second }))
            .collect();
        let bodies = [Some("one"), Some("two, and longer"), None];
        let mut compared = 0;
        for (first, second) in pages.iter().flat_map(|a| pages.iter().map(move |b| (a, b))) {
            for (index, body) in bodies.iter().enumerate() {
                for other in bodies {
                    let old = pages.get(index).copied().expect("a page");
                    let bytes = image(&[
                        (old, 3, Some("old")),
                        (*first, 7, *body),
                        (*second, 8, other),
                    ]);
                    for cut in [0, 1, 20, 90, 2_049] {
                        let shown = bytes.get(..bytes.len().saturating_sub(cut));
                        let shown = shown.expect("a part");
                        file.set_len(0).expect("an empty file");
                        write_all(borrow(&file), shown, 0).expect("a written file");
                        let all = newest(shown).map_err(|_| ());
                        let seen = read(borrow(&file)).map_err(|_| ());
                        assert_eq!(seen, all, "{first:?} {second:?} {body:?} {other:?} {cut}");
                        compared += 1;
                        // And the frames are enough, where any page is whole.
                        if let Ok(whole) = all
                            && whole.page.is_some()
                        {
                            let by_frames = read_by_frames(borrow(&file)).expect("a look");
                            assert_eq!(by_frames, Some(whole));
                        }
                    }
                }
            }
        }
        assert_eq!(compared, 36 * 9 * 5);
    }

    #[test]
    fn a_body_beyond_the_largest_slot_is_refused_and_nothing_changes() {
        let file = scratch();
        let before = put(&file, b"whole");
        let largest = 1 << 21;
        let body = vec![b'x'; largest];
        assert!(!write(borrow(&file), &before, &body).expect("a refusal"));
        assert_eq!(read(borrow(&file)).expect("a state"), before);
        // What adds a claim gets half of that.
        let joins = |length: usize| {
            let body = body.get(..length).expect("a part");
            super::write(borrow(&file), &before, list(&[body]), Room::Joining).expect("an answer")
        };
        assert!(!joins(largest / 2), "with its frame it is larger");
        assert_eq!(read(borrow(&file)).expect("a state"), before);
        assert!(joins(largest / 2 - FRAME_BYTES_MAX));
    }

    /// However a body is cut into parts, and however little the system takes at once, the same is written.
    #[test]
    fn a_body_in_parts_is_the_body() {
        let whole: Vec<u8> = (0..9_000_u32).map(|n| b'a' + (n % 26) as u8).collect();
        for cuts in [[0, 0], [0, 9_000], [1, 8_999], [31, 33], [4_096, 4_096]] {
            let (first, rest) = whole.split_at(cuts[0]);
            let (second, third) = rest.split_at(cuts[1] - cuts[0]);
            let parts = [first, second, &[], third];
            let file = scratch();
            let fresh = read(borrow(&file)).expect("nothing yet");
            let is_written = super::write(borrow(&file), &fresh, list(&parts), Room::All);
            assert!(is_written.expect("a write"), "{cuts:?}");
            assert_eq!(
                read(borrow(&file)).expect("a state").text.bytes,
                whole,
                "{cuts:?}"
            );
        }
    }

    /// A page of which ten bytes count, on a disk that takes few bytes at once, is full from some byte on, and
    /// interrupts each other call.
    #[test]
    fn a_page_is_written_where_the_system_took_all_of_it_that_counts() {
        const START: usize = 100;
        let page = b"frame+body+padding";
        for (full, why) in [(Ok(0), Errno::NOSPC), (Err(Errno::INVAL), Errno::INVAL)] {
            for (at_once, room) in [1, 4, 99]
                .into_iter()
                .flat_map(|n| (0..=18).map(move |r| (n, r)))
            {
                let taken = RefCell::new(Vec::new());
                let is_interrupted = Cell::new(false);
                let write = |parts: &[IoSlice<'_>], offset: u64| {
                    let mut taken = taken.borrow_mut();
                    assert_eq!(offset, (START + taken.len()) as u64, "the next byte");
                    if is_interrupted.replace(!is_interrupted.get()) {
                        return Err(Errno::INTR);
                    }
                    let bytes: Vec<u8> = parts.iter().flat_map(|part| part.to_vec()).collect();
                    let count = bytes.len().min(at_once).min(room - taken.len());
                    taken.extend_from_slice(&bytes[..count]);
                    if count == 0 { full } else { Ok(count) }
                };
                let parts = [&b""[..], &page[..6], b"", &page[6..]];
                let written = write_slot(write, &mut parts.map(IoSlice::new), START, 10);
                let expected = if room >= 10 { Ok(()) } else { Err(why) };
                assert_eq!(written, expected, "{room} bytes, {at_once} at once");
                assert_eq!(taken.into_inner(), page[..room]);
            }
        }
    }
}
