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
use serde_json::{Value, json};
use tenure_store::printed::short;

/// A step from a value to one within it.
#[derive(Debug, Clone, Copy)]
pub(super) enum Key<'k> {
    Name(&'k str),
    Place(usize),
    /// The place behind all elements of an array.
    End,
}

/// The elements of an array. Whatever else stands there has none.
pub(super) fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// The place of a member of an object. Of several with one name the last one counts, as for the hosts.
fn index_of(object: &Node<'_>, key: &str) -> Option<usize> {
    let mut members = object.as_object()?.properties.iter();
    members.rposition(|member| member.name.as_str() == key)
}

/// The place of what stands under a key, among the elements of its container.
fn place_of(container: &Node<'_>, key: Key<'_>) -> Option<usize> {
    match key {
        Key::Name(name) => index_of(container, name),
        Key::Place(place) => Some(place),
        Key::End => None,
    }
}

fn get<'n, 't>(container: &'n Node<'t>, key: Key<'_>) -> Option<&'n Node<'t>> {
    let place = place_of(container, key)?;
    match (container, key) {
        (Node::Object(object), Key::Name(_)) => Some(&object.properties.get(place)?.value),
        (Node::Array(array), Key::Place(_)) => array.elements.get(place),
        _ => None,
    }
}

/// Where each element of an object or array stands.
fn elements(container: &Node<'_>) -> Vec<Range> {
    match container {
        Node::Object(object) => object.properties.iter().map(Ranged::range).collect(),
        Node::Array(array) => array.elements.iter().map(Ranged::range).collect(),
        _ => Vec::new(),
    }
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
/// - Why it is no JSON, as the end of a sentence.
pub(super) fn read(text: &str) -> Result<(Value, Node<'_>), String> {
    let no_json = |why| format!("it is no JSON: {why}");
    let value: Value = serde_json::from_str(text).map_err(|error| no_json(short(&error)))?;
    let read = parse_to_ast(text, &CollectOptions::default(), &ParseOptions::default());
    let places = read.map_err(|error| no_json(error.to_string()))?.value;
    Ok((
        value,
        places.ok_or_else(|| no_json("it has no value".to_owned()))?,
    ))
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

/// Has a value stand at a place. What is missing on the way is made.
///
/// # Errors
/// - What stands on the way, as the end of a sentence.
pub(super) fn set(text: &str, path: &[Key<'_>], value: &Value) -> Result<String, String> {
    let (_, root) = read(text)?;
    let (mut at, mut rest) = (&root, path);
    while let Some((key, below)) = rest.split_first() {
        let Some(there) = get(at, *key) else { break };
        (at, rest) = (there, below);
    }
    let Some((key, missing)) = rest.split_first() else {
        let is_there = serde_json::from_str(at.text(text)).ok().as_ref() == Some(value);
        return Ok(if is_there {
            text.to_owned()
        } else {
            replace(text, &root, at, value)
        });
    };
    let value = missing
        .iter()
        .rfold(value.clone(), |value, key| match *key {
            Key::Name(name) => json!({ name: value }),
            Key::Place(_) | Key::End => json!([value]),
        });
    let way = path.iter().take(path.len() - rest.len());
    let names = way.map(|key| match key {
        Key::Name(name) => name,
        Key::Place(_) | Key::End => "",
    });
    let shown = || names.collect::<Vec<_>>().join(".");
    match (key, at) {
        (Key::Name(name), Node::Object(_)) => Ok(append(text, &root, at, Some(name), &value)),
        (Key::Name(_), _) => Err(format!("its `{}` are no object", shown())),
        (_, Node::Array(_)) => Ok(append(text, &root, at, None, &value)),
        (_, _) => Err(format!("its `{}` is no array", shown())),
    }
}

/// Takes out what stands at a place, and what is left empty around it. `None` if nothing is there.
pub(super) fn take_out(text: &str, path: &[Key<'_>]) -> Result<Option<String>, String> {
    let (_, root) = read(text)?;
    // The innermost container that has more than what goes, or the root.
    let (mut at, mut from) = (&root, None);
    for (depth, key) in path.iter().enumerate() {
        if depth == 0 || elements(at).len() > 1 {
            from = place_of(at, *key).map(|place| (at, place));
        }
        let Some(there) = get(at, *key) else {
            return Ok(None);
        };
        at = there;
    }
    Ok(from.map(|(container, place)| remove(text, container, place)))
}

/// Puts an element behind all others of an object (then with its key) or array.
fn append(
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
fn replace(text: &str, root: &Node<'_>, old: &Node<'_>, value: &Value) -> String {
    let shown = if old.text(text).contains('\n') {
        Layout::of(text, root).lines(value, indent_at(text, old.start()))
    } else {
        one_line(value)
    };
    with(text, old.start(), old.end(), &shown)
}

/// Takes an element of an object or array out, with the comma and the blanks that belong to it.
fn remove(text: &str, container: &Node<'_>, index: usize) -> String {
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

#[cfg(test)]
mod tests {
    use super::*;

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
