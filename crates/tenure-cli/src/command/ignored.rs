//! Asks git what it does with a file, and tells the user of a record how to keep it out of commits.
//!
//! A commit that takes a record along brings a lock to other clones, and a checkout, a reset or a stash takes it away. So each
//! call that takes a lock says that, until the line that it gives is obeyed. tenure itself writes into no folder that was
//! there; the contract wants the record where it is.

use super::child_end::{ChildEnd, child_end};
use super::session::Session;
use crate::render::{Reporter, clean};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;
use tenure_core::LockName;
use tenure_os::private::work_tree;
use tenure_store::advice;
use tenure_store::profile::Profile;

/// How long git may take to answer.
const PATIENCE: Duration = Duration::from_secs(2);

/// Variables that git sets for its hooks, which may be about another repository, and those with which `check-ignore`
/// refuses to answer.
const NOT_HANDED_DOWN: [&str; 8] = [
    "GIT_DIR",
    "GIT_INDEX_FILE",
    "GIT_WORK_TREE",
    "GIT_COMMON_DIR",
    "GIT_LITERAL_PATHSPECS",
    "GIT_GLOB_PATHSPECS",
    "GIT_NOGLOB_PATHSPECS",
    "GIT_ICASE_PATHSPECS",
];

/// What git does with a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Fate {
    /// The file lies in no work tree, or in git's own folder.
    Unseen,
    /// A rule ignores it.
    Ignored,
    /// `git add --all` takes it into this work tree.
    Committed(PathBuf),
    /// The record is in the index: each commit takes it along, whether a rule ignores it or not.
    Tracked { is_ignored: bool },
    /// Git gives no answer: there is none, it does not trust the repository's owner, or it takes too long.
    Unknown,
}

/// What git does with a file of this name in a folder, which is there. The file may be a new one.
pub(super) fn fate_of(folder: &Path, file: &str) -> Fate {
    let Some(tree) = work_tree(folder) else {
        return Fate::Unseen;
    };
    let ask = |words: &[&str]| answer(folder, words, file);
    // Of a file in its index, git says that no rule ignores it.
    let ignored = ask(&["check-ignore", "--quiet"]);
    if ignored == Some(0) {
        return Fate::Ignored;
    }
    if ask(&["--literal-pathspecs", "ls-files", "--error-unmatch"]) == Some(0) {
        let is_ignored = ask(&["check-ignore", "--quiet", "--no-index"]) == Some(0);
        return Fate::Tracked { is_ignored };
    }
    match ignored {
        Some(1) => Fate::Committed(tree),
        _ => Fate::Unknown,
    }
}

/// Warns the user, if git tracks the record of this lock or would commit it. Says nothing if git cannot be asked, or knows
/// no work tree there.
pub(super) fn tell(reporter: &mut Reporter, session: &Session, name: &LockName) {
    let profile = session.store.profile();
    if !session.store.publishes() || !session.place.is_folder() {
        return;
    }
    let records = profile.folder(&session.place.folder);
    let record = profile.file_name(name);
    let fate = fate_of(&records, &record);
    let Some(line) = line_that_ends(&fate, &records, &record, &pattern_of_records(profile, name))
    else {
        return;
    };
    let shown = clean(&record);
    reporter.warn(match fate {
        Fate::Tracked { .. } => format!(
            "git tracks {shown}: a commit takes the lock into other clones, and a checkout, a reset or a stash takes it \
             away; `{line}` ends that"
        ),
        _ => format!("git does not ignore {shown} and would commit it; `{line}` tells it to"),
    });
}

/// The line of a shell after which git leaves a record alone; `None` where it does, or is not known.
pub(super) fn line_that_ends(
    fate: &Fate,
    records: &Path,
    record: &str,
    pattern: &str,
) -> Option<String> {
    let ignores = || line_that_ignores(records, pattern);
    match fate {
        Fate::Unseen | Fate::Ignored | Fate::Unknown => None,
        Fate::Committed(_) => Some(ignores()),
        Fate::Tracked { is_ignored } => {
            let folder = advice::word(&records.to_string_lossy());
            let file = advice::word(record);
            let removes = format!(
                "git -C {folder} --literal-pathspecs rm --cached --force --quiet -- {file}"
            );
            Some(if *is_ignored {
                removes
            } else {
                format!("{removes}; {}", ignores())
            })
        }
    }
}

/// The pattern of gitignore(5) that fits the record of this lock and, where each lock has one, those of all others.
pub(super) fn pattern_of_records(profile: &dyn Profile, name: &LockName) -> String {
    let file = profile.file_name(name);
    match file.strip_prefix(name.as_str()) {
        Some(rest) if profile.name_of(&file).as_ref() == Some(name) => {
            format!("*{}", pattern_of(rest))
        }
        _ => pattern_of(&file),
    }
}

/// The line of a shell by which git is told to ignore what fits a pattern. A file whose last line has no end gets one
/// first.
pub(super) fn line_that_ignores(root: &Path, pattern: &str) -> String {
    let ignore = root.join(".gitignore");
    let is_open =
        std::fs::read(&ignore).is_ok_and(|text| text.last().is_some_and(|end| *end != b'\n'));
    let (pattern, ignore) = (
        advice::word(pattern),
        advice::word(&ignore.to_string_lossy()),
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

/// The exit code of git for this question about a file.
fn answer(folder: &Path, words: &[&str], file: &str) -> Option<i32> {
    let mut git = Command::new("git");
    for variable in NOT_HANDED_DOWN {
        git.env_remove(variable);
    }
    // A folder that merely looks like a work tree must not make git start programs that its configuration names.
    let mut git = git
        .arg("-C")
        .arg(folder)
        .args(["-c", "core.fsmonitor=false"])
        .args(words)
        .arg("--")
        .arg(Path::new(".").join(file))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .ok()?;
    if child_end(&mut git, PATIENCE, PATIENCE, || true) != ChildEnd::Ended {
        let _ = git.kill();
    }
    git.wait().ok()?.code()
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
