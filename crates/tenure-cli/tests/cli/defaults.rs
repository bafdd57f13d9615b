//! What `tenure.toml` says about locks in place of flags: what a lock is for everybody, defaults of a run, the
//! profile, and what becomes of a run that finds its lock held.

use crate::support::{Answer, Gate, Scene, Started, answer, eventually};
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

/// A call from the scene's folder, where its `tenure.toml` is the nearest one.
fn call(scene: &Scene, words: &[&str]) -> Command {
    let mut command = scene.tenure(words);
    command.env_remove("TENURE_DIR").current_dir(scene.root());
    command
}

fn run(scene: &Scene, words: &[&str]) -> Answer {
    answer(&mut call(scene, words))
}

/// A run that holds until its gate is opened.
fn hold(scene: &Scene, gate: &Gate, flags: &[&str]) -> Started {
    let script = gate.script("");
    let words = [&["run", "-q"], flags, &["--", "sh", "-c", &script]].concat();
    let mut command = call(scene, &words);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let started = Started::new(&mut command);
    eventually("the command begins", || gate.has_begun());
    started
}

const POOL: &str = "dir = \"locks\"\n[lock.\"gpu\"]\nmembers = [\"a\", \"b\"]\nwait = \"0\"\n\
                    env = { DEVICE = \"{member}\", NUMBER = \"{slot}\" }\n";

/// A caller that names no slots shares the lock with one that does, and each command gets a member of its own.
#[test]
fn a_pool_is_the_same_for_every_caller() {
    let scene = Scene::new();
    scene.write("tenure.toml", POOL);
    let told = |flags: &[&str]| {
        let tell = ["--", "sh", "-c", "echo $DEVICE $NUMBER $TENURE_SLOT"];
        let words = [&["run", "gpu"], flags, &tell].concat();
        run(&scene, &words)
    };
    assert_eq!(told(&[]).expect(0, "the first").stdout(), "a 0 0\n");
    let gate = Gate::new(&scene, "first");
    let first = hold(&scene, &gate, &["gpu"]);
    assert_eq!(
        told(&["--slots", "2"]).expect(0, "the same").stdout(),
        "b 1 1\n"
    );
    let acquired = run(
        &scene,
        &["acquire", "gpu", "--owner", "none", "--output", "json"],
    );
    let acquired = acquired.expect(0, "the second").json();
    assert_eq!(
        (&acquired["data"]["slot"], &acquired["data"]["member"]),
        (&1.into(), &"b".into())
    );
    let _ = told(&[]).expect(4, "two hold it");
    let check = run(&scene, &["check", "gpu"]).expect(4, "held").stdout();
    for part in [
        ", slot 0 of 2, member a, since",
        ", slot 1 of 2, member b, since",
        "both slots are taken",
    ] {
        assert!(check.contains(part), "{part}: {check}");
    }
    gate.open();
    let _ = first.finish().expect(0, "the first");
    assert_eq!(told(&[]).expect(0, "its number").stdout(), "a 0 0\n");
}

/// However a call names the folder: what the lock is stands in the file.
#[test]
fn a_call_that_names_the_folder_gets_the_same_lock() {
    let scene = Scene::new();
    scene.write("tenure.toml", POOL);
    let folder = scene.locks();
    let folder = folder.to_str().expect("a path");
    let gate = Gate::new(&scene, "first");
    let first = hold(&scene, &gate, &["gpu"]);
    let tell = [
        "--",
        "sh",
        "-c",
        "h=${TENURE_HELD%/*}; echo $DEVICE $TENURE_SLOT ${h#*=}",
    ];
    let expected = format!("b 1 {folder}\n");
    let url = format!("file:{folder}");
    for flags in [
        &["--dir", "locks"][..],
        &["--dir", folder],
        &["--store", "file:locks"],
        &["--store", &url],
        &["--dir", folder, "--slots", "2"],
        &["--dir", folder, "--profile", "native"],
    ] {
        let words = [&["run", "gpu"], flags, &tell].concat();
        let told = run(&scene, &words).expect(0, &format!("{flags:?}"));
        assert_eq!(told.stdout(), expected, "{flags:?}");
    }
    for (variable, value) in [("TENURE_DIR", folder), ("TENURE_STORE", &*url)] {
        let mut command = call(&scene, &[&["run", "gpu"][..], &tell].concat());
        let told = answer(command.env(variable, value)).expect(0, variable);
        assert_eq!(told.stdout(), expected, "{variable}");
    }
    let words = [
        "acquire", "gpu", "--owner", "none", "--dir", folder, "--output", "json",
    ];
    let acquired = run(&scene, &words).expect(0, "the second").json();
    assert_eq!(acquired["data"]["member"], "b", "{acquired}");
    let refused = run(
        &scene,
        &[&["run", "gpu", "--dir", folder][..], &tell].concat(),
    );
    let _ = refused.expect(4, "two hold it, and the file says that none waits");
    for flags in [&["--slots", "3"][..], &["-s"], &["-x"]] {
        let words = [&["run", "gpu", "--dir", folder], flags, &tell].concat();
        let said = run(&scene, &words).expect(2, "a contradiction").stderr();
        assert!(said.contains("gpu has 2 slots for all callers"), "{said}");
    }
    gate.open();
    let _ = first.finish().expect(0, "the first");
}

/// A run names the folder to its command, and the file that named it. Where the caller named the folder, the
/// command's calls look for a file as that caller did.
#[test]
fn the_command_of_a_run_gets_the_same_lock_too() {
    let scene = Scene::new();
    scene.write("tenure.toml", &format!("on_held = \"skip\"\n{POOL}"));
    let folder = scene.locks();
    let folder = folder.to_str().expect("a path");
    let inner = "tenure run gpu -- sh -c 'echo $DEVICE $TENURE_SLOT'";
    let elsewhere = format!("cd / && {inner}");
    for (flags, inner) in [
        (&["--dir", folder][..], inner),
        (&["--config", "tenure.toml"], &elsewhere),
        (&[], &elsewhere),
    ] {
        let words = [&["run", "other"], flags, &["--", "sh", "-c", inner]].concat();
        let told = run(&scene, &words).expect(0, &format!("{flags:?}"));
        assert_eq!(told.stdout(), "a 0\n", "{flags:?}");
    }
    let outside = scene.path("outside");
    fs::create_dir(&outside).expect("a folder");
    fs::rename(scene.path("tenure.toml"), outside.join("tenure.toml")).expect("a file");
    let inner = "cd outside && tenure run gpu -- sh -c 'echo $DEVICE $TENURE_SLOT'";
    let words = ["run", "other", "--dir", folder, "--", "sh", "-c", inner];
    assert_eq!(run(&scene, &words).expect(0, "nested").stdout(), "a 0\n");
}

/// A call's words say which lock it means, or a file that it names. Callers in another folder find no file, and
/// mean the same lock.
#[test]
fn a_file_that_is_found_changes_no_lock_that_the_call_has_named() {
    let scene = Scene::new();
    let folder = scene.path("named");
    let folder = folder.to_str().expect("a path");
    let file = "dir = \"locks\"\naudit_dir = \"log\"\nprofile = \"resume\"\non_held = \"skip\"\n\
                [lock.\"*\"]\nttl = \"7s\"\n";
    scene.write("tenure.toml", file);
    fs::create_dir(scene.path("named")).expect("a folder");
    let own = std::process::id().to_string();
    let acquire = ["acquire", "job", "--owner", &own, "--dir", folder];
    let held = run(&scene, &[&acquire[..], &["--output", "json"]].concat());
    let held = held.expect(0, "it is taken").json();
    assert!(scene.path("named/job.tenure").exists(), "a native lock");
    let mut elsewhere = call(
        &scene,
        &["check", "job", "--dir", folder, "--output", "json"],
    );
    let told = answer(elsewhere.current_dir("/")).expect(0, "it is the test's own");
    let data = &told.json()["data"];
    assert_eq!(data["standing"], "held", "from everywhere: {}", told.said());
    assert_eq!(data["holder"]["ttl_ms"], 7_000, "{}", told.said());
    let words = ["run", "job", "--dir", folder, "--", "touch", "ran"];
    let _ = run(&scene, &words).expect(0, "it is skipped");
    assert!(!scene.path("ran").exists() && !scene.path("locks").exists());
    let audit = run(
        &scene,
        &["audit", "job", "--event", "lock_skipped", "--dir", folder],
    );
    assert!(
        audit
            .expect(0, "the folder's audit")
            .stdout()
            .contains("job")
    );
    assert!(!scene.path("log").exists(), "the file names another one");

    // What takes nothing needs nothing of the file, so a mistake there keeps no hold.
    scene.write("tenure.toml", "mistake = 1\n");
    let id = held["data"]["request_id"].as_str().expect("an id");
    for words in [
        &["check", "other"][..],
        &["list"],
        &["heartbeat", "job", "--request-id", id],
        &["release", "job", "--request-id", id],
    ] {
        let words = [words, &["--dir", folder]].concat();
        let _ = run(&scene, &words).expect(0, &format!("{words:?}"));
    }
    // Nor is it read by a call that names its configuration.
    let words = ["run", "other", "--dir", folder, "--config", "/dev/null"];
    let _ = run(&scene, &[&words[..], &["--", "true"]].concat()).expect(0, "no file");

    // A file that the call names counts whole.
    scene.write("tenure.toml", file);
    let words = [&acquire[..], &["--config", "tenure.toml"]].concat();
    let _ = run(&scene, &words).expect(0, "it is taken");
    let record = "named/resume_locks/job.lock";
    assert!(scene.path(record).exists(), "by that file's profile");

    for (content, part) in [
        ("slots = 2\n", "slots"),
        ("[lock.x]\nslots = 0\n", "slots"),
        ("dir = \"$X\"\n", "not expanded"),
    ] {
        scene.write("tenure.toml", content);
        let said = run(&scene, &["run", "x", "--dir", folder, "--", "touch", "ran"]);
        let said = said.expect(2, content).stderr();
        assert!(said.contains(part), "{content}: {said}");
        assert_eq!(said.lines().count(), 1, "one sentence: {said}");
    }
    assert!(!scene.path("ran").exists(), "nothing ran");
}

/// The folder of the call was removed, or the call has no home: no file is there to be read.
#[test]
fn a_call_that_names_the_folder_works_where_no_file_can_be_looked_for() {
    let scene = Scene::new();
    let folder = scene.locks();
    let folder = folder.to_str().expect("a path");
    let line = format!(
        "mkdir gone && cd gone && rmdir ../gone && unset HOME TENURE_DIR && \
         tenure run x --dir '{folder}' -- echo ran && TENURE_DIR='{folder}' tenure check x"
    );
    let mut shell = scene.program("sh");
    let said = answer(shell.args(["-c", &line]).current_dir(scene.root()));
    assert_eq!(said.expect(0, "both").stdout(), "ran\nx is free\n");
}

/// In a crontab a line is a mail. The exit code says that another caller has the lock.
#[test]
fn a_quiet_call_says_nothing_where_the_lock_is_held() {
    let scene = Scene::new();
    scene.write("tenure.toml", "dir = \"locks\"\n");
    let gate = Gate::new(&scene, "holder");
    let holder = hold(&scene, &gate, &["x"]);
    for (words, code) in [
        (&["run", "-q", "-n", "x", "--", "touch", "ran"][..], 4),
        (&["run", "x", "-w", "50ms", "-q", "--", "touch", "ran"], 4),
        (
            &["run", "x", "-n", "-q", "-E", "9", "--", "touch", "ran"],
            9,
        ),
        (&["run", "-n", "-q", "--exec", "x", "--", "touch", "ran"], 4),
        (
            &[
                "run", "-n", "-q", "-l", "x", "-l", "y", "--", "touch", "ran",
            ],
            4,
        ),
        (
            &["run", "-q", "--queue", "none", "x", "--", "touch", "ran"],
            4,
        ),
        (&["acquire", "-qn", "x"], 4),
        (&["acquire", "x", "-q", "-w", "50ms"], 4),
        (&["wait", "x", "-q", "-w", "50ms"], 4),
    ] {
        let said = run(&scene, words).expect(code, &format!("{words:?}"));
        assert_eq!(
            (said.stdout(), said.stderr()),
            (String::new(), String::new()),
            "{words:?}"
        );
        // Without the flag, one line says who has it.
        let loud: Vec<&str> = words.iter().copied().filter(|word| *word != "-q").collect();
        let loud: Vec<&str> = loud
            .iter()
            .map(|word| if *word == "-qn" { "-n" } else { word })
            .collect();
        let said = run(&scene, &loud).expect(code, &format!("{loud:?}"));
        assert!(said.stderr().contains("x is held by"), "{}", said.said());
    }
    // What the call was asked for is its answer, and goes to stdout.
    let said = run(&scene, &["check", "-q", "x"]).expect(4, "held");
    assert!(said.stdout().starts_with("x is held by"), "{}", said.said());
    assert_eq!(said.stderr(), "");
    let said = run(
        &scene,
        &["run", "-qn", "x", "--output", "json", "--", "true"],
    );
    assert_eq!(said.expect(4, "held").json()["error"]["code"], "LOCK_HELD");
    gate.open();
    let _ = holder.finish().expect(0, "the holder");
    // What is wrong is said all the same.
    fs::write(scene.path("locks/x.tenure"), "no list").expect("a file");
    for (words, code) in [
        (&["run", "-q", "x", "--", "touch", "ran"][..], 4),
        (&["run", "-q", "x", "-w", "soon", "--", "touch", "ran"], 2),
        (&["run", "-q", "y", "--", "/no/such/program"], 127),
        (&["cancel", "-q", "y"], 5),
    ] {
        let said = run(&scene, words).expect(code, &format!("{words:?}"));
        assert_ne!(said.stderr(), "", "{words:?}");
    }
    assert!(!scene.path("ran").exists(), "nothing ran");
}

#[test]
fn a_flag_that_contradicts_what_a_lock_is_is_refused_with_one_sentence() {
    let scene = Scene::new();
    scene.write("tenure.toml", POOL);
    for flags in [&["--slots", "3"][..], &["--shared"], &["-x"]] {
        let words = [&["run", "gpu"], flags, &["--", "touch", "ran"]].concat();
        let said = run(&scene, &words)
            .expect(2, &format!("{flags:?}"))
            .stderr();
        assert!(said.contains("gpu has 2 slots for all callers"), "{said}");
        assert!(said.contains("tenure.toml"), "{said}");
        assert_eq!(said.lines().count(), 1, "{said}");
    }
    let said = run(&scene, &["acquire", "gpu", "--slots", "3"])
        .expect(2, "acquire")
        .stderr();
    assert!(said.contains("--slots 3: gpu has 2 slots"), "{said}");
    assert!(
        !scene.path("ran").exists() && !scene.path("locks").exists(),
        "nothing was touched"
    );
    scene.write("tenure.toml", &format!("profile = \"fleet\"\n{POOL}"));
    let words = [
        "run",
        "gpu",
        "--intent-name",
        "i",
        "--intent-version",
        "1",
        "--",
        "true",
    ];
    let said = run(&scene, &words).expect(2, "one record, one holder");
    assert!(said.said().contains("slots = 2 in"), "{}", said.said());
}

/// The variables of the file hold for the command whatever it inherits, for hooks and for several locks.
#[test]
fn variables_of_every_lock_reach_the_command() {
    let scene = Scene::new();
    scene.write(
        "tenure.toml",
        &format!("{POOL}[lock.\"db\"]\nenv = {{ LEVEL = \"3\" }}\n"),
    );
    let mut command = call(
        &scene,
        &[
            "run",
            "db",
            "-l",
            "gpu",
            "--",
            "sh",
            "-c",
            "echo $LEVEL $DEVICE ${TENURE_SLOT-none}",
        ],
    );
    let told = answer(command.env("DEVICE", "x").env("TENURE_SLOT", "7")).expect(0, "both");
    assert_eq!(told.stdout(), "3 a none\n", "db has no slots");
    let inner = "tenure run --reentrant gpu -- sh -c 'echo $DEVICE $TENURE_SLOT'";
    let told = run(&scene, &["run", "gpu", "--", "sh", "-c", inner]).expect(0, "under it");
    assert_eq!(told.stdout(), "a 0\n");
    let words = [
        "run",
        "gpu",
        "--rollback",
        "echo back $DEVICE",
        "--",
        "false",
    ];
    assert_eq!(
        run(&scene, &words).expect(1, "it fails").stdout(),
        "back a\n"
    );
}

/// Every flag of a run that is not about one call, in effect.
#[test]
fn flags_may_stand_in_the_file() {
    let scene = Scene::new();
    scene.write(
        "tenure.toml",
        "dir = \"locks\"\n[lock.\"slow\"]\nmax_runtime = \"100ms\"\nsignal = \"TERM\"\ngrace = \"5s\"\n\
         [lock.\"none\"]\nqueue = \"none\"\n[lock.\"of-group\"]\ngroup = \"Issue-1\"\nwait = \"0\"\n",
    );
    let trap = "trap 'echo asked; exit 3' TERM; while :; do sleep 0.05; done";
    let slow = run(&scene, &["run", "slow", "--", "sh", "-c", trap]).expect(10, "its time is over");
    assert_eq!(slow.stdout(), "asked\n");
    let words = ["run", "slow", "--max-runtime", "1m", "--", "sleep", "0.3"];
    let _ = run(&scene, &words).expect(0, "the flag counts for more");
    let said = run(&scene, &["run", "slow", "--exec", "--", "true"]).expect(2, "no supervisor");
    assert!(
        said.stderr().contains("max_runtime = \"100ms\""),
        "{}",
        said.said()
    );
    let gate = Gate::new(&scene, "none");
    let holder = hold(&scene, &gate, &["none"]);
    let refused = run(&scene, &["run", "none", "--output", "json", "--", "true"]);
    let refused = refused.expect(4, "at once").json();
    assert_eq!(
        refused["error"]["context"]["waited_ms"],
        Value::Null,
        "{refused}"
    );
    gate.open();
    let _ = holder.finish().expect(0, "the holder");
    let words = [
        "run",
        "of-group",
        "--",
        "sh",
        "-c",
        "echo $TENURE_GROUP $TENURE_NAME",
    ];
    let told = run(&scene, &words).expect(0, "in its group").stdout();
    assert_eq!(told, "issue-1 of-group\n");
}

/// The age of a detached hold is its lock's, unless the call says another one.
#[test]
fn the_age_at_which_a_hold_ends_may_stand_in_the_file() {
    let scene = Scene::new();
    scene.write("tenure.toml", "[lock.\"x*\"]\nmax_age = \"1h\"\n");
    let age = |words: &[&str]| {
        let words = [&["acquire", "--owner", "none", "--output", "json"], words].concat();
        let said = run(&scene, &words).expect(0, &format!("{words:?}")).json();
        said["data"]["max_age_ms"].clone()
    };
    assert_eq!(age(&["x1"]), 3_600_000);
    assert_eq!(age(&["x2", "--max-age", "30m"]), 1_800_000);
    assert_eq!(age(&["y"]), Value::Null);
    scene.write("tenure.toml", "[lock.x]\nmax_age = \"2d\"\n");
    let words = ["acquire", "x", "--as", "tool/s"];
    let said = run(&scene, &words).expect(2, "longer than a day").stderr();
    assert!(said.contains("max_age: a hold of an agent ends"), "{said}");
}

/// The page says of each flag of `run` and `acquire` which key stands for it, or that it is about one call.
#[test]
fn the_page_of_tenure_toml_knows_every_flag_of_a_call() {
    let scene = Scene::new();
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/configuration.md");
    let part = fs::read_to_string(page).expect("the page");
    let mut seen = 0;
    for verb in ["run", "acquire"] {
        let help = scene.run([verb, "--help"]).expect(0, verb).stdout();
        for line in help
            .lines()
            .filter(|line| line.trim_start().starts_with('-'))
        {
            let mut words = line.split([' ', ',', '=', '[', ']']);
            let Some(flag) = words.find(|word| word.starts_with("--")) else {
                continue;
            };
            // `-n` and `-E` are written so.
            if ["--help", "--nonblock", "--conflict-exit-code"].contains(&flag) {
                continue;
            }
            let is_named = ["`", " "]
                .iter()
                .any(|end| part.contains(&format!("`{flag}{end}")));
            let is_alias = flag == "--exclusive" && part.contains("`-x`");
            assert!(is_named || is_alias, "{verb} {flag} is not on the page");
            seen += 1;
        }
    }
    assert!(seen > 60, "only {seen} flags");
}

#[test]
fn keys_that_mean_nothing_are_named_with_their_lock() {
    let scene = Scene::new();
    for (content, word) in [
        ("[lock.x]\nslot = 2\n", "slot"),
        ("[lock.x]\nslots = 0\n", "slots"),
        ("[lock.x]\nslots = \"2\"\n", "slots"),
        (
            "[lock.x]\nmembers = []\n",
            "[lock.\"x\"] members: it is empty",
        ),
        (
            "[lock.x]\nslots = 3\nmembers = [\"a\"]\n",
            "slots = 3, and 1 are named",
        ),
        (
            "[lock.x]\nenv = { A = \"{member}\" }\n",
            "[lock.\"x\"] env: A: {member} needs members",
        ),
        (
            "[lock.x]\nqueue = \"lifo\"\n",
            "[lock.\"x\"] queue \"lifo\": write fifo, single, max or none",
        ),
        (
            "[lock.x]\non_lost = \"stop\"\n",
            "[lock.\"x\"] on_lost \"stop\": write terminate or warn",
        ),
        (
            "[lock.x]\non_held = \"wait\"\n",
            "[lock.\"x\"] on_held \"wait\": write skip or refuse",
        ),
        (
            "on_held = \"wait\"\n",
            "on_held \"wait\": write skip or refuse",
        ),
        (
            "[lock.x]\nsignal = \"NONE\"\n",
            "[lock.\"x\"] signal \"NONE\"",
        ),
        (
            "[lock.x]\ngrace = \"soon\"\n",
            "[lock.\"x\"] grace \"soon\"",
        ),
        (
            "[lock.x]\nmax_runtime = \"0\"\n",
            "[lock.\"x\"] max_runtime 0",
        ),
        (
            "[lock.x]\nqueue = \"none\"\nwait = \"1s\"\n",
            "[lock.\"x\"] queue: it contradicts wait",
        ),
        ("profile = \"flee\"\n", "flee"),
        ("[profile]\nx = \"y\"\n", "write profile = "),
    ] {
        scene.write("tenure.toml", content);
        let said = run(&scene, &["run", "x", "--", "true"])
            .expect(2, content)
            .stderr();
        assert!(said.contains(word), "`{word}` is said: {said}");
        assert_eq!(said.lines().count(), 1, "one sentence: {said}");
    }
}

/// A run that may be skipped answers a held lock with success and without a word; the audit has it.
#[test]
fn a_run_that_is_skipped_says_nothing_and_is_recorded() {
    let scene = Scene::new();
    scene.write(
        "tenure.toml",
        "dir = \"locks\"\n[lock.\"job\"]\non_held = \"skip\"\n",
    );
    let gate = Gate::new(&scene, "holder");
    let holder = hold(&scene, &gate, &["job"]);
    for words in [
        &["run", "job", "--", "touch", "ran"][..],
        &["run", "job", "-q", "--", "touch", "ran"],
        &["run", "job", "--skip", "-w", "50ms", "--", "touch", "ran"],
        &["run", "job", "-n", "--", "touch", "ran"],
    ] {
        let skipped = run(&scene, words).expect(0, &format!("{words:?}"));
        assert_eq!(
            (skipped.stdout(), skipped.stderr()),
            (String::new(), String::new()),
            "{words:?}"
        );
    }
    let words = [
        "run", "--skip", "job", "--output", "json", "--", "touch", "ran",
    ];
    let skipped = run(&scene, &words).expect(0, "for programs").json();
    assert_eq!(
        (&skipped["ok"], &skipped["data"]["status"]),
        (&true.into(), &"skipped".into())
    );
    assert_eq!(skipped["data"]["holder"]["pid"], holder.pid(), "{skipped}");
    let words = ["run", "job", "-E", "9", "--", "touch", "ran"];
    let said = run(&scene, &words).expect(9, "who asks for a code gets it");
    assert!(said.stderr().contains("job is held by"), "{}", said.said());
    let audit = run(
        &scene,
        &["audit", "--event", "lock_skipped", "--output", "json"],
    );
    let audit = audit.expect(0, "an audit").json();
    let events = audit["data"]["events"].as_array().expect("events").clone();
    assert_eq!(events.len(), 5, "{audit}");
    assert!(
        events
            .iter()
            .all(|event| event["held_by"]["pid"] == holder.pid()),
        "{audit}"
    );
    let text = run(&scene, &["audit", "job"])
        .expect(0, "for people")
        .stdout();
    assert!(text.contains("job was held by"), "{text}");
    assert!(!scene.path("ran").exists());
    gate.open();
    let _ = holder.finish().expect(0, "the holder");
    let _ = run(&scene, &["run", "job", "--", "touch", "ran"]).expect(0, "it is free");
    assert!(scene.path("ran").exists());
    // What a person has to look at is not skipped.
    fs::write(scene.path("locks/job.tenure"), "no list").unwrap();
    let said = run(&scene, &["run", "job", "--", "true"])
        .expect(4, "unreadable")
        .stderr();
    assert!(said.contains("cannot be"), "{said}");
}

/// What a run does beside its command may stand in the file as well, for each lock its own.
#[test]
fn what_a_run_does_beside_its_command_may_stand_in_the_file() {
    let scene = Scene::new();
    let says = "
        dir = \"locks\"
        [lock.undone]
        rollback = \"touch undone\"
        [lock.again]
        reentrant = true
        [lock.whole]
        wait_all = true
        [lock.newest]
        cancel_in_progress = true
        on_supersede = \"touch displaces\"
        on_superseded = \"touch displaced\"
        term_after = \"0\"
        signal = \"USR1\"
        [lock.read]
        shared = true
    ";
    scene.write("tenure.toml", says);
    let there = |name: &str| scene.path(name).exists();
    let _ = run(&scene, &["run", "undone", "--", "false"]).expect(1, "it fails");
    assert!(there("undone"), "the rollback");
    let nested = [
        "run",
        "again",
        "--",
        "sh",
        "-c",
        "tenure run again -- echo in",
    ];
    let said = run(&scene, &nested).expect(0, "it goes on under the hold");
    assert_eq!(said.stdout(), "in\n");
    let leaves = [
        "run",
        "whole",
        "--",
        "sh",
        "-c",
        "(sleep 0.4; touch late) &",
    ];
    let _ = run(&scene, &leaves).expect(0, "all of the work");
    assert!(there("late"), "it was waited for");

    // Asked by USR1 first, which the command does not hear, and by TERM at once.
    let gate = Gate::new(&scene, "newest");
    let script = gate.script("trap '' USR1; trap 'touch termed; exit 0' TERM");
    let first = Started::piped(&mut call(
        &scene,
        &["run", "newest", "--", "sh", "-c", &script],
    ));
    let _ = gate.entered();
    let _ = run(&scene, &["run", "newest", "--", "true"]).expect(0, "the newer one");
    let _ = first.finish().expect(79, "it was displaced");
    for name in ["displaces", "displaced", "termed"] {
        assert!(there(name), "{name}");
    }

    // Readers share it; who writes says so.
    let inner = "tenure run -n read -- echo beside; tenure run -n -x read -- echo alone; echo $?";
    let inner = format!("{inner}; tenure acquire -n -x read -- 2>&1; echo $?");
    let inner = inner.replace(" -- 2>&1", " >/dev/null 2>&1");
    let mut reads = call(&scene, &["run", "read", "--", "env", "-u", "TENURE_HELD"]);
    let said = answer(reads.args(["sh", "-c", &inner])).expect(0, "a reader");
    assert_eq!(said.stdout(), "beside\n81\n81\n", "{}", said.said());
    for (line, word) in [
        ("shared = true\nslots = 2", "shared"),
        ("term_after = \"11s\"", "term_after"),
        ("rollback = \"\"", "rollback"),
        ("wait_all = \"yes\"", "wait_all"),
    ] {
        scene.write(
            "tenure.toml",
            &format!("dir = \"locks\"\n[lock.x]\n{line}\n"),
        );
        let said = run(&scene, &["run", "x", "--", "touch", "ran"]).expect(2, line);
        assert!(said.stderr().contains(word), "{line}: {}", said.said());
        assert!(
            !there("ran") && !there("locks/x.tenure"),
            "nothing was touched"
        );
    }
}

/// `TENURE_PROFILE` counts for more than the file, and the flag for more than both.
#[test]
fn the_profile_may_stand_in_the_file_or_in_the_environment() {
    let scene = Scene::new();
    scene.write("tenure.toml", "dir = \"locks\"\nprofile = \"resume\"\n");
    let record = scene.path("locks/resume_locks/job.lock");
    fs::create_dir(scene.path("locks")).unwrap();
    let tell = [
        "run",
        "job",
        "--",
        "sh",
        "-c",
        "ls locks/resume_locks/job.lock; ls locks/job.tenure",
    ];
    let profile = |variable: Option<&str>, flags: &[&str]| {
        let words = [&tell[..2], flags, &tell[2..]].concat();
        let mut command = call(&scene, &words);
        if let Some(variable) = variable {
            command.env("TENURE_PROFILE", variable);
        }
        answer(&mut command).stdout()
    };
    assert_eq!(profile(None, &[]), "locks/resume_locks/job.lock\n");
    assert_eq!(profile(Some("native"), &[]), "locks/job.tenure\n");
    fs::rename(scene.path("locks/job.tenure"), scene.path("gone")).unwrap();
    let typed = profile(Some("native"), &["--profile", "resume"]);
    assert_eq!(typed, "locks/resume_locks/job.lock\n");
    assert!(!record.exists(), "released");
    // An empty one names no profile, and the call would take another lock than it says.
    for words in [&tell[..], &["check", "job"], &["list"], &["acquire", "job"]] {
        let said = answer(call(&scene, words).env("TENURE_PROFILE", ""));
        let said = said.expect(2, "an empty name").stderr();
        for part in [
            "TENURE_PROFILE",
            "it is empty",
            "unset it, or write",
            "native",
        ] {
            assert!(said.contains(part), "{part}: {said}");
        }
    }
    let typed = [&tell[..2], &["--profile", "resume"], &tell[2..]].concat();
    let said = answer(call(&scene, &typed).env("TENURE_PROFILE", ""));
    let said = said.stdout();
    assert_eq!(said, "locks/resume_locks/job.lock\n", "the flag counts");
    let said = answer(call(&scene, &["doctor"]).env("TENURE_PROFILE", ""));
    let said = said.expect(1, "a finding").stdout();
    assert!(said.contains("TENURE_PROFILE: it is empty"), "{said}");
    // The other verbs look at the same lock.
    let own = std::process::id().to_string();
    let held = run(&scene, &["acquire", "job", "--owner", &own]);
    let _ = held.expect(0, "it is taken");
    assert!(record.exists());
    let said = run(&scene, &["check", "job"]).expect(0, "it is that one");
    assert!(
        said.stdout().starts_with("job is held by you: "),
        "{}",
        said.said()
    );
    assert_eq!(said.stderr(), "", "and no other one");
}

/// A native lock excludes no holder of a record of the same name, and the caller is told so.
#[test]
fn a_native_call_beside_a_record_of_its_name_says_so() {
    let scene = Scene::new();
    let intent = ["--intent-name", "deploy", "--intent-version", "1"];
    let words = [&["--profile", "fleet", "acquire", "app-prod"], &intent[..]].concat();
    let _ = scene.run(words).expect(0, "a fleet's lock");
    let told_and = |code: i32, words: &[&str]| {
        let said = scene
            .run(words)
            .expect(code, &format!("{words:?}"))
            .stderr();
        let is_told = said.contains("app-prod.lock is the record of another lock of this name");
        assert_eq!(is_told, said.contains("--profile fleet"), "{said}");
        is_told
    };
    let told = |words: &[&str]| told_and(0, words);
    for use_of_the_name in ["the first", "a later"] {
        let run = ["run", "app-prod", "--", "true"];
        assert!(told(&run), "{use_of_the_name} use of the name");
    }
    assert!(!told(&["run", "app-prod", "-q", "--", "true"]), "quiet");
    // What they answer is true of the native lock alone.
    for (code, words) in [
        (5, &["cancel", "app-prod"][..]),
        (0, &["release", "app-prod", "--request-id", "a"]),
        (0, &["force-release", "app-prod", "--yes"]),
        (80, &["heartbeat", "app-prod", "--request-id", "a"]),
    ] {
        assert!(told_and(code, words), "{words:?}");
    }
    assert!(told(&["check", "app-prod"]));
    assert!(told(&["wait", "app-prod"]));
    assert!(told(&[
        "acquire",
        "app-prod",
        "--owner",
        "none",
        "--request-id",
        "a"
    ]));
    let _ = scene
        .run(["release", "app-prod", "--request-id", "a"])
        .expect(0, "its own");
    assert!(!told(&["check", "other"]), "there is no such record");
    let holder = scene.hold("app-prod", ["-q"]);
    let said = scene
        .run(["run", "app-prod", "-n", "--", "true"])
        .expect(4, "held")
        .stderr();
    assert!(said.contains("--profile fleet"), "{said}");
    let _ = holder.open().expect(0, "the holder");
}

/// A list that is edited or ordered otherwise while others hold: no member that a living hold has is given again.
#[test]
fn member_of_a_living_hold_is_never_given_again_table() {
    let members = |list: &[&str]| {
        format!(
            "dir = \"locks\"\n[lock.\"gpu\"]\nmembers = {list:?}\nwait = \"0\"\nenv = {{ DEVICE = \"{{member}}\" }}\n"
        )
    };
    let tell = ["run", "gpu", "--", "sh", "-c", "echo $DEVICE"];
    // The list of the first holder, which has 0; that of the second call; and what the second one gets.
    for (now, expected) in [
        (&["0", "1"][..], "1"),
        (&["1", "0"], "1"),
        (&["1", "2"], "1"),
        (&["2", "0"], "2"),
        (&["0", "2"], "2"),
    ] {
        let scene = Scene::new();
        scene.write("tenure.toml", &members(&["0", "1"]));
        let gate = Gate::new(&scene, "first");
        let first = hold(&scene, &gate, &["gpu"]);
        scene.write("tenure.toml", &members(now));
        let said = run(&scene, &tell).expect(0, "run").stdout();
        assert_eq!(said, format!("{expected}\n"), "{now:?}: run");
        let taken = run(
            &scene,
            &["acquire", "gpu", "--owner", "none", "--output", "json"],
        );
        let taken = taken.expect(0, "acquire").json();
        assert_eq!(taken["data"]["member"], *expected, "{now:?}: acquire");
        gate.open();
        let _ = first.finish().expect(0, "the first");
        // The first has ended, and the second is the one that lives.
        let third = run(&scene, &tell).expect(0, "a third").stdout();
        assert_ne!(third, format!("{expected}\n"), "{now:?}: the third");
        assert!(now.contains(&third.trim()), "{now:?}: {third}");
        let seen = scene.check("gpu");
        assert_eq!(seen["holder"]["member"], *expected, "{now:?}: {seen}");
        let text = run(&scene, &["check", "gpu"]).stdout();
        let shown = format!(", member {expected},");
        assert!(text.contains(&shown), "{now:?}: {text}");
    }
}

/// A waiter takes the list as it is when its turn comes: one that has read the old file gets no member that is out of order
/// by then. A list of another length, or a file that cannot be read for the moment, changes nothing.
#[test]
fn waiter_reads_the_list_at_its_turn_table() {
    for (now, expected) in [
        ("members = [\"1\", \"2\"]", "2"),
        ("members = [\"3\", \"1\"]", "3"),
        ("members = [\"1\", \"2\", \"3\"]", "0"),
        ("members = [", "0"),
    ] {
        for verb in ["run", "acquire"] {
            let scene = Scene::new();
            let file = |members: &str| format!("dir = \"locks\"\n[lock.\"gpu\"]\n{members}\n");
            scene.write("tenure.toml", &file("members = [\"0\", \"1\"]"));
            let gates = ["first", "second"].map(|name| Gate::new(&scene, name));
            let [zero, one] = gates.each_ref().map(|gate| hold(&scene, gate, &["gpu"]));
            let words: &[&str] = match verb {
                "run" => &[
                    "run", "-q", "gpu", "-w", "60s", "--", "tenure", "check", "gpu", "--output",
                    "json",
                ],
                _ => &[
                    "acquire", "gpu", "-w", "60s", "--owner", "none", "--output", "json",
                ],
            };
            let mut command = call(&scene, words);
            let waiter = Started::piped(&mut command);
            scene.until_queued("gpu", 1);
            scene.write("tenure.toml", &file(now));
            gates[0].open();
            let _ = zero.finish().expect(0, "the holder of 0");
            let said = waiter.finish().expect(0, verb).json();
            let member = match verb {
                "run" => {
                    let data = &said["data"];
                    let all = data["other_holders"].as_array().into_iter().flatten();
                    let mut all = all.chain([&data["holder"]]);
                    let own = all.find(|holder| holder["member"] != "1");
                    own.expect("the run's own")["member"].clone()
                }
                _ => said["data"]["member"].clone(),
            };
            assert_eq!(member, expected, "{verb}, {now}");
            gates[1].open();
            let _ = one.finish().expect(0, "the holder of 1");
        }
    }
}

/// Failures of tenure itself have one code; what the command says stays.
#[test]
fn own_exit_code_stands_for_every_failure_of_tenure_table() {
    let scene = Scene::new();
    scene.write("tenure.toml", "dir = \"locks\"\n");
    let gate = Gate::new(&scene, "held");
    let held = hold(&scene, &gate, &["held"]);
    for (words, code) in [
        (&["held", "-n", "--", "true"][..], 125),
        (&["held", "-n", "-E", "9", "--", "true"], 9),
        (&["held", "--skip", "--", "true"], 0),
        (&["x", "--", "./no-such-program"], 125),
        (&["x", "--", "/"], 125),
        (
            &["x", "--queue", "none", "--cancel-in-progress", "--", "true"],
            125,
        ),
        (&["x", "--max-runtime", "50ms", "--", "sleep", "100"], 125),
        (&["x", "--exec", "--", "./no-such-program"], 125),
        (&["--dir", "/dev/null/locks", "x", "--", "true"], 125),
        (&["x", "--", "sh", "-c", "rm locks/x.*; sleep 100"], 125),
        (&["x", "--", "sh", "-c", "exit 3"], 3),
        (&["x", "--", "sh", "-c", "exit 80"], 80),
        (&["x", "--", "true"], 0),
        (&["x", "--no-such-flag", "--", "true"], 2),
    ] {
        let words = [&["run", "--own-exit-code", "125"], words].concat();
        let _ = run(&scene, &words).expect(code, &format!("{words:?}"));
    }
    gate.open();
    let _ = held.finish().expect(0, "the holder");
    let script = "git init -q . && git config user.email a@b && git config user.name a\n\
                  for n in 1 2 3 4 5 6; do echo $n >n; git add n; git commit -qm $n; done\n\
                  git bisect start HEAD HEAD~5 >/dev/null\n\
                  tenure -q acquire lab --owner none --ttl 600s >/dev/null\n\
                  git bisect run tenure run lab -n --own-exit-code 125 -- sh -c '[ $(cat n) -lt 4 ]' 2>&1 | grep -c 'cannot bisect more'\n\
                  tenure -q force-release lab --yes >/dev/null 2>&1; git bisect reset >/dev/null 2>&1; git bisect start HEAD HEAD~5 >/dev/null\n\
                  git bisect run tenure run lab -n --own-exit-code 125 -- sh -c '[ $(cat n) -lt 4 ]' 2>&1 | grep -c 'is the first bad commit'\n";
    let mut shell = scene.program("sh");
    fs::create_dir(scene.path("repository")).expect("a folder");
    shell
        .args(["-c", script])
        .current_dir(scene.path("repository"));
    let said = answer(&mut shell);
    assert_eq!(said.stdout(), "1\n1\n", "{}", said.said());
}

/// A caller that does not find the file would get a slot and not know which device it has.
#[test]
fn slot_without_a_member_is_refused_where_others_have_members() {
    let scene = Scene::new();
    scene.write("tenure.toml", POOL);
    fs::create_dir(scene.path("elsewhere")).unwrap();
    scene.write(
        "elsewhere/tenure.toml",
        "[lock.gpu]\nmembers = [\"c\", \"d\"]\n",
    );
    let folder = scene.locks();
    let folder = folder.to_str().expect("a path");
    let gate = Gate::new(&scene, "first");
    let first = hold(&scene, &gate, &["gpu"]);
    let other = scene.path("elsewhere/tenure.toml");
    let other = other.to_str().expect("a path");
    for (words, part) in [
        (
            &["run", "gpu", "--slots", "2", "--", "true"][..],
            "names none",
        ),
        (
            &["acquire", "gpu", "--slots", "2", "--owner", "none"],
            "names none",
        ),
        (&["run", "gpu", "-s", "--", "true"], "names none"),
        (&["run", "-l", "gpu:shared", "--", "true"], "names none"),
        (&["acquire", "gpu", "-s", "--owner", "none"], "names none"),
        (&["check", "gpu", "--slots", "2"], "names none"),
        (&["check", "gpu", "--shared"], "names none"),
        (&["wait", "gpu", "--slots", "2", "-n"], "names none"),
        (&["wait", "gpu", "--shared", "-n"], "names none"),
        (
            &["run", "--config", other, "gpu", "--", "true"],
            "names others: c, d",
        ),
    ] {
        let mut call = scene.tenure([&["--dir", folder], words].concat());
        let refused = answer(call.current_dir("/")).expect(2, part);
        assert!(refused.stderr().contains(part), "{}", refused.stderr());
        assert!(refused.stderr().contains("a, b"), "{}", refused.stderr());
    }
    let _ = run(&scene, &["run", "gpu", "--", "true"]).expect(0, "the same file");
    gate.open();
    let _ = first.finish().expect(0, "the first");
    let mut call = scene.tenure(["--dir", folder, "run", "gpu", "--slots", "2", "--", "true"]);
    let _ = answer(call.current_dir("/")).expect(0, "no other caller has members");
    // What a dead holder left behind says nothing.
    let _ = run(&scene, &["run", "gpu", "--", "sh", "-c", "kill -9 $PPID"]);
    scene.until_free("gpu");
    let words = [
        "run", "--config", other, "--dir", folder, "gpu", "--", "true",
    ];
    let _ = answer(&mut scene.tenure(words)).expect(0, "the next one");
}
