//! How YAML of others is read (one document, within bounds that nothing honest comes near) and how
//! text of ours is written into YAML.

use crate::profile::document::short;
use serde::de::{Deserialize, DeserializeOwned, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_saphyr::options::{DuplicateKeyPolicy, NonFiniteFloatPolicy};
use std::fmt::{Formatter, Write as _};

/// The largest text that should be handed over, in bytes. Whoever reads it looks before.
pub const BYTES_MAX: usize = 1 << 20;

/// Reads one document. Keys that stand twice, and aliases that multiply, are errors.
///
/// # Errors
/// - What is wrong with it, on one line without control characters.
pub fn read<T: DeserializeOwned>(text: &str) -> Result<T, String> {
    read_with(text, DuplicateKeyPolicy::Error)
}

/// Whether the text is one document, within the same bounds, that is a mapping: of whatever keys and
/// values, and also if a key stands twice.
pub(crate) fn is_mapping(text: &str) -> bool {
    read_with::<Mapping>(text, DuplicateKeyPolicy::LastWins).is_ok()
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

    fn expecting(&self, formatter: &mut Formatter<'_>) -> std::fmt::Result {
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
    serde_saphyr::from_str_with_options(text, options).map_err(|error| {
        let message = error.to_string();
        // The library's advice is for whoever calls it, and not for whoever wrote the text.
        let message = message
            .split_once(", set DuplicateKeyPolicy")
            .map_or(message.as_str(), |(fault, _)| fault);
        short(&message)
    })
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
            c if c.is_control() || turns_or_breaks(c) => {
                // All of them stand in the first plane. Writing to a `String` cannot fail.
                let _ = write!(quoted, "\\u{:04X}", u32::from(c));
            }
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

fn turns_or_breaks(c: char) -> bool {
    matches!(
        c,
        '\u{061c}'
            | '\u{200e}'
            | '\u{200f}'
            | '\u{2028}'..='\u{202e}'
            | '\u{2066}'..='\u{2069}'
            | '\u{feff}'
            | '\u{fffe}'
            | '\u{ffff}'
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    #[test]
    fn what_is_quoted_comes_back_and_stays_on_one_line() {
        for text in [
            "",
            "yes",
            "~",
            "a: b # c",
            "two\nlines\tand \u{1b}[31m",
            "\u{85}\u{2028}\u{202e}\u{feff}é🔒",
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
        }
    }
}
