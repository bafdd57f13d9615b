//! Processes as `/proc` shows them.
//!
//! What cannot be read there is unknown. So on a system without it every recorded process is unknown, and
//! its lock lives by its liveness lock or by its ttl.
//!
//! What is mounted there may show **another PID namespace** (`unshare --pid` without a mount of its own):
//! its numbers are those of other processes. So nothing of it is believed unless it shows this process
//! under its own number.

use std::fs;

/// The id of this machine.
pub(super) fn machine_id() -> Option<String> {
    read_line("/etc/machine-id")
}

/// The id of this boot. None in a time namespace of which nothing is known: no age and no start time
/// from there could be compared with others of this boot.
pub(super) fn boot_id() -> Option<String> {
    #[cfg(target_os = "linux")]
    if crate::clock::shift() == crate::clock::Shift::Unknown {
        return None;
    }
    read_line("/proc/sys/kernel/random/boot_id")
}

/// In which process numbers mean something.
pub(super) fn pid_namespace() -> Option<u64> {
    rustix::fs::stat("/proc/self/ns/pid")
        .ok()
        .map(|stat| stat.st_ino)
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

/// The content of a small file in one read. The kernel makes these files as they are read, and asking twice
/// costs as much as the first time.
fn read_small<'a>(path: &str, buffer: &'a mut [u8; SMALL_BYTES]) -> Option<&'a [u8]> {
    use rustix::fs::{Mode, OFlags, open};
    let file = open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()?;
    let length = rustix::io::read(&file, buffer.as_mut_slice()).ok()?;
    buffer.get(..length)
}

/// What the kernel shows of one process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stat {
    state: u8,
    /// Number of its parent.
    pub parent: u32,
    group: u32,
    flags: u64,
    threads: u64,
    started: u64,
}

impl Stat {
    /// When it started, in clock ticks since the machine's boot, whatever time namespace this process is
    /// in. `None` if that cannot be told from here.
    pub fn started(&self) -> Option<u64> {
        #[cfg(target_os = "linux")]
        return crate::clock::shift().unshifted_ticks(self.started);
        #[cfg(not(target_os = "linux"))]
        Some(self.started)
    }

    /// Whether it is a copy of its parent that has not become a program of its own (the kernel's
    /// `PF_FORKNOEXEC`).
    pub fn is_copy(&self) -> bool {
        self.flags & 0x40 != 0
    }

    /// Whether a signal has stopped it (`T`). One that a debugger holds (`t`) goes on in a moment.
    pub fn is_stopped(&self) -> bool {
        self.state == b'T'
    }

    /// Whether it has ended and waits to be collected. A process whose first thread has ended while others
    /// go on looks the same, except for the number of its threads.
    pub fn has_ended(&self) -> bool {
        matches!(self.state, b'Z' | b'X') && self.threads <= 1
    }
}

/// Reads `/proc/PID/stat`. The command name in it may contain anything, so fields are counted
/// from the last closing parenthesis.
pub fn stat(pid: u32) -> Option<Stat> {
    if pid == std::process::id() {
        return own_stat(pid);
    }
    shows_our_numbers().then(|| look(pid))?
}

/// Reads the line of this process, by a name that needs no number. The number in the line tells whose
/// numbers these are.
fn own_stat(pid: u32) -> Option<Stat> {
    let mut buffer = [0; SMALL_BYTES];
    let line = read_small("/proc/self/stat", &mut buffer)?;
    let number = line.split(|byte| *byte == b' ').next()?;
    if std::str::from_utf8(number).ok()?.parse() != Ok(pid) {
        return None;
    }
    parse_stat(line)
}

/// Whether the numbers here are those of this process's PID namespace. In another one this process has
/// another number, or none at all. (The same number by chance, in two namespaces, is not told apart.)
fn shows_our_numbers() -> bool {
    let Ok(number) = rustix::fs::readlink("/proc/self", Vec::new()) else {
        return false;
    };
    number.to_str().ok().and_then(|number| number.parse().ok()) == Some(std::process::id())
}

/// What stands there of a number of this namespace.
fn look(pid: u32) -> Option<Stat> {
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
/// Reads the whole process table, so it is for endings that were forced, not for every one. If no process
/// can be seen, none is found. Then [`start_time`](crate::process::start_time) of this process is not found
/// either.
pub fn group_is_alive(group: u32) -> bool {
    all()
        .filter_map(look)
        .any(|stat| stat.group == group && !stat.has_ended())
}

/// The children of this process that have not been collected yet: those that it started and, if it is a
/// subreaper, those that it has inherited.
///
/// A list of numbers from the kernel, to be confirmed before anything is done with one of them. An empty
/// list does not prove that there are none: what is shown here may be nothing, or another PID namespace.
pub fn children() -> Vec<u32> {
    if !shows_our_numbers() {
        return Vec::new();
    }
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
        // A kernel that does not list them: all processes that name this one as their parent.
        _ => {
            let own = std::process::id();
            let is_ours = |number: &u32| look(*number).is_some_and(|stat| stat.parent == own);
            all().filter(is_ours).collect()
        }
    }
}

/// The numbers of all processes that can be seen.
fn all() -> impl Iterator<Item = u32> {
    let entries = shows_our_numbers().then(|| fs::read_dir("/proc"));
    let entries = entries.into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
}

/// What a process was started with, its own name first.
pub fn arguments(pid: u32) -> Vec<String> {
    let bytes = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    if bytes.is_empty() {
        return Vec::new();
    }
    // Each argument has its end, unless the process has written a title of its own there.
    let all = bytes.strip_suffix(&[0]).unwrap_or(&bytes);
    all.split(|byte| *byte == 0)
        .map(|argument| String::from_utf8_lossy(argument).into_owned())
        .collect()
}

/// What a process calls itself, for people.
pub fn name_of(pid: u32) -> String {
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
