//! `doctor`: what it says of a place, that each thing that is wrong is found where it was really brought about, and
//! that a look changes nothing.

use crate::hostile::in_namespaces;
use crate::support::transcript::Caller;
use crate::support::{Answer, Scene, answer, eventually, timed};
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::time::Duration;

/// A call from a folder, with nothing in its environment that names a place.
fn from(scene: &Scene, folder: &Path, words: &[&str]) -> Answer {
    let mut command = scene.tenure(words);
    answer(command.env_remove("TENURE_DIR").current_dir(folder))
}

fn remove(scene: &Scene, path: &Path) {
    let _ = scene
        .shell(&format!("rm '{}'", path.display()))
        .expect(0, "its removal");
}

/// Fails unless a check ended like this and its line has this part.
#[track_caller]
fn found(said: &Answer, status: &str, check: &str, part: &str) {
    let text = said.stdout();
    let line = text.lines().find(|line| {
        let mut words = line.split("  ").filter(|word| !word.is_empty());
        words.next().map(str::trim) == Some(status) && words.next().map(str::trim) == Some(check)
    });
    let line = line.unwrap_or_else(|| panic!("no {status} {check}: {}", said.said()));
    assert!(line.contains(part), "`{part}`: {line}");
}

/// Names, contents, inodes and times of all that is in a folder, and of the folder itself.
fn everything(folder: &Path) -> BTreeMap<String, (u64, i64, i64, u32, Vec<u8>)> {
    let facts = |path: &Path| {
        let facts = fs::symlink_metadata(path).unwrap();
        let content = fs::read(path).unwrap_or_default();
        let (seconds, nanos) = (facts.mtime(), facts.mtime_nsec());
        (facts.ino(), seconds, nanos, facts.mode(), content)
    };
    let mut all = BTreeMap::from([(".".to_owned(), facts(folder))]);
    for item in fs::read_dir(folder).unwrap() {
        let path = item.unwrap().path();
        all.insert(path.display().to_string(), facts(&path));
    }
    all
}

#[test]
fn a_newcomer_reads_where_the_locks_are_and_that_all_is_well() {
    let scene = Scene::new();
    let caller = Caller::new(&scene, &[])
        .knowing("[VERSION]", env!("CARGO_PKG_VERSION"))
        .knowing("[TENURE]", crate::support::TENURE);
    // Where the clock stands, and what the test's folder is mounted on, is the machine's affair.
    caller.follows(
        "
        $ tenure doctor
        folder         [ROOT]/locks
        because of     TENURE_DIR
        for            [..] alone, once a call has made it
        file system    [..]
        profile        native
        audit          all, [ROOT]/locks/audit
        version        tenure [VERSION], [TENURE]

        ok     place          TENURE_DIR names it
        ok     configuration  no tenure.toml speaks here
        ok     folder         not there yet; the first call that takes a lock makes it
        ...
        ok     locks          tried by two processes: they hold, and end with their process
        ok     leftovers      there are no locks yet
        ok     lock files     each of them can be read
        ok     clock          [..]
        ok     audit          every event is recorded; its folder is not there yet

        Nothing is wrong[..]
        $ ls
        $ tenure run x -- true
        $ tenure doctor -q
        $ tenure doctor
        folder         [ROOT]/locks
        because of     TENURE_DIR
        for            [..] alone (mode 700)
        ...
        ok     folder         you may use it
        ...
        ok     locks          tried by two processes: they hold, and end with their process
        ok     git            no work tree has the folder in it
        ok     leftovers      none: 1 lock looked at
        ...
        ",
    );
}

#[test]
fn beside_a_holder_and_a_waiter_it_changes_and_disturbs_nothing() {
    let scene = Scene::new();
    let held = scene.hold("x", ["-q"]);
    scene.until_named("x");
    let list = scene.run(["list", "--output", "json"]).json()["data"].clone();
    let before = everything(&scene.locks());
    let (said, took) = timed(|| scene.run(["doctor"]));
    let said = said.expect(0, "nothing is wrong");
    found(&said, "ok", "leftovers", "1 lock");
    assert!(took < Duration::from_secs(5), "it took {took:?}");
    assert_eq!(everything(&scene.locks()), before, "nothing was touched");
    let after = scene.run(["list", "--output", "json"]).json()["data"].clone();
    for key in ["token", "pid", "since"] {
        let of = |list: &serde_json::Value| list["locks"][0]["holder"][key].clone();
        assert_eq!(of(&after), of(&list), "{key}");
    }
    let _ = held.open().expect(0, "the holder ends by itself");
}

#[test]
fn what_a_dead_holder_left_is_a_note_with_the_line_that_removes_it() {
    let scene = Scene::new();
    let mut held = scene.hold("x", ["-q"]);
    scene.until_named("x");
    held.started.kill_with_children();
    let _ = held.started.end();
    eventually("the command to be gone", || scene.standing("x") == "stale");
    let said = scene
        .run(["doctor"])
        .expect(0, "the next call takes it over");
    found(&said, "note", "leftovers", "left behind by dead holders: x");
    let dir = scene.locks().display().to_string();
    let said = scene
        .run(["doctor", "--dir", &dir])
        .expect(0, "named by a flag");
    let line = format!("-> tenure --dir {dir} clean");
    assert!(said.stdout().contains(&line), "{}", said.said());
    let _ = scene.shell(&line[3..]).expect(0, "the line");
    let said = scene.run(["doctor"]).expect(0, "nothing is left to do");
    found(&said, "ok", "leftovers", "there are no locks yet");
}

/// A lock that a dead holder left, under a profile.
struct Left {
    profile: &'static str,
    name: &'static str,
    /// The flags of the `acquire` that took it.
    flags: &'static [&'static str],
    /// The record of another program that nobody can read, in place of a hold.
    record: Option<&'static str>,
    status: &'static str,
    /// How the line begins that removes it.
    verb: &'static str,
}

const OLDER: [&str; 2] = ["--stale-after", "1s"];

const fn left(
    profile: &'static str,
    name: &'static str,
    flags: &'static [&'static str],
    record: Option<&'static str>,
    [status, verb]: [&'static str; 2],
) -> Left {
    Left {
        profile,
        name,
        flags,
        record,
        status,
        verb,
    }
}

const LEFT: [Left; 7] = {
    const NOTE: [&str; 2] = ["note", "clean"];
    const INTENT: [&str; 4] = ["--intent-name", "i", "--intent-version", "1"];
    const EPIC: [&str; 4] = ["--session-id", "s", "--epic-spec", "e"];
    const FLEET: [&str; 2] = ["wrong", "force-release x"];
    const SPRINT: [&str; 2] = ["wrong", "force-release sprint"];
    [
        left("native", "x", &[], None, NOTE),
        left("resume", "x", &[], None, NOTE),
        left("session", "7", &OLDER, None, NOTE),
        left("session", "7", &[], Some("locks/7.lock"), NOTE),
        left("fleet", "x", &INTENT, None, FLEET),
        left("sprint", "sprint", &EPIC, None, SPRINT),
        left("sprint", "sprint", &[], Some(".sprint-running"), SPRINT),
    ]
};

impl Left {
    fn in_place(&self, dir: &str) -> Vec<String> {
        let place = match self.profile {
            "sprint" => "--project-root",
            _ => "--dir",
        };
        ["--profile", self.profile, place, dir]
            .map(str::to_owned)
            .to_vec()
    }

    /// Leaves it there: the holder is gone with its owner, and its lease is over.
    fn leave(&self, scene: &Scene, of: &[&str]) {
        let private = |folder: &Path| {
            fs::create_dir_all(folder).unwrap();
            fs::set_permissions(folder, fs::Permissions::from_mode(0o700)).unwrap();
        };
        private(&scene.locks());
        if let Some(record) = self.record {
            let record = scene.locks().join(record);
            private(record.parent().unwrap());
            fs::write(record, "junk").unwrap();
            return;
        }
        let mut owner = crate::support::Started::new(scene.program("sleep").arg("600"));
        let pid = owner.pid().to_string();
        let name: &[&str] = match self.profile {
            "sprint" => &[],
            _ => &[self.name],
        };
        let words = ["acquire", "--ttl", "1s", "--owner", &pid];
        let call = [&words[..], name, of, self.flags].concat();
        let _ = scene.run(call).expect(0, self.profile);
        owner.kill_with_children();
        let _ = owner.end();
    }
}

/// In every format of records and of answers, with a line that removes it.
#[test]
fn what_is_stale_is_said_for_every_profile() {
    for row in &LEFT {
        let Left {
            profile,
            name,
            status,
            verb,
            ..
        } = row;
        let scene = Scene::new();
        let of = row.in_place(&scene.locks().display().to_string());
        let of: Vec<&str> = of.iter().map(String::as_str).collect();
        row.leave(&scene, &of);
        let older = match row.flags {
            flags if flags == OLDER => flags,
            _ => &[],
        };
        let doctor =
            |output: &str| scene.run([&["doctor", "--output", output], &of[..], older].concat());
        let mut said = String::new();
        eventually("the lock to be stale", || {
            said = doctor("text").stdout();
            said.contains("left behind by dead holders")
        });
        let lines = said
            .lines()
            .skip_while(|line| !line.contains("left behind"));
        let lines: Vec<&str> = lines.take(2).collect();
        assert!(lines[0].starts_with(status), "{profile}: {said}");
        assert!(lines[0].contains(&format!("holders: {name};")), "{said}");
        let is_line = lines[1].contains("-> tenure --profile") || *profile == "native";
        assert!(is_line && lines[1].ends_with(verb), "{profile}: {said}");
        let code = i32::from(*status == "wrong");
        let document = doctor("json").expect(code, profile).json();
        let report = match code {
            0 => &document["data"],
            _ => &document["error"]["context"],
        };
        let checks = report["checks"].as_array().unwrap().clone();
        let check = checks.iter().find(|check| check["check"] == "leftovers");
        let check = check.unwrap();
        assert_eq!(check["status"], *status, "{profile}");
        let fix = check["fix"].as_str().unwrap().to_owned();
        assert!(fix.ends_with(verb), "{fix}");
        let yaml = doctor("yaml").stdout();
        // YAML may fold a long line.
        let words: Vec<&str> = yaml.split_whitespace().collect();
        assert!(words.join(" ").contains(&fix), "{yaml}");
        let _ = scene.shell(&fix).expect(0, "the line");
        let said = doctor("text").expect(0, "nothing is left to do");
        found(&said, "ok", "leftovers", "");
    }
}

#[test]
fn a_flag_that_mended_is_refused_with_what_to_do_instead() {
    let scene = Scene::new();
    for words in [
        &["doctor", "--fix"][..],
        &["doctor", "--fix", "--group", "g"],
    ] {
        let said = scene.run(words).expect(2, "it changes nothing").stderr();
        assert!(said.contains("`tenure clean` removes"), "{said}");
        assert_eq!(said.lines().count(), 1, "one sentence: {said}");
    }
}

#[test]
fn a_place_that_cannot_be_known_is_found_and_a_mistyped_call_is_refused() {
    let scene = Scene::new();
    let root = scene.root();
    let with = |variables: &[(&str, &str)]| {
        let mut call = scene.tenure(["doctor"]);
        call.env_remove("TENURE_DIR")
            .env_remove("HOME")
            .current_dir(root);
        answer(call.envs(variables.iter().copied())).expect(1, "no call finds a lock")
    };
    found(&with(&[]), "wrong", "place", "no lock folder is known");
    let relative = with(&[("TENURE_DIR", "locks")]);
    found(&relative, "wrong", "place", "write its whole path");
    found(&relative, "ok", "configuration", "");
    let empty = with(&[("TENURE_STORE", "")]);
    found(&empty, "wrong", "place", "it is empty");
    let said = from(&scene, root, &["doctor", "--scope", "repo"]).expect(1, "no repository");
    found(&said, "wrong", "place", "is in no git repository");
    scene.write("tenure.toml", "[lock.x]\nwait = \"soon\"\n");
    let said = from(&scene, root, &["doctor"]).expect(1, "each call fails");
    found(&said, "wrong", "configuration", "wait");
    assert!(
        !said.stdout().contains("wrong  place"),
        "once is enough: {}",
        said.said()
    );
    let dir = scene.locks().display().to_string();
    let said = from(&scene, root, &["doctor", "--dir", &dir]).expect(1, "each run fails");
    found(&said, "wrong", "configuration", "wait");
    for words in [
        &["doctor", "--nonsense"][..],
        &["doctor", "x"],
        &["doctor", "--group", "root"],
        &["doctor", "--dir", ""],
        &["doctor", "--store", "ftp:x"],
        &["doctor", "--profile", "nobodys"],
    ] {
        scene.write("tenure.toml", "");
        let _ = from(&scene, root, words).expect(2, &format!("{words:?}"));
    }
}

#[test]
fn a_work_tree_that_would_commit_lock_files_is_found() {
    let scene = Scene::new();
    let tree = scene.path("tree");
    fs::create_dir_all(tree.join("state")).unwrap();
    let init = scene.shell(&format!("git init -q '{}'", tree.display()));
    let _ = init.expect(0, "a work tree");
    let dir = tree.join("state").display().to_string();
    let doctor = || scene.run(["doctor", "--dir", &dir]);
    let said = doctor().expect(1, "it would be committed");
    found(&said, "wrong", "git", "would commit the lock files");
    assert!(said.stdout().contains(".gitignore"), "{}", said.said());
    assert!(!tree.join("state/.gitignore").exists());
    fs::write(tree.join(".gitignore"), "*.tenure\n").unwrap();
    found(&doctor().expect(0, "a rule"), "ok", "git", "ignores");
}

#[test]
fn a_folder_that_all_may_write_to_is_found_and_stays_as_it_is() {
    let scene = Scene::new();
    fs::create_dir(scene.locks()).unwrap();
    fs::set_permissions(scene.locks(), fs::Permissions::from_mode(0o777)).unwrap();
    let said = scene.run(["doctor"]).expect(1, "no call uses it");
    found(&said, "wrong", "folder", "not a safe place");
    assert!(said.stdout().contains("-> chmod o-w "), "{}", said.said());
    let mode = fs::metadata(scene.locks()).unwrap().mode() & 0o7777;
    assert_eq!(mode, 0o777);
}

#[test]
fn what_keeps_the_first_call_from_making_a_folder_is_found() {
    let scene = Scene::new();
    std::os::unix::fs::symlink(scene.path("nowhere"), scene.locks()).unwrap();
    let said = scene.run(["doctor"]).expect(1, "no call makes it");
    found(&said, "wrong", "folder", "a link that leads to no folder");
    let _ = scene
        .run(["run", "x", "--", "true"])
        .expect(12, "as a call");
    remove(&scene, &scene.locks());
    fs::write(scene.path("file"), "").unwrap();
    let audit = scene.path("file/audit").display().to_string();
    let said = scene.run(["doctor", "--audit-dir", &audit]);
    found(
        &said.expect(1, "no event is kept"),
        "wrong",
        "audit",
        "audit",
    );
    let audit = scene.path("new/audit").display().to_string();
    let said = scene.run(["doctor", "--audit-dir", &audit]);
    found(
        &said.expect(0, "it can be made"),
        "ok",
        "audit",
        "not there yet",
    );
}

#[test]
fn a_record_that_git_would_commit_is_found() {
    let scene = Scene::new();
    let tree = scene.path("tree");
    fs::create_dir_all(&tree).unwrap();
    let init = scene.shell(&format!("git init -q '{}'", tree.display()));
    let _ = init.expect(0, "a work tree");
    let dir = tree.display().to_string();
    let doctor = || scene.run(["doctor", "--profile", "fleet", "--dir", &dir]);
    let said = doctor().expect(1, "its records");
    found(&said, "wrong", "git", "would commit the record *.lock");
    let text = said.stdout();
    let (_, line) = text.split_once("-> echo").expect("the line that mends it");
    let line = line.lines().next().unwrap_or_default();
    let _ = scene.shell(&format!("echo{line}")).expect(0, "the line");
    let _ = doctor().expect(0, "git ignores them");
    // A hook of git's may be about another repository.
    let mut call = scene.tenure(["doctor", "--profile", "fleet", "--dir", &dir]);
    let _ = answer(call.env("GIT_DIR", scene.path("nowhere"))).expect(0, "git ignores them");
    let said = answer(call.env("PATH", "/nonexistent")).expect(0, "nothing is known");
    found(&said, "note", "git", "gives no answer");
}

/// What other users own: a link, and locks beside one's own.
#[test]
fn a_link_and_locks_of_other_users_are_left_alone() {
    let scene = Scene::new();
    let line = "
        chmod 755 .; cp \"$(command -v tenure)\" copy; chmod 755 copy
        mkdir -m 1777 all victim; chown 64001 victim; chmod 777 victim
        setpriv --reuid 64003 --regid 64003 --clear-groups ln -s \"$PWD/victim\" all/link
        said() { rc=0; \"$@\" >out 2>&1 || rc=$?; echo \"$rc $(tr '\\n' ' ' <out)\"; }
        as() { user=$1; shift; setpriv --reuid $user --regid $user --clear-groups env -u TENURE_DIR HOME=/nonexistent ./copy \"$@\"; }
        said as 64001 doctor --dir \"$PWD/all/link\"
        stat -c %a victim
        mkdir -m 1777 each
        said as 64003 run --dir \"$PWD/each\" x -- true
        said as 64001 doctor --dir \"$PWD/each\"
    ";
    let line = format!("cd '{}'\n{line}", scene.root().display());
    let Some(answer) = in_namespaces(&scene, &["--mount"], &line) else {
        return;
    };
    let said = answer.expect(0, "the shell").stdout();
    let lines: Vec<&str> = said.lines().collect();
    assert!(lines[0].starts_with("1 "), "{said}");
    assert_eq!(
        lines[1], "777",
        "it was reached through another user's link: {said}"
    );
    assert!(lines[2].starts_with("0 "), "{said}");
    assert!(
        lines[3].starts_with("0 ") && lines[3].contains("ok     lock files"),
        "{said}"
    );
}

/// A state of a folder that looks well from outside: how it comes about, the flags of the call, and what is said of it.
struct State(
    &'static str,
    &'static str,
    &'static [(&'static str, &'static str, &'static str)],
);

const SESSION: &str = "--profile session --dir .";
const FLEET: &str = "--profile fleet --dir .";

const STATES: [State; 10] = [
    State("", "--dir .", &[]),
    State(
        "git init -q; mkdir -m 700 locks; echo '{\"runId\":\"r\",\"pid\":1}' >locks/7.lock",
        SESSION,
        &[("wrong", "git", "would commit the record *.lock")],
    ),
    State(
        "git init -q; tenure acquire 7 --profile session --dir . -q; rm locks/.gitignore",
        SESSION,
        &[("wrong", "git", "would commit the record *.lock")],
    ),
    State(
        "git init -q; tenure acquire 7 --profile session --dir . -q; git add -f locks/7.lock",
        SESSION,
        &[("wrong", "git", "git tracks the record 7.lock")],
    ),
    State(
        "mkdir -m 700 locks
         echo '{\"runId\":\"r\",\"pid\":1,\"acquiredAt\":\"2126-11-30T10:00:00.000Z\"}' >locks/7.lock",
        SESSION,
        &[("note", "clock", "7 was written at a time that is still to come")],
    ),
    State(
        "chmod 700 .
         at=2026-01-01T00:00:00Z
         echo \"{\\\"lock_version\\\":\\\"v1\\\",\\\"lock_name\\\":\\\"x\\\",\\\"request_id\\\":\\\"r\\\",\\\"actor\\\":\\\"a\\\",\
         \\\"intent\\\":\\\"i\\\",\\\"intent_version\\\":\\\"1\\\",\\\"host_id\\\":\\\"h\\\",\\\"pid\\\":1,\\\"created_at\\\":\\\"$at\\\",\
         \\\"last_heartbeat_at\\\":\\\"$at\\\",\\\"ttl_seconds\\\":10}\" >x.lock; chmod 600 x.lock",
        FLEET,
        &[("wrong", "leftovers", "left behind by dead holders: x")],
    ),
    State(
        "mkdir lower upper work both; mount -t overlay -o lowerdir=lower,upperdir=upper,workdir=work none both",
        "--dir both",
        &[("note", "mount", "callers in another container over the same files")],
    ),
    State(
        "mkdir private tmp; mount --bind private tmp; mkdir -m 700 tmp/locks",
        "--dir tmp/locks",
        &[("note", "mount", "of this unit or namespace alone")],
    ),
    State(
        "mkdir home; mount -t tmpfs -o mode=700 none home",
        "--dir home",
        &[
            ("note", "mount", "of this unit or namespace alone"),
            ("note", "mount", "a restart empties it"),
        ],
    ),
    State(
        "mount -t tmpfs -o mode=755 none /run",
        "--dir /run/locks",
        &[("note", "mount", "a restart empties it")],
    ),
];

/// Each of them in a folder and a mount namespace of its own, brought about for real.
#[test]
fn what_only_looks_well_is_named() {
    for State(make, flags, expected) in &STATES {
        let scene = Scene::new();
        let line = format!(
            "mkdir w; chmod 700 w; cd w; unset TENURE_DIR\n{make}\ntenure doctor {flags} || [ $? = 1 ]"
        );
        let line = format!("cd '{}'\n{line}", scene.root().display());
        let Some(said) = in_namespaces(&scene, &["--mount"], &line) else {
            return;
        };
        let said = said.expect(0, make);
        for (status, check, part) in *expected {
            let text = said.stdout();
            let mut lines = text.lines().filter(|line| line.starts_with(status));
            let is_it = |line: &str| line.contains(&format!("  {check}  ")) && line.contains(part);
            assert!(lines.any(is_it), "{make}: {part}: {text}");
        }
        let is_noted = said.stdout().contains("\nnote   mount");
        let is_expected = expected.iter().any(|(_, check, _)| *check == "mount");
        // The folder of the test itself may be on such a mount.
        assert!(is_noted || !is_expected, "{make}: {}", said.said());
        if expected.is_empty() {
            assert!(
                !said.stdout().contains("namespace alone"),
                "{}",
                said.said()
            );
        }
    }
}

#[test]
fn a_folder_that_cannot_be_written_is_found_on_a_file_system_of_its_own() {
    let scene = Scene::new();
    let line = "
        mkdir \"$TENURE_DIR\"
        mount -t tmpfs -o mode=700,size=64k none \"$TENURE_DIR\"
        rc=0; tenure doctor || rc=$?; echo \"= $rc\"
        head -c 100k /dev/zero >\"$TENURE_DIR/full\" 2>/dev/null || true
        rc=0; tenure doctor || rc=$?; echo \"= $rc\"
        rm \"$TENURE_DIR/full\"
        mount -o remount,ro \"$TENURE_DIR\"
        rc=0; tenure doctor || rc=$?; echo \"= $rc\"
        ls -A \"$TENURE_DIR\" | wc -l
        umount \"$TENURE_DIR\"
    ";
    let Some(answer) = in_namespaces(&scene, &["--mount"], line) else {
        return;
    };
    let said = answer.expect(0, "the shell").stdout();
    let parts: Vec<&str> = said.split("= ").collect();
    let (good, full, read_only) = (parts[0], parts[1], parts[2]);
    assert!(
        good.contains("file system    tmpfs, of a part of this machine, see below"),
        "{good}"
    );
    assert!(
        full.starts_with("0\n") && full.contains("no lock can be written"),
        "{full}"
    );
    assert!(read_only.starts_with("1\n"), "{read_only}");
    assert!(read_only.contains("read-only"), "{read_only}");
    assert_eq!(parts[3], "1\n0\n", "nothing is left behind");
}

/// The machine's folder, before an administrator has made it and afterwards. In namespaces of its own, so that the
/// test may say what the machine has.
#[test]
fn the_machines_folder_has_the_line_that_makes_it() {
    let scene = Scene::new();
    let copy = scene.path("tenure");
    fs::copy(crate::support::TENURE, &copy).unwrap();
    for path in [scene.root(), &copy] {
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }
    let line = "
        unset TENURE_DIR
        mount -t tmpfs -o mode=755 none /var/lib
        cp -a /etc \"$HOME/etc\"; mount --bind \"$HOME/etc\" /etc; rm -f /etc/tenure.toml
        echo 'team:x:64100:' >>/etc/group
        cd /
        said() { rc=0; \"$@\" >\"$HOME/out\" 2>&1 || rc=$?; echo \"$rc $(tr '\\n' ' ' <\"$HOME/out\")\"; }
        as() { setpriv --reuid $1 --regid $1 --groups $2 \"$HOME/tenure\" doctor --scope machine; }
        said tenure doctor --scope machine
        said as 64001 64001,64100
        install -d -m 3770 -g team /var/lib/tenure/locks
        said as 64001 64001,64100
        said as 64003 64003
        said tenure doctor --profile session --scope machine
        umount /etc /var/lib
    ";
    let Some(answer) = in_namespaces(&scene, &["--mount"], line) else {
        return;
    };
    let said = answer.expect(0, "the shell").stdout();
    let lines: Vec<&str> = said.lines().collect();
    let remedy = "sudo install -d -m 3770 -g";
    for (index, code, parts) in [
        (
            0,
            "1",
            &["wrong  folder", "is not there", remedy, "1 thing is wrong"][..],
        ),
        // The audit would lie in it, and is no trouble of its own.
        (1, "1", &["wrong  folder", remedy, "1 thing is wrong"]),
        (
            2,
            "0",
            &[
                "the members of the group team",
                "ok     folder",
                "ok     locks",
            ],
        ),
        (
            3,
            "1",
            &[
                "wrong  folder",
                "become a member of the group team",
                "1 thing is wrong",
            ],
        ),
        (4, "1", &["wrong  folder", remedy, "/locks/locks"]),
    ] {
        let line = lines[index];
        assert!(line.starts_with(&format!("{code} ")), "{index}: {said}");
        for part in parts {
            assert!(line.contains(part), "`{part}`: {line}");
        }
    }
}

#[test]
fn a_member_who_may_only_read_is_told_so() {
    let scene = Scene::new();
    let line = "
        chmod 755 .; cp \"$(command -v tenure)\" copy; chmod 755 copy
        install -d -m 2750 -g 64100 \"$TENURE_DIR\"
        said() { rc=0; \"$@\" >out 2>&1 || rc=$?; echo \"$rc $(tr '\\n' ' ' <out)\"; }
        said setpriv --reuid 64001 --regid 64001 --groups 64001,64100 ./copy doctor
        said setpriv --reuid 64003 --regid 64003 --groups 64003 ./copy doctor
        chmod 2775 \"$TENURE_DIR\"; tenure run x -- true
        said setpriv --reuid 64001 --regid 64001 --groups 64001,64100 ./copy doctor
        said setpriv --reuid 64003 --regid 64003 --groups 64003 ./copy doctor
    ";
    let line = format!("cd '{}'\n{line}", scene.root().display());
    let Some(answer) = in_namespaces(&scene, &["--mount"], &line) else {
        return;
    };
    let said = answer.expect(0, "the shell").stdout();
    let lines: Vec<&str> = said.lines().collect();
    assert!(
        lines[0].starts_with("0 ") && lines[0].contains("you may look at the locks"),
        "{said}"
    );
    assert!(
        lines[1].starts_with("1 ") && lines[1].contains("permission denied"),
        "{said}"
    );
    // In a folder that all users may read, who is no member is told that, and no more is wrong.
    assert!(
        lines[2].starts_with("0 ") && lines[2].contains("you may use it"),
        "{said}"
    );
    for part in [
        "only members of the group 64100 take locks there",
        "become a member of the group 64100",
        "1 thing is wrong",
    ] {
        assert!(
            lines[3].starts_with("1 ") && lines[3].contains(part),
            "{part}: {said}"
        );
    }
}

#[cfg(feature = "etcd")]
#[test]
fn servers_that_do_not_answer_are_found_within_a_bounded_time() {
    let scene = Scene::new();
    // A port that takes connections and answers nothing.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("etcd://{}/x", silent.local_addr().unwrap());
    let (said, took) = timed(|| scene.run(["doctor", "--store", &url]));
    let said = said.expect(1, "they do not answer");
    found(&said, "wrong", "servers", "listing the locks");
    assert!(took < Duration::from_secs(12), "it took {took:?}");
}

/// A step of the wall clock shows in what a lock has written before it. By a half minute more than an hour, because
/// both clocks go on between the two readings, and a drift of a millisecond would make an hour read as 59 minutes.
#[cfg(feature = "testing-clock")]
#[test]
fn a_clock_that_was_set_is_noted() {
    use tenure_os::clock::stepped::{STEPS, set};
    const STEP_US: i64 = 3_630_000_000;
    for (first_us, then_us, way) in [(0, STEP_US, "forward by 1h"), (STEP_US, 0, "back by 1h")] {
        let scene = Scene::new();
        let steps = scene.path("steps");
        set(&steps, first_us).unwrap();
        let call = |words: &[&str]| answer(scene.tenure(words).env(STEPS, &steps));
        let words = ["acquire", "x", "--owner", "none", "--ttl", "1h"];
        let _ = call(&words).expect(0, "it is held");
        found(
            &call(&["doctor"]).expect(0, "no step yet"),
            "ok",
            "clock",
            "no step",
        );
        set(&steps, then_us).unwrap();
        let said = call(&["doctor"]).expect(0, "calls cope with it");
        found(&said, "note", "clock", way);
        found(&said, "note", "clock", "since x was written");
        assert!(
            said.stdout().contains("-> timedatectl status"),
            "{}",
            said.said()
        );
        let said = call(&["doctor", "--output", "json"])
            .expect(0, "a note")
            .json();
        let checks = said["data"]["checks"].as_array().unwrap().clone();
        let clock = checks.iter().find(|check| check["check"] == "clock");
        assert_eq!(clock.unwrap()["status"], "note", "{said}");
        let _ = call(&["check", "x"]).expect(4, "and the lock stays held");
    }
}

/// A trial that cannot be made shows nothing of the locks: a note, and no finding.
#[cfg(target_os = "linux")]
#[test]
fn locks_that_could_not_be_tried_are_a_note() {
    let scene = Scene::new();
    let _ = scene.run(["run", "x", "--", "true"]).expect(0, "a folder");
    let doctor = |inject: &str| {
        let mut strace = scene.program("strace");
        strace.args(["-qq", "-o", "/dev/null", "--trace=fcntl"]);
        strace.arg(format!("--inject=fcntl:{inject}"));
        answer(strace.args([crate::support::TENURE, "doctor"]))
    };
    // Each call in turn is the first lock of the trial. What the system says of the file system is a finding about
    // it, and all else shows nothing.
    for (error, status, code, told) in [
        ("EAGAIN", "note", 0, "not tried, so not known"),
        (
            "ENOLCK",
            "wrong",
            1,
            "there are no locks on this file system",
        ),
    ] {
        let mut met = 0;
        for nth in 1..16 {
            let said = doctor(&format!("error={error}:when={nth}"));
            if said.stdout().contains(told) {
                found(&said, status, "locks", told);
                assert_eq!(said.code(), code, "{}", said.said());
                met += 1;
            }
        }
        assert!(met > 0, "the trial was not met");
    }
}

/// Who can use the place is said before the checks, also of one that is not there yet or is refused.
#[test]
fn who_can_use_the_place_stands_in_the_first_lines() {
    let scene = Scene::new();
    let line = "
        said() { rc=0; \"$@\" >out 2>&1 || rc=$?; echo \"$rc $(grep '^for ' out)\"; }
        said tenure doctor
        mkdir -m 2770 team; chgrp 64100 team; chmod 2770 team
        TENURE_DIR=$PWD/team/locks; said tenure doctor
        TENURE_DIR=$PWD/team; said tenure doctor
        mkdir open; chmod 777 open; TENURE_DIR=$PWD/open; said tenure doctor
        mkdir each; chmod 1777 each; TENURE_DIR=$PWD/each; said tenure doctor
    ";
    let line = format!("cd '{}'\n{line}", scene.root().display());
    let Some(answer) = in_namespaces(&scene, &["--mount"], &line) else {
        return;
    };
    let said = answer.expect(0, "the shell").stdout();
    let lines: Vec<String> = said
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
        .collect();
    assert_eq!(
        lines,
        [
            "0 for root alone, once a call has made it",
            "0 for the members of the group 64100, once a call has made it",
            "0 for the members of the group 64100 (mode 2770)",
            "1 for no user: calls refuse it, see below",
            "0 for each user, for locks of their own (mode 1777)",
        ]
    );
}

/// The part of the second process is no way to disturb a lock.
#[test]
fn the_second_process_of_a_trial_ends_where_there_is_no_trial() {
    let scene = Scene::new();
    let said = scene.run(["doctor", "--in-trial"]);
    let _ = said.expect(1, "nothing is on its stdin");
}

/// The list cannot be read here, so nobody can see that no caller has the lock.
#[test]
fn a_lock_file_of_another_format_is_never_to_be_removed() {
    let scene = Scene::new();
    let _ = scene.run(["run", "x", "--", "true"]).expect(0, "a lock");
    let file = scene.locks().join("x.tenure");
    let mut bytes = fs::read(&file).unwrap();
    let later = b"tenure 2 9 1 0123456789abcdef 9.9.9\n";
    bytes[..later.len()].copy_from_slice(later);
    fs::write(&file, &bytes).unwrap();
    let said = scene.run(["doctor"]).expect(1, "it cannot be used");
    found(
        &said,
        "wrong",
        "lock files",
        "has format 2 of lock files, written by tenure 9.9.9",
    );
    found(&said, "ok", "leftovers", "no lock could be looked at");
    let said = said.stdout();
    assert!(said.contains("-> use the program that wrote it"), "{said}");
    assert!(!said.contains("remove"), "{said}");
    assert_eq!(fs::read(&file).unwrap(), bytes);
}
