//! Prints what a tool answers: the document on stdout, prose on stderr.
//!
//! A thread of its own writes prose, so that a reader who does not read delays neither a wait nor the
//! work. At the end the last prose has one second. The document waits for its reader, until the monitor ends
//! the process. A reader that has closed its end is no error; every other failed write of the document is
//! one.

use super::{Exit, Failure, new_id};
use crate::clock::instant;
use crate::clock::since;
use crate::envelope::{Envelope, Meta};
use crate::guard::Guard;
use crate::herald::Herald;
use crate::os;
use serde_json::Value;
use std::io::{self, Write};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Where one call's answer goes. Clones answer for the same call.
#[derive(Debug, Clone)]
pub(super) struct Surface {
    began: Instant,
    program: String,
    call: Arc<Mutex<CallFacts>>,
    prose: Arc<Herald>,
}

/// How long the end waits for prose, and for a document that is written beside a command.
const LAST_TRY: Duration = Duration::from_secs(1);

/// What the call learns about itself as it goes on.
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
            prose: Arc::new(Herald::new("tenure-prose")),
        }
    }

    fn facts(&self) -> std::sync::MutexGuard<'_, CallFacts> {
        self.call.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn called(&mut self, program: &str, command: &str) {
        program.clone_into(&mut self.program);
        command.clone_into(&mut self.facts().command);
    }

    /// What a lock is held for. Arguments may be secret, and are left out.
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

    /// Prints the document, and returns the exit code.
    pub(super) fn answer(&self, answer: Result<Value, &Failure>) -> Exit {
        let exit = answer
            .as_ref()
            .map_or_else(|failure| failure.exit, |_| Exit::Success);
        if let Err(failure) = &answer {
            self.say(&failure.message);
        }
        let line = self.line(answer);
        let mut out = io::stdout().lock();
        let written = out.write_all(line.as_bytes()).and_then(|()| out.flush());
        let exit = self.written(written, exit);
        self.prose.settle(LAST_TRY);
        exit
    }

    /// The exit code of a call whose answer was written, or was not.
    pub(super) fn written(&self, written: io::Result<()>, exit: Exit) -> Exit {
        match written {
            Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
                self.say(&format!("the answer could not be written: {error}"));
                self.prose.settle(LAST_TRY);
                match exit {
                    Exit::Success => Exit::General,
                    other => other,
                }
            }
            Ok(()) | Err(_) => exit,
        }
    }

    /// Prints one message on stderr, as soon as stderr takes it.
    pub(super) fn say(&self, message: &str) {
        let line = format!("{message}\n");
        // In a single write, so that lines of many callers do not mix.
        let write = move || {
            let _ = io::stderr().lock().write_all(line.as_bytes());
        };
        self.prose.tell_unless_busy(write);
    }

    /// Prints the document of a failure while the command may be in the middle of a line. Writes past all
    /// buffers, and within a second, because the process is about to end.
    pub(super) fn answer_beside(&self, failure: &Failure) -> Exit {
        let line = self.line(Err(failure));
        let writer = Herald::new("tenure-answer");
        writer.tell(move || {
            let mut rest = line.as_bytes();
            while !rest.is_empty() {
                match os::write_stdout(rest) {
                    Ok(written) => rest = rest.get(written..).unwrap_or_default(),
                    Err(os::Errno::INTR) => {}
                    Err(_) => break,
                }
            }
        });
        writer.settle(LAST_TRY);
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
