//! `doctor`: what it says of a place, that each thing that is wrong is found where it was really brought about, that
//! a look changes nothing, and what `--fix` mends.

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
    // Where the clock and the kernel stand is the machine's affair.
    caller.follows(
        "
        $ tenure doctor
        folder         [ROOT]/locks
        because of     TENURE_DIR
        for            [..] alone, once a call has made it
        file system    [..], of this machine
        profile        native
        audit          off, [ROOT]/locks/audit
        version        tenure [VERSION], [TENURE]
        system         Linux [..]
        ...
        ok     place          TENURE_DIR names it
        ok     configuration  no tenure.toml speaks here
        ok     folder         not there yet; the first call that takes a lock makes it
        ok     locks          tried by two processes: they hold, and end with their process
        ok     leftovers      there are no locks yet
        ok     lock files     each of them can be read
        ok     clock          [..]
        ok     audit          off: only takeovers, forced ends and skips are recorded; its folder is not there yet
        ok     PATH           a shell finds [TENURE]
        ...
        $ ls
        $ tenure run x -- true
        $ tenure doctor -q
        $ tenure doctor
        folder         [ROOT]/locks
        because of     TENURE_DIR
        for            [..] alone (mode 700)
        ...
        ok     folder         you may use it
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
fn what_a_dead_holder_left_is_a_note_and_fix_removes_it() {
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
    let line = format!("-> tenure clean --dir {dir}");
    assert!(said.stdout().contains(&line), "{}", said.said());
    let said = scene.run(["doctor", "--fix"]).expect(0, "it is mended");
    found(&said, "ok", "leftovers", "none");
    let text = said.stdout();
    assert!(
        text.contains("removed what a dead holder had left of x"),
        "{text}"
    );
    let again = scene
        .run(["doctor", "--fix"])
        .expect(0, "nothing is left to do");
    assert!(!again.stdout().contains("fixed"), "{}", again.said());
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
    found(&relative, "ok", "PATH", "a shell finds");
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
        &["doctor", "--fix", "--group", "no-such-group"],
        &["doctor", "--fix", "--group", "4294967295"],
        &["doctor", "--fix", "--group", "root", "--scope", "user"],
        &["doctor", "--fix", "--group", "root", "--dir", "d"],
    ] {
        scene.write("tenure.toml", "");
        let _ = from(&scene, root, words).expect(2, &format!("{words:?}"));
    }
}

#[test]
fn a_work_tree_that_would_commit_lock_files_is_found_and_mended() {
    let scene = Scene::new();
    let tree = scene.path("tree");
    fs::create_dir_all(tree.join("state/mixed")).unwrap();
    let init = scene.shell(&format!("git init -q '{}'", tree.display()));
    let _ = init.expect(0, "a work tree");
    let doctor = |folder: &str, more: &[&str]| {
        let dir = tree.join(folder).display().to_string();
        scene.run([&["doctor", "--dir", &dir][..], more].concat())
    };
    let said = doctor("state", &[]).expect(1, "it would be committed");
    found(&said, "wrong", "git", "would commit the lock files");
    assert!(said.stdout().contains(".gitignore"), "{}", said.said());
    // Work of others beside the locks is not hidden from git.
    let said = doctor("state", &["--fix"]).expect(1, "not by itself");
    found(&said, "wrong", "git", "would commit");
    assert!(!tree.join("state/.gitignore").exists());
    // An empty folder may be meant for work, and a name proves nothing.
    let mixed = tree.join("state/mixed");
    let _ = doctor("state/mixed", &["--fix"]).expect(1, "an empty folder");
    fs::write(mixed.join("work.tenure"), "work").unwrap();
    let _ = doctor("state/mixed", &["--fix"]).expect(1, "work");
    remove(&scene, &mixed.join("work.tenure"));
    assert_eq!(
        fs::read_dir(&mixed).unwrap().count(),
        0,
        "nothing was told to git"
    );
    let dir = mixed.display().to_string();
    let _ = scene
        .run(["run", "--dir", &dir, "x", "--", "true"])
        .expect(0, "a lock");
    let said = doctor("state/mixed", &["--fix"]).expect(0, "nothing but locks is there");
    found(&said, "ok", "git", "ignores");
    fs::write(tree.join(".gitignore"), "*.tenure\n").unwrap();
    found(
        &doctor("state", &[]).expect(0, "a rule"),
        "ok",
        "git",
        "ignores",
    );
}

#[test]
fn a_folder_that_all_may_write_to_is_found_and_mended() {
    let scene = Scene::new();
    fs::create_dir(scene.locks()).unwrap();
    fs::set_permissions(scene.locks(), fs::Permissions::from_mode(0o777)).unwrap();
    let said = scene.run(["doctor"]).expect(1, "no call uses it");
    found(&said, "wrong", "folder", "not a safe place");
    let said = scene.run(["doctor", "--fix"]).expect(0, "mended");
    found(&said, "ok", "folder", "you may use it");
    let mode = fs::metadata(scene.locks()).unwrap().mode() & 0o7777;
    assert_eq!(mode, 0o775, "and no more than that");
}

#[test]
fn a_fix_changes_no_folder_with_other_files_and_says_each_change() {
    let scene = Scene::new();
    let open = fs::Permissions::from_mode(0o777);
    fs::create_dir(scene.locks()).unwrap();
    fs::set_permissions(scene.locks(), open.clone()).unwrap();
    let mode = || fs::metadata(scene.locks()).unwrap().mode() & 0o7777;
    fs::write(scene.locks().join("work"), "").unwrap();
    let said = scene
        .run(["doctor", "--fix"])
        .expect(1, "no folder of locks");
    assert!(said.stdout().contains("-> chmod o-w "), "{}", said.said());
    assert_eq!(mode(), 0o777);
    remove(&scene, &scene.locks().join("work"));
    let said = scene.run(["doctor", "--fix", "-q"]).expect(0, "mended");
    assert!(said.stdout().starts_with("fixed "), "{}", said.said());
    assert_eq!(mode(), 0o775);
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
        said as 64001 doctor --fix --dir \"$PWD/all/link\"
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

#[test]
fn another_tenure_on_the_path_is_named_and_not_run() {
    let scene = Scene::new();
    fs::create_dir(scene.path("other")).unwrap();
    let ran = scene.path("ran");
    scene.script(
        "other/tenure",
        &format!("#!/bin/sh\ntouch '{}'\n", ran.display()),
    );
    let own = Path::new(crate::support::TENURE).parent().unwrap();
    let other = scene.path("other");
    let path = |folders: &[&Path]| {
        let mut call = scene.tenure(["doctor"]);
        answer(call.env("PATH", std::env::join_paths(folders).unwrap())).expect(0, "a note")
    };
    found(&path(&[own, &other]), "note", "PATH", "behind this one");
    found(
        &path(&[&other, own]),
        "note",
        "PATH",
        "first, of unknown version",
    );
    found(
        &path(&[Path::new("/nonexistent")]),
        "note",
        "PATH",
        "no folder of the PATH",
    );
    // A copy is no other version, and a link neither.
    fs::create_dir(scene.path("copy")).unwrap();
    std::os::unix::fs::symlink(crate::support::TENURE, scene.path("copy/tenure")).unwrap();
    found(
        &path(&[&scene.path("copy"), own]),
        "ok",
        "PATH",
        "a shell finds",
    );
    assert!(!ran.exists(), "no program was run");
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
        good.contains("file system    tmpfs, of this machine"),
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

/// What an administrator does, and what is in the way; in namespaces of its own, so that the test may say what the
/// machine has.
const ADMINISTRATOR: &str = "
        unset TENURE_DIR
        mount -t tmpfs -o mode=755 none /var/lib
        cp -a /etc \"$HOME/etc\"; mount --bind \"$HOME/etc\" /etc; rm -f /etc/tenure.toml
        echo 'team:x:64100:' >>/etc/group
        cd /
        said() { rc=0; \"$@\" >\"$HOME/out\" 2>&1 || rc=$?; echo \"$rc $(tr '\\n' ' ' <\"$HOME/out\")\"; }
        as() { setpriv --reuid $1 --regid $1 --groups $2 \"$HOME/tenure\" doctor --scope machine; }
        said tenure doctor --scope machine
        said tenure doctor --fix --group nobodys
        said setpriv --reuid 64001 --regid 64001 --clear-groups \"$HOME/tenure\" doctor --fix --group team
        ls -A /var/lib | wc -l
        umask 077
        said tenure doctor --fix --group team
        stat -c '%a %g %U' /var/lib/tenure /var/lib/tenure/locks
        said tenure doctor --fix --group 64100
        said as 64001 64001,64100
        said as 64003 64003
        chmod 2770 /var/lib/tenure/locks
        said tenure doctor --fix --group team
        stat -c %a /var/lib/tenure/locks
        touch /var/lib/tenure/locks/x.tenure
        said tenure doctor --fix --group root
        rm -rf /var/lib/tenure; mkdir -p /var/lib/tenure; ln -s /tmp /var/lib/tenure/locks
        said tenure doctor --fix --group team
        rm /var/lib/tenure/locks; mkdir /var/lib/tenure/locks; chown 64001 /var/lib/tenure/locks
        said tenure doctor --fix --group team
        rm -rf /var/lib/tenure; mkdir -m 1777 /var/lib/shared; ln -s /var/lib/tenure /var/lib/shared/a
        printf 'dir = \"/var/lib/shared/a/locks\"\\n' >/etc/tenure.toml
        said tenure doctor --fix --group team
        printf 'dir = \"/var/lib/open/locks\"\\n' >/etc/tenure.toml; mkdir /var/lib/open; chmod 777 /var/lib/open
        said tenure doctor --fix --group team
        printf 'dri = 1\\n' >/etc/tenure.toml
        said tenure doctor --fix --group team
        ls -A /var/lib/open /var/lib/shared | wc -w
        rm -rf /etc/tenure.toml /var/lib/tenure
        said as 64001 64001,64100
        install -d -m 3770 -g team /var/lib/tenure/locks
        said tenure doctor --profile session --scope machine
        umount /etc /var/lib
    ";

#[test]
fn the_machines_folder_is_made_for_a_group_and_only_by_root_in_a_safe_place() {
    let scene = Scene::new();
    let copy = scene.path("tenure");
    fs::copy(crate::support::TENURE, &copy).unwrap();
    for path in [scene.root(), &copy] {
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }
    let Some(answer) = in_namespaces(&scene, &["--mount"], ADMINISTRATOR) else {
        return;
    };
    let said = answer.expect(0, "the shell").stdout();
    let lines: Vec<&str> = said.lines().collect();
    let begins = |index: usize, code: &str, parts: &[&str]| {
        let line = lines[index];
        assert!(
            line.starts_with(&format!("{code} ")),
            "{index}, {code}: {said}"
        );
        for part in parts {
            assert!(line.contains(part), "`{part}`: {line}");
        }
    };
    let remedy = "sudo install -d -m 3770 -g";
    begins(
        0,
        "1",
        &[
            "wrong  folder",
            "is not there",
            remedy,
            "--fix --group GROUP",
        ],
    );
    begins(1, "2", &["no group \"nobodys\""]);
    begins(
        2,
        "7",
        &["only root makes", remedy, "-g team /var/lib/tenure/locks"],
    );
    assert_eq!(lines[3], "0", "nothing was made: {said}");
    begins(
        4,
        "0",
        &[
            "made /var/lib/tenure/locks for the group team",
            "ok     folder",
        ],
    );
    assert_eq!(lines[5..7], ["755 0 root", "3770 64100 root"], "{said}");
    begins(7, "0", &["the members of the group team"]);
    assert!(
        !lines[7].contains("fixed"),
        "it was so already: {}",
        lines[7]
    );
    begins(8, "0", &["ok     folder", "ok     locks"]);
    begins(
        9,
        "1",
        &[
            "wrong  folder",
            "become a member of the group team",
            "1 thing is wrong",
        ],
    );
    begins(10, "0", &["ok     folder"]);
    assert_eq!(lines[11], "2770", "an administrator's choice stays: {said}");
    // The words of the envelope for these are PERMISSION_DENIED and UNSAFE_PLACE.
    begins(
        12,
        "7",
        &["for the group team, and files of that group are in it"],
    );
    begins(13, "7", &["a link or a file is in the way"]);
    begins(14, "7", &["it belongs to", "and not to root"]);
    begins(15, "7", &["a link that another user could have made"]);
    begins(16, "7", &["/var/lib/open", "may exchange"]);
    begins(17, "2", &["/etc/tenure.toml", "dri"]);
    assert_eq!(lines[18], "3", "the two headings and the link: {said}");
    // The audit would lie in it, and is no trouble of its own.
    begins(19, "1", &["wrong  folder", remedy, "1 thing is wrong"]);
    // Below the machine's folder, where `--fix` makes none.
    begins(20, "1", &["wrong  folder", remedy, "/locks/locks"]);
    assert!(!lines[20].contains("--fix"), "{}", lines[20]);
}

/// The words for programs.
#[test]
fn a_refusal_to_make_the_machines_folder_has_its_code() {
    let scene = Scene::new();
    let line = "
        unset TENURE_DIR
        mount -t tmpfs -o mode=755 none /var/lib; mkdir /var/lib/tenure; ln -s /tmp /var/lib/tenure/locks
        cp -a /etc \"$HOME/etc\"; mount --bind \"$HOME/etc\" /etc; rm -f /etc/tenure.toml
        said() { \"$@\" --output json | grep -o '\"code\":\"[A-Z_]*\"'; }
        said tenure doctor --fix --group root
        echo 'dri = 1' >/etc/tenure.toml
        said tenure doctor --fix --group root
        rm /etc/tenure.toml; cp \"$(command -v tenure)\" /var/lib/copy; chmod 755 /var/lib/copy
        said setpriv --reuid 64001 --regid 64001 --clear-groups /var/lib/copy doctor --fix --group root
        umount /etc /var/lib
    ";
    let Some(answer) = in_namespaces(&scene, &["--mount"], line) else {
        return;
    };
    let said = answer.expect(0, "the shell").stdout();
    let codes: Vec<&str> = said.split('"').filter(|word| word.contains('_')).collect();
    let expected = ["UNSAFE_PLACE", "BAD_CONFIGURATION", "PERMISSION_DENIED"];
    assert_eq!(codes, expected, "{said}");
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
    found(&said, "ok", "PATH", "a shell finds");
    assert!(took < Duration::from_secs(12), "it took {took:?}");
}

/// A step of the wall clock shows in what a lock has written before it. By a half minute more than an hour, because
/// both clocks go on between the two readings, and a drift of a millisecond would make an hour read as 59 minutes.
#[cfg(feature = "testing-clock")]
#[test]
fn a_clock_that_was_set_is_noted() {
    use tenure_engine::clock::stepped::{STEPS, set};
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

/// What the kernel, or the filter of a container, does not give is a note with what tenure does in its place. The
/// locks hold without it, so nothing is wrong.
#[cfg(target_os = "linux")]
#[test]
fn what_the_kernel_does_not_give_is_noted() {
    let scene = Scene::new();
    for (call, error, told, fix) in [
        (
            "inotify_init1",
            "EMFILE",
            "no watch on files",
            "max_user_instances",
        ),
        (
            "pidfd_open",
            "ENOSYS",
            "no handles on processes",
            "Linux 5.3",
        ),
        ("prctl", "EINVAL", "no adoption of descendants", "Linux 3.4"),
    ] {
        let mut strace = scene.program("strace");
        strace.args(["-f", "-qq", "-o", "/dev/null"]);
        strace.arg(format!("--trace={call}"));
        strace.arg(format!("--inject={call}:error={error}"));
        let said = answer(strace.args([crate::support::TENURE, "doctor"]));
        let said = said.expect(0, "calls cope with it");
        found(&said, "note", "kernel", told);
        assert!(said.stdout().contains(fix), "{}", said.said());
        assert!(
            said.stdout().contains("Nothing is wrong; 1 note."),
            "{}",
            said.said()
        );
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
    // Which of the calls is the first lock of the trial: each one in turn. What the system says of the file system
    // is a finding about it, and all else shows nothing.
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
