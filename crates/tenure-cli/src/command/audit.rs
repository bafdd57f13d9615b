//! `audit`: shows what happened to locks. Reads only; a folder that is not there has no events.
//!
//! The other verbs decide where and when events are written.

use super::refusal::cancelled_by;

use super::session::collect_signals;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::render::audit::{Endings, GIVING, Row, header};
use crate::render::stream::{DocumentPart, Each, write_envelope};
use crate::render::table::{Cells, Columns};
use crate::render::width::room_on_stdout;
use crate::render::{Output, Reporter, Unheard, print_lines};
use crate::request::{Audit, Sorted};
use crate::signals::{Signals, pause_if_asked, stop_asked};
use jiff::tz::TimeZone;
use serde::Serialize;
use serde_json::Value;
use std::cell::RefCell;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use tenure_engine::audit::{Entry, Events, Filter, Follower};
use tenure_os::clock::{Clock, SystemClock};
use tenure_os::process::Identity;

/// By how many rows the columns of a table are sized.
const SIZED_BY: usize = 1_000;

/// How much text is gathered before it is printed.
const CHUNK_BYTES: usize = 32 << 10;

#[cold]
#[inline(never)]
pub(super) fn audit(audit: Audit, reporter: &mut Reporter) -> Result<(String, Value), Failure> {
    let Audit {
        place,
        filter,
        follow,
        sorted,
    } = audit;
    if follow && reporter.output == Output::Yaml {
        return Err(Failure::bad_arguments(
            "--follow prints lines: text, or with --output json one event per line",
        ));
    }
    let (folder, _) = place.audit_folder(place.profile())?;
    if follow {
        return self::follow(reporter, folder, filter);
    }
    let mut events = Events::open(folder, filter)?;
    if !reporter.is_text() {
        return show_as_document(reporter, events, sorted);
    }
    let mut printer = Printer::new(Output::Text);
    let rows = rows(&mut events, sorted, &printer.here);
    let is_empty = rows.is_empty();
    let shown = rows
        .into_iter()
        .try_for_each(|row| printer.push(row))
        .and_then(|()| printer.flush());
    match shown {
        Ok(()) | Err(Unheard::Gone) => {}
        Err(unheard) => return Err(unheard.failure()),
    }
    warn_of_all(reporter, &events);
    let text = if is_empty { "no events" } else { "" };
    Ok((text.to_owned(), Value::Null))
}

/// The rows of a table. A refusal that repeats another one is counted there.
fn rows(events: &mut Events, sorted: Sorted, here: &str) -> Vec<Row> {
    let mut rows: Vec<Row> = Vec::new();
    let mut known = BTreeMap::<String, usize>::new();
    let mut endings = Endings::default();
    for entry in events {
        let ending = endings.of(&entry);
        if sorted.value(&entry).is_none() && sorted != Sorted::Time {
            continue;
        }
        let row = Row::of(&entry, here, ending.as_deref());
        let at = row
            .repeats
            .clone()
            .map(|key| *known.entry(key).or_insert(rows.len()));
        match at.and_then(|at| rows.get_mut(at)) {
            Some(first) => first.add(&row),
            None => rows.push(row),
        }
    }
    match sorted {
        Sorted::Time => {}
        Sorted::Wait => rows.sort_by_key(|row| Reverse(row.waited_ms)),
        Sorted::Hold => rows.sort_by_key(|row| Reverse(row.held_ms)),
    }
    rows
}

/// Writes the document of all events while they are read, so that none of them is kept.
fn show_as_document(
    reporter: &mut Reporter,
    mut events: Events,
    sorted: Sorted,
) -> Result<(String, Value), Failure> {
    #[derive(Serialize)]
    struct Document<T> {
        events: T,
    }
    let output = reporter.output;
    let reporter = RefCell::new(reporter);
    let mut all = (sorted != Sorted::Time).then(|| {
        let value = |entry: Entry| Some((sorted.value(&entry)?, entry));
        let mut all: Vec<_> = events.by_ref().filter_map(value).collect();
        all.sort_by_key(|(value, _)| Reverse(*value));
        all.into_iter()
    });
    let mut is_told = false;
    let parts = std::iter::from_fn(|| {
        let next = match &mut all {
            Some(all) => all.next().map(|(_, entry)| entry),
            None => events.next(),
        };
        if let Some(entry) = next {
            let part = entry.into_fields();
            return Some(DocumentPart { output, part });
        }
        // The warnings of the document stand behind its events.
        if !std::mem::replace(&mut is_told, true) {
            warn_of_all(&mut reporter.borrow_mut(), &events);
        }
        None
    });
    let events = Each::of(parts);
    let answered = write_envelope(&reporter, Ok(Document { events }));
    let exit = reporter.into_inner().ending(answered, None);
    Err(Failure::already_said(exit, output))
}

/// Warns of what is not shown, once all events were read.
pub(super) fn warn_of_all(reporter: &mut Reporter, events: &Events) {
    for problem in events.problems() {
        reporter.warn(problem.clone());
    }
    warn_of_skipped(reporter, events.skipped());
}

pub(super) fn now_ms() -> u64 {
    SystemClock::new(None).now().wall_us / 1_000
}

fn warn_of_skipped(reporter: &mut Reporter, skipped: u64) {
    match skipped {
        0 => {}
        1 => reporter.warn("1 line of the audit is no event and was left out"),
        many => reporter.warn(format!(
            "{many} lines of the audit are no events and were left out"
        )),
    }
}

/// Gathers the lines of many events, to print them at once.
struct Printer {
    output: Output,
    zone: TimeZone,
    /// Host of the viewer, which need not be named.
    here: String,
    /// Rows by which the columns are to be sized.
    first: Vec<Cells<7>>,
    columns: Option<Columns<7>>,
    endings: Endings,
    gathered: String,
}

impl Printer {
    fn new(output: Output) -> Self {
        Self {
            output,
            zone: TimeZone::system(),
            here: Identity::current().host.name,
            first: Vec::new(),
            columns: None,
            endings: Endings::default(),
            gathered: String::new(),
        }
    }

    /// Takes one event.
    fn print(&mut self, entry: &Entry) -> Result<(), Unheard> {
        if self.output == Output::Text {
            let ending = self.endings.of(entry);
            let row = Row::of(entry, &self.here, ending.as_deref());
            return self.push(row);
        }
        self.gathered.push_str(&entry.line());
        self.gathered.push('\n');
        self.flush_if_full()
    }

    /// Takes a row of the table.
    fn push(&mut self, row: Row) -> Result<(), Unheard> {
        let cells = row.cells(&self.zone);
        match self.columns {
            Some(columns) => self.lay(&columns, &cells),
            None => self.first.push(cells),
        }
        if self.first.len() == SIZED_BY {
            self.settle();
        }
        self.flush_if_full()
    }

    /// Sizes the columns by the rows that came so far.
    fn settle(&mut self) {
        let first = std::mem::take(&mut self.first);
        if first.is_empty() {
            return;
        }
        let header = header(&self.zone);
        let rows = std::iter::once(&header).chain(&first);
        let columns = Columns::of(rows, room_on_stdout(), GIVING);
        self.columns = Some(columns);
        self.lay(&columns, &header);
        for row in &first {
            self.lay(&columns, row);
        }
    }

    fn lay(&mut self, columns: &Columns<7>, cells: &Cells<7>) {
        let mut line = String::new();
        columns.lay(cells, |_, _| None, &mut line);
        self.gathered.push_str(&line);
        self.gathered.push('\n');
    }

    fn flush_if_full(&mut self) -> Result<(), Unheard> {
        if self.gathered.len() < CHUNK_BYTES {
            return Ok(());
        }
        self.flush()
    }

    /// Prints what is left.
    fn flush(&mut self) -> Result<(), Unheard> {
        self.settle();
        if self.gathered.is_empty() {
            return Ok(());
        }
        print_lines(&std::mem::take(&mut self.gathered))
    }
}

/// Shows the events so far and each new one. It ends by a signal, when the reader has gone, or when every
/// later event is too new for `--until`.
fn follow(
    reporter: &mut Reporter,
    folder: tenure_engine::audit::Place,
    filter: Filter,
) -> Result<(String, Value), Failure> {
    let signals = collect_signals()?;
    let output = reporter.output;
    // The end is silent, for the caller that ends it knows why. Only events that could not be shown are reported.
    let over = |unheard: Option<Unheard>| {
        if let Some(unheard @ Unheard::Failed(_)) = unheard {
            return Err(unheard.failure());
        }
        let exit = stop_asked().map_or(Exit::Success, |number| cancelled_by(number, "audit").exit);
        Err(Failure::already_said(exit, output))
    };
    let until_ms = filter.until_ms;
    let mut printer = Printer::new(output);
    let mut events = Events::open_to_follow(folder, filter)?;
    let shown = events.by_ref().try_for_each(|entry| printer.print(&entry));
    if let Err(unheard) = shown {
        return over(Some(unheard));
    }
    let mut follower = events.follow();
    let mut told = (0, 0);
    loop {
        // The time is asked before the look, so all events written until then are shown.
        let is_last = until_ms.is_some_and(|until| now_ms() > until);
        let entries = follower.look()?;
        let shown = entries
            .iter()
            .try_for_each(|entry| printer.print(entry))
            .and_then(|()| printer.flush());
        if let Err(unheard) = shown {
            return over(Some(unheard));
        }
        told = tell(reporter, &follower, told);
        if is_last || !sleep(&follower, signals) {
            return over(None);
        }
    }
}

/// Whether a signal asks this process to end. If one asks it to pause, it pauses here.
fn is_stopped(signals: Signals) -> bool {
    pause_if_asked();
    while signals.next().is_some() {}
    stop_asked().is_some()
}

/// Reports what went wrong since the last time, and answers with how much has been reported.
fn tell(reporter: &mut Reporter, follower: &Follower, told: (u64, usize)) -> (u64, usize) {
    let (skipped, problems) = (follower.skipped(), follower.problems());
    warn_of_skipped(reporter, skipped.saturating_sub(told.0));
    for problem in problems.iter().skip(told.1) {
        reporter.warn(problem.clone());
    }
    (skipped, problems.len())
}

#[cfg(unix)]
use unix::sleep;
#[cfg(windows)]
use windows::sleep;

#[cfg(unix)]
mod unix {
    use super::is_stopped;
    use crate::signals::Signals;
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    use tenure_engine::audit::Follower;

    /// Sleeps until there is something to read, or nothing for a while. `false` if the reader has gone, or a signal
    /// asks this process to end.
    pub(super) fn sleep(follower: &Follower, signals: Signals) -> bool {
        let stdout = std::io::stdout();
        let signal = signals.descriptor();
        let (notices, nap) = follower.notices();
        let mut fds = vec![
            // No event is asked for: the kernel reports a closed other end in any case.
            PollFd::new(&stdout, PollFlags::empty()),
            PollFd::new(&signal, PollFlags::IN),
        ];
        if let Some(notices) = &notices {
            fds.push(PollFd::new(notices, PollFlags::IN));
        }
        let nap = Timespec::try_from(nap).ok();
        // An interruption counts as a wake-up: the caller looks at all causes next.
        let _ = poll(&mut fds, nap.as_ref());
        let closed = PollFlags::ERR | PollFlags::HUP | PollFlags::NVAL;
        let is_read = fds
            .first()
            .is_none_or(|fd| !fd.revents().intersects(closed));
        is_read && !is_stopped(signals)
    }
}

#[cfg(windows)]
mod windows {
    use super::is_stopped;
    use crate::signals::Signals;
    use tenure_engine::audit::Follower;
    use tenure_store::file::poll_readable;

    /// Sleeps until it is time to look again. `false` if an event asks this process to end.
    pub(super) fn sleep(follower: &Follower, signals: Signals) -> bool {
        let (_, nap) = follower.notices();
        // The caller looks at all causes next.
        let _ = poll_readable(&signals.descriptors(), nap, None);
        !is_stopped(signals)
    }
}
