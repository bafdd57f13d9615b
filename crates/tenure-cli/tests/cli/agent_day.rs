//! What an agent does in a clone: a group, the session lock, `git add --all`, a commit, a push. What the
//! agent wrote lands, and nothing of ours does; and where tenure makes folders in a work tree, git leaves
//! them alone.

use crate::support::{Answer, Gate, Scene, Started, answer, eventually};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// What a call says that keeps its records in `.state`.
const RECORDS: [&str; 4] = ["--profile", "session", "--dir", ".state"];

/// A bare repository with one commit, and clones of it.
struct Project {
    scene: Scene,
}

impl Project {
    fn new() -> Self {
        let scene = Scene::new();
        let config = "[user]\nname = agent\nemail = agent@localhost\n[init]\ndefaultBranch = main\n\
                      [gc]\nauto = 0\n[maintenance]\nauto = false\n";
        fs::write(scene.path(".gitconfig"), config).unwrap();
        let project = Self { scene };
        project.git(
            project.scene.root(),
            &["init", "-q", "--bare", "shared.git"],
        );
        let first = project.clone("first");
        fs::write(first.join("README"), "hello\n").unwrap();
        project.git(&first, &["add", "--all"]);
        project.git(&first, &["commit", "-q", "-m", "first"]);
        project.git(&first, &["push", "-q", "origin", "HEAD:main"]);
        project
    }

    fn clone(&self, name: &str) -> PathBuf {
        self.git(self.scene.root(), &["clone", "-q", "shared.git", name]);
        self.scene.path(name)
    }

    #[track_caller]
    fn git(&self, folder: &Path, words: &[&str]) -> String {
        let mut command = self.scene.program("git");
        command.current_dir(folder).env("GIT_CONFIG_NOSYSTEM", "1");
        let said = answer(command.args(words)).expect(0, &format!("git {words:?}"));
        said.stdout()
    }

    /// The program in a folder for which no lock folder is named.
    fn tenure(&self, folder: &Path, words: &[&str]) -> Command {
        let mut command = self.scene.tenure(words);
        command
            .current_dir(folder)
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .env_remove("TENURE_DIR");
        command
    }

    /// A call that keeps its records in `.state`.
    fn session(&self, folder: &Path, words: &[&str]) -> Command {
        self.tenure(folder, &[&RECORDS[..], words].concat())
    }

    /// The command of `docs/concurrency.md`, with a script for an agent.
    fn agent(&self, clone: &Path, issue: &str, script: &str) -> Command {
        let group = format!("issue-{issue}");
        let words = [
            "run",
            issue,
            "--group",
            &group,
            "--cancel-in-progress",
            "--",
            "sh",
            "-c",
            script,
        ];
        self.session(clone, &words)
    }

    /// Everything that has landed.
    fn landed(&self) -> Vec<String> {
        let tree = ["ls-tree", "-r", "--name-only", "main"];
        let names = self.git(&self.scene.path("shared.git"), &tree);
        names.lines().map(str::to_owned).collect()
    }

    /// What git would commit next.
    fn untracked(&self, clone: &Path) -> String {
        self.git(clone, &["status", "--porcelain", "--untracked-files=all"])
    }
}

/// The work of one run.
fn work(issue: &str, turn: u32) -> String {
    format!(
        "set -eu; mkdir -p .state/sessions; echo '{{\"turn\":{turn}}}' >>.state/sessions/{issue}.jsonl; \
         echo {turn} >work-{issue}; git add --all; git commit -q -m 'issue {issue}, {turn}'; \
         tenure push --backoff 20ms"
    )
}

#[test]
fn two_issues_in_two_clones_and_twice_in_one_land_with_nothing_of_ours() {
    let project = Project::new();
    let clones = [
        ("10", project.clone("ten")),
        ("11", project.clone("eleven")),
    ];
    for turn in 1..=3 {
        let runs: Vec<Started> = clones
            .iter()
            .map(|(issue, clone)| {
                let mut agent = project.agent(clone, issue, &work(issue, turn));
                Started::new(agent.stdout(Stdio::piped()).stderr(Stdio::piped()))
            })
            .collect();
        for run in runs {
            run.finish().expect(0, "both are pushed");
        }
    }
    assert_eq!(
        project.landed(),
        [
            ".state/sessions/10.jsonl",
            ".state/sessions/11.jsonl",
            "README",
            "work-10",
            "work-11"
        ]
    );
    for issue in ["10", "11"] {
        let file = format!("main:.state/sessions/{issue}.jsonl");
        let text = project.git(&project.scene.path("shared.git"), &["show", &file]);
        assert_eq!(text.lines().count(), 3, "of every turn: {text}");
    }
    for (_, clone) in &clones {
        assert_eq!(project.untracked(clone), "", "nothing of ours is left over");
    }
    let history = ["log", "--format=", "--name-only", "main"];
    let history = project.git(&project.scene.path("shared.git"), &history);
    assert!(
        !history.contains("tenure"),
        "not even for a while: {history}"
    );
}

#[test]
fn groups_of_all_work_trees_of_a_clone_meet_and_can_be_cancelled_from_each() {
    let project = Project::new();
    let clone = project.clone("mine");
    let linked = project.scene.path("linked");
    let path = linked.display().to_string();
    project.git(&clone, &["worktree", "add", "-q", "--detach", &path]);
    let gate = Gate::new(&project.scene, "first");
    let mut agent = project.agent(&clone, "42", &gate.script(""));
    let older = Started::new(agent.stdout(Stdio::piped()).stderr(Stdio::piped()));
    gate.entered();
    assert!(clone.join(".git/tenure/locks/issue-42.tenure").is_file());
    assert!(
        !clone.join(".state/.tenure").exists(),
        "no place beside the records"
    );

    // A second way to name that place, and the session lock left out.
    let state = clone.join(".state").display().to_string();
    let words = ["run", "--group", "Issue-42", "--wait", "0", "--", "true"];
    for (tree, dir) in [(&clone, state.as_str()), (&linked, ".state")] {
        let profile = ["--profile", "session", "--dir", dir];
        let refused = answer(&mut project.tenure(tree, &[&profile[..], &words].concat()));
        refused.expect(4, "it is held");
        let words = ["--scope", "repo", "check", "issue-42", "--output", "json"];
        let seen = answer(&mut project.tenure(tree, &words))
            .expect(4, "held")
            .json();
        assert_eq!(seen["error"]["context"]["standing"], "held", "{seen:#}");
    }
    let cancel = ["cancel", "--group", "issue-42"];
    answer(&mut project.session(&linked, &cancel)).expect(0, "it is asked to stop");
    older.finish().expect(79, "it has ended");
}

/// In CI each run has a checkout of its own.
#[test]
fn a_flag_says_where_groups_are_apart_from_the_records() {
    let project = Project::new();
    let clones = [project.clone("one"), project.clone("two")];
    let shared = format!("file:{}", project.scene.path("shared").display());
    let tenure = |clone: &PathBuf, flags: &[&str], words: &[&str]| {
        project.session(clone, &[flags, words].concat())
    };
    // The flags, the variables, and whether the second clone is refused.
    let rows = [
        ("", None, 0),
        ("--scope user", None, 4),
        (&*format!("--store {shared}"), None, 4),
        ("--scope repo", None, 0),
        ("", Some(("TENURE_SCOPE", "user")), 4),
        ("", Some(("TENURE_STORE", &*shared)), 4),
    ];
    for (at, (flags, variables, second)) in rows.into_iter().enumerate() {
        let flags: &[&str] = &flags.split_whitespace().collect::<Vec<_>>();
        let gate = Gate::new(&project.scene, &format!("first{at}"));
        let script = gate.script("");
        let run = ["run", "42", "--group", "issue-42"];
        let first = [&run[..], &["--", "sh", "-c", &script]].concat();
        let mut first = tenure(&clones[0], flags, &first);
        first.envs(variables);
        let first = Started::new(first.stdout(Stdio::piped()).stderr(Stdio::piped()));
        gate.entered();
        assert!(
            clones[0].join(".state/locks/42.lock").is_file(),
            "{flags:?}"
        );
        for inside in ["", "tenure run nightly -- "] {
            // A run around the call has no say in it.
            let line = format!(
                "{inside}tenure {} {} run 42 --group issue-42 --wait 0 -- true",
                RECORDS.join(" "),
                flags.join(" ")
            );
            let mut again = project.scene.program("sh");
            again
                .current_dir(&clones[1])
                .env_remove("TENURE_DIR")
                .envs(variables);
            let answer = answer(again.args(["-c", &line]));
            answer.expect(second, &format!("{flags:?} {variables:?} {inside}"));
        }
        let cancel = ["cancel", "--group", "issue-42"];
        let mut cancel = tenure(&clones[1], flags, &cancel);
        let code = answer(cancel.envs(variables)).code();
        assert_eq!(code, if second == 4 { 0 } else { 5 }, "{flags:?}");
        gate.open();
        first
            .finish()
            .expect(if second == 4 { 79 } else { 0 }, "the first run");
    }
    // Without a group, or without records, two flags are two places.
    for words in [
        &[
            "--profile",
            "session",
            "--dir",
            ".state",
            "--scope",
            "user",
            "run",
            "42",
            "--",
            "true",
        ][..],
        &[
            "--profile",
            "session",
            "--dir",
            ".state",
            "--scope",
            "user",
            "check",
            "42",
        ],
        &[
            "--dir", ".state", "--scope", "user", "run", "x", "--group", "g", "--", "true",
        ],
        &["--dir", ".state", "--store", &shared, "check", "x"],
        &[
            "--profile",
            "sprint",
            "--project-root",
            ".",
            "--scope",
            "user",
            "check",
        ],
    ] {
        let refused = answer(&mut project.tenure(&clones[0], words));
        let refused = refused.expect(2, "two places");
        assert!(
            refused.said().contains("name two places"),
            "{}",
            refused.said()
        );
    }
}

/// However the folder of the records is named, the runs of that folder have one group.
#[test]
fn one_folder_of_records_has_one_place_of_groups() {
    let project = Project::new();
    let clone = project.clone("mine");
    let state = clone.join(".state").display().to_string();
    let home = PathBuf::from(project.scene.root());
    let told = ["--profile", "session"];
    fs::write(clone.join("tenure.toml"), "dir = \".state\"\n").unwrap();
    let gate = Gate::new(&project.scene, "first");
    let script = gate.script("");
    let words = ["run", "1", "--group", "g", "--", "sh", "-c", &script];
    let mut first = project.tenure(&clone, &[&RECORDS[..], &words].concat());
    let first = Started::new(first.stdout(Stdio::piped()).stderr(Stdio::piped()));
    gate.entered();
    for (flags, variable, has_home) in [
        (&RECORDS[..], "", true),
        (&told, "", true),
        (&told, &*state, true),
        (&RECORDS, &state, true),
        (&RECORDS, "", false),
    ] {
        let words = ["run", "2", "--group", "g", "--wait", "0", "--", "true"];
        let mut second = project.tenure(&clone, &[flags, &words].concat());
        if has_home {
            second.env("HOME", &home);
        } else {
            second.env_remove("HOME").env_remove("XDG_STATE_HOME");
        }
        if !variable.is_empty() {
            second.env("TENURE_DIR", variable);
        }
        let said = answer(&mut second);
        let said = said.expect(4, &format!("{flags:?} {variable} {has_home}"));
        assert!(!said.said().contains("older"), "{}", said.said());
    }
    gate.open();
    first.finish().expect(0, "the first run");
}

/// What an older tenure holds beside the records is seen, for this release.
#[test]
fn a_group_that_is_held_beside_the_records_is_refused() {
    let project = Project::new();
    let clone = project.clone("mine");
    let older = clone.join(".state/.tenure/locks").display().to_string();
    let gate = Gate::new(&project.scene, "older");
    let script = gate.script("");
    let words = [
        "--dir", &older, "run", "issue-42", "--", "sh", "-c", &script,
    ];
    let mut first = project.tenure(&clone, &words);
    let first = Started::new(first.stdout(Stdio::piped()).stderr(Stdio::piped()));
    gate.entered();
    let refused = answer(&mut project.agent(&clone, "42", "true"));
    refused.expect(4, "held beside the records");
    let cancel = ["cancel", "--group", "issue-42"];
    answer(&mut project.session(&clone, &cancel)).expect(0, "it is found there");
    first.finish().expect(79, "it has ended");
    answer(&mut project.agent(&clone, "42", "true")).expect(0, "free");
}

/// Whether a run of a group inside a run of that group is known to wait for itself.
#[test]
fn a_group_inside_itself_is_refused() {
    let project = Project::new();
    let clone = project.clone("mine");
    let inner = "tenure --profile session run 43 --group issue-42 -- true; echo $?";
    let said = answer(&mut project.agent(&clone, "42", inner)).expect(0, "the outer run");
    assert_eq!(said.stdout(), "81\n", "{}", said.said());
}

fn ignores_itself(folder: &Path) -> bool {
    fs::read_to_string(folder.join(".gitignore")).is_ok_and(|text| text == "*\n")
}

#[test]
fn a_lock_folder_that_is_made_in_a_work_tree_ignores_itself() {
    let project = Project::new();
    let clone = project.clone("mine");
    let linked = project.scene.path("linked");
    let path = linked.display().to_string();
    project.git(&clone, &["worktree", "add", "-q", "--detach", &path]);
    let script = "git add --all; git status --porcelain";
    for tree in [&clone, &linked] {
        fs::write(tree.join("tenure.toml"), "dir = \"state/locks\"\n").unwrap();
        let words = ["run", "x", "--", "sh", "-c", script];
        let added = answer(&mut project.tenure(tree, &words))
            .expect(0, "a run")
            .stdout();
        assert_eq!(added, "A  tenure.toml\n");
        assert!(ignores_itself(&tree.join("state/locks")));
        assert!(
            !tree.join("state/.gitignore").exists(),
            "its parent is the project's"
        );
        for (profile, place, folder) in [
            ("resume", "store", "store/resume_locks"),
            ("fleet", "fleet", "fleet"),
            ("fleet", "group-first", "group-first"),
        ] {
            let mut words = vec!["--profile", profile, "--dir", place, "run", "x"];
            if profile == "fleet" {
                words.extend(["--intent-name", "i", "--intent-version", "1"]);
            }
            if place == "group-first" {
                words.extend(["--group", "g"]);
            }
            words.extend(["--", "sh", "-c", script]);
            let added = answer(&mut project.tenure(tree, &words)).expect(0, place);
            assert_eq!(added.stdout(), "A  tenure.toml\n", "{place}");
            assert!(ignores_itself(&tree.join(folder)), "{folder}");
        }
        let audit = ["run", "x", "--audit-dir", "log/audit", "--", "true"];
        answer(&mut project.tenure(tree, &audit)).expect(0, "a run with an audit");
        assert!(ignores_itself(&tree.join("log/audit")));
        assert_eq!(project.untracked(tree), "A  tenure.toml\n");
    }
}

#[test]
fn a_folder_that_was_there_is_never_ignored() {
    let project = Project::new();
    let clone = project.clone("mine");
    fs::create_dir(clone.join(".state")).unwrap();
    let words = ["--dir", ".state", "run", "x", "--", "true"];
    answer(&mut project.tenure(&clone, &words)).expect(0, "a run");
    answer(&mut project.agent(&clone, "42", "true")).expect(0, "an agent");
    assert!(!clone.join(".state/.gitignore").exists());
    fs::create_dir(clone.join(".state/sessions")).unwrap();
    fs::write(clone.join(".state/sessions/1.jsonl"), "{}\n").unwrap();
    let seen = project.untracked(&clone);
    assert!(seen.contains(".state/sessions/1.jsonl"), "{seen}");
    // In a place that tenure makes for a group as well: sessions are committed from there.
    let fresh = project.clone("fresh");
    answer(&mut project.agent(&fresh, "42", "true")).expect(0, "an agent");
    assert!(!fresh.join(".state/.gitignore").exists());
    // Outside of work trees git has nothing to be told.
    let outside = project.scene.path("outside");
    let words = ["--dir", outside.to_str().unwrap(), "run", "x", "--", "true"];
    answer(&mut project.tenure(&clone, &words)).expect(0, "a run");
    assert!(!outside.join(".gitignore").exists());
}

/// A death between making `.tenure` and telling git leaves that folder without its `.gitignore`.
#[test]
fn a_folder_of_ours_without_its_gitignore_is_healed_by_the_next_use() {
    let project = Project::new();
    let clone = project.clone("mine");
    fs::create_dir_all(clone.join("sprint/.tenure")).unwrap();
    let sprint = [
        "--profile",
        "sprint",
        "--project-root",
        "sprint",
        "run",
        "--",
        "true",
    ];
    answer(&mut project.tenure(&clone, &sprint)).expect(0, "a sprint");
    assert!(ignores_itself(&clone.join("sprint/.tenure")));
    assert_eq!(project.untracked(&clone), "");
}

/// No repository may lead a group's files elsewhere by a link that it brings along.
#[test]
fn a_link_in_the_place_of_our_folder_is_not_followed() {
    let project = Project::new();
    let clone = project.clone("mine");
    let victim = project.scene.path("victim");
    fs::create_dir_all(victim.join("locks")).unwrap();
    // The second one is no repository any more, as where a container sees the work tree alone.
    for code in [0, 7] {
        let folder = clone.join(".state");
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir(&folder).unwrap();
        std::os::unix::fs::symlink(&victim, folder.join(".tenure")).unwrap();
        answer(&mut project.agent(&clone, "42", "true")).expect(code, "not through a link");
        assert_eq!(fs::read_dir(victim.join("locks")).unwrap().count(), 0);
        let _ = fs::rename(clone.join(".git"), project.scene.path("git"));
    }
}

/// Until the line that is said is obeyed. A record that is tracked takes a lock into other clones, and goes away with the
/// branch.
#[test]
fn record_that_git_would_take_is_said_at_each_acquire_table() {
    let project = Project::new();
    let pid = std::process::id().to_string();
    let id = ["--request-id", "r"];
    let none = ["--owner", "none"];
    let intent = ["--intent-name", "i", "--intent-version", "1"];
    let sprint = ["--session-id", "r", "--epic-spec", "e", "--owner", &*pid];
    let of_fleet = [&id[..], &none, &intent].concat();
    for (profile, flag, record, lock, acquire, release) in [
        (
            "sprint",
            "--project-root",
            ".sprint-running",
            "sprint",
            &sprint[..],
            &[][..],
        ),
        (
            "session",
            "--dir",
            "locks/7.lock",
            "7",
            &[&id[..], &none].concat(),
            &id,
        ),
        (
            "resume",
            "--dir",
            "resume_locks/7.lock",
            "7",
            &["--owner", &pid],
            &[],
        ),
        ("fleet", "--dir", "app.lock", "app", &of_fleet, &id),
    ] {
        let clone = project.clone(profile);
        let root = clone.display().to_string();
        let folder = clone.join(record);
        let folder = folder.parent().expect("a folder");
        fs::create_dir_all(folder).expect("it was there");
        // A fleet's folder that others can read is warned of.
        let private = std::os::unix::fs::PermissionsExt::from_mode(0o700);
        fs::set_permissions(&clone, private).expect("its mode");
        let call = |verb: &str, more: &[&str]| -> Answer {
            let words = ["--profile", profile, verb, lock, flag, &root];
            answer(&mut project.tenure(&clone, &[&words[..], more].concat()))
        };
        let acquired = || call("acquire", acquire).expect(0, "acquired");
        let released = || call("release", release).expect(0, "released");
        let line = |said: &Answer, told: &str| {
            let said = said.stderr();
            assert!(said.contains(told), "{profile}: {said}");
            said.split('`').nth(1).expect("a line").to_owned()
        };
        // tenure has git ignore the folder of a session's locks, whoever made it.
        let ignores = if profile == "session" {
            assert!(!acquired().stderr().contains("git "), "ignored");
            String::new()
        } else {
            let first = line(&acquired(), "would commit it");
            released();
            assert_eq!(line(&acquired(), "would commit it"), first, "each time");
            first
        };
        project.git(&clone, &["add", "--force", record]);
        project.git(&clone, &["commit", "--quiet", "-m", "all of it"]);
        released();
        let ends = line(&acquired(), "git tracks");
        assert!(ends.ends_with(&ignores), "{profile}: {ends}");
        answer(project.scene.program("sh").args(["-c", &ends])).expect(0, &ends);
        released();
        // The common case: git is asked once.
        let (bin, asked) = (clone.join(".git/bin"), clone.join(".git/asked"));
        fs::create_dir_all(&bin).expect("a folder");
        let counts = "#!/bin/sh\necho \"$*\" >>\"$ASKED\"\nPATH=${PATH#*:} exec git \"$@\"\n";
        fs::write(bin.join("git"), counts).expect("a program");
        let runs = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        fs::set_permissions(bin.join("git"), runs).expect("its mode");
        let words = ["--profile", profile, "acquire", lock, flag, &root];
        let mut quiet = project.tenure(&clone, &[&words[..], acquire].concat());
        let path = std::env::var("PATH").expect("a path");
        quiet.env("PATH", format!("{}:{path}", bin.display()));
        let quiet = answer(quiet.env("ASKED", &asked)).expect(0, "acquired");
        assert!(!quiet.stderr().contains("git "), "{}", quiet.stderr());
        let asked = fs::read_to_string(&asked).expect("what git was asked");
        assert_eq!(asked.lines().count(), 1, "{profile}: {asked}");
        project.git(&clone, &["add", "--all"]);
        let staged = project.git(&clone, &["ls-files"]);
        assert!(!staged.contains(record), "{profile}: {staged}");
        released();
    }
}

#[test]
fn record_that_a_run_would_commit_is_said() {
    let project = Project::new();
    // A run's own command commits its record, unless tenure tells the user.
    let other = project.clone("other");
    let run = [
        "--profile",
        "sprint",
        "--project-root",
        ".",
        "run",
        "--group",
        "g",
        "--",
    ];
    let script = ["sh", "-c", "git add --all; git status --porcelain"];
    let added = answer(&mut project.tenure(&other, &[&run[..], &script].concat()));
    let added = added.expect(0, "a run");
    assert!(
        added.stderr().contains("would commit it"),
        "{}",
        added.stderr()
    );
    assert_eq!(
        added.stdout(),
        "A  .sprint-running\n",
        "its group and queue are not"
    );
}

#[test]
fn a_record_that_is_gone_with_its_folder_does_not_end_the_group() {
    let project = Project::new();
    let clone = project.clone("mine");
    let script = "git clean -fdq; git stash -q --include-untracked; sleep .3; echo done";
    let done = answer(&mut project.agent(&clone, "42", script));
    assert_eq!(
        done.expect(0, "what git cleans is none of ours").stdout(),
        "done\n"
    );
    eventually("the group to be free", || {
        let words = ["--scope", "repo", "check", "issue-42"];
        answer(&mut project.tenure(&clone, &words)).code() == 0
    });
}
