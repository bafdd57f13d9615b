//! What a host says on stdin: one event, as JSON.
//!
//! What its host calls things in it, `host` says. What an event asks for, `hook` decides.

use crate::args::value::AgentHost;
use crate::host::{Tells, Tool};
use serde_json::{Map, Value};
use tenure_store::printed::short;

/// The longest event that is read.
pub(super) const EVENT_MAX: usize = 1 << 20;

/// Whether the bytes begin with an event of some host.
pub(super) fn is_one(bytes: &[u8]) -> bool {
    AgentHost::all().any(|host| name_of(host, bytes).is_some())
}

/// The name of an event, as far as its bytes tell.
fn name_of(host: AgentHost, bytes: &[u8]) -> Option<&str> {
    value_of(bytes, host.table().keys.event)
}

/// Whether a call may be under way to which this event comes first. At the end of a turn a refusal means "go on", and one that
/// comes each time never lets the turn end.
pub(super) fn may_be_a_call(host: AgentHost, bytes: &[u8]) -> bool {
    name_of(host, bytes).is_none_or(|name| host.table().tells(name) == Some(Tells::Before))
}

/// The host that sends an event, where that can be told.
pub(super) fn host_of(bytes: &[u8]) -> Option<AgentHost> {
    AgentHost::of_event(&|key| value_of(bytes, key))
}

/// An event.
#[derive(Debug, Clone)]
pub(super) struct Event {
    pub(super) kind: Kind,
    pub(super) session: String,
    /// The subagent in which it happened.
    pub(super) agent: Option<String>,
    /// The folder in which the agent works.
    pub(super) folder: Option<String>,
}

/// What happened.
#[derive(Debug, Clone)]
pub(super) enum Kind {
    /// A tool is about to be called.
    Before(Call),
    /// A call of a tool has ended. It may not have begun where it failed, was interrupted, or goes on in the background.
    After { call: Call, succeeded: bool },
    /// A session begins; `resumed` if it goes on with an earlier one.
    Begins { resumed: bool },
    /// An agent has ended its turn, or a person has: no call of its own is under way any more.
    Rests,
    /// An agent of a session has ended.
    AgentEnds,
    /// A session has ended.
    Ends,
}

impl Kind {
    /// Whether a rule may be about it. What no rule is about is at most a sign of life.
    pub(super) fn has_rules(&self) -> bool {
        match self {
            Self::Before(call) | Self::After { call, .. } => {
                !matches!(call.tool, Tool::Lock | Tool::Other)
            }
            Self::Begins { .. } | Self::Rests | Self::AgentEnds | Self::Ends => true,
        }
    }
}

/// A call of a tool.
#[derive(Debug, Clone)]
pub(super) struct Call {
    /// The id by which the host knows it.
    pub(super) id: String,
    pub(super) tool: Tool,
    pub(super) input: Map<String, Value>,
}

/// What was read.
#[derive(Debug)]
pub(super) enum Read {
    Event(Event),
    /// Nothing that rules are about.
    OfNoConcern,
    /// Nothing says what the event is.
    Unreadable {
        /// Why, as a sentence.
        why: String,
        /// The folder in which the agent works, if that much can be told.
        folder: Option<String>,
    },
}

/// Reads an event. `is_cut` says that the bytes are only its beginning.
pub(super) fn read(host: AgentHost, bytes: &[u8], is_cut: bool) -> Read {
    if is_cut {
        return of_beginning(host, bytes);
    }
    let keys = host.table().keys;
    let mut value: Value = match serde_json::from_slice(bytes) {
        Ok(value) => value,
        Err(error) => {
            return Read::Unreadable {
                why: format!("the event is no JSON that can be read ({})", short(&error)),
                folder: value_of(bytes, keys.folder).map(str::to_owned),
            };
        }
    };
    let is_set = |at: &&str| {
        matches!(
            value.pointer(at),
            Some(Value::Bool(true) | Value::String(_))
        )
    };
    let is_unfinished = host.table().unfinished.iter().any(is_set);
    let Some(fields) = value.as_object_mut() else {
        return Read::Unreadable {
            why: "the event is no JSON object".to_owned(),
            folder: None,
        };
    };
    let folder = text(fields, keys.folder);
    let kind = match kind(host, fields, is_unfinished) {
        Ok(Some(kind)) => kind,
        Ok(None) => return Read::OfNoConcern,
        Err(missing) => {
            let why = format!("the event has no {missing}");
            return Read::Unreadable { why, folder };
        }
    };
    let Some(session) = text(fields, keys.session) else {
        if !kind.has_rules() {
            return Read::OfNoConcern;
        }
        let why = format!("the event has no {}", keys.session);
        return Read::Unreadable { why, folder };
    };
    Read::Event(Event {
        kind,
        session,
        agent: text(fields, keys.agent),
        folder,
    })
}

fn kind(
    host: AgentHost,
    fields: &mut Map<String, Value>,
    is_unfinished: bool,
) -> Result<Option<Kind>, &'static str> {
    let keys = host.table().keys;
    let name = text(fields, keys.event).ok_or(keys.event)?;
    let Some(tells) = host.table().tells(&name) else {
        return Ok(None);
    };
    Ok(Some(match tells {
        Tells::Before => Kind::Before(call(host, fields)?),
        Tells::After | Tells::Failed => {
            let call = call(host, fields)?;
            let succeeded =
                !(is_unfinished || tells == Tells::Failed || call.tool == Tool::Monitor);
            Kind::After { call, succeeded }
        }
        Tells::Begins => {
            let source = text(fields, keys.source).unwrap_or_default();
            Kind::Begins {
                resumed: matches!(source.as_str(), "resume" | "compact"),
            }
        }
        Tells::Rests => Kind::Rests,
        Tells::AgentEnds => Kind::AgentEnds,
        Tells::Ends => Kind::Ends,
    }))
}

fn call(host: AgentHost, fields: &mut Map<String, Value>) -> Result<Call, &'static str> {
    let keys = host.table().keys;
    let name = text(fields, keys.tool).ok_or(keys.tool)?;
    let id = text(fields, keys.call).unwrap_or_default();
    let input = match fields.remove(keys.input) {
        Some(Value::Object(input)) => Some(input),
        _ => None,
    };
    let has_command = (input.as_ref()).is_some_and(|input| text(input, keys.command).is_some());
    let tool = host.table().tool(&name, has_command);
    let input = input.or_else(|| (tool == Tool::Other).then(Map::new));
    let input = input.ok_or(keys.input)?;
    Ok(Call { id, tool, input })
}

fn text(fields: &Map<String, Value>, key: &str) -> Option<String> {
    let text = fields.get(key)?.as_str()?;
    (!text.is_empty()).then(|| text.to_owned())
}

/// What can be told of an event by its beginning. Ends of calls may be long, and so may calls of other tools; none
/// of these asks for anything.
fn of_beginning(host: AgentHost, bytes: &[u8]) -> Read {
    let (table, keys) = (host.table(), host.table().keys);
    let is_other_event = !may_be_a_call(host, bytes);
    let has_command = value_of(bytes, keys.command).is_some();
    let tool = value_of(bytes, keys.tool).map(|name| table.tool(name, has_command));
    let is_other_tool = matches!(tool, Some(Tool::Lock | Tool::Other));
    if is_other_event || is_other_tool {
        return Read::OfNoConcern;
    }
    Read::Unreadable {
        why: format!("the event is longer than {EVENT_MAX} bytes, so it was not read"),
        folder: value_of(bytes, keys.folder).map(str::to_owned),
    }
}

/// The value of a key in the beginning of a document, if it is a plain text. The first place that looks like the key
/// is one: within a text, its quotes would have backslashes.
fn value_of<'a>(bytes: &'a [u8], key: &str) -> Option<&'a str> {
    let key = format!("\"{key}\"");
    let at = bytes
        .windows(key.len())
        .position(|window| window == key.as_bytes())?;
    if at > 0 && bytes.get(at - 1) == Some(&b'\\') {
        return None;
    }
    let rest = bytes.get(at + key.len()..)?.trim_ascii_start();
    let rest = rest.strip_prefix(b":")?.trim_ascii_start();
    let rest = rest.strip_prefix(b"\"")?;
    let end = rest.iter().position(|byte| matches!(byte, b'"' | b'\\'))?;
    // The beginning of a name is another name.
    if rest.get(end) == Some(&b'\\') {
        return None;
    }
    std::str::from_utf8(rest.get(..end)?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const HOST: AgentHost = AgentHost::Claude;

    fn event(value: &Value) -> Event {
        match read(HOST, value.to_string().as_bytes(), false) {
            Read::Event(event) => event,
            other => panic!("{value}: {other:?}"),
        }
    }

    #[test]
    fn calls_of_tools_are_read_with_their_input() {
        let event = event(&json!({
            "session_id": "s", "agent_id": "a", "cwd": "/w", "hook_event_name": "PreToolUse",
            "tool_name": "Bash", "tool_use_id": "t", "tool_input": {"command": "make", "timeout": 5},
        }));
        assert_eq!(
            (event.session.as_str(), event.agent.as_deref()),
            ("s", Some("a"))
        );
        let Kind::Before(call) = event.kind else {
            panic!("a call");
        };
        assert_eq!((call.id.as_str(), call.tool), ("t", Tool::Shell));
        assert_eq!(call.input.get("timeout"), Some(&json!(5)));
    }

    /// A host has more tools than are known here, and gets new ones.
    #[test]
    fn the_input_says_what_a_tool_does_whose_name_is_not_known() {
        let command = json!({"command": "make"});
        for (name, input, expected) in [
            ("Bash", command.clone(), Tool::Shell),
            ("Monitor", command.clone(), Tool::Monitor),
            ("PowerShell", command.clone(), Tool::Monitor),
            ("Later", json!({"command": ["make"]}), Tool::Other),
            ("Read", json!({"file_path": "/w/a"}), Tool::Other),
            ("Edit", json!({"file_path": "/w/a"}), Tool::Edit),
            // Another host's.
            ("apply_patch", command.clone(), Tool::Monitor),
            ("mcp__far__run", command.clone(), Tool::Other),
            ("mcp__tenure__lock_check", json!({"name": "b"}), Tool::Lock),
            (
                "mcp__plugin_tenure_tenure__lock_acquire",
                json!({}),
                Tool::Lock,
            ),
        ] {
            let event = event(&json!({
                "session_id": "s", "hook_event_name": "PreToolUse", "tool_name": name, "tool_input": input,
            }));
            let Kind::Before(call) = event.kind else {
                panic!("a call");
            };
            assert_eq!(call.tool, expected, "{name} {input}");
        }
    }

    #[test]
    fn what_asks_for_nothing_is_of_no_concern() {
        for value in [
            json!({"hook_event_name": "Notification", "session_id": "s"}),
            json!({"hook_event_name": "UserPromptSubmit", "session_id": "s"}),
            json!({"hook_event_name": "PreToolUse", "tool_name": "Read"}),
        ] {
            assert!(
                matches!(
                    read(HOST, value.to_string().as_bytes(), false),
                    Read::OfNoConcern
                ),
                "{value}"
            );
        }
    }

    #[test]
    fn what_cannot_be_told_is_said() {
        for (text, word) in [
            ("", "no JSON"),
            ("[]", "no JSON object"),
            ("{}", "no hook_event_name"),
            (
                "{\"hook_event_name\":\"PreToolUse\",\"tool_name\":\"Bash\",\"session_id\":\"s\"}",
                "no tool_input",
            ),
            (
                "{\"hook_event_name\":\"PreToolUse\",\"tool_name\":\"Bash\",\"tool_input\":{}}",
                "no session_id",
            ),
            (
                "{\"hook_event_name\":\"SessionEnd\",\"session_id\":7}",
                "no session_id",
            ),
        ] {
            match read(HOST, text.as_bytes(), false) {
                Read::Unreadable { why, .. } => assert!(why.contains(word), "{text}: {why}"),
                other => panic!("{text}: {other:?}"),
            }
        }
    }

    #[test]
    fn the_beginning_of_a_long_event_may_tell_that_it_asks_for_nothing() {
        for (text, concerns) in [
            (
                "{\"hook_event_name\": \"PostToolUse\", \"tool_name\":\"Bash\", \"x\":\"",
                false,
            ),
            (
                "{\"hook_event_name\":\"PreToolUse\",\"tool_name\":\"mcp__a__b\",\"tool_input\":{\"",
                false,
            ),
            (
                "{\"hook_event_name\":\"PreToolUse\",\"tool_name\":\"Write\",\"tool_input\":{\"content\":\"",
                true,
            ),
            (
                "{\"hook_event_name\":\"PreToolUse\",\"tool_name\":\"Monitor\",\"tool_input\":{\"command\":\"make\",\"",
                true,
            ),
            (
                "{\"cwd\":\"\\\"hook_event_name\\\":\\\"Stop\\\"\",\"x\":\"",
                true,
            ),
            ("{\"x\":\"", true),
        ] {
            let is_read = matches!(read(HOST, text.as_bytes(), true), Read::Unreadable { .. });
            assert_eq!(is_read, concerns, "{text}");
        }
    }
}
