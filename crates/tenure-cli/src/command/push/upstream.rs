//! The upstream of the branch that is checked out: where its commits go.
//!
//! Only an upstream on the remote that is pushed to counts. Settings by which git pushes elsewhere than it pulls
//! from are ignored (`pushRemote`, `remote.pushDefault`, `push.default`). A push that rebases
//! needs one branch that it both reads and writes.

use super::Attempts;
use super::git::Git;
use super::remote::{asked, place_of, url_of, without_secret};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::render::Reporter;
use serde_json::json;
use std::path::Path;

/// What a branch tracks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Upstream {
    /// The branch of the remote that is pushed to.
    Branch(String),
    /// No branch that could be pushed to there. The text says why, as the rest of a sentence about the branch.
    None(String),
}

/// The branch that is checked out; `None` on a detached HEAD.
pub(super) fn checked_out(git: &Git<'_>) -> Result<Option<String>, Failure> {
    let head = git.ask(&["symbolic-ref", "--quiet", "HEAD"])?;
    let branch = head.first_line().strip_prefix("refs/heads/");
    Ok(branch.map(str::to_owned))
}

impl Upstream {
    /// Looks up what the branch that is checked out tracks.
    pub(super) fn of(
        git: &Git<'_>,
        branch: &str,
        remote: &str,
        top: &Path,
        attempts: &mut Attempts,
        reporter: &mut Reporter,
    ) -> Result<Self, Failure> {
        let of = git.ask(&["config", "--get", &format!("branch.{branch}.remote")])?;
        let merge = git.ask(&["config", "--get-all", &format!("branch.{branch}.merge")])?;
        let (of, merge) = match configured(of.first_line(), &merge.stdout) {
            Ok(upstream) => upstream,
            Err(why) => return Ok(Self::None(why)),
        };
        let same = of == remote
            || place_of(&url_of(git, of)?, top) == place_of(&url_of(git, remote)?, top);
        if !same {
            let of = without_secret(of);
            return Ok(Self::None(format!(
                "tracks {merge} of {of} (--remote would push there)"
            )));
        }
        // In a clone of an empty repository every branch tracks one that does not exist yet. A removed
        // branch must not be made anew unasked. A branch that this clone has fetched counts as present.
        let is_known = git
            .ask(&["rev-parse", "--verify", "--quiet", "@{upstream}"])?
            .succeeded();
        let full = format!("refs/heads/{merge}");
        if is_known || tip(git, remote, &full, attempts, reporter)?.is_some() {
            return Ok(Self::Branch(merge.to_owned()));
        }
        Ok(Self::None(format!(
            "tracks {merge}, which is not there (--branch {merge} would make it)"
        )))
    }
}

/// The remote and the branch that two settings name.
fn configured<'a>(remote: &'a str, merge: &'a str) -> Result<(&'a str, &'a str), String> {
    let mut branches = merge.lines();
    match (remote, branches.next(), branches.next()) {
        ("", _, _) | (_, None, _) => Err("has no upstream".to_owned()),
        (_, _, Some(_)) => Err("has several upstreams".to_owned()),
        (".", _, _) => Err("tracks a branch of this clone itself".to_owned()),
        (remote, Some(merge), None) => match merge.strip_prefix("refs/heads/") {
            Some(branch) if !branch.is_empty() => Ok((remote, branch)),
            _ => Err(format!("tracks {merge}, which is no branch")),
        },
    }
}

/// The commit of a reference of the remote, if the remote has it.
pub(super) fn tip(
    git: &Git<'_>,
    remote: &str,
    reference: &str,
    attempts: &mut Attempts,
    reporter: &mut Reporter,
) -> Result<Option<String>, Failure> {
    let words = ["ls-remote", "--", remote, reference];
    let answer = asked(git, &words, attempts, reporter)?;
    // git also lists longer names that end like this one.
    let mut lines = answer
        .stdout
        .lines()
        .filter_map(|line| line.split_once('\t'));
    let found = lines.find(|(_, name)| *name == reference);
    Ok(found.map(|(commit, _)| commit.to_owned()))
}

/// The answer if this clone tracks a branch that the remote no longer has.
pub(super) fn gone(git: &Git<'_>, branch: &str, remote: &str) -> Failure {
    let mut failure = Failure::new(
        Exit::NotFound,
        "NO_UPSTREAM",
        format!(
            "{branch} is no longer there on {}, perhaps because it was merged; --branch {branch} would make it anew",
            without_secret(remote)
        ),
    );
    failure.fix_command = fix(git, branch, remote);
    failure.with_context(json!({ "remote": without_secret(remote), "branch": branch }))
}

/// The command that makes the branch; `None` where the remote may have a secret in it.
fn fix(git: &Git<'_>, branch: &str, remote: &str) -> Option<String> {
    let elsewhere = ["--remote", remote].into_iter();
    let elsewhere = elsewhere.filter(|_| remote != "origin");
    let words: Vec<_> = std::iter::once("push")
        .chain(elsewhere)
        .chain(["--branch", branch])
        .collect();
    (without_secret(remote) == remote).then(|| git.place.line(&words))
}

/// The answer if no setting says where a branch goes.
pub(super) fn unknown(
    git: &Git<'_>,
    branch: &str,
    why: &str,
    remote: &str,
    default: &str,
) -> Failure {
    let (remote_as_named, remote) = (remote, without_secret(remote));
    let mut failure = Failure::new(
        Exit::NotFound,
        "NO_UPSTREAM",
        format!(
            "{branch} {why}, and is not {default}, the default branch of {remote}; name the branch \
             with --branch"
        ),
    );
    failure.fix_command = fix(git, branch, remote_as_named);
    failure.with_context(json!({
        "remote": remote,
        "local_branch": branch,
        "default_branch": default,
    }))
}

#[cfg(test)]
mod tests {
    use super::configured;

    #[test]
    fn an_upstream_is_one_branch_of_a_remote() {
        let merge = "refs/heads/feature/wip\n";
        assert_eq!(configured("origin", merge), Ok(("origin", "feature/wip")));
        for (remote, merge, why) in [
            ("", "", "has no upstream"),
            ("origin", "", "has no upstream"),
            ("", merge, "has no upstream"),
            (".", merge, "tracks a branch of this clone itself"),
            (
                "origin",
                "refs/heads/a\nrefs/heads/b\n",
                "has several upstreams",
            ),
            (
                "origin",
                "refs/pull/7/head\n",
                "tracks refs/pull/7/head, which is no branch",
            ),
        ] {
            assert_eq!(configured(remote, merge), Err(why.to_owned()), "{merge:?}");
        }
    }
}
