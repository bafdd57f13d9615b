//! Folders and marks that belong to this user alone. They have rights that no umask adds to or takes from.
//! Inside a git work tree, git is told not to commit them.
//!
//! Only a folder that is made here gets a `.gitignore`. One that was there before may be meant for
//! files that its user wants to commit, and those would silently stay out of every commit.

use crate::os::{self, AsDescriptor, Descriptor, Errno, Open};
use std::path::{Path, PathBuf};

/// The file by which git is told to leave a folder alone.
pub(crate) const IGNORE_FILE: &str = ".gitignore";

/// What marks a git work tree at its top: a folder, or in linked work trees and submodules a file.
const GIT: &str = ".git";

/// Makes a folder and its parents, 0700 each. The error names the one that could not be made.
pub(crate) fn make_folder(path: &Path) -> Result<(), (PathBuf, Errno)> {
    let missing: Vec<&Path> = path
        .ancestors()
        .take_while(|folder| !folder.as_os_str().is_empty() && !folder.is_dir())
        .collect();
    for folder in missing.into_iter().rev() {
        match os::make_folder(folder) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(errno) => return Err((folder.to_owned(), errno)),
        }
    }
    Ok(())
}

/// The same for a folder that will hold nothing but files of tenure. Inside a git work tree it tells git to
/// leave it alone.
///
/// # Crash safety
/// The folder gets its name when its `.gitignore` is in it, so a process that finds the folder finds both.
/// A death before that leaves a folder with a private name, which git does not commit: it is empty, or
/// ignores itself. If the file system has no rename that does not replace, a death between the two steps
/// leaves the folder without the file.
pub(crate) fn make_own_folder(path: &Path) -> Result<(), (PathBuf, Errno)> {
    let parent = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => {
            make_folder(parent)?;
            parent
        }
        Some(_) | None => Path::new("."),
    };
    let name = path.file_name().and_then(|name| name.to_str());
    match name {
        Some(name) if is_in_work_tree(parent) => os::open_folder(parent)
            .and_then(|parent| make_ignored(&parent, name))
            .map_err(|errno| (path.to_owned(), errno)),
        Some(_) | None => make_folder(path),
    }
}

/// The same in a folder that is open, and was opened by this path.
pub(crate) fn make_own_folder_in(folder: &Descriptor, at: &Path, name: &str) -> Result<(), Errno> {
    if is_in_work_tree(at) {
        return make_ignored(folder, name);
    }
    match os::make_folder_in(folder, name) {
        Ok(()) | Err(Errno::EXIST) => Ok(()),
        Err(errno) => Err(errno),
    }
}

/// Whether git looks at what lies in this folder, which exists.
fn is_in_work_tree(folder: &Path) -> bool {
    let Ok(folder) = folder.canonicalize() else {
        return false;
    };
    for folder in folder.ancestors() {
        // Git commits nothing of its own folder.
        if folder.file_name().is_some_and(|name| name == GIT) {
            return false;
        }
        if folder.join(GIT).symlink_metadata().is_ok() {
            return true;
        }
    }
    false
}

fn make_ignored(parent: &Descriptor, name: &str) -> Result<(), Errno> {
    let mut bytes = [0; 8];
    // Without randomness the name may be taken, which is an error as any other.
    let _ = os::random(&mut bytes);
    let new = format!(".{name}.{:016x}.new", u64::from_ne_bytes(bytes));
    os::make_folder_in(parent, &new)?;
    let filled = os::open_folder_in(parent, &new).and_then(|folder| ignore_all(&folder));
    match filled.and_then(|()| os::rename_new(parent, &new, parent, name)) {
        Ok(()) => return Ok(()),
        // If another process has made it meanwhile, that is as good.
        Err(Errno::EXIST) => {
            withdraw(parent, &new);
            return Ok(());
        }
        Err(_) => withdraw(parent, &new),
    }
    match os::make_folder_in(parent, name) {
        Ok(()) => {}
        Err(Errno::EXIST) => return Ok(()),
        Err(errno) => return Err(errno),
    }
    let ignored = os::open_folder_in(parent, name).and_then(|folder| ignore_all(&folder));
    ignored.inspect_err(|_| {
        // If another process keeps something in it by now, it stays.
        let _ = os::remove_folder(parent, name);
    })
}

/// Takes a folder away that no other process knows.
fn withdraw(parent: &Descriptor, name: &str) {
    if let Ok(folder) = os::open_folder_in(parent, name) {
        let _ = os::remove(&folder, IGNORE_FILE);
    }
    let _ = os::remove_folder(parent, name);
}

/// Tells git to leave everything in a folder alone, unless it was told something already.
pub(crate) fn ignore_all(folder: impl AsDescriptor) -> Result<(), Errno> {
    match os::open_file(&folder, IGNORE_FILE, Open::New) {
        Ok(file) => os::keep_to_owner(&file)
            .and_then(|()| os::write(&file, b"*\n"))
            .map(|_| ())
            .inspect_err(|_| {
                // An empty file would tell git nothing, and no later call would look again.
                let _ = os::remove(&folder, IGNORE_FILE);
            }),
        Err(Errno::EXIST) => Ok(()),
        Err(errno) => Err(errno),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn ignores(folder: &Path) -> bool {
        fs::read_to_string(folder.join(IGNORE_FILE)).is_ok_and(|text| text == "*\n")
    }

    fn names(folder: &Path) -> Vec<String> {
        let mut names: Vec<_> = fs::read_dir(folder)
            .expect("a folder")
            .map(|item| {
                item.expect("an item")
                    .file_name()
                    .to_string_lossy()
                    .into_owned()
            })
            .collect();
        names.sort();
        names
    }

    #[test]
    fn a_folder_that_is_made_in_a_work_tree_ignores_itself_and_its_parents_do_not() {
        let scratch = tempfile::tempdir().expect("a folder");
        let tree = scratch.path().join("tree");
        fs::create_dir_all(tree.join(".git")).expect("a work tree");
        let linked = scratch.path().join("linked");
        fs::create_dir(&linked).expect("a folder");
        fs::write(linked.join(".git"), "gitdir: elsewhere\n").expect("a linked work tree");
        for tree in [&tree, &linked] {
            make_own_folder(&tree.join("state/locks")).expect("a folder");
            assert!(ignores(&tree.join("state/locks")));
            assert_eq!(
                names(&tree.join("state")),
                ["locks"],
                "nothing is left beside it"
            );
            assert_eq!(names(tree), [".git", "state"]);
        }
    }

    #[test]
    fn outside_and_in_gits_own_folder_nothing_is_told_to_git() {
        let scratch = tempfile::tempdir().expect("a folder");
        fs::create_dir_all(scratch.path().join("tree/.git")).expect("a work tree");
        for place in ["a/locks", "tree/.git/tenure/locks"] {
            let place = scratch.path().join(place);
            make_own_folder(&place).expect("a folder");
            assert_eq!(names(&place), [""; 0]);
        }
    }

    #[test]
    fn a_folder_that_is_there_stays_as_it_is() {
        let scratch = tempfile::tempdir().expect("a folder");
        fs::create_dir_all(scratch.path().join(".git")).expect("a work tree");
        let state = scratch.path().join("state");
        fs::create_dir(&state).expect("a folder that was there");
        make_own_folder(&state).expect("it is there");
        assert_eq!(names(&state), [""; 0]);
        assert_eq!(names(scratch.path()), [".git", "state"]);
    }
}
