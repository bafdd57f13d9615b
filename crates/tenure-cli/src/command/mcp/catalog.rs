//! The tools as an agent reads them: names, what they do, their arguments, their results, and hints.
//!
//! The tools are written down here, and not made from types: what an agent reads changes only when this file does.

use crate::failure::object;
use serde_json::{Map, Value, json};

/// What a client is told of this server.
pub(super) const INSTRUCTIONS: &str = "Locks with one holder at a time, shared by all programs and agents that use tenure \
     on this machine. lock_acquire returns a handle, and lock_release gives the lock back by it. A lock that is held \
     is a normal result: it says who holds it, since when and why, and when a retry may succeed. Holds belong to the \
     program that started this server, and end with that program at the latest. A hold that names an agent also ends \
     when that agent shows no sign of life for 15 minutes, and at the age of two hours. Commands that hooks put under a lock go \
     on under the agent's own hold. For one command, `tenure run NAME -- COMMAND` in a shell holds the lock for as \
     long as the command runs.";

/// A tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Tool {
    Acquire,
    Release,
    Check,
    List,
    Wait,
    Cancel,
}

impl Tool {
    pub(super) const ALL: [Self; 6] = [
        Self::Acquire,
        Self::Release,
        Self::Check,
        Self::List,
        Self::Wait,
        Self::Cancel,
    ];

    pub(super) fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|tool| tool.name() == name)
    }

    pub(super) fn name(self) -> &'static str {
        self.told().0
    }

    /// The verb that does the same on a command line.
    pub(super) fn verb(self) -> &'static str {
        self.name().trim_start_matches("lock_")
    }

    /// Name and title, and what an agent is told of it.
    pub(super) fn told(self) -> (&'static str, &'static str, &'static str) {
        match self {
            Self::Acquire => (
                "lock_acquire",
                "Take a lock",
                "Takes a lock and keeps it until lock_release. It waits in line, at most 50 seconds in one call. \
                 If the lock is still held then, the result says who holds it and has a ticket: the same call with \
                 that ticket within a minute keeps the place in line. The result of a grant has the handle for \
                 lock_release, and a fencing token that is higher than that of every earlier holder.",
            ),
            Self::Release => (
                "lock_release",
                "Give a lock back",
                "Gives back a lock that lock_acquire took. A handle that is not held any more is no error.",
            ),
            Self::Check => (
                "lock_check",
                "Say who holds a lock",
                "Says whether a lock is free or held, by whom, since when and why, and who waits for it. It takes \
                 nothing. Of a hold of the agent that calls it has the handle, too.",
            ),
            Self::List => (
                "lock_list",
                "Show the locks that are held",
                "Shows all locks that are held or waited for, as lock_check shows each.",
            ),
            Self::Wait => (
                "lock_wait",
                "Wait until a lock is free",
                "Waits until a lock has no holder and no waiter, at most 50 seconds in one call. It takes nothing: \
                 another caller may have the lock a moment later.",
            ),
            Self::Cancel => (
                "lock_cancel",
                "Ask the holder of a lock to stop",
                "Asks the holder of a lock to stop. A command under `tenure run` is ended, and its work may be \
                 lost. A holder without a supervisor, as an agent is, only finds the request when it looks.",
            ),
        }
    }

    /// The arguments.
    pub(super) fn input(self) -> Map<String, Value> {
        let name = json!({
            "type": "string",
            "description": "The name of the lock: letters, digits and . _ - @ + =",
            "minLength": 1,
            "maxLength": 128,
        });
        let path = json!({
            "type": "string",
            "description": "A file or folder, in place of name: takes the lease that an edit of it takes.",
            "minLength": 1,
        });
        let wait = json!({
            "type": "integer",
            "description": "How long to wait, in milliseconds; 0 does not wait. At most 50000, which is the default \
                            unless tenure.toml says otherwise.",
            "minimum": 0,
        });
        let (properties, required) = match self {
            Self::Acquire => (
                json!({
                    "name": name,
                    "path": path,
                    "why": {
                        "type": "string",
                        "description": "What the lock is held for. Those who wait read it.",
                    },
                    "wait_ms": wait,
                    "slots": {
                        "type": "integer",
                        "description": "Takes one of so many slots, so that as many callers hold the lock at a time. \
                                        All callers of the lock name the same number.",
                        "minimum": 1,
                    },
                    "ttl_ms": {
                        "type": "integer",
                        "description": "How long the hold counts after its last renewal for callers that cannot see \
                                        this program (in a container, on another machine). This server renews it. A hold that names an agent \
                                        is not renewed so, and lasts 15 minutes of silence at the least.",
                        "minimum": 1,
                    },
                    "ticket": {
                        "type": "integer",
                        "description": "The ticket of an earlier result: comes back to that place in line.",
                        "minimum": 1,
                    },
                }),
                Vec::new(),
            ),
            Self::Release => (
                json!({ "handle": {
                    "type": "string",
                    "description": "The handle that lock_acquire returned.",
                    "minLength": 1,
                } }),
                vec!["handle"],
            ),
            Self::Check | Self::Cancel => (json!({ "name": name, "path": path }), Vec::new()),
            Self::List => (json!({}), Vec::new()),
            Self::Wait => (
                json!({ "name": name, "path": path, "wait_ms": wait }),
                Vec::new(),
            ),
        };
        object(json!({
            "type": "object",
            "properties": properties,
            "required": required,
            "additionalProperties": false,
        }))
    }

    /// The result. Hosts show their model this or the text beside it, so it is short and has the same text.
    /// `schemas/mcp.schema.json` says more.
    pub(super) fn output() -> Map<String, Value> {
        object(json!({
            "type": "object",
            "required": ["text"],
            "properties": {
                "text": { "type": "string", "description": "The answer." },
                "code": {
                    "type": "string",
                    "description": "Only of a refusal. LOCK_HELD and ALREADY_HELD are normal results.",
                },
                "retry_after_ms": { "type": "integer" },
                "ticket": { "type": "integer" },
                "status": { "type": "string" },
                "handle": { "type": "string" },
                "token": { "type": "integer" },
            },
        }))
    }

    /// Whether the tool takes and changes nothing.
    pub(super) fn is_read_only(self) -> bool {
        matches!(self, Self::Check | Self::List | Self::Wait)
    }

    /// Whether the tool may end the work of another caller.
    pub(super) fn is_destructive(self) -> bool {
        self == Self::Cancel
    }

    /// A second call with the same arguments changes nothing more.
    pub(super) fn is_idempotent(self) -> bool {
        self != Self::Acquire
    }
}
