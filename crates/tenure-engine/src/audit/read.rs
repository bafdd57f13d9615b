//! Reads a log back: every event once, oldest first as well as that can be known.
//!
//! Both layouts are read, whichever the writer uses. A file that is written to and the files rotated out of it are one
//! series, read in the order of writing. The days' folders are read one at a time, and the files of each
//! are merged by timestamp. Then all series and the days are merged by timestamp.
//!
//! A line that is no event (torn by a crash, or written by another program) is skipped and counted. A file
//! that cannot be read is reported and hides no other.

use super::bookmark::{Bookmark, Spot};
use super::entry::{Entry, Facts};
use super::folder::{File, Folder, Inode};
use super::stream::{Stream, StreamFile, is_made_of_one};
use super::{AuditError, EventName, FILE, Place, SUFFIX, error_text, span};
use jiff::Timestamp;
use std::collections::{BTreeMap, VecDeque};
use std::path::Path;
use std::time::Duration;
use tenure_core::AgentKey;
use tenure_os::os::{self, AsDescriptor, Errno, uninterrupted};
use tenure_store::printed::clean_path;

/// The longest line that is looked at. Lines of tenure are shorter; other writers may be less careful.
const LINE_BYTES_MAX: usize = 4 * super::LINE_BYTES_MAX;

/// How much is read at once.
const BLOCK_BYTES: usize = 64 << 10;

/// How many rotated files are read at most: each keeps a descriptor.
const ROTATED_MAX: u32 = 500;

/// How many numbers in a row may be missing beyond the last known one before the search ends.
const GAPS_MAX: u32 = 3;

/// How often, and after what pauses, a reader looks again at an end that is no whole line: a writer may be
/// writing it.
const LOOKS: u32 = 5;
const LOOK_PAUSE: Duration = Duration::from_millis(2);

/// How many of the youngest days are followed. A follower misses an event that is dated further back; the
/// next reader sees it.
pub(super) const DAYS_FOLLOWED: usize = 2;

/// The events that are wanted. The default is all of them.
#[derive(Debug, Clone, Default)]
pub struct Filter {
    /// Of this lock.
    pub lock: Option<String>,
    /// Of one of these names; empty for all.
    pub events: Vec<EventName>,
    /// At this instant or later, in milliseconds since the Unix epoch.
    pub since_ms: Option<u64>,
    /// At this instant or earlier.
    pub until_ms: Option<u64>,
    /// Of this request.
    pub request_id: Option<String>,
    /// In the name of this agent, or of an agent of this session.
    pub agent: Option<AgentKey>,
}

impl Filter {
    /// Whether an event is wanted.
    fn lets_pass(&self, facts: &Facts<'_>) -> bool {
        let events = &self.events;
        self.is_about(&facts.lock_name)
            && self.is_of(&facts.request_id, &facts.agent)
            && (events.is_empty() || events.iter().any(|name| name.as_str() == facts.event))
            && self.since_ms.is_none_or(|since| facts.at_ms >= since)
            && self.until_ms.is_none_or(|until| facts.at_ms <= until)
    }

    /// Whether a lock is wanted.
    pub fn is_about(&self, lock: &str) -> bool {
        self.lock.as_deref().is_none_or(|wanted| wanted == lock)
    }

    /// Whether a caller is wanted, by its request id and the key of its agent, which may be empty.
    pub fn is_of(&self, request_id: &str, agent: &str) -> bool {
        let wanted = self.request_id.as_deref();
        wanted.is_none_or(|wanted| wanted == request_id)
            && self.agent.as_ref().is_none_or(|wanted| {
                let agent = agent.parse();
                agent.is_ok_and(|agent| wanted.covers(&agent))
            })
    }

    /// The first and the last instant that are wanted.
    fn times(&self) -> Option<(Option<u64>, Option<u64>)> {
        let times = (self.since_ms, self.until_ms);
        (times != (None, None)).then_some(times)
    }

    /// Whether a day (`YYYY-MM-DD`) can have events that are wanted.
    fn lets_day_pass(&self, day: &str) -> bool {
        let date = |at_ms: u64| {
            let at = Timestamp::from_millisecond(i64::try_from(at_ms).ok()?).ok()?;
            at.to_string()
                .split_once('T')
                .map(|(date, _)| date.to_owned())
        };
        let since = self.since_ms.and_then(date);
        let until = self.until_ms.and_then(date);
        since.is_none_or(|since| day >= since.as_str())
            && until.is_none_or(|until| day <= until.as_str())
    }
}

/// The line of a wanted event. It is small beside the event, so a day of them is kept like this.
#[derive(Debug)]
pub(super) struct EventLine {
    at_ms: u64,
    bytes: Box<[u8]>,
}

/// What was found where an event was expected. An event that is not wanted is passed over.
#[derive(Debug)]
enum LineKind {
    Event(EventLine),
    Passed,
    Garbage,
}

/// How far a file has been read.
#[derive(Debug, Default)]
pub(super) struct Position {
    /// Where in the file the next block begins.
    offset: u64,
    /// What was read and is not yet given out, from `taken` on.
    kept: Vec<u8>,
    taken: usize,
    /// The rest of a line that is too long is being skipped.
    skipping: bool,
    /// Up to here, what can be passed over was passed over.
    asked: u64,
}

impl Position {
    pub(super) fn at((offset, in_line): Spot) -> Self {
        Self {
            offset,
            skipping: in_line,
            ..Self::default()
        }
    }

    pub(super) fn spot(&self) -> Spot {
        let kept = self.kept.len() - self.taken;
        (
            self.offset - u64::try_from(kept).unwrap_or(0),
            self.skipping,
        )
    }

    /// Passes over lines of other times, as far as [spans](super::span) say so.
    fn pass(&mut self, fd: impl AsDescriptor, filter: &Filter) {
        let Some(times) = filter.times().filter(|_| !self.skipping) else {
            return;
        };
        let (mut at, _) = self.spot();
        while self.asked <= at {
            let boundary = span::boundary_after(at);
            let Some(end) = span::pass(&fd, at, boundary, times) else {
                self.asked = boundary;
                return;
            };
            *self = Self {
                offset: end,
                ..Self::default()
            };
            at = end;
        }
    }

    /// The next whole line that is there by now.
    fn next(&mut self, fd: impl AsDescriptor, filter: &Filter) -> Result<Option<LineKind>, Errno> {
        let mut searched = self.taken;
        loop {
            let unsearched = self.kept.get(searched..).unwrap_or_default();
            if let Some(length) = unsearched.iter().position(|byte| *byte == b'\n') {
                let end = searched + length;
                let line = self.kept.get(self.taken..end).unwrap_or_default();
                let found = if std::mem::take(&mut self.skipping) || line.len() > LINE_BYTES_MAX {
                    LineKind::Garbage
                } else {
                    found(line, filter)
                };
                self.taken = end + 1;
                return Ok(Some(found));
            }
            self.kept.drain(..self.taken);
            self.taken = 0;
            if self.skipping || self.kept.len() > LINE_BYTES_MAX {
                self.skipping = true;
                self.kept.clear();
            }
            searched = self.kept.len();
            self.kept.resize(searched + BLOCK_BYTES, 0);
            let block = self.kept.get_mut(searched..).unwrap_or_default();
            let length = uninterrupted(|| os::read_at(&fd, &mut *block, self.offset));
            self.kept.truncate(searched + length.unwrap_or(0));
            let length = length?;
            if length == 0 {
                self.kept.shrink_to_fit();
                return Ok(None);
            }
            self.offset += u64::try_from(length).unwrap_or(0);
        }
    }

    /// What stands at the end without a newline: an event that lacks only its newline, or the beginning of
    /// one. If a writer is at it just now, this waits for it, so the line may be whole after all.
    fn unfinished(&mut self, fd: impl AsDescriptor, filter: &Filter) -> LineKind {
        for _ in 0..LOOKS {
            let rest = self.kept.get(self.taken..).unwrap_or_default();
            if self.skipping || !matches!(found(rest, filter), LineKind::Garbage) {
                break;
            }
            tenure_os::clock::nap(LOOK_PAUSE);
            if let Ok(Some(found)) = self.next(&fd, filter) {
                return found;
            }
        }
        let rest = self.kept.get(self.taken..).unwrap_or_default();
        let found = if self.skipping {
            LineKind::Garbage
        } else {
            found(rest, filter)
        };
        self.kept.clear();
        self.taken = 0;
        self.skipping = false;
        found
    }

    /// Begins anew if the file was cut shorter than what was read of it.
    pub(super) fn look_for_cut(&mut self, size: u64) -> bool {
        let cut = size < self.offset;
        if cut {
            *self = Self::default();
        }
        cut
    }

    /// Whether nothing can be new in a file of this size.
    fn is_at(&self, size: u64) -> bool {
        self.offset == size
    }
}

fn found(line: &[u8], filter: &Filter) -> LineKind {
    if line.iter().all(u8::is_ascii_whitespace) {
        return LineKind::Passed;
    }
    match Facts::of(line) {
        Some(facts) if filter.lets_pass(&facts) => LineKind::Event(EventLine {
            at_ms: facts.at_ms,
            bytes: line.into(),
        }),
        Some(_) => LineKind::Passed,
        None => LineKind::Garbage,
    }
}

/// What did not become an event.
#[derive(Debug, Default)]
pub(super) struct Trouble {
    pub(super) skipped: u64,
    pub(super) problems: Vec<String>,
}

impl Trouble {
    pub(super) fn report(&mut self, error: &AuditError) {
        self.tell(error.to_string());
    }

    fn tell(&mut self, problem: String) {
        // A follower meets the same one again and again.
        if !self.problems.contains(&problem) {
            self.problems.push(problem);
        }
    }

    /// The next event that is wanted; `None` at the end of what is there.
    pub(super) fn next_of(
        &mut self,
        position: &mut Position,
        fd: impl AsDescriptor,
        place: &Path,
        filter: &Filter,
    ) -> Option<Entry> {
        while let Some(line) = self.next_line(position, &fd, place, filter) {
            let entry = self.event_of(&line);
            if entry.is_some() {
                return entry;
            }
        }
        None
    }

    /// Reads the next line of an event.
    fn next_line(
        &mut self,
        position: &mut Position,
        fd: impl AsDescriptor,
        place: &Path,
        filter: &Filter,
    ) -> Option<EventLine> {
        loop {
            position.pass(&fd, filter);
            match position.next(&fd, filter) {
                Ok(None) => return None,
                Ok(Some(found)) => {
                    if let Some(line) = self.sort(found) {
                        return Some(line);
                    }
                }
                Err(errno) => {
                    let error = error_text(&errno.into());
                    self.tell(format!("{}: {error}", clean_path(place)));
                    return None;
                }
            }
        }
    }

    /// The event of a line. `None` if it is none after all, which is counted.
    pub(super) fn event_of(&mut self, line: &EventLine) -> Option<Entry> {
        let entry = Entry::parse(&line.bytes);
        self.skipped += u64::from(entry.is_none());
        entry
    }

    fn sort(&mut self, found: LineKind) -> Option<EventLine> {
        match found {
            LineKind::Event(line) => Some(line),
            LineKind::Garbage => {
                self.skipped += 1;
                None
            }
            LineKind::Passed => None,
        }
    }
}

/// A file of a series, kept open: it may be renamed or dropped while it is read.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) file: File,
    pub(super) position: Position,
}

/// The name of a series: that of the file that is written to. Of two, the one comes first whose events come first where both
/// have one of the same instant.
pub(super) type Series = (Stream, String);

/// The files of all series, youngest first.
pub(super) fn chains(folder: &Folder, trouble: &mut Trouble) -> BTreeMap<Series, Vec<File>> {
    let mut last = BTreeMap::<Series, u32>::new();
    let mut unread = Vec::new();
    for name in folder.names().unwrap_or_default() {
        if let Some(named) = StreamFile::of(&name) {
            let series = (named.stream, named.file.to_owned());
            let last = last.entry(series).or_default();
            *last = named.age.max(*last);
        } else if is_made_of_one(&name) {
            unread.push(name);
        }
    }
    if let Some(first) = unread.first() {
        let others = match unread.len() {
            1 => String::new(),
            many => format!(" (and {} more)", many - 1),
        };
        trouble.tell(format!(
            "{}{others} is not read: tenure reads {FILE}, {FILE}.1 and so on, not compressed",
            clean_path(folder.path_of(first))
        ));
    }
    let chain = |(series, last): (Series, u32)| {
        let files = chain(folder, &series.1, last, trouble);
        (series, files)
    };
    last.into_iter().map(chain).collect()
}

/// The files of a series, youngest first; `last` is how many rotations ago the oldest was written that is known.
///
/// Opens the files from the youngest to the oldest, as a rotation moves them. A rotation meanwhile shows
/// files a second time, which is noticed, and hides none.
fn chain(folder: &Folder, name: &str, last: u32, trouble: &mut Trouble) -> Vec<File> {
    let mut files: Vec<File> = Vec::new();
    let mut open = |name: &str| match folder.read(name) {
        Ok(Some(file)) => {
            // Seen again under a higher number: the files opened in between are younger.
            files.retain(|known| known.inode != file.inode);
            files.push(file);
            true
        }
        Ok(None) => false,
        Err(error) => {
            trouble.report(&error);
            true
        }
    };
    open(name);
    // A rotation meanwhile moves files up, and leaves a gap that moves down. The list of names may lack a
    // file, and a name may be missing with another behind it.
    let mut missing = 0;
    for number in 1..=ROTATED_MAX {
        if open(&format!("{name}.{number}")) {
            missing = 0;
        } else {
            missing += 1;
        }
        if number >= last && missing > GAPS_MAX {
            break;
        }
    }
    files
}

/// The days that have a folder, sorted.
pub(super) fn days(folder: &Folder) -> Result<Vec<String>, AuditError> {
    let mut names = folder.names()?;
    names.retain(|name| is_day(name));
    Ok(names)
}

/// `YYYY-MM-DD`.
fn is_day(name: &str) -> bool {
    name.len() == 10
        && name.bytes().enumerate().all(|(at, byte)| match at {
            4 | 7 => byte == b'-',
            _ => byte.is_ascii_digit(),
        })
}

/// How far the files of one day have been read, by their names.
pub(super) type Day = BTreeMap<String, (Inode, Position)>;

/// Reads what is new in one day's folder.
pub(super) fn read_day(
    folder: &Folder,
    day: &mut Day,
    whole: bool,
    filter: &Filter,
    trouble: &mut Trouble,
) -> Vec<EventLine> {
    let mut lines = Vec::new();
    let names = folder.names().unwrap_or_else(|error| {
        trouble.report(&error);
        Vec::new()
    });
    for name in names.into_iter().filter(|name| name.ends_with(SUFFIX)) {
        if let (Some((known, position)), Some((inode, size))) = (day.get(&name), folder.look(&name))
            && *known == inode
            && position.is_at(size)
        {
            continue;
        }
        let file = match folder.read(&name) {
            Ok(Some(file)) => file,
            Ok(None) => continue,
            Err(error) => {
                trouble.report(&error);
                continue;
            }
        };
        let place = folder.path_of(&name);
        let known = day.entry(name).or_default();
        if known.0 != file.inode {
            *known = (file.inode, Position::default());
        }
        let position = &mut known.1;
        position.look_for_cut(file.size);
        while let Some(line) = trouble.next_line(position, &file.fd, &place, filter) {
            lines.push(line);
        }
        if whole && let Some(line) = trouble.sort(position.unfinished(&file.fd, filter)) {
            lines.push(line);
        }
    }
    lines.sort_by_key(|line| line.at_ms);
    lines
}

/// The files of a series, and how far a reader of all is in them.
#[derive(Debug)]
struct Chain {
    series: Series,
    /// Oldest first; those before `at` are read.
    links: Vec<Link>,
    at: usize,
    /// The chain's next event.
    next: Option<Entry>,
}

/// The events of a log, oldest first. It keeps one block of each series in memory at a time, and of the
/// days' folders the lines of one day.
#[derive(Debug)]
pub struct Events {
    pub(super) place: Place,
    pub(super) filter: Filter,
    pub(super) trouble: Trouble,
    /// `None` where there is no audit.
    pub(super) folder: Option<Folder>,
    chains: Vec<Chain>,
    /// Days that are still to be read.
    days: VecDeque<String>,
    day: VecDeque<EventLine>,
    /// What the follower goes on from.
    pub(super) read_days: BTreeMap<String, Day>,
    /// Where it begins, for a reader that another one goes on from: a line that has no newline yet is left to that one.
    pub(super) from: Option<Bookmark>,
}

impl Events {
    /// The events in this folder that a filter lets pass. Creates nothing; a folder that is not
    /// there has no events.
    ///
    /// # Errors
    /// - [`AuditError::Io`] if the folder cannot be read.
    /// - [`AuditError::Unsafe`] if it cannot be trusted.
    pub fn open(place: impl Into<Place>, filter: Filter) -> Result<Self, AuditError> {
        Self::begin(&place.into(), filter, None)
    }

    pub(super) fn begin(
        place: &Place,
        filter: Filter,
        mut from: Option<Bookmark>,
    ) -> Result<Self, AuditError> {
        let place = place.settled().into_owned();
        let folder = Folder::open(&place, false)?;
        let mut trouble = Trouble::default();
        let mut chains = Vec::new();
        let mut days = VecDeque::new();
        if let Some(folder) = &folder {
            let mut found = self::days(folder)?;
            found.retain(|day| from.as_ref().is_none_or(|from| from.lets_day_pass(day)));
            days = found.into();
            let link = |(file, spot): (File, Option<Spot>)| Link {
                file,
                position: spot.map(Position::at).unwrap_or_default(),
            };
            let chain = |(series, files): (Series, Vec<File>)| {
                let spots = match &mut from {
                    Some(from) => from.take(&series.1, &files),
                    None => vec![None; files.len()],
                };
                let links = files.into_iter().zip(spots).rev().map(link).collect();
                Chain {
                    series,
                    links,
                    at: 0,
                    next: None,
                }
            };
            let found = self::chains(folder, &mut trouble);
            chains = found.into_iter().map(chain).collect();
        }
        Ok(Self {
            place,
            filter,
            trouble,
            folder,
            chains,
            days,
            day: VecDeque::new(),
            read_days: BTreeMap::new(),
            from,
        })
    }

    /// How many lines were skipped so far because they are no events.
    pub fn skipped(&self) -> u64 {
        self.trouble.skipped
    }

    /// What could not be read so far, a sentence each.
    pub fn problems(&self) -> &[String] {
        &self.trouble.problems
    }

    /// Of all series the one with the earliest next event, and when that was.
    fn earliest(&mut self) -> Option<(u64, usize)> {
        let (place, filter, followed) = (&self.place, &self.filter, self.from.is_some());
        for chain in &mut self.chains {
            if chain.next.is_none() {
                chain.next = chain.read(place, filter, followed, &mut self.trouble);
            }
        }
        let next = |(at, chain): (usize, &Chain)| Some((chain.next.as_ref()?.at_ms(), at));
        self.chains.iter().enumerate().filter_map(next).min()
    }

    /// The files of each series, oldest first, and how far they are read.
    pub(super) fn links(&self) -> impl Iterator<Item = (&str, &[Link])> {
        let chains = self.chains.iter();
        chains.map(|chain| (&*chain.series.1, &*chain.links))
    }

    /// What a follower goes on with: of each series the files that are read, oldest first.
    pub(super) fn into_followed(self) -> (Place, Filter, Trouble, BTreeMap<Series, Vec<Link>>) {
        let chains = self.chains.into_iter();
        let links = chains.map(|chain| (chain.series, chain.links)).collect();
        (self.place, self.filter, self.trouble, links)
    }

    /// Makes the next event of the days' folders the first of `self.day`.
    fn fill_day(&mut self) {
        while self.day.is_empty()
            && let Some(name) = self.days.pop_front()
        {
            let followed = self.from.is_some();
            let is_kept = followed && self.days.len() < DAYS_FOLLOWED;
            if !is_kept && !self.filter.lets_day_pass(&name) {
                if followed {
                    self.read_days.insert(name, Day::new());
                }
                continue;
            }
            let folder = self
                .folder
                .as_ref()
                .and_then(|top| match top.open_in(&name, false) {
                    Ok(folder) => folder,
                    Err(error) => {
                        self.trouble.report(&error);
                        None
                    }
                });
            let mut day = Day::new();
            if let Some(folder) = folder {
                if let Some(from) = &self.from {
                    let known = from.of_day(&name, &folder).into_iter();
                    day = known
                        .map(|(name, (inode, spot))| (name, (inode, Position::at(spot))))
                        .collect();
                }
                let (filter, trouble) = (&self.filter, &mut self.trouble);
                self.day = read_day(&folder, &mut day, !is_kept, filter, trouble).into();
            }
            if followed {
                self.read_days
                    .insert(name, if is_kept { day } else { Day::new() });
            }
        }
    }
}

impl Chain {
    /// The next event of a series.
    fn read(
        &mut self,
        place: &Place,
        filter: &Filter,
        followed: bool,
        trouble: &mut Trouble,
    ) -> Option<Entry> {
        let count = self.links.len();
        while let Some(link) = self.links.get_mut(self.at) {
            let position = &mut link.position;
            let file = place.dir().join(&self.series.1);
            let next = trouble.next_of(position, &link.file.fd, &file, filter);
            if next.is_some() {
                return next;
            }
            self.at += 1;
            // No writer finishes a line of a file once there is a younger file.
            if !followed || self.at < count {
                let rest = position.unfinished(&link.file.fd, filter);
                let line = trouble.sort(rest);
                let entry = line.and_then(|line| trouble.event_of(&line));
                if entry.is_some() {
                    return entry;
                }
            }
        }
        None
    }
}

impl Iterator for Events {
    type Item = Entry;

    fn next(&mut self) -> Option<Entry> {
        loop {
            let earliest = self.earliest();
            self.fill_day();
            let chain = match (earliest, self.day.front()) {
                (Some((at_ms, chain)), Some(day)) if day.at_ms >= at_ms => Some(chain),
                (Some((_, chain)), None) => Some(chain),
                (_, _) => None,
            };
            if let Some(chain) = chain {
                return self.chains.get_mut(chain)?.next.take();
            }
            let entry = self.trouble.event_of(&self.day.pop_front()?);
            if entry.is_some() {
                return entry;
            }
        }
    }
}
