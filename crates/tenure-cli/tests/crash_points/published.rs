//! The transitions that put a published record to its path, renew it or take it away: every verb of every
//! format. A process that looks at the path afterwards sees a whole record, the one from before or the one
//! from after, or none where one of the two is none. The next caller goes on without help.
//!
//! In a format that judges by age alone (session, fleet), a killed run holds until its record has expired:
//! the test sets the record back.

use crate::driver::{
    FAILING_SAMPLE, Injection, Outcome, Point, Prepared, Scenario, asks_system, is_answer_lost,
};
use crate::page::{self, Aftermath};
use crate::support_crash::{Answer, Fault, Process, Site, was_killed, word};
use crate::support_published::{self, Format, plant};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// The owner whose hold stands before, where there is one.
const FIRST: &str = "first-1";
/// The caller that is killed.
const STRUCK: &str = "struck-1";

/// What stands before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Before {
    /// Nothing.
    Nothing,
    /// A stale record of another program.
    Stale,
    /// A hold of ours.
    Held,
    /// A hold of ours whose record's time lies a while back, so that a renewal changes it.
    HeldForAWhile,
}

/// What the killed process does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verb {
    Acquire,
    /// Over a live hold, where the format lets force do that.
    AcquireForcing,
    Run,
    Heartbeat,
    Release,
    Cancel,
    Clean,
}

#[derive(Debug, Clone, Copy)]
struct Transition {
    name: &'static str,
    format: Format,
    before: Before,
    verb: Verb,
}

const fn published(name: &'static str, format: Format, before: Before, verb: Verb) -> Transition {
    Transition {
        name,
        format,
        before,
        verb,
    }
}

impl Transition {
    /// The owner of detached holds.
    fn owner(&self) -> String {
        match self.format {
            Format::Sprint | Format::Resume => std::process::id().to_string(),
            Format::Session | Format::Fleet => "none".to_owned(),
        }
    }

    fn acquire<'a>(&self, owner: &'a str, id: &'a str) -> Vec<&'a str> {
        let mut words = vec!["--owner", owner, "--request-id", id, "--output", "json"];
        words.extend(self.format.insisting());
        words
    }

    /// The words of the killed call, and of the same one once more.
    fn words(&self, site: &Site) -> Vec<String> {
        let owner = self.owner();
        let format = self.format;
        match self.verb {
            Verb::Run => {
                let mut words = format.words(site, "run", format.insisting());
                let command = ["--request-id", STRUCK, "--", "sh", "-c", "echo in"];
                words.extend(command.map(str::to_owned));
                words
            }
            Verb::Acquire => format.words(site, "acquire", &self.acquire(&owner, STRUCK)),
            Verb::AcquireForcing => {
                let by = [
                    "--owner",
                    &owner,
                    "--request-id",
                    STRUCK,
                    "--output",
                    "json",
                ];
                format.words(site, "acquire", &[&by[..], &["--force", "--yes"]].concat())
            }
            Verb::Heartbeat => format.words(site, "heartbeat", &["--request-id", FIRST]),
            Verb::Release => format.words(site, "release", &["--request-id", FIRST]),
            Verb::Cancel => format.words(site, "cancel", &[]),
            Verb::Clean => {
                let mut words = format.words(site, "clean", &[]);
                // `clean` cleans all of a folder, and takes no name.
                words.remove(3);
                words
            }
        }
    }

    fn call(&self, site: &Site) -> Result<Answer, Fault> {
        let words = self.words(site);
        site.call(words.iter().map(String::as_str))
    }

    /// What another process finds at the path after the call, and whether the next caller goes on.
    fn looked_at(
        &self,
        site: &Site,
        before: Option<&str>,
        injection: &Injection,
    ) -> Result<Outcome, Fault> {
        let ledger = self.ledger(site);
        let known = page::tickets(&ledger);
        let words = self.words(site);
        let words = words.iter().map(String::as_str);
        let answer = Process::start(site.tenure_under(injection.strace(), words)).answer()?;
        let struck = was_killed(answer.status);
        let record = self.format.record(site);
        let after = whole(&record, self.format)?;
        let is_changed = after.as_deref() != before;
        let is_ours = is_changed && after.as_deref().is_some_and(|now| now.contains(STRUCK));
        match (self.verb, after.as_deref()) {
            // The call may not have come to anything.
            _ if !is_changed => {}
            (Verb::Acquire | Verb::AcquireForcing | Verb::Run, Some(_)) if is_ours => {}
            // A run releases at its end.
            (Verb::Run | Verb::Release | Verb::Clean, None) => {}
            // The id reached no reader, so the call gave back what it had.
            (Verb::Acquire | Verb::AcquireForcing, None) if is_answer_lost(&answer) => {}
            (Verb::Heartbeat, Some(now)) => crate::ensure!(
                now.contains(FIRST) && before.is_some_and(|before| before.len() == now.len()),
                "the renewed record is another: {now}"
            ),
            (verb, now) => return Err(format!("after {verb:?}: {now:?}, before: {before:?}")),
        }
        if !struck {
            let found = (after.is_some(), is_changed, is_ours);
            self.judge(site, &answer, injection, found)?;
        }
        let left = leftovers(&self.format.folder(site));
        let standing = self.hold(after.as_deref(), is_ours);
        let aftermath = Aftermath {
            disk: [
                match after.as_deref() {
                    None => "no record".to_owned(),
                    Some(_) if is_ours => "our record".to_owned(),
                    Some(_) if !is_changed => "the record before".to_owned(),
                    Some(_) => "the record before, renewed".to_owned(),
                },
                page::list(&ledger, &known),
            ]
            .into_iter()
            .chain(left)
            .collect::<Vec<_>>()
            .join("; "),
            then: match (standing, self.verb) {
                (Hold::Nobody, _) if after.is_some() => "the next caller, past what is dead",
                (Hold::Nobody, _) => "the next caller",
                (Hold::First, _) => "the holder before, undisturbed",
                (Hold::Struck, Verb::Run) => "the next caller, once it is too old",
                (Hold::Struck, _) => "its owner, by a release",
            }
            .to_owned(),
        };
        self.next(site, standing)?;
        let left = leftovers(&self.format.folder(site));
        crate::ensure!(left.is_empty(), "left behind: {left:?}");
        Ok(Outcome {
            struck,
            failed: !struck && !answer.is(0),
            after: Some(aftermath),
            ..Outcome::default()
        })
    }

    /// The coordination file beside the record.
    fn ledger(&self, site: &Site) -> PathBuf {
        let record = self.format.record(site);
        let name = record.file_name().and_then(|name| name.to_str());
        let name = name.expect("a name that is text");
        self.format
            .folder(site)
            .join(format!(".tenure/{name}.tenure"))
    }

    /// Whether the answer of a process that was not killed is the truth.
    fn judge(
        &self,
        site: &Site,
        answer: &Answer,
        injection: &Injection,
        (stands, is_changed, is_ours): (bool, bool, bool),
    ) -> Result<(), Fault> {
        let Injection::Fail(_, error) = injection else {
            crate::ensure!(answer.is(0), "not killed, and yet not as usual: {answer}");
            return Ok(());
        };
        if answer.is(0) {
            let done = match self.verb {
                Verb::Acquire | Verb::AcquireForcing => is_ours,
                Verb::Run => answer.out.contains("in"),
                Verb::Release => !stands,
                Verb::Heartbeat | Verb::Cancel | Verb::Clean => true,
            };
            crate::ensure!(done, "{error}: it claims what it has not done: {answer}");
            return Ok(());
        }
        crate::ensure!(
            !(answer.errors.is_empty() && answer.out.is_empty()),
            "{error} was not said aloud: {answer}"
        );
        if is_answer_lost(answer) {
            let is_right = match self.verb {
                Verb::Acquire | Verb::AcquireForcing => !is_ours,
                Verb::Release => !stands,
                Verb::Run | Verb::Heartbeat | Verb::Cancel | Verb::Clean => true,
            };
            crate::ensure!(is_right, "{error}: its answer is lost, and yet: {answer}");
            return Ok(());
        }
        crate::ensure!(
            matches!(answer.status.code(), Some(4 | 5 | 7 | 12 | 126)),
            "{error} was told by an unexpected code: {answer}"
        );
        // A release that is done is not denied: its owner would go on believing in its hold. A
        // sprint's answer is an object for which more is removed and read afterwards; there the
        // owner is told what failed, and that all is well when it asks again.
        let denied = self.verb == Verb::Release && is_changed && !stands;
        if denied && self.format == Format::Sprint {
            let again = self.call(site)?;
            crate::ensure!(again.is(0), "{error}: released, and no again: {again}");
            return Ok(());
        }
        crate::ensure!(
            !denied,
            "{error}: it is released, and the answer is no: {answer}"
        );
        Ok(())
    }

    /// The caller that has the lock by the rule of the format.
    fn hold(&self, after: Option<&str>, is_ours: bool) -> Hold {
        let by_age = matches!(self.format, Format::Session | Format::Fleet);
        match (self.before, self.verb) {
            _ if after.is_none() => Hold::Nobody,
            // The process is dead with it, or has released; only an age does not know.
            (_, Verb::Run) if is_ours && !by_age => Hold::Nobody,
            _ if is_ours => Hold::Struck,
            (Before::Held | Before::HeldForAWhile, _) => Hold::First,
            (Before::Nothing | Before::Stale, _) => Hold::Nobody,
        }
    }

    /// The next caller goes on.
    fn next(&self, site: &Site, hold: Hold) -> Result<(), Fault> {
        let owner = self.owner();
        let mine = self.acquire(&owner, "next-1");
        let release = |id: &str| -> Result<(), Fault> {
            let words = ["--request-id", id];
            let answer = self.format.start(site, "release", &words).answer()?;
            crate::ensure!(answer.is(0), "{id} cannot release: {answer}");
            let record = self.format.record(site);
            crate::ensure!(!record.exists(), "{id} has released and a record stands");
            Ok(())
        };
        let next = self.format.start(site, "acquire", &mine).answer()?;
        let is_held = hold != Hold::Nobody;
        crate::ensure!(
            next.is(if is_held { 4 } else { 0 }),
            "the next caller (expected to be refused: {is_held}): {next}"
        );
        match hold {
            Hold::Nobody => return release("next-1"),
            Hold::Struck if self.verb == Verb::Run => {
                let record = self.format.record(site);
                let text = std::fs::read_to_string(&record).map_err(|error| error.to_string())?;
                let old = earlier(&text, Duration::from_secs(17 * 60));
                crate::ensure!(old != text, "its time could not be set back");
                std::fs::write(&record, old).map_err(|error| error.to_string())?;
            }
            Hold::Struck => release(STRUCK)?,
            Hold::First => {
                if matches!(self.verb, Verb::Heartbeat | Verb::Cancel) {
                    let again = self.call(site)?;
                    crate::ensure!(again.is(0), "it cannot be done again: {again}");
                }
                release(FIRST)?;
            }
        }
        let next = self.format.start(site, "acquire", &mine).answer()?;
        crate::ensure!(next.is(0), "the next caller afterwards: {next}");
        release("next-1")
    }
}

impl Scenario for Transition {
    fn name(&self) -> &'static str {
        self.name
    }

    fn prepare(&self) -> Result<Prepared, Fault> {
        let site = Site::new();
        self.format.prepare(&site);
        let record = self.format.record(&site);
        match self.before {
            Before::Nothing => {}
            Before::Stale => plant(self.format, &site, &self.format.stale()),
            Before::Held | Before::HeldForAWhile => {
                let owner = self.owner();
                let words = self.acquire(&owner, FIRST);
                let answer = self.format.start(&site, "acquire", &words).answer()?;
                crate::ensure!(answer.is(0), "the test did not get the lock: {answer}");
            }
        }
        let mut text = whole(&record, self.format)?;
        if self.before == Before::HeldForAWhile {
            text = text.map(|text| earlier(&text, Duration::from_secs(20)));
            std::fs::write(&record, text.as_deref().unwrap_or_default())
                .map_err(|error| error.to_string())?;
        }
        Ok(Prepared {
            site,
            token: 0,
            record: text,
        })
    }

    fn copy(&self, prepared: &Prepared) -> Result<Site, Fault> {
        let copy = Site::new();
        let status = Command::new("cp")
            .args(["-a", word(&self.format.place(&prepared.site))])
            .arg(self.format.place(&copy))
            .status()
            .map_err(|error| error.to_string())?;
        crate::ensure!(status.success(), "no copy");
        Ok(copy)
    }

    fn place(&self, site: &Site) -> PathBuf {
        self.format.place(site)
    }

    fn try_once(
        &self,
        prepared: &Prepared,
        site: &Site,
        injection: &Injection,
    ) -> Result<Outcome, Fault> {
        self.looked_at(site, prepared.record.as_deref(), injection)
    }

    fn early_sample(&self) -> usize {
        60
    }

    fn failing_sample(&self) -> usize {
        FAILING_SAMPLE
    }

    /// Of a process that cannot read its own boot id, a record says less; then a sprint's rule makes it a
    /// dead one's. What the store does with its files is no part of that.
    fn may_fail(&self, point: &Point) -> bool {
        !asks_system(point)
    }
}

/// The caller that has the lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Hold {
    Nobody,
    /// The hold before.
    First,
    /// The caller that was struck.
    Struck,
}

/// What stands at the path; an error if it is not whole.
fn whole(record: &Path, format: Format) -> Result<Option<String>, Fault> {
    let text = match std::fs::read_to_string(record) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error.to_string()),
    };
    let is_whole = match format {
        Format::Sprint => text.contains("lock_version: 1\n") && text.ends_with('\n'),
        _ => serde_json::from_str::<serde_json::Value>(&text).is_ok(),
    };
    crate::ensure!(is_whole, "half a record: {text}");
    Ok(Some(text))
}

/// The record with its last renewal so long ago.
fn earlier(text: &str, old: Duration) -> String {
    let ago = support_published::time(std::time::SystemTime::now() - old);
    let mut text = text.to_owned();
    for field in ["\"acquiredAt\": \"", "\"last_heartbeat_at\": \""] {
        if let Some(start) = text.find(field) {
            let start = start + field.len();
            text.replace_range(start..start + 19, &ago[..19]);
        }
    }
    text
}

/// Files of a change that was cut short.
fn leftovers(folder: &Path) -> Vec<String> {
    let files = |folder: &Path| -> Vec<String> {
        std::fs::read_dir(folder)
            .map(|entries| {
                entries
                    .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
                    .collect()
            })
            .unwrap_or_default()
    };
    let mut left = files(folder);
    left.extend(files(&folder.join(".tenure")));
    left.retain(|file| {
        let end = Path::new(file).extension();
        end.is_some_and(|end| end == "new" || end == "old" || end == "tmp")
    });
    left
}

mod crash_points {
    use super::*;

    scenarios! {
        sprint_acquire: published("sprint acquire", Format::Sprint, Before::Nothing, Verb::Acquire);
        sprint_acquire_over_a_stale_record: published("sprint acquire over a stale record", Format::Sprint, Before::Stale, Verb::Acquire);
        sprint_acquire_by_force: published("sprint acquire by force over a live hold", Format::Sprint, Before::Held, Verb::AcquireForcing);
        sprint_run: published("sprint run", Format::Sprint, Before::Nothing, Verb::Run);
        sprint_run_over_a_stale_record: published("sprint run over a stale record", Format::Sprint, Before::Stale, Verb::Run);
        sprint_heartbeat: published("sprint heartbeat", Format::Sprint, Before::HeldForAWhile, Verb::Heartbeat);
        sprint_release: published("sprint release", Format::Sprint, Before::Held, Verb::Release);
        sprint_cancel: published("sprint cancel", Format::Sprint, Before::Held, Verb::Cancel);
        sprint_clean: published("sprint clean of a stale record", Format::Sprint, Before::Stale, Verb::Clean);
        resume_acquire: published("resume acquire", Format::Resume, Before::Nothing, Verb::Acquire);
        resume_acquire_over_a_stale_record: published("resume acquire over a stale record", Format::Resume, Before::Stale, Verb::Acquire);
        resume_acquire_by_force: published("resume acquire by force over a live hold", Format::Resume, Before::Held, Verb::AcquireForcing);
        resume_run: published("resume run", Format::Resume, Before::Nothing, Verb::Run);
        resume_run_over_a_stale_record: published("resume run over a stale record", Format::Resume, Before::Stale, Verb::Run);
        resume_heartbeat: published("resume heartbeat", Format::Resume, Before::HeldForAWhile, Verb::Heartbeat);
        resume_release: published("resume release", Format::Resume, Before::Held, Verb::Release);
        resume_cancel: published("resume cancel", Format::Resume, Before::Held, Verb::Cancel);
        resume_clean: published("resume clean of a stale record", Format::Resume, Before::Stale, Verb::Clean);
        session_acquire: published("session acquire", Format::Session, Before::Nothing, Verb::Acquire);
        session_acquire_over_a_stale_record: published("session acquire over a stale record", Format::Session, Before::Stale, Verb::Acquire);
        session_run: published("session run", Format::Session, Before::Nothing, Verb::Run);
        session_run_over_a_stale_record: published("session run over a stale record", Format::Session, Before::Stale, Verb::Run);
        session_heartbeat: published("session heartbeat", Format::Session, Before::HeldForAWhile, Verb::Heartbeat);
        session_release: published("session release", Format::Session, Before::Held, Verb::Release);
        session_cancel: published("session cancel", Format::Session, Before::Held, Verb::Cancel);
        session_clean: published("session clean of a stale record", Format::Session, Before::Stale, Verb::Clean);
        fleet_acquire: published("fleet acquire", Format::Fleet, Before::Nothing, Verb::Acquire);
        fleet_acquire_over_a_stale_record: published("fleet acquire over a stale record", Format::Fleet, Before::Stale, Verb::Acquire);
        fleet_run: published("fleet run", Format::Fleet, Before::Nothing, Verb::Run);
        fleet_run_over_a_stale_record: published("fleet run over a stale record", Format::Fleet, Before::Stale, Verb::Run);
        fleet_heartbeat: published("fleet heartbeat", Format::Fleet, Before::HeldForAWhile, Verb::Heartbeat);
        fleet_release: published("fleet release", Format::Fleet, Before::Held, Verb::Release);
        fleet_cancel: published("fleet cancel", Format::Fleet, Before::Held, Verb::Cancel);
        fleet_clean: published("fleet clean of a stale record", Format::Fleet, Before::Stale, Verb::Clean);
    }

    #[test]
    fn the_page_has_these_transitions_and_no_others() {
        page::all_are_tried(&["sprint ", "resume ", "session ", "fleet "], NAMES);
    }
}
