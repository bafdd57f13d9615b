//! The terms on which `run` supervises its command, and its answer if the command could not start or took too
//! long.
//!
//! `supervise` decides what the terms lead to.

use crate::exit::Exit;
use crate::failure::Failure;
use crate::request::{self, Place, Supervised, Task};
use crate::signals::Signals;
use crate::supervise::{OnLost, Terms};
use serde_json::json;
use std::fmt::Write as _;
use std::time::Duration;
use tenure_store::advice;

/// The usual terms of a command: it is asked to end, then by SIGTERM, then killed.
pub(crate) fn usual(grace: Duration, signals: Signals) -> Terms {
    usual_without_signals(grace, signals.usual_request())
}

/// The usual terms of a command, for a caller that knows by which signal to ask.
pub(crate) fn usual_without_signals(grace: Duration, signal: i32) -> Terms {
    Terms {
        signal,
        term_after: grace * 3 / 4,
        grace,
        patience: Duration::ZERO,
        max_runtime: None,
        wait_all: false,
        on_lost: OnLost::Terminate,
    }
}

/// The terms of a call.
pub(super) fn of(how: &Supervised, grace: Duration, signals: Signals) -> Terms {
    let mut terms = usual(grace, signals);
    if let Some(signal) = how.signal {
        terms.signal = signal;
    }
    Terms {
        term_after: how.term_after,
        max_runtime: how.max_runtime.as_ref().map(|(limit, _)| *limit),
        wait_all: how.wait_all,
        on_lost: how.on_lost,
        ..terms
    }
}

/// Words that only a shell knows.
const SHELL_WORDS: [&str; 12] = [
    "cd", "source", ".", "export", "eval", "alias", "set", "ulimit", "if", "for", "while", "{",
];

/// Adds a hint to the answer that there is no such command, if the words look like a line for a shell.
#[cold]
#[inline(never)]
pub(super) fn hint_at_shell(mut failure: Failure, place: &Place, task: &Task) -> Failure {
    let words: Vec<_> = task
        .program
        .words
        .iter()
        .map(|word| word.to_string_lossy())
        .collect();
    let Some(first) = words.first() else {
        return failure;
    };
    let is_assignment = first.split_once('=').is_some_and(|(name, _)| {
        !name.is_empty()
            && !name.starts_with(|letter: char| letter.is_ascii_digit())
            && name
                .chars()
                .all(|letter| letter.is_ascii_alphanumeric() || letter == '_')
    });
    let is_line =
        first.contains(|letter: char| letter.is_whitespace() || "|&;<>()$`*".contains(letter));
    let is_shells = is_line || is_assignment || SHELL_WORDS.contains(&&**first);
    if failure.exit != Exit::CommandNotFound || task.program.by_shell || !is_shells {
        return failure;
    }
    let line = match words.as_slice() {
        [line] => line.to_string(),
        words => advice::line(words.iter().map(|word| &**word)),
    };
    // The group as its caller wrote it: the name of its lock is the text of another group.
    let call = match (&task.group_text, &task.name) {
        (None, Some(name)) => place.advice(name).line(&["run", "--shell"], &["--", &line]),
        (Some(group), _) => place.line(&["run", "--shell", "--group", group, "--", &line]),
        (None, None) => place.line(&["run", "--shell", "NAME", "--", &line]),
    };
    // Writing to a `String` cannot fail.
    let _ = write!(
        failure.message,
        "; a line for the shell needs --shell: {call}"
    );
    failure.fix_command = Some(call);
    failure
}

/// The answer of a run whose work took too long.
#[cold]
#[inline(never)]
pub(super) fn too_long(how: Option<&Supervised>) -> Failure {
    let limit = how.and_then(|how| how.max_runtime.as_ref());
    let (limit_ms, text) = limit.map_or((0, ""), |(limit, text)| (request::millis(*limit), text));
    let mut failure = Failure::new(
        Exit::Timeout,
        "MAX_RUNTIME",
        format!("the command ran longer than --max-runtime {text} and was ended"),
    )
    .with_context(json!({ "max_runtime_ms": limit_ms }));
    failure.partial = true;
    failure.phase = Some("run");
    failure
}
