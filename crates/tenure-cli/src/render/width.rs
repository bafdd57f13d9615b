//! How much room a text takes on a screen, and how it is cut to less.
//!
//! Characters are counted one by one, so a sequence that a terminal joins into one picture counts as too
//! wide rather than too narrow. The text was made safe to print before ([`super::clean`]).

use std::borrow::Cow;
use tenure_store::printed::is_printed_ascii;
use unicode_width::UnicodeWidthChar;

/// The sign for the part that was left out.
const LEFT_OUT: char = '…';

/// Asks that a narrow character be drawn as a wide picture.
const AS_A_PICTURE: char = '\u{fe0f}';

/// How many columns a terminal has; `None` if it does not know.
#[cfg(unix)]
pub(crate) fn columns(terminal: impl std::os::fd::AsFd) -> Option<usize> {
    let size = rustix::termios::tcgetwinsize(terminal).ok()?;
    Some(usize::from(size.ws_col)).filter(|columns| *columns > 0)
}

/// How wide a table on stdout may be: as wide as its terminal, or as `COLUMNS` says. Any other reader gets all of it.
pub(crate) fn room_on_stdout() -> Option<usize> {
    #[cfg(unix)]
    let of_terminal = columns(std::io::stdout());
    #[cfg(not(unix))]
    let of_terminal = None;
    of_terminal.or_else(|| {
        let said = std::env::var("COLUMNS").ok()?;
        said.parse().ok().filter(|columns| *columns > 0)
    })
}

/// How many columns and lines a picture on stdout may have: as many as its terminal, or as `COLUMNS` and `LINES` say, else those
/// of a usual terminal.
pub(crate) fn size_on_stdout() -> (u16, u16) {
    #[cfg(unix)]
    let lines_of_terminal = rustix::termios::tcgetwinsize(std::io::stdout())
        .ok()
        .map(|size| size.ws_row)
        .filter(|lines| *lines > 0);
    #[cfg(not(unix))]
    let lines_of_terminal = None;
    let lines = lines_of_terminal.or_else(|| std::env::var("LINES").ok()?.parse().ok());
    let columns = room_on_stdout().and_then(|columns| u16::try_from(columns).ok());
    let within = |cells: Option<u16>, usual, least| cells.unwrap_or(usual).clamp(least, 1_000);
    (within(columns, 80, 20), within(lines, 24, 6))
}

/// How many columns a text takes.
pub(crate) fn width(text: &str) -> usize {
    if is_printed_ascii(text) {
        return text.len();
    }
    text.chars().map(of_char).sum()
}

fn of_char(c: char) -> usize {
    match c {
        AS_A_PICTURE => 1,
        c => c.width().unwrap_or(1),
    }
}

/// As much of the text as fits into so many columns. A sign at its end says that something is missing.
pub(crate) fn cut(text: &str, columns: usize) -> Cow<'_, str> {
    if width(text) <= columns {
        return Cow::Borrowed(text);
    }
    let mut room = columns.saturating_sub(1);
    let mut kept: String = text
        .chars()
        .take_while(|c| {
            let rest = room.checked_sub(of_char(*c));
            room = rest.unwrap_or(0);
            rest.is_some()
        })
        .collect();
    kept.truncate(kept.trim_end().len());
    if columns > 0 {
        kept.push(LEFT_OUT);
    }
    Cow::Owned(kept)
}

/// The text, and spaces up to so many columns: for the labels of `doctor`.
#[cfg(any(unix, test))]
pub(crate) fn pad(text: &str, columns: usize) -> String {
    let mut padded = String::new();
    add_padded(&mut padded, text, columns);
    padded
}

/// Adds the padded text at the end of a line.
pub(crate) fn add_padded(line: &mut String, text: &str, columns: usize) {
    const SPACES: &str = "                                ";
    line.push_str(text);
    let mut missing = columns.saturating_sub(width(text));
    while missing > 0 {
        let some = SPACES.get(..missing).unwrap_or(SPACES);
        line.push_str(some);
        missing -= some.len();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wide_characters_take_two_columns_and_marks_none() {
        for (text, columns) in [
            ("backup", 6),
            ("備份", 4),
            ("e\u{301}", 1),
            ("🔒", 2),
            ("❤\u{fe0f}", 2),
            ("", 0),
        ] {
            assert_eq!(width(text), columns, "{text}");
            assert_eq!(cut(text, columns), text, "it fits");
        }
        assert_eq!(pad("備", 4), "備  ");
        assert_eq!(pad("備份x", 4), "備份x", "what is wider stays whole");
    }

    #[test]
    fn what_is_cut_fits_whatever_the_room() {
        let text = "a備份 🔒e\u{301}❤\u{fe0f} end";
        for room in 0..=width(text) {
            let kept = cut(text, room);
            assert!(width(&kept) <= room, "{kept:?} in {room} columns");
            assert_eq!(kept == text, room == width(text), "{kept:?} in {room}");
            assert_eq!(kept.ends_with('…'), room > 0 && room < width(text));
        }
        assert_eq!(cut("./backup.sh", 8), "./backu…");
        assert_eq!(cut("./b --all", 5), "./b…", "no space before the sign");
        assert_eq!(cut("備份", 3), "備…");
        assert_eq!(cut("備份", 2), "…", "half a character is none");
    }
}
