//! `audit`: shows what happened to locks. Reads only; a folder that is not there has no events.
//!
//! Where events are written, and when, is the other verbs' affair.

use super::{cancelled_by, collect_signals, finish, shown};
use crate::args::AuditArgs;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::render::audit::line;
use crate::render::{Output, Surface, print_lines};
use crate::request::{self, Place};
use crate::signals::{Signals, pause_if_asked, stop_asked};
use serde_json::{Value, json};
use tenure::audit::{Entry, EventName, Events, Filter, Follower};
use tenure::clock::{Clock, SystemClock};

/// How much text is gathered before it is printed.
const CHUNK_BYTES: usize = 32 << 10;

/// `PIPE_BUF`: what a pipe takes at once or not at all.
const PIECE_BYTES: usize = 4 << 10;

#[cold]
#[inline(never)]
pub(super) fn audit(args: &AuditArgs) -> Exit {
    let surface = request::surface(&args.common, "audit", None);
    finish(surface, |surface| {
        let filter = filter(args)?;
        if args.follow && surface.output == Output::Yaml {
            return Err(Failure::bad_arguments(
                "--follow prints lines: text, or with --output json one event per line",
            ));
        }
        let mut place = Place::of(&args.common)?;
        let profile = place.take_profile();
        let (folder, _) = request::audit_folder(&args.common, &place, &*profile)?;
        if args.follow {
            return follow(surface, folder, filter);
        }
        let mut events = Events::open(folder, filter)?;
        let answer = if surface.is_text() {
            let mut printer = Printer::new(Output::Text);
            if events
                .by_ref()
                .all(|entry| printer.print(&entry, print_lines))
            {
                printer.flush(print_lines);
            }
            let text = if printer.is_used { "" } else { "no events" };
            (text.to_owned(), Value::Null)
        } else {
            let events: Vec<Value> = events
                .by_ref()
                .map(|entry| Value::Object(entry.into_fields()))
                .collect();
            (String::new(), json!({ "events": events }))
        };
        for problem in events.problems() {
            surface.warn(problem.clone());
        }
        warn_of_skipped(surface, events.skipped());
        Ok(answer)
    })
}

/// What is to be shown.
fn filter(args: &AuditArgs) -> Result<Filter, Failure> {
    let now_ms = now_ms();
    let moment = |source, text: &Option<String>| {
        text.as_deref()
            .map(|text| request::moment(source, text, now_ms))
            .transpose()
    };
    let event = |word: &String| {
        EventName::from_word(word).ok_or_else(|| {
            Failure::bad_arguments(format!(
                "--event {word:?}: there is no such event; it is one of {}",
                EventName::ALL.map(EventName::as_str).join(", ")
            ))
        })
    };
    let name = args
        .name
        .as_deref()
        .map(|name| request::name(Some(name)))
        .transpose()?;
    Ok(Filter {
        lock: name.map(|name| name.as_str().to_owned()),
        events: args.event.iter().map(event).collect::<Result<_, _>>()?,
        since_ms: moment("--since", &args.since)?,
        until_ms: moment("--until", &args.until)?,
        request_id: shown(args.request_id.as_deref())?,
    })
}

fn now_ms() -> u64 {
    SystemClock::new(None).now().wall_us / 1_000
}

fn warn_of_skipped(surface: &mut Surface, skipped: u64) {
    match skipped {
        0 => {}
        1 => surface.warn("1 line of the audit is no event and was left out"),
        many => surface.warn(format!(
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

    /// Takes one event. `false` once `write` has said so.
    fn print(&mut self, entry: &Entry, write: impl FnOnce(&str) -> bool) -> bool {
        self.is_used = true;
        self.gathered.push_str(&match self.output {
            Output::Text => line(entry),
            Output::Json | Output::Yaml => entry.line(),
        });
        self.gathered.push('\n');
        self.gathered.len() < CHUNK_BYTES || self.flush(write)
    }

    /// Prints what is left. The same.
    fn flush(&mut self, write: impl FnOnce(&str) -> bool) -> bool {
        self.gathered.is_empty() || write(&std::mem::take(&mut self.gathered))
    }
}

/// Shows what there is and what comes, until a signal ends it, the reader has gone, or nothing
/// that comes can be old enough for `--until`.
fn follow(
    surface: &mut Surface,
    folder: tenure::audit::Place,
    filter: Filter,
) -> Result<(String, Value), Failure> {
    let signals = collect_signals()?;
    let output = surface.output;
    // Nothing is said at the end: whoever ends it knows why.
    let over = || {
        let exit = stop_asked().map_or(Exit::Success, |number| cancelled_by(number, "audit").exit);
        Err(Failure::already_said(exit, output))
    };
    let write = |text: &str| write_unless_stopped(text, signals);
    let until_ms = filter.until_ms;
    let mut printer = Printer::new(output);
    let mut events = Events::open_to_follow(folder, filter)?;
    if !events.by_ref().all(|entry| printer.print(&entry, write)) {
        return over();
    }
    let mut follower = events.follow();
    let mut told = (0, 0);
    loop {
        // Asked before looking: what was written until then is shown.
        let is_last = until_ms.is_some_and(|until| now_ms() > until);
        let entries = follower.look()?;
        if !entries.iter().all(|entry| printer.print(entry, write)) || !printer.flush(write) {
            return over();
        }
        told = tell(surface, &follower, told);
        if is_last || !sleep(&follower, signals) {
            return over();
        }
    }
}

/// Whether a signal asks us to end. One that asks us to pause is heeded here.
fn is_stopped(signals: Signals) -> bool {
    pause_if_asked();
    while signals.next().is_some() {}
    stop_asked().is_some()
}

/// Tells what went wrong since the last time, and answers with how much was told.
fn tell(surface: &mut Surface, follower: &Follower, told: (u64, usize)) -> (u64, usize) {
    let (skipped, problems) = (follower.skipped(), follower.problems());
    warn_of_skipped(surface, skipped.saturating_sub(told.0));
    for problem in problems.iter().skip(told.1) {
        surface.warn(problem.clone());
    }
    (skipped, problems.len())
}

#[cfg(unix)]
use unix::{sleep, write_unless_stopped};
#[cfg(windows)]
use windows::{sleep, write_unless_stopped};

#[cfg(unix)]
mod unix {
    use super::{PIECE_BYTES, is_stopped};
    use crate::signals::Signals;
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    use rustix::io::Errno;
    use tenure::audit::Follower;

    /// Writes to stdout without being kept by a reader that does not read. `false` if the reader has
    /// gone, or a signal asks us to end.
    pub(super) fn write_unless_stopped(text: &str, signals: Signals) -> bool {
        let stdout = std::io::stdout();
        let signal = signals.descriptor();
        let mut rest = text.as_bytes();
        while !rest.is_empty() {
            let mut fds = [
                PollFd::new(&stdout, PollFlags::OUT),
                PollFd::new(&signal, PollFlags::IN),
            ];
            let _ = poll(&mut fds, None);
            let ready = fds.first().is_some_and(|fd| !fd.revents().is_empty());
            if is_stopped(signals) {
                return false;
            }
            if ready {
                // A pipe that can be written to takes this much without blocking.
                let piece = rest.get(..PIECE_BYTES).unwrap_or(rest);
                match rustix::io::write(&stdout, piece) {
                    Ok(written) => rest = rest.get(written..).unwrap_or_default(),
                    Err(Errno::INTR | Errno::AGAIN) => {}
                    Err(_) => return false,
                }
            }
        }
        true
    }

    /// Sleeps until there is news or nothing for a while. `false` if the reader has gone, or a signal
    /// asks us to end.
    pub(super) fn sleep(follower: &Follower, signals: Signals) -> bool {
        let stdout = std::io::stdout();
        let signal = signals.descriptor();
        let (news, nap) = follower.news();
        let mut fds = vec![
            // Nothing is asked of it: that the other end was closed is told in any case.
            PollFd::new(&stdout, PollFlags::empty()),
            PollFd::new(&signal, PollFlags::IN),
        ];
        if let Some(news) = &news {
            fds.push(PollFd::new(news, PollFlags::IN));
        }
        let nap = Timespec::try_from(nap).ok();
        // Interrupted is as good as woken: whatever it was is looked at next.
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
    use super::{PIECE_BYTES, is_stopped};
    use crate::signals::Signals;
    use std::io::Write;
    use tenure::audit::Follower;
    use tenure::store::file::poll_readable;

    /// Writes to stdout. `false` if the reader has gone, or we are asked to end. A reader that does not
    /// read keeps us here.
    pub(super) fn write_unless_stopped(text: &str, signals: Signals) -> bool {
        let mut stdout = std::io::stdout().lock();
        let mut pieces = text.as_bytes().chunks(PIECE_BYTES);
        pieces.all(|piece| !is_stopped(signals) && stdout.write_all(piece).is_ok())
            && stdout.flush().is_ok()
    }

    /// Sleeps until it is time to look again. `false` if we are asked to end.
    pub(super) fn sleep(follower: &Follower, signals: Signals) -> bool {
        let (_, nap) = follower.news();
        // Whatever it was is looked at next.
        let _ = poll_readable(&signals.descriptors(), nap, None);
        !is_stopped(signals)
    }
}
