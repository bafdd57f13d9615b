//! Processes as Unix shows them: signal 0 for whether there is one, and for the rest what each system has:
//! `/proc`, or the kernel's table on macOS (`darwin`). Both have one surface.

#[cfg(any(test, target_os = "macos"))]
mod block;
#[cfg(target_os = "macos")]
mod darwin;
#[cfg(not(target_os = "macos"))]
mod proc;

#[cfg(target_os = "macos")]
use darwin as table;
#[cfg(not(target_os = "macos"))]
use proc as table;

pub use table::{Stat, arguments, name_of, stat};
pub use table::{children, group_is_alive};

use crate::clock::{instant, since};
use crate::os::{self, Descriptor};
use rustix::process::Pid;
use std::fs;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use tenure_core::{Death, Host, Liveness, Process};

/// The variables that name this process's user.
pub(super) const USER_VARIABLES: &[&str] = &["USER", "LOGNAME"];

/// What an actor begins with that is known by its number only.
const UID: &str = "uid ";

/// A user that no variable names.
pub(super) fn nameless_user() -> String {
    format!("{UID}{}", rustix::process::getuid().as_raw())
}

/// How long the table of users is believed: who shows many locks asks about the same few users.
const TABLE_BELIEVED: Duration = Duration::from_secs(1);

/// The user that was looked for last, when, and its name.
static LAST_USER: Mutex<Option<(Instant, u32, Option<String>)>> = Mutex::new(None);

/// The name of a user that is known by its number.
pub(super) fn name_of_user(actor: &str) -> Option<String> {
    let uid: u32 = actor.strip_prefix(UID)?.parse().ok()?;
    let mut last = LAST_USER.lock().unwrap_or_else(PoisonError::into_inner);
    match &*last {
        Some((at, known, name)) if *known == uid && since(*at) < TABLE_BELIEVED => name.clone(),
        _ => {
            let name = look_up(uid);
            *last = Some((instant(), uid, name.clone()));
            name
        }
    }
}

fn look_up(uid: u32) -> Option<String> {
    let (name, _) = user_where(|_, number| number.parse() == Ok(uid))?;
    Some(name)
}

/// A user's name and home, by name or number.
pub(super) fn user(wanted: &str) -> Option<(String, PathBuf)> {
    user_where(|name, number| name == wanted || number == wanted)
}

/// The first user of the system's table of whose name and number this is true.
fn user_where(is_meant: impl Fn(&str, &str) -> bool) -> Option<(String, PathBuf)> {
    let table = fs::read_to_string("/etc/passwd").ok()?;
    table.lines().find_map(|line| {
        let mut fields = line.split(':');
        let (name, number) = (fields.next()?, fields.nth(1)?);
        is_meant(name, number).then(|| (name.to_owned(), fields.nth(2).unwrap_or_default().into()))
    })
}

/// The name of this machine.
pub(super) fn host_name() -> String {
    let uname = rustix::system::uname();
    uname.nodename().to_string_lossy().into_owned()
}

/// The namespace in which process numbers mean something here.
pub(super) fn pid_namespace() -> Option<u64> {
    table::pid_namespace()
}

/// The surroundings in which process numbers mean something.
pub(super) fn current_host() -> Host {
    Host {
        name: host_name(),
        machine_id: table::machine_id(),
        boot_id: table::boot_id(),
        pid_namespace: pid_namespace(),
    }
}

/// Asks the kernel about a process of this boot and namespace.
pub fn probe(process: &Process) -> Liveness {
    look_at(process).0
}

/// Asks the kernel about a process, and gives what the table shows of one that is there.
pub(super) fn look_at(process: &Process) -> (Liveness, Option<Stat>) {
    let Some(pid) = i32::try_from(process.pid).ok().and_then(Pid::from_raw) else {
        return (Liveness::Dead(Death::Gone), None);
    };
    match rustix::process::test_kill_process(pid) {
        Ok(()) | Err(rustix::io::Errno::PERM) => {}
        Err(rustix::io::Errno::SRCH) => return (Liveness::Dead(Death::Gone), None),
        Err(_) => return (Liveness::Unknown, None),
    }
    let Some(stat) = stat(process.pid) else {
        // The process exists and this one may not look closer (hidepid), or it ended this instant. A later
        // look tells the two apart.
        return (Liveness::Alive, None);
    };
    let liveness = if super::is_another(process, stat.started()) {
        Liveness::Dead(Death::Replaced)
    } else if stat.has_ended() {
        Liveness::Dead(Death::Zombie)
    } else {
        Liveness::Alive
    };
    (liveness, Some(stat))
}

/// A handle on a process that can be polled for its end.
pub(super) fn open(pid: u32) -> Option<Descriptor> {
    #[cfg(target_os = "linux")]
    {
        use rustix::process::{PidfdFlags, pidfd_open};
        let pid = i32::try_from(pid).ok().and_then(Pid::from_raw)?;
        pidfd_open(pid, PidfdFlags::empty()).ok()
    }
    #[cfg(not(target_os = "linux"))]
    {
        let _ = pid;
        None
    }
}

/// The number of a process's session; 0 if its leader is outside this PID namespace, as it is for what a container is
/// started with. `None` if there is no such process.
pub fn session_of(pid: Pid) -> Option<i32> {
    os::session_of(pid.as_raw_pid()).ok()
}

/// The group of a process; `None` if there is no such process, or if the group's leader is outside this PID namespace
/// (see [`session_of`]).
pub fn group_of(pid: Pid) -> Option<Pid> {
    Pid::from_raw(os::group_of(pid.as_raw_pid()).ok()?)
}

/// The process that started this one.
pub fn parent_of_self() -> u32 {
    rustix::process::getppid().map_or(0, |pid| pid.as_raw_nonzero().get().unsigned_abs())
}
