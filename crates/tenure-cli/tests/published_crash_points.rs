//! The program is killed at its system calls in the middle of the transitions that put a published
//! record to its path, renew it or take it away, and made to fail there. A process that looks at the path
//! afterwards sees a whole record, the one from before or the one from after, or none where one of
//! the two is none. The next caller goes on without help.
//!
//! `strace` kills the process as it enters a call. All calls from the first one that names the
//! folder of the records are tried but those that no other process notices; of those before, every 20th. The test of
//! the native locks (`crash_points.rs`) says more about the method.
//!
//! Every verb of every format is tried. By age alone (session, fleet) a run that was killed is held
//! until its time is over, which is those formats' own rule: the test sets the record back.
//!
//! Unix only: it works with shells, signals, links and rights. `windows.rs` has what Windows has.
#![cfg(unix)]
#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test says what it expects by failing, and its figures are for reading"
)]
#![allow(
    clippy::disallowed_methods,
    reason = "the other programs that the test plays know nothing of the store and its clock"
)]

mod support_crash;
mod support_matrix;
mod support_published;

use crate::support_crash::{
    Answer, Fault, Process, SOON, Site, is_long, need, try_each, was_killed, word,
};
use crate::support_matrix::{self as matrix, Aftermath};
use crate::support_published::{Format, plant};
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::time::Duration;
use tenure_engine::clock::instant;

/// Of the calls before the folder is opened, one in so many is tried.
const SAMPLE: usize = 20;

/// Of the failures, one in so many is tried unless [`is_long`].
const FAIL_SAMPLE: usize = 10;

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

/// What is done to the process.
#[derive(Debug, Clone)]
enum Injection {
    Kill,
    Fail(&'static str),
}

/// One call of the trace.
#[derive(Debug, Clone)]
struct Point {
    call: String,
    /// Which one of its name.
    nth: usize,
    /// Whether the folder of the records has been named by then.
    within: bool,
    /// Whether it asks the system for the caller's identity, and not what stands in the folder.
    asks_system: bool,
    /// Whether no other process notices it. Then a kill here shows what a kill at the next call shows.
    unnoticed: bool,
    /// The step that comes next of those that others can notice.
    step: String,
}

/// Whether all was done but the answer, which the system did not take.
fn is_answer_lost(answer: &Answer) -> bool {
    answer.is(1) && answer.errors.contains("the answer could not be written")
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
                // It cleans all of a folder, and takes no name.
                words.remove(3);
                words
            }
        }
    }

    fn call(&self, site: &Site) -> Result<Answer, Fault> {
        let words = self.words(site);
        site.call(words.iter().map(String::as_str))
    }

    /// The place as it is before, with the text of the record.
    fn prepare(&self) -> Result<(Site, Option<String>), Fault> {
        let site = Site::new();
        self.format.prepare(&site);
        let record = self.format.record(&site);
        match self.before {
            Before::Nothing => return Ok((site, None)),
            Before::Stale => plant(self.format, &site, &self.format.stale()),
            Before::Held | Before::HeldForAWhile => {
                let owner = self.owner();
                let words = self.acquire(&owner, FIRST);
                let answer = self.format.start(&site, "acquire", &words).answer()?;
                crate::ensure!(answer.is(0), "the test did not get the lock: {answer}");
            }
        }
        let mut text = std::fs::read_to_string(&record).map_err(|error| error.to_string())?;
        if self.before == Before::HeldForAWhile {
            text = earlier(&text, Duration::from_secs(20));
            std::fs::write(&record, &text).map_err(|error| error.to_string())?;
        }
        Ok((site, Some(text)))
    }

    fn copy(&self, site: &Site) -> Result<Site, Fault> {
        let copy = Site::new();
        let status = Command::new("cp")
            .args(["-a", word(&self.format.place(site))])
            .arg(self.format.place(&copy))
            .status()
            .map_err(|error| error.to_string())?;
        crate::ensure!(status.success(), "no copy");
        Ok(copy)
    }

    /// The calls of the transition.
    fn points(&self, site: &Site) -> Result<Vec<Point>, Fault> {
        let copy = self.copy(site)?;
        let file = copy.path("trace");
        let mut strace = Command::new("strace");
        strace.args(["-qq", "-y", "-e", "signal=none", "-o", word(&file)]);
        let words = self.words(&copy);
        let traced = copy.tenure_under(strace, words.iter().map(String::as_str));
        let answer = Process::start(traced).answer()?;
        crate::ensure!(answer.is(0), "the transition itself fails: {answer}");
        let trace = std::fs::read_to_string(&file).map_err(|error| error.to_string())?;
        let place = self.format.place(&copy);
        let steps = matrix::steps(&trace, word(&place));
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        let mut found = Vec::new();
        let mut within = false;
        for (shown, step) in trace.lines().zip(steps) {
            let Some((call, _)) = shown.split_once('(') else {
                continue;
            };
            let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
            if call.is_empty() || !call.chars().all(is_name) || call == "execve" {
                continue;
            }
            let nth = counts.entry(call).or_default();
            *nth += 1;
            within |= shown.contains(word(&place));
            let is_private = matches!(call, "mmap" | "munmap" | "brk" | "mprotect")
                || (call == "fcntl" && shown.contains("F_GETFD"));
            if !(within && is_private) {
                found.push(Point {
                    call: call.to_owned(),
                    nth: *nth,
                    within,
                    asks_system: ["/proc/", "/etc/"].iter().any(|it| shown.contains(it)),
                    unnoticed: matrix::is_unnoticed(shown, word(&place)),
                    step,
                });
            }
        }
        crate::ensure!(within, "the folder is not seen in the trace:\n{trace}");
        Ok(found)
    }

    /// Strikes at one call, and looks what the others find. What was seen, if a kill struck.
    fn try_once(
        &self,
        site: &Site,
        before: Option<&str>,
        point: &Point,
        injection: &Injection,
    ) -> Result<Option<Aftermath>, Fault> {
        let copy = self.copy(site)?;
        let ledger = self.ledger(&copy);
        let known = matrix::tickets(&ledger);
        let Point { call, nth, .. } = point;
        let what = match injection {
            Injection::Kill => "signal=KILL".to_owned(),
            Injection::Fail(error) => format!("error={error}"),
        };
        let mut strace = Command::new("strace");
        strace
            .args(["-qq", "-o", "/dev/null", "-e", "signal=none"])
            .args([
                format!("--trace={call}"),
                format!("--inject={call}:{what}:when={nth}"),
            ]);
        let words = self.words(&copy);
        let struck = copy.tenure_under(strace, words.iter().map(String::as_str));
        let struck = Process::start(struck).answer()?;
        let killed = was_killed(struck.status);
        let record = self.format.record(&copy);
        let after = whole(&record, self.format)?;
        let is_changed = after.as_deref() != before;
        let is_ours = is_changed && after.as_deref().is_some_and(|now| now.contains(STRUCK));
        match (self.verb, after.as_deref()) {
            // It may not have come to anything.
            _ if !is_changed => {}
            (Verb::Acquire | Verb::AcquireForcing | Verb::Run, Some(_)) if is_ours => {}
            // A run releases at its end.
            (Verb::Run | Verb::Release | Verb::Clean, None) => {}
            // Its id reached no reader, so the call gave back what it had.
            (Verb::Acquire | Verb::AcquireForcing, None) if is_answer_lost(&struck) => {}
            (Verb::Heartbeat, Some(now)) => crate::ensure!(
                now.contains(FIRST) && before.is_some_and(|before| before.len() == now.len()),
                "the renewed record is another: {now}"
            ),
            (verb, now) => return Err(format!("after {verb:?}: {now:?}, before: {before:?}")),
        }
        if !killed {
            let found = (after.is_some(), is_changed, is_ours);
            self.judge(&copy, &struck, injection, found)?;
        }
        let left = leftovers(&self.format.folder(&copy));
        let standing = self.hold(after.as_deref(), is_ours);
        let aftermath = Aftermath {
            disk: [
                match after.as_deref() {
                    None => "no record".to_owned(),
                    Some(_) if is_ours => "our record".to_owned(),
                    Some(_) if !is_changed => "the record before".to_owned(),
                    Some(_) => "the record before, renewed".to_owned(),
                },
                matrix::list(&ledger, &known),
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
        self.next(&copy, standing)?;
        let left = leftovers(&self.format.folder(&copy));
        crate::ensure!(left.is_empty(), "left behind: {left:?}");
        Ok(killed.then_some(aftermath))
    }

    /// The coordination file beside the record.
    fn ledger(&self, site: &Site) -> std::path::PathBuf {
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
        let Injection::Fail(error) = injection else {
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

    /// Which caller has the lock by the rule of the format.
    fn hold(&self, after: Option<&str>, is_ours: bool) -> Hold {
        let by_age = matches!(self.format, Format::Session | Format::Fleet);
        match (self.before, self.verb) {
            _ if after.is_none() => Hold::Nobody,
            // Its process is dead with it, or has released; only an age does not know.
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

    /// Tries all of these, some at once; what was seen, in order.
    fn try_all(
        &self,
        site: &Site,
        before: Option<&str>,
        strikes: &[(Point, Injection)],
    ) -> Vec<(String, Aftermath)> {
        let began = instant();
        let (tried, mut faults) = try_each(strikes, |(point, injection)| {
            let tried = self.try_once(site, before, point, injection);
            let step = || point.step.clone();
            tried
                .map(|after| after.map(|after| (step(), after)))
                .map_err(|fault| format!("{injection:?} at {point:?}: {fault}"))
        });
        let seen: Vec<_> = tried.into_iter().filter_map(|(_, seen)| seen).collect();
        println!(
            "{}: {} points, {} killed, {} wrong, {:.1} s",
            self.name,
            strikes.len(),
            seen.len(),
            faults.len(),
            tenure_engine::clock::since(began).as_secs_f64()
        );
        faults.truncate(8);
        assert!(faults.is_empty(), "{}:\n{}", self.name, faults.join("\n"));
        seen
    }

    fn begin(&self) -> (Site, Option<String>, Vec<Point>) {
        for tool in ["strace", "cp"] {
            need(tool);
        }
        let (site, before) = self.prepare().expect("a state to begin with");
        let points = self.points(&site).expect("a trace");
        (site, before, points)
    }

    fn crash(&self) {
        let (site, before, points) = self.begin();
        let (within, early): (Vec<_>, Vec<_>) = points.into_iter().partition(|point| point.within);
        let strikes: Vec<_> = early
            .into_iter()
            .step_by(SAMPLE)
            .chain(within)
            .map(|point| (point, Injection::Kill))
            .collect();
        let all = is_long() || matrix::is_written();
        let differs = |(point, _): &&(Point, Injection)| all || !point.within || !point.unnoticed;
        let distinct: Vec<_> = strikes.iter().filter(differs).cloned().collect();
        let is_enough = |seen: &[_], tried: &[_]| seen.len() * 10 >= tried.len() * 8;
        let mut seen = self.try_all(&site, before.as_deref(), &distinct);
        // A call more or less than under the trace strikes beside the point; then the others are tried too.
        if !(is_enough(&seen, &distinct) && matrix::agrees(self.name, &seen)) {
            seen = self.try_all(&site, before.as_deref(), &strikes);
            assert!(is_enough(&seen, &strikes), "the kills do not strike");
        }
        matrix::agree(self.name, &seen);
    }

    fn fail(&self) {
        let (site, before, points) = self.begin();
        let strikes: Vec<_> = points
            .into_iter()
            // Of a process that cannot read its own boot id, a record says less; then a sprint's
            // rule makes it a dead one's. What the store does with its files is no part of that.
            .filter(|point| point.within && !point.asks_system)
            .flat_map(|point| {
                errors(&point.call)
                    .iter()
                    .map(move |error| (point.clone(), Injection::Fail(error)))
            })
            .step_by(if is_long() { 1 } else { FAIL_SAMPLE })
            .collect();
        assert!(!strikes.is_empty(), "nothing was made to fail");
        let _ = self.try_all(&site, before.as_deref(), &strikes);
    }
}

/// Which caller has the lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Hold {
    Nobody,
    /// The hold before.
    First,
    /// The caller that was struck.
    Struck,
}

/// How a call is made to fail, once.
fn errors(call: &str) -> &'static [&'static str] {
    match call {
        "write" | "pwrite64" | "pwritev" => &["ENOSPC", "EIO", "EINTR"],
        "fsync" | "fdatasync" => &["EIO"],
        "read" | "pread64" => &["EIO", "EINTR"],
        "fcntl" => &["ENOLCK", "EINTR"],
        "open" | "openat" => &["EACCES", "EMFILE", "EINTR"],
        "renameat" | "renameat2" => &["EACCES", "EIO", "ENOSPC"],
        "mkdir" | "mkdirat" => &["EACCES", "ENOSPC"],
        "unlinkat" | "ftruncate" => &["EACCES", "EIO"],
        "ppoll" => &["EINTR"],
        _ => &[],
    }
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

    /// Each transition is killed at its calls, and made to fail at them.
    macro_rules! transitions {
        ($($test:ident: $name:literal, $format:ident, $before:ident, $verb:ident;)+) => {
            const NAMES: &[&str] = &[$($name),+];

            $(
                #[test]
                fn $test() {
                    transition($name, Format::$format, Before::$before, Verb::$verb).crash();
                }
            )+

            mod failing {
                use super::*;

                $(
                    #[test]
                    fn $test() {
                        transition($name, Format::$format, Before::$before, Verb::$verb).fail();
                    }
                )+
            }
        };
    }

    fn transition(name: &'static str, format: Format, before: Before, verb: Verb) -> Transition {
        Transition {
            name,
            format,
            before,
            verb,
        }
    }

    transitions! {
        sprint_acquire: "sprint acquire", Sprint, Nothing, Acquire;
        sprint_acquire_over_a_stale_record: "sprint acquire over a stale record", Sprint, Stale, Acquire;
        sprint_acquire_by_force: "sprint acquire by force over a live hold", Sprint, Held, AcquireForcing;
        sprint_run: "sprint run", Sprint, Nothing, Run;
        sprint_run_over_a_stale_record: "sprint run over a stale record", Sprint, Stale, Run;
        sprint_heartbeat: "sprint heartbeat", Sprint, HeldForAWhile, Heartbeat;
        sprint_release: "sprint release", Sprint, Held, Release;
        sprint_cancel: "sprint cancel", Sprint, Held, Cancel;
        sprint_clean: "sprint clean of a stale record", Sprint, Stale, Clean;
        resume_acquire: "resume acquire", Resume, Nothing, Acquire;
        resume_acquire_over_a_stale_record: "resume acquire over a stale record", Resume, Stale, Acquire;
        resume_acquire_by_force: "resume acquire by force over a live hold", Resume, Held, AcquireForcing;
        resume_run: "resume run", Resume, Nothing, Run;
        resume_run_over_a_stale_record: "resume run over a stale record", Resume, Stale, Run;
        resume_heartbeat: "resume heartbeat", Resume, HeldForAWhile, Heartbeat;
        resume_release: "resume release", Resume, Held, Release;
        resume_cancel: "resume cancel", Resume, Held, Cancel;
        resume_clean: "resume clean of a stale record", Resume, Stale, Clean;
        session_acquire: "session acquire", Session, Nothing, Acquire;
        session_acquire_over_a_stale_record: "session acquire over a stale record", Session, Stale, Acquire;
        session_run: "session run", Session, Nothing, Run;
        session_run_over_a_stale_record: "session run over a stale record", Session, Stale, Run;
        session_heartbeat: "session heartbeat", Session, HeldForAWhile, Heartbeat;
        session_release: "session release", Session, Held, Release;
        session_cancel: "session cancel", Session, Held, Cancel;
        session_clean: "session clean of a stale record", Session, Stale, Clean;
        fleet_acquire: "fleet acquire", Fleet, Nothing, Acquire;
        fleet_acquire_over_a_stale_record: "fleet acquire over a stale record", Fleet, Stale, Acquire;
        fleet_run: "fleet run", Fleet, Nothing, Run;
        fleet_run_over_a_stale_record: "fleet run over a stale record", Fleet, Stale, Run;
        fleet_heartbeat: "fleet heartbeat", Fleet, HeldForAWhile, Heartbeat;
        fleet_release: "fleet release", Fleet, Held, Release;
        fleet_cancel: "fleet cancel", Fleet, Held, Cancel;
        fleet_clean: "fleet clean of a stale record", Fleet, Stale, Clean;
    }

    #[test]
    fn the_page_has_these_transitions_and_no_others() {
        matrix::all_are_tried(&["sprint ", "resume ", "session ", "fleet "], NAMES);
    }

    const _: () = assert!(SOON.as_secs() > 5, "the program's own patience is seen");
}
