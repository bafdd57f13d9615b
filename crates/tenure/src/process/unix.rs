//! Processes as Unix shows them: signal 0, and `/proc` where there is one.
//!
//! Without `/proc` (macOS) a process has no start time here, and the machine no boot id. So every
//! record of a process is *unknown* there, and its lock lives by its beacon or by its ttl.

use crate::os::Descriptor;
use std::fs;
use tenure_core::{Death, Host, Liveness, Process};

/// The variables that name this process's user.
pub(super) const USER_VARIABLES: &[&str] = &["USER", "LOGNAME"];

/// What an actor begins with that is known by its number only.
const UID: &str = "uid ";

/// A user that no variable names.
pub(super) fn nameless_user() -> String {
    format!("{UID}{}", rustix::process::getuid().as_raw())
}

/// The name of a user that is known by its number.
pub(super) fn name_of_user(actor: &str) -> Option<String> {
    let uid: u32 = actor.strip_prefix(UID)?.parse().ok()?;
    let table = fs::read_to_string("/etc/passwd").ok()?;
    table.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)?.parse() == Ok(uid)).then(|| name.to_owned())
    })
}

/// The name of this machine.
pub(super) fn host_name() -> String {
    let uname = rustix::system::uname();
    uname.nodename().to_string_lossy().into_owned()
}

/// The surroundings in which process numbers mean something.
pub(super) fn current_host() -> Host {
    Host {
        name: host_name(),
        machine_id: read_line("/etc/machine-id"),
        boot_id: read_line("/proc/sys/kernel/random/boot_id"),
        pid_namespace: rustix::fs::stat("/proc/self/ns/pid")
            .ok()
            .map(|stat| stat.st_ino),
    }
}

/// The trimmed content of a small file; `None` if it cannot be read or is empty.
fn read_line(path: &str) -> Option<String> {
    let mut buffer = [0; SMALL_BYTES];
    let line = std::str::from_utf8(read_small(path, &mut buffer)?)
        .ok()?
        .trim();
    (!line.is_empty()).then(|| line.to_owned())
}

/// More than any file that is read here has, `/proc/PID/stat` included.
const SMALL_BYTES: usize = 1024;

/// The content of a small file in one read: these are made by the kernel as they are read, and
/// asking twice costs as much as the first time.
fn read_small<'a>(path: &str, buffer: &'a mut [u8; SMALL_BYTES]) -> Option<&'a [u8]> {
    use rustix::fs::{Mode, OFlags, open};
    let file = open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()?;
    let length = rustix::io::read(&file, buffer.as_mut_slice()).ok()?;
    buffer.get(..length)
}

/// What the kernel shows of one process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Stat {
    state: u8,
    pub(super) parent: u32,
    group: u32,
    flags: u64,
    threads: u64,
    pub(super) started: u64,
}

impl Stat {
    /// Whether it is a copy of its parent that has not become a program of its own (the kernel's
    /// `PF_FORKNOEXEC`).
    pub(super) fn is_copy(&self) -> bool {
        self.flags & 0x40 != 0
    }

    /// Whether it has ended and waits to be collected. A process whose first thread has ended
    /// while others go on looks like that too, but for their number.
    pub(super) fn has_ended(&self) -> bool {
        matches!(self.state, b'Z' | b'X') && self.threads <= 1
    }
}

/// Reads `/proc/PID/stat`. The command name in it may contain anything, so fields are counted
/// from the last closing parenthesis.
pub(super) fn stat(pid: u32) -> Option<Stat> {
    let mut buffer = [0; SMALL_BYTES];
    parse_stat(read_small(&format!("/proc/{pid}/stat"), &mut buffer)?)
}

fn parse_stat(text: &[u8]) -> Option<Stat> {
    let end = text.iter().rposition(|byte| *byte == b')')?;
    let rest = std::str::from_utf8(text.get(end + 1..)?).ok()?;
    let mut fields = rest.split_ascii_whitespace();
    let state = *fields.next()?.as_bytes().first()?;
    let parent = fields.next()?.parse().ok()?;
    let group = fields.next()?.parse().ok()?;
    // Fields 9, 20 and 22 of the whole line; the group is field 5.
    let flags = fields.nth(3)?.parse().ok()?;
    let threads = fields.nth(10)?.parse().ok()?;
    let started = fields.nth(1)?.parse().ok()?;
    Some(Stat {
        state,
        parent,
        group,
        flags,
        threads,
        started,
    })
}

/// Whether any process of this group still runs (zombies do not count).
///
/// Reads the whole process table, so it is for endings that were forced, not for every one.
pub fn group_is_alive(group: u32) -> bool {
    all()
        .filter_map(stat)
        .any(|stat| stat.group == group && !stat.has_ended())
}

/// The children of this process that have not been collected yet: those that it started, and where
/// it is a subreaper those that it has inherited.
///
/// A list of numbers from the kernel, to be confirmed before anything is done with one of them.
pub fn children() -> Vec<u32> {
    let numbers = |file: String| -> Vec<u32> {
        let words = file.split_ascii_whitespace();
        words.filter_map(|word| word.parse().ok()).collect()
    };
    let threads = fs::read_dir("/proc/self/task").into_iter().flatten();
    let listed: Option<Vec<_>> = threads
        .map(|thread| fs::read_to_string(thread.ok()?.path().join("children")).ok())
        .collect();
    match listed {
        Some(files) if !files.is_empty() => files.into_iter().flat_map(numbers).collect(),
        // A kernel that does not list them: whoever names us as its parent.
        _ => {
            let own = std::process::id();
            let is_ours = |number: &u32| stat(*number).is_some_and(|stat| stat.parent == own);
            all().filter(is_ours).collect()
        }
    }
}

/// The numbers of all processes that can be seen.
fn all() -> impl Iterator<Item = u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten();
    entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
}

/// Asks the kernel about a process of this boot and namespace.
pub(crate) fn probe(process: &Process) -> Liveness {
    let Some(pid) = i32::try_from(process.pid)
        .ok()
        .and_then(rustix::process::Pid::from_raw)
    else {
        return Liveness::Dead(Death::Gone);
    };
    match rustix::process::test_kill_process(pid) {
        Ok(()) | Err(rustix::io::Errno::PERM) => {}
        Err(rustix::io::Errno::SRCH) => return Liveness::Dead(Death::Gone),
        Err(_) => return Liveness::Unknown,
    }
    let Some(stat) = stat(process.pid) else {
        // It exists and we may not look closer (hidepid), or it ended this instant; a later look
        // tells the two apart.
        return Liveness::Alive;
    };
    match process.started {
        Some(started) if started != stat.started => Liveness::Dead(Death::Replaced),
        _ if stat.has_ended() => Liveness::Dead(Death::Zombie),
        _ => Liveness::Alive,
    }
}

/// A handle on a process that can be polled for its end.
pub(super) fn open(pid: u32) -> Option<Descriptor> {
    #[cfg(target_os = "linux")]
    {
        use rustix::process::{Pid, PidfdFlags, pidfd_open};
        let pid = i32::try_from(pid).ok().and_then(Pid::from_raw)?;
        pidfd_open(pid, PidfdFlags::empty()).ok()
    }
    #[cfg(not(target_os = "linux"))]
    {
        let _ = pid;
        None
    }
}

/// The process that started this one.
pub(super) fn parent_of_self() -> u32 {
    rustix::process::getppid().map_or(0, |pid| pid.as_raw_nonzero().get().unsigned_abs())
}

/// What a process was started with, its own name first.
pub(super) fn arguments(pid: u32) -> Vec<String> {
    fs::read(format!("/proc/{pid}/cmdline"))
        .map(|bytes| {
            bytes
                .split(|byte| *byte == 0)
                .map(|argument| String::from_utf8_lossy(argument).into_owned())
                .collect()
        })
        .unwrap_or_default()
}

/// What a process calls itself, for people.
pub(super) fn name_of(pid: u32) -> String {
    fs::read_to_string(format!("/proc/{pid}/comm"))
        .map(|comm| comm.trim().to_owned())
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_name_with_parentheses_and_spaces_does_not_shift_the_fields() {
        let line = b"42 (a) R (b) S 7 42 42 0 -1 4194304 1 2 3 4 5 6 7 8 20 0 1 0 98765 1 2\n";
        assert_eq!(
            parse_stat(line),
            Some(Stat {
                state: b'S',
                parent: 7,
                group: 42,
                flags: 4_194_304,
                threads: 1,
                started: 98_765
            })
        );
    }

    #[test]
    fn a_child_is_listed_until_it_is_collected() {
        let mut child = std::process::Command::new("sleep")
            .arg("600")
            .spawn()
            .expect("a child");
        assert!(children().contains(&child.id()));
        child.kill().expect("it is ours");
        assert!(children().contains(&child.id()), "ended is not collected");
        child.wait().expect("it is ours");
        assert!(!children().contains(&child.id()));
    }
}
