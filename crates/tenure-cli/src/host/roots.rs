//! The folders below which hosts keep their files.

use crate::args::value::AgentHost;
use std::path::{Path, PathBuf};
use tenure_engine::repository::main_checkout;
use tenure_os::private::work_tree;

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

    pub(crate) fn flag(self) -> &'static str {
        match self {
            Self::Project => "--project",
            Self::User => "--user",
        }
    }
}

/// The folders below which hosts keep their files.
#[derive(Debug, Clone)]
pub(crate) struct Roots {
    pub(crate) home: PathBuf,
    /// The work tree around the call, or the folder of the call if there is none.
    pub(crate) project: PathBuf,
    /// The main checkout of that work tree, or the work tree itself.
    pub(crate) main: PathBuf,
}

impl Roots {
    /// The roots of a call in this folder.
    pub(crate) fn around(folder: &Path) -> Option<Self> {
        let home = Self::named_by("HOME")?;
        let project = work_tree(folder).unwrap_or_else(|| folder.to_owned());
        let main = main_checkout(&project).unwrap_or_else(|| project.clone());
        Some(Self {
            home,
            project,
            main,
        })
    }

    /// The folder of the user's files of a host.
    pub(crate) fn own(&self, host: AgentHost) -> PathBuf {
        Self::named(host).unwrap_or_else(|| self.home.join(host.table().files.folder))
    }

    /// The folder that the host's own variable names.
    pub(super) fn named(host: AgentHost) -> Option<PathBuf> {
        Self::named_by(host.table().files.variable)
    }

    /// The folder that a variable names, from the root on.
    pub(super) fn named_by(variable: &str) -> Option<PathBuf> {
        let named = std::env::var_os(variable).map(PathBuf::from);
        named.filter(|path| path.is_absolute())
    }

    /// The folder from which on a file's folders have to be the caller's.
    pub(crate) fn above(&self, file: &Path) -> PathBuf {
        let around = [&self.home, &self.project].into_iter();
        let around = around.filter(|root| file.starts_with(root));
        if let Some(root) = around.max_by_key(|root| root.as_os_str().len()) {
            return root.clone();
        }
        let mut own = AgentHost::all().map(|host| self.own(host));
        own.find(|root| file.starts_with(root))
            .unwrap_or_else(|| file.parent().unwrap_or(file).to_owned())
    }
}
