//! Who we are, and whether a recorded process still runs.
//!
//! A process is recognised by its number **and** its start time, on the same boot and in the same
//! PID namespace; any difference in the surroundings makes it unknown, never dead. Two things
//! prove death: the kernel says that there is no such process (or that it is a zombie, or that
//! the number belongs to a younger one), or the machine has started anew since.
//!
//! Nothing here ever sends a signal to a number that was read from a record. Looking uses signal
//! 0, which the kernel checks and does not deliver.

mod owner;

pub use owner::{Chosen, OwnerError, choose_owner, is_descendant_of};

use std::fs;
use tenure_core::{Death, Host, Liveness, Process, RequestId};

/// This process and the surroundings in which its number means something.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// Where it runs.
    pub host: Host,
    /// The process itself.
    pub process: Process,
    /// Its user: `$USER`, `$LOGNAME`, else its number; see [`actor_name`].
    pub actor: String,
}

impl Identity {
    /// Reads the identity of the calling process. Costs some 20 µs on Linux, so read it once.
    ///
    /// Whatever cannot be read stays empty, and makes later judgements *unknown*.
    pub fn current() -> Self {
        let pid = std::process::id();
        Self {
            host: current_host(),
            process: Process {
                pid,
                started: start_time(pid),
            },
            actor: actor(),
        }
    }
}

fn current_host() -> Host {
    let uname = rustix::system::uname();
    Host {
        name: uname.nodename().to_string_lossy().into_owned(),
        machine_id: read_line("/etc/machine-id"),
        boot_id: read_line("/proc/sys/kernel/random/boot_id"),
        pid_namespace: rustix::fs::stat("/proc/self/ns/pid")
            .ok()
            .map(|stat| stat.st_ino),
    }
}

fn actor() -> String {
    let named = |variable| {
        std::env::var(variable)
            .ok()
            .filter(|user: &String| !user.is_empty())
    };
    named("USER").or_else(|| named("LOGNAME")).map_or_else(
        || format!("{UID}{}", rustix::process::getuid().as_raw()),
        |user| user.chars().take(ACTOR_CHARS_MAX).collect(),
    )
}

/// How much of a user's name is kept; the longest that Linux systems allow is 256, and no record
/// is to grow by what somebody put into the environment.
const ACTOR_CHARS_MAX: usize = 64;

/// What an actor begins with that is known by its number only.
const UID: &str = "uid ";

/// An actor's name for people: a number that the local table knows gets its name. Not done when a
/// claim is made, where it would cost every run, but when somebody looks.
pub fn actor_name(actor: &str) -> String {
    let name = || {
        let uid: u32 = actor.strip_prefix(UID)?.parse().ok()?;
        let table = fs::read_to_string("/etc/passwd").ok()?;
        table.lines().find_map(|line| {
            let mut fields = line.split(':');
            let name = fields.next()?;
            (fields.nth(1)?.parse() == Ok(uid)).then(|| name.to_owned())
        })
    };
    name().unwrap_or_else(|| actor.to_owned())
}

/// An owner token that nobody else has: `req_` and 24 hex digits of the kernel's randomness. The
/// clock and the process would nearly do; chance makes up for a clock that was set back.
///
/// # Errors
/// - What the system answers that gives no random bytes.
pub fn new_request_id() -> std::io::Result<RequestId> {
    let mut bytes = [0_u8; 12];
    let filled = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())?;
    let mut id = "req_".to_owned();
    for byte in bytes {
        for digit in [byte >> 4, byte & 15] {
            id.extend(char::from_digit(digit.into(), 16));
        }
    }
    let id = RequestId::new(id).ok().filter(|_| filled == bytes.len());
    id.ok_or_else(|| std::io::ErrorKind::UnexpectedEof.into())
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

/// The process that started this one; `None` if it cannot be seen from here.
pub fn parent() -> Option<u32> {
    Some(owner::parent_of_self()).filter(|pid| *pid != 0)
}

/// What the kernel shows of one process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Stat {
    pub(crate) state: u8,
    pub(crate) parent: u32,
    pub(crate) group: u32,
    pub(crate) flags: u64,
    pub(crate) threads: u64,
    pub(crate) started: u64,
}

impl Stat {
    /// Whether it is a copy of its parent that has not become a program of its own (the kernel's
    /// `PF_FORKNOEXEC`).
    pub(crate) fn is_copy(&self) -> bool {
        self.flags & 0x40 != 0
    }

    /// Whether it has ended and waits to be collected. A process whose first thread has ended
    /// while others go on looks like that too, but for their number.
    pub(crate) fn has_ended(&self) -> bool {
        matches!(self.state, b'Z' | b'X') && self.threads <= 1
    }
}

/// Reads `/proc/PID/stat`. The command name in it may contain anything, so fields are counted
/// from the last closing parenthesis.
pub(crate) fn stat(pid: u32) -> Option<Stat> {
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

/// When a process started, in clock ticks since boot.
pub fn start_time(pid: u32) -> Option<u64> {
    stat(pid).map(|stat| stat.started)
}

/// The parent of a process, 0 if that cannot be seen from here; `None` if there is no such process.
pub fn parent_of(pid: u32) -> Option<u32> {
    stat(pid).map(|stat| stat.parent)
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

/// Whether `process`, recorded on `host`, still runs, as far as `here` can tell.
///
/// `local` says that the record lies on a file system that only this machine can reach; only then
/// does another boot of the same machine id prove a restart, for machine ids do get cloned.
pub fn liveness(process: &Process, host: &Host, here: &Host, local: bool) -> Liveness {
    match (&host.boot_id, &here.boot_id) {
        (Some(theirs), Some(ours)) if theirs == ours => {}
        (Some(_), Some(_))
            if local && host.machine_id.is_some() && host.machine_id == here.machine_id =>
        {
            return Liveness::Dead(Death::Rebooted);
        }
        _ => return Liveness::Unknown,
    }
    if host.pid_namespace.is_none() || host.pid_namespace != here.pid_namespace {
        return Liveness::Unknown;
    }
    probe(process)
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

    #[test]
    fn we_are_alive_and_our_number_with_another_start_time_is_not_us() {
        let me = Identity::current();
        assert_eq!(
            liveness(&me.process, &me.host, &me.host, true),
            Liveness::Alive
        );
        let younger = Process {
            pid: me.process.pid,
            started: me.process.started.map(|ticks| ticks + 1),
        };
        assert_eq!(
            liveness(&younger, &me.host, &me.host, true),
            Liveness::Dead(Death::Replaced),
            "a reused number is another process"
        );
    }

    #[test]
    fn other_surroundings_make_a_process_unknown_never_dead() {
        let me = Identity::current();
        let gone = Process {
            pid: 999_999_999,
            started: Some(1),
        };
        assert_eq!(
            liveness(&gone, &me.host, &me.host, true),
            Liveness::Dead(Death::Gone)
        );
        let mut elsewhere = me.host.clone();
        elsewhere.pid_namespace = Some(1);
        assert_eq!(
            liveness(&gone, &elsewhere, &me.host, true),
            Liveness::Unknown,
            "another PID namespace"
        );
        let mut elsewhere = me.host.clone();
        elsewhere.boot_id = Some("another".into());
        elsewhere.machine_id = Some("another".into());
        assert_eq!(
            liveness(&gone, &elsewhere, &me.host, true),
            Liveness::Unknown,
            "another machine"
        );
        elsewhere.machine_id = None;
        assert_eq!(
            liveness(&gone, &elsewhere, &me.host, true),
            Liveness::Unknown,
            "a machine without an id"
        );
    }

    #[test]
    fn another_boot_of_this_machine_is_death_only_on_a_local_file_system() {
        let mut me = Identity::current();
        me.host.machine_id = Some("m".into());
        let mut before = me.host.clone();
        before.boot_id = Some("the boot before".into());
        assert_eq!(
            liveness(&me.process, &before, &me.host, true),
            Liveness::Dead(Death::Rebooted)
        );
        assert_eq!(
            liveness(&me.process, &before, &me.host, false),
            Liveness::Unknown
        );
    }
}
