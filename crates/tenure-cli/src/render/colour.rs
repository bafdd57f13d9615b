//! Answers two questions, here and nowhere else: may a stream show colours, and may it be drawn on?
//!
//! A terminal shows colours unless its user asks for none, by `NO_COLOR` (no-color.org) or `CLICOLOR=0`. A
//! terminal that calls itself dumb (`TERM=dumb`: an editor's window, a log) gets line by line, without
//! colours, and nothing on it is drawn twice.

use std::fmt::Write as _;
use std::io::IsTerminal;

/// Whether a stream shows colours.
pub(crate) fn shows_colours(stream: &impl IsTerminal) -> bool {
    let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty());
    can_be_drawn_on(stream)
        && variable("NO_COLOR").is_none()
        && variable("CLICOLOR").is_none_or(|value| value != "0")
}

/// Whether a line on a stream can be taken back and drawn again.
pub(crate) fn can_be_drawn_on(stream: &impl IsTerminal) -> bool {
    stream.is_terminal() && std::env::var_os("TERM").is_none_or(|terminal| terminal != "dumb")
}

/// Whether a person looks at the terminal, as far as can be known. Machines that build (`CI`) give their commands a terminal
/// whose output is a log.
pub(crate) fn has_a_person() -> bool {
    std::env::var_os("CI").is_none_or(|ci| ci.is_empty() || ci == "false" || ci == "0")
}

/// The text that clears the last drawn line on a stream of so many columns. A user who wants no colours gets
/// no escape sequences at all: a filter that removes colours may not know the others.
pub(crate) fn cleared(stream: &impl IsTerminal, columns: usize) -> String {
    if shows_colours(stream) {
        "\r\x1b[K".to_owned()
    } else {
        format!("\r{:1$}\r", "", columns.saturating_sub(1))
    }
}

/// A word in the colour of the standing, or of the finding, that it names: free is green, and red is what needs a person. What
/// goes by, as a hold does, is yellow.
pub(crate) fn paint(padded: &str, standing: &str) -> String {
    let colour = match standing {
        "free" | "ok" => 32,
        "stopped" | "orphaned" | "stale" | "unreadable" | "unknown" | "wrong" => 31,
        _ => 33,
    };
    format!("\x1b[{colour}m{padded}\x1b[0m")
}

/// A page of help as a stream shows it: headings stand out, and so do the words that a user can type.
pub(crate) fn page(text: &str, stream: &impl IsTerminal) -> String {
    if shows_colours(stream) {
        painted(text)
    } else {
        text.to_owned()
    }
}

fn painted(text: &str) -> String {
    let mut section = "";
    let mut page = String::new();
    for line in text.lines() {
        let indent = line.len() - line.trim_start().len();
        if indent == 0 {
            section = line;
        }
        // Writing to a `String` cannot fail.
        if indent == 0 && line.ends_with(':') {
            let _ = write!(page, "\x1b[1m{line}\x1b[0m");
        } else if let Some(usage) = line.strip_prefix("Usage:") {
            let _ = write!(page, "\x1b[1mUsage:\x1b[0m{usage}");
        } else if is_typed(section, line, indent) {
            let end = line
                .get(indent..)
                .and_then(|rest| rest.find("  "))
                .map_or(line.len(), |gap| indent + gap);
            let (typed, about) = line.split_at(end);
            let (margin, typed) = typed.split_at(indent);
            let _ = write!(page, "{margin}\x1b[36m{typed}\x1b[0m{about}");
        } else {
            page.push_str(line);
        }
        page.push('\n');
    }
    if !text.ends_with('\n') {
        page.pop();
    }
    page
}

/// Whether a line begins with a word that a user can type.
fn is_typed(section: &str, line: &str, indent: usize) -> bool {
    let is_flag = matches!(indent, 2 | 6) && line.trim_start().starts_with('-');
    let is_word = indent == 2 && matches!(section, "Verbs:" | "Arguments:" | "Examples:");
    is_flag || is_word
}

#[cfg(test)]
mod tests {
    use super::painted;

    #[test]
    fn a_painted_page_says_the_same_in_colours() {
        let page = "About\n\nUsage: x y\n\nOptions:\n  -a, --all <N>  All of\n                 --these\n\n\
                    Examples:\n  x y  so\n\nExit codes:\n  0 good  1 bad";
        let shown = painted(page);
        assert_eq!(painted(&format!("{page}\n")), format!("{shown}\n"));
        assert_eq!(
            shown,
            "About\n\n\x1b[1mUsage:\x1b[0m x y\n\n\x1b[1mOptions:\x1b[0m\n  \x1b[36m-a, --all \
             <N>\x1b[0m  All of\n                 --these\n\n\x1b[1mExamples:\x1b[0m\n  \x1b[36mx \
             y\x1b[0m  so\n\n\x1b[1mExit codes:\x1b[0m\n  0 good  1 bad"
        );
    }
}
