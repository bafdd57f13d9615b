//! Tells the user once that git would commit a project's record, and how to prevent that.
//!
//! Once means: with the call that makes the coordination file beside the record. tenure itself writes into
//! no file of the project; the contract wants the record where it is.

use super::Session;
use crate::render::{Reporter, clean, clean_path};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;
use tenure_core::LockName;
use tenure_engine::clock::{instant, nap};

/// How long git may take to answer. If it takes longer, the user is told nothing.
const PATIENCE: Duration = Duration::from_secs(2);
const LOOK: Duration = Duration::from_millis(5);

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
    if !is_in_work_tree(root) || !would_be_committed(root, &record) {
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

/// Whether git has to be asked at all.
fn is_in_work_tree(root: &Path) -> bool {
    let Ok(root) = root.canonicalize() else {
        return false;
    };
    let mut folders = root.ancestors();
    folders.any(|folder| folder.join(".git").symlink_metadata().is_ok())
}

fn would_be_committed(root: &Path, record: &str) -> bool {
    // A folder that merely looks like a work tree must not make git start programs that its
    // configuration names.
    let git = Command::new("git")
        .arg("-C")
        .arg(root)
        .args([
            "-c",
            "core.fsmonitor=false",
            "check-ignore",
            "--quiet",
            "--no-index",
            "--",
        ])
        .arg(Path::new(".").join(record))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    let Ok(mut git) = git else {
        return false;
    };
    let until = instant().checked_add(PATIENCE);
    loop {
        match git.try_wait() {
            // 0: it is ignored; 128: there is no work tree, or git could not tell.
            Ok(Some(status)) => return status.code() == Some(1),
            Ok(None) if until.is_some_and(|until| instant() < until) => nap(LOOK),
            Ok(None) | Err(_) => {
                let _ = git.kill();
                let _ = git.wait();
                return false;
            }
        }
    }
}
