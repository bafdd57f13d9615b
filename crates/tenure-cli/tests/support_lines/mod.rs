//! What the tests of `serve` and `mcp` share: a server that is spoken to by lines of JSON, and the host of an agent
//! above it (`host`).
#![allow(
    dead_code,
    reason = "each of the tests that include this uses its own part"
)]

pub(crate) mod host;

use crate::support::Scene;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// A server that reads requests from stdin, and writes a message a line.
pub(crate) struct Lines {
    pub(crate) process: Child,
    pub(crate) stdin: Option<ChildStdin>,
    pub(crate) stdout: BufReader<ChildStdout>,
    /// The id of the last request.
    pub(crate) number: u64,
    /// What every line has to be.
    holds: fn(&Value),
}

impl Lines {
    pub(crate) fn start(command: &mut Command, holds: fn(&Value)) -> Self {
        let command = command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = command.spawn().expect("the server starts");
        Self {
            stdin: process.stdin.take(),
            stdout: BufReader::new(process.stdout.take().expect("its stdout")),
            process,
            number: 0,
            holds,
        }
    }

    pub(crate) fn say(&mut self, bytes: &[u8]) {
        let stdin = self.stdin.as_mut().expect("an open stdin");
        stdin.write_all(bytes).expect("the server reads");
    }

    /// Sends a request, and answers with its id.
    pub(crate) fn request(&mut self, method: &str, params: &Value) -> u64 {
        let (id, line) = self.written(method, params);
        self.say(line.as_bytes());
        id
    }

    /// A request that is not sent yet: its id, and its line.
    pub(crate) fn written(&mut self, method: &str, params: &Value) -> (u64, String) {
        self.number += 1;
        let id = self.number;
        let request = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
        (id, format!("{request}\n"))
    }

    /// The next line; `None` at the end.
    pub(crate) fn line(&mut self) -> Option<Value> {
        let mut line = String::new();
        let read = self.stdout.read_line(&mut line);
        read.expect("the server writes text");
        if line.is_empty() {
            return None;
        }
        let message = serde_json::from_str(&line).expect("a line is JSON");
        (self.holds)(&message);
        Some(message)
    }

    pub(crate) fn kill(&mut self) {
        self.process.kill().expect("it is killed");
        self.process.wait().expect("it has ended");
    }

    /// Ends stdin, and answers with the exit code.
    pub(crate) fn end(&mut self) -> i32 {
        self.stdin = None;
        while self.line().is_some() {}
        self.code()
    }

    pub(crate) fn code(&mut self) -> i32 {
        let status = self.process.wait().expect("it has ended");
        status.code().expect("an exit code")
    }
}

/// Whether a plain run is refused the lock.
pub(crate) fn is_refused(scene: &Scene, name: &str) -> bool {
    scene.run(["run", "-q", "-n", name, "--", "true"]).code() == 4
}
