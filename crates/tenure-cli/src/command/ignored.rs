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
use tenure_engine::printed::quoted_for_unix;
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
    reporter.inform(&format!(
        "git does not ignore {} and would commit it; `{}` tells it to",
        clean(&record),
        line_that_ignores(root, &pattern_of(&record))
    ));
}

/// The line of a shell by which git is told to ignore what fits a pattern. A file whose last line has no end gets one
/// first.
pub(super) fn line_that_ignores(root: &Path, pattern: &str) -> String {
    let ignore = root.join(".gitignore");
    let is_open =
        std::fs::read(&ignore).is_ok_and(|text| text.last().is_some_and(|end| *end != b'\n'));
    let (pattern, ignore) = (
        quoted_for_unix(pattern),
        quoted_for_unix(&clean_path(&ignore)),
    );
    // Some shells' echo reads backslashes.
    match (is_open, pattern.contains('\\')) {
        (true, _) => format!("printf '\\n%s\\n' {pattern} >>{ignore}"),
        (false, true) => format!("printf '%s\\n' {pattern} >>{ignore}"),
        (false, false) => format!("echo {pattern} >>{ignore}"),
    }
}

/// The pattern of gitignore(5) that fits this name alone.
pub(super) fn pattern_of(name: &str) -> String {
    let mut pattern = String::with_capacity(name.len());
    for (at, character) in name.char_indices() {
        let is_special = match character {
            '*' | '?' | '[' | '\\' => true,
            '#' | '!' => at == 0,
            ' ' => at + 1 == name.len(),
            _ => false,
        };
        if is_special {
            pattern.push('\\');
        }
        pattern.push(character);
    }
    pattern
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_makes_git_ignore_a_file_of_any_name() {
        let scratch = tempfile::tempdir().expect("a folder");
        let root = scratch.path();
        let shell = |script: &str| {
            let shell = Command::new("sh")
                .arg("-c")
                .arg(script)
                .current_dir(root)
                .status();
            assert!(shell.expect("a shell").success(), "{script}");
        };
        shell("git init -q .");
        for name in [
            "plain.yaml",
            "#hash",
            "!bang",
            "st*r",
            "wh?t",
            "[x]",
            "back\\slash",
            "end ",
            "it's",
            "$HOME",
        ] {
            for before in ["", "other\n", "other"] {
                std::fs::write(root.join(".gitignore"), before).expect("a file");
                assert!(matches!(fate_of(root, name), Fate::Committed(_)), "{name}");
                shell(&line_that_ignores(root, &pattern_of(name)));
                assert_eq!(
                    fate_of(root, name),
                    Fate::Ignored,
                    "{name} behind {before:?}"
                );
                let was_ignored = fate_of(root, "other") == Fate::Ignored;
                assert_eq!(was_ignored, !before.is_empty(), "{name} behind {before:?}");
            }
        }
    }
}
