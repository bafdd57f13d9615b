//! The user's servers of Claude Code: it keeps them in a file that it writes all the time, so this program asks
//! `claude mcp` to change them, and only reads that file.
//!
//! Where there is no `claude` yet, the line for later is the answer.

use super::files::text_of;
use super::hosts::NAME;
use super::install::Task;
use crate::request::Roots;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use tenure_engine::clock::{instant, nap, since};
use tenure_engine::printed::quoted_for_unix;

/// How long `claude` may take. It is a large program, and a machine may be busy.
const PATIENCE: Duration = Duration::from_secs(30);
const PAUSE: Duration = Duration::from_millis(20);

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

/// Whether the user has the server; `None` if the file cannot be read.
pub(super) fn is_registered(roots: &Roots) -> Option<bool> {
    let Some(text) = text_of(&roots.claudes_own_file()).ok()? else {
        return Some(false);
    };
    let document: Value = serde_json::from_str(&text).ok()?;
    let servers = document.get("mcpServers");
    Some(servers.is_some_and(|servers| servers.get(NAME).is_some()))
}

/// The first `claude` of the PATH. A folder that is not named from the root on may be any project's.
pub(super) fn program() -> Option<PathBuf> {
    use std::os::unix::fs::PermissionsExt;
    let path = std::env::var_os("PATH")?;
    let mut found = std::env::split_paths(&path)
        .filter(|folder| folder.is_absolute())
        .map(|folder| folder.join("claude"));
    found.find(|program| {
        program
            .metadata()
            .is_ok_and(|facts| facts.is_file() && facts.permissions().mode() & 0o111 != 0)
    })
}

/// Has the server registered, or removed.
pub(super) fn server(task: Task, tenure: &str, roots: &Roots, dry_run: bool) -> Server {
    let words: Vec<&str> = match task {
        Task::Install => vec!["mcp", "add", "--scope", "user", NAME, "--", tenure, "mcp"],
        Task::Uninstall => vec!["mcp", "remove", "--scope", "user", NAME],
    };
    let line = words.iter().map(|word| quoted_for_unix(word));
    let line = format!("claude {}", line.collect::<Vec<_>>().join(" "));
    let is_there = is_registered(roots);
    match (task, is_there) {
        (Task::Install, Some(true)) => {
            return Server::new("unchanged", format!("the server `{NAME}` is registered"));
        }
        (Task::Uninstall, Some(false)) => {
            return Server::new("unchanged", format!("no server `{NAME}` is registered"));
        }
        _ => {}
    }
    let Some(program) = program() else {
        return Server::new(
            "later",
            format!("no claude is on the PATH; run this once it is there: {line}"),
        );
    };
    if dry_run {
        return Server::new("would", format!("would run: {line}"));
    }
    match run(&program, &words, &roots.home) {
        Ok(()) => Server::new("changed", format!("ran: {line}")),
        Err(why) => Server::new("failed", format!("`{line}` failed: {why}; run it by hand")),
    }
}

/// Runs `claude`, and does not wait for ever.
fn run(program: &Path, words: &[&str], folder: &Path) -> Result<(), String> {
    let mut child = Command::new(program)
        .args(words)
        // In a project it would look at that project's settings, too.
        .current_dir(folder)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|error| error.to_string())?;
    let begun = instant();
    while since(begun) < PATIENCE {
        match child.try_wait().map_err(|error| error.to_string())? {
            Some(status) if status.success() => return Ok(()),
            Some(status) => return Err(status.to_string()),
            None => nap(PAUSE),
        }
    }
    end(&mut child);
    Err("it did not end within 30 s".to_owned())
}

fn end(child: &mut Child) {
    let _ = child.kill();
    let _ = child.wait();
}
