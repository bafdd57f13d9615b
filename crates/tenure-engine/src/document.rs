//! Documents for programs: JSON on one line.

use crate::gathered::Gathered;
use serde::Serialize;
use serde_json::ser::{CompactFormatter, Formatter, Serializer};
use std::io;
use tenure_store::printed::acts;

/// A document as one line of JSON, without its end. Characters that act on the text around them are written
/// as `\uXXXX`, which is the same to a parser. Empty if the document cannot be written as JSON.
pub fn json_line(document: &impl Serialize) -> String {
    let mut line = Gathered::default();
    match write_json(&mut line, document) {
        Ok(()) => String::from_utf8(line.into_bytes()).unwrap_or_default(),
        Err(_) => String::new(),
    }
}

/// Writes a document as one line of JSON, as the document is made.
///
/// # Errors
/// - What the writer answers, or what a part of the document cannot be written for.
pub fn write_json(writer: impl io::Write, document: &impl Serialize) -> serde_json::Result<()> {
    document.serialize(&mut Serializer::with_formatter(writer, Escaping))
}

/// Compact, with everything escaped that acts.
struct Escaping;

impl Formatter for Escaping {
    fn write_string_fragment<W: ?Sized + io::Write>(
        &mut self,
        writer: &mut W,
        fragment: &str,
    ) -> io::Result<()> {
        let mut rest = fragment;
        // Most of them are of characters that act on nothing.
        if fragment.is_ascii() && !fragment.contains('\x7f') {
            return CompactFormatter.write_string_fragment(writer, fragment);
        }
        while let Some((at, found)) = rest.char_indices().find(|(_, c)| acts(*c)) {
            let (plain, tail) = rest.split_at(at);
            CompactFormatter.write_string_fragment(writer, plain)?;
            for unit in found.encode_utf16(&mut [0; 2]) {
                write!(writer, "\\u{unit:04x}")?;
            }
            rest = tail.get(found.len_utf8()..).unwrap_or_default();
        }
        CompactFormatter.write_string_fragment(writer, rest)
    }
}

/// Characters that act on the text around them, and some that do not.
#[cfg(test)]
pub(crate) const EVIL: &str = "a\u{1b}[2J\u{7f}\u{85}\u{9b}m\u{ad}\u{61c}\u{180e}\u{200b}\u{200c}\
                               \u{200f}\u{2028}\u{2029}\u{202e}\u{2060}\u{2066}\u{206f}\u{feff}\
                               \u{fffb}\u{e0041}\u{e007f}\"\\\\uFFFFé🔒\n\ttext";

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};
    use tenure_store::printed::{for_its_author, short};

    #[derive(Debug, serde::Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Part {
        _count: std::num::NonZeroU32,
        _next: Option<Box<Part>>,
    }

    #[derive(Debug, serde::Deserialize)]
    struct Parts {
        _all: std::collections::BTreeMap<String, Part>,
        _at: Option<std::path::PathBuf>,
        _number: Option<u64>,
    }

    /// Whoever wrote the text knows neither the types of this program nor the settings of its parsers.
    #[test]
    fn a_parsers_message_names_no_type_and_no_setting() {
        let unread = io::read_to_string(&b"\xff"[..]).expect_err("no text");
        assert_eq!(short(&unread), "it is not UTF-8");
        let json = [
            "",
            "{",
            "[]",
            "3",
            "[3, 4, 5]",
            r#"{"_all": {"a": 3}}"#,
            r#"{"_all": {"a": {"_count": 0}}}"#,
            r#"{"_all": {"a": {"_count": -1}}}"#,
            r#"{"_all": {"a": []}}"#,
            r#"{"_all": {}, "_at": 3}"#,
            r#"{"_all": {}, "_number": "x"}"#,
            &"[".repeat(300),
        ];
        let json = json.map(|text| {
            (
                text.to_owned(),
                serde_json::from_str::<Parts>(text)
                    .err()
                    .map(|error| short(&error)),
            )
        });
        let toml = [
            "_all = 3",
            "[_all]\na = 3",
            "[_all]\na = []",
            "[_all.a]\n_count = 0",
            "[_all.a]\n_count = 99999999999999999999",
            "_all = {}\n_at = 3",
            "_all = {}\n_number = \"x\"",
            &format!("x = {}1", "[".repeat(300)),
        ];
        let toml = toml.map(|text| {
            (
                text.to_owned(),
                toml::from_str::<Parts>(text)
                    .err()
                    .map(|error| for_its_author(error.message())),
            )
        });
        let yaml = [
            "a",
            "_all: 3",
            "_all: {a: 3}",
            "_all: {a: {_count: 0}}",
            "a: &x [*x]",
            "_all: {}\n_at: [1]",
            "_all: {}\n_number: x",
        ];
        let yaml = yaml.map(|text| (text.to_owned(), crate::yaml::read::<Parts>(text).err()));
        for (text, said) in json.into_iter().chain(toml).chain(yaml) {
            let said = said.expect(&text);
            let own = [
                "struct",
                "elements",
                "u32",
                "u64",
                "i128",
                "EOF",
                "recurs",
                "path string",
                "wanted",
                "budget",
                "Part",
            ];
            let own: Vec<_> = own.iter().filter(|word| said.contains(**word)).collect();
            assert!(
                own.is_empty() && !said.is_empty(),
                "{text}: {own:?} in {said}"
            );
        }
    }

    fn is_raw(c: char) -> bool {
        c.is_control() || acts(c)
    }

    #[test]
    fn no_character_that_acts_is_raw_in_json_and_all_of_them_come_back() {
        let document = json!({ EVIL: [EVIL, { "plain": 1 }] });
        let line = json_line(&document);
        assert!(!line.contains(is_raw), "{line:?}");
        let parsed: Value = serde_json::from_str(&line).expect("JSON");
        assert_eq!(parsed, document);
        assert_eq!(json_line(&json!({"é": "🔒 / \\"})), r#"{"é":"🔒 / \\"}"#);
    }
}
