//! Several users of one machine: whose configuration and whose folders a call believes, and that
//! nothing which one user leaves behind locks another one out.
//!
//! Only root can be several users. As any other user these tests say so and end.

#![allow(
    clippy::disallowed_methods,
    reason = "what was planted by the test is removed by it, behind the store's back"
)]

use crate::support::{Answer, Scene, TENURE, answer, is_root};
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::Command;

/// A user of the test's own; the system need not know the name.
#[derive(Clone, Copy)]
struct User {
    number: u32,
}

const ROOT: User = User { number: 0 };
const ADA: User = User { number: 64_001 };
const BOB: User = User { number: 64_002 };

/// The group that Ada and Bob belong to.
const TEAM: u32 = 64_100;

/// A machine with several users: a scene that all of them may enter.
struct Machine {
    scene: Scene,
}

impl Machine {
    /// `None` where the test is not root.
    #[allow(
        clippy::print_stdout,
        reason = "a reader of the tests' output has to know"
    )]
    fn new() -> Option<Self> {
        if !is_root() {
            println!("skipped: only root can be several users");
            return None;
        }
        let scene = Scene::new();
        // The program itself may lie where no other user can go.
        let copy = scene.path("tenure");
        fs::copy(TENURE, &copy).unwrap();
        mode(scene.root(), 0o755);
        mode(&copy, 0o755);
        Some(Self { scene })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.scene.path(name)
    }

    /// A folder of a user's.
    fn folder(&self, name: &str, of: User, bits: u32) -> PathBuf {
        let path = self.path(name);
        fs::create_dir_all(&path).unwrap();
        chown(&path, Some(of.number), Some(of.number)).unwrap();
        mode(&path, bits);
        path
    }

    /// A file of a user's.
    fn file(&self, name: &str, of: User, content: &str) -> PathBuf {
        let path = self.scene.write(name, content);
        chown(&path, Some(of.number), Some(of.number)).unwrap();
        mode(&path, 0o644);
        path
    }

    /// A call of a user's, from a folder, with nothing in its environment that names a place. Its
    /// home is `home/NUMBER`.
    fn call(&self, user: User, from: &Path, words: &[&str]) -> Command {
        let home = self.folder(&format!("home/{}", user.number), user, 0o700);
        let number = user.number.to_string();
        let mut command = self.scene.program("setpriv");
        command
            .args(["--reuid", &number, "--regid", &number, "--groups"])
            .arg(format!("{number},{TEAM}"))
            .arg(self.path("tenure"))
            .args(words)
            .env_remove("TENURE_DIR")
            .env("HOME", home)
            .current_dir(from);
        command
    }

    fn run(&self, user: User, from: &Path, words: &[&str]) -> Answer {
        answer(&mut self.call(user, from, words))
    }
}

fn mode(path: &Path, bits: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(bits)).unwrap();
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

// --- What `clean` leaves behind ----------------------------------------------------------------

/// A lock that was used, and its token.
fn use_lock(machine: &Machine, user: User, dir: &Path, name: &str) -> u64 {
    let script = "echo $TENURE_TOKEN";
    let words = ["run", name, "--dir", text(dir), "--", "sh", "-c", script];
    let said = machine.run(user, Path::new("/"), &words);
    let said = said.expect(0, &format!("{name} of {}", user.number));
    said.stdout().trim().parse().unwrap()
}

fn clean(machine: &Machine, user: User, dir: &Path) -> Answer {
    machine.run(user, Path::new("/"), &["clean", "--dir", text(dir)])
}

#[test]
fn after_roots_clean_the_folders_owner_uses_it_as_before() {
    let Some(machine) = Machine::new() else {
        return;
    };
    let locks = machine.folder("locks", ADA, 0o700);
    let first = use_lock(&machine, ADA, &locks, "a");
    let _ = clean(&machine, ROOT, &locks).expect(0, "root may do everything");
    assert!(!locks.join("a.tenure").exists(), "it was cleaned");
    let floor = fs::metadata(locks.join(".floor.tenure")).unwrap();
    assert_eq!((floor.uid(), floor.mode() & 0o777), (ADA.number, 0o600));
    let second = use_lock(&machine, ADA, &locks, "b");
    assert!(second > first, "tokens rise: {first}, {second}");
    let _ = clean(&machine, ADA, &locks).expect(0, "and she may clean herself");
    assert!(!locks.join("b.tenure").exists(), "which works");
    let third = use_lock(&machine, ADA, &locks, "a");
    assert!(third > second, "tokens rise: {second}, {third}");
}

#[test]
fn in_a_folder_of_a_group_every_member_uses_and_raises_the_floor() {
    let Some(machine) = Machine::new() else {
        return;
    };
    for (name, owner) in [("of-root", ROOT), ("of-ada", ADA)] {
        let locks = machine.folder(name, owner, 0o700);
        chown(&locks, None, Some(TEAM)).unwrap();
        mode(&locks, 0o2770);
        let mut last = 0;
        for (user, name) in [(ADA, "a"), (BOB, "b"), (ROOT, "c"), (ADA, "a"), (BOB, "b")] {
            let token = use_lock(&machine, user, &locks, name);
            assert!(token > last, "tokens rise: {last}, {token}");
            last = token;
            let _ = clean(&machine, user, &locks).expect(0, "a member's clean");
            assert!(!locks.join(format!("{name}.tenure")).exists(), "{name}");
            let floor = fs::metadata(locks.join(".floor.tenure")).unwrap();
            assert_eq!((floor.gid(), floor.mode() & 0o777), (TEAM, 0o664));
        }
    }
}

/// As an earlier version made it, and as one that was killed in the middle leaves it.
#[test]
fn a_floor_of_root_alone_is_mended_by_its_owner_and_does_not_count_while_it_is_empty() {
    let Some(machine) = Machine::new() else {
        return;
    };
    let locks = machine.folder("locks", ROOT, 0o700);
    chown(&locks, None, Some(TEAM)).unwrap();
    mode(&locks, 0o2770);
    let floor = locks.join(".floor.tenure");
    fs::write(&floor, "").unwrap();
    mode(&floor, 0o600);
    use_lock(&machine, ADA, &locks, "a");
    let refused = clean(&machine, ADA, &locks).expect(7, "she cannot raise the floor");
    assert!(
        refused.stderr().contains(".floor.tenure"),
        "{}",
        refused.said()
    );
    assert!(locks.join("a.tenure").exists(), "so the lock stays");

    use_lock(&machine, ROOT, &locks, "r");
    let _ = clean(&machine, ROOT, &locks).expect(0, "root's clean");
    mode(&floor, 0o600);
    let words = ["run", "new", "--dir", text(&locks), "--", "echo", "ran"];
    let refused = machine.run(ADA, Path::new("/"), &words);
    let refused = refused.expect(7, "how high it is cannot be known");
    assert_eq!(refused.stdout(), "", "nothing ran");
    assert!(
        refused.stderr().contains("tenure clean"),
        "what mends it is said: {}",
        refused.said()
    );
    use_lock(&machine, ROOT, &locks, "r");
    let _ = clean(&machine, ROOT, &locks).expect(0, "which is so");
    use_lock(&machine, ADA, &locks, "new");
}

// --- Whose configuration is obeyed -------------------------------------------------------------

const RUN: [&str; 5] = ["run", "x", "--", "echo", "ran"];

/// A refusal that names the file, whose it is and what would be consent, and no work.
fn refused(said: Answer, file: &Path, owner: User, flag: &str) {
    let said = said.expect(7, "a stranger's word");
    assert_eq!(said.stdout(), "", "nothing ran");
    let message = said.stderr();
    for part in [text(file), &owner.number.to_string(), flag] {
        assert!(message.contains(part), "`{part}` is said: {message}");
    }
    assert_eq!(message.lines().count(), 1, "one sentence: {message}");
}

#[test]
fn a_strangers_configuration_is_refused_wherever_it_is_found() {
    let Some(machine) = Machine::new() else {
        return;
    };
    // As in the folder for temporary files.
    let shared = machine.folder("shared", ROOT, 0o1777);
    let deep = machine.folder("shared/deep", ROOT, 0o755);
    let bait = machine.file("shared/tenure.toml", BOB, "dir = \"bait\"\n");
    for user in [ROOT, ADA] {
        for from in [&shared, &deep] {
            refused(machine.run(user, from, &RUN), &bait, BOB, "--config FILE");
            for words in [&["check", "x"][..], &["list"], &["profiles"], &["audit"]] {
                let said = machine.run(user, from, words);
                refused(said, &bait, BOB, "--config FILE");
            }
        }
        let said = machine.run(user, &shared, &["check", "x", "--output", "json"]);
        assert_eq!(said.json()["error"]["code"], "UNSAFE_PLACE");
    }
    assert!(!shared.join("bait").exists(), "nothing was made there");
    let _ = machine.run(BOB, &shared, &RUN).expect(0, "it is his own");
    fs::remove_dir_all(shared.join("bait")).unwrap();

    // What is named is consent: the file, or the place.
    let words = ["run", "x", "--config", text(&bait), "--", "echo", "ran"];
    let _ = machine.run(ROOT, &shared, &words).expect(0, "named");
    assert!(shared.join("bait/x.tenure").exists(), "and obeyed");
    let mut told = machine.call(ROOT, &shared, &["run", "y", "--", "true"]);
    let _ = answer(told.env("TENURE_CONFIG", &bait)).expect(0, "named by a variable");
    assert!(shared.join("bait/y.tenure").exists(), "and obeyed");
    let own = machine.path("own");
    let words = ["run", "x", "--dir", text(&own), "--", "echo", "ran"];
    let _ = machine
        .run(ROOT, &shared, &words)
        .expect(0, "the place is named");

    // Root's own file further down hides it, and root's file is good for every user.
    machine.file(
        "shared/deep/tenure.toml",
        ROOT,
        "[lock.\"*\"]\nwait = \"0\"\n",
    );
    let _ = machine.run(ADA, &deep, &RUN).expect(0, "root's file");
}

#[test]
fn a_file_that_all_may_write_and_a_strangers_link_are_as_bad() {
    let Some(machine) = Machine::new() else {
        return;
    };
    let here = machine.folder("here", ADA, 0o755);
    let file = machine.file("here/tenure.toml", ADA, "dir = \"locks\"\n");
    mode(&file, 0o666);
    let said = machine.run(ADA, &here, &RUN).expect(7, "any user's words");
    assert!(
        said.stderr().contains("written by everybody"),
        "{}",
        said.said()
    );
    mode(&file, 0o664);
    let _ = machine
        .run(ADA, &here, &RUN)
        .expect(0, "her group's at most");

    // What a link leads to is Ada's, and whose folder its paths begin at is Bob's to say.
    let bait = machine.folder("bait", BOB, 0o755);
    let link = bait.join("tenure.toml");
    std::os::unix::fs::symlink(&file, &link).unwrap();
    std::os::unix::fs::lchown(&link, Some(BOB.number), None).unwrap();
    refused(machine.run(ADA, &bait, &RUN), &link, BOB, "--config FILE");
    std::os::unix::fs::lchown(&link, Some(ADA.number), None).unwrap();
    let said = machine
        .run(ADA, &bait, &["check", "x"])
        .expect(0, "her own link");
    assert_eq!(said.stdout(), "x is free\n");
    // A pipe or a folder of that name is no configuration, whichever user made it.
    fs::remove_file(&link).unwrap();
    rustix::fs::mkfifoat(
        rustix::fs::CWD,
        &link,
        rustix::fs::Mode::from_raw_mode(0o666),
    )
    .unwrap();
    std::os::unix::fs::lchown(&link, Some(BOB.number), None).unwrap();
    let _ = machine.run(ADA, &bait, &RUN).expect(0, "a pipe");
}

#[test]
fn root_by_sudo_reads_the_callers_file_and_makes_nothing_in_the_callers_folders() {
    let Some(machine) = Machine::new() else {
        return;
    };
    let project = machine.folder("project", ADA, 0o755);
    let file = machine.file("project/tenure.toml", ADA, "[lock.x]\nwait = \"0\"\n");
    refused(
        machine.run(ROOT, &project, &RUN),
        &file,
        ADA,
        "--config FILE",
    );
    let by_sudo = |words: &[&str]| {
        let mut command = machine.call(ROOT, &project, words);
        command.env("SUDO_UID", ADA.number.to_string());
        command
    };
    let _ = answer(&mut by_sudo(&RUN)).expect(0, "the file of the user who asked");
    let mut bob = machine.call(BOB, &project, &RUN);
    bob.env("SUDO_UID", ADA.number.to_string());
    refused(answer(&mut bob), &file, ADA, "--config FILE");

    // Variables would decide what root runs.
    let variables = "[lock.x]\nenv = { LEVEL = \"3\" }\n";
    let file = machine.file("project/tenure.toml", ADA, variables);
    let said = answer(&mut by_sudo(&RUN)).expect(7, "it sets variables");
    let (said, file) = (said.stderr(), text(&file));
    assert!(said.contains(file) && said.contains("(env)"), "{said}");
    let named = [
        "run",
        "x",
        "--config",
        file,
        "--",
        "sh",
        "-c",
        "echo $LEVEL",
    ];
    let named = answer(&mut by_sudo(&named)).expect(0, "a file that is named");
    assert_eq!(named.stdout(), "3\n");
    // A folder that root would make there could not be used by Ada.
    machine.file("project/tenure.toml", ADA, "dir = \"locks\"\n");
    let said = answer(&mut by_sudo(&RUN));
    refused(said, &project, ADA, "--dir");
    let locks = project.join("locks");
    assert!(!locks.exists(), "nothing was made");
    let _ = machine.run(ADA, &project, &RUN).expect(0, "her own");
    let said = answer(&mut by_sudo(&RUN));
    refused(said, &locks, ADA, "--dir");
    let words = ["run", "x", "--dir", text(&locks), "--", "true"];
    let _ = answer(&mut by_sudo(&words)).expect(0, "named");
}

#[test]
fn with_the_home_of_another_user_root_uses_no_lock_folder_there() {
    let Some(machine) = Machine::new() else {
        return;
    };
    let _ = machine
        .run(ADA, Path::new("/"), &["check", "x"])
        .expect(0, "her home");
    let home = machine.path(&format!("home/{}", ADA.number));
    let as_root = || {
        let mut command = machine.call(ROOT, Path::new("/"), &RUN);
        command.env("HOME", &home);
        answer(&mut command)
    };
    refused(as_root(), &home, ADA, "--dir");
    assert!(!home.join(".local").exists(), "nothing was made");
    let _ = machine.run(ADA, Path::new("/"), &RUN).expect(0, "her own");
    let locks = home.join(".local/state/tenure/locks");
    refused(as_root(), &locks, ADA, "--dir");
    let made = fs::metadata(locks.join("x.tenure")).unwrap().uid();
    assert_eq!(made, ADA.number, "and she goes on");
    let _ = machine.run(ADA, Path::new("/"), &RUN).expect(0, "her own");
}

#[test]
fn a_lock_folder_of_another_user_is_used_if_it_is_made_for_several() {
    let Some(machine) = Machine::new() else {
        return;
    };
    let here = machine.folder("here", ADA, 0o755);
    let theirs = machine.folder("theirs", BOB, 0o777);
    chown(&theirs, None, Some(TEAM)).unwrap();
    machine.file(
        "here/tenure.toml",
        ADA,
        &format!("dir = {:?}\n", text(&theirs)),
    );
    for (bits, code) in [
        (0o755, 7),
        (0o775, 7),
        (0o777, 7),
        (0o2770, 0),
        (0o1777, 0),
        (0o3770, 0),
    ] {
        mode(&theirs, bits);
        let said = machine.run(ADA, &here, &RUN);
        let said = said.expect(code, &format!("a folder of mode {bits:o}"));
        if code == 0 {
            fs::remove_file(theirs.join("x.tenure")).unwrap();
        } else {
            assert_eq!(said.stdout(), "", "nothing ran");
            assert!(!theirs.join("x.tenure").exists(), "nothing was made");
        }
    }
    // A link to a folder is the word of the user who made it.
    mode(&theirs, 0o755);
    let own = machine.folder("own", ADA, 0o700);
    let link = machine.path("link");
    std::os::unix::fs::symlink(&own, &link).unwrap();
    std::os::unix::fs::lchown(&link, Some(BOB.number), None).unwrap();
    machine.file(
        "here/tenure.toml",
        ADA,
        &format!("dir = {:?}\n", text(&link)),
    );
    refused(machine.run(ADA, &here, &RUN), &link, BOB, "--dir");
    std::os::unix::fs::lchown(&link, Some(ADA.number), None).unwrap();
    let _ = machine.run(ADA, &here, &RUN).expect(0, "her own link");
}

#[test]
fn an_audit_goes_to_no_folder_that_another_user_has_prepared() {
    let Some(machine) = Machine::new() else {
        return;
    };
    let here = machine.folder("here", ADA, 0o755);
    let theirs = machine.folder("theirs", BOB, 0o755);
    machine.file(
        "here/tenure.toml",
        ADA,
        &format!("dir = \"locks\"\naudit_dir = {:?}\n", text(&theirs)),
    );
    let taken = ["acquire", "x", "--owner", "none"];
    let by_sudo = |words: &[&str]| {
        let mut command = machine.call(ROOT, &here, words);
        command.env("SUDO_UID", ADA.number.to_string());
        answer(&mut command)
    };
    let locks = machine.folder("here/locks", ROOT, 0o700);
    let said = by_sudo(&taken).expect(0, "an audit stops nothing");
    assert!(said.stderr().contains("--audit-dir"), "{}", said.said());
    let _ = by_sudo(&["audit"]).expect(7, "nor is it read");
    assert_eq!(
        fs::read_dir(&theirs).unwrap().count(),
        0,
        "nothing was made"
    );
    let _ = by_sudo(&["audit", "--audit-dir", text(&theirs)]).expect(0, "named");
    assert!(locks.join("x.tenure").exists());
}
