//! Which commits are the caller's own: those since the commit of the remote's branch from which HEAD has grown.
//!
//! A remote's branch may have been rewritten: a colleague has taken out a commit by force, or has amended one. The commits
//! that are gone are still below HEAD here, and a push would publish them again, even without a rebase. So a push
//! 1. expects the remote's branch where this clone has last seen it (`--force-with-lease`), if HEAD stands on that commit.
//!    Such a push only ever adds commits. If the branch is elsewhere, git refuses it, and the pull below comes first.
//! 2. rebases as `git pull --rebase` does: onto the new commits, and only the commits since the fork point. git finds that
//!    in the reflog of the remote-tracking branch. Without one, it is the commit of that branch, if HEAD stands on it.

use super::git::Git;
use super::target::Target;
use crate::failure::Failure;

/// What this clone knows of the remote's branch.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct Base {
    /// The commit at which this clone has last seen it.
    seen: Option<String>,
    /// The commit of it from which HEAD has grown.
    fork: Option<String>,
    /// HEAD stands on `seen`.
    stands: bool,
}

impl Base {
    /// What the clone knows before anything is fetched. A branch that this clone does not track is not known.
    pub(super) fn of(git: &Git<'_>, target: &Target) -> Result<Self, Failure> {
        let Some(track) = tracking(git, target)? else {
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
        let stands = is_ancestor(git, &seen, "HEAD")?;
        let fork = git.ask(&["merge-base", "--fork-point", &track, "HEAD"])?;
        let fork = match fork.first_line() {
            "" => stands.then(|| seen.clone()),
            fork => Some(fork.to_owned()),
        };
        Ok(Self {
            seen: Some(seen),
            fork,
            stands,
        })
    }

    /// What it knows after a rebase onto this commit of the branch.
    pub(super) fn after(theirs: &str) -> Self {
        Self {
            seen: Some(theirs.to_owned()),
            fork: Some(theirs.to_owned()),
            stands: true,
        }
    }

    /// Whether this clone has seen the branch.
    pub(super) fn is_known(&self) -> bool {
        self.seen.is_some()
    }

    /// The flag by which git refuses the push if the branch is elsewhere than this clone has seen it.
    pub(super) fn lease(&self, reference: &str) -> Option<String> {
        let seen = self.seen.as_ref().filter(|_| self.stands)?;
        Some(format!("--force-with-lease={reference}:{seen}"))
    }

    /// Whether a pull has to come before the first push: HEAD does not stand on what this clone has seen of the branch, or
    /// this clone has seen already that the branch was rewritten below HEAD.
    pub(super) fn needs_pull(&self, git: &Git<'_>) -> Result<bool, Failure> {
        match &self.seen {
            Some(seen) => Ok(!self.stands || self.withdrawn(git, seen)?.is_some()),
            None => Ok(false),
        }
    }

    /// The fork point, if the branch was rewritten: its commits at `theirs` no longer have that commit below them.
    pub(super) fn withdrawn(&self, git: &Git<'_>, theirs: &str) -> Result<Option<&str>, Failure> {
        match self.fork.as_deref() {
            Some(fork) if !is_ancestor(git, fork, theirs)? => Ok(Some(fork)),
            _ => Ok(None),
        }
    }
}

/// The remote-tracking branch of the target, by the remote's own rules; `None` without one, as for a URL. Where the remote
/// is pushed to elsewhere than it is fetched from, this clone does not know what is there.
fn tracking(git: &Git<'_>, target: &Target) -> Result<Option<String>, Failure> {
    let remote = &target.remote;
    let from = git.ask(&["remote", "get-url", "--", remote])?;
    let to = git.ask(&["remote", "get-url", "--push", "--", remote])?;
    if !from.succeeded() || from.stdout != to.stdout {
        return Ok(None);
    }
    let rules = git.ask(&["config", "--get-all", &format!("remote.{remote}.fetch")])?;
    let reference = target.reference();
    Ok(rules
        .stdout
        .lines()
        .find_map(|rule| mapped(rule, &reference)))
}

/// Where a rule like `+refs/heads/*:refs/remotes/origin/*` puts a reference.
fn mapped(rule: &str, reference: &str) -> Option<String> {
    let (from, to) = rule.strip_prefix('+').unwrap_or(rule).split_once(':')?;
    match (from.split_once('*'), to.split_once('*')) {
        (Some((before, after)), Some((first, last))) => {
            let part = reference.strip_prefix(before)?.strip_suffix(after)?;
            Some(format!("{first}{part}{last}"))
        }
        (None, None) if from == reference && !to.is_empty() => Some(to.to_owned()),
        _ => None,
    }
}

fn is_ancestor(git: &Git<'_>, one: &str, other: &str) -> Result<bool, Failure> {
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
