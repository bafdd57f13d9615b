//! `clean`: removes claims that are proven stale, and the files of unused locks.

use super::Session;
use crate::dialect::Done;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::render::Reporter;
use crate::request::Clean;
use serde_json::{Value, json};
use std::fmt::Write as _;
use tenure_engine::clock::Clock;
use tenure_engine::store::Verbs;
use tenure_engine::store::contract::Which;

#[cold]
#[inline(never)]
pub(super) fn clean(clean: Clean, reporter: &mut Reporter) -> Result<(String, Value), Failure> {
    let Clean { place, dry_run } = clean;
    let session = Session::open(place)?;
    let mut names = Vec::new();
    session
        .store
        .names(Which::Locks, &mut |name| names.push(name))?;
    names.sort();
    let (mut claims, mut files, mut failed) = (0, 0, 0);
    let mut locks = Vec::new();
    let mut text = String::new();
    for name in &names {
        let cleaned = match session.store.clean(name, &session.clock.now(), dry_run) {
            Ok(cleaned) => cleaned,
            // A lock that cannot be cleaned does not keep the others from being cleaned.
            Err(error) => {
                failed += 1;
                if names.len() == 1 {
                    return Err(error.into());
                }
                reporter.warn(error.to_string());
                continue;
            }
        };
        if !dry_run {
            session.record_cleaned(reporter, name, &cleaned)?;
        }
        claims += cleaned.swept.len();
        files += usize::from(cleaned.removed);
        if cleaned.swept.is_empty() && !cleaned.removed {
            continue;
        }
        for claim in &cleaned.swept {
            let who = claim.holder.process.map_or_else(
                || format!("request {}", claim.holder.request_id),
                |process| format!("PID {}", process.pid),
            );
            let _ = writeln!(text, "{name}: the claim of {who}");
        }
        locks.push(json!({
            "name": name.as_str(),
            "stale_claims": cleaned.swept.len(),
            "file_removed": cleaned.removed,
        }));
    }
    // If the lock is a record of another format, tenure's own file beside it outlasts it.
    let mut leftovers = Vec::new();
    session
        .store
        .names(Which::Leftovers, &mut |name| leftovers.push(name))?;
    for name in &leftovers {
        let now = session.clock.now();
        match session.store.clean(name, &now, dry_run) {
            Ok(cleaned) => files += usize::from(cleaned.removed),
            Err(error) => reporter.warn(error.to_string()),
        }
    }
    let _ = write!(
        text,
        "{} {claims} stale claim{} and {files} unused lock file{}",
        if dry_run { "would remove" } else { "removed" },
        if claims == 1 { "" } else { "s" },
        if files == 1 { "" } else { "s" },
    );
    let done = Done::Cleaned {
        locks: locks.len(),
        dry_run,
    };
    let text = session.text_of(&done, || text);
    let data = json!({
        "dry_run": dry_run,
        "stale_claims": claims,
        "files_removed": files,
        "locks": locks,
    });
    if failed > 0 {
        let sentence = format!("{failed} of {} locks could not be cleaned", names.len());
        return Err(Failure::new(Exit::Partial, "PARTIAL_FAILURE", &sentence)
            .with_text(format!("{text}; {sentence}"))
            .with_context(data));
    }
    Ok((text, data))
}
