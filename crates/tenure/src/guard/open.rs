//! Where `tenure run` has its locks: the place that variables and configurations name.

use super::LockManager;
use super::children::PlaceForOthers;
use super::error::OpenError;
use crate::config::{self, Config};
use crate::inherited::{At, Saw};
use crate::place::{self, Why};
use std::path::{Path, PathBuf};
use std::sync::Arc;

impl LockManager {
    /// The locks in the default place of `tenure run`. The first of these that names a place counts:
    /// - `$TENURE_STORE`, a URL: `file:DIR` is a folder;
    /// - `$TENURE_DIR`, a folder;
    /// - `$TENURE_SCOPE`: `user`, `repo` or `machine`;
    /// - `dir`, `store` or `scope` of a `tenure.toml`: the one that `$TENURE_CONFIG` names, else the nearest
    ///   one from the working folder up; the user's (`~/.config/tenure/tenure.toml`), the machine's
    ///   (`/etc/tenure.toml`);
    /// - the user's own folder, `~/.local/state/tenure/locks`.
    ///
    /// The files are asked for the place alone: no key of `[lock."…"]` changes what a guard asks for.
    ///
    /// A folder that no variable names is used as [`FileStore::found`](crate::store::file::FileStore::found) says.
    ///
    /// **A URL of servers** (`etcd://…`, `etcds://…`) is never passed over for a folder, which would
    /// let two callers in: it is [`OpenError::Elsewhere`], with the URL. `LockManager::etcd` opens it
    /// (feature `etcd`). Its caller says which servers to trust and which password to send; a file that
    /// is merely found must not decide that.
    ///
    /// # Errors
    /// - [`OpenError::Config`] if a `tenure.toml` cannot be used or belongs to another user, a variable
    ///   cannot be a place, or no place is known.
    /// - [`OpenError::Elsewhere`] if the locks are kept on servers, or the URL is of no kind that is known.
    /// - [`OpenError::Folder`] if the working folder cannot be named.
    ///
    /// # Examples
    /// A program that also works where `TENURE_STORE` names servers:
    /// ```no_run
    /// use tenure::guard::{LockManager, OpenError};
    ///
    /// fn locks() -> Result<LockManager, Box<dyn std::error::Error>> {
    ///     match LockManager::open() {
    ///         # #[cfg(feature = "etcd")]
    ///         Err(OpenError::Elsewhere { url }) => {
    ///             use tenure::store::etcd::{Address, Credentials};
    ///             Ok(LockManager::etcd(&Address::parse(&url)?, &Credentials::from_environment()?)?)
    ///         }
    ///         other => Ok(other?),
    ///     }
    /// }
    /// # locks().expect("a place");
    /// ```
    pub fn open() -> Result<Self, OpenError> {
        let here = std::env::current_dir().map_err(|source| OpenError::Folder { source })?;
        let (flags, variables) = (
            place::Flags::default(),
            place::Variables::read(|| Some(&here)),
        );
        // A guard is native. Beside the records of a run around the program it is elsewhere.
        let variables = match &variables.around {
            Some(around) if around.records.is_some() => place::Variables::all(),
            _ => variables,
        };
        if variables.is_troubled {
            place::refuse_outside(&here)?;
        }
        let files = Files {
            here,
            config: variables.config()?,
            saw: variables.around.as_ref().map(|around| around.saw.clone()),
        };
        let (found, config) = place::find(&flags, &variables, &files)?;
        let folder = match found.at {
            At::Folder(folder) => folder,
            At::Url(url) => folder_of(&url)?,
        };
        Self::in_folder(&folder, found.named, |at| PlaceForOthers {
            is_machines: found.is_machines,
            config: config.map(|config| config.file.clone()),
            saw: files.saw.filter(|_| found.why == Why::Around),
            ..PlaceForOthers::at(at)
        })
    }
}

/// The files of a program that calls from its working folder.
struct Files {
    here: PathBuf,
    /// The one that `TENURE_CONFIG` names.
    config: Option<Arc<Config>>,
    /// What the run around the program saw.
    saw: Option<Saw>,
}

impl place::Files for Files {
    type Error = OpenError;

    fn here(&self) -> Result<&Path, OpenError> {
        Ok(&self.here)
    }

    fn named(&self) -> Result<Option<(Arc<Config>, bool)>, OpenError> {
        // Inside a run the variable counts only if that run did not see it. Then it is a word of the call.
        let is_typed = self.saw.is_some();
        Ok(self.config.clone().map(|config| (config, is_typed)))
    }

    fn found(&self) -> Result<Option<Arc<Config>>, OpenError> {
        Ok(Config::search(Some(&self.here))?.all()?.map(Arc::new))
    }

    fn unseen(&self) -> Result<Option<Arc<Config>>, OpenError> {
        let (Some(saw), None) = (&self.saw, &self.config) else {
            return Ok(None);
        };
        let (unseen, _) = Config::unseen(Some(&self.here), saw)?.beside();
        Ok(unseen.map(Arc::new))
    }
}

/// The folder that the URL of a store names.
fn folder_of(url: &str) -> Result<PathBuf, OpenError> {
    config::folder_of_url(url).ok_or_else(|| OpenError::Elsewhere {
        url: url.to_owned(),
    })
}
