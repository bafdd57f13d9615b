//! The callers that see the same lock: scopes, the files that say where locks are, and what is refused instead
//! of being kept somewhere else.

#![allow(
    clippy::disallowed_methods,
    reason = "what was planted by the test is removed by it, behind the store's back"
)]

use crate::hostile::in_namespaces;
use crate::support::{Answer, Gate, Held, Scene, Started, answer};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A call from a folder, with nothing in the environment that names a place.
fn command(scene: &Scene, folder: &Path, words: &[&str]) -> Command {
    let mut command = scene.tenure(words);
    command.env_remove("TENURE_DIR").current_dir(folder);
    command
}

fn from(scene: &Scene, folder: &Path, words: &[&str]) -> Answer {
    answer(&mut command(scene, folder, words))
}

/// A `tenure run` from a folder, whose command lasts until the test lets it end.
fn hold(scene: &Scene, folder: &Path, name: &str, flags: &[&str]) -> Held {
    let gate = Gate::new(scene, name);
    let script = gate.script("");
    let words = [&["run", name][..], flags, &["--", "sh", "-c", &script]].concat();
    let started = Started::piped(&mut command(scene, folder, &words));
    Held {
        started,
        command: gate.entered(),
        gate,
    }
}

fn git(scene: &Scene, folder: &Path, words: &[&str]) -> String {
    let mut command = scene.program("git");
    command
        .args([
            "-c",
            "user.name=t",
            "-c",
            "user.email=t@t",
            "-c",
            "protocol.file.allow=always",
        ])
        .args(words)
        .current_dir(folder)
        .env("GIT_CONFIG_NOSYSTEM", "1");
    answer(&mut command)
        .expect(0, &format!("git {words:?}"))
        .stdout()
}

/// A clone with three more work trees: beside it, inside of it, and elsewhere. All have the committed file.
fn work_trees(scene: &Scene, configuration: &str) -> (PathBuf, Vec<PathBuf>) {
    let main = scene.path("src/main");
    fs::create_dir_all(main.join("deep/er")).unwrap();
    git(scene, &main, &["init", "-q", "-b", "main"]);
    fs::write(main.join("deep/er/file"), "").unwrap();
    fs::write(main.join("tenure.toml"), configuration).unwrap();
    git(scene, &main, &["add", "--all"]);
    git(scene, &main, &["commit", "-q", "-m", "first"]);
    let mut trees = vec![main.clone()];
    for (number, place) in ["src/beside", "src/main/.trees/inside", "elsewhere/else"]
        .iter()
        .enumerate()
    {
        let tree = scene.path(place);
        let branch = format!("branch-{number}");
        git(
            scene,
            &main,
            &[
                "worktree",
                "add",
                "-q",
                "-b",
                &branch,
                tree.to_str().unwrap(),
            ],
        );
        trees.push(tree);
    }
    (main, trees)
}

#[test]
fn all_work_trees_of_a_clone_see_one_lock_and_git_sees_none() {
    let scene = Scene::new();
    let (main, trees) = work_trees(&scene, "scope = \"repo\"\n");
    let git_folder = main.join(".git").canonicalize().unwrap();
    for holder in &trees {
        let held = hold(&scene, holder, "x", &[]);
        for tree in &trees {
            for folder in [tree.clone(), tree.join("deep/er")] {
                let said = from(&scene, &folder, &["run", "-n", "x", "--", "true"]);
                let said =
                    said.expect(4, &format!("{} and {}", holder.display(), folder.display()));
                assert!(said.stderr().contains("is held by"), "{}", said.said());
            }
        }
        let _ = held.open().expect(0, "the holder");
    }
    assert!(git_folder.join("tenure/locks/x.tenure").is_file());
    for tree in &trees {
        let seen = git(&scene, tree, &["status", "--porcelain"]);
        assert!(
            !seen.contains("tenure"),
            "git sees it in {}: {seen}",
            tree.display()
        );
    }
    // A flag and a variable that say the same lead to the same place, also from git's own folders.
    let held = hold(&scene, &main, "x", &[]);
    let _ = from(&scene, &trees[1], &["check", "x", "--scope", "repo"]).expect(4, "a flag");
    let mut told = command(&scene, &trees[3].join("deep"), &["check", "x"]);
    let _ = answer(told.env("TENURE_SCOPE", "repo")).expect(4, "a variable");
    let hooks = git_folder.join("hooks");
    fs::create_dir_all(&hooks).unwrap();
    let _ = from(&scene, &hooks, &["check", "x", "--scope", "repo"]).expect(4, "git's folder");
    let _ = held.open().expect(0, "the holder");
}

#[test]
fn a_dir_beside_the_scope_lies_in_gits_own_folder() {
    let scene = Scene::new();
    let (main, trees) = work_trees(&scene, "scope = \"repo\"\ndir = \"ci/locks\"\n");
    let held = hold(&scene, &trees[3], "x", &[]);
    for flags in [&[][..], &["--scope", "repo"]] {
        let words = [&["check", "x"][..], flags].concat();
        let _ = from(&scene, &trees[1], &words).expect(4, "the same lock");
    }
    assert!(main.join(".git/ci/locks/x.tenure").is_file());
    let _ = held.open().expect(0, "the holder");
}

#[test]
fn bare_and_separate_repositories_and_submodules_have_a_scope_of_their_own() {
    let scene = Scene::new();
    let root = scene.root().to_owned();
    let run = |folder: &Path| {
        let words = [
            "run",
            "x",
            "--scope",
            "repo",
            "--",
            "sh",
            "-c",
            "h=${TENURE_HELD%/*}; echo ${h#*=}",
        ];
        let told = from(&scene, folder, &words).expect(0, "a run").stdout();
        PathBuf::from(told.trim())
    };
    let real = |path: &str| scene.path(path).canonicalize().unwrap();
    git(&scene, &root, &["init", "-q", "--bare", "bare.git"]);
    assert_eq!(
        run(&scene.path("bare.git")),
        real("bare.git").join("tenure/locks")
    );
    git(
        &scene,
        &root,
        &["init", "-q", "--separate-git-dir", "data.git", "separate"],
    );
    assert_eq!(
        run(&scene.path("separate")),
        real("data.git").join("tenure/locks")
    );
    let (main, _) = work_trees(&scene, "");
    git(&scene, &root, &["init", "-q", "super"]);
    let url = main.to_str().unwrap();
    git(
        &scene,
        &scene.path("super"),
        &["submodule", "--quiet", "add", url, "sub"],
    );
    let expected = real("super").join(".git/modules/sub/tenure/locks");
    assert_eq!(
        run(&scene.path("super/sub")),
        expected,
        "a repository of its own"
    );
    assert_eq!(
        run(&scene.path("super")),
        real("super").join(".git/tenure/locks")
    );
}

#[test]
fn outside_of_a_repository_nothing_is_locked_elsewhere_instead() {
    let scene = Scene::new();
    let folder = scene.path("plain");
    fs::create_dir(&folder).unwrap();
    for verb in [
        &["run", "x", "--", "echo", "ran"][..],
        &["check", "x"],
        &["list"],
        &["acquire", "x"],
    ] {
        let mut call = command(&scene, &folder, verb);
        let said = answer(call.env("TENURE_SCOPE", "repo")).expect(2, "no repository");
        assert_eq!(said.stdout(), "", "nothing ran");
        let message = said.stderr();
        for part in [
            "TENURE_SCOPE=repo",
            "is in no git repository",
            "--scope user",
            "--dir",
        ] {
            assert!(message.contains(part), "`{part}` is said: {message}");
        }
        assert_eq!(message.lines().count(), 1, "{message}");
    }
    fs::write(folder.join(".git"), "gitdir: /nowhere/at/all\n").unwrap();
    let said = from(
        &scene,
        &folder,
        &["run", "x", "--scope", "repo", "--", "echo", "ran"],
    );
    let said = said.expect(2, "a broken work tree");
    assert!(
        said.stderr().contains("git worktree repair"),
        "{}",
        said.said()
    );
    assert!(
        !scene.path(".local").exists(),
        "no lock was taken elsewhere"
    );
}

#[test]
fn a_linked_work_tree_finds_what_the_main_checkout_finds() {
    let scene = Scene::new();
    let (main, trees) = work_trees(&scene, "");
    for tree in &trees {
        git(&scene, tree, &["rm", "-q", "--cached", "tenure.toml"]);
        fs::remove_file(tree.join("tenure.toml")).unwrap();
    }
    scene.write("src/tenure.toml", "dir = \"far\"\n");
    let place = |folder: &Path| {
        let said = from(
            &scene,
            folder,
            &[
                "run",
                "x",
                "--",
                "sh",
                "-c",
                "h=${TENURE_HELD%/*}; echo ${h#*=}",
            ],
        );
        PathBuf::from(said.expect(0, "a run").stdout().trim())
    };
    for tree in &trees {
        assert_eq!(
            place(&tree.join("deep/er")),
            scene.path("src/far"),
            "{}",
            tree.display()
        );
    }
    // A file that is not committed stands in the main checkout alone.
    fs::write(main.join("tenure.toml"), "dir = \"../near\"\n").unwrap();
    for tree in &trees {
        assert_eq!(place(tree), main.join("../near"), "{}", tree.display());
    }
    fs::write(trees[3].join("tenure.toml"), "dir = \"own\"\n").unwrap();
    assert_eq!(place(&trees[3]), trees[3].join("own"), "the nearest one");
}

#[test]
fn of_several_files_the_first_that_says_something_of_a_key_counts() {
    let scene = Scene::new();
    let config = scene.path("config");
    fs::create_dir_all(config.join("tenure")).unwrap();
    fs::create_dir_all(scene.path("project")).unwrap();
    scene.write(
        "config/tenure/tenure.toml",
        "dir = \"~/of-the-user\"\n[lock.\"*\"]\nwait = \"0\"\nttl = \"7s\"\n",
    );
    scene.write("project/tenure.toml", "[lock.\"x*\"]\nwait = \"100ms\"\n");
    let project = scene.path("project");
    let call = |words: &[&str], home_config: bool| {
        let mut call = command(&scene, &project, words);
        if home_config {
            call.env("XDG_CONFIG_HOME", &config);
        }
        answer(&mut call)
    };
    let words = [
        "run",
        "x",
        "--",
        "sh",
        "-c",
        "h=${TENURE_HELD%/*}; echo ${h#*=}; tenure check x --output json",
    ];
    let said = call(&words, true).expect(0, "a run").stdout();
    let place = scene.path("of-the-user");
    assert_eq!(
        said.lines().next(),
        place.to_str(),
        "the user's file says where"
    );
    assert!(said.contains("\"ttl_ms\":7000"), "and how long: {said}");
    let waited = |name: &str| {
        let mut holder = command(
            &scene,
            &project,
            &["acquire", name, "--owner", "none", "-q"],
        );
        let _ = answer(holder.env("XDG_CONFIG_HOME", &config)).expect(0, "held");
        let refused = call(&["run", name, "--output", "json", "--", "true"], true).expect(4, name);
        refused.json()["error"]["context"]["waited_ms"].as_u64()
    };
    assert!(
        waited("x1").is_some_and(|ms| ms >= 100),
        "the project says how long to wait for it"
    );
    assert_eq!(waited("y"), None, "and of other locks the user does");
    // Where the locks are is one question: dir, store and scope are asked of one file.
    scene.write("project/tenure.toml", "store = \"file:beside\"\n");
    let said = call(&words, true).expect(0, "a run").stdout();
    let beside = project.join("beside");
    assert_eq!(
        said.lines().next(),
        beside.to_str(),
        "beside the file that says so"
    );
    // The user's file is found without that variable, and it may be wrong.
    fs::create_dir_all(scene.path(".config/tenure")).unwrap();
    scene.write(".config/tenure/tenure.toml", "dri = \"x\"\n");
    let said = call(&["run", "x", "--", "true"], false).expect(2, "not understood");
    assert!(
        said.stderr().contains(".config/tenure/tenure.toml"),
        "{}",
        said.said()
    );
}

#[test]
fn a_place_that_is_written_wrongly_says_what_to_write_instead() {
    let scene = Scene::new();
    let folder = scene.root().to_owned();
    for (content, part) in [
        ("dir = \"\"\n", "dir: it is empty"),
        ("dir = \"$HOME/locks\"\n", "variables are not expanded"),
        (
            "audit_dir = \"${X}/log\"\n",
            "audit_dir: ${X}/log: variables",
        ),
        ("scope = \"team\"\n", "scope"),
        ("scope = \"user\"\ndir = \"x\"\n", "leave one of them out"),
        (
            "scope = \"machine\"\ndir = \"x\"\n",
            "leave one of them out",
        ),
        (
            "scope = \"repo\"\nstore = \"file:x\"\n",
            "leave one of them out",
        ),
        ("scope = \"repo\"\ndir = \"../x\"\n", "without `..`"),
        ("scope = \"repo\"\ndir = \"/x\"\n", "relative"),
        ("scope = \"repo\"\ndir = \"~/x\"\n", "relative"),
    ] {
        scene.write("tenure.toml", content);
        let said = from(&scene, &folder, &["run", "x", "--", "echo", "ran"]);
        let said = said.expect(2, content);
        let message = said.stderr();
        assert!(message.contains(part), "`{part}` is said: {message}");
        assert!(message.contains("tenure.toml"), "and where: {message}");
        assert_eq!(
            (said.stdout().as_str(), message.lines().count()),
            ("", 1),
            "{message}"
        );
    }
    fs::remove_file(scene.path("tenure.toml")).unwrap();
    for (variable, value, part) in [
        ("TENURE_DIR", "", "unset it"),
        ("TENURE_DIR", "locks", "write its whole path"),
        ("TENURE_DIR", "$HOME/locks", "variables are not expanded"),
        ("TENURE_STORE", "", "unset it"),
        ("TENURE_STORE", "file:locks", "write the whole path"),
        ("TENURE_SCOPE", "", "user, repo or machine"),
        ("TENURE_SCOPE", "Repo", "user, repo or machine"),
    ] {
        for words in [&["run", "x", "--", "echo", "ran"][..], &["check", "x"]] {
            let mut call = command(&scene, &folder, words);
            let said = answer(call.env(variable, value)).expect(2, &format!("{variable}={value}"));
            let message = said.stderr();
            assert!(
                message.contains(part) && message.contains(variable),
                "{message}"
            );
            assert_eq!(
                (said.stdout().as_str(), message.lines().count()),
                ("", 1),
                "{message}"
            );
        }
        // A flag counts for more, so nothing depends on the variable.
        let mut call = command(
            &scene,
            &folder,
            &["run", "x", "--dir", "named", "--", "true"],
        );
        let _ = answer(call.env(variable, value)).expect(0, "a flag");
    }
    let mut call = command(&scene, &folder, &["run", "x", "--", "true"]);
    let _ = answer(call.env("TENURE_DIR", "~/at-home")).expect(0, "the home folder");
    assert!(scene.path("at-home/x.tenure").is_file());
    assert!(
        !scene.path(".local").exists(),
        "no lock was taken elsewhere instead"
    );
}

#[test]
fn places_that_contradict_each_other_are_refused() {
    let scene = Scene::new();
    let folder = scene.root().to_owned();
    for flags in [
        &["--dir", "a", "--scope", "user"][..],
        &["--scope", "machine", "--store", "file:a"],
        &["--dir", "a", "--store", "file:b"],
        &["--scope", "user", "--scope", "repo"],
        &["--scope", "team"],
    ] {
        let words = [&["run", "x"][..], flags, &["--", "echo", "ran"]].concat();
        let said = from(&scene, &folder, &words).expect(2, &format!("{flags:?}"));
        assert_eq!(said.stdout(), "", "nothing ran");
    }
    let mut call = command(&scene, &folder, &["run", "x", "--", "echo", "ran"]);
    call.env("TENURE_DIR", scene.path("a"))
        .env("TENURE_SCOPE", "user");
    let said = answer(&mut call).expect(2, "two variables");
    let message = said.stderr();
    for part in [
        "TENURE_DIR and TENURE_SCOPE=user",
        "two places",
        "unset one",
    ] {
        assert!(message.contains(part), "`{part}` is said: {message}");
    }
    let mut call = command(&scene, &folder, &["run", "x", "--", "true"]);
    call.env("TENURE_DIR", scene.path(".local/state/tenure/locks"))
        .env("TENURE_SCOPE", "user");
    let _ = answer(&mut call).expect(0, "they name one place");
}

/// A run tells its command its place. What named the place is no second word about it.
#[test]
fn a_nested_call_works_where_the_run_around_it_does() {
    let scene = Scene::new();
    let (main, trees) = work_trees(&scene, "");
    let outside = scene.root().to_str().unwrap().to_owned();
    let line = format!("cd '{outside}' && tenure check x --output json");
    let mut call = command(&scene, &trees[1], &["run", "x", "--", "sh", "-c", &line]);
    let said = answer(call.env("TENURE_SCOPE", "repo")).expect(0, "the caller's own hold");
    let document: serde_json::Value = serde_json::from_str(&said.stdout()).unwrap();
    let file = main
        .canonicalize()
        .unwrap()
        .join(".git/tenure/locks/x.tenure");
    assert_eq!(document["data"]["lock_file"].as_str(), file.to_str());
    assert_eq!(document["data"]["mine"], true);
}

#[test]
fn what_says_where_the_locks_are_is_told_to_a_caller_that_asks_for_more() {
    let scene = Scene::new();
    scene.write("tenure.toml", "dir = \"locks\"\n");
    let folder = scene.root().to_owned();
    let place = scene.locks();
    let place = place.to_str().unwrap();
    let file = scene.path("tenure.toml");
    let by_file = format!("the locks are in {place} ({}: dir)", file.display());
    let said = from(&scene, &folder, &["list", "-v"]).expect(0, "a list");
    assert!(said.stderr().contains(&by_file), "{}", said.said());
    let held = hold(&scene, &folder, "x", &[]);
    for words in [
        &["run", "-n", "-v", "x", "--", "true"][..],
        &["check", "x", "-v"],
        &["acquire", "x", "-nv"],
    ] {
        let said = from(&scene, &folder, words).expect(4, "held");
        assert!(
            said.stderr().contains(&by_file),
            "{words:?}: {}",
            said.said()
        );
    }
    let _ = held.open().expect(0, "the holder");
    for words in [
        &["force-release", "x", "-v"][..],
        &["cancel", "x", "-v"],
        &["cancel", "--group", "g", "-v"],
        &["clean", "-v"],
        &["clean", "--dry-run", "-v"],
        &["fence", "check", "5", "--name", "x", "-v"],
        &["release", "x", "-v"],
        &["heartbeat", "x", "--request-id", "r", "-v"],
        &["wait", "x", "-v"],
    ] {
        let said = from(&scene, &folder, words);
        let told = said.stderr().matches(&by_file).count();
        assert_eq!(told, 1, "{words:?}: {}", said.said());
        let quiet: Vec<&str> = words.iter().copied().filter(|word| *word != "-v").collect();
        let said = from(&scene, &folder, &quiet).stderr();
        assert!(!said.contains("the locks are in"), "{quiet:?}: {said}");
    }
    let said =
        from(&scene, &folder, &["check", "-v", "--scope", "user"]).expect(0, "another place");
    assert!(
        said.stderr()
            .contains("/.local/state/tenure/locks (--scope user)"),
        "{}",
        said.said()
    );
    let mut call = command(&scene, &folder, &["list", "-v"]);
    let said = answer(call.env("TENURE_DIR", place)).expect(0, "a list");
    assert!(
        said.stderr().contains(&format!("{place} (TENURE_DIR)")),
        "{}",
        said.said()
    );
    let said = from(&scene, &folder, &["list"]).expect(0, "a list");
    assert_eq!(said.stderr(), "", "and to no other caller");
}

/// In namespaces of its own, so that the test may say what the machine has.
#[test]
fn the_machines_folder_is_made_by_its_administrator_and_by_no_call() {
    let scene = Scene::new();
    let line = "
        unset TENURE_DIR
        mount -t tmpfs none /var/lib
        cp -a /etc \"$HOME/etc\"; mount --bind \"$HOME/etc\" /etc; rm -f /etc/tenure.toml
        cd \"$HOME\"
        said() { rc=0; \"$@\" >out 2>err || rc=$?; echo \"$rc $(cat out err | tr '\\n' ' ')\"; }
        said tenure run x --scope machine -- echo ran
        said tenure check x --scope machine
        said tenure list --scope machine
        said env TENURE_SCOPE=machine tenure acquire x
        ls -A /var/lib | wc -l
        ls -d .local 2>/dev/null || echo nowhere-else
        install -d -m 3770 -g root /var/lib/tenure/locks
        said tenure run x --scope machine -- sh -c 'h=${TENURE_HELD%/*}; echo ${h#*=}'
        stat -c %a /var/lib/tenure/locks/x.tenure
        printf 'dir = \"/var/lib/other\"\\n' >/etc/tenure.toml
        said tenure run x --scope machine -- echo ran
        said tenure run x -- echo ran
        install -d -m 3770 -g root /var/lib/other
        said tenure run x -- sh -c 'h=${TENURE_HELD%/*}; echo ${h#*=}'
        said tenure run x --scope machine -- sh -c 'h=${TENURE_HELD%/*}; echo ${h#*=}'
        said tenure run x --scope user -- sh -c 'h=${TENURE_HELD%/*}; echo ${h#*=}'
        printf 'scope = \"user\"\\ndir = \"/var/lib/other\"\\n' >/etc/tenure.toml
        said tenure run x -- sh -c 'h=${TENURE_HELD%/*}; echo ${h#*=}'
        said tenure run x --scope machine -- sh -c 'h=${TENURE_HELD%/*}; echo ${h#*=}'
        umount /etc /var/lib
    ";
    let Some(answer) = in_namespaces(&scene, &["--mount"], line) else {
        return;
    };
    let said = answer.expect(0, "the shell").stdout();
    let lines: Vec<&str> = said.lines().collect();
    let remedy = "sudo install -d -m 3770 -g GROUP /var/lib/tenure/locks";
    for line in &lines[..4] {
        assert!(line.starts_with("7 ") && line.contains(remedy), "{line}");
        assert!(!line.contains("ran"), "nothing ran: {line}");
    }
    assert_eq!(
        lines[4..6],
        ["0", "nowhere-else"],
        "nothing was made: {said}"
    );
    assert_eq!(lines[6..8], ["0 /var/lib/tenure/locks ", "660"], "{said}");
    for line in &lines[8..10] {
        assert!(
            line.starts_with("7 ") && line.contains("-g GROUP /var/lib/other"),
            "{line}"
        );
    }
    assert_eq!(
        lines[10..12],
        ["0 /var/lib/other "; 2],
        "one place for both: {said}"
    );
    let own = format!("0 {} ", scene.path(".local/state/tenure/locks").display());
    assert_eq!(lines[12..14], [&*own, &*own], "the user's: {said}");
    assert_eq!(lines[14], "0 /var/lib/other ", "the machine's: {said}");
}

/// Where `tenure list -v` says that the locks are.
fn place_of(call: &mut Command) -> String {
    let said = answer(call).expect(0, "a list").stderr();
    let place = said
        .lines()
        .find_map(|line| line.split_once("the locks are in "));
    let place = place.and_then(|(_, rest)| rest.split_once(" ("));
    place.expect("a place").0.to_owned()
}

/// A typed file counts for more than a variable by what it says itself, and not by the files behind it.
#[test]
fn a_named_file_without_a_place_lets_no_other_file_count_for_more_than_a_variable() {
    let scene = Scene::new();
    fs::create_dir_all(scene.path("config/tenure")).unwrap();
    scene.write("config/tenure/tenure.toml", "dir = \"/of-the-user\"\n");
    scene.write("e.toml", "[lock.x]\nwait = \"0\"\n");
    scene.write("place.toml", "dir = \"/of-the-file\"\n");
    let place = |file: &str, told: bool| {
        let mut call = command(&scene, scene.root(), &["list", "-v", "--config", file]);
        call.env("XDG_CONFIG_HOME", scene.path("config"));
        if told {
            call.env("TENURE_DIR", "/told");
        }
        place_of(&mut call)
    };
    assert_eq!(place("e.toml", true), "/told");
    assert_eq!(place("e.toml", false), "/of-the-user");
    assert_eq!(place("place.toml", true), "/of-the-file");
}

/// As cron calls it: from the home folder, with a variable that names the project's file.
#[test]
fn the_scope_of_a_projects_file_is_the_files_own_repository() {
    let scene = Scene::new();
    let (main, trees) = work_trees(&scene, "scope = \"repo\"\n");
    let own = main.canonicalize().unwrap().join(".git/tenure/locks");
    let other = scene.path("other");
    git(&scene, scene.root(), &["init", "-q", "other"]);
    for from in [scene.root(), &other, &trees[1]] {
        let mut call = command(&scene, from, &["list", "-v"]);
        call.env("TENURE_CONFIG", main.join("tenure.toml"));
        assert_eq!(place_of(&mut call), own.to_str().unwrap());
        let file = main.join("tenure.toml");
        let words = ["list", "-v", "--config", file.to_str().unwrap()];
        let said = place_of(&mut command(&scene, from, &words));
        assert_eq!(said, own.to_str().unwrap());
    }
    // A file that is named by a relative path is looked at from the same folder.
    let words = ["list", "-v", "--config", "tenure.toml"];
    let said = place_of(&mut command(&scene, &main, &words));
    assert_eq!(said, own.to_str().unwrap());
    // The repository around the file and not the inner one, where the call is made.
    git(&scene, &main, &["init", "-q", "inner"]);
    let said = place_of(&mut command(&scene, &main.join("inner"), &["list", "-v"]));
    assert_eq!(said, own.to_str().unwrap(), "the nearest file's");
    // A file in no repository speaks for those below it, and the user's file for all.
    let others = other.canonicalize().unwrap().join(".git/tenure/locks");
    scene.write("tenure.toml", "scope = \"repo\"\n");
    let said = place_of(&mut command(&scene, &other, &["list", "-v"]));
    assert_eq!(said, others.to_str().unwrap(), "a file above the clones");
    fs::remove_file(scene.path("tenure.toml")).unwrap();
    fs::create_dir_all(scene.path("config/tenure")).unwrap();
    git(&scene, &scene.path("config"), &["init", "-q"]);
    scene.write("config/tenure/tenure.toml", "scope = \"repo\"\n");
    let mut call = command(&scene, &other, &["list", "-v"]);
    call.env("XDG_CONFIG_HOME", scene.path("config"));
    assert_eq!(place_of(&mut call), others.to_str().unwrap(), "the user's");
}

/// A value that is no text is a value, and not the same as none.
#[cfg(unix)]
#[test]
fn a_variable_that_is_no_text_is_refused() {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;
    let scene = Scene::new();
    for (variable, value) in [
        ("TENURE_STORE", &b"file:/l\xff"[..]),
        ("TENURE_SCOPE", b"repo\xff"),
    ] {
        let mut call = command(&scene, scene.root(), &["run", "x", "--", "echo", "ran"]);
        let said = answer(call.env(variable, OsStr::from_bytes(value))).expect(2, variable);
        let message = said.stderr();
        assert!(
            message.contains(variable) && message.contains("UTF-8"),
            "{message}"
        );
        assert_eq!(said.stdout(), "", "nothing ran");
    }
}

/// What a shell would have expanded is expanded or refused, and never the name of a folder.
#[test]
fn no_folder_gets_the_name_of_what_a_shell_would_have_expanded() {
    let scene = Scene::new();
    let folder = scene.path("here");
    fs::create_dir(&folder).unwrap();
    let run = ["run", "x", "--", "echo", "ran"];
    for (content, part) in [
        ("store = \"file:$HOME/l\"\n", "variables are not expanded"),
        ("dir = \"~bob/x\"\n", "only ~/"),
        ("audit_dir = \"~bob/x\"\n", "only ~/"),
        ("dir = \"$(pwd)/x\"\n", "not expanded"),
        ("dir = \"  \"\n", "it is empty"),
        ("host_id = \"\"\n", "write what this machine is called"),
        ("[lock.\"\"]\nslots = 2\n", "write that of a lock"),
        ("[lock.x]\nmembers = [\"0\", \"\"]\n", "a member is empty"),
        ("scope = \"repo\"\ndir = \"refs/heads\"\n", "git's own"),
        ("scope = \"repo\"\ndir = \".\"\n", "git's own"),
        ("scope = \"repo\"\ndir = \"./Hooks\"\n", "git's own"),
        ("scope = \"repo\"\ndir = \"objects\"\n", "git's own"),
    ] {
        scene.write("here/tenure.toml", content);
        let said = from(&scene, &folder, &run).expect(2, content);
        let message = said.stderr();
        assert!(message.contains(part), "{content}: {message}");
        assert!(message.contains("tenure.toml"), "{content}: {message}");
        assert_eq!(said.stdout(), "", "nothing ran");
    }
    fs::remove_file(folder.join("tenure.toml")).unwrap();
    for (variable, value, part) in [
        ("TENURE_STORE", "file:$HOME/x", "variables are not expanded"),
        ("TENURE_STORE", "file:~bob/x", "only ~/"),
        ("TENURE_DIR", "~bob/x", "only ~/"),
        ("TENURE_DIR", "  ", "it is empty"),
        ("TENURE_AUDIT_DIR", "", "it is empty"),
        (
            "TENURE_AUDIT_DIR",
            "$HOME/aud",
            "variables are not expanded",
        ),
        ("TENURE_AUDIT_DIR", "aud", "write its whole path"),
        ("TENURE_CONFIG", "", "it is empty"),
        ("TENURE_CONFIG", "c.toml", "write its whole path"),
        (
            "TENURE_CONFIG",
            "$HOME/c.toml",
            "variables are not expanded",
        ),
    ] {
        let mut call = command(&scene, &folder, &run);
        let said = answer(call.env(variable, value)).expect(2, &format!("{variable}={value}"));
        let message = said.stderr();
        assert!(
            message.contains(part) && message.contains(variable),
            "{variable}={value}: {message}"
        );
        assert_eq!(said.stdout(), "", "nothing ran");
    }
    // A flag counts for more than the variable, so nothing depends on that.
    let mut call = command(
        &scene,
        &folder,
        &["run", "x", "--audit-dir", "log", "--", "true"],
    );
    let _ = answer(call.env("TENURE_AUDIT_DIR", "")).expect(0, "a flag");
    fs::remove_dir_all(folder.join("log")).unwrap();

    scene.write("here/tenure.toml", "store = \"file:~/of-a-file\"\n");
    let _ = from(&scene, &folder, &run).expect(0, "the home folder");
    fs::remove_file(folder.join("tenure.toml")).unwrap();
    let mut call = command(&scene, &folder, &run);
    let _ = answer(call.env("TENURE_STORE", "file:~/of-a-variable")).expect(0, "the home folder");
    let mut call = command(&scene, &folder, &run);
    let _ = answer(call.env("TENURE_AUDIT_DIR", "~/audit")).expect(0, "the home folder");
    scene.write("c.toml", "dir = \"of-a-named-file\"\n");
    let mut call = command(&scene, &folder, &run);
    let _ = answer(call.env("TENURE_CONFIG", "~/c.toml")).expect(0, "the home folder");
    for name in [
        "of-a-file/x.tenure",
        "of-a-variable/x.tenure",
        "of-a-named-file/x.tenure",
        "audit",
    ] {
        assert!(scene.path(name).exists(), "{name}");
    }
    let left: Vec<_> = fs::read_dir(&folder).unwrap().collect();
    assert!(left.is_empty(), "nothing was made here: {left:?}");
}

/// Flags that no shell has read: in single quotes, behind `=`, in a unit.
#[test]
fn no_folder_gets_the_name_of_what_a_flag_leaves_to_a_shell() {
    let scene = Scene::new();
    let folder = scene.path("here");
    fs::create_dir(&folder).unwrap();
    for (flag, value, part) in [
        ("--store", "file:$HOME/x", "variables are not expanded"),
        ("--dir", "$HOME/x", "variables are not expanded"),
        ("--dir", "~bob/x", "only ~/"),
        ("--dir", "", "name is empty; write a folder"),
        ("--scope", "", "is empty; write --scope SCOPE"),
        ("--audit-dir", "${HOME}/x", "variables are not expanded"),
        ("--audit-dir", "", "name is empty; write a folder"),
        ("--config", "$HOME/c.toml", "variables are not expanded"),
    ] {
        let words = ["run", "x", flag, value, "--", "echo", "ran"];
        let said = from(&scene, &folder, &words).expect(2, &format!("{flag} {value}"));
        let message = said.stderr();
        assert!(
            message.contains(flag) && message.contains(part),
            "{message}"
        );
        assert_eq!((said.stdout().as_str(), message.lines().count()), ("", 1));
    }
    scene.write("c.toml", "dir = \"of-a-named-file\"\n");
    for flag in [
        "--dir=~/of-a-flag",
        "--audit-dir=~/audit-of-a-flag",
        "--config=~/c.toml",
    ] {
        let _ = from(&scene, &folder, &["run", "x", flag, "--", "true"]).expect(0, flag);
    }
    for name in [
        "of-a-flag/x.tenure",
        "audit-of-a-flag",
        "of-a-named-file/x.tenure",
    ] {
        assert!(scene.path(name).exists(), "{name}");
    }
    let left: Vec<_> = fs::read_dir(&folder).unwrap().collect();
    assert!(left.is_empty(), "nothing was made here: {left:?}");
}

/// A repository whose git folder lies elsewhere names its main checkout only by `core.worktree`.
#[test]
fn a_linked_work_tree_finds_a_main_checkout_that_the_repository_names() {
    let scene = Scene::new();
    let (root, config) = (scene.root().to_owned(), "user.name=t");
    let words = ["init", "-q", "--separate-git-dir", "data.git", "separate"];
    git(&scene, &root, &words);
    let main = scene.path("separate");
    let words = ["commit", "-q", "--allow-empty", "-m", "first"];
    git(&scene, &main, &[&["-c", config][..], &words].concat());
    let words = ["worktree", "add", "-q", "-b", "b", "../linked"];
    git(&scene, &main, &words);
    fs::write(main.join("tenure.toml"), "dir = \"/of-the-main\"\n").unwrap();
    let linked = scene.path("linked");
    let said = from(&scene, &linked, &["list", "-v"]).expect(0, "a list");
    let said = said.stderr();
    assert!(said.contains("/.local/state/tenure/locks ("), "{said}");
    for part in ["main checkout", "core.worktree"] {
        assert!(said.contains(part), "it is unknown: {said}");
    }
    let said = from(&scene, &linked, &["doctor"]).stdout();
    let note = said.lines().find(|line| line.contains("main checkout"));
    assert!(
        note.is_some_and(|line| line.starts_with("note   configuration")),
        "{said}"
    );
    let said = from(&scene, &main, &["list", "-v"]).expect(0, "the main one");
    assert!(!said.stderr().contains("core.worktree"), "{}", said.said());
    // A file of its own ends the way up before.
    fs::write(linked.join("tenure.toml"), "dir = \"own\"\n").unwrap();
    for words in [&["list", "-v"][..], &["doctor"]] {
        let said = from(&scene, &linked, words).said();
        assert!(!said.contains("core.worktree"), "{said}");
    }
    fs::remove_file(linked.join("tenure.toml")).unwrap();
    let words = ["config", "core.worktree", main.to_str().unwrap()];
    git(&scene, &main, &words);
    let words = ["list", "-v"];
    let said = from(&scene, &linked, &words).expect(0, "a list").stderr();
    assert!(said.contains("/of-the-main ("), "{said}");
    assert!(!said.contains("core.worktree"), "{said}");
    // A submodule's is relative to its git folder.
    let (source, _) = work_trees(&scene, "");
    git(&scene, &root, &["init", "-q", "super"]);
    let url = source.to_str().unwrap();
    let words = ["submodule", "--quiet", "add", url, "sub"];
    git(&scene, &scene.path("super"), &words);
    let sub = scene.path("super/sub");
    let words = ["worktree", "add", "-q", "-b", "c", "../../sub-linked"];
    git(&scene, &sub, &words);
    fs::remove_file(scene.path("sub-linked/tenure.toml")).unwrap();
    fs::write(sub.join("tenure.toml"), "dir = \"/of-the-submodule\"\n").unwrap();
    let words = ["list", "-v"];
    let said = place_of(&mut command(&scene, &scene.path("sub-linked"), &words));
    assert_eq!(said, "/of-the-submodule");
}

/// In namespaces of its own, as above. A run tells its command the folder, and the command's calls are as strict.
#[test]
fn the_machines_file_and_folder_stay_the_machines_for_every_call() {
    let scene = Scene::new();
    let line = "
        unset TENURE_DIR
        mount -t tmpfs none /var/lib
        cp -a /etc \"$HOME/etc\"; mount --bind \"$HOME/etc\" /etc
        cd \"$HOME\"; mkdir -p .config/tenure /etc/deep
        said() { rc=0; \"$@\" >out 2>err || rc=$?; echo \"$rc $(cat out err | tr '\\n' ' ')\"; }
        printf 'dir = \"/var/lib/my locks\"\\n' >/etc/tenure.toml
        said env TENURE_DIR=/var/lib/tenure/locks tenure run x -- echo ran
        said env TENURE_DIR='/var/lib/my locks' tenure run x -- echo ran
        touch '/var/lib/my locks'
        said tenure run x --scope machine -- echo ran
        ls /var/lib
        printf 'dir = \"/of-the-user\"\\n' >.config/tenure/tenure.toml
        cd /etc/deep
        tenure list -v 2>&1 | grep -o 'are in /[^ ]*'
        cd \"$HOME\"; umount /etc /var/lib
    ";
    let Some(answer) = in_namespaces(&scene, &["--mount"], line) else {
        return;
    };
    let said = answer.expect(0, "the shell").stdout();
    let lines: Vec<&str> = said.lines().collect();
    for (line, part) in [
        (lines[0], "-g GROUP /var/lib/tenure/locks"),
        (lines[1], "-g GROUP '/var/lib/my locks'"),
        (lines[2], "/var/lib/my locks"),
    ] {
        assert!(line.starts_with("7 ") && line.contains(part), "{said}");
        assert!(!line.contains("ran"), "nothing ran: {said}");
    }
    assert_eq!(lines[3..], ["my locks", "are in /of-the-user"], "{said}");
}

/// A deploy that keeps `releases/N` and a link to the present one: each release would lock for itself.
#[test]
fn a_place_behind_the_link_of_a_release_is_warned_of() {
    let scene = Scene::new();
    let warned = "leads there now";
    let script = "
        set -e
        mkdir -p app/releases/7/web app/shared data/home real/app
        ln -s releases/7 app/current; ln -s ../data/home app/home; ln -s \"$PWD/real/app\" link
        git init -q app/releases/7
        unset TENURE_DIR
    ";
    answer(
        scene
            .program("sh")
            .args(["-c", script])
            .current_dir(scene.root()),
    )
    .expect(0, "made");
    for (config, folder, words, warns) in [
        ("dir = \"locks\"", "app/current", "run x -- true", true),
        ("dir = \"locks\"", "app/current/web", "run x -- true", true),
        (
            "dir = \"locks\"",
            "app/current",
            "acquire x --owner none",
            true,
        ),
        ("dir = \"locks\"", "app/current", "check x", true),
        ("dir = \"locks\"", "app/releases/7", "run x -- true", false),
        ("scope = \"repo\"", "app/current", "run x -- true", true),
        ("", "app/current", "--scope repo run x -- true", true),
        ("", "app/current", "--dir locks run x -- true", true),
        ("", "app/current", "--dir ../../shared run x -- true", false),
        (
            "",
            "app/current",
            "--dir $ROOT/app/shared run x -- true",
            false,
        ),
        ("", "app/current", "run x -- true", false),
        (
            "dir = \"$ROOT/app/shared\"",
            "app/current",
            "run x -- true",
            false,
        ),
        ("dir = \"locks\"", "app/current", "-q run x -- true", false),
        // The link stands in the path that is named.
        (
            "",
            "app",
            "--dir $ROOT/app/current/locks run x -- true",
            true,
        ),
        (
            "dir = \"locks\"",
            "app",
            "--config $ROOT/app/current/tenure.toml run x -- true",
            true,
        ),
        // Links that a system is laid out by.
        ("", "app/home", "--dir locks run x -- true", false),
    ] {
        let root = scene.root().display().to_string();
        scene.write(
            "app/releases/7/tenure.toml",
            &config.replace("$ROOT", &root),
        );
        let line = format!(
            "unset TENURE_DIR; cd {folder} && tenure {}; rm -f locks/x.tenure",
            words.replace("$ROOT", &root)
        );
        let mut call = scene.program("bash");
        let said = answer(call.args(["-c", &line]).current_dir(scene.root())).expect(0, &line);
        assert_eq!(
            said.stderr().contains(warned),
            warns,
            "{config} {line}: {}",
            said.said()
        );
    }
}
