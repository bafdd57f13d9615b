//! Chooses the process whose life a lock follows, for a command that takes the lock and returns at once.
//!
//! The caller of `tenure acquire` is often a shell that exists for one line (`sh -c '…'`). A lock in its
//! name would be stale at once, so the owner is the nearest ancestor that is not such a one-shot shell.

use super::system::{Stat, arguments, name_of, parent_of_self, probe, stat};
use crate::shell;
use tenure_core::{Host, Liveness, Process};

/// The owner that was chosen, and what it is called.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chosen {
    /// The process.
    pub process: Process,
    /// Its command name, for people.
    pub name: String,
}

/// Why no owner could be named.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OwnerError {
    /// No process has the given number.
    #[error("--owner {pid}: there is no such process")]
    NoSuchProcess {
        /// The number.
        pid: u32,
    },
    /// It runs, but nothing more can be seen of it: no `/proc` shows the processes of this PID namespace.
    #[error(
        "--owner {pid}: the processes of this PID namespace cannot be seen, for no /proc of it is mounted; \
         use --owner none with a --ttl"
    )]
    NotVisible {
        /// The number.
        pid: u32,
    },
    /// A daemon that outlives every job makes the call itself, or a shell that has nothing left to do after it.
    #[error(
        "a lock of this call would outlive the job or be gone at once: {daemon} (PID {pid}) makes the call, and nothing of the \
         job lasts longer than the call does; put the work into `tenure run NAME -- CMD`, or into one shell \
         (`sh -c 'tenure acquire x && work; tenure release x'`), or name an owner with --owner PID, or use --owner none \
         with a --ttl"
    )]
    NoJob {
        /// What the daemon is called.
        daemon: String,
        /// Its number.
        pid: u32,
    },
    /// Every ancestor is a one-shot shell or the system's first process.
    #[error(
        "no lasting process was found that could own the lock; name one with --owner PID, \
         or use --owner none with a --ttl"
    )]
    NoneFound,
}

/// Shells whose `-c` makes them last for one line only.
const SHELLS: [&str; 10] = [
    "sh", "bash", "dash", "zsh", "ksh", "mksh", "ash", "fish", "busybox", "yash",
];

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

/// Programs that start jobs and outlive each of them.
const DAEMONS: [&str; 21] = [
    "systemd",
    "cron",
    "crond",
    "CRON",
    "anacron",
    "fcron",
    "atd",
    "sshd",
    "sshd-session",
    "dropbear",
    "supervisord",
    "runsv",
    "s6-supervise",
    "s6-svscan",
    "openrc-init",
    "conmon",
    "containerd-shim",
    "inetd",
    "xinetd",
    "nomad",
    "buildkite-agent",
];

/// Hosts of coding agents. All subagents of one host share its process, and what they hold is told apart by ids.
const AGENT_HOSTS: [&str; 10] = [
    "claude",
    "claude-code",
    "codex",
    "gemini",
    "gemini-cli",
    "opencode",
    "cursor-agent",
    "copilot",
    "aider",
    "goose",
];

/// Programs that run one command and end with it.
const WRAPPERS: [&str; 16] = [
    "timeout", "env", "nice", "ionice", "nohup", "setsid", "stdbuf", "time", "xargs", "sudo",
    "doas", "runuser", "setpriv", "chrt", "taskset", "strace",
];

/// Whether a program of this name is a shell.
pub fn is_shell(name: &str) -> bool {
    SHELLS.contains(&name)
}

/// How far up the search goes. Real trees are some ten deep.
const ANCESTORS_MAX: usize = 64;

/// A process and those above it, from the process on, as far as every link can be seen here and now.
fn upwards(pid: u32) -> impl Iterator<Item = (u32, Stat)> {
    let mut next = pid;
    let link = move || {
        let pid = next;
        let stat = stat(pid).filter(|_| pid != 0)?;
        next = stat.parent;
        Some((pid, stat))
    };
    std::iter::from_fn(link).take(ANCESTORS_MAX)
}

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

/// The owner of a hold that a call takes which returns at once: what outlives the call and ends with the job.
///
/// A shell whose text (`sh -c`) has more to do after the call is the job, under every parent but the host of an agent.
/// A shell that is the first process of a container, or has no parent that can be seen (`docker exec`), is the job, too.
/// Else the job is the nearest ancestor that is no shell for one line ([`choose_owner`]), unless that is a daemon.
///
/// # Errors
/// - [`OwnerError::NoJob`] if only a daemon outlives the call.
/// - [`OwnerError::NoneFound`] as [`choose_owner`] says.
pub fn job_of_caller() -> Result<Chosen, OwnerError> {
    if cfg!(windows) {
        return choose_owner(None);
    }
    // The shells for one line between the call and what lasts, from the call on.
    let mut shells: Vec<(Chosen, Rest)> = Vec::new();
    for (pid, stat) in upwards(parent_of_self()) {
        let arguments = arguments(pid);
        let is_first = pid == 1 || stat.parent == 0;
        if is_subshell(&arguments, &stat) || is_wrapper(&arguments) {
            continue;
        }
        if is_one_shot_shell(&arguments) {
            let rest = text_of(&arguments).map_or(Rest::Unreadable, Rest::behind);
            if is_first && rest != Rest::Nothing {
                return Ok(chosen(pid, &stat));
            }
            shells.push((chosen(pid, &stat), rest));
            continue;
        }
        let shell = |wanted: &[Rest]| {
            let mut shells = shells.iter();
            shells.find(|(_, rest)| wanted.contains(rest))
        };
        if is_daemon(pid, &arguments) {
            return match shell(&[Rest::More, Rest::Unreadable]) {
                Some((job, _)) => Ok(job.clone()),
                None => Err(OwnerError::NoJob {
                    daemon: name_of(pid),
                    pid,
                }),
            };
        }
        // On macOS not every process shows its arguments, and what shows none may be a shell for one line.
        if cfg!(target_os = "macos") && arguments.is_empty() {
            continue;
        }
        return Ok(match shell(&[Rest::More]) {
            Some((job, _)) if !is_agent_host(pid) => job.clone(),
            _ => chosen(pid, &stat),
        });
    }
    Err(OwnerError::NoneFound)
}

/// What the text of a shell has to do after the call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Rest {
    More,
    Nothing,
    /// The text does not show it, or does not show the call.
    Unreadable,
}

impl Rest {
    fn behind(text: &str) -> Self {
        let has_more = |more| if more { Self::More } else { Self::Nothing };
        match shell::read(text) {
            shell::Line::Plain(commands) => {
                let takes = |command: &shell::Simple| {
                    let words = command.words.iter().filter_map(|word| word.text.as_deref());
                    let mut words = words.skip_while(|word| shell::program(word) != "tenure");
                    words.any(|word| word == "acquire")
                };
                let works = |command: &shell::Simple| {
                    let program = command.words.first().map(|word| word.text.as_deref());
                    // What reads the answer through a pipe ends with it.
                    !command.is_piped && program.is_some_and(|word| word.is_none_or(is_work))
                };
                match commands.iter().position(takes) {
                    Some(at) => {
                        has_more(commands.get(at + 1..).unwrap_or_default().iter().any(works))
                    }
                    None => Self::Unreadable,
                }
            }
            shell::Line::Other(_) => {
                let called = text
                    .split_once("tenure")
                    .and_then(|(_, behind)| behind.split_once("acquire"));
                let Some((_, behind)) = called else {
                    return Self::Unreadable;
                };
                let behind = behind.replace(">&", ">");
                let ends = |character| matches!(character, ';' | '&' | '|' | '\n');
                let parts = behind.split(ends).skip(1);
                has_more(parts.map(command_word).any(is_work))
            }
        }
    }
}

/// The command word in a part of a text that is not understood, as far as signs and keywords in front of it show.
fn command_word(part: &str) -> &str {
    let part = part.trim_matches(|sign: char| " \t(){}'\"`".contains(sign));
    let is_keyword = |word: &&str| ["then", "else", "do", "!", "{", "("].contains(word);
    let mut words = part.split_ascii_whitespace();
    words.find(|word| !is_keyword(word)).unwrap_or_default()
}

/// Whether a command word of a shell begins work: not what ends a construct, says something or leaves.
fn is_work(word: &str) -> bool {
    const NONE: [&str; 17] = [
        "", "done", "fi", "esac", "exit", "return", "true", "false", ":", "echo", "printf", "set",
        "export", "test", "[", "elif", "wait",
    ];
    !NONE.contains(&word) && !word.contains('=')
}

/// Whether this process starts jobs and outlives each of them.
fn is_daemon(pid: u32, arguments: &[String]) -> bool {
    let name = name_of(pid);
    let first = arguments.first().map_or("", |first| base_name(first));
    let applet = arguments.get(1).filter(|_| first == "busybox");
    // A daemon may show what it does: `sshd: user@notty`.
    let called = first.split([':', ' ']).next().unwrap_or(first);
    let names = [&*name, called, applet.map_or("", String::as_str)];
    (pid == 1 && is_init(arguments)) || names.iter().any(|name| DAEMONS.contains(name))
}

/// Whether this process is the host of a coding agent, by its name or by the package that a runtime runs.
fn is_agent_host(pid: u32) -> bool {
    let arguments = arguments(pid);
    let mut words = arguments.iter().take(2);
    let is_host = |word: &String| {
        let package = word
            .split_once("node_modules/")
            .map_or("", |(_, package)| package);
        let mut parts = package.split('/').chain([base_name(word)]);
        parts.any(|part| AGENT_HOSTS.contains(&part))
    };
    AGENT_HOSTS.contains(&&*name_of(pid)) || words.any(is_host)
}

/// Whether the calling process descends from `owner`, which was recorded on `host`.
///
/// Only true where every link can be seen here and now; anything unknown is no proof.
pub fn is_descendant_of(owner: &Process, host: &Host, here: &Host) -> bool {
    is_reached(owner, host, here, |_| true)
}

/// Whether `owner`, which was recorded on `host`, makes this call itself. It is the calling process or its
/// parent, with nothing between the two but programs that run one command and end with it (`env`,
/// `timeout`, `sudo`). A sub-shell or another script between them has a life of its own, and may call for
/// itself.
///
/// Only true where every link can be seen here and now; anything unknown is no proof.
pub fn is_caller(owner: &Process, host: &Host, here: &Host) -> bool {
    let own = std::process::id();
    is_reached(owner, host, here, |pid| {
        pid == own || is_wrapper(&arguments(pid))
    })
}

/// Whether `owner` is the calling process or an ancestor, and every process between them `passes`.
fn is_reached(owner: &Process, host: &Host, here: &Host, passes: impl Fn(u32) -> bool) -> bool {
    if !is_comparable(owner, host, here) {
        return false;
    }
    for (pid, stat) in upwards(std::process::id()) {
        if pid == owner.pid {
            return stat.started() == owner.started;
        }
        if !passes(pid) {
            return false;
        }
    }
    false
}

/// The process that makes this call: the parent, or what stands above the programs between that run one command and end
/// with it. `None` if that cannot be seen.
pub fn caller() -> Option<Process> {
    let mut above = upwards(parent_of_self());
    let (pid, stat) = above.find(|(pid, _)| !is_wrapper(&arguments(*pid)))?;
    Some(process_of(pid, &stat))
}

/// Whether the calling process is a part of a run's work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kin {
    /// It descends from the run's command, or the run's supervisor started it for the run.
    Inside,
    /// It can be seen that it does not. The run will end without it.
    Outside,
    /// Not every link can be seen from here.
    Unknown,
}

/// Whether the calling process is a part of the work of a run, whose supervisor and command were recorded on `host`.
///
/// A process that has lost its parent comes to the supervisor (`supervise::descendants`). If it has a session of its
/// own, it is a daemon or a terminal server, for which the command does not wait: outside. Else it is a part of a
/// pipeline, whose end the command may wait for: inside.
pub fn kin_of_run(
    supervisor: &Process,
    command: Option<&Process>,
    host: &Host,
    here: &Host,
) -> Kin {
    if !is_comparable(supervisor, host, here) {
        return Kin::Unknown;
    }
    let mut below = None;
    for (pid, link) in upwards(std::process::id()) {
        let this = process_of(pid, &link);
        if Some(&this) == command {
            return Kin::Inside;
        }
        if this == *supervisor {
            // Without a command, the process has become its command (`--exec`) and adopts none.
            let is_apart =
                command.is_some() && below.is_some_and(|below| has_session_of_its_own(below, pid));
            // A run whose command has ended stays for what goes on under it: whoever inherited the hold may be that.
            let works = command.is_some_and(|command| {
                let seen = stat(command.pid).filter(|stat| !stat.has_ended());
                seen.is_some_and(|stat| stat.started() == command.started)
            });
            return match (is_apart, works) {
                (false, _) => Kin::Inside,
                (true, true) => Kin::Outside,
                (true, false) => Kin::Unknown,
            };
        }
        // No process is older than what it descends from, so the way up ends early for a caller from elsewhere.
        let is_older = this
            .started
            .zip(supervisor.started)
            .is_some_and(|(this, run)| this < run);
        if link.parent == 0 || is_older {
            return Kin::Outside;
        }
        below = Some(pid);
    }
    Kin::Unknown
}

/// Whether a process is in another session than its parent.
#[cfg(unix)]
fn has_session_of_its_own(pid: u32, parent: u32) -> bool {
    use rustix::process::{Pid, getsid};
    let session = |pid: u32| {
        let pid = i32::try_from(pid).ok().and_then(Pid::from_raw)?;
        getsid(Some(pid)).ok()
    };
    let both = session(pid).zip(session(parent));
    both.is_some_and(|(own, parents)| own != parents)
}

#[cfg(not(unix))]
fn has_session_of_its_own(_: u32, _: u32) -> bool {
    false
}

/// Whether an owner's number and start mean here what they meant where they were recorded.
fn is_comparable(owner: &Process, host: &Host, here: &Host) -> bool {
    host.boot_id.is_some()
        && host.boot_id == here.boot_id
        && host.pid_namespace == here.pid_namespace
        && owner.started.is_some()
}

/// The calling process and its ancestors, seen at one moment: for a caller that shows who owns many locks. None
/// that decides by it may keep it, for an ancestor may end.
#[derive(Debug)]
pub struct Ancestors(Vec<Process>);

impl Ancestors {
    /// As far as every link can be seen here and now.
    pub fn of_caller() -> Self {
        let seen = upwards(std::process::id());
        Self(seen.map(|(pid, stat)| process_of(pid, &stat)).collect())
    }

    /// Whether `owner`, which was recorded on `host`, is one of them, as [`is_descendant_of`] says it.
    pub fn have(&self, owner: &Process, host: &Host, here: &Host) -> bool {
        is_comparable(owner, host, here) && self.0.contains(owner)
    }
}

fn may_run(pid: u32) -> bool {
    let process = Process { pid, started: None };
    !matches!(probe(&process), Liveness::Dead(_))
}

fn process_of(pid: u32, stat: &Stat) -> Process {
    let started = stat.started();
    Process { pid, started }
}

fn chosen(pid: u32, stat: &Stat) -> Chosen {
    Chosen {
        process: process_of(pid, stat),
        name: name_of(pid),
    }
}

fn base_name(argument: &str) -> &str {
    let separators: &[char] = if cfg!(windows) { &['/', '\\'] } else { &['/'] };
    let name = argument.rsplit(separators).next().unwrap_or(argument);
    // A login shell calls itself `-bash`.
    let name = name.strip_prefix('-').unwrap_or(name);
    match name.split_at_checked(name.len().saturating_sub(4)) {
        Some((stem, ending)) if cfg!(windows) && ending.eq_ignore_ascii_case(".exe") => stem,
        _ => name,
    }
}

fn is_init(arguments: &[String]) -> bool {
    arguments
        .first()
        .is_some_and(|first| INITS.contains(&base_name(first)))
}

/// Whether this is a program that only runs the command which called tenure.
fn is_wrapper(arguments: &[String]) -> bool {
    arguments
        .first()
        .is_some_and(|first| WRAPPERS.contains(&base_name(first)))
}

/// Whether this is a copy that a shell made of itself, for `( … )`, `$( … )` or a part of a
/// pipeline.
fn is_subshell(arguments: &[String], stat: &Stat) -> bool {
    stat.is_copy()
        && arguments
            .first()
            .is_some_and(|first| SHELLS.contains(&base_name(first)))
}

/// Whether these arguments are those of `sh -c …` in any of its spellings (`bash -lc`, `sh -ec`,
/// `busybox sh -c`).
fn is_one_shot_shell(arguments: &[String]) -> bool {
    let Some((first, rest)) = arguments.split_first() else {
        return false;
    };
    if !SHELLS.contains(&base_name(first)) {
        return false;
    }
    let rest = match (base_name(first), rest.split_first()) {
        ("busybox", Some((applet, rest))) if SHELLS.contains(&applet.as_str()) => rest,
        _ => rest,
    };
    let mut skip_value = false;
    for argument in rest {
        if std::mem::take(&mut skip_value) {
            continue;
        }
        match argument.as_str() {
            "+o" | "+O" | "--rcfile" | "--init-file" => skip_value = true,
            "--command" => return true,
            long if long.starts_with("--") => {}
            short if short.starts_with('-') && short.len() > 1 => {
                if short.contains('c') {
                    return true;
                }
                // `-euo pipefail`: the option's name is a word of its own.
                skip_value = short.ends_with(['o', 'O']);
            }
            plus if plus.starts_with('+') => {}
            // The first word that is not an option is a script, and a script lasts.
            _ => return false,
        }
    }
    false
}

/// The text of `sh -c TEXT`: the first word behind all options.
fn text_of(arguments: &[String]) -> Option<&str> {
    let mut words = arguments.iter().skip(1).map(String::as_str);
    let mut is_behind = false;
    while let Some(word) = words.next() {
        match word {
            "+o" | "+O" | "--rcfile" | "--init-file" => drop(words.next()),
            "--command" => is_behind = true,
            long if long.starts_with("--") && long.len() > 2 => {}
            short if short.starts_with(['-', '+']) && short.len() > 1 && short != "--" => {
                is_behind |= short.contains('c');
                if short.ends_with(['o', 'O']) {
                    words.next();
                }
            }
            "--" => {}
            text if is_behind => return Some(text),
            // `busybox sh -c`.
            _ => {}
        }
    }
    None
}

fn is_shell_of_windows(program: &str) -> bool {
    let name = base_name(program).to_ascii_lowercase();
    ["cmd", "powershell", "pwsh"].contains(&name.as_str()) || SHELLS.contains(&name.as_str())
}

/// The same for the shells of Windows: `cmd /c …`, `powershell -Command …`, in any of their spellings.
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
    fn text_of_a_shell_shows_what_it_has_to_do_after_the_call() {
        use Rest::{More, Nothing, Unreadable};
        for (text, rest) in [
            ("tenure acquire x", Nothing),
            ("cd y && tenure acquire x", Nothing),
            ("tenure -q acquire gpu --slots 2 | tee log", Nothing),
            ("timeout 5 /usr/bin/tenure --dir d acquire x", Nothing),
            ("tenure acquire x && work; tenure release x", More),
            ("tenure acquire x | sed s/a/b/; work", More),
            ("tenure acquire x || exit 1", Nothing),
            ("tenure acquire x && echo got", Nothing),
            ("set -e; tenure acquire x; exit $?", Nothing),
            ("id=$(tenure acquire x); echo $id >id.txt", Nothing),
            ("if ! tenure acquire x; then exit 1; fi", Nothing),
            (
                "if tenure acquire x; then work; else echo could not acquire; fi",
                More,
            ),
            ("tenure acquire x; tenure release x", More),
            ("tenure acquire x\nwork", More),
            ("tenure acquire a; tenure acquire b", More),
            ("./job.sh", Unreadable),
            ("tenure check x; work", Unreadable),
            ("id=$(tenure acquire x)", Nothing),
            ("echo $(tenure acquire x 2>&1)", Nothing),
            ("if tenure acquire x; then work; fi", More),
            ("for i in 1 2; do tenure acquire x; done", Nothing),
            ("for i in 1 2; do tenure acquire x; work; done", More),
            ("tenure acquire x & work", More),
            ("(work)", Unreadable),
        ] {
            assert_eq!(Rest::behind(text), rest, "{text}");
        }
        for (line, text) in [
            ("sh|-c|x y", Some("x y")),
            ("/bin/bash|-lc|x", Some("x")),
            ("bash|-c|-e|x", Some("x")),
            ("bash|-o|pipefail|-c|x|name", Some("x")),
            ("busybox|sh|-c|x", Some("x")),
            ("bash|script", None),
        ] {
            let words: Vec<String> = line.split('|').map(str::to_owned).collect();
            assert_eq!(text_of(&words), text, "{line}");
        }
    }

    #[test]
    fn our_parent_is_an_ancestor_and_a_stranger_is_not() {
        let me = super::super::Identity::current();
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
        let above = super::super::parent_of(parent.process.pid).filter(|pid| *pid != 0);
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
