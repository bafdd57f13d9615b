//! `clean`: removes claims that are proven stale, and the files of unused locks.

use super::session::Session;
use crate::dialect::CallResult;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::render::Reporter;
use crate::render::stream::{DocumentPart, Each, write_envelope};
use crate::request::Clean;
use serde::{Serialize, Serializer};
use serde_json::Value;
use std::cell::RefCell;
use std::fmt::Write as _;
use tenure_core::LockName;
use tenure_engine::cleaning::{self, Step};
use tenure_engine::readings;
use tenure_store::contract::Which;
use tenure_store::{Cleaned, StoreError};

#[cold]
#[inline(never)]
pub(super) fn clean(clean: Clean, reporter: &mut Reporter) -> Result<(String, Value), Failure> {
    let Clean { place, dry_run } = clean;
    let session = Session::open(place)?;
    session.tell_place(reporter);
    let names = readings::names(&*session.store, Which::Locks)?;
    let mut done = Cleaning::of(names.len());
    let (store, clock) = (&*session.store, &session.clock);
    cleaning::clean(store, clock, names, dry_run, |step| {
        match step {
            Step::Lock(name, cleaned) => {
                if let Ok(cleaned) = &cleaned
                    && !dry_run
                {
                    session.record_cleaned(reporter, &name, cleaned)?;
                }
                done.add(reporter, name, cleaned)?;
            }
            Step::Leftover(Ok(cleaned)) => done.files += usize::from(cleaned.removed),
            Step::Signs(Ok(files)) => done.files += files,
            Step::Leftover(Err(error)) | Step::Signs(Err(error)) => {
                reporter.warn(error.to_string());
            }
        }
        Ok::<_, Failure>(())
    })?;
    done.answer(&session, dry_run, reporter)
}

/// What was done to all locks so far.
#[derive(Default)]
struct Cleaning {
    all: usize,
    claims: usize,
    files: usize,
    changed: usize,
    failed: usize,
    /// For people.
    text: String,
    /// For programs.
    locks: Vec<CleanedLock>,
}

impl Cleaning {
    fn of(all: usize) -> Self {
        Self {
            all,
            ..Self::default()
        }
    }

    fn add(
        &mut self,
        reporter: &mut Reporter,
        name: LockName,
        cleaned: Result<Cleaned, StoreError>,
    ) -> Result<(), Failure> {
        let cleaned = match cleaned {
            Ok(cleaned) => cleaned,
            // A lock that cannot be cleaned does not keep the others from being cleaned.
            Err(error) => {
                self.failed += 1;
                if self.all == 1 {
                    return Err(error.into());
                }
                reporter.warn(error.to_string());
                return Ok(());
            }
        };
        self.claims += cleaned.swept.len();
        self.files += usize::from(cleaned.removed);
        if cleaned.swept.is_empty() && !cleaned.removed {
            return Ok(());
        }
        self.changed += 1;
        if !reporter.is_text() {
            self.locks.push(CleanedLock {
                name,
                stale_claims: cleaned.swept.len(),
                file_removed: cleaned.removed,
            });
            return Ok(());
        }
        for claim in &cleaned.swept {
            let who = claim.holder.process.map_or_else(
                || format!("request {}", claim.holder.request_id),
                |process| format!("PID {}", process.pid),
            );
            let _ = writeln!(self.text, "{name}: the claim of {who}");
        }
        Ok(())
    }

    fn answer(
        self,
        session: &Session,
        dry_run: bool,
        reporter: &mut Reporter,
    ) -> Result<(String, Value), Failure> {
        let Self {
            all,
            claims,
            files,
            changed,
            failed,
            mut text,
            locks,
        } = self;
        text.push_str(&cleaning::removed(dry_run, claims, files));
        let done = CallResult::Cleaned {
            locks: changed,
            dry_run,
        };
        let text = session.text_of(&done, || text);
        let failure = (failed > 0).then(|| {
            let sentence = format!("{failed} of {all} locks could not be cleaned");
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
            locks: Each::of(locks.into_iter().map(|part| DocumentPart { output, part })),
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
struct CleanedLock {
    #[serde(serialize_with = "name")]
    name: LockName,
    stale_claims: usize,
    file_removed: bool,
}

fn name<S: Serializer>(name: &LockName, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(name.as_str())
}
