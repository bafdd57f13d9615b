//! Programs that hold a lock by the library: what is started under a guard is inside of it, and others are told what they
//! can do about a program that has ended and left its lock to another process.

use super::support::{Gate, Scene, Started, answer, eventually, read_number, send};
use rustix::process::Signal;
use std::process::{Command, Stdio};
use tenure::guard::{AcquireError, LockManager, Options, Wait};

/// Does nothing by itself: a test starts it.
#[test]
#[ignore = "a program that works under a guard of another one"]
fn works_under_a_guard() {
    let locks = LockManager::open().expect("a place");
    let answer = locks.acquire("deploy");
    let is_inside = matches!(answer, Err(AcquireError::HeldByOuterRun { .. }));
    assert!(is_inside, "{answer:?}");
    drop(locks.acquire("of-library").expect("a free lock"));
}

#[test]
fn what_is_started_under_a_guard_is_inside_of_it() {
    let scene = Scene::new();
    let own = scene.path("own");
    let locks = LockManager::new(&own).expect("a folder with a name");
    let guard = locks.acquire("deploy").expect("a free lock");
    let slot = Options::new().slots(2);
    let both = locks
        .acquire_all(["figures", "gpu"], &slot)
        .expect("free locks");
    let run = |words: &[&str]| {
        let mut command = scene.tenure(words);
        command.env_remove("TENURE_DIR").envs(guard.envs());
        answer(&mut command)
    };
    run(&["run", "deploy", "--", "true"]).expect(81, "its own program has it");
    run(&["run", "--reentrant", "deploy", "--", "true"]).expect(0, "it goes on under the hold");
    let told = "test \"$TENURE_NAME\" = build && tenure run --reentrant deploy -- true";
    run(&["run", "build", "--", "sh", "-c", told]).expect(0, "another lock, at the same place");
    assert!(own.join("build.tenure").exists() && !scene.locks().exists());
    let mut program = Command::new(std::env::current_exe().expect("this program"));
    program.args(["--exact", "program::works_under_a_guard", "--ignored"]);
    program.current_dir(scene.root()).envs(guard.envs());
    let answered = answer(&mut program);
    answered.expect(0, "a program with the library is inside, too");
    assert!(own.join("of-library.tenure").exists());
    let told = "echo $TENURE_NAME $TENURE_TOKEN ${TENURE_SLOT:-none}";
    for (envs, expected) in [
        (guard.envs(), format!("deploy {} none", guard.token())),
        (both.envs(), format!("gpu {} 0", both[1].token())),
    ] {
        let mut shell = scene.program("sh");
        let said = answer(shell.env("TENURE_SLOT", "7").args(["-c", told]).envs(envs));
        assert_eq!(said.stdout().trim(), expected);
    }
    let mut both_inside = scene.tenure(["run", "figures", "--", "true"]);
    both_inside.env_remove("TENURE_DIR").envs(both.envs());
    answer(&mut both_inside).expect(81, "each of them is told");
    let envs = guard.envs();
    guard.release().expect("a release");
    let mut later = scene.tenure(["run", "deploy", "--", "true"]);
    later.env_remove("TENURE_DIR").envs(envs);
    answer(&mut later).expect(0, "a hold that has ended is none");
}

/// Does nothing by itself: a test starts it.
#[test]
#[ignore = "a program that wants one more lock"]
fn wants_one_more_lock() {
    let locks = LockManager::open().expect("a place");
    drop(
        locks
            .acquire_with("b", &Options::new().wait(Wait::Forever))
            .expect("its turn"),
    );
}

/// A run and a program: each has a lock and wants that of the other one. Whoever came last is the deadlock victim.
#[test]
fn a_run_and_a_program_find_their_circle_table() {
    let scene = Scene::new();
    let locks = LockManager::new(scene.locks()).expect("a folder with a name");
    let forever = Options::new().wait(Wait::Forever);
    for is_program_last in [true, false] {
        let own = locks.acquire("a").expect("a free lock");
        let gate = Gate::new(&scene, "go");
        let line = "sh -c \"$GATE\"; exec tenure run a --wait forever -- true";
        let words = ["run", "b", "--", "sh", "-c", line];
        let run = Started::new(scene.tenure(words).env("GATE", gate.script("")));
        gate.entered();
        std::thread::scope(|scope| {
            let asks = || {
                let options = forever.clone().under(&own);
                locks.acquire_with("b", &options).map(drop)
            };
            if is_program_last {
                gate.open();
                scene.until_queued("a", 1);
                let answer = asks();
                let is_found = matches!(answer, Err(AcquireError::Deadlock { .. }));
                assert!(is_found, "{answer:?}");
            } else {
                let program = scope.spawn(asks);
                scene.until_queued("b", 1);
                gate.open();
                let answer = program.join().expect("no panic");
                answer.expect("the run has given way");
            }
        });
        drop(own);
        let code = if is_program_last { 0 } else { 81 };
        run.finish().expect(code, "the run");
    }
}

/// A program inside of a run waits under the hold of that run, and need not say so.
#[test]
fn a_program_inside_of_a_run_is_seen_in_its_circle() {
    let scene = Scene::new();
    let locks = LockManager::new(scene.locks()).expect("a folder with a name");
    let other = locks.acquire("b").expect("a free lock");
    let program = std::env::current_exe().expect("this program");
    let mut words = vec!["run", "a", "--", program.to_str().expect("a path")];
    words.extend(["--exact", "program::wants_one_more_lock", "--ignored"]);
    let run = Started::new(&mut scene.tenure(words));
    scene.until_queued("b", 1);
    let options = Options::new().wait(Wait::Forever).under(&other);
    let answer = locks.acquire_with("a", &options).map(drop);
    let is_found = matches!(answer, Err(AcquireError::Deadlock { .. }));
    assert!(is_found, "{answer:?}");
    drop(other);
    run.finish().expect(0, "the program has had its turn");
}

/// Does nothing by itself: a test starts it.
#[test]
#[ignore = "a program that ends and leaves its lock to another process"]
fn leaves_its_lock_to_a_child() {
    let folder = std::env::var_os("FOLDER").expect("a folder");
    let locks = LockManager::new(&folder).expect("a folder with a name");
    let guard = locks.acquire("deploy").expect("a free lock");
    let handed = guard.hand_on().expect("a descriptor");
    let mut child = Command::new("sleep");
    child
        .arg("600")
        .envs([handed.env()])
        .stdin(Stdio::null())
        .stdout(Stdio::null());
    let child = child.stderr(Stdio::null()).spawn().expect("a process");
    let pid = std::path::Path::new(&folder).join("pid");
    std::fs::write(pid, child.id().to_string()).expect("a file");
    std::process::exit(0);
}

#[test]
fn others_are_told_what_they_can_do_about_a_program_that_has_ended() {
    let scene = Scene::new();
    let mut program = Command::new(std::env::current_exe().expect("this program"));
    program.args([
        "--exact",
        "program::leaves_its_lock_to_a_child",
        "--ignored",
    ]);
    answer(program.env("FOLDER", scene.locks())).expect(0, "it has ended");
    let child = read_number(&scene.locks().join("pid"));
    assert_eq!(scene.check("deploy")["holder"]["orphaned"], true);
    let rows: [&[&str]; 4] = [
        &["check", "deploy"],
        &["run", "deploy", "-n", "--", "true"],
        &["cancel", "deploy"],
        &["force-release", "deploy", "--yes"],
    ];
    for words in rows {
        let answer = scene.run(words);
        let said = format!("{}{}", answer.stdout(), answer.stderr());
        assert!(
            said.contains("it died; what it forked or started goes on"),
            "{words:?}: {said}"
        );
        assert!(
            !said.contains("--orphan"),
            "it names no command: {words:?}: {said}"
        );
        assert!(!said.contains("its command goes on"), "{words:?}: {said}");
    }
    send(child, Signal::KILL);
    eventually("the lock to be free", || scene.is_free("deploy"));
}
