//! The caller's own commits: those since the commit of the remote's branch from which HEAD has grown.
//!
//! A remote's branch may have been rewritten: a colleague has taken out a commit by force, or has amended one. The commits
//! that are gone are still below HEAD here, and a push would publish them again, even without a rebase. So a push
//! 1. expects the remote's branch where this clone has last seen it (`--force-with-lease`), if the commit that is pushed
//!    stands on that one. Such a push only ever adds commits. If the branch is elsewhere, git refuses it.
//! 2. rebases as `git pull --rebase` does: onto the new commits, and only the commits since the fork point. git finds that
//!    in the reflog of the remote-tracking branch. Without one, it is the commit of that branch, if HEAD stands on it.
//!
//! A lease forces, so it is given only with a commit that is named by its id and that was looked at: HEAD may be moved by
//! its user while git connects, or in the pause between two attempts.

use super::git::Git;
use super::target::PushTarget;
use super::upstream;
use crate::failure::Failure;

/// What this clone knows of the remote's branch.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct Base {
    /// The commit at which this clone has last seen it.
    seen: Option<String>,
    /// The commit of it from which HEAD has grown.
    fork: Option<String>,
    /// The remote is pushed to elsewhere than it is fetched from, so a push cannot expect what was fetched.
    is_elsewhere: bool,
    /// The branch was fetched by this push.
    is_fetched: bool,
}

/// What a clone knows of the branch, for one commit that is to be pushed there.
#[derive(Debug, Default)]
pub(super) struct BranchView {
    /// The branch has to be fetched first: the commit does not stand on what this clone has seen, this clone has seen already
    /// that the branch was rewritten below it, or no lease would tell of that.
    pub(super) needs_fetch: bool,
    /// The flag by which git refuses the push if the branch is elsewhere than this clone has seen it.
    pub(super) lease: Option<String>,
}

impl Base {
    /// What the clone knows before anything is fetched. A branch that this clone does not track is not known.
    pub(super) fn of(git: &Git<'_>, target: &PushTarget) -> Result<Self, Failure> {
        let Some(remote) = named(git, &target.remote)? else {
            return Ok(Self::default());
        };
        let rules = git.ask(&["config", "--get-all", &format!("remote.{remote}.fetch")])?;
        let reference = target.reference();
        let mut rules = rules.stdout.lines();
        let Some(track) = rules.find_map(|rule| mapped(rule, &reference)) else {
            return Ok(Self::default());
        };
        let seen = git.ask(&[
            "rev-parse",
            "--verify",
            "--quiet",
            &format!("{track}^{{commit}}"),
        ])?;
        if !seen.succeeded() {
            return Ok(Self::default());
        }
        let seen = seen.first_line().to_owned();
        let fork = git.ask(&["merge-base", "--fork-point", &track, "HEAD"])?;
        let fork = match fork.first_line() {
            "" if is_ancestor(git, &seen, "HEAD")? => Some(seen.clone()),
            "" => None,
            fork => Some(fork.to_owned()),
        };
        let from = git.ask(&["remote", "get-url", "--all", "--", &remote])?;
        let to = git.ask(&["remote", "get-url", "--all", "--push", "--", &remote])?;
        Ok(Self {
            seen: Some(seen),
            fork,
            is_elsewhere: from.stdout != to.stdout || to.stdout.lines().count() != 1,
            is_fetched: false,
        })
    }

    /// What it knows once this commit of the branch was fetched, and HEAD stands on it.
    pub(super) fn on(&self, theirs: &str) -> Self {
        Self {
            seen: Some(theirs.to_owned()),
            fork: Some(theirs.to_owned()),
            is_fetched: true,
            ..*self
        }
    }

    /// What is to be done before this commit is pushed.
    pub(super) fn sight(
        &self,
        git: &Git<'_>,
        commit: &str,
        reference: &str,
    ) -> Result<BranchView, Failure> {
        let Some(seen) = &self.seen else {
            return Ok(BranchView::default());
        };
        let stands = is_ancestor(git, seen, commit)?;
        let is_unsure = self.is_elsewhere && !self.is_fetched;
        Ok(BranchView {
            needs_fetch: is_unsure || !stands || self.withdrawn(git, seen)?.is_some(),
            lease: (stands && !self.is_elsewhere)
                .then(|| format!("--force-with-lease={reference}:{seen}")),
        })
    }

    /// Refuses to make a branch anew that this clone has seen and the remote no longer has, unless the call names it.
    pub(super) fn refuse_anew(&self, git: &Git<'_>, target: &PushTarget) -> Result<(), Failure> {
        if self.seen.is_some() && !target.is_named {
            return Err(upstream::gone(git, &target.branch, &target.remote));
        }
        Ok(())
    }

    /// The fork point, if the branch was rewritten: its commits at `theirs` no longer have that commit below them.
    pub(super) fn withdrawn(&self, git: &Git<'_>, theirs: &str) -> Result<Option<&str>, Failure> {
        match self.fork.as_deref() {
            Some(fork) if fork != theirs && !is_ancestor(git, fork, theirs)? => Ok(Some(fork)),
            _ => Ok(None),
        }
    }
}

/// The remote of this clone that a name or a URL means.
fn named(git: &Git<'_>, remote: &str) -> Result<Option<String>, Failure> {
    let all = git.ask(&["remote"])?;
    if all.stdout.lines().any(|name| name == remote) {
        return Ok(Some(remote.to_owned()));
    }
    for name in all.stdout.lines() {
        if git.ask(&["remote", "get-url", "--", name])?.first_line() == remote {
            return Ok(Some(name.to_owned()));
        }
    }
    Ok(None)
}

/// Where a rule like `+refs/heads/*:refs/remotes/origin/*` puts a reference. A rule of a mirror, which puts it among the
/// clone's own branches, shows nothing of the remote.
fn mapped(rule: &str, reference: &str) -> Option<String> {
    let (from, to) = rule.strip_prefix('+').unwrap_or(rule).split_once(':')?;
    let track = match (from.split_once('*'), to.split_once('*')) {
        (Some((before, after)), Some((first, last))) => {
            let part = reference.strip_prefix(before)?.strip_suffix(after)?;
            format!("{first}{part}{last}")
        }
        (None, None) if from == reference => to.to_owned(),
        _ => return None,
    };
    track.starts_with("refs/remotes/").then_some(track)
}

/// Whether a commit is another one, or below it.
pub(super) fn is_ancestor(git: &Git<'_>, one: &str, other: &str) -> Result<bool, Failure> {
    Ok(git
        .ask(&["merge-base", "--is-ancestor", one, other])?
        .succeeded())
}

#[cfg(test)]
mod tests {
    use super::mapped;

    #[test]
    fn a_rule_says_where_a_branch_is_tracked() {
        for (rule, reference, expected) in [
            (
                "+refs/heads/*:refs/remotes/origin/*",
                "refs/heads/a/b",
                Some("refs/remotes/origin/a/b"),
            ),
            (
                "refs/heads/main:refs/remotes/o/main",
                "refs/heads/main",
                Some("refs/remotes/o/main"),
            ),
            (
                "refs/heads/main:refs/remotes/o/main",
                "refs/heads/other",
                None,
            ),
            ("+refs/pull/*:refs/remotes/pr/*", "refs/heads/main", None),
            ("+refs/heads/*:refs/heads/*", "refs/heads/main", None),
            ("^refs/heads/secret", "refs/heads/secret", None),
            ("refs/heads/main", "refs/heads/main", None),
            ("refs/heads/main:", "refs/heads/main", None),
        ] {
            assert_eq!(
                mapped(rule, reference).as_deref(),
                expected,
                "{rule} {reference}"
            );
        }
    }
}
