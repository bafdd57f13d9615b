//! `clean`: removes what is proven stale, and the files of locks that nobody uses.

use super::Session;
use crate::dialect::Done;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::render::Reporter;
use crate::render::stream::{Each, Part, write_envelope};
use crate::request::Clean;
use serde::Serialize;
use serde_json::Value;
use std::cell::RefCell;
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
    names.sort_unstable();
    let (mut claims, mut files, mut changed, mut failed) = (0, 0, 0, 0);
    let mut locks = Vec::new();
    let mut text = String::new();
    for name in &names {
        let cleaned = match session.store.clean(name, &session.clock.now(), dry_run) {
            Ok(cleaned) => cleaned,
            // One lock that cannot be cleaned does not keep the others from it.
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
        changed += 1;
        if !reporter.is_text() {
            locks.push(CleanedLock {
                name: name.as_str(),
                stale_claims: cleaned.swept.len(),
                file_removed: cleaned.removed,
            });
            continue;
        }
        for claim in &cleaned.swept {
            let who = claim.holder.process.map_or_else(
                || format!("request {}", claim.holder.request_id),
                |process| format!("PID {}", process.pid),
            );
            let _ = writeln!(text, "{name}: the claim of {who}");
        }
    }
    // Where a lock is a record of its own, what we keep beside it outlasts it.
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
        locks: changed,
        dry_run,
    };
    let text = session.text_of(&done, || text);
    let failure = (failed > 0).then(|| {
        let sentence = format!("{failed} of {} locks could not be cleaned", names.len());
        Failure::new(Exit::Partial, "PARTIAL_FAILURE", &sentence)
            .with_text(format!("{text}; {sentence}"))
    });
    if reporter.is_text() {
        return failure.map_or(Ok((text, Value::Null)), Err);
    }
    let output = reporter.output;
    let facts = Facts {
        dry_run,
        stale_claims: claims,
        files_removed: files,
        locks: Each::of(locks.into_iter().map(|part| Part { output, part })),
    };
    let answer = match &failure {
        None => Ok(facts),
        Some(failure) => Err((failure, facts)),
    };
    let reporter = RefCell::new(reporter);
    let answered = write_envelope(&reporter, answer);
    let failed = failure.map(|failure| failure.exit);
    let exit = reporter.into_inner().ending(answered, failed);
    Err(Failure::already_said(exit, output))
}

/// What was done to all locks.
#[derive(Serialize)]
struct Facts<L> {
    dry_run: bool,
    stale_claims: usize,
    files_removed: usize,
    locks: L,
}

/// What was done to one lock.
#[derive(Serialize)]
struct CleanedLock<'a> {
    name: &'a str,
    stale_claims: usize,
    file_removed: bool,
}
