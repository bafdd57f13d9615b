//! `examples/ci`: the line of each example, in a job that is started and cancelled as the documents of that runner say.

#![allow(
    clippy::disallowed_methods,
    reason = "the test removes files of its own, which no store has"
)]

use crate::support::{Scene, Started, answer, eventually, read_number};
use rustix::process::Signal;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;

/// Runs one line as a step of a job: `python3 FILE RUNNER LINE`. SIGTERM to this program cancels the job.
///
/// - GitLab Runner, shell executor: a shell in a group of its own reads the script; SIGTERM to the group, SIGKILL after 10 s.
/// - Buildkite: the agent starts `buildkite-agent bootstrap`, which starts a shell in a group of its own; SIGTERM to the
///   bootstrap, which passes it on to the group, and SIGKILL after 9 s.
/// - Jenkins: a shell in a session of its own that nobody waits for, under nohup; SIGTERM to each process that has the cookie of
///   the build, SIGKILL after 5 s.
const RUNNER: &str = r#"
import os, signal, subprocess, sys, time
from pathlib import Path
runner, line = sys.argv[1:3]
def cookie_of(mark):
    found = []
    for folder in Path("/proc").iterdir():
        try:
            if folder.name.isdigit() and mark.encode() in (folder / "environ").read_bytes().split(b"\0"):
                found.append(int(folder.name))
        except OSError:
            pass
    return found
def send(pids, number):
    for pid in pids:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            pass
def group(pid, number):
    try:
        os.killpg(pid, number)
    except ProcessLookupError:
        pass
stop = []
if runner == "buildkite" and sys.argv[3:] != ["bootstrap"]:
    words = ["buildkite-agent", "bootstrap"]
    step = subprocess.Popen([*words, runner, line], executable=os.environ["BOOTSTRAP"])
    signal.signal(signal.SIGTERM, lambda *_: step.send_signal(signal.SIGTERM))
    sys.exit(step.wait())
signal.signal(signal.SIGTERM, lambda *_: stop.append(time.monotonic()))
if runner == "gitlab":
    step = subprocess.Popen(["bash", "--login"], stdin=subprocess.PIPE, text=True, process_group=0)
    step.stdin.write("set -eo pipefail\n" + line + "\n")
    step.stdin.close()
    ends, patience = (lambda number: group(step.pid, number)), 10
elif runner == "buildkite":
    step = subprocess.Popen(["/bin/bash", "-e", "-c", line], process_group=0)
    ends, patience = (lambda number: group(step.pid, number)), 9
else:
    mark = f"JENKINS_NODE_COOKIE={os.getpid()}"
    step = subprocess.Popen(["nohup", "sh", "-c", "sh -xe -c \"$1\"", "sh", line], start_new_session=True,
        stdin=subprocess.DEVNULL, env=dict(os.environ, JENKINS_NODE_COOKIE=str(os.getpid())))
    ends, patience = (lambda number: send(cookie_of(mark), number)), 5
while step.poll() is None:
    if stop and stop[0] is not None:
        ends(signal.SIGTERM)
        stop[0], killed = None, time.monotonic() + patience
    if stop and time.monotonic() > killed:
        print("killed", flush=True)
        ends(signal.SIGKILL)
        killed += 60
    time.sleep(0.02)
sys.exit(step.returncode & 255)
"#;

/// The line of an example's first job, with work that the test can watch.
fn line(file: &str, work: &Path) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/ci");
    let text = fs::read_to_string(path.join(file)).expect("the example");
    let from = text.find("tenure run production").expect("its line");
    let line = text[from..].lines().next().unwrap_or_default();
    let line = line.trim_end_matches('\'').replace("$$", "$");
    assert!(line.ends_with("-- ./deploy"), "{line}");
    line.replace("./deploy", work.to_str().unwrap())
}

/// A login shell sets the path anew.
fn profile(scene: &Scene) {
    let own = Path::new(env!("CARGO_BIN_EXE_tenure")).parent();
    let line = format!("PATH={}:$PATH\n", own.expect("its folder").display());
    scene.write(".profile", &line);
}

/// A job of this runner, as a program of its own.
fn job(scene: &Scene, runner: &str, line: &str) -> Started {
    let bootstrap = scene.script(
        "bootstrap",
        "#!/bin/sh\nexec python3 -c \"$SCRIPT\" \"$2\" \"$3\" bootstrap\n",
    );
    let mut job = scene.program("python3");
    job.args(["-c", RUNNER, runner, line]);
    job.env("SCRIPT", RUNNER).env("BOOTSTRAP", bootstrap);
    for variable in ["CI_JOB_URL", "BUILDKITE_BUILD_URL", "BUILD_URL"] {
        job.env(variable, "https://ci.example.org/jobs/7");
    }
    Started::new(job.stdout(Stdio::piped()).stderr(Stdio::piped()))
}

#[test]
fn jobs_of_each_runner_take_turns_and_a_cancelled_one_leaves_nothing_table() {
    for (runner, file) in [
        ("gitlab", "gitlab-ci.yml"),
        ("buildkite", "buildkite.yml"),
        ("jenkins", "Jenkinsfile"),
    ] {
        let scene = Scene::new();
        profile(&scene);
        let (begun, go): (PathBuf, PathBuf) = (scene.path("begun"), scene.path("go"));
        let work = scene.script(
            "work",
            &format!(
                "#!/bin/sh\necho $$ >{begun}.new; mv {begun}.new {begun}\nwhile [ ! -e {go} ]; do sleep 0.02; done\n",
                begun = begun.display(),
                go = go.display()
            ),
        );
        let line = line(file, &work);
        let first = job(&scene, runner, &line);
        let at_work = read_number(&begun);
        let holder = scene.check("production")["holder"].clone();
        assert_eq!(holder["why"], "https://ci.example.org/jobs/7", "{runner}");
        // Two more wait; the second of them is cancelled while it waits, then the first while it works.
        let second = job(&scene, runner, &line);
        scene.until_queued("production", 1);
        let third = job(&scene, runner, &line);
        scene.until_queued("production", 2);
        third.signal(Signal::TERM);
        let third = third.finish();
        assert_ne!(third.code(), 0, "{runner}: {}", third.said());
        scene.until_queued("production", 1);
        fs::remove_file(&begun).expect("ours");
        first.signal(Signal::TERM);
        let first = first.finish();
        assert_ne!(first.code(), 0, "{runner}: {}", first.said());
        assert!(!first.stdout().contains("killed"), "{runner}: in time");
        assert_ne!(read_number(&begun), at_work, "{runner}: the second one");
        eventually("the work of the first to be gone", || {
            !crate::support::is_alive(at_work)
        });
        fs::write(&go, "").expect("a file");
        let _ = second.finish().expect(0, "the second job");
        scene.until_free("production");
    }
}

/// What the examples do beside the one command: a hold over several lines, and one over several steps.
#[test]
fn holds_of_the_examples_over_several_steps() {
    let scene = Scene::new();
    profile(&scene);
    let mut shell = scene.program("bash");
    let lines = "tenure -q acquire production --wait 15m --why x >/dev/null; tenure check production --output json; :";
    let mut shell = shell.args(["-c", &format!("bash --login <<'E'\n{lines}\nE")]);
    shell = shell.env("CI_JOB_ID", "7");
    let said = answer(shell).stdout();
    assert!(said.contains("\"standing\":\"held\""), "{said}");
    scene.until_free("production");

    let step = |line: &str| {
        let mut step = scene.program("sh");
        answer(
            step.args(["-xe", "-c", line])
                .env("BUILD_TAG", "jenkins-deploy-7"),
        )
    };
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/ci/Jenkinsfile");
    let example = fs::read_to_string(example).expect("the example");
    let lines = example.lines().filter_map(|line| {
        let line = line.split_once("sh '")?.1;
        Some(line.rsplit_once('\'')?.0.to_owned())
    });
    let lines: Vec<_> = lines.filter(|line| line.contains("BUILD_TAG")).collect();
    let [acquire, release] = &lines[..] else {
        panic!("{lines:?}");
    };
    let _ = step(acquire).expect(0, "the first step");
    assert_eq!(scene.standing("production"), "held", "between the steps");
    let _ = step(release).expect(0, "the last step");
    assert!(scene.is_free("production"));
}
