//! What a person sees while waiting. On a terminal it is a line that is kept up to date; otherwise one
//! line at once and then at growing intervals.
//!
//! The line on a terminal is as short as the terminal is narrow. These come before everything else: the
//! holder and its age, the caller's place, and how much of the caller's time is left ([`short`]). The line
//! says how long it may take only if this lock has a past.
//!
//! A terminal or a pipe that takes nothing is no reason to wait any longer: then the line is left out.

mod short;

use super::lock::{HolderView, LockView, StandstillView, age};
use super::width::width;
use super::{Reporter, colour};
use crate::failure::human;
use crate::speech;
use short::Short;
use std::time::{Duration, Instant};
use tenure_core::{Claim, Entry, Host, Kind, LockName, Now};
use tenure_engine::engine::{Observer, Wait, Waiting};
use tenure_os::clock::{instant, since};
use tenure_store::StoreError;

/// How often the line on a terminal is drawn.
const FRAME: Duration = Duration::from_millis(120);
/// The first and the longest pause between lines off a terminal.
const LINE_FIRST: Duration = Duration::from_secs(10);
const LINE_MAX: Duration = Duration::from_secs(300);
/// How often a wait says that another process keeps the list.
const HINDERED: Duration = Duration::from_secs(60);
/// The columns of a terminal that does not say how many it has.
const COLUMNS: usize = 80;
/// The spinner and its gap, and the last column, behind which some terminals begin a new line.
const AROUND: usize = 3;
const SPINNER: [char; 10] = ['⠋', '⠙', '⠹', '⠸', '⠼', '⠴', '⠦', '⠧', '⠇', '⠏'];

/// Shows a wait.
#[derive(Debug)]
pub(crate) struct Progress<'a> {
    name: &'a LockName,
    here: &'a Host,
    limit: Option<Duration>,
    mode: Mode,
    began: Instant,
    pause: Duration,
    next: Option<Instant>,
    frame: usize,
    /// How many columns the line on the terminal takes.
    drawn: Option<usize>,
    /// When to say again what keeps the list from every caller.
    hindered: Option<Instant>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    /// The call looks at the terminal only when there is something to show.
    Unknown,
    Nothing,
    Lines,
    Terminal,
}

impl<'a> Progress<'a> {
    pub(crate) fn new(reporter: &Reporter, name: &'a LockName, here: &'a Host, wait: Wait) -> Self {
        let mode = if !reporter.shows_waits() {
            Mode::Nothing
        } else if reporter.is_text() {
            Mode::Unknown
        } else {
            Mode::Lines
        };
        Self {
            name,
            here,
            limit: wait.limit(),
            mode,
            began: instant(),
            pause: LINE_FIRST,
            next: None,
            frame: 0,
            drawn: None,
            hindered: None,
        }
    }

    /// Takes the line away again.
    pub(crate) fn finish(&mut self) {
        if let Some(drawn) = self.drawn.take() {
            speech::erase(&cleared(drawn, terminal_width()));
        }
    }

    /// Shows how the wait stands, if it is time to. Answers when the caller has to call again.
    pub(crate) fn show(&mut self, sight: impl FnOnce() -> WaitView) -> Option<Instant> {
        let now = instant();
        if self.mode == Mode::Unknown {
            let stderr = std::io::stderr();
            let can_draw = colour::can_be_drawn_on(&stderr) && colour::has_a_person();
            self.mode = if can_draw && in_foreground() {
                Mode::Terminal
            } else {
                Mode::Lines
            };
        }
        if self.mode == Mode::Nothing {
            return None;
        }
        if self.next.is_some_and(|next| now < next) {
            return self.next;
        }
        let sight = sight();
        let left = self.limit.map(|limit| {
            let elapsed = Duration::from_secs(since(self.began).as_secs());
            limit.saturating_sub(elapsed)
        });
        let pause = if self.mode == Mode::Terminal {
            self.draw(&sight, left);
            FRAME
        } else {
            speech::say(&sight.sentence(self.name, left));
            let pause = self.pause;
            self.pause = (pause * 2).min(LINE_MAX);
            pause
        };
        self.next = now.checked_add(pause);
        self.next
    }

    fn draw(&mut self, sight: &WaitView, left: Option<Duration>) {
        let spinner = SPINNER
            .get(self.frame % SPINNER.len())
            .copied()
            .unwrap_or(' ');
        self.frame += 1;
        let columns = terminal_width();
        let room = columns.saturating_sub(AROUND);
        let line = Short::of(self.name, sight, &self.here.name, left).fit(room);
        let line = format!("{spinner} {line}");
        let cleared = cleared(self.drawn.unwrap_or_default(), columns);
        self.drawn = Some(width(&line));
        // A line that wraps could not be taken away again, and terminals do not agree how wide a picture is. So
        // no line wraps. The cursor rests at the beginning of the line, and stays there when the terminal
        // becomes so narrow that it breaks the line by itself.
        speech::draw(&if colour::shows_colours(&std::io::stderr()) {
            format!("{cleared}\x1b[?7l{line}\x1b[?7h\r")
        } else {
            format!("{cleared}{line}")
        });
    }
}

/// Takes away a line of so many columns.
fn cleared(drawn: usize, columns: usize) -> String {
    let stderr = std::io::stderr();
    if drawn > columns && colour::shows_colours(&stderr) {
        // The rest of the line, which the terminal has broken off, stands below.
        return "\r\x1b[J".to_owned();
    }
    colour::cleared(&stderr, columns)
}

/// What the caller sees of a wait at one instant.
#[derive(Debug)]
pub(crate) struct WaitView {
    /// The holder of the lock, or the next one. `None` if the lock is about to be free.
    front: Option<HolderView>,
    /// Whether that one holds it.
    holds: bool,
    /// After how long the next waiters stand aside, if they do not take their turn, and whether they are seen to be
    /// stopped.
    still: Option<(Duration, bool)>,
    /// How many wait before the caller; `None` for a caller that stands in no line.
    before: Option<usize>,
    estimate: Option<Estimate>,
}

/// How long it may take, by the past holds that the lock remembers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Estimate {
    /// How many milliseconds are left.
    Rest(u64),
    /// The holder has outlived what is usual, which is so many milliseconds.
    Usual(u64),
}

impl WaitView {
    /// What a caller in line sees.
    fn in_line(waiting: &Waiting<'_>) -> Self {
        let front = waiting.front();
        let front = front.filter(|front| front.ticket != waiting.ticket);
        let before = waiting.before();
        Self {
            still: waiting
                .standstill
                .map(|still| (Duration::from_millis(still.rest_ms), still.is_stopped)),
            before: Some(before),
            ..Self::of(waiting.entry, front, before, waiting.now)
        }
    }

    /// What a caller sees that only looks, and is done once there is no holder and no waiter.
    pub(crate) fn from_outside(
        view: &LockView,
        entry: &Entry,
        front: Option<&Claim>,
        now: &Now,
    ) -> Self {
        let still = view.standstill.as_ref();
        Self {
            still: still.map(|still| {
                let rest = Duration::from_millis(still.stands_aside_in_ms);
                (rest, still.stopped)
            }),
            ..Self::of(entry, front, view.queue.len(), now)
        }
    }

    /// `turns` turns have to come and go after the one in front.
    fn of(entry: &Entry, front: Option<&Claim>, turns: usize, now: &Now) -> Self {
        let seen = front.map(|front| LockView::holder_of(front, now));
        Self {
            estimate: match (&seen, front) {
                (Some(seen), Some(front)) if !seen.orphaned && !seen.stopped => {
                    estimate(entry, front, turns, seen)
                }
                _ => None,
            },
            holds: front.is_some_and(|front| front.token.is_some()),
            front: seen,
            still: None,
            before: None,
        }
    }

    /// The whole sight, for a line in a log.
    fn sentence(&self, name: &LockName, left: Option<Duration>) -> String {
        let waiting = match left {
            Some(left) => format!("waiting up to {}", human(left)),
            None => "waiting".to_owned(),
        };
        let holder = self.holder(name);
        match self.before {
            None => format!("{holder}; {waiting}"),
            Some(0) => format!("{holder}; next in line, {waiting}"),
            Some(before) => format!("{holder}; place {} in line, {waiting}", before + 1),
        }
    }

    /// For whom the caller waits, as the beginning of a sentence.
    fn holder(&self, name: &LockName) -> String {
        let Some(front) = &self.front else {
            return format!("{name} is about to be free");
        };
        if let Some((rest, is_stopped)) = self.still {
            return format!(
                "{name} is not held: {} is next in line and {}; it stands aside in {}",
                front.who(),
                StandstillView::why(is_stopped),
                human(Duration::from_secs(rest.as_secs().max(1))),
            );
        }
        let held = if self.holds {
            "is held by"
        } else {
            "passes to"
        };
        let slot = front.slot_of_slots();
        let who = match front.command_pid {
            Some(pid) if front.orphaned => {
                let command = HolderView {
                    pid: Some(pid),
                    ..front.clone()
                };
                format!("{}{slot}, whose supervisor is dead,", command.who())
            }
            _ => match front.is_stopped_and() {
                Some(stopped) => format!("{}{slot}, {stopped},", front.who()),
                None if slot.is_empty() => front.who(),
                None => format!("{}{slot},", front.who()),
            },
        };
        let (since, age, why) = (&front.since, age(front.age_ms), front.purpose());
        format!("{name} {held} {who} since {since} ({age} ago){why}")
    }
}

/// How long it may take until so many turns after the one in front are over. Only exclusive holds come one
/// after the other, and a hold that was asked to stop does not take the usual time.
fn estimate(entry: &Entry, front: &Claim, turns: usize, seen: &HolderView) -> Option<Estimate> {
    let usual = entry.history.usual_ms()?;
    let is_ours = matches!(front.kind, Kind::Kernel | Kind::Detached);
    if !is_ours || !entry.past_is_telling() || front.token.is_none() || front.cancel.is_some() {
        return None;
    }
    let turns = u64::try_from(turns).unwrap_or(u64::MAX);
    Some(match entry.history.rest_ms(seen.age_ms) {
        Some(rest) => Estimate::Rest(rest.saturating_add(usual.saturating_mul(turns))),
        None => Estimate::Usual(usual),
    })
}

/// How many columns the terminal has.
#[cfg(unix)]
fn terminal_width() -> usize {
    super::width::columns(std::io::stderr()).unwrap_or(COLUMNS)
}

/// How many columns every terminal has.
#[cfg(windows)]
fn terminal_width() -> usize {
    COLUMNS
}

/// Windows has no jobs in the background.
#[cfg(windows)]
fn in_foreground() -> bool {
    true
}

/// Whether this process may draw on the terminal: a job in the background leaves the prompt alone.
#[cfg(unix)]
fn in_foreground() -> bool {
    use tenure_os::process::group_of;
    rustix::termios::tcgetpgrp(std::io::stderr())
        .is_ok_and(|group| group_of(rustix::process::getpid()) == Some(group))
}

impl Observer for Progress<'_> {
    fn waiting(&mut self, waiting: &Waiting<'_>) -> Option<Instant> {
        self.show(|| WaitView::in_line(waiting))
    }

    fn hindered(&mut self, error: &StoreError) -> bool {
        let now = instant();
        if self.mode == Mode::Nothing || self.hindered.is_some_and(|next| now < next) {
            return true;
        }
        self.hindered = now.checked_add(HINDERED);
        // Said in lines, also on a terminal: what keeps the wait is to stay there.
        self.finish();
        speech::say(&format!("{error}; waiting for it"));
        true
    }
}

impl Drop for Progress<'_> {
    fn drop(&mut self) {
        self.finish();
    }
}
