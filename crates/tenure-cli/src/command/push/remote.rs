//! A remote repository: where it is, how a URL is shown without its secrets, and a question to it that is asked again
//! after a transient failure.
//!
//! `target` and `upstream` decide which remote and which branch are meant, `judge` what an answer of git says.

use super::Attempts;
use super::git::Git;
use super::judge::{self, GitAnswer};
use crate::failure::Failure;
use crate::render::Reporter;
use std::path::{Path, PathBuf};

/// Where a remote is. A remote without a name is its own URL.
pub(super) fn url_of(git: &Git<'_>, remote: &str) -> Result<String, Failure> {
    let url = git.ask(&["remote", "get-url", "--push", "--", remote])?;
    Ok(match url.first_line() {
        "" => remote.to_owned(),
        url => url.to_owned(),
    })
}

/// Asks the remote, again after each transient failure while an attempt is left.
pub(super) fn asked(
    git: &Git<'_>,
    words: &[&str],
    attempts: &mut Attempts,
    reporter: &mut Reporter,
) -> Result<GitAnswer, Failure> {
    loop {
        let answer = git.run(words, None)?;
        if answer.succeeded() {
            return Ok(answer);
        }
        if !judge::may_pass(&answer) {
            return Err(super::failed(&answer));
        }
        attempts.spend(reporter, &answer)?;
        attempts.pause(reporter)?;
    }
}

/// A URL without the user name and the password in it. They may change from run to run, and are secret.
pub(super) fn without_secret(url: &str) -> String {
    if let Some((scheme, rest)) = url.split_once("://")
        && !scheme.is_empty()
    {
        let host_end = rest.find('/').unwrap_or(rest.len());
        let (host, path) = rest.split_at(host_end);
        let host = host.rsplit_once('@').map_or(host, |(_, host)| host);
        return format!("{scheme}://{host}{path}");
    }
    url.to_owned()
}

/// A name for a repository, the same for each spelling as far as that can be known without asking the remote.
pub(super) fn place_of(url: &str, top: &Path) -> String {
    let path = match url.strip_prefix("file://") {
        Some(path) => Some(path),
        // `host:path` is ssh's way; a path with a colon in its first part is written `./a:b`.
        None if url.contains("://") => None,
        None => (!url.split('/').next().unwrap_or_default().contains(':')).then_some(url),
    };
    match path {
        Some(path) => {
            let path: PathBuf = top.join(path);
            let real = path.canonicalize().unwrap_or(path);
            real.to_string_lossy().into_owned()
        }
        None => without_secret(url),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_taken_out_of_urls() {
        for (url, shown) in [
            ("https://u:p@host/x", "https://host/x"),
            ("https://u:p@ss@host", "https://host"),
            ("https://host/a@b", "https://host/a@b"),
            ("git@host:a", "git@host:a"),
            ("origin", "origin"),
        ] {
            assert_eq!(without_secret(url), shown);
        }
    }
}
