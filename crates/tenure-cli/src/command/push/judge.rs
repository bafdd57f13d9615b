//! What git's answer to a push or pull means. It is done, another push was first, the remote could not
//! be reached, or it failed and no further attempt would change that.
//!
//! For each branch `git push --porcelain` says in fixed words how it went, and these words decide. Only if
//! git names no branch does its prose decide. That is git's own in the C locale; lines that the remote wrote
//! (`remote: …`) do not count. What is known to pass is tried as often as the caller wants, what is known to stay is not
//! tried again, and an unknown answer is tried [`UNKNOWN_MAX`] times: it may be a new word for a broken connection.
//!
//! Nothing here runs git.

use crate::render::clean;
use crate::supervise::End;

/// What git said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct GitAnswer {
    pub(super) end: End,
    pub(super) stdout: String,
    pub(super) stderr: String,
}

impl GitAnswer {
    pub(super) fn succeeded(&self) -> bool {
        self.end == End::Code(0)
    }

    /// The first line of the output.
    pub(super) fn first_line(&self) -> &str {
        self.stdout.lines().next().unwrap_or_default()
    }
}

/// How a push went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pushed {
    /// The remote's branch is where HEAD is; `already`: it was there before.
    Landed { already: bool },
    /// Another push was first, or is under way.
    Behind,
    /// The remote could not be reached, or was lost on the way.
    Unreachable,
    /// Another attempt would end the same way.
    Refused,
}

/// What git writes in brackets for a branch that another push has changed, or is changing.
const BEHIND: [&str; 8] = [
    "atomic transaction failed",
    "fetch first",
    "non-fast-forward",
    "stale info",
    "failed to update ref",
    "failed to lock",
    "incorrect old value provided",
    "reference already exists",
];

/// What git writes in brackets for such a branch, as the beginning of a longer text.
const BEHIND_BEGINNING: &str = "cannot lock ref";

/// What git writes when the connection or the server broke before an answer came.
const LOST: [&str; 2] = ["remote failed to report status", "Internal Server Error"];

/// Texts that make another attempt useless, whatever else git says.
const FINAL: [&str; 25] = [
    "Permission denied",
    "Authentication failed",
    "could not read Username",
    "could not read Password",
    "Host key verification failed",
    "epository not found",
    "does not appear to be a git repository",
    "returned error: 401",
    "returned error: 403",
    "returned error: 404",
    "certificate problem",
    "certificate verification failed",
    "' not found",
    "denied to",
    "read only",
    "uthentication failures",
    "insufficient permission",
    "dubious ownership",
    "by hook",
    "not allowed",
    "remote helper",
    "certificate subject name",
    "no such remote",
    "does not match any",
    "not a git repository",
];

/// How often what git says for the first time is tried.
pub(super) const UNKNOWN_MAX: u32 = 3;

/// What git says at the end of a push that was refused: by the remote, whose verdict is known then, or by a hook of this
/// clone.
const REFUSED: &str = "failed to push some refs";

/// What git, curl and ssh say of a connection that may work the next time.
const TRANSIENT: [&str; 39] = [
    "Could not resolve host",
    "Temporary failure in name resolution",
    "unable to look up",
    "Couldn't connect to server",
    "Failed to connect to",
    "unable to connect to",
    "ssh: connect to host",
    "Connection refused",
    "Connection reset",
    "Connection closed by",
    "Connection timed out",
    "Connection was reset",
    "Operation timed out",
    "Operation too slow",
    "Network is unreachable",
    "No route to host",
    "Empty reply from server",
    "Recv failure",
    "Send failure",
    "Broken pipe",
    "early EOF",
    "emote end hung up unexpectedly",
    "unexpected disconnect",
    "returned error: 408",
    "returned error: 429",
    "returned error: 5",
    "HTTP 5",
    "SSL_ERROR_SYSCALL",
    "TLS connection was non-properly terminated",
    "GnuTLS recv error",
    "nutls_handshake() failed",
    "GnuTLS, handshake failed",
    "unexpected eof",
    "was not closed cleanly",
    "transfer closed with",
    "esolving timed out",
    "connection timed out",
    "not responding",
    "expected flush after ref listing",
];

/// Judges a push to this branch, whose full name is given.
pub(super) fn push(answer: &GitAnswer, reference: &str) -> Pushed {
    let line = status(answer, reference);
    if answer.succeeded() {
        let already = line.is_some_and(|(flag, _)| flag == "=");
        return Pushed::Landed { already };
    }
    match line {
        Some(("!", summary)) => {
            let reason = reason(summary);
            if BEHIND.contains(&reason) || reason.starts_with(BEHIND_BEGINNING) {
                Pushed::Behind
            } else if LOST.iter().any(|lost| reason.eq_ignore_ascii_case(lost)) {
                Pushed::Unreachable
            } else {
                Pushed::Refused
            }
        }
        None if may_pass(answer) => Pushed::Unreachable,
        // If the branch got through, another reference that the configuration pushes with it did
        // not.
        Some(_) | None => Pushed::Refused,
    }
}

/// Whether the connection failed, or nobody knows what failed, so that another attempt may go well.
pub(super) fn may_pass(answer: &GitAnswer) -> bool {
    !says_any(answer, &FINAL) && (says_any(answer, &TRANSIENT) || is_unknown(answer))
}

/// Whether git has said what is not known here.
pub(super) fn is_unknown(answer: &GitAnswer) -> bool {
    let is_judged = answer.stdout.lines().any(|line| line.contains('\t'));
    let is_known = says_any(answer, &FINAL) || says_any(answer, &TRANSIENT);
    !answer.succeeded()
        && !is_judged
        && !is_known
        && !is_contended(answer)
        && !says_any(answer, &[REFUSED])
}

fn says_any(answer: &GitAnswer, texts: &[&str]) -> bool {
    ours(answer).any(|line| texts.iter().any(|text| line.contains(*text)))
}

/// Whether a pull met another git of this clone, which was writing the same reference, or had the index or HEAD locked. An
/// editor or a prompt does so for a moment.
pub(super) fn is_contended(answer: &GitAnswer) -> bool {
    ours(answer).any(|line| {
        line.contains(BEHIND_BEGINNING)
            || line.contains(".lock': File exists")
            || line.contains("Another git process seems to be running")
    })
}

/// The commit of a branch in the file that `git fetch` writes: `COMMIT TAB [not-for-merge] TAB branch 'NAME' of URL`.
pub(super) fn fetched<'a>(file: &'a str, branch: &str) -> Option<&'a str> {
    let about = format!("branch '{branch}' of ");
    file.lines().find_map(|line| {
        let mut fields = line.splitn(3, '\t');
        let (commit, _, from) = (fields.next()?, fields.next()?, fields.next()?);
        from.starts_with(&about).then_some(commit)
    })
}

/// Whether the remote cannot take several references together.
pub(super) fn knows_no_atomic(answer: &GitAnswer) -> bool {
    ours(answer).any(|line| line.contains("does not support --atomic"))
}

/// Whether a pull found no such branch: then HEAD is behind nothing.
pub(super) fn has_no_branch(answer: &GitAnswer) -> bool {
    ours(answer).any(|line| line.contains("couldn't find remote ref"))
}

/// The lines on stderr that the remote did not write.
fn ours(answer: &GitAnswer) -> impl Iterator<Item = &str> {
    let lines = answer.stderr.lines();
    lines.filter(|line| !line.starts_with("remote: "))
}

/// git's verdict on a branch: `flag TAB from:to TAB summary`.
fn status<'a>(answer: &'a GitAnswer, reference: &str) -> Option<(&'a str, &'a str)> {
    answer.stdout.lines().find_map(|line| {
        let mut fields = line.splitn(3, '\t');
        let (flag, names, summary) = (fields.next()?, fields.next()?, fields.next()?);
        let to = names.rsplit_once(':')?.1;
        (to == reference).then_some((flag, summary))
    })
}

/// What stands in the brackets at the end of `[rejected] (fetch first)`.
fn reason(summary: &str) -> &str {
    let inner = summary
        .split_once("] (")
        .and_then(|(_, rest)| rest.strip_suffix(')'));
    inner.unwrap_or(summary)
}

/// All that git said about a failure, for people: its verdicts on branches, and then its prose.
pub(super) fn words(answer: &GitAnswer) -> String {
    let verdicts = answer
        .stdout
        .lines()
        .filter(|line| line.starts_with("!\t"))
        .map(|line| line.replace('\t', " "));
    let prose = answer.stderr.lines().map(str::to_owned);
    let lines: Vec<_> = verdicts
        .chain(prose)
        .map(|line| clean(line.trim_end()).into_owned())
        .filter(|line| !line.is_empty())
        .collect();
    if lines.is_empty() {
        return match answer.end {
            End::Code(code) => format!("git ended with exit code {code} and said nothing"),
            End::Signal(number) => format!("git was ended by signal {number}"),
        };
    }
    lines.join("\n")
}

/// The line of these words that says most.
pub(super) fn headline(answer: &GitAnswer) -> String {
    let words = words(answer);
    let lines = || words.lines();
    let telling = lines()
        .find(|line| line.starts_with("! "))
        .or_else(|| lines().find(|line| line.starts_with("fatal: ")))
        .or_else(|| lines().find(|line| line.starts_with("error: ")))
        .or_else(|| lines().next());
    telling.unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAIN: &str = "refs/heads/main";

    fn answer(code: i32, stdout: &str, stderr: &str) -> GitAnswer {
        GitAnswer {
            end: End::Code(code),
            stdout: stdout.to_owned(),
            stderr: stderr.to_owned(),
        }
    }

    fn verdict(flag: &str, summary: &str) -> String {
        format!("To /srv/b.git\n{flag}\tHEAD:{MAIN}\t{summary}\nDone\n")
    }

    #[test]
    fn the_line_of_the_branch_decides() {
        use Pushed::{Behind, Landed, Refused, Unreachable};
        for (code, flag, summary, pushed) in [
            (0, " ", "a0e2aca..ca8dbd3", Landed { already: false }),
            (0, "*", "[new branch]", Landed { already: false }),
            (0, "=", "[up to date]", Landed { already: true }),
            (1, "!", "[rejected] (fetch first)", Behind),
            (1, "!", "[rejected] (non-fast-forward)", Behind),
            (1, "!", "[rejected] (stale info)", Behind),
            (1, "!", "[remote rejected] (failed to update ref)", Behind),
            (
                1,
                "!",
                "[remote rejected] (incorrect old value provided)",
                Behind,
            ),
            (
                1,
                "!",
                "[remote rejected] (reference already exists)",
                Behind,
            ),
            (
                1,
                "!",
                "[remote rejected] (cannot lock ref 'refs/heads/main': is at 1 but expected 2)",
                Behind,
            ),
            (
                1,
                "!",
                "[remote failure] (remote failed to report status)",
                Unreachable,
            ),
            (
                1,
                "!",
                "[remote rejected] (Internal Server Error)",
                Unreachable,
            ),
            (
                1,
                "!",
                "[remote rejected] (pre-receive hook declined)",
                Refused,
            ),
            (1, "!", "[remote rejected] (hook declined)", Refused),
            (
                1,
                "!",
                "[remote rejected] (protected branch hook declined)",
                Refused,
            ),
            (
                1,
                "!",
                "[remote rejected] (push declined due to repository rule violations)",
                Refused,
            ),
            (1, "!", "[remote rejected] (unpacker error)", Refused),
            (
                1,
                "!",
                "[remote rejected] (shallow update not allowed)",
                Refused,
            ),
            (1, "!", "[rejected] (something new)", Refused),
            (1, " ", "a0e2aca..ca8dbd3", Refused),
        ] {
            let said = answer(
                code,
                &verdict(flag, summary),
                "error: failed to push some refs\n",
            );
            assert_eq!(push(&said, MAIN), pushed, "{flag} {summary}");
        }
    }

    #[test]
    fn what_was_fetched_is_the_commit_of_the_branch() {
        let file = "aa\t\tbranch 'main' of /srv/b\nbb\tnot-for-merge\tbranch 'wip/x' of /srv/b\ncc\t\ttag 'main' of /srv/b\n";
        assert_eq!(fetched(file, "main"), Some("aa"));
        assert_eq!(fetched(file, "wip/x"), Some("bb"));
        assert_eq!(fetched(file, "wip"), None);
        assert_eq!(fetched("", "main"), None);
    }

    #[test]
    fn a_hooks_own_words_do_not_decide() {
        let stderr =
            "remote: Connection reset by peer (fetch first)\nerror: failed to push some refs\n";
        let said = answer(
            1,
            &verdict("!", "[remote rejected] (pre-receive hook declined)"),
            stderr,
        );
        assert_eq!(push(&said, MAIN), Pushed::Refused);
        assert_eq!(push(&answer(1, "", stderr), MAIN), Pushed::Refused);
    }

    #[test]
    fn the_line_of_another_branch_does_not_decide() {
        let said = answer(
            1,
            "!\tHEAD:refs/heads/other\t[rejected] (fetch first)\n",
            "",
        );
        assert_eq!(push(&said, MAIN), Pushed::Refused);
    }

    #[allow(clippy::too_many_lines, reason = "a table")]
    #[test]
    fn prose_decides_where_no_branch_was_spoken_of() {
        use Pushed::{Refused, Unreachable};
        for (stderr, pushed) in [
            (
                "fatal: 'nope' does not appear to be a git repository\nfatal: Could not read from remote repository.",
                Refused,
            ),
            (
                "fatal: unable to access 'https://h/x/': Failed to connect to h port 443 after 0 ms: Couldn't connect to server",
                Unreachable,
            ),
            (
                "fatal: unable to access 'https://h/x/': Could not resolve host: h",
                Unreachable,
            ),
            (
                "fatal: unable to connect to 127.0.0.1:\n127.0.0.1[0: 127.0.0.1]: errno=Connection refused",
                Unreachable,
            ),
            (
                "ssh: connect to host 127.0.0.1 port 1: Connection refused\nfatal: Could not read from remote repository.",
                Unreachable,
            ),
            (
                "ssh: Could not resolve hostname h: Temporary failure in name resolution\nfatal: Could not read from remote repository.",
                Unreachable,
            ),
            (
                "kex_exchange_identification: Connection closed by remote host\nfatal: Could not read from remote repository.",
                Unreachable,
            ),
            (
                "git@h: Permission denied (publickey).\nfatal: Could not read from remote repository.",
                Refused,
            ),
            (
                "git@h: Permission denied (publickey).\nConnection closed by 10.0.0.1 port 22",
                Refused,
            ),
            ("fatal: Authentication failed for 'https://h/x/'", Refused),
            (
                "fatal: could not read Username for 'https://h': terminal prompts disabled",
                Refused,
            ),
            (
                "fatal: unable to access 'https://h/x/': The requested URL returned error: 403",
                Refused,
            ),
            (
                "fatal: unable to access 'https://h/x/': The requested URL returned error: 503",
                Unreachable,
            ),
            (
                "fatal: unable to access 'https://h/x/': The requested URL returned error: 429",
                Unreachable,
            ),
            (
                "error: RPC failed; HTTP 502 curl 22 The requested URL returned error: 502\nfatal: the remote end hung up unexpectedly",
                Unreachable,
            ),
            (
                "ERROR: Repository not found.\nfatal: Could not read from remote repository.",
                Refused,
            ),
            ("error: src refspec HEAD does not match any", Refused),
            ("fatal: repository 'https://h/x/' not found", Refused),
            (
                "ERROR: Permission to u/r.git denied to somebody.\nfatal: Could not read from remote repository.",
                Refused,
            ),
            (
                "Received disconnect: Too many authentication failures",
                Refused,
            ),
            (
                "error: insufficient permission for adding an object to repository database",
                Refused,
            ),
            (
                "fatal: detected dubious ownership in repository at '/x'",
                Refused,
            ),
            ("fatal: ref updates aborted by hook", Refused),
            ("fatal: transport 'ext' not allowed", Refused),
            ("fatal: unable to find remote helper for 'foo'", Refused),
            // A hook of this clone.
            ("error: failed to push some refs to 'origin'", Refused),
            (
                "fatal: unable to access 'https://h/x/': OpenSSL SSL_read: error:0A000126:SSL routines::unexpected eof while reading, errno 0",
                Unreachable,
            ),
            (
                "error: RPC failed; curl 92 HTTP/2 stream 5 was not closed cleanly: CANCEL (err 8)",
                Unreachable,
            ),
            (
                "error: RPC failed; curl 18 transfer closed with outstanding read data remaining",
                Unreachable,
            ),
            (
                "fatal: unable to access 'https://h/x/': Resolving timed out after 5000 milliseconds",
                Unreachable,
            ),
            (
                "fatal: unable to access 'https://h/x/': gnutls_handshake() failed: The TLS connection was terminated",
                Unreachable,
            ),
            (
                "Timeout, server h not responding.\nfatal: Could not read from remote repository.",
                Unreachable,
            ),
            ("fatal: expected flush after ref listing", Unreachable),
            (
                "fatal: something that git has never said before",
                Unreachable,
            ),
            ("", Unreachable),
        ] {
            assert_eq!(push(&answer(128, "", stderr), MAIN), pushed, "{stderr}");
        }
    }

    #[test]
    fn what_people_read_is_whole_and_cannot_move_their_cursor() {
        let said = answer(
            1,
            &verdict("!", "[remote rejected] (hook declined)"),
            "remote: no\u{1b}[2J        \n\nerror: failed to push some refs\n",
        );
        let expected = "! HEAD:refs/heads/main [remote rejected] (hook declined)\n\
                        remote: no\u{fffd}[2J\nerror: failed to push some refs";
        assert_eq!(words(&said), expected);
        assert_eq!(
            headline(&said),
            "! HEAD:refs/heads/main [remote rejected] (hook declined)"
        );
        assert_eq!(
            words(&answer(3, "", "")),
            "git ended with exit code 3 and said nothing"
        );
    }
}
