//! How an answer reaches its reader: lines for people, or one envelope on stdout for programs.
//!
//! In JSON and YAML mode stdout holds the document and nothing else; prose and progress go to
//! stderr (`speech`). Text from a record is cleaned of control characters before a person sees it. A program
//! gets them all, escaped.
//!
//! **An answer waits for a slow reader, and only a signal ends that.** A reader that has closed its end is
//! no error. An answer that the system does not take is one, whatever the call has done. A call whose answer
//! is worth nothing unless a reader gets it may undo what it has done ([`Reporter::unless_heard`]).

pub(crate) mod audit;
pub(crate) mod colour;
#[cfg(unix)]
pub(crate) mod doctor;
#[cfg(unix)]
pub(crate) mod findings;
pub(crate) mod lock;
pub(crate) mod metrics;
pub(crate) mod profile;
pub(crate) mod stream;
pub(crate) mod table;
pub(crate) mod timeline;
#[cfg_attr(
    not(unix),
    allow(
        dead_code,
        reason = "only its live view, which is not there, has keys and pages"
    )
)]
pub(crate) mod top;
pub(crate) mod waiting;
pub(crate) mod width;

use crate::exit::{Exit, signalled};
use crate::failure::Failure;
pub(crate) use crate::output::Output;
use crate::signals::{Stream, Why, write_unless_stopped};
use crate::speech;
pub(crate) use crate::speech::say;
use serde_json::Value;
use std::fmt;
use std::io::ErrorKind;
use std::sync::Arc;
use std::time::Instant;
use tenure_core::{LockName, RequestId};
use tenure_engine::engine::Waiting;
use tenure_engine::envelope::{self, Envelope, Meta};
pub(crate) use tenure_engine::envelope::{clean, clean_path};

/// Where one call's answers go: in which format, under which name, and whether at all. It writes to stdout
/// itself; for stderr it words what `speech` then writes, keeps or drops.
#[derive(Debug)]
pub(crate) struct Reporter {
    pub(crate) output: Output,
    quiet: bool,
    verbose: bool,
    command: String,
    request_id: String,
    conflict_exit_code: Option<u8>,
    /// Messages are sentences that a profile's users know, without tenure's name.
    plain: bool,
    /// Said to a person who has no right to the place.
    advice: Option<&'static str>,
    waits: Waits,
    /// Makes the document that answers a failure, if the profile wants one.
    documents: Option<FailureDocument>,
    /// The lock that the call is about, as far as it is known.
    lock: Option<String>,
    began: Instant,
    warnings: Vec<String>,
    unless_heard: Option<Undo>,
    listener: Option<Listener>,
    /// What is written to stdout in front of an answer.
    front: &'static str,
}

/// Is told of a wait whenever the waiter has looked at its lock.
#[derive(Clone)]
pub(crate) struct Listener(pub(crate) Arc<Listen>);

type Listen = dyn Fn(&LockName, &Waiting<'_>) + Send + Sync;

impl fmt::Debug for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Listener")
    }
}

/// Whether a call tells of its wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Waits {
    Shown,
    Hidden,
}

/// Makes a document of a failure and the lock that the call is about.
pub(crate) type FailureDocument = fn(&str, Option<&str>, &Failure) -> String;

/// Why an answer was not written.
#[derive(Debug)]
pub(crate) enum Unheard {
    /// The reader has closed its end.
    Gone,
    /// A signal came before the reader had read all of it.
    Stopped(i32),
    /// The system refused.
    Failed(String),
}

impl Unheard {
    /// The failure of a call whose answer was not written.
    pub(crate) fn failure(&self) -> Failure {
        Failure::new(Exit::General, "ANSWER_LOST", self.to_string())
    }
}

/// Undoes what the call did, and says how that ended.
struct Undo(Box<dyn FnOnce(&mut Reporter) -> String + Send>);

impl fmt::Debug for Undo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Undo")
    }
}

/// Said where the caller has no right to the default folder.
const DEFAULT_FOLDER: &str = if cfg!(windows) {
    "the default folder is below LOCALAPPDATA; --dir or TENURE_DIR names another one"
} else {
    "the default folder is below HOME (or XDG_STATE_HOME); --dir or TENURE_DIR names another one"
};

/// The verbs whose change stays when their answer is lost.
const CHANGES: [&str; 6] = [
    "release",
    "force-release",
    "heartbeat",
    "cancel",
    "clean",
    "push",
];

impl Reporter {
    pub(crate) fn new(output: Output, quiet: bool, verbose: bool, command: String) -> Self {
        Self {
            output,
            quiet,
            verbose,
            command,
            request_id: String::new(),
            conflict_exit_code: None,
            plain: false,
            advice: None,
            waits: Waits::Shown,
            documents: None,
            lock: None,
            began: tenure_os::clock::instant(),
            warnings: Vec::new(),
            unless_heard: None,
            listener: None,
            front: "",
        }
    }

    /// Reports to a program that is told of the call's waits.
    #[must_use]
    #[cfg(unix)]
    pub(crate) fn listened(mut self, listener: Listener) -> Self {
        self.listener = Some(listener);
        self
    }

    /// The program that is told of a wait.
    pub(crate) fn listener(&self) -> Option<Listener> {
        self.listener.clone()
    }

    /// Runs `undo` if the answer of a success does not reach a reader. `undo` answers with the end of a sentence:
    /// what became of it.
    pub(crate) fn unless_heard(&mut self, undo: impl FnOnce(&mut Self) -> String + Send + 'static) {
        self.unless_heard = Some(Undo(Box::new(undo)));
    }

    /// The request id of this call, for the envelope.
    pub(crate) fn set_request_id(&mut self, id: &str) {
        id.clone_into(&mut self.request_id);
    }

    pub(crate) fn is_text(&self) -> bool {
        self.output == Output::Text
    }

    pub(crate) fn is_quiet(&self) -> bool {
        self.quiet
    }

    pub(crate) fn is_verbose(&self) -> bool {
        self.verbose
    }

    /// Says no word of a wait from now on, for a call whose refusal is no news either.
    pub(crate) fn hide_waits(&mut self) {
        self.waits = Waits::Hidden;
    }

    /// Whether a wait is shown.
    pub(crate) fn shows_waits(&self) -> bool {
        !self.quiet && self.waits == Waits::Shown
    }

    /// The call is about the default folder, which its caller may not know.
    pub(crate) fn is_at_default(&mut self) {
        self.advice = Some(DEFAULT_FOLDER);
    }

    /// Prints messages without tenure's name, for a profile that wants so.
    #[must_use]
    pub(crate) fn plain(mut self, plain: bool) -> Self {
        self.plain = plain;
        self
    }

    /// Exits with this code where the lock is held.
    #[must_use]
    pub(crate) fn held_exit(mut self, code: Option<u8>) -> Self {
        self.conflict_exit_code = code;
        self
    }

    /// Answers failures with documents, for a profile that does so.
    #[must_use]
    pub(crate) fn documenting(mut self, documents: Option<FailureDocument>) -> Self {
        self.documents = documents;
        self
    }

    /// Reports about this lock.
    #[must_use]
    pub(crate) fn about(mut self, lock: Option<&str>) -> Self {
        // Only a document names it, and a plain run pays for nothing that it does not need.
        if self.documents.is_some() {
            self.lock = lock.map(str::to_owned);
        }
        self
    }

    /// Notes that a command has had stdout. What it wrote may end in the middle of a line, and goes to its reader unseen,
    /// so the answer begins with the end of a line.
    pub(crate) fn command_has_run(&mut self) {
        self.front = "\n";
    }

    /// Prints one line on stdout.
    fn print_out(&self, text: &str) -> Result<(), Unheard> {
        print_lines(&format!("{}{text}\n", self.front))
    }

    /// Sets the lock, once an intent or another document has named it.
    pub(crate) fn set_lock(&mut self, lock: &LockName) {
        if self.documents.is_some() {
            self.lock = Some(lock.as_str().to_owned());
        }
    }

    fn say(&self, message: &str) {
        if self.plain {
            speech::say_plainly(message);
        } else {
            say(message);
        }
    }

    /// Something a person should know, and a program finds under `warnings`.
    pub(crate) fn warn(&mut self, message: impl Into<String>) {
        let message = message.into();
        if !self.quiet {
            self.say(&message);
        }
        self.warnings.push(message);
    }

    /// A line that goes with the answer, for people and their logs.
    pub(crate) fn inform(&self, message: &str) {
        if !self.quiet {
            self.say(message);
        }
    }

    /// Something for a person who asked for more.
    pub(crate) fn explain(&self, message: &str) {
        if self.verbose {
            say(message);
        }
    }

    fn changes(&self) -> bool {
        CHANGES.contains(&self.command.as_str())
    }

    /// Whether the text of a success says no more than the exit code: a caller that wants errors alone does not get it.
    fn only_confirms(&self) -> bool {
        self.changes() || matches!(&*self.command, "acquire" | "wait")
    }

    /// Prints a success: `text` for people (unless it is empty), `data` for programs.
    pub(crate) fn succeed(mut self, text: &str, data: Value) -> Exit {
        let answered = match self.output {
            Output::Text if text.is_empty() => Ok(()),
            Output::Text if self.quiet && self.only_confirms() => Ok(()),
            Output::Text => self.print_out(text),
            Output::Json | Output::Yaml => self.document(Ok(data)),
        };
        self.ending(answered, None)
    }

    /// How a call ends that was answered like this: with the code of its failure, or as a success.
    pub(crate) fn ending(&mut self, answered: Result<(), Unheard>, failed: Option<Exit>) -> Exit {
        match (answered, failed) {
            (Ok(()), None) => Exit::Success,
            (Err(unheard), None) => self.lose(&unheard),
            (Ok(()) | Err(Unheard::Gone), Some(exit)) => exit,
            (Err(Unheard::Stopped(number)), Some(_)) => signalled(number),
            // The exit code says that it failed, and why is said where it can be.
            (Err(unheard @ Unheard::Failed(_)), Some(exit)) => {
                self.say(&unheard.to_string());
                if exit.code() == 0 {
                    Exit::General
                } else {
                    exit
                }
            }
        }
    }

    /// Ends a call whose success reached no reader.
    #[cold]
    #[inline(never)]
    fn lose(&mut self, unheard: &Unheard) -> Exit {
        let exit = match (unheard, &self.unless_heard) {
            (Unheard::Gone, None) => return Exit::Success,
            (Unheard::Stopped(number), _) => signalled(*number),
            (Unheard::Gone | Unheard::Failed(_), _) => Exit::General,
        };
        let consequence = match self.unless_heard.take() {
            Some(Undo(undo)) => Some(undo(self)),
            None if self.changes() => Some("what was done stands".to_owned()),
            None => None,
        };
        let consequence = consequence.map_or_else(String::new, |text| format!("; {text}"));
        self.say(&format!("{unheard}{consequence}"));
        exit
    }

    /// Prints a failure and answers with its exit code.
    #[cold]
    #[inline(never)]
    pub(crate) fn fail(mut self, failure: &Failure) -> Exit {
        if failure.is_silent() {
            return failure.exit;
        }
        let answered = match self.output {
            Output::Text if failure.is_answer => {
                self.print_out(failure.text.as_deref().unwrap_or(&failure.message))
            }
            Output::Text => {
                if let Some(document) = self.documents {
                    self.print_out(&document(&self.command, self.lock.as_deref(), failure))
                } else if self.quiet && failure.is_of_a_held_lock() {
                    // The exit code says it. In a crontab a line is a mail, and nothing is wrong.
                    Ok(())
                } else {
                    // `--quiet` is about talk; the reason of a failure is not talk.
                    let said = failure.text.as_deref().unwrap_or(&failure.message);
                    match self.advice {
                        Some(advice) if failure.code == "PERMISSION_DENIED" => {
                            self.say(&format!("{said}; {advice}"));
                        }
                        _ => self.say(said),
                    }
                    Ok(())
                }
            }
            Output::Json | Output::Yaml => self.document(Err(failure)),
        };
        let exit = match (failure.exit, self.conflict_exit_code) {
            (Exit::Precondition, Some(code)) => Exit::Own(code),
            (exit, _) => exit,
        };
        self.ending(answered, Some(exit))
    }

    #[cold]
    #[inline(never)]
    fn document(&self, answer: Result<Value, &envelope::Failure>) -> Result<(), Unheard> {
        let envelope = Envelope::of(answer, self.last_warnings(), self.meta());
        let text = match self.output {
            Output::Yaml => serde_json::to_value(&envelope)
                .map_err(|error| error.to_string())
                .and_then(|document| tenure_engine::yaml::write(&document)),
            Output::Json | Output::Text => Ok(envelope.to_line()),
        };
        match text {
            Ok(text) => self.print_out(text.trim_end()),
            Err(error) => Err(Unheard::Failed(error)),
        }
    }

    /// What the call has warned of so far.
    #[cfg(all(feature = "mcp", unix))]
    pub(crate) fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// All warnings of a call that warns of nothing more.
    fn last_warnings(&self) -> Vec<String> {
        let unsaid = speech::finish();
        let mut warnings = self.warnings.clone();
        if unsaid > 0 {
            warnings.push(speech::unsaid(unsaid));
        }
        warnings
    }

    /// What the document says of the call, which answers now.
    fn meta(&self) -> Meta {
        let elapsed = tenure_os::clock::instant().saturating_duration_since(self.began);
        // A call that shows no id gets one of its own, to be found again in a log. So does one
        // that shows what another program calls itself, which may be of any form.
        let request_id = if RequestId::new(&*self.request_id).is_err() {
            crate::ids::request_id_or_new(None).map_or_else(|_| String::new(), |id| id.to_string())
        } else {
            self.request_id.clone()
        };
        Meta::now(request_id, self.command.clone(), elapsed)
    }
}

/// Shows a failure from before the call knew how to show one.
pub(crate) fn report(failure: &Failure) -> Exit {
    Reporter::new(failure.output, false, false, failure.command.clone()).fail(failure)
}

impl fmt::Display for Unheard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Gone => f.write_str("the answer was not written, because its reader has gone"),
            Self::Stopped(_) => {
                f.write_str("the answer was not written, because a signal came before it was read")
            }
            Self::Failed(error) => write!(f, "the answer could not be written: {error}"),
        }
    }
}

/// Whole lines on stdout, at once.
pub(crate) fn print_lines(lines: &str) -> Result<(), Unheard> {
    print_bytes(lines.as_bytes())
}

fn print_bytes(bytes: &[u8]) -> Result<(), Unheard> {
    let written = write_unless_stopped(Stream::Out, bytes);
    written.map_err(|unwritten| match unwritten.why {
        Why::Stopped(number) => Unheard::Stopped(number),
        Why::Failed(error) if error.kind() == ErrorKind::BrokenPipe => Unheard::Gone,
        Why::Failed(error) => Unheard::Failed(tenure_engine::audit::error_text(&error)),
        Why::Late => Unheard::Failed("it took too long".to_owned()),
    })
}
