//! The user's servers of a host that keeps them in a file which it writes all the time: the host's own program changes them
//! (`claude mcp`), and this one only reads that file.
//!
//! Where there is no such program yet, the line for later is the answer.

use super::ask;
use super::files::text_of;
use super::install::Task;
use crate::args::value::AgentHost;
use crate::failure::Failure;
use crate::host::{NAME, Reach, Roots, is_our_server, is_started};
use crate::render::clean_path;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use tenure_store::advice::{self, is_program};

/// How long the host's program may take. It is a large program, and a machine may be busy.
const PATIENCE: Duration = Duration::from_secs(30);

/// What became of the server.
#[derive(Debug)]
pub(super) struct Server {
    change: &'static str,
    pub(super) message: String,
}

impl Server {
    fn new(change: &'static str, message: impl Into<String>) -> Self {
        Self {
            change,
            message: message.into(),
        }
    }

    pub(super) fn is_failed(&self) -> bool {
        self.change == "failed"
    }

    pub(super) fn json(&self) -> Value {
        json!({ "change": self.change, "message": self.message })
    }
}

/// What the user has under the server's name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Registered {
    Nothing,
    /// The server, by a program that is there.
    Ours,
    /// The server, by a path that leads to no program any more, or with other words.
    Stale,
    /// The server of another program.
    Another,
}

/// The file that only the host writes, where the servers of this reach stand in one.
pub(super) fn file_of(host: AgentHost, reach: Reach, roots: &Roots) -> Option<PathBuf> {
    let file = host.table().files.users_servers?;
    (reach == Reach::User).then(|| file(roots))
}

/// What the user has under the server's name; `None` if the file cannot be read.
pub(super) fn registered(file: &Path, tenure: &str) -> Option<Registered> {
    let Some(text) = text_of(file).ok()? else {
        return Some(Registered::Nothing);
    };
    let document: Value = serde_json::from_str(&text).ok()?;
    let servers = document.get("mcpServers");
    let Some(server) = servers.and_then(|servers| servers.get(NAME)) else {
        return Some(Registered::Nothing);
    };
    if !is_our_server(server) {
        return Some(Registered::Another);
    }
    let command = server.get("command").and_then(Value::as_str);
    let is_found = command.is_some_and(|command| {
        [tenure, NAME].contains(&command)
            || (command.starts_with('/') && is_program(Path::new(command)))
    });
    Some(if is_found && is_started(server) {
        Registered::Ours
    } else {
        Registered::Stale
    })
}

/// Refuses an installation beside another program's server of this name.
pub(super) fn refuse_another(file: &Path) -> Result<(), Failure> {
    if registered(file, NAME) != Some(Registered::Another) {
        return Ok(());
    }
    let file = clean_path(file);
    Err(Failure::bad_arguments(format!(
        "{file} is left as it is: its server `{NAME}` is another program"
    )))
}

/// Has the server registered, or removed.
pub(super) fn server(
    task: Task,
    (host, file): (AgentHost, &Path),
    tenure: &str,
    roots: &Roots,
    dry_run: bool,
) -> Server {
    let host = host.word();
    let add = ["mcp", "add", "--scope", "user", NAME, "--", tenure, "mcp"];
    let remove = ["mcp", "remove", "--scope", "user", NAME];
    let calls: Vec<&[&str]> = match (task, registered(file, tenure)) {
        (Task::Install, Some(Registered::Ours)) => {
            return Server::new("unchanged", format!("the server `{NAME}` is registered"));
        }
        (Task::Install, Some(Registered::Another)) => {
            let message = format!("the server `{NAME}` of this user is another program");
            return Server::new("failed", message);
        }
        (Task::Uninstall, Some(Registered::Nothing)) => {
            return Server::new("unchanged", format!("no server `{NAME}` is registered"));
        }
        (Task::Uninstall, Some(Registered::Another)) => {
            let message = format!("the server `{NAME}` stays: it is another program");
            return Server::new("unchanged", message);
        }
        (Task::Install, Some(Registered::Stale)) => vec![&remove, &add],
        (Task::Install, _) => vec![&add],
        (Task::Uninstall, _) => vec![&remove],
    };
    let lines = calls
        .iter()
        .map(|words| advice::line(std::iter::once(host).chain(words.iter().copied())));
    let line = lines.collect::<Vec<_>>().join(" && ");
    let Some(program) = advice::on_path(host) else {
        return Server::new(
            "later",
            format!("no {host} is on the PATH; run this once it is there: {line}"),
        );
    };
    if dry_run {
        return Server::new("would", format!("would run: {line}"));
    }
    let ran = calls
        .iter()
        .try_for_each(|words| run(&program, words, &roots.home));
    // A call may fail because another program was faster, or after its work.
    let wanted = match task {
        Task::Install => Registered::Ours,
        Task::Uninstall => Registered::Nothing,
    };
    match ran {
        Err(why) if registered(file, tenure) != Some(wanted) => {
            Server::new("failed", format!("`{line}` failed: {why}; run it by hand"))
        }
        _ => Server::new("changed", format!("ran: {line}")),
    }
}

/// Runs the host's program. In a project it would look at that project's settings, too.
fn run(program: &Path, words: &[&str], folder: &Path) -> Result<(), String> {
    let mut command = Command::new(program);
    ask::answer(command.args(words).current_dir(folder), "", PATIENCE).map(drop)
}
