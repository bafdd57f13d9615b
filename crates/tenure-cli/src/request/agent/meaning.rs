//! What a call of `agent` is about: which host, whose files, where they are, and how the hooks name this program.

use super::{AgentAction, AgentArgs};
use crate::args::value::AgentHost;
use crate::failure::Failure;
use crate::host::{Reach, Roots};
use crate::request::{Place, Surroundings};
use std::path::Path;
use std::sync::Arc;
use tenure_engine::config::Config;
use tenure_os::private::work_tree;
use tenure_store::advice::{self, on_path};

/// A call of `agent`.
#[derive(Debug)]
pub(crate) struct Agent {
    pub(crate) action: AgentAction,
    pub(crate) host: AgentHost,
    pub(crate) reach: Reach,
    pub(crate) roots: Roots,
    pub(crate) dry_run: bool,
    /// Where the locks are, or why that is not known.
    pub(crate) place: Result<Place, Failure>,
    /// What the configuration says, or why it cannot be used.
    pub(crate) config: Result<Arc<Config>, Failure>,
}

impl Agent {
    pub(crate) fn of(typed: &AgentArgs, around: &Surroundings) -> Result<Self, Failure> {
        let installs = matches!(typed.action, AgentAction::Install | AgentAction::Uninstall);
        if !installs && (typed.user || typed.project || typed.dry_run) {
            return Err(Failure::bad_arguments(
                "--user, --project and --dry-run belong to install and uninstall; status and probe look at \
                 everything and write nothing",
            ));
        }
        let here = around.folder()?;
        let tree = work_tree(here);
        // Without a repository nobody else works here.
        let is_users = typed.user || (tree.is_none() && !typed.project);
        let roots = Roots::around(here).ok_or_else(|| {
            Failure::bad_arguments("HOME names no folder, and hosts keep their files there")
        })?;
        for path in [&roots.home, &roots.project] {
            named_in_text(path)?;
        }
        Ok(Self {
            action: typed.action,
            host: typed
                .host
                .map_or_else(|| host_here(&roots, typed.action), Ok)?,
            reach: if is_users {
                Reach::User
            } else {
                Reach::Project
            },
            roots,
            dry_run: typed.dry_run,
            place: Place::of(&typed.common, around),
            config: around.configuration(),
        })
    }
}

/// The host that is there: its program is on the PATH, or its user has its folder.
fn host_here(roots: &Roots, action: AgentAction) -> Result<AgentHost, Failure> {
    let is_here = |host: &AgentHost| roots.own(*host).is_dir() || on_path(host.word()).is_some();
    let mut here = AgentHost::all().filter(is_here);
    let found = match (here.next(), here.next()) {
        (Some(host), None) => return Ok(host),
        (None, _) => "no host of agents is found here",
        (Some(_), Some(_)) => "claude and codex are both here",
    };
    let line = advice::line(["tenure", "agent", &action.word(), "claude"]);
    let message = format!("{found}; name one: `{line}`, or codex");
    Err(Failure::bad_arguments(message))
}

/// Refuses a path that cannot stand in a file of text.
fn named_in_text(path: &Path) -> Result<(), Failure> {
    match path.to_str() {
        Some(_) => Ok(()),
        None => Err(Failure::bad_arguments(format!(
            "{} is no UTF-8 text, as the files of hosts are",
            path.display()
        ))),
    }
}
