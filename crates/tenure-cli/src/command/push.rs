//! `push`: pushes HEAD to a branch of a remote. If another push was first, it rebases and tries again.
//!
//! The rules:
//! - It tries again only where another attempt can succeed: another push came first or is under way, or the
//!   connection broke. Any other failure ends the call at once, in git's words.
//! - Between two attempts it pauses, and then does what `git pull --rebase` does: a fetch and a rebase. The
//!   pause doubles with each attempt, and a random part makes it differ between two callers.
//! - After a broken connection, a work tree that cannot be rebased is pushed again as it is: nothing says
//!   that another push was first.
//! - It forces nothing, and publishes nothing again that was taken out of the remote's branch (`base`). It rebases nothing
//!   that would not survive that: changes that are not committed, and merges that contain work of their own.
//! - It aborts a rebase that does not come to its end, whatever stopped it. Then HEAD, the index and the work
//!   tree are as before.
//! - Pushes of this user to one branch come one after the other. Their native lock lies outside of the tree
//!   that is pushed.
//!
//! # Crash safety
//! A `kill -9` in the middle of a rebase leaves it there, as it would with git alone. The next call sees
//! it and touches nothing. The lock is free when git has ended. A push is one change of the remote
//! reference, which has happened or not.
//!
//! `judge` says what git's answers mean, `target` where to push, and `upstream` what a branch tracks. `git`
//! runs git.

mod base;
mod git;
mod judge;
mod remote;
mod target;
mod upstream;

use super::ownership::already_held;
use super::refusal::cancelled;
use super::result::RunResult;
use super::run::acquire_all::{self, acquire_all};
use super::run::{ChildEnv, find_program, release_all};
use super::session::{Session, collect_signals};
use crate::exit::Exit;
use crate::failure::{Failure, Retry};
use crate::render::{Reporter, clean};
use crate::request::{self, Place};
use crate::signals::{self, Signals};
use base::{Base, BranchView};
use git::{Git, Hold, PHASE};
use judge::{GitAnswer, Pushed};
use serde_json::{Value, json};
use std::fmt::Write;
use std::path::Path;
use std::time::Duration;
use target::PushTarget;
use tenure_core::{
    Claim, Entry, Force, Holder, Kind, LockName, Patience, Request, Standing, Terms, pause_ms,
};
use tenure_engine::engine::Wait;
use tenure_os::clock::{Clock, instant, nap};
use tenure_store::file::{ThreadSleeper, poll_readable};
use tenure_store::profile::Native;

/// How long a sleep between attempts lasts before the time is looked at again.
const NAP_MAX: Duration = Duration::from_secs(30);

/// How long, and how often, a push tries to abort a rebase.
const ABORT_PATIENCE: Duration = Duration::from_secs(2);
const ABORT_PAUSE: Duration = Duration::from_millis(50);

/// How many of the files that conflict are named.
const CONFLICTS_SHOWN: usize = 5;

#[cold]
#[inline(never)]
pub(super) fn push(
    push: request::Push,
    reporter: &mut Reporter,
) -> Result<(String, Value), Failure> {
    let program = find_program(&["git".into()])?;
    let signals = collect_signals()?;
    let mut session = Session::waiting(push.place, signals)?;
    let git = Git {
        program,
        clock: &session.clock,
        signals,
        quiet: reporter.is_quiet(),
        place: &session.place,
    };
    let mut attempts = Attempts {
        made: 0,
        unknown: 0,
        limit: push.attempts,
        base_ms: u64::try_from(push.backoff.as_millis()).unwrap_or(u64::MAX),
        signals,
    };
    let target = target::find(
        &git,
        &push.remote,
        push.branch.as_deref(),
        &mut attempts,
        reporter,
    )?;
    if push.dry_run {
        return foretell(&git, &target, attempts, reporter);
    }

    let name = &target.lock;
    let wait = push.wait.or(session.place.defaults(name)?.wait());
    // Each push before this one comes to an end.
    let wait = wait.unwrap_or(Wait::Forever);
    refuse_within_itself(&session, name)?;
    let request = request_of(&session, &target)?;
    session.audit_writer.is_line(&request.holder.why);
    reporter.set_request_id(request.holder.request_id.as_str());
    let target_lock = acquire_all::RunTarget {
        session: &session,
        name: name.clone(),
        request,
    };
    let holds = acquire_all(vec![target_lock], wait.into(), reporter);
    let holds = holds.map_err(|(_, failure)| failure)?;
    let landed = match holds.first() {
        Some(lock) => {
            let heartbeat_failed = |consecutive, error: &str| {
                let now = session.clock.now();
                let occasion = lock.occasion(&now);
                session
                    .audit_writer
                    .heartbeat_failed(occasion, consecutive, error);
            };
            let mut hold = Hold {
                lock,
                child_env: ChildEnv::of_push(lock),
                life: lock.life.clone(),
                on_heartbeat_failed: &heartbeat_failed,
            };
            Push {
                git: &git,
                target: &target,
                attempts,
                rebased: false,
                base: Base::default(),
                is_atomic: git
                    .ask(&["config", "--type=bool", "--get", "push.followTags"])?
                    .first_line()
                    == "true",
            }
            .until_landed(&mut hold, reporter)
        }
        None => return Err(cancelled(PHASE)),
    };
    let result = RunResult::of(landed.is_ok(), Some("push"));
    release_all(&holds, reporter, &result);
    landed
}

/// Refuses a push in a hook of a push to the same branch. It would wait for the outer one, or go on beside it
/// if their locks are in different folders. The inherited hold names the folder.
fn refuse_within_itself(session: &Session, name: &LockName) -> Result<(), Failure> {
    session.refuse_own_hold(name)?;
    let inherited = tenure_engine::inherited::holds();
    for hold in inherited.iter().filter(|hold| hold.name == name.as_str()) {
        let place = Place::noted(&hold.folder, session.place.allow_network);
        let here = session.identity.host.clone();
        let store = place.and_then(|place| {
            place
                .open(Box::new(Native), here, Box::new(ThreadSleeper))
                .ok()
        });
        // A place that cannot be read excludes no push here.
        let Some(reading) = store.and_then(|store| store.read(name).ok()) else {
            continue;
        };
        let now = session.clock.now();
        let is_live = |claim: &&Claim| {
            let standing = reading.standing_of(session.store.policy(), claim, &now);
            Some(hold.token) == claim.token && matches!(standing, Standing::Held(_))
        };
        let mut granted = reading.entry().into_iter().flat_map(Entry::granted);
        if let Some(claim) = granted.find(is_live) {
            return Err(already_held(name, claim));
        }
    }
    Ok(())
}

/// Says what a push would do. It takes no lock and changes nothing, here or at the remote. Its answer may be
/// out of date an instant later.
fn foretell(
    git: &Git<'_>,
    target: &PushTarget,
    mut attempts: Attempts,
    reporter: &mut Reporter,
) -> Result<(String, Value), Failure> {
    refuse_while_rebasing(git)?;
    let commit = git.tell(&["rev-parse", "--verify", "HEAD^{commit}"])?;
    let there = upstream::tip(
        git,
        &target.remote,
        &target.reference(),
        &mut attempts,
        reporter,
    )?;
    let base = Base::of(git, target)?;
    if there.is_none() {
        base.refuse_anew(git, target)?;
    }
    let count = |range: String| -> Result<Option<u64>, Failure> {
        Ok(git.tell(&["rev-list", "--count", &range])?.parse().ok())
    };
    let (ahead, behind) = match &there {
        Some(there) => {
            let is_known = git
                .ask(&["cat-file", "-e", &format!("{there}^{{commit}}")])?
                .succeeded();
            if is_known {
                // What was taken out there is left out here.
                let own = base.withdrawn(git, there)?.unwrap_or(there);
                let ahead = count(format!("{own}..HEAD"))?;
                let behind = count(format!("HEAD..{there}"))?;
                (
                    ahead,
                    behind.map(|behind| behind.max(u64::from(own != there))),
                )
            } else {
                (None, None)
            }
        }
        None => (None, Some(0)),
    };
    let remote = remote::without_secret(&target.remote);
    let branch = &target.branch;
    let already = there.as_deref() == Some(commit.as_str());
    let commits = match ahead {
        Some(1) => "1 commit".to_owned(),
        Some(ahead) => format!("{ahead} commits"),
        None => "what is not there yet".to_owned(),
    };
    let text = if already {
        format!("{branch} of {remote} is at {commit} already")
    } else if there.is_none() {
        format!("would make {branch} of {remote} at {commit}")
    } else if behind == Some(0) {
        format!("would push {commits} to {branch} of {remote}, up to {commit}")
    } else {
        format!(
            "{branch} of {remote} has commits that HEAD has not: would rebase {commits} onto them \
             and push"
        )
    };
    let data = json!({
        "remote": remote,
        "branch": branch,
        "commit": commit,
        "dry_run": true,
        "already": already,
        "makes_branch": there.is_none(),
        "ahead": ahead,
        "behind": behind,
    });
    Ok((text, data))
}

/// Refuses to push in the middle of a rebase.
fn refuse_while_rebasing(git: &Git<'_>) -> Result<(), Failure> {
    if is_rebasing(git)? {
        return Err(Failure::new(
            Exit::General,
            "REBASE_IN_PROGRESS",
            "a rebase is in progress here, so HEAD is not what is to be pushed; finish it with \
             `git rebase --continue`, or end it with `git rebase --abort`",
        ));
    }
    Ok(())
}

/// Whether a rebase (or `git am`) has begun in this work tree and not ended.
fn is_rebasing(git: &Git<'_>) -> Result<bool, Failure> {
    let words = ["--git-path", "rebase-merge", "--git-path", "rebase-apply"];
    let answer = git.ask(&[&["rev-parse"], &words[..]].concat())?;
    if !answer.succeeded() {
        return Err(failed(&answer));
    }
    Ok(answer.stdout.lines().any(|path| Path::new(path).is_dir()))
}

/// The request for the lock.
fn request_of(session: &Session, target: &PushTarget) -> Result<Request, Failure> {
    let remote = remote::without_secret(&target.remote);
    Ok(Request {
        holder: Holder {
            facts: Vec::new(),
            request_id: session.format.request_id(None)?,
            actor: session.actor(None),
            process: Some(session.identity.process),
            command: None,
            host: session.identity.host.clone().into(),
            why: tenure_store::profile::why(&format!("git push {remote} HEAD:{}", target.branch)),
        },
        kind: Kind::Kernel,
        ttl_ms: session.store.policy().supervised_ttl_ms,
        force: Force::No,
        patience: Patience::Default,
        terms: Terms::default(),
    })
}

/// How many attempts were made, and how many are allowed.
struct Attempts {
    made: u32,
    /// How many of them failed in a way that nobody knows.
    unknown: u32,
    limit: u32,
    base_ms: u64,
    signals: Signals,
}

impl Attempts {
    /// Counts a failed attempt. An error, if it was the last one.
    fn spend(&mut self, reporter: &Reporter, answer: &GitAnswer) -> Result<(), Failure> {
        self.made = self.made.saturating_add(1);
        self.unknown += u32::from(judge::is_unknown(answer));
        if self.unknown >= judge::UNKNOWN_MAX {
            return Err(failed(answer));
        }
        let words = judge::words(answer);
        if self.made < self.limit {
            reporter.explain(&words);
            return Ok(());
        }
        let last = format!("Failed to push after {} attempts", self.limit);
        let mut failure = Failure::new(Exit::General, "PUSH_EXHAUSTED", &last)
            .with_text(format!("{words}\n{last}"));
        failure.retry = Some(Retry::exponential(pause_ms(
            self.base_ms,
            self.made,
            u32::MAX / 2,
        )));
        failure.detail = Some(words);
        Err(failure.with_context(json!({ "attempts": self.made })))
    }

    /// Waits before the next one.
    fn pause(&self, reporter: &mut Reporter) -> Result<(), Failure> {
        let pause = pause_ms(self.base_ms, self.made, random());
        reporter.warn(format!(
            "Push attempt {}/{} failed. Retrying in {pause}ms",
            self.made, self.limit
        ));
        let until = instant().checked_add(Duration::from_millis(pause));
        loop {
            if signals::stop_asked().is_some() {
                return Err(cancelled(PHASE));
            }
            if until.is_some_and(|until| instant() >= until) {
                return Ok(());
            }
            poll_readable(&[self.signals.descriptor()], NAP_MAX, until).map_err(|error| {
                Failure::new(
                    Exit::General,
                    "NO_SIGNALS",
                    format!("the pause between two attempts failed: {error}"),
                )
            })?;
            // A stop that came while git ran has reached git; one that comes now is for this process.
            while let Some(arrived) = self.signals.next() {
                if arrived.number == libc::SIGTSTP {
                    signals::stop_self(arrived.number);
                }
            }
            signals::pause_if_asked();
        }
    }
}

/// A random number. A system without randomness gives the middle one, and so a pause all the same.
fn random() -> u32 {
    let mut bytes = [0; 4];
    match tenure_os::process::fill_randomly(&mut bytes) {
        Ok(()) => u32::from_ne_bytes(bytes),
        Err(_) => u32::MAX / 2,
    }
}

/// How a pull ended.
enum Pulled {
    /// HEAD stands on top of the remote's commits.
    Done,
    /// The remote could not be reached, or another git was writing the same reference.
    Unreachable(GitAnswer),
}

/// How a fetch ended.
enum Fetched {
    /// The branch is at this commit.
    Commit(String),
    /// The remote has no such branch.
    Gone,
    /// The remote could not be reached, or another git was writing the same reference.
    Unreachable(GitAnswer),
}

/// How the commits that the remote does not have can be rebased.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Rebase {
    Plain,
    /// Some of the commits are merges, which git makes anew.
    Merges,
    /// Some of the commits are merges, and what was merged is rebased as well.
    Cousins,
}

impl Rebase {
    fn flag(self) -> &'static str {
        match self {
            Self::Plain => "--no-rebase-merges",
            Self::Merges => "--rebase-merges",
            Self::Cousins => "--rebase-merges=rebase-cousins",
        }
    }
}

/// A push with all of its attempts.
struct Push<'a> {
    git: &'a Git<'a>,
    target: &'a PushTarget,
    attempts: Attempts,
    rebased: bool,
    /// What this clone knows of the remote's branch.
    base: Base,
    /// git pushes tags with the branch (`push.followTags`). They land together, or not at all: a refused attempt leaves no
    /// tag behind that is on no branch.
    is_atomic: bool,
}

impl Push<'_> {
    fn until_landed(
        mut self,
        hold: &mut Hold<'_>,
        reporter: &mut Reporter,
    ) -> Result<(String, Value), Failure> {
        refuse_while_rebasing(self.git)?;
        let reference = self.target.reference();
        self.base = Base::of(self.git, self.target)?;
        // Whether the branch was fetched since the last attempt.
        let mut has_looked = false;
        loop {
            // HEAD is looked at once for each attempt: what is pushed is what was looked at.
            let (mut commit, mut sight) = self.look(&reference)?;
            if sight.needs_fetch {
                self.pull_until_reached(hold, reporter)?;
                (commit, sight) = self.look(&reference)?;
            }
            let is_leased = sight.lease.is_some();
            let words = self.words(&commit, sight.lease);
            let mut answer = self.git.run(&words, Some(hold))?;
            // People know the commit as HEAD.
            answer.stdout = answer.stdout.replace(&format!("{commit}:"), "HEAD:");
            if self.is_atomic && judge::knows_no_atomic(&answer) {
                self.is_atomic = false;
                continue;
            }
            let somebody_was_first = match judge::push(&answer, &reference) {
                Pushed::Landed { already } => {
                    return Ok(self.landed(&answer, &commit, already, reporter));
                }
                Pushed::Refused => return Err(failed(&answer)),
                Pushed::Behind => true,
                Pushed::Unreachable => false,
            };
            // What this clone had seen may only have been old.
            if somebody_was_first && is_leased && !has_looked {
                has_looked = true;
                if self.stands_on_theirs(hold, &commit)? {
                    continue;
                }
            }
            has_looked = false;
            self.attempts.spend(reporter, &answer)?;
            // After a broken connection nothing says that there is anything to rebase on.
            let rebases = self.is_clean()?;
            if somebody_was_first && !rebases {
                return Err(self.changed());
            }
            self.attempts.pause(reporter)?;
            if rebases {
                self.pull_until_reached(hold, reporter)?;
            }
        }
    }

    /// The commit of HEAD, and what this clone knows of the branch for it.
    fn look(&self, reference: &str) -> Result<(String, BranchView), Failure> {
        let commit = self.git.tell(&["rev-parse", "--verify", "HEAD^{commit}"])?;
        let sight = self.base.sight(self.git, &commit, reference)?;
        Ok((commit, sight))
    }

    /// The words of one attempt.
    fn words(&self, commit: &str, lease: Option<String>) -> Vec<String> {
        let mut words = vec!["push".to_owned(), "--porcelain".to_owned()];
        words.push(String::from(if self.is_atomic {
            "--atomic"
        } else {
            "--no-follow-tags"
        }));
        words.extend(lease);
        words.push(self.target.remote.clone());
        words.push(format!("{commit}:{}", self.target.reference()));
        words
    }

    /// Fetches the branch. Whether this commit stands on it, so that nothing has to be rebased.
    fn stands_on_theirs(&mut self, hold: &mut Hold<'_>, commit: &str) -> Result<bool, Failure> {
        let theirs = match self.fetch(hold)? {
            Fetched::Commit(theirs) => theirs,
            Fetched::Gone => {
                self.gone()?;
                return Ok(true);
            }
            // The attempt counts.
            Fetched::Unreachable(_) => return Ok(false),
        };
        let stands = base::is_ancestor(self.git, &theirs, commit)?
            && self.base.withdrawn(self.git, &theirs)?.is_none();
        if stands {
            self.base = self.base.on(&theirs);
        }
        Ok(stands)
    }

    fn pull_until_reached(
        &mut self,
        hold: &mut Hold<'_>,
        reporter: &mut Reporter,
    ) -> Result<(), Failure> {
        while let Pulled::Unreachable(answer) = self.pull(hold, reporter)? {
            self.attempts.spend(reporter, &answer)?;
            self.attempts.pause(reporter)?;
        }
        Ok(())
    }

    fn changed(&self) -> Failure {
        self.not_rebased(
            "WORK_TREE_CHANGED",
            "there are changes here that are not committed; commit or stash them",
        )
    }

    fn landed(
        self,
        answer: &GitAnswer,
        commit: &str,
        already: bool,
        reporter: &mut Reporter,
    ) -> (String, Value) {
        let said = answer.stderr.lines().map(str::trim_end);
        for line in said.filter(|line| line.starts_with("remote: ")) {
            reporter.warn(clean(line));
        }
        let remote = remote::without_secret(&self.target.remote);
        let branch = &self.target.branch;
        let attempts = self.attempts.made.saturating_add(1);
        let text = if already {
            format!("{branch} of {remote} is at {commit} already")
        } else if attempts == 1 {
            format!("pushed {commit} to {branch} of {remote}")
        } else {
            format!("pushed {commit} to {branch} of {remote} at attempt {attempts}")
        };
        let data = json!({
            "remote": remote,
            "branch": branch,
            "commit": commit,
            "already": already,
            "attempts": attempts,
            "rebased": self.rebased,
        });
        (text, data)
    }

    /// Whether no tracked file differs from HEAD.
    fn is_clean(&self) -> Result<bool, Failure> {
        let status = [
            "--no-optional-locks",
            "status",
            "--porcelain",
            "--untracked-files=no",
            "--ignore-submodules=all",
        ];
        let status = self.git.ask(&status)?;
        if status.succeeded() {
            Ok(status.stdout.is_empty())
        } else {
            Err(failed(&status))
        }
    }

    /// How the commits that are not in `theirs` can be rebased. Refuses if a rebase would lose something of them.
    fn rebase(&self, theirs: &[&str]) -> Result<Rebase, Failure> {
        if self.merges(&[], theirs)?.is_empty() {
            return Ok(Rebase::Plain);
        }
        if self.merges(&["--remerge-diff"], theirs)?.is_empty() {
            return Ok(Rebase::Merges);
        }
        Err(self.not_rebased(
            "MERGE_BY_HAND",
            "there are merges among your commits in which something was settled by hand, and a \
             rebase would lose that; merge instead",
        ))
    }

    /// The merges that are not in `theirs`; with `--remerge-diff`, how they differ from those that git alone
    /// would have made.
    fn merges(&self, how: &[&str], theirs: &[&str]) -> Result<String, Failure> {
        let format = if how.is_empty() {
            "--format=%H"
        } else {
            "--format="
        };
        let range = [format, "HEAD", "--not"];
        let words = [&["log", "--merges"][..], how, &range[..], theirs].concat();
        let answer = self.git.ask(&words)?;
        if answer.succeeded() {
            Ok(answer.stdout)
        } else {
            Err(failed(&answer))
        }
    }

    fn not_rebased(&self, code: &'static str, why: &str) -> Failure {
        let (remote, branch) = (
            remote::without_secret(&self.target.remote),
            &self.target.branch,
        );
        Failure::new(
            Exit::General,
            code,
            format!("{branch} of {remote} has moved on, and nothing was rebased: {why}"),
        )
        .with_context(json!({ "remote": remote, "branch": branch }))
    }

    /// Puts the local commits on top of the remote's, as `git pull --rebase` does. However it ends, it leaves
    /// no rebase behind.
    fn pull(&mut self, hold: &mut Hold<'_>, reporter: &mut Reporter) -> Result<Pulled, Failure> {
        let theirs = match self.fetch(hold)? {
            Fetched::Commit(theirs) => theirs,
            Fetched::Gone => return self.gone(),
            Fetched::Unreachable(answer) => return Ok(Pulled::Unreachable(answer)),
        };
        let before = self.git.tell(&["rev-parse", "HEAD"])?;
        let withdrawn = self.base.withdrawn(self.git, &theirs)?.map(str::to_owned);
        if withdrawn.is_none() && base::is_ancestor(self.git, &theirs, &before)? {
            self.base = self.base.on(&theirs);
            return Ok(Pulled::Done);
        }
        if !self.is_clean()? {
            return Err(self.changed());
        }
        if let Some(answer) = self.locked()? {
            return Ok(Pulled::Unreachable(answer));
        }
        let without: Vec<&str> = withdrawn
            .iter()
            .map(String::as_str)
            .chain([&*theirs])
            .collect();
        let rebase = match self.rebase(&without)? {
            // What is merged there must not stay where it was: that may be on top of what is gone.
            Rebase::Merges if withdrawn.is_some() => Rebase::Cousins,
            rebase => rebase,
        };
        let call = ["rebase", "--no-autostash", rebase.flag(), "--onto", &theirs];
        let upstream = withdrawn.as_ref().unwrap_or(&theirs);
        let answer = self.git.run(&[&call[..], &[upstream]].concat(), Some(hold));
        if is_rebasing(self.git)? {
            let conflicts = self.abort(&before)?;
            let answer = answer?;
            if conflicts.is_empty() && judge::is_contended(&answer) {
                return Ok(Pulled::Unreachable(answer));
            }
            return Err(self.unrebased(&answer, &conflicts));
        }
        let answer = answer?;
        if !answer.succeeded() {
            let is_as_before = self.git.tell(&["rev-parse", "HEAD"])? == before;
            if is_as_before && judge::is_contended(&answer) && self.is_clean()? {
                return Ok(Pulled::Unreachable(answer));
            }
            let mut failure = failed(&answer);
            if !self.is_clean()? {
                // A full disk, a filter that failed: git gives up in the middle of a checkout, and
                // has nothing to abort. Which changes are the user's cannot be told here either.
                failure.code = "REBASE_NOT_ABORTED".into();
                failure.partial = true;
                failure.text = failure.text.map(|text| {
                    format!(
                        "{text}\ngit has left files changed here; your commits are safe, and \
                         `git reset --hard` brings the files back to them"
                    )
                });
            }
            return Err(failure);
        }
        self.rebased |= self.git.tell(&["rev-parse", "HEAD"])? != before;
        if let Some(fork) = withdrawn {
            self.check_rewritten(&theirs, &fork, &before, reporter)?;
        }
        self.base = self.base.on(&theirs);
        Ok(Pulled::Done)
    }

    /// Fetches the remote's branch.
    fn fetch(&self, hold: &mut Hold<'_>) -> Result<Fetched, Failure> {
        let reference = self.target.reference();
        let answer = self
            .git
            .run(&["fetch", &self.target.remote, &reference], Some(hold))?;
        if judge::has_no_branch(&answer) {
            return Ok(Fetched::Gone);
        }
        if !answer.succeeded() {
            return not_fetched(answer);
        }
        let path = self.git.tell(&["rev-parse", "--git-path", "FETCH_HEAD"])?;
        let fetched = std::fs::read_to_string(path).unwrap_or_default();
        Ok(match judge::fetched(&fetched, &self.target.branch) {
            Some(theirs) => Fetched::Commit(theirs.to_owned()),
            // Another fetch of this clone has written its own meanwhile.
            None => Fetched::Unreachable(answer),
        })
    }

    /// What git would say of a lock of another git (of an editor, of a prompt) on the index, HEAD or the branch. A rebase that
    /// meets one of the last two has changed files by then, and undoes nothing.
    fn locked(&self) -> Result<Option<GitAnswer>, Failure> {
        let branch = upstream::checked_out(self.git)?;
        let branch = branch.map(|branch| format!("refs/heads/{branch}.lock"));
        let mut words = vec!["rev-parse"];
        for lock in ["index.lock", "HEAD.lock"]
            .into_iter()
            .chain(branch.as_deref())
        {
            words.extend(["--git-path", lock]);
        }
        let answer = self.git.ask(&words)?;
        if !answer.succeeded() {
            return Err(failed(&answer));
        }
        let locked = answer.stdout.lines().find(|path| Path::new(path).exists());
        Ok(locked.map(|path| GitAnswer {
            stdout: String::new(),
            stderr: format!("another git has locked '{path}': File exists"),
            end: crate::supervise::End::Code(1),
        }))
    }

    /// Says that commits which the remote no longer has were left out. If a merge has kept one of them, takes the rebase back
    /// and refuses.
    fn check_rewritten(
        &self,
        theirs: &str,
        fork: &str,
        before: &str,
        reporter: &mut Reporter,
    ) -> Result<(), Failure> {
        let list = |commit: &str| self.git.ask(&["rev-list", commit, "--not", theirs]);
        let gone = list(fork)?.stdout;
        let gone: Vec<&str> = gone.lines().collect();
        if list("HEAD")?
            .stdout
            .lines()
            .any(|commit| gone.contains(&commit))
        {
            // No tracked file was changed before the rebase.
            self.git.tell(&["reset", "--quiet", "--keep", before])?;
            return Err(self.not_rebased(
                "MERGE_BY_HAND",
                "it was rewritten, and a merge of yours contains commits that it no longer has; rebase or merge by \
                 hand",
            ));
        }
        let commits = match gone.len() {
            1 => "1 commit that it no longer has was".to_owned(),
            count => format!("{count} commits that it no longer has were"),
        };
        let remote = remote::without_secret(&self.target.remote);
        reporter.warn(format!(
            "{} of {remote} was rewritten there; {commits} left out, as `git pull --rebase` does (HEAD was {before})",
            self.target.branch
        ));
        Ok(())
    }

    /// What follows from a branch that the remote does not have: it is made if the caller names it, or if this clone has
    /// never seen it.
    fn gone(&mut self) -> Result<Pulled, Failure> {
        self.base.refuse_anew(self.git, self.target)?;
        self.base = Base::default();
        Ok(Pulled::Done)
    }

    /// Ends a rebase that has stopped, and names the files that were in its way.
    fn abort(&self, before: &str) -> Result<Vec<String>, Failure> {
        let conflicts = ["diff", "--name-only", "--diff-filter=U", "-z"];
        let conflicts = self.git.ask(&conflicts)?.stdout;
        let patience = instant().checked_add(ABORT_PATIENCE);
        let aborted = loop {
            let aborted = self.git.ask(&["rebase", "--abort"])?;
            let is_over = patience.is_none_or(|patience| instant() >= patience);
            // Another git (of an editor, of a prompt) may use the index for a moment.
            if aborted.succeeded() || is_over {
                break aborted;
            }
            nap(ABORT_PAUSE);
        };
        let now = self.git.tell(&["rev-parse", "HEAD"])?;
        if !aborted.succeeded() || now != before {
            let mut failure = Failure::new(
                Exit::General,
                "REBASE_NOT_ABORTED",
                format!(
                    "the rebase could not be aborted ({}); HEAD was {before}",
                    judge::headline(&aborted)
                ),
            );
            failure.fix_command = Some("git rebase --abort".to_owned());
            failure.partial = true;
            failure.detail = Some(judge::words(&aborted));
            return Err(failure);
        }
        let conflicts = conflicts.split('\0').filter(|path| !path.is_empty());
        Ok(conflicts.map(|line| clean(line).into_owned()).collect())
    }

    /// The answer after a rebase that was aborted.
    fn unrebased(&self, answer: &GitAnswer, conflicts: &[String]) -> Failure {
        let remote = remote::without_secret(&self.target.remote);
        let branch = &self.target.branch;
        if conflicts.is_empty() {
            // The rebase stopped for another reason, and what git advises about that no longer fits.
            let sentence = format!(
                "git stopped the rebase onto {branch} of {remote}, and it was aborted; everything is as it was before it"
            );
            let mut failure = failed(answer);
            failure.text = Some(format!("{sentence}\n{}", failure.message));
            failure.message = format!("{sentence}: {}", failure.message);
            return failure;
        }
        let (shown, more) = conflicts.split_at(conflicts.len().min(CONFLICTS_SHOWN));
        let mut files = shown.join(", ");
        if !more.is_empty() {
            // Writing into a string does not fail.
            let _ = write!(files, " and {} more", more.len());
        }
        let sentence = format!(
            "your commits conflict with {branch} of {remote} in {files}; the rebase was aborted, \
             and everything is as it was before it"
        );
        let mut failure =
            Failure::new(Exit::General, "REBASE_CONFLICT", &sentence).with_text(format!(
                "{sentence}\nsettle it with `git pull --rebase {remote} {branch}`, then push again"
            ));
        failure.detail = Some(judge::words(answer));
        failure.with_context(json!({
            "remote": remote,
            "branch": branch,
            "conflicts": conflicts,
            "attempts": self.attempts.made,
        }))
    }
}

/// What a failed fetch means for the pull.
fn not_fetched(answer: GitAnswer) -> Result<Fetched, Failure> {
    if judge::may_pass(&answer) || judge::is_contended(&answer) {
        return Ok(Fetched::Unreachable(answer));
    }
    Err(failed(&answer))
}

/// A failure of git, in git's words.
fn failed(answer: &GitAnswer) -> Failure {
    let words = judge::words(answer);
    let mut failure = Failure::new(Exit::General, "PUSH_FAILED", judge::headline(answer))
        .with_text(words.clone());
    failure.detail = Some(words);
    failure
}
