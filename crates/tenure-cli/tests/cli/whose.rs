//! Whose hold `release` means without an id: jobs of one engine share an owner, and each gives back its own.

use crate::support::{Scene, answer};

fn python(scene: &Scene, script: &str) -> String {
    let mut python = scene.program("python3");
    python.args(["-c", script]).current_dir(scene.root());
    let said = answer(&mut python);
    format!("{}{}", said.stdout(), said.stderr())
}

fn shell(scene: &Scene, shell: &str, script: &str) -> String {
    let mut command = scene.program(shell);
    command.args(["-c", script]).current_dir(scene.root());
    let said = answer(&mut command);
    format!("{}{}", said.stdout(), said.stderr())
}

/// The last words of the job release, in a shell that keeps its process for them.
#[test]
fn jobs_of_one_engine_give_back_their_own_slots() {
    let scene = Scene::new();
    for program in ["bash", "dash", "sh"] {
        let said = python(
            &scene,
            &format!(
                r#"
import subprocess, time
def job(n, s):
    return subprocess.Popen(["{program}", "-c", f"tenure -q acquire gpu --slots 2 -w 20s >/dev/null; echo {{n}} >>log; sleep {{s}}; echo {{n}} ends >>log; tenure release gpu >/dev/null"])
open("log", "w").close()
a = job("long", 3); time.sleep(.4); b = job("short", .6); time.sleep(1.2); c = job("third", .4)
print([x.wait() for x in (b, c, a)], open("log").read().split("\n"))
"#
            ),
        );
        let expected =
            "[0, 0, 0] ['long', 'short', 'short ends', 'third', 'third ends', 'long ends', '']\n";
        assert_eq!(said, expected, "{program}");
        assert!(scene.is_free("gpu"), "{program}");
    }
}

#[test]
fn job_that_was_refused_frees_no_other_job() {
    let scene = Scene::new();
    for program in ["bash", "dash"] {
        let said = python(
            &scene,
            &format!(
                r#"
import subprocess, time
def job(n):
    return subprocess.Popen(["{program}", "-c", f"tenure -q acquire x -w 300ms >/dev/null 2>&1 && {{{{ echo {{n}} >>log; sleep 2; echo {{n}} ends >>log; }}}}; tenure -q release x 2>/dev/null >/dev/null"])
open("log", "w").close()
a = job("a"); time.sleep(.4); b = job("b"); time.sleep(.1); c = job("c")
print(b.wait(), c.wait(), subprocess.run(["tenure", "-q", "check", "x"], stdout=subprocess.DEVNULL).returncode, a.wait(), open("log").read().split())
"#
            ),
        );
        assert_eq!(said, "6 6 4 0 ['a', 'a', 'ends']\n", "{program}");
        assert!(scene.is_free("x"), "{program}");
    }
}

#[test]
fn release_without_an_id_table() {
    let scene = Scene::new();
    for program in ["bash", "dash", "zsh"] {
        for (script, expected) in [
            // In one script, in every place in it.
            (
                "tenure -q acquire x >/dev/null; tenure -q release x >/dev/null; echo $?",
                "0\n",
            ),
            (
                "tenure -q acquire x >/dev/null; env tenure -q release x >/dev/null; echo $?",
                "0\n",
            ),
            (
                "printf '1\\n2\\n' | while read n; do tenure -q acquire x >/dev/null; tenure -q release x >/dev/null; echo $?; done",
                "0\n0\n",
            ),
            (
                "{ tenure -q acquire x >/dev/null; tenure -q release x >/dev/null; echo $?; } | cat",
                "0\n",
            ),
            (
                "(tenure -q acquire x >/dev/null; tenure -q release x >/dev/null; echo $?; true)",
                "0\n",
            ),
            (
                "tenure -q acquire x >/dev/null; exec tenure -q release x",
                "released x\n",
            ),
            // Another living caller's hold.
            (
                "sh -c 'tenure -q acquire x >/dev/null; echo held >f; sleep 1; true' & until [ -e f ]; do sleep 0.05; done; rm f; \
              tenure -q release x 2>/dev/null; echo $?; wait; tenure -q release x >/dev/null; echo $?",
                "6\n0\n",
            ),
            // Two holds that may be meant.
            (
                "tenure -q acquire x --slots 3 --request-id a --why one >/dev/null; tenure -q acquire x --slots 3 --request-id b --why two >/dev/null; \
              tenure -q release x 2>&1 | sed 's/since.*//'; tenure -q release x --request-id a >/dev/null; tenure -q release x >/dev/null; echo $?",
                "tenure: 2 holds of x may be meant; show the request id of the one with --request-id\n        a, slot 0: one, \n        b, slot 1: two, \n0\n",
            ),
        ] {
            let said = shell(&scene, program, script);
            let said = said
                .lines()
                .filter(|line| !line.starts_with("released"))
                .chain(said.lines().filter(|line| {
                    expected.starts_with("released") && line.starts_with("released")
                }))
                .map(|line| line.split(" after").next().unwrap_or_default())
                .fold(String::new(), |all, line| all + line + "\n");
            assert_eq!(said, expected, "{program}: {script}");
            assert!(scene.is_free("x"), "{program}: {script}");
        }
    }
}

#[test]
fn heartbeat_renews_every_slot_of_its_owner() {
    let scene = Scene::new();
    let said = shell(
        &scene,
        "bash",
        "for n in 1 2; do tenure -q acquire x --slots 3 --ttl 3s >/dev/null; done; \
        for i in 1 2 3 4; do sleep 1; tenure -q heartbeat x >/dev/null; done; tenure check x --output json | grep -o '\"token\":[0-9]*' | wc -l",
    );
    assert!(
        said.trim().parse::<u32>().is_ok_and(|tokens| tokens >= 2),
        "{said}"
    );
}

/// A program of this name, which runs a script of shell as a daemon or a host does.
fn named(scene: &Scene, name: &str) -> String {
    let copy = scene.path(name);
    std::fs::copy("/bin/dash", &copy).expect("a shell under another name");
    copy.display().to_string()
}

#[test]
fn owner_of_a_hold_table() {
    let scene = Scene::new();
    // What makes the call; what it runs; how that ends; and whether the lock is held afterwards, while the parent lives.
    for (parent, call, code, is_held) in [
        (
            "crond",
            "sh -c 'tenure -q acquire x -n >/dev/null && true; tenure -q release x >/dev/null'",
            0,
            false,
        ),
        (
            "crond",
            "sh -c 'tenure -q acquire x -n >/dev/null && sleep 0'",
            0,
            false,
        ),
        (
            "crond",
            "sh -c 'if tenure -q acquire x >/dev/null; then sleep 0; fi; false'",
            1,
            false,
        ),
        ("crond", "tenure -q acquire x", 2, false),
        ("sshd", "sh -c 'tenure -q acquire x'", 2, false),
        ("sshd", "bash -c 'cd / && tenure -q acquire x'", 2, false),
        ("sshd", "env X=1 sh -c 'tenure -q acquire x'", 2, false),
        ("systemd", "tenure -q acquire x", 2, false),
        (
            "supervisord",
            "sh -c 'tenure -q acquire x >/dev/null; sleep 0; true'",
            0,
            false,
        ),
        (
            "engine",
            "sh -c 'tenure -q acquire x >/dev/null; sleep 0; true'",
            0,
            false,
        ),
        (
            "engine",
            "bash -c 'tenure -q acquire x --slots 2 | cat >/dev/null; sleep 0; false'",
            1,
            false,
        ),
        (
            "engine",
            "sh -c 'cd / && tenure -q acquire x >/dev/null'",
            0,
            true,
        ),
        ("engine", "tenure -q acquire x >/dev/null", 0, true),
        (
            "codex",
            "sh -c 'tenure -q acquire x >/dev/null; sleep 0; true'",
            0,
            true,
        ),
        (
            "codex",
            "sh -c 'cd / && tenure -q acquire x >/dev/null'",
            0,
            true,
        ),
    ] {
        let script = format!(
            "{call} >said 2>&1\necho $?\n\
             tenure check x --output json | grep -c standing.:.held\n\
             tenure -q release x >/dev/null 2>&1\ntrue\n"
        );
        scene.write("script", &script);
        let said = shell(&scene, "sh", &format!("{} script", named(&scene, parent)));
        let told = std::fs::read_to_string(scene.path("said")).unwrap_or_default();
        let expected = format!("{code}\n{}\n", u8::from(is_held));
        assert_eq!(said, expected, "{parent}: {call}: {told}");
        assert_eq!(
            told.contains("tenure run NAME"),
            code == 2,
            "{parent}: {call}: {told}"
        );
    }
}
