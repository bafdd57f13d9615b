//! `agent probe`: run by an agent as a command of its own, it says whether the host called the hook and whether it
//! ran the command that the hook wrote.
//!
//! The convention with `tenure hook`: where the whole command of a call is `tenure agent probe HOST`, the hook puts
//! `TENURE_AGENT_PROBE=ID` in front of it, with a fresh ID, and writes that ID to a file of the user's state folder
//! ([`note`]). The variable shows that the rewrite has arrived. The file shows that the hook was called at all, also
//! where a host drops rewrites.

use super::files::remove;
use super::receipts::Receipts;
use crate::args::value::AgentHost;
use crate::exit::Exit;
use crate::failure::Failure;
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// The variable that the hook puts in front of the command.
pub(crate) const VARIABLE: &str = "TENURE_AGENT_PROBE";

/// A note that is older than this is of another call.
const FRESH: Duration = Duration::from_secs(10 * 60);

/// The file in which the hook notes that it was called.
pub(crate) fn note(host: AgentHost) -> Result<PathBuf, Failure> {
    Ok(Receipts::of_user()?.beside(&format!("probe-{}", host.word())))
}

pub(super) fn probe(host: AgentHost) -> Result<(String, Value), Failure> {
    let file = note(host)?;
    let noted = tenure_os::regular::text(&file, 1 << 10).ok();
    let rewrite = std::env::var(VARIABLE).is_ok_and(|id| !id.is_empty());
    // A sandbox may keep the note from this command; the variable says enough.
    let hook = rewrite || (noted.is_some() && is_fresh(&file));
    // A note is for a single question.
    if noted.is_some() {
        let _ = remove(&file);
    }
    let (word, name) = (host.word(), host.table().name);
    let data = json!({
        "host": word,
        "hook": hook,
        "rewrite": rewrite,
    });
    if rewrite {
        let text = format!(
            "the hook was called, and {name} ran the command that it wrote: locks are taken by themselves"
        );
        return Ok((text, data));
    }
    let (message, fix) = if hook {
        (
            format!(
                "the hook was called, and {name} ran the old command: it drops what hooks write"
            ),
            "write `how = \"refuse\"` into the rules of tenure.toml, or update the host".to_owned(),
        )
    } else {
        (
            "no hook was called for this command".to_owned(),
            format!(
                "run this as a command of an agent in {name}, by itself; if it was one, `{}` says what is missing",
                super::line("status", host, &[])
            ),
        )
    };
    let mut failure = Failure::new(Exit::General, "NOT_ARRIVED", message.clone())
        .with_text(format!("{message}\n{:8}{fix}", ""))
        .with_context(data);
    failure.is_answer = true;
    Err(failure)
}

/// Whether a note is of a call that goes on now.
#[allow(
    clippy::disallowed_methods,
    reason = "the age of a file is told by the clock that dates files, and decides about no lock"
)]
fn is_fresh(file: &Path) -> bool {
    let age = fs::metadata(file)
        .and_then(|facts| facts.modified())
        .ok()
        .and_then(|time| SystemTime::now().duration_since(time).ok());
    age.is_some_and(|age| age < FRESH)
}
