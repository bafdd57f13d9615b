//! What a call of `agent` is about: which host, whose files, where they are, and how the hooks name this program.

use super::{Place, Surroundings};
use crate::args::{AgentAction, AgentArgs, AgentHost};
use crate::failure::Failure;
use clap::ValueEnum;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tenure_engine::config::Config;
use tenure_engine::repository::{main_checkout, work_tree};

/// For whom something is installed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reach {
    /// All who work in this work tree.
    Project,
    /// A single user, in all folders.
    User,
}

impl Reach {
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Project => "project",
            Self::User => "user",
        }
    }
}

/// The folders below which hosts keep their files.
#[derive(Debug, Clone)]
pub(crate) struct Roots {
    pub(crate) home: PathBuf,
    /// The work tree around the call, or the folder of the call if there is none.
    pub(crate) project: PathBuf,
    /// The main checkout of that work tree: Codex takes a project's hooks and its trust from there.
    pub(crate) main: PathBuf,
    pub(crate) claude: PathBuf,
    pub(crate) codex: PathBuf,
    /// Whether the folder of Claude Code is named by its variable.
    claude_is_named: bool,
}

impl Roots {
    /// The roots of a call in this folder.
    pub(crate) fn around(folder: &Path) -> Option<Self> {
        let home = std::env::var_os("HOME").map(PathBuf::from);
        let home = home.filter(|home| home.is_absolute())?;
        let project = work_tree(folder).unwrap_or_else(|| folder.to_owned());
        Some(Self::new(home, project))
    }

    /// The folder in which a session of Claude Code began, as it tells its hooks.
    pub(crate) fn project_of_claude() -> Option<PathBuf> {
        let named = std::env::var_os("CLAUDE_PROJECT_DIR").map(PathBuf::from);
        named.filter(|named| named.is_absolute())
    }

    /// With the folders that the hosts' own variables name, where they name one.
    fn new(home: PathBuf, project: PathBuf) -> Self {
        let named = |variable: &str, usual: &str| {
            let named = std::env::var_os(variable).map(PathBuf::from);
            let named = named.filter(|path| path.is_absolute());
            (named.is_some(), named.unwrap_or_else(|| home.join(usual)))
        };
        let (claude_is_named, claude) = named("CLAUDE_CONFIG_DIR", ".claude");
        let (_, codex) = named("CODEX_HOME", ".codex");
        let main = main_checkout(&project).unwrap_or_else(|| project.clone());
        Self {
            home,
            project,
            main,
            claude,
            codex,
            claude_is_named,
        }
    }

    /// The file in which Claude Code keeps its user's servers. Only Claude Code writes it, and it looks at its
    /// variable alone: a variable that names the usual folder leads to another file than none.
    pub(crate) fn claudes_own_file(&self) -> PathBuf {
        if self.claude_is_named {
            self.claude.join(".claude.json")
        } else {
            self.home.join(".claude.json")
        }
    }

    /// The folder from which on a file's folders have to be the caller's.
    pub(crate) fn above<'a>(&'a self, file: &'a Path) -> &'a Path {
        let mut around: Vec<_> = [&self.home, &self.project]
            .into_iter()
            .filter(|root| file.starts_with(root))
            .collect();
        around.sort_by_key(|root| root.as_os_str().len());
        let named = [&self.claude, &self.codex];
        let named = named.into_iter().find(|root| file.starts_with(root));
        around
            .pop()
            .or(named)
            .map_or_else(|| file.parent().unwrap_or(file), PathBuf::as_path)
    }
}

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
            host: typed.host.map_or_else(|| host_here(&roots), Ok)?,
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
fn host_here(roots: &Roots) -> Result<AgentHost, Failure> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let is_here = |host: &&AgentHost| {
        let folder = match host {
            AgentHost::Claude => &roots.claude,
            AgentHost::Codex => &roots.codex,
        };
        let mut programs = std::env::split_paths(&path).filter(|folder| folder.is_absolute());
        folder.is_dir() || programs.any(|folder| folder.join(host.word()).is_file())
    };
    let mut here = AgentHost::value_variants().iter().filter(is_here);
    let found = match (here.next(), here.next()) {
        (Some(host), None) => return Ok(*host),
        (None, _) => "none of them is found here",
        (Some(_), Some(_)) => "both are here",
    };
    let message = format!("HOST: name the host, claude or codex; {found}");
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
