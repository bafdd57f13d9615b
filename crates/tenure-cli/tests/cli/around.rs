//! Where the locks of a call lie that is made inside a run, and when the run around a call says nothing of them.

#![allow(
    clippy::disallowed_methods,
    reason = "the test removes files of projects, which no store has"
)]

use crate::support::{Answer, Scene, answer};
use std::fs;
use std::path::Path;

/// Prints the folder of the lock of the run.
const PRINT: &str = "h=${TENURE_HELD%/*}; echo \"${h##*=}\"";

/// Prints the folder of the lock of the run, within double quotes.
const PRINT_QUOTED: &str = "h=\\${TENURE_HELD%/*}; echo \\${h##*=}";

/// Projects, each a repository: `a` and `b` keep their locks in it, `plain` says nothing of a place, and `web` has a
/// project within a project.
fn projects() -> Scene {
    let scene = Scene::new();
    for folder in ["a", "b", "plain", "web", "web/packages/ui", "nowhere"] {
        fs::create_dir_all(scene.path(folder)).unwrap();
    }
    for repository in ["a", "b", "plain", "web"] {
        let mut git = scene.program("git");
        git.args(["init", "-q", "."])
            .current_dir(scene.path(repository));
        let _ = answer(&mut git).expect(0, "a repository");
    }
    let leases = "[[agent.path]]\nmatch = [\"**\"]\n";
    for (file, text) in [
        ("a/tenure.toml", "scope = \"repo\"\n"),
        ("b/tenure.toml", "scope = \"repo\"\n"),
        ("plain/tenure.toml", "[lock.x]\nwait = \"1s\"\n"),
        ("web/tenure.toml", "dir = \"root-locks\"\n"),
        ("web/packages/ui/tenure.toml", "dir = \"ui-locks\"\n"),
    ] {
        scene.write(file, &format!("{text}{leases}"));
    }
    scene
}

/// Calls from a folder, with nothing in the environment that names a place but these words before it.
fn call(scene: &Scene, folder: &str, script: &str) -> Answer {
    let mut shell = scene.program("sh");
    shell
        .args(["-c", script])
        .env_remove("TENURE_DIR")
        .current_dir(scene.path(folder));
    answer(&mut shell)
}

/// Each way in which a call is told its place.
fn ways(root: &str) -> [(&'static str, String); 8] {
    let test = std::env::current_exe().expect("this test");
    // Takes a lock, and looks which file of a lock has changed.
    let by_file = |take: &str| {
        format!(
            "touch {root}/stamp; sleep 0.02; {take} >{root}/said 2>&1; \
             find {root} -name '*.tenure' ! -name o.tenure ! -name outer.tenure ! -name '.agent-*' -newer {root}/stamp -printf '%h\\n'"
        )
    };
    let event = "{\"session_id\":\"s\",\"cwd\":\"\"$PWD\"\",\"hook_event_name\":\"PreToolUse\",\"tool_name\":\"Write\",\"tool_use_id\":\"t\",\"tool_input\":{\"file_path\":\"\"$PWD\"/f.txt\",\"content\":\"\"}}"
        .replace("\"\"$PWD\"", "\"'$PWD'");
    let of_json = |words: &str| {
        format!("tenure {words} --output json | sed 's/.*\"lock_file\":\"//; s,/z.tenure\".*,,'")
    };
    [
        ("run", format!("tenure run z -- sh -c '{PRINT}'")),
        (
            "run --exec",
            format!("tenure run --exec z -- sh -c '{PRINT}'"),
        ),
        (
            "acquire",
            format!(
                "tenure -q acquire z --owner none --request-id r >/dev/null; {}; tenure -q release z --request-id r >/dev/null",
                of_json("check z")
            ),
        ),
        ("check", of_json("check z")),
        (
            "doctor",
            "tenure doctor --output json | sed 's/.*\"kind\":\"folder\",\"at\":\"//; s,\".*,,'"
                .to_owned(),
        ),
        (
            "serve",
            "(echo '{\"jsonrpc\":\"2.0\",\"id\":0,\"method\":\"hello\",\"params\":{\"protocol\":1}}'; \
             echo '{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"acquire\",\"params\":{\"locks\":[{\"name\":\"z\"}]}}'; sleep 0.2) | \
             tenure serve | sed -n 's,.*\"TENURE_HELD\":\"\\([^\"]*;\\)*[0-9]*=\\([^\"]*\\)/z\".*,\\2,p'"
                .to_owned(),
        ),
        ("hook", by_file(&format!("echo '{event}' | tenure hook claude"))),
        (
            "library",
            by_file(&format!(
                "{} --exact around::takes_a_lock_by_the_library --ignored",
                test.display()
            )),
        ),
    ]
}

#[test]
#[ignore = "a program that uses the library; the table of places starts it"]
fn takes_a_lock_by_the_library() {
    let locks = tenure::guard::LockManager::open().expect("a place");
    drop(locks.acquire("z").expect("a lock"));
}

#[allow(clippy::too_many_lines, reason = "it is a table")]
#[test]
fn place_of_a_nested_call_table() {
    let scene = projects();
    let root = scene.path("");
    let root = root.display().to_string().trim_end_matches('/').to_owned();
    let repo = |name: &str| format!("{root}/{name}/.git/tenure/locks");
    let (usual, d, v) = (
        default_place(&scene),
        format!("{root}/d"),
        format!("{root}/v"),
    );
    let web = format!("{root}/web");
    // What is set before the run; the folder and the words of the run; what is set in the run; the folder of the call;
    // its place.
    let rows: Vec<(&str, &str, String, &str, &str, String)> = vec![
        // Another project says where its locks are.
        ("", "a", "run".into(), "", "b", repo("b")),
        ("", "nowhere", "run".into(), "", "b", repo("b")),
        ("", "nowhere", format!("--dir {d} run"), "", "b", repo("b")),
        ("TENURE_DIR=$R/v", "a", "run".into(), "", "b", repo("b")),
        (
            "",
            "web/packages/ui",
            "run".into(),
            "",
            "web",
            format!("{web}/root-locks"),
        ),
        (
            "",
            "web",
            "run".into(),
            "",
            "web/packages/ui",
            format!("{web}/packages/ui/ui-locks"),
        ),
        // A file of this project that says nothing of a place: the run's counts.
        ("", "a", "run".into(), "", "a", repo("a")),
        ("", "a", "run".into(), "", "nowhere", repo("a")),
        ("", "a", "run".into(), "", "plain", repo("a")),
        ("", "a", format!("--dir {d} run"), "", "a", d.clone()),
        ("", "a", format!("--dir {d} run"), "", "nowhere", d.clone()),
        (
            "",
            "a",
            format!("--config {web}/tenure.toml run"),
            "",
            "a",
            format!("{web}/root-locks"),
        ),
        ("TENURE_DIR=$R/v", "a", "run".into(), "", "a", v.clone()),
        (
            "TENURE_DIR=$R/v",
            "a",
            format!("--dir {d} run"),
            "",
            "a",
            d.clone(),
        ),
        // A shell's profile sets the variable again.
        (
            "TENURE_DIR=$R/v",
            "a",
            format!("--dir {d} run"),
            "TENURE_DIR=$R/v",
            "a",
            d.clone(),
        ),
        (
            "TENURE_STORE=file:$R/v",
            "a",
            format!("--dir {d} run"),
            "TENURE_STORE=file:$R/v",
            "nowhere",
            d.clone(),
        ),
        (
            "TENURE_SCOPE=user",
            "a",
            format!("--dir {d} run"),
            "TENURE_SCOPE=user",
            "nowhere",
            d.clone(),
        ),
        // What the run did not see.
        (
            "",
            "a",
            format!("--dir {d} run"),
            "TENURE_DIR=$R/v",
            "a",
            v.clone(),
        ),
        ("", "a", "run".into(), "TENURE_DIR=$R/v", "b", v.clone()),
        (
            "TENURE_DIR=$R/x",
            "a",
            "run".into(),
            "TENURE_DIR=$R/v",
            "nowhere",
            v.clone(),
        ),
        (
            "TENURE_DIR=$R/x",
            "a",
            "run".into(),
            "TENURE_SCOPE=user",
            "nowhere",
            usual.clone(),
        ),
        (
            "",
            "a",
            "run".into(),
            "TENURE_SCOPE=repo",
            "plain",
            repo("plain"),
        ),
        (
            "",
            "a",
            "run".into(),
            "TENURE_STORE=file:$R/v",
            "a",
            v.clone(),
        ),
        (
            "",
            "a",
            "run".into(),
            "TENURE_CONFIG=$R/web/tenure.toml",
            "a",
            format!("{web}/root-locks"),
        ),
        // A variable that is taken away says nothing new.
        (
            "TENURE_DIR=$R/v",
            "a",
            "run".into(),
            "-u TENURE_DIR",
            "a",
            v.clone(),
        ),
        // Nothing of the run is left.
        (
            "",
            "a",
            "run".into(),
            "-u TENURE_AROUND",
            "nowhere",
            usual.clone(),
        ),
        (
            "",
            "a",
            "run".into(),
            "-u TENURE_AROUND -u TENURE_HELD",
            "b",
            repo("b"),
        ),
        // A run in a run hands on what it inherits, and what was seen then.
        (
            "",
            "a",
            format!("--dir {d} run o -- env -C {root}/nowhere tenure run"),
            "",
            "a",
            d.clone(),
        ),
        (
            "",
            "a",
            format!("run o -- env -C {root}/b tenure run"),
            "",
            "a",
            repo("a"),
        ),
        (
            "",
            "a",
            format!("run o -- env -C {root}/b tenure run"),
            "",
            "nowhere",
            repo("b"),
        ),
    ];
    for (before, folder, words, inside, at, expected) in rows {
        for (way, inner) in ways(&root) {
            // Without rules a hook takes nothing.
            if way == "hook" && at == "nowhere" {
                continue;
            }
            let script = format!(
                "env {before} tenure {words} outer -- env {inside} sh -c 'cd {root}/{at} && eval \"$0\"' \"$0\"",
            );
            let mut shell = scene.program("sh");
            shell
                .args(["-c", &script.replace("$R", &root), &inner])
                .env_remove("TENURE_DIR")
                .current_dir(scene.path(folder));
            let said = answer(&mut shell);
            assert_eq!(
                said.stdout().trim(),
                expected,
                "{way}: {before} in {folder}: {words}; {inside} in {at}: {}{}",
                said.stderr(),
                fs::read_to_string(scene.path("said")).unwrap_or_default()
            );
        }
    }
}

/// Where locks lie if nothing says so.
fn default_place(scene: &Scene) -> String {
    let said = call(
        scene,
        "nowhere",
        &format!("tenure run z -- sh -c '{PRINT}'"),
    );
    said.expect(0, "a run").stdout().trim().to_owned()
}

#[test]
fn flag_of_a_nested_call_counts_first() {
    let scene = projects();
    let root = scene.path("");
    let typed = root.join("typed");
    let inner = format!(
        "cd {}/b; tenure --dir {} run z -- sh -c '{PRINT}'",
        root.display(),
        typed.display()
    );
    let mut shell = scene.program("sh");
    shell
        .args(["-c", "tenure run outer -- sh -c \"$0\"", &inner])
        .env_remove("TENURE_DIR")
        .current_dir(scene.path("a"));
    let said = answer(&mut shell).expect(0, "a run");
    assert_eq!(Path::new(said.stdout().trim()), typed);
}

/// Runs a script in a folder, whose calls find nothing in the environment that names a place.
fn script(scene: &Scene, folder: &str, script: &str) -> String {
    let said = call(scene, folder, script);
    format!("{}{}", said.stdout(), said.stderr())
}

#[test]
fn verbs_about_the_hold_of_a_run_find_it_in_another_project() {
    let scene = projects();
    // The other project has a lock of that name, free or held by a stranger.
    for before in [
        "",
        "(cd ../b; tenure -q acquire x --owner none --request-id r) >/dev/null;",
    ] {
        let inner = "cd ../b; tenure fence check >/dev/null; echo $?; tenure -q fence check $TENURE_TOKEN >/dev/null; echo $?; \
                     tenure -q heartbeat x >/dev/null; echo $?; tenure check x --output json | grep -c mine.:true";
        let said = script(
            &scene,
            "a",
            &format!("{before} tenure run x -- sh -c '{inner}'"),
        );
        assert_eq!(said, "0\n0\n0\n1\n", "{before}");
    }
    // A hold of the caller's own there is nearer.
    let inner = "cd ../b; tenure -q acquire y --request-id r >/dev/null; tenure check y --output json | \
                 grep -o '/[ab]/.git/tenure/locks/y.tenure'; tenure -q release y --request-id r; echo $?";
    let said = script(&scene, "a", &format!("tenure run y -- sh -c \"{inner}\""));
    assert!(
        said.starts_with("/b/.git") && said.ends_with("0\n"),
        "{said}"
    );
}

#[test]
fn place_of_a_run_counts_while_it_lives() {
    let scene = projects();
    let root = scene.root().display().to_string();
    let here = "tenure check z --output json | sed 's/.*\"lock_file\":\"//; s,/z.tenure\".*,,'";
    scene.write("late.sh", &format!("sleep 0.4; {here} >late"));
    // What stays behind keeps the run's variables, as a terminal server does.
    let stays = format!(
        "tenure --dir {root}/d run x -- sh -c 'sh {root}/late.sh >/dev/null 2>&1 &'; sleep 1.2; cat late"
    );
    assert_eq!(
        script(&scene, "nowhere", &stays).trim(),
        default_place(&scene)
    );
    let lives = format!("tenure --dir {root}/d run x -- sh {root}/late.sh; cat late");
    assert_eq!(
        script(&scene, "nowhere", &lives).trim(),
        format!("{root}/d")
    );
}

#[test]
fn native_locks_do_not_follow_the_folder_of_records() {
    let scene = projects();
    let usual = default_place(&scene);
    let session = "tenure -q --profile session --dir .state run 42 --";
    let said = script(
        &scene,
        "plain",
        &format!("{session} sh -c 'tenure run build -- sh -c \"{PRINT_QUOTED}\"'"),
    );
    assert_eq!(said.trim(), usual, "a run");
    let inner = "tenure -q acquire build --owner none --request-id r >/dev/null; tenure check build --output json";
    let said = script(&scene, "plain", &format!("{session} sh -c '{inner}'"));
    assert!(
        said.contains(&format!("\"lock_file\":\"{usual}/build.tenure\"")),
        "{said}"
    );
    let inner = "tenure --profile session check 42 --output json";
    let said = script(&scene, "plain", &format!("{session} sh -c '{inner}'"));
    assert!(
        said.contains("/plain/.state/locks/42.lock\"") && said.contains("\"mine\":true"),
        "{said}"
    );
    // What an older tenure holds in the old place keeps it.
    let older = "tenure -q --dir .state acquire old --owner none --request-id r >/dev/null;";
    let said = call(
        &scene,
        "plain",
        &format!("{older} {session} tenure run old -- echo ran"),
    );
    let said = said.expect(4, "it is held").said();
    assert!(said.contains("older tenure"), "{said}");
}

#[cfg(unix)]
#[test]
fn folder_that_is_no_text_reaches_nested_calls() {
    use std::os::unix::ffi::OsStrExt;
    let scene = projects();
    let folder = scene
        .path("")
        .join(std::ffi::OsStr::from_bytes(b"stra\xdfe"));
    let mut shell = scene.program("sh");
    shell
        .args(["-c", "tenure --dir \"$0\" run x -- sh -c 'tenure run -n x -- echo ran; echo $?; tenure run y -- true; echo $?'"])
        .arg(&folder)
        .env_remove("TENURE_DIR")
        .current_dir(scene.path("nowhere"));
    let said = answer(&mut shell);
    assert_eq!(said.stdout(), "81\n0\n", "{}", said.stderr());
    assert!(folder.join("y.tenure").exists(), "in the folder of the run");
}

/// The scope `repo` is another place in each repository, wherever it is said.
#[test]
fn scope_of_a_repository_is_asked_anew_in_another_one() {
    let scene = projects();
    let root = scene.root().display().to_string();
    scene.write("tenure.toml", "scope = \"repo\"\n");
    for file in ["a/tenure.toml", "b/tenure.toml"] {
        fs::remove_file(scene.path(file)).unwrap();
    }
    let check = "tenure check z --output json | sed 's/.*\"lock_file\":\"//; s,/z.tenure\".*,,'";
    scene.write("check.sh", &format!("cd \"$1\"; {check}"));
    let inner = |before: &str, run: &str, to: &str| {
        let line = format!("{before} tenure {run} x -- sh {root}/check.sh {root}/{to}");
        script(&scene, "a", &line).trim().to_owned()
    };
    let repo = |name: &str| format!("{root}/{name}/.git/tenure/locks");
    // A single file above both, then the variable alone.
    assert_eq!(inner("", "run", "b"), repo("b"));
    assert_eq!(inner("", "run", "a"), repo("a"));
    assert_eq!(
        inner("", &format!("--dir {root}/d run"), "a"),
        format!("{root}/d")
    );
    fs::remove_file(scene.path("tenure.toml")).unwrap();
    assert_eq!(inner("TENURE_SCOPE=repo", "run", "b"), repo("b"));
    assert_eq!(inner("TENURE_SCOPE=repo", "run", "a"), repo("a"));
}

/// What says where locks are, and means another place in each of two projects: a nested call in the other project
/// excludes the calls of that project.
#[test]
fn words_that_mean_another_place_elsewhere_table() {
    for (made, variable, run) in [
        (
            "mkdir -p home/.config/tenure; echo 'scope = \"repo\"' >home/.config/tenure/tenure.toml",
            "",
            "run",
        ),
        (
            "echo 'scope = \"repo\"' >c.toml",
            "TENURE_CONFIG=$PWD/c.toml",
            "run",
        ),
        (
            "echo 'dir = \"locks\"' >c; ln -s ../c a/tenure.toml; ln -s ../c b/tenure.toml",
            "",
            "run",
        ),
        (
            "echo 'scope = \"repo\"' >tenure.toml; rm -rf a; mkdir a",
            "",
            "--dir $PWD/d run",
        ),
        (
            "echo 'scope = \"repo\"' >tenure.toml; rm -rf a; mkdir a",
            "",
            "--scope user run",
        ),
        ("rm -rf a; mkdir a", "TENURE_SCOPE=repo", "--scope user run"),
        (
            "echo 'scope = \"repo\"' >tenure.toml; echo \"dir = \\\"$PWD/d\\\"\" >c.toml",
            "",
            "--config $PWD/c.toml run",
        ),
        ("echo 'profile = \"resume\"' >b/tenure.toml", "", "run"),
    ] {
        let scene = projects();
        let line = format!(
            "rm -f a/tenure.toml b/tenure.toml; export HOME=$PWD/home XDG_CONFIG_HOME=$PWD/home/.config; {made}; \
             [ -z \"{variable}\" ] || export {variable}; root=$PWD; run=\"{run}\"; cd a; \
             tenure -q $run nightly -- sh -c \"cd ../b && tenure -q run deploy -- sh -c ': >$root/in; read _ <$root/gate'\" & \
             mkfifo $root/gate; while ! [ -e $root/in ]; do sleep 0.02; done; \
             cd $root/b; tenure -q run -n deploy -- echo DOUBLE; echo $?; echo >$root/gate; wait"
        );
        let said = script(&scene, ".", &line);
        assert_eq!(
            said.lines().last(),
            Some("4"),
            "{made} {variable} {run}: {said}"
        );
    }
}

/// A verb about the hold of a run finds it, whatever leads elsewhere between.
#[test]
fn hold_of_a_run_is_found_table() {
    let verbs = "tenure -q heartbeat x >/dev/null; echo $?; tenure fence check >/dev/null; echo $?";
    for (made, between) in [
        ("true", "export TENURE_DIR=/nowhere/else"),
        ("true", "export TENURE_DIR=relative"),
        (
            "rm -rf n; mkdir n; echo 'scope = \"repo\"' >n/tenure.toml",
            "cd ../n",
        ),
        (
            "rm -rf n; mkdir n; echo 'profile = \"nope\"' >n/tenure.toml",
            "cd ../n",
        ),
    ] {
        let scene = projects();
        let line = format!("{made}; cd plain; tenure -q run x -- sh -c '{between}; {verbs}'");
        let said = script(&scene, ".", &line);
        assert_eq!(said, "0\n0\n", "{made} {between}");
    }
    let scene = projects();
    let line = "tenure -q --profile session --dir .state run 42 -- tenure -q run build -- \
                sh -c 'tenure -q --profile session heartbeat 42 >/dev/null; echo $?'";
    assert_eq!(script(&scene, "plain", line), "0\n", "through another run");
}

/// A mistake in a file must not keep a hold from its heartbeat and its release.
#[test]
fn hold_can_be_given_back_whatever_a_file_says() {
    let scene = projects();
    scene.write("plain/tenure.toml", "= broken\n");
    let inner = "tenure -q acquire h >/dev/null; cd ../plain; tenure -q heartbeat x >/dev/null; echo $?; cd ../web; \
                 rm tenure.toml; tenure -q heartbeat x >/dev/null; echo $?; tenure -q release h >/dev/null; echo $?";
    let said = script(&scene, "web", &format!("tenure run x -- sh -c '{inner}'"));
    assert_eq!(said, "0\n0\n0\n");
    let said = script(
        &scene,
        "a",
        "tenure -q acquire q >/dev/null; printf '[lock.q]\\nttl = \"abc\"\\n' >>tenure.toml; \
                                    tenure -q heartbeat q >/dev/null; echo $?; tenure -q release q >/dev/null; echo $?",
    );
    assert_eq!(said, "0\n0\n");
}

/// Of two projects with a lock of one name, the shown id says which hold is meant.
#[test]
fn shown_id_says_which_hold_is_meant() {
    let scene = projects();
    let inner = "cd ../b; tenure -q acquire x --owner none --request-id mine >/dev/null; \
                 tenure -q heartbeat x --request-id mine >/dev/null; echo $?; \
                 tenure -q release x --request-id mine >/dev/null; echo $?; tenure -q heartbeat x >/dev/null; echo $?";
    let said = script(&scene, "a", &format!("tenure run x -- sh -c '{inner}'"));
    assert_eq!(said, "0\n0\n0\n");
}
