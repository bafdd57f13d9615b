//! Shows what would become of a text, line by line.
//!
//! Lines that stay are shown around those that change, as `diff -u` does. Which text that is, the caller decides.

use std::fmt::Write as _;

/// How many lines are shown around a change.
const AROUND: usize = 3;

/// Texts with more pairs of lines than this are shown as one change.
const PAIRS_MAX: usize = 4_000_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Line<'a> {
    Both(&'a str),
    Old(&'a str),
    New(&'a str),
}

/// The difference of two texts; empty if there is none.
pub(super) fn of(file: &str, old: Option<&str>, new: Option<&str>) -> String {
    if old == new {
        return String::new();
    }
    let named = |text: Option<&str>| if text.is_some() { file } else { "/dev/null" };
    let mut shown = format!("--- {}\n+++ {}\n", named(old), named(new));
    let lines = compare(
        &old.unwrap_or_default()
            .split_inclusive('\n')
            .collect::<Vec<_>>(),
        &new.unwrap_or_default()
            .split_inclusive('\n')
            .collect::<Vec<_>>(),
    );
    let is_change = |line: &Line<'_>| !matches!(line, Line::Both(_));
    let (mut at, mut old_line, mut new_line) = (0, 1, 1);
    while at < lines.len() {
        let Some(next) = lines[at..].iter().position(is_change) else {
            break;
        };
        let start = at + next.saturating_sub(AROUND);
        // The hunk ends where more lines stay than two hunks would show.
        let (mut end, mut stay) = (at + next, 0);
        for (offset, line) in lines[at + next..].iter().enumerate() {
            stay = if is_change(line) { 0 } else { stay + 1 };
            if stay > 2 * AROUND {
                break;
            }
            if stay <= AROUND {
                end = at + next + offset + 1;
            }
        }
        count(&lines[at..start], &mut old_line, &mut new_line);
        let (from, to) = (old_line, new_line);
        count(&lines[start..end], &mut old_line, &mut new_line);
        let first = |line: usize, length: usize| if length == 0 { line - 1 } else { line };
        let (olds, news) = (old_line - from, new_line - to);
        let _ = writeln!(
            shown,
            "@@ -{},{olds} +{},{news} @@",
            first(from, olds),
            first(to, news)
        );
        for line in &lines[start..end] {
            let (mark, text) = match line {
                Line::Both(text) => (' ', text),
                Line::Old(text) => ('-', text),
                Line::New(text) => ('+', text),
            };
            let _ = write!(shown, "{mark}{text}");
            if !text.ends_with('\n') {
                shown.push_str("\n\\ No newline at end of file\n");
            }
        }
        at = end;
    }
    shown
}

fn count(lines: &[Line<'_>], old: &mut usize, new: &mut usize) {
    for line in lines {
        *old += usize::from(!matches!(line, Line::New(_)));
        *new += usize::from(!matches!(line, Line::Old(_)));
    }
}

/// The longest row of lines that both have, and what stands between.
fn compare<'a>(old: &[&'a str], new: &[&'a str]) -> Vec<Line<'a>> {
    let front = old.iter().zip(new).take_while(|(a, b)| a == b).count();
    let (old_rest, new_rest) = (&old[front..], &new[front..]);
    let backs = old_rest.iter().rev().zip(new_rest.iter().rev());
    let back = backs.take_while(|(a, b)| a == b).count();
    let olds = &old_rest[..old_rest.len() - back];
    let news = &new_rest[..new_rest.len() - back];
    let mut lines: Vec<_> = old[..front].iter().copied().map(Line::Both).collect();
    if olds.len().saturating_mul(news.len()) > PAIRS_MAX {
        lines.extend(olds.iter().copied().map(Line::Old));
        lines.extend(news.iter().copied().map(Line::New));
    } else {
        // How many lines the rests from here on have in common.
        let width = news.len() + 1;
        let mut common = vec![0_u32; (olds.len() + 1) * width];
        for (i, old) in olds.iter().enumerate().rev() {
            for (j, new) in news.iter().enumerate().rev() {
                common[i * width + j] = if old == new {
                    common[(i + 1) * width + j + 1] + 1
                } else {
                    common[(i + 1) * width + j].max(common[i * width + j + 1])
                };
            }
        }
        let (mut i, mut j) = (0, 0);
        while i < olds.len() || j < news.len() {
            if i < olds.len() && j < news.len() && olds[i] == news[j] {
                lines.push(Line::Both(olds[i]));
                (i, j) = (i + 1, j + 1);
            } else if j == news.len()
                || (i < olds.len() && common[(i + 1) * width + j] >= common[i * width + j + 1])
            {
                lines.push(Line::Old(olds[i]));
                i += 1;
            } else {
                lines.push(Line::New(news[j]));
                j += 1;
            }
        }
    }
    let tail = &old_rest[old_rest.len() - back..];
    lines.extend(tail.iter().copied().map(Line::Both));
    lines
}

#[cfg(test)]
mod tests {
    use super::of;

    #[test]
    fn what_patch_reads_is_shown() {
        assert_eq!(of("f", Some("a\n"), Some("a\n")), "");
        assert_eq!(
            of("f", None, Some("a\nb")),
            "--- /dev/null\n+++ f\n@@ -0,0 +1,2 @@\n+a\n+b\n\\ No newline at end of file\n"
        );
        let old = (0..20).map(|line| line.to_string()).collect::<Vec<_>>();
        let old = old.join("\n") + "\n";
        let new = old.replace("3\n", "3\nx\n").replace("17\n", "");
        let shown = of("f", Some(&old), Some(&new));
        assert!(shown.contains("+x\n"), "{shown}");
        assert!(shown.contains("-17\n"), "{shown}");
        assert!(!shown.contains(" 9\n"), "{shown}");
    }
}
