//! Documents for programs: JSON on one line.

use super::acts;
use crate::gathered::Gathered;
use serde::Serialize;
use serde_json::ser::{CompactFormatter, Formatter, Serializer};
use std::io;

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
