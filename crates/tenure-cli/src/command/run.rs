//! `run`: holds a lock while a command runs.

mod exec;
mod terms;

pub(crate) use exec::{ends_without_release, is_ordinary_end};

use super::result::RunResult;
use super::{Session, cancelled, cancelled_by, collect_signals, superseded, why};
use crate::args::RunArgs;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::holds;
use crate::render::Surface;
use crate::request;
use crate::signals::{self, Signals};
use crate::supervise::driver::{Course, Driver, Held, SpawnError};
use crate::supervise::heartbeats::Heartbeats;
use crate::supervise::{End, OnLost, Terms, Verdict};
use crate::trail::occasion;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;
use tenure::clock::Clock;
use tenure::core::{
    AgeLimit, Claim, Holder, Kind, Left, LockName, Patience, Policy, Request, RequestId,
};
use tenure::profile::known_as;
use tenure::store::file::Seat;
use tenure::store::{Store, StoreError};

pub(crate) fn run(args: &RunArgs) -> Exit {
    let conflict = args.claiming.patience.conflict_exit_code;
    let mut surface = request::surface(&args.common, "run", conflict);
    let ran = if args.shell {
        terms::by_shell(args).and_then(|args| hold_and_run(&args, &mut surface))
    } else {
        hold_and_run(args, &mut surface)
    };
    match ran {
        Ok(exit) => exit,
        Err(failure) => surface.fail(&failure),
    }
}

fn hold_and_run(args: &RunArgs, surface: &mut Surface) -> Result<Exit, Failure> {
    let claiming = &args.claiming;
    if args.intent.is_some() || !args.param.is_empty() {
        return Err(Failure::bad_arguments(
            "--intent and --param belong to the fleet profile; name the lock itself",
        ));
    }
    request::name(args.name.as_deref())?;
    let terms = terms::of(args)?;
    let signals = collect_signals()?;
    let session = Session::waiting(&args.common, signals)?;
    let name = session.name(args.name.as_deref())?;
    let request_id = session.face.request_id(claiming.request_id.as_deref())?;
    let policy = *session.store.policy();
    let defaults = session.place.defaults(&name);
    let wait = request::wait(&claiming.patience, &defaults, &policy)?;
    let ttl_ms = session.ttl(claiming, &defaults)?;
    let ttl_ms = ttl_ms.unwrap_or(policy.supervised_ttl_ms);
    let program = find_program(&args.command)?;
    if args.exec {
        exec::refuse_unsuited(&session)?;
    }
    session.refuse_nesting(&name)?;

    let mut request = Request {
        holder: Holder {
            facts: Vec::new(),
            request_id,
            actor: session.actor(claiming),
            process: Some(session.identity.process),
            command: None,
            host: session.identity.host.clone(),
            why: why(claiming.why.as_deref(), || command_line(args)),
        },
        kind: Kind::Kernel,
        ttl_ms,
        force: request::force(claiming),
        patience: Patience::Default,
    };
    session
        .face
        .complete(&args.common, claiming, &mut request.holder)?;
    if args.exec {
        exec::mark(&mut request.holder);
    }
    surface.set_request_id(known_as(&request.holder));
    let acquired = session.acquire(surface, &name, &request, wait)?;
    let Some(seat) = acquired.seat else {
        return Err(Failure::new(
            Exit::General,
            "NO_SEAT",
            "the lock was granted without a place to hold it by",
        ));
    };
    if let Some(token) = acquired.claim.token {
        surface.explain(&format!("holding {name}, token {token}"));
    }
    let id = RequestId::as_recorded(known_as(&acquired.claim.holder));
    // A signal that came in time means that the command never starts.
    if signals::stop_asked().is_some() {
        release(&session, &seat, &id, surface, &RunResult::of_nothing(args));
        return Err(cancelled("acquire"));
    }

    let told = Told::of_hold(&session, &name, &acquired.claim);
    if args.exec {
        let error = exec::replace_self(prepare(args, program, &told), signals, &seat);
        release(&session, &seat, &id, surface, &RunResult::of_nothing(args));
        return Err(error.map_or_else(
            || cancelled("run"),
            |error| not_started(&args.command, error),
        ));
    }
    let heartbeat_failed = |consecutive, error: &str| {
        let now = session.clock.now();
        let trail = &session.trail;
        trail.heartbeat_failed(occasion(&name, &id, &now), consecutive, error);
    };
    let driver = Driver {
        held: Some(Held {
            store: &session.store,
            seat: &seat,
        }),
        on_heartbeat_failed: &heartbeat_failed,
        ..driver(args, &session.clock, signals, terms, surface)
    };
    let ttl = Duration::from_millis(ttl_ms);
    let granted = Duration::from_millis(acquired.claim.lease.renewed.boot_ms);
    let heartbeats = Heartbeats::new(ttl, runs_out_after(&policy, ttl), granted);
    let verdict = supervise(args, program, &driver, &told, heartbeats, surface);
    let result = RunResult::of_run(&verdict, args);
    let was_ours = release(&session, &seat, &id, surface, &result);
    if let (false, OnLost::Terminate, Ok(Verdict::Command(end))) =
        (was_ours, terms.on_lost, &verdict)
    {
        return Err(lost_unseen(&name, *end));
    }
    answer(verdict, &name, args)
}

/// Runs the command of an intent that holds no lock: supervised like any other, and nothing is
/// asked of the store.
#[cold]
#[inline(never)]
pub(crate) fn run_unlocked(args: &RunArgs, id: &RequestId, warning: Option<&str>) -> Exit {
    let conflict = args.claiming.patience.conflict_exit_code;
    let mut surface = request::surface(&args.common, "run", conflict);
    surface.set_request_id(id.as_str());
    let run = |surface: &mut Surface| {
        let shelled = args.shell.then(|| terms::by_shell(args)).transpose()?;
        let args = shelled.as_ref().unwrap_or(args);
        let terms = terms::of(args)?;
        if args.exec {
            return Err(exec::unsuited(Policy::FLEET.name));
        }
        let signals = collect_signals()?;
        let place = request::Place::of(&args.common)?;
        let program = find_program(&args.command)?;
        if let Some(warning) = warning {
            surface.warn(warning);
        }
        if signals::stop_asked().is_some() {
            return Err(cancelled("run"));
        }
        let clock = tenure::clock::SystemClock::new(None);
        let driver = driver(args, &clock, signals, terms, surface);
        let told = Told::of_no_hold(&place, id);
        let verdict = supervise(args, program, &driver, &told, Heartbeats::none(), surface);
        match verdict {
            Ok(verdict) => ended(&verdict, args),
            Err(error) => Err(not_started(&args.command, error)),
        }
    };
    match run(&mut surface) {
        Ok(exit) => exit,
        Err(failure) => surface.fail(&failure),
    }
}

/// A driver for what holds nothing.
fn driver<'a>(
    args: &RunArgs,
    clock: &'a dyn Clock,
    signals: Signals,
    terms: Terms,
    surface: &Surface,
) -> Driver<'a> {
    Driver {
        held: None,
        clock,
        signals,
        terms,
        close: args.close,
        quiet: surface.is_quiet(),
        on_heartbeat_failed: &|_, _| {},
    }
}

/// The silence after which a run counts as left behind while it lives; `None` where the kernel
/// vouches for it, or where no renewal changes its age.
fn runs_out_after(policy: &Policy, ttl: Duration) -> Option<Duration> {
    let rule = policy.age.filter(|_| !policy.asks_beacon)?;
    match rule.limit {
        AgeLimit::SinceGrantMs(_) => None,
        AgeLimit::SilenceMs(limit) => Some(Duration::from_millis(limit)),
        AgeLimit::SilenceTtl => Some(ttl),
    }
}

/// Runs the command, and if it failed what undoes it: still under the lock, which is renewed all
/// the while, unless it was lost.
fn supervise(
    args: &RunArgs,
    program: PathBuf,
    driver: &Driver<'_>,
    told: &Told,
    heartbeats: Heartbeats,
    surface: &mut Surface,
) -> Result<Verdict, SpawnError> {
    let mut course = Course::new(heartbeats);
    let verdict = driver.run(prepare(args, program, told), &mut course)?;
    let Some(rollback) = args.rollback.as_deref() else {
        return Ok(verdict);
    };
    let code = match &verdict {
        Verdict::Command(End::Code(code)) => *code,
        Verdict::Command(End::Signal(number)) => Exit::DieBy(*number).code(),
        Verdict::Signalled(number) => Exit::Signalled(*number).code(),
        Verdict::Superseded { .. } => Exit::Superseded.code(),
        Verdict::MaxRuntime => Exit::MaxRuntime.code(),
        Verdict::Lost => return Ok(verdict),
    };
    if code == 0 {
        return Ok(verdict);
    }
    if course.lost {
        surface.warn("the rollback is not run, because the lock was lost");
        return Ok(verdict);
    }
    let mut command = Command::new("sh");
    command.args(["-c", rollback]);
    told.tell(&mut command);
    command.env("TENURE_EXIT_CODE", code.to_string());
    if let Some(step) = RunResult::of_nothing(args).failure_step {
        command.env("TENURE_FAILURE_STEP", step);
    }
    let rolled_back = driver.run(command, &mut course);
    match &rolled_back {
        Ok(Verdict::Command(End::Code(0))) => {}
        Ok(Verdict::Command(End::Code(code))) => {
            surface.warn(format!("the rollback failed with exit code {code}"));
        }
        Ok(Verdict::Command(End::Signal(number)) | Verdict::Signalled(number)) => {
            surface.warn(format!("the rollback was ended by signal {number}"));
        }
        // Nobody asks a rollback to make room, and it has no limit.
        Ok(Verdict::Lost | Verdict::Superseded { .. } | Verdict::MaxRuntime) => {
            surface.warn("the rollback was ended, because the lock was lost");
        }
        Err(SpawnError::Command(error) | SpawnError::Beacon(error)) => {
            surface.warn(format!("the rollback could not be run: {error}"));
        }
    }
    Ok(match (verdict, rolled_back) {
        // What happened to us, and not to the rollback, is told; the first of it.
        (Verdict::Command(_), Ok(ours @ (Verdict::Signalled(_) | Verdict::Lost))) => ours,
        (verdict, _) => verdict,
    })
}

/// The answer of a run whose command has ended before anybody saw that the lock was lost.
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

/// Changes the list, puts the beacon out. A failure is told and keeps the command's own code.
/// False if the lock was somebody else's by then.
fn release(
    session: &Session,
    seat: &Seat,
    id: &RequestId,
    surface: &mut Surface,
    result: &RunResult,
) -> bool {
    surface.explain(&match &result.failure_step {
        Some(step) => format!("releasing {}: failure in {step}", seat.name()),
        None => format!("releasing {}: {}", seat.name(), result.result),
    });
    let left = signals::unstopped(|| session.store.leave(seat, &session.clock.now()));
    let now = session.clock.now();
    let occasion = occasion(seat.name(), id, &now);
    match left {
        Ok(Left::Released { held_ms }) => {
            session
                .trail
                .released(surface, occasion, held_ms, result.ending(), false);
            session.face.on_released(surface, seat.name());
        }
        Ok(Left::Withdrawn) => {}
        Ok(Left::Absent) => {
            surface.warn(format!(
                "{}: the lock was not ours any more when it was released",
                seat.name()
            ));
            return false;
        }
        Err(error) => {
            let path = session.store.place(seat.name());
            session
                .trail
                .release_failed(surface, occasion, &path, &error);
            let what_next = if session.store.profile().record().is_some() {
                "remove it by hand once nobody works under it"
            } else {
                "it is free for the next caller all the same"
            };
            surface.warn(format!(
                "{}: not released ({error}); {what_next}",
                seat.name()
            ));
        }
    }
    true
}

fn answer(
    verdict: Result<Verdict, SpawnError>,
    name: &LockName,
    args: &RunArgs,
) -> Result<Exit, Failure> {
    match verdict {
        Ok(verdict @ (Verdict::Command(_) | Verdict::Signalled(_) | Verdict::MaxRuntime)) => {
            ended(&verdict, args)
        }
        Ok(Verdict::Superseded { by }) => Err(superseded(name, &by)),
        Ok(Verdict::Lost) => Err(Failure::new(
            Exit::LockLost,
            "LOCK_LOST",
            format!("{name} was lost while the command ran; the command was ended"),
        )),
        Err(error) => Err(not_started(&args.command, error)),
    }
}

/// The answer to an end that has nothing to do with the lock.
fn ended(verdict: &Verdict, args: &RunArgs) -> Result<Exit, Failure> {
    match verdict {
        Verdict::Command(End::Code(code)) => Ok(Exit::Command(*code)),
        Verdict::Command(End::Signal(number)) => Ok(Exit::DieBy(*number)),
        Verdict::Signalled(number) => Err(cancelled_by(*number, "run")),
        Verdict::MaxRuntime => Err(terms::too_long(args)),
        // What holds nothing loses nothing.
        Verdict::Superseded { .. } | Verdict::Lost => Ok(Exit::General),
    }
}

fn not_started(command: &[OsString], error: SpawnError) -> Failure {
    match error {
        SpawnError::Command(error) => not_runnable(command, &error),
        SpawnError::Beacon(source) => StoreError::Io {
            place: "the beacon of the lock".to_owned(),
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
            format!("{program}: command not found"),
        )
    } else {
        Failure::new(
            Exit::CannotRun,
            "COMMAND_NOT_RUNNABLE",
            format!("{program}: {error}"),
        )
    }
}

/// Finds the program as a shell would, before the lock is touched.
fn find_program(command: &[OsString]) -> Result<PathBuf, Failure> {
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

/// What a command is told by its environment, beside everything that it inherits.
struct Told {
    set: Vec<(&'static str, OsString)>,
    removed: &'static [&'static str],
}

impl Told {
    /// Under a lock.
    fn of_hold(session: &Session, name: &LockName, claim: &Claim) -> Self {
        let token = claim.token.unwrap_or_default();
        let folder = &session.place.folder;
        let mut set: Vec<(&'static str, OsString)> = vec![
            ("TENURE_NAME", name.as_str().into()),
            ("TENURE_TOKEN", token.to_string().into()),
            ("TENURE_REQUEST_ID", claim.holder.request_id.as_str().into()),
            ("TENURE_DIR", folder.into()),
            (holds::VARIABLE, holds::extended(token, folder, name).into()),
        ];
        if let Some(file) = session.place.config_file() {
            set.push((request::CONFIG, file.into()));
        }
        Self {
            set,
            // The folder is what this run uses, whatever named it.
            removed: &["TENURE_STORE"],
        }
    }

    /// Without one. Holds that are inherited stay what they are.
    fn of_no_hold(place: &request::Place, id: &RequestId) -> Self {
        let mut set: Vec<(&'static str, OsString)> = vec![
            ("TENURE_REQUEST_ID", id.as_str().into()),
            ("TENURE_DIR", place.folder.clone().into()),
        ];
        if let Some(file) = place.config_file() {
            set.push((request::CONFIG, file.into()));
        }
        Self {
            set,
            removed: &["TENURE_STORE", "TENURE_NAME", "TENURE_TOKEN"],
        }
    }

    fn tell(&self, command: &mut Command) {
        for name in self.removed {
            command.env_remove(name);
        }
        command.envs(self.set.iter().map(|(name, value)| (name, value)));
    }
}

/// The command with what it is told.
fn prepare(args: &RunArgs, program: PathBuf, told: &Told) -> Command {
    let mut command = Command::new(program);
    if let Some((first, rest)) = args.command.split_first() {
        use std::os::unix::process::CommandExt;
        command.arg0(first).args(rest);
    }
    told.tell(&mut command);
    command
}

/// The command line, for whoever asks what the lock is held for.
fn command_line(args: &RunArgs) -> String {
    let words: Vec<_> = args
        .command
        .iter()
        .map(|word| OsStr::to_string_lossy(word))
        .collect();
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_runs_out_only_where_silence_alone_makes_a_living_run_stale() {
        let ttl = Duration::from_secs(60);
        for (policy, limit) in [
            (Policy::NATIVE, None),
            (Policy::SPRINT, None),
            (Policy::RESUME, None),
            (Policy::SESSION, Some(Duration::from_secs(600))),
            (Policy::FLEET, Some(ttl)),
        ] {
            assert_eq!(runs_out_after(&policy, ttl), limit, "{}", policy.name);
        }
    }
}
