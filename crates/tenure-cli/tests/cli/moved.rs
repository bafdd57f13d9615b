//! What happens to holders and waiters when the folder of their locks, or a part of it, is taken
//! away under them; and which paths lead to one folder.

use crate::support::standstill::Standstill;
use crate::support::{Answer, Gate, Held, Scene, Started, answer, is_alive, is_root, timed};
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

/// Within this time a holder is told that no other caller finds its lock any more.
const TOLD: Duration = Duration::from_secs(5);

/// After this much of its work a holder has looked at its lock, and looks again seconds later.
const LOOKED_AT: Duration = Duration::from_millis(300);

/// Starts a run in a folder, two levels below the test's own.
fn hold_in(scene: &Scene, folder: &Path, words: &[&str], gate: &Gate) -> Held {
    let script = gate.script("");
    let mut command = scene.tenure(words);
    command.args(["--", "sh", "-c", &script]);
    command.env("TENURE_DIR", folder);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let started = Started::new(&mut command);
    Held {
        started,
        command: gate.entered(),
        gate: gate.clone(),
    }
}

/// Fails unless the run ends in time because its lock is lost, and its command with it.
#[track_caller]
fn is_told(held: Held, why: &str) {
    let command = held.command;
    let standstill = Standstill::watch();
    let (answer, took) = timed(|| held.finish());
    let answer = answer.expect(80, why);
    assert!(
        took < TOLD || standstill.without(took) < TOLD,
        "{why}: it took {took:?}"
    );
    assert!(answer.stderr().contains("lost"), "{why}: {}", answer.said());
    assert!(!is_alive(command), "{why}: its command has ended");
}

/// A file system of its own over a folder, as a container or a mount unit brings one.
struct Mounted<'a>(&'a Path);

impl<'a> Mounted<'a> {
    fn tmpfs(folder: &'a Path) -> Option<Self> {
        Self::by(folder, &["-t", "tmpfs", "none"])
    }

    fn bind(of: &str, folder: &'a Path) -> Option<Self> {
        Self::by(folder, &["--bind", of])
    }

    fn by(folder: &'a Path, how: &[&str]) -> Option<Self> {
        let mut mount = Command::new("mount");
        mount.args(how).arg(folder).stderr(Stdio::null());
        let mounted = is_root() && mount.status().is_ok_and(|status| status.success());
        mounted.then_some(Self(folder))
    }
}

impl Drop for Mounted<'_> {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0).status();
    }
}

/// What is done to the folder of the locks while one of them is held.
const MOVES: [&str; 4] = [
    "the folder is renamed",
    "one above it is renamed",
    "it is replaced",
    "something is mounted over it",
];

#[test]
fn a_run_whose_folder_gets_another_name_is_told_within_seconds() {
    std::thread::scope(|scope| {
        for profile in ["native", "session"] {
            for what in MOVES {
                scope.spawn(move || is_told_of(profile, what));
            }
        }
    });
}

fn is_told_of(profile: &str, what: &str) {
    let scene = Scene::new();
    let above = scene.path("above");
    let folder = above.join("locks");
    fs::create_dir_all(&folder).unwrap();
    let gate = Gate::new(&scene, "x");
    let words = ["--profile", profile, "run", "7"];
    let held = hold_in(&scene, &folder, &words, &gate);
    // News of the lock is watched for after 20 ms, and the lock looked at then.
    std::thread::sleep(LOOKED_AT);
    let elsewhere = scene.path("elsewhere");
    let mut mounted = None;
    match what {
        "the folder is renamed" => fs::rename(&folder, &elsewhere).unwrap(),
        "one above it is renamed" => fs::rename(&above, &elsewhere).unwrap(),
        "it is replaced" => {
            fs::rename(&folder, &elsewhere).unwrap();
            fs::create_dir(&folder).unwrap();
        }
        _ => {
            mounted = Mounted::tmpfs(&folder);
            if mounted.is_none() {
                let _ = held.open().expect(0, "nothing can be mounted here");
                return;
            }
        }
    }
    is_told(held, &format!("{profile}, {what}"));
    drop(mounted);
}

/// Nothing tells of a folder above, and the command has ended before its supervisor has looked.
#[test]
fn a_run_that_ends_before_the_next_look_is_told_in_the_end() {
    let scene = Scene::new();
    let above = scene.path("above");
    let folder = above.join("locks");
    let gate = Gate::new(&scene, "x");
    let held = hold_in(&scene, &folder, &["run", "x"], &gate);
    std::thread::sleep(LOOKED_AT);
    fs::rename(&above, scene.path("elsewhere")).unwrap();
    let answer = held
        .open()
        .expect(80, "it no longer excluded other callers");
    assert!(
        answer
            .stderr()
            .contains("the command has ended with exit code 0"),
        "{}",
        answer.said()
    );
}

/// The holder goes on without the lock, and the waiter does not wait for that.
#[test]
fn a_waiter_whose_folder_gets_another_name_lines_up_where_others_do() {
    let scene = Scene::new();
    let folder = scene.locks();
    let gate = Gate::new(&scene, "x");
    let held = hold_in(
        &scene,
        &folder,
        &["run", "-q", "--on-lost", "warn", "x"],
        &gate,
    );
    let mut waiter = scene.tenure(["run", "-q", "x", "--wait", "25s", "--"]);
    waiter.args(["sh", "-c", "tenure check x -q >seen; echo $?"]);
    waiter.current_dir(scene.root());
    waiter.stdout(Stdio::piped()).stderr(Stdio::piped());
    let waiter = Started::new(&mut waiter);
    scene.until_queued("x", 1);
    fs::rename(&folder, scene.path("elsewhere")).unwrap();
    let answer = waiter
        .finish()
        .expect(0, "it has the lock that others find");
    assert_eq!(answer.stdout(), "0\n", "which is its own");
    let _ = held.open().expect(0, "the other one was only warned");
}

/// The record keeps all other callers out while the command ends, and none afterwards.
#[test]
fn a_run_whose_coordination_files_are_removed_ends_and_takes_its_record_with_it() {
    let scene = Scene::new();
    let gate = Gate::new(&scene, "x");
    let words = ["--profile", "session", "run", "7"];
    let held = hold_in(&scene, &scene.locks(), &words, &gate);
    std::thread::sleep(LOOKED_AT);
    let folder = scene.locks().join("locks");
    assert!(folder.join("7.lock").exists());
    fs::remove_dir_all(folder.join(".tenure")).unwrap();
    is_told(held, "its place is gone");
    assert!(!folder.join("7.lock").exists(), "it would block the next");
    let words = ["--profile", "session", "run", "-n", "7", "--", "true"];
    let _ = scene.run(words).expect(0, "the lock is free");
}

/// As between a host and a folder that it lends to another place.
#[test]
fn one_folder_by_two_bind_mounts_is_one_lock_to_the_run_that_holds_it() {
    let scene = Scene::new();
    let folder = scene.locks();
    fs::create_dir(&folder).unwrap();
    let other = scene.path("other");
    fs::create_dir(&other).unwrap();
    let mounted = Mounted::bind(&folder.display().to_string(), &other);
    let by_root = format!("/proc/self/root{}", folder.display());
    let mut spellings = vec![by_root];
    if mounted.is_some() {
        spellings.push(other.display().to_string());
    }
    for spelling in &spellings {
        let within = |words: &[&str]| -> Answer {
            let mut command = scene.tenure(["run", "-q", "x", "--", "tenure"]);
            answer(
                command
                    .args(words)
                    .args(["--dir", spelling, "x", "-w", "3s", "--", "true"]),
            )
        };
        let refused = within(&["run"]).expect(81, "it would wait for itself");
        assert!(
            refused.stderr().contains("held by this run itself"),
            "{spelling}: {}",
            refused.said()
        );
        let _ = within(&["run", "--reentrant"]).expect(0, "it goes on under its own hold");
    }
}
