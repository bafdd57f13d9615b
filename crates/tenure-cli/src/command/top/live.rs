//! The live view: draws a frame each second, and whenever something was found or a key was pressed.

use super::keys::{self, Key};
use super::looker::{Found, Looker};
use super::past::Past;
use super::screen::{Screen, give_back};
use crate::args::Common;
use crate::args::value::{self, Typed};
use crate::command::cancel;
use crate::command::refusal::cancelled_by;
use crate::command::session::{Session, collect_signals};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::Output;
use crate::render::colour::{can_be_drawn_on, shows_colours};
use crate::render::lock::LockView;
use crate::render::top::history::History;
use crate::render::top::{Chosen, Foot, Page, Picture, draw, order};
use crate::render::{Reporter, clean_path};
use crate::request::{Cancel, CancelArgs, Surroundings, Top};
use crate::signals::{Signals, is_pause_asked, pause_if_asked, stop_asked};
use jiff::tz::TimeZone;
use ratatui_core::terminal::Terminal;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde_json::Value;
use std::io::{self, IsTerminal as _};
use std::time::{Duration, Instant};
use tenure_os::clock::{Clock, SystemClock, instant, since};

/// How long the rest of a key may take that the terminal has begun to send.
const KEY: Duration = Duration::from_millis(30);

/// How often ages on the screen change.
const SECOND: Duration = Duration::from_secs(1);

/// What is shown, and what was chosen.
struct Live<'a> {
    looker: Looker,
    common: &'a Common,
    around: &'a Surroundings,
    place: String,
    here: String,
    zone: TimeZone,
    clock: SystemClock,
    locks: Vec<LockView>,
    looked: Instant,
    is_read: bool,
    trouble: Option<String>,
    history: History,
    chosen: Chosen,
    /// The lock of the question, and what a yes does.
    asked: Option<CancelArgs>,
    /// How many lines a screen has for the page.
    room: usize,
}

/// Shows the locks until a key or a signal ends it.
pub(super) fn live(
    top: Top,
    common: &Common,
    around: &Surroundings,
    reporter: &Reporter,
) -> Result<(String, Value), Failure> {
    if !io::stdin().is_terminal() || !can_be_drawn_on(&io::stdout()) {
        return Err(Failure::bad_arguments(
            "top needs a terminal that it can draw on; `tenure top --once` prints one frame",
        ));
    }
    let signals = collect_signals()?;
    signals.hear_terminal();
    let past = Past::of(&top.place)?;
    let session = Session::open(top.place)?;
    let (place, here) = (
        clean_path(&session.place.folder),
        session.identity.host.name.clone(),
    );
    let failed = |error: io::Error| Failure::new(Exit::General, "NO_THREAD", error.to_string());
    let clock = SystemClock::new(None);
    let looker = Looker::start(session, past, top.interval).map_err(failed)?;
    let live = Live {
        looker,
        common,
        around,
        place,
        here,
        zone: TimeZone::system(),
        clock,
        locks: Vec::new(),
        looked: instant(),
        is_read: false,
        trouble: None,
        history: History::default(),
        chosen: Chosen {
            marks: true,
            colours: shows_colours(&io::stdout()),
            ..Chosen::default()
        },
        asked: None,
        room: 1,
    };
    let ended = live.go_on(signals);
    give_back();
    let exit = match (ended, stop_asked()) {
        (_, Some(number)) => cancelled_by(number, "top").exit,
        (Ok(()), None) => Exit::Success,
        (Err(error), None) => {
            let why = format!("the terminal cannot be used: {error}");
            return Err(Failure::new(Exit::General, "NO_TERMINAL", why));
        }
    };
    Err(Failure::already_said(exit, reporter.output))
}

impl Live<'_> {
    fn go_on(mut self, signals: Signals) -> Result<(), io::Error> {
        let screen = Screen::open()?;
        let mut terminal = Terminal::new(screen)?;
        let stdin = io::stdin();
        let mut typed = Vec::new();
        loop {
            self.take_in();
            self.show(&mut terminal)?;
            let signal = signals.descriptor();
            let nap = if typed.is_empty() { SECOND } else { KEY };
            let nap = Timespec::try_from(nap).ok();
            let found = self.looker.bell.descriptor();
            let (is_typed, is_over) = {
                let mut fds = [
                    PollFd::new(&stdin, PollFlags::IN),
                    PollFd::new(&signal, PollFlags::IN),
                    PollFd::new(&found, PollFlags::IN),
                ];
                let polled = poll(&mut fds, nap.as_ref());
                let is_typed = fds.first().is_some_and(|fd| !fd.revents().is_empty());
                (is_typed, polled == Ok(0))
            };
            while let Some(signal) = signals.next() {
                // After a stop the terminal may have other modes, and another picture.
                if signal.number == libc::SIGCONT {
                    terminal.backend_mut().take()?;
                    terminal.clear()?;
                }
            }
            if is_pause_asked() {
                give_back();
                pause_if_asked();
                terminal.backend_mut().take()?;
                terminal.clear()?;
            }
            if stop_asked().is_some() {
                return Ok(());
            }
            if is_typed {
                let mut bytes = [0; 256];
                match rustix::io::read(&stdin, &mut bytes) {
                    Ok(0) => return Ok(()),
                    Ok(read) => typed.extend_from_slice(bytes.get(..read).unwrap_or_default()),
                    Err(rustix::io::Errno::INTR | rustix::io::Errno::AGAIN) => {}
                    Err(errno) => return Err(errno.into()),
                }
            }
            let mut keys = keys::taken(&mut typed);
            if is_over && !typed.is_empty() {
                // Nothing followed the escape.
                typed.clear();
                keys.push(Key::Escape);
            }
            for key in keys {
                if self.press(key) {
                    return Ok(());
                }
            }
        }
    }

    /// Takes in what was found.
    fn take_in(&mut self) {
        self.looker.bell.hear();
        while let Ok(found) = self.looker.found.try_recv() {
            match found {
                Found::Locks(locks) => {
                    self.locks = locks;
                    (self.looked, self.is_read, self.trouble) = (instant(), true, None);
                }
                Found::Nothing(why) => self.trouble = Some(why),
                Found::Events(entries) => {
                    for entry in entries {
                        self.history.add(entry);
                    }
                }
                Found::Done(said) => {
                    self.chosen.foot = Foot::Said(said);
                    self.looker.wake();
                }
            }
        }
    }

    fn show(&mut self, terminal: &mut Terminal<Screen>) -> io::Result<()> {
        // Most stores answer before a frame without locks could be seen.
        if !self.is_read && self.trouble.is_none() && since(self.looked) < SECOND {
            return Ok(());
        }
        let mut chosen = std::mem::take(&mut self.chosen);
        let picture = self.picture();
        let drawn = terminal.draw(|frame| draw(&picture, &mut chosen, frame.buffer_mut()));
        let area = drawn.map(|frame| frame.area);
        self.chosen = chosen;
        self.room = usize::from(area?.height).saturating_sub(3).max(1);
        Ok(())
    }

    fn picture(&self) -> Picture<'_> {
        Picture {
            place: &self.place,
            here: &self.here,
            zone: &self.zone,
            now_ms: self.clock.now().wall_us / 1_000,
            locks: &self.locks,
            since_look: since(self.looked),
            history: &self.history,
            trouble: (self.trouble.as_deref()).or((!self.is_read).then_some("no answer yet")),
        }
    }

    /// Does what a key asks for. Answers whether that is to end.
    fn press(&mut self, key: Key) -> bool {
        match std::mem::take(&mut self.chosen.foot) {
            Foot::Filter => self.type_filter(key),
            Foot::Question(_) => self.answer(key),
            Foot::Keys | Foot::Said(_) => return self.choose(key),
        }
        false
    }

    fn type_filter(&mut self, key: Key) {
        let filter = &mut self.chosen.filter;
        match key {
            Key::Enter => return,
            Key::Escape => {
                filter.clear();
                return;
            }
            Key::Char(c) => filter.push(c),
            Key::Backspace => drop(filter.pop()),
            _ => {}
        }
        self.chosen.foot = Foot::Filter;
    }

    fn choose(&mut self, key: Key) -> bool {
        let screen = isize::try_from(self.room).unwrap_or(isize::MAX);
        match (key, self.chosen.page) {
            (Key::Char('q'), Page::Locks) => return true,
            (Key::Char('q') | Key::Escape | Key::Backspace, Page::Lock | Page::Help) => {
                self.turn_to(Page::Locks);
            }
            (Key::Char('?'), _) => self.turn_to(Page::Help),
            (Key::Char('j') | Key::Down, _) => self.move_by(1),
            (Key::Char('k') | Key::Up, _) => self.move_by(-1),
            (Key::PageDown | Key::Char(' '), _) => self.move_by(screen),
            (Key::PageUp, _) => self.move_by(-screen),
            (Key::Home | Key::Char('g'), _) => self.move_by(isize::MIN),
            (Key::End | Key::Char('G'), _) => self.move_by(isize::MAX),
            (Key::Char('c'), Page::Locks | Page::Lock) => self.ask(),
            (Key::Enter, Page::Locks) => {
                self.move_by(0);
                self.turn_to(Page::Lock);
            }
            (Key::Char('/'), Page::Locks) => self.chosen.foot = Foot::Filter,
            (Key::Escape, Page::Locks) => self.chosen.filter.clear(),
            (Key::Char('s'), Page::Locks) => self.chosen.sort = self.chosen.sort.next(),
            (Key::Char('a'), Page::Locks) => self.chosen.free = !self.chosen.free,
            _ => {}
        }
        false
    }

    fn turn_to(&mut self, page: Page) {
        self.chosen.page = page;
        self.chosen.first = 0;
    }

    /// Chooses another lock, or scrolls a page.
    fn move_by(&mut self, by: isize) {
        if self.chosen.page != Page::Locks {
            self.chosen.first = self.chosen.first.saturating_add_signed(by);
            return;
        }
        let rows = order(&self.picture(), &self.chosen);
        let last = rows.len().saturating_sub(1);
        let at = self.chosen.at.saturating_add_signed(by).min(last);
        let lock = rows.get(at).map(|view| view.name.clone());
        (self.chosen.at, self.chosen.lock) = (at, lock);
    }

    /// Asks whether the holder of the chosen lock is to be asked to stop. Without a cancel that fits, no holder is asked.
    fn ask(&mut self) {
        let rows = order(&self.picture(), &self.chosen);
        let Some(view) = rows.get(self.chosen.at) else {
            return;
        };
        let holder = view.holder.as_ref();
        let orphan = holder.is_some_and(|holder| holder.orphaned);
        let force = !orphan && holder.is_some_and(|holder| holder.stopped && holder.kind == "run");
        let does = match (orphan, force) {
            (true, _) => "end the command that goes on",
            (false, true) => "continue the holder and ask it to stop",
            (false, false) => "ask the holder to stop",
        };
        let question = format!("{}: {does}? y does, any other key does not", view.called());
        let name = view.name.clone();
        // Whoever has the lock by the time of the answer was not asked about.
        let only = holder.filter(|_| view.other_holders.is_empty());
        let meant = only.map(|holder| Typed::of(&*holder.request_id, value::request_id));
        self.asked = Some(CancelArgs {
            name: Some(Typed::of(&*name, value::name)),
            request_id: meant.filter(|id| id.value("").is_ok()),
            orphan,
            force,
            yes: orphan,
            common: self.common.clone(),
            ..CancelArgs::default()
        });
        self.chosen.lock = Some(name);
        self.chosen.foot = Foot::Question(question);
    }

    fn answer(&mut self, key: Key) {
        let asked = self.asked.take().filter(|_| key == Key::Char('y'));
        let Some(asked) = asked else {
            self.chosen.foot = Foot::Said("nothing was done".to_owned());
            return;
        };
        let said = match Cancel::of(&asked, self.around) {
            Ok(cancel) => {
                let began = self.looker.beside(move || carried_out(cancel));
                began.map_or_else(|error| error.to_string(), |()| "asking...".to_owned())
            }
            Err(failure) => failure.message.clone(),
        };
        self.chosen.foot = Foot::Said(said);
    }
}

/// Carries a `cancel` out, and says what became of it.
fn carried_out(cancel: Cancel) -> String {
    let mut silent = Reporter::new(Output::Text, true, false, "cancel".to_owned());
    match cancel::cancel(cancel, &mut silent) {
        Ok((text, _)) => text,
        Err(failure) => failure.message.clone(),
    }
}
