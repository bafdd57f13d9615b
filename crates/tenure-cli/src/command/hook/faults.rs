//! What is answered where tenure itself fails, or cannot tell which rule a call is about.
//!
//! A rule says it by `on_error`. **Where the rules themselves cannot be read, commands go on and edits are refused**, as
//! rules that say nothing would have it. The file that cannot be read may be edited all the same, alone: else no agent
//! could mend it ([decision 0067](../../../../../docs/internals/decisions/0067-what-a-hook-may-change.md)).
//!
//! What the lines of such a file say, `request/hook` reads.

use super::answer::Answer;
use super::leases::{self, Needed};
use crate::render::clean_path;
use crate::request::{About, Misread, Surroundings};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tenure_engine::config::{Config, OnError};

/// The answer where tenure itself fails.
pub(super) fn fault(closed: bool, why: &str) -> Answer {
    if closed {
        Answer::deny(format!(
            "tenure could not do its part, so this call was refused (on_error = \"closed\"): {why}"
        ))
    } else {
        Answer::message(format!("{why}; the call goes on without its lock"))
    }
}

/// The answer to an event that cannot be read. It could be about any file or command, so one rule in its folder that
/// is closed closes it.
pub(super) fn unread(why: &str, folder: &Path) -> Answer {
    let closed = match Surroundings::at(folder.to_owned()).rules() {
        Ok(config) => config.is_some_and(|config| has_closed(&config)),
        Err(misread) => {
            let closed = match misread.own() {
                Some(own) => has_closed(&own),
                None => [About::Commands, About::Paths]
                    .iter()
                    .any(|about| misread.is_closed(*about)),
            };
            let why = format!("{why}; and {}", misread.why);
            return fault(closed, &why);
        }
    };
    fault(closed, why)
}

fn has_closed(config: &Config) -> bool {
    config.files().any(|file| {
        let commands = file.agent.commands.iter().map(|rule| rule.on_error);
        let paths = file.agent.paths.iter().map(|rule| rule.on_error);
        commands
            .chain(paths)
            .any(|on_error| on_error == OnError::Closed)
    })
}

/// The answer to a call that writes these files, where the rules for one of them cannot be read.
pub(super) fn untold(misread: &Misread, files: &[PathBuf], folder: &Path) -> Answer {
    let named = misread.file.as_deref();
    let mends = named.is_some_and(|named| {
        let is_it = |file: &PathBuf| is_same(named, &folder.join(file));
        files.iter().all(is_it)
    });
    if let Some(own) = misread.own() {
        let needed = leases::needed_by(files, folder, |_| Ok(Some(Arc::clone(&own))));
        let needed = needed.unwrap_or_default();
        let closed = needed.iter().any(Needed::is_closed);
        return fault(closed, &misread.why);
    }
    if mends || !misread.is_closed(About::Paths) {
        return fault(false, &misread.why);
    }
    let way_out = match named {
        Some(named) => format!(
            "An edit of {} alone passes; when that file can be read, this call is judged by its rules",
            clean_path(named)
        ),
        None => "When the configuration can be read, this call is judged by its rules".to_owned(),
    };
    Answer::deny(format!(
        "tenure cannot read its configuration, so it is not known whether this file may be edited now, and the call \
         was refused: {}. {way_out}.",
        misread.why
    ))
}

fn is_same(one: &Path, other: &Path) -> bool {
    match (one.canonicalize(), other.canonicalize()) {
        (Ok(one), Ok(other)) => one == other,
        // A file that a variable names and that is not there yet.
        _ => one == other,
    }
}
