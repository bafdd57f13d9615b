//! The lock that stands for a path: a name that is derived from where the path leads.
//!
//! The name is the same for all callers that mean the same file, whichever links they came by, whichever folder they
//! stand in, and whether or not the file exists yet. It ends in 128 bits of a hash, so two files never share a name by
//! chance. In front of them stands the file's own name, as far as a lock's name has room for it, for people who look
//! at a folder of locks. A claim on such a lock says the whole path ([`tenure_core::Holder::path`]).
//!
//! A file with two hard links has two names, and so two locks. Where the lock is kept follows from the target's
//! folder, and not from the caller's ([`PathLock::folder`]); `place` decides.

use crate::repository::{self, RepositoryError};
use hmac_sha256::Hash as Sha256;
use std::ffi::OsStr;
use std::io;
use std::path::{Component, Path, PathBuf};
use tenure_core::LockName;
use tenure_store::printed::hex;
pub use tenure_store::printed::{called, is_path};

/// What the name of every such lock begins with.
const BEGIN: &str = "path=";

/// How much of the file's own name is in the lock's.
const SHOWN_MAX: usize = 64;

/// How many links are followed.
const LINKS_MAX: u32 = 40;

/// The callers that mean the same lock by a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Across {
    /// Callers that mean this very file.
    #[default]
    Worktree,
    /// Callers that mean the file of this path in any work tree of the repository.
    Repo,
}

impl Across {
    /// Reads the word of a flag or a configuration.
    pub fn from_word(word: &str) -> Option<Self> {
        match word {
            "worktree" => Some(Self::Worktree),
            "repo" => Some(Self::Repo),
            _ => None,
        }
    }

    /// The word of a flag or a configuration.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Worktree => "worktree",
            Self::Repo => "repo",
        }
    }
}

/// The lock of a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PathLock {
    /// Name of the lock.
    pub name: LockName,
    /// The callers that mean the same lock by the path.
    pub across: Across,
    /// Where the path leads, absolute and without links.
    pub target: PathBuf,
    /// The path as people are shown it: from the root of the work tree on, else the whole one.
    pub shown: String,
    /// The nearest folder of the target that exists. From here on the place of the lock is looked for.
    pub folder: PathBuf,
}

/// Why a path has no lock.
#[derive(Debug)]
pub enum PathError {
    /// The path was empty.
    Empty,
    /// The path cannot be followed.
    Io {
        /// The path.
        path: String,
        /// The system's answer.
        r#source: io::Error,
    },
    /// The path leads out of every repository, or into another user's.
    Repository {
        /// The path.
        path: String,
        /// What is wrong.
        why: RepositoryError,
    },
    /// A name of a lock cannot be made. It never happens.
    Name {
        /// The path.
        path: String,
    },
}

impl std::fmt::Display for PathError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Empty => f.write_str("--path: it is empty; name a file or a folder"),
            Self::Io { path, source } => {
                write!(f, "--path {path}: it cannot be followed: {source}")
            }
            Self::Repository { path, why } => write!(f, "--path {path}, --across repo: {why}"),
            Self::Name { path } => write!(f, "--path {path}: no lock can have its name"),
        }
    }
}

impl std::error::Error for PathError {}

/// The lock of a path. A relative one begins at `here`.
///
/// # Errors
/// - [`PathError`] says what is wrong.
pub fn lock_of(path: &Path, across: Across, here: &Path) -> Result<PathLock, PathError> {
    if path.as_os_str().is_empty() {
        return Err(PathError::Empty);
    }
    let said = || tenure_store::printed::clean_path(path);
    let failed = |r#source| PathError::Io {
        path: said(),
        r#source,
    };
    let (target, folder) = resolved(&here.join(path)).map_err(failed)?;
    let root = root_of(&folder);
    let within = root.and_then(|root| target.strip_prefix(root).ok());
    let mut hash = Sha256::new();
    hash.update(across.as_str());
    hash.update([0]);
    match across {
        Across::Worktree => hash.update(target.as_os_str().as_encoded_bytes()),
        Across::Repo => {
            let common = repository::common_folder(&folder)
                .map_err(|why| PathError::Repository { path: said(), why })?;
            hash.update(common.as_os_str().as_encoded_bytes());
            hash.update([0]);
            // Of a path inside of git's own folder there is no other work tree's.
            let within = within.unwrap_or(&target);
            hash.update(within.as_os_str().as_encoded_bytes());
        }
    }
    let shown = within.filter(|within| !within.as_os_str().is_empty());
    let shown = shown.unwrap_or(&target).display().to_string();
    let name = LockName::new(name_of(&target, &hash.finalize()));
    Ok(PathLock {
        across,
        name: name.map_err(|_| PathError::Name { path: said() })?,
        shown: shorter(&shown),
        target,
        folder,
    })
}

/// Whether the lock of this name may stand for a path that is called so: it has the name of the file.
pub fn may_stand_for(name: &LockName, called: &str) -> bool {
    let own = Path::new(called).file_name().unwrap_or_default();
    let rest = name.as_str().strip_prefix(&begin_of(own));
    rest.is_some_and(|hash| hash.starts_with('='))
}

/// The names of a path below a folder; `None` if it does not lie there, or one is no text.
pub(crate) fn below<'a>(root: &Path, file: &'a Path) -> Option<Vec<&'a str>> {
    let rest = file.strip_prefix(root).ok()?;
    rest.components()
        .map(|part| match part {
            Component::Normal(name) => name.to_str(),
            _ => None,
        })
        .collect()
}

/// The root of the work tree around a folder.
pub fn root_of(folder: &Path) -> Option<&Path> {
    folder
        .ancestors()
        .find(|folder| repository::tree_at(folder) != repository::Tree::None)
}

/// A path as a claim keeps it. A list of claims has no room for the longest ones.
fn shorter(shown: &str) -> String {
    const CHARS_MAX: usize = 512;
    match shown.char_indices().rev().nth(CHARS_MAX) {
        Some((at, first)) => format!("…{}", shown.get(at + first.len_utf8()..).unwrap_or(shown)),
        None => shown.to_owned(),
    }
}

fn name_of(target: &Path, hash: &[u8]) -> String {
    let mut name = begin_of(target.file_name().unwrap_or_default());
    name.push('=');
    name.push_str(&hex(hash.get(..16).unwrap_or_default()));
    name
}

/// The name up to its hash.
fn begin_of(file: &OsStr) -> String {
    let mut name = BEGIN.to_owned();
    for c in file.to_string_lossy().chars().take(SHOWN_MAX) {
        // Two dots in a row are no part of a lock's name.
        let is_good = c.is_ascii_alphanumeric()
            || matches!(c, '_' | '-' | '@' | '+')
            || (c == '.' && !name.ends_with('.'));
        name.push(if is_good { c } else { '_' });
    }
    name
}

/// Where a path leads, and the nearest folder there that exists. What is not there yet is taken as it is written.
fn resolved(path: &Path) -> io::Result<(PathBuf, PathBuf)> {
    let mut links = 0;
    let mut path = path.to_owned();
    'again: loop {
        let mut at = PathBuf::new();
        let mut folder = PathBuf::new();
        let mut components = path.components();
        while let Some(component) = components.next() {
            match component {
                Component::Prefix(_) | Component::RootDir => at.push(component),
                Component::CurDir => {}
                // `at` has no links, so this is the folder above.
                Component::ParentDir => {
                    at.pop();
                }
                Component::Normal(name) => {
                    at.push(name);
                    match std::fs::symlink_metadata(&at) {
                        Ok(found) if found.is_symlink() => {
                            links += 1;
                            if links > LINKS_MAX {
                                return Err(io::Error::other("too many links"));
                            }
                            let target = std::fs::read_link(&at)?;
                            at.pop();
                            path = at.join(target).join(components.as_path());
                            continue 'again;
                        }
                        Ok(found) if found.is_dir() => folder.clone_from(&at),
                        Ok(_) => {}
                        // Nothing below it exists either.
                        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                        Err(error) => return Err(error),
                    }
                }
            }
        }
        if folder.as_os_str().is_empty() || !at.starts_with(&folder) {
            folder = existing(&at)?;
        }
        return Ok((in_true_letters(&at, &folder), folder));
    }
}

/// The nearest folder of a path that exists.
fn existing(path: &Path) -> io::Result<PathBuf> {
    let mut folders = path.ancestors().filter(|folder| folder.is_dir());
    let none = || io::Error::from(io::ErrorKind::NotFound);
    folders.next().map(Path::to_owned).ok_or_else(none)
}

/// The path as its file system writes it. Some take `A` and `a` for one name, and show the one that was given first.
fn in_true_letters(target: &Path, folder: &Path) -> PathBuf {
    if cfg!(any(target_os = "macos", windows)) {
        if let Ok(whole) = target.canonicalize() {
            return whole;
        }
        if let (Ok(known), Ok(rest)) = (folder.canonicalize(), target.strip_prefix(folder)) {
            return known.join(rest);
        }
    }
    target.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_names_of_a_path_begin_at_a_root() {
        let names = |root: &str, file: &str| {
            below(Path::new(root), Path::new(file)).map(|names| names.join("|"))
        };
        assert_eq!(names("/w", "/w/a/b.rs").as_deref(), Some("a|b.rs"));
        assert_eq!(names("/w", "/w").as_deref(), Some(""));
        assert_eq!(names("/w", "/w2/a"), None);
    }
}
