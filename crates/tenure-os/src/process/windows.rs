//! Processes as Windows shows them: a handle that may look and wait, and the time of their creation.
//!
//! A number is reused quickly here, and a handle keeps a number from being reused; so a process is
//! opened first and looked at afterwards. Its start time is the instant of its creation, in
//! microseconds since 1970, which no later process can have together with the same number.
//!
//! - **The boot** is known by the creation time of the service control manager, which the system starts
//!   once and cannot live without. It does not change with the clock.
//! - **The machine** is the `MachineGuid` of the registry. Containers share that of their image, so they
//!   have none. A machine without an id is never taken for one that restarted.

use crate::os::raw;
use crate::os::{Descriptor, Errno, borrow, wide_text};
use std::time::Duration;
use tenure_core::{Death, Host, Liveness, Process};

/// The variables that name this process's user.
pub(super) const USER_VARIABLES: &[&str] = &["USERNAME", "USER"];

/// A user that no variable names.
pub(super) fn nameless_user() -> String {
    "unknown".to_owned()
}

/// Users are known by their names.
pub(super) fn name_of_user(_: &str) -> Option<String> {
    None
}

/// What the machine's registry has to say of it.
const MACHINE: &str = r"SOFTWARE\Microsoft\Cryptography";
const CONTROL: &str = r"SYSTEM\CurrentControlSet\Control";

/// The process that the system starts once in each boot.
const ONCE: &str = "services.exe";

/// The name of this machine.
pub(super) fn host_name() -> String {
    raw::computer_name().unwrap_or_default()
}

/// All processes share one namespace, and a container has a boot of its own.
#[allow(clippy::unnecessary_wraps, reason = "other systems may not tell")]
pub(super) fn pid_namespace() -> Option<u64> {
    Some(0)
}

/// The surroundings in which process numbers mean something.
pub(super) fn current_host() -> Host {
    let boot = all()
        .into_iter()
        .filter(|seen| seen.name.eq_ignore_ascii_case(ONCE) && seen.started > 0)
        .map(|seen| seen.started)
        .min();
    Host {
        name: host_name(),
        machine_id: raw::registry_text(MACHINE, "MachineGuid")
            .filter(|_| !raw::registry_has(CONTROL, "ContainerType")),
        boot_id: boot.map(|started| format!("windows-{started}")),
        pid_namespace: pid_namespace(),
    }
}

/// What the system shows of one process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stat {
    /// Number of its parent.
    pub parent: u32,
    started: u64,
    has_ended: bool,
}

impl Stat {
    /// When it started.
    #[allow(clippy::unnecessary_wraps, reason = "one surface")]
    pub fn started(&self) -> Option<u64> {
        Some(self.started)
    }

    /// No process is a copy of its parent here.
    #[allow(clippy::unused_self, reason = "one surface")]
    pub fn is_copy(&self) -> bool {
        false
    }

    /// Always false: this system has no signals that stop a process.
    #[allow(clippy::unused_self, reason = "one surface")]
    pub fn is_stopped(&self) -> bool {
        false
    }

    /// Whether it has ended, and a process still has a handle on it.
    pub fn has_ended(&self) -> bool {
        self.has_ended
    }
}

/// From 1601, where this system's times begin, to 1970, in units of 100 ns.
const EPOCH: u64 = 116_444_736_000_000_000;

fn micros(filetime: u64) -> u64 {
    filetime.saturating_sub(EPOCH) / 10
}

/// A process of the system's list.
struct ListedProcess {
    pid: u32,
    parent: u32,
    started: u64,
    name: String,
}

/// All processes, those included that may not be opened. Empty if the system does not say.
fn all() -> Vec<ListedProcess> {
    let Ok((block, address)) = raw::processes() else {
        return Vec::new();
    };
    let block = Block {
        bytes: &block,
        address,
    };
    let word = size_of::<usize>();
    // SYSTEM_PROCESS_INFORMATION: how far the next one is; at 32 when it was created; at 56 its name,
    // behind that its priority, its number and its parent's number, a word each.
    let numbers = 56 + 3 * word;
    let mut seen = Vec::new();
    let mut start = 0;
    loop {
        let entry = (
            block.number(start, 4),
            block.number(start + 32, 8),
            block.number(start + numbers, word),
            block.number(start + numbers + word, word),
        );
        let (Some(next), Some(created), Some(pid), Some(parent)) = entry else {
            return seen;
        };
        seen.push(ListedProcess {
            pid: u32::try_from(pid).unwrap_or(0),
            parent: u32::try_from(parent).unwrap_or(0),
            started: micros(created),
            name: block.text(start + 56),
        });
        let Some(next) = usize::try_from(next).ok().filter(|next| *next > 0) else {
            return seen;
        };
        start += next;
    }
}

/// What the system wrote, and where in memory that stood.
struct Block<'a> {
    bytes: &'a [u8],
    address: usize,
}

impl Block<'_> {
    fn number(&self, at: usize, length: usize) -> Option<u64> {
        let mut bytes = [0; 8];
        let found = self.bytes.get(at..at.checked_add(length)?)?;
        bytes.get_mut(..length)?.copy_from_slice(found);
        Some(u64::from_le_bytes(bytes))
    }

    /// A `UNICODE_STRING`: its length in bytes, and a word further its address.
    fn text(&self, at: usize) -> String {
        let word = size_of::<usize>();
        let found = || {
            let length = usize::try_from(self.number(at, 2)?).ok()?;
            let address = usize::try_from(self.number(at + word, word)?).ok()?;
            let from = address.checked_sub(self.address)?;
            self.bytes.get(from..from.checked_add(length)?)
        };
        found().map(wide_text).unwrap_or_default()
    }
}

/// Opens the process with this number. The system takes any of four numbers for each process, so the opened
/// process is asked for its own.
fn opened(pid: u32) -> Result<Descriptor, Errno> {
    let process = raw::open_process(pid)?;
    if raw::number_of(borrow(&process)) == pid {
        Ok(process)
    } else {
        Err(NO_SUCH_PROCESS)
    }
}

/// What the system answers for a number that no process has.
const NO_SUCH_PROCESS: Errno = Errno::INVAL;

/// What the system shows of a process; `None` if there is none, or nothing can be seen of it.
pub fn stat(pid: u32) -> Option<Stat> {
    let all = all();
    let listed = all.iter().find(|seen| seen.pid == pid && pid != 0);
    let (started, has_ended) = match opened(pid) {
        Ok(process) => (
            micros(raw::started(borrow(&process)).ok()?),
            raw::wait(&[borrow(&process)], Duration::ZERO).ok()?,
        ),
        Err(_) => (listed?.started, false),
    };
    // A parent's number outlives the parent: a process that is younger than the child is another one.
    let parent = listed.and_then(|listed| {
        let parent = all.iter().find(|seen| seen.pid == listed.parent)?;
        (parent.started <= started).then_some(parent.pid)
    });
    Some(Stat {
        parent: parent.unwrap_or(0),
        started,
        has_ended,
    })
}

/// Asks the system about a process of this boot.
pub fn probe(process: &Process) -> Liveness {
    let started = match opened(process.pid) {
        Ok(opened) => {
            let (Ok(ended), Ok(started)) = (
                raw::wait(&[borrow(&opened)], Duration::ZERO),
                raw::started(borrow(&opened)),
            ) else {
                return Liveness::Unknown;
            };
            if ended {
                return Liveness::Dead(Death::Zombie);
            }
            Some(micros(started))
        }
        Err(NO_SUCH_PROCESS) => return Liveness::Dead(Death::Gone),
        // Another user's process, which may not be opened, is still listed.
        Err(Errno::ACCESS) => {
            let all = all();
            let listed = all.into_iter().find(|seen| seen.pid == process.pid);
            listed.map(|seen| seen.started)
        }
        Err(_) => return Liveness::Unknown,
    };
    if super::is_another(process, started) {
        Liveness::Dead(Death::Replaced)
    } else {
        Liveness::Alive
    }
}

/// Asks the system about a process. What else its list shows is not needed: nothing is stopped here.
pub(super) fn look_at(process: &Process) -> (Liveness, Option<Stat>) {
    (probe(process), None)
}

/// A handle on a process that can be polled for its end.
pub(super) fn open(pid: u32) -> Option<Descriptor> {
    opened(pid).ok()
}

/// The process that started this one.
pub fn parent_of_self() -> u32 {
    stat(std::process::id()).map_or(0, |stat| stat.parent)
}

/// What a process was started with, its own name first; nothing where that cannot be seen.
pub fn arguments(pid: u32) -> Vec<String> {
    let line = opened(pid).and_then(|process| raw::command_line(borrow(&process)));
    let line = line.map(|(bytes, address)| {
        let block = Block {
            bytes: &bytes,
            address,
        };
        block.text(0)
    });
    match line {
        Ok(line) if !line.trim().is_empty() => split(&line),
        _ => Vec::new(),
    }
}

/// The words of a command line; quotes keep one together.
fn split(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quoted = false;
    for character in line.chars() {
        match character {
            '"' => {
                quoted = !quoted;
                word.get_or_insert_default();
            }
            ' ' | '\t' if !quoted => words.extend(word.take()),
            other => word.get_or_insert_default().push(other),
        }
    }
    words.extend(word);
    words
}

/// The file name of a process's program, for people.
pub fn name_of(pid: u32) -> String {
    let listed = all().into_iter().find(|seen| seen.pid == pid);
    listed.map(|seen| seen.name).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_is_listed_and_opened_alike() {
        let own = std::process::id();
        let listed = all().into_iter().find(|seen| seen.pid == own);
        let listed = listed.expect("this process runs");
        let process = opened(own).expect("our own");
        assert_eq!(
            micros(raw::started(borrow(&process)).expect("a time")),
            listed.started
        );
        let ours = std::env::current_exe().expect("a program");
        let ours = ours.file_name().expect("its name").to_string_lossy();
        assert!(listed.name.eq_ignore_ascii_case(&ours), "{}", listed.name);
    }

    #[test]
    fn the_numbers_beside_ours_are_nobody() {
        let own = std::process::id();
        for near in [own + 1, own + 2, own + 3] {
            let process = Process {
                pid: near,
                started: None,
            };
            assert_eq!(
                probe(&process),
                Liveness::Dead(Death::Gone),
                "the system opens {own} for {near}"
            );
        }
    }

    #[test]
    fn a_process_that_has_ended_is_dead_while_somebody_has_a_handle_on_it() {
        let mut child = std::process::Command::new("cmd")
            .args(["/c", "exit"])
            .spawn()
            .expect("a process");
        child.wait().expect("its end");
        let process = Process {
            pid: child.id(),
            started: None,
        };
        assert!(matches!(probe(&process), Liveness::Dead(_)));
    }

    #[test]
    fn a_machine_has_a_name_an_id_and_a_boot() {
        let host = current_host();
        assert!(!host.name.is_empty());
        assert!(host.machine_id.is_some());
        assert!(host.boot_id.is_some());
        assert_eq!(host, current_host(), "and they stay the same");
    }

    #[test]
    fn a_command_line_is_split_at_spaces_outside_of_quotes() {
        assert_eq!(
            split(r#""C:\a b\cmd.exe"  /c "echo ""#),
            [r"C:\a b\cmd.exe", "/c", "echo "]
        );
        assert_eq!(split(r#"x "" y"#), ["x", "", "y"]);
    }
}
