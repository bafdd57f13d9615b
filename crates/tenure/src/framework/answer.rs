//! Prints what a tool answers: the document on stdout, prose on stderr.
//!
//! A reader that has closed its end is no error.

use super::{Exit, Failure, new_id, since};
use crate::clock::instant;
use crate::envelope::{Envelope, Meta};
use crate::guard::Guard;
use crate::os;
use serde_json::Value;
use std::io::Write;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

/// Where one call's answer goes. Clones answer for the same call.
#[derive(Debug, Clone)]
pub(super) struct Surface {
    began: Instant,
    program: String,
    call: Arc<Mutex<CallFacts>>,
}

/// What is found out about the call as it goes on.
#[derive(Debug)]
struct CallFacts {
    command: String,
    request_id: String,
    warnings: Vec<String>,
}

impl Surface {
    pub(super) fn new() -> Self {
        Self {
            began: instant(),
            program: String::new(),
            call: Arc::new(Mutex::new(CallFacts {
                command: String::new(),
                request_id: new_id(),
                warnings: Vec::new(),
            })),
        }
    }

    fn facts(&self) -> std::sync::MutexGuard<'_, CallFacts> {
        self.call.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn called(&mut self, program: &str, command: &str) {
        program.clone_into(&mut self.program);
        command.clone_into(&mut self.facts().command);
    }

    /// What a lock is held for. Arguments may be secret, and are not told.
    pub(super) fn why(&self) -> String {
        format!("{} {}", self.program, self.facts().command)
            .trim_end()
            .to_owned()
    }

    /// The command begins, with its lock.
    pub(super) fn started(&self, first: Option<&Guard>) {
        if let Some(guard) = first {
            self.facts().request_id = guard.holder().request_id.to_string();
        }
    }

    pub(super) fn request_id(&self) -> String {
        self.facts().request_id.clone()
    }

    pub(super) fn warn(&self, warnings: impl IntoIterator<Item = String>) {
        self.facts().warnings.extend(warnings);
    }

    /// Prints the document, and answers with the exit code.
    pub(super) fn answer(&self, answer: Result<Value, &Failure>) -> Exit {
        let exit = answer
            .as_ref()
            .map_or_else(|failure| failure.exit, |_| Exit::Success);
        if let Err(failure) = &answer {
            say(&failure.message);
        }
        let line = self.line(answer);
        let mut out = std::io::stdout().lock();
        // A closed reader is silent.
        let _ = out.write_all(line.as_bytes()).and_then(|()| out.flush());
        exit
    }

    /// The same while the command may be in the middle of a line of its own: past all buffers.
    pub(super) fn answer_beside(&self, failure: &Failure) -> Exit {
        let line = self.line(Err(failure));
        let mut rest = line.as_bytes();
        while !rest.is_empty() {
            match os::write_stdout(rest) {
                Ok(written) => rest = rest.get(written..).unwrap_or_default(),
                Err(os::Errno::INTR) => {}
                Err(_) => break,
            }
        }
        failure.exit
    }

    fn line(&self, answer: Result<Value, &Failure>) -> String {
        let facts = self.facts();
        let meta = Meta::now(
            facts.request_id.clone(),
            facts.command.clone(),
            since(self.began),
        );
        Envelope::of(answer, facts.warnings.clone(), meta).to_line() + "\n"
    }
}

/// One message on stderr, in a single write so that lines of many callers do not mix.
pub(super) fn say(message: &str) {
    let line = format!("{message}\n");
    let _ = std::io::stderr().lock().write_all(line.as_bytes());
}
