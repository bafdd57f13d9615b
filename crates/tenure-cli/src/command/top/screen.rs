//! The screen of a terminal while `top` has it: the other screen, without a cursor, and keys without an echo.
//!
//! **What it changes it puts back**: at the end, for a stop (Ctrl-Z), when a signal ends the process, and on a panic.

use crate::signals::{Stream, Why, unstopped, write_unless_stopped};
use ratatui_core::backend::{Backend, ClearType, WindowSize};
use ratatui_core::buffer::Cell;
use ratatui_core::layout::{Position, Size};
use ratatui_core::style::{Color, Modifier};
use rustix::termios::{
    InputModes, LocalModes, OptionalActions, SpecialCodeIndex, Termios, tcgetattr, tcgetwinsize,
    tcsetattr,
};
use std::fmt::Write as _;
use std::io;
use std::sync::{Mutex, PoisonError};

/// The other screen, without a cursor, empty.
const ENTER: &str = "\x1b[?1049h\x1b[?25l\x1b[0m\x1b[2J";

/// Back to the screen as it was.
const LEAVE: &str = "\x1b[0m\x1b[?25h\x1b[?1049l";

/// The modes that the terminal had; `None` while it has them.
static BEFORE: Mutex<Option<Termios>> = Mutex::new(None);

/// The terminal on stdin and stdout.
pub(super) struct Screen {
    /// What is to be written with the next flush.
    pending: String,
}

impl Screen {
    /// Takes the terminal.
    pub(super) fn open() -> io::Result<Self> {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            give_back();
            before(info);
        }));
        let mut screen = Self {
            pending: String::new(),
        };
        screen.take()?;
        Ok(screen)
    }

    /// Takes the terminal, again after it was given back.
    pub(super) fn take(&mut self) -> io::Result<()> {
        let stdin = io::stdin();
        let modes = tcgetattr(&stdin)?;
        let mut raw = modes.clone();
        // Ctrl-C and Ctrl-Z stay signals. Nothing stops the output.
        raw.local_modes &= !(LocalModes::ICANON | LocalModes::ECHO | LocalModes::IEXTEN);
        raw.input_modes &= !(InputModes::IXON | InputModes::ICRNL | InputModes::INLCR);
        raw.special_codes[SpecialCodeIndex::VMIN] = 1;
        raw.special_codes[SpecialCodeIndex::VTIME] = 0;
        // Noted before the change, so that a panic in between puts it back.
        BEFORE
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .get_or_insert(modes);
        unstopped(|| tcsetattr(&stdin, OptionalActions::Now, &raw))?;
        self.pending.push_str(ENTER);
        self.flush()
    }
}

/// Gives the terminal back, if it was taken.
pub(super) fn give_back() {
    let before = BEFORE.lock().unwrap_or_else(PoisonError::into_inner).take();
    if let Some(modes) = before {
        unstopped(|| {
            let _ = write_unless_stopped(Stream::Out, LEAVE.as_bytes());
            let _ = tcsetattr(io::stdin(), OptionalActions::Now, &modes);
        });
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        give_back();
    }
}

impl Backend for Screen {
    type Error = io::Error;

    fn draw<'a, I>(&mut self, content: I) -> Result<(), Self::Error>
    where
        I: Iterator<Item = (u16, u16, &'a Cell)>,
    {
        let mut next = None;
        let mut style = None;
        for (x, y, cell) in content {
            if next != Some((x, y)) {
                let _ = write!(self.pending, "\x1b[{};{}H", y + 1, x + 1);
            }
            let wanted = (cell.fg, cell.modifier);
            if style != Some(wanted) {
                self.pending.push_str("\x1b[0");
                self.pending.push_str(codes(wanted));
                self.pending.push('m');
                style = Some(wanted);
            }
            self.pending.push_str(cell.symbol());
            // How wide a terminal draws other characters, it alone knows.
            next = cell.symbol().is_ascii().then_some((x + 1, y));
        }
        if style.is_some() {
            self.pending.push_str("\x1b[0m");
        }
        Ok(())
    }

    fn hide_cursor(&mut self) -> Result<(), Self::Error> {
        self.pending.push_str("\x1b[?25l");
        Ok(())
    }

    fn show_cursor(&mut self) -> Result<(), Self::Error> {
        self.pending.push_str("\x1b[?25h");
        Ok(())
    }

    fn get_cursor_position(&mut self) -> Result<Position, Self::Error> {
        Ok(Position::ORIGIN)
    }

    fn set_cursor_position<P: Into<Position>>(&mut self, position: P) -> Result<(), Self::Error> {
        let Position { x, y } = position.into();
        let _ = write!(self.pending, "\x1b[{};{}H", y + 1, x + 1);
        Ok(())
    }

    fn clear(&mut self) -> Result<(), Self::Error> {
        self.pending.push_str("\x1b[0m\x1b[2J");
        Ok(())
    }

    fn clear_region(&mut self, _: ClearType) -> Result<(), Self::Error> {
        self.clear()
    }

    fn size(&self) -> Result<Size, Self::Error> {
        let size = tcgetwinsize(io::stdout())?;
        // A terminal that does not know its size is as large as they were.
        let known = |cells: u16, usual| if cells == 0 { usual } else { cells };
        Ok(Size::new(known(size.ws_col, 80), known(size.ws_row, 24)))
    }

    fn window_size(&mut self) -> Result<WindowSize, Self::Error> {
        Ok(WindowSize {
            columns_rows: self.size()?,
            pixels: Size::ZERO,
        })
    }

    fn flush(&mut self) -> Result<(), Self::Error> {
        let pending = std::mem::take(&mut self.pending);
        let written = unstopped(|| write_unless_stopped(Stream::Out, pending.as_bytes()));
        written.map_err(|unwritten| match unwritten.why {
            Why::Failed(error) => error,
            Why::Late | Why::Stopped(_) => io::ErrorKind::Interrupted.into(),
        })
    }
}

/// The codes of a style, of those that a frame has.
fn codes((colour, modifier): (Color, Modifier)) -> &'static str {
    let (bold, dim, reversed) = (
        modifier.contains(Modifier::BOLD),
        modifier.contains(Modifier::DIM),
        modifier.contains(Modifier::REVERSED),
    );
    match (colour, bold, reversed, dim) {
        (Color::Red, _, false, _) => ";1;31",
        (Color::Red, _, true, _) => ";1;7;31",
        (Color::Yellow, _, false, _) => ";33",
        (Color::Yellow, _, true, _) => ";7;33",
        (Color::Green, _, false, _) => ";32",
        (Color::Green, _, true, _) => ";7;32",
        (_, true, true, _) => ";1;7",
        (_, true, false, _) => ";1",
        (_, false, true, _) => ";7",
        (_, false, false, true) => ";2",
        (_, false, false, false) => "",
    }
}
