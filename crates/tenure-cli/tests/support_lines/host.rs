//! An agent's host as `tenure mcp` meets it.

use super::Lines;
use crate::support::Scene;
use crate::support_schemas::satisfies;
use serde_json::{Value, json};
use std::ops::{Deref, DerefMut};
use std::process::Command;

/// How a client begins.
#[derive(Clone, Copy)]
pub(crate) enum Era {
    /// With the handshake.
    Handshake,
    /// Without: each request says what there is to know.
    Inline,
}

/// A host that writes what the test says.
pub(crate) struct Host {
    lines: Lines,
    era: Era,
}

impl Deref for Host {
    type Target = Lines;

    fn deref(&self) -> &Lines {
        &self.lines
    }
}

impl DerefMut for Host {
    fn deref_mut(&mut self) -> &mut Lines {
        &mut self.lines
    }
}

impl Host {
    pub(crate) fn new(scene: &Scene) -> Self {
        Self::start(&mut scene.tenure(["mcp"]), Era::Inline)
    }

    pub(crate) fn start(command: &mut Command, era: Era) -> Self {
        let lines = Lines::start(command, |_| {});
        let mut host = Self { lines, era };
        if matches!(era, Era::Handshake) {
            let id = host.ask(
                "initialize",
                json!({
                    "protocolVersion": "2025-06-18",
                    "capabilities": {},
                    "clientInfo": { "name": "test", "version": "1" },
                }),
            );
            let answer = host.answer(id);
            assert_eq!(answer["result"]["serverInfo"]["name"], "tenure", "{answer}");
            host.notify("notifications/initialized", &json!({}));
        }
        host
    }

    pub(crate) fn notify(&mut self, method: &str, params: &Value) {
        let message = json!({ "jsonrpc": "2.0", "method": method, "params": params });
        self.say(format!("{message}\n").as_bytes());
    }

    pub(crate) fn ask(&mut self, method: &str, mut params: Value) -> u64 {
        if matches!(self.era, Era::Inline) {
            params["_meta"]["io.modelcontextprotocol/protocolVersion"] = "2026-07-28".into();
            params["_meta"]["io.modelcontextprotocol/clientCapabilities"] = json!({});
        }
        self.request(method, &params)
    }

    pub(crate) fn begin(&mut self, tool: &str, arguments: &Value) -> u64 {
        self.ask(
            "tools/call",
            json!({ "name": tool, "arguments": arguments }),
        )
    }

    /// The answer to a request. What else comes is passed over.
    pub(crate) fn answer(&mut self, id: u64) -> Value {
        loop {
            let line = self.line().expect("an answer before the end");
            if line["id"] == id {
                return line;
            }
        }
    }

    /// The structured result of a call, and whether it is an error.
    pub(crate) fn result(&mut self, id: u64) -> (Value, bool) {
        let answer = self.answer(id);
        let result = &answer["result"];
        assert!(result.is_object(), "{answer:#}");
        let structured = &result["structuredContent"];
        satisfies("mcp", structured);
        let text = result["content"][0]["text"].as_str();
        assert!(text.is_some_and(|text| !text.is_empty()), "{answer:#}");
        // A host shows its model one of both.
        assert_eq!(Some(text.unwrap_or_default()), structured["text"].as_str());
        (structured.clone(), result["isError"] == true)
    }

    pub(crate) fn call(&mut self, tool: &str, arguments: &Value) -> (Value, bool) {
        let id = self.begin(tool, arguments);
        self.result(id)
    }

    /// The result of a call that has to succeed.
    #[track_caller]
    pub(crate) fn data(&mut self, tool: &str, arguments: &Value) -> Value {
        let (structured, is_error) = self.call(tool, arguments);
        assert!(!is_error && structured["code"].is_null(), "{structured:#}");
        structured
    }

    /// The result of a call of which the host says this.
    pub(crate) fn said_of(&mut self, meta: &Value, tool: &str, arguments: &Value) -> Value {
        let call = json!({ "name": tool, "arguments": arguments, "_meta": meta });
        let id = self.ask("tools/call", call);
        self.result(id).0
    }

    /// The error of a call, and whether it is one for the client too.
    #[track_caller]
    pub(crate) fn refused(&mut self, tool: &str, arguments: &Value) -> (Value, bool) {
        let (structured, is_error) = self.call(tool, arguments);
        assert!(structured["code"].is_string(), "{structured:#}");
        (structured, is_error)
    }

    /// Takes a lock, and answers with its handle.
    #[track_caller]
    pub(crate) fn acquire(&mut self, name: &str) -> String {
        let data = self.data("lock_acquire", &json!({ "name": name, "wait_ms": 5000 }));
        data["handle"].as_str().expect("a handle").to_owned()
    }
}
