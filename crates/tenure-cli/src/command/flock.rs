//! `flock`: does what flock(1) does, with its locks, its exit codes and its words.
//!
//! Nothing else of tenure is used: no record, no folder, no configuration, no supervision. The lock is on
//! the caller's own file. It starts the command and waits for it, and all signals mean what they meant
//! before. Its messages go where flock(1) writes them.
//!
//! `args/flock` reads the words; the calls that lock are in `signals`, beside the timer that interrupts
//! them.

use super::run::{find_program, is_script};
use crate::args::flock::{
    self, Call, Command as Task, FlockRequest, FlockTarget, FlockWait, Kind, Start,
};
use crate::exit::{Exit, SysExit, signalled};
use crate::render::colour;
use crate::request::FlockArgs;
use crate::signals::{self, FileLock};
use crate::verb::help::Size;
use rustix::fs::{Access, Mode, OFlags};
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::io::{self, Write};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, ExitStatus};
use std::sync::OnceLock;
use tenure_os::clock::instant;

/// Why a call ends before it has done its work.
enum EarlyEnd {
    /// The call did not get the lock in time.
    Conflict(&'static str),
    /// A failure, with its message.
    Wrong(SysExit, String),
}

impl EarlyEnd {
    fn wrong(code: SysExit, what: &str, error: &io::Error) -> Self {
        Self::Wrong(code, format!("{what}: {}", reason(error)))
    }
}

/// The verb.
#[cold]
#[inline(never)]
pub(super) fn flock(args: &FlockArgs) -> Exit {
    let name = if args.by_name {
        "flock"
    } else {
        "tenure flock"
    };
    match flock::read(&args.words) {
        Ok(FlockRequest::Help) => {
            // Under its own name the program has one page, as flock(1) has.
            let is_brief = !args.by_name && Size::asked_for(&args.words) != Some(Size::Full);
            let page = if is_brief { flock::brief } else { flock::help };
            show(&colour::page(&page(name), &io::stdout()))
        }
        Ok(FlockRequest::Version) => show(&format!(
            "flock from tenure {}\n",
            env!("CARGO_PKG_VERSION")
        )),
        Ok(FlockRequest::Lock(call)) => {
            let exit = match lock_and_run(&call) {
                Ok(exit) => exit,
                Err(EarlyEnd::Conflict(message)) => {
                    if call.verbose {
                        tell(message);
                    }
                    Exit::Own(call.conflict_exit_code)
                }
                Err(EarlyEnd::Wrong(code, message)) => {
                    tell(&message);
                    code.exit()
                }
            };
            match UNSAID.get() {
                None => exit,
                Some(reason) => {
                    tell(&format!("write error: {reason}"));
                    Exit::General
                }
            }
        }
        Err(misuse) => {
            if !misuse.message.is_empty() {
                tell(&misuse.message);
            }
            if misuse.points_to_help {
                let line = format!("Try '{name} --help' for more information.\n");
                let _ = io::stderr().lock().write_all(line.as_bytes());
            }
            misuse.code.exit()
        }
    }
}

fn lock_and_run(call: &Call) -> Result<Exit, EarlyEnd> {
    let (path, command, start) = match &call.target {
        FlockTarget::Descriptor(number) => {
            if is_stand_in(*number) {
                let error = Errno::BADF.into();
                return Err(EarlyEnd::wrong(SysExit::Data, &number.to_string(), &error));
            }
            timed(call, || {
                lock(call, *number).map_err(|error| not_locked(&number.to_string(), &error))
            })?;
            return Ok(Exit::Success);
        }
        FlockTarget::File {
            path,
            command,
            start,
        } => (path, command, *start),
    };
    let file = timed(call, || lock_path(call, path, start))?;
    let words = words_of(command);
    let Some((program, arguments)) = words.split_first() else {
        return Ok(Exit::Success);
    };
    if call.verbose {
        say(&format!("executing {}", program.to_string_lossy()));
    }
    let mut command = Command::new(program);
    command.args(arguments);
    let status = started(command, start).or_else(|error| {
        // A file that is marked as runnable and names no interpreter is a script for the shell.
        match find_program(&words) {
            Ok(script) if is_script(&error) => {
                let mut command = Command::new("/bin/sh");
                command.arg(script).args(arguments);
                started(command, start)
            }
            _ => Err(error),
        }
    });
    // Here, and not before: this process holds the lock for as long as it waits for the command.
    drop(file);
    match status {
        Ok(status) => Ok(exit_of(status)),
        Err(error) => Err(not_started(program, &error)),
    }
}

/// Locks, and says how long that took.
fn timed<T>(call: &Call, lock: impl FnOnce() -> Result<T, EarlyEnd>) -> Result<T, EarlyEnd> {
    if !call.verbose {
        return lock();
    }
    let began = instant();
    let locked = lock()?;
    let took = instant().saturating_duration_since(began);
    say(&format!(
        "getting lock took {}.{:06} seconds",
        took.as_secs(),
        took.subsec_micros()
    ));
    Ok(locked)
}

/// Opens a file and locks it.
fn lock_path(call: &Call, path: &OsStr, start: Start) -> Result<OwnedFd, EarlyEnd> {
    // An exclusive lock of fcntl(2) needs a file that can be written.
    let access = if call.by_fcntl && call.kind == Kind::Exclusive {
        OFlags::WRONLY
    } else {
        OFlags::RDONLY
    };
    let file = open(path, access, start)?;
    let shown = path.to_string_lossy();
    let error = match lock(call, file.as_raw_fd()) {
        Ok(()) => return Ok(file),
        Err(error) => error,
    };
    // A network file system may make it a lock of fcntl(2), which needs write access too.
    let may_help = matches!(error.raw_os_error(), Some(libc::EIO | libc::EBADF))
        && call.kind != Kind::Shared
        && rustix::fs::access(path, Access::READ_OK | Access::WRITE_OK).is_ok();
    if !may_help {
        return Err(not_locked(&shown, &error));
    }
    drop(file);
    let file = open(path, OFlags::RDWR, start)?;
    match lock(call, file.as_raw_fd()) {
        Ok(()) => Ok(file),
        Err(error) => Err(not_locked(&shown, &error)),
    }
}

/// Opens a file, and creates it if it is missing. It follows links and checks nothing, because the file
/// is the caller's own.
fn open(path: &OsStr, access: OFlags, start: Start) -> Result<OwnedFd, EarlyEnd> {
    let inherited = match start {
        Start::Child | Start::InPlace => OFlags::empty(),
        Start::ChildWithoutLock => OFlags::CLOEXEC,
    };
    let flags = OFlags::NOCTTY | inherited;
    let everybody = Mode::from_raw_mode(0o666);
    rustix::fs::open(path, access | OFlags::CREATE | flags, everybody)
        .or_else(|errno| match errno {
            // A directory can be opened for reading, but not with `O_CREAT`.
            Errno::ISDIR => rustix::fs::open(path, OFlags::RDONLY | flags, Mode::empty()),
            errno => Err(errno),
        })
        .map_err(|errno| {
            let code = match errno {
                Errno::NOMEM | Errno::MFILE | Errno::NFILE => SysExit::System,
                Errno::ROFS | Errno::NOSPC => SysExit::CannotCreate,
                _ => SysExit::NoInput,
            };
            let what = format!("cannot open lock file {}", path.to_string_lossy());
            EarlyEnd::wrong(code, &what, &errno.into())
        })
}

/// Takes the lock, or releases it.
fn lock(call: &Call, descriptor: RawFd) -> io::Result<()> {
    let lock = FileLock {
        operation: match call.kind {
            Kind::Shared => libc::LOCK_SH,
            Kind::Exclusive => libc::LOCK_EX,
            Kind::Unlock => libc::LOCK_UN,
        },
        by_fcntl: call.by_fcntl,
    };
    match call.wait {
        FlockWait::Forever => lock.patiently(descriptor),
        FlockWait::Never => lock.at_once(descriptor),
        FlockWait::AtMost(patience) => lock.within(descriptor, patience),
    }
}

fn not_locked(what: &str, error: &io::Error) -> EarlyEnd {
    match error.kind() {
        io::ErrorKind::WouldBlock => EarlyEnd::Conflict("failed to get lock"),
        io::ErrorKind::TimedOut => EarlyEnd::Conflict("timeout while waiting to get lock"),
        _ => {
            let code = match error.raw_os_error() {
                Some(libc::ENOLCK | libc::ENOMEM) => SysExit::System,
                _ => SysExit::Data,
            };
            EarlyEnd::wrong(code, what, error)
        }
    }
}

/// Whether a standard descriptor was closed when this process was started. Rust's runtime then opens
/// `/dev/null` in its place, for reading and writing; a lock on that would be one in name only.
fn is_stand_in(descriptor: RawFd) -> bool {
    let (status, flags) = match descriptor {
        0 => facts(io::stdin()),
        1 => facts(io::stdout()),
        2 => facts(io::stderr()),
        _ => return false,
    };
    let Ok(null) = rustix::fs::stat("/dev/null") else {
        return false;
    };
    status.is_ok_and(|status| (status.st_dev, status.st_ino) == (null.st_dev, null.st_ino))
        && flags.is_ok_and(|flags| flags.contains(OFlags::RDWR))
}

type Facts = (
    rustix::io::Result<rustix::fs::Stat>,
    rustix::io::Result<OFlags>,
);

fn facts(stream: impl std::os::fd::AsFd) -> Facts {
    (rustix::fs::fstat(&stream), rustix::fs::fcntl_getfl(&stream))
}

/// The program and its arguments.
fn words_of(command: &Task) -> Vec<OsString> {
    match command {
        Task::Words(words) => words.clone(),
        Task::Shell(line) => {
            let shell = std::env::var_os("SHELL").filter(|shell| !shell.is_empty());
            let shell = shell.unwrap_or_else(|| "/bin/sh".into());
            vec![shell, "-c".into(), line.clone()]
        }
    }
}

/// Runs a command to its end. In place of this process, it returns only if the command cannot be started.
fn started(mut command: Command, start: Start) -> io::Result<ExitStatus> {
    signals::give_as_received(&mut command);
    match start {
        Start::Child | Start::ChildWithoutLock => command.spawn()?.wait(),
        Start::InPlace => Err(command.exec()),
    }
}

fn not_started(program: &OsStr, error: &io::Error) -> EarlyEnd {
    match error.raw_os_error() {
        Some(libc::EAGAIN) => EarlyEnd::wrong(SysExit::System, "fork failed", error),
        code => {
            let code = match code {
                Some(libc::ENOMEM) => SysExit::System,
                _ => SysExit::Unavailable,
            };
            let what = format!("failed to execute {}", program.to_string_lossy());
            EarlyEnd::wrong(code, &what, error)
        }
    }
}

fn exit_of(status: ExitStatus) -> Exit {
    match (status.code(), status.signal()) {
        (Some(code), _) => Exit::Own(u8::try_from(code).unwrap_or(u8::MAX)),
        (None, Some(signal)) => signalled(signal),
        (None, None) => SysExit::System.exit(),
    }
}

/// The text of an error, without its number.
fn reason(error: &io::Error) -> String {
    let text = error.to_string();
    match text.split_once(" (os error") {
        Some((words, _)) => words.to_owned(),
        None => text,
    }
}

/// Answers on stdout. A caller that asks for a text and does not get it has to know.
fn show(text: &str) -> Exit {
    match io::stdout().lock().write_all(text.as_bytes()) {
        Ok(()) => Exit::Success,
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Exit::Success,
        Err(error) => {
            tell(&format!("write error: {}", reason(&error)));
            Exit::General
        }
    }
}

/// Why a line could not be written. As with flock(1), the call goes on to its end and says so then.
static UNSAID: OnceLock<String> = OnceLock::new();

/// Prints a line on stdout, where flock(1) prints what `--verbose` adds about a lock that it got.
fn say(message: &str) {
    let line = format!("flock: {message}\n");
    match io::stdout().lock().write_all(line.as_bytes()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            let _ = UNSAID.set(reason(&error));
        }
        Ok(()) | Err(_) => {}
    }
}

fn tell(message: &str) {
    let line = format!("flock: {message}\n");
    let _ = io::stderr().lock().write_all(line.as_bytes());
}
