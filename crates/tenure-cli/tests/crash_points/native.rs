//! The transitions of our own locks: runs, waits, shared holds and slots, displaced and superseded runs,
//! kept places, two locks at once, and the verbs that change a lock.
//!
//! # What holds afterwards
//! The command keeps the witness locked (`support_crash/witness.rs`), and lives until the test lets it
//! end. So a supervisor that was killed after the spawn always leaves a command at work. The next caller
//! must not start beside it, and has to learn that the lock is held. Once no process is left at work, the
//! next caller gets the lock, with a higher token than any before, and nothing stays in the folder but
//! what belongs there.
//!
//! The driver does not trace the child of the program. The one instant that this leaves out, between fork
//! and exec, has a test of its own, and so have writes that are cut off, and runs that become their command.

use crate::driver::{
    FAILING_SAMPLE, Injection, Outcome, Phase, Point, Prepared, Scenario, is_answer_lost, points,
};
use crate::page::{self, Aftermath};
use crate::standstill::Standstill;
use crate::support_crash::{
    Answer, Fault, NAME, Process, SOON, Site, Standing, Started, children_of, eventually, is_long,
    need, was_killed, witness, word,
};
use std::path::PathBuf;
use std::process::{ChildStdin, Command};
use std::time::Duration;
use tenure_os::clock::instant;

/// From this many bytes on a list is a long one.
const LONG_LIST: u64 = 16 << 10;

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
#[derive(Debug, Clone, Copy)]
struct Transition {
    name: &'static str,
    /// What stands in the folder before.
    before: Before,
    /// The live holder and waiter before.
    behind: Behind,
    verb: Verb,
    /// Of the failures, one in so many is tried on every build.
    failing_sample: usize,
}

const fn native(name: &'static str, before: Before, behind: Behind, verb: Verb) -> Transition {
    Transition {
        name,
        before,
        behind,
        verb,
        failing_sample: FAILING_SAMPLE,
    }
}

impl Transition {
    /// Tries one failure in three on every build.
    const fn often_fails(self) -> Self {
        Self {
            failing_sample: 3,
            ..self
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Before {
    /// No folder is there.
    Nothing,
    /// The lock was used and is free.
    Free,
    /// A holder and a waiter were killed.
    Dead,
    /// The test holds it by `acquire`.
    Held,
    /// Held by `acquire`, with so much said about the hold that two claims do not fit into a small slot.
    HeldAtLength,
    /// Held, and a crowd of waiters was killed: their claims are most of a long list.
    HeldBeforeMany,
    /// The lock was used and cleaned away, and used again.
    Cleaned,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Behind {
    Nobody,
    /// A run, which ends once the transition waits.
    Run,
    /// A run, and a waiter behind it in a queue of one.
    RunAndWaiter,
    /// A detached hold, which is released once the transition waits.
    Detached,
    /// A detached hold, which stays.
    DetachedForGood,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verb {
    Run(As),
    Acquire,
    AcquireForcing,
    Release,
    Heartbeat,
    Clean,
    Cancel,
}

/// What a run asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum As {
    Plain,
    /// With a lease so short that it is renewed all the time.
    Renewing,
    /// With a reason so long that the list outgrows its slot.
    AtLength,
    /// A short wait behind a holder that stays.
    GivingUp,
    /// Asks the holder to stop.
    Forcing,
    /// Takes the turn's byte as well while it waits.
    Shared,
    Slots,
    /// In a queue of one: it takes the place of the waiter there, and watches for losing its own.
    InSingle,
    /// Superseding in a queue of one, and the holder is asked to stop.
    Superseding,
    /// A short wait behind a holder that stays: its place is kept.
    Parking,
    /// Takes a second lock as well.
    Several,
}

/// The second lock of a run that takes two.
const SECOND: &str = "second";

impl As {
    /// Whether the holder before may be asked to stop by it.
    fn asks_to_stop(self) -> bool {
        matches!(self, Self::Forcing | Self::Superseding)
    }

    fn flags(self) -> &'static [&'static str] {
        match self {
            Self::Plain | Self::GivingUp | Self::AtLength => &[],
            Self::Renewing => &["--ttl", "60ms"],
            Self::Forcing => &["--force"],
            Self::Shared => &["--shared"],
            Self::Slots => &["--slots", "2"],
            Self::InSingle => &["--queue", "single"],
            Self::Superseding => &["--cancel-in-progress"],
            Self::Parking => &["--ticket", "auto"],
            Self::Several => &["--lock", SECOND],
        }
    }
}

impl Verb {
    fn words(self, site: &Site) -> Vec<String> {
        let own = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
        let me = std::process::id().to_string();
        let acquire = ["acquire", NAME, "--output", "json", "--owner", &me];
        let acquire = [&acquire[..], &["--request-id", STRUCK]].concat();
        match self {
            Self::Run(what) => {
                let wait = match what {
                    As::AtLength | As::GivingUp | As::Parking => "50ms",
                    _ => "10s",
                };
                let mut words: Vec<String> = own(&["run", NAME, "--wait", wait]);
                words.extend(what.flags().iter().map(|flag| (*flag).to_owned()));
                if what == As::AtLength {
                    words.extend(["--why".to_owned(), long()]);
                }
                words.extend(working(WORK, site));
                words
            }
            Self::Acquire => own(&[&acquire[..], &["--wait", "10s"]].concat()),
            Self::AcquireForcing => own(&[&acquire[..], &["--force", "--yes"]].concat()),
            Self::Release => own(&["release", NAME, "--request-id", FIRST, "--output", "json"]),
            Self::Heartbeat => own(&["heartbeat", NAME, "--request-id", FIRST]),
            Self::Clean => own(&["clean"]),
            Self::Cancel => own(&["cancel", NAME, "--output", "json"]),
        }
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
        Ok(Prepared {
            site,
            token,
            record: None,
        })
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
    let words = Verb::Run(As::Plain).words(site);
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

/// Leaves so many claims of waiters that were killed that their list is a long one.
fn leave_dead_crowd(site: &Site) -> Result<(), Fault> {
    const CROWD: usize = 24;
    let words = Verb::Run(As::AtLength)
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
    let list = std::fs::metadata(list).map_err(|error| error.to_string())?;
    crate::ensure!(list.len() > LONG_LIST, "the list is too short");
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

    /// The next caller waits in the queue for a holder, `whom`.
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

    /// The next caller gets the lock, with a token above `above`.
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
            let words = Verb::Run(As::Plain).words(site);
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
            let words = Verb::Run(As::InSingle).words(site);
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
        let (began, standstill) = (instant(), Standstill::watch());
        self.end_at_length(site)?;
        let took = instant().saturating_duration_since(began);
        crate::ensure!(
            took < HELD_UP || standstill.without(took) < HELD_UP,
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

impl Scenario for Transition {
    fn name(&self) -> &'static str {
        self.name
    }

    fn prepare(&self) -> Result<Prepared, Fault> {
        self.before.prepare()
    }

    fn copy(&self, prepared: &Prepared) -> Result<Site, Fault> {
        Ok(prepared.site.copy())
    }

    fn place(&self, site: &Site) -> PathBuf {
        site.locks()
    }

    fn early_sample(&self) -> usize {
        40
    }

    fn failing_sample(&self) -> usize {
        self.failing_sample
    }

    /// A lock's file is read by `pread64` and written by `pwrite64`. What is read and written otherwise is a pipe of the
    /// run's own, where the kernel gives no such error, or a message for which this test waits.
    fn may_fail(&self, point: &Point) -> bool {
        !matches!(point.call.as_str(), "read" | "write")
    }

    /// Does to the transition what is to be done to it, and looks what the next caller finds.
    fn try_once(
        &self,
        prepared: &Prepared,
        site: &Site,
        injection: &Injection,
    ) -> Result<Outcome, Fault> {
        let mut seen = prepared.token;
        let mut blocker = Blocker::start(self.behind, site, &mut seen)?;
        let known = Known::of(site);
        let words = self.verb.words(site);
        let words = words.iter().map(String::as_str);
        let mut struck = Process::start_with_input(site.tenure_under(injection.strace(), words));
        let waits = matches!(
            self.behind,
            Behind::Run | Behind::RunAndWaiter | Behind::Detached
        );
        if waits && struck.says("waiting up to")? {
            blocker.end(site)?;
        }
        if let Verb::Run(what) = self.verb {
            self.after_run(what, site, struck, injection, blocker, (seen, &known))
        } else {
            let struck = struck.answer()?;
            self.after_others(site, &struck, injection, blocker, (seen, &known))
        }
    }
}

impl Transition {
    fn after_run(
        &self,
        what: As,
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
            let dies = strikes_at_work(injection) && struck.ends_within(STRIKE);
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
            if what.asks_to_stop() {
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
        if self.verb == Verb::Run(As::Renewing) {
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
                    && (struck.is(7) || struck.is(12) || is_answer_lost(struck))
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
                let denied = outcome.failed && !is_answer_lost(struck);
                let lied = (struck.is(0) && held) || (denied && !held);
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
            Verb::Run(_) => return Err("a run is judged elsewhere".to_owned()),
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
        let tickets = |name| page::tickets(&site.locks().join(format!("{name}.tenure")));
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
            page::list(&file(NAME), first)
        } else {
            "no folder".to_owned()
        };
        if file(SECOND).exists() {
            disk = format!(
                "{disk}; of the second lock: {}",
                page::list(&file(SECOND), second)
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

/// Whether the process is to die with its command at work.
fn strikes_at_work(injection: &Injection) -> bool {
    matches!(injection, Injection::Kill(point) if point.phase != Phase::Late)
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

mod crash_points {
    use super::*;

    scenarios! {
        run_on_a_new_folder: native("run on a new folder", Before::Nothing, Behind::Nobody, Verb::Run(As::Plain)).often_fails();
        run_on_a_free_lock: native("run on a free lock", Before::Free, Behind::Nobody, Verb::Run(As::Plain)).often_fails();
        run_after_dead_claims: native("run after a dead holder and a dead waiter", Before::Dead, Behind::Nobody, Verb::Run(As::Plain)).often_fails();
        run_after_a_cleaning: native("run on a lock that was cleaned away before", Before::Cleaned, Behind::Nobody, Verb::Run(As::Plain));
        run_that_renews: native("run that renews its lease", Before::Free, Behind::Nobody, Verb::Run(As::Renewing));
        run_behind_a_run: native("run behind a run that ends", Before::Free, Behind::Run, Verb::Run(As::Plain)).often_fails();
        run_behind_a_detached_hold: native("run behind a detached hold that is released", Before::Held, Behind::Detached, Verb::Run(As::Plain)).often_fails();
        run_that_gives_up: native("run that gives up at its deadline", Before::Held, Behind::DetachedForGood, Verb::Run(As::GivingUp)).often_fails();
        run_in_a_list_that_grows_and_shrinks: native("run that gives up in a list that outgrows its slot", Before::HeldAtLength, Behind::DetachedForGood, Verb::Run(As::AtLength));
        run_behind_a_dead_crowd: native("run that gives up behind a dead crowd", Before::HeldBeforeMany, Behind::DetachedForGood, Verb::Run(As::GivingUp));
        run_that_asks_another_to_stop: native("run that asks a run to stop", Before::Free, Behind::Run, Verb::Run(As::Forcing));
        shared_run_behind_a_run: native("shared run behind a run that ends", Before::Free, Behind::Run, Verb::Run(As::Shared));
        run_for_a_slot_behind_a_run: native("run for a slot behind a run that ends", Before::Free, Behind::Run, Verb::Run(As::Slots));
        run_that_displaces_a_waiter: native("run that takes the place of who waits", Before::Free, Behind::RunAndWaiter, Verb::Run(As::InSingle));
        run_that_supersedes_a_run_and_a_waiter: native("run that takes the place of who runs and who waits", Before::Free, Behind::RunAndWaiter, Verb::Run(As::Superseding));
        run_whose_place_is_kept: native("run whose place is kept when its wait is over", Before::Held, Behind::DetachedForGood, Verb::Run(As::Parking));
        run_that_takes_two_locks: native("run that takes two locks", Before::Free, Behind::Nobody, Verb::Run(As::Several));
        acquire_on_a_new_folder: native("acquire on a new folder", Before::Nothing, Behind::Nobody, Verb::Acquire).often_fails();
        acquire_on_a_free_lock: native("acquire on a free lock", Before::Free, Behind::Nobody, Verb::Acquire);
        acquire_after_dead_claims: native("acquire after a dead holder and a dead waiter", Before::Dead, Behind::Nobody, Verb::Acquire);
        acquire_behind_a_run: native("acquire behind a run that ends", Before::Free, Behind::Run, Verb::Acquire).often_fails();
        acquire_behind_a_detached_hold: native("acquire behind a detached hold that is released", Before::Held, Behind::Detached, Verb::Acquire);
        acquire_by_force: native("acquire that overrides a detached hold", Before::Held, Behind::Nobody, Verb::AcquireForcing);
        release_of_a_detached_hold: native("release", Before::Held, Behind::Nobody, Verb::Release).often_fails();
        release_before_a_dead_crowd: native("release before a dead crowd", Before::HeldBeforeMany, Behind::Nobody, Verb::Release);
        heartbeat_of_a_detached_hold: native("heartbeat", Before::Held, Behind::Nobody, Verb::Heartbeat).often_fails();
        heartbeat_before_a_dead_crowd: native("heartbeat before a dead crowd", Before::HeldBeforeMany, Behind::Nobody, Verb::Heartbeat);
        clean_of_a_free_lock: native("clean of a free lock", Before::Free, Behind::Nobody, Verb::Clean);
        clean_of_dead_claims: native("clean after a dead holder and a dead waiter", Before::Dead, Behind::Nobody, Verb::Clean).often_fails();
        clean_after_a_cleaning: native("clean of a lock that was cleaned away before", Before::Cleaned, Behind::Nobody, Verb::Clean);
        cancel: native("cancel", Before::Held, Behind::Nobody, Verb::Cancel);
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
        page::all_are_tried(&begins, NAMES);
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
        let words = Verb::Run(As::Plain).words(&site);
        let words = words.iter().map(String::as_str);
        let mut struck = Process::start_with_input(site.tenure_under(strace, words));
        let tracer = struck.pid().as_raw_nonzero().get().unsigned_abs();
        let binary = std::fs::canonicalize(env!("CARGO_BIN_EXE_tenure")).expect("the binary");
        let runs = |pid: u32| std::fs::read_link(format!("/proc/{pid}/exe")).ok();
        let mut found = None;
        eventually("the child of the program", || {
            found = children_of(tracer).into_iter().find_map(|program| {
                // The leader of the command's group comes before it, and has ended.
                let [_, child] = children_of(program)[..] else {
                    return None;
                };
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
        // Where the dead leader of the command's group was collected before the child has joined that group, the child
        // ends instead of becoming the command.
        if let Some(line) = struck.line().expect("what it says, or its end") {
            let started = Started::of(Some(line)).expect("a command");
            assert!(started.token > prepared.token, "the token has risen");
            passes_on_when_work_ends(&site, &standing, input, started.token)
                .expect("the next caller goes on");
        } else {
            drop(input);
            let next = site.call(["run", NAME, "-n", "--", "true"]);
            assert!(next.is_ok_and(|next| next.is(0)), "the next caller goes on");
        }
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
            // Each byte of a frame and the first words of a body, and then some; of those bytes, one in three on every build.
            let near = if is_long() { 1 } else { 3 };
            let slot = (0..64).step_by(near).chain((64..2048).step_by(97));
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

    const _: () = assert!(
        SOON.as_secs() > 5,
        "the program's own patience is seen to its end"
    );
}
