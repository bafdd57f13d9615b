//! What a person sees while waiting: a line that is kept up to date on a terminal, otherwise one
//! line at once and then at growing intervals.
//!
//! A terminal or a pipe that takes nothing is no reason to wait any longer: what cannot be shown is left
//! out.

use super::Surface;
use super::lock::{LockView, age};
use crate::failure::human;
use crate::speech;
use std::io::IsTerminal;
use std::time::{Duration, Instant};
use tenure::clock::instant;
use tenure::core::{Claim, Host, Kind, Liveness, LockName};
use tenure::engine::{Observer, Wait, Waiting};
use tenure::process::liveness;

/// How often the line on a terminal is drawn.
const FRAME: Duration = Duration::from_millis(120);
/// The first and the longest pause between lines off a terminal.
const LINE_FIRST: Duration = Duration::from_secs(10);
const LINE_MAX: Duration = Duration::from_secs(300);
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
    drawn: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    /// Not looked at before there is something to show.
    Unknown,
    Nothing,
    Lines,
    Terminal,
}

impl<'a> Progress<'a> {
    pub(crate) fn new(surface: &Surface, name: &'a LockName, here: &'a Host, wait: Wait) -> Self {
        let mode = if surface.is_quiet() {
            Mode::Nothing
        } else if surface.is_text() {
            Mode::Unknown
        } else {
            Mode::Lines
        };
        Self {
            name,
            here,
            limit: match wait {
                Wait::For(limit) => Some(limit),
                Wait::No | Wait::Forever => None,
            },
            mode,
            began: instant(),
            pause: LINE_FIRST,
            next: None,
            frame: 0,
            drawn: false,
        }
    }

    /// Takes the line away again.
    pub(crate) fn finish(&mut self) {
        if std::mem::take(&mut self.drawn) {
            speech::erase("\r\x1b[K");
        }
    }

    /// Who is waited for, and where the caller stands.
    fn sentence(&self, waiting: &Waiting<'_>) -> (String, String) {
        let front = waiting
            .front()
            .filter(|front| front.ticket != waiting.ticket);
        let holder = match front {
            Some(front) => {
                let mut holder = LockView::holder_of(front, waiting.now);
                let held = if front.token.is_some() {
                    "is held by"
                } else {
                    "passes to"
                };
                let mut dead = "";
                if holder.command_pid.is_some() && self.is_orphan(front) {
                    (holder.pid, dead) = (holder.command_pid, ", whose supervisor is dead,");
                }
                let (who, age) = (holder.who(), age(holder.age_ms));
                if let Some(rest) = waiting.stopped_for {
                    let rest = human(Duration::from_secs(rest.as_secs().max(1)));
                    let sentence = format!(
                        "{} is held by nobody: {who} is next in line and stopped; it stands aside in \
                         {rest}",
                        self.name,
                    );
                    return (sentence, self.place(waiting));
                }
                // One line of a terminal is short, and the day is known to whoever reads it.
                let full = holder.since.as_str();
                let time = full.split_once('T').map_or(full, |(_, time)| time);
                let since = if self.mode == Mode::Terminal {
                    time
                } else {
                    full
                };
                format!(
                    "{} {held} {who}{dead} since {since} ({age} ago){}",
                    self.name,
                    holder.purpose(),
                )
            }
            None => format!("{} is about to be free", self.name),
        };
        (holder, self.place(waiting))
    }

    /// Where the caller stands in line, and for how long.
    fn place(&self, waiting: &Waiting<'_>) -> String {
        let place = match waiting.before() {
            0 => "next in line".to_owned(),
            before => format!("place {} in line", before + 1),
        };
        let limit = match self.limit {
            Some(limit) => {
                let elapsed = Duration::from_secs(self.began.elapsed().as_secs());
                format!("waiting up to {}", human(limit.saturating_sub(elapsed)))
            }
            None => "waiting".to_owned(),
        };
        format!("; {place}, {limit}")
    }

    /// Whether the supervisor of whoever is waited for is proven to be dead. What is left of it is its
    /// command, or it would not be waited for.
    fn is_orphan(&self, front: &Claim) -> bool {
        let is_run = front.kind == Kind::Kernel && front.token.is_some();
        let supervisor = front.holder.process.filter(|_| is_run);
        supervisor.is_some_and(|supervisor| {
            let seen = liveness(&supervisor, &front.holder.host, self.here, false);
            matches!(seen, Liveness::Dead(_))
        })
    }

    fn draw(&mut self, holder: &str, place: &str) {
        let spinner = SPINNER
            .get(self.frame % SPINNER.len())
            .copied()
            .unwrap_or(' ');
        self.frame += 1;
        self.drawn = true;
        // A line that wraps could not be taken away again. The place is what changes, so it stays
        // whole and the holder's command line gives way.
        let width = terminal_width().max(20);
        let room = width
            .saturating_sub(6 + place.chars().count())
            .max(width / 3);
        let mut line: String = holder.chars().take(room).collect();
        if line.len() < holder.len() {
            line.pop();
            line.push('…');
        }
        line.push_str(place);
        // Room for the two characters that Ctrl-C leaves.
        let line: String = line.chars().take(width - 6).collect();
        speech::draw(&format!("\r\x1b[K{spinner} {line}"));
    }
}

/// How many columns the terminal has.
#[cfg(unix)]
fn terminal_width() -> usize {
    rustix::termios::tcgetwinsize(std::io::stderr()).map_or(80, |size| usize::from(size.ws_col))
}

/// How many columns every terminal has.
#[cfg(windows)]
fn terminal_width() -> usize {
    80
}

/// There are no jobs in the background here.
#[cfg(windows)]
fn in_foreground() -> bool {
    true
}

/// Whether the terminal is ours to draw on: a job in the background leaves the prompt alone.
#[cfg(unix)]
fn in_foreground() -> bool {
    rustix::termios::tcgetpgrp(std::io::stderr())
        .is_ok_and(|group| group == rustix::process::getpgrp())
}

impl Observer for Progress<'_> {
    fn waiting(&mut self, waiting: &Waiting<'_>) -> Option<Instant> {
        let now = instant();
        if self.mode == Mode::Unknown {
            self.mode = if std::io::stderr().is_terminal() && in_foreground() {
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
        let (holder, place) = self.sentence(waiting);
        let pause = if self.mode == Mode::Terminal {
            self.draw(&holder, &place);
            FRAME
        } else {
            speech::say(&format!("{holder}{place}"));
            let pause = self.pause;
            self.pause = (pause * 2).min(LINE_MAX);
            pause
        };
        self.next = now.checked_add(pause);
        self.next
    }
}

impl Drop for Progress<'_> {
    fn drop(&mut self) {
        self.finish();
    }
}
