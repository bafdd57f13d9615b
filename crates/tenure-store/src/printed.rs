//! How text that other programs or users wrote is printed: records, names of users, messages of servers.
//!
//! Some characters have no shape of their own and act on the text around them: they control a terminal, end
//! a line, turn the order in which it is read, or hide. This program prints none of them raw on purpose.
//! For programs they are escaped, so that a parser gets exactly what was written; for people they are
//! replaced.
//!
//! No other list of such characters is kept. Documents of JSON and YAML are the engine's (`document`, `yaml`); what a record's
//! own format writes is with its profile.

use hmac_sha256::Hash as Sha256;
use std::borrow::Cow;
use std::fmt::Display;
use std::path::Path;

/// How many characters of a parser's message are shown.
const MESSAGE_CHARS_MAX: usize = 200;

/// What parsers say of a text that passes a bound.
const BOUNDS: [&str; 5] = [
    "budget breached",
    "alias replay",
    "alias expansion",
    "cannot recurse further",
    "recursion limit exceeded",
];

/// What parsers call things by, which is for programmers, and what that is to the author of a text.
const CALLED: [(&str, &str); 14] = [
    ("stream did not contain valid UTF-8", "it is not UTF-8"),
    ("EOF while parsing", "the text ends in the middle of"),
    (
        "recursive references require weak recursion types",
        "an alias stands in what it repeats",
    ),
    ("expected mapping start", "expected a mapping"),
    ("expected sequence start", "expected a list"),
    ("expected string scalar", "expected a text"),
    ("expected path string", "expected a string"),
    ("wanted string or table", "expected a string"),
    ("expected a nonzero u32", "expected a whole number from 1"),
    ("expected u64", "expected a whole number"),
    ("expected u32", "expected a whole number"),
    ("invalid u64", "expected a whole number"),
    ("invalid u32", "expected a whole number"),
    ("` as i128", "`"),
];

/// How many digits [`hash`] has.
pub const HASH_DIGITS: usize = 32;

/// Hash of a text, as a part of a name: the first half of its SHA-256, so no two texts share a name by accident.
pub fn hash(text: &str) -> String {
    let hash = Sha256::hash(text.as_bytes());
    hex(hash.get(..HASH_DIGITS / 2).unwrap_or_default())
}

/// Two hex digits for each byte.
pub fn hex(bytes: &[u8]) -> String {
    let digits = bytes.iter().flat_map(|byte| [byte >> 4, byte & 15]);
    digits
        .filter_map(|digit| char::from_digit(digit.into(), 16))
        .collect()
}

/// Whether a character acts on the text around it instead of being seen, beyond what every JSON writer
/// escapes: DEL and C1, line separators, marks of the reading direction, characters without width, tags.
pub fn acts(c: char) -> bool {
    matches!(
        c,
        '\u{7f}'..='\u{9f}'
            | '\u{ad}'
            | '\u{61c}'
            | '\u{180e}'
            | '\u{200b}'..='\u{200f}'
            | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}'
            | '\u{feff}'
            | '\u{fff9}'..='\u{fffb}'
            | '\u{e0000}'..='\u{e007f}'
    )
}

/// Whether a character joins its neighbours or keeps them apart. Names in several languages need such
/// characters, so people are shown them.
fn joins(c: char) -> bool {
    matches!(c, '\u{200c}' | '\u{200d}')
}

/// Text from a record, safe for a terminal.
pub fn clean(text: &str) -> Cow<'_, str> {
    if is_printed_ascii(text) {
        return Cow::Borrowed(text);
    }
    let safe = |c: char| {
        if c.is_control() || turns_text(c) {
            '\u{fffd}'
        } else {
            c
        }
    };
    Cow::Owned(text.chars().map(safe).collect())
}

/// What people are shown of a path in place of the lock's name. It is never a name itself, so calls tell the two apart.
pub fn called(path: &str) -> Cow<'_, str> {
    if is_path(path) {
        clean(path)
    } else {
        format!("./{}", clean(path)).into()
    }
}

/// Whether a text is a path to [`called`], and no name of a lock.
pub fn is_path(text: &str) -> bool {
    text.contains(std::path::is_separator)
}

/// A path, safe for a terminal.
pub fn clean_path(path: impl AsRef<Path>) -> String {
    clean(&path.as_ref().display().to_string()).into_owned()
}

/// Whether a text is of letters, digits, signs and spaces of ASCII alone, as nearly each is. Each takes one column, and
/// none is replaced. Asking all bytes at once takes less time than stopping at the first.
pub fn is_printed_ascii(text: &str) -> bool {
    let is_printed = |byte: u8| matches!(byte, b' '..=b'~');
    text.bytes().fold(true, |all, byte| all & is_printed(byte))
}

/// Characters that a person is not shown: they turn the order in which a line is read, end it, or cannot be
/// seen. Control characters are not among them.
pub fn turns_text(c: char) -> bool {
    acts(c) && !joins(c)
}

/// A parser's message as the end of a sentence, for the author of the text: one line, not longer than a line, without
/// the parser's own types and bounds.
pub fn short(message: &impl Display) -> String {
    for_its_author(&message.to_string())
        .chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .take(MESSAGE_CHARS_MAX)
        .collect()
}

/// A parser's message in words for the author of the text.
pub fn for_its_author(message: &str) -> String {
    if message.starts_with("budget breached: Documents") {
        return "there is more than one document".to_owned();
    }
    if BOUNDS.iter().any(|bound| message.starts_with(bound)) {
        return "it is larger, or nested deeper, than such a document may be".to_owned();
    }
    let advised = message.split_once(", set DuplicateKeyPolicy");
    let mut said = advised.map_or(message, |(fault, _)| fault).to_owned();
    for (called, meant) in CALLED {
        said = said.replace(called, meant);
    }
    match said.split_once("expected struct ") {
        Some((before, after)) => {
            let after = after.trim_start_matches(|c: char| c.is_alphanumeric() || c == '_');
            let counted = after.strip_prefix(" with ");
            let after = counted.map_or(after, |rest| {
                rest.trim_start_matches(|c: char| c != 'e' && c != '\n')
                    .trim_start_matches("elements")
                    .trim_start_matches("element")
            });
            format!("{before}expected a mapping{after}")
        }
        None => said,
    }
}

/// Whether a word needs no quotes in a shell: it has letters, digits and these characters alone.
pub fn is_plain(word: &str, more: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || more.contains(c);
    !word.is_empty() && word.chars().all(plain)
}

/// An error with its causes, as far as it does not name them itself.
pub fn whole(error: &dyn std::error::Error) -> String {
    let mut said = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let more = error.to_string();
        if !said.contains(&more) {
            said = format!("{said}: {more}");
        }
        cause = error.source();
    }
    said
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io;

    /// Characters that act on the text around them, and some that do not.
    const EVIL: &str = "a\u{1b}[2J\u{7f}\u{85}\u{9b}m\u{ad}\u{61c}\u{180e}\u{200b}\u{200c}\
                               \u{200f}\u{2028}\u{2029}\u{202e}\u{2060}\u{2066}\u{206f}\u{feff}\
                               \u{fffb}\u{e0041}\u{e007f}\"\\\\uFFFFé🔒\n\ttext";

    fn is_raw(c: char) -> bool {
        c.is_control() || acts(c)
    }

    #[test]
    fn people_are_shown_nothing_that_acts_and_words_as_they_are_written() {
        let shown = clean(EVIL);
        assert!(
            !shown.contains(|c| c != '\u{200c}' && is_raw(c)),
            "{shown:?}"
        );
        for word in ["می\u{200c}خواهم", "é🔒", "👩\u{200d}🚀"] {
            assert_eq!(clean(word), word);
        }
    }

    #[test]
    fn an_error_is_said_with_its_cause_and_no_word_twice() {
        #[derive(Debug, thiserror::Error)]
        #[error("{said}")]
        struct Failed {
            said: &'static str,
            source: io::Error,
        }
        let said = |said| {
            let source = io::Error::other("refused");
            whole(&Failed { said, source })
        };
        assert_eq!(said("connecting"), "connecting: refused");
        assert_eq!(said("connecting was refused"), "connecting was refused");
    }

    #[test]
    fn what_a_parser_says_is_shown_on_one_short_line() {
        let shown = short(&format!("a\n\u{1b}[31m{}", "x".repeat(1_000)));
        assert_eq!(shown.chars().count(), MESSAGE_CHARS_MAX, "cut");
        assert!(!shown.contains(char::is_control), "no control characters");
    }
}
