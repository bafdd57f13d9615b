//! The columns of a table: as wide as their cells, and on a terminal together no wider than the terminal.
//!
//! The caller fills the cells, with text that is safe to print.

use super::width::{add_padded, cut, width};
use std::borrow::Cow;

/// Between two columns.
const GAP: usize = 2;

/// What a table gives up if it is too wide.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Giving<'a> {
    /// Columns that are left out, in this order.
    pub(crate) spare: &'a [usize],
    /// The column that is cut first, and how much of it still says something. A spare column is left out before
    /// this one becomes narrower than that.
    pub(crate) long: (usize, usize),
    /// The column that is cut next, and how much is left of it.
    pub(crate) last: (usize, usize),
}

/// What stands in the columns of a row.
pub(crate) type Cells<const N: usize> = [Cow<'static, str>; N];

/// The columns of a table.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Columns<const N: usize> {
    /// `None` for a column that is left out.
    widths: [Option<usize>; N],
    /// Columns that are narrower than what stands in them.
    cut: [bool; N],
    room: Option<usize>,
}

impl<const N: usize> Columns<N> {
    /// As wide as these rows need. `room` is how wide they may be together.
    pub(crate) fn of<'a>(
        rows: impl IntoIterator<Item = &'a Cells<N>>,
        room: Option<usize>,
        giving: Giving<'_>,
    ) -> Self {
        let full = full_widths(rows);
        let widths = widths(full, room, giving);
        Self {
            widths,
            cut: std::array::from_fn(|column| widths.get(column) < full.get(column)),
            room,
        }
    }

    /// A row as a line, for which there is an empty text: each cell padded to its column, and cut where that was narrowed. A cell
    /// that is wider than those by which the columns were sized moves what is behind it, and the row is cut where the
    /// room ends. A cell for which there is a way to show it, by its column, is shown with its padding.
    pub(crate) fn lay(
        &self,
        row: &Cells<N>,
        shown: impl Fn(usize, &str) -> Option<String>,
        to: &mut String,
    ) {
        let mut room = self.room;
        let mut gap = 0;
        for (column, (cell, columns)) in row.iter().zip(self.widths).enumerate() {
            let Some(mut columns) = columns else {
                continue;
            };
            if room == Some(0) {
                break;
            }
            let mut text = Cow::Borrowed(&**cell);
            if self.cut.get(column) == Some(&true) {
                text = cut(cell, columns);
            }
            if let Some(room) = &mut room {
                // Where only its padding is too wide, that is shortened.
                columns = columns.min(*room);
                if width(&text) > *room {
                    text = cut(text.trim_end(), *room).into_owned().into();
                }
                *room = room.saturating_sub(width(&text).max(columns) + GAP);
            }
            add_padded(to, "", std::mem::replace(&mut gap, GAP));
            let begin = to.len();
            add_padded(to, &text, columns);
            let shown = to.get(begin..).and_then(|padded| shown(column, padded));
            if let Some(shown) = shown {
                to.truncate(begin);
                to.push_str(&shown);
            }
        }
        to.truncate(to.trim_end().len());
    }
}

/// The widths that everything fits into.
fn full_widths<'a, const N: usize>(
    rows: impl IntoIterator<Item = &'a Cells<N>>,
) -> [Option<usize>; N] {
    let mut widths = [None; N];
    for row in rows {
        for (cell, most) in row.iter().zip(&mut widths) {
            *most = (*most).max(Some(width(cell)));
        }
    }
    widths
}

fn widths<const N: usize>(
    mut widths: [Option<usize>; N],
    room: Option<usize>,
    giving: Giving<'_>,
) -> [Option<usize>; N] {
    let Some(room) = room else {
        return widths;
    };
    let (long, long_min) = giving.long;
    let total = |widths: &[Option<usize>; N]| {
        let shown: Vec<usize> = widths.iter().copied().flatten().collect();
        shown.iter().sum::<usize>() + GAP * shown.len().saturating_sub(1)
    };
    let excess = |widths: &[Option<usize>; N]| total(widths).saturating_sub(room);
    // How much the long column can give by itself.
    let spare_of = |widths: &[Option<usize>; N], least: usize| {
        let wide = widths.get(long).copied().flatten().unwrap_or(0);
        wide.saturating_sub(least)
    };
    for column in giving.spare {
        if excess(&widths) <= spare_of(&widths, long_min) {
            break;
        }
        if let Some(width) = widths.get_mut(*column) {
            *width = None;
        }
    }
    for (column, least) in [giving.long, giving.last, (long, 1)] {
        let over = excess(&widths);
        if let Some(Some(width)) = widths.get_mut(column) {
            *width = width.saturating_sub(over).max(least.min(*width));
        }
    }
    widths
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIVING: Giving<'static> = Giving {
        spare: &[1],
        long: (2, 6),
        last: (0, 4),
    };

    fn line(columns: &Columns<3>, row: &Cells<3>) -> String {
        let mut line = String::new();
        columns.lay(row, |_, _| None, &mut line);
        line
    }

    fn table(room: Option<usize>) -> Vec<String> {
        let rows = [
            ["NAME", "TOKEN", "HOLDER"],
            ["a-long-name", "12345678", "PID 7: ./backup.sh"],
            ["備份", "-", "🔒"],
        ]
        .map(|row| row.map(Cow::from));
        let columns = Columns::of(&rows, room, GIVING);
        rows.iter().map(|row| line(&columns, row)).collect()
    }

    #[test]
    fn without_a_terminal_nothing_is_cut() {
        assert_eq!(
            table(None),
            [
                "NAME         TOKEN     HOLDER",
                "a-long-name  12345678  PID 7: ./backup.sh",
                "備份         -         🔒",
            ]
        );
        assert_eq!(table(Some(41)), table(None), "it just fits");
    }

    #[test]
    fn what_is_too_wide_is_cut_and_left_out_in_its_order() {
        for (room, line) in [
            (40, "a-long-name  12345678  PID 7: ./backup.…"),
            (29, "a-long-name  12345678  PID 7…"),
            (28, "a-long-name  PID 7: ./backu…"),
            (19, "a-long-name  PID 7…"),
            (18, "a-long-na…  PID 7…"),
            (12, "a-l…  PID 7…"),
            (10, "a-l…  PID…"),
        ] {
            assert_eq!(
                table(Some(room)).get(1).map(String::as_str),
                Some(line),
                "{room}"
            );
        }
        for room in 7..60 {
            let lines = table(Some(room));
            assert!(lines.iter().all(|line| width(line) <= room), "{lines:#?}");
        }
    }

    #[test]
    fn a_row_that_did_not_size_the_columns_is_whole_as_far_as_there_is_room() {
        let first = [
            ["NAME", "TOKEN", "HOLDER"],
            ["short", "123", "PID 7: ./backup.sh"],
        ]
        .map(|row| row.map(Cow::from));
        let later = ["longer-than-short", "45678", "PID 8"].map(Cow::from);
        for (room, expected) in [
            (None, "longer-than-short  45678  PID 8"),
            (Some(31), "longer-than-short  45678  PID 8"),
            (Some(30), "longer-than-short  45678  PID…"),
            // Here the holder was narrowed, and stays so.
            (Some(20), "longer-than-short"),
        ] {
            let columns = Columns::of(&first, room, GIVING);
            let line = line(&columns, &later);
            assert!(
                room.is_none_or(|room| width(&line) <= room),
                "{room:?}: {line}"
            );
            assert!(line.starts_with(expected), "{room:?}: {line}");
        }
    }

    #[test]
    fn a_painted_cell_for_which_there_is_no_room_is_left_out() {
        let first = [["NAME", "TOKEN", "HOLDER"].map(Cow::from)];
        let columns = Columns::of(&first, Some(18), GIVING);
        let later = ["longer-than-the-room", "45678", "PID 8"].map(Cow::from);
        let mut line = String::new();
        let painted =
            |column, padded: &str| (column == 1).then(|| format!("\x1b[31m{padded}\x1b[0m"));
        columns.lay(&later, painted, &mut line);
        assert_eq!(line, "longer-than-the-r…");
    }
}
