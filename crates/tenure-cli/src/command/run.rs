//! `run`: holds a lock while a command runs.
//!
//! | question | module |
//! |---|---|
//! | which locks it takes, in which order and under which terms | `plan`, `terms` |
//! | how it takes them, all or none | `acquire_all` |
//! | what the command learns | `child_env` |
//! | what runs when it displaces another run, or is displaced | `hooks` |
//! | what it shares with the run around it | `within` |
//! | how it becomes the command | `exec` |
//! | how it follows the life of another process | `follow` |
//!
//! `supervise` says what follows from signals and losses while the command runs.

pub(super) mod acquire_all;
mod child_env;
mod exec;
#[cfg_attr(not(target_os = "linux"), path = "run/no_follow.rs")]
mod follow;
#[cfg_attr(windows, path = "run/no_hooks.rs")]
mod hooks;
pub(super) mod plan;
pub(super) mod terms;
mod within;

pub(crate) use exec::is_ordinary_end;

use super::refusal::{cancelled, cancelled_by, superseded};
use super::result::RunResult;
use super::session::{Session, collect_signals};
use crate::dialect::PersonLine;
use crate::exit::{Ending, Exit, signalled};
use crate::failure::Failure;
use crate::render::Reporter;
use crate::request::{How, OnHeld, Place, Program, Run, Supervised, Task};
use crate::signals::{self, Signals};
use crate::store::Part;
use crate::supervise::locks::{Around, Driver, RunState, SpawnError};
use crate::supervise::{End, OnLost, Terms as Supervising, Verdict};
use acquire_all::Hold;
pub(super) use child_env::ChildEnv;
use follow::FollowTargets;
use hooks::Hook;
use plan::Planning;
use serde_json::{Value, json};
use std::ffi::OsString;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::Command;
use tenure_core::{Cancel, Left, LockName, RequestId};
use tenure_engine::audit::Releaser;
use tenure_engine::engine::Limits;
use tenure_os::clock::{Clock, SystemClock};
use tenure_store::{StoreError, Verbs};

/// Carries it out and shows how it ended.
pub(crate) fn run(run: Run, mut reporter: Reporter) -> Ending {
    if let Some(name) = &run.task.name {
        reporter.set_lock(name);
    }
    #[cfg(unix)]
    if let Some(agent) = &run.place.agent {
        super::hook::ran(agent);
    }
    let skips = run.task.on_held == OnHeld::Skip;
    if skips {
        reporter.hide_waits();
    }
    let how = run.task.supervised();
    let follow = how.and_then(|how| how.follow);
    // First: what follows is the guardian's.
    let followed = follow.map_or(Ok(None), |follow| follow::begin(follow, run.task.grace));
    let ran = followed.and_then(|followed| match run.task.main().cloned() {
        Some(main) => hold_or_run(run, main, followed, &mut reporter),
        None => run_unlocked(run, followed, &mut reporter),
    });
    if let Some(why) = follow::reason() {
        reporter.warn(why);
    }
    match ran {
        Ok(ending) => ending,
        // People who let a run be skipped need no word of it; programs that ask for a document get one.
        Err(failure) if skips && failure.is_of_a_held_lock() => {
            reporter.succeed("", skipped(&failure)).into()
        }
        Err(failure) => reporter.fail(&failure).into(),
    }
}

/// The answer for programs of a run that had nothing to do.
#[cold]
#[inline(never)]
fn skipped(failure: &Failure) -> Value {
    let fact = |key| failure.context.get(key).cloned().unwrap_or_default();
    json!({ "name": fact("name"), "status": "skipped", "holder": fact("holder") })
}

/// Opens the locks of a run, whose audit names its command.
fn session_of(
    place: Place,
    task: &Task,
    main: &LockName,
    signals: Signals,
) -> Result<Session, Failure> {
    let mut session = Session::waiting(place, signals)?;
    session.audit_writer.works(&task.program.words);
    if task.on_held == OnHeld::Skip {
        session.audit_writer.may_skip(main.clone());
    }
    Ok(session)
}

/// Runs the command under its locks. Where their place cannot be used, and the caller wants that, it runs without: a sandbox
/// keeps a command from the locks, and the work that they are for from going on.
///
/// Nothing is held then, and nothing was started. A lock that is held, a list of a newer format and a guard that another
/// process keeps say that the place works: these refuse in any case.
fn hold_or_run(
    run: Run,
    main: LockName,
    followed: Option<FollowTargets>,
    reporter: &mut Reporter,
) -> Result<Ending, Failure> {
    let Run {
        place,
        group_place,
        task,
    } = run;
    let signals = collect_signals()?;
    followed.map_or(Ok(()), FollowTargets::watch)?;
    let open = task.is_open.then(|| {
        let id = place.format().request_id(task.who.id.clone())?;
        Ok::<_, Failure>(ChildEnv::of_no_hold(&place, &id))
    });
    let open = open.transpose()?;
    let (name, folder) = (main.clone(), place.folder.clone());
    let held = hold_and_run((place, group_place), &task, main, signals, reporter);
    match (held, open) {
        (Ok(ended), _) => ended,
        (Err(failure), Some(child_env)) if is_of_place(&failure, &folder) => {
            reporter.warn(format!(
                "{}; {name} is not taken, and the command runs without it (--on-error open)",
                failure.message
            ));
            let program = find_program(&task.program.words)?;
            work_unlocked(&task, &program, &child_env, signals, reporter)
        }
        (Err(failure), _) => Err(failure),
    }
}

/// Whether a failure is that the place of a lock cannot be used: it is refused or out of reach, or its folder is none.
fn is_of_place(failure: &Failure, folder: &Path) -> bool {
    let is_none = || folder.metadata().is_ok_and(|facts| !facts.is_dir());
    failure.exit == Exit::Permission
        || failure.code == "STORE_UNREACHABLE"
        || (failure.exit == Exit::StoreUnavailable && is_none())
}

/// The failure is one from before the command: nothing has started, and nothing is held.
fn hold_and_run(
    (place, group_place): (Place, Option<Place>),
    task: &Task,
    main: LockName,
    signals: Signals,
    reporter: &mut Reporter,
) -> Result<Result<Ending, Failure>, Failure> {
    let session = session_of(place, task, &main, signals)?;
    session.tell_place(reporter);
    if task.is_open && session.store.is_remote() {
        // A wait goes on through an outage. Servers that were never there are none to wait for.
        session.reading(&main)?;
    }
    let group_session = group_place.map(|place| session_of(place, task, &main, signals));
    let group_session = group_session.transpose()?;
    let program = program_of(&session.place, task)?;
    let planning = Planning {
        task,
        session: &session,
        group_session: group_session.as_ref().unwrap_or(&session),
        request_id: session.format.request_id(task.who.id.clone())?,
        owner: None,
    };
    let mut plan = planning.plan(main)?;
    reporter.set_request_id(&plan.id);
    let hooks = Hooks {
        task,
        place: &session.place,
        main: &plan.main,
        id: &plan.id,
    };
    let targets = std::mem::take(&mut plan.targets);
    for target in &targets {
        target.session.audit_writer.hold_back();
    }
    let limits = Limits::new(task.wait, plan.keep);
    let mut holds = match acquire_all::acquire_all(targets, limits, reporter) {
        Ok(holds) => holds,
        Err((mut holds, failure)) => {
            hooks.superseded_before_the_start(&failure, &mut holds, reporter);
            release_all(&holds, reporter, &RunResult::of_nothing(task));
            return Err(failure);
        }
    };
    let child_env = ChildEnv::of_holds(&holds, &plan, task);
    if let Err(failure) = hooks.supersedes(&child_env, &mut holds, reporter) {
        hooks.superseded_before_the_start(&failure, &mut holds, reporter);
        release_all(&holds, reporter, &RunResult::of_nothing(task));
        return Err(failure);
    }
    // A signal that came in time means that the command never starts.
    if signals::stop_asked().is_some() {
        release_all(&holds, reporter, &RunResult::of_nothing(task));
        return Err(cancelled("acquire"));
    }
    let parts = match within::enter(&plan.around) {
        Ok(parts) => parts,
        Err(failure) => {
            release_all(&holds, reporter, &RunResult::of_nothing(task));
            return Err(failure);
        }
    };
    let How::Supervised(how) = &task.how else {
        holds.iter().for_each(Hold::catch_up);
        let failure = become_it(task, (&program, &child_env), signals, &holds, &parts);
        release_all(&holds, reporter, &RunResult::of_nothing(task));
        return Ok(Err(failure));
    };
    let supervision = Supervision {
        task,
        how,
        terms: terms::of(how, task.grace, signals),
        signals,
        around: within::around(&plan.around, &parts),
    };
    let mut state = RunState::new(holds.iter().map(|hold| hold.life.clone()));
    let mut verdict = supervision.under_locks(&holds, reporter, |driver, reporter| {
        supervise(task, &program, driver, &child_env, &mut state, reporter)
    });
    let mut superseded = |by: &Cancel, holds: &mut [Hold<'_>], reporter: &mut Reporter| {
        hooks.superseded(
            &child_env,
            &superseded(&plan.main, by),
            "1",
            holds,
            reporter,
        );
    };
    let (about, was_ours) = supervision.give_back(
        &mut state,
        &mut holds,
        &mut verdict,
        &mut superseded,
        reporter,
    );
    if let (false, OnLost::Terminate, Ok(Verdict::Command(end))) = (was_ours, how.on_lost, &verdict)
    {
        return Ok(Err(lost_unseen(&plan.main, *end)));
    }
    Ok(answer(verdict, about.as_ref().unwrap_or(&plan.main), task))
}

/// Becomes the command. Comes back only if that failed.
fn become_it(
    task: &Task,
    (program, child_env): (&Path, &ChildEnv),
    signals: Signals,
    holds: &[Hold<'_>],
    parts: &[Part],
) -> Failure {
    let replaced = started(
        &task.program,
        program,
        child_env,
        |command| match exec::replace_self(command, signals, holds, parts) {
            Some(error) => Err(error),
            None => Ok(()),
        },
    );
    match replaced {
        Err(error) => not_started(&task.program.words, error),
        Ok(()) => cancelled("run"),
    }
}

/// Records that a run ends because another caller asked for one of its locks.
#[cold]
#[inline(never)]
fn record_superseded(
    holds: &[Hold<'_>],
    about: Option<&LockName>,
    by: &Cancel,
    reporter: &mut Reporter,
) {
    let is_it = |hold: &&Hold<'_>| about.is_none_or(|name| hold.name() == name);
    if let Some(hold) = holds.iter().find(is_it) {
        let (session, now) = (hold.session, hold.session.clock.now());
        let answer = superseded(hold.name(), by);
        session.audit_writer.superseded(
            reporter,
            hold.occasion(&now),
            &answer.context,
            hold.claim.token,
        );
    }
}

/// How a run is supervised.
struct Supervision<'a> {
    task: &'a Task,
    how: &'a Supervised,
    terms: Supervising,
    signals: Signals,
    around: Vec<Around<'a>>,
}

impl Supervision<'_> {
    /// Gives the locks back, the last one first, once no other run works under them any more. Answers which of
    /// several locks the end was about, and whether all were this run's to the end.
    fn give_back(
        &self,
        state: &mut RunState,
        holds: &mut [Hold<'_>],
        verdict: &mut Result<Verdict, SpawnError>,
        superseded: &mut dyn FnMut(&Cancel, &mut [Hold<'_>], &mut Reporter),
        reporter: &mut Reporter,
    ) -> (Option<LockName>, bool) {
        let (mut about, mut is_told) = (None, false);
        let (mut were_ours, mut left) = (true, holds.len());
        loop {
            match &*verdict {
                // Once: there may be several rounds.
                Ok(Verdict::Superseded { by }) if !is_told => {
                    is_told = true;
                    about = acquire_all::asked_for(holds);
                    record_superseded(holds, about.as_ref(), by, reporter);
                    superseded(by, holds, reporter);
                }
                Ok(Verdict::Lost) if !is_told => {
                    is_told = true;
                    let around = state.around_lost();
                    let around = around.and_then(|index| self.around.get(index));
                    about = acquire_all::lost(holds).or(around.map(|around| around.name.clone()));
                }
                Ok(_) | Err(_) => {}
            }
            let result = RunResult::of_run(verdict, self.task);
            let holds = holds.get(..left).unwrap_or_default();
            let Some((hold, before)) = holds.split_last() else {
                return (about, were_ours);
            };
            if let Some(was_ours) = release(hold, reporter, &result, true) {
                were_ours &= was_ours;
                left = before.len();
            } else {
                self.stay(state, holds, reporter, verdict);
            }
        }
    }

    /// Stays for as long as other runs work under the locks. What happens to this run meanwhile counts as if
    /// its command still ran, unless something else than the command itself had ended it.
    #[cold]
    #[inline(never)]
    fn stay(
        &self,
        state: &mut RunState,
        holds: &[Hold<'_>],
        reporter: &mut Reporter,
        verdict: &mut Result<Verdict, SpawnError>,
    ) {
        state.keep(holds.len());
        let end = match verdict {
            Ok(Verdict::Command(end)) => Some(*end),
            Ok(_) | Err(_) => None,
        };
        let stayed = self.under_locks(holds, reporter, |driver, _| {
            driver.stay(state, end.unwrap_or(End::Code(0)))
        });
        if end.is_some() {
            *verdict = Ok(stayed);
        }
    }

    /// Does some work as the supervisor of the locks.
    fn under_locks<T>(
        &self,
        holds: &[Hold<'_>],
        reporter: &mut Reporter,
        work: impl FnOnce(&Driver<'_>, &mut Reporter) -> T,
    ) -> T {
        let failed = |hold: &Hold<'_>, consecutive, error: &str| {
            let now = hold.session.clock.now();
            let audit_writer = &hold.session.audit_writer;
            audit_writer.heartbeat_failed(hold.occasion(&now), consecutive, error);
        };
        let on_failed: Vec<_> = holds
            .iter()
            .map(|hold| move |consecutive, error: &str| failed(hold, consecutive, error))
            .collect();
        let clock = SystemClock::new(None);
        let clock = holds.first().map_or(&clock, |hold| &hold.session.clock);
        let catch_up = || holds.iter().for_each(Hold::catch_up);
        let driver = Driver {
            on_started: &catch_up,
            held: holds
                .iter()
                .zip(&on_failed)
                .map(|(hold, on_failed)| hold.held(on_failed))
                .collect(),
            around: self.around.clone(),
            ..driver(self.how, clock, self.signals, self.terms, reporter)
        };
        work(&driver, reporter)
    }
}

/// The hooks of a run, for when it takes the place of other runs or another run takes its place.
struct Hooks<'a> {
    task: &'a Task,
    place: &'a Place,
    main: &'a LockName,
    id: &'a str,
}

impl Hooks<'_> {
    /// Other runs give up their place. An error, if another request asked for this run's locks meanwhile, or one
    /// is lost.
    fn supersedes(
        &self,
        child_env: &ChildEnv,
        holds: &mut [Hold<'_>],
        reporter: &mut Reporter,
    ) -> Result<(), Failure> {
        let Some(program) = self.task.hooks.on_supersede.as_deref() else {
            return Ok(());
        };
        let displaced: Vec<&str> = holds
            .iter()
            .flat_map(|hold| &hold.displaced)
            .map(RequestId::as_str)
            .collect();
        if displaced.is_empty() || signals::stop_asked().is_some() {
            return Ok(());
        }
        holds.iter().for_each(Hold::catch_up);
        let facts = [("TENURE_SUPERSEDES", displaced.join(" ").into())];
        let hook = Hook {
            flag: "--on-supersede",
            program,
            grace: self.task.grace,
            yields: true,
        };
        hook.run(
            child_env,
            &facts,
            &mut || acquire_all::keep_fresh(holds),
            reporter,
        );
        acquire_all::refuse_start(holds)
    }

    /// Says that this run gives up its place before its command has started.
    fn superseded_before_the_start(
        &self,
        failure: &Failure,
        holds: &mut [Hold<'_>],
        reporter: &mut Reporter,
    ) {
        if failure.exit == Exit::Superseded {
            let child_env = ChildEnv::of_waiter(
                self.place,
                self.main,
                self.id,
                self.task.group_text.as_deref(),
            );
            self.superseded(&child_env, failure, "0", holds, reporter);
        }
    }

    /// Says that this run gives up its place, and that its command has ended or never started.
    fn superseded(
        &self,
        child_env: &ChildEnv,
        failure: &Failure,
        started: &str,
        holds: &mut [Hold<'_>],
        reporter: &mut Reporter,
    ) {
        let Some(program) = self.task.hooks.on_superseded.as_deref() else {
            return;
        };
        let said = |key: &str| {
            let said = failure.context.get(key).and_then(Value::as_str);
            OsString::from(said.unwrap_or_default())
        };
        let facts = [
            ("TENURE_SUPERSEDED_BY", said("superseded_by")),
            ("TENURE_SUPERSEDED_KIND", said("superseded_kind")),
            ("TENURE_SUPERSEDED_ACTOR", said("superseded_actor")),
            ("TENURE_SUPERSEDED_WHY", said("superseded_why")),
            ("TENURE_STARTED", started.into()),
        ];
        let hook = Hook {
            flag: "--on-superseded",
            program,
            grace: self.task.grace,
            yields: false,
        };
        hook.run(
            child_env,
            &facts,
            &mut || acquire_all::keep_fresh(holds),
            reporter,
        );
    }
}

/// Runs the command of an intent that holds no lock. It is supervised like any other, and the store is
/// not asked.
#[cold]
#[inline(never)]
fn run_unlocked(
    run: Run,
    followed: Option<FollowTargets>,
    reporter: &mut Reporter,
) -> Result<Ending, Failure> {
    let Run { place, task, .. } = run;
    let id = place.format().request_id(task.who.id.clone())?;
    reporter.set_request_id(id.as_str());
    let signals = collect_signals()?;
    followed.map_or(Ok(()), FollowTargets::watch)?;
    let program = program_of(&place, &task)?;
    if let Some(warning) = task.warning {
        reporter.warn(warning);
    }
    if signals::stop_asked().is_some() {
        return Err(cancelled("run"));
    }
    let child_env = ChildEnv::of_no_hold(&place, &id);
    work_unlocked(&task, &program, &child_env, signals, reporter)
}

/// Does the work of a run that holds nothing.
#[cold]
#[inline(never)]
fn work_unlocked(
    task: &Task,
    program: &Path,
    child_env: &ChildEnv,
    signals: Signals,
    reporter: &mut Reporter,
) -> Result<Ending, Failure> {
    let How::Supervised(how) = &task.how else {
        return Err(become_it(task, (program, child_env), signals, &[], &[]));
    };
    let clock = SystemClock::new(None);
    let terms = terms::of(how, task.grace, signals);
    let driver = driver(how, &clock, signals, terms, reporter);
    let mut state = RunState::new([]);
    match supervise(task, program, &driver, child_env, &mut state, reporter) {
        Ok(verdict) => ended(&verdict, task),
        Err(error) => Err(not_started(&task.program.words, error)),
    }
}

/// A driver without locks.
fn driver<'a>(
    how: &Supervised,
    clock: &'a dyn Clock,
    signals: Signals,
    terms: Supervising,
    reporter: &Reporter,
) -> Driver<'a> {
    Driver {
        held: Vec::new(),
        around: Vec::new(),
        clock,
        signals,
        terms,
        close: how.close,
        on_started: &|| {},
        quiet: reporter.is_quiet(),
    }
}

/// Runs the command and, if it failed, the rollback. That runs under the lock too, which is renewed all
/// the while; if the lock was lost, it does not run.
fn supervise(
    task: &Task,
    program: &Path,
    driver: &Driver<'_>,
    child_env: &ChildEnv,
    state: &mut RunState,
    reporter: &mut Reporter,
) -> Result<Verdict, SpawnError> {
    let verdict = started(&task.program, program, child_env, |command| {
        driver.run(command, state)
    })?;
    reporter.command_has_run();
    let rollback = task.supervised().and_then(|how| how.rollback.as_deref());
    let Some(rollback) = rollback else {
        return Ok(verdict);
    };
    let code = match &verdict {
        Verdict::Command(End::Code(code)) => *code,
        Verdict::Command(End::Signal(number)) => Ending::DieBy(*number).code(),
        Verdict::Signalled { number, .. } => signalled(*number).code().into(),
        Verdict::Superseded { .. } => Exit::Superseded.code().into(),
        Verdict::MaxRuntime => Exit::Timeout.code().into(),
        Verdict::Lost => return Ok(verdict),
    };
    if code == 0 {
        return Ok(verdict);
    }
    if state.is_lost() {
        reporter.warn("the rollback is not run, because the lock was lost");
        return Ok(verdict);
    }
    let mut command = by_shell(rollback);
    child_env.apply(&mut command);
    command.env("TENURE_EXIT_CODE", code.to_string());
    if let Some(step) = RunResult::of_nothing(task).failure_step {
        command.env("TENURE_FAILURE_STEP", step);
    }
    let rolled_back = driver.run(command, state);
    match &rolled_back {
        Ok(Verdict::Command(End::Code(0))) => {}
        Ok(Verdict::Command(End::Code(code))) => {
            reporter.warn(format!("the rollback failed with exit code {code}"));
        }
        Ok(Verdict::Command(End::Signal(number)) | Verdict::Signalled { number, .. }) => {
            reporter.warn(format!("the rollback was ended by signal {number}"));
        }
        // A rollback is not asked to make room, and has no limit.
        Ok(Verdict::Lost | Verdict::Superseded { .. } | Verdict::MaxRuntime) => {
            reporter.warn("the rollback was ended, because the lock was lost");
        }
        Err(
            SpawnError::Command(error)
            | SpawnError::LivenessLock(error)
            | SpawnError::Unseen(error),
        ) => {
            reporter.warn(format!("the rollback could not be run: {error}"));
        }
        Err(SpawnError::Unnamed(error)) => {
            reporter.warn(format!("the rollback could not be run: {error}"));
        }
    }
    Ok(match (verdict, rolled_back) {
        // The answer is what happened to this run, and not to the rollback; the first event counts.
        (Verdict::Command(_), Ok(Verdict::Lost)) => Verdict::Lost,
        (Verdict::Command(end), Ok(Verdict::Signalled { number, .. })) => Verdict::Signalled {
            number,
            end: Some(end),
        },
        (verdict, _) => verdict,
    })
}

/// The system's shell with one line to run.
fn by_shell(line: &str) -> Command {
    #[cfg(unix)]
    let (mut command, words) = (Command::new("sh"), ["-c", line]);
    #[cfg(windows)]
    let (mut command, words) = (Command::new("cmd.exe"), ["/c", line]);
    as_typed(&mut command, words);
    command
}

/// Hands the words to a shell, which on Windows takes a line apart by rules of its own.
fn as_typed<'a>(command: &mut Command, words: impl IntoIterator<Item = &'a str>) {
    #[cfg(unix)]
    command.args(words);
    #[cfg(windows)]
    for word in words {
        std::os::windows::process::CommandExt::raw_arg(command, word);
    }
}

/// The answer of a run whose command has ended before its supervisor saw that the lock was lost.
fn lost_unseen(name: &LockName, end: End) -> Failure {
    let how = match end {
        End::Code(code) => format!("with exit code {code}"),
        End::Signal(number) => format!("by signal {number}"),
    };
    Failure::new(
        Exit::LockLost,
        "LOCK_LOST",
        format!("{name} was lost while the command ran; the command has ended {how}"),
    )
}

/// Gives the locks back, the last one first. False if one of them was not this run's any more.
pub(super) fn release_all(holds: &[Hold<'_>], reporter: &mut Reporter, result: &RunResult) -> bool {
    let mut were_ours = true;
    for hold in holds.iter().rev() {
        were_ours &= release(hold, reporter, result, false).unwrap_or(true);
    }
    were_ours
}

/// Changes the list, then releases the liveness lock. A failure is a warning and does not change the exit
/// code. False if the lock was not this run's any more. `None`, without any change, if `heeds` is set and
/// other runs work under the lock.
fn release(
    hold: &Hold<'_>,
    reporter: &mut Reporter,
    result: &RunResult,
    heeds: bool,
) -> Option<bool> {
    let Hold {
        session, handle, ..
    } = hold;
    reporter.explain(&match &result.failure_step {
        Some(step) => format!("releasing {}: failure in {step}", handle.name()),
        None => format!("releasing {}: {}", handle.name(), result.result),
    });
    let now = session.clock.now();
    let left = signals::unstopped(|| {
        if heeds {
            session.store.release_if_alone(&**handle, &now)
        } else {
            session.store.release(&**handle, &now).map(Some)
        }
    });
    let now = session.clock.now();
    let occasion = hold.occasion(&now);
    match left {
        Ok(None) => return None,
        Ok(Some(Left::Released { held_ms })) => {
            session.audit_writer.released(
                reporter,
                occasion,
                held_ms,
                result.ending(),
                Releaser::Owner,
            );
            let name = handle.name();
            session.tell(reporter, &PersonLine::Released { name });
        }
        Ok(Some(Left::Withdrawn)) => {}
        Ok(Some(Left::Absent)) => {
            session
                .audit_writer
                .lost(reporter, occasion, hold.claim.token);
            reporter.warn(format!(
                "{}: the lock was not ours any more when it was released",
                handle.name()
            ));
            return Some(false);
        }
        Err(error) => {
            let path = session.store.place(handle.name());
            let writer = &session.audit_writer;
            if result.is_lost {
                writer.lost(reporter, occasion, hold.claim.token);
            }
            writer.release_failed(reporter, occasion, &path, &error);
            let what_next = if matches!(error, StoreError::Format { .. }) {
                "who has it next is for the program that wrote the file"
            } else if session.store.is_remote() {
                "it is free for the next caller once its lease has run out"
            } else if session.store.publishes() {
                "remove it by hand once no process works under it"
            } else {
                "it is free for the next caller all the same"
            };
            reporter.warn(format!(
                "{}: not released ({error}); {what_next}",
                handle.name()
            ));
        }
    }
    Some(true)
}

fn answer(
    verdict: Result<Verdict, SpawnError>,
    name: &LockName,
    task: &Task,
) -> Result<Ending, Failure> {
    match verdict {
        Ok(verdict @ (Verdict::Command(_) | Verdict::Signalled { .. } | Verdict::MaxRuntime)) => {
            ended(&verdict, task)
        }
        Ok(Verdict::Superseded { by }) => Err(superseded(name, &by)),
        Ok(Verdict::Lost) => Err(Failure::new(
            Exit::LockLost,
            "LOCK_LOST",
            format!("{name} was lost while the command ran; the command was ended"),
        )),
        Err(error) => Err(not_started(&task.program.words, error)),
    }
}

/// The answer to an end that has nothing to do with the lock.
fn ended(verdict: &Verdict, task: &Task) -> Result<Ending, Failure> {
    match verdict {
        Verdict::Command(End::Code(code)) => Ok(Ending::Command(*code)),
        Verdict::Command(End::Signal(number)) => Ok(Ending::DieBy(*number)),
        Verdict::Signalled { number, end } => Err(cancelled_with(*number, *end)),
        Verdict::MaxRuntime => Err(terms::too_long(task.supervised())),
        // A run without a lock loses none.
        Verdict::Superseded { .. } | Verdict::Lost => Ok(Exit::General.into()),
    }
}

/// The answer of a run that a signal ended. It is no success, whatever the command did at the signal. If the
/// command ended with a code, the answer has that too.
#[cold]
fn cancelled_with(number: i32, end: Option<End>) -> Failure {
    let mut failure = cancelled_by(number, "run");
    if let Some(End::Code(code)) = end {
        let said = format!("; the command ended with exit code {code}");
        failure.message.push_str(&said);
        failure
            .context
            .insert("command_exit_code".into(), code.into());
    }
    failure
}

pub(super) fn not_started(command: &[OsString], error: SpawnError) -> Failure {
    match error {
        SpawnError::Command(error) => not_runnable(command, &error),
        SpawnError::Unnamed(error) => error.into(),
        SpawnError::Unseen(error) => Failure::new(
            Exit::General,
            "CANNOT_SUPERVISE",
            format!(
                "the command was not started, for the kernel refuses to tell of its end (waitid: {error}); \
                 is a seccomp filter in place?"
            ),
        ),
        SpawnError::LivenessLock(source) => StoreError::Io {
            place: "the liveness lock".to_owned(),
            doing: "handing it to the command",
            source,
        }
        .into(),
    }
}

fn not_runnable(command: &[OsString], error: &std::io::Error) -> Failure {
    let program = command.first().map(|word| word.to_string_lossy());
    let program = program.unwrap_or_default();
    if error.kind() == std::io::ErrorKind::NotFound {
        Failure::new(
            Exit::CommandNotFound,
            "COMMAND_NOT_FOUND",
            match error.get_ref() {
                Some(why) => format!("{program}: {why}"),
                None => format!("{program}: command not found"),
            },
        )
    } else if is_refused_to_all(error) {
        Failure::new(
            Exit::General,
            "CANNOT_SUPERVISE",
            format!(
                "{program} was not started, for the system starts no process: {error}; is a limit reached, or a \
                 seccomp filter in place?"
            ),
        )
    } else {
        Failure::new(
            Exit::CannotRun,
            "COMMAND_NOT_RUNNABLE",
            format!("{program}: {error}"),
        )
    }
}

/// Whether the system refuses to make a process or its group, whatever the program. That the caller may run the program was
/// found out before.
#[cfg(unix)]
fn is_refused_to_all(error: &std::io::Error) -> bool {
    match error.raw_os_error() {
        Some(libc::ENOSYS | libc::EAGAIN | libc::ENOMEM) => true,
        // A policy may refuse this one program so. Then another one starts.
        Some(libc::EPERM) => {
            use std::os::unix::process::CommandExt;
            let mut shell = Command::new("/bin/sh");
            shell.args(["-c", ":"]).process_group(0);
            shell.status().is_err()
        }
        _ => false,
    }
}

#[cfg(not(unix))]
fn is_refused_to_all(_: &std::io::Error) -> bool {
    false
}

/// The program of a run, found before the lock is touched.
fn program_of(place: &Place, task: &Task) -> Result<PathBuf, Failure> {
    let hint = |failure| terms::hint_at_shell(failure, place, task);
    find_program(&task.program.words).map_err(hint)
}

/// Finds the program as a shell would, before the lock is touched. It looks in the current folder only if a
/// path names that.
#[cfg(windows)]
pub(super) fn find_program(command: &[OsString]) -> Result<PathBuf, Failure> {
    let not_found = || not_runnable(command, &std::io::ErrorKind::NotFound.into());
    let program = command
        .first()
        .filter(|program| !program.is_empty())
        .ok_or_else(not_found)?;
    let endings = std::env::var("PATHEXT").unwrap_or_else(|_| ".COM;.EXE;.BAT;.CMD".to_owned());
    let find = |path: PathBuf| {
        let with = |ending: &str| {
            let mut path = path.clone().into_os_string();
            path.push(ending);
            PathBuf::from(path)
        };
        let own = path.extension().map(|_| path.clone());
        own.into_iter()
            .chain(endings.split(';').map(with))
            .find(|candidate| candidate.is_file())
    };
    let is_path = program.to_string_lossy().contains(['/', '\\', ':']);
    if is_path {
        return find(PathBuf::from(program)).ok_or_else(not_found);
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .filter(|folder| !folder.as_os_str().is_empty())
        .find_map(|folder| find(folder.join(program)))
        .ok_or_else(not_found)
}

/// Finds the program as a shell would, before the lock is touched.
#[cfg(unix)]
pub(super) fn find_program(command: &[OsString]) -> Result<PathBuf, Failure> {
    use std::os::unix::ffi::OsStrExt;
    let not_found = || not_runnable(command, &std::io::ErrorKind::NotFound.into());
    let program = command
        .first()
        .filter(|program| !program.is_empty())
        .ok_or_else(not_found)?;
    if program.as_bytes().contains(&b'/') {
        let path = PathBuf::from(program);
        return match rustix::fs::access(&path, rustix::fs::Access::EXEC_OK) {
            Ok(()) if path.is_file() => Ok(path),
            Ok(()) => Err(not_runnable(
                command,
                &std::io::ErrorKind::IsADirectory.into(),
            )),
            Err(rustix::io::Errno::NOENT | rustix::io::Errno::NOTDIR) => Err(not_found()),
            Err(errno) => Err(not_runnable(command, &errno.into())),
        };
    }
    let path = std::env::var_os("PATH").unwrap_or_else(|| "/usr/local/bin:/usr/bin:/bin".into());
    let mut denied = None;
    for folder in std::env::split_paths(&path) {
        let folder = if folder.as_os_str().is_empty() {
            PathBuf::from(".")
        } else {
            folder
        };
        let candidate = folder.join(program);
        match rustix::fs::access(&candidate, rustix::fs::Access::EXEC_OK) {
            Ok(()) if candidate.is_file() => return Ok(candidate),
            Err(rustix::io::Errno::ACCESS) if candidate.is_file() => denied = Some(candidate),
            _ => {}
        }
    }
    match denied {
        Some(_) => Err(not_runnable(
            command,
            &std::io::ErrorKind::PermissionDenied.into(),
        )),
        None => Err(not_found()),
    }
}

/// Has the command started. A file that the system knows as no program, and that names no interpreter, is a script for
/// the shell, as for execvp(3).
fn started<T>(
    said: &Program,
    program: &Path,
    child_env: &ChildEnv,
    mut start: impl FnMut(Command) -> Result<T, SpawnError>,
) -> Result<T, SpawnError> {
    let error = match start(prepare(said, program, child_env)) {
        Err(SpawnError::Command(error)) => error,
        other => return other,
    };
    if is_script(&error) {
        let mut command = Command::new("/bin/sh");
        command.arg(program).args(said.words.iter().skip(1));
        child_env.apply(&mut command);
        return start(command);
    }
    Err(SpawnError::Command(without_interpreter(program, error)))
}

/// Prepares a command whose number variables have to name, which nobody knows before the command is there: a shell sets
/// them, and becomes the command.
#[cfg(unix)]
fn prepare_with_its_number(said: &Program, program: &Path, child_env: &ChildEnv) -> Command {
    let names = said.of_service.join(" ");
    let numbers: Vec<_> = said
        .of_service
        .iter()
        .map(|name| format!("{name}=$$"))
        .collect();
    // A newer systemd names the same process a second time, in another way.
    let line = format!(
        "{}; export {names}; unset LISTEN_PIDFDID; exec \"$@\"",
        numbers.join(" ")
    );
    let mut command = Command::new("/bin/sh");
    command.args(["-c", &line, "sh"]).arg(program);
    command.args(said.words.iter().skip(1));
    child_env.apply(&mut command);
    command
}

/// Whether the system refuses a file because it is neither a program nor names an interpreter.
#[cfg(unix)]
pub(super) fn is_script(error: &std::io::Error) -> bool {
    error.raw_os_error() == Some(libc::ENOEXEC)
}

#[cfg(windows)]
fn is_script(_: &std::io::Error) -> bool {
    false
}

/// Says of a script that is there which interpreter is not.
fn without_interpreter(program: &Path, error: std::io::Error) -> std::io::Error {
    if error.kind() != std::io::ErrorKind::NotFound || !program.exists() {
        return error;
    }
    let mut first = [0; 256];
    let read = std::fs::File::open(program).and_then(|mut file| file.read(&mut first));
    let line = first.get(..read.unwrap_or_default()).unwrap_or_default();
    let line = line.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let Some(interpreter) = line.strip_prefix(b"#!") else {
        let why = "the program that has to load it is not there";
        return std::io::Error::new(std::io::ErrorKind::NotFound, why);
    };
    let words = String::from_utf8_lossy(interpreter);
    let ends = if words.ends_with('\r') {
        ", for its lines end in CR LF"
    } else {
        ""
    };
    let why = format!("its interpreter {} is not there{ends}", words.trim());
    std::io::Error::new(std::io::ErrorKind::NotFound, why)
}

/// The command with its words and its variables.
fn prepare(said: &Program, program: &Path, child_env: &ChildEnv) -> Command {
    #[cfg(unix)]
    if !said.of_service.is_empty() {
        return prepare_with_its_number(said, program, child_env);
    }
    let mut command = Command::new(program);
    if let Some((first, rest)) = said.words.split_first() {
        #[cfg(unix)]
        std::os::unix::process::CommandExt::arg0(&mut command, first).args(rest);
        #[cfg(windows)]
        if said.by_shell {
            let words = rest.iter().map(|word| word.to_string_lossy());
            let words: Vec<_> = words.collect();
            as_typed(&mut command, words.iter().map(AsRef::as_ref));
        } else {
            let _ = first;
            command.args(rest);
        }
    }
    child_env.apply(&mut command);
    command
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io;

    /// What an open run goes on at, and what it refuses: a lock that works and is not to be had.
    #[test]
    fn only_a_place_that_cannot_be_used_opens_a_run() {
        let place = || "/l/x".to_owned();
        let doing = "opening the folder";
        let why = || "why".to_owned();
        for (error, expected) in [
            (
                StoreError::Permission {
                    place: place(),
                    doing,
                },
                true,
            ),
            (
                StoreError::Denied {
                    place: place(),
                    doing,
                    why: why(),
                },
                true,
            ),
            (StoreError::Missing { place: place() }, true),
            (
                StoreError::Unsafe {
                    place: place(),
                    why: why(),
                },
                true,
            ),
            (
                StoreError::Unreachable {
                    place: place(),
                    doing,
                    why: why(),
                },
                true,
            ),
            (
                StoreError::Format {
                    place: place(),
                    found: why(),
                    known: 1,
                    by: why(),
                },
                false,
            ),
            (
                StoreError::Stuck {
                    place: place(),
                    waited_ms: 1,
                    keeper: None,
                },
                false,
            ),
            (
                StoreError::Crowded {
                    place: place(),
                    waited_ms: 1,
                },
                false,
            ),
            (StoreError::Contended { place: place() }, false),
            (
                StoreError::Full {
                    place: place(),
                    claims: 1,
                },
                false,
            ),
            (
                StoreError::Unreadable {
                    place: place(),
                    why: why(),
                },
                false,
            ),
            (
                StoreError::Io {
                    place: place(),
                    doing,
                    source: io::ErrorKind::StorageFull.into(),
                },
                false,
            ),
        ] {
            let told = error.to_string();
            assert_eq!(
                is_of_place(&error.into(), Path::new("/")),
                expected,
                "{told}"
            );
        }
        let held = Failure::new(Exit::Precondition, "LOCK_HELD", "held");
        assert!(!is_of_place(&held, Path::new("/dev/null")));
        let none = Failure::new(
            Exit::StoreUnavailable,
            "STORE_UNAVAILABLE",
            "not a directory",
        );
        assert!(is_of_place(&none, Path::new("/dev/null")));
    }
}
