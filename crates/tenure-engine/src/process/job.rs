//! Chooses the process that is the job of a call: what outlives the call and ends with the work. A hold that a call takes
//! which returns at once follows that process.
//!
//! The nearest process that lasts is not always it. A daemon (cron, sshd) outlives every job. The shell of a step in CI, of
//! a task of Ansible or of a notebook's cell ends long before the job does. So what stands above counts as well.

use super::owner::{
    Chosen, OwnerError, SHELLS, base_name, choose_owner, chosen, is_descendant_of, is_init,
    is_one_shot_shell, is_reached, is_subshell, is_wrapper, upwards,
};
use super::system::{Stat, arguments, name_of, parent_of_self};
use crate::shell;
use tenure_core::{Host, Process};

/// Programs that live exactly as long as one job of CI, whose steps they start.
const JOBS: [&str; 2] = ["Runner.Worker", "Agent.Worker"];

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

/// The owner of a hold that a call takes which returns at once.
///
/// 1. A shell whose text (`sh -c`) has more to do after the call is the job, under every parent but the host of an agent.
///    So is a shell that is the first process of a container, or has no parent that can be seen (`docker exec`).
/// 2. Else the job is the process that lives as long as a job whose steps have processes of their own ([`is_job`]).
/// 3. Else it is the nearest ancestor that is no shell for one line ([`choose_owner`]), unless that is a daemon, or the
///    shell of one step.
///
/// # Errors
/// - [`OwnerError::NoJob`] if only a daemon outlives the call.
/// - [`OwnerError::NoJobOfSteps`] if only a step does.
/// - [`OwnerError::NoneFound`] as [`choose_owner`] says.
pub fn job_of_caller() -> Result<Chosen, OwnerError> {
    if cfg!(windows) {
        return choose_owner(None);
    }
    let mut found = Found::default();
    for (pid, stat) in upwards(parent_of_self()) {
        if let Some(decided) = found.add(pid, &stat) {
            return decided;
        }
    }
    found.without_end()
}

/// Whether `owner`, which was recorded on `host`, makes this call itself. It is the calling process or its
/// parent, with nothing between the two but programs that run one command and end with it (`env`,
/// `timeout`, `sudo`). A sub-shell or another script between them has a life of its own, and may call for
/// itself. The steps of a job, whose owner is the process of the job, have nothing else that they could be known by. The host of
/// an agent calls for each of its subagents, so it is known by the id or by the agent's key alone.
///
/// Only true where every link can be seen here and now; anything unknown is no proof.
pub fn is_caller(owner: &Process, host: &Host, here: &Host) -> bool {
    if is_agent_host(owner.pid) {
        return false;
    }
    let own = std::process::id();
    let passes = |pid| pid == own || is_wrapper(&arguments(pid));
    is_reached(owner, host, here, passes)
        || (is_job(owner.pid) && is_descendant_of(owner, host, here))
}

/// The process that lives as long as the job in which this call is a step.
///
/// # Errors
/// - [`OwnerError::NotInJob`] if none can be seen.
pub fn process_of_job() -> Result<Chosen, OwnerError> {
    let mut above = upwards(parent_of_self());
    let job = above.find(|(pid, stat)| is_job(*pid) && !stat.is_copy());
    job.map(|(pid, stat)| chosen(pid, &stat))
        .ok_or(OwnerError::NotInJob)
}

/// What stands above a call, from the call on.
#[derive(Default)]
struct Found {
    /// The shells for one line between the call and what lasts.
    shells: Vec<(Chosen, Rest)>,
    /// The nearest process that lasts, and the system whose step it is, if it is one.
    lasting: Option<(Chosen, Option<&'static str>)>,
    /// The call is in a task of Ansible, whose processes all end with the task.
    in_task: bool,
}

impl Found {
    /// Takes the next process above, and answers once it decides.
    fn add(&mut self, pid: u32, stat: &Stat) -> Option<Result<Chosen, OwnerError>> {
        let arguments = arguments(pid);
        if is_subshell(&arguments, stat) || is_wrapper(&arguments) {
            return None;
        }
        if is_job(pid) {
            // A worker is a copy of the process that stays.
            return (!stat.is_copy()).then(|| {
                Ok(self
                    .shell(&[Rest::More])
                    .unwrap_or_else(|| chosen(pid, stat)))
            });
        }
        if is_of_task(&arguments) {
            self.in_task = true;
            self.lasting = None;
            return None;
        }
        if is_agent_host(pid) {
            return Some(Ok(match self.lasting.take() {
                Some((lasting, _)) => self.shell(&[Rest::More]).unwrap_or(lasting),
                None => chosen(pid, stat),
            }));
        }
        if is_daemon(pid, &arguments) {
            return Some(self.below_daemon(pid));
        }
        if self.lasting.is_some() || self.in_task {
            return None;
        }
        if is_one_shot_shell(&arguments) {
            let rest = text_of(&arguments).map_or(Rest::Unreadable, Rest::behind);
            let is_first = pid == 1 || stat.parent == 0;
            if is_first && rest != Rest::Nothing {
                return Some(Ok(chosen(pid, stat)));
            }
            self.shells.push((chosen(pid, stat), rest));
            return None;
        }
        // On macOS not every process shows its arguments, and what shows none may be a shell for one line.
        if !(cfg!(target_os = "macos") && arguments.is_empty()) {
            self.lasting = Some((chosen(pid, stat), system_of_step(&arguments)));
        }
        None
    }

    /// The nearest shell of which one of these is true.
    fn shell(&self, wanted: &[Rest]) -> Option<Chosen> {
        let mut shells = self.shells.iter();
        let found = shells.find(|(_, rest)| wanted.contains(rest));
        found.map(|(shell, _)| shell.clone())
    }

    /// The answer below a daemon.
    fn below_daemon(&mut self, pid: u32) -> Result<Chosen, OwnerError> {
        if self.lasting.is_some() || self.in_task {
            return std::mem::take(self).without_end();
        }
        self.shell(&[Rest::More, Rest::Unreadable])
            .ok_or_else(|| OwnerError::NoJob {
                daemon: name_of(pid),
                pid,
            })
    }

    /// The answer where nothing above decides.
    fn without_end(self) -> Result<Chosen, OwnerError> {
        if let Some(shell) = self.shell(&[Rest::More]) {
            return Ok(shell);
        }
        match self.lasting {
            _ if self.in_task => Err(OwnerError::NoJobOfSteps { system: "Ansible" }),
            Some((_, Some(system))) => Err(OwnerError::NoJobOfSteps { system }),
            Some((lasting, None)) => Ok(lasting),
            None => Err(OwnerError::NoneFound),
        }
    }
}

/// Whether this process lives exactly as long as a job whose steps, tasks or cells each have processes of their own.
pub fn is_job(pid: u32) -> bool {
    let arguments = arguments(pid);
    let name = name_of(pid);
    let mut words = arguments.iter().map(|word| base_name(word));
    let first = words.next().unwrap_or_default();
    match () {
        () if JOBS.contains(&first) || JOBS.contains(&&*name) => true,
        () if first == "buildkite-agent" => {
            words.any(|word| ["bootstrap", "kubernetes-bootstrap"].contains(&word))
        }
        () if first.starts_with("python") || first.starts_with("pypy") => {
            let mut words = words.take(3);
            words.any(|word| {
                [
                    "ansible-playbook",
                    "ansible",
                    "ipykernel_launcher",
                    "ipykernel",
                ]
                .contains(&word)
            })
        }
        () => ["ansible-playbook", "ansible"].contains(&first),
    }
}

/// Whether a process belongs to one task of Ansible: the module, or the shell that runs it.
fn is_of_task(arguments: &[String]) -> bool {
    let is_module = |word: &String| word.contains("/AnsiballZ_") || word.contains("ansible-tmp-");
    arguments.iter().any(is_module)
        || (is_one_shot_shell(arguments)
            && text_of(arguments).is_some_and(|text| {
                text.contains("python") && text.trim_end().ends_with("&& sleep 0")
            }))
}

/// The system of CI whose step is run by a shell with these arguments.
fn system_of_step(arguments: &[String]) -> Option<&'static str> {
    let (shell, rest) = arguments.split_first()?;
    if !SHELLS.contains(&base_name(shell)) {
        return None;
    }
    let script = rest.iter().find(|word| word.contains('/'))?;
    let (folder, name) = script.rsplit_once('/')?;
    let is_numbered = |stem: &str| {
        let number = name
            .strip_prefix(stem)
            .and_then(|rest| rest.strip_suffix(".sh"));
        number.is_some_and(|number| {
            !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())
        })
    };
    let (_, last) = folder.rsplit_once('/')?;
    match () {
        () if last == "_temp" => Some("GitHub Actions or Azure Pipelines"),
        () if folder.ends_with("/act/workflow") => Some("GitHub Actions, as act runs them,"),
        () if last.starts_with("durable-") || is_numbered("jenkins") => Some("Jenkins"),
        () if last == "agentTmp" && name.starts_with("custom_script") => Some("TeamCity"),
        () => None,
    }
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

#[cfg(test)]
mod tests {
    use super::*;

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
    fn steps_of_ci_are_known_by_their_scripts() {
        for (line, system) in [
            (
                "/usr/bin/bash -e /home/runner/work/_temp/1b-2c.sh",
                Some("GitHub Actions or Azure Pipelines"),
            ),
            (
                "bash --noprofile --norc -e -o pipefail /__w/_temp/1b.sh",
                Some("GitHub Actions or Azure Pipelines"),
            ),
            (
                "bash -e /var/run/act/workflow/0",
                Some("GitHub Actions, as act runs them,"),
            ),
            ("sh -xe /w/a@tmp/durable-1f/script.sh.copy", Some("Jenkins")),
            ("/bin/sh -xe /tmp/jenkins123456.sh", Some("Jenkins")),
            (
                "/bin/sh -e /opt/agent/temp/agentTmp/custom_script17",
                Some("TeamCity"),
            ),
            ("bash ./deploy.sh", None),
            ("bash /srv/jenkins.sh", None),
            ("bash", None),
            ("python3 /x/_temp/a.py", None),
        ] {
            let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
            assert_eq!(system_of_step(&words), system, "{line}");
        }
    }

    #[test]
    fn tasks_of_ansible_are_known_by_their_module_and_their_shell() {
        for (line, expected) in [
            (
                "python3|/root/.ansible/tmp/ansible-tmp-17/AnsiballZ_command.py",
                true,
            ),
            (
                "/bin/sh|-c|/usr/bin/python3 /t/ansible-tmp-1/AnsiballZ_command.py && sleep 0",
                true,
            ),
            ("/bin/sh|-c|/usr/bin/python3 && sleep 0", true),
            (
                "/bin/sh|-c|tenure acquire x && work; tenure release x",
                false,
            ),
            ("/bin/sh|-c|tenure acquire x && sleep 0", false),
            ("python3|job.py", false),
        ] {
            let words: Vec<String> = line.split('|').map(str::to_owned).collect();
            assert_eq!(is_of_task(&words), expected, "{line}");
        }
    }
}
