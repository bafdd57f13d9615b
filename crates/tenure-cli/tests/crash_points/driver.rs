//! Finds the system calls of a scenario, and kills it or makes it fail at each of them.
//!
//! # How the points are found
//! Each scenario runs once under `strace`, and the calls of that trace are the points: the third `fcntl`,
//! the second `pwrite64`. Then it runs again for each of them on a fresh copy of the same state, and
//! `strace` sends SIGKILL as the call is entered, so that it is not carried out any more. What is seen
//! afterwards is the state between two calls, for all pairs of them.
//!
//! # Which points are left out
//! - A call that only looks, or changes what the end of the process undoes anyway ([`page::is_unnoticed`]),
//!   leaves the state as it was. Being killed there shows what being killed at the next point shows, so it
//!   is left to the long run (`TENURE_CRASH_POINTS=long`). Where the command ends in between, both are
//!   kept. All of them are made to fail.
//! - Before the folder of the scenario is opened nothing can have happened to it; of those points (the
//!   loader, the arguments) one in [`Scenario::early_sample`] is kept.
//!
//! `strace` runs without `-f`: it counts the calls of each process by itself, and with `-f` the third
//! `openat` of the command would be struck as well as that of the program.
//!
//! What has to be true afterwards is the scenario's own business.

use crate::page::{self, Aftermath};
use crate::support_crash::{Answer, Fault, Site, is_long, need, try_each, word};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::Command;
use tenure_os::clock::instant;

/// Of the failures, one in so many is tried where a scenario is for the long run.
pub(crate) const FAILING_SAMPLE: usize = 10;

/// A call of the program in a state, and what must be true afterwards.
pub(crate) trait Scenario: Sync {
    /// The scenario's section on the page.
    fn name(&self) -> &'static str;

    /// Makes the state that it begins with.
    fn prepare(&self) -> Result<Prepared, Fault>;

    /// A copy of that state.
    fn copy(&self, prepared: &Prepared) -> Result<Site, Fault>;

    /// The folder whose first mention in a trace begins what others can notice.
    fn place(&self, site: &Site) -> PathBuf;

    /// Makes the call under `strace` and judges what comes of it.
    fn try_once(
        &self,
        prepared: &Prepared,
        site: &Site,
        injection: &Injection,
    ) -> Result<Outcome, Fault>;

    /// Of the points before its folder is opened, one in so many is tried.
    fn early_sample(&self) -> usize;

    /// Of the failures, one in so many is tried.
    fn failing_sample(&self) -> usize;

    /// Whether a failure of this call says something about the store.
    fn may_fail(&self, _point: &Point) -> bool {
        true
    }
}

/// The state that a scenario begins with.
pub(crate) struct Prepared {
    pub(crate) site: Site,
    /// The highest token that the test has seen.
    pub(crate) token: u64,
    /// The text of the published record, where there is one.
    pub(crate) record: Option<String>,
}

/// When a call is made in the life of the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Phase {
    /// Before the folder is opened.
    Early,
    /// Until the command has ended, where there is one.
    Middle,
    /// Afterwards.
    Late,
}

/// A call of the trace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Point {
    pub(crate) call: String,
    /// The call's number among those of its name.
    pub(crate) nth: usize,
    pub(crate) phase: Phase,
    /// Whether being killed here shows what being killed at the next point shows.
    pub(crate) alike: bool,
    /// As the trace shows it.
    pub(crate) shown: String,
    /// The step that comes next, this call included, of those that others can notice.
    pub(crate) step: String,
}

/// What is done to the process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Injection {
    /// Nothing; the trace goes to this file.
    Trace(PathBuf),
    /// SIGKILL as the call is entered.
    Kill(Point),
    /// The call is not carried out and answers with this error, once.
    Fail(Point, &'static str),
}

impl Injection {
    pub(crate) fn strace(&self) -> Command {
        let mut strace = Command::new("strace");
        strace.args(["-qq", "-e", "signal=none"]);
        let (Point { call, nth, .. }, what) = match self {
            Self::Trace(file) => {
                strace.args(["-y", "-e", "signal=SIGCHLD", "-o", word(file)]);
                return strace;
            }
            Self::Kill(point) => (point, "signal=KILL".to_owned()),
            Self::Fail(point, error) => (point, format!("error={error}")),
        };
        let inject = format!("--inject={call}:{what}:when={nth}");
        strace.args(["-o", "/dev/null", &format!("--trace={call}"), &inject]);
        strace
    }
}

/// How one try went.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    /// The process was killed by us.
    pub(crate) struck: bool,
    /// Whether the command was at work then.
    pub(crate) at_work: bool,
    /// The process failed, as it should where it was made to.
    pub(crate) failed: bool,
    /// What was seen then.
    pub(crate) after: Option<Aftermath>,
}

/// Reads a trace. The first line that names the place ends the early phase; the first SIGCHLD begins the
/// late one.
pub(crate) fn points(trace: &str, place: &str) -> Vec<Point> {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    let mut phase = Phase::Early;
    let mut found: Vec<Point> = Vec::new();
    for (shown, step) in trace.lines().zip(page::steps(trace, place)) {
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
        if phase == Phase::Early && shown.contains(place) {
            phase = Phase::Middle;
        }
        let nth = counts.entry(call).or_default();
        *nth += 1;
        if let Some(before) = found.last_mut() {
            before.alike &= before.phase == phase;
        }
        found.push(Point {
            call: call.to_owned(),
            nth: *nth,
            phase,
            alike: page::is_unnoticed(shown, place),
            shown: shown.chars().take(240).collect(),
            step,
        });
    }
    if let Some(last) = found.last_mut() {
        last.alike = false;
    }
    found
}

/// How a call is made to fail, once.
fn errors(call: &str) -> &'static [&'static str] {
    match call {
        "write" | "pwrite64" | "pwritev" => &["ENOSPC", "EIO", "EINTR"],
        "fsync" | "fdatasync" => &["EIO"],
        "read" | "pread64" => &["EIO", "EINTR"],
        "fcntl" => &["ENOLCK", "EINTR"],
        "open" | "openat" => &["EACCES", "EMFILE", "EINTR"],
        "ppoll" => &["EINTR"],
        "mkdir" | "mkdirat" => &["EACCES", "ENOSPC"],
        "renameat" | "renameat2" => &["EACCES", "EIO", "ENOSPC"],
        "unlinkat" | "ftruncate" => &["EACCES", "EIO"],
        _ => &[],
    }
}

/// The state of a scenario, and its points.
fn begin(scenario: &impl Scenario) -> (Prepared, Vec<Point>) {
    for tool in ["strace", "flock", "bash", "cp"] {
        need(tool);
    }
    let prepared = scenario.prepare().expect("a state to begin with");
    let site = scenario.copy(&prepared).expect("a copy of the state");
    let file = site.path("trace");
    let outcome = scenario.try_once(&prepared, &site, &Injection::Trace(file.clone()));
    let outcome = outcome.expect("the scenario, undisturbed");
    assert!(!outcome.struck, "killed, and not by the test");
    let trace = std::fs::read_to_string(&file).expect("a trace");
    let found = points(&trace, word(&scenario.place(&site)));
    let is_seen = found.iter().any(|point| point.phase == Phase::Middle);
    assert!(is_seen, "the folder is not seen in the trace:\n{trace}");
    (prepared, found)
}

/// Tries all `injections`, some at once, and fails with all that went wrong. The outcomes are in their
/// order, each with the number of its injection.
fn try_all(
    scenario: &impl Scenario,
    prepared: &Prepared,
    injections: &[Injection],
    what: &str,
) -> Vec<(usize, Outcome)> {
    let began = instant();
    let (outcomes, faults) = try_each(injections, |injection| {
        let tried = scenario
            .copy(prepared)
            .and_then(|site| scenario.try_once(prepared, &site, injection));
        tried.map_err(|fault| format!("{injection:?}\n    {fault}"))
    });
    let count =
        |is: fn(&Outcome) -> bool| outcomes.iter().filter(|(_, outcome)| is(outcome)).count();
    println!(
        "{what} {}: {} points tried, {} killed ({} with the command at work), {} said no, {} \
         wrong, {:.1} s",
        scenario.name(),
        injections.len(),
        count(|outcome| outcome.struck),
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
        scenario.name(),
        faults.len(),
        injections.len()
    );
    outcomes
}

/// Kills the scenario at its points: at those that differ, and at the others too where the page does not
/// agree with what was seen.
///
/// The trace of a process that was woken or interrupted differs a little from run to run: a kill may then
/// strike a call earlier or later than was meant, or none. The points beside one make up for it.
pub(crate) fn crash(scenario: &impl Scenario) {
    let (prepared, found) = begin(scenario);
    let (early, rest): (Vec<Point>, Vec<Point>) = found
        .into_iter()
        .partition(|point| point.phase == Phase::Early);
    let early = early.into_iter().step_by(scenario.early_sample());
    let points: Vec<Point> = early.chain(rest).collect();
    let all = is_long() || page::is_written();
    let differs = |at: &usize| all || points[*at].phase == Phase::Early || !points[*at].alike;
    let (distinct, alike): (Vec<usize>, Vec<usize>) = (0..points.len()).partition(differs);
    let mut seen = kill(scenario, &prepared, &points, &distinct);
    let is_enough = |seen: &[(usize, Aftermath)], tried: usize| seen.len() * 10 >= tried * 9;
    let of_points = |seen: &[(usize, Aftermath)]| -> Vec<(String, Aftermath)> {
        let of_point = |(at, after): &(usize, Aftermath)| (points[*at].step.clone(), after.clone());
        seen.iter().map(of_point).collect()
    };
    let mut tried = distinct.len();
    if !is_enough(&seen, tried) || !page::agrees(scenario.name(), &of_points(&seen)) {
        seen.extend(kill(scenario, &prepared, &points, &alike));
        seen.sort_by_key(|(at, _)| *at);
        tried += alike.len();
    }
    assert!(
        is_enough(&seen, tried),
        "{}: only {} of {tried} kills struck; the trace does not describe what runs",
        scenario.name(),
        seen.len(),
    );
    page::agree(scenario.name(), &of_points(&seen));
}

/// Kills the scenario at these of its points; what was seen where the kill struck.
fn kill(
    scenario: &impl Scenario,
    prepared: &Prepared,
    points: &[Point],
    which: &[usize],
) -> Vec<(usize, Aftermath)> {
    let kills = which.iter().map(|at| Injection::Kill(points[*at].clone()));
    let kills: Vec<Injection> = kills.collect();
    try_all(scenario, prepared, &kills, "crash")
        .into_iter()
        .filter(|(_, outcome)| outcome.struck)
        .filter_map(|(at, outcome)| Some((which[at], outcome.after?)))
        .collect()
}

/// Makes every call of some kinds fail once; of all that, a sample is tried. A call that fails in several ways does so in
/// one of them, its neighbour of that kind in the next one, and the long run tries each.
pub(crate) fn fail(scenario: &impl Scenario) {
    let (prepared, found) = begin(scenario);
    let sample = if is_long() {
        1
    } else {
        scenario.failing_sample()
    };
    let injections: Vec<Injection> = found
        .into_iter()
        .filter(|point| point.phase != Phase::Early && scenario.may_fail(point))
        .flat_map(|point| {
            let errors = errors(&point.call);
            let (first, count) = match errors.len() {
                several if several > 1 && !is_long() => (point.nth % several, 1),
                all => (0, all),
            };
            let errors = errors.iter().skip(first).take(count);
            errors.map(move |error| Injection::Fail(point.clone(), error))
        })
        .step_by(sample)
        .collect();
    assert!(!injections.is_empty(), "nothing was found that can fail");
    let _ = try_all(scenario, &prepared, &injections, "failure");
}

/// Whether all was done but the answer, which the system did not take.
pub(crate) fn is_answer_lost(answer: &Answer) -> bool {
    answer.is(1) && answer.errors.contains("the answer could not be written")
}

/// Whether the program asks the system about itself, and not the store about a lock.
pub(crate) fn asks_system(point: &Point) -> bool {
    ["/proc/", "/etc/"]
        .iter()
        .any(|it| point.shown.contains(it))
}

mod crash_points {
    use super::*;

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
}
