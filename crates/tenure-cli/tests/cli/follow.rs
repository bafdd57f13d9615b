//! `run --die-with-parent` and `--die-with PID`: who is killed, and what is left of the run then.

use crate::support::{
    Scene, Started, answer, children, eventually, is_alive, read_number, send, state, throughout,
};
use rustix::process::{Pid, Signal, kill_process_group};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

/// A caller in a group of its own, as a harness makes it: a shell that starts the run and outlives it.
struct Harness {
    shell: Started,
    work: Vec<PathBuf>,
}

/// What the work starts beside itself: a session of its own, and a daemon that has closed all it inherited.
const WORK: &str = "echo $$ >a.new; mv a.new a
    setsid sh -c 'echo $$ >b.new; mv b.new b; exec sleep 600' &
    (setsid sh -c 'exec 3>&- 4>&- 5>&- 6>&- 7>&- 8>&- 9>&-
        echo $$ >c.new; mv c.new c; exec sleep 600' &)
    exec sleep 600";

impl Harness {
    fn new(scene: &Scene, flags: &str, after: &str) -> Self {
        let work = scene.script(
            "work",
            &format!("#!/bin/sh\ncd '{}'\n{WORK}\n", scene.root().display()),
        );
        let mut shell = scene.program("sh");
        shell.args([
            "-c",
            &format!("\"$0\" run x {flags} --grace 1s -- \"$1\"; {after}"),
            env!("CARGO_BIN_EXE_tenure"),
            work.to_str().unwrap(),
        ]);
        shell.process_group(0).stdin(Stdio::null());
        let shell = Started::new(&mut shell);
        let work: Vec<_> = ["a", "b", "c"]
            .iter()
            .map(|name| scene.path(name))
            .collect();
        for file in &work {
            read_number(file);
        }
        Self { shell, work }
    }

    fn relay(&self) -> u32 {
        *children(self.shell.pid()).first().expect("the relay")
    }

    fn guardian(&self) -> u32 {
        *children(self.relay()).first().expect("the guardian")
    }

    fn group(&self, signal: Signal) {
        let group = Pid::from_raw(self.shell.pid().try_into().unwrap()).unwrap();
        kill_process_group(group, signal).unwrap();
    }

    /// Nothing of the work is left, and the lock is free.
    fn is_over(&self, scene: &Scene, what: &str) {
        for file in &self.work {
            let number = read_number(file);
            eventually(what, || !is_alive(number) || state(number) == Some('Z'));
        }
        scene.until_free("x");
    }
}

#[test]
fn nothing_of_a_run_outlives_what_it_follows_table() {
    type Kill = fn(&Harness);
    let rows: [(&str, &str, Kill); 7] = [
        ("the group, TERM and then KILL", ":", |harness| {
            harness.group(Signal::TERM);
            std::thread::sleep(Duration::from_millis(50));
            harness.group(Signal::KILL);
        }),
        ("the group, KILL", ":", |harness| {
            harness.group(Signal::KILL);
        }),
        ("the relay", "sleep 600", |harness| {
            send(harness.relay(), Signal::KILL);
        }),
        ("the guardian", "sleep 600", |harness| {
            send(harness.guardian(), Signal::KILL);
        }),
        ("the parent", ":", |harness| {
            send(harness.shell.pid(), Signal::KILL);
        }),
        ("the parent, which ends by itself", ":", |harness| {
            send(harness.shell.pid(), Signal::TERM);
        }),
        ("the relay, asked to end", "sleep 600", |harness| {
            send(harness.relay(), Signal::TERM);
        }),
    ];
    for (what, after, kill) in rows {
        let scene = Scene::new();
        let harness = Harness::new(&scene, "--die-with-parent", after);
        kill(&harness);
        harness.is_over(&scene, what);
        if is_alive(harness.shell.pid()) {
            harness.shell.kill_with_children();
        }
    }
}

#[test]
fn run_that_follows_another_process_ends_with_it_waiting_or_at_work() {
    let scene = Scene::new();
    let mut followed = Command::new("sleep").arg("600").spawn().expect("a process");
    let number = followed.id().to_string();
    let words = [
        "run",
        "x",
        "--die-with",
        &number,
        "--grace",
        "1s",
        "--",
        "sleep",
        "600",
    ];
    let holder = Started::piped(&mut scene.tenure(words));
    scene.until_named("x");
    let waiter = Started::piped(&mut scene.tenure(words));
    scene.until_queued("x", 1);
    followed.kill().expect("ours");
    // Not collected yet: its end counts all the same.
    for run in [holder, waiter] {
        let said = run.finish().expect(143, "as if it was asked to end");
        let told = format!("the process that it follows (PID {number}) has ended");
        assert!(said.stderr().contains(&told), "{}", said.said());
    }
    scene.until_free("x");
    let _ = followed.wait();
}

/// An agent's host starts each command by a shell of its own. The run follows the host, and from a namespace in which the host
/// cannot be seen nothing, and goes on all the same.
#[test]
fn run_follows_the_host_of_its_caller_as_far_as_it_is_seen() {
    let scene = Scene::new();
    let call = "tenure run x --die-with auto --grace 1s -- sh -c 'echo $$ >work.new; mv work.new work; exec sleep 600'";
    // A host is no shell that runs one text: it has a program of its own.
    let host = scene.script(
        "host",
        &format!(
            "#!/bin/bash\ncd '{}'\nbash -c \"$1\"; sleep 600\n",
            scene.root().display()
        ),
    );
    let mut host = scene.program(host.to_str().unwrap());
    let host = Started::new(host.arg(call).process_group(0).stdin(Stdio::null()));
    let work = read_number(&scene.path("work"));
    host.signal(Signal::KILL);
    scene.until_free("x");
    eventually("the work ends with the host", || !is_alive(work));
    let _ = host.finish();

    let mut apart = scene.program("unshare");
    apart.args(["--pid", "--fork", "--mount-proc", "tenure", "run", "x"]);
    apart.args(["--die-with", "auto", "--", "echo", "ran"]);
    let apart = answer(&mut apart);
    if !apart.stderr().contains("unshare:") {
        assert_eq!(apart.expect(0, "nothing is refused").stdout(), "ran\n");
    }
}

/// The holder goes on: the waiters leave by themselves, and not because their turn has come.
#[test]
fn waiter_leaves_the_line_behind_a_holder_that_goes_on_table() {
    let scene = Scene::new();
    let holder = scene.hold("x", ["-q"]);
    let mut followed = Command::new("sleep").arg("600").spawn().expect("a process");
    let number = followed.id().to_string();
    let wait = |flags: &[&str]| {
        let words = [&["run", "x", "--wait", "10m"], flags, &["--", "true"]].concat();
        Started::piped(&mut scene.tenure(words))
    };
    let waiter = wait(&["--die-with", &number]);
    scene.until_queued("x", 1);
    followed.kill().expect("ours");
    let said = waiter.finish().expect(143, "as if it was asked to end");
    assert!(said.stderr().contains("has ended"), "{}", said.said());
    scene.until_queued("x", 0);
    let relay = wait(&["--die-with-parent"]);
    scene.until_queued("x", 1);
    relay.signal(Signal::KILL);
    scene.until_queued("x", 0);
    let _ = relay.finish();
    let _ = holder.open().expect(0, "the holder was not disturbed");
    let _ = followed.wait();
}

/// An orderly end leaves behind what a run without the flag leaves behind; an end without order leaves nothing.
#[test]
fn what_the_command_leaves_behind_goes_on_after_an_orderly_end_alone() {
    for (line, is_ended) in [
        ("kill -USR1 $$", false),
        ("exit 3", false),
        ("trap '' INT TERM; while :; do sleep 0.05; done", true),
    ] {
        let scene = Scene::new();
        let pid = scene.path("daemon");
        let pid = pid.to_str().unwrap();
        let line = format!(
            "setsid sh -c 'echo $$ >{pid}.new; mv {pid}.new {pid}; exec sleep 600' & \
             while ! [ -e {pid} ]; do sleep 0.01; done; {line}"
        );
        let words = ["run", "x", "--die-with-parent", "--", "sh", "-c", &line];
        let mut run = Started::new(&mut scene.tenure(words));
        let daemon = read_number(pid.as_ref());
        if is_ended {
            // The second one ends tenure at once; the relay ends the work.
            for _ in 0..2 {
                run.signal(Signal::INT);
                std::thread::sleep(Duration::from_millis(1_200));
            }
        }
        run.end();
        if is_ended {
            eventually("nothing is left", || {
                !is_alive(daemon) || state(daemon) == Some('Z')
            });
        } else {
            assert!(is_alive(daemon), "{line}");
            send(daemon, Signal::KILL);
        }
        scene.until_free("x");
    }
}

/// The kernel's own death signal follows the thread that has started a process.
#[test]
fn end_of_the_thread_that_started_a_run_means_nothing() {
    let scene = Scene::new();
    let mut command = scene.tenure(["run", "x", "--die-with-parent", "--", "sleep", "600"]);
    let run = std::thread::spawn(move || Started::new(&mut command));
    let run = run.join().expect("no panic");
    scene.until_named("x");
    throughout(Duration::from_millis(500), "the run goes on", || {
        !scene.is_free("x")
    });
    run.signal(Signal::INT);
    let _ = run.finish().expect(130, "the relay passes it on");
    scene.until_free("x");
}

#[test]
fn run_that_follows_ends_as_its_command_does_table() {
    let scene = Scene::new();
    for (line, code, signal) in [
        ("exit 0", Some(0), None),
        ("exit 9", Some(9), None),
        ("kill -USR1 $$", None, Some(10)),
    ] {
        let words = ["run", "x", "--die-with-parent", "--", "sh", "-c", line];
        let status = scene.run(words).status();
        assert_eq!((status.code(), status.signal()), (code, signal), "{line}");
        assert!(scene.is_free("x"), "{line}");
    }
    let words = [
        "run",
        "x",
        "--die-with-parent",
        "--output",
        "json",
        "-n",
        "--",
        "true",
    ];
    let holder = scene.hold("x", ["-q"]);
    assert_eq!(
        scene.run(words).expect(4, "held").json()["error"]["code"],
        "LOCK_HELD"
    );
    let _ = holder.open().expect(0, "the holder was not disturbed");
}

#[test]
fn who_cannot_be_followed_is_refused_before_anything_table() {
    let scene = Scene::new();
    let mut ended = Command::new("true").spawn().expect("a process");
    ended.wait().expect("it ends");
    let ended = ended.id().to_string();
    for (flags, said) in [
        (&["--die-with", "1"][..], "a process that ends"),
        (&["--die-with", "0"], "a process that ends"),
        (&["--die-with", &ended], "is not there"),
        (&["--die-with", "x"], "--die-with"),
        (&["--die-with-parent", "--exec"], "--exec"),
        (&["--die-with-parent", "--die-with", "2"], "--die-with"),
    ] {
        let words = [&["run", "x"], flags, &["--", "touch", "ran"]].concat();
        let answer = scene.run(words).expect(2, "bad arguments");
        assert!(answer.stderr().contains(said), "{}", answer.said());
        assert!(!scene.locks().exists(), "nothing was touched: {flags:?}");
    }
}

/// The variable by which the processes of a round are known.
const ROUND: &str = "ROUND_OF_THE_HARNESS";

/// Processes of a round that are at work: none of them is tenure.
fn work_of(round: &str) -> Vec<String> {
    let mark = format!("{ROUND}={round}");
    let mut found = Vec::new();
    for folder in std::fs::read_dir("/proc").expect("processes").flatten() {
        // A process that has ended meanwhile has no environment any more.
        let read = |file| std::fs::read(folder.path().join(file)).unwrap_or_default();
        if read("environ")
            .split(|byte| *byte == 0)
            .any(|it| it == mark.as_bytes())
        {
            let line = String::from_utf8_lossy(&read("cmdline")).replace('\0', " ");
            if !line.contains(env!("CARGO_BIN_EXE_tenure")) {
                found.push(line);
            }
        }
    }
    found
}

/// As harnesses are found in the field: `timeout -k`, and a program in Python that ends the group of its job. Two rounds of
/// each, or two hundred with `TENURE_FOLLOW=long`, each killed at another instant of its life.
#[test]
fn harness_that_is_killed_leaves_neither_work_nor_waiter() {
    const PYTHON: &str = "import os, signal, subprocess, sys, time
later, grace, how = float(sys.argv[1]), float(sys.argv[2]), sys.argv[3]
job = subprocess.Popen(['sh', '-c', sys.argv[4]], start_new_session=True, stdin=subprocess.DEVNULL)
time.sleep(later)
if how == 'asks':
    os.killpg(job.pid, signal.SIGTERM)
    time.sleep(grace)
try:
    os.killpg(job.pid, signal.SIGKILL)
except ProcessLookupError:
    pass
job.wait()";
    let is_long = std::env::var("TENURE_FOLLOW").is_ok_and(|it| it == "long");
    let rounds: u32 = if is_long { 200 } else { 2 };
    for (harness, at) in ["timeout", "python"]
        .into_iter()
        .flat_map(|harness| (0..rounds).map(move |at| (harness, at)))
    {
        let scene = Scene::new();
        let work = scene.script(
            "work",
            "#!/bin/sh\nsetsid sleep 600 &\n\
             (setsid sh -c 'exec 3>&- 4>&- 5>&- 6>&- 7>&- 8>&- 9>&-; exec sleep 600' &)\nexec sleep 600\n",
        );
        let (round, work) = (format!("{harness}-{at}"), work.to_str().unwrap());
        let tenure = env!("CARGO_BIN_EXE_tenure");
        // From before the run has its lock to well into its work, and less or more than the work takes to end.
        let later = format!("0.{:03}", (at * 37) % 250 + 1);
        let grace = format!("0.{:03}", (at * 13) % 100 + 1);
        let run = ["run", "x", "--die-with-parent", "--grace", "300ms"];
        let mut jobs = vec![scene.program(if harness == "timeout" {
            harness
        } else {
            "python3"
        })];
        if harness == "timeout" {
            jobs[0].args(["-k", &grace, &later, tenure]).args(run);
            jobs[0].args(["--", work]);
            let mut waiter = scene.program(harness);
            waiter.args(["-k", &grace, &later, tenure]).args(run);
            waiter.args(["-w", "60s", "--", work]);
            jobs.push(waiter);
        } else {
            let (how, run) = (["asks", "kills"][(at % 2) as usize], run.join(" "));
            let line = format!("{tenure} {run} -- {work} & {tenure} {run} -w 60s -- {work}; :");
            jobs[0].args(["-c", PYTHON, &later, &grace, how, &line]);
        }
        let jobs = jobs.iter_mut().map(|job| {
            let job = job.env(ROUND, &round).stdin(Stdio::null());
            Started::new(job.stdout(Stdio::null()).stderr(Stdio::null()))
        });
        for job in jobs.collect::<Vec<_>>() {
            let _ = job.finish();
        }
        eventually(&round, || {
            let is_free = scene.is_free("x");
            let left = work_of(&round);
            let is_running = is_free && !left.is_empty() && {
                // What is ending now may be seen for a moment.
                std::thread::sleep(Duration::from_millis(100));
                scene.is_free("x") && !work_of(&round).is_empty()
            };
            assert!(!is_running, "{round}: the lock is free beside {left:?}");
            is_free && left.is_empty()
        });
    }
}
