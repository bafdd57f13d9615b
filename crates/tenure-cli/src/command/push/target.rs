//! Settles where a push goes: the remote as git knows it, the branch, and the name of the lock. This lock
//! serialises the pushes of this machine to that branch.
//!
//! If the caller names no branch, it is the upstream of the branch that is checked out. Without an upstream
//! it is the remote's default branch, if that one is checked out or no branch is.
//!
//! All pushes to one branch of one place use one lock name, in whatever clone. People can recognise it:
//! `push-REPOSITORY-BRANCH-` and a digest of the whole.

use super::Attempts;
use super::git::Git;
use super::judge::GitAnswer;
use super::remote::{asked, place_of, url_of, without_secret};
use super::upstream::{self, Upstream};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::render::Reporter;
use hmac_sha256::Hash as Sha256;
use std::path::Path;
use tenure_core::{LockName, NameError};
use tenure_store::printed::hex;

/// How much of the repository's name, and of the branch's, a lock's name shows.
const SHOWN_MAX: usize = 40;

/// How many bytes of the digest it has.
const DIGEST_BYTES: usize = 8;

/// Where a push goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PushTarget {
    pub(super) remote: String,
    /// Without `refs/heads/`.
    pub(super) branch: String,
    /// The call itself names the branch.
    pub(super) is_named: bool,
    pub(super) lock: LockName,
}

impl PushTarget {
    /// The branch's full name, which no tag can be mistaken for.
    pub(super) fn reference(&self) -> String {
        format!("refs/heads/{}", self.branch)
    }
}

/// Looks the target up. It changes nothing.
pub(super) fn find(
    git: &Git<'_>,
    remote: &str,
    branch: Option<&str>,
    attempts: &mut Attempts,
    reporter: &mut Reporter,
) -> Result<PushTarget, Failure> {
    git.tell(&["rev-parse", "--git-dir"])?;
    // git reads a path from the top of the work tree; a repository without one has only its folder.
    let top = git.ask(&["rev-parse", "--show-toplevel"])?;
    let top = Path::new(top.first_line());
    let is_named = branch.is_some();
    let branch = match branch {
        Some(branch) => {
            let full = format!("refs/heads/{branch}");
            // git takes both for the commit that is checked out, and would make a branch of that name.
            if ["HEAD", "@"].contains(&branch) {
                return Err(Failure::bad_arguments(format!(
                    "--branch {branch} is what git calls the commit that is checked out, and no branch; name the branch"
                )));
            }
            if !git.ask(&["check-ref-format", &full])?.succeeded() {
                return Err(Failure::bad_arguments(format!(
                    "--branch {branch:?} is not a name that git accepts for a branch"
                )));
            }
            branch.to_owned()
        }
        None => unnamed(git, remote, top, attempts, reporter)?,
    };
    let place = place_of(&url_of(git, remote)?, top);
    let lock = lock_name(&place, &branch).map_err(|why| {
        Failure::new(
            Exit::General,
            "NO_LOCK_NAME",
            format!("no name for the lock could be made of {branch:?}: {why}"),
        )
    })?;
    Ok(PushTarget {
        remote: remote.to_owned(),
        branch,
        is_named,
        lock,
    })
}

/// The branch if the caller names none.
fn unnamed(
    git: &Git<'_>,
    remote: &str,
    top: &Path,
    attempts: &mut Attempts,
    reporter: &mut Reporter,
) -> Result<String, Failure> {
    let Some(local) = upstream::checked_out(git)? else {
        return default_branch(git, remote, attempts, reporter);
    };
    let why = match Upstream::of(git, &local, remote, top, attempts, reporter)? {
        Upstream::Branch(branch) => return Ok(branch),
        Upstream::None(why) => why,
    };
    let default = default_branch(git, remote, attempts, reporter)?;
    if default == local {
        return Ok(default);
    }
    Err(upstream::unknown(git, &local, &why, remote, &default))
}

/// The remote's default branch: as this clone knows it, else as the remote says.
fn default_branch(
    git: &Git<'_>,
    remote: &str,
    attempts: &mut Attempts,
    reporter: &mut Reporter,
) -> Result<String, Failure> {
    let folder = format!("refs/remotes/{remote}/");
    let known = git.ask(&["symbolic-ref", "--quiet", &format!("{folder}HEAD")])?;
    let known = known.first_line();
    // A branch that is gone must not be made anew because it once was the default.
    if let Some(branch) = known.strip_prefix(folder.as_str())
        && git
            .ask(&["rev-parse", "--verify", "--quiet", known])?
            .succeeded()
    {
        return Ok(branch.to_owned());
    }
    let words = ["ls-remote", "--symref", "--", remote, "HEAD"];
    let answer = asked(git, &words, attempts, reporter)?;
    of_symref(&answer).ok_or_else(|| no_default(remote))
}

/// `ref: refs/heads/main TAB HEAD`.
fn of_symref(answer: &GitAnswer) -> Option<String> {
    let mut lines = answer.stdout.lines();
    lines.find_map(|line| {
        let (target, name) = line.strip_prefix("ref: refs/heads/")?.split_once('\t')?;
        (name == "HEAD").then(|| target.to_owned())
    })
}

/// The failure if the remote names no default branch, as an empty repository does.
fn no_default(remote: &str) -> Failure {
    Failure::new(
        Exit::NotFound,
        "NO_DEFAULT_BRANCH",
        format!(
            "{} has no default branch yet (it is empty, or its HEAD names none); \
             name the branch with --branch",
            without_secret(remote)
        ),
    )
}

/// The lock's name.
fn lock_name(place: &str, branch: &str) -> Result<LockName, NameError> {
    let place = place.trim_end_matches('/');
    let place = place.strip_suffix(".git").unwrap_or(place);
    let repository = place.rsplit(['/', ':']).next().unwrap_or_default();
    let mut hash = Sha256::new();
    hash.update(place);
    hash.update([0]);
    hash.update(branch);
    let digest = hash.finalize();
    let digest = digest.get(..DIGEST_BYTES).map(hex).unwrap_or_default();
    LockName::new(format!(
        "push-{}-{}-{digest}",
        shown(repository),
        shown(branch)
    ))
}

/// A text with a hyphen for each character that a lock's name cannot have.
fn shown(text: &str) -> String {
    let shown = |c: char| {
        if c.is_ascii_alphanumeric() || c == '_' {
            c
        } else {
            '-'
        }
    };
    text.chars().take(SHOWN_MAX).map(shown).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(url: &str, branch: &str) -> String {
        let place = place_of(url, Path::new("/no/such/top"));
        lock_name(&place, branch).expect("a name").to_string()
    }

    #[test]
    fn one_branch_of_one_place_has_one_lock() {
        let one = name("https://host/a/tools.git", "main");
        assert!(one.starts_with("push-tools-main-"), "{one}");
        for same in [
            "https://host/a/tools",
            "https://host/a/tools/",
            "https://user:secret@host/a/tools.git",
        ] {
            assert_eq!(name(same, "main"), one, "{same}");
        }
        for (url, branch) in [
            ("https://host/a/tools.git", "main2"),
            ("https://host/b/tools.git", "main"),
            ("git@host:a/tools.git", "main"),
            ("/srv/a/tools.git", "main"),
        ] {
            assert_ne!(name(url, branch), one, "{url} {branch}");
        }
        assert_eq!(
            name("file:///srv/tools.git", "x"),
            name("/srv/tools.git", "x")
        );
        assert_eq!(
            name("../tools.git", "x"),
            name("/no/such/top/../tools.git", "x"),
            "a relative path is meant from the top of the work tree"
        );
    }

    #[test]
    fn every_branch_makes_a_name() {
        let long = "x".repeat(250);
        for branch in ["feature/ä/b..c", "-", ".", long.as_str()] {
            for url in ["", "/", "..", "host:", "https://u@", long.as_str()] {
                let _ = name(url, branch);
            }
        }
        assert_ne!(
            name("/a", "a/b"),
            name("/a", "a-b"),
            "the digest tells them apart"
        );
    }

    #[test]
    fn the_remote_says_which_branch_is_its_default() {
        let said = |stdout: &str| GitAnswer {
            end: crate::supervise::End::Code(0),
            stdout: stdout.to_owned(),
            stderr: String::new(),
        };
        let full = "ref: refs/heads/trunk/x\tHEAD\n1234\tHEAD\n";
        assert_eq!(of_symref(&said(full)), Some("trunk/x".to_owned()));
        assert_eq!(of_symref(&said("")), None, "an empty repository");
        assert_eq!(of_symref(&said("1234\tHEAD\n")), None, "a detached HEAD");
    }
}
