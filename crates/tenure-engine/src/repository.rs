//! Finds the git repository around a folder, and the folder that all its work trees share.
//!
//! The files that git itself reads are read: `.git`, a folder or a file with `gitdir:`, and `commondir` in the
//! git folder of a linked work tree. No process is started, so git need not be installed. A bare repository is
//! found as well, and the repository around a folder inside of git's own.
//!
//! The variables that git passes to its hooks (`GIT_DIR` and others) are not asked. They outlive a `cd` into
//! another repository, and a hook would use another place than a terminal in the same folder.
//!
//! A repository counts if it is the caller's or root's, or its owner shares it with a group (`git init --shared`):
//! its folder then is setgid, and the group may write to it. A folder that all users may write to proves nothing
//! of that kind: any of them can have made a repository there.

use std::ffi::OsStr;
use std::io::Read;
use std::path::{Path, PathBuf};
use tenure_os::os::{self, Errno, Facts, Sharing};
use tenure_os::private::GIT;
use tenure_os::trust::{self, OpenPath, Whose};

/// What a `.git` file begins with.
const LEADS_TO: &str = "gitdir:";

/// The file in which a linked work tree's git folder names the common one.
const COMMON: &str = "commondir";

/// The longest file of one path that is read.
const PATH_BYTES_MAX: u64 = 8 << 10;

/// The longest configuration of git's that is read.
const SETTINGS_BYTES_MAX: u64 = 1 << 20;

/// What git itself keeps in its folder: names that no folder of locks may have. A name in capitals only
/// (`HEAD`, `FETCH_HEAD`) is git's, too.
const GITS_OWN: [&str; 23] = [
    "annex",
    "branches",
    "commondir",
    "config",
    "config.worktree",
    "description",
    "gitdir",
    "gitk.cache",
    "hooks",
    "index",
    "info",
    "lfs",
    "logs",
    "modules",
    "objects",
    "packed-refs",
    "rebase-apply",
    "rebase-merge",
    "refs",
    "reftable",
    "sequencer",
    "shallow",
    "worktrees",
];

/// Whether a name in git's folder is one of git's own. Some file systems do not tell `refs` from `Refs`.
pub(crate) fn is_gits_own(name: &OsStr) -> bool {
    let is_capital = |byte: &u8| byte.is_ascii_uppercase() || *byte == b'_';
    GITS_OWN.iter().any(|own| name.eq_ignore_ascii_case(own))
        || name.as_encoded_bytes().iter().all(is_capital)
}

/// Why no repository is found.
#[derive(Debug)]
#[non_exhaustive]
pub enum RepositoryError {
    /// The folder is in no repository.
    None {
        /// The folder of the call.
        place: String,
    },
    /// The repository is another user's.
    Untrusted {
        /// `.git`, or git's common folder.
        path: String,
        /// Owner of the file.
        owner: String,
    },
    /// A work tree's repository is not where the work tree says.
    Broken {
        /// The `.git` file.
        file: String,
        /// What it names.
        target: String,
    },
}

impl std::fmt::Display for RepositoryError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::None { place } => write!(
                f,
                "{place} is in no git repository; call from inside one, or choose another scope \
         (--scope user, --scope machine) or a folder (--dir)"
            ),
            Self::Untrusted { path, owner } => write!(
                f,
                "{path} belongs to {owner}, who does not share it with a group (as `git init --shared` does), so no lock \
         is taken there; name a lock folder with --dir if it is to be used"
            ),
            Self::Broken { file, target } => write!(
                f,
                "{file} leads to no repository ({target}); mend it with `git worktree repair`"
            ),
        }
    }
}

impl std::error::Error for RepositoryError {}

/// What git keeps at the root of a folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Tree {
    /// Nothing: it is no root, or it is one of another user's making.
    None,
    /// The root stands for itself.
    Main,
    /// The root is a linked work tree, of this main checkout.
    LinkedTo(PathBuf),
    /// The root is a linked work tree, and the repository does not say where the main checkout is.
    LinkedToUnknown,
}

/// Looks whether a folder is the root of a work tree. A folder that is none costs one call.
pub(crate) fn tree_at(folder: &Path) -> Tree {
    // What cannot be opened says nothing.
    // Another user's file or link must not lead this user's calls to a configuration elsewhere.
    let is_strangers = |facts: &Facts| trust::whose(facts) == Whose::Stranger;
    let Ok(git) = OpenPath::at(&folder.join(GIT), |link| !is_strangers(link)) else {
        return Tree::None;
    };
    if !git.facts.is_regular() {
        return Tree::Main;
    }
    if is_strangers(&git.facts) {
        return Tree::None;
    }
    let Some(target) = target_of(git.fd.into(), folder) else {
        return Tree::None;
    };
    match common_of(&target) {
        // A submodule, or a repository with its git folder elsewhere.
        Some(common) if common == target => Tree::Main,
        Some(common) => match common.canonicalize() {
            Ok(common) if common.file_name().is_some_and(|name| name == GIT) => common
                .parent()
                .map_or(Tree::Main, |main| Tree::LinkedTo(main.to_owned())),
            Ok(common) => main_of(&common),
            Err(_) => Tree::Main,
        },
        None => Tree::None,
    }
}

/// The main checkout of a repository whose common folder is not the `.git` of one: a submodule's, or one that
/// git was told to keep elsewhere. Only `core.worktree` says where it is, and git does not write it always.
fn main_of(common: &Path) -> Tree {
    let text = |file: &str| {
        let file = os::open_by_path(&common.join(file), true).ok()?;
        let mut text = String::new();
        let mut file = std::fs::File::from(file).take(SETTINGS_BYTES_MAX);
        file.read_to_string(&mut text).ok()?;
        Some(text)
    };
    let of_all = text("config").unwrap_or_default();
    // With `extensions.worktreeConfig`, git keeps both settings there.
    let of_main = text("config.worktree").unwrap_or_default();
    let said = |key| core_setting(&of_main, key).or_else(|| core_setting(&of_all, key));
    if let Some(main) = said("worktree").and_then(|main| common.join(main).canonicalize().ok()) {
        return Tree::LinkedTo(main);
    }
    match said("bare").as_deref() {
        // The main checkout of a bare repository is nowhere.
        Some("true" | "yes" | "on" | "1" | "") => Tree::Main,
        _ => Tree::LinkedToUnknown,
    }
}

/// The value of a key below `[core]` in a configuration of git's; the last one counts. A key without a value
/// is the empty text.
fn core_setting(text: &str, key: &str) -> Option<String> {
    let mut is_core = false;
    let mut found = None;
    for line in text.lines().map(str::trim) {
        if let Some(header) = line.strip_prefix('[') {
            is_core = header
                .split_once(']')
                .is_some_and(|(name, _)| name.trim().eq_ignore_ascii_case("core"));
            continue;
        }
        let (name, value) = line.split_once('=').unwrap_or((line, ""));
        if is_core && name.trim().eq_ignore_ascii_case(key) {
            found = Some(unquoted(value.trim()));
        }
    }
    found
}

/// A value as git means it: without quotes, escapes and a comment behind it.
fn unquoted(value: &str) -> String {
    let (mut is_quoted, mut plain) = (false, String::new());
    let mut rest = value.chars();
    while let Some(next) = rest.next() {
        match next {
            '"' => is_quoted = !is_quoted,
            '\\' => plain.extend(rest.next()),
            '#' | ';' if !is_quoted => break,
            other => plain.push(other),
        }
    }
    plain.trim_end().to_owned()
}

/// The main checkout of a linked work tree. `None` for any other folder, and where the repository does not say it.
pub fn main_checkout(tree: &Path) -> Option<PathBuf> {
    match tree_at(tree) {
        Tree::LinkedTo(main) => Some(main),
        Tree::None | Tree::Main | Tree::LinkedToUnknown => None,
    }
}

/// The linked work tree around a folder, if its repository does not say where the main checkout is. Then no
/// configuration there is found.
pub fn tree_without_main(start: &Path) -> Option<&Path> {
    let mut trees = start.ancestors().map(|folder| (folder, tree_at(folder)));
    let (folder, tree) = trees.find(|(_, tree)| *tree != Tree::None)?;
    (tree == Tree::LinkedToUnknown).then_some(folder)
}

/// Looks at the owners of what stands at the name `.git`.
fn believed(opened: &OpenPath, path: &Path) -> Result<(), RepositoryError> {
    let link = opened.link.as_ref().filter(|link| !is_own(link));
    let is_shared = opened.facts.sharing() == Sharing::Group;
    let thing = (!is_own(&opened.facts) && !is_shared).then_some(&opened.facts);
    match link.or(thing) {
        Some(facts) => Err(RepositoryError::Untrusted {
            path: tenure_store::printed::clean_path(path),
            owner: facts.owner_text(),
        }),
        None => Ok(()),
    }
}

/// Whether it is the caller's or root's.
fn is_own(facts: &Facts) -> bool {
    facts.is_ours() || facts.is_roots()
}

/// The common folder of the repository around `start`: the same path, without links, from all its work trees.
///
/// # Errors
/// - [`RepositoryError::None`] if there is no repository.
/// - [`RepositoryError::Broken`] if a `.git` file on the way up leads to none.
/// - [`RepositoryError::Untrusted`] if `.git` or the common folder is another user's who does not share it.
pub fn common_folder(start: &Path) -> Result<PathBuf, RepositoryError> {
    let found = start
        .ancestors()
        .find_map(|folder| git_folder(folder).transpose());
    let none = || RepositoryError::None {
        place: tenure_store::printed::clean_path(start),
    };
    let git = found.transpose()?.ok_or_else(none)?;
    let common = common_of(&git).unwrap_or(git);
    let common = common.canonicalize().map_err(|_| none())?;
    let opened = OpenPath::at(&common, |_| true).map_err(|_| none())?;
    believed(&opened, &common)?;
    Ok(common)
}

/// The git folder that belongs to this folder, if it is the root of a work tree, or a git folder itself.
fn git_folder(folder: &Path) -> Result<Option<PathBuf>, RepositoryError> {
    let git = folder.join(GIT);
    let opened = OpenPath::at(&git, |_| true).ok();
    if is_repository(&git) {
        if let Some(opened) = &opened {
            believed(opened, &git)?;
        }
        return Ok(Some(git));
    }
    match opened {
        Some(opened) if opened.facts.is_regular() => {
            believed(&opened, &git)?;
            let target = target_of(opened.fd.into(), folder);
            let broken = || RepositoryError::Broken {
                file: tenure_store::printed::clean_path(&git),
                target: target.as_ref().map_or_else(
                    || format!("no line `{LEADS_TO} FOLDER`"),
                    tenure_store::printed::clean_path,
                ),
            };
            match &target {
                Some(target) if is_repository(target) => Ok(Some(target.clone())),
                Some(_) | None => Err(broken()),
            }
        }
        Some(_) | None => Ok(is_repository(folder).then(|| folder.to_owned())),
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
        fs::write(top.join("bare.git/config"), "[core]\n\tbare = true\n").expect("as git does");
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
    fn what_git_says_of_its_core_is_read_as_git_reads_it() {
        let text = "[core]\n\tbare = false\n[other]\nworktree = /no\n[Core]\n\tWorkTree = \"/a b;c\\\\d\" ; so\n\
                    [core \"sub\"]\nworktree = /no\n[core]\nbare\n";
        assert_eq!(core_setting(text, "worktree").as_deref(), Some("/a b;c\\d"));
        assert_eq!(core_setting(text, "bare").as_deref(), Some(""));
        assert_eq!(core_setting("[other]\nbare = true\n", "bare"), None);
        for (name, is_gits) in [
            ("refs", true),
            ("Refs", true),
            ("FETCH_HEAD", true),
            ("ci", false),
            ("tenure", false),
        ] {
            assert_eq!(is_gits_own(name.as_ref()), is_gits, "{name}");
        }
    }

    #[test]
    fn outside_of_a_repository_and_in_a_broken_one_there_is_none() {
        let (_scratch, top) = scratch();
        let said = common_folder(&top).expect_err("no repository");
        assert!(matches!(said, RepositoryError::None { .. }), "{said}");
        // A folder of that name is not enough.
        fs::create_dir_all(top.join("odd/.git")).expect("a folder");
        let said = common_folder(&top.join("odd")).expect_err("no repository");
        assert!(matches!(said, RepositoryError::None { .. }), "{said}");
        fs::create_dir(top.join("gone")).expect("a folder");
        for text in ["gitdir: /nowhere/at/all\n", "gitdir:\n", "nonsense", ""] {
            fs::write(top.join("gone/.git"), text).expect("a file");
            let said = common_folder(&top.join("gone")).expect_err("no repository");
            assert!(
                matches!(said, RepositoryError::Broken { .. }),
                "{text:?}: {said}"
            );
            assert_ne!(
                tree_at(&top.join("gone")),
                Tree::LinkedTo(top.clone()),
                "{text:?}"
            );
        }
    }
}
