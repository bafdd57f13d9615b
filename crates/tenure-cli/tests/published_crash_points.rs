//! The program is killed at its system calls in the middle of the transitions that put a published
//! record to its path, renew it or take it away. Whoever looks at the path afterwards sees a whole
//! record, the one from before or the one from after, or none where one of the two is none; and
//! the next caller goes on without help.
//!
//! `strace` kills the process as it enters a call. All calls from the first one that names the
//! folder of the records are tried; of those before, every 20th. The test of the native locks
//! (`crash_points.rs`) says more about the method.
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
mod support_published;

use crate::support_crash::{Answer, Fault, Process, SOON, Site, need, was_killed, word};
use crate::support_published::{Format, plant};
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tenure::clock::instant;

/// Of the calls before the folder is opened, one in so many is tried.
const SAMPLE: usize = 20;

/// How many are tried at once.
const WORKERS: usize = 2;

/// The owner whose hold stands before, where there is one.
const FIRST: &str = "first-1";
/// The caller that is killed.
const STRUCK: &str = "struck-1";

/// What stands before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Before {
    /// A stale record of another program.
    Stale,
    /// A hold of ours.
    Held,
    /// A hold of ours whose record's time lies a while back, so that a renewal changes it.
    HeldForAWhile,
}

/// What the killed process does.
#[derive(Debug, Clone, Copy)]
struct Transition {
    name: &'static str,
    format: Format,
    before: Before,
    verb: &'static str,
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
        match self.verb {
            "run" => self.format.words(
                site,
                "run",
                &["--request-id", STRUCK, "--", "sh", "-c", "echo in"],
            ),
            "acquire" => self
                .format
                .words(site, "acquire", &self.acquire(&owner, STRUCK)),
            other => self.format.words(site, other, &["--request-id", FIRST]),
        }
    }

    fn call(&self, site: &Site) -> Result<Answer, Fault> {
        let words = self.words(site);
        site.call(words.iter().map(String::as_str))
    }

    /// The place as it is before, with the text of the record.
    fn prepare(&self) -> Result<(Site, String), Fault> {
        let site = Site::new();
        self.format.prepare(&site);
        let record = self.format.record(&site);
        match self.before {
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
            text = earlier(&text);
            std::fs::write(&record, &text).map_err(|error| error.to_string())?;
        }
        Ok((site, text))
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

    /// The calls at which to kill.
    fn points(&self, site: &Site) -> Result<Vec<(String, usize)>, Fault> {
        let copy = self.copy(site)?;
        let file = copy.path("trace");
        let mut strace = Command::new("strace");
        strace.args(["-qq", "-e", "signal=none", "-o", word(&file)]);
        let words = self.words(&copy);
        let traced = copy.tenure_under(strace, words.iter().map(String::as_str));
        let answer = Process::start(traced).answer()?;
        crate::ensure!(answer.is(0), "the transition itself fails: {answer}");
        let trace = std::fs::read_to_string(&file).map_err(|error| error.to_string())?;
        let place = self.format.place(&copy);
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        let (mut early, mut found) = (0, Vec::new());
        let mut within = false;
        for shown in trace.lines() {
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
            early += 1;
            let is_private = matches!(call, "mmap" | "munmap" | "brk" | "mprotect")
                || (call == "fcntl" && shown.contains("F_GETFD"));
            if (within && !is_private) || early % SAMPLE == 0 {
                found.push((call.to_owned(), *nth));
            }
        }
        crate::ensure!(within, "the folder is not seen in the trace:\n{trace}");
        Ok(found)
    }

    /// Kills at one call, and looks what the others find. Whether the kill struck.
    fn try_once(&self, site: &Site, text: &str, point: &(String, usize)) -> Result<bool, Fault> {
        let copy = self.copy(site)?;
        let (call, nth) = point;
        let mut strace = Command::new("strace");
        strace
            .args(["-qq", "-o", "/dev/null", "-e", "signal=none"])
            .args([
                format!("--trace={call}"),
                format!("--inject={call}:signal=KILL:when={nth}"),
            ]);
        let words = self.words(&copy);
        let struck = copy.tenure_under(strace, words.iter().map(String::as_str));
        let struck = Process::start(struck).answer()?;
        let killed = was_killed(struck.status);
        let record = self.format.record(&copy);
        let after = whole(&record, self.format)?;
        match (self.verb, after.as_deref()) {
            (_, Some(now)) if now == text => {
                crate::ensure!(
                    killed || self.verb == "heartbeat",
                    "it was not killed and has changed nothing: {struck}"
                );
            }
            ("acquire" | "run", Some(now)) => crate::ensure!(
                now.contains(STRUCK),
                "a record of neither the one before nor the next: {now}"
            ),
            ("acquire", None) => return Err("the stale record is away".to_owned()),
            ("heartbeat", Some(now)) => crate::ensure!(
                now.contains(FIRST) && now.len() == text.len(),
                "the renewed record is another: {now}"
            ),
            // A run releases at its end.
            ("run" | "release", None) => {}
            (verb, now) => return Err(format!("after {verb}: {now:?}")),
        }
        self.next(&copy, after.as_deref(), text)?;
        let left = leftovers(&self.format.folder(&copy));
        crate::ensure!(left.is_empty(), "left behind: {left:?}");
        Ok(killed)
    }

    /// The next caller goes on.
    fn next(&self, site: &Site, after: Option<&str>, before: &str) -> Result<(), Fault> {
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
        let is_held = match (self.verb, after) {
            // A granted hold lives by the rule of its format, whoever took it.
            ("acquire", Some(now)) => now != before,
            // Its process is dead with it.
            ("run", _) => false,
            (_, now) => now.is_some(),
        };
        crate::ensure!(
            next.is(if is_held { 4 } else { 0 }),
            "the next caller (expected to be refused: {is_held}): {next}"
        );
        if !is_held {
            return release("next-1");
        }
        match self.verb {
            "acquire" => release(STRUCK)?,
            "heartbeat" => {
                let again = self.call(site)?;
                crate::ensure!(again.is(0), "it cannot be renewed again: {again}");
                release(FIRST)?;
            }
            _ => release(FIRST)?,
        }
        let next = self.format.start(site, "acquire", &mine).answer()?;
        crate::ensure!(next.is(0), "the next caller after a release: {next}");
        release("next-1")
    }

    fn crash(&self) {
        for tool in ["strace", "cp"] {
            need(tool);
        }
        if !self.format.is_served() {
            return;
        }
        let began = instant();
        let (site, text) = self.prepare().expect("a state to begin with");
        let points = self.points(&site).expect("a trace");
        let (index, struck) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let faults = Mutex::new(Vec::new());
        std::thread::scope(|scope| {
            for _ in 0..WORKERS {
                scope.spawn(|| {
                    while let Some(point) = points.get(index.fetch_add(1, Ordering::Relaxed)) {
                        match self.try_once(&site, &text, point) {
                            Ok(killed) => {
                                struck.fetch_add(usize::from(killed), Ordering::Relaxed);
                            }
                            Err(fault) => faults
                                .lock()
                                .expect("no panic")
                                .push(format!("killed at {point:?}: {fault}")),
                        }
                    }
                });
            }
        });
        let mut faults = faults.into_inner().expect("no panic");
        let struck = struck.into_inner();
        println!(
            "{}: {} points, {struck} struck, {} wrong, {:.1} s",
            self.name,
            points.len(),
            faults.len(),
            began.elapsed().as_secs_f64()
        );
        faults.truncate(8);
        assert!(faults.is_empty(), "{}:\n{}", self.name, faults.join("\n"));
        assert!(struck * 10 >= points.len() * 8, "the kills do not strike");
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

/// The record with its last renewal some seconds earlier.
fn earlier(text: &str) -> String {
    let old = Duration::from_secs(20);
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

    #[test]
    fn session_acquire_over_a_stale_record() {
        Transition {
            name: "session acquire over a stale record",
            format: Format::Session,
            before: Before::Stale,
            verb: "acquire",
        }
        .crash();
    }

    #[test]
    fn resume_run_over_a_dead_holder() {
        Transition {
            name: "resume run over a dead holder",
            format: Format::Resume,
            before: Before::Stale,
            verb: "run",
        }
        .crash();
    }

    #[test]
    fn session_heartbeat() {
        Transition {
            name: "session heartbeat",
            format: Format::Session,
            before: Before::HeldForAWhile,
            verb: "heartbeat",
        }
        .crash();
    }

    #[test]
    fn fleet_heartbeat() {
        Transition {
            name: "fleet heartbeat",
            format: Format::Fleet,
            before: Before::HeldForAWhile,
            verb: "heartbeat",
        }
        .crash();
    }

    #[test]
    fn session_release() {
        Transition {
            name: "session release",
            format: Format::Session,
            before: Before::Held,
            verb: "release",
        }
        .crash();
    }

    const _: () = assert!(SOON.as_secs() > 5, "the program's own patience is seen");
}
