//! Reads YAML of other programs (one document, within bounds that nothing honest comes near), and writes
//! text into YAML.

use serde::de::{Deserialize, DeserializeOwned, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde::{Serialize, Serializer};
use serde_json::Value;
use serde_saphyr::options::{DuplicateKeyPolicy, NonFiniteFloatPolicy};
use std::borrow::Cow;
use std::fmt::{self, Formatter, Write as _};
use tenure_store::printed::{acts, short};

/// The largest text that a caller should hand over, in bytes. The caller looks before.
pub const BYTES_MAX: usize = 1 << 20;

/// Reads one document. Keys that stand twice, and aliases that multiply, are errors.
///
/// # Errors
/// - What is wrong with it, on one line without control characters.
pub fn read<T: DeserializeOwned>(text: &str) -> Result<T, String> {
    read_with(text, DuplicateKeyPolicy::Error)
}

/// Whether the text is one document, within the same bounds, that is a mapping. It may have any keys and
/// values, and a key may stand twice.
pub(crate) fn is_mapping(text: &str) -> bool {
    read_with::<Mapping>(text, DuplicateKeyPolicy::LastWins).is_ok()
}

/// The text without what looks like a tag: a word that begins with `!`. Quotes and blocks are not looked at, so this is for
/// a text that could not be read with its tags, and a value for people may lose such a word.
pub(crate) fn without_tags(text: &str) -> String {
    let is_tag = |word: &str| word.trim_start_matches(['[', '{']).starts_with('!');
    let words = text.split_inclusive([' ', '\t', '\n']);
    words
        .map(|word| {
            if is_tag(word) {
                // What stands around the tag stays.
                let open = word.find('!').unwrap_or(0);
                let end = word.trim_end_matches([' ', '\t', '\r', '\n']).len();
                [word.get(..open), word.get(end..)]
                    .map(Option::unwrap_or_default)
                    .concat()
            } else {
                word.to_owned()
            }
        })
        .collect()
}

/// Any mapping.
struct Mapping;

impl<'de> Deserialize<'de> for Mapping {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        // Asked for a mapping, the library takes nothing at all for an empty one.
        deserializer.deserialize_any(Self)
    }
}

impl<'de> Visitor<'de> for Mapping {
    type Value = Self;

    fn expecting(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        formatter.write_str("a mapping")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self, A::Error> {
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(self)
    }
}

fn read_with<T: DeserializeOwned>(
    text: &str,
    duplicate_keys: DuplicateKeyPolicy,
) -> Result<T, String> {
    let options = serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_events: 100_000,
            max_nodes: 50_000,
            max_depth: 64,
            max_aliases: 1_000,
            max_anchors: 1_000,
            max_recorded_anchor_events: 100_000,
            max_recorded_anchor_bytes: BYTES_MAX,
            max_merge_keys: 10,
            max_documents: 1,
        },
        alias_limits: serde_saphyr::alias_limits! {
            max_total_replayed_events: 10_000,
            max_replay_stack_depth: 8,
        },
        duplicate_keys: duplicate_keys,
        non_finite_float_policy: NonFiniteFloatPolicy::AsString,
        with_snippet: false,
    };
    serde_saphyr::from_str_with_options(text, options).map_err(|error| short(&error))
}

/// A text as the double-quoted scalar that every reader of YAML 1.1 and 1.2 takes for the same
/// string. JSON's own escapes are not enough: YAML 1.1 folds U+0085, U+2028 and U+2029 like line
/// breaks and refuses other characters that JSON leaves bare. Controls, and marks that turn the
/// order of reading, are escaped for the sake of terminals.
pub fn quoted(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for c in text.chars() {
        match c {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            '\n' => quoted.push_str("\\n"),
            '\t' => quoted.push_str("\\t"),
            c if c.is_control() || acts(c) || breaks(c) => push_yaml_escape(&mut quoted, c),
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

/// Writes a character into a double-quoted scalar of YAML by its number.
fn push_yaml_escape(text: &mut String, c: char) {
    // Writing to a `String` cannot fail.
    let _ = match u32::from(c) {
        number @ 0..=0xffff => write!(text, "\\u{number:04X}"),
        number => write!(text, "\\U{number:08X}"),
    };
}

/// What YAML itself cannot have raw, beyond what acts on the text around it.
fn breaks(c: char) -> bool {
    matches!(c, '\u{fffe}' | '\u{ffff}')
}

/// A document as YAML. Characters that act on the text around them are escaped, which is the same to a
/// parser; the rest looks as usual.
///
/// # Errors
/// - The library's words, for a value that it cannot write.
pub fn write(document: &Value) -> Result<String, String> {
    let mut text = String::new();
    write_to(&mut text, &EscapedValue(document))?;
    Ok(text)
}

/// Writes a document as YAML as it is made, a line at a time. Each text of it has to be [`shown`].
///
/// # Errors
/// - The library's words, for a value that it cannot write, or a writer that fails.
pub fn write_to(writer: &mut impl fmt::Write, document: &impl Serialize) -> Result<(), String> {
    let mut lines = Lines {
        writer,
        line: String::new(),
    };
    serde_saphyr::to_fmt_writer(&mut lines, document).map_err(|error| error.to_string())?;
    lines.end().map_err(|error| error.to_string())
}

/// Writes a part of a document for [`write_to`].
///
/// # Errors
/// - What the serializer answers, or a part that is no value of JSON.
pub fn shown<S: Serializer>(part: &impl Serialize, serializer: S) -> Result<S::Ok, S::Error> {
    let value = serde_json::to_value(part).map_err(serde::ser::Error::custom)?;
    EscapedValue(&value).serialize(serializer)
}

/// Escapes what acts in each line once it is whole: a mark may come in pieces.
struct Lines<'a, W> {
    writer: &'a mut W,
    line: String,
}

impl<W: fmt::Write> Lines<'_, W> {
    /// Writes the line that is whole now.
    fn end(&mut self) -> fmt::Result {
        if self.line.contains(MARK_IN_KEY) {
            self.line = self.line.replace(MARK_IN_KEY, "\":");
        }
        if self.line.contains(acts) {
            // All of them stand in double quotes by now, where an escape is the same as the character.
            let mut escaped = String::with_capacity(self.line.len() + 64);
            for c in self.line.chars() {
                if acts(c) {
                    push_yaml_escape(&mut escaped, c);
                } else {
                    escaped.push(c);
                }
            }
            self.line = escaped;
        }
        self.writer.write_str(&self.line)?;
        self.line.clear();
        Ok(())
    }
}

impl<W: fmt::Write> fmt::Write for Lines<'_, W> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for piece in text.split_inclusive('\n') {
            self.line.push_str(piece);
            if piece.ends_with('\n') {
                self.end()?;
            }
        }
        Ok(())
    }
}

/// A character that YAML cannot have raw, so that a key with it is put in double quotes. The library
/// has no other way to ask for that.
const MARK: char = '\u{ffff}';

/// How the mark looks at the end of a key. In a value in double quotes, the quote before the colon
/// would have a backslash of its own.
const MARK_IN_KEY: &str = "\\uFFFF\":";

/// Whether a text has to stand in double quotes: something in it is to be escaped, or could be taken
/// for the mark.
fn wants_quotes(text: &str) -> bool {
    text.contains(acts) || text.contains("\\uFFFF") || text.contains(MARK)
}

/// A value whose texts stand in double quotes where something in them is to be escaped.
struct EscapedValue<'a>(&'a Value);

impl Serialize for EscapedValue<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Value::String(text) if wants_quotes(text) => {
                serde_saphyr::DoubleQuoted(text).serialize(serializer)
            }
            Value::Array(items) => serializer.collect_seq(items.iter().map(EscapedValue)),
            Value::Object(map) => serializer.collect_map(map.iter().map(|(key, value)| {
                let mut key = Cow::Borrowed(key.as_str());
                if wants_quotes(&key) {
                    key.to_mut().push(MARK);
                }
                (key, EscapedValue(value))
            })),
            other => other.serialize(serializer),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::EVIL;
    use serde_json::json;

    #[test]
    fn nothing_in_a_document_acts_and_all_of_it_comes_back() {
        let tricky = "C:\\uFFFF\": x";
        let document = json!({
            "plain": "as it is", "lines": "two\nlines", EVIL: [EVIL, { tricky: tricky }],
            tricky: EVIL, "\u{ffff}": "\u{ffff}", "list": [], "none": null, "number": 1.5,
            "a\u{1b}[31m": "b\u{1b}\nc", "turned\u{202e}": "no mark",
        });
        let text = write(&document).expect("YAML");
        assert!(
            !text.contains(|c: char| acts(c) || (c.is_control() && c != '\n')),
            "{text:?}"
        );
        assert_eq!(read::<Value>(&text), Ok(document), "{text}");
        let plain = json!({ "a": { "b": ["c", 1, true] }, "d": "yes", "e": "x: y" });
        assert_eq!(
            write(&plain),
            serde_saphyr::to_string(&plain).map_err(|error| error.to_string()),
            "the rest is written as ever"
        );
    }

    #[test]
    fn what_is_quoted_comes_back_and_stays_on_one_line() {
        for text in [
            "",
            "yes",
            "~",
            "a: b # c",
            "two\nlines\tand \u{1b}[31m",
            "\u{85}\u{2028}\u{202e}\u{feff}é🔒",
            EVIL,
            "\"quoted\" \\ back",
        ] {
            let yaml = quoted(text);
            assert!(!yaml.contains(char::is_control), "one line: {yaml}");
            assert_eq!(read::<String>(&yaml), Ok(text.to_owned()));
        }
    }

    #[test]
    fn a_mapping_is_one_whatever_its_keys_are_and_however_often_they_stand() {
        for text in [
            "{}",
            "a: 1\n",
            "a: 1\na: 2\n",
            "a: {b: 1, b: 2}\n",
            "1: x\n",
            "[a, b]: x\n",
            "? {a: b}\n: x\n",
        ] {
            assert!(is_mapping(text), "{text}");
        }
        for text in ["", "~", "a", "[a]", "- a\n", "a: [", "a: 1\n---\nb: 1\n"] {
            assert!(!is_mapping(text), "{text}");
        }
    }

    #[test]
    fn what_multiplies_or_stands_twice_is_refused_in_one_short_line() {
        let mut bomb = String::from("a: &a [x, x, x, x, x, x, x, x]\n");
        for (name, of) in [("b", "a"), ("c", "b"), ("d", "c"), ("e", "d"), ("f", "e")] {
            let many = vec![format!("*{of}"); 8].join(", ");
            let _ = writeln!(bomb, "{name}: &{name} [{many}]");
        }
        for text in [&bomb, "a: 1\na: 2\n", "a: 1\n---\na: 2\n", "a: [", "\u{1}"] {
            let error = read::<Value>(text).expect_err(text);
            assert!(error.chars().count() <= 200, "{error}");
            assert!(!error.contains(char::is_control), "{error}");
            let is_internal = ["budget", "breached", " {", "_", "::"]
                .iter()
                .any(|word| error.contains(word));
            assert!(!is_internal, "for the author of the text: {error}");
        }
        let deep = "[".repeat(100) + &"]".repeat(100);
        let wide = format!("[{}]", "x, ".repeat(60_000));
        for (text, said) in [
            ("a: 1\n---\na: 2\n", "there is more than one document"),
            (
                deep.as_str(),
                "it is larger, or nested deeper, than such a document may be",
            ),
            (
                wide.as_str(),
                "it is larger, or nested deeper, than such a document may be",
            ),
        ] {
            assert_eq!(read::<Value>(text).expect_err("refused"), said);
        }
    }
}
