//! `audit`: shows what happened to locks. Reads only; a folder that is not there has no events.
//!
//! The other verbs decide where and when events are written.

use super::{Session, cancelled_by, collect_signals};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::render::audit::line;
use crate::render::stream::{Each, Part, write_envelope};
use crate::render::{Output, Reporter, Unheard, print_lines};
use crate::request::{Audit, Place};
use crate::signals::{Signals, pause_if_asked, stop_asked};
use serde::Serialize;
use serde_json::Value;
use std::cell::RefCell;
use std::collections::BTreeMap;
use tenure_engine::audit::{Entry, EventName, Events, Filter, Follower};
use tenure_engine::clock::{Clock, SystemClock};
use tenure_engine::store::contract::Which;
use tenure_engine::tenure_core::{Kind, LockName};

/// How much text is gathered before it is printed.
const CHUNK_BYTES: usize = 32 << 10;

#[cold]
#[inline(never)]
pub(super) fn audit(audit: Audit, reporter: &mut Reporter) -> Result<(String, Value), Failure> {
    let Audit {
        place,
        filter,
        follow,
    } = audit;
    if follow && reporter.output == Output::Yaml {
        return Err(Failure::bad_arguments(
            "--follow prints lines: text, or with --output json one event per line",
        ));
    }
    let (folder, is_named) = place.audit_folder(place.profile())?;
    // All events are recorded if the caller named the folder, or if the locks are records of another format.
    let may_miss = !is_named && place.profile().record().is_none() && place.is_folder();
    let missing = {
        let (folder, filter) = (folder.clone(), filter.clone());
        move || {
            may_miss
                .then(|| unrecorded(place, folder, &filter))
                .flatten()
        }
    };
    if follow {
        return self::follow(reporter, folder, filter, missing);
    }
    let mut events = Events::open(folder, filter)?;
    if !reporter.is_text() {
        return show_as_document(reporter, events, missing);
    }
    let mut printer = Printer::new(Output::Text);
    let shown = events
        .by_ref()
        .try_for_each(|entry| printer.print(&entry))
        .and_then(|()| printer.flush());
    match shown {
        Ok(()) | Err(Unheard::Gone) => {}
        Err(unheard) => return Err(lost(&unheard)),
    }
    warn_of_all(reporter, &events, !printer.is_used, missing);
    let text = if printer.is_used { "" } else { "no events" };
    Ok((text.to_owned(), Value::Null))
}

/// Writes the document of all events while they are read, so that none of them is kept.
fn show_as_document(
    reporter: &mut Reporter,
    mut events: Events,
    missing: impl FnOnce() -> Option<String>,
) -> Result<(String, Value), Failure> {
    #[derive(Serialize)]
    struct Document<T> {
        events: T,
    }
    let output = reporter.output;
    let reporter = RefCell::new(reporter);
    let (mut is_empty, mut missing) = (true, Some(missing));
    let parts = std::iter::from_fn(|| {
        if let Some(entry) = events.next() {
            is_empty = false;
            let part = entry.into_fields();
            return Some(Part { output, part });
        }
        // The warnings of the document stand behind its events.
        if let Some(missing) = missing.take() {
            warn_of_all(&mut reporter.borrow_mut(), &events, is_empty, missing);
        }
        None
    });
    let events = Each::of(parts);
    let answered = write_envelope(&reporter, Ok(Document { events }));
    let exit = reporter.into_inner().ending(answered, None);
    Err(Failure::already_said(exit, output))
}

/// Warns of what is not shown, once all events were read.
fn warn_of_all(
    reporter: &mut Reporter,
    events: &Events,
    is_empty: bool,
    missing: impl FnOnce() -> Option<String>,
) {
    if is_empty && let Some(missing) = missing() {
        reporter.warn(missing);
    }
    for problem in events.problems() {
        reporter.warn(problem.clone());
    }
    warn_of_skipped(reporter, events.skipped());
}

/// Why no event of a run is shown: the caller named no folder, so the run was not recorded. `None` if no
/// such run is known.
fn unrecorded(
    place: Place,
    folder: tenure_engine::audit::Place,
    filter: &Filter,
) -> Option<String> {
    let wanted = &filter.events;
    let of_runs =
        |event: &EventName| matches!(event, EventName::LockAcquired | EventName::LockReleased);
    if !wanted.is_empty() && !wanted.iter().any(of_runs) {
        return None;
    }
    let session = Session::open(place).ok()?;
    let mut names = Vec::new();
    match &filter.lock {
        Some(name) => names.extend(LockName::new(name.as_str())),
        None => session
            .store
            .names(Which::Locks, &mut |name| names.push(name))
            .ok()?,
    }
    // A lock counts its past holds. All holds but those of runs are recorded in any case.
    let released = Filter {
        lock: filter.lock.clone(),
        events: vec![EventName::LockReleased],
        ..Filter::default()
    };
    let mut recorded = BTreeMap::<String, u64>::new();
    for entry in Events::open(folder, released).ok()? {
        *recorded.entry(entry.lock_name().to_owned()).or_default() += 1;
    }
    let was_run = |name: &LockName| {
        let Ok(reading) = session.reading(name) else {
            return false;
        };
        reading.entry().is_some_and(|entry| {
            entry.history.holds > recorded.get(name.as_str()).copied().unwrap_or_default()
                || entry.granted().any(|claim| claim.kind == Kind::Kernel)
        })
    };
    names.iter().any(was_run).then(|| {
        "runs were not recorded: a native `run` leaves events only where an audit folder is named. Name \
         one for the runs and for `audit` alike: audit_dir in tenure.toml, TENURE_AUDIT_DIR, or \
         --audit-dir DIR"
            .to_owned()
    })
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
    gathered: String,
    is_used: bool,
}

impl Printer {
    fn new(output: Output) -> Self {
        Self {
            output,
            gathered: String::new(),
            is_used: false,
        }
    }

    /// Takes one event.
    fn print(&mut self, entry: &Entry) -> Result<(), Unheard> {
        self.is_used = true;
        self.gathered.push_str(&match self.output {
            Output::Text => line(entry),
            Output::Json | Output::Yaml => entry.line(),
        });
        self.gathered.push('\n');
        if self.gathered.len() < CHUNK_BYTES {
            return Ok(());
        }
        self.flush()
    }

    /// Prints what is left.
    fn flush(&mut self) -> Result<(), Unheard> {
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
    missing: impl FnOnce() -> Option<String>,
) -> Result<(String, Value), Failure> {
    let signals = collect_signals()?;
    let output = reporter.output;
    // The end is silent, for the caller that ends it knows why. Only events that could not be shown are reported.
    let over = |unheard: Option<Unheard>| {
        if let Some(unheard @ Unheard::Failed(_)) = unheard {
            return Err(lost(&unheard));
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
    if !printer.is_used
        && let Some(missing) = missing()
    {
        reporter.warn(missing);
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

/// The failure of a call whose events could not be shown.
fn lost(unheard: &Unheard) -> Failure {
    Failure::new(Exit::General, "ANSWER_LOST", unheard.to_string())
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
    use tenure_engine::store::file::poll_readable;

    /// Sleeps until it is time to look again. `false` if an event asks this process to end.
    pub(super) fn sleep(follower: &Follower, signals: Signals) -> bool {
        let (_, nap) = follower.notices();
        // The caller looks at all causes next.
        let _ = poll_readable(&signals.descriptors(), nap, None);
        !is_stopped(signals)
    }
}
