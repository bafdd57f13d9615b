//! A small job runner that goes on where it was interrupted, and never twice at once.
//!
//! ```text
//! resume DIR start  ID [--delay-ms N] ITEM...   begins a job with these work items
//! resume DIR resume ID [--delay-ms N] [--force] goes on after the last finished item
//! resume DIR status ID                          says how far it is, and takes no lock
//! ```
//!
//! Real runners have two layers, and so has this one. The *session* layer is what a person calls;
//! the *job* layer does the work, and can be called by itself by another program. Each wants the
//! lock of the id that it works on, for the same id: the session acquires it and hands the job
//! layer the same hold ([`ResumeLock::again`]), so the program does not block itself. The job layer
//! takes the lock as an argument, and thus **nothing can load a checkpoint without it**.
//!
//! # What is on disk
//! `DIR/ID.json` is the checkpoint: the items, how many are done, and how long the output was then.
//! `DIR/ID.out` is the output, one line `ITEM PID` for each item. Each checkpoint replaces the one
//! before as a whole. Killed between the line and its checkpoint, the runner finds an output that
//! is longer than the checkpoint says, cuts off what came after it, and does that item again: each
//! item stands in the output once.
//!
//! What a lock cannot do: an item that changes something elsewhere (sends a mail, say) may be done
//! twice after a kill. Such work needs the fencing token, or an idempotent receiver.

#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a program for the command line answers there"
)]

use std::process::ExitCode;
use tenure::resume::{Override, ResumeLockError, ResumeLockManager};

mod checkpoint;
mod job;
mod session;

/// Everything that can go wrong, as a sentence and an exit code.
pub(crate) enum Failure {
    /// The call makes no sense.
    Usage(String),
    /// The lock was not to be had, or is lost.
    Lock(ResumeLockError),
    /// A file cannot be read or written.
    File(String),
}

impl From<ResumeLockError> for Failure {
    fn from(error: ResumeLockError) -> Self {
        Self::Lock(error)
    }
}

const USAGE: &str = "usage: resume DIR start ID [--delay-ms N] ITEM...
       resume DIR resume ID [--delay-ms N] [--force]
       resume DIR status ID";

fn main() -> ExitCode {
    let (text, code) = match answer(std::env::args().skip(1).collect()) {
        Ok(line) => {
            println!("{line}");
            return ExitCode::SUCCESS;
        }
        Err(Failure::Usage(why)) => (format!("{why}\n{USAGE}"), 2),
        // Another process is at it: another code, so that a script can tell it from a failure.
        Err(Failure::Lock(
            error
            @ (ResumeLockError::InProgress { .. } | ResumeLockError::HeldByThisProcess { .. }),
        )) => (error.to_string(), 4),
        Err(Failure::Lock(error)) => (error.to_string(), 1),
        Err(Failure::File(why)) => (why, 1),
    };
    eprintln!("{text}");
    ExitCode::from(code)
}

fn answer(arguments: Vec<String>) -> Result<String, Failure> {
    let mut call = Call::default();
    let mut words = Vec::new();
    let mut rest = arguments.into_iter();
    while let Some(argument) = rest.next() {
        match argument.as_str() {
            "--force" => call.overriding = Override::Yes,
            "--delay-ms" => {
                call.delay_ms = rest
                    .next()
                    .and_then(|number| number.parse().ok())
                    .ok_or_else(|| Failure::Usage("--delay-ms: a number is missing".to_owned()))?;
            }
            _ => words.push(argument),
        }
    }
    let mut words = words.into_iter();
    let (Some(dir), Some(verb), Some(id)) = (words.next(), words.next(), words.next()) else {
        return Err(Failure::Usage("something is missing".to_owned()));
    };
    let items: Vec<String> = words.collect();
    let locks = ResumeLockManager::new(dir.clone().into())?;
    let runner = session::Runner {
        dir: dir.into(),
        locks,
    };
    match verb.as_str() {
        "start" if !items.is_empty() => runner.start(&id, items, &call),
        "resume" if items.is_empty() => runner.resume(&id, &call),
        "status" if items.is_empty() => runner.status(&id),
        _ => Err(Failure::Usage(format!("{verb}: not like this"))),
    }
}

/// What a call may say beside its words.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Call {
    /// How long each item takes.
    pub(crate) delay_ms: u64,
    /// Whether to take the lock from a holder that has it.
    pub(crate) overriding: Override,
}
