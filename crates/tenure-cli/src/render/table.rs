//! The columns of a table: as wide as their cells, and on a terminal together no wider than the terminal.
//!
//! The caller fills the cells, with text that is safe to print.

use super::width::{cut, pad, width};

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

/// The rows, with each cell cut and padded to its column; `None` for a column that is left out. `room` is
/// how wide they may be.
pub(crate) fn lay_out<const N: usize>(
    rows: &[[String; N]],
    room: Option<usize>,
    giving: Giving<'_>,
) -> Vec<[Option<String>; N]> {
    let widths = widths(rows, room, giving);
    rows.iter()
        .map(|row| {
            let mut cells = row.iter().zip(&widths);
            std::array::from_fn(|_| {
                let (cell, width) = cells.next()?;
                width.map(|width| pad(&cut(cell, width), width))
            })
        })
        .collect()
}

/// The cells of a row as a line.
pub(crate) fn line(cells: impl IntoIterator<Item = String>) -> String {
    let cells: Vec<String> = cells.into_iter().collect();
    cells.join(&" ".repeat(GAP)).trim_end().to_owned()
}

fn widths<const N: usize>(
    rows: &[[String; N]],
    room: Option<usize>,
    giving: Giving<'_>,
) -> [Option<usize>; N] {
    let mut widths: [Option<usize>; N] = std::array::from_fn(|column| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        cells.map(|cell| width(cell)).max()
    });
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

    fn table(room: Option<usize>) -> Vec<String> {
        let rows = [
            ["NAME", "TOKEN", "HOLDER"],
            ["a-long-name", "12345678", "PID 7: ./backup.sh"],
            ["備份", "-", "🔒"],
        ]
        .map(|row| row.map(String::from));
        let laid = lay_out(&rows, room, GIVING);
        laid.into_iter()
            .map(|cells| line(cells.into_iter().flatten()))
            .collect()
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
}
