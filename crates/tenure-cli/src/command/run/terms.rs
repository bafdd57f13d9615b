//! How `run` supervises its command: reads the flags that say so, and answers for the limit.
//!
//! What they lead to is decided in `supervise`.

use crate::args::RunArgs;
use crate::exit::Exit;
use crate::failure::{Failure, object};
use crate::render::clean;
use crate::request;
use crate::signals::Signals;
use crate::supervise::{OnLost, Terms};
use serde_json::json;
use std::ffi::OsString;
use std::fmt::Write as _;
use std::time::Duration;

/// The signals that ask a process to end, by their names without `SIG`.
#[cfg(unix)]
const ENDING: [(&str, i32); 9] = [
    ("HUP", libc::SIGHUP),
    ("INT", libc::SIGINT),
    ("QUIT", libc::SIGQUIT),
    ("ABRT", libc::SIGABRT),
    ("KILL", libc::SIGKILL),
    ("USR1", libc::SIGUSR1),
    ("USR2", libc::SIGUSR2),
    ("ALRM", libc::SIGALRM),
    ("TERM", libc::SIGTERM),
];

/// The terms of a command of which nothing else is said: asked, insisted, killed.
pub(crate) fn usual(grace: Duration, signals: Signals) -> Terms {
    usual_without_signals(grace, signals.usual_request())
}

/// The same, for a caller who knows by which signal to ask.
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
pub(super) fn of(args: &RunArgs, signals: Signals) -> Result<Terms, Failure> {
    #[cfg(windows)]
    refuse_what_is_not_here(args)?;
    let grace = request::duration("--grace", &args.grace)?;
    let mut terms = Terms {
        wait_all: args.wait_all,
        on_lost: match args.on_lost.as_str() {
            "warn" => OnLost::Warn,
            _ => OnLost::Terminate,
        },
        ..usual(grace, signals)
    };
    if args.signal.is_some() || args.term_after.is_some() || args.max_runtime.is_some() {
        refine(&mut terms, args)?;
    }
    Ok(terms)
}

#[cold]
#[inline(never)]
fn refine(terms: &mut Terms, args: &RunArgs) -> Result<(), Failure> {
    if let Some(name) = &args.signal {
        terms.signal = signal(name)?;
    }
    if let Some(text) = &args.term_after {
        terms.term_after = request::duration("--term-after", text)?;
        if terms.term_after > terms.grace {
            return Err(Failure::bad_arguments(format!(
                "--term-after {text}: SIGTERM would come after the end of --grace {}",
                args.grace
            )));
        }
    }
    if let Some(text) = &args.max_runtime {
        let limit = request::duration("--max-runtime", text)?;
        if limit.is_zero() {
            return Err(Failure::bad_arguments(format!(
                "--max-runtime {text}: a limit has to be longer than nothing; leave it out for none"
            )));
        }
        terms.max_runtime = Some(limit);
    }
    Ok(())
}

/// What cannot be done on Windows is refused before anything is touched.
#[cfg(windows)]
fn refuse_what_is_not_here(args: &RunArgs) -> Result<(), Failure> {
    let why = [
        (
            args.exec,
            "--exec",
            "no process becomes another one; leave it out, and the command is watched over",
        ),
        (
            args.signal.is_some(),
            "--signal",
            "there are no signals; a command is asked to end by Ctrl-Break",
        ),
        (
            args.on_supersede.is_some(),
            "--on-supersede",
            "it has not been ported",
        ),
        (
            args.on_superseded.is_some(),
            "--on-superseded",
            "it has not been ported",
        ),
    ];
    match why.into_iter().find(|(asked, ..)| *asked) {
        Some((_, what, why)) => Err(Failure::not_here(what, why)),
        None => Ok(()),
    }
}

/// Refused before this is asked.
#[cfg(windows)]
fn signal(text: &str) -> Result<i32, Failure> {
    Err(Failure::not_here(
        &format!("--signal {text}"),
        "there are no signals",
    ))
}

/// A signal by its name, with or without `SIG`, or by its number.
#[cfg(unix)]
pub(crate) fn signal(text: &str) -> Result<i32, Failure> {
    let upper = text.to_ascii_uppercase();
    let name = upper.strip_prefix("SIG").unwrap_or(&upper);
    let found = ENDING
        .iter()
        .find(|(known, number)| *known == name || text.parse() == Ok(*number));
    found.map(|(_, number)| *number).ok_or_else(|| {
        let names: Vec<_> = ENDING.iter().map(|(name, _)| *name).collect();
        Failure::bad_arguments(format!(
            "--signal {text:?} does not ask a command to end; write one of {}, or its number",
            names.join(", ")
        ))
    })
}

/// The same call with its one argument as a shell's program.
#[cold]
#[inline(never)]
pub(super) fn by_shell(args: &RunArgs) -> Result<RunArgs, Failure> {
    let [text] = args.command.as_slice() else {
        return Err(Failure::bad_arguments(
            "--shell runs one argument; quote the whole line: tenure run --shell NAME -- 'a && b'",
        ));
    };
    let mut by_shell = args.clone();
    if by_shell.claiming.why.is_none() {
        by_shell.claiming.why = Some(text.to_string_lossy().into_owned());
    }
    by_shell.command = shell(text.clone());
    Ok(by_shell)
}

/// Words that only a shell knows.
const SHELL_WORDS: [&str; 12] = [
    "cd", "source", ".", "export", "eval", "alias", "set", "ulimit", "if", "for", "while", "{",
];

/// Adds to the answer that there is no such command what was probably meant, where it looks like a line
/// for a shell.
#[cold]
#[inline(never)]
pub(super) fn hint_at_shell(mut failure: Failure, args: &RunArgs) -> Failure {
    let words: Vec<_> = args
        .command
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
    if failure.exit != Exit::CommandNotFound || args.shell || !is_shells {
        return failure;
    }
    let line = match words.as_slice() {
        [line] => line.to_string(),
        words => {
            let words: Vec<_> = words.iter().map(|word| quoted(word)).collect();
            words.join(" ")
        }
    };
    let name = args.name.as_deref().unwrap_or("NAME");
    let call = format!("tenure run --shell {name} -- {}", quoted(&clean(&line)));
    // Writing to a `String` cannot fail.
    let _ = write!(
        failure.message,
        "; a line for the shell needs --shell: {call}"
    );
    failure.fix_command = Some(call);
    failure
}

/// A word as a shell has to see it.
fn quoted(word: &str) -> String {
    let is_plain = |letter: char| letter.is_alphanumeric() || "_-+=:,./%@".contains(letter);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', "'\\''"))
}

/// A shell and what it is told.
fn shell(text: OsString) -> Vec<OsString> {
    if cfg!(windows) {
        let shell = std::env::var_os("ComSpec").filter(|shell| !shell.is_empty());
        return vec![shell.unwrap_or_else(|| "cmd.exe".into()), "/c".into(), text];
    }
    let shell = std::env::var_os("SHELL").filter(|shell| !shell.is_empty());
    vec![shell.unwrap_or_else(|| "/bin/sh".into()), "-c".into(), text]
}

/// The answer of a run whose work took too long.
#[cold]
#[inline(never)]
pub(super) fn too_long(args: &RunArgs) -> Failure {
    let text = args.max_runtime.as_deref().unwrap_or_default();
    let limit = request::duration("--max-runtime", text).unwrap_or(Duration::ZERO);
    let limit_ms = u64::try_from(limit.as_millis()).unwrap_or(u64::MAX);
    let mut failure = Failure::new(
        Exit::MaxRuntime,
        "MAX_RUNTIME",
        format!("the command ran longer than --max-runtime {text} and was ended"),
    )
    .with_context(object(json!({ "max_runtime_ms": limit_ms })));
    failure.partial = true;
    failure.phase = Some("run");
    failure
}

#[cfg(all(test, unix))]
mod tests {
    use super::signal;

    #[test]
    fn signals_are_named_as_kill_names_them() {
        for (text, number) in [
            ("INT", libc::SIGINT),
            ("SIGINT", libc::SIGINT),
            ("sigterm", libc::SIGTERM),
            ("15", libc::SIGTERM),
            ("9", libc::SIGKILL),
            ("usr2", libc::SIGUSR2),
        ] {
            assert_eq!(signal(text).ok(), Some(number), "{text}");
        }
        for text in [
            "", "SIG", "STOP", "CONT", "TSTP", "CHLD", "0", "-15", "19", "TERM ", "99",
        ] {
            let refused = signal(text).err().map(|failure| failure.exit.code());
            assert_eq!(refused, Some(2), "{text:?}");
        }
    }
}
