//! Where files and folders of tenure's are looked for: the configurations of a project, of the user and of the machine, and the
//! user's own folders. What stands in a configuration is `config`'s.

use crate::repository;
use std::convert::Infallible;
use std::path::{Path, PathBuf};
pub use tenure_store::file::MACHINE_FILE;

/// The name of the configuration file.
pub const FILE: &str = "tenure.toml";

pub(crate) fn is_machines(file: &Path) -> bool {
    cfg!(unix) && file == Path::new(MACHINE_FILE)
}

/// Whether a file says something for all folders: it is the user's or the machine's, and no project's.
pub fn is_for_all_folders(file: &Path) -> bool {
    is_machines(file) || user_file().is_some_and(|path| path == file)
}

/// Asks for the file of each folder from `start` upwards, until there is one.
pub(crate) fn upwards<T, E>(
    start: &Path,
    at: impl Fn(&Path) -> Result<Option<T>, E>,
) -> Result<Option<T>, E> {
    let mut next = Some(start.to_owned());
    let mut may_be_linked = true;
    while let Some(folder) = next {
        let path = folder.join(FILE);
        if !is_machines(&path)
            && let Some(found) = at(&path)?
        {
            return Ok(Some(found));
        }
        let main = if may_be_linked {
            match repository::tree_at(&folder) {
                repository::Tree::None => None,
                repository::Tree::Main | repository::Tree::LinkedToUnknown => {
                    may_be_linked = false;
                    None
                }
                repository::Tree::LinkedTo(main) => {
                    may_be_linked = false;
                    Some(main)
                }
            }
        } else {
            None
        };
        next = main.or_else(|| folder.parent().map(Path::to_owned));
    }
    Ok(None)
}

/// The nearest file from `start` upwards, unless it is the user's. What stands in it is not read.
pub fn project(start: &Path) -> Option<PathBuf> {
    let there = |path: &Path| {
        let is_there = path.symlink_metadata().is_ok();
        Ok::<_, Infallible>(is_there.then(|| path.to_owned()))
    };
    let nearest = upwards(start, there).unwrap_or_default();
    nearest.filter(|file| !is_for_all_folders(file))
}

/// The folder that a variable names by its whole path.
pub(crate) fn absolute(variable: &str) -> Option<PathBuf> {
    std::env::var_os(variable)
        .map(PathBuf::from)
        .filter(|path| path.is_absolute())
}

/// A folder of the user's: what `variable` names, else `rest` below the home folder.
fn of_user(variable: &str, rest: &str) -> Option<PathBuf> {
    absolute(variable).or_else(|| absolute("HOME").map(|home| home.join(rest)))
}

/// The user's configuration.
pub fn user_file() -> Option<PathBuf> {
    let folder = if cfg!(windows) {
        absolute("APPDATA")
    } else {
        of_user("XDG_CONFIG_HOME", ".config")
    };
    folder.map(|folder| folder.join("tenure").join(FILE))
}

/// Where a user's programs keep their state, below the home.
pub(crate) const STATE_OF_HOME: &str = ".local/state";

/// Where this user's programs keep their state.
pub(crate) fn state_folder() -> Option<PathBuf> {
    if cfg!(windows) {
        absolute("LOCALAPPDATA")
    } else {
        of_user("XDG_STATE_HOME", STATE_OF_HOME)
    }
}

/// The folder of the locks that all users of the machine share, unless the machine's configuration names one.
pub const MACHINE_FOLDER: &str = "/var/lib/tenure/locks";
