//! A line of bash up to the cursor, cut into words, and words quoted to continue it.
//!
//! bash hands its completions a line that is cut at `=` and `:` too, with all quotes in it. So this module
//! reads the line itself, by the few rules that words follow. It expands nothing: a line that the user has
//! not entered must do nothing.

use std::fmt::Write;

/// The quotes that are open at the cursor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Quotes {
    No,
    Single,
    Double,
}

/// A word, and where it begins in the line, in characters.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
struct PlacedWord {
    begins: usize,
    word: String,
}

/// The line.
#[derive(Debug)]
pub(super) struct ShellLine {
    parts: Vec<PlacedWord>,
    quotes: Quotes,
    characters: usize,
}

impl ShellLine {
    pub(super) fn read(text: &str) -> Self {
        let mut parts = Vec::new();
        let mut part: Option<PlacedWord> = None;
        let mut quotes = Quotes::No;
        let mut characters = text.chars().enumerate().peekable();
        while let Some((index, character)) = characters.next() {
            if quotes == Quotes::No && character.is_ascii_whitespace() {
                parts.extend(part.take());
                continue;
            }
            let word = &mut part
                .get_or_insert_with(|| PlacedWord {
                    begins: index,
                    word: String::new(),
                })
                .word;
            match (quotes, character) {
                (Quotes::No, '\'') => quotes = Quotes::Single,
                (Quotes::No, '"') => quotes = Quotes::Double,
                (Quotes::Single, '\'') | (Quotes::Double, '"') => quotes = Quotes::No,
                (Quotes::No, '\\') => word.extend(characters.next().map(|(_, next)| next)),
                (Quotes::Double, '\\') => {
                    let escaped = characters.next_if(|(_, next)| "\\\"$`".contains(*next));
                    word.push(escaped.map_or('\\', |(_, next)| next));
                }
                (Quotes::No | Quotes::Single | Quotes::Double, other) => word.push(other),
            }
        }
        let length = text.chars().count();
        // A word stands at the cursor even if nothing of it was typed.
        parts.push(part.unwrap_or_else(|| PlacedWord {
            begins: length,
            word: String::new(),
        }));
        Self {
            parts,
            quotes,
            characters: length,
        }
    }

    pub(super) fn words(&self) -> Vec<String> {
        self.parts.iter().map(|part| part.word.clone()).collect()
    }

    /// Where a word begins, in characters.
    pub(super) fn begins(&self, index: usize) -> usize {
        self.parts
            .get(index)
            .map_or(self.characters, |part| part.begins)
    }

    /// The rest of the word at the cursor, quoted so that bash reads exactly these characters.
    pub(super) fn quoted(&self, rest: &str) -> String {
        let mut text = String::with_capacity(rest.len());
        for character in rest.chars() {
            match self.quotes {
                // The quotes have to be closed for that.
                Quotes::Single if character == '\'' => text.push_str("'\\''"),
                // `!` would call the history, and a backslash before it would stay in the word.
                Quotes::Double if character == '!' => text.push_str("\"'!'\""),
                Quotes::Double if "\\\"$`".contains(character) => {
                    let _ = write!(text, "\\{character}");
                }
                Quotes::Single | Quotes::Double => text.push(character),
                Quotes::No if is_plain(character) => text.push(character),
                Quotes::No => {
                    let _ = write!(text, "\\{character}");
                }
            }
        }
        // bash takes quotes for closed if the text ends with one, and then does not close them.
        match (self.quotes, rest.chars().next_back()) {
            (Quotes::Single, Some('\'')) => text.push('\''),
            (Quotes::Double, Some('"')) => text.push('"'),
            (Quotes::No | Quotes::Single | Quotes::Double, _) => {}
        }
        text
    }
}

/// Whether a character has no special meaning to bash, anywhere in a word.
fn is_plain(character: char) -> bool {
    character.is_alphanumeric() || "-_./=:@%+,".contains(character)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_cut_as_bash_cuts_it() {
        for (text, words) in [
            ("", &[""][..]),
            ("tenure ", &["tenure", ""]),
            ("tenure  run\tx", &["tenure", "run", "x"]),
            ("tenure --dir=a:b c", &["tenure", "--dir=a:b", "c"]),
            (r"t my\ lock", &["t", "my lock"]),
            (r#"t 'a b'"c d"e "#, &["t", "a bc de", ""]),
            (r#"t "a\$b\c\"d" '\x'"#, &["t", r#"a$b\c"d"#, r"\x"]),
            (r#"t "open wor"#, &["t", "open wor"]),
            ("t 'open $(x)", &["t", "open $(x)"]),
            (r"t x\", &["t", "x"]),
            ("t ''", &["t", ""]),
        ] {
            assert_eq!(ShellLine::read(text).words(), words, "{text}");
        }
        let line = ShellLine::read("tenure run 'ä b' -- ls ");
        assert_eq!((line.begins(2), line.begins(4)), (11, 20));
        assert_eq!(line.begins(5), 23);
    }

    /// bash reads the line and the offered rest of it as the word that was meant.
    #[cfg(unix)]
    #[test]
    fn bash_reads_what_is_quoted_as_it_was_meant() {
        let hostile = "a b'c\"d$(echo x)`y`\\z!;&|<>*?[]{}~#^ä=:%";
        assert_eq!(ShellLine::read("x 'a").quoted("b'"), r"b'\'''");
        assert_eq!(ShellLine::read("x \"a").quoted("b\""), r#"b\"""#);
        for typed in ["", "a", "'", "'a", "\"", "\"a", "'q'\"a", r"\ "] {
            let line = ShellLine::read(&format!("echo {typed}"));
            let close = match line.quotes {
                Quotes::No => "",
                Quotes::Single => "'",
                Quotes::Double => "\"",
            };
            let script = format!("printf %s {typed}{}{close}", line.quoted(hostile));
            let bash = std::process::Command::new("bash")
                .args(["--norc", "-c", &script])
                .output()
                .expect("bash");
            let before = line.words().pop().unwrap_or_default();
            let said = String::from_utf8_lossy(&bash.stdout).into_owned();
            assert_eq!(said, format!("{before}{hostile}"), "{script}");
        }
    }
}
