//! What a hook answers, in the words of its host.
//!
//! | answer | Claude Code | Codex |
//! |---|---|---|
//! | no decision | nothing is printed | the same |
//! | a message | `systemMessage`, shown to the person | the same |
//! | refused | `permissionDecision: "deny"` and the reason, which the model reads | the same |
//! | another input | `updatedInput`, whole, without a decision | the same with `allow`, which it demands |
//! | another input, and a question | `updatedInput` with `ask` | never: it runs the call then |
//!
//! Codex takes no field that it does not know. Its `allow` beside a new input approves nothing: its own approval
//! still comes.

use crate::args::value::AgentHost;
use serde_json::{Map, Value, json};

/// The one event that may be refused, as both hosts call it.
const BEFORE: &str = "PreToolUse";

/// What is answered to an event.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Answer {
    pub(super) decision: Decision,
    /// For the person.
    pub(super) message: Option<String>,
}

/// What becomes of a call.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) enum Decision {
    /// What would become of it without a hook.
    #[default]
    None,
    /// The call is refused, for this reason.
    Deny(String),
    /// The call has this input.
    Input(Map<String, Value>),
    /// Input of the call, once the person was asked for this reason. Only Claude Code asks.
    Ask(Map<String, Value>, String),
    /// What was answered before, as it was written.
    Said(String),
    /// The model is told something beside it.
    Tell {
        event: &'static str,
        context: String,
    },
}

impl Answer {
    pub(super) fn of(decision: Decision) -> Self {
        Self {
            decision,
            message: None,
        }
    }

    pub(super) fn deny(reason: String) -> Self {
        Self::of(Decision::Deny(reason))
    }

    pub(super) fn message(message: String) -> Self {
        Self {
            decision: Decision::None,
            message: Some(message),
        }
    }

    /// The text for stdout; `None` if there is nothing to say.
    pub(super) fn text(&self, host: AgentHost) -> Option<String> {
        let specific = match &self.decision {
            Decision::Said(text) => return Some(text.clone()),
            Decision::None => None,
            Decision::Deny(reason) => Some(json!({
                "hookEventName": BEFORE,
                "permissionDecision": "deny",
                "permissionDecisionReason": reason,
            })),
            Decision::Input(input) if host.table().allows_new_input => Some(json!({
                "hookEventName": BEFORE,
                "permissionDecision": "allow",
                "updatedInput": input,
            })),
            Decision::Input(input) => Some(json!({"hookEventName": BEFORE, "updatedInput": input})),
            Decision::Ask(input, reason) => Some(json!({
                "hookEventName": BEFORE,
                "permissionDecision": "ask",
                "permissionDecisionReason": reason,
                "updatedInput": input,
            })),
            Decision::Tell { event, context } => Some(json!({
                "hookEventName": event,
                "additionalContext": context,
            })),
        };
        let mut document = Map::new();
        if let Some(specific) = specific {
            document.insert("hookSpecificOutput".to_owned(), specific);
        }
        if let Some(message) = &self.message {
            document.insert(
                "systemMessage".to_owned(),
                format!("tenure: {message}").into(),
            );
        }
        (!document.is_empty()).then(|| Value::Object(document).to_string())
    }
}
