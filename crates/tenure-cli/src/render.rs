//! How an answer reaches its reader: lines for people, or one envelope on stdout for programs.
//!
//! In JSON and YAML mode stdout holds the document and nothing else; prose and progress go to
//! stderr. A reader that has closed its end is no error. Whatever came from a record is cleaned of
//! control characters before a person sees it, and of nothing for a program: there it is escaped.

pub(crate) mod audit;
pub(crate) mod lock;
pub(crate) mod profile;
pub(crate) mod waiting;

use crate::exit::Exit;
use crate::failure::Failure;
use serde::Serialize;
use serde_json::Value;
use std::io::Write;
use std::time::Instant;
pub(crate) use tenure::envelope::clean;

/// The formats.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Output {
    /// Lines for people
    Text,
    /// One JSON document
    Json,
    /// The same as YAML
    Yaml,
}

impl Output {
    pub(crate) fn from_word(word: &str) -> Option<Self> {
        match word {
            "text" => Some(Self::Text),
            "json" => Some(Self::Json),
            "yaml" => Some(Self::Yaml),
            _ => None,
        }
    }

    /// Refuses a `TENURE_OUTPUT` that names no format: a caller who asked for one must not get
    /// another.
    pub(crate) fn check_environment() -> Result<(), Failure> {
        match std::env::var("TENURE_OUTPUT") {
            Ok(word) if !word.is_empty() && Self::from_word(&word).is_none() => {
                Err(Failure::bad_arguments(format!(
                    "TENURE_OUTPUT {word:?} is no format; it is one of text, json, yaml"
                )))
            }
            _ => Ok(()),
        }
    }

    /// The format that `TENURE_OUTPUT` asks for.
    pub(crate) fn from_environment() -> Option<Self> {
        Self::from_word(&std::env::var("TENURE_OUTPUT").ok()?)
    }
}

/// The document: exactly these five keys.
#[derive(Debug, Serialize)]
struct Envelope<'a> {
    ok: bool,
    data: Option<&'a Value>,
    error: Option<Value>,
    warnings: &'a [String],
    meta: Meta<'a>,
}

#[derive(Debug, Serialize)]
struct Meta<'a> {
    request_id: &'a str,
    command: &'a str,
    schema_version: &'static str,
    duration_ms: u64,
    timestamp: String,
}

/// Where one call's answers go.
#[derive(Debug)]
pub(crate) struct Surface {
    pub(crate) output: Output,
    quiet: bool,
    verbose: bool,
    command: String,
    request_id: String,
    conflict_exit_code: Option<u8>,
    /// Messages are sentences that a profile's users know, and stand without our name.
    plain: bool,
    began: Instant,
    warnings: Vec<String>,
}

impl Surface {
    pub(crate) fn new(
        output: Output,
        quiet: bool,
        verbose: bool,
        command: String,
        conflict_exit_code: Option<u8>,
    ) -> Self {
        Self {
            output,
            quiet,
            verbose,
            command,
            request_id: String::new(),
            conflict_exit_code,
            plain: false,
            began: tenure::clock::instant(),
            warnings: Vec::new(),
        }
    }

    /// The owner token of this call, for the envelope.
    pub(crate) fn set_request_id(&mut self, id: &str) {
        id.clone_into(&mut self.request_id);
    }

    pub(crate) fn is_text(&self) -> bool {
        self.output == Output::Text
    }

    pub(crate) fn is_quiet(&self) -> bool {
        self.quiet
    }

    /// The same, for a profile whose messages stand without our name.
    #[must_use]
    pub(crate) fn plain(mut self, plain: bool) -> Self {
        self.plain = plain;
        self
    }

    fn say(&self, message: &str) {
        if self.plain {
            let _ = std::io::stderr()
                .lock()
                .write_all(format!("{message}\n").as_bytes());
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

    /// Something a person wants to know who asked for more.
    pub(crate) fn explain(&self, message: &str) {
        if self.verbose {
            say(message);
        }
    }

    /// Prints a success: `text` for people (unless it is empty), `data` for programs.
    pub(crate) fn succeed(self, text: &str, data: &Value) -> Exit {
        match self.output {
            Output::Text => {
                if !text.is_empty() {
                    print_out(text);
                }
            }
            Output::Json | Output::Yaml => self.document(true, Some(data), None),
        }
        Exit::Success
    }

    /// Prints a failure and answers with its exit code.
    #[cold]
    #[inline(never)]
    pub(crate) fn fail(self, failure: &Failure) -> Exit {
        if failure.is_silent() {
            return failure.exit;
        }
        match self.output {
            Output::Text if failure.is_answer => {
                print_out(failure.text.as_deref().unwrap_or(&failure.message));
            }
            // Quiet is about talk; why a call failed is not talk.
            Output::Text => self.say(failure.text.as_deref().unwrap_or(&failure.message)),
            Output::Json | Output::Yaml => self.document(false, None, Some(failure.to_json())),
        }
        match (failure.exit, self.conflict_exit_code) {
            (Exit::Precondition, Some(code)) => Exit::Command(code.into()),
            (exit, _) => exit,
        }
    }

    #[cold]
    #[inline(never)]
    fn document(&self, ok: bool, data: Option<&Value>, error: Option<Value>) {
        let elapsed = tenure::clock::instant().saturating_duration_since(self.began);
        // A call that shows no id gets one of its own, to be found again in somebody's log.
        let request_id = if self.request_id.is_empty() {
            crate::request::request_id_or_new(None)
                .map_or_else(|_| String::new(), |id| id.to_string())
        } else {
            self.request_id.clone()
        };
        let envelope = Envelope {
            ok,
            data,
            error,
            warnings: &self.warnings,
            meta: Meta {
                request_id: &request_id,
                command: &self.command,
                schema_version: "1",
                duration_ms: u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX),
                timestamp: tenure::clock::timestamp(),
            },
        };
        let text = match self.output {
            Output::Yaml => serde_json::to_value(&envelope)
                .map_err(|error| error.to_string())
                .and_then(|document| tenure::yaml::write(&document)),
            Output::Json | Output::Text => Ok(tenure::envelope::json_line(&envelope)),
        };
        match text {
            Ok(text) => print_out(text.trim_end()),
            Err(error) => say(&format!("the answer could not be written: {error}")),
        }
    }
}

/// One line on stdout. A closed reader is silent.
fn print_out(text: &str) {
    print_lines(&format!("{text}\n"));
}

/// Whole lines on stdout, at once. `false` if the reader has gone, and nothing more need be said.
pub(crate) fn print_lines(lines: &str) -> bool {
    let mut out = std::io::stdout().lock();
    out.write_all(lines.as_bytes())
        .and_then(|()| out.flush())
        .is_ok()
}

/// One message on stderr, in a single write so that lines of many callers do not mix.
pub(crate) fn say(message: &str) {
    let line = format!("tenure: {message}\n");
    let _ = std::io::stderr().lock().write_all(line.as_bytes());
}

/// Whether stdout shows colours: a terminal that can, and nobody who asked for none
/// (`NO_COLOR`, see no-color.org).
pub(crate) fn shows_colours() -> bool {
    use std::io::IsTerminal;
    std::io::stdout().is_terminal()
        && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
        && std::env::var_os("TERM").is_none_or(|terminal| terminal != "dumb")
}

/// A word in the colour of the standing that it names: what is free is green, what is held red,
/// what wants attention yellow.
pub(crate) fn paint(padded: &str, standing: &str) -> String {
    let colour = match standing {
        "free" => 32,
        "held" => 31,
        _ => 33,
    };
    format!("\x1b[{colour}m{padded}\x1b[0m")
}
