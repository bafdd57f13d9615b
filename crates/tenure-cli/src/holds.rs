//! The holds that a command inherits, as `TENURE_HELD` carries them.
//!
//! Each entry is `TOKEN=FOLDER/NAME`; entries are separated by `;`, and `;` and `%` in a folder's
//! name are written as `%3B` and `%25`. A lock name contains no `/`, so the last one ends the
//! folder.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use tenure_core::LockName;

/// The variable.
pub(crate) const VARIABLE: &str = "TENURE_HELD";

/// One inherited hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Hold {
    pub(crate) token: u64,
    pub(crate) folder: String,
    pub(crate) name: String,
}

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

/// The holds that this process inherited.
pub(crate) fn inherited() -> Vec<Hold> {
    parse(inherited_value())
}

/// The inherited holds of this lock. There may be several, of which the later ones were taken
/// after the earlier ones were over. A folder is the same under every name that leads to it.
pub(crate) fn of(folder: &Path, name: &LockName) -> Vec<Hold> {
    let mut holds = inherited();
    if holds.is_empty() {
        return holds;
    }
    holds.retain(|hold| {
        hold.name == name.as_str() && Folder::is_same(Path::new(&hold.folder), folder)
    });
    holds
}

/// The variable's value as this process inherited it. It is read once: a process does not change its own.
pub(crate) fn inherited_value() -> &'static str {
    static VALUE: OnceLock<String> = OnceLock::new();
    VALUE.get_or_init(|| std::env::var(VARIABLE).unwrap_or_default())
}

/// Adds one more hold to the variable's value.
pub(crate) fn extend(value: &mut String, token: u64, folder: &Path, name: &LockName) {
    if !value.is_empty() {
        value.push(';');
    }
    value.push_str(&token.to_string());
    value.push('=');
    for character in folder.to_string_lossy().chars() {
        match character {
            ';' => value.push_str("%3B"),
            '%' => value.push_str("%25"),
            other => value.push(other),
        }
    }
    value.push('/');
    value.push_str(name.as_str());
}

/// The holds that a value of the variable names. Text that is no entry is skipped.
pub(crate) fn parse(value: &str) -> Vec<Hold> {
    value
        .split(';')
        .filter_map(|entry| {
            let (token, path) = entry.split_once('=')?;
            let (folder, name) = path.rsplit_once('/')?;
            Some(Hold {
                token: token.parse().ok()?,
                folder: folder.replace("%3B", ";").replace("%25", "%"),
                name: name.to_owned(),
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_with_any_name_comes_back() {
        let name = LockName::new("a").expect("a name");
        for folder in ["/x", "/a;b=c/d", "/50%3B", "/with space"] {
            let mut value = "3=/other/b".to_owned();
            extend(&mut value, 7, Path::new(folder), &name);
            let last = parse(&value).pop().expect("an entry");
            assert_eq!(last.folder, folder);
            assert_eq!((last.token, last.name.as_str()), (7, "a"));
        }
    }

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

    #[test]
    fn what_is_not_an_entry_is_skipped() {
        assert_eq!(parse("nonsense;=;x=/a/b"), []);
    }
}
