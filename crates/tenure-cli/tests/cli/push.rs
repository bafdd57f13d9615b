//! `push`, with real git and real repositories: what is pushed lands, what others pushed stays,
//! and whatever goes wrong leaves the clone as it was.

use crate::support::{Answer, Gate, Scene, Started, answer, eventually};
use rustix::process::Signal;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A bare repository, and clones of it. The lock of a push lies in the user's own folder, which leads
/// to the scene's; what a run around the push would name is another one.
struct Shared {
    scene: Scene,
}

impl Shared {
    /// With one commit on `main`.
    fn new() -> Self {
        let shared = Self::empty();
        let first = shared.clone("first");
        shared.commit(&first, "README", "hello\n");
        shared.git(&first, &["push", "-q", "origin", "HEAD:main"]);
        shared
    }

    fn empty() -> Self {
        let scene = Scene::new();
        let config = "[user]\nname = tester\nemail = tester@localhost\n[init]\ndefaultBranch = main\n\
                      [gc]\nauto = 0\n[maintenance]\nauto = false\n";
        fs::write(scene.path(".gitconfig"), config).unwrap();
        fs::create_dir(scene.locks()).unwrap();
        let own = scene.path(".local/state/tenure");
        fs::create_dir_all(&own).unwrap();
        symlink(scene.locks(), own.join("locks")).unwrap();
        let shared = Self { scene };
        shared.git(shared.scene.root(), &["init", "-q", "--bare", "shared.git"]);
        shared
    }

    fn bare(&self) -> PathBuf {
        self.scene.path("shared.git")
    }

    fn clone(&self, name: &str) -> PathBuf {
        let words = ["clone", "-q", "shared.git", name];
        self.git(self.scene.root(), &words);
        self.scene.path(name)
    }

    fn prepare(command: &mut Command, folder: &Path) {
        command.current_dir(folder).env("GIT_CONFIG_NOSYSTEM", "1");
    }

    /// Git itself; answers with what it printed.
    #[track_caller]
    fn git(&self, folder: &Path, words: &[&str]) -> String {
        let mut command = self.scene.program("git");
        Self::prepare(&mut command, folder);
        let said = answer(command.args(words)).expect(0, &format!("git {words:?}"));
        said.stdout()
    }

    fn commit(&self, clone: &Path, file: &str, text: &str) {
        fs::write(clone.join(file), text).unwrap();
        self.git(clone, &["add", file]);
        self.git(clone, &["commit", "-q", "-m", file]);
    }

    /// Another user's push, which comes first.
    fn overtake(&self, file: &str, text: &str) {
        let other = self.scene.path("first");
        self.git(&other, &["pull", "-q", "--rebase", "origin", "main"]);
        self.commit(&other, file, text);
        self.git(&other, &["push", "-q", "origin", "HEAD:main"]);
    }

    /// `tenure push` in a clone, with short pauses.
    fn command(&self, clone: &Path, words: &[&str]) -> Command {
        let all = ["push", "--backoff", "20ms"].iter().chain(words);
        let mut command = self.scene.tenure(all);
        Self::prepare(&mut command, clone);
        command.env("TENURE_DIR", self.scene.path("of-a-run"));
        command
    }

    fn push(&self, clone: &Path, words: &[&str]) -> Answer {
        answer(&mut self.command(clone, words))
    }

    fn start(&self, clone: &Path, words: &[&str]) -> Started {
        let mut command = self.command(clone, words);
        Started::new(command.stdout(Stdio::piped()).stderr(Stdio::piped()))
    }

    /// A hook of the bare repository or a clone.
    fn hook(folder: &Path, name: &str, script: &str) {
        let path = folder.join("hooks").join(name);
        fs::create_dir_all(folder.join("hooks")).unwrap();
        fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    /// Everything that a failed push must leave as it was: HEAD and its branch, the index, what
    /// differs from it, and the files themselves.
    fn standing(&self, clone: &Path) -> Vec<String> {
        let mut all: Vec<String> = [
            &["rev-parse", "HEAD"][..],
            &["symbolic-ref", "HEAD"],
            &["ls-files", "--stage"],
            &["diff"],
            &["diff", "--cached"],
            &["status", "--porcelain=v2", "--branch", "--ignored"],
            &["stash", "list"],
        ]
        .iter()
        .map(|words| self.git(clone, words))
        // How far a branch is behind is learned by every fetch.
        .map(|said| {
            let lines = said.lines().filter(|line| !line.starts_with("# branch.ab"));
            lines.collect::<Vec<_>>().join("\n")
        })
        .collect();
        let mut files: Vec<_> = fs::read_dir(clone)
            .unwrap()
            .map(|item| item.unwrap().path())
            .filter(|path| path.is_file())
            .map(|path| format!("{}: {}", path.display(), fs::read_to_string(&path).unwrap()))
            .collect();
        files.sort();
        all.extend(files);
        for leftover in ["rebase-merge", "rebase-apply", "MERGE_HEAD", "index.lock"] {
            assert!(
                !clone.join(".git").join(leftover).exists(),
                "{leftover} is left behind"
            );
        }
        all
    }

    fn count(&self) -> usize {
        let count = self.git(&self.bare(), &["rev-list", "--count", "main"]);
        count.trim().parse().unwrap()
    }
}

fn lines(answer: &Answer) -> Vec<String> {
    answer.stderr().lines().map(str::to_owned).collect()
}

/// The milliseconds of a line that has exactly this form.
#[track_caller]
fn pause(line: &str, attempt: u32, of: u32) -> u64 {
    let begin = format!("Push attempt {attempt}/{of} failed. Retrying in ");
    line.strip_prefix(&begin)
        .and_then(|rest| rest.strip_suffix("ms"))
        .and_then(|number| number.parse().ok())
        .unwrap_or_else(|| panic!("{line:?} is not {begin}…ms"))
}

/// Five clones, each with commits of its own, push at the same instant. Their locks are in one
/// folder or each in one of its own, as on five machines.
fn all_land(one_machine: bool) {
    const CLONES: usize = 5;
    const COMMITS: usize = 3;
    let shared = Shared::new();
    let clones: Vec<_> = (0..CLONES)
        .map(|number| {
            let clone = shared.clone(&format!("clone-{number}"));
            for commit in 0..COMMITS {
                let file = format!("file-{number}-{commit}");
                shared.commit(&clone, &file, &format!("{file}\n"));
            }
            clone
        })
        .collect();
    let started: Vec<_> = clones
        .iter()
        .enumerate()
        .map(|(number, clone)| {
            let mut words = vec!["--output", "json"];
            if !one_machine {
                words.extend(["--attempts", "50"]);
            }
            let mut command = shared.command(clone, &words);
            if !one_machine {
                let state = shared.scene.path(&format!("state-{number}"));
                command.env("XDG_STATE_HOME", state);
            }
            Started::new(command.stdout(Stdio::piped()).stderr(Stdio::piped()))
        })
        .collect();
    for push in started {
        let answer = push.finish().expect(0, "each of them lands");
        let attempts = answer.json()["data"]["attempts"].as_u64().unwrap();
        if one_machine {
            // The others pushed while it waited for its turn, and none pushes during its turn.
            assert!(attempts <= 2, "{attempts} attempts by turns");
        }
    }
    assert_eq!(shared.count(), 1 + CLONES * COMMITS, "no commit is lost");
    for number in 0..CLONES {
        for commit in 0..COMMITS {
            let file = format!("file-{number}-{commit}");
            let text = shared.git(&shared.bare(), &["show", &format!("main:{file}")]);
            assert_eq!(text, format!("{file}\n"), "its content is there");
        }
    }
}

#[test]
fn five_clones_on_five_machines_all_land() {
    all_land(false);
}

#[test]
fn five_clones_on_one_machine_land_one_after_the_other() {
    all_land(true);
}

#[test]
fn a_push_that_comes_second_is_rebased_and_says_so_in_one_line() {
    let shared = Shared::new();
    let clone = shared.clone("mine");
    shared.commit(&clone, "mine", "1\n");
    shared.overtake("theirs", "2\n");
    let answer = shared.push(&clone, &[]).expect(0, "it lands");
    let said = lines(&answer);
    assert_eq!(said.len(), 1, "{said:?}");
    let millis = pause(&said[0], 1, 5);
    assert!(
        (15..=25).contains(&millis),
        "{millis} is 20 ms, a quarter more or less"
    );
    let head = shared.git(&clone, &["rev-parse", "HEAD"]);
    let there = shared.git(&shared.bare(), &["rev-parse", "main"]);
    assert_eq!(head, there);
    let expected = format!("pushed {} to main of origin at attempt 2\n", head.trim());
    assert_eq!(answer.stdout(), expected);
    assert_eq!(shared.count(), 3);
    let again = shared
        .push(&clone, &[])
        .expect(0, "nothing is left to push");
    assert_eq!(
        again.stdout(),
        format!("main of origin is at {} already\n", head.trim())
    );
}

#[test]
fn the_last_attempt_ends_with_the_last_line() {
    let shared = Shared::new();
    let clone = shared.clone("mine");
    shared.commit(&clone, "mine", "1\n");
    // As if another push were under way for ever.
    fs::write(shared.bare().join("refs/heads/main.lock"), "").unwrap();
    let answer = shared
        .push(&clone, &["--attempts", "3"])
        .expect(1, "in vain");
    let said = lines(&answer);
    let first = pause(&said[0], 1, 3);
    let second = pause(&said[1], 2, 3);
    assert!((15..=25).contains(&first), "{first}");
    assert!((30..=50).contains(&second), "{second}");
    assert_eq!(said.last().unwrap(), "Failed to push after 3 attempts");
    assert!(answer.stderr().contains("failed to update ref"), "{said:?}");
    assert_eq!(answer.stdout(), "");
    let once = shared
        .push(&clone, &["--attempts", "1"])
        .expect(1, "in vain");
    assert!(!once.stderr().contains("Retrying"), "{}", once.stderr());
    assert!(once.stderr().ends_with("Failed to push after 1 attempts\n"));
    let quiet = shared
        .push(&clone, &["-q", "--attempts", "2"])
        .expect(1, "in vain");
    assert!(!quiet.stderr().contains("Retrying"), "{}", quiet.stderr());
}

#[test]
fn a_conflict_leaves_everything_as_it_was() {
    let shared = Shared::new();
    let clone = shared.clone("mine");
    shared.commit(&clone, ".gitignore", "ignored\n");
    shared.commit(&clone, "README", "mine\n");
    fs::write(clone.join("ignored"), "kept\n").unwrap();
    fs::write(clone.join("untracked"), "kept\n").unwrap();
    shared.overtake("README", "theirs\n");
    let before = shared.standing(&clone);
    let answer = shared.push(&clone, &[]).expect(1, "it cannot be rebased");
    assert_eq!(shared.standing(&clone), before);
    let said = lines(&answer);
    assert_eq!(
        said[1],
        "your commits conflict with main of origin in README; the rebase was aborted, and \
         everything is as it was before it"
    );
    let json = shared
        .push(&clone, &["--output", "json"])
        .expect(1, "as before");
    let error = &json.json()["error"];
    assert_eq!(error["code"], "REBASE_CONFLICT");
    assert_eq!(error["context"]["conflicts"], serde_json::json!(["README"]));
    assert_eq!(shared.standing(&clone), before);
}

/// A file that is in the way of a rebase stops it before it begins, or in its middle.
#[test]
fn an_untracked_file_in_the_way_stays_and_so_does_everything_else() {
    let shared = Shared::new();
    let clone = shared.clone("mine");
    shared.commit(&clone, "mine", "1\n");
    fs::write(clone.join("both"), "not committed\n").unwrap();
    shared.overtake("both", "theirs\n");
    let before = shared.standing(&clone);
    let answer = shared
        .push(&clone, &[])
        .expect(1, "git does not overwrite it");
    assert!(answer.stderr().contains("both"), "{}", answer.stderr());
    assert_eq!(shared.standing(&clone), before);
}

/// Git gives up in the middle of a checkout; nothing is thrown away to hide that.
#[test]
fn a_checkout_that_fails_half_way_is_told() {
    let shared = Shared::new();
    let clone = shared.clone("mine");
    shared.commit(&clone, "mine", "1\n");
    shared.overtake("theirs", "2\n");
    shared.git(&clone, &["config", "filter.broken.smudge", "false"]);
    shared.git(&clone, &["config", "filter.broken.required", "true"]);
    let attributes = clone.join(".git/info/attributes");
    fs::write(attributes, "theirs filter=broken\n").unwrap();
    let head = shared.git(&clone, &["rev-parse", "HEAD"]);
    let answer = shared.push(&clone, &[]).expect(1, "a filter that fails");
    assert!(answer.stderr().contains("theirs"), "{}", answer.stderr());
    assert_eq!(shared.git(&clone, &["rev-parse", "HEAD"]), head);
    assert!(
        !clone.join(".git/rebase-merge").exists(),
        "no rebase is left"
    );
    let left = shared.git(&clone, &["status", "--porcelain", "--untracked-files=no"]);
    assert_eq!(
        !left.is_empty(),
        answer.stderr().contains("git has left files changed here"),
        "{left:?} and {}",
        answer.stderr()
    );
}

#[test]
fn changes_that_are_not_committed_are_never_touched() {
    let shared = Shared::new();
    let clone = shared.clone("mine");
    shared.commit(&clone, "mine", "1\n");
    fs::write(clone.join("README"), "staged\n").unwrap();
    shared.git(&clone, &["add", "README"]);
    fs::write(clone.join("README"), "and changed again\n").unwrap();
    shared.git(&clone, &["config", "rebase.autoStash", "true"]);
    let before = shared.standing(&clone);
    shared
        .push(&clone, &[])
        .expect(0, "nothing has to be rebased");
    assert_eq!(shared.count(), 2);
    shared.git(&clone, &["reset", "-q", "--soft", "HEAD"]);
    assert_eq!(
        shared.standing(&clone)[1..],
        before[1..],
        "a push changes nothing here"
    );

    shared.git(&clone, &["stash", "-q"]);
    shared.commit(&clone, "mine", "2\n");
    shared.git(&clone, &["stash", "pop", "-q", "--index"]);
    shared.overtake("theirs", "2\n");
    let before = shared.standing(&clone);
    let answer = shared
        .push(&clone, &[])
        .expect(1, "it would have to be rebased");
    assert_eq!(
        answer.stderr(),
        "main of origin has moved on, and nothing was rebased: there are changes here that are \
         not committed; commit or stash them\n",
        "at once, without a pause"
    );
    assert_eq!(shared.standing(&clone), before);
}

#[test]
fn a_hook_that_declines_ends_it_at_once() {
    let shared = Shared::new();
    for hook in ["pre-receive", "update"] {
        let clone = shared.clone(hook);
        shared.commit(&clone, hook, "1\n");
        Shared::hook(
            &shared.bare(),
            hook,
            "echo 'fetch first, not today' >&2; exit 1",
        );
        let before = shared.standing(&clone);
        let answer = shared.push(&clone, &[]).expect(1, hook);
        let said = answer.stderr();
        assert!(
            said.starts_with("! HEAD:refs/heads/main [remote rejected]"),
            "{said}"
        );
        assert!(said.contains("remote: fetch first, not today"), "{said}");
        assert!(
            !said.contains("Retrying") && !said.contains("attempt"),
            "{said}"
        );
        assert_eq!(shared.standing(&clone), before);
        fs::remove_dir_all(shared.bare().join("hooks")).unwrap();
    }
}

#[test]
fn a_remote_that_is_not_there_ends_it_at_once() {
    let shared = Shared::new();
    let clone = shared.clone("mine");
    for words in [
        &["--remote", "nope"][..],
        &["--remote", "nope", "--branch", "main"],
        &["--remote", "/no/such/repository", "--branch", "main"],
    ] {
        let answer = shared
            .push(&clone, words)
            .expect(1, "there is no such remote");
        let said = answer.stderr();
        assert!(
            said.contains("does not appear to be a git repository"),
            "{said}"
        );
        assert!(!said.contains("Retrying"), "{said}");
    }
    let outside = shared
        .push(shared.scene.root(), &[])
        .expect(1, "no repository");
    assert!(outside.stderr().contains("not a git repository"));
}

/// An `ssh` that runs its command here, after it has failed as the file says, once for each line.
fn ssh(shared: &Shared, failures: &str) -> String {
    let todo = shared.scene.path("ssh-failures");
    fs::write(&todo, failures).unwrap();
    let script = shared.scene.path("ssh");
    let text = format!(
        "#!/bin/sh\nif [ -s '{todo}' ]; then\n  head -n 1 '{todo}' >&2\n  sed -i 1d '{todo}'\n  \
         exit 255\nfi\nfor last; do :; done\nexec sh -c \"$last\"\n",
        todo = todo.display()
    );
    fs::write(&script, text).unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    script.display().to_string()
}

#[test]
fn a_broken_connection_is_tried_again_and_a_refused_login_is_not() {
    let shared = Shared::new();
    let clone = shared.clone("mine");
    shared.commit(&clone, "mine", "1\n");
    let url = format!("ssh://host{}", shared.bare().display());
    shared.git(&clone, &["remote", "set-url", "origin", &url]);
    let push = |failures: &str, words: &[&str]| {
        let ssh = ssh(&shared, failures);
        let mut command = shared.command(&clone, words);
        answer(
            command
                .env("GIT_SSH_COMMAND", ssh)
                .env("GIT_SSH_VARIANT", "ssh"),
        )
    };
    let refused = push(
        "git@host: Permission denied (publickey).\n",
        &["--branch", "main"],
    )
    .expect(1, "the server refuses the login");
    assert!(
        !refused.stderr().contains("Retrying"),
        "{}",
        refused.stderr()
    );
    assert!(refused.stderr().contains("Permission denied"));

    // With a change that is not committed: nothing has to be rebased, so it is no hindrance.
    fs::write(clone.join("README"), "changed\n").unwrap();
    let reset = "kex_exchange_identification: Connection reset by peer\n";
    let landed = push(&reset.repeat(2), &["--branch", "main"]).expect(0, "it lands");
    let said = lines(&landed);
    assert_eq!(said.len(), 2, "{said:?}");
    pause(&said[0], 1, 5);
    pause(&said[1], 2, 5);
    assert_eq!(
        fs::read_to_string(clone.join("README")).unwrap(),
        "changed\n"
    );

    // The question for the default branch and the pull are attempts like any other.
    shared.git(&clone, &["checkout", "-q", "README"]);
    shared.git(&clone, &["remote", "set-head", "origin", "--delete"]);
    shared.git(&clone, &["branch", "-q", "--unset-upstream"]);
    shared.commit(&clone, "mine", "2\n");
    shared.overtake("theirs", "2\n");
    let landed = push(reset, &["--output", "json"]).expect(0, "it lands");
    let document = landed.json();
    assert_eq!(document["data"]["attempts"], 3, "{document}");
    assert_eq!(document["data"]["rebased"], true, "{document}");
    let end = push(&reset.repeat(2), &["--attempts", "2"]).expect(1, "in vain");
    assert!(end.stderr().ends_with("Failed to push after 2 attempts\n"));

    // What nobody knows is tried three times in all.
    let unknown = "something that ssh has never said before\n";
    let end = push(&unknown.repeat(9), &["--branch", "main"]).expect(1, "in vain");
    let retries = lines(&end)
        .into_iter()
        .filter(|line| line.contains("Retrying"));
    assert_eq!(retries.count(), 2, "{}", end.said());
    assert!(end.stderr().contains("never said before"), "{}", end.said());
    let _ = push(&unknown.repeat(2), &["--branch", "main"]).expect(0, "the third one lands");
}

/// Another git of this clone keeps the reference that the pull wants to write.
#[test]
fn a_pull_that_meets_another_git_is_tried_again() {
    let shared = Shared::new();
    let clone = shared.clone("mine");
    shared.commit(&clone, "mine", "1\n");
    shared.overtake("theirs", "2\n");
    let lock = clone.join(".git/refs/remotes/origin/main.lock");
    fs::write(&lock, "").unwrap();
    let before = shared.standing(&clone);
    let words = ["--attempts", "3"];
    let answer = shared.push(&clone, &words).expect(1, "for ever in the way");
    assert!(answer.stderr().contains("cannot lock ref"));
    assert!(
        answer
            .stderr()
            .ends_with("Failed to push after 3 attempts\n")
    );
    assert_eq!(shared.standing(&clone), before);
    fs::remove_dir_all(clone.join(".git/refs/remotes/origin")).unwrap();
    shared
        .push(&clone, &words)
        .expect(0, "no longer in the way");
}

#[test]
fn a_url_and_a_head_without_a_branch_will_do() {
    let shared = Shared::new();
    let clone = shared.clone("mine");
    shared.git(&clone, &["checkout", "-q", "-b", "side"]);
    shared.commit(&clone, "side", "1\n");
    shared.git(&clone, &["checkout", "-q", "main"]);
    shared.git(&clone, &["merge", "-q", "--no-commit", "--no-ff", "side"]);
    shared.commit(&clone, "in-the-merge", "1\n");
    shared
        .push(&clone, &[])
        .expect(0, "a merge by hand, which the remote has too");
    shared.git(&clone, &["remote", "remove", "origin"]);
    shared.git(&clone, &["checkout", "-q", "--detach"]);
    shared.commit(&clone, "mine", "1\n");
    shared.overtake("theirs", "2\n");
    let url = format!("file://{}", shared.bare().display());
    let answer = shared
        .push(&clone, &["--remote", &url, "--output", "json"])
        .expect(0, "it lands");
    let data = answer.json()["data"].clone();
    assert_eq!(data["branch"], "main", "{data}");
    assert_eq!(data["rebased"], true, "{data}");
    let there = shared.git(&shared.bare(), &["rev-parse", "main"]);
    assert_eq!(data["commit"], there.trim());
}

#[test]
fn the_default_branch_is_the_remotes() {
    let shared = Shared::empty();
    let first = shared.clone("first");
    shared.commit(&first, "README", "hello\n");
    let answer = shared
        .push(&first, &[])
        .expect(5, "an empty repository has none");
    assert_eq!(
        answer.stderr(),
        "origin has no default branch yet (it is empty, or its HEAD names none); name the branch \
         with --branch\n"
    );
    shared
        .push(&first, &["--branch", "trunk"])
        .expect(0, "a branch that is made by it");
    shared
        .push(&first, &["--branch", "refs/heads/topic/x"])
        .expect(0, "a full name");
    shared.git(
        &shared.bare(),
        &["symbolic-ref", "HEAD", "refs/heads/trunk"],
    );
    shared.commit(&first, "README", "2\n");
    // A branch of its own would have to say where it goes.
    shared.git(&first, &["checkout", "-q", "--detach"]);
    let asked = shared
        .push(&first, &["--output", "json"])
        .expect(0, "the remote is asked");
    assert_eq!(asked.json()["data"]["branch"], "trunk");
    let known = "refs/remotes/origin/HEAD";
    shared.git(
        &first,
        &["symbolic-ref", known, "refs/remotes/origin/topic/x"],
    );
    let told = shared
        .push(&first, &["--output", "json"])
        .expect(0, "the clone knows");
    assert_eq!(told.json()["data"]["branch"], "topic/x");
    shared.git(&first, &["symbolic-ref", known, "refs/remotes/origin/gone"]);
    let asked = shared
        .push(&first, &["--output", "json"])
        .expect(0, "what the clone knows is out of date");
    assert_eq!(asked.json()["data"]["branch"], "trunk");
}

#[test]
fn bad_words_are_refused_before_anything_is_touched() {
    let shared = Shared::new();
    let clone = shared.clone("mine");
    shared.commit(&clone, "mine", "1\n");
    for words in [
        &["--attempts", "0"][..],
        &["--attempts", "101"],
        &["--backoff", "soon"],
        &["--remote", ""],
        &["--remote=--upload-pack=x"],
        &["--branch", ""],
        &["--branch=-d"],
        &["--branch", "refs/tags/x"],
        &["--branch", "HEAD"],
        &["--branch", "@"],
        &["--branch", "a..b"],
        &["--wait", "soon"],
        &["--profile", "session"],
        &["more"],
    ] {
        let mut command = shared.scene.tenure(["push"].iter().chain(words));
        Shared::prepare(&mut command, &clone);
        let answer = answer(&mut command).expect(2, &format!("{words:?}"));
        assert_eq!(answer.stderr().lines().count(), 1, "{}", answer.stderr());
    }
    assert_eq!(shared.count(), 1);
    assert!(no_lock(&shared), "no lock was taken");
}

/// A rebase that stands still in its middle, in a merge driver of the clone's.
fn standstill(shared: &Shared, clone: &Path) -> Gate {
    let gate = Gate::new(&shared.scene, "merging");
    let script = shared.scene.path("merging.sh");
    fs::write(&script, gate.script("")).unwrap();
    let driver = format!("sh '{}'", script.display());
    shared.git(clone, &["config", "merge.slow.driver", &driver]);
    fs::write(clone.join(".git/info/attributes"), "README merge=slow\n").unwrap();
    gate
}

/// Where an interrupt may hit a rebase: while it checks out what others pushed, and while it makes
/// a commit of ours anew.
fn interrupted(signal: Signal, code: i32, prepare: &dyn Fn(&Shared, &Path, &str)) {
    let shared = Shared::new();
    let clone = shared.clone("mine");
    shared.commit(&clone, "other", "1\n");
    shared.commit(&clone, "mine", "1\n");
    shared.overtake("README", "theirs\n");
    fs::write(clone.join("untracked"), "kept\n").unwrap();
    let before = shared.standing(&clone);
    let gate = Gate::new(&shared.scene, "rebasing");
    let once = shared.scene.path("once");
    let script = format!(
        "if mkdir '{}' 2>/dev/null; then\n{}\nfi",
        once.display(),
        gate.script("")
    );
    prepare(&shared, &clone, &script);
    let push = shared.start(&clone, &["--output", "json"]);
    gate.entered();
    let rebasing = clone.join(".git/rebase-merge");
    assert!(rebasing.exists(), "it is in its middle");
    push.signal(signal);
    let answer = push.finish().expect(code, "cancelled");
    assert_eq!(answer.json()["error"]["code"], "CANCELLED");
    assert_eq!(answer.json()["error"]["phase"], "push");
    assert_eq!(shared.standing(&clone), before);
    let name = lock_name(&shared);
    assert!(shared.scene.is_free(&name), "the lock is given back");
    assert_eq!(shared.count(), 2, "nothing was pushed");
}

const ENDING: [(Signal, i32); 3] = [(Signal::INT, 130), (Signal::TERM, 143), (Signal::HUP, 129)];

#[test]
fn an_interrupt_while_files_are_checked_out_leaves_no_rebase_behind() {
    for (signal, code) in ENDING {
        interrupted(signal, code, &|shared, clone, script| {
            let filter = shared.scene.path("filter.sh");
            fs::write(&filter, format!("({script}) >/dev/null\ncat")).unwrap();
            let filter = format!("sh '{}'", filter.display());
            shared.git(clone, &["config", "filter.slow.smudge", &filter]);
            fs::write(clone.join(".git/info/attributes"), "README filter=slow\n").unwrap();
        });
    }
}

#[test]
fn an_interrupt_while_a_commit_is_made_anew_leaves_no_rebase_behind() {
    for (signal, code) in ENDING {
        interrupted(signal, code, &|_, clone, script| {
            Shared::hook(&clone.join(".git"), "prepare-commit-msg", script);
        });
    }
}

#[test]
fn an_interrupt_ends_a_pause_at_once() {
    let shared = Shared::new();
    let clone = shared.clone("mine");
    shared.commit(&clone, "mine", "1\n");
    fs::write(shared.bare().join("refs/heads/main.lock"), "").unwrap();
    let mut command = shared.scene.tenure(["push", "--backoff", "1h"]);
    Shared::prepare(&mut command, &clone);
    let mut push = Started::new(command.stdout(Stdio::null()).stderr(Stdio::piped()));
    let mut said = [0; 12];
    std::io::Read::read_exact(push.stderr(), &mut said).unwrap();
    assert_eq!(&said, b"Push attempt");
    push.signal(Signal::TERM);
    push.finish().expect(143, "cancelled");
}

fn no_lock(shared: &Shared) -> bool {
    fs::read_dir(shared.scene.locks()).unwrap().count() == 0
}

/// The only lock in the folder.
fn lock_name(shared: &Shared) -> String {
    let list = shared.scene.run(["list", "--output", "json"]).json();
    let locks = list["data"]["locks"].as_array().unwrap();
    assert_eq!(locks.len(), 1, "{list}");
    locks[0]["name"].as_str().unwrap().to_owned()
}

#[test]
fn pushes_to_one_branch_wait_for_each_other() {
    let shared = Shared::new();
    let clone = shared.clone("mine");
    shared.push(&clone, &[]).expect(0, "nothing to push");
    let name = lock_name(&shared);
    assert!(name.starts_with("push-shared-main-"), "{name}");
    let holder = shared.scene.hold(&name, ["-q"]);
    shared.commit(&clone, "mine", "1\n");

    let refused = shared
        .push(&clone, &["--wait", "50ms"])
        .expect(4, "not in time");
    assert!(refused.stderr().contains(&name), "{}", refused.stderr());
    shared
        .push(&clone, &["-n", "-E", "9"])
        .expect(9, "not at all");
    assert_eq!(shared.count(), 1, "nothing was pushed");

    let interrupted = shared.start(&clone, &[]);
    shared.scene.until_queued(&name, 1);
    interrupted.signal(Signal::INT);
    interrupted.finish().expect(130, "the wait is interrupted");

    // Another clone, by another way to the same place: the same lock.
    let other = shared.clone("other");
    shared.git(&other, &["remote", "set-url", "origin", "../shared.git"]);
    let waiting = shared.start(&other, &[]);
    shared.scene.until_queued(&name, 1);
    holder.open().expect(0, "the holder ends");
    waiting
        .finish()
        .expect(0, "without a limit, it waits as long as it takes");
    shared
        .push(&clone, &["--branch", "topic"])
        .expect(0, "another branch has another lock");
    let list = shared.scene.run(["list", "--output", "json"]).json();
    assert_eq!(list["data"]["locks"].as_array().unwrap().len(), 2, "{list}");
    assert!(
        !shared.scene.path("of-a-run").exists(),
        "the folder of a run around the push has none of it"
    );
}

#[test]
fn a_folder_for_the_lock_counts_only_if_the_push_itself_names_it() {
    let shared = Shared::new();
    let clone = shared.clone("mine");
    fs::write(clone.join("tenure.toml"), "dir = \"of-the-project\"\n").unwrap();
    let named = shared.scene.path("named");
    let seen = shared.scene.path("seen");
    let script = format!(
        "echo \"$TENURE_DIR\" >'{0}'; tenure push; echo $? >>'{0}'; exit 0",
        seen.display()
    );
    Shared::hook(&clone.join(".git"), "pre-push", &script);
    shared.commit(&clone, "one", "1\n");
    let mut push = shared.command(&clone, &[]);
    answer(push.env_remove("TENURE_DIR")).expect(0, "it lands");
    assert!(!clone.join("of-the-project").exists());
    assert!(lock_name(&shared).starts_with("push-shared-main-"));

    shared.commit(&clone, "two", "2\n");
    let words = ["--dir", named.to_str().unwrap()];
    shared.push(&clone, &words).expect(0, "it lands");
    assert_eq!(
        fs::read_dir(&named).unwrap().count(),
        2,
        "the lock is there, and what is recorded of it"
    );
    let of_a_run = shared.scene.path("of-a-run").display().to_string();
    assert_eq!(
        fs::read_to_string(&seen)
            .unwrap()
            .lines()
            .collect::<Vec<_>>(),
        [of_a_run.as_str(), "81"],
        "hooks keep the place of their own locks, and a push in a hook knows the one around it"
    );

    let mut homeless = shared.command(&clone, &[]);
    homeless
        .env_remove("HOME")
        .env("GIT_CONFIG_GLOBAL", "/dev/null");
    let homeless = answer(&mut homeless).expect(2, "no folder is known");
    assert!(homeless.stderr().contains("--dir"), "{}", homeless.stderr());
}

/// Where `tenure push` goes, as its dry run says and as it does.
#[track_caller]
fn goes_to(shared: &Shared, clone: &Path, words: &[&str]) -> String {
    let before = shared.git(&shared.bare(), &["for-each-ref"]);
    let json = ["--output", "json"];
    let all = [words, &json, &["--dry-run"]].concat();
    let told = shared.push(clone, &all).expect(0, "a dry run").json();
    assert_eq!(shared.git(&shared.bare(), &["for-each-ref"]), before);
    let done = shared.push(clone, &[words, &json].concat());
    let done = done.expect(0, "it lands").json();
    assert_eq!(told["data"]["branch"], done["data"]["branch"], "{told:#}");
    done["data"]["branch"].as_str().unwrap().to_owned()
}

#[test]
fn a_branch_is_pushed_to_its_upstream() {
    let shared = Shared::new();
    let main = shared.git(&shared.bare(), &["rev-parse", "main"]);
    let clone = shared.clone("mine");
    shared.git(&clone, &["checkout", "-q", "-b", "feature/wip"]);
    shared.commit(&clone, "one", "1\n");
    shared.git(&clone, &["push", "-q", "-u", "origin", "feature/wip"]);
    shared.commit(&clone, "two", "2\n");
    assert_eq!(goes_to(&shared, &clone, &[]), "feature/wip");

    // A local branch of another name, and a clone that knows nothing but its own branch.
    let words = ["checkout", "-q", "-b", "wip", "origin/feature/wip"];
    shared.git(&clone, &words);
    shared.commit(&clone, "three", "3\n");
    assert_eq!(goes_to(&shared, &clone, &[]), "feature/wip");
    let url = format!("file://{}", shared.bare().display());
    let shallow = [
        "clone",
        "-q",
        "--depth",
        "1",
        "--branch",
        "feature/wip",
        &url,
        "shallow",
    ];
    shared.git(shared.scene.root(), &shallow);
    let shallow = shared.scene.path("shallow");
    shared.commit(&shallow, "four", "4\n");
    assert_eq!(goes_to(&shared, &shallow, &[]), "feature/wip");

    // A branch whose remote-tracking branch was never fetched: the remote is asked.
    shared.git(&clone, &["checkout", "-q", "-b", "late"]);
    shared.git(&clone, &["config", "branch.late.remote", "origin"]);
    shared.git(
        &clone,
        &["config", "branch.late.merge", "refs/heads/unfetched"],
    );
    shared.git(&shared.bare(), &["branch", "unfetched", "main"]);
    shared.git(&clone, &["reset", "-q", "--hard", "origin/main"]);
    shared.commit(&clone, "five", "5\n");
    assert_eq!(goes_to(&shared, &clone, &[]), "unfetched");
    // Name that remote by its URL.
    assert_eq!(goes_to(&shared, &clone, &["--remote", &url]), "unfetched");
    let there = shared.git(&shared.bare(), &["rev-parse", "main"]);
    assert_eq!(there, main, "nothing of all this went to main");
}

#[test]
fn the_default_branch_and_a_detached_head_go_to_the_default_branch() {
    let shared = Shared::new();
    let clone = shared.clone("mine");
    shared.commit(&clone, "one", "1\n");
    assert_eq!(goes_to(&shared, &clone, &[]), "main");
    shared.git(&clone, &["branch", "-q", "--unset-upstream"]);
    shared.commit(&clone, "two", "2\n");
    assert_eq!(goes_to(&shared, &clone, &[]), "main", "by its name");
    shared.git(&clone, &["tag", "v1"]);
    shared.git(&clone, &["checkout", "-q", "v1"]);
    shared.commit(&clone, "three", "3\n");
    assert_eq!(goes_to(&shared, &clone, &[]), "main", "as CI checks out");
}

#[test]
fn a_branch_that_says_not_where_to_is_refused_before_anything_is_touched() {
    let shared = Shared::new();
    shared.git(shared.scene.root(), &["init", "-q", "--bare", "fork.git"]);
    let clone = shared.clone("mine");
    shared.git(&clone, &["remote", "add", "fork", "../fork.git"]);
    shared.git(&clone, &["push", "-q", "fork", "main:theirs"]);
    shared.git(&clone, &["fetch", "-q", "fork"]);
    for (branch, start, why) in [
        (
            "none",
            None,
            "none has no upstream, and is not main, the default branch of origin",
        ),
        (
            "here",
            Some("main"),
            "here tracks a branch of this clone itself",
        ),
        (
            "away",
            Some("fork/theirs"),
            "away tracks theirs of fork (--remote would push there)",
        ),
    ] {
        shared.git(
            &clone,
            &["checkout", "-q", "--no-track", "-b", branch, "main"],
        );
        if let Some(start) = start {
            let upstream = format!("--set-upstream-to={start}");
            shared.git(&clone, &["branch", "-q", &upstream]);
        }
        shared.commit(&clone, branch, "1\n");
        let before = shared.standing(&clone);
        let elsewhere = shared.scene.path("l'x y").display().to_string();
        let words = ["--dir", &elsewhere, "--output", "json"];
        let refused = shared.push(&clone, &words).expect(5, branch).json();
        let error = &refused["error"];
        assert_eq!(error["code"], "NO_UPSTREAM", "{refused:#}");
        let message = error["message"].as_str().unwrap();
        assert!(message.starts_with(why), "{message}");
        assert!(
            message.ends_with("name the branch with --branch"),
            "{message}"
        );
        let elsewhere = tenure_store::advice::word(&elsewhere);
        let fix = format!("tenure --profile native --dir {elsewhere} push --branch {branch}");
        assert_eq!(error["fix_command"], fix, "{refused:#}");
        shared
            .push(&clone, &["--dry-run"])
            .expect(5, "as it would be");
        assert_eq!(shared.standing(&clone), before);
    }
    let fork = shared.push(&clone, &["--remote", "fork", "--output", "json"]);
    assert_eq!(
        fork.expect(0, "there it is known").json()["data"]["branch"],
        "theirs"
    );

    // A branch that is gone is not made anew.
    shared.git(&clone, &["checkout", "-q", "-b", "gone", "main"]);
    shared.git(&clone, &["push", "-q", "-u", "origin", "gone"]);
    shared.git(&clone, &["push", "-q", "origin", ":gone"]);
    let gone = shared.push(&clone, &[]).expect(5, "it is gone");
    assert!(
        gone.stderr().contains("which is not there"),
        "{}",
        gone.stderr()
    );
    assert_eq!(shared.count(), 1);
    let refs = shared.git(&shared.bare(), &["for-each-ref", "--format=%(refname)"]);
    assert_eq!(refs, "refs/heads/main\n");
}

#[test]
fn a_dry_run_says_what_would_be_done_and_does_nothing() {
    let shared = Shared::new();
    let clone = shared.clone("mine");
    let head = || shared.git(&clone, &["rev-parse", "HEAD"]).trim().to_owned();
    let dry = |words: &[&str]| {
        let all = [&["--dry-run"], words].concat();
        shared.push(&clone, &all).expect(0, "a dry run").stdout()
    };
    assert_eq!(
        dry(&[]),
        format!("main of origin is at {} already\n", head())
    );
    shared.commit(&clone, "one", "1\n");
    let expected = format!("would push 1 commit to main of origin, up to {}\n", head());
    assert_eq!(dry(&[]), expected);
    shared.commit(&clone, "two", "2\n");
    let expected = format!("would push 2 commits to main of origin, up to {}\n", head());
    assert_eq!(dry(&[]), expected);
    let expected = format!("would make topic of origin at {}\n", head());
    assert_eq!(dry(&["--branch", "topic"]), expected);
    shared.overtake("theirs", "3\n");
    assert_eq!(
        dry(&[]),
        "main of origin has commits that HEAD has not: would rebase what is not there yet onto them \
         and push\n"
    );
    shared.git(&clone, &["fetch", "-q"]);
    assert_eq!(
        dry(&[]),
        "main of origin has commits that HEAD has not: would rebase 2 commits onto them and push\n"
    );
    assert!(no_lock(&shared), "no lock was taken");
    assert_eq!(shared.count(), 2);
    let nowhere = shared.push(&clone, &["--dry-run", "--remote", "nope"]);
    nowhere.expect(1, "in git's words");
}

#[test]
fn the_lock_of_a_push_is_audited_and_known_to_gits_hooks() {
    let shared = Shared::new();
    let clone = shared.clone("mine");
    shared.commit(&clone, "mine", "1\n");
    let seen = shared.scene.path("seen");
    let script = format!(
        "echo \"$TENURE_NAME $TENURE_TOKEN\" >'{}'; tenure push; echo $? >>'{0}'; exit 0",
        seen.display()
    );
    Shared::hook(&clone.join(".git"), "pre-push", &script);
    let audit = shared.scene.path("audit");
    shared
        .push(&clone, &["--audit-dir", audit.to_str().unwrap()])
        .expect(0, "it lands");
    let name = lock_name(&shared);
    let seen = fs::read_to_string(&seen).unwrap();
    let mut seen = seen.lines();
    assert!(seen.next().unwrap().starts_with(&format!("{name} ")));
    assert_eq!(
        seen.next(),
        Some("81"),
        "a push in its own hook would wait for itself"
    );
    let events = shared.scene.run([
        "audit",
        "--output",
        "json",
        "--audit-dir",
        audit.to_str().unwrap(),
    ]);
    let events = events.json()["data"]["events"].clone();
    let names: Vec<_> = events
        .as_array()
        .unwrap()
        .iter()
        .map(|event| event["event"].as_str().unwrap_or_default())
        .collect();
    assert_eq!(names, ["lock_acquired", "lock_released"], "{events:#}");
}

#[test]
fn a_rebase_that_somebody_left_is_not_touched() {
    let shared = Shared::new();
    let clone = shared.clone("mine");
    shared.commit(&clone, "README", "mine\n");
    shared.overtake("README", "theirs\n");
    let mut pull = shared.scene.program("git");
    Shared::prepare(&mut pull, &clone);
    answer(pull.args(["pull", "-q", "--rebase", "origin", "main"])).expect(1, "a conflict");
    let head = shared.git(&clone, &["rev-parse", "HEAD"]);
    let json = shared
        .push(&clone, &["--output", "json"])
        .expect(1, "in the middle of it");
    assert_eq!(json.json()["error"]["code"], "REBASE_IN_PROGRESS");
    assert!(
        clone.join(".git/rebase-merge").exists(),
        "it is still there"
    );
    assert_eq!(shared.git(&clone, &["rev-parse", "HEAD"]), head);
}

#[test]
fn merges_are_made_anew_and_what_was_settled_in_them_by_hand_is_not_lost() {
    let shared = Shared::new();
    let clone = shared.clone("mine");
    shared.git(&clone, &["checkout", "-q", "-b", "side"]);
    shared.commit(&clone, "side", "1\n");
    shared.git(&clone, &["checkout", "-q", "main"]);
    shared.commit(&clone, "mine", "1\n");
    shared.git(&clone, &["merge", "-q", "--no-edit", "side"]);
    shared.overtake("theirs", "1\n");
    shared
        .push(&clone, &[])
        .expect(0, "a merge that git can make again");
    let merges = shared.git(&shared.bare(), &["rev-list", "--merges", "--count", "main"]);
    assert_eq!(merges.trim(), "1", "it is still a merge");
    assert_eq!(shared.count(), 5);

    shared.git(&clone, &["checkout", "-q", "-b", "other", "HEAD~1"]);
    shared.commit(&clone, "other", "1\n");
    shared.git(&clone, &["checkout", "-q", "main"]);
    shared.git(&clone, &["merge", "-q", "--no-commit", "--no-ff", "other"]);
    fs::write(clone.join("only-in-the-merge"), "1\n").unwrap();
    shared.git(&clone, &["add", "only-in-the-merge"]);
    shared.git(
        &clone,
        &["commit", "-q", "-m", "a merge with a change of its own"],
    );
    shared.overtake("more", "1\n");
    let before = shared.standing(&clone);
    let json = shared
        .push(&clone, &["--output", "json"])
        .expect(1, "it would be lost");
    assert_eq!(json.json()["error"]["code"], "MERGE_BY_HAND");
    assert_eq!(shared.standing(&clone), before);
}

#[test]
fn a_rebase_that_stops_for_another_reason_is_aborted_too() {
    let shared = Shared::new();
    let clone = shared.clone("mine");
    shared.commit(&clone, "mine", "1\n");
    shared.overtake("theirs", "2\n");
    Shared::hook(
        &clone.join(".git"),
        "pre-rebase",
        "echo 'not here' >&2; exit 1",
    );
    let before = shared.standing(&clone);
    let answer = shared
        .push(&clone, &[])
        .expect(1, "a hook of the clone's declines");
    assert!(answer.stderr().contains("not here"), "{}", answer.stderr());
    assert_eq!(shared.standing(&clone), before);
    fs::remove_dir_all(clone.join(".git/hooks")).unwrap();

    // No committer is named, so the first commit fails in the middle of the rebase.
    fs::write(
        shared.scene.path(".gitconfig"),
        "[user]\nuseConfigOnly = true\n[gc]\nauto = 0\n",
    )
    .unwrap();
    let answer = shared
        .push(&clone, &[])
        .expect(1, "a commit without a committer");
    assert!(!answer.stderr().contains("conflict"), "{}", answer.stderr());
    assert_eq!(shared.standing(&clone), before);
}

#[test]
fn a_supervisor_that_is_killed_leaves_a_free_lock_when_git_has_ended() {
    let shared = Shared::new();
    let clone = shared.clone("mine");
    shared.commit(&clone, "README", "mine\n");
    shared.overtake("README", "theirs\n");
    let gate = standstill(&shared, &clone);
    let push = shared.start(&clone, &[]);
    gate.entered();
    let name = lock_name(&shared);
    push.signal(Signal::KILL);
    eventually("the supervisor to be seen dead", || {
        shared.scene.check(&name)["holder"]["orphaned"] == true
    });
    assert!(!shared.scene.is_free(&name), "git is still at work");
    gate.open();
    eventually("the lock to be free", || shared.scene.is_free(&name));
}

/// A colleague takes the last commit out by force: a secret.
fn take_out(shared: &Shared) -> String {
    let other = shared.scene.path("first");
    shared.git(&other, &["pull", "-q", "--rebase", "origin", "main"]);
    let gone = shared.git(&other, &["rev-parse", "HEAD"]);
    shared.git(&other, &["reset", "-q", "--hard", "HEAD^"]);
    shared.git(&other, &["push", "-q", "--force", "origin", "HEAD:main"]);
    gone.trim().to_owned()
}

/// How a pusher may have made the clone.
const CLONES: [&str; 4] = ["full", "shallow", "checkout", "no reflog"];

impl Shared {
    fn clone_as(&self, kind: &str) -> PathBuf {
        let clone = self.scene.path("mine");
        let url = format!("file://{}", self.bare().display());
        let root = self.scene.root();
        match kind {
            "full" => return self.clone("mine"),
            "no reflog" => {
                let words = [
                    "clone",
                    "-q",
                    "-c",
                    "core.logAllRefUpdates=false",
                    "shared.git",
                    "mine",
                ];
                self.git(root, &words);
            }
            "shallow" => {
                self.git(root, &["clone", "-q", "--depth", "1", &url, "mine"]);
            }
            // As actions/checkout does it.
            _ => {
                self.git(root, &["init", "-q", "mine"]);
                self.git(&clone, &["remote", "add", "origin", &url]);
                let tip = self.git(&self.bare(), &["rev-parse", "main"]);
                let rule = format!("+{}:refs/remotes/origin/main", tip.trim());
                self.git(
                    &clone,
                    &[
                        "fetch",
                        "-q",
                        "--no-tags",
                        "--prune",
                        "--depth=1",
                        "origin",
                        &rule,
                    ],
                );
                let words = [
                    "checkout",
                    "-q",
                    "--progress",
                    "--force",
                    "-B",
                    "main",
                    "refs/remotes/origin/main",
                ];
                self.git(&clone, &words);
            }
        }
        clone
    }

    /// Whether a commit is part of the branch there.
    fn has(&self, commit: &str) -> bool {
        let all = self.git(&self.bare(), &["rev-list", "main"]);
        all.lines().any(|line| line == commit)
    }

    fn has_file(&self, file: &str) -> bool {
        let files = self.git(&self.bare(), &["ls-tree", "--name-only", "-r", "main"]);
        files.lines().any(|line| line == file)
    }
}

/// "What was withdrawn comes back, published": a commit that was taken out by force stays out, with and without a push of
/// another user in between, and whether or not this clone has fetched that already.
#[test]
fn a_commit_that_was_taken_out_stays_out() {
    for kind in CLONES {
        for (others_push, has_fetched) in
            [(false, false), (true, false), (false, true), (true, true)]
        {
            let here = format!("{kind}, others push: {others_push}, fetched: {has_fetched}");
            // Without a reflog nothing shows where the branch was before a fetch.
            if has_fetched && kind == "no reflog" {
                continue;
            }
            let shared = Shared::new();
            shared.overtake("secret", "password\n");
            let clone = shared.clone_as(kind);
            shared.commit(&clone, "mine", "1\n");
            let gone = take_out(&shared);
            if others_push {
                shared.overtake("theirs", "2\n");
            }
            if has_fetched {
                shared.git(
                    &clone,
                    &[
                        "fetch",
                        "-q",
                        "origin",
                        "+refs/heads/main:refs/remotes/origin/main",
                    ],
                );
            }
            let answer = shared.push(&clone, &["--branch", "main"]).expect(0, &here);
            let told =
                "main of origin was rewritten there; 1 commit that it no longer has was left out";
            assert!(
                answer.stderr().contains(told),
                "{here}: {}",
                answer.stderr()
            );
            assert!(!shared.has(&gone) && !shared.has_file("secret"), "{here}");
            assert!(
                shared.has_file("mine") && shared.has_file("README"),
                "{here}"
            );
            assert_eq!(shared.has_file("theirs"), others_push, "{here}");
        }
    }
}

/// An amended commit is no conflict, as it is none for `git pull --rebase`.
#[test]
fn an_amended_commit_is_no_conflict() {
    for kind in CLONES {
        let shared = Shared::new();
        shared.overtake("theirs", "old\n");
        let clone = shared.clone_as(kind);
        shared.commit(&clone, "mine", "1\n");
        let other = shared.scene.path("first");
        fs::write(other.join("theirs"), "new\n").unwrap();
        shared.git(&other, &["commit", "-q", "-a", "--amend", "-m", "amended"]);
        shared.git(&other, &["push", "-q", "--force", "origin", "HEAD:main"]);
        let _ = shared.push(&clone, &["--branch", "main"]).expect(0, kind);
        assert_eq!(
            shared.git(&shared.bare(), &["show", "main:theirs"]),
            "new\n",
            "{kind}"
        );
        assert_eq!(shared.count(), 3, "{kind}: the old one is gone");
    }
}

/// Five clones push at once, and one of them rewrites the branch twice meanwhile: nothing of it comes back, and nothing of
/// the others is lost.
#[test]
fn what_is_rewritten_in_the_middle_of_many_pushes_stays_rewritten() {
    let shared = Shared::new();
    shared.overtake("secret-1", "1\n");
    let clones: Vec<_> = (0..4)
        .map(|number| {
            let clone = shared.clone(&format!("clone-{number}"));
            shared.commit(&clone, &format!("own-{number}-a"), "1\n");
            clone
        })
        .collect();
    let mut gone = Vec::new();
    for round in ["a", "b"] {
        let started: Vec<_> = clones
            .iter()
            .enumerate()
            .map(|(number, clone)| {
                let mut command = shared.command(clone, &["--attempts", "50"]);
                command.env(
                    "XDG_STATE_HOME",
                    shared.scene.path(&format!("state-{number}")),
                );
                Started::new(command.stdout(Stdio::piped()).stderr(Stdio::piped()))
            })
            .collect();
        // The rewriter takes its own secret out, below whatever the others have put on top of it by then.
        let other = shared.scene.path("first");
        let secret = if round == "a" { "secret-1" } else { "secret-2" };
        for _ in 0..50 {
            shared.git(&other, &["fetch", "-q", "origin"]);
            shared.git(&other, &["checkout", "-q", "--detach", "origin/main"]);
            let commit = shared.git(&other, &["log", "--format=%H", "-1", "--", secret]);
            let commit = commit.trim();
            shared.git(
                &other,
                &["rebase", "-q", "--onto", &format!("{commit}^"), commit],
            );
            let mut push = shared.scene.program("git");
            Shared::prepare(&mut push, &other);
            push.args([
                "push",
                "-q",
                "--force-with-lease=main:origin/main",
                "origin",
                "HEAD:main",
            ]);
            if answer(&mut push).code() == 0 {
                gone.push(commit.to_owned());
                break;
            }
        }
        for push in started {
            let _ = push.finish().expect(0, "each of them lands");
        }
        for commit in &gone {
            assert!(!shared.has(commit), "{round}: it came back");
        }
        assert!(!shared.has_file(secret), "{round}");
        for number in 0..4 {
            assert!(
                shared.has_file(&format!("own-{number}-{round}")),
                "{round}: {number}"
            );
        }
        if round == "a" {
            shared.git(&other, &["checkout", "-q", "-B", "main", "origin/main"]);
            shared.overtake("secret-2", "2\n");
            for (number, clone) in clones.iter().enumerate() {
                shared.git(clone, &["pull", "-q", "--rebase", "origin", "main"]);
                shared.commit(clone, &format!("own-{number}-b"), "1\n");
            }
        }
    }
    assert_eq!(gone.len(), 2, "both rewrites landed");
}

/// Tags go with the commits that they name: a refused attempt leaves none on the remote.
#[test]
fn a_refused_attempt_leaves_no_tag_behind() {
    let shared = Shared::new();
    let clone = shared.clone("mine");
    shared.git(&clone, &["config", "push.followTags", "true"]);
    shared.commit(&clone, "mine", "1\n");
    shared.git(&clone, &["tag", "-a", "v1", "-m", "v1"]);
    shared.overtake("theirs", "2\n");
    let _ = shared.push(&clone, &[]).expect(0, "it lands");
    // The tag names the commit as it was before the rebase.
    assert_eq!(shared.git(&shared.bare(), &["tag"]), "");
    shared.commit(&clone, "more", "1\n");
    shared.git(&clone, &["tag", "-a", "v2", "-m", "v2"]);
    let _ = shared.push(&clone, &[]).expect(0, "nobody else pushed");
    assert_eq!(shared.git(&shared.bare(), &["tag"]), "v2\n");
    // A remote that cannot take both together gets the branch alone.
    shared.git(
        &shared.bare(),
        &["config", "receive.advertiseAtomic", "false"],
    );
    shared.commit(&clone, "last", "1\n");
    shared.git(&clone, &["tag", "-a", "v3", "-m", "v3"]);
    let _ = shared.push(&clone, &[]).expect(0, "the branch");
    assert_eq!(shared.git(&shared.bare(), &["tag"]), "v2\n");
    assert!(shared.has_file("last"));
}

/// An editor has the index or HEAD locked for a moment: that is tried again like a push that came first.
#[test]
fn a_lock_of_gits_that_goes_away_costs_an_attempt() {
    for lock in ["index.lock", "HEAD.lock", "refs/heads/main.lock"] {
        let shared = Shared::new();
        let clone = shared.clone("mine");
        shared.commit(&clone, "mine", "1\n");
        shared.overtake("theirs", "2\n");
        let lock = clone.join(".git").join(lock);
        fs::write(&lock, "").unwrap();
        let mut command = shared.command(&clone, &["--attempts", "20"]);
        let push = Started::new(command.stdout(Stdio::piped()).stderr(Stdio::piped()));
        std::thread::sleep(std::time::Duration::from_millis(600));
        fs::rename(&lock, shared.scene.path("gone.lock")).unwrap();
        let _ = push.finish().expect(0, &format!("{}", lock.display()));
        assert!(shared.has_file("mine") && shared.has_file("theirs"));
    }
}

#[test]
fn a_rebase_that_stops_without_a_conflict_says_what_was_done() {
    let shared = Shared::new();
    let clone = shared.clone("mine");
    shared.commit(&clone, "mine", "1\n");
    shared.overtake("theirs", "2\n");
    // No program signs here.
    shared.git(&clone, &["config", "commit.gpgSign", "true"]);
    shared.git(&clone, &["config", "gpg.program", "false"]);
    let before = shared.standing(&clone);
    let said = shared
        .push(&clone, &[])
        .expect(1, "it cannot sign")
        .stderr();
    let told =
        "git stopped the rebase onto main of origin, and it was aborted; everything is as it was";
    assert!(said.contains(told), "{said}");
    assert!(!said.contains("todo"), "{said}");
    assert_eq!(shared.standing(&clone), before);
}

/// A branch that was merged and deleted there is not made anew, unless the call names it.
#[test]
fn a_branch_that_is_gone_there_is_made_only_by_name() {
    let shared = Shared::new();
    let clone = shared.clone("mine");
    shared.git(&clone, &["switch", "-q", "-c", "wip"]);
    shared.commit(&clone, "mine", "1\n");
    shared.git(&clone, &["push", "-q", "-u", "origin", "wip"]);
    shared.git(&shared.bare(), &["branch", "-q", "-D", "wip"]);
    shared.commit(&clone, "more", "1\n");
    let said = shared.push(&clone, &[]).expect(5, "it is gone").stderr();
    assert!(said.contains("wip is no longer there on origin"), "{said}");
    let branches = shared.git(&shared.bare(), &["branch", "--list", "wip"]);
    assert_eq!(branches, "");
    let _ = shared.push(&clone, &["--branch", "wip"]).expect(0, "named");
    let branches = shared.git(&shared.bare(), &["branch", "--list", "wip"]);
    assert_eq!(branches.trim(), "wip");
}

/// A push names the commit that it has looked at. HEAD that is moved while git connects, or in a pause, forces nothing.
#[test]
fn a_head_that_moves_meanwhile_forces_nothing() {
    let shared = Shared::new();
    shared.overtake("theirs-1", "1\n");
    shared.overtake("theirs-2", "2\n");
    let clone = shared.clone("mine");
    shared.git(&clone, &["branch", "older", "HEAD~2"]);
    shared.commit(&clone, "mine", "1\n");
    let ssh = "#!/bin/sh\n: >began; while [ ! -e go ]; do sleep .02; done\nshift $(($# - 1)); exec sh -c \"$1\"\n";
    let ssh = shared.scene.script("ssh", ssh);
    shared.git(
        &clone,
        &["config", "core.sshCommand", ssh.to_str().unwrap()],
    );
    let url = format!("ssh://nowhere{}", shared.bare().display());
    shared.git(&clone, &["remote", "set-url", "origin", &url]);
    let push = shared.start(&clone, &[]);
    eventually("git to connect", || clone.join("began").exists());
    let looked_at = shared.git(&clone, &["rev-parse", "HEAD"]);
    shared.git(&clone, &["switch", "-q", "older"]);
    shared.commit(&clone, "other", "1\n");
    fs::write(clone.join("go"), "").unwrap();
    let said = push.finish().expect(0, "what was looked at").stdout();
    assert!(said.contains(looked_at.trim()), "{said}");
    for file in ["theirs-1", "theirs-2", "mine"] {
        assert!(shared.has_file(file), "{file} is there");
    }
    assert!(!shared.has_file("other"), "it was not looked at");
}

/// A merge contains what was taken out: it is made anew without that.
#[test]
fn a_commit_that_was_taken_out_stays_out_of_merges() {
    let shared = Shared::new();
    shared.overtake("secret", "password\n");
    let clone = shared.clone("mine");
    shared.commit(&clone, "mine", "1\n");
    shared.overtake("theirs", "2\n");
    shared.git(
        &clone,
        &["pull", "-q", "--no-rebase", "--no-edit", "origin", "main"],
    );
    let other = shared.scene.path("first");
    let gone = shared.git(&other, &["rev-parse", "HEAD~1"]);
    shared.git(&other, &["rebase", "-q", "--onto", "HEAD~2", "HEAD~1"]);
    shared.git(&other, &["push", "-q", "--force", "origin", "HEAD:main"]);
    let _ = shared.push(&clone, &[]).expect(0, "it lands");
    assert!(!shared.has(gone.trim()) && !shared.has_file("secret"));
    assert!(shared.has_file("mine") && shared.has_file("theirs"));
}

/// Where a push goes elsewhere than a fetch, or by a URL, what was taken out stays out as well.
#[test]
fn a_commit_that_was_taken_out_stays_out_by_whatever_way() {
    for way in ["pushInsteadOf", "url"] {
        let shared = Shared::new();
        shared.overtake("secret", "password\n");
        let clone = shared.clone("mine");
        shared.commit(&clone, "mine", "1\n");
        let gone = take_out(&shared);
        let url = shared.git(&clone, &["remote", "get-url", "origin"]);
        let url = url.trim();
        let words: &[&str] = if way == "url" {
            &["--remote", url, "--branch", "main"]
        } else {
            let there = format!("url.file://{}.pushInsteadOf", shared.bare().display());
            shared.git(&clone, &["config", &there, url]);
            &[]
        };
        let _ = shared.push(&clone, words).expect(0, way);
        assert!(!shared.has(&gone) && !shared.has_file("secret"), "{way}");
        assert!(shared.has_file("mine"), "{way}");
    }
}

/// Ways in which plain `git push` lands: what this clone has seen of the remote is only old, or is no sight of it at all.
#[test]
fn what_needs_no_rebase_lands_at_once() {
    // Pushed by its URL meanwhile, so the remote-tracking branch is old; and there are changes that are not committed.
    let shared = Shared::new();
    let clone = shared.clone("mine");
    shared.commit(&clone, "one", "1\n");
    let url = format!("{}", shared.bare().display());
    shared.git(&clone, &["push", "-q", &url, "main"]);
    shared.commit(&clone, "two", "2\n");
    fs::write(clone.join("README"), "changed\n").unwrap();
    let _ = shared
        .push(&clone, &["--attempts", "1"])
        .expect(0, "old sight");
    assert!(shared.has_file("two"));
    // A mirror behind a second push URL catches up.
    let mirror = shared.scene.path("mirror.git");
    shared.git(shared.scene.root(), &["init", "-q", "--bare", "mirror.git"]);
    for to in [&url, &format!("{}", mirror.display())] {
        shared.git(
            &clone,
            &["remote", "set-url", "--add", "--push", "origin", to],
        );
    }
    shared.commit(&clone, "three", "3\n");
    let _ = shared
        .push(&clone, &["--attempts", "1"])
        .expect(0, "a mirror that is behind");
    assert!(shared.has_file("three"));
    let files = shared.git(&mirror, &["ls-tree", "--name-only", "main"]);
    assert!(files.contains("three"), "{files}");
    // A bare repository that mirrors the remote's branches, and a work tree of it.
    let words = ["clone", "-q", "--bare", "shared.git", "own.git"];
    shared.git(shared.scene.root(), &words);
    let own = shared.scene.path("own.git");
    shared.git(
        &own,
        &[
            "config",
            "remote.origin.fetch",
            "+refs/heads/*:refs/heads/*",
        ],
    );
    let tree = shared.scene.path("tree");
    shared.git(
        &own,
        &["worktree", "add", "-q", tree.to_str().unwrap(), "main"],
    );
    shared.commit(&tree, "four", "4\n");
    let _ = shared
        .push(&tree, &["--branch", "main"])
        .expect(0, "a mirror's work tree");
    assert!(shared.has_file("four"));
}

/// The answer that foretells a push says what the push does.
#[test]
fn what_is_foretold_is_what_is_done() {
    let shared = Shared::new();
    shared.overtake("secret", "password\n");
    let clone = shared.clone("mine");
    shared.commit(&clone, "mine", "1\n");
    let _ = take_out(&shared);
    let said = shared
        .push(&clone, &["--dry-run"])
        .expect(0, "foretold")
        .stdout();
    assert!(said.contains("would rebase 1 commit onto them"), "{said}");
    shared.git(&clone, &["switch", "-q", "-c", "wip"]);
    shared.git(&clone, &["push", "-q", "-u", "origin", "wip"]);
    shared.git(&shared.bare(), &["branch", "-q", "-D", "wip"]);
    shared.commit(&clone, "more", "1\n");
    for words in [&["--dry-run"][..], &["--attempts", "1"], &[]] {
        let _ = shared.push(&clone, words).expect(5, "it is gone");
    }
}
