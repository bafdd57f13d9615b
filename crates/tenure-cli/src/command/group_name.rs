//! `group-name`: names the concurrency group of a CI event, from the flags and from the variables of the
//! CI service. It looks at no lock.
//!
//! The core decides which facts make which name.

use crate::failure::Failure;
use crate::request::GroupNameArgs;
use serde::Deserialize;
use serde_json::{Value, json};
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use tenure_core::{CiEvent, GroupNameError, Subject};
use tenure_store::printed::short;

/// The largest event that is read, in bytes: as large as GitHub lets one be.
const EVENT_BYTES_MAX: u64 = 25 << 20;

const EVENT: &str = "GITHUB_EVENT_NAME";
const EVENT_FILE: &str = "GITHUB_EVENT_PATH";
const RUN_ID: &str = "GITHUB_RUN_ID";

#[cold]
#[inline(never)]
pub(super) fn group_name(args: &GroupNameArgs) -> Result<(String, Value), Failure> {
    let event = given_or(args.event.as_deref(), EVENT);
    let run_id = given_or(args.run_id.as_deref(), RUN_ID);
    let subject = Subject::of(&event);
    let about = match args.number {
        Some(number) => About {
            number,
            on_pull_request: false,
        },
        None if subject.needs_number() => about(args, &event)?,
        None => About::default(),
    };
    let facts = CiEvent {
        event: &event,
        number: (about.number > 0).then_some(about.number),
        on_pull_request: about.on_pull_request,
        run_id: Some(run_id.as_str()),
    };
    let name = tenure_core::group_name(args.prefix.as_deref(), &facts)
        .map_err(|error| refused(args, &error))?;
    let text = name.to_string();
    Ok((text, json!({ "group": name.as_str() })))
}

/// The typed value, else the environment's.
fn given_or(given: Option<&str>, variable: &str) -> String {
    match given {
        Some(text) => text.to_owned(),
        None => std::env::var_os(variable)
            .map(|value| value.to_string_lossy().into_owned())
            .unwrap_or_default(),
    }
}

/// What is missing or wrong, with the flag and the variable that give it.
fn refused(args: &GroupNameArgs, error: &GroupNameError) -> Failure {
    let source = match error {
        GroupNameError::NoEvent if args.event.is_some() => "--event: ".to_owned(),
        GroupNameError::NoEvent => format!("--event is missing, or {EVENT} is empty: "),
        GroupNameError::NoNumber => "--number: ".to_owned(),
        GroupNameError::NoRunId => format!("--run-id, or {RUN_ID}: "),
        GroupNameError::Name { .. } if args.prefix.is_some() => {
            "--prefix and --run-id: ".to_owned()
        }
        _ => "--run-id: ".to_owned(),
    };
    Failure::bad_arguments(format!("{source}{error}"))
}

/// What an event is about.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct About {
    /// 0 if there is none.
    number: u64,
    on_pull_request: bool,
}

/// The parts of an event's document that matter here.
#[derive(Debug, Deserialize)]
struct EventDocument {
    issue: Option<Issue>,
    pull_request: Option<Numbered>,
}

#[derive(Debug, Deserialize)]
struct Issue {
    number: u64,
    /// Present if the issue is a pull request.
    pull_request: Option<serde::de::IgnoredAny>,
}

#[derive(Debug, Deserialize)]
struct Numbered {
    number: u64,
}

impl EventDocument {
    fn about(&self) -> Option<About> {
        let pull_request = self.pull_request.as_ref().map(|pull_request| About {
            number: pull_request.number,
            on_pull_request: true,
        });
        let issue = self.issue.as_ref().map(|issue| About {
            number: issue.number,
            on_pull_request: issue.pull_request.is_some(),
        });
        issue.or(pull_request)
    }
}

/// Reads what the event is about.
fn about(args: &GroupNameArgs, event: &str) -> Result<About, Failure> {
    let (source, path) = match &args.event_file {
        Some(path) => ("--event-file", path.clone()),
        None => match std::env::var_os(EVENT_FILE).filter(|path| !path.is_empty()) {
            Some(path) => (EVENT_FILE, PathBuf::from(path)),
            None => {
                return Err(Failure::bad_arguments(format!(
                    "the number of the issue or pull request is needed for the event {event:?}: \
                     give it with --number, or name the event's file with --event-file or \
                     {EVENT_FILE}"
                )));
            }
        },
    };
    let bad = |why: String| Failure::bad_arguments(format!("{source} {}: {why}", path.display()));
    let bytes = read(&path).map_err(|error| bad(error.to_string()))?;
    if bytes.len() as u64 > EVENT_BYTES_MAX {
        return Err(bad(format!(
            "an event has at most {EVENT_BYTES_MAX} bytes, and this is more"
        )));
    }
    let document: EventDocument = serde_json::from_slice(&bytes).map_err(|error| {
        bad(format!(
            "this is not the document of an event: {}",
            short(&error)
        ))
    })?;
    document
        .about()
        .filter(|about| about.number > 0)
        .ok_or_else(|| {
            bad(format!(
                "there is no number of an issue or pull request in it, which the event {event:?} \
                 needs"
            ))
        })
}

/// Reads at most one byte more than is allowed.
fn read(path: &Path) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?
        .take(EVENT_BYTES_MAX + 1)
        .read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_says_what_it_is_about() {
        let on = |number, on_pull_request| {
            Some(About {
                number,
                on_pull_request,
            })
        };
        for (text, about) in [
            (r#"{"issue":{"number":7,"title":"x"}}"#, on(7, false)),
            (
                r#"{"issue":{"number":7,"pull_request":null}}"#,
                on(7, false),
            ),
            (
                r#"{"issue":{"number":7,"pull_request":{"url":"u"}},"comment":{}}"#,
                on(7, true),
            ),
            (
                r#"{"number":7,"pull_request":{"number":7,"title":"x"}}"#,
                on(7, true),
            ),
            (r#"{"schedule":"0 * * * *"}"#, None),
        ] {
            let document: EventDocument = serde_json::from_str(text).expect(text);
            assert_eq!(document.about(), about, "{text}");
        }
    }
}
