//! Changes a JSON text at single places, and leaves every other byte as it is: order, indentation, line ends,
//! a byte order mark.
//!
//! A text is read twice: by the JSON parser, which says whether it is JSON at all, and by [`read`], which says
//! where each value stands. A change is one [`Edit`]; after it the text is read anew.
//!
//! What is put in or taken out is decided in `entries`.

use serde_json::Value;
use std::ops::Range;

/// A mark that some editors put at the beginning of a text.
const MARK: char = '\u{feff}';

/// A value, and where it stands in the text.
#[derive(Debug, Clone)]
pub(super) struct Node {
    pub(super) span: Range<usize>,
    pub(super) what: What,
}

#[derive(Debug, Clone)]
pub(super) enum What {
    Object(Vec<Member>),
    Array(Vec<Node>),
    /// A string, a number or a word.
    Plain,
}

/// A member of an object.
#[derive(Debug, Clone)]
pub(super) struct Member {
    pub(super) key: String,
    /// From the beginning of the key to the end of the value.
    span: Range<usize>,
    pub(super) value: Node,
}

impl Node {
    /// The value under a key. Of several with one name the last one counts, as for the hosts.
    pub(super) fn member(&self, key: &str) -> Option<&Member> {
        match &self.what {
            What::Object(members) => members.iter().rev().find(|member| member.key == key),
            What::Array(_) | What::Plain => None,
        }
    }

    /// The same without the key.
    pub(super) fn get(&self, key: &str) -> Option<&Self> {
        self.member(key).map(|member| &member.value)
    }

    /// The values of an array.
    pub(super) fn items(&self) -> &[Self] {
        match &self.what {
            What::Array(items) => items,
            What::Object(_) | What::Plain => &[],
        }
    }

    /// Where each element of an object or array stands.
    fn elements(&self) -> Vec<Range<usize>> {
        match &self.what {
            What::Object(members) => members.iter().map(|member| member.span.clone()).collect(),
            What::Array(items) => items.iter().map(|item| item.span.clone()).collect(),
            What::Plain => Vec::new(),
        }
    }
}

/// One change: this part of the text becomes that one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Edit {
    at: Range<usize>,
    text: String,
}

impl Edit {
    /// The text after the change.
    pub(super) fn of(&self, text: &str) -> String {
        let before = text.get(..self.at.start).unwrap_or_default();
        let after = text.get(self.at.end..).unwrap_or_default();
        [before, &self.text, after].concat()
    }
}

/// Reads a text.
///
/// # Errors
/// - Why it is no JSON.
pub(super) fn read(text: &str) -> Result<(Value, Node), String> {
    let begin = if text.starts_with(MARK) {
        MARK.len_utf8()
    } else {
        0
    };
    let body = text.get(begin..).unwrap_or_default();
    let value: Value = serde_json::from_str(body).map_err(|error| error.to_string())?;
    let mut reader = Reader {
        bytes: text.as_bytes(),
        text,
        at: begin,
    };
    // The parser has taken the text, so the reader finds a value wherever one has to be.
    let node = reader.value().ok_or("its parts cannot be told apart")?;
    Ok((value, node))
}

struct Reader<'a> {
    bytes: &'a [u8],
    text: &'a str,
    at: usize,
}

impl Reader<'_> {
    fn peek(&mut self) -> Option<u8> {
        while self.bytes.get(self.at).is_some_and(u8::is_ascii_whitespace) {
            self.at += 1;
        }
        self.bytes.get(self.at).copied()
    }

    /// Goes past a byte if it is the next one.
    fn skip(&mut self, byte: u8) -> bool {
        let is_next = self.peek() == Some(byte);
        self.at += usize::from(is_next);
        is_next
    }

    fn value(&mut self) -> Option<Node> {
        let first = self.peek()?;
        let start = self.at;
        let what = match first {
            b'{' => {
                self.at += 1;
                let mut members = Vec::new();
                while !self.skip(b'}') {
                    self.peek()?;
                    let start = self.at;
                    self.string()?;
                    let key = serde_json::from_str(self.text.get(start..self.at)?).ok()?;
                    self.skip(b':').then_some(())?;
                    let value = self.value()?;
                    members.push(Member {
                        key,
                        span: start..self.at,
                        value,
                    });
                    self.skip(b',');
                }
                What::Object(members)
            }
            b'[' => {
                self.at += 1;
                let mut items = Vec::new();
                while !self.skip(b']') {
                    items.push(self.value()?);
                    self.skip(b',');
                }
                What::Array(items)
            }
            b'"' => {
                self.string()?;
                What::Plain
            }
            _ => {
                let ends = |byte: &u8| b",]} \t\r\n".contains(byte);
                while self.bytes.get(self.at).is_some_and(|byte| !ends(byte)) {
                    self.at += 1;
                }
                // Nothing was read: there is no value here.
                (self.at > start).then_some(())?;
                What::Plain
            }
        };
        Some(Node {
            span: start..self.at,
            what,
        })
    }

    fn string(&mut self) -> Option<()> {
        self.at += 1;
        loop {
            match self.bytes.get(self.at)? {
                b'"' => {
                    self.at += 1;
                    return Some(());
                }
                b'\\' => self.at += 2,
                _ => self.at += 1,
            }
        }
    }
}

/// How a text is laid out.
struct Layout<'a> {
    line_end: &'static str,
    /// One step to the right.
    step: &'a str,
}

impl<'a> Layout<'a> {
    fn of(text: &'a str, root: &Node) -> Self {
        let line_end = if text.contains("\r\n") { "\r\n" } else { "\n" };
        let first = root.elements().first().cloned();
        let lead = first.and_then(|first| text.get(root.span.start + 1..first.start));
        let step = lead.and_then(|lead| Some(lead.rsplit_once('\n')?.1));
        Self {
            line_end,
            step: step.filter(|step| !step.is_empty()).unwrap_or("  "),
        }
    }

    /// A value in several lines, of which all but the first begin with `indent`.
    fn lines(&self, value: &Value, indent: &str) -> String {
        let inner = format!("{indent}{}", self.step);
        let broken = |open: char, close: char, parts: Vec<String>| {
            let between = format!(",{}{inner}", self.line_end);
            let (end, parts) = (self.line_end, parts.join(&between));
            format!("{open}{end}{inner}{parts}{end}{indent}{close}")
        };
        match value {
            // Hosts print a row of short words in one line, as people do.
            Value::Array(items) if items.iter().all(|item| !item.is_object()) => one_line(value),
            Value::Array(items) => {
                let items = items.iter().map(|item| self.lines(item, &inner)).collect();
                broken('[', ']', items)
            }
            Value::Object(members) if !members.is_empty() => {
                let member = |(key, value): (&String, &Value)| {
                    format!("{}: {}", quoted(key), self.lines(value, &inner))
                };
                broken('{', '}', members.iter().map(member).collect())
            }
            other => one_line(other),
        }
    }
}

fn quoted(text: &str) -> String {
    Value::from(text).to_string()
}

/// A value in one line.
fn one_line(value: &Value) -> String {
    match value {
        Value::Array(items) => {
            let items: Vec<_> = items.iter().map(one_line).collect();
            format!("[{}]", items.join(", "))
        }
        Value::Object(members) => {
            let member =
                |(key, value): (&String, &Value)| format!("{}: {}", quoted(key), one_line(value));
            let members: Vec<_> = members.iter().map(member).collect();
            format!("{{{}}}", members.join(", "))
        }
        other => other.to_string(),
    }
}

/// A text of its own with this value.
pub(super) fn text_of(value: &Value) -> String {
    let layout = Layout {
        line_end: "\n",
        step: "  ",
    };
    layout.lines(value, "") + "\n"
}

/// Puts an element behind all others of an object (then with its key) or array.
pub(super) fn append(
    text: &str,
    root: &Node,
    container: &Node,
    key: Option<&str>,
    value: &Value,
) -> Edit {
    let layout = Layout::of(text, root);
    let keyed = |shown: String| match key {
        Some(key) => format!("{}: {shown}", quoted(key)),
        None => shown,
    };
    let elements = container.elements();
    let inside = container.span.start + 1..container.span.end.saturating_sub(1);
    if let (Some(first), Some(last)) = (elements.first(), elements.last()) {
        let lead = text.get(inside.start..first.start).unwrap_or_default();
        let text = match lead.rsplit_once('\n') {
            Some((_, indent)) => {
                let shown = keyed(layout.lines(value, indent));
                format!(",{}{indent}{shown}", layout.line_end)
            }
            None => format!(", {}", keyed(one_line(value))),
        };
        return Edit {
            at: last.end..last.end,
            text,
        };
    }
    let around = indent_at(text, container.span.start);
    let indent = format!("{around}{}", layout.step);
    let shown = keyed(layout.lines(value, &indent));
    let rest = text.get(inside.clone()).unwrap_or_default();
    let end = if rest.contains('\n') {
        String::new()
    } else {
        format!("{}{around}", layout.line_end)
    };
    Edit {
        at: inside.start..inside.start,
        text: format!("{}{indent}{shown}{end}", layout.line_end),
    }
}

/// The blanks at the beginning of the line on which something stands.
fn indent_at(text: &str, at: usize) -> &str {
    let before = text.get(..at).unwrap_or_default();
    let line = before.rsplit_once('\n').map_or(before, |(_, line)| line);
    let line = line.trim_start_matches(MARK);
    let blanks = line.len() - line.trim_start_matches([' ', '\t']).len();
    line.get(..blanks).unwrap_or_default()
}

/// Puts another value where one stands.
pub(super) fn replace(text: &str, root: &Node, old: &Node, value: &Value) -> Edit {
    let layout = Layout::of(text, root);
    let is_broken = text
        .get(old.span.clone())
        .is_some_and(|old| old.contains('\n'));
    let shown = if is_broken {
        layout.lines(value, indent_at(text, old.span.start))
    } else {
        one_line(value)
    };
    Edit {
        at: old.span.clone(),
        text: shown,
    }
}

/// Takes an element of an object or array out, with the comma and the blanks that belong to it.
pub(super) fn remove(container: &Node, index: usize) -> Edit {
    let elements = container.elements();
    let one = elements.get(index).cloned().unwrap_or(0..0);
    let before = index.checked_sub(1).and_then(|index| elements.get(index));
    let at = match (before, elements.get(index + 1)) {
        (Some(before), _) => before.end..one.end,
        (None, Some(after)) => one.start..after.start,
        (None, None) => container.span.start + 1..container.span.end.saturating_sub(1),
    };
    Edit {
        at,
        text: String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn put(text: &str, key: &str, value: &Value) -> String {
        let (_, root) = read(text).expect("JSON");
        append(text, &root, &root, Some(key), value).of(text)
    }

    #[test]
    fn what_is_put_in_looks_like_what_is_there_and_changes_no_other_byte() {
        let value = json!({"b": [{"c": 1}], "d": ["x", "y"]});
        for (before, after) in [
            (
                "{}",
                "{\n  \"k\": {\n    \"b\": [\n      {\n        \"c\": 1\n      }\n    ],\n    \"d\": [\"x\", \"y\"]\n  }\n}",
            ),
            (
                "{\"a\":1}\n",
                "{\"a\":1, \"k\": {\"b\": [{\"c\": 1}], \"d\": [\"x\", \"y\"]}}\n",
            ),
            (
                "\u{feff}{\r\n\t\"a\" : [ ]\r\n}",
                "\u{feff}{\r\n\t\"a\" : [ ],\r\n\t\"k\": {\r\n\t\t\"b\": [\r\n\t\t\t{\r\n\t\t\t\t\"c\": 1\r\n\t\t\t}\r\n\t\t],\r\n\t\t\"d\": [\"x\", \"y\"]\r\n\t}\r\n}",
            ),
        ] {
            assert_eq!(put(before, "k", &value), after);
            read(after).expect("it is JSON");
        }
    }

    #[test]
    fn what_was_put_in_can_be_taken_out_again() {
        for before in [
            "{}",
            "{\n}",
            "{\n    \"a\": \"}]\\\"\",\n    \"b\": [1, {\"x\": null}]\n}\n",
            " {\"a\": 1.5e3 }",
        ] {
            let after = put(before, "k", &json!([{"n": 1}]));
            let (value, root) = read(&after).expect("JSON");
            assert_eq!(value["k"][0]["n"], 1);
            let index = root.elements().len() - 1;
            let again = remove(&root, index).of(&after);
            let plain = |text: &str| read(text).expect("JSON").0;
            assert_eq!(plain(&again), plain(before));
            if before.contains('a') {
                assert_eq!(again, before);
            }
        }
    }

    #[test]
    fn an_element_in_front_goes_with_its_comma() {
        let text = "[ 1, 2 ,3]";
        let (_, root) = read(text).expect("JSON");
        assert_eq!(remove(&root, 0).of(text), "[ 2 ,3]");
        assert_eq!(remove(&root, 1).of(text), "[ 1 ,3]");
        assert_eq!(remove(&root, 2).of(text), "[ 1, 2]");
    }

    #[test]
    fn what_is_no_json_is_refused() {
        for text in ["", "{", "{\"a\":1,}", "// x\n{}", "{} {}", "nul"] {
            assert!(read(text).is_err(), "{text}");
        }
    }
}
