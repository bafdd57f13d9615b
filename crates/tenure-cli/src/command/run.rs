//! `run`: holds a lock while a command runs.

use super::{Session, cancelled, cancelled_by, collect_signals, superseded, why};
use crate::args::RunArgs;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::holds;
use crate::render::Surface;
use crate::request;
use crate::signals;
use crate::supervise::driver::{Driver, SpawnError};
use crate::supervise::{End, Verdict};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;
use tenure::clock::Clock;
use tenure::core::{Claim, Holder, Kind, Left, LockName, Patience, Request};
use tenure::store::Store;
use tenure::store::file::Seat;

pub(crate) fn run(args: &RunArgs) -> Exit {
    let conflict = args.claiming.patience.conflict_exit_code;
    let mut surface = request::surface(&args.common, "run", conflict);
    match hold_and_run(args, &mut surface) {
        Ok(exit) => exit,
        Err(failure) => surface.fail(&failure),
    }
}

fn hold_and_run(args: &RunArgs, surface: &mut Surface) -> Result<Exit, Failure> {
    let claiming = &args.claiming;
    request::name(args.name.as_deref())?;
    let grace = request::duration("--grace", &args.grace)?;
    let signals = collect_signals()?;
    let session = Session::waiting(&args.common, signals)?;
    let name = session.name(args.name.as_deref())?;
    let request_id = session.face.request_id(claiming.request_id.as_deref())?;
    surface.set_request_id(request_id.as_str());
    let policy = *session.store.policy();
    let defaults = session.place.defaults(&name);
    let wait = request::wait(&claiming.patience, &defaults, &policy)?;
    let ttl_ms = request::ttl(claiming, &defaults)?.unwrap_or(policy.supervised_ttl_ms);
    let program = find_program(&args.command)?;
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
    session.face.complete(claiming, &mut request.holder)?;
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
    // A signal that came in time means that the command never starts.
    if signals::stop_asked().is_some() {
        release(&session, &seat, surface);
        return Err(cancelled("acquire"));
    }

    let command = prepare(args, program, &session, &name, &acquired.claim);
    let driver = Driver {
        store: &session.store,
        clock: &session.clock,
        seat: &seat,
        signals,
        ttl: Duration::from_millis(ttl_ms),
        grace,
        quiet: surface.is_quiet(),
    };
    let verdict = driver.run(command);
    release(&session, &seat, surface);
    answer(verdict, &name, args)
}

/// Changes the list, puts the beacon out. A failure is told and keeps the command's own code.
fn release(session: &Session, seat: &Seat, surface: &mut Surface) {
    match signals::unstopped(|| session.store.leave(seat, &session.clock.now())) {
        Ok(Left::Released { .. }) => session.face.on_released(surface, seat.name()),
        Ok(Left::Withdrawn) => {}
        Ok(Left::Absent) => surface.warn(format!(
            "{}: the lock was not ours any more when it was released",
            seat.name()
        )),
        Err(error) => surface.warn(format!(
            "{}: not released ({error}); it is free for the next caller all the same",
            seat.name()
        )),
    }
}

fn answer(
    verdict: Result<Verdict, SpawnError>,
    name: &LockName,
    args: &RunArgs,
) -> Result<Exit, Failure> {
    match verdict {
        Ok(Verdict::Command(End::Code(code))) => Ok(Exit::Command(code)),
        Ok(Verdict::Command(End::Signal(number))) => Ok(Exit::DieBy(number)),
        Ok(Verdict::Signalled(number)) => Err(cancelled_by(number, "run")),
        Ok(Verdict::Superseded { by }) => Err(superseded(name, &by)),
        Ok(Verdict::Lost) => Err(Failure::new(
            Exit::LockLost,
            "LOCK_LOST",
            format!("{name} was lost while the command ran; the command was ended"),
        )),
        Err(SpawnError(error)) => Err(not_runnable(&args.command, &error)),
    }
}

fn not_runnable(command: &[std::ffi::OsString], error: &std::io::Error) -> Failure {
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
fn find_program(command: &[std::ffi::OsString]) -> Result<PathBuf, Failure> {
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

/// The command with what it is told, after everything that it inherits.
fn prepare(
    args: &RunArgs,
    program: PathBuf,
    session: &Session,
    name: &LockName,
    claim: &Claim,
) -> Command {
    let token = claim.token.unwrap_or_default();
    let folder = &session.place.folder;
    let mut command = Command::new(program);
    if let Some((first, rest)) = args.command.split_first() {
        use std::os::unix::process::CommandExt;
        command.arg0(first).args(rest);
    }
    command
        .env("TENURE_NAME", name.as_str())
        .env("TENURE_TOKEN", token.to_string())
        .env("TENURE_REQUEST_ID", claim.holder.request_id.as_str())
        .env("TENURE_DIR", folder)
        // The folder is what this run uses, whatever named it.
        .env_remove("TENURE_STORE")
        .env(holds::VARIABLE, holds::extended(token, folder, name));
    if let Some(file) = session.place.config_file() {
        command.env(request::CONFIG, file);
    }
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
