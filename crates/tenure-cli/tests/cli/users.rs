//! Several users of one machine: whose configuration and whose folders a call believes, and that
//! nothing which one user leaves behind locks another one out.
//!
//! Only root can be several users. As any other user these tests say so and end; with `TENURE_USERS=required`
//! they fail.

#![allow(
    clippy::disallowed_methods,
    reason = "what was planted by the test is removed by it, behind the store's back"
)]

use crate::support::{
    Answer, Gate, Held, Scene, Started, TENURE, answer, eventually, is_root, timed,
};
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// A user of the test's own; the system need not know the name.
#[derive(Clone, Copy)]
struct User {
    number: u32,
}

const ROOT: User = User { number: 0 };
const ADA: User = User { number: 64_001 };
const BOB: User = User { number: 64_002 };

/// A user who belongs to no group of the others.
const EVE: User = User { number: 64_003 };

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
            let is_required = std::env::var_os("TENURE_USERS").is_some_and(|it| it == "required");
            assert!(!is_required, "only root can be several users");
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
            .arg(if user.number == EVE.number {
                number.clone()
            } else {
                format!("{number},{TEAM}")
            })
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

impl Machine {
    /// A folder of root's for the group, as an administrator makes it.
    fn team_folder(&self, name: &str, bits: u32) -> PathBuf {
        let path = self.folder(name, ROOT, 0o700);
        chown(&path, None, Some(TEAM)).unwrap();
        mode(&path, bits);
        path
    }

    /// A `tenure run` of a user's in a folder of locks, whose command lasts until the test lets it end. It
    /// begins with a line of shell.
    fn hold(&self, user: User, locks: &Path, name: &str, umask: &str) -> Held {
        self.hold_by(user, locks, name, umask, &[], &[])
    }

    /// Starts such a run with more flags, and with words before `tenure`.
    fn hold_by(
        &self,
        user: User,
        locks: &Path,
        name: &str,
        umask: &str,
        flags: &[&str],
        before: &[&str],
    ) -> Held {
        let gate = Gate::new(&self.scene, name);
        // The gate's files are made by the holder.
        mode(self.scene.root(), 0o777);
        let script = gate.script("umask 022");
        let line = format!("umask {umask}; exec \"$@\"");
        let tenure = self.path("tenure");
        let number = user.number.to_string();
        let mut command = self.scene.program("setpriv");
        command
            .args(["--reuid", &number, "--regid", &number, "--groups"])
            .arg(format!("{number},{TEAM}"))
            .args(["sh", "-c", &line, "sh"])
            .args(before)
            .arg(tenure)
            .args(["run", name, "--grace", "1s", "--dir", text(locks)])
            .args(flags)
            .args(["--", "sh", "-c", &script])
            .current_dir("/");
        let started = Started::piped(&mut command);
        Held {
            started,
            command: gate.entered(),
            gate,
        }
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
            assert_eq!((floor.gid(), floor.mode() & 0o777), (TEAM, 0o660));
        }
    }
}

/// The sticky bit leaves files to the user who made them. Their claims are swept all the same, and nothing has failed.
#[test]
fn where_only_owners_remove_files_a_clean_leaves_those_of_others() {
    let Some(machine) = Machine::new() else {
        return;
    };
    let locks = machine.team_folder("locks", 0o3770);
    let stands = |name: &str| locks.join(format!("{name}.tenure")).exists();
    use_lock(&machine, BOB, &locks, "his");
    let said = clean(&machine, ADA, &locks).expect(0, "his alone: nothing to do");
    assert!(stands("his"), "{}", said.said());
    use_lock(&machine, ADA, &locks, "hers");
    let said = clean(&machine, ADA, &locks).expect(0, "both");
    assert!(stands("his") && !stands("hers"), "{}", said.said());

    let held = machine.hold(BOB, &locks, "dead", "022");
    held.started.kill_with_children();
    eventually("the claim of his dead run is swept", || {
        let said = clean(&machine, ADA, &locks).expect(0, "his dead run");
        said.stdout().contains("1 stale claim")
    });
    assert!(stands("dead"), "its file stays");
    let check = ["check", "dead", "--dir", text(&locks)];
    machine.run(ADA, Path::new("/"), &check).expect(0, "free");

    let _ = clean(&machine, BOB, &locks).expect(0, "his own");
    assert!(!stands("his") && !stands("dead"));
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
    let warned = machine.run(ADA, Path::new("/"), &words);
    let warned = warned.expect(0, "a floor keeps no user out");
    assert_eq!(warned.stdout(), "ran\n");
    assert!(
        warned.stderr().contains(" clean`") && warned.stderr().contains("of root"),
        "whose it is and what mends it is said: {}",
        warned.said()
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
    let shared = machine.folder("shared", ROOT, 0o777);
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

/// A call that names its place is stopped by no file that another user has put on its way up, and reads nothing
/// of it.
#[test]
fn a_strangers_configuration_does_not_count_where_the_call_names_its_place() {
    let Some(machine) = Machine::new() else {
        return;
    };
    let shared = machine.folder("shared", ROOT, 0o777);
    let deep = machine.folder("shared/deep", ADA, 0o755);
    let bait = "profile = \"resume\"\n[lock.\"*\"]\nenv = { LEVEL = \"bait\" }\n";
    let bait = machine.file("shared/tenure.toml", BOB, bait);
    let locks = machine.folder("locks", ADA, 0o700);
    let tell = [
        "run",
        "x",
        "--dir",
        text(&locks),
        "-v",
        "--",
        "sh",
        "-c",
        "echo ${LEVEL-none}",
    ];
    for (bits, why) in [
        (0o644, "belongs to user 64002"),
        (0o600, "ermission denied"),
    ] {
        mode(&bait, bits);
        for from in [&shared, &deep] {
            let said = machine.run(ADA, from, &tell).expect(0, why);
            assert_eq!(said.stdout(), "none\n", "{}", said.said());
            let part = format!("(--dir); not read: {}", text(&bait));
            assert!(said.stderr().contains(&part), "{part}: {}", said.said());
            assert!(said.stderr().contains(why), "{why}: {}", said.said());
            let quiet: Vec<&str> = tell.iter().copied().filter(|word| *word != "-v").collect();
            let said = machine.run(ADA, from, &quiet).expect(0, why);
            assert_eq!(said.stderr(), "", "{why}");
        }
    }
    let mut told = machine.call(ADA, &shared, &["check", "x"]);
    let _ = answer(told.env("TENURE_DIR", &locks)).expect(0, "a variable");
    // Her own file behind it is hidden by nothing: it is not on that way.
    let config = machine.folder(&format!("home/{}/.config/tenure", ADA.number), ADA, 0o755);
    let own = format!("home/{}/.config/tenure/tenure.toml", ADA.number);
    machine.file(&own, ADA, "[lock.\"*\"]\nenv = { LEVEL = \"own\" }\n");
    let said = machine.run(ADA, &shared, &tell).expect(0, "her own file");
    assert_eq!(said.stdout(), "own\n", "{}", said.said());
    // With another user's home, too. A call in the run finds what the run found.
    chown(config.join("tenure.toml"), Some(BOB.number), None).unwrap();
    let near = machine.file(
        "shared/deep/tenure.toml",
        ADA,
        "[lock.x]\nenv = { LEVEL = \"near\" }\n",
    );
    let inner = format!(
        "{} run x -- sh -c 'echo $LEVEL'",
        text(&machine.path("tenure"))
    );
    let words = ["run", "y", "--dir", text(&locks), "--", "sh", "-c", &inner];
    let said = machine.run(ADA, &deep, &words).expect(0, "nested");
    assert_eq!(said.stdout(), "near\n", "{}", said.said());
    // A file that sets variables, of the user who became root by sudo.
    let mut by_sudo = machine.call(ROOT, &deep, &tell);
    let said = answer(by_sudo.env("SUDO_UID", ADA.number.to_string())).expect(0, "root");
    assert_eq!(said.stdout(), "none\n", "{}", said.said());
    assert!(said.stderr().contains("(env)"), "{}", said.said());
    // Nor any other file of that user: a rule of sudo may be for one place alone.
    fs::write(&near, "[lock.\"*\"]\nmax_runtime = \"1s\"\n").unwrap();
    let said = answer(by_sudo.env("SUDO_UID", ADA.number.to_string())).expect(0, "root");
    assert!(
        said.stderr().contains("became root by sudo"),
        "{}",
        said.said()
    );
    // What is the caller's own and not understood ends the call.
    fs::write(near, "slot = 2\n").unwrap();
    let _ = machine.run(ADA, &deep, &tell).expect(2, "her own mistake");
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
    let said = said.stdout();
    assert!(said.starts_with("x is free"), "{said}");
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

/// Only for a user other than root the system counts processes and threads.
#[test]
fn a_hook_that_can_start_no_thread_obeys_the_rules_all_the_same() {
    let Some(machine) = Machine::new() else {
        return;
    };
    let here = machine.folder("agents", ADA, 0o755);
    let _ = machine.file(
        "agents/tenure.toml",
        ADA,
        "[[agent.command]]\nmatch = [\"make\"]\nlock = \"b\"\non_error = \"closed\"\n",
    );
    let (number, tenure) = (ADA.number.to_string(), machine.path("tenure"));
    let ask = |text: &str| {
        let event = serde_json::json!({
            "session_id": "s", "cwd": here, "hook_event_name": "PreToolUse", "tool_name": "Bash",
            "tool_use_id": "t", "tool_input": { "command": text },
        });
        machine.scene.write("event", &event.to_string());
        let mut hook = machine.scene.program("setpriv");
        hook.args(["--reuid", &number, "--regid", &number, "--clear-groups"])
            .args(["prlimit", "--nproc=1"])
            .arg(&tenure)
            .args(["hook", "claude"])
            .env_remove("TENURE_DIR")
            .env("HOME", machine.folder("home/ada", ADA, 0o700))
            .stdin(fs::File::open(machine.path("event")).unwrap())
            .current_dir(&here);
        answer(&mut hook).expect(0, text).stdout()
    };
    let refused = ask("for i in 1 2; do make; done");
    assert!(refused.contains("\"deny\""), "{refused}");
    let prefixed = ask("make all");
    assert!(prefixed.contains("run b --as claude/s"), "{prefixed}");
    assert_eq!(ask("ls"), "");
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
    // Lines for a shell would decide it too.
    for key in ["rollback", "on_supersede", "on_superseded"] {
        let line = format!("[lock.x]\n{key} = \"touch ran\"\n");
        machine.file("project/tenure.toml", ADA, &line);
        let said = answer(&mut by_sudo(&["run", "x", "--", "false"])).expect(7, key);
        assert!(said.stderr().contains(key), "{}", said.said());
        assert!(!project.join("ran").exists(), "{key}");
    }
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

/// Root's own folder is another one than that of the user who called sudo.
#[test]
fn who_calls_by_sudo_beside_an_own_hold_is_warned() {
    let Some(machine) = Machine::new() else {
        return;
    };
    let home = machine.folder("ada", ADA, 0o755);
    let here = machine.folder("here", ROOT, 0o755);
    let of_ada = |words: &[&str]| {
        let mut command = machine.call(ADA, &here, words);
        command.env("HOME", &home).env_remove("XDG_STATE_HOME");
        answer(&mut command)
    };
    let by_sudo = |words: &[&str]| {
        let mut command = machine.call(ROOT, &here, words);
        command
            .env("SUDO_UID", ADA.number.to_string())
            .env("SUDO_USER", "ada")
            .env("SUDO_HOME", &home);
        answer(&mut command)
    };
    let _ = of_ada(&["acquire", "x", "--owner", "none", "--request-id", "r"]).expect(0, "taken");
    for words in [
        &["run", "x", "--", "true"][..],
        &["check", "x"],
        &["run", "--exec", "x", "--", "true"],
    ] {
        let said = by_sudo(words).expect(0, "root has locks of its own");
        let warning = "for ada, who called sudo";
        assert!(
            said.stderr().contains(warning),
            "{words:?}: {}",
            said.said()
        );
    }
    for words in [
        &["run", "y", "--", "true"][..],
        &["--dir", "elsewhere", "run", "x", "--", "true"],
    ] {
        let said = by_sudo(words).expect(0, "another lock");
        assert_eq!(said.stderr(), "", "{words:?}");
    }
    let _ = of_ada(&["release", "x", "--request-id", "r"]).expect(0, "given back");
    let said = by_sudo(&["run", "x", "--", "true"]).expect(0, "free");
    assert_eq!(said.stderr(), "", "nobody has it");
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

// --- A folder that a group shares --------------------------------------------------------------

/// A line of shell as a user, with `tenure` as `$T` and the folder as `$D`.
fn user_command(machine: &Machine, user: User, locks: &Path, line: &str) -> Command {
    let number = user.number.to_string();
    let groups = if user.number == EVE.number {
        number.clone()
    } else {
        format!("{number},{TEAM}")
    };
    let mut command = machine.scene.program("setpriv");
    command
        .args(["--reuid", &number, "--regid", &number, "--groups", &groups])
        .args(["sh", "-c", line])
        .env("T", machine.path("tenure"))
        .env("D", locks)
        .env("TENURE_DIR", locks)
        .current_dir("/");
    command
}

/// Runs one and answers with what it printed.
fn as_user(machine: &Machine, user: User, locks: &Path, line: &str) -> Answer {
    answer(&mut user_command(machine, user, locks, line))
}

/// A member sees the signs of another member's agent, so silence means the same to both.
#[test]
fn an_agent_of_another_user_holds_until_it_is_silent() {
    let Some(machine) = Machine::new() else {
        return;
    };
    let locks = machine.team_folder("agents", 0o3770);
    let by = |user, line: &str| as_user(&machine, user, &locks, line);
    // The host is an init of the test's: it lives.
    let owner = std::process::id();
    let line = format!("$T acquire x --as claude/1/a --ttl 2s --owner {owner}");
    let _ = by(ADA, &line).expect(0, "acquired");
    let seen = by(BOB, "$T check x").expect(4, "held");
    assert!(seen.said().contains("agent claude/1/a"), "{}", seen.said());
    let _ = by(BOB, "$T release x --as claude/1/b").expect(6, "another agent's");
    let taken = by(BOB, "$T acquire x --as claude/2/a --owner none -w 20s");
    let _ = taken.expect(0, "it was silent for longer than its ttl");
    let signs = fs::read_dir(&locks).unwrap().filter_map(|file| {
        let file = file.unwrap();
        let is_sign = file.file_name().to_string_lossy().starts_with(".agent-");
        is_sign.then(|| file.metadata().unwrap())
    });
    let rights: Vec<_> = signs
        .map(|facts| (facts.mode() & 0o777, facts.gid()))
        .collect();
    assert_eq!(rights, [(0o660, TEAM), (0o660, TEAM)]);
}

#[test]
fn the_members_of_a_folders_group_take_turns_and_no_other_user_is_let_in() {
    let Some(machine) = Machine::new() else {
        return;
    };
    for bits in [0o3770, 0o2770] {
        let locks = machine.team_folder(&format!("team-{bits:o}"), bits);
        let in_team = |user, words: &[&str]| {
            let words = [words, &["--dir", text(&locks)]].concat();
            machine.run(user, Path::new("/"), &words)
        };
        for umask in ["077", "000", "777"] {
            let name = format!("x{umask}");
            let held = machine.hold(ADA, &locks, &name, umask);
            let file = fs::metadata(locks.join(format!("{name}.tenure"))).unwrap();
            assert_eq!(
                (file.mode() & 0o777, file.gid()),
                (0o660, TEAM),
                "umask {umask}"
            );
            let said = in_team(BOB, &["check", &name]).expect(4, "held");
            assert!(said.said().contains("is held by"), "{}", said.said());
            for verb in [
                &["run", "-n", &name, "--", "true"][..],
                &["acquire", &name, "-n"],
            ] {
                let verb: Vec<&str> = match verb.iter().position(|word| *word == "--") {
                    Some(at) => {
                        let (flags, command) = verb.split_at(at);
                        [flags, &["--dir", text(&locks)], command].concat()
                    }
                    None => [verb, &["--dir", text(&locks)]].concat(),
                };
                let _ = machine.run(BOB, Path::new("/"), &verb).expect(4, "held");
            }
            let _ = in_team(EVE, &["check", &name]).expect(7, "no member");
            let _ = in_team(EVE, &["acquire", &name]).expect(7, "no member");
            let next = [
                "run",
                &name,
                "--dir",
                text(&locks),
                "--",
                "sh",
                "-c",
                "echo $TENURE_TOKEN",
            ];
            let waiter = Started::piped(&mut machine.call(BOB, Path::new("/"), &next));
            eventually("bob waits", || {
                in_team(ADA, &["check", &name])
                    .said()
                    .contains("waiting for")
            });
            let _ = held.open().expect(0, "ada's work");
            let bobs: u64 = waiter
                .finish()
                .expect(0, "bob's turn")
                .stdout()
                .trim()
                .parse()
                .unwrap();
            assert!(use_lock(&machine, ADA, &locks, &name) > bobs, "tokens rise");
        }
        // Ada's supervisor and command die: Bob takes over. Her own hold is given back by her alone.
        let held = machine.hold(ADA, &locks, "killed", "022");
        held.started.kill_with_children();
        let words = ["run", "killed", "--dir", text(&locks), "--", "echo", "ran"];
        let said = machine
            .run(BOB, Path::new("/"), &words)
            .expect(0, "hers was left behind");
        assert_eq!(said.stdout(), "ran\n", "{}", said.said());
        let _ = in_team(
            ADA,
            &["acquire", "kept", "--owner", "none", "--request-id", "hers"],
        )
        .expect(0, "hers");
        let _ = in_team(BOB, &["release", "kept"]).expect(6, "not his");
        let _ = in_team(BOB, &["release", "kept", "--request-id", "hers"])
            .expect(0, "who knows the id may");
        // Who may be asked to stop, may be asked by any member.
        let held = machine.hold(ADA, &locks, "asked", "022");
        let _ = in_team(BOB, &["cancel", "asked"]).expect(0, "asked");
        let said = held.finish().expect(79, "she stops");
        assert!(
            said.stderr().contains("asks for the lock") || said.stderr().contains("ending"),
            "{}",
            said.said()
        );
    }
}

/// A mount of `/proc` that hides what other users run, for one call.
fn check_where_processes_are_hidden(
    machine: &Machine,
    user: User,
    name: &str,
    locks: &Path,
) -> Answer {
    let number = user.number.to_string();
    let script = "mount -t proc -o hidepid=2 proc /proc && exec \"$@\"";
    let mut command = machine.scene.program("unshare");
    command
        .args([
            "-m", "sh", "-c", script, "sh", "setpriv", "--reuid", &number, "--regid", &number,
            "--groups",
        ])
        .arg(format!("{number},{TEAM}"))
        .arg(machine.path("tenure"))
        .args(["check", name, "--dir", text(locks)])
        .current_dir("/");
    answer(&mut command)
}

/// The kernel says still whether it exists. Its hold is not taken over at its ttl, and is free once it has ended.
#[test]
fn a_process_that_the_kernel_hides_is_alive_while_it_exists() {
    let Some(machine) = Machine::new() else {
        return;
    };
    let mut trial = machine.scene.program("unshare");
    trial.args([
        "-m",
        "mount",
        "-t",
        "proc",
        "-o",
        "hidepid=2",
        "proc",
        "/proc",
    ]);
    if !trial.status().is_ok_and(|status| status.success()) {
        // A container without the right to mount: nothing can be hidden there.
        return;
    }
    let locks = machine.team_folder("locks", 0o3770);
    let mut sleeps = machine.scene.program("setpriv");
    let number = ADA.number.to_string();
    sleeps.args([
        "--reuid",
        &number,
        "--regid",
        &number,
        "--clear-groups",
        "sleep",
        "60",
    ]);
    let mut owner = Started::new(&mut sleeps);
    let pid = owner.pid().to_string();
    let status = PathBuf::from(format!("/proc/{pid}/status"));
    eventually("it is ada's", || {
        fs::read_to_string(&status).is_ok_and(|text| text.contains(&format!("Uid:\t{number}")))
    });
    let words = [
        "acquire",
        "x",
        "--owner",
        &pid,
        "--ttl",
        "1ms",
        "--dir",
        text(&locks),
    ];
    let _ = machine.run(ADA, Path::new("/"), &words).expect(0, "hers");
    let hidden = || check_where_processes_are_hidden(&machine, BOB, "x", &locks);
    let said = hidden()
        .expect(4, "her process exists, though its ttl is over")
        .said();
    assert!(said.contains(&pid), "{said}");
    owner.signal(rustix::process::Signal::KILL);
    owner.end();
    let _ = hidden().expect(0, "it is gone");
}

#[test]
fn a_process_of_another_member_is_seen_to_live_and_to_end() {
    let Some(machine) = Machine::new() else {
        return;
    };
    let locks = machine.team_folder("locks", 0o3770);
    let mut owner = machine.scene.program("setpriv");
    owner.args([
        "--reuid",
        "64001",
        "--regid",
        "64001",
        "--clear-groups",
        "sleep",
        "60",
    ]);
    let owner = Started::new(&mut owner);
    let pid = owner.pid().to_string();
    // The number is that of `setpriv` until it has become `sleep`, of Ada's.
    let status = PathBuf::from(format!("/proc/{pid}/status"));
    eventually("it is ada's", || {
        fs::read_to_string(&status).is_ok_and(|text| text.contains("Uid:\t64001"))
    });
    let words = [
        "acquire",
        "x",
        "--owner",
        &pid,
        "--ttl",
        "1ms",
        "--dir",
        text(&locks),
    ];
    let _ = machine.run(ADA, Path::new("/"), &words).expect(0, "hers");
    let check = ["check", "x", "--dir", text(&locks)];
    let said = machine
        .run(BOB, Path::new("/"), &check)
        .expect(4, "her process lives");
    assert!(said.said().contains(&pid), "{}", said.said());
    let words = ["run", "x", "--dir", text(&locks), "--", "true"];
    let waiter = Started::piped(&mut machine.call(BOB, Path::new("/"), &words));
    eventually("bob waits", || {
        machine
            .run(BOB, Path::new("/"), &check)
            .said()
            .contains("waiting for")
    });
    owner.signal(rustix::process::Signal::KILL);
    let mut owner = owner;
    let _ = owner.end();
    let (said, took) = timed(|| waiter.finish());
    let _ = said.expect(0, "its end is noticed");
    assert!(took < Duration::from_secs(5), "{took:?}");
}

#[test]
fn a_member_who_may_only_look_checks_and_takes_nothing() {
    let Some(machine) = Machine::new() else {
        return;
    };
    let locks = machine.folder("locks", ADA, 0o700);
    chown(&locks, None, Some(TEAM)).unwrap();
    mode(&locks, 0o2750);
    let held = machine.hold(ADA, &locks, "x", "077");
    let file = fs::metadata(locks.join("x.tenure")).unwrap();
    assert_eq!((file.mode() & 0o777, file.gid()), (0o640, TEAM));
    let call = |user, words: &[&str]| machine.run(user, Path::new("/"), words);
    let dir = text(&locks);
    let said = call(BOB, &["check", "x", "--dir", dir]).expect(4, "he sees it");
    assert!(said.said().contains("is held by"), "{}", said.said());
    let _ = call(BOB, &["list", "--dir", dir]).expect(0, "and all of them");
    for name in ["x", "new"] {
        let said = call(BOB, &["run", "-n", name, "--dir", dir, "--", "echo", "ran"]);
        assert_eq!(
            said.expect(7, "he may not write").stdout(),
            "",
            "nothing ran"
        );
    }
    let _ = call(EVE, &["check", "x", "--dir", dir]).expect(7, "no member");
    let _ = held.open().expect(0, "ada's work");
    let _ = call(BOB, &["check", "x", "--dir", dir]).expect(0, "free");
}

/// A member that may open the file of a lock may keep its bytes: other calls take the lock later, and never beside
/// another holder.
#[test]
fn a_member_who_keeps_the_guard_of_a_lock_lets_no_other_caller_in() {
    let Some(machine) = Machine::new() else {
        return;
    };
    for (bits, kept) in [(0o2750, "-s"), (0o3770, "-x"), (0o2770, "-s")] {
        let locks = machine.team_folder(&format!("team-{bits:o}"), bits);
        chown(&locks, Some(ADA.number), None).unwrap();
        mode(&locks, bits);
        use_lock(&machine, ADA, &locks, "x");
        let has = format!("has-{bits:o}");
        machine.folder(&has, BOB, 0o755);
        let line = format!(
            "exec $T flock --fcntl {kept} $D/x.tenure sh -c 'touch $D/../{has}/it; exec sleep 60'"
        );
        let mut member = user_command(&machine, BOB, &locks, &line);
        let member = Started::new(&mut member);
        let it = machine.path(&has).join("it");
        eventually("bob has it", || it.exists());
        let words = ["run", "-n", "x", "--dir", text(&locks), "--", "echo", "ran"];
        let (said, took) = timed(|| machine.run(ADA, Path::new("/"), &words));
        assert!([4, 12].contains(&said.code()), "{bits:o}: {}", said.said());
        assert_eq!(said.stdout(), "", "nothing ran");
        assert!(took < Duration::from_secs(10), "{bits:o}: {took:?}");
        member.kill_with_children();
        use_lock(&machine, ADA, &locks, "x");
    }
}

/// In `2775` all users may see the names, and the files are the group's.
#[test]
fn who_is_no_member_reads_names_and_no_lock() {
    let Some(machine) = Machine::new() else {
        return;
    };
    let locks = machine.team_folder("team", 0o2775);
    let held = machine.hold(ADA, &locks, "x", "022");
    let file = fs::metadata(locks.join("x.tenure")).unwrap();
    assert_eq!((file.mode() & 0o777, file.gid()), (0o660, TEAM));
    let seen = as_user(&machine, EVE, &locks, "ls $D; cat $D/x.tenure");
    assert_eq!(seen.stdout(), "audit\nx.tenure\n", "{}", seen.said());
    assert_ne!(seen.code(), 0, "she may not read it");
    let dir = text(&locks);
    for words in [
        &["check", "x", "--dir", dir][..],
        &["run", "-n", "x", "--dir", dir, "--", "echo", "ran"],
        &["run", "new", "--dir", dir, "--", "echo", "ran"],
        &["acquire", "x", "-n", "--dir", dir],
        &["wait", "x", "-n", "--dir", dir],
        &["cancel", "x", "--dir", dir],
    ] {
        let said = machine.run(EVE, Path::new("/"), words);
        let said = said.expect(7, &format!("{words:?}"));
        assert!(!said.stdout().contains("ran"), "{}", said.said());
    }
    let said = machine.run(EVE, Path::new("/"), &["check", "--dir", dir]);
    let said = said.expect(12, "how they stand cannot be known");
    assert!(said.stdout().contains("unknown"), "{}", said.said());
    let words = ["run", "-n", "x", "--dir", dir, "--", "true"];
    let said = machine.run(BOB, Path::new("/"), &words);
    let _ = said.expect(4, "a member sees it held");
    let _ = held.open().expect(0, "undisturbed");
}

/// An access list as the kernel keeps it, of a user, a group, the mask and entries for users.
fn access_list(path: &Path, name: &str, group: u16, users: &[(User, u16)]) {
    const UNNAMED: u32 = u32::MAX;
    let mut list = 2_u32.to_le_bytes().to_vec();
    let mut entry = |tag: u16, rights: u16, whose: u32| {
        list.extend(tag.to_le_bytes());
        list.extend(rights.to_le_bytes());
        list.extend(whose.to_le_bytes());
    };
    entry(0x01, 7, UNNAMED);
    for (user, rights) in users {
        entry(0x02, *rights, user.number);
    }
    entry(0x04, group, UNNAMED);
    entry(0x10, 7, UNNAMED);
    entry(0x20, 0, UNNAMED);
    let flags = rustix::fs::XattrFlags::empty();
    rustix::fs::setxattr(path, name, &list, flags).expect("a file system with access lists");
}

const OF_THE_FOLDER: &str = "system.posix_acl_access";
const OF_WHAT_IS_MADE_IN_IT: &str = "system.posix_acl_default";

/// Where there is an access list, the group's bits of the mode are its mask. They say more than the group has.
#[test]
fn where_an_access_list_gives_the_group_less_the_kernel_refuses_its_calls() {
    let Some(machine) = Machine::new() else {
        return;
    };
    let locks = machine.team_folder("less", 0o3770);
    use_lock(&machine, ADA, &locks, "x");
    access_list(&locks, OF_THE_FOLDER, 5, &[(ADA, 7)]);
    let bits = fs::metadata(&locks).unwrap().mode() & 0o7777;
    assert_eq!(bits, 0o3770, "the mode says nothing of it");
    let words = ["run", "new", "--dir", text(&locks), "--", "echo", "ran"];
    let said = machine.run(BOB, Path::new("/"), &words);
    assert_eq!(said.expect(7, "no right to write").stdout(), "");
    use_lock(&machine, ADA, &locks, "new");
    use_lock(&machine, BOB, &locks, "new");
}

/// What is made in the folder has its default list, and the mode that tenure sets is the mask of that list.
#[test]
fn a_default_access_list_lets_in_whom_it_names() {
    let Some(machine) = Machine::new() else {
        return;
    };
    for bits in [0o3770, 0o770, 0o700] {
        lets_in_whom_it_names(&machine, bits);
    }
}

/// The folder is made with this mode. The setgid bit says that its group is meant; without it, the list says who is.
fn lets_in_whom_it_names(machine: &Machine, bits: u32) {
    let locks = machine.team_folder(&format!("more-{bits:o}"), bits);
    for name in [OF_THE_FOLDER, OF_WHAT_IS_MADE_IN_IT] {
        access_list(&locks, name, 7, &[(EVE, 7)]);
    }
    let mut last = 0;
    // What is made without the bit belongs to the group of its maker.
    let is_of_the_team = bits & 0o2000 != 0;
    let others = if is_of_the_team {
        [BOB, EVE]
    } else {
        [EVE, EVE]
    };
    for user in [ADA, others[1], others[0], others[1], ADA] {
        let token = use_lock(machine, user, &locks, "x");
        assert!(token > last, "tokens rise: {last}, {token}");
        last = token;
    }
    let held = machine.hold(ADA, &locks, "x", "077");
    let words = ["run", "-n", "x", "--dir", text(&locks), "--", "true"];
    for user in others {
        let said = machine.run(user, Path::new("/"), &words);
        let _ = said.expect(4, "the holder is seen");
    }
    let _ = held.open().expect(0, "undisturbed");
}

/// What a member can put there before others come. Nothing of it is followed, waited for or believed.
#[test]
fn what_a_member_has_prepared_in_a_shared_folder_is_refused() {
    let Some(machine) = Machine::new() else {
        return;
    };
    for bits in [0o3770, 0o2770, 0o1777] {
        let locks = machine.team_folder(&format!("team-{bits:o}"), bits);
        let plant = "
            cd $D; umask 0
            : >target; ln -s target link.tenure; mkfifo fifo.tenure; mkdir folder.tenure
            : >own.tenure; chmod 600 own.tenure; mkfifo -m 600 shut.tenure
            : >one.tenure; ln one.tenure two.tenure
            : >secret; chmod 600 secret
        ";
        let _ = as_user(&machine, BOB, &locks, plant).expect(0, "planted");
        for name in ["link", "fifo", "folder", "own", "shut", "one", "two"] {
            for words in [
                &[
                    "run",
                    "-w",
                    "1s",
                    name,
                    "--dir",
                    text(&locks),
                    "--",
                    "echo",
                    "ran",
                ][..],
                &["acquire", name, "--dir", text(&locks)],
                &["check", name, "--dir", text(&locks)],
            ] {
                let (said, took) = timed(|| machine.run(ADA, Path::new("/"), words));
                let said = said.expect(7, &format!("{name} in {bits:o}"));
                assert_eq!(said.stdout(), "", "{words:?}");
                assert!(said.stderr().contains(name), "{}", said.said());
                let is_pipe = said.stderr().contains("not a regular file");
                assert!(is_pipe || name != "shut", "{}", said.said());
                assert!(took < Duration::from_secs(10), "{name} took {took:?}");
            }
        }
        let target = fs::metadata(locks.join("target")).unwrap();
        assert_eq!(target.len(), 0, "nothing was written through the link");
    }
}

/// A second name in another folder, which no sticky bit of this one prevents. The holder works on, no other caller gets
/// in, and the file's owner mends it.
#[test]
fn a_second_name_for_the_file_of_a_lock_keeps_callers_out_and_ends_no_work() {
    let Some(machine) = Machine::new() else {
        return;
    };
    let locks = machine.team_folder("locks", 0o3770);
    let elsewhere = machine.folder("elsewhere", BOB, 0o755);
    let held = supervised(&machine, &locks, &[], &[]);
    let link = format!("ln $D/x.tenure {}/it", text(&elsewhere));
    let _ = as_user(&machine, BOB, &locks, &link).expect(0, "the kernel lets a member");
    let words = ["run", "-n", "x", "--dir", text(&locks), "--", "echo", "ran"];
    let refused = || {
        let said = machine.run(BOB, Path::new("/"), &words);
        let said = said.expect(7, "it has two names");
        assert!(said.stderr().contains("hard link"), "{}", said.said());
        assert_eq!(said.stdout(), "", "nothing ran");
    };
    refused();
    let _ = held.open().expect(0, "the work of its holder");
    refused();
    let _ = as_user(&machine, ADA, &locks, "rm $D/x.tenure").expect(0, "it is hers");
    let said = machine.run(BOB, Path::new("/"), &words);
    assert_eq!(said.expect(0, "a new file").stdout(), "ran\n");
}

/// Folders of the protocol that were there before, in the ways that would let others in.
#[test]
fn a_folder_that_a_member_has_prepared_in_a_shared_one_is_refused() {
    let Some(machine) = Machine::new() else {
        return;
    };
    for bits in [0o3770, 0o2770, 0o1777] {
        let locks = machine.team_folder(&format!("team-{bits:o}"), bits);
        let good = "mkdir -m 3770 locks;";
        for (make, why, is_for_all) in [
            (
                &*format!("{good} mkdir -m 777 locks/.tenure"),
                "everybody may write",
                true,
            ),
            (
                &format!("{good} mkdir e; ln -s ../e locks/.tenure"),
                "link",
                true,
            ),
            (
                &format!("{good} : >locks/.tenure"),
                "link or no folder",
                true,
            ),
            (
                &format!("{good} mkdir -m 700 locks/.tenure"),
                "ermission denied",
                true,
            ),
            (
                &format!("{good} mkdir -m 2770 locks/.tenure"),
                "lacks the sticky bit",
                true,
            ),
            ("mkdir -m 2777 locks", "everybody may write", true),
            ("mkdir -m 2770 locks", "lacks the sticky bit", false),
            (
                "mkdir -m 3770 e; ln -s e locks",
                "the link belongs to",
                false,
            ),
            ("mkdir -m 3777 locks", "another user", false),
        ] {
            if !is_for_all && (bits == 0o2770 || make.contains("3777") != (bits == 0o1777)) {
                continue;
            }
            let line = format!("cd $D; umask 0; {make}");
            let _ = as_user(&machine, BOB, &locks, &line).expect(0, make);
            let dir = text(&locks);
            let words = [
                "--profile",
                "session",
                "run",
                "42",
                "--dir",
                dir,
                "--",
                "echo",
                "ran",
            ];
            let said = machine.run(ADA, Path::new("/"), &words);
            let said = said.expect(7, &format!("{make} in {bits:o}"));
            // In a folder of all users, nothing of Bob's is good enough to look inside.
            assert!(
                said.said().contains(why) || bits == 0o1777,
                "{bits:o} {make}: {}",
                said.said()
            );
            assert!(
                !said.stdout().contains("ran"),
                "nothing ran: {}",
                said.said()
            );
            let _ = as_user(&machine, BOB, &locks, "cd $D; rm -rf e locks").expect(0, "removed");
        }
    }
}

/// A holder of Ada's whose supervisor watches over its lock.
fn supervised(machine: &Machine, locks: &Path, flags: &[&str], before: &[&str]) -> Held {
    // A name in every format.
    let name = if flags.contains(&"session") {
        "42"
    } else {
        "x"
    };
    let held = machine.hold_by(ADA, locks, name, "022", flags, before);
    // By then the supervisor looks: it does so once the work has lasted 20 ms.
    std::thread::sleep(Duration::from_millis(300));
    held
}

/// Where the mode of the folder lets a member do it, the holder's work ends; where it does not, the kernel
/// refuses it.
#[test]
fn a_member_who_takes_the_file_of_a_lock_away_is_refused_or_noticed() {
    let Some(machine) = Machine::new() else {
        return;
    };
    // A list that was valid once, written over the one of today.
    let older = "dd if=$D/../older of=$D/x.tenure conv=notrunc status=none";
    let garbage = "yes what | head -c 8192 | dd of=$D/x.tenure conv=notrunc status=none";
    let own = "umask 077; echo secret >$D/y; mv -f $D/y $D/x.tenure";
    for (bits, attack, happened) in [
        (0o3770, older, "is not in"),
        (0o2770, older, "is not in"),
        (0o3770, "rm -f $D/x.tenure", ""),
        (0o3770, "cp $D/x.tenure $D/y; mv -f $D/y $D/x.tenure", ""),
        (0o3770, "mv $D/x.tenure $D/z.tenure", ""),
        (0o3770, ": >$D/x.tenure", "was emptied"),
        (0o3770, garbage, "cannot be read"),
        (0o2770, garbage, "cannot be read"),
        (0o2770, "rm -f $D/x.tenure", "was removed"),
        (
            0o2770,
            "cp $D/x.tenure $D/y; mv -f $D/y $D/x.tenure",
            "something else",
        ),
        (0o2770, "mv $D/x.tenure $D/z.tenure", "was removed"),
        (0o2770, ": >$D/x.tenure", "was emptied"),
        // The holder itself may open nothing of these.
        (0o2770, own, "something else"),
        (
            0o2770,
            "ln -s /etc/passwd $D/y; mv -fT $D/y $D/x.tenure",
            "something else",
        ),
        (
            0o2770,
            "mkfifo $D/y; mv -f $D/y $D/x.tenure",
            "something else",
        ),
        (0o2770, "rm $D/x.tenure; mkdir $D/x.tenure", "x.tenure"),
    ] {
        let locks = machine.team_folder(&format!("team-{bits:o}"), bits);
        use_lock(&machine, ADA, &locks, "x");
        fs::copy(locks.join("x.tenure"), machine.path("older")).unwrap();
        mode(&machine.path("older"), 0o644);
        let held = supervised(&machine, &locks, &[], &[]);
        let what = format!("{attack} in {bits:o}");
        let said = as_user(&machine, BOB, &locks, attack);
        if happened.is_empty() {
            assert_ne!(said.code(), 0, "{what}: the kernel refuses it");
            let words = ["run", "-n", "x", "--dir", text(&locks), "--", "true"];
            let _ = machine
                .run(BOB, Path::new("/"), &words)
                .expect(4, "still held");
            let _ = held.open().expect(0, &what);
        } else {
            let _ = said.expect(0, &what);
            let (said, took) = timed(|| held.finish());
            lost(said, took, happened, "x.tenure", &what);
        }
        fs::remove_dir_all(&locks).unwrap();
    }
}

/// The run has ended with 80, in time, and with one sentence that says what happened to its file.
fn lost(said: Answer, took: Duration, happened: &str, file: &str, what: &str) {
    let said = said.expect(80, what);
    let told = said.stderr();
    let sentence = told.lines().find(|line| line.contains("is lost"));
    let sentence = sentence.unwrap_or_else(|| panic!("{what}: {}", said.said()));
    for part in [happened, file, "ending the command"] {
        assert!(sentence.contains(part), "{what}: {part}: {sentence}");
    }
    // The holder notices within a second, and the command has one to end.
    assert!(took < Duration::from_secs(3), "{what}: it took {took:?}");
}

/// No watch on files can be had: the kernel gives each user 128 of them.
#[test]
fn a_holder_without_a_watch_on_files_notices_by_its_own_looks() {
    let Some(machine) = Machine::new() else {
        return;
    };
    let unwatched = ["strace", "-f", "-qq", "-o", "/dev/null"];
    let unwatched = [&unwatched[..], &["-e", "trace=inotify_init1"]].concat();
    let unwatched = [&unwatched[..], &["-e", "inject=inotify_init1:error=EMFILE"]].concat();
    for (profile, bits, attack, happened) in [
        ("native", 0o2770, "rm -f $D/x.tenure", "was removed"),
        ("native", 0o3770, ": >$D/x.tenure", "was emptied"),
        ("session", 0o2770, "rm -f $D/locks/42.lock", "was removed"),
        ("session", 0o2770, ": >$D/locks/42.lock", "cannot be read"),
    ] {
        let locks = machine.team_folder("team", bits);
        let held = supervised(&machine, &locks, &["--profile", profile], &unwatched);
        let what = format!("{profile}: {attack}");
        let _ = as_user(&machine, BOB, &locks, attack).expect(0, &what);
        let (said, took) = timed(|| held.finish());
        lost(said, took, happened, text(&locks), &what);
        fs::remove_dir_all(&locks).unwrap();
    }
}

/// The flags of a run in a format, and its record of the lock `x` in the folder.
fn published_run(profile: &str) -> (Vec<&str>, &str) {
    match profile {
        "sprint" => (
            vec!["--profile", "sprint", "--epic-spec", "e"],
            ".sprint-running",
        ),
        "resume" => (vec!["--profile", "resume"], "resume_locks/x.lock"),
        "session" => (vec!["--profile", "session"], "locks/42.lock"),
        _ => (
            vec![
                "--profile",
                "fleet",
                "--intent-name",
                "i",
                "--intent-version",
                "1",
            ],
            "x.lock",
        ),
    }
}

/// Records too are the members' to write. Where one that cannot be read counts as left behind, the holder ends its
/// work before another caller takes the lock; where it blocks, the lock stays the holder's.
#[test]
fn a_member_who_spoils_a_published_record_is_noticed() {
    let Some(machine) = Machine::new() else {
        return;
    };
    for (profile, attack, happened) in [
        ("session", ": >$R", "cannot be read"),
        ("session", "echo what >$R", "cannot be read"),
        ("session", "rm $R", "was removed"),
        ("session", "mv $R $D/away", "was removed"),
        (
            "session",
            "rm $R; umask 077; echo what >$R",
            "cannot be read",
        ),
        ("session", "ln -sf /etc/passwd $R", "cannot be read"),
        (
            "session",
            "sed s/req_/other_/ $R >$D/y; mv $D/y $R",
            "another holder",
        ),
        ("resume", "rm $R", "was removed"),
        ("resume", ": >$R", ""),
        ("resume", "rm $R; echo what >$R", ""),
        ("fleet", "rm $R", "was removed"),
        ("fleet", ": >$R", ""),
        ("fleet", "rm $R; mkfifo $R", ""),
        // A tool that replaces the record in two steps.
        ("session", "cp $R $D/y; rm $R; sleep 0.2; mv $D/y $R", ""),
        ("session", "cp $R $D/y; : >$R; sleep 0.2; cat $D/y >$R", ""),
        ("fleet", "cp $R $D/y; rm $R; sleep 0.2; mv $D/y $R", ""),
    ] {
        let locks = machine.team_folder("team", 0o2770);
        let (flags, record) = published_run(profile);
        let held = supervised(&machine, &locks, &flags, &[]);
        let what = format!("{profile}: {attack}");
        let line = format!("R=$D/{record}; {attack}");
        let _ = as_user(&machine, BOB, &locks, &line).expect(0, &what);
        if happened.is_empty() {
            std::thread::sleep(Duration::from_millis(1_200));
            let said = held.open();
            let said = said.expect(0, &what);
            assert!(
                !said.stderr().contains("is lost"),
                "{what}: {}",
                said.said()
            );
        } else {
            let (said, took) = timed(|| held.finish());
            lost(said, took, happened, record, &what);
        }
        fs::remove_dir_all(&locks).unwrap();
    }
}

/// The project of a sprint is its root folder.
#[test]
fn a_member_who_spoils_the_record_of_a_sprint_is_noticed() {
    let Some(machine) = Machine::new() else {
        return;
    };
    for (attack, happened) in [
        (": >$R", "cannot be read"),
        ("rm $R", "was removed"),
        ("cp $R $D/y; rm $R; sleep 0.2; mv $D/y $R", ""),
    ] {
        let project = machine.team_folder("project", 0o2770);
        let gate = Gate::new(&machine.scene, "sprint");
        mode(machine.scene.root(), 0o777);
        let script = gate.script("umask 022");
        let root = text(&project);
        let words = ["--profile", "sprint", "run", "--project-root", root];
        let more = [
            "--epic-spec",
            "e",
            "--grace",
            "1s",
            "--",
            "sh",
            "-c",
            &script,
        ];
        let words = [&words[..], &more].concat();
        let mut call = machine.call(ADA, Path::new("/"), &words);
        let held = Held {
            started: Started::piped(&mut call),
            command: gate.entered(),
            gate,
        };
        std::thread::sleep(Duration::from_millis(300));
        let line = format!("R=$D/.sprint-running; {attack}");
        let _ = as_user(&machine, BOB, &project, &line).expect(0, attack);
        if happened.is_empty() {
            std::thread::sleep(Duration::from_millis(1_200));
            let _ = held.open().expect(0, attack);
        } else {
            let (said, took) = timed(|| held.finish());
            lost(said, took, happened, ".sprint-running", attack);
        }
        fs::remove_dir_all(&project).unwrap();
    }
}

/// A look that the system fails says nothing about the lock.
#[test]
fn a_look_that_fails_is_no_loss() {
    let Some(machine) = Machine::new() else {
        return;
    };
    let trace = machine.path("trace");
    // The grant reads three times, and each look at least once.
    let failing = ["strace", "-f", "-qq", "-o", text(&trace), "-e"];
    let failing = [&failing[..], &["trace=pread64,preadv", "-e"]].concat();
    let failing = [&failing[..], &["inject=pread64,preadv:error=EIO:when=8+"]].concat();
    let locks = machine.team_folder("team", 0o2770);
    let held = supervised(&machine, &locks, &[], &failing);
    eventually("ten looks have failed", || {
        let seen = fs::read_to_string(&trace).unwrap_or_default();
        seen.matches("(INJECTED)").count() >= 10
    });
    let said = held.open().expect(0, "the work went on");
    assert!(!said.stderr().contains("is lost"), "{}", said.said());
}

/// Records, their `.tenure` folder and the audit are the group's as well.
#[test]
fn published_records_and_the_audit_of_a_shared_folder_are_the_groups() {
    let Some(machine) = Machine::new() else {
        return;
    };
    let team = machine.team_folder("team", 0o2770);
    let locks = team.join("state/locks");
    for (user, name) in [(ADA, "1"), (BOB, "2"), (ADA, "2"), (BOB, "1")] {
        for profile in ["native", "session", "resume", "fleet"] {
            let dir = locks.join(profile);
            let dir = text(&dir);
            let script = "umask 077; tenure=$0; $tenure check $TENURE_NAME >/dev/null; echo ran";
            let tenure = machine.path("tenure");
            let words = ["--profile", profile, "run", name, "--dir", dir];
            let intent = ["--intent-name", "i", "--intent-version", "1"];
            let intent = &intent[..if profile == "fleet" { 4 } else { 0 }];
            let command = ["--", "sh", "-c", script, text(&tenure)];
            let words = [&words[..], intent, &command].concat();
            let mut call = machine.call(user, Path::new("/"), &words);
            let said = answer(&mut call).expect(0, &format!("{profile} {name} of {}", user.number));
            assert!(said.stdout().contains("ran"), "{}", said.said());
            assert!(!said.stderr().contains("ermission"), "{}", said.said());
        }
        let dir = locks.join("native");
        let lock = format!("a{name}");
        let words = [
            "acquire",
            &lock,
            "--owner",
            "none",
            "--request-id",
            "r",
            "--dir",
            text(&dir),
        ];
        let said = machine.run(user, Path::new("/"), &words).expect(0, "taken");
        assert!(!said.stderr().contains("audit"), "{}", said.said());
        let words = ["release", &lock, "--request-id", "r", "--dir", text(&dir)];
        let said = machine
            .run(user, Path::new("/"), &words)
            .expect(0, "given back");
        assert!(!said.stderr().contains("audit"), "{}", said.said());
    }
    let mut seen = 0;
    let mut folders = vec![locks];
    while let Some(folder) = folders.pop() {
        for item in fs::read_dir(&folder).unwrap() {
            let item = item.unwrap();
            let facts = item.metadata().unwrap();
            let path = item.path();
            // What a member records, the others look at.
            let expected = match path
                .strip_prefix(&team)
                .map(|path| text(path).contains("/audit/"))
            {
                _ if facts.is_dir() => 0o2770,
                Ok(true) if path.extension().is_some_and(|it| it == "jsonl") => 0o640,
                _ => 0o660,
            };
            assert_eq!(
                (facts.mode() & 0o7777, facts.gid()),
                (expected, TEAM),
                "{}",
                path.display()
            );
            seen += 1;
            if facts.is_dir() {
                folders.push(path);
            }
        }
    }
    assert!(seen > 10, "only {seen} files and folders");
}

/// As an earlier version made them: the owner's next call gives them to the group.
#[test]
fn a_file_from_before_the_folder_was_shared_is_the_groups_after_its_owners_next_call() {
    let Some(machine) = Machine::new() else {
        return;
    };
    let locks = machine.team_folder("locks", 0o3770);
    use_lock(&machine, ADA, &locks, "x");
    mode(&locks.join("x.tenure"), 0o600);
    let words = ["run", "x", "--dir", text(&locks), "--", "true"];
    let said = machine
        .run(BOB, Path::new("/"), &words)
        .expect(7, "hers alone");
    assert!(said.stderr().contains("chmod 660"), "{}", said.said());
    use_lock(&machine, ADA, &locks, "x");
    let _ = machine
        .run(BOB, Path::new("/"), &words)
        .expect(0, "the group's");
}

/// flock(1) takes a shared lock of a file that it may only read. A holder that cannot write would be seen by nobody.
#[test]
fn a_reader_without_the_right_to_write_is_told_why_table() {
    let Some(machine) = Machine::new() else {
        return;
    };
    let locks = machine.team_folder("locks", 0o3770);
    use_lock(&machine, ADA, &locks, "x");
    for (path, mode) in [(locks.clone(), 0o755), (locks.join("x.tenure"), 0o644)] {
        fs::set_permissions(path, PermissionsExt::from_mode(mode)).expect("the test's own file");
    }
    let told = "may read the lock and not write to it";
    for (words, code) in [
        (&["run", "x", "--shared", "--", "true"][..], 7),
        (&["run", "x", "--", "true"], 7),
        (&["run", "x", "--slots", "2", "--", "true"], 7),
        (&["acquire", "x", "--shared"], 7),
        (&["check", "x"], 0),
        (&["list"], 0),
    ] {
        let words: Vec<_> = [&words[..1], &["--dir", text(&locks)], &words[1..]].concat();
        let said = machine
            .run(BOB, Path::new("/"), &words)
            .expect(code, "another user's folder");
        assert_eq!(said.stderr().contains(told), code == 7, "{}", said.said());
    }
}

/// The call that would make a file is refused for another user's file in a sticky folder (`protected_regular`),
/// and a process may be killed before a new file has its rights. Neither locks a member out.
#[test]
fn a_member_who_is_killed_while_a_lock_is_made_locks_no_other_one_out() {
    let Some(machine) = Machine::new() else {
        return;
    };
    for (number, call) in ["fchmod", "renameat2"].iter().enumerate() {
        let locks = machine.team_folder(&format!("locks-{number}"), 0o3770);
        let line = format!(
            "strace -qq -o /dev/null -e trace={call} -e inject={call}:signal=KILL:when=1 \
             $T run x --dir $D -- echo ran"
        );
        let said = as_user(&machine, ADA, &locks, &line);
        assert!(
            !said.stdout().contains("ran"),
            "it was killed at {call}: {}",
            said.said()
        );
        let words = ["run", "x", "--dir", text(&locks), "--", "echo", "ran"];
        let said = machine.run(BOB, Path::new("/"), &words).expect(0, call);
        assert_eq!(said.stdout(), "ran\n");
        let file = fs::metadata(locks.join("x.tenure")).unwrap();
        assert_eq!((file.mode() & 0o777, file.gid()), (0o660, TEAM));
    }
}

/// Git's own folder, as far as it is looked at.
fn repository(machine: &Machine, git: &str, of: User, bits: u32) -> PathBuf {
    for folder in ["", "/objects", "/refs"] {
        machine.folder(&format!("{git}{folder}"), of, bits);
    }
    machine.file(&format!("{git}/HEAD"), of, "ref: refs/heads/main\n");
    machine.path(git)
}

#[test]
fn a_strangers_repository_is_used_only_if_it_is_shared_with_a_group() {
    let Some(machine) = Machine::new() else {
        return;
    };
    let top = machine.folder("shared", ROOT, 0o1777);
    let words = ["run", "x", "--scope", "repo", "--", "echo", "ran"];
    // All may write to the lock folder in it, so only the repository's owner tells.
    let git = repository(&machine, "shared/.git", EVE, 0o755);
    machine.folder("shared/.git/tenure", EVE, 0o755);
    machine.folder("shared/.git/tenure/locks", EVE, 0o1777);
    for bits in [0o755, 0o1777] {
        mode(&git, bits);
        refused(machine.run(ADA, &top, &words), &git, EVE, "--dir");
    }
    let _ = machine.run(EVE, &top, &words).expect(0, "it is her own");
    // A folder, a file or a link of hers that leads to a repository of the caller's own.
    fs::rename(&git, machine.path("hers.git")).unwrap();
    let own = repository(&machine, "own.git", ADA, 0o755);
    machine.file("shared/.git", EVE, &format!("gitdir: {}\n", text(&own)));
    refused(machine.run(ADA, &top, &words), &git, EVE, "--dir");
    fs::remove_file(&git).unwrap();
    std::os::unix::fs::symlink(&own, &git).unwrap();
    std::os::unix::fs::lchown(&git, Some(EVE.number), None).unwrap();
    refused(machine.run(ADA, &top, &words), &git, EVE, "--dir");
    fs::remove_file(&git).unwrap();
    // A repository that a group shares is the group's.
    let git = repository(&machine, "shared/.git", BOB, 0o755);
    chown(&git, None, Some(TEAM)).unwrap();
    mode(&git, 0o2775);
    let _ = machine
        .run(ADA, &top, &words)
        .expect(0, "git init --shared");
    assert!(git.join("tenure/locks/x.tenure").exists());
}

/// A link decides where `gitdir:` is read, so it is no better than a file.
#[test]
fn a_strangers_link_leads_to_no_main_checkout() {
    let Some(machine) = Machine::new() else {
        return;
    };
    let top = machine.folder("shared", ROOT, 0o1777);
    machine.folder("main", ADA, 0o755);
    let git = repository(&machine, "main/.git", ADA, 0o755);
    machine.file("main/tenure.toml", ADA, "dir = \"/of-the-main\"\n");
    let own = git.join("worktrees/one");
    machine.folder("main/.git/worktrees/one", ADA, 0o755);
    machine.file("main/.git/worktrees/one/commondir", ADA, "../..\n");
    machine.folder("tree", ADA, 0o755);
    let file = machine.file("tree/.git", ADA, &format!("gitdir: {}\n", text(&own)));
    let list = ["list", "-v"];
    let said = machine.run(ADA, &machine.path("tree"), &list);
    let said = said.expect(0, "her own work tree").stderr();
    assert!(said.contains("/of-the-main"), "{said}");
    let link = top.join(".git");
    std::os::unix::fs::symlink(&file, &link).unwrap();
    std::os::unix::fs::lchown(&link, Some(EVE.number), None).unwrap();
    let said = machine.run(ADA, &top, &list).expect(0, "a list").stderr();
    assert!(said.contains("the default"), "{said}");
}

#[test]
fn what_root_makes_in_a_users_folder_of_locks_is_that_users() {
    let Some(machine) = Machine::new() else {
        return;
    };
    let locks = machine.folder("locks", ADA, 0o700);
    let words = ["run", "x", "--dir", text(&locks), "--", "true"];
    let _ = machine
        .run(ROOT, machine.scene.root(), &words)
        .expect(0, "root");
    let left = fs::metadata(locks.join("x.tenure")).unwrap();
    assert_eq!(left.uid(), ADA.number, "the folder's owner");
    let _ = machine
        .run(ADA, machine.scene.root(), &words)
        .expect(0, "Ada");
}

#[test]
fn an_audit_folder_that_a_member_has_prepared_is_no_weaker_than_the_one_around_it() {
    let Some(machine) = Machine::new() else {
        return;
    };
    let locks = machine.team_folder("team", 0o3770);
    let audit = locks.join("audit");
    fs::create_dir(&audit).unwrap();
    chown(&audit, Some(BOB.number), Some(TEAM)).unwrap();
    let take = |name: &str| {
        let words = [
            "acquire",
            name,
            "--owner",
            "none",
            "--request-id",
            "r",
            "--dir",
            text(&locks),
        ];
        machine.run(ADA, Path::new("/"), &words)
    };
    mode(&audit, 0o2770);
    let said = take("a");
    assert!(
        said.stderr().contains("lacks the sticky bit"),
        "{}",
        said.said()
    );
    assert_eq!(
        fs::read_dir(&audit).unwrap().count(),
        0,
        "nothing is written"
    );
    mode(&audit, 0o3770);
    let said = take("b").expect(0, "taken");
    assert!(!said.stderr().contains("audit"), "{}", said.said());
    assert_ne!(fs::read_dir(&audit).unwrap().count(), 0, "it is written");
}

/// Where several users write, the lines of each stand in a file that only that user may write, and a file that belongs to
/// another one is no file of that user's. Everywhere all see who held a lock of theirs, or was refused.
#[test]
fn each_user_of_a_shared_folder_records_in_a_file_of_its_own_table() {
    let Some(machine) = Machine::new() else {
        return;
    };
    for rights in [0o2770, 0o3770] {
        let locks = machine.team_folder(&format!("team{rights:o}"), rights);
        let run = |user, words: &[&str]| {
            let words = [words, &["--dir", text(&locks)]].concat();
            machine.run(user, Path::new("/"), &words)
        };
        for user in [ADA, BOB] {
            let said = run(
                user,
                &["acquire", "x", "--owner", "none", "--request-id", "r"],
            );
            let said = said.expect(0, "free");
            assert!(!said.stderr().contains("audit"), "{}", said.said());
            let other = if user.number == ADA.number { BOB } else { ADA };
            let _ =
                run(other, &["acquire", "x", "--owner", "none", "--wait", "0"]).expect(4, "held");
            let _ = run(user, &["release", "x", "--request-id", "r"]).expect(0, "given back");
        }
        let audit = locks.join("audit");
        let file =
            |stream: &str, user: &User| audit.join(format!("{stream}.{}.jsonl", user.number));
        for (user, lines) in [(ADA, 2), (BOB, 2)] {
            for (stream, lines) in [("audit", lines), ("refusals", 1)] {
                let file = file(stream, &user);
                let facts = fs::metadata(&file).unwrap();
                let found = (facts.uid(), facts.mode() & 0o777);
                assert_eq!(found, (user.number, 0o640), "{}", file.display());
                assert_eq!(
                    fs::read_to_string(&file).unwrap().lines().count(),
                    lines,
                    "{file:?}"
                );
            }
        }
        let count = |said: &Answer| said.json()["data"]["events"].as_array().map_or(0, Vec::len);
        let audit_of = ["audit", "--output", "json"];
        let shown = run(ADA, &audit_of).expect(0, "all of it");
        assert_eq!(count(&shown), 6, "{}", shown.said());
        // A line that another member could have written proves nothing.
        let forged = fs::read(file("audit", &ADA)).unwrap();
        fs::remove_file(file("audit", &ADA)).unwrap();
        fs::write(file("audit", &ADA), forged).unwrap();
        chown(file("audit", &ADA), Some(BOB.number), Some(TEAM)).unwrap();
        let said = run(ADA, &audit_of).expect(0, "the rest of it");
        assert_eq!(count(&said), 4, "{}", said.said());
        assert!(
            said.stdout()
                .contains("does not belong to the user in its name")
        );
    }
    // Where everybody may write, each user's locks are its own, and so is its audit.
    let locks = machine.path("all");
    fs::create_dir(&locks).unwrap();
    mode(&locks, 0o1777);
    for user in [ADA, BOB] {
        let run = |words: &[&str]| {
            let words = [words, &["--dir", text(&locks)]].concat();
            machine
                .run(user, Path::new("/"), &words)
                .expect(0, "its own")
        };
        let lock = format!("x{}", user.number);
        let said = run(&["acquire", &lock, "--owner", "none"]);
        assert!(!said.stderr().contains("audit"), "{}", said.said());
        assert_eq!(run(&["audit"]).stdout().lines().count(), 1 + 1);
        let audit = fs::metadata(locks.join(format!("audit.{}", user.number))).unwrap();
        assert_eq!((audit.uid(), audit.mode() & 0o7777), (user.number, 0o700));
    }
}

/// What stands in a folder and below it that belongs to root.
fn roots_below(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for item in fs::read_dir(folder).expect("a folder") {
        let path = item.expect("an item").path();
        let facts = path.symlink_metadata().expect("facts");
        if facts.is_dir() {
            found.extend(roots_below(&path));
        }
        if facts.uid() == 0 {
            found.push(path);
        }
    }
    found
}

/// The words of a call in the project `dir`, by the rules of its profile: the lock, what `run` needs, where.
const FORMATS: [(&str, &str, &[&str], &str); 5] = [
    ("native", "x", &[], "--dir"),
    ("sprint", "sprint", &[], "--project-root"),
    ("resume", "x", &[], "--dir"),
    ("session", "42", &[], "--dir"),
    (
        "fleet",
        "x",
        &["--intent-name", "i", "--intent-version", "1"],
        "--dir",
    ),
];

/// Root's call comes first in a user's project, in each format. What that call makes there belongs to the user.
#[test]
fn roots_first_call_in_a_users_project_locks_nobody_out_table() {
    let Some(machine) = Machine::new() else {
        return;
    };
    for (profile, name, intent, place) in FORMATS {
        for bits in [0o755, 0o700] {
            let here = format!("{profile} {bits:o}");
            let project = machine.folder(&format!("{profile}-{bits:o}"), ADA, bits);
            let of = ["--profile", profile, place, text(&project)];
            let run = [&of[..], &["run", name], intent, &["--", "true"]].concat();
            let _ = machine.run(ROOT, Path::new("/"), &run).expect(0, &here);
            let left = roots_below(&project);
            assert!(left.is_empty(), "{here}: {left:?}");
            let _ = machine.run(ADA, Path::new("/"), &run).expect(0, &here);
            let check = [&of[..], &["check", name]].concat();
            let _ = machine.run(ADA, Path::new("/"), &check).expect(0, &here);
            let audit = [&of[..], &["audit"]].concat();
            let _ = machine.run(ADA, Path::new("/"), &audit).expect(0, &here);
        }
    }
    // Where all users make files, each keeps its own, root too.
    let open = machine.folder("open", ADA, 0o1777);
    let words = ["--dir", text(&open), "run", "x", "--", "true"];
    let _ = machine
        .run(ROOT, Path::new("/"), &words)
        .expect(0, "root's own");
    assert!(!roots_below(&open).is_empty());
    let _ = machine
        .run(ROOT, Path::new("/"), &words)
        .expect(0, "once more");
}

/// A record that others may read tells them who holds, though the folder beside it is its owner's alone.
#[test]
fn who_may_read_a_record_checks_the_lock_and_takes_nothing() {
    let Some(machine) = Machine::new() else {
        return;
    };
    for (profile, name, intent, place) in FORMATS {
        if matches!(profile, "native" | "resume" | "session") {
            // The record lies in a folder of the owner's alone there.
            continue;
        }
        let project = machine.folder(&format!("read-{profile}"), ADA, 0o755);
        let of = ["--profile", profile, place, text(&project)];
        let gate = Gate::new(&machine.scene, profile);
        mode(machine.scene.root(), 0o777);
        let line = gate.script("");
        let run = [&of[..], &["run", name], intent, &["--", "sh", "-c", &line]].concat();
        let started = Started::piped(&mut machine.call(ADA, Path::new("/"), &run));
        let _ = gate.entered();
        let record = match profile {
            "sprint" => project.join(".sprint-running"),
            _ => project.join("x.lock"),
        };
        let check = [&of[..], &["check", name]].concat();
        let _ = machine
            .run(EVE, &project, &check)
            .expect(7, "she may not read it");
        mode(&record, 0o644);
        let _ = machine.run(EVE, &project, &check).expect(4, profile);
        let take = [&of[..], &["run", name], intent, &["--", "true"]].concat();
        let _ = machine
            .run(EVE, &project, &take)
            .expect(7, "she may not write");
        gate.open();
        let _ = started.finish().expect(0, "the holder");
        let _ = machine.run(EVE, &project, &check).expect(0, "free");
    }
}

/// The owner of a folder gives a file of root's, empty and open, the name that root's next call makes. It stays root's.
#[test]
fn root_gives_away_nothing_that_its_call_has_not_made() {
    let Some(machine) = Machine::new() else {
        return;
    };
    let locks = machine.folder("locks", ADA, 0o700);
    let words = [
        "--profile",
        "fleet",
        "--dir",
        text(&locks),
        "run",
        "x",
        "--intent-name",
        "i",
        "--intent-version",
        "1",
        "--request-id",
        "r",
        "--",
        "true",
    ];
    let _ = machine
        .run(ROOT, Path::new("/"), &words)
        .expect(0, "the first");
    let list = locks.join(".tenure/x.lock.tenure");
    let days = fs::read_dir(locks.join("audit")).expect("an audit");
    let day = days
        .map(|day| day.expect("a day").path())
        .next()
        .expect("a day");
    for name in [list, day.join("r.jsonl")] {
        fs::remove_file(&name).unwrap();
        fs::write(&name, "").unwrap();
        mode(&name, 0o600);
        let _ = machine
            .run(ROOT, Path::new("/"), &words)
            .expect(0, "root's call");
        assert_eq!(fs::metadata(&name).unwrap().uid(), 0, "{}", name.display());
        fs::remove_file(&name).unwrap();
        let _ = machine
            .run(ROOT, Path::new("/"), &words)
            .expect(0, "once more");
        assert_eq!(
            fs::metadata(&name).unwrap().uid(),
            ADA.number,
            "made by the call"
        );
    }
}

/// In the folder for temporary files every user may put a `tenure.toml` above the others' work. It is passed over, and
/// the person's own rules hold.
#[test]
fn strangers_file_in_a_sticky_folder_is_passed_over_table() {
    let Some(machine) = Machine::new() else {
        return;
    };
    let open = machine.folder("open", ROOT, 0o1777);
    let deep = machine.folder("open/deep", ADA, 0o755);
    machine.folder(&format!("home/{}/.config/tenure", ADA.number), ADA, 0o755);
    let own = format!("home/{}/.config/tenure/tenure.toml", ADA.number);
    machine.file(&own, ADA, "[lock.\"*\"]\nenv = { LEVEL = \"own\" }\n");
    let bait = "dir = \"bait\"\n[lock.\"*\"]\nenv = { LEVEL = \"bait\" }\n";
    let file = open.join("tenure.toml");
    let words = ["run", "x", "--", "sh", "-c", "echo $LEVEL"];
    for what in ["readable", "unreadable", "a link", "a pipe", "empty"] {
        let _ = fs::remove_file(&file);
        match what {
            "a link" => {
                let real = machine.file("bait.toml", ADA, bait);
                std::os::unix::fs::symlink(real, &file).unwrap();
                std::os::unix::fs::lchown(&file, Some(BOB.number), None).unwrap();
            }
            "a pipe" => {
                let made = rustix::fs::Mode::from_raw_mode(0o666);
                rustix::fs::mkfifoat(rustix::fs::CWD, &file, made).unwrap();
                std::os::unix::fs::lchown(&file, Some(BOB.number), None).unwrap();
            }
            _ => {
                let said = if what == "empty" { "" } else { bait };
                machine.file("open/tenure.toml", BOB, said);
                mode(&file, if what == "unreadable" { 0o600 } else { 0o644 });
            }
        }
        for from in [&open, &deep] {
            let said = machine.run(ADA, from, &words).expect(0, what);
            assert_eq!(said.stdout(), "own\n", "{what}: {}", said.said());
        }
    }
    assert!(!open.join("bait").exists(), "nothing was made there");
    // What she put there herself counts, and so does root's.
    for of in [ADA, ROOT] {
        let _ = fs::remove_file(&file);
        machine.file(
            "open/tenure.toml",
            of,
            "[lock.\"*\"]\nenv = { LEVEL = \"near\" }\n",
        );
        let said = machine.run(ADA, &deep, &words).expect(0, "no stranger's");
        assert_eq!(said.stdout(), "near\n", "{}", said.said());
    }
}
