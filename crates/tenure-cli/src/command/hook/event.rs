//! What a host says on stdin: one event, as JSON.
//!
//! Both hosts send the same names (Claude Code's were first). What an event asks for is decided elsewhere.

use crate::args::AgentHost;
use serde_json::{Map, Value};
use tenure_engine::printed::short;

/// The longest event that is read.
pub(super) const EVENT_MAX: usize = 1 << 20;

/// The one event that may be refused.
pub(super) const BEFORE: &str = "PreToolUse";

/// The name of an event, as far as its bytes tell.
pub(super) fn name_of(bytes: &[u8]) -> Option<&str> {
    value_of(bytes, "hook_event_name")
}

/// Whether a call may be under way to which this event comes first. At the end of a turn a refusal means "go on", and one that
/// comes each time never lets the turn end.
pub(super) fn may_be_a_call(bytes: &[u8]) -> bool {
    name_of(bytes).is_none_or(|name| name == BEFORE)
}

/// The host that sends an event, where that can be told: each names its files in its own way, and only Codex numbers turns.
pub(super) fn host_of(bytes: &[u8]) -> Option<AgentHost> {
    let file =
        value_of(bytes, "transcript_path").map(|path| path.rsplit('/').next().unwrap_or(path));
    let session = value_of(bytes, "session_id").filter(|session| !session.is_empty());
    let is_claudes = |file: &str| session.is_some() && file.strip_suffix(".jsonl") == session;
    if value_of(bytes, "turn_id").is_some() || file.is_some_and(|file| file.starts_with("rollout-"))
    {
        Some(AgentHost::Codex)
    } else {
        file.is_some_and(is_claudes).then_some(AgentHost::Claude)
    }
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
    /// A call of a tool has ended.
    After { call: Call, ended: Ended },
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

/// How a call of a tool ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ended {
    Well,
    /// The call failed, was interrupted, or goes on in the background, so it may not have begun.
    Otherwise,
}

/// A call of a tool.
#[derive(Debug, Clone)]
pub(super) struct Call {
    /// The id by which the host knows it.
    pub(super) id: String,
    pub(super) tool: Tool,
    pub(super) input: Map<String, Value>,
}

/// What a tool does, as far as rules may be about it. Its input tells that of a tool whose name is not known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Tool {
    /// Runs a line of shell, and ends with it.
    Shell,
    /// Runs a line of shell beside the turn, or in some other way of its own.
    Monitor,
    /// Writes one file.
    Edit,
    /// Writes the files that a patch names.
    Patch,
    /// Asks tenure's own server for something.
    Lock,
    /// No rule is about it. It is a sign of life.
    Other,
}

impl Tool {
    /// Reads the name and whether the input has a command. What another program's server runs, nobody here can tell: its
    /// machine may be another one.
    fn of(name: &str, has_command: bool) -> Self {
        match name {
            "Bash" => Self::Shell,
            "Edit" | "Write" | "MultiEdit" | "NotebookEdit" => Self::Edit,
            "apply_patch" => Self::Patch,
            name if name.starts_with("mcp__") => {
                let tool = name.rsplit("__").next().unwrap_or_default();
                if tool.starts_with("lock_") {
                    Self::Lock
                } else {
                    Self::Other
                }
            }
            _ if has_command => Self::Monitor,
            _ => Self::Other,
        }
    }

    /// Whether its command is a line of shell.
    pub(super) fn is_shell(self) -> bool {
        matches!(self, Self::Shell | Self::Monitor)
    }
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
pub(super) fn read(bytes: &[u8], is_cut: bool) -> Read {
    if is_cut {
        return of_beginning(bytes);
    }
    let value: Value = match serde_json::from_slice(bytes) {
        Ok(value) => value,
        Err(error) => {
            return Read::Unreadable {
                why: format!("the event is no JSON that can be read ({})", short(&error)),
                folder: value_of(bytes, "cwd").map(str::to_owned),
            };
        }
    };
    let Value::Object(mut fields) = value else {
        return Read::Unreadable {
            why: "the event is no JSON object".to_owned(),
            folder: None,
        };
    };
    let folder = text(&fields, "cwd");
    let kind = match kind(&mut fields) {
        Ok(Some(kind)) => kind,
        Ok(None) => return Read::OfNoConcern,
        Err(missing) => {
            let why = format!("the event has no {missing}");
            return Read::Unreadable { why, folder };
        }
    };
    let Some(session) = text(&fields, "session_id") else {
        if !kind.has_rules() {
            return Read::OfNoConcern;
        }
        let why = "the event has no session_id".to_owned();
        return Read::Unreadable { why, folder };
    };
    Read::Event(Event {
        kind,
        session,
        agent: text(&fields, "agent_id"),
        folder,
    })
}

fn kind(fields: &mut Map<String, Value>) -> Result<Option<Kind>, &'static str> {
    let name = text(fields, "hook_event_name").ok_or("hook_event_name")?;
    Ok(match name.as_str() {
        BEFORE => Some(Kind::Before(call(fields)?)),
        "PostToolUse" | "PostToolUseFailure" => {
            let flag = |map: Option<&Map<String, Value>>, key: &str| {
                let value = map.and_then(|map| map.get(key));
                matches!(value, Some(Value::Bool(true) | Value::String(_)))
            };
            let response = fields.get("tool_response").and_then(Value::as_object);
            let is_unfinished = flag(response, "interrupted")
                || flag(response, "backgroundTaskId")
                || flag(Some(fields), "is_interrupt");
            let failed = name == "PostToolUseFailure";
            let call = call(fields)?;
            let goes_on = call.tool == Tool::Monitor
                || call.input.get("run_in_background") == Some(&Value::Bool(true));
            let ended = if is_unfinished || failed || goes_on {
                Ended::Otherwise
            } else {
                Ended::Well
            };
            Some(Kind::After { call, ended })
        }
        "SessionStart" => {
            let source = text(fields, "source").unwrap_or_default();
            Some(Kind::Begins {
                resumed: matches!(source.as_str(), "resume" | "compact"),
            })
        }
        "Stop" | "Interrupt" => Some(Kind::Rests),
        "SubagentStop" => Some(Kind::AgentEnds),
        "SessionEnd" => Some(Kind::Ends),
        _ => None,
    })
}

fn call(fields: &mut Map<String, Value>) -> Result<Call, &'static str> {
    let name = text(fields, "tool_name").ok_or("tool_name")?;
    let id = text(fields, "tool_use_id").unwrap_or_default();
    let input = match fields.remove("tool_input") {
        Some(Value::Object(input)) => Some(input),
        _ => None,
    };
    let has_command = (input.as_ref()).is_some_and(|input| text(input, "command").is_some());
    let tool = Tool::of(&name, has_command);
    let input = input.or_else(|| (tool == Tool::Other).then(Map::new));
    let input = input.ok_or("tool_input")?;
    Ok(Call { id, tool, input })
}

fn text(fields: &Map<String, Value>, key: &str) -> Option<String> {
    let text = fields.get(key)?.as_str()?;
    (!text.is_empty()).then(|| text.to_owned())
}

/// What can be told of an event by its beginning. Ends of calls may be long, and so may calls of other tools; none
/// of these asks for anything.
fn of_beginning(bytes: &[u8]) -> Read {
    let is_other_event = !may_be_a_call(bytes);
    let has_command = value_of(bytes, "command").is_some();
    let tool = value_of(bytes, "tool_name").map(|name| Tool::of(name, has_command));
    let is_other_tool = matches!(tool, Some(Tool::Lock | Tool::Other));
    if is_other_event || is_other_tool {
        return Read::OfNoConcern;
    }
    Read::Unreadable {
        why: format!("the event is longer than {EVENT_MAX} bytes, so it was not read"),
        folder: value_of(bytes, "cwd").map(str::to_owned),
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

    fn event(value: &Value) -> Event {
        match read(value.to_string().as_bytes(), false) {
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
            ("apply_patch", command.clone(), Tool::Patch),
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
                matches!(read(value.to_string().as_bytes(), false), Read::OfNoConcern),
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
            match read(text.as_bytes(), false) {
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
            let is_read = matches!(read(text.as_bytes(), true), Read::Unreadable { .. });
            assert_eq!(is_read, concerns, "{text}");
        }
    }
}
