//! The user's servers of Claude Code: it keeps them in a file that it writes all the time, so this program asks
//! `claude mcp` to change them, and only reads that file.
//!
//! Where there is no `claude` yet, the line for later is the answer.

use super::ask;
use super::files::text_of;
use super::install::Task;
use crate::failure::Failure;
use crate::host::{NAME, Roots, is_our_server, is_started, servers_file_of_claude};
use crate::render::clean_path;
use serde_json::{Value, json};
use std::path::Path;
use std::process::Command;
use std::time::Duration;
use tenure_store::advice::{self, is_program};

/// How long `claude` may take. It is a large program, and a machine may be busy.
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

/// What the user has under the server's name; `None` if the file cannot be read.
pub(super) fn registered(roots: &Roots, tenure: &str) -> Option<Registered> {
    let Some(text) = text_of(&servers_file_of_claude(roots)).ok()? else {
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
pub(super) fn refuse_another(roots: &Roots) -> Result<(), Failure> {
    if registered(roots, NAME) != Some(Registered::Another) {
        return Ok(());
    }
    let file = clean_path(servers_file_of_claude(roots));
    Err(Failure::bad_arguments(format!(
        "{file} is left as it is: its server `{NAME}` is another program"
    )))
}

/// Has the server registered, or removed.
pub(super) fn server(task: Task, tenure: &str, roots: &Roots, dry_run: bool) -> Server {
    let add = ["mcp", "add", "--scope", "user", NAME, "--", tenure, "mcp"];
    let remove = ["mcp", "remove", "--scope", "user", NAME];
    let calls: Vec<&[&str]> = match (task, registered(roots, tenure)) {
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
        .map(|words| advice::line(std::iter::once("claude").chain(words.iter().copied())));
    let line = lines.collect::<Vec<_>>().join(" && ");
    let Some(program) = advice::on_path("claude") else {
        return Server::new(
            "later",
            format!("no claude is on the PATH; run this once it is there: {line}"),
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
        Err(why) if registered(roots, tenure) != Some(wanted) => {
            Server::new("failed", format!("`{line}` failed: {why}; run it by hand"))
        }
        _ => Server::new("changed", format!("ran: {line}")),
    }
}

/// Runs `claude`. In a project it would look at that project's settings, too.
fn run(program: &Path, words: &[&str], folder: &Path) -> Result<(), String> {
    let mut command = Command::new(program);
    ask::answer(command.args(words).current_dir(folder), "", PATIENCE).map(drop)
}
