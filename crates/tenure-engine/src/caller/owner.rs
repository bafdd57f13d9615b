//! Finds the process that a caller names as the owner of its lock: its parent, or a number.
//!
//! The caller of `tenure acquire` is often a shell that exists for one line (`sh -c '…'`). A lock in its
//! name would be stale at once, so `parent` is the nearest ancestor that is not such a one-shot shell. Whom a call without
//! `--owner` means, `job` decides.

use crate::shell::{ends_with_its_command, is_shell};
use tenure_core::{Liveness, Process};
use tenure_os::process::{
    Stat, arguments, name_of, parent_of_self, probe, process_of, stat, upwards,
};

/// The owner that was chosen, and what it is called.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chosen {
    /// The process.
    pub process: Process,
    /// The command's name, for people.
    pub name: String,
}

/// Why no owner could be named.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum OwnerError {
    /// No process has the given number.
    NoSuchProcess {
        /// The number.
        pid: u32,
    },
    /// The process runs, but nothing more can be seen of it: no `/proc` shows the processes of this PID namespace.
    NotVisible {
        /// The number.
        pid: u32,
    },
    /// A daemon that outlives every job makes the call itself, or a shell that has nothing left to do after it.
    NoJob {
        /// What the daemon is called.
        daemon: String,
        /// The daemon's process id.
        pid: u32,
    },
    /// Each step of a job has a shell of its own, and no process of the job can be seen.
    NoJobOfSteps {
        /// What runs the steps.
        system: &'static str,
    },
    /// `--owner job`, and the call is in no job of which a process is known.
    NotInJob,
    /// Every ancestor is a one-shot shell or the system's first process.
    NoneFound,
}

impl std::fmt::Display for OwnerError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::NoSuchProcess { pid } => write!(f, "--owner {pid}: there is no such process"),
            Self::NotVisible { pid } => write!(f, "--owner {pid}: the processes of this PID namespace cannot be seen, for no /proc of it is mounted; \
         use --owner none with a --ttl"),
            Self::NoJob { daemon, pid } => write!(f, "a lock of this call would outlive the job or be gone at once: {daemon} (PID {pid}) makes the call, and nothing of the \
         job lasts longer than the call does; put the work into `tenure run NAME -- CMD`, or into one shell \
         (`sh -c 'tenure acquire x && work; tenure release x'`), or name an owner with --owner PID, or use --owner none \
         with a --ttl"),
            Self::NoJobOfSteps { system } => write!(f, "a lock of this call would end with this step: each step of {system} has a shell of its own, and no process that lives \
         as long as the job can be seen; put the work into `tenure run NAME -- CMD`, or use --owner parent for this step \
         alone, or --owner none with a --ttl"),
            Self::NotInJob => f.write_str("--owner job: no process above this call is known to live as long as a job (Runner.Worker, Agent.Worker, \
         buildkite-agent bootstrap, a notebook's kernel, ansible-playbook); use --owner auto, or name one with --owner PID"),
            Self::NoneFound => f.write_str("no lasting process was found that could own the lock; name one with --owner PID, \
         or use --owner none with a --ttl"),
        }
    }
}

impl std::error::Error for OwnerError {}

/// First processes that outlive everything, and so say nothing about the caller's work.
const INITS: [&str; 7] = [
    "init",
    "systemd",
    "launchd",
    "tini",
    "dumb-init",
    "catatonit",
    "docker-init",
];

/// The process with this number as an owner, or the nearest lasting ancestor for `None`.
///
/// # Errors
/// - [`OwnerError::NoSuchProcess`] if no running process has the number `pid`.
/// - [`OwnerError::NotVisible`] if one has, and its start time cannot be found out.
/// - [`OwnerError::NoneFound`] if the search ends without one.
pub fn choose_owner(pid: Option<u32>) -> Result<Chosen, OwnerError> {
    if let Some(pid) = pid {
        let seen = stat(pid);
        if seen.is_none() && stat(std::process::id()).is_none() && may_run(pid) {
            return Err(OwnerError::NotVisible { pid });
        }
        return seen
            .filter(|stat| !stat.has_ended())
            .map(|stat| chosen(pid, &stat))
            .ok_or(OwnerError::NoSuchProcess { pid });
    }
    for (pid, stat) in upwards(parent_of_self()) {
        let arguments = arguments(pid);
        if pid == 1 && is_init(&arguments) {
            break;
        }
        // A shell of which nothing more can be seen counts as a one-shot shell too; on macOS, so does every
        // process of which nothing more can be seen. A lock that lives too long can be released; one that
        // is stale at once excludes no other caller.
        let lasts_on_windows = || {
            let is_hidden = arguments.is_empty() && is_shell_of_windows(&name_of(pid));
            !is_hidden && !is_one_shot_of_windows(&arguments)
        };
        let lasts = !is_one_shot_shell(&arguments)
            && !is_wrapper(&arguments)
            && !is_subshell(&arguments, &stat)
            && (!cfg!(windows) || lasts_on_windows())
            && (!cfg!(target_os = "macos") || !arguments.is_empty());
        if lasts {
            return Ok(chosen(pid, &stat));
        }
    }
    Err(OwnerError::NoneFound)
}

/// The process that makes this call: the parent, or what stands above the programs between that run one command and end
/// with it. `None` if that cannot be seen.
pub fn caller() -> Option<Process> {
    let mut above = upwards(parent_of_self());
    let (pid, stat) = above.find(|(pid, _)| !is_wrapper(&arguments(*pid)))?;
    Some(process_of(pid, &stat))
}

fn may_run(pid: u32) -> bool {
    let process = Process { pid, started: None };
    !matches!(probe(&process), Liveness::Dead(_))
}

pub(super) fn chosen(pid: u32, stat: &Stat) -> Chosen {
    Chosen {
        process: process_of(pid, stat),
        name: name_of(pid),
    }
}

pub(super) fn base_name(argument: &str) -> &str {
    let separators: &[char] = if cfg!(windows) { &['/', '\\'] } else { &['/'] };
    let name = argument.rsplit(separators).next().unwrap_or(argument);
    // A login shell calls itself `-bash`.
    let name = name.strip_prefix('-').unwrap_or(name);
    match name.split_at_checked(name.len().saturating_sub(4)) {
        Some((stem, ending)) if cfg!(windows) && ending.eq_ignore_ascii_case(".exe") => stem,
        _ => name,
    }
}

pub(super) fn is_init(arguments: &[String]) -> bool {
    arguments
        .first()
        .is_some_and(|first| INITS.contains(&base_name(first)))
}

/// Whether this is a program that only runs the command which called tenure. `tenure run` is one as well.
pub(super) fn is_wrapper(arguments: &[String]) -> bool {
    let Some((first, rest)) = arguments.split_first() else {
        return false;
    };
    let mut own = rest.iter().take_while(|word| *word != "--");
    match base_name(first) {
        "tenure" => own.any(|word| ["run", "flock"].contains(&word.as_str())),
        name => ends_with_its_command(name),
    }
}

/// Whether this is a copy that a shell made of itself, for `( … )`, `$( … )` or a part of a
/// pipeline.
pub(super) fn is_subshell(arguments: &[String], stat: &Stat) -> bool {
    stat.is_copy()
        && arguments
            .first()
            .is_some_and(|first| is_shell(base_name(first)))
}

/// What a shell runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Runs<'a> {
    /// The text of `sh -c TEXT`.
    Text(&'a str),
    /// A script.
    Script(&'a str),
    /// What it reads from stdin.
    Input,
}

/// What a shell runs by these arguments, in any of their spellings (`bash -lc`, `sh -ec`, `busybox sh -c`). `None` for
/// what is no shell.
pub(super) fn run_by_shell(arguments: &[String]) -> Option<Runs<'_>> {
    let mut words = arguments.iter().map(String::as_str);
    let mut name = base_name(words.next()?);
    if name == "busybox" {
        name = words.next()?;
    }
    if !is_shell(name) {
        return None;
    }
    let mut is_text = false;
    while let Some(word) = words.next() {
        match word {
            "+o" | "+O" | "--rcfile" | "--init-file" => drop(words.next()),
            "--command" => is_text = true,
            long if long.starts_with("--") => {}
            short if short.starts_with(['-', '+']) && short.len() > 1 => {
                is_text |= short.starts_with('-') && short.contains('c');
                // `-euo pipefail`: the option's name is a word of its own.
                if short.ends_with(['o', 'O']) {
                    words.next();
                }
            }
            // The first word that is no option.
            text if is_text => return Some(Runs::Text(text)),
            script => return Some(Runs::Script(script)),
        }
    }
    Some(if is_text { Runs::Text("") } else { Runs::Input })
}

/// Whether these arguments are those of `sh -c …`: a shell that lives for one line.
pub(super) fn is_one_shot_shell(arguments: &[String]) -> bool {
    matches!(run_by_shell(arguments), Some(Runs::Text(_)))
}

fn is_shell_of_windows(program: &str) -> bool {
    let name = base_name(program).to_ascii_lowercase();
    ["cmd", "powershell", "pwsh"].contains(&name.as_str()) || is_shell(name.as_str())
}

/// Whether these arguments are those of a one-shot shell of Windows: `cmd /c …`,
/// `powershell -Command …`, in any of their spellings.
fn is_one_shot_of_windows(arguments: &[String]) -> bool {
    let Some((first, rest)) = arguments.split_first() else {
        return false;
    };
    let mut rest = rest.iter().map(|word| word.to_ascii_lowercase());
    match base_name(first).to_ascii_lowercase().as_str() {
        // `/k` stays after its line; the words behind either are the line.
        "cmd" => rest
            .find(|word| ["/c", "/r", "/k"].iter().any(|flag| word.starts_with(flag)))
            .is_some_and(|word| !word.starts_with("/k")),
        // Each flag may be cut short. A script lasts, and so does a shell that is told to stay.
        "powershell" | "pwsh" => {
            let words: Vec<String> = rest.collect();
            let is_any = |flags: &[&str]| {
                let is = |word: &String| {
                    let typed = word.strip_prefix(['-', '/']).unwrap_or_default();
                    !typed.is_empty() && flags.iter().any(|flag| flag.starts_with(typed))
                };
                words.iter().any(is)
            };
            is_any(&["command", "encodedcommand", "ec"]) && !is_any(&["noexit"])
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::caller::is_caller;
    use tenure_os::process::is_descendant_of;

    #[test]
    fn one_shot_shells_of_windows_are_told_from_scripts_and_sessions() {
        let one_shot = |line: &str| {
            let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
            is_one_shot_of_windows(&words)
        };
        for line in [
            "cmd /c x",
            "cmd /D /S /C x",
            "powershell -Command x",
            "pwsh -NoProfile -c x",
            "powershell -enc x",
        ] {
            assert!(one_shot(line), "{line} lives for one line");
        }
        for line in [
            "cmd",
            "cmd /k x /c",
            "cmd /d",
            "powershell",
            "powershell -NoExit -Command x",
            "pwsh -File x.ps1",
            "python -c x",
        ] {
            assert!(!one_shot(line), "{line} lasts");
        }
    }

    fn one_shot(line: &str) -> bool {
        is_one_shot_shell(&line.split(' ').map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn one_shot_shells_are_told_from_scripts_and_sessions() {
        for line in [
            "sh -c x",
            "/bin/bash -lc x",
            "bash -e -c x",
            "bash -o pipefail -c x",
            "bash -euo pipefail -c x",
            "busybox sh -c x",
            "-zsh -c x",
            "bash --norc -c x",
            "fish --command x",
        ] {
            assert!(one_shot(line), "{line} lives for one line");
        }
        for line in [
            "bash",
            "-bash",
            "bash script.sh",
            "sh -e script.sh -c x",
            "bash -i",
            "python3 -c x",
            "node agent.js",
        ] {
            assert!(!one_shot(line), "{line} lasts");
        }
    }

    #[test]
    fn our_parent_is_an_ancestor_and_a_stranger_is_not() {
        let me = tenure_os::process::Identity::current();
        if cfg!(windows) && parent_of_self() == 0 {
            // Started from outside of Wine, as its first process: there is no parent. A child of this test
            // has one, and `process::windows` asks for it.
            return;
        }
        let parent = choose_owner(Some(parent_of_self())).expect("the parent runs");
        assert!(is_descendant_of(&parent.process, &me.host, &me.host));
        assert!(is_caller(&parent.process, &me.host, &me.host));
        assert!(
            is_caller(&me.process, &me.host, &me.host),
            "and so is this process"
        );
        let stranger = Process {
            pid: parent.process.pid,
            started: parent.process.started.map(|ticks| ticks + 1),
        };
        assert!(
            !is_descendant_of(&stranger, &me.host, &me.host)
                && !is_caller(&stranger, &me.host, &me.host),
            "the same number with another start time is another process"
        );
        let above = tenure_os::process::parent_of(parent.process.pid).filter(|pid| *pid != 0);
        if let Some(above) = above.and_then(|pid| choose_owner(Some(pid)).ok()) {
            assert!(
                !is_caller(&above.process, &me.host, &me.host),
                "the process that started the parent does not call"
            );
        }
    }

    #[test]
    fn an_owner_that_does_not_run_is_refused() {
        assert_eq!(
            choose_owner(Some(999_999_999)),
            Err(OwnerError::NoSuchProcess { pid: 999_999_999 })
        );
    }
}
