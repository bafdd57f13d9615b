//! The real binary is killed at each of its system calls in turn, and the next caller has to go
//! on alone.
//!
//! # How the points are found
//! Each transition runs once under `strace`, and the calls of that trace are the points: the
//! third `fcntl`, the second `pwrite64`. Then it runs again for each of them on a fresh copy of
//! the same state, and `strace` sends SIGKILL as the call is entered, so that it is not carried
//! out any more. What is seen afterwards is the state between two calls, for all pairs of them.
//!
//! # Which points are left out
//! - A call that no other process can notice (memory, signal dispositions: [`matrix::is_private`]) leaves
//!   the state as it was, so being killed after it is being killed before it; of a row of such calls
//!   one point is kept.
//! - The same is true of a call that only looks, or readies a descriptor ([`matrix::is_unnoticed`]).
//!   Such a point shows what the next one shows, and is left to the long run
//!   (`TENURE_CRASH_POINTS=long`); only where the command ends in between both are kept. All of them
//!   are made to fail.
//! - Before the folder of locks is opened nothing can have happened to it; of those points (the
//!   loader, the arguments) every [`SAMPLE`]th is kept.
//!
//! `strace` runs without `-f`: it counts the calls of each process by itself, and with `-f` the
//! third `openat` of the command would be struck as well as that of the program. The one instant
//! that this leaves out, between fork and exec, has a test of its own.
//!
//! # What holds afterwards
//! The command keeps the witness locked (`support_crash/witness.rs`), and lives until the test lets it
//! end. So a supervisor that was killed after the spawn always leaves a command at work. The next caller
//! must not start beside it, and has to learn that the lock is held. Once no process is left at work, the
//! next caller gets the lock, with a higher token than any before, and nothing stays in the folder but
//! what belongs there.
//!
//! Unix only: it works with shells, signals, links and rights. `windows.rs` has what Windows has.
#![cfg(unix)]
#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test says what it expects by failing, and its figures are for reading"
)]

mod support_crash;
mod support_matrix;

use crate::support_crash::{
    Answer, Fault, NAME, Process, SOON, Site, Standing, Started, children_of, eventually, is_long,
    need, try_each, was_killed, witness, word,
};
use crate::support_matrix::{self as matrix, Aftermath};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::process::{ChildStdin, Command};
use std::time::Duration;
use tenure_engine::clock::instant;

/// Of the points before the folder of locks is opened, and of the failures of the transitions that are
/// for the long run, one in so many is tried.
const SAMPLE: usize = 10;

/// How long a supervisor that is to be killed with its command at work may take to get there.
const STRIKE: Duration = Duration::from_secs(3);

/// How soon a caller that does not wait has to know that the lock is held. The program's own
/// patience with a change under way is 5 s.
const AT_ONCE: Duration = Duration::from_secs(2);

/// The longest time that a holder or waiter from before may take to end. Whatever happened to a later
/// caller, it does not delay their changes. That patience of 5 s would be longer.
const HELD_UP: Duration = Duration::from_secs(4);

/// The request ids of the detached hold that stands in the way, and of the call that is killed.
const FIRST: &str = "first-1";
const STRUCK: &str = "struck-1";

/// Works under the witness until its input ends: says its token, its supervisor's PID and its own.
const WORK: &str = concat!(
    crate::enter!(),
    r#"echo "$TENURE_TOKEN $PPID $$"; exec cat >/dev/null"#
);

/// Works under the witness for a moment.
const MOMENT: &str = concat!(crate::enter!(), r#"echo "$TENURE_TOKEN""#);

/// A transition.
struct Transition {
    name: &'static str,
    /// What stands in the folder before.
    before: Before,
    /// The live holder and waiter before.
    behind: Behind,
    verb: Verb,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Before {
    /// There is no folder.
    Nothing,
    /// The lock was used and is free.
    Free,
    /// A holder and a waiter were killed.
    Dead,
    /// The test holds it by `acquire`.
    Held,
    /// The same, with so much said about it that two claims do not fit into a small slot.
    HeldAtLength,
    /// The same, and a crowd of waiters was killed: their claims are most of a list in segments.
    HeldBeforeMany,
    /// It was used and cleaned away, and used again.
    Cleaned,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Behind {
    Nobody,
    /// A run, which ends once the transition waits.
    Run,
    /// The same, and a waiter behind it in a queue of one.
    RunAndWaiter,
    /// A detached hold, which is released once the transition waits.
    Detached,
    /// A detached hold, which stays.
    DetachedForGood,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verb {
    Run,
    /// With a lease so short that it is renewed all the time.
    RunRenewing,
    /// With a reason so long that the list outgrows its slot.
    RunAtLength,
    /// `--wait 50ms` behind a holder that stays.
    RunGivingUp,
    /// `--force`: asks the holder to stop.
    RunForcing,
    /// `--shared`, which takes the turn's byte as well while it waits.
    RunShared,
    /// `--slots 2`
    RunSlots,
    /// In a queue of one: it takes the place of the waiter there, and watches for losing its own.
    RunInSingle,
    /// The same, and the holder is asked to stop.
    RunSuperseding,
    /// `--wait 50ms --ticket auto` behind a holder that stays: its place is kept.
    RunParking,
    /// Takes a second lock as well.
    RunSeveral,
    Acquire,
    AcquireForcing,
    Release,
    Heartbeat,
    Clean,
    Cancel,
}

/// The second lock of a run that takes two.
const SECOND: &str = "second";

impl Verb {
    fn is_run(self) -> bool {
        matches!(
            self,
            Self::Run
                | Self::RunRenewing
                | Self::RunAtLength
                | Self::RunGivingUp
                | Self::RunForcing
                | Self::RunShared
                | Self::RunSlots
                | Self::RunInSingle
                | Self::RunSuperseding
                | Self::RunParking
                | Self::RunSeveral
        )
    }

    /// Whether the holder before may be asked to stop by it.
    fn asks_to_stop(self) -> bool {
        matches!(self, Self::RunForcing | Self::RunSuperseding)
    }

    fn words(self, site: &Site) -> Vec<String> {
        let own = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
        let me = std::process::id().to_string();
        let mut words: Vec<String> = match self {
            Self::Run => own(&["run", NAME, "--wait", "10s"]),
            Self::RunRenewing => own(&["run", NAME, "--wait", "10s", "--ttl", "60ms"]),
            Self::RunAtLength => own(&["run", NAME, "--wait", "50ms", "--why", &long()]),
            Self::RunGivingUp => own(&["run", NAME, "--wait", "50ms"]),
            Self::RunForcing => own(&["run", NAME, "--wait", "10s", "--force"]),
            Self::Acquire => {
                let by = ["--owner", &me, "--request-id", STRUCK, "--wait", "10s"];
                own(&[&["acquire", NAME, "--output", "json"], &by[..]].concat())
            }
            Self::AcquireForcing => {
                let by = ["--owner", &me, "--request-id", STRUCK, "--force", "--yes"];
                own(&[&["acquire", NAME, "--output", "json"], &by[..]].concat())
            }
            Self::Release => own(&["release", NAME, "--request-id", FIRST, "--output", "json"]),
            Self::Heartbeat => own(&["heartbeat", NAME, "--request-id", FIRST]),
            Self::Clean => own(&["clean"]),
            Self::Cancel => own(&["cancel", NAME, "--output", "json"]),
            Self::RunShared => own(&["run", NAME, "--wait", "10s", "--shared"]),
            Self::RunSlots => own(&["run", NAME, "--wait", "10s", "--slots", "2"]),
            Self::RunInSingle => own(&["run", NAME, "--wait", "10s", "--queue", "single"]),
            Self::RunSuperseding => own(&["run", NAME, "--wait", "10s", "--cancel-in-progress"]),
            Self::RunParking => own(&["run", NAME, "--wait", "50ms", "--ticket", "auto"]),
            Self::RunSeveral => own(&["run", NAME, "--wait", "10s", "--lock", SECOND]),
        };
        if self.is_run() {
            words.extend(working(WORK, site));
        }
        words
    }
}

/// The command behind `--`.
fn working(script: &str, site: &Site) -> Vec<String> {
    let witness = site.witness();
    ["--", "bash", "-c", script, word(&witness)]
        .map(str::to_owned)
        .to_vec()
}

/// As much as is kept of a reason, in the widest letters.
fn long() -> String {
    "\u{1f512}".repeat(200)
}

/// The state that a transition begins with.
struct Prepared {
    site: Site,
    /// The highest token that the test has seen.
    token: u64,
}

impl Before {
    fn prepare(self) -> Result<Prepared, Fault> {
        let site = Site::new();
        let mut token = 0;
        match self {
            Self::Nothing => {}
            Self::Free => token = next(&site, 0)?,
            Self::Dead => token = leave_dead_claims(&site)?,
            Self::Held => token = hold(&site, "held by the test")?,
            Self::HeldAtLength => token = hold(&site, &long())?,
            Self::HeldBeforeMany => {
                token = hold(&site, "held by the test")?;
                leave_dead_crowd(&site)?;
            }
            Self::Cleaned => {
                next(&site, 0)?;
                let answer = site.call(["clean"])?;
                crate::ensure!(answer.is(0), "clean failed: {answer}");
                token = next(&site, 0)?;
            }
        }
        Ok(Prepared { site, token })
    }
}

/// Takes the lock in the test's own name.
fn hold(site: &Site, why: &str) -> Result<u64, Fault> {
    let me = std::process::id().to_string();
    let words = ["acquire", NAME, "--owner", &me, "--request-id", FIRST];
    let more = ["--why", why, "--output", "json"];
    let answer = site.call(words.into_iter().chain(more))?;
    crate::ensure!(answer.is(0), "the test did not get the lock: {answer}");
    token_in(&answer)
}

/// A run and one that waits behind it, both killed with all that belongs to them.
fn leave_dead_claims(site: &Site) -> Result<u64, Fault> {
    let words = Verb::Run.words(site);
    let mut holder = Process::start_with_input(site.tenure(words.iter().map(String::as_str)));
    let started = Started::of(holder.line()?)?;
    let mut waiter = Process::start(site.tenure(words.iter().map(String::as_str)));
    crate::ensure!(waiter.says("waiting up to")?, "the second run did not wait");
    waiter.kill(rustix::process::Signal::KILL);
    waiter.wait()?;
    holder.kill(rustix::process::Signal::KILL);
    holder.wait()?;
    // The command ends with its input, and is gone once its output is closed.
    holder.end_input();
    eventually("the end of the command", || {
        !std::path::Path::new(&format!("/proc/{}", started.command)).exists()
    })?;
    Ok(started.token)
}

/// Leaves so many claims of waiters that were killed that their list stands in segments.
fn leave_dead_crowd(site: &Site) -> Result<(), Fault> {
    const CROWD: usize = 24;
    let words = Verb::RunAtLength
        .words(site)
        .join("\n")
        .replace("50ms", "10m");
    let start = |_| Process::start(site.tenure(words.split('\n')));
    let mut crowd: Vec<Process> = (0..CROWD).map(start).collect();
    for waiter in &mut crowd {
        crate::ensure!(waiter.says("waiting up to")?, "a run did not wait");
    }
    for waiter in &crowd {
        waiter.kill(rustix::process::Signal::KILL);
    }
    for waiter in &mut crowd {
        waiter.wait()?;
    }
    let list = site.locks().join(format!("{NAME}.tenure"));
    let list = std::fs::read(list).map_err(|error| error.to_string())?;
    let has_segments = String::from_utf8_lossy(&list).contains("{\"segments\":[[");
    crate::ensure!(has_segments, "the list is too short for segments");
    Ok(())
}

fn token_in(answer: &Answer) -> Result<u64, Fault> {
    serde_json::from_str::<serde_json::Value>(&answer.out)
        .ok()
        .and_then(|document| document["data"]["token"].as_u64())
        .ok_or_else(|| format!("no token in the answer: {answer}"))
}

/// The next caller. It waits for 5 s at most.
struct Next(Process);

impl Next {
    fn start(site: &Site) -> Self {
        let words = ["run", NAME, "--wait", "5s"].map(str::to_owned);
        let command = working(MOMENT, site);
        let words = words.iter().chain(&command).map(String::as_str);
        Self(Process::start(site.tenure(words)))
    }

    /// It waits in the queue for a holder, `whom`.
    fn waits(&mut self, whom: &str) -> Result<(), Fault> {
        if self.0.says("waiting up to")? {
            return Ok(());
        }
        let line = self.0.line()?;
        let status = self.0.wait()?;
        Err(format!(
            "the next caller did not wait for {whom}: it said {line:?} and ended with {status}"
        ))
    }

    /// It gets the lock, with a token above `above`.
    fn works(self, above: u64) -> Result<u64, Fault> {
        let answer = self.0.answer()?;
        crate::ensure!(
            !answer.is(witness::OVERLAP),
            "the next caller's command started beside another one: {answer}"
        );
        crate::ensure!(
            answer.is(0),
            "the next caller did not get the lock: {answer}"
        );
        let token = answer
            .out
            .trim()
            .parse()
            .map_err(|_| format!("the next caller had no token: {answer}"))?;
        crate::ensure!(
            token > above,
            "the next caller's token {token} is not above {above}, which was shown before"
        );
        Ok(token)
    }
}

/// Lets the next caller work on a lock that should be free, and looks at what is left afterwards.
fn next(site: &Site, above: u64) -> Result<u64, Fault> {
    let token = Next::start(site).works(above)?;
    all_is_quiet(site)?;
    Ok(token)
}

/// The lock is free, and no file is left behind.
fn all_is_quiet(site: &Site) -> Result<(), Fault> {
    let standing = site.check()?;
    crate::ensure!(
        standing.code == 0 && standing.word == "free" && standing.queue.is_empty(),
        "the lock is not free after all have left: {standing:?}"
    );
    let locks = [NAME, SECOND].map(|name| format!("{name}.tenure"));
    let strange: Vec<String> = site
        .files()
        .into_iter()
        // The second kind remembers the numbers of locks that were cleaned away.
        .filter(|file| !locks.contains(file) && !file.starts_with(".floor."))
        .collect();
    // What was never made is free.
    if site.locks().join(format!("{SECOND}.tenure")).exists() {
        let second = site.call(["check", SECOND])?;
        crate::ensure!(second.is(0), "the second lock is not free: {second}");
    }
    crate::ensure!(
        strange.is_empty(),
        "something was left behind in the folder: {strange:?}"
    );
    Ok(())
}

/// The holder and the waiter before.
struct Blocker {
    run: Option<Process>,
    waiter: Option<Process>,
    detached: bool,
}

impl Blocker {
    fn start(behind: Behind, site: &Site, seen: &mut u64) -> Result<Self, Fault> {
        let mut run = None;
        let mut waiter = None;
        if matches!(behind, Behind::Run | Behind::RunAndWaiter) {
            let words = Verb::Run.words(site);
            let words = words.iter().map(String::as_str);
            let mut holder = Process::start_with_input(site.tenure(words));
            *seen = (*seen).max(Started::of(holder.line()?)?.token);
            // The command says so before its supervisor has written down its PID.
            eventually("the name of the command", || {
                site.check().is_ok_and(|it| it.command_pid.is_some())
            })?;
            run = Some(holder);
        }
        if behind == Behind::RunAndWaiter {
            let words = Verb::RunInSingle.words(site);
            let words = words.iter().map(String::as_str);
            let mut waiting = Process::start_with_input(site.tenure(words));
            crate::ensure!(waiting.says("waiting up to")?, "the waiter did not wait");
            waiter = Some(waiting);
        }
        Ok(Self {
            run,
            waiter,
            detached: matches!(behind, Behind::Detached | Behind::DetachedForGood),
        })
    }

    fn is_there(&self) -> bool {
        self.run.is_some() || self.detached
    }

    fn end(&mut self, site: &Site) -> Result<(), Fault> {
        let began = instant();
        self.end_at_length(site)?;
        let took = instant().saturating_duration_since(began);
        crate::ensure!(
            took < HELD_UP,
            "the holder and the waiter before were held up for {took:?}"
        );
        Ok(())
    }

    fn end_at_length(&mut self, site: &Site) -> Result<(), Fault> {
        // Should it get the lock, it has nothing to do.
        if let Some(waiter) = &mut self.waiter {
            waiter.end_input();
        }
        if let Some(mut run) = self.run.take() {
            run.end_input();
            let status = run.wait()?;
            // Asked to stop, it answers so (79).
            crate::ensure!(
                matches!(status.code(), Some(0 | 79)),
                "the holder before ended with {status}"
            );
        }
        if let Some(mut waiter) = self.waiter.take() {
            let status = waiter.wait()?;
            crate::ensure!(
                matches!(status.code(), Some(0 | 79)),
                "the waiter before ended with {status}"
            );
        }
        if std::mem::take(&mut self.detached) {
            let answer = site.call(["release", NAME, "--request-id", FIRST])?;
            crate::ensure!(answer.is(0), "the hold before was not released: {answer}");
        }
        Ok(())
    }
}

/// When a call is made in the life of the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Phase {
    /// Before the folder of locks is opened.
    Early,
    /// Until the command has ended, where there is one.
    Middle,
    /// Afterwards.
    Late,
}

/// One call of the trace.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Point {
    call: String,
    /// Which one of its name.
    nth: usize,
    phase: Phase,
    /// Whether being killed here shows what being killed at the next point shows.
    alike: bool,
    /// As the trace shows it.
    shown: String,
    /// The step that comes next, this call included, of those that others can notice.
    step: String,
}

/// What is done to the process.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Injection {
    /// Nothing; the trace goes to this file.
    Trace(std::path::PathBuf),
    /// SIGKILL as the call is entered.
    Kill(Point),
    /// The call is not carried out and answers with this error, once.
    Fail(Point, &'static str),
}

impl Injection {
    fn strace(&self) -> Command {
        let mut strace = Command::new("strace");
        strace.args(["-qq", "-e", "signal=none"]);
        match self {
            Self::Trace(file) => strace.args(["-y", "-e", "signal=SIGCHLD", "-o", word(file)]),
            Self::Kill(point) => strace.args(["-o", "/dev/null"]).args([
                format!("--trace={}", point.call),
                format!("--inject={}:signal=KILL:when={}", point.call, point.nth),
            ]),
            Self::Fail(point, error) => strace.args(["-o", "/dev/null"]).args([
                format!("--trace={}", point.call),
                format!("--inject={}:error={error}:when={}", point.call, point.nth),
            ]),
        };
        strace
    }

    /// Whether the process is to die with its command at work.
    fn strikes_at_work(&self) -> bool {
        matches!(self, Self::Kill(point) if point.phase != Phase::Late)
    }
}

/// Reads a trace. The first line that names the folder of locks ends the early phase; the first
/// SIGCHLD begins the late one.
fn points(trace: &str, locks: &str) -> Vec<Point> {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    let mut phase = Phase::Early;
    let mut found = Vec::new();
    let mut steps = matrix::steps(trace, locks).into_iter();
    for shown in trace.lines() {
        let step = steps.next().unwrap_or_default();
        if shown.starts_with("--- SIGCHLD") {
            phase = phase.max(Phase::Late);
        }
        let Some((call, _)) = shown.split_once('(') else {
            continue;
        };
        let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
        // Strace begins to count after the call that starts the program.
        if call.is_empty() || !call.chars().all(is_name) || call == "execve" {
            continue;
        }
        if phase == Phase::Early && shown.contains(locks) {
            phase = Phase::Middle;
        }
        let nth = counts.entry(call).or_default();
        *nth += 1;
        found.push(Point {
            call: call.to_owned(),
            nth: *nth,
            phase,
            alike: matrix::is_unnoticed(shown, locks),
            shown: shown.chars().take(240).collect(),
            step,
        });
    }
    let phases: Vec<Phase> = found.iter().map(|point| point.phase).collect();
    for (index, point) in found.iter_mut().enumerate() {
        point.alike &= phases.get(index + 1) == Some(&point.phase);
    }
    found
}

/// How one try went.
#[derive(Debug, Default)]
struct Outcome {
    /// The process was killed by us.
    struck: bool,
    /// Its command was at work then.
    at_work: bool,
    /// The process failed, as it should where it was made to.
    failed: bool,
    /// What was seen then.
    after: Option<Aftermath>,
}

impl Transition {
    /// The points of this transition.
    fn trace(&self, prepared: &Prepared) -> Result<Vec<Point>, Fault> {
        let file = prepared.site.path("trace");
        let outcome = self.try_once(prepared, &Injection::Trace(file.clone()))?;
        crate::ensure!(
            !outcome.struck,
            "{}: killed, and not by the test",
            self.name
        );
        let trace = std::fs::read_to_string(&file).map_err(|error| error.to_string())?;
        let found = points(&trace, "/locks");
        crate::ensure!(
            found.iter().any(|point| point.phase == Phase::Middle),
            "{}: the folder of locks is not seen in the trace:\n{trace}",
            self.name
        );
        Ok(found)
    }

    /// Runs the transition on a copy of its state, does what is to be done to it, and looks what
    /// the next caller finds.
    fn try_once(&self, prepared: &Prepared, injection: &Injection) -> Result<Outcome, Fault> {
        let site = prepared.site.copy();
        let mut seen = prepared.token;
        let mut blocker = Blocker::start(self.behind, &site, &mut seen)?;
        let known = Known::of(&site);
        let words = self.verb.words(&site);
        let words = words.iter().map(String::as_str);
        let mut struck = Process::start_with_input(site.tenure_under(injection.strace(), words));
        let waits = matches!(
            self.behind,
            Behind::Run | Behind::RunAndWaiter | Behind::Detached
        );
        if waits && struck.says("waiting up to")? {
            blocker.end(&site)?;
        }
        if self.verb.is_run() {
            self.after_run(&site, struck, injection, blocker, (seen, &known))
        } else {
            let struck = struck.answer()?;
            self.after_others(&site, &struck, injection, blocker, (seen, &known))
        }
    }

    fn after_run(
        &self,
        site: &Site,
        mut struck: Process,
        injection: &Injection,
        mut blocker: Blocker,
        (mut seen, known): (u64, &Known),
    ) -> Result<Outcome, Fault> {
        let mut input = struck.take_input();
        if matches!(injection, Injection::Fail(..)) {
            input = None;
        }
        let started = match struck.line()? {
            None => None,
            some => Some(Started::of(some)?),
        };
        if let Some(started) = &started {
            crate::ensure!(
                started.token > seen,
                "the token {} is not above {seen}",
                started.token
            );
            seen = started.token;
            let dies = injection.strikes_at_work() && struck.ends_within(STRIKE);
            if !dies {
                self.settle(&struck, started.supervisor, injection)?;
                input = None;
            }
        } else {
            input = None;
        }
        let at_work = input.is_some();
        let answer = if at_work {
            let status = struck.wait()?;
            crate::ensure!(
                was_killed(status),
                "the supervisor left its command behind and ended with {status}"
            );
            None
        } else {
            Some(struck.answer()?)
        };
        let (after, standing) = known.aftermath(site, at_work, blocker.is_there())?;
        let outcome = Outcome {
            struck: answer
                .as_ref()
                .is_none_or(|answer| was_killed(answer.status)),
            at_work,
            failed: answer
                .as_ref()
                .is_some_and(|answer| !answer.is(0) && !was_killed(answer.status)),
            after: Some(after),
        };
        if let Some(answer) = &answer {
            self.judge(answer, injection, started.is_some())?;
        }
        if let Some(input) = input {
            passes_on_when_work_ends(site, &standing, input, seen)?;
        } else if blocker.is_there() {
            let mut next = Next::start(site);
            if self.verb.asks_to_stop() {
                // The holder may have been asked to stop, and be gone by now.
                blocker.end(site)?;
            } else {
                next.waits("the holder before")?;
                blocker.end(site)?;
            }
            next.works(seen)?;
        } else {
            crate::ensure!(
                standing.is_free(),
                "no process is at work and the lock is not free: {standing:?}"
            );
            Next::start(site).works(seen)?;
        }
        all_is_quiet(site)?;
        Ok(outcome)
    }

    /// Waits until a supervisor has done all that comes before its command's end, so that what
    /// comes after stands at the same place in every trace.
    fn settle(
        &self,
        process: &Process,
        supervisor: u32,
        injection: &Injection,
    ) -> Result<(), Fault> {
        if matches!(injection, Injection::Fail(..)) {
            return Ok(());
        }
        eventually("the watch of the supervisor", || {
            process.ends_within(Duration::ZERO) || watches(supervisor)
        })?;
        if self.verb == Verb::RunRenewing {
            // Some renewals go into the trace.
            process.ends_within(Duration::from_millis(80));
        }
        Ok(())
    }

    /// Whether a run that was not killed ended as it has to.
    fn judge(&self, answer: &Answer, injection: &Injection, worked: bool) -> Result<(), Fault> {
        if was_killed(answer.status) {
            return Ok(());
        }
        if let Injection::Fail(point, error) = injection {
            return self.judge_failure(answer, point, error, worked);
        }
        let gives_up = self.behind == Behind::DetachedForGood;
        crate::ensure!(
            answer.is(if gives_up { 4 } else { 0 }) && worked != gives_up,
            "not killed, and yet not as usual: {answer}"
        );
        Ok(())
    }

    /// A call that was made to fail is told loudly, or overcome. Success is never claimed for
    /// work that was not done.
    fn judge_failure(
        &self,
        answer: &Answer,
        point: &Point,
        error: &str,
        worked: bool,
    ) -> Result<(), Fault> {
        let gives_up = self.behind == Behind::DetachedForGood;
        if worked {
            crate::ensure!(
                answer.is(0),
                "the command was done and its code is not passed on: {answer}"
            );
            return Ok(());
        }
        let allowed: &[i32] = match (gives_up, point.call.as_str()) {
            (true, _) => &[4, 7, 12],
            // The liveness lock's copy for the command could not be made.
            (false, "fcntl")
                if point.shown.contains(", 57)") || point.shown.starts_with("fcntl(57") =>
            {
                &[7, 12, 126]
            }
            (false, _) => &[7, 12],
        };
        crate::ensure!(
            answer
                .status
                .code()
                .is_some_and(|code| allowed.contains(&code)),
            "{error} was not told by one of {allowed:?}: {answer}"
        );
        crate::ensure!(
            !answer.errors.is_empty(),
            "{error} was not said aloud: {answer}"
        );
        Ok(())
    }

    fn after_others(
        &self,
        site: &Site,
        struck: &Answer,
        injection: &Injection,
        mut blocker: Blocker,
        (mut seen, known): (u64, &Known),
    ) -> Result<Outcome, Fault> {
        let (after, standing) = known.aftermath(site, false, true)?;
        let outcome = Outcome {
            struck: was_killed(struck.status),
            at_work: false,
            failed: !struck.is(0) && !was_killed(struck.status),
            after: Some(after),
        };
        if outcome.failed {
            crate::ensure!(
                matches!(injection, Injection::Fail(..))
                    && (struck.is(7) || struck.is(12))
                    && !(struck.errors.is_empty() && struck.out.is_empty()),
                "it failed in an unexpected way: {struck}"
            );
        }
        match self.verb {
            Verb::Acquire => {
                seen = self.after_acquire(site, struck, &standing, &mut blocker, seen)?;
            }
            Verb::AcquireForcing => {
                let ours = standing.is_held_by(STRUCK);
                crate::ensure!(
                    ours || standing.is_held_by(FIRST),
                    "held by neither the old holder nor the new one: {standing:?}"
                );
                if ours {
                    let token = standing.token.unwrap_or(0);
                    crate::ensure!(token > seen, "{token} is not above {seen}");
                    seen = token;
                }
                held_then_released(site, if ours { STRUCK } else { FIRST })?;
            }
            Verb::Release => {
                let held = standing.is_held_by(FIRST);
                crate::ensure!(
                    held || standing.is_free(),
                    "neither its owner's nor free: {standing:?}"
                );
                let lied = (struck.is(0) && held) || (outcome.failed && !held);
                crate::ensure!(
                    !lied,
                    "release did not do what it answered: {struck}, {standing:?}"
                );
                if held {
                    held_then_released(site, FIRST)?;
                } else {
                    let again = site.call(["release", NAME, "--request-id", FIRST])?;
                    crate::ensure!(again.is(0), "releasing again did not succeed: {again}");
                }
            }
            Verb::Heartbeat => {
                crate::ensure!(standing.is_held_by(FIRST), "the hold is gone: {standing:?}");
                let again = site.call(["heartbeat", NAME, "--request-id", FIRST])?;
                crate::ensure!(again.is(0), "renewing again did not succeed: {again}");
                held_then_released(site, FIRST)?;
            }
            Verb::Clean => {
                crate::ensure!(standing.is_free(), "it is not free: {standing:?}");
                let again = site.call(["clean"])?;
                crate::ensure!(again.is(0), "cleaning again did not succeed: {again}");
            }
            Verb::Cancel => {
                crate::ensure!(standing.is_held_by(FIRST), "the hold is gone: {standing:?}");
                let again = site.call(["cancel", NAME])?;
                crate::ensure!(again.is(0), "asking again did not succeed: {again}");
                held_then_released(site, FIRST)?;
            }
            Verb::Run
            | Verb::RunRenewing
            | Verb::RunAtLength
            | Verb::RunGivingUp
            | Verb::RunForcing
            | Verb::RunShared
            | Verb::RunSlots
            | Verb::RunInSingle
            | Verb::RunSuperseding
            | Verb::RunParking
            | Verb::RunSeveral => return Err("a run is judged elsewhere".to_owned()),
        }
        blocker.end(site)?;
        next(site, seen)?;
        Ok(outcome)
    }

    /// The lock is the owner's or free, and the owner gets it by asking again.
    fn after_acquire(
        &self,
        site: &Site,
        struck: &Answer,
        standing: &Standing,
        blocker: &mut Blocker,
        seen: u64,
    ) -> Result<u64, Fault> {
        let ours = standing.is_held_by(STRUCK);
        crate::ensure!(
            ours || standing.is_free() || (blocker.is_there() && standing.is_held()),
            "neither its owner's nor free: {standing:?}"
        );
        crate::ensure!(
            !struck.is(0) || ours,
            "acquire said yes and the lock is not held: {standing:?}"
        );
        let again = self.verb.words(site);
        let mut again = Process::start(site.tenure(again.iter().map(String::as_str)));
        if blocker.is_there() {
            crate::ensure!(
                again.says("waiting up to")?,
                "asking again did not wait for the holder before"
            );
            blocker.end(site)?;
        }
        let again = again.answer()?;
        crate::ensure!(
            again.is(0),
            "asking again with the same request id did not succeed: {again}"
        );
        let token = token_in(&again)?;
        crate::ensure!(
            token > seen && (!ours || Some(token) == standing.token),
            "the token {token} is not above {seen}, or not that of {standing:?}"
        );
        held_then_released(site, STRUCK)?;
        Ok(token)
    }
}

/// The standing of a lock under which no process works any more, once its command has really ended. On a
/// loaded machine the command may last long enough for the supervisor to look at the lock in between. The same
/// count of calls then strikes earlier than it was traced, while the command is still about to end.
fn free_soon(site: &Site) -> Result<Standing, Fault> {
    let mut standing = site.check()?;
    for _ in 0..200 {
        if standing.is_free() {
            break;
        }
        std::thread::sleep(Duration::from_millis(10));
        standing = site.check()?;
    }
    Ok(standing)
}

/// The tickets that were in the lists before.
struct Known([std::collections::BTreeSet<u64>; 2]);

impl Known {
    fn of(site: &Site) -> Self {
        let tickets = |name| matrix::tickets(&site.locks().join(format!("{name}.tenure")));
        Self([NAME, SECOND].map(tickets))
    }

    /// What is on disk now, and the process that goes on from there; and the lock as others see it. The test
    /// goes on to see whether that process does.
    fn aftermath(
        &self,
        site: &Site,
        at_work: bool,
        others_hold: bool,
    ) -> Result<(Aftermath, Standing), Fault> {
        let Self([first, second]) = self;
        let file = |name: &str| site.locks().join(format!("{name}.tenure"));
        let mut disk = if site.locks().is_dir() {
            matrix::list(&file(NAME), first)
        } else {
            "no folder".to_owned()
        };
        if file(SECOND).exists() {
            disk = format!(
                "{disk}; of the second lock: {}",
                matrix::list(&file(SECOND), second)
            );
        }
        if site.files().iter().any(|file| file.starts_with(".floor.")) {
            disk.push_str("; the floor");
        }
        let standing = if at_work || others_hold {
            site.check()?
        } else {
            free_soon(site)?
        };
        let then = if at_work {
            "the command, which keeps the lock; then the next caller"
        } else if standing.is_held_by(STRUCK) {
            "its owner, by asking again or by a release"
        } else if standing.is_held() {
            "the holder before, undisturbed"
        } else if standing.word == "stale" {
            "the next caller, past what is dead"
        } else {
            "the next caller"
        };
        let aftermath = Aftermath {
            disk,
            then: then.to_owned(),
        };
        Ok((aftermath, standing))
    }
}

/// The command of a dead supervisor is still at work: no caller gets in, each is told why, and a waiter
/// gets in once the work has ended.
fn passes_on_when_work_ends(
    site: &Site,
    standing: &Standing,
    input: ChildStdin,
    seen: u64,
) -> Result<(), Fault> {
    crate::ensure!(
        standing.code == 4,
        "the command of the dead supervisor is at work and the lock is not held: {standing:?}"
    );
    let refused = site.call(["run", NAME, "-n", "--", "true"])?;
    crate::ensure!(
        refused.is(4) && refused.took < AT_ONCE,
        "a caller that does not wait has to be told at once that the command of the dead supervisor \
         holds the lock (exit 4): {refused}"
    );
    let mut next = Next::start(site);
    next.waits("the command of the dead supervisor")?;
    drop(input);
    next.works(seen)?;
    Ok(())
}

/// Other callers are refused, and the owner can release the lock.
fn held_then_released(site: &Site, id: &str) -> Result<(), Fault> {
    let refused = site.call(["run", NAME, "-n", "--", "true"])?;
    crate::ensure!(
        refused.is(4),
        "the lock of {id} was not kept from others: {refused}"
    );
    let released = site.call(["release", NAME, "--request-id", id])?;
    crate::ensure!(
        released.is(0) && released.out.contains("released"),
        "{id} could not release its lock: {released}"
    );
    Ok(())
}

/// Whether a supervisor has begun to watch for notices of its lock.
fn watches(supervisor: u32) -> bool {
    std::fs::read_dir(format!("/proc/{supervisor}/fd")).is_ok_and(|entries| {
        entries.filter_map(Result::ok).any(|entry| {
            std::fs::read_link(entry.path())
                .is_ok_and(|target| target.to_string_lossy().contains("inotify"))
        })
    })
}

/// Tries all `injections` on the transition, some at once, and fails with all that went wrong. The
/// outcomes are in their order, each with the number of its injection.
fn try_all(
    transition: &Transition,
    prepared: &Prepared,
    injections: &[Injection],
    what: &str,
) -> Vec<(usize, Outcome)> {
    let began = instant();
    let (outcomes, faults) = try_each(injections, |injection| {
        let tried = transition.try_once(prepared, injection);
        tried.map_err(|fault| format!("{injection:?}\n    {fault}"))
    });
    let count =
        |is: fn(&Outcome) -> bool| outcomes.iter().filter(|(_, outcome)| is(outcome)).count();
    let struck = count(|outcome| outcome.struck);
    println!(
        "{what} {}: {} points tried, {struck} killed ({} with the command at work), {} said no, {} \
         wrong, {:.1} s",
        transition.name,
        injections.len(),
        count(|outcome| outcome.at_work),
        count(|outcome| outcome.failed),
        faults.len(),
        instant().saturating_duration_since(began).as_secs_f64(),
    );
    let mut told = String::new();
    for fault in faults.iter().take(12) {
        let _ = write!(told, "\n- {fault}");
    }
    assert!(
        faults.is_empty(),
        "{}: {} of {} points went wrong:{told}",
        transition.name,
        faults.len(),
        injections.len()
    );
    outcomes
}

/// Kills the transition at its points: at those that differ, and at the others too where the page does not
/// agree with what was seen.
///
/// The trace of a process that was woken or interrupted differs a little from run to run: a kill may then
/// strike a call earlier or later than was meant, or none. The points beside one make up for it.
fn crash(transition: &Transition) {
    for tool in ["strace", "flock", "bash"] {
        need(tool);
    }
    let prepared = transition.before.prepare().expect("a state to begin with");
    let found = transition.trace(&prepared).expect("a trace");
    let (early, rest): (Vec<Point>, Vec<Point>) = found
        .into_iter()
        .partition(|point| point.phase == Phase::Early);
    let points: Vec<Point> = early.into_iter().step_by(SAMPLE).chain(rest).collect();
    let all = is_long() || matrix::is_written();
    let differs = |at: &usize| all || points[*at].phase == Phase::Early || !points[*at].alike;
    let (distinct, alike): (Vec<usize>, Vec<usize>) = (0..points.len()).partition(differs);
    let mut seen = kill(transition, &prepared, &points, &distinct);
    let enough = |seen: &[(usize, Aftermath)], tried: usize| seen.len() * 10 >= tried * 9;
    let of_points = |seen: &[(usize, Aftermath)]| -> Vec<(String, Aftermath)> {
        let of_point = |(at, after): &(usize, Aftermath)| (points[*at].step.clone(), after.clone());
        seen.iter().map(of_point).collect()
    };
    let mut tried = distinct.len();
    if !enough(&seen, tried) || !matrix::agrees(transition.name, &of_points(&seen)) {
        seen.extend(kill(transition, &prepared, &points, &alike));
        seen.sort_by_key(|(at, _)| *at);
        tried += alike.len();
    }
    assert!(
        enough(&seen, tried),
        "{}: only {} of {tried} kills struck; the trace does not describe what runs",
        transition.name,
        seen.len(),
    );
    matrix::agree(transition.name, &of_points(&seen));
}

/// Kills the transition at these of its points; what was seen where the kill struck.
fn kill(
    transition: &Transition,
    prepared: &Prepared,
    points: &[Point],
    which: &[usize],
) -> Vec<(usize, Aftermath)> {
    let kills: Vec<Injection> = which
        .iter()
        .map(|at| Injection::Kill(points[*at].clone()))
        .collect();
    try_all(transition, prepared, &kills, "crash")
        .into_iter()
        .filter(|(_, outcome)| outcome.struck)
        .filter_map(|(at, outcome)| Some((which[at], outcome.after?)))
        .collect()
}

/// Makes every call of some kinds fail once, in some ways; of all that, one in `sample` is tried.
fn fail(transition: &Transition, sample: usize) {
    for tool in ["strace", "flock", "bash"] {
        need(tool);
    }
    let prepared = transition.before.prepare().expect("a state to begin with");
    let found = transition.trace(&prepared).expect("a trace");
    let errors = |call: &str| -> &'static [&'static str] {
        match call {
            "pwrite64" | "pwritev" => &["ENOSPC", "EIO", "EINTR"],
            "pread64" => &["EIO", "EINTR"],
            "fcntl" => &["ENOLCK", "EINTR"],
            "open" | "openat" => &["EACCES", "EMFILE"],
            "ppoll" => &["EINTR"],
            "mkdir" | "mkdirat" => &["EACCES", "ENOSPC"],
            "unlinkat" | "ftruncate" | "renameat" | "renameat2" => &["EACCES", "EIO"],
            _ => &[],
        }
    };
    let injections: Vec<Injection> = found
        .into_iter()
        .filter(|point| point.phase != Phase::Early)
        .flat_map(|point| {
            errors(&point.call)
                .iter()
                .map(move |error| Injection::Fail(point.clone(), error))
        })
        .step_by(sample)
        .collect();
    assert!(!injections.is_empty(), "nothing was found that can fail");
    let _ = try_all(transition, &prepared, &injections, "failure");
}

const RUN_NEW: Transition = Transition {
    name: "run on a new folder",
    before: Before::Nothing,
    behind: Behind::Nobody,
    verb: Verb::Run,
};
const RUN_FREE: Transition = Transition {
    name: "run on a free lock",
    before: Before::Free,
    ..RUN_NEW
};
const RUN_DEAD: Transition = Transition {
    name: "run after a dead holder and a dead waiter",
    before: Before::Dead,
    ..RUN_NEW
};
const RUN_CLEANED: Transition = Transition {
    name: "run on a lock that was cleaned away before",
    before: Before::Cleaned,
    ..RUN_NEW
};
const RUN_RENEWING: Transition = Transition {
    name: "run that renews its lease",
    verb: Verb::RunRenewing,
    ..RUN_FREE
};
const RUN_BEHIND_RUN: Transition = Transition {
    name: "run behind a run that ends",
    behind: Behind::Run,
    ..RUN_FREE
};
const RUN_BEHIND_HOLD: Transition = Transition {
    name: "run behind a detached hold that is released",
    before: Before::Held,
    behind: Behind::Detached,
    ..RUN_NEW
};
const RUN_GIVING_UP: Transition = Transition {
    name: "run that gives up at its deadline",
    before: Before::Held,
    behind: Behind::DetachedForGood,
    verb: Verb::RunGivingUp,
};
const RUN_AT_LENGTH: Transition = Transition {
    name: "run that gives up in a list that outgrows its slot",
    before: Before::HeldAtLength,
    verb: Verb::RunAtLength,
    ..RUN_GIVING_UP
};
const RUN_FORCING: Transition = Transition {
    name: "run that asks a run to stop",
    behind: Behind::Run,
    verb: Verb::RunForcing,
    ..RUN_FREE
};
const ACQUIRE_NEW: Transition = Transition {
    name: "acquire on a new folder",
    verb: Verb::Acquire,
    ..RUN_NEW
};
const ACQUIRE_FREE: Transition = Transition {
    name: "acquire on a free lock",
    verb: Verb::Acquire,
    ..RUN_FREE
};
const ACQUIRE_DEAD: Transition = Transition {
    name: "acquire after a dead holder and a dead waiter",
    verb: Verb::Acquire,
    ..RUN_DEAD
};
const ACQUIRE_BEHIND_RUN: Transition = Transition {
    name: "acquire behind a run that ends",
    verb: Verb::Acquire,
    ..RUN_BEHIND_RUN
};
const ACQUIRE_BEHIND_HOLD: Transition = Transition {
    name: "acquire behind a detached hold that is released",
    verb: Verb::Acquire,
    ..RUN_BEHIND_HOLD
};
const ACQUIRE_FORCING: Transition = Transition {
    name: "acquire that overrides a detached hold",
    before: Before::Held,
    behind: Behind::Nobody,
    verb: Verb::AcquireForcing,
};
const RELEASE: Transition = Transition {
    name: "release",
    verb: Verb::Release,
    ..ACQUIRE_FORCING
};
const HEARTBEAT: Transition = Transition {
    name: "heartbeat",
    verb: Verb::Heartbeat,
    ..ACQUIRE_FORCING
};
const RUN_BEHIND_MANY: Transition = Transition {
    name: "run that gives up behind a dead crowd",
    before: Before::HeldBeforeMany,
    ..RUN_GIVING_UP
};
const HEARTBEAT_BEFORE_MANY: Transition = Transition {
    name: "heartbeat before a dead crowd",
    before: Before::HeldBeforeMany,
    ..HEARTBEAT
};
const RELEASE_BEFORE_MANY: Transition = Transition {
    name: "release before a dead crowd",
    before: Before::HeldBeforeMany,
    ..RELEASE
};
const CLEAN_FREE: Transition = Transition {
    name: "clean of a free lock",
    verb: Verb::Clean,
    ..RUN_FREE
};
const CLEAN_DEAD: Transition = Transition {
    name: "clean after a dead holder and a dead waiter",
    verb: Verb::Clean,
    ..RUN_DEAD
};
const CLEAN_AGAIN: Transition = Transition {
    name: "clean of a lock that was cleaned away before",
    verb: Verb::Clean,
    ..RUN_CLEANED
};

const RUN_SHARED: Transition = Transition {
    name: "shared run behind a run that ends",
    verb: Verb::RunShared,
    ..RUN_BEHIND_RUN
};
const RUN_SLOTS: Transition = Transition {
    name: "run for a slot behind a run that ends",
    verb: Verb::RunSlots,
    ..RUN_BEHIND_RUN
};
const RUN_DISPLACING: Transition = Transition {
    name: "run that takes the place of who waits",
    behind: Behind::RunAndWaiter,
    verb: Verb::RunInSingle,
    ..RUN_FREE
};
const RUN_SUPERSEDING: Transition = Transition {
    name: "run that takes the place of who runs and who waits",
    behind: Behind::RunAndWaiter,
    verb: Verb::RunSuperseding,
    ..RUN_FREE
};
const RUN_PARKING: Transition = Transition {
    name: "run whose place is kept when its wait is over",
    verb: Verb::RunParking,
    ..RUN_GIVING_UP
};
const RUN_SEVERAL: Transition = Transition {
    name: "run that takes two locks",
    verb: Verb::RunSeveral,
    ..RUN_FREE
};
const CANCEL: Transition = Transition {
    name: "cancel",
    verb: Verb::Cancel,
    ..ACQUIRE_FORCING
};

mod crash_points {
    use super::*;

    macro_rules! killed {
        ($($test:ident: $transition:ident,)+) => {
            const NAMES: &[&str] = &[$($transition.name),+];

            $(
                #[test]
                fn $test() {
                    crash(&$transition);
                }
            )+
        };
    }

    killed! {
        shared_run_behind_a_run: RUN_SHARED,
        run_for_a_slot_behind_a_run: RUN_SLOTS,
        run_that_displaces_a_waiter: RUN_DISPLACING,
        run_that_supersedes_a_run_and_a_waiter: RUN_SUPERSEDING,
        run_whose_place_is_kept: RUN_PARKING,
        run_that_takes_two_locks: RUN_SEVERAL,
        cancel: CANCEL,
        run_on_a_new_folder: RUN_NEW,
        run_on_a_free_lock: RUN_FREE,
        run_after_dead_claims: RUN_DEAD,
        run_after_a_cleaning: RUN_CLEANED,
        run_that_renews: RUN_RENEWING,
        run_behind_a_run: RUN_BEHIND_RUN,
        run_behind_a_detached_hold: RUN_BEHIND_HOLD,
        run_that_gives_up: RUN_GIVING_UP,
        run_in_a_list_that_grows_and_shrinks: RUN_AT_LENGTH,
        run_that_asks_another_to_stop: RUN_FORCING,
        acquire_on_a_new_folder: ACQUIRE_NEW,
        acquire_on_a_free_lock: ACQUIRE_FREE,
        acquire_after_dead_claims: ACQUIRE_DEAD,
        acquire_behind_a_run: ACQUIRE_BEHIND_RUN,
        acquire_behind_a_detached_hold: ACQUIRE_BEHIND_HOLD,
        acquire_by_force: ACQUIRE_FORCING,
        release_of_a_detached_hold: RELEASE,
        heartbeat_of_a_detached_hold: HEARTBEAT,
        run_behind_a_dead_crowd: RUN_BEHIND_MANY,
        heartbeat_before_a_dead_crowd: HEARTBEAT_BEFORE_MANY,
        release_before_a_dead_crowd: RELEASE_BEFORE_MANY,
        clean_of_a_free_lock: CLEAN_FREE,
        clean_of_dead_claims: CLEAN_DEAD,
        clean_after_a_cleaning: CLEAN_AGAIN,
    }

    #[test]
    fn the_page_has_these_transitions_and_no_others() {
        let begins = [
            "run ",
            "acquire ",
            "release",
            "heartbeat",
            "clean ",
            "cancel",
            "shared ",
        ];
        matrix::all_are_tried(&begins, NAMES);
    }

    /// The instant that a trace of the program alone does not show: its child exists and is not
    /// the command yet. The child's first own call is made to last, and the program killed then.
    #[test]
    fn run_between_fork_and_exec() {
        for tool in ["strace", "flock", "bash"] {
            need(tool);
        }
        let prepared = Before::Free.prepare().expect("a state to begin with");
        let site = prepared.site.copy();
        let mut strace = Command::new("strace");
        strace
            .args(["-f", "-qq", "-o", "/dev/null", "--trace=setpgid"])
            .arg("--inject=setpgid:delay_enter=300000");
        let words = Verb::Run.words(&site);
        let words = words.iter().map(String::as_str);
        let mut struck = Process::start_with_input(site.tenure_under(strace, words));
        let tracer = struck.pid().as_raw_nonzero().get().unsigned_abs();
        let binary = std::fs::canonicalize(env!("CARGO_BIN_EXE_tenure")).expect("the binary");
        let runs = |pid: u32| std::fs::read_link(format!("/proc/{pid}/exe")).ok();
        let mut found = None;
        eventually("the child of the program", || {
            found = children_of(tracer).into_iter().find_map(|program| {
                let child = *children_of(program).first()?;
                Some((program, child))
            });
            found.is_some()
        })
        .expect("a program with a child");
        let (program, child) = found.expect("found above");
        assert_eq!(
            runs(child).as_ref(),
            Some(&binary),
            "the child is the command already, so this shows nothing"
        );
        let program = i32::try_from(program)
            .ok()
            .and_then(rustix::process::Pid::from_raw);
        rustix::process::kill_process(
            program.expect("the number of the program"),
            rustix::process::Signal::KILL,
        )
        .expect("the program can be killed, it is a descendant of the test");
        let standing = site.check().expect("an answer");
        assert_eq!(
            standing.code, 4,
            "the child is about to become the command, and no caller may get in: {standing:?}"
        );
        let input = struck.take_input().expect("the input of the command");
        let started = Started::of(struck.line().expect("a line")).expect("a command");
        assert!(started.token > prepared.token, "the token has risen");
        passes_on_when_work_ends(&site, &standing, input, started.token)
            .expect("the next caller goes on");
        all_is_quiet(&site).expect("nothing is left behind");
    }

    /// The program becomes its command, so there is no supervisor that could be killed beside it: up to
    /// that call each death frees the lock at once, and so does the command's own end.
    #[test]
    fn run_that_becomes_its_command() {
        for tool in ["strace", "flock", "bash"] {
            need(tool);
        }
        let words = [
            "run", NAME, "--wait", "10s", "--exec", "--", "bash", "-c", "true",
        ];
        for before in [Before::Nothing, Before::Dead] {
            let prepared = before.prepare().expect("a state to begin with");
            let run = |injection: &Injection| {
                let site = prepared.site.copy();
                let command = site.tenure_under(injection.strace(), words);
                let answer = Process::start(command).answer().expect("an answer");
                (site, answer)
            };
            let file = prepared.site.path("trace");
            let (_, answer) = run(&Injection::Trace(file.clone()));
            assert!(answer.is(0), "{before:?}: {answer}");
            let trace = std::fs::read_to_string(&file).expect("a trace");
            // The first one starts the program, the second makes it the command.
            let end = trace
                .match_indices("\nexecve(")
                .next()
                .expect("it becomes its command")
                .0;
            let mut found = points(&trace[..end], "/locks");
            found.retain(|point| is_long() || !point.alike);
            found.push(Point {
                call: "execve".to_owned(),
                nth: 1,
                phase: Phase::Middle,
                alike: false,
                shown: trace[end..].trim_start().chars().take(240).collect(),
                step: "become the command".to_owned(),
            });
            let mut struck = 0;
            for point in &found {
                let (site, answer) = run(&Injection::Kill(point.clone()));
                struck += usize::from(was_killed(answer.status));
                let standing = site.check().expect("an answer");
                assert!(
                    standing.is_free(),
                    "{before:?}, killed at {point:?}: not free: {standing:?}"
                );
                next(&site, prepared.token)
                    .unwrap_or_else(|fault| panic!("{before:?}, killed at {point:?}: {fault}"));
            }
            assert_eq!(struck, found.len(), "{before:?}: every point was reached");
        }
    }

    /// A write that was cut off at any byte. The file may not grow beyond a limit, so the kernel
    /// writes what fits and refuses the rest.
    #[test]
    fn run_in_the_middle_of_a_write() {
        for tool in ["prlimit", "flock", "bash"] {
            need(tool);
        }
        let began = instant();
        let (mut tried, mut struck) = (0, 0);
        for before in [Before::Nothing, Before::Dead] {
            let prepared = before.prepare().expect("a state to begin with");
            // Each byte of a frame and the first words of a body, and then some.
            let slot = (0..64).chain((64..2048).step_by(97));
            for limit in slot.flat_map(|byte| [byte, 2048 + byte]) {
                let site = prepared.site.copy();
                let mut prlimit = Command::new("prlimit");
                prlimit.args([format!("--fsize={limit}"), "--core=0".to_owned()]);
                let words = ["run", NAME, "--", "true"];
                let answer = Process::start(site.tenure_under(prlimit, words))
                    .answer()
                    .expect("an end");
                let by_limit = answer.is(12) && answer.errors.contains("File too large");
                assert!(
                    by_limit || answer.is(0),
                    "{before:?}, cut off at {limit}: neither refused for the limit nor unharmed: \
                     {answer}"
                );
                tried += 1;
                struck += usize::from(by_limit);
                let standing = free_soon(&site).expect("an answer");
                assert!(
                    standing.is_free(),
                    "{before:?}, cut off at {limit}: not free: {standing:?}"
                );
                next(&site, prepared.token).unwrap_or_else(|fault| {
                    panic!("{before:?}, cut off at {limit}: {fault}");
                });
            }
        }
        println!(
            "torn writes: {tried} limits tried, {struck} struck, {:.1} s",
            instant().saturating_duration_since(began).as_secs_f64()
        );
        assert!(struck > tried / 2, "most limits cut something off");
    }

    macro_rules! made_to_fail {
        ($($test:ident: $transition:ident,)+) => {
            $(
                #[test]
                fn $test() {
                    fail(&$transition, 1);
                }
            )+
        };
    }

    made_to_fail! {
        failing_run_on_a_new_folder: RUN_NEW,
        failing_run_on_a_free_lock: RUN_FREE,
        failing_run_after_dead_claims: RUN_DEAD,
        failing_run_behind_a_run: RUN_BEHIND_RUN,
        failing_run_behind_a_detached_hold: RUN_BEHIND_HOLD,
        failing_run_that_gives_up: RUN_GIVING_UP,
        failing_acquire_on_a_new_folder: ACQUIRE_NEW,
        failing_acquire_behind_a_run: ACQUIRE_BEHIND_RUN,
        failing_release: RELEASE,
        failing_heartbeat: HEARTBEAT,
        failing_clean: CLEAN_DEAD,
    }

    /// The other transitions, made to fail. All of it adds two minutes and is for the long run
    /// (`TENURE_CRASH_POINTS=long`); a sample is tried on every build.
    macro_rules! made_to_fail_at_length {
        ($($test:ident: $transition:ident,)+) => {
            $(
                #[test]
                fn $test() {
                    fail(&$transition, if is_long() { 1 } else { SAMPLE });
                }
            )+
        };
    }

    made_to_fail_at_length! {
        long_failing_shared_run: RUN_SHARED,
        long_failing_run_for_a_slot: RUN_SLOTS,
        long_failing_run_that_displaces: RUN_DISPLACING,
        long_failing_run_that_supersedes: RUN_SUPERSEDING,
        long_failing_run_that_asks_another_to_stop: RUN_FORCING,
        long_failing_run_whose_place_is_kept: RUN_PARKING,
        long_failing_run_that_takes_two_locks: RUN_SEVERAL,
        long_failing_cancel: CANCEL,
        long_failing_run_after_a_cleaning: RUN_CLEANED,
        long_failing_acquire_on_a_free_lock: ACQUIRE_FREE,
        long_failing_acquire_after_dead_claims: ACQUIRE_DEAD,
        long_failing_acquire_behind_a_detached_hold: ACQUIRE_BEHIND_HOLD,
        long_failing_acquire_by_force: ACQUIRE_FORCING,
        long_failing_clean_of_a_free_lock: CLEAN_FREE,
        long_failing_clean_after_a_cleaning: CLEAN_AGAIN,
        long_failing_run_that_renews: RUN_RENEWING,
        long_failing_run_in_a_list_that_grows: RUN_AT_LENGTH,
    }

    #[test]
    fn a_trace_is_read_as_it_is_meant() {
        let trace = "execve(\"tenure\", [\"/x/locks\"]) = 0\n\
                     brk(NULL) = 0x1\n\
                     open(\"/x/locks\", O_RDONLY) = 5\n\
                     mmap(NULL, 1) = 0x2\n\
                     munmap(0x2) = 0\n\
                     fcntl(6, F_OFD_SETLK) = 0\n\
                     pread64(6</x/locks/a>, \"\", 1, 0) = 0\n\
                     --- SIGCHLD {si_signo=SIGCHLD} ---\n\
                     fcntl(6, F_OFD_SETLK) = 0\n\
                     exit_group(0) = ?\n";
        let found: Vec<_> = points(trace, "/locks")
            .into_iter()
            .map(|point| (point.call, point.nth, point.phase, point.alike))
            .collect();
        let expected = [
            ("brk", 1, Phase::Early, false),
            ("open", 1, Phase::Middle, true),
            ("mmap", 1, Phase::Middle, true),
            ("munmap", 1, Phase::Middle, true),
            ("fcntl", 1, Phase::Middle, false),
            // The command ends before the next one.
            ("pread64", 1, Phase::Middle, false),
            ("fcntl", 2, Phase::Late, false),
            ("exit_group", 1, Phase::Late, false),
        ]
        .map(|(call, nth, phase, alike)| (call.to_owned(), nth, phase, alike));
        assert_eq!(
            found, expected,
            "a death before a call that others do not notice leaves the same as a death before the next call"
        );
    }

    const _: () = assert!(
        SOON.as_secs() > 5,
        "the program's own patience is seen to its end"
    );
}
