//! The lines of a list as JSON: objects with fields that are known, and unknown ones that a reader skips.
//!
//! The store reads and writes JSON by this file alone, so a light build of the library needs no parser beside it. What a key
//! means is with its object ([`object`]).
//!
//! A line is read as RFC 8259 has it. A key that stands twice, a missing one, a number that does not fit and anything behind
//! the object are errors. A text of an unknown key is skipped without a look at its encoding.

use std::borrow::Cow;

/// How deep a value of an unknown key may be nested.
const DEPTH_MAX: usize = 64;

/// Why a text is not what was asked for, as the end of a sentence.
pub(crate) type Wrong = String;

/// Reads along a text.
pub(crate) struct Cursor<'a> {
    text: &'a [u8],
    at: usize,
}

/// A value that stands behind a key or in a list.
pub(crate) trait Json<'a>: Sized {
    /// Reads it.
    fn read(from: &mut Cursor<'a>) -> Result<Self, Wrong>;

    /// Writes it.
    fn write(&self, to: &mut Vec<u8>);
}

/// Reads the one value of a text.
pub(crate) fn read<'a, T: Json<'a>>(text: &'a [u8]) -> Result<T, Wrong> {
    let mut from = Cursor { text, at: 0 };
    let value = T::read(&mut from)?;
    match from.peek() {
        None => Ok(value),
        Some(_) => Err(from.expected("the end of the line")),
    }
}

/// Names the fields of an object in the order in which they are written. `must` marks a field that is always there; any other is
/// left out where it has the value of [`Default`].
macro_rules! object {
    ($Object:ty: $($field:ident $key:literal $($must:ident)?),* $(,)?) => {
        impl<'a> $crate::codec::json::Json<'a> for $Object {
            fn read(from: &mut $crate::codec::json::Cursor<'a>) -> Result<Self, $crate::codec::json::Wrong> {
                $(let mut $field = None;)*
                from.object(|key, from| match key {
                    $($key => from.once($key, &mut $field),)*
                    _ => from.skip(0),
                })?;
                Ok(Self { $($field: object!(@found $field $key $($must)?),)* })
            }

            fn write(&self, to: &mut Vec<u8>) {
                to.push(b'{');
                let begin = to.len();
                $(object!(@put self.$field, $key, to, begin $(, $must)?);)*
                to.push(b'}');
            }
        }
    };
    (@found $field:ident $key:literal must) => {
        $field.ok_or_else(|| format!("missing field `{}`", $key))?
    };
    (@found $field:ident $key:literal) => { $field.unwrap_or_default() };
    (@put $value:expr, $key:literal, $to:ident, $begin:ident, must) => {
        $crate::codec::json::put(concat!("\"", $key, "\":"), &$value, $to, $begin);
    };
    (@put $value:expr, $key:literal, $to:ident, $begin:ident) => {
        if !$crate::codec::json::is_usual(&$value) {
            object!(@put $value, $key, $to, $begin, must);
        }
    };
}
pub(crate) use object;

/// Whether a field need not be written.
pub(crate) fn is_usual<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// Writes a field of an object that begins at `begin`.
pub(crate) fn put<'a>(key: &str, value: &impl Json<'a>, to: &mut Vec<u8>, begin: usize) {
    if to.len() > begin {
        to.push(b',');
    }
    to.extend_from_slice(key.as_bytes());
    value.write(to);
}

impl<'a> Cursor<'a> {
    /// The next byte that is no space.
    fn peek(&mut self) -> Option<u8> {
        while let Some(b' ' | b'\t' | b'\r' | b'\n') = self.text.get(self.at) {
            self.at += 1;
        }
        self.text.get(self.at).copied()
    }

    fn expected(&self, what: &str) -> Wrong {
        match self.text.get(self.at) {
            None => format!("the text ends where {what} is expected"),
            Some(_) => format!("expected {what} at column {}", self.at + 1),
        }
    }

    /// Goes past this byte, if it comes next.
    fn passes(&mut self, byte: u8) -> bool {
        let is_next = self.peek() == Some(byte);
        self.at += usize::from(is_next);
        is_next
    }

    fn must(&mut self, byte: u8) -> Result<(), Wrong> {
        if self.passes(byte) {
            return Ok(());
        }
        Err(self.expected(&format!("`{}`", char::from(byte))))
    }

    /// Goes past this word, if it comes next.
    fn word(&mut self, word: &str) -> bool {
        self.peek();
        let rest = self.text.get(self.at..).unwrap_or_default();
        let is_next = rest.starts_with(word.as_bytes());
        self.at += if is_next { word.len() } else { 0 };
        is_next
    }

    /// Goes through what stands between two brackets, apart by commas.
    fn between(
        &mut self,
        (open, close): (u8, u8),
        mut each: impl FnMut(&mut Self) -> Result<(), Wrong>,
    ) -> Result<(), Wrong> {
        self.must(open)?;
        if self.passes(close) {
            return Ok(());
        }
        loop {
            each(self)?;
            if self.passes(close) {
                return Ok(());
            }
            self.must(b',')?;
        }
    }

    /// Goes through the fields of an object. `each` reads the value.
    pub(crate) fn object(
        &mut self,
        mut each: impl FnMut(&str, &mut Self) -> Result<(), Wrong>,
    ) -> Result<(), Wrong> {
        self.between((b'{', b'}'), |from| {
            let key = from.text()?;
            from.must(b':')?;
            each(&key, from)
        })
    }

    /// Reads a field that may stand there once.
    pub(crate) fn once<T: Json<'a>>(
        &mut self,
        key: &str,
        field: &mut Option<T>,
    ) -> Result<(), Wrong> {
        let value = T::read(self)?;
        if field.replace(value).is_some() {
            return Err(format!("duplicate field `{key}`"));
        }
        Ok(())
    }

    /// Goes past a value of any kind.
    pub(crate) fn skip(&mut self, depth: usize) -> Result<(), Wrong> {
        match self.peek() {
            _ if depth > DEPTH_MAX => Err("it is nested too deep".to_owned()),
            Some(b'{') => self.between((b'{', b'}'), |from| {
                from.raw_text()?;
                from.must(b':')?;
                from.skip(depth + 1)
            }),
            Some(b'[') => self.between((b'[', b']'), |from| from.skip(depth + 1)),
            Some(b'"') => self.raw_text().map(drop),
            Some(b'-' | b'0'..=b'9') => self.any_number(),
            _ if self.word("true") || self.word("false") || self.word("null") => Ok(()),
            _ => Err(self.expected("a value")),
        }
    }

    /// The digits that come next, at least one.
    fn digits(&mut self) -> Result<&'a [u8], Wrong> {
        let rest = self.text.get(self.at..).unwrap_or_default();
        let length = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let digits = rest.get(..length).unwrap_or_default();
        if digits.is_empty() {
            return Err(self.expected("a whole number"));
        }
        self.at += length;
        Ok(digits)
    }

    /// The digits before the point of a number: no writer begins with a 0 that has others behind it.
    fn whole(&mut self) -> Result<&'a [u8], Wrong> {
        let begin = self.at;
        let digits = self.digits()?;
        if let [b'0', _, ..] = digits {
            self.at = begin;
            return Err(self.expected("a whole number"));
        }
        Ok(digits)
    }

    fn any_number(&mut self) -> Result<(), Wrong> {
        self.passes(b'-');
        self.whole()?;
        if self.text.get(self.at) == Some(&b'.') {
            self.at += 1;
            self.digits()?;
        }
        if let Some(b'e' | b'E') = self.text.get(self.at) {
            self.at += 1;
            if let Some(b'+' | b'-') = self.text.get(self.at) {
                self.at += 1;
            }
            self.digits()?;
        }
        Ok(())
    }

    /// The bytes between two quotes, with their escapes, and whether there are any.
    fn raw_text(&mut self) -> Result<(&'a [u8], bool), Wrong> {
        if !self.passes(b'"') {
            return Err(self.expected("a text"));
        }
        let (begin, mut is_escaped) = (self.at, false);
        while let Some(byte) = self.text.get(self.at) {
            match byte {
                b'"' => {
                    let text = self.text.get(begin..self.at).unwrap_or_default();
                    self.at += 1;
                    return Ok((text, is_escaped));
                }
                b'\\' => {
                    is_escaped = true;
                    self.at += 1;
                    match self.text.get(self.at) {
                        Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => {}
                        Some(b'u') if hex(self.text, self.at + 1).is_some() => self.at += 4,
                        _ => return Err(self.expected("an escape")),
                    }
                }
                0..0x20 => return Err(self.expected("no control character")),
                _ => {}
            }
            self.at += 1;
        }
        Err(self.expected("the end of a text"))
    }

    fn text(&mut self) -> Result<Cow<'a, str>, Wrong> {
        let (raw, is_escaped) = self.raw_text()?;
        let raw = std::str::from_utf8(raw).map_err(|_| "it is not UTF-8".to_owned())?;
        if !is_escaped {
            return Ok(Cow::Borrowed(raw));
        }
        let alone = || "half of a character stands alone in a text".to_owned();
        unescaped(raw).map(Cow::Owned).ok_or_else(alone)
    }
}

/// The number that four hexadecimal digits are.
fn hex(text: &[u8], at: usize) -> Option<u32> {
    let digits = text.get(at..at + 4)?;
    digits.iter().try_fold(0, |sum, digit| {
        Some(sum * 16 + char::from(*digit).to_digit(16)?)
    })
}

/// A text without its escapes, each of which is whole; `None` if one is half of a character.
fn unescaped(raw: &str) -> Option<String> {
    let mut text = String::with_capacity(raw.len());
    let mut rest = raw;
    while let Some((before, behind)) = rest.split_once('\\') {
        text.push_str(before);
        let mut length = 1;
        text.push(match behind.as_bytes().first()? {
            b'b' => '\u{8}',
            b'f' => '\u{c}',
            b'n' => '\n',
            b'r' => '\r',
            b't' => '\t',
            b'u' => {
                let unit = hex(behind.as_bytes(), 1)?;
                length = 5;
                if let (0xd800..0xdc00, Some(b"\\u")) = (unit, behind.as_bytes().get(5..7)) {
                    let low = hex(behind.as_bytes(), 7)?.checked_sub(0xdc00)?;
                    length = 11;
                    let is_half = low < 0x400;
                    is_half.then(|| char::from_u32(0x10000 + ((unit - 0xd800) << 10) + low))??
                } else {
                    char::from_u32(unit)?
                }
            }
            other => char::from(*other),
        });
        rest = behind.get(length..)?;
    }
    text.push_str(rest);
    Some(text)
}

/// A whole number that fits.
macro_rules! number {
    ($($Number:ty)*) => {$(
        impl Json<'_> for $Number {
            fn read(from: &mut Cursor<'_>) -> Result<Self, Wrong> {
                from.peek();
                let digits = from.whole()?;
                let number = digits.iter().try_fold(0, |sum: Self, digit| {
                    sum.checked_mul(10)?.checked_add(Self::from(digit - b'0'))
                });
                // A fraction or an exponent is nothing that may stand behind a value.
                number.ok_or_else(|| "a number is too large".to_owned())
            }

            fn write(&self, to: &mut Vec<u8>) {
                to.extend_from_slice(self.to_string().as_bytes());
            }
        }
    )*};
}
number! { u8 u32 u64 usize }

impl Json<'_> for bool {
    fn read(from: &mut Cursor<'_>) -> Result<Self, Wrong> {
        if from.word("true") {
            Ok(true)
        } else if from.word("false") {
            Ok(false)
        } else {
            Err(from.expected("true or false"))
        }
    }

    fn write(&self, to: &mut Vec<u8>) {
        to.extend_from_slice(if *self { b"true" } else { b"false" });
    }
}

impl<'a> Json<'a> for Cow<'a, str> {
    fn read(from: &mut Cursor<'a>) -> Result<Self, Wrong> {
        from.text()
    }

    fn write(&self, to: &mut Vec<u8>) {
        to.push(b'"');
        let mut rest = self.as_bytes();
        let is_escaped = |byte: &u8| matches!(byte, b'"' | b'\\' | 0..0x20);
        while let Some(at) = rest.iter().position(is_escaped) {
            let (before, behind) = rest.split_at(at);
            to.extend_from_slice(before);
            let Some((byte, behind)) = behind.split_first() else {
                break;
            };
            let short = match byte {
                b'"' => b'"',
                b'\\' => b'\\',
                0x8 => b'b',
                0xc => b'f',
                b'\n' => b'n',
                b'\r' => b'r',
                b'\t' => b't',
                _ => 0,
            };
            match short {
                0 => to.extend_from_slice(format!("\\u{byte:04x}").as_bytes()),
                short => to.extend_from_slice(&[b'\\', short]),
            }
            rest = behind;
        }
        to.extend_from_slice(rest);
        to.push(b'"');
    }
}

/// What may be missing. `null` is the same.
impl<'a, T: Json<'a>> Json<'a> for Option<T> {
    fn read(from: &mut Cursor<'a>) -> Result<Self, Wrong> {
        if from.word("null") {
            return Ok(None);
        }
        T::read(from).map(Some)
    }

    fn write(&self, to: &mut Vec<u8>) {
        match self {
            Some(value) => value.write(to),
            None => to.extend_from_slice(b"null"),
        }
    }
}

impl<'a, T: Json<'a>> Json<'a> for Vec<T> {
    fn read(from: &mut Cursor<'a>) -> Result<Self, Wrong> {
        let mut items = Self::new();
        from.between((b'[', b']'), |from| {
            items.push(T::read(from)?);
            Ok(())
        })?;
        Ok(items)
    }

    fn write(&self, to: &mut Vec<u8>) {
        to.push(b'[');
        for (index, item) in self.iter().enumerate() {
            if index > 0 {
                to.push(b',');
            }
            item.write(to);
        }
        to.push(b']');
    }
}

/// A list of so many values, each of its own kind.
macro_rules! tuple {
    ($first:ident $($rest:ident)*) => {
        impl<'a, $first: Json<'a>, $($rest: Json<'a>),*> Json<'a> for ($first, $($rest),*) {
            #[allow(non_snake_case, reason = "a value is called as its type")]
            fn read(from: &mut Cursor<'a>) -> Result<Self, Wrong> {
                from.must(b'[')?;
                let $first = $first::read(from)?;
                $(
                    from.must(b',')?;
                    let $rest = $rest::read(from)?;
                )*
                from.must(b']')?;
                Ok(($first, $($rest),*))
            }

            #[allow(non_snake_case, reason = "a value is called as its type")]
            fn write(&self, to: &mut Vec<u8>) {
                let ($first, $($rest),*) = self;
                to.push(b'[');
                $first.write(to);
                $(
                    to.push(b',');
                    $rest.write(to);
                )*
                to.push(b']');
            }
        }
    };
}
tuple! { A B }
tuple! { A B C D E F }

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, PartialEq)]
    struct Line<'a> {
        number: u64,
        text: Cow<'a, str>,
        list: Vec<(Cow<'a, str>, u32)>,
        flag: bool,
        perhaps: Option<usize>,
    }

    object! {
        Line<'a>:
        number "number" must,
        text "text",
        list "list",
        flag "flag",
        perhaps "perhaps",
    }

    /// The parser of serde says of the same text whether it is an object at all.
    #[test]
    fn what_is_read_is_json_and_what_is_no_json_is_refused() {
        let whole = "{\"number\":18446744073709551615,\"text\":\"a\\\"\\\\\\/\\n\\u00e9\\ud83d\\udd12é🔒\",\"list\":[[\"x\",7],[\"\",0]],\
                     \"later\":{\"deep\":[1,-2.5e+3,null,true,{}],\"t\":\"\\u0041\"},\"flag\":true,\"perhaps\":null}";
        let read_line = |text: &[u8]| read::<Line<'_>>(text).is_ok();
        assert!(read_line(whole.as_bytes()));
        // Each byte left out, doubled, and replaced by what means something.
        for at in 0..whole.len() {
            let (before, rest) = whole.as_bytes().split_at(at);
            let behind = &rest[1..];
            let mut texts = vec![[before, behind].concat(), before.to_vec()];
            for byte in b"\"\\{}[],:0-e.tn \x01\xff" {
                texts.push([before, &[*byte], behind].concat());
                texts.push([before, &[*byte], rest].concat());
            }
            for text in texts {
                let theirs = serde_json::from_slice::<serde_json::Value>(&text);
                if read_line(&text) {
                    // A text of an unknown key is skipped, whatever its encoding is.
                    let is_json = theirs.is_ok_and(|value| value.is_object());
                    let skipped = std::str::from_utf8(&text).is_err();
                    assert!(is_json || skipped, "{}", String::from_utf8_lossy(&text));
                }
            }
        }
    }

    #[test]
    fn what_is_written_is_what_serde_writes_and_comes_back() {
        let text: String = (0..0x300_u32)
            .filter_map(char::from_u32)
            .chain(['🔒'])
            .collect();
        let line = Line {
            number: u64::MAX,
            text: text.clone().into(),
            list: vec![("a".into(), 0), ("b".into(), u32::MAX)],
            flag: false,
            perhaps: Some(0),
        };
        let mut written = Vec::new();
        line.write(&mut written);
        let same = format!(
            "{{\"number\":{},\"text\":{},\"list\":[[\"a\",0],[\"b\",{}]],\"perhaps\":0}}",
            u64::MAX,
            serde_json::to_string(&text).expect("a text"),
            u32::MAX
        );
        assert_eq!(String::from_utf8(written.clone()).as_deref(), Ok(&*same));
        assert_eq!(read::<Line<'_>>(&written), Ok(line));
    }

    #[test]
    fn what_is_missing_doubled_or_too_large_is_said() {
        for (text, said) in [
            ("{}", "missing field `number`"),
            ("{\"number\":1,\"number\":1}", "duplicate field `number`"),
            ("{\"number\":18446744073709551616}", "a number is too large"),
            ("{\"number\":01}", "expected a whole number at column 11"),
            ("{\"number\":1.5}", "expected `,` at column 12"),
            ("{\"number\":-1}", "expected a whole number at column 11"),
            (
                "{\"number\":1} x",
                "expected the end of the line at column 14",
            ),
            ("{\"number\":1", "the text ends where `,` is expected"),
            (
                "{\"number\":1,\"text\":\"\\ud800\"}",
                "half of a character stands alone in a text",
            ),
        ] {
            let wrong = read::<Line<'_>>(text.as_bytes()).err();
            assert_eq!(wrong.as_deref(), Some(said), "{text}");
        }
        let deep = format!("{{\"number\":1,\"later\":{}}}", "[".repeat(10_000));
        assert!(read::<Line<'_>>(deep.as_bytes()).is_err());
    }
}
