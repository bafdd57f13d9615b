//! Chooses the process that is the job of a call: what outlives the call and ends with the work. A hold that a call takes
//! which returns at once follows that process.
//!
//! The nearest process that lasts is not always it. A daemon (cron, sshd) outlives every job. The shell of a step in CI, of
//! a task of Ansible or of a notebook's cell ends long before the job does. So what stands above counts as well.

use super::owner::{
    Chosen, OwnerError, Runs, base_name, choose_owner, chosen, is_init, is_one_shot_shell,
    is_subshell, is_wrapper, run_by_shell,
};
use crate::shell::{After, after, only_calls};
use tenure_core::{Host, Process};
use tenure_os::process::{
    Stat, arguments, is_descendant_of, is_reached, name_of, parent_of_self, stat, upwards,
};

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
/// 2. Else the job is the process that lives as long as a job whose steps have processes of their own ([`is_job`]), where
///    nothing but the step itself stands between.
/// 3. Else it is the nearest ancestor that is no shell for one line, nor a script that only takes the lock for its
///    caller, unless that is a daemon, or the shell of one step.
///
/// Decision 0086 has the reasons.
///
/// # Errors
/// - [`OwnerError::NoJob`] if only a daemon outlives the call.
/// - [`OwnerError::NoJobOfSteps`] if only a step does.
/// - [`OwnerError::NoneFound`] as [`choose_owner`] says.
pub fn job_of_caller() -> Result<Chosen, OwnerError> {
    if cfg!(windows) {
        return choose_owner(None);
    }
    let mut found = JobSearch::default();
    for (pid, stat) in upwards(parent_of_self()) {
        if let Some(decided) = found.add(pid, &stat) {
            return decided;
        }
    }
    found.without_end()
}

/// Whether `owner`, which was recorded on `host`, makes this call itself. It is the calling process or its
/// parent, with nothing between the two but programs that run one command and end with it (`env`,
/// `timeout`, `sudo`), or a helper, whose text does nothing but call tenure. A sub-shell or another script between them
/// has a life of its own, and may call for itself. Where a process lives as long as a job, each step of that job calls for
/// it, and no script that the step starts. The host of an agent calls for each of its subagents, so it is known by the id or by the agent's key alone.
///
/// Only true where every link can be seen here and now; anything unknown is no proof.
pub fn is_caller(owner: &Process, host: &Host, here: &Host) -> bool {
    if Program::of(owner.pid).is_agent_host() {
        return false;
    }
    let own = std::process::id();
    let passes = |pid| {
        if pid == own {
            return true;
        }
        let arguments = arguments(pid);
        // A sub-shell of the script that took the lock shows the same text.
        let is_copy = || stat(pid).is_none_or(|stat| stat.is_copy());
        let is_helper =
            || text_of_script(pid, &arguments).is_some_and(|text| is_helper(&text)) && !is_copy();
        is_wrapper(&arguments) || is_helper()
    };
    is_reached(owner, host, here, passes)
        || (is_job(owner.pid)
            && is_descendant_of(owner, host, here)
            && job_of_caller().is_ok_and(|job| job.process == *owner))
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
struct JobSearch {
    /// The shells for one line between the call and what lasts.
    shells: Vec<(Chosen, After)>,
    /// The nearest process that lasts, and what it runs.
    lasting: Option<(Chosen, Vec<String>)>,
    /// Another one stands above it.
    is_deep: bool,
    /// The call is in a task of Ansible, whose processes all end with the task.
    in_task: bool,
    /// The last process was a copy that a shell had made of itself.
    copy: Option<(Chosen, Vec<String>)>,
    /// The script that takes the lock for its caller.
    helper: Option<String>,
}

impl JobSearch {
    /// Takes the next process above, and answers once it decides.
    fn add(&mut self, pid: u32, stat: &Stat) -> Option<Result<Chosen, OwnerError>> {
        let program = Program::of(pid);
        // A copy that has outlived its shell (`( … ) &`) is a process in its own right.
        let copy = self.copy.take();
        if let Some((copy, runs)) = &copy
            && *runs != program.arguments
            && self.lasting.is_none()
            && !self.in_task
        {
            self.lasting = Some((copy.clone(), runs.clone()));
        }
        if is_subshell(&program.arguments, stat) {
            self.copy = Some((chosen(pid, stat), program.arguments));
            return None;
        }
        if is_wrapper(&program.arguments) {
            return None;
        }
        match program.job() {
            // A worker for one task is a copy of the process that stays.
            Some(Job::Tasks) if stat.is_copy() => return None,
            // A process of a program's own pool.
            Some(Job::Cells) if stat.is_copy() => {}
            Some(job) => return Some(Ok(self.below(job, chosen(pid, stat)))),
            None => {}
        }
        if is_of_task(&program.arguments) {
            self.in_task = true;
            // What runs a module from its stdin shows nothing else.
            self.lasting.take_if(|(_, runs)| runs.len() == 1);
            return None;
        }
        if program.is_agent_host() {
            return Some(Ok(match self.lasting.take() {
                Some((lasting, _)) => self.shell(&[After::Work]).unwrap_or(lasting),
                None => chosen(pid, stat),
            }));
        }
        if program.is_daemon(pid) {
            return Some(self.below_daemon(pid, program.name));
        }
        let arguments = program.arguments;
        let is_line = is_one_shot_shell(&arguments);
        if self.lasting.is_some() || self.in_task {
            self.is_deep |= !is_line && !arguments.is_empty();
            return None;
        }
        let text = if is_line {
            text_of(&arguments).map(str::to_owned)
        } else if system_of_step(&arguments).is_some() {
            None
        } else {
            text_of_script(pid, &arguments)
        };
        let after = match text.map_or(After::Unseen, |text| self.after_call(&text)) {
            After::Apart => {
                // The copy of the shell that goes on in the background is the job, and may outlive its shell.
                if let Some((copy, _)) = copy {
                    self.shells.push((copy, After::Work));
                    return None;
                }
                After::Work
            }
            seen => seen,
        };
        // A helper that only takes the lock for its caller ends with the call, as such a line does.
        if !is_line && after == After::Nothing {
            self.helper = program_of(&arguments).map(|script| base_name(script).to_owned());
            return None;
        }
        if is_line {
            let is_first = pid == 1 || stat.parent == 0;
            if is_first && after != After::Nothing {
                return Some(Ok(chosen(pid, stat)));
            }
            self.shells.push((chosen(pid, stat), after));
            return None;
        }
        // On macOS not every process shows its arguments, and what shows none may be a shell for one line.
        if !(cfg!(target_os = "macos") && arguments.is_empty()) {
            self.lasting = Some((chosen(pid, stat), arguments));
        }
        None
    }

    /// What a text of shell does after it has taken a lock, itself or by the helper.
    fn after_call(&self, text: &str) -> After {
        match (after(text, "tenure", "acquire"), &self.helper) {
            (After::Unseen, Some(helper)) => after(text, helper, ""),
            (seen, _) => seen,
        }
    }

    /// The nearest shell of which one of these is true.
    fn shell(&self, wanted: &[After]) -> Option<Chosen> {
        let mut shells = self.shells.iter();
        let found = shells.find(|(_, after)| wanted.contains(after));
        found.map(|(shell, _)| shell.clone())
    }

    /// The answer below the process of a job. What a step starts and what lasts longer than this call owns its holds
    /// as everywhere; the step itself does not.
    fn below(&mut self, job: Job, process: Chosen) -> Chosen {
        if let Some(shell) = self.shell(&[After::Work]) {
            return shell;
        }
        match self.lasting.take() {
            Some((lasting, runs)) if !self.is_deep => match job {
                Job::Steps => process,
                Job::Cells if run_by_shell(&runs) == Some(Runs::Input) => process,
                Job::Cells | Job::Tasks => lasting,
            },
            Some((lasting, _)) => lasting,
            None => process,
        }
    }

    /// The answer below a daemon.
    fn below_daemon(&mut self, pid: u32, daemon: String) -> Result<Chosen, OwnerError> {
        if self.lasting.is_some() || self.in_task {
            return std::mem::take(self).without_end();
        }
        self.shell(&[After::Work, After::Unseen])
            .ok_or(OwnerError::NoJob { daemon, pid })
    }

    /// The answer where nothing above decides.
    fn without_end(self) -> Result<Chosen, OwnerError> {
        if let Some(shell) = self.shell(&[After::Work]) {
            return Ok(shell);
        }
        match self.lasting {
            Some((lasting, runs)) => match system_of_step(&runs) {
                Some(system) => Err(OwnerError::NoJobOfSteps { system }),
                None => Ok(lasting),
            },
            None if self.in_task => Err(OwnerError::NoJobOfSteps { system: "Ansible" }),
            None => Err(OwnerError::NoneFound),
        }
    }
}

/// What a job that one process lives through is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Job {
    /// Steps of CI: each child is one.
    Steps,
    /// Cells of a notebook: a shell that reads a cell from its stdin is one.
    Cells,
    /// Tasks of Ansible: each is a copy of the process, with a module below it.
    Tasks,
}

/// Whether this process lives exactly as long as a job whose steps, tasks or cells each have processes of their own.
pub fn is_job(pid: u32) -> bool {
    Program::of(pid).job().is_some()
}

/// What a process shows of the program that it runs.
struct Program {
    /// What it calls itself.
    name: String,
    /// What it was started with.
    arguments: Vec<String>,
}

impl Program {
    fn of(pid: u32) -> Self {
        Self {
            name: name_of(pid),
            arguments: arguments(pid),
        }
    }

    fn argument(&self, at: usize) -> &str {
        let word = self.arguments.get(at);
        word.map_or("", |word| base_name(word))
    }

    /// The kind of job that it lives through, if it lives exactly as long as one.
    fn job(&self) -> Option<Job> {
        const TASKS: [&str; 2] = ["ansible-playbook", "ansible"];
        const CELLS: [&str; 3] = ["ipykernel_launcher", "ipykernel", "xpython"];
        let first = self.argument(0);
        let runs = program_of(&self.arguments).map_or("", base_name);
        let is_called = |names: &[&str]| names.contains(&first) || names.contains(&runs);
        match () {
            () if JOBS.contains(&first) || JOBS.contains(&&*self.name) => Some(Job::Steps),
            () if first == "buildkite-agent" => ["bootstrap", "kubernetes-bootstrap"]
                .contains(&self.argument(1))
                .then_some(Job::Steps),
            () if is_called(&TASKS) => Some(Job::Tasks),
            () if is_called(&CELLS) => Some(Job::Cells),
            () => None,
        }
    }

    /// Whether it starts jobs and outlives each of them.
    fn is_daemon(&self, pid: u32) -> bool {
        let first = self.argument(0);
        let applet = self.arguments.get(1).filter(|_| first == "busybox");
        // A daemon may show what it does: `sshd: user@notty`.
        let called = first.split([':', ' ']).next().unwrap_or(first);
        let names = [&*self.name, called, applet.map_or("", String::as_str)];
        (pid == 1 && is_init(&self.arguments)) || names.iter().any(|name| DAEMONS.contains(name))
    }

    /// Whether it is the host of a coding agent, by its name or by the package that a runtime runs.
    fn is_agent_host(&self) -> bool {
        let mut words = self.arguments.iter().take(2);
        let is_host = |word: &String| {
            let package = word
                .split_once("node_modules/")
                .map_or("", |(_, package)| package);
            let mut parts = package.split('/').chain([base_name(word)]);
            parts.any(|part| AGENT_HOSTS.contains(&part))
        };
        AGENT_HOSTS.contains(&&*self.name) || words.any(is_host)
    }
}

/// The script or module that an interpreter runs. None for a text in its arguments, and for what it reads from stdin.
fn program_of(arguments: &[String]) -> Option<&str> {
    match run_by_shell(arguments) {
        Some(Runs::Script(script)) => return Some(script),
        Some(Runs::Text(_) | Runs::Input) => return None,
        None => {}
    }
    let (first, rest) = arguments.split_first()?;
    let is_python = base_name(first).starts_with("py");
    let mut words = rest.iter().map(String::as_str);
    while let Some(word) = words.next() {
        match word {
            "-m" if is_python => return words.next(),
            "-W" | "-X" if is_python => drop(words.next()),
            "-c" => return None,
            option if option.starts_with('-') => {}
            script => return Some(script),
        }
    }
    None
}

/// Whether a process belongs to one task of Ansible: the module, or the shell that runs it.
fn is_of_task(arguments: &[String]) -> bool {
    let is_module = |script: &str| base_name(script).starts_with("AnsiballZ_");
    let is_line_of_task = |text: &str| {
        // With pipelining the interpreter reads the module from its stdin.
        let before = text.trim_end().strip_suffix("&& sleep 0").map(str::trim);
        before.is_some_and(|before| {
            let mut words = before.split_ascii_whitespace().rev();
            let is_python = words
                .next()
                .is_some_and(|last| base_name(last).starts_with("python"))
                && words.all(|word| word.contains('='));
            is_python || before.contains("AnsiballZ_") || before.contains("BECOME-SUCCESS-")
        })
    };
    program_of(arguments).is_some_and(is_module)
        || (is_one_shot_shell(arguments) && text_of(arguments).is_some_and(is_line_of_task))
}

/// The system of CI whose step is this script, by the name that the system gives it.
fn system_of_step(arguments: &[String]) -> Option<&'static str> {
    let (folder, name) = program_of(arguments)?.rsplit_once('/')?;
    let folder_name = folder.rsplit('/').next()?;
    let (stem, ending) = name.rsplit_once('.').unwrap_or((name, ""));
    let is_hex = |text: &str| {
        !text.is_empty()
            && text
                .bytes()
                .all(|byte| byte.is_ascii_hexdigit() || byte == b'-')
    };
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let is_numbered = |text: &str, before: &str| text.strip_prefix(before).is_some_and(is_number);
    match () {
        () if folder_name == "_temp" && is_hex(stem) && !ending.is_empty() => {
            Some("GitHub Actions or Azure Pipelines")
        }
        () if folder.ends_with("/act/workflow") && is_number(stem.trim_end_matches(".sh")) => {
            Some("GitHub Actions, as act runs them,")
        }
        () if folder_name.strip_prefix("durable-").is_some_and(is_hex)
            && name.starts_with("script.sh") =>
        {
            Some("Jenkins")
        }
        () if is_numbered(stem, "jenkins") => Some("Jenkins"),
        () if folder_name == "agentTmp" && is_numbered(name, "custom_script") => Some("TeamCity"),
        () => None,
    }
}

/// Whether a script does nothing but take a lock for its caller, keep it or give it back.
fn is_helper(text: &str) -> bool {
    only_calls(text, "tenure", &["acquire", "release", "heartbeat"])
}

/// The text of the script that a shell runs, if it can be read.
#[cfg(unix)]
fn text_of_script(pid: u32, arguments: &[String]) -> Option<String> {
    /// Scripts that only take a lock are short.
    const LONGEST: u64 = 16 * 1024;
    let Some(Runs::Script(script)) = run_by_shell(arguments) else {
        return None;
    };
    // Relative to where the script was started, which is where its shell still is in most cases.
    let path = std::path::Path::new(&format!("/proc/{pid}/cwd")).join(script);
    // Whatever lies there now, nothing waits for it.
    tenure_os::regular::text(&path, LONGEST).ok()
}

#[cfg(not(unix))]
fn text_of_script(_: u32, _: &[String]) -> Option<String> {
    None
}

/// The text of `sh -c TEXT`.
fn text_of(arguments: &[String]) -> Option<&str> {
    match run_by_shell(arguments) {
        Some(Runs::Text(text)) => Some(text),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_of_a_shell_is_found() {
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

    fn words(line: &str) -> Vec<String> {
        line.split('|').map(str::to_owned).collect()
    }

    #[test]
    fn steps_of_ci_are_known_by_their_scripts() {
        let github = Some("GitHub Actions or Azure Pipelines");
        for (line, system) in [
            ("/usr/bin/bash|-e|/home/runner/work/_temp/1b-2c.sh", github),
            (
                "bash|--noprofile|--norc|-e|-o|pipefail|/__w/_temp/1b.sh",
                github,
            ),
            ("python3|/__w/_temp/1b.py", github),
            (
                "bash|-e|/var/run/act/workflow/0",
                Some("GitHub Actions, as act runs them,"),
            ),
            ("sh|-xe|/w/a@tmp/durable-1f/script.sh.copy", Some("Jenkins")),
            ("/bin/sh|-xe|/tmp/jenkins123456.sh", Some("Jenkins")),
            (
                "/bin/sh|-e|/opt/agent/temp/agentTmp/custom_script17",
                Some("TeamCity"),
            ),
            ("bash|./deploy.sh", None),
            ("bash|/srv/jenkins.sh", None),
            ("bash", None),
            ("bash|/srv/_temp/deploy.sh", None),
            ("bash|job.sh|/mnt/_temp/1b.sh", None),
            ("bash|job.sh|/var/lib/durable-1f/script.sh", None),
            ("bash|/var/lib/durable-store/job.sh", None),
        ] {
            assert_eq!(system_of_step(&words(line)), system, "{line}");
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
            ("/bin/sh|-c|PATH=/bin A=b /usr/bin/python3 && sleep 0", true),
            (
                "/bin/sh|-c|sudo -n sh -c 'echo BECOME-SUCCESS-x ; /usr/bin/python3' && sleep 0",
                true,
            ),
            (
                "/bin/sh|-c|tenure acquire x && work; tenure release x",
                false,
            ),
            ("/bin/sh|-c|tenure acquire x && sleep 0", false),
            (
                "/bin/sh|-c|python3 --version && tenure acquire x && sleep 0",
                false,
            ),
            ("bash|job.sh|--keep|ansible-tmp-dir", false),
            ("bash|my-ansible-tmp-files/job.sh", false),
            ("python3|job.py", false),
        ] {
            assert_eq!(is_of_task(&words(line)), expected, "{line}");
        }
    }

    #[test]
    fn job_is_known_by_what_its_process_runs() {
        for (line, job) in [
            ("/r/bin/Runner.Worker|spawnclient|1", Some(Job::Steps)),
            ("buildkite-agent|bootstrap", Some(Job::Steps)),
            ("buildkite-agent|start", None),
            (
                "python3|/usr/bin/ansible-playbook|site.yml",
                Some(Job::Tasks),
            ),
            ("python3|-m|ipykernel_launcher|-f|k.json", Some(Job::Cells)),
            (
                "/opt/py/bin/python3.12|-Xfrozen_modules=off|-m|ipykernel_launcher",
                Some(Job::Cells),
            ),
            ("python3|engine.py|ansible", None),
            ("python3|-m|pytest|ansible", None),
            ("python3|-c|ansible", None),
            ("bash|Runner.Worker", None),
        ] {
            let program = Program {
                name: String::new(),
                arguments: words(line),
            };
            assert_eq!(program.job(), job, "{line}");
        }
    }
}
