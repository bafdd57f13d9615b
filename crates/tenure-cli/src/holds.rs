//! The holds that a call inherits, by the locks that they are of.

use std::path::{Path, PathBuf};
use tenure_core::LockName;
pub(crate) use tenure_engine::inherited::{
    HELD as VARIABLE, Hold, extend, held as inherited_value, holds as inherited,
};

/// Which folder a path leads to. Links, two bind mounts of one folder and `/proc/self/root` differ in
/// their text, but not in their device and number. A path that leads nowhere is known by its text, and
/// so is the URL of servers.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Folder {
    #[cfg(unix)]
    Found {
        device: u64,
        number: u64,
    },
    Named(PathBuf),
}

impl Folder {
    #[cfg(unix)]
    pub(crate) fn of(path: &Path) -> Self {
        use std::os::unix::fs::MetadataExt;
        match path.metadata() {
            Ok(found) => Self::Found {
                device: found.dev(),
                number: found.ino(),
            },
            Err(_) => Self::Named(path.to_owned()),
        }
    }

    #[cfg(not(unix))]
    pub(crate) fn of(path: &Path) -> Self {
        Self::Named(path.canonicalize().unwrap_or_else(|_| path.to_owned()))
    }

    /// Whether both paths lead to the same folder.
    pub(crate) fn is_same(one: &Path, other: &Path) -> bool {
        one == other || Self::of(one) == Self::of(other)
    }
}

/// The inherited holds of this lock. There may be several, of which the later ones were taken
/// after the earlier ones were over. A folder is the same under every name that leads to it.
pub(crate) fn of(folder: &Path, name: &LockName) -> Vec<Hold> {
    let mut holds = inherited();
    if holds.is_empty() {
        return holds;
    }
    holds.retain(|hold| hold.name == name.as_str() && Folder::is_same(&hold.folder, folder));
    holds
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(unix)]
    #[test]
    fn a_folder_is_the_same_by_every_path_that_leads_to_it() {
        let scratch = tempfile::tempdir().expect("a folder");
        let [folder, link, other] =
            ["folder", "link", "other"].map(|name| scratch.path().join(name));
        for made in [&folder, &other] {
            std::fs::create_dir(made).expect("a folder");
        }
        std::os::unix::fs::symlink(&folder, &link).expect("a link");
        let mut paths = vec![link, scratch.path().join("other/../folder")];
        if cfg!(target_os = "linux") {
            let text = format!("/proc/self/root{}", folder.display());
            paths.push(text.into());
        }
        for path in paths {
            assert!(Folder::is_same(&folder, &path), "{}", path.display());
        }
        assert!(!Folder::is_same(&folder, &other));
        let nowhere = scratch.path().join("nowhere");
        assert!(Folder::is_same(&nowhere, &nowhere));
        assert!(!Folder::is_same(&nowhere, &folder));
    }
}
