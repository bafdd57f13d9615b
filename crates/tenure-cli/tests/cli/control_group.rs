//! How a run ends what descends from its command where it cannot adopt it: a shell has become
//! tenure and has older children, so the work is kept together by a control group.
//!
//! Each test mounts the control groups (version 2) in a mount namespace of its own and works in a
//! group of its own. Where that is not allowed it says so and is skipped.

use crate::support::{
    Answer, BOUND, Gate, Scene, Started, eventually, is_alive, is_root, read_lines, read_number,
    says_overlap, send, throughout,
};
use rustix::process::Signal;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

const DEAF: &str = "trap '' INT TERM HUP QUIT USR1";

/// A mount namespace in which a control group of the test's own can be seen and written to.
struct Surroundings {
    /// A process that keeps the namespace, outside of the group.
    renewer: Started,
    /// The group, as the namespace shows it.
    group: PathBuf,
}

impl Surroundings {
    fn new(scene: &Scene) -> Option<Self> {
        if !is_root() {
            return skipped("needs root");
        }
        let mount = scene.path("groups of control");
        fs::create_dir(&mount).unwrap();
        let group = mount.join(format!(
            "test of tenure {}-{}",
            std::process::id(),
            scene.root().file_name().unwrap().display()
        ));
        let line = format!(
            "mount -t cgroup2 none '{mount}' && mkdir '{group}' && echo ready && cat",
            mount = mount.display(),
            group = group.display(),
        );
        let mut renewer = scene.program("unshare");
        renewer.args(["-m", "sh", "-c", &line]);
        renewer
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut renewer = Started::new(&mut renewer);
        let mut said = String::new();
        let _ = BufReader::new(renewer.stdout()).read_line(&mut said);
        if said != "ready\n" {
            return skipped(&format!(
                "needs a mount namespace with control groups: {}",
                renewer.finish().said()
            ));
        }
        Some(Self { renewer, group })
    }

    /// The group, as it is seen from here.
    fn seen(&self) -> PathBuf {
        let root = format!("/proc/{}/root", self.renewer.pid());
        PathBuf::from(root).join(self.group.strip_prefix("/").unwrap())
    }

    /// A shell in the group that runs this line.
    fn shell(&self, scene: &Scene, line: &str) -> Command {
        let line = format!("echo $$ >'{}/cgroup.procs'\n{line}", self.group.display());
        let mut command = scene.program("nsenter");
        command.arg(format!("--mount=/proc/{}/ns/mnt", self.renewer.pid()));
        command.args(["bash", "-c", &line]);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// Waits until no process runs in one of the groups in it.
    fn until_empty(&self, name: &str) {
        let events = self.seen().join(name).join("cgroup.events");
        eventually("a group to be empty", || {
            fs::read_to_string(&events).is_ok_and(|text| text.contains("populated 0"))
        });
    }

    /// What groups there are in it.
    fn groups(&self) -> Vec<String> {
        let entries = fs::read_dir(self.seen()).unwrap().map(Result::unwrap);
        entries
            .filter(|entry| entry.file_type().unwrap().is_dir())
            .map(|entry| entry.file_name().into_string().unwrap())
            .collect()
    }
}

impl Drop for Surroundings {
    fn drop(&mut self) {
        let group = self.seen();
        let _ = fs::write(group.join("cgroup.kill"), "1");
        let until = tenure_os::clock::instant() + BOUND;
        while fs::read_to_string(group.join("cgroup.events"))
            .is_ok_and(|events| events.contains("populated 1"))
            && tenure_os::clock::instant() < until
        {
            std::thread::sleep(Duration::from_millis(5));
        }
        for entry in fs::read_dir(&group).into_iter().flatten().flatten() {
            let _ = fs::remove_dir(entry.path());
        }
        let _ = fs::remove_dir(group);
    }
}

#[allow(clippy::print_stderr, reason = "a test that is skipped says why")]
fn skipped<T>(why: &str) -> Option<T> {
    eprintln!("skipped: {why}");
    None
}

/// A line of shell that leaves a process behind, in a session of its own and without a parent,
/// which begins with `prelude`; and the file that will hold its number.
fn leaves_orphan(scene: &Scene, prelude: &str) -> (String, PathBuf) {
    let pid = scene.path("orphan.pid");
    let body = format!(
        "#!/bin/sh\n{prelude}\necho $$ >'{pid}.new' && mv '{pid}.new' '{pid}'\n\
         while [ -d '{root}' ]; do sleep 0.02; done\n",
        pid = pid.display(),
        root = scene.root().display(),
    );
    let body = scene.script("orphan", &body);
    let line = format!("(setsid '{}' </dev/null >/dev/null 2>&1 &)", body.display());
    (line, pid)
}

/// A run of a shell that has become tenure, and has a child of its own.
struct Run {
    tenure: Started,
    command: u32,
    orphan: u32,
    older: u32,
    gate: Gate,
}

/// Starts such a run, whose command has left an orphan (see [`leaves_orphan`]) behind.
fn start(
    scene: &Scene,
    surroundings: &Surroundings,
    flags: &str,
    orphan: &str,
    prelude: &str,
) -> Run {
    let gate = Gate::new(scene, "x");
    let (line, pid) = leaves_orphan(scene, orphan);
    let work = format!("#!/bin/sh\n{prelude}\n{line}\n{}\n", gate.script(""));
    let work = scene.script("work", &work);
    let older = scene.path("older");
    let line = format!(
        "sleep 600 >/dev/null 2>&1 & echo $! >{}; exec tenure run x -q {flags} -- {}",
        older.display(),
        work.display()
    );
    let run = Started::new(&mut surroundings.shell(scene, &line));
    let command = gate.entered();
    Run {
        tenure: run,
        command,
        orphan: read_number(&pid),
        older: read_number(&older),
        gate,
    }
}

fn control_group_of(pid: u32) -> String {
    let text = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap();
    text.lines()
        .find_map(|line| line.strip_prefix("0::"))
        .unwrap()
        .to_owned()
}

/// A run that waits for the lock, and says `overlap` if `other` is at work when its turn comes.
fn next(scene: &Scene, other: u32) -> Started {
    let line = format!("{}; echo ran", says_overlap(other));
    let mut command = scene.tenure(["run", "x", "-q", "--wait", "forever"]);
    command.args(["--", "sh", "-c", &line]);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let started = Started::new(&mut command);
    scene.until_queued("x", 1);
    started
}

fn expect_no_overlap(next: Started) {
    let answer: Answer = next.finish().expect(0, "its turn came");
    assert_eq!(answer.stdout(), "ran\n", "with no other process at work");
}

#[test]
fn what_ignores_everything_is_gone_before_the_next_command_starts() {
    let scene = Scene::new();
    let Some(surroundings) = Surroundings::new(&scene) else {
        return;
    };
    let run = start(&scene, &surroundings, "--grace 400ms", DEAF, "");
    let home = control_group_of(run.older);
    // The command may be at work before tenure has come back.
    eventually("tenure to be where it was", || {
        control_group_of(run.tenure.pid()) == home
    });
    let own = control_group_of(run.command);
    assert_eq!(
        control_group_of(run.orphan),
        own,
        "all of the work is there"
    );
    assert!(
        own.starts_with(&format!("{home}/tenure-{}-", run.tenure.pid())),
        "{own} in {home}"
    );
    let next = next(&scene, run.orphan);
    run.tenure.signal(Signal::TERM);
    let answer = run.tenure.finish().expect(143, "ended by SIGTERM");
    let said = "tenure: Cancelled by SIGTERM\n";
    assert_eq!(answer.stderr(), said, "nothing of all that is told");
    assert!(!is_alive(run.orphan), "gone when the answer comes");
    assert!(is_alive(run.older), "and no other process");
    assert_eq!(surroundings.groups(), [""; 0], "the group is gone too");
    expect_no_overlap(next);
}

#[test]
fn groups_that_the_command_has_made_are_ended_and_removed_too() {
    let scene = Scene::new();
    let Some(surroundings) = Surroundings::new(&scene) else {
        return;
    };
    // The command goes into a group two levels below its own, and what it leaves is born there.
    let deeper = format!(
        "own='{}'$(sed -n 's,^0::.*\\(/tenure-\\),\\1,p' /proc/self/cgroup)\n\
         mkdir -p \"$own/a/b\" \"$own/c\" && echo 0 >\"$own/a/b/cgroup.procs\"",
        surroundings.group.display()
    );
    let run = start(&scene, &surroundings, "--grace 300ms", DEAF, &deeper);
    let own = control_group_of(run.orphan);
    assert!(own.ends_with("/a/b"), "{own}");
    let next = next(&scene, run.orphan);
    run.tenure.signal(Signal::INT);
    let _ = run.tenure.finish().expect(130, "ended by SIGINT");
    assert!(!is_alive(run.orphan) && is_alive(run.older));
    assert_eq!(surroundings.groups(), [""; 0], "all of them are gone");
    expect_no_overlap(next);
}

/// What lost its parent is asked once, by each signal; what has a parent in the work is left to it.
#[test]
fn an_orphan_is_asked_before_it_is_killed_and_nobody_else() {
    let scene = Scene::new();
    let Some(surroundings) = Surroundings::new(&scene) else {
        return;
    };
    let (said, child) = (scene.path("said"), scene.path("child"));
    let go = scene.path("go");
    // The orphan has a child in a session of its own, ends after it was asked and let go on, and
    // its child goes with it by itself.
    let child_body = scene.script(
        "child-body",
        &format!(
            "#!/bin/sh\ntrap 'echo child >>{said}' TERM\necho $$ >{child}\n\
             while [ -d '{root}' ] && [ ! -e {go} ]; do sleep 0.02; done\n",
            said = said.display(),
            child = child.display(),
            root = scene.root().display(),
            go = go.display(),
        ),
    );
    let orphan = format!(
        "trap 'echo asked >>{said}; while [ ! -e {go} ]; do sleep 0.02; done; exit' TERM\n\
         setsid {} &\n while [ ! -s {child} ]; do sleep 0.02; done",
        child_body.display(),
        said = said.display(),
        child = child.display(),
        go = go.display(),
    );
    let run = start(&scene, &surroundings, "--grace 60s", &orphan, "");
    run.tenure.signal(Signal::TERM);
    let _ = read_lines(&said);
    throughout(Duration::from_millis(200), "asked once, and alone", || {
        fs::read_to_string(&said).is_ok_and(|text| text == "asked\n")
    });
    assert_ne!(scene.standing("x"), "free", "they are still at work");
    fs::write(go, "").unwrap();
    let _ = run.tenure.finish().expect(143, "ended by SIGTERM");
    assert!(!is_alive(run.orphan) && !is_alive(read_number(&child)));
    assert!(is_alive(run.older), "and no other process");
    assert_eq!(surroundings.groups(), [""; 0], "the group is gone too");
}

#[test]
fn all_of_the_work_is_waited_for_where_that_is_wanted() {
    let scene = Scene::new();
    let Some(surroundings) = Surroundings::new(&scene) else {
        return;
    };
    let run = start(&scene, &surroundings, "--wait-all", "", "");
    run.gate.open();
    eventually("the command itself to end", || !is_alive(run.command));
    throughout(Duration::from_millis(300), "the lock is held", || {
        scene.standing("x") == "held"
    });
    send(run.orphan, Signal::TERM);
    let _ = run
        .tenure
        .finish()
        .expect(0, "the code is the command's own");
    assert!(scene.is_free("x"), "the lock is free");
    assert_eq!(surroundings.groups(), [""; 0], "the group is gone");
}

#[test]
fn what_undoes_the_work_is_in_the_group_too() {
    let scene = Scene::new();
    let Some(surroundings) = Surroundings::new(&scene) else {
        return;
    };
    let seen = scene.path("seen");
    let line = format!(
        "sleep 600 >/dev/null 2>&1 &\n\
         exec tenure run x -q --rollback 'cat /proc/self/cgroup >{0}.2' -- \
         sh -c 'cat /proc/self/cgroup >{0}.1; exit 3'",
        seen.display()
    );
    let mut shell = surroundings.shell(&scene, &line);
    let _ = crate::support::answer(&mut shell).expect(3, "the command's code");
    let group = |number: &str| {
        let text = fs::read_to_string(format!("{}.{number}", seen.display())).unwrap();
        let line = text.lines().find(|line| line.starts_with("0::"));
        line.unwrap().to_owned()
    };
    assert!(group("1").contains("/tenure-"), "{}", group("1"));
    assert_eq!(group("1"), group("2"), "one for both");
    assert_eq!(surroundings.groups(), [""; 0], "the group is gone");
}

/// A daemon may outlive its run, and a supervisor may be killed: both leave a group, which disturbs
/// no other run, and goes when it is empty and the next one is made.
#[test]
fn what_is_left_of_a_group_is_removed_by_the_next_run() {
    let scene = Scene::new();
    let Some(surroundings) = Surroundings::new(&scene) else {
        return;
    };
    let run = start(&scene, &surroundings, "", "", "");
    run.gate.open();
    let _ = run.tenure.finish().expect(0, "the command ended by itself");
    assert!(is_alive(run.orphan), "its daemon goes on");
    assert!(scene.is_free("x"), "and keeps no lock");
    let left = surroundings.groups();
    assert_eq!(left.len(), 1, "{left:?}");

    // The command may have made groups for what it is about to start.
    let for_later = surroundings.seen().join(&left[0]).join("for-later");
    fs::create_dir(&for_later).unwrap();

    let again = "sleep 600 >/dev/null 2>&1 & exec tenure run x -q -- true";
    let quick = || {
        let mut shell = surroundings.shell(&scene, again);
        let _ = crate::support::answer(&mut shell).expect(0, "nothing is in its way");
    };
    quick();
    assert_eq!(surroundings.groups(), left, "the daemon is not disturbed");
    assert!(is_alive(run.orphan) && for_later.exists(), "it goes on");
    send(run.orphan, Signal::TERM);
    surroundings.until_empty(&left[0]);
    assert_eq!(
        surroundings.groups(),
        left,
        "no process is left to remove it"
    );
    quick();
    assert_eq!(surroundings.groups(), [""; 0], "but the next one is");

    for old in ["orphan.pid", "older"] {
        fs::rename(scene.path(old), scene.path("old")).unwrap();
    }
    let killed = start(&scene, &surroundings, "", "", "");
    let listed = surroundings.groups();
    assert_eq!(listed.len(), 1, "{listed:?}");
    killed.tenure.signal(Signal::KILL);
    drop(killed.tenure);
    assert!(is_alive(killed.command), "its command is not disturbed");
    killed.gate.open();
    send(killed.orphan, Signal::TERM);
    surroundings.until_empty(&listed[0]);
    quick();
    assert_eq!(surroundings.groups(), [""; 0], "removed as well");
}

/// A supervisor that cannot come back to its old group stays in this one, and must not kill itself with it.
#[test]
fn a_run_that_cannot_come_back_says_so_and_ends_the_work_one_by_one() {
    let scene = Scene::new();
    let Some(surroundings) = Surroundings::new(&scene) else {
        return;
    };
    let gate = Gate::new(&scene, "x");
    let (line, pid) = leaves_orphan(&scene, DEAF);
    let work = format!("#!/bin/sh\n{line}\n{}\n", gate.script(""));
    let work = scene.script("work", &work);
    let older = scene.path("older");
    let body = format!(
        "#!/bin/sh\nset -e\nmount -t tmpfs none /sys/fs/cgroup\n\
         mount --bind '{procs}' '{procs}'\nmount -o remount,bind,ro '{procs}'\n\
         sleep 600 >/dev/null 2>&1 &\necho $! >{older}\n\
         exec tenure run x -q --grace 300ms -- {work}\n",
        procs = surroundings.group.join("cgroup.procs").display(),
        older = older.display(),
        work = work.display(),
    );
    let body = scene.script("body", &body);
    let line = format!("exec unshare -m {}", body.display());
    let run = Started::new(&mut surroundings.shell(&scene, &line));
    let (command, orphan) = (gate.entered(), read_number(&pid));
    assert_eq!(
        control_group_of(command),
        control_group_of(run.pid()),
        "both are in it"
    );
    let next = next(&scene, orphan);
    run.signal(Signal::TERM);
    let answer = run.finish().expect(143, "it lives to tell it");
    assert!(
        answer.stderr().contains("cannot leave the control group"),
        "{}",
        answer.said()
    );
    assert!(!is_alive(command) && !is_alive(orphan), "the work is gone");
    assert!(is_alive(read_number(&older)), "and no other process");
    expect_no_overlap(next);
    assert_eq!(surroundings.groups().len(), 1, "as it was said");
    let again = "sleep 600 >/dev/null 2>&1 & exec tenure run x -q -- true";
    let mut shell = surroundings.shell(&scene, again);
    let _ = crate::support::answer(&mut shell).expect(0, "nothing is in its way");
    assert_eq!(
        surroundings.groups(),
        [""; 0],
        "and the next one removes it"
    );
}

/// Without a group that may be written to, only the command's process group is ended, as ever.
#[test]
fn without_control_groups_the_process_group_is_ended() {
    for covering in ["mount -o remount,bind,ro", "umount"] {
        let scene = Scene::new();
        let Some(surroundings) = Surroundings::new(&scene) else {
            return;
        };
        let gate = Gate::new(&scene, "x");
        let (line, pid) = leaves_orphan(&scene, DEAF);
        let work = format!("#!/bin/sh\n{line}\n{}\n", gate.script(""));
        let work = scene.script("work", &work);
        let older = scene.path("older");
        // In a namespace of its own again; wherever else they are mounted, that is covered.
        let body = format!(
            "#!/bin/sh\nset -e\nmount -t tmpfs none /sys/fs/cgroup\n{covering} '{mount}'\n\
             sleep 600 >/dev/null 2>&1 &\necho $! >{older}\n\
             exec tenure run x -q --grace 300ms -- {work}\n",
            mount = surroundings.group.parent().unwrap().display(),
            older = older.display(),
            work = work.display(),
        );
        let body = scene.script("body", &body);
        let line = format!("exec unshare -m {}", body.display());
        let run = Started::new(&mut surroundings.shell(&scene, &line));
        let (command, orphan) = (gate.entered(), read_number(&pid));
        assert_eq!(
            control_group_of(command),
            control_group_of(run.pid()),
            "no group was made"
        );
        run.signal(Signal::TERM);
        let _ = run.finish().expect(143, "ended by SIGTERM");
        assert!(!is_alive(command), "the command is gone");
        assert!(is_alive(read_number(&older)), "and no older child");
        assert!(is_alive(orphan), "what has left its group is not found");
    }
}
