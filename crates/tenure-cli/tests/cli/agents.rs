//! Agents: one host process runs many of them, so neither process nor environment tells them apart. What one of them
//! holds, no sibling ends; and it ends with the host, by silence and at its age. Locks of paths.

use crate::support::{Scene, Started, answer, eventually, timed};
use rustix::process::Signal;
use serde_json::Value;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

const FIRST: &str = "claude/1f3c/a6b4";
const SIBLING: &str = "claude/1f3c/b";

/// The process of a host: it does nothing here but live.
fn host(scene: &Scene) -> Started {
    Started::new(scene.program("sleep").arg("600").stdout(Stdio::null()))
}

/// Kills a host, and collects it.
fn kill(host: &mut Started) {
    host.signal(Signal::KILL);
    host.end();
}

fn acquired(scene: &Scene, words: &[&str]) -> Value {
    let mut all = vec!["acquire", "--output", "json"];
    all.extend(words);
    scene.run(all).expect(0, "acquired").json()["data"].clone()
}

fn id_of(data: &Value) -> &str {
    data["request_id"].as_str().expect("a request id")
}

#[test]
fn no_sibling_of_one_host_ends_or_renews_what_an_agent_holds() {
    let scene = Scene::new();
    let host = host(&scene);
    let owner = host.pid().to_string();
    let held = acquired(&scene, &["x", "--as", FIRST, "--owner", &owner]);
    assert_eq!(held["agent"]["key"], FIRST);
    assert_eq!(held["max_age_ms"], 7_200_000);
    let id = id_of(&held);
    for words in [
        &["release", "x", "--as", SIBLING][..],
        &["release", "x", "--as", SIBLING, "--request-id", id],
        &["heartbeat", "x", "--as", SIBLING, "--request-id", id],
        // Another session, though its agent has the same name.
        &["release", "x", "--as", "claude/2/a6b4", "--request-id", id],
        // The right agent without the id, and a caller that only descends from the owner.
        &["release", "x", "--as", FIRST],
        &["heartbeat", "x"],
        &["release", "x"],
    ] {
        let refused = scene.run(words);
        let said = refused.expect(6, &format!("{words:?}")).stderr();
        assert!(said.contains(FIRST), "it says whose it is: {said}");
        assert!(!said.contains("--force"), "no advice to end it: {said}");
    }
    let holder = &scene.check("x")["holder"];
    assert_eq!(holder["agent"]["session"], "1f3c");
    assert_eq!(holder["agent"]["agent"], "a6b4");
    for caller in [Some(FIRST), Some("claude/1f3c"), None] {
        let mut words = vec!["heartbeat", "x", "--request-id", id];
        words.extend(caller.iter().flat_map(|caller| ["--as", *caller]));
        scene.run(&words).expect(0, &format!("{words:?}"));
    }
    scene
        .run(["release", "x", "--as", FIRST, "--request-id", id])
        .expect(0, "its own agent");
}

/// A hook writes `--as KEY` in front of a command, whatever its agent holds already.
#[test]
fn an_agents_commands_go_on_under_what_it_took_itself() {
    let scene = Scene::new();
    let host = host(&scene);
    let owner = host.pid().to_string();
    let run = |agent: &str, more: &[&str]| {
        let words = [
            "run", "x", "--as", agent, "--wait", "300ms", "--ticket", "auto",
        ];
        scene.run([&words[..], more, &["--"]].concat().iter().copied().chain([
            "sh",
            "-c",
            "echo $TENURE_TOKEN $TENURE_REQUEST_ID",
        ]))
    };
    let held = acquired(&scene, &["x", "--as", FIRST, "--owner", &owner]);
    let expected = format!("{} {}\n", held["token"], id_of(&held));
    assert_eq!(run(FIRST, &[]).expect(0, "its own hold").stdout(), expected);
    run(FIRST, &["--shared"]).expect(0, "has all that it gives");
    for other in [SIBLING, "claude/1f3c", "claude/2/a6b4"] {
        run(other, &[]).expect(4, "held by another agent");
    }
    // Neither of the others waits for itself: no other caller would end that.
    for verb in ["acquire", "wait"] {
        let words = [verb, "x", "--as", FIRST, "--wait", "20s"];
        let (refused, took) = timed(|| scene.run(words));
        let said = refused.expect(81, verb).stderr();
        assert!(said.contains("held by this agent itself"), "{said}");
        assert!(took < Duration::from_secs(10), "{took:?}");
    }
    // Within the command it is the hold of a run around.
    let inner = "tenure run x -w 20s -- true; echo $?; tenure run x --reentrant -- echo within";
    let words = ["run", "x", "--as", FIRST, "--", "sh", "-c", inner];
    let said = scene.run(words).expect(0, "the script");
    assert_eq!(said.stdout(), "81\nwithin\n");
    // What the agent gives back under its command, that command is not left with.
    let release = format!("tenure release x --request-id {}; sleep 60", id_of(&held));
    let words = ["run", "x", "--as", FIRST, "--", "sh", "-c", &release];
    let (ended, took) = timed(|| scene.run(words));
    ended.expect(80, "the hold is gone");
    assert!(took < Duration::from_secs(30), "{took:?}");
    // The work of an agent is a sign of life of it, also where nothing else tells of it.
    acquired(
        &scene,
        &["z", "--as", FIRST, "--owner", &owner, "--ttl", "1500ms"],
    );
    let words = ["run", "z", "--as", FIRST, "--", "sleep", "4"];
    scene.run(words).expect(0, "it is not taken for silent");
    // A session holds beside its agents, and not over them.
    acquired(
        &scene,
        &[
            "y",
            "--as",
            "claude/1f3c",
            "--owner",
            &owner,
            "--slots",
            "2",
        ],
    );
    let words = [
        "run",
        "y",
        "--as",
        "claude/1f3c",
        "--wait",
        "0",
        "--",
        "true",
    ];
    let refused = scene.run(words).expect(81, "another mode");
    assert!(
        refused.stderr().contains("in another mode"),
        "{}",
        refused.stderr()
    );
}

#[test]
fn the_owner_itself_gives_back_no_agents_hold_without_its_id() {
    let scene = Scene::new();
    // Both lines are of one shell, which is the owner.
    let said = scene.shell(&format!(
        "tenure acquire x --owner $$ --as {FIRST} && tenure release x --as {SIBLING}; echo $?"
    ));
    assert!(said.stdout().ends_with("6\n"), "{}", said.stdout());
}

/// A script that an agent starts under a lock takes and gives back its own holds as it always did.
#[test]
fn a_script_inside_an_agents_run_keeps_the_rules_of_its_own_holds() {
    let scene = Scene::new();
    let script = "tenure acquire db --owner $$ --ttl 1s && tenure check db --output json > seen; \
                  sleep 2; tenure acquire db -n --owner none; echo $?; tenure release db";
    let mut run = scene.tenure(["run", "build", "--as", FIRST, "--", "sh", "-c", script]);
    let said = answer(run.current_dir(scene.root())).expect(0, "released without its id");
    assert!(said.stdout().contains("\n4\n"), "{}", said.stdout());
    let seen: Value = serde_json::from_slice(&fs::read(scene.path("seen")).unwrap()).unwrap();
    let holder = &seen["data"]["holder"];
    assert!(holder.is_object() && holder["agent"].is_null(), "{seen:#}");
    let audit = scene.run(["audit", "--as", FIRST, "--output", "json"]);
    let events = audit.expect(0, "an audit").json()["data"]["events"].to_string();
    assert!(
        events.contains("\"db\""),
        "the label is in the audit: {events}"
    );
}

#[test]
fn an_idle_host_holds_nothing_all_night() {
    let scene = Scene::new();
    let host = host(&scene);
    let owner = host.pid().to_string();
    let idle = ["--owner", &owner, "--ttl", "700ms"];
    acquired(&scene, &[&["x", "--as", FIRST][..], &idle].concat());
    // Without an agent, the life of the owner is the life of the hold.
    acquired(&scene, &[&["script"][..], &idle].concat());
    let (taken, took) = timed(|| scene.run(["acquire", "x", "--as", SIBLING, "-w", "20s"]));
    taken.expect(0, "the agent was silent for longer than its ttl");
    assert!(took < Duration::from_secs(10), "{took:?}");
    scene
        .run(["acquire", "script", "-n"])
        .expect(4, "its owner lives");
}

#[test]
fn a_killed_host_frees_what_its_agents_hold_at_once() {
    let scene = Scene::new();
    let mut host = host(&scene);
    let owner = host.pid().to_string();
    acquired(&scene, &["x", "--as", FIRST, "--owner", &owner]);
    scene
        .run(["acquire", "x", "--as", SIBLING, "-n"])
        .expect(4, "held");
    kill(&mut host);
    scene
        .run(["acquire", "x", "--as", SIBLING, "-n", "--owner", "none"])
        .expect(0, "its host is dead");
}

#[test]
fn a_session_that_is_resumed_in_another_process_takes_its_lock_anew() {
    let scene = Scene::new();
    let (mut before, after) = (host(&scene), host(&scene));
    let (old, new) = (before.pid().to_string(), after.pid().to_string());
    let first = acquired(&scene, &["x", "--as", FIRST, "--owner", &old]);
    kill(&mut before);
    let second = acquired(&scene, &["x", "--as", FIRST, "--owner", &new]);
    assert_eq!(second["owner_pid"].as_u64(), Some(after.pid().into()));
    assert!(second["token"].as_u64() > first["token"].as_u64());
    scene
        .run(["release", "x", "--as", FIRST, "--request-id", id_of(&first)])
        .expect(80, "the id of the hold that is over");
}

#[test]
fn a_hold_ends_at_its_age_however_often_it_is_renewed() {
    let scene = Scene::new();
    let host = host(&scene);
    let owner = host.pid().to_string();
    let aged = ["--owner", &owner, "--max-age", "1s"];
    for (name, whose) in [("x", &["--as", FIRST][..]), ("y", &[])] {
        let held = acquired(&scene, &[&[name][..], whose, &aged].concat());
        let id = id_of(&held).to_owned();
        let beat = || scene.run(["heartbeat", name, "--request-id", &id]);
        beat().expect(0, "it is young");
        eventually("the hold is too old", || beat().code() == 80);
        scene.run(["acquire", name, "-n"]).expect(0, "it is free");
    }
    let long = scene.run(["acquire", "z", "--as", FIRST, "--max-age", "25h"]);
    assert!(
        long.expect(2, "more than a day")
            .stderr()
            .contains("within a day")
    );
    for profile in ["resume", "session"] {
        let other = scene.run(["acquire", "42", "--profile", profile, "--max-age", "1h"]);
        let said = other.expect(2, profile).stderr();
        assert!(said.contains("--max-age"), "{said}");
    }
}

#[test]
fn a_run_in_the_background_holds_for_its_agent_beyond_the_call() {
    let scene = Scene::new();
    let line = format!(
        "tenure run x --as {FIRST} -- sh -c 'echo $TENURE_AS > who; exec sleep 600' > log 2>&1 < /dev/null & echo $! > pid"
    );
    answer(
        scene
            .program("sh")
            .args(["-c", &line])
            .current_dir(scene.root()),
    )
    .expect(0, "the call returns");
    eventually("the run holds", || {
        scene.check("x")["holder"]["command_pid"].is_u64()
    });
    let holder = scene.check("x")["holder"].clone();
    assert_eq!(
        (&holder["kind"], &holder["agent"]["key"]),
        (&"run".into(), &FIRST.into())
    );
    eventually("the command knows its agent", || {
        fs::read_to_string(scene.path("who")).is_ok_and(|who| who == format!("{FIRST}\n"))
    });
    scene
        .run(["release", "x", "--as", SIBLING])
        .expect(6, "a sibling");
    scene
        .run(["run", "x", "-n", "--as", SIBLING, "--", "true"])
        .expect(4, "held");
    let pid = fs::read_to_string(scene.path("pid")).unwrap();
    scene
        .shell(&format!("kill {pid}"))
        .expect(0, "asked to end");
    eventually("it is free", || scene.check("x")["standing"] == "free");
}

/// The calls of one agent are processes of their own: in a sandbox, or under a script that ends with the refusal. Its
/// place in line is its own all the same, and no sibling's.
#[test]
fn an_agent_finds_its_place_again_from_whatever_process_it_comes() {
    let scene = Scene::new();
    let held = scene.hold("x", ["-q"]);
    let script = scene.script(
        "call.sh",
        "tenure run x -w 100ms --output json --as \"$@\" -- true\nexit $?\n",
    );
    let refused = |words: &[&str]| {
        let mut command = scene.program("sh");
        let answer = answer(command.arg(&script).args(words)).expect(4, "held");
        let document = answer.json();
        document["error"]["context"]["ticket"]
            .as_u64()
            .expect("a ticket")
    };
    let auto = |agent: &str| refused(&[agent, "--ticket", "auto"]);
    let first = auto(FIRST);
    let sibling = auto(SIBLING);
    let session = auto("claude/1f3c");
    assert!(first < sibling && sibling < session);
    for _ in 0..2 {
        assert_eq!(auto(FIRST), first);
        assert_eq!(auto(SIBLING), sibling);
        assert_eq!(auto("claude/1f3c"), session);
    }
    // A sibling that reads the number in a list gets nothing by it; the agent itself does.
    let number = first.to_string();
    let mut command = scene.program("sh");
    let answer = answer(command.arg(&script).args([SIBLING, "--ticket", &number]));
    let answer = answer.expect(5, "not its place");
    assert_eq!(
        answer.json()["error"]["code"],
        "TICKET_NOT_FOUND",
        "{}",
        answer.said()
    );
    assert_eq!(refused(&[FIRST, "--ticket", &number]), first);
    assert_eq!(auto(FIRST), first, "and by its key after that");
    // When the lock is free, whoever comes goes on: places block nobody.
    let _ = held.open();
    let mut command = scene.program("sh");
    let _ = crate::support::answer(command.arg(&script).args([SIBLING, "--ticket", "auto"]))
        .expect(0, "free");
}

#[test]
fn who_holds_is_shown_and_found_by_agent() {
    let scene = Scene::new();
    acquired(&scene, &["x", "--as", FIRST]);
    acquired(&scene, &["y", "--as", "codex/7"]);
    acquired(&scene, &["z"]);
    let names = |words: &[&str]| -> Vec<String> {
        let list = scene.run([&["list", "--output", "json"][..], words].concat());
        let list = list.expect(0, "a list").json();
        let locks = list["data"]["locks"].as_array().unwrap().clone();
        locks
            .iter()
            .map(|lock| lock["name"].as_str().unwrap().to_owned())
            .collect()
    };
    assert_eq!(names(&[]), ["x", "y", "z"]);
    assert_eq!(names(&["--as", "claude/1f3c"]), ["x"]);
    assert_eq!(names(&["--as", SIBLING]), [""; 0]);
    let text = scene.run(["list"]).expect(0, "a table").stdout();
    assert!(text.contains(&format!("agent {FIRST}")), "{text}");
    let audit = scene.run(["audit", "--as", "codex/7", "--output", "json"]);
    let events = audit.expect(0, "an audit").json()["data"]["events"].clone();
    assert_eq!(events.as_array().map(Vec::len), Some(1), "{events}");
    assert_eq!(events[0]["agent"]["session"], "7");
    assert_eq!(events[0]["lock_name"], "y");
}

#[test]
fn a_key_that_is_none_is_refused_before_anything_happens() {
    let scene = Scene::new();
    for bad in ["", "claude", "Claude/1", "claude/1/2/3", "claude/a b"] {
        let said = scene.run(["acquire", "x", "--as", bad]);
        assert!(
            said.expect(2, bad).stderr().contains("HOST/SESSION"),
            "{bad:?}"
        );
        let mut told = scene.tenure(["run", "x", "--", "true"]);
        let said = answer(told.env("TENURE_AS", bad)).expect(2, bad).stderr();
        assert!(
            said.contains("TENURE_AS") && said.contains("HOST/SESSION"),
            "{said}"
        );
    }
    assert!(!scene.locks().exists());
}

/// A clone with a file, and a linked work tree of it.
fn trees(scene: &Scene) -> [std::path::PathBuf; 2] {
    let (main, linked) = (scene.path("main tree"), scene.path("linked"));
    let git = |folder: &Path, words: &[&str]| {
        let mut git = scene.program("git");
        git.current_dir(folder).env("GIT_CONFIG_NOSYSTEM", "1");
        git.args(["-c", "user.name=a", "-c", "user.email=a@localhost"]);
        answer(git.args(words)).expect(0, &format!("git {words:?}"));
    };
    fs::create_dir(&main).unwrap();
    git(&main, &["init", "-q"]);
    fs::create_dir(main.join("src")).unwrap();
    fs::write(main.join("src/api.rs"), "").unwrap();
    git(&main, &["add", "--all"]);
    git(&main, &["commit", "-q", "-m", "first"]);
    git(&main, &["worktree", "add", "-q", "../linked"]);
    [main, linked]
}

#[test]
fn a_path_is_one_lock_by_whatever_way_it_is_named() {
    let scene = Scene::new();
    let [main, _] = trees(&scene);
    symlink(main.join("src"), scene.path("link")).unwrap();
    symlink("api.rs", main.join("src/also.rs")).unwrap();
    let api = main.join("src/api.rs").display().to_string();
    let link = scene.path("link").display().to_string();
    let held = acquired(&scene, &["--path", &api, "--as", FIRST]);
    assert_eq!(held["path"], "src/api.rs");
    let name = held["name"].as_str().unwrap();
    assert!(name.starts_with("path=api.rs="), "{name}");
    for path in [
        format!("{link}/api.rs"),
        format!("{link}/also.rs"),
        format!("{link}/../src/./api.rs"),
        format!("{link}/not there/../api.rs"),
    ] {
        let mut other = scene.tenure(["acquire", "-n", "--as", SIBLING, "--path", &path]);
        let said = answer(&mut other).expect(4, &path).stderr();
        assert!(
            said.contains("src/api.rs is held by agent claude/1f3c/a6b4"),
            "{said}"
        );
    }
    let mut from_src = scene.tenure(["check", "--path", "api.rs", "--output", "json"]);
    let seen = answer(from_src.current_dir(main.join("src"))).expect(4, "held");
    assert_eq!(seen.json()["error"]["context"]["path"], "src/api.rs");
    scene.run(["wait", "-n", "--path", &api]).expect(4, "held");
    scene
        .run(["run", "-n", "--path", &api, "--", "true"])
        .expect(4, "held");
    let id = id_of(&held);
    scene
        .run(["heartbeat", "--path", &api, "--request-id", id])
        .expect(0, "its id");
    scene
        .run(["release", "--path", &api, "--request-id", id])
        .expect(0, "its id");
    scene
        .run(["run", "-n", "--path", &api, "--", "true"])
        .expect(0, "free");
}

#[test]
fn any_name_of_a_file_makes_a_lock_and_a_file_need_not_exist() {
    let scene = Scene::new();
    let long = "l".repeat(200);
    let mut names = Vec::new();
    for file in [
        "a b.txt",
        "ä/ö.rs",
        "..x",
        "a;b=c%d",
        "-n",
        "new/deep/er.rs",
        &long,
        "a\nb",
    ] {
        let path = scene.path(file).display().to_string();
        let held = acquired(&scene, &["--path", &path, "--as", FIRST]);
        names.push(held["name"].as_str().unwrap().to_owned());
        // Made meanwhile, it is the same lock.
        fs::create_dir_all(scene.path(file).parent().unwrap()).unwrap();
        fs::write(scene.path(file), "").unwrap();
        scene
            .run(["acquire", "-n", "--path", &path, "--as", SIBLING])
            .expect(4, file);
    }
    let before = names.len();
    names.sort();
    names.dedup();
    assert_eq!(names.len(), before, "each has its own");
    let text = scene.run(["list"]).expect(0, "a table").stdout();
    assert!(
        text.contains("a;b=c%d") && !text.contains("path=a_b_c"),
        "{text}"
    );
    for (words, part) in [
        (&["--path", ""][..], "is empty"),
        (&["x", "--path", "y"], "--path"),
        (&["x", "--across", "repo"], "--across"),
        (&["--path", "/dev/null/x"], "cannot be followed"),
        (&["--path", "y", "--profile", "resume"], "only native locks"),
    ] {
        let refused = scene.run([&["acquire"][..], words].concat());
        let said = refused.expect(2, &format!("{words:?}")).stderr();
        assert!(said.contains(part), "{words:?}: {said}");
    }
    let mut nowhere = scene.tenure(["acquire", "--path", "x", "--across", "repo"]);
    let said = answer(nowhere.current_dir(scene.root())).expect(2, "no repository");
    assert!(
        said.stderr().contains("is in no git repository"),
        "{}",
        said.stderr()
    );
}

#[test]
fn work_trees_share_a_path_only_where_that_is_wanted() {
    let scene = Scene::new();
    let trees = trees(&scene);
    let of = |tree: &Path, across: &str, key: &str| {
        let path = tree.join("src/api.rs");
        let mut call = scene.tenure(["acquire", "-n", "--as", key, "--across", across, "--path"]);
        answer(call.arg(path)).code()
    };
    assert_eq!(of(&trees[0], "worktree", FIRST), 0);
    assert_eq!(of(&trees[1], "worktree", SIBLING), 0, "another file");
    assert_eq!(of(&trees[0], "repo", FIRST), 0);
    assert_eq!(of(&trees[1], "repo", SIBLING), 4, "the same for both trees");
    // A path of another repository is another lock.
    fs::create_dir(scene.path("other")).unwrap();
    answer(
        scene
            .program("git")
            .args(["init", "-q", "other"])
            .current_dir(scene.root()),
    )
    .expect(0, "a repository");
    assert_eq!(of(&scene.path("other"), "repo", SIBLING), 0);
}

#[test]
fn the_lock_of_a_path_is_where_the_targets_project_says() {
    let scene = Scene::new();
    let [main, _] = trees(&scene);
    fs::write(main.join("tenure.toml"), "scope = \"repo\"\n").unwrap();
    let elsewhere = scene.path("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    fs::write(elsewhere.join("tenure.toml"), "dir = \"here\"\n").unwrap();
    let target = main.join("src/new.rs");
    let call = |folder: &Path| {
        let mut call = scene.tenure(["acquire", "-n", "--as", FIRST, "--output", "json", "--path"]);
        call.current_dir(folder)
            .env_remove("TENURE_DIR")
            .arg(&target);
        answer(&mut call)
    };
    let held = call(&elsewhere).expect(0, "acquired").json();
    let file = held["data"]["lock_file"].as_str().unwrap();
    let common = main.canonicalize().unwrap().join(".git/tenure/locks");
    assert!(Path::new(file).starts_with(&common), "{file}");
    assert!(!elsewhere.join("here").exists());
    call(&main).expect(81, "the same lock from within");
}

/// A leased path never looks free: each verb finds the lock by the rule of the folder, and by what `list` prints.
#[test]
fn each_verb_takes_a_path_and_what_list_prints() {
    let scene = Scene::new();
    let [main, other] = trees(&scene);
    let rule =
        "scope = \"repo\"\n[[agent.path]]\nmatch = [\"src/**\", \"Makefile\"]\nacross = \"repo\"\n";
    fs::write(main.join("tenure.toml"), rule).unwrap();
    let call = |folder: &Path, words: &[&str]| {
        let mut call = scene.tenure(words);
        answer(call.env_remove("TENURE_DIR").current_dir(folder))
    };
    for (path, printed) in [("src/api.rs", "src/api.rs"), ("Makefile", "./Makefile")] {
        let held = [
            "acquire",
            "-n",
            "--owner",
            "none",
            "--ttl",
            "5m",
            "--request-id",
            "r1",
            "--path",
            path,
        ];
        let token = call(&main, &[&held[..], &["--output", "json"]].concat());
        let token = token.expect(0, "acquired").json()["data"]["token"].to_string();
        let listed = call(&main, &["list"]).expect(0, "a table").stdout();
        let first = listed
            .lines()
            .nth(1)
            .and_then(|line| line.split_whitespace().next());
        assert_eq!(first, Some(printed), "{listed}");
        let whole = main.join(path).display().to_string();
        let named: [(&Path, &[&str], &str); 5] = [
            (&main, &["--path"], path),
            // Of another work tree, whose file is the same by the rule.
            (&other, &["--path"], path),
            (scene.root(), &["--path"], &whole),
            (&main, &[], printed),
            (&main.join("src"), &[], printed),
        ];
        for (folder, flag, lock) in named {
            for (verb, code) in [
                (&["check"][..], 4),
                (&["check", "--held"], 0),
                (&["wait", "-n"], 4),
                (&["release"], 6),
                (&["release", "--request-id", "r2"], 6),
                (&["heartbeat", "--request-id", "r1"], 0),
                (&["force-release", "--yes", "--token", "1"], 5),
                (&["cancel", "--request-id", "r2"], 5),
                (&["cancel"], 0),
                (&["list"], 0),
            ] {
                let said = call(folder, &[verb, flag, &[lock]].concat());
                let said = said.expect(code, &format!("{verb:?} {flag:?} {lock}"));
                assert!(
                    verb != ["list"] || said.stdout().contains(printed),
                    "{}",
                    said.stdout()
                );
            }
            let flag = if flag.is_empty() {
                &["--name"][..]
            } else {
                flag
            };
            let fence = [&["fence", "check", &token], flag, &[lock]].concat();
            call(folder, &fence).expect(0, "its token");
        }
        for (flag, lock) in [(&["--path"][..], path), (&[], printed)] {
            let said = call(
                &main,
                &[&["audit", "--audit-dir", "none"], flag, &[lock]].concat(),
            );
            said.expect(0, "no events there");
        }
        let taken = ["run", "-n", "--path", path, "--", "true"];
        call(&main, &taken).expect(4, "as the rule says");
        let own = ["--path", path, "--across", "worktree"];
        call(&main, &[&["check"], &own[..]].concat()).expect(0, "the call itself says more");
        call(&main, &["force-release", "--yes", printed]).expect(0, "by what is printed");
        for (flag, lock) in [(&["--path"][..], path), (&[], printed)] {
            call(&main, &[&["check"], flag, &[lock]].concat()).expect(0, "it is free");
            call(&main, &[&["wait"], flag, &[lock]].concat()).expect(0, "it is free");
        }
    }
    call(&main, &["run", "src/api.rs", "--", "true"]).expect(2, "what is taken is named by --path");
}

#[test]
fn a_path_that_stands_for_several_locks_is_refused_with_their_names() {
    let scene = Scene::new();
    let trees = trees(&scene);
    for tree in &trees {
        let path = tree.join("src/api.rs");
        let mut call = scene.tenure(["acquire", "--owner", "none", "--ttl", "5m", "--path"]);
        answer(call.arg(path)).expect(0, "acquired");
    }
    let said = scene
        .run(["check", "src/api.rs"])
        .expect(2, "which one?")
        .stderr();
    let names: Vec<_> = said
        .split([' ', ',', ';'])
        .filter(|word| word.starts_with("path="))
        .collect();
    assert_eq!(names.len(), 2, "{said}");
    for name in names {
        scene.run(["check", name]).expect(4, "each of them is held");
    }
}

/// A sandbox keeps a command from the folder of the locks, or from their servers. What a hook has written goes on there if its
/// rule is open. A lock that works, and is not to be had, stays what it is.
#[test]
fn a_run_that_is_open_goes_on_where_the_place_of_its_lock_cannot_be_used() {
    let scene = Scene::new();
    let run = |flags: &[&str], more: &[&str]| {
        let mut words = vec!["run", "x", "--as", FIRST, "--wait", "1s"];
        words.extend(flags);
        words.extend(more);
        words.extend(["--", "sh", "-c", "echo ran; exit 3"]);
        scene.run(words)
    };
    let open = ["--on-error", "open"];
    // Others may put files there, so nothing in it is believed.
    let unsafe_place = scene.path("shared");
    fs::create_dir(&unsafe_place).expect("a folder");
    fs::set_permissions(&unsafe_place, fs::Permissions::from_mode(0o777)).expect("rights");
    let unsafe_place = unsafe_place.to_str().expect("text");
    scene.write("file", "");
    let file = scene.path("file");
    let file = file.to_str().expect("text");
    let mut places = vec![(["--dir", unsafe_place], 7), (["--dir", file], 12)];
    // Takes no connection: the port is bound, and nothing listens.
    let socket = std::net::UdpSocket::bind("127.0.0.1:0").expect("a port");
    let port = socket.local_addr().expect("its number").port();
    let servers = format!("etcd://127.0.0.1:{port}/x");
    if cfg!(feature = "etcd") {
        places.push((["--store", &servers], 12));
    }
    for (place, code) in places {
        for flags in [&[][..], &["--on-error", "closed"]] {
            let refused = run(flags, &place).expect(code, "closed");
            assert!(!refused.stdout().contains("ran"), "{}", refused.said());
            assert!(
                !refused.stderr().contains("TENURE_DIR"),
                "{}",
                refused.said()
            );
        }
        let ran = run(&open, &place).expect(3, "open");
        assert_eq!(ran.stdout(), "ran\n");
        assert!(
            ran.stderr()
                .contains("x is not taken, and the command runs without it"),
            "{}",
            ran.said()
        );
    }
    let become_it = run(&["--on-error", "open", "--exec"], &["--dir", unsafe_place]);
    assert_eq!(become_it.expect(3, "open, by exec").stdout(), "ran\n");
    // The place works: a held lock, and a list that a later version has written.
    let held = scene.hold("x", ["-q"]);
    let _ = run(&open, &[]).expect(4, "held");
    let _ = held.open();
    let _ = run(&open, &[]).expect(3, "it is free");
    let file = scene.locks().join("x.tenure");
    let mut bytes = fs::read(&file).expect("a lock file");
    let later = b"tenure 2 9 1 0123456789abcdef 9.9.9\n";
    bytes[..later.len()].copy_from_slice(later);
    fs::write(&file, &bytes).expect("a later format");
    let later = run(&open, &[]).expect(12, "a later format");
    assert_eq!(later.stdout(), "");
}
