//! Changes a JSON text at single places, and leaves every other byte as it is: order, indentation, line ends.
//!
//! A text is read twice: by the parser of the hosts' kind, which refuses comments as they do, and by `jsonc-parser`,
//! which says where each value stands. After a change the text is read anew.
//!
//! Nothing is written by `jsonc-parser`: it breaks a line that has more than one member, and drops empty lines.
//!
//! What is put in or taken out is decided in `entries`.

use jsonc_parser::ast::Value as Node;
use jsonc_parser::common::{Range, Ranged};
use jsonc_parser::{CollectOptions, ParseOptions, parse_to_ast};
use serde_json::Value;
use tenure_store::printed::short;

/// The place of a member of an object. Of several with one name the last one counts, as for the hosts.
fn index_of(object: &Node<'_>, key: &str) -> Option<usize> {
    let mut members = object.as_object()?.properties.iter();
    members.rposition(|member| member.name.as_str() == key)
}

/// The value under such a key.
pub(super) fn get<'n, 't>(object: &'n Node<'t>, key: &str) -> Option<&'n Node<'t>> {
    let member = object.as_object()?.properties.get(index_of(object, key)?)?;
    Some(&member.value)
}

/// The values of an array.
pub(super) fn items<'n, 't>(array: &'n Node<'t>) -> &'n [Node<'t>] {
    array.as_array().map_or(&[], |array| &array.elements)
}

/// Where each element of an object or array stands.
fn elements(container: &Node<'_>) -> Vec<Range> {
    match container {
        Node::Object(object) => object.properties.iter().map(Ranged::range).collect(),
        other => items(other).iter().map(Ranged::range).collect(),
    }
}

/// How many elements an object or array has.
pub(super) fn count(container: &Node<'_>) -> usize {
    elements(container).len()
}

/// The text in which another one stands at a place.
fn with(text: &str, start: usize, end: usize, new: &str) -> String {
    let before = text.get(..start).unwrap_or_default();
    let after = text.get(end..).unwrap_or_default();
    [before, new, after].concat()
}

/// Reads a text.
///
/// # Errors
/// - Why it is no JSON.
pub(super) fn read(text: &str) -> Result<(Value, Node<'_>), String> {
    let value: Value = serde_json::from_str(text).map_err(|error| short(&error))?;
    let read = parse_to_ast(text, &CollectOptions::default(), &ParseOptions::default());
    let places = read.map_err(|error| error.to_string())?.value;
    Ok((value, places.ok_or("it has no value")?))
}

/// How a text is laid out.
struct Layout<'a> {
    line_end: &'static str,
    /// An indentation by one level.
    step: &'a str,
}

impl<'a> Layout<'a> {
    fn of(text: &'a str, root: &Node<'_>) -> Self {
        let line_end = if text.contains("\r\n") { "\r\n" } else { "\n" };
        let first = elements(root).into_iter().next();
        let lead = first.and_then(|first| text.get(root.start() + 1..first.start));
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
    root: &Node<'_>,
    container: &Node<'_>,
    key: Option<&str>,
    value: &Value,
) -> String {
    let layout = Layout::of(text, root);
    let keyed = |shown: String| match key {
        Some(key) => format!("{}: {shown}", quoted(key)),
        None => shown,
    };
    let elements = elements(container);
    let (start, end) = (container.start() + 1, container.end().saturating_sub(1));
    if let (Some(first), Some(last)) = (elements.first(), elements.last()) {
        let lead = text.get(start..first.start).unwrap_or_default();
        let new = match lead.rsplit_once('\n') {
            Some((_, indent)) => {
                let shown = keyed(layout.lines(value, indent));
                format!(",{}{indent}{shown}", layout.line_end)
            }
            None => format!(", {}", keyed(one_line(value))),
        };
        return with(text, last.end, last.end, &new);
    }
    let around = indent_at(text, container.start());
    let indent = format!("{around}{}", layout.step);
    let shown = keyed(layout.lines(value, &indent));
    let rest = text.get(start..end).unwrap_or_default();
    let behind = if rest.contains('\n') {
        String::new()
    } else {
        format!("{}{around}", layout.line_end)
    };
    let new = format!("{}{indent}{shown}{behind}", layout.line_end);
    with(text, start, start, &new)
}

/// The blanks at the beginning of the line on which something stands.
fn indent_at(text: &str, at: usize) -> &str {
    let before = text.get(..at).unwrap_or_default();
    let line = before.rsplit_once('\n').map_or(before, |(_, line)| line);
    let blanks = line.len() - line.trim_start_matches([' ', '\t']).len();
    line.get(..blanks).unwrap_or_default()
}

/// Puts another value where one stands.
pub(super) fn replace(text: &str, root: &Node<'_>, old: &Node<'_>, value: &Value) -> String {
    let shown = if old.text(text).contains('\n') {
        Layout::of(text, root).lines(value, indent_at(text, old.start()))
    } else {
        one_line(value)
    };
    with(text, old.start(), old.end(), &shown)
}

/// Takes an element of an object or array out, with the comma and the blanks that belong to it.
pub(super) fn remove(text: &str, container: &Node<'_>, index: usize) -> String {
    let elements = elements(container);
    let before = index.checked_sub(1).and_then(|index| elements.get(index));
    let after = elements.get(index + 1);
    let (start, end) = match (before, elements.get(index), after) {
        (Some(before), Some(one), _) => (before.end, one.end),
        (None, Some(one), Some(after)) => (one.start, after.start),
        _ => (container.start() + 1, container.end().saturating_sub(1)),
    };
    with(text, start, end, "")
}

/// Takes a member of an object out in the same way.
pub(super) fn remove_member(text: &str, object: &Node<'_>, key: &str) -> String {
    remove(text, object, index_of(object, key).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn put(text: &str, key: &str, value: &Value) -> String {
        let (_, root) = read(text).expect("JSON");
        append(text, &root, &root, Some(key), value)
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
                "{\r\n\t\"a\" : [ ]\r\n}",
                "{\r\n\t\"a\" : [ ],\r\n\t\"k\": {\r\n\t\t\"b\": [\r\n\t\t\t{\r\n\t\t\t\t\"c\": 1\r\n\t\t\t}\r\n\t\t],\r\n\t\t\"d\": [\"x\", \"y\"]\r\n\t}\r\n}",
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
            // Empty lines, one line for several members, a comma in front: none of it is laid out anew.
            "{\n\n  \"a\": 1,\n\n  \"b\": 2\n\n}\n",
            "{ \"a\": 1, \"b\" :2\n}",
            "{\"a\":1,\n\"b\":2}",
            "{\n    \"a\": 1\n    ,\"b\": 2 }",
            "{\r\n\t\"a\": 1,\r\n\t\"a\": [ ]\r\n}\r\n",
        ] {
            let after = put(before, "k", &json!([{"n": 1}]));
            let (value, root) = read(&after).expect("JSON");
            assert_eq!(value["k"][0]["n"], 1);
            let index = elements(&root).len() - 1;
            let again = remove(&after, &root, index);
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
        assert_eq!(remove(text, &root, 0), "[ 2 ,3]");
        assert_eq!(remove(text, &root, 1), "[ 1 ,3]");
        assert_eq!(remove(text, &root, 2), "[ 1, 2]");
    }

    #[test]
    fn what_is_no_json_is_refused() {
        for text in ["", "{", "{\"a\":1,}", "// x\n{}", "{} {}", "nul"] {
            assert!(read(text).is_err(), "{text}");
        }
    }
}
