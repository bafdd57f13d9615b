//! Where the locks are, and what a project's `tenure.toml` says about them.

use crate::support::{Answer, Scene, TENURE, answer, is_root, timed};
use std::fs;
use std::path::Path;
use std::time::Duration;

/// A call from a folder, with nothing in the environment that names a place.
fn from(scene: &Scene, folder: &Path, words: &[&str]) -> Answer {
    let mut command = scene.tenure(words);
    command.env_remove("TENURE_DIR").current_dir(folder);
    answer(&mut command)
}

#[test]
fn the_nearest_file_upwards_counts_and_its_folder_begins_beside_it() {
    let scene = Scene::new();
    let deep = scene.path("a/b/c");
    fs::create_dir_all(&deep).unwrap();
    scene.write("tenure.toml", "dir = \"far\"\n");
    scene.write("a/tenure.toml", "dir = \"near\"\n");
    let _ = from(&scene, &deep, &["run", "x", "--", "true"]).expect(0, "a run");
    assert!(
        scene.path("a/near/x.tenure").is_file(),
        "beside the nearest file"
    );
    assert!(!scene.path("far").exists(), "and nowhere else");
    let top = scene.write("other.toml", "dir = \"other\"\n");
    let top = top.to_str().unwrap();
    let _ = from(&scene, &deep, &["run", "x", "--config", top, "--", "true"]).expect(0, "named");
    assert!(
        scene.path("other/x.tenure").is_file(),
        "the named file counts"
    );
}

#[test]
fn what_is_said_more_explicitly_wins() {
    let scene = Scene::new();
    scene.write("tenure.toml", "dir = \"configured\"\n");
    let run = |extra: &[&str], variable: Option<&str>| {
        let mut command = scene.tenure(["run", "x"]);
        command.args(extra).args(["--", "true"]);
        command.env_remove("TENURE_DIR").current_dir(scene.root());
        if let Some(folder) = variable {
            command.env("TENURE_DIR", scene.path(folder));
        }
        let _ = answer(&mut command).expect(0, "a run");
    };
    run(&[], Some("environment"));
    assert!(
        scene.path("environment/x.tenure").is_file(),
        "the environment wins over the file"
    );
    assert!(!scene.path("configured").exists(), "which was not asked");
    run(&["--dir", "flag"], Some("elsewhere"));
    assert!(
        scene.path("flag/x.tenure").is_file(),
        "the flag wins over the environment"
    );
    assert!(!scene.path("elsewhere").exists(), "which was not asked");
    run(&[], None);
    assert!(scene.path("configured/x.tenure").is_file(), "then the file");
}

#[test]
fn without_any_configuration_locks_are_kept_in_the_users_state() {
    let scene = Scene::new();
    let _ = from(&scene, scene.root(), &["run", "x", "--", "true"]).expect(0, "no configuration");
    let place = scene.path(".local/state/tenure/locks");
    assert!(place.join("x.tenure").is_file(), "below the home folder");
    let mut command = scene.tenure(["run", "x", "--", "true"]);
    command
        .env_remove("TENURE_DIR")
        .env("XDG_STATE_HOME", scene.path("state"))
        .current_dir(scene.root());
    let _ = answer(&mut command).expect(0, "a state folder");
    assert!(
        scene.path("state/tenure/locks/x.tenure").is_file(),
        "in the named state folder"
    );
    let mut command = scene.tenure(["run", "x", "--", "true"]);
    command
        .env_remove("TENURE_DIR")
        .env_remove("HOME")
        .current_dir("/");
    let answer = answer(&mut command).expect(2, "no place is known");
    assert!(
        answer.stderr().contains("--dir"),
        "what to do is said: {}",
        answer.said()
    );
}

/// As cron, a service or a container calls: hardly any variable, a user of whom the system knows no name, a
/// home that is not there, not the caller's, or not to be written.
#[test]
fn a_call_with_hardly_any_surroundings_says_in_one_sentence_what_is_missing() {
    let scene = Scene::new();
    let own = Path::new(TENURE).parent().expect("a folder");
    let path = format!("{}:/usr/bin:/bin", own.display());
    let bare = |home: Option<&str>, line: &str| {
        let mut shell = scene.program("sh");
        shell.args(["-c", line]).env_clear().env("PATH", &path);
        shell.current_dir("/");
        if let Some(home) = home {
            shell.env("HOME", home);
        }
        answer(&mut shell)
    };
    let home = scene.root().to_str().expect("a path");
    let said = bare(Some(home), "tenure run x -- echo ran").expect(0, "as cron calls it");
    assert_eq!(
        (said.stdout().as_str(), said.stderr().as_str()),
        ("ran\n", "")
    );
    for verb in [
        "run x -- echo ran",
        "acquire x",
        "check x",
        "wait x",
        "list",
        "release x",
        "cancel x",
        "clean",
        "audit",
    ] {
        for home in [None, Some(""), Some("home")] {
            let said = bare(home, &format!("tenure {verb}")).expect(2, verb);
            let expected = "tenure: no lock folder is known, because HOME is not set to a whole path; name one \
                            with --dir or TENURE_DIR\n";
            assert_eq!(said.stderr(), expected, "{verb} {home:?}");
            assert_eq!(said.stdout(), "", "{verb}");
        }
    }
    // A file where a folder would be made is in the way of every user, root too.
    fs::write(scene.path("file"), "").expect("a file");
    let no_folder = scene.path("file");
    let said = bare(no_folder.to_str(), "tenure run x -- echo ran").expect(12, "no folder");
    assert_eq!(said.stdout(), "", "nothing ran");
    assert_eq!(said.stderr().lines().count(), 1, "{}", said.said());
    if !is_root() {
        return;
    }
    // A user without a name, at home nowhere and at root's.
    let user = "setpriv --reuid 70001 --regid 70001 --clear-groups";
    let copy = scene.path("tenure");
    fs::copy(TENURE, &copy).expect("a copy");
    for path in [scene.root(), &copy] {
        use std::os::unix::fs::PermissionsExt;
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("its rights");
    }
    for home in ["/", "/nowhere", home] {
        for verb in ["run x -- echo ran", "acquire x"] {
            let line = format!("{user} {} {verb}", copy.display());
            let said = bare(Some(home), &line).expect(7, &format!("{home}: {verb}"));
            assert_eq!(said.stdout(), "", "nothing ran");
            let message = said.stderr();
            let is_said = message.contains("--dir");
            assert!(
                is_said && message.starts_with(&format!("tenure: {home}")),
                "{message}"
            );
            assert_eq!(message.lines().count(), 1, "{message}");
        }
    }
}

#[test]
fn new_folders_and_files_are_their_owners_alone() {
    use std::os::unix::fs::PermissionsExt;
    let scene = Scene::new();
    for (umask, place) in [
        ("000", "open"),
        ("022", "usual"),
        ("077", "strict"),
        ("777", "odd"),
    ] {
        let line = format!("umask {umask}; exec tenure run x --dir {place}/locks -- true");
        let mut command = scene.program("sh");
        command.args(["-c", &line]).current_dir(scene.root());
        fs::create_dir(scene.path(place)).unwrap();
        let _ = answer(&mut command).expect(0, &format!("umask {umask}"));
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        let folder = scene.path(place).join("locks");
        assert_eq!(mode(&folder), 0o700, "the folder under umask {umask}");
        assert_eq!(
            mode(&folder.join("x.tenure")),
            0o600,
            "the file under umask {umask}"
        );
        let _ = scene
            .run(["run", "x", "--dir", folder.to_str().unwrap(), "--", "true"])
            .expect(0, "and the next caller can use them");
    }
}

#[test]
fn a_projects_waits_are_defaults_for_its_locks() {
    let scene = Scene::new();
    scene.write(
        "tenure.toml",
        "dir = \"locks\"\n[lock.\"x*\"]\nwait = \"0\"\n[lock.\"x-long*\"]\nwait = \"200ms\"\n",
    );
    for (name, waited) in [("x-1", false), ("x-long-1", true)] {
        let holder = scene.hold(name, ["-q"]);
        let (answer, took) = timed(|| {
            from(
                &scene,
                scene.root(),
                &["run", name, "--output", "json", "--", "true"],
            )
        });
        let document = answer.expect(4, "held").json();
        let told = document["error"]["context"]["waited_ms"].as_u64();
        assert_eq!(
            told.is_some_and(|ms| ms >= 200),
            waited,
            "{name}: {document}"
        );
        assert!(took < Duration::from_secs(5), "{name} took {took:?}");
        let (answer, _) = timed(|| {
            let words = ["run", name, "--wait", "0", "--output", "json", "--", "true"];
            from(&scene, scene.root(), &words)
        });
        let document = answer.expect(4, "held").json();
        assert!(
            document["error"]["context"]["waited_ms"].is_null(),
            "what is typed wins: {document}"
        );
        let _ = holder.open().expect(0, "the holder");
    }
}

#[test]
fn a_file_that_is_not_understood_stops_the_call() {
    let scene = Scene::new();
    for (content, word) in [
        ("dri = \"x\"\n", "dri"),
        ("[lock.x]\nwaits = \"1s\"\n", "waits"),
        ("dir = \n", ""),
        ("dir = 5\n", ""),
        ("lock = 3\n", ""),
        ("[lock.x]\nwait = \"soon\"\n", "soon"),
        ("[lock.x]\nttl = \"0\"\n", "ttl"),
    ] {
        scene.write("tenure.toml", content);
        let answer = from(&scene, scene.root(), &["run", "x", "--", "true"]);
        let answer = answer.expect(2, content);
        let said = answer.stderr();
        assert!(said.contains(word), "`{word}` is named: {said}");
        assert!(
            said.contains("tenure.toml"),
            "and the file that says it: {said}"
        );
        assert_eq!(said.lines().count(), 1, "one sentence: {said}");
    }
    assert!(
        !scene.path(".local").exists(),
        "no lock was taken elsewhere instead"
    );
}

#[test]
fn places_that_cannot_hold_locks_are_refused_and_never_called_free() {
    use std::os::unix::fs::PermissionsExt;
    let scene = Scene::new();
    let file = scene.write("file", "");
    let open = scene.path("open");
    fs::create_dir(&open).unwrap();
    fs::set_permissions(&open, fs::Permissions::from_mode(0o777)).unwrap();
    let linked = scene.path("linked");
    fs::create_dir(&linked).unwrap();
    std::os::unix::fs::symlink(&file, linked.join("x.tenure")).unwrap();
    for (place, code) in [(&file, 12), (&open, 7), (&linked, 7)] {
        let place = place.to_str().unwrap();
        for words in [
            vec!["run", "x", "--dir", place, "--", "echo", "ran"],
            vec!["acquire", "x", "--dir", place],
            vec!["check", "x", "--dir", place],
            vec!["wait", "x", "--dir", place, "-w", "1"],
        ] {
            let answer = scene.run(&words).expect(code, &format!("{words:?}"));
            assert_eq!(answer.stdout(), "", "{words:?} promises nothing");
            assert!(
                answer.stderr().contains(place),
                "the place is named: {}",
                answer.said()
            );
        }
    }
}
