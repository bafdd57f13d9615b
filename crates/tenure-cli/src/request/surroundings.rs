//! What a call may know beside its words: its variables, its folder, its configuration. Each is read here, at
//! most once; folder and configuration only if the meaning of the words depends on them.
//!
//! The rest of `request` decides what follows from them.

use crate::args::Common;
use crate::exit::Exit;
use crate::failure::Failure;
use std::cell::OnceCell;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tenure_engine::config::Config;
use tenure_engine::place::{self, Files};

/// The folder of the audit.
const AUDIT_DIR: &str = "TENURE_AUDIT_DIR";

/// The variables that change what a call means. An empty one says nothing, unless it names a place.
#[derive(Debug, Default)]
pub(crate) struct Variables {
    /// Those that name a place. An empty one of these is a mistake.
    pub(crate) place: place::Variables,
    /// As it is written. An empty one is a mistake, too.
    audit_dir: Option<PathBuf>,
    pub(crate) profile: Option<String>,
    pub(crate) wait: Option<String>,
    /// The actor of a fleet's claim.
    pub(crate) actor: Option<String>,
    /// The CI run by which a session's caller is known.
    pub(crate) run_id: Option<String>,
    /// The lock that the run around this call is named after, and its fencing token.
    pub(crate) name: Option<String>,
    pub(crate) token: Option<String>,
    /// The shell of `run --shell`.
    pub(crate) shell: Option<OsString>,
}

impl Variables {
    fn read() -> Self {
        Self {
            place: place::Variables::read(),
            audit_dir: std::env::var_os(AUDIT_DIR).map(PathBuf::from),
            profile: text("TENURE_PROFILE"),
            wait: text("TENURE_WAIT"),
            actor: text("ACTOR"),
            run_id: text("GITHUB_RUN_ID"),
            name: text("TENURE_NAME"),
            token: text("TENURE_TOKEN"),
            shell: variable(if cfg!(windows) { "ComSpec" } else { "SHELL" }),
        }
    }

    /// The folder that a variable names for the audit.
    pub(super) fn audit_folder(&self) -> Result<Option<PathBuf>, Failure> {
        let written = self.audit_dir.as_deref();
        let folder = written.map(|folder| place::folder_in(AUDIT_DIR, folder));
        Ok(folder.transpose()?)
    }
}

/// The value of a variable, unless it is empty.
fn variable(name: &str) -> Option<OsString> {
    std::env::var_os(name).filter(|value| !value.is_empty())
}

/// The same, if it is text.
pub(crate) fn text(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// What a call may know.
#[derive(Debug, Default)]
pub(crate) struct Surroundings {
    pub(crate) variables: Variables,
    /// The configuration that the call names.
    given: Option<PathBuf>,
    folder: OnceCell<PathBuf>,
    named: OnceCell<Option<Arc<Config>>>,
    nearest: OnceCell<Option<Arc<Config>>>,
}

impl Surroundings {
    /// Of a call with these flags.
    pub(crate) fn of(common: &Common) -> Self {
        Self {
            variables: Variables::read(),
            given: common.config.clone(),
            ..Self::default()
        }
    }

    /// Of a call without any, in this folder.
    #[cfg(test)]
    pub(crate) fn bare(folder: &str) -> Self {
        let around = Self::default();
        around.folder.get_or_init(|| folder.into());
        around.nearest.get_or_init(|| None);
        around
    }

    /// Of a call without any, where the nearest configuration says this.
    #[cfg(test)]
    pub(crate) fn saying(config: Config) -> Self {
        let around = Self::default();
        around.folder.get_or_init(|| "/here".into());
        around.nearest.get_or_init(|| Some(Arc::new(config)));
        around
    }

    /// The folder in which the call was made.
    pub(crate) fn folder(&self) -> Result<&Path, Failure> {
        if let Some(folder) = self.folder.get() {
            return Ok(folder);
        }
        let folder = std::env::current_dir().map_err(|error| {
            Failure::new(
                Exit::General,
                "NO_CURRENT_FOLDER",
                format!("the current folder cannot be named: {error}"),
            )
        })?;
        Ok(self.folder.get_or_init(|| folder))
    }

    /// The path as an absolute one: the command may change its folder.
    pub(super) fn absolute(&self, path: &Path) -> Result<PathBuf, Failure> {
        if path.is_absolute() {
            return Ok(path.to_owned());
        }
        Ok(self.folder()?.join(path))
    }

    /// The configuration that the caller names, or that a run has passed to its command. The run passes the
    /// folder as well, which counts for more than the file.
    pub(super) fn named(&self) -> Result<Option<Arc<Config>>, Failure> {
        if let Some(named) = self.named.get() {
            return Ok(named.clone());
        }
        let path = match &self.given {
            Some(given) => Some(given.clone()),
            None => self.variables.place.config_file()?,
        };
        let config = path.map(|path| Config::named(&path)).transpose()?;
        Ok(self.named.get_or_init(|| config.map(Arc::new)).clone())
    }

    /// The configuration that is found from the folder of the call.
    pub(super) fn nearest(&self) -> Result<Option<Arc<Config>>, Failure> {
        if let Some(nearest) = self.nearest.get() {
            return Ok(nearest.clone());
        }
        let config = Config::search(self.folder()?)?;
        Ok(self.nearest.get_or_init(|| config.map(Arc::new)).clone())
    }

    /// The configuration that is named, else the nearest one; for settings that do not depend on a place.
    pub(crate) fn configuration(&self) -> Result<Arc<Config>, Failure> {
        if let Some(config) = self.named()? {
            return Ok(config);
        }
        Ok(self.nearest()?.unwrap_or_default())
    }
}

impl Files for Surroundings {
    type Error = Failure;

    fn here(&self) -> Result<&Path, Failure> {
        self.folder()
    }

    fn named(&self) -> Result<Option<(Arc<Config>, bool)>, Failure> {
        let named = Self::named(self)?;
        Ok(named.map(|config| (config, self.given.is_some())))
    }

    fn found(&self) -> Result<Option<Arc<Config>>, Failure> {
        self.nearest()
    }
}
