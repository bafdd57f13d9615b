//! Asks git what it would do with a new file, and tells the user of a project's record how to keep it out of commits.
//!
//! The user is told once: by the call that makes the coordination file beside the record. tenure itself writes into
//! no file of the project; the contract wants the record where it is.

use super::Session;
use crate::render::{Reporter, clean, clean_path};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;
use tenure_core::LockName;
use tenure_engine::clock::{instant, nap};
use tenure_engine::repository::work_tree;

/// How long git may take to answer.
const PATIENCE: Duration = Duration::from_secs(2);
const LOOK: Duration = Duration::from_millis(5);

/// Variables that git sets for its hooks, which may be about another repository, and those with which `check-ignore`
/// refuses to answer.
const NOT_HANDED_DOWN: [&str; 7] = [
    "GIT_DIR",
    "GIT_WORK_TREE",
    "GIT_COMMON_DIR",
    "GIT_LITERAL_PATHSPECS",
    "GIT_GLOB_PATHSPECS",
    "GIT_NOGLOB_PATHSPECS",
    "GIT_ICASE_PATHSPECS",
];

/// What git would do with a new file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Fate {
    /// It lies in no work tree, or in git's own folder.
    Unseen,
    /// A rule ignores it.
    Ignored,
    /// `git add --all` takes it into this work tree.
    Committed(PathBuf),
    /// Git gives no answer: there is none, it does not trust the repository's owner, or it takes too long.
    Unknown,
}

/// What git would do with a new file of this name in a folder, which is there. What git tracks already, by an
/// earlier `git add`, is not looked at.
pub(super) fn fate_of(folder: &Path, file: &str) -> Fate {
    let Some(tree) = work_tree(folder) else {
        return Fate::Unseen;
    };
    match answer(folder, file) {
        Some(0) => Fate::Ignored,
        Some(1) => Fate::Committed(tree),
        _ => Fate::Unknown,
    }
}

/// Whether the record stands in a project, and its lock was never used with tenure before.
pub(super) fn is_first_use(session: &Session, name: &LockName) -> bool {
    if !session.format.stands_in_a_project() {
        return false;
    }
    let record = session.store.profile().file_name(name);
    let beside = format!(".tenure/{record}.tenure");
    let file = session.place.folder.join(beside);
    session.place.is_folder() && file.symlink_metadata().is_err()
}

/// Tells the user, if git would commit the record. Says nothing if git cannot be asked, or knows no work
/// tree there.
pub(super) fn tell(reporter: &Reporter, session: &Session, name: &LockName) {
    let (root, record) = (
        &session.place.folder,
        session.store.profile().file_name(name),
    );
    if !matches!(fate_of(root, &record), Fate::Committed(_)) {
        return;
    }
    let record = clean(&record);
    reporter.inform(&format!(
        "git does not ignore {record} and would commit it; `{}` tells it to",
        line_that_ignores(root, &record)
    ));
}

/// The line by which git is told to ignore records.
pub(super) fn line_that_ignores(root: &Path, record: &str) -> String {
    let ignore = clean_path(root.join(".gitignore"));
    format!("echo '{record}' >>'{ignore}'")
}

/// The exit code of `git check-ignore`.
fn answer(folder: &Path, file: &str) -> Option<i32> {
    let mut git = Command::new("git");
    for variable in NOT_HANDED_DOWN {
        git.env_remove(variable);
    }
    // A folder that merely looks like a work tree must not make git start programs that its configuration names.
    let mut git = git
        .arg("-C")
        .arg(folder)
        .args(["-c", "core.fsmonitor=false", "check-ignore"])
        .args(["--quiet", "--no-index", "--"])
        .arg(Path::new(".").join(file))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .ok()?;
    let until = instant().checked_add(PATIENCE);
    loop {
        match git.try_wait() {
            Ok(Some(status)) => return status.code(),
            Ok(None) if until.is_some_and(|until| instant() < until) => nap(LOOK),
            Ok(None) | Err(_) => {
                let _ = git.kill();
                let _ = git.wait();
                return None;
            }
        }
    }
}
