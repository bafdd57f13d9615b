//! Several users of one machine: whose configuration and whose folders a call believes, and that
//! nothing which one user leaves behind locks another one out.
//!
//! Only root can be several users. As anybody else these tests say so and end.

#![allow(
    clippy::disallowed_methods,
    reason = "what was planted by the test is removed by it, behind the store's back"
)]

use crate::support::{Answer, Scene, TENURE, answer, is_root};
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::Command;

/// A user of the test's own; nobody has to know the name.
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
        reason = "whoever reads the tests' output has to know"
    )]
    fn new() -> Option<Self> {
        if !is_root() {
            println!("skipped: only root can be several users");
            return None;
        }
        let scene = Scene::new();
        // The program itself may lie where nobody else can go.
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
