//! Finds the git repository around a folder, and the folder that all its work trees share.
//!
//! It reads what git itself reads: `.git`, a folder or a file with `gitdir:`, and `commondir` in the git folder
//! of a linked work tree. It starts no process, so it needs no git. It also finds a bare repository, and the
//! repository around a folder inside of git's own.
//!
//! The variables that git passes to its hooks (`GIT_DIR` and others) are not asked. They outlive a `cd` into
//! another repository, and a hook would use another place than a terminal in the same folder.
//!
//! Nothing here decides whether the repository's owner is believed: the code that uses a place does.

use crate::os::{self, Errno};
use crate::trust::{self, Whose};
use std::io::Read;
use std::path::{Path, PathBuf};

/// What marks the root of a work tree: a folder, or in linked work trees and submodules a file.
pub(crate) const GIT: &str = ".git";

/// What a `.git` file begins with.
const LEADS_TO: &str = "gitdir:";

/// The file in which a linked work tree's git folder names the common one.
const COMMON: &str = "commondir";

/// The longest file of one path that is read.
const PATH_BYTES_MAX: u64 = 8 << 10;

/// Why no repository is found.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Missing {
    /// There is none.
    #[error(
        "{place} is in no git repository; call from inside one, or choose another scope \
         (--scope user, --scope machine) or a folder (--dir)"
    )]
    None {
        /// The folder of the call.
        place: String,
    },
    /// A work tree's repository is not where the work tree says.
    #[error("{file} leads to no repository ({target}); mend it with `git worktree repair`")]
    Broken {
        /// The `.git` file.
        file: String,
        /// What it names.
        target: String,
    },
}

/// What git keeps at the root of a folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Tree {
    /// Nothing: it is no root, or it is one of another user's making.
    None,
    /// It is a root that stands for itself.
    Main,
    /// It is a linked work tree. This is the root of the main checkout.
    LinkedTo(PathBuf),
}

/// Looks whether a folder is the root of a work tree. A folder that is none costs one call.
pub(crate) fn tree_at(folder: &Path) -> Tree {
    let git = folder.join(GIT);
    // What cannot be opened says nothing.
    let Ok(opened) = os::open_by_path(&git, true) else {
        return Tree::None;
    };
    let Ok(facts) = os::facts(&opened) else {
        return Tree::None;
    };
    if !facts.is_regular() {
        return Tree::Main;
    }
    // Another user's file must not lead this user's calls to a configuration elsewhere.
    if trust::whose(&facts) == Whose::Stranger {
        return Tree::None;
    }
    let Some(target) = target_of(opened.into(), folder) else {
        return Tree::None;
    };
    match common_of(&target) {
        // A submodule, or a repository with its git folder elsewhere.
        Some(common) if common == target => Tree::Main,
        Some(common) => match common.canonicalize() {
            // The main checkout of a bare repository is nowhere.
            Ok(common) if common.file_name().is_some_and(|name| name == GIT) => common
                .parent()
                .map_or(Tree::Main, |main| Tree::LinkedTo(main.to_owned())),
            Ok(_) | Err(_) => Tree::Main,
        },
        None => Tree::None,
    }
}

/// The common folder of the repository around `start`: the same path, without links, from all its work trees.
///
/// # Errors
/// - [`Missing::None`] if there is no repository.
/// - [`Missing::Broken`] if a `.git` file on the way up leads to none.
pub fn common_folder(start: &Path) -> Result<PathBuf, Missing> {
    let found = start
        .ancestors()
        .find_map(|folder| git_folder(folder).transpose());
    let none = || Missing::None {
        place: crate::printed::clean(&start.display().to_string()),
    };
    let git = found.transpose()?.ok_or_else(none)?;
    let common = common_of(&git).unwrap_or(git);
    common.canonicalize().map_err(|_| none())
}

/// The git folder that belongs to this folder, if it is the root of a work tree, or a git folder itself.
fn git_folder(folder: &Path) -> Result<Option<PathBuf>, Missing> {
    let git = folder.join(GIT);
    if is_repository(&git) {
        return Ok(Some(git));
    }
    match os::open_by_path(&git, true) {
        Ok(opened) if os::facts(&opened).is_ok_and(|facts| facts.is_regular()) => {
            let target = target_of(opened.into(), folder);
            let broken = || Missing::Broken {
                file: crate::printed::clean(&git.display().to_string()),
                target: target.as_ref().map_or_else(
                    || format!("no line `{LEADS_TO} FOLDER`"),
                    |target| crate::printed::clean(&target.display().to_string()),
                ),
            };
            match &target {
                Some(target) if is_repository(target) => Ok(Some(target.clone())),
                Some(_) | None => Err(broken()),
            }
        }
        Ok(_) | Err(_) => Ok(is_repository(folder).then(|| folder.to_owned())),
    }
}

/// Whether a folder is one of git's, by what git itself looks for.
fn is_repository(folder: &Path) -> bool {
    if folder.join("HEAD").symlink_metadata().is_err() {
        return false;
    }
    let Some(common) = common_of(folder) else {
        return false;
    };
    common.join("objects").is_dir() && common.join("refs").is_dir()
}

/// The common folder that a git folder names, or itself. `None` if the name cannot be read.
fn common_of(git: &Path) -> Option<PathBuf> {
    match os::open_by_path(&git.join(COMMON), true) {
        Ok(file) => {
            let named = path_in(file.into())?;
            Some(git.join(named))
        }
        Err(Errno::NOENT) => Some(git.to_owned()),
        Err(_) => None,
    }
}

/// The folder that a `.git` file in `folder` names.
fn target_of(file: std::fs::File, folder: &Path) -> Option<PathBuf> {
    let line = path_in(file)?;
    let named = line.to_str()?.strip_prefix(LEADS_TO)?.trim_start();
    (!named.is_empty()).then(|| folder.join(named))
}

/// What a file of one line says.
fn path_in(file: std::fs::File) -> Option<PathBuf> {
    let mut text = String::new();
    file.take(PATH_BYTES_MAX).read_to_string(&mut text).ok()?;
    let line = text.trim_end_matches(['\n', '\r']);
    (!line.is_empty()).then(|| PathBuf::from(line))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    /// What git makes of a repository, as far as it is looked at.
    fn repository(git: &Path) {
        for folder in ["objects", "refs"] {
            fs::create_dir_all(git.join(folder)).expect("a folder");
        }
        fs::write(git.join("HEAD"), "ref: refs/heads/main\n").expect("a head");
    }

    /// A linked work tree, as `git worktree add` makes it.
    fn linked(git: &Path, name: &str, tree: &Path) {
        let own = git.join("worktrees").join(name);
        fs::create_dir_all(&own).expect("a folder");
        fs::create_dir_all(tree).expect("a work tree");
        fs::write(own.join("HEAD"), "ref: refs/heads/other\n").expect("a head");
        fs::write(own.join(COMMON), "../..\n").expect("a common folder");
        fs::write(tree.join(GIT), format!("gitdir: {}\n", own.display())).expect("a file");
    }

    fn scratch() -> (tempfile::TempDir, PathBuf) {
        let scratch = tempfile::tempdir().expect("a folder");
        let path = scratch.path().canonicalize().expect("its own path");
        (scratch, path)
    }

    #[test]
    fn all_work_trees_of_a_clone_share_one_folder() {
        let (_scratch, top) = scratch();
        let git = top.join("main/.git");
        repository(&git);
        fs::create_dir_all(top.join("main/a/b")).expect("folders");
        linked(&git, "one", &top.join("one"));
        linked(&git, "two", &top.join("main/.trees/two"));
        fs::create_dir_all(git.join("hooks")).expect("a folder of git's");
        for start in [
            "main",
            "main/a/b",
            "one",
            "main/.trees/two",
            "main/.git/hooks",
        ] {
            let found = common_folder(&top.join(start)).expect(start);
            assert_eq!(found, git, "{start}");
        }
        assert_eq!(tree_at(&top.join("main")), Tree::Main);
        assert_eq!(tree_at(&top.join("main/a")), Tree::None);
        for tree in ["one", "main/.trees/two"] {
            assert_eq!(
                tree_at(&top.join(tree)),
                Tree::LinkedTo(top.join("main")),
                "{tree}"
            );
        }
    }

    #[test]
    fn bare_repositories_git_folders_elsewhere_and_submodules_are_found() {
        let (_scratch, top) = scratch();
        repository(&top.join("bare.git"));
        linked(&top.join("bare.git"), "tree", &top.join("tree"));
        repository(&top.join("elsewhere"));
        fs::create_dir(top.join("separate")).expect("a work tree");
        fs::write(top.join("separate/.git"), "gitdir: ../elsewhere\n").expect("a file");
        repository(&top.join("super/.git"));
        repository(&top.join("super/.git/modules/sub"));
        fs::create_dir(top.join("super/sub")).expect("a submodule");
        fs::write(top.join("super/sub/.git"), "gitdir: ../.git/modules/sub\n").expect("a file");
        for (start, common) in [
            ("bare.git", "bare.git"),
            ("bare.git/refs", "bare.git"),
            ("tree", "bare.git"),
            ("separate", "elsewhere"),
            ("super", "super/.git"),
            ("super/sub", "super/.git/modules/sub"),
        ] {
            assert_eq!(
                common_folder(&top.join(start)).expect(start),
                top.join(common),
                "{start}"
            );
        }
        for tree in ["tree", "separate", "super/sub"] {
            assert_eq!(
                tree_at(&top.join(tree)),
                Tree::Main,
                "{tree} has no main checkout elsewhere"
            );
        }
    }

    #[test]
    fn outside_of_a_repository_and_in_a_broken_one_there_is_none() {
        let (_scratch, top) = scratch();
        let said = common_folder(&top).expect_err("no repository");
        assert!(matches!(said, Missing::None { .. }), "{said}");
        // A folder of that name is not enough.
        fs::create_dir_all(top.join("odd/.git")).expect("a folder");
        let said = common_folder(&top.join("odd")).expect_err("no repository");
        assert!(matches!(said, Missing::None { .. }), "{said}");
        fs::create_dir(top.join("gone")).expect("a folder");
        for text in ["gitdir: /nowhere/at/all\n", "gitdir:\n", "nonsense", ""] {
            fs::write(top.join("gone/.git"), text).expect("a file");
            let said = common_folder(&top.join("gone")).expect_err("no repository");
            assert!(matches!(said, Missing::Broken { .. }), "{text:?}: {said}");
            assert_ne!(
                tree_at(&top.join("gone")),
                Tree::LinkedTo(top.clone()),
                "{text:?}"
            );
        }
    }
}
